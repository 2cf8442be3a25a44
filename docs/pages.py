"""Adds files from elsewhere in the repository to the documentation site: pages, notebooks, pictures.

A hook of MkDocs. Links work in both places: in the repository they lead to files, on the site to the files' pages.
"""

from __future__ import annotations

import json
import os.path
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
# A file of the repository, and the page or picture that it becomes.
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/results/training-cpu.md": "training-cpu.md",
    "benchmarks/results/robots.md": "robots.md",
    "benchmarks/results/tried-solver.md": "tried-solver.md",
    "benchmarks/results/tried-shapes.md": "tried-shapes.md",
    "benchmarks/results/tried-compiler.md": "tried-compiler.md",
    "benchmarks/results/tried-interfaces.md": "tried-interfaces.md",
    "benchmarks/results/tried-training.md": "tried-training.md",
    "examples/quadruped/README.md": "quadruped.md",
    "examples/quadruped/quadruped.gif": "quadruped.gif",
    "examples/cleanrl_ppo.py": "cleanrl_ppo.md",
    "examples/multi_gpu.py": "multi_gpu.md",
    "examples/ray_search.py": "ray_search.md",
    "examples/notebooks/quickstart.ipynb": "quickstart.md",
    "examples/notebooks/train_and_watch.ipynb": "train_and_watch.md",
    "examples/notebooks/your_own_task.ipynb": "your_own_task.md",
}


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages."""
    for path, page in PAGES.items():
        if page.endswith(".md"):
            files.append(File.generated(config, page, content=markdown_of(ROOT / path)))
        else:
            files.append(File.generated(config, page, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Have links and pictures lead to where the files are on the site; links to files that it does not have are
    removed.
    """
    source = {v: k for k, v in PAGES.items()}.get(page.file.src_uri, f"docs/{page.file.src_uri}")

    def lead(found: re.Match[str]) -> str:
        mark, text, target, anchor = found.groups(default="")
        path = os.path.normpath(os.path.join(os.path.dirname(source), target))
        if not (ROOT / path).exists():  # a link to another site, or no link at all
            return found.group()
        if path in PAGES:
            return f"{mark}[{text}]({PAGES[path]}{anchor})"
        return f"{mark}[{text}]({path.removeprefix('docs/')}{anchor})" if path.startswith("docs/") else text

    return as_python_markdown(re.sub(r"(!?)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)", lead, markdown))


def as_python_markdown(markdown: str) -> str:
    """Turn GitHub's lists into what MkDocs needs: after an empty line, and with parts indented by 4 spaces."""
    out: list[str] = []
    fenced = listed = False
    parted = True  # whether empty lines have to separate the items of this list
    for line in markdown.split("\n"):
        item = re.match(r"\s*([-*]|\d+\.) ", line) is not None and not fenced
        if item and parted and out and out[-1].strip():
            out.append("")
        if item or (line.strip() and not line.startswith(" ") and not fenced):
            listed, parted = item, not item or (parted and listed)
        parted |= not line.strip()
        out.append(f"  {line}" if listed and line.startswith("  ") else line)
        fenced ^= line.strip().startswith("```")
    return "\n".join(out)


def markdown_of(path: Path) -> str:
    """A file as a page."""
    text = path.read_text()
    if path.suffix == ".py":
        return f"# {path.name}\n\n```python\n{text}```\n"
    if path.suffix == ".ipynb":
        return "\n\n".join(map(of_cell, json.loads(text)["cells"]))
    return text


def of_cell(cell: dict[str, Any]) -> str:
    """A cell of a notebook: its text, or its code and what that showed."""
    source = "".join(cell["source"])
    if cell["cell_type"] != "code":
        return source
    return "\n\n".join([f"```python\n{source}\n```", *map(of_output, cell["outputs"])])


def of_output(output: dict[str, Any]) -> str:
    """What a cell showed: a picture, or text."""
    shown = output.get("data", {})
    for kind, data in shown.items():
        if kind.startswith("image/"):
            return f'<img src="data:{kind};base64,{"".join(data).strip()}" alt="what this shows">'
    text = "".join(output.get("text", shown.get("text/plain", "")))
    return f"```text\n{text.rstrip()}\n```" if text.strip() else ""

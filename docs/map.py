"""Writes docs/map.md: every module of the package by folder, with the first paragraph of its docstring.

    python docs/map.py

The source is read, not imported, so the libraries that only adapters need may be missing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "torch_mjenvs"
PAGE = Path(__file__).with_name("map.md")
HEAD = """# Map of the source

Every module, with the first lines of its docstring. Made by `python docs/map.py`; [design.md](design.md) says how the
parts work together.
"""


def page() -> str:
    """The whole text: the package's own modules first, then folder by folder."""
    folders = sorted({x.parent for x in PACKAGE.rglob("*.py")})
    return HEAD + "".join("\n" + "\n".join(_section(folder)) + "\n" for folder in folders)


def _section(folder: Path) -> Iterator[str]:
    yield f"## {folder.relative_to(PACKAGE.parent)}/\n"
    if about := summary(folder / "__init__.py"):
        yield f"{about}\n"
    for file in sorted(folder.glob("*.py")):
        if file.name != "__init__.py":
            yield f"- `{file.name}`: {summary(file)}"


def summary(file: Path) -> str:
    """The first paragraph of a module's docstring on one line; empty where there is none."""
    text = ast.get_docstring(ast.parse(file.read_text())) or ""
    return " ".join(text.split("\n\n")[0].split())


if __name__ == "__main__":
    PAGE.write_text(page())

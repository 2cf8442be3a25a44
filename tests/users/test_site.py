"""The documentation site builds from docs/ without a warning, and every link on it leads somewhere."""

from __future__ import annotations

import html.parser
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest

pytest.importorskip("mkdocs")
pytest.importorskip("material")

ROOT = Path(__file__).resolve().parents[2]


class Links(html.parser.HTMLParser):
    """What a page refers to, and the ids in it."""

    def __init__(self, page: Path):
        super().__init__()
        self.targets: list[str] = []
        self.ids: set[str] = set()
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.targets.append(value)
            if name == "id" and value:
                self.ids.add(value)


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path):
    site = tmp_path / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "WARNING " not in done.stderr, done.stderr
    pages = {page: Links(page) for page in site.rglob("*.html") if page.name != "404.html"}
    assert len(pages) >= 20
    for page, links in pages.items():
        text = re.sub(r"<pre.*?</pre>", "", page.read_text(), flags=re.S)
        assert not re.search(r"^\s*(- |\d+\. |\| )", text, re.M), (
            f"{page.relative_to(site)}: a list or table is not one"
        )
        for target in links.targets:
            if target.startswith(("http:", "https:", "data:", "mailto:")):
                continue
            path, _, anchor = unquote(target).partition("#")
            there = (page.parent / path).resolve() if path else page
            there = there / "index.html" if there.is_dir() else there
            assert there.exists(), f"{page.relative_to(site)} refers to {target}"
            assert not anchor or there not in pages or anchor in pages[there].ids, f"{page.relative_to(site)}: {target}"
    home = (site / "index.html").read_text()
    assert 'src="performance.png"' in home and 'href="gymnasium/"' in home
    assert "data:image/png" in (site / "quickstart" / "index.html").read_text()

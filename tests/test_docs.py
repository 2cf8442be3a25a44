"""Every Python example in the README and in docs/ runs as it stands."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCKS = [
    pytest.param(code, id=f"{page.name}-{k}")
    for page in PAGES
    if page.name != "libraries.md"  # which test_adapters_training.py runs, where the libraries are installed
    for k, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.S))
]


@pytest.mark.usefixtures("no_default_device")
@pytest.mark.parametrize("code", BLOCKS)
def test_example(code, monkeypatch):
    module = ModuleType("example")
    monkeypatch.setitem(sys.modules, "example", module)  # dataclasses look their module up
    exec(compile(code, "example", "exec"), vars(module))


def test_there_are_examples():
    assert len(BLOCKS) >= 4


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links(page):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target

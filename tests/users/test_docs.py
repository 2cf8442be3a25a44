"""Every Python example in the README and in docs/ runs as it stands."""

from __future__ import annotations

import importlib.util
import inspect
import re
import runpy
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from documented import examples

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
NEEDS = {"dmc.md": pytest.mark.skipif(importlib.util.find_spec("dm_control") is None, reason="needs the extra dmc")}
BLOCKS = [
    pytest.param(code, id=f"{page.name}-{k}", marks=NEEDS.get(page.name, ()))
    for page in PAGES
    # test_adapters_training.py and tests/playground run the others, where the libraries are installed
    if page.name not in ("libraries.md", "playground.md", "deploy.md")
    for k, code in enumerate(examples(str(page)))
]


@pytest.mark.usefixtures("no_default_device")
@pytest.mark.parametrize("code", BLOCKS)
def test_an_example_runs(code, monkeypatch):
    module = ModuleType("example")
    monkeypatch.chdir(ROOT)  # the README names a model by its path from there
    monkeypatch.setitem(sys.modules, "example", module)  # dataclasses look their module up
    exec(compile(code, "example", "exec"), vars(module))


def test_there_are_examples():
    assert len(BLOCKS) >= 4


RESULTS = (ROOT / "benchmarks" / "results").glob("*.md")
LINKED = {*PAGES, *ROOT.glob("*.md"), *(ROOT / "examples").rglob("*.md"), *RESULTS}


@pytest.mark.parametrize("page", sorted(LINKED), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_to_files_that_exist(page):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_nothing_is_installed_from_where_it_is_not():
    """The package is in no index: what is installed is a checkout."""
    texts = [*LINKED, *(ROOT / "examples").rglob("*.ipynb"), *(ROOT / "torch_mjenvs").rglob("*.py")]
    assert not [path.name for path in texts if re.search(r"pip install [\\\"']*torch[_-]mjenvs", path.read_text())]


REFERENCE = runpy.run_path(str(ROOT / "docs" / "reference.py"))


def test_the_reference_has_every_public_name_as_the_docstrings_have_it():
    page = REFERENCE["page"]()
    assert page == REFERENCE["PAGE"].read_text(), "run python docs/reference.py"
    for name in REFERENCE["SECTIONS"]:
        module = importlib.import_module(name)
        section = page.split(f"\n## {name}\n")[1].split("\n## ")[0]
        lazy = {x for x in module.__all__ if x not in vars(module)}  # an adapter, whose library may not be here
        held = {x: vars(module).get(x) for x in module.__all__}
        said = {x for x, y in held.items() if inspect.isroutine(y) or (inspect.isclass(y) and y is not Any)}
        assert {*said, *lazy} <= set(re.findall(r"^### `(\w+)`$", section, re.M))


MAP = runpy.run_path(str(ROOT / "docs" / "map.py"))


def test_the_map_has_every_module_as_its_docstring_has_it():
    page = MAP["page"]()
    assert page == MAP["PAGE"].read_text(), "run python docs/map.py"
    modules = [x for x in MAP["PACKAGE"].rglob("*.py") if x.name != "__init__.py"]
    assert len(re.findall(r"^- `\w+\.py`: \S", page, re.M)) == len(modules), "a module has no docstring"


def test_the_worked_trace_is_what_the_code_gives(capsys):
    page = (ROOT / "docs" / "design.md").read_text()
    code, graph, ir = re.search(r"```python\n(.*?)```.*?```\n(.*?)```.*?```llvm\n(.*?)```", page, re.S).groups()
    exec(code, {})
    assert capsys.readouterr().out == graph + ir

"""The notebooks of examples/notebooks run, at small sizes, and are kept with what they showed at full size."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

import nbformat

from examples.notebooks.run import FOLDER, execute
from torch_mjenvs.compiler import loader

NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
SMALL = {
    "quickstart": {"num_envs": 64, "steps": 20},
    "train_and_watch": {"num_envs": 32, "horizon": 8, "iterations": 2},
    "your_own_task": {"num_envs": 64, "episode": 20, "generations": 2},
}


@pytest.fixture(scope="module")
def opengl() -> bool:
    """Is there one to draw with? MuJoCo chooses it when it is first needed, so another process asks."""
    code = "import mujoco; mujoco.GLContext(16, 16).make_current()"
    environment = {"MUJOCO_GL": "egl"} | os.environ
    return (
        subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, timeout=120).returncode == 0
    )


@pytest.fixture(scope="module")
def ipython(tmp_path_factory) -> Path:
    """A folder of IPython's, whose kernels have LLVM hurry where these tests do; it leaves no name to a notebook."""
    folder = tmp_path_factory.mktemp("ipython")
    startup = folder / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "hurry.py").write_text(
        f"__import__('torch_mjenvs.compiler.loader', fromlist=['options']).options.update({loader.options!r})\n"
    )
    return folder


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, opengl, ipython, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("IPYTHONDIR", str(ipython))
    monkeypatch.delenv("MPLBACKEND", raising=False)  # it would keep plots out of the notebook
    if path.stem == "train_and_watch":
        pytest.importorskip("torchrl")
    notebook = execute(path, tmp_path, SMALL[path.stem] | {"pictures": opengl})
    assert outputs(notebook, "display_data")


def outputs(notebook, *kinds: str) -> list:
    """The outputs of these kinds, of all cells."""
    return [x for cell in notebook.cells for x in cell.get("outputs", []) if x.output_type in kinds]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_is_kept_with_its_outputs(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1)), "run it anew, from the top"
    assert not outputs(notebook, "error")
    assert not [x for x in outputs(notebook, "stream") if x.name == "stderr"]
    pictures = [data for x in outputs(notebook, "display_data") for k, data in x.data.items() if k.startswith("image")]
    assert len(pictures) >= 2
    assert all(len(data) * 3 / 4 < 500_000 for data in pictures)


def test_there_are_notebooks():
    assert {path.stem for path in NOTEBOOKS} == set(SMALL)

"""The notebooks of examples/notebooks run, at small sizes, and are kept with what they showed at full size.

After a change, run them in full (`jupyter execute --inplace examples/notebooks/NAME.ipynb`) and look at the pictures.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

NOTEBOOKS = sorted((Path(__file__).resolve().parents[1] / "examples" / "notebooks").glob("*.ipynb"))
# What takes the place of the numbers in a notebook's cell that is tagged "parameters".
SMALL = {
    "quickstart": {"num_envs": 64, "steps": 20},
    "your_own_task": {"num_envs": 64, "episode": 20, "generations": 2},
}


@pytest.fixture(scope="module")
def opengl() -> bool:
    """Is there one to draw with? MuJoCo chooses it when it is first needed, so another process asks."""
    os.environ.setdefault("MUJOCO_GL", "egl")
    code = "import mujoco; mujoco.GLContext(16, 16).make_current()"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=120).returncode == 0


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs(path, opengl, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = nbformat.read(path, as_version=4)
    (at,) = [i for i, cell in enumerate(notebook.cells) if "parameters" in cell.metadata.get("tags", [])]
    parameters = SMALL[path.stem] | {"pictures": opengl}
    names = {line.split(" = ")[0] for line in notebook.cells[at].source.splitlines()}
    assert names == set(parameters)
    source = "\n".join(f"{name} = {value!r}" for name, value in parameters.items())
    notebook.cells.insert(at + 1, nbformat.v4.new_code_cell(source))
    client = nbclient.NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    if opengl:
        assert any("image/png" in x.data for x in outputs(notebook, "display_data"))


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

"""Run notebooks from top to bottom, in full, and keep what they show: python examples/notebooks/run.py [FILE ...]"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import nbclient
import nbformat

FOLDER = Path(__file__).resolve().parent


def execute(path: Path, folder: Path, parameters: dict[str, Any] | None = None) -> nbformat.NotebookNode:
    """Run a notebook in this folder, with `parameters` in place of those in the cell tagged "parameters"; return it
    with its outputs.

    Raises ValueError for names other than in that cell, CellExecutionError where a cell fails.
    """
    notebook = nbformat.read(path, as_version=4)
    if parameters is not None:
        (cell,) = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])]
        names = {line.split(" = ")[0] for line in cell.source.splitlines()}
        if names != set(parameters):
            raise ValueError(f"{path.name} has the parameters {sorted(names)}, not {sorted(parameters)}")
        cell.source = "\n".join(f"{name} = {value!r}" for name, value in parameters.items())
    resources = {"metadata": {"path": str(folder)}}
    return nbclient.NotebookClient(notebook, kernel_name="python3", resources=resources, record_timing=False).execute()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, default=sorted(FOLDER.glob("*.ipynb")), metavar="FILE")
    for path in parser.parse_args().files:
        nbformat.write(execute(path, FOLDER), path)
        print(f"{path.name}: done; look at its pictures")


if __name__ == "__main__":
    main()

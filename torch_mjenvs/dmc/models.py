"""Finds the models of the installed dm_control, and puts together those that it generates."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree

import mujoco

from ..checks import MissingExtra, install

INCLUDED = ("./common/materials.xml", "./common/skybox.xml", "./common/visual.xml")


def suite_folder() -> Path:
    """Return the folder of dm_control's suite, which is found without importing it: that takes seconds, and may fail.

    Raises MissingExtra if dm_control is not installed.
    """
    found = importlib.util.find_spec("dm_control")
    if found is None or not found.submodule_search_locations:
        raise MissingExtra(f"the models of these tasks are dm_control's: {install('dmc')}", name="dm_control")
    return Path(found.submodule_search_locations[0]) / "suite"


def parse(name: str) -> ElementTree.Element:
    """Return a model of the suite as XML, to be changed: by the name of its file, or its path."""
    return ElementTree.parse(suite_folder() / name).getroot()


def compiled(mjcf: ElementTree.Element, folder: str = "") -> mujoco.MjModel:
    """Compile a changed model of the suite, with the files that all models include.

    folder: the one with further files of the model's own, whose names in the model do not include it.
    """
    assets = {name: (suite_folder() / name).read_bytes() for name in INCLUDED}
    if folder:
        assets |= {path.name: path.read_bytes() for path in (suite_folder() / folder).iterdir() if path.is_file()}
    return mujoco.MjModel.from_xml_string(ElementTree.tostring(mjcf, "unicode"), assets)


def remove(mjcf: ElementTree.Element, kind: str, names: Iterable[str]) -> None:
    """Remove the elements of a kind, such as "body", that have these names.

    Raises ValueError for a name that does not exist.
    """
    for name in names:
        parent = mjcf.find(f".//{kind}[@name='{name}']/..")
        if parent is None:
            raise ValueError(f"the model has no {kind} {name!r}")
        parent.remove(next(x for x in parent.findall(kind) if x.get("name") == name))

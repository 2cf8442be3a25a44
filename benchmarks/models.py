"""Which models of other packages `Simulation` takes, with all of their sensors, and what the others ask for.

    pip install --no-deps dm_control gymnasium-robotics brax playground
    python -m benchmarks.models          # a table, and the reasons for refusals with the number of their models

Only the packages' MJCF files are read, none of their code is imported. Meshes, textures and height fields that a
package downloads elsewhere are replaced by stand-ins: whether a geom can collide does not depend on its vertices.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import mujoco
import numpy as np

from torch_mjenvs import UnsupportedModel
from torch_mjenvs.physics import load
from torch_mjenvs.physics.pipeline import derive

PACKAGES = {  # where the models of each are
    "gymnasium": "envs/mujoco/assets",
    "dm_control": "suite",
    "mujoco_playground": "_src",
    "gymnasium_robotics": ".",
    "brax": ".",
    "metaworld": ".",
    "robosuite": ".",
    "myo_sim": ".",
    "musclemimic_models": ".",
    "safety_gymnasium": ".",
    "fancy_gym": ".",
    "gym_aloha": ".",
    "gym_hil": ".",
    "gym_xarm": ".",
    "dm_robotics": ".",
}
TETRAHEDRON = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]) * 0.05


@dataclass
class Found:
    """What happened to a package's models, by their paths within it."""

    taken: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)  # and why
    parts: list[str] = field(default_factory=list)  # files that are no model by themselves
    sensing: list[str] = field(default_factory=list)  # those taken that have sensors
    not_sensed: dict[str, str] = field(default_factory=dict)  # those of these that lack some of their sensors, and why


def spec_of(path: Path) -> mujoco.MjSpec:
    """The model as it can be edited, with stand-ins for files that are not there. Raises ValueError."""
    spec = mujoco.MjSpec.from_file(str(path))
    folder = path.parent
    for mesh in spec.meshes:
        if mesh.file and not (folder / spec.meshdir / mesh.file).exists():
            mesh.file, mesh.uservert = "", TETRAHEDRON.ravel()
    for texture in spec.textures:
        if texture.file and not (folder / spec.texturedir / texture.file).exists():
            texture.file, texture.builtin = "", mujoco.mjtBuiltin.mjBUILTIN_FLAT
            texture.width = texture.height = 8
    for hfield in spec.hfields:
        if hfield.file and not (folder / spec.meshdir / hfield.file).exists():
            hfield.file, hfield.nrow, hfield.ncol, hfield.userdata = "", 2, 2, np.zeros(4)
    return spec


def compiled(path: Path) -> mujoco.MjModel | None:
    """The model; None where it is only a part of one."""
    try:
        spec = spec_of(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = spec.compile()
    except ValueError:
        return None
    return model if model.nbody > 1 else None


def look(folder: Path) -> Found:
    """All MJCF files below the folder."""
    found = Found()
    for path in sorted(folder.rglob("*.xml")):
        name = str(path.relative_to(folder))
        model = compiled(path)
        if model is None:
            found.parts.append(name)
            continue
        try:
            m = load(model)
        except UnsupportedModel as error:
            found.refused[name] = str(error)
            continue
        found.taken.append(name)
        if model.nsensor:
            found.sensing.append(name)
            try:
                still = [0.0] * m.nv
                d = derive(m, list(m.qpos0), still, still, [0.0] * m.nu, act=[0.0] * m.na, time=0.0)
                list(d.sensordata)
            except UnsupportedModel as error:
                found.not_sensed[name] = str(error)
    return found


def kind(reason: str) -> str:
    """A reason without the names of the elements."""
    what = reason.split(" is not supported")[0].split(" are not supported")[0]
    named = r"(geom|joint|body|actuator|tendon|equality|site|sensor) ('[^']*'|\d+)( of body ('[^']*'|\d+))?"
    return re.sub(named, r"\1", what).rstrip(",")


def folder_of(package: str) -> Path | None:
    """Where the models of a package are; None where it is not installed."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0]) / PACKAGES[package]


def installed() -> Iterator[tuple[str, Path]]:
    """The packages that are there, and where their models are."""
    for name in PACKAGES:
        if folder := folder_of(name):
            yield name, folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", action="store_true", help="name every model that is refused")
    args = parser.parse_args()
    mujoco.set_mju_user_warning(lambda _: None)
    why: Counter[str] = Counter()
    print("| package | models | taken | have sensors | all of them taken |\n| --- | --: | --: | --: | --: |")
    refused = {}
    for name, folder in installed():
        found = look(folder)
        reasons = found.refused | found.not_sensed
        refused |= {f"{name}/{model}": reason for model, reason in reasons.items()}
        why.update(map(kind, reasons.values()))
        models, sensed = len(found.taken) + len(found.refused), len(found.sensing) - len(found.not_sensed)
        print(f"| {name} | {models} | {len(found.taken)} | {len(found.sensing)} | {sensed} |", flush=True)
    print("\n| the first thing that is refused | models |\n| --- | --: |")
    for reason, count in why.most_common():
        print(f"| {reason} | {count} |")
    if args.files:
        print(*(f"{model}: {reason}" for model, reason in refused.items()), sep="\n")


if __name__ == "__main__":
    main()

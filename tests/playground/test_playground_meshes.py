"""The robots with MuJoCo Menagerie's meshes, of which there are stand-ins here: who has a checkout names it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import mujoco
import numpy as np
import pytest

from torch_mjenvs.playground.registry import TASKS
from torch_mjenvs.playground.scenes import locomotion, scene

if importlib.util.find_spec("mujoco_playground") is None:  # which is not imported: that would take JAX
    pytest.skip("MuJoCo Playground is not installed", allow_module_level=True)

FOLDERS = {"Go1": "unitree_go1", "Spot": "boston_dynamics_spot", "G1": "unitree_g1"}
FOLDERS["BerkeleyHumanoid"] = "berkeley_humanoid"
CORNERS = 0.05 * np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]])
FACES = [[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]]


def write(path: Path) -> None:
    """A tetrahedron, as the file's ending says."""
    if path.suffix == ".obj":
        lines = [f"v {x} {y} {z}" for x, y, z in CORNERS] + [f"f {a + 1} {b + 1} {c + 1}" for a, b, c in FACES]
        path.write_text("\n".join(lines))
        return
    rows = np.zeros(len(FACES), dtype=[("normal", "<3f4"), ("corners", "<9f4"), ("more", "<u2")])
    rows["corners"] = CORNERS[FACES].reshape(len(FACES), 9)
    path.write_bytes(bytes(80) + np.array(len(FACES), "<u4").tobytes() + rows.tobytes())


@pytest.mark.parametrize("name", FOLDERS)
def test_robots_are_drawn_with_the_meshes_of_a_checkout(name: str, tmp_path: Path) -> None:
    task = TASKS[f"{name}Joystick"]
    assets = tmp_path / FOLDERS[name] / "assets"
    assets.mkdir(parents=True)
    for file in task.scenes.values():
        asked = mujoco.MjSpec.from_file(str(locomotion() / task.robot / "xmls" / file)).meshes
        with pytest.raises(FileNotFoundError, match="must be a checkout of MuJoCo Menagerie"):
            scene(task.robot, file, tmp_path)
        for mesh in asked:
            write(assets / Path(mesh.file).name)
        model = scene(task.robot, file, tmp_path).compile()
        drawn = (model.geom_type == mujoco.mjtGeom.mjGEOM_MESH) & (model.geom_group <= 2)
        assert model.nmesh == len(asked) and drawn.sum() >= len(asked)
        for path in assets.iterdir():
            path.unlink()


def test_every_robot_is_asked() -> None:
    assert {f"{name}Joystick" for name in FOLDERS} == set(TASKS)

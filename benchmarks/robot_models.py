"""The robots of `benchmarks.robots`: where each model comes from, and how a world of it begins."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import mujoco
import numpy as np

from . import models

ROOT = Path(__file__).resolve().parents[1]
PIP = {"dm_control": "dm_control", "mujoco_playground": "playground", "gymnasium_robotics": "gymnasium-robotics"}

Begin = Callable[[mujoco.MjModel, mujoco.MjData, np.random.Generator], None]
Walk = Callable[[mujoco.MjData, int, np.random.Generator], np.ndarray]


class Missing(Exception):
    """A package that is not installed."""


def at_rest(model: mujoco.MjModel, data: mujoco.MjData, rng: np.random.Generator) -> None:
    """The first keyframe, if the model has one, else qpos0."""
    mujoco.mj_resetDataKeyframe(model, data, 0) if model.nkey else mujoco.mj_resetData(model, data)


def held_still(data: mujoco.MjData, periods: int, rng: np.random.Generator) -> np.ndarray:
    """Where mocap bodies are in each period: (periods, 7 nmocap), positions first."""
    return np.tile(np.concatenate([data.mocap_pos.ravel(), data.mocap_quat.ravel()]), (periods, 1))


@dataclass(frozen=True)
class Robot:
    """title: in tables. make: makes the model; raises Missing. note: what is special about it. begin: sets the state in
    which a world begins. walk: returns the poses of mocap bodies. many: whether it belongs to the table of many bodies.
    """

    title: str
    make: Callable[[], mujoco.MjModel]
    note: str = ""
    begin: Begin = at_rest
    walk: Walk = held_still
    many: bool = False


def compiled(spec: mujoco.MjSpec) -> mujoco.MjModel:
    """Without sensors: MuJoCo's own step computes them, and ours only if they are asked for."""
    spec.option.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_SENSOR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return spec.compile()


def spec_of(package: str, path: str) -> mujoco.MjSpec:
    folder = models.folder_of(package)
    if folder is None:
        raise Missing(f"{package} is not installed (`pip install --no-deps {PIP.get(package, package)}`)")
    return models.spec_of(folder / path)


# one by one


def suite_humanoid() -> mujoco.MjModel:
    return compiled(spec_of("dm_control", "humanoid.xml"))


def suite_quadruped() -> mujoco.MjModel:
    """As in the suite's own tasks `walk` and `run`, which remove these elements."""
    spec = spec_of("dm_control", "quadruped.xml")
    for name in ("wall_px", "wall_py", "wall_nx", "wall_ny", "terrain"):
        spec.delete(spec.geom(name))
    spec.delete(spec.body("ball"))
    spec.delete(spec.site("target"))
    return compiled(spec)


def go1() -> mujoco.MjModel:
    spec = spec_of("mujoco_playground", "locomotion/go1/xmls/scene_mjx_feetonly_flat_terrain.xml")
    model = compiled(spec)
    pictures = model.geom_type == mujoco.mjtGeom.mjGEOM_MESH
    assert not (model.geom_contype | model.geom_conaffinity)[pictures].any(), "stand-ins for meshes that can touch"
    return model


GRIPPER, CUBE = "robot0:grip", "object0:joint"
LIFTED = np.array([-0.498, 0.005, -0.231])  # from the gripper's first place to where episodes begin
REACH = np.array([0.12, 0.12, 0.16])  # how far the gripper wanders about that place, down to the table
FETCH = {"robot0:slide0": [0.405], "robot0:slide1": [0.48], "robot0:slide2": [0.0], CUBE: [1.25, 0.53, 0.4, 1, 0, 0, 0]}


def fetch() -> mujoco.MjModel:
    model = compiled(spec_of("gymnasium_robotics", "envs/assets/fetch/pick_and_place.xml"))
    model.eq_data[:, 3:10] = [0, 0, 0, 1, 0, 0, 0]  # the gripper is welded to the mocap body where that is
    return model


def fetch_begins(model: mujoco.MjModel, data: mujoco.MjData, rng: np.random.Generator) -> None:
    """As an episode of FetchPickAndPlace: the gripper lifted over the table, the cube somewhere below."""
    mujoco.mj_resetData(model, data)
    for name, qpos in FETCH.items():
        data.joint(name).qpos[:] = qpos
    mujoco.mj_forward(model, data)
    data.mocap_pos[:] = data.site(GRIPPER).xpos + LIFTED
    data.mocap_quat[:] = [1, 0, 1, 0]
    mujoco.mj_step(model, data, 200)
    data.joint(CUBE).qpos[:3] = [*(data.site(GRIPPER).xpos[:2] + rng.uniform(-0.15, 0.15, 2)), 0.425]
    data.joint(CUBE).qvel[:] = 0


def fetch_reaches(data: mujoco.MjData, periods: int, rng: np.random.Generator) -> np.ndarray:
    """Move the gripper by up to 5 cm in each period, as random actions do, but within REACH."""
    centre, quat = data.mocap_pos[0] - [0.0, 0.0, 0.1], data.mocap_quat[0]
    at, out = data.mocap_pos[0].copy(), []
    for _ in range(periods):
        at = np.clip(at + rng.uniform(-0.05, 0.05, 3), centre - REACH, centre + REACH)
        out.append(np.concatenate([at, quat]))
    return np.array(out)


def our_quadruped() -> mujoco.MjModel:
    return compiled(mujoco.MjSpec.from_file(str(ROOT / "examples" / "quadruped" / "quadruped.xml")))


# many bodies


def three_humanoids() -> mujoco.MjModel:
    """All limbs of all three may touch."""
    spec = spec_of("dm_control", "humanoid.xml")
    for k, place in enumerate(((0.0, 0.7, 0.0), (0.7, 0.35, 0.0))):
        other = spec_of("dm_control", "humanoid.xml")
        frame = spec.worldbody.add_frame(pos=place)
        frame.attach_body(other.body("torso"), f"other{k}_", "")
    return compiled(spec)


def heap(geom: str) -> mujoco.MjModel:
    """Ten free bodies above each other, in a pit that keeps them together."""
    bodies = "".join(
        f'<body pos="{0.06 * (k % 3)} {0.05 * (k % 2)} {0.3 + 0.25 * k}" euler="{20 * k} {35 * k} {50 * k}">'
        f'<freejoint/><geom {geom} density="{500 + 100 * k}"/></body>'
        for k in range(10)
    )
    slopes = "".join(
        f'<geom type="plane" size="5 5 1" zaxis="{x} {y} 1"/>' for x, y in ((1, 0), (-1, 0), (0, 1), (0, -1))
    )
    return compiled(
        mujoco.MjSpec.from_string(f'<mujoco><option timestep="0.002"/><worldbody>{slopes}{bodies}</worldbody></mujoco>')
    )


ROBOTS = {
    "humanoid": Robot("dm_control humanoid", suite_humanoid),
    "suite-quadruped": Robot(
        "dm_control quadruped", suite_quadruped, "without ball, walls and terrain, as the suite's task `walk` has it"
    ),
    "go1": Robot(
        "Playground Go1",
        go1,
        "flat terrain, feet only; stand-ins for its meshes, which are pictures. Its file asks MuJoCo for one iteration "
        "of the solver a step: ours goes to the end",
    ),
    "fetch": Robot(
        "Fetch, pick and place", fetch, "the gripper follows a mocap body that wanders", fetch_begins, fetch_reaches
    ),
    "quadruped": Robot("examples/quadruped", our_quadruped),
    "three-humanoids": Robot("three humanoids", three_humanoids, "of dm_control, side by side", many=True),
    "boxes": Robot("ten boxes", lambda: heap('type="box" size=".1 .08 .06"'), "free, in a pit", many=True),
    "capsules": Robot("ten capsules", lambda: heap('type="capsule" size=".06 .1"'), "free, in a pit", many=True),
}

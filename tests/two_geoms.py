"""Two free geoms in many poses: their contacts by the package, on tensors, and by MuJoCo C."""

from __future__ import annotations

import mujoco
import numpy as np
import oracle
import torch

from torch_mjenvs.physics import load
from torch_mjenvs.physics.collision.contact_param import contact_param
from torch_mjenvs.physics.model.model import Model
from torch_mjenvs.physics.pipeline import derive

ROUND_AND_FLAT = {
    "sphere": 'type="sphere" size=".1"',
    "capsule": 'type="capsule" size=".08 .2"',
    "ellipsoid": 'type="ellipsoid" size=".1 .2 .15"',
    "cylinder": 'type="cylinder" size=".1 .2"',
    "box": 'type="box" size=".1 .15 .2"',
    "plate": 'type="box" size=".3 .3 .1"',
}


def two(geoms: tuple[str, str], more: str = "") -> mujoco.MjModel:
    bodies = "".join(f"<body><freejoint/><geom {geom} {more}/></body>" for geom in geoms)
    return oracle.sharpen(mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{bodies}</worldbody></mujoco>"))


@torch.inference_mode()  # takes a third less time
def found(mjm: mujoco.MjModel, states: np.ndarray) -> list[list[np.ndarray]]:
    """Return for each state the contacts that act: dist, point, normal."""
    with torch.device("cpu"):
        return _found(load(mjm), states)


def _found(m: Model, states: np.ndarray) -> list[list[np.ndarray]]:
    (candidate,) = derive(m, [torch.tensor(x) for x in states.T.copy()], [], None, []).candidates
    out: list[list[np.ndarray]] = [[] for _ in states]
    near = torch.as_tensor(candidate.near()).expand(len(states))
    for contact in candidate.contacts():
        point, frame = contact.locate()
        rows = [torch.as_tensor(x, dtype=torch.float64).expand(len(states)) for x in (contact.dist, *point, *frame[0])]
        acts = rows[0] < contact_param(m, contact.pair).margin
        assert not (acts & ~near).any()
        for world in acts.nonzero()[:, 0].tolist():
            out[world].append(np.array([float(row[world]) for row in rows]))
    return out


def expected(mjm: mujoco.MjModel, states: np.ndarray) -> list[list[np.ndarray]]:
    d, out = mujoco.MjData(mjm), []
    for state in states:
        d.qpos[:] = state
        mujoco.mj_fwdPosition(mjm, d)
        out.append([np.array([c.dist, *c.pos, *c.frame[:3]]) for c in d.contact if c.dist < c.includemargin])
    return out


def exactly(mjm: mujoco.MjModel, states: np.ndarray) -> list[list[np.ndarray]]:
    """Return MuJoCo's contacts, as exact as it can find them."""
    mjm.opt.ccd_iterations, mjm.opt.ccd_tolerance = 500, 1e-10
    return expected(mjm, states)


def worst(got: list[np.ndarray], want: list[np.ndarray]) -> float:
    """Return the largest difference of contacts, each from the nearest one; infinite if their numbers differ."""
    if len(got) != len(want):
        return np.inf
    rest = list(got)
    most = 0.0
    for w in want:
        errors = [np.max(np.abs(w - g)) for g in rest]
        most = max(most, min(errors))
        rest.pop(int(np.argmin(errors)))
    return most


def poses(n: int, apart: float, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    states = rng.normal(size=(n, 14))
    states[:, :3] *= 0.05
    states[:, 7:10] *= apart
    for k in (3, 10):
        states[:, k : k + 4] /= np.linalg.norm(states[:, k : k + 4], axis=1, keepdims=True)
    return states


def on_each_other(n: int, height: float, tilt: float, slide: float) -> np.ndarray:
    """The second geom under the first, turned about the vertical, tilted and off to a side."""
    rng, states = np.random.default_rng(0), []
    for _ in range(n):
        turn, upright, tilted = (np.zeros(4) for _ in range(3))
        mujoco.mju_axisAngle2Quat(turn, np.array([0, 0, 1.0]), rng.uniform(0, 2 * np.pi))
        axis = np.array([*rng.normal(size=2), 0])
        mujoco.mju_axisAngle2Quat(upright, axis / np.linalg.norm(axis), tilt * rng.uniform(0.2, 1))
        mujoco.mju_mulQuat(tilted, upright, turn)
        states.append([0, 0, 0, 1, 0, 0, 0, *rng.uniform(-slide, slide, 2), 0.002 - height, *tilted])
    return np.array(states)


def beside_each_other(n: int, tilt: float) -> np.ndarray:
    """The second geom beside the first, turned about the vertical, and tilted by up to this many radians."""
    rng, states = np.random.default_rng(0), []
    for _ in range(n):
        turn, upright, tilted = (np.zeros(4) for _ in range(3))
        mujoco.mju_axisAngle2Quat(turn, np.array([0, 0, 1.0]), rng.uniform(0, 2 * np.pi))
        axis = rng.normal(size=3)
        mujoco.mju_axisAngle2Quat(upright, axis / np.linalg.norm(axis), tilt * rng.uniform(0.1, 1))
        mujoco.mju_mulQuat(tilted, upright, turn)
        angle, apart = rng.uniform(0, 2 * np.pi), rng.uniform(0.18, 0.24)
        at = [apart * np.cos(angle), apart * np.sin(angle), rng.uniform(-0.3, 0.3)]
        states.append([0, 0, 0, 1, 0, 0, 0, *at, *tilted])
    return np.array(states)

"""Convex meshes against all other shapes, and each other: where they touch, and how they move, against MuJoCo C.

Among meshes, boxes, spheres and capsules contacts are exact, but for rounding. MuJoCo's own are measured at a tolerance
of 1e-10, as spheres and capsules with a mesh are right to 1e-6 m by default.
"""

from __future__ import annotations

import mujoco
import numpy as np
import oracle
import pytest
from two_geoms import expected, found, poses


def _dodecahedron() -> np.ndarray:
    phi = (1 + 5**0.5) / 2
    corners = [(x, y, z) for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)]
    for a in (-1, 1):
        for b in (-1, 1):
            corners += [(0, a / phi, b * phi), (a / phi, b * phi, 0), (a * phi, 0, b / phi)]
    return 0.1 * np.array(corners)


def _rock(n: int) -> np.ndarray:
    points = np.random.default_rng(n).normal(size=(n, 3))
    return points / np.linalg.norm(points, axis=1, keepdims=True) * [0.1, 0.2, 0.15]


MESHES = {
    "tetrahedron": np.array([[0, 0, 0], [0.4, 0, 0], [0, 0.35, 0], [0, 0, 0.3]]),
    "dodecahedron": _dodecahedron(),
    "brick": np.array([[x, y, z] for x in (-0.1, 0.1) for y in (-0.15, 0.15) for z in (-0.2, 0.2)]),
    "rock": _rock(60),
    "boulder": _rock(400),
}
SHAPES = {
    "sphere": 'type="sphere" size=".1"',
    "capsule": 'type="capsule" size=".08 .2"',
    "ellipsoid": 'type="ellipsoid" size=".1 .2 .15"',
    "cylinder": 'type="cylinder" size=".1 .2"',
    "box": 'type="box" size=".1 .15 .2"',
    "plate": 'type="box" size=".3 .3 .1"',
    "disc": 'type="cylinder" size=".3 .1"',
}


def geom(name: str, more: str = "") -> str:
    shape = SHAPES.get(name) or f'type="mesh" mesh="{name}"'
    return f"<geom {shape} {more}/>"


def model(bodies: str, *names: str) -> mujoco.MjModel:
    """These bodies, and the meshes of them."""
    numbers = {name: " ".join(f"{x:.6f}" for x in MESHES[name].ravel()) for name in names if name in MESHES}
    assets = "".join(f'<mesh name="{name}" vertex="{text}"/>' for name, text in numbers.items())
    xml = f"<mujoco><asset>{assets}</asset><worldbody>{bodies}</worldbody></mujoco>"
    return oracle.sharpen(mujoco.MjModel.from_xml_string(xml))


def two(one: str, other: str, more: str = "") -> mujoco.MjModel:
    bodies = "".join(f"<body><freejoint/>{geom(name, more)}</body>" for name in (one, other))
    return model(bodies, *sorted({one, other}))


def exactly(mjm: mujoco.MjModel, states: np.ndarray) -> list[list[np.ndarray]]:
    """MuJoCo's contacts, as exact as it can."""
    mjm.opt.ccd_iterations, mjm.opt.ccd_tolerance = 500, 1e-10
    return expected(mjm, states)


CORNERED = [
    (one, other) for one in ("sphere", "capsule", "box") for other in ("tetrahedron", "dodecahedron", "brick", "rock")
] + [("tetrahedron", "rock"), ("dodecahedron", "brick"), ("rock", "boulder")]


@pytest.mark.parametrize(
    ("pair", "more"), [*((pair, "") for pair in CORNERED), (("sphere", "rock"), 'margin=".02"')], ids=str
)
def test_shapes_with_corners_touch_a_mesh_exactly(pair, more):
    """One contact of each pair, in any pose."""
    mjm = two(*pair, more)
    mjm.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_MULTICCD)
    states = poses(120, 0.25, 0)
    got, want = found(mjm, states), exactly(mjm, states)
    assert [len(g) for g in got] == [len(w) for w in want]
    both = [(g[0], w[0]) for g, w in zip(got, want, strict=True) if g]
    assert len(both) > 20
    errors = np.array([np.abs(g - w) for g, w in both])
    assert np.median(errors.max(1)) < 1e-9
    assert np.quantile(errors[:, 0], 0.95) < 1e-9


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

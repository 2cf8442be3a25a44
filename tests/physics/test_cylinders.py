"""A cylinder and a box or another cylinder: the shortest way out, beside a dense search and MuJoCo's contacts."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
from numpy.typing import NDArray

from torch_mjenvs.physics import load
from torch_mjenvs.physics.collision.candidates import candidates_of
from torch_mjenvs.physics.model.data import Data

Floats = NDArray[np.float64]

PAIR = """<mujoco><worldbody>
  <body><freejoint/><geom type="cylinder" margin="{}" size="{} {}"/></body>
  <body><freejoint/><geom type="{}" size="{} {} {}"/></body></worldbody></mujoco>"""
FEW, MANY, POSES = 5, 12, 25  # models of a fast run and of a slow one, which begins with the same
CASES = (
    *(("box", 0.0, kind) for kind in ("upright", "nearly", "any")),
    *(("cylinder", 0.0, kind) for kind in ("upright", "nearly", "square", "any")),
    ("cylinder", 0.01, "any"),
)


def turned(rng: np.random.Generator, kind: str) -> Floats:
    """Two quaternions: upright, nearly so, one of them lying, or any."""
    quats = rng.normal(size=(2, 4))
    if kind == "upright":
        quats[:] = [1, 0, 0, 0]
    if kind == "square":
        quats[:] = [1, 0, 0, 0], [1, 1, 0, 0]
    if kind == "nearly":
        quats[0] = quats[1] + rng.normal(size=4) * rng.choice([1e-9, 1e-5, 1e-2])
    return quats / np.linalg.norm(quats, axis=1, keepdims=True)


def reach(model: mujoco.MjModel, data: mujoco.MjData, n: Floats) -> Floats:
    """How far the difference of both shapes reaches along directions n (N, 3), in the world's axes."""
    out = n @ (data.geom_xpos[0] - data.geom_xpos[1])
    for kind, mat, size in zip(model.geom_type, data.geom_xmat.reshape(2, 3, 3), model.geom_size, strict=True):
        along = n @ mat
        if kind == mujoco.mjtGeom.mjGEOM_CYLINDER:
            radius, half, _ = size
            out += half * np.abs(along[:, 2]) + radius * np.hypot(along[:, 0], along[:, 1])
        else:
            out += np.abs(along) @ size
    return out


RNG = np.random.default_rng(0)
ANYWHERE, AROUND = RNG.normal(size=(2000, 3)), RNG.normal(size=(60, 20, 60, 3))  # drawn once, to save time
ANGLES = np.linspace(0, 2 * np.pi, 500)
CIRCLE = np.stack([np.cos(ANGLES), np.sin(ANGLES), 0 * ANGLES], 1)


def least(model: mujoco.MjModel, data: mujoco.MjData) -> float:
    """The least reach that a dense search finds."""
    rings = [np.roll(CIRCLE, k, 1) @ mat.T for mat in data.geom_xmat.reshape(2, 3, 3) for k in range(3)]
    n, spread = np.concatenate([ANYWHERE, *rings]), 0.1
    for around in AROUND:
        n /= np.sqrt(np.einsum("ij,ij->i", n, n))[:, None]
        best = n[np.argpartition(reach(model, data, n), 20)[:20]]
        n, spread = np.concatenate([best, (best[:, None] + spread * around).reshape(-1, 3)]), 0.75 * spread
    return float(reach(model, data, best).min())


@pytest.mark.parametrize("models", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("other", "margin", "kind"), CASES)
def test_contacts_are_those_of_the_shortest_way_out_and_of_mujoco(other, margin, kind, models):
    rng, seen, others, off = np.random.default_rng(0), 0, 0, list[float]()
    for _ in range(models):
        size = rng.uniform(0.02, 0.3, 5)
        mjm = mujoco.MjModel.from_xml_string(PAIR.format(margin, *size[:2], other, *size[2:]))
        mjm.opt.ccd_tolerance, mjm.opt.ccd_iterations = 1e-12, 200
        m, data = load(mjm), mujoco.MjData(mjm)
        for _ in range(POSES):
            (one, two), place = turned(rng, kind), rng.normal(size=3) * rng.choice([0.02, 0.1, 0.3])
            data.qpos[:] = [*place, *one, 0, 0, 0, *two]
            mujoco.mj_forward(mjm, data)
            depth = least(mjm, data)
            if abs(depth + margin) < 1e-6:
                continue
            (pair,) = candidates_of(m, Data(m, qpos=list(data.qpos), qvel=[0.0] * 12, ctrl=[], act=[]), m.pairs)
            ours, theirs = [c.dist for c in pair.contacts() if c.dist < margin], [c.dist for c in data.contact]
            assert bool(ours) == (depth > -margin) == bool(theirs)
            if not ours:
                continue
            seen, others = seen + 1, others + (len(ours) != len(theirs))
            if len(ours) == len(theirs) == 1:
                assert -ours[0] < depth + 1e-9, "a dense search finds a shorter way"
                off.append(abs(ours[0] - theirs[0]))
    assert seen > 8 * models and others <= max(1, 0.01 * seen)
    assert len(off) < 20 or np.median(off) < 1e-6


def test_an_end_at_a_corner_touches_once_where_mujoco_may_take_a_line_of_the_side():
    """The normal is the cylinder's axis, so which line of the side is furthest along it is left to what remains of
    MuJoCo's search. If the side also lies within 5 degrees of a face of the box, MuJoCo may say that this line touches
    it: twice, across the way out.
    """
    mjm = mujoco.MjModel.from_xml_string(PAIR.format(0.0, 0.1, 0.2, "box", 0.2, 0.25, 0.3))
    mjm.opt.ccd_tolerance, mjm.opt.ccd_iterations = 1e-12, 200
    m, data, rng, odd = load(mjm), mujoco.MjData(mjm), np.random.default_rng(0), 0
    turn, axis = np.zeros(4), np.zeros(3)
    mujoco.mju_mulQuat(turn, np.array([np.cos(0.2), np.sin(0.2), 0, 0]), np.array([np.cos(0.03), 0, np.sin(0.03), 0]))
    mujoco.mju_rotVecQuat(axis, np.array([0.0, 0.0, 1.0]), turn)
    corner = np.array([0.2, 0.25, 0.3]) * np.sign(axis)
    for _ in range(60):
        beside = np.cross(axis, rng.normal(size=3))
        beside *= rng.uniform(0.0, 0.08) / np.linalg.norm(beside)
        data.qpos[:] = [*(corner + beside + axis * 0.19), *turn, 0, 0, 0, 1, 0, 0, 0]  # 1 cm deep
        mujoco.mj_forward(mjm, data)
        (pair,) = candidates_of(m, Data(m, qpos=list(data.qpos), qvel=[0.0] * 12, ctrl=[], act=[]), m.pairs)
        (ours,) = [c for c in pair.contacts() if c.dist < 0.0]
        _, (n, *_) = ours.locate()
        np.testing.assert_allclose(ours.dist, -0.01, rtol=0, atol=1e-14)
        np.testing.assert_allclose(n, -axis, rtol=0, atol=1e-14)
        along = data.contact.frame[:, :3] @ axis
        if len(along) == 2:
            odd += 1
            assert np.all(np.abs(along) < 0.0888)  # mjEDGE_TOL
        else:
            np.testing.assert_allclose(along, [-1.0], rtol=0, atol=1e-9)
    assert odd


def test_a_rim_in_a_side_of_a_cylinder_in_one_plane_with_it_touches_where_mujoco_has_it():
    """As of a robot's legs: the way out is in the plane of both axes, also the first guess of parallel cylinders."""
    model = mujoco.MjModel.from_xml_string(PAIR.format(0.0, 0.06, 0.035, "cylinder", 0.06, 0.035, 1))
    model.opt.ccd_tolerance, model.opt.ccd_iterations = 1e-12, 200
    m, data, rng, seen = load(model), mujoco.MjData(model), np.random.default_rng(0), 0
    for _ in range(100):
        base, tilt = rng.normal(size=4), rng.uniform(0.6, 1.0)
        base /= np.linalg.norm(base)
        other, place = np.zeros(4), np.zeros(3)
        mujoco.mju_mulQuat(other, base, [np.cos(tilt / 2), 0, np.sin(tilt / 2), 0])
        mujoco.mju_rotVecQuat(place, [rng.uniform(0.10, 0.13), 0, rng.uniform(0.0, 0.04)], base)
        data.qpos[:] = [0, 0, 0, *base, *place, *other]
        mujoco.mj_forward(model, data)
        still = [0.0] * m.nv
        (pair,) = candidates_of(m, Data(m, qpos=list(data.qpos), qvel=still, act=[], ctrl=[]), m.pairs)
        touching = [contact for contact in pair.contacts() if contact.dist < 0]
        assert len(touching) == data.ncon
        for contact, theirs in zip(touching, data.contact, strict=True):
            seen += 1
            np.testing.assert_allclose(contact.locate()[0], theirs.pos, rtol=0, atol=1e-5)
    assert seen > 30

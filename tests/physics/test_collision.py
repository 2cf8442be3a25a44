"""Contact distances, points and frames against MuJoCo C."""

from __future__ import annotations

import itertools

import mujoco
import numpy as np
import oracle
import pytest
import torch

from torch_mjenvs.physics import load
from torch_mjenvs.physics.collision import candidates as driver
from torch_mjenvs.physics.collision.contact_param import ContactParam, contact_param
from torch_mjenvs.physics.model.data import Data
from torch_mjenvs.physics.model.model import Model, Pair
from torch_mjenvs.physics.pipeline import derive

TOLERANCE = 1e-11
NAMES = [*oracle.MODELS, *(f"random-{s}" for s in range(12))]


def param(m: Model, pair: Pair) -> ContactParam:
    return contact_param(m, pair)


def contacts(m: Model, d: Data) -> list[driver.Contact]:
    """The contacts that act, in MuJoCo's order of pairs."""
    out = []
    for candidate in d.candidates:
        found = candidate.contacts()
        assert len(found) == candidate.ncon
        acting = [c for c in found if c.dist < param(m, c.pair).margin]
        assert not acting or candidate.near()
        out += acting
    return out


def check(mjm: mujoco.MjModel, m: Model, qpos: np.ndarray) -> int:
    """Compare all contacts at a state; their number."""
    expected = oracle.forward(mjm, qpos, np.zeros(mjm.nv), np.zeros(mjm.nu))
    want = [c for c in expected.contact if c.dist < c.includemargin]
    d = derive(m, qpos.tolist(), [], None, [])
    got = contacts(m, d)
    want.sort(key=lambda c: tuple(c.geom))  # stable: the contacts of a pair stay in order
    got.sort(key=lambda c: (c.pair.geom1, c.pair.geom2))
    assert [tuple(c.geom) for c in want] == [(c.pair.geom1, c.pair.geom2) for c in got]
    for w, g in zip(want, got, strict=True):
        _check_contact(m, d, expected, w, g)
    return len(want)


def _check_contact(m: Model, d: Data, expected: mujoco.MjData, w: object, g: driver.Contact) -> None:
    mixed = param(m, g.pair)
    assert (g.pair.condim, mixed.margin) == (w.dim, w.includemargin)
    for name in ("friction", "solref", "solimp"):
        assert np.allclose(getattr(mixed, name), getattr(w, name), rtol=1e-15, atol=0), name
    pos, frame = g.locate()
    assert g.dist == pytest.approx(w.dist, abs=TOLERANCE)
    assert np.allclose(pos, w.pos, rtol=0, atol=TOLERANCE)
    normal, tangents = w.frame[:3], w.frame[3:].reshape(2, 3)
    assert np.allclose(frame[0], normal, rtol=0, atol=1e-9)
    for t, expected_t in zip(frame[1:], tangents, strict=True):
        flip = np.sign(np.dot(t, expected_t))
        assert np.allclose(np.multiply(t, flip), expected_t, rtol=0, atol=1e-8)
    for arms, base in ((g.arms(), expected.subtree_com), (g.oarms(), d.origin)):
        for geom, arm in zip((g.pair.geom1, g.pair.geom2), arms[:2], strict=True):
            root = m.body_rootid[m.geom_bodyid[geom]]
            assert np.allclose(arm, w.pos - base[root], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("name", NAMES)
def test_contacts_of_rollouts_are_mujoco_s(name: str) -> None:
    mjm = oracle.model(name)
    m = load(mjm)
    for qpos, _, _ in oracle.states(name, 16):
        check(mjm, m, qpos)


def test_rollouts_touch() -> None:
    """The states above are not all in the air."""
    kinds = set()
    for name in NAMES:
        mjm = oracle.model(name)
        for qpos, _, _ in oracle.states(name, 16):
            d = oracle.forward(mjm, qpos, np.zeros(mjm.nv), np.zeros(mjm.nu))
            kinds |= {tuple(mjm.geom_type[c.geom].tolist()) for c in d.contact}
    assert kinds >= {(0, 2), (0, 3), (2, 3), (3, 3)}


SHAPES = {"sphere": "0.1", "capsule": "0.1 0.3"}


def two(kind1: str, kind2: str, more: str = "") -> mujoco.MjModel:
    bodies = "".join(
        f'<body><freejoint/><geom type="{k}" size="{s}" {more}/></body>'
        for k, s in ((kind1, SHAPES[kind1]), (kind2, "0.12 0.2" if kind2 == "capsule" else "0.12"))
    )
    return oracle.sharpen(mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{bodies}</worldbody></mujoco>"))


@pytest.mark.parametrize("kinds", list(itertools.product(SHAPES, SHAPES)))
def test_two_bodies(kinds: tuple[str, str]) -> None:
    """Two free bodies in every kind of overlap."""
    mjm, rng = two(*kinds, more='margin="0.01"'), np.random.default_rng(0)
    m, touched = load(mjm), 0
    for _ in range(200):
        qpos = np.concatenate([rng.normal(0, 0.2, 3), rng.normal(size=4), rng.normal(0, 0.2, 3), rng.normal(size=4)])
        touched += check(mjm, m, qpos)
    assert touched > 20


@pytest.mark.parametrize("tilt", [0.0, 3e-5, 9.9e-5, 1.1e-4, 1e-3])
@pytest.mark.parametrize("flips", list(itertools.product((0, 1), (0, 1))))
def test_parallel_capsules(tilt: float, flips: tuple[int, int]) -> None:
    mjm, rng = two("capsule", "capsule"), np.random.default_rng(1)
    m, twice = load(mjm), 0
    for height in (-0.52, -0.3, -0.05, 0.0, 0.07, 0.2, 0.45, 0.51):
        angles = [np.pi * f + t for f, t in zip(flips, (tilt * rng.random(), 0.0), strict=True)]
        angles[1] = np.pi * flips[1] + angles[0] - np.pi * flips[0] + tilt
        quats = [[np.cos(x / 2), np.sin(x / 2), 0, 0] for x in angles]
        qpos = np.concatenate([[0.02, 0, 0], quats[0], [0.2, 0.01, height], quats[1]])
        twice += check(mjm, m, qpos) == 2
    assert twice > 0 if tilt < 1e-4 else twice == 0


@pytest.mark.parametrize("tilt", [0.0, 5e-5, 9.5e-5, 1.05e-4, 5e-4, 1e-2])
def test_nearly_parallel_capsules_in_float32(tilt: float) -> None:
    """On the same side of MuJoCo's threshold; the point where they are nearest is no better known than orientations."""
    mjm, rng, states = two("capsule", "capsule"), np.random.default_rng(0), []
    d = mujoco.MjData(mjm)
    while len(states) < 50:
        quat, axis = rng.normal(size=4), np.array([*rng.normal(size=2), 0.0])
        quat, axis = quat / np.linalg.norm(quat), axis / np.linalg.norm(axis)
        mat, turned = np.zeros(9), np.zeros(4)
        mujoco.mju_mulQuat(turned, quat, np.array([np.cos(tilt / 2), *(np.sin(tilt / 2) * axis)]))
        mujoco.mju_quat2Mat(mat, quat)
        place = mat.reshape(3, 3) @ [0.15, 0.05, rng.uniform(-0.4, 0.4)]
        state = np.array([0, 0, 0, *quat, *place, *turned], dtype=np.float32)
        d.qpos[:] = state
        mujoco.mj_forward(mjm, d)
        if d.ncon:
            states.append((state, d.ncon, d.contact[0].dist))
    qpos, ncon, dist = zip(*states, strict=True)
    ours = derive(load(mjm), [torch.tensor(x) for x in np.stack(qpos).T], [], None, [])
    first, second = (c.dist.cpu().numpy() for c in ours.candidates[0].contacts())
    assert (1 + (second < 0) == ncon).all()
    assert np.max(np.abs(first - dist)) < 3e-7


@pytest.mark.parametrize("half", [1e-12, 1e-9, 1.5e-8, 1.7e-8, 1e-6])
def test_a_capsule_of_next_to_no_length(half: float) -> None:
    """MuJoCo takes it for its lower end up to half of the root of mjMINVAL, we for its centre: it touches once."""
    xml = f"""<mujoco><worldbody><body><freejoint/><geom type="capsule" size=".1 .3"/></body>
        <body><freejoint/><geom type="capsule" size=".1 {half}"/></body></worldbody></mujoco>"""
    mjm = oracle.sharpen(mujoco.MjModel.from_xml_string(xml))
    qpos = np.array([0, 0, 0, 1, 0, 0, 0, 0.15, 0, 0.1, 1, 0, 0, 0])
    if half > 1.6e-8:
        assert check(mjm, load(mjm), qpos) == 2
        return
    (want,) = oracle.forward(mjm, qpos, np.zeros(mjm.nv), np.zeros(0)).contact
    m = load(mjm)
    (got,) = contacts(m, derive(m, qpos.tolist(), [], None, []))
    assert got.dist == pytest.approx(want.dist, abs=TOLERANCE)
    assert np.allclose(got.locate()[0], want.pos, rtol=0, atol=1.01 * half + 1e-15)


@pytest.mark.parametrize("kinds", list(itertools.product(SHAPES, SHAPES)))
def test_coincident_centres_have_mujoco_s_normal(kinds: tuple[str, str]) -> None:
    """Centres in one place: the normal falls back as MuJoCo's does, and nothing raises."""
    mjm = two(*kinds)
    m = load(mjm)
    for quat in ([1, 0, 0, 0], [0.5, 0.5, 0.5, 0.5]):
        check(mjm, m, np.array([0, 0, 0, 1, 0, 0, 0, 0, 0, 0, *quat], dtype=float))


def test_capsules_that_cross() -> None:
    """Axes that meet, or next to: the normal is MuJoCo's on either side, as near as rounding leaves it one."""
    xml = """<mujoco><worldbody><body><freejoint/><geom type="capsule" size=".1 .3"/></body>
        <body><freejoint/><geom type="capsule" size=".1 .3" zaxis="1 0 1"/></body></worldbody></mujoco>"""
    mjm = oracle.sharpen(mujoco.MjModel.from_xml_string(xml))
    for apart in (0.0, 1e-17, 1e-7, 1.9e-6, 2.1e-6, 1e-4):
        for y in (apart, -apart):
            assert check(mjm, load(mjm), np.array([0, 0, 0, 1, 0, 0, 0, 0.1, y, 0.05, 1, 0, 0, 0])) == 1


def test_upright_capsule() -> None:
    """A capsule along the plane's normal leaves the first tangent undefined: MuJoCo's falls back to x."""
    xml = '<geom type="plane" size="1 1 1"/><body pos="0 0 .35"><freejoint/><geom type="capsule" size=".1 .3"/></body>'
    mjm = oracle.sharpen(mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{xml}</worldbody></mujoco>"))
    assert check(mjm, load(mjm), mjm.qpos0) == 1


def test_tilted_plane() -> None:
    xml = """<geom type="plane" size="1 1 1" quat="1 .2 -.1 .3" pos="0 0 -.1"/>
        <geom type="plane" size="1 1 1" quat="1 1 0.1 0" pos="0.1 .1 0"/>
        <body><freejoint/><geom type="capsule" size=".1 .3"/><geom pos=".2 0 0" size=".1"/></body>"""
    mjm = oracle.sharpen(mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{xml}</worldbody></mujoco>"))
    m, rng = load(mjm), np.random.default_rng(0)
    assert sum(check(mjm, m, np.concatenate([rng.normal(0, 0.1, 3), rng.normal(size=4)])) for _ in range(50)) > 50

"""Every field of the smooth stages against MuJoCo C, with Python floats and with torch tensors."""

from __future__ import annotations

import dataclasses

import mujoco
import numpy as np
import oracle
import pytest
import torch

from torch_mjenvs.physics import load
from torch_mjenvs.physics.dynamics import inertia, velocity
from torch_mjenvs.physics.model.data import Data
from torch_mjenvs.physics.model.model import Model
from torch_mjenvs.physics.pipeline import derive

TOLERANCE = 1e-11  # relative to the largest entry of a field, or to 1
RANDOM = [f"random-{s}" for s in range(12)]
FIELDS = """xpos xquat xmat xipos ximat xanchor xaxis geom_xpos geom_xmat subtree_com cinert cdof crb M
    cvel cdof_dot qfrc_bias qfrc_passive actuator_length actuator_velocity actuator_force
    qfrc_actuator qacc_smooth""".split()  # noqa: SIM905


def at(m: Model, qpos: list, qvel: list, ctrl: list) -> Data:
    return derive(m, qpos, qvel, None, ctrl)


def dense(m: Model, rows: list) -> np.ndarray:
    out = np.zeros((m.nv, m.nv))
    for i, row in enumerate(rows):
        for j, x in row.items():
            out[i, j] = out[j, i] = x
    return out


def compare(m: Model, d: Data, mjm: mujoco.MjModel, expected: mujoco.MjData) -> None:
    for name in FIELDS:
        want = oracle.field(mjm, expected, name)
        got = dense(m, d.M) if name == "M" else np.array(getattr(d, name), dtype=float).reshape(want.shape)
        if name == "crb":
            want, got = want[1:], got[1:]  # the world's is not used
        error = np.max(np.abs(got - want), initial=0.0) / max(1.0, np.max(np.abs(want), initial=0.0))
        assert error < TOLERANCE, f"{name}: relative error {error}"


@pytest.mark.parametrize("name", [*oracle.MODELS, *RANDOM])
def test_stages_on_floats_are_mujoco_s(name: str) -> None:
    mjm = oracle.model(name)
    m = load(mjm)
    for state in oracle.states(name):
        compare(m, at(m, *(x.tolist() for x in state)), mjm, oracle.forward(mjm, *state))


@pytest.mark.parametrize("name", ["half_cheetah", "ant", "random-0", "random-3"])
def test_stages_on_tensors_are_those_on_floats(name: str) -> None:
    mjm = oracle.model(name)
    m = load(mjm)
    states = oracle.states(name)
    columns = [list(torch.tensor(np.stack(x)).unbind(1)) for x in zip(*states, strict=True)]
    d = at(m, *columns)
    for b, state in enumerate(states):
        one = Data(m, **{name: _world(getattr(d, name), b) for name in FIELDS})
        compare(m, one, mjm, oracle.forward(mjm, *state))


def _world(x: object, b: int) -> object:
    if isinstance(x, dict):
        return {k: _world(y, b) for k, y in x.items()}
    if isinstance(x, (list, tuple)):
        return [_world(y, b) for y in x]
    return float(x[b]) if isinstance(x, torch.Tensor) else x


def test_far_from_the_origin() -> None:
    """In float32, 10 km out, M is as good as at the origin."""
    m = load(oracle.model("ant"))
    qpos, qvel, ctrl = (torch.tensor(x, dtype=torch.float32) for x in oracle.states("ant")[2])
    near = at(m, list(qpos[:, None]), list(qvel[:, None]), list(ctrl[:, None]))
    qpos[0] += 1e4
    far = at(m, list(qpos[:, None]), list(qvel[:, None]), list(ctrl[:, None]))
    assert all(torch.equal(x, y) for x, y in zip(near.qacc_smooth, far.qacc_smooth, strict=True))


PATHS = """<mujoco><worldbody><site name="world" pos=".1 .2 2"/>
    <body pos="1 0 0"><geom size=".1"/><site name="fixed" pos="0 .1 0"/>
      <body pos="0 0 .3"><joint axis="0 1 0"/><joint axis="1 0 0"/><geom size=".1" pos=".1 0 0"/>
        <site name="arm" pos=".2 .1 0"/><site name="arm2" pos="0 0 .3"/>
        <body pos=".2 0 0"><joint type="slide"/><geom size=".1"/><site name="hand" pos=".1 0 .1"/></body></body></body>
    <body><freejoint/><geom size=".1" pos=".1 .2 .3"/><site name="free" pos=".1 .1 .1"/><site name="here"/></body>
    </worldbody><tendon>
      <spatial><site site="world"/><site site="free"/></spatial>
      <spatial><site site="fixed"/><site site="arm"/><site site="arm2"/><site site="hand"/><site site="free"/></spatial>
      <spatial><site site="world"/><site site="hand"/><pulley divisor="2"/><site site="free"/><site site="hand"/>
        <site site="arm"/><pulley divisor="3"/><site site="here"/><site site="fixed"/></spatial>
    </tendon></mujoco>"""


def test_tendons_from_site_to_site() -> None:
    mjm = mujoco.MjModel.from_xml_string(PATHS)
    m, rng, d = load(mjm), np.random.default_rng(0), mujoco.MjData(mjm)
    for _ in range(8):
        mujoco.mj_integratePos(mjm, d.qpos, rng.normal(0, 1, mjm.nv), 1.0)
        d.qvel[:] = rng.normal(0, 1, mjm.nv)
        mujoco.mj_forward(mjm, d)
        ours = derive(m, d.qpos.tolist(), d.qvel.tolist(), None, [])
        np.testing.assert_allclose(ours.ten_length, d.ten_length, rtol=1e-13)
        np.testing.assert_allclose(ours.ten_velocity, d.ten_velocity, rtol=0, atol=1e-12)


def test_inverse_dynamics() -> None:
    """rne with an acceleration is M qacc + bias."""
    mjm = oracle.model("ant")
    m = load(mjm)
    d = at(m, *(x.tolist() for x in oracle.states("ant")[1]))
    qacc = np.random.default_rng(0).normal(size=m.nv).tolist()
    force = np.array(velocity.rne(m, d, qacc)) + np.array(m.dof_armature) * qacc
    assert np.allclose(force, np.array(inertia.mul_m(d.M, qacc)) + d.qfrc_bias, rtol=0, atol=1e-11)


def test_factor_with_fill() -> None:
    """factor and solve take any symmetric pattern."""
    rng = np.random.default_rng(0)
    a = np.diag(rng.uniform(5, 6, 8))
    for i, j in ((5, 0), (7, 1), (7, 4), (6, 2), (6, 5), (3, 1)):
        a[i, j] = a[j, i] = rng.normal()
    rows = [{j: a[i, j] for j in range(i + 1) if a[i, j] != 0} for i in range(8)]
    b = rng.normal(size=8)
    assert np.allclose(inertia.solve(inertia.factor(rows), b.tolist()), np.linalg.solve(a, b), rtol=1e-13)


LONE = """<mujoco><worldbody>
    <body quat="1 2 3 4"><freejoint/><inertial pos="0 0 0" mass="2" diaginertia="1 2 2.5"/></body>
    <body><joint type="ball" armature=".3"/><inertial pos="0 0 0" mass="2" diaginertia="1 2 2.5"/></body>
    <body quat="1 2 3 4"><joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 1 0"/><joint axis="0 0 1"/>
      <inertial pos="0 0 0" mass="2" diaginertia="1 2 2.5"/></body></worldbody></mujoco>"""


def test_the_inertia_of_a_lone_body_follows_from_its_fields() -> None:
    """MuJoCo keeps it as a constant, dof_M0; here it is what mass, moments and armature say, whoever changes them."""
    mjm = mujoco.MjModel.from_xml_string(LONE)
    assert mjm.dof_simplenum.all()
    loaded, armature = load(mjm), np.arange(1.0, mjm.nv + 1)
    check_diagonal(loaded, mjm)
    mass = (0.0, 3.0, 4.0, 5.0)
    mjm.body_mass[:], mjm.dof_armature[:] = mass, armature
    mujoco.mj_setConst(mjm, mujoco.MjData(mjm))
    check_diagonal(dataclasses.replace(loaded, body_mass=mass, dof_armature=tuple(armature.tolist())), mjm)


def check_diagonal(m: Model, mjm: mujoco.MjModel) -> None:
    d = Data(m, qpos=list(m.qpos0))
    assert np.allclose(np.diag(dense(m, d.M)), mjm.dof_M0, rtol=1e-14, atol=0)


def test_a_body_of_inertia_but_no_mass_counts_with_the_body_it_is_welded_to():
    """As `boundinertia` of the compiler makes of an empty one."""
    mjm = mujoco.MjModel.from_xml_string("""<mujoco><compiler boundinertia=".5"/><worldbody>
        <body><joint axis="1 2 -1"/><geom size=".1" pos=".3 -.2 .1"/><body pos=".4 0 0"/></body>
        </worldbody></mujoco>""")
    d = mujoco.MjData(mjm)
    d.qpos[:] = -0.4
    mujoco.mj_forward(mjm, d)
    assert mjm.body_mass[2] == 0 and mjm.body_inertia[2].all()
    ours = derive(load(mjm), d.qpos.tolist(), [0.0], None, [])
    np.testing.assert_allclose(ours.qacc, d.qacc, rtol=1e-12)

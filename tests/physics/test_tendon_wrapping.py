"""Tendons that go round spheres and cylinders (`physics/dynamics/tendons/wrapping.py`) against MuJoCo C."""

from __future__ import annotations

import mujoco
import numpy as np
import oracle
import pytest
import torch

from torch_mjenvs.physics import load
from torch_mjenvs.physics.columns import vary
from torch_mjenvs.physics.pipeline import derive
from torch_mjenvs.physics.simulation import Simulation

GEOMS = {  # and side sites: outside and inside, both on the geom's own body, and one that moves past it
    "pearl": ("pearl above", "pearl within", "tip"),  # a sphere of a body that moves
    "knob": ("knob above", "knob within", "tip"),  # of the world
    "reel": ("reel above", "reel within", "tip"),  # a cylinder of a body that moves
    "drum": ("drum above", "drum within", "tip"),  # of the world
}
BODIES = """<site name="hook" pos=".5 .1 .5"/><geom name="knob" size=".12" pos=".2 0 .6" euler="10 20 30"/>
    <site name="knob above" pos=".2 .05 .8"/><site name="knob within" pos=".22 .02 .63"/>
    <geom name="drum" type="cylinder" size=".1 .2" pos="-.3 0 .5" euler="70 10 0"/>
    <site name="drum above" pos="-.3 .05 .7"/><site name="drum within" pos="-.32 .02 .53"/>
    <body pos="-.1 0 .4"><joint name="x" type="slide" axis="1 0 0"/><joint name="a" axis="0 1 0"/>
      <geom name="pearl" size=".1" pos="0 0 .15"/><geom name="reel" type="cylinder" size=".08 .1" euler="80 0 10"/>
      <site name="pearl above" pos="0 .05 .3"/><site name="pearl within" pos=".03 0 .17"/>
      <site name="reel above" pos="0 .05 .1"/><site name="reel within" pos=".01 .02 .02"/>
      <site name="base" pos="-.25 0 -.05"/>
      <body pos=".3 0 .1"><joint name="b" type="ball"/><geom size=".04 .1" type="capsule"/>
        <site name="tip" pos=".05 0 .2"/><site name="low" pos=".1 .1 -.1"/></body></body>
    <body pos=".3 .2 .9"><freejoint/><geom size=".06"/><site name="free" pos=".02 0 .03"/></body>"""


def tendons(how: str = "", every: int = 1) -> str:
    """Round each geom by each side, from the world or a body to another, which may be the geom's; and a long one."""
    out, ends = "", [("base", "free"), ("hook", "base")]
    for k, (geom, sides) in enumerate(GEOMS.items()):
        for n, side in enumerate((None, *sides)):
            if (k + n) % every:
                continue
            one, two = ends[(k + n) % 2]
            aside = f'sidesite="{side}"' if side else ""
            out += f"""<spatial name="{geom} {n}" {how}><site site="{one}"/><geom geom="{geom}" {aside}/>
                <site site="{two}"/></spatial>"""
    return (
        out
        + f"""<spatial name="long" {how}><site site="hook"/><geom geom="knob" sidesite="knob above"/>
        <site site="free"/><geom geom="drum"/><site site="base"/><pulley divisor="2"/><site site="base"/>
        <geom geom="reel"/><site site="low"/><site site="tip"/></spatial>"""
    )


def model(how: str = "", option: str = "", more: str = "", every: int = 1) -> mujoco.MjModel:
    return oracle.sharpen(
        mujoco.MjModel.from_xml_string(f"""<mujoco><option timestep=".002" {option}/>
        <default><geom contype="0" conaffinity="0"/></default><worldbody>{BODIES}</worldbody>
        <tendon>{tendons(how, every)}</tendon>{more}</mujoco>""")
    )


def states(mjm: mujoco.MjModel, n: int) -> list[tuple[np.ndarray, np.ndarray]]:
    return oracle.scattered(mjm, n, 0.4)


def jacobian(mjm: mujoco.MjModel, d: mujoco.MjData) -> np.ndarray:
    """ten_J, dense."""
    out = np.zeros((mjm.ntendon, mjm.nv))
    for t, (at, n) in enumerate(zip(mjm.ten_J_rowadr, mjm.ten_J_rownnz, strict=True)):
        out[t, mjm.ten_J_colind[at : at + n]] = d.ten_J[at : at + n]
    return out


def test_lengths_and_moments():
    """Each tendon touches its geom in some states and not in others."""
    mjm = model()
    m, touching = load(mjm), []
    for qpos, qvel in states(mjm, 60):
        d = oracle.forward(mjm, qpos, qvel, np.zeros(0))
        ours = derive(m, qpos.tolist(), qvel.tolist(), None, [])
        rows = [[row.get(v, 0.0) for v in range(m.nv)] for row in ours.ten_J]
        np.testing.assert_allclose(ours.ten_length, d.ten_length, rtol=0, atol=1e-12)
        np.testing.assert_allclose(rows, jacobian(mjm, d), rtol=0, atol=1e-9)
        np.testing.assert_allclose(ours.ten_velocity, d.ten_velocity, rtol=0, atol=1e-9)
        touching.append(d.ten_wrapnum > 2)
    share = np.mean(touching, axis=0)[:-1]
    assert np.all((share > 0) & (share < 1)), dict(zip(m.tendon_names, share, strict=False))


@pytest.mark.parametrize("geom", ["sphere", "cylinder"])
@pytest.mark.parametrize("side", ["", 'sidesite="behind"', 'sidesite="beside"', 'sidesite="within"'])
def test_endpoints_on_one_line_with_the_centre(geom, side):
    """On two sides of it and on one, and where an endpoint is within the geom."""
    mjm = mujoco.MjModel.from_xml_string(f"""<mujoco><worldbody>
        <geom name="g" type="{geom}" size=".5 .5" contype="0" conaffinity="0"/><site name="behind" pos="-.7 0 0"/>
        <site name="beside" pos="0 0 -.6"/><site name="within" pos=".1 0 0"/><site name="one" pos="1 0 0"/>
        <body><joint type="slide"/><joint type="slide" axis="0 1 0"/><geom size=".1"/><site name="two"/></body>
        </worldbody><tendon><spatial><site site="one"/><geom geom="g" {side}/><site site="two"/></spatial></tendon>
        </mujoco>""")
    m = load(mjm)
    for qpos in (
        [2, 1e-9],
        [-1, 0],
        [-1, 0.1],
        [-1, -0.1],
        [-0.5, 0],
        [0.3, 0.1],
        [0.6, 0],
        [2, 0],
        [2, 0.1],
        [0, 1],
        [0, -1],
    ):
        d = oracle.forward(mjm, np.array(qpos, float), np.ones(2), np.zeros(0))
        ours = derive(m, [float(x) for x in qpos], [1.0, 1.0], None, [])
        np.testing.assert_allclose(ours.ten_length, d.ten_length, rtol=0, atol=1e-13, err_msg=str(qpos))
        np.testing.assert_allclose(ours.ten_velocity, d.ten_velocity, rtol=0, atol=1e-9, err_msg=str(qpos))


PULLED = 'stiffness="20" damping=".2" limited="true" range=".2 .7" frictionloss=".05"'


@pytest.mark.parametrize("integrator", ["Euler", pytest.param("RK4", marks=pytest.mark.slow)])
def test_they_pull_as_in_mujoco_over_200_steps(integrator):
    """With springs, dampers, limits, friction and an actuator."""
    more = '<actuator><position tendon="long" kp="5" ctrlrange="-1 1"/></actuator>'
    mjm = model(PULLED, f'integrator="{integrator}"', more, every=4)
    sim = Simulation(mjm, 2, dtype=torch.float64, outputs=("ten_length", "cfrc_ext"))
    pulled = [(*state, np.full(1, 0.4)) for state in states(mjm, 2)]
    oracle.compare_steps(sim, mjm, pulled, 200, names=("qpos", "ten_length", "cfrc_ext"))


def test_lengths_in_float32():
    mjm = model()
    sim = Simulation(mjm, 60, outputs=("ten_length", "ten_velocity"))
    for k, (qpos, qvel) in enumerate(states(mjm, 60)):
        sim.qpos[k], sim.qvel[k] = torch.tensor(qpos), torch.tensor(qvel)
    qpos, qvel = sim.qpos.double().cpu().numpy(), sim.qvel.double().cpu().numpy()
    sim.forward()
    for k in range(60):
        d = oracle.forward(mjm, qpos[k], qvel[k], np.zeros(0))
        np.testing.assert_allclose(sim.ten_length[k].cpu().numpy(), d.ten_length, rtol=0, atol=2e-6)
        np.testing.assert_allclose(sim.ten_velocity[k].cpu().numpy(), d.ten_velocity, rtol=0, atol=3e-4)


def test_geoms_vary_from_world_to_world():
    """Where they are and how wide, on which the inverse weights of limited tendons depend."""
    mjm = model(PULLED, every=4)
    m, rng = load(mjm), np.random.default_rng(0)
    for qpos, qvel in states(mjm, 3):
        own = model(PULLED, every=4)
        own.geom_size[:] *= rng.uniform(0.8, 1.2, own.geom_size.shape)
        own.geom_pos[:] += rng.normal(0, 0.02, own.geom_pos.shape)
        own.body_pos[1:] += rng.normal(0, 0.02, own.body_pos[1:].shape)
        for shortcut in ("body_sameframe", "geom_sameframe"):
            getattr(own, shortcut)[:] = 0
        mujoco.mj_setConst(own, mujoco.MjData(own))
        world = vary(m, {name: getattr(own, name).tolist() for name in ("geom_size", "geom_pos", "body_pos")})
        np.testing.assert_allclose(world.tendon_invweight0, own.tendon_invweight0, rtol=1e-7)
        want = oracle.forward(own, qpos, qvel, np.zeros(0)).qacc
        got = derive(world, qpos.tolist(), qvel.tolist(), None, []).qacc
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-7 * np.abs(want).max())


@pytest.mark.parametrize("held", ["a limit", "an equality"])
def test_a_tendon_that_nothing_stretches_has_no_rows(held):
    """Between sites that stand still, beside a geom that it leads round only at times: MuJoCo has no row then."""
    how = {"a limit": 'range=".1 .9"', "an equality": ""}[held]
    equality = {"a limit": "", "an equality": '<equality><tendon tendon1="t" polycoef=".1"/></equality>'}[held]
    mjm = oracle.sharpen(
        mujoco.MjModel.from_xml_string(f"""<mujoco><worldbody><site name="a" pos="0 .1 0"/>
        <body><site name="b" pos="1 .1 0"/></body>
        <body><joint name="j" axis="0 0 1"/><geom name="g" size=".05" pos=".5 .06 0"/></body></worldbody>
        <tendon><spatial name="t" {how}><site site="a"/><geom geom="g"/><site site="b"/></spatial></tendon>{equality}
        <sensor><tendonpos tendon="t"/>{'<tendonlimitfrc tendon="t"/><tendonlimitpos tendon="t"/>' * bool(how)}</sensor>
        </mujoco>""")
    )
    states = [(np.array([angle]), np.array([0.1])) for angle in (0.0, 0.02, -0.05, -0.1, -0.5)]
    sim = Simulation(mjm, 5, dtype=torch.float64, outputs=("cfrc_ext", "sensordata", "qacc"))
    data = oracle.compare_steps(sim, mjm, states, 1, names=("qvel", "sensordata", "cfrc_ext"))
    assert [d.nefc for d in data] == [1, 1, 0, 0, 0]


@pytest.mark.parametrize("geom", ["pearl", "reel"])
def test_derivatives_where_a_tendon_passes_through_the_inside(geom):
    """A and B against MuJoCo's centred differences, and gradients against A."""
    how = f"""<mujoco><default><geom contype="0" conaffinity="0"/></default><worldbody>{BODIES}</worldbody>
        <tendon><spatial name="t" stiffness="20" damping=".2"><site site="hook"/>
        <geom geom="{geom}" sidesite="{geom} within"/><site site="base"/></spatial></tendon>
        <actuator><position tendon="t" kp="5"/></actuator></mujoco>"""
    mjm = oracle.sharpen(mujoco.MjModel.from_xml_string(how))
    places, n, nv = states(mjm, 12), 2 * mjm.nv, mjm.nv
    sim = Simulation(mjm, len(places), dtype=torch.float64, device="cpu")
    for k, (qpos, qvel) in enumerate(places):
        sim.qpos[k], sim.qvel[k] = torch.tensor(qpos), torch.tensor(qvel)
    A, B, *_ = sim.linearize()
    touching = 0
    for k, (qpos, qvel) in enumerate(places):
        d, by_state, by_control = oracle.forward(mjm, qpos, qvel, np.zeros(1)), np.zeros((n, n)), np.zeros((n, 1))
        touching += d.ten_wrapnum[0] > 2
        mujoco.mjd_transitionFD(mjm, d, 1e-6, True, by_state, by_control, None, None)
        np.testing.assert_allclose(A[k].numpy(), by_state, rtol=0, atol=2e-7 * (1 + abs(by_state).max()))
        np.testing.assert_allclose(B[k].numpy(), by_control, rtol=0, atol=1e-7)
    assert touching > 2
    qvel = sim.qvel.clone().requires_grad_()
    after = sim.transition(qvel=qvel)
    after.qvel.square().sum().backward()
    want = torch.einsum("bi,bij->bj", 2 * after.qvel.detach(), A[:, nv:, nv:])
    torch.testing.assert_close(qvel.grad, want, rtol=0, atol=1e-9)

"""Connect and weld (`constraints/welds.py`) against MuJoCo C."""

from __future__ import annotations

import warnings

import mpmath
import mujoco
import numpy as np
import oracle
import pytest
import random_params
import torch

from torch_mjenvs.physics import load
from torch_mjenvs.physics.constraints.equality import Equality
from torch_mjenvs.physics.model.precision import PRECISIONS
from torch_mjenvs.physics.pipeline import derive
from torch_mjenvs.physics.simulation import Simulation

TIES = {
    "connect": '<connect body1="ball" body2="arm" anchor=".1 .2 .3"/>',
    "connect to the world": '<connect body1="hand" anchor=".1 .2 .3" solref="-300 -20"/>',
    "connect of sites": '<connect site1="on ball" site2="on arm" solimp=".5 .99 .1 .4 3"/>',
    "connect in a tree": '<connect body1="arm" body2="hand" anchor=".1 .2 .3"/>',
    "weld of two free bodies": '<weld body1="ball" body2="stick"/>',
    "weld": '<weld body1="ball" body2="hand" relpose=".3 .2 .1 1 1 0 0" anchor=".1 .2 .3" torquescale=".3"/>',
    "weld of sites": '<weld site1="on ball" site2="on arm" torquescale="2"/>',
    "weld in a tree": '<weld body1="hand" body2="arm" solref=".1 .5"/>',
    "weld in a body": '<weld site1="on ball" site2="by ball"/>',
    "weld to the world": '<weld body1="stick"/>',
    "weld to a mocap body": '<weld body1="led" body2="hand"/>',
    "weld without orientation": '<weld body1="led" body2="stick" torquescale="0"/>',
}
OF_NOTHING = '<weld body1="led"/><connect site1="post" site2="on led"/>'


def model(ties: str, option: str = "") -> mujoco.MjModel:
    """Two floating bodies, an arm of a ball joint and a slide and then a limited hinge, and a body that is led."""
    return oracle.sharpen(
        mujoco.MjModel.from_xml_string(f"""<mujoco><option timestep=".002" {option}/><worldbody>
        <geom type="plane" size="5 5 1"/><site name="post"/>
        <body name="led" mocap="true" pos="1 0 .4" quat="2 1 0 0"><site name="on led" pos=".1 0 0"/></body>
        <body name="ball" pos="0 0 .2"><freejoint/><geom size=".1"/><geom size=".1" pos=".3 .1 0"/>
          <site name="on ball" pos=".1 0 0" quat="1 1 0 0"/><site name="by ball" pos=".2 0 0"/></body>
        <body name="stick" pos="0 .6 .3"><freejoint/><geom type="capsule" size=".05 .2" euler="80 0 0"/></body>
        <body name="arm" pos=".5 0 .2"><joint type="ball" pos=".1 .1 0"/><joint type="slide"/>
          <geom size=".1" pos=".2 0 0"/><site name="on arm" quat="1 2 0 0"/>
          <body name="hand" pos=".5 0 0"><joint axis="1 1 .3" range="-.2 .2" limited="true"/>
            <geom size=".1" pos=".2 0 0"/></body></body>
        </worldbody><equality>{ties}</equality></mujoco>""")
    )


def random_data(mjm: mujoco.MjModel, rng: np.random.Generator) -> mujoco.MjData:
    d = mujoco.MjData(mjm)
    mujoco.mj_integratePos(mjm, d.qpos, rng.normal(0, 0.2, mjm.nv), 1.0)
    d.qvel[:] = rng.normal(0, 1, mjm.nv)
    d.mocap_pos += rng.normal(0, 0.2, (mjm.nmocap, 3))
    d.mocap_quat[:] = rng.normal(0, 1, (mjm.nmocap, 4))
    return d


def close(got: object, want: np.ndarray, tolerance: float, what: str = "") -> None:
    bound = tolerance * max(1.0, np.max(np.abs(want), initial=0.0))
    np.testing.assert_allclose(got, want, rtol=0, atol=bound, err_msg=what)


@pytest.mark.parametrize("ties", [*TIES, "all"])
def test_rows_forces_and_accelerations(ties):
    mjm = model("".join(TIES.values()) + OF_NOTHING if ties == "all" else TIES[ties])
    m, rng, touched, limited = load(mjm), np.random.default_rng(0), 0, 0
    for _ in range(20):
        d = random_data(mjm, rng)
        mujoco.mj_forward(mjm, d)
        mujoco.mj_rnePostConstraint(mjm, d)
        mocap = {"mocap_pos": d.mocap_pos.tolist(), "mocap_quat": d.mocap_quat.tolist()}
        ours = derive(m, d.qpos.tolist(), d.qvel.tolist(), None, [], **mocap)
        rows = [row for c in ours.constraints if isinstance(c, Equality) for row in c.rows]
        got = np.array([[row.jacobian.get(v, 0.0) for v in range(mjm.nv)] for row in rows])
        want = d.efc_J[: d.nefc * mjm.nv].reshape(d.nefc, mjm.nv)[: d.ne]
        close(got, want, 1e-13)
        np.testing.assert_allclose([row.D for row in rows], d.efc_D[: d.ne], rtol=1e-12)
        close([-row.y0 for row in rows], d.efc_aref[: d.ne], 1e-12)
        for name in ("qacc", "qfrc_constraint", "cfrc_ext"):
            close(getattr(ours, name), getattr(d, name), 1e-10, name)
        touched, limited = touched + (d.ncon > 0), limited + d.nl
    assert touched > 5 and limited > 5


def linkages() -> str:
    """Four bars that turn about parallel axes, driven by their crank; and two that hang between ball joints."""

    def bar(end: str) -> str:
        return f'<geom type="capsule" fromto="0 0 0 {end}" size=".02" contype="0" conaffinity="0"/>'

    return f"""<mujoco><option timestep=".002"/><worldbody>
        <body pos="0 0 1"><joint name="crank" axis="0 1 0"/>{bar("0 0 .2")}
          <body pos="0 0 .2"><joint axis="0 1 0"/>{bar(".5 0 .2")}
            <body name="rocker" pos=".5 0 .2"><joint axis="0 1 0"/>{bar("0 0 -.4")}</body></body></body>
        <body pos="0 1 1"><joint type="ball"/>{bar(".3 0 0")}
          <body name="end" pos=".3 0 0"><joint type="ball"/>{bar("0 .3 0")}</body></body></worldbody>
        <equality><connect body1="rocker" anchor="0 0 -.4"/><connect body1="end" anchor="0 .3 0"/></equality>
        <actuator><motor joint="crank" gear="4"/></actuator></mujoco>"""


def beside_mujoco(sim: Simulation, worlds: list[mujoco.MjData], nstep: int) -> None:
    """Some steps of both, from MuJoCo's states."""
    fields = ["qpos", "qvel", "ctrl", *(("mocap_pos", "mocap_quat") if worlds[0].model.nmocap else ()), *sim.inputs]
    for k, d in enumerate(worlds):
        for name in fields:
            getattr(sim, name)[k] = torch.tensor(getattr(d, name))
    sim.step(nstep)
    for k, d in enumerate(worlds):
        mujoco.mj_step(d.model, d, nstep)
        assert not any(w.number for w in d.warning)
        for name in ("qpos", "qvel"):
            close(getattr(sim, name)[k].cpu().numpy(), getattr(d, name), 1e-9, name)


@pytest.mark.parametrize("integrator", ["Euler", "RK4"])
def test_trajectories_of_welded_bodies(integrator):
    """In the fall, on the floor, at limits, and led: by a mocap body that is moved every 20 steps."""
    chosen = ("connect", "weld of two free bodies", "weld to a mocap body")
    mjm, rng = model("".join(TIES[name] for name in chosen), f'integrator="{integrator}"'), np.random.default_rng(0)
    sim, worlds = Simulation(mjm, 4, dtype=torch.float64), [random_data(mjm, rng) for _ in range(4)]
    touched = 0
    for _ in range(10):
        for d in worlds:
            d.mocap_pos += rng.normal(0, 0.05, (1, 3))
        beside_mujoco(sim, worlds, 20)
        touched += sum(d.ncon for d in worlds)
    assert touched > 20


def test_closed_loops_turn_as_in_mujoco():
    mjm = oracle.sharpen(mujoco.MjModel.from_xml_string(linkages()))
    sim, worlds = Simulation(mjm, 3, dtype=torch.float64), [mujoco.MjData(mjm) for _ in range(3)]
    for k, d in enumerate(worlds):
        d.ctrl[:] = 0.4 * k - 0.3
        d.qvel[3:] = np.random.default_rng(k).normal(0, 1, mjm.nv - 3)
    for _ in range(10):
        beside_mujoco(sim, worlds, 50)
    assert abs(worlds[2].qpos[0]) > 1  # the crank did turn


def test_each_world_switches_its_own_on_and_off():
    """While it runs; also one that is off in the model. `reset` has them as the model does."""
    ties = TIES["weld of two free bodies"] + TIES["connect to the world"].replace("/>", ' active="false"/>')
    mjm, rng = model(ties), np.random.default_rng(0)
    sim = Simulation(mjm, 5, dtype=torch.float64, inputs=("eq_active",))
    assert sim.eq_active.tolist() == [[1.0, 0.0]] * 5
    worlds = [random_data(mjm, rng) for _ in range(5)]
    for _ in range(6):
        for d in worlds:
            d.eq_active[:] = rng.random(2) < 0.5
        beside_mujoco(sim, worlds, 15)
    sim.eq_active[0, 0] = False
    sim.eq_active[1] = True
    sim.reset(torch.arange(5, device=sim.device) > 0)
    assert sim.eq_active[:, 0].tolist() == [0, 1, 1, 1, 1] and not sim.eq_active[1:, 1].any()
    sim.reset()
    assert sim.eq_active.tolist() == [[1.0, 0.0]] * 5


def test_a_flag_that_switches_all_of_them_off_leaves_no_use_for_eq_active():
    mjm = model(TIES["weld"], '><flag equality="disable"/></option><option')
    with pytest.raises(ValueError, match="eq_active has no use"):
        Simulation(mjm, 1, inputs=("eq_active",))


def test_worlds_with_parameters_of_their_own():
    """Where bodies are in the model is where connects, and welds without a relpose, hold them."""
    ties = ("connect", "weld of two free bodies", "weld", "weld to a mocap body")
    mjm, rng, worlds = model("".join(TIES[name] for name in ties)), np.random.default_rng(0), []
    varied = ("body_pos", "body_mass", "qpos0", "eq_solref", "eq_solimp")
    sim = Simulation(mjm, 4, dtype=torch.float64, vary=varied)
    for k in range(4):
        values = {name: random_params.draw(mjm, name, rng) for name in varied}
        for name, x in values.items():
            sim.params[name][k] = torch.tensor(x)
        worlds.append(random_data(random_params.edited(mjm, values), rng))
    beside_mujoco(sim, worlds, 10)
    moved = [np.abs(d.model.eq_data - mjm.eq_data).max(1) for d in worlds]
    assert np.min(np.array(moved)[:, [0, 1, 3]]) > 0.01 and not np.any(np.array(moved)[:, 2])


def test_what_was_edited_stands_though_mj_set_const_would_derive_it():
    """As gymnasium-robotics and Meta-World write a relpose into the model: worlds whose masses vary hold the same."""
    mjm, rng = model(TIES["weld to a mocap body"] + TIES["connect"]), np.random.default_rng(0)
    edited, derived = mjm.eq_data.copy(), mjm.eq_data.copy()
    edited[0, 3:10], edited[1, 3:6] = (0, 0.1, 0, 1, 0, 0.2, 0), (0.2, 0.2, 0.3)
    mjm.eq_data[:] = edited
    varied = ("body_mass", "body_pos")
    plain, sim = (Simulation(mjm, 3, dtype=torch.float64, vary=names) for names in ((), varied))
    worlds = [random_data(mjm, rng) for _ in range(3)]
    beside_mujoco(plain, worlds, 5)
    beside_mujoco(sim, worlds, 5)
    values = {name: random_params.draw(mjm, name, rng) for name in varied}
    sim.set_params({name: [x] * 3 for name, x in values.items()})
    other = random_params.edited(mjm, values)
    assert np.abs(other.eq_data - edited).max(1).min() > 0.01  # by mj_setConst
    assert np.abs(other.eq_data - derived).max(1).min() > 0.01
    other.eq_data[:] = edited
    beside_mujoco(sim, [random_data(other, rng) for _ in range(3)], 5)
    np.testing.assert_array_equal(sim.model_of(1).eq_data, edited)


def test_what_varies_of_equalities_makes_sense_or_is_refused():
    mjm = model(TIES["connect to the world"])
    sim = Simulation(mjm, 2, vary=("eq_solref", "eq_solimp"))
    with pytest.raises(ValueError, match="eq_solref of world 0 makes no sense: both numbers keep their signs"):
        sim.set_params({"eq_solref": [[0.02, 1.0]]})
    with pytest.raises(ValueError, match="eq_solimp of world 0 makes no sense: the power"):
        sim.set_params({"eq_solimp": [[0.9, 0.95, 0.001, 0.5, 3]]})
    with pytest.raises(ValueError, match=r"'eq_active0' cannot vary: .* pass inputs="):
        Simulation(mjm, 1, vary=("eq_active0",))
    with pytest.raises(ValueError, match="eq_solref cannot vary: a disable flag"):
        Simulation(model(TIES["weld"], '><flag constraint="disable"/></option><option'), 1, vary=("eq_solref",))


FAR = '<connect body1="stick" anchor="0 3 0" {}/>'  # 400 times less inertia is met there than at the centre
HARD = 'solimp=".9999 .9999 .001"'


@pytest.mark.parametrize("tie", [*TIES.values(), FAR.format(""), FAR.format(HARD)])
def test_accelerations_in_float32(tie):
    """By torch tensors, 30 worlds at once."""
    mjm, rng = model(tie), np.random.default_rng(0)
    worlds = [random_data(mjm, rng) for _ in range(30)]
    names = ("qpos", "qvel", "mocap_pos", "mocap_quat")
    rounded = {name: torch.tensor(np.stack([getattr(d, name) for d in worlds]), dtype=torch.float32) for name in names}
    qpos, qvel, pos, quat = (list(x.movedim(0, -1)) for x in rounded.values())
    precision = PRECISIONS["float32"]
    ours = derive(load(mjm), qpos, qvel, None, [], precision, mocap_pos=pos, mocap_quat=quat).qacc
    for k, d in enumerate(worlds):
        for name, x in rounded.items():
            getattr(d, name)[:] = x[k].double().cpu().numpy()
        mujoco.mj_forward(mjm, d)
        close([float(x[k]) if isinstance(x, torch.Tensor) else x for x in ours], d.qacc, 1e-3)


@pytest.mark.parametrize("precision", PRECISIONS.values())
def test_what_holds_a_wheel_by_its_rim_is_softened(precision):
    """Its centre of mass cannot move, so that MuJoCo's stiffness is endless; the rim goes where the other body goes."""
    mjm = oracle.sharpen(
        mujoco.MjModel.from_xml_string("""<mujoco><worldbody>
        <body name="wheel"><joint axis="0 1 0"/><geom type="capsule" size=".02" fromto="-.3 0 0 .3 0 0"/>
          <body pos=".3 0 0"><joint axis="0 1 0"/><geom type="capsule" size=".02" fromto="0 0 0 0 0 -.4"/></body></body>
        </worldbody><equality><connect body1="wheel" anchor=".2 0 0"/></equality></mujoco>""")
    )
    d, scalar = mujoco.MjData(mjm), float if precision is PRECISIONS["float64"] else lambda x: torch.tensor([x])
    d.qpos[:], d.qvel[:] = (0.01, 0.5), (0.3, -1)
    mujoco.mj_forward(mjm, d)
    assert np.min(d.efc_D) > 1e14
    state = ([scalar(float(x)) for x in xs] for xs in (d.qpos, d.qvel))
    ours = derive(load(mjm), *state, None, [], precision)
    close([float(x) for x in ours.qacc], d.qacc, 1e-3 if precision is PRECISIONS["float32"] else 1e-8)


def test_where_mujoco_has_no_answer_for_a_body_that_is_held_ours_is_that_of_exact_numbers():
    """A ball joint at the centre of mass, and a connect to the world: MuJoCo's D is 1e15, and J'DJ takes all digits of
    the inertia about the anchor. Beside 60 digits ours is right to 1e-7, and MuJoCo's off by 1e-4 and more.
    """
    ours, theirs = [], []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        anchor = rng.normal(0, 0.2, 3)
        mjm = oracle.sharpen(
            mujoco.MjModel.from_xml_string(f"""<mujoco><option timestep=".002"/><worldbody>
            <body name="b"><joint type="ball"/><geom type="ellipsoid" size=".2 .15 .1" mass="1"/></body></worldbody>
            <equality><connect body1="b" anchor="{" ".join(map(repr, anchor.tolist()))}"/></equality></mujoco>""")
        )
        with pytest.warns(UserWarning, match="the centre of mass of body 'b' cannot move, .* of equality 0 is without"):
            m = load(mjm)
        d = mujoco.MjData(mjm)
        d.qvel[:] = rng.normal(size=3)
        mujoco.mj_integratePos(mjm, d.qpos, rng.normal(0, 0.05, 3), 1.0)
        got = derive(m, d.qpos.tolist(), d.qvel.tolist(), None, []).qacc
        mujoco.mj_forward(mjm, d)
        want = exactly_held(mjm, d, mjm.eq_data[0, :3])
        ours.append(np.abs(got - want).max() / np.abs(want).max())
        theirs.append(np.abs(d.qacc - want).max() / np.abs(want).max())
    assert max(ours) < 1e-7 and np.median(theirs) > 1e-4


def exactly_held(mjm: mujoco.MjModel, d: mujoco.MjData, anchor: np.ndarray) -> np.ndarray:
    """The acceleration of a ball joint whose anchor a connect holds, at MuJoCo's stiffness, at 60 digits.

    a, v in the body's axes: the anchor is off by R a - a and moves by R (v x a).
    """
    with mpmath.workdps(60):

        def across(x: mpmath.matrix) -> mpmath.matrix:
            return mpmath.matrix([[0, -x[2], x[1]], [x[2], 0, -x[0]], [-x[1], x[0], 0]])

        a, velocity, force = (mpmath.matrix(x.tolist()) for x in (anchor, d.qvel, d.qfrc_smooth))
        quat = mpmath.matrix(d.qpos.tolist()) / mpmath.norm(mpmath.matrix(d.qpos.tolist()))
        turn = across(quat[1:])
        rot = mpmath.eye(3) + 2 * quat[0] * turn + 2 * turn * turn
        k, b, imp = map(float, d.efc_KBIP[0, :3])
        jacobian = -rot * across(a)
        drift = rot * across(velocity) * across(velocity) * a
        aref = -b * jacobian * velocity - k * imp * (rot * a - a) - drift
        np.testing.assert_allclose(np.array(aref.tolist(), float)[:, 0], d.efc_aref, rtol=1e-11)
        stiffness, inertia = mpmath.mpf(float(d.efc_D[0])), mpmath.matrix(oracle.field(mjm, d, "M").tolist())
        pull = stiffness * jacobian.T
        exact = mpmath.lu_solve(inertia + pull * jacobian, force + pull * aref)
        return np.array([float(x) for x in exact])


def test_bodies_that_are_held_are_named_and_others_are_not():
    xml = """<mujoco><worldbody><geom name="floor" type="plane" size="1 1 1"/><body name="wheel" pos="0 0 {z}">
        <joint axis="0 1 0" pos="{offset} 0 0"/><geom name="tyre" size=".2" contype="{touches}"
        conaffinity="{touches}"/></body></worldbody>
        </mujoco>"""
    with pytest.warns(UserWarning, match="body 'wheel' .* contact of geom 'floor' and geom 'tyre'"):
        load(xml.format(z=0.2, offset=0, touches=1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load(xml.format(z=0.2, offset=0.01, touches=1))
        load(xml.format(z=0.2, offset=0, touches=0))

"""Friction cones against MuJoCo C: torsional and rolling friction (condim 4, 6), pyramidal and elliptic cones."""

from __future__ import annotations

from collections import Counter

import mujoco
import numpy as np
import oracle
import pytest
import torch

from torch_mjenvs.physics import load, vary
from torch_mjenvs.physics.constraints.cones.elliptic import EllipticCone
from torch_mjenvs.physics.pipeline import derive
from torch_mjenvs.physics.simulation import Simulation

CONDIMS, CONES = (3, 4, 6), ("pyramidal", "elliptic")
ZONES = {
    int(getattr(mujoco.mjtConstraintState, f"mjCNSTRSTATE_{name}")): name for name in ("SATISFIED", "QUADRATIC", "CONE")
}


def model(condim: int, option: str = "", friction: str = ".6 .02 .004") -> mujoco.MjModel:
    """A floating body with a leg, a ball, and a capsule on rails: all near each other and the floor."""
    return oracle.sharpen(
        mujoco.MjModel.from_xml_string(f"""<mujoco><option timestep=".002" {option}/>
        <default><geom condim="{condim}" friction="{friction}"/></default>
        <worldbody><geom name="floor" type="plane" size="5 5 1" euler="3 5 0"/><geom size=".1" pos="0 -.2 .1"/>
        <body pos="0 0 .12"><freejoint/><geom type="capsule" size=".1 .2" euler="0 80 0"/>
          <body pos=".2 0 0"><joint axis="0 1 0" pos=".05 0 0"/>
            <geom type="capsule" fromto=".1 0 0 .25 0 -.1" size=".05" friction=".9 .005 .03" solimp=".5 .99 .1 .4 3"/>
          </body></body>
        <body pos=".47 0 .11"><freejoint/><geom size=".1" solref="-900 -20"/></body>
        <body pos="0 .18 .11"><joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 1"/><joint type="ball"/>
          <geom type="capsule" size=".1 .05" euler="90 10 0" margin=".01"/></body>
        </worldbody></mujoco>""")
    )


def states(mjm: mujoco.MjModel, n: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """A third of them next to at rest; others slide, spin and roll, slowly or fast."""
    return oracle.scattered(mjm, n, 0.03, (1e-3, 0.1, 3.0))


@pytest.mark.parametrize(("cone", "impratio"), [("pyramidal", 1), ("elliptic", 1), ("elliptic", 10)])
@pytest.mark.parametrize("condim", CONDIMS)
def test_accelerations_forces_and_wrenches(condim, cone, impratio):
    mjm = model(condim, f'cone="{cone}" impratio="{impratio}"')
    m, zones, among = load(mjm), Counter[str](), 0
    for qpos, qvel in states(mjm, 12):
        d = oracle.forward(mjm, qpos, qvel, np.zeros(0))
        mujoco.mj_rnePostConstraint(mjm, d)
        ours = derive(m, qpos.tolist(), qvel.tolist(), None, [])
        for name in ("qacc", "qfrc_constraint", "cfrc_ext"):
            want = getattr(d, name)
            np.testing.assert_allclose(getattr(ours, name), want, rtol=0, atol=1e-11 * np.abs(want).max(), err_msg=name)
        assert ours.solver_niter < 20
        zones.update(ZONES[state] for state in d.efc_state)
        among += sum(all(mjm.geom_bodyid[c.geom] > 0) for c in d.contact)
    assert min(zones["SATISFIED"], zones["QUADRATIC"]) > 5 and among > 5
    assert (zones["CONE"] > 30) == (cone == "elliptic")


# -- Trajectories and sensors ------------------------------------------------------------------------------------------


def toys(option: str) -> mujoco.MjModel:
    """A ball that rolls, one that spins, and a capsule that leans on a post, with sensors of their contacts."""
    return oracle.sharpen(
        mujoco.MjModel.from_xml_string(f"""<mujoco><option timestep=".002" {option}/>
        <worldbody><geom type="plane" size="5 5 1"/><geom type="capsule" fromto=".5 -1 .15 .5 1 .15" size=".05"/>
        <body pos="0 0 .098"><freejoint/><geom size=".1" condim="6" friction=".8 .01 .003"/>
          <site name="ball" size=".15"/></body>
        <body pos=".205 0 .1"><freejoint/><geom size=".1" condim="4" friction=".5 .03 .001"/></body>
        <body pos=".4 .5 .16" euler="0 30 0"><freejoint/><geom type="capsule" size=".05 .12" condim="6"/>
          <site name="rod" size=".2"/></body>
        </worldbody><sensor><touch site="ball"/><torque site="ball"/><touch site="rod"/><force site="rod"/></sensor>
        </mujoco>""")
    )


def rolling(mjm: mujoco.MjModel, n: int) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [rng.normal(0, (0.3, 3.0)[k % 2], mjm.nv) for k in range(n)]


@pytest.mark.parametrize(("cone", "integrator"), [("elliptic", "Euler"), ("pyramidal", "RK4")])
def test_trajectories_of_100_steps(cone, integrator):
    mjm = toys(f'cone="{cone}" integrator="{integrator}" impratio="3"')
    given, outputs = rolling(mjm, 6), ("sensordata", "cfrc_ext")
    dtypes = (torch.float64, torch.float32) if integrator == "Euler" else (torch.float64,)
    sims = {dtype: Simulation(mjm, len(given), dtype=dtype, outputs=outputs) for dtype in dtypes}
    for sim in sims.values():
        sim.qvel.copy_(torch.tensor(np.stack(given)))
        sim.step(100)
    exact = sims[torch.float64]
    for k, qvel in enumerate(given):
        d = mujoco.MjData(mjm)
        d.qvel[:] = qvel
        mujoco.mj_step(mjm, d, 100)
        mujoco.mj_rnePostConstraint(mjm, d)
        for name, bound in (("qpos", 1e-10), ("qvel", 1e-8), *((x, 1e-7) for x in outputs if integrator == "Euler")):
            want = getattr(d, name)
            error = np.abs(getattr(exact, name)[k].cpu().numpy() - want).max()
            assert error < bound * max(1, np.abs(want).max()), (name, error)
    for sim in sims.values():
        assert (sim.qpos.double() - exact.qpos).abs().max() < 1e-3


@pytest.mark.parametrize("cone", CONES)
def test_a_ball_that_spins_is_slowed_by_friction_times_what_presses_it(cone):
    mjm = mujoco.MjModel.from_xml_string(f"""<mujoco><option timestep=".002" cone="{cone}"/>
      <default><geom condim="4" friction="1 .01 .002" size=".1"/></default>
      <worldbody><geom type="plane" size="5 5 1"/><body><freejoint/><geom/></body></worldbody></mujoco>""")
    ours = derive(load(mjm), [0, 0, 0.0995, 1, 0, 0, 0], [0.0] * 5 + [5.0], None, [])
    pressed = ours.qfrc_constraint[2]
    assert pressed > 1
    assert -ours.qacc[5] * mjm.body_inertia[1, 2] == pytest.approx(0.01 * pressed, rel=1e-9)


# -- Frictions of a pair, and those that vary --------------------------------------------------------------------------


def test_stiffness_and_reference_of_a_pair():
    """Of one contact alone, with five frictions and `solreffriction`: `efc_D` and `efc_aref`."""
    mjm = oracle.sharpen(
        mujoco.MjModel.from_xml_string("""<mujoco><option cone="elliptic" impratio="3"/>
      <worldbody><geom name="a" type="plane" size="1 1 1"/><body pos="0 0 .11"><freejoint/><geom name="b" size=".1"/>
      </body></worldbody><contact><pair geom1="b" geom2="a" condim="6" margin=".05" friction=".7 .5 .1 .2 .3"
      solref=".03 .7" solreffriction="-5 -10" solimp=".5 .99 .1 .4 3"/></contact></mujoco>""")
    )
    qvel = np.array([1.0, 2, -3, 0.1, 0.2, 0.3])
    d = oracle.forward(mjm, mjm.qpos0, qvel, np.zeros(0))
    ours = derive(load(mjm), mjm.qpos0.tolist(), qvel.tolist(), None, [])
    (contact,) = ours.constraints[0].contacts
    stiffness = [contact.cone.D, *(contact.cone.D * f * f / contact.cone.slip for f in contact.cone.friction)]
    np.testing.assert_allclose(stiffness, d.efc_D, rtol=1e-12)
    np.testing.assert_allclose([-y for y in contact.y0], d.efc_aref, rtol=1e-12)
    np.testing.assert_allclose(ours.qacc, d.qacc, rtol=1e-11, atol=1e-11)


@pytest.mark.cpu  # in torch, operation by operation: minutes on a GPU that others use, too
@pytest.mark.parametrize("cone", CONES)
def test_friction_that_varies_from_world_to_world(cone):
    mjm, rng = model(6, f'cone="{cone}"'), np.random.default_rng(2)
    m, found = load(mjm), states(mjm, 6)
    frictions = mjm.geom_friction * rng.uniform(0.3, 2, (len(found), mjm.ngeom, 3))
    masses = mjm.body_mass * rng.uniform(0.7, 1.5, (len(found), mjm.nbody))
    world = vary(m, {"geom_friction": torch.tensor(frictions), "body_mass": torch.tensor(masses)})
    qpos, qvel = (list(torch.tensor(np.stack(x)).T) for x in zip(*found, strict=True))
    ours = torch.stack(derive(world, qpos, qvel, None, []).qacc, 1)
    for k, state in enumerate(found):
        mjm.geom_friction[:], mjm.body_mass[:] = frictions[k], masses[k]
        mujoco.mj_setConst(mjm, mujoco.MjData(mjm))
        want = oracle.forward(mjm, *state, np.zeros(0)).qacc
        np.testing.assert_allclose(ours[k], want, rtol=0, atol=1e-9 * np.abs(want).max())


@pytest.mark.parametrize(("cone", "condim"), [("pyramidal", 3), ("elliptic", 6)])
def test_the_friction_of_a_pair_varies_from_world_to_world(cone, condim):
    """Along each tangent its own; that of the same geoms counts for nothing."""
    xml = f"""<mujoco><option cone="{cone}"/><worldbody><geom name="floor" type="plane" size="5 5 1"/>
      <body pos="0 0 .18"><freejoint/><geom name="box" type="box" size=".3 .2 .2"/></body>
      <body pos="0 .1 .56"><freejoint/><geom name="ball" size=".2"/></body></worldbody><contact>
      <pair geom1="box" geom2="ball" condim="{condim}" friction=".9 .4 .02 .01 .03"/>
      <pair geom1="floor" geom2="box" condim="{condim}" friction=".5 .8 .01 .02 .01"/></contact></mujoco>"""
    mjm, rng = oracle.sharpen(mujoco.MjModel.from_xml_string(xml)), np.random.default_rng(0)
    found = oracle.scattered(mjm, 8, spread=0.02)
    frictions = mjm.pair_friction * rng.uniform(0.3, 2, (len(found), mjm.npair, 5))
    sim = Simulation(mjm, len(found), dtype=torch.float64, outputs="qacc", vary=("pair_friction", "geom_friction"))
    sim.params["geom_friction"].mul_(3.0)
    sim.set_params({"pair_friction": torch.tensor(frictions, device=sim.device)})
    for k, (qpos, qvel) in enumerate(found):
        sim.qpos[k], sim.qvel[k] = torch.tensor(qpos), torch.tensor(qvel)
    sim.forward()
    touching: Counter[tuple[int, ...]] = Counter()
    for k, state in enumerate(found):
        mjm.pair_friction[:] = frictions[k]
        d = oracle.forward(mjm, *state, np.zeros(0))
        touching.update({tuple(contact.geom) for contact in d.contact})
        np.testing.assert_allclose(sim.qacc[k].cpu(), d.qacc, rtol=0, atol=1e-9 * np.abs(d.qacc).max())
    assert min(touching.values()) > 4 and len(touching) == 2
    with pytest.raises(ValueError, match=r"pair_friction.*not negative"):
        sim.set_params({"pair_friction": torch.tensor(-frictions, device=sim.device)})


# -- The algebra -------------------------------------------------------------------------------------------------------

FRICTIONS = [0.8, 0.8, 0.05, 0.01, 0.02]


def cone_and_residuals(n: int, condim: int) -> tuple[EllipticCone, list[np.ndarray]]:
    rng = np.random.default_rng(0)
    y = [rng.normal(0, 1, condim) * [1, *rng.choice([0.1, 0.3, 3], condim - 1)] for _ in range(n)]
    return EllipticCone(FRICTIONS[: condim - 1], 7.0, 0.3), y


@pytest.mark.parametrize("condim", CONDIMS)
def test_force_and_stiffness_are_the_derivatives_of_the_cost(condim):
    cone, found = cone_and_residuals(60, condim)
    friction, seen = np.array(cone.friction), Counter[str]()

    def cost(y: np.ndarray) -> float:
        e, t = y[0], np.linalg.norm(friction * y[1:])
        seen["free" if e >= t else "sticks" if t <= -cone.slip * e else "slides"] += 1
        if e >= t:
            return 0.0
        if t <= -cone.slip * e:
            return 0.5 * cone.D * (e * e + t * t / cone.slip)
        return 0.5 * cone.D / (1 + cone.slip) * (e - t) ** 2

    for y in found:
        force, weight = cone.push(y.tolist())
        for k, step in enumerate(np.eye(condim) * 1e-6):
            assert (cost(y + step) - cost(y - step)) / -2e-6 == pytest.approx(force[k], abs=1e-6)
            change = [cone.push((y + x).tolist())[0] for x in (step, -step)]
            np.testing.assert_allclose(np.subtract(*change) / -2e-6, weight[k], atol=1e-4)
    assert len(seen) == 3 and min(seen.values()) > 20


@pytest.mark.parametrize("condim", CONDIMS)
def test_what_a_line_meets_is_what_force_and_stiffness_say(condim):
    """Slope, curvature there and at 0, and the force that is out of place: to rounding of that itself."""
    cone, found = cone_and_residuals(200, condim)
    small = 0
    for y, v in zip(found[::2], found[1::2], strict=True):
        for step in (1.0, 1e-6):
            v = v * step
            slope, curve, out, before = cone.fold([0.0] * 4, cone.rows(y.tolist()), cone.rows(v.tolist()), 0.7)
            (force, weight), (old, old_weight) = cone.push((y + 0.7 * v).tolist()), cone.push(y.tolist())
            assert slope == pytest.approx(-np.dot(force, v), rel=1e-9, abs=1e-12)
            assert curve == pytest.approx(v @ weight @ v, rel=1e-9, abs=1e-12)
            assert before == pytest.approx(v @ old_weight @ v, rel=1e-9, abs=1e-12)
            plain = np.abs(np.array(force) - old + 0.7 * np.array(old_weight) @ v).sum()
            assert out == pytest.approx(plain, rel=1e-9, abs=1e-13)
            small += out < 1e-11
    assert small > 50


def test_gradients_of_a_contact_that_does_not_slide_are_numbers():
    """Where x is 0 there is no direction to slide in."""
    y = torch.tensor([-0.1, 0.0, 0.0], dtype=torch.float64, requires_grad=True)
    force, weight = EllipticCone([0.5, 0.5], 3.0, 0.25).push(list(y))
    (sum(force) + sum(map(sum, weight))).backward()
    assert torch.isfinite(y.grad).all()

"""Forces of a fluid, and sites, beside MuJoCo C."""

from __future__ import annotations

from typing import Any

import mujoco
import numpy as np
import oracle
import pytest
import torch

from torch_mjenvs.physics import State, load, step
from torch_mjenvs.physics.columns import vary
from torch_mjenvs.physics.pipeline import derive
from torch_mjenvs.physics.simulation import Simulation


def error(ours: Any, theirs: np.ndarray) -> float:
    """Relative to 1 + size."""
    return float(np.max(np.abs(np.asarray(ours, float) - theirs) / (1 + np.abs(theirs))))


FLUIDS = ['density="700"', 'viscosity="2"', 'density="300" viscosity="0.7" wind="0.4 -1 2"']


@pytest.mark.parametrize("seed", [2, 4, 5, 7, 8, 10])
def test_forces_of_fluids_are_mujocos(seed):
    """qfrc_fluid and qfrc_passive of random trees, in a liquid, in thick oil, and in both with a current."""
    for fluid in FLUIDS:
        mjm = mujoco.MjModel.from_xml_string(oracle.random_mjcf(seed).replace("<option", f"<option {fluid}"))
        m, rng, d = load(mjm), np.random.default_rng(seed), mujoco.MjData(mjm)
        for _ in range(3):
            mujoco.mj_integratePos(mjm, d.qpos, rng.normal(0, 0.5, mjm.nv), 1.0)
            d.qvel[:] = rng.normal(0, 2, mjm.nv)
            mujoco.mj_forward(mjm, d)
            assert np.abs(d.qfrc_fluid).max() > 1e-2
            ours = derive(m, d.qpos.tolist(), d.qvel.tolist(), None, [0.0] * m.nu)
            for name in ("qfrc_fluid", "qfrc_passive"):
                assert error(getattr(ours, name), getattr(d, name)) < 1e-11, name


@pytest.mark.parametrize("integrator", ["Euler", "implicit"])
@pytest.mark.parametrize("shape", ["none", "ellipsoid"])
@pytest.mark.parametrize(("density", "viscosity"), [(-30, 0), (0, -1), (30, -1), (-30, 1), (-30, -1)])
def test_a_negative_density_or_viscosity_is_none_to_a_box(density, viscosity, shape, integrator):
    """And pushes an ellipsoid, as in MuJoCo."""
    mjm = mujoco.MjModel.from_xml_string(f"""<mujoco><option density="{density}" viscosity="{viscosity}"
        integrator="{integrator}"/><worldbody><body><freejoint/>
        <geom type="box" size=".1 .2 .3" density="100" fluidshape="{shape}"/></body></worldbody></mujoco>""")
    m, d = load(mjm), mujoco.MjData(mjm)
    d.qvel[:] = [1, 2, 3, 0.1, 0.2, 0.3]
    before = State(d.qpos.tolist(), d.qvel.tolist(), [0.0] * 6)
    mujoco.mj_forward(mjm, d)
    assert error(derive(m, before.qpos, before.qvel, None, []).qfrc_fluid, d.qfrc_fluid) < 1e-12
    assert d.qfrc_fluid.any() == (shape == "ellipsoid" or max(density, viscosity) > 0)
    mujoco.mj_step(mjm, d)
    assert error(step(m, before, []).qvel, d.qvel) < 1e-12


SWIMMER = """<mujoco><option density="800" viscosity=".3" wind=".2 -.1 .3" timestep=".004" integrator="{integrator}"/>
    <default><geom fluidshape="ellipsoid" contype="0"/></default><worldbody>
    <body><freejoint/><geom type="ellipsoid" size=".3 .1 .2"/><geom size=".1" pos="0 .3 0" fluidcoef="1 2 .5 .7 3"/>
      <body pos=".3 0 0"><joint type="ball" damping=".1"/>
        <geom type="box" size=".2 .02 .1" pos=".2 0 0" euler="10 30 0"/>
        <body pos=".4 0 0"><joint axis="0 1 .3"/>
          <geom type="capsule" size=".04 .1" pos=".2 .1 0" euler="70 0 0"/>
          <geom type="cylinder" size=".05 .2" pos=".1 0 0" fluidshape="none"/></body>
        <body pos="0 .4 0"><joint/><geom type="cylinder" size=".1 .03" pos="0 .2 0" fluidshape="none"/></body>
    </body></body></worldbody></mujoco>"""


@pytest.mark.parametrize("integrator", ["Euler", "RK4", "implicit", "implicitfast"])
def test_ellipsoids_in_a_fluid(integrator):
    """Geoms of five shapes, beside bodies that are boxes to the fluid: 100 steps of a kernel, and a world at rest."""
    mjm, names = mujoco.MjModel.from_xml_string(SWIMMER.format(integrator=integrator)), ("qpos", "qvel", "qfrc_fluid")
    sim = Simulation(mjm, 4, dtype=torch.float64, outputs=names[2:])
    states = oracle.scattered(mjm, 4, 0.5, (3.0, 1.0, 0.1, 0.0))
    theirs = oracle.compare_steps(sim, mjm, states, 1, 100, names)
    assert max(np.abs(d.qfrc_fluid).max() for d in theirs) > 1


ELLIPSOIDS = """<mujoco><asset><mesh name="m" vertex="0 0 0 .3 0 0 0 .2 0 0 0 .4"/></asset>
  <default><geom fluidshape="ellipsoid" contype="0" conaffinity="0"/></default><worldbody>
  <body><freejoint/><geom type="box" size=".1 .2 .3" euler="10 20 30" fluidcoef=".7 .1 2 .5 .3"/>
    <body pos=".4 0 0"><joint type="ball"/><geom type="cylinder" size=".1 .2" pos=".1 .2 0"/>
      <geom type="ellipsoid" size=".1 .3 .2" euler="40 0 10"/><geom size=".2" pos="1 0 0" fluidshape="none"/>
      <body pos="0 .3 0"><joint axis="1 2 0"/><geom type="capsule" size=".05 .2" fluidcoef="2 1 .5 0 1"/>
        <body pos="0 0 1"><geom size=".1"/></body></body>
      <body pos="1 .3 0"><joint axis="0 1 0"/><geom type="capsule" size=".1 .2" fluidshape="none"/></body></body></body>
  <body pos="2 0 0"><joint/><geom type="mesh" mesh="m"/></body>
  <body pos="3 0 0"><freejoint/><geom type="ellipsoid" size=".01 .02 .03"/></body></worldbody></mujoco>"""


@pytest.mark.parametrize("fluid", FLUIDS)
def test_ellipsoids_of_any_size_at_any_speed(fluid):
    """Of all shapes, several on a body, welded on, and beside bodies that are boxes to the fluid.

    The forces of each tree relative to their own size, as lift goes with the square of a speed.
    """
    mjm = mujoco.MjModel.from_xml_string(ELLIPSOIDS.replace("<asset>", f"<option {fluid}/><asset>"))
    m, rng, d = load(mjm), np.random.default_rng(0), mujoco.MjData(mjm)
    for speed in (0.0, 1e-6, 0.1, 1.0, 10.0, 10.0):
        mujoco.mj_integratePos(mjm, d.qpos, rng.normal(0, 0.5, mjm.nv), 1.0)
        d.qvel[:] = rng.normal(0, speed, mjm.nv)
        mujoco.mj_forward(mjm, d)
        ours = derive(m, d.qpos.tolist(), d.qvel.tolist(), None, [])
        for tree in range(mjm.ntree):
            here = np.flatnonzero(mjm.dof_treeid == tree)
            want, got = d.qfrc_fluid[here], np.array(ours.qfrc_fluid)[here]
            assert np.abs(got - want).max() <= 1e-12 * np.abs(want).max()
        assert np.any(d.qfrc_fluid) == (speed > 0 or "wind" in fluid)


@pytest.mark.parametrize("integrator", ["implicit", "implicitfast"])
@pytest.mark.parametrize("fluid", FLUIDS)
def test_implicit_steps_with_ellipsoids(fluid, integrator):
    """At any speed, also where MuJoCo's rates are less than the true ones; a free body alone, and within trees."""
    mjm = mujoco.MjModel.from_xml_string(
        ELLIPSOIDS.replace("<asset>", f"<option {fluid} integrator='{integrator}' timestep='.01'/><asset>")
    )
    m, rng, d, explicit = load(mjm), np.random.default_rng(0), mujoco.MjData(mjm), 0
    for speed in (0.0, 1e-5, 1e-3, 0.1, 1.0, 3.0):
        mujoco.mj_resetData(mjm, d)
        mujoco.mj_integratePos(mjm, d.qpos, rng.normal(0, 0.5, mjm.nv), 1.0)
        d.qvel[:] = rng.normal(0, speed, mjm.nv)
        before = State(d.qpos.tolist(), d.qvel.tolist(), [0.0] * mjm.nv)
        mujoco.mj_step(mjm, d)
        explicit += np.abs(d.qvel - before.qvel - 0.01 * d.qacc).max() > 1e-2 * np.abs(d.qvel).max()
        want = d.qvel
        np.testing.assert_allclose(step(m, before, []).qvel, want, rtol=0, atol=1e-11 * np.abs(want).max())
    assert explicit >= 3


def test_ellipsoids_in_the_fluid_of_some_worlds():
    """... under an implicit integrator."""
    xml = SITES.replace('<option density="900" viscosity="0.1"', "<option integrator='implicitfast'")
    xml = xml.replace('size=".1 .3"', 'size=".1 .3" fluidshape="ellipsoid"')
    mjm = mujoco.MjModel.from_xml_string(xml)
    world, state = vary(load(mjm), {"density": 700.0}), State(mjm.qpos0.tolist(), [1.0] * mjm.nv, [0.0] * mjm.nv)
    mjm.opt.density, d = 700.0, mujoco.MjData(mjm)
    d.qvel[:] = 1.0
    mujoco.mj_step(mjm, d)
    np.testing.assert_allclose(step(world, state, []).qvel, d.qvel, rtol=0, atol=1e-12)


def test_no_fluid_costs_nothing():
    m = load(oracle.model("ant"))
    d = derive(m, list(m.qpos0), [1.0] * m.nv, None, [0.0] * m.nu)
    assert d.qfrc_fluid == [0.0] * m.nv
    assert "wrench" not in vars(d) and "ovel" not in vars(d)  # nothing was computed for it


SITES = """<mujoco><option density="900" viscosity="0.1" timestep="0.005"/><worldbody><site name="fixed" pos="1 2 3"/>
  <body name="a" pos="0 0 1" euler="10 20 30"><freejoint/><geom type="capsule" size=".1 .3"/><site pos=".1 .2 .3"/>
    <body pos=".2 0 .3"><joint axis="0 1 0"/><geom size=".1" pos=".3 0 0"/><site name="tip" pos=".6 0 0"/></body>
  </body></worldbody></mujoco>"""


def test_compiled_sites_and_fluid():
    """Steps of a kernel in a liquid, and where its sites are."""
    mjm = mujoco.MjModel.from_xml_string(SITES)
    d, rng = mujoco.MjData(mjm), np.random.default_rng(0)
    sim = Simulation(mjm, 1, dtype=torch.float64, outputs=["site_xpos", "qfrc_fluid"])
    assert sim.model.site_names == ("fixed", "site 1", "tip")
    d.qvel[:] = rng.normal(0, 3, mjm.nv)
    sim.qvel[0] = torch.tensor(d.qvel)
    for _ in range(50):
        sim.step()
        mujoco.mj_step(mjm, d)
    for name in ("qpos", "qvel", "site_xpos", "qfrc_fluid"):
        assert error(getattr(sim, name)[0].cpu(), getattr(d, name)) < 1e-12, name

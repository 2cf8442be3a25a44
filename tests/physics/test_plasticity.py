"""Springs that yield (`springyield`) against MuJoCo C: joints and tendons, in steps, simulations and environments."""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np
import pytest
import torch

from torch_mjenvs import Outcome, Task, TorchVectorEnv, World
from torch_mjenvs.physics import load
from torch_mjenvs.physics.model.model import Model, UnsupportedModel
from torch_mjenvs.physics.model.state import State
from torch_mjenvs.physics.pipeline import derive
from torch_mjenvs.physics.simulation import Simulation
from torch_mjenvs.physics.step import step
from torch_mjenvs.scalar import Random

MODEL = """<mujoco><option timestep=".01" integrator="{integrator}"><flag {flag}/></option><worldbody>
  <site name="o" pos="0 0 1"/>
  <body><joint name="s" type="slide" axis="1 0 0" stiffness="{k}" springyield=".1" springref=".05"/>
    <geom size=".1" contype="0"/><site name="p" pos=".1 .2 .3"/>
    <body pos="1 0 0"><joint name="b" type="ball" stiffness="10" springyield="12"/>
      <geom size=".1" pos=".1 .2 .3" contype="0"/><site name="q" pos=".4 .2 .3"/></body></body>
  <body pos="0 2 0"><joint name="h" stiffness="10 -3 4" springyield="12"/>
    <geom size=".1" pos=".1 .2 .3" contype="0"/></body></worldbody>
  <tendon>
    <fixed name="t" stiffness="5" springyield=".1" springlength="-.1 .2"><joint joint="s" coef="1"/></fixed>
    <fixed stiffness="5" springyield=".1" springlength="0 .2"><joint joint="s" coef="1"/></fixed>
    <fixed stiffness="5" springyield=".1" springlength="0 0"><joint joint="s" coef="1"/></fixed>
    <fixed stiffness="5" springlength="0 .1"><joint joint="h" coef="1"/></fixed>
    <spatial stiffness="5 2" springyield=".1" springlength="0 .2"><site site="o"/><site site="q"/></spatial>
    <spatial stiffness="5" springyield=".1" springlength=".1 .2">
      <site site="o"/><site site="p"/><site site="q"/></spatial>
  </tendon>
  <actuator><motor joint="h"/></actuator><sensor><e_potential/><tendonpos tendon="t"/></sensor></mujoco>"""


def model(integrator: str = "Euler", flag: str = "", k: float = 10) -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(MODEL.format(integrator=integrator, flag=flag, k=k))


def strained(mjm: mujoco.MjModel, n: int, seed: int = 0) -> list[mujoco.MjData]:
    """n states with rests that have followed for some way."""
    rng, out = np.random.default_rng(seed), []
    for _ in range(n):
        d = mujoco.MjData(mjm)
        mujoco.mj_integratePos(mjm, d.qpos, rng.normal(0, 0.5, mjm.nv), 1.0)
        d.qvel[:], d.ctrl[:] = rng.normal(0, 2, mjm.nv), rng.normal(0, 1, mjm.nu)
        mujoco.mj_step(mjm, d, int(rng.integers(0, 20)))
        if rng.random() < 0.5:  # not to be reached by steps
            d.plastic[mjm.tendon_plasticadr[0] :] += rng.normal(0, 0.3)
        out.append(d)
    return out


@pytest.mark.parametrize(
    ("integrator", "flag", "k"),
    [("Euler", "", 10), ("Euler", "", 0), ("RK4", "", 10), ("implicitfast", "", 10), ("Euler", 'spring="disable"', 10)],
)
def test_rests_follow_as_in_mujoco(integrator, flag, k):
    mjm = model(integrator, flag, k)
    m, followed = load(mjm), 0
    for d in strained(mjm, 40):
        given = {"plastic": d.plastic.tolist()} if m.plastic0 else {}
        start = State(d.qpos.tolist(), d.qvel.tolist(), [0.0] * mjm.nv, kept=given)
        before = d.plastic.copy()
        at = derive(m, start.qpos, start.qvel, None, d.ctrl.tolist(), **given)
        forces, (energy, _) = at.qfrc_passive, at.sensordata
        mujoco.mj_forward(mjm, d)
        np.testing.assert_allclose(forces, d.qfrc_passive, rtol=0, atol=1e-12 * (1 + np.abs(d.qfrc_passive).max()))
        np.testing.assert_allclose(energy, d.sensordata[0], rtol=1e-12)
        moved = step(m, start, d.ctrl.tolist())
        mujoco.mj_step(mjm, d)
        np.testing.assert_allclose(moved.qpos, d.qpos, rtol=0, atol=1e-12)
        np.testing.assert_allclose(moved.kept.get("plastic", before), d.plastic, rtol=0, atol=1e-12)
        followed += np.sum(d.plastic != before)
    assert (followed > 100) == (not flag)


@pytest.mark.parametrize("integrator", ["Euler", "RK4"])
def test_a_simulation_keeps_where_springs_rest(integrator):
    mjm = model(integrator)
    theirs = strained(mjm, 4)
    sim = Simulation(mjm, 4, dtype=torch.float64, outputs=("qfrc_passive", "sensordata"))
    start = mujoco.MjData(mjm)
    np.testing.assert_array_equal(sim.plastic.cpu().numpy(), np.tile(start.plastic, (4, 1)))
    for name in ("qpos", "qvel", "ctrl", "plastic"):
        getattr(sim, name).copy_(torch.tensor(np.stack([getattr(d, name) for d in theirs])))
    sim.step(10)
    for k, d in enumerate(theirs):
        mujoco.mj_step(mjm, d, 10)
        for name in ("qpos", "qvel", "plastic", "qfrc_passive", "sensordata"):
            want = getattr(d, name)
            np.testing.assert_allclose(getattr(sim, name)[k].cpu(), want, rtol=0, atol=1e-11 * (1 + np.abs(want).max()))
    sim.reset(torch.tensor([True, False, False, False]))
    np.testing.assert_array_equal(sim.plastic[0].cpu(), start.plastic)
    assert not np.allclose(sim.plastic[1].cpu(), start.plastic)


@dataclass(frozen=True)
class Bent(Task):
    """A pendulum on a spring that yields, pushed by a motor. It ends, and begins anew, where it has come too far."""

    xml_file: str = ""
    frame_skip: int = 2

    def load(self) -> mujoco.MjModel:
        return mujoco.MjModel.from_xml_string("""<mujoco><worldbody>
            <body><joint name="j" stiffness="9" springyield="10"/><geom size=".1" pos=".1 .2 .3" contype="0"/></body>
            </worldbody><actuator><motor joint="j" ctrlrange="-9 9"/></actuator></mujoco>""")

    def reset(self, m: Model, rng: Random) -> tuple[list, list]:
        return [0.0], [0.0]

    def observe(self, m: Model, world: World) -> list:
        return [*world.qpos, *world.qvel, *world.data.qfrc_passive]

    def outcome(self, m: Model, before: World, action: list, after: World) -> Outcome:
        return Outcome(reward=1.0, terminated=after.qpos[0] > 0.6)


def test_an_environment_keeps_where_springs_rest():
    """Until an episode ends; the next one begins with the model's own."""
    env = TorchVectorEnv(Bent(), 2, dtype="float64")
    mjm = Bent().load()
    d, ended, bent = mujoco.MjData(mjm), 0, 0.0
    env.reset(seed=0)
    for _ in range(120):
        if ended:
            mujoco.mj_resetData(mjm, d)
        obs, _, terminated, _, _ = env.step(torch.full((2, 1), 4.0))
        if ended == 0:
            d.ctrl[:] = 4.0
            mujoco.mj_step(mjm, d, 2)
        bent = max(bent, abs(d.plastic[0]))
        ended = int(terminated[0])
        want = [*d.qpos, *d.qvel]
        np.testing.assert_allclose(obs[1, :2].cpu(), want, rtol=0, atol=1e-11)
    np.testing.assert_allclose(env.engine.kept(1, 0.0)["plastic"], d.plastic, rtol=0, atol=1e-11)
    assert bent > 0.1 and int(env.engine.view("episode")[0]) > 1


def test_what_is_not_there_is_refused():
    sim = Simulation(model(), 1)
    with pytest.raises(UnsupportedModel, match="springs that yield"):
        sim.linearize()
    with pytest.raises(ValueError, match="qpos_spring cannot vary"):
        Simulation(model(), 1, vary=("qpos_spring",))

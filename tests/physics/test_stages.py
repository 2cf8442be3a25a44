"""What stages declare to read and to compute is what they read and compute; fields that nobody declares are refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
import oracle
import pytest
import torch
from sensor_mjcf import MODEL, of_frames

from torch_mjenvs import Outcome, Task, TorchVectorEnv, World
from torch_mjenvs.physics import load
from torch_mjenvs.physics.model.data import FIELDS, STAGE_OF, Data
from torch_mjenvs.physics.model.model import Model
from torch_mjenvs.physics.pipeline import STAGES
from torch_mjenvs.scalar import Random, when_any

GIVEN = {
    "precision", "qpos", "qvel", "act", "ctrl", "qacc_warmstart", "time", "qfrc_applied", "xfrc_applied", "mocap_pos",
    "mocap_quat", "eq_active", "wind", "plastic", "history", "ahead",
}  # fmt: skip

# made before their turn, in models with bodies that stick
EARLY = {"contact_moment": {"constraints"}, "adhesion": {"constraints"}}

# What the others lack: mocap bodies, tendons that do all they can, springs of balls, contacts of two trees, a fluid,
# equalities.
MORE = """<mujoco><option density="1000" viscosity="1"/><worldbody><geom type="plane" size="1 1 1"/><site name="a"/>
    <body pos="0 0 1" gravcomp="1"><joint type="ball" stiffness="1" damping="1" springyield=".1"/>
      <joint type="slide" actuatorgravcomp="true"/>
      <geom name="g" size=".1" pos=".1 .2 .3" adhesion="1"/>
      <site name="b" pos=".3 0 0"/><body pos=".2 0 0"><joint range="-1 1" limited="true"/><geom size=".1"/></body>
    </body>
    <body name="rod" pos="0.1 0.2 1.4"><freejoint/><geom type="capsule" gap="9" size=".15 .2" fluidshape="ellipsoid"/>
      <site name="c"/></body>
    <body mocap="true"><geom size=".1"/></body></worldbody>
    <tendon><spatial stiffness="3" springyield="1" damping="1" armature="1" range="0 1" limited="true" name="t">
      <site site="a"/><site site="b"/><site site="c"/></spatial>
      <spatial frictionloss="1"><site site="a"/><geom geom="g"/><site site="c"/></spatial></tendon>
    <actuator><position name="p" tendon="t"/><motor site="c" nsample="3" delay=".01"/>
      <cylinder tendon="t" timeconst="1"/>
      <general site="c" refsite="a" gear="1 2 3 4 5 6"/><adhesion body="rod" ctrlrange="0 1"/></actuator>
    <equality><weld site1="a" site2="c"/><tendon tendon1="t"/></equality>
    <sensor><e_potential nsample="2" interval=".01"/><distance geom1="g" body2="rod" cutoff="9"/></sensor></mujoco>"""

NOSLIP = """<mujoco><option noslip_iterations="2"/><worldbody><geom type="plane" size="1 1 1"/><body pos="0 0 .1">
    <freejoint/><geom size=".11"/></body></worldbody></mujoco>"""

OWN = {"noslip": NOSLIP, "more": MORE, "sensors": MODEL.format(integrator="Euler", frames=of_frames() + "<clock/>")}


class Watched(Data):
    """Notes which fields are read and which are set."""

    def __init__(self, m: Model, **given: Any):
        self.__dict__["read"], self.__dict__["written"] = set(), set()
        super().__init__(m, **given)

    def __getattribute__(self, name: str) -> Any:
        if name in FIELDS:
            object.__getattribute__(self, "__dict__")["read"].add(name)
        return super().__getattribute__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        self.__dict__["written"].add(name)


def test_stages_read_and_compute_what_they_declare() -> None:
    """All that is computed is so for every model; what is read may depend on the model."""
    read: dict[str, set[str]] = {stage.__name__: set() for stage in STAGES}
    for name in ("half_cheetah", "hopper", "humanoid", "ant", "random-1", *OWN):
        mjm = mujoco.MjModel.from_xml_string(OWN[name]) if name in OWN else oracle.model(name)
        m = load(mjm)
        states = [(mjm.qpos0, *[[0.1] * mjm.nv, [0.0] * mjm.nu])] if name in OWN else oracle.states(name, 4)
        for qpos, qvel, ctrl in states:
            lists = (list(map(float, x)) for x in (qpos, qvel, ctrl, [0.0] * mjm.nv))
            d = Watched(m, **dict(zip(("qpos", "qvel", "ctrl", "qacc_warmstart"), lists, strict=True)))
            d.act, d.time, d.qfrc_applied, d.xfrc_applied = [0.0] * m.na, 0.5, [0.0] * m.nv, [[0.0] * 6] * m.nbody
            d.eq_active, d.wind = [1.0] * m.neq, [1.0] * 3
            d.mocap_pos, d.mocap_quat = [[0.0] * 3] * m.nmocap, [[1.0] * 4] * m.nmocap
            for stage in STAGES:
                for name_read in stage.reads:  # contact_moment has constraints made before their turn
                    getattr(d, name_read)
                d.read.clear(), d.written.clear()
                stage(m, d)
                if "sensordata" in stage.computes:
                    list(d.sensordata)  # whose sensors are computed when they are read
                assert d.written == set(stage.computes), stage.__name__
                read[stage.__name__] |= d.read - set(stage.computes)
    for stage in STAGES:
        assert read[stage.__name__] == set(stage.reads), stage.__name__


def test_every_field_is_given_or_computed_by_one_stage() -> None:
    computed = [name for stage in STAGES for name in stage.computes]
    assert len(set(computed)) == len(computed)
    assert GIVEN | set(computed) == set(FIELDS)
    before = set(GIVEN)
    for stage in STAGES:  # which stand in an order in which they can run
        assert set(stage.reads) <= before | EARLY.get(stage.__name__, set()), stage.__name__
        before |= set(stage.computes)


def test_fields_that_are_not_declared_are_refused() -> None:
    m = load(oracle.model("hopper"))
    d = Data(m, qpos=[0.0])
    with pytest.raises(AttributeError, match="made without qvel"):
        _ = d.qvel
    with pytest.raises(AttributeError, match="no field 'xpso'"):
        d.xpso = []
    with pytest.raises(AttributeError, match="no field 'qpso'"):
        Data(m, qpso=[])


def test_the_pipeline_has_every_stage_once() -> None:
    assert set(STAGE_OF.values()) == set(STAGES) and len(set(STAGES)) == len(STAGES)


BALL = """<mujoco><option integrator="{}"/><worldbody><geom type="plane" size="5 5 1"/><body pos="0 0 .2">
    <joint name="z" type="slide" axis="0 0 1"/><joint axis="0 1 0" range="-.2 .2" limited="true"/>
    <geom type="capsule" size=".1 .2" quat="1 0 .5 0"/><site name="s" size=".3" pos=".1 0 0"/></body></worldbody>
    <actuator><motor joint="z"/></actuator><sensor><touch site="s"/><accelerometer site="s"/></sensor></mujoco>"""
ASKED = ("xpos", "qacc", "sensordata", "qfrc_constraint", "cfrc_ext", "subtree_angmom")


@dataclass(frozen=True)
class Asking(Task):
    """Asks for fields first within a block, in some of the worlds, and again outside it."""

    xml_file: str = ""
    frame_skip: int = 1
    integrator: str = "Euler"

    def load(self) -> mujoco.MjModel:
        return oracle.sharpen(mujoco.MjModel.from_xml_string(BALL.format(self.integrator)))

    def reset(self, m: Model, rng: Random) -> tuple[list, list]:
        return list(m.qpos0), [0.0] * m.nv

    def observe(self, m: Model, world: World) -> list:
        def numbers(name: str) -> list:
            return [x for row in getattr(world.data, name) for x in (row if isinstance(row, list) else [row])]

        out: list = []
        for name in ASKED:
            within = when_any(world.qpos[1] > 0.0, lambda c, name=name: [numbers(name)[-1]], [0.0])
            out += [*within, *numbers(name)]
        return out

    def outcome(self, m: Model, before: World, action: list, after: World) -> Outcome:
        return Outcome(0.0, False)


@pytest.mark.parametrize("integrator", ["Euler", "RK4"])
def test_a_task_may_ask_for_a_field_first_within_a_block(integrator: str) -> None:
    """The field is MuJoCo's, in the block and outside it; some stages have loops and blocks of their own."""
    task = Asking(integrator=integrator)
    env, mjm, rng = TorchVectorEnv(task, 16, dtype=torch.float64), task.load(), np.random.default_rng(0)
    env.reset(seed=0)
    qpos, qvel = rng.uniform([-0.1, -0.3], [0.1, 0.3], (16, 2)), rng.normal(0, 0.5, (16, 2))
    env.set_state(*(torch.tensor(x, device=env.device) for x in (qpos, qvel)))
    ctrl = rng.uniform(-1, 1, (16, 1))
    obs = env.step(torch.tensor(ctrl, device=env.device))[0].cpu().numpy()
    touching = 0
    for k in range(16):
        d = mujoco.MjData(mjm)
        d.qpos[:], d.qvel[:], d.ctrl[:] = qpos[k], qvel[k], ctrl[k]
        mujoco.mj_step(mjm, d)
        mujoco.mj_rnePostConstraint(mjm, d)
        mujoco.mj_subtreeVel(mjm, d)
        fields = [np.ravel(getattr(d, name)) for name in ASKED]
        want = np.concatenate([[x[-1] * (d.qpos[1] > 0), *x] for x in fields])
        np.testing.assert_allclose(obs[k], want, rtol=0, atol=1e-9 * max(1, np.abs(want).max()))
        touching += d.ncon > 0
    assert 4 < touching < 16

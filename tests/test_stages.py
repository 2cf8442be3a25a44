"""What stages declare to read and to compute is what they read and compute; fields that nobody declares are refused."""

from __future__ import annotations

from typing import Any

import mujoco
import oracle
import pytest
from sensor_mjcf import MODEL, of_frames

from torch_mjenvs.physics import load
from torch_mjenvs.physics.data import FIELDS, Data
from torch_mjenvs.physics.model import Model
from torch_mjenvs.physics.pipeline import STAGES

GIVEN = {
    "precision", "qpos", "qvel", "act", "ctrl", "qacc_warmstart", "time", "qfrc_applied", "xfrc_applied", "mocap_pos",
    "mocap_quat", "eq_active",
}  # fmt: skip

# What the others lack: mocap bodies, tendons that do all they can, springs of balls, contacts of two trees, a fluid,
# equalities.
MORE = """<mujoco><option density="1000" viscosity="1"/><worldbody><geom type="plane" size="1 1 1"/><site name="a"/>
    <body pos="0 0 1" gravcomp="1"><joint type="ball" stiffness="1" damping="1"/>
      <joint type="slide" actuatorgravcomp="true"/>
      <geom name="g" size=".1" pos=".1 .2 .3"/>
      <site name="b" pos=".3 0 0"/><body pos=".2 0 0"><joint range="-1 1" limited="true"/><geom size=".1"/></body>
    </body>
    <body pos="0.1 0.2 1.4"><freejoint/><geom type="capsule" size=".15 .2" fluidshape="ellipsoid"/>
      <site name="c"/></body>
    <body mocap="true"><geom size=".1"/></body></worldbody>
    <tendon><spatial stiffness="3" damping="1" armature="1" range="0 1" limited="true" name="t">
      <site site="a"/><site site="b"/><site site="c"/></spatial>
      <spatial frictionloss="1"><site site="a"/><geom geom="g"/><site site="c"/></spatial></tendon>
    <actuator><position name="p" tendon="t"/><motor site="c"/><cylinder tendon="t" timeconst="1"/>
      <general site="c" refsite="a" gear="1 2 3 4 5 6"/></actuator>
    <equality><weld site1="a" site2="c"/><tendon tendon1="t"/></equality></mujoco>"""

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
            d.eq_active = [1.0] * m.neq
            d.mocap_pos, d.mocap_quat = [[0.0] * 3] * m.nmocap, [[1.0] * 4] * m.nmocap
            for stage in STAGES:
                d.read.clear(), d.written.clear()
                stage(m, d)
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
        assert set(stage.reads) <= before, stage.__name__
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

"""Elements of a model by name, as MjModel's own accessors give them."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace

import mujoco
import numpy as np
import pytest
import torch

from torch_mjenvs import Outcome, Task, TorchVectorEnv
from torch_mjenvs.physics import Data
from torch_mjenvs.physics.loading.load import load
from torch_mjenvs.physics.model.model import Model

pytestmark = pytest.mark.usefixtures("no_default_device")

MODEL = """
<mujoco>
  <worldbody>
    <body name="torso" pos="0 0 1">
      <freejoint name="root"/>
      <geom name="trunk" type="box" size=".2 .1 .05"/>
      <site name="imu"/>
      <body name="leg" pos=".2 0 0">
        <joint name="hip" type="ball" damping="2"/>
        <geom size=".03" pos="0 0 -.2"/>
        <body pos="0 0 -.2">
          <joint name="knee" axis="0 1 0" range="-2 -.5" limited="true" armature=".01" springref="-1" stiffness="3"/>
          <geom name="foot" size=".02" pos="0 0 -.2" friction=".7"/>
        </body>
      </body>
    </body>
  </worldbody>
  <tendon><fixed name="cable"><joint joint="knee" coef="2"/></fixed></tendon>
  <actuator>
    <position name="servo" joint="knee" kp="5" ctrlrange="-2 0"/>
    <general name="lazy" tendon="cable" dyntype="filter" dynprm=".1"/>
  </actuator>
  <sensor><gyro name="gyro" site="imu"/></sensor>
  <keyframe>
    <key name="home" qpos="0 0 .4 1 0 0 0 1 0 0 0 -1" ctrl="-1 0" act=".25"/>
    <key qpos="0 0 .2 1 0 0 0 1 0 0 0 -2" qvel="1 2 3 4 5 6 7 8 9 10"/>
  </keyframe>
</mujoco>
"""
KINDS = {"body": 4, "joint": 3, "geom": 3, "site": 1, "actuator": 2}


@pytest.fixture(scope="module")
def models() -> tuple[Model, mujoco.MjModel]:
    return load(MODEL), mujoco.MjModel.from_xml_string(MODEL)


@pytest.mark.parametrize("kind", KINDS)
def test_elements_are_as_mjmodels_accessors_give_them(models, kind):
    m, mjm = models
    compared = 0
    for i in range(KINDS[kind]):
        theirs = getattr(mjm, kind)(i)
        ours = getattr(m, kind)(theirs.name or i)
        assert ours.id == i and (ours.name == theirs.name or not theirs.name)
        for name in dir(theirs):
            x = getattr(theirs, name)
            if isinstance(x, np.ndarray) and name in ours._fields() and (kind, name) != ("joint", "bodyid"):
                np.testing.assert_allclose(np.ravel(getattr(ours, name)), np.ravel(x), atol=1e-12, err_msg=name)
                assert isinstance(getattr(ours, name), tuple)
                compared += 1
    assert compared > 3 * KINDS[kind]
    with pytest.raises(IndexError, match=f"no {kind} number {KINDS[kind]}; it has {KINDS[kind]}"):
        getattr(m, kind)(KINDS[kind])


def test_a_tendon_has_its_fields(models):
    """Whose names MuJoCo's own accessor spells otherwise."""
    m, mjm = models
    assert m.tendon("cable").num == (mjm.tendon_num[0],) and m.tendon("cable").range == (0.0, 0.0)


def test_an_element_stands_for_its_number_and_a_joint_has_slices(models):
    m, mjm = models
    bodies = ["world", "torso", "leg", "shank"]
    assert bodies[m.body("leg")] == "leg" and m.body("leg").mass[0] == m.body_mass[m.body("leg").id]
    assert repr(m.joint("knee")) == "<joint 2 'knee'>"
    numbers = list(range(m.nq)), list(range(m.nv))
    for name, nq, nv in (("root", 7, 6), ("hip", 4, 3), ("knee", 1, 1)):
        ours, theirs = m.joint(name), mjm.joint(name)
        qpos, qvel = numbers[0][ours.qpos], numbers[1][ours.qvel]
        assert (len(qpos), len(qvel)) == (nq, nv)
        assert (qpos[0], qvel[0]) == (theirs.qposadr[0], theirs.dofadr[0]) == (ours.qposadr[0], ours.dofadr[0])


def test_keyframes_by_name(models):
    m, mjm = models
    for which in ("home", 1):
        ours, theirs = m.key(which), mjm.key(which)
        for name in ("qpos", "qvel", "act", "ctrl"):
            assert getattr(ours, name) == getattr(theirs, name).tolist()
    m.key("home").qpos[0] = 5.0  # the caller's own list
    assert m.key("home").qpos[0] == 0.0


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda m: m.body("torse"), r"the model has no body 'torse'; did you mean 'torso'\?"),
        (lambda m: m.geom("left hand"), r"no geom 'left hand'; it has 'trunk', 'geom 1', 'foot'"),
        (lambda m: m.key("hme"), r"no keyframe 'hme'; did you mean 'home'\?"),
        (lambda m: m.sensor("giro"), r"no sensor 'giro'; did you mean 'gyro'\?"),
    ],
)
def test_unknown_names_are_refused_with_those_that_are_near(models, ask, said):
    with pytest.raises(KeyError, match=said):
        ask(models[0])


def test_unknown_attributes_are_refused_with_those_that_are_near(models):
    with pytest.raises(AttributeError, match=r"joint 'knee' has no 'qposaddr'; it has qposadr"):
        _ = models[0].joint("knee").qposaddr
    with pytest.raises(AttributeError, match=r"body 'leg' has no 'names'"):
        _ = models[0].body("leg").names


def test_a_model_of_parameters_that_vary_gives_them(models):
    mass = torch.tensor([1.0, 2.0])
    m = replace(models[0], body_mass=(0.0, 1.0, mass, 3.0))
    assert m.body("leg").mass[0] is mass


def test_a_model_is_pickled_with_its_names(models):
    assert pickle.loads(pickle.dumps(models[0])).key("home") == models[0].key("home")


def test_models_that_differ_in_keyframes_alone_are_not_the_same():
    assert load(MODEL) != load(MODEL.replace('ctrl="-1 0"', 'ctrl="-1 1"'))


@dataclass(frozen=True)
class Stand(Task):
    xml_file: str = ""
    frame_skip: int = 1

    def load(self):
        return mujoco.MjModel.from_xml_string(MODEL)

    def reset(self, m, rng):
        home = m.key("home")
        home.qpos[m.joint("knee").qposadr[0]] += rng.uniform(-0.1, 0.1)
        return home.qpos, home.qvel

    def observe(self, m, world):
        return [*world.qpos[m.joint("knee").qpos], *world.data.xpos[m.body("leg")], m.body("leg").mass[0]]

    def outcome(self, m, before, action, after):
        return Outcome(-abs(after.qpos[m.joint("knee").qposadr[0]] - m.key("home").ctrl[0]), False)


def test_a_task_looks_elements_up_by_name():
    env = TorchVectorEnv(Stand(), 4, dtype="float64", randomize={"body_mass": (0.5, 2.0)})
    obs, _ = env.reset(seed=0)
    assert ((obs[:, 0] + 1).abs() < 0.1).all() and obs[:, 0].unique().numel() == 4
    assert torch.equal(obs[:, 4], env.params["body_mass"][:, 2])
    assert (obs[:, 3] == 0.4).all()


def test_attributes_that_are_not_there_say_what_is():
    m = load(mujoco.MjModel.from_xml_string(MODEL))
    with pytest.raises(AttributeError, match="'opt'; options are the model's own"):
        m.opt  # noqa: B018
    with pytest.raises(AttributeError, match="'body_mas'; did you mean body_mass"):
        m.body_mas  # noqa: B018
    assert pickle.loads(pickle.dumps(m)) == m and not hasattr(m, "_nothing")
    d = Data(m, qpos=list(m.qpos0), qvel=[0.0] * m.nv, qacc_warmstart=[0.0] * m.nv, ctrl=[0.0] * m.nu, act=[0.0])
    with pytest.raises(TypeError, match=r"sensordata\[m.sensor\('gyro'\)\]"):
        d.sensordata["gyro"]

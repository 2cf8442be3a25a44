"""What a Model is, which pairs it has, and that what is not implemented is refused by name."""

from __future__ import annotations

import dataclasses

import mujoco
import numpy as np
import oracle
import pytest
import torch
from scipy.spatial.transform import Rotation

from torch_mjenvs import Simulation
from torch_mjenvs.physics import State, load, step
from torch_mjenvs.physics.collision.contact_param import contact_param
from torch_mjenvs.physics.model.model import Model, UnsupportedModel


def mjcf(
    option: str = "", flag: str = "", joint: str = "", geom: str = "", body: str = "", motor: str = "", more: str = ""
) -> str:
    """A floor, a hinged body with a capsule, and a motor, with attributes and elements added where asked."""
    return f"""<mujoco><compiler autolimits="true"/><option {option}><flag {flag}/></option>
    <worldbody><geom name="floor" type="plane" size="1 1 1"/>
      <body name="arm" pos="0 0 1" {body}><joint name="elbow" axis="0 1 0" {joint}/>
        <geom name="rod" type="capsule" size=".1 .2" {geom}/><site name="s"/></body>
    </worldbody>
    <actuator><motor name="m" joint="elbow" {motor}/></actuator>{more}</mujoco>"""


SKIN = """
<extension><plugin plugin="mujoco.sensor.touch_grid"/></extension>
<sensor><jointpos name="angle" joint="elbow"/>
  <plugin name="skin" plugin="mujoco.sensor.touch_grid" objtype="site" objname="s">
    <config key="size" value="4 4"/><config key="fov" value="20 20"/><config key="gamma" value="0"/>
    <config key="nchannel" value="3"/>
  </plugin></sensor>"""
PID = """
<extension><plugin plugin="mujoco.pid">
  <instance name="servo"><config key="kp" value="40"/></instance></plugin></extension>
<actuator><plugin joint="elbow" plugin="mujoco.pid" instance="servo" actdim="0"/></actuator>"""

REFUSED = {
    "plugin": (mjcf(more=PID), "plugin 'servo'"),
    "plugin beside one of a sensor": (mjcf(more=SKIN + PID), "plugin 'servo'"),
    "integrator": (mjcf(option='integrator="discrete"'), "discrete"),
    "override": (mjcf(flag='override="enable"'), "override='enable'"),
    "sleep": (mjcf(flag='sleep="enable"'), "sleep='enable'"),
    "diagexact": (mjcf(flag='diagexact="enable"'), "diagexact='enable'"),
    "speculative": (mjcf(flag='speculative="enable"'), "speculative='enable'"),
    "refsafe": (mjcf(flag='refsafe="disable"'), "refsafe='disable'"),
    "mixed solref": (mjcf(geom='priority="1" solref=".02 -1"'), "solref"),
    "mixed solreflimit": (mjcf(joint='range="0 1" solreflimit="-3 1"'), "solreflimit of joint 'elbow'"),
    "mixed solreffriction of a tendon": (
        mjcf(
            more="""<tendon><fixed name="t" frictionloss="1" solreffriction="-3 1"><joint joint="elbow" coef="1"/>
            </fixed></tendon>"""
        ),
        "solreffriction of tendon 't'",
    ),
    "mixed solreffriction": (
        mjcf(joint='frictionloss="1" solreffriction="-3 1"'),
        "solreffriction of joint 'elbow'",
    ),
    "friction that drives": (
        mjcf(joint='frictionloss="-1"'),
        "frictionloss -1 of joint 'elbow' is not supported: use 0 or more",
    ),
    "sleep policy": (mjcf(body='sleep="init"', flag='sleep="enable"'), "sleep='enable'"),
    "flex": (
        """<mujoco><worldbody><body name="arm"><joint/><geom size="1" contype="0"/></body><flexcomp name="soft"
        type="grid" count="3 3 1" spacing=".1 .1 .1" dim="2" mass="1"/></worldbody></mujoco>""",
        "flex 'soft' is not supported: remove it; a chain or grid of bodies",
    ),
    "pair": (
        mjcf(
            option='cone="elliptic"',
            more='<contact><pair geom1="floor" geom2="rod" solreffriction="-1 2"/></contact>',
        ),
        "the contact of geom 'floor' and geom 'rod' with a solreffriction",
    ),
    "mixed solref of an equality": (
        mjcf(more='<equality><joint name="e" joint1="elbow" solref=".1 -3"/></equality>'),
        "solref of equality 'e'",
    ),
    "gain": (
        mjcf(more='<actuator><pid name="p" joint="elbow" kp="1" ki="1"/></actuator>'),
        "actuator 'p'",
    ),
    "dynamics of a user": (
        mjcf(more='<actuator><general name="p" joint="elbow" dyntype="user" actdim="2"/></actuator>'),
        "activation dynamics of actuator 'p'",
    ),
    "gain of a user": (
        mjcf(more='<actuator><general name="p" joint="elbow" gaintype="user"/></actuator>'),
        "gain type of actuator 'p' is not supported: use gaintype 'fixed', 'affine' or 'muscle'",
    ),
    "bias of a user": (
        mjcf(more='<actuator><general name="p" joint="elbow" biastype="user"/></actuator>'),
        "bias type of actuator 'p' is not supported: use biastype 'none', 'affine' or 'muscle'",
    ),
    "two outputs": (
        mjcf(
            more="""<worldbody><body><joint name="b" type="ball"/><geom size="1" contype="0"/></body></worldbody>
        <actuator><orientation name="p" joint="b"/></actuator>"""
        ),
        "actuator 'p'",
    ),
}


REFUSED["two hinges about one axis"] = (
    mjcf(more='<worldbody><body><joint name="a"/><joint name="b"/><geom size=".1" pos="1 0 0"/></body></worldbody>'),
    "motions of joint 'a' and joint 'b' cancel",
)
REFUSED["four slides"] = (
    mjcf(
        more=f"""<worldbody><body>{"".join(f'<joint type="slide" axis="{a}"/>' for a in ("1 0 0", "0 1 0", "0 0 1"))}
        <joint name="d" type="slide" axis="1 2 3"/><geom size=".1"/></body></worldbody>"""
    ),
    "joint 'd' cancel",
)


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_supported_is_refused_by_name(case: str) -> None:
    xml, named = REFUSED[case]
    mjm = mujoco.MjModel.from_xml_string(xml)
    with pytest.raises(UnsupportedModel, match="is not supported") as error:
        load(mjm)
    assert named in str(error.value)


ALLOWED = {
    "solver": mjcf(option='solver="PGS"'),
    "elliptic without contacts": mjcf(option='cone="elliptic"', geom='contype="0" conaffinity="0"'),
    "box that touches nothing": mjcf(
        more='<worldbody><geom type="box" size="1 1 1" contype="0" conaffinity="0"/></worldbody>'
    ),
    "equality switched off": mjcf(flag='equality="disable"', more='<equality><weld body1="arm"/></equality>'),
    "inactive equality": mjcf(more='<equality><weld body1="arm" active="false"/></equality>'),
    "tendon that measures": mjcf(more='<tendon><fixed><joint joint="elbow" coef="1"/></fixed></tendon>'),
    "sensors, which measure": mjcf(more='<sensor><jointpos joint="elbow"/><touch site="s"/></sensor>'),
    "fluid": mjcf(option='density="1" viscosity="2" wind="1 0 0"'),
    "fluidshape": mjcf(option='density="1"', geom='fluidshape="ellipsoid"'),
    "implicit fluidshape": mjcf(option='integrator="implicit" viscosity="1"', geom='fluidshape="ellipsoid"'),
    "keyframe": mjcf(more='<keyframe><key qpos="1"/></keyframe>'),
    "sensor that is late": mjcf(more='<sensor><jointpos joint="elbow" delay=".01" nsample="10"/></sensor>'),
    "control that is late": mjcf(motor='delay="0.01" nsample="10"'),
    "history of a control": mjcf(motor='nsample="10"'),
    "actuation": mjcf(flag='actuation="disable"'),
    "disabled group": mjcf(option='actuatorgroupdisable="1"'),
    "energy": mjcf(flag='energy="enable"'),
    "plugin of a sensor": mjcf(more=SKIN),
}  # fmt: skip


@pytest.mark.parametrize("case", ALLOWED)
def test_what_is_supported_is_taken(case: str) -> None:
    assert load(ALLOWED[case]).nv == 1


def test_a_plugin_of_a_sensor_moves_nothing_and_is_refused_if_the_sensor_is_read() -> None:
    xml = mjcf(more=SKIN)
    sim = Simulation(xml, 2, dtype=torch.float64, outputs="sensor:angle")
    sim.qpos.fill_(0.3)
    sim.step(10)
    mjm = mujoco.MjModel.from_xml_string(xml)
    d = mujoco.MjData(mjm)
    d.qpos[:] = 0.3
    mujoco.mj_step(mjm, d, 10)
    np.testing.assert_allclose(sim.sensor("angle")[1].cpu(), d.sensor("angle").data, rtol=1e-12)
    with pytest.raises(UnsupportedModel, match=r"sensor 'skin' \(plugin\) is not supported: take it out"):
        Simulation(xml, 2, outputs="sensordata")


@pytest.mark.parametrize(
    ("field", "i", "value", "named"),
    [
        ("body_quat", 1, [0, 0, 0, 0], "body_quat [0.0, 0.0, 0.0, 0.0] of body 'arm'"),
        ("body_iquat", 1, [1, 1, 0, 0], "body_iquat"),
        ("geom_quat", 1, [0, 0, 0, 0], "geom 'rod'"),
        ("jnt_axis", 0, [0, 0, 0], "joint 'elbow'"),
        ("body_mass", 1, 0, "body 'arm', which moves without mass"),
        ("body_inertia", 1, 0, "body 'arm', which moves without mass or inertia"),
    ],
)
def test_what_the_compiler_would_have_put_right_is_refused(field: str, i: int, value: object, named: str) -> None:
    """In an MjModel that was changed after it was compiled."""
    mjm = mujoco.MjModel.from_xml_string(mjcf())
    getattr(mjm, field)[i] = value
    with pytest.raises(UnsupportedModel) as error:
        load(mjm)
    assert named in str(error.value)


HELD_IN = {
    "actuator_ctrlrange": "actuator 'm'",
    "actuator_actrange": "actuator 'm'",
    "actuator_forcerange": "actuator 'm'",
    "jnt_actfrcrange": "joint 'elbow'",
    "tendon_actfrcrange": "tendon 't'",
}


@pytest.mark.parametrize("name", HELD_IN)
def test_a_range_in_use_that_ends_before_it_begins_is_refused_and_one_number_is_taken(name: str) -> None:
    """In an MjModel that was changed after it was compiled. MuJoCo would hold most numbers to the end, not to both."""
    rope = '<tendon><fixed name="t"><joint joint="elbow" coef="2"/></fixed></tendon>'
    mjm = mujoco.MjModel.from_xml_string(mjcf(more=f'{rope}<actuator><motor tendon="t"/></actuator>'))
    getattr(mjm, name)[0] = 1, -1
    load(mjm)  # not in use
    getattr(mjm, name.replace("range", "limited"))[0] = True
    with pytest.raises(UnsupportedModel, match=f"{name} 1 -1 of {HELD_IN[name]} is not supported: give the lower end"):
        load(mjm)
    getattr(mjm, name)[0] = 0.3, 0.3
    d = mujoco.MjData(mjm)
    d.ctrl[:] = -2
    mujoco.mj_step(mjm, d)
    ours = step(load(mjm), State([0.0], [0.0], [0.0]), [-2.0, -2.0])
    np.testing.assert_allclose(ours.qvel, d.qvel, rtol=1e-12)


def test_which_pivots_may_vanish() -> None:
    """Of three hinges through one point, without armature; not of slides and a hinge across them."""
    three = "".join(f'<joint axis="{a}" {{}}/>' for a in ("1 0 0", "0 1 0", "0 0 1"))
    planar = '<joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 1"/><joint axis="0 1 0"/>'
    for joints, clamped in (
        (three.format("", "", ""), (True, True, True)),
        (three.format("", "", 'armature=".1"'), (False, False, False)),
        (planar, (False, False, False)),
    ):
        body = f'<body>{joints}<geom size=".1" pos=".3 0 0"/></body>'
        assert load(f"<mujoco><worldbody>{body}</worldbody></mujoco>").dof_clamped == clamped
    assert not any(any(load(oracle.model(name)).dof_clamped) for name in oracle.MODELS)


def test_time_step() -> None:
    mjm = mujoco.MjModel.from_xml_string(mjcf())
    mjm.opt.timestep = 0.0
    with pytest.raises(UnsupportedModel, match="timestep"):
        load(mjm)


@pytest.mark.parametrize(
    ("flag", "field", "value"),
    [
        ("limit", "jnt_limited", (False,)),
        ("constraint", "jnt_limited", (False,)),
        ("contact", "pairs", ()),
        ("constraint", "pairs", ()),
        ("spring", "jnt_stiffness", (0.0,)),
        ("damper", "dof_damping", (0.0,)),
        ('spring="disable" damper', "density", 0.0),
        ('spring="disable" damper', "viscosity", 0.0),
        ("gravity", "gravity", (0.0, 0.0, 0.0)),
        ("clampctrl", "actuator_ctrllimited", (False,)),
    ],
)
def test_flags_switch_off_what_they_name(flag: str, field: str, value: tuple) -> None:
    plain = dict(joint='range="-1 1" stiffness="1" damping="1"', motor='ctrlrange="-1 1"')
    plain["option"] = 'density="1" viscosity="2"'
    assert getattr(load(mjcf(**plain)), field) != value
    assert getattr(load(mjcf(**plain, flag=f'{flag}="disable"')), field) == value


def test_load_takes_strings_files_and_models() -> None:
    xml = mjcf()
    path = oracle.ASSETS / "hopper.xml"
    assert load(xml) == load(mujoco.MjModel.from_xml_string(xml))
    assert load(str(path)) == load(path)
    with pytest.raises(FileNotFoundError, match="no_such"):
        load("no_such.xml")
    with pytest.raises(TypeError, match="int"):
        load(3)
    with pytest.raises(ValueError, match="XML"):
        load("<mujoco><nonsense/></mujoco>")


def test_content_is_identity() -> None:
    a, b, c = load(mjcf()), load(mjcf()), load(mjcf(option='timestep="0.003"'))
    assert a is not b and a == b and hash(a) == hash(b) and a.digest == b.digest
    assert a != c and a.digest != c.digest
    with pytest.raises(dataclasses.FrozenInstanceError):
        a.nq = 3


def test_models_whose_fields_vary_are_never_taken_for_one_another() -> None:
    """repr does not tell one tensor or traced value from another: such a model is itself alone, and has no digest."""
    m = load(mjcf())
    mass = torch.ones(3)
    one, two = (dataclasses.replace(m, body_mass=(0.0, mass)) for _ in range(2))
    assert one == one and one != two and one != m and m != one
    assert len({m, one, two}) == 3
    with pytest.raises(TypeError, match="plain numbers"):
        _ = one.digest
    assert m.digest == load(mjcf()).digest


def test_rotation_matrices_follow_quaternions() -> None:
    """However a model is changed."""
    m = load(oracle.model("ant"))
    quats = np.random.default_rng(0).normal(size=(m.nbody, 4))
    one = dataclasses.replace(m, body_quat=tuple(map(tuple, quats.tolist())))
    want = Rotation.from_quat(quats, scalar_first=True).as_matrix().reshape(-1, 9)
    assert np.allclose(one.body_mat, want, rtol=0, atol=1e-14)
    assert one.body_imat == m.body_imat and one.geom_mat == m.geom_mat
    with pytest.raises((TypeError, ValueError)):
        dataclasses.replace(m, body_mat=m.body_mat)


def test_fields_are_plain_numbers() -> None:
    def plain(x: object) -> bool:
        return all(map(plain, x)) if isinstance(x, tuple) else type(x) in (int, float, bool, str)

    m = load(oracle.model("ant"))
    for f in dataclasses.fields(Model):
        if f.name not in ("pairs", "nominal"):
            assert plain(getattr(m, f.name)), f.name
    for pair in m.pairs:
        assert plain(dataclasses.astuple(pair))


def test_planar_models_fold() -> None:
    """Rounding noise in a rotation about y would keep the sideways parts of a planar model alive."""
    m = load(oracle.model("half_cheetah"))
    for mat in (*m.geom_mat[1:], *m.body_mat):
        assert (mat[1], mat[3], mat[4], mat[5], mat[7]) == (0.0, 0.0, 1.0, 0.0, 0.0)


def names(m: Model) -> set[tuple[str, str]]:
    return {(m.geom_names[p.geom1], m.geom_names[p.geom2]) for p in m.pairs}


TREE = """<mujoco><option><flag {flag}/></option><worldbody>
    <geom name="floor" type="plane" size="1 1 1"/><geom name="post" type="capsule" size=".1 1"/>
    <body name="a"><joint/><geom name="a1" type="capsule" size=".1 1"/><geom name="a2" size=".1"/>
      <body name="w"><geom name="w1" size=".1"/>
        <body name="b"><joint/><geom name="b1" size=".1"/></body></body></body>
    <body name="c"><joint/><geom name="c1" size=".1" contype="{contype}" conaffinity="0"/></body>
    </worldbody><contact>{contact}</contact></mujoco>"""


def test_pairs_are_those_that_mujoco_tests() -> None:
    """Welded bodies, parent and child, bit masks; geoms in the order of their types."""
    m = load(TREE.format(flag="", contype=2, contact=""))
    world = {("floor", g) for g in ("a1", "a2", "w1", "b1")}
    post = {("post", "a1"), ("a2", "post"), ("w1", "post"), ("b1", "post")}
    assert names(m) == world | post


def test_pairs_without_parent_filter() -> None:
    parent = names(load(TREE.format(flag='filterparent="disable"', contype=2, contact="")))
    assert parent - names(load(TREE.format(flag="", contype=2, contact=""))) == {
        ("b1", "a1"), ("a2", "b1"), ("w1", "b1"),
    }  # fmt: skip


def test_excluded_pairs() -> None:
    everything = names(load(TREE.format(flag="", contype=1, contact="")))
    some = names(load(TREE.format(flag="", contype=1, contact='<exclude body1="c" body2="a"/>')))
    assert everything - some == {("c1", "a1"), ("a2", "c1")}


def tensor(x: object) -> object:
    """A field as parameters of one world."""
    return tuple(map(tensor, x)) if isinstance(x, tuple) else torch.tensor([x], dtype=torch.float64)


MIX = """<mujoco><worldbody>
    <geom name="floor" type="plane" size="1 1 1" {floor}/>
    <body pos="0 0 .05"><freejoint/><geom name="ball" size=".1" {ball}/></body></worldbody></mujoco>"""


@pytest.mark.parametrize(
    ("floor", "ball"),
    [
        ('friction="1 .1 .2" condim="1"', 'friction=".5 .2 .1" condim="3" margin=".01"'),
        ('solref=".03 1" solmix="2" margin=".02"', 'solref=".02 .5" solimp=".8 .9 .01" gap=".01"'),
        ('solref="-100 -10"', 'solref=".02 .5"'),
        ('solref="-100 -10" priority="1" friction=".1"', 'solref=".02 .5" condim="1" friction="2"'),
        ('solmix="0"', 'solmix="0" solref=".1 1"'),
        ('solmix="0"', 'solimp=".8 .9 .01" solref=".1 1"'),
        ('friction="0 0 0"', 'friction="0 0 0" priority="2"'),
    ],
)
def test_parameters_of_contacts_are_mixed_as_in_mujoco(floor: str, ball: str) -> None:
    mjm = mujoco.MjModel.from_xml_string(MIX.format(floor=floor, ball=ball))
    d = mujoco.MjData(mjm)
    mujoco.mj_forward(mjm, d)
    m, (contact,) = load(mjm), d.contact
    (pair,) = m.pairs
    mixed = contact_param(m, pair)
    assert (pair.condim, mixed.margin) == (contact.dim, contact.includemargin)
    assert mixed.direct == (contact.solref[0] <= 0)
    fields = "geom_friction", "geom_solref", "geom_solimp", "geom_margin", "geom_gap"
    tensors = {name: tensor(getattr(m, name)) for name in fields}
    as_tensors = contact_param(dataclasses.replace(m, **tensors), pair)
    for name in ("friction", "solref", "solimp"):
        assert getattr(mixed, name) == list(getattr(contact, name)), name
        assert [float(x) for x in getattr(as_tensors, name)] == getattr(mixed, name), name

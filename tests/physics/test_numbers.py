"""Numbers that cannot be computed with, in MJCF, in an `MjModel` that was edited and in files, are refused by name."""

from __future__ import annotations

from pathlib import Path

import mujoco
import numpy as np
import pytest
import torch

from torch_mjenvs import Simulation, UnsupportedModel
from torch_mjenvs.physics import load
from torch_mjenvs.physics.loading import numbers

EVERYTHING = """<mujoco><option {option}/>
<asset><mesh name="cube" vertex="0 0 0 .1 0 0 0 .1 0 0 0 .1"/>
  <hfield name="hills" nrow="3" ncol="3" size="1 1 1 1"/></asset>
<worldbody>
  <geom name="floor" type="plane" size="5 5 1"/><geom name="ground" type="hfield" hfield="hills" pos="9 0 0"/>
  <body name="trunk" pos="{pos} 0 1"><freejoint name="root"/><geom name="chest" size=".1"/>
    <camera name="eye" sensorsize=".1 .1" resolution="3 3" focal=".1 .1"/>
    <body name="leg" pos="0 0 -.4" {body}><joint name="knee" axis="0 1 0" {joint}/>
      <geom name="foot" type="capsule" size=".1 .2" {geom}/><site name="toe" {site}/></body></body>
  <body name="brick" pos="2 0 1"><joint name="slider" type="slide"/><geom name="tile" type="mesh" mesh="cube"/></body>
</worldbody>
<contact><pair name="step" geom1="floor" geom2="foot"/></contact>
<equality><joint name="geared" joint1="knee" joint2="slider" {equality}/></equality>
<tendon><fixed name="string" {tendon}><joint joint="knee" coef="{coef}"/>
  <joint joint="slider" coef="1"/></fixed></tendon>
<actuator><motor name="drive" joint="knee" {actuator}/></actuator>
<sensor><jointpos name="angle" joint="knee"/></sensor></mujoco>"""
PLACES = (
    "option", "body", "joint", "geom", "site", "equality", "tendon", "actuator", "pos", "coef",
)  # fmt: skip


def mjcf(**given: str) -> str:
    return EVERYTHING.format(**(dict.fromkeys(PLACES, "") | {"pos": "0", "coef": "1"} | given))


# where, what is written there, the field that is named and its element
WRITTEN = [
    ("option", 'gravity="0 0 {}"', "option gravity {}"),
    ("option", 'timestep="{}"', "option timestep {}"),
    ("option", 'wind="{} 0 0"', "option wind {}"),
    ("option", 'density="{}"', "option density {}"),
    ("option", 'viscosity="{}"', "option viscosity {}"),
    ("option", 'magnetic="{} 0 0"', "option magnetic {}"),
    ("option", 'impratio="{}"', "option impratio {}"),
    ("pos", "{}", "body_pos {} of body 'trunk'"),
    ("body", 'gravcomp="{}"', "body_gravcomp {} of body 'leg'"),
    ("joint", 'pos="{} 0 0"', "jnt_pos {} of joint 'knee'"),
    ("joint", 'stiffness="{}"', "jnt_stiffness {} of joint 'knee'"),
    ("joint", 'damping="{}"', "dof_damping {} of joint 'knee'"),
    ("joint", 'armature="{}"', "dof_armature {} of joint 'knee'"),
    ("joint", 'frictionloss="{}"', "dof_frictionloss {} of joint 'knee'"),
    ("joint", 'margin="{}"', "jnt_margin {} of joint 'knee'"),
    ("joint", 'solreflimit="{} 1"', "jnt_solref {} of joint 'knee'"),
    ("geom", 'pos="{} 0 0"', "geom_pos {} of geom 'foot'"),
    ("geom", 'friction="{} 1 1"', "geom_friction {} of geom 'foot'"),
    ("geom", 'solref="{} 1"', "geom_solref {} of geom 'foot'"),
    ("geom", 'solimp="{} 1 1"', "geom_solimp {} of geom 'foot'"),
    ("geom", 'margin="{}"', "geom_margin {} of geom 'foot'"),
    ("geom", 'gap="{}"', "geom_gap {} of geom 'foot'"),
    ("site", 'pos="{} 0 0"', "site_pos {} of site 'toe'"),
    ("equality", 'polycoef="{} 0 0 0 0"', "eq_data {} of equality 'geared'"),
    ("tendon", 'stiffness="{}"', "tendon_stiffness {} of tendon 'string'"),
    ("tendon", 'armature="{}"', "tendon_armature {} of tendon 'string'"),
    ("coef", "{}", "wrap_prm {} of tendon 'string'"),
    ("actuator", 'gear="{}"', "actuator_gear {} of actuator 'drive'"),
]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("number", ["nan", "1e300", "inf"])
@pytest.mark.parametrize(("place", "text", "named"), WRITTEN)
def test_what_mujoco_compiles_though_it_is_no_number_is_refused(place: str, text: str, named: str, number: str) -> None:
    mjm = mujoco.MjModel.from_xml_string(mjcf(**{place: text.format(number)}))
    with pytest.raises(UnsupportedModel, match="is not supported: use a finite number of at most 1e") as error:
        load(mjm)
    assert named.format(f"{float(number):g}") in str(error.value)


@pytest.mark.parametrize("geom", ['mass="1e300"', 'density="1e300"', 'mass="1e16"'])
def test_a_mass_that_cannot_be_computed_with_is_refused(geom: str) -> None:
    with pytest.raises(UnsupportedModel, match=r"body_mass \S+ of body 'b' is not supported"):
        load(f"<mujoco><worldbody><body name='b'><freejoint/><geom size='1' {geom}/></body></worldbody></mujoco>")


@pytest.mark.parametrize(("place", "named"), [("joint", "jnt_margin"), ("geom", "geom_margin")])
def test_a_margin_that_leaves_no_digits_to_a_distance_in_float32_is_refused(place: str, named: str) -> None:
    load(mjcf(**{place: 'margin="1000"'}))
    with pytest.raises(UnsupportedModel, match=rf"{named} 1001 of .* use a finite number of at most 1e\+03"):
        load(mjcf(**{place: 'margin="1001"'}))


def fields() -> list[str]:
    derived = ("cam_focal", "poison", "plastic0", "history0")  # which no field of MjModel holds
    return [name for name in numbers._names() if name not in derived]


@pytest.mark.parametrize("name", fields())
def test_no_field_of_an_edited_model_may_hold_nan(name: str) -> None:
    """Each field that a `Model` is made of, in a model that has elements of all kinds."""
    mjm = mujoco.MjModel.from_xml_string(mjcf())
    load(mjm)
    holder = next(x for x in (mjm, mjm.opt, mjm.stat) if hasattr(x, name))
    x = getattr(holder, name)
    if isinstance(x, float):
        setattr(holder, name, np.nan)
    else:
        assert x.size
        x.flat[-1] = np.nan
    with pytest.raises(UnsupportedModel, match=rf"{name} nan"):
        load(mjm)


@pytest.mark.parametrize(
    ("field", "row", "named"),
    [
        ("qpos0", 6, "joint 'root'"),
        ("qpos0", 7, "joint 'knee'"),
        ("dof_damping", 7, "joint 'slider'"),
        ("mesh_vert", 3, "mesh 'cube'"),
        ("hfield_data", 8, "hfield 'hills'"),
        ("wrap_prm", 1, "tendon 'string'"),
        ("cam_pos", 0, "camera 'eye'"),
        ("sensor_cutoff", 0, "sensor 'angle'"),
    ],
)
def test_the_element_is_named_that_a_number_belongs_to(field: str, row: int, named: str) -> None:
    mjm = mujoco.MjModel.from_xml_string(mjcf())
    getattr(mjm, field)[row] = np.nan
    with pytest.raises(UnsupportedModel, match=f"{field} nan of {named}"):
        load(mjm)


ENDLESS = 'range="-{0} {0}" limited="true"'


@pytest.mark.parametrize("number", ["1e300", "inf"])
def test_ranges_without_an_end_forbid_nothing(number: str) -> None:
    """As in MuJoCo, in both dtypes."""
    endless = ENDLESS.format(number)
    xml = mjcf(
        joint=f'{endless} actuatorfrcrange="-{number} {number}"',
        tendon=endless,
        actuator=f'ctrlrange="-{number} {number}" ctrllimited="true" forcerange="-{number} .2" forcelimited="true"',
        geom='contype="0" conaffinity="0"',
    ).replace('type="hfield" hfield="hills"', 'type="sphere" size="1"')
    mjm = mujoco.MjModel.from_xml_string(xml)
    d = mujoco.MjData(mjm)
    d.qvel[:], d.ctrl[:] = 0.3, 0.5
    for _ in range(5):
        mujoco.mj_step(mjm, d)
    for dtype, tolerance in (("float32", 1e-5), ("float64", 1e-10)):
        sim = Simulation(mjm, 1, dtype=dtype)
        sim.qvel.fill_(0.3), sim.ctrl.fill_(0.5)
        sim.step(5)
        np.testing.assert_allclose(sim.qpos[0].double().cpu(), d.qpos, rtol=0, atol=tolerance)


def test_what_models_have_on_purpose_is_taken() -> None:
    """Fetch's base has a damping of 1e11; the ground may be a box of 2 km, 8e9 kg and 3e15 kg m2."""
    ground = '<body><geom type="box" size="1000 1000 1" contype="0"/></body>'
    m = load(mjcf(joint='damping="1e11"').replace("<worldbody>", f"<worldbody>{ground}"))
    assert m.dof_damping[6] == 1e11
    assert max(m.body_inertia[1]) > 1e15


@pytest.mark.parametrize("damage", ["cut short", "empty", "text", "another version"])
def test_a_damaged_binary_model_is_said_to_be(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "model.mjb"
    mujoco.mj_saveModel(mujoco.MjModel.from_xml_string(mjcf()), str(path))
    assert load(path) == load(mjcf())
    whole = path.read_bytes()
    halves = {"cut short": whole[: len(whole) // 2], "empty": b"", "text": b"<mujoco/>"}
    path.write_bytes(halves.get(damage, b"\1\2\3\4" + whole[4:]))
    with pytest.raises(ValueError, match=r"model\.mjb' is not a whole binary model of MuJoCo .*; save it anew"):
        load(path)


def test_damaged_numbers_in_a_binary_model_are_named(tmp_path: Path) -> None:
    mjm = mujoco.MjModel.from_xml_string(mjcf())
    mjm.geom_size[mjm.geom("foot").id, 1] = np.nan
    mujoco.mj_saveModel(mjm, str(tmp_path / "model.mjb"))
    with pytest.raises(UnsupportedModel, match="geom_size nan of geom 'foot'"):
        load(tmp_path / "model.mjb")


def test_what_a_model_may_hold_may_vary_too() -> None:
    """A damping of 1e11, as that of Fetch's base: by the same bound as a model's own number, in both directions."""
    xml = '<mujoco><worldbody><body><joint type="slide" damping="1e11"/><geom size=".1"/></body></worldbody></mujoco>'
    sim = Simulation(xml, 3, dtype=torch.float64, vary=["dof_damping"])
    sim.params["dof_damping"][1] = 2e15
    sim.qvel.fill_(1.0)
    sim.step(2)
    finite = sim.qvel[:, 0].isfinite().tolist()
    assert finite == [True, False, True] and abs(float(sim.qvel[0, 0])) < 1e-6

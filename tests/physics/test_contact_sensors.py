"""Contact sensors against MuJoCo C: all matchings, reductions and data, whatever the contacts are computed by.

The slow tests are many more of them:

    pytest -m slow tests/physics/test_contact_sensors.py        # 300 random models, and Playground's robots
"""

from __future__ import annotations

from collections import Counter

import contact_sensor_mjcf
import mujoco
import numpy as np
import oracle
import pytest
import random_mjcf
import random_models
import torch
from random_mjcf import Case

from benchmarks.models import compiled, folder_of
from torch_mjenvs.physics import load
from torch_mjenvs.physics.constraints.batch.pair_batch import batch_pairs
from torch_mjenvs.physics.model.model import UnsupportedModel
from torch_mjenvs.physics.model.precision import DOUBLE
from torch_mjenvs.physics.pipeline import derive
from torch_mjenvs.physics.simulation import Simulation

pytestmark = pytest.mark.usefixtures("quickly_compiled", "quiet")

CONTACT = mujoco.mjtSensor.mjSENS_CONTACT
ALL, NET = "found force torque dist pos normal tangent linvel angvel", "found force torque dist pos normal tangent"
BOUND = random_models.PRECISIONS[torch.float64]
FEW, MANY = range(8), range(8, 300)


# random models


def case(seed: int) -> Case:
    """A random model with six contact sensors, and states of it."""
    found = random_mjcf.case(seed)
    contact_sensor_mjcf.add(found.root, np.random.default_rng([seed, 77]), 6)
    return found


def check(seed: int) -> Counter[str]:
    """Compare every contact sensor of a random model by itself, as random_models says; count what was seen."""
    drawn, seen = case(seed), Counter[str]()
    mjm = mujoco.MjModel.from_xml_string(drawn.xml)
    sharp = random_models.sharpen(mjm)
    states = [random_mjcf.join(mjm, world) for world in drawn.worlds]
    sim = Simulation(mjm, len(states), dtype=torch.float64, outputs="sensordata")
    for name, values in zip(random_mjcf.STATE, zip(*states, strict=True), strict=True):
        if np.size(values):
            getattr(sim, name).copy_(torch.tensor(np.stack(values)))
    sim.step()  # which gives the sensors of where it begins: `forward` would be a second kernel to compile
    for k, state in enumerate(states):
        d = forward(sharp, state)
        unknown = random_models.unsure_shapes(sharp, state, 1)
        if unknown is None or random_models._many_faces_look(sharp, state, 1) or d.warning.number.any():
            continue
        terms = random_models._inertial_terms(sharp, d, sim.model.body_originid)
        force = BOUND.rounding * (np.max(np.abs(d.efc_force), initial=0.0) + terms)
        rounded, rng, moved = random_models._of_rounding(sharp, d, BOUND), np.random.default_rng(k), 0.0 * d.sensordata
        for _ in range(random_models.NUDGES):
            blunt = random_models.blunt(sharp)
            other = random_models.with_shapes_moved(blunt, unknown, rng) if unknown else blunt
            qpos, qvel = (x + BOUND.nudge * np.maximum(1, np.abs(x)) * rng.choice([-1, 1], x.shape) for x in state[:2])
            pushed = forward(other, (qpos, qvel, *state[2:]), force * rng.choice([-1, 1], mjm.nv))
            moved = np.maximum(moved, np.abs(pushed.sensordata - d.sensordata))
        got = sim.sensordata[k].cpu().numpy()
        for i in np.flatnonzero(mjm.sensor_type == CONTACT):
            at = slice(mjm.sensor_adr[i], mjm.sensor_adr[i] + mjm.sensor_dim[i])
            want = d.sensordata[at]
            largest = max(1.0, np.max(np.abs(want)), np.max(np.abs(d.efc_force), initial=0.0))
            bound = BOUND.times * (np.max(moved[at]) + rounded["sensordata"]) + BOUND.floor * largest
            error = np.max(np.abs(got[at] - want))
            what = f"{mjm.sensor(i).name} of world {k}: {got[at]}, not {want}; bound {bound:.2e}\n{drawn.xml}"
            assert error <= bound, what
            if want.any():
                seen.update({"seen": 1, "tight": int(bound < 1e-6 * largest), "of several": int(d.ncon > 2)})
                seen[("none", "mindist", "maxforce", "netforce")[mjm.sensor_intprm[i, 1]]] += 1
    return seen


def forward(mjm: mujoco.MjModel, state: tuple, force: np.ndarray | float = 0.0) -> mujoco.MjData:
    d = mujoco.MjData(mjm)
    random_mjcf.put(d, state)
    d.qfrc_applied[:] = force
    mujoco.mj_forward(mjm, d)
    return d


def test_contact_sensors_of_random_models_are_those_of_mujoco() -> None:
    seen = sum((check(seed) for seed in FEW), Counter[str]())
    assert seen["tight"] > 0.9 * seen["seen"] > 20 and seen["of several"] > 10, seen


@pytest.mark.slow
@pytest.mark.parametrize("first", MANY[::12])
def test_contact_sensors_of_three_hundred_random_models_are_those_of_mujoco(first: int) -> None:
    """Twelve at a time. A model whose sensors ask for what is refused is left out, and there are few."""
    seen = Counter[str]()
    for seed in range(first, min(first + 12, MANY.stop)):
        try:
            seen += check(seed)
        except UnsupportedModel as error:
            assert "welded together" in str(error) or "MuJoCo's order" in str(error)
            seen["refused"] += 1
    print(seen)
    assert seen["refused"] < 4 and seen["tight"] > 0.8 * seen["seen"] > 10


# models made for it


SHAPES = {
    "sphere": 'size=".1"', "capsule": 'size=".06 .1"', "box": 'size=".08 .1 .06"', "ellipsoid": 'size=".1 .08 .06"',
    "cylinder": 'size=".08 .06"',
}  # fmt: skip


def body(name: str, pos: str, *shapes: str) -> str:
    geoms = "".join(
        f'<geom name="{name}{k}" type="{shape}" {SHAPES[shape]} pos="{0.12 * (k % 2)} {0.12 * (k // 2)} 0" '
        f'euler="{20 * k} {10 * k} 0"/>'
        for k, shape in enumerate(shapes)
    )
    return f'<body name="{name}" pos="{pos}"><freejoint/>{geoms}</body>'


def sensors(*matches: str, num: int = 4) -> str:
    """Sensors of every reduction, with all their data, for each way to match contacts."""
    out = ""
    for match in matches:
        for reduce in ("none", "mindist", "maxforce"):
            out += f'<contact {match} reduce="{reduce}" num="{num}" data="{ALL}"/>'
        out += f'<contact {match} reduce="netforce" data="{NET}"/><contact {match} num="3"/>'
    return f"<sensor>{out}</sensor>"


def compare(xml: str, n: int = 12, spread: float = 0.1) -> tuple[Simulation, list]:
    """Compare all sensors of a model in n states; each must have seen something in a third of them. Gives those."""
    mjm = random_models.sharpen(mujoco.MjModel.from_xml_string(xml))
    found, seen = oracle.scattered(mjm, n, spread=spread), 0
    sim = Simulation(mjm, n, dtype=torch.float64, outputs="sensordata")
    for k, (qpos, qvel) in enumerate(found):
        sim.qpos[k], sim.qvel[k] = torch.tensor(qpos), torch.tensor(qvel)
    sim.step()
    for k, state in enumerate(found):
        want, got = oracle.forward(mjm, *state, np.zeros(mjm.nu)).sensordata, sim.sensordata[k].cpu().numpy()
        for i in range(mjm.nsensor):
            at = slice(mjm.sensor_adr[i], mjm.sensor_adr[i] + mjm.sensor_dim[i])
            seen += want[at].any()
            atol = 1e-9 * max(1.0, np.max(np.abs(want[at])))
            np.testing.assert_allclose(got[at], want[at], rtol=0, atol=atol, err_msg=f"sensor {i} of world {k}")
    assert seen > n * mjm.nsensor / 3
    return sim, found


TWO = body("a", "0 0 .1", "box", "sphere", "capsule") + body("b", ".05 .05 .25", "capsule", "sphere")
FLOOR = '<geom name="floor" type="plane" size="5 5 1"/>'
MATCHES = "", 'body1="a" body2="b"', 'subtree1="world" geom2="floor"'


@pytest.mark.parametrize(
    "option",
    [
        "<option/>",
        pytest.param("<option cone='elliptic'><flag midphase='disable'/></option>", marks=pytest.mark.slow),
        pytest.param("<option noslip_iterations='3' noslip_tolerance='0'/>", marks=pytest.mark.slow),
        "<option cone='elliptic' noslip_iterations='2' noslip_tolerance='0'/>",
    ],
)
def test_contacts_come_in_the_order_of_mujoco_also_where_bodies_have_several_geoms(option: str) -> None:
    """Sorted by geoms where bounding volumes are searched, else one geom after the other; forces follow noslip."""
    compare(f"<mujoco>{option}<worldbody>{FLOOR}{TWO}</worldbody>{sensors(*MATCHES)}</mujoco>")


@pytest.mark.parametrize("condim", [1, 4])
@pytest.mark.parametrize("shapes", [("capsule",) * 3, ("box", "sphere", "box")])
def test_contacts_of_loops_are_listed_like_others(shapes: tuple[str, ...], condim: int) -> None:
    three = "".join(body(name, pos, *shapes) for name, pos in (("a", "0 0 .1"), ("b", ".05 0 .2"), ("c", "-.1 0 .2")))
    xml = f"""<mujoco><default><geom condim="{condim}"/></default><worldbody>{three}</worldbody>
        {sensors("", 'body1="c" body2="b"', num=3)}</mujoco>"""
    assert batch_pairs(load(xml), DOUBLE)
    compare(xml)


def test_contacts_in_the_gap_and_of_what_nothing_moves_are_found_without_a_force() -> None:
    xml = f"""<mujoco><default><geom gap=".05" margin=".01"/></default><worldbody>{FLOOR}
        <body name="lift" mocap="true" pos="0 0 .1"><geom name="plate" type="box" size=".3 .3 .05"/></body>
        {body("a", "0 0 .22", "sphere", "capsule")}{body("b", ".05 .05 .4", "sphere")}
        <body name="arm" pos="2 0 0"><geom name="one" size=".1"/><body><geom name="two" size=".1"/></body></body>
        </worldbody><contact><pair geom1="plate" geom2="floor" gap=".2"/><pair geom1="two" geom2="one"/></contact>
        {sensors("", 'body1="b" body2="a"', 'body1="lift"', num=3)}</mujoco>"""
    compare(xml, spread=0.05)


@pytest.mark.parametrize("cone", ["pyramidal", "elliptic"])
def test_tangents_of_planar_models_are_those_of_mujoco(cone: str) -> None:
    """They have but one direction, and the solver does not care which way it goes."""
    rails = '<joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 1"/><joint axis="0 1 0"/>'
    xml = f"""<mujoco><option cone="{cone}"/><worldbody>{FLOOR}
        <body pos="0 0 .09">{rails}<geom name="x" type="capsule" size=".1 .2" euler="0 70 0"/></body>
        <body pos="1 0 .09">{rails}<geom condim="6" type="capsule" size=".1 .2" euler="0 -70 0"/></body>
        <body pos="2 0 .19"><joint type="slide" axis="0 0 1"/><geom type="capsule" size=".1 .2" euler="0 70 0"/></body>
        </worldbody>{sensors("", 'geom1="x"')}</mujoco>"""
    sim, states = compare(xml, spread=0.4)
    for k, (qpos, qvel) in enumerate(states):
        plain = derive(sim.model, qpos.tolist(), qvel.tolist(), None, [])  # of Python's floats all are constant
        np.testing.assert_allclose(list(plain.sensordata), sim.sensordata[k].cpu(), atol=1e-7)


def test_a_box_that_lies_flat_has_its_corners_in_the_order_of_mujoco() -> None:
    """All at one distance, so that nothing but the order tells which come first."""
    xml = f"""<mujoco><worldbody>{FLOOR}<body pos="0 0 .09"><freejoint/><geom name="low" type="box" size=".1 .1 .1"/>
        </body><body pos=".02 .03 .28"><freejoint/><geom type="box" size=".1 .12 .1"/></body></worldbody>
        {sensors("", 'geom1="low"', num=3)}</mujoco>"""
    mjm = oracle.sharpen(mujoco.MjModel.from_xml_string(xml))
    sim = Simulation(mjm, 1, dtype=torch.float64, outputs="sensordata")
    sim.step()
    want = oracle.forward(mjm, mjm.qpos0, np.zeros(mjm.nv), np.zeros(0)).sensordata
    np.testing.assert_allclose(sim.sensordata[0].cpu(), want, rtol=0, atol=1e-9 * np.max(np.abs(want)))


def test_the_ground_of_a_height_field_is_listed_point_by_point() -> None:
    heights = " ".join(map(str, np.random.default_rng(0).uniform(0, 1, 64).round(3)))
    xml = f"""<mujoco><asset><hfield name="h" nrow="8" ncol="8" size="1 1 .2 .1" elevation="{heights}"/></asset>
        <worldbody><geom name="floor" type="hfield" hfield="h"/>
        <body name="a" pos="0 0 .29"><freejoint/><geom type="sphere" size=".2"/></body></worldbody>
        {sensors("", 'geom2="floor"')}</mujoco>"""
    compare(xml, spread=0.03)


def test_what_cannot_be_as_in_mujoco_is_refused_by_name_and_the_others_are_read() -> None:
    xml = f"""<mujoco><worldbody>{FLOOR}{body("a", "0 0 .1", "cylinder")}{body("b", "0 0 .2", "box")}
        {body("c", "1 0 .1", "ellipsoid")}<body name="d" pos="0 1 0"><geom name="one" type="ellipsoid" size=".1 .2 .3"/>
        <body><geom name="two" type="ellipsoid" size=".1 .2 .3"/></body></body></worldbody>
        <contact><pair geom1="one" geom2="two"/></contact>
        <sensor><contact name="which" geom1="a0" data="dist"/><contact name="how many" geom1="a0"/>
        <contact name="deepest" geom1="a0" data="dist" reduce="mindist"/><contact name="idle" body1="d"/>
        <contact name="feet" geom1="floor" geom2="b0" data="found force"/></sensor></mujoco>"""
    m = load(xml)
    d = derive(m, list(m.qpos0), [0.0] * m.nv, None, [])
    for name in ("how many", "deepest", "feet"):
        assert len(d.sensordata[m.sensor(name)]) == m.sensor(name).stop - m.sensor(name).start
    with pytest.raises(UnsupportedModel, match=r"'which' \(contact\) of contacts of 'a0' and 'b0'.*reduce='mindist'"):
        _ = d.sensordata[m.sensor("which")]
    with pytest.raises(UnsupportedModel, match=r"<contact><pair> of 'one' and 'two', welded together, is not"):
        _ = d.sensordata[m.sensor("idle")]
    with pytest.raises(UnsupportedModel, match=r"'which' .* is not supported, nor are 'idle': .*'sensor:NAME'"):
        list(d.sensordata)


# sensors by name


BALL = """<mujoco><worldbody><geom name="floor" type="plane" size="5 5 1"/><body pos="0 0 .09"><freejoint/>
    <geom name="ball" size=".1"/><site name="s"/></body></worldbody><sensor><user name="own" dim="2"/>
    <accelerometer name="imu" site="s"/><contact name="touches" geom1="ball" data="found force"/><clock name="now"/>
    </sensor></mujoco>"""


def test_a_simulation_computes_the_sensors_that_it_is_asked_for() -> None:
    sim = Simulation(BALL, 2, dtype=torch.float64, outputs=("sensor:imu", "sensor:touches"))
    sim.forward()
    d = oracle.forward(oracle.sharpen(mujoco.MjModel.from_xml_string(BALL)), [0, 0, 0.09, 1, 0, 0, 0], [0] * 6, [])
    for name, dim in (("imu", 3), ("touches", 4)):
        assert sim.sensor(name).shape == (2, dim)
        np.testing.assert_allclose(sim.sensor(name)[1].cpu(), d.sensor(name).data, atol=1e-9)
    assert not hasattr(sim, "time")
    with pytest.raises(ValueError, match=r"'own' is not computed; pass outputs=\('sensor:own',\)"):
        sim.sensor("own")
    with pytest.raises(KeyError, match="no sensor 'igu'"):
        sim.sensor("igu")
    with pytest.raises(ValueError, match="'sensor:igu': the model has no sensor 'igu'; it has 'own', 'imu'"):
        Simulation(BALL, 1, outputs="sensor:igu")


def test_a_refused_sensor_is_named_where_it_or_all_are_asked_for() -> None:
    for outputs in ("sensordata", "sensor:own"):
        with pytest.raises(UnsupportedModel, match=r"'own' \(user\) is not supported: .*outputs=\('sensor:NAME',"):
            Simulation(BALL, 1, outputs=outputs)


def test_one_sensor_of_all_is_a_part_of_sensordata() -> None:
    sim = Simulation(BALL.replace('<user name="own" dim="2"/>', ""), 2, outputs=("sensordata", "sensor:now"))
    sim.time.fill_(3.0)
    sim.forward()
    assert sim.sensor("now").tolist() == [[3.0], [3.0]]
    assert torch.equal(sim.sensor("imu"), sim.sensordata[:, sim.model.sensor("imu")])


def test_sensors_that_are_not_read_are_not_computed() -> None:
    """The list of their numbers is read, and written, as any list."""
    m = load(BALL)
    d = derive(m, [0.0, 0.0, 0.09, 1.0, 0.0, 0.0, 0.0], [0.0] * 6, None, [])
    own, imu = m.sensor("own"), m.sensor("imu")
    assert len(d.sensordata) == m.nsensordata and len(d.sensordata[imu]) == 3 and "cfrc_int" not in vars(d)
    with pytest.raises(UnsupportedModel, match="'own'"):
        _ = d.sensordata[own.start]
    copy = d.sensordata.copy()
    copy[own.start] = copy[own.start + 1] = 7.0
    assert [1.0] + copy[own] + copy[imu] == [1.0, 7.0, 7.0, *d.sensordata[imu]]


# MuJoCo Playground's robots


ROBOTS = ("go1", "g1", "t1", "spot", "apollo", "berkeley_humanoid")


@pytest.mark.slow
@pytest.mark.parametrize("robot", ROBOTS)
def test_all_sensors_of_a_robot_of_playground_are_those_of_mujoco(robot: str) -> None:
    """Standing, falling and thrown about; meshes that are only seen are stood in for."""
    folder = folder_of("mujoco_playground")
    if folder is None:
        pytest.skip("MuJoCo Playground is not installed")
    mjm = compiled(folder / f"locomotion/{robot}/xmls/scene_mjx_feetonly_flat_terrain.xml")
    assert mjm is not None and np.sum(mjm.sensor_type == CONTACT) > 0
    oracle.sharpen(mjm)
    rng, d, states = np.random.default_rng(0), mujoco.MjData(mjm), []
    for k in range(12):
        mujoco.mj_resetDataKeyframe(mjm, d, 0)
        mujoco.mj_integratePos(mjm, d.qpos, rng.normal(0, 0.05 * (k % 3), mjm.nv), 1.0)
        d.qvel[:] = rng.normal(0, 0.3 * (k % 3), mjm.nv)
        mujoco.mj_step(mjm, d, int(rng.integers(1, 60)))
        states.append((d.qpos.copy(), d.qvel.copy(), d.ctrl.copy()))
    sim, found = Simulation(mjm, len(states), dtype=torch.float64, outputs="sensordata"), 0
    for name, x in zip(("qpos", "qvel", "ctrl"), zip(*states, strict=True), strict=True):
        getattr(sim, name).copy_(torch.tensor(np.stack(x)))
    sim.forward()
    for k, state in enumerate(states):
        want, got = oracle.forward(mjm, *state).sensordata, sim.sensordata[k].cpu().numpy()
        for i in range(mjm.nsensor):
            at = slice(mjm.sensor_adr[i], mjm.sensor_adr[i] + mjm.sensor_dim[i])
            atol = 1e-9 * max(1.0, np.max(np.abs(want[at])))
            np.testing.assert_allclose(got[at], want[at], rtol=0, atol=atol, err_msg=f"{mjm.sensor(i).name}, {k}")
            found += mjm.sensor_type[i] == CONTACT and want[at].any()
    assert found > 5

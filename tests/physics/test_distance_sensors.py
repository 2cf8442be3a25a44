"""Sensors of how far apart geoms are (`physics/collision/distance.py`), against MuJoCo C at its sharpest."""

from __future__ import annotations

import itertools

import mujoco
import numpy as np
import pytest
import torch

from torch_mjenvs.physics import load
from torch_mjenvs.physics.kernel_request import KernelRequest
from torch_mjenvs.physics.model.model import UnsupportedModel
from torch_mjenvs.physics.pipeline import derive
from torch_mjenvs.physics.simulation import Simulation
from torch_mjenvs.physics.simulation_kernels import program

SHAPES = {
    "plane": 'type="plane" size="1 1 1"',
    "sphere": 'size=".1"',
    "capsule": 'type="capsule" size=".06 .12"',
    "ellipsoid": 'type="ellipsoid" size=".1 .15 .07"',
    "cylinder": 'type="cylinder" size=".08 .1"',
    "box": 'type="box" size=".1 .07 .12"',
    "mesh": 'type="mesh" mesh="rock"',
}
ROUND = {"ellipsoid", "cylinder"}
MEASURED = ("distance", "normal", "fromto")
FAR = 0.35  # metres
APART = 'contype="0" conaffinity="0"'


def model(one: str, two: str, sensors: str) -> mujoco.MjModel:
    """Two geoms that never touch, of which only the first may rest, and sensors."""
    points = np.random.default_rng(1).normal(0, 0.1, 36).round(3)
    bodies = "".join(
        f'<geom name="{name}" {SHAPES[shape]}/>'
        if shape == "plane"
        else f"""<body name="{name}"><freejoint/><geom name="{name}" {SHAPES[shape]} {APART}/>
            <geom name="{name} tip" size=".02" pos="0 0 .2" {APART}/></body>"""
        for name, shape in (("one", one), ("two", two))
    )
    return mujoco.MjModel.from_xml_string(f"""<mujoco><option ccd_tolerance="1e-13" ccd_iterations="200"/>
        <asset><mesh name="rock" vertex="{" ".join(map(str, points))}"/></asset>
        <worldbody>{bodies}</worldbody><sensor>{sensors}</sensor></mujoco>""")


def between(kind: str, one: str, two: str) -> str:
    """The three sensors of two objects of a kind."""
    return "".join(f'<{what} {kind}1="{one}" {kind}2="{two}" cutoff="{FAR}"/>' for what in MEASURED)


def measured(mjm: mujoco.MjModel, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Our sensordata and MuJoCo's in n states: deep in each other, near and far."""
    rng, d, want = np.random.default_rng(0), mujoco.MjData(mjm), []
    sim = Simulation(mjm, n, dtype=torch.float64, outputs=("sensordata",))
    for k in range(n):
        d.qpos[:] = rng.normal(0, 1, mjm.nq)
        for j in range(mjm.njnt):
            d.qpos[7 * j : 7 * j + 3] = rng.uniform(-0.25, 0.25, 3)
        mujoco.mj_forward(mjm, d)
        want.append(d.sensordata.copy())
        sim.qpos[k] = torch.from_numpy(d.qpos)
    sim.forward()
    return sim.sensordata.cpu().numpy(), np.array(want)


PAIRS = [pair for pair in itertools.combinations_with_replacement(SHAPES, 2) if pair != ("plane", "plane")]
QUICK = {
    *(("plane", "mesh"), ("capsule", "box"), ("box", "box"), ("sphere", "mesh")),
    *(("ellipsoid", "cylinder"), ("cylinder", "mesh")),
}


@pytest.mark.parametrize(
    "pair", [p if p in QUICK else pytest.param(p, marks=pytest.mark.slow) for p in PAIRS], ids="-".join
)
def test_distances_are_mujocos(pair):
    """Both ways round. Points and normals follow from distances: those of round shapes to the root of the error."""
    mjm = model(*pair, between("geom", "one", "two") + between("geom", "two", "one"))
    got, want = measured(mjm, 64)
    apart = (want[:, 0] > 0) & (want[:, 0] < FAR)
    assert min(np.sum(want[:, 0] < 0), np.sum(apart)) > 4
    if pair[0] != "plane":
        assert np.sum(want[:, 0] == FAR) > 1
    of_rounding = not ROUND & {*pair} or "plane" in pair or pair == ("sphere", "cylinder")
    off = np.abs(got - want)
    for at in (0, 10):
        dist, normal, points = off[:, at], off[:, at + 1 : at + 4].max(1), off[:, at + 4 : at + 10].max(1)
        if of_rounding:
            assert max(dist.max(), normal[apart].max(), points[apart].max()) < 1e-12 and np.median(points) < 1e-12
        else:
            assert np.quantile(dist, 0.95) < 1e-9 and dist.max() < 1e-6
            assert normal[apart].max() < 5e-4 and points[apart].max() < 1e-5
            if "mesh" in pair:  # deep ones, too
                assert normal.max() < 1e-4 and points.max() < 1e-5


def test_of_two_bodies_the_nearest_geoms_count():
    mjm = model("box", "capsule", between("body", "one", "two") + between("geom", "one tip", "two tip"))
    got, want = measured(mjm, 64)
    assert np.sum(np.abs(want[:, 0] - want[:, 10]) < 1e-12) > 3, "the second geom of each"
    assert np.sum(want[:, 0] < want[:, 10]) > 20
    np.testing.assert_allclose(got[:, 0], want[:, 0], rtol=0, atol=1e-12)
    near = want[:, 0] > 0
    np.testing.assert_allclose(got[near], want[near], rtol=0, atol=1e-12)


def test_sensors_of_the_same_geoms_search_once():
    one, three = (
        program(KernelRequest(load(model("box", "mesh", sensors)), ("sensordata",)), "float64").count_ops().total()
        for sensors in ('<distance geom1="one" geom2="two" cutoff=".35"/>', between("geom", "one", "two"))
    )
    assert one < three < 1.1 * one


def test_without_a_cutoff_only_overlap_is_measured():
    sensors = '<distance geom1="one" geom2="two"/><fromto geom1="one" geom2="two"/>'
    got, want = measured(model("sphere", "capsule", sensors), 64)
    assert 3 < np.sum(want[:, 0] < 0) < 60
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-13)


@pytest.mark.cpu
@pytest.mark.parametrize("pair", [("capsule", "box"), ("plane", "mesh"), ("sphere", "ellipsoid")])
def test_derivatives_of_distances_are_those_of_differences(pair):
    mjm = model(*pair, '<distance geom1="one" geom2="two" cutoff="1"/>')
    mjm.opt.gravity[:] = 0
    sim, rng, want = Simulation(mjm, 6, dtype=torch.float64, outputs=("sensordata",)), np.random.default_rng(2), []
    for k in range(6):
        d = mujoco.MjData(mjm)
        d.qpos[:] = rng.normal(0, 1, mjm.nq)
        for j in range(mjm.njnt):
            d.qpos[7 * j : 7 * j + 3] = rng.uniform(-0.25, 0.25, 3)
        mujoco.mj_forward(mjm, d)
        sim.qpos[k] = torch.from_numpy(d.qpos)
        C = np.zeros((mjm.nsensordata, 2 * mjm.nv))
        mujoco.mjd_transitionFD(mjm, d, 1e-6, True, None, None, C, None)
        want.append(C)
    got = sim.linearize(outputs="sensordata").C
    np.testing.assert_allclose(got.cpu().numpy(), want, rtol=0, atol=1e-8)


def test_a_distance_to_a_height_field_is_refused_when_it_is_asked_for():
    mjm = mujoco.MjModel.from_xml_string("""<mujoco>
        <asset><hfield name="ground" nrow="3" ncol="3" size="1 1 .1 .1"/></asset>
        <worldbody><geom name="ground" type="hfield" hfield="ground"/>
        <body pos="0 0 1"><freejoint/><geom name="ball" size=".1"/></body></worldbody>
        <sensor><distance name="height" geom1="ball" body2="world" cutoff="2"/></sensor></mujoco>""")
    d = derive(load(mjm), mjm.qpos0.tolist(), [0.0] * 6, None, [])
    with pytest.raises(UnsupportedModel, match=r"sensor 'height' \(geomdist\) to a height field is not supported"):
        list(d.sensordata)

"""Rays against height fields, and rangefinders that meet them, as MuJoCo C has them: mj_ray, mj_rayHfield."""

from __future__ import annotations

import mujoco
import numpy as np
import oracle
import pytest
import torch

from torch_mjenvs import Simulation, UnsupportedModel
from torch_mjenvs.physics import load
from torch_mjenvs.physics.pipeline import derive
from torch_mjenvs.physics.sensors.ray import ray_geom
from torch_mjenvs.physics.sensors.ray_hfield import MISS, surface

PLACES = {
    "level": (0.0, 0.0),
    "turned": (0.0, 180.0),  # about the vertical alone
    "next to level": (1e-4, 1e-4),
    "tilted": (50.0, 180.0),
}


def field(rng: np.random.Generator, place: str = "level", steps: bool = False) -> mujoco.MjModel:
    """A height field alone, of random size, grid and elevations; steps: these are 0 or 1."""
    nrow, ncol = rng.integers(2, 14, 2).tolist()
    size = rng.uniform([0.5, 0.5, 0.05, 0.05], [2, 2, 1, 0.5])
    tilt, turn = PLACES[place]
    angles = *rng.uniform(-tilt, tilt, 2), rng.uniform(-turn, turn)
    mjm = mujoco.MjModel.from_xml_string(
        f"""<mujoco><asset><hfield name="field" nrow="{nrow}" ncol="{ncol}" size="{_text(size)}"/></asset>
        <worldbody><geom type="hfield" hfield="field" euler="{_text(angles)}" pos="{_text(rng.normal(0, 0.3, 3))}"/>
        </worldbody></mujoco>"""
    )
    mjm.hfield_data[:] = rng.integers(0, 2, nrow * ncol) if steps else rng.random(nrow * ncol)
    return mjm


def _text(x: object) -> str:
    return " ".join(map(str, np.asarray(x).tolist()))


def starts(rng: np.random.Generator, size: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where rays start, and where they go, in the field's axes: inside, outside, from all sides, along it."""
    inside = rng.uniform(-1, 1, 3) * [size[0], size[1], max(size[2], size[3])]
    outside = rng.uniform(-3, 3, 3)
    return {
        0: (inside, rng.normal(size=3)),
        1: (inside, rng.normal(size=3) * [1, 1, 0.05]),  # nearly along it
        2: (outside, inside - outside),
        3: (outside, rng.normal(size=3)),
        4: (inside * [1, 1, 0] + [0, 0, 3], np.array([0.0, 0.0, -1.0])),
        5: (inside * [1, 1, 0] - [0, 0, 3], np.array([0.0, 0.0, 1.0])),
        6: (outside * [1, 0, 0] + inside * [0, 1, 1], np.array([-np.sign(outside[0]), 0.0, 0.0])),  # along an axis
    }[int(rng.integers(7))]


@pytest.mark.parametrize("steps", [False, True], ids=["rough", "steps"])
@pytest.mark.parametrize("place", PLACES)
def test_rays_meet_height_fields_where_mujoco_has_them(place, steps):
    rng, hits, misses = np.random.default_rng(0), 0, 0
    for _ in range(25):
        mjm = field(rng, place, steps)
        d = mujoco.MjData(mjm)
        mujoco.mj_kinematics(mjm, d)
        m, mat, pos = load(mjm), d.geom_xmat[0].reshape(3, 3), d.geom_xpos[0]
        ours = derive(m, [], [], None, [])
        for _ in range(60):
            p, v = starts(rng, mjm.hfield_size[0])
            p, v = pos + mat @ p, mat @ v / np.linalg.norm(v)
            want = mujoco.mj_ray(mjm, d, p, v, None, 1, -1, np.zeros(1, np.int32))
            got = ray_geom(m, ours, 0, p.tolist(), v.tolist())
            assert abs((-1 if got >= MISS else got) - want) < 1e-10
            hits, misses = hits + (want >= 0), misses + (want < 0)
    assert hits > 700 and misses > 100


def test_a_ray_may_follow_the_lines_of_the_grid():
    """Straight down onto corners and edges, along edges and along the cells' diagonals."""
    rng, hits = np.random.default_rng(1), 0
    for _ in range(20):
        mjm = field(rng)
        m, d = load(mjm), mujoco.MjData(mjm)
        mujoco.mj_kinematics(mjm, d)
        (f,), data = m.hfields, derive(m, [], [], None, [])
        for _ in range(20):
            row, column = int(rng.integers(1, max(2, f.nrow - 1))), int(rng.integers(1, max(2, f.ncol - 1)))
            at = np.array([column * f.steps[0] - f.size[0], row * f.steps[1] - f.size[1]])
            if not (row < f.nrow - 1 and column < f.ncol - 1):
                continue
            height = f.data[row * f.ncol + column]
            assert abs(surface(f, *at.tolist()) - height) < 1e-12
            down = (d.geom_xpos[0] + [*at, 3.0]).tolist()
            assert abs(ray_geom(m, data, 0, down, [0.0, 0.0, -1.0]) - (3.0 - height)) < 1e-12
            for way in ([1.0, 0.0], [0.0, -1.0], [-f.steps[0], -f.steps[1]]):
                v = np.array([*way, -0.3 * np.linalg.norm(way)])
                v /= np.linalg.norm(v)
                p = np.array(down) - [0, 0, 3.0 - height - 0.05]
                want = mujoco.mj_ray(mjm, d, p, v, None, 1, -1, np.zeros(1, np.int32))
                got = ray_geom(m, data, 0, p.tolist(), v.tolist())
                # to MuJoCo a ray on an edge meets both triangles or one, or by rounding none, and goes on
                assert want < 0 or got <= want + 1e-10
                hits += abs(got - want) < 1e-10
                if got < MISS:
                    at = p + got * v - d.geom_xpos[0]
                    assert at[2] < surface(f, *at[:2].tolist()) + 1e-10  # or in a side
    assert hits > 300


LASERS = """<mujoco><option timestep=".01"/>
<asset><hfield name="field" nrow="9" ncol="12" size="2 1.5 .4 .2"/>
<hfield name="roof" nrow="3" ncol="3" size="1 1 .3 .1"/></asset>
<worldbody>
  <geom name="ground" type="hfield" hfield="field" euler="{tilt}" pos=".1 0 .05"/>
  <geom type="plane" size="0 0 1" pos="0 0 -1"/>
  <geom name="roof" type="hfield" hfield="roof" pos="0 0 2" euler="180 0 0" contype="0" conaffinity="0"/>
  <body pos="0 0 1"><freejoint/><geom type="box" size=".1 .2 .1"/>
    <site name="a" pos=".1 0 -.2" euler="160 0 0"/><site name="b" pos="0 .3 0" euler="0 100 30"/>
    <site name="c" pos="0 0 .1"/><site name="d" euler="180 0 0" pos="-.4 0 -.9"/></body>
</worldbody>
<sensor><rangefinder site="a"/><rangefinder site="b"/><rangefinder site="c"/><rangefinder site="d"/>
<rangefinder site="a" data="dist dir point"/></sensor></mujoco>"""


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_rangefinders_measure_height_fields_as_in_mujoco(dtype):
    """Each world its own ray, in one kernel; one field may touch nothing."""
    mjm = mujoco.MjModel.from_xml_string(LASERS.format(tilt="4 -7 30"))
    rng = np.random.default_rng(0)
    mjm.hfield_data[:] = rng.random(mjm.nhfielddata)
    sim = Simulation(mjm, 40, dtype=dtype, outputs=["sensordata"])
    states = [oracle.forward(mjm, q, np.zeros(6), np.zeros(0)) for q in _poses(rng, 40)]
    sim.qpos[:] = torch.tensor(np.array([d.qpos for d in states]))
    sim.forward()
    want = np.array([d.sensordata for d in states])
    got = sim.sensordata.double().cpu().numpy()
    if dtype == torch.float64:
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-10)
    else:  # where rounding decides, a ray passes an edge
        assert np.mean(np.abs(got - want) < 1e-4) > 0.98
    assert (want[:, :4] > 0).mean() > 0.5 and (want[:, :4] < 0).any()


def _poses(rng: np.random.Generator, n: int) -> np.ndarray:
    out = rng.normal(size=(n, 7))
    out[:, :3] = rng.uniform([-1.8, -1.3, 0.2], [1.8, 1.3, 1.6], (n, 3))
    out[:, 3:] /= np.linalg.norm(out[:, 3:], axis=1, keepdims=True)
    return out


def test_elevations_beyond_mujocos_bounds_are_refused_where_rays_may_meet_them():
    mjm = mujoco.MjModel.from_xml_string(LASERS.format(tilt="0 0 0"))
    mjm.hfield_data[:] = 0.5
    mjm.hfield_data[3] = 1.5
    m = load(mjm)
    with pytest.raises(UnsupportedModel, match="geom 'ground', whose elevations are not all from 0 to 1"):
        list(derive(m, list(m.qpos0), [0.0] * m.nv, None, []).sensordata)

"""Rays against meshes, and rangefinders that meet them, as MuJoCo C has them: mj_ray, mj_rayMesh."""

from __future__ import annotations

import itertools
from typing import Any

import kernels
import mujoco
import numpy as np
import oracle
import pytest
import torch
from ptx import Machine

from torch_mjenvs import Simulation, UnsupportedModel
from torch_mjenvs.compiler import cuda
from torch_mjenvs.physics import Data, load, simulation_kernels
from torch_mjenvs.physics.sensors import ray
from torch_mjenvs.physics.sensors.ray import MISS, ray_geom

CORNERS = np.array([*itertools.product((-1, 1), repeat=3)]) * [0.3, 0.2, 0.1]


def _text(x: Any) -> str:
    return " ".join(map(str, np.asarray(x).ravel().tolist()))


def ring(n: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """A gate: vertices and triangles of a ring of square section, which the middle of its hull is no part of."""
    turns = [(np.cos(a), np.sin(a)) for a in np.linspace(0, 2 * np.pi, n, endpoint=False)]
    section = ((1.0, -0.1), (1.2, -0.1), (1.2, 0.1), (1.0, 0.1))
    vertices = np.array([[x, r * c, r * s] for c, s in turns for r, x in section])
    faces = []
    for i, k in itertools.product(range(n), range(4)):
        a, b = 4 * i + k, 4 * i + (k + 1) % 4
        c, d = (a + 4) % (4 * n), (b + 4) % (4 * n)
        faces += [(a, c, d), (a, d, b)]
    return vertices, np.array(faces)


def assets(n: int = 8) -> str:
    vertices, faces = ring(n)
    return f"""<asset><mesh name="box" vertex="{_text(CORNERS)}"/>
    <mesh name="ring" vertex="{_text(vertices)}" face="{_text(faces)}"/>
    <mesh name="sheet" vertex="0 0 0 1 0 0 0 1 0 1 1 .3" face="0 1 2 1 3 2" inertia="shell"/></asset>"""


SHAPES = f"""<mujoco>{assets()}<worldbody><geom type="mesh" mesh="box" pos=".1 .2 .3" euler="10 20 30"/>
  <geom type="mesh" mesh="ring" pos="0 1 0" euler="0 0 50"/><geom type="mesh" mesh="sheet" euler="40 0 -10"/>
  <body><freejoint/><geom size=".01" mass="1" pos="9 9 9"/><site name="a"/></body></worldbody>
  <sensor><rangefinder site="a"/></sensor></mujoco>"""


@pytest.mark.parametrize("seed", range(4))
def test_rays_meet_meshes_where_mujoco_has_them(seed: int) -> None:
    """From inside and outside, from both sides, through the hole of a ring, away from them, along their axes."""
    mjm, rng = mujoco.MjModel.from_xml_string(SHAPES), np.random.default_rng(seed)
    m, d, number = load(mjm), mujoco.MjData(mjm), np.zeros(1, np.int32)
    mujoco.mj_forward(mjm, d)
    data, hits, misses = Data(m, qpos=mjm.qpos0.tolist()), np.zeros(3, int), np.zeros(3, int)
    for turn in range(150):
        g = turn % 3
        p = d.geom_xpos[g] + rng.normal(size=3) * (0.1, 1.0, 2.0)[turn % 7 % 3]
        axes = d.geom_xmat[g].reshape(3, 3)
        for way in (rng.normal(size=3), d.geom_xpos[g] + 0.3 * rng.normal(size=3) - p, axes[:, turn // 3 % 3]):
            v = way / np.linalg.norm(way)
            seen = [mujoco.mj_rayMesh(mjm, d, k, p, v, None) for k in range(3)]
            for k, want in enumerate(seen):
                got = ray_geom(m, data, k, p.tolist(), v.tolist())
                assert abs((-1.0 if got >= MISS else got) - want) < 1e-10 * max(1.0, want)
                hits[k], misses[k] = hits[k] + (want >= 0), misses[k] + (want < 0)
            nearest = mujoco.mj_ray(mjm, d, p, v, None, 1, -1, number)
            best = min((x for x in seen if x >= 0), default=-1.0)
            assert number[0] == 3 or abs(nearest - best) < 1e-12
    assert (hits > 30).all() and (misses > 30).all()


RACE = """<mujoco><option timestep=".01"/>{assets}<worldbody><geom type="plane" size="9 9 .1"/>
  <body name="gate" mocap="true" pos="2 0 1.5"><geom type="mesh" mesh="ring" contype="0" conaffinity="0"/></body>
  <body name="other" pos="1 .5 1"><freejoint/><geom type="mesh" mesh="box" contype="0" conaffinity="0"/></body>
  <body name="drone" pos="0 0 1.5"><freejoint/><geom type="mesh" mesh="box" contype="0" conaffinity="0"/>
    <site name="ahead" quat=".7071 0 .7071 0" pos=".1 0 0"/><site name="down" quat="0 1 0 0"/>
    <site name="aside" pos="0 .1 0" quat=".6 -.6 .3 .1"/></body></worldbody>
<sensor><rangefinder site="ahead"/><rangefinder site="down" data="dist point"/><rangefinder site="aside" cutoff="3"/>
</sensor></mujoco>"""


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_rangefinders_of_a_drone_measure_gates_and_others(dtype: torch.dtype) -> None:
    """Among meshes that move, one of them its own, which it does not see."""
    n, met = 60, 0
    mjm = oracle.sharpen(mujoco.MjModel.from_xml_string(RACE.format(assets=assets())))
    sim, rng = Simulation(mjm, n, dtype=dtype, outputs=("sensordata",)), np.random.default_rng(0)
    d = mujoco.MjData(mjm)
    moved = np.stack([mjm.qpos0 + rng.normal(0, 0.3, mjm.nq) for _ in range(n)])
    sim.qpos.copy_(torch.from_numpy(moved))
    sim.mocap_pos.copy_(torch.from_numpy(rng.normal(0, 0.5, (n, 1, 3)) + [2.0, 0, 1.5]))
    sim.mocap_quat.copy_(torch.from_numpy(rng.normal(0, 0.5, (n, 1, 4)) + [1.0, 0, 0, 0]))
    sim.forward()
    for k in range(n):
        d.qpos[:], d.mocap_pos[:], d.mocap_quat[:] = (x[k].cpu() for x in (sim.qpos, sim.mocap_pos, sim.mocap_quat))
        mujoco.mj_forward(mjm, d)
        bound = 1e-10 if dtype == torch.float64 else 2e-4
        np.testing.assert_allclose(sim.sensordata[k].cpu(), d.sensordata, rtol=bound, atol=bound)
        met += d.sensordata[0] > 0 and abs(d.sensordata[0] - 2) < 1.5
    assert met > 10


@pytest.mark.skipif(torch.get_default_device().type != "cpu", reason="on a GPU all other tests run this code itself")
def test_the_code_for_a_gpu_gives_the_same_bits() -> None:
    """Where rays meet and miss a gate, by the interpreter of PTX."""
    request = simulation_kernels.KernelRequest(load(mujoco.MjModel.from_xml_string(SHAPES)), ("sensordata",))
    program, rng = simulation_kernels.program(request, "float32", stepping=False), np.random.default_rng(0)
    state = {"qpos": rng.normal(0, 0.4, (7, 256)), "qvel": np.zeros((6, 256)), "qacc_warmstart": np.zeros((6, 256))}
    ours, theirs = kernels.tensors(program, state), kernels.tensors(program, state)
    kernels.build(program).bind(ours)()
    Machine(cuda.assembly(program)).launch(list(theirs.values()), 256)
    found = ours["sensordata"][:, :256].numpy()
    np.testing.assert_array_equal(theirs["sensordata"][:, :256].numpy().view(np.int32), found.view(np.int32))
    assert 20 < (found > 0).sum() < 200


def test_a_ray_does_not_slip_through_between_triangles() -> None:
    """Nor at a corner of them, in float32: a drone before the middle of a mesh's face."""
    mjm = mujoco.MjModel.from_xml_string(
        f"""<mujoco>{assets()}<worldbody><geom type="mesh" mesh="box" pos="0 0 -2" contype="0" conaffinity="0"/>
        <body><freejoint/><geom size=".1" mass="1"/><site name="down" quat="0 1 0 0"/></body></worldbody>
        <sensor><rangefinder site="down"/></sensor></mujoco>"""
    )
    shares = torch.linspace(-0.95, 0.95, 401)
    sim = Simulation(mjm, 2 * len(shares), outputs=("sensordata",))
    for side, at in ((1.0, slice(0, len(shares))), (-1.0, slice(len(shares), None))):  # along both diagonals
        sim.qpos[at, 0], sim.qpos[at, 1] = 0.3 * shares, 0.2 * side * shares
    sim.forward()
    assert (sim.sensordata > 0).all()


def test_meshes_of_too_many_triangles_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "MOST", 50)
    with pytest.raises(UnsupportedModel, match=r"may meet geom 'geom 1', a mesh of 64 triangles \(50 are the most\)"):
        Simulation(mujoco.MjModel.from_xml_string(RACE.format(assets=assets())), 1, outputs=("sensordata",))

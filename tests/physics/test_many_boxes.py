"""Robots on ground of some hundred geoms: each world lists those that are near (`constraints/batch/near_pairs`)."""

from __future__ import annotations

import copy

import mujoco
import numpy as np
import oracle
import pytest
import torch
from kernels import record_list, run
from ptx import Machine

from torch_mjenvs import Simulation
from torch_mjenvs.compiler import cuda
from torch_mjenvs.compiler.build import build
from torch_mjenvs.compiler.control import unrolling
from torch_mjenvs.compiler.llvm import NVIDIA
from torch_mjenvs.physics import load
from torch_mjenvs.physics.columns import vary
from torch_mjenvs.physics.constraints.batch import cells, pair_batch
from torch_mjenvs.physics.constraints.batch.near_groups import NearPairs, near_groups
from torch_mjenvs.physics.constraints.batch.pair_batch import divided
from torch_mjenvs.physics.kernel_request import KernelRequest
from torch_mjenvs.physics.model.enums import GeomType
from torch_mjenvs.physics.model.precision import DOUBLE
from torch_mjenvs.physics.pipeline import derive
from torch_mjenvs.physics.simulation_kernels import program

CPU = torch.device("cpu")

LEG = """<body pos="{x} {y} 0"><joint name="hip{k}" axis="0 1 0" damping=".3" stiffness="5"/>
  <geom type="capsule" fromto="0 0 -.03 0 0 -.2" size=".03"/>
  <body pos="0 0 -.2"><joint axis="1 0 0" damping=".1"/><geom size=".04"/><site name="foot{k}" size=".05"/></body>
  </body>"""
PLACES = [(0.2, 0.15), (0.2, -0.15), (-0.2, 0.15), (-0.2, -0.15)]
SURFACES = ('friction=".9 .01 .01"', 'friction=".4 .01 .01" margin=".02" gap=".01"', 'solref=".01 1"')


def ground(n: int, size: float, other: str, seed: int = 0) -> str:
    """Boxes of many sizes that lean, and other shapes; every third is in a body of its own. They lie on a square."""
    rng, out = np.random.default_rng(seed), []
    for k in range(n):
        x, y = rng.uniform(-size, size, 2)
        a, b, c = rng.uniform(0.05, 0.2, 3)
        z, (one, two) = rng.uniform(0, 0.1), rng.uniform(-30, 30, 2)
        pose = f'pos="{x:.3f} {y:.3f} {z:.3f}" euler="{one:.1f} {two:.1f} 0"'
        shape = other if k % 4 == 3 else f'type="box" size="{a:.3f} {b:.3f} {c:.3f}"'
        geom = f"{shape} {SURFACES[k % 3]}"
        out.append(f"<body {pose}><geom {geom}/></body>" if k % 3 == 0 else f"<geom {pose} {geom}/>")
    return "".join(out)


def robot(option: str, around: str, more: str = "", z: float = 0.45) -> mujoco.MjModel:
    """A quadruped whose trunk is a box, on such ground. Its parts do not touch each other."""
    legs = "".join(LEG.format(k=k, x=x, y=y) for k, (x, y) in enumerate(PLACES))
    return oracle.sharpen(
        mujoco.MjModel.from_xml_string(f"""<mujoco><option timestep=".004" {option}/>
        <default><geom contype="1" conaffinity="2"/></default>
        <worldbody><geom type="plane" size="9 9 1" contype="2"/>
        <body pos="0 0 {z}"><freejoint/><geom type="box" size=".2 .12 .05" mass="4"/>{legs}</body>
        <geom type="box" pos="0 0 -5" size=".1 .1 .1" contype="0" conaffinity="0"/>
        {around.replace("<geom ", '<geom contype="2" conaffinity="1" ')}</worldbody>{more}</mujoco>""")
    )


def walked(model: mujoco.MjModel, n: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """States with contacts, each somewhere else on the ground."""
    rng, out, data = np.random.default_rng(1), [], mujoco.MjData(model)
    while len(out) < n:
        mujoco.mj_resetData(model, data)
        data.qpos[:2] = rng.uniform(-1.2, 1.2, 2)
        data.qvel[:] = rng.normal(0, 0.5, model.nv)
        mujoco.mj_step(model, data, 90)
        if data.ncon >= 3:
            out.append((data.qpos.copy(), data.qvel.copy()))
    return out


def in_lists(model: mujoco.MjModel) -> int:
    pools = divided(load(model), DOUBLE)[1]
    return sum(len(pairs) for batches in pools for pairs in batches if isinstance(pairs, NearPairs))


@pytest.mark.parametrize(
    ("option", "other"),
    [("", 'type="capsule" size=".06 .1"'), ('cone="elliptic" integrator="implicitfast"', 'type="sphere" size=".09"')],
    ids=["pyramids, capsules", "cones, spheres"],
)
def test_a_robot_on_boxes_moves_as_in_mujoco(option, other):
    """With sensors of touch, forces on bodies that stand still, and the number of contacts."""
    touch = "".join(f'<touch site="foot{k}"/>' for k in range(4))
    model = robot(option, ground(240, 1.5, other), f"<sensor>{touch}</sensor>")
    assert in_lists(model) >= 0.8 * len(load(model).pairs) > 1000
    names = ("qpos", "qvel", "qacc", "cfrc_ext", "sensordata", "ncon")
    sim = Simulation(model, 24, dtype=torch.float64, outputs=names[2:])
    data = oracle.compare_steps(sim, model, walked(model, 24), 1, 3, names)
    bodies = np.array([d.cfrc_ext.any(1) for d in data])[:, model.body_weldid == 0]
    assert bodies.any(), "nothing touched a body of the ground"


def test_masses_and_damping_vary():
    model = robot("", ground(150, 1.2, 'type="sphere" size=".09"'))
    sim = Simulation(model, 6, dtype=torch.float64, vary=("body_mass", "dof_damping"))
    states, rng = walked(model, 6), np.random.default_rng(0)
    for k, (qpos, qvel) in enumerate(states):
        one = copy.copy(model)
        for name in ("body_mass", "dof_damping"):
            getattr(one, name)[:] *= rng.uniform(0.8, 1.2, getattr(one, name).shape)
            sim.params[name][k] = torch.from_numpy(getattr(one, name))
        sim.qpos[k], sim.qvel[k] = torch.from_numpy(qpos), torch.from_numpy(qvel)
        data = mujoco.MjData(one)
        mujoco.mj_setConst(one, data)
        data.qpos[:], data.qvel[:] = qpos, qvel
        mujoco.mj_step(one, data)
        states[k] = data.qpos.copy(), data.qvel.copy()
    sim.step()
    for k, want in enumerate(states):
        for got, x in zip((sim.qpos[k], sim.qvel[k]), want, strict=True):
            np.testing.assert_allclose(got.cpu().numpy(), x, rtol=0, atol=1e-9)


def test_a_world_that_is_lost_leaves_the_others_alone():
    """Worlds far beyond the ground, and one whose place is no number."""
    model = robot("", ground(150, 1.2, 'type="sphere" size=".09"'))
    states = walked(model, 4)
    sims = [Simulation(model, n, dtype=torch.float64) for n in (4, 7)]
    for sim in sims:
        for k, (qpos, qvel) in enumerate(states):
            sim.qpos[k], sim.qvel[k] = torch.from_numpy(qpos), torch.from_numpy(qvel)
    sims[1].qpos[4:, :2] = torch.tensor([[1e6, -1e6], [-300.0, 5.0], [float("nan"), 0.0]], device=sims[1].device)
    for sim in sims:
        sim.step(3)
    assert torch.equal(sims[0].qpos, sims[1].qpos[:4]) and torch.equal(sims[0].qvel, sims[1].qvel[:4])
    assert sims[1].qpos[:6].isfinite().all()


def test_plain_numbers_find_what_kernels_find():
    m = load(model := robot("", ground(150, 1.2, 'type="sphere" size=".09"')))
    for qpos, qvel in walked(model, 3):
        d = derive(m, qpos.tolist(), qvel.tolist(), None, [])
        want = oracle.forward(model, qpos, qvel, np.zeros(0))
        np.testing.assert_allclose(list(d.qacc), want.qacc, rtol=0, atol=1e-9 * np.abs(want.qacc).max())


def test_a_box_whose_place_varies_is_no_ground():
    """All others are: which stand still is asked of a world's own model."""
    m = load(model := robot("", ground(150, 1.2, 'type="sphere" size=".09"')))
    (qpos, qvel), *_ = walked(model, 1)
    moved = max(g for g in range(m.ngeom) if m.geom_type[g] == GeomType.BOX and not m.geom_bodyid[g])
    model.geom_pos[moved] = place = [*qpos[:2], 0.1]  # under the robot

    def accelerate(x: list) -> list:
        places = [x if g == moved else [*row] for g, row in enumerate(m.geom_pos)]
        return list(derive(vary(m, {"geom_pos": places}), qpos.tolist(), qvel.tolist(), None, []).qacc)

    found = run(record_list(accelerate, 3, m.nv, "float64"), {"x": np.array([place]).T})["y"][:, 0]
    want = oracle.forward(model, qpos, qvel, np.zeros(0)).qacc
    np.testing.assert_allclose(found, want, rtol=0, atol=1e-9 * np.abs(want).max())


def test_places_are_as_many_as_boxes_are_near_at_once():
    """And each cell lists what is near any point in it."""
    rng = np.random.default_rng(0)
    middles, halves, reach = rng.uniform(-2, 2, (60, 3)), rng.uniform(0.05, 0.4, (60, 3)), 0.15
    grid = cells.Cells.of(middles, halves, [reach], 1e-6)
    most = 0
    for x in rng.uniform(-3, 3, (4000, 2)):
        near = np.flatnonzero((np.abs(x - middles[:, :2]) < halves[:, :2] + reach).all(1))
        first, many = map(int, grid.at([*x, 0.0]))
        assert {float(k) for k in near} <= set(grid.entries.values[first : first + many])
        most = max(most, len(near))
    corners = np.stack(np.meshgrid((middles - halves)[:, 0], (middles - halves)[:, 1]), -1).reshape(-1, 1, 2)
    there = (np.abs(corners - middles[:, :2]) <= halves[:, :2] + 1e-9).all(2).sum(1)
    assert cells.deepest(middles, halves) == there.max() and cells.deepest(middles, halves + reach) >= most


def test_a_few_boxes_and_those_that_move_are_no_ground():
    few, many = ground(20, 1.0, 'size=".1"'), ground(60, 1.0, 'size=".1"')
    for around, listed in ((few, 0), (many, 60), (many.replace("<body ", '<body mocap="true" '), 40)):
        m = load(robot("", around))
        found = near_groups(m, list(m.pairs))
        both = [(p.geom1, p.geom2) for pairs in found if isinstance(pairs, NearPairs) for p in pairs]
        assert len({g for two in both for g in two if not m.body_weldid[m.geom_bodyid[g]]}) == listed
        assert sum(map(len, found)) == len(m.pairs)


def test_equal_models_have_pairs_of_their_own(monkeypatch):
    monkeypatch.setattr(pair_batch, "LONG", 0)
    one, two = (load(robot("", ground(150, 1.2, 'size=".09"'))) for _ in range(2))
    for m in (one, two):
        assert {id(p) for pairs in divided(m, DOUBLE)[1][0] for p in pairs} == {id(p) for p in m.pairs}


@pytest.mark.cpu
def test_a_gpu_s_code_gives_the_same_bits():
    model = robot("", ground(60, 0.9, 'type="capsule" size=".06 .1"'))
    request, states, found = KernelRequest(load(model)), walked(model, 8), list[dict[str, torch.Tensor]]()
    with unrolling(NVIDIA.unroll_limit):
        apart = program(request, "float32")
    together = program(request, "float32")
    for launch in (
        lambda given: build(together, CPU).bind(given)(),
        lambda given: Machine(cuda.assembly(apart)).launch(list(given.values()), 16),
    ):
        given = {b.name: torch.zeros(b.size, 16) for b in together.buffers}
        for name, rows in zip(("qpos", "qvel"), zip(*states, strict=True), strict=True):
            given[name][:, :8] = torch.from_numpy(np.array(rows).T)
            given[name][:, 8:] = given[name][:, :8]
        launch(given)
        found.append(given)
    assert all(torch.equal(found[0][name], found[1][name]) for name in ("qpos", "qvel"))


def test_in_float32_it_accelerates_as_in_mujoco():
    model = robot("", ground(240, 1.5, 'type="capsule" size=".06 .1"'))
    oracle.compare_float32(Simulation(model, 8, dtype=torch.float32, outputs=("qacc",)), model, walked(model, 8))

"""A small robot on every kind of terrain, as in MuJoCo C; and in a task with levels, spawn points and a height scan."""

from __future__ import annotations

from dataclasses import dataclass

import kernels
import mujoco
import numpy as np
import oracle
import pytest
import robot
import torch
from ptx import Machine

from torch_mjenvs import Outcome, Simulation, Task, TorchVectorEnv
from torch_mjenvs.compiler import cuda
from torch_mjenvs.physics import load, simulation_kernels
from torch_mjenvs.terrain import KINDS, TerrainGenerator, grid, heights
from torch_mjenvs.vectors import from_axis_angle, norm, sub

ROWS = 2
GROUND = TerrainGenerator(size=(4.0, 4.0), num_rows=ROWS, num_cols=len(KINDS), border_width=1.0, seed=2)


def falling(mjm: mujoco.MjModel) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """A state (qpos, qvel, ctrl) in each cell, some way from its middle."""
    rng, out = np.random.default_rng(0), []
    for row in range(ROWS):
        for column in range(len(KINDS)):
            qpos = mjm.qpos0.copy()
            place = GROUND.origins[row, column] + [*rng.uniform(-1.0, 1.0, 2), 0.6]
            qpos[:3] = place
            mujoco.mj_integratePos(mjm, qpos, rng.normal(0, 0.2, mjm.nv), 1.0)
            qpos[:3] = place
            out.append((qpos, rng.normal(0, 0.5, mjm.nv), rng.uniform(-0.6, 0.6, mjm.nu)))
    return out


def test_a_robot_goes_as_in_mujoco_on_every_kind_of_terrain():
    """For 300 steps from the fall on, with what its rangefinder measures: a world in each cell."""
    mjm = robot.on(GROUND)
    states = falling(mjm)
    sim = Simulation(mjm, len(states), dtype=torch.float64, outputs=["sensordata"])
    touched = [d.ncon for d in oracle.compare_steps(sim, mjm, states, 100, 3, ("qpos", "qvel", "sensordata"))]
    assert np.mean(np.array(touched) > 1) > 0.9


@pytest.mark.skipif(torch.get_default_device().type != "cpu", reason="on a GPU all other tests run this code itself")
def test_the_code_for_a_gpu_gives_the_same_bits():
    """A step on terrain, from where feet touch, by the interpreter of PTX."""
    mjm = robot.on(GROUND)
    states = falling(mjm)
    sim = Simulation(mjm, len(states), outputs=["sensordata"])
    for name, x in zip(("qpos", "qvel", "ctrl"), zip(*states, strict=True), strict=True):
        getattr(sim, name).copy_(torch.tensor(np.array(x)))
    sim.step(80)
    program = simulation_kernels.program(simulation_kernels.KernelRequest(load(mjm), ("sensordata",)), "float32")
    state = {name: getattr(sim, name).numpy().T for name in ("qpos", "qvel", "qacc_warmstart", "ctrl")}
    ours, theirs = kernels.tensors(program, state), kernels.tensors(program, state)
    kernels.build(program).bind(ours)()
    Machine(cuda.assembly(program)).launch(list(theirs.values()), kernels.launch.padded(len(states)))
    for name in ("qpos", "qvel", "sensordata"):
        mine, its = (x[name][:, : len(states)].numpy().view(np.int32) for x in (ours, theirs))
        np.testing.assert_array_equal(its, mine)
    assert (ours["sensordata"][0, : len(states)] > 0).float().mean() > 0.8


@dataclass(frozen=True)
class Climb(Task):
    """Go forward over ground of a level, which goes up and down by how far a world came."""

    xml_file: str = ""
    frame_skip: int = 5
    ground: TerrainGenerator = GROUND
    speed: float = 0.5  # that is asked for, m/s
    points: tuple[tuple[float, float], ...] = tuple(grid((0.8, 0.4), 0.2))

    def load(self):
        return robot.on(self.ground)

    def reset(self, m, rng, world):
        x, y, z = self.ground.origin(world.memory["next level"], rng.integers(self.ground.num_cols))
        quat = from_axis_angle([0.0, 0.0, 1.0], rng.uniform(-3.1, 3.1))
        return [x, y, z + 0.3, *quat, *[0.0] * 4], [0.0] * m.nv

    def memory(self, m):
        return {"level": 0.0, "column": 0.0, "next level": 0.0}

    def begin(self, m, world):
        level, column = self.ground.cell(*world.qpos[:2])
        return {"level": level, "column": column, "next level": level}

    def remember(self, m, before, action, after):
        level = before.memory["level"]
        came = norm(sub(after.qpos[:2], self.ground.origin(level, before.memory["column"])[:2]))
        asked = self.speed * self.max_episode_steps * self.dt(m)
        return {"next level": self.ground.next_level(level, came, asked, after.rng.integers(self.ground.num_rows))}

    def observe(self, m, world):
        x, y, z = world.data.xpos[m.body("trunk")]
        return [x, y, z, *(z - h for h in heights(m, world, self.points, body="trunk"))]

    def outcome(self, m, before, action, after):
        return Outcome(after.qpos[0] - before.qpos[0], False)


def test_a_task_has_levels_spawn_points_and_a_scan():
    """Worlds are put nowhere, half of a cell away or further, and begin their next episodes by that."""
    task, mjm = Climb(), robot.on(GROUND)
    env = TorchVectorEnv(task, num_envs=96, dtype=torch.float64, max_episode_steps=2, autoreset_mode="SameStep")
    obs, _ = env.reset(seed=1)
    memory, seen = env.unwrapped.engine.memory, set()
    for _ in range(6):
        level, column = (memory[name].long().cpu().numpy() for name in ("level", "column"))
        seen |= set(zip(level.tolist(), column.tolist(), strict=True))
        np.testing.assert_allclose(obs[:, :3].cpu(), GROUND.origins[level, column] + [0, 0, 0.3], rtol=0, atol=1e-12)
        _check_scans(mjm, env, obs)
        away = np.array([0.0, 1.0, 2.1])[np.arange(96) % 3]  # cells are 4 m wide
        env.unwrapped.qpos[:, 0] += torch.tensor(away, device=env.device)
        for _ in range(2):
            obs, _, _, truncated, _ = env.step(torch.zeros(96, 4, device=env.device))
        assert truncated.all()
        new = memory["level"].cpu().numpy()
        expected = level + (away > 2.0) - ((away < 2.0) & (level > 0))  # 10 m in 20 s are asked for
        past = expected == ROWS
        assert (new[~past] == expected[~past]).all() and set(new[past]) <= set(range(ROWS))
    assert past.any() and len(seen) == ROWS * len(KINDS)


def _check_scans(mjm: mujoco.MjModel, env: TorchVectorEnv, obs: torch.Tensor) -> None:
    """The scan is what MuJoCo's rays straight down measure."""
    d, ground = mujoco.MjData(mjm), np.array([0, 1, 0, 0, 0, 0], np.uint8)
    mjm.geom_group[:] = 0
    mjm.geom("terrain").group = 1
    for qpos, seen in zip(env.unwrapped.qpos.cpu().numpy(), obs.cpu().numpy(), strict=True):
        d.qpos[:] = qpos
        mujoco.mj_kinematics(mjm, d)
        cos_, sin_ = d.body("trunk").xmat[[0, 3]]
        for (x, y), z in zip(Climb().points, seen[3:], strict=True):
            at = d.body("trunk").xpos + [cos_ * x - sin_ * y, sin_ * x + cos_ * y, 3.0]
            down = mujoco.mj_ray(mjm, d, at, np.array([0, 0, -1.0]), ground, 1, -1, np.zeros(1, np.int32))
            assert abs(z - (down - 3.0)) < 1e-12

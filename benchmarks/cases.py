"""The tasks that are measured, as data, and our contenders: environments as users have them, and `Simulation`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import gymnasium
import torch
from gymnasium.vector import AutoresetMode

from torch_mjenvs import TASKS
from torch_mjenvs.envs.engine import Engine
from torch_mjenvs.envs.tasks.base import Task
from torch_mjenvs.physics.simulation import Simulation

from .machine import DTYPES, Contender


@dataclass(frozen=True)
class Case:
    """A task of ours and the environment of Gymnasium's that it stands for."""

    name: str
    gymnasium_id: str
    torch_id: str

    def task(self) -> Task:
        return TASKS[self.name]()


CASES = {
    name: Case(name, f"{name}-v5", f"Torch{name}-v0")
    for name in ("HalfCheetah", "Walker2d", "Hopper", "Ant", "Humanoid")
}
EPISODE_LIMIT = 1000  # Gymnasium's, for all of them


@dataclass(frozen=True)
class Effort:
    """How long to look. Worlds are environments or simulations."""

    num_envs: tuple[int, ...]
    rounds: int  # every contender runs for one window a round
    window: float  # seconds
    warmup: float  # seconds a contender
    memory_worlds: int
    compiled: tuple[str, ...]  # dtypes whose construction is timed


FULL = Effort((1, 16, 64, 256, 1024, 4096, 16384, 65536), 5, 0.2, 0.15, 65536, tuple(DTYPES))
QUICK = Effort((1, 64, 1024), 2, 0.05, 0.02, 16384, ("float32",))

RACE_NUM_ENVS = 4096  # ours, beside the peers: a size people train with, not the best of the sweep
SYNC_NUM_ENVS = 16
ENVPOOL_NUM_ENVS = 64


# our contenders

ACTION_SETS = 4
SEASON_WORLDS, SEASON_STEPS, SNAPSHOT_EVERY = 64, EPISODE_LIMIT, 20
RELOAD_EVERY = 5  # environment steps, then worlds are put back: without episodes they would leave these states
STATE = ("qpos", "qvel", "qacc_warmstart")


def make(case: Case, num_envs: int, dtype: torch.dtype) -> tuple[gymnasium.vector.VectorEnv, Engine]:
    """The environment and the engine in it."""
    same_step = AutoresetMode.SAME_STEP
    env = gymnasium.make_vec(case.torch_id, num_envs=num_envs, dtype=dtype, autoreset_mode=same_step, device="cpu")
    env.reset(seed=0)
    return env, env.unwrapped.engine


@dataclass(frozen=True)
class Season:
    """States that random actions lead to, at all ages of an episode, and how long an episode is."""

    states: dict[str, torch.Tensor]  # float64, (P, ...)
    episode_length: float

    def loader(self, target: Engine | Simulation) -> Callable[[], None]:
        """Return a function that puts the worlds of an engine or simulation into these states, each equally often."""
        chosen = torch.arange(len(target.qpos)) % len(self.states["qpos"])
        names = [name for name in (*STATE, "elapsed_steps") if hasattr(target, name)]
        views = [getattr(target, name) for name in names]
        # in the target's own type and layout, so that loading is a plain copy
        ready = [x.clone().copy_(self.states[name][chosen]) for name, x in zip(names, views, strict=True)]

        def load() -> None:
            for view, x in zip(views, ready, strict=True):
                view.copy_(x)

        return load


def season(case: Case) -> Season:
    """Run worlds for a whole episode, after which their states are typical. They are recorded once, then copied."""
    torch.manual_seed(0)
    env, engine = make(case, SEASON_WORLDS, torch.float64)
    snapshots, ended = [], 0
    for k in range(SEASON_STEPS):
        env.step(draw_actions(engine, SEASON_WORLDS, 1)[0])
        ended += int((engine.terminated | engine.truncated).sum())
        if k % SNAPSHOT_EVERY == 0:
            snapshots.append({name: getattr(engine, name).clone() for name in (*STATE, "elapsed_steps")})
    states = {name: torch.cat([x[name] for x in snapshots]) for name in snapshots[0]}
    shuffled = torch.randperm(len(states["qpos"]))
    length = SEASON_WORLDS * SEASON_STEPS / ended if ended else EPISODE_LIMIT
    return Season({name: x[shuffled] for name, x in states.items()}, length)


def draw_actions(engine: Engine, num_envs: int, sets: int) -> torch.Tensor:
    """(sets, num_envs, nu) uniform over the actuators' ranges."""
    low, high = torch.from_numpy(engine.mjmodel.actuator_ctrlrange.T.copy()).to(engine.dtype)
    return low + (high - low) * torch.rand((sets, num_envs, engine.layout.nu), dtype=engine.dtype)


def environment(case: Case, num_envs: int, dtype: str, seasoned: Season, threads: int | None = None) -> Contender:
    """Environment steps: actions copied in, observation, reward and autoreset included."""
    env, engine = make(case, num_envs, DTYPES[dtype])
    seasoned.loader(engine)()
    prepared = list(draw_actions(engine, num_envs, ACTION_SETS))
    k = 0

    def step() -> int:
        nonlocal k
        k = (k + 1) % ACTION_SETS
        env.step(prepared[k])
        return num_envs

    return Contender(f"{dtype} {num_envs}", step, threads)


def physics(case: Case, num_worlds: int, dtype: str, seasoned: Season, threads: int | None = None) -> Contender:
    """Physics steps through `Simulation`, the control held for the task's frame_skip steps."""
    task = case.task()
    sim = Simulation(task.load(), num_worlds, "cpu", DTYPES[dtype])
    low, high = torch.from_numpy(task.load().actuator_ctrlrange.T.copy()).to(sim.dtype)
    load = seasoned.loader(sim)
    shape = (ACTION_SETS, *sim.ctrl.shape)
    prepared = list(low + (high - low) * torch.rand(shape, dtype=sim.dtype))
    k = 0

    def step() -> int:
        nonlocal k
        if k % RELOAD_EVERY == 0:
            load()
        k += 1
        sim.ctrl.copy_(prepared[k % ACTION_SETS])
        sim.step(task.frame_skip)
        return num_worlds * task.frame_skip

    return Contender(f"Simulation {dtype}", step, threads)


def starts(case: Case, num_worlds: int) -> tuple[torch.Tensor, torch.Tensor]:
    """qpos and qvel of episodes' starts, float64."""
    engine = Engine(case.task(), num_worlds, dtype=torch.float64, device="cpu")
    engine.seed(0)
    engine.reset()
    return engine.qpos.clone(), engine.qvel.clone()

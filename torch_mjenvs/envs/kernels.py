"""What is traced for a task: the kernels that step and reset a batch, each in one launch.

A step clamps and applies the action, does all substeps, and computes observation, reward, flags and info; where an
episode ended and the autoreset mode asks for it, it also draws the next episode's start, keeping the true final
observation apart. A world whose action or state is not finite (or passes mjMAXVAL) stops there: it is ended with
reward 0 at its last good state, and flagged; no other world can tell.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from gymnasium.vector import AutoresetMode

from ..compiler import source
from ..compiler.control import when_any
from ..compiler.program import Buffer, Program, record
from ..compiler.random import Random
from ..compiler.scalar import Mask, absolute, logical_and, logical_not, logical_or, select
from ..physics.model import Model
from ..physics.simulation import derive
from ..physics.spatial import MAXVAL
from ..physics.step import State, steps
from .task import Task, World

BAD_STATE = "bad_state"


@dataclass(frozen=True)
class Layout:
    """The widths of a task's buffers, and the names in its info."""

    nq: int
    nv: int
    nu: int
    obs: int
    memory: int
    info: dict[str, int]  # width of each name of the next two together; 0: one number a world, not a list of them
    step_info: tuple[str, ...]
    reset_info: tuple[str, ...]

    def buffers(self) -> list[Buffer]:
        """State is world-minor; what users hand in and out has a row a world."""
        return [
            Buffer("qpos", self.nq),
            Buffer("qvel", self.nv),
            Buffer("qacc_warmstart", self.nv),
            Buffer("memory", self.memory),
            Buffer("elapsed_steps", 1, "i"),
            Buffer("episode", 1, "i"),
            Buffer("key", 3, "i"),
            Buffer("done", 1, "b"),
            Buffer("reset_mask", 1, "b"),
            Buffer("action", self.nu, rows=True),
            Buffer("obs", self.obs, rows=True),
            Buffer("final_obs", self.obs, rows=True),
            Buffer("reward", 1),
            Buffer("terminated", 1, "b"),
            Buffer("truncated", 1, "b"),
            Buffer(BAD_STATE, 1, "b"),
            Buffer("info", sum(max(1, width) for width in self.info.values())),
            Buffer("final_info", sum(max(1, width) for width in self.info.values())),
        ]


def is_bad(xs: list) -> Mask:
    """Any of them not finite, or beyond mjMAXVAL. mj_checkPos, mj_checkVel, mj_checkAcc."""
    return logical_not(logical_and(*(absolute(x) <= MAXVAL for x in xs)))


def choose(mask: Mask, a: list, b: list) -> list:
    return [select(mask, x, y) for x, y in zip(a, b, strict=True)]


def _is_plain(x: object) -> bool:
    """Whether repr says all of it: what is derived from these types may say less."""
    if type(x) is tuple:
        return all(map(_is_plain, x))
    return type(x) in (type(None), bool, int, float, str)


@dataclass(frozen=True)
class Kernels:
    """What is traced for one task: the step and the reset of a batch."""

    task: Task
    model: Model
    mode: AutoresetMode
    max_episode_steps: int | None

    def begun(self, qpos: list, qvel: list) -> World:
        """A world that was put into a state: mj_forward has run, but not mj_rnePostConstraint."""
        m = self.model
        data = derive(m, qpos, qvel, None, [0.0] * m.nu)
        data.cfrc_ext = [[0.0] * 6 for _ in range(m.nbody)]
        return World(qpos, qvel, [], data)

    def start(self, b: dict[str, list]) -> dict[str, list]:
        """A new episode: state, observation and info."""
        rng = Random(b["key"][0], b["key"][1], b["episode"][0], b["key"][2], 0)
        return self.entered(*self.task.reset(self.model, rng))

    def entered(self, qpos: list, qvel: list) -> dict[str, list]:
        """A world that was put into a state: all of its state, observation and info."""
        m, world = self.model, self.begun(qpos, qvel)
        world.memory = self.task.memory(m, world)
        return {
            "state": [qpos, qvel, [0.0] * m.nv, world.memory],
            "obs": self.task.observe(m, world),
            "info": self.named(self.task.reset_info(m, world)),
        }

    def named(self, info: dict) -> list:
        """In the layout's order, 0 where a name is absent."""
        out: list = []
        for name, width in self.layout.info.items():
            value = info.get(name, [0.0] * width if width else 0.0)
            out += value if width else [value]
        return out

    @functools.cached_property
    def layout(self) -> Layout:
        """Found by running the task once on plain numbers."""
        m = self.model
        world = self.begun(list(m.qpos0), [0.0] * m.nv)
        world.memory = self.task.memory(m, world)
        reset_info = self.task.reset_info(m, world)
        step_info = self.task.outcome(m, world, [0.0] * m.nu, world).info
        widths = {name: len(x) if isinstance(x, list) else 0 for name, x in (step_info | reset_info).items()}
        obs, memory = self.task.observe(m, world), world.memory
        return Layout(m.nq, m.nv, m.nu, len(obs), len(memory), widths, tuple(step_info), tuple(reset_info))

    def refresh(self, b: dict[str, list]) -> dict[str, list]:
        """What follows from the state of the worlds of `reset_mask`, after it was set from outside."""
        mask, new = b["reset_mask"][0], self.entered(b["qpos"], b["qvel"])
        return {
            "memory": choose(mask, new["state"][3], b["memory"]),
            "obs": choose(mask, new["obs"], b["obs"]),
            "info": choose(mask, new["info"], b["info"]),
        }

    def reset(self, b: dict[str, list]) -> dict[str, list]:
        """New episodes in the worlds of `reset_mask`; the others stay as they are."""
        mask = b["reset_mask"][0]
        new = self.start(b)
        qpos, qvel, warmstart, memory = new["state"]
        return {
            "qpos": choose(mask, qpos, b["qpos"]),
            "qvel": choose(mask, qvel, b["qvel"]),
            "qacc_warmstart": choose(mask, warmstart, b["qacc_warmstart"]),
            "memory": choose(mask, memory, b["memory"]),
            "elapsed_steps": [select(mask, 0, b["elapsed_steps"][0])],
            "episode": [select(mask, b["episode"][0] + 1, b["episode"][0])],
            "done": [logical_and(b["done"][0], logical_not(mask))],
            "obs": choose(mask, new["obs"], b["obs"]),
            "info": choose(mask, new["info"], b["info"]),
        }

    def step(self, b: dict[str, list]) -> dict[str, list]:
        """One environment step of every world, autoreset included."""
        m = self.model
        bad_action, bad_start = is_bad(b["action"]), is_bad(b["qpos"] + b["qvel"] + b["qacc_warmstart"])
        zeros = [0.0] * m.nv
        old = [
            choose(bad_start, list(m.qpos0), b["qpos"]),
            choose(bad_start, zeros, b["qvel"]),
            choose(bad_start, zeros, b["qacc_warmstart"]),
        ]
        action = choose(bad_action, [0.0] * m.nu, b["action"])
        moved = steps(m, State(old[0], old[1], old[2]), action, self.task.frame_skip)
        new = [moved.qpos, moved.qvel, moved.qacc_warmstart]
        bad = logical_or(bad_action, bad_start, is_bad([x for part in new for x in part]))
        new = [choose(bad, o, n) for o, n in zip(old, new, strict=True)]

        last = {k: choose(bad, o, moved.last[k]) for k, o in zip(("qpos", "qvel", "qacc"), old, strict=True)}

        data = derive(m, last["qpos"], last["qvel"], last["qacc"], action)
        data.cfrc_ext = [choose(bad, [0.0] * 6, wrench) for wrench in moved.last["cfrc_ext"]]
        world = World(new[0], new[1], [], data)
        new.append(self.task.memory(m, world))
        world.memory = new[3]
        before = self.begun(old[0], old[1])
        before.memory = choose(bad_start, self.task.memory(m, before), b["memory"])
        outcome = self.task.outcome(m, before, action, world)
        reward = select(bad, 0.0, outcome.reward)
        terminated = logical_or(outcome.terminated, bad)
        elapsed = b["elapsed_steps"][0] + 1
        limit = self.max_episode_steps
        truncated = False if limit is None else logical_not(elapsed < limit)
        obs = self.task.observe(m, world)
        info = self.named(outcome.info)
        out = {
            "state": new, "obs": obs, "info": info, "elapsed": elapsed, "episode": b["episode"][0],
            "reward": reward, "terminated": terminated, "truncated": truncated, "bad": bad,
        }  # fmt: skip
        ended = logical_or(terminated, truncated)
        done = ended
        if self.mode == AutoresetMode.SAME_STEP:
            out = self.restart(b, ended, out)
            done = False
        elif self.mode == AutoresetMode.NEXT_STEP:
            waiting = b["done"][0]
            out = self.restart(b, waiting, out)
            alive = logical_not(waiting)
            out["reward"] = select(waiting, 0.0, out["reward"])
            for flag in ("terminated", "truncated", "bad"):
                out[flag] = logical_and(out[flag], alive)
            done = logical_and(ended, alive)
        stores = {
            "qpos": out["state"][0],
            "qvel": out["state"][1],
            "qacc_warmstart": out["state"][2],
            "memory": out["state"][3],
            "elapsed_steps": [out["elapsed"]],
            "episode": [out["episode"]],
            "done": [done],
            "obs": out["obs"],
            "reward": [out["reward"]],
            "terminated": [out["terminated"]],
            "truncated": [out["truncated"]],
            BAD_STATE: [out["bad"]],
            "info": out["info"],
        }
        if self.mode == AutoresetMode.SAME_STEP:
            stores |= {"final_obs": obs, "final_info": info}
        return stores

    def restart(self, b: dict[str, list], mask: Mask, out: dict) -> dict:
        """`out` with a new episode in the worlds of the mask."""
        keep = {k: out[k] for k in ("state", "obs", "info", "elapsed", "episode")}

        def begin(_: dict) -> dict:
            return self.start(b) | {"elapsed": 0, "episode": b["episode"][0] + 1}

        return out | when_any(mask, begin, keep)

    def name(self, what: str) -> str:
        return f"{type(self.task).__name__.lower()}-{what}"

    def origin(self) -> str | None:
        """All that the kernels follow from; None for a user's task, whose Python rests on more than can be known."""
        values = vars(self.task)
        if not (source.holds(type(self.task)) and all(map(_is_plain, values.values()))):
            return None
        task = f"{type(self.task).__qualname__} {values}"
        return source.origin(task, self.model.key, f"{self.mode} {self.max_episode_steps!r}")

    def program(self, what: str, dtype: str) -> Program:
        """The kernel `step`, `reset` or `refresh`, recorded."""
        return record(self.name(what), self.layout.buffers(), getattr(self, what), dtype)

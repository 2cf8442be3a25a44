"""Random tasks in the package's environments, beside plain loops and beside each other.

    python tests/tried_tasks.py --seed 0 --count 100

A failure is shown as the source of the smallest task found that still has it.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import math
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import mujoco
import numpy as np
import oracle
import plain_tasks
import random_tasks
import torch
from plain_tasks import PlainWorld, flat, plain_task
from random_tasks import Plan

import torch_mjenvs
from torch_mjenvs import TorchVectorEnv, controls, scalar
from torch_mjenvs.compiler import loader

VOCABULARY = {name: getattr(scalar, name) for name in scalar.__all__} | {
    "Task": torch_mjenvs.Task, "Outcome": torch_mjenvs.Outcome, "Start": torch_mjenvs.Start,
    "Control": torch_mjenvs.Control, "Normal": torch_mjenvs.Normal, "dataclass": dataclasses.dataclass,
    "inf": math.inf, "controls": controls, "scaled": random_tasks.scaled,
}  # fmt: skip
TOLERANCE = 1e-9


class Wrong(Exception):
    """A property does not hold. Its first argument says which, without numbers."""


def demand(true: Any, what: str, *more: Any) -> None:
    if not true:
        raise Wrong(what, *more)


def model_of(plan: Plan) -> mujoco.MjModel:
    return oracle.sharpen(mujoco.MjModel.from_xml_string(plan.xml))


def task_of(plan: Plan) -> Any:
    space = dict(VOCABULARY)
    exec(compile("from __future__ import annotations\n" + plan.source, "<random task>", "exec"), space)
    kind = space["Drawn"]
    kind.load = lambda self: model_of(plan)
    return kind()


def draws_of(plan: Plan) -> dict[str, Any]:
    return {k: eval(v, {"Scale": torch_mjenvs.Scale, "Shift": torch_mjenvs.Shift}) for k, v in plan.run["randomize"].items()}


def environment(plan: Plan, n: int, **changed: Any) -> TorchVectorEnv:
    run = plan.run
    given: dict[str, Any] = {
        "dtype": torch.float64, "autoreset_mode": run["mode"], "max_episode_steps": run["limit"],
        "action_repeat": run["repeat"], "observation": run["form"], "first_world": run["first_world"],
        "randomize": draws_of(plan), "vary": run["vary"],
    }  # fmt: skip
    return TorchVectorEnv(task_of(plan), n, **(given | changed))


def rows(obs: Any) -> torch.Tensor:
    """An observation as one row for each world."""
    if isinstance(obs, Mapping):
        return torch.cat([rows(x) for x in obs.values()], 1)
    return obs.reshape(len(obs), -1)


class Beside:
    """An environment, and plain worlds that do the same."""

    def __init__(self, plan: Plan, n: int = 3):
        self.plan, self.n = plan, n
        self.env = environment(plan, n)
        source = plan.source
        first = plan.run["first_world"]
        self.worlds = [
            PlainWorld(plain_task(source, {"scaled": random_tasks.scaled}), model_of(plan), first + i) for i in range(n)
        ]
        self.limit = None if plan.run["limit"] == -1 else plan.run["limit"]
        self.by_task = [*plan.parts.get("randomize", {})]
        self.by_reset = [*eval(plan.parts["class"].get("reset_parameters", "()"))]
        self.worst = 0.0

    def close(self, ours: Any, theirs: Any, what: str, *more: Any) -> None:
        a, b = np.asarray(ours, float), np.asarray(theirs, float)
        demand(a.shape == b.shape, f"shape of {what}", a.shape, b.shape, *more)
        error = float(np.max(np.abs(a - b) / (1 + np.abs(b)), initial=0.0))
        demand(np.isfinite(a).all(), f"{what} is not finite", a, b, *more)
        self.worst = max(self.worst, error)
        demand(error < TOLERANCE, what, error, a, b, *more)

    def params(self, i: int) -> dict[str, Any]:
        """What the environment has drawn for a world, or the user has set."""
        mine = [*self.plan.run["randomize"], *self.plan.run["vary"]]
        return {k: self.env.params[k][i].numpy().copy() for k in mine}

    def begin(self, i: int) -> None:
        self.worlds[i].begin(self.params(i), self.by_task, self.by_reset)

    def reset(self, seed: Any = None, mask: list[bool] | None = None) -> None:
        options = None if mask is None else {"reset_mask": mask}
        obs, info = self.env.reset(seed=seed, options=options)
        chosen = [True] * self.n if mask is None else mask
        for i, w in enumerate(self.worlds):
            if not chosen[i]:
                continue
            if seed is not None and (isinstance(seed, int) or seed[i] is not None):
                s = seed if isinstance(seed, int) else seed[i]
                low, high = ((x + 2**31) % 2**32 - 2**31 for x in (s, s >> 32))
                w.key = (low, self.plan.run["first_world"] + i if isinstance(seed, int) else 0, high)
                w.episode = -1
            self.begin(i)
        self.compare_obs(obs, "observation of a reset")
        names = {k for w in self.worlds for k in w.info} if all(chosen) else set()
        for k in names:
            demand(k in info, "entry of a reset's info is missing", k)
        for k, x in info.items():
            if not k.startswith("_"):
                demand(info[f"_{k}"].tolist() == chosen, "mask of a reset's info", k)
                for i in range(self.n):
                    if chosen[i]:
                        self.close(flat(x[i].tolist()), self.worlds[i].info[k], "info of a reset", k)
        self.compare_state()
        demand(self.env.observation_space.contains(numpy(obs)), "observation is not in its space")

    def compare_obs(self, obs: Any, what: str) -> None:
        got = rows(obs)
        for i, w in enumerate(self.worlds):
            self.close(got[i].tolist(), w.obs, what, f"world {i}")

    def compare_state(self) -> None:
        engine = self.env.engine
        for i, w in enumerate(self.worlds):
            self.close(engine.qpos[i], w.data.qpos, "qpos", i)
            self.close(engine.qvel[i], w.data.qvel, "qvel", i)
            for k, x in w.memory.items():
                self.close(flat(engine.memory[k][i].tolist()), flat(x), "memory", k, i)
            demand(int(engine.elapsed_steps[i]) == w.elapsed, "elapsed steps", i)
            # both go on from the same bits, as spinning bodies part exponentially
            w.data.qpos[:], w.data.qvel[:] = engine.qpos[i], engine.qvel[i]
            if w.model.na:
                w.data.act[:] = engine.act[i]
            w.memory = plain_tasks.numbers({k: x[i].tolist() for k, x in engine.memory.items()})
            for k in (*self.by_task, *self.by_reset):
                value = w.model.opt.gravity if k == "gravity" else getattr(w.model, k)
                self.close(self.env.params[k][i], value, "parameters", k, i)

    def step(self, actions: np.ndarray) -> None:
        env, mode = self.env, self.plan.run["mode"]
        obs, reward, terminated, truncated, info = env.step(torch.tensor(actions))
        demand(not info["bad_state"].any(), "bad state")
        final = []  # of each world, before any reset
        for i, w in enumerate(self.worlds):
            if mode == "NextStep" and w.done:
                self.begin(i)
                final.append(None)
                result = {"reward": 0.0, "terminated": False, "truncated": False, "info": None}
            else:
                total = 0.0
                for _ in range(self.plan.run["repeat"]):
                    result = w.step(actions[i].tolist(), self.limit)
                    total += result["reward"]
                    if result["terminated"] or result["truncated"]:
                        break
                result["reward"] = total
                w.done = result["terminated"] or result["truncated"]
                final.append((w.obs, w.info, w.elapsed) if w.done else None)
                if mode == "SameStep" and w.done:
                    last_obs, last_info = w.obs, w.info
                    self.begin(i)
                    got = rows(info["final_obs"])[i].tolist()
                    self.close(got, last_obs, "final_obs", i)
                    for k, x in last_info.items():
                        if x == [0.0] and k in ("episode_end/terminated", "episode_end/truncated") and k not in info:
                            continue
                        self.close(flat(info["final_info"][k][i].tolist()), x, "final_info", k, i)
                        demand(info["final_info"][f"_{k}"][i], "mask of final_info", k)
            self.close(float(reward[i]), result["reward"], "reward", i)
            demand(bool(terminated[i]) == result["terminated"], "terminated", i, w.elapsed)
            demand(bool(truncated[i]) == result["truncated"], "truncated", i, w.elapsed)
            told = w.info
            for k in ("episode_end/terminated", "episode_end/truncated"):  # a mask that is always False is no reason
                if told.get(k) == [0.0] and k not in info:
                    del told[k]
            own = {k: x for k, x in info.items() if not k.startswith("_") and k not in ("final_obs", "final_info", "bad_state")}
            for k, x in own.items():
                demand(bool(info[f"_{k}"][i]) == (k in told), "mask of info", k, i)
                if k in told:
                    self.close(flat(x[i].tolist()), told[k], "info", k, i)
            demand(not told.keys() - own.keys(), "entry of info is missing", told.keys() - own.keys())
        if mode == "SameStep":
            ended = [x is not None for x in final]
            demand(info["_final_obs"].tolist() == ended and info["_final_info"].tolist() == ended, "masks of the end")
        self.compare_obs(obs, "observation of a step")
        self.compare_state()

    def set_state(self, rng: np.random.Generator) -> None:
        """Put some worlds where others are."""
        engine, m = self.env.engine, self.worlds[0].model
        qpos = np.array([w.data.qpos for w in self.worlds])[::-1].copy()
        qvel = np.clip([w.data.qvel for w in self.worlds], -3, 3) + 0.1
        act = np.full((self.n, m.na), 0.2)
        mask = rng.random(self.n) < 0.7
        self.env.set_state(qpos, qvel, mask, act if m.na else None)
        for i, w in enumerate(self.worlds):
            if mask[i]:
                w.set_state(qpos[i].tolist(), qvel[i].tolist(), act[i].tolist())
        self.compare_obs(self.env.obs, "observation of set_state")
        for i, w in enumerate(self.worlds):
            for k, x in w.info.items() if mask[i] else ():
                self.close(flat(engine.info[k][i].tolist()), x, "info of set_state", k, i)
        self.compare_state()

    def set_params(self, rng: np.random.Generator) -> None:
        mask = torch.tensor(rng.random(self.n) < 0.6)
        values = {k: self.env.params[k] * float(rng.uniform(0.7, 1.4)) for k in self.plan.run["vary"]}
        self.env.set_params(values, mask)
        for i, w in enumerate(self.worlds):
            w.set_params({k: x.numpy() for k, x in self.params_set(i).items()} if mask[i] else {})

    def params_set(self, i: int) -> dict[str, torch.Tensor]:
        return {k: self.env.params[k][i].clone() for k in self.plan.run["vary"]}

    def run(self, steps: int = 12) -> None:
        rng = np.random.default_rng(1)
        self.reset(self.plan.run["seed"])
        shape = self.env.action_space.shape
        for t in range(steps):
            if self.plan.run["mode"] == "Disabled" and any(w.done for w in self.worlds):
                self.reset(None, [w.done for w in self.worlds])
            what = rng.random()
            if what < 0.08:
                self.reset([int(rng.integers(99)) if rng.random() < 0.6 else None for _ in range(self.n)],
                           None if rng.random() < 0.5 or t == 0 else [True, False, True][: self.n])
            elif what < 0.16:
                self.set_state(rng)
            elif what < 0.24 and self.plan.run["vary"]:
                self.set_params(rng)
            elif what < 0.30 and self.worlds[0].first:
                name = [*self.worlds[0].first][0]
                self.env.engine.memory[name].fill_(0.4)
                for w in self.worlds:
                    w.memory[name] = plain_tasks.numbers([0.4] * len(w.memory[name]) if isinstance(w.memory[name], list) else 0.4)
            if self.plan.run["mode"] == "Disabled" and any(w.done for w in self.worlds):
                self.reset(None, [w.done for w in self.worlds])
            self.step(rng.uniform(-1, 1, shape) * rng.choice([0.3, 1.0, 1.5]))


# environments beside each other


def told(obs: Any, info: Mapping[str, Any], **more: torch.Tensor) -> dict[str, torch.Tensor]:
    """What a step or a reset tells, as tensors that are nobody else's; 0 where a mask says that there is nothing."""
    out = {"obs": rows(obs).clone()} | {k: x.clone() for k, x in more.items()}
    for k, x in info.items():
        if k.startswith("_"):
            out[k] = x.clone()
        elif k == "final_obs":
            out[k] = torch.where(info["_final_obs"][:, None], rows(x), 0.0)
        elif k == "final_info":
            out |= {f"final {name}": y for name, y in told(obs, x).items() if name != "obs"}
        elif x.dtype == torch.bool:
            out[k] = x.clone()
        else:
            out[k] = torch.where(info[f"_{k}"].view(-1, *[1] * (x.ndim - 1)), x, 0.0)
    return out


Told = list[dict[str, torch.Tensor]]


def step(env: TorchVectorEnv, action: Any) -> dict[str, torch.Tensor]:
    obs, reward, terminated, truncated, info = env.step(action)
    return told(obs, info, reward=reward, terminated=terminated, truncated=truncated)


def play(env: TorchVectorEnv, actions: torch.Tensor) -> Told:
    """Make these steps (T, N, A); where nothing resets by itself, reset what has ended."""
    out = []
    for action in actions:
        if env.autoreset_mode.value == "Disabled" and (ended := env.engine.done.clone()).any():
            out.append(told(*env.reset(options={"reset_mask": ended})))
        out.append(step(env, action))
    return out


def same(ours: Told, theirs: Told, what: str, worlds: slice = slice(None), of: slice = slice(None)) -> None:
    """Demand the same bits in these worlds."""
    demand(len(ours) == len(theirs), f"{what}: as many")
    for t, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        demand(a.keys() == b.keys(), f"{what}: names", a.keys() ^ b.keys())
        for k in a:
            x, y = a[k][worlds], b[k][of]
            demand(x.dtype == y.dtype and x.shape == y.shape, f"{what}: shape or dtype of {k}", x, y)
            alike = x.numpy().tobytes() == y.numpy().tobytes()
            demand(alike, f"{what}: {k}", t, x, y)


def actions_of(env: TorchVectorEnv, steps: int, seed: int = 3, bad: bool = True) -> torch.Tensor:
    """Random actions, now and then one that is not finite."""
    g = torch.Generator().manual_seed(seed)
    shape = (steps, env.num_envs, env.single_action_space.shape[0])
    out = 3 * torch.rand(shape, generator=g, dtype=env.dtype) - 1.5
    out[torch.rand(shape[:2], generator=g) < 0.04 * bad] = math.nan
    return out


def check_places(plan: Plan, dtype: torch.dtype = torch.float64) -> None:
    """What a world does depends on its number alone: not on batch, place, threads, memory that is handed out, copies,
    or on going on from a saved state.
    """
    n, T, run = 19, 9, plan.run
    env = environment(plan, n, dtype=dtype)
    actions = actions_of(env, T)
    first = told(*env.reset(seed=run["seed"]))
    whole = [first, *play(env, actions)]
    for k, name in ((2, "a few"), (1, "one world")):
        small = environment(plan, k, dtype=dtype, first_world=run["first_world"] + 5)
        got = [told(*small.reset(seed=run["seed"]))]
        if run["mode"] == "Disabled":  # where more worlds end, more are reset by hand
            got = [x for x in got]
            theirs = [x for x in whole if "reward" in x]
            got = [x for x in play(small, actions[:, 5 : 5 + k]) if "reward" in x]
            same(got, theirs, name, of=slice(5, 5 + k))
        else:
            same([*got, *play(small, actions[:, 5 : 5 + k])], whole, name, of=slice(5, 5 + k))
    # the same number of worlds, elsewhere
    again = environment(plan, n, dtype=dtype, copy=False)
    torch.set_num_threads(2)
    try:
        got = [told(*again.reset(seed=run["seed"])), *play(again, actions[:4])]
        state = again.state_dict()
        twin = copy.deepcopy(again)
        rest = play(again, actions[4:])
    finally:
        torch.set_num_threads(1)
    same([*got, *rest], whole, "two threads, no copies")
    same([*got, *play(twin, actions[4:])], whole, "a deep copy")
    loaded = environment(plan, n, dtype=dtype)
    loaded.reset(seed=99)
    loaded.step(actions[0])
    loaded.load_state_dict(state)
    same([*got, *play(loaded, actions[4:])], whole, "a loaded state")
    # the pure step
    if run["repeat"] == 1 and not env.engine.done.any():
        state, action = env.engine.state_dict(), actions[0]
        out = env.engine.transition(state, action)
        env.step(action)
        for k in ("obs", "reward", "terminated", "truncated", "qpos", "qvel", "memory", "elapsed_steps", "episode", "info"):
            demand(out[k].numpy().tobytes() == env.engine.view(k).numpy().tobytes(), f"transition: {k}")
    refused(env, actions)


def refused(env: TorchVectorEnv, actions: torch.Tensor) -> None:
    """Demand that calls with bad arguments raise errors, and change nothing."""
    n, width = actions.shape[1:]
    engine = env.engine
    before = {k: x.clone() for k, x in engine.buffers.items()}
    state = engine.state_dict()
    nq, nv = engine.layout.nq, engine.layout.nv
    calls = {
        "an action too wide": lambda: env.step(torch.zeros(n, width + 1, dtype=env.dtype)),
        "too few actions": lambda: env.step(torch.zeros(n - 1, width, dtype=env.dtype)),
        "actions of text": lambda: env.step(np.full((n, width), "x")),
        "complex actions": lambda: env.step(torch.zeros(n, width, dtype=torch.complex64)),
        "no action": lambda: env.step(None),
        "another mask": lambda: env.reset(options={"reset_mask": [True] * (n + 1)}),
        "a mask of numbers": lambda: env.reset(options={"reset_mask": np.ones(n)}),
        "an empty mask": lambda: env.reset(options={"reset_mask": [False] * n}),
        "another option": lambda: env.reset(options={"mask": [True] * n}),
        "a seed of text": lambda: env.reset(seed="7"),
        "seeds for others": lambda: env.reset(seed=[1] * (n + 1)),
        "seeds of text": lambda: env.reset(seed=[1] * (n - 1) + ["x"]),
        "a fraction of a seed": lambda: env.reset(seed=1.5),
        "another qpos": lambda: env.set_state(np.zeros((n, nq + 1)), np.zeros((n, nv))),
        "another qvel": lambda: env.set_state(np.zeros((n, nq)), np.zeros((n, nv + 1))),
        "another mask of states": lambda: env.set_state(np.zeros((n, nq)), np.zeros((n, nv)), [1.0] * n),
        "another act": lambda: env.set_state(np.zeros((n, nq)), np.zeros((n, nv)), None, np.zeros((n, 9))),
        "half a state": lambda: env.load_state_dict({k: state[k] for k in [*state][1:]}),
        "a state of more": lambda: env.load_state_dict(state | {"x": torch.zeros(n)}),
        "a state of others": lambda: env.load_state_dict({k: x[:-1] for k, x in state.items()}),
        "a state of text": lambda: env.load_state_dict("x"),
        "other params": lambda: env.set_params({"nothing": torch.zeros(n)}),
        "params of text": lambda: env.set_params("x"),
        "no capture": lambda: env.capture(lambda obs: actions[0], 0),
        "capture of others": lambda: env.capture(lambda obs: actions[0][:, :0], 3)(),
        "capture of text": lambda: env.capture(lambda obs: "x", 3)(),
        "capture of info": lambda: env.capture(lambda obs: actions[0], 3, info_keys=("nothing",)),
    }
    for name, x in env.params.items():
        calls[f"nan in {name}"] = lambda name=name, x=x: env.set_params({name: torch.full_like(x, math.nan)})
        calls[f"another {name}"] = lambda name=name, x=x: env.set_params({name: torch.zeros(n, 77, 5)})
        if name in ("body_mass", "dof_damping"):
            calls[f"negative {name}"] = lambda name=name, x=x: env.set_params({name: x * 0 - 1})
    for what, bad in calls.items():
        try:
            bad()
        except (TypeError, ValueError, KeyError) as error:
            demand(str(error), f"{what}: no text")
        else:
            raise Wrong(f"{what} was taken")
        for k, x in engine.buffers.items():
            if k in ("alive", "restarted"):
                continue
            demand(x.numpy().tobytes() == before[k].numpy().tobytes(), f"{what} changed {k}")


def check_modes(plan: Plan, dtype: torch.dtype = torch.float64) -> None:
    """All modes, all interfaces and `capture` go through the same episodes."""
    n, T, run = 4, 10, plan.run
    given: dict[str, Any] = {"dtype": dtype, "action_repeat": 1, "observation": "flat"}
    same_step = environment(plan, n, autoreset_mode="SameStep", **given)
    disabled = environment(plan, n, autoreset_mode="Disabled", **given)
    actions = actions_of(same_step, T)
    for env in (same_step, disabled):
        env.reset(seed=run["seed"])
    for t, action in enumerate(actions):
        a, b = step(same_step, action), step(disabled, action)
        ended = b["terminated"] | b["truncated"]
        for k in ("reward", "terminated", "truncated", "bad_state"):
            demand(a[k].numpy().tobytes() == b[k].numpy().tobytes(), f"modes: {k}", t, a[k], b[k])
        final = torch.where(ended[:, None], a["final_obs"], a["obs"])
        demand(final.numpy().tobytes() == b["obs"].numpy().tobytes(), "modes: obs of a step", t, final, b["obs"])
        if ended.any():
            again = told(*disabled.reset(options={"reset_mask": ended}))
            x, y = a["obs"][ended], again["obs"][ended]
            demand(x.numpy().tobytes() == y.numpy().tobytes(), "modes: obs of a reset", t, x, y)
    next_step = environment(plan, n, autoreset_mode="NextStep", **given)
    next_step.reset(seed=run["seed"])
    same_step.reset(seed=run["seed"])
    at, waits = [0] * n, [False] * n
    wanted = [step(same_step, action) for action in actions]
    for t in range(T):
        action = torch.stack([actions[min(at[i], T - 1), i] for i in range(n)])
        got = step(next_step, action)
        for i in range(n):
            w = wanted[min(at[i], T - 1)]
            if at[i] >= T:
                continue
            if waits[i]:
                x, y = got["obs"][i], wanted[at[i] - 1]["obs"][i]
                demand(x.numpy().tobytes() == y.numpy().tobytes(), "NEXT_STEP: obs of a reset", t, i, x, y)
                demand(not got["reward"][i] and not got["terminated"][i] and not got["truncated"][i], "NEXT_STEP: flags")
                waits[i] = False
                continue
            for k in ("reward", "terminated", "truncated"):
                demand(got[k][i].equal(w[k][i]), f"NEXT_STEP: {k}", t, i, got[k][i], w[k][i])
            waits[i] = bool(got["terminated"][i] | got["truncated"][i])
            obs = w["final_obs"][i] if waits[i] else w["obs"][i]
            demand(got["obs"][i].numpy().tobytes() == obs.numpy().tobytes(), "NEXT_STEP: obs", t, i, got["obs"][i], obs)
            at[i] += 1
    check_capture(plan, dtype, same_step)
    check_single(plan, disabled)


def check_capture(plan: Plan, dtype: torch.dtype, env: TorchVectorEnv) -> None:
    """`capture` does what single steps do."""
    weights = torch.randn(rows(env.obs).shape[1], env.single_action_space.shape[0], dtype=dtype,
                          generator=torch.Generator().manual_seed(0))  # fmt: skip

    def policy(obs: Any) -> torch.Tensor:
        return torch.tanh(rows(obs).clamp(-3, 3) @ weights)

    env.reset(seed=plan.run["seed"])
    rollout = env.capture(policy, 4)

    def joined(x: Any) -> torch.Tensor:
        return torch.cat([joined(y) for y in x.values()], -1) if isinstance(x, Mapping) else x.clone()

    data = [{k: joined(x) for k, x in rollout().items()} for _ in range(2)]
    env.reset(seed=plan.run["seed"])
    obs = env.obs
    for t in range(8):
        action = policy(obs)
        want = {"obs": rows(obs).clone(), "action": action}
        obs, reward, terminated, truncated, info = env.step(action)
        want |= {"reward": reward, "terminated": terminated, "truncated": truncated}
        for k, x in want.items():
            got = data[t // 4][k][t % 4]
            demand(got.numpy().tobytes() == x.numpy().tobytes(), f"capture: {k}", t, got, x)


def check_single(plan: Plan, many: TorchVectorEnv) -> None:
    """`TorchEnv` does what a world of many does."""
    run = plan.run
    if run["first_world"]:
        return
    env = torch_mjenvs.TorchEnv(task_of(plan), dtype=many.dtype, observation="flat", randomize=draws_of(plan), vary=run["vary"])
    limit = math.inf if run["limit"] == -1 else run["limit"]
    obs, info = env.reset(seed=run["seed"])
    want = told(*many.reset(seed=run["seed"]))
    for t, action in enumerate(actions_of(many, 8, seed=4, bad=False)):
        flat_obs = rows({k: torch.tensor(x)[None] for k, x in obs.items()}) if isinstance(obs, dict) else torch.tensor(obs)[None]
        demand(env.observation_space.contains(obs), "TorchEnv: space")
        demand(flat_obs[0].numpy().tobytes() == want["obs"][0].numpy().tobytes(), "TorchEnv: obs", t, flat_obs[0], want["obs"][0])
        for k, x in info.items():
            if k == "bad_state" or (t == limit and k == "episode_end/time_limit"):
                continue
            demand(np.array_equal(np.asarray(x), want[k][0].numpy()), f"TorchEnv: info", k, t, x, want[k][0])
        if t >= limit or (t and bool(want["terminated"][0] | want["truncated"][0])):
            break
        obs, reward, terminated, truncated, info = env.step(action[0].numpy())
        want = step(many, action) if not many.engine.done.any() else None
        if want is None:
            break
        demand(reward == float(want["reward"][0]), "TorchEnv: reward", reward, want["reward"][0])
        demand(terminated == bool(want["terminated"][0]), "TorchEnv: terminated")


def check_torchrl(plan: Plan, dtype: torch.dtype = torch.float64) -> None:
    """TorchRL's environment has sound specs, and goes through the episodes of Gymnasium's."""
    from torchrl.envs import TransformedEnv, StepCounter
    from torchrl.envs.utils import check_env_specs, step_mdp

    n, T, run = 4, 9, plan.run
    given = {
        "dtype": dtype, "max_episode_steps": run["limit"], "first_world": run["first_world"],
        "randomize": draws_of(plan), "vary": run["vary"], "observation": run["form"], "action_repeat": run["repeat"],
    }  # fmt: skip
    gym = environment(plan, n, dtype=dtype, autoreset_mode="SameStep")
    keys = tuple(k for k in gym.engine.layout.step_info if k not in gym.engine.layout.reset_info)[:2]
    env = torch_mjenvs.TorchRLEnv(task_of(plan), n, info_keys=keys, **given)
    state = torch.random.get_rng_state()
    check_env_specs(env)
    torch.random.set_rng_state(state)
    gym.reset(seed=run["seed"])
    obs0 = rows(gym.obs).clone()
    actions = actions_of(gym, T)
    env.set_seed(run["seed"])
    td = env.reset()
    names = [*env.observation_spec.keys()]

    def seen(td: Any) -> torch.Tensor:
        def of(x: Any) -> torch.Tensor:
            return torch.cat([of(y) for y in x.values()], 1) if hasattr(x, "keys") else x.reshape(n, -1)

        if run["form"] == "flat" and "observation" in td.keys():
            return of(td["observation"])
        order = gym.observation_space.spaces if hasattr(gym.observation_space, "spaces") else None
        if order is None:
            return of(td["observation"])
        return torch.cat([torch.cat([of(td[k][j]) for j in s.spaces], 1) if hasattr(s, "spaces") else of(td[k]) for k, s in order.items()], 1)

    demand(seen(td).numpy().tobytes() == obs0.numpy().tobytes(), "TorchRL: obs of a reset")
    for t, action in enumerate(actions):
        td["action"] = action
        if t % 2:
            td, following = env.step_and_maybe_reset(td)
        else:
            td = env.step(td)
            following = step_mdp(td)
            following = env.maybe_reset(following)
        a = step(gym, action)
        nxt = td["next"]
        ended = a["terminated"] | a["truncated"]
        obs = torch.where(ended[:, None], a["final_obs"], a["obs"])
        demand(seen(nxt).numpy().tobytes() == obs.numpy().tobytes(), "TorchRL: next obs", t, seen(nxt), obs)
        demand(nxt["reward"][:, 0].numpy().tobytes() == a["reward"].numpy().tobytes(), "TorchRL: reward", t)
        for k, x in {"terminated": a["terminated"], "truncated": a["truncated"], "done": ended}.items():
            demand(nxt[k][:, 0].equal(x), f"TorchRL: {k}", t, nxt[k][:, 0], x)
        demand(seen(following).numpy().tobytes() == a["obs"].numpy().tobytes(), "TorchRL: obs after a reset", t, seen(following), a["obs"])
        for k in ("terminated", "truncated", "done"):
            demand(not following[k].any(), f"TorchRL: {k} after a reset")
        for k in keys:
            now = torch.where(ended.view(-1, *[1] * (a[k].ndim - 1)), a[f"final {k}"], a[k]).reshape(n, -1)
            demand(nxt[k].numpy().tobytes() == now.numpy().tobytes(), f"TorchRL: info", k, t, nxt[k], now)
        td = following
    # a saved state goes on, under transforms
    under = TransformedEnv(env, StepCounter())
    td = under.reset()
    for action in actions[:2]:
        td["action"] = torch.nan_to_num(action)
        td, td2 = under.step_and_maybe_reset(td)
        td = td2
    saved = env.get_state()
    full = env.engine.state_dict()
    td1 = under.reset(state=saved.clone())
    td1["action"] = torch.nan_to_num(actions[2])
    one = under.step(td1)["next"]
    env.engine.load_state_dict(full)
    td["action"] = torch.nan_to_num(actions[2])
    two = under.step(td)["next"]
    for k in ("reward", "terminated", "truncated"):
        demand(one[k].equal(two[k]), f"TorchRL: {k} from a state")
    demand(seen(one).numpy().tobytes() == seen(two).numpy().tobytes(), "TorchRL: obs from a state")


def numpy(x: Any) -> Any:
    return {k: numpy(v) for k, v in x.items()} if isinstance(x, Mapping) else x.numpy()


def check_plain(plan: Plan) -> None:
    """Every number is what plain Python with MuJoCo C gives."""
    Beside(plan).run()


CHECKS = {"plain": check_plain, "places": check_places, "modes": check_modes, "torchrl": check_torchrl}


def failure(plan: Plan, run: Callable[[Plan], None]) -> tuple[str, str]:
    """Return what is wrong with a plan, "" if nothing, and details."""
    try:
        run(plan)
    except Wrong as error:
        return error.args[0], "\n".join(map(str, error.args[1:]))
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:60]}", "\n".join([str(error), *getattr(error, "__notes__", [])])
    return "", ""


def shrink(plan: Plan, what: str, run: Callable[[Plan], None], seconds: float) -> Plan:
    """Return a smaller plan with the same failure."""
    until, at, tried = time.monotonic() + seconds, 0, 0  # at: where in the list of smaller ones to go on
    while time.monotonic() < until:
        options = [*random_tasks.smaller(plan)]
        if tried >= len(options):
            break
        new = options[at % len(options)]
        if failure(new, run)[0] == what:
            plan, tried = new, 0
        else:
            at, tried = at + 1, tried + 1
    return plan


def wrong(check: str, seed: int, seconds: float = 20.0) -> str:
    """Return a report of what is wrong with task `seed`, shrunk; empty if nothing is. Every other is of float32."""
    run = CHECKS[check]
    if check != "plain":
        run = partial(run, dtype=(torch.float64, torch.float32)[seed % 2])
    plan = random_tasks.draw(seed)
    what, _ = failure(plan, run)
    if not what:
        return ""
    plan = shrink(plan, what, run, seconds)
    again = f"python tests/tried_tasks.py --check {check} --seed {seed}"
    return "\n".join([f"task {seed}, {check}: {what}", failure(plan, run)[1], again, plan.source, plan.xml, str(plan.run)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="the first task")
    parser.add_argument("--count", type=int, default=1, help="how many")
    parser.add_argument("--check", choices=CHECKS, help="one of the checks; by default they take turns")
    parser.add_argument("--seconds", type=float, default=60.0, help="to shrink one for")
    args = parser.parse_args()
    bad = 0
    for seed in range(args.seed, args.seed + args.count):
        text = wrong(args.check or [*CHECKS][seed // 2 % 4], seed, args.seconds)
        if text:
            bad += 1
            print(text, flush=True)
    print(f"{args.count - bad} of {args.count} tasks are as they should be")
    raise SystemExit(bad > 0)


if __name__ == "__main__":
    mujoco.set_mju_user_warning(lambda _: None)
    loader.options["opt"] = 0
    torch.set_num_threads(1)
    main()

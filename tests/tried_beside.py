"""Random tasks beside plain loops over MuJoCo C."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import plain_tasks
import random_tasks
import torch
from plain_tasks import PlainWorld, flat, plain_task
from random_tasks import Plan
from task_runs import demand, environment, model_of, rows

TOLERANCE = 1e-9  # of one step, relative to 1 + size; measured: 5e-15


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
        bad = [not (np.abs(x) <= 1e10).all() for x in actions]
        waits = [mode == "NextStep" and w.done for w in self.worlds]
        expected = [b and not x for b, x in zip(bad, waits, strict=True)]
        demand(info["bad_state"].tolist() == expected, "bad state", info["bad_state"], actions)
        final = []  # of each world, before any reset
        for i, w in enumerate(self.worlds):
            if mode == "NextStep" and w.done:
                self.begin(i)
                final.append(None)
                result = {"reward": 0.0, "terminated": False, "truncated": False, "info": None}
            elif bad[i]:
                self.stop(i, info, obs, mode)
                demand(not reward[i] and bool(terminated[i]), "a stopped world's reward or end")
                final.append(True)
                continue
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
            own = {
                k: x
                for k, x in info.items()
                if not k.startswith("_") and k not in ("final_obs", "final_info", "bad_state")
            }
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

    def stop(self, i: int, info: dict[str, Any], obs: Any, mode: str) -> None:
        """A world whose action is not finite ends, and keeps its state and its memory."""
        w, engine = self.worlds[i], self.env.engine
        w.done, w.elapsed = True, w.elapsed + 1
        if mode == "SameStep":
            demand(rows(info["final_obs"])[i].isfinite().all(), "a stopped world's observation")
            demand(info["final_info"]["bad_state"][i], "bad_state of final_info")
            self.begin(i)
        else:
            demand(rows(obs)[i].isfinite().all(), "a stopped world's observation")
            w.obs = rows(obs)[i].tolist()
            w.info = {k: flat(x[i].tolist()) for k, x in engine.info.items() if k in engine.layout.step_info}
            if "episode_end/bad_state" in w.info:
                demand(w.info["episode_end/bad_state"] == [1.0], "the reason of a stopped world")

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
        if "resets_ahead" in self.plan.parts["class"]:
            steps = 36  # every sixteenth step some are computed
        rng = np.random.default_rng(1)
        self.reset(self.plan.run["seed"])
        shape = self.env.action_space.shape
        for t in range(steps):
            if self.plan.run["mode"] == "Disabled" and any(w.done for w in self.worlds):
                self.reset(None, [w.done for w in self.worlds])
            what = rng.random()
            if what < 0.08:
                self.reset(
                    [int(rng.integers(99)) if rng.random() < 0.6 else None for _ in range(self.n)],
                    None if rng.random() < 0.5 or t == 0 else [True, False, True][: self.n],
                )
            elif what < 0.16:
                self.set_state(rng)
            elif what < 0.24 and self.plan.run["vary"]:
                self.set_params(rng)
            elif what < 0.30 and self.worlds[0].first:
                name = next(iter(self.worlds[0].first))
                self.env.engine.memory[name].fill_(0.4)
                for w in self.worlds:
                    w.memory[name] = plain_tasks.numbers(
                        [0.4] * len(w.memory[name]) if isinstance(w.memory[name], list) else 0.4
                    )
            if self.plan.run["mode"] == "Disabled" and any(w.done for w in self.worlds):
                self.reset(None, [w.done for w in self.worlds])
            actions = rng.uniform(-1, 1, shape) * rng.choice([0.3, 1.0, 1.5])
            actions[rng.random(self.n) < 0.04] = rng.choice([np.nan, np.inf, 1e11])
            self.step(actions)


def numpy(x: Any) -> Any:
    return {k: numpy(v) for k, v in x.items()} if isinstance(x, Mapping) else x.numpy()


def check_plain(plan: Plan) -> None:
    """Every number is what plain Python with MuJoCo C gives."""
    Beside(plan).run()

"""Single worlds of a random task in Gymnasium's own vector environment are what many worlds are, under its wrappers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import SyncVectorEnv
from gymnasium.wrappers import vector as stock
from random_tasks import Plan
from task_runs import actions_of, demand, draws_of, environment, not_ahead, task_of

import torch_mjenvs
from torch_mjenvs import wrappers

# Entries that a single environment does not have: Gymnasium's TimeLimit cuts its episodes.
OF_MANY = ("episode_end/time_limit",)
UNLIKE = ("t", "bad_state", "_bad_state")  # seconds, and what many worlds have in every step


def layers(env: Any, seed: int) -> Callable[[Any], Any]:
    """Return a function that puts a random stack of Gymnasium's wrappers around such an environment."""
    rng, boxes = np.random.default_rng(seed), isinstance(env.single_observation_space, gymnasium.spaces.Box)

    def rescaled(e: Any) -> Any:  # ClipAction takes actions without bounds
        bounds = e.single_action_space.low, e.single_action_space.high
        return stock.RescaleAction(e, -2.0, 2.0) if np.isfinite(bounds).all() else e

    whole = gymnasium.wrappers.TransformAction
    choices: list[Callable[[Any], Any]] = [
        lambda e: stock.NormalizeReward(e, gamma=0.9), lambda e: stock.ClipReward(e, -0.5, 0.6),
        lambda e: stock.TransformReward(e, lambda r: 2 * r), stock.ClipAction, rescaled,
        lambda e: stock.VectorizeTransformAction(e, whole, func=lambda a: 0.7 * a, action_space=e.single_action_space),
    ]  # fmt: skip
    mode = env.metadata["autoreset_mode"].value
    if mode != "Disabled":  # where SyncVectorEnv takes the mask from the options before this wrapper reads it
        choices.append(stock.RecordEpisodeStatistics)
    if boxes and mode != "SameStep":
        choices += [
            stock.FlattenObservation, lambda e: stock.DtypeObservation(e, np.float32),
            lambda e: stock.TransformObservation(e, np.square, single_observation_space=e.single_observation_space),
        ]  # fmt: skip
    if boxes and mode == "NextStep":
        choices.append(stock.NormalizeObservation)
    chosen = [choices[i] for i in rng.permutation(len(choices))[: int(rng.integers(4))]]

    def wrapped(env: Any) -> Any:
        for layer in chosen:
            env = layer(env)
        return env

    return wrapped


def check_gymnasium(plan: Plan, dtype: torch.dtype = torch.float64) -> None:
    """Observations, rewards, flags and info of both, under the same wrappers, to the last bit."""
    plan = not_ahead(plan)
    n, run = 3, plan.run
    limit = None if run["limit"] == -1 else run["limit"]
    many: Any = environment(plan, n, dtype=dtype, action_repeat=1)
    actions = actions_of(many, 12, bad=False)

    def single() -> gymnasium.Env[Any, Any]:
        given = {"observation": run["form"], "randomize": draws_of(plan), "vary": run["vary"]}
        env = torch_mjenvs.TorchEnv(task_of(plan), dtype=dtype, **given)
        steps = many.engine.max_episode_steps if limit is None else limit
        return env if run["limit"] == -1 or steps is None else gymnasium.wrappers.TimeLimit(env, steps)

    mode = many.autoreset_mode
    wrapped = layers(many, run["seed"])
    ours, theirs = wrapped(wrappers.TorchToNumpy(many)), wrapped(SyncVectorEnv([single] * n, autoreset_mode=mode))
    seeds = [run["seed"] % 2**31 + i for i in range(n)]
    alike(ours.reset(seed=seeds), theirs.reset(seed=seeds), "a reset")
    for action in actions.numpy():
        got, want = ours.step(action.copy()), theirs.step(action.copy())
        alike(got, want, "a step")
        if mode.value == "Disabled" and (ended := want[2] | want[3]).any():
            both = (env.reset(options={"reset_mask": ended.copy()}) for env in (ours, theirs))
            alike(*both, "a reset of some")
    theirs.close()


def of_world(x: Any, i: int) -> Any:
    return {k: of_world(y, i) for k, y in x.items()} if isinstance(x, Mapping) else x[i]


def alike(ours: Any, theirs: Any, what: str, name: str = "", chosen: Any = slice(None)) -> None:
    """Demand equal numbers in the worlds that have the entry; SyncVectorEnv leaves out what no world has."""
    if isinstance(theirs, tuple):
        for i, (x, y) in enumerate(zip(ours, theirs, strict=True)):
            alike(x, y, what, f"{name}[{i}]", chosen)
    elif isinstance(theirs, Mapping):
        lost = [k for k in theirs if k not in ours and not k.endswith(OF_MANY)]
        more = [
            k for k in ours if k not in theirs and f"_{k}" in ours and ours[f"_{k}"].any() and k not in UNLIKE + OF_MANY
        ]
        demand(not lost and not more, f"Gymnasium: names of {what}{name}", lost, more)
        for k, y in theirs.items():
            if k in UNLIKE or k.endswith(OF_MANY):
                continue
            of = theirs.get(f"_{k}", chosen)
            alike(ours[k], y, what, f"{name} {k}", of if isinstance(of, np.ndarray) else chosen)
    elif isinstance(theirs, np.ndarray) and theirs.dtype == object:  # a dict for each world that has one
        for i in np.flatnonzero(chosen):
            alike(of_world(ours, i), theirs[i], what, name, ...)
    else:
        x, y = np.asarray(ours)[chosen], np.asarray(theirs)[chosen]
        # Rewards of a single world are Python's floats, so wrappers compute with them in float64.
        rounded = name == "[1]" and x.dtype == np.float32
        right = np.allclose(x, y, rtol=1e-6, atol=1e-6) if rounded else np.array_equal(x, y)
        demand(x.shape == y.shape and right, f"Gymnasium: {what}{name}", x, y)

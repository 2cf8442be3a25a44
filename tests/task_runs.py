"""Environments of random tasks, what they tell, and demands on it."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

import mujoco
import oracle
import random_tasks
import torch
from random_tasks import Plan

import torch_mjenvs
from torch_mjenvs import TorchVectorEnv, controls, scalar

VOCABULARY = {name: getattr(scalar, name) for name in scalar.__all__} | {
    "Task": torch_mjenvs.Task, "Outcome": torch_mjenvs.Outcome, "Start": torch_mjenvs.Start,
    "Control": torch_mjenvs.Control, "Normal": torch_mjenvs.Normal, "dataclass": dataclasses.dataclass,
    "inf": math.inf, "controls": controls, "scaled": random_tasks.scaled,
}  # fmt: skip


class Wrong(Exception):
    """A property does not hold. Its first argument says which, without numbers."""


def demand(true: Any, what: str, *more: Any) -> None:
    if not true:
        raise Wrong(what, *more)


def tell(found: Iterable[str], what: str) -> NoReturn:
    """Print what is wrong with each of these, nothing where it is "", and how many are as they should be, and exit."""
    tried = bad = 0
    for text in found:
        tried += 1
        if text:
            bad += 1
            print(text, flush=True)
    print(f"{tried - bad} of {tried} {what} are as they should be")
    raise SystemExit(bad > 0)


def model_of(plan: Plan) -> mujoco.MjModel:
    return oracle.sharpen(mujoco.MjModel.from_xml_string(plan.xml))


def task_of(plan: Plan) -> Any:
    space = dict(VOCABULARY)
    exec(compile("from __future__ import annotations\n" + plan.source, "<random task>", "exec"), space)
    kind = space["Drawn"]
    kind.load = lambda self: model_of(plan)
    return kind()


def draws_of(plan: Plan) -> dict[str, Any]:
    return {
        k: eval(v, {"Scale": torch_mjenvs.Scale, "Shift": torch_mjenvs.Shift}) for k, v in plan.run["randomize"].items()
    }


def environment(plan: Plan, n: int, **changed: Any) -> TorchVectorEnv:
    run = plan.run
    given: dict[str, Any] = {
        "dtype": torch.float64, "autoreset_mode": run["mode"], "max_episode_steps": run["limit"],
        "action_repeat": run["repeat"], "observation": run["form"], "first_world": run["first_world"],
        "randomize": draws_of(plan), "vary": run["vary"],
    }  # fmt: skip
    return TorchVectorEnv(task_of(plan), n, **(given | changed))


def not_ahead(plan: Plan) -> Plan:
    """Return the plan without `resets_ahead`, which autoreset DISABLED does not have: what follows from constants that
    a reset gives is then rounded when the kernel is traced, elsewhere when it runs, and may differ by a bit.
    """
    plan = copy.deepcopy(plan)
    plan.parts["class"].pop("resets_ahead", None)
    return plan


def rows(obs: Any) -> torch.Tensor:
    """An observation as one row for each world."""
    if isinstance(obs, Mapping):
        return torch.cat([rows(x) for x in obs.values()], 1)
    return obs.reshape(len(obs), -1)


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
        elif isinstance(x, Mapping):  # of the episode, by a wrapper
            out |= {f"{k} {name}": torch.where(info[f"_{k}"], y, 0) for name, y in x.items() if name in ("r", "l")}
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
        if env.unwrapped.autoreset_mode.value == "Disabled" and (ended := env.unwrapped.engine.done.clone()).any():
            out.append(told(*env.reset(options={"reset_mask": ended})))
        out.append(step(env, action))
    return out


def equal(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Return whether both have the same bits, but for the sign of 0: one kernel may know a factor to be 0, for which
    0 * -1 is 0, where another has it in a buffer.
    """
    x, y = (z + 0.0 if z.is_floating_point() else z for z in (x, y))
    return x.numpy().tobytes() == y.numpy().tobytes()


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

"""Scores of a policy: returns of whole episodes, in the Torch task and in Gymnasium's or dm_control's original."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from torch import Tensor

from ..envs.entries import BAD_STATE
from ..envs.episode_log import of_last_step
from ..envs.parts import leaves, mapped
from ..envs.vector_env import TorchVectorEnv
from .originals import ParallelWorlds, processes_for
from .task_flags import arguments
from .worlds import make_to_score, original

STEPS = 32  # in one rollout of a Torch task
TURN = 2e-4  # seconds after which a busy Python thread lets another run; a step of a process of 50 worlds takes 5e-3
Act = Callable[[Any], Tensor]  # observations, (N, O) or by name, to actions (N, A)
Steps = tuple[Tensor, Tensor, Tensor, dict[str, Tensor]]  # rewards, terminated, truncated, and by name: (T, N) each


@dataclass(frozen=True)
class Score:
    """The returns (episodes,) of a policy, and the number of episodes that ended with a bad state or action.

    Gymnasium's and dm_control's own tasks do not report bad states: there the count is 0. `named` has what the task
    names, (episodes,) each: the sums of its reward's terms, metrics, the length, and 1 for the reason that ended the
    episode.
    """

    returns: Tensor
    bad_states: int = 0
    named: dict[str, Tensor] = field(default_factory=dict)


def scores(
    act: Act,
    env_id: str,
    episodes: int,
    device: str,
    seed: int,
    task: Mapping[str, Any] | None = None,
    meanwhile: Callable[[], None] = lambda: None,
    by_rows: bool = False,
) -> dict[str, Score]:
    """Return the scores of a policy in the Torch task, and in the original if there is one, by the tasks' names.

    `task` has fields of the task, as `task_flags` names them. Gymnasium's own task takes the same ones; dm_control's
    takes none, and is left out if there are any. The original's worlds are stepped by as many processes as there are
    cores, which does not change the scores. `meanwhile` is called once, if possible while those processes step.
    `by_rows` says that an action has the same bits whatever other rows the policy sees with it, as it has from compiled
    kernels: then no process waits for another, and on a GPU the Torch task's steps are captured in a CUDA graph.
    """
    given = arguments(env_id, task or {})
    name = original(env_id, given)
    # First, as processes take half a second to start, in which the Torch task is made and scored.
    there = ParallelWorlds(name, episodes, processes_for(name, episodes), given) if name else None
    try:
        found = {env_id: score(act, make_to_score(env_id, episodes, device, **given), seed, device, by_rows)}
        if name and there and by_rows:
            with one_thread():
                found[name] = _side_by_side(act, there, seed, device, meanwhile)
            return found
        meanwhile()
        if name and there:
            with one_thread():
                found[name] = score(act, there, seed, device)
        return found
    finally:
        if there:
            there.close()


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit torch to one thread. Others would spin, waiting for work, on cores that other processes need."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def score(act: Act, env: VectorEnv | ParallelWorlds, seed: int, device: str, by_rows: bool = False) -> Score:
    """Score a policy over the first episode in each world. Closes `env`, which may speak torch or NumPy."""
    found = first_episodes(act, env, seed, device, by_rows)
    env.close()
    return found


@contextmanager
def _turns_of(seconds: float) -> Iterator[None]:
    """Make Python's threads take turns of this many seconds."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(seconds)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def _side_by_side(
    act: Act, there: ParallelWorlds, seed: int, device: str, meanwhile: Callable[[], None] = lambda: None
) -> Score:
    """Score a policy separately in each process's worlds: one thread per process asks it for actions."""
    one_at_a_time = threading.Lock()

    def one_act(obs: Any) -> Tensor:
        with one_at_a_time, torch.no_grad():
            return act(obs).clone()

    with ThreadPoolExecutor(len(there.parts)) as threads:
        try:
            begun = [
                threads.submit(first_episodes, one_act, part, seed + where.start, device)
                for part, where in zip(there.each(), there.parts, strict=True)
            ]
            with _turns_of(TURN):
                meanwhile()
            found = [x.result() for x in begun]
        finally:
            there.close()  # after an exception, threads still wait for results: this ends them
    return Score(torch.cat([x.returns for x in found]))


def first_episodes(
    act: Act, env: VectorEnv | ParallelWorlds, seed: int, device: str, by_rows: bool = False, beside: bool = False
) -> Score:
    """Score a policy over the first episode in each world after a reset with this seed; for `by_rows` see `scores`.

    beside: another thread draws random numbers meanwhile, so torch's generator is left alone: a rollout puts it back.
    """
    returns = torch.zeros(env.num_envs, dtype=torch.float64, device="cpu")
    alive = torch.ones(env.num_envs, dtype=torch.bool, device="cpu")
    bad = torch.zeros_like(alive)
    inside = env.unwrapped if isinstance(env, VectorEnv) else None
    logged = inside.engine.layout.logged if isinstance(inside, TorchVectorEnv) else ()
    named = {name: torch.zeros_like(returns) for name in logged}
    rolled = isinstance(env, TorchVectorEnv) and env.engine.mode is AutoresetMode.SAME_STEP and not beside
    if torch.device(device).type != "cpu":
        rolled &= by_rows  # another policy may do what a CUDA graph cannot hold
    steps = _rolled(act, cast(TorchVectorEnv, env), seed) if rolled else _stepped(act, env, seed, device)
    while alive.any():
        reward, terminated, truncated, info = next(steps)
        ended = terminated | truncated
        first = alive & (ended.cumsum(0) == ended)  # steps of the first episode
        returns = torch.cat([returns[None], torch.where(first, reward, 0)]).cumsum(0)[-1]  # in order: the same bits
        if BAD_STATE in info:
            bad |= (first & info[BAD_STATE]).any(0)
        last = first & ended
        named = {name: torch.where(last, info[name], 0).sum(0) + x for name, x in named.items()}
        alive &= ~ended.any(0)
    return Score(returns, int(bad.sum()), named)


def _rolled(act: Act, env: TorchVectorEnv, seed: int) -> Iterator[Steps]:
    """Reset a Torch task, and make STEPS steps at a time, which takes half the time, on a GPU a quarter."""
    env.reset(seed=seed)
    rollout = env.capture(lambda obs: act(_floats(obs, str(env.device))), STEPS)
    names = {"reward", "terminated", "truncated", BAD_STATE, *env.engine.layout.logged}
    while True:
        data = {name: x.cpu() for name, x in rollout().items() if name in names}
        yield data["reward"], data["terminated"], data["truncated"], data


def _stepped(act: Act, env: VectorEnv | ParallelWorlds, seed: int, device: str) -> Iterator[Steps]:
    """Reset any task, make one step at a time, and yield STEPS of them together, which is faster to add up."""
    obs, _ = env.reset(seed=seed)
    numpy = isinstance(leaves(obs)[0], np.ndarray)
    inside = env.unwrapped if isinstance(env, VectorEnv) else None
    alive = torch.ones(env.num_envs, dtype=torch.bool, device="cpu")
    while True:
        made: list[tuple[Tensor, Tensor, Tensor]] = []
        tellings: list[dict[str, Tensor]] = []
        while alive.any() and len(made) < STEPS:
            action = act(_floats(obs, device))
            obs, *rest, info = env.step(action.cpu().numpy() if numpy else action)
            told = {BAD_STATE: info[BAD_STATE]} if BAD_STATE in info else {}
            if isinstance(inside, TorchVectorEnv):
                told |= of_last_step(inside.engine)
            reward, terminated, truncated = (torch.asarray(x, device="cpu", copy=True) for x in rest)
            alive &= ~(terminated | truncated)
            made.append((reward, terminated, truncated))
            tellings.append({name: x.to("cpu", copy=True) for name, x in told.items()})
        reward, terminated, truncated = map(torch.stack, zip(*made, strict=True))
        yield reward, terminated, truncated, {k: torch.stack([x[k] for x in tellings]) for k in tellings[0]}


def _floats(obs: Any, device: str) -> Any:
    return mapped(lambda x: torch.as_tensor(x, dtype=torch.float32, device=device), obs)


def interval(returns: Tensor) -> float:
    """Return half the width of the mean's 95 % confidence interval; NaN for a single episode."""
    return float(1.96 * returns.std() / math.sqrt(len(returns))) if len(returns) > 1 else math.nan


def figures(*numbers: float) -> list[str]:
    """Return numbers as texts with as many decimals each: three significant figures of the largest."""
    size = max((abs(x) for x in numbers if math.isfinite(x)), default=0.0)
    decimals = min(12, max(0, 2 - math.floor(math.log10(size)))) if size else 0
    return [f"{x:.{decimals}f}" for x in numbers]


def show(found: Mapping[str, Score]) -> None:
    """Print the scores, one line per task, followed by the means of what the task names."""
    for name, one in found.items():
        returns = one.returns
        many, notes = f"{len(returns)} episodes" if len(returns) > 1 else "1 episode", ["mean action"]
        mean, spread = figures(float(returns.mean()), interval(returns))
        if one.bad_states:
            notes.append(f"{one.bad_states} of them ended by a bad state")
        if wrong := int((~returns.isfinite()).sum()):
            notes.append(f"{wrong} of them with a reward that is not finite")
        sign = "±" if "utf" in (getattr(sys.stdout, "encoding", None) or "").lower() else "+-"
        mean += f" {sign} {spread}" if len(returns) > 1 else ""
        print(f"score in {name}: {mean} ({many}, {', '.join(notes)})")
        for entry, x in one.named.items():
            print(f"  {entry}: {x.mean():.4g}")

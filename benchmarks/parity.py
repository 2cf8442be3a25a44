"""Checks, before a figure is shown, that what was timed is the same environment.

One environment step from states along a rollout with contacts: ours in float64 against Gymnasium's own environment with
a solver that converges, and ours in float32 against ours in float64.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import gymnasium
import mujoco
import numpy as np
import torch
from gymnasium.vector import AutoresetMode

from torch_mjenvs.envs.engine import Engine

from .cases import Case
from .machine import DTYPES

STATES = 48
STEPS_APART = 3
FLOAT64_LIMIT = 1e-9  # of 1 + |value|, the worst of all entries of all states
# Rounding grows at a contact that opens or closes in the step, so a few states may differ more; most may not.
FLOAT32_LIMIT = 2e-4  # of 1 + |value|, in 90 % of the states


@dataclass(frozen=True)
class Samples:
    """States, actions, and what Gymnasium's environment made of them."""

    qpos: np.ndarray
    qvel: np.ndarray
    action: np.ndarray
    obs: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    contacts: int  # states with a contact


class ParityError(Exception):
    """Ours is not the environment that it says it is."""


def check(case: Case) -> dict:
    """The errors found. Raises ParityError where one of them is beyond its limit."""
    samples = oracle(case)
    if samples.contacts < STATES // 4:
        raise ParityError(f"{case.name}: only {samples.contacts} of {STATES} states have contacts: nothing was checked")
    found = {name: step_from(case, samples, dtype) for name, dtype in DTYPES.items()}
    return verdict(case, samples, found["float64"], found["float32"])


def oracle(case: Case) -> Samples:
    """Gymnasium's environment under random actions, every few steps."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        env = gymnasium.make(case.gymnasium_id).unwrapped
    converge(env.model)
    env.action_space.seed(0)
    env.reset(seed=0)
    rows, contacts, k = [], 0, 0
    while len(rows) < STATES:
        k += 1
        action = env.action_space.sample().astype(np.float64)  # Gymnasium squares it in the precision that it is given
        qpos, qvel = env.data.qpos.copy(), env.data.qvel.copy()
        if sampled := k % STEPS_APART == 0:
            env.set_state(qpos, qvel)  # nothing is carried over, as in ours
        obs, reward, terminated, _, _ = env.step(action)
        if sampled:
            rows.append((qpos, qvel, action, obs, reward, terminated))
            contacts += env.data.ncon > 0
        if terminated:
            env.reset()
    env.close()
    return Samples(*(np.array(column) for column in zip(*rows, strict=True)), int(contacts))


def converge(model: mujoco.MjModel) -> None:
    """Have MuJoCo solve its constraints to rounding."""
    model.opt.solver = mujoco.mjtSolver.mjSOL_NEWTON
    model.opt.iterations = model.opt.ls_iterations = 100
    model.opt.tolerance, model.opt.ls_tolerance = 0.0, 1e-6


def step_from(
    case: Case, samples: Samples, dtype: torch.dtype, device: torch.device | str = "cpu"
) -> dict[str, np.ndarray]:
    """Ours, one environment step from the same states."""
    engine = Engine(case.task(), STATES, dtype=dtype, autoreset_mode=AutoresetMode.DISABLED, device=device)
    engine.set_state(*(torch.from_numpy(x).to(engine.device) for x in (samples.qpos, samples.qvel)))
    engine.action.copy_(torch.from_numpy(samples.action))
    engine.step()
    return {name: getattr(engine, name).double().cpu().numpy().copy() for name in ("obs", "reward", "terminated")}


def relative(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The worst entry of every state, of 1 + |value|; infinite where not finite."""
    error = np.abs(a - b) / (1 + np.abs(b))
    return np.where(np.isfinite(error), error, np.inf).reshape(len(a), -1).max(1)


def verdict(case: Case, samples: Samples, f64: dict, f32: dict) -> dict:
    exact = max(relative(f64[name], getattr(samples, name)).max() for name in ("obs", "reward"))
    single = np.maximum(relative(f32["obs"], f64["obs"]), relative(f32["reward"], f64["reward"]))
    flags = int((f64["terminated"] != samples.terminated).sum())
    found = {
        "states": STATES,
        "states_with_contacts": samples.contacts,
        "float64_worst": float(exact),
        "float32_median": float(np.median(single)),
        "float32_p90": float(np.quantile(single, 0.9)),
        "float32_worst": float(single.max()),
    }
    if not exact <= FLOAT64_LIMIT or flags:
        raise ParityError(
            f"{case.name}: float64 is {exact:.1e} from {case.gymnasium_id} (limit {FLOAT64_LIMIT:.0e}), "
            f"and {flags} of {STATES} termination flags differ"
        )
    if not found["float32_p90"] <= FLOAT32_LIMIT:
        raise ParityError(
            f"{case.name}: float32 is {found['float32_p90']:.1e} from float64 in one state of ten "
            f"(limit {FLOAT32_LIMIT:.0e})"
        )
    return found

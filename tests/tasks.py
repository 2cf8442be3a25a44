"""Gymnasium's own v5 tasks as the oracle of ours: a table of all eleven, what states are compared, and by what bounds.

MuJoCo's solver is set to converge there (Newton, tolerance 1e-14), since its default tolerance of 1e-8 would show in
these figures.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import gymnasium
import mujoco
import numpy as np
import torch

from torch_mjenvs import TorchVectorEnv

FLOAT64 = 1e-10  # relative to 1 + size; measured in 2,000 states: 3e-12 at the most
STATES = 300  # to which `Task.occurs` refers
MANY = (30, STATES)
NONE = (-1, 1)


def nothing(env: gymnasium.Env, rng: np.random.Generator, k: int) -> None:
    """Leave the start as the task draws it."""


def throw(env: gymnasium.Env, rng: np.random.Generator, k: int) -> None:
    """Every other time off the floor, at any angle, spinning."""
    if k % 2 == 0:
        qpos, qvel = env.data.qpos.copy(), env.data.qvel.copy()
        qpos[2] += rng.uniform(0, 1)
        quat = rng.normal(size=4)
        qpos[3:7] = quat / np.linalg.norm(quat)
        qvel += rng.normal(size=len(qvel)) * rng.uniform(0, 3)
        env.set_state(qpos, qvel)


def push_the_target(env: gymnasium.Env, rng: np.random.Generator, k: int) -> None:
    """Every other time: by itself Reacher's target neither moves nor comes to a limit."""
    if k % 2:
        qpos, qvel = env.data.qpos.copy(), env.data.qvel.copy()
        qpos[2:], qvel[2:] = rng.uniform(-0.3, 0.3, 2), rng.uniform(-1, 1, 2)
        env.set_state(qpos, qvel)


def reach_for_the_object(env: gymnasium.Env, rng: np.random.Generator, k: int) -> None:
    """Three times in four the arm reaches down to the height of Pusher's object, which is put beside its fingertips."""
    if k % 4 == 0:
        return
    model, d = env.model, mujoco.MjData(env.model)
    tips = [g for g in range(model.ngeom) if model.geom_type[g] == 3 and model.geom_contype[g]]
    home = model.body("object").pos
    for _ in range(10_000):
        d.qpos[:] = env.data.qpos
        d.qpos[:7] = rng.uniform(model.jnt_range[:7, 0], model.jnt_range[:7, 1])
        mujoco.mj_kinematics(model, d)
        end, angle, apart = d.geom_xpos[tips[k % len(tips)]], rng.uniform(-np.pi, np.pi), rng.uniform(0.06, 0.08)
        if abs(end[2] - home[2]) < 0.06:
            d.qpos[7:9] = end[1] + apart * np.sin(angle) - home[1], end[0] + apart * np.cos(angle) - home[0]
            mujoco.mj_forward(model, d)
            if -0.01 < min(d.contact.dist, default=1.0) < 0.001:
                break
    env.set_state(d.qpos, env.data.qvel)


@dataclass(frozen=True)
class Rollouts:
    """Where states come from: gentle, full and excessive actions in turns, going on after a fall for a while."""

    every: int = 5  # steps from one state that is taken to the next
    length: int = 150  # steps at the most
    scales: tuple[float, float, float] = (0.1, 1.0, 1.5)
    hold: int = 8  # steps that an action is held for, so that limits are met
    start: Callable[[gymnasium.Env, np.random.Generator, int], None] = nothing
    arguments: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Float32:
    """Bounds of the observation's error in float32: the median state's, and the worst's of this share of the states."""

    median: float = 5e-6  # measured: 1.3e-6
    worst: float = 1e-3
    share: float = 1.0
    entries: int | None = None  # only the first so many are compared: forces, after them, jump where a contact opens
    flags: int = 1  # states on the very edge of an end, which may fall on either side


@dataclass(frozen=True)
class Most:
    """A bound for a share of the states, and one for the worst."""

    bound: float
    worst: float
    share: float = 0.9


@dataclass(frozen=True)
class Task:
    """How a task is compared with Gymnasium's."""

    rollouts: Rollouts = Rollouts()
    occurs: dict[str, tuple[int, int]] = field(default_factory=dict)  # more states than, fewer than, of STATES
    exact: float | Most = FLOAT64  # bound of one step
    several: tuple[int, int, float | Most] = (10, 60, 1e-10)  # steps in a row, states, bound
    float32: Float32 = Float32()
    reset: float = 1e-12  # bound of the first observation
    variants: tuple[dict[str, Any], ...] = ()  # arguments to be tried


PLANAR = Task(
    Rollouts(7, 210, (0.3, 1.0, 1.5), 1, nothing, {"terminate_when_unhealthy": False}),
    {"touching": MANY, "limited": MANY, "unhealthy": (30, 290)},
    several=(10, 100, 1e-8),  # bodies that strike the floor part exponentially; measured: 1e-11 at the most
    float32=Float32(worst=3e-3, flags=2),  # measured: 3e-4; a foot that strikes within the step amplifies rounding
    reset=0.0,
)
FEW = (STATES // 20, STATES)
SPATIAL = Task(
    Rollouts(3, 120, (0.5, 1.0, 1.5), 1, throw, {"terminate_when_unhealthy": False}),
    {"touching": FEW, "limited": FEW, "flying": FEW, "lying": FEW},
    several=(3, 100, 1e-7),  # what a step leaves for the next, such as the place from which velocity is measured
    reset=FLOAT64,
)
HIDDEN = {f"include_{part}_in_observation": False for part in ("cinert", "cvel", "qfrc_actuator", "cfrc_ext")}

TASKS = {
    "HalfCheetah": replace(
        PLANAR,
        rollouts=replace(PLANAR.rollouts, arguments={}),
        occurs={"touching": MANY, "limited": MANY, "unhealthy": NONE},
        variants=(
            {"forward_reward_weight": 2.5, "ctrl_cost_weight": 0.3, "frame_skip": 3},
            {"exclude_current_positions_from_observation": False},
        ),
    ),
    "Walker2d": replace(
        PLANAR,
        variants=(
            {"terminate_when_unhealthy": False, "healthy_reward": 2.5, "ctrl_cost_weight": 0.2},
            {"healthy_z_range": [0.5, 1.2], "healthy_angle_range": (-0.3, 0.5), "forward_reward_weight": 3},
            {"exclude_current_positions_from_observation": False, "frame_skip": 2},
            {"xml_file": "walker2d.xml"},
        ),
    ),
    "Hopper": replace(
        PLANAR,
        variants=(
            {"terminate_when_unhealthy": False, "healthy_reward": 2, "ctrl_cost_weight": 0.2, "frame_skip": 1},
            {"healthy_z_range": (0.3, 1.1), "healthy_angle_range": (-0.5, 0.1), "forward_reward_weight": -1.0},
            {"healthy_state_range": (-1.5, 2.5), "healthy_z_range": (-9, 9), "healthy_angle_range": (-9, 9)},
            {"exclude_current_positions_from_observation": False, "reset_noise_scale": 0.1},
        ),
    ),
    "Ant": replace(
        SPATIAL,
        float32=Float32(median=2e-5, share=0.95, entries=27, flags=2),
        variants=(
            {
                "forward_reward_weight": 2.5,
                "ctrl_cost_weight": 0.3,
                "contact_cost_weight": 1e-2,
                "frame_skip": 3,
                "terminate_when_unhealthy": False,
            },
            {
                "exclude_current_positions_from_observation": False,
                "contact_force_range": (-5.0, 3.0),
                "main_body": "aux_1",
            },
            {"include_cfrc_ext_in_observation": False, "healthy_reward": 2.0, "healthy_z_range": (0.5, 2.0)},
        ),
    ),
    "Humanoid": replace(
        SPATIAL,
        occurs=SPATIAL.occurs | {"touching itself": FEW},
        float32=Float32(median=2e-5, share=0.95, entries=45, flags=2),
        variants=(
            {
                "contact_cost_weight": 1e-3,
                "contact_cost_range": (0.5, 3.0),
                "ctrl_cost_weight": 0.4,
                "frame_skip": 2,
                "include_cinert_in_observation": False,
                "include_cvel_in_observation": False,
                "healthy_z_range": (0.2, 1.2),
            },
            {
                "include_qfrc_actuator_in_observation": False,
                "include_cfrc_ext_in_observation": False,
                "exclude_current_positions_from_observation": False,
                "terminate_when_unhealthy": False,
                "healthy_reward": 1.0,
            },
        ),
    ),
    "Swimmer": Task(
        occurs={"limited": MANY, "touching itself": NONE, "terminated": NONE},
        variants=(
            {"forward_reward_weight": 2.5, "ctrl_cost_weight": 0.3, "frame_skip": 3},
            {"exclude_current_positions_from_observation": False},
        ),
    ),
    "Reacher": Task(
        Rollouts(start=push_the_target),
        {"limited": MANY, "touching itself": NONE, "terminated": NONE},
        variants=({"reward_dist_weight": 2.5, "reward_control_weight": 0.3, "frame_skip": 3},),
    ),
    "Pusher": Task(
        Rollouts(3, 24, start=reach_for_the_object),
        {"limited": MANY, "touching itself": FEW, "terminated": NONE},
        # MuJoCo finds by iteration where capsule and cylinder are nearest (measured: 1e-9), and less well how deep a
        # capsule is whose axis cuts into the cylinder (1e-4).
        exact=Most(1e-8, 2e-3),
        several=(10, 60, Most(1e-6, 1e-2)),
        variants=(
            {"reward_near_weight": 2.0, "reward_dist_weight": 2.5, "reward_control_weight": 0.3, "frame_skip": 3},
        ),
    ),
    "InvertedPendulum": Task(
        occurs={"limited": MANY, "touching itself": NONE, "terminated": (30, 270)},
        variants=({"frame_skip": 3},),
    ),
    "InvertedDoublePendulum": Task(
        occurs={"limited": MANY, "touching itself": NONE, "terminated": (30, 270)},
        variants=({"healthy_reward": 2.5, "frame_skip": 2},),
    ),
    "HumanoidStandup": Task(
        occurs={"limited": MANY, "touching itself": MANY, "terminated": NONE},
        several=(10, 60, 1e-8),
        float32=Float32(1e-4, 1e-2),  # measured: 1.2e-5 and 1.2e-3; limbs that strike within the step amplify rounding
        variants=(
            HIDDEN | {"exclude_current_positions_from_observation": False, "frame_skip": 1, "uph_cost_weight": 3.0}
            | {"ctrl_cost_weight": 0.3, "impact_cost_weight": 0.1, "impact_cost_range": [1.0, 50.0]},
        ),
    ),
}  # fmt: skip
LYING = {"Ant": 0.35, "Humanoid": 0.5}  # below this height


def real_env(name: str, **arguments: Any) -> gymnasium.Env:
    """The v5 environment without its wrappers, its solver run to convergence."""
    env = gymnasium.make(f"{name}-v5", **arguments).unwrapped
    env.model.opt.solver = mujoco.mjtSolver.mjSOL_NEWTON
    env.model.opt.tolerance, env.model.opt.iterations, env.model.opt.ls_iterations = 1e-14, 200, 100
    env.model.opt.ccd_tolerance, env.model.opt.ccd_iterations = 1e-12, 200
    env.reset(seed=0)
    return env


@dataclass
class Samples:
    """N states along real rollouts, an action for each, and in how many of them each kind of thing happens."""

    qpos: np.ndarray
    qvel: np.ndarray
    action: np.ndarray
    seen: Counter[str]


@cache
def samples(name: str, n: int = STATES) -> Samples:
    """States along rollouts."""
    how = TASKS[name].rollouts
    env, rng = real_env(name, **how.arguments), np.random.default_rng(len(name))
    high = env.action_space.high.astype(float)
    qpos, qvel, seen, terminated = [], [], Counter[str](), False
    for step in range(how.every * n):
        k, first = divmod(step, how.length)
        if first == 0 or (terminated and rng.random() < 0.04):
            env.reset(seed=step)
            how.start(env, rng, k)
        if step % how.hold == 0:
            action = how.scales[k % 3] * high * rng.uniform(-1, 1, env.model.nu)
        terminated = env.step(action)[2]
        if step % how.every == 0:
            qpos.append(env.data.qpos.copy())
            qvel.append(env.data.qvel.copy())
            seen.update(happening(name, env))
    return Samples(np.array(qpos), np.array(qvel), high * rng.uniform(-1.5, 1.5, (n, env.model.nu)), seen)


def happening(name: str, env: gymnasium.Env) -> set[str]:
    """Which kinds of thing happen in the state."""
    bodies = env.model.geom_bodyid[env.data.contact.geom].reshape(-1, 2)
    found = {
        "touching": len(bodies) > 0,
        "flying": len(bodies) == 0,
        "touching itself": bool(np.any(np.all(bodies > 0, axis=1))),
        "limited": bool(np.any(env.data.efc_type == mujoco.mjtConstraint.mjCNSTR_LIMIT_JOINT)),
        "unhealthy": not getattr(env, "is_healthy", True),
        "lying": name in LYING and env.data.qpos[2] < LYING[name],
    }
    return {what for what, true in found.items() if true}


def their_steps(env: gymnasium.Env, s: Samples, steps: int = 1) -> tuple[Any, ...]:
    """From every state, that many steps of its action: observation, reward, terminated, truncated, info of the last."""
    results = []
    for qpos, qvel, action in zip(s.qpos, s.qvel, s.action, strict=True):
        env.set_state(qpos, qvel)
        for _ in range(steps):
            result = env.step(action)
        results.append(result)
    obs, reward, terminated, truncated, infos = zip(*results, strict=True)
    info = {name: np.array([i[name] for i in infos], float) for name in infos[0]}
    return np.array(obs), np.array(reward), np.array(terminated), np.array(truncated), info


def our_env(name: str, n: int, dtype: torch.dtype = torch.float32, **arguments: Any) -> TorchVectorEnv:
    """Without a time limit, everywhere: so that each kernel is compiled once for all tests that need it."""
    return TorchVectorEnv(name, n, dtype=dtype, max_episode_steps=-1, **arguments)


def our_steps(name: str, s: Samples, dtype: torch.dtype, steps: int = 1, **arguments: Any) -> tuple[Any, ...]:
    """Return what our environment gives for the same samples."""
    env = our_env(name, len(s.qpos), dtype, **arguments)
    env.reset(seed=0)
    env.set_state(torch.tensor(s.qpos), torch.tensor(s.qvel))
    for _ in range(steps):
        env.engine.done.zero_()  # go on after a fall, as the oracle does
        obs, reward, terminated, truncated, info = env.step(torch.tensor(s.action))
    assert not info["bad_state"].any()
    for x in (obs, reward, *(x for k, x in info.items() if not k.startswith("_") and k != "bad_state")):
        assert x.dtype == dtype
    return tuple(x.cpu().numpy() for x in (obs, reward, terminated, truncated)) + (info,)


def error(ours: Any, theirs: np.ndarray) -> np.ndarray:
    """Return errors relative to 1 + size."""
    ours = ours.cpu() if isinstance(ours, torch.Tensor) else ours
    return np.abs(np.asarray(ours, float) - theirs) / (1 + np.abs(theirs))


def within(errors: np.ndarray, bound: float | Most) -> bool:
    """Return whether the errors of states are within the bound."""
    if isinstance(bound, Most):
        worst = errors.reshape(len(errors), -1).max(1)
        return bool(np.quantile(worst, bound.share) < bound.bound and worst.max() < bound.worst)
    return bool(errors.max() < bound)


def compare(ours: tuple[Any, ...], theirs: tuple[Any, ...], bound: float | Most = FLOAT64) -> None:
    """Observation, reward, flags, and every entry of info."""
    obs, reward, terminated, truncated, info = theirs
    assert ours[0].shape == obs.shape
    assert within(error(ours[0], obs), bound)
    assert within(error(ours[1], reward), bound)
    np.testing.assert_array_equal(ours[2], terminated)
    np.testing.assert_array_equal(ours[3], truncated)
    assert {k for k in ours[4] if not k.startswith("_")} == set(info) | {"bad_state"}
    for name, value in info.items():
        assert ours[4][f"_{name}"].all()
        assert within(error(ours[4][name], value), bound), name

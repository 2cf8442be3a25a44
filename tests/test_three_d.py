"""Ant and Humanoid beside Gymnasium's own v5 environments, as test_env_parity does for the planar tasks.

States are thrown in the air at any angle, fall, lie, push their limits and (Humanoid) touch themselves.
"""

from __future__ import annotations

from functools import cache

import gymnasium
import mujoco
import numpy as np
import pytest
import torch
from test_env_parity import FLOAT64, Samples, compare, error, oracle, oracle_steps, our_steps

from torch_mjenvs import TorchVectorEnv

TASKS = ["Ant", "Humanoid"]


def self_touching(env: gymnasium.Env) -> bool:
    bodies = env.model.geom_bodyid[env.data.contact.geom]
    return bool(len(bodies) and np.any(np.all(bodies > 0, axis=1)))


def throw(env: gymnasium.Env, rng: np.random.Generator) -> None:
    """Off the floor, at any angle, spinning."""
    qpos, qvel = env.data.qpos.copy(), env.data.qvel.copy()
    qpos[2] += rng.uniform(0, 1)
    quat = rng.normal(size=4)
    qpos[3:7] = quat / np.linalg.norm(quat)
    qvel += rng.normal(size=len(qvel)) * rng.uniform(0, 3)
    env.set_state(qpos, qvel)


@cache
def samples(name: str, n: int) -> tuple[Samples, dict[str, int]]:
    """States every 3 steps of rollouts that go on after a fall, and how many of them are of each kind."""
    env = oracle(name, terminate_when_unhealthy=False)
    rng = np.random.default_rng(len(name))
    high = env.action_space.high.astype(float)
    qpos, qvel = [], []
    seen = dict.fromkeys(("touching", "self", "limited", "flying", "lying"), 0)
    for step in range(3 * n):
        if step % 120 == 0:
            env.reset(seed=step)
            if step % 240 == 0:
                throw(env, rng)
        env.step((0.5, 1.0, 1.5)[step // 120 % 3] * high * rng.uniform(-1, 1, env.model.nu))
        if step % 3 == 0:
            qpos.append(env.data.qpos.copy())
            qvel.append(env.data.qvel.copy())
            seen["touching"] += env.data.ncon > 0
            seen["flying"] += env.data.ncon == 0
            seen["self"] += self_touching(env)
            seen["limited"] += bool(np.any(env.data.efc_type == mujoco.mjtConstraint.mjCNSTR_LIMIT_JOINT))
            seen["lying"] += env.data.qpos[2] < (0.35 if name == "Ant" else 0.5)
    actions = rng.uniform(-1.5, 1.5, (n, env.model.nu)) * high
    s = Samples(np.array(qpos), np.array(qvel), actions, seen["touching"], seen["limited"], seen["lying"])
    return s, seen


def check_kinds(name: str, n: int, seen: dict[str, int]) -> None:
    """The samples are worth something: all that a task has does happen in them."""
    few = n // 20
    assert seen["touching"] > few and seen["limited"] > few and seen["flying"] > few and seen["lying"] > few
    if name == "Humanoid":
        assert seen["self"] > few


@pytest.mark.parametrize("name", TASKS)
def test_step(name):
    s, seen = samples(name, 300)
    check_kinds(name, 300, seen)
    compare(our_steps(name, s, torch.float64), oracle_steps(oracle(name), s), FLOAT64)


@pytest.mark.slow
@pytest.mark.parametrize("name", TASKS)
def test_step_many(name):
    s, seen = samples(name, 2000)
    check_kinds(name, 2000, seen)
    compare(our_steps(name, s, torch.float64), oracle_steps(oracle(name), s), FLOAT64)


@pytest.mark.parametrize("name", TASKS)
def test_stale_data_over_steps(name):
    """What a step leaves for the next: three in a row, among them the place from which velocity is measured."""
    s, _ = samples(name, 100)
    compare(our_steps(name, s, torch.float64, 3), oracle_steps(oracle(name), s, 3), 1e-7)


@pytest.mark.parametrize("name", TASKS)
def test_float32(name):
    s, _ = samples(name, 300)
    ours, theirs = our_steps(name, s, torch.float32), oracle_steps(oracle(name), s)
    physical = slice(None, 27 if name == "Ant" else 45)  # qpos and qvel
    worst = error(ours[0][:, physical], theirs[0][:, physical]).max(1)
    assert np.median(worst) < 2e-5
    assert np.quantile(worst, 0.95) < 1e-3
    assert (ours[2] != theirs[2]).sum() <= 2


ARGUMENTS = {
    "Ant": [
        {"forward_reward_weight": 2.5, "ctrl_cost_weight": 0.3, "contact_cost_weight": 1e-2, "frame_skip": 3},
        {"exclude_current_positions_from_observation": False, "contact_force_range": (-5.0, 3.0)},
        {"include_cfrc_ext_in_observation": False, "healthy_reward": 2.0, "healthy_z_range": (0.5, 2.0)},
        {"main_body": "aux_1", "terminate_when_unhealthy": False},
    ],
    "Humanoid": [
        {"contact_cost_weight": 1e-3, "contact_cost_range": (0.5, 3.0), "ctrl_cost_weight": 0.4, "frame_skip": 2},
        {
            "include_cinert_in_observation": False,
            "include_cvel_in_observation": False,
            "exclude_current_positions_from_observation": False,
            "healthy_z_range": (0.2, 1.2),
        },
        {
            "include_qfrc_actuator_in_observation": False,
            "include_cfrc_ext_in_observation": False,
            "terminate_when_unhealthy": False,
            "healthy_reward": 1.0,
        },
    ],
}


@pytest.mark.parametrize(("name", "arguments"), [(name, a) for name in TASKS for a in ARGUMENTS[name]])
def test_arguments(name, arguments):
    if arguments.get("main_body") == "aux_1":  # Gymnasium's XML names it so
        assert mujoco.mj_name2id(oracle(name).model, mujoco.mjtObj.mjOBJ_BODY, "aux_1") > 0
    s, _ = samples(name, 100)
    ours = our_steps(name, s, torch.float64, **arguments)
    compare(ours, oracle_steps(oracle(name, **arguments), s), FLOAT64)


@pytest.mark.parametrize("name", TASKS)
def test_reset(name):
    """An unnormalised quaternion, no forces yet, and the observation of Gymnasium from the same state."""
    env = TorchVectorEnv(name, 30, dtype=torch.float64)
    obs, info = env.reset(seed=3)
    theirs = oracle(name)
    for world in range(30):
        theirs.set_state(env.qpos[world].cpu().numpy(), env.qvel[world].cpu().numpy())
        assert error(obs[world], _reset_observation(theirs)).max() < FLOAT64
        for key, value in theirs._get_reset_info().items():
            assert error(info[key][world], value).max() < FLOAT64
    norms = env.qpos[:, 3:7].norm(dim=1)
    assert (norms - 1).abs().max() > 1e-3
    noise = (env.qpos - torch.tensor(theirs.init_qpos)) / (0.1 if name == "Ant" else 0.01)
    assert noise.abs().max() <= 1 and noise.abs().max() > 0.95 and noise.mean().abs() < 0.1


def _reset_observation(env: gymnasium.Env) -> np.ndarray:
    """Gymnasium's after a reset: mj_resetData has cleared what a step leaves."""
    qpos, qvel = env.data.qpos.copy(), env.data.qvel.copy()
    mujoco.mj_resetData(env.model, env.data)
    env.set_state(qpos, qvel)
    return env._get_obs()


@pytest.mark.parametrize("name", TASKS)
def test_bitwise_in_any_company(name):
    """A world alone, or among others at another place, and with other threads."""
    s, _ = samples(name, 33)
    action = torch.tensor(s.action).float()

    def rollout(worlds: list[int], threads: int) -> torch.Tensor:
        env = TorchVectorEnv(name, len(worlds), max_episode_steps=-1)
        env.reset(seed=0)
        env.set_state(torch.tensor(s.qpos[worlds]), torch.tensor(s.qvel[worlds]))
        torch.set_num_threads(threads)
        for _ in range(4):
            env.engine.done.zero_()
            obs = env.step(action[worlds])[0]
        torch.set_num_threads(1)
        return obs

    everyone = rollout(list(range(33)), 1)
    assert torch.equal(rollout([*range(20, 33), *range(20)], 2).roll(-13, 0), everyone)
    for world in (0, 7, 32):
        assert torch.equal(rollout([world], 1)[0], everyone[world])


@pytest.mark.slow
@pytest.mark.parametrize("name", TASKS)
def test_nothing_blows_up(name):
    """Random actions for long: no value that is not finite, and no world flagged."""
    env = TorchVectorEnv(name, 1024, autoreset_mode="SameStep")
    env.reset(seed=0)
    generator = torch.Generator().manual_seed(0)
    high = torch.tensor(env.single_action_space.high)
    for _ in range(10_000):
        action = (torch.rand(1024, len(high), generator=generator, device="cpu").to(env.device) * 2 - 1) * high
        obs, reward, _, _, info = env.step(action)
        assert torch.isfinite(obs).all() and torch.isfinite(reward).all() and not info["bad_state"].any()

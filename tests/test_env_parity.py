"""One environment step, and a reset, beside Gymnasium's own v5 environments.

MuJoCo's solver is set to converge there (Newton, tolerance 1e-14), as its default tolerance of 1e-8 shows in these
figures. What is compared here: observation, reward, flags and every entry of info.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import gymnasium
import mujoco
import numpy as np
import pytest
import torch
from gymnasium.envs.mujoco import mujoco_env

from torch_mjenvs import TorchVectorEnv

TASKS = ["HalfCheetah", "Walker2d", "Hopper"]
ASSETS = Path(mujoco_env.__file__).parent / "assets"
FLOAT64 = 1e-10  # relative to 1 + size; measured: 1e-12 at the most in 2,000 states
# The same in float32; measured: 1.3e-6 and 3e-4. A foot that strikes within the step amplifies rounding.
FLOAT32_MEDIAN, FLOAT32_WORST = 5e-6, 3e-3


def oracle(name: str, **arguments: Any) -> gymnasium.Env:
    """The v5 environment without its wrappers, its solver run to convergence."""
    env = gymnasium.make(f"{name}-v5", **arguments).unwrapped
    env.model.opt.solver = mujoco.mjtSolver.mjSOL_NEWTON
    env.model.opt.tolerance, env.model.opt.iterations, env.model.opt.ls_iterations = 1e-14, 200, 100
    env.reset(seed=0)
    return env


@dataclass
class Samples:
    """N states along real rollouts, an action for each, and how many of them touch, are at a limit, are unhealthy."""

    qpos: np.ndarray
    qvel: np.ndarray
    action: np.ndarray
    touching: int
    limited: int
    unhealthy: int


@cache
def samples(name: str, n: int) -> Samples:
    """States every 7 steps of rollouts of gentle, full and excessive actions that go on after a fall."""
    env = oracle(name, **({} if name == "HalfCheetah" else {"terminate_when_unhealthy": False}))
    rng = np.random.default_rng(len(name))
    qpos, qvel, touching, limited, unhealthy = [], [], 0, 0, 0
    for step in range(7 * n):
        if step % 210 == 0:
            env.reset(seed=step)
            scale = (0.3, 1.0, 1.5)[step // 210 % 3]
        action = scale * rng.uniform(-1, 1, env.model.nu)
        env.step(action)
        if step % 7 == 0:
            qpos.append(env.data.qpos.copy())
            qvel.append(env.data.qvel.copy())
            touching += env.data.ncon > 0
            limited += bool(np.any(env.data.efc_type == mujoco.mjtConstraint.mjCNSTR_LIMIT_JOINT))
            unhealthy += not getattr(env, "is_healthy", True)
    actions = rng.uniform(-1.5, 1.5, (n, env.model.nu))
    return Samples(np.array(qpos), np.array(qvel), actions, touching, limited, unhealthy)


def oracle_steps(env: gymnasium.Env, s: Samples, steps: int = 1) -> tuple[Any, ...]:
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


def our_steps(name: str, s: Samples, dtype: torch.dtype, steps: int = 1, **arguments: Any) -> tuple[Any, ...]:
    env = TorchVectorEnv(name, len(s.qpos), dtype=dtype, max_episode_steps=-1, **arguments)
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
    """Relative to 1 + size."""
    ours = ours.cpu() if isinstance(ours, torch.Tensor) else ours
    return np.abs(np.asarray(ours, float) - theirs) / (1 + np.abs(theirs))


def compare(ours: tuple[Any, ...], theirs: tuple[Any, ...], bound: float) -> None:
    obs, reward, terminated, truncated, info = theirs
    assert ours[0].shape == obs.shape
    assert error(ours[0], obs).max() < bound
    assert error(ours[1], reward).max() < bound
    np.testing.assert_array_equal(ours[2], terminated)
    np.testing.assert_array_equal(ours[3], truncated)
    assert {k for k in ours[4] if not k.startswith("_")} == set(info) | {"bad_state"}
    for name, value in info.items():
        assert ours[4][f"_{name}"].all()
        assert error(ours[4][name], value).max() < bound, name


@pytest.mark.parametrize("name", TASKS)
def test_step(name):
    s = samples(name, 300)
    # The samples are worth something: all that a task has does happen in them.
    assert s.touching > 30 and s.limited > 30
    assert s.unhealthy == 0 if name == "HalfCheetah" else 30 < s.unhealthy < 290
    compare(our_steps(name, s, torch.float64), oracle_steps(oracle(name), s), FLOAT64)


@pytest.mark.slow
@pytest.mark.parametrize("name", TASKS)
def test_step_many(name):
    s = samples(name, 2000)
    compare(our_steps(name, s, torch.float64), oracle_steps(oracle(name), s), FLOAT64)


@pytest.mark.parametrize("name", TASKS)
def test_ten_steps(name):
    """A looser bound, as bodies that strike the floor part exponentially; measured: 1e-11 at the most."""
    s = samples(name, 100)
    ours, theirs = our_steps(name, s, torch.float64, 10), oracle_steps(oracle(name), s, 10)
    compare(ours, theirs, 1e-8)


@pytest.mark.parametrize("name", TASKS)
def test_float32(name):
    s = samples(name, 300)
    ours, theirs = our_steps(name, s, torch.float32), oracle_steps(oracle(name), s)
    for k in (0, 1):
        worst = error(ours[k], theirs[k]).reshape(300, -1).max(1)
        assert np.median(worst) < FLOAT32_MEDIAN
        assert worst.max() < FLOAT32_WORST
    assert (ours[2] != theirs[2]).sum() <= 2  # a world on the very edge of healthy may fall on either side


ARGUMENTS = {
    "HalfCheetah": [
        {"forward_reward_weight": 2.5, "ctrl_cost_weight": 0.3, "frame_skip": 3},
        {"exclude_current_positions_from_observation": False},
    ],
    "Walker2d": [
        {"terminate_when_unhealthy": False, "healthy_reward": 2.5, "ctrl_cost_weight": 0.2},
        {"healthy_z_range": [0.5, 1.2], "healthy_angle_range": (-0.3, 0.5), "forward_reward_weight": 3},
        {"exclude_current_positions_from_observation": False, "frame_skip": 2},
        {"xml_file": "walker2d.xml"},
    ],
    "Hopper": [
        {"terminate_when_unhealthy": False, "healthy_reward": 2, "ctrl_cost_weight": 0.2, "frame_skip": 1},
        {"healthy_z_range": (0.3, 1.1), "healthy_angle_range": (-0.5, 0.1), "forward_reward_weight": -1.0},
        {"healthy_state_range": (-1.5, 2.5), "healthy_z_range": (-9, 9), "healthy_angle_range": (-9, 9)},
        {"exclude_current_positions_from_observation": False, "reset_noise_scale": 0.1},
    ],
}


@pytest.mark.parametrize(("name", "arguments"), [(name, a) for name in TASKS for a in ARGUMENTS[name]])
def test_arguments(name, arguments):
    s = samples(name, 300)
    ours = our_steps(name, s, torch.float64, **arguments)
    theirs = oracle_steps(oracle(name, **arguments), s)
    compare(ours, theirs, FLOAT64)
    plain = oracle_steps(oracle(name), s)
    assert ours[0].shape != plain[0].shape or any((a != b).any() for a, b in zip(theirs[:3], plain[:3], strict=True))


def test_own_xml(tmp_path):
    """A user's model: lighter gravity, a heavier foot, other actuators and limits."""
    text = (ASSETS / "hopper.xml").read_text()
    for old, new in (('timestep="0.002"', 'timestep="0.003"'), ('gear="200.0"', 'gear="90"'), ('"-150 0"', '"-70 0"')):
        assert old in text
        text = text.replace(old, new, 1)
    path = tmp_path / "hopper.xml"
    path.write_text(text.replace("<option", '<option gravity="0 0 -4"', 1))
    s = samples("Hopper", 300)
    ours = our_steps("Hopper", s, torch.float64, xml_file=str(path))
    compare(ours, oracle_steps(oracle("Hopper", xml_file=str(path)), s), FLOAT64)


@pytest.mark.parametrize("exclude", [True, False])
@pytest.mark.parametrize("name", TASKS)
def test_reset(name, exclude):
    arguments = {"exclude_current_positions_from_observation": exclude}
    env = TorchVectorEnv(name, 20, dtype=torch.float64, **arguments)
    obs, info = env.reset(seed=1)
    real = oracle(name, **arguments)
    for i in range(20):
        real.set_state(env.qpos[i].cpu().numpy(), env.qvel[i].cpu().numpy())
        np.testing.assert_array_equal(obs[i].cpu().numpy(), real._get_obs())
        expected = real._get_reset_info()
        assert {k for k in info if not k.startswith("_")} == set(expected)
        for key, value in expected.items():
            assert info[f"_{key}"].all() and abs(info[key][i].item() - value) < 1e-15


@pytest.mark.parametrize("name", TASKS)
def test_attributes(name):
    env, real = TorchVectorEnv(name, 2, frame_skip=3), oracle(name, frame_skip=3)
    assert env.dt == real.dt and env.metadata["render_fps"] == real.metadata["render_fps"]
    assert env.single_action_space == real.action_space
    assert env.single_observation_space.shape == real.observation_space.shape
    mine = env.engine.task.default_camera_config
    theirs = real.mujoco_renderer.default_cam_config
    assert set(mine) == set(theirs)
    for key in mine:
        np.testing.assert_array_equal(mine[key], theirs[key])


def real_resets(name: str, n: int, **arguments: Any) -> np.ndarray:
    """(n, nq + nv) states of real resets, as distances from the model's initial state."""
    env = oracle(name, **arguments)
    env.reset(seed=12)
    start = np.concatenate([env.init_qpos, env.init_qvel])
    rows = []
    for _ in range(n):
        env.reset_model()
        rows.append(env.state_vector() - start)
    return np.array(rows)


def our_resets(name: str, worlds: int, episodes: int, dtype: torch.dtype, **arguments: Any) -> np.ndarray:
    """(episodes, worlds, nq + nv), the same of ours."""
    env = TorchVectorEnv(name, worlds, dtype=dtype, **arguments)
    rows = []
    for episode in range(episodes):
        env.reset(seed=5 if episode == 0 else None)
        start = torch.tensor(env.engine.model.qpos0, dtype=dtype)
        rows.append(torch.cat([env.qpos - start, env.qvel], 1).double().cpu().numpy().copy())
    return np.array(rows)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("name", "scale"), [("HalfCheetah", 0.1), ("Walker2d", 5e-3), ("Hopper", 0.3)])
def test_reset_noise(name, scale, dtype):
    """Each coordinate has the real environment's distribution, over worlds and over episodes, and goes its own way."""
    stats = pytest.importorskip("scipy.stats")
    arguments = {"reset_noise_scale": scale}
    real = real_resets(name, 2000, **arguments)
    many_worlds = our_resets(name, 4000, 1, dtype, **arguments)[0]
    many_episodes = our_resets(name, 2, 2000, dtype, **arguments)
    for ours in (many_worlds, many_episodes[:, 0], many_episodes[:, 1]):
        for k in range(real.shape[1]):
            assert stats.ks_2samp(ours[:, k], real[:, k]).pvalue > 1e-4, k
        together = np.corrcoef(ours, rowvar=False) - np.eye(real.shape[1])
        assert np.abs(together).max() < 5 / np.sqrt(len(ours))
    one, other = many_episodes[:, 0], many_episodes[:, 1]
    for a, b in ((one, other), (one[1:], one[:-1])):  # from world to world, from episode to episode
        matrix = np.corrcoef(a, b, rowvar=False)[: real.shape[1], real.shape[1] :]
        assert np.abs(matrix).max() < 5 / np.sqrt(len(a))
    uniform = slice(0, len(real[0]) // 2) if name == "HalfCheetah" else slice(None)
    assert np.abs(many_worlds[:, uniform]).max() <= scale * (1 + 1e-4)
    assert np.abs(many_worlds[:, uniform]).max() > 0.99 * scale
    assert len(np.unique(many_worlds[:, 0])) > 3990

"""Actions that are repeated, beside Gymnasium's RepeatAction around single worlds."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import RepeatAction
from pretended_gpu import pretended_gpu

import torch_mjenvs  # noqa: F401 (registers its tasks)
from torch_mjenvs import TorchVectorEnv

WORLDS, LIMIT, REPEATS = 6, 11, 3  # the limit is no multiple of the repeats; some hoppers fall before it
INFO = ("x_position", "x_velocity", "reward_survive")


def one() -> gymnasium.Env:
    return RepeatAction(gymnasium.make("TorchHopper-v0", max_episode_steps=LIMIT, healthy_z_range=(1.2, 2.0)), REPEATS)


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_a_step_is_that_of_gymnasiums_wrapper(mode):
    env = gymnasium.make_vec(
        "TorchHopper-v0", WORLDS, dtype=torch.float64, autoreset_mode=mode, max_episode_steps=LIMIT,
        action_repeat=REPEATS, healthy_z_range=(1.2, 2.0),
    )  # fmt: skip
    alone, rng = SyncVectorEnv([one] * WORLDS, autoreset_mode=mode), np.random.default_rng(0)
    seeds, ends = list(range(WORLDS)), np.zeros(2, dtype=int)
    obs, expected = env.reset(seed=seeds)[0], alone.reset(seed=seeds)[0]
    for _ in range(30):
        np.testing.assert_allclose(obs.cpu(), expected, rtol=0, atol=1e-12)
        action = rng.uniform(-1, 1, (WORLDS, 3))
        obs, *outputs, info = env.step(action)
        expected, *others, told = alone.step(action)
        for x, y in zip(outputs, others, strict=True):
            np.testing.assert_allclose(x.cpu(), y, rtol=0, atol=1e-12)
        terminated, truncated = others[1:]
        ended = terminated | truncated
        ends += np.sum(terminated), np.sum(truncated)
        if mode is AutoresetMode.SAME_STEP and ended.any():
            for i in np.flatnonzero(ended):
                np.testing.assert_allclose(info["final_obs"][i].cpu(), told["final_obs"][i], rtol=0, atol=1e-12)
            for name in INFO:
                final = info["final_info"][name].cpu()[ended]
                np.testing.assert_allclose(final, told["final_info"][name][ended], rtol=0, atol=1e-12)
        for name in set(INFO) & told.keys():
            has = told[f"_{name}"]
            np.testing.assert_allclose(info[name].cpu()[has], told[name][has], rtol=0, atol=1e-12)
        if mode is AutoresetMode.DISABLED and ended.any():
            options = {"reset_mask": ended}
            obs, expected = env.reset(options=options)[0], alone.reset(options=options)[0]
    assert (ends > 3).all()


def policy(obs: torch.Tensor) -> torch.Tensor:
    return torch.sin(9.0 * obs.reshape(len(obs), -1)[:, :3])


def rolled(**options) -> None:
    """A captured rollout gives what steps give."""
    env, same = (TorchVectorEnv("Hopper", WORLDS, max_episode_steps=LIMIT, **options) for _ in range(2))
    for x in (env, same):
        x.reset(seed=0)
    rollout = env.capture(policy, 7, info_keys=("x_position",))
    for _ in range(2):
        data = rollout()
        for t in range(7):
            assert torch.equal(data["obs"][t], same.obs)
            _, *outputs, info = same.step(policy(same.obs))
            told = info["final_info"]["x_position"]
            names = ("reward", "terminated", "truncated", "x_position")
            assert all(torch.equal(data[name][t], x) for name, x in zip(names, [*outputs, told], strict=True))


def test_a_rollout_repeats():
    rolled(autoreset_mode="SameStep", action_repeat=REPEATS)


@pytest.mark.cpu
def test_a_graph_of_a_gpu_holds_the_repeats():
    with pretended_gpu() as seen:
        rolled(autoreset_mode="SameStep", action_repeat=REPEATS)
        assert seen.count("replay") == 2


def test_films_last_as_long_as_what_they_show():
    assert TorchVectorEnv("Hopper").metadata["render_fps"] == 125
    assert TorchVectorEnv("Hopper", action_repeat=5).metadata["render_fps"] == 25


@pytest.mark.parametrize("repeats", [0, 1.5, True])
def test_repeats_are_whole_numbers(repeats):
    with pytest.raises(ValueError, match="action_repeat"):
        TorchVectorEnv("Hopper", action_repeat=repeats)

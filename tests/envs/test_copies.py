"""`copy.deepcopy` and pickle: a copy goes on bit for bit as the original does, and neither touches the other."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

import torch_mjenvs
from torch_mjenvs import TorchVectorEnv, wrappers


def pickled(x: Any) -> Any:
    return pickle.loads(pickle.dumps(x))


@pytest.fixture(params=[copy.deepcopy, pickled], ids=["deepcopy", "pickle"])
def copied(request):
    return request.param


def all_equal(x: Any, y: Any) -> bool:
    if isinstance(x, dict):
        return x.keys() == y.keys() and all(all_equal(x[k], y[k]) for k in x)
    if isinstance(x, (tuple, list)):
        return len(x) == len(y) and all(map(all_equal, x, y))
    return x.equal(y) if isinstance(x, torch.Tensor) else bool(np.all(x == y))


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_a_vector_env_is_copied_in_the_midst(copied, mode):
    """Episodes, random streams and parameters; torch's generator is not asked; there is one lock and one model."""
    env = gymnasium.make_vec(
        "TorchHopper-v0", 3, autoreset_mode=mode, max_episode_steps=8, render_mode="rgb_array", vary=["gravity"]
    )
    env.reset(seed=1)
    env.set_params({"gravity": torch.tensor([0.0, 0.0, -5.0])})
    action = torch.rand(3, 3)
    for _ in range(5):
        env.step(action)
    generator = torch.random.get_rng_state()
    twin = copied(env)
    assert torch.random.get_rng_state().equal(generator)
    assert twin._lock is twin.engine._lock is not env._lock and twin._camera.engine is twin.engine
    assert twin.model is twin.engine.mjmodel and twin.spec == env.spec and twin.action_space == env.action_space
    for _ in range(10):
        assert all_equal(env.step(action), twin.step(action))
    before = twin.state_dict()
    env.step(action)
    assert all_equal(before, twin.state_dict())


def test_an_env_before_its_first_reset_is_copied(copied):
    env = TorchVectorEnv("Hopper", 2)
    twin = copied(env)
    with pytest.raises(gymnasium.error.ResetNeeded):
        twin.step(torch.zeros(2, 3))
    assert all_equal(env.reset(), twin.reset())


def test_wrappers_are_copied_with_what_they_keep(copied):
    env = wrappers.NormalizeReward(wrappers.NormalizeObservation(TorchVectorEnv("Hopper", 3, max_episode_steps=8)))
    env = wrappers.FrameStackObservation(wrappers.RescaleAction(env, -1.0, 1.0), 2)
    env.reset(seed=1)
    action = torch.rand(3, 3)
    for _ in range(5):
        env.step(action)
    twin = copied(env)
    assert twin._lock is twin.unwrapped.engine._lock
    for _ in range(10):
        assert all_equal(env.step(action), twin.step(action))


def test_a_single_env_is_copied_with_gymnasiums_wrappers(copied):
    env = gymnasium.make("TorchHopper-v0", max_episode_steps=8, device=torch.get_default_device())
    env.reset(seed=1)
    env.step(env.action_space.sample())
    twin = copied(env)
    for _ in range(7):
        action = env.action_space.sample()
        assert all_equal(env.step(action), twin.step(action))
    assert all_equal(env.reset(), twin.reset())


def test_a_torchrl_env_is_copied_with_transforms(copied):
    envs = pytest.importorskip("torchrl.envs")
    env = envs.TransformedEnv(torch_mjenvs.HopperEnv(3, max_episode_steps=8), envs.StepCounter())
    env.set_seed(1)
    state = env.rollout(5)[:, -1]["next"]
    twin = copied(env)
    results = []
    for each in (env, twin):
        torch.manual_seed(0)
        results.append(each.rollout(12, tensordict=state.clone(), auto_reset=False, break_when_any_done=False))
    assert (results[0] == results[1]).all() and results[0]["next", "done"].any()


@pytest.mark.slow
def test_torchrls_parallel_env_takes_one_that_is_made():
    """Every worker has a copy; TorchRL asks for it within a function."""
    envs = pytest.importorskip("torchrl.envs")
    env = torch_mjenvs.HopperEnv(3)
    parallel = envs.ParallelEnv(2, lambda env=env: env)
    try:
        parallel.set_seed(1)
        obs = parallel.rollout(3)["observation"]
    finally:
        parallel.close()
    assert obs.shape == (2, 3, 3, 11) and not obs[0].equal(obs[1])

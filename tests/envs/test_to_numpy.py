"""Gymnasium's vector wrappers that compute in NumPy: around `TorchToNumpy`, and refused where they cannot work."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.wrappers import vector as theirs

from torch_mjenvs import TorchVectorEnv, wrappers

pytestmark = [pytest.mark.usefixtures("no_default_device"), pytest.mark.cpu]

IN_NUMPY = {
    "RecordEpisodeStatistics": (), "NormalizeObservation": (), "NormalizeReward": (), "FlattenObservation": (),
    "RescaleAction": (-1.0, 1.0), "DictInfoToList": (),
}  # fmt: skip


def bare(mode: str = "NextStep", **kwargs) -> TorchVectorEnv:
    return TorchVectorEnv("Hopper", 4, autoreset_mode=mode, max_episode_steps=20, device="cpu", **kwargs)


def around(name: str, env: gymnasium.vector.VectorEnv) -> gymnasium.vector.VectorEnv:
    return getattr(theirs, name)(env, *IN_NUMPY[name])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", IN_NUMPY)
def test_a_wrapper_in_numpy_is_refused_with_the_name_of_ours(name):
    for env in (bare(), wrappers.ClipReward(theirs.ClipReward(bare(), -1.0, 1.0), -1.0, 1.0)):
        wrapped = around(name, env)
        with pytest.raises(TypeError, match=rf"vector.{name} computes in NumPy, .*TorchToNumpy\(env\)") as said:
            wrapped.reset(seed=0)
        assert (f"use torch_mjenvs.wrappers.{name}, or" in str(said.value)) == hasattr(wrappers, name)
        env.reset(seed=0)  # which the refusal left as it was


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
@pytest.mark.parametrize("name", IN_NUMPY)
def test_around_arrays_it_works(name, mode):
    twin = bare(mode)
    try:
        env = around(name, wrappers.TorchToNumpy(bare(mode)))
    except ValueError as error:  # those for observations do not take every mode
        assert mode != "NextStep" and "autoreset_mode" in str(error)
        return
    obs, _ = env.reset(seed=0)
    seen, _ = twin.reset(seed=0)
    for _ in range(19):
        obs, reward, *ends, info = env.step(np.zeros((4, 3), np.float32))
        seen, *rest, _ = twin.step(torch.zeros(4, 3))
        assert type(obs) is type(reward) is type(ends[0]) is np.ndarray and all(x.dtype == bool for x in ends)
        if name not in ("NormalizeObservation", "NormalizeReward"):
            np.testing.assert_array_equal(obs, seen.numpy())
            np.testing.assert_array_equal(reward, rest[0].numpy())
    if name == "DictInfoToList":
        assert len(info) == 4 and isinstance(info[0]["x_position"], float | np.floating)


def test_statistics_are_those_of_our_own_wrapper():
    env = theirs.RecordEpisodeStatistics(wrappers.TorchToNumpy(bare("SameStep")))
    ours = wrappers.RecordEpisodeStatistics(bare("SameStep"))
    env.reset(seed=0), ours.reset(seed=0)
    for _ in range(45):
        *_, info = env.step(np.zeros((4, 3), np.float32))
        *_, told = ours.step(torch.zeros(4, 3))
        if "episode" in info:
            np.testing.assert_array_equal(info["_episode"], told["_episode"].numpy())
            np.testing.assert_allclose(info["episode"]["r"], told["episode"]["r"].numpy(), rtol=1e-6)
    assert env.episode_count >= 4


def test_final_observations_are_arrays_too():
    env = wrappers.TorchToNumpy(bare("SameStep"))
    env.reset(seed=[1, 2, 3, 4], options={})
    *_, info = env.step(np.zeros((4, 3)))
    assert type(info["final_obs"]) is type(info["final_info"]["x_position"]) is np.ndarray
    assert env.unwrapped.num_envs == 4 and not isinstance(env.reset()[0], torch.Tensor)


def test_gymnasiums_own_conversion_and_a_subclass_of_a_users_are_not_refused():
    class Mine(gymnasium.vector.VectorWrapper):
        def reset(self, **kwargs):
            return self.env.reset(**kwargs)

    assert isinstance(Mine(bare()).reset(seed=0)[0], torch.Tensor)
    pytest.importorskip("array_api_compat")
    env = theirs.ArrayConversion(bare(), env_xp=torch, target_xp=np)
    assert isinstance(theirs.RecordEpisodeStatistics(env).reset(seed=0)[0], np.ndarray)


@pytest.mark.parametrize("inside", [wrappers.TorchToNumpy, lambda env: theirs.ArrayConversion(env, torch, np)])
@pytest.mark.parametrize("name", ["RecordEpisodeStatistics", "NormalizeObservation", "NormalizeReward"])
def test_wrappers_of_tensors_refuse_arrays_inside(name, inside):
    with pytest.raises(TypeError, match=f"{name} works on tensors, and .* inside it gives arrays"):
        getattr(wrappers, name)(inside(bare()))


def test_wrappers_of_tensors_take_what_is_made_tensors_again():
    obs, _ = wrappers.RecordEpisodeStatistics(theirs.NumpyToTorch(wrappers.TorchToNumpy(bare()))).reset(seed=0)
    assert torch.equal(obs, bare().reset(seed=0)[0])

"""Pictures as observations: of the state that a step or a reset leaves, the newest last."""

from __future__ import annotations

import copy

import gymnasium
import pytest
import torch
from gymnasium.vector import AutoresetMode
from torchrl.envs.utils import check_env_specs

from torch_mjenvs import Simulation
from torch_mjenvs.envs.torchrl import TorchRLEnv
from torch_mjenvs.envs.vector_env import TorchVectorEnv

N, STACK = 4, 3
OPTIONS = {"width": 24, "height": 20, "camera": 0, "stack": STACK}


def made(**more: object) -> TorchVectorEnv:
    return TorchVectorEnv("Hopper", N, max_episode_steps=4, pixels=OPTIONS, **more)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def drawn():
    """A function from positions to a Simulation's pictures of them."""
    simulation = Simulation(gymnasium.make("Hopper-v5").unwrapped.model, N)

    def pictures(qpos: torch.Tensor) -> torch.Tensor:
        simulation.qpos.copy_(qpos)
        return simulation.render(0, 24, 20, outputs="rgb")["rgb"].clone()

    return pictures


def newest(obs: torch.Tensor, back: int = 0) -> torch.Tensor:
    end = obs.shape[-1] - 3 * back
    return obs[..., end - 3 : end]


def test_observations_are_pictures_of_the_last_states(drawn):
    env = made()
    obs, _ = env.reset(seed=1)
    assert obs.shape == (N, 20, 24, 3 * STACK) and obs.dtype == torch.uint8
    assert env.single_observation_space.contains(obs[0].cpu().numpy())
    first = drawn(env.qpos)
    assert first.float().std() > 10
    assert all(torch.equal(newest(obs, back), first) for back in range(STACK))
    env.action_space.seed(0)
    obs = env.step(env.action_space.sample())[0]
    second = drawn(env.qpos)
    assert torch.equal(newest(obs), second) and not torch.equal(second, first)
    assert torch.equal(newest(obs, 1), first) and torch.equal(newest(obs, 2), first)
    kept = obs.clone()
    env.step(env.action_space.sample())
    assert torch.equal(obs, kept)  # what was given is the user's


def test_an_episode_begins_with_its_first_picture_alone(drawn):
    env = made()
    env.reset(seed=1)
    env.action_space.seed(0)
    for _ in range(4):
        obs, *_, truncated, _ = env.step(env.action_space.sample())
    assert truncated.all() and not torch.equal(newest(obs), newest(obs, 1))
    obs = env.step(env.action_space.sample())[0]  # which resets
    assert all(torch.equal(newest(obs, back), drawn(env.qpos)) for back in range(STACK))


def test_a_reset_of_some_worlds_leaves_the_pictures_of_the_others(drawn):
    env = made(autoreset_mode=AutoresetMode.DISABLED)
    env.reset(seed=1)
    env.action_space.seed(0)
    before = env.step(env.action_space.sample())[0]
    mask = torch.tensor([True, False, False, True])
    after, _ = env.reset(options={"reset_mask": mask})
    assert torch.equal(after[~mask], before[~mask])
    assert all(torch.equal(newest(after, back)[mask], drawn(env.qpos)[mask]) for back in range(STACK))


def test_a_copy_and_a_loaded_state_go_on_with_the_same_pictures():
    env = made()
    env.reset(seed=1)
    action = torch.full((N, 3), 0.5)
    env.step(action)
    other, state = copy.deepcopy(env), env.state_dict()
    want = env.step(action)[0]
    assert torch.equal(other.step(action)[0], want)
    env.reset(seed=2)
    env.load_state_dict(state)
    assert torch.equal(env.step(action)[0], want)


def test_the_state_may_be_there_too_and_channels_first():
    options = OPTIONS | {"state": True, "channels_first": True, "stack": 1, "without": "shadow"}
    env = TorchVectorEnv("Hopper", N, pixels=options)
    obs, _ = env.reset(seed=1)
    assert list(obs) == ["state", "pixels"] and obs["state"].shape == (N, 11)
    assert obs["pixels"].shape == (N, 3, 20, 24) and obs["pixels"].is_contiguous()
    assert torch.equal(env.obs["pixels"], obs["pixels"])
    depth = TorchVectorEnv("Hopper", N, pixels=OPTIONS | {"outputs": "depth"})
    obs, _ = depth.reset(seed=1)
    assert obs.shape == (N, 20, 24, STACK) and obs.dtype == torch.float32 and (obs > 0).all()


def test_torchrl_has_them_as_pixels(drawn):
    env = TorchRLEnv("Hopper", N, pixels=OPTIONS, max_episode_steps=3)
    check_env_specs(env)
    assert set(env.observation_spec.keys()) == {"pixels"}
    env.set_seed(0)
    data = env.rollout(5, break_when_any_done=False)
    assert data["pixels"].shape == (N, 5, 20, 24, 3 * STACK)
    ended, again = data["next", "pixels"][:, 2], data["pixels"][:, 3]
    assert data["next", "done"][:, 2].all() and not torch.equal(newest(ended), newest(again))
    assert torch.equal(newest(again), newest(again, 1)) and not torch.equal(newest(ended), newest(ended, 1))
    assert torch.equal(newest(data["next", "pixels"][:, -1]), drawn(env.engine.qpos))


def test_what_cannot_be_right_is_refused():
    with pytest.raises(ValueError, match="SAME_STEP"):
        made(autoreset_mode=AutoresetMode.SAME_STEP)
    with pytest.raises(TypeError, match=r"pixels has no \['size'\]"):
        TorchVectorEnv("Hopper", N, pixels={"size": 84})
    with pytest.raises(ValueError, match="outputs must be one of"):
        TorchVectorEnv("Hopper", N, pixels={"outputs": "segmentation"})
    with pytest.raises(ValueError, match="stack"):
        TorchVectorEnv("Hopper", N, pixels={"stack": 0})
    with pytest.raises(ValueError, match="no camera 'behind'"):
        TorchVectorEnv("Hopper", N, pixels={"camera": "behind"})
    with pytest.raises(MemoryError, match="num_envs=4 takes"):
        TorchVectorEnv("Hopper", N, pixels={"width": 100_000, "height": 100_000})
    with pytest.raises(ValueError, match="without pixels"):
        made().capture(lambda obs: torch.zeros(N, 3), 2)

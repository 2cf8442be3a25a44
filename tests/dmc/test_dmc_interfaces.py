"""dm_control's tasks by Gymnasium's and TorchRL's own checkers."""

from __future__ import annotations

import dm_control_oracle as theirs
import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env
from torchrl.envs import FrameSkipTransform, TransformedEnv
from torchrl.envs.utils import check_env_specs

import torch_mjenvs
from torch_mjenvs import TorchRLEnv


@pytest.mark.cpu  # where one world for NumPy is, unless asked otherwise
@pytest.mark.parametrize("name", ["cartpole-swingup", "walker-walk"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_gymnasiums_checker_passes(name: str) -> None:
    check_env(gymnasium.make(f"TorchDMC/{name}-v0").unwrapped, skip_render_check=True)


@pytest.mark.parametrize("name", ["cartpole-swingup", "walker-walk"])
def test_torchrls_checker_passes_with_dm_controls_names(name: str) -> None:
    env = TorchRLEnv(name, 4, dtype=torch.float64)
    check_env_specs(env)
    wanted = theirs.suite.load(*name.split("-", 1)).observation_spec()
    found = {key: tuple(x.shape[1:]) for key, x in env.observation_spec.items()}
    assert found == {key: x.shape or (1,) for key, x in wanted.items()}


def test_an_action_is_repeated_by_torchrls_own_transform() -> None:
    """Rewards are summed, as TorchRL's DMControlEnv does with its frame_skip; that of a task here is of substeps."""
    plain, repeated = (TorchRLEnv("cartpole-balance", 3, dtype=torch.float64) for _ in range(2))
    env = TransformedEnv(repeated, FrameSkipTransform(4))
    for x in (plain, env):
        x.set_seed(0)
    one, other = plain.reset(), env.reset()
    action = torch.full((3, 1), 0.5, dtype=torch.float64)
    total = 0.0
    for _ in range(4):
        one = plain.step(one.set("action", action))["next"]
        total = total + one["reward"]
    after = env.step(other.set("action", action))["next"]
    torch.testing.assert_close(after["reward"], total)
    torch.testing.assert_close(after["position"], one["position"])


def test_a_task_goes_by_its_name_and_fields() -> None:
    env = gymnasium.make_vec("TorchDMC/cartpole-three_poles-v0", num_envs=2, num_poles=4, observation="flat")
    assert env.reset(seed=0)[0].shape == (2, 1 + 2 * 4 + 5)
    with pytest.raises(ValueError, match=r"no task 'walker-fly': choose from .*'walker-walk'"):
        torch_mjenvs.TorchVectorEnv("walker-fly", 1)


def test_an_episode_is_cut_after_1000_steps() -> None:
    env = torch_mjenvs.TorchVectorEnv("pendulum-swingup", 2)
    env.reset(seed=0)
    for k in range(1000):
        _, reward, terminated, truncated, _ = env.step(torch.zeros(2, 1, device=env.device))
        assert truncated.tolist() == [k == 999] * 2 and not terminated.any()
    assert np.isin(reward.cpu().numpy(), [0.0, 1.0]).all()

"""`capture`: many steps of policy and environment as one call. What it gives is what a loop over `step` gives."""

from __future__ import annotations

import pytest
import torch
from gymnasium.error import ResetNeeded

from torch_mjenvs import TorchVectorEnv

N, T = 16, 10


def make(mode: str = "SameStep") -> TorchVectorEnv:
    return TorchVectorEnv("Hopper", N, autoreset_mode=mode, max_episode_steps=13)


@pytest.mark.parametrize("mode", ["SameStep", "NextStep"])
def test_a_rollout_is_a_loop(mode):
    torch.manual_seed(0)
    weight = torch.randn(3, 11)

    def policy(obs):
        mean = (weight * obs[:, None]).sum(2)  # no library that might choose another way in a graph
        return mean + torch.randn_like(mean), {"mean": mean}

    env, twin = make(mode), make(mode)
    env.reset(seed=4)
    obs, _ = twin.reset(seed=4)
    rollout = env.capture(policy, T)
    torch.manual_seed(1)
    copies = [{name: x.clone() for name, x in rollout().items()} for _ in range(4)]
    torch.manual_seed(1)
    ends = 0
    with torch.no_grad():
        for data in copies:
            for t in range(T):
                assert torch.equal(data["obs"][t], obs)
                action, extra = policy(obs)
                obs, reward, terminated, truncated, info = twin.step(action)
                expected = {
                    "action": action, "mean": extra["mean"], "reward": reward, "terminated": terminated,
                    "truncated": truncated,
                }  # fmt: skip
                if mode == "SameStep":
                    expected["final_obs"] = info["final_obs"]
                assert data.keys() == expected.keys() | {"obs", "next_obs"}
                assert all(torch.equal(data[name][t], x) for name, x in expected.items())
                ends += int((terminated | truncated).sum())
            assert torch.equal(data["next_obs"], obs)
    assert ends > N


def test_addresses_stay_and_nothing_runs_before_the_first_call():
    env = make()
    env.reset(seed=0)
    random_state = torch.cuda.get_rng_state if env.device.type == "cuda" else torch.get_rng_state
    before, numbers = env.state_dict(), random_state()
    rollout = env.capture(lambda obs: torch.rand(N, 3), T)
    assert torch.equal(random_state(), numbers)
    assert all(torch.equal(x, before[name]) for name, x in env.state_dict().items())
    first = {name: x.data_ptr() for name, x in rollout().items()}
    assert {name: x.data_ptr() for name, x in rollout().items()} == first


def test_gradients_are_off():
    env = make()
    env.reset(seed=0)
    net = torch.nn.Linear(11, 3)
    assert not any(x.requires_grad for x in env.capture(net, 2)().values())


def test_what_cannot_be():
    env = make()
    with pytest.raises(ResetNeeded):
        env.capture(lambda obs: obs[:, :3], T)()
    env.reset(seed=0)
    for steps in (0, -1, 2.0, True):
        with pytest.raises(ValueError, match="steps must be"):
            env.capture(lambda obs: obs[:, :3], steps)
    with pytest.raises(ValueError, match=r"must give actions \(16, 3\)"):
        env.capture(lambda obs: obs[:, :2], T)
    with pytest.raises(ValueError, match="rollout's own"):
        env.capture(lambda obs: (obs[:, :3], {"reward": obs[:, 0]}), T)
    with pytest.raises(ValueError, match="one a world"):
        env.capture(lambda obs: (obs[:, :3], {"mean": obs[0]}), T)
    with pytest.raises(ValueError, match="resets itself"):
        make("Disabled").capture(lambda obs: obs[:, :3], T)

"""What TorchRL's losses make of our rollouts, where its documentation does not say what to hand them."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("torchrl")

from tensordict import TensorDictBase
from tensordict.nn import TensorDictModule
from torchrl.data import LazyTensorStorage, ReplayBuffer
from torchrl.envs import MultiStepTransform
from torchrl.modules import MLP, NormalParamExtractor, ProbabilisticActor, TanhNormal, ValueOperator
from torchrl.objectives import SACLoss
from torchrl.objectives.value import TD0Estimator

from torch_mjenvs import HopperEnv, TorchRLEnv

N, T, GAMMA, STEPS = 5, 60, 0.9, 3


def falling() -> TorchRLEnv:
    """Hoppers of which each falls at another time."""
    env = HopperEnv(N, max_episode_steps=9, healthy_angle_range=(-0.02, 0.02))
    env.set_seed(0)
    torch.manual_seed(0)
    return env


def test_a_loss_is_handed_the_spec_of_one_action():
    """Else SAC aims at the entropy of all worlds' actions together, for each of them, as docs/torchrl.md says."""
    env = falling()
    net = torch.nn.Sequential(torch.nn.Linear(11, 6), NormalParamExtractor())
    actor = ProbabilisticActor(
        TensorDictModule(net, in_keys=["observation"], out_keys=["loc", "scale"]),
        in_keys=["loc", "scale"],
        spec=env.action_spec_unbatched,
        distribution_class=TanhNormal,
    )
    critic = ValueOperator(MLP(in_features=14, out_features=1, num_cells=[8]), in_keys=["observation", "action"])
    found = [SACLoss(actor, critic, action_spec=x).target_entropy for x in (None, env.action_spec_unbatched)]
    assert found == [-3, -3]
    batched = SACLoss(actor, critic, action_spec=env.action_spec).target_entropy
    assert batched == -3 * N, "mended in TorchRL? Then docs/torchrl.md need not tell it"


def n_step_targets(data: TensorDictBase, value: ValueOperator) -> torch.Tensor:
    """(N, T) by hand: up to STEPS rewards of the episode, and the value of what the last of them led to."""
    after, targets = data["next"], torch.zeros(N, T)
    values = value(after.clone())["state_value"]
    for world in range(N):
        for start in range(T):
            for k in range(STEPS):
                at = world, min(start + k, T - 1)
                targets[world, start] += GAMMA**k * after["reward"][at].item()
                if after["done"][at] or k == STEPS - 1:
                    if not after["terminated"][at]:
                        targets[world, start] += GAMMA ** (k + 1) * values[at].item()
                    break
    return targets


@torch.no_grad()
def test_targets_of_several_steps_end_where_a_world_fell():
    """TorchRL 0.14 brings the last observation, but the flags of the first step; docs/torchrl.md has the remedy."""
    env = falling()
    value = ValueOperator(torch.nn.Linear(11, 1), in_keys=["observation"])
    torch.nn.init.constant_(value.module.bias, 5.0)
    data = env.rollout(T, break_when_any_done=False)
    assert data["next", "terminated"].any() and data["next", "truncated"].any()
    wanted = n_step_targets(data, value)[:, : T - STEPS]

    def learned(name: str) -> torch.Tensor:
        buffer = ReplayBuffer(storage=LazyTensorStorage(N * T, ndim=2))
        buffer.append_transform(MultiStepTransform(n_steps=STEPS, gamma=GAMMA))
        given = data.clone()
        given["next", "fell"] = given["next", "terminated"]
        buffer.extend(given)
        estimator = TD0Estimator(gamma=GAMMA, value_network=value)
        estimator.set_keys(terminated=name)
        return estimator.value_estimate(buffer[:])[..., 0]

    torch.testing.assert_close(learned("fell"), wanted)
    wrong = (learned("terminated") - wanted).abs() > 1
    assert wrong.any(), "mended in TorchRL? Then docs/torchrl.md need not tell it"

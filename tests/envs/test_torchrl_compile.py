"""TorchRL's environments under torch.compile, without a graph break, and torch.vmap, on stock torch."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("torchrl")

from tensordict import TensorDict, TensorDictBase
from tensordict.nn import TensorDictModule
from test_torch_compile import compiler
from torchrl.envs import Compose, EnvBase, RewardSum, StepCounter, TransformedEnv

from torch_mjenvs import HopperEnv

N, LIMIT = 8, 12


def make(kind: str) -> EnvBase:
    env = HopperEnv(N, max_episode_steps=LIMIT, native_autoreset=kind != "bare", info_keys=("x_velocity", "bad_state"))
    return TransformedEnv(env, Compose(StepCounter(), RewardSum())) if kind == "transformed" else env


def make_policy() -> TensorDictModule:
    torch.manual_seed(1)
    with torch.device("cpu"):  # the same on every device
        net = torch.nn.Sequential(torch.nn.Linear(11, 3), torch.nn.Tanh()).requires_grad_(False)
    net[0].weight.mul_(3)
    return TensorDictModule(net.to(torch.get_default_device()), in_keys=["observation"], out_keys=["action"])


def follow(env: EnvBase, advance, steps: int = 2 * LIMIT + 2) -> TensorDictBase:
    env.set_seed(3)
    data, td = [], env.reset()
    for _ in range(steps):
        step, td = advance(td)
        data.append(step)
    return torch.stack(data, 1)


def equal(got: TensorDictBase, want: TensorDictBase, **tolerance) -> None:
    assert want["next", "terminated"].any() and want["next", "truncated"].any()
    assert set(got.keys(True, True)) == set(want.keys(True, True))
    for key in want.keys(True, True):
        torch.testing.assert_close(got[key], want[key], equal_nan=True, **tolerance)


# TorchRL keeps its specs by `self.__dict__.setdefault`.
setdefault = pytest.mark.skipif(
    torch.__version__ < "2.12", reason="torch 2.11's Dynamo cannot trace what TorchRL's own `step` calls"
)


@pytest.mark.slow
@compiler
@setdefault
@pytest.mark.parametrize("kind", ["bare", "native", "transformed"])
def test_compiled_environment(kind):
    policy = make_policy()
    plain, env = make(kind), make(kind)
    want = follow(plain, lambda td: plain.step_and_maybe_reset(policy(td)))
    env.rollout(2)  # TorchRL makes its specs when they are first asked for, which no graph can hold
    env.compile(fullgraph=True)
    equal(follow(env, lambda td: env.step_and_maybe_reset(policy(td))), want, rtol=0, atol=0)


@compiler
@setdefault
@pytest.mark.parametrize(
    "kind", ["bare", *(pytest.param(k, marks=pytest.mark.slow) for k in ("native", "transformed"))]
)
def test_compiled_policy_and_step(kind):
    policy = make_policy()
    plain, env = make(kind), make(kind)
    want = follow(plain, lambda td: plain.step_and_maybe_reset(policy(td)))
    env.rollout(2)

    @torch.compile(fullgraph=True)
    def advance(td: TensorDictBase) -> tuple[TensorDictBase, TensorDictBase]:
        return env.step_and_maybe_reset(policy(td))

    equal(follow(env, advance), want, rtol=1e-2, atol=1e-3)  # the policy rounds differently, and hoppers magnify it


def test_vmap_maps_the_transition():
    """The step as a function of one world's state and action, mapped over worlds, and over actions for one state."""
    env, policy = make("bare"), make_policy()
    env.set_seed(0)
    env.rollout(4, policy)
    state = TensorDict(env.engine.state_dict(), [N])
    action = torch.rand(N, 3)
    moved = torch.vmap(env.engine.transition)(state, action)
    branches = torch.vmap(env.engine.transition, in_dims=(None, 0))(state[2], action)
    data = env.step(TensorDict({"action": action}, [N]))["next"]
    assert moved["obs"].equal(data["observation"]) and moved["reward"].equal(data["reward"][:, 0])
    assert branches["obs"][2].equal(moved["obs"][2]) and not branches["obs"][0].equal(branches["obs"][1])

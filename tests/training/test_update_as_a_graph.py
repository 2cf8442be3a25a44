"""On a GPU the update in torch is one CUDA graph, and so are advantages and returns: shown by a stand-in for graphs."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from launches import Launches, RecordedGraph, record_graphs

from torch_mjenvs.training import ppo, worlds
from torch_mjenvs.training.networks import Replayed
from torch_mjenvs.training.sharing import ALONE, Share

pytestmark = [pytest.mark.usefixtures("no_default_device"), pytest.mark.cpu]
GRAPHS = ("learn_in", "advantages_in_torch", "returns_in_torch")


class Twin(Share):
    """The share of one of two processes of which the other one has the same worlds, and so adds the same."""

    def gathered(self, x: torch.Tensor, dim: int = 0) -> torch.Tensor:
        return torch.cat([x, x], dim)

    def add(self, *tensors: torch.Tensor) -> None:
        for x in tensors:
            x *= 2


def learner(share: Share = ALONE) -> ppo.PPO:
    """A PPO whose update is in torch: 32 frames in minibatches of 8, two epochs of them."""
    torch.manual_seed(0)
    instead = dict(num_envs=4, horizon=8, minibatch=8, epochs=2, actor=[8], critic=[8], learning_rate=1e-2)
    env = worlds.make("TorchHopper-v0", 4 // share.ranks, "cpu")
    return ppo.PPO(env, ppo.Settings(**ppo.settings("TorchHopper-v0", **instead)), 0, compiled=False, share=share)


def state(agent: ppo.PPO) -> list[torch.Tensor]:
    """All that such a graph changes in place."""
    kept = agent.optimizer.state[agent.net.theta].values()
    return [agent.net.theta, *kept, agent.bad_updates, agent.discounted_return, agent.episodes.returns]


def replayed(agent: ppo.PPO) -> list[Replayed]:
    """Have the agent replay what it would on a GPU."""
    names = GRAPHS if agent.share.ranks == 1 else ("compute_gradient", "take_step", *GRAPHS[1:])
    found = [getattr(agent, name) for name in names]
    assert all(isinstance(x, Replayed) for x in found)
    for name, x in zip(names, found, strict=True):
        setattr(agent, name, partial(x._replay))
    return found


@torch.no_grad()
def test_a_replayed_iteration_is_the_one_that_was_captured(monkeypatch):
    """Bit for bit, with other frames, advantages and minibatches in another order."""
    seen = record_graphs(monkeypatch)
    agent, other = learner(), learner()
    graphs = replayed(agent)
    for _ in range(4):  # in the last one graphs are captured, and the stand-in does all of it twice
        agent.iterate()
    assert len(seen) == 6 and seen.count("replay") == 3
    for _ in range(4):
        other.iterate()
    agent.env.load_state_dict(other.env.state_dict())
    for ours, theirs in zip(state(agent), state(other), strict=True):
        ours.copy_(theirs)
    for name in ("obs_moments", "return_moments"):
        getattr(agent, name).load_state_dict(getattr(other, name).state_dict())
    for _ in range(2):
        random = torch.get_rng_state()
        agent.iterate()
        torch.set_rng_state(random)
        before = other.net.theta.clone()
        other.iterate()
        assert not torch.equal(before, other.net.theta)
        for ours, theirs in zip(state(agent), state(other), strict=True):
            assert torch.equal(ours.nan_to_num(7.0), theirs.nan_to_num(7.0))
        torch.testing.assert_close(agent.learned, other.learned, rtol=0, atol=0)
    assert len(seen) == 12 and seen[6:] == ["replay"] * 6
    assert all(isinstance(x.graph, RecordedGraph) for x in graphs)


@torch.no_grad()
def test_a_shared_update_exchanges_sums_between_two_graphs(monkeypatch):
    """Bit for bit as without graphs, and nothing that is exchanged is captured."""
    seen = record_graphs(monkeypatch)
    agent, other = (learner(Twin(0, 2)) for _ in range(2))
    replayed(agent)
    assert not isinstance(agent.learn_in, Replayed)
    data = agent.rollout()
    agent.prepare(data)
    for x, y in zip(state(other), state(agent), strict=True):
        x.copy_(y)
    other.frames.copy_(agent.frames)
    for k in range(3):  # 4 minibatches each; the last one of the first captures, and the stand-in does it twice
        order = torch.randperm(32)
        if k == 1:
            for x, y in zip(state(other), state(agent), strict=True):
                x.copy_(y)
        found = [one.epoch(order, 8).clone() for one in (agent, other)]
        if k:
            assert torch.equal(*found)
            for x, y in zip(state(agent), state(other), strict=True):
                assert torch.equal(x.nan_to_num(7.0), y.nan_to_num(7.0))
    assert seen.count("replay") == 2 * (3 * 4 - 3) and len(seen) == 2 + 2 * (3 * 4 - 3)


@torch.no_grad()
def test_what_an_update_launches_does_not_grow_with_its_minibatches_or_a_rollouts_steps(monkeypatch):
    """Beside graphs, and the rollout, which is one of its own on a GPU."""
    record_graphs(monkeypatch)
    agent = learner()
    replayed(agent)
    for _ in range(4):
        agent.iterate()
    data = agent.rollout()
    for name in GRAPHS:  # whose launch is one, and which the stand-in would do again operation by operation
        graph = getattr(agent, name).func.__self__.graph
        monkeypatch.setattr(graph, "replay", lambda: None)
    with Launches() as launches:
        agent.prepare(data)
        agent.update()
    assert len(launches.names) < 100


@torch.no_grad()
def test_a_state_from_the_cpu_leaves_an_update_that_a_graph_can_hold():
    """Torch keeps in the optimiser's state whether a graph may hold it, and a graph has moments that are no more."""
    other, agent = learner(), learner()
    other.iterate()
    agent.optimizer.param_groups[0]["capturable"] = True  # as on a GPU
    before = agent.learn_in, agent.learn_compiled
    agent.load_state_dict(other.state_dict())
    group = agent.optimizer.param_groups[0]
    assert group["capturable"] and group["fused"] and group["lr"] is agent.lr
    assert other.optimizer.param_groups[0]["capturable"] is False
    assert agent.learn_in is not before[0] and agent.learn_compiled is not before[1]
    assert torch.equal(agent.net.theta, other.net.theta)

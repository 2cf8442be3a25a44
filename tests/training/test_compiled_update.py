"""The compiled update of PPO does what the update in torch does."""

from __future__ import annotations

import argparse
import copy
import gc
import itertools
import json
import mmap
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch

pytest.importorskip("matplotlib")
pytest.importorskip("tqdm")

from torch_mjenvs.compiler import cpu
from torch_mjenvs.compiler.matrices import Matrix, Memory, Phase, Plan, build, can_build, why_no_bfloat16
from torch_mjenvs.compiler.matrices.kernel import lanes
from torch_mjenvs.networks.activations import ACTIVATIONS
from torch_mjenvs.networks.layers import Dense, Network
from torch_mjenvs.networks.passes import Pass
from torch_mjenvs.networks.tiles import FRAMES, Scratch
from torch_mjenvs.training import compiled, large_pages, ppo, runs, train, worlds
from torch_mjenvs.training.compiled.minibatch import groups_of
from torch_mjenvs.training.episodes import Episodes
from torch_mjenvs.training.sharing import ALONE
from torch_mjenvs.training.statistics import STATISTICS, measures

pytestmark = [
    pytest.mark.usefixtures("no_gradients"),
    pytest.mark.usefixtures("no_default_device"),
    pytest.mark.cpu,
    pytest.mark.skipif(not can_build(), reason="this processor has no fused multiply-add"),
]
needs_bfloat16 = pytest.mark.skipif(
    bool(not can_build() or why_no_bfloat16()), reason="products of bfloat16 would bring nothing on this processor"
)
# Observations, actions, hidden units, frames of a minibatch: two tasks', and sizes that fill neither vectors nor tiles.
SIZES = [(17, 6, 64, 512), (348, 17, 64, 128), (5, 2, 20, 70)]
SMALL = ["--env", "TorchHopper-v0", "--num-envs", "34", "--total-steps", "3000", "--episodes", "2", "--actor", "16,16",
         "--critic", "24"]  # fmt: skip


def learner(
    observations: int, actions: int, hidden: int, size: int, compile: bool = True, sees: torch.Tensor | None = None,
    rounded: bool = False, **instead: Any,
) -> ppo.PPO:  # fmt: skip
    """A PPO without an environment, and frames such as a policy a little different from its own would have brought."""
    torch.manual_seed(0)
    agent = ppo.PPO.__new__(ppo.PPO)
    usual = {"actor": [hidden, hidden], "critic": [hidden, hidden], "num_envs": 4, "horizon": size, "minibatch": size}
    s = agent.settings = ppo.Settings(**runs.settings(**usual | instead))
    agent.columns = [observations, actions, 1, 1, 1]
    net = agent.net = ppo.ActorCritic(
        observations, actions, s.actor, s.critic, s.activation, -1.0, torch.device("cpu"), sees, s.norm
    )
    for x in itertools.chain(*net.policy, *net.value, *itertools.chain(*net.norms)):
        x.add_(torch.randn_like(x), alpha=0.02)
    if sees is not None:
        net.stacks[0].weights[0].masked_fill_(net.stacks[0].unseen, 0.0)
    agent.lr = torch.tensor(1e-3)
    agent.optimizer = torch.optim.Adam([net.theta], agent.lr, eps=1e-5, fused=True)
    agent.bad_updates = torch.zeros((), dtype=torch.int64)
    agent.begin_graphs()
    agent.advantages_in_torch, agent.returns_in_torch = agent._advantages, agent._returns
    agent.learned, agent.sums = torch.zeros(2, len(STATISTICS)).unbind()
    obs, noise = torch.randn(4 * size, observations), torch.randn(4 * size, actions)
    mean, value = net.forward(obs)
    action = mean + noise * net.log_std.exp()
    log_prob = -0.5 * noise.square().sum(1, keepdim=True) - net.log_std.sum() + 0.2 * torch.randn(4 * size, 1)
    advantage = 3 * torch.randn(4 * size, 1) + 1
    before = value[:, None] + 0.2 * torch.randn(4 * size, 1)
    agent.frames = torch.cat([obs, action, log_prob, advantage, before + advantage], 1)
    agent.shuffled = torch.empty_like(agent.frames)
    agent.compiled_update = agent.compiled_forward = agent.compiled_advantages = agent.compiled_returns = None
    if compile:
        agent.compile(rounded)
    return agent


@pytest.mark.parametrize("sizes", SIZES)
def test_the_gradient_and_its_norm_are_those_of_torch(sizes):
    agent = learner(*sizes)
    order = torch.randperm(len(agent.frames))[: sizes[-1]]
    before = agent.net.theta.clone()
    learned = agent.compiled_update(agent.frames, order)
    assert not torch.equal(agent.net.theta, before)
    agent.net.theta.copy_(before)
    agent.gradient(agent.frames[order])
    grad = agent.net.grad
    assert (agent.compiled_update.gradient[: len(grad)] - grad).abs().max() < 1e-5 * grad.abs().max()
    torch.testing.assert_close(learned[0, -1], grad.norm(), rtol=1e-5, atol=0)


@pytest.mark.parametrize(
    "instead",
    [
        {"actor": [40, 24, 12], "critic": [20], "activation": "elu", "entropy": 0.01},
        {"actor": [33], "critic": [16, 16], "activation": "silu", "value_clip": 0.1},
        {"activation": "relu", "value_clip": 0.2, "entropy": 0.3},
        {"norm": "layer"},
        {"norm": "layer", "actor": [40, 24, 13], "critic": [5], "activation": "elu"},
        {"norm": "layer", "actor": [8, 70], "critic": [33, 16], "activation": "silu"},
    ],
)
def test_the_gradient_of_other_networks_and_losses_is_that_of_torch(instead):
    """The bounds on values leave some frames of them out, and not all."""
    agent = learner(11, 3, 20, 96, **instead)
    order = torch.randperm(len(agent.frames))[:96]
    before = agent.net.theta.clone()
    found = agent.compiled_update(agent.frames, order)[0]
    agent.net.theta.copy_(before)
    means, grad = agent.gradient(agent.frames[order]), agent.net.grad
    assert (agent.compiled_update.gradient[: len(grad)] - grad).abs().max() < 1e-5 * grad.abs().max()
    torch.testing.assert_close(found[:-1], means, rtol=1e-4, atol=1e-5)
    value = agent.net.value[-1][0].storage_offset()
    for name, place in (("entropy", -1), ("value_clip", value)):
        if name in instead:
            agent.settings = replace(agent.settings, **{name: 0.0})
            agent.gradient(agent.frames[order])
            assert (agent.compiled_update.gradient[: len(grad)] - grad)[place].abs() > 1e-3 * grad.abs().max()


@pytest.mark.parametrize(("sizes", "norm"), [*((sizes, "none") for sizes in SIZES), (SIZES[2], "layer")])
def test_two_updates_of_several_epochs_end_where_torch_does(sizes, norm):
    ours, theirs = (learner(*sizes, compile=compile, norm=norm) for compile in (True, False))
    for rate in (1e-3, 5e-4):
        for agent in (ours, theirs):
            torch.manual_seed(1)
            agent.lr.fill_(rate)
            agent.update()
    torch.testing.assert_close(ours.net.theta, theirs.net.theta, rtol=0, atol=1e-5)
    states = [agent.optimizer.state_dict()["state"][0] for agent in (ours, theirs)]
    assert states[0].keys() == states[1].keys() and states[0]["step"] == states[1]["step"] == 2 * 4 * 4
    for name in ("exp_avg", "exp_avg_sq"):
        most = states[1][name].abs().max()
        assert (states[0][name] - states[1][name]).abs().max() < 1e-4 * most


def test_weights_of_what_a_network_does_not_see_stay():
    sees = torch.tensor([[True, True, False, True, True], [False, True, True, True, True]])
    ours, theirs = (learner(*SIZES[2], compile=compile, sees=sees) for compile in (True, False))
    for agent in (ours, theirs):
        torch.manual_seed(1)
        agent.update()
    torch.testing.assert_close(ours.net.theta, theirs.net.theta, rtol=0, atol=1e-5)
    assert (ours.net.stacks[0].weights[0] != 0).any(1).tolist() == sees.tolist()


def test_the_state_of_either_update_goes_on_in_the_other():
    """A state of torch's Adam, in the middle of training, is what both begin from."""
    one = learner(*SIZES[0], compile=False)
    one.update()
    state = copy.deepcopy({"theta": one.net.theta, "optimizer": one.optimizer.state_dict()})
    ends = []
    for compile in (True, False):
        other = learner(*SIZES[0], compile=compile)
        other.net.theta.copy_(state["theta"])
        other.optimizer.load_state_dict(copy.deepcopy(state["optimizer"]))
        torch.manual_seed(2)
        other.update()
        ends.append(other)
    torch.testing.assert_close(ends[0].net.theta, ends[1].net.theta, rtol=0, atol=1e-5)
    assert ends[0].optimizer.state_dict()["state"][0]["step"] == 32


class Rounded(torch.autograd.Function):
    """x W', where all factors of products are rounded to bfloat16, forward and backward."""

    @staticmethod
    def forward(context, x, weight):
        context.save_for_backward(x.bfloat16().float(), weight.bfloat16().float())
        return x.bfloat16().float() @ weight.bfloat16().float().T

    @staticmethod
    def backward(context, gradient):
        (x, weight), gradient = context.saved_tensors, gradient.bfloat16().float()
        return gradient @ weight, gradient.T @ x


def normed(x: torch.Tensor, theta: torch.Tensor, layer: Dense) -> torch.Tensor:
    """What a layer's activation is applied to."""
    if layer.norm is None:
        return x
    gain, shift = (theta[place:][: layer.outputs] for place in (layer.norm.gain, layer.norm.shift))
    return torch.nn.functional.layer_norm(x, x.shape[-1:], gain, shift)


@needs_bfloat16
@pytest.mark.parametrize(("sizes", "norm"), [*((sizes, "none") for sizes in SIZES), (SIZES[0], "layer")])
def test_with_bfloat16_factors_are_rounded_and_nothing_else(sizes, norm):
    agent = learner(*sizes, rounded=True, norm=norm)
    s, net = agent.settings, agent.net
    order = torch.randperm(len(agent.frames))[: sizes[-1]]
    obs, action, old_log_prob, advantage, target = agent.frames[order].split(agent.columns, 1)
    networks, log_std = compiled.networks_of(net), int(net.log_std.storage_offset())
    with torch.enable_grad():
        leaf = net.theta.clone().requires_grad_()
        outputs = []
        for network in networks:
            x = obs
            for layer in network.layers:
                weight = leaf[layer.weight :][: layer.outputs * layer.inputs].view(layer.outputs, layer.inputs)
                x = Rounded.apply(x, weight) + leaf[layer.bias :][: layer.outputs]
                x = x if layer is network.layers[-1] else torch.tanh(normed(x, leaf, layer))
            outputs.append(x)
        spread = leaf[log_std : log_std + sizes[1]]
        noise = (action - outputs[0]) * (-spread).exp()
        ratio = (-0.5 * noise.square().sum(1, keepdim=True) - spread.sum() - old_log_prob).exp()
        scaled = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        gain = torch.min(ratio * scaled, ratio.clamp(1 - s.clip, 1 + s.clip) * scaled).mean()
        error = (outputs[1] - target).square().mean()
        expected = torch.autograd.grad(s.value_weight * error - gain, leaf)[0]
    agent.compiled_update(agent.frames, order)
    found = agent.compiled_update.gradient
    assert (found - expected).norm() < 1e-3 * expected.norm()

    moments = ppo.RunningMoments(sizes[0], device=torch.device("cpu"))
    for _ in range(2):  # again after a change of the weights
        x = agent.frames[:50, : sizes[0]]
        ours = agent.compiled_forward(x, moments.mean, moments.var)
        for network, y in zip(networks, ours, strict=True):
            z = x
            for layer in network.layers:
                weight = net.theta[layer.weight :][: layer.outputs * layer.inputs].view(layer.outputs, layer.inputs)
                z = Rounded.apply(z, weight) + net.theta[layer.bias :][: layer.outputs]
                z = z if layer is network.layers[-1] else torch.tanh(normed(z, net.theta, layer))
            torch.testing.assert_close(y, z, rtol=5e-3, atol=5e-3)
        net.theta.mul_(1.1)


@needs_bfloat16
@pytest.mark.parametrize("instead", [{}, {"norm": "layer"}, {"norm": "layer", "activation": "silu", "actor": [40, 24]}])
def test_with_bfloat16_the_gradient_is_nearly_that_of_torch(instead):
    """Of frames whose probability ratios are not near the bounds: there a frame counts or not, by the last digits."""
    agent = learner(*SIZES[0], rounded=True, **instead)
    obs, action, old_log_prob, *_ = agent.frames.split(agent.columns, 1)
    spread = agent.net.log_std
    noise = (action - agent.net.forward(obs)[0]) * (-spread).exp()
    ratio = (-0.5 * noise.square().sum(1) - spread.sum() - old_log_prob[:, 0]).exp()
    order = torch.nonzero(((ratio - 1).abs() - agent.settings.clip).abs() > 0.02)[: SIZES[0][-1], 0]
    agent.gradient(agent.frames[order])
    expected = agent.net.grad.clone()
    agent.compiled_update(agent.frames, order)
    assert (agent.compiled_update.gradient - expected).norm() < 0.03 * expected.norm()


@pytest.mark.parametrize("norm", ["none", "layer"])
@pytest.mark.parametrize("rounded", [False, pytest.param(True, marks=needs_bfloat16)])
def test_the_bits_do_not_depend_on_the_number_of_threads(rounded, norm):
    was = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 3, 4):
            torch.set_num_threads(1)  # torch's own sums, as the frames are made
            agent = learner(*SIZES[0], rounded=rounded, norm=norm)
            torch.set_num_threads(threads)
            torch.manual_seed(1)
            agent.update()
            own = agent.compiled_update.kernels(threads).memory(threads)["own"].view(threads, -1)
            assert own.any(1).all() or not cpu.team(), "each thread has written its own memory"
            found.append(torch.cat([agent.net.theta, agent.optimizer.state[agent.net.theta]["exp_avg_sq"]]))
    finally:
        torch.set_num_threads(was)
    assert all(torch.equal(found[0], x) for x in found[1:])


def test_parts_are_grouped_by_who_learns_from_them():
    """By two threads 4 parts each; 3 would wait for each other if one had two quarters, so they take single ones."""
    assert [groups_of(8, threads) for threads in (1, 2, 3, 4, 5, 8)] == [8, 2, 8, 4, 4, 8]
    assert [groups_of(parts, 2) for parts in (1, 2, 4, 5, 6)] == [1, 2, 2, 5, 6]


def test_what_changes_in_place_from_call_to_call_is_seen():
    """Frames are written anew by every rollout, and moments and weights go on: none of them may be remembered."""
    ours, theirs = learner(*SIZES[2]), learner(*SIZES[2], compile=False)
    moments = ppo.RunningMoments(SIZES[2][0], device=torch.device("cpu"))
    for turn in range(2):
        for agent in (ours, theirs):
            torch.manual_seed(turn)
            agent.update()
        torch.testing.assert_close(ours.net.theta, theirs.net.theta, rtol=0, atol=1e-5)
        obs = torch.randn(30, SIZES[2][0])
        for _ in range(2):  # moments that change, and others in their place
            mean, value = theirs.net.forward(moments.normalise(obs))
            found = ours.compiled_forward(obs, moments.mean, moments.var)
            torch.testing.assert_close(found[0], mean, rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(found[1][:, 0], value, rtol=1e-4, atol=1e-4)
            moments.update(torch.randn(50, SIZES[2][0]) * 3 + 1)
        moments.mean, moments.var = moments.mean * 2, moments.var * 2
        for agent in (ours, theirs):
            agent.frames[:, -2] = agent.frames[:, -2].flip(0)  # advantages


@pytest.mark.parametrize("compile", [True, False])
def test_the_statistics_are_those_of_the_frames(compile):
    agent = learner(*SIZES[0], compile=compile)
    s, order = agent.settings, torch.randperm(len(agent.frames))[: SIZES[0][-1]]
    obs, action, old_log_prob, advantage, target = agent.frames[order].split(agent.columns, 1)
    mean, value = agent.net.forward(obs)
    log_std = agent.net.log_std
    log_prob = -0.5 * ((action - mean) / log_std.exp()).square().sum(1, keepdim=True) - log_std.sum()
    ratio = (log_prob - old_log_prob).exp()
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    gain = torch.minimum(ratio * advantage, ratio.clamp(1 - s.clip, 1 + s.clip) * advantage).mean()
    error = value - target[:, 0]
    expected = {
        "approx_kl": (ratio - 1 - ratio.log()).mean(), "clip_fraction": ((ratio - 1).abs() > s.clip).float().mean(),
        "policy_loss": -gain, "value_loss": error.square().mean(),
        "explained_variance": 1 - error.var(correction=0) / target.var(correction=0),
    }  # fmt: skip
    found = measures(agent.epoch(order, len(order)))
    assert found.pop("grad_norm") > 0
    assert found == pytest.approx({name: float(x) for name, x in expected.items()}, rel=1e-4, abs=1e-5)
    assert 0.05 < found["clip_fraction"] < 0.95


@pytest.mark.parametrize("compile", [True, False])
def test_the_learning_rate_follows_the_divergence(compile):
    """Half as much again after each epoch in which the policy hardly moved, and back where it moved too far."""
    agent = learner(*SIZES[2], compile=compile, target_kl=1e6)
    agent.update()
    assert float(agent.lr) == pytest.approx(1e-3 * 1.5**4)
    for _ in range(3):
        agent.update()
    assert float(agent.lr) == pytest.approx(1e-2)
    agent = learner(*SIZES[2], compile=compile, target_kl=1e-9)
    agent.update()
    assert float(agent.lr) == pytest.approx(1e-3 / 1.5**4)
    found = float(agent.learned[0])
    agent = learner(*SIZES[2], compile=compile, target_kl=found)
    agent.update()
    assert float(agent.lr) == pytest.approx(1e-3)


@pytest.mark.parametrize(("sizes", "norm"), [*((sizes, "none") for sizes in SIZES), (SIZES[2], "layer")])
def test_actions_and_values_are_those_of_torch_for_any_number_of_observations_and_threads(sizes, norm):
    agent, was = learner(*sizes, norm=norm), torch.get_num_threads()
    forward = compiled.Forward(compiled.networks_of(agent.net), agent.net.theta, sizes[0])
    moments = ppo.RunningMoments(sizes[0], device=torch.device("cpu"))
    moments.update(torch.randn(50, sizes[0]) * 3 + 1)
    obs = torch.randn(100, sizes[0]) * 30  # of which normalisation clips some
    mean, value = agent.net.forward(moments.normalise(obs))
    first: dict[int, torch.Tensor] = {}
    try:
        for n, threads in itertools.product((1, 33, 100), (1, 2)):
            torch.set_num_threads(threads)
            ours = forward(obs[:n], moments.mean, moments.var)
            assert [tuple(x.shape) for x in ours] == [(n, sizes[1]), (n, 1)]
            torch.testing.assert_close(ours[0], mean[:n], rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(ours[1][:, 0], value[:n], rtol=1e-4, atol=1e-5)
            found = torch.cat(ours, 1).clone()
            assert torch.equal(found, first.setdefault(n, found))
    finally:
        torch.set_num_threads(was)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_a_network_of_any_layers_has_the_gradient_of_autograd(name):
    """Layers of widths that fill no vector, the inputs from amid a row; outputs of what the activation gives."""
    widths, first, width = [5, 19, 7, 3], 2, 9
    layers, at = [], 0
    for inputs, outputs in itertools.pairwise(widths):
        layers.append(Dense(inputs, outputs, at, at + inputs * outputs, name))
        at += (inputs + 1) * outputs
    generator = torch.Generator().manual_seed(0)
    theta = torch.randn(at + 16, generator=generator) * 0.5
    rows, gradient = (torch.randn(FRAMES, n, generator=generator) for n in (width, widths[-1]))

    scratch = Scratch("own", lanes())
    held, x, back = scratch.matrix(FRAMES, width), scratch.matrix(width, FRAMES), scratch.matrix(3, FRAMES)
    one = Pass(Network(tuple(layers), first), Matrix("theta", 1, at, at), x, held, scratch)
    steps = (*one.forward(), *one.backward(back, Matrix("sums", 1, at, at)))
    plan = Plan("test", tuple(map(Memory, ("theta", "own", "sums"))), (Phase("item", 1, steps),))
    own, sums = torch.zeros(scratch.size), torch.zeros(at + 16)

    def view(m: Matrix) -> torch.Tensor:
        return own[m.offset : m.offset + m.rows * m.row].view(m.rows, m.row)[:, : m.columns]

    view(held)[:], view(x)[:], view(back)[:] = rows, rows.T, gradient.T
    build(plan)({"theta": theta, "own": own, "sums": sums})

    function = {"none": lambda y: y, "tanh": torch.tanh, "relu": torch.relu, "elu": torch.nn.functional.elu,
                "silu": torch.nn.functional.silu}[name]  # fmt: skip
    with torch.enable_grad():
        leaf = theta.clone().requires_grad_()
        y = rows[:, first : first + widths[0]]
        for layer in layers:
            weight = leaf[layer.weight : layer.bias].view(layer.outputs, layer.inputs)
            y = function(y @ weight.T + leaf[layer.bias : layer.bias + layer.outputs])
        expected = torch.autograd.grad(y, leaf, gradient)[0]
    torch.testing.assert_close(view(one.output).T, y.detach(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(sums[:at], expected[:at], rtol=1e-4, atol=1e-4)
    assert not sums[at:].any()


def dense(widths: list[int], activation: str, at: int) -> tuple[tuple[Dense, ...], int]:
    """Layers whose parameters follow each other from a place on, and where they end."""
    layers = []
    for k, (inputs, outputs) in enumerate(itertools.pairwise(widths)):
        name = "none" if k == len(widths) - 2 else activation
        layers.append(Dense(inputs, outputs, at, at + inputs * outputs, name))
        at += (inputs + 1) * outputs
    return tuple(layers), at


def test_policy_and_value_may_differ_in_inputs_widths_depth_and_activation():
    """The policy sees the first 6 numbers of an observation of 10, the value all but the first 2."""
    torch.manual_seed(0)
    actions, size, columns = 3, 96, [10, 3, 1, 1, 1]
    policy, at = dense([6, 40, actions], "elu", 0)
    value, log_std = dense([8, 16, 24, 16, 1], "silu", at)
    theta = torch.cat([0.4 * torch.randn(log_std), torch.full((actions,), -0.5)])
    optimizer = torch.optim.Adam([theta], 1e-3, eps=1e-5)
    networks = Network(policy), Network(value, first=2)
    update = compiled.Update(networks, theta, log_std, optimizer, columns, size, compiled.Loss(0.2, 0.5, 1.0))

    def run(leaf: torch.Tensor, layers: tuple[Dense, ...], x: torch.Tensor, function) -> torch.Tensor:
        for k, layer in enumerate(layers):
            weight = leaf[layer.weight : layer.bias].view(layer.outputs, layer.inputs)
            x = x @ weight.T + leaf[layer.bias : layer.bias + layer.outputs]
            x = function(x) if k < len(layers) - 1 else x
        return x

    frames = torch.randn(size, sum(columns))
    obs, action, old_log_prob, advantage, target = frames.split(columns, 1)
    elu, silu = torch.nn.functional.elu, torch.nn.functional.silu
    action.copy_(run(theta, policy, obs[:, :6], elu) + torch.randn(size, actions) * 0.6)
    old_log_prob.copy_(-0.5 * torch.randn(size, actions).square().sum(1, keepdim=True) + 1.5)
    with torch.enable_grad():
        leaf = theta.clone().requires_grad_()
        noise = (action - run(leaf, policy, obs[:, :6], elu)) / leaf[log_std:].exp()
        ratio = (-0.5 * noise.square().sum(1) - leaf[log_std:].sum() - old_log_prob[:, 0]).exp()
        scaled = (advantage[:, 0] - advantage.mean()) / (advantage.std() + 1e-8)
        surrogate = torch.min(ratio * scaled, ratio.clamp(0.8, 1.2) * scaled).mean()
        error = run(leaf, value, obs[:, 2:], silu)[:, 0] - target[:, 0]
        expected = torch.autograd.grad(0.5 * error.square().mean() - surrogate, leaf)[0]
    update(frames, torch.randperm(size))
    assert (update.gradient[: len(theta)] - expected).abs().max() < 1e-5 * expected.abs().max()

    forward = compiled.Forward(networks, theta, columns[0])
    mean, worth = forward(frames[:, :10], torch.zeros(10), torch.ones(10))
    torch.testing.assert_close(mean, run(theta, policy, obs[:, :6], elu), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(worth, run(theta, value, obs[:, 2:], silu), rtol=1e-4, atol=1e-5)


@needs_bfloat16
def test_observations_are_rounded_once_for_all_minibatches_whatever_networks_see():
    """Networks that begin at odd observations, and see an odd number, learn what they do from rows of their own."""
    torch.manual_seed(0)
    actions, size, columns = 2, 70, [9, 2, 1, 1, 1]
    policy, at = dense([5, 12, actions], "tanh", 0)
    value, log_std = dense([6, 12, 1], "tanh", at)
    start = torch.cat([0.4 * torch.randn(log_std), torch.full((actions,), -0.5)])
    frames = torch.randn(3 * size, sum(columns))
    wide = torch.cat([frames[:, 1:6], frames[:, 3:9], frames[:, 9:]], 1)  # what each network sees, beside each other
    orders = [torch.randperm(2 * size), torch.randperm(3 * size)[:size]]
    found = []
    for rows, first in ((frames, (1, 3)), (wide, (0, 5))):
        theta = start.clone()
        update = compiled.Update(
            (Network(policy, first[0]), Network(value, first[1])), theta, log_std,
            torch.optim.Adam([theta], 1e-2, eps=1e-5), [rows.shape[1] - 5, *columns[1:]], size,
            compiled.Loss(0.2, 0.5, 1.0), rounded=True,
        )  # fmt: skip
        update(rows, orders[0])
        rows[:, : rows.shape[1] - 5] *= 1.5  # as by the next rollout
        update(rows, orders[1])
        found.append(theta)
    assert torch.equal(*found) and not torch.equal(found[0], start)
    gradients = []
    for rounded in (True, False):
        theta = start.clone()
        update = compiled.Update(
            (Network(policy, 1), Network(value, 3)), theta, log_std, torch.optim.Adam([theta], 1e-2, eps=1e-5), columns,
            size, compiled.Loss(0.2, 0.5, 1.0), rounded=rounded,
        )  # fmt: skip
        update(frames, orders[1])
        gradients.append(update.gradient)
    assert (gradients[0] - gradients[1]).norm() < 0.03 * gradients[1].norm()


def test_layers_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="a layer of 4 inputs cannot follow one of 3 outputs"):
        Network((Dense(2, 3, 0, 6), Dense(4, 1, 9, 13)))
    with pytest.raises(ValueError, match="there is no activation 'sine': choose from none, tanh"):
        Dense(2, 3, 0, 6, "sine")


def test_a_run_says_which_learner_it_had_and_may_change_it(tmp_path):
    train.main([*SMALL, "--out", str(tmp_path), "--precision", "float32"])
    assert json.loads((tmp_path / "result.json").read_text())["learner"] == "compiled"
    flags = ["--learner", "torch", "--precision", "float32", "--resume", "--total-steps", "5000"]
    train.main([*SMALL, "--out", str(tmp_path), *flags])
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["learner"] == "torch" and [change[1:] for change in result["changes"]] == [
        ["learner", "compiled", "torch"], ["total_steps", 3000, 5000],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("flags", "why"),
    [([], "neither AMX nor a fast AVX512-BF16"), (["--learner", "torch"], "torch does not round to it")],
)
def test_where_bfloat16_cannot_be_a_run_is_in_float32_and_says_so(flags, why, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(ppo, "why_no_bfloat16", lambda: "this processor has neither AMX nor a fast AVX512-BF16")
    monkeypatch.setattr(ppo, "rounded_to", lambda device: "float32")
    train.main([*SMALL, "--out", str(tmp_path), "--precision", "bfloat16", *flags])
    assert json.loads((tmp_path / "result.json").read_text())["precision"] == "float32"
    assert "--precision bfloat16 is float32 here: " in (said := capsys.readouterr().err) and why in said


@pytest.mark.parametrize("fast", [True, False])
def test_by_default_a_run_is_in_bfloat16_where_that_is_faster(fast, monkeypatch, capsys):
    monkeypatch.setattr(ppo, "why_no_bfloat16", lambda: None if fast else "it is slow")
    parsed = train.chosen([])[1].parse_args
    ways = partial(ppo.ways, settings={"actor": [64], "critic": [64]}, share=ALONE)
    assert ways(parsed(["--device", "cpu"]))["precision"] == ("bfloat16" if fast else "float32")
    assert ways(parsed(["--device", "cpu", "--precision", "float32"]))["precision"] == "float32"
    monkeypatch.setattr(ppo, "rounded_to", lambda device: "bfloat16" if fast else "float32")
    in_torch = ["--device", "cpu", "--learner", "torch"]
    assert ways(parsed(in_torch))["precision"] == ("bfloat16" if fast else "float32")
    assert ways(parsed([*in_torch, "--precision", "float32"]))["precision"] == "float32"
    of_gpu = argparse.Namespace(learner=None, precision=None, device="cuda")
    assert ways(of_gpu) == {"learner": "compiled", "precision": "float32"}
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("flags", [[], ["--precision", "float32"], ["--precision", "bfloat16"]])
def test_products_in_torch_are_as_precise_as_the_run_says(flags, capsys):
    torch.set_float32_matmul_precision("medium")  # as by a run before
    args = train.chosen([])[1].parse_args(["--device", "cpu", "--learner", "torch", *flags])
    settings = ppo.settings("TorchHopper-v0", "cpu", num_envs=512, actor=(16, 16), critic=(16, 16))
    ways = ppo.ways(args, settings, ALONE)
    agent = ppo.make(worlds.make("TorchHopper-v0", 512, "cpu"), settings, 0, {}, ALONE, **ways)
    obs = torch.randn(512, agent.columns[0])
    found, exact = agent.net.forward(obs)[1].double(), obs.double()
    for weight, bias in agent.net.value:
        exact = exact @ weight.double().T + bias.double()
        exact = exact if weight is agent.net.value[-1][0] else exact.tanh()
    error = float((found - exact[:, 0]).abs().max())
    assert error < 1e-5 if ways["precision"] == "float32" else 1e-4 < error < 0.1
    assert ways["precision"] == "float32" or "float32" not in flags
    assert ("bfloat16 is float32 here" in capsys.readouterr().err) == ("bfloat16" in flags and error < 1e-5)


@needs_bfloat16
@pytest.mark.parametrize("flags", [[], ["--precision", "bfloat16"]])
def test_a_run_may_have_bfloat16(flags, tmp_path):
    train.main([*SMALL, "--out", str(tmp_path), *flags])
    assert json.loads((tmp_path / "result.json").read_text())["precision"] == "bfloat16"


def test_what_cannot_be_compiled_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr(compiled, "can_build", lambda: False)
    with pytest.raises(SystemExit, match="--learner compiled cannot be: this processor has no fused multiply-add"):
        train.main([*SMALL, "--out", str(tmp_path), "--learner", "compiled"])
    assert not list(tmp_path.iterdir())
    assert "for CPUs and NVIDIA's GPUs" in compiled.why_not(torch.device("mps"))


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("rounded", [False, pytest.param(True, marks=needs_bfloat16)])
def test_what_follows_from_nan_is_nan(activation, rounded):
    """An observation that is not a number must not look like one, in any activation."""
    if activation == "none":
        return
    agent = learner(*SIZES[2], activation=activation, rounded=rounded)
    obs = torch.randn(3, SIZES[2][0])
    obs[1, 2] = torch.nan
    for found in agent.compiled_forward(obs, torch.zeros(SIZES[2][0]), torch.ones(SIZES[2][0])):
        assert found.isnan().all(1).tolist() == [False, True, False] == found.isnan().any(1).tolist()


@pytest.mark.parametrize("worlds", [34, 128])
def test_advantages_and_returns_are_those_of_torch(worlds):
    """Twice, as returns go on from one rollout to the next; in some worlds the first episode's return is unknown."""
    generator, steps = torch.Generator().manual_seed(0), 9
    agents = []
    for compile in (True, False):
        agent = learner(*SIZES[2], compile=compile, num_envs=worlds, horizon=steps)
        agent.episodes = Episodes.__new__(Episodes)
        agent.episodes.returns, agent.discounted_return = torch.zeros(2, worlds).unbind()
        agent.episodes.returns[:5] = torch.nan
        agents.append(agent)
    for rollout in range(2):
        rewards, values = torch.randn(2, steps, worlds, generator=generator).unbind()
        done = torch.rand(steps, worlds, generator=generator) < 0.2
        next_value = torch.randn(worlds, generator=generator)
        found = [
            (agent.advantages(rewards, values, done, next_value), *agent.returns(rewards, done),
             agent.episodes.returns, agent.discounted_return)
            for agent in agents
        ]  # fmt: skip
        assert rollout > 0 or found[0][1].isnan().any()
        for ours, theirs in zip(*found, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("shape", [(3, 5), (2000, 700), (1 << 20, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int32])
def test_large_pages_hold_zeros_that_can_be_written(shape, dtype):
    x = large_pages.zeros(*shape, dtype=dtype)
    assert x.shape == shape and x.dtype == dtype and x.is_contiguous() and not x.any()
    if x.nbytes >= large_pages.PAGE and hasattr(mmap, "MADV_HUGEPAGE"):
        assert x.data_ptr() % large_pages.PAGE == 0
    x += 1
    kept, last = x.T, x[-1:]
    del x
    gc.collect()
    assert bool((kept == 1).all()) and bool((last == 1).all())  # the memory lives as long as a view of it

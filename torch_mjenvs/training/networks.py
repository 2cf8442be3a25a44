"""The networks of PPO, made fast: one batched product for both, gradients by hand, memory that is kept.

Shapes: B rows, O observations, A actions, H hidden units.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


def orthogonal(shape: Sequence[int], gain: float) -> Tensor:
    """Return a random matrix of this shape with orthogonal rows or columns, times `gain`."""
    return torch.nn.init.orthogonal_(torch.empty(*shape), gain)


class ActorCritic:
    """Two separate tanh networks, run side by side: 0 gives the mean action, 1 (its first output) the value.

    All parameters are views of one vector, `theta`, and their gradients of `theta.grad`: clipping and Adam are then
    one operation each. Results of `forward` are valid until the next call with as many rows.

    `sees` (2, O) bool says which observations each network sees; None is all. Weights of the others are and stay 0.
    """

    def __init__(
        self, obs_dim: int, act_dim: int, hidden: int, log_std: float, device: torch.device, sees: Tensor | None = None
    ):
        sizes = (obs_dim, hidden, hidden, act_dim)
        shapes = [(2, *shape) for i, o in itertools.pairwise(sizes) for shape in ((o, i), (1, o))]
        self.theta = torch.zeros(sum(map(math.prod, shapes)) + act_dim, device=device)
        self.theta.grad = self.grad = torch.zeros_like(self.theta)
        *params, self.log_std = self._views(self.theta, [*shapes, (act_dim,)])
        *grads, self.log_std_grad = self._views(self.grad, [*shapes, (act_dim,)])
        self.weights, self.biases = params[0::2], params[1::2]  # (2, out, in) and (2, 1, out) per layer
        self.weight_grads, self.bias_grads = grads[0::2], grads[1::2]
        self.minus_one = torch.tensor(-1.0, device=device)
        self.buffers: dict[tuple[Any, ...], Tensor] = {}

        for net in itertools.chain(*self.weights[:-1]):
            net.copy_(orthogonal(net.shape, math.sqrt(2)))
        self.unseen = None if sees is None else ~sees[:, None].to(device)
        if sees is not None:
            for net, seen in zip(self.weights[0], sees.to(device), strict=True):
                net.zero_()[:, seen] = orthogonal((hidden, int(seen.sum())), math.sqrt(2)).to(device)
        policy, value = self.weights[-1]
        policy.copy_(orthogonal(policy.shape, 0.01))
        value[:1].copy_(orthogonal((1, value.shape[1]), 1.0))  # its other rows stay zero: they get no gradient
        self.log_std.fill_(log_std)

    @staticmethod
    def _views(flat: Tensor, shapes: Sequence[tuple[int, ...]]) -> list[Tensor]:
        parts = flat.split([math.prod(shape) for shape in shapes])
        return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]

    def _buffer(self, name: str, *shape: int) -> Tensor:
        """Return scratch memory that is kept: fresh memory costs more in page faults than the arithmetic on it."""
        if (name, *shape) not in self.buffers:
            self.buffers[name, *shape] = torch.empty(shape, device=self.theta.device)
        return self.buffers[name, *shape]

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean actions (B, A) and values (B,) for normalised observations (B, O)."""
        self.inputs = [obs.expand(2, -1, -1)]  # of each layer, for backward
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            out = self._buffer(f"forward {layer}", 2, len(obs), weight.shape[1])
            if layer == len(self.weights) - 1:
                torch.baddbmm(bias, self.inputs[-1], weight.mT, out=out)
            else:  # tanh(x) = 2 sigmoid(2 x) - 1, as torch's own tanh is ten times slower on the CPU
                torch.baddbmm(bias, self.inputs[-1], weight.mT, beta=2, alpha=2, out=out).sigmoid_()
                torch.add(self.minus_one, out, alpha=2, out=out)
                self.inputs.append(out)
        return out[0], out[1, :, 0]

    def backward(self, mean_grad: Tensor, value_grad: Tensor) -> None:
        """Overwrite the gradient of every weight and bias, from the loss's gradients by the results of `forward`."""
        grad = self._buffer("backward", 2, *mean_grad.shape).zero_()
        grad[0], grad[1, :, 0] = mean_grad, value_grad
        for layer in reversed(range(len(self.weights))):
            hidden = self.inputs[layer]
            torch.bmm(grad.mT, hidden, out=self.weight_grads[layer])
            if layer == 0 and self.unseen is not None:
                self.weight_grads[0].masked_fill_(self.unseen, 0.0)
            torch.sum(grad, 1, keepdim=True, out=self.bias_grads[layer])
            if layer > 0:
                below = self._buffer(f"backward {layer}", *hidden.shape)
                torch.bmm(grad, self.weights[layer], out=below)
                grad = torch.ops.aten.tanh_backward.grad_input(below, hidden, grad_input=below)


def _eager(method: Any) -> Any:
    """Return a method of torch's optimisers without what keeps `torch.compile` out of it."""
    return getattr(method, "__wrapped__", method)


class Adam(torch.optim.Adam):
    """torch's Adam, never compiled: what keeps these methods out of that imports torch._dynamo, which takes 2 s."""

    add_param_group = _eager(torch.optim.Adam.add_param_group)
    load_state_dict = _eager(torch.optim.Adam.load_state_dict)
    state_dict = _eager(torch.optim.Adam.state_dict)


class RunningMoments:
    """Mean and variance of all rows seen so far, per column."""

    def __init__(self, *shape: int, device: torch.device):
        self.mean, self.var = torch.zeros(shape, device=device), torch.ones(shape, device=device)
        self.count = 0

    def update(self, rows: Tensor) -> None:
        """Take in rows (B, *shape)."""
        var, mean = torch.var_mean(rows, dim=0, correction=0)
        share = len(rows) / (self.count + len(rows))  # 1 at first: the initial guess is forgotten
        delta = mean - self.mean
        self.var += share * (var - self.var) + share * (1 - share) * delta.square()
        self.mean += share * delta
        self.count += len(rows)

    def normalise(self, x: Tensor) -> Tensor:
        """Return x with mean 0 and variance 1 by these moments, clipped to [-10, 10]."""
        return ((x - self.mean) * (self.var + 1e-8).rsqrt()).clamp_(-10, 10)

    def state_dict(self) -> dict[str, Any]:
        return {"mean": self.mean, "var": self.var, "count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.mean.copy_(state["mean"])
        self.var.copy_(state["var"])
        self.count = state["count"]


class Replayed:
    """A function of one tensor that CUDA replays as one graph; on the CPU it is just called.

    All else that the function works on has to stay at its place in memory.
    """

    def __init__(self, function: Callable[[Tensor], None]):
        self.function, self.calls = function, 0
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, x: Tensor) -> None:
        if not x.is_cuda:
            return self.function(x)
        with torch.cuda.device(x.device):
            return self._replay(x)

    def _replay(self, x: Tensor) -> None:
        if self.calls == 0:
            self.x, self.stream = torch.empty_like(x), torch.cuda.Stream()
        self.x.copy_(x)
        self.calls += 1
        if self.calls <= 3:  # at first calls libraries allocate what they need, which a graph must not do
            self.stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.stream):
                self.function(self.x)
            torch.cuda.current_stream().wait_stream(self.stream)
            return
        if self.graph is None:
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph, stream=self.stream):
                self.function(self.x)
        self.graph.replay()

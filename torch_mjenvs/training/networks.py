"""The networks of PPO, made fast by batched products, hand-written gradients, and memory that is reused.

Shapes: B rows, O observations, A actions.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ..cuda_graphs import capturing
from ..networks.layers import EPS

aten: Any = torch.ops.aten


@dataclass(frozen=True)
class Activation:
    """An activation y(x) that works in place, and its backward pass, which turns the gradient with respect to y into
    that with respect to x, in place.

    `value` takes scale x and a tensor to put y into, a different one if `input_kept`; `back` takes gradient, scale x
    and y.
    """

    value: Callable[[Tensor, Tensor], Any]
    back: Callable[[Tensor, Tensor, Tensor], Any]
    scale: float = 1.0
    input_kept: bool = False


@cache
def _minus_one(device: torch.device) -> Tensor:
    return torch.tensor(-1.0, device=device)


ACTIVATIONS = {
    # tanh(x) = 2 sigmoid(2 x) - 1, as torch's own tanh is ten times slower on the CPU.
    "tanh": Activation(
        lambda x, y: torch.add(_minus_one(x.device), x.sigmoid_(), alpha=2, out=y),
        lambda g, x, y: aten.tanh_backward.grad_input(g, y, grad_input=g),
        scale=2.0,
    ),
    "relu": Activation(
        lambda x, y: x.relu_(),
        lambda g, x, y: aten.threshold_backward.grad_input(g, y, 0, grad_input=g),
    ),
    "elu": Activation(
        lambda x, y: torch.nn.functional.elu_(x),
        lambda g, x, y: aten.elu_backward.grad_input(g, 1, 1, 1, True, y, grad_input=g),
    ),
    "silu": Activation(
        lambda x, y: aten.silu.out(x, out=y),
        lambda g, x, y: aten.silu_backward.grad_input(g, x, grad_input=g),
        input_kept=True,
    ),
}


def orthogonal(shape: Sequence[int], gain: float) -> Tensor:
    """Return a random matrix of this shape with orthogonal rows or columns, times `gain`."""
    return torch.nn.init.orthogonal_(torch.empty(*shape), gain)


NORMS = ("none", "layer")  # of hidden layers, before their activation


def parameters(count: int, widths: Sequence[int], norm: str = "none") -> int:
    """Return the number of parameters of this many networks whose layers, inputs first, have these widths."""
    dense = sum((i + 1) * o for i, o in itertools.pairwise(widths))
    return count * (dense + (2 * sum(widths[1:-1]) if norm == "layer" else 0))


ROUNDED = "medium"  # of torch: rounding factors to bfloat16 or TF32 saves a third of the time, and learns as well


def rounded_to(device: torch.device) -> str:
    """Return the type to which torch rounds factors of products at the precision ROUNDED, or float32 if it does not.

    On a CPU torch rounds only in large products, of more than 4,096 multiply-adds. Whether it does so depends on the
    processor, torch's build and variables of the environment, so this tries it.
    """
    if device.type == "cuda":
        return "tf32" if torch.cuda.get_device_capability(device) >= (8, 0) else "float32"
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(ROUNDED)
    x = torch.full((1, 32, 32), 1 + 2**-9, dtype=torch.float32, device=device)  # 1 in bfloat16
    rounded = float(torch.bmm(x, x)[0, 0, 0]) == 32
    torch.set_float32_matmul_precision(before)
    return "bfloat16" if rounded else "float32"


class Stack:
    """Networks of the same widths, run side by side: a layer of all of them is one batched product.

    Weights (n, out, in) and biases (n, 1, out) of each layer are views of `theta`, and their gradients of `grad`. With
    `norm` "layer", so are gains and shifts (n, 1, out) of each hidden layer, whose outputs are normalised before the
    activation. Hidden layers begin with orthogonal weights. `sees` (n, O) bool says which inputs each network sees;
    None means all. Weights of the others are and stay 0. Results of `forward` are valid until the next call with as
    many rows.
    """

    def __init__(
        self, count: int, widths: Sequence[int], activation: str, norm: str, theta: Tensor, grad: Tensor,
        sees: Tensor | None,
    ):  # fmt: skip
        dense = [(count, *shape) for i, o in itertools.pairwise(widths) for shape in ((o, i), (1, o))]
        norms = [(count, 1, o) for o in widths[1:-1] for _ in range(2)] if norm == "layer" else []
        params, grads = _views(theta, dense + norms), _views(grad, dense + norms)
        self.weights, self.biases = params[0 : len(dense) : 2], params[1 : len(dense) : 2]
        self.weight_grads, self.bias_grads = grads[0 : len(dense) : 2], grads[1 : len(dense) : 2]
        self.gains, self.shifts = params[len(dense) :: 2], params[len(dense) + 1 :: 2]
        self.gain_grads, self.shift_grads = grads[len(dense) :: 2], grads[len(dense) + 1 :: 2]
        for gain in self.gains:
            gain.fill_(1.0)
        self.count, self.activation = count, ACTIVATIONS[activation]
        self.unseen = None if sees is None else ~sees[:, None].to(theta.device)
        self.buffers: dict[tuple[Any, ...], Tensor] = {}
        for net in itertools.chain(*self.weights[:-1]):
            net.copy_(orthogonal(net.shape, math.sqrt(2)))
        if sees is not None:
            for net, seen in zip(self.weights[0], sees.to(theta.device), strict=True):
                net.zero_()[:, seen] = orthogonal((len(net), int(seen.sum())), math.sqrt(2)).to(theta.device)

    def buffer(self, name: str, *shape: int) -> Tensor:
        """Return scratch memory, which is reused: new memory costs more in page faults than the arithmetic on it."""
        if (name, *shape) not in self.buffers:
            self.buffers[name, *shape] = torch.empty(shape, device=self.weights[0].device)
        return self.buffers[name, *shape]

    def forward(self, obs: Tensor) -> Tensor:
        """Return the outputs (n, B, out) for inputs (B, O)."""
        self.before: list[Tensor] = []  # what each hidden layer's activation is applied to, times `scale`
        self.inputs = [obs.expand(self.count, -1, -1)]  # the inputs of each layer, for `backward`
        kind, last = self.activation, len(self.weights) - 1
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            shape, scale = (self.count, len(obs), weight.shape[1]), 1.0 if layer == last else kind.scale
            x = self.buffer(f"before {layer}", *shape)
            factor = 1.0 if self.gains else scale
            torch.baddbmm(bias, self.inputs[-1], weight.mT, beta=factor, alpha=factor, out=x)
            if layer < last:
                if self.gains:
                    x = self._normalised(layer, x).mul_(scale)
                y = self.buffer(f"after {layer}", *shape) if kind.input_kept else x
                kind.value(x, y)
                self.before.append(x)
                self.inputs.append(y)
        return x

    def backward(self, grad: Tensor) -> None:
        """Overwrite the gradient of every weight and bias, from the loss's gradient with respect to the outputs of
        `forward`.
        """
        for layer in reversed(range(len(self.weights))):
            hidden = self.inputs[layer]
            torch.bmm(grad.mT, hidden, out=self.weight_grads[layer])
            if layer == 0 and self.unseen is not None:
                self.weight_grads[0].masked_fill_(self.unseen, 0.0)
            torch.sum(grad, 1, keepdim=True, out=self.bias_grads[layer])
            if layer > 0:
                below = self.buffer(f"backward {layer}", *hidden.shape)
                torch.bmm(grad, self.weights[layer], out=below)
                self.activation.back(below, self.before[layer - 1], hidden)
                grad = self._through_norm(layer - 1, below) if self.gains else below

    def _normalised(self, layer: int, x: Tensor) -> Tensor:
        """Return layer norm of x (n, B, units), in other memory, and keep what `_through_norm` needs."""
        if layer == 0:
            self.normalised: list[tuple[Tensor, ...]] = []  # of each hidden layer, with x, mean and 1 / deviation
        found, mean, scale = torch.native_layer_norm(x, x.shape[-1:], None, None, EPS)
        self.normalised.append((found, x, mean, scale))
        y = self.buffer(f"normalised {layer}", *x.shape)
        return torch.addcmul(self.shifts[layer], found, self.gains[layer], out=y)

    def _through_norm(self, layer: int, grad: Tensor) -> Tensor:
        """Return the gradient with respect to layer norm's input, from that with respect to its output; set those of
        gain and shift.
        """
        found, x, mean, scale = self.normalised[layer]
        torch.sum(grad, 1, keepdim=True, out=self.shift_grads[layer])
        torch.sum(grad * found, 1, keepdim=True, out=self.gain_grads[layer])
        grad = grad.mul_(self.gains[layer])
        back = aten.native_layer_norm_backward
        return back(grad, x, x.shape[-1:], mean, scale, None, None, [True, False, False])[0]


class ActorCritic:
    """Two separate networks, one for the mean action and one for the value. With equal widths they share a `Stack`.

    All parameters are views of one vector, `theta`, and their gradients of `theta.grad`: clipping and Adam are then
    one operation each. `policy` and `value` are the layers, pairs of weights (out, in) and biases (out,); `norms` are
    pairs of gains and shifts (units,) of the policy's hidden layers, and of the value network's, none without `norm`.
    Results of `forward` are valid until the next call with as many rows.

    `actor` and `critic` are the widths of their hidden layers. `sees` (2, O) bool says which observations each network
    sees; None means all. Weights of the others are and stay 0.
    """

    def __init__(
        self, obs_dim: int, act_dim: int, actor: Sequence[int], critic: Sequence[int], activation: str, log_std: float,
        device: torch.device, sees: Tensor | None = None, norm: str = "none",
    ):  # fmt: skip
        self.activation = activation
        kinds = [(1, (obs_dim, *actor, act_dim)), (1, (obs_dim, *critic, 1))]
        if tuple(actor) == tuple(critic):  # the first of the value network's outputs is then the value
            kinds = [(2, (obs_dim, *actor, act_dim))]
        sizes = [parameters(*kind, norm) for kind in kinds] + [act_dim]
        self.theta = torch.zeros(sum(sizes), device=device)
        self.theta.grad = self.grad = torch.zeros_like(self.theta)
        *params, self.log_std = self.theta.split(sizes)
        *grads, self.log_std_grad = self.grad.split(sizes)
        seen = [None] * len(kinds) if sees is None else sees.split([count for count, _ in kinds])
        self.stacks = [
            Stack(*kind, activation, norm, *own) for kind, *own in zip(kinds, params, grads, seen, strict=True)
        ]
        self.norms = [
            [(gain[k, 0], shift[k, 0]) for gain, shift in zip(stack.gains, stack.shifts, strict=True)]
            for stack in self.stacks
            for k in range(stack.count)
        ]
        self.policy, value = (
            [(weight[k], bias[k, 0]) for weight, bias in zip(stack.weights, stack.biases, strict=True)]
            for stack in self.stacks
            for k in range(stack.count)
        )
        self.value = [*value[:-1], (value[-1][0][:1], value[-1][1][:1])]
        self.policy[-1][0].copy_(orthogonal(self.policy[-1][0].shape, 0.01))
        self.value[-1][0].copy_(orthogonal(self.value[-1][0].shape, 1.0))
        self.log_std.fill_(log_std)
        self.unseen = None if sees is None else ~sees.to(device)  # (2, O)

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean actions (B, A) and values (B,) for normalised observations (B, O)."""
        mean, value = (out for stack in self.stacks for out in stack.forward(obs))
        return mean, value[:, 0]

    def backward(self, mean_grad: Tensor, value_grad: Tensor) -> None:
        """Overwrite the gradient of every weight and bias, from the loss's gradients with respect to the results of
        `forward`.
        """
        if len(self.stacks) == 2:
            self.stacks[0].backward(mean_grad[None])
            self.stacks[1].backward(value_grad[None, :, None])
            return
        grad = self.stacks[0].buffer("gradients", 2, *mean_grad.shape).zero_()
        grad[0], grad[1, :, 0] = mean_grad, value_grad
        self.stacks[0].backward(grad)


def _views(flat: Tensor, shapes: Sequence[tuple[int, ...]]) -> list[Tensor]:
    parts = flat.split([math.prod(shape) for shape in shapes])
    return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]


def _eager(method: Any) -> Any:
    """Return a method of torch's optimisers without the decorator that excludes it from `torch.compile`."""
    return getattr(method, "__wrapped__", method)


class Adam(torch.optim.Adam):
    """Torch's Adam without the decorators against `torch.compile`: they import torch._dynamo, which takes 2 s."""

    add_param_group = _eager(torch.optim.Adam.add_param_group)
    load_state_dict = _eager(torch.optim.Adam.load_state_dict)
    state_dict = _eager(torch.optim.Adam.state_dict)


def load_optimizer(optimizer: torch.optim.Optimizer, state: dict[str, Any], lr: Tensor) -> None:
    """Load the state of a run, which may be of another device: what depends on the device stays as it is here.

    lr: the tensor that the rate is read from, in place of the copy of it in the state.
    """
    device = {name: optimizer.param_groups[0][name] for name in ("capturable", "fused")}
    optimizer.load_state_dict(state)
    optimizer.param_groups[0] |= {"lr": lr, **device}


class RunningMoments:
    """Mean and variance of all rows seen so far, per column."""

    def __init__(self, *shape: int, device: torch.device):
        self.mean, self.var = torch.zeros(shape, device=device), torch.ones(shape, device=device)
        self.count = 0

    def update(self, rows: Tensor) -> None:
        """Add rows (B, *shape) to the moments."""
        mean = rows.mean(0)
        var = (rows - mean).square_().mean(0)  # in a third of the time of torch.var
        share = len(rows) / (self.count + len(rows))  # 1 at first: the initial guess is forgotten
        delta = mean - self.mean
        self.var += share * (var - self.var) + share * (1 - share) * delta.square()
        self.mean += share * delta
        self.count += len(rows)

    def normalise(self, x: Tensor) -> Tensor:
        """Return x with mean 0 and variance 1 by these moments, clipped to [-10, 10]."""
        return ((x - self.mean) * (self.var + 1e-8).rsqrt()).clamp_(-10, 10)

    @property
    def wrong(self) -> Tensor:
        """How many columns have no finite mean and variance: their rows had NaN, infinity, or more than some 1e18."""
        return (~(self.mean.isfinite() & self.var.isfinite())).sum()

    def entries(self) -> dict[str, Tensor]:
        """Return those entries of a policy's file that normalise observations, as copies."""
        return {"obs_mean": self.mean.clone(), "obs_var": self.var.clone()}

    def state_dict(self) -> dict[str, Any]:
        return {"mean": self.mean, "var": self.var, "count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.mean.copy_(state["mean"])
        self.var.copy_(state["var"])
        self.count = state["count"]


class Replayed:
    """A function of tensors that CUDA replays as one graph; on the CPU it is simply called.

    Everything else that the function works on must keep its address. Its results are valid until the next call.
    """

    def __init__(self, function: Callable[..., Any]):
        self.function, self.calls = function, 0
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, *given: Tensor) -> Any:
        if not given[0].is_cuda:
            return self.function(*given)
        with torch.cuda.device(given[0].device):
            return self._replay(*given)

    def _replay(self, *given: Tensor) -> Any:
        if self.calls == 0:
            self.given, self.stream = [torch.empty_like(x) for x in given], torch.cuda.Stream()
        for held, x in zip(self.given, given, strict=True):
            held.copy_(x)
        self.calls += 1
        if self.calls <= 3:  # at first calls libraries allocate what they need, which a graph must not do
            self.stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.stream):
                found = self.function(*self.given)
            torch.cuda.current_stream().wait_stream(self.stream)
            return found
        if self.graph is None:
            self.graph = torch.cuda.CUDAGraph()
            with capturing(self.graph, self.stream):
                self.found = self.function(*self.given)
        self.graph.replay()
        return self.found

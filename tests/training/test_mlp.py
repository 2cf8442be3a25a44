"""Dense layers run by kernels within torch's autograd: `nn.Sequential` in numbers, names and whatever is done to it."""

from __future__ import annotations

import copy
import itertools
import pickle
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from torch_mjenvs.compiler.matrices import can_build, why_no_bfloat16
from torch_mjenvs.training import mlp
from torch_mjenvs.training.mlp import MLP

pytestmark = [
    pytest.mark.usefixtures("no_default_device"),
    pytest.mark.cpu,
    pytest.mark.skipif(not can_build(), reason="this processor has no fused multiply-add"),
]


@pytest.fixture
def launches(monkeypatch) -> list[int]:
    """The number of rows of each launch."""
    found: list[int] = []
    launch = mlp._Passes._launch
    counted = lambda self, *rest, **given: (found.append(len(given["x"])), launch(self, *rest, **given))  # noqa: E731
    monkeypatch.setattr(mlp._Passes, "_launch", counted)
    return found


@pytest.fixture(autouse=True)
def highest():
    """Whatever other tests have asked torch for."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    yield
    torch.set_float32_matmul_precision(before)


@pytest.fixture(params=["highest", "medium"])
def precision(request, highest):
    if request.param == "medium" and why_no_bfloat16():
        pytest.skip("products of bfloat16 would bring nothing on this processor")
    torch.set_float32_matmul_precision(request.param)
    return request.param


def networks(
    widths: Sequence[int] = (11, 24, 20, 3), kind: type[nn.Module] = nn.Tanh, norm: bool = False
) -> tuple[nn.Sequential, MLP]:
    """The same network twice: torch's, in float64, and ours."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(widths):
        layers += [nn.Linear(inputs, outputs), *([nn.LayerNorm(outputs)] if norm else []), kind()]
    net = nn.Sequential(*layers[: -2 if norm else -1])
    for layer in net:
        if isinstance(layer, nn.LayerNorm):
            nn.init.normal_(layer.weight, 1.0, 0.3)
            nn.init.normal_(layer.bias, 0.0, 0.3)
    return copy.deepcopy(net).double(), MLP(*net)


def gradients(net: nn.Module, x: Tensor, g: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(net(x), list(net.parameters()), g))


@pytest.mark.parametrize(
    ("widths", "kind", "rows", "norm"),
    [
        ((11, 24, 20, 3), nn.Tanh, 1, False), ((11, 24, 20, 3), nn.ELU, 300, False),
        ((17, 64, 64, 6), nn.SiLU, 128, False), ((5, 70, 1), nn.ReLU, 65, False), ((9, 4), nn.Tanh, 130, False),
        ((11, 24, 21, 3), nn.Tanh, 130, True), ((5, 70, 1), nn.SiLU, 65, True), ((9, 8, 4), nn.ELU, 64, True),
    ],
)  # fmt: skip
def test_it_is_a_sequential(launches, precision, widths, kind, rows, norm):
    net, ours = networks(widths, kind, norm)
    x, g = torch.randn(rows, widths[0]), torch.randn(rows, widths[-1])
    outputs = ours(x)
    assert outputs.is_contiguous() and outputs.shape == (rows, widths[-1])
    found, expected = (gradients(n, y, h) for n, y, h in ((ours, x, g), (net, x.double(), g.double())))
    assert launches == [rows] * 3
    limit = 2e-6 if precision == "highest" else 0.03
    for a, b in zip([outputs, *found], [net(x.double()), *expected], strict=True):
        assert a.shape == b.shape and a.is_contiguous()
        assert (a - b).norm() <= limit * b.norm()
    if precision == "medium":  # or else nothing was rounded
        assert (outputs - net(x.double())).norm() > 1e-4 * outputs.norm()


def test_the_number_of_threads_does_not_change_bits(precision):
    _, ours = networks()
    x, g, before, found = torch.randn(500, 11), torch.randn(500, 3), torch.get_num_threads(), []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        found.append([ours(x), *gradients(ours, x, g)])
    torch.set_num_threads(before)
    for others in found[1:]:
        for a, b in zip(found[0], others, strict=True):
            assert torch.equal(a, b)


def test_it_trains_as_torch_does():
    """Parameters that an optimiser moves in place are those that the next call has."""
    net, ours = networks()
    x, y = torch.randn(96, 11), torch.randn(96, 3)
    optimizers = [torch.optim.Adam(n.parameters(), 1e-2, fused=True) for n in (net, ours)]
    for _ in range(10):
        for n, optimizer in zip((net, ours), optimizers, strict=True):
            dtype = n[0].weight.dtype
            optimizer.zero_grad()
            nn.functional.mse_loss(n(x.to(dtype)), y.to(dtype)).backward()
            optimizer.step()
    for a, b in zip(ours.parameters(), net.parameters(), strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-5)


def test_copies_and_saved_states_are_a_sequentials(launches):
    net, ours = networks()
    assert list(ours.state_dict()) == list(net.state_dict())
    x, expected = torch.randn(4, 11), ours(torch.ones(2, 11))
    for again in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        assert torch.equal(again(torch.ones(2, 11)), expected)
    copied = copy.deepcopy(ours)
    with torch.no_grad():
        copied[0].weight.zero_()
    assert torch.equal(ours(torch.ones(2, 11)), expected) and not torch.equal(copied(torch.ones(2, 11)), expected)
    copied.load_state_dict(net.state_dict())
    assert torch.equal(copied(torch.ones(2, 11)), expected)
    assert type(ours[:-1]) is nn.Sequential and ours[-1] is ours[len(ours) - 1]
    torch.testing.assert_close(ours[1:](ours[0](x)).double(), net(x.double()), rtol=1e-5, atol=1e-6)
    parts = torch.randn(2, 3, 22)[..., ::2]  # rows in more dimensions, and apart from each other
    torch.testing.assert_close(ours(parts).double(), net(parts.double()), rtol=1e-5, atol=1e-6)
    assert ours(x[0]).shape == (3,) and ours(torch.empty(0, 11)).shape == (0, 3)
    assert launches == [2] * 6 + [6, 1]


def test_what_kernels_cannot_do_torch_does(launches):
    net, ours = networks()
    x, double = torch.randn(4, 11), copy.deepcopy(ours).double()
    torch.testing.assert_close(double(x.double()), net(x.double()))
    wanted = x.clone().requires_grad_()
    by_inputs = torch.autograd.grad(ours(wanted).sum(), wanted)[0]
    expected = torch.autograd.grad(net(wanted.double()).sum(), wanted)[0]
    torch.testing.assert_close(by_inputs, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(torch.vmap(ours)(x[:, None])[:, 0], net(x.double()).float(), rtol=1e-4, atol=1e-5)
    with torch.autocast("cpu", torch.bfloat16):
        assert ours(x).dtype == torch.bfloat16
    ours[1] = nn.ReLU()  # and the other is still tanh
    mixed = ours[4](ours[3](ours[2](ours[0](x).relu())))
    assert torch.equal(ours(x), mixed)
    ours[1], seen = nn.Tanh(), []
    handle = ours[2].register_forward_hook(lambda *given: seen.append(given))
    ours(x)
    assert len(seen) == 1 and not launches
    handle.remove()
    ours(x)
    assert launches == [4]
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        ours(torch.randn(4, 10))


def test_gradients_of_gradients_are_refused():
    _, ours = networks()
    found = torch.autograd.grad(ours(torch.randn(4, 11)).square().sum(), ours[0].weight, create_graph=True)[0]
    with pytest.raises(RuntimeError, match="once_differentiable"):
        found.sum().backward()


@pytest.mark.parametrize(
    "layers",
    [
        (), (nn.Tanh(),), (nn.Linear(3, 3), nn.Tanh()), (nn.Linear(3, 3, bias=False),),
        (nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3)),
        (nn.Linear(3, 3), nn.ELU(2.0), nn.Linear(3, 3)), (nn.Linear(3, 3), nn.Linear(3, 3)),
        (nn.Linear(3, 3), nn.Tanh(), nn.Linear(1, 3)), (nn.LayerNorm(3),),
        (nn.Linear(3, 3), nn.GELU(), nn.Linear(3, 3)),
        (nn.Linear(3, 3), nn.LayerNorm(3), nn.Linear(3, 3)), (nn.Linear(3, 3), nn.LayerNorm(3)),
        (nn.Linear(3, 3), nn.LayerNorm(3, eps=1e-6), nn.Tanh(), nn.Linear(3, 3)),
        (nn.Linear(3, 3), nn.LayerNorm(3, bias=False), nn.Tanh(), nn.Linear(3, 3)),
        (nn.Linear(3, 4), nn.LayerNorm((2, 4)), nn.Tanh(), nn.Linear(4, 3)),
        (nn.Linear(3, 3), nn.LayerNorm(3), nn.Tanh(), nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3)),
    ],
    ids=str,
)  # fmt: skip
def test_other_layers_are_refused(layers):
    with pytest.raises(ValueError, match=r"an MLP|cannot follow"):
        MLP(*layers)


@pytest.mark.parametrize("modes", ["inference", "float64", "meta"])
def test_torchs_modes_make_no_difference(modes):
    """At the first call, which makes the kernels' memory, nor at a larger one."""
    plain, ours = networks()
    mlp._passes.cache_clear()
    x = torch.randn(70, 11)
    for rows in (x, x.repeat(3, 1)):
        if modes == "inference":
            with torch.inference_mode():
                first = ours(rows)
        else:
            torch.set_default_dtype(torch.float64 if modes == "float64" else torch.float32)
            torch.set_default_device("meta" if modes == "meta" else "cpu")
            try:
                first = ours(rows)
            finally:
                torch.set_default_dtype(torch.float32)
                torch.set_default_device("cpu")
        assert first.dtype == torch.float32
        torch.testing.assert_close(first.double(), plain(rows.double()), rtol=1e-5, atol=1e-5)
        ours(rows).square().sum().backward()

"""Kernels as pure functions of tensors, which torch's autograd, `torch.func` and `torch.vmap` go through."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch

from .launch import TORCH_TYPES, Kernel, Launch, bytes_a_world, padded


class Pure:
    """A kernel as a function: it reads its first buffers, and writes all others.

    Callers pass tensors with one row per world. For a world-minor buffer the kernel reads the transpose of such a
    tensor. tables: the tensors of the buffers that are tables, which come last; they keep their addresses.
    """

    def __init__(self, kernel: Kernel, takes: int, tables: Sequence[torch.Tensor] = ()):
        gives = slice(takes, len(kernel.buffers) - len(tables))
        self._kernel, self._takes, self._gives = kernel, kernel.buffers[:takes], kernel.buffers[gives]
        self._tables = tables
        assert all(b.type == "f" for b in (self._takes[0], *self._gives))
        types = {**TORCH_TYPES, "f": kernel.float_type}
        self._reads = [(b.size, b.rows, types[b.type]) for b in self._takes]
        self._idle: list[Any] = []  # launchers of the kernel that may be used again

    @property
    def bytes_a_world(self) -> int:
        """The bytes per world of all that it reads and writes."""
        return bytes_a_world(self._kernel.buffers, self._kernel.float_type)

    def __call__(self, given: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Return what the kernel makes of tensors (..., size), in the same form. Those that lie as the kernel's buffers
        do are not copied.
        """
        kernel, like = self._kernel, given[0]
        lead = like.shape[:-1]
        n = lead.numel()
        flat, across = len(lead) == 1, padded(n)
        if not flat:
            given = [x.reshape(n, b.size) for b, x in zip(self._takes, given, strict=True)]
        if across != n:
            given = [torch.cat([x, x.new_zeros(across - n, x.shape[1])]) for x in given]
        device = kernel.device
        tensors: list[torch.Tensor] = []
        for x, (size, rows, dtype) in zip(given, self._reads, strict=True):
            if x.dtype is not dtype or x.shape != (across, size) or x.device != device:
                name = self._takes[len(tensors)].name
                want = f"{dtype} tensor {(across, size)} on {device}"
                raise ValueError(f"kernel {kernel.name}: buffer {name!r} must be a {want}")
            there = x.is_contiguous() if rows else x.stride() == (1, across)
            tensors.append(x if there else _laid_out(x, rows))
        made = [
            like.new_empty(across, b.size) if b.rows else like.new_empty_strided((across, b.size), (1, across))
            for b in self._gives
        ]
        tensors += [*made, *self._tables]
        if torch.compiler.is_compiling():
            Launch(kernel, [x if b.rows or b.table else x.T for b, x in zip(kernel.buffers, tensors, strict=True)])()
        else:
            try:  # one at a time: other threads may be here, too
                idle = self._idle.pop()
            except IndexError:
                idle = None
            run = kernel.launcher_again(idle, tensors, across)
            run(1)
            if kernel.reuses_launchers:
                self._idle.append(run)
        if across != n:
            made = [x[:n] for x in made]
        return tuple(made if flat else (x.view(*lead, x.shape[1]) for x in made))


def _laid_out(x: torch.Tensor, rows: bool) -> torch.Tensor:
    """Copy rows so that they lie as a buffer has them."""
    return x.contiguous() if rows else x.T.contiguous().T


class Differentiable(ABC):
    """A function of tensors (..., size), row by row, and its derivatives. Its kernels are built on first use.

    made: the sizes of the results that have derivatives; the results after them have none.
    """

    made: Sequence[int]

    def __init__(self) -> None:
        self._built: dict[str, Pure] = {}

    def _pure(self, kind: str) -> Pure:
        if kind not in self._built:  # no `functools.cache` of a method: it would hold the function that holds it
            self._built[kind] = self._build(kind)
        return self._built[kind]

    @abstractmethod
    def _build(self, kind: str) -> Pure:
        """Return one of the function's kernels, by its name."""

    @abstractmethod
    def run(self, given: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Return the results."""

    @abstractmethod
    def kept(self, given: Sequence[torch.Tensor], results: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return those of these tensors that are needed on the way back."""

    @abstractmethod
    def pull(self, kept: Sequence[torch.Tensor], bars: Sequence[torch.Tensor]) -> tuple[torch.Tensor | None, ...]:
        """Return the adjoints of what was given (None: it has none), from those of the results with derivatives."""

    @abstractmethod
    def push(self, given: Sequence[torch.Tensor], dots: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Return the tangents of the results that have derivatives, from those of what was given."""

    def __call__(self, given: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Return the results, as torch's autograd and torch.func see them. They may be differentiated once."""
        results: tuple[torch.Tensor, ...] = (_Run if transformed() else _Plain).apply(self, *given)
        return results


# Whether torch.func or vmap are at work: torch's own `Function.apply` asks the same.
transformed = getattr(torch._C, "_are_functorch_transforms_active", lambda: True)


class _Mapped(torch.autograd.Function):
    """A function of rows; a dimension that `vmap` maps adds more of them."""

    @classmethod
    def vmap(
        cls, info: Any, in_dims: tuple[int | None, ...], *args: Any
    ) -> tuple[tuple[torch.Tensor, ...], tuple[int, ...]]:
        moved = [
            x if not isinstance(x, torch.Tensor)
            else x.expand(info.batch_size, *x.shape) if dim is None else x.movedim(dim, 0)
            for x, dim in zip(args, in_dims, strict=True)
        ]  # fmt: skip
        found = cls.apply(*moved)
        return found, (0,) * len(found)


class _Run(_Mapped):
    @staticmethod
    def forward(function: Differentiable, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return function.run(given)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
        function, *given = inputs
        ctx.function, made = function, len(function.made)
        ctx.others = len(output) - made
        ctx.mark_non_differentiable(*output[made:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*function.kept(given, output))
        ctx.save_for_forward(*given)

    @staticmethod
    def backward(ctx: Any, *bars: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        function = ctx.function
        some = next((x for x in bars if x is not None), None)
        if some is None:
            return (None,) * len(ctx.needs_input_grad)
        filled = [
            some.new_zeros(*some.shape[:-1], size) if x is None else x
            for x, size in zip(bars, function.made, strict=False)
        ]
        once = torch.is_grad_enabled() or transformed()
        pull = _Pull.apply if once else _pulled
        return None, *pull(function, *ctx.saved_tensors, *filled)

    @staticmethod
    def jvp(ctx: Any, _: None, *dots: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        given = ctx.saved_tensors
        filled = [torch.zeros_like(x) if dot is None else dot for x, dot in zip(given, dots, strict=True)]
        return *_Push.apply(ctx.function, len(given), *given, *filled), *[None] * ctx.others


class _Plain(torch.autograd.Function):
    """`_Run` in the form that autograd alone needs: the other one, for torch.func, takes torch far longer to call."""

    @staticmethod
    def forward(ctx: Any, function: Differentiable, *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        results = function.run(given)
        _Run.setup_context(ctx, (function, *given), results)
        return results

    backward, jvp = _Run.backward, _Run.jvp


class _Once(_Mapped):
    """Derivatives that cannot be differentiated again: torch raises an error if it is asked to."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *bars: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        raise RuntimeError("gradients of a step have no gradients themselves")

    @staticmethod
    def jvp(ctx: Any, *dots: Any) -> tuple[torch.Tensor | None, ...]:
        raise RuntimeError("gradients of a step have no gradients themselves")


class _Pull(_Once):
    @staticmethod
    def forward(function: Differentiable, *tensors: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return _pulled(function, *tensors)


def _pulled(function: Differentiable, *tensors: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    end = len(tensors) - len(function.made)
    return function.pull(tensors[:end], tensors[end:])


class _Push(_Once):
    @staticmethod
    def forward(function: Differentiable, n: int, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return function.push(tensors[:n], tensors[n:])


class _Bounded(torch.autograd.Function):
    """Returns tensors unchanged; scales down their adjoints so that, together, they are within a bound in each row."""

    generate_vmap_rule = True

    @staticmethod
    def forward(bound: float, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(x.view_as(x) for x in tensors)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
        ctx.bound = inputs[0]

    @staticmethod
    def backward(ctx: Any, *bars: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        together = torch.cat(bars, -1)
        length = torch.linalg.vector_norm(together, dim=-1, keepdim=True, dtype=torch.float64)  # can hold its square
        scale = (ctx.bound / length).clamp(max=1.0).to(together.dtype)  # of 0: infinity, which is clamped
        return None, *(x * scale for x in bars)

    @staticmethod
    def jvp(ctx: Any, _: None, *dots: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(x.view_as(x) for x in dots)


def bounded(tensors: Sequence[torch.Tensor], bound: float) -> tuple[torch.Tensor, ...]:
    """Return these tensors (..., size), and scale down their adjoints to at most `bound`, all together, in each row."""
    found: tuple[torch.Tensor, ...] = _Bounded.apply(bound, *tensors)
    return found

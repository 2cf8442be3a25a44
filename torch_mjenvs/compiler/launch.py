"""Kernels over torch tensors: checks and binds the tensors, and has the custom operators through which torch sees a
launch.

A launch is opaque to torch. In eager mode it is called directly. While torch compiles, it appears as
`torch_mjenvs::launch`, which changes its tensors in place, so that a graph with it needs no break and a CUDA graph can
hold it. `torch_mjenvs::run` is the same kernel as a pure function, which `torch.vmap` can map.
"""

from __future__ import annotations

import itertools
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from .program import Buffer

PADDING = 16  # worlds are allocated in multiples of this, so that no vector is partly outside
TORCH_TYPES = {"i": torch.int32, "b": torch.bool}


def name_of(dtype: torch.dtype) -> str:
    """Return a dtype's name as kernels have it: "float32"."""
    return str(dtype).removeprefix("torch.")


def padded(n: int) -> int:
    """Return the number of worlds that are allocated for n."""
    return -(-n // PADDING) * PADDING


def bytes_a_world(buffers: Sequence[Buffer], dtype: torch.dtype) -> int:
    """Return how many bytes the tensors of these buffers take per world; tables do not count."""
    return sum(b.size * TORCH_TYPES.get(b.type, dtype).itemsize for b in buffers if not b.table)


class Scratch:
    """Scratch memory of a GPU, which launches overwrite one after the other. It grows to what the largest one needs.

    Launches that run at the same time, on different streams, must not share it. So each engine has its own.
    """

    def __init__(self) -> None:
        self._memory: torch.Tensor | None = None

    def memory(self, size: int, device: torch.device) -> torch.Tensor:
        """Return a tensor of at least this many bytes. The launch must keep it as long as it uses the memory."""
        if self._memory is None or self._memory.numel() < size:
            self._memory = torch.empty(size, dtype=torch.uint8, device=device)
        return self._memory


class Kernel(ABC):
    """Loaded machine code of a program, for one device.

    `reuses_launchers`: whether `launcher_again` makes use of an old launcher. Others are not worth keeping.
    """

    reuses_launchers = False

    def __init__(self, name: str, buffers: Sequence[Buffer], dtype: str, device: torch.device):
        self.name, self.buffers, self.device = name, tuple(buffers), device
        self.float_type = getattr(torch, dtype)
        self.handle = next(_handles)
        _kernels[self.handle] = self

    @abstractmethod
    def launcher(self, tensors: Sequence[torch.Tensor], worlds: int, scratch: Scratch) -> Callable[[int], None]:
        """Return a function of n that runs the kernel n times over these tensors, which must keep their addresses."""

    def launcher_again(self, old: Any, tensors: Sequence[torch.Tensor], worlds: int) -> Callable[[int], None]:
        """Return such a function for other tensors. `old`, a launcher that is no longer used, or None, may be reused
        for it.
        """
        return self.launcher(tensors, worlds, Scratch())

    def bind(self, tensors: Mapping[str, torch.Tensor], scratch: Scratch | None = None) -> Launch:
        """Check the tensors against the program's buffers and fix their addresses.

        scratch: shared with launches that never run at the same time as this one; by default it has its own.

        Raises KeyError for a missing buffer, ValueError for one of a wrong shape, dtype, device or layout.
        """
        return Launch(self, [tensors[b.name] for b in self.buffers], scratch)

    def allocate(self, buffer: Buffer, worlds: int) -> torch.Tensor:
        """Allocate a tensor of zeros for a buffer of this many worlds."""
        across = padded(worlds)
        shape: tuple[int, ...] = (across, buffer.size) if buffer.rows else (buffer.size, buffer.period or across)
        shape = (across // buffer.share, buffer.size) if buffer.share > 1 else shape
        shape = (buffer.size,) if buffer.table else shape
        dtype = TORCH_TYPES.get(buffer.type, self.float_type)
        return mark_static_address(torch.zeros(shape, dtype=dtype, device=self.device))

    def check(self, buffer: Buffer, x: torch.Tensor) -> int | None:
        """Return the number of worlds that a buffer's tensor is for; None if it is for any. Raises ValueError."""
        want = self.float_type if buffer.type == "f" else TORCH_TYPES[buffer.type]
        if x.dtype != want or x.device != self.device or not x.is_contiguous():
            raise ValueError(f"buffer {buffer.name!r} must be a contiguous {want} tensor on {self.device}")
        if buffer.table:
            if x.shape != (buffer.size,):
                raise ValueError(f"buffer {buffer.name!r} of size {buffer.size} cannot be of shape {tuple(x.shape)}")
            return None
        in_rows = buffer.rows or buffer.share > 1
        size, worlds = (x.shape[1], x.shape[0]) if in_rows else (x.shape[0], x.shape[1])
        worlds *= buffer.share
        if size != buffer.size or worlds % PADDING or buffer.period not in (0, worlds):
            raise ValueError(f"buffer {buffer.name!r} of size {buffer.size} cannot be of shape {tuple(x.shape)}")
        return None if buffer.period else worlds


class Launch:
    """A kernel with its tensors: call it to run it over all worlds."""

    def __init__(self, kernel: Kernel, tensors: list[torch.Tensor], scratch: Scratch | None = None):
        known = (kernel.check(b, x) for b, x in zip(kernel.buffers, tensors, strict=True))
        worlds = {n for n in known if n is not None}
        if len(worlds) != 1:
            raise ValueError(f"kernel {kernel.name}: buffers for different numbers of worlds: {sorted(worlds)}")
        self.kernel, self.tensors = kernel, tensors
        self._handle = kernel.handle
        self.run = kernel.launcher(tensors, worlds.pop(), scratch or Scratch())

    def __call__(self, times: int = 1) -> None:
        """Run the program `times` times in a row for every world."""
        if torch.compiler.is_compiling():
            torch.ops.torch_mjenvs.launch(self._handle, self.tensors, times)
        else:
            self.run(times)


def copied(x: torch.Tensor) -> torch.Tensor:
    """Return a copy of what a launch writes, also while torch compiles.

    While it compiles, `clone` will not do: inductor takes it for a copy of a value that never changes, and hands out
    the buffer.
    """
    return torch.ops.torch_mjenvs.copy(x) if torch.compiler.is_compiling() else x.clone()


def mark_static_address(x: torch.Tensor) -> torch.Tensor:
    """Mark x, for `torch.compile`, as a tensor whose address never changes, and return it. Without the mark, code that
    writes into x gets no CUDA graph, and code that reads x copies it at every call.

    This is what `torch._dynamo.mark_static_address` does (a test compares them), but importing that takes seconds, and
    those who do not compile have no use for it. On a CPU there are no such graphs.
    """
    if x.is_cuda:
        x._dynamo_static_input_type = "unguarded"  # type: ignore[attr-defined]
    return x


def materialize(*buffers: torch.Tensor) -> None:
    """Make sure, before a launch, that buffers hold what compiled code has copied into them from outside.

    Inductor may pass the source of such a copy to the launch in place of the buffer. If the source is part of another
    tensor (`actions[3]`), it loses the offset, and the launch reads the wrong part (torch 2.13).
    """
    if torch.compiler.is_compiling():
        for buffer in buffers:
            buffer.copy_(copied(buffer))


_handles = itertools.count()
_kernels: weakref.WeakValueDictionary[int, Kernel] = weakref.WeakValueDictionary()


def _kernel(handle: int) -> Kernel:
    """Return the kernel with this handle. Raises RuntimeError if it has been freed."""
    kernel = _kernels.get(handle)
    if kernel is None:
        raise RuntimeError(
            "compiled code wants to launch a kernel whose environment or simulation has been deleted: keep it alive "
            "for as long as the compiled code is used, or compile again"
        )
    return kernel


@torch.library.custom_op("torch_mjenvs::launch", mutates_args=("tensors",))
def _launch(kernel: int, tensors: list[torch.Tensor], times: int) -> None:
    # On the tensors given, which after a compiler's work need not be those that the launch was bound to.
    Launch(_kernel(kernel), tensors)(times)


@torch.library.custom_op("torch_mjenvs::copy", mutates_args=())
def _copy(x: torch.Tensor) -> torch.Tensor:
    return x.clone(memory_format=torch.contiguous_format)


@_copy.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@torch.library.custom_op("torch_mjenvs::run", mutates_args=())
def run(kernel: int, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Run a kernel once and return all buffers after it as new tensors, (..., size) each, as those given are.

    Buffers that are tables come last: all worlds read the (size,) tensors given, which are not returned.
    """
    k = _kernel(kernel)
    of_worlds = [b for b in k.buffers if not b.table]
    lead = tensors[0].shape[:-1]
    n = lead.numel()
    if n == 0:
        return [x.clone() for x in tensors[: len(of_worlds)]]
    held = [k.allocate(b, n) for b in of_worlds]
    views = [(x if b.rows else x.T)[:n] for b, x in zip(of_worlds, held, strict=True)]
    for view, x in zip(views, tensors, strict=False):
        view.copy_(x.reshape(n, -1))
    Launch(k, [*held, *tensors[len(held) :]])()
    return [view.reshape(*lead, -1).contiguous() for view in views]


@run.register_fake
def _(kernel: int, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    of_worlds = [x for b, x in zip(_kernel(kernel).buffers, tensors, strict=True) if not b.table]
    return [torch.empty_like(x, memory_format=torch.contiguous_format) for x in of_worlds]


@run.register_vmap
def _(
    info: Any, in_dims: tuple[None, list[int | None]], kernel: int, tensors: list[torch.Tensor]
) -> tuple[list[torch.Tensor], list[int]]:
    _, dims = in_dims
    buffers = _kernel(kernel).buffers
    moved = [
        x if b.table else x.expand(info.batch_size, *x.shape) if dim is None else x.movedim(dim, 0)
        for b, x, dim in zip(buffers, tensors, dims, strict=True)
    ]
    return run(kernel, moved), [0] * sum(not b.table for b in buffers)

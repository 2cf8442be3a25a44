"""Stacks of the last few pictures of each world, shifted by a kernel."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ..compiler import launch
from ..compiler.build import build
from ..compiler.expr import Expr, node
from ..compiler.program import Buffer, Program, record

FREE = 2  # blocks of memory that are kept while nobody uses them


class FrameStack:
    """The last `count` pictures of each world, one behind the other in the channels, the newest last.

    newest: the pictures drawn last, (worlds, pixels, numbers): if they are colours one int32, red + 256 green + 65536
    blue, otherwise as many as the user gets, such as a distance. A kernel goes through memory once: it shifts the
    newest into each stack, and on CPUs also writes the copy that the user gets. A lane is a pixel, or four of colours,
    which fill whole words of 32 bits.
    """

    def __init__(self, newest: torch.Tensor, height: int, width: int, count: int, colours: bool):
        self._newest, self._count, self._colours = newest, count, colours
        kind = "i" if newest.dtype == torch.int32 else "f"
        group, channels = (4, 3) if colours else (newest.shape[-1], newest.shape[-1])
        self.shape = len(newest), height, width, channels * count
        lanes, device = -(-newest.numel() // group), newest.device
        buffers = [Buffer("newest", group, kind, rows=True), Buffer("stacks", channels * count, kind, rows=True)]
        copies = [*buffers, Buffer("copy", channels * count, kind, rows=True)]
        dtype = "float64" if newest.dtype == torch.float64 else "float32"
        kernel = build(_program(buffers, count, dtype), device)
        held = {b.name: kernel.allocate(b, lanes) for b in buffers}
        self._brought: torch.Tensor | None = held["newest"].view(-1)[: newest.numel()]
        if newest.is_contiguous() and newest.numel() == held["newest"].numel():
            held["newest"], self._brought = newest.view(-1, group), None
        self._launch, self._stacks, self._held = kernel.bind(held), held["stacks"], held
        self._copying: launch.Kernel | None = None
        if device.type == "cpu":
            self._copying = build(_program(copies, count, dtype), device)
            self._memory = _Memory(self._stacks.shape, self._stacks.dtype)

    @property
    def frames(self) -> torch.Tensor:
        """The stacks, (worlds, height, width, channels), uint8 or numbers, at a fixed address."""
        return self._as_pictures(self._stacks)

    @property
    def newest(self) -> torch.Tensor:
        """The pictures drawn last, (worlds, height, width, channels of one picture)."""
        return self.pictures(self._newest)

    def pictures(self, numbers: torch.Tensor) -> torch.Tensor:
        """Return numbers as they are drawn, (worlds, pixels, numbers), as (worlds, height, width, channels)."""
        numbers = numbers.unflatten(1, self.shape[1:3])
        return numbers[..., 0].unsqueeze(-1).view(torch.uint8)[..., :3] if self._colours else numbers

    def filled(self, pictures: torch.Tensor) -> torch.Tensor:
        """Return stacks filled with these pictures, each repeated."""
        return torch.cat((pictures,) * self._count, -1)

    def move(self) -> None:
        """Shift every stack: drop its oldest picture, and add the one drawn last as its newest."""
        self._bring()
        self._launch()

    def moved(self) -> torch.Tensor:
        """Do what `move` does, on a CPU, and return a copy of the stacks."""
        assert self._copying is not None
        self._bring()
        block, lent = self._memory.lend()
        if block.launch is None:
            block.launch = self._copying.bind(self._held | {"copy": block.tensor})
        block.launch()
        return self._as_pictures(lent)

    def _bring(self) -> None:
        if self._brought is not None:
            self._brought.view(self._newest.shape).copy_(self._newest)

    def copied(self, channels_first: bool) -> torch.Tensor:
        """Return a copy of the stacks, of (worlds, channels, height, width) where channels come first."""
        frames = self.frames.movedim(-1, 1) if channels_first else self.frames
        if self._copying is None or torch.compiler.is_compiling():
            return frames.clone(memory_format=torch.contiguous_format)
        _, lent = self._memory.lend()
        return self._as_pictures(lent).view(frames.shape).copy_(frames)

    def _as_pictures(self, words: torch.Tensor) -> torch.Tensor:
        numbers = words.view(-1).view(torch.uint8) if self._colours else words.view(-1)
        n, height, width, channels = self.shape
        return numbers[: n * height * width * channels].view(self.shape)


def _program(buffers: Sequence[Buffer], count: int, dtype: str) -> Program:
    """Record the kernel that moves stacks of this many pictures."""

    def body(b: dict[str, Any]) -> dict[str, Any]:
        old, new = b["stacks"], b["newest"]
        if len(new) < 4:  # no colours
            moved = [*old[len(new) :], *new]
        else:
            row, ends = 3 * count, 3 * (count - 1)  # bytes of a pixel in a stack, and where its newest picture's begin
            pixels = [divmod(k, row) for k in range(len(new) * row)]
            places = [(old, p * row + k + 3) if k < ends else (new, 4 * p + k - ends) for p, k in pixels]
            moved = _joined([(words[k // 4], k % 4) for words, k in places])
        return {b.name: moved for b in buffers if b.name != "newest"}

    return record("stack", buffers, body, dtype)


def _joined(chosen: Sequence[tuple[Expr, int]]) -> list[Expr]:
    """Join bytes into words, the lowest byte first. Each byte is given as a word and the byte's place in it."""
    words: list[Expr] = []
    for first in range(0, len(chosen), 4):
        parts: dict[tuple[Expr, int], int] = {}  # by word and shift: the mask of the bytes that it gives
        for k, (word, place) in enumerate(chosen[first : first + 4]):
            parts[word, place - k] = parts.get((word, place - k), 0) | 255 << 8 * k
        joined: list[Expr] = []
        for (word, shift), mask in parts.items():
            moved = node("lshr", word, 8 * shift) if shift > 0 else node("ishl", word, -8 * shift) if shift else word
            there = 0xFFFFFFFF >> 8 * shift if shift > 0 else 0xFFFFFFFF << -8 * shift & 0xFFFFFFFF
            joined.append(moved if mask == there else node("iand", moved, mask - (mask >> 31 << 32)))
        words.append(functools.reduce(lambda x, y: node("ior", x, y), joined))
    return words


class _Block:
    """Memory of one size, and the launch that writes into it once there is one."""

    def __init__(self, tensor: torch.Tensor):
        self.tensor = tensor
        self.launch: launch.Launch | None = None


class _Memory:
    """A pool of memory blocks. A block is reused once its tensors are gone, since new memory costs more than writing to
    old.

    NumPy allocates them, since it asks Linux for large pages; torch does not by itself.
    """

    def __init__(self, shape: torch.Size, dtype: torch.dtype):
        self._shape, self._dtype = shape, dtype
        self._free: list[_Block] = []

    def lend(self) -> tuple[_Block, torch.Tensor]:
        """Return a block and a tensor over its memory. When the tensor and all its views are gone, the block is free
        again.
        """
        block = self._free.pop() if self._free else _Block(self._new())
        array = block.tensor.numpy()
        weakref.finalize(array, _keep, self._free, block).atexit = False
        return block, torch.from_numpy(array)

    def _new(self) -> torch.Tensor:
        size = self._shape.numel() * self._dtype.itemsize
        memory = np.empty(size + 64, np.uint8)
        first = -memory.ctypes.data % 64
        return torch.from_numpy(memory[first : first + size]).view(self._dtype).view(self._shape)


def _keep(free: list[_Block], block: _Block) -> None:
    if len(free) < FREE:
        free.append(block)

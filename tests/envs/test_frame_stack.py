"""Stacks of pictures: what the kernel moves is what torch would, and memory is lent again only when nobody has it."""

from __future__ import annotations

import gc

import pytest
import torch
from ptx import Machine

from torch_mjenvs.compiler import cuda
from torch_mjenvs.envs import frame_stack
from torch_mjenvs.envs.frame_stack import FrameStack

ON_GPU = torch.get_default_device().type == "cuda"


# what pictures are drawn into: colours, packed into one number; distances; numbers of objects and of their types
KINDS = {"rgb": torch.int32, "depth": torch.float32, "depth in float64": torch.float64, "segmentation": torch.int32}


def numbers(worlds: int, pixels: int, kind: str) -> torch.Tensor:
    """(worlds, pixels, numbers), a view of planes as `Picture` has them."""
    drawn = torch.randint(0, 2**24, (1 + (kind == "segmentation"), worlds, pixels), dtype=torch.int32)
    drawn = drawn if KINDS[kind] == torch.int32 else drawn.to(KINDS[kind]) / 3
    return drawn.movedim(0, -1)


# four pixels of one world and of two, of a picture's own memory and of rows with more at their ends
@pytest.mark.parametrize("worlds, height, width", [(16, 4, 4), (3, 5, 7), (1, 1, 1)])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_the_newest_comes_in_place_of_the_oldest(worlds, height, width, kind, count):
    torch.manual_seed(0)
    held = numbers(worlds, 48, kind)
    newest = held[:, : height * width] if height * width != 16 else numbers(worlds, 16, kind)
    stack = FrameStack(newest, height, width, count, kind == "rgb")
    want = [torch.zeros_like(stack.newest)] * count
    for k in range(2 * count + 1):
        newest.copy_(numbers(worlds, height * width, kind))
        seen = newest.unflatten(1, (height, width)).clone()
        seen = torch.cat([seen >> 8 * c & 255 for c in range(3)], -1).byte() if kind == "rgb" else seen
        assert torch.equal(stack.newest, seen)
        want = [*want[1:], seen]
        if k % 2 or ON_GPU:
            stack.move()
        else:
            assert torch.equal(stack.moved(), torch.cat(want, -1))
        assert torch.equal(stack.frames, torch.cat(want, -1))
    for first in (False, True):
        copy = stack.copied(first)
        assert copy.is_contiguous() and torch.equal(copy, torch.cat(want, -1).movedim(-1, 1 if first else -1))


@pytest.mark.cpu
@pytest.mark.parametrize("kind", ["rgb", "depth", "segmentation"])
def test_a_gpu_moves_the_same_bytes(kind, monkeypatch):
    """The PTX, run by an interpreter."""
    programs, build = [], frame_stack.build
    monkeypatch.setattr(frame_stack, "build", lambda x, device: (programs.append(x), build(x, device))[1])
    torch.manual_seed(0)
    stack = FrameStack(numbers(4, 16, kind), 4, 4, 3, kind == "rgb")
    stack._stacks.copy_(numbers(1, stack._stacks.numel(), kind)[..., 0].reshape(stack._stacks.shape) * 97)
    theirs = [stack._launch.tensors[0], stack._stacks.clone()]
    stack.move()
    Machine(cuda.assembly(programs[0])).launch(theirs, len(stack._stacks))
    assert torch.equal(theirs[1], stack._stacks) and len(stack._stacks.unique()) > 20


@pytest.mark.cpu
def test_memory_is_lent_again_once_nobody_has_it():
    newest = numbers(4, 16, "rgb")
    stack = FrameStack(newest, 4, 4, 2, True)
    first = stack.moved()
    part, place, seen = first[1, ..., :3].numpy(), first.data_ptr(), first.clone()
    kept = torch.as_tensor(part.copy())
    del first
    newest.copy_(numbers(4, 16, "rgb"))
    other = stack.moved()
    assert other.data_ptr() != place and torch.equal(torch.as_tensor(part), kept)  # a view of it is still in use
    assert not torch.equal(other, seen)
    del part
    gc.collect()
    assert {stack.moved().data_ptr() for _ in range(3)} == {place}
    assert stack.copied(channels_first=False).data_ptr() == place
    held = [stack.moved() for _ in range(5)]
    assert len({x.data_ptr() for x in (*held, other)}) == 6
    del held
    assert len(stack._memory._free) == 2

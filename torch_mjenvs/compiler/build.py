"""From a program, or a recipe for one, to a kernel: the one in use, the one kept on disk, or a new one."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable
from dataclasses import dataclass

import torch

from . import cache, devices
from .back_end import BackEnd
from .launch import Kernel
from .program import Buffer, Program


@dataclass(frozen=True)
class Recipe:
    """A program that is recorded only where its code is not at hand yet.

    `origin` says all that the program follows from (see `source.origin`); None: that cannot be known, so it has to be
    recorded to tell.
    """

    name: str
    buffers: tuple[Buffer, ...]
    dtype: str
    record: Callable[[], Program]
    origin: str | None


def build(what: Program | Recipe, where: torch.device | BackEnd) -> Kernel:
    """The kernel of a program, for a device. Code that is in use in this process, or kept on disk, is not made again.

    It is found by all that it follows from: the origin of the recipe, or else the program's IR. Loaded code goes with
    its last user.
    """
    back = devices.back_end(where) if isinstance(where, torch.device) else where
    origin = what.origin if isinstance(what, Recipe) else None
    ir = _ir(back, what) if origin is None else None
    key = f"{back.toolchain}\n{what.name} {what.dtype} {tuple(what.buffers)}\n{origin or ir}"
    place = hashlib.sha256(key.encode()).digest(), back.device
    kernel = _loaded.get(place)
    if kernel is None:
        kernel = _loaded[place] = _load(back, what, key, lambda: back.translate(ir or _ir(back, what)))
    return kernel


_loaded: weakref.WeakValueDictionary[tuple[bytes, torch.device], Kernel] = weakref.WeakValueDictionary()


def _ir(back: BackEnd, what: Program | Recipe) -> str:
    if isinstance(what, Program):
        return back.lower(what)
    program = what.record()
    ir = back.lower(program)
    program.release()
    return ir


def _load(back: BackEnd, what: Program | Recipe, key: str, make: Callable[[], bytes]) -> Kernel:
    title = f"{what.name}-{back.name}"
    code = cache.kept(title, key)
    if code is None:
        code = make()
        cache.keep(title, key, code)
    return back.load(what.name, what.buffers, what.dtype, code)

"""From a program, or a recipe for one, to a kernel: the one in use, the one kept on disk, or a new one."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable
from dataclasses import dataclass

import torch

from . import cache, devices
from .back_end import BackEnd
from .control import unrolling
from .launch import Kernel
from .program import Buffer, Program
from .progress import progress


@dataclass(frozen=True)
class Recipe:
    """A program that is recorded only if its code is not in use or on disk yet.

    `origin` names everything that the program follows from (see `source.origin`). None: that cannot be known, so the
    program is always recorded, and found by its IR.
    """

    name: str
    buffers: tuple[Buffer, ...]
    dtype: str
    record: Callable[[], Program]
    origin: str | None


def build(what: Program | Recipe, where: torch.device | BackEnd) -> Kernel:
    """Return a program's kernel for a device. Code that is in use in this process, or kept on disk, is not made again.

    Code is kept under the program's IR, and an origin leads to it. So if the package has changed, but not the IR that
    it makes, the program is recorded again but not compiled. Loaded code is freed with its last user.
    """
    return prepare(what, where)()


def prepare(what: Program | Recipe, where: torch.device | BackEnd) -> Callable[[], Kernel]:
    """Begin a `build`: record the program now if it has no origin, and return a function that does the rest.

    That function no longer needs the program itself.
    """
    back = devices.back_end(where) if isinstance(where, torch.device) else where
    name, buffers, dtype = what.name, tuple(what.buffers), what.dtype
    title, head = f"{name}-{back.name}", f"{back.toolchain} {back.unroll_limit}\n{name} {dtype} {buffers}\n"

    def translated(ir: str) -> bytes:
        def make() -> bytes:
            with progress(f"compiling the kernel {name!r}"):
                return back.translate(ir)

        return kept_or_made(title, head + ir, make)

    if isinstance(what, Recipe) and what.origin is not None:
        recipe, key = what, head + what.origin

        def code() -> bytes:
            found = cache.load_linked(title, key)
            if found is None:
                ir = _ir(back, recipe)
                found = translated(ir)
                cache.link(title, key, head + ir)
            return found

    else:
        ir = _ir(back, what)
        key = head + ir

        def code() -> bytes:
            return translated(ir)

    place = hashlib.sha256(key.encode()).digest(), back.device

    def kernel() -> Kernel:
        found = _loaded.get(place)
        if found is None:
            made = code()
            with progress(f"loading the kernel {name!r}"):  # a GPU's driver compiles it once more
                found = _loaded[place] = back.load(name, buffers, dtype, made)
        return found

    return kernel


_loaded: weakref.WeakValueDictionary[tuple[bytes, torch.device], Kernel] = weakref.WeakValueDictionary()


def _ir(back: BackEnd, what: Program | Recipe) -> str:
    if isinstance(what, Program):
        return back.lower(what)
    with progress(f"tracing the kernel {what.name!r}"), unrolling(back.unroll_limit):
        program = what.record()
        ir = back.lower(program)
        program.release()
    return ir


def kept_or_made(title: str, key: str, make: Callable[[], bytes]) -> bytes:
    """Return the code kept on disk under this key, or make it and keep it."""
    code = cache.load(title, key)
    if code is None:
        code = make()
        cache.store(title, key, code)
    return code

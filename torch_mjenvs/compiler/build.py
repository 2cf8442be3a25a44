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
    """Record a program now if it has no origin, and return a function that does the rest of a `build`.

    That function no longer needs the program itself.
    """
    task = _Build(what, where)
    return lambda: task.begin(lambda ir: lambda: task.back.translate(ir))()


def begin(what: Program | Recipe, where: torch.device | BackEnd) -> Callable[[], Kernel]:
    """Begin a `build`, and return a function that ends it. Meanwhile other processes make the code, if that is worth
    while.
    """
    task = _Build(what, where)
    return task.begin(task.back.begin)


class _Build:
    """A kernel to be found or made. Its program is recorded now if it has no origin."""

    def __init__(self, what: Program | Recipe, where: torch.device | BackEnd):
        self.back = devices.back_end(where) if isinstance(where, torch.device) else where
        self.name, self.buffers, self.dtype = what.name, tuple(what.buffers), what.dtype
        self.title = f"{self.name}-{self.back.name}"
        self.head = f"{self.back.toolchain} {self.back.unroll_limit}\n{self.name} {self.dtype} {self.buffers}\n"
        origin = what.origin if isinstance(what, Recipe) else None
        self.recipe = what if isinstance(what, Recipe) and origin is not None else None
        self.key = self.head + (_ir(self.back, what) if origin is None else origin)
        self.place = hashlib.sha256(self.key.encode()).digest(), self.back.device

    def begin(self, make: Callable[[str], Callable[[], bytes]]) -> Callable[[], Kernel]:
        """Find the kernel, or begin to make it, and return a function that ends that. make: begins to translate IR."""
        loaded = _loaded.get(self.place)
        code = self._code(make) if loaded is None else None

        def kernel() -> Kernel:
            found = loaded or _loaded.get(self.place)
            if found is None:
                assert code
                made = code()
                with progress(f"loading the kernel {self.name!r}"):  # a GPU's driver compiles it once more
                    found = self.back.load(self.name, self.buffers, self.dtype, made)
                _loaded[self.place] = found
            return found

        return kernel

    def _code(self, make: Callable[[str], Callable[[], bytes]]) -> Callable[[], bytes]:
        if not self.recipe:
            return self._of(self.key.removeprefix(self.head), make)
        kept = cache.load_linked(self.title, self.key)
        if kept is not None:
            return lambda: kept
        ir = _ir(self.back, self.recipe)
        rest = self._of(ir, make)

        def code() -> bytes:
            made = rest()
            cache.link(self.title, self.key, self.head + ir)
            return made

        return code

    def _of(self, ir: str, make: Callable[[str], Callable[[], bytes]]) -> Callable[[], bytes]:
        """Find the code of IR, or begin to make it."""

        def begun() -> Callable[[], bytes]:
            rest = make(ir)

            def made() -> bytes:
                with progress(f"compiling the kernel {self.name!r}"):
                    return rest()

            return made

        return _kept_or_begun(self.title, self.head + ir, begun)


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
    return _kept_or_begun(title, key, lambda: make)()


def _kept_or_begun(title: str, key: str, begin: Callable[[], Callable[[], bytes]]) -> Callable[[], bytes]:
    """Return what gives the code kept on disk under this key; or begin to make it, and return what keeps it then."""
    kept = cache.load(title, key)
    if kept is not None:
        return lambda: kept
    rest = begin()

    def made() -> bytes:
        code = rest()
        cache.store(title, key, code)
        return code

    return made

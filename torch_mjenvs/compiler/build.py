"""From a program, or what it follows from, to a kernel: the one in use, the one kept on disk, or a new one."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from . import cache
from .launch import Kernel
from .program import Buffer, Program
from .progress import progress


@dataclass(frozen=True)
class BackEnd:
    """What makes code for a device and loads it.

    `lower` gives the program's LLVM IR, `translate` the code of that IR. `toolchain` says all else that the code
    depends on. `load` raises an exception for what is not such code.
    """

    name: str
    device: torch.device
    toolchain: str
    lower: Callable[[Program], str]
    translate: Callable[[str], bytes]
    load: Callable[[str, Sequence[Buffer], str, bytes], Kernel]


def build(back: BackEnd, program: Program) -> Kernel:
    """Compile (or find it compiled) and load. The key is the IR, so whatever the program follows from is in it."""
    return prepare(back, program)()


def prepare(back: BackEnd, program: Program) -> Callable[[], Kernel]:
    """Lower the program now, and compile and load when the result is called. It holds the IR, not the program."""
    ir = back.lower(program)
    return partial(
        _shared, back, program.name, program.buffers, program.dtype, ir, lambda: _compiled(back, program.name, ir)
    )


def build_known(
    back: BackEnd, name: str, buffers: Sequence[Buffer], dtype: str, origin: str | None, make: Callable[[], Program]
) -> Kernel:
    """`build(make())`, but where the same was built before, `make` is not even called.

    `origin` must say all that the program follows from: see `source.origin`. None: it cannot be known.
    """
    if origin is not None:
        return _shared(back, name, buffers, dtype, origin, lambda: _compiled(back, name, _traced(back, name, make)))
    ir = _traced(back, name, make)
    return _shared(back, name, buffers, dtype, ir, lambda: _compiled(back, name, ir))


def _traced(back: BackEnd, name: str, make: Callable[[], Program]) -> str:
    with progress(f"tracing the kernel {name!r}"):
        program = make()
        ir = back.lower(program)
        program.release()
    return ir


def _compiled(back: BackEnd, name: str, ir: str) -> bytes:
    with progress(f"compiling the kernel {name!r}"):
        return back.translate(ir)


_loaded: weakref.WeakValueDictionary[tuple[bytes, torch.device], Kernel] = weakref.WeakValueDictionary()


def _shared(
    back: BackEnd, name: str, buffers: Sequence[Buffer], dtype: str, origin: str, make: Callable[[], bytes]
) -> Kernel:
    """The kernel in use in this process, if there is one: loaded code goes with its last user."""
    key = f"{back.toolchain}\n{name} {dtype} {tuple(buffers)}\n{origin}"
    place = hashlib.sha256(key.encode()).digest(), back.device
    kernel = _loaded.get(place)
    if kernel is None:
        kernel = _loaded[place] = _load(back, name, buffers, dtype, key, make)
    return kernel


def _load(
    back: BackEnd, name: str, buffers: Sequence[Buffer], dtype: str, key: str, make: Callable[[], bytes]
) -> Kernel:
    title = f"{name}-{back.name}"
    kept = cache.kept(title, key)

    def loaded(code: bytes) -> Kernel:  # to a GPU's driver it is one more language to compile
        with progress(f"loading the kernel {name!r}"):
            return back.load(name, buffers, dtype, code)

    try:
        if kept is not None:
            return loaded(kept)
    except torch.OutOfMemoryError:
        raise
    except Exception:
        code = make()
        if code == kept:  # so it was no fault of the file
            raise
    else:
        code = make()
    cache.keep(title, key, code)
    return loaded(code)

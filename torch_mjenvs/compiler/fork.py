"""Makes forking safe. A forked child has one thread: no other will release a lock that its parent's threads held, and
OpenMP's threads are gone.

LLVM's lock is held across a fork, so a fork waits for whoever is compiling. OpenMP's threads are ended before it,
within a fraction of a millisecond: else GNU's runtime, which torch and we use, would wait in the child for the parent's
threads. Parent and child start new ones when they next need some.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import multiprocessing
import os
from collections.abc import Callable

import torch
from llvmlite.binding.ffi import lib as llvm

from .program import forget_pauses

HARD = 2  # omp_pause_hard of OpenMP 5.0: keep nothing


@functools.cache
def _pause() -> Callable[[int], int] | None:
    """Return `omp_pause_resource_all` of the OpenMP that torch brought; None if it is older than GCC 9."""
    try:
        return ctypes.CDLL(None).omp_pause_resource_all
    except (AttributeError, OSError, TypeError):  # TypeError: on Windows, where nothing forks
        return None


def _before() -> None:
    llvm._lock.__enter__()
    if (pause := _pause()) is not None:
        pause(HARD)


def _in_parent() -> None:
    llvm._lock.__exit__(None, None, None)


_inherited: list[int] = []  # in a forked child, the seed of the parent's torch; a list, as `source` takes no note of it


def _in_child() -> None:
    llvm._lock.__exit__(None, None, None)
    forget_pauses()
    if _pause() is None:
        torch.set_num_threads(1)
    _inherited[:] = [torch.initial_seed()]


def draw_seed() -> int:
    """Draw a seed from torch's generator.

    Forked children inherit that generator. Until a child seeds its own, its draws also depend on which child it is, so
    that workers who were given no seed differ: by multiprocessing's number of the worker, else by the process.
    """
    drawn = int(torch.randint(2**62, (), device="cpu").item())
    if torch.initial_seed() not in _inherited:
        return drawn
    which = multiprocessing.current_process()._identity or (os.getpid(),)
    digest = hashlib.sha256(f"{drawn} {which}".encode()).digest()
    return int.from_bytes(digest[:8], "little") % 2**62


def prepare() -> None:
    """Hold LLVM's lock and pause OpenMP's threads during every fork of this process from now on."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)

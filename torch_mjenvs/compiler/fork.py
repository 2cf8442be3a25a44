"""Makes forking safe. A forked child has one thread: no other will release a lock that its parent's threads held, and
OpenMP's threads are gone.

LLVM's lock is held across a fork, so a fork waits for whoever is compiling. OpenMP's threads are ended before it,
within a fraction of a millisecond: else GNU's runtime, which torch and we use, would wait in the child for the parent's
threads. Parent and child start new ones when they next need some.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable

import torch
from llvmlite.binding.ffi import lib as llvm

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


def _in_child() -> None:
    llvm._lock.__exit__(None, None, None)
    if _pause() is None:
        torch.set_num_threads(1)


def prepare() -> None:
    """Hold LLVM's lock and pause OpenMP's threads during every fork of this process from now on."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)

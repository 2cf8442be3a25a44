"""From the text of a module to object code, with several processes for a large one.

A module's parts are kept on disk by themselves. Where several are to be made, other processes make some of them
meanwhile: LLVM's Python interface lets one thread of a process in at a time.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import cache, loader
from .llvm.parts import MARK, name_of

# Characters of IR for another process: LLVM takes half a second for them, and Python a tenth of one to start.
WORTH_WHILE = 600_000
FAST = 5  # times as many at level 0, at which LLVM is as much faster


@dataclass(frozen=True)
class Assembler:
    """A maker of object code for a target. The arguments are those of `loader.machine`.

    `toolchain` names all that the code depends on, but for the text.
    """

    triple: str
    cpu: str
    features: str
    opt: int | None
    toolchain: str

    def code(self, ir: str) -> bytes:
        """Return the code of a module, whose parts are behind MARKs."""
        return self.begin(ir, here=True)()

    def begin(self, ir: str, here: bool = False) -> Callable[[], bytes]:
        """Have other processes make the code of a module, and return what waits for it.

        here: this process makes some of it, too, since it has nothing else to do meanwhile.
        """
        main, *parts = ir.split(MARK)
        declared = "".join(f"\ndeclare void {name_of(part)}(ptr, ptr)" for part in parts)
        target = f'target triple = "{self.triple}"\n'
        keys = [f"{self.toolchain}\n{part}" for part in parts]
        found = [cache.load("part", key) for key in keys]
        missing = [k for k, code in enumerate(found) if code is None]
        making = _Making(self, [main + declared, *(target + parts[k] for k in missing)], here)

        def code() -> bytes:
            first, *made = making.objects()
            for k, code in zip(missing, made, strict=True):
                cache.store("part", keys[k], code)
                found[k] = code
            return loader.joined([first, *(code for code in found if code is not None)])

        return code

    def assemble(self, ir: str) -> bytes:
        """Return the object of a module, made by this process."""
        return loader.assemble(ir, self._machine)

    def start(self, modules: Sequence[str]) -> subprocess.Popen[bytes] | None:
        """Start a process that makes objects of some modules; return None if none can be started."""
        job = {"modules": modules, "machine": [self.triple, self.cpu, self.features, self.opt]}
        # Isolated, since modules in the user's folder must not be taken for those of the standard library.
        command = [sys.executable, "-I", "-S", "-c", _PROGRAM, loader.__file__, *sys.path]
        try:
            with tempfile.TemporaryFile() as given:
                given.write(json.dumps(job | {"options": loader.options}).encode())
                given.seek(0)
                return subprocess.Popen(command, stdin=given, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        except OSError:
            return None

    @functools.cached_property
    def _machine(self) -> Any:
        return loader.machine(self.triple, self.cpu, self.features, self.opt)


class _Making:
    """Objects that are being made: by other processes if that is worth while, and the rest here when they are asked
    for.
    """

    def __init__(self, by: Assembler, modules: Sequence[str], here: bool):
        self._by, self._modules = by, modules
        fast = loader.chosen(by.opt)["opt"] == 0
        self._shares = _shares(modules, FAST * WORTH_WHILE if fast else WORTH_WHILE, here)
        self._others = [by.start([modules[k] for k in share]) for share in self._shares[1:]]
        self._end = weakref.finalize(self, _end, self._others)  # also if nobody asks for the objects

    def objects(self) -> list[bytes]:
        """Return the objects of the modules."""
        made: dict[int, bytes] = {}
        try:
            for share, process in zip(self._shares, [None, *self._others], strict=True):
                codes = _ended(process) if process else None
                if codes is None:  # here: the first share, and those of processes that failed
                    codes = [self._by.assemble(self._modules[k]) for k in share]
                made |= zip(share, codes, strict=True)
        finally:
            self._end()
        return [made[k] for k in range(len(self._modules))]


def _shares(modules: Sequence[str], fewest: int, here: bool) -> list[list[int]]:
    """Share out modules among processes, each with as many characters as `fewest` says: return the numbers of those of
    each process, first of this one, which has a full share only if `here` says so.
    """
    processes = processors() if _has_interpreter() else 1
    first: list[int] = []
    others: list[list[int]] = [[] for _ in range(min(processes, len(modules)) - here)] if processes > 1 else []
    shares = [first, *others] if here or not others else others

    def size(share: Iterable[int]) -> int:
        return sum(len(modules[k]) for k in share)

    for k in sorted(range(len(modules)), key=lambda k: -len(modules[k])):
        min(shares, key=size).append(k)
    first += [k for share in others if size(share) < fewest for k in share]
    return [first, *(share for share in others if size(share) >= fewest)]


def processors() -> int:
    """Return how many processors this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS or Windows
        return os.cpu_count() or 1


def _has_interpreter() -> bool:
    """Return whether `sys.executable` is Python, and not a program that Python is a part of."""
    return "python" in Path(sys.executable or "").name.lower() and not getattr(sys, "frozen", False)


def _end(processes: Iterable[subprocess.Popen[bytes] | None]) -> None:
    """End processes, those that have ended included."""
    for process in filter(None, processes):
        process.kill()  # of no effect on one that has ended
        process.wait()
        if process.stdout:
            process.stdout.close()


def _ended(process: subprocess.Popen[bytes]) -> list[bytes] | None:
    """Wait for a process, and return the objects that it made; None if it failed."""
    made, _ = process.communicate()
    return None if process.returncode else loader.objects_of(made)


# What the other process runs. It imports LLVM's interface, and nothing else of what this process has.
_PROGRAM = """
import runpy, sys
sys.path[:] = sys.argv[2:]
runpy.run_path(sys.argv[1], run_name="torch_mjenvs assembler")["serve"](sys.stdin.buffer, sys.stdout.buffer)
"""

"""Read-only views of MuJoCo's arrays, and of its bodies, joints and other elements."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

Refuse = Callable[[str], Any]  # raises an error that says why the field of this name is not to be written into


@functools.cache
def accessors(kind: type) -> frozenset[str]:
    """Return the methods of MjModel or MjData that give an element by its name: body, joint, geom and so on."""
    return frozenset(name for name in dir(kind) if name.isalpha() and callable(getattr(kind, name)))


def read_only(x: np.ndarray, name: str, refuse: Refuse) -> ReadOnly:
    """Return a view of the array that calls `refuse(name)` when it is written into."""
    array = x.view(ReadOnly)
    array.flags.writeable, array.name, array.refuse = False, name, refuse
    return array


class ReadOnly(np.ndarray):
    """A NumPy array that cannot be written into. Results computed from it are ordinary arrays."""

    name: str
    refuse: Refuse | None

    def __array_finalize__(self, base: Any) -> None:
        self.name, self.refuse = getattr(base, "name", ""), getattr(base, "refuse", None)

    def _check(self) -> None:
        if not self.flags.writeable and self.refuse is not None:
            self.refuse(self.name)

    def __setitem__(self, at: Any, x: Any) -> None:
        self._check()
        super().__setitem__(at, x)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        outs = options.get("out", ())
        for out in outs:
            if isinstance(out, ReadOnly):
                out._check()
        if outs:
            options["out"] = tuple(map(_plain, outs))
        found = getattr(ufunc, method)(*map(_plain, inputs), **options)
        return found if not outs else outs[0] if len(outs) == 1 else outs


def _plain(x: Any) -> Any:
    return x.view(np.ndarray) if isinstance(x, ReadOnly) else x


class ReadOnlyPart:
    """A read-only part of a model or of data: options, or an element as `body(name)` gives it.

    guard(name, value) returns what a reader gets for a field; write(name) raises where the field must not be written.
    """

    def __init__(self, part: Any, guard: Callable[[str, Any], Any], write: Refuse):
        vars(self).update(_part=part, _guard=guard, _write=write)

    def __getattr__(self, name: str) -> Any:
        return self._guard(name, getattr(self._part, name))

    def __setattr__(self, name: str, value: Any) -> None:
        self._write(name)
        setattr(self._part, name, value)

    def __repr__(self) -> str:
        return repr(self._part)

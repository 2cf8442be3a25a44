"""The MjData that users of one world see: MuJoCo's own, brought to the world's state whenever it is asked for.

The kernels hold the state, so what was written into it would change nothing: nobody writes into it.
"""

from __future__ import annotations

from typing import Any, NoReturn

import mujoco
import numpy as np

ACCESSORS = frozenset(name for name in dir(mujoco.MjData) if name.isalpha() and callable(getattr(mujoco.MjData, name)))


class DataView(mujoco.MjData):
    """An MjData that refuses to be written into, but for `bring`. `check` refuses what MuJoCo's functions write."""

    def bring(self, qpos: np.ndarray, qvel: np.ndarray, ctrl: np.ndarray, time: float) -> None:
        """All of mjData for this state: mj_forward, and the forces on bodies, as Gymnasium has them after a step."""
        own = super().__getattribute__
        for name, x in (("qpos", qpos), ("qvel", qvel), ("ctrl", ctrl)):
            own(name)[:] = x
        super().__setattr__("time", time)
        mujoco.mj_forward(own("model"), self)
        mujoco.mj_rnePostConstraint(own("model"), self)
        own("__dict__")["_brought"] = {name: own(name).copy() for name in ("qpos", "qvel", "ctrl")}

    def check(self) -> None:
        """Raises ValueError where somebody changed the state here since it was brought."""
        own = super().__getattribute__
        brought = own("__dict__").pop("_brought", {})
        if not all(np.array_equal(own(name), x) for name, x in brought.items()):
            _refuse("qpos, qvel or ctrl")
        own("__dict__")["_brought"] = brought

    def __getattribute__(self, name: str) -> Any:
        x = super().__getattribute__(name)
        return (lambda *which: _Part(x(*which))) if name in ACCESSORS else _guarded(x)

    def __setattr__(self, name: str, value: Any) -> None:
        _refuse(name)


class _Part:
    """A body, a joint and so on, as `data.body(name)` gives it."""

    def __init__(self, part: Any):
        vars(self)["_part"] = part

    def __getattr__(self, name: str) -> Any:
        return _guarded(getattr(self._part, name))

    def __setattr__(self, name: str, value: Any) -> None:
        _refuse(name)

    def __repr__(self) -> str:
        return repr(self._part)


class _Array(np.ndarray):
    """An array of the data; what is computed from it is one of the user's own."""

    def __setitem__(self, at: Any, x: Any) -> None:
        if not self.flags.writeable:
            _refuse("its arrays")
        super().__setitem__(at, x)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if any(isinstance(out, _Array) and not out.flags.writeable for out in options.get("out", ())):
            _refuse("its arrays")
        plain = [x.view(np.ndarray) if isinstance(x, _Array) else x for x in inputs]
        return getattr(ufunc, method)(*plain, **options)


def _guarded(x: Any) -> Any:
    if not isinstance(x, np.ndarray):
        return x
    array = x.view(_Array)
    array.flags.writeable = False
    return array


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"env.data shows the world's state and cannot change it ({name}): call env.set_state(qpos, qvel)")

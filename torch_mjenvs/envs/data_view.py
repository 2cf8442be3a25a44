"""A read-only MjData for users of one world, computed from the world's state whenever it is asked for.

The kernels hold the state, so writing into this copy would change nothing: it raises ValueError.
"""

from __future__ import annotations

from typing import Any, NoReturn

import mujoco
import numpy as np

from .read_only import ReadOnlyPart, accessors, read_only


class DataView(mujoco.MjData):
    """An MjData that refuses to be written into. `bring` updates it; `check` finds what MuJoCo's functions wrote."""

    def bring(self, model: mujoco.MjModel, time: float, **state: np.ndarray) -> None:
        """Compute all of mjData for this model and state, fields by name, by mj_forward and mj_rnePostConstraint."""
        own = super().__getattribute__
        for name, x in state.items():
            own(name)[:] = x
        super().__setattr__("time", time)
        mujoco.mj_forward(model, self)
        mujoco.mj_rnePostConstraint(model, self)
        own("__dict__")["_brought"] = {name: own(name).copy() for name in state}

    def check(self) -> None:
        """Raise ValueError if the state in this MjData has been changed since `bring`."""
        own = super().__getattribute__
        brought = own("__dict__").pop("_brought", {})
        if not all(np.array_equal(own(name), x) for name, x in brought.items()):
            _refuse("qpos, qvel, act or ctrl")
        own("__dict__")["_brought"] = brought

    def __getattribute__(self, name: str) -> Any:
        x = super().__getattribute__(name)
        if name in accessors(mujoco.MjData):
            return lambda *which: ReadOnlyPart(x(*which), _guarded, _refuse)
        return _guarded(name, x)

    def __setattr__(self, name: str, value: Any) -> None:
        _refuse(name)


def _guarded(name: str, x: Any) -> Any:
    return read_only(x, name, _refuse) if isinstance(x, np.ndarray) else x


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"env.data shows the world's state and cannot change it ({name}): call env.set_state(qpos, qvel)")

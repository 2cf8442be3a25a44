"""What environments say and do of parameters that vary from world to world."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import mujoco
import torch

from ..calls import Lock, exclusive

if TYPE_CHECKING:
    from .engine import Engine


class OwnParameters:
    """The methods of an environment for parameters that vary from world to world: its engine's."""

    engine: Engine
    _lock: Lock

    def _check_open(self) -> None:
        """Raise an error if the environment is closed, and cannot be used any more."""

    @property
    def params(self) -> dict[str, torch.Tensor]:
        """The model's parameters that vary from world to world, by name: (N, ...), the engine's own memory.

        You may write into them; what MuJoCo derives from them is updated at the next step. In code that torch compiles,
        call `set_const`. `set_params` also checks the values.
        """
        return self.engine.params

    @exclusive
    def set_params(self, values: Mapping[str, Any], mask: torch.Tensor | None = None) -> None:
        """Set parameters of the worlds, or of those of the (N,) bool mask: by name (N, ...), or (...) for all alike.

        Resets keep them, except those that are randomised. Raises ValueError for impossible values, naming parameter,
        world and rule, and for names that do not vary here; nothing has changed then.
        """
        self._check_open()
        self.engine.set_params(values, mask)

    @exclusive
    def set_const(self) -> None:
        """Compute what MuJoCo derives from the parameters of every world, as mj_setConst.

        Only needed in code that torch compiles and in CUDA graphs, where writing into `params` does not trigger it.
        """
        self._check_open()
        self.engine.set_const()

    def model_of(self, world: int = 0) -> mujoco.MjModel:
        """Return a copy of the MjModel with a world's own parameters, and with what mj_setConst derives from them.

        With it MuJoCo's C can do what a world does, or its viewer show it. Raises IndexError for a world that does not
        exist, and ValueError where a body that MuJoCo's compiler found to be simple has another `body_ipos`,
        `body_iquat`, `jnt_axis` or `jnt_pos`: the MJCF file must call it `simple="false"`.
        """
        return self.engine.model_of(world)

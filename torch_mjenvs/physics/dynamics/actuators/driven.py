"""The joints and tendons that actuators drive, by the kinds of transmission (mjtTrn) that drive one."""

from __future__ import annotations

from collections.abc import Sequence

from ...model.enums import TrnType
from ...model.model import Model

OF_JOINTS, OF_TENDONS = (TrnType.JOINT, TrnType.JOINTINPARENT), (TrnType.TENDON,)


def drivers(m: Model, kinds: Sequence[int], driven: int) -> list[int]:
    """Return the actuators that drive one joint or tendon: those with a transmission of these kinds to it."""
    return [i for i in range(m.nu) if m.actuator_trntype[i] in kinds and m.actuator_trnid[i][0] == driven]

"""MuJoCo's enums as ints, under MuJoCo's names: mjJNT_HINGE of mjtJoint is `JointType.HINGE`."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import mujoco


class ContactReduce(IntEnum):
    """The second number of sensor_intprm of a contact sensor, which MuJoCo has no enum for: its attribute reduce."""

    NONE, MINDIST, MAXFORCE, NETFORCE = range(4)


def _enum(kind: Any, prefix: str) -> Any:
    members = {name.removeprefix(prefix): int(value) for name, value in kind.__members__.items()}
    return IntEnum(kind.__name__, members)


JointType = _enum(mujoco.mjtJoint, "mjJNT_")
GeomType = _enum(mujoco.mjtGeom, "mjGEOM_")
TrnType = _enum(mujoco.mjtTrn, "mjTRN_")
DynType = _enum(mujoco.mjtDyn, "mjDYN_")
GainType = _enum(mujoco.mjtGain, "mjGAIN_")
BiasType = _enum(mujoco.mjtBias, "mjBIAS_")
EqType = _enum(mujoco.mjtEq, "mjEQ_")
WrapType = _enum(mujoco.mjtWrap, "mjWRAP_")
ObjType = _enum(mujoco.mjtObj, "mjOBJ_")
CamLightType = _enum(mujoco.mjtCamLight, "mjCAMLIGHT_")
SensorType = _enum(mujoco.mjtSensor, "mjSENS_")
DataType = _enum(mujoco.mjtDataType, "mjDATATYPE_")
NeedStage = _enum(mujoco.mjtStage, "mjSTAGE_")
ConDataField = _enum(mujoco.mjtConDataField, "mjCONDATA_")

"""Left and right exchanged: what a robot whose sides are alike does and sees in a mirror, for symmetric policies.

    mirror = Mirror(m)  # in a task's methods; outside of them Mirror(env.unwrapped.model)
    action = mirror.actuators(action)
    seen = {"gyro": mirror.axial(gyro), "joint_pos": mirror.joints(offsets)}

The mirror is the plane y = 0 of the world; of what a robot feels, the plane between its sides. A reflection takes lists
of scalars, and tensors by their last dimension. See docs/tasks.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import mujoco
import torch

from .physics.model.enums import JointType
from .physics.model.model import Model
from .vectors import difference, multiply, norm, rotate, scale, sub

__all__ = ["Mirror", "Reflection"]

SIDES = {"left": "right"}
SINGLE = (JointType.HINGE, JointType.SLIDE)
ALIKE = 1e-2  # how far the directions of two axes may differ


@dataclass(frozen=True)
class Reflection:
    """The mirror image of a row of numbers: number k is `sign[k]` times the row's number `index[k]`.

    `a + b` reflects a row of both, one after the other, `3 * a` one of three of them, such as a history.
    """

    index: tuple[int, ...]
    sign: tuple[float, ...]
    _on: dict[Any, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict, repr=False, compare=False)

    def __call__(self, x: Any) -> Any:
        """Return the mirror image of a list (k), or of a tensor (..., k). Raises ValueError for another k."""
        n = x.shape[-1] if isinstance(x, torch.Tensor) else len(x)
        if n != len(self.index):
            raise ValueError(f"a reflection of {len(self.index)} numbers was given {n}")
        if not isinstance(x, torch.Tensor):
            return [x[i] if s == 1.0 else s * x[i] for i, s in zip(self.index, self.sign, strict=True)]
        key = x.device, x.dtype
        if key not in self._on:
            self._on[key] = torch.tensor(self.index, device=x.device), torch.tensor(self.sign).to(*key)
        index, sign = self._on[key]
        return x.index_select(-1, index) * sign

    def __add__(self, other: Reflection) -> Reflection:
        return self.then(len(self.index), other)

    def __rmul__(self, times: int) -> Reflection:
        return sum([self] * times, Reflection((), ()))

    def then(self, place: int, other: Reflection) -> Reflection:
        """Return this reflection, followed by another of the numbers that begin at a place in the row."""
        return Reflection((*self.index, *(place + i for i in other.index)), (*self.sign, *other.sign))


class Mirror:
    """The reflections of a robot whose left and right sides are alike, found by names and axes.

    `joints` reflects the positions, velocities or torques of all hinges and slides, in the order of qpos; `actuators`
    ctrl or an action with a number for each actuator; `qpos` and `qvel` whole states. `vector` reflects a velocity, a
    force or another vector (3), `axial` an angular velocity or a torque (3), `quat` an orientation (4).

    m: a task's `m`, or an MjModel. sides: what names have on the left, and on the right: {"FL": "FR", "RL": "RR"} for a
    quadruped. What has neither is its own mirror image.

    Raises ValueError for a joint or an actuator without a counterpart of its kind, or with an axis in another
    direction. Lengths and masses are not compared.
    """

    def __init__(self, m: Model | mujoco.MjModel, sides: Mapping[str, str] = SIDES):
        self._m = m.nominal or m if isinstance(m, Model) else m
        self._other = dict(sides) | {right: left for left, right in sides.items()}
        self._left, self._right = tuple(sides), tuple(sides.values())
        self.vector, self.axial = Reflection((0, 1, 2), (1.0, -1.0, 1.0)), Reflection((0, 1, 2), (-1.0, 1.0, -1.0))
        self.quat = Reflection((0, 1, 2, 3), (1.0, -1.0, 1.0, -1.0))
        self._find()

    def counterpart(self, name: str) -> str:
        """Return the name of what is on the other side; the name itself of what is on none."""
        for one, other in self._other.items():
            if one in name:
                return name.replace(one, other)
        return name

    def of(self, names: Sequence[str], each: Reflection = Reflection((0,), (1.0,))) -> Reflection:
        """Return the reflection of numbers that belong to these names, such as those of feet.

        each: of the numbers of one name, such as `vector` for forces. Raises ValueError for a name whose counterpart is
        not among them.
        """
        n, out = len(each.index), Reflection((), ())
        for name in names:
            if (other := self.counterpart(name)) not in names:
                raise ValueError(f"{name!r} has no counterpart {other!r} among {[*names]}")
            out = out.then(n * names.index(other), each)
        return out

    def points(self, points: Sequence[Sequence[float]]) -> Reflection:
        """Return the reflection of numbers at points (x, y), such as those of a height scan.

        Raises ValueError if (x, -y) is not one of them.
        """
        places = {(round(x, 6), round(y, 6) + 0.0): k for k, (x, y) in enumerate(points)}
        try:
            index = tuple(places[round(x, 6), round(-y, 6) + 0.0] for x, y in points)
        except KeyError as error:
            raise ValueError(f"the points have none at {error.args[0]}, the mirror image of one of them") from None
        return Reflection(index, (1.0,) * len(index))

    def _find(self) -> None:
        """Find the reflections of joints and actuators."""
        m, names = self._m, self._names("joint")
        pairs = [self._partner("joint", names, j) for j in range(m.njnt)]
        signs = [self._sign(j, k, names) for j, k in enumerate(pairs)]
        places = {j: n for n, j in enumerate(j for j in range(m.njnt) if m.jnt_type[j] in SINGLE)}
        self.qpos = self.qvel = self.joints = Reflection((), ())
        for j, k in enumerate(pairs):
            one = Reflection((0,), (signs[j],))
            free, ball = self.vector + self.quat, self.quat
            of_qpos = {JointType.FREE: free, JointType.BALL: ball}.get(m.jnt_type[j], one)
            of_qvel = {JointType.FREE: self.vector + self.axial, JointType.BALL: self.axial}.get(m.jnt_type[j], one)
            self.qpos = self.qpos.then(int(m.jnt_qposadr[k]), of_qpos)
            self.qvel = self.qvel.then(int(m.jnt_dofadr[k]), of_qvel)
            self.joints = self.joints.then(places[k], one) if k in places else self.joints
        self.actuators = self._of_actuators(pairs, signs)

    def _of_actuators(self, pairs: Sequence[int], signs: Sequence[float]) -> Reflection:
        m, names = self._m, self._names("actuator")
        index, sign = [], []
        for i, name in enumerate(names):
            k = self._partner("actuator", names, i)
            joint, other = (int(m.actuator_trnid[x][0]) for x in (i, k))
            if any(m.actuator_trntype[x] != mujoco.mjtTrn.mjTRN_JOINT for x in (i, k)) or pairs[joint] != other:
                text = "must turn a joint, and its counterpart the joint's counterpart"
                raise ValueError(f"actuator {name!r} cannot be mirrored: it {text}")
            gears = m.actuator_gear[i][0] * m.actuator_gear[k][0]
            index.append(k)
            sign.append(signs[joint] if gears > 0 else -signs[joint])
        return Reflection(tuple(index), tuple(sign))

    def _names(self, kind: str) -> list[str]:
        m, n = self._m, self._m.njnt if kind == "joint" else self._m.nu
        return [getattr(m, kind)(i).name for i in range(n)]

    def _partner(self, kind: str, names: Sequence[str], i: int) -> int:
        other = self.counterpart(names[i])
        if other == names[i]:
            return i
        if other not in names:
            raise ValueError(f"{kind} {names[i]!r} has no counterpart {other!r}")
        return names.index(other)

    def _sign(self, j: int, k: int, names: Sequence[str]) -> float:
        """Return 1 if joints j and k move alike in the mirror, or -1 if they move in opposite directions."""
        m, kind = self._m, self._m.jnt_type[j]
        if kind != m.jnt_type[k]:
            raise ValueError(f"joint {names[j]!r} is of another kind than {names[k]!r}")
        if kind == JointType.FREE:
            return 1.0
        reflected = self.vector if kind == JointType.SLIDE else self.axial
        turns = [self._orientation(x) for x in (j, k)]
        if kind == JointType.BALL:
            if norm(difference(self.quat(turns[0]), turns[1])) > ALIKE:
                raise ValueError(f"the frames of ball joints {names[j]!r} and {names[k]!r} are no mirror images")
            return 1.0
        one, other = (rotate(turn, list(map(float, m.jnt_axis[x]))) for turn, x in zip(turns, (j, k), strict=True))
        for sign in (1.0, -1.0):
            if norm(sub(reflected(one), scale(other, sign))) < ALIKE:
                q, p = (float(m.qpos0[int(m.jnt_qposadr[x])]) for x in (j, k))
                if abs(p - sign * q) > ALIKE:
                    raise ValueError(f"joint {names[j]!r} is 0 elsewhere than {names[k]!r}: their `ref` differs")
                return sign
        text = f"{_told(one)} and {_told(other)}, as the robot's root sees them"
        raise ValueError(f"the axes of joints {names[j]!r} and {names[k]!r} are no mirror images: {text}")

    def _orientation(self, j: int) -> list[Any]:
        """Return the orientation of a joint's body at qpos0, in the axes of the root that moves freely, if any."""
        m, body = self._m, int(self._m.jnt_bodyid[j])
        turn: list[Any] = [1.0, 0.0, 0.0, 0.0]
        free = {int(b) for b, kind in zip(m.jnt_bodyid, m.jnt_type, strict=True) if kind == JointType.FREE}
        while body and body not in free:
            turn, body = multiply(list(map(float, m.body_quat[body])), turn), int(m.body_parentid[body])
        return turn


def _told(axis: Sequence[Any]) -> str:
    return "(" + ", ".join(f"{x:.2g}" for x in axis) + ")"

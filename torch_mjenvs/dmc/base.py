"""The base of the tasks of dm_control's suite, random joints, and frames of bodies."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import mujoco

from ..envs.tasks.base import Task, World
from ..physics.model.enums import JointType
from ..physics.model.model import Model
from ..rewards import tolerance
from ..scalar import Random, Scalar, absolute, log1p, sign, sqrt
from ..vectors import dot, norm, sub
from .models import suite_folder

UNLIMITED = float(mujoco.mjMAXVAL)  # dm_control's bounds of an actuator without limits


@dataclass(frozen=True, kw_only=True)
class DMControlTask(Task):
    """A task of dm_control's suite: 1,000 steps, never terminated, data as `legacy_step` leaves them.

    `xml_file` is the name of a file in the suite of the installed dm_control, or a path. `frame_skip` is the number of
    substeps in a control step: dm_control's n_sub_steps.
    """

    data: ClassVar[str] = "fresh"

    def load(self) -> mujoco.MjModel:
        return mujoco.MjModel.from_xml_path(os.fspath(suite_folder() / self.xml_file))

    def action_space(self, m: Model) -> tuple[Sequence[float], Sequence[float]]:
        low, high = super().action_space(m)
        return [max(x, -UNLIMITED) for x in low], [min(x, UNLIMITED) for x in high]

    def observe(self, m: Model, world: World) -> dict[str, Any]:
        """Return the observation by dm_control's names and in its order: numbers, lists, and lists of lists."""
        return {"position": world.qpos, "velocity": world.qvel}


def random_joints(m: Model, rng: Random) -> list[Scalar]:
    """Return qpos with joints at random: dm_control's randomize_limited_and_rotational_joints.

    Hinges and slides with limits are uniform within these, other hinges uniform within a turn; other slides, and the
    place of a free joint, stay at qpos0. A free joint's quaternion is four numbers from [0, 1), scaled to unit length.
    Raises ValueError for a ball joint, of which no model of the suite has one.
    """
    qpos: list[Scalar] = list(m.qpos0)
    for j, kind in enumerate(m.jnt_type):
        at = m.jnt_qposadr[j]
        if kind == JointType.FREE:
            qpos[at + 3 : at + 7] = unit([rng.uniform() for _ in range(4)])
        elif kind == JointType.BALL:
            raise ValueError(f"joint {m.jnt_names[j]!r} is a ball: reset places hinges, slides and free joints")
        elif m.jnt_limited[j]:
            qpos[at] = rng.uniform(*m.jnt_range[j])
        elif kind == JointType.HINGE:
            qpos[at] = rng.uniform(-math.pi, math.pi)
    return qpos


def apart(m: Model, rng: Random, world: World) -> list[Scalar]:
    """Return qpos with joints at random in which nothing touches anything."""
    return rng.draw_until(lambda r: random_joints(m, r), lambda qpos: world.at(qpos).data.ncon < 0.5)


def moved(row: int, columns: Sequence[int], values: Sequence[Scalar]) -> dict[tuple[int, int], Scalar]:
    """Return values by their places in a field of the model, some columns of a row: for `Task.pictured`."""
    return {(row, column): x for column, x in zip(columns, values, strict=True)}


def unit(x: list[Scalar]) -> list[Scalar]:
    """Return x, made of unit length."""
    length = norm(x)
    return [y / length for y in x]


def seen_from(mat: list[Scalar], x: Sequence[Scalar]) -> list[Scalar]:
    """Turn a vector in world axes into the axes of a frame, mat (9): x.dot(mat)."""
    return [dot(mat[k::3], x) for k in range(3)]


def distance(a: Sequence[Scalar], b: Sequence[Scalar]) -> Scalar:
    """Return how far two points are apart."""
    return norm(sub(a, b))


def mean(xs: Sequence[Scalar]) -> Scalar:
    """Return the mean of some numbers."""
    return sum(xs, 0.0) / len(xs)


def small_control(action: list[Scalar]) -> Scalar:
    """Return the mean over actuators of how small their control is: 1 at 0, and 0 from 1 on."""
    return mean([tolerance(u, margin=1.0, value_at_margin=0.0, sigmoid="quadratic") for u in action])


def arcsinh(x: Scalar) -> Scalar:
    """Return the inverse hyperbolic sine, as precise near 0 as anywhere."""
    a = absolute(x)
    return sign(x) * log1p(a + a * a / (1.0 + sqrt(a * a + 1.0)))

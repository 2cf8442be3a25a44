"""Draws what differs from episode to episode in Playground's training: friction, losses, armatures, masses, zeros."""

from __future__ import annotations

from typing import Any

from ..physics.model.model import Model
from ..scalar import Random, Scalar


def floor_friction(m: Model, rng: Random) -> dict[str, Any]:
    """Draw the sliding friction of the geom `floor`."""
    rows: list[list[Scalar]] = [list(row) for row in m.geom_friction]
    rows[m.geom("floor")][0] = rng.uniform(0.4, 1.0)
    return {"geom_friction": rows}


def pair_friction(m: Model, rng: Random, pairs: int) -> dict[str, Any]:
    """Draw the sliding friction of the first pairs that the model names, one number for all."""
    rows: list[list[Scalar]] = [list(row) for row in m.pair_friction]
    drawn = rng.uniform(0.4, 1.0)
    for row in rows[:pairs]:
        row[0] = row[1] = drawn
    return {"pair_friction": rows}


def dynamics(m: Model, rng: Random, trunk: str, loss: tuple[float, float] = (0.9, 1.1)) -> dict[str, Any]:
    """Draw factors of the joints' friction loss, of their armatures and of all masses; kilograms on the trunk; and the
    joints' zeros (rad).
    """
    mass: list[Scalar] = [x * rng.uniform(0.9, 1.1) for x in m.body_mass]
    mass[m.body(trunk)] = mass[m.body(trunk)] + rng.uniform(-1.0, 1.0)
    return {
        "dof_frictionloss": [*m.dof_frictionloss[:6], *(x * rng.uniform(*loss) for x in m.dof_frictionloss[6:])],
        "dof_armature": [*m.dof_armature[:6], *(x * rng.uniform(1.0, 1.05) for x in m.dof_armature[6:])],
        "body_mass": mass,
        "qpos0": [*m.qpos0[:7], *(x + rng.uniform(-0.05, 0.05) for x in m.qpos0[7:])],
    }


def centre_of_mass(m: Model, rng: Random, trunk: str) -> dict[str, Any]:
    """Draw by how much the trunk's centre of mass is off (m)."""
    rows: list[list[Scalar]] = [list(row) for row in m.body_ipos]
    rows[m.body(trunk)] = [x + rng.uniform(-0.05, 0.05) for x in rows[m.body(trunk)]]
    return {"body_ipos": rows}

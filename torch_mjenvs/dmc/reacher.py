"""Reacher, after dm_control/suite/reacher.py."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import mujoco

from ..envs.tasks.base import Outcome, Shown, World
from ..physics.model.model import Model
from ..rewards import tolerance
from ..scalar import Random, Scalar, cos, sin
from ..vectors import norm, sub
from .base import DMControlTask, moved, random_joints


@dataclass(frozen=True, kw_only=True)
class Reacher(DMControlTask):
    """Bring a fingertip to a target of radius `target_size` (m). Observation: position, to_target, velocity.

    Where the target is, in world axes, is the memory "target" (2).
    """

    xml_file: str = "reacher.xml"
    frame_skip: int = 1
    target_size: float = 0.05

    def load(self) -> mujoco.MjModel:
        mjm = super().load()
        mjm.geom("target").size[0] = self.target_size
        return mjm

    def pictured(self, mjm: mujoco.MjModel, memory: Mapping[str, Any]) -> Shown:
        return {"geom_pos": moved(mjm.geom("target").id, (0, 1), memory["target"])}

    def reset(self, m: Model, rng: Random) -> tuple[list[Scalar], list[Scalar]]:
        return random_joints(m, rng), [0.0] * m.nv

    def memory(self, m: Model) -> dict[str, Scalar | list[Scalar]]:
        return {"target": [0.0, 0.0]}

    def begin(self, m: Model, world: World) -> dict[str, Scalar | list[Scalar]]:
        angle, radius = world.rng.uniform(0.0, 2 * math.pi), world.rng.uniform(0.05, 0.20)
        return {"target": [radius * sin(angle), radius * cos(angle)]}

    def to_target(self, m: Model, world: World) -> list[Scalar]:
        """Return the vector from the finger to the target (2)."""
        return sub(world.memory["target"], world.data.geom_xpos[m.geom("finger")][:2])

    def observe(self, m: Model, world: World) -> dict[str, Any]:
        return {"position": world.qpos, "to_target": self.to_target(m, world), "velocity": world.qvel}

    def outcome(self, m: Model, before: World, action: list[Scalar], after: World) -> Outcome:
        radii = self.target_size + m.geom("finger").size[0]
        return Outcome(tolerance(norm(self.to_target(m, after)), (0.0, radii)))

"""Finger, after dm_control/suite/finger.py."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import mujoco

from ..envs.tasks.base import Outcome, Shown, World
from ..physics.model.model import Model
from ..scalar import Random, Scalar, cos, log1p, select, sin
from ..vectors import norm, sub
from .base import DMControlTask, apart, moved


@dataclass(frozen=True, kw_only=True)
class FingerSpin(DMControlTask):
    """Spin a body on a hinge by a finger, fast. Observation: position, velocity, touch."""

    xml_file: str = "finger.xml"
    frame_skip: int = 2

    def load(self) -> mujoco.MjModel:
        mjm = super().load()
        mjm.dof_damping[mjm.joint("hinge").dofadr[0]] = 0.03
        for name in ("target", "tip"):  # this task has no target
            mjm.site(name).rgba[3] = 0.0
        return mjm

    def reset(self, m: Model, rng: Random, world: World) -> tuple[list[Scalar], list[Scalar]]:
        return apart(m, rng, world), [0.0] * m.nv

    def tip(self, m: Model, world: World) -> list[Scalar]:
        """Return where the tip of the spinner is, from its hinge: (x, z)."""
        d = world.data
        x, _, z = sub(d.site_xpos[m.site("tip")], d.xpos[m.body("spinner")])
        return [x, z]

    def observe(self, m: Model, world: World) -> dict[str, Any]:
        touch = [log1p(world.data.sensordata[m.sensor(name)][0]) for name in ("touchtop", "touchbottom")]
        return {"position": world.qpos[:2] + self.tip(m, world), "velocity": world.qvel, "touch": touch}

    def outcome(self, m: Model, before: World, action: list[Scalar], after: World) -> Outcome:
        return Outcome(select(after.qvel[2] <= -15.0, 1.0, 0.0))


@dataclass(frozen=True, kw_only=True)
class FingerTurn(FingerSpin):
    """Turn a body on a hinge by a finger until its tip is in the target, a ball of radius `target_radius` (m).

    Observation: as of `FingerSpin`, and target_position, dist_to_target. The target's place, (x, z) from the hinge, is
    the memory "target".
    """

    target_radius: float = 0.07

    def load(self) -> mujoco.MjModel:
        mjm = super(FingerSpin, self).load()
        mjm.site("target").size[0] = self.target_radius
        return mjm

    def pictured(self, mjm: mujoco.MjModel, memory: Mapping[str, Any]) -> Shown:
        x, _, z = (mjm.body("spinner").pos + mjm.joint("hinge").pos).tolist()
        place = [x + memory["target"][0], z + memory["target"][1]]
        return {"site_pos": moved(mjm.site("target").id, (0, 2), place)}

    def memory(self, m: Model) -> dict[str, Scalar | list[Scalar]]:
        return {"target": [0.0, 0.0]}

    def begin(self, m: Model, world: World) -> dict[str, Scalar | list[Scalar]]:
        angle, radius = world.rng.uniform(-math.pi, math.pi), sum(m.geom("cap1").size)
        return {"target": [radius * sin(angle), radius * cos(angle)]}

    def away(self, m: Model, world: World) -> Scalar:
        """Return how far the tip is from the target's surface: negative within."""
        return norm(sub(world.memory["target"], self.tip(m, world))) - self.target_radius

    def observe(self, m: Model, world: World) -> dict[str, Any]:
        found = super().observe(m, world)
        return found | {"target_position": world.memory["target"], "dist_to_target": self.away(m, world)}

    def outcome(self, m: Model, before: World, action: list[Scalar], after: World) -> Outcome:
        return Outcome(select(self.away(m, after) <= 0.0, 1.0, 0.0))

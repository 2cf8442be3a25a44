"""Fish, after dm_control/suite/fish.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import mujoco

from ..envs.tasks.base import Outcome, Shown, World
from ..physics.model.model import Model
from ..rewards import tolerance
from ..scalar import Random, Scalar
from ..vectors import norm, sub
from .base import DMControlTask, moved, seen_from, unit

JOINTS = ("tail1", "tail_twist", "tail2", "finright_roll", "finright_pitch", "finleft_roll", "finleft_pitch")


@dataclass(frozen=True, kw_only=True)
class FishUpright(DMControlTask):
    """Turn upright. Observation: joint_angles, upright, velocity."""

    xml_file: str = "fish.xml"
    frame_skip: int = 10

    def load(self) -> mujoco.MjModel:
        mjm = super().load()
        mjm.geom("target").rgba[3] = 0.0  # this task has no target
        return mjm

    def reset(self, m: Model, rng: Random) -> tuple[list[Scalar], list[Scalar]]:
        qpos: list[Scalar] = list(m.qpos0)
        qpos[3:7] = unit([rng.normal() for _ in range(4)])
        for name in JOINTS:
            qpos[m.joint(name).qpos] = [rng.uniform(-0.2, 0.2)]
        return qpos, [0.0] * m.nv

    def upright(self, m: Model, world: World) -> Scalar:
        """Return the z component of the torso's z axis."""
        return world.data.xmat[m.body("torso")][8]

    def observe(self, m: Model, world: World) -> dict[str, Any]:
        angles = [x for name in JOINTS for x in world.qpos[m.joint(name).qpos]]
        return {"joint_angles": angles, "upright": self.upright(m, world), "velocity": world.qvel}

    def outcome(self, m: Model, before: World, action: list[Scalar], after: World) -> Outcome:
        return Outcome(tolerance(self.upright(m, after), (1.0, 1.0), 1.0))


@dataclass(frozen=True, kw_only=True)
class FishSwim(FishUpright):
    """Swim to a target. Observation: joint_angles, upright, target, velocity.

    Where the target is, in world axes, is the memory "target" (3).
    """

    def load(self) -> mujoco.MjModel:
        return super(FishUpright, self).load()

    def pictured(self, mjm: mujoco.MjModel, memory: Mapping[str, Any]) -> Shown:
        return {"geom_pos": moved(mjm.geom("target").id, (0, 1, 2), memory["target"])}

    def memory(self, m: Model) -> dict[str, Scalar | list[Scalar]]:
        return {"target": [0.0, 0.0, 0.0]}

    def begin(self, m: Model, world: World) -> dict[str, Scalar | list[Scalar]]:
        return {"target": [world.rng.uniform(*ends) for ends in ((-0.4, 0.4), (-0.4, 0.4), (0.1, 0.3))]}

    def to_target(self, m: Model, world: World) -> list[Scalar]:
        """Return the vector from the mouth to the target (3), in the axes of the mouth."""
        d, mouth = world.data, m.geom("mouth")
        return seen_from(d.geom_xmat[mouth], sub(world.memory["target"], d.geom_xpos[mouth]))

    def observe(self, m: Model, world: World) -> dict[str, Any]:
        found = super().observe(m, world)
        velocity = found.pop("velocity")
        return found | {"target": self.to_target(m, world), "velocity": velocity}

    def outcome(self, m: Model, before: World, action: list[Scalar], after: World) -> Outcome:
        radii = m.geom("mouth").size[0] + m.geom("target").size[0]
        near = tolerance(norm(self.to_target(m, after)), (0.0, radii), 2.0 * radii)
        return Outcome((7.0 * near + 0.5 * (self.upright(m, after) + 1.0)) / 8.0)

"""Cheetah, after dm_control/suite/cheetah.py."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any, ClassVar

import mujoco

from ..envs.tasks.base import Outcome, World
from ..envs.tasks.halfcheetah import load_with_total_mass
from ..physics.model.model import Model
from ..rewards import tolerance
from ..scalar import Random, Scalar
from .base import DMControlTask
from .models import suite_folder


@dataclass(frozen=True, kw_only=True)
class Cheetah(DMControlTask):
    """Run at `speed` (m/s). Observation: position (without x), velocity."""

    resets_ahead: ClassVar[bool] = True

    xml_file: str = "cheetah.xml"
    frame_skip: int = 1
    speed: float = 10.0

    def load(self) -> mujoco.MjModel:
        """Load the model, the suite's own by `load_with_total_mass`. A user's file is loaded as any other."""
        if self.xml_file != Cheetah.xml_file:
            return super().load()
        return load_with_total_mass(os.fspath(suite_folder() / self.xml_file))

    def reset(self, m: Model, rng: Random, world: World) -> tuple[list[Scalar], list[Scalar]]:
        """Place the joints that have limits at random, and let it settle for 200 substeps.

        As in dm_control, the first substep uses the forces at qpos0, where the world was before.
        """
        qpos = [
            rng.uniform(*m.jnt_range[j]) if limited else m.qpos0[j] for j, limited in enumerate(m.jnt_limited)
        ]  # fmt: skip
        qvel = world.settled(1).qvel
        moved = [x + m.timestep * v for x, v in zip(qpos, qvel, strict=True)]
        settled = world.at(moved, qvel).settled(199)
        return settled.qpos, settled.qvel

    def observe(self, m: Model, world: World) -> dict[str, Any]:
        return {"position": world.qpos[1:], "velocity": world.qvel}

    def outcome(self, m: Model, before: World, action: list[Scalar], after: World) -> Outcome:
        speed = after.data.sensordata[m.sensor("torso_subtreelinvel")][0]
        return Outcome(tolerance(speed, (self.speed, math.inf), self.speed, "linear", 0.0))

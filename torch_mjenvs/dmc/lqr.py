"""LQR, after dm_control/suite/lqr.py."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar
from xml.etree import ElementTree

import mujoco
import numpy as np

from ..envs.tasks.base import Outcome, World
from ..physics.model.model import Model
from ..scalar import Random, Scalar
from ..vectors import dot, norm, scale
from .base import DMControlTask, unit
from .models import compiled, parse


@dataclass(frozen=True, kw_only=True)
class LQR(DMControlTask):
    """Bring a chain of `num_bodies` balls on springs to rest by motors on the first `num_actuators` of them.

    The stiffness of the springs is drawn from `seed` once, for all worlds. Observation: position, velocity. An episode
    has no limit, and ends where the state is nearly 0.
    """

    max_episode_steps: ClassVar[int | None] = None

    xml_file: str = "lqr.xml"
    frame_skip: int = 1
    num_bodies: int = 2
    num_actuators: int = 1
    control_cost: float = 0.1
    seed: int = 0

    def load(self) -> mujoco.MjModel:
        mjcf, n, random = parse(self.xml_file), self.num_bodies, np.random.RandomState(self.seed)
        if not 1 <= self.num_actuators <= n:
            raise ValueError(f"num_actuators must be from 1 to num_bodies, {n}, not {self.num_actuators}")
        new = ElementTree.SubElement
        actuator, tendon, parent = new(mjcf, "actuator"), new(mjcf, "tendon"), mjcf.find("./worldbody")
        if parent is None:
            raise ValueError(f"{self.xml_file} has no worldbody")
        for i in range(n):
            parent = new(parent, "body", name=f"body_{i}", pos=".25 0 0" if i else ".25 0 .1")
            stiffness, damping = (str(random.uniform(*ends)) for ends in ((15, 25), (0, 0)))
            new(parent, "joint", name=f"joint_{i}", stiffness=stiffness, damping=damping)
            new(parent, "geom", name=f"geom_{i}")
            new(parent, "site", name=f"site_{i}")
            if i < self.num_actuators:
                new(actuator, "motor", name=f"motor_{i}", joint=f"joint_{i}")
            if i < n - 1:
                spatial = new(tendon, "spatial", name=f"tendon_{i}")
                for k in (i, i + 1):
                    new(spatial, "site", site=f"site_{k}")
        return compiled(mjcf)

    def reset(self, m: Model, rng: Random) -> tuple[list[Scalar], list[Scalar]]:
        return scale(unit([rng.normal() for _ in range(m.nq)]), math.sqrt(2.0)), [0.0] * m.nv

    def outcome(self, m: Model, before: World, action: list[Scalar], after: World) -> Outcome:
        cost = 0.5 * dot(after.qpos, after.qpos) + 0.5 * dot(action, action) * self.control_cost
        return Outcome(1.0 - cost, norm(after.qpos + after.qvel) < 1e-6)

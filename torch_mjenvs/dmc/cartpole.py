"""Cartpole, after dm_control/suite/cartpole.py."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

import mujoco

from ..envs.tasks.base import Outcome, World
from ..physics.model.model import Model
from ..rewards import tolerance
from ..scalar import Random, Scalar, minimum
from .base import DMControlTask, mean, small_control
from .models import compiled, parse


@dataclass(frozen=True, kw_only=True)
class Cartpole(DMControlTask):
    """Balance one pole or several on a cart, from near upright or, with `swing_up`, from hanging.

    Observation: position, of the cart, then of each pole cosine and sine of its angle to the vertical; velocity.
    """

    xml_file: str = "cartpole.xml"
    frame_skip: int = 1
    swing_up: bool = False
    sparse: bool = False
    num_poles: int = 1

    def load(self) -> mujoco.MjModel:
        n, mjcf = self.num_poles, parse(self.xml_file)
        if n == 1:
            return compiled(mjcf)
        parent, floor = mjcf.find("./worldbody/body/body"), mjcf.find("./worldbody/geom")
        cameras = mjcf.findall("./worldbody/camera")
        if parent is None or floor is None:
            raise ValueError(f"{self.xml_file} has no pole to copy, or no floor to lower")
        for i in range(2, n + 1):
            parent = ElementTree.SubElement(parent, "body", name=f"pole_{i}", pos="0 0 1", childclass="pole")
            ElementTree.SubElement(parent, "joint", name=f"hinge_{i}")
            ElementTree.SubElement(parent, "geom", name=f"pole_{i}")
        floor.set("pos", f"0 0 {1 - n - 0.05}")
        for camera, pos in zip(cameras, (f"0 {-1 - 2 * n} 1", f"0 {-2 * n} 2"), strict=True):
            camera.set("pos", pos)
        return compiled(mjcf)

    def reset(self, m: Model, rng: Random) -> tuple[list[Scalar], list[Scalar]]:
        if self.swing_up:
            spread = [0.01, 0.01, *[0.1] * (m.nv - 2)]
            qpos = [x * rng.normal() for x in spread]
            qpos[1] = qpos[1] + math.pi
        else:
            qpos = [rng.uniform(-0.1, 0.1), *(rng.uniform(-0.034, 0.034) for _ in range(m.nv - 1))]
        return qpos, [0.01 * rng.normal() for _ in range(m.nv)]

    def observe(self, m: Model, world: World) -> dict[str, Any]:
        poles = [x for mat in world.data.xmat[2:] for x in (mat[8], mat[2])]
        return {"position": [world.qpos[0], *poles], "velocity": world.qvel}

    def outcome(self, m: Model, before: World, action: list[Scalar], after: World) -> Outcome:
        cart, cosines = after.qpos[0], [mat[8] for mat in after.data.xmat[2:]]
        if self.sparse:
            inside = [tolerance(cart, (-0.25, 0.25)), *(tolerance(x, (0.995, 1.0)) for x in cosines)]
            return Outcome(functools.reduce(lambda x, y: x * y, inside))
        upright = mean([(x + 1.0) / 2.0 for x in cosines])
        centered = (1.0 + tolerance(cart, margin=2.0)) / 2.0
        still = functools.reduce(minimum, [tolerance(v, margin=5.0) for v in after.qvel[1:]])
        return Outcome(upright * (4.0 + small_control(action)) / 5.0 * (1.0 + still) / 2.0 * centered)

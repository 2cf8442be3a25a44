"""Humanoid, after gymnasium/envs/mujoco/humanoid_v5.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...physics.algebra.nested import leaves
from ...physics.algebra.spatial import is_zero
from ...physics.model.model import Model
from ...scalar import Mask, Random, Scalar, clip, logical_and, logical_not, select
from .ant import planar_position
from .base import Outcome, Task, World, squared, uniform_noise, within


@dataclass(frozen=True, kw_only=True)
class Human(Task):
    """Base of the two tasks with a humanoid body: how an episode starts, and the observation."""

    frame_skip: int = 5
    ctrl_cost_weight: float = 0.1
    reset_noise_scale: float = 1e-2
    exclude_current_positions_from_observation: bool = True
    include_cinert_in_observation: bool = True
    include_cvel_in_observation: bool = True
    include_qfrc_actuator_in_observation: bool = True
    include_cfrc_ext_in_observation: bool = True

    def reset(self, m: Model, rng: Random) -> tuple[list[Scalar], list[Scalar]]:
        qpos = uniform_noise(m.qpos0, rng, self.reset_noise_scale)
        return qpos, uniform_noise((0.0,) * m.nv, rng, self.reset_noise_scale)

    def observe(self, m: Model, world: World) -> list[Scalar]:
        obs = world.qpos[2 * self.exclude_current_positions_from_observation :] + world.qvel
        if self.include_cinert_in_observation:
            obs += leaves(world.data.cinert[1:])
        if self.include_cvel_in_observation:
            obs += leaves(world.data.cvel[1:])
        if self.include_qfrc_actuator_in_observation:
            obs += world.data.qfrc_actuator[6:]
        if self.include_cfrc_ext_in_observation:
            obs += leaves(world.data.cfrc_ext[1:])
        return obs

    def tendons(self, world: World) -> dict[str, Scalar | list[Scalar]]:
        """Return the info entries on the tendons: lengths (m) and velocities, a list each."""
        return {"tendon_length": world.data.ten_length, "tendon_velocity": world.data.ten_velocity}


@dataclass(frozen=True, kw_only=True)
class Humanoid(Human):
    """Walk forward on two legs. Action 17 in [-0.4, 0.4].

    Observation 348: qpos without x and y, qvel, cinert, cvel, qfrc_actuator of the hinges, cfrc_ext.
    """

    default_camera_config: ClassVar = {
        "trackbodyid": 1,
        "distance": 4.0,
        "lookat": (0.0, 0.0, 2.0),
        "elevation": -20.0,
    }

    xml_file: str = "humanoid.xml"
    forward_reward_weight: float = 1.25
    contact_cost_weight: float = 5e-7
    contact_cost_range: tuple[float, float] = (float("-inf"), 10.0)
    healthy_reward: float = 5.0
    terminate_when_unhealthy: bool = True
    healthy_z_range: tuple[float, float] = (1.0, 2.0)

    def memory(self, m: Model) -> dict[str, Scalar | list[Scalar]]:
        """Remember where the centre of mass was last, x and y (m)."""
        return {"centre": [0.0, 0.0]}

    def begin(self, m: Model, world: World) -> dict[str, Scalar | list[Scalar]]:
        return {"centre": self.centre(m, world)}

    def centre(self, m: Model, world: World) -> list[Scalar]:
        """Return where the centre of mass is, x and y (m)."""
        total = sum(m.body_mass)
        weighted = zip(m.body_mass, world.data.xipos, strict=True)
        parts = [[mass / total * x for x in xipos[:2]] for mass, xipos in weighted if not is_zero(mass)]
        centre = parts[0]
        for part in parts[1:]:
            centre = [a + b for a, b in zip(centre, part, strict=True)]
        return centre

    def remember(self, m: Model, before: World, action: list[Scalar], after: World) -> dict[str, Scalar | list[Scalar]]:
        return {"centre": self.centre(m, after)}

    def healthy(self, world: World) -> Mask:
        return within(world.qpos[2], self.healthy_z_range)

    def outcome(self, m: Model, before: World, action: list[Scalar], after: World) -> Outcome:
        healthy = self.healthy(after)
        old, new = before.memory["centre"], after.memory["centre"]
        velocity = [(b - a) / self.dt(m) for a, b in zip(old, new, strict=True)]
        forward = self.forward_reward_weight * velocity[0]
        survive = select(healthy, float(self.healthy_reward), 0.0)
        ctrl_cost = self.ctrl_cost_weight * squared(action)
        contact_cost = self.contact_cost_weight * squared(leaves(after.data.cfrc_ext))
        contact_cost = clip(contact_cost, *self.contact_cost_range)
        info = self.reset_info(m, after) | {
            "x_velocity": velocity[0],
            "y_velocity": velocity[1],
            "reward_survive": survive,
            "reward_forward": forward,
            "reward_ctrl": -ctrl_cost,
            "reward_contact": -contact_cost,
        }
        terminated = logical_and(logical_not(healthy), self.terminate_when_unhealthy)
        return Outcome(forward + survive - (ctrl_cost + contact_cost), terminated, info)

    def reset_info(self, m: Model, world: World) -> dict[str, Scalar | list[Scalar]]:
        return planar_position(world) | self.tendons(world)

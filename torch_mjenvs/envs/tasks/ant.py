"""Ant, after gymnasium/envs/mujoco/ant_v5.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...physics.algebra.nested import leaves
from ...physics.model.model import Model
from ...scalar import Mask, Random, Scalar, clip, logical_and, logical_not, select, sqrt
from .base import Outcome, Task, World, squared, uniform_noise


@dataclass(frozen=True, kw_only=True)
class Ant(Task):
    """Walk forward on four legs.

    Observation 105: qpos without x and y, qvel, cfrc_ext clipped to [-1, 1]. Action 8 in [-1, 1].
    """

    default_camera_config: ClassVar = {"distance": 4.0}
    reward_threshold: ClassVar = 6000.0

    xml_file: str = "ant.xml"
    frame_skip: int = 5
    forward_reward_weight: float = 1.0
    ctrl_cost_weight: float = 0.5
    contact_cost_weight: float = 5e-4
    healthy_reward: float = 1.0
    main_body: int | str = 1
    terminate_when_unhealthy: bool = True
    healthy_z_range: tuple[float, float] = (0.2, 1.0)
    contact_force_range: tuple[float, float] = (-1.0, 1.0)
    reset_noise_scale: float = 0.1
    exclude_current_positions_from_observation: bool = True
    include_cfrc_ext_in_observation: bool = True

    def reset(self, m: Model, rng: Random) -> tuple[list[Scalar], list[Scalar]]:
        qpos = uniform_noise(m.qpos0, rng, self.reset_noise_scale)
        return qpos, [self.reset_noise_scale * rng.normal() for _ in range(m.nv)]

    def contact_forces(self, world: World) -> list[list[Scalar]]:
        """Return cfrc_ext of every body, clipped to `contact_force_range`."""
        low, high = self.contact_force_range
        return [[clip(f, low, high) for f in wrench] for wrench in world.data.cfrc_ext]

    def observe(self, m: Model, world: World) -> list[Scalar]:
        obs = world.qpos[2 * self.exclude_current_positions_from_observation :] + world.qvel
        if self.include_cfrc_ext_in_observation:
            obs += leaves(self.contact_forces(world)[1:])
        return obs

    def memory(self, m: Model) -> dict[str, Scalar | list[Scalar]]:
        """Remember where the main body was last, x and y (m)."""
        return {"place": [0.0, 0.0]}

    def begin(self, m: Model, world: World) -> dict[str, Scalar | list[Scalar]]:
        return {"place": self.place(m, world)}

    def place(self, m: Model, world: World) -> list[Scalar]:
        """Return where the main body is, x and y (m)."""
        return world.data.xpos[self.main_body_id(m)][:2]

    def main_body_id(self, m: Model) -> int:
        """Return the number of the main body. Raises ValueError if there is no such body."""
        body, names = self.main_body, m.body_names
        if body in names:
            return names.index(str(body))
        if isinstance(body, str) or not 0 <= body < len(names):
            raise ValueError(f"main_body must be a body's name or number, not {body!r}: there are {list(names)}")
        return body

    def remember(self, m: Model, before: World, action: list[Scalar], after: World) -> dict[str, Scalar | list[Scalar]]:
        return {"place": self.place(m, after)}

    def healthy(self, world: World) -> Mask:
        low, high = (float(z) for z in self.healthy_z_range)
        return logical_and(world.qpos[2] >= low, world.qpos[2] <= high)

    def outcome(self, m: Model, before: World, action: list[Scalar], after: World) -> Outcome:
        healthy = self.healthy(after)
        old, new = before.memory["place"], after.memory["place"]
        velocity = [(b - a) / self.dt(m) for a, b in zip(old, new, strict=True)]
        forward = velocity[0] * self.forward_reward_weight
        survive = select(healthy, float(self.healthy_reward), 0.0)
        ctrl_cost = self.ctrl_cost_weight * squared(action)
        contact_cost = self.contact_cost_weight * squared(leaves(self.contact_forces(after)))
        info = self.reset_info(m, after) | {
            "x_velocity": velocity[0],
            "y_velocity": velocity[1],
            "reward_forward": forward,
            "reward_ctrl": -ctrl_cost,
            "reward_contact": -contact_cost,
            "reward_survive": survive,
        }
        terminated = logical_and(logical_not(healthy), self.terminate_when_unhealthy)
        return Outcome(forward + survive - (ctrl_cost + contact_cost), terminated, info)

    def reset_info(self, m: Model, world: World) -> dict[str, Scalar | list[Scalar]]:
        return planar_position(world)


def planar_position(world: World) -> dict[str, Scalar | list[Scalar]]:
    """Return the info entries on the root's place in the plane (m)."""
    x, y = world.qpos[:2]
    return {"x_position": x, "y_position": y, "distance_from_origin": sqrt(x * x + y * y)}

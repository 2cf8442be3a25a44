"""HumanoidStandup, after gymnasium/envs/mujoco/humanoidstandup_v5.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...physics.algebra.nested import leaves
from ...physics.model.model import Model
from ...scalar import Scalar, clip
from .base import Outcome, World, squared
from .humanoid import Human


@dataclass(frozen=True, kw_only=True)
class HumanoidStandup(Human):
    """Get up from lying on the back. Action 17 in [-0.4, 0.4]. Never ends early.

    Observation 348: qpos without x and y, qvel, cinert, cvel, qfrc_actuator of the hinges, cfrc_ext.
    """

    default_camera_config: ClassVar = {
        "trackbodyid": 1,
        "distance": 4.0,
        "lookat": (0.0, 0.0, 0.8925),
        "elevation": -20.0,
    }

    xml_file: str = "humanoidstandup.xml"
    uph_cost_weight: float = 1  # taken and not used, as in Gymnasium
    impact_cost_weight: float = 0.5e-6
    impact_cost_range: tuple[float, float] = (float("-inf"), 10.0)

    def outcome(self, m: Model, before: World, action: list[Scalar], after: World) -> Outcome:
        up = after.qpos[2] / m.timestep
        ctrl_cost = self.ctrl_cost_weight * squared(action)
        impact_cost = self.impact_cost_weight * squared(leaves(after.data.cfrc_ext))
        impact_cost = clip(impact_cost, *self.impact_cost_range)
        info = self.reset_info(m, after) | {
            "reward_linup": up,
            "reward_quadctrl": -ctrl_cost,
            "reward_impact": -impact_cost,
        }
        return Outcome(up - ctrl_cost - impact_cost + 1.0, False, info)

    def reset_info(self, m: Model, world: World) -> dict[str, Scalar | list[Scalar]]:
        x, y, z = world.qpos[:3]
        place = {"x_position": x, "y_position": y, "z_distance_from_origin": z - m.qpos0[2]}
        return place | self.tendons(world)

"""HalfCheetah, after gymnasium/envs/mujoco/half_cheetah_v5.py."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import ClassVar

import mujoco
from gymnasium.envs.mujoco.mujoco_env import expand_model_path

from ...physics.model.model import Model
from ...scalar import Random, Scalar
from .base import Outcome, Task, World, squared, uniform_noise


def load_with_total_mass(path: str) -> mujoco.MjModel:
    """Load a file that uses a deprecated attribute, `settotalmass`, without MuJoCo's warning of that.

    If a model is compiled from an MjSpec, MuJoCo's warnings are Python's, and go to no log file.
    """
    specification = mujoco.MjSpec.from_file(path)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "compiler attribute 'settotalmass'", UserWarning)
        return specification.compile()


@dataclass(frozen=True, kw_only=True)
class HalfCheetah(Task):
    """Run forward. Observation 17: qpos without x, qvel. Action 6 in [-1, 1]. Never ends early."""

    default_camera_config: ClassVar = {"distance": 4.0}
    reward_threshold: ClassVar = 4800.0

    xml_file: str = "half_cheetah.xml"
    frame_skip: int = 5
    forward_reward_weight: float = 1.0
    ctrl_cost_weight: float = 0.1
    reset_noise_scale: float = 0.1
    exclude_current_positions_from_observation: bool = True

    def load(self) -> mujoco.MjModel:
        """Load the model, Gymnasium's own by `load_with_total_mass`. A user's file is loaded as any other."""
        if self.xml_file != HalfCheetah.xml_file:
            return super().load()
        return load_with_total_mass(expand_model_path(self.xml_file))

    def reset(self, m: Model, rng: Random) -> tuple[list[Scalar], list[Scalar]]:
        qpos = uniform_noise(m.qpos0, rng, self.reset_noise_scale)
        return qpos, [self.reset_noise_scale * rng.normal() for _ in range(m.nv)]

    def observe(self, m: Model, world: World) -> list[Scalar]:
        return world.qpos[int(self.exclude_current_positions_from_observation) :] + world.qvel

    def outcome(self, m: Model, before: World, action: list[Scalar], after: World) -> Outcome:
        x_velocity = (after.qpos[0] - before.qpos[0]) / self.dt(m)
        forward = self.forward_reward_weight * x_velocity
        ctrl_cost = self.ctrl_cost_weight * squared(action)
        info = {
            "x_position": after.qpos[0],
            "x_velocity": x_velocity,
            "reward_forward": forward,
            "reward_ctrl": -ctrl_cost,
        }
        return Outcome(forward - ctrl_cost, False, info)

    def reset_info(self, m: Model, world: World) -> dict[str, Scalar | list[Scalar]]:
        return {"x_position": world.qpos[0]}

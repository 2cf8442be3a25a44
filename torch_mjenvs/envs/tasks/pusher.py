"""Pusher, after gymnasium/envs/mujoco/pusher_v5.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...physics.algebra.spatial import norm, sub
from ...physics.model.model import Model
from ...scalar import Random, Scalar, atan2, maximum, minimum, select, sqrt
from .base import Outcome, Task, World, squared, uniform_noise

# Metres: the object starts up to FAR behind the goal, at most WIDE beside it, not within NEAR.
FAR, WIDE, NEAR = 0.3, 0.2, 0.17


@dataclass(frozen=True, kw_only=True)
class Pusher(Task):
    """Push a cylinder to a goal with fingertips. Action 7 in [-2, 2]. Never ends early; truncated after 100 steps.

    Observation 23: positions and velocities of the arm's seven joints, and the places of the fingertips, the object and
    the goal. Places, and the rewards computed from them, are of the step's last evaluation (see `World.data`).
    """

    max_episode_steps: ClassVar[int] = 100
    default_camera_config: ClassVar = {"trackbodyid": -1, "distance": 4.0}
    reward_threshold: ClassVar = 0.0

    xml_file: str = "pusher_v5.xml"
    frame_skip: int = 5
    reward_near_weight: float = 0.5
    reward_dist_weight: float = 1
    reward_control_weight: float = 0.1

    def reset(self, m: Model, rng: Random) -> tuple[list[Scalar], list[Scalar]]:
        """Return a state with the object anywhere that is far enough from the goal.

        Gymnasium redraws the object's place until it is; here one draw suffices, with the same distribution.
        """
        qvel = uniform_noise((0.0,) * (m.nv - 4), rng, 0.005)
        return [*m.qpos0[:-4], *_object_place(rng), 0.0, 0.0], qvel + [0.0] * 4

    def places(self, m: Model, world: World) -> list[list[Scalar]]:
        """Return the places (m) of the fingertips, the object and the goal."""
        return [list(world.data.xpos[m.body_names.index(name)]) for name in ("tips_arm", "object", "goal")]

    def observe(self, m: Model, world: World) -> list[Scalar]:
        tips, target, goal = self.places(m, world)
        return world.qpos[:7] + world.qvel[:7] + tips + target + goal

    def outcome(self, m: Model, before: World, action: list[Scalar], after: World) -> Outcome:
        tips, target, goal = self.places(m, after)
        near = -norm(sub(target, tips)) * self.reward_near_weight
        dist = -norm(sub(target, goal)) * self.reward_dist_weight
        ctrl = -squared(action) * self.reward_control_weight
        return Outcome(dist + ctrl + near, False, {"reward_dist": dist, "reward_ctrl": ctrl, "reward_near": near})


def _object_place(rng: Random) -> list[Scalar]:
    """Return y and x of the object, uniform in a rectangle without the half disc at the middle of one edge.

    The strip at distance x from the middle is FAR - depth(x) long. x is chosen so that the area up to it is the drawn
    share of the whole. Newton's method finds it from the far end, where it converges without overshooting, to all
    digits in 6 steps.
    """
    share, side, along = rng.uniform(), rng.uniform(-1.0, 1.0), rng.uniform()
    x: Scalar = WIDE
    for _ in range(6):
        x = maximum(x - (_area(x) - share * _area(WIDE)) / (FAR - _depth(x)), 0.0)
    return [along * (FAR - _depth(x)) - FAR, select(side < 0.0, -x, x)]


def _depth(x: Scalar) -> Scalar:
    """Return how far the disc reaches at x from its middle."""
    return sqrt(maximum(NEAR * NEAR - x * x, 0.0))


def _area(x: Scalar) -> Scalar:
    """Return the area of the strips from the middle to x."""
    inside = minimum(x, NEAR)
    return FAR * x - 0.5 * (inside * _depth(inside) + NEAR * NEAR * atan2(inside, _depth(inside)))

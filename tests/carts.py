"""A task that says all that a task can say of actions, rewards and ends, for tests of the code that uses it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch_mjenvs import Control, Outcome, Task, controls
from torch_mjenvs.scalar import absolute, cos, logical_and, minimum, select

LIMIT = 12
WEIGHTS = (("upright", 2.0), ("centre", -0.5), ("effort", -0.01), ("watched", 0.0))
TERMS = [name for name, _ in WEIGHTS]


@dataclass(frozen=True)
class Carts(Task):
    """A pendulum on a cart. An action is the place to go to, and the effort; the cart is kicked now and then."""

    max_episode_steps: ClassVar[int] = LIMIT
    xml_file: str = "inverted_pendulum.xml"
    frame_skip: int = 2
    weights: tuple = WEIGHTS
    clip: tuple[float, float] = (0.0, 10.0)

    def action_space(self, m):
        return [-1.0, 0.0], [1.0, 1.0]

    def randomize(self, m, rng, world):
        more = 1.0 + self.level(world.memory)
        return {"dof_damping": [x * more * rng.uniform(0.5, 1.5) for x in m.dof_damping]}

    def memory(self, m):
        return {"level": 0.0, "steps": 0.0, "queue": [0.0] * 4, "force": 0.0, "late": 1.0}

    def level(self, memory):
        return minimum(select(memory["steps"] > 4.0, memory["level"] + 1.0, memory["level"]), 3.0)

    def reset(self, m, rng, world):
        assert world.rng is rng
        level, start = self.level(world.memory), world.qpos[0] + 0.1 * world.qvel[0]
        return [start + rng.uniform(-0.1, 0.1), 0.1 * level * rng.uniform(-1.0, 1.0)], [0.0] * m.nv

    def begin(self, m, world):
        return {"level": self.level(world.memory), "late": world.rng.uniform(0.0, 2.0)}

    def force(self, world, action):
        place, effort = controls.delayed(world.memory["queue"], action, world.memory["late"])
        (force,) = controls.pd([place], world.qpos[:1], world.qvel[:1], 20.0 * effort, [2.0])
        return controls.rate_limited([force], [world.memory["force"]], 2.0)

    def control(self, m, world, action):
        kick = select(world.rng.uniform() < 0.3, 1.0, 0.0)
        return Control(self.force(world, action), qvel=[0.5 * kick * world.rng.normal(), kick])

    def remember(self, m, before, action, after):
        return {
            "steps": before.memory["steps"] + 1.0,
            "queue": controls.queued(before.memory["queue"], action),
            "force": self.force(before, action)[0],
        }

    def observe(self, m, world):
        return [*world.qpos, *world.qvel, world.memory["level"], world.memory["force"], *world.memory["queue"]]

    def outcome(self, m, before, action, after):
        terms = {
            "upright": cos(after.qpos[1]),
            "centre": after.qpos[0] * after.qpos[0],
            "effort": absolute(after.memory["force"]),
            "watched": after.qpos[0],
        }
        fell = absolute(after.qpos[1]) > 0.3
        slow = absolute(after.qvel[0]) < 0.5
        return Outcome(
            terms,
            {"fell": fell, "left": absolute(after.qpos[0]) > 0.15},
            {"velocity": after.qvel[0]},
            truncated={"calm": logical_and(slow, after.memory["steps"] > 5.0)},
            weights=self.weights,
            scale=self.dt(m),
            clip=self.clip,
            metrics={"speed": absolute(after.qvel[0])},
        )

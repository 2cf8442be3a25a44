"""Random training runs: a task with awkward numbers, settings, and what befalls the run on the way.

Run k is the same in every process. `Odd` is a task whose fields, flags of the command line, say what is odd about it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import gymnasium
import mujoco
import numpy as np

from torch_mjenvs import Control, Outcome, Task
from torch_mjenvs.scalar import absolute, select, tanh

XML = """<mujoco><option timestep="0.02"/><worldbody>
  <body name="cart"><joint name="rail" type="slide" axis="1 0 0" damping="1"/><geom type="box" size=".1 .05 .05"/>
    <body pos="0 0 .05"><joint name="hinge" axis="0 1 0" damping=".05"/>
      <geom type="capsule" fromto="0 0 0 0.1 0 .5" size=".03" mass="0.3"/></body></body>
</worldbody><actuator><motor joint="rail" gear="5" ctrlrange="-1 1"/></actuator></mujoco>"""
REWARDS = ("plain", "zero", "same", "large", "rare")
SEEN = ("list", "named", "grouped")
NUMBERS = ("plain", "same", "huge", "tiny")
ENDS = ("falls", "never", "at-once", "together", "cut")
LIMITS = {"TorchOdd-v0": None, "TorchOddShort-v0": 9, "TorchOddOne-v0": 1}


@dataclass(frozen=True)
class Odd(Task):
    """A pole on a cart."""

    max_episode_steps: ClassVar[int | None] = None  # type: ignore[misc]
    xml_file: str = ""
    frame_skip: int = 1
    actions: int = 1
    bounded: bool = True
    rewarded: str = "plain"
    seen: str = "list"
    numbers: str = "plain"
    ends: str = "falls"

    def load(self):
        return mujoco.MjModel.from_xml_string(XML)

    def action_space(self, m):
        most = 1.0 if self.bounded else math.inf
        return [-most] * self.actions, [most] * self.actions

    def memory(self, m):
        return {"age": 0.0}

    def reset(self, m, rng):
        return [rng.uniform(-0.1, 0.1) for _ in range(m.nq)], [0.0] * m.nv

    def control(self, m, world, action):
        return Control([tanh(sum(x * (1.0 - 0.3 * k) for k, x in enumerate(action)))])

    def remember(self, m, before, action, after):
        return {"age": before.memory["age"] + 1.0}

    def begin(self, m, world):
        return {"age": 0.0}

    def observe(self, m, world):
        of_numbers = {
            "plain": [world.qpos[0]], "same": [3.0, world.qpos[0]], "huge": [1e8 * world.qpos[0], 1e8],
            "tiny": [1e-12 * world.qpos[0]],
        }  # fmt: skip
        own = [*of_numbers[self.numbers], world.qpos[1], *world.qvel]
        if self.seen == "list":
            return own
        named = {"own": own, "noise": world.rng.normal()}
        true = {"angle": world.qpos[1], "age": world.memory["age"]}
        return {"policy": named, "privileged": true} if self.seen == "grouped" else named

    def outcome(self, m, before, action, after):
        upright = 1.0 - absolute(after.qpos[1])
        rare = select(after.rng.uniform() < 0.01, 1e6, 0.0) if self.rewarded == "rare" else 0.0
        reward = {"plain": upright, "zero": 0.0, "same": 1.0, "large": 1e6 * upright, "rare": rare + upright}
        fell = absolute(after.qpos[1]) > 0.3
        age = after.memory["age"]
        ended = {"falls": fell, "never": False, "at-once": True, "together": age > 4.5, "cut": False}
        cut = (age > 2.5) & (after.rng.uniform() < 0.5) if self.ends == "cut" else False
        return Outcome(reward[self.rewarded], ended[self.ends], truncated=cut, metrics={"angle": after.qpos[1]})


def register() -> None:
    """Have Gymnasium know the tasks, as users' modules do."""
    for env_id, limit in LIMITS.items():
        if env_id not in gymnasium.registry:
            gymnasium.register(
                env_id, entry_point="torch_mjenvs:TorchEnv", vector_entry_point="torch_mjenvs:TorchVectorEnv",
                max_episode_steps=limit, kwargs={"task": Odd},
            )  # fmt: skip


register()


@dataclass
class Plan:
    """A run: flags of `torch_mjenvs train`, the lengths at which it ends in turn, and what befalls it before that."""

    flags: dict[str, str]
    lengths: tuple[int, ...]
    events: list[tuple[str, int]] = field(default_factory=list)

    def argv(self, **changed: str) -> list[str]:
        """Return the flags as a command line, without its length and folder."""
        flags = self.flags | changed
        return [
            text
            for name, value in flags.items()
            for text in ([f"--{name}", *value.split(" ")] if value else [f"--{name}"])
        ]

    @property
    def batch(self) -> int:
        """The frames of an iteration."""
        return int(self.flags["num-envs"]) * int(self.flags["horizon"])


def draw(seed: int) -> Plan:
    """Return run k."""
    rng = np.random.default_rng(seed)

    def chance(p: float) -> bool:
        return bool(rng.random() < p)

    def one(xs: Any) -> Any:
        return xs[int(rng.integers(len(xs)))]

    def widths() -> str:
        return ",".join(str(int(rng.integers(1, 41))) for _ in range(int(rng.integers(1, 5))))

    sac = chance(0.2)
    ends = one(ENDS)
    env = one([*LIMITS]) if chance(0.5) else "TorchOddShort-v0"
    limit = LIMITS[env]
    flags = {"env": f"random_runs:{env}", "device": "cpu", "seed": str(int(rng.integers(100))), "episodes": "3"}
    flags["evaluations"] = str(one((0, 1, 3, 7)))
    flags |= {"actions": str(one((1, 1, 2, 3))), "rewarded": one(REWARDS), "seen": one(SEEN)}
    flags |= {"numbers": one(NUMBERS), "ends": ends}
    if chance(0.3) and not sac:
        flags["no-bounded"] = ""
    worlds = one((1, 2, 3, 7, 16, 64, 65))
    horizon = int(rng.integers(1, 20 if limit is None else limit + 1))
    if worlds * horizon < 2:
        worlds = 2
    flags |= {"num-envs": str(worlds), "horizon": str(horizon)}
    batch = worlds * horizon
    same = widths()
    flags["actor"] = same
    flags["critic"] = same if chance(0.4) else widths()
    flags |= {"activation": one(("tanh", "relu", "elu", "silu")), "norm": one(("none", "layer"))}
    flags["gamma"] = one(("0", "0.9", "0.99", "1"))
    flags["learning-rate"] = one(("1e-3", "3e-4", "1e-2"))
    if flags["seen"] == "grouped" and chance(0.4):
        flags["obs-groups"] = one(("policy=policy critic=privileged", "policy=policy,privileged critic=policy"))
    if sac:
        flags |= {"algorithm": "sac", "updates": "2", "batch": str(int(rng.integers(1, 40)))}
        flags["buffer"] = str(batch * int(rng.integers(1, 6)) + int(rng.integers(7)))
        flags["random-frames"] = str(int(rng.integers(0, 2 * batch)))
        flags["tau"] = one(("0.005", "1"))
    else:
        flags["minibatch"] = str(int(rng.integers(2, batch + 1)))
        flags["epochs"] = str(one((1, 2, 3)))
        flags["lam"] = one(("0", "0.95", "1"))
        flags["learner"] = one(("compiled", "compiled", "torch"))
        flags["precision"] = one(("float32", "bfloat16"))
        flags["target-kl"] = one(("0", "0", "0.01"))
        flags["value-clip"] = one(("0", "0.2"))
        flags["entropy"] = one(("0", "0.01"))
        flags["max-grad-norm"] = one(("1", "1e-3", "100"))
        flags["value-weight"] = one(("0.5", "0", "2"))
        flags["clip"] = one(("0.2", "0.05"))
        flags["log-std"] = one(("-1", "0"))
        if chance(0.3):
            flags |= {"log-std-min": "-1.01", "log-std-max": "0.01"}
    iterations = int(rng.integers(3, 9))
    lengths = [iterations * batch - int(rng.integers(batch))]
    if sac:
        lengths[0] = max(lengths[0], 3 * batch)
    if chance(0.3):
        lengths.append((iterations + int(rng.integers(1, 4))) * batch)
    events = [(one(("kill", "kill", "term", "int", "full")), int(rng.integers(1, 40))) for _ in range(one((1, 2, 3)))]
    return Plan(flags, tuple(lengths), events)

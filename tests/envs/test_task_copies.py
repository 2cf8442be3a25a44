"""What a task's functions are given is theirs alone: whatever they do to it, the world goes on as it would."""

from __future__ import annotations

import contextlib
import dataclasses
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from torch_mjenvs import Outcome, Task, TorchVectorEnv, World

CART = """<mujoco>
  <option timestep="0.01"/>
  <worldbody>
    <body name="cart" pos="0 0 1">
      <joint name="slide" type="slide" axis="1 0 0" limited="true" range="-1 1"/>
      <geom size="0.1"/>
      <body name="pole">
        <joint name="hinge" type="hinge" axis="0 1 0"/>
        <geom type="capsule" size="0.05" fromto="0 0 0 0 0 0.6"/>
      </body>
    </body>
  </worldbody>
  <actuator>
    <general joint="slide" dyntype="filter" dynprm="0.1" gainprm="10"/>
  </actuator>
  <sensor><jointpos joint="hinge"/></sensor>
</mujoco>"""
STEPS = 3


@pytest.fixture(scope="module")
def cart(tmp_path_factory):
    path = tmp_path_factory.mktemp("cart") / "cart.xml"
    path.write_text(CART)
    return str(path)


@dataclass(frozen=True)
class Calm(Task):
    """Reads all that there is, and writes nothing."""

    xml_file: str
    frame_skip: int = 2

    def reset(self, m, rng):
        return [rng.uniform(-0.1, 0.1) for _ in range(m.nq)], [rng.normal() for _ in range(m.nv)]

    def memory(self, m):
        return {"steps": 0.0, "seen": [0.0, 0.0]}

    def begin(self, m, world):
        return {"seen": [world.qpos[0], world.qvel[0]]}

    def control(self, m, world, action):
        return [action[0] + 0.1 * world.memory["steps"]]

    def remember(self, m, before, action, after):
        return {"steps": before.memory["steps"] + 1.0, "seen": [after.qpos[0], action[0]]}

    def observe(self, m, world):
        obs = world.qpos[1:] + world.qvel
        obs += world.act + [world.memory["steps"], *world.memory["seen"]]
        obs += world.data.xpos[2] + world.data.sensordata + world.data.qfrc_constraint + world.data.cfrc_ext[1]
        return obs + [world.data.M[1][0], world.rng.uniform()]

    def outcome(self, m, before, action, after):
        reward = after.qpos[0] - before.qpos[0] + action[0] + after.data.xpos[2][0] + after.memory["seen"][1]
        return Outcome(reward, after.qpos[1] > 3.0, {"place": after.data.xpos[2], "force": before.data.qacc})

    def reset_info(self, m, world):
        return {"place": world.data.xpos[2]}


def ruin(x: Any) -> None:
    """Overwrite everything in nested lists and dicts."""
    for k in list(x) if isinstance(x, dict) else range(len(x)):
        if isinstance(x[k], (list, dict)):
            ruin(x[k])
        else:
            x[k] = 7.0


def assign(thing: Any, name: str, value: Any) -> None:
    """Set an attribute, if that is not refused."""
    with contextlib.suppress(AttributeError):
        setattr(thing, name, value)


FIELDS = "qpos", "qvel", "act", "ctrl", "xpos", "M", "sensordata", "cfrc_ext", "qfrc_constraint", "actuator_moment"
DAMAGE = {
    "positions": lambda world, action: ruin(world.qpos),
    "velocities": lambda world, action: ruin(world.qvel),
    "activations": lambda world, action: ruin(world.act),
    "the action": lambda world, action: action and ruin(action),
    "memory": lambda world, action: ruin(world.memory),
    "lists of memory": lambda world, action: [x.reverse() for x in world.memory.values() if isinstance(x, list)],
    "fields of data": lambda world, action: [
        ruin(getattr(world.data, name)) for name in FIELDS if name != "ctrl" or world._has_ctrl
    ],
    "lengths": lambda world, action: [
        x.clear() for x in (world.qpos, world.act, world.memory, world.data.xpos, world.data.M[1], action or [])
    ],
    "the world's attributes": lambda world, action: [
        assign(world, x.name, {"steps": 7.0, "seen": [7.0, 7.0]} if x.name == "memory" else [7.0, 7.0])
        for x in dataclasses.fields(World) if x.name != "rng"
    ],
    "data's attributes": lambda world, action: [assign(world.data, name, [[7.0] * 6] * 3) for name in FIELDS],
}  # fmt: skip


@dataclass(frozen=True)
class Vandal(Calm):
    """Does as `Calm`, and then damages all that it was given."""

    what: str = ""

    def done(self, result, *worlds, action=None):
        for world in worlds:
            DAMAGE[self.what](world, action)
        return result

    def begin(self, m, world):
        return self.done(super().begin(m, world), world)

    def control(self, m, world, action):
        return self.done(super().control(m, world, action), world, action=action)

    def remember(self, m, before, action, after):
        return self.done(super().remember(m, before, action, after), before, after, action=action)

    def observe(self, m, world):
        return self.done(super().observe(m, world), world)

    def outcome(self, m, before, action, after):
        found = super().outcome(m, before, action, after)
        info = {name: list(x) for name, x in found.info.items()}
        return self.done(dataclasses.replace(found, info=info), before, after, action=action)

    def reset_info(self, m, world):
        return self.done({name: list(x) for name, x in super().reset_info(m, world).items()}, world)


@dataclass(frozen=True)
class Hoarder(Calm):
    """Keeps all that it gave, and overwrites it in the next function that is called."""

    kept: dict = dataclasses.field(default_factory=dict, hash=False)

    def keeping(self, given):
        ruin(self.kept)
        self.kept.update(enumerate([given] if isinstance(given, (list, dict)) else given))
        return given

    def reset(self, m, rng):
        return self.keeping(super().reset(m, rng))

    def memory(self, m):
        return self.keeping(super().memory(m))

    def begin(self, m, world):
        return self.keeping(super().begin(m, world))

    def control(self, m, world, action):
        return self.keeping(super().control(m, world, action))

    def remember(self, m, before, action, after):
        return self.keeping(super().remember(m, before, action, after))

    def observe(self, m, world):
        return self.keeping(super().observe(m, world))

    def outcome(self, m, before, action, after):
        found = super().outcome(m, before, action, after)
        self.keeping(found.info)
        return found

    def reset_info(self, m, world):
        return self.keeping(super().reset_info(m, world))


def run(task: Task) -> list[torch.Tensor]:
    """All that is seen of some steps with an end among them, and of a state that is set."""
    env = TorchVectorEnv(task, 2, dtype=torch.float64, max_episode_steps=2)
    env.reset(seed=3)
    seen = [*env.state_dict().values()]
    for _ in range(STEPS):
        env.step([[0.5], [-2.0]])
        seen += env.state_dict().values()
    env.set_state(torch.full((2, 2), 0.2), torch.ones(2, 2))
    return seen + [*env.state_dict().values()]


@pytest.fixture(scope="module")
def calm(cart):
    return run(Calm(cart))


def test_the_task_that_is_compared_with_is_alive(calm):
    assert all(x.isfinite().all() for x in calm) and not any(x.eq(7.0).any() for x in calm)


@pytest.mark.parametrize("what", DAMAGE)
def test_what_a_function_does_to_what_it_is_given_reaches_nothing(cart, calm, what):
    assert all(map(torch.equal, run(Vandal(cart, what=what)), calm))


def test_what_a_function_gave_may_be_altered_later(cart, calm):
    assert all(map(torch.equal, run(Hoarder(cart)), calm))


@dataclass(frozen=True)
class Local(Calm):
    """Each function works on its copies in place."""

    def control(self, m, world, action):
        world.memory["steps"] *= 0.1
        action[0] += world.memory["steps"]
        return action

    def remember(self, m, before, action, after):
        memory = before.memory
        memory["steps"] += 1.0
        memory["seen"][:] = after.qpos[0], action[0]
        return memory

    def observe(self, m, world):
        obs = world.qpos
        obs += world.qvel
        obs += world.act
        del obs[0]
        return super().observe(m, dataclasses.replace(world, qpos=[0.0, obs[0]], qvel=obs[1:3], act=obs[3:]))


def test_a_function_may_work_on_its_copies_in_place(cart, calm):
    assert all(torch.allclose(a, b, rtol=1e-12, atol=1e-12) for a, b in zip(run(Local(cart)), calm, strict=True))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("qpos", r"dataclasses.replace\(world, qpos=...\)"),
        ("memory", "remembered is what `begin` and `remember` return"),
        ("goal", "by what it returns alone"),
    ],
)
def test_to_set_an_attribute_of_a_world_is_refused_by_name(cart, name, text):
    class Sets(Calm):
        def observe(self, m, world):
            setattr(world, name, world.memory)
            return super().observe(m, world)

    with pytest.raises(AttributeError, match=f"world.{name} cannot be set.*{text}"):
        TorchVectorEnv(Sets(cart), 2)


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (lambda data: setattr(data, "xpos", []), "world.data.xpos cannot be set"),
        (lambda data: data.xposs, "world.data has no field 'xposs'"),
        (lambda data: data.time, "world.data.time is not known in a task; count steps in the task's memory"),
        (lambda data: data.wind, "world.data.wind is not known in a task; name it in the task's `inputs`"),
        (lambda data: data.constraints, "world.data.constraints is not of numbers"),
    ],
)
def test_data_is_for_reading_numbers(damage, text):
    class Sets(Task):
        xml_file, frame_skip = "reacher.xml", 2
        reset, outcome = Calm.reset, Calm.outcome

        def observe(self, m, world):
            damage(world.data)
            return []

    with pytest.raises(AttributeError, match=text):
        TorchVectorEnv(Sets("reacher.xml", 2), 2)


def test_the_model_cannot_be_written_into(cart):
    class Heavy(Calm):
        def observe(self, m, world):
            m.timestep = 1.0

    class Heavier(Calm):
        def observe(self, m, world):
            m.body_mass[1] = 1.0

    for task, kind in ((Heavy, dataclasses.FrozenInstanceError), (Heavier, TypeError)):
        for how in ({}, {"vary": "body_mass"}):
            with pytest.raises(kind):
                TorchVectorEnv(task(cart), 2, **how)


def test_data_that_nobody_reads_is_not_computed(cart, monkeypatch):
    """A copy of a world asks for no field: beside the stages that a step needs, those are run whose fields are read."""
    from torch_mjenvs.physics import pipeline
    from torch_mjenvs.physics.model import data

    ran = []
    stages = {name: (lambda m, d, f=f: (ran.append(f.__name__), f(m, d))) for name, f in data.STAGE_OF.items()}
    monkeypatch.setattr(data, "STAGE_OF", stages)

    class Blind(Calm):
        def observe(self, m, world):
            return world.data.xpos[2]

        def outcome(self, m, before, action, after):
            return Outcome(0.0, False)

        reset_info = Task.reset_info

    TorchVectorEnv(Blind(cart), 2)
    assert "kinematics" in ran and not {stage.__name__ for stage in pipeline.ON_DEMAND} & set(ran)

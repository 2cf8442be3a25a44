"""Mistakes in a task are said in its own terms, with the file and the line that they are in."""

from __future__ import annotations

import itertools
import math
import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

from torch_mjenvs import Control, Outcome, Task, TorchEnv, TorchVectorEnv
from torch_mjenvs.scalar import clip, logical_not, maximum, select
from torch_mjenvs.vectors import sub


@dataclass(frozen=True)
class Broken(Task):
    """A pendulum on a cart, whose functions can be replaced one by one."""

    xml_file: str = "inverted_pendulum.xml"
    frame_skip: int = 2
    functions: dict[str, Callable] = field(default_factory=dict, hash=False)

    def of(self, name, default, *arguments):
        return self.functions.get(name, default)(*arguments)

    def memory(self, m):
        return self.of("memory", lambda m: {"goal": [0.0, 0.0], "phase": 0.0}, m)

    def reset(self, m, rng):
        return self.of("reset", lambda m, rng: ([0.0, 0.0], [0.0, 0.0]), m, rng)

    def begin(self, m, world):
        return self.of("begin", lambda m, world: {}, m, world)

    def control(self, m, world, action):
        return self.of("control", lambda m, world, action: action, m, world, action)

    def remember(self, m, before, action, after):
        return self.of("remember", lambda *_: {}, m, before, action, after)

    def observe(self, m, world):
        return self.of("observe", lambda m, world: world.qpos, m, world)

    def outcome(self, m, before, action, after):
        return self.of("outcome", lambda *_: Outcome(1.0, False), m, before, action, after)

    def reset_info(self, m, world):
        return self.of("reset_info", lambda m, world: {}, m, world)

    def action_space(self, m):
        return self.of("action_space", super().action_space, m)


class Uncontrolled(Broken):
    control = Task.control


@pytest.mark.parametrize("other", [3.0, 3, "another"])
@pytest.mark.parametrize("compare", [lambda x, y: x == y, lambda x, y: x != y])
def test_numbers_of_a_world_are_not_compared_by_equality(compare, other):
    """It would be False, or True, in all worlds for ever."""

    def observe(m, world):
        return [1.0 if compare(world.qpos[0], world.qpos[1] if other == "another" else other) else 0.0]

    with pytest.raises(TypeError, match=r"cannot be compared by == or !=.*absolute\(x - 3.0\)"):
        TorchVectorEnv(Broken(functions={"observe": observe}), 2)


class Alternating:
    """Two answers by turns, each of them twice: to one question, asked again, the answer is the same."""

    def __init__(self, *answers):
        self.answers, self.asked = answers, 0

    def __call__(self, *_):
        self.asked += 1
        return self.answers[(self.asked - 1) // 2 % 2]


def terms(*names, **arguments):
    return lambda *_: Outcome(dict.fromkeys(names, 1.0), **arguments)


ANSWERS = {
    "reset gives qpos of another width": (
        "reset", lambda m, rng: ([0.0] * 3, [0.0] * 2), ValueError, "gave 3 numbers for qpos, and the model has 2"),
    "reset gives qpos alone": (
        "reset", lambda m, rng: [0.0, 0.0], TypeError, "must give a tuple of qpos and qvel"),
    "reset gives text": (
        "reset", lambda m, rng: ([0.0, "x"], [0.0] * 2), TypeError, r"qpos\[1\] must be a number, not 'x'"),
    "observe gives an array": (
        "observe", lambda m, w: np.zeros(2), TypeError, "observation must be a list of numbers"),
    "observe gives a truth value": (
        "observe", lambda m, w: [w.qpos[0] > 0.0], TypeError, r"observation\[0\] must be a number, not a truth value"),
    "observe gives more in a step": (
        "observe", Alternating([0.0], [0.0, 1.0]), ValueError, "gave 2 numbers, and 1 before"),
    "control gives two for one actuator": (
        "control", lambda m, w, a: [*a, *a], ValueError, "gave 2 numbers for ctrl, and the model has 1"),
    "control pushes an unknown body": (
        "control", lambda m, w, a: Control(a, xfrc_applied={"poel": [0.0] * 6}), ValueError, "there is no body 'poel'"),
    "control pushes with a force alone": (
        "control", lambda m, w, a: Control(a, xfrc_applied={"pole": [0.0] * 3}), ValueError, "is a list of 3, and"),
    "control pushes too many dofs": (
        "control", lambda m, w, a: Control(a, [0.0] * 3), ValueError, "3 numbers for qfrc_applied, and the model"),
    "begin gives an unknown name": (
        "begin", lambda m, w: {"gaol": [0.0, 0.0]}, ValueError, r"gave 'gaol', which memory\(\) does not have"),
    "begin gives a list of another length": (
        "begin", lambda m, w: {"goal": [0.0]}, ValueError, r"gave a list of 1 for 'goal', and memory\(\) has a list"),
    "remember gives a number for a list": (
        "remember", lambda *_: {"goal": 0.0}, ValueError, r"gave one number for 'goal', and memory\(\) has a list"),
    "remember gives nothing": (
        "remember", lambda *_: None, TypeError, "must be a dict of numbers, or lists of them, by name"),
    "memory gives a list": (
        "memory", lambda m: [0.0], TypeError, "must be a dict of numbers, or lists of them, by name"),
    "memory has an empty list": (
        "memory", lambda m: {"goal": []}, ValueError, "'goal' is an empty list"),
    "memory is not of constants": (
        "memory", lambda m: {"goal": math.nan}, ValueError, "'goal' must be of finite numbers"),
    "outcome gives a tuple": (
        "outcome", lambda *_: (1.0, False), TypeError, "must give an Outcome"),
    "the reward is a truth value": (
        "outcome", lambda m, b, a, w: Outcome(w.qpos[0] > 0.0, False), TypeError, "must be a number, not a truth"),
    "terminated is a number": (
        "outcome", lambda *_: Outcome(1.0, 0), TypeError, "terminated must be True, False or a comparison"),
    "control kicks too few dofs": (
        "control", lambda m, w, a: Control(a, qvel=[0.0]), ValueError, "1 numbers for qvel, and the model has 2"),
    "control puts too few positions": (
        "control", lambda m, w, a: Control(a, qpos=[0.0]), ValueError, "1 numbers for qpos, and the model has 2"),
    "a term has no weight": (
        "outcome", terms("upright", "speed", weights={"upright": 1.0, "sped": 1.0}), ValueError,
        r"there is no weight for the term 'speed'; there is one for \['sped'\]"),
    "a weight has no term": (
        "outcome", terms("upright", weights={"upright": 1.0, "uprigth": 1.0}), ValueError,
        r"there is no term for the weight 'uprigth'; there is one for \['upright'\]"),
    "a weight is there twice": (
        "outcome", terms("up", weights=(("up", 1.0), ("up", 2.0))), ValueError, r"weights has \['up'\] more than once"),
    "weights of one number": (
        "outcome", lambda *_: Outcome(1.0, weights={"upright": 1.0}), ValueError, "and the reward is one number"),
    "weights that are no dict": (
        "outcome", terms("upright", weights=2.0), TypeError, "weights must be a dict of numbers by name, not 2.0"),
    "a weight is text": (
        "outcome", terms("upright", weights={"upright": "x"}), TypeError, "weights 'upright' must be a number"),
    "a term is a truth value": (
        "outcome", lambda m, b, a, w: Outcome({"up": w.qpos[0] > 0.0}), TypeError, "reward 'up' must be a number"),
    "a term is a list": (
        "outcome", lambda *_: Outcome({"up": [1.0]}), TypeError, "reward 'up' must be a number"),
    "a term's name is a number": (
        "outcome", lambda *_: Outcome({1: 1.0}), TypeError, "reward must be a dict of numbers by name"),
    "scale is a mask": (
        "outcome", lambda m, b, a, w: Outcome(1.0, scale=w.qpos[0] > 0.0), TypeError, "scale must be a number"),
    "clip is one number": (
        "outcome", lambda *_: Outcome(1.0, clip=1.0), TypeError, r"clip must be two numbers, \(low, high\), not 1.0"),
    "clip is upside down": (
        "outcome", lambda *_: Outcome(1.0, clip=(1.0, 0.0)), ValueError, "with low below high"),
    "a metric is a list": (
        "outcome", lambda *_: Outcome(1.0, metrics={"error": [1.0]}), TypeError, "metrics 'error' must be a number"),
    "other metrics in a step": (
        "outcome", Alternating(Outcome(1.0, metrics={"a": 1.0}), Outcome(1.0, metrics={"b": 1.0})), ValueError,
        r"the metrics are \['b'\], and were \['a'\] before"),
    "a reason is a number": (
        "outcome", lambda *_: Outcome(1.0, {"fell": 1.0}), TypeError, "terminated 'fell' must be True, False or"),
    "truncated is a number": (
        "outcome", lambda *_: Outcome(1.0, truncated=1.0), TypeError, "truncated must be True, False or a comparison"),
    "a reason ends in two ways": (
        "outcome", lambda *_: Outcome(1.0, {"fell": True}, truncated={"fell": True}), ValueError, "'fell' is there"),
    "a reason is the environment's": (
        "outcome", lambda *_: Outcome(1.0, {"time_limit": True}), ValueError, "'time_limit' is the environment's own"),
    "info has the sum of a term": (
        "outcome", terms("up", info={"episode_reward/up": 1.0}), ValueError, "'episode_reward/up' is the env"),
    "other terms in a step": (
        "outcome", Alternating(Outcome({"up": 1.0}), Outcome({"down": 1.0})), ValueError,
        r"the terms of the reward are \['down'\], and were \['up'\] before"),
    "other reasons in a step": (
        "outcome", Alternating(Outcome(1.0, {"up": True}), Outcome(1.0, {"down": True})), ValueError,
        r"the reasons of an end are \['down'\], and were \['up'\] before"),
    "an action of two for one actuator without a control": (
        "action_space", lambda m: ([-1.0] * 2, [1.0] * 2), ValueError,
        "an action has 2 numbers, and the model's ctrl 1: write `control` as well"),
    "an action space of low alone": (
        "action_space", lambda m: [-1.0], TypeError, "must give a tuple of low and high"),
    "an action space of two lengths": (
        "action_space", lambda m: ([-1.0], [1.0, 1.0]), ValueError, "gave 1 numbers for low, and 2 for high"),
    "an action space without room": (
        "action_space", lambda m: ([1.0], [1.0]), ValueError, r"low\[0\] must be below high\[0\], not 1.0 and 1.0"),
    "an action space of NaN": (
        "action_space", lambda m: ([math.nan], [1.0]), ValueError, r"low\[0\] must be a number that all worlds share"),
    "info is of another width in a reset": (
        "outcome", lambda *_: Outcome(1.0, False, {"place": 1.0}), ValueError, "'place' is one number, and a list"),
    "info has a name that is taken": (
        "reset_info", lambda *_: {"bad_state": 1.0}, ValueError, "'bad_state' is the environment's own"),
    "info has the name of what SAME_STEP adds": (
        "outcome", lambda *_: Outcome(1.0, info={"final_obs": 1.0}), ValueError, "'final_obs' is the environment's"),
    "info has the name of a mask": (
        "outcome", lambda *_: Outcome(1.0, info={"_x": 1.0}), ValueError, "'_x' and all that begin with _, masks of"),
}  # fmt: skip


@pytest.mark.parametrize("what", ANSWERS)
def test_what_a_function_gives_is_checked_in_the_task_s_terms(what):
    name, function, kind, text = ANSWERS[what]
    functions = {"reset_info": lambda *_: {"place": [1.0, 2.0]}} if "place" in text else {}
    kind_of_broken = Uncontrolled if name == "action_space" else Broken
    with pytest.raises(kind, match=text) as caught:
        TorchVectorEnv(kind_of_broken(functions=functions | {name: function}), 2)
    assert str(caught.value).startswith(f"{kind_of_broken.__name__}.{name} ({__file__}, line ")


def branch(m, world):
    if world.qpos[0] > 0.0:  # here
        return world.qpos
    return world.qvel


USES = {
    "if": ("observe", branch, "a traced value has no truth value"),
    "float()": ("observe", lambda m, world: [float(world.qpos[0])], "not a number"),
    "max()": ("observe", lambda m, world: [max(world.qpos)], "no truth value"),
    "math": ("outcome", lambda m, b, action, after: Outcome(math.sin(after.qpos[0]), False), "not a number"),
    "NumPy": ("observe", lambda m, world: [np.sin(world.qpos[0])], "sin"),
    "and": ("outcome", lambda m, b, action, w: Outcome(1.0, w.qpos[0] > 0.0 and w.qpos[1] > 0.0), "no truth value"),
}


@pytest.mark.parametrize("env", [TorchVectorEnv, TorchEnv])
@pytest.mark.parametrize("what", USES)
def test_python_that_cannot_know_a_world_s_numbers_is_named_with_its_line(what, env):
    name, function, text = USES[what]
    line = function.__code__.co_firstlineno + (what == "if")
    with pytest.raises(TypeError, match=text) as caught:
        env(Broken(functions={name: function}))
    where, why = caught.value.__notes__
    assert where.startswith(f"in Broken.{name}, {__file__}, line {line}: ")
    assert re.search("known only when the kernel runs.*torch_mjenvs.scalar has select", why)


@pytest.mark.parametrize(
    ("read", "said"),
    [
        (lambda world: world.data.xmat[1][2][2], "xmat has nine numbers, row by row"),
        (lambda world: world.qpos - world.qvel, "torch_mjenvs.vectors has add, sub, scale"),
        (lambda world: 2.0 * world.data.xpos[1], "torch_mjenvs.vectors has add, sub, scale"),
        (lambda world: world.data.xpos[1] * world.qpos[0], "torch_mjenvs.vectors has add, sub, scale"),
        (lambda world: maximum(world.data.xpos[1], 0.0), "torch_mjenvs.vectors has add, sub, scale"),
        (lambda world: world.qpos[0] + world.data.xpos[1], "torch_mjenvs.vectors has add, sub, scale"),
        (lambda world: world.rng.choice([0.1, 0.2]), "world.tables[name][rng.integers(count)]"),
        (lambda world: [0.1, 0.2][world.rng.integers(2)], "world.tables[name][row]"),
        (lambda world: world.rng.normal(0.0, 0.1), "mean + std * normal()"),
        (lambda world: world.rng.uniform(-1.0, 1.0, size=2), "one number at a time"),
        (lambda world: (0.0, 0.0) + world.qpos[0], "torch_mjenvs.vectors has add, sub, scale"),
        (lambda world: sub(world.qpos, world.data.xpos[1]), "not equally long"),
        (lambda world: [1.0, 2.0][world.qpos[0]], r"world.tables[name][row]"),
        (lambda world: np.zeros(2)[world.qpos[0]], r"world.tables[name][row]"),
        (lambda world: torch.tensor(world.qpos), "torch_mjenvs.scalar has select"),
        (lambda world: np.array(world.qpos), "its tolist() is a list"),
        (lambda world: world.rng.standard_normal(2), "rng has no 'standard_normal'; it has draw_until, exponential"),
        (lambda world: world.tables["path"][0], "tables() gives no 'path'; the task has no tables()"),
        (lambda world: clip(world.qpos[0], 1.0, -1.0), "low above high: 1.0 and -1.0"),
        (lambda world: select(world.qpos[0], 1.0, 0.0), "such as x > 0.5, not a traced number"),
        (lambda world: logical_not(world.qpos[0]), "such as x > 0.5, not a traced number"),
    ],
)
def test_numpy_s_habits_are_told_what_to_write(read, said):
    with pytest.raises(Exception) as caught:
        TorchVectorEnv(Broken(functions={"observe": lambda m, world: [read(world)]}), 2)
    assert said in "".join([str(caught.value), *getattr(caught.value, "__notes__", ())])


def test_the_line_is_the_user_s_where_numpy_or_the_call_itself_raises():
    functions = {"observe": lambda m, world: [np.linalg.norm(world.qpos)]}
    with pytest.raises(TypeError) as caught:
        TorchVectorEnv(Broken(functions=functions), 2)
    assert f"in Broken.observe, {__file__}, line {functions['observe'].__code__.co_firstlineno}: " in str(
        caught.value.__notes__
    )

    class Short(Broken):
        def remember(self, m, before, after):
            return {}

    with pytest.raises(TypeError, match="takes 4 positional arguments but 5 were given") as caught:
        TorchVectorEnv(Short(), 2)
    assert (
        f"in Short.remember, {__file__}, line {Short.remember.__code__.co_firstlineno}: " in caught.value.__notes__[0]
    )


def test_the_model_is_not_changed_in_a_task():
    def reset(m, rng):
        m.qpos0[0] += 1.0

    with pytest.raises(TypeError) as caught:
        TorchVectorEnv(Broken(functions={"reset": reset}), 2)
    assert "change it in `load`" in str(caught.value.__notes__)


def swallow(m, before, action, after):
    try:
        up = 1.0 if after.qpos[0] > 0.0 else -1.0
    except TypeError:
        up = 0.0
    return Outcome(up)


def test_a_question_that_python_cannot_answer_is_refused_even_if_its_error_is_caught():
    with pytest.raises(TypeError, match=r"Broken.outcome .*: asks whether a number of a world is true, .* use select"):
        TorchVectorEnv(Broken(functions={"outcome": swallow}), 2)


GENERATOR, PLAIN, COUNTED = np.random.default_rng(0), random.Random(0), itertools.count()
FROZEN = {
    "NumPy's generator": ("reset", lambda m, rng: (GENERATOR.uniform(-0.1, 0.1, 2).tolist(), [0.0, 0.0])),
    "Python's generator, times a number": ("observe", lambda m, w: [w.qpos[0] * PLAIN.random()]),
    "a counter": ("outcome", lambda *_: Outcome(float(next(COUNTED)))),
    "a clock": ("begin", lambda m, w: {"phase": time.perf_counter()}),
    "a condition": ("outcome", lambda m, b, a, after: Outcome(1.0, after.qpos[0] > PLAIN.random())),
}


@pytest.mark.parametrize("what", FROZEN)
def test_what_a_kernel_would_freeze_is_refused(what):
    """One draw, one count or one moment would be that of all worlds and steps."""
    name, function = FROZEN[what]
    with pytest.raises(ValueError, match=rf"Broken.{name} .*: gives something else when it is called again"):
        TorchVectorEnv(Broken(functions={name: function}), 2)


class Keeps(Task):
    """It keeps the goal in an attribute, or in a list of its class or of its module."""

    seen: list = []  # noqa: RUF012
    of_module: list = []  # noqa: RUF012

    xml_file = "inverted_pendulum.xml"
    frame_skip = 2

    def __init__(self, where):
        self.where = where

    def reset(self, m, rng):
        if self.where == "attribute":
            self.goal = rng.uniform()
        else:
            (self.seen if self.where == "class" else HELD)[:] = [rng.uniform()]
        return [0.0] * m.nq, [0.0] * m.nv

    def observe(self, m, world):
        return world.qpos

    def outcome(self, m, before, action, after):
        goal = self.goal if self.where == "attribute" else (self.seen if self.where == "class" else HELD)[0]
        return Outcome(after.qpos[0] - goal)


HELD: list = []


@pytest.mark.parametrize(("where", "name"), [("attribute", "goal"), ("class", "seen")])
def test_a_world_s_number_in_an_attribute_is_refused(where, name):
    with pytest.raises(ValueError, match=rf"^Keeps.reset .*: keeps .* in the attribute '{name}'.*: keep it in memory"):
        TorchVectorEnv(Keeps(where), 2)
    Keeps.seen.clear()


def test_a_world_s_number_in_a_global_is_refused():
    with pytest.raises((TypeError, ValueError), match=r"^kernel ") as caught:
        TorchVectorEnv(Keeps("module"), 2)
    assert "A task keeps it in its memory" in caught.value.__notes__[0]
    HELD.clear()


@pytest.mark.parametrize("near", ["randomise", "rember", "noises", "max_episode_step"])
def test_a_name_that_is_nearly_one_of_a_task_s_is_told(near):
    """Otherwise nothing would be randomised, remembered, or whatever it was to be."""
    with pytest.warns(UserWarning, match=rf"Mine.{near} means nothing to an environment; did you mean "):
        type("Mine", (Task,), {near: lambda self, m, rng: {}})


def test_names_of_helpers_are_free():
    type("Mine", (Broken,), {x: None for x in ("controls", "level", "target", "contact", "observations", "resets")})

    class Mine(Task):
        noises: float = 0.1

        def randomized(self, m, rng):
            return {}

        def randomize_both(self, m, rng):
            return [self.randomized(m, rng) for _ in range(2)]


def test_a_task_without_frame_skip_is_told_in_its_own_terms():
    with pytest.raises(TypeError, match="Mine has no frame_skip, the steps of physics"):

        @dataclass(frozen=True)
        class Mine(Task):
            xml_file: str = "hopper.xml"


def test_inputs_are_names():
    with pytest.raises(TypeError, match=r"as in inputs = \('wind',\)"):
        type("Mine", (Broken,), {"inputs": "wind"})()
    with pytest.raises(TypeError, match=r"as in reset_parameters = \('body_mass',\)"):
        type("Mine", (Broken,), {"reset_parameters": "body_mass"})()


@pytest.mark.parametrize("what", ["control", "remember", "outcome"])
def test_the_control_of_the_step_before_is_not_known_where_a_step_begins(what):
    """It was 0 there, whatever acted."""
    functions = {
        "control": lambda m, world, action: [x - y for x, y in zip(action, world.data.ctrl, strict=True)],
        "remember": lambda m, before, action, after: {"phase": after.data.ctrl[0] - before.data.ctrl[0]},
        "outcome": lambda m, before, action, after: Outcome(after.data.ctrl[0] - before.data.ctrl[0]),
    }
    with pytest.raises(AttributeError, match=r"not known where a step begins.*: keep it in memory"):
        TorchVectorEnv(Broken(functions={what: functions[what]}), 2)


def test_calls_to_compare_draw_the_same_and_leave_no_trace():
    """Of a task whose functions draw: in blocks, loops, and by turns from a pair of normal numbers."""

    def reset(m, rng):
        q = rng.draw_until(lambda r: [r.uniform(-0.1, 0.1), r.normal()], lambda q: q[1] > 0.0)
        return q, [rng.normal(), rng.exponential(1.0)]

    functions = {"reset": reset, "observe": lambda m, w: [*w.qpos, *w.qvel, w.rng.normal(), w.rng.integers(0, 9)]}
    seen, env = [], TorchVectorEnv(Broken(functions=functions), 2)
    for _ in range(2):
        seen.append(env.reset(seed=1)[0])
    assert torch.equal(*seen) and (seen[0][:, 1] > 0).all()


def test_attempts_draw_from_what_they_are_given():
    def reset(m, rng):
        return rng.draw_until(lambda r: [rng.uniform(-1.0, 1.0), 0.0], lambda q: q[0] > 0.0), [0.0, 0.0]

    with pytest.raises(ValueError, match=r"draw from those, .*not from the generator outside"):
        TorchVectorEnv(Broken(functions={"reset": reset}), 2)


@pytest.mark.parametrize(
    ("read", "error", "said"),
    [
        (lambda world: world.memory["pahse"], KeyError, r"memory\(\) declares no 'pahse'; did you mean 'phase'\?"),
        (lambda world: world.action[0], AttributeError, "a world has no 'action'; it has .*may keep it in memory"),
        (lambda world: world.data.cvelo[1][0], AttributeError, "no field 'cvelo'; did you mean cvel"),
        (lambda world: world.data.body("pole").xpos[0], AttributeError, r"'body': read world.data.xpos\[m.body\(NAME"),
        (lambda world: world.data.contact.geom[0][0], AttributeError, r"m.sensor\(NAME\)\] of a <contact> sensor"),
    ],
)
def test_names_that_a_world_does_not_have(read, error, said):
    functions = {"memory": lambda m: {"phase": 0.0, "air": 0.0}, "observe": lambda m, world: [read(world)]}
    with pytest.raises(error, match=said):
        TorchVectorEnv(Broken(functions=functions), 2)


@pytest.mark.parametrize("read", [lambda memory: memory["phase"], lambda memory: memory.get("phase", 0.0)])
def test_the_memory_after_a_step_cannot_be_read_before_it_is_made(read):
    functions = {"remember": lambda m, before, action, after: {"phase": read(after.memory)}}
    with pytest.raises(KeyError, match=r"memory 'phase': after a step it is .*\. Read before\.memory"):
        TorchVectorEnv(Broken(functions=functions), 2)


@pytest.mark.parametrize(
    ("read", "said"),
    [
        (lambda m, w: w.data.xpos[m.geom("cart")], "read by the number of a body, not by a geom"),
        (lambda m, w: w.data.geom_xpos[m.body("pole")], "read by the number of a geom, not by a body"),
        (lambda m, w: [w.qpos[m.joint("hinge")]], r"a place or a slice, as a joint's `.qpos` and `.qvel` are, not by"),
        (lambda m, w: [w.data.qacc[m.body("pole")]], "a place or a slice"),
        (lambda m, w: w.data.xpos["pole"], r"read by places, not by names: \[m.body\('pole'\)\]"),
        (lambda m, w: [w.qpos["hinge"]], r"read by places, not by names: \[m.joint\('hinge'\).qpos\], or .qvel"),
        (lambda m, w: [w.data.xpos[m.body("pole"), 2]], r"read by one place at a time: \[.*pole.*\]\[2\]"),
    ],
)
def test_elements_of_another_kind_are_no_index(read, said):
    with pytest.raises(TypeError, match=said):
        TorchVectorEnv(Broken(functions={"observe": read}), 2)


def test_elements_of_the_kind_are_an_index():
    def read(m, w):
        joint, cart = m.joint("hinge"), m.body("cart")
        return [*w.qpos[joint.qpos], *w.qvel[joint.qvel], *w.data.xpos[cart], *w.data.xanchor[joint], *w.qpos[1:]]

    env = TorchVectorEnv(Broken(functions={"observe": read}), 2, dtype=torch.float64)
    obs, _ = env.reset()
    assert torch.equal(obs[:, 0], env.qpos[:, 1]) and obs.shape == (2, 9)


def test_elements_cannot_be_written_to():
    def reset(m, rng):
        m.body("pole").pos = [0.0, 0.0, 1.0]
        return [0.0, 0.0], [0.0, 0.0]

    with pytest.raises(AttributeError, match=r"body 'pole': pos cannot be set here.*randomize.*Start\(parameters"):
        TorchVectorEnv(Broken(functions={"reset": reset}), 2)


@dataclass(frozen=True)
class Untyped(Broken):
    frame_skip = 20


class Undecorated(Broken):
    frame_skip: int = 20


class Same(Broken):
    frame_skip: int = 2
    max_episode_steps = 50


def test_a_field_that_a_subclass_only_seems_to_set_is_refused():
    with pytest.raises(TypeError, match=r"Untyped.frame_skip = 20 would not be used.*`frame_skip: int = 20`$"):
        Untyped()
    with pytest.raises(TypeError, match=r"`frame_skip: int = 20`, and @dataclass\(frozen=True\) above the class$"):
        Undecorated()
    assert Same().frame_skip == 2


def test_any_other_exception_keeps_its_type_and_names_the_line():
    with pytest.raises(KeyError) as caught:
        TorchVectorEnv(Broken(functions={"observe": lambda m, world: [world.memory["gaol"]]}), 2)
    (where,) = caught.value.__notes__
    assert f"in Broken.observe, {__file__}, line " in where and 'world.memory["gaol"]' in where


def test_whole_numbers_count_as_numbers_and_an_empty_list_is_no_entry_of_info():
    functions = {
        "memory": lambda m: {"steps": 0, "last": [0] * m.nu},
        "remember": lambda m, before, action, after: {"steps": before.memory["steps"] + 1},
        "observe": lambda m, world: [1, world.memory["steps"]],
        "outcome": lambda *_: Outcome(1, False, {"nothing": []}),
    }
    env = TorchVectorEnv(Broken(functions=functions), 2)
    obs, info = env.reset()
    assert obs.tolist() == [[1.0, 0.0]] * 2 and info == {}
    obs, *_ = env.step(torch.zeros(2, 1, device=env.device))
    assert obs.tolist() == [[1.0, 1.0]] * 2

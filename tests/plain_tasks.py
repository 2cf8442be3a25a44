"""Environments of a task's source in plain Python, one world after the other, with MuJoCo C for the physics.

This is the oracle of random tasks: what docs/tasks.md and Gymnasium say of episodes, as loops over floats. Of the
package it uses `Random` on plain numbers alone, whose own oracle is in test_philox.py.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import mujoco
import numpy as np

from torch_mjenvs.scalar import Random

HELD = ("mocap_pos", "mocap_quat", "eq_active", "wind")


# the vocabulary, on floats


def flat(x: Any) -> list[float]:
    """The numbers of nested lists and dicts, in order."""
    if isinstance(x, Mapping):
        return [y for v in x.values() for y in flat(v)]
    return [y for v in x for y in flat(v)] if isinstance(x, (list, tuple, np.ndarray)) else [float(x)]


def repeat(n: int, body: Callable[[int, Any], Any], carry: Any) -> Any:
    for i in range(n):
        carry = body(i, carry)
    return carry


def delayed(queue: list[float], action: list[float], steps: float) -> list[float]:
    """Return the action of `steps` ago, between two of them a mix of both."""
    n, known = len(action), [*queue, *action]
    rows = [known[i : i + n] for i in range(0, len(known), n)][::-1]  # the latest first
    at = min(max(steps, 0.0), len(rows) - 1.0)
    k = min(int(at), len(rows) - 2)
    return [(1 - (at - k)) * x + (at - k) * y for x, y in zip(rows[k], rows[k + 1], strict=True)]


class Mask(int):
    """A truth value, of which ~ is the opposite, as of a mask."""

    def __invert__(self) -> Mask:
        return Mask(not self)

    def __and__(self, other: int) -> Mask:
        return Mask(bool(self) and bool(other))

    def __or__(self, other: int) -> Mask:
        return Mask(bool(self) or bool(other))


class Number(float):
    """A float whose comparisons are masks, and whose arithmetic gives such floats."""

    def __lt__(self, other: Any) -> Mask:  # type: ignore[override]
        return Mask(float(self) < float(other))

    def __gt__(self, other: Any) -> Mask:  # type: ignore[override]
        return Mask(float(self) > float(other))


def _of(name: str) -> Callable[..., Any]:
    plain = getattr(float, name)

    def method(self: Any, *others: Any) -> Any:
        found = plain(self, *map(float, others))
        return found if found is NotImplemented else Number(found)

    return method


for _name in ("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "mod", "pow", "neg", "abs"):
    setattr(Number, f"__{_name}__", _of(f"__{_name}__"))


def numbers(x: Any) -> Any:
    """Nested lists and arrays as lists of `Number`."""
    if isinstance(x, np.ndarray):
        x = x.tolist()
    if isinstance(x, Mapping):
        return {k: numbers(v) for k, v in x.items()}
    return [numbers(y) for y in x] if isinstance(x, (list, tuple)) else Number(x)


class Draws:
    """`Random`, with results that are `Number`s."""

    def __init__(self, rng: Random):
        self.rng = rng

    def uniform(self, low: float = 0.0, high: float = 1.0) -> Number:
        return Number(self.rng.uniform(float(low), float(high)))

    def normal(self) -> Number:
        return Number(self.rng.normal())

    def exponential(self, scale: float = 1.0) -> Number:
        return Number(self.rng.exponential(float(scale)))

    def integers(self, *bounds: int) -> Number:
        return Number(self.rng.integers(*bounds))

    def fork(self) -> Callable[[int], Draws]:
        draws = self.rng.fork()
        return lambda i: Draws(draws(int(i)))

    def draw_until(self, draw: Callable[[Draws], Any], ok: Callable[[Any], Any], attempts: int = 1000) -> Any:
        draws = self.fork()
        for i in range(attempts):
            found = draw(draws(i))
            if ok(found):
                break
        return found


def call1(f: Callable[..., float]) -> Callable[..., Number]:
    return lambda *xs: Number(f(*map(float, xs)))


@dataclass
class Outcome:
    reward: Any
    terminated: Any = False
    info: Any = field(default_factory=dict)
    truncated: Any = False
    weights: Any = None
    scale: float = 1.0
    clip: tuple[float, float] = (-math.inf, math.inf)
    metrics: Any = field(default_factory=dict)
    success: Any = None


class Start(SimpleNamespace):
    """What is given, by name."""


class Control(SimpleNamespace):
    """What is given, by name."""


@dataclass(frozen=True)
class Normal:
    std: float


class Task:
    """The defaults of a task's methods."""

    noise: Any = {}  # noqa: RUF012
    history: Any = {}  # noqa: RUF012
    data = "gymnasium"

    def memory(self, m: Any) -> dict:
        return {}

    def tables(self, m: Any) -> dict:
        return {}

    def randomize(self, m: Any, rng: Any, world: Any) -> dict:
        return {}

    def begin(self, m: Any, world: Any) -> dict:
        return {}

    def remember(self, m: Any, before: Any, action: Any, after: Any) -> dict:
        return {}

    def reset_info(self, m: Any, world: Any) -> dict:
        return {}

    def control(self, m: Any, world: Any, action: Any) -> Any:
        return Control(ctrl=action)

    substep_control: Any = None

    def dt(self, m: Any) -> float:
        return m.timestep * self.frame_skip  # type: ignore[attr-defined]


VOCABULARY = {
    "Task": Task, "Outcome": Outcome, "Start": Start, "Control": Control, "Normal": Normal, "dataclass": dataclass,
    "inf": math.inf, "repeat": repeat, "when_any": lambda mask, body, carry: body(carry) if mask else carry,
    "logical_not": lambda x: Mask(not x),
    "select": lambda mask, a, b: Number(a if mask else b), "clip": call1(lambda x, a, b: min(max(x, a), b)),
    "minimum": call1(min), "maximum": call1(max), "power": call1(math.pow), "floor": call1(math.floor),
    **{name: call1(getattr(math, name)) for name in ("sin", "cos", "tanh", "exp", "sqrt", "atan2")},
    "controls": SimpleNamespace(
        delayed=delayed, queued=lambda queue, action: [*queue, *action][len(action) :],
        rate_limited=lambda new, old, most: [min(max(x, y - most), y + most) for x, y in zip(new, old, strict=True)],
    ),
}  # fmt: skip


class Rows:
    """A table: of a row that is not there, the nearest."""

    def __init__(self, rows: Sequence[Any]):
        self.rows = numbers(rows)

    def __getitem__(self, at: float) -> Any:
        return self.rows[min(max(int(at), 0), len(self.rows) - 1)]


class ModelView:
    """What tasks read of an MjModel."""

    def __init__(self, mjm: mujoco.MjModel):
        self.mjm = mjm
        self.nq, self.nv, self.nu, self.na, self.timestep = mjm.nq, mjm.nv, mjm.nu, mjm.na, mjm.opt.timestep

    def body(self, name: str) -> int:
        return self.mjm.body(name).id

    def __getattr__(self, name: str) -> Any:
        return numbers(np.array(getattr(self.mjm.opt if name in ("gravity", "wind") else self.mjm, name)))


class DataView:
    """What tasks read of an MjData, which is not changed any more."""

    def __init__(self, d: mujoco.MjData, wind: np.ndarray):
        self.d, self.wind = d, numbers(wind)

    def __getattr__(self, name: str) -> Any:
        return numbers(np.array(getattr(self.d, name)))


@dataclass
class World:
    qpos: list
    qvel: list
    act: list
    memory: dict
    data: Any
    rng: Draws
    tables: dict
    of: PlainWorld
    kept: dict

    def at(self, qpos: Any, qvel: Any = None, act: Any = None) -> World:
        m = self.of.model
        qvel = [0.0] * m.nv if qvel is None else qvel
        return self.of.world(qpos, qvel, [0.0] * m.na if act is None else act, self.memory, self.rng, self.kept)

    def settled(self, n: int) -> World:
        m, d = self.of.own_model(self.kept), self.of.blank(self.kept)
        d.qpos[:], d.qvel[:], d.act[:] = self.qpos, self.qvel, self.act
        mujoco.mj_step(m, d, n)
        return self.at(d.qpos.tolist(), d.qvel.tolist(), d.act.tolist())


class PlainWorld:
    """One world: its state, its memory, and the model it has."""

    def __init__(self, task: Any, mjm: mujoco.MjModel, index: int):
        self.task, self.loaded, self.index = task, mjm, index
        self.model = copy.copy(mjm)
        self.episode, self.elapsed, self.done = -1, 0, False
        self.key = (0, index, 0)
        view = ModelView(mjm)
        self.first, self.tables = task.memory(view), {k: Rows(x) for k, x in task.tables(view).items()}
        self.memory: dict = numbers(self.first)
        self.kept = self.first_kept()
        self.data = self.blank(self.kept)

    def first_kept(self) -> dict:
        m = self.loaded
        return {
            "mocap_pos": [x.tolist() for i, x in enumerate(m.body_pos) if m.body_mocapid[i] >= 0],
            "mocap_quat": [x.tolist() for i, x in enumerate(m.body_quat) if m.body_mocapid[i] >= 0],
            "eq_active": m.eq_active0.tolist(),
            "wind": self.model.opt.wind.tolist(),
        }

    def set_params(self, values: Mapping[str, Any]) -> None:
        """Give the world's own model these parameters."""
        for name, x in values.items():
            if name == "gravity":
                self.model.opt.gravity[:] = x
            else:
                getattr(self.model, name)[:] = x
        mujoco.mj_setConst(self.model, mujoco.MjData(self.model))

    def random(self, what: int) -> Draws:
        low, index, high = self.key
        return Draws(Random(low, index, self.episode, high, what))

    def own_model(self, kept: dict, actuation: bool = True) -> mujoco.MjModel:
        m = copy.copy(self.model)
        m.opt.wind[:] = kept["wind"]
        if not actuation:
            m.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_ACTUATION
        return m

    def blank(self, kept: dict) -> mujoco.MjData:
        d = mujoco.MjData(self.model)
        self.hold(d, kept)
        return d

    def hold(self, d: mujoco.MjData, kept: dict) -> None:
        for name in ("mocap_pos", "mocap_quat", "eq_active"):
            if len(kept[name]):
                getattr(d, name)[:] = kept[name]

    def kept_with(self, kept: dict, given: Any) -> dict:
        """Return what lasts, with what the task gives."""
        kept = copy.deepcopy(kept)
        for name in ("mocap_pos", "mocap_quat"):
            for body, x in getattr(given, name, {}).items():
                kept[name][self.model.body(body).mocapid[0]] = flat(x)
        for which, x in getattr(given, "eq_active", {}).items():
            kept["eq_active"][self.model.equality(which).id] = int(bool(x))
        if getattr(given, "wind", None) is not None:
            kept["wind"] = flat(given.wind)
        return kept

    def world(self, qpos: Any, qvel: Any, act: Any, memory: dict, rng: Draws, kept: dict) -> World:
        """A world in this state, without control."""
        m, d = self.own_model(kept, self.task.data != "fresh"), self.blank(kept)
        d.qpos[:], d.qvel[:], d.act[:] = flat(qpos), flat(qvel), flat(act)
        mujoco.mj_forward(m, d)
        d.cfrc_ext[:] = 0
        return self.seen(flat(qpos), flat(qvel), flat(act), memory, d, rng, kept)

    def seen(self, qpos: Any, qvel: Any, act: Any, memory: dict, d: Any, rng: Draws, kept: dict) -> World:
        data = DataView(d, np.array(kept["wind"]))
        return World(numbers(qpos), numbers(qvel), numbers(act), numbers(memory), data, rng, self.tables, self, kept)

    # episodes

    def begin(self, params: Mapping[str, Any], by_task: Sequence[str], by_reset: Sequence[str]) -> None:
        """Begin the next episode. params: those that the environment has drawn for it, or that the user has set."""
        self.episode += 1
        last = numbers(self.memory if self.episode else self.first)
        self.set_params({k: np.array(getattr(ModelView(self.loaded), k)) for k in (*by_task, *by_reset)} | dict(params))
        self.by_reset = by_reset
        nominal, rng = copy.copy(self), self.random(-2)
        nominal.model = self.loaded
        drawn = self.task.randomize(ModelView(self.loaded), rng, nominal.blank_world(last, rng))
        self.set_params({k: np.array(v, float) for k, v in drawn.items()})
        rng = self.random(0)
        self.started = start = self.reset(rng, self.blank_world(last, rng))
        self.set_params({k: np.array(v, float) for k, v in getattr(start, "parameters", {}).items()})
        self.kept = self.kept_with(self.first_kept(), start)
        act = flat(getattr(start, "act", [0.0] * self.model.na))
        self.elapsed, self.done, self.sums, self.steps = 0, False, {}, 0
        self.once = 0.0
        self.put(flat(start.qpos), flat(start.qvel), act, last)

    def reset(self, rng: Draws, world: World) -> Any:
        view = ModelView(self.model)
        takes_world = "world" in self.task.reset.__code__.co_varnames[: self.task.reset.__code__.co_argcount]
        return self.task.reset(view, rng, world) if takes_world else self.task.reset(view, rng)

    def put(self, qpos: list, qvel: list, act: list, last: dict) -> None:
        """Begin in this state."""
        self.data = self.blank(self.kept)
        self.data.qpos[:], self.data.qvel[:], self.data.act[:] = qpos, qvel, act
        world = self.world(qpos, qvel, act, last, self.random(-1), self.kept)
        view = ModelView(self.model)
        found = self.task.begin(view, world)
        self.memory = numbers(dict(self.first) | dict(getattr(self.started, "memory", {})) | dict(found))
        world.memory = numbers(self.memory)
        self.obs = self.observe(world, None)
        self.info = {k: flat(v) for k, v in self.task.reset_info(view, world).items()}

    def set_state(self, qpos: list, qvel: list, act: list) -> None:
        """Put the world into another state, within its episode."""
        last, rng = numbers(self.memory), self.random(0)
        again = copy.copy(self)
        again.model = copy.copy(self.model)
        again.set_params({k: np.array(getattr(ModelView(self.loaded), k)) for k in self.by_reset})
        # what `reset` gave is found again, from what the world remembers now
        self.started = again.reset(rng, again.blank_world(last, rng))
        self.put(qpos, qvel, act, last)

    def blank_world(self, last: dict, rng: Draws) -> World:
        """The world before an episode."""
        m = self.model
        return self.world(m.qpos0, [0.0] * m.nv, [0.0] * m.na, last, rng, self.first_kept())

    def observe(self, world: World, before: dict | None) -> list[float]:
        seen = self.task.observe(ModelView(self.model), world)
        grouped = isinstance(seen, Mapping) and any(isinstance(x, Mapping) for x in seen.values())
        out, old, self.histories = [], before or {}, {}
        noises, histories = self.task.noise, self.task.history
        groups = seen if grouped else {"policy": seen}
        for group, entries in groups.items():
            for name, x in entries.items() if isinstance(entries, Mapping) else ((None, entries),):
                values = flat(x)
                if group == "policy" and name in noises:
                    given = noises[name]
                    std = flat(given.std if isinstance(given, Normal) else given)
                    std = std * len(values) if len(std) == 1 else std
                    normal = isinstance(given, Normal)
                    values = [
                        v if not s else v + (s * world.rng.normal() if normal else world.rng.uniform(-s, s))
                        for v, s in zip(values, std, strict=True)
                    ]
                k = histories.get(name, 0) if group == "policy" else 0
                if k:
                    past = [*old[name][1:], values] if before is not None else [values] * k
                    self.histories[name] = past
                    values = [y for step in past for y in step]
                out += values
        return [float(x) for x in out]

    def step(self, action: list[float], limit: int | None) -> dict[str, Any]:
        """Make a step of the task. Return its reward, flags and info; `obs` is the observation."""
        task, m, d = self.task, self.model, self.data
        view, self.elapsed = ModelView(m), self.elapsed + 1
        rng, action = self.random(self.elapsed), numbers(action)
        before = self.world(d.qpos, d.qvel, d.act, self.memory, rng, self.kept)
        given = task.control(view, before, list(action))
        given = given if isinstance(given, Control) else Control(ctrl=given)
        self.kept = self.kept_with(self.kept, given)
        d.qfrc_applied[:], d.xfrc_applied[:] = 0, 0
        pushes = self.pushes(given)
        if getattr(given, "qpos", None) is not None:
            d.qpos[:] = flat(given.qpos)
        if getattr(given, "qvel", None) is not None:
            d.qvel += flat(given.qvel)
        ctrl, left = flat(given.ctrl), {}
        draws = rng.fork() if task.substep_control else None
        for i in range(task.frame_skip):
            total = pushes
            if draws:
                here = self.world(d.qpos, d.qvel, d.act, before.memory | left, draws(i), self.kept)
                own = task.substep_control(view, here, numbers(given.ctrl))
                own = own if isinstance(own, Control) else Control(ctrl=own)
                ctrl, left = flat(own.ctrl), left | getattr(own, "memory", {})
                self.kept = self.kept_with(self.kept, own)
                total = [x + y for x, y in zip(pushes, self.pushes(own), strict=True)]
            self.hold(d, self.kept)
            d.ctrl[:] = ctrl
            d.qfrc_applied[:], d.xfrc_applied[:] = total
            model = self.own_model(self.kept)
            mujoco.mj_step(model, d)
        shown = copy.copy(d)
        if task.data == "gymnasium":
            mujoco.mj_rnePostConstraint(model, shown)
        elif task.data == "fresh":
            mujoco.mj_step1(model, shown)
        else:
            mujoco.mj_forward(model, shown)
        after = self.seen(d.qpos, d.qvel, d.act, numbers(before.memory | left), shown, rng, self.kept)
        self.memory = numbers(before.memory | left | dict(task.remember(view, before, list(action), after)))
        after.memory = numbers(self.memory)
        found = task.outcome(view, before, list(action), after)
        self.ctrl = ctrl
        result = self.judged(found, limit)
        self.obs = self.observe(after, self.histories)
        return result

    def pushes(self, given: Any) -> list[np.ndarray]:
        m = self.model
        qfrc, xfrc = np.zeros(m.nv), np.zeros((m.nbody, 6))
        if getattr(given, "qfrc_applied", None) is not None:
            qfrc += flat(given.qfrc_applied)
        for body, x in getattr(given, "xfrc_applied", {}).items():
            xfrc[m.body(body).id] += flat(x)
        return [qfrc, xfrc]

    def judged(self, found: Outcome, limit: int | None) -> dict[str, Any]:
        info: dict[str, list[float]] = {k: flat(v) for k, v in found.info.items() if v != []}
        self.steps += 1
        terms = {}
        if isinstance(found.reward, Mapping):
            weights = dict(found.weights) if found.weights is not None else dict.fromkeys(found.reward, 1.0)
            terms = {k: weights[k] * x * found.scale for k, x in found.reward.items()}
            reward = sum(terms.values())
        else:
            reward = found.reward * found.scale
        reward = min(max(reward, found.clip[0]), found.clip[1])
        late = limit is not None and self.elapsed >= limit
        reasons: dict[str, bool] = {}
        named = any(isinstance(x, Mapping) for x in (found.terminated, found.truncated))
        ends = {}
        for what, x in (("terminated", found.terminated), ("truncated", found.truncated)):
            given = x if isinstance(x, Mapping) else {} if x is False else {what: x}
            reasons |= {k: bool(v) for k, v in given.items()}
            ends[what] = any(map(bool, given.values()))
        for prefix, given in (("reward", terms), ("mean", found.metrics)):
            for k, x in given.items():
                self.sums[prefix, k] = self.sums.get((prefix, k), 0.0) + x
        logged = {f"episode_reward/{k}": [self.sums["reward", k]] for k in terms}
        logged |= {f"episode_mean/{k}": [self.sums["mean", k] / self.steps] for k in found.metrics}
        if found.success is not None:
            now = float(bool(found.success))
            self.once = max(self.once, now)
            logged |= {"episode_success/once": [self.once], "episode_success/at_end": [now]}
        if logged or named:
            logged["episode_length"] = [float(self.steps)]
        if named:
            reasons |= ({"time_limit": late} if limit is not None else {}) | {"bad_state": False}
            logged |= {f"episode_end/{k}": [float(x)] for k, x in reasons.items()}
        self.info = info | logged
        return {
            "reward": float(reward), "terminated": ends["terminated"], "truncated": ends["truncated"] or late,
            "info": self.info,
        }  # fmt: skip


def plain_task(source: str, more: Mapping[str, Any]) -> Any:
    """Make the task of this source."""
    space: dict[str, Any] = VOCABULARY | dict(more) | {"abs": abs}
    exec(compile("from __future__ import annotations\n" + source, "<plain>", "exec"), space)
    return space["Drawn"]()

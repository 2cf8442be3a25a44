"""An environment step of one world, as it is traced into a kernel: guard, advance, judge, restart.

- `guard`: a world whose action or state is not finite (or passes mjMAXVAL) will go on from good numbers, flagged.
- `advance`: the action is applied for all substeps. A world that comes out bad stays at its last good state.
- `judge`: observation, reward, flags and info of the step. A bad world is ended with reward 0; no other can tell.
- `restart`: where an episode ended, and the autoreset mode asks for it, the next one begins within the same kernel.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gymnasium.vector import AutoresetMode

from ..compiler import source
from ..compiler.control import choose_all, when_any
from ..compiler.program import Buffer, Program, record
from ..compiler.random import Random, Word
from ..compiler.scalar import Mask, Scalar, absolute, logical_and, logical_not, logical_or, select
from ..physics.algebra.spatial import MAXVAL
from ..physics.model.model import Model, is_plain
from ..physics.model.precision import Precision
from ..physics.model.state import State
from ..physics.params import Columns, check_names, sensible
from ..physics.pipeline import OF_SENSORS, derive
from ..physics.step import left_by_step, steps
from ..physics.world_params import param_buffers
from .contract import BAD_STATE, Contract, Widths, by_name, flatten
from .randomization import Draw, flat
from .tasks.base import Task, World


@dataclass(frozen=True)
class Layout:
    """The widths of a task's buffers, and the names in its info."""

    nq: int
    nv: int
    nu: int
    na: int
    obs: int
    memory: Widths
    info: Widths  # of each name of the next two together
    step_info: tuple[str, ...]
    reset_info: tuple[str, ...]
    params: Columns | None  # where parameters that vary from world to world lie

    def buffers(self) -> list[Buffer]:
        """State is world-minor; what users hand in and out has a row per world."""
        params = param_buffers(self.params) if self.params else []
        act = [Buffer("act", self.na)] if self.na else []
        return params + [
            Buffer("qpos", self.nq),
            Buffer("qvel", self.nv),
            Buffer("qacc_warmstart", self.nv),
            *act,
            Buffer("memory", room(self.memory)),
            Buffer("elapsed_steps", 1, "i"),
            Buffer("episode", 1, "i"),
            Buffer("key", 3, "i"),
            Buffer("done", 1, "b"),
            Buffer("reset_mask", 1, "b"),
            Buffer("action", self.nu, rows=True),
            Buffer("obs", self.obs, rows=True),
            Buffer("final_obs", self.obs, rows=True),
            Buffer("reward", 1),
            Buffer("terminated", 1, "b"),
            Buffer("truncated", 1, "b"),
            Buffer(BAD_STATE, 1, "b"),
            Buffer("info", room(self.info)),
            Buffer("final_info", room(self.info)),
        ]


Buffers = Mapping[str, list]  # what they hold of a world, by name


@dataclass
class Moment:
    """What a world carries from one step to the next."""

    qpos: list
    qvel: list
    qacc_warmstart: list
    act: list
    memory: list
    params: list = field(default_factory=list)
    derived: list = field(default_factory=list)


@dataclass
class Scene:
    """Where a world is in its episode, and what users see of that."""

    elapsed: Scalar
    episode: Word
    info: list
    obs: list
    moment: Moment


@dataclass
class Verdict:
    """What a step came to."""

    reward: Scalar
    terminated: Mask
    truncated: Mask
    bad: Mask

    @property
    def ended(self) -> Mask:
        return logical_or(self.terminated, self.truncated)


def room(widths: Widths) -> int:
    """How many numbers these are."""
    return sum(max(1, width) for width in widths.values())


# What a stream of random numbers is for, beside the steps of an episode, which are counted from 1.
RESET, BEGIN, PARAMS = 0, -1, -2


def random(b: Buffers, episode: Word, what: Word) -> Random:
    """A function of seed, world, number of the episode, and `what`."""
    return Random(b["key"][0], b["key"][1], episode, b["key"][2], what)


def is_bad(xs: list) -> Mask:
    """Any of them not finite, or beyond mjMAXVAL. mj_checkPos, mj_checkVel, mj_checkAcc."""
    return logical_not(logical_and(*(absolute(x) <= MAXVAL for x in xs)))


def is_known(x: Task | Draw) -> bool:
    """Whether class and values tell all of it: it is of this package, and nobody put a function on it, say."""
    return source.holds(type(x)) and all(map(is_plain, vars(x).values()))


@dataclass(frozen=True)
class Episode:
    """The episodes of one task: what its kernels `step`, `reset` and `refresh` do in each world."""

    task: Task
    model: Model
    mode: AutoresetMode
    max_episode_steps: int | None
    precision: Precision
    randomize: Mapping[str, Draw] = field(default_factory=dict)
    vary: tuple[str, ...] = ()  # beside what is randomised

    # the model of a world

    @functools.cached_property
    def params(self) -> Columns | None:
        """What varies from world to world."""
        by_task = self.contract.randomize(Random(0, 0))
        m, names = self.model, check_names(self.model, {*self.vary, *self.randomize, *by_task})
        if not names:
            return None
        columns = Columns(m, names)
        for end in (0, 1):
            nominal = columns.nominal()
            params: list[Scalar] = [*nominal]
            for name, draw in self.randomize.items():
                at, ends = columns.places()[name], draw.bounds(name, columns.shapes[name])[end]
                params[at] = map(draw.applied, nominal[at], ends)
            for name, rule, holds in sensible(m, columns.values(params)):
                if not holds and name in self.randomize:
                    raise ValueError(f"randomize {name!r} can give values that make no sense: {rule}")
        return columns

    def of_world(self, params: list, derived: list) -> Episode:
        """The same with a world's own model."""
        if self.params is None:
            return self
        own = replace(self, model=self.params.world(params, derived))
        vars(own).update(params=self.params, layout=self.layout)
        return own

    def draw(self, b: Buffers, episode: Word) -> tuple[list, list]:
        """The parameters of a new episode, and what is derived from them."""
        columns = self.params
        if columns is None:
            return [], []
        rng, nominal = random(b, episode, PARAMS), columns.nominal()
        by_task = Contract(self.task, columns.model).randomize(rng)
        if not (by_task or self.randomize):
            return b["params"], b["derived"]
        params = list(b["params"])
        for name, at in columns.places().items():
            if name in self.randomize:
                params[at] = self.randomize[name].draw(name, nominal[at], columns.shapes[name], rng)
            elif name in by_task:
                params[at] = by_task[name]
        return params, columns.derive(params)

    # how an episode begins

    def begin(self, b: Buffers) -> Scene:
        """A new episode."""
        episode = b["episode"][0]
        params, derived = self.draw(b, episode)
        own = self.of_world(params, derived)
        scene = own.enter(b, episode, *own.contract.reset(random(b, episode, RESET)), [0.0] * self.model.na)
        scene.moment.params, scene.moment.derived = params, derived
        return scene

    def enter(self, b: Buffers, episode: Word, qpos: list, qvel: list, act: list) -> Scene:
        """An episode of this number that begins in this state."""
        world = self.at_rest(qpos, qvel, act, random(b, episode, BEGIN))
        memory = self.first_memory(b, world)
        world.memory = by_name(self.layout.memory, memory)
        obs = self.contract.observe(world, self.layout.obs)
        info = flatten(self.layout.info, self.contract.reset_info(world))
        return Scene(0, b["episode"][0] + 1, info, obs, Moment(qpos, qvel, [0.0] * self.model.nv, act, memory))

    def at_rest(self, qpos: list, qvel: list, act: list, rng: Random) -> World:
        """A world that was put into a state: mj_forward has run, but not mj_rnePostConstraint."""
        m = self.model
        still = [0.0] * m.nu
        data = derive(m, qpos, qvel, None, still, self.precision, act)
        data.take(OF_SENSORS, derive(m, qpos, qvel, None, still, self.precision, act))
        data.cfrc_ext = [[0.0] * 6 for _ in range(m.nbody)]
        return World(qpos, qvel, {}, data, rng, act)

    def first_memory(self, b: Buffers, world: World) -> list:
        """That of an episode which begins like this."""
        widths, first = self.contract.memory()
        if not widths:
            return []
        seeded = b["episode"][0] < 1  # there was no episode since
        world.memory = by_name(widths, choose_all(seeded, first, b["memory"]))
        return self.contract.begin(widths, first, world)

    def kept_memory(self, b: Buffers, old: Moment, bad: Mask) -> list:
        """The memory that a step starts with: a new one, where the state was bad."""

        def anew(_: list) -> list:
            rng = random(b, b["episode"][0] + -1, BEGIN)
            return self.first_memory(b, self.at_rest(old.qpos, old.qvel, old.act, rng))

        return when_any(bad, anew, old.memory) if old.memory else []

    # what a step does, in this order

    def guard(self, b: Buffers) -> tuple[Moment, list, Mask, Mask]:
        """The state and action to go on from, and where the state and the action were bad."""
        m = self.model
        act = b.get("act", [])
        bad_action, bad_state = is_bad(b["action"]), is_bad(b["qpos"] + b["qvel"] + b["qacc_warmstart"] + act)
        zeros = [0.0] * m.nv
        moment = Moment(
            choose_all(bad_state, list(m.qpos0), b["qpos"]),
            choose_all(bad_state, zeros, b["qvel"]),
            choose_all(bad_state, zeros, b["qacc_warmstart"]),
            choose_all(bad_state, [0.0] * m.na, act),
            b["memory"],
            b.get("params", []),
            b.get("derived", []),
        )
        action = choose_all(bad_action, [0.0] * m.nu, b["action"])
        return moment, action, bad_state, bad_action

    def advance(
        self, old: Moment, ctrl: list, pushes: dict[str, list], rng: Random, *bad: Mask
    ) -> tuple[Moment, World, Mask]:
        """All substeps: what they led to, which is the old state where anything was `bad` or became so, and where."""
        m = self.model
        begun = State(old.qpos, old.qvel, old.qacc_warmstart, old.act)
        moved = steps(m, begun, ctrl, self.task.frame_skip, self.precision, **pushes)
        stopped = logical_or(*bad, is_bad(moved.qpos + moved.qvel + moved.qacc_warmstart + moved.act))
        state = choose_all(stopped, begun.unmoved(m.nbody), moved)
        new = replace(old, qpos=state.qpos, qvel=state.qvel, qacc_warmstart=state.qacc_warmstart, act=state.act)
        data = left_by_step(m, state, ctrl, self.precision, **pushes)
        return new, World(new.qpos, new.qvel, {}, data, rng, new.act), stopped

    def control(self, before: World, action: list) -> tuple[list, dict[str, list], Mask]:
        """ctrl, pushes, and where they are bad."""
        if not self.contract.controls:
            return action, {}, False
        ctrl, pushes = self.contract.control(before, action)
        bad = is_bad(ctrl + flat(list(pushes.values())))

        def held(x: Any) -> Any:
            return [held(y) for y in x] if isinstance(x, list) else select(bad, 0.0, x)

        return held(ctrl), {name: held(x) for name, x in pushes.items()}, bad

    def remember(self, before: World, action: list, after: World, stopped: Mask) -> list:
        """The memory after the step; a world that was stopped keeps its own."""
        widths = self.layout.memory
        memory = self.contract.remember(widths, before, action, after)
        return choose_all(stopped, flatten(widths, before.memory), memory)

    def judge(self, b: Buffers, before: World, action: list, after: World, bad: Mask) -> tuple[Verdict, list, list]:
        """The verdict, the observation and info."""
        outcome = self.contract.outcome(before, action, after)
        limit = self.max_episode_steps
        verdict = Verdict(
            select(bad, 0.0, outcome.reward),
            logical_or(outcome.terminated, bad),
            False if limit is None else logical_not(b["elapsed_steps"][0] + 1 < limit),
            bad,
        )
        obs = self.contract.observe(after, self.layout.obs)
        return verdict, obs, flatten(self.layout.info, outcome.info)

    def restart(self, b: Buffers, mask: Mask, scene: Scene) -> Scene:
        """The scene, but with a new episode in the worlds of the mask."""
        return when_any(mask, lambda _: self.begin(b), scene)

    # the kernels

    def step(self, b: Buffers) -> dict[str, list]:
        """One environment step of every world, autoreset included."""
        widths, elapsed = self.layout.memory, b["elapsed_steps"][0] + 1
        rng = random(b, b["episode"][0] + -1, elapsed)
        old, action, bad_state, bad_action = self.guard(b)
        before = self.at_rest(old.qpos, old.qvel, old.act, rng)
        before.memory = by_name(widths, self.kept_memory(b, old, bad_state))
        ctrl, pushes, bad_ctrl = self.control(before, action)
        new, after, bad = self.advance(old, ctrl, pushes, rng, bad_action, bad_state, bad_ctrl)
        new.memory = self.remember(before, action, after, bad)
        after.memory = by_name(widths, new.memory)
        verdict, obs, info = self.judge(b, before, action, after, bad)
        scene = Scene(elapsed, b["episode"][0], info, obs, new)
        done, final = verdict.ended, {}
        if self.mode == AutoresetMode.SAME_STEP:
            final = {"final_obs": scene.obs, "final_info": scene.info}
            scene = self.restart(b, verdict.ended, scene)
            done = False
        elif self.mode == AutoresetMode.NEXT_STEP:
            waiting = b["done"][0]
            scene = self.restart(b, waiting, scene)
            alive = logical_not(waiting)
            verdict.reward = select(waiting, 0.0, verdict.reward)
            for flag in ("terminated", "truncated", "bad"):
                setattr(verdict, flag, logical_and(getattr(verdict, flag), alive))
            done = logical_and(done, alive)
        return {
            **{name: x for name, x in vars(scene.moment).items() if name in b},
            "elapsed_steps": [scene.elapsed],
            "episode": [scene.episode],
            "done": [done],
            "obs": scene.obs,
            "reward": [verdict.reward],
            "terminated": [verdict.terminated],
            "truncated": [verdict.truncated],
            BAD_STATE: [verdict.bad],
            "info": scene.info,
        } | final

    def reset(self, b: Buffers) -> dict[str, list]:
        """New episodes in the worlds of `reset_mask`; the others stay as they are."""
        mask, scene = b["reset_mask"][0], self.begin(b)
        return {
            **{name: choose_all(mask, x, b[name]) for name, x in vars(scene.moment).items() if name in b},
            "elapsed_steps": [select(mask, scene.elapsed, b["elapsed_steps"][0])],
            "episode": [select(mask, scene.episode, b["episode"][0])],
            "done": [logical_and(b["done"][0], logical_not(mask))],
            "obs": choose_all(mask, scene.obs, b["obs"]),
            "info": choose_all(mask, scene.info, b["info"]),
        }

    def refresh(self, b: Buffers) -> dict[str, list]:
        """What follows from the state of the worlds of `reset_mask`, after it was set from outside."""
        state = b["qpos"], b["qvel"], b.get("act", [])
        mask, scene = b["reset_mask"][0], self.enter(b, b["episode"][0] + -1, *state)
        return {
            "memory": choose_all(mask, scene.moment.memory, b["memory"]),
            "obs": choose_all(mask, scene.obs, b["obs"]),
            "info": choose_all(mask, scene.info, b["info"]),
        }

    # what they are made of, and from

    @property
    def contract(self) -> Contract:
        """The task's functions, what they give checked."""
        return Contract(self.task, self.model)

    @functools.cached_property
    def layout(self) -> Layout:
        """Found by running the task once: one of this package's, known to work, on plain numbers, as that is faster."""
        if is_known(self.task):
            m = self.model
            return self.look(Random(0, 0), [0.0] * m.nu, list(m.qpos0), [0.0] * m.nv)
        found = []
        buffers = [Buffer("word", 5, "i"), Buffer("action", self.model.nu)]

        def look(b: Buffers) -> dict[str, list]:
            rng = Random(*b["word"])
            found.append(self.look(rng, b["action"], *self.contract.reset(rng)))
            return {}

        record(self.name("layout"), buffers, look, "float64").release()
        return found[0]

    def look(self, rng: Random, action: list, qpos: list, qvel: list) -> Layout:
        """The layout, as all of the task's functions together show it."""
        m, contract = self.model, self.contract
        memory, first = contract.memory()
        before = self.at_rest(qpos, qvel, [0.0] * m.na, rng)
        before.memory = by_name(memory, first)
        before.memory = by_name(memory, contract.begin(memory, first, before))
        obs = contract.observe(before)
        reset_info = contract.reset_info(before)
        contract.control(before, action)
        after = replace(before, memory=by_name(memory, contract.remember(memory, before, action, before)))
        step_info = contract.outcome(before, action, after).info
        contract.observe(after, len(obs))
        info = contract.same_widths(reset_info, step_info)
        names = tuple(step_info), tuple(reset_info)
        return Layout(m.nq, m.nv, m.nu, m.na, len(obs), memory, info, *names, self.params)

    def name(self, what: str) -> str:
        return f"{type(self.task).__name__.lower()}-{what}"

    def origin(self) -> str | None:
        """All that the kernels follow from; None for a user's task, whose Python rests on more than can be known."""
        if not (is_known(self.task) and all(map(is_known, self.randomize.values()))):
            return None
        task = f"{type(self.task).__qualname__} {vars(self.task)}"
        varied = f"{self.params and self.params.names} {self.randomize}"
        how = f"{self.mode} {self.max_episode_steps!r} {self.precision} {varied}"
        return source.origin(task, self.model.key, how)

    def program(self, what: str, dtype: str) -> Program:
        """The kernel `step`, `reset` or `refresh`, recorded."""

        def body(b: Buffers) -> dict[str, list]:
            own = self.of_world(b["params"], b["derived"]) if self.params else self
            return getattr(own, what)(b)

        return record(self.name(what), self.layout.buffers(), body, dtype)

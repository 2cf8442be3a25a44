"""One environment step of one world, as it is traced into a kernel: guard, advance, judge, restart.

- `guard`: a world whose action or state is not finite (or passes mjMAXVAL) goes on from good numbers, and is flagged.
- `advance`: the action is applied for all substeps. A world that turns bad stays at its last good state.
- `judge`: observation, reward, flags and info of the step. A bad world is ended with reward 0; others are unaffected.
- `restart`: where an episode ended and the autoreset mode asks for it, the next one begins within the same kernel.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from ..compiler import source
from ..compiler.arrays import NumberTable, RowTable
from ..compiler.control import choose_all, when_any
from ..compiler.program import Buffer, Program, record
from ..compiler.random import Random, Word
from ..compiler.scalar import Mask, Scalar, absolute, logical_and, logical_not, logical_or, maximum, select
from ..physics.algebra.nested import leaves
from ..physics.algebra.spatial import MAXVAL
from ..physics.columns import Columns
from ..physics.model.model import Model, is_plain
from ..physics.model.precision import Precision
from ..physics.model.state import State
from ..physics.pipeline import OF_SENSORS, derive
from ..physics.step import Controlled, controlled_steps, forwarded, left_by_step, no_pushes, refreshed, steps, with_more
from ..physics.world_params import param_buffers
from .contract import Contract, Placed, Verdict
from .entries import BAD_STATE, OWN_REASONS, SUCCESSES, TIME_LIMIT, entries
from .kept import Held, Kept
from .layout import TABLE, BufferLayout, table_buffers
from .packing import Named, by_name, flatten, size_of
from .randomization import Draw
from .records import EpisodeState, StepResult, WorldState
from .task_view import NotThere, copy_for_task
from .tasks.base import Start, Task, World
from .varying import columns_of, redrawn

Buffers = Mapping[str, list[Any]]  # one world's numbers in each buffer, by name: scalars, masks and words

# The purposes of streams of random numbers. An episode's steps have streams, too, numbered from 1.
RESET, BEGIN, PARAMS = 0, -1, -2

AFTER = {"gymnasium": left_by_step, "fresh": refreshed, "forward": forwarded}  # mjData after a step: see `Task.data`


def random(b: Buffers, number: Word, what: Word) -> Random:
    """Return a world's random numbers for one purpose: a function of seed, world, episode number and `what`."""
    return Random(b["key"][0], b["key"][1], number, b["key"][2], what)


def is_bad(xs: list[Scalar]) -> Mask:
    """True where any number is not finite, or beyond mjMAXVAL, as in mj_checkPos, mj_checkVel and mj_checkAcc."""
    return logical_not(logical_and(*(absolute(x) <= MAXVAL for x in xs)))


def is_known(x: Task | Draw) -> bool:
    """Return whether class and fields identify a task or draw: its class is this package's, its fields plain values."""
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
    vary: tuple[str, ...] = ()  # in addition to what is randomised
    shows_end: bool = False  # whether a step also outputs the state before any reset
    own: tuple[list[Scalar], list[Scalar]] = ([], [])  # one world's parameters, and the numbers derived from them
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)  # the task's tables
    buffered: Mapping[str, RowTable] = field(default_factory=dict)  # the same as buffers of the kernel being traced

    @functools.cached_property
    def tables(self) -> Mapping[str, RowTable]:
        """The tables that the task's functions read."""
        return self.buffered or {name: NumberTable(x) for name, x in self.arrays.items()}

    # the model of a world

    @functools.cached_property
    def params(self) -> Columns | None:
        """The parameters that vary from world to world; None if none does."""
        by_task = self.contract.randomize(self.before_first(Random(0, 0)))
        return columns_of(self.model, self.task, self.vary, self.randomize, by_task)

    def of_world(self, params: list[Scalar], derived: list[Scalar]) -> Episode:
        """Return this episode with a world's own model, made from its parameters."""
        if self.params is None:
            return self
        return self._but(model=self.params.world(params, derived), own=(params, derived))

    def with_tables(self, b: Buffers) -> Episode:
        """Return this episode with the tables of a kernel that is traced."""
        found = {name: RowTable(b[TABLE + name], x.shape) for name, x in self.arrays.items()}
        return self._but(buffered=found) if found else self

    def differentiable(self) -> Episode:
        """Return this episode for a program that is differentiated."""
        return self._but(precision=self.precision.differentiable)

    def _but(self, **fields: Any) -> Episode:
        """Return this episode with these fields changed. The layout must not depend on them."""
        own = replace(self, **fields)
        vars(own).update({name: x for name, x in vars(self).items() if name in ("params", "layout")})
        return own

    def with_parameters(self, parameters: Mapping[str, list[Scalar]]) -> Episode:
        """Return this episode with other values of some parameters in a world's own model.

        Raises ValueError for parameters that do not vary.
        """
        if not parameters:
            return self
        columns = self.params
        if unknown := [name for name in parameters if columns is None or name not in columns.names]:
            raise ValueError(f"{unknown[0]!r} does not vary: name it in the task's reset_parameters")
        assert columns
        params = list(self.own[0] or columns.nominal())
        for name, x in parameters.items():
            if others := columns.changed_rows(name, x):
                raise self.contract.error("reset", ValueError, (
                    f"parameters change {name} of {', '.join(map(repr, others))}, and the task's reset_parameters only "
                    f"names {self.task.reset_parameters[name]}"  # type: ignore[call-overload]
                ))  # fmt: skip
            params[columns.places()[name]] = x
        return self.of_world(params, columns.derive(params))

    def draw(self, b: Buffers, number: Word) -> tuple[list[Scalar], list[Scalar]]:
        """Return the parameters of a new episode before its `reset` sets some, and the numbers derived from them."""
        columns = self.params
        if columns is None:
            return [], []
        rng, nominal = random(b, number, PARAMS), replace(self, model=columns.model)
        by_task = nominal.contract.randomize(nominal.before_reset(b, rng))
        params = redrawn(columns, self.task, self.vary, self.randomize, by_task, b["params"], rng)
        return (b["params"], b["derived"]) if params is None else (params, columns.derive(params))

    # how an episode begins

    def begin(self, b: Buffers) -> EpisodeState:
        """Begin a new episode."""
        number = b["episode"][0]
        params, derived = self.draw(b, number)
        drawn = self.of_world(params, derived)
        start = drawn.start(b, number)
        own = drawn.with_parameters(start.parameters)
        kept = own.kept.with_inputs(own.kept.first, start.held)
        episode = own.begin_at(b, number, start.qpos, start.qvel, start.act, kept, start.memory)
        episode.world.params, episode.world.derived = own.own if own.own[0] else (params, derived)
        return episode

    def start(self, b: Buffers, number: Word) -> Placed:
        """Return what the task's `reset` gives for the episode of this number, or has already given."""
        if "next_start" not in b:
            return self.contract.reset(self.before_reset(b, random(b, number, RESET)))
        known, m, ahead = b["next_episode"][0], self.model, b["next_start"]  # known counts from 1: 0 is none
        missing = logical_or(known < number + 1, known > number + 1)
        start = when_any(missing, lambda _: self.start_ahead(b, number), ahead)
        return Placed(start[: m.nq], start[m.nq : m.nq + m.nv], start[m.nq + m.nv :], {}, {}, {})

    def start_ahead(self, b: Buffers, number: Word) -> list[Scalar]:
        """Return positions, velocities and activations with which the episode of this number begins.

        Raises ValueError if the task's `reset` gives more than these.
        """
        world = self.before_first(random(b, number, RESET))
        world.memory = NotThere("with resets_ahead, a reset is computed before the episode before it has ended")
        start = self.contract.reset(world)
        if start.memory or start.parameters or start.held:
            text = "must give positions, velocities and activations alone where the task has resets_ahead"
            raise self.contract.error("reset", ValueError, text)
        return start.qpos + start.qvel + start.act

    def begin_at(
        self,
        b: Buffers,
        number: Word,
        qpos: list[Scalar],
        qvel: list[Scalar],
        act: list[Scalar],
        kept: list[Scalar],
        placed: Named | None = None,
    ) -> EpisodeState:
        """Begin the episode of this number in this state, with the memory that its reset gave, if that is known."""
        world = self.world_at(qpos, qvel, act, random(b, number, BEGIN), kept if self.kept.inputs else ())
        memory = self.first_memory(b, number, world, placed)
        world.memory = by_name(self.layout.memory, memory)
        obs = self.observe(world, None)
        info = flatten(self.layout.info, self.contract.reset_info(world))
        state = WorldState(qpos, qvel, [0.0] * self.model.nv, act, memory, kept=kept)
        state.ctrl += [0.0] * len(b.get("ctrl", []))
        state.episode_sums += [0.0] * len(b.get("episode_sums", []))
        state.history = self.layout.observation.newest(obs)
        return EpisodeState(0, b["episode"][0] + 1, info, obs, state)

    def observe(self, world: World, history: list[Scalar] | None) -> list[Scalar]:
        """Return the observation: `history` (None when an episode begins), then the task's numbers with noise."""
        seen = self.layout.observation
        _, values = self.contract.observe(world, seen.shapes)
        return seen.row(seen.noisy(values, world.rng), history)

    def world_at(
        self, qpos: list[Scalar], qvel: list[Scalar], act: list[Scalar], rng: Random, kept: Sequence[Scalar] = ()
    ) -> World:
        """Return a world that was put into a state, after mj_forward, but without mj_rnePostConstraint.

        If the task's data are dm_control's, actuators do nothing in that evaluation. kept: see `WorldState`; by default
        the initial numbers.
        """
        m = replace(self.model, actuation=False) if self.task.data == "fresh" else self.model
        still = [0.0] * m.nu
        kept = kept or (self.kept.first if self.kept.inputs else ())
        given = self.kept.by_name(kept)
        data = derive(m, qpos, qvel, None, still, self.precision, act, **given)
        data.take(OF_SENSORS, derive(m, qpos, qvel, None, still, self.precision, act, **given))
        data.cfrc_ext = [[0.0] * 6 for _ in range(m.nbody)]
        return World(qpos, qvel, {}, data, rng, act, self.tables, self, kept)

    def put(self, world: World, start: Start) -> World:
        """Return this world in another state, as `World.at` does."""
        if start.parameters:
            given = Contract(self.task, (self.params or self).model).parameters("world.at", start.parameters)
            return self.with_parameters(given).put(world, replace(start, parameters={}))
        m, act = self.model, [0.0] * self.model.na if start.act is None else start.act
        for name, x, n in (("qpos", start.qpos, m.nq), ("qvel", start.qvel, m.nv), ("act", act, m.na)):
            if len(x) != n:
                raise ValueError(f"world.at was given {len(x)} numbers for {name}, and the model has {n}")
        kept = self.kept.with_inputs(self.kept.begun_anew(world._kept), self.contract.held("world.at", start))
        found: World = copy_for_task(self.world_at(list(start.qpos), list(start.qvel), list(act), world.rng, kept))
        return replace(found, memory=world.memory)

    def settled(self, world: World, substeps: int, ctrl: list[Scalar] | None) -> World:
        """Return this world after substeps of physics, as `World.settled` does."""
        m = self.model
        begun = State(world.qpos, world.qvel, [0.0] * m.nv, world.act)
        pushes = self.kept.inputs_of(self.kept.begun_anew(world._kept))
        end = steps(m, begun, [0.0] * m.nu if ctrl is None else ctrl, substeps, self.precision, **pushes)
        return self.put(world, Start(end.qpos, end.qvel, end.act))

    def before_first(self, rng: Random) -> World:
        """Return a world before its first episode: at qpos0, at rest, with the memory that the task declares."""
        m = self.model
        world = self.world_at(list(m.qpos0), [0.0] * m.nv, [0.0] * m.na, rng)
        world.memory = by_name(*self.contract.memory())
        return world

    def before_reset(self, b: Buffers, rng: Random) -> World:
        """Return a world between two episodes: at qpos0, at rest, with the memory of the episode before."""
        world = self.before_first(rng)
        world.memory = self.last_memory(b)
        return world

    def last_memory(self, b: Buffers) -> Named:
        """Return the memory of the episode before; in a world's first episode, the memory that the task declares."""
        widths, first = self.contract.memory()
        if not widths:
            return {}
        seeded = b["episode"][0] < 1  # no episode has begun since
        return by_name(widths, choose_all(seeded, first, b["memory"]))

    def first_memory(self, b: Buffers, number: Word, world: World, placed: Named | None = None) -> list[Scalar]:
        """Return the memory of the episode of this number, which begins in this world; its reset gave `placed`."""
        widths, first = self.contract.memory()
        if not widths:
            return []
        if placed is None:
            drawn = self.of_world(*self.draw(b, number)) if self.task.reset_parameters else self
            placed = drawn.start(b, number).memory
        world.memory = self.last_memory(b)
        return self.contract.begin(widths, flatten(widths, by_name(widths, first) | placed), world)

    def memory_before_step(self, b: Buffers, old: WorldState, bad: Mask) -> list[Scalar]:
        """Return the memory that a step starts with: a new one if the state was bad."""

        def renewed(_: list[Scalar]) -> list[Scalar]:
            number = b["episode"][0] + -1
            world = self.world_at(old.qpos, old.qvel, old.act, random(b, number, BEGIN), old.kept)
            return self.first_memory(b, number, world)

        return when_any(bad, renewed, old.memory) if old.memory else []

    # what a step does, in this order

    def guard(self, b: Buffers) -> tuple[WorldState, list[Scalar], Mask, Mask]:
        """Return the state and the action to go on from, and masks of a bad state and of a bad action."""
        m = self.model
        act, kept = b.get("act", []), b.get("kept", [])
        bad_action, bad_state = is_bad(b["action"]), is_bad(b["qpos"] + b["qvel"] + b["qacc_warmstart"] + act + kept)
        zeros = [0.0] * m.nv
        world = WorldState(
            choose_all(bad_state, list(m.qpos0), b["qpos"]),
            choose_all(bad_state, zeros, b["qvel"]),
            choose_all(bad_state, zeros, b["qacc_warmstart"]),
            choose_all(bad_state, [0.0] * m.na, act),
            b["memory"],
            b.get("params", []),
            b.get("derived", []),
            history=b.get("history", []),
            episode_sums=b.get("episode_sums", []),
            kept=choose_all(bad_state, self.kept.first, kept),
        )
        action = choose_all(bad_action, [0.0] * len(b["action"]), b["action"])
        return world, action, bad_state, bad_action

    def advance(
        self, old: WorldState, before: World, ctrl: list[Scalar], pushes: dict[str, list[Scalar]], held: Held,
        *bad: Mask,
    ) -> tuple[WorldState, World, Mask]:  # fmt: skip
        """Apply the control for all substeps. Returns the new state, the world in it, and the mask of stopped worlds.

        `ctrl` is what `control` returned: targets, if the task computes ctrl in every substep.

        The push "qvel" is a kick, added to the velocities first, and "qpos" replaces the positions. A world is stopped,
        and keeps its old state, if any of `bad` is true or its state turns bad.
        """
        m = self.model
        kept = self.kept.with_inputs(old.kept, held)
        by_physics = {name: x for name, x in self.kept.by_name(kept).items() if name in m.kept0}
        begun = State(old.qpos, old.qvel, old.qacc_warmstart, old.act, kept=by_physics)
        pushes, inputs = dict(pushes), self.kept.inputs_of(kept)
        kick = pushes.pop("qvel", None)
        kicked = replace(begun, qvel=[v + x for v, x in zip(begun.qvel, kick, strict=True)]) if kick else begun
        kicked = replace(kicked, qpos=pushes.pop("qpos", kicked.qpos))
        n = self.task.frame_skip
        if self.contract.has_substeps:
            by = Controlled(
                [0.0] * m.nu, inputs, no_pushes(m, self.layout.substep_pushes),
                {name: before.memory[name] for name in self.layout.substep_memory},
            )  # fmt: skip
            moved, by = controlled_steps(m, kicked, self.in_substeps(before, ctrl), by, n, self.precision, **pushes)
            ctrl, inputs = by.ctrl, by.inputs
            bad = (*bad, is_bad(self.kept.of_inputs(inputs)))
        else:
            moved = steps(m, kicked, ctrl, n, self.precision, **pushes, **inputs)
        stopped = logical_or(*bad, is_bad(moved.qpos + moved.qvel + moved.qacc_warmstart + moved.act))
        state = choose_all(stopped, begun.unmoved(m.nbody), moved)
        new = replace(old, qpos=state.qpos, qvel=state.qvel, qacc_warmstart=state.qacc_warmstart, act=state.act)
        if self.contract.has_substeps:
            ctrl = choose_all(stopped, [0.0] * m.nu, ctrl)
            pushes = with_more(pushes, choose_all(stopped, no_pushes(m, by.more), by.more))
        new.ctrl = ctrl if self.layout.controls else []
        new.kept = [x for name in m.kept0 for x in state.kept[name]]
        if self.kept.inputs:
            new.kept += choose_all(stopped, old.kept[len(new.kept) :], self.kept.of_inputs(inputs))
            pushes |= self.kept.inputs_of(new.kept)
        data = AFTER[self.task.data](m, state, ctrl, self.precision, **pushes)
        left = by.memory if self.contract.has_substeps else {}
        after = World(new.qpos, new.qvel, left, data, before.rng, new.act, self.tables, self, new.kept)
        return new, after, stopped

    def in_substeps(self, before: World, targets: list[Scalar]) -> Callable[[Any, State, Controlled], Controlled]:
        """Return what controls a substep, for `controlled_steps`."""
        draws = before.rng.fork()

        def control(i: Any, state: State, by: Controlled) -> Controlled:
            kept = [x for name in self.model.kept0 for x in state.kept[name]] + self.kept.of_inputs(by.inputs)
            world = self.world_at(state.qpos, state.qvel, state.act, draws(i), kept)
            world.memory, world._has_ctrl = before.memory | by.memory, False
            ctrl, pushes, held, memory = self.contract.substep_control(world, targets)
            for text, found, known in (
                ("pushes with {}, and with {} before: always the same", pushes, self.layout.substep_pushes),
                ("remembers {}, and {} before: always the same", memory, self.layout.substep_memory),
            ):
                if tuple(found) != known:
                    raise self.contract.error("substep_control", ValueError, text.format([*found], [*known]))
            return Controlled(ctrl, self.kept.inputs_of(self.kept.with_inputs(kept, held)), pushes, memory)

        return control

    def control(self, before: World, action: list[Scalar]) -> tuple[list[Scalar], dict[str, list[Scalar]], Held, Mask]:
        """Return ctrl, pushes, inputs to be kept, and the mask of worlds in which any is bad; there all are 0."""
        if not self.contract.controls:
            return action, {}, {}, False
        ctrl, pushes, held = self.contract.control(before, action)
        bad = is_bad(ctrl + leaves(list(pushes.values())) + [x for given in held.values() for x in given.values()])

        def or_zero(x: Any) -> Any:
            return [or_zero(y) for y in x] if isinstance(x, list) else select(bad, 0.0, x)

        held = {name: {i: or_zero(x) for i, x in given.items()} for name, given in held.items()}
        return or_zero(ctrl), {name: or_zero(x) for name, x in pushes.items()}, held, bad

    def remember(self, before: World, action: list[Scalar], after: World, stopped: Mask) -> list[Scalar]:
        """Return the memory after the step; a world that was stopped keeps its own."""
        widths, left = self.layout.memory, {name: after.memory[name] for name in self.layout.substep_memory}
        changed = self.contract.remember(widths, before, action, after, left)
        memory: list[Scalar] = choose_all(stopped, flatten(widths, before.memory), changed)
        return memory

    def judge(
        self, b: Buffers, before: World, action: list[Scalar], after: World, bad: Mask
    ) -> tuple[StepResult, list[Scalar], list[Scalar], list[Scalar]]:
        """Return the step's result, its observation, its info, and the sums over the episode up to here."""
        verdict = self.contract.outcome(before, action, after)
        limit = self.max_episode_steps
        reward, terminated = select(bad, 0.0, verdict.reward), logical_or(verdict.terminated, bad)
        late: Mask = False if limit is None else logical_not(b["elapsed_steps"][0] + 1 < limit)
        result = StepResult(reward, terminated, logical_or(verdict.truncated, late), bad)
        obs = self.observe(after, b.get("history", []))
        self.check_names(verdict)
        logged, sums = self.logged(verdict, b.get("episode_sums", []), late, bad)
        return result, obs, flatten(self.layout.info, verdict.info | logged), sums

    def logged(
        self, verdict: Verdict, sums: list[Scalar], late: Mask, bad: Mask
    ) -> tuple[dict[str, Scalar], list[Scalar]]:
        """Return the entries of info about all that the task names, and the sums over the episode up to here."""
        if not self.layout.logged:
            return {}, sums
        added = [select(bad, 0.0, x) for x in (*verdict.terms.values(), *verdict.metrics.values())]
        *summed, steps_before = sums
        success: list[Scalar] = []
        if verdict.success is not None:
            *summed, before_now = summed
            now = select(logical_and(verdict.success, logical_not(bad)), 1.0, 0.0)
            success = [maximum(before_now, now), now]
        summed, steps_made = [x + y for x, y in zip(summed, added, strict=True)], steps_before + 1.0
        terms, metrics = summed[: len(verdict.terms)], summed[len(verdict.terms) :]
        reasons = {name: logical_and(x, logical_not(bad)) for name, x in verdict.reasons.items()}
        reasons |= {TIME_LIMIT: late, BAD_STATE: bad}
        ended = [select(reasons[name], 1.0, 0.0) for name in self.layout.ends]
        told = [*terms, *(x / steps_made for x in metrics), *success, steps_made, *ended]
        return dict(zip(self.layout.logged, told, strict=True)), [*summed, *success[:1], steps_made]

    def check_names(self, verdict: Verdict) -> None:
        """Raise ValueError unless the reward's terms and the reasons are those of the layout, in its order."""
        for what, known, found in (
            ("terms of the reward", self.layout.rewards, verdict.terms),
            ("metrics", self.layout.metrics, verdict.metrics),
            ("successes", self.layout.successes, () if verdict.success is None else SUCCESSES),
            ("reasons of an end", tuple(x for x in self.layout.ends if x not in OWN_REASONS), verdict.reasons),
        ):
            if tuple(found) != known:
                text = f"the {what} are {[*found]}, and were {[*known]} before: always the same"
                raise self.contract.error("outcome", ValueError, text)

    def restart(self, b: Buffers, mask: Mask, episode: EpisodeState) -> EpisodeState:
        """Return the episode, replaced by a new one in the worlds of the mask."""
        restarted: EpisodeState = when_any(mask, lambda _: self.begin(b), episode)
        return restarted

    # the kernels

    def step(self, b: Buffers) -> dict[str, list[Scalar]]:
        """Make one environment step of every world, autoreset included."""
        widths, elapsed = self.layout.memory, b["elapsed_steps"][0] + 1
        rng = random(b, b["episode"][0] + -1, elapsed)
        old, action, bad_state, bad_action = self.guard(b)
        before = self.world_at(old.qpos, old.qvel, old.act, rng, old.kept)
        before.memory, before._has_ctrl = by_name(widths, self.memory_before_step(b, old, bad_state)), False
        ctrl, pushes, held, bad_ctrl = self.control(before, action)
        new, after, bad = self.advance(old, before, ctrl, pushes, held, bad_action, bad_state, bad_ctrl)
        new.memory = self.remember(before, action, after, bad)
        after.memory = by_name(widths, new.memory)
        result, obs, info, new.episode_sums = self.judge(b, before, action, after, bad)
        new.history = self.layout.observation.newest(obs)
        episode = EpisodeState(elapsed, b["episode"][0], info, obs, new)
        done, final = result.ended, {}
        if self.mode == AutoresetMode.SAME_STEP:
            final = {"final_obs": episode.obs, "final_info": episode.info}
            final |= {f"final_{name}": x for name, x in vars(new).items() if f"final_{name}" in b}
            # the next episode begins with the memory that this step left
            episode = self.restart({**b, "memory": new.memory}, result.ended, episode)
            done = False
        elif self.mode == AutoresetMode.NEXT_STEP:
            waiting = b["done"][0]
            episode = self.restart(b, waiting, episode)
            alive = logical_not(waiting)
            result.reward = select(waiting, 0.0, result.reward)
            for flag in ("terminated", "truncated", "bad"):
                setattr(result, flag, logical_and(getattr(result, flag), alive))
            done = logical_and(done, alive)
        return {
            **{name: x for name, x in vars(episode.world).items() if name in b},
            "elapsed_steps": [episode.elapsed],
            "episode": [episode.count],
            "done": [done],
            "obs": episode.obs,
            "reward": [result.reward],
            "terminated": [result.terminated],
            "truncated": [result.truncated],
            BAD_STATE: [result.bad],
            "info": episode.info,
        } | final

    def reset(self, b: Buffers) -> dict[str, list[Scalar]]:
        """Start new episodes in the worlds of `reset_mask`; the others stay as they are."""
        mask, episode = b["reset_mask"][0], self.begin(b)
        return {
            **{name: choose_all(mask, x, b[name]) for name, x in vars(episode.world).items() if name in b},
            "elapsed_steps": [select(mask, episode.elapsed, b["elapsed_steps"][0])],
            "episode": [select(mask, episode.count, b["episode"][0])],
            "done": [logical_and(b["done"][0], logical_not(mask))],
            "obs": choose_all(mask, episode.obs, b["obs"]),
            "info": choose_all(mask, episode.info, b["info"]),
        }

    def refresh(self, b: Buffers) -> dict[str, list[Scalar]]:
        """Compute memory, histories, obs and info in the worlds of `reset_mask`, whose state was set from outside."""
        state = b["qpos"], b["qvel"], b.get("act", [])
        kept = self.kept.begun_anew(b.get("kept", [])) or self.kept.first
        mask, episode = b["reset_mask"][0], self.begin_at(b, b["episode"][0] + -1, *state, kept)
        remembered = {name: getattr(episode.world, name) for name in ("memory", "history", "kept")}
        return {
            **{name: choose_all(mask, x, b[name]) for name, x in remembered.items() if name in b},
            "obs": choose_all(mask, episode.obs, b["obs"]),
            "info": choose_all(mask, episode.info, b["info"]),
        }

    def ahead(self, b: Buffers) -> dict[str, list[Scalar]]:
        """Compute how the next episode of every world begins."""
        number = b["episode"][0]
        return {"next_start": self.start_ahead(b, number), "next_episode": [number + 1]}

    # what the kernels are made from

    @property
    def kept(self) -> Kept:
        """What a world keeps besides positions, velocities and activations."""
        return Kept(self.model, self.task.inputs)

    @property
    def contract(self) -> Contract:
        """The task's functions, with checked return values."""
        return Contract(self.task, self.model)

    @functools.cached_property
    def layout(self) -> BufferLayout:
        """The layout of the task's buffers, found by running the task once.

        A task of this package is known to work, and runs on plain numbers, which is faster. A user's task runs on
        values that differ from world to world: on constants every mask would be constant, too, like the False that
        stands for a mask which the task does not give.
        """
        if is_known(self.task):
            m = self.model
            _, memory = self.contract.memory()
            still: list[Scalar] = [0.0] * m.nu
            return self.find_layout(
                Random(0, 0), still, still, list(m.qpos0), [0.0] * m.nv, [0.0] * m.na, memory, ()
            )  # fmt: skip
        found = []
        m, (widths, _) = self.model, self.contract.memory()
        sizes = {
            "action": len(self.contract.action_space()), "ctrl": m.nu, "qpos": m.nq, "qvel": m.nv, "act": m.na,
            "memory": size_of(widths), "kept": len(self.kept.first) if self.kept.inputs else 0,
        }  # fmt: skip
        buffers = [Buffer("word", 5, "i"), *(Buffer(name, size) for name, size in sizes.items())]
        buffers += table_buffers(self.shapes) + (param_buffers(self.params) if self.params else [])

        def run(b: Buffers) -> dict[str, list[Scalar]]:
            rng, own = Random(*b["word"]), self.with_tables(b)
            Contract(self.task, m, twice=True).reset(own.before_first(rng))
            own = own.of_world(b["params"], b["derived"]) if own.params else own
            found.append(own.find_layout(rng, *(b[name] for name in sizes), twice=True))
            return {}

        record(self.name("layout"), buffers, run, "float64").release()
        return found[0]

    def find_layout(
        self, rng: Random, action: list[Scalar], ctrl: list[Scalar], qpos: list[Scalar], qvel: list[Scalar],
        act: list[Scalar], remembered: list[Scalar], kept: Sequence[Scalar], *, twice: bool = False,
    ) -> BufferLayout:  # fmt: skip
        """Run all of the task's functions once, or twice, and return the layout that their results have."""
        m, contract = self.model, Contract(self.task, self.model, twice)
        bounds = Contract(self.task, (self.params or self).model, twice).action_space()
        memory, first = contract.memory()
        before = self.world_at(qpos, qvel, act, rng, kept)
        before.memory = by_name(memory, remembered)
        contract.begin(memory, first, before)
        shapes, _ = contract.observe(before)
        observation = contract.observation(shapes)
        reset_info = contract.reset_info(before)
        before = replace(before, _has_ctrl=False)
        targets, held, *_ = contract.control(before, action)
        _, pushes, _, left = contract.substep_control(before, targets) if contract.has_substeps else ([], {}, {}, {})
        forces = {name: x for name, x in with_more(held, pushes).items() if name not in ("qpos", "qvel")}
        given = forces | self.kept.by_name(kept)
        # under forces, unlike `before`: what is constant here must be constant in a step, too
        after = replace(before, data=derive(m, qpos, qvel, None, ctrl, self.precision, act, **given), _has_ctrl=True)
        after = replace(after, memory=by_name(memory, contract.remember(memory, before, action, after, left)))
        verdict = contract.outcome(before, action, after)
        contract.observe(after, shapes)
        rewards, metrics, ends = tuple(verdict.terms), tuple(verdict.metrics), tuple(verdict.reasons)
        if ends:
            ends += OWN_REASONS if self.max_episode_steps is not None else (BAD_STATE,)
        successes = () if verdict.success is None else SUCCESSES
        step_info = contract.with_entries(verdict.info, entries(rewards, metrics, successes, ends))
        return BufferLayout(
            nq=m.nq, nv=m.nv, nu=m.nu, na=m.na,
            kept={name: len(initial) for name, initial in self.kept.initial.items()},
            bounds=bounds, observation=observation, memory=memory,
            info=contract.same_widths(reset_info, step_info), step_info=tuple(step_info), reset_info=tuple(reset_info),
            rewards=rewards, metrics=metrics, successes=successes, ends=ends,
            truncates=verdict.truncated is not False, controls=contract.controls, params=self.params,
            tables=self.shapes, substep_pushes=tuple(pushes), substep_memory=tuple(left),
            ahead=self.is_ahead, shows_end=self.shows_end,
        )  # fmt: skip

    @property
    def is_ahead(self) -> bool:
        """Whether episodes begin within steps, with numbers computed ahead."""
        known = self.params is None and not self.arrays  # both may be changed before the next episode begins
        return self.task.resets_ahead and self.mode != AutoresetMode.DISABLED and known

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the task's tables."""
        return {name: x.shape for name, x in self.arrays.items()}

    def name(self, what: str) -> str:
        """Return the name of a kernel, for messages and the cache."""
        return f"{type(self.task).__name__.lower()}-{what}"

    def origin(self) -> str | None:
        """Return a text of all that the kernels depend on, for the cache.

        None for a user's task, whose Python may depend on anything.
        """
        if not (is_known(self.task) and all(map(is_known, self.randomize.values()))):
            return None
        task = f"{type(self.task).__module__} {type(self.task).__qualname__} {vars(self.task)}"
        varied = f"{self.params and (self.params.names, self.params.nominal())} {self.randomize}"
        how = f"{self.mode} {self.max_episode_steps!r} {self.precision} {varied} {self.shows_end} {self.shapes}"
        return source.origin(task, self.model.digest, how)

    def program(self, what: str, dtype: str) -> Program:
        """Return the kernel `step`, `reset`, `refresh` or `ahead`, recorded."""

        def body(b: Buffers) -> dict[str, list[Scalar]]:
            own = self.with_tables(b)
            own = own.of_world(b["params"], b["derived"]) if self.params else own
            kernel: Callable[[Buffers], dict[str, list[Scalar]]] = getattr(own, what)
            return kernel(b)

        return record(self.name(what), self.buffers(what), body, dtype)

    def buffers(self, what: str) -> list[Buffer]:
        """Return the buffers of a kernel."""
        return self.layout.ahead_buffers() if what == "ahead" else self.layout.buffers()

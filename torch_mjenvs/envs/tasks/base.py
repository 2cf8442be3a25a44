"""The base class of tasks, `Task`, and the classes that its functions take and return.

A task is ordinary Python over scalars (`torch_mjenvs.scalar`): the engine traces it together with the physics into one
kernel. It is a frozen dataclass whose fields are the constructor arguments of the environment.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from types import CodeType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import mujoco
from gymnasium.envs.mujoco.mujoco_env import expand_model_path

from ...checks import as_count, check_field
from ...physics.algebra.spatial import dot
from ...physics.model.data import Data
from ...physics.model.model import Model
from ...scalar import Mask, Random, Scalar, logical_and, maximum, minimum

# An observation: numbers, or numbers and (nested) lists of them by name, or by group and name.
Observed = Sequence[Scalar] | Mapping[str, Any]
# What a picture shows in place of the model's own numbers: by field, and by row and column there.
Shown = Mapping[str, Mapping[tuple[int, int], Scalar]]


# inputs of the physics that a task may set and a world then keeps, with the numbers of each element
HELD = {"mocap_pos": 3, "mocap_quat": 4, "eq_active": 1, "wind": 1}


@dataclass
class World:
    """A world as a task sees it: lists of scalars, in MuJoCo's order and units.

    `act` holds the activations, if actuators have any. `memory` holds what the world remembers: see `Task.memory`.
    `tables` has the task's tables by name, `tables["motion"][row]`: see `Task.tables`.
    `rng` draws the random numbers of this step, or of this episode's beginning: `rng.uniform(low, high)`,
    `rng.normal()`, `rng.exponential(scale)`, `rng.integers(low, high)`. `data` has mjData's further fields (`xpos`,
    `xipos`, `cinert`, `cvel`, `qfrc_actuator`, `cfrc_ext`, `ten_length`, `sensordata`, `ncon`, ...), from the
    evaluation that `Task.data` names.

    `at` and `settled` return the world in other states, so that `reset` may look at a state before it chooses it.

    Each call of a task's method gets its own copy, whose lists it may change in place: neither the physics nor any
    other call sees that. Setting an attribute of an environment's world raises AttributeError;
    `dataclasses.replace(world, qpos=...)` makes another world.
    """

    qpos: list[Scalar]
    qvel: list[Scalar]
    memory: dict[str, Any]
    data: Data
    rng: Random
    act: list[Scalar] = field(default_factory=list)
    tables: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    _physics: Physics | None = field(default=None, repr=False, compare=False)
    _kept: Sequence[Scalar] = field(default=(), repr=False, compare=False)
    _has_ctrl: bool = field(default=True, repr=False, compare=False)  # not where a step begins: `control` is yet to say

    def at(
        self,
        qpos: Sequence[Scalar],
        qvel: Sequence[Scalar] | None = None,
        act: Sequence[Scalar] | None = None,
        parameters: Mapping[str, Any] | None = None,
        *,
        mocap_pos: Mapping[str, Sequence[Scalar]] | None = None,
        mocap_quat: Mapping[str, Sequence[Scalar]] | None = None,
        eq_active: Mapping[str | int, Scalar | Mask] | None = None,
        wind: Sequence[Scalar] | None = None,
    ) -> World:
        """Return this world in another state: qpos (nq), qvel (nv) and act (na); the latter two are 0 by default.

        Its `data` is mjData of that state: kinematics, contacts (`ncon`), sensors. Only the fields that are read are
        computed. `parameters` replaces some of the model's varying parameters, by name and nested as in `m`.
        `mocap_pos`, `mocap_quat`, `eq_active` and `wind`: as in `Start`; what they leave out is as in this world.
        """
        start = Start(
            [*qpos],
            [0.0] * len(self.qvel) if qvel is None else [*qvel],
            None if act is None else [*act],
            parameters=parameters or {},
            mocap_pos=mocap_pos or {},
            mocap_quat=mocap_quat or {},
            eq_active=eq_active or {},
            wind=wind,
        )
        return self._has_physics().put(self, start)

    def settled(self, substeps: int, ctrl: Sequence[Scalar] | None = None) -> World:
        """Return this world after this many substeps of physics under ctrl (nu), which is 0 by default."""
        given = None if ctrl is None else [*ctrl]
        return self._has_physics().settled(self, as_count("substeps", substeps), given)

    def _has_physics(self) -> Physics:
        if self._physics is None:
            raise ValueError("this World was made without physics: only an environment's can be asked for other states")
        return self._physics


class Physics(Protocol):
    """The physics by which a world finds its other states."""

    def put(self, world: World, start: Start) -> World: ...

    def settled(self, world: World, substeps: int, ctrl: list[Scalar] | None) -> World: ...


@dataclass(frozen=True)
class Start:
    """The beginning of an episode, for a `reset` that says more than qpos (nq) and qvel (nv).

    `act` (na) has activations, 0 if left out. `memory` has entries of the world's memory by name, such as a goal that
    was drawn together with the state; `begin` may replace them, but does not see them. `parameters` has parameters of
    the model by name, nested as in `m`: those that `Task.reset_parameters` names. `mocap_pos`, `mocap_quat`,
    `eq_active` and `wind`: as in `Control`; what they leave out is as in the model.
    """

    qpos: Sequence[Scalar]
    qvel: Sequence[Scalar]
    act: Sequence[Scalar] | None = None
    memory: Mapping[str, Scalar | Sequence[Scalar]] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    mocap_pos: Mapping[str, Sequence[Scalar]] = field(default_factory=dict)
    mocap_quat: Mapping[str, Sequence[Scalar]] = field(default_factory=dict)
    eq_active: Mapping[str | int, Scalar | Mask] = field(default_factory=dict)
    wind: Sequence[Scalar] | None = None


@dataclass(frozen=True)
class Control:
    """The inputs of the physics during a step: ctrl (nu numbers), and external pushes.

    `qfrc_applied` (nv) is a force on each dof. `xfrc_applied` has, by names of bodies, six numbers: force (N) and
    torque (N m) at the body's centre of mass in world axes. Both last for the step, or if `substep_control` gives them,
    for the substep, in which those of the step act as well. `qvel` (nv numbers, in mjData's
    order and units) is a kick: it is added to the velocities before the step. `qpos` (nq numbers) are positions from
    which the step begins, in place of the world's own: so something can be put elsewhere within an episode.

    `mocap_pos` (metres) and `mocap_quat` are poses of mocap bodies by name. `eq_active` says by name or number which
    equality constraints act: a mask, or a number that is not 0. `wind` (3) is the velocity of the fluid, in m/s, in
    place of the model's. These four hold until they are set again, or the episode ends. A task names those that it sets
    in `inputs`.

    `memory`, which only `substep_control` may give, has entries of the world's memory by name. The next substep sees
    them in `world.memory`, and `remember` in `after.memory`.
    """

    ctrl: Sequence[Scalar]
    qfrc_applied: Sequence[Scalar] | None = None
    xfrc_applied: Mapping[str, Sequence[Scalar]] = field(default_factory=dict)
    qvel: Sequence[Scalar] | None = None
    mocap_pos: Mapping[str, Sequence[Scalar]] = field(default_factory=dict)
    mocap_quat: Mapping[str, Sequence[Scalar]] = field(default_factory=dict)
    eq_active: Mapping[str | int, Scalar | Mask] = field(default_factory=dict)
    qpos: Sequence[Scalar] | None = None
    wind: Sequence[Scalar] | None = None
    memory: Mapping[str, Scalar | Sequence[Scalar]] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """The reward of a step, whether and why it ended the episode, and its info: numbers and lists by name. Names do not
    begin with "_".

    `reward` is a number, or a dict of terms by name. The reward is then the sum of the terms, each times its number in
    `weights` (a dict, or pairs; without it all weigh 1), in the order of the dict. `scale`, such as the seconds of a
    step, multiplies the sum, and `clip` (low, high) then bounds it. The environment keeps each term's sum over the
    episode: info["episode_reward/NAME"]. `metrics` are numbers by name that are not part of the reward, such as the
    error in following a command; of these it keeps the mean over the episode, info["episode_mean/NAME"].

    `terminated` and `truncated` are masks, or dicts of masks by name, of which any ends the episode; the names are the
    reasons in info["episode_end/NAME"]. A truncated episode, like one at the time limit, could have gone on, so
    learners bootstrap from the value of its last state; they do not after a termination.

    `success` is a mask: whether the task is done in this step. It ends nothing. info["episode_success/once"] is 1 if it
    was true in any step of the episode so far, and info["episode_success/at_end"] if it is in this one.
    """

    reward: Scalar | Mapping[str, Scalar]
    terminated: Mask | Mapping[str, Mask] = False
    info: Mapping[str, Scalar | Sequence[Scalar]] = field(default_factory=dict)
    truncated: Mask | Mapping[str, Mask] = False
    weights: Mapping[str, Scalar] | Sequence[tuple[str, Scalar]] | None = None
    scale: Scalar = 1.0
    clip: tuple[float, float] = (-math.inf, math.inf)
    metrics: Mapping[str, Scalar] = field(default_factory=dict)
    success: Mask | None = None

    def weighted(self) -> dict[str, Scalar]:
        """Return the terms times their weights, by name; {} where the reward is a number without a name.

        Raises ValueError for a term without a weight, and for a weight without a term.
        """
        terms = dict(self.reward) if isinstance(self.reward, Mapping) else {}
        if self.weights is None:
            return terms
        weights = dict(self.weights)
        for name in [*terms, *weights]:
            missing, has, others = ("weight", "term", weights) if name in terms else ("term", "weight", terms)
            if name not in others:
                near = get_close_matches(name, others, 3) or list(others)
                raise ValueError(f"there is no {missing} for the {has} {name!r}; there is one for {near}")
        return {name: weights[name] * x for name, x in terms.items()}

    def total(self) -> Scalar:
        """Return the step's reward: the weighted terms summed in their order, or the number; scaled, then clipped."""
        if isinstance(self.reward, Mapping):
            reward: Scalar = 0.0
            for x in self.weighted().values():
                reward = reward + x
        else:
            reward = self.reward
        reward, (low, high) = reward * self.scale, (float(x) for x in self.clip)
        reward = maximum(reward, low) if low > -math.inf else reward
        return minimum(high, reward) if high < math.inf else reward  # in this order a NaN stays one


@dataclass(frozen=True)
class Task:
    """Base of all tasks; `xml_file` is a path or the name of one of Gymnasium's own models.

    An environment runs the instance that it is given, with the attributes that it has at that moment. Methods get
    copies of worlds and may change their lists: see `World`.

    `data` says which evaluation of mjData `World.data` has after a step. "gymnasium" is what Gymnasium reads: that of
    the last substep, from which the final qpos and qvel follow (for Runge-Kutta, its last stage). "fresh" is what
    dm_control reads: everything that depends on positions and velocities is of the final state; forces of actuators,
    accelerations, and sensors of both are of the last substep. After a reset these are without actuation. "forward" is
    what an environment reads that calls mj_forward after its step: all is of the final state, under the step's control.

    An episode begins with `reset`, `begin`, `observe` and `reset_info`; a step is `control`, the physics, with
    `substep_control` in each of its substeps, `remember`, `outcome` and `observe`. Every task writes `reset`, `observe`
    and `outcome`; the others are optional.

    A `reset` that takes long, for instance because of `World.settled`, delays the other worlds of its vector. With
    `resets_ahead` it is computed in advance, for many worlds at a time, with the same results. It may then not look at
    `world.memory`, and may return only positions, velocities and activations. If parameters vary, or the task has
    tables, nothing is computed in advance.

    `reset_parameters` names the model's parameters that `reset` sets. A mapping also names the elements: {"body_pos":
    ["cup"]}. Parameters of other elements are constants, which makes the kernel smaller and faster.

    `inputs` names the inputs of the physics that the task sets in `Control` and `Start`, and that a world keeps from
    step to step: "mocap_pos", "mocap_quat", "eq_active" and "wind". `World.data` has them under these names.

    `reset` and `randomize` may take one more argument, named `world`: the world before the episode, at qpos0 and at
    rest. Its `memory` is what the previous episode left, as in `begin`, so that a curriculum can place the robot by its
    level. Its `rng` is the `rng` argument.
    """

    data: ClassVar[str] = "gymnasium"
    reset_parameters: ClassVar[Sequence[str] | Mapping[str, Sequence[str]]] = ()
    inputs: ClassVar[Sequence[str]] = ()
    resets_ahead: ClassVar[bool] = False  # whether resets are computed ahead: see above
    default_camera_config: ClassVar[dict[str, Any]] = {}
    max_episode_steps: ClassVar[int | None] = 1000  # where the user names no other number

    if not TYPE_CHECKING:  # which would take only one of class attributes, fields and properties in tasks
        noise: ClassVar[Mapping[str, Any]] = {}  # of `observe`'s entries, by name: see there
        history: ClassVar[Mapping[str, int]] = {}  # steps of `observe`'s entries, by name

    reward_threshold: ClassVar[float | None] = None  # the return from which Gymnasium calls the task solved

    xml_file: str
    frame_skip: int

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        typed = vars(cls).get("__annotations__", {})
        if "xml_file" in typed and hasattr(cls, "xml_file") and not hasattr(cls, "frame_skip"):
            text = "the steps of physics in a step of the environment: write `frame_skip: int = 5`, for example"
            raise TypeError(f"{cls.__name__} has no frame_skip, {text}")  # dataclasses would say it in their own terms
        known = [*vars(Task), "compute_reward", "pictured"]
        used = {name for x in vars(cls).values() if isinstance(x, FunctionType) for name in _names_in(x.__code__)}
        for name in vars(cls):
            if name.startswith("_") or name in typed or name in used or hasattr(Task, name):
                continue
            near = get_close_matches(name, known, 1, 0.8)
            if near and getattr(cls, near[0], None) is getattr(Task, near[0], None):
                text = f"{cls.__name__}.{name} means nothing to an environment; did you mean {near[0]}?"
                warnings.warn(text, stacklevel=2)

    def __post_init__(self) -> None:
        if self.data not in ("gymnasium", "fresh", "forward"):
            raise ValueError(f"data must be 'gymnasium', 'fresh' or 'forward', not {self.data!r}")
        for name in ("inputs", "reset_parameters"):
            if isinstance(x := getattr(self, name), str):
                raise TypeError(f"{name} must be a tuple of names, as in {name} = ({x!r},)")
        if unknown := [name for name in self.inputs if name not in HELD]:
            raise ValueError(f"inputs may name {', '.join(HELD)}, not {', '.join(map(repr, unknown))}")
        object.__setattr__(self, "frame_skip", as_count("frame_skip", self.frame_skip))
        for name in (x.name for x in fields(self)):
            value = getattr(self, name)
            if isinstance(value, list):  # taken as Gymnasium takes them, but a task must be hashable
                object.__setattr__(self, name, tuple(value))
            if isinstance(value, float) and value != value:
                raise ValueError(f"{name} must be a number, not nan")
        for x in fields(self):
            self._check_overridden(x)
            check_field(x.name, _declared(x), getattr(self, x.name))

    def _check_overridden(self, of: Field[Any]) -> None:
        """Raise TypeError if a class gives a field another default in a way that dataclasses do not see."""
        if of.default is MISSING:
            return
        owner = next((kind for kind in type(self).__mro__ if of.name in vars(kind)), None)
        value = of.default if owner is None else vars(owner)[of.name]
        same = value is of.default or (type(value) is type(of.default) and value == of.default)
        if same or hasattr(value, "__get__"):  # a property, or a slot
            return
        assert owner is not None
        decorated = "" if "__dataclass_fields__" in vars(owner) else ", and @dataclass(frozen=True) above the class"
        raise TypeError(
            f"{owner.__name__}.{of.name} = {value!r} would not be used, as {of.name} is a field of the task: write "
            f"`{of.name}: {_declared(of)} = {value!r}`{decorated}"
        )

    def load(self) -> mujoco.MjModel:
        """Load the MuJoCo model. Raises OSError if there is no such file, ValueError if it is not MJCF."""
        if not _is_mjcf_path(self.xml_file):
            raise ValueError(
                f"xml_file must be the path of an MJCF file, not {self.xml_file!r:.200}: to run an MjModel, a "
                "compiled .mjb or an MJCF string, write a task whose load() returns the mujoco.MjModel"
            )
        given = os.fspath(self.xml_file)
        try:
            return mujoco.MjModel.from_xml_path(expand_model_path(given))
        except OSError as error:
            if not given.startswith((".", "/", "~")):  # as in Gymnasium
                error.add_note(f"a name alone is one of Gymnasium's models: a file of yours is './{given}'")
            raise

    def _missing(self, function: str) -> NotImplementedError:
        return NotImplementedError(f"{type(self).__name__} has no `{function}`, which every task has to say")

    # Any and Any: so that a type checker takes a `reset` with and without `world`.
    def reset(self, m: Model, *args: Any, **kwargs: Any) -> tuple[Sequence[Scalar], Sequence[Scalar]] | Start:
        """Return qpos (nq) and qvel (nv) of a new episode, or a `Start`, which may say more.

        Write it as `reset(self, m, rng)`, or as `reset(self, m, rng, world)` to look at `world.memory`, or at other
        states by `world.at` and `world.settled`. `rng.draw_until` draws until a state is good.
        """
        raise self._missing("reset")

    def action_space(self, m: Model) -> tuple[Sequence[float], Sequence[float]]:
        """Return the bounds of an action: two lists, low and high, of any length.

        By default an action is the model's ctrl (nu), within `actuator_ctrlrange`; bounds are infinite if an actuator
        has no limit. A task whose action has another size must define `control`.
        """
        ranges = zip(m.actuator_ctrlrange, m.actuator_ctrllimited, strict=True)
        bounds = [(low, high) if limited else (-math.inf, math.inf) for (low, high), limited in ranges]
        return [low for low, _ in bounds], [high for _, high in bounds]

    def observe(self, m: Model, world: World) -> Observed:
        """Return the observation: a list of numbers; a dict of numbers and (nested) lists by name; or a dict of groups.

        A dict of groups holds such dicts, or lists: {"policy": {...}, "privileged": {...}}. The policy sees the first,
        and the value function may see both.

        Two tables, class attributes or fields, change entries by name; with groups, those of "policy". `noise` adds
        noise: a number is the half-width of uniform noise, `Normal(std)` is normal noise, and a list of the entry's
        shape gives each number its own. It is drawn from `world.rng` after the task's own draws, in the order of the
        entries; 0 draws nothing. `history` makes an entry show its last k steps, noise included, with shape (k, ...),
        the newest last; at first all k are the first value. 0 leaves it as it is.
        """
        raise self._missing("observe")

    def outcome(self, m: Model, before: World, action: list[Scalar], after: World) -> Outcome:
        """Return reward, end and info of the step that led from `before` to `after`."""
        raise self._missing("outcome")

    def reset_info(self, m: Model, world: World) -> Mapping[str, Scalar | Sequence[Scalar]]:
        """Return the info of a reset: numbers and lists by name."""
        return {}

    def randomize(self, m: Model, *args: Any, **kwargs: Any) -> Mapping[str, Any]:
        """Return parameters of the model for a new episode, by MuJoCo's names, nested as in `m`, the model as loaded.

        In all other methods `m` is the world's own model, with these parameters. Write it as `randomize(self, m, rng)`,
        or as `randomize(self, m, rng, world)` to look at `world.memory`.
        """
        return {}

    def memory(self, m: Model) -> Mapping[str, Scalar | Sequence[Scalar]]:
        """Declare what a world remembers from step to step: numbers and lists by name, with their first values."""
        return {}

    def tables(self, m: Model) -> Mapping[str, Any]:
        """Return numbers that all worlds read, by name: recorded motions, schedules, lists of commands.

        Each is a NumPy array, a torch tensor or a (nested) list, and its first dimension counts rows. Methods read them
        as `world.tables[name][row]`, where the row is a whole number of each world's own, such as an entry of its
        memory; a fraction is cut off, and if there is no such row, the nearest one is read. The numbers are no part of
        the compiled code: `env.engine.tables[name]` is a tensor that may be written into at any time, in `train` by
        `renew_tables`.
        """
        return {}

    def renew_tables(self, memory: Mapping[str, Any], tables: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return new numbers for tables, by name, such as a distribution that follows what worlds failed at.

        `torch_mjenvs train` calls it after each rollout. It is ordinary torch code about all worlds, and not traced:
        `memory` has what they remember, tensors (N,) or (N, k), and `tables` the tables as they are. Tables are of the
        same shape as before. They are part of the run's checkpoint; evaluations and scores have those of `tables`.
        """
        return {}

    def begin(self, m: Model, world: World) -> Mapping[str, Scalar | Sequence[Scalar]]:
        """Return the memory at the beginning of an episode; names that are left out get their values from `memory`.

        `world` is in the new episode's first state, but `world.memory` is still that of the previous episode, so that
        memory can outlast episodes. In a world's first episode, and after seeding, it has the values of `memory`.
        """
        return {}

    def control(self, m: Model, world: World, action: list[Scalar]) -> Sequence[Scalar] | Control:
        """Return the model's ctrl (nu) for this step: the action itself, or filtered, delayed or turned into targets.

        Return a `Control` to push, kick or move things as well. `torch_mjenvs.controls` has functions that are often
        needed here.
        """
        return action

    def substep_control(self, m: Model, world: World, targets: list[Scalar]) -> Sequence[Scalar] | Control:
        """Return the model's ctrl (nu) for one substep: torques that follow what the robot does within the step.

        For controllers that run as often as the physics, such as operational space control. `targets` is what `control`
        returned as ctrl, of any length: it is called once, when the step begins. `world` is at the beginning of the
        substep, with `data` of that state, without actuation. Its `memory` is that of the step's beginning, but for
        what the last substep returned.

        Return a `Control` to push in every substep, to remember something from substep to substep, to move mocap
        bodies, to switch equality constraints or to change the wind.
        """
        return targets

    def remember(
        self, m: Model, before: World, action: list[Scalar], after: World
    ) -> Mapping[str, Scalar | Sequence[Scalar]]:
        """Return the memory after a step, for `after.memory`; names that are left out stay as in `before.memory`, or as
        substeps left them, which `after.memory` has.
        """
        return {}

    def pictured(self, mjm: mujoco.MjModel, memory: Mapping[str, Any]) -> Shown:
        """Return numbers that replace some of the model's in pictures of a world, for example the position of a target.

        They are scalars by the name of a field and their row and column there, {"geom_pos": {(3, 0): x, (3, 1): y}}, of
        `body_pos`, `body_quat`, `geom_pos`, `geom_quat`, `geom_size`, `site_pos`, `site_quat`, `site_size` and
        `light_pos`. `mjm` is for names and constants, and `memory` is the world's. Physics does not use them.
        """
        return {}

    def dt(self, m: Model) -> float:
        """Return the duration of an environment step in seconds."""
        return m.timestep * self.frame_skip


def _is_mjcf_path(x: Any) -> bool:
    """Return whether an `xml_file` may name an MJCF file. Compiled models are none: their numbers are not checked, and
    files of policies, which may come from strangers, have an `xml_file` among their fields.
    """
    return isinstance(x, (str, os.PathLike)) and not os.fspath(x).lstrip().startswith("<") and Path(x).suffix != ".mjb"


def _names_in(code: CodeType) -> Iterator[str]:
    """Yield the names of attributes and globals in a function, and in functions within it."""
    yield from code.co_names
    for x in code.co_consts:
        if isinstance(x, CodeType):
            yield from _names_in(x)


def _declared(of: Field[Any]) -> str:
    """Return the type of a field as it is written, whether or not annotations are strings in its module."""
    return of.type.__name__ if isinstance(of.type, type) else str(of.type)


def copy_of(task: Task) -> Task:
    """Return a shallow copy of a task: its fields and other attributes, with methods bound to the copy.

    `copy.copy` would leave such methods bound to the task, and of a dataclass with slots it copies the fields alone.
    """
    new = object.__new__(type(task))
    held = {x.name: getattr(task, x.name) for x in fields(task) if hasattr(task, x.name)} | vars(task)
    for name, x in held.items():
        own = isinstance(x, MethodType) and x.__self__ is task
        object.__setattr__(new, name, MethodType(x.__func__, new) if own else x)
    return new


def uniform_noise(values: tuple[Any, ...], rng: Random, scale: float) -> list[Scalar]:
    """Return values + U(-scale, scale). Raises ValueError for a negative scale."""
    if scale < 0:
        raise ValueError(f"the scale of a reset's noise must not be negative, but is {scale}")
    if scale == 0:
        return list(values)
    return [x + rng.uniform(-scale, scale) for x in values]


def squared(x: list[Scalar]) -> Scalar:
    """Return the sum of squares."""
    return dot(x, x)


def within(x: Scalar, bounds: tuple[float, float]) -> Mask:
    """Return whether bounds[0] < x < bounds[1], as a mask."""
    low, high = (float(b) for b in bounds)
    return logical_and(x > low, x < high)

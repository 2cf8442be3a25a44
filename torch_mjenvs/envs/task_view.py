"""Copies of worlds for a task's functions, so that nothing a task writes into them reaches the physics."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import Any, NoReturn, cast

from ..compiler.expr import PYTHON_TYPE, Expr
from ..physics.dynamics.inertia import full_m
from ..physics.model.data import FIELDS, Data
from ..physics.model.named import Element
from ..physics.sensors.sensor_data import SensorData
from .tasks.base import HELD, World

# the elements that a field of mjData has a row for, by the name of its size
KINDS = {
    "nbody": "body", "njnt": "joint", "ngeom": "geom", "nsite": "site", "nu": "actuator", "ntendon": "tendon",
    "nq": None, "nv": None,
}  # fmt: skip
# what mjData has besides its fields, and what a task writes instead
ELSEWHERE = {
    "body": "xpos[m.body(NAME)]",
    "joint": "qpos[m.joint(NAME).qpos]",
    "geom": "geom_xpos[m.geom(NAME)]",
    "site": "site_xpos[m.site(NAME)]",
    "actuator": "actuator_force[m.actuator(NAME)]",
    "tendon": "ten_length[m.tendon(NAME)]",
    "sensor": "sensordata[m.sensor(NAME)]",
    "contact": "sensordata[m.sensor(NAME)] of a <contact> sensor, which says what touches and with which force",
}
STATE = ("qpos", "qvel", "act")
NUMBERS = frozenset((Expr, type(None), *PYTHON_TYPE))  # None is there for bodies that do not move, for example


def copy_for_task(x: Any) -> Any:
    """Return an argument for a task's function: a copy of a world or of a list, and anything else as it is."""
    if isinstance(x, World):
        data = cast(Data, TaskData(x))
        qpos, qvel = Rows.of("nq", copied(x.qpos)), Rows.of("nv", copied(x.qvel))
        memory = x.memory if isinstance(x.memory, NotThere) else Memory(copied(x.memory))
        tables = Tables(x.tables)
        return TaskWorld(qpos, qvel, memory, data, x.rng, copied(x.act), tables, x._physics, x._kept, x._has_ctrl)
    return copied(x)


def copied(x: Any, leaf: Callable[[Any], Any] = lambda x: x) -> Any:
    """Return a copy of nested lists, tuples and dicts, with `leaf` applied to every value in them."""
    if isinstance(x, list):
        return [copied(y, leaf) for y in x]
    if isinstance(x, tuple):
        return tuple(copied(y, leaf) for y in x)
    if isinstance(x, dict):
        return {name: copied(y, leaf) for name, y in x.items()}
    if isinstance(x, SensorData):
        return x.copy()
    return leaf(x)


class NotThere(dict[str, Any]):
    """A memory that cannot be read, since it does not exist yet. Reading raises KeyError, which says why."""

    def __init__(self, why: str):
        self.why = why

    def __missing__(self, name: str) -> NoReturn:
        raise KeyError(f"memory {name!r}: {self.why}")

    def get(self, name: str, default: Any = None) -> NoReturn:
        self.__missing__(name)


class Memory(dict[str, Any]):
    """What a world remembers. Reading another name raises KeyError, which tells the names that there are."""

    def __missing__(self, name: str) -> NoReturn:
        near = get_close_matches(str(name), self, 3) or [*self]
        there = f"did you mean {' or '.join(map(repr, near))}?" if near else "the task has no memory()"
        raise KeyError(f"memory() declares no {name!r}; {there}")


class Tables(dict[str, Any]):
    """The task's tables. Reading another name raises KeyError, which tells the names that there are."""

    def __missing__(self, name: str) -> NoReturn:
        raise KeyError(f"tables() gives no {name!r}; {f'it gives {[*self]}' if self else 'the task has no tables()'}")


class Rows(list[Any]):
    """A list that is read by elements of one kind, `data.xpos[m.body("foot")]`, and refuses those of other kinds.

    Without a kind it refuses all: a joint's number is not its place in qpos.
    """

    kind: str | None

    @classmethod
    def of(cls, size: str, values: list[Any]) -> list[Any]:
        """Return the values of a field with this size, such as "nbody"; a plain list if it is of no elements."""
        if size not in KINDS:
            return values
        rows = cls(values)
        rows.kind = KINDS[size]
        return rows

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, Element) and at._kind != self.kind:
            wanted = f"the number of a {self.kind}"
            if self.kind is None:
                wanted = "a place or a slice, as a joint's `.qpos` and `.qvel` are"
            raise TypeError(f"the list is read by {wanted}, not by a {at._kind}: {at!r}")
        if isinstance(at, str):
            by = f"[m.{self.kind}({at!r})]" if self.kind else f"[m.joint({at!r}).qpos], or .qvel"
            raise TypeError(f"the list is read by places, not by names: {by}")
        if isinstance(at, tuple):
            raise TypeError(f"the list is read by one place at a time: {''.join(f'[{x!r}]' for x in at)}")
        return super().__getitem__(at)


class TaskWorld(World):
    """A world for one call of a task's function. Its attributes cannot be set."""

    def __getattr__(self, name: str) -> NoReturn:
        known = ", ".join(x for x in World.__dataclass_fields__ if not x.startswith("_"))
        hint = "; `remember` gets the action, and may keep it in memory" if name == "action" else ""
        raise AttributeError(f"a world has no {name!r}; it has {known}{hint}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name in vars(self) or name not in World.__dataclass_fields__:
            another = f"; dataclasses.replace(world, {name}=...) makes another world, for this function alone"
            raise AttributeError(
                f"world.{name} cannot be set: a task's function changes a world by what it returns alone, and what is "
                f"remembered is what `begin` and `remember` return{another if name in vars(self) else ''}"
            )
        super().__setattr__(name, value)


class TaskData:
    """A world's mjData fields for one call of a task's function, each computed and copied when first read.

    As in mjData, qpos, qvel and act are those after the step, whichever evaluation the other fields are of.
    """

    def __init__(self, world: World):
        vars(self).update(_world=world, _data=world.data)

    def __getattr__(self, name: str) -> Any:
        if name not in FIELDS:
            if name in ELSEWHERE:
                raise AttributeError(f"world.data has no {name!r}: read world.data.{ELSEWHERE[name]}")
            known = [name for name, field in FIELDS.items() if field.output]
            near = get_close_matches(name, known, 3)
            there = f"did you mean {' or '.join(near)}? " if near else ""
            raise AttributeError(f"world.data has no field {name!r}; {there}it has {', '.join(known)}")

        def checked(x: Any) -> Any:
            if type(x) not in NUMBERS:
                raise AttributeError(f"world.data.{name} is not of numbers: it is for the physics alone")
            return x

        if name == "ctrl" and not self._world._has_ctrl:
            raise AttributeError(
                "world.data.ctrl is not known where a step begins, not even that of the step before: keep it in memory"
            )
        found = full_m(self._data) if name == "M" else getattr(self._world if name in STATE else self._data, name)
        if found is None:
            hint = "; count steps in the task's memory" if name == "time" else ""
            hint = "; name it in the task's `inputs`" if name in HELD else hint
            raise AttributeError(f"world.data.{name} is not known in a task{hint}")
        x = copied(found, checked)
        if isinstance(x, list) and FIELDS[name].shape:
            x = Rows.of(str(FIELDS[name].shape[0]), x)
        vars(self)[name] = x
        return x

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"world.data.{name} cannot be set: it follows from the world's state")

"""Region ops: the few nodes that hold code of their own, in regions. These records are their nodes' `attr`.

A region op carries values, its iteration arguments. An `IterArg` says what each is before the op, inside, at the end of
the body, and afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from .expr import Expr, Region

Value = object  # an Expr or a constant
Read = tuple[Value, str, Region]  # a value, the type that it must have, and the region in which it is read


@dataclass(eq=False, slots=True)
class IterArg:
    """An iteration argument of a region op; for a block, which has no iterations, a value that it may change.

    `before` is its value outside; None if that is unspecified, as for a block that only computes. `variable` is what
    the body of a loop sees (a "phi"); the body of a block sees `before` itself. `after` is what the body makes of it,
    and `result` the node that the code after the op reads. `region_op` is the op's own node.
    """

    before: Value
    after: Value = None
    variable: Any = None
    result: Any = None
    region_op: Any = None

    @property
    def type(self) -> str:
        """The type of the value, as a letter."""
        kind: str = self.result.type
        return kind


@dataclass(eq=False, slots=True)
class RegionOp:
    """An op that holds code: its regions, and the values that it carries."""

    body: Region
    iter_args: list[IterArg]

    @property
    def regions(self) -> tuple[Region, ...]:
        """The regions of its code, in the order in which they run."""
        return (self.body,)

    def reads(self) -> Iterator[Read]:
        """List the values that its regions compute for it, in addition to the iteration arguments."""
        return iter(())


def regions_within(region: Region) -> Iterator[Region]:
    """List a region, and all regions of the ops in it."""
    yield region
    for e in region.nodes:
        if isinstance(e.attr, RegionOp):
            for inner in e.attr.regions:
                yield from regions_within(inner)


@dataclass(eq=False, slots=True)
class When(RegionOp):
    """A block for the worlds in the mask, its first argument, skipped if the vector has none of them.

    A second argument is that mask combined with those of the code around, if there are any: it then decides about
    skipping.
    """


@dataclass(eq=False, slots=True)
class Loop(RegionOp):
    """Code that is repeated; `counter` counts the iterations from 0."""

    counter: Expr


@dataclass(eq=False, slots=True)
class PuttingLoop(Loop):
    """A loop whose iterations can put values into arrays at their end, each world into a row of its own.

    `left`: arrays that loops within change.
    """

    puts: list[OwnPut]
    left: list[Expr]

    def reads(self) -> Iterator[Read]:
        for put in self.puts:
            yield put.array, "a", self.body
            yield put.row, put.row_type, self.body
            if put.mask is not None:
                yield put.mask, "b", self.body
            yield put.value, "f", self.body
        for array in self.left:
            yield array, "a", self.body


@dataclass(eq=False, slots=True)
class Repeat(PuttingLoop):
    """A loop of as many iterations as its argument says, an index that all worlds share."""


@dataclass(eq=False, slots=True)
class While(PuttingLoop):
    """A loop that runs until no world of the vector is `active`, at most `limit` times; `head` computes `active`."""

    limit: int
    head: Region
    active: Value

    @property
    def regions(self) -> tuple[Region, ...]:
        return (self.head, self.body)

    def reads(self) -> Iterator[Read]:
        yield self.active, "b", self.head
        yield from PuttingLoop.reads(self)


@dataclass(eq=False, slots=True)
class Queue(PuttingLoop):
    """A loop over the entries of all worlds of the vector, each done by any lane.

    Its first argument is how many entries a world has, or an active set: then there is an entry for each number, in
    each world that needs it. `counter` is the number of an entry, and `there` the mask of the lanes that have one.
    Arrays from outside are read, and put into, for the entry's world. Nothing else of the world is known inside.
    """

    there: Expr
    most: int  # entries of a world


@dataclass(eq=False, slots=True)
class ForEach(Loop):
    """A loop with an iteration for each number of an active set (its first argument); here `counter` is that number.

    An iteration is skipped if no world that needs the number is among those that the code around is for (the second
    argument). An iteration can put values into arrays, and choose parts: a mask for each part of this number. `left`:
    arrays that loops within change.
    """

    puts: list[Put] = field(default_factory=list)
    chosen: list[Value] = field(default_factory=list)
    left: list[Expr] = field(default_factory=list)

    def reads(self) -> Iterator[Read]:
        for put in self.puts:
            yield put.array, "a", self.body
            yield put.row, "s", self.body
            yield put.value, "f", self.body
            if put.otherwise is not None:
                yield put.otherwise, "f", self.body
        for mask in self.chosen:
            yield mask, "b", self.body
        for array in self.left:
            yield array, "a", self.body


@dataclass(eq=False, slots=True)
class Put:
    """The change array[row][column] = value in the iteration's worlds, `otherwise` in others (None: unspecified)."""

    array: Expr
    row: Value
    column: int
    value: Value
    otherwise: Value


@dataclass(eq=False, slots=True)
class OwnPut:
    """The change array[row][column] = value where the mask holds; without one, unspecified outside the iteration.

    The row is each world's own, or one that they share.
    """

    array: Expr
    row: Value
    column: int
    mask: Value
    value: Value

    @property
    def row_type(self) -> str:
        """The type of the row: "s" where all worlds share it."""
        return self.row.type if isinstance(self.row, Expr) else "s"


@dataclass(frozen=True, slots=True)
class Shape:
    """The numbers of rows and columns of an array."""

    rows: int
    columns: int


def array_of(name: Expr) -> Expr:
    """Return the array that a node names: it has another name after each loop that changes it."""
    while name.op != "array":
        name = name.args[0]
    return name


class Packing(int):
    """The order of active sets that are put together: how many places there are, and by set those of its numbers."""

    orders: tuple[tuple[int, ...], ...]

    def __new__(cls, n: int, orders: Sequence[Sequence[int]]) -> Packing:
        made = super().__new__(cls, n)
        made.orders = tuple(tuple(order) for order in orders)
        return made

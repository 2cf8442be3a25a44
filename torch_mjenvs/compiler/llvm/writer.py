"""Collects the text of a function, and the names of the values that it computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ..expr import Expr, Region
from ..lower import Code
from ..region_ops import RegionOp, array_of
from .gpu import Gpu
from .types import Types

Row = Callable[["Writer", Expr], None]


class ActiveSet(NamedTuple):
    """The names of an active set's two arrays, its numbers and the mask of each number, and of its size.

    masks: "" if all numbers are for all worlds.
    """

    numbers: str
    masks: str
    size: str


class Moved(NamedTuple):
    """In a queue's region, the lanes of the worlds that lanes work for: names of this vector, and of it in memory."""

    region: Region
    lane: str
    memory: str


class Text:
    """The lines of a function of IR as it grows."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.block = "entry"
        self._begun = 0  # the line after which the block began
        self._count = 0

    def fresh(self, stem: str = "v") -> str:
        """Make a new name for a value."""
        self._count += 1
        return f"%{stem}{self._count}"

    def put(self, line: str) -> None:
        self.lines.append("  " + line)

    def assign(self, text: str) -> str:
        name = self.fresh()
        self.lines.append(f"  {name} = {text}")
        return name

    def fresh_labels(self, *stems: str) -> list[str]:
        return [self.fresh(stem)[1:] for stem in stems]

    def label(self, name: str) -> None:
        """Begin a block."""
        self.lines.append(f"{name}:")
        self.block, self._begun = name, len(self.lines)

    def go_on(self, other: Text) -> None:
        """Continue where another text is, with names that it has not used."""
        self.lines, self.block, self._begun, self._count = other.lines, other.block, other._begun, other._count

    @property
    def block_lines(self) -> int:
        """How many lines the block has so far."""
        return len(self.lines) - self._begun


class Writer(Text):
    """Writes a program's code one operation at a time; `rows` has the function that writes each kind of operation."""

    def __init__(self, code: Code, types: Types, rows: Mapping[str, Row], templates: Mapping[str, list[str]]):
        super().__init__()
        self.program, self.types, self.rows, self.templates = code.program, types, rows, templates
        self.order, self.sums, self.live = code.order, code.sums, code.program.live
        self.names: dict[Expr, str] = {}
        self.read_rows: dict[Expr, list[str]] = {}  # of tables: the names of their numbers
        self.late = self._late()
        self.active_sets: dict[Expr, ActiveSet] = {}
        self.packed: dict[Expr, tuple[str, str]] = {}  # by set: arrays of the slots' places and the places' slots
        self.tables: dict[str, str] = {}
        self.constants: dict[object, tuple[str, str]] = {}  # by contents of tables: their names, and types of numbers
        self.arrays: dict[str, tuple[int, str]] = {}  # their sizes, and types of what is in them
        self.in_scratch = False  # whether arrays stand in a GPU's scratch memory, not in the thread's own
        self.moved: Moved | None = None  # in a queue
        self.gpu: Gpu | None = None  # if each world is a thread
        self.common: set[Region] = set()  # regions that every thread with a world reaches
        self.in_list_order: set[Expr] = set()  # arrays, see `list_order`
        self.positions: dict[object, str] = {}  # by a loop's number: its position in the list
        self.longest = 0  # lines of a block after which it is cut; 0: none is

    def value(self, x: object, t: str) -> str:
        if type(x) is not Expr:
            return self.types.constant(t, x)
        if x in self.late:
            self.rows[x.op](self, x)
        return self.names[x]

    def _late(self) -> set[Expr]:
        """Find numbers that lanes share: loading them anew at each use is cheaper than keeping them as vectors.

        Those that a block or loop begins with are not among them: they have to be there before it.
        """
        shared = {k for k, b in enumerate(self.program.buffers) if b.share > 1 and self.types.lanes > 1}
        found = {e for e in self.live if e.op == "load" and e.attr[0] in shared}
        begun = (x.before for e in self.live if isinstance(e.attr, RegionOp) for x in e.attr.iter_args)
        return found.difference(x for x in begun if type(x) is Expr) if found else found

    def moved_for(self, array: Expr) -> Moved | None:
        """Return where lanes find an array of the worlds that they work for; None if each works for its own."""
        if self.moved is None:
            return None
        region: Region | None = array_of(array).region
        while region is not None and region is not self.moved.region:
            region = region.parent
        return self.moved if region is None else None

    def array(self, size: int, of: str) -> str:
        name = self.fresh("m")
        self.arrays[name] = size, of
        return name

    def allocations(self) -> list[str]:
        """Return the lines that allocate the function's arrays in its own memory."""
        return [f"  {name} = {self.types.array(n, of)}" for name, (n, of) in self.arrays.items()]

    def entry(self, of: str) -> str:
        """Return a type as large as the step from an array's entry to the next. In scratch memory, the same entries of
        a warp's threads are side by side.
        """
        return f"[{self.gpu.warp} x {of}]" if self.gpu is not None and self.in_scratch else of

    def operation(self, op: str, *args: str) -> str:
        """Write the lines of an operation's template, and return the name of its result."""
        r = self.fresh()
        *before, last = self.templates[op]
        for i, line in enumerate(before):
            self.lines.append(f"  {r}.{i} = {line.format(*args, r=r)}")
        self.lines.append(f"  {r} = {last.format(*args, r=r)}")
        return r

    def region(self, region: Region) -> None:
        """Write the code of a region."""
        for e in self.order[region]:
            if e not in self.late:
                if self.longest and self.block_lines > self.longest:
                    self._cut()
                self.write(e)

    def write(self, e: Expr) -> None:
        """Write the code of a node."""
        self.rows[e.op](self, e)

    def body(self, e: Expr) -> None:
        """Write the code of a block that may be skipped."""
        self.region(e.attr.body)

    def _cut(self) -> None:
        """Begin a new block: the longer a block, the longer LLVM takes for each of its lines."""
        following = self.fresh("cut")[1:]
        self.put(f"br i1 %go, label %{following}, label %gone")
        self.label(following)

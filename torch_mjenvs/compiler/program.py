"""A kernel as recorded: buffers, the expression graph, and which of its nodes are alive."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .arrays import BufferTable
from .expr import Expr, Trace, node, tracing, type_of
from .ops import OPS
from .region_ops import IterArg, RegionOp
from .verify import OUTSIDE, verify


@dataclass(frozen=True)
class Buffer:
    """A tensor that a kernel reads or writes.

    `type` is "f" (the kernel's float), "i" (int32) or "b" (bool). World-minor buffers are (size, worlds) tensors, so
    that neighbouring worlds are neighbours in memory; with `rows` they are (worlds, size), as users want them.

    Three kinds are read only, and hold what several worlds share. `share`: this many neighbouring worlds read one row
    of a (worlds / share, size) tensor. `period`: world k reads column k % period of a (size, period) tensor. Both
    numbers are multiples of `launch.PADDING`. `table`: all worlds read a (size,) tensor, each at its own indices, as a
    `Table` is read; in a kernel's body it is a `BufferTable`. In a kernel of pictures a "world" is a pixel: pixels
    share what their picture shows, pictures share the rays of their pixels, and all read the same textures.
    """

    name: str
    size: int
    type: str = "f"
    rows: bool = False
    share: int = 1
    period: int = 0
    table: bool = False

    @property
    def read_only(self) -> bool:
        """True if several worlds read the same numbers."""
        return self.share > 1 or self.period > 0 or self.table


@dataclass
class Program:
    """A recorded kernel: `stores` are (buffer index, column, value)."""

    name: str
    dtype: str
    buffers: tuple[Buffer, ...]
    trace: Trace
    stores: list[tuple[int, int, object]]
    live: set[Expr] = field(default_factory=set)
    uses: dict[Expr, list[Expr | None]] = field(default_factory=dict)

    def count_ops(self) -> Counter[str]:
        """Count the arithmetic operations of the code by name (a loop's body counts once, a fused pair as two;
        an index that all worlds share is none)."""
        return Counter(e.op for e in self.live if OPS[e.op].counts and e.type != "s")

    def release(self) -> None:
        """Take the graph apart. Its nodes and regions refer to each other, so it would otherwise stay until the next
        full collection.
        """
        regions = [self.trace.top]
        for region in regions:
            for e in region.nodes:
                if isinstance(e.attr, RegionOp):
                    regions += e.attr.regions
                e.args, e.attr = (), None
            region.nodes.clear()
            region.table.clear()


def record(
    name: str,
    buffers: Sequence[Buffer],
    body: Callable[[dict[str, list[Any]]], Mapping[str, Sequence[Any]]],
    dtype: str,
    derivatives: str = "",
) -> Program:
    """Run `body` on the columns of every buffer; what it returns by buffer name is stored.

    All loads come before all stores, so a buffer may be read and written. derivatives: see `Trace`.
    """
    index = {b.name: k for k, b in enumerate(buffers)}
    stores = []
    with collector_paused(), tracing(dtype, derivatives) as trace:
        columns: dict[str, Any] = {
            b.name: BufferTable(k, b.size, b.type)
            if b.table
            else [node("load", attr=(k, c), type_=b.type) for c in range(b.size)]
            for k, b in enumerate(buffers)
        }
        for key, values in body(columns).items():
            buffer = buffers[index[key]]
            if buffer.read_only:
                raise ValueError(f"kernel {name}: buffer {key!r}, which worlds have in common, is read only")
            if len(values) != buffer.size:
                raise ValueError(f"kernel {name}: {len(values)} values for buffer {key!r} of size {buffer.size}")
            for c, value in enumerate(values):
                if type_of(value) != buffer.type:
                    raise TypeError(f"kernel {name}: buffer {key!r} is of type {buffer.type!r}, got {value!r}")
                if value is not columns[key][c] or buffer.rows:  # else it stays as it is
                    stores.append((index[key], c, value))
        program = Program(name, dtype, tuple(buffers), trace, stores)
        _find_live(program)
        try:
            verify(program.live, [value for _, _, value in stores], trace.top)
        except (TypeError, ValueError) as error:
            told = type(error)(f"kernel {name}: {error}")
            if str(error).endswith((", got ()", OUTSIDE)):  # an operation of another program, or of another block
                told.add_note(
                    "A number that a function has computed is known in that call alone: what is kept in a global, an "
                    "attribute or a list of your own cannot be used by another. A task keeps it in its memory"
                )
            raise told from None
    return program


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """Switch off Python's cycle collector while the block runs: it would walk a growing graph again and again.

    It is on again when the last thread has left such a block.
    """
    with _pausing:
        _paused.append(gc.isenabled())
        gc.disable()
    try:
        yield
    finally:
        with _pausing:
            # whichever thread leaves last takes the entry of the one that came first; a child may have forgotten it
            if _paused and _paused.pop():
                gc.enable()


def forget_pauses() -> None:
    """In a forked child: do not wait for the parent's threads, which are not there, to leave such blocks."""
    if _pausing.locked():
        _pausing.release()
    if _paused and _paused[0]:
        gc.enable()
    _paused.clear()


_pausing = threading.Lock()
_paused: list[bool] = []  # for each block that a thread is in, whether the collector was on before


def _find_live(program: Program) -> None:
    """Mark the nodes that stores need, with their users (None: a store, a region op or a loop's back edge)."""
    live, uses = program.live, program.uses
    todo: list[Expr] = []

    def use(values: Iterable[object], user: Expr | None) -> None:
        for x in values:
            if type(x) is Expr:
                if x in uses:
                    uses[x].append(user)
                else:
                    uses[x] = [user]
                    todo.append(x)

    use((value for _, _, value in program.stores), None)
    while todo:
        x = todo.pop()
        live.add(x)
        if isinstance(x.attr, IterArg):
            use((x.attr.region_op, x.attr.before, x.attr.after, x.attr.variable), None)
        elif isinstance(x.attr, RegionOp):
            use((*x.args, *(y for y, _, _ in x.attr.reads())), None)
        else:
            use(x.args, x)

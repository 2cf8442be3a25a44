"""A kernel as recorded: buffers, the expression graph, and what of it is alive."""

from __future__ import annotations

import contextlib
import gc
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from .expr import OPS, Expr, Region, Trace, node, tracing, type_of

NOT_COUNTED = ("load", "neg", "get", "slookup", "sadd")


@dataclass(frozen=True)
class Buffer:
    """A tensor that a kernel reads or writes.

    `type` is "f" (the kernel's float), "i" (int32) or "b" (bool). World-minor buffers are (size, worlds) tensors, so
    that neighbouring worlds are neighbours in memory; with `rows` they are (worlds, size), as users want them.
    """

    name: str
    size: int
    type: str = "f"
    rows: bool = False


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
        """How many of each arithmetic operation the code holds (a loop's body counts once, a fused pair as two)."""
        return Counter(e.op for e in self.live if e.op in OPS and e.op not in NOT_COUNTED)

    def release(self) -> None:
        """Undo the graph, in which nodes and regions hold each other: else it would stay until a collection of all."""
        regions = [self.trace.top]
        for region in regions:
            for e in region.nodes:
                if e.op in FORMS:
                    regions += regions_of(e)
                e.args, e.attr = (), None
            region.nodes.clear()
            region.table.clear()


FORMS = ("when", "while", "repeat", "each")


def record(
    name: str,
    buffers: Sequence[Buffer],
    body: Callable[[dict[str, list]], Mapping[str, Sequence]],
    dtype: str,
) -> Program:
    """Run `body` on the columns of every buffer; what it returns by buffer name is stored.

    All loads come before all stores, so a buffer may be read and written.
    """
    index = {b.name: k for k, b in enumerate(buffers)}
    stores = []
    with collector_paused(), tracing(dtype) as trace:
        columns = {
            b.name: [node("load", attr=(k, c), type_=b.type) for c in range(b.size)] for k, b in enumerate(buffers)
        }
        for key, values in body(columns).items():
            buffer = buffers[index[key]]
            if len(values) != buffer.size:
                raise ValueError(f"kernel {name}: {len(values)} values for buffer {key!r} of size {buffer.size}")
            for c, value in enumerate(values):
                if type_of(value) != buffer.type:
                    raise TypeError(f"kernel {name}: buffer {key!r} is of type {buffer.type!r}, got {value!r}")
                stores.append((index[key], c, value))
        program = Program(name, dtype, tuple(buffers), trace, stores)
        _find_live(program)
        _verify(program)
    return program


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """Without Python's cycle collector, which would walk a growing graph, none of it garbage, again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _find_live(program: Program) -> None:
    """Mark what the stores need, and who uses it (None: a store, a control form or a loop's back edge)."""
    live, uses = program.live, program.uses
    todo: list[tuple[object, Expr | None]] = [(value, None) for _, _, value in program.stores]

    def carried(form: Expr, k: int) -> list:
        entry = form.attr[-1][k]
        return [entry[0], entry[-1]]

    while todo:
        x, user = todo.pop()
        if type(x) is not Expr:
            continue
        uses.setdefault(x, []).append(user)
        if x in live:
            continue
        live.add(x)
        if x.op == "result":
            form, k = x.args[0], x.attr
            todo.append((form, None))
            todo += [(y, None) for y in carried(form, k)]
            if form.op != "when":
                todo.append((form.attr[-1][k][1], None))
        elif x.op == "phi":
            form, k = x.attr
            todo.append((form, None))
            todo += [(y, None) for y in carried(form, k)]
        elif x.op in FORMS:
            todo += [(a, None) for a in (*x.args, *put_and_chosen(x))]
        else:
            todo += [(a, x) for a in x.args]


def _verify(program: Program) -> None:
    """Operations obey the table `OPS`, and no value is used where it has not been computed for sure."""
    for e in program.live:
        if e.op in OPS and e.op != "load":
            types = OPS[e.op][0]
            if len(types) != len(e.args) or not all(_fits(a, t) for a, t in zip(e.args, types, strict=True)):
                raise TypeError(f"kernel {program.name}: {e.op} takes {types!r}, got {e.args}")
    used = [(value, program.trace.top) for _, _, value in program.stores]
    for e in program.live:
        used += _operands(e)
    for x, region in used:
        if type(x) is Expr and x.region is not region and not _visible(x, region):
            raise ValueError(f"kernel {program.name}: {x!r} is used outside the block or loop that computes it")


def _fits(x: object, t: str) -> bool:
    if type(x) is Expr:
        return x.type == t
    kinds: dict[str, tuple[type, ...]] = {"f": (float, int), "i": (int,), "s": (int,), "b": (bool,)}
    return isinstance(x, kinds.get(t, ())) and isinstance(x, bool) == (t == "b")


def _operands(e: Expr) -> list[tuple[object, Region]]:
    """What a node needs, and the region in which it needs it."""
    if e.op not in FORMS:
        return [(a, e.region) for a in e.args]
    head, body = regions_of(e)
    out: list[tuple[object, Region]] = [(a, e.region if e.op in ("when", "each") else head) for a in e.args]
    out += [(a, body) for a in put_and_chosen(e)]
    for entry in e.attr[-1]:
        out += [(entry[0], e.region), (entry[-1], body)]
    return out


def put_and_chosen(form: Expr) -> list[object]:
    """What an `each` puts into memories and chooses, computed by its body."""
    if form.op != "each":
        return []
    _, _, _, puts, chosen, _ = form.attr
    return [x for put in puts for x in put] + list(chosen)


def _visible(x: Expr, region: Region | None) -> bool:
    while region is not None and region is not x.region:
        region = region.parent
    return region is not None


def regions_of(form: Expr) -> tuple[Region, Region]:
    """The region of a control form's head and that of its body (one and the same but for `while`)."""
    if form.op == "when":
        return form.attr[0], form.attr[0]
    return form.attr[0], form.attr[1]

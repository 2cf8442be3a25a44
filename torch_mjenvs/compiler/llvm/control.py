"""Region ops: blocks that may be skipped, and loops.

On vectors a branch is taken if any lane takes it, and masks keep the values of the other lanes. A thread that is a
world simply branches.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator

from ..expr import Expr
from ..region_ops import IterArg, OwnPut, PuttingLoop, Repeat, When, While, regions_within
from .arrays import in_memory, is_own, of_lane, own_places, place, place_in_lane
from .gpu import Gpu
from .loops import Variables
from .writer import Row, Writer


def any_lane(w: Writer, mask: object) -> str:
    """Write a bit that is set where the mask holds in any lane."""
    return any_bit(w, w.value(mask, "b"))


def any_bit(w: Writer, x: str) -> str:
    """Write a bit that is set where a mask that is already written holds in any lane."""
    if w.types.lanes == 1:
        return x
    return not_0(w, w.assign(f"bitcast {w.types.of('b')} {x} to {w.types.mask}"))


def masked(w: Writer, mask: object, new: object, old: object, t: str) -> str:
    """Write `new` in the worlds of the mask and `old` in others; a thread that came here is in the mask."""
    if w.types.lanes == 1 or mask is True or new is old or old is None:
        return w.value(new, t)
    return select(w, w.value(mask, "b"), w.value(new, t), w.value(old, t), t)


def select(w: Writer, mask: str, a: str, b: str, t: str) -> str:
    vector = w.types.of(t)
    return w.assign(f"select {w.types.of('b')} {mask}, {vector} {a}, {vector} {b}")


def when(w: Writer, e: Expr) -> None:
    """Write a branch around a block."""
    region_op: When = e.attr
    mask, needed = e.args[0], e.args[-1]
    iter_args = [x for x in region_op.iter_args if x.result in w.live]
    go = any_lane(w, mask if w.types.lanes == 1 else needed)
    body, join = w.fresh_labels("body", "join")
    before = w.block
    w.put(f"br i1 {go}, label %{body}, label %{join}")
    w.label(body)
    w.body(e)
    new = [masked(w, mask, x.after, x.before, x.type) for x in iter_args]
    after = w.block
    w.put(f"br label %{join}")
    w.label(join)
    for x, name in zip(iter_args, new, strict=True):
        old = "poison" if x.before is None else w.value(x.before, x.type)
        w.names[x.result] = w.assign(f"phi {w.types.of(x.type)} [ {old}, %{before} ], [ {name}, %{after} ]")
    for x in iter_args:
        if x.before is None and x.type == "b":  # a branch may depend on it, and to branch on poison is undefined
            w.names[x.result] = w.assign(f"freeze {w.types.of('b')} {w.names[x.result]}")


def repeat(w: Writer, e: Expr) -> None:
    """Write a loop with its test at the end, and a branch around it where it may have no iterations."""
    region_op: Repeat = e.attr
    times, maybe_none, before = w.value(e.args[0], "s"), type(e.args[0]) is Expr, w.block
    head, out = w.fresh_labels("head", "out")
    some = (w.assign(f"icmp sgt i32 {times}, 0"), out) if maybe_none else None
    variables, iter_args, i = _open(w, region_op, head, some)
    if e.region in w.common and not maybe_none:
        w.common.add(region_op.body)
    w.region(region_op.body)
    put_own(w, region_op, e.region.mask)
    following = w.assign(f"add i32 {i}, 1")
    again = w.assign(f"icmp slt i32 {following}, {times}")
    back = [w.value(x.after, x.type) for x in iter_args]
    variables.close([following, *back])
    after = w.block
    w.put(f"br i1 {again}, label %{head}, label %{out}")
    w.label(out)
    for x, new in zip(iter_args, back, strict=True):
        if x.result in w.live:
            old = w.value(x.before, x.type) if maybe_none else ""
            phi = f"phi {w.types.of(x.type)} [ {old}, %{before} ], [ {new}, %{after} ]"
            w.names[x.result] = w.assign(phi) if maybe_none else new


def while_(w: Writer, e: Expr) -> None:
    """Write a loop with its test between head and body."""
    region_op: While = e.attr
    if w.gpu and e.region in w.common:
        size = sum(len(region.nodes) for region in regions_within(region_op.body))
        if size >= w.gpu.together_from:
            _while_together(w, region_op, w.gpu)
            return
    head, body, out = w.fresh_labels("head", "body", "out")
    variables, iter_args, i = _open(w, region_op, head)
    w.region(region_op.head)
    go = any_lane(w, region_op.active)
    left = w.assign(f"icmp slt i32 {i}, {region_op.limit}")
    go = w.assign(f"and i1 {go}, {left}")
    w.put(f"br i1 {go}, label %{body}, label %{out}")
    w.label(body)
    w.region(region_op.body)
    put_own(w, region_op, region_op.active)
    back = [masked(w, region_op.active, x.after, x.variable, x.type) for x in iter_args]
    variables.close([w.assign(f"add i32 {i}, 1"), *back])
    w.put(f"br label %{head}")
    w.label(out)
    for x in iter_args:
        if x.result in w.live:
            w.names[x.result] = w.names[x.variable]


def _while_together(w: Writer, region_op: While, gpu: Gpu) -> None:
    """Write a `while` for all threads of a block: they begin each iteration together, and leave the loop together.

    Between iterations, threads that are done wait for the others. So the block's warps run the same code at about the
    same time, and a multiprocessor, which fetches code far more slowly than it runs it, fetches it once for all of
    them.
    """
    meet, test, head, body, met, out = w.fresh_labels("meet", "test", "head", "body", "met", "out")
    variables = Variables(w, w.block)
    w.put(f"br label %{meet}")
    w.label(meet)
    i = w.names[region_op.counter] = variables.add(w.fresh("i"), "i32", "0")
    going = variables.add(w.fresh("going"), "i1", "true")
    iter_args = add_iter_args(w, variables, region_op.iter_args)
    some = w.assign(f"call i1 @{gpu.any_thread}(i32 0, i1 {going})")
    w.put(f"br i1 {some}, label %{test}, label %{out}")
    w.label(test)
    w.put(f"br i1 {going}, label %{head}, label %{met}")
    w.label(head)
    w.region(region_op.head)
    active = w.value(region_op.active, "b")
    left = w.assign(f"icmp slt i32 {i}, {region_op.limit}")
    go = w.assign(f"and i1 {active}, {left}")
    tested = w.block
    w.put(f"br i1 {go}, label %{body}, label %{met}")
    w.label(body)
    w.region(region_op.body)
    put_own(w, region_op, region_op.active)
    new = ["true", w.assign(f"add i32 {i}, 1"), *(w.value(x.after, x.type) for x in iter_args)]
    done = w.block
    w.put(f"br label %{met}")
    w.label(met)
    old = ["false", i, *(w.names[x.variable] for x in iter_args)]
    types = ["i1", "i32", *(w.types.of(x.type) for x in iter_args)]
    going, *back = [
        w.assign(f"phi {t} [ {a}, %{test} ], [ {a}, %{tested} ], [ {b}, %{done} ]")
        for t, a, b in zip(types, old, new, strict=True)
    ]
    variables.close([back[0], going, *back[1:]])
    w.put(f"br label %{meet}")
    w.label(out)
    for x in iter_args:
        if x.result in w.live:
            w.names[x.result] = w.names[x.variable]


def put_own(w: Writer, region_op: PuttingLoop, active: object) -> None:
    """Write what an iteration, done for the worlds that are active, puts into arrays."""
    for (row_type, _), group in itertools.groupby(region_op.puts, lambda put: (put.row_type, id(put.mask))):
        puts = list(group)
        if row_type == "s":
            for put in puts:
                _put_in_shared_row(w, put, active)
        else:
            _put_in_own_rows(w, puts, active)


def _put_in_shared_row(w: Writer, put: OwnPut, active: object) -> None:
    x, vector, own = w.value(put.value, "f"), w.types.of("f"), w.types.own
    at = place(w, put.array, put.row, put.column)
    if put.mask is not None and not (active is True and put.mask is True):
        old = w.assign(f"load {vector}, {own} {at}")
        x = select(w, logical_and(w, active, put.mask), x, old, "f")
    w.put(f"store {vector} {x}, {own} {at}")


def _put_in_own_rows(w: Writer, puts: list[OwnPut], active: object) -> None:
    """Write puts under one mask into rows that differ from world to world.

    Usually only a few worlds of a vector put anything, so a loop goes through these, one lane at a time. (AVX-512's
    scatter stores a whole vector, but takes the same time whatever its mask.)
    """
    own_mask = puts[0].mask
    mask = active if own_mask is None else logical_and(w, active, own_mask)
    bits = mask if isinstance(mask, str) else w.value(mask, "b")
    numbers = [(w.value(put.value, "f"), w.value(put.row, "i")) for put in puts]
    if w.types.lanes == 1:
        for put, (x, row) in zip(puts, numbers, strict=True):
            at = (
                own_places(w, put.array, row, put.column)
                if is_own(w, put.row)
                else place(w, put.array, put.row, put.column)
            )
            old = w.assign(f"load {w.types.element}, {w.types.own} {at}")
            w.put(f"store {w.types.element} {select(w, bits, x, old, 'f')}, {w.types.own} {at}")
        return
    first = w.assign(f"bitcast {w.types.of('b')} {bits} to {w.types.mask}")
    body, out = w.fresh_labels("body", "out")
    w.put(f"br i1 {not_0(w, first)}, label %{body}, label %{out}")
    w.label(body)
    values = [in_memory(w, x, "f") for x, _ in numbers]
    rows = {row: in_memory(w, row, "i") for _, row in numbers}
    with each_lane(w, first, out) as lane:
        places = {row: of_lane(w, at, "i32", lane) for row, at in rows.items()}
        for put, at, (_, row) in zip(puts, values, numbers, strict=True):
            moved = w.moved_for(put.array)
            there = w.assign(f"zext i32 {of_lane(w, moved.memory, 'i32', lane)} to i64") if moved else lane
            to = place_in_lane(w, put.array, places[row], put.column, there)
            w.put(f"store {w.types.element} {of_lane(w, at, w.types.element, lane)}, {w.types.own} {to}")


@contextlib.contextmanager
def each_lane(w: Writer, first: str, out: str) -> Iterator[str]:
    """Write a loop over the lanes whose bit is set in `first` around the block's code; yield a lane's number, an i64.

    At least one bit is set. `out`: the label of what follows the loop.
    """
    mask, (head,) = w.types.mask, w.fresh_labels("lane")
    variables = Variables(w, w.block)
    w.put(f"br label %{head}")
    w.label(head)
    left = variables.add(w.fresh("left"), mask, first)
    lane = w.assign(f"call {mask} @llvm.cttz.{mask}({mask} {left}, i1 true)")
    yield w.assign(f"zext {mask} {lane} to i64")
    less = w.assign(f"sub {mask} {left}, 1")
    rest = w.assign(f"and {mask} {left}, {less}")  # without its lowest bit
    variables.close([rest])
    w.put(f"br i1 {not_0(w, rest)}, label %{head}, label %{out}")
    w.label(out)


def not_0(w: Writer, bits: str) -> str:
    return w.assign(f"icmp ne {w.types.mask} {bits}, 0")


def logical_and(w: Writer, a: object, b: object) -> str:
    """Write the mask of the worlds in both masks. A thread that is a world is here because it is in the first."""
    if a is True or w.types.lanes == 1:
        return w.value(b, "b")
    if b is True:
        return w.value(a, "b")
    return w.assign(f"and {w.types.of('b')} {w.value(a, 'b')}, {w.value(b, 'b')}")


def _open(
    w: Writer, region_op: PuttingLoop, head: str, unless: tuple[str, str] | None = None
) -> tuple[Variables, list[IterArg], str]:
    """Go to a loop's head; return its variables, the iteration arguments that are alive, and the count of turns before.

    unless: a bit, and where to go if it is not set.
    """
    variables = Variables(w, w.block)
    w.put(f"br i1 {unless[0]}, label %{head}, label %{unless[1]}" if unless else f"br label %{head}")
    w.label(head)
    i = w.names[region_op.counter] = variables.add(w.fresh("i"), "i32", "0")
    return variables, add_iter_args(w, variables, region_op.iter_args), i


def add_iter_args(w: Writer, variables: Variables, iter_args: list[IterArg]) -> list[IterArg]:
    """Add variables for the iteration arguments that are alive, and return these."""
    alive = [x for x in iter_args if x.variable in w.live]
    for x in alive:
        name = w.names[x.variable] = w.fresh()
        variables.add(name, w.types.of(x.type), w.value(x.before, x.type))
    return alive


def named_by_its_form(w: Writer, e: Expr) -> None:
    """Write nothing: the form that holds this node has named it."""


ROWS: dict[str, Row] = {
    "when": when,
    "repeat": repeat,
    "while": while_,
    "counter": named_by_its_form,
    "phi": named_by_its_form,
    "result": named_by_its_form,
}

"""Loops over active sets: lists of numbers, each with the mask of the worlds that need it."""

from __future__ import annotations

from collections.abc import Callable

from ..expr import Expr
from ..region_ops import ForEach
from .arrays import place, table_of
from .control import add_iter_args, any_bit, select
from .loops import Variables, count_to
from .writer import ActiveSet, Row, Writer

Ends = tuple[str, str, str]  # a type, and a value before and after the body


def active_set(w: Writer, e: Expr) -> None:
    """Write the list without a branch: every number is written, and overwritten by the next one if no lane needs it."""
    numbers, masks, count = *_arrays(w, e.attr), "0"
    for k, mask in enumerate(e.args):
        count = _append(w, numbers, masks, str(k), w.value(mask, "b"), count)
    w.active_sets[e] = ActiveSet(numbers, masks, count)


def chosen(w: Writer, e: Expr) -> None:
    w.active_sets[e] = w.active_sets[e.args[0]]


def everything(w: Writer, e: Expr) -> None:
    """Write a loop that lists all numbers."""
    numbers, masks = _arrays(w, e.attr)
    own, all_lanes = w.types.own, "true" if w.types.lanes == 1 else "-1"
    i, end = count_to(w, str(e.attr))
    w.put(f"store i32 {i}, {own} {_at(w, 'i32', numbers, i)}")
    w.put(f"store {w.types.mask} {all_lanes}, {own} {_at(w, w.types.mask, masks, i)}")
    end()
    w.active_sets[e] = ActiveSet(numbers, masks, str(e.attr))


def for_all(w: Writer, e: Expr) -> None:
    numbers, _, count = w.active_sets[e.args[0]]
    w.active_sets[e] = ActiveSet(numbers, "", count)


def packed(w: Writer, e: Expr) -> None:
    """Write loops that mark the places of what is in the sets, and one that goes through the places in order."""
    n, integer, own = int(e.attr), w.types.mask, w.types.own
    marks = w.array(n, integer)
    numbers, masks = _arrays(w, n)
    places, slots = w.array(n, "i32"), w.array(n, "i32")
    i, end = count_to(w, str(n))
    w.put(f"store {integer} {_nobody(w)}, {own} {_at(w, integer, marks, i)}")
    end()
    for which, order in zip(e.args, e.attr.orders, strict=True):
        listed, of_number, count = w.active_sets[which]
        j, end = count_to(w, count)
        number = w.assign(f"load i32, {own} {_at(w, 'i32', listed, j)}")
        mask = w.assign(f"load {integer}, {own} {_at(w, integer, of_number, number)}")
        table = _at(w, "i32", table_of(w, "i32", [str(x) for x in order]), number, w.types.shared)
        place = w.assign(f"load i32, {w.types.shared} {table}")
        w.put(f"store {integer} {mask}, {own} {_at(w, integer, marks, place)}")
        end()
    before = w.block
    head, out = w.fresh_labels("head", "out")
    w.put(f"br label %{head}")
    w.label(head)
    variables = Variables(w, before)
    place = variables.add(w.fresh("i"), "i32", "0")
    slot = variables.add(w.fresh("n"), "i32", "0")
    mask = w.assign(f"load {integer}, {own} {_at(w, integer, marks, place)}")
    w.put(f"store i32 {slot}, {own} {_at(w, 'i32', numbers, slot)}")
    w.put(f"store {integer} {mask}, {own} {_at(w, integer, masks, slot)}")
    w.put(f"store i32 {place}, {own} {_at(w, 'i32', places, slot)}")
    w.put(f"store i32 {slot}, {own} {_at(w, 'i32', slots, place)}")
    some = w.assign(f"icmp ne {integer} {mask}, {_nobody(w)}")
    more = w.assign(f"zext i1 {some} to i32")
    back = [w.assign(f"add i32 {place}, 1"), w.assign(f"add i32 {slot}, {more}")]
    variables.close(back)
    again = w.assign(f"icmp slt i32 {back[0]}, {n}")
    w.put(f"br i1 {again}, label %{head}, label %{out}")
    w.label(out)
    w.active_sets[e] = ActiveSet(numbers, masks, back[1])
    w.packed[e] = places, slots


def number(w: Writer, e: Expr) -> None:
    _renumber(w, e, 0)


def slot(w: Writer, e: Expr) -> None:
    _renumber(w, e, 1)


def _renumber(w: Writer, e: Expr, which: int) -> None:
    """Write the reading of an array of a packed set: the place of each slot (0), or the slot of each place (1)."""
    at = _at(w, "i32", w.packed[e.args[0]][which], w.value(e.args[1], "s"))
    w.names[e] = w.assign(f"load i32, {w.types.own} {at}")


def _nobody(w: Writer) -> str:
    return "false" if w.types.lanes == 1 else "0"


def _at(w: Writer, element: str, array: str, i: str, space: str = "") -> str:
    entry = element if space else w.entry(element)
    return w.assign(f"getelementptr {entry}, {space or w.types.own} {array}, i32 {i}")


def _arrays(w: Writer, n: int) -> tuple[str, str]:
    return w.array(n, "i32"), w.array(n, w.types.mask)


def _append(w: Writer, numbers: str, masks: str, number: str, mask: str, count: str) -> str:
    """Append a number with its mask if that holds in any lane, and return the new count."""
    integer, own = w.types.mask, w.types.own
    bits = mask if w.types.lanes == 1 else w.assign(f"bitcast {w.types.of('b')} {mask} to {integer}")
    w.put(f"store {integer} {bits}, {own} {_at(w, integer, masks, number)}")
    w.put(f"store i32 {number}, {own} {_at(w, 'i32', numbers, count)}")
    some = w.assign(f"icmp ne {integer} {bits}, 0")
    more = w.assign(f"zext i1 {some} to i32")
    return w.assign(f"add i32 {count}, {more}")


def for_each(w: Writer, e: Expr) -> None:
    """Write a loop over the list, with its test at the end, and a branch around it for where the list is empty."""
    region_op: ForEach = e.attr
    which, around = e.args
    numbers, masks, count = w.active_sets[which]
    parts = _arrays(w, which.attr * len(region_op.chosen)) if region_op.chosen else None
    before, (head, out) = w.block, w.fresh_labels("head", "out")
    some = w.assign(f"icmp sgt i32 {count}, 0")
    w.put(f"br i1 {some}, label %{head}, label %{out}")
    w.label(head)
    variables = Variables(w, before)
    i = variables.add(w.fresh("i"), "i32", "0")
    n = variables.add(w.fresh("n"), "i32", "0") if parts else ""
    iter_args = add_iter_args(w, variables, region_op.iter_args)
    number, here = numbered(w, numbers, masks, i)
    w.names[region_op.counter], w.positions[region_op.counter] = number, i
    end = _skip(w, here, around)
    w.region(region_op.body)
    _put(w, region_op, here)
    ends = [("i32", n, _chosen_parts(w, region_op, which.attr, here, parts, n))] if parts else []
    for x in iter_args:
        old, new = w.names[x.variable], w.value(x.after, x.type)
        ends.append((w.types.of(x.type), old, select(w, here, new, old, x.type) if here else new))
    found = end(ends)
    back = [w.assign(f"add i32 {i}, 1"), *found]
    variables.close(back)
    again = w.assign(f"icmp slt i32 {back[0]}, {count}")
    after = w.block
    w.put(f"br i1 {again}, label %{head}, label %{out}")
    w.label(out)
    w.assign(f"phi i32 [ 0, %{before} ], [ {back[0]}, %{after} ]")
    if parts:
        w.active_sets[e] = ActiveSet(*parts, w.assign(f"phi i32 [ 0, %{before} ], [ {back[1]}, %{after} ]"))
    for x, new in zip(iter_args, back[len(back) - len(iter_args) :], strict=True):
        init = w.value(x.before, x.type)
        w.names[x.result] = w.assign(f"phi {w.types.of(x.type)} [ {init}, %{before} ], [ {new}, %{after} ]")


def numbered(w: Writer, numbers: str, masks: str, i: str) -> tuple[str, str]:
    """Write the reading of the i-th number and its mask; the mask is "" if the number is for all worlds."""
    integer, own = w.types.mask, w.types.own
    number = w.assign(f"load i32, {own} {_at(w, 'i32', numbers, i)}")
    if not masks:
        return number, ""
    mask = w.assign(f"load {integer}, {own} {_at(w, integer, masks, number)}")
    return number, mask if w.types.lanes == 1 else w.assign(f"bitcast {integer} {mask} to {w.types.of('b')}")


def _skip(w: Writer, here: str, around: object) -> Callable[[list[Ends]], list[str]]:
    """Begin a branch that skips the body if all worlds that need this number have left the surrounding loop.

    Return a function that ends the branch and returns the values after it. There is no branch if the surrounding code
    runs for all worlds, or if a thread is a world, since a thread that has left the loop does not come here.
    """
    if w.types.lanes == 1 or around is True or not here:
        return lambda ends: [new for _, _, new in ends]
    needed = w.assign(f"and {w.types.of('b')} {here}, {w.value(around, 'b')}")
    go, before, (body, join) = any_bit(w, needed), w.block, w.fresh_labels("body", "join")
    w.put(f"br i1 {go}, label %{body}, label %{join}")
    w.label(body)

    def end(ends: list[Ends]) -> list[str]:
        after = w.block
        w.put(f"br label %{join}")
        w.label(join)
        return [w.assign(f"phi {t} [ {old}, %{before} ], [ {new}, %{after} ]") for t, old, new in ends]

    return end


def _chosen_parts(w: Writer, region_op: ForEach, count: int, here: str, parts: tuple[str, str], n: str) -> str:
    """Append the chosen parts of this number, which is below `count`, to their list, and return its new length."""
    for k, mask in enumerate(region_op.chosen):
        part = w.assign(f"add i32 {w.names[region_op.counter]}, {k * count}")
        inside = w.value(mask, "b")
        if here:
            inside = select(w, here, inside, w.types.constant("b", False), "b")
        n = _append(w, *parts, part, inside, n)
    return n


def _put(w: Writer, region_op: ForEach, here: str) -> None:
    for put in region_op.puts:
        x = w.value(put.value, "f")
        if put.otherwise is not None and here:
            x = select(w, here, x, w.value(put.otherwise, "f"), "f")
        w.put(f"store {w.types.of('f')} {x}, {w.types.own} {place(w, put.array, put.row, put.column)}")


ROWS: dict[str, Row] = {
    "active_set": active_set,
    "everything": everything,
    "for_all": for_all,
    "chosen": chosen,
    "packed": packed,
    "number": number,
    "slot": slot,
    "for_each": for_each,
}

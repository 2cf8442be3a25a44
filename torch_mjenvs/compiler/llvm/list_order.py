"""Arrays that hold a row for each number of one list: which of them a thread may keep in the order of its list.

A thread that is a world goes through its own list. If its first contact has the number 17, row 17 is kept as its first
row. So the threads of a warp, which are at the same place of their lists, but at different numbers, read neighbours in
memory, from lines that all of them share.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..expr import Expr
from ..region_ops import ForEach, PuttingLoop, array_of


def arrays_in_list_order(live: Iterable[Expr]) -> set[Expr]:
    """Return the arrays whose rows are put and read at the numbers of one list alone, in loops over that list.

    An array that is made elsewhere than its list may outlive it, and then its rows have to keep their numbers.
    """
    nodes = list(live)
    loops = (e for e in nodes if isinstance(e.attr, ForEach) or e.op == "queue_each")
    lists: dict[object, Expr] = {e.attr.counter: _list_of(e.args[0]) for e in loops}
    lists_of: dict[Expr, set[Expr | None]] = {}
    for array, row in _rows(nodes):
        lists_of.setdefault(array_of(array), set()).add(lists.get(_counter_of(row)))
    alone = {x: next(iter(found)) for x, found in lists_of.items() if len(found) == 1 and not x.args}
    return {x for x, which in alone.items() if which is not None and which.region is x.region}


def _list_of(which: Expr) -> Expr:
    return _list_of(which.args[0]) if which.op == "for_all" else which


def _rows(nodes: Iterable[Expr]) -> Iterator[tuple[Expr, object]]:
    """List the arrays, with the rows, that are read or put."""
    for e in nodes:
        if e.op == "get":
            yield e.args[0], e.args[1]
        elif isinstance(e.attr, ForEach | PuttingLoop):
            yield from ((put.array, put.row) for put in e.attr.puts)


def _counter_of(row: object) -> object:
    """Return the number that a row belongs to: the row itself or, for a number's parts, what a constant is added to."""
    if type(row) is Expr and row.op in ("sadd", "iadd"):
        numbers = [x for x in row.args if type(x) is Expr]
        return numbers[0] if len(numbers) == 1 else None
    return row

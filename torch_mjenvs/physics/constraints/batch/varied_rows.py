"""Arrays of what varies from world to world of geoms, explicit pairs and bodies; each pair has two rows of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ....compiler.arrays import Array
from ....compiler.scalar import Scalar
from ...algebra.spatial import Vec, is_number
from ...collision.contact_param import Source
from ...model.model import Model, Pair, bodies_of

Look = Callable[[Sequence[Any]], Any]  # returns a pair's entry of a list with one entry for each of `PairBatch.real`
Two = Callable[[Look], list[list[Scalar]]]  # returns the two rows of the pair for which `Look` looks up


class Rows:
    """Rows of numbers in an array, by what they are of; and last a row of zeros."""

    def __init__(self, rows: Mapping[Any, Vec]):
        self.place = {x: k for k, x in enumerate(rows)}
        columns = [tuple(x if is_number(x) else id(x) for x in column) for column in zip(*rows.values(), strict=True)]
        different = list(dict.fromkeys(columns))
        self.columns = [different.index(x) for x in columns]
        kept = [columns.index(x) for x in different]
        self.array = Array.fixed([*([row[c] for c in kept] for row in rows.values()), [0.0] * len(kept)])

    def two(self, ends: Sequence[tuple[Any, Any]]) -> Two:
        """Return what looks up the rows of pairs. ends: by pair, of what; if both are one, the second row is zeros."""
        none = len(self.place)
        places = [self.place[one] for one, _ in ends], [none if one == two else self.place[two] for one, two in ends]
        return lambda look: [[self.array[at, c] for c in self.columns] for at in map(look, places)]


@dataclass(frozen=True)
class VariedRows:
    """Rows of what varies, by name, and of what the rows differ from those of the model as it was loaded."""

    rows: dict[str, Rows]
    different: dict[str, set[Any]]

    def two(self, name: str, ends: Sequence[tuple[Any, Any]]) -> Two | None:
        """Return what looks up two rows of pairs, or None if these do not vary. ends: by pair, of what."""
        some = self.different.get(name, set())
        return self.rows[name].two(ends) if any(x in some for two in ends for x in two) else None


def varied_rows(m: Model) -> VariedRows:
    """Return rows of what varies of that from which contacts are made.

    Arrays that were made before in a kernel are found again. So if they are asked for before its loops, they are filled
    once.
    """
    sources = dict.fromkeys(x for p in m.pairs for x in sources_of_margin(p))
    bodies = dict.fromkeys(body for p in m.pairs for body in bodies_moved(m, p))
    axes = max((p.condim for p in m.pairs), default=1) - 1
    fields: dict[str, tuple[Any, Callable[[Model, Any], Vec]]] = {
        "friction": (sources, lambda m, x: x.friction(m)[:axes]),
        "solref": (sources, lambda m, x: x.row(m, "solref")),
        "solimp": (sources, lambda m, x: x.row(m, "solimp")[:4]),
        "margin": (sources, lambda m, x: [x.row(m, "margin")]),
        "weights": (bodies, lambda m, body: m.body_invweight0[body]),
    }
    found = VariedRows({}, {})
    for name, (which, row) in fields.items():
        rows, usual = ({x: list(row(model, x)) for x in which} for model in (m, m.nominal or m))
        different = {x for x in which if not (is_number(*rows[x]) and rows[x] == usual[x])}
        if different:
            found.rows[name], found.different[name] = Rows(rows), different
    return found


def sources_of_margin(pair: Pair) -> tuple[Source, Source]:
    """Return whose margins make that of a pair: twice its own if it is explicit."""
    if pair.ipair >= 0:
        return (Source("pair", pair.ipair),) * 2
    return Source("geom", pair.geom1), Source("geom", pair.geom2)


def bodies_moved(m: Model, pair: Pair) -> tuple[int, int]:
    """Return the bodies of a pair's geoms; the world in place of those that nothing moves, as they weigh the same."""
    one, two = (body if m.body_weldid[body] else 0 for body in bodies_of(m, pair))
    return one, two

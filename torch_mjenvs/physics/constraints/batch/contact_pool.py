"""Contacts of very many pairs, of all kinds of shapes, in slots.

dm_control's dog has 5,557 pairs of geoms that may touch, of 14 kinds. Each kind has loops of its own that find contacts
(`PairTables`); what comes after, the rows and all that the solver does with them, is the same for all, and there once.

A contact is a number, its place in MuJoCo's order. Those that act are packed into slots, so that what is kept of them
lies together, whichever they are. There is a slot for each contact that there may be, so none is ever left out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ....compiler.arrays import Array, Table
from ....compiler.control import Packed, fold_each, put_each, repeat
from ....compiler.scalar import Mask, Scalar, logical_or
from ...model.data import Data
from ...model.model import Model, Pair
from ...model.precision import Precision
from ..body_contacts import lines_of
from ..cones.pyramid import Cone
from ..contacts import cone_of
from ..softening import ContactBound, contact_bound
from .contact_groups import ContactGroup, rows_of
from .pair_batch import PairBatch
from .pair_tables import PairTables
from .records import Records, records, records_each


@dataclass(frozen=True)
class PoolBatch(PairBatch):
    """The contacts of a pool as a batch: a pair for each contact, in MuJoCo's order.

    couples: of each contact which of the couples of bodies it is of, by which tables of dofs go.
    """

    kth: Sequence[int] = ()
    couples: Sequence[int] = ()

    @classmethod
    def of_contacts(cls, m: Model, contacts: Sequence[tuple[Pair, int]]) -> PoolBatch:
        """Make the batch of contacts, each given by its pair and which of the pair's it is."""
        bodies = [(m.geom_bodyid[p.geom1], m.geom_bodyid[p.geom2]) for p, _ in contacts]
        known: dict[tuple[int, int], int] = {}
        couples = [known.setdefault(couple, len(known)) for couple in bodies]
        first = [contacts[couples.index(k)][0] for k in range(len(known))]
        of_couples = PairBatch.of(m, first)
        fields = {f.name: getattr(of_couples, f.name) for f in dataclasses.fields(PairBatch)}
        alike = all(not one or m.body_originid[one] == m.body_originid[two] for one, two in known)
        fields |= {"pairs": [p for p, _ in contacts], "bodies": bodies, "one_tree": alike, "ncon": 1}
        return cls(**fields, kth=[k for _, k in contacts], couples=couples)

    @property
    def numbers(self) -> list[int]:
        return list(self.kth)

    def dof(self, i: Any, k: int) -> Any:
        return self._per_couple([own[k] for own in self.own], i)

    def sign(self, i: Any, k: int) -> Any:
        return self._per_couple([sign[k] for sign in self.signs], i)

    def start(self, i: Any, k: int) -> Any:
        return self._per_couple([own[k] * (own[k] + 1) // 2 for own in self.own], i)

    def _per_couple(self, values: Sequence[Any], i: Any) -> Any:
        return Table(values)[Table(self.couples)[i]]


@dataclass
class ContactPool(ContactGroup):
    """The contacts of a pool. slots: those that act, by their places in MuJoCo's order."""

    slots: Packed = dataclasses.field(kw_only=True)

    def dense(self, i: Any, axes: Sequence[int], nv: int) -> list[list[Scalar]]:
        """Return rows of the Jacobian of contact i with an entry for each dof (axes, nv)."""
        batch, number = self.batch, self.number(i)
        rows = [self.rows.at(i, ("J", k)) for k in axes]
        entries = Array([[0.0] * len(rows)] * (len(batch.dofs) + 1))

        def scatter(_: Any, nothing: Any) -> Any:
            for c in range(batch.most):
                entries.put(batch.dof(number, c), [row[c] for row in rows], None)
            return nothing

        repeat(1, scatter, [], [entries])
        place = {v: k for k, v in enumerate(batch.dofs)}
        return [[entries[place[v], k] if v in place else 0.0 for v in range(nv)] for k in range(len(rows))]


def contact_pool(m: Model, d: Data, batches: Sequence[Sequence[Pair]]) -> ContactPool:
    """Make the contacts of batches of pairs of one condim."""
    finders = [PairTables(m, d, PairBatch.of(m, list(pairs))) for pairs in batches]
    known = [list(zip(f.batch.pairs * f.batch.ncon, f.batch.numbers, strict=True)) for f in finders]
    contacts = sorted((c for some in known for c in some), key=lambda c: (c[0].rank, c[1]))
    place = {(id(pair), k): n for n, (pair, k) in enumerate(contacts)}
    orders = [[place[id(pair), k] for pair, k in some] for some in known]
    batch, acting = PoolBatch.of_contacts(m, contacts), [f.touching() for f in finders]
    touching = Packed.of(acting, orders, len(contacts))
    found = _found(finders, acting, orders, touching, batch)
    moving = records(
        [*({"odof": list(d.odof[v]), "qvel": d.qvel[v]} for v in batch.dofs), {"odof": [0.0] * 6, "qvel": 0.0}]
    )

    def row(i: Any) -> dict[Any, Any]:
        arms, axes = (found.at(i, "arm1"), found.at(i, "arm2")), [found.at(i, ("axis", k)) for k in range(3)]

        def y0(speed: list[Scalar]) -> list[Scalar]:
            damped = [b * v for b, v in zip(found.at(i, "damping"), speed, strict=True)]
            return [damped[0] + found.at(i, "pull"), *damped[1:]]

        return rows_of(batch, moving, touching.place(i), lines_of(arms, axes, batch.condim), y0)

    rows = records_each(touching.which, row)

    def cone(i: Any) -> Cone:
        return cone_of(m, found.at(i, "friction"), found.at(i, "D"), ContactBound(False))

    def where(i: Any) -> tuple[Scalar, list[list[Scalar]], list[list[Scalar]]]:
        arms = [found.at(i, "arm1"), found.at(i, "arm2")]
        return found.at(i, "dist"), arms, [found.at(i, ("axis", k)) for k in range(3)]

    refine = _refined(m, d.precision, batch, touching)
    return ContactPool(batch, touching.which, rows, cone, where, touching.place, refine, slots=touching)


def _found(
    finders: Sequence[PairTables],
    acting: Sequence[Any],
    orders: Sequence[Sequence[int]],
    touching: Packed,
    batch: PoolBatch,
) -> Records:
    """Compute by slot where each contact is, and the numbers of its rows."""
    condim = batch.condim
    columns: dict[Any, int | slice] = {"dist": 0, "D": 1, "pull": 2}
    width = 3
    sizes: dict[Any, int] = dict.fromkeys(("arm1", "arm2", *(("axis", k) for k in range(3))), 3)
    sizes |= {"damping": condim, "friction": condim - 1}
    for name, size in sizes.items():
        columns[name] = slice(width, width + size)
        width += size
    found = Array(rows=len(batch.pairs), columns=width)
    for tables, which, order in zip(finders, acting, orders, strict=True):

        def put(i: Any, tables: PairTables = tables, order: Sequence[int] = order) -> tuple[Any, list[Scalar]]:
            dist, p, frame = tables.contact(i)
            row, arms = tables.row(i, dist), tables.arms(i, p)
            pull = row.y0([0.0] * condim)[0]
            friction = [x.of_contact(i) for x in tables.friction]
            flat = [x for vector in (*arms, *frame) for x in vector]
            return touching.slot(Table(order)[i]), [dist, row.stiffness(), pull, *flat, *row.param.damping, *friction]

        put_each(which, put, found)
    return Records(found, columns)


def _refined(m: Model, precision: Precision, batch: PoolBatch, touching: Packed) -> list[Mask]:
    """Return the masks of the worlds where a contact that acts needs refinement."""
    pairs = {id(pair): pair for pair in batch.pairs}
    nominal = m.nominal or m
    needed = {key: bool(contact_bound(nominal, pair, precision).needs_refinement) for key, pair in pairs.items()}
    if not any(needed.values()):
        return []
    if all(needed.values()):
        return [fold_each(touching.which, lambda i, c: [True], [False])[0]]
    table = Table([float(needed[id(pair)]) for pair in batch.pairs])
    return [
        fold_each(touching.which, lambda i, c: [logical_or(c[0], table[touching.place(i)] > 0.5)], [False])[0]
    ]

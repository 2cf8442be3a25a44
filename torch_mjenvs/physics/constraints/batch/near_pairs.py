"""Pairs of moving geoms with many that stand still, such as a robot's on ground of a thousand boxes.

Of 41,725 such pairs (a quadruped on Unitree's terrain) each world needs some forty. So there is no number for each of
them: a moving geom has a few places, and each world puts into them the still geoms that are near it there. What a loop
looks up for a place follows from the still geom that the world has in it.

There are as many places as still geoms can be near at once, wherever the geom is, so none is ever left out.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....compiler.arrays import Array, Table
from ....compiler.control import count_while, repeat
from ....compiler.scalar import Scalar, absolute, logical_and, number, select
from ...algebra.spatial import add
from ...collision.boxes_around import boxes_around
from ...collision.colliders import SLACK
from ...collision.contact_param import contact_param
from ...collision.shapes import bound_of
from ...model.data import Data
from ...model.model import Model, Pair, bodies_of
from .cells import Cells, deepest
from .near_groups import NearPairs, ends, stands_still
from .pair_batch import PairBatch


@dataclass(frozen=True)
class NearBatch(PairBatch):
    """A batch of the pairs of some moving geoms with all of the same still geoms.

    pairs: for each place, one of its moving geom's pairs; `bodies` has 0 in place of the still geom's. all_pairs:
    moving geom by moving geom, in the order of the still ones. side: of the still geoms, 0 if they are the pairs'
    first. owners: each place's moving geom, by number. starts: each moving geom's first place. cells: which still geoms
    are near, by where the moving one is. chosen: by place, the number of the still geom that a world has there.
    """

    all_pairs: list[Pair]
    side: int
    owners: list[int]
    starts: list[int]
    cells: Cells
    chosen: Array

    @property
    def real(self) -> Sequence[Pair]:
        return self.all_pairs

    @property
    def nstill(self) -> int:
        """The number of still geoms."""
        return len(self.all_pairs) // len(self.starts)

    def still_bodies(self, m: Model) -> list[int]:
        return [bodies_of(m, p)[self.side] for p in self.all_pairs]

    @classmethod
    def around(cls, m: Model, d: Data, pairs: NearPairs) -> NearBatch:
        """Make the batch of these pairs."""
        side = 0 if stands_still(m, pairs[0].geom1) else 1
        ordered = sorted(pairs, key=lambda p: ends(p, side))
        movers, still = (sorted({ends(p, side)[k] for p in pairs}) for k in (0, 1))
        middles, halves = _boxes(m, d, still)
        n, reaches = len(still), list[float]()
        for k, geom in enumerate(movers):
            params = [contact_param(m, p) for p in ordered[k * n : (k + 1) * n]]
            reaches.append(float(bound_of(m, geom)) + max(float(p.margin + p.gap) for p in params))
        slack = SLACK * (float(np.abs(middles).max()) + float(halves.max()) + max(reaches))  # more than rounding
        reaches = [reach + slack for reach in reaches]
        most = {reach: deepest(middles, halves + (reach + slack)) for reach in set(reaches)}
        owners = [k for k, reach in enumerate(reaches) for _ in range(most[reach])]
        starts = list(itertools.accumulate((most[reach] for reach in reaches), initial=0))[:-1]
        chosen = Array(rows=len(owners) + 1, columns=1)
        cells = Cells.of(middles, halves, reaches, slack)
        base = PairBatch.of(m, [ordered[k * n] for k in owners])
        bodies = [(0, second) if side == 0 else (first, 0) for first, second in base.bodies]
        known = vars(base) | {"bodies": bodies}
        return cls(**known, all_pairs=ordered, side=side, owners=owners, starts=starts, cells=cells, chosen=chosen)

    def of_contact(self, values: Sequence[Any], i: Any) -> Any:
        place = i if self.collider.ncon == 1 else self.per_contact(range(len(self.owners)), i)
        return self.of_pair(values, place)

    def of_pair(self, values: Sequence[Any], i: Any) -> Any:
        n = self.nstill
        rows = [values[k : k + n] for k in range(0, len(values), n)]
        if all(len(set(row)) == 1 for row in rows):
            own = [rows[k][0] for k in self.owners]
            return own[0] if len(set(own)) == 1 else Table(own)[i]
        still = self.chosen[i, 0]
        if all(row == rows[0] for row in rows):
            return Table([float(x) for x in rows[0]])[still]
        return Table([float(x) for x in values])[still + Table([float(k * n) for k in self.owners])[i]]

    def of_still(self, rows: Sequence[Sequence[float]], i: Any) -> list[Scalar]:
        """Return the row of the still geom that each world has in the place of contact i. rows: one per still geom."""
        place = self.per_contact(range(len(self.owners)), i)
        still, table = self.chosen[place, 0], Table(rows)
        return [table[still, c] for c in range(len(rows[0]))]

    def find(self, m: Model, d: Data) -> Array:
        """Put the near still geoms into the places; return how many each moving geom has."""
        movers = [ends(self.all_pairs[k], self.side)[0] for k in range(0, len(self.all_pairs), self.nstill)]
        centres = Array([add(d.origin[m.body_originid[m.geom_bodyid[g]]], d.geom_xrel[g]) for g in movers])
        counts = Array(rows=len(movers), columns=1)
        cells, starts = self.cells, Table([float(x) for x in self.starts])

        def look_around(a: Any, nothing: Any) -> Any:
            centre, start, reach = centres[a], starts[a], cells.reaches[a]
            first, many = cells.at(centre)

            def look(k: Any, count: Scalar) -> Scalar:
                still = cells.entries[first + number(k)]
                box = cells.boxes[still]
                near = [absolute(x - box[c]) < box[3 + c] + reach for c, x in enumerate(centre)]
                self.chosen.put(start + count, [still], None)  # the next one overwrites it if it is not near
                return count + select(logical_and(*near), 1.0, 0.0)

            counts.put(a, [count_while(lambda k, _: number(k) < many, look, 0.0, cells.most, [self.chosen])], None)
            return nothing

        repeat(len(movers), look_around, [], [self.chosen, counts])
        return counts


def _boxes(m: Model, d: Data, geoms: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Return the middles of the boxes around still geoms along the world's axes, and half of their sides (n x 3)."""
    around, middles, halves = boxes_around(m, geoms), [], []
    for g in geoms:
        mat = np.reshape(d.geom_xmat[g], (3, 3)).astype(float)
        centre = np.array(add(d.origin[m.body_originid[m.geom_bodyid[g]]], d.geom_xrel[g]), float)
        middles.append(centre + mat @ around[g].middle)
        halves.append(np.abs(mat) @ around[g].half)
    return np.array(middles), np.array(halves)

"""The numbers of a batch's pairs: friction, impedance, what softens contacts, and all else that these are made of."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from ...algebra.spatial import Vec, is_zero
from ...collision.contact_param import contact_param
from ...model.model import Model
from ...model.precision import Precision
from ..contact_row import row_param
from ..softening import contact_bound
from .pair_batch import PairBatch
from .varied_numbers import InTable, Number, VariedNumbers, constant


@dataclass(frozen=True)
class PairNumbers:
    """What contacts of a batch's pairs are made of. Names are those of `RowParam` and `ContactBound`.

    looked_at: margin plus gap. friction: along each axis but the normal. give, slip: None if nothing is softened so.
    repeated: 1 in worlds where Newton steps are repeated because of the pair, else 0. repeats: that of each pair, None
    if worlds differ.
    """

    margin: Number
    looked_at: Number
    solimp: Sequence[Number]
    k: Number
    damping: Sequence[Number]
    invweight: Number
    friction: Sequence[Number]
    give: Number | None
    slip: Number | None
    repeated: Number
    repeats: Sequence[bool] | None

    @staticmethod
    def of(m: Model, batch: PairBatch, precision: Precision) -> PairNumbers:
        """Return the numbers of a batch's pairs: in tables, but for those that vary from world to world."""
        usual, pairs, axes = m.nominal or m, batch.real, range(batch.condim)
        contacts, rows = [contact_param(usual, p) for p in pairs], [row_param(usual, p) for p in pairs]
        bounds = [contact_bound(usual, p, precision) for p in pairs]
        gives, slips = [x.give for x in bounds], [x.slip for x in bounds]
        repeats = [bool(x.needs_refinement) for x in bounds]
        found = PairNumbers(
            margin=InTable([x.margin for x in rows]),
            looked_at=InTable([x.margin + x.gap for x in contacts]),
            solimp=_solimp([x.solimp for x in rows]),
            k=InTable([x.k for x in rows]),
            damping=[InTable([x.damping[axis] for x in rows]) for axis in axes],
            invweight=InTable([x.invweight for x in rows]),
            friction=[InTable([x.friction[k] for x in contacts]) for k in axes[:-1]],
            give=None if all(map(is_zero, gives)) else InTable(gives),
            slip=None if all(map(is_zero, slips)) else InTable(slips),
            repeated=InTable([float(x) for x in repeats]),
            repeats=repeats,
        )
        if m.nominal is None:
            return found
        varied = VariedNumbers(m, m.nominal, pairs, batch.condim, precision).numbers(softened=found.give is not None)
        return dataclasses.replace(found, **varied)


def _solimp(rows: Sequence[Vec]) -> list[Number]:
    """Return solimp, whose power is the same for all pairs of a batch."""
    if all(row == rows[0] for row in rows):
        return list(map(constant, rows[0]))
    return [*(InTable([row[k] for row in rows]) for k in range(4)), constant(rows[0][4])]

"""`PairTables` of moving geoms and the still ones near them: see `near_pairs`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....compiler.active_sets import choose_each, everything
from ....compiler.arrays import Table
from ....compiler.scalar import Mask
from ...model.data import Data
from ...model.model import Model, Pair
from .near_groups import NearPairs
from .near_pairs import NearBatch
from .pair_batch import PairBatch
from .pair_tables import PairTables
from .records import records


class NearTables(PairTables):
    """The pairs of a `NearBatch` in the state d, by place."""

    batch: NearBatch

    def _bounds_that_meet(self, m: Model, d: Data) -> Any:
        counts, owners = self.batch.find(m, d), self.batch.owners
        kth, owner = Table([float(k - self.batch.starts[a]) for k, a in enumerate(owners)]), Table(owners)

        def filled(i: Any) -> list[Mask]:
            return [kth[i] < counts[owner[i], 0]]

        return choose_each(everything(self.n), filled, self.n)

    def _tabulate_poses(self, m: Model, d: Data, geoms: Sequence[int]) -> None:
        n, side = self.batch.nstill, self.batch.side
        movers = self._ends[1 - side][::n]
        self._poses = records([self._pose(m, d, x) for x in movers])
        self._still_poses = [self._pose(m, d, x) for x in self._ends[side][:n]]

    def _posed(self, side: int, i: Any, name: str) -> Any:
        if side == self.batch.side:
            return self.batch.of_still([pose[name] for pose in self._still_poses], i)
        return self._poses.at(self.batch.per_contact(self.batch.owners, i), name)


def tables_of(m: Model, d: Data, pairs: list[Pair]) -> PairTables:
    """Make the tables of a batch of a pool."""
    if isinstance(pairs, NearPairs):
        return NearTables(m, d, NearBatch.around(m, d, pairs))
    return PairTables(m, d, PairBatch.of(m, pairs))

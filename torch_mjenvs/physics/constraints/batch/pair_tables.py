"""Tables of the poses, sizes and parameters of a batch's pairs, and the search for those that touch.

Letters: i the number of a pair or contact, as in `pair_batch`; p a point.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ....compiler.active_sets import active_set, choose_each, everything, part
from ....compiler.arrays import Array, Table
from ....compiler.queues import Needed, compute_queued
from ....compiler.scalar import Mask, Scalar, maximum, select
from ...algebra.spatial import Vec, add, add_scaled, column, dot, is_number, mat_vec, sub, sum_of
from ...collision.boxes_around import boxes_around, boxes_meet
from ...collision.colliders import Geom, Place, rods_meet
from ...collision.contact_param import contact_param
from ...collision.convex.separation import hulls_meet
from ...collision.shapes import bound_of, collider_of, ground_of, may_touch_in_several, size_of
from ...collision.solids import Solids, solids_of
from ...model.data import Data
from ...model.enums import GeomType
from ...model.hfield import Ground
from ...model.model import Model, Pair
from ..cones.pyramid import Cone
from ..contact_row import ContactRow
from ..contacts import cone_of
from ..softening import ContactBound
from .pair_batch import PairBatch, field_of
from .pair_numbers import PairNumbers
from .records import Computed, Records, records, records_parts, records_queued
from .varied_numbers import InTable, Number
from .varied_rows import Look, Rows

IN_LOOP = 256  # pairs from which a loop compares bounding spheres


@dataclass
class PosedGeom:
    """What `colliders.Geom` is of by its pose and size alone."""

    centre: list[Scalar]
    turn: list[Scalar]  # the z axis (3) of an axial collider's geom, else the orientation (9)
    size: dict[str, Scalar]
    tables: PairTables

    @property
    def epsilon(self) -> float:
        return self.tables.epsilon

    @property
    def solids(self) -> Solids:
        return self.tables.solids

    @property
    def mat(self) -> list[Scalar]:
        return self.tables.batch.collider.whole(self.turn)

    @property
    def axis(self) -> list[Scalar]:
        return self.turn if self.tables.batch.collider.axial else column(self.turn, 2)

    @property
    def ground(self) -> Ground:
        assert self.tables.ground, "not of a height field"
        return self.tables.ground

    def along(self, x: Scalar) -> list[Scalar]:
        return add_scaled(self.centre, self.axis, x)

    def point(self, x: Vec) -> list[Scalar]:
        return add(self.centre, mat_vec(self.mat, x))


@dataclass
class TableGeom(PosedGeom):
    """A `colliders.Geom` of pair i, with its pose and size from tables."""

    i: Any
    first: bool = False  # i is the first contact of a pair

    @property
    def margin(self) -> Scalar:
        return self.tables.numbers.looked_at(self.tables.of_contact(self.i))

    @property
    def several(self) -> Mask:
        look = self.tables.of_pair(self.i) if self.first else self.tables.of_contact(self.i)
        return look(self.tables.several) > 0.5


@dataclass
class GivenGeom(PosedGeom):
    """A `colliders.Geom` of a pair, with all that it needs to know of the pair."""

    margin: Scalar
    number_of_several: Scalar  # 1 where the pair may touch in more than one point, else 0

    @property
    def several(self) -> Mask:
        return self.number_of_several > 0.5


@dataclass
class TableRow:
    """The `RowParam` of a contact, looked up at the moment that it is asked for."""

    numbers: PairNumbers
    look: Look

    @property
    def margin(self) -> Scalar:
        return self.numbers.margin(self.look)

    @property
    def solimp(self) -> list[Scalar]:
        return [x(self.look) for x in self.numbers.solimp]

    @property
    def invweight(self) -> Scalar:
        return self.numbers.invweight(self.look)

    @property
    def k(self) -> Scalar:
        return self.numbers.k(self.look)

    @property
    def damping(self) -> Iterator[Scalar]:
        return (b(self.look) for b in self.numbers.damping)


class PairTables:
    """The pairs of a batch in the state d, by number.

    numbers: what their contacts are made of. ground: the height field, if there is one.
    """

    def __init__(self, m: Model, d: Data, batch: PairBatch):
        self.batch, self.solids, self.epsilon = batch, solids_of(m.meshes), d.precision.epsilon
        pairs, collider = batch.pairs, batch.collider
        self.n, self._ordered = len(pairs), m.orders_contacts
        self._tabulate_geoms(m, d)
        self.numbers = PairNumbers.of(m, batch, d.precision)
        self.ground = ground_of(m, pairs) if field_of(m, pairs[0]) >= 0 else None
        near = self._bounds_that_meet(m, d)
        closer = self._rods_meet if collider.rods else self._boxes_meet if self._boxes else None
        self._near = choose_each(near, closer, self.n) if closer else near
        # where a pair's two contacts are measured at once, they are in one row
        self._by_part = collider.many or collider.ncon != 2
        self._at_contact = False
        self._found: Records | Computed
        if not is_searched(m, pairs):  # else see `search`
            self._found = records_parts(self._near, self._measure, self.n)

    def recomputed(self) -> PairTables:
        """Return a copy that measures a pair anew wherever that is asked for, or itself if this would be much code."""
        collider = self.batch.collider
        if collider.many or collider.ccd or collider.ncon > 2:
            return self
        found = copy.copy(self)
        found._found, found._at_contact = Computed(lambda i: self._measure(i, first=False)[0]), True
        return found

    def _bounds_that_meet(self, m: Model, d: Data) -> Any:
        """Find the pairs whose bounding spheres, or geom2's sphere and its ground, come within margin and gap."""
        known = {id(p) for p in self.batch.pairs}
        if len(known) < IN_LOOP or self.ground:
            candidates = [c for c in d.candidates if id(c.pair) in known]
            return active_set([c.bounds_meet(contact_param(m, c.pair).gap) for c in candidates])
        plane = m.geom_type[self.batch.pairs[0].geom1] == GeomType.PLANE
        reach = self._reach(m, plane)

        def meet(i: Any) -> list[Mask]:
            one, two = self._geoms(i)
            apart, far = sub(two.centre, one.centre), reach(self.of_pair(i))
            if plane:
                return [dot(apart, one.axis) < far]
            return [dot(apart, apart) < maximum(far, 0.0) * far]

        return choose_each(everything(self.n), meet, self.n)

    def _reach(self, m: Model, plane: bool) -> Number:
        """Return how near the centres of a pair's geoms, or geom2's centre to its plane, are looked at."""
        pairs, looked_at = self.batch.real, self.numbers.looked_at
        bounds = {g: bound_of(m, g) for p in pairs for g in (p.geom1, p.geom2)[plane:]}
        if plane:
            bounds |= dict.fromkeys((p.geom1 for p in pairs), 0.0)
        if is_number(*bounds.values()) and isinstance(looked_at, InTable):
            sums = [bounds[p.geom1] + bounds[p.geom2] for p in pairs]
            return InTable([a + x for a, x in zip(sums, looked_at.values, strict=True)])
        two = Rows({g: [x] for g, x in bounds.items()}).two([(p.geom1, p.geom2) for p in pairs])
        return lambda look: sum_of(x for (x,) in two(look)) + looked_at(look)

    def _tabulate_geoms(self, m: Model, d: Data) -> None:
        batch, collider = self.batch, self.batch.collider
        self._ends = [[p.geom1 for p in batch.real], [p.geom2 for p in batch.real]]
        geoms = sorted({x for end in self._ends for x in end})
        self._sizes = {x: size_of(m, x, collider) for x in geoms}
        self._fixed_sizes = is_number(*(value for size in self._sizes.values() for value in size.values()))
        sizes = [[self._sizes[x] for x in end] for end in self._ends]
        self._size_at = [{name: [size[name] for size in of_pairs] for name in of_pairs[0]} for of_pairs in sizes]
        rods = collider.axial or collider.rods  # measuring these is as fast as comparing boxes
        self._boxes = {} if rods else boxes_around(m, geoms)
        self.several = [float(may_touch_in_several(m, p, collider)) for p in batch.real]
        self._entries = (2, 5, 8) if collider.axial else range(9)  # those of orientations that the collider reads
        self._tabulate_poses(m, d, geoms)

    def _tabulate_poses(self, m: Model, d: Data, geoms: Sequence[int]) -> None:
        place = {x: k for k, x in enumerate(geoms)}
        self._places = [[place[x] for x in end] for end in self._ends]
        self._poses = records([self._pose(m, d, x) for x in geoms])

    def _pose(self, m: Model, d: Data, x: int) -> dict[str, Any]:
        pose = {"centre": list(d.geom_xrel[x]), "turn": [d.geom_xmat[x][k] for k in self._entries]}
        if not self.batch.one_tree:
            pose["origin"] = list(d.origin[m.body_originid[m.geom_bodyid[x]]])
        if self._fixed_sizes:
            return pose
        names = dict.fromkeys(name for size in self._sizes.values() for name in size)
        return pose | {name: self._sizes[x].get(name, 0.0) for name in names}

    def of_contact(self, i: Any) -> Look:
        """Return what looks up contact i's pair."""
        return lambda values: self.batch.of_contact(values, i)

    def of_pair(self, i: Any) -> Look:
        """Return what looks up pair i: cheaper than `of_contact`, which it equals for a pair's first contact."""
        return lambda values: self.batch.of_pair(values, i)

    def friction(self, i: Any) -> list[Scalar]:
        """Return the friction of contact i along each axis but the normal."""
        return [x(self.of_contact(i)) for x in self.numbers.friction]

    def stiffness(self, i: Any, row: ContactRow) -> Scalar:
        """Return the stiffness of contact i, from its `row`."""
        give = self.numbers.give
        return row.stiffness(give(self.of_contact(i)) if give else 0.0)

    def slip(self, i: Any) -> Scalar:
        """Return `ContactBound.slip` of contact i."""
        slip = self.numbers.slip
        return slip(self.of_contact(i)) if slip else 0.0

    @property
    def may_repeat(self) -> bool:
        """Whether Newton steps are repeated because of any contact, in any world."""
        repeats = self.numbers.repeats
        return repeats is None or any(repeats)

    def repeated(self, i: Any) -> Scalar:
        """Return 1 in worlds where Newton steps are repeated because of contact i, else 0."""
        return self.numbers.repeated(self.of_contact(i))

    def cone(self, m: Model, i: Any, rows: Records | Computed) -> Cone:
        """Return the cone of contact i, from `rows`, which have its "friction" and stiffness "D"."""
        return cone_of(m, rows.at(i, "friction"), rows.at(i, "D"), ContactBound(False, slip=self.slip(i)))

    def touching(self) -> Any:
        """Find the contacts that act in any world."""
        return self._within(self.numbers.margin)

    def detected(self) -> Any:
        """Find the contacts that MuJoCo lists in any world: those that act, and those within their gap."""
        return self._within(self.numbers.looked_at)

    def _within(self, bound: Number) -> Any:
        def near(i: Any) -> list[Mask]:
            return [self._dist(i, k) < bound(self.of_pair(i)) for k in range(self.batch.collider.ncon)]

        return choose_each(self._near, near, self.n)

    def contact(self, i: Any) -> Place:
        """Compute the distance of contact i, its point from the origin of the second geom's tree, and its frame."""
        spot = self._spot(i)
        return self.batch.collider.place(*self._geoms(i), spot)

    def arms(self, i: Any, p: list[Scalar]) -> tuple[list[Scalar], list[Scalar]]:
        """Move a point of contact i to the origins of the trees of the first and the second body."""
        return (p if self.batch.one_tree else sub(p, self._offset(i))), p

    def place(self, i: Any) -> tuple[Scalar, list[list[Scalar]], list[list[Scalar]]]:
        """Compute the distance of contact i, its point from the origins of the trees of the first body and of the
        second, and its frame.
        """
        dist, p, frame = self.contact(i)
        return dist, list(self.arms(i, p)), frame

    def row(self, i: Any, dist: Scalar) -> ContactRow:
        """Return the rows of contact i at a distance."""
        return ContactRow(TableRow(self.numbers, self.of_contact(i)), dist)

    def _geoms(self, i: Any) -> tuple[TableGeom, TableGeom]:
        """Return the two geoms of contact i, as seen from the origin of the second one's tree."""
        one, two = (self._geom(side, i) for side in (0, 1))
        return one if self.batch.one_tree else dataclasses.replace(one, centre=add(one.centre, self._offset(i))), two

    def _geom(self, side: int, i: Any) -> TableGeom:
        centre, turn = self._posed(side, i, "centre"), self._posed(side, i, "turn")
        size = {
            name: self.batch.of_contact(sizes, i) if self._fixed_sizes else self._posed(side, i, name)
            for name, sizes in self._size_at[side].items()
        }
        return TableGeom(centre, turn, size, self, i)

    def _posed(self, side: int, i: Any, name: str) -> Any:
        """Return what `_pose` has under a name for contact i's geom on this side."""
        return self._poses.at(self.batch.per_contact(self._places[side], i), name)

    def _offset(self, i: Any) -> list[Scalar]:
        """Return the vector from the origin of the second geom's tree to that of the first's (3)."""
        one, two = (self._posed(side, i, "origin") for side in (0, 1))
        return sub(one, two)

    def _boxes_meet(self, i: Any) -> list[Mask]:
        """Return where the boxes around the two geoms of pair i meet: a mask, as a list of one."""
        one, two = (
            (
                x.point(self._vector([self._boxes[g].middle for g in end], i)),
                x.mat,
                self._vector([self._boxes[g].half for g in end], i),
            )
            for end, x in zip(self._ends, self._geoms(i), strict=True)
        )
        return [boxes_meet(one, two, self.numbers.looked_at(self.of_pair(i)))]

    def _vector(self, values: Sequence[Vec], i: Any) -> list[Scalar]:
        return [self.batch.of_pair([x[k] for x in values], i) for k in range(3)]

    def _rods_meet(self, i: Any) -> list[Mask]:
        """Return where the rods around the two geoms of pair i meet: a mask, as a list of one."""
        return [rods_meet(*self._geoms(i), self.numbers.looked_at(self.of_pair(i)))]

    def _measure(self, i: Any, first: bool = True) -> list[dict[Any, Any]]:
        """Measure the pair of contact i. first: this is the pair's first contact."""
        return self._measured(*(dataclasses.replace(geom, first=first) for geom in self._geoms(i)))

    def _given(self, i: Any) -> list[Any]:
        """Return what a collider needs to know of the two geoms of pair i: for each, the fields of a `GivenGeom`."""
        look = self.of_pair(i)
        of_pair = [self.numbers.looked_at(look), look(self.several)]
        return [([x.centre, x.turn, x.size], of_pair) for x in self._geoms(i)]

    def _geoms_of(self, given: list[Any]) -> Iterator[GivenGeom]:
        for (centre, turn, size), (margin, several) in given:
            yield GivenGeom(centre, turn, size, self, margin, several)

    def _measured(self, one: Geom, two: Geom) -> list[dict[Any, Any]]:
        """Measure a pair: the rows of `_found`."""
        collider = self.batch.collider
        found = collider.found(one, two, collider.ncon)
        if collider.order and self._ordered:
            found = collider.order(found)
        if self._by_part:
            return [{"dist": dist, "spot": spot} for dist, spot in found]
        self._spots = 1 + len(found[0][1])
        return [{(k, j): x for k, (dist, spot) in enumerate(found) for j, x in enumerate([dist, *spot])}]

    def _dist(self, i: Any, k: int) -> Scalar:
        """Return the distance of pair i's contact k."""
        return self._found.at(part(i, k, self.n), "dist") if self._by_part else self._found.at(i, (k, 0))

    def _spot(self, i: Any) -> list[Scalar]:
        """Return the collider's spot of contact i."""
        if self._by_part:
            return self._found.at(i, "spot")
        # the second contact's numbers stand behind the first's
        n, found = self.n, self._found
        pair = i if self._at_contact else self.batch.per_contact(range(n), i)
        is_second = Table([0.0] * n + [1.0] * n)[i] > 0.5
        places = range(1, self._spots)  # after a distance
        return [select(is_second, found.at(pair, (1, j)), found.at(pair, (0, j))) for j in places]


def is_searched(m: Model, pairs: Sequence[Pair]) -> bool:
    """Return whether it takes long to find where the pairs of a batch touch, so that `search` does it."""
    return collider_of(m, pairs[0]).hulls and field_of(m, pairs[0]) < 0  # on a height field its prisms are shared


def search(batches: Sequence[PairTables]) -> None:
    """Find where the pairs of batches of one collider touch: pairs that are near in any world, in one queue."""
    one = batches[0]

    def needed() -> list[Needed]:
        return [Needed(t._near, t.n, t._given) for t in batches]

    def meet(given: list[Any]) -> list[list[Scalar]]:
        return [[select(hulls_meet(*one._geoms_of(given)), 1.0, 0.0)]]

    for t, (meets, start) in zip(batches, compute_queued(needed(), meet), strict=True):

        def told(i: Any, meets: Array = meets, start: int = start) -> list[Mask]:
            return [meets[part(i, 1, start), 0] > 0.5]

        t._near = choose_each(t._near, told, t.n)
    found = records_queued(needed(), lambda given: one._measured(*one._geoms_of(given)))
    for t, rows in zip(batches, found, strict=True):
        t._found = rows


def each_tables(
    m: Model, batches: Sequence[list[Pair]], make: Callable[[list[Pair]], PairTables]
) -> Iterator[PairTables]:
    """Make the tables of batches one after the other; those that are searched were made and searched before."""
    made = {k: make(pairs) for k, pairs in enumerate(batches) if is_searched(m, pairs)}
    kinds: dict[Any, list[PairTables]] = {}
    for tables in made.values():
        kinds.setdefault(tables.batch.collider.find, []).append(tables)
    for alike in kinds.values():
        search(alike)
    for k, pairs in enumerate(batches):
        yield made[k] if k in made else make(pairs)

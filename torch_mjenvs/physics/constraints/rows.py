"""Every constraint is rows J a + y0 of stiffness D, with three verbs through which the solver uses them.

MuJoCo's solver minimises 1/2 (a - a0)' M (a - a0) + the sum over rows of 1/2 D min(0, J a - aref)**2 (`laws` and
`elliptic` have other costs). A row's residual `J a - aref` is kept as `J a + y0`, y0 = b vel + k imp (pos - margin),
and no Jacobian is stored: a constraint knows how its residuals follow from the accelerations of dofs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...compiler.scalar import Mask, Scalar, absolute, clip, maximum, minimum, power, select
from ...compiler.tiles import Sums, SumsLayout, TileMatrix
from ..algebra.sparse import Row
from ..algebra.spatial import MINVAL, Vec, add, dot, is_number, is_zero, zeros
from ..dynamics.inertia import Matrix, plus
from ..model.data import Data
from ..model.model import Model, Pair, dof_chain
from .listed import ByBody, Visit

MIN_IMP, MAX_IMP = 1e-4, 0.9999  # mjMINIMP, mjMAXIMP


class Hessian(list[Row]):
    """The sum of J'DJ: rows of its lower triangle, by column; and, if the matrix M is in tiles, what is added to it.

    images: by dof i, a spatial force. For each dof j that moves i, its product with odof[j] is part of entry (i, j).
    """

    def __init__(self, nv: int, in_tiles: bool):
        super().__init__({} for _ in range(nv))
        self.in_tiles, self.images = in_tiles, dict[int, list[Scalar]]()
        self._parts: dict[int, tuple[Sums, SumsLayout]] = {}

    def add_image(self, m: Model, d: Data, i: int, image: list[Scalar]) -> None:
        """Add the products of a spatial force with the motions of all dofs that move dof i, to its row."""
        if self.in_tiles:
            self.images[i] = add(self.images[i], image) if i in self.images else image
            return
        for j in dof_chain(m, i):
            self[i][j] = self[i].get(j, 0.0) + dot(d.odof[j], image)

    def row(self, m: Model, i: int) -> list[Scalar]:
        """Return what `add_image` changes of row i."""
        if self.in_tiles:
            return self.images.get(i, zeros(6))
        return [self[i].get(j, 0.0) for j in dof_chain(m, i)]

    def put_row(self, m: Model, i: int, row: list[Scalar]) -> None:
        """Put back what `row` returned, changed."""
        if self.in_tiles:
            self.images[i] = row
        else:
            self[i].update(zip(dof_chain(m, i), row, strict=True))

    def part(self, layout: SumsLayout) -> Sums:
        """Return the tiles of a layout, which are part of the sum; they are made, as 0, when first asked for."""
        if id(layout) not in self._parts:
            self._parts[id(layout)] = layout.zeros(), layout
        return self._parts[id(layout)][0]

    def with_inertia(self, m: Model, d: Data, inertia: Matrix) -> Matrix:
        """Return the Hessian of the whole cost, the sum plus M. inertia: M, in tiles if `part` was asked for any."""
        if isinstance(d.M, TileMatrix):
            columns = [dof_chain(m, i)[::-1] if i in self.images else own for i, own in enumerate(d.M.columns)]
            inertia = d.M.plus_products(self.images, columns)
        total = plus(self, inertia)
        for part, layout in self._parts.values():
            assert isinstance(total, TileMatrix), "tiles are added to tiles"
            total = total.plus_part(part, layout.columns)
        return total


class Constraint:
    """A constraint: some rows. A new kind is a class with these verbs, and a line in `make_constraint`.

    a: an acceleration (V). dx: a step from there (V).
    """

    @property
    def needs_refinement(self) -> list[Mask]:
        """Masks of the worlds where rounding shows in Newton steps: there the last is repeated (see `softening`)."""
        return []

    def idle(self, m: Model) -> Constraint | None:
        """Return a stand-in for the rows in vectors of worlds where none acts; None if that would save no work."""
        return None

    @property
    def acts(self) -> Mask:
        """Return the mask of worlds in which any of these rows acts, so that no stand-in can replace them."""
        raise NotImplementedError

    def recomputed(self) -> Constraint:
        """Return a copy that keeps no lists but computes what it needs again: for one verb, on its own."""
        return self

    def add_rows(self, m: Model, d: Data, a: Vec, gradient: list[Scalar], hessian: Hessian) -> None:
        """Add -J'f to the gradient (V) and J'DJ to the Hessian (rows of its lower triangle, by column), at a."""
        raise NotImplementedError

    def fold_rows(self, m: Model, d: Data, a: Vec, dx: Vec, alpha: Scalar, total: list[Scalar]) -> list[Scalar]:
        """Return `total` plus the rows' cost at a + alpha dx: see `Law.fold`."""
        raise NotImplementedError

    def add_wrenches(self, m: Model, d: Data, a: Vec, wrench: list[list[Scalar]]) -> None:
        """Add the wrenches on the bodies at a: (torque, force) about the origin of the body's tree.

        Rows of joints make none.
        """

    def fold_listed(
        self, m: Model, d: Data, a: Vec, wanted: Callable[[Pair], bool], by_body: ByBody, visit: Visit, carry: Any
    ) -> Any:
        """Run `carry = visit(contact, carry)` over the contacts of wanted pairs, where they act, at a.

        by_body: the tables that `Listed.per_body` looks into. Only constraints of contacts have anything to visit.
        """
        return carry


def reference(solref: Vec, solimp: Vec, direct: bool, timestep: float) -> tuple[Scalar, Scalar]:
    """Compute stiffness k and damping b of a constraint: getsolparam and mj_makeImpedance, with `refsafe`."""
    dmax = clip(solimp[1], MIN_IMP, MAX_IMP)
    if direct:
        return -solref[0] / maximum(dmax * dmax, MINVAL), -solref[1] / maximum(dmax, MINVAL)
    time, ratio = maximum(solref[0], 2 * timestep), solref[1]
    return 1 / maximum((dmax * time * ratio) ** 2, MINVAL), 2 / maximum(dmax * time, MINVAL)


def impedance(solimp: Vec, distance: Scalar) -> Scalar:
    """Compute the impedance d(|pos - margin|), a power curve from dmin to dmax with a constant power: getimpedance."""
    dmin, dmax, mid = (clip(solimp[k], MIN_IMP, MAX_IMP) for k in (0, 1, 3))
    width, p = solimp[2], max(1.0, float(solimp[4]))
    flat = 0.5 * (dmin + dmax)
    if not is_number(*solimp):
        x = minimum(absolute(distance) / maximum(width, MINVAL), 1.0)
        return select(width <= MINVAL, flat, dmin + _curve(x, mid, p) * (dmax - dmin))
    if dmin == dmax or width <= MINVAL:
        return flat
    x = minimum(absolute(distance) * (1 / width), 1.0)
    return dmin + _curve(x, mid, p) * (dmax - dmin)


def row_stiffness(imp: Scalar, resistance: Scalar, give: Scalar = 0.0) -> Scalar:
    """Compute the stiffness D of a row of this impedance, at most 1 / give: mj_makeImpedance.

    resistance: (1 - imp) times the row's inverse inertia.
    """
    return imp / (resistance if is_zero(give) else maximum(resistance, imp * give))


def _curve(x: Scalar, mid: Scalar, p: float) -> Scalar:
    """Return the curve from 0 to 1, of power p below mid and above."""
    if p == 1:
        return x
    first, second = (1 / y ** (p - 1) if is_number(y) else 1 / power(y, p - 1) for y in (mid, 1 - mid))
    below = power(x, p) * first
    above = 1.0 - power(1.0 - x, p) * second
    return select(x <= mid, below, above)

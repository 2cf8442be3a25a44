"""Groups of contacts with friction, or between trees: as `contact_groups`, with rows of the Jacobian for n, t1, t2.

A line is an axis of the contact frame as a spatial vector, at the origin of either body's tree: see `body_contacts`.
"""

from __future__ import annotations

from typing import Any

from ...compiler.control import add_each, fold_each, get
from ...compiler.scalar import Scalar
from ..contact_param import contact_param
from ..data import Data
from ..model import Model
from ..spatial import choose, dot, is_number, sub
from .body_contacts import lines_of
from .contact_force import in_world
from .contact_groups import Alike, ContactGroup, of_pairs, touch
from .contacts import row_weight
from .pyramid import Pyramid
from .rows import impedance, reference, row_stiffness, sum_of
from .tables import Table


class PyramidGroup(ContactGroup):
    """rows: lines (side, k), first of the second body, y0 and J of n, t1, t2 (condim), D and mu."""

    def fold_rows(self, m: Model, d: Data, a: list, dx: list, alpha: Scalar, total: list) -> list:
        x, change = self._of_dofs(a), self._of_dofs(dx)

        def push(i: Any, carry: list) -> list:
            pyramid = self._pyramid(i)
            y, v = self._residual(i, x), [dot(row, self._at(i, change)) for row in self._jacobian(i)]
            return pyramid.fold(carry, pyramid.rows(y), pyramid.rows(v), alpha)

        return fold_each(self.touching, push, total)

    def add_wrenches(self, m: Model, d: Data, a: list, wrench: list[list]) -> None:
        x, condim = self._of_dofs(a), range(self.alike.condim)

        def push(i: Any) -> list:
            force = self._pyramid(i).push(self._residual(i, x))[0]
            second, first = (in_world([self.rows.at(i, ("line", side, k)) for k in condim], force) for side in (0, 1))
            one, two = (self.alike.per_contact([6 * body[side] for body in self.alike.bodies], i) for side in (0, 1))
            return [[(one + c, -y) for c, y in enumerate(first)] + [(two + c, y) for c, y in enumerate(second)]]

        (flat,) = add_each(self.touching, push, [[y for w in wrench for y in w]])
        for body in {body for pair in self.alike.bodies for body in pair if body}:
            wrench[body] = flat[6 * body : 6 * body + 6]

    def _push(self, i: Any, x: Any) -> list:
        jacobian, rows, dofs = self._jacobian(i), range(self.alike.condim), range(self.alike.most)
        force, (nn, n1, n2, w11, w22, w12) = self._pyramid(i).push(self._residual(i, x))
        weights = [[nn, n1, n2], [n1, w11, w12], [n2, w12, w22]]
        places, starts = self._places(i)
        image = [[sum_of(weights[k][j] * jacobian[j][v] for j in rows) for v in dofs] for k in rows]
        return [
            [(places[v], -sum_of(force[k] * jacobian[k][v] for k in rows)) for v in dofs],
            [
                (starts[u] + places[v], sum_of(jacobian[k][u] * image[k][v] for k in rows))
                for u in dofs
                for v in range(u + 1)
            ],
        ]

    def _pyramid(self, i: Any) -> Pyramid:
        return Pyramid(self.alike.condim, self.rows.at(i, "mu"), self.rows.at(i, "D"))

    def _jacobian(self, i: Any) -> list[list]:
        return [self.rows.at(i, ("J", k)) for k in range(self.alike.condim)]

    def _residual(self, i: Any, x: Any) -> list:
        at = self._at(i, x)
        return [dot(row, at) + self.rows.at(i, ("y0", k)) for k, row in enumerate(self._jacobian(i))]

    def _at(self, i: Any, x: Any) -> list:
        return [get(x, self.alike.dof(i, c)) for c in range(self.alike.most)]


def pyramid_group(m: Model, d: Data, g: Alike) -> PyramidGroup:
    """The contacts of pairs that are alike."""
    params = [contact_param(m, p) for p in g.pairs]
    margin, mu = of_pairs(g, [p.margin for p in params]), of_pairs(g, [p.friction[0] for p in params])
    weight = of_pairs(g, [row_weight(m, p) for p in g.pairs])
    solimp = [of_pairs(g, [p.solimp[k] for p in params]) for k in range(4)]
    references = [reference(p.solref, p.solimp, p.direct, m.timestep) for p in params]
    k, b = (of_pairs(g, [x[i] for x in references]) for i in (0, 1))

    def rows(i: Any, dist: Scalar, p: list, frame: list[list], moving: Table, offset: list | None) -> dict:
        lines = lines_of((p if offset is None else sub(p, offset), p), frame[: g.condim])
        depth = dist - margin(i)
        alike = params[0].solimp  # all of them, where they are numbers
        imp = impedance(alike if is_number(*alike) else [*(x(i) for x in solimp), alike[4]], depth)
        jacobian: list[list] = [[] for _ in range(g.condim)]
        speed: list[Scalar] = [0.0] * g.condim
        for c in range(g.most):
            dof, sign = g.dof(i, c), g.per_contact([s[c] for s in g.signs], i)
            odof, qvel = moving.at(dof, "odof"), moving.at(dof, "qvel")
            for j, (second, first) in enumerate(zip(*lines, strict=True)):
                line = second if offset is None else choose(sign > 0.0, second, first)
                jacobian[j].append(dot(line, odof) * sign)
                speed[j] = speed[j] + jacobian[j][-1] * qvel
        y0 = [b(i) * v for v in speed]
        y0[0] = y0[0] + k(i) * imp * depth
        found: dict = {("line", side, j): line for side in (0, 1) for j, line in enumerate(lines[side])}
        found |= {("y0", j): y for j, y in enumerate(y0)} | {("J", j): row for j, row in enumerate(jacobian)}
        return found | {"D": row_stiffness(imp, weight(i)), "mu": mu(i)}

    return PyramidGroup(g, *touch(m, d, g, rows))

"""Groups of contacts with friction, or between trees: as `contact_groups`, with a row of the Jacobian for each axis.

A line is an axis of the contact as a spatial vector, at the origin of either body's tree: see `body_contacts`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...compiler.control import add_each, fold_each
from ...compiler.scalar import Scalar
from ..collision.contact_param import contact_param
from ..data import Data
from ..model import Model
from ..spatial import choose, dot, is_number, sub
from .body_contacts import lines_of
from .contact_force import in_world
from .contact_groups import Alike, ContactGroup, of_pairs, touch
from .contacts import cone_of, reference_of, row_weight
from .pyramid import Cone
from .records import Records
from .rows import impedance, row_stiffness, sum_of
from .stiff import Bound


@dataclass
class ConeGroup(ContactGroup):
    """rows: lines (side, k), first of the second body, y0 and J of the axes (condim), D and friction.

    cone: of friction and D.
    """

    cone: Callable[[list, Scalar], Cone]

    def fold_rows(self, m: Model, d: Data, a: list, dx: list, alpha: Scalar, total: list) -> list:
        x, change = self._of_dofs(a), self._of_dofs(dx)

        def push(i: Any, carry: list) -> list:
            cone = self._cone(i)
            y, v = self._residual(i, x), [dot(row, self._at(i, change)) for row in self._jacobian(i)]
            return cone.fold(carry, cone.rows(y), cone.rows(v), alpha)

        return fold_each(self.touching, push, total)

    def add_wrenches(self, m: Model, d: Data, a: list, wrench: list[list]) -> None:
        x, condim = self._of_dofs(a), range(self.alike.condim)

        def push(i: Any) -> list:
            force = self._cone(i).push(self._residual(i, x))[0]
            second, first = (in_world([self.rows.at(i, ("line", side, k)) for k in condim], force) for side in (0, 1))
            one, two = (self.alike.per_contact([6 * body[side] for body in self.alike.bodies], i) for side in (0, 1))
            return [[(one + c, -y) for c, y in enumerate(first)] + [(two + c, y) for c, y in enumerate(second)]]

        (flat,) = add_each(self.touching, push, [[y for w in wrench for y in w]])
        for body in {body for pair in self.alike.bodies for body in pair if body}:
            wrench[body] = flat[6 * body : 6 * body + 6]

    def _push(self, i: Any, x: Any) -> list:
        jacobian, rows, dofs = self._jacobian(i), range(self.alike.condim), range(self.alike.most)
        force, weight = self._cone(i).push(self._residual(i, x))
        places, starts = self._places(i)
        image = [[sum_of(weight[k][j] * jacobian[j][v] for j in rows) for v in dofs] for k in rows]
        return [
            [(places[v], -sum_of(force[k] * jacobian[k][v] for k in rows)) for v in dofs],
            [
                (starts[u] + places[v], sum_of(jacobian[k][u] * image[k][v] for k in rows))
                for u in dofs
                for v in range(u + 1)
            ],
        ]

    def _press(self, i: Any, x: Any) -> Scalar:
        return self._cone(i).push(self._residual(i, x))[0][0]

    def _cone(self, i: Any) -> Cone:
        return self.cone(self.rows.at(i, "friction"), self.rows.at(i, "D"))

    def _jacobian(self, i: Any) -> list[list]:
        return [self.rows.at(i, ("J", k)) for k in range(self.alike.condim)]

    def _residual(self, i: Any, x: Any) -> list:
        at = self._at(i, x)
        return [dot(row, at) + self.rows.at(i, ("y0", k)) for k, row in enumerate(self._jacobian(i))]

    def _at(self, i: Any, x: Any) -> list:
        return [x[self.alike.dof(i, c)] for c in range(self.alike.most)]


def cone_group(m: Model, d: Data, g: Alike) -> ConeGroup:
    """The contacts of pairs that are alike."""
    params = [contact_param(m, p) for p in g.pairs]
    margin = of_pairs(g, [p.margin for p in params])
    friction = [of_pairs(g, [p.friction[k] for p in params]) for k in range(g.condim - 1)]
    weight = of_pairs(g, [row_weight(m, p) for p in g.pairs])
    solimp = [of_pairs(g, [p.solimp[k] for p in params]) for k in range(4)]
    references = [reference_of(m, p) for p in g.pairs]
    k = of_pairs(g, [k for k, _ in references])
    damping = [of_pairs(g, [b[axis] for _, b in references]) for axis in range(g.condim)]

    def rows(i: Any, dist: Scalar, p: list, frame: list[list], moving: Records, offset: list | None) -> dict:
        lines = lines_of((p if offset is None else sub(p, offset), p), frame, g.condim)
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
        y0 = [b(i) * v for b, v in zip(damping, speed, strict=True)]
        y0[0] = y0[0] + k(i) * imp * depth
        found: dict = {("line", side, j): line for side in (0, 1) for j, line in enumerate(lines[side])}
        found |= {("y0", j): y for j, y in enumerate(y0)} | {("J", j): row for j, row in enumerate(jacobian)}
        return found | {"D": row_stiffness(imp, weight(i)), "friction": [x(i) for x in friction]}

    return ConeGroup(g, *touch(m, d, g, rows), lambda friction, D: cone_of(m, friction, D, Bound(False)))

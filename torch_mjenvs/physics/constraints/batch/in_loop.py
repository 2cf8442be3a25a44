"""Loops over contacts other than those of the solver's rows: for wrenches on bodies, for the visits of sensors, and to
find the worlds in which Newton steps are repeated.

which: the contacts, an active set, of which i is one. per_contact: looks up contact i's entry of a list.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ....compiler.active_sets import add_each, fold_each
from ....compiler.arrays import Array
from ....compiler.control import when_any
from ....compiler.scalar import Mask, Scalar, logical_or
from ...model.model import Pair
from ..contact_force import in_world
from ..listed import ByBody, Listed, Visit

PerContact = Callable[[Sequence[Any], Any], Any]
Where = Callable[[Any], tuple[Scalar, list[list[Scalar]], list[list[Scalar]]]]


def pull_in_loop(
    which: Any,
    bodies: Sequence[tuple[int, int]],
    per_contact: PerContact,
    force: Callable[[Any], list[Scalar]],
    lines: Callable[[Any, int], list[list[Scalar]]],
    alike: bool,
    wrench: list[list[Scalar]],
) -> None:
    """Add to `wrench` the wrenches on both bodies by the force of each contact along its axes (condim).

    lines: those of contact i on a side: 0 is the second body, 1 the first. If `alike`, both sides have the same lines.
    """

    def push(i: Any) -> list[Any]:
        along = force(i)
        second, *others = (in_world(lines(i, side), along) for side in ((0,) if alike else (0, 1)))
        first = others[0] if others else second
        one, two = (per_contact([6 * body[side] for body in bodies], i) for side in (0, 1))
        return [[(one + c, -y) for c, y in enumerate(first)] + [(two + c, y) for c, y in enumerate(second)]]

    (flat,) = add_each(which, push, [[y for w in wrench for y in w]])
    for body in {body for pair in bodies for body in pair if body}:
        wrench[body] = flat[6 * body : 6 * body + 6]


def fold_in_loop(
    which: Any,
    pairs: Sequence[Pair],
    bodies: Sequence[tuple[int, int]],
    per_contact: PerContact,
    number: Callable[[Any], Scalar],
    where: Where,
    force: Callable[[Any], list[Scalar]],
    wanted: Callable[[Pair], bool],
    by_body: ByBody,
    visit: Visit,
    carry: Any,
) -> Any:
    """Run `visit` over the contacts of wanted pairs: see `Constraint.fold_listed`.

    number: returns a contact's number among its pair's. where: returns a contact's distance, its point from the origins
    of the trees of the first body and of the second, and its frame.
    """
    involved = sorted({body for pair in bodies for body in pair})
    tables = {name: Array([list(vectors[body]) for body in involved]) for name, vectors in by_body.items()}
    places = [[involved.index(pair[side]) for pair in bodies] for side in (0, 1)]

    def step(i: Any, carry: Any) -> Any:
        def per_body(name: str) -> list[list[Scalar]]:
            return [tables[name][per_contact(place, i), :] for place in places]

        def of_pair(of: Callable[[Pair], float]) -> Scalar:
            found: Scalar = per_contact([float(of(pair)) for pair in pairs], i)
            return found

        def look(carry: Any) -> Any:
            dist, points, frame = where(i)
            return visit(Listed(None, of_pair, number(i), dist, points, frame, force(i), per_body), carry)

        return when_any(of_pair(wanted) > 0.5, look, carry)

    return fold_each(which, step, carry)


def refined_in_loop(which: Any, repeated: Callable[[Any], Scalar]) -> list[Mask]:
    """Return the masks of `Constraint.needs_refinement`: worlds where a contact acts whose pair needs refinement.

    repeated: returns 1 where contact i's does, else 0.
    """

    def look(i: Any, found: list[Mask]) -> list[Mask]:
        return [logical_or(found[0], repeated(i) > 0.5)]

    return list(fold_each(which, look, [False]))

"""Contacts as mjData.contact lists them, for code that looks at each of them, however they are computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...compiler.scalar import Scalar
from ..algebra.spatial import Vec
from ..model.model import Pair

ByBody = Mapping[str, Sequence[Vec]]  # vectors of all bodies, by name
PerBody = Callable[[str], list[list[Scalar]]]  # returns the vectors of a contact's two bodies from the named table


@dataclass(frozen=True)
class Listed:
    """A contact at the moment that it is looked at: mjContact.

    source: the object, with a `pair`, that stands for this contact alone; None in a loop. of_pair: applies a function
    of pairs to the contact's pair. number: its place among the pair's contacts. points: where it is, from the origins
    of the trees of geom1's body and of geom2's. frame: normal and two tangents. force: along the axes (condim).
    per_body: returns the vectors of its two bodies from the named table.
    """

    source: Any
    of_pair: Callable[[Callable[[Pair], float]], Scalar]
    number: Scalar
    dist: Scalar
    points: list[list[Scalar]]
    frame: list[list[Scalar]]
    force: list[Scalar]
    per_body: PerBody


Visit = Callable[[Listed, Any], Any]  # takes a contact and a carry, returns the carry


def of_bodies(by_body: ByBody, bodies: tuple[int, int]) -> PerBody:
    """Return a function that looks up the vectors of these two bodies in the table of a name."""
    return lambda name: [list(by_body[name][body]) for body in bodies]

"""Contacts as mjData.contact lists them, for code that looks at each of them, however they are computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...compiler.scalar import Scalar
from ..algebra.spatial import Vec
from ..model.model import Pair

ByBody = Mapping[str, Sequence[Vec]]  # vectors of all bodies, by name
PerBody = Callable[[str], list[list[Scalar]]]  # gives the vectors of a contact's two bodies from the table of a name


@dataclass(frozen=True)
class Listed:
    """A contact that acts, at the moment that it is looked at: mjContact.

    source: the object, with a `pair`, that stands for it alone; None in a loop. of_pair: gives what a function of pairs
    gives for its pair. number: its place among the pair's contacts. points: where it is, from the origins of the trees
    of geom1's body and of geom2's. frame: normal and two tangents. force: along the axes (condim). per_body: gives the
    vectors of its two bodies from the table of that name.
    """

    source: Any
    of_pair: Callable[[Callable[[Pair], float]], Scalar]
    number: Scalar
    dist: Scalar
    points: list[list[Scalar]]
    frame: list[list[Scalar]]
    force: list[Scalar]
    per_body: PerBody


Visit = Callable[[Listed, Any], Any]  # of a contact and a carry; gives the carry


def of_bodies(by_body: ByBody, bodies: tuple[int, int]) -> PerBody:
    """Return what gives the vectors of these two bodies, from the table of a name."""
    return lambda name: [list(by_body[name][body]) for body in bodies]

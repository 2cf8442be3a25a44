"""Cells over the ground, each with a list of the geoms that may be near what is in it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ....compiler.arrays import Table
from ....compiler.scalar import Scalar, clip, floor
from ...algebra.spatial import Vec

MOST = 2**14  # cells


@dataclass(frozen=True)
class Cells:
    """A grid of square cells along x and y, of columns that go up and down without end.

    low: the least x and y. side: of a cell, metres. counts: along x and y. lists: by cell, its list's first entry and
    length. entries: numbers of geoms. most: the length of the longest list. boxes: by geom, the middle of the box
    around it (3), and half of its sides (3). reaches: how far from a centre to look, by what moves.
    """

    low: tuple[float, float]
    side: float
    counts: tuple[int, int]
    lists: Table
    entries: Table
    most: int
    boxes: Table
    reaches: Table

    @staticmethod
    def of(middles: np.ndarray, halves: np.ndarray, reaches: Sequence[float], slack: float) -> Cells:
        """List the geoms in these boxes. slack: more than the rounding of a distance, metres."""
        wide = halves[:, :2] + (max(reaches) + slack)
        low, high = (middles[:, :2] - wide).min(0), (middles[:, :2] + wide).max(0)
        side = max(max(reaches), math.sqrt(float(np.prod(high - low)) / MOST))
        counts = np.ceil((high - low) / side).astype(int)
        first, last = (
            np.clip(((middles[:, :2] + sign * wide - low) / side).astype(int), 0, counts - 1) for sign in (-1, 1)
        )
        lists: list[list[int]] = [[] for _ in range(int(np.prod(counts)))]
        for geom, ((x, y), (right, top)) in enumerate(zip(first.tolist(), last.tolist(), strict=True)):
            for column in range(x, right + 1):
                for row in range(y, top + 1):
                    lists[column * int(counts[1]) + row].append(geom)
        starts = np.cumsum([0, *map(len, lists)])[:-1].tolist()
        return Cells(
            (float(low[0]), float(low[1])),
            side,
            (int(counts[0]), int(counts[1])),
            Table([(float(start), float(len(x))) for start, x in zip(starts, lists, strict=True)]),
            Table([float(geom) for x in lists for geom in x]),
            max(map(len, lists)),
            Table(np.hstack([middles, halves]).tolist()),
            Table(list(map(float, reaches))),
        )

    def at(self, centre: Vec) -> tuple[Scalar, Scalar]:
        """Return the first entry and the length of the list of the cell in which a point is, or else the nearest."""
        column, row = (
            clip(floor((x - low) * (1.0 / self.side)), 0.0, float(n - 1))
            for x, low, n in zip(centre, self.low, self.counts, strict=False)
        )
        first, many = self.lists[column * float(self.counts[1]) + row]
        return first, many


def deepest(middles: np.ndarray, halves: np.ndarray) -> int:
    """Return how many of some boxes (n x 3 each: middles, half sides) have one place in common along x and y, at most.

    That is at the left side of one of them, and at the lower side of one.
    """
    low, high = (middles - halves)[:, :2], (middles + halves)[:, :2]
    most = 0
    for x in low[:, 0]:
        there = (low[:, 0] <= x) & (x <= high[:, 0])
        bottoms, tops = np.sort(low[there, 1]), np.sort(high[there, 1])
        begun = np.arange(1, len(bottoms) + 1)
        most = max(most, int((begun - np.searchsorted(tops, bottoms)).max()))
    return most

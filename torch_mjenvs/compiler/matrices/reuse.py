"""Allocates the shared memory of a GPU's block: matrices take the places of others that are no longer needed.

A matrix lives from the step that first touches it to the last one. In a loop it lives through all turns, unless each
turn begins by writing it and nothing outside the loop touches it: then no turn hands anything on to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .block_text import Stretch, touched
from .steps import Apply, Call, Loop, Matrix, Phase, Step

LATER = 2  # steps for which a place stays taken after its last use: the next steps then need not wait for it
ALIGNED = 16  # places begin at multiples of this many numbers


@dataclass
class Place:
    """The place that overlapping matrices take together, from `first` to before `last`.

    `reads` has the numbers of the steps that touch it, and whether each step reads it before it writes it.
    """

    first: int
    last: int
    reads: dict[int, bool] = field(default_factory=dict)
    lives: tuple[int, int] = (0, 0)
    moved_to: int = 0


def packed(phase: Phase, memory: str) -> Phase:
    """Return a phase whose matrices in a memory are packed, and begin at 0."""
    leaves = list(_leaves(phase.steps, {}))
    places = _places(leaves, memory)
    loops = list(_loops(phase.steps, 0))
    for place in places:
        place.lives = min(place.reads), max(place.reads) + LATER
        for first, last in loops:
            inside = [k for k in place.reads if first <= k < last]
            if inside and (len(inside) < len(place.reads) or place.reads[inside[0]]):
                place.lives = min(place.lives[0], first), max(place.lives[1], last)
    _pack(places)

    def moved(m: Matrix) -> Matrix:
        if m.memory != memory:
            return m
        (place,) = (x for x in places if x.first <= m.offset < x.last)
        return replace(m, offset=m.offset - place.first + place.moved_to)

    return replace(phase, steps=tuple(_moved(step, moved) for step in phase.steps))


def _leaves(steps: Sequence[Step], counts: Mapping[str, int]) -> Iterator[tuple[list[Stretch], list[Stretch]]]:
    """Yield what each step reads and writes, in all turns of the loops that it is in."""
    for step in steps:
        if isinstance(step, Loop):
            yield from _leaves(step.steps, {**counts, step.index: step.count})
        else:
            reads, writes = touched(step)
            yield [_whole(x, counts) for x in reads], [_whole(x, counts) for x in writes]


def _whole(x: Stretch, counts: Mapping[str, int]) -> Stretch:
    return replace(x, last=x.last + sum(by * (counts.get(index, 1) - 1) for index, by in x.at))


def _loops(steps: Sequence[Step], start: int) -> Iterator[tuple[int, int]]:
    """Yield, for each loop of several turns, its first step's number and the one after its last; inner loops first."""
    for step in steps:
        if isinstance(step, Loop):
            size = sum(1 for _ in _leaves(step.steps, {}))
            yield from _loops(step.steps, start)
            if step.count > 1:
                yield start, start + size
            start += size
        else:
            start += 1


def _places(leaves: Sequence[tuple[list[Stretch], list[Stretch]]], memory: str) -> list[Place]:
    """Find the places that overlapping matrices take in a memory."""
    every = sorted((x.first, x.last) for reads, writes in leaves for x in [*reads, *writes] if x.memory == memory)
    places: list[Place] = []
    for first, last in every:
        if places and first < places[-1].last:
            places[-1].last = max(places[-1].last, last)
        else:
            places.append(Place(first, last))
    for place in places:
        for k, (reads, writes) in enumerate(leaves):
            read, written = (any(_within(x, memory, place) for x in some) for some in (reads, writes))
            if read or written:
                place.reads[k] = read
    return places


def _within(x: Stretch, memory: str, place: Place) -> bool:
    return x.memory == memory and place.first <= x.first < place.last


def _pack(places: Sequence[Place]) -> None:
    """Move places as far to the front as those that live at the same time allow, large ones first."""
    done: list[Place] = []
    for place in sorted(places, key=lambda x: x.first - x.last):
        size, at = place.last - place.first, 0
        others = [x for x in done if x.lives[0] <= place.lives[1] and place.lives[0] <= x.lives[1]]
        for other in sorted(others, key=lambda x: x.moved_to):
            if at + size <= other.moved_to:
                break
            at = max(at, -(-(other.moved_to + other.last - other.first) // ALIGNED) * ALIGNED)
        place.moved_to = at
        done.append(place)


def _moved(step: Step, move: Callable[[Matrix], Matrix]) -> Step:
    if isinstance(step, Loop):
        return replace(step, steps=tuple(_moved(x, move) for x in step.steps))
    if isinstance(step, Apply):
        return replace(step, matrices=tuple(map(move, step.matrices)))
    assert not isinstance(step, Call)
    matrices: dict[str, Any] = {name: move(x) for name, x in vars(step).items() if isinstance(x, Matrix)}
    return replace(step, **matrices)

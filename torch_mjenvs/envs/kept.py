"""What a world keeps besides positions, velocities and activations: `Kept` says what it is, and where it lies."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..compiler.scalar import Scalar
from ..physics.algebra.nested import leaves
from ..physics.model.model import Model
from .tasks.base import HELD

Held = dict[str, dict[int, Scalar]]  # inputs that a world keeps, as a task sets them: numbers by field and place


@dataclass(frozen=True)
class Kept:
    """What physics keeps of a world (`Model.kept0`), then the inputs that its task sets: one list of numbers.

    named: the `inputs` of the task.
    """

    model: Model
    named: Collection[str]

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs that are kept; poses of mocap bodies are always whole."""
        mocap = ("mocap_pos", "mocap_quat")
        named = {*self.named, *(mocap if {*mocap} & {*self.named} else ())}
        return tuple(name for name in HELD if name in named)

    @property
    def initial(self) -> dict[str, list[Scalar]]:
        """What an episode begins with, by name: the inputs are as the model has them."""
        inputs = self.model.inputs0
        kept: dict[str, list[Scalar]] = {name: [*x] for name, x in self.model.kept0.items()}
        return kept | {name: leaves(inputs[name]) for name in self.inputs}

    @property
    def first(self) -> list[Scalar]:
        """The numbers of `initial`."""
        return [x for part in self.initial.values() for x in part]

    def with_inputs(self, kept: Sequence[Scalar], given: Held) -> list[Scalar]:
        """Return what a world keeps, with the inputs that its task has set."""
        changed, at = list(kept), 0
        for name, initial in self.initial.items():
            for place, x in given.get(name, {}).items():
                changed[at + place] = x
            at += len(initial)
        return changed

    def begun_anew(self, kept: Sequence[Scalar]) -> list[Scalar]:
        """Return what a world keeps where another state is looked at: inputs stay, physics has its initial numbers.

        Empty if there are no inputs: then all are initial.
        """
        if not (self.inputs and kept):
            return []
        first = [x for part in self.model.kept0.values() for x in part]
        return first + list(kept[len(first) :])

    def by_name(self, kept: Sequence[Scalar]) -> dict[str, Any]:
        """Convert what a world keeps to fields by name, nested as the physics takes them; none if nothing is given."""
        left, found = iter(kept), {}
        for name, initial in self.initial.items() if kept else ():
            numbers, n = [next(left) for _ in initial], HELD.get(name, 1)
            found[name] = numbers if n == 1 else [numbers[i : i + n] for i in range(0, len(numbers), n)]
        return found

    def inputs_of(self, kept: Sequence[Scalar]) -> dict[str, Any]:
        """Return the inputs among what a world keeps, by name, as the physics takes them; none if nothing is given."""
        return {name: x for name, x in self.by_name(kept).items() if name in self.inputs}

    def of_inputs(self, inputs: Mapping[str, Any]) -> list[Scalar]:
        """Return the inputs of `inputs_of` as a world keeps them."""
        return leaves([inputs[name] for name in self.inputs])

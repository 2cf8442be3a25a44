"""A pixel, and what its ray meets first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..compiler.scalar import Mask, Scalar, absolute
from ..physics.algebra.spatial import scale
from ..physics.model.model import Model
from .scene import Scene
from .views import View


@dataclass
class Pixel:
    """What a pixel needs to find its colour: scene, numbers, tables, its ray and its size in tangents.

    sky: the colour of the sky in this pixel, if it is known beforehand.
    """

    m: Model
    scene: Scene
    numbers: Sequence[Scalar]
    texels: Any
    meshes: Any
    x: Scalar
    y: Scalar
    step: tuple[float, float]
    sky: Sequence[Scalar] | None = None

    def __post_init__(self) -> None:
        self.way = [self.x, self.y, -1.0]
        self.views: list[View] = []
        at = 0
        for _ in range(1 + len(self.scene.mirrors)):
            self.views.append(View(self.scene, self.numbers[at:], len(self.views), self.meshes))
            at += self.views[-1].size
        self.axes = self.numbers[at : at + 9]
        at += 9 if self.scene.sky else 0
        self.shadows = []
        for _ in self.scene.casting:
            end = at + 9 + 4 * len(self.scene.drawn)
            self.shadows.append((self.numbers[at : at + 9], self.numbers[at + 9 : end]))
            at = end


@dataclass
class Hit:
    """What a pixel's ray meets first, in a view of its own.

    depth: metres along the camera's axis. which: the number of what is met in `Scene.drawn`, as a scalar. triangle: of
    a mesh. among: the numbers of all that could be met. point: where, in the camera's axes.
    """

    pixel: Pixel
    view: View
    depth: Scalar
    which: Scalar
    triangle: Scalar
    among: Sequence[int]

    def __post_init__(self) -> None:
        self.point = scale(self.pixel.way, self.depth)


def is_met(which: Scalar, k: int) -> Mask:
    """Return whether the number of what is met is k."""
    return absolute(which - float(k)) < 0.5

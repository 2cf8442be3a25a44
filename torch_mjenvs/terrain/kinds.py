"""The kinds of terrain: each gives the elevations of one cell for a difficulty from 0 to 1.

Their shapes, names and defaults follow Isaac Lab's and legged_gym's. A range (low, high) goes from its first number, at
difficulty 0, to its second, at 1. Lengths are in metres.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

Range = tuple[float, float]


@dataclass(frozen=True)
class Cell:
    """The grid of one cell: `x` and `y` of its points, from its corner, and their distance `edge` to its edge."""

    x: np.ndarray
    y: np.ndarray
    edge: np.ndarray
    scale: float  # the distance between neighbouring points
    rng: np.random.Generator
    difficulty: float

    @property
    def size(self) -> tuple[float, float]:
        return float(self.x[-1, 0]), float(self.y[0, -1])

    def at(self, ends: Range) -> float:
        """Return the number of a range that belongs to the difficulty."""
        return ends[0] + (ends[1] - ends[0]) * self.difficulty

    def steps(self, length: float, least: int = 1) -> int:
        """Return a length in steps of the grid, at least so many. A hole has 2: one down, one up."""
        return max(least, round(length / self.scale))

    def inner(self, platform: float) -> np.ndarray:
        """Return where the square platform in the middle is, as a mask."""
        (width, depth), half = self.size, 0.5 * platform + 1e-9
        return (abs(self.x - 0.5 * width) <= half) & (abs(self.y - 0.5 * depth) <= half)


@dataclass(frozen=True, kw_only=True)
class SubTerrain:
    """A kind of terrain.

    proportion: its share of the columns, relative to the sum over all kinds.
    border_width: width of the level border of each cell, at elevation 0, metres.
    """

    proportion: float = 1.0
    border_width: float = 0.25

    def heights(self, cell: Cell) -> np.ndarray:
        """Return the elevations of the cell's points, metres; those within `border_width` of the edge are not used."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Flat(SubTerrain):
    """Level ground."""

    def heights(self, cell: Cell) -> np.ndarray:
        return np.zeros_like(cell.x)


@dataclass(frozen=True, kw_only=True)
class RandomUniform(SubTerrain):
    """Rough ground: every point, or one for each `downsampled_scale`, is up or down by at most `noise_range`."""

    noise_range: Range = (0.02, 0.10)
    noise_step: float = 0.01
    downsampled_scale: float | None = None

    def heights(self, cell: Cell) -> np.ndarray:
        most, every = cell.at(self.noise_range), cell.steps(self.downsampled_scale or cell.scale)
        n = max(1, round(most / self.noise_step))
        shape = tuple(-(-(k - 1) // every) + 1 for k in cell.x.shape)
        coarse = cell.rng.integers(-n, n + 1, shape) * (most / n)
        across, along = (np.arange(k) / every for k in cell.x.shape)
        rows = np.array([np.interp(across, np.arange(shape[0]), column) for column in coarse.T]).T
        return np.array([np.interp(along, np.arange(shape[1]), row) for row in rows])


@dataclass(frozen=True, kw_only=True)
class PyramidSloped(SubTerrain):
    """Slopes from all sides up to a platform, or down to it if `inverted`. `slope_range` is rise over run."""

    slope_range: Range = (0.0, 0.4)
    platform_width: float = 2.0
    inverted: bool = False

    def heights(self, cell: Cell) -> np.ndarray:
        most = 0.5 * (min(cell.size) - self.platform_width)
        rise = cell.at(self.slope_range) * np.clip(cell.edge - self.border_width, 0.0, most - self.border_width)
        return -rise if self.inverted else rise


@dataclass(frozen=True, kw_only=True)
class PyramidStairs(SubTerrain):
    """Stairs from all sides up to a platform, or down to it if `inverted`."""

    step_height_range: Range = (0.05, 0.23)
    step_width: float = 0.3
    platform_width: float = 2.0
    inverted: bool = False

    def heights(self, cell: Cell) -> np.ndarray:
        width = cell.steps(self.step_width) * cell.scale
        most = int((0.5 * (min(cell.size) - self.platform_width) - self.border_width) / width + 1e-9)
        steps = np.clip(np.floor((cell.edge - self.border_width) / width + 1e-9) + 1, 0, most)
        rise = cell.at(self.step_height_range) * steps
        return -rise if self.inverted else rise


@dataclass(frozen=True, kw_only=True)
class DiscreteObstacles(SubTerrain):
    """Boxes and pits at random places and with random sides, on level ground with a platform in the middle."""

    obstacle_height_range: Range = (0.05, 0.2)
    obstacle_width_range: Range = (0.4, 1.2)
    num_obstacles: int = 40
    platform_width: float = 2.0

    def heights(self, cell: Cell) -> np.ndarray:
        out, most = np.zeros_like(cell.x), cell.at(self.obstacle_height_range)
        for _ in range(self.num_obstacles):
            sides = [cell.steps(cell.rng.uniform(*self.obstacle_width_range)) for _ in range(2)]
            first = [cell.rng.integers(0, max(1, k - side)) for k, side in zip(out.shape, sides, strict=True)]
            place = tuple(slice(a, a + side + 1) for a, side in zip(first, sides, strict=True))
            out[place] = most * cell.rng.choice([-1.0, -0.5, 0.5, 1.0])
        out[cell.inner(self.platform_width)] = 0.0
        return out


@dataclass(frozen=True, kw_only=True)
class SteppingStones(SubTerrain):
    """Square stones over a hole, smaller and further apart with the difficulty, around a platform."""

    stone_width_range: Range = (1.0, 0.3)
    stone_distance_range: Range = (0.2, 0.5)
    stone_height_max: float = 0.0
    holes_depth: float = 1.0
    platform_width: float = 2.0

    def heights(self, cell: Cell) -> np.ndarray:
        out = np.full_like(cell.x, -self.holes_depth)
        side, gap = cell.steps(cell.at(self.stone_width_range)), cell.steps(cell.at(self.stone_distance_range), 2)
        for x in range(0, out.shape[0], side + gap):
            shift = int(cell.rng.integers(0, side + gap))
            for y in range(-shift, out.shape[1], side + gap):
                height = cell.rng.uniform(-self.stone_height_max, self.stone_height_max)
                out[x : x + side + 1, max(y, 0) : max(y + side + 1, 0)] = height
        out[cell.inner(self.platform_width)] = 0.0
        return out


@dataclass(frozen=True, kw_only=True)
class Wave(SubTerrain):
    """Waves along both sides; they begin within a metre of the edge."""

    amplitude_range: Range = (0.02, 0.2)
    num_waves: float = 2.0

    def heights(self, cell: Cell) -> np.ndarray:
        turns = [2 * np.pi * self.num_waves * k / side for k, side in zip((cell.x, cell.y), cell.size, strict=True)]
        begins = np.clip(cell.edge - self.border_width, 0.0, 1.0)
        return 0.5 * cell.at(self.amplitude_range) * begins * (np.sin(turns[0]) + np.cos(turns[1]))


@dataclass(frozen=True, kw_only=True)
class Gap(SubTerrain):
    """A trench around a platform."""

    gap_width_range: Range = (0.2, 0.8)
    gap_depth: float = 1.0
    platform_width: float = 2.0

    def heights(self, cell: Cell) -> np.ndarray:
        width = cell.steps(cell.at(self.gap_width_range), 2) * cell.scale
        trench = cell.inner(self.platform_width + 2 * width - cell.scale) & ~cell.inner(self.platform_width)
        return np.where(trench, -self.gap_depth, 0.0)


KINDS: tuple[SubTerrain, ...] = (
    Flat(),
    RandomUniform(),
    PyramidSloped(),
    PyramidSloped(inverted=True),
    PyramidStairs(),
    PyramidStairs(inverted=True),
    DiscreteObstacles(),
    SteppingStones(),
    Wave(),
    Gap(),
)

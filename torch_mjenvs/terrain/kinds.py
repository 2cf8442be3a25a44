"""The kinds of terrain: each gives the elevations of one cell for a difficulty from 0 to 1.

A field with a name of Isaac Lab's means what it means there. Unless its line says otherwise, a pair goes from its first
number, at difficulty 0, to its second, at 1. Lengths are in metres, and widths are rounded to the generator's
`horizontal_scale`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..checks import as_count, is_number

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

    def steps(self, length: float) -> int:
        """Return a length in steps of the grid, at least 1."""
        return max(1, round(length / self.scale))

    def hole(self, length: float) -> int:
        """Return a hole's width in steps of the grid: none if it rounds to 0, else at least 2, one down and one up."""
        steps = round(length / self.scale)
        return max(2, steps) if steps else 0

    def inner(self, platform: float) -> np.ndarray:
        """Return where the square platform in the middle is, as a mask."""
        (width, depth), half = self.size, 0.5 * platform + 1e-9
        return (abs(self.x - 0.5 * width) <= half) & (abs(self.y - 0.5 * depth) <= half)


@dataclass(frozen=True, kw_only=True)
class SubTerrain:
    """A kind of terrain.

    proportion: its share of the columns, relative to the sum over all kinds; 1.
    border_width: width of the level border of each cell, at elevation 0, metres; 0.25. The outermost points of a cell
        are level in any case.

    Raises ValueError for fields that make no ground, as all kinds do.
    """

    proportion: float = 1.0
    border_width: float = 0.25

    def __post_init__(self) -> None:
        self._number("proportion", 0.0)
        self._number("border_width", 0.0)

    def heights(self, cell: Cell) -> np.ndarray:
        """Return the elevations of the cell's points, metres; those within `border_width` of the edge are not used."""
        raise NotImplementedError

    def _refuse(self, name: str, message: str) -> None:
        raise ValueError(f"{type(self).__name__}: {name} {message}, not {getattr(self, name)!r}")

    def _number(self, name: str, least: float = -math.inf, above: float = -math.inf) -> None:
        """Refuse a field that is not a finite number, at least and above these."""
        x = getattr(self, name)
        if not is_number(x) or not math.isfinite(x) or x < least or x <= above:
            self._refuse(name, f"must be a finite number{_limit(least, above)}")

    def _pair(self, name: str, least: float = -math.inf, above: float = -math.inf) -> None:
        """Refuse a field that is not a pair of finite numbers, at least and above these."""
        x: Any = getattr(self, name)
        if not isinstance(x, (tuple, list, np.ndarray)) or len(x) != 2 or not all(map(is_number, x)):
            self._refuse(name, "must be two numbers")
        object.__setattr__(self, name, (float(x[0]), float(x[1])))
        if not all(map(math.isfinite, x)) or min(x) < least or min(x) <= above:
            self._refuse(name, f"must be two finite numbers{_limit(least, above)}")

    def _in_order(self, name: str, why: str = "") -> None:
        """Refuse a pair that is not the least and the greatest, in this order."""
        low, high = getattr(self, name)
        if low > high:
            self._refuse(name, f"is the least and the greatest{why}: write ({high:g}, {low:g})")


def _limit(least: float, above: float) -> str:
    return f" of at least {least:g}" if least > -math.inf else f" above {above:g}" if above > -math.inf else ""


@dataclass(frozen=True, kw_only=True)
class Flat(SubTerrain):
    """Level ground at elevation 0, at every difficulty."""

    def heights(self, cell: Cell) -> np.ndarray:
        return np.zeros_like(cell.x)


@dataclass(frozen=True, kw_only=True)
class RandomUniform(SubTerrain):
    """Rough ground: points have random elevations, from `amplitude_range` or, as in Isaac Lab, from `noise_range`.

    amplitude_range: amplitude a at difficulty 0 and at 1, metres; (0.02, 0.10). Elevations are from -a to a. This
        field is not Isaac Lab's.
    noise_range: the least and the greatest elevation, metres, at every difficulty, in place of `amplitude_range`; None.
    noise_step: distance between possible elevations, metres; 0.01. They begin at the least of `noise_range`; for an
        amplitude the distance is changed so that they end at -a and a.
    downsampled_scale: distance of the points with random elevations, metres, at least the generator's
        `horizontal_scale`; elevations between them are linear. None, the default, for every point.
    """

    amplitude_range: Range = (0.02, 0.10)
    noise_range: Range | None = None
    noise_step: float = 0.01
    downsampled_scale: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._number("noise_step", above=0.0)
        if self.downsampled_scale is not None:
            self._number("downsampled_scale", above=0.0)
        self._pair("amplitude_range", least=0.0)
        if self.noise_range is None:
            return
        if self.amplitude_range != RandomUniform.amplitude_range:
            self._refuse("amplitude_range", "is of no use with a noise_range: leave one of them out")
        self._pair("noise_range")
        self._in_order("noise_range")
        low, high = self.noise_range
        if 0 < high - low < self.noise_step - 1e-12:
            self._refuse("noise_step", f"must be at most the {high - low:g} m from the least to the greatest noise")

    def heights(self, cell: Cell) -> np.ndarray:
        scale = cell.scale if self.downsampled_scale is None else self.downsampled_scale
        if scale < cell.scale - 1e-9:
            self._refuse("downsampled_scale", f"must be at least horizontal_scale, {cell.scale:g}")
        every = cell.steps(scale)
        coarse = self._draw(cell, tuple(-(-(k - 1) // every) + 1 for k in cell.x.shape))
        across, along = (np.arange(k) / every for k in cell.x.shape)
        rows = np.array([np.interp(across, np.arange(coarse.shape[0]), column) for column in coarse.T]).T
        return np.array([np.interp(along, np.arange(coarse.shape[1]), row) for row in rows])

    def _draw(self, cell: Cell, shape: tuple[int, ...]) -> np.ndarray:
        if self.noise_range is not None:
            low, high = self.noise_range
            n = int((high - low) / self.noise_step + 1e-9)
            return low + cell.rng.integers(0, n + 1, shape) * self.noise_step
        most = cell.at(self.amplitude_range)
        n = max(1, round(most / self.noise_step))
        return cell.rng.integers(-n, n + 1, shape) * (most / n)


@dataclass(frozen=True, kw_only=True)
class PyramidSloped(SubTerrain):
    """Slopes from all sides up to a platform in the middle, or down to it if `inverted`.

    slope_range: rise over run, at difficulty 0 and at 1; (0.0, 0.4). A negative slope goes down.
    platform_width: side of the square platform, metres; 2.
    inverted: whether slopes go down to the platform; False.
    """

    slope_range: Range = (0.0, 0.4)
    platform_width: float = 2.0
    inverted: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self._pair("slope_range")
        self._number("platform_width", 0.0)

    def heights(self, cell: Cell) -> np.ndarray:
        most = 0.5 * (min(cell.size) - self.platform_width)
        rise = cell.at(self.slope_range) * np.clip(cell.edge - self.border_width, 0.0, most - self.border_width)
        return -rise if self.inverted else rise


@dataclass(frozen=True, kw_only=True)
class PyramidStairs(SubTerrain):
    """Stairs from all sides up to a platform in the middle, or down to it if `inverted`. The first is at the border.

    step_height_range: height of a step at difficulty 0 and at 1, metres; (0.05, 0.23). Negative steps go down.
    step_width: distance from one step's edge to the next's, metres; 0.3.
    platform_width: side of the square platform, metres; 2. It is larger where no whole step fits.
    inverted: whether stairs go down to the platform; False.
    """

    step_height_range: Range = (0.05, 0.23)
    step_width: float = 0.3
    platform_width: float = 2.0
    inverted: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self._pair("step_height_range")
        self._number("step_width", above=0.0)
        self._number("platform_width", 0.0)

    def heights(self, cell: Cell) -> np.ndarray:
        width = cell.steps(self.step_width) * cell.scale
        most = int((0.5 * (min(cell.size) - self.platform_width) - self.border_width) / width + 1e-9)
        steps = np.clip(np.floor((cell.edge - self.border_width) / width + 1e-9) + 1, 0, most)
        rise = cell.at(self.step_height_range) * steps
        return -rise if self.inverted else rise


@dataclass(frozen=True, kw_only=True)
class DiscreteObstacles(SubTerrain):
    """Boxes and pits at random places, on level ground with a platform in the middle.

    obstacle_height_range: height h at difficulty 0 and at 1, metres; (0.05, 0.2). Elevations are -h, -h/2, h/2 or h.
    obstacle_width_range: the least and the greatest side, metres, at every difficulty; (0.4, 1.2). The two sides of an
        obstacle are drawn each for itself.
    num_obstacles: how many there are in a cell; 40. They may overlap.
    platform_width: side of the square in the middle that stays level, metres; 2.
    """

    obstacle_height_range: Range = (0.05, 0.2)
    obstacle_width_range: Range = (0.4, 1.2)
    num_obstacles: int = 40
    platform_width: float = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._pair("obstacle_height_range", least=0.0)
        self._pair("obstacle_width_range", above=0.0)
        self._in_order("obstacle_width_range")
        object.__setattr__(self, "num_obstacles", as_count("num_obstacles", self.num_obstacles, 0))
        self._number("platform_width", 0.0)

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
    """Square stones in a large hole, around a platform: the harder, the smaller and the further apart.

    stone_width_range: the least and the greatest side of a stone, metres; (0.3, 1.0). The greatest is at difficulty 0,
        the least at 1.
    stone_distance_range: width of the hole between stones at difficulty 0 and at 1, metres; (0.2, 0.5). Below half of
        the generator's `horizontal_scale` there is no hole, else it is at least 2 of them wide.
    stone_height_max: stones have random elevations from minus this to this, metres; 0.
    holes_depth: elevation of the hole, metres, so it is negative; -1.
    platform_width: side of the square platform, metres; 2.
    """

    stone_width_range: Range = (0.3, 1.0)
    stone_distance_range: Range = (0.2, 0.5)
    stone_height_max: float = 0.0
    holes_depth: float = -1.0
    platform_width: float = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._pair("stone_width_range", above=0.0)
        self._in_order("stone_width_range", ", of which the greatest is the easiest")
        self._pair("stone_distance_range", least=0.0)
        self._number("stone_height_max", 0.0)
        self._number("holes_depth")
        if self.holes_depth > 0:
            self._refuse("holes_depth", f"is an elevation, 0 or negative: write {-self.holes_depth:g}")
        self._number("platform_width", 0.0)

    def heights(self, cell: Cell) -> np.ndarray:
        out = np.full_like(cell.x, self.holes_depth)
        least, greatest = self.stone_width_range
        side, gap = cell.steps(cell.at((greatest, least))), cell.hole(cell.at(self.stone_distance_range))
        for x in range(0, out.shape[0], side + gap):
            shift = int(cell.rng.integers(0, side + gap))
            for y in range(-shift, out.shape[1], side + gap):
                height = cell.rng.uniform(-self.stone_height_max, self.stone_height_max)
                out[x : x + side + 1, max(y, 0) : max(y + side + 1, 0)] = height
        out[cell.inner(self.platform_width)] = 0.0
        return out


@dataclass(frozen=True, kw_only=True)
class Wave(SubTerrain):
    """Waves along both sides. They rise to their full height within a metre of the border.

    amplitude_range: amplitude a at difficulty 0 and at 1, metres; (0.02, 0.2). Elevations are from -a to a.
    num_waves: waves along each side of a cell; 2.
    """

    amplitude_range: Range = (0.02, 0.2)
    num_waves: float = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._pair("amplitude_range", least=0.0)
        self._number("num_waves", above=0.0)

    def heights(self, cell: Cell) -> np.ndarray:
        turns = [2 * np.pi * self.num_waves * k / side for k, side in zip((cell.x, cell.y), cell.size, strict=True)]
        begins = np.clip(cell.edge - self.border_width, 0.0, 1.0)
        return 0.5 * cell.at(self.amplitude_range) * begins * (np.sin(turns[0]) + np.cos(turns[1]))


@dataclass(frozen=True, kw_only=True)
class Gap(SubTerrain):
    """Level ground with a trench around a platform.

    gap_width_range: width of the trench at difficulty 0 and at 1, metres; (0.2, 0.8). Below half of the generator's
        `horizontal_scale` there is none, else it is at least 2 of them wide.
    gap_depth: depth of the trench, metres, so it is positive; 1. This field is not Isaac Lab's.
    platform_width: side of the square platform, metres; 2.
    """

    gap_width_range: Range = (0.2, 0.8)
    gap_depth: float = 1.0
    platform_width: float = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._pair("gap_width_range", least=0.0)
        self._number("gap_depth")
        if self.gap_depth < 0:
            self._refuse("gap_depth", f"is a depth, 0 or positive: write {-self.gap_depth:g}")
        self._number("platform_width", 0.0)

    def heights(self, cell: Cell) -> np.ndarray:
        width = cell.hole(cell.at(self.gap_width_range)) * cell.scale
        room = min(cell.size) - 2 * self.border_width - self.platform_width + cell.scale
        if 2 * width > room + 1e-9:
            self._refuse("gap_width_range", f"must leave ground around the trench, which is {width:g} m wide here")
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

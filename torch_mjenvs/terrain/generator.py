"""`TerrainGenerator`: a grid of terrains of several kinds and difficulties, as one height field in a MuJoCo model."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np

from ..checks import as_count
from ..compiler.arrays import Table
from ..compiler.scalar import Scalar, clip, floor, logical_and, logical_not, maximum, select
from .kinds import KINDS, Cell, SubTerrain

BASE = 1.0  # metres of ground under the lowest point


@dataclass(frozen=True)
class TerrainGenerator:
    """A grid of terrains: each column has one kind, and its rows are levels, from easy to hard.

    Its fields mean what they mean in Isaac Lab's `TerrainGeneratorCfg` with `curriculum=True`; docs/terrain.md lists
    what differs. Rows follow each other along x, columns along y, and the grid's middle is the world's origin. The same
    fields give the same terrain, to the last bit.

    sub_terrains: the kinds, each with its `proportion` of the columns: a sequence, or a dict as in Isaac Lab.
    size: a cell's sides along x and y, metres.
    border_width: width of the level ground around the grid, metres.
    num_rows, num_cols: numbers of levels and of columns.
    horizontal_scale: distance of neighbouring elevations, metres. A face that should be vertical leans over that
        distance.
    vertical_scale: elevations are multiples of it, metres.
    difficulty_range: difficulty of the first and the last row, within 0 and 1; those between are evenly spaced. A
        single row has the first.
    seed: of the random numbers in all cells.

    Raises ValueError for numbers that make no grid, TypeError for sub_terrains that are not kinds.
    """

    sub_terrains: tuple[SubTerrain, ...] = KINDS
    size: tuple[float, float] = (8.0, 8.0)
    border_width: float = 5.0
    num_rows: int = 10
    num_cols: int = 10
    horizontal_scale: float = 0.1
    vertical_scale: float = 0.005
    difficulty_range: tuple[float, float] = (0.0, 1.0)
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("num_rows", "num_cols"):
            object.__setattr__(self, name, as_count(name, getattr(self, name)))
        kinds: Any = self.sub_terrains
        object.__setattr__(self, "sub_terrains", tuple(kinds.values() if isinstance(kinds, Mapping) else kinds))
        for name in ("size", "difficulty_range"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        for name in ("size", "difficulty_range"):
            if len(two := getattr(self, name)) != 2 or not all(map(math.isfinite, two)):
                raise ValueError(f"{name} must be two finite numbers, not {two}")
        if min(self.difficulty_range) < 0 or max(self.difficulty_range) > 1:
            raise ValueError(
                f"difficulty_range must be within 0 and 1, not {self.difficulty_range}: change the kinds' own ranges"
            )
        if not (self.horizontal_scale > 0 and self.vertical_scale > 0 and self.border_width >= 0):
            raise ValueError("horizontal_scale and vertical_scale must be above 0, and border_width at least 0")
        for length in (*self.size, self.border_width):
            steps = length / self.horizontal_scale
            if abs(steps - round(steps)) > 1e-6 or (length != self.border_width and round(steps) < 2):
                raise ValueError(
                    f"sides of cells and the border must be whole multiples of horizontal_scale, and sides at least 2 "
                    f"of them: {length} m is {steps:.6g} times {self.horizontal_scale} m"
                )
        for kind in self.sub_terrains:
            if not isinstance(kind, SubTerrain):
                raise TypeError(f"sub_terrains must be kinds of terrain, such as Flat(), not {kind!r}")
            if (taken := 2 * kind.border_width + getattr(kind, "platform_width", 0.0)) > min(self.size):
                raise ValueError(
                    f"{type(kind).__name__}: platform_width and twice border_width, {taken:g} m together, must fit "
                    f"into the cell's {min(self.size):g} m"
                )
        if not self.sub_terrains or not self._total:
            raise ValueError("sub_terrains must have at least one kind, of proportions above 0 in all")

    @property
    def _total(self) -> float:
        return sum(x.proportion for x in self.sub_terrains)

    @property
    def kinds(self) -> tuple[SubTerrain, ...]:
        """The kind of each column, by the kinds' proportions."""
        ends = np.cumsum([x.proportion for x in self.sub_terrains]) / self._total
        places = [int(np.argmax(k / self.num_cols + 1e-3 < ends)) for k in range(self.num_cols)]
        return tuple(self.sub_terrains[k] for k in places)

    @property
    def difficulties(self) -> tuple[float, ...]:
        """The difficulty of each row."""
        return tuple(np.linspace(*self.difficulty_range, self.num_rows).tolist())

    @functools.cached_property
    def heights(self) -> np.ndarray:
        """The elevations of the whole grid, metres: a row for each x, from the least to the greatest."""
        (nx, ny), edge = self._cell_steps, round(self.border_width / self.horizontal_scale)
        out = np.zeros((self.num_rows * nx + 2 * edge + 1, self.num_cols * ny + 2 * edge + 1))
        for column, kind in enumerate(self.kinds):
            for row in range(self.num_rows):
                x, y = edge + row * nx, edge + column * ny
                out[x : x + nx + 1, y : y + ny + 1] = self._cell(row, column, kind)
        out.setflags(write=False)
        return out

    @property
    def _cell_steps(self) -> tuple[int, int]:
        nx, ny = (round(side / self.horizontal_scale) for side in self.size)
        return nx, ny

    def _cell(self, row: int, column: int, kind: SubTerrain) -> np.ndarray:
        """The elevations of one cell with its edges, which are level with the border."""
        nx, ny = self._cell_steps
        x, y = np.meshgrid(np.arange(nx + 1), np.arange(ny + 1), indexing="ij")
        edge = np.minimum(np.minimum(x, nx - x), np.minimum(y, ny - y)) * self.horizontal_scale
        rng = np.random.default_rng([self.seed, row, column])
        scale = self.horizontal_scale
        heights = kind.heights(Cell(x * scale, y * scale, edge, scale, rng, self.difficulties[row]))
        heights = np.where((edge == 0) | (edge < kind.border_width - 1e-9), 0.0, heights)
        return np.rint(heights / self.vertical_scale) * self.vertical_scale

    @functools.cached_property
    def origins(self) -> np.ndarray:
        """The middle of each cell, (num_rows, num_cols, 3) metres; z is the highest elevation within 1 m along x and y.

        A robot whose lowest point is above z touches nothing and is inside nothing.
        """
        out = np.zeros((self.num_rows, self.num_cols, 3))
        (nx, ny), edge = self._cell_steps, round(self.border_width / self.horizontal_scale)
        near = round(1.0 / self.horizontal_scale)
        for row in range(self.num_rows):
            for column in range(self.num_cols):
                at = (row + 0.5) * self.size[0], (column + 0.5) * self.size[1]
                x, y = edge + row * nx + nx // 2, edge + column * ny + ny // 2
                around = self.heights[max(0, x - near) : x + near + 1, max(0, y - near) : y + near + 1]
                out[row, column] = at[0] - 0.5 * self.extent[0], at[1] - 0.5 * self.extent[1], around.max()
        out.setflags(write=False)
        return out

    @property
    def extent(self) -> tuple[float, float]:
        """The sides of the grid along x and y without its border, metres."""
        return self.num_rows * self.size[0], self.num_cols * self.size[1]

    # in a model

    def add_to(self, spec: mujoco.MjSpec, name: str = "terrain", **attributes: Any) -> mujoco.MjsGeom:
        """Add the terrain to a model's world, as a height field and a geom of this name, and return the geom.

        attributes: of the geom, by MuJoCo's names: `friction`, `contype`, `material` and so on. What MuJoCo compiles
        of the spec is the scene that its own simulation runs, too.
        """
        low, high = float(self.heights.min()), float(self.heights.max())
        rise = max(high - low, self.vertical_scale)  # MuJoCo requires more than 0
        sides = [side + 2 * self.border_width for side in self.extent]
        data = (self.heights.T - low) / rise
        spec.add_hfield(
            name=name,
            nrow=data.shape[0],
            ncol=data.shape[1],
            size=[0.5 * sides[0], 0.5 * sides[1], rise, BASE],
            userdata=data.ravel().tolist(),
        )
        return spec.worldbody.add_geom(
            name=name, type=mujoco.mjtGeom.mjGEOM_HFIELD, hfieldname=name, pos=[0.0, 0.0, low], **attributes
        )

    # in a task, over scalars

    @functools.cached_property
    def _places(self) -> Table:
        return Table(self.origins.reshape(-1, 3).tolist(), columns=3)

    def origin(self, row: Scalar, column: Scalar) -> list[Scalar]:
        """Return x, y and z of a cell's origin, metres, for a world's own row and column: whole numbers."""
        x, y, z = self._places[row * float(self.num_cols) + column]
        return [x, y, z]

    def cell(self, x: Scalar, y: Scalar) -> tuple[Scalar, Scalar]:
        """Return the row and the column, whole numbers, of the cell that is at (x, y), metres, or nearest to it."""
        row, column = ((at + 0.5 * side) / step for at, side, step in zip((x, y), self.extent, self.size, strict=True))
        return clip(floor(row), 0.0, self.num_rows - 1.0), clip(floor(column), 0.0, self.num_cols - 1.0)

    def next_level(self, level: Scalar, distance: Scalar, asked: Scalar, other: Scalar) -> Scalar:
        """Return the level (row) of a world's next episode, by legged_gym's rule.

        level: that of the episode that has ended.
        distance: how far from its origin the robot came, in metres.
        asked: how far its command asked it to go, in metres: speed times the seconds of a full episode.
        other: any level, `rng.integers(ground.num_rows)`.

        A robot that came further than half a cell goes up; else one that came less than half as far as asked goes
        down, but not below 0. One that passes the last level goes to `other`.
        """
        far = distance > 0.5 * self.size[0]
        down = logical_and(logical_not(far), distance < 0.5 * asked)
        new = select(far, level + 1.0, select(down, maximum(level - 1.0, 0.0), level))
        return select(new > self.num_rows - 0.5, other, new)

"""Terrains for legged robots: a generator of grids of them, spawn points and levels, and scans of the heights around.

A grid of terrain in a model, and what a task asks of it:

    from torch_mjenvs import terrain

    ground = terrain.TerrainGenerator(num_rows=5, num_cols=10, seed=1)
    ground.add_to(spec)  # a mujoco.MjSpec
    ground.origin(level, column)  # in a task's functions
    terrain.heights(m, world, terrain.grid((1.6, 1.0), 0.1), body="trunk")
"""

from .generator import TerrainGenerator
from .kinds import (
    KINDS,
    Cell,
    DiscreteObstacles,
    Flat,
    Gap,
    PyramidSloped,
    PyramidStairs,
    RandomUniform,
    SteppingStones,
    SubTerrain,
    Wave,
)
from .scan import grid, heights

__all__ = [
    "KINDS",
    "Cell",
    "DiscreteObstacles",
    "Flat",
    "Gap",
    "PyramidSloped",
    "PyramidStairs",
    "RandomUniform",
    "SteppingStones",
    "SubTerrain",
    "TerrainGenerator",
    "Wave",
    "grid",
    "heights",
]

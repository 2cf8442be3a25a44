"""Terrains: what the generator makes, what MuJoCo makes of it, spawn points and levels."""

from __future__ import annotations

import math

import mujoco
import numpy as np
import pytest
import torch

from torch_mjenvs.terrain import (
    KINDS,
    DiscreteObstacles,
    Flat,
    Gap,
    PyramidSloped,
    PyramidStairs,
    RandomUniform,
    SteppingStones,
    TerrainGenerator,
    Wave,
)

ROWS = 3


def names(kinds) -> list[tuple[str, bool]]:
    return [(type(x).__name__, getattr(x, "inverted", False)) for x in kinds]


@pytest.fixture(scope="module")
def ground() -> TerrainGenerator:
    return TerrainGenerator(num_rows=ROWS, num_cols=len(KINDS), border_width=1.0, seed=7)


def cell(ground: TerrainGenerator, row: int, kind: type, inverted: bool = False) -> np.ndarray:
    """The elevations of the cell of this level and kind, with its edges."""
    column = names(ground.kinds).index((kind.__name__, inverted))
    (nx, ny), edge = ground._cell_steps, round(ground.border_width / ground.horizontal_scale)
    x, y = edge + row * nx, edge + column * ny
    return ground.heights[x : x + nx + 1, y : y + ny + 1]


def test_a_seed_gives_the_same_terrain_and_another_seed_another(ground):
    again = TerrainGenerator(num_rows=ROWS, num_cols=len(KINDS), border_width=1.0, seed=7)
    other = TerrainGenerator(num_rows=ROWS, num_cols=len(KINDS), border_width=1.0, seed=8)
    assert ground == again and hash(ground) == hash(again)
    np.testing.assert_array_equal(ground.heights, again.heights)
    assert (ground.heights != other.heights).mean() > 0.1


def test_a_cell_does_not_depend_on_how_many_others_there_are(ground):
    alone = TerrainGenerator(ground.sub_terrains[:2], num_rows=ROWS, num_cols=2, border_width=1.0, seed=7)
    np.testing.assert_array_equal(cell(alone, 2, RandomUniform), cell(ground, 2, RandomUniform))


@pytest.mark.parametrize("two", [(0.0, math.nan), (math.inf, 1.0), (0.0, 0.5, 1.0)])
@pytest.mark.parametrize("name", ["difficulty_range", "size"])
def test_sizes_and_difficulties_are_two_finite_numbers(name, two):
    with pytest.raises(ValueError, match=f"{name} must be two finite numbers, not "):
        TerrainGenerator(**{name: two})


def test_columns_share_the_kinds_by_their_proportions():
    kinds = Flat(proportion=0.1), Wave(proportion=0.6), Gap(proportion=0.3)
    ground = TerrainGenerator(kinds, num_cols=20)
    assert [names(ground.kinds).count((x, False)) for x in ("Flat", "Wave", "Gap")] == [2, 12, 6]
    assert list(ground.kinds) == sorted(ground.kinds, key=kinds.index)


def test_every_kind_is_what_its_name_says(ground):
    assert not cell(ground, 2, Flat).any()
    rough = [cell(ground, row, RandomUniform) for row in range(ROWS)]
    assert [round(np.abs(x).max(), 3) for x in rough] == [0.02, 0.06, 0.1]
    for inverted, sign in ((False, 1.0), (True, -1.0)):
        slope, stairs = (sign * cell(ground, 2, kind, inverted) for kind in (PyramidSloped, PyramidStairs))
        middle = len(slope) // 2
        rise = np.diff(slope[:, middle])[5:25] / ground.horizontal_scale
        np.testing.assert_allclose(rise, 0.4, atol=0.051)  # whole steps of vertical_scale
        assert abs(rise.mean() - 0.4) < 1e-3
        up = np.diff(stairs[: middle + 1, middle])
        assert set(np.round(up[up > 0], 3)) == {0.23} and (up > 0).sum() == 9
        assert np.diff(np.flatnonzero(up)).tolist() == [3] * 8  # steps of 0.3 m
        assert (stairs[middle - 10 : middle + 11, middle] == stairs.max()).all()
    boxes = cell(ground, 2, DiscreteObstacles)
    assert set(np.round(np.unique(boxes), 3)) == {-0.2, -0.1, 0.0, 0.1, 0.2}
    few, many = (cell(ground, row, SteppingStones) for row in (0, 2))
    assert set(np.unique(many)) == {-1.0, 0.0} and 0 < (few < 0).mean() < (many < 0).mean()
    wave = cell(ground, 2, Wave)
    assert 0.18 < wave.max() <= 0.2 and abs(wave.mean()) < 0.02
    widths = [(cell(ground, row, Gap)[:40, 40] < 0).sum() + 1 for row in range(ROWS)]
    assert widths == [2, 5, 8]  # of 0.1 m


def test_cells_meet_at_the_same_height(ground):
    (nx, ny), edge = ground._cell_steps, 10
    for x in range(edge, len(ground.heights), nx):
        assert not ground.heights[x].any()
    for y in range(edge, ground.heights.shape[1], ny):
        assert not ground.heights[:, y].any()


def test_mujoco_has_the_elevations_where_they_should_be(ground):
    spec = mujoco.MjSpec()
    geom = ground.add_to(spec, name="hills", friction=[0.7, 0.01, 0.001])
    mjm = spec.compile()
    d = mujoco.MjData(mjm)
    mujoco.mj_forward(mjm, d)
    assert geom.name == "hills" and mjm.geom("hills").friction[0] == 0.7
    rng = np.random.default_rng(0)
    for _ in range(300):
        i, j = (int(rng.integers(1, n - 1)) for n in ground.heights.shape)
        x = [k * ground.horizontal_scale - 0.5 * side - 1.0 for k, side in zip((i, j), ground.extent, strict=True)]
        down = mujoco.mj_ray(mjm, d, np.array([*x, 9.0]), np.array([0, 0, -1.0]), None, 1, -1, np.zeros(1, np.int32))
        assert abs(9.0 - down - ground.heights[i, j]) < 1e-6  # MuJoCo keeps elevations in float32


def test_origins_are_in_the_middle_of_cells_and_on_the_ground(ground):
    for row in range(ROWS):
        for column in range(ground.num_cols):
            x, y, z = ground.origins[row, column]
            assert x == (row - 1) * 8.0 and y == (column - 4.5) * 8.0
            assert ground.origin(float(row), float(column)) == [x, y, z]
            assert ground.cell(x + 3.9, y - 3.9) == (row, column)
    top = [ground.origins[2, names(ground.kinds).index((kind, False))][2] for kind in ("PyramidStairs", "Flat")]
    np.testing.assert_allclose(top, [9 * 0.23, 0.0], atol=1e-9)
    level, column = torch.tensor([0.0, 2.0]), torch.tensor([4.0, 1.0])
    found = torch.stack(ground.origin(level, column)).cpu()
    np.testing.assert_allclose(found, ground.origins[[0, 2], [4, 1]].T, rtol=1e-6)
    assert ground.cell(-1000.0, 1000.0) == (0, ground.num_cols - 1)


def test_levels_go_up_and_down_by_how_far_a_world_came():
    ground = TerrainGenerator(num_rows=5, num_cols=2)

    def after(level: float, distance: float, asked: float, other: float = 9.0) -> float:
        return ground.next_level(level, distance, asked, other)

    assert after(1.0, 4.1, 100.0) == 2.0  # further than half a cell
    assert after(1.0, 3.9, 8.0) == 0.0 and after(0.0, 0.0, 8.0) == 0.0  # less than half of what was asked
    assert after(1.0, 3.9, 7.0) == 1.0  # neither
    assert after(3.0, 5.0, 1.0) == 4.0 and after(4.0, 5.0, 1.0, 2.0) == 2.0  # past the last


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"size": (8.05, 8.0)}, "80.5 times"),
        ({"horizontal_scale": 0.0}, "horizontal_scale"),
        ({"num_rows": 0}, "num_rows"),
        ({"sub_terrains": ()}, "at least one kind"),
        ({"border_width": -1.0}, "border_width"),
        ({"difficulty_range": (0.0, 1.5)}, r"within 0 and 1, not \(0.0, 1.5\): change the kinds' own ranges"),
        ({"size": (2.4, 8.0)}, "PyramidSloped: platform_width and twice border_width, 2.5 m together, must fit"),
        ({"sub_terrains": (Wave(border_width=4.1),)}, "Wave: platform_width and twice border_width, 8.2 m"),
    ],
)
def test_numbers_that_make_no_grid_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        TerrainGenerator(**fields)


def test_ground_that_is_level_everywhere_is_a_field_too():
    spec = mujoco.MjSpec()
    TerrainGenerator((Flat(),), num_rows=1, num_cols=1).add_to(spec)
    assert not spec.compile().hfield_data.any()


def test_kinds_may_be_a_dict_as_in_isaac_lab():
    kinds = {"flat": Flat(proportion=0.3), "wave": Wave(proportion=0.7)}
    assert TerrainGenerator(kinds).sub_terrains == tuple(kinds.values())
    with pytest.raises(TypeError, match=r"must be kinds of terrain, such as Flat\(\), not 'flat'"):
        TerrainGenerator(list(kinds))

"""Each kind's fields: the heights that they give at both ends of the difficulty, and values that are refused."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools

import numpy as np
import pytest

from torch_mjenvs.terrain import (
    KINDS,
    DiscreteObstacles,
    Gap,
    PyramidSloped,
    PyramidStairs,
    RandomUniform,
    SteppingStones,
    SubTerrain,
    TerrainGenerator,
    Wave,
)


def cells(kind: SubTerrain, rows: int = 3, **fields) -> list[np.ndarray]:
    """The elevations of a cell of this kind with its edges, at difficulty 0 to 1, of 4 m unless `fields` say else."""
    ground = TerrainGenerator((kind,), num_rows=rows, num_cols=1, border_width=0.0, **{"size": (4.0, 4.0)} | fields)
    n = ground._cell_steps[0]
    return [ground.heights[k * n : (k + 1) * n + 1] for k in range(rows)]


def values(x: np.ndarray) -> list[float]:
    return np.unique(np.round(x, 6)).tolist()


def across(x: np.ndarray) -> list[float]:
    """The elevations along x through the middle, from the edge to the middle."""
    return np.round(x[: len(x) // 2 + 1, x.shape[1] // 2], 6).tolist()


def test_the_default_ground_is_as_it_was():
    """Policies have been trained on it."""
    ground = TerrainGenerator(num_rows=3, size=(4.0, 4.0), seed=7)
    steps = np.rint(ground.heights / ground.vertical_scale).astype("<i4")
    assert hashlib.sha256(steps.tobytes()).hexdigest()[:16] == "0bebc94483fef5a7"


@pytest.mark.parametrize(
    ("low", "high", "possible"),
    [
        (0.02, 0.1, [0.02, 0.04, 0.06, 0.08, 0.1]),
        (-0.05, 0.05, [-0.05, -0.03, -0.01, 0.01, 0.03, 0.05]),
        (0.05, 0.05, [0.05]),
        (-0.03, 0.02, [-0.03, -0.01, 0.01]),  # never above the greatest
    ],
)
def test_noise_range_is_the_least_and_the_greatest_elevation_at_every_difficulty(low, high, possible):
    for x in cells(RandomUniform(noise_range=(low, high), noise_step=0.02, border_width=0.0)):
        assert values(x[1:-1, 1:-1]) == possible


def test_amplitude_range_grows_with_the_difficulty():
    kind = RandomUniform(amplitude_range=(0.0, 0.04), noise_step=0.02, border_width=0.0)
    assert [values(x) for x in cells(kind)] == [[0.0], [-0.02, 0.0, 0.02], [-0.04, -0.02, 0.0, 0.02, 0.04]]


def test_elevations_between_those_of_downsampled_scale_are_linear():
    kind = RandomUniform(noise_range=(0.0, 0.4), noise_step=0.1, downsampled_scale=0.4, border_width=0.0)
    x = cells(kind, rows=1)[0][4:-4, 4:-4]
    assert set(values(x[::4, ::4])) <= {0.0, 0.1, 0.2, 0.3, 0.4} and len(values(x[::4, ::4])) > 2
    np.testing.assert_allclose(x[2::4], 0.5 * (x[:-1:4] + x[4::4]), atol=0.006)  # whole steps of vertical_scale


@pytest.mark.parametrize("inverted", [False, True])
def test_a_slope_is_rise_over_run_from_the_border_to_the_platform(inverted):
    easy, _, hard = cells(
        PyramidSloped(slope_range=(0.0, 0.5), border_width=0.5, platform_width=2.0, inverted=inverted)
    )
    assert values(easy) == [0.0]
    rise = [0.0] * 6 + [0.05, 0.1, 0.15, 0.2, 0.25] + [0.25] * 10
    assert across(hard) == [-x if inverted else x for x in rise]
    np.testing.assert_array_equal(hard, hard.T)


@pytest.mark.parametrize("inverted", [False, True])
def test_stairs_have_steps_of_that_height_and_width(inverted):
    kind = PyramidStairs(
        step_height_range=(0.05, 0.2), step_width=0.3, border_width=0.4, platform_width=2.0, inverted=inverted
    )
    for x, height in zip(cells(kind), (0.05, 0.125, 0.2), strict=True):
        steps = [0] * 4 + [1] * 3 + [2] * 14  # a third would leave less than the platform
        assert across(x) == [round(-height * k if inverted else height * k, 6) for k in steps]


def test_negative_slopes_and_steps_go_down():
    for up, down in (
        (PyramidSloped(slope_range=(0.1, 0.4), inverted=True), PyramidSloped(slope_range=(-0.1, -0.4))),
        (PyramidStairs(step_height_range=(0.1, 0.2), inverted=True), PyramidStairs(step_height_range=(-0.1, -0.2))),
    ):
        for x, y in zip(cells(up), cells(down), strict=True):
            np.testing.assert_array_equal(x, y)


def test_obstacles_have_four_elevations_and_sides_within_their_range():
    kind = DiscreteObstacles(
        obstacle_height_range=(0.0, 0.2), obstacle_width_range=(0.5, 0.5), num_obstacles=1, platform_width=0.0
    )
    seen = set()
    for seed in range(12):
        easy, _, hard = cells(kind, seed=seed, size=(8.0, 8.0))
        assert values(easy) == [0.0]
        where = np.argwhere(hard)
        seen |= set(values(hard)) - {0.0}
        assert len(where) <= 6 * 6 and (np.ptp(where, axis=0) <= 5).all() and len(values(hard)) == 2
    assert seen == {-0.2, -0.1, 0.1, 0.2}
    assert values(cells(dataclasses.replace(kind, num_obstacles=0))[2]) == [0.0]


def runs(row: np.ndarray, of: float) -> set[int]:
    """The lengths of runs of this elevation in a row, without those at its ends."""
    found = [(height, len(list(run))) for height, run in itertools.groupby(np.round(row, 6).tolist())]
    return {length for height, length in found[2:-2] if height == of}


def test_stones_are_largest_and_closest_at_difficulty_0():
    kind = SteppingStones(
        stone_width_range=(0.4, 1.2),
        stone_distance_range=(0.2, 0.6),
        holes_depth=-2.0,
        platform_width=0.0,
        border_width=0.0,
    )
    easy, _, hard = cells(kind, size=(8.0, 8.0))
    assert values(easy) == values(hard) == [-2.0, 0.0]
    for x, side, hole in ((easy, 12, 2), (hard, 4, 6)):
        row = x[2]  # through the first row of stones
        assert runs(row, 0.0) == {side + 1} and runs(row, -2.0) == {hole - 1}
    assert (easy < 0).mean() < (hard < 0).mean()


def test_isaac_labs_numbers_for_stones_make_holes():
    """Its defaults and a common choice, by its names."""
    kind = SteppingStones(
        stone_width_range=(0.25, 1.575), stone_distance_range=(0.05, 0.1), stone_height_max=0.0, holes_depth=-10.0
    )
    easy, _, hard = cells(kind)
    assert values(easy) == [0.0]  # a distance below half of horizontal_scale
    assert values(hard) == [-10.0, 0.0] and TerrainGenerator((kind,), num_rows=2, num_cols=1).origins[1, 0, 2] == 0.0


def test_stones_have_heights_up_to_the_greatest():
    x = cells(SteppingStones(stone_height_max=0.1, platform_width=0.0))[2]
    stones = x[x > -0.5]
    assert -0.1 <= stones.min() < -0.05 and 0.05 < stones.max() <= 0.1


def test_a_wave_goes_from_minus_to_plus_its_amplitude():
    kind = Wave(amplitude_range=(0.0, 0.2), num_waves=4)
    for x, most in zip(cells(kind, size=(8.0, 8.0)), (0.0, 0.1, 0.2), strict=True):
        middle = np.round(x[20:61, 20:61], 6)
        assert middle.max() == -middle.min() == most
    along = x[20:61, 40] - x[40, 40]  # a wave is 2 m long
    np.testing.assert_allclose(along, 0.1 * np.sin(np.pi * np.arange(-20, 21) / 10), atol=0.0051)


def test_a_gap_is_as_wide_and_as_deep_as_asked():
    kind = Gap(gap_width_range=(0.0, 0.8), gap_depth=0.5, platform_width=2.0)
    none, half, full = cells(kind)
    assert values(none) == [0.0]
    assert across(half) == [0.0] * 7 + [-0.5] * 3 + [0.0] * 11  # 0.4 m from rim to rim
    assert across(full) == [0.0] * 3 + [-0.5] * 7 + [0.0] * 11


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: RandomUniform(noise_range=(0.1, 0.02)),
            r"RandomUniform: noise_range .* write \(0.02, 0.1\), not \(0.1,",
        ),
        (lambda: RandomUniform(noise_range=(0.0, 0.005)), "noise_step must be at most the 0.005 m .*, not 0.01"),
        (
            lambda: RandomUniform(noise_range=(0, 1), amplitude_range=(0, 1)),
            "amplitude_range is of no use with a noise_",
        ),
        (
            lambda: RandomUniform(amplitude_range=(-0.05, 0.05)),
            "amplitude_range must be two finite .* of at least 0, not",
        ),
        (lambda: RandomUniform(noise_step=0.0), "noise_step must be a finite number above 0, not 0.0"),
        (lambda: RandomUniform(downsampled_scale=0.0), "downsampled_scale must be a finite number above 0"),
        (
            lambda: cells(RandomUniform(downsampled_scale=0.05)),
            "downsampled_scale must be at least horizontal_scale, 0.1",
        ),
        (lambda: PyramidSloped(slope_range=0.4), "PyramidSloped: slope_range must be two numbers, not 0.4"),
        (lambda: PyramidSloped(slope_range=(0.0, np.nan)), "slope_range must be two finite numbers, not"),
        (lambda: PyramidStairs(step_width=0.0), "step_width must be a finite number above 0"),
        (lambda: PyramidStairs(platform_width=-1.0), "platform_width must be a finite number of at least 0, not -1.0"),
        (lambda: DiscreteObstacles(obstacle_width_range=(1.2, 0.4)), r"obstacle_width_range .* write \(0.4, 1.2\)"),
        (lambda: DiscreteObstacles(obstacle_width_range=(0.0, 0.4)), "obstacle_width_range must be .* above 0"),
        (lambda: DiscreteObstacles(num_obstacles=-1), "num_obstacles must be a whole number from 0 on, not -1"),
        (lambda: SteppingStones(stone_width_range=(1.0, 0.3)), r"the greatest is the easiest: write \(0.3, 1\), not"),
        (lambda: SteppingStones(stone_distance_range=(-0.1, 0.3)), "stone_distance_range must be .* of at least 0"),
        (lambda: SteppingStones(stone_height_max=-0.1), "stone_height_max must be .* of at least 0"),
        (lambda: SteppingStones(holes_depth=1.0), "holes_depth is an elevation, 0 or negative: write -1, not 1.0"),
        (lambda: Wave(num_waves=0), "num_waves must be a finite number above 0, not 0"),
        (lambda: Gap(gap_depth=-1.0), "gap_depth is a depth, 0 or positive: write 1, not -1.0"),
        (
            lambda: cells(Gap(gap_width_range=(0.2, 0.9))),
            "gap_width_range must leave ground .* which is 0.9 m wide here",
        ),
        (lambda: Wave(proportion=-1.0), "Wave: proportion must be a finite number of at least 0"),
        (lambda: Wave(border_width=-0.1), "Wave: border_width must be a finite number of at least 0"),
    ],
)
def test_values_that_cannot_be_meant_are_refused_by_name(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_ranges_may_be_lists_and_a_default_kind_may_get_a_noise_range():
    kind = SteppingStones(stone_width_range=[0.3, 1.0], stone_distance_range=np.array([0.2, 0.5]))
    assert kind == SteppingStones() and hash(kind) == hash(SteppingStones()) and kind in KINDS
    assert dataclasses.replace(RandomUniform(), noise_range=[0.0, 0.1]).noise_range == (0.0, 0.1)

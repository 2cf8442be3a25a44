"""The laws of rows (`constraints/laws.py`): what the solver's line search sums agrees with slope and curvature."""

from __future__ import annotations

import numpy as np
import pytest

from torch_mjenvs.physics.constraints.laws import Huber, Law, OneSided, TwoSided

LAWS = [OneSided(3.0), TwoSided(3.0), Huber(3.0, 2.0)]


@pytest.mark.parametrize("law", LAWS)
def test_a_line_search_sums_the_slope_and_curvature_of_the_law(law: Law):
    start, inside = [0.5, -1.0, 2.0, 4.0], 0
    for e, v, alpha in np.random.default_rng(0).normal(size=(200, 3)).tolist():
        here, before = law.at(e + alpha * v), law.at(e)
        slope, curvature, astray, first = np.subtract(law.fold(start, e, v, alpha), start)
        np.testing.assert_allclose([slope, curvature], [here[0] * v, here[1] * v * v], rtol=0, atol=1e-13)
        assert first == pytest.approx(before[1] * v * v, abs=1e-13)
        if np.sign(e + alpha * v) == np.sign(e) and here[1] == before[1]:  # in the same piece
            inside += 1
            assert astray == pytest.approx(0.0, abs=1e-13)
    assert inside > 100


@pytest.mark.parametrize("law", LAWS)
def test_out_of_place_is_the_force_that_the_piece_at_the_start_does_not_have(law: Law):
    """The force at the end, less what slope and curvature at the start make of it."""
    astray = 0
    for e, v, alpha in np.random.default_rng(1).normal(size=(200, 3)).tolist():
        slope, curvature = law.at(e)
        expected = slope + curvature * alpha * v
        found = law.fold([0.0] * 4, e, v, alpha)[2]
        assert found == pytest.approx(abs(law.at(e + alpha * v)[0] - expected), abs=1e-12)
        astray += found > 1e-6
    assert (astray > 30) == (not isinstance(law, TwoSided))

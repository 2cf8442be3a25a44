"""Boxes that touch boxes, against MuJoCo C: dist, point and normal of every contact, in thousands of poses."""

from __future__ import annotations

import numpy as np
import pytest
from two_geoms import expected, found, poses, two, worst

SIZES = ((".1 .2 .3", ".15 .1 .25"), (".5 .5 .02", ".1 .1 .1"), (".2 .2 .2", ".2 .2 .2"))


def boxes(sizes: tuple[str, str]) -> tuple[str, str]:
    one, two = (f'type="box" size="{s}"' for s in sizes)
    return one, two


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("more", ["", 'margin=".02"', 'margin=".03" gap=".01"'])
def test_boxes_touch_as_in_mujoco(sizes, more):
    """In any pose: faces on faces, corners on faces, edges on edges, one within the other."""
    mjm, states = two(boxes(sizes), more), poses(600, 0.2, 0)
    got, want = found(mjm, states), expected(mjm, states)
    errors = np.array([worst(g, w) for g, w in zip(got, want, strict=True)])
    numbers = {len(w) for w in want}
    assert {0, 1} <= numbers and max(numbers) >= 5
    assert (errors < 1e-9).all(), (np.flatnonzero(errors >= 1e-9), errors[errors >= 1e-9])


@pytest.mark.parametrize("tilt", [0.0, 1e-12, 1e-9, 1e-6, 1e-4])
def test_boxes_that_stand_on_each_other(tilt):
    """Faces next to parallel, edges aligned or not: as many contacts, where they are in MuJoCo."""
    mjm, rng, states = two(boxes((".2 .2 .1", ".2 .2 .1"))), np.random.default_rng(1), []
    for k in range(300):
        angle = (0.0, np.pi / 2, 0.3)[k % 3]
        quat = np.array([np.cos(angle / 2), 0, 0, np.sin(angle / 2)]) + tilt * rng.normal(size=4)
        slide = rng.choice([0.0, 0.1, 0.2], 2)
        states.append([0, 0, 0, 1, 0, 0, 0, *slide, 0.1999 + 5e-5 * rng.random(), *(quat / np.linalg.norm(quat))])
    states = np.array(states, dtype=float)
    got, want = found(mjm, states), expected(mjm, states)
    assert min(len(w) for w in want) >= 1
    exact = [worst(g, w) < 1e-9 for g, w in zip(got, want, strict=True)]
    # edges that are one but for rounding cross somewhere or nowhere: there a corner more makes no difference
    assert np.mean(exact) > (0.85 if 0 < tilt < 1e-7 else 0.99)
    directions = [[np.cos(x), np.sin(x), 0] for x in np.arange(0, 2 * np.pi, 0.1)]
    for g, w in zip(got, want, strict=True):
        ends = [np.max(np.array(contacts)[:, 1:4] @ np.transpose(directions), axis=0) for contacts in (g, w)]
        assert np.allclose(*ends, rtol=0, atol=1e-6)

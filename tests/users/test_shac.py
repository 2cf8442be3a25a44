"""examples/shac.py: its gradient is the right one, it learns, and what it says about horizons."""

from __future__ import annotations

import pytest
import shac
import torch

pytestmark = [pytest.mark.cpu, pytest.mark.usefixtures("quickly_compiled")]


def test_policies_learn_and_values_come_to_be_of_what_is_earned():
    torch.manual_seed(0)
    learner = shac.SHAC(worlds=64, horizon=4)
    before = [p.clone() for p in learner.actor.parameters()]
    rewards = []
    for _ in range(30):
        learner.iterate()
        rewards.append(float(learner.state["reward"].mean()))
    assert learner.frames == 30 * 4 * 64
    assert sum(rewards[-5:]) > sum(rewards[:5]) + 1.0
    assert all(
        (p != old).any() and p.isfinite().all() for p, old in zip(learner.actor.parameters(), before, strict=True)
    )


def test_gradients_over_one_step_are_those_of_differences():
    torch.manual_seed(0)
    (one,) = shac.agreement(worlds=256, horizons=(1,), batches=1)
    assert one.right[0] == 1.0 and one.same[0] > 0.999 and one.known > 0.9

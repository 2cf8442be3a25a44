"""examples/ilqr.py: its derivatives, plans that get better, and the swing-up itself."""

from __future__ import annotations

import ilqr
import numpy as np
import pytest
import torch

pytestmark = pytest.mark.cpu


@pytest.fixture(scope="module")
def started() -> tuple[ilqr.Controller, ilqr.Plan]:
    robot = ilqr.cart_pole()
    controller = ilqr.Controller(robot)
    return controller, controller.first(torch.tensor(robot.start))


def test_derivatives_are_those_of_differences(started):
    controller, plan = started
    A, B = controller.linearized(plan)
    controller.differences = True
    want_A, want_B = controller.linearized(plan)
    controller.differences = False
    np.testing.assert_allclose(A, want_A, atol=1e-6)
    np.testing.assert_allclose(B, want_B, atol=1e-6)


def test_plans_get_better_and_follow_the_physics(started):
    controller, plan = started
    costs = []
    for _ in range(6):
        plan, cost = controller.improve(plan)
        costs.append(cost)
    assert costs == sorted(costs, reverse=True) and costs[-1] < 0.9 * costs[0]
    after = controller.worlds.transition(plan.x[:-1, :2], plan.x[:-1, 2:], plan.u, nstep=controller.robot.substeps)
    torch.testing.assert_close(torch.cat(after[:2], dim=1), plan.x[1:], rtol=0, atol=1e-9)


@pytest.mark.slow
def test_the_pole_swings_up_and_stays():
    states, *_ = ilqr.control(ilqr.cart_pole(), 200)
    assert (np.cos(states[100:, 1]) > 0.99).all()

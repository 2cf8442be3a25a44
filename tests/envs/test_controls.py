"""The helpers between an action and ctrl, on plain numbers. tests/carts.py has some of them in a kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch
from carts import Carts

from torch_mjenvs import TorchVectorEnv, controls


def test_an_action_is_mapped_to_the_range_of_each_actuator():
    assert controls.rescaled([-1.0, 0.0, 1.0, 2.0], [(-3.0, 1.0), (0, 5), (2.0, 4.0), (0.0, 1.0)]) == [-3, 2.5, 4, 1.5]
    for low, high in ((0.0, 0.0), (-math.inf, math.inf), (0.0, math.inf), (1, 0)):
        with pytest.raises(ValueError, match="entry 1 of the action has no range to be mapped to"):
            controls.rescaled([0.0, 0.0], [(-1.0, 1.0), (low, high)])


def test_one_number_counts_for_all_joints_and_a_list_for_each():
    assert controls.offset([1.0, -1.0], [0.5, 0.25], 0.5) == [1.0, -0.25]
    assert controls.offset([1.0, -1.0], [0.5, 0.25], [0.5, 1.0]) == [1.0, -0.75]
    assert controls.pd([1.0, 2.0], [0.0, 1.0], [0.5, -0.5], 10.0, [1.0, 2.0]) == [9.5, 11.0]
    assert controls.rate_limited([1.0, -1.0, 0.1], [0.0, 0.0, 0.0], 0.25) == [0.25, -0.25, 0.1]
    with pytest.raises(ValueError, match=r"shorter|longer"):
        controls.offset([1.0, 2.0], [0.0, 0.0], [0.5])


@pytest.mark.parametrize("late", [0, 1, 2, 3, 0.25, 2.5])
def test_a_delayed_action_is_that_of_so_many_steps_ago(late):
    queue, sent = [0.0] * 6, []
    for t in range(10):
        action = [float(t + 1), -2.0 * (t + 1)]
        sent.append(action)
        past = [*[[0.0, 0.0]] * 4, *sent][::-1]
        whole, part = int(late), late - int(late)
        want = [(1 - part) * x + part * y for x, y in zip(past[whole], past[whole + 1], strict=True)]
        assert controls.delayed(queue, action, late) == pytest.approx(want, abs=1e-12)
        queue = controls.queued(queue, action)
    assert queue == [*sent[-3], *sent[-2], *sent[-1]]


def test_a_queue_that_does_not_hold_the_action_is_refused():
    with pytest.raises(ValueError, match="a queue of 3 numbers does not hold actions of 2"):
        controls.delayed([0.0] * 3, [0.0] * 2, 1)
    with pytest.raises(ValueError, match="the queue holds 2 actions, and none of 3 steps ago"):
        controls.delayed([0.0] * 4, [0.0] * 2, 3)


def test_gains_and_delays_are_each_world_s_own():
    @dataclass(frozen=True)
    class Own(Carts):
        def begin(self, m, world):
            return {"late": 5.0 * world.rng.uniform(-1.0, 1.0)}

        def force(self, world, action):
            place, effort = controls.delayed(world.memory["queue"], action, world.memory["late"])
            return controls.pd([place], [0.0], [0.0], 1.0 + effort, 0.0)

    env = TorchVectorEnv(Own(), 16, dtype=torch.float64)
    env.reset(seed=0)
    steps = torch.rand(3, 16, 2, dtype=torch.float64, device=env.device)
    for action in steps:
        env.step(action)
    late = env.engine.memory["late"].tolist()
    for i, delay in enumerate(late):
        action, queue = steps[2, i].tolist(), steps[:2, i].flatten().tolist()
        place, effort = controls.delayed(queue, action, min(max(delay, 0.0), 2.0))
        assert env.engine.ctrl[i].item() == pytest.approx((1.0 + effort) * place, abs=1e-12)
    assert min(late) < 0 and max(late) > 2 and any(0 < x < 1 for x in late)

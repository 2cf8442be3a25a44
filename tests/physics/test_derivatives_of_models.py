"""Simulation.linearize over many models: all tasks', dm_control's and random ones; in fast runs a few.

Derivatives are compared with centred differences of our own step, those of test_derivatives.py. Where they differ, the
differences have to differ among themselves: by the size of their step, or from one side to the other. So a state is
left out only where it is shown to be next to a kink, or too stiff for differences.
"""

from __future__ import annotations

from collections.abc import Iterator

import mujoco
import numpy as np
import oracle
import pytest
import random_mjcf
import test_derivatives as known
import torch

from torch_mjenvs.physics import UnsupportedModel
from torch_mjenvs.physics.simulation import Simulation

pytestmark = pytest.mark.cpu

TASKS = (
    "inverted_pendulum", "inverted_double_pendulum", "reacher", "swimmer", "hopper", "walker2d_v5", "half_cheetah",
    "ant", "humanoid", "humanoidstandup",
)  # fmt: skip
SUITE = ("cartpole-swingup", "acrobot-swingup", "cheetah-run", "hopper-hop", "walker-walk")
BOUND = 1e-6  # of a column's error, in units of its largest entry
HONEST = 10.0  # how many times further from the truth than from each other differences may be


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    mujoco.set_mju_user_warning(lambda _: None)
    yield
    mujoco.set_mju_user_warning(None)


def half_constrained(mjm: mujoco.MjModel, n: int) -> tuple[known.States, float]:
    """n states along rollouts, half of them with contacts, limits or friction, as far as there are any; the share."""
    many = known.near_contact(mjm, 4 * n)
    rows = []
    for state in zip(*many[:3], strict=True):
        rows.append(oracle.forward(mjm, *(x.numpy() for x in state)).nefc > 0)
    order = np.argsort(~np.array(rows), kind="stable")  # those with rows first
    among = int(min(sum(rows), max(n // 2, n - (4 * n - sum(rows)))))
    chosen = np.concatenate([order[:among], order[::-1][: n - among]])
    return [x[chosen] for x in many], among / n


def compare(mjm: mujoco.MjModel, sim: Simulation, states: known.States) -> tuple[float, float]:
    """The share of states that are as differences are, and of those that are so or where differences are not known."""
    known.put(sim, states)
    got = torch.cat(sim.linearize()[:2], dim=-1).numpy()
    assert np.isfinite(got).all()
    wants = np.stack(known.best_differences(mjm, sim, states))
    size = 1e-3 + np.abs(wants).max(2)  # (ways, states, columns)
    errors = (np.abs(got - wants).max(2) / size).min(0)
    left, right = (known.one_sided(mjm, sim, states, eps) for eps in (-known.STEPS[0], known.STEPS[0]))
    apart = np.abs(left - right).max(1) / size.min(0)
    among = [np.abs(one - two).max(1) / size.min(0) for k, one in enumerate(wants) for two in wants[:k]]
    unknown = np.maximum(apart, np.min(among, axis=0))
    right_ones = errors <= BOUND
    return float(right_ones.all(1).mean()), float((right_ones | (errors <= HONEST * unknown)).all(1).mean())


def check(mjm: mujoco.MjModel, n: int, constrained: float) -> None:
    states, share = half_constrained(mjm, n)
    assert share >= constrained
    as_differences, explained = compare(mjm, Simulation(mjm, n, dtype=torch.float64), states)
    assert as_differences >= 0.98 and explained == 1.0, (as_differences, explained)


@pytest.mark.slow
@pytest.mark.parametrize("name", TASKS)
def test_derivatives_of_256_states_of_each_task_are_those_of_differences_but_next_to_kinks(name):
    constrained = 0.0 if name in ("swimmer", "reacher", "inverted_pendulum", "inverted_double_pendulum") else 0.5
    check(oracle.sharpen(known.asset(name)), 256, constrained)


@pytest.mark.slow
@pytest.mark.parametrize("name", SUITE)
def test_derivatives_of_dm_controls_models_are_those_of_differences_but_next_to_kinks(name):
    dm_control_oracle = pytest.importorskip("dm_control_oracle")
    mjm = dm_control_oracle.environment(name).physics.model.ptr
    check(mjm, 256, 0.0 if name.startswith(("cartpole", "acrobot")) else 0.5)


def of_a_random_model(seed: int, n: int) -> tuple[float, float] | None:
    """As `compare`; None if derivatives of the model are refused by name."""
    case = random_mjcf.case(seed, n)
    mjm = oracle.sharpen(mujoco.MjModel.from_xml_string(case.xml))
    joined = [random_mjcf.join(mjm, world) for world in case.worlds]
    qpos, qvel, _, ctrl, act = (torch.tensor(np.stack(x)) for x in zip(*joined, strict=True))
    sim = Simulation(mjm, len(joined), dtype=torch.float64)
    try:
        return compare(mjm, sim, [qpos, qvel, ctrl, act])
    except UnsupportedModel as error:
        assert str(error).startswith("there are no derivatives of a model with ")
        return None


def check_random(seed: int, n: int) -> None:
    found = of_a_random_model(seed, n)
    if found is None:
        pytest.skip("refused by name")
    as_differences, explained = found
    assert as_differences >= 0.98 and explained == 1.0, found


@pytest.mark.usefixtures("quickly_compiled")
@pytest.mark.parametrize("seed", [0, 1])
def test_derivatives_of_a_random_model_are_those_of_differences_but_next_to_kinks(seed):
    check_random(seed, 32)


@pytest.mark.slow
@pytest.mark.usefixtures("quickly_compiled")
@pytest.mark.parametrize("seed", range(100))
def test_derivatives_of_a_hundred_random_models_are_those_of_differences_but_next_to_kinks(seed):
    check_random(seed, 256)

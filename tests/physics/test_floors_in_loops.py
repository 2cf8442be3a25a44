"""Contacts with the world in loops, beside MuJoCo. A GPU's programs have them from some alike ones on
(`control.unroll_limit`), a processor's if there are many. test_gymnasium_parity.py has Ant and Humanoid so. That a
GPU's code gives these bits, tests/compiler shows.
"""

from __future__ import annotations

from collections.abc import Callable

import mujoco
import numpy as np
import oracle
import pytest
import random_models
import test_derivatives as derivatives
import test_params as params
import test_transition as transition
import torch

from torch_mjenvs.compiler.control import unroll_limit, unrolling
from torch_mjenvs.compiler.llvm import NVIDIA
from torch_mjenvs.physics import load
from torch_mjenvs.physics.constraints.batch.pair_batch import adds_stiffness, batch_pairs
from torch_mjenvs.physics.model.precision import DOUBLE
from torch_mjenvs.physics.simulation import Simulation

if torch.get_default_device().type != "cpu":
    pytest.skip("a GPU has its own limit", allow_module_level=True)


def sizes(name: str) -> list[int]:
    """How many pairs each loop has."""
    return [len(pairs) for pairs in batch_pairs(load(oracle.asset(name)), DOUBLE)]


def test_which_robots_have_contacts_with_the_floor_in_loops():
    """Those with many alike. Loops over pairs of limbs are the same everywhere."""
    names = ("half_cheetah", "walker2d_v5", "hopper", "ant", "humanoid")
    assert unroll_limit() == np.inf
    assert [sizes(name) for name in names] == [[], [], [], [], [109]]
    with unrolling(NVIDIA.unroll_limit):
        assert [sizes(name) for name in names] == [[], [], [], [12], [12, 5, 109]]  # Ant's one ball is alone
    with unrolling(13):
        assert sizes("ant") == []
    assert unroll_limit() == np.inf


def limbs_above_a_floor(legs: int, limbs: int) -> str:
    """A body with some legs of capsules in a row, each with a hinge."""
    leg = "".join('<body pos="0.1 0 0"><joint axis="0 1 0"/><geom type="capsule" fromto="0 0 0 .1 0 0" size=".02"/>'
                  for _ in range(limbs)) + "</body>" * limbs  # fmt: skip
    bodies = "".join(f'<body pos="0 {0.1 * k} 0">{leg}</body>' for k in range(legs))
    return f"""<mujoco><default><geom contype="0" conaffinity="1"/></default><worldbody>
      <geom type="plane" size="1 1 1" contype="1"/>
      <body pos="0 0 .3"><freejoint/><geom size=".05"/>{bodies}</body></worldbody></mujoco>"""


@pytest.mark.parametrize(("legs", "limbs", "loops"), [(12, 3, [36]), (11, 3, []), (35, 1, [35])])
def test_many_contacts_with_the_floor_are_in_loops(legs, limbs, loops):
    """Capsules touch in two points: 71 contacts are many. The ball is alone."""
    m = load(limbs_above_a_floor(legs, limbs))
    batches = batch_pairs(m, DOUBLE)
    assert [len(pairs) for pairs in batches] == loops
    assert all(adds_stiffness(m, pairs) for pairs in batches)  # seven dofs at least
    with unrolling(12):  # as on a GPU
        assert not any(adds_stiffness(m, pairs) for pairs in batch_pairs(m, DOUBLE))


@pytest.fixture(params=["rows", "stiffness"])
def all_in_loops(request, quickly_compiled, monkeypatch):
    """Each contact with the world that can be in a loop is, alone or with others."""
    where = "torch_mjenvs.physics.constraints.batch.pair_batch"
    monkeypatch.setattr(f"{where}.FEWEST_OF_WORLD", 1)
    monkeypatch.setattr(f"{where}.MOST_WRITTEN", 0)
    monkeypatch.setattr(f"{where}.MOST_IN_ROWS", 0 if request.param == "stiffness" else 1000)


FLOORS = (0, 6, 28, 88, 110, 112, 199)  # up to 8 such pairs, every integrator, both cones, a wide gap
MANY = [pytest.param(seed, marks=pytest.mark.slow) for seed in range(200) if seed not in FLOORS]


@pytest.mark.parametrize("seed", [*FLOORS, *MANY])
def test_a_random_model_moves_as_in_mujoco(seed, all_in_loops, quiet):
    wrong = random_models.check(seed)
    assert not wrong, wrong


def floor_loops(sim: Simulation) -> int:
    """How many pairs with what does not move are in loops."""
    m = sim.model
    found = [p for pairs in batch_pairs(m, DOUBLE) for p in pairs]
    return sum(0 in (m.body_weldid[m.geom_bodyid[g]] for g in (p.geom1, p.geom2)) for p in found)


LIMBS = derivatives.ALIKE.format(cone="elliptic", integrator="Euler", limbs=derivatives.LIMBS)


def check_transition(mjm: mujoco.MjModel, sim: Simulation, states: derivatives.States) -> None:
    transition.check(sim, states)


@pytest.mark.parametrize("compare", [derivatives.check, check_transition])
def test_derivatives_are_those_of_differences(compare: Callable, all_in_loops):
    mjm, sim, states = derivatives.of(mujoco.MjModel.from_xml_string(LIMBS), 32)
    assert floor_loops(sim) == 6
    compare(mjm, sim, states)


@pytest.mark.parametrize("name", ["heap", pytest.param("ant", marks=pytest.mark.slow)])
def test_worlds_with_masses_of_their_own(name, all_in_loops):
    assert params.beside_mujoco(name, 4, varied=("body_mass", "body_inertia"))

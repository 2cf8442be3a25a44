"""Gradients of `Simulation.transition` over many models: all tasks', dm_control's and random ones; in fast runs a few.

They are those of `linearize`, which test_derivatives_of_models.py compares with differences; in float32 they are those
of float64.
"""

from __future__ import annotations

import mujoco
import numpy as np
import oracle
import pytest
import random_mjcf
import random_models
import test_derivatives as known
import test_derivatives_of_models as of_models
import test_transition
import torch

from torch_mjenvs.physics import UnsupportedModel
from torch_mjenvs.physics.model.precision import PRECISIONS
from torch_mjenvs.physics.model.precision import SINGLE as SINGLE_PRECISION
from torch_mjenvs.physics.simulation import Simulation

pytestmark = [pytest.mark.cpu, pytest.mark.usefixtures("quickly_compiled", "quiet")]

SINGLE = 1e-3  # how far float32's may be from float64's, in units of a gradient's largest entry and 1
EPSILON = 2.0**-23  # float32's, by which solving is off, times the condition number
UPRIGHT = 1e-3  # radians that a capsule leans, below which float32 does not know to which side, to 1e-3 of a gradient
MOVES = [1e-6, 1e-5] * 8  # by which states are moved to find kinks near them


def gradients(sim: Simulation, states: known.States) -> torch.Tensor:
    """Gradients of a random sum of what a step gives, a row for each state."""
    m = sim.model
    weights = torch.randn(len(states[0]), m.nq + m.nv + m.na, generator=torch.Generator().manual_seed(0))
    given = [x.to(sim.dtype, copy=True).requires_grad_() for x in states[: 3 + bool(m.na)]]
    after = torch.cat(sim.transition(*given), dim=1)
    found = torch.cat(torch.autograd.grad((after * weights).sum(), given, materialize_grads=True), dim=1)
    assert found.isfinite().all()
    return found.double()


def single(mjm: mujoco.MjModel, states: known.States) -> tuple[torch.Tensor, torch.Tensor]:
    """By state, how far float32's gradients are from float64's, and how far they may be, in units of 1 and of the
    largest entry.

    They may be SINGLE off, and more next to a kink, where float64's own change as much when a state is moved by little.
    """
    exact, rounded = (Simulation(mjm, len(states[0]), dtype=dtype) for dtype in (torch.float64, torch.float32))
    want, change = gradients(exact, states), torch.zeros(len(states[0]), dtype=torch.float64)
    size, rng = 1.0 + want.abs().amax(1), torch.Generator().manual_seed(1)
    for by in MOVES:
        moved = [x + by * torch.randn(x.shape, generator=rng, dtype=x.dtype) for x in states]
        change = torch.maximum(change, (gradients(exact, moved) - want).abs().amax(1) / size)
    return (gradients(rounded, states) - want).abs().amax(1) / size, (of_models.HONEST * change).clamp(min=SINGLE)


def check(mjm: mujoco.MjModel) -> None:
    states, _ = of_models.half_constrained(mjm, 256)
    test_transition.check(Simulation(mjm, 256, dtype=torch.float64), states)
    errors, allowed = single(mjm, states)
    assert (errors < SINGLE).double().mean() >= 0.98 and (errors < allowed).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", of_models.TASKS)
def test_gradients_of_256_states_of_each_task_are_linearizes_and_in_float32_those_of_float64(name):
    check(known.asset(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", of_models.SUITE)
def test_gradients_of_dm_controls_models_are_linearizes_and_in_float32_those_of_float64(name):
    dm_control_oracle = pytest.importorskip("dm_control_oracle")
    check(dm_control_oracle.environment(name).physics.model.ptr)


def of_a_random_model(seed: int, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare in float64, and then in both types with float32's limits, by which stiff contacts are softened."""
    case = random_mjcf.case(seed, n)
    mjm = mujoco.MjModel.from_xml_string(case.xml)
    if not mjm.nv:
        pytest.skip("nothing moves")
    states = of_models.sound_states(mjm, case)
    try:
        errors = test_transition.errors(Simulation(mjm, len(states[0]), dtype=torch.float64), states)
        monkeypatch.setitem(PRECISIONS, "float64", SINGLE_PRECISION)
        in_single, allowed = single(mjm, states)
    except UnsupportedModel as error:
        assert str(error).startswith(tuple(f"there are no derivatives of {x}" for x in ("a model", "this model")))
        pytest.skip(str(error))
    assert errors.max() < 1e-8
    left = torch.nonzero(in_single >= allowed).flatten().tolist()
    at = {k: at_state(mjm, [x[k].numpy() for x in states]) for k in left}
    left = [k for k in left if in_single[k] >= EPSILON * condition(mjm, at[k]) and not stands_upright(mjm, at[k])]
    assert len(left) <= 0.02 * len(in_single), f"{len(left)} of {len(in_single)} states"


def at_state(mjm: mujoco.MjModel, state: list[np.ndarray]) -> mujoco.MjData:
    """What MuJoCo finds at a state, with a dense Jacobian."""
    mjm.opt.jacobian = mujoco.mjtJacobian.mjJAC_DENSE
    d = mujoco.MjData(mjm)
    d.qpos[:], d.qvel[:], d.ctrl[:], d.act[:] = state
    mujoco.mj_forward(mjm, d)
    return d


def stands_upright(mjm: mujoco.MjModel, d: mujoco.MjData) -> bool:
    """True if a capsule stands on a plane, upright: its contact's first tangent turns by 1 for a tilt by as little."""
    for contact in d.contact:
        plane, other = contact.geom
        if (mjm.geom_type[plane], mjm.geom_type[other]) == (mujoco.mjtGeom.mjGEOM_PLANE, mujoco.mjtGeom.mjGEOM_CAPSULE):
            axis = d.geom_xmat[other].reshape(3, 3)[:, 2]
            if np.linalg.norm(np.cross(axis, contact.frame[:3])) < UPRIGHT:
                return True
    return False


def condition(mjm: mujoco.MjModel, d: mujoco.MjData) -> float:
    """The condition number of what a step solves with: M and the constraints that act."""
    acts = d.efc_state != mujoco.mjtConstraintState.mjCNSTRSTATE_SATISFIED
    J = random_models.jacobian(mjm, d)[acts]
    return float(np.linalg.cond(oracle.field(mjm, d, "M") + J.T @ (d.efc_D[acts, None] * J)))


@pytest.mark.parametrize("seed", [10, 27])
def test_gradients_of_a_random_model_are_linearizes_and_in_float32_those_of_float64(seed, monkeypatch):
    of_a_random_model(seed, 32, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(160))  # of which some 60 are refused, or have nothing that moves
def test_gradients_of_a_hundred_random_models_are_linearizes_and_in_float32_those_of_float64(seed, monkeypatch):
    of_a_random_model(seed, 256, monkeypatch)

"""Simulation.transition: its gradients against the matrices of `linearize`, and against differences by gradcheck."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Sequence

import mujoco
import pytest
import test_derivatives as known
import test_derivatives_of_models as known_of_models
import torch

from torch_mjenvs.physics import UnsupportedModel
from torch_mjenvs.physics.algebra.spatial import quat_directions
from torch_mjenvs.physics.dynamics.integrator import coordinates
from torch_mjenvs.physics.simulation import Simulation


def of_rotations(sim: Simulation, qpos: torch.Tensor) -> torch.Tensor:
    """How fast positions (n, nq) change with the velocities that `linearize` knows them by: (n, nq, nv)."""
    lines, quats = coordinates(sim.model)
    found = torch.zeros(len(qpos), sim.model.nq, sim.model.nv, dtype=qpos.dtype)
    for q, v in lines:
        found[:, q, v] = 1.0
    for q, v in quats:
        for axis, rate in enumerate(quat_directions(list(qpos[:, q : q + 4].T))):
            found[:, q : q + 4, v + axis] = 0.5 * torch.stack(list(rate), dim=-1)
    return found


def check(sim: Simulation, states: Sequence[torch.Tensor], params: Sequence[str] = ()) -> None:
    """Compare a step and its gradients with `step` and `linearize`."""
    assert errors(sim, states, params).max() < 1e-9
    after = sim.transition(*states[: 3 + bool(sim.model.na)])
    sim.step()
    torch.testing.assert_close(after.qpos, sim.qpos, rtol=0, atol=1e-12)
    torch.testing.assert_close(after.qvel, sim.qvel, rtol=1e-12, atol=1e-12)


def errors(sim: Simulation, states: Sequence[torch.Tensor], params: Sequence[str] = ()) -> torch.Tensor:
    """By state, how far gradients of a random sum of what a step gives are from that sum of `linearize`'s rows, in
    units of 1 and of the largest of them.
    """
    m, n = sim.model, len(states[0])
    known.put(sim, list(states))
    wanted = torch.cat(sim.linearize(params=params)[:3], dim=-1)
    given = [x.clone().requires_grad_() for x in states[: 3 + bool(m.na)]]
    own = {name: x.clone().requires_grad_() for name, x in sim.params.items() if name in params}
    after = sim.transition(*given, params=own)
    weights = torch.randn(n, 2 * m.nv + m.na, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    of_pos, of_vel, of_act = weights.split([m.nv, m.nv, m.na], dim=1)
    scale = torch.ones(m.nv, dtype=torch.float64)
    for _, v in coordinates(m)[1]:  # dq = R th has th = 4 R' dq
        scale[v : v + 3] = 4.0
    bars = torch.einsum("nqv,v,nv->nq", of_rotations(sim, after.qpos.detach()), scale, of_pos)
    parts = 2 + bool(m.na)
    found = torch.autograd.grad(
        list(after[:parts]), [*given, *own.values()], [bars, of_vel, of_act][:parts], materialize_grads=True
    )  # without actuators there are none by ctrl
    by_pos = torch.einsum("nq,nqv->nv", found[0], of_rotations(sim, states[0]))
    order = [by_pos, found[1], *found[3 : len(given)], found[2], *(x.flatten(1) for x in found[len(given) :])]
    want = torch.einsum("ni,nij->nj", weights, wanted)
    got = torch.cat(order, dim=1)
    assert got.isfinite().all()
    return (got - want).abs().amax(1) / (1.0 + want.abs().amax(1))


@pytest.mark.cpu
@pytest.mark.parametrize("integrator", [known.EULER, known.IMPLICITFAST, known.IMPLICIT])
def test_gradients_of_the_half_cheetah_are_linearizes(integrator):
    _, sim, states = known.of(known.asset("half_cheetah"), 64, integrator=integrator)
    check(sim, states)


@pytest.mark.cpu
def test_gradients_of_a_runge_kutta_step_are_linearizes():
    _, sim, states = known.of(known.asset("hopper"), 64)
    check(sim, states)


@pytest.mark.cpu
@pytest.mark.parametrize(("cone", "integrator"), [("pyramidal", "Euler"), ("elliptic", "RK4")])
def test_gradients_by_parameters_go_through_what_is_derived_from_them(cone, integrator):
    _, sim, states = known.leg(32, cone, integrator)
    check(sim, states, known.VARIED)


@pytest.mark.cpu
def test_gradients_of_many_pairs_that_share_a_loop_are_linearizes(quickly_compiled):
    xml = known.ALIKE.format(cone="pyramidal", integrator="Euler", limbs=known.LIMBS)
    _, sim, states = known.of(mujoco.MjModel.from_xml_string(xml), 32)
    check(sim, states)


@pytest.mark.cpu
def test_gradients_of_quaternions_activations_friction_loss_and_two_bodies_that_touch_are_linearizes(quickly_compiled):
    xml = known.FREE.format(cone="elliptic", integrator="Euler")
    _, sim, states = known.of(mujoco.MjModel.from_xml_string(xml), 48)
    check(sim, states)


@pytest.mark.cpu
@pytest.mark.parametrize("belt", ["", 'surfacevel="0.1 0 0 0 0 0"'])
def test_gradients_of_a_box_on_a_box_of_the_world_are_linearizes(belt, quickly_compiled):
    """Its up to eight contacts share a loop; on a belt, one to which they add what they carry."""
    xml = known.ON_FLOOR.format(geom='type="box" size="0.1 0.08 0.06"', floor="box", floor_z=-1.0)
    xml = xml.replace("<freejoint/>", '<freejoint name="free"/>').replace('pos="0 0 -1.0"', f'pos="0 0 -1.0" {belt}')
    push = '<actuator><motor joint="free" gear="0 0 1 0 0 1"/></actuator></mujoco>'
    _, sim, states = known.of(mujoco.MjModel.from_xml_string(xml.replace("</mujoco>", push)), 32)
    for qpos, turn in zip(states[0].numpy(), torch.randn(32, 3, dtype=torch.float64).numpy() * 0.03, strict=True):
        mujoco.mju_quatIntegrate(qpos[3:], turn, 1.0)
    check(sim, states)


@pytest.mark.cpu
@pytest.mark.slow
@pytest.mark.parametrize(("name", "integrator"), [("ant", known.EULER), ("humanoid", known.RK4)])
def test_gradients_of_large_robots_are_linearizes(name, integrator, quickly_compiled):
    _, sim, states = known.of(known.asset(name), 64, integrator=integrator)
    check(sim, states)


def test_gradcheck_holds():
    _, sim, states = known.of(known.asset("half_cheetah"), 2)
    given = [x.clone().requires_grad_() for x in states[:3]]
    assert torch.autograd.gradcheck(lambda *x: sim.transition(*x)[:2], given, atol=1e-4, rtol=1e-4)


def test_torch_func_goes_through_steps_and_maps_over_worlds():
    _, sim, (qpos, qvel, ctrl, _) = known.of(known.asset("half_cheetah"), 4)

    def speed(ctrl: torch.Tensor, qpos: torch.Tensor, qvel: torch.Tensor) -> torch.Tensor:
        return sim.transition(qpos, qvel, ctrl, nstep=2).qvel.square().sum()

    leaf = ctrl.clone().requires_grad_()
    (want,) = torch.autograd.grad(speed(leaf, qpos, qvel), leaf)
    torch.testing.assert_close(torch.func.grad(speed)(ctrl, qpos, qvel), want)
    torch.testing.assert_close(torch.func.vmap(torch.func.grad(speed))(ctrl, qpos, qvel), want)
    rows = torch.func.jacrev(lambda u: sim.transition(qpos[0], qvel[0], u).qvel)(ctrl[0])
    torch.testing.assert_close(rows, sim.linearize(qpos[0], qvel[0], ctrl[0]).B[9:])


def test_torch_func_jvp_is_linearizes_matrices_times_a_direction():
    _, sim, (qpos, qvel, ctrl, _) = known.of(known.asset("half_cheetah"), 4)
    given, dots = (qpos, qvel, ctrl), [torch.randn_like(x) for x in (qpos, qvel, ctrl)]
    A, B, *_ = sim.linearize(*given)
    want = torch.einsum("nij,nj->ni", torch.cat([A, B], dim=-1), torch.cat(dots, dim=-1))
    after, found = torch.func.jvp(lambda *x: torch.cat(sim.transition(*x)[:2], dim=-1), given, tuple(dots))
    torch.testing.assert_close(after, torch.cat(sim.transition(*given)[:2], dim=-1))
    torch.testing.assert_close(found, want, rtol=1e-9, atol=1e-9)
    columns = torch.func.jacfwd(lambda u: sim.transition(qpos[0], qvel[0], u).qvel)(ctrl[0])
    torch.testing.assert_close(columns, B[0, 9:], rtol=1e-9, atol=1e-9)


def test_clip_adjoint_bounds_what_goes_back_from_a_step_and_leaves_shorter_adjoints_as_they_are():
    _, sim, states = known.of(known.asset("half_cheetah"), 4)

    def found(bound: float | None, nstep: int = 1) -> torch.Tensor:
        given = [x.clone().requires_grad_() for x in states[:3]]
        after = sim.transition(*given, nstep=nstep, clip_adjoint=bound)
        total = (after.qvel * torch.tensor([[1.0], [2.0], [3.0], [4.0]])).sum()
        return torch.cat(torch.autograd.grad(total, given), dim=1)

    exact = found(None)
    assert torch.equal(found(1e9), exact)
    lengths = 3.0 * torch.arange(1.0, 5.0, dtype=torch.float64)  # of what comes from the loss, by world
    want = exact * (7.0 / lengths).clamp(max=1.0)[:, None]
    torch.testing.assert_close(found(7.0), want, rtol=1e-9, atol=1e-9)
    A, *_ = sim.linearize(*states[:3])
    twice = found(1e-3, nstep=2)  # a step's adjoint is bounded, and then the one of the step before
    assert (twice[:, :18].norm(dim=1) <= 1e-3 * torch.linalg.matrix_norm(A, 2) * (1 + 1e-9)).all()
    with pytest.raises(ValueError, match="clip_adjoint must be a positive number"):
        found(0.0)


def test_several_steps_are_those_of_step_and_nothing_is_changed():
    _, sim, states = known.of(known.asset("half_cheetah"), 4)
    before = [x.clone() for x in (sim.qpos, sim.qvel, sim.ctrl, sim.qacc_warmstart)]
    given = [x.clone().requires_grad_() for x in states[:3]]
    after = sim.transition(*given, nstep=3)
    of_own = sim.transition(sim.qpos, sim.qvel, given[2], nstep=3)
    assert all(map(torch.equal, before, (sim.qpos, sim.qvel, sim.ctrl, sim.qacc_warmstart)))
    (found,) = torch.autograd.grad(after.qvel.sum(), given[2])
    torch.testing.assert_close(found, sim.linearize(nstep=3).B[:, 9:].sum(1), rtol=1e-8, atol=1e-8)
    assert sim.transition(ctrl=torch.zeros(5, 1, 6, dtype=torch.float64)).qpos.shape == (5, 4, 9)
    sim.step(3)
    torch.testing.assert_close(after.qpos, sim.qpos, rtol=1e-12, atol=1e-12)
    (again,) = torch.autograd.grad(of_own.qvel.sum(), given[2])  # after the worlds' own state has changed
    assert torch.equal(again, found)
    with pytest.raises(ValueError, match=r"ctrl must be of shape \(\.\.\., 6\)"):
        sim.transition(ctrl=torch.zeros(4, 5))
    with pytest.raises(ValueError, match="'body_mass' does not vary"):
        sim.transition(params={"body_mass": torch.ones(8)})


def test_a_given_state_gives_the_same_bits_whatever_the_worlds_have_done():
    """Where the solver starts is hidden state of the worlds, and not that of another state."""
    _, sim, states = known.of(known.asset("half_cheetah"), 32)
    known.put(sim, list(states))
    sim.step(5)
    given = [x.clone() for x in (sim.qpos, sim.qvel, sim.ctrl)]
    own, after, A = sim.transition(), sim.transition(*given), sim.linearize(*given).A
    alone = sim.transition(*(x[:1] for x in given))
    sim.step(20)
    sim.qacc_warmstart.mul_(-100.0)
    assert all(map(torch.equal, sim.transition(*given), after)) and torch.equal(sim.linearize(*given).A, A)
    assert torch.equal(alone.qvel, after.qvel[:1])
    for x, start in zip((sim.qpos, sim.qvel, sim.qacc_warmstart), (*given[:2], 0.0), strict=True):
        x.copy_(torch.as_tensor(start))
    assert torch.equal(sim.transition().qvel, after.qvel)
    torch.testing.assert_close(own.qvel, after.qvel, rtol=1e-11, atol=1e-11)


def test_gradients_in_float32_are_those_of_float64_and_at_rest_and_just_touching_they_are_numbers():
    mjm, sim, states = known.of(known.asset("half_cheetah"), 64)
    weights = torch.randn(64, 9, generator=torch.Generator().manual_seed(0), device="cpu").to(sim.device)
    found = []
    for x in (sim, Simulation(mjm, 64, dtype=torch.float32)):
        given = [s.to(x.dtype).requires_grad_() for s in states[:3]]
        total = (x.transition(*given).qvel * weights).sum()
        found.append(torch.cat(torch.autograd.grad(total, given), dim=1).double())
    errors = (found[1] - found[0]).abs().amax(1) / (1.0 + found[0].abs().amax(1))
    assert errors.max() < 1e-3
    sim.reset()
    sim.qpos[:, 1] += torch.linspace(-0.2, 0.2, 64).to(sim.qpos)
    for _ in range(2):
        given = [y.clone().requires_grad_() for y in (sim.qpos, sim.qvel)]
        assert all(y.isfinite().all() for y in torch.autograd.grad(sim.transition(*given).qvel.sum(), given))
        sim.step(500)


@pytest.mark.cpu
@pytest.mark.slow
@pytest.mark.parametrize("body", [known_of_models.MANY, known_of_models.CHAIN], ids=["435 pairs", "40 links"])
def test_gradients_of_very_many_pairs_and_of_long_chains_are_those_of_differences(body):
    """Where a step has slots or tiles, its way back does without."""
    xml = f"<mujoco><worldbody>{body}</worldbody></mujoco>"
    mjm, sim, states = known.of(mujoco.MjModel.from_xml_string(xml), 8)
    weights, *ways = torch.randn(3, 8, mjm.nv, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def total(qpos: torch.Tensor, qvel: torch.Tensor) -> torch.Tensor:
        return (sim.transition(qpos, qvel).qvel * weights).sum(1)

    given = [x.clone().requires_grad_() for x in states[:2]]
    found = torch.autograd.grad(total(*given).sum(), given)
    for k, (gradient, way) in enumerate(zip(found, ways, strict=True)):
        ends = [total(*(x + (h * way if j == k else 0.0) for j, x in enumerate(states[:2]))) for h in (1e-5, -1e-5)]
        want = (gradient * way).sum(1)
        assert (((ends[0] - ends[1]) / 2e-5 - want).abs() < 1e-5 * (1.0 + want.abs())).all()


def test_what_has_no_gradients_is_refused_by_name_in_backward(quickly_compiled):
    xml = known_of_models.TWO.format(*['type="cylinder" size="0.1 0.2"'] * 2)
    sim = Simulation(mujoco.MjModel.from_xml_string(f"<mujoco>{xml}</mujoco>"), 1)
    qvel = sim.qvel.clone().requires_grad_()
    with pytest.raises(UnsupportedModel, match="contacts of cylinders with cylinders"):
        sim.transition(qvel=qvel).qvel.sum().backward()
    once = Simulation(known.asset("hopper"), 1)
    qvel = once.qvel.clone().requires_grad_()
    (found,) = torch.autograd.grad(once.transition(qvel=qvel).qvel.sum(), qvel, create_graph=True)
    with pytest.raises(RuntimeError, match="have no gradients themselves"):
        found.sum().backward()


def test_gradients_by_parameters_through_a_runge_kutta_step_are_linearizes():
    names = ("body_mass", "body_inertia", "dof_damping", "geom_friction")  # what follows from some, too
    sim = Simulation(known.asset("hopper"), 16, dtype=torch.float64, vary=names)
    rng = torch.Generator().manual_seed(0)
    qvel = torch.randn(16, 6, generator=rng, dtype=torch.float64, device="cpu")
    sim.qvel.add_(0.3 * qvel.to(sim.device))
    sim.step(100)  # onto the ground
    weights = torch.randn(16, 12, generator=rng, dtype=torch.float64, device="cpu").to(sim.device)
    params = {name: x.clone().requires_grad_() for name, x in sim.params.items()}
    after = sim.transition(params=params)
    found = torch.autograd.grad((torch.cat(after[:2], 1) * weights).sum(), [params[name] for name in names])
    want = torch.einsum("ni,nij->nj", weights, sim.linearize(params=names).P)
    assert want.abs().max() > 0.01
    torch.testing.assert_close(torch.cat([x.flatten(1) for x in found], 1), want, rtol=1e-9, atol=1e-12)


ONE = """<mujoco><option timestep="0.02"/><worldbody><body pos="0 0 1"><joint name="j" axis="0 1 0" damping="0.1"/>
<geom type="capsule" fromto="0 0 0 0 0 -1" size="0.05"/></body></worldbody>
<actuator><motor joint="j" ctrllimited="true" ctrlrange="-1 1"/></actuator></mujoco>"""


def test_worlds_that_move_on_do_not_change_a_gradient():
    """Also where their own tensors are given, of one column, which is contiguous as it is."""
    found = []
    for given in (False, True):
        sim = Simulation(ONE, 3, dtype=torch.float64, vary=("body_mass",))
        sim.qpos[:], sim.qvel[:], sim.ctrl[:] = 1.0, 0.5, 0.3
        mass = sim.params["body_mass"].clone().requires_grad_()
        after = sim.transition(*((sim.qpos, sim.qvel, sim.ctrl) if given else ()), params={"body_mass": mass})
        sim.step(50)
        after.qvel.sum().backward()
        found.append(mass.grad)
    assert torch.equal(*found) and found[0].abs().max() > 1e-3


def test_a_step_cuts_off_what_was_written_with_a_gradient():
    """Or each step would keep the graphs of all before, until memory is full."""
    sim, weight = Simulation(ONE, 3), torch.ones(1, requires_grad=True)
    for _ in range(3):
        sim.ctrl[:] = sim.qpos * weight
        assert sim.ctrl.requires_grad
        sim.step()
        assert not sim.ctrl.requires_grad and not sim.qpos.requires_grad
    copy.deepcopy(sim)


def test_a_control_that_is_nan_is_not_the_end_of_its_range():
    sim = Simulation(ONE, 2, outputs=("actuator_force",))
    sim.ctrl[0], sim.ctrl[1] = float("nan"), 7.0
    sim.step()
    assert sim.qpos[0].isnan().all() and sim.actuator_force[1] == 1.0


def test_parameters_are_read_as_numbers_of_the_simulations_type():
    sim = Simulation(ONE, 2, dtype=torch.float64, vary=("gravity",))
    a = sim.transition(params={"gravity": [0.0, 0.0, -9.81]}).qvel
    b = sim.transition(params={"gravity": torch.tensor([0.0, 0.0, -9.81], dtype=torch.float64, device=sim.device)}).qvel
    assert torch.equal(a, b)
    with pytest.raises(TypeError, match="gravity must be of real numbers"):
        sim.transition(params={"gravity": torch.ones(3, dtype=torch.bool, device=sim.device)})


def test_gradients_that_need_what_a_step_has_overwritten_are_refused():
    """By torch, as after any other write in place."""
    sim, weight = Simulation(ONE, 3, outputs=("xpos",)), torch.ones(1, requires_grad=True)
    losses = [(x * weight).sum() for x in (sim.qpos, sim.qvel, sim.xpos)] + [(sim.qpos.clone() * weight).sum()]
    sim.step()
    for loss in losses[:3]:
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()
    losses[3].backward()


class Arm(Simulation):
    """A user's subclass, with a constructor and an attribute of its own."""

    def __init__(self, worlds: int):
        super().__init__(ONE, worlds)
        self.target = torch.ones(worlds)


@pytest.mark.parametrize("again", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["copy", "pickle"])
def test_copies_of_a_subclass_are_of_it_and_have_its_attributes(again):
    sim = Arm(3)
    sim.qpos[1] = 0.5
    other = again(sim)
    assert type(other) is Arm and torch.equal(other.target, torch.ones(3)) and other.target is not sim.target
    assert torch.equal(other.qpos, sim.qpos)
    other.step()
    assert not torch.equal(other.qpos, sim.qpos)

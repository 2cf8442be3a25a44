"""Engine.transition: its gradients against centred differences of itself, and where they stop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import pytest
import torch

import torch_mjenvs as tasks
from torch_mjenvs.envs.engine import Engine
from torch_mjenvs.envs.tasks.base import Control, Outcome, Task, uniform_noise
from torch_mjenvs.physics import UnsupportedModel

pytestmark = pytest.mark.cpu

N = 32
STEPS = (1e-7, 1e-6, 1e-5, 1e-4)  # of differences: a wrong gradient would be wrong at all of them
GIVEN = ("qpos", "qvel", "memory", "history", "episode_sums", "params", "action")
RESULTS = ("qpos", "qvel", "memory", "history", "episode_sums", "ctrl", "obs", "reward", "info")

Tensors = dict[str, torch.Tensor]


class Leashed(tasks.InvertedPendulum):
    """A pendulum with everything that a task may have: control, kicks, memory, noise, history, terms, parameters."""

    noise: ClassVar = {"position": 0.01}
    history: ClassVar = {"speed": 2}

    def memory(self, m):
        return {"last": 0.0}

    def control(self, m, world, action):
        return Control([0.7 * action[0] + 0.3 * world.memory["last"]], qvel=[world.rng.normal() * world.qpos[1], 0.0])

    def remember(self, m, before, action, after):
        return {"last": action[0] * after.qpos[0]}

    def observe(self, m, world):
        return {"position": world.qpos, "speed": world.qvel, "tip": world.data.xpos[-1]}

    def outcome(self, m, before, action, after):
        terms = {"near": -after.qpos[0] * after.qpos[0], "calm": action[0] * before.qvel[1] + after.data.qacc[0]}
        return Outcome(terms, after.qpos[1] > 0.2, {"tip": after.data.xpos[-1]})


def of(task: Task, steps: int = 25, **more: Any) -> tuple[Engine, Tensors, torch.Tensor]:
    """An engine of N worlds, their state after some steps, and actions."""
    torch.manual_seed(0)
    engine = Engine(task, N, dtype=torch.float64, **more)
    engine.reset()
    for _ in range(steps):
        engine.action.uniform_(-0.9, 0.9)
        engine.step()
    return engine, engine.state_dict(), torch.rand_like(engine.action) * 1.8 - 0.9


def sums(engine: Engine, given: Mapping[str, torch.Tensor], names: tuple[str, ...]) -> torch.Tensor:
    """A random sum, the same at every call, of what a step gives in each world."""
    if "params" in given:  # from which what mj_setConst derives follows
        engine.view("params").copy_(given["params"].detach())
        engine.set_const()
        given = {**given, "derived": engine.view("derived").clone()}
    after, total = engine.transition(given, given["action"]), torch.zeros(N, dtype=torch.float64)
    generator = torch.Generator().manual_seed(1)
    for name in names:
        if name in after and after[name].numel():
            x = after[name].reshape(N, -1)
            weights = torch.randn(x.shape[1], dtype=torch.float64, generator=generator)
            total = total + (x * weights).sum(1)
    return total


def errors(engine: Engine, state: Tensors, action: torch.Tensor, names: tuple[str, ...] = RESULTS) -> torch.Tensor:
    """The relative errors, by world, of the derivative of a random sum along a random direction."""
    state = state | {"action": action}
    given = {name: state[name].clone().requires_grad_() for name in GIVEN if name in state and state[name].numel()}
    bars = torch.autograd.grad(sums(engine, state | given, names).sum(), list(given.values()), allow_unused=True)
    ways = {name: torch.randn_like(x) for name, x in given.items()}
    if "params" in ways:  # what is 0 stays 0: it might not be less
        ways["params"] = ways["params"] * given["params"].detach()
    found = sum((bar * way).sum(1) for bar, way in zip(bars, ways.values(), strict=True) if bar is not None)

    def difference(h: float) -> torch.Tensor:
        two, one = (sums(engine, state | {k: state[k] + s * h * x for k, x in ways.items()}, names) for s in (1, -1))
        return (two - one) / (2 * h)

    assert isinstance(found, torch.Tensor) and found.isfinite().all()
    scale = sum((bar * way).abs().sum(1) for bar, way in zip(bars, ways.values(), strict=True) if bar is not None)
    return torch.stack([(found - difference(h)).abs() / (1.0 + scale) for h in STEPS]).amin(0)


@pytest.mark.parametrize(
    "name",
    [
        "InvertedPendulum", "Reacher", "HalfCheetah", pytest.param("Hopper", marks=pytest.mark.slow),
        pytest.param("Walker2d", marks=pytest.mark.slow), pytest.param("Swimmer", marks=pytest.mark.slow),
        pytest.param("InvertedDoublePendulum", marks=pytest.mark.slow), pytest.param("Ant", marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_gradients_of_tasks_are_those_of_differences(name):
    found = errors(*of(getattr(tasks, name)()))
    assert (found < 1e-6).double().mean() >= 0.95


def test_gradients_go_through_all_that_a_task_does_around_the_physics():
    engine, state, action = of(Leashed(), vary=("body_mass", "dof_damping"), autoreset_mode="Disabled")
    assert (errors(engine, state, action) < 1e-6).all()
    for name in RESULTS:
        if name in state:
            assert (errors(engine, state, action, (name,)) < 1e-6).all(), name


@pytest.fixture(scope="module")
def ending() -> Callable[[str], tuple[Engine, Tensors, torch.Tensor]]:
    """Pendulums, some of which the next step ends."""

    def made(mode: str) -> tuple[Engine, Tensors, torch.Tensor]:
        engine, state, action = of(tasks.InvertedPendulum(), 0, autoreset_mode=mode)
        state["qpos"][:, 1] = torch.linspace(0.0, 0.3, N)
        return engine, state, action

    return made


def by_action(engine: Engine, state: Tensors, action: torch.Tensor, name: str) -> torch.Tensor:
    action = action.clone().requires_grad_()
    (found,) = torch.autograd.grad(engine.transition(state, action)[name].sum(), action)
    return found[:, 0]


def test_no_gradient_crosses_a_reset_and_final_obs_has_that_of_the_step(ending):
    engine, state, action = ending("SameStep")
    ended = engine.transition(state, action)["terminated"]
    assert 0 < ended.sum() < N
    for name in ("qpos", "qvel", "obs"):
        assert torch.equal(by_action(engine, state, action, name) == 0, ended)
    assert (by_action(engine, state, action, "final_obs") != 0).all()
    plain, _, _ = ending("Disabled")
    want = by_action(plain, {name: state[name] for name in plain.state_dict()}, action, "obs")
    torch.testing.assert_close(by_action(engine, state, action, "final_obs"), want)


def test_worlds_that_wait_for_a_reset_and_bad_ones_have_no_gradient_and_others_are_as_without_them(ending):
    engine, state, action = ending("NextStep")
    want = by_action(engine, state, action, "obs")
    waiting, bad = torch.arange(N) % 4 == 0, torch.arange(N) % 4 == 1
    state["done"] = waiting
    state["qvel"] = state["qvel"].masked_fill(bad[:, None], torch.nan)
    action[2::8] = torch.nan
    lost = waiting | bad | action[:, 0].isnan()
    found = by_action(engine, state, action, "obs")
    assert torch.equal(found, want.masked_fill(lost, 0.0))


def test_torch_func_and_vmap_go_through_and_clip_adjoint_bounds(ending):
    engine, state, action = ending("Disabled")
    want = by_action(engine, state, action, "qvel")
    one = torch.func.grad(lambda u, s: engine.transition(s, u)["qvel"].sum())
    torch.testing.assert_close(torch.func.vmap(one)(action, state)[:, 0], want)
    x = action.clone().requires_grad_()
    (found,) = torch.autograd.grad(engine.transition(state, x, clip_adjoint=0.5)["qvel"].sum(), x)
    torch.testing.assert_close(found[:, 0], want * 0.5 / 2**0.5)  # whose adjoint is (1, 1)
    with pytest.raises(NotImplementedError, match="no tangents"):
        torch.func.jvp(lambda u: engine.transition(state, u)["qvel"], (action,), (action,))


@pytest.mark.parametrize("by", ["qfrc_applied", "qpos"])
def test_what_has_no_gradients_is_refused_by_name(by):
    class Pushed(tasks.InvertedPendulum):
        def control(self, m, world, action):
            return Control(action, **{by: [action[0], 0.0]})

        def reset(self, m, rng):
            return uniform_noise(m.qpos0, rng, 0.0), [0.0, 0.0]

    engine, state, action = of(Pushed(), 0)
    with pytest.raises(UnsupportedModel, match=rf"pushed-step.*pushes with \({by}\)"):
        by_action(engine, state, action, "qvel")


@pytest.mark.parametrize("data", ["gymnasium", "forward"])
def test_what_would_need_the_solver_again_is_refused_instead_of_taken_to_be_constant(data):
    """Forces before a step, and after it those of mj_forward: they had silently no gradient."""

    class Heavy(tasks.InvertedPendulum):
        def outcome(self, m, before, action, after):
            return Outcome((after if self.data == "forward" else before).data.qacc[0])

    Heavy.data = data
    engine, state, action = of(Heavy(), 0)
    state["qpos"].requires_grad_()
    with pytest.raises(UnsupportedModel, match=r"no gradients of .*heavy-step.*: forces and accelerations at a state"):
        engine.transition(state, action)["reward"].sum().backward()

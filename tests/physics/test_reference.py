"""One source, three uses: physics on floats and on torch tensors against the kernels and MuJoCo C, and its gradients.

`step(m, State(...), ctrl)` over tensors of shape (N,) is the reference: slow, but autograd and any device will do.
"""

from __future__ import annotations

from collections.abc import Callable

import mujoco
import numpy as np
import oracle
import pytest
import torch

from torch_mjenvs.physics import Data, Simulation, State, forward, load, step
from torch_mjenvs.physics.model.model import Model
from torch_mjenvs.physics.simulation_kernels import precision_of

MODELS = ("half_cheetah", "walker2d_v5", "hopper", "ant")
RANDOM = ("random-21", "random-25", "random-29", "random-33", "random-80")
ROUNDING = {torch.float64: 1e-11, torch.float32: 1e-3}  # relative to the largest entry, or to 1


def states(name: str, n: int = 16) -> list[torch.Tensor]:
    """qpos, qvel, ctrl: (n, ...) each."""
    return [torch.tensor(np.stack(x)) for x in zip(*oracle.states(name, n, seed=2), strict=True)]


def model(name: str) -> Model:
    return load(oracle.model(name))


def columns(x: torch.Tensor) -> list[torch.Tensor]:
    return list(x.unbind(1))


def reference(m: Model, qpos: torch.Tensor, qvel: torch.Tensor, ctrl: torch.Tensor) -> State:
    start = State(columns(qpos), columns(qvel), columns(torch.zeros_like(qvel)))
    return step(m, start, columns(ctrl), precision=precision_of(qpos.dtype))


def close(got: torch.Tensor, want: torch.Tensor, tolerance: float) -> None:
    error = (got.double() - want.double()).abs().max() / want.abs().max().clamp(min=1.0)
    assert error < tolerance, f"relative error {error:.1e}"


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("name", [*MODELS, *RANDOM])
def test_kernel_is_the_reference(name, dtype):
    qpos, qvel, ctrl = (x.to(dtype) for x in states(name))
    sim = Simulation(oracle.model(name), len(qpos), dtype=dtype)
    for x, value in ((sim.qpos, qpos), (sim.qvel, qvel), (sim.ctrl, ctrl)):
        x.copy_(value)
    sim.qacc_warmstart.zero_()
    sim.step()
    want = reference(model(name), qpos, qvel, ctrl)
    close(sim.qpos, torch.stack(want.qpos, 1), ROUNDING[dtype])
    close(sim.qvel, torch.stack(want.qvel, 1), ROUNDING[dtype])


@pytest.mark.parametrize("name", [*MODELS, "random-25", "random-33"])
def test_plain_floats_are_mujoco(name):
    mjm, m = oracle.model(name), model(name)
    for qpos, qvel, ctrl in oracle.states(name, 4, seed=2):
        d = oracle.forward(mjm, qpos, qvel, ctrl)
        ours = Data(m, qpos=qpos.tolist(), qvel=qvel.tolist(), ctrl=ctrl.tolist(), qacc_warmstart=[0.0] * m.nv)
        forward(ours)
        assert all(type(x) is float for x in ours.qacc)
        close(torch.tensor(ours.qacc, dtype=torch.float64), torch.tensor(d.qacc), 1e-11)
        stepped = step(m, State(qpos.tolist(), qvel.tolist(), [0.0] * m.nv), ctrl.tolist())
        d = mujoco.MjData(mjm)
        d.qpos[:], d.qvel[:], d.ctrl[:] = qpos, qvel, ctrl
        mujoco.mj_step(mjm, d)
        close(torch.tensor(stepped.qpos, dtype=torch.float64), torch.tensor(d.qpos), 1e-12)
        close(torch.tensor(stepped.qvel, dtype=torch.float64), torch.tensor(d.qvel), 1e-12)


# gradients


def gradients(m: Model, x: list[torch.Tensor], weight: torch.Tensor) -> list[torch.Tensor]:
    """Of weight . next qvel with respect to qpos, qvel and ctrl, a world a row."""
    leaves = [t.clone().requires_grad_() for t in x]
    qvel = torch.stack(reference(m, *leaves).qvel, 1)
    found = torch.autograd.grad((qvel * weight).sum(), leaves, allow_unused=True)
    return [torch.zeros_like(t) if g is None else g for g, t in zip(found, x, strict=True)]


def difference(f: Callable[[np.ndarray], float], x: np.ndarray, eps: float = 1e-6) -> np.ndarray:
    """The gradient of f by central differences."""
    return np.array([(f(x + eps * e) - f(x - eps * e)) / (2 * eps) for e in np.eye(len(x))])


def differences(mjm: mujoco.MjModel, world: list[np.ndarray], weight: np.ndarray) -> list[np.ndarray]:
    """Of weight . next qvel with respect to each of qpos, qvel and ctrl, by MuJoCo C."""

    def value(at: list[np.ndarray]) -> float:
        d = mujoco.MjData(mjm)
        d.qpos[:], d.qvel[:], d.ctrl[:] = at
        mujoco.mj_step(mjm, d)
        return float(d.qvel @ weight)

    return [difference(lambda x, k=k: value([*world[:k], x, *world[k + 1 :]]), world[k]) for k in range(3)]


@pytest.mark.parametrize("name", [*MODELS, "random-21", "random-25"])
def test_gradients_are_finite_and_those_of_differences(name):
    """In the air, at limits and in contact, and none is NaN."""
    mjm, m = oracle.model(name), model(name)
    x = states(name, 8)
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(x[1].shape, dtype=torch.float64, generator=generator, device="cpu").to(x[1].device)
    found = gradients(m, x, weight)
    assert all(g.isfinite().all() for g in found)
    rows = []
    for k in range(len(x[0])):
        world = [t[k].cpu().numpy() for t in x]
        rows.append(oracle.forward(mjm, *world).nefc)
        for g, want in zip(found, differences(mjm, world, weight[k].cpu().numpy()), strict=True):
            scale = max(1.0, np.max(np.abs(want), initial=0.0))
            np.testing.assert_allclose(g[k].cpu().numpy(), want, rtol=0, atol=1e-5 * scale)
    assert name not in MODELS or (0 in rows and max(rows) >= 4)


@pytest.mark.parametrize("name", [*MODELS, "humanoid"])
def test_gradients_at_rest(name):
    """At the start, where angles, velocities and torques are exactly 0: no root and no quotient makes them NaN."""
    m, mjm = model(name), oracle.model(name)
    x = [
        torch.tensor(mjm.qpos0)[None],
        torch.zeros(1, m.nv, dtype=torch.float64),
        torch.zeros(1, m.nu, dtype=torch.float64),
    ]
    assert all(g.isfinite().all() for g in gradients(m, x, torch.ones(1, m.nv, dtype=torch.float64)))


BALL = """<mujoco><worldbody>
<body><joint type="ball" stiffness="3" damping="0.1"/><geom size="0.1" pos="0.2 0 0"/></body>
</worldbody></mujoco>"""


def test_gradient_of_a_ball_joint_s_spring_at_its_rest():
    """Where the angle it is stretched by, a root, is 0."""
    mjm, m = oracle.sharpen(mujoco.MjModel.from_xml_string(BALL)), load(BALL)
    x = [torch.tensor(mjm.qpos0)[None], torch.zeros(1, 3, dtype=torch.float64), torch.zeros(1, 0, dtype=torch.float64)]
    found = gradients(m, x, torch.ones(1, 3, dtype=torch.float64))
    want = differences(mjm, [t[0].cpu().numpy() for t in x], np.ones(3))
    for g, w in zip(found, want, strict=True):
        np.testing.assert_allclose(g[0].cpu().numpy(), w, rtol=0, atol=1e-8)

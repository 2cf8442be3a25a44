"""What derivatives of physics cost, in steps: the tables of docs/derivatives.md.

    python -m benchmarks.gradients
    python -m benchmarks.gradients --models HalfCheetah Hopper --num-envs 256
    python -m benchmarks.gradients --differences  # A and B beside those of MuJoCo, one state after the other
    python -m benchmarks.gradients --builds       # what kernels take to build, in processor time

Each is timed by processor time, in turns with `Simulation.step` from the same states, on one thread; medians. "kernels"
are those of a step that can be differentiated and of its way back, on tensors that are there; "whole call" is
`Simulation.transition` with torch's autograd around them, "A and B" `Simulation.linearize`. MuJoCo's A and B are
`mjd_transitionFD`, one-sided; for RK4, which it does not support, as many calls of `mj_step` as one-sided differences
take.
"""

from __future__ import annotations

import argparse
import statistics
import time

import gymnasium
import mujoco
import numpy as np
import torch

from torch_mjenvs import Simulation
from torch_mjenvs.compiler.control import unrolling
from torch_mjenvs.compiler.cpu import back_end
from torch_mjenvs.compiler.functions import Pure
from torch_mjenvs.compiler.launch import Launch
from torch_mjenvs.physics import load
from torch_mjenvs.physics.kernel_request import KernelRequest
from torch_mjenvs.physics.simulation_kernels import linearized
from torch_mjenvs.physics.simulation_kernels import program as simulated
from torch_mjenvs.physics.step_function import BACKWARD, STEP, program

from .machine import turns

TASKS = ("HalfCheetah", "Hopper", "Walker2d", "Ant", "Humanoid")
EULER = "Ant"  # whose integrator is set to Euler's, as MuJoCo has no derivatives of RK4 to compare with


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--models", nargs="+", default=TASKS)
    p.add_argument("--num-envs", type=int, default=2048)
    p.add_argument("--turns", type=int, default=100)
    p.add_argument("--dtype", default="float32")
    p.add_argument("--differences", action="store_true")
    p.add_argument("--builds", action="store_true")
    args = p.parse_args()
    torch.set_num_threads(1)
    if args.differences or args.builds:
        for name in args.models:
            print(name, *(against_differences if args.differences else builds)(name, args.num_envs, args.dtype))
        return
    print("in steps      forward  backward  kernels  whole call  A and B  | a step of a world")
    for name in args.models:
        seconds = measure(name, args.num_envs, getattr(torch, args.dtype), args.turns)
        step = seconds.pop("step")
        forward, backward, whole, matrices = (x / step for x in seconds.values())
        columns = f"{forward:7.2f}  {backward:8.2f}  {forward + backward:7.2f}  {whole:10.2f}  {matrices:7.2f}"
        print(f"{name:12}  {columns}  | {1e9 * step / args.num_envs:.0f} ns", flush=True)


def model_of(name: str) -> mujoco.MjModel:
    """Return a task's model."""
    model: mujoco.MjModel = gymnasium.make(f"{name}-v5").unwrapped.model
    if name == EULER:
        model.opt.integrator = mujoco.mjtIntegrator.mjINT_EULER
    return model


def in_contact(model: mujoco.MjModel, worlds: int, dtype: torch.dtype) -> Simulation:
    """Return worlds that have moved at random until they touch the ground."""
    sim, rng = Simulation(model, worlds, dtype=dtype), torch.Generator().manual_seed(0)
    sim.qvel.add_(0.3 * torch.randn(sim.qvel.shape, generator=rng).to(dtype))
    sim.ctrl.copy_((0.4 * (2 * torch.rand(sim.ctrl.shape, generator=rng) - 1)).to(dtype))
    sim.step(60)
    return sim


def against_differences(name: str, worlds: int, dtype: str, states: int = 64) -> tuple[str, ...]:
    """Compare A and B with MuJoCo's: microseconds a state of both, their ratio, and A and B in steps of ours."""
    model = model_of(name)
    sim, d, n = in_contact(model, worlds, getattr(torch, dtype)), mujoco.MjData(model), 2 * model.nv + model.na
    state = {name: getattr(sim, name).clone() for name in ("qpos", "qvel", "qacc_warmstart", "ctrl")}
    A, B = np.zeros((n, n)), np.zeros((n, model.nu))
    chained = model.opt.integrator == mujoco.mjtIntegrator.mjINT_RK4

    def theirs() -> None:
        for k in range(states):
            for part, x in rows.items():
                getattr(d, part)[:] = x[k]
            if chained:
                for _ in range(n + model.nu + 1):
                    d.qpos[:], d.qvel[:] = rows["qpos"][k], rows["qvel"][k]
                    mujoco.mj_step(model, d)
            else:
                mujoco.mjd_transitionFD(model, d, 1e-6, False, A, B, None, None)

    def restore(_: str) -> None:
        for part, x in state.items():
            getattr(sim, part).copy_(x)

    rows = {part: x[:states].double().numpy() for part, x in state.items()}
    sim.linearize()
    seconds = turns({"theirs": theirs, "linearize": sim.linearize, "step": sim.step}, 20, before=restore)
    other, own, step = map(statistics.median, seconds.values())
    other, own, step = 1e6 * other / states, 1e6 * own / worlds, 1e6 * step / worlds
    kind = f"{n + model.nu + 1} mj_steps" if chained else "mjd_transitionFD"
    return f"{kind}: {other:.1f} us", f"ours: {own:.2f} us, {own / step:.1f} steps", f"{other / own:.0f} times"


def builds(name: str, _: int, dtype: str) -> tuple[str, ...]:
    """Build a model's kernels anew: seconds of a core, and how many times a step's that is."""
    request, back, seconds = KernelRequest(load(model_of(name))), back_end(), {}
    for kind in ("step", STEP, BACKWARD, "A and B"):
        begun = time.process_time()
        with unrolling(back.unroll_limit):
            if kind == "A and B":
                recorded = linearized(request, dtype)
            else:
                recorded = simulated(request, dtype) if kind == "step" else program(request, dtype, kind)
            back.translate(back.lower(recorded))
        seconds[kind] = time.process_time() - begun
    return tuple(f"{kind}: {x:.1f} s ({x / seconds['step']:.1f})" for kind, x in seconds.items())


def measure(name: str, worlds: int, dtype: torch.dtype, rounds: int) -> dict[str, float]:
    """Return the seconds of a step, of the kernels forward and backward, of a whole call, and of A and B."""
    sim = in_contact(model_of(name), worlds, dtype)
    state = {name: getattr(sim, name).contiguous() for name in ("qpos", "qvel", "qacc_warmstart", "ctrl")}
    bars = [torch.ones_like(state["qpos"]), torch.ones_like(state["qvel"])]

    def whole() -> None:
        given = [state[name].detach().requires_grad_() for name in ("qpos", "qvel", "ctrl")]
        after = sim.transition(*given)
        torch.autograd.grad([after.qpos, after.qvel], given, bars)

    whole()  # builds the kernels
    function = sim._transition
    rows = [state[name] for name in function.takes]
    results = function.run(rows)
    found = [torch.empty_like(state[name]) for name in function._given]
    forward = launch(function._pure(STEP), [*rows, *results])
    backward = launch(function._pure(BACKWARD), [*function.kept(rows, results), *bars, *found])

    def restore(_: str) -> None:
        for name, x in state.items():
            getattr(sim, name).copy_(x)

    sim.linearize()  # builds its kernel
    kinds = {"step": sim.step, "forward": forward, "backward": backward, "whole": whole, "linearize": sim.linearize}
    return {kind: statistics.median(x) for kind, x in turns(kinds, rounds, before=restore).items()}


def launch(pure: Pure, tensors: list[torch.Tensor]) -> Launch:
    """Bind a kernel to tensors that are laid out as it needs them."""
    kernel = pure._kernel
    return Launch(kernel, [x if b.rows else x.T.contiguous() for b, x in zip(kernel.buffers, tensors, strict=True)])


if __name__ == "__main__":
    main()

"""What derivatives of physics cost, in steps: the tables of docs/derivatives.md.

    python -m benchmarks.gradients
    python -m benchmarks.gradients --models HalfCheetah Hopper --num-envs 256

Each is timed by processor time, in turns with `Simulation.step` from the same states, on one thread; medians. "kernels"
are those of a step that can be differentiated and of its way back, on tensors that are there; "whole call" is
`Simulation.transition` with torch's autograd around them, "A and B" `Simulation.linearize`.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import gymnasium
import mujoco
import torch

from torch_mjenvs import Simulation
from torch_mjenvs.compiler.functions import Pure
from torch_mjenvs.compiler.launch import Launch
from torch_mjenvs.physics.step_function import BACKWARD, STEP

TASKS = ("HalfCheetah", "Hopper", "Walker2d", "Ant", "Humanoid")
EULER = "Ant"  # whose integrator is set to Euler's, as MuJoCo has no derivatives of RK4 to compare with


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--models", nargs="+", default=TASKS)
    p.add_argument("--num-envs", type=int, default=2048)
    p.add_argument("--turns", type=int, default=100)
    p.add_argument("--dtype", default="float32")
    args = p.parse_args()
    torch.set_num_threads(1)
    print("in steps      forward  backward  kernels  whole call  A and B  | a step of a world")
    for name in args.models:
        seconds = measure(name, args.num_envs, getattr(torch, args.dtype), args.turns)
        step = seconds.pop("step")
        forward, backward, whole, matrices = (x / step for x in seconds.values())
        columns = f"{forward:7.2f}  {backward:8.2f}  {forward + backward:7.2f}  {whole:10.2f}  {matrices:7.2f}"
        print(f"{name:12}  {columns}  | {1e9 * step / args.num_envs:.0f} ns", flush=True)


def measure(name: str, worlds: int, dtype: torch.dtype, turns: int) -> dict[str, float]:
    """Return the seconds of a step, of the kernels forward and backward, of a whole call, and of A and B."""
    model = gymnasium.make(f"{name}-v5").unwrapped.model
    if name == EULER:
        model.opt.integrator = mujoco.mjtIntegrator.mjINT_EULER
    sim, rng = Simulation(model, worlds, dtype=dtype), torch.Generator().manual_seed(0)
    sim.qvel.add_(0.3 * torch.randn(sim.qvel.shape, generator=rng).to(dtype))
    sim.ctrl.copy_((0.4 * (2 * torch.rand(sim.ctrl.shape, generator=rng) - 1)).to(dtype))
    sim.step(60)  # into contact
    state = {name: getattr(sim, name).contiguous() for name in ("qpos", "qvel", "qacc_warmstart", "ctrl")}
    bars = [torch.ones_like(state["qpos"]), torch.ones_like(state["qvel"])]

    def whole() -> None:
        given = [state[name].detach().requires_grad_() for name in ("qpos", "qvel", "ctrl")]
        after = sim.transition(*given)
        torch.autograd.grad([after.qpos, after.qvel], given, bars)

    whole()  # which builds the kernels
    function = sim._transition
    rows = [state[name] for name in function.takes]
    results = function.run(rows)
    found = [torch.empty_like(state[name]) for name in function._given]
    forward = launch(function._pure(STEP), [*rows, *results])
    backward = launch(function._pure(BACKWARD), [*function.kept(rows, results), *bars, *found])

    def from_state(what: Callable[[], object]) -> float:
        for name, x in state.items():
            getattr(sim, name).copy_(x)
        return timed(what)

    sim.linearize()  # which builds its kernel
    kinds = {"step": lambda: from_state(sim.step), "forward": lambda: timed(forward)}
    kinds |= {"backward": lambda: timed(backward), "whole": lambda: timed(whole)}
    kinds["linearize"] = lambda: from_state(sim.linearize)
    seconds: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(turns):
        for kind, run in kinds.items():
            seconds[kind].append(run())
    return {kind: statistics.median(x) for kind, x in seconds.items()}


def launch(pure: Pure, tensors: list[torch.Tensor]) -> Launch:
    """Bind a kernel to tensors that lie as it has them."""
    kernel = pure._kernel
    return Launch(kernel, [x if b.rows else x.T.contiguous() for b, x in zip(kernel.buffers, tensors, strict=True)])


def timed(what: Callable[[], object]) -> float:
    """Return the processor time that a call takes."""
    begun = time.process_time()
    what()
    return time.process_time() - begun


if __name__ == "__main__":
    main()

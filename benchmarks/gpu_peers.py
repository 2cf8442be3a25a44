"""MJX and mujoco-torch on the same GPU: each in a process of its own, in turns with ours, which steps there too.

Peers have physics alone, no observation, reward or reset: so all start from the same seasoned states, under the same
random controls, and are put back there before the worlds have left the states that occur in episodes. The models are
Gymnasium's own; where those ask for PGS, Newton stands in for it, as peers have no PGS. Their settings are the models'.
mujoco-torch 0.2.0 does not import with the MuJoCo 4 that this package needs; its rows then say so.

    python -m benchmarks.gpu_peers MJX Hopper 4096          # one of them, as JSON
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mujoco
import torch

from torch_mjenvs.physics.simulation import Simulation

from .cases import CASES, Case, season
from .machine import spread, turns

ROOT = Path(__file__).resolve().parents[1]
NUM_ENVS = (4096, 32768)
PEERS = {"MJX": ("jax", "mujoco.mjx"), "mujoco-torch": ("mujoco_torch",)}  # and the modules each needs
LIMIT = 150.0  # seconds for one peer, task and size, compilation included
SHORTEST = 30.0  # seconds: with less than this left, no peer is begun
ENV_STEPS = 5  # of one call, from the seasoned states
ROUNDS = 5

Step = Callable[[], torch.Tensor | Any]


def measure(cases: list[Case], results: dict[str, Any], end: float, save: Callable[[dict[str, Any]], None]) -> None:
    """Put under "peers" of every task what each peer reaches; small sizes first, nothing after `end` on the clock."""
    for case in cases:
        results["tasks"][case.name]["peers"] = []
    for name in PEERS:
        why = missing(name)
        for n in NUM_ENVS:
            for case in cases:
                found = {"error": why} if why else in_process(name, case, n, min(LIMIT, end - time.monotonic()))
                results["tasks"][case.name]["peers"].append({"peer": name, "num_envs": n, **found})
                save(results)


def missing(peer: str) -> str | None:
    """Name what the peer needs and is missing."""
    for module in PEERS[peer]:
        try:
            found = importlib.util.find_spec(module)
        except ModuleNotFoundError:
            found = None
        if not found:
            return f"{module} is not installed"
    return None


def in_process(peer: str, case: Case, n: int, seconds: float) -> dict[str, Any]:
    """Run `time_peer` in a process of its own, with a limit on its time. If it gave nothing, return why."""
    if seconds < SHORTEST:
        return {"error": "no time was left for it"}
    command = [sys.executable, "-m", "benchmarks.gpu_peers", peer, case.name, str(n)]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return {"error": f"nothing after {seconds:.0f} s"}
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["it failed"])[-1][:200]}
    return json.loads(done.stdout.splitlines()[-1])


def time_peer(peer: str, case: Case, n: int, device: torch.device) -> dict[str, Any]:
    """Physics steps a second of the peer and of ours, in turns, by the clock on the wall."""
    seasoned = season(case)
    chosen = torch.arange(n) % len(seasoned.states["qpos"])
    states = {name: seasoned.states[name][chosen] for name in ("qpos", "qvel")}
    task = case.task()
    low, high = torch.from_numpy(task.load().actuator_ctrlrange.T.copy())
    torch.manual_seed(0)
    controls = low + (high - low) * torch.rand(ENV_STEPS, n, len(low), dtype=torch.float64)
    began = time.perf_counter()
    theirs = MAKERS[peer](newton(task.load()), states, controls, task.frame_skip, device)
    reached = torch.from_dlpack(theirs()).cpu().double()
    first = time.perf_counter() - began
    works = {"peer": theirs, "ours": our_step(case, states, controls, device)}
    apart = (works["ours"]().cpu().double() - reached).abs().amax(1)
    seconds = turns(works, ROUNDS, clock=time.perf_counter)
    steps = n * ENV_STEPS * task.frame_skip
    rates = {name: [steps / s for s in found] for name, found in seconds.items()}
    ratios = [a / b for a, b in zip(rates["ours"], rates["peer"], strict=True)]
    return {
        "version": versions(peer),
        "first_call_s": first,
        "apart": apart.nan_to_num(torch.inf).median().item(),  # metres or radians
        "physics": spread(rates["peer"]),
        "ours": spread(rates["ours"]),
        "ratio": {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios)},
    }


def versions(peer: str) -> str:
    names = {"MJX": ("mujoco-mjx", "jax"), "mujoco-torch": ("mujoco-torch", "torch")}[peer]
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names)


def newton(model: mujoco.MjModel) -> mujoco.MjModel:
    if model.opt.solver == mujoco.mjtSolver.mjSOL_PGS:
        model.opt.solver = mujoco.mjtSolver.mjSOL_NEWTON
    return model


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def our_step(case: Case, states: dict[str, torch.Tensor], controls: torch.Tensor, device: torch.device) -> Step:
    """Physics alone, as the peers do it, in float32."""
    task = case.task()
    sim = Simulation(task.load(), controls.shape[1], device=device)
    start = {name: x.to(device, sim.dtype) for name, x in states.items()}
    commands = controls.to(device, sim.dtype)

    def step() -> torch.Tensor:
        sim.qpos.copy_(start["qpos"])
        sim.qvel.copy_(start["qvel"])
        sim.qacc_warmstart.zero_()
        for ctrl in commands:
            sim.ctrl.copy_(ctrl)
            sim.step(task.frame_skip)
        wait(device)
        return sim.qpos

    return step


def mjx(
    model: mujoco.MjModel,
    states: dict[str, torch.Tensor],
    controls: torch.Tensor,
    frame_skip: int,
    device: torch.device,
) -> Step:
    """One jitted call, a scan over environment steps of the vmapped step, in MJX's usual float32."""
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # ours needs memory, too
    import jax
    from mujoco import mjx

    where = jax.devices("gpu" if device.type == "cuda" else "cpu")[0]
    with jax.default_device(where):
        m = mjx.put_model(model)
        qpos, qvel, commands = (
            jax.device_put(x.numpy().astype("float32"), where) for x in (states["qpos"], states["qvel"], controls)
        )
        start = jax.jit(jax.vmap(lambda q, v: mjx.make_data(m).replace(qpos=q, qvel=v)))(qpos, qvel)

        def one(data: Any, ctrl: Any) -> Any:
            return jax.lax.fori_loop(0, frame_skip, lambda _, d: mjx.step(m, d), data.replace(ctrl=ctrl))

        advance = jax.jit(lambda d, c: jax.lax.scan(lambda x, u: (jax.vmap(one)(x, u), None), d, c)[0].qpos)
        return lambda: advance(start, commands).block_until_ready()


def mujoco_torch(
    model: mujoco.MjModel,
    states: dict[str, torch.Tensor],
    controls: torch.Tensor,
    frame_skip: int,
    device: torch.device,
) -> Step:
    """Its vmapped step, compiled as one graph, in the float64 that it is made for."""
    import mujoco_torch

    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    m = mujoco_torch.device_put(model).to(device)
    one = mujoco_torch.step(m, mujoco_torch.device_put(data).to(device))
    start = one.expand(controls.shape[1]).clone()
    for name, x in states.items():
        getattr(start, name).copy_(x)
    commands = controls.to(device)
    advance = torch.compile(torch.vmap(lambda d: mujoco_torch.step(m, d)), fullgraph=True)

    @torch.no_grad()
    def step() -> torch.Tensor:
        now = start.clone()
        for ctrl in commands:
            now.update_(ctrl=ctrl)
            for _ in range(frame_skip):
                now = advance(now)
        wait(device)
        return now.qpos

    return step


MAKERS: dict[str, Callable[..., Step]] = {"MJX": mjx, "mujoco-torch": mujoco_torch}

if __name__ == "__main__":
    place = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    print(json.dumps(time_peer(sys.argv[1], CASES[sys.argv[2]], int(sys.argv[3]), place)))

"""Where the time of one evaluation goes: kernels that stop after a stage, from the states of a rollout, one core.

python benchmarks/stages.py
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

from benchmarks.cases import CASES
from torch_mjenvs import TorchVectorEnv
from torch_mjenvs.compiler import cpu
from torch_mjenvs.compiler.control import fold_each, get, when_any
from torch_mjenvs.compiler.program import Buffer, record
from torch_mjenvs.physics.constraint import make_constraint
from torch_mjenvs.physics.data import Data
from torch_mjenvs.physics.forces import actuation
from torch_mjenvs.physics.model import Model
from torch_mjenvs.physics.pairs import D, make_pairs
from torch_mjenvs.physics.simulation import in_precision
from torch_mjenvs.physics.solver import newton
from torch_mjenvs.physics.step import position, smooth, velocity

WORLDS, ROUNDS = 1024, 15


def smooth_dynamics(m: Model, d: Data) -> list:
    """Kinematics, M, bias, passive and actuator forces."""
    position(m, d)
    velocity(m, d)
    actuation(m, d)
    smooth(m, d)
    return [x for row in d.M for x in row.values()] + d.qfrc_smooth


def constraints(m: Model, d: Data) -> list:
    """... and distances, limits, and the rows of contacts that touch."""
    total = smooth_dynamics(m, d)
    make_constraint(m, d)
    make_pairs(m, d)
    total += [x for limit in d.limits for x in (limit.D, limit.y0)]
    stiffness = [0.0]
    for c in d.contacts:
        stiffness = when_any(c.active, lambda s, c=c: [s[0] + c.computed[1] + c.computed[2][0]], stiffness)
    for g in d.groups:
        stiffness = fold_each(g.touching, lambda i, s, g=g: [s[0] + get(g.rows, i, D)], stiffness)
    return total + stiffness


def everything(m: Model, d: Data) -> list:
    """... and Newton."""
    position(m, d)
    velocity(m, d)
    actuation(m, d)
    smooth(m, d)
    make_constraint(m, d)
    make_pairs(m, d)
    newton(m, d)
    return d.qacc


def kernel(m: Model, stages: Callable[[Model, Data], list]) -> tuple[cpu.Kernel, int]:
    buffers = [Buffer("qpos", m.nq), Buffer("qvel", m.nv), Buffer("qacc_warmstart", m.nv), Buffer("ctrl", m.nu)]

    def body(b: dict[str, list]) -> dict[str, list]:
        total = 0.0
        for x in stages(m, Data(**{k: b[k] for k in ("qpos", "qvel", "qacc_warmstart", "ctrl")})):
            total = total + x
        return {"sum": [total]}

    program = record("stages", [*buffers, Buffer("sum", 1)], body, "float32")
    return cpu.build(program), sum(program.count_ops().values())


def main() -> None:
    torch.set_num_threads(1)
    print("| | smooth dynamics | constraint rows | Newton | all, us a vector |\n|---|--:|--:|--:|--:|")
    for case in CASES.values():
        env = TorchVectorEnv(case.task(), WORLDS, autoreset_mode="SameStep", device="cpu")
        env.reset(seed=0)
        high = torch.from_numpy(env.single_action_space.high)
        for _ in range(40):
            env.step((torch.rand(WORLDS, len(high)) * 2 - 1) * high)
        engine = env.engine
        m = in_precision(engine.model, torch.float32)
        tensors = {name: engine.buffers[name] for name in ("qpos", "qvel", "qacc_warmstart")}
        tensors |= {"ctrl": engine.buffers["action"].T.contiguous(), "sum": torch.zeros(1, WORLDS)}
        launches = [kernel(m, stages)[0].bind(tensors) for stages in (smooth_dynamics, constraints, everything)]
        times: list[list[float]] = [[], [], []]
        for _ in range(ROUNDS):
            for launch, seen in zip(launches, times, strict=True):
                began = time.perf_counter()
                launch(times=10)
                seen.append((time.perf_counter() - began) / 10 / (WORLDS / 16) * 1e6)
        first, second, whole = (statistics.median(seen) for seen in times)
        parts = (first, second - first, whole - second)
        shares = " | ".join(f"{part:.2f} us, {part / whole:.0%}" for part in parts)
        print(f"| {case.name} | {shares} | {whole:.2f} |")


if __name__ == "__main__":
    main()

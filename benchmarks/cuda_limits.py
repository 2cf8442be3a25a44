"""How fast a GPU could run the kernels: their machine code on a model of one multiprocessor, without a GPU.

    python -m benchmarks.cuda_limits                  # all tasks, some 3 minutes of one core
    python -m benchmarks.cuda_limits --tasks Hopper   # only these anew
    python -m benchmarks.cuda_limits --lanes          # what several threads for one world could gain, for large ones
    python -m benchmarks.cuda_limits --render         # nothing anew: the tables from the data that is there

NVIDIA's ptxas makes the code, for `sm_90`. An emulator (tests/sass) runs a step's warps from states that random actions
lead to, in the order and at the times of a multiprocessor, and so knows every address, every divergence, and how long
ptxas itself expects instructions to take. What it cannot know is in `Chip`: published, or fitted to what an H200 was
measured to take. Writes results/cuda-limits.json and the table of docs/cuda.md, which says how near the model comes to
the measurements.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import sys
import time
from dataclasses import dataclass

import torch

from torch_mjenvs.compiler import cuda, launch
from torch_mjenvs.compiler.llvm import NVIDIA
from torch_mjenvs.envs.tasks.registry import TASKS

from . import cuda_code
from .cuda_code import PAGE, ROOT
from .report import number, put, table

DATA = ROOT / "benchmarks" / "results" / "cuda-limits.json"
BEGIN, END = "<!-- written by benchmarks/cuda_limits.py -->", "<!-- end of what benchmarks/cuda_limits.py wrote -->"


@dataclass(frozen=True)
class Chip:
    """One multiprocessor of an H100 or H200: cycles, bytes, bytes a cycle.

    - *Published* by NVIDIA: four schedulers, the units' widths, the sizes of caches of data, the memory's bandwidth.
    - *Measured* on an H200 on 2026-11-26, directly: the clock, what a branch takes, that L1 passes each store of a
      spilled value on to L2, how large L1 is.
    - *Fitted* to measurements of that day: times of steps at 4,096, 8,192 and 32,768 worlds, with and without loops
      whose iterations a block begins together, and Nsight Compute's shares of waits, hits in caches and bytes from
      memory for HalfCheetah, Ant and Humanoid. In brackets: what decides it.
    - *Assumed*: no measurement here depends much on it.

    Code comes from L2 into a cache that the multiprocessors of a part of the chip (a GPC) share, from there into one of
    each multiprocessor, and from there into one of each scheduler. Each multiprocessor gets an equal part of what they
    share, as if all asked for as much at any time. Only code that none has asked for before comes at full speed, once
    for all of them.
    """

    fetch_line: float = 128  # assumed
    l0_bytes: float = 16 * 1024  # of each scheduler; assumed
    l0_ahead_lines: float = 2  # that are asked for with each line; fitted (all tasks with one warp)
    icache_bytes: float = 32 * 1024  # of a multiprocessor; fitted: Hopper's loop fits, HalfCheetah's does not
    icache_latency: float = 10  # fitted (Hopper)
    icache_rate: float = 64  # assumed
    sharers: float = 132 / 8  # multiprocessors that share; published
    gpc_bytes: float = 128 * 1024  # fitted: HalfCheetah's code fits, Ant's loop just so, Humanoid's does not
    gpc_ahead_lines: float = 1  # fitted (all tasks with one warp)
    gpc_latency: float = 20  # fitted (HalfCheetah, Walker2d)
    gpc_rate: float = 128  # to all that share it; fitted (HalfCheetah, Walker2d, Ant)
    fetch_latency: float = 150  # from L2; fitted (Humanoid)
    fetch_rate: float = 28  # from L2, for all that share it; fitted (Humanoid)
    l1_bytes: float = 224 * 1024  # of 256 KB, of which the driver leaves 32 to shared memory; measured
    l1_latency: float = 33  # measured by others
    l1_lines_a_cycle: float = 1  # assumed
    l2_bytes: float = 42e6 / 132  # this multiprocessor's share, more where others have no work; of 50 MB; fitted (Ant)
    l2_latency: float = 330  # fitted (Ant, Humanoid)
    l2_rate: float = 24  # likewise; measured by others
    dram_latency: float = 1300  # under load; fitted (Ant, Humanoid)
    dram_rate: float = 4.8e12 / 1.98e9 / 132  # likewise; an H200's; published
    float_cycles: float = 1  # of a scheduler's unit, for a warp; these are published
    wide_cycles: float = 2
    double_cycles: float = 2
    integer_cycles: float = 2
    special_cycles: float = 8
    memory_cycles: float = 2
    special_latency: float = 22  # measured by others
    constant_latency: float = 30  # measured by others
    double_latency: float = 24  # assumed
    operands_read: float = 12  # until a store's registers may be written again; assumed
    branch_cycles: float = 4  # that each instruction which may branch takes beyond what ptxas says; measured
    meeting_cycles: float = 60  # from the last warp's coming to a barrier until all go on; fitted (Swimmer, Hopper)
    perfect_fetch: float = 0
    perfect_data: float = 0


MULTIPROCESSORS, HERTZ = 132, 1.98e9  # published; measured
LAUNCH = 4000  # cycles that each step takes besides its warps' own; fitted (Swimmer)
SIZES = [1024 << k for k in range(8)]
TABLE_WORLDS = 256  # in 8 warps: what a multiprocessor holds at once of a kernel that takes all registers
# Worlds on a multiprocessor, and how many samples are timed.
SAMPLES = {8: 8, 16: 8, 32: 8, 64: 4, 128: 2, 256: 1, 512: 1}


LARGE = ("Ant", "Humanoid")
WAITS = ("fetch_slots", "barrier_slots", "stall_slots", "meeting_slots")
KINDS = ("as it is", "smaller stacks", "and code that fits")
SHRINKS = {1: 1.0, 4: 2.5, 8: 4.0}  # threads of a world, and how many times smaller each one's stack could be


def step(task: str) -> dict:
    """Run a step on the model: for the table of causes, and its cycles by worlds on a multiprocessor."""
    sys.path.insert(0, str(ROOT / "tests"))
    from sass.machine import Machine, aligned

    engine = cuda_code.in_play(task)
    machine = Machine(cuda_code.ptx(task, "step", "float32"))
    engine.action.uniform_(-1, 1)
    worlds, chip = launch.padded(engine.num_envs), Chip()
    resident = cuda_code.resident_warps(machine.code.registers)

    def spent(chip: Chip, first: int, each: int) -> dict:
        """Time a multiprocessor with `each` worlds, from the warp `first` on."""
        tensors, warps = [aligned(x) for x in engine.buffers.values()], -(-each // NVIDIA.warp)
        numbers, threads = dataclasses.astuple(chip), cuda.block_size(each, 1)
        return machine.time(tensors, worlds, numbers, first, warps, resident, threads)

    ideal = dataclasses.replace(chip, perfect_fetch=1, perfect_data=1)
    found = {
        "task": task, "physics_steps": engine.task.frame_skip, "resident": resident, "stack": machine.code.stack,
        "code_bytes": machine.code.instructions["address"][-1].item() + 16,
        "ideal": spent(ideal, 0, TABLE_WORLDS)["cycles"],
        "perfect_data": spent(dataclasses.replace(chip, perfect_data=1), 0, TABLE_WORLDS)["cycles"],
        "perfect_fetch": spent(dataclasses.replace(chip, perfect_fetch=1), 0, TABLE_WORLDS)["cycles"],
        "all": spent(chip, 0, TABLE_WORLDS),
    }  # fmt: skip
    found["cycles"] = {}
    for each, samples in SAMPLES.items():
        cycles = [spent(chip, k * -(-each // NVIDIA.warp), each)["cycles"] for k in range(samples)]
        found["cycles"][str(each)] = max(cycles)  # a step ends with its last warp
    return found


def lanes(task: str) -> dict:
    """Return the cycles of 8 warps in which each world has several threads, all of which do the same: then a world
    waits less for others, and stacks are smaller, since each thread would hold a part of them. The cost of threads'
    work for each other is not included.
    """
    sys.path.insert(0, str(ROOT / "tests"))
    from sass.machine import Machine, aligned

    engine = cuda_code.in_play(task)
    machine = Machine(cuda_code.ptx(task, "step", "float32"))
    engine.action.uniform_(-1, 1)
    worlds, warps, out = launch.padded(engine.num_envs), TABLE_WORLDS // NVIDIA.warp, {}
    for each, shrink in SHRINKS.items():
        chosen = torch.arange(worlds) // each
        chip = dataclasses.replace(Chip(), l1_bytes=Chip.l1_bytes * shrink, l2_bytes=Chip.l2_bytes * shrink)
        small = dataclasses.replace(chip, icache_bytes=1 << 20, gpc_bytes=1 << 20)
        found = {}
        for name, assumed in zip(KINDS, (Chip(), chip, small), strict=True):
            buffers = zip(engine._step.tensors, engine._step.kernel.buffers, strict=True)
            tensors = [aligned(x[chosen] if b.rows else x[:, chosen]) for x, b in buffers]
            numbers, threads = dataclasses.astuple(assumed), cuda.block_size(TABLE_WORLDS, 1)
            spent = machine.time(tensors, worlds, numbers, 0, warps, warps, threads)
            found |= {name: spent["cycles"], "issued": spent["issued"] // warps}
        out[str(each)] = found
    return {"task": task, "lanes": out}


def rate(run: dict, size: int) -> float:
    """Physics steps a second at so many worlds."""
    block = cuda.block_size(size, MULTIPROCESSORS)
    each = block * -(-size // (block * MULTIPROCESSORS))  # worlds on the multiprocessor that has most
    if str(each) in run["cycles"]:
        cycles = run["cycles"][str(each)]
    else:  # more rounds, each of as many worlds as fit at once
        once, twice = (run["cycles"][str(k * TABLE_WORLDS)] for k in (1, 2))
        cycles = twice + (each / TABLE_WORLDS - 2) * (twice - once)
    return size * run["physics_steps"] * HERTZ / (cycles + LAUNCH)


def markdown(data: dict) -> str:
    causes, rates = [], []
    for run in data["steps"]:
        spent = run["all"]
        slots = sum(spent[k] for k in spent if k.endswith("_slots"))
        parts = [f"{100 * spent[k] / slots:.0f} %" for k in WAITS]
        causes.append(
            [
                run["task"], f"{run['code_bytes'] / 1e3:,.0f} kB", f"{run['stack']:,} B", str(run["resident"]),
                _k(spent["busiest"]), _k(run["ideal"]), _k(run["perfect_data"]), _k(run["perfect_fetch"]),
                _k(spent["cycles"]), *parts, f"{spent['fetched_bytes'] / 1e6:,.1f} MB",
                f"{(spent['l2_read'] + spent['written']) / 1e6:,.1f} MB",
            ]
        )  # fmt: skip
        rates.append([run["task"], *[number(rate(run, size)) for size in SIZES]])
    shared = [
        [run["task"], each, str(TABLE_WORLDS // int(each)), _k(x["issued"]), *[_k(x[kind]) for kind in KINDS]]
        for run in data["lanes"]
        for each, x in run["lanes"].items()
    ]
    head = [
        "task", "code", "stack", "warps", "issue slots", "no wait for code or data", "for code only", "for data only",
        "all", "slots lost to code", "to data", "to latency", "to other warps", "code from L2", "data to and from L2",
    ]  # fmt: skip
    return "\n\n".join(
        [
            f"{data['date']}, ptxas {data['ptxas']}, {cuda_code.ARCH}, float32. Cycles of one multiprocessor for one "
            "environment step of 256 worlds (8 warps): if each scheduler issued an instruction in every cycle; if code "
            "and data were always there; with waits for code, for data, for both. *Slots*: of the schedulers' cycles, "
            "how many passed without an instruction, and for what. *Warps*: how many a multiprocessor's registers hold "
            "at once.",
            table(head, causes),
            f"Physics steps/s that follow for an H100 or H200 ({MULTIPROCESSORS} multiprocessors at "
            f"{HERTZ / 1e9:.3f} GHz), by number of worlds:",
            table(["task", *[f"{size:,}" for size in SIZES]], rates),
            "Cycles of one multiprocessor for 8 warps in which each world takes so many threads, which all do the "
            "same: as it is; with each thread's stack smaller, by 2.5 for 4 threads and by 4 for 8; and with code that "
            "fits into the caches of instructions. *Instructions* are a warp's.",
            table(["task", "threads a world", "worlds", "instructions", *KINDS], shared),
        ]
    )


def _k(cycles: float) -> str:
    return f"{cycles / 1e6:,.2f} M" if cycles >= 1e6 else f"{cycles / 1e3:,.0f} k"


def main(argv: list[str] | None = None) -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--tasks", nargs="*", choices=TASKS, default=tuple(TASKS))
    p.add_argument("--lanes", action="store_true", help="instead, large worlds with several threads each")
    p.add_argument("--render", action="store_true", help="nothing anew: the tables from the data that is there")
    args = p.parse_args(argv)
    data = json.loads(DATA.read_text()) if DATA.exists() else {"steps": [], "lanes": []}
    if args.lanes:
        torch.set_num_threads(1)
        data["lanes"] = [lanes(task) for task in LARGE]
        DATA.write_text(json.dumps(data, indent=1) + "\n")
    elif not args.render:
        torch.set_num_threads(1)
        data |= {"date": datetime.date.today().isoformat(), "ptxas": cuda_code.version()}
        data["chip"] = dataclasses.asdict(Chip())
        for task in args.tasks:
            began = time.perf_counter()
            found = [x for x in data["steps"] if x["task"] != task] + [step(task)]
            data["steps"] = sorted(found, key=lambda x: list(TASKS).index(x["task"]))
            DATA.write_text(json.dumps(data, indent=1) + "\n")
            print(f"{task}: {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    put(PAGE, BEGIN, END, markdown(data))
    print(markdown(data))


if __name__ == "__main__":
    main()

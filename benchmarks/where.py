"""Where a CPU kernel's time goes, by the functions of the physics that its instructions come from.

    python -m benchmarks.where Humanoid                        # an environment step of a task
    python -m benchmarks.where dm_control/humanoid.xml         # a physics step of a model of an installed package
    python -m benchmarks.where robot.xml --dtype float64       # or of any file
    python -m benchmarks.where Humanoid --lines --top 60       # by lines of source

The kernel is built anew with locations (`benchmarks.located`), all in one function; else its code is the same as ever.
`perf` then samples the program counter while the kernel runs on one thread. *Innermost*: a sample counts for the
function that recorded its operation; helpers such as vectors and quaternions count as their callers. *Inclusive*: for
all functions that were running then, once each. *Moves* is the share of a function's samples in instructions that only
copy vectors between registers, or to or from memory; spills and reloads count for the function that makes or uses what
they move. An operand that an instruction itself reads from memory is no move. A sample may fall on the instruction
after a slow one, so trust functions more than lines.

It needs Linux on x86-64, and the programs `perf` and `objdump`. A task's worlds are of all ages, under random actions;
a model's are in states of MuJoCo's own with contacts (`benchmarks.model_table`), which are restored every ten steps.
"""

from __future__ import annotations

import argparse
import itertools
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import warnings
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import mujoco
import numpy as np
import torch

from torch_mjenvs import Simulation, TorchVectorEnv
from torch_mjenvs.compiler.cpu import CpuKernel

from . import model_table, models, report
from .located import Frame, Instruction, recorded
from .machine import DTYPES, turns

WORLDS, SECONDS, TOP = 1024, 6.0, 30
FREQUENCY = 8000  # samples a second
WARMUP = 300  # environment steps
LONGEST = 16  # bytes of an instruction
ROUNDS = 9


@dataclass(frozen=True)
class Subject:
    """What is looked at: `run` does a number of steps of all worlds, and `before` is called before each time."""

    kernel: CpuKernel
    what: str  # the kind of its steps
    run: Callable[[], object]
    before: Callable[[], object]
    steps: int


def missing() -> list[str]:
    """Say what this needs and this machine does not have."""
    found = []
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        found.append(f"Linux on x86-64 (this is {platform.system()} on {platform.machine()})")
    for program, package in (("perf", "linux-perf or linux-tools"), ("objdump", "binutils")):
        if shutil.which(program) is None:
            found.append(f"the program {program} (package {package})")
    return found


def subject(name: str, worlds: int, dtype: str) -> Subject:
    """Build what the name stands for: a file, a model of an installed package, or a task."""
    path = Path(name) if name.endswith(".xml") else None
    if path is None:
        return task(name, worlds, dtype)
    if not path.exists():
        known = dict(model_table.found())
        if name not in known:
            raise ValueError(f"there is no file {name}, and no model of that name in the installed packages")
        path = known[name]
    model = models.compiled(path)
    if model is None:
        raise ValueError(f"{path} is not a model by itself, or nothing in it moves")
    return simulation(model, worlds, dtype)


def task(name: str, worlds: int, dtype: str) -> Subject:
    """Environment steps of a task, from when its worlds are of all ages."""
    torch.manual_seed(0)
    env = TorchVectorEnv(name, worlds, device="cpu", dtype=dtype, autoreset_mode="SameStep")
    env.reset(seed=0)
    env.elapsed_steps.copy_(torch.randint(env.engine.max_episode_steps or 1000, (worlds,)))
    space: Any = env.single_action_space  # a Box
    low, high = (torch.from_numpy(np.clip(x, -1.0, 1.0)).to(DTYPES[dtype]) for x in (space.low, space.high))
    actions = itertools.cycle([low + (high - low) * torch.rand(worlds, *low.shape) for _ in range(8)])
    for _ in range(WARMUP):
        env.step(next(actions))
    kernel = cast(CpuKernel, env.engine._step.kernel)
    return Subject(kernel, "environment", lambda: env.step(next(actions)), lambda: None, 1)


def simulation(model: mujoco.MjModel, worlds: int, dtype: str) -> Subject:
    """Physics steps of a model."""
    sim = Simulation(model, worlds, "cpu", dtype)
    model_table.put(sim, model_table.states(model))
    names = ("qpos", "qvel", "qacc_warmstart", *(["act"] if model.na else []))
    kept = [(getattr(sim, name), getattr(sim, name).clone()) for name in names]

    def before() -> None:
        for view, x in kept:
            view.copy_(x)

    steps = model_table.STEPS
    return Subject(cast(CpuKernel, sim._step.kernel), "physics", lambda: sim.step(steps), before, steps)


def sampled(one: Subject, seconds: float) -> Counter[int]:
    """Count how often the program counter was found at each address. Raises OSError if perf cannot look."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "perf.data"
        command = ["perf", "record", "-B", "-N", "-o", str(file), "-F", str(FREQUENCY), "-p", str(os.getpid())]
        with open(Path(folder) / "said", "w+") as said:
            perf = subprocess.Popen([*command, "--", "sleep", str(seconds)], stdout=said, stderr=said)
            while perf.poll() is None:
                one.before()
                one.run()
            said.seek(0)
            if perf.returncode:
                raise OSError(f"perf cannot look at this process: {said.read().strip()}")
        # Symbols are not asked for, but perf would read them, for seconds: it is to look for them where there are none.
        script = ["perf", "script", "-i", str(file), "-F", "ip", "--symfs", folder]
        listed = subprocess.run(script, capture_output=True, text=True, check=True).stdout
    return Counter(int(address, 16) for address in listed.split())


def by_instruction(samples: Counter[int], instructions: list[Instruction], address: int) -> list[int]:
    """Count each instruction's samples; others are not of this kernel."""
    counts, begins = [0] * len(instructions), [x.at for x in instructions]
    for at, n in samples.items():
        if begins[0] <= at - address < begins[-1] + LONGEST:
            counts[bisect_right(begins, at - address) - 1] += n
    return counts


def table(
    what: str,
    instructions: list[Instruction],
    counts: list[int],
    names: Callable[[Instruction], Iterable[str]],
    top: int,
) -> str:
    """Return a table of the names with the most samples. what: these are names of."""
    size: Counter[str] = Counter()
    found: Counter[str] = Counter()
    moves: Counter[str] = Counter()
    for x, n in zip(instructions, counts, strict=True):
        for name in set(names(x)):
            size[name] += 1
            found[name] += n
            moves[name] += n * x.moves
    total = max(1, sum(counts))
    rows = [
        [name, f"{100 * n / total:.1f} %", f"{100 * moves[name] / max(1, n):.0f} %", f"{size[name]:,}"]
        for name, n in found.most_common(top)
    ]
    return report.table([what, "samples", "moves", "instructions"], rows)


def label(frame: Frame, lines: bool) -> str:
    """Return what a function, or a line of it, is called in a table."""
    file, function, line = frame
    place = file.removeprefix("physics/") + (f":{line}" if lines and line else "")
    return f"{place} {function}".strip()


def summary(samples: int, instructions: list[Instruction], counts: list[int]) -> str:
    """Say how much of the time is the kernel's, and how much of that is moves."""

    def share(chosen: Callable[[Instruction], bool]) -> str:
        n = sum(n for x, n in zip(instructions, counts, strict=True) if x.moves and chosen(x))
        return f"{100 * n / max(1, sum(counts)):.0f} %"

    return (
        f"{samples:,} samples, {100 * sum(counts) / max(1, samples):.0f} % of them in the kernel, and of these "
        f"{share(lambda x: True)} in moves: {share(lambda x: x.loads)} from memory, {share(lambda x: x.stores)} to "
        f"memory; {share(lambda x: x.added)} are spills and reloads"
    )


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="a task, an MJCF file, or package/path of a model")
    parser.add_argument("--dtype", default="float32", choices=list(DTYPES))
    parser.add_argument("--worlds", type=int, default=WORLDS)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long to sample")
    parser.add_argument("--top", type=int, default=TOP, help="rows of each table")
    parser.add_argument("--lines", action="store_true", help="lines of source in place of functions")
    args = parser.parse_args(argv)
    if lacking := missing():
        sys.exit(f"this needs {' and '.join(lacking)}")
    torch.set_num_threads(1)
    try:
        with recorded() as located:
            one = subject(args.name, args.worlds, args.dtype)
    except ValueError as error:
        sys.exit(str(error))
    vectors = -(-args.worlds // one.kernel.lanes) * one.steps
    seconds = turns({"": one.run}, ROUNDS, before=lambda _: one.before(), first=2)[""]
    try:
        samples = sampled(one, args.seconds)
    except OSError as error:
        sys.exit(str(error))
    instructions = located.instructions(one.kernel.address)
    counts = by_instruction(samples, instructions, one.kernel.address)
    print(
        f"{args.name}, {args.dtype}: {1e6 * statistics.median(seconds) / vectors:.1f} µs for a vector of "
        f"{one.kernel.lanes} worlds and {one.what} step; {len(instructions):,} instructions\n"
        f"{summary(samples.total(), instructions, counts)}"
    )
    what = "line" if args.lines else "function"
    named: dict[str, Callable[[Instruction], Iterable[str]]] = {
        f"innermost {what}": lambda x: [label(x.chain[0], args.lines)],
        f"{what}, inclusive": lambda x: (label(frame, args.lines) for frame in x.chain),
        "instruction": lambda x: [x.text.split()[0]],
    }
    for title, names in named.items():
        print("\n" + table(title, instructions, counts, names, args.top))


if __name__ == "__main__":
    mujoco.set_mju_user_warning(lambda _: None)
    warnings.simplefilter("ignore")
    main()

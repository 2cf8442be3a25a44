"""What NVIDIA's assembler makes of the kernels, and how many instructions they run: without a GPU.

    python -m benchmarks.cuda_code                    # all tasks, some minutes on one core
    python -m benchmarks.cuda_code --tasks Hopper     # only these anew
    python -m benchmarks.cuda_code --render           # nothing anew: the table from the data that is there

Code is made for `sm_90` by NVIDIA's ptxas. The instructions of an environment step are counted by running the PTX
(tests/ptx.py) from states that random actions lead to, in warps, and counting for each of its blocks the machine
instructions that nvdisasm shows for its lines. Writes results/cuda-code.json and the tables of docs/cuda.md.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import json
import re
import resource
import struct
import subprocess
import sys
import tempfile
import time
from bisect import bisect_right
from collections import Counter
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from gymnasium.vector import AutoresetMode

from torch_mjenvs.compiler import cuda, launch
from torch_mjenvs.compiler.control import unrolling
from torch_mjenvs.compiler.llvm import NVIDIA
from torch_mjenvs.envs.engine import Engine
from torch_mjenvs.envs.episode import Episode
from torch_mjenvs.envs.tasks.registry import TASKS
from torch_mjenvs.physics import load
from torch_mjenvs.physics.model.precision import PRECISIONS

from .report import put, table

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "benchmarks" / "results" / "cuda-code.json"
PAGE = ROOT / "docs" / "cuda.md"
BEGIN, END = "<!-- written by benchmarks/cuda_code.py -->", "<!-- end of what benchmarks/cuda_code.py wrote -->"
ARCH = "sm_90"
WARMUP, MEASURED, WORLDS = 300, 4, 512  # environment steps, and worlds: 16 warps

REGISTERS = 65536  # of a multiprocessor


# code


@functools.cache
def ptx(task: str, what: str, dtype: str, mode: AutoresetMode = AutoresetMode.NEXT_STEP) -> str:
    """The code of a task's kernel `what`, as an environment with the task's own arguments has it."""
    made = TASKS[task]()
    episode = Episode(made, load(made.load()), mode, made.max_episode_steps, PRECISIONS[dtype])
    with unrolling(NVIDIA.unroll_limit):
        return cuda.assembly(episode.program(what, dtype))


def tool(name: str) -> str | None:
    """A program of NVIDIA's toolkit, as the packages nvidia-cuda-nvcc and nvidia-cuda-nvdisasm bring it."""
    spec = find_spec("nvidia")
    for folder in spec.submodule_search_locations or () if spec else ():
        if (path := Path(folder) / "cu13" / "bin" / name).exists():
            return str(path)
    return None


@dataclass(frozen=True)
class Code:
    """What ptxas says of a kernel: registers a thread, bytes of stack and spills a thread, bytes of code."""

    registers: int
    stack: int
    spill_stores: int
    spill_loads: int
    code_bytes: int


def assemble(text: str, arch: str = ARCH, options: tuple[str, ...] = ()) -> tuple[Code, bytes]:
    """Machine code of PTX and what it takes. Raises RuntimeError for PTX that ptxas does not take."""
    ptxas = tool("ptxas")
    if ptxas is None:
        raise RuntimeError("there is no ptxas: pip install nvidia-cuda-nvcc")
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
        source.write_text(text)
        command = [ptxas, "-v", f"-arch={arch}", *options, str(source), "-o", str(target)]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode:
            raise RuntimeError(f"ptxas: {run.stderr.strip()}")
        cubin = target.read_bytes()
    found = [
        re.search(rf"(\d+) {what}", run.stderr) for what in ("bytes stack", "bytes spill stores", "bytes spill loads")
    ]
    numbers = [int(match[1]) if match else 0 for match in found]
    used = re.search(r"Used (\d+) registers", run.stderr)
    if used is None:
        raise RuntimeError(f"ptxas: {run.stderr.strip()}")
    return Code(int(used[1]), *numbers, code_bytes=_section_bytes(cubin, ".text.kernel")), cubin


def _section_bytes(elf: bytes, name: str) -> int:
    """The size of a section of a 64-bit ELF file."""
    start, size, count, names = *struct.unpack_from("<Q", elf, 0x28), *struct.unpack_from("<3H", elf, 0x3A)
    sections = [struct.unpack_from("<IIQQQQ", elf, start + size * k) for k in range(count)]
    strings = sections[names][4]
    for at, _, _, _, _, length in sections:
        if elf[strings + at :].startswith(name.encode() + b"\0"):
            return length
    raise ValueError(f"there is no section {name}")


# machine instructions of a block of PTX

KINDS = {
    "float": {"FADD", "FMUL", "FFMA", "HFMA2"},
    "local": {"LDL", "STL"},
    "global": {"LDG", "STG"},
    "branch": {"BRA", "BSSY", "BSYNC", "EXIT", "BREAK", "WARPSYNC"},
}  # HFMA2 only as a way to move a constant; of all others there is one kind, "other"
_LINE = re.compile(r'//## File ".*", line (\d+)')
_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z]\w+)(\.[\w.]+)?(.*);")
_FIXED = re.compile(r"\[R1(?:\+0x([0-9a-f]+))?\]")  # R1 is where a thread's stack begins
_DEPOT = re.compile(r"\.local .*__local_depot\d+\[(\d+)\]")
WIDTHS = {".U8": 1, ".S8": 1, ".U16": 2, ".64": 8, ".128": 16}


def depot_bytes(text: str) -> int:
    """Return the bytes that PTX itself keeps on a thread's stack, below the assembler's spills: loops' memories."""
    match = _DEPOT.search(text)
    return int(match[1]) if match else 0


@dataclass
class Share:
    """The share of one block of PTX: its machine instructions by kind, and the bytes that a thread moves."""

    instructions: Counter[str] = field(default_factory=Counter)
    local_bytes: int = 0
    spilled_bytes: int = 0
    global_bytes: int = 0


def shares(text: str, firsts: list[int]) -> list[Share]:
    """For blocks of PTX that begin at these lines, the machine instructions made of them.

    The slow path of a division or root, a call that hardly any number needs, is left out.
    """
    nvdisasm = tool("nvdisasm")
    if nvdisasm is None:
        raise RuntimeError("there is no nvdisasm: pip install nvidia-cuda-nvdisasm")
    _, cubin = assemble(_with_lines(text), options=("-lineinfo",))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        listing = subprocess.run([nvdisasm, "-g", "-c", str(path)], capture_output=True, text=True, check=True).stdout
    out = [Share() for _ in firsts]
    line, depot = firsts[0], depot_bytes(text)
    straight: list[tuple[int, str, str, str]] = []  # up to the next branch or label

    def close() -> None:
        if not any(name == "CALL" for _, name, _, _ in straight):
            for at, name, suffix, operands in straight:
                share = out[bisect_right(firsts, at) - 1]
                kind = next((kind for kind, names in KINDS.items() if name in names), "other")
                share.instructions[kind] += 1
                size = next((size for mark, size in WIDTHS.items() if mark in suffix), 4)
                share.global_bytes += size * (kind == "global")
                if kind == "local":
                    share.local_bytes += size
                    # a spill is known by its place: ptxas marks few of them "SpillRefill"
                    fixed = _FIXED.search(operands)
                    share.spilled_bytes += size * (fixed is not None and int(fixed[1] or "0", 16) >= depot)
        straight.clear()

    for row in listing.splitlines():
        if match := _LINE.search(row):
            line = int(match[1])
        elif row.startswith("$__internal"):
            break  # the slow paths themselves
        elif row.startswith("."):
            close()
        elif (match := _INSTRUCTION.search(row)) and match[1] != "NOP":
            straight.append((line, match[1], match[2] or "", match[3]))
            if match[1] in ("BRA", "EXIT"):
                close()
    close()
    return out


def _with_lines(text: str) -> str:
    """Return PTX that names the line of each instruction; the machine code is the same."""
    out = []
    for k, row in enumerate(text.splitlines(), 1):
        if row.startswith("\t") and row.endswith(";") and not row.strip().startswith("."):
            out.append(f".loc 1 {k} 0")
        out.append(row)
        if row.startswith(".address_size"):
            out.append('.file 1 "kernel.ptx"')
    return "\n".join(out) + "\n"


# what is measured


def kernel(task: str, what: str, dtype: str) -> dict:
    """Code of one kernel, and the processor seconds that making it took."""
    began = time.process_time()
    text = ptx.__wrapped__(task, what, dtype)
    made = time.process_time() - began
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    code, _ = assemble(text)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    names = {"task": task, "what": what, "dtype": dtype, "depot": depot_bytes(text)}
    return names | {"ptx_bytes": len(text), "ptx_s": made, "ptxas_s": spent} | asdict(code)


def step(task: str) -> dict:
    """Measure what warps do in an environment step, float32: means per warp, or per world, and per step."""
    sys.path.insert(0, str(ROOT / "tests"))
    from ptx import WARP, Machine, issues

    engine = in_play(task)
    machine = Machine(ptx(task, "step", "float32"), trace=True)
    blocks = machine.program.blocks
    lines = [next(s.line for b in blocks[k:] for s in b.statements) for k in range(len(blocks))]
    of_block = sorted(range(len(blocks)), key=lambda k: lines[k])
    made = shares(ptx(task, "step", "float32"), [lines[k] for k in of_block])
    share = dict(zip(of_block, made, strict=True))
    runs, visits = np.zeros(len(blocks)), np.zeros(len(blocks))
    for _ in range(MEASURED):
        engine.action.uniform_(-1, 1)
        ways = machine.launch(list(engine.buffers.values()), launch.padded(WORLDS))
        runs += issues(machine.program, ways).mean(0) / MEASURED
        visits += np.bincount(np.concatenate(ways), minlength=len(blocks)) / (MEASURED * WORLDS)
    kinds = {kind: sum(runs[k] * s.instructions[kind] for k, s in share.items()) for kind in (*KINDS, "other")}
    useful = sum(visits[k] * s.instructions.total() for k, s in share.items())
    moved = {
        name: sum(visits[k] * getattr(s, name) for k, s in share.items())
        for name in ("local_bytes", "spilled_bytes", "global_bytes")
    }
    total = sum(kinds.values())
    return {
        "task": task, "physics_steps": engine.task.frame_skip, "instructions": total, "kinds": kinds,
        "threads_active": useful / total * WORLDS / (WORLDS // WARP * WARP), **moved,
    }  # fmt: skip


def in_play(task: str) -> Engine:
    """Return worlds some seconds after their reset, under random actions, stepped by the program that a GPU has."""
    made = TASKS[task]()
    with unrolling(NVIDIA.unroll_limit):
        engine = Engine(made, WORLDS, device="cpu", max_episode_steps=made.max_episode_steps)
    torch.manual_seed(0)
    engine.seed(0)
    engine.reset()
    for _ in range(WARMUP):
        engine.action.uniform_(-1, 1)
        engine.step()
    return engine


# tables


def resident_warps(registers: int) -> int:
    """How many warps a multiprocessor holds at once, as `CudaKernel` counts them: a scheduler has a quarter of it."""
    return min(32, 4 * (REGISTERS // 4 // (-(-registers // 8) * 8 * 32)))


def markdown(data: dict) -> str:
    kernels = {(k["task"], k["what"]): k for k in data["kernels"]}
    rows = [
        [
            f"{task}, {what}", f"{k['ptx_bytes'] / 1e3:,.0f} kB", f"{k['ptx_s']:.1f} s", f"{k['ptxas_s']:.1f} s",
            str(k["registers"]), f"{k['stack']:,} B", f"{k['stack'] - k['depot']:,} B",
            f"{k['spill_stores']:,} B", f"{k['spill_loads']:,} B",
            f"{k['code_bytes'] / 1e3:,.0f} kB",
        ]
        for (task, what), k in kernels.items()
    ]  # fmt: skip
    head = [
        "kernel, float32",
        "PTX",
        "made in",
        "ptxas",
        "registers",
        "stack",
        "of it spills",
        "spill stores",
        "loads",
        "code",
    ]
    work_head = ["task", "instructions", "threads active", *KINDS, "other", "local", "spills", "global"]
    work = []
    for run in data["steps"]:
        kinds, total = run["kinds"], run["instructions"]
        parts = [f"{100 * kinds[k] / total:.0f} %" for k in (*KINDS, "other")]
        moved = [f"{run[k] / 1e3:,.1f} kB" for k in ("local_bytes", "spilled_bytes", "global_bytes")]
        work.append([run["task"], f"{total:,.0f}", f"{100 * run['threads_active']:.0f} %", *parts, *moved])
    return "\n\n".join(
        [
            f"{data['date']}, ptxas {data['ptxas']}, {ARCH}. Registers, stack and spills are a thread's; seconds are "
            "of one processor core.",
            table(head, rows),
            "One environment step of a warp, in machine instructions: counted by running the PTX, not measured. "
            "*Threads active*: of the warp's, over instructions. Bytes are a world's; *spills* are part of *local*: by "
            "their place, above the memories of loops.",
            table(work_head, work),
        ]
    )


def version() -> str:
    text = subprocess.run([tool("ptxas") or "ptxas", "--version"], capture_output=True, text=True, check=True).stdout
    return re.search(r"V([\d.]+)", text)[1]  # type: ignore[index]


def main(argv: list[str] | None = None) -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--tasks", nargs="*", choices=TASKS, default=tuple(TASKS))
    p.add_argument("--render", action="store_true", help="nothing anew: the tables from the data that is there")
    args = p.parse_args(argv)
    data = json.loads(DATA.read_text()) if DATA.exists() else {"kernels": [], "steps": []}
    if not args.render:
        torch.set_num_threads(1)
        data |= {"date": datetime.date.today().isoformat(), "ptxas": version()}
        for task in args.tasks:
            found = [kernel(task, what, "float32") for what in ("step", "reset")]
            data["kernels"] = _in_order([k for k in data["kernels"] if k["task"] != task] + found)
            data["steps"] = _in_order([k for k in data["steps"] if k["task"] != task] + [step(task)])
            DATA.write_text(json.dumps(data, indent=1) + "\n")
    put(PAGE, BEGIN, END, markdown(data))
    print(markdown(data))


def _in_order(records: list[dict]) -> list[dict]:
    return sorted(records, key=lambda r: list(TASKS).index(r["task"]))


if __name__ == "__main__":
    main()

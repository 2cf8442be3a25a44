"""Which kernels a change alters: a digest of the LLVM IR of every task's kernels, and how many operations they hold.

    python -m benchmarks.kernel_ir            # compare with what is kept; status 1 if anything differs
    python -m benchmarks.kernel_ir --write    # keep what the code gives now

A change of structure alone leaves every digest as it was. The IR is made for one fixed x86-64 processor with AVX-512
and for NVIDIA's GPUs, so it is the same on every machine with the same MuJoCo and LLVM.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from pathlib import Path

import torch
from gymnasium.vector import AutoresetMode

from torch_mjenvs import TASKS
from torch_mjenvs.compiler.control import unrolling
from torch_mjenvs.compiler.llvm import NVIDIA, render, render_thread
from torch_mjenvs.envs.engine import episode_of
from torch_mjenvs.physics import load

KEPT = Path(__file__).parent / "results" / "kernel-ir.json"
KERNELS = ("step", "reset", "refresh")
DTYPES = {"float32": 16, "float64": 8}  # lanes of a vector of 64 bytes


def kernels() -> dict[str, dict]:
    """By task, kernel and dtype: the digests for both back ends, and the operations in the CPU's graph."""
    found = {}
    for task in TASKS.values():
        for dtype, lanes in DTYPES.items():
            model = load(task().load())
            episode = episode_of(task(), model, getattr(torch, dtype), AutoresetMode.SAME_STEP, 1000)
            for what in KERNELS:
                program = episode.program(what, dtype)
                with unrolling(NVIDIA.unroll_limit):
                    apart = episode.program(what, dtype)
                texts = {"cpu": render(program, lanes), "cuda": render_thread(apart)}
                digests = {back: hashlib.sha256(text.encode()).hexdigest()[:16] for back, text in texts.items()}
                found[f"{task.__name__} {what} {dtype}"] = digests | {"operations": program.count_ops().total()}
                print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="keep what the code gives now")
    write = parser.parse_args().write
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    found = kernels()
    for name in sorted(kept.keys() | found.keys()):
        before, now = kept.get(name), found.get(name)
        if before != now:
            counts = " -> ".join(str(x["operations"]) if x else "none" for x in (before, now))
            print(f"{name}: operations {counts}")
    if write:
        KEPT.write_text(json.dumps(found, indent=1) + "\n")
    elif kept == found:
        print(f"all {len(found)} kernels are as they were")
    return int(kept != found and not write)


if __name__ == "__main__":
    sys.exit(main())

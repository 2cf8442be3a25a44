"""Compile time, cold and cached, and memory: each in a process of its own, in which all imports but those of this
module are timed, too.

python -m benchmarks.compiling HalfCheetah float32 65536     # what such a process prints; 0: no look at memory
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def measure(task: str, dtype: str, worlds: int, quiet: float) -> dict[str, float | bool]:
    """Seconds to construct an environment, imports apart, and bytes a world."""
    for _ in range(2):  # again if others kept the machine busy
        with tempfile.TemporaryDirectory() as cache:
            cold = probe(task, dtype, 0, cache)
            cached = probe(task, dtype, worlds, cache)
        foreign = max(cold["foreign_cores"], cached["foreign_cores"])
        if foreign <= quiet:
            break
    return {
        "cold_s": cold["first_s"],
        "cached_s": cached["first_s"],
        "again_s": cached["second_s"],
        "import_s": cached["import_s"],
        "disturbed": foreign > quiet,
        "buffer_bytes_a_world": cached["buffer_bytes_a_world"],
        "resident_bytes_a_world": cached["resident_bytes_a_world"],
    }


def probe(task: str, dtype: str, worlds: int, cache: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.compiling", task, dtype, str(worlds)]
    environment = os.environ | {"TORCH_MJENVS_CACHE": cache}
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if run.returncode:
        raise RuntimeError(f"probe of {task} failed:\n{run.stderr}")
    return json.loads(run.stdout.splitlines()[-1])


# in the process of its own


def resident_bytes() -> int:
    """This process's memory; 0 where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def main() -> None:
    name, dtype, worlds = sys.argv[1], sys.argv[2], int(sys.argv[3])
    began = time.perf_counter()
    from .cases import CASES, make
    from .machine import DTYPES, Watch

    out = {"import_s": time.perf_counter() - began}
    case, precision = CASES[name], DTYPES[dtype]
    watch = Watch()
    for key in ("first_s", "second_s"):
        began = time.perf_counter()
        make(case, 16, precision)
        out[key] = time.perf_counter() - began
        if key == "first_s":
            out["foreign_cores"] = watch.foreign_cores()
    if worlds:
        out |= memory(case, precision, worlds)
    print(json.dumps(out))


def memory(case, dtype, worlds: int) -> dict[str, float]:  # the types are imported where imports are timed
    from .cases import make

    before = resident_bytes()
    env, engine = make(case, worlds, dtype)
    for _ in range(3):  # untouched pages are not resident
        env.step(engine.action.uniform_(-0.1, 0.1))
    grown = resident_bytes() - before
    held = sum(x.numel() * x.element_size() for x in engine.buffers.values())
    return {"buffer_bytes_a_world": held / worlds, "resident_bytes_a_world": grown / worlds, "worlds": worlds}


if __name__ == "__main__":
    main()

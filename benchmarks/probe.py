"""Run in a new process: how long construction takes, and how much memory a world takes. Prints JSON.

python benchmarks/probe.py HalfCheetah float32 65536     # 0: do not look at memory
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path


def resident_bytes() -> int:
    """This process's memory; 0 where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def main() -> None:
    name, dtype, worlds = sys.argv[1], sys.argv[2], int(sys.argv[3])
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    began = time.perf_counter()
    from benchmarks import ours
    from benchmarks.cases import CASES, DTYPES
    from benchmarks.timing import Watch

    out = {"import_s": time.perf_counter() - began}
    case, precision = CASES[name], DTYPES[dtype]
    watch = Watch()
    for key in ("first_s", "second_s"):
        began = time.perf_counter()
        ours.make(case, 16, precision)
        out[key] = time.perf_counter() - began
        if key == "first_s":
            out["foreign_cores"] = watch.foreign_cores()
    if worlds:
        out |= memory(case, precision, worlds)
    print(json.dumps(out))


def memory(case, dtype, worlds: int) -> dict[str, float]:  # the types are imported where imports are timed
    from benchmarks import ours

    before = resident_bytes()
    env, engine = ours.make(case, worlds, dtype)
    for _ in range(3):  # untouched pages are not resident
        env.step(engine.action.uniform_(-0.1, 0.1))
    grown = resident_bytes() - before
    held = sum(x.numel() * x.element_size() for x in engine.buffers.values())
    return {"buffer_bytes_a_world": held / worlds, "resident_bytes_a_world": grown / worlds, "worlds": worlds}


if __name__ == "__main__":
    main()

"""Compile time, cold and cached, each in a process of its own, and memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from .cases import QUIET, Case

ROOT = Path(__file__).resolve().parents[1]


def measure(case: Case, dtype: str, worlds: int) -> dict[str, float | bool]:
    """Seconds to construct an environment, imports apart, and bytes a world."""
    for _ in range(2):  # once more if others kept the machine busy
        with tempfile.TemporaryDirectory() as cache:
            cold = probe(case, dtype, 0, cache)
            cached = probe(case, dtype, worlds, cache)
        foreign = max(cold["foreign_cores"], cached["foreign_cores"])
        if foreign <= QUIET:
            break
    return {
        "cold_s": cold["first_s"],
        "cached_s": cached["first_s"],
        "again_s": cached["second_s"],
        "import_s": cached["import_s"],
        "disturbed": foreign > QUIET,
        "buffer_bytes_a_world": cached["buffer_bytes_a_world"],
        "resident_bytes_a_world": cached["resident_bytes_a_world"],
    }


def probe(case: Case, dtype: str, worlds: int, cache: str) -> dict[str, float]:
    command = [sys.executable, str(ROOT / "benchmarks" / "probe.py"), case.name, dtype, str(worlds)]
    environment = os.environ | {"TORCH_MJENVS_CACHE": cache}
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if run.returncode:
        raise RuntimeError(f"probe of {case.name} failed:\n{run.stderr}")
    return json.loads(run.stdout.splitlines()[-1])

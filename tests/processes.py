"""Scripts run in a process of their own, killed with its children when they take too long: a hang is a failure."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def run(script: str, *arguments: str, seconds: float = 60, **environment: str) -> str:
    """Run a script and return what it printed. Fails if it, or a child of it, fails or hangs."""
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script, *arguments],
        cwd=ROOT, env=os.environ | environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        pytest.fail(f"hung for {seconds} s")
    assert process.returncode == 0, err[-3000:]
    return out

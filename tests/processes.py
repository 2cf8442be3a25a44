"""Python in a process of its own, killed with its children when it takes too long: a hang is a failure.

On Linux it is forked from a process that has imported this package (`fork_server.py`): most of such a test's time was
that import. Variables of the environment that are read during the import have the given values, since there is a server
for each set of these.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
QUIETLY = [sys.executable, "-W", "ignore::DeprecationWarning"]
# The names of variables that are read while this package and torch are imported.
READ_BEFORE = re.compile("CUDA|GOMP|KMP|LD_|MALLOC|MKL|MUJOCO|OMP|OPENBLAS|PYOPENGL|PYTHON|TORCH(?!_MJENVS)")


def run(script: str, *arguments: str, seconds: float = 60, anew: bool = False, **environment: str) -> str:
    """Run a script and return what it printed. Fails if it, or a child of it, fails or hangs.

    `anew`: for scripts that are about the import of the package.
    """
    done = python("-c", script, *arguments, seconds=seconds, anew=anew, **environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def python(
    *command: str, seconds: float = 300, folder: Path = ROOT, anew: bool = False, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run Python with this command line, `-c CODE ...`, `-m MODULE ...` or `FILE ...`; fails if it hangs."""
    given = os.environ | environment
    if sys.platform == "linux" and not anew:
        before = tuple(sorted((name, value) for name, value in given.items() if READ_BEFORE.match(name)))
        return _server(before).run(command, seconds, folder, given)
    process = subprocess.Popen(
        [*QUIETLY, *command], cwd=folder, env=given, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill() if sys.platform == "win32" else os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        pytest.fail(f"hung for {seconds} s")
    return subprocess.CompletedProcess(command, process.returncode, out, err)


class _Server:
    """A `fork_server.py`, whose environment has these variables. It ends with this process."""

    def __init__(self, before: tuple[tuple[str, str], ...]) -> None:
        others = {name: value for name, value in os.environ.items() if not READ_BEFORE.match(name)}
        command = [*QUIETLY, str(ROOT / "tests" / "fork_server.py")]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=others | dict(before), stdin=pipe, stdout=pipe, bufsize=0
        )
        atexit.register(self._process.communicate)  # which closes its input, and waits

    def run(
        self, command: tuple[str, ...], seconds: float, folder: Path, environment: dict[str, str]
    ) -> subprocess.CompletedProcess[str]:
        requests, answers = self._process.stdin, self._process.stdout
        assert requests is not None and answers is not None
        with tempfile.NamedTemporaryFile("r") as out, tempfile.NamedTemporaryFile("r") as err:
            request = {"command": command, "folder": str(folder), "environment": environment}
            requests.write(json.dumps(request | {"out": out.name, "err": err.name}).encode() + b"\n")
            requests.flush()
            child = int(answers.readline())
            hung = not select.select([answers], [], [], seconds)[0]
            if hung:
                os.killpg(child, signal.SIGKILL)
            status = os.waitstatus_to_exitcode(int(answers.readline()))
            if hung:
                pytest.fail(f"hung for {seconds} s")
            return subprocess.CompletedProcess(command, status, out.read(), err.read())


_server = functools.cache(_Server)

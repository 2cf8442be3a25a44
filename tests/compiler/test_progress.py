"""What stderr says while a kernel takes long to build."""

from __future__ import annotations

import io
import re
import sys
import time
from pathlib import Path

import pytest

from torch_mjenvs import Simulation
from torch_mjenvs.compiler import progress as module
from torch_mjenvs.compiler.progress import progress
from torch_mjenvs.physics import simulation_kernels

# Of no other test: it is not in use, and not kept, when it is asked for.
SLEDGE = """<mujoco><worldbody><body name="sledge"><joint type="slide" damping="0.123"/>
  <geom size=".1" mass="3.21"/></body></worldbody></mujoco>"""


@pytest.fixture(autouse=True)
def not_silenced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCH_MJENVS_PROGRESS", raising=False)


def wait_for(stream: io.StringIO, text: str) -> None:
    """Until it has been said three times."""
    end = time.monotonic() + 30
    while stream.getvalue().count(text) < 3 and time.monotonic() < end:
        time.sleep(0.001)
    assert stream.getvalue().count(text) >= 3


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_what_is_quick_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("tidying up"):
        pass
    assert capsys.readouterr() == ("", "")


def test_what_is_slow_says_so_in_ever_fewer_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.01)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with progress("tidying up"):
        wait_for(sys.stderr, "torch_mjenvs: tidying up, 0 s so far\n")
        lines = sys.stderr.getvalue().count("\n")
    said = sys.stderr.getvalue()
    assert 3 <= lines < 12, "0.01, 0.02, 0.04 s and so on apart"
    assert said.endswith("torch_mjenvs: tidying up took 0 s\n")
    assert "\r" not in said


def test_a_terminal_has_one_line_which_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.01)
    monkeypatch.setattr(module, "SECOND", 0.01)
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress("tidying up"):
        wait_for(sys.stderr, "\rtorch_mjenvs: tidying up, 0 s so far\x1b[K")
    assert "\n" not in sys.stderr.getvalue()
    assert sys.stderr.getvalue().endswith("\r\x1b[K")


def test_an_environment_variable_silences_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.001)
    monkeypatch.setenv("TORCH_MJENVS_PROGRESS", "0")
    with progress("tidying up"):
        time.sleep(0.05)
    assert capsys.readouterr() == ("", "")


def test_without_stderr_or_with_one_that_is_closed_all_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.001)
    closed = io.StringIO()
    closed.close()
    for stream in (None, closed):
        monkeypatch.setattr(sys, "stderr", stream)
        with progress("tidying up"):
            time.sleep(0.02)


def test_an_error_goes_on_its_way() -> None:
    with pytest.raises(KeyError), progress("tidying up"):
        raise KeyError


def test_a_slow_build_says_what_is_being_done(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """As it is traced and as it is compiled; but not where what was compiled is found."""
    monkeypatch.setenv("TORCH_MJENVS_CACHE", str(tmp_path))
    monkeypatch.setattr(module, "PATIENCE", 0.001)
    record = simulation_kernels.program  # which is made slow, on any machine
    monkeypatch.setattr(simulation_kernels, "program", lambda *given: (time.sleep(0.1), record(*given))[1])
    kept = Simulation(SLEDGE, 1)
    said = capsys.readouterr().err
    for doing in ("tracing", "compiling"):
        assert re.search(f"^torch_mjenvs: {doing} the kernel 'step', 0 s so far$", said, re.MULTILINE), said
    Simulation(SLEDGE, 1)
    assert "compiling" not in capsys.readouterr().err
    assert kept.num_worlds == 1

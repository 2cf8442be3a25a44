"""OpenMP's threads spin while the processors are theirs, and sleep while others want them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from torch_mjenvs.compiler import cpu, waiting

pytestmark = [
    pytest.mark.cpu,
    pytest.mark.skipif(cpu.team() is None, reason="torch's OpenMP is not GNU's"),
]

SECOND = 10**9


def threads_of_this_process() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def settle(condition) -> bool:
    """Wait until something holds that other threads do, for 10 s at most."""
    for _ in range(1000):
        if condition():
            return True
        time.sleep(0.01)
    return False


@pytest.fixture
def looking(monkeypatch):
    """A `Waiting` whose threads' statistics are told by the test: what `tell(ran, stood)` adds, in seconds."""
    told, found = [1 * SECOND, 0], waiting.Waiting()
    monkeypatch.setattr(waiting, "SECONDS", 0.0)
    monkeypatch.setattr(waiting, "standing_in_line", lambda: tuple(told))
    team = cpu.team()

    def tell(ran: float, stood: float) -> bool:
        told[0] += int(ran * SECOND)
        told[1] += int(stood * SECOND)
        found.look(team.start, team.number, 2)
        return found.asleep

    yield tell
    if found._leave:
        found._leave.set()


def test_threads_sleep_while_others_want_the_processors(looking):
    before = threads_of_this_process()
    assert not looking(1.0, 0.0) and not looking(0.9, 0.05), "alone, or nearly so"
    assert not looking(0.001, 0.01), "hardly anything to tell from"
    assert looking(0.5, 0.5)
    assert settle(lambda: threads_of_this_process() > before), "an idle team"
    for _ in range(waiting.LOOKS - 1):
        assert looking(1.0, 0.0)
    assert looking(0.9, 0.05), "not yet alone for long enough"
    for _ in range(waiting.LOOKS - 1):
        assert looking(1.0, 0.0)
    assert not looking(1.0, 0.0)
    assert settle(lambda: threads_of_this_process() == before), "the idle team is gone"


WAITS = """
import os, time, torch
from torch_mjenvs.compiler import cpu, waiting
torch.set_num_threads(2)
team = cpu.team()
def seconds():
    start = time.process_time()
    for _ in range(20):
        team.start(team.number, 0, 2, 0)
        time.sleep(0.02)
    return time.process_time() - start
seconds()
spinning = seconds()
found = waiting.Waiting()
found._crowd(team.start, team.number, (os.cpu_count() or 1) - 2 + 2)
time.sleep(0.2)
asleep = seconds()
found._leave.set()
time.sleep(0.2)
print(spinning, asleep, seconds())
"""


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="with one processor they never spin")
def test_threads_that_sleep_use_no_processor():
    """In a process of its own, where no thread is left from other tests; times are of the processor, not the clock."""
    environment = {name: x for name, x in os.environ.items() if name not in waiting.CHOSEN}  # conftest.py has chosen
    run = subprocess.run(
        [sys.executable, "-c", WAITS], env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    told = run.stdout
    spinning, asleep, again = map(float, told.split())
    assert asleep < 0.3 * spinning and asleep < 0.3 * again, told


def test_nothing_is_watched_where_the_user_chose_or_nothing_is_known(monkeypatch, tmp_path):
    for name in waiting.CHOSEN:
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "schedstat").write_text("70 30 2")
    monkeypatch.setattr(waiting, "STATISTICS", str(tmp_path / "schedstat"))
    assert waiting.standing_in_line() == (70, 30)
    for name in waiting.CHOSEN:
        with monkeypatch.context() as patch:
            patch.setenv(name, "active" if "POLICY" in name else "1000")
            assert waiting.standing_in_line() is None
    for content in ("0 0 0", "", "none"):
        (tmp_path / "schedstat").write_text(content)
        assert waiting.standing_in_line() is None
    found, team = waiting.Waiting(), cpu.team()
    found.look(team.start, team.number, 2)
    assert not found.asleep and found._due == float("inf")


def test_launches_look(monkeypatch):
    from torch_mjenvs import TorchVectorEnv

    seen = []
    monkeypatch.setattr(waiting.waiting, "look", lambda *args: seen.append(args[2]))
    with torch.device("cpu"):
        env = TorchVectorEnv("InvertedPendulum", 1024, device="cpu")
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        env.reset(seed=0)
    finally:
        torch.set_num_threads(threads)
    assert seen and set(seen) == {2}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
def test_a_forked_child_looks_anew():
    found = waiting.waiting
    found._before = (1, 2, 3)
    pid = os.fork()
    if not pid:
        os._exit(0 if found._before is None and not found.asleep else 1)
    found.forget()
    assert os.waitpid(pid, 0)[1] == 0

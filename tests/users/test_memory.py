"""What is too large for the memory that this process may take is refused; nobody is killed for it."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
import torch

from torch_mjenvs import Simulation, TorchVectorEnv, memory
from torch_mjenvs.envs.tasks.hopper import Hopper

pytestmark = pytest.mark.cpu
GIB = 2**30


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine of 100 GiB, of which files that a test writes tell."""
    monkeypatch.setattr(memory, "ROOT", tmp_path)
    for name in ("SLURM_MEM_PER_NODE", "SLURM_MEM_PER_CPU", "SLURM_CPUS_ON_NODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("resource.getrlimit", lambda _: (-1, -1))

    def write(path: str, text: object) -> None:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(f"{text}\n")

    kilobytes = GIB // 1024
    write(
        "proc/meminfo",
        f"MemTotal: {120 * kilobytes} kB\nMemAvailable: {98 * kilobytes} kB\nSwapFree: {2 * kilobytes} kB",
    )
    write(
        "proc/self/status",
        f"Name:\tpython\nVmSize:\t{5 * kilobytes} kB\nVmRSS:\t{kilobytes} kB\nVmData:\t{3 * kilobytes} kB",
    )
    return write


def test_what_the_machine_has_is_the_limit_where_there_is_no_other(machine):
    assert memory.available() == (100 * GIB, "this machine")


def version_2(machine, group: str) -> str:
    machine("proc/self/cgroup", f"0::{group}")
    machine(
        "proc/self/mountinfo",
        "31 23 0:28 / /sys/fs/cgroup rw,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate",
    )
    return "sys/fs/cgroup"


def version_1(machine, group: str, mounted: str = "/") -> str:
    machine("proc/self/cgroup", f"5:cpu,cpuacct:/elsewhere\n4:memory:{group}\n0::/")
    rows = [
        "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755",
        "34 31 0:31 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct",
        f"35 31 0:32 {mounted} /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory",
        "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw",
    ]
    machine("proc/self/mountinfo", "\n".join(rows))
    return "sys/fs/cgroup/memory"


def test_a_control_group_of_version_2(machine):
    """Its limit, less what it uses, with the file cache that the kernel gives up first, and the swap it may take."""
    top = version_2(machine, "/job/step")
    machine(f"{top}/job/step/memory.max", 8 * GIB)
    machine(f"{top}/job/step/memory.current", 3 * GIB)
    machine(f"{top}/job/step/memory.stat", f"anon {GIB}\ninactive_file {GIB}")
    machine(f"{top}/job/step/memory.swap.max", GIB)
    machine(f"{top}/job/step/memory.swap.current", GIB // 2)
    assert memory.available() == (6.5 * GIB, "the control group's limit of 8.0 GiB")
    machine(f"{top}/job/step/memory.max", "max")
    assert memory.available() == (100 * GIB, "this machine")
    machine(f"{top}/job/memory.max", 4 * GIB)  # what holds it counts, too
    machine(f"{top}/job/memory.current", 5 * GIB)
    machine(f"{top}/job/memory.swap.max", 0)
    machine(f"{top}/job/memory.swap.current", 0)
    assert memory.available() == (0, "the control group's limit of 4.0 GiB")


@pytest.mark.parametrize(
    ("group", "mounted", "folder"), [("/a/b", "/", "/a/b"), ("/docker/x/y", "/docker/x", "/y"), ("/", "/docker/x", "")]
)
def test_a_control_group_of_version_1(machine, group, mounted, folder):
    """Of the machine, and of a container, which sees its own group as the top one."""
    top = version_1(machine, group, mounted)
    machine(f"{top}{folder}/memory.limit_in_bytes", 10 * GIB)
    machine(f"{top}{folder}/memory.usage_in_bytes", 4 * GIB)
    machine(f"{top}{folder}/memory.stat", f"inactive_file 7\ntotal_inactive_file {GIB}")
    machine(f"{top}{folder}/memory.memsw.limit_in_bytes", 10 * GIB)  # memory and swap together: so no swap
    machine(f"{top}{folder}/memory.memsw.usage_in_bytes", 4 * GIB)
    assert memory.available() == (7 * GIB, "the control group's limit of 10.0 GiB")
    machine(f"{top}{folder}/memory.limit_in_bytes", 9223372036854771712)  # version 1's way to say that there is none
    assert memory.available() == (100 * GIB, "this machine")


def test_a_slurm_job_and_the_limits_of_a_shell(machine, monkeypatch):
    import resource

    monkeypatch.setenv("SLURM_MEM_PER_CPU", "4096")
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", "4")
    assert memory.available() == (15 * GIB, "the Slurm job's memory of 16.0 GiB")
    monkeypatch.setenv("SLURM_MEM_PER_NODE", "0")  # all of the node
    assert memory.available() == (15 * GIB, "the Slurm job's memory of 16.0 GiB")
    limits = {resource.RLIMIT_AS: 12 * GIB, resource.RLIMIT_DATA: 11 * GIB}
    monkeypatch.setattr("resource.getrlimit", lambda kind: (limits[kind], -1))
    assert memory.available() == (7 * GIB, "`ulimit -v` of 12.0 GiB")
    limits[resource.RLIMIT_DATA] = 9 * GIB
    assert memory.available() == (6 * GIB, "`ulimit -d` of 9.0 GiB")


def test_nothing_is_known_where_nothing_can_be_read(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "ROOT", tmp_path)
    monkeypatch.delenv("SLURM_MEM_PER_NODE", raising=False)
    assert memory.available() is None


@pytest.fixture
def leave(monkeypatch):
    """Have so many bytes of memory be left: one number for each time that is asked, the last one ever after."""

    def leave(*counts: int) -> None:
        left = list(counts)
        found = lambda: memory.Limit(left.pop(0) if len(left) > 1 else left[0], "a test")  # noqa: E731
        monkeypatch.setattr("torch_mjenvs.checks.available", found)

    return leave


def test_worlds_copies_and_rollouts_that_do_not_fit_are_refused(leave):
    leave(5_000)
    for make in (lambda: TorchVectorEnv("Hopper", 64), lambda: Simulation(Hopper().load(), 64)):
        with pytest.raises(MemoryError, match=r"num_\w+=64 takes .* GiB, and a test leaves .* GiB: take fewer"):
            make()
    leave(30_000, 5_000)  # enough for the buffers, and not for copies of what a step gives
    with pytest.raises(MemoryError, match="num_envs=64 takes"):
        TorchVectorEnv("Hopper", 64)
    leave(30_000, 5_000)
    env = TorchVectorEnv("Hopper", 64, copy=False)
    env.reset(seed=0)
    with pytest.raises(MemoryError, match="steps=1000 takes"):
        env.capture(lambda obs: torch.zeros(64, 3), 1000)
    env.capture(lambda obs: torch.zeros(64, 3), 1)()


PEAK = """
import torch
from torch_mjenvs import TorchVectorEnv
def bytes_of(name):
    return 1024 * next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(name))
def loop(env):
    env.reset(seed=0)
    action = torch.zeros(env.num_envs, 3)
    for _ in range(3):
        given = env.step(action)
loop(TorchVectorEnv("Hopper", 8))
from unittest import mock
asked = []
def check(name, count, bytes_each, device):
    asked.append(count * bytes_each)
before = bytes_of("VmRSS:")
open("/proc/self/clear_refs", "w").write("5")
watched = [mock.patch(f"torch_mjenvs.envs.{name}.check_memory", check) for name in ("engine", "vector_env")]
with watched[0], watched[1]:
    loop(TorchVectorEnv("Hopper", 200_000))
print(sum(asked), bytes_of("VmHWM:") - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_what_is_planned_is_what_a_loop_takes():
    for _ in range(3):  # pages of libraries that the system had put aside count as taken when they come back
        planned, taken = map(int, subprocess.check_output([sys.executable, "-c", PEAK], text=True).split())
        if taken < 1.05 * planned:
            break
    assert 0.85 * planned < taken < 1.05 * planned


MILLIONS = """
import sys
from pathlib import Path
Path(sys.argv[1], "cgroup.procs").write_text("0")
from torch_mjenvs import TorchVectorEnv
try:
    TorchVectorEnv("Hopper", 8_000_000)
except MemoryError as error:
    print(error)
"""


def test_millions_of_worlds_in_a_control_group_of_this_machine(tmp_path):
    """What MemAvailable had room for, and the group's out-of-memory killer ended."""
    top = next(
        (p for p in map(Path, ("/sys/fs/cgroup/memory", "/sys/fs/cgroup")) if (p / "cgroup.procs").exists()), None
    )
    group = (top or tmp_path) / f"test-{uuid.uuid4().hex}"
    try:
        assert top is not None
        group.mkdir()
        file = group / ("memory.max" if top.name == "cgroup" else "memory.limit_in_bytes")
        file.write_text(str(1_500_000_000))
    except (AssertionError, OSError):
        if group.exists():
            group.rmdir()
        pytest.skip("control groups of memory cannot be made here")
    try:
        env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        ended = subprocess.run([sys.executable, "-c", MILLIONS, str(group)], capture_output=True, text=True, env=env)
    finally:
        group.rmdir()
    assert ended.returncode == 0, ended.stderr
    assert "num_envs=8000000 takes" in ended.stdout and "the control group's limit of 1.4 GiB leaves" in ended.stdout

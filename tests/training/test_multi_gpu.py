"""A run split over several processes gives the same bits as one process. Here on the CPU, over gloo, and with Ray."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from processes import python

pytest.importorskip("matplotlib")
pytest.importorskip("tqdm")

ROOT = Path(__file__).resolve().parents[2]


def run(out: Path, processes: int, *flags: str) -> dict:
    """Through torchrun, or without it for a single process. What the run knew at its end."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    command = [*(launcher if processes > 1 else []), str(ROOT / "examples" / "multi_gpu.py")]
    command += ["--env", "TorchHopper-v0", "--num-envs", "16", "--episodes", "2", "--out", str(out), "--device", "cpu"]
    done = python(*command, *flags, folder=out.parent)
    assert done.returncode == 0, done.stderr
    assert json.loads((out / "result.json").read_text())["processes"] == processes
    return torch.load(out / "checkpoint.pt", weights_only=True)


def same(a: dict, b: dict) -> bool:
    return a.keys() == b.keys() and all(
        torch.equal(x, b[name]) if isinstance(x, torch.Tensor) else x == b[name] for name, x in a.items()
    )


@pytest.mark.slow
@pytest.mark.skipif(not find_spec("ray"), reason="Ray is not installed")
def test_two_actors_of_a_ray_cluster_are_one_process(tmp_path, whole):
    """A real cluster, on this machine; and another one goes on with one actor where that stopped."""
    command = [sys.executable, str(ROOT / "examples" / "ray_search.py"), "--env", "TorchHopper-v0", "--num-envs", "16"]
    command += ["--episodes", "2", "--out", str(tmp_path / "out")]
    for options in (["--actors", "2", "--total-steps", "3000"], ["--actors", "1", "--total-steps", "6000", "--resume"]):
        done = subprocess.run([*command, *options], cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
    assert same(whole, torch.load(tmp_path / "out" / "checkpoint.pt", weights_only=True))


@pytest.mark.slow
@pytest.mark.skipif(not (find_spec("ray") and find_spec("torchrl")), reason="Ray or TorchRL is not installed")
def test_one_and_two_workers_are_measured():
    command = [sys.executable, "-m", "benchmarks.many_nodes", "--worlds", "64", "--rounds", "1", "--seconds", "0.1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    rates = re.findall(r"^\| .+ \| ([\d.]+)(?: [kM])? \| ([\d.]+)(?: [kM])? \| [\d.]+x \|$", done.stdout, re.M)
    assert len(rates) == 3 and all(float(x) > 0 for pair in rates for x in pair)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> dict:
    """What one process knew at the end of an uninterrupted run."""
    return run(tmp_path_factory.mktemp("whole") / "out", 1, "--total-steps", "6000")


def test_two_processes_are_one(tmp_path, whole):
    assert whole["generation"] > 3 and whole["weights"].abs().max() > 0
    assert same(whole, run(tmp_path / "two", 2, "--total-steps", "6000"))


def test_a_resumed_run_ends_as_the_whole_one(tmp_path, whole):
    run(tmp_path / "halves", 1, "--total-steps", "2000")
    assert same(run(tmp_path / "halves", 1, "--total-steps", "6000", "--resume"), whole)


def test_worlds_that_cannot_be_shared_out(tmp_path):
    command = [str(ROOT / "examples" / "multi_gpu.py"), "--num-envs", "7", "--out", str(tmp_path)]
    done = python(*command, folder=tmp_path)
    assert done.returncode != 0 and "multiple of 2" in done.stderr

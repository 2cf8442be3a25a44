"""A training run shared out over two processes, over gloo: one run, bit for bit where the learner is compiled."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import python

pytest.importorskip("matplotlib")
pytest.importorskip("tqdm")

from torch_mjenvs.__main__ import main
from torch_mjenvs.training import runs, train
from torch_mjenvs.training.compiled import why_not
from torch_mjenvs.training.sharing import Share, joined, local

pytestmark = [pytest.mark.usefixtures("no_default_device"), pytest.mark.cpu]
FLAGS = [
    *("train", "--env", "TorchHopper-v0", "--num-envs", "32", "--horizon", "16", "--minibatch", "256"),
    *("--actor", "16,16", "--critic", "16", "--target-kl", "0.01", "--evaluations", "1", "--episodes", "2"),
]
needs_kernels = pytest.mark.skipif(bool(why_not(torch.device("cpu"))), reason="this processor has no learner's kernels")


def shared(out: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    """Run two processes by torchrun, with a thread each."""
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "torch_mjenvs"]
    return python(*command, *FLAGS, "--out", str(out), *flags, folder=out.parent)


def state(out: Path) -> dict[str, Any]:
    return torch.load(out / "checkpoint.pt", weights_only=True)["agent"]


def differences(x: Any, y: Any, name: str = "") -> list[str]:
    """The names of the numbers that are not the same in two states."""
    if isinstance(x, dict):
        assert x.keys() == y.keys()
        return [found for key in x for found in differences(x[key], y[key], f"{name}/{key}")]
    if isinstance(x, torch.Tensor):
        same = x.shape == y.shape and torch.equal(x.float().nan_to_num(7e7), y.float().nan_to_num(7e7))
    else:
        same = x == y
    return [] if same else [name]


@needs_kernels
def test_two_processes_are_one_bit_for_bit_and_one_goes_on_where_two_stopped(tmp_path):
    main([*FLAGS, "--out", str(tmp_path / "one"), "--total-steps", "2048"])
    done = shared(tmp_path / "two", "--total-steps", "1024")
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "two" / "result.json").read_text())
    assert result["processes"] == 2 and result["frames"] == 1024 and len(result["evaluations"]) == 1
    assert done.stdout.count("results: ") == 1 and (tmp_path / "two" / "best.pt").exists()
    main([*FLAGS, "--out", str(tmp_path / "two"), "--total-steps", "2048", "--resume"])
    one, two = state(tmp_path / "one"), state(tmp_path / "two")
    assert one["frames_seen"] == 2048 and len(one["finished"]) > 10 and len(one["env"]["qpos"]) == 32
    assert not differences(one, two)


@pytest.mark.slow
def test_two_processes_are_nearly_one_in_torch_and_go_on_where_one_stopped(tmp_path):
    """Each sums half of a minibatch's gradient: the last bits differ, which 4 updates carry on.

    In float32: where torch rounds factors to bfloat16, it does so only in large products, not in those of half of these
    worlds.
    """
    flags = ("--learner", "torch", "--precision", "float32", "--epochs", "2")
    main([*FLAGS, *flags, "--out", str(tmp_path / "one"), "--total-steps", "1024"])
    main([*FLAGS, *flags, "--out", str(tmp_path / "two"), "--total-steps", "512"])
    done = shared(tmp_path / "two", *flags, "--total-steps", "1024", "--resume")
    assert done.returncode == 0, done.stderr
    one, two = state(tmp_path / "one"), state(tmp_path / "two")
    torch.testing.assert_close(one["theta"], two["theta"], rtol=0, atol=1e-5)
    assert not differences(one["random"], two["random"]) and one["frames_seen"] == two["frames_seen"] == 1024


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--num-envs", "33"], "--num-envs 33 cannot be shared out: use a multiple of 2"),
        (["--learner", "torch", "--minibatch", "255"], "--minibatch 255 cannot be shared out: use a multiple of 2"),
        (["--algorithm", "sac"], "a run of SAC is not shared out"),
    ],
)
def test_what_cannot_be_shared_out_is_refused(flags, said):
    given = ["--env", "TorchHopper-v0", "--num-envs", "32", "--horizon", "16", *flags]
    algorithm, parser = train.chosen(given)
    args, env_id, task = runs.parsed(parser, given)
    with pytest.raises(SystemExit, match=said):
        train.train(algorithm, args, env_id, task, Share(0, 2))


def test_a_backend_is_chosen_by_device(monkeypatch):
    """A process's GPU is the one of its number on its machine, whatever other GPUs there are."""
    begun: list[Any] = []
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setattr(torch.cuda, "set_device", begun.append)
    there = torch.distributed
    monkeypatch.setattr(there, "init_process_group", lambda backend, timeout: begun.append(backend))
    monkeypatch.setattr(there, "get_rank", lambda: 1)
    monkeypatch.setattr(there, "destroy_process_group", lambda: begun.append("end"))
    for device in ("cuda", "cpu"):
        with joined(local(device)) as share:
            assert (share.rank, share.ranks) == (1, 2)
    assert begun == ["cuda:1", "cpu:gloo,cuda:nccl", "end", "gloo", "end"]


WITHOUT_A_GPU = """
import os, torch
torch.cuda.set_device = lambda device: None
begin = torch.distributed.init_process_group
torch.distributed.init_process_group = lambda backend, timeout: begin(backend.replace("nccl", "gloo"), timeout=timeout)
from torch_mjenvs.training.sharing import joined
with joined("cuda:0") as share:
    x = torch.full((2,), float(share.rank + 1))
    share.add(x)
    assert x.tolist() == [3.0, 3.0]
    assert share.gathered(torch.tensor([share.first])).tolist() == [True, False]
    assert share.broadcast({"of": share.rank}) == {"of": 0}
"""


def test_processes_on_gpus_exchange_what_is_in_memory_too(tmp_path):
    """All but NCCL itself: a group with a backend a kind of device, and gloo in NCCL's place."""
    script = tmp_path / "exchange.py"
    script.write_text(WITHOUT_A_GPU)
    done = python("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script))
    assert done.returncode == 0, done.stderr


def test_shares_are_whole_together():
    for count, ranks in ((8, 2), (8, 3), (2, 3)):
        parts = [Share(rank, ranks).of(count) for rank in range(ranks)]
        assert [i for part in parts for i in range(count)[part]] == list(range(count))
    rows = torch.arange(12).view(6, 2)
    assert torch.equal(torch.cat([Share(rank, 3).mine(rows) for rank in range(3)]), rows)

"""The GPU's benchmark, on the CPU: all but the profiler and the peers."""

from __future__ import annotations

import json

import pytest
import torch

pytest.importorskip("tqdm")

from benchmarks import gpu
from benchmarks.cases import CASES

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def results() -> dict:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"ROUNDS": 2, "LEAST": 0.001, "PARITY_WORLDS": 64}.items():
            patch.setattr(gpu, name, value)
        return gpu.measure([CASES["Hopper"]], [1, 48], CPU, peers=False)


def test_measures(results):
    found = results["tasks"]["Hopper"]
    assert found["parity"]["float32"]["differing"] == 0  # it is the same code here
    assert found["parity"]["float32"]["numbers"] > 64 * 40
    for row in found["rates"]:
        assert all(way["min"] > 0 for way in row["rates"].values()) and row["frame_skip"] == 4
    assert results["machine"]["flops"] > 1e8 and results["machine"]["bytes_a_second"] > 1e8


def test_page(results):
    results = json.loads(json.dumps(results))
    peers = [{"peer": "MJX", "num_envs": 48, "physics": {"median": 1e4}, "first_call_s": 20.0}]
    results["tasks"]["Hopper"]["peers"] = [*peers, {"peer": "mujoco-torch", "num_envs": 48, "error": "not installed"}]
    page = gpu.markdown(results)
    ours = 4 * results["tasks"]["Hopper"]["rates"][1]["rates"]["engine"]["median"]
    assert f"{ours / 1e4:.3g}x" in page and "not installed" in page and "| Hopper | 48 |" in page


def test_parity_is_not_blind(monkeypatch):
    monkeypatch.setattr(gpu, "PARITY_WORLDS", 32)
    engines = []
    original = gpu.engine_of

    def noted(*args):
        engines.append(original(*args))
        if len(engines) == 2:
            step = engines[1].step
            engines[1].step = lambda: (step(), engines[1].qpos[3, 1].add_(1e-3))
        return engines[-1]

    monkeypatch.setattr(gpu, "engine_of", noted)
    found = gpu.parity(CASES["Hopper"], torch.float64, CPU)
    assert found["differing"] > 0 and found["worst"] > 1e-4


def test_without_a_gpu(capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu.main([]) == 2
    assert "no GPU" in capsys.readouterr().err


def test_a_peer_that_is_missing_or_fails(monkeypatch):
    assert gpu.in_process("mujoco-torch", CASES["Hopper"], 4).get("error")
    monkeypatch.setattr(gpu, "PEERS", {"MJX": "json"})  # there, but the command it runs knows no such peer
    monkeypatch.setattr(gpu.sys, "executable", "/bin/false")
    assert gpu.in_process("MJX", CASES["Hopper"], 4)["error"] == "it failed"

"""The GPU's benchmark, on the device of this run of the tests: at its smallest, without peers. No speed is tested."""

from __future__ import annotations

import json
import time

import pytest
import torch

pytest.importorskip("tqdm")

from benchmarks import gpu, gpu_peers, parity, report
from benchmarks.cases import CASES, season

HERE = torch.get_default_device()
HOPPER = CASES["Hopper"]
SMALL = {"ROUNDS": 3, "LEAST": 0.001, "GRAPH_SECONDS": 0.01, "PARITY_WORLDS": 64, "FLOAT64_NUM_ENVS": 48, "PROFILED": 2}
pytestmark = pytest.mark.usefixtures("no_default_device")


@pytest.fixture(scope="module")
def saved() -> list[dict]:
    """What was saved, the last of it being the whole."""
    out: list[dict] = []
    with pytest.MonkeyPatch.context() as patch, torch.device("cpu"):
        for name, value in SMALL.items():
            patch.setattr(gpu, name, value)
        gpu.measure([HOPPER], [1, 48], HERE, lambda results: out.append(json.loads(json.dumps(results))))
    return out


def test_parity_and_speed_are_measured(saved):
    assert len(saved) == 1  # once a task
    found = saved[-1]["tasks"]["Hopper"]
    for name in ("float32", "float64"):
        p = found["parity"][name]
        assert p["differing"] == p["worlds_differing"] == p["worst"] == 0 and not p["failed"]
        assert p["numbers"] > 5 * 64 * 40
    assert 0 < found["gymnasium"]["float64_worst"] < parity.FLOAT64_LIMIT
    assert [(r["num_envs"], r["dtype"]) for r in found["rates"]] == [(1, "float32"), (48, "float32"), (48, "float64")]
    for row in found["rates"]:
        assert set(row["rates"]) == set(report.WAYS) and 1 <= row["graph_steps"] <= gpu.GRAPH_STEPS
        assert all(0 < way["min"] <= way["median"] <= way["max"] for way in row["rates"].values())
    assert found["step"]["num_envs"] == 48
    assert saved[-1]["machine"]["flops"] > 1e8 and saved[-1]["machine"]["bytes_a_second"] > 1e8
    if HERE.type == "cuda":
        assert list(found["step"]["launches_a_step"].values()) == [1]
        assert found["step"]["kernel_ms"] > 0 and 0 < found["step"]["registers"] <= 255 and found["step"]["blocks"] >= 8


def test_the_page_shows_what_was_measured(saved):
    results = json.loads(json.dumps(saved[-1]))
    found = results["tasks"]["Hopper"]
    rate = {"median": 1e4, "min": 9e3, "max": 2e4}
    found["peers"] = [
        {"peer": "MJX", "num_envs": 48, "settings": "the model's", "error": "jax is not installed"},
        {"peer": "MJX", "num_envs": 64, "settings": "few", "version": "x 1", "physics": rate, "ours": rate}
        | {"first_call_s": 20.0, "apart": 1e-3, "ratio": {"median": 123.0, "min": 1.0, "max": 200.0}},
    ]
    instructions = next(
        s["instructions"] for s in json.loads(report.CODE.read_text())["steps"] if s["task"] == "Hopper"
    )
    issued = results["machine"]["flops"] / 64
    milliseconds = 4 * 1e3 * instructions * 48 / 32 / issued  # four times what the instructions need
    found["step"] = {"num_envs": 48, "launches_a_step": {"kernel": 1.0}, "kernel_ms": milliseconds, "wall_ms": 9.0}
    found["step"] |= {"registers": 255, "local_bytes": 168, "reserved_bytes": 180_000_000, "blocks": 8}
    page = report.gpu_markdown(results)
    assert "| Hopper | 48 | 1 kernel |" in page and "| 25 % | 255 | 168 | 0.2 GB | 8 |" in page
    assert "| Hopper | MJX (x 1) | 64 | few | 1" in page
    assert "jax is not installed" in page and "123x (1 to 200)" in page and "Parity fails" not in page
    median = 4 * found["rates"][1]["rates"]["engine"]["median"]  # physics steps
    assert f"| Hopper | 48 | float32 | {report.number(median)} |" in page

    found["gymnasium"] = {"absent": "ModuleNotFoundError: no imageio"}
    found["step"] = {"num_envs": 48, "registers": 9, "local_bytes": 0, "wall_ms": 1.0, "profiler": "CUPTI may not look"}
    found["step"] |= {"reserved_bytes": 0, "blocks": 32}
    assert "no imageio" in report.gpu_markdown(results) and "CUPTI may not look" in report.gpu_markdown(results)
    assert not report.failures(results)
    found["gymnasium"] = {"failed": "Hopper: float64 is 1e-3 from Hopper-v5"}
    found["parity"]["float64"] |= {"failed": True, "worst": 2e-3}
    page = report.gpu_markdown(results)
    assert page.count("**Parity fails**") == 2 and "2.0e-03 from the CPU" in page


def test_parity_is_not_blind(monkeypatch):
    monkeypatch.setattr(gpu, "PARITY_WORLDS", 32)
    engines, original = [], gpu.engine_of

    def disturbed(*args):
        engine = original(*args)
        engines.append(engine)
        if len(engines) == 2:
            step = engine.step
            engine.step = lambda: (step(), engine.qpos[3, 1].add_(1e-3))
        return engine

    monkeypatch.setattr(gpu, "engine_of", disturbed)
    found = gpu.same_steps(HOPPER, torch.float64, HERE, season(HOPPER))
    assert found["failed"] and found["worlds_differing"] == 1 and found["differing"] > 5 and found["worst"] > 1e-4


def test_a_gymnasium_that_does_not_run(monkeypatch):
    def fails(case):
        raise ModuleNotFoundError("No module named 'imageio'")

    monkeypatch.setattr(parity, "oracle", fails)
    assert gpu.beside_gymnasium(HOPPER, HERE) == {"absent": "ModuleNotFoundError: No module named 'imageio'"}


def test_graphs_are_not_too_long():
    engine = gpu.engine_of(HOPPER, 1024, HERE, torch.float32, season(HOPPER))
    assert gpu.graph_steps(engine, 1e-6) == gpu.GRAPH_STEPS
    assert gpu.graph_steps(engine, gpu.GRAPH_SECONDS / 7.5) == 7 and gpu.graph_steps(engine, 10.0) == 1


def test_without_a_gpu(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu.main(["--out", str(tmp_path / "out")]) == 2
    assert "no GPU" in capsys.readouterr().err and not (tmp_path / "out").exists()


# What benchmarks/mjx_process.py promises, with MuJoCo C in place of MJX.
STAND_IN = """
import json, sys
import mujoco
import numpy as np
_, model, states, reached, frame_skip, *settings = sys.argv
print("a package says something")
m = mujoco.MjModel.from_xml_path(model)
d = mujoco.MjData(m)
found = []
with np.load(states) as x:
    for w in range(len(x["qpos"])):
        mujoco.mj_resetData(m, d)
        d.qpos, d.qvel = x["qpos"][w], x["qvel"][w]
        for ctrl in x["controls"][:, w]:
            d.ctrl = ctrl
            mujoco.mj_step(m, d, int(frame_skip))
        found.append(d.qpos.copy())
np.save(reached, np.array(found))
print(json.dumps({"first_call_s": 1.0, "version": "x 1", "given": settings}), flush=True)
for line in sys.stdin:
    print(json.dumps({"seconds": 0.5}), flush=True)
"""
HANGS = "import sys\nsys.stdin.read()\n"
FAILS_LATER = """
import json, sys
import numpy as np
with np.load(sys.argv[2]) as x:
    np.save(sys.argv[3], x["qpos"])
print(json.dumps({"first_call_s": 1.0, "version": "x 1"}), flush=True)
sys.stdin.readline()
print(json.dumps({"error": "out of memory"}), flush=True)
"""
DIES = "import sys\nsys.exit('ImportError: no such thing')\n"


def peers_rows(folder, monkeypatch, program: str | None, seconds: float = 100.0, **options) -> list[dict]:
    """The rows of a run with this program in place of the process of MJX, or with that process itself."""
    if program is not None:
        (folder / "program.py").write_text(program)
        monkeypatch.setattr(gpu_peers, "PROGRAM", folder / "program.py")
    saved: list[dict] = []
    results: dict = {"tasks": {"Hopper": {}}}
    end = time.monotonic() + seconds

    def save(results: dict) -> None:
        saved.append(json.loads(json.dumps(results)))

    gpu_peers.measure([HOPPER], [24], results, HERE, folder, end, save, **options)
    rows = results["tasks"]["Hopper"]["peers"]
    assert [(row["peer"], row["num_envs"], row["settings"]) for row in rows] == [
        ("MJX", 24, name) for name in gpu_peers.SETTINGS
    ]
    assert [len(x["tasks"]["Hopper"]["peers"]) for x in saved] == [1, 2]
    return rows


def test_a_peer_is_raced(monkeypatch, tmp_path):
    rows = peers_rows(tmp_path, monkeypatch, STAND_IN)
    assert [row["given"] for row in rows] == [[], ["--iterations", "4", "--ls-iterations", "8"]]
    for row in rows:
        assert row["apart"] < 1e-4 and row["version"] == "x 1"
        assert row["ratio"]["min"] <= row["ratio"]["median"] <= row["ratio"]["max"]
        assert row["physics"]["median"] == pytest.approx(24 * 5 * 4 / 0.5) and row["ours"]["median"] > 0


@pytest.mark.cpu
def test_peers_that_fail_or_take_too_long(monkeypatch, tmp_path):
    def errors(program: str | None, **options) -> list[str]:
        return [row["error"] for row in peers_rows(tmp_path, monkeypatch, program, **options)]

    assert all("No module named" in error for error in errors(None))  # MJX's own process: the folder is empty
    assert errors(DIES) == ["ImportError: no such thing"] * 2
    assert errors(FAILS_LATER) == ["out of memory"] * 2
    assert errors(STAND_IN, seconds=1.0) == ["no time was left for it"] * 2
    monkeypatch.setattr(gpu_peers, "SHORTEST", 0.0)
    assert errors(HANGS, limit=0.4) == ["nothing after 0 s"] * 2
    results: dict = {"tasks": {"Hopper": {}}}
    gpu_peers.measure([HOPPER], [24], results, HERE, None, time.monotonic() + 100, lambda x: None)
    assert all("--mjx-site" in row["error"] for row in results["tasks"]["Hopper"]["peers"])


@pytest.mark.cpu
def test_peers_by_their_own_command(monkeypatch, tmp_path, capsys):
    (tmp_path / "program.py").write_text(STAND_IN)
    monkeypatch.setattr(gpu_peers, "PROGRAM", tmp_path / "program.py")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    out = tmp_path / "new" / "found.json"
    command = ["--tasks", "Hopper", "--num-envs", "8", "--mjx-site", str(tmp_path), "--out", str(out)]
    assert gpu_peers.main(command) == 0
    assert len(json.loads(out.read_text())["tasks"]["Hopper"]["peers"]) == 2
    assert "| Hopper | MJX (x 1) | 8 | few iterations |" in capsys.readouterr().out

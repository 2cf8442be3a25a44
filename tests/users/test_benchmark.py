"""The benchmark, at its smallest: what it writes, and that it says nothing where parity fails. No speed is tested."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("tqdm")

from processes import run

from benchmarks import __main__ as suite
from benchmarks import libraries, many_nodes, models, parity, report, robots
from benchmarks.cases import CASES
from benchmarks.machine import Contender, race
from torch_mjenvs.physics import load

ROOT = Path(__file__).resolve().parents[2]


UNDISTURBED = """
import runpy
from benchmarks import machine
machine.QUIET = float("inf")  # beside other tests nothing is quiet, and all would be measured again
runpy.run_module("benchmarks", run_name="__main__", alter_sys=True)
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> tuple[Path, str]:
    """The folder and the standard output of a run in a process of its own."""
    out = tmp_path_factory.mktemp("results")
    arguments = ["--quick", "--tasks", "Hopper", "--num-envs", "16", "--out", str(out), "--name", "small"]
    return out, run(UNDISTURBED, *arguments, seconds=300, TORCH_MJENVS_CACHE=str(out / "cache"))


def test_writes_data_tables_and_plot(results):
    out, printed = results
    assert (out / "small.png").read_bytes().startswith(b"\x89PNG")
    data = json.loads((out / "small.json").read_text())
    assert report.markdown(data) in (out / "small.md").read_text()
    assert report.markdown(data) in printed


def test_a_run_writes_what_it_measured(results):
    data = json.loads((results[0] / "small.json").read_text())
    task = data["tasks"]["Hopper"]
    assert {(row["num_envs"], row["dtype"]) for row in task["sweep"]} == {(16, "float32"), (16, "float64")}
    assert 0 < task["parity"]["float64_worst"] < parity.FLOAT64_LIMIT
    assert 10 < task["episode_length"] < 40  # random actions fell a hopper in about 22 steps
    names = [peer["name"] for peer in task["peers"]]
    assert names[0].startswith("Gymnasium sync") and names[1].startswith("mujoco.rollout")
    for rate in [row["rate"] for row in task["sweep"]] + [peer["rate"] for peer in task["peers"]]:
        assert 0 < rate["min"] <= rate["median"] <= rate["max"]
    for compiled in task["compile"].values():
        assert min(compiled["again_s"], compiled["cached_s"], compiled["buffer_bytes_a_world"]) > 0
    assert task["operations"]["step"] > task["operations"]["code"] > 1000  # Runge-Kutta runs the same code four times
    assert data["machine"]["peak_gflops_a_core"]["float32"] > 0


@pytest.mark.cpu
def test_refuses_where_parity_fails(tmp_path, monkeypatch, capsys):
    honest = parity.step_from

    def wrong(*args):
        found = honest(*args)
        found["obs"][3, 1] += 1e-5
        return found

    monkeypatch.setattr(parity, "step_from", wrong)
    assert suite.main(["--quick", "--tasks", "Hopper", "--num-envs", "16", "--out", str(tmp_path / "out")]) == 1
    captured = capsys.readouterr()
    assert "parity fails" in captured.err and "Hopper" in captured.err
    assert not captured.out and not (tmp_path / "out").exists()


@pytest.mark.parametrize("broken", ["nan", "flag", "float32"])
def test_parity_fails_where_something_differs(broken):
    case, n = CASES["Hopper"], parity.STATES
    obs, reward, flags = np.ones((n, 2)), np.ones(n), np.zeros(n, bool)
    samples = parity.Samples(obs, obs, obs, obs, reward, flags, n)
    exact, single = ({"obs": obs.copy(), "reward": reward, "terminated": flags.copy()} for _ in range(2))
    assert parity.verdict(case, samples, exact, single)["float64_worst"] == 0
    if broken == "nan":
        exact["obs"][0, 0] = np.nan
    elif broken == "flag":
        exact["terminated"][0] = True
    else:
        single["obs"] += 0.01
    with pytest.raises(parity.ParityError):
        parity.verdict(case, samples, exact, single)


def test_race_retakes_disturbed_rounds(monkeypatch):
    busy = iter([1.0, 0.0, 1.0, 0.0, 0.0])
    monkeypatch.setattr("benchmarks.machine.Watch.foreign_cores", lambda _: next(busy))
    found = race([Contender("one", lambda: 1)], rounds=3, window=0.002, warmup=0.0, quiet=0.1)
    assert (found.retaken, found.disturbed, len(found.rates["one"])) == (2, False, 3)


def test_labels_do_not_touch():
    heights = report.spread_out([0.1, 0.11, 0.12, 0.9])
    gaps = np.diff(heights)
    assert (gaps > 0.99 * report.LABEL_GAP).all() and heights[-1] == 0.9


def test_page_is_filled(tmp_path, results):
    data = json.loads((results[0] / "small.json").read_text())
    page = tmp_path / "page.md"
    page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    report.update_page(page, data)
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text and "Hopper" in text
    with pytest.raises(ValueError, match="no lines"):
        report.update_page(results[0] / "small.md", data)


def test_every_page_with_figures_has_its_markers():
    for name, module in (("performance", report), ("libraries", libraries), ("many_nodes", many_nodes)):
        text = (ROOT / "docs" / f"{name}.md").read_text()
        assert text.count(module.BEGIN) == text.count(module.END) == 1


@pytest.mark.parametrize("name", libraries.HERE)
def test_the_examples_of_the_docs_are_what_is_timed(name):
    """On both sides the code is Python, the frames are as many, and only the one side mentions ours."""
    sides = {where: libraries.example(name, where, 64, 131072) for where in ("here", "gymnasium")}
    for where, (code, frames) in sides.items():
        compile(code, name, "exec")
        assert frames == 131072 and "{worlds}" not in code
        assert ("TorchHopper-v0" in code) == (where == "here" or name == "rl_games")  # which names its tasks


def test_each_kernel_of_the_table_of_stages_computes_more_than_the_one_before():
    tables = pytest.importorskip("benchmarks.tables")
    model = load(CASES["Humanoid"].task().load())
    counts = [tables.stop_after(model, computed).count_ops().total() for computed in tables.STAGES]
    assert 1000 < counts[0] < 0.9 * counts[1] and counts[1] < 0.9 * counts[2]


def test_models_of_packages_are_counted_by_what_is_refused():
    folder = dict(models.installed())["gymnasium"]
    found = models.look(folder)
    assert "ant.xml" in found.taken and len(found.taken) + len(found.refused) == 14
    assert not set(found.taken) & set(found.refused) and not found.parts


def test_a_reason_names_no_element():
    reason = "the contact of geom 'floor' and geom 3 of body 'box' (plane and mesh) is not supported: use planes"
    assert models.kind(reason) == "the contact of geom and geom (plane and mesh)"


def test_robots_whose_package_is_missing_are_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(models, "folder_of", lambda package: None)
    monkeypatch.setattr("benchmarks.machine.peak", lambda dtype: 1e9)
    robots.main(["--quick", "--only", "go1", "--out", str(tmp_path)])
    data = json.loads((tmp_path / "robots.json").read_text())
    (left_out,) = data["left_out"]
    assert left_out.startswith("Playground Go1 is left out: mujoco_playground is not installed")
    assert left_out in (tmp_path / "robots.md").read_text() and left_out in capsys.readouterr().out


@pytest.mark.slow
def test_a_robot_beside_mujoco(tmp_path, capsys):
    robots.main(["--quick", "--only", "quadruped", "--out", str(tmp_path)])
    data = json.loads((tmp_path / "robots.json").read_text())
    assert robots.markdown(data) in (tmp_path / "robots.md").read_text()
    assert robots.markdown(data) in capsys.readouterr().out
    found = data["robots"]["quadruped"]
    assert (found["dofs"], found["pairs"]) == (18, 9) and 0.4 < found["touching"] < 1
    assert 0 < found["one_step"]["float64_worst"] < 1e-9 < found["one_step"]["float32_median"] < 1e-4
    for rate in (found["peer"]["rate"], *(x["rate"] for x in found["rates"].values())):
        assert 0 < rate["min"] <= rate["median"] <= rate["max"]
    assert min(found[dtype]["build_s"] * found[dtype]["code_bytes"] for dtype in ("float32", "float64")) > 0

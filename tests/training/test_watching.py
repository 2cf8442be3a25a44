"""What is seen of a training run while it runs: evaluations, TensorBoard, W&B; and that every setting is a flag."""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import subprocess
import sys
from dataclasses import fields
from types import SimpleNamespace

import gymnasium
import pytest
import torch

pytest.importorskip("matplotlib")
pytest.importorskip("tqdm")

from torch_mjenvs import Policy
from torch_mjenvs.policy import policy_of
from torch_mjenvs.training import checkpoints, ppo, runs, train
from torch_mjenvs.training.scores import score
from torch_mjenvs.training.worlds import make

pytestmark = [pytest.mark.usefixtures("no_default_device"), pytest.mark.cpu]
SMALL = ["--env", "TorchHopper-v0", "--num-envs", "34", "--total-steps", "12000", "--episodes", "2"]


def test_every_setting_is_a_flag():
    defaults = runs.settings()
    p = runs.training_parser("", defaults)
    assert runs.given(p.parse_args([]), defaults) == {}
    for field in fields(ppo.Settings):
        name = {"activation": "elu", "norm": "layer"}.get(field.name, "")
        text, value = {int: ("7", 7), float: ("0.5", 0.5), tuple: ("7,8", (7, 8)), str: (name, name)}[
            type(defaults[field.name])
        ]
        args = p.parse_args([f"--{field.name.replace('_', '-')}", text])
        assert runs.given(args, defaults) == {field.name: value}


def test_a_run_is_logged_and_evaluated_and_that_changes_nothing(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    train.main([*SMALL, "--actor", "16,12", "--evaluations", "3", "--out", str(tmp_path / "watched")])
    train.main([*SMALL, "--actor", "16,12", "--evaluations", "0", "--out", str(tmp_path / "alone")])
    policies = [torch.load(tmp_path / name / "policy.pt", weights_only=True) for name in ("watched", "alone")]
    assert all(torch.equal(x, policies[1][name]) for name, x in policies[0].items() if isinstance(x, torch.Tensor))

    result, alone = (json.loads((tmp_path / name / "result.json").read_text()) for name in ("watched", "alone"))
    assert result["settings"]["actor"] == [16, 12] and result["settings"]["gamma"] == 0.995  # Hopper's own
    assert len(result["evaluations"]) == 3 and alone["evaluations"] == []
    assert result["scores"] == alone["scores"]
    seen = accumulator.EventAccumulator(str(tmp_path / "watched"))
    seen.Reload()
    assert {"return", "evaluation", "frames_per_second", "learning_rate", "std"} <= set(seen.Tags()["scalars"])
    learned = {"approx_kl", "clip_fraction", "policy_loss", "value_loss", "explained_variance", "entropy", "grad_norm"}
    assert learned | {"collection_seconds", "learning_seconds"} <= set(seen.Tags()["scalars"])
    found = [(event.step, round(event.value, 1)) for event in seen.Scalars("evaluation")]
    assert found == [(frames, pytest.approx(mean, abs=0.1)) for _, frames, mean in result["evaluations"]]
    assert found[-1][0] == result["frames"] >= 12000


def test_the_best_policy_of_the_evaluations_is_kept(tmp_path, monkeypatch):
    """Evaluations are told here; the policy goes on as it would."""
    told = iter([5.0, 7.0, 7.0, -math.inf])
    monkeypatch.setattr(runs.Evaluation, "__call__", lambda *_: next(told))
    seen: list[dict] = []
    networks = ppo.PPO.networks
    monkeypatch.setattr(ppo.PPO, "networks", lambda agent: seen.append(networks(agent)) or seen[-1])
    train.main([*SMALL, "--actor", "16,12", "--evaluations", "4", "--out", str(tmp_path / "run")])
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    best = torch.load(tmp_path / "run" / "best.pt", weights_only=True)
    assert best["about"] == {"frames": result["evaluations"][1][1], "evaluation": 7.0}
    assert any(torch.equal(best["weights0"], x["weights0"]) for x in seen)
    last = torch.load(tmp_path / "run" / "policy.pt", weights_only=True)
    assert not torch.equal(best["weights0"], last["weights0"]) and best.keys() - last.keys() == {"about"}
    assert Policy.load(tmp_path / "run" / "best.pt").about["evaluation"] == 7.0


def test_a_resumed_run_does_not_overwrite_a_best_policy_that_its_checkpoint_does_not_know(tmp_path, monkeypatch):
    """The process ends after that evaluation, before the next checkpoint, and goes on at another learning rate."""
    told = iter([5.0, 9.0, 6.0, 10.0])
    out, save = tmp_path / "run", checkpoints.save
    arguments = [*SMALL, "--actor", "8", "--critic", "8", "--evaluations", "4", "--out", str(out)]
    monkeypatch.setattr(runs.Evaluation, "__call__", lambda *_: next(told))

    def killed(what, path):
        if path.name == "checkpoint.pt" and (out / "best.pt").exists() and best()["evaluation"] == 9.0:
            raise KeyboardInterrupt
        save(what, path)

    def best() -> dict:
        return torch.load(out / "best.pt", weights_only=True)["about"]

    monkeypatch.setattr(checkpoints, "save", killed)
    with pytest.raises(KeyboardInterrupt):
        train.main(arguments)
    lost, first = best(), torch.load(out / "checkpoint.pt", weights_only=True)["history"]["evaluations"]
    assert lost["evaluation"] == 9.0 and [mean for *_, mean in first] == [5.0]

    monkeypatch.setattr(checkpoints, "save", save)
    seen, iterate = [], ppo.PPO.iterate
    monkeypatch.setattr(ppo.PPO, "iterate", lambda agent: seen.append(best()) or iterate(agent))
    train.main([*arguments, "--resume", "--learning-rate", "1e-4"])
    assert all(about == lost for about in seen) and len(seen) == 2  # after 6, which is worse
    assert best()["evaluation"] == 10.0


def test_a_folder_with_a_best_policy_alone_is_not_written_into(tmp_path):
    (tmp_path / "best.pt").write_bytes(b"kept")
    with pytest.raises(SystemExit, match="holds the results of a run: choose another --out"):
        train.main([*SMALL, "--out", str(tmp_path)])
    assert (tmp_path / "best.pt").read_bytes() == b"kept"


def test_an_evaluation_is_of_the_same_episodes_each_time():
    """Its worlds are kept; random numbers of the run are not used up."""
    run, args = {"env": "TorchHopper-v0"}, argparse.Namespace(device="cpu", seed=3)
    policies = [lambda obs, k=k: torch.full((len(obs), 3), k / 10) for k in range(3)]
    evaluation, before = runs.Evaluation(run, args), torch.get_rng_state()
    found = [evaluation(SimpleNamespace(act=act)) for act in (*policies, policies[0])]
    assert torch.equal(torch.get_rng_state(), before) and len(set(found)) == 3 and found[0] == found[3]
    evaluation.close()
    for act, mean in zip(policies, found, strict=False):
        fresh = make("TorchHopper-v0", runs.EVALUATED, "cpu")
        assert score(act, fresh, 5, "cpu").returns.mean().item() == mean


def test_a_run_on_a_gpu_is_evaluated_by_a_copy_of_its_policy_on_the_cpu(tmp_path, monkeypatch):
    """With one thread, as a few rows are faster by one. Here the agent is on the CPU, too."""
    train.main([*SMALL, "--actor", "16,12", "--evaluations", "0", "--out", str(tmp_path / "run")])
    entries = torch.load(tmp_path / "run" / "policy.pt", weights_only=True)
    agent = SimpleNamespace(networks=lambda: {name: x for name, x in entries.items() if name != "env"})
    threads, seen = torch.get_num_threads(), set()
    forward = Policy.forward
    monkeypatch.setattr(Policy, "forward", lambda *given: seen.add(torch.get_num_threads()) or forward(*given))
    evaluation = runs.Evaluation({"env": "TorchHopper-v0"}, argparse.Namespace(device="cuda", seed=3))
    fresh = make("TorchHopper-v0", runs.EVALUATED, "cpu")
    before = torch.get_rng_state()
    policy_of(entries)  # on a GPU before it is moved, where its layers would take the run's random numbers
    assert torch.equal(torch.get_rng_state(), before)
    found = evaluation(agent)
    assert seen == {1} and torch.get_num_threads() == threads
    assert found == score(Policy.load(tmp_path / "run"), fresh, 5, "cpu").returns.mean().item()
    evaluation.close()


def test_without_evaluations_there_is_no_best_policy(tmp_path):
    train.main([*SMALL, "--actor", "16,12", "--evaluations", "0", "--out", str(tmp_path / "run")])
    assert (tmp_path / "run" / "policy.pt").exists() and not (tmp_path / "run" / "best.pt").exists()


def test_weights_and_biases_where_it_is_asked_for(tmp_path, monkeypatch, capsys):
    """Its library is not here: what it would be told."""
    told: list = []
    fake = SimpleNamespace(
        init=lambda **options: told.append(options) or fake,
        log=lambda values, step: told.append((step, values)),
        finish=lambda: told.append("finished"),
    )
    monkeypatch.setitem(sys.modules, "wandb", fake)
    train.main([*SMALL, "--evaluations", "1", "--wandb", "hoppers", "--out", str(tmp_path / "run")])
    assert told[0]["project"] == "hoppers" and told[0]["config"]["env"] == "TorchHopper-v0" and told[-1] == "finished"
    assert [step for step, _ in told[1:-1]] == sorted({step for step, _ in told[1:-1]})
    assert "evaluation" in told[-2][1]
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(SystemExit):
        train.main([*SMALL, "--wandb", "hoppers", "--out", str(tmp_path / "other")])
    assert "--wandb: needs pip install wandb" in capsys.readouterr().err and not (tmp_path / "other").exists()


SLIDER = """<mujoco><worldbody><body><joint name="x" type="slide" axis="1 0 0"/><geom size=".1"/></body></worldbody>
<actuator><motor joint="x" gear="{gear}" ctrlrange="-1 1"/></actuator></mujoco>"""
SLIDING = """
from dataclasses import dataclass
import gymnasium
from torch_mjenvs import Outcome, Task

@dataclass(frozen=True)
class Sliding(Task):
    xml_file: str = "FILE"
    frame_skip: int = 5
    names: frozenset = frozenset(("alpha", "beta", "gamma", "delta"))
    max_episode_steps = 40

    def reset(self, m, rng):
        return [rng.uniform(-1.0, 1.0)], [0.0]

    def observe(self, m, world):
        return [*world.qpos, *world.qvel]

    def outcome(self, m, before, action, after):
        return Outcome(cost(after.qpos[0]))

def cost(x):
    return -x * x

gymnasium.register("TorchSliding-v0", vector_entry_point="torch_mjenvs:TorchVectorEnv",
    entry_point="torch_mjenvs:TorchEnv", kwargs={"task": Sliding}, max_episode_steps=40)
"""


@pytest.fixture
def sliding(tmp_path, monkeypatch):
    """Flags of a run of a user's task, and the file of its model."""
    file, module = tmp_path / "slider.xml", tmp_path / f"sliding_{tmp_path.name.replace('-', '_')}.py"
    file.write_text(SLIDER.format(gear=1))
    module.write_text(SLIDING.replace("FILE", str(file)))
    monkeypatch.syspath_prepend(tmp_path)
    yield ["--env", f"{module.stem}:TorchSliding-v0", *SMALL[2:], "--actor", "16"], file
    gymnasium.registry.pop("TorchSliding-v0", None)


def test_a_model_that_changes_during_a_run_changes_no_evaluation(sliding, tmp_path, monkeypatch, capsys):
    flags, file = sliding
    results = []
    for edited in (False, True):

        def save(kept, seconds, saved=runs.Kept.save, edited=edited):
            saved(kept, seconds)
            if edited:
                file.write_text(SLIDER.format(gear=50))

        monkeypatch.setattr(runs.Kept, "save", save)
        train.main([*flags, "--evaluations", "3", "--out", str(tmp_path / f"run{edited}")])
        results.append(json.loads((tmp_path / f"run{edited}" / "result.json").read_text()))
        assert ("the task has changed (model file)" in capsys.readouterr().err) == edited
    assert [x[1:] for x in results[0]["evaluations"]] == [x[1:] for x in results[1]["evaluations"]]
    assert results[1]["changed before scores"] == "model file" and "changed before scores" not in results[0]


def test_an_edit_of_the_tasks_module_during_a_run_is_none_of_what_is_scored(sliding, tmp_path, monkeypatch, capsys):
    """The process goes on with what it has imported."""
    flags, file = sliding
    module = file.with_name(flags[1].partition(":")[0] + ".py")
    edit = lambda *_: module.write_text(module.read_text() + "# edited") and 0.0  # noqa: E731
    monkeypatch.setattr(runs.Evaluation, "__call__", edit)
    train.main([*flags, "--evaluations", "1", "--out", str(tmp_path / "run")])
    assert "has changed" not in capsys.readouterr().err
    assert "changed before scores" not in json.loads((tmp_path / "run" / "result.json").read_text())


@pytest.mark.parametrize("source", ["gone", "of another encoding"])
def test_a_task_whose_source_cannot_be_read_can_be_trained(sliding, tmp_path, source):
    """As one of a notebook, whose classes have no file."""
    flags, file = sliding
    module = file.with_name(flags[1].partition(":")[0] + ".py")
    code = b"# -*- coding: latin-1 -*-\n# \xfc\n" + module.read_bytes()
    module.write_bytes(code)
    importlib.import_module(module.stem)
    if source == "gone":
        module.unlink()
    train.main([*flags, "--out", str(tmp_path / "run")])
    assert json.loads((tmp_path / "run" / "result.json").read_text())["made"]["code"]


def test_a_task_that_cannot_be_made_any_more_ends_with_what_was_learned(sliding, tmp_path, monkeypatch):
    flags, file = sliding
    monkeypatch.setattr(runs.Evaluation, "__call__", lambda *_: file.write_text("<mujoco") and 0.0)
    with pytest.raises(SystemExit, match=r"cannot be made any more, so there are no scores: (.|\n)*all is learned"):
        train.main([*flags, "--evaluations", "1", "--out", str(tmp_path / "run")])
    assert (tmp_path / "run" / "policy.pt").exists()


def test_what_a_task_calls_is_part_of_what_it_is_made_of(sliding, tmp_path):
    """Functions beside it in its file, too; the order of a set is not."""
    flags, _ = sliding
    name = flags[1].partition(":")[0]
    script = "import sys, importlib, torch_mjenvs; from torch_mjenvs.training.worlds import make, made_of; "
    script += f"print(made_of(make('{flags[1]}', 1, 'cpu')))"

    def told(seed: str) -> str:
        env = dict(os.environ, PYTHONHASHSEED=seed, PYTHONPATH=os.pathsep.join([str(tmp_path), *sys.path]))
        command = [sys.executable, "-c", script]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout

    before = told("1")
    assert before == told("2")
    file = tmp_path / f"{name}.py"
    file.write_text(file.read_text().replace("-x * x", "x * x"))
    assert told("1") != before

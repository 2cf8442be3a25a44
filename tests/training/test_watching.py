"""What is seen of a training run while it runs: evaluations, TensorBoard, W&B; and that every setting is a flag."""

from __future__ import annotations

import argparse
import json
import math
import sys
from dataclasses import fields
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("matplotlib")
pytest.importorskip("tqdm")

from torch_mjenvs import Policy
from torch_mjenvs.training import ppo, runs, train
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


def test_a_run_on_a_gpu_is_evaluated_by_a_copy_of_its_policy_on_the_cpu(tmp_path):
    """Here the agent is on the CPU, too."""
    train.main([*SMALL, "--actor", "16,12", "--evaluations", "0", "--out", str(tmp_path / "run")])
    entries = torch.load(tmp_path / "run" / "policy.pt", weights_only=True)
    agent = SimpleNamespace(networks=lambda: {name: x for name, x in entries.items() if name != "env"})
    evaluation = runs.Evaluation({"env": "TorchHopper-v0"}, argparse.Namespace(device="cuda", seed=3))
    fresh = make("TorchHopper-v0", runs.EVALUATED, "cpu")
    assert evaluation(agent) == score(Policy.load(tmp_path / "run"), fresh, 5, "cpu").returns.mean().item()
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

"""A task's fields as flags of `train`, `play` and `score`, and what a run keeps of them."""

from __future__ import annotations

import json
import re
import sys

import gymnasium
import pytest
import torch

from torch_mjenvs import Policy
from torch_mjenvs.__main__ import main
from torch_mjenvs.training import task_flags, train
from torch_mjenvs.training.task_flags import arguments, task_behind

pytestmark = [pytest.mark.usefixtures("no_default_device"), pytest.mark.cpu]

SMALL = ["--num-envs", "16", "--horizon", "8", "--minibatch", "64", "--actor", "8", "--total-steps", "128"]
SMALL += ["--episodes", "2", "--evaluations", "1"]
PENDULUM = ["--env", "TorchInvertedPendulum-v0", *SMALL]

MINE = """
from dataclasses import dataclass, field
import gymnasium
from torch_mjenvs import InvertedPendulum, Outcome

@dataclass(frozen=True)
class Mine(InvertedPendulum):
    weights: dict[str, float] = field(default_factory=lambda: {"upright": 1.0, "effort": 0.5}, hash=False)
    horizon: float = 3.0
    push: bool = False
    name: str = "a 5 %"
    place: int | str | None = None
    gains: tuple[float, ...] = (1.0, 2.0)
    hook: object = None

    def outcome(self, m, before, action, after):
        gains = self.gains + (0.0, 0.0)
        reward = self.weights["upright"] + 10 * self.weights["effort"] + 100 * self.horizon + 1000 * self.push
        return Outcome(reward + 1e4 * gains[0] + 1e5 * gains[1], False)

gymnasium.register(
    "TorchMine-v0", vector_entry_point="torch_mjenvs.envs.vector_env:TorchVectorEnv",
    entry_point="torch_mjenvs.envs.single_env:TorchEnv", kwargs={"task": Mine}, max_episode_steps=10,
)
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A task of a user's own, in a folder of its own."""
    (tmp_path / "flag_tasks.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "flag_tasks:TorchMine-v0"
    gymnasium.registry.pop("TorchMine-v0", None)
    sys.modules.pop("flag_tasks", None)


def test_a_run_keeps_its_tasks_fields_and_all_that_follows_uses_them(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    main(["train", *PENDULUM, "--reset-noise-scale", "0"])
    run = tmp_path / "runs" / "TorchInvertedPendulum-v0-0"
    assert json.loads((run / "result.json").read_text())["task"] == {"reset_noise_scale": 0.0}
    assert Policy.load(run).task == {"reset_noise_scale": 0.0}
    capsys.readouterr()
    main(["score", str(run), "--episodes", "3"])
    said = capsys.readouterr()
    assert "TorchInvertedPendulum-v0 with reset_noise_scale=0.0" in said.err
    assert said.out.count(" ± 0.0 ") == 2, "without noise all episodes are alike, here and in Gymnasium's own"
    main(["score", str(run), "--episodes", "8", "--reset-noise-scale", "0.3"])
    said = capsys.readouterr()
    assert "with reset_noise_scale=0.3" in said.err and " ± 0.0 " not in said.out


def test_a_run_is_resumed_in_the_same_task_and_in_no_other(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    main(["train", *PENDULUM, "--reset-noise-scale", "0", "--out", "whole", "--total-steps", "256"])
    main(["train", *PENDULUM, "--reset-noise-scale", "0", "--out", "run"])
    with pytest.raises(SystemExit, match=r"is of another run: task.reset_noise_scale is 0.0 there, 0.1 here"):
        main(["train", *PENDULUM, "--resume", "--out", "run", "--reset-noise-scale", "0.1", "--total-steps", "256"])
    seen = []
    monkeypatch.setattr(train, "make", lambda *args, **kwargs: seen.append(kwargs) or make(*args, **kwargs))
    main(["train", *PENDULUM, "--resume", "--out", "run", "--total-steps", "256"])
    assert seen == [{"first_world": 0, "reset_noise_scale": 0.0}]
    assert json.loads((tmp_path / "run" / "result.json").read_text())["task"] == {"reset_noise_scale": 0.0}


make = train.make


@pytest.mark.parametrize(
    ("flags", "reward"),
    [
        ([], 200306.0 + 10000),
        (["--weights.effort", "2", "--push"], 200306.0 + 10000 + 15 + 1000),
        (["--task.horizon", "-1e-1", "--no-push", "--gains", "-1,0"], 1.0 + 5 - 10 - 10000),
        (["--place", "7", "--name", "x y"], 200306.0 + 10000),
    ],
)
def test_flags_of_all_kinds_reach_the_task(mine, tmp_path, capsys, flags, reward):
    out = ["--out", str(tmp_path / "run")]
    main(["train", "--env", mine, *SMALL, "--horizon", "4", *out, *flags])
    policy = Policy.load(tmp_path / "run")
    assert torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)["run"]["settings"]["horizon"] == 4
    capsys.readouterr()
    main(["score", str(tmp_path / "run"), "--task", mine, "--episodes", "1"])
    assert f": {10 * reward:.0f} (1 episode" in capsys.readouterr().out
    if "--place" in flags:
        assert policy.task == {"place": 7, "name": "x y"}
        assert arguments(mine, {"place": None}) == {"place": None}


def test_help_lists_the_fields(mine, capsys):
    for command, name in ((["train", "--env", mine], "Mine"), (["score", "TorchHopper-v0"], "Hopper")):
        with pytest.raises(SystemExit) as stop:
            main([*command, "--help"])
        said = " ".join(capsys.readouterr().out.split())
        assert stop.value.code == 0 and f"fields of {name}" in said
        for flag in ("--reset-noise-scale", "--frame-skip", "--xml-file"):
            assert flag in said
        if name == "Mine":
            assert "--task.horizon HORIZON default 3.0" in said and "--push, --no-push" in said
            assert "--weights.effort EFFORT default 0.5" in said and "a 5 %" in said and "--hook" not in said
    with pytest.raises(SystemExit) as stop:
        main(["play", "--help"])
    assert stop.value.code == 0 and "--worlds" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["train", *PENDULUM, "--reset-noise", "0"], "--reset-noise 0; did you mean --reset-noise-scale"),
        (["train", *PENDULUM, "--nonsense"], "unrecognized arguments: --nonsense"),
        (["train", *PENDULUM, "--reset-noise-scale", "much"], "--reset-noise-scale: much is not a number"),
        (["train", *PENDULUM, "--reset-noise-scale", "-1e-3"], "reset_noise_scale must not be negative, but is -0.001"),
        (["train", *PENDULUM, "--frame-skip", "0"], "frame_skip must be a positive whole number, not 0"),
        (["score", "TorchHopper", "--healthy-z-range", "1"], "1 is not 2 values with commas between them"),
        (["score", "TorchHopper", "--healthy-z-rang", "1,2"], "did you mean --healthy-z-range"),
        (["score", "--healthy-z-range", "1,2", "TorchHopper"], "name the policy before --healthy-z-range"),
        (["score", "TorchHopper", "--xml-file", "/nowhere.xml"], "/nowhere.xml"),
        (["train", *PENDULUM, "--xml-file", "nowhere.xml"], "a file of yours is './nowhere.xml'"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_made(tmp_path, monkeypatch, capsys, command, said):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        main(command)
    assert said in f"{stop.value} {capsys.readouterr().err}"
    assert not (tmp_path / "runs").exists()


def test_a_file_with_other_things_as_fields_is_refused(tmp_path):
    torch.manual_seed(0)
    main(["train", *PENDULUM, "--out", str(tmp_path / "run"), "--total-steps", "128"])
    found = torch.load(tmp_path / "run" / "policy.pt", weights_only=True)
    file = tmp_path / "run" / "checkpoint.pt"
    kept = torch.load(file, weights_only=True)

    def saved(task):
        torch.save(found | {"task": task}, tmp_path / "policy.pt")
        torch.save(kept | {"run": kept["run"] | {"task": task}}, file)
        return ["train", *PENDULUM, "--out", str(tmp_path / "run"), "--total-steps", "256", "--resume"]

    for wrong in ([1.0], {"noise": [1.0]}, {3: 1.0}, {"noise": torch.ones(1)}):
        resume = saved(wrong)
        with pytest.raises(ValueError, match=re.escape("its 'task' must be a dict of plain values by name")):
            Policy.load(tmp_path / "policy.pt")
        with pytest.raises(SystemExit, match="does not fit this run: its 'task' must be"):
            main(resume)
    for name in ("nothing", "frame_skip.nothing", "xml_file.p"):  # neither is a dict
        resume = saved({name: 1.0})
        with pytest.raises(SystemExit, match=f"the task has no field {name!r}"):
            main(["score", str(tmp_path / "policy.pt")])
        with pytest.raises(SystemExit, match=f"does not fit this run: the task has no field {name!r}"):
            main(resume)


def test_tasks_of_other_kinds_have_no_flags():
    gymnasium.register("TorchStrange-v0", vector_entry_point="torch_mjenvs.envs.vector_env:TorchVectorEnv")
    try:
        assert task_behind("TorchStrange-v0") is None
        assert task_flags.arguments("TorchStrange-v0", {}) == {}
    finally:
        gymnasium.registry.pop("TorchStrange-v0")

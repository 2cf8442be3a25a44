"""The TorchRL example: a whole run, small; and one that was interrupted and resumed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

pytest.importorskip("torchrl")
pytest.importorskip("matplotlib")
pytest.importorskip("tqdm")

import ppo_torchrl

from torch_mjenvs.training import runs

HERE = torch.get_default_device()
pytestmark = pytest.mark.usefixtures("no_default_device")
SMALL = ["--env", "TorchHopper-v0", "--num-envs", "32", "--total-steps", "20000", "--episodes", "2"]


def parameters(folder: Path) -> dict[str, torch.Tensor]:
    found = torch.load(folder / "policy.pt", weights_only=True)
    assert found["env"] == "TorchHopper-v0"
    return {name: x for name, x in found["networks"].items() if isinstance(x, torch.Tensor)} | found["transforms"]


def test_an_interrupted_run_resumed_ends_with_the_same_bits(tmp_path, monkeypatch, capsys):
    ppo_torchrl.main([*SMALL, "--out", str(tmp_path / "whole")])
    update, calls = ppo_torchrl.PPO.update, []

    def interrupted(agent, data):
        calls.append(agent.frames_seen)
        if len(calls) == 7:  # of 10
            raise KeyboardInterrupt
        update(agent, data)

    parted = [*SMALL, "--out", str(tmp_path / "parted")]
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(ppo_torchrl.PPO, "update", interrupted)
        ppo_torchrl.main(parted)
    torch.manual_seed(1234)  # whatever else the process did in between
    ppo_torchrl.main([*parted, "--resume"])

    whole, again = parameters(tmp_path / "whole"), parameters(tmp_path / "parted")
    assert whole.keys() == again.keys() and len(whole) > 12
    for name, x in whole.items():
        torch.testing.assert_close(again[name], x, rtol=0, atol=0)
    results = [json.loads((tmp_path / name / "result.json").read_text()) for name in ("whole", "parted")]
    assert results[0]["scores"] == results[1]["scores"]
    assert [row[1:] for row in results[0]["curve"]] == [row[1:] for row in results[1]["curve"]]
    assert {name: len(found) for name, found in results[0]["scores"].items()} == {"TorchHopper-v0": 2, "Hopper-v5": 2}
    assert (tmp_path / "whole" / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert capsys.readouterr().out.count("score in Hopper-v5") == 2
    with pytest.raises(SystemExit, match="is of another run"):
        ppo_torchrl.main([*parted, "--resume", "--seed", "1"])


def test_what_the_policy_acts_on_is_what_it_was_trained_on():
    """`act` normalises as the environment does, and takes the middle of the distribution."""
    torch.manual_seed(0)
    env = ppo_torchrl.make_env("TorchHopper-v0", 4, str(HERE))
    settings = runs.settings("TorchHopper-v0", num_envs=4)
    agent = ppo_torchrl.PPO(env, ppo_torchrl.SimpleNamespace(**settings), seed=0)
    data = env.rollout(50, agent.actor, break_when_any_done=False)
    with torch.no_grad():
        middle = agent.actor.get_dist(data[:, -1]["next"]).deterministic_sample
    assert agent.act(env.base_env.engine.obs).shape == (4, 3)
    torch.testing.assert_close(agent.act(env.base_env.engine.obs), middle, rtol=1e-4, atol=1e-5)


@pytest.mark.slow  # Humanoid takes seconds to compile
def test_normalised_observations_are_numbers_where_columns_are_constant():
    env = ppo_torchrl.make_env("TorchHumanoid-v0", 16, str(HERE))
    for _ in range(3):
        seen = env.rollout(60, break_when_any_done=False)["next", "observation"]
        assert seen.isfinite().all() and seen.abs().max() <= 10

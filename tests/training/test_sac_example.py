"""The SAC example: a whole run, small, interrupted and resumed; and that it learns what can be learnt soon."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("torchrl")
pytest.importorskip("matplotlib")
pytest.importorskip("tqdm")

import sac

from torch_mjenvs import TorchRLEnv

HERE = torch.get_default_device()
pytestmark = pytest.mark.usefixtures("no_default_device")
SMALL = [
    *("--env", "TorchHopper-v0", "--num-envs", "16", "--total-steps", "3000", "--episodes", "2"),
    *("--actor", "16,16", "--critic", "16"),
    *("--batch", "64", "--updates", "4", "--random-frames", "500", "--buffer", "2000", "--evaluations", "1"),
]


def test_an_interrupted_run_resumed_ends_with_the_same_bits(tmp_path, monkeypatch):
    """The buffer has gone round once by then."""
    sac.main([*SMALL, "--out", str(tmp_path / "whole")])
    iterate = sac.SAC.iterate

    def interrupted(agent):
        if agent.frames_seen >= 2600:
            raise KeyboardInterrupt
        iterate(agent)

    parted = [*SMALL, "--out", str(tmp_path / "parted")]
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(sac.SAC, "iterate", interrupted)
        sac.main(parted)
    torch.manual_seed(1234)  # whatever else the process did in between
    sac.main([*parted, "--resume"])
    found = [torch.load(tmp_path / name / "policy.pt", weights_only=True)["networks"] for name in ("whole", "parted")]
    assert found[0].keys() == found[1].keys() and len(found[0]) > 10
    assert all(torch.equal(x, found[1][name]) for name, x in found[0].items())
    results = [json.loads((tmp_path / name / "result.json").read_text()) for name in ("whole", "parted")]
    assert results[0]["scores"] == results[1]["scores"] and results[0]["frames"] == 3072
    assert {name: len(returns) for name, returns in results[0]["scores"].items()} == {
        "TorchHopper-v0": 2,
        "Hopper-v5": 2,
    }


@pytest.mark.slow
def test_it_balances_a_pendulum():
    """A pole falls after 5 steps at first, and stays up for ten times as long in the end."""
    torch.manual_seed(0)
    env = TorchRLEnv("InvertedPendulum", 32, device=str(HERE))
    chosen = {"num_envs": 32, "horizon": 4, "updates": 32, "batch": 256, "buffer": 20000, "random_frames": 1000}
    chosen |= {"actor": (32, 32), "critic": (32, 32), "learning_rate": 1e-3}
    agent = sac.SAC(env, SimpleNamespace(**sac.SETTINGS | chosen), seed=0)
    returns = []
    while agent.frames_seen < 20000:
        agent.iterate()
        returns.append(sum(agent.finished) / max(1, len(agent.finished)))
    assert 3 < returns[10] < 8 and returns[-1] > 10 * returns[10]
    assert agent.losses["alpha"] < 1 and all(x == x for x in agent.losses.values())

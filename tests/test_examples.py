"""The PPO example: its hand-written gradient, and a whole run, small."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("matplotlib")
pytest.importorskip("tqdm")

from examples import ppo

ROOT = Path(__file__).resolve().parents[1]


def reference_loss(net: ppo.ActorCritic, s: ppo.Settings, rows: torch.Tensor, columns: list[int]) -> torch.Tensor:
    """The loss as a textbook writes it, over `net`'s parameters; autograd differentiates it."""
    obs, action, old_log_prob, advantage, target = rows.split(columns, 1)
    outputs = []
    for i in range(2):
        x = obs
        for layer, (weight, bias) in enumerate(zip(net.weights, net.biases, strict=True)):
            x = x @ weight[i].T + bias[i]
            x = torch.tanh(x) if layer < 2 else x
        outputs.append(x)
    policy = torch.distributions.Normal(outputs[0], net.log_std.exp())
    constant = 0.5 * torch.log(torch.tensor(2 * torch.pi))
    ratio = ((policy.log_prob(action) + constant).sum(1) - old_log_prob[:, 0]).exp()
    advantage = (advantage[:, 0] - advantage.mean()) / (advantage.std() + 1e-8)
    surrogate = torch.min(ratio * advantage, ratio.clamp(1 - s.clip, 1 + s.clip) * advantage).mean()
    return s.value_weight * (outputs[1][:, 0] - target[:, 0]).square().mean() - surrogate


def test_gradient_is_autograds():
    torch.manual_seed(0)
    settings, columns = ppo.Settings(hidden=8), [5, 3, 1, 1, 1]
    agent = ppo.PPO.__new__(ppo.PPO)  # no environment is needed for this
    agent.settings, agent.columns = settings, columns
    with torch.no_grad():
        net = agent.net = ppo.ActorCritic(5, 3, settings, "cpu")
        net.theta.normal_(std=0.3)
        net.theta.grad.fill_(torch.nan)  # every entry is to be written
        rows = torch.randn(64, sum(columns))
        agent.gradient(rows)
    written = [*net.weight_grads, *net.bias_grads, net.log_std_grad]
    leaves = [*net.weights, *net.biases, net.log_std]
    detached = [x.detach().clone().requires_grad_() for x in leaves]
    net.weights, net.biases, net.log_std = detached[:3], detached[3:6], detached[6]
    with torch.enable_grad():
        expected = torch.autograd.grad(reference_loss(net, settings, rows, columns), detached)
    for ours, theirs in zip(written, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


def test_running_moments():
    torch.manual_seed(0)
    rows = torch.randn(100, 3) * 2 + 5
    moments = ppo.RunningMoments(3, device="cpu")
    for part in rows.split([10, 30, 60]):
        moments.update(part)
    torch.testing.assert_close(moments.mean, rows.mean(0))
    torch.testing.assert_close(moments.var, rows.var(0, correction=0))


def test_ppo_runs(tmp_path):
    command = [sys.executable, str(ROOT / "examples" / "ppo.py"), "--env", "TorchHopper-v0", "--num-envs", "32"]
    command += ["--total-steps", "6000", "--episodes", "2", "--out", str(tmp_path)]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    scores = re.findall(r"score in (\S+): (-?\d+) ± (\d+)", run.stdout)
    assert [name for name, *_ in scores] == ["TorchHopper-v0", "Hopper-v5"]
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    policy = torch.load(tmp_path / "policy.pt", weights_only=True)
    assert policy["obs_mean"].shape == (11,)
    assert all(x.isfinite().all() for x in policy.values() if isinstance(x, torch.Tensor))

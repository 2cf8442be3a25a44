"""PPO: its settings, its hand-written gradient, resuming, and a whole run, small."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from processes import python

pytest.importorskip("matplotlib")
pytest.importorskip("tqdm")

from benchmarks import training
from torch_mjenvs.training import ppo, runs, train
from torch_mjenvs.training.worlds import make, task_id

ROOT = Path(__file__).resolve().parents[2]
HERE = torch.get_default_device()
pytestmark = pytest.mark.usefixtures("no_default_device")
TUNED = {f"Torch{name}-v0" for name in ("HalfCheetah", "Walker2d", "Hopper", "Ant", "Humanoid")}
SUITE = ("walker-walk", "walker-run", "cheetah-run", "finger-spin", "quadruped-walk", "humanoid-walk")
TUNED |= {f"TorchDMC/{name}-v0" for name in SUITE} | {"TorchGo1Joystick-v0", "TorchG1Joystick-v0"}


def settings(**instead: Any) -> ppo.Settings:
    return ppo.Settings(**(runs.settings("no task's") | instead))


def test_settings_are_complete_and_valid():
    tables = tomllib.loads(runs.SETTINGS.read_text())
    names = {field.name for field in fields(ppo.Settings)}
    assert set(tables) == {"defaults"} | TUNED
    assert set(tables["defaults"]) == names
    for env_id, device in itertools.product(tables, ("", "cpu", "cuda")):
        table = tables[env_id] if not device else tables[env_id].get(device, {})
        assert {name for name, x in table.items() if not isinstance(x, dict)} <= names
        assert {name for name, x in table.items() if isinstance(x, dict)} <= {"cpu", "cuda"}
        assert all(type(x) is type(tables["defaults"][name]) for name, x in table.items() if name in names)
        s = ppo.Settings(**runs.settings(env_id, device))
        assert 0 < s.gamma < 1 and 0 < s.lam <= 1 and s.horizon <= 1000
        assert s.num_envs * s.horizon % s.minibatch == 0 and s.total_steps > s.num_envs * s.horizon


def test_arguments_go_over_the_table_that_goes_over_the_defaults():
    defaults, tuned = runs.settings("no task's"), runs.settings("TorchHopper-v0")
    assert tuned["gamma"] != defaults["gamma"] and tuned["clip"] == defaults["clip"]
    assert runs.settings("TorchHopper-v0", gamma=0.5) == tuned | {"gamma": 0.5}
    here = runs.settings("TorchHopper-v0", "cpu")
    assert here["gamma"] == tuned["gamma"] and here["minibatch"] < tuned["minibatch"] == defaults["minibatch"]
    assert runs.settings("TorchHopper-v0", "cpu", minibatch=64) == here | {"minibatch": 64}


def reference_loss(
    net: ppo.ActorCritic, theta: torch.Tensor, s: ppo.Settings, rows: torch.Tensor, columns: list[int]
) -> torch.Tensor:
    """The loss as a textbook writes it, over the parameters `theta`; autograd differentiates it."""
    obs, action, old_log_prob, advantage, target = rows.split(columns, 1)
    act = {"tanh": torch.tanh, "relu": torch.relu, "elu": torch.nn.functional.elu, "silu": torch.nn.functional.silu}
    outputs = []
    for layers, norms in zip((net.policy, net.value), net.norms, strict=True):
        x = obs
        for layer, wb in enumerate(layers):
            weight, bias = (theta[p.storage_offset() :][: p.numel()].view_as(p) for p in wb)
            x = x @ weight.T + bias
            if layer < len(layers) - 1 and norms:
                gain, shift = (theta[p.storage_offset() :][: p.numel()] for p in norms[layer])
                x = torch.nn.functional.layer_norm(x, gain.shape, gain, shift)
            x = act[s.activation](x) if layer < len(layers) - 1 else x
        outputs.append(x)
    policy = torch.distributions.Normal(outputs[0], theta[-3:].exp())
    constant = 0.5 * torch.log(torch.tensor(2 * torch.pi))
    ratio = ((policy.log_prob(action) + constant).sum(1) - old_log_prob[:, 0]).exp()
    normalised = (advantage[:, 0] - advantage.mean()) / (advantage.std() + 1e-8)
    surrogate = torch.min(ratio * normalised, ratio.clamp(1 - s.clip, 1 + s.clip) * normalised).mean()
    value, target, before = outputs[1][:, 0], target[:, 0], (target - advantage)[:, 0]
    loss = (value - target).square()
    if s.value_clip:
        loss = torch.max(loss, (before + (value - before).clamp(-s.value_clip, s.value_clip) - target).square())
    return s.value_weight * loss.mean() - surrogate - s.entropy * policy.entropy().sum(1).mean()


@pytest.mark.parametrize(
    "instead",
    [
        {},
        {"actor": (8, 6, 4), "critic": (7,), "activation": "elu", "entropy": 0.1},
        {"activation": "silu", "value_clip": 0.3},
        {"activation": "relu", "critic": (8, 9)},
        {"norm": "layer"},
        {"norm": "layer", "actor": (8, 6), "activation": "silu"},
    ],
)
def test_gradient_is_autograds(instead):
    torch.manual_seed(0)
    s, columns = settings(**{"actor": (8, 8), "critic": (8, 8)} | instead), [5, 3, 1, 1, 1]
    agent = ppo.PPO.__new__(ppo.PPO)  # no environment is needed for this
    agent.settings, agent.columns = s, columns
    with torch.no_grad():
        net = agent.net = ppo.ActorCritic(
            5, 3, s.actor, s.critic, s.activation, s.log_std, torch.device("cpu"), norm=s.norm
        )
        net.theta.normal_(std=0.3)
        net.theta.grad.fill_(torch.nan)  # every entry is to be written
        rows = torch.randn(64, sum(columns))
        agent.gradient(rows)
    with torch.enable_grad():
        theta = net.theta.clone().requires_grad_()
        (expected,) = torch.autograd.grad(reference_loss(net, theta, s, rows, columns), theta)
    torch.testing.assert_close(net.grad, expected, rtol=1e-4, atol=1e-6)


def test_running_moments():
    torch.manual_seed(0)
    rows = torch.randn(100, 3) * 2 + 5
    moments = ppo.RunningMoments(3, device=torch.device("cpu"))
    for part in rows.split([10, 30, 60]):
        moments.update(part)
    torch.testing.assert_close(moments.mean, rows.mean(0))
    torch.testing.assert_close(moments.var, rows.var(0, correction=0))


# Rollouts of its own, so that how many updates it makes does not follow a task's settings.
SMALL = ["--env", "TorchHopper-v0", "--num-envs", "34", "--horizon", "64", "--total-steps", "20000", "--episodes", "2"]


def policy(folder: Path) -> dict[str, torch.Tensor]:
    found = torch.load(folder / "policy.pt", weights_only=True)
    assert found.pop("env") == "TorchHopper-v0" and found.pop("task") == {} and found.pop("activation")
    return found


@pytest.mark.parametrize("more", [[], ["--target-kl", "0.02", "--critic", "24", "--norm", "layer"]])
def test_an_interrupted_run_resumed_ends_with_the_same_bits(tmp_path, monkeypatch, more):
    train.main([*SMALL, *more, "--out", str(tmp_path / "whole")])

    update, calls = ppo.PPO.update, []

    def interrupted(agent: ppo.PPO) -> None:
        calls.append(agent.frames_seen)
        if len(calls) == 7:  # of 10
            raise KeyboardInterrupt
        update(agent)

    parted = [*SMALL, *more, "--out", str(tmp_path / "parted")]
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(ppo.PPO, "update", interrupted)
        train.main(parted)
    torch.manual_seed(1234)  # whatever else the process did in between
    train.main([*parted, "--resume"])

    whole, again = policy(tmp_path / "whole"), policy(tmp_path / "parted")
    assert whole.keys() == again.keys()
    assert all(torch.equal(whole[name], again[name]) for name in whole)
    results = [json.loads((tmp_path / name / "result.json").read_text()) for name in ("whole", "parted")]
    assert results[0]["scores"] == results[1]["scores"]
    assert [row[1:] for row in results[0]["curve"]] == [row[1:] for row in results[1]["curve"]]

    with pytest.raises(SystemExit, match="is of another run: seed is 0 there, 1 here"):
        train.main([*parted, "--resume", "--seed", "1"])
    with pytest.raises(SystemExit, match="holds the results of a run"):
        train.main(parted)
    longer = [*parted, "--total-steps", "26000", "--resume"]
    train.main(longer)
    assert json.loads((tmp_path / "parted" / "result.json").read_text())["frames"] >= 26000 > results[1]["frames"]


def test_results_never_go_over_those_of_another_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def chosen(resume: bool) -> Path:
        with runs.folder(None, "Hopper-0", resume) as out:
            return out

    first = chosen(resume=False)
    assert chosen(resume=False) == first  # as long as there is nothing in it
    (first / "result.json").write_text("{}")
    second = chosen(resume=False)
    assert [str(first), str(second)] == ["runs/Hopper-0", "runs/Hopper-0-2"]
    with pytest.raises(SystemExit, match="nothing to resume"):
        chosen(resume=True)
    for out in (first, second):
        (out / "checkpoint.pt").touch()
    assert chosen(resume=True) == second


@pytest.mark.parametrize("name", ["TorchHopper-v0", "TorchHopper", "torch_mjenvs:TorchHopper-v0"])
def test_a_task_is_found_by_its_id_with_or_without_module_and_version(name):
    assert task_id(name) == "TorchHopper-v0"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--env", "Hopper-v5"], "there is no task 'Hopper-v5': choose from TorchAnt-v0"),
        (["--resume"], "nothing to resume"),
        (["--episodes", "0"], "0 is not a whole number from 1 to"),
        (["--total-steps", "1.5"], "1.5 is not a whole number above 0"),
    ],
)
def test_what_cannot_be_run_is_said_before_anything_is_made(tmp_path, monkeypatch, capsys, arguments, said):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        train.main(["--env", "TorchInvertedPendulum", "--num-envs", "64", *arguments])
    assert said in f"{stop.value} {capsys.readouterr().err}"
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_run_killed_twice_and_resumed_ends_with_the_same_bits(tmp_path):
    """By SIGKILL as soon as a checkpoint has been written, so that it may be amid the next one."""
    train.main([*SMALL, "--out", str(tmp_path / "whole")])
    checkpoint = tmp_path / "parted" / "checkpoint.pt"
    command = [sys.executable, "-m", "torch_mjenvs", "train", *SMALL, "--out", str(checkpoint.parent)]
    env = os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads())}  # the order of torch's sums depends on it
    quiet = {"env": env, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    seen = None
    for resume in ([], ["--resume"]):
        with subprocess.Popen([*command, *resume], **quiet) as run:
            deadline = time.monotonic() + 120
            while run.poll() is None and (not checkpoint.exists() or checkpoint.stat().st_mtime_ns == seen):
                assert time.monotonic() < deadline
                time.sleep(0.01)
            seen = checkpoint.stat().st_mtime_ns
            run.kill()
        assert run.returncode == -signal.SIGKILL, "it came to its end before it was killed"
    train.main([*SMALL, "--out", str(checkpoint.parent), "--resume"])
    whole, again = policy(tmp_path / "whole"), policy(checkpoint.parent)
    assert whole.keys() == again.keys() and all(torch.equal(whole[name], again[name]) for name in whole)


def test_a_truncated_episode_counts_what_it_was_still_worth():
    s = settings(num_envs=8, horizon=4, minibatch=32)
    env = make("TorchHalfCheetah-v0", 8, str(HERE))
    with torch.no_grad():
        agent = ppo.PPO(env, s, seed=0)
        env.unwrapped.elapsed_steps[:] = 0
        env.unwrapped.elapsed_steps[2] = 998  # of 1,000: its second step is its last
        data = agent.rollout()
        moments = agent.obs_moments
        worth = agent.net.forward(moments.normalise(data["final_obs"][1]))[1][2].clone()
        agent.prepare(data)
    assert data["truncated"].nonzero().tolist() == [[1, 2]]
    scale = (agent.return_moments.var + 1e-8).rsqrt()
    delta = data["reward"][1, 2] * scale + s.gamma * worth - data["value"][1, 2]
    _, _, _, advantage, target = agent.frames.view(4, 8, -1)[1, 2].split(agent.columns)
    torch.testing.assert_close(advantage[0], delta)
    torch.testing.assert_close(target[0], delta + data["value"][1, 2])


@pytest.mark.parametrize("rewards", [5.0, -5.0, 0.0])
def test_rewards_that_are_all_alike_are_scaled_to_values_of_order_1(rewards):
    """With a horizon of one step, or a discount of 0, the returns of a first rollout have no spread at all."""
    env, s = make("TorchInvertedPendulum-v0", 8, str(HERE)), settings(num_envs=8, horizon=1, minibatch=8)
    agent = ppo.PPO(env, s, seed=0)
    with torch.no_grad():
        data = agent.rollout()
        data["reward"].fill_(rewards)
        agent.prepare(data)
    target = agent.frames.split(agent.columns, 1)[4]
    assert agent.return_moments.var == 0 and target.abs().max() < 11


def test_ppo_runs(tmp_path):
    run = python("-m", "torch_mjenvs", "train", *SMALL, "--out", str(tmp_path), folder=tmp_path)
    assert run.returncode == 0, run.stderr
    scores = re.findall(r"score in (\S+): (-?[\d.]+) ± ([\d.]+)", run.stdout)
    assert [name for name, *_ in scores] == ["TorchHopper-v0", "Hopper-v5"]
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    result = json.loads((tmp_path / "result.json").read_text())
    assert {name: len(returns) for name, returns in result["scores"].items()} == {"TorchHopper-v0": 2, "Hopper-v5": 2}
    assert result["frames"] >= 20000 and result["settings"]["num_envs"] == 34
    found = policy(tmp_path)
    assert found["obs_mean"].shape == (11,)
    assert all(x.isfinite().all() for x in found.values())


def test_the_table_of_trained_policies(tmp_path, monkeypatch):
    monkeypatch.setattr(training.machine, "describe", dict)
    run = {"task": "Hopper", "seed": 0, "scores": {"gymnasium": [1.0, 3.0], "here": [2.0, 2.0]}}
    data = tmp_path / "training.json"
    for record in (run, run | {"seed": 1}, run | {"task": "HalfCheetah"}, run | {"frames": 7}):
        training.keep(data, "runs", record, ("task", "seed"))
    found = [(r["task"], r["seed"], r.get("frames")) for r in json.loads(data.read_text())["runs"]]
    assert found == [("HalfCheetah", 0, None), ("Hopper", 0, 7), ("Hopper", 1, None)]
    assert training.agrees([1.0, 3.0], [2.0, 2.1]) and not training.agrees([1.0, 1.1], [2.0, 2.1])


@pytest.mark.cpu
def test_a_profile_accounts_for_all_time():
    found = training.profile("Hopper", seconds=0.5)
    assert set(found["shares"]) == {"rollout", "update", "overhead"}
    assert all(share > 0 for share in found["shares"].values()) and abs(sum(found["shares"].values()) - 1) < 1e-3


@pytest.mark.slow
def test_the_cleanrl_example_learns():
    """It stands for scripts of that kind: every parameter moves, and Hopper falls later than at first."""
    import cleanrl_ppo

    sizes = ["--num-envs", "32", "--num-steps", "64", "--total-timesteps", "3e4", "--num-minibatches", "4"]
    args = cleanrl_ppo.parse([*sizes, "--device", str(HERE), "--learning-rate", "1e-3"])
    torch.manual_seed(args.seed)
    before = cleanrl_ppo.Agent(cleanrl_ppo.make_envs(args)[0]).state_dict()
    agent, returns = cleanrl_ppo.train(args)
    for name, x in agent.state_dict().items():
        assert x.isfinite().all() and not torch.equal(x.cpu(), before[name].cpu()), name
    assert len(returns) == 14 and returns[-1] > 2 * returns[0] > 0

"""The TorchRL example: a whole run, small; and one that was interrupted and resumed."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("torchrl")
pytest.importorskip("matplotlib")
pytest.importorskip("tqdm")

import ppo_torchrl
from launches import NoWaiting, record_graphs
from tensordict.nn import CudaGraphModule, cudagraphs
from torchrl.objectives.value import GAE

from torch_mjenvs import Policy
from torch_mjenvs.training import checkpoints, runs, worlds
from torch_mjenvs.training.scores import first_episodes

HERE = torch.get_default_device()
pytestmark = pytest.mark.usefixtures("no_default_device")
SMALL = ["--env", "TorchHopper-v0", "--num-envs", "32", "--horizon", "16", "--minibatch", "512", "--episodes", "2"]
SMALL += ["--total-steps", "5000", "--entropy", "0.001", "--value-clip", "0.2"]


def parameters(folder: Path) -> dict[str, torch.Tensor]:
    found = torch.load(folder / "policy.pt", weights_only=True)
    assert found["env"] == "TorchHopper-v0"
    return {name: x for name, x in found.items() if isinstance(x, torch.Tensor)}


def test_an_interrupted_run_resumed_ends_with_the_same_bits(tmp_path, monkeypatch, capsys, drawn):
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


def made(device: str = "cpu") -> ppo_torchrl.PPO:
    torch.manual_seed(0)
    instead = dict(num_envs=8, horizon=16, minibatch=32, epochs=2, actor=[16], critic=[16], learning_rate=1e-2)
    settings = SimpleNamespace(**runs.settings("TorchHopper-v0", **instead))
    return ppo_torchrl.PPO(ppo_torchrl.make_env("TorchHopper-v0", 8, device), settings, seed=0)


@pytest.mark.cpu
def test_a_minibatch_can_be_a_cuda_graph(monkeypatch):
    """Nothing in it waits for the device, and replayed by a stand-in for graphs it does what it does in torch."""
    monkeypatch.setattr(ppo_torchrl, "CompiledMLP", torch.nn.Sequential)  # as which it runs on a GPU
    ours, theirs = made(), made()
    data = theirs.rollout().clone()
    rows = data.select("seen", "action", "action_log_prob", "state_value", "value_target", "advantage").flatten()
    theirs.learn_from(rows[:32].clone())
    with NoWaiting():
        theirs.learn_from(rows[32:64].clone())

    seen = record_graphs(monkeypatch)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
    monkeypatch.setattr(CudaGraphModule, "_check_device_and_grad", lambda *_: None)
    for name in ("PYTREE_REGISTERED_TDS", "PYTREE_REGISTERED_LAZY_TDS"):  # which it would change for the whole process
        monkeypatch.setattr(cudagraphs, name, ())
    graph = CudaGraphModule(ours.learn_from, warmup=3, in_keys=[], out_keys=[])
    ours.learn_from = lambda rows: graph(rows.clone().clear_device_())
    ours.update(data)
    ours.loss.load_state_dict(theirs.loss.state_dict())
    for x, y in zip(ours.parameters, theirs.parameters, strict=True):
        for name, moment in theirs.optimizer.state[y].items():
            ours.optimizer.state[x][name].copy_(moment)
    for rate in (1e-2, 3e-3):
        for agent in (ours, theirs):
            agent.lr.fill_(rate)
            torch.manual_seed(1)
            agent.update(data)
        assert not any(agent.bad_updates for agent in (ours, theirs))
        for x, y in zip(ours.parameters, theirs.parameters, strict=True):
            torch.testing.assert_close(x, y, rtol=0, atol=1e-6)
    assert seen.count("replay") >= 16


@pytest.mark.skipif(HERE.type != "cuda", reason="needs a GPU")
def test_a_minibatch_is_a_cuda_graph_on_a_gpu():
    """Three iterations, beside those of a learner without graphs."""
    ours, theirs = made("cuda"), made("cuda")
    assert isinstance(ours.learn_from, CudaGraphModule)
    theirs.learn_from = theirs.learn_from.module
    for k in range(3):
        for agent in (ours, theirs):
            torch.manual_seed(k)
            agent.iterate()
            assert not str(agent.faults())
        for x, y in zip(ours.parameters, theirs.parameters, strict=True):
            torch.testing.assert_close(x, y, rtol=0, atol=1e-4)


def test_what_the_policy_acts_on_is_what_it_was_trained_on():
    """`act` normalises as a rollout does, and takes the middle of the distribution."""
    torch.manual_seed(0)
    env = ppo_torchrl.make_env("TorchHopper-v0", 4, str(HERE))
    settings = runs.settings("TorchHopper-v0", num_envs=4)
    agent = ppo_torchrl.PPO(env, ppo_torchrl.SimpleNamespace(**settings), seed=0)
    agent.rollout()
    data = env.rollout(50, agent.policy, tensordict=agent.now, auto_reset=False, break_when_any_done=False)
    with torch.no_grad():
        middle = agent.actor.get_dist(data[:, -1]).deterministic_sample
    assert agent.act(data[:, -1]["observation"]).shape == (4, 3)
    torch.testing.assert_close(agent.act(data[:, -1]["observation"]), middle, rtol=1e-4, atol=1e-5)
    assert (data["seen"] - data["observation"]).abs().mean() > 0.1


@pytest.mark.parametrize("norm", ["none", "layer"])
def test_its_policy_is_one_that_the_package_loads_and_a_run_on_a_gpu_evaluates(tmp_path, norm):
    """Such a run is evaluated by what its policy file would hold, on the CPU."""
    torch.manual_seed(0)
    env = ppo_torchrl.make_env("TorchHopper-v0", 8, str(HERE))
    s = runs.settings("TorchHopper-v0", num_envs=8, horizon=16, minibatch=32, norm=norm, activation="elu")
    agent = ppo_torchrl.PPO(env, SimpleNamespace(**s), seed=0)
    agent.iterate()
    run = {"env": "TorchHopper-v0", "settings": s}
    torch.save(checkpoints.policy_entries(agent, run), tmp_path / "policy.pt")
    policy = Policy.load(tmp_path)
    obs = agent.moments.mean.cpu() + 2 * torch.randn(100, 11)
    torch.testing.assert_close(policy(obs), agent.act(obs.to(HERE)).cpu(), rtol=1e-4, atol=1e-5)
    found = runs.Evaluation(run, SimpleNamespace(device="cuda", seed=0))(agent)
    theirs = first_episodes(policy, worlds.make_to_score("TorchHopper-v0", runs.EVALUATED, "cpu"), 2, "cpu")
    assert found == pytest.approx(theirs.returns.mean().item())


def test_advantages_are_those_of_torchrl_with_values_of_every_next_observation():
    """A rollout in which episodes end takes most values from the observations that follow."""
    torch.manual_seed(0)
    env = ppo_torchrl.make_env("TorchHopper-v0", 16, str(HERE))
    s = ppo_torchrl.SimpleNamespace(**runs.settings("TorchHopper-v0", num_envs=16))
    agent = ppo_torchrl.PPO(env, s, seed=0)
    agent.rollout()
    normalise = copy.deepcopy(agent.moments).normalise
    found = agent.rollout()
    data = found.select("seen", "next").clone()
    data["next", "seen"] = normalise(data["next", "observation"])
    del data["next", "state_value"]
    GAE(gamma=s.gamma, lmbda=s.lam, value_network=agent.critic, average_gae=False)(data)
    assert data["next", "done"].any() and not data["next", "done"].all()
    for name in ("advantage", "value_target"):
        torch.testing.assert_close(found[name], data[name].detach(), rtol=1e-4, atol=1e-4)


def test_rewards_are_divided_by_the_deviation_of_discounted_returns():
    torch.manual_seed(0)
    reward, done = torch.randn(3, 20, 1), torch.rand(3, 20, 1) < 0.2
    returns = ppo_torchrl.Returns(3, 0.9, torch.device("cpu"))
    scaled, ended = returns.scale(reward, done)
    discounted, episodes = [], []
    for world in range(3):
        running, total = 0.0, float("nan")
        for r, end in zip(reward[world, :, 0].tolist(), done[world, :, 0].tolist(), strict=True):
            running, total = 0.9 * running + r, total + r
            discounted.append(running)
            if end:
                episodes += [total] if total == total else []
                running = total = 0.0
    torch.testing.assert_close(ended.sort().values, torch.tensor(episodes).sort().values)
    torch.testing.assert_close(scaled, reward / torch.tensor(discounted).std(correction=0), rtol=1e-4, atol=0)


def test_settings_that_the_example_does_not_take_are_refused(capsys):
    with pytest.raises(SystemExit):
        ppo_torchrl.main([*SMALL, "--target-kl", "0.01"])
    assert "unrecognized arguments: --target-kl" in capsys.readouterr().err

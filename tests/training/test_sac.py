"""SAC: its losses, its buffer, its policies; a small run that is interrupted and resumed; and that it learns."""

from __future__ import annotations

import io
import json
import math
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

pytest.importorskip("matplotlib")
pytest.importorskip("tqdm")

from torch_mjenvs import Policy
from torch_mjenvs.__main__ import main
from torch_mjenvs.training import sac
from torch_mjenvs.training.health import Faults
from torch_mjenvs.training.sharing import ALONE
from torch_mjenvs.training.worlds import make

pytestmark = [pytest.mark.usefixtures("no_default_device"), pytest.mark.cpu]
ENV = "TorchInvertedPendulum-v0"  # whose actions are from -3 to 3
SMALL = [
    *("train", "--algorithm", "sac", "--env", ENV, "--num-envs", "8", "--total-steps", "1200", "--episodes", "2"),
    *("--actor", "8,8", "--critic", "8", "--activation", "elu", "--norm", "layer", "--evaluations", "1"),
    *("--batch", "32", "--updates", "3", "--random-frames", "200", "--buffer", "900"),
]


def learner(seed: int = 0, **instead: Any) -> sac.SAC:
    torch.manual_seed(seed)
    small = {"num_envs": 8, "batch": 16, "buffer": 100, "random_frames": 0, "actor": [8, 8], "critic": [8, 12]}
    s = sac.Settings(**sac.settings(ENV, **small | {"updates": 2} | instead))
    with torch.no_grad():
        return sac.SAC(make(ENV, 8, "cpu"), s, seed)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder of a small run. The buffer has gone round once by its end."""
    out = tmp_path_factory.mktemp("sac") / "whole"
    main([*SMALL, "--out", str(out)])
    return out


def test_products_are_in_float32_whatever_ran_before_and_the_run_says_so(whole):
    assert json.loads((whole / "result.json").read_text())["precision"] == "float32"
    torch.set_float32_matmul_precision("medium")  # as a run of PPO does
    s = sac.settings(ENV, num_envs=8, batch=16, buffer=100, random_frames=0, actor=[8, 8], critic=[8, 12])
    sac.make(make(ENV, 8, "cpu"), s, 0, {}, ALONE)
    assert torch.get_float32_matmul_precision() == "highest"


def test_an_interrupted_run_resumed_ends_with_the_same_bits(whole, tmp_path, monkeypatch):
    iterate = sac.SAC.iterate

    def interrupted(agent: sac.SAC) -> None:
        if agent.frames_seen >= 1000:
            raise KeyboardInterrupt
        iterate(agent)

    parted = [*SMALL, "--out", str(tmp_path / "parted")]
    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(sac.SAC, "iterate", interrupted)
        main(parted)
    torch.manual_seed(1234)  # whatever else the process did in between
    main([*parted, "--resume"])
    a, b = (torch.load(out / "checkpoint.pt", weights_only=True)["agent"] for out in (whole, tmp_path / "parted"))
    for name in ("actor", "critic", "target"):
        assert a[name].keys() == b[name].keys() and all(torch.equal(x, b[name][key]) for key, x in a[name].items())
    assert len(a["replay"]["rows"]) == 900 and torch.equal(a["replay"]["rows"], b["replay"]["rows"])
    results = [json.loads((out / "result.json").read_text()) for out in (whole, tmp_path / "parted")]
    assert results[0]["scores"] == results[1]["scores"] and {*results[0]["scores"]} == {ENV, "InvertedPendulum-v5"}
    assert (results[0]["algorithm"], results[0]["settings"]["tau"], results[0]["frames"]) == ("SAC", 0.005, 1216)
    assert all((tmp_path / "parted" / name).exists() for name in ("best.pt", "curve.png"))


def test_no_other_algorithm_goes_on_with_its_run_or_starts_from_it(whole, tmp_path):
    other = ["train", "--env", ENV, "--out", str(tmp_path / "run"), "--start", str(whole)]
    with pytest.raises(SystemExit, match="algorithm is SAC, here PPO"):
        main(other)
    with pytest.raises(SystemExit, match=r"is of another run: .*algorithm is SAC there, PPO here"):
        main(["train", "--algorithm", "ppo", "--out", str(whole), "--resume"])
    main([*SMALL, "--out", str(tmp_path / "run"), "--start", str(whole)])
    assert json.loads((tmp_path / "run" / "result.json").read_text())["frames_before"] == 1216


def test_the_policy_of_a_run_acts_as_the_agent_in_every_form(whole, tmp_path, capsys):
    agent, policy = learner(actor=[8, 8], critic=[8], activation="elu", norm="layer"), Policy.load(whole)
    with torch.no_grad():
        agent.begin_with(torch.load(whole / "checkpoint.pt", weights_only=True)["agent"])
    obs = torch.randn(50, 4) * 3
    with torch.no_grad():
        expected = agent.act(obs)
    assert expected.abs().max() < 3 and expected.std() > 0.01
    torch.testing.assert_close(policy(obs), expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(torch.jit.script(policy)(obs), expected, rtol=1e-5, atol=1e-6)
    policy.export(tmp_path / "pendulum.npz")
    file = np.load(tmp_path / "pendulum.npz")
    x = np.clip((obs.numpy() - file["mean"]) * file["scale"], -10, 10)
    for i in range(3):
        x = x @ file[f"weights{i}"].T + file[f"biases{i}"]
        if i < 2:
            x = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
            x = x * file[f"gains{i}"] + file[f"shifts{i}"]
            x = np.where(x > 0, x, np.expm1(np.minimum(x, 0)))
    np.testing.assert_allclose(file["middle"] + file["reach"] * np.tanh(x), expected, rtol=1e-4, atol=1e-5)
    main(["score", str(whole), "--episodes", "2"])
    assert "score in InvertedPendulum-v5" in capsys.readouterr().out


def test_a_file_with_bad_bounds_is_refused(whole, tmp_path):
    found = torch.load(whole / "policy.pt", weights_only=True)
    for change in ({"action_low": torch.zeros(2)}, {"action_low": torch.full((1,), 4.0)}, {"action_high": None}):
        torch.save(found | change, tmp_path / "policy.pt")
        with pytest.raises(ValueError, match="action_"):
            Policy.load(tmp_path)


@pytest.mark.parametrize("norm", ["none", "layer"])
def test_losses_and_step_are_those_of_a_plain_one(norm):
    """Written with torch's distributions and layers, a frame at a time in the mean, and torch's Adam."""
    agent = learner(gamma=0.9, tau=0.1, norm=norm)
    with torch.no_grad():
        for net in (agent.actor, agent.critic, agent.target):
            for x in (*net.gains, *net.shifts):
                x.add_(torch.randn_like(x) * 0.3)
        for x in agent.target.parameters():
            x.add_(torch.randn_like(x) * 0.1)
        agent.obs_moments.update(torch.randn(100, 4) * 2 + 1)
        agent.log_alpha.fill_(-0.7)
    generator = torch.Generator().manual_seed(1)
    rows = torch.randn(16, 11, generator=generator)
    rows[:, 4].clamp_(-1, 1)
    rows[:, 6] = torch.rand(16, generator=generator) < 0.7
    before = {name: [x.detach().clone() for x in getattr(agent, name).parameters()] for name in ("critic", "target")}
    params = [x.detach().clone().requires_grad_() for x in agent.parameters]
    count, layers = (10, 3) if norm == "layer" else (6, 3)
    actor, critic, (log_alpha,) = params[:count], params[count : 2 * count], params[2 * count :]

    def network(p: list[torch.Tensor], x: torch.Tensor, k: int) -> torch.Tensor:
        for i in range(layers):
            x = torch.nn.functional.linear(torch.relu(x) if i else x, p[i][k], p[layers + i][k, 0])
            if norm == "layer" and i < layers - 1:
                gain, shift = p[2 * layers + i][k, 0], p[3 * layers - 1 + i][k, 0]
                x = torch.nn.functional.layer_norm(x, gain.shape, gain, shift)
        return x

    def sample(obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean, spread = network(actor, obs, 0).chunk(2, 1)
        base = torch.distributions.Normal(mean, (-5 + 3.5 * (spread.tanh() + 1)).exp())
        squashed = torch.distributions.TransformedDistribution(base, torch.distributions.TanhTransform(cache_size=1))
        action = squashed.rsample()
        return action, squashed.log_prob(action).sum(1)

    def lower(p: list[torch.Tensor], obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        return torch.minimum(*(network(p, torch.cat([obs, action], 1), k)[:, 0] for k in range(2)))

    obs, next_obs = (agent.obs_moments.normalise(x) for x in (rows[:, :4], rows[:, 7:]))
    alpha = math.exp(-0.7)
    torch.manual_seed(5)
    with torch.no_grad():
        action, log_prob = sample(next_obs)
        wanted = rows[:, 5] + 0.9 * rows[:, 6] * (lower(before["target"], next_obs, action) - alpha * log_prob)
    both = [network(critic, torch.cat([obs, rows[:, 4:5]], 1), k)[:, 0] for k in range(2)]
    critic_loss = sum((q - wanted).square().mean() for q in both)
    action, log_prob = sample(obs)
    actor_loss = (alpha * log_prob - lower(before["critic"], obs, action)).mean()
    alpha_loss = -(log_alpha * (log_prob.detach() - 1)).mean()
    optimizer = torch.optim.Adam(params, 3e-4)
    (critic_loss + actor_loss + alpha_loss).backward()
    optimizer.step()
    torch.manual_seed(5)
    with torch.no_grad():
        found = agent.learn_from(rows)
    expected = [actor_loss, critic_loss, lower(before["critic"], obs, action).mean(), -log_prob.mean(), alpha]
    expected = torch.stack([torch.as_tensor(x).detach() for x in expected])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    for x, y in zip(agent.parameters, params, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-4, atol=2e-6)
    for x, y, z in zip(agent.target.parameters(), before["target"], agent.critic.parameters(), strict=True):
        torch.testing.assert_close(x, 0.9 * y + 0.1 * z)


@torch.no_grad()
def test_what_is_kept_of_a_step_is_what_the_step_did():
    """Also where an episode ends: the pole falls, and the next observation is from before the reset."""
    agent = learner(horizon=12, buffer=96)
    agent.at_random.fill_(True)
    data = agent.rollout()
    agent.keep(data)
    obs, action, reward, going_on, next_obs = agent.replay.rows.view(12, 8, -1).split(agent.columns, 2)
    assert torch.equal(obs, data["obs"]) and (3 * action).sub(data["action"]).abs().max() < 1e-6
    assert action.min() < -0.8 and action.max() > 0.8
    assert torch.equal(reward[..., 0], data["reward"]) and not going_on.all() and going_on.any()
    assert torch.equal(going_on[..., 0] == 0, data["terminated"])
    stays = going_on[:-1, :, 0] > 0
    assert torch.equal(next_obs[:-1][stays], obs[1:][stays])
    assert (next_obs[going_on[..., 0] == 0][:, 1].abs() > 0.2).all()  # the angle at which it ends
    assert agent.obs_moments.count == 96


def test_the_buffer_keeps_the_last_rows():
    replay = sac.Replay(10, 1, torch.device("cpu"))
    rows, where = torch.arange(27.0)[:, None], replay.rows.data_ptr()
    for start in range(0, 27, 3):
        replay.put(rows[start : start + 3])
        assert replay.filled == min(start + 3, 10)
        assert sorted(replay.rows[: replay.filled, 0].tolist()) == rows[max(0, start - 7) : start + 3, 0].tolist()
        assert replay.draw(50).unique().tolist() == sorted(replay.rows[: replay.filled, 0].tolist())
    other = sac.Replay(10, 1, torch.device("cpu"))
    other.load_state_dict(replay.state_dict())
    for x in (replay, other):
        x.put(rows[:2])
    assert torch.equal(replay.rows, other.rows) and replay.rows.data_ptr() == where


def test_a_checkpoint_has_the_frames_that_there_are_and_no_room_for_more():
    replay, file = sac.Replay(100_000, 4, torch.device("cpu")), io.BytesIO()
    replay.put(torch.randn(10, 4))
    torch.save(replay.state_dict(), file)
    assert file.tell() < 5000


@torch.no_grad()
def test_a_frame_that_is_not_finite_ends_the_run():
    agent = learner()
    agent.iterate()
    assert agent.faults() == Faults() and all(math.isfinite(x) for x in agent.measures().values())
    agent.replay.rows[: agent.replay.filled, 5] = torch.nan
    agent.bad_updates.zero_()
    agent.learn_from(agent.replay.draw(16))
    found = agent.faults()
    assert found.bad_updates == 1 and found.bad_weights > 0 and found.divergence(32)


def test_what_cannot_be_is_refused(capsys):
    with pytest.raises(SystemExit, match="buffer: 10 frames are fewer than a rollout has, 256 = 64 worlds"):
        main(["train", "--algorithm", "sac", "--buffer", "10"])
    with pytest.raises(SystemExit, match="nothing is learned before 10,240 frames, and the run has 5,000"):
        main(["train", "--algorithm", "sac", "--total-steps", "5000"])
    with pytest.raises(ValueError, match="nothing is learned before 1,600 frames, and the run has 1,000"):
        sac.settings(num_envs=8, horizon=100, random_frames=900, total_steps=1000)  # the second rollout is the last
    assert sac.settings(num_envs=8, horizon=100, random_frames=800, total_steps=1000)["random_frames"] == 800
    with pytest.raises(ValueError, match="SAC needs actions with bounds"):
        sac.bounds(gymnasium.spaces.Box(-np.inf, np.inf, (2,)))
    for wrong in (["--algorithm", "td3"], ["--algorithm", "sac", "--learner", "torch"], ["--tau", "0.1"]):
        with pytest.raises(SystemExit):
            main(["train", *wrong])
        said = capsys.readouterr().err
        assert wrong[-1] in said or wrong[-2] in said


@pytest.mark.slow
@torch.no_grad()
def test_it_balances_a_pendulum():
    """A pole falls after 5 steps at first, and stays up for five times as long in the end."""
    small = {"horizon": 4, "updates": 32, "batch": 128, "buffer": 20000, "random_frames": 1000, "learning_rate": 1e-3}
    agent, returns = learner(actor=[32, 32], critic=[32, 32], **small), []
    while agent.frames_seen < 7000:
        agent.iterate()
        returns.append(sum(agent.finished) / max(1, len(agent.finished)))
    assert 3 < returns[30] < 8 and returns[-1] > 5 * returns[30]
    assert agent.measures()["alpha"] < 1

"""Other libraries, and our own trainer, are told of a reward's terms and of why episodes end, and take any actions."""

from __future__ import annotations

import copy
import itertools
import json
import warnings
from dataclasses import dataclass, replace
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from carts import LIMIT, TERMS, Carts
from libraries import adapter

from torch_mjenvs import Outcome, Task, TorchVectorEnv, adapters, wrappers
from torch_mjenvs.commands.bench import stepping
from torch_mjenvs.envs.episode_log import of_last_step

N = 8
NAMES = [f"episode_reward/{name}" for name in TERMS]
REASONS = ["fell", "left", "calm", "time_limit", "bad_state"]
ALL = [*NAMES, "episode_mean/speed", "episode_length", *(f"episode_end/{name}" for name in REASONS)]


def make(mode: str = "SameStep", task: type[Task] = Carts, **arguments) -> TorchVectorEnv:
    return TorchVectorEnv(task, N, autoreset_mode=mode, **arguments)


@dataclass(frozen=True)
class Motor(Task):
    """A cart whose motor is to be driven within these bounds."""

    xml_file: str = "inverted_pendulum.xml"
    frame_skip: int = 2
    low: float = -float("inf")
    high: float = float("inf")

    def action_space(self, m):
        return [self.low], [self.high]

    def reset(self, m, rng):
        return [0.0] * m.nq, [0.0] * m.nv

    def observe(self, m, world):
        return [*world.qpos, *world.qvel]

    def outcome(self, m, before, action, after):
        return Outcome(action[0])


def motor(low: float = -float("inf"), high: float = float("inf"), mode: str = "SameStep") -> TorchVectorEnv:
    return make(mode, Motor, low=low, high=high)


def actions(steps: int, device: torch.device) -> torch.Tensor:
    drawn = torch.rand(steps, N, 2, generator=torch.Generator().manual_seed(0), device="cpu")
    return (2 * drawn - 1).to(device)


# what of an action


def test_a_motor_without_limits_takes_any_action():
    class Free(Motor):
        action_space = Task.action_space

        def load(self):
            m = super().load()
            m.actuator_ctrllimited[:] = False
            return m

    env = make(task=Free)
    assert env.single_action_space == gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    env.reset(seed=0)
    assert (env.step(torch.full((N, 1), 7.0, device=env.device))[1] == 7).all()
    stepping(env)()
    assert not env.engine.bad_state.any() and env.engine.action.any()
    with pytest.raises(ValueError, match=r"actions are unbounded.* Give the actuators"):
        wrappers.RescaleAction(env, -1.0, 1.0)


@pytest.mark.parametrize("name", ["SB3VecEnv", "RlGamesVecEnv", "TianshouVectorEnv"])
@pytest.mark.parametrize("low", [-float("inf"), 0.0])
def test_libraries_that_scale_or_refuse_are_given_bounded_actions_alone(name, low):
    mode = "Disabled" if name == "TianshouVectorEnv" else "SameStep"
    with pytest.raises(ValueError, match=f"{name} needs actions within finite bounds.*ctrllimited='true'"):
        adapter(name)(motor(low, mode=mode))


@pytest.mark.parametrize("name", ["SB3VecEnv", "RslRlVecEnv", "SkrlVecEnv"])
def test_libraries_that_begin_about_0_warn_where_0_is_no_action(name):
    mode = "NextStep" if name == "SkrlVecEnv" else "SameStep"
    with pytest.warns(UserWarning, match=r"begin with actions about 0, and entries \[0\].*RescaleAction"):
        adapter(name)(motor(-2.8, -0.9, mode))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        adapter(name)(wrappers.RescaleAction(motor(-2.8, -0.9, mode), -1.0, 1.0))


def test_torchrl_takes_actions_that_are_all_bounded_or_all_unbounded():
    pytest.importorskip("torchrl")
    from torchrl.data import Bounded, Unbounded
    from torchrl.envs import check_env_specs

    from torch_mjenvs import TorchRLEnv

    for task, kind, width in ((Motor(), Unbounded, 1), (Carts(), Bounded, 2), (Motor(low=1.0, high=2.0), Bounded, 1)):
        env = TorchRLEnv(task, N)
        check_env_specs(env, return_contiguous=False, seed=0, break_when_any_done=False)  # episodes may be short
        assert isinstance(env.action_spec, kind) and env.action_spec.shape == (N, width)
        assert not env.engine.bad_state.any()
    with pytest.raises(ValueError, match="all bounded or all unbounded"):
        TorchRLEnv(Motor(low=0.0), N)


# what of rewards and ends


def test_stable_baselines3_keeps_the_terms_of_episodes():
    env = adapter("SB3VecEnv")(make())
    from stable_baselines3 import PPO
    from stable_baselines3.common.vec_env import VecMonitor

    model = PPO("MlpPolicy", VecMonitor(env, info_keywords=tuple(ALL)), n_steps=32, batch_size=64, n_epochs=1)
    model.learn(N * 32)
    assert len(model.ep_info_buffer) > 10
    for told in model.ep_info_buffer:
        assert told["l"] == told["episode_length"] <= LIMIT
        assert any(told[f"episode_end/{name}"] for name in REASONS)


def test_statistics_with_terms_reach_stable_baselines3():
    env = adapter("SB3VecEnv")(wrappers.RecordEpisodeStatistics(make()))
    env.reset()
    for action in actions(LIMIT, torch.device("cpu")):
        _, _, done, infos = env.step(action.numpy())
        for told in np.array(infos)[done]:
            assert {*told["episode"]["rewards"]} == {*TERMS} and {*told["episode"]["ends"]} == {*REASONS}
            assert told["episode"]["rewards"]["upright"] == told["episode_reward/upright"]


def expected_means(env: TorchVectorEnv, ended: torch.Tensor) -> dict[str, float]:
    return {name: x[ended].double().mean().item() for name, x in of_last_step(env.engine).items()}


@pytest.mark.parametrize("name", ["RslRlVecEnv", "RlGamesVecEnv"])
def test_adapters_log_means_over_the_episodes_that_ended(name):
    env, key = adapter(name)(make(), seed=0), {"RslRlVecEnv": "log", "RlGamesVecEnv": "episode"}[name]
    env.reset() if name == "RlGamesVecEnv" else None
    want: dict[str, float] = dict.fromkeys(ALL, np.nan)
    kinds = set()
    for action in actions(3 * LIMIT, env.env.device):
        *_, done, extras = env.step(action)
        kinds.add(bool(done.any()))
        if done.any():
            want = expected_means(env.env, done.bool())
        assert {name: x.item() for name, x in extras[key].items()} == pytest.approx(want, rel=1e-5, nan_ok=True)
    assert kinds == {True, False} and not np.isnan(want["episode_length"])
    plain = adapter(name)(TorchVectorEnv("InvertedPendulum", N, autoreset_mode="SameStep"))
    plain.reset() if name == "RlGamesVecEnv" else None
    assert key not in plain.step(torch.zeros(N, 1, device=env.env.device))[3]


def scalars(folder: Path) -> dict[str, list[float]]:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    seen = accumulator.EventAccumulator(str(folder))
    seen.Reload()
    return {name: [event.value for event in seen.Scalars(name)] for name in seen.Tags()["scalars"]}


@pytest.mark.usefixtures("no_default_device")
def test_rsl_rl_trains_and_logs_the_terms(tmp_path):
    env = adapter("RslRlVecEnv")(make(device="cpu"), seed=0)
    from rsl_rl.runners import OnPolicyRunner

    network = {"class_name": "MLPModel", "hidden_dims": [8], "activation": "elu"}
    config = {
        "num_steps_per_env": 24, "save_interval": 100, "obs_groups": {"actor": ["policy"], "critic": ["policy"]},
        "actor": network | {"distribution_cfg": {"class_name": "GaussianDistribution", "init_std": 1.0}},
        "critic": network, "algorithm": {"class_name": "PPO", "num_learning_epochs": 1, "num_mini_batches": 1},
    }  # fmt: skip
    runner = OnPolicyRunner(env, config, log_dir=str(tmp_path), device="cpu")
    runner.learn(2)
    found = scalars(tmp_path)
    for name in ALL:
        values = found[name if "/" in name else f"Episode/{name}"]
        assert np.isfinite(values[-1]) and len(values) == 2


@pytest.mark.usefixtures("no_default_device")
@pytest.mark.parametrize("adapted", [True, False])
def test_skrl_trains_and_tracks_the_terms(adapted):
    pytest.importorskip("skrl")
    from skrl.envs.wrappers.torch import wrap_env
    from skrl.utils.runner.torch import Runner

    bare = make("NextStep", device="cpu")
    env = adapters.SkrlVecEnv(bare) if adapted else wrap_env(wrappers.LogEpisodes(bare))
    network = [{"name": "net", "input": "OBSERVATIONS", "layers": [8], "activations": "elu"}]
    config = {
        "seed": 0,
        "models": {
            "separate": True,
            "policy": {"class": "GaussianMixin", "network": network, "output": "ACTIONS"},
            "value": {"class": "DeterministicMixin", "network": network, "output": "ONE"},
        },
        "memory": {"class": "RandomMemory", "memory_size": -1},
        "agent": {
            "class": "PPO", "rollouts": 16, "learning_epochs": 1, "mini_batches": 1, "time_limit_bootstrap": True,
            "experiment": {"write_interval": 0, "checkpoint_interval": 0},
        },
        "trainer": {
            "class": "SequentialTrainer", "timesteps": 32, "headless": True, "close_environment_at_exit": False,
        } | ({} if adapted else {"environment_info": "log"}),
    }  # fmt: skip
    runner = Runner(env, config)
    runner.run()
    tracked = runner.agent.tracking_data
    for name in ALL:
        assert np.isfinite(tracked[name if "/" in name else f"Info / {name}"][-1])


@pytest.mark.parametrize("mode", ["SameStep", "NextStep", "Disabled"])
def test_the_wrapper_logs_means_and_goes_on_from_its_state(mode):
    env = wrappers.LogEpisodes(make(mode))
    env.reset(seed=0)
    want: dict[str, float] = dict.fromkeys(ALL, np.nan)
    for action in actions(2 * LIMIT, env.device):
        _, _, terminated, truncated, info = env.step(action)
        if (ended := terminated | truncated).any():
            want = expected_means(env.unwrapped, ended)
            if mode == "Disabled":
                env.reset(options={"reset_mask": ended})
        assert {name: x.item() for name, x in info["log"].items()} == pytest.approx(want, rel=1e-5, nan_ok=True)
    other = wrappers.LogEpisodes(make(mode))
    other.load_state_dict(env.state_dict())
    still = torch.zeros(N, 2, device=env.device)
    assert other.step(still)[4]["log"] == env.step(still)[4]["log"]
    with pytest.raises(ValueError, match="nothing to log"):
        wrappers.LogEpisodes(motor())


def test_torchrl_observes_the_terms_and_takes_their_sums_back():
    pytest.importorskip("torchrl")
    from torch_mjenvs import TorchRLEnv

    env = TorchRLEnv(Carts, N, info_keys=("episode_reward/upright", "episode_end/calm"))
    env.set_seed(0)
    data = env.rollout(2 * LIMIT, break_when_any_done=False)
    sums, ended = data["next", "episode_reward/upright"][..., 0], data["next", "done"][..., 0]
    assert not data["episode_reward/upright"][:, 1:][ended[:, :-1]].any(), "an episode begins with a sum of 0"
    assert (sums[ended] != 0).all() and data["next", "episode_end/calm"][ended].any()
    assert not data["next", "episode_end/calm"][~ended].any()
    state = env.get_state()
    before = env.engine.view("episode_sums").clone()
    env.rollout(3)
    assert before.any() and not torch.equal(env.engine.view("episode_sums"), before)
    again = env.reset(state.clone(), set_state=True)
    assert torch.equal(env.engine.view("episode_sums"), before)
    assert torch.equal(again["episode_reward/upright"], data["next", "episode_reward/upright"][:, -1])
    fresh = env.reset(state.select("qpos", "qvel"), set_state=True)
    assert not env.engine.view("episode_sums").any() and not fresh["episode_reward/upright"].any()


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_rollout_has_what_ended_episodes_tell(wrapped):
    env, twin = make(), make()
    around = wrappers.NormalizeReward(env) if wrapped else env
    env.reset(seed=1), twin.reset(seed=1)
    if wrapped:
        around.reset(seed=1)
    moves = itertools.cycle(actions(100, env.device))  # on a GPU it is asked for more, before and in a capture
    moved = []

    def policy(obs):
        moved.append(next(moves))
        return moved[-1]

    data = around.capture(policy, 2 * LIMIT)()
    for t, action in enumerate(moved[-2 * LIMIT :]):
        final = twin.step(action)[4]["final_info"]
        for name in ALL:
            assert torch.equal(data[name][t], final[name])
    assert {*ALL} <= {*data}


@dataclass(frozen=True)
class Telling(Carts):
    def outcome(self, m, before, action, after):
        found = super().outcome(m, before, action, after)
        return replace(found, info={"reward": 7.0, "terminated": 1.0, "truncated": 1.0})


def test_a_rollout_has_the_wrappers_rewards_whatever_a_task_tells():
    around, twin = (wrappers.ClipReward(make(task=Telling), -0.1, 0.1) for _ in range(2))
    around.reset(seed=1), twin.reset(seed=1)
    action = torch.zeros(N, twin.single_action_space.shape[0], device=twin.device)
    data = around.capture(lambda obs: action, LIMIT)()
    for t in range(LIMIT):
        _, *expected, _ = twin.step(action)
        for name, x in zip(("reward", "terminated", "truncated"), expected, strict=True):
            assert torch.equal(data[name][t], x), name


# our own PPO


def agent_of(env: TorchVectorEnv, horizon: int):
    ppo = pytest.importorskip("torch_mjenvs.training.ppo")
    from torch_mjenvs.training.settings import settings

    small = {"actor": [8], "critic": [8], "minibatch": 32, "epochs": 1}
    chosen = settings("TorchInvertedPendulum-v0", num_envs=N, horizon=horizon, **small)
    return ppo, ppo.PPO(env, ppo.Settings(**chosen), 0)


@dataclass(frozen=True)
class Short(Carts):
    """Truncated again and again, and a longer time limit than a rollout."""

    named: bool = True

    def outcome(self, m, before, action, after):
        often, four = after.memory["steps"] > 3.5 + after.memory["late"], after.memory["steps"] > 3.5
        return Outcome({"place": after.qpos[0] + 1.0}, truncated={"often": often} if self.named else four)


@torch.no_grad()
@pytest.mark.parametrize("named", [True, False])
def test_the_value_of_every_episode_that_a_task_truncates_counts(named):
    _, agent = agent_of(make(task=Short(named=named), copy=False, max_episode_steps=1000), 32)
    s, normalise = agent.settings, agent.obs_moments.normalise
    data = {name: x.clone() for name, x in agent.rollout().items()}
    assert data["truncated"].sum(0).min() > 1 and not data["terminated"].any()

    def value(obs: torch.Tensor) -> torch.Tensor:
        return agent.net.forward(normalise(obs))[1].clone()

    final = torch.stack([value(obs) for obs in data["final_obs"]])
    following = torch.stack([*(value(obs) for obs in data["obs"][1:]), value(data["next_obs"])])
    values = torch.stack([value(obs) for obs in data["obs"]])
    agent.prepare(data)
    rewards = data["reward"] * (agent.return_moments.var + 1e-8).rsqrt()
    advantage, wanted = torch.zeros(N), []
    for t in reversed(range(s.horizon)):
        ended = data["truncated"][t]
        after = torch.where(ended, final[t], following[t])
        delta = rewards[t] + s.gamma * after - values[t]
        advantage = delta + s.gamma * s.lam * torch.where(ended, 0.0, advantage)
        wanted.append(advantage)
    found = agent.frames.split(agent.columns, 1)[3].view(s.horizon, N)
    torch.testing.assert_close(found, torch.stack(wanted[::-1]), rtol=1e-4, atol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize(
    ("low", "high", "first"), [(-2.8, -0.8, -1.8), (-1.0, 3.0, 0.0), (2.0, np.inf, 3.0), (-np.inf, np.inf, 0.0)]
)
def test_a_policy_begins_in_the_middle_of_a_range_without_0(low, high, first):
    _, agent = agent_of(make(task=Motor, low=low, high=high, copy=False), 16)
    obs = torch.zeros(N, 4)
    assert agent.act(obs)[:, 0].tolist() == pytest.approx([first] * N)
    agent.iterate()
    assert agent.act(obs).isfinite().all()


@torch.no_grad()
def test_training_goes_on_with_what_it_was_told():
    _, agent = agent_of(make(copy=False), 12)
    for _ in range(3):
        agent.iterate()
    state = copy.deepcopy(agent.state_dict())
    agent.iterate()
    _, other = agent_of(make(copy=False), 12)
    other.iterate()  # of which nothing is to be left
    other.load_state_dict(state)
    other.iterate()
    agent.seconds = other.seconds
    assert {*ALL} <= {*agent.measures()} and agent.measures() == other.measures()
    assert len(agent.episodes.told) == len(agent.finished) > 10


@pytest.mark.cpu
@pytest.mark.usefixtures("no_default_device")
def test_a_run_logs_the_terms_and_says_them(tmp_path, capsys, monkeypatch):
    pytest.importorskip("matplotlib")
    pytest.importorskip("tqdm")
    from torch_mjenvs.__main__ import main

    monkeypatch.setattr("torch_mjenvs.training.log.EVERY", 0.0)  # else so short a run has the first record and the last
    env_id = "TorchCarts-v0"
    vector = "torch_mjenvs.envs.vector_env:TorchVectorEnv"
    gymnasium.register(env_id, vector_entry_point=vector, max_episode_steps=LIMIT, kwargs={"task": Carts})
    small = ["--env", env_id, "--num-envs", "8", "--actor", "8", "--minibatch", "64", "--episodes", "3"]
    try:
        main(["train", *small, "--evaluations", "0", "--horizon", "12", "--total-steps", "600", "--out", str(tmp_path)])
    finally:
        del gymnasium.registry[env_id]
    found = scalars(tmp_path)
    assert {*ALL} <= {*found} and len(found["episode_reward/upright"]) > 3
    assert found["episode_length"][-1] <= LIMIT
    assert sum(found[f"episode_end/{name}"][-1] for name in REASONS) >= 1
    means = json.loads((tmp_path / "result.json").read_text())["means_in_scores"]
    assert {*means} == {env_id} and {*means[env_id]} == {*ALL}
    assert f"  episode_length: {means[env_id]['episode_length']:.4g}" in capsys.readouterr().out

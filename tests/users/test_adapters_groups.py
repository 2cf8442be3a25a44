"""The adapters give other libraries a task's names and groups, and these train on them.

A library that is not installed is skipped by name: `make libraries` installs them all.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict
from libraries import adapter
from named import SHAPES, TRUE_WIDTH, WIDTH, Grouped, Named

from torch_mjenvs import TorchEnv, TorchVectorEnv, wrappers

N, STEPS = 4, 15
FORMS = ["dict", "flat"]


def make(task: Any, form: str = "dict", mode: str = "SameStep") -> TorchVectorEnv:
    return TorchVectorEnv(task, N, observation=form, autoreset_mode=mode)


def rows(task: Any, mode: str = "SameStep") -> tuple[TorchVectorEnv, Any]:
    """The same worlds, and their first observations."""
    env = make(task, "flat", mode)
    return env, env.reset(seed=3)[0]


def moves() -> np.ndarray:
    return np.random.default_rng(0).uniform(-1, 1, (STEPS, N, 1)).astype(np.float32)


def tensor(x: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(x).to(torch.get_default_device())


# -- rsl_rl ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_rsl_rl_has_a_row_for_each_group(form):
    env, (twin, obs) = adapter("RslRlVecEnv")(make(Grouped, form), seed=3), rows(Grouped)
    for action in moves():
        given = env.get_observations()
        assert list(given.keys()) == ["policy", "privileged"]
        assert all(torch.equal(given[name], obs[name]) for name in obs)
        _, _, _, extras = env.step(tensor(action))
        obs, *_, info = twin.step(tensor(action))
        assert all(torch.equal(extras["final_obs"][name], x) for name, x in info["final_obs"].items())


@pytest.mark.parametrize("form", FORMS)
def test_rsl_rl_has_names_without_groups_as_one(form):
    env, (_, obs) = adapter("RslRlVecEnv")(make(Named, form), seed=3), rows(Named)
    assert list(env.get_observations().keys()) == ["policy"]
    assert torch.equal(env.get_observations()["policy"], obs)


def test_rsl_rl_takes_wrappers_and_groups_of_any_name():
    class Other(Grouped):
        noise, history = {}, {}

        def observe(self, m, world):
            return {"mine": {"x": world.qpos[0]}, "theirs": {"speeds": list(world.qvel)}}

    env = adapter("RslRlVecEnv")(wrappers.NormalizeObservation(make(Other)), seed=3)
    assert {name: x.shape for name, x in env.get_observations().items()} == {"mine": (N, 1), "theirs": (N, 2)}


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
@pytest.mark.usefixtures("no_default_device")
def test_rsl_rl_trains_a_critic_that_sees_more():
    ours = adapter("RslRlVecEnv")
    from rsl_rl.runners import OnPolicyRunner

    network = {"class_name": "MLPModel", "hidden_dims": [8], "activation": "tanh", "obs_normalization": True}
    actor = network | {"distribution_cfg": {"class_name": "GaussianDistribution", "init_std": 1.0}}
    config = {
        "num_steps_per_env": 4, "save_interval": 100, "actor": actor, "critic": network,
        "obs_groups": {"actor": ["policy"], "critic": ["policy", "privileged"]},
        "algorithm": {"class_name": "PPO", "num_learning_epochs": 1, "num_mini_batches": 1, "rnd_cfg": None},
    }  # fmt: skip
    runner = OnPolicyRunner(ours(make(Grouped), seed=0), config, log_dir=None, device="cpu")
    runner.learn(2)
    sizes = [next(net.mlp.parameters()).shape[1] for net in (runner.alg.actor, runner.alg.critic)]
    assert sizes == [WIDTH, WIDTH + TRUE_WIDTH]


# -- Stable-Baselines3 -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", [Named, Grouped])
@pytest.mark.parametrize("form", FORMS)
def test_sb3_sees_names_of_the_policy_alone(task, form):
    env = adapter("SB3VecEnv")(make(task, form))
    env.seed(3)
    twin = TorchVectorEnv(task, N, observation=form, autoreset_mode="SameStep")
    obs, _ = twin.reset(seed=[3 + i for i in range(N)])
    given, ends = env.reset(), 0
    for action in moves():
        same(given, obs["policy"] if task is Grouped else obs)
        given, _, done, infos = env.step(action)
        obs, *_, info = twin.step(tensor(action))
        final = info["final_obs"]["policy"] if task is Grouped else info["final_obs"]
        for k in np.flatnonzero(done):
            ends += 1
            last = infos[k]["terminal_observation"]
            same({n: x[None] for n, x in last.items()} if isinstance(last, dict) else last[None], pick(final, k))
    assert ends
    space = env.observation_space
    assert ({name: x.shape for name, x in space.items()} == SHAPES) if form == "dict" else space.shape == (WIDTH,)


def pick(tree: Any, k: int) -> Any:
    return {name: x[k : k + 1] for name, x in tree.items()} if isinstance(tree, dict) else tree[k : k + 1]


def same(given: Any, expected: Any) -> None:
    if not isinstance(expected, dict):
        np.testing.assert_array_equal(given, expected.cpu().numpy())
        return
    assert list(given) == list(expected)
    for name, x in expected.items():
        np.testing.assert_array_equal(given[name], x.cpu().numpy(), err_msg=name)


def test_sb3_has_numbers_as_rows_of_one():
    class Numbers(Named):
        noise, history = {}, {}

        def observe(self, m, world):
            return {"x": world.qpos[0], "rest": [world.qpos[1], *world.qvel]}

    env = adapter("SB3VecEnv")(make(Numbers))
    assert env.observation_space["x"].shape == (1,) and env.reset()["x"].shape == (N, 1)


@pytest.mark.usefixtures("no_default_device")
def test_sb3_trains_on_names():
    env = adapter("SB3VecEnv")(make(Grouped))
    from stable_baselines3 import PPO

    model = PPO("MultiInputPolicy", env, n_steps=8, batch_size=16, n_epochs=1, device="cpu", seed=0).learn(64)
    assert model.policy.features_extractor.features_dim == WIDTH


def test_sb3_needs_the_group_of_a_policy():
    class Odd(Named):
        noise, history = {}, {}

        def observe(self, m, world):
            return {"mine": {"x": world.qpos[0]}}

    for name in ("SB3VecEnv", "SkrlVecEnv"):
        mode = "NextStep" if name == "SkrlVecEnv" else "SameStep"
        with pytest.raises(ValueError, match=r"'policy' sees \['policy'\], and the groups are \['mine'\]"):
            adapter(name)(make(Odd, mode=mode))


# -- skrl --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_skrl_has_states_beside_observations(form):
    ours = adapter("SkrlVecEnv")
    from skrl.utils import set_seed

    set_seed(3)
    env, (twin, obs) = ours(make(Grouped, form, "NextStep")), rows(Grouped, "NextStep")
    assert env.observation_space.shape == (WIDTH,) and env.state_space.shape == (WIDTH + TRUE_WIDTH,)
    seen, _ = env.reset()
    for action in moves():
        assert torch.equal(seen, obs["policy"])
        assert torch.equal(env.state(), torch.cat([obs["policy"], obs["privileged"]], 1))
        seen, reward, terminated, truncated, _ = env.step(tensor(action))
        obs, *expected, _ = twin.step(tensor(action))
        assert all(torch.equal(a[:, 0], b) for a, b in zip((reward, terminated, truncated), expected, strict=True))
    assert torch.equal(env.reset()[0], seen)


def test_skrl_has_no_states_without_groups_and_other_groups_where_they_are_named():
    ours = adapter("SkrlVecEnv")
    env = ours(make(Named, mode="NextStep"))
    env.reset()
    assert env.state_space is None and env.state() is None and env.observation_space.shape == (WIDTH,)
    env = ours(make(Grouped, mode="NextStep"), {"critic": ["privileged"]})
    env.reset()
    assert env.state().shape == (N, TRUE_WIDTH)
    with pytest.raises(ValueError, match=r"'critic' sees \['truth'\], and the groups are \['policy', 'privileged'\]"):
        ours(make(Grouped, mode="NextStep"), {"critic": ["truth"]})


@pytest.mark.usefixtures("no_default_device")
def test_skrl_trains_a_critic_that_sees_more(tmp_path, monkeypatch):
    env = adapter("SkrlVecEnv")(make(Grouped, mode="NextStep"))
    monkeypatch.chdir(tmp_path)
    from skrl.utils.runner.torch import Runner

    def net(source):
        return [{"name": "net", "input": source, "layers": [8], "activations": "elu"}]

    config = {
        "seed": 0,
        "models": {
            "separate": True,
            "policy": {"class": "GaussianMixin", "network": net("OBSERVATIONS"), "output": "ACTIONS"},
            "value": {"class": "DeterministicMixin", "network": net("STATES"), "output": "ONE"},
        },
        "memory": {"class": "RandomMemory", "memory_size": -1},
        "agent": {
            "class": "PPO", "rollouts": 8, "learning_epochs": 1, "mini_batches": 1, "time_limit_bootstrap": True,
            "experiment": {"write_interval": 0, "checkpoint_interval": 0},
        },
        "trainer": {
            "class": "SequentialTrainer", "timesteps": 16, "headless": True, "close_environment_at_exit": False,
        },
    }  # fmt: skip
    runner = Runner(env, config)
    runner.run()
    models = runner.agent.models
    policy, value = ({p.shape[-1] for p in models[name].parameters() if p.ndim == 2} for name in ("policy", "value"))
    assert WIDTH in policy and WIDTH + TRUE_WIDTH in value


# -- rl_games and Tianshou ---------------------------------------------------------------------------------------------


def test_rl_games_has_states_beside_observations():
    ours = adapter("RlGamesVecEnv")
    env, (twin, obs) = ours(make(Grouped), seed=3), rows(Grouped)
    assert env.get_env_info()["state_space"].shape == (WIDTH + TRUE_WIDTH,)
    given = env.reset()
    for action in moves():
        assert torch.equal(given["obs"], obs["policy"])
        assert torch.equal(given["states"], torch.cat([obs["policy"], obs["privileged"]], 1))
        given, *_ = env.step(tensor(action))
        obs, *_ = twin.step(tensor(action))


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
@pytest.mark.usefixtures("no_default_device")
def test_rl_games_trains_a_central_value(tmp_path, monkeypatch):
    ours = adapter("RlGamesVecEnv")
    from rl_games.torch_runner import Runner

    monkeypatch.chdir(tmp_path)
    ours.register("cart", lambda num_envs, **config: make(Grouped))
    space = {"mu_activation": "None", "sigma_activation": "None", "fixed_sigma": True}
    space |= {"mu_init": {"name": "default"}, "sigma_init": {"name": "const_initializer", "val": 0}}
    mlp = {"units": [8], "activation": "elu", "initializer": {"name": "default"}}
    network = {"name": "actor_critic", "separate": False, "space": {"continuous": space}, "mlp": mlp}
    central = {
        "minibatch_size": N * 8, "mini_epochs": 1, "learning_rate": 1e-3, "clip_value": True, "normalize_input": True,
        "network": {"name": "actor_critic", "central_value": True, "mlp": mlp},
    }  # fmt: skip
    config = {
        "name": "cart", "env_name": "cart", "env_config": {}, "device": "cpu", "ppo": True, "num_actors": N,
        "horizon_length": 8, "minibatch_size": N * 8, "mini_epochs": 1, "max_epochs": 1, "gamma": 0.99, "tau": 0.95,
        "value_bootstrap": True, "reward_shaper": {"scale_value": 1.0}, "learning_rate": 1e-3, "lr_schedule": None,
        "e_clip": 0.2, "clip_value": True, "entropy_coef": 0.0, "critic_coef": 2.0, "bounds_loss_coef": 0.0,
        "grad_norm": 1.0, "truncate_grads": True, "normalize_input": True, "normalize_value": True,
        "normalize_advantage": True, "mixed_precision": False, "torch_compile": False, "central_value_config": central,
    }  # fmt: skip
    model = {"name": "continuous_a2c_logstd"}
    runner = Runner()
    runner.load({"params": {
        "seed": 1, "algo": {"name": "a2c_continuous"}, "model": model, "network": network, "config": config,
    }})  # fmt: skip
    runner.run({"train": True})
    (saved,) = Path("runs").glob("*/nn/last*.pth")
    state = torch.load(saved, weights_only=False)
    sizes = [{x.shape[1] for x in state[name].values() if x.ndim == 2} for name in ("model", "assymetric_vf_nets")]
    assert WIDTH in sizes[0] and WIDTH + TRUE_WIDTH in sizes[1]


@pytest.mark.usefixtures("no_default_device")
@pytest.mark.parametrize("task", [Named, Grouped])
def test_tianshou_is_given_what_its_own_vector_of_single_worlds_gives(task):
    ours = adapter("TianshouVectorEnv")
    from tianshou.data import Batch
    from tianshou.env import DummyVectorEnv

    env = ours(TorchVectorEnv(task, N, dtype=torch.float64, autoreset_mode="Disabled"))
    theirs = DummyVectorEnv([lambda: TorchEnv(task)] * N)
    assert env.seed(3) == theirs.seed(3)
    given, expected = env.reset()[0], theirs.reset()[0]
    for action in moves()[:5]:
        assert given.shape == expected.shape and given.dtype == expected.dtype == object
        assert Batch(obs=given) == Batch(obs=expected)
        given, expected = env.step(action[[1, 2]], [1, 2])[0], theirs.step(action[[1, 2]], [1, 2])[0]


def test_spaces_are_gymnasiums_own():
    assert isinstance(make(Grouped).single_observation_space["policy"], Dict)
    assert isinstance(gymnasium.spaces.flatten_space(make(Grouped).single_observation_space), Box)

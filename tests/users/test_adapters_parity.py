"""The adapters give other libraries what the environment says, and what their own vectors of single worlds would give.

A library that is not installed is skipped by name: `make libraries` installs them all.
"""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode
from libraries import adapter

from torch_mjenvs import Outcome, Task, TorchVectorEnv, adapters, wrappers
from torch_mjenvs.vectors import norm, sub

SAME_STEP, NEXT_STEP, DISABLED = AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED
N, STEPS, LIMIT = 4, 60, 20
TENSORS = ["RslRlVecEnv", "RlGamesVecEnv"]


def make(mode: AutoresetMode = SAME_STEP, **kwargs: Any) -> TorchVectorEnv:
    """Hoppers fall after about 20 steps, or are cut after as many: both happen."""
    usual = {"dtype": torch.float64, "max_episode_steps": LIMIT}
    return TorchVectorEnv("Hopper", N, **(usual | kwargs), autoreset_mode=mode)


def single() -> gymnasium.Env:
    return gymnasium.make("TorchHopper-v0", max_episode_steps=LIMIT)


def actions(seed: int = 1) -> np.ndarray:
    """Some fall, some do not."""
    calm = np.linspace(0.2, 1.0, N)[:, None]
    return np.random.default_rng(seed).uniform(-1, 1, (STEPS, N, 3)) * calm


# -- Stable-Baselines3 -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, DISABLED])
def test_sb3_is_given_the_same_in_every_autoreset_mode(mode):
    """Observations, rewards, ends and what is told of them, wrappers included."""

    def made(mode: AutoresetMode) -> Any:
        env = wrappers.NormalizeObservation(wrappers.RecordEpisodeStatistics(make(mode)))
        env.update_running_mean = False
        return adapter("SB3VecEnv")(env)

    ours, same = made(mode), made(SAME_STEP)
    ours.seed(7), same.seed(7)
    np.testing.assert_array_equal(ours.reset(), same.reset())
    ended = 0
    for action in actions():
        mine, theirs = ours.step(action), same.step(action)
        for x, y in zip(mine[:3], theirs[:3], strict=True):
            np.testing.assert_array_equal(x, y)
        ended += mine[2].sum()
        for x, y in zip(mine[3], theirs[3], strict=True):
            assert x.keys() == y.keys()
            for name in x:
                if name == "episode":
                    assert (x[name]["r"], x[name]["l"]) == (y[name]["r"], y[name]["l"])
                else:
                    np.testing.assert_array_equal(x[name], y[name])
        assert ours.reset_infos == same.reset_infos
    assert ended > 2 * N


def test_sb3_is_given_what_its_own_vector_of_single_worlds_gives():
    ours = adapter("SB3VecEnv")(make())
    from stable_baselines3.common.vec_env import DummyVecEnv

    theirs = DummyVecEnv([single] * N)
    assert ours.seed(7) == theirs.seed(7)
    np.testing.assert_array_equal(ours.reset(), theirs.reset())
    assert ours.reset_infos == theirs.reset_infos
    kinds = set()
    for action in actions():
        mine, real = ours.step(action), theirs.step(action)
        np.testing.assert_array_equal(mine[0], real[0])
        np.testing.assert_allclose(mine[1], real[1], rtol=1e-6)  # theirs are float32
        np.testing.assert_array_equal(mine[2], real[2])
        for done, told, expected in zip(mine[2], mine[3], real[3], strict=True):
            assert bool(told) == done
            if done:
                kinds.add(told["TimeLimit.truncated"])
                np.testing.assert_array_equal(told.pop("terminal_observation"), expected.pop("terminal_observation"))
                assert told == pytest.approx(expected)
        assert ours.reset_infos == theirs.reset_infos
    assert kinds == {True, False}


def test_sb3_seeds_and_options_count_once():
    env = adapter("SB3VecEnv")(make())
    env.seed(3)
    env.set_options({"anything": 1})
    first = env.reset()
    assert not np.array_equal(env.reset(), first)
    env.seed(3)
    np.testing.assert_array_equal(env.reset(), first)


def test_sb3_seeds_are_checked_at_once():
    """A wrong one was kept, and made every later reset fail."""
    env = adapter("SB3VecEnv")(make())
    for wrong in (1.5, "a", -1):
        with pytest.raises((TypeError, ValueError), match="seed must"):
            env.seed(wrong)
    assert env.seed(3) == [3, 4, 5, 6] and len(env.seed()) == N
    env.reset()


def test_sb3s_wrappers_and_ours_go_around():
    inside = wrappers.NormalizeObservation(wrappers.RecordEpisodeStatistics(make()))
    ours = adapter("SB3VecEnv")(inside)
    from stable_baselines3.common.vec_env import VecMonitor, VecNormalize

    env = VecNormalize(VecMonitor(ours))
    assert env.env_is_wrapped(wrappers.RecordEpisodeStatistics) == [True] * N
    assert env.env_is_wrapped(gymnasium.Wrapper, indices=[0]) == [False]
    env.reset()
    lengths = []
    for action in actions():
        _, _, done, infos = env.step(action)
        for told in np.array(infos)[done]:
            assert {"r", "l", "t"} == set(told["episode"])
            lengths.append(told["episode"]["l"])
    assert LIMIT in lengths and min(lengths) < LIMIT


@pytest.mark.parametrize("mode", [SAME_STEP, NEXT_STEP, DISABLED])
def test_sb3_infos_have_what_info_keys_names_in_every_step(mode):
    """Also in an episode's last step, where they are those of that step."""
    bare = make()
    bare.reset(seed=3)
    ours = adapter("SB3VecEnv")(make(mode), info_keys=("x_velocity", "reward_survive"))
    ours.env.reset(seed=3)
    ends = 0
    for action in actions():
        *_, info = bare.step(torch.tensor(action, device=bare.device))
        *_, done, infos = ours.step(action)
        final = info.get("final_info", {})
        for i, told in enumerate(infos):
            ends += done[i]
            for name in ("x_velocity", "reward_survive"):
                assert told[name] == (final if done[i] else info)[name][i].item()
            assert done[i] or len(told) == 2
    assert ends
    with pytest.raises(ValueError, match=r"info has no \['cost'\]: info_keys may name \["):
        adapter("SB3VecEnv")(make(), info_keys="cost")


@dataclass(frozen=True)
class Reach(Task):
    """Gymnasium's Reacher, whose goal is remembered by each world."""

    data = "fresh"
    max_episode_steps = 7

    xml_file: str = "reacher.xml"
    frame_skip: int = 2

    def memory(self, m):
        return {"goal": [0.0, 0.0]}

    def reset(self, m, rng):
        return [rng.uniform(-0.1, 0.1) for _ in range(m.nq)], [0.0] * m.nv

    def begin(self, m, world):
        return {"goal": [world.rng.uniform(-0.2, 0.2) for _ in range(2)]}

    def tip(self, m, world):
        return list(world.data.xpos[m.body("fingertip")][:2])

    def observe(self, m, world):
        goals = {"achieved_goal": self.tip(m, world), "desired_goal": world.memory["goal"]}
        return {"observation": [*world.qpos[:2], *world.qvel[:2]], **goals}

    def compute_reward(self, achieved_goal, desired_goal, info):
        return -norm(sub(achieved_goal, desired_goal))

    def outcome(self, m, before, action, after):
        reward = self.compute_reward(self.tip(m, after), after.memory["goal"], {})
        return Outcome(reward, reward > -0.02, success=reward > -0.1)


def away(achieved_goal: np.ndarray, desired_goal: np.ndarray) -> np.ndarray:
    return -np.linalg.norm(achieved_goal - desired_goal, axis=-1)


class GoalEnv(TorchVectorEnv):
    def compute_reward(self, achieved_goal: np.ndarray, desired_goal: np.ndarray, infos: Any) -> np.ndarray:
        return away(achieved_goal, desired_goal)


class GoalWrapper(wrappers.ClipReward):
    def compute_reward(self, achieved_goal: np.ndarray, desired_goal: np.ndarray, infos: Any) -> np.ndarray:
        return away(achieved_goal, desired_goal)


@pytest.mark.parametrize("mode", [SAME_STEP, NEXT_STEP, DISABLED])
@pytest.mark.parametrize(
    "goals",
    [
        lambda **x: TorchVectorEnv(Reach, N, **x),  # whose task computes it
        lambda **x: GoalEnv(Reach, N, **x),
        lambda **x: GoalWrapper(TorchVectorEnv(Reach, N, **x), -9, 9),
    ],
)
def test_sb3_replays_with_other_goals(goals, mode):
    """HerReplayBuffer: its own transitions, last ones too, have the task's rewards, those that it draws the goal's."""
    env = adapter("SB3VecEnv")(goals(autoreset_mode=mode))
    from stable_baselines3 import HerReplayBuffer

    buffer = HerReplayBuffer(400, env.observation_space, env.action_space, env, device="cpu", n_envs=N)
    rng, obs, ends = np.random.default_rng(0), env.reset(), 0
    for _ in range(40):
        action = rng.uniform(-1, 1, (N, 2)).astype(np.float32)
        new, reward, done, infos = env.step(action)
        last = {name: x.copy() for name, x in new.items()}
        for i in np.flatnonzero(done):  # as Stable-Baselines3's own loop does
            for name in last:
                last[name][i] = infos[i]["terminal_observation"][name]
            assert infos[i]["is_success"] == (reward[i] > -0.1)
        np.testing.assert_allclose(reward, away(last["achieved_goal"], last["desired_goal"]), atol=1e-6)
        buffer.add(obs, last, action, reward, done, infos)
        obs, ends = new, ends + done.sum()
    assert ends > N
    drawn = buffer.sample(300)
    found = away(*(drawn.next_observations[name].numpy() for name in ("achieved_goal", "desired_goal")))
    np.testing.assert_allclose(drawn.rewards[:, 0], found, atol=1e-6)
    assert (found > -1e-6).any()  # relabelled with what was reached
    with pytest.raises(ValueError, match="all worlds share one environment"):
        env.env_method("render", indices=[0])
    with pytest.raises(AttributeError, match="compute_reward"):
        adapter("SB3VecEnv")(make()).env_method("compute_reward", 0, 0, [], indices=[0])


@pytest.mark.parametrize(
    "wrap",
    [
        wrappers.NormalizeObservation,
        wrappers.NormalizeReward,
        lambda env: wrappers.ObservationNoise(env, 0.1),
        lambda env: wrappers.FrameStackObservation(env, 3),
        lambda env: wrappers.TransformReward(env, lambda reward: 2 * reward),
        lambda env: wrappers.RescaleAction(wrappers.ClipReward(env, -0.1), -2.0, 2.0),
        lambda env: gymnasium.wrappers.vector.TransformReward(env, lambda reward: 2 * reward),
    ],
)
def test_sb3_replays_with_no_rewards_that_a_wrapper_changes(wrap):
    """They would differ from those that the steps gave."""
    env, goals = adapter("SB3VecEnv")(wrap(TorchVectorEnv(Reach, N))), np.zeros((3, 2), np.float32)
    with pytest.raises(ValueError, match="which changes rewards or goals: leave it out"):
        env.env_method("compute_reward", goals, goals, [{}] * 3, indices=[0])


def test_sb3_attributes_and_methods():
    env = adapter("SB3VecEnv")(make())
    env.reset()
    assert env.get_attr("dt", indices=[1, 2]) == [0.008] * 2 and not env.has_attr("no_such")
    assert torch.equal(env.get_attr("qpos", 2)[0], env.env.qpos[2])
    env.set_attr("render_worlds", (1,))
    assert env.env.render_worlds == (1,)
    assert env.env_method("get_attr", "dt") == [0.008] * N
    for call in (lambda: env.set_attr("copy", True, indices=0), lambda: env.env_method("render", indices=[1])):
        with pytest.raises(ValueError, match="share one environment"):
            call()


def test_sb3_reads_attributes_of_wrappers_and_calls_none():
    env = adapter("SB3VecEnv")(wrappers.NormalizeObservation(make()))
    before = env.reset()
    assert env.has_attr("close") and env.has_attr("reset") and env.has_attr("obs_rms") and not env.has_attr("obs_rm")
    assert [call.__name__ for call in env.get_attr("close", [0, 2])] == ["close", "close"]
    assert env.get_attr("render_worlds", [3]) == [env.env.unwrapped.render_worlds]
    env.step(np.zeros((N, 3)))  # nothing was closed or begun anew
    assert env.get_attr("obs_rms", 1) == [env.env.obs_rms] and before.shape == (N, 11)


def test_sb3_has_pictures_beside_the_state_in_bytes():
    env = adapter("SB3VecEnv")(make(pixels={"width": 8, "height": 8, "state": True}, dtype=torch.float32))
    obs = env.reset()
    assert {name: x.dtype for name, x in obs.items()} == {"state": np.float32, "pixels": np.uint8}
    assert np.array_equal(obs["pixels"], env.env.obs["pixels"].cpu().numpy())
    *_, infos = [env.step(np.ones((N, 3))) for _ in range(LIMIT)][-1]
    last = [info["terminal_observation"] for info in infos if info]
    assert last and all(env.observation_space.contains(x) for x in last)


# -- rsl_rl and rl_games -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TENSORS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tensors_are_the_environments_own(name, dtype):
    plain = make(dtype=dtype)
    ours = adapter(name)(make(dtype=dtype), seed=5)
    expected, _ = plain.reset(seed=5)
    seen = ours.get_observations()["policy"] if name == "RslRlVecEnv" else ours.reset()
    assert torch.equal(seen, expected.float())
    cut = fell = 0
    for action in torch.from_numpy(actions()).to(plain.device):
        obs, reward, done, extras = ours.step(action)
        wanted, wanted_reward, terminated, truncated, info = plain.step(action)
        final = extras["final_obs"]
        if name == "RslRlVecEnv":
            assert ours.get_observations() is obs and obs.batch_size == (N,)
            obs, final = obs["policy"], final["policy"]
        assert obs.dtype == reward.dtype == torch.float32 and obs.device == plain.device
        assert torch.equal(obs, wanted.float()) and torch.equal(reward, wanted_reward.float())
        assert torch.equal(done.bool(), terminated | truncated) and torch.equal(final, info["final_obs"].float())
        assert torch.equal(extras["time_outs"], truncated & ~terminated)
        cut, fell = cut + int(extras["time_outs"].sum()), fell + int(terminated.sum())
    assert cut and fell


def test_rsl_rl_moves_where_episodes_are_cut():
    env = adapter("RslRlVecEnv")(make(), seed=0)
    assert (env.max_episode_length, env.num_actions, env.num_envs) == (LIMIT, 3, N)
    assert not env.episode_length_buf.any() and env.cfg["healthy_reward"] == 1.0
    env.episode_length_buf = torch.tensor([0, 1, LIMIT - 1, LIMIT - 2])
    still = torch.zeros(N, 3)
    assert env.step(still)[3]["time_outs"].tolist() == [False, False, True, False]
    assert env.episode_length_buf.tolist() == [1, 2, 0, LIMIT - 1]
    with pytest.raises(ValueError, match="max_episode_steps"):
        _ = adapter("RslRlVecEnv")(make(max_episode_steps=-1)).max_episode_length


def test_rsl_rl_begins_anew_when_it_is_asked_to():
    env = adapter("RslRlVecEnv")(make(), seed=1)
    for action in actions()[:5]:
        env.step(torch.from_numpy(action))
    obs, extras = env.reset(seed=4)
    assert torch.equal(obs["policy"], make().reset(seed=4)[0].float()) and extras == {}
    assert obs is env.get_observations() and not env.episode_length_buf.any()
    env.close()
    with pytest.raises(gymnasium.error.ClosedEnvironmentError):
        env.reset()


def test_rl_games_is_given_pictures_in_bytes():
    """It divides by 255 what is of bytes: both when it acts, and when it learns from its buffer of bytes."""
    env = adapter("RlGamesVecEnv")(make(pixels={"width": 8, "height": 6}), seed=3)
    space = env.get_env_info()["observation_space"]
    assert space.dtype == np.uint8 and space.shape == (6, 8, 3)
    assert env.reset().dtype == torch.uint8
    obs, *_, infos = env.step(torch.zeros(N, 3))
    assert obs.dtype == infos["final_obs"].dtype == torch.uint8 and torch.equal(obs, env.env.obs)


def test_rl_games_plays_a_checkpoint_of_other_worlds():
    """Its player has one world, and hands over the state of all."""

    def made(num_envs: int) -> Any:
        env = TorchVectorEnv("Hopper", num_envs, autoreset_mode=SAME_STEP)
        return adapter("RlGamesVecEnv")(wrappers.NormalizeObservation(env), seed=0)

    many, one = made(N), made(1)
    many.reset(), one.reset()
    many.step(torch.zeros(N, 3))
    before = one.env.unwrapped.state_dict()
    with pytest.warns(UserWarning, match=f"states of {N} worlds, and here are 1"):
        one.set_env_state(many.get_env_state())
    assert all(torch.equal(x, before[name]) for name, x in one.env.unwrapped.state_dict().items())
    assert torch.equal(one.env.obs_rms.mean, many.env.obs_rms.mean)


def test_rl_games_finds_a_task_by_its_name_and_keeps_its_state():
    ours = adapter("RlGamesVecEnv")
    from rl_games.common import vecenv

    ours.register("hopper", lambda num_envs, **config: make(**config))
    env = vecenv.create_vec_env("hopper", N, seed=4, healthy_reward=2.0)
    assert torch.equal(env.reset(), make().reset(seed=4)[0].float()) and env.env.engine.task.healthy_reward == 2.0
    assert env.get_env_info()["action_space"] == env.env.single_action_space
    steps = torch.from_numpy(actions()).to(env.env.device)
    for action in steps[:10]:
        env.step(action)
    state, expected = env.get_env_state(), env.step(steps[10])[0]
    other = vecenv.create_vec_env("hopper", N)
    other.set_env_state(None)
    other.set_env_state(state)
    assert torch.equal(other.step(steps[10])[0], expected)


# -- Tianshou ----------------------------------------------------------------------------------------------------------


def test_tianshou_is_given_what_its_own_vector_of_single_worlds_gives():
    ours = adapter("TianshouVectorEnv")(make(DISABLED))
    from tianshou.env import DummyVectorEnv

    theirs = DummyVectorEnv([single] * N)
    assert ours.seed(7) == [[7 + i] for i in range(N)] and theirs.seed(7)
    np.testing.assert_array_equal(ours.reset()[0], theirs.reset()[0])
    rng, kinds, partial = np.random.default_rng(0), set(), 0
    for action in actions():
        ids = np.sort(rng.permutation(N)[: rng.integers(1, N + 1)])
        partial += len(ids) < N
        mine, real = ours.step(action[ids], ids), theirs.step(action[ids], ids)
        for x, y in zip(mine[:4], real[:4], strict=True):
            np.testing.assert_array_equal(x, y)
        for done, told, expected in zip(mine[2] | mine[3], mine[4], real[4], strict=True):
            assert told == pytest.approx(expected if done else {"env_id": expected["env_id"]})
        kinds |= {(bool(a), bool(b)) for a, b in zip(*mine[2:4], strict=True)}
        ended = ids[mine[2] | mine[3]]
        if len(ended):
            np.testing.assert_array_equal(ours.reset(ended)[0], theirs.reset(ended)[0])
    assert partial > 5 and {(True, False), (False, True), (False, False)} <= kinds


def test_tianshou_resets_with_seeds_and_says_what_it_has():
    env = adapter("TianshouVectorEnv")(make(DISABLED))
    lone = TorchVectorEnv("Hopper", 1, dtype=torch.float64)
    obs, info = env.reset(seed=11)
    np.testing.assert_array_equal(obs, np.repeat(lone.reset(seed=11)[0].cpu().numpy(), N, 0))
    assert info.tolist() == [{"env_id": i} for i in range(N)] and len(env) == N
    obs, _ = env.reset(2, seed=12)
    np.testing.assert_array_equal(obs, lone.reset(seed=12)[0].cpu().numpy())
    assert env.action_space == [env.env.single_action_space] * N and env.get_env_attr("dt", 1) == [0.008]
    with pytest.raises(ValueError, match="action must be of shape"):
        env.step(np.zeros((2, 3)), [0])
    with pytest.raises(ValueError, match="share one environment"):
        env.set_env_attr("copy", True, [0])
    env.close()
    with pytest.raises(AssertionError, match="after close"):
        env.step(np.zeros((N, 3)))


def test_a_step_that_tianshou_is_refused_changes_nothing():
    env = adapter("TianshouVectorEnv")(make(DISABLED, max_episode_steps=1))
    env.reset()
    env.step(np.zeros((N, 3)))
    before = env.env.state_dict()
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(np.zeros((3, 3)), [0, 1, 2])
    assert all(torch.equal(x, before[name]) for name, x in env.env.state_dict().items())
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(np.zeros((1, 3)), [3])


def test_tianshou_reads_attributes_and_calls_none():
    env = adapter("TianshouVectorEnv")(make(DISABLED))
    assert [call.__name__ for call in env.get_env_attr("render", [0, 1])] == ["render", "render"]
    assert env.get_env_attr("render_worlds", 2) == [env.env.render_worlds]
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        env.get_env_attr("nothing")


def test_tianshou_leaves_worlds_that_have_ended_as_they_are():
    env = adapter("TianshouVectorEnv")(make(DISABLED, max_episode_steps=1))
    env.reset()
    env.step(np.zeros((N, 3)))
    env.reset([0])
    before = env.env.state_dict()
    *_, truncated, _ = env.step(np.zeros((1, 3)), [0])
    assert truncated.all() and env.env.engine.done.all()
    for name, x in env.env.state_dict().items():
        assert x.ndim == 0 or torch.equal(x[1:], before[name][1:]), name


def test_tianshou_leaves_the_stacks_of_pictures_of_worlds_that_wait_as_they_are():
    env = adapter("TianshouVectorEnv")(make(DISABLED, pixels={"width": 8, "height": 8, "stack": 3}))
    env.reset()
    env.step(np.ones((N, 3)))
    before = env.env.obs.clone()
    env.step(np.ones((1, 3)), [1])
    waits = [0, *range(2, N)]
    assert torch.equal(env.env.obs[waits], before[waits]) and not torch.equal(env.env.obs[1], before[1])


def test_tianshou_refuses_wrappers_that_count():
    ours = adapter("TianshouVectorEnv")
    ours(wrappers.RescaleAction(make(DISABLED), -2.0, 2.0)).reset()
    for wrapper in (wrappers.NormalizeObservation, gymnasium.wrappers.vector.ClipAction):
        with pytest.raises(TypeError, match=f"{wrapper.__name__} keeps something"):
            ours(wrapper(make(DISABLED)))


# -- All of them -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", adapters.LIBRARIES)
def test_what_does_not_fit_is_refused(name):
    ours = adapter(name)
    mode = {"TianshouVectorEnv": DISABLED, "SkrlVecEnv": NEXT_STEP}.get(name, SAME_STEP)
    wrong = SAME_STEP if mode is DISABLED else DISABLED
    if name != "SB3VecEnv":  # which takes every mode
        with pytest.raises(ValueError, match=f"{name} needs an environment made with autoreset_mode='{mode.value}'"):
            ours(make(wrong))
    with pytest.raises(ValueError, match="copy=False"):
        ours(make(mode, copy=False))
    with pytest.raises(TypeError, match="goes around a TorchVectorEnv"):
        ours(gymnasium.make_vec("CartPole-v1", 2, vectorization_mode="sync"))


@pytest.mark.parametrize("name", adapters.LIBRARIES)
def test_without_the_library_it_says_what_to_install(name, monkeypatch):
    library, extra = adapters.LIBRARIES[name]
    monkeypatch.delitem(sys.modules, f"torch_mjenvs.adapters.{library}", raising=False)
    for module in [library, *(x for x in sys.modules if x.startswith(f"{library}."))]:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"{name} needs {library}: pip install '\.\[{extra}\]'"):
        getattr(adapters, name)


@pytest.mark.parametrize("name", adapters.LIBRARIES)
def test_each_shows_what_is_inside(name):
    ours = adapter(name)
    env = make({"TianshouVectorEnv": DISABLED, "SkrlVecEnv": NEXT_STEP}.get(name, SAME_STEP))
    assert repr(ours(env)) == f"{name}({env!r})" and "Hopper" in repr(env)


def test_there_is_no_other_adapter():
    with pytest.raises(AttributeError, match="no_such"):
        _ = adapters.no_such


def test_all_of_them_are_those_whose_libraries_are_here():
    names: dict = {}
    exec("from torch_mjenvs.adapters import *", names)
    here = {name for name, (library, _) in adapters.LIBRARIES.items() if importlib.util.find_spec(library)}
    assert {*names} - {"__builtins__"} == here == {*adapters.__all__}

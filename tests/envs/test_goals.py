"""The reward and the ends of a task for other goals, as hindsight experience replay asks for them."""

from __future__ import annotations

import copy
import pickle
import warnings
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from torch_mjenvs import Outcome, Task, TorchEnv, TorchRLEnv, TorchVectorEnv
from torch_mjenvs.scalar import exp, select
from torch_mjenvs.vectors import norm, sub

N = 6
pytestmark = pytest.mark.usefixtures("quickly_compiled")


@dataclass(frozen=True)
class Reach(Task):
    """The pendulum's cart and angle are to be at a goal; the reward is also for small actions."""

    xml_file: str = "inverted_pendulum.xml"
    frame_skip: int = 2

    def memory(self, m):
        return {"goal": [0.0, 0.0]}

    def reset(self, m, rng):
        return [rng.uniform(-0.5, 0.5) for _ in range(m.nq)], [0.0] * m.nv

    def begin(self, m, world):
        return {"goal": [world.rng.uniform(-0.5, 0.5) for _ in range(2)]}

    def observe(self, m, world):
        return {"observation": world.qvel, "achieved_goal": world.qpos, "desired_goal": world.memory["goal"]}

    def compute_reward(self, achieved_goal, desired_goal, info):
        away = norm(sub(achieved_goal, desired_goal))
        return select(away < 0.3, 0.1, 0.0) + exp(-away) - 0.01 * info["effort"]

    def outcome(self, m, before, action, after):
        info = {"effort": action[0] * action[0]}
        return Outcome(self.compute_reward(after.qpos, after.memory["goal"], info), info=info)


@dataclass(frozen=True)
class ReachOne(Reach):
    """Only the cart has a goal, which is a single number."""

    def memory(self, m):
        return {"goal": 0.0}

    def begin(self, m, world):
        return {"goal": world.rng.uniform(-0.5, 0.5)}

    def observe(self, m, world):
        return {"observation": world.qvel, "achieved_goal": world.qpos[0], "desired_goal": world.memory["goal"]}

    def compute_reward(self, achieved_goal, desired_goal, info):
        return -abs(achieved_goal - desired_goal)

    def outcome(self, m, before, action, after):
        return Outcome(self.compute_reward(after.qpos[0], after.memory["goal"], {}))


def made(task: type[Task] = Reach, **kwargs) -> TorchVectorEnv:
    return TorchVectorEnv(task, N, autoreset_mode="SameStep", max_episode_steps=5, **kwargs)


def stepped(env: TorchVectorEnv, steps: int = 7):
    env.reset(seed=3)
    for _ in range(steps):
        yield env.step(torch.linspace(-3, 3, N)[:, None])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_is_the_reward_of_the_step(dtype):
    """Bit for bit, as Stable-Baselines3's `check_env` asks. Goals are those that the step led to, also at an end."""
    env, seen = made(dtype=dtype), []
    for _, reward, _, _, info in stepped(env):
        goals = [info["final_obs"][name] for name in ("achieved_goal", "desired_goal")]
        found = env.compute_reward(*goals, info["final_info"])
        assert found.dtype == dtype and torch.equal(found, reward)
        seen.append((*goals, info["final_info"]["effort"], reward))
    achieved, desired, effort, reward = map(torch.stack, zip(*seen, strict=True))
    found = env.compute_reward(achieved, desired, {"effort": effort})  # (T, N, 2)
    assert torch.equal(found, reward)
    assert env.compute_reward(achieved[:0], desired[:0], {"effort": effort[:0]}).shape == (0, N)
    assert (env.compute_reward(achieved, achieved, {"effort": torch.zeros_like(effort)}) > 1.09).all()


def test_it_takes_arrays_and_a_list_of_dicts():
    """As Stable-Baselines3 and Gymnasium-Robotics call it; the single environment alike."""
    env, one = made(dtype=torch.float64), TorchEnv(Reach)
    rng = np.random.default_rng(0)
    achieved, desired = rng.uniform(-1, 1, (2, 9, 2))
    told = [{"effort": float(x), "other": 0} for x in range(9)]
    away = np.linalg.norm(achieved - desired, axis=-1)
    expected = 0.1 * (away < 0.3) + np.exp(-away) - 0.01 * np.arange(9)
    for compute_reward in (env.compute_reward, one.compute_reward):
        found = compute_reward(achieved, desired, told)
        assert isinstance(found, np.ndarray)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-15)
        np.testing.assert_array_equal(compute_reward(achieved, desired, np.array(told)), found)
        number = compute_reward(achieved[4], desired[4], {"effort": 4.0})
        assert isinstance(number, float) and number == found[4]


def test_goals_may_be_single_numbers():
    env = made(ReachOne)
    for _, reward, _, _, info in stepped(env, 3):
        goals = [info["final_obs"][name] for name in ("achieved_goal", "desired_goal")]
        assert goals[0].shape == (N,)
        assert torch.equal(env.compute_reward(*goals), reward)
        assert torch.equal(env.compute_reward(*(x[:, None] for x in goals)), reward)  # as adapters give them


def test_torchrl_computes_it_for_whole_rollouts():
    env = TorchRLEnv(Reach, num_envs=N, max_episode_steps=5, info_keys=("effort",))
    env.set_seed(0)
    data = env.rollout(8, break_when_any_done=False)["next"]
    goals = data["achieved_goal"], data["desired_goal"]
    found = env.compute_reward(*goals, {"effort": data["effort"]})  # (N, T, 1)
    assert torch.equal(found[..., None], data["reward"])


def test_it_is_that_of_the_task_as_it_was():
    """Like steps, in copies of the environment, too; and it is there only where a task has goals."""
    task = ReachOne()
    env, goals = made(task), torch.ones(3)
    object.__setattr__(task, "compute_reward", lambda *_: 5.0)
    for x in (env, copy.deepcopy(env), pickle.loads(pickle.dumps(env))):
        assert torch.equal(x.compute_reward(goals, -goals), -2 * goals)

    class Other(Reach):
        def observe(self, m, world):
            return [*world.qpos, *world.qvel]

    for env in (TorchVectorEnv("InvertedPendulum", 4), TorchEnv("InvertedPendulum"), made(Other)):
        assert not hasattr(env, "compute_reward")  # by which Stable-Baselines3 knows environments with goals


@dataclass(frozen=True)
class Arrive(Reach):
    """It ends where the goal is reached, and is given up far from it, as some of Gymnasium-Robotics' tasks do."""

    def compute_terminated(self, achieved_goal, desired_goal, info):
        return norm(sub(achieved_goal, desired_goal)) < 0.4

    def compute_truncated(self, achieved_goal, desired_goal, info):
        return (norm(sub(achieved_goal, desired_goal)) > 0.6) & (info["effort"] > 1.0)

    def outcome(self, m, before, action, after):
        info = {"effort": action[0] * action[0]}
        goals = after.qpos, after.memory["goal"]
        ends = self.compute_terminated(*goals, info), self.compute_truncated(*goals, info)
        return Outcome(self.compute_reward(*goals, info), ends[0], info, ends[1])


def test_ends_are_those_of_the_step():
    """As Gymnasium-Robotics' GoalEnv says of compute_terminated and compute_truncated; bools of any batch."""
    env, seen = TorchVectorEnv(Arrive, N, autoreset_mode="SameStep", max_episode_steps=-1), []
    for _, _, *ends, info in stepped(env):
        goals = [info["final_obs"][name] for name in ("achieved_goal", "desired_goal")]
        for end, function in zip(ends, (env.compute_terminated, env.compute_truncated), strict=True):
            assert torch.equal(function(*goals, info["final_info"]), end)
        seen.append(torch.stack(ends))
    assert torch.stack(seen).any(2).sum() > 0 and torch.stack(seen).any(2).any(0).all()
    assert env.compute_terminated(torch.zeros(0, 3, 2), torch.zeros(0, 3, 2)).dtype == torch.bool

    one, (achieved, desired) = TorchEnv(Arrive), np.random.default_rng(0).uniform(-1, 1, (2, 9, 2))
    away, told = np.linalg.norm(achieved - desired, axis=-1), [{"effort": float(x)} for x in range(9)]
    np.testing.assert_array_equal(one.compute_terminated(achieved, desired, told), away < 0.4)
    np.testing.assert_array_equal(one.compute_truncated(achieved, desired, told), (away > 0.6) & (np.arange(9) > 1))
    assert isinstance(one.compute_terminated(achieved[0], desired[0], {}), np.bool_)


def test_ends_that_cannot_be_are_refused_by_name():
    for there in (made(), TorchEnv(Reach), TorchRLEnv(Reach, 2)):
        assert hasattr(there, "compute_reward") and not hasattr(there, "compute_terminated")
    with pytest.raises(AttributeError, match=r"Reach has no compute_truncated\(self, achieved_goal, "):
        _ = made().compute_truncated

    class Number(Reach):
        def compute_terminated(self, achieved_goal, desired_goal, info):
            return 1.0

    with pytest.raises(TypeError, match=r"Number.compute_terminated .*: must give True, False or a comparison"):
        made(Number)

    class Never(Reach):  # as Fetch
        def compute_terminated(self, achieved_goal, desired_goal, info):
            return False

    assert not made(Never).compute_terminated(torch.zeros(3, 2), torch.zeros(3, 2)).any()


def test_what_it_cannot_do_is_refused_by_name():
    env, goals = made(), torch.zeros(3, 2)
    with pytest.raises(AttributeError, match=r"InvertedPendulum has no compute_reward\(self, achieved_goal, "):
        _ = TorchVectorEnv("InvertedPendulum", 4).compute_reward
    with pytest.raises(ValueError, match=r"desired_goal must be of shape \(..., 2\), not \(3, 3\)"):
        env.compute_reward(goals, torch.zeros(3, 3), {})
    with pytest.raises(ValueError, match=r"there are \(3,\) achieved goals, and \(4,\) desired ones"):
        env.compute_reward(goals, torch.zeros(4, 2), {})
    with pytest.raises(ValueError, match=r"info\['effort'\] is for \(2,\) goals, and there are \(3,\)"):
        env.compute_reward(goals, goals, {"effort": torch.zeros(2)})
    with pytest.raises(ValueError, match="compute_reward has no gradients"):
        env.compute_reward(goals.requires_grad_(), goals, {"effort": torch.zeros(3)})
    for nothing in (None, {}, [{}, {}, {}]):
        with pytest.raises(KeyError, match=r"reads info\['effort'\], which is not in the info"), torch.no_grad():
            env.compute_reward(goals, goals, nothing)


def observing(*names: str) -> type[Task]:
    @dataclass(frozen=True)
    class Misspelt(Reach):
        def observe(self, m, world):
            return dict(zip(names, (world.qvel, world.qpos, world.memory["goal"]), strict=True))

    return Misspelt


def test_goals_under_other_names_are_said_to_be_none():
    said = (
        r"Misspelt.compute_reward means nothing .* no 'desired_goal'; by 'desired_gaol', did you mean 'desired_goal'\?"
    )
    with pytest.warns(UserWarning, match=said):
        made(observing("observation", "achieved_goal", "desired_gaol"))
    with pytest.warns(UserWarning, match=r"observe names no 'achieved_goal'$"):
        made(observing("observation", "tip", "desired_goal"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made(observing("observation", "tip", "target"))  # its compute_reward is for `outcome` alone

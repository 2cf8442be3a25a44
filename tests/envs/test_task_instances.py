"""The task that an environment is given is the one it runs, with all that was put on it."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import sys
from dataclasses import InitVar, dataclass, field
from types import MethodType
from typing import Any

import gymnasium
import pytest
import torch

import torch_mjenvs
from torch_mjenvs import InvertedPendulum, Outcome, Scale, Task, TorchEnv, TorchVectorEnv

SCALE = 1.0


@dataclass(frozen=True, kw_only=True)
class Plain(InvertedPendulum):
    """A user's task that rewards every step with `weight`, and shows it."""

    weight: float = 1.0
    more: float = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "twice", 2.0 * self.weight)

    def outcome(self, m, before, action, after) -> Outcome:
        return Outcome(SCALE * self.weight, False, {"twice": self.twice})

    def observe(self, m, world) -> list:
        return [*super().observe(m, world), SCALE * self.weight]


class Own(InvertedPendulum):
    """A user's task with an `__init__` of its own, of which fields are made."""

    def __init__(self, gain: float = 5.0, steps: int = 2):
        super().__init__(frame_skip=steps)
        object.__setattr__(self, "gain", gain)

    def outcome(self, m, before, action, after) -> Outcome:
        return Outcome(self.gain, False)


def five(m, before, action, after) -> Outcome:
    return Outcome(5.0, False)


def by_noise(self, m, before, action, after) -> Outcome:
    return Outcome(100.0 * self.reset_noise_scale, False)


def put(task: Task, **values: Any) -> Task:
    for name, x in values.items():
        object.__setattr__(task, name, x)
    return task


def reward(env: TorchVectorEnv) -> float:
    env.reset(seed=0)
    return float(env.step(torch.zeros(env.num_envs, 1))[1][0])


def made(task: Any, **arguments: Any) -> TorchVectorEnv:
    return TorchVectorEnv(task, 2, dtype=torch.float64, **arguments)


# as it is


@pytest.mark.parametrize("make", [made, lambda task: TorchEnv(task, device=torch.get_default_device())])
def test_an_instance_is_run_as_it_is(make):
    for task in (Own(), put(Plain(), weight=5.0), put(InvertedPendulum(), outcome=five)):
        env = make(task)
        assert env.engine.task is task
        env.reset(seed=0)
        assert float(env.step(env.action_space.sample())[1].max() if make is made else env.step([0.0])[1]) == 5.0


def test_a_torchrl_environment_runs_an_instance_as_it_is():
    envs = pytest.importorskip("torchrl.envs")
    task = put(InvertedPendulum(), outcome=five)
    env = torch_mjenvs.TorchRLEnv(task, 2)
    assert env.engine.task is task and isinstance(env, envs.EnvBase)
    assert env.rollout(2)["next", "reward"].eq(5.0).all()


def test_gymnasium_makes_an_environment_of_the_instance():
    task = put(InvertedPendulum(), outcome=five)
    for env in (
        gymnasium.make("TorchInvertedPendulum-v0", task=task),
        gymnasium.make_vec("TorchInvertedPendulum-v0", 2, task=task),
    ):
        assert env.unwrapped.engine.task is task
        again = env.unwrapped.spec.kwargs["task"]
        assert vars(again) == vars(task)


def test_a_class_with_an_init_of_its_own_takes_its_arguments():
    assert reward(made(Own, gain=3.0)) == 3.0 and made(Own, steps=4).engine.task.frame_skip == 4
    with pytest.raises(TypeError, match=r"Own got an unexpected keyword argument 'frame_skip'.*'gain', 'steps'"):
        made(Own, frame_skip=3)


def test_arguments_of_an_init_may_not_be_the_environments():
    class Clash(Own):
        def __init__(self, num_envs: int = 3):
            super().__init__()

    with pytest.raises(TypeError, match=r"Clash takes \['num_envs'\], and so does the environment"):
        made(Clash)
    assert made(Clash()).num_envs == 2


# with arguments beside it


def test_arguments_beside_an_instance_leave_what_was_put_on_it():
    task = put(Plain(weight=2.0), outcome=five, more=7.0, note="mine")
    new = made(task, weight=3.0).engine.task
    assert (new.weight, new.twice, new.outcome, new.more, new.note) == (3.0, 6.0, five, 7.0, "mine")
    assert (task.weight, task.twice) == (2.0, 4.0)
    env = made(put(InvertedPendulum(), outcome=five), reset_noise_scale=0.03)
    assert reward(env) == 5.0 and env.engine.task.reset_noise_scale == 0.03


def test_a_method_put_on_an_instance_sees_the_arguments():
    task = put(InvertedPendulum(), outcome=None)
    put(task, outcome=MethodType(by_noise, task))
    assert reward(made(task, reset_noise_scale=0.03)) == 3.0 and reward(made(task)) == 1.0


def test_arguments_beside_an_instance_are_checked():
    for bad in ({"frame_skip": 0}, {"reset_noise_scale": float("nan")}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            made(InvertedPendulum(), **bad)
    with pytest.raises(TypeError, match="unexpected keyword argument 'more'"):
        made(Plain(), more=1.0)


@dataclass(frozen=True, kw_only=True)
class Given(InvertedPendulum):
    seed: InitVar[int] = 0

    def __post_init__(self, seed: int) -> None:
        super().__post_init__()


@pytest.mark.parametrize("task", [Own(), Given()])
def test_arguments_beside_an_instance_that_is_not_made_from_its_fields_are_refused(task):
    names = {"gain": 1.0} if isinstance(task, Own) else {"frame_skip": 3}
    name = type(task).__name__
    with pytest.raises(TypeError, match=rf"{name} is not made from its fields alone.*when calling {name}\(...\)"):
        made(task, **names)


# the kernels that are kept


@pytest.mark.parametrize("name", ["outcome", "control", "observe", "reset_info", "begin"])
def test_a_function_put_on_one_of_our_tasks_is_not_taken_for_ours(name):
    """Neither is the kernel of the task without it, nor is it run on plain numbers."""
    functions = {
        "outcome": five,
        "control": lambda m, world, action: [action[0] + 1.0],
        "observe": lambda m, world: [2.0],
        "reset_info": lambda m, world: {"x": 1.0},
        "begin": lambda m, world: {"not": world.qpos[0] > 0.0},
    }
    plain = made("InvertedPendulum")
    task = put(InvertedPendulum(), **{name: functions[name]})
    if name == "begin":
        with pytest.raises(TypeError, match=r"InvertedPendulum.begin \(.*test_task_instances.py, line .*truth value"):
            made(task)
        return
    env = made(task)
    assert env.engine._step.kernel is not plain.engine._step.kernel or name == "reset_info"
    for x in (env, plain):
        x.info = x.reset(seed=0)[1]
        x.result = x.step(torch.zeros(2, 1))
    assert [torch.equal(a, b) for a, b in zip(env.result[:2], plain.result[:2], strict=True)] == [
        name not in ("control", "observe"), name != "outcome"
    ]  # fmt: skip
    assert ("x" in env.info) == (name == "reset_info")


def test_a_function_that_needs_numbers_is_refused_on_an_instance_of_ours_too():
    def observe(m, world):
        return [1.0 if world.qpos[0] > 0.0 else 0.0]

    with pytest.raises(TypeError, match="no truth value"):
        made(put(InvertedPendulum(), observe=observe))


def test_a_function_put_on_a_draw_counts():
    draws = Scale(1.0, 2.0), put(Scale(1.0, 2.0), applied=lambda x, by: 10.0 * x)
    masses = []
    for draw in draws:
        env = made("InvertedPendulum", randomize={"body_mass": draw})
        env.reset(seed=0)
        masses.append(env.params["body_mass"])
    assert torch.allclose(masses[1], 10.0 * torch.tensor(env.model.body_mass)) and (masses[0] < masses[1])[:, 1:].all()


# what is altered later


def seen_at_a_state(env: TorchVectorEnv) -> float:
    env.reset(seed=0)
    env.set_state(torch.zeros(2, 2), torch.zeros(2, 2))
    return float(env.obs[0, -1])


@pytest.mark.parametrize("what", ["the instance", "its class", "a global"])
def test_a_state_is_set_in_the_task_that_is_stepped(monkeypatch, what):
    """The kernel is compiled late, and traced with the others."""

    class Mine(Plain):
        pass

    task = Mine()
    env = made(task)
    if what == "the instance":
        put(task, weight=9.0)
    elif what == "its class":
        Mine.observe = lambda self, m, world: [0.0] * 4 + [9.0]
    else:
        monkeypatch.setattr(sys.modules[__name__], "SCALE", 9.0)
    assert seen_at_a_state(env) == 1.0 == reward(env)


def test_a_state_is_set_in_one_of_our_tasks_as_it_was():
    task = torch_mjenvs.HalfCheetah()
    env = made(task)
    put(task, exclude_current_positions_from_observation=False)
    env.reset(seed=0)
    env.set_state(torch.ones(2, 9), torch.ones(2, 9))
    assert env.obs.eq(1.0).all()


@pytest.mark.parametrize("how", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["deepcopy", "pickle"])
def test_a_copy_runs_the_same_task(how):
    task = put(Plain(), outcome=five, note="mine")
    draws = {"body_mass": (0.5, 2.0)}
    env = made(task, randomize=draws)
    put(task, outcome=by_noise, weight=3.0)
    draws.clear()
    twin = how(env)
    assert reward(twin) == 5.0 and seen_at_a_state(twin) == 1.0 and twin.engine.task.note == "mine"
    assert "body_mass" in twin.params
    own = how(made(Own(gain=4.0)))
    assert reward(own) == 4.0 and own.engine.task.gain == 4.0


def test_a_copy_of_a_task_with_slots_keeps_what_was_put_on_it():
    from torch_mjenvs.envs.tasks.base import copy_of

    @dataclass(frozen=True, slots=True)
    class Slim(InvertedPendulum):
        weight: float = 2.0

    task = put(Slim(weight=3.0), note="mine")
    assert dataclasses.asdict(copy_of(task)) == dataclasses.asdict(task) and copy_of(task).note == "mine"

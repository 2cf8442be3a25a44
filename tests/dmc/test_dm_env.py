"""dm_control's suite behind `dm_env`: its own conformance tests, and the same episode as dm_control's, step by step."""

from __future__ import annotations

import copy
import re
from typing import Any

import dm_control_oracle as theirs
import dm_env
import numpy as np
import pytest
import torch
from absl.testing import absltest
from dm_env import test_utils

import torch_mjenvs


class TestOneWorld(test_utils.EnvironmentTestMixin, absltest.TestCase):
    """dm_env's own tests of an environment."""

    def make_object_under_test(self) -> dm_env.Environment:
        return torch_mjenvs.dmc.load("cartpole", "balance", task_kwargs={"random": 0, "time_limit": 0.1})


def episode(env: dm_env.Environment, seed: int) -> list[dm_env.TimeStep]:
    """An agent's loop as in DeepMind's examples."""
    rng, spec = np.random.default_rng(seed), env.action_spec()
    steps = [env.reset()]
    while not steps[-1].last():
        steps.append(env.step(rng.uniform(spec.minimum, spec.maximum, spec.shape)))
    return steps


def test_an_episode_of_one_world_is_dm_controls() -> None:
    """From the same beginning under the same actions: step types, rewards, discounts and observations."""
    ours = torch_mjenvs.dmc.load("cartpole", "swingup", task_kwargs={"random": 0, "time_limit": 0.5})
    other = theirs.suite.load("cartpole", "swingup", task_kwargs={"random": 0, "time_limit": 0.5})
    found = episode(ours, 7)
    assert len(found) == 51 and found[0].first() and found[-1].last()
    assert found[0].reward is None and found[0].discount is None and found[-1].discount == 1.0
    assert episode(ours, 7)[0].observation["velocity"].shape == (2,)
    ours.reset()
    other.reset()
    state = {name: getattr(ours.env, name)[0].cpu().numpy() for name in ("qpos", "qvel")}
    theirs.put(other, "cartpole-swingup", state)
    assert {name: (x.shape, x.dtype) for name, x in ours.observation_spec().items()} == {
        name: (x.shape, x.dtype) for name, x in other.observation_spec().items()
    }
    assert (ours.action_spec().shape, ours.action_spec().minimum) == (other.action_spec().shape, -1.0)
    assert ours.control_timestep() == pytest.approx(other.control_timestep(), rel=1e-15)
    for k in range(20):
        action = np.array([np.sin(k)])
        got, want = ours.step(action), other.step(action)
        assert got.step_type == want.step_type and got.discount == want.discount
        np.testing.assert_allclose(got.reward, want.reward, atol=1e-11)
        for name, x in want.observation.items():
            np.testing.assert_allclose(got.observation[name], x, atol=1e-11)


def test_worlds_that_end_begin_anew_while_others_go_on() -> None:
    """Without a limit, an LQR whose state is 0 ends with discount 0; what follows is FIRST."""
    env = torch_mjenvs.dmc.load("lqr", "lqr_2_1", num_envs=3, task_kwargs={"random": 0})
    first = env.reset()
    assert first.reward is None and (first.step_type == dm_env.StepType.FIRST).all()
    assert first.observation["position"].shape == (3, 2) and env.action_spec().shape == (3, 1)
    here = torch.tensor([False, True, False], device=env.env.device)
    env.env.set_state(torch.zeros_like(env.env.qpos), torch.zeros_like(env.env.qvel), here)
    ended = env.step(np.zeros((3, 1)))
    kinds = [dm_env.StepType.MID, dm_env.StepType.LAST, dm_env.StepType.MID]
    assert list(ended.step_type) == kinds and ended.discount.tolist() == [1.0, 0.0, 1.0] and ended.reward[1] == 1.0
    begun = env.step(np.zeros((3, 1)))
    assert begun.step_type[1] == dm_env.StepType.FIRST and begun.reward[1] == 0.0 and begun.discount[1] == 1.0
    assert np.linalg.norm(begun.observation["position"][1]) == pytest.approx(np.sqrt(2))


def test_a_loaded_state_goes_on_also_where_episodes_have_ended() -> None:
    """In another environment that was never reset, and in the same one after its episodes have ended."""
    env = torch_mjenvs.dmc.load("lqr", "lqr_2_1", num_envs=3, task_kwargs={"random": 0, "time_limit": 0.3})
    env.reset()
    still = torch.zeros_like(env.env.qpos)
    env.env.set_state(still, torch.zeros_like(env.env.qvel), torch.tensor([False, True, False], device=env.env.device))
    assert env.step(np.zeros((3, 1))).step_type[1] == dm_env.StepType.LAST
    state, actions = env.env.state_dict(), np.random.default_rng(0).uniform(-1, 1, (12, 3, 1))
    expected = [env.step(action) for action in actions]
    assert (expected[-2].step_type == dm_env.StepType.LAST).any()
    for again in (torch_mjenvs.dmc.load("lqr", "lqr_2_1", num_envs=3, task_kwargs={"time_limit": 0.3}), env):
        again.env.load_state_dict(state)
        for action, want in zip(actions, expected, strict=True):
            got = again.step(action)
            assert (got.step_type == want.step_type).all() and (got.reward == want.reward).all()
            assert (got.discount == want.discount).all()
            np.testing.assert_array_equal(got.observation["position"], want.observation["position"])


@pytest.mark.parametrize("flat", [False, True])
def test_pictures_are_observed_under_dm_controls_names(flat: bool) -> None:
    """What rays draw, alone or beside the task's own observations."""
    view = {"height": 24, "width": 32, "camera_id": 0}
    given = {"task_kwargs": {"random": 0}, "environment_kwargs": {"flat_observation": flat}}
    asked = {"from_pixels": True, "render_kwargs": view | {"samples": 4}}
    for only in (True, False):
        env = torch_mjenvs.dmc.load("cartpole", "swingup", 2, pixels_only=only, **given, **asked)  # type: ignore[arg-type]
        own = {} if only else theirs.suite.load("cartpole", "swingup", **given).observation_spec()
        shapes = {name: (2, *x.shape) for name, x in own.items()} | {"pixels": (2, 24, 32, 3)}
        assert {name: x.shape for name, x in env.observation_spec().items()} == shapes
        steps = env.reset(), env.step(np.ones(env.action_spec().shape))
        simulation = torch_mjenvs.Simulation(env.env.model, 2, dtype="float64")
        simulation.qpos.copy_(env.env.qpos)
        drawn = simulation.render(0, 32, 24, outputs="rgb", samples=4)["rgb"].cpu().numpy()
        np.testing.assert_array_equal(steps[1].observation["pixels"], drawn)
        assert (steps[0].observation["pixels"] != drawn).any()
    one = torch_mjenvs.dmc.load("cartpole", "swingup", from_pixels=True, render_kwargs=view)
    assert one.reset().observation["pixels"].shape == (24, 32, 3)
    with pytest.raises(TypeError, match="for from_pixels"):
        torch_mjenvs.dmc.load("cartpole", "swingup", render_kwargs=view)


@pytest.mark.parametrize("flat, name", [(False, "position"), (True, "observations")])
def test_a_view_may_not_have_the_name_of_an_observation_beside_it(flat: bool, name: str) -> None:
    """Alone it may: dm_env has all under one name each, where Gymnasium and TorchRL keep pictures apart."""
    asked = {
        "environment_kwargs": {"flat_observation": flat}, "from_pixels": True,
        "render_kwargs": {"height": 12, "width": 16, "views": {name: {"camera": 0}, "side": {"camera": 1}}},
    }  # fmt: skip
    with pytest.raises(ValueError, match=rf"the names \['{name}'\], as have views of pixels"):
        torch_mjenvs.dmc.load("cartpole", "swingup", 2, pixels_only=False, **asked)  # type: ignore[arg-type]
    env = torch_mjenvs.dmc.load("cartpole", "swingup", 2, **asked)  # type: ignore[arg-type]
    assert {x: y.shape for x, y in env.observation_spec().items()} == {name: (2, 12, 16, 3), "side": (2, 12, 16, 3)}


def test_depth_and_segmentation_have_dm_controls_names_and_shapes() -> None:
    """What they show is compared with dm_control's in test_dmc_pictures.py, where there is OpenGL."""
    ours = torch_mjenvs.dmc.load("cartpole", "balance", num_envs=2, device="cpu")
    ours.reset()
    simulation = torch_mjenvs.Simulation(ours.env.model, 2, dtype="float64", device="cpu")
    simulation.qpos.copy_(ours.env.qpos)
    want = simulation.render("fixed", 32, 24, outputs=("depth", "segmentation"))
    for again in (ours, copy.deepcopy(ours)):
        depth = again.physics.render(24, 32, "fixed", depth=True)
        segmentation = again.physics.render(24, 32, "fixed", segmentation=True)
        assert depth.shape == (2, 24, 32) and segmentation.shape == (2, 24, 32, 2)
        np.testing.assert_array_equal(segmentation, want["segmentation"].numpy())
        np.testing.assert_allclose(depth, want["depth"].numpy(), rtol=1e-9)
    one = torch_mjenvs.dmc.load("cartpole", "balance")
    assert one.physics.render(24, 32, depth=True).shape == (24, 32)
    with pytest.raises(ValueError, match="give one of them"):
        one.physics.render(24, 32, depth=True, segmentation=True)


def test_arguments_are_dm_controls() -> None:
    env = torch_mjenvs.dmc.load(
        "cartpole", "balance", 2, {"random": 1, "time_limit": 1}, {"n_sub_steps": 4, "flat_observation": True}
    )
    assert [*env.reset().observation] == ["observations"] and env.env.engine.max_episode_steps == 25
    other = theirs.suite.load("cartpole", "balance", {"time_limit": 1}, {"n_sub_steps": 4, "flat_observation": True})
    assert other.observation_spec()["observations"].shape == env.observation_spec()["observations"].shape[1:]
    assert repr(env) == f"SuiteEnvironment({env.env!r})"
    half = torch_mjenvs.dmc.load("cartpole", "balance", environment_kwargs={"control_timestep": 0.02})
    assert half.env.engine.max_episode_steps == 500
    endless = torch_mjenvs.dmc.load("cartpole", "balance", task_kwargs={"time_limit": float("inf")})
    assert endless.env.engine.max_episode_steps is None
    for limit in (0, -1.0, float("nan"), "10"):
        with pytest.raises(ValueError, match="time_limit must be a number of seconds above 0"):
            torch_mjenvs.dmc.load("cartpole", "balance", task_kwargs={"time_limit": limit})
    with pytest.raises(ValueError, match="num_envs must be a positive whole number, not 0"):
        torch_mjenvs.dmc.load("cartpole", "balance", num_envs=0)
    with pytest.raises(ValueError, match=r"n_sub_steps must be a positive whole number, not 2\.0"):
        torch_mjenvs.dmc.load("cartpole", "balance", environment_kwargs={"n_sub_steps": 2.0})
    with pytest.raises(ValueError, match=r"no task 'cartpole-fly': choose from \['cartpole-balance'"):
        torch_mjenvs.dmc.load("cartpole", "fly")
    with pytest.raises(TypeError, match="cartpole-balance does not take"):
        torch_mjenvs.dmc.load("cartpole", "balance", task_kwargs={"poles": 2})
    with pytest.raises(ValueError, match="whole number"):
        torch_mjenvs.dmc.load("cartpole", "balance", environment_kwargs={"control_timestep": 0.015})
    with pytest.raises(ValueError, match="not both"):
        torch_mjenvs.dmc.load("cartpole", "balance", None, {}, {"control_timestep": 0.02, "n_sub_steps": 2})
    with pytest.raises(ValueError, match="visualize_reward must be False"):
        torch_mjenvs.dmc.load("cartpole", "balance", visualize_reward=True)


def test_actions_have_the_shape_of_their_spec_or_are_one_number_as_in_dm_control() -> None:
    for env, wrong in ((cartpole(None), (3,)), (cartpole(2), (1, 2))):
        shape = env.action_spec().shape
        env.reset()
        one = env.step(0.5).observation["position"]
        env = cartpole(2 if len(shape) == 2 else None)
        env.reset()
        np.testing.assert_array_equal(env.step(np.full(shape, 0.5)).observation["position"], one)
        with pytest.raises(ValueError, match=f"action must be of shape {re.escape(str(shape))}"):
            env.step(np.zeros(wrong))
        with pytest.raises(TypeError, match="action must be of real numbers"):
            env.step(None)


def cartpole(num_envs: int | None) -> dm_env.Environment:
    """Cartpole from the same seed."""
    return torch_mjenvs.dmc.load("cartpole", "balance", task_kwargs={"random": 0}, num_envs=num_envs)


def test_a_bad_action_is_an_error_of_one_world_and_told_of_many() -> None:
    """dm_control raises its PhysicsError, a RuntimeError."""
    one = torch_mjenvs.dmc.load("cartpole", "balance")
    many = torch_mjenvs.dmc.load("cartpole", "balance", num_envs=3)
    one.reset()
    with pytest.raises(RuntimeError, match="Physics state is invalid"):
        one.step(np.nan)
    assert one.step(0.0).first()
    many.reset()
    many.step(np.array([[0.0], [np.nan], [0.0]]))
    assert many.bad_state.tolist() == [False, True, False]
    many.step(np.zeros((3, 1)))
    assert not many.bad_state.any()


def test_a_seed_may_be_drawn_from_a_random_state_and_is_checked_at_once() -> None:
    def first(random: Any) -> Any:
        given: dict[str, Any] = {"task_kwargs": {"random": random}, "environment_kwargs": {"legacy_step": True}}
        return torch_mjenvs.dmc.load("cartpole", "balance", **given).reset().observation["position"]

    a, b, c = (first(np.random.RandomState(seed)) for seed in (1, 1, 2))
    assert np.array_equal(a, b) and not np.array_equal(a, c)
    many = torch_mjenvs.dmc.load("cartpole", "balance", num_envs=2, task_kwargs={"random": [1, 1]})
    assert np.ptp(many.reset().observation["position"], axis=0).max() == 0.0  # a seed for each world
    for wrong in ("a", -1, 1.5, [1, 2]):
        with pytest.raises((TypeError, ValueError)):
            torch_mjenvs.dmc.load("cartpole", "balance", task_kwargs={"random": wrong})
    with pytest.raises(ValueError, match="legacy_step must be True"):
        torch_mjenvs.dmc.load("cartpole", "balance", environment_kwargs={"legacy_step": False})

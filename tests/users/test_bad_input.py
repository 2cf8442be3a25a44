"""Bad input: a state or action that is not finite ends its own world only; misuse raises errors and changes nothing."""

from __future__ import annotations

import copy
import itertools
import random
import re
import threading
import warnings
from dataclasses import dataclass
from typing import Any

import gymnasium
import mujoco
import numpy as np
import pytest
import torch
from gymnasium.error import ClosedEnvironmentError, ResetNeeded

from torch_mjenvs import Hopper, Simulation, Task, TorchEnv, TorchVectorEnv
from torch_mjenvs.envs.engine import Engine
from torch_mjenvs.wrappers import NormalizeObservation

TASKS = ["HalfCheetah", "Walker2d", "Hopper"]
MODES = ["NextStep", "SameStep", "Disabled"]
HERE = torch.get_default_device()
BAD = [float("nan"), float("inf"), -float("inf"), 1e11, -1e30]


def snapshot(env: TorchVectorEnv) -> dict[str, bytes]:
    """Every byte that a kernel reads or writes."""
    return {name: x.cpu().numpy().tobytes() for name, x in env.engine.buffers.items()}


def same_rows(a: torch.Tensor, b: torch.Tensor, worlds: torch.Tensor) -> bool:
    return a[worlds].cpu().numpy().tobytes() == b[worlds].cpu().numpy().tobytes()


def reset_ended(env: TorchVectorEnv) -> None:
    """By hand, in any mode."""
    if env.engine.done.any():
        env.reset(options={"reset_mask": env.engine.done.clone()})


def moves(env: TorchVectorEnv, steps: int, seed: int) -> torch.Tensor:
    """(steps, N, nu) in [-1, 1], the same on every device."""
    shape, generator = (steps, env.num_envs, env.engine.layout.nu), torch.Generator().manual_seed(seed)
    return torch.rand(shape, generator=generator, device="cpu").to(env.device) * 2 - 1


def twins(name: str, mode: str, n: int, dtype: torch.dtype) -> tuple[TorchVectorEnv, TorchVectorEnv]:
    """Two that have done the same for 15 steps: bodies in contact, warm starts filled."""
    made = []
    for _ in range(2):
        env = TorchVectorEnv(name, n, dtype=dtype, autoreset_mode=mode)
        env.reset(seed=1)
        made.append(env)
        for action in moves(env, 15, seed=5):
            reset_ended(env)
            env.step(action)
        reset_ended(env)
    return made[0], made[1]


def check_bad_step(env: TorchVectorEnv, twin: TorchVectorEnv, actions: torch.Tensor, bad: torch.Tensor) -> None:
    """One step; then the worlds of `bad` have ended and are flagged, and the others equal those of the clean twin."""
    clean = torch.where(bad[:, None], torch.zeros_like(actions), actions)
    obs, reward, terminated, truncated, info = env.step(actions)
    expected = twin.step(clean)
    assert info["bad_state"].equal(bad) and info["_bad_state"].all()
    assert terminated[bad].all() and not truncated.any() and not reward[bad].any()
    finals = info.get("final_info", {}), expected[4].get("final_info", {})
    for ours, theirs in ((info, expected[4]), finals):
        for key, value in theirs.items():
            if isinstance(value, torch.Tensor) and key not in ("bad_state", "_bad_state"):
                assert same_rows(ours[key], value, ~bad), key
    for ours, theirs in zip((obs, reward, terminated, truncated), expected[:4], strict=True):
        assert same_rows(ours, theirs, ~bad)
        assert ours.isfinite().all()
    for key, value in (*info.items(), *finals[0].items()):
        if isinstance(value, torch.Tensor):
            assert value.isfinite().all(), key


def check_after(env: TorchVectorEnv, twin: TorchVectorEnv, bad: torch.Tensor) -> None:
    """By the next step the bad worlds have new episodes, and the others still equal the twin's."""
    steps = 3
    for t in range(steps):
        if env.autoreset_mode.value == "Disabled":
            reset_ended(env), reset_ended(twin)
        actions = torch.full((env.num_envs, env.engine.layout.nu), 0.2)
        (obs, *_, info), expected = env.step(actions), twin.step(actions)
        if t == 0 and env.autoreset_mode.value == "NextStep":
            assert not info["_x_velocity"][bad].any()
        assert not info["bad_state"].any() and obs.isfinite().all()
        assert same_rows(obs, expected[0], ~bad)
    waited = env.autoreset_mode.value == "NextStep"
    assert env.elapsed_steps[bad].tolist() == [steps - waited] * int(bad.sum())
    assert same_rows(env.qpos, twin.qpos, ~bad) and same_rows(env.qvel, twin.qvel, ~bad)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", TASKS)
def test_bad_action(name, mode, dtype):
    n = 21
    env, twin = twins(name, mode, n, dtype)
    (actions,) = moves(env, 1, seed=6)
    bad = torch.zeros(n, dtype=torch.bool)
    for i, value in enumerate(BAD):
        actions[3 + 4 * i, i % actions.shape[1]] = value
        bad[3 + 4 * i] = True
    check_bad_step(env, twin, actions, bad)
    check_after(env, twin, bad)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", TASKS)
def test_bad_state(name, mode, dtype):
    """By set_state, in position or velocity. The observation of such a world is one of a sound state."""
    n = 21
    env, twin = twins(name, mode, n, dtype)
    qpos, qvel = env.qpos.clone(), env.qvel.clone()
    bad = torch.zeros(n, dtype=torch.bool)
    for i, value in enumerate(BAD):
        x, column = (qpos, i % qpos.shape[1]) if i % 2 else (qvel, -1 - i)
        x[2 + 4 * i, column] = value
        bad[2 + 4 * i] = True
    env.set_state(qpos, qvel, bad)
    (actions,) = moves(env, 1, seed=6)
    check_bad_step(env, twin, actions, bad)
    check_after(env, twin, bad)


@pytest.mark.parametrize("name", TASKS)
def test_huge_but_finite(name):
    """States at which the arithmetic overflows are caught in the step in which it does."""
    env = TorchVectorEnv(name, 40)
    env.reset(seed=0)
    generator = torch.Generator().manual_seed(0)
    sizes = torch.logspace(0, 9.9, 40)[:, None]
    env.set_state(
        torch.randn(40, env.engine.layout.nq, generator=generator, device="cpu").to(env.device) * sizes,
        torch.randn(40, env.engine.layout.nv, generator=generator, device="cpu").to(env.device) * sizes.flip(0),
    )
    for _ in range(5):
        obs, reward, *_ = env.step(torch.full((40, env.engine.layout.nu), 1e9))
        assert obs.isfinite().all() and reward.isfinite().all()
        assert env.qpos.abs().max() <= 1e10 and env.qvel.abs().max() <= 1e10


@pytest.mark.cpu  # where one world for NumPy is, unless asked otherwise
def test_single_env_survives():
    env = TorchEnv("Hopper")
    env.reset(seed=0)
    obs, reward, terminated, _, info = env.step(np.array([0.0, np.nan, 0.0]))
    assert np.isfinite(obs).all() and reward == 0 and terminated and info["bad_state"]
    env.reset()
    assert not env.step(np.zeros(3))[4]["bad_state"]


# -- Misuse ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def env() -> TorchVectorEnv:
    env = TorchVectorEnv("Hopper", 4)
    env.reset(seed=0)
    env.step(torch.ones(4, 3))
    return env


class Undefined:
    """Refuses to be an array."""

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise TypeError("no array")


WRONG_ACTIONS = [
    (torch.zeros(4, 2), ValueError, r"actions must be of shape \(4, 3\), not \(4, 2\)"),
    (torch.zeros(3), ValueError, "shape"),
    (torch.zeros(1, 4, 3), ValueError, "shape"),
    (torch.zeros(0, 3), ValueError, "shape"),
    (0.0, ValueError, "shape"),
    (np.zeros((3, 4)), ValueError, "shape"),
    (torch.zeros(4, 3, dtype=torch.bool), TypeError, "bool"),
    (torch.zeros(4, 3, dtype=torch.complex64), TypeError, "complex"),
    (np.zeros((4, 3), dtype=bool), TypeError, "bool"),
    (np.zeros((4, 3), dtype=complex), TypeError, "complex"),
    (np.full((4, 3), None), TypeError, "real numbers"),
    ([["a"] * 3] * 4, TypeError, "real numbers"),
    ([[0.0] * 3, [0.0] * 2] * 2, TypeError, "actions must be"),
    (None, TypeError, "real numbers"),
    (Undefined(), TypeError, "no array"),
    (torch.zeros(4, 3, device="meta"), ValueError, f"must be on {HERE}, not on meta"),
    (torch.zeros(4, 3).to_sparse(), TypeError, "actions must be a dense tensor, not a sparse_coo one"),
    (torch.nested.nested_tensor([torch.zeros(3)] * 4, layout=torch.jagged), TypeError, "not a nested one"),
    (torch.tensor(0.0), ValueError, r"not \(\)"),
    ([torch.zeros(3, requires_grad=True, device="cpu")] * 4, TypeError, "requires grad"),
]

# All the same action.
FINE_ACTIONS = [
    torch.ones(3, 4).T,
    torch.ones(1, 1).expand(4, 3),
    torch.ones(4, 3, requires_grad=True),
    torch.nn.Parameter(torch.ones(4, 3)),
    *(torch.ones(4, 3, dtype=dtype) for dtype in (torch.float64, torch.float16, torch.int64, torch.uint8)),
    np.ones((3, 4)).T,
    np.ones((4, 3), dtype=np.float32),
    np.ones((4, 3), dtype=int),
    [[1, 1.0, np.float32(1)]] * 4,
    [np.ones(3)] * 4,
]


@pytest.mark.parametrize("action", FINE_ACTIONS)
def test_whatever_holds_the_numbers(env, action):
    twin = TorchVectorEnv("Hopper", 4)
    twin.reset(seed=0)
    twin.step(torch.ones(4, 3))
    obs, *_ = env.step(action)
    assert obs.equal(twin.step(torch.ones(4, 3))[0]) and not obs.requires_grad


@pytest.mark.parametrize(("wrong", "error", "text"), WRONG_ACTIONS)
def test_wrong_actions(env, wrong, error, text):
    before = snapshot(env)
    with pytest.raises(error, match=text):
        env.step(wrong)
    assert snapshot(env) == before


Z = torch.zeros
WRONG_STATES = [
    ((Z(4, 5), Z(4, 6)), ValueError, r"qpos must be of shape \(4, 6\)"),
    ((Z(4, 6), Z(3, 6)), ValueError, r"qvel must be of shape \(4, 6\)"),
    ((Z(6), Z(6)), ValueError, "qpos"),
    ((Z(4, 6), Z(4, 6, dtype=torch.bool)), TypeError, "qvel"),
    ((Z(4, 6), Z(4, 6, device="meta")), ValueError, f"qvel must be on {HERE}"),
    ((Z(4, 6), Z(4, 6), Z(4)), TypeError, "mask must have dtype=bool"),
    ((Z(4, 6), Z(4, 6), Z(5, dtype=torch.bool)), ValueError, "mask must be of shape"),
    ((Z(4, 6), Z(4, 6), [1] * 4), TypeError, "mask must be a tensor, a NumPy array"),
    ((Z(4, 6).to_sparse(), Z(4, 6)), TypeError, "qpos must be a dense tensor"),
    ((Z(4, 6), Z(4, 6), torch.ones(4, dtype=torch.bool).to_sparse()), TypeError, "mask must be a dense tensor"),
]


@pytest.mark.parametrize(("wrong", "error", "text"), WRONG_STATES)
def test_wrong_states(env, wrong, error, text):
    before = snapshot(env)
    with pytest.raises(error, match=text):
        env.set_state(*wrong)
    assert snapshot(env) == before


def masked(mask: Any) -> dict[str, Any]:
    return {"options": {"reset_mask": mask}}


WRONG_RESETS = [
    ({"seed": [1, 2, 3]}, ValueError, "length must match num_envs=4 but got length=3"),
    ({"seed": -1}, ValueError, "negative"),
    ({"seed": [0, 1, -2, 3]}, ValueError, "negative"),
    ({"seed": 1.5}, TypeError, "whole number"),
    ({"seed": True}, TypeError, "whole number"),
    ({"seed": "7"}, TypeError, "whole number"),
    ({"seed": "abcd"}, TypeError, "whole number"),
    ({"seed": np.array(3.0)}, TypeError, "whole number"),
    ({"seed": torch.arange(4)}, TypeError, "whole number"),
    ({"options": "x"}, TypeError, "options must be a dict or None, not 'x'"),
    ({"options": "reset_mask"}, TypeError, "options must be a dict"),
    ({"options": ["reset_mask"]}, TypeError, "options must be a dict"),
    ({"options": {"reset_maks": np.ones(4, dtype=bool)}}, ValueError, "no 'reset_maks': the only one is 'reset_mask'"),
    (masked(torch.ones(4, dtype=torch.bool).to_sparse()), TypeError, "must be a dense tensor"),
    (masked(np.zeros(4, dtype=bool)), ValueError, "at least one True"),
    (
        masked(torch.zeros(4, dtype=torch.bool, device="cpu")),
        ValueError,
        "must be on cuda" if HERE.type == "cuda" else "at least one True",
    ),
    (masked(np.ones(3, dtype=bool)), ValueError, "shape"),
    (masked(np.ones(4)), TypeError, "dtype=bool"),
    (masked(torch.ones(4)), TypeError, "dtype=bool"),
    (masked([1] * 4), TypeError, "tensor, a NumPy array"),
    (masked(None), TypeError, "tensor, a NumPy array"),
    (masked(torch.ones(4, dtype=torch.bool, device="meta")), ValueError, f"must be on {HERE}"),
    ({"seed": -1, **masked(np.ones(4, dtype=bool))}, ValueError, "negative"),
    ({"seed": 5, **masked(np.ones(5, dtype=bool))}, ValueError, "shape"),
]


@pytest.mark.parametrize(("wrong", "error", "text"), WRONG_RESETS)
def test_wrong_resets(env, wrong, error, text):
    before = snapshot(env)
    with pytest.raises(error, match=text):
        env.reset(**wrong)
    assert snapshot(env) == before


@pytest.mark.parametrize("seed", [np.array(3), np.int32(3), torch.tensor(3)])
def test_a_seed_is_whatever_is_a_whole_number(env, seed):
    obs, _ = env.reset(seed=seed)
    assert obs.equal(env.reset(seed=3)[0])
    many, _ = env.reset(seed=range(4))
    assert many.equal(env.reset(seed=np.arange(4))[0])
    single = TorchEnv("Hopper")
    assert (single.reset(seed=seed)[0] == single.reset(seed=3)[0]).all()


@pytest.mark.cpu  # where one world for NumPy is, unless asked otherwise
@pytest.mark.parametrize("wrong", [{"seed": -1}, {"seed": 1.5}, {"seed": [1]}, {"options": "x"}])
def test_wrong_resets_of_one_world(wrong):
    env = TorchEnv("Hopper")
    env.reset(seed=0)
    before = env.engine.state_dict()
    with pytest.raises((TypeError, ValueError), match=r"seed must|options must"):
        env.reset(**wrong)
    assert all(x.equal(before[name]) for name, x in env.engine.state_dict().items())


def test_numbers_of_numpy_count():
    env = TorchVectorEnv(
        "Hopper", np.int64(3), max_episode_steps=np.int32(5), first_world=np.uint8(2), frame_skip=np.int64(2)
    )
    assert env.num_envs == 3 and type(env.num_envs) is int and env.reset()[0].shape == (3, 11)
    sim = Simulation(Hopper().load(), np.int64(3))
    sim.step(np.int64(2))
    assert sim.qpos.shape == (3, 6)


@pytest.mark.parametrize("dtype", ["float64", "torch.float64", np.float64, np.dtype("float64")])
def test_dtypes_by_name(dtype):
    assert TorchVectorEnv("Hopper", 2, dtype=dtype).reset()[0].dtype is torch.float64


def test_masks_as_lists():
    env = TorchVectorEnv("Hopper", 3)
    first, _ = env.reset(seed=0)
    obs, _ = env.reset(options={"reset_mask": [True, False, np.True_]})
    assert (obs != first).any(1).tolist() == [True, False, True]
    with pytest.raises(ValueError, match="at least one True"):
        env.reset(options={"reset_mask": [False] * 3})


def test_tasks_take_their_arguments_by_name():
    """Gymnasium's have default_camera_config among them, and not in one order."""
    with pytest.raises(TypeError, match="positional argument"):
        Hopper("hopper.xml", 4, {"distance": 3.0})


def test_more_worlds_than_memory_holds():
    """Before anything is compiled or allocated: Linux would hand the memory out, and kill the process that uses it."""
    for make in (lambda n: TorchVectorEnv("Hopper", n), lambda n: Simulation(Hopper().load(), n)):
        with pytest.raises((MemoryError, torch.OutOfMemoryError), match="GiB"):
            make(2**31 - 1)


def bad_states(env: Any) -> list[tuple[Any, type[Exception], str]]:
    state = env.state_dict()
    return [
        (3, TypeError, "a state is a dict of tensors"),
        ({name: x.cpu().numpy() for name, x in state.items()}, TypeError, "must be a dense tensor"),
        ({name: x.to_sparse() for name, x in state.items()}, TypeError, "must be a dense tensor"),
        ({name: x.to("meta") for name, x in state.items()}, TypeError, "must be a dense tensor"),
        (state | {3: torch.zeros(1)}, ValueError, "not the state of .*: 3 differ"),
        ({name: x.double() for name, x in state.items()}, ValueError, "not the state of"),
        ({}, ValueError, "not the state of"),
    ]


def test_what_is_no_state(env):
    for kept in (env, NormalizeObservation(env)):
        before = kept.state_dict()
        for wrong, error, text in bad_states(kept):
            with pytest.raises(error, match=text):
                kept.load_state_dict(wrong)
            assert all(x.equal(before[name]) for name, x in kept.state_dict().items())
    qpos = env.state_dict()["qpos"]
    with pytest.raises(ValueError, match=re.escape(f"qpos is of shape (7, 6), not {tuple(qpos.shape)}")):
        env.load_state_dict(env.state_dict() | {"qpos": torch.zeros(7, 6)})
    with pytest.raises(ValueError, match=re.escape("qpos differ; qpos is of torch.int64, not torch.float32")):
        env.load_state_dict(env.state_dict() | {"qpos": qpos.long()})


WRONG_POLICIES: list[tuple[Any, type[Exception], str]] = [
    (lambda obs: None, TypeError, "the policy must give a tensor of actions"),
    (lambda obs: obs[:, :3].cpu().numpy(), TypeError, "the policy must give a tensor of actions"),
    (lambda obs: (obs[:, :3], {}, 1), TypeError, "a tuple of one and a dict"),
    (lambda obs: (obs[:, :3], [1]), TypeError, "a tuple of one and a dict"),
    (lambda obs: obs[:, :3].to_sparse(), TypeError, "the policy's actions must be a dense tensor"),
    (lambda obs: obs[:, :3].to("meta"), ValueError, "the policy's actions must be on"),
    (lambda obs: obs[:, :3] > 0, TypeError, "the policy's actions must be of real numbers"),
    (lambda obs: (obs[:, :3], {"value": obs[:, 0].cpu().numpy()}), TypeError, "the policy's 'value' must be a tensor"),
    (lambda obs: (obs[:, :3], {"value": obs.sum()}), ValueError, "the policy's 'value' must have 4 rows"),
]


@pytest.mark.parametrize(("policy", "error", "text"), WRONG_POLICIES)
def test_wrong_policies(env, policy, error, text):
    before = snapshot(env)
    with pytest.raises(error, match=text):
        env.capture(policy, 2)
    assert snapshot(env) == before


WRONG_SIMULATIONS = [
    (lambda sim: sim.step(0), ValueError, "nstep must be a positive whole number, not 0"),
    (lambda sim: sim.step(2.0), ValueError, "nstep must be a positive whole number"),
    (lambda sim: sim.step(10**30), ValueError, r"nstep must be below 2\*\*31"),
    (lambda sim: sim.reset([1] * 2), TypeError, "mask must be a tensor, a NumPy array"),
    (lambda sim: sim.reset(torch.ones(2)), TypeError, "mask must have dtype=bool"),
    (lambda sim: sim.reset(torch.ones(3, dtype=torch.bool)), ValueError, r"mask must be of shape \(2,\), not \(3,\)"),
    (lambda sim: sim.reset(torch.ones(2, dtype=torch.bool).to_sparse()), TypeError, "mask must be a dense tensor"),
    (lambda sim: sim.set_params(None), TypeError, "parameters are a dict of values by name, .* not None"),
    (lambda sim: Simulation(Hopper().load(), 2, outputs=[3]), TypeError, r"outputs must be names, .* not \[3\]"),
    (lambda sim: Simulation(Hopper().load(), 2, inputs=None), TypeError, "inputs must be names, .* not None"),
    (lambda sim: Simulation(Hopper().load(), 2, vary={"body_mass": (0.5, 2.0)}), TypeError, "vary must be names"),
    (lambda sim: sim.render(outputs=5), TypeError, "outputs must be names, .* not 5"),
    (lambda sim: sim.render(samples=[4]), ValueError, "samples must be one of"),
]


@pytest.mark.parametrize(("act", "error", "text"), WRONG_SIMULATIONS)
def test_wrong_calls_of_a_simulation(act, error, text):
    sim = Simulation(Hopper().load(), 2)
    sim.qvel.fill_(1.0)
    before = [x.clone() for x in (sim.qpos, sim.qvel, sim.ctrl)]
    with pytest.raises(error, match=text):
        act(sim)
    assert all(x.equal(y) for x, y in zip((sim.qpos, sim.qvel, sim.ctrl), before, strict=True))


@pytest.mark.parametrize(
    ("number", "text"), [(10**30, r"below 2\*\*31"), (0, "positive"), (True, "positive"), (2.0, "positive")]
)
def test_wrong_numbers_of_worlds_of_a_simulation(number, text):
    with pytest.raises(ValueError, match=f"num_worlds must be .*{text}"):
        Simulation(Hopper().load(), number)


WRONG_ARGUMENTS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"num_envs": 0}, ValueError, "num_envs must be a positive whole number"),
    ({"num_envs": -3}, ValueError, "num_envs"),
    ({"num_envs": 2.0}, ValueError, "num_envs"),
    ({"num_envs": True}, ValueError, "num_envs"),
    ({"num_envs": "2"}, ValueError, "num_envs"),
    ({"num_envs": float("nan")}, ValueError, "num_envs"),
    ({"num_envs": 2**31}, ValueError, r"num_envs must be below 2\*\*31"),
    ({"first_world": 2**31 - 2}, ValueError, r"first_world \+ num_envs must be below 2\*\*31"),
    ({"max_episode_steps": 2.5}, ValueError, "max_episode_steps must be a whole number"),
    ({"max_episode_steps": 0}, ValueError, "max_episode_steps must be a positive whole number, or -1 for never, not 0"),
    ({"max_episode_steps": -5}, ValueError, "max_episode_steps .* not -5"),
    ({"max_episode_steps": 2**31}, ValueError, r"max_episode_steps must be below 2\*\*31"),
    ({"forward_reward_weight": float("nan")}, ValueError, "forward_reward_weight must be a number, not nan"),
    ({"reset_noise_scale": -0.1}, ValueError, "reset_noise_scale must not be negative"),
    ({"healthy_z_range": (1, 2, 3)}, ValueError, r"healthy_z_range must be two numbers, .* not \(1, 2, 3\)"),
    ({"healthy_z_range": 1.0}, ValueError, "healthy_z_range must be two numbers"),
    ({"healthy_angle_range": ("a", 2)}, ValueError, "healthy_angle_range must be two numbers"),
    ({"healthy_reward": "a"}, TypeError, "healthy_reward must be a number"),
    ({"terminate_when_unhealthy": "no"}, TypeError, "terminate_when_unhealthy must be True or False"),
    ({"task": "Ant", "main_body": "foo"}, ValueError, "main_body must be a body's name or number, not 'foo': .*torso"),
    ({"task": "Ant", "main_body": 99}, ValueError, "main_body .* not 99"),
    ({"dtype": torch.float16}, ValueError, "dtype"),
    ({"dtype": "bfloat16"}, ValueError, "dtype"),
    ({"dtype": None}, ValueError, "dtype"),
    ({"device": "nowhere"}, ValueError, "there is no device 'nowhere'"),
    ({"device": "meta"}, ValueError, "not supported"),
    ({"autoreset_mode": "disabled"}, ValueError, "'NextStep', 'SameStep', 'Disabled', not 'disabled'"),
    ({"render_mode": "ascii"}, ValueError, "render_mode must be one of"),
    ({"render_mode": "human"}, ValueError, "a window shows one world"),
    ({"render_worlds": (0, 2)}, ValueError, "render_worlds must be from 0 to 1"),
    ({"render_worlds": (-1,)}, ValueError, "render_worlds"),
    ({"task": "Unicorn"}, ValueError, "there is no task 'Unicorn'.*Hopper"),
    ({"task": "TorchHopper-v0"}, ValueError, "there is no task 'TorchHopper-v0'.*did you mean 'Hopper'"),
    ({"task": 7}, TypeError, "task must be"),
    ({"task": TorchEnv}, TypeError, "task must be"),
    ({"frame_skip": 0}, ValueError, "frame_skip must be a positive whole number"),
    ({"vary": None}, TypeError, "vary must be names, such as .*, not None"),
    ({"vary": [3]}, TypeError, r"vary must be names, such as .*, not \[3\]"),
    ({"vary": {"body_mass": (0.8, 1.2)}}, TypeError, r"not a dict: what is to be drawn goes into randomize="),
    ({"observation": np.array([1, 2])}, ValueError, "observation must be 'dict' or 'flat'"),
    ({"dtype": {"a": (1,)}}, ValueError, "dtype must be"),
    ({"pixels": {"outputs": ["rgb", "depth"]}}, ValueError, r"outputs must be one of .*, not \['rgb', 'depth'\]"),
    ({"pixels": {"samples": [4]}}, ValueError, r"samples must be one of .*, not \[4\]"),
    ({"pixels": {"without": None}}, TypeError, "without must be names, such as .*, not None"),
    ({"xml_file": "no_such_robot.xml"}, OSError, "no_such_robot.xml"),
    (
        {"contact_cost_weight": 1.0},
        TypeError,
        r"Hopper got an unexpected keyword argument 'contact_cost_weight'; it takes .*xml_file.*device",
    ),
]


@pytest.mark.parametrize(("wrong", "error", "text"), WRONG_ARGUMENTS)
def test_wrong_arguments(wrong, error, text):
    with pytest.raises(error, match=text):
        TorchVectorEnv(**({"task": "Hopper", "num_envs": 2} | wrong))


@pytest.mark.cpu  # where one world for NumPy is, unless asked otherwise
def test_wrong_arguments_of_one_world():
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        gymnasium.make("TorchHopper-v0", contact_cost_weight=1.0)
    with pytest.raises(ValueError, match="action must be of shape"):
        env = gymnasium.make("TorchHopper-v0")
        env.reset()
        env.step(np.zeros(4))


def test_both_cameras():
    with pytest.raises(ValueError, match="camera_id"):
        TorchVectorEnv("Hopper", render_mode="rgb_array", camera_id=0, camera_name="track")


def test_step_before_reset():
    for env, action in ((TorchVectorEnv("Hopper", 2), torch.zeros(2, 3)), (TorchEnv("Hopper"), np.zeros(3))):
        with pytest.raises(ResetNeeded):
            env.step(action)
    env = TorchVectorEnv("Hopper", 2)
    with pytest.raises(ResetNeeded, match="every world"):
        env.reset(options={"reset_mask": np.array([True, False])})


def test_calls_after_close_are_refused():
    env, single = TorchVectorEnv("Hopper", 2), TorchEnv("Hopper")
    for e, action, state in ((env, torch.zeros(2, 3), torch.zeros(2, 6)), (single, np.zeros(3), np.zeros(6))):
        e.reset()
        e.close()
        e.close()
        for call in (e.reset, lambda e=e, a=action: e.step(a), e.render, lambda e=e, s=state: e.set_state(s, s)):
            with pytest.raises(ClosedEnvironmentError):
                call()


def test_names_of_a_tasks_fields():
    """`height` is that of a frame: a field of this name could not be told from it."""

    @dataclass(frozen=True)
    class Ambiguous(Hopper):
        height: float = 1.0

    with pytest.raises(TypeError, match=r"fields \['height'\] of Ambiguous"):
        TorchVectorEnv(Ambiguous())

    @dataclass(frozen=True)
    class Limited(Hopper):
        max_episode_steps: int = 7

    with pytest.raises(TypeError, match="write it without a type, as in max_episode_steps = 500"):
        TorchVectorEnv(Limited())


def test_task_must_say_all():
    """A task that leaves something out is refused when the environment is made."""

    class Half(Hopper):
        def observe(self, m, world):
            return Task.observe(self, m, world)

    with pytest.raises(NotImplementedError, match="Half has no `observe`"):
        Engine(Half(), 2)


@pytest.mark.parametrize("draw", [np.random.rand, random.random, lambda: float(torch.rand((), device="cpu"))])
def test_a_task_draws_from_its_own_generator_alone(draw, monkeypatch):
    """Of others there would be one number for all worlds and episodes. Another thread may draw from them."""

    class Drawn(Hopper):
        def reset(self, m, rng):
            return [*m.qpos0[:-1], draw()], [0.0] * m.nv

    class Beside(Hopper):
        def reset(self, m, rng):
            draw()  # for another thread, while this one is here
            return [*m.qpos0], [0.0] * m.nv

    said = r".reset .*draws from np.random, random or torch.*use rng"
    monkeypatch.setattr(threading, "active_count", lambda: 1)
    with pytest.raises(ValueError, match=f"Drawn{said}"):
        Engine(Drawn(), 2)
    monkeypatch.setattr(threading, "active_count", lambda: 2)
    with pytest.warns(UserWarning, match=rf"Beside{said} \(unless it was another thread"):
        Engine(Beside(), 2)
    said = r"Drawn.reset .*something else when it is called again"
    with pytest.warns(UserWarning), pytest.raises(ValueError, match=said):
        Engine(Drawn(), 2)


def test_threads_that_draw_are_no_reason_to_warn_of_our_own_tasks(monkeypatch):
    monkeypatch.setattr("torch_mjenvs.envs.task_calls.drawn", itertools.count().__next__)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TorchVectorEnv("Hopper", 2, max_episode_steps=7)


@pytest.mark.parametrize(("given", "said"), [("<mujoco/>", "not str"), (mujoco.MjSpec(), "one by its compile")])
def test_a_model_is_mujocos(given, said):
    class Loads(Hopper):
        def load(self):
            return given

    with pytest.raises(TypeError, match=f"Loads.load must give a mujoco.MjModel, .*{said}"):
        TorchVectorEnv(Loads(), 2)


@pytest.mark.parametrize("name", ["frame_skip", "dt", "model", "max_episode_steps", "reset_noise_scale", "vary"])
@pytest.mark.parametrize("make", [TorchEnv, TorchVectorEnv])
def test_what_is_compiled_cannot_be_assigned(make, name):
    """In Gymnasium some of it may be; here nothing would change."""
    env = make("Hopper")
    for built in (env, copy.deepcopy(env)):
        with pytest.raises(AttributeError, match=f"'{name}' cannot be set on a built environment.*\\(..., {name}="):
            setattr(built, name, 3)
    env.note = "a user's own"
    assert env.note == "a user's own"


@pytest.mark.cpu  # where one world for NumPy is, unless asked otherwise
def test_initial_positions_are_not_written_into():
    """Gymnasium's own reset begins from them."""
    env = TorchEnv("Hopper")
    with pytest.raises(ValueError, match=r"init_qpos is read only: .* call set_state after reset"):
        env.init_qpos[1] = 2.0
    mine = env.init_qpos.copy()
    mine[1] = 2.0
    assert env.init_qpos[1] == 1.25


WRONG_PICTURES = [
    ({"width": 0}, ValueError, "width must be a positive whole number, not 0"),
    ({"height": 2.5}, ValueError, "height must be a positive whole number, not 2.5"),
    ({"camera_name": "trakc"}, ValueError, "the model has no camera 'trakc'; it has 'track'"),
    ({"camera_id": 1}, ValueError, "the model has no camera 1: it has 1"),
]


@pytest.mark.parametrize(("wrong", "error", "text"), WRONG_PICTURES)
def test_wrong_pictures_are_refused_before_they_are_drawn(wrong, error, text):
    """Gymnasium shows the free camera for a name that there is not."""
    for make in (TorchEnv, TorchVectorEnv):
        with pytest.raises(error, match=text):
            make("Hopper", render_mode="rgb_array", **wrong)
    with pytest.raises(TypeError, match="render_worlds must be numbers of worlds, such as"):
        TorchVectorEnv("Hopper", 2, render_worlds=1)


@pytest.mark.parametrize("wrong", [{"copy": "no"}, {"pixels": {"state": 1}}, {"pixels": {"channels_first": "yes"}}])
def test_flags_are_true_or_false(wrong):
    with pytest.raises(TypeError, match="must be True or False, not"):
        TorchVectorEnv("Hopper", 2, **wrong)


def test_what_is_missing_is_said(env):
    with pytest.raises(KeyError, match="params has no 'body_mass', but nothing: name what is to vary in vary="):
        env.params["body_mass"]
    with pytest.raises(KeyError, match="memory has no 'goal', but nothing: the task's memory"):
        env.engine.memory["goal"]
    with pytest.raises(TypeError, match="an MjSpec becomes an MjModel by its compile"):
        Simulation(mujoco.MjSpec(), 2)
    for worlds in (env, Simulation(Hopper().load(), 4)):
        with pytest.raises(IndexError, match="there are worlds 0 to 3, not 4"):
            worlds.model_of(4)


def test_an_xml_file_that_is_no_mjcf_file_is_refused_with_what_to_do(tmp_path):
    compiled = tmp_path / "hopper.mjb"
    mujoco.mj_saveModel(Hopper().load(), str(compiled))
    for given in (compiled, str(compiled), Hopper().load(), mujoco.MjSpec(), "<mujoco/>", " \n<mujoco/>", None):
        with pytest.raises(ValueError, match=r"xml_file must be the path of an MJCF file.* whose load\(\) returns"):
            TorchVectorEnv("Hopper", 2, xml_file=given)

    class Compiled(Hopper):
        def load(self):
            return mujoco.MjModel.from_binary_path(str(compiled))

    assert TorchVectorEnv(Compiled(), 2).reset(seed=0)[0].equal(TorchVectorEnv("Hopper", 2).reset(seed=0)[0])


def test_a_file_of_ones_own_is_told_from_a_model_of_gymnasiums():
    with pytest.raises(OSError, match="does not exist") as caught:
        TorchVectorEnv("Hopper", 2, xml_file="mine.xml")
    assert caught.value.__notes__ == ["a name alone is one of Gymnasium's models: a file of yours is './mine.xml'"]

"""What cannot be: a state or action that is no number ends its own world alone; misuse is refused, changing nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.error import ClosedEnvironmentError, ResetNeeded

from torch_mjenvs import Hopper, Task, TorchEnv, TorchVectorEnv
from torch_mjenvs.envs.engine import Engine

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
    """One step after which the worlds of `bad` are ended and flagged, and the others are the clean twin's."""
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
    """The bad worlds have new episodes by the next step, and the others still do not know."""
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
    """States at which the arithmetic itself runs over are caught in the step that does."""
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
]


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
    ((Z(4, 6), Z(4, 6), Z(5, dtype=torch.bool)), ValueError, "mask must have shape"),
    ((Z(4, 6), Z(4, 6), [True] * 4), TypeError, "mask must be a tensor or a NumPy array"),
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
    (masked(np.zeros(4, dtype=bool)), ValueError, "at least one True"),
    (
        masked(torch.zeros(4, dtype=torch.bool, device="cpu")),
        ValueError,
        "must be on cuda" if HERE.type == "cuda" else "at least one True",
    ),
    (masked(np.ones(3, dtype=bool)), ValueError, "shape"),
    (masked(np.ones(4)), TypeError, "dtype=bool"),
    (masked(torch.ones(4)), TypeError, "dtype=bool"),
    (masked([True] * 4), TypeError, "tensor or a NumPy array"),
    (masked(None), TypeError, "tensor or a NumPy array"),
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


WRONG_ARGUMENTS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"num_envs": 0}, ValueError, "num_envs must be a positive whole number"),
    ({"num_envs": -3}, ValueError, "num_envs"),
    ({"num_envs": 2.0}, ValueError, "num_envs"),
    ({"num_envs": True}, ValueError, "num_envs"),
    ({"dtype": torch.float16}, ValueError, "dtype"),
    ({"dtype": "float32"}, ValueError, "dtype"),
    ({"device": "nowhere"}, ValueError, "there is no device 'nowhere'"),
    ({"device": "meta"}, ValueError, "not supported"),
    ({"autoreset_mode": "Sometimes"}, ValueError, "Sometimes"),
    ({"render_mode": "ascii"}, ValueError, "render_mode must be one of"),
    ({"render_mode": "human"}, ValueError, "render_mode must be one of"),
    ({"render_worlds": (0, 2)}, ValueError, "render_worlds must be from 0 to 1"),
    ({"render_worlds": (-1,)}, ValueError, "render_worlds"),
    ({"task": "Unicorn"}, ValueError, "there is no task 'Unicorn'.*Hopper"),
    ({"task": 7}, TypeError, "task must be"),
    ({"task": TorchEnv}, TypeError, "task must be"),
    ({"frame_skip": 0}, ValueError, "frame_skip must be a positive whole number"),
    ({"xml_file": "no_such_robot.xml"}, OSError, "no_such_robot.xml"),
    (
        {"contact_cost_weight": 1.0},
        TypeError,
        r"Hopper takes no argument \['contact_cost_weight'\]; it takes .*xml_file",
    ),
]


@pytest.mark.parametrize(("wrong", "error", "text"), WRONG_ARGUMENTS)
def test_wrong_arguments(wrong, error, text):
    with pytest.raises(error, match=text):
        TorchVectorEnv(**({"task": "Hopper", "num_envs": 2} | wrong))


def test_wrong_arguments_of_one_world():
    with pytest.raises(TypeError, match="takes no argument"):
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


def test_closed():
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


def test_task_must_say_all():
    """A task that leaves something out is refused when the environment is made."""

    class Half(Hopper):
        def observe(self, m, world):
            return Task.observe(self, m, world)

    with pytest.raises(NotImplementedError):
        Engine(Half(), 2)

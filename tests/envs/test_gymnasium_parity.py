"""One environment step, and a reset, beside Gymnasium's own v5 environments, for all eleven tasks.

What is compared: observation, reward, flags and every entry of info. tests/tasks.py has the states and the bounds.
"""

from __future__ import annotations

import inspect
from collections import Counter
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import gymnasium
import mujoco
import numpy as np
import pytest
import torch
from gymnasium.envs.mujoco import mujoco_env
from gymnasium.vector import AutoresetMode
from scipy import stats
from tasks import TASKS, Samples, compare, error, our_env, our_steps, real_env, samples, their_steps

import torch_mjenvs
from torch_mjenvs import TorchVectorEnv

ASSETS = Path(mujoco_env.__file__).parent / "assets"
DTYPES = [torch.float32, torch.float64]
VARIANTS = [(name, arguments) for name, task in TASKS.items() for arguments in task.variants]


@cache
def plain_steps(name: str) -> tuple[Any, ...]:
    """Gymnasium's steps from the samples, without arguments: several tests compare with them."""
    return their_steps(real_env(name), samples(name))


def test_every_task_is_compared():
    assert set(TASKS) == set(torch_mjenvs.TASKS)


@pytest.mark.parametrize("name", TASKS)
def test_steps_are_gymnasiums(name):
    s = samples(name)
    theirs = plain_steps(name)
    happened = Counter(s.seen, terminated=int(theirs[2].sum()))
    for what, (more, fewer) in TASKS[name].occurs.items():  # the samples are worth something
        assert more < happened[what] < fewer, what
    compare(our_steps(name, s, torch.float64), theirs, TASKS[name].exact)


@pytest.mark.cpu
@pytest.mark.usefixtures("as_for_a_gpu", "quickly_compiled")
@pytest.mark.parametrize("name", ["Ant", "Humanoid", pytest.param("HumanoidStandup", marks=pytest.mark.slow)])
def test_the_programs_that_a_gpu_gets(name):
    """Where they are others than the CPU's. Their bits are a GPU's, as tests/compiler shows."""
    steps, _, bound = TASKS[name].several
    s = samples(name, 100)
    compare(our_steps(name, s, torch.float64), their_steps(real_env(name), s), TASKS[name].exact)
    compare(our_steps(name, s, torch.float64, steps), their_steps(real_env(name), s, steps), bound)


@pytest.mark.slow
@pytest.mark.parametrize("name", TASKS)
def test_step_many(name):
    s = samples(name, 2000)
    compare(our_steps(name, s, torch.float64), their_steps(real_env(name), s), TASKS[name].exact)


@pytest.mark.parametrize("name", TASKS)
def test_several_steps(name):
    """What is carried from step to step."""
    steps, n, bound = TASKS[name].several
    s = samples(name, n)
    compare(our_steps(name, s, torch.float64, steps), their_steps(real_env(name), s, steps), bound)


@pytest.mark.parametrize("name", TASKS)
def test_float32_steps_are_gymnasiums_to_rounding(name):
    s, bound = samples(name), TASKS[name].float32
    ours, theirs = our_steps(name, s, torch.float32), plain_steps(name)
    compared = [error(ours[0], theirs[0])[:, : bound.entries]]
    if bound.entries is None:
        compared.append(error(ours[1], theirs[1])[:, None])
    for apart in compared:
        assert np.median(apart.max(1)) < bound.median
        assert np.quantile(apart.max(1), bound.share) < bound.worst
    assert (ours[2] != theirs[2]).sum() <= bound.flags


# arguments


@pytest.mark.usefixtures("quickly_compiled")  # the code that users run is what `test_steps_are_gymnasiums` runs
@pytest.mark.parametrize(("name", "arguments"), VARIANTS)
def test_arguments_do_what_they_do_in_gymnasium(name, arguments):
    s = samples(name)
    theirs, plain = their_steps(real_env(name, **arguments), s), plain_steps(name)
    compare(our_steps(name, s, torch.float64, **arguments), theirs, TASKS[name].exact)
    if arguments.get("main_body") == "aux_1":  # Gymnasium's XML names it so
        assert mujoco.mj_name2id(real_env(name).model, mujoco.mjtObj.mjOBJ_BODY, "aux_1") > 0
    seen = zip((*theirs[:3], *theirs[4].values()), (*plain[:3], *plain[4].values()), strict=True)
    assert theirs[0].shape != plain[0].shape or any((a != b).any() for a, b in seen)


@pytest.mark.parametrize("name", TASKS)
def test_arguments_and_their_defaults_are_gymnasiums(name):
    """The same arguments with the same defaults, but for those that every environment has."""
    theirs = dict(inspect.signature(type(real_env(name)).__init__).parameters)
    for common in ("self", "default_camera_config", "kwargs"):
        del theirs[common]
    ours = fields(torch_mjenvs.TASKS[name])
    assert {f.name: f.default for f in ours} == {k: p.default for k, p in theirs.items()}


@pytest.mark.parametrize(
    ("name", "dtype", "arguments"),
    [*((name, torch.float32, {}) for name in TASKS), ("HalfCheetah", torch.float64, TASKS["HalfCheetah"].variants[0])],
)
def test_attributes_are_gymnasiums(name, dtype, arguments):
    env, real = our_env(name, 2, dtype, **arguments), real_env(name, **arguments)
    assert env.dt == real.dt and env.metadata["render_fps"] == real.metadata["render_fps"]
    assert env.single_action_space == real.action_space
    assert env.single_observation_space.shape == real.observation_space.shape
    mine, theirs = env.engine.task.default_camera_config, real.mujoco_renderer.default_cam_config or {}
    assert set(mine) == set(theirs)
    for key in mine:
        np.testing.assert_array_equal(mine[key], theirs[key])


def test_own_xml(tmp_path):
    """A user's model: lighter gravity, a heavier foot, other actuators and limits."""
    text = (ASSETS / "hopper.xml").read_text()
    for old, new in (('timestep="0.002"', 'timestep="0.003"'), ('gear="200.0"', 'gear="90"'), ('"-150 0"', '"-70 0"')):
        assert old in text
        text = text.replace(old, new, 1)
    path = tmp_path / "hopper.xml"
    path.write_text(text.replace("<option", '<option gravity="0 0 -4"', 1))
    s = samples("Hopper")
    ours = our_steps("Hopper", s, torch.float64, xml_file=str(path))
    compare(ours, their_steps(real_env("Hopper", xml_file=str(path)), s))


# resets


def after_a_reset(env: gymnasium.Env, qpos: torch.Tensor, qvel: torch.Tensor) -> tuple[np.ndarray, dict]:
    """Gymnasium's observation and info of a start: mj_resetData has cleared what a step leaves."""
    mujoco.mj_resetData(env.model, env.data)
    env.set_state(qpos.cpu().numpy(), qvel.cpu().numpy())
    return env._get_obs(), env._get_reset_info()


VISIBLE = {"exclude_current_positions_from_observation": False}


@pytest.mark.parametrize(
    ("name", "arguments"),
    [(name, {}) for name in TASKS]
    + [(name, VISIBLE) for name in ("HalfCheetah", "Walker2d", "Hopper")]
    + [("InvertedDoublePendulum", {"reset_noise_scale": 1.5})],
)
def test_first_observations_are_gymnasiums(name, arguments):
    """The first observation is Gymnasium's of the same state; with much noise the force of the rail's end is in it."""
    env, real, bound = our_env(name, 20, torch.float64, **arguments), real_env(name, **arguments), TASKS[name].reset
    obs, info = env.reset(seed=1)
    for i in range(20):
        expected, expected_info = after_a_reset(real, env.qpos[i], env.qvel[i])
        assert error(obs[i], expected).max() <= bound
        assert {k for k in info if not k.startswith("_")} == set(expected_info)
        for key, value in expected_info.items():
            assert info[f"_{key}"].all() and error(info[key][i], np.array(value)).max() < max(bound, 1e-14)
    if "reset_noise_scale" in arguments:
        assert (obs[:, 8] != 0).any()
    if name in ("Ant", "Humanoid"):  # their quaternions are left as drawn
        assert (env.qpos[:, 3:7].norm(dim=1) - 1).abs().max() > 1e-3


@pytest.mark.parametrize("name", ["Swimmer", "InvertedPendulum", "InvertedDoublePendulum"])
def test_reset_without_noise(name):
    obs, _ = our_env(name, 2, torch.float64, reset_noise_scale=0).reset(seed=0)
    real = real_env(name, reset_noise_scale=0)
    np.testing.assert_allclose(obs.cpu(), np.tile(real.reset()[0], (2, 1)), atol=1e-15)


@cache
def real_resets(name: str, n: int, **arguments: Any) -> np.ndarray:
    """(n, nq + nv) states of real resets, as distances from the model's initial state."""
    env = real_env(name, **arguments)
    env.reset(seed=12)
    start = np.concatenate([env.model.qpos0, env.init_qvel])  # Pusher writes into its init_qpos
    rows = []
    for _ in range(n):
        env.reset_model()
        rows.append(np.concatenate([env.data.qpos, env.data.qvel]) - start)
    return np.array(rows)


def our_resets(name: str, worlds: int, episodes: int, dtype: torch.dtype, **arguments: Any) -> np.ndarray:
    """(episodes, worlds, nq + nv), the same of ours."""
    env = our_env(name, worlds, dtype, **arguments)
    rows = []
    for episode in range(episodes):
        env.reset(seed=5 if episode == 0 else None)
        start = torch.tensor(env.engine.model.qpos0, dtype=dtype)
        rows.append(torch.cat([env.qpos - start, env.qvel], 1).double().cpu().numpy().copy())
    return np.array(rows)


def same_distribution(ours: np.ndarray, real: np.ndarray) -> None:
    """Each coordinate has the same distribution, and no two are correlated."""
    for k in range(real.shape[1]):
        assert stats.ks_2samp(ours[:, k], real[:, k]).pvalue > 1e-4, k
    together = np.corrcoef(ours, rowvar=False) - np.eye(real.shape[1])
    assert np.abs(together).max() < 5 / np.sqrt(len(ours))


# Of the coordinates that vary, in their order: how many are drawn from which distribution of which scale.
NOISE = {
    "HalfCheetah": [(9, "uniform", 0.1), (9, "normal", 0.1)],
    "Walker2d": [(18, "uniform", 5e-3)],
    "Hopper": [(12, "uniform", 5e-3)],
    "Ant": [(15, "uniform", 0.1), (14, "normal", 0.1)],
    "Humanoid": [(47, "uniform", 0.01)],
    "Swimmer": [(10, "uniform", 0.1)],
    "Reacher": [(2, "uniform", 0.1), (2, "disc", 0.2), (2, "uniform", 0.005)],
    "Pusher": [(2, "patch", 0.3), (7, "uniform", 0.005)],
    "InvertedPendulum": [(4, "uniform", 0.01)],
    "InvertedDoublePendulum": [(3, "uniform", 0.1), (3, "normal", 0.1)],
    "HumanoidStandup": [(47, "uniform", 0.01)],
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", TASKS)
def test_reset_distribution(name, dtype):
    """Over worlds, each coordinate of the state has the real environment's distribution; constant ones are equal."""
    real, ours = real_resets(name, 2000), our_resets(name, 4000, 1, dtype)[0]
    varies = np.ptp(real, axis=0) > 0
    assert not ours[:, ~varies].any() and varies.sum() > 3
    real, ours = real[:, varies], ours[:, varies]
    same_distribution(ours, real)
    assert len(np.unique(ours[:, 0])) > 3890  # in float32 some are the same
    assert sum(count for count, *_ in NOISE[name]) == ours.shape[1]
    for count, kind, scale in NOISE[name]:
        part, ours = ours[:, :count], ours[:, count:]
        if kind == "normal":
            assert (np.abs(part.std(0) / scale - 1) < 5 / np.sqrt(2 * len(part))).all()
        elif kind == "uniform":
            most = np.abs(part).max(0)
            assert (most <= scale * (1 + 1e-4)).all() and (most > 0.99 * scale).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("name", "scale"), [("HalfCheetah", 0.1), ("Walker2d", 5e-3), ("Hopper", 0.3)])
def test_noise_goes_its_own_way_in_every_world_and_episode(name, scale, dtype):
    real = real_resets(name, 2000, reset_noise_scale=scale)
    ours = our_resets(name, 2, 2000, dtype, reset_noise_scale=scale)
    one, other = ours[:, 0], ours[:, 1]
    for episodes in (one, other):
        same_distribution(episodes, real)
    for a, b in ((one, other), (one[1:], one[:-1])):  # from world to world, from episode to episode
        matrix = np.corrcoef(a, b, rowvar=False)[: real.shape[1], real.shape[1] :]
        assert np.abs(matrix).max() < 5 / np.sqrt(len(a))


def test_reacher_target():
    """Drawn from a disc at once, where Gymnasium tries again until it hits the disc: the same distribution."""
    env = our_env("Reacher", 20_000)
    env.reset(seed=0)
    x, y = env.qpos[:, 2:].double().cpu().numpy().T
    radius, angle = np.hypot(x, y), np.arctan2(y, x)
    assert 0.199 < radius.max() < 0.2 + 1e-7
    assert stats.kstest((radius / 0.2) ** 2, "uniform").pvalue > 1e-4
    assert stats.kstest(angle / (2 * np.pi) + 0.5, "uniform").pvalue > 1e-4
    assert abs(np.corrcoef(radius, angle)[0, 1]) < 5 / np.sqrt(len(x))
    assert (env.qvel[:, 2:] == 0).all() and (env.qvel[:, :2] != 0).any()


def test_pusher_object():
    """Drawn at once from where Gymnasium tries until it gets: a rectangle without the half disc around the goal."""
    env = our_env("Pusher", 20_000)
    env.reset(seed=0)
    y, x = env.qpos[:, 7:9].double().cpu().numpy().T
    assert (np.hypot(x, y) > 0.17 - 1e-6).all() and np.hypot(x, y).min() < 0.172
    assert (np.abs(x) <= 0.2).all() and (y >= -0.3).all() and (y <= 0).all()
    allowed = 0.3 * 0.4 - np.pi * 0.17**2 / 2
    for low, high, share in ((-0.2, -0.17, 0.3 * 0.03), (0.17, 0.2, 0.3 * 0.03)):  # beside the disc
        assert np.mean((x > low) & (x < high)) == pytest.approx(share / allowed, abs=0.01)
    assert np.mean(y < -0.17) == pytest.approx(0.13 * 0.4 / allowed, abs=0.015)
    assert (env.qpos[:, :7] == 0).all() and (env.qpos[:, 9:] == 0).all() and (env.qvel[:, 7:] == 0).all()


# the rail of the inverted double pendulum, whose force is observed


def test_force_of_the_rail():
    """It is that of the step's last evaluation; the states have it at 0, clipped at 10 and between."""
    name, rng, n = "InvertedDoublePendulum", np.random.default_rng(0), 400
    end = rng.choice([-1.0, 1.0], n)
    qpos, qvel = rng.uniform(-0.02, 0.02, (n, 3)), rng.uniform(-0.02, 0.02, (n, 3))
    qpos[:, 0] = end * rng.uniform(0.989, 0.992, n)
    s = Samples(qpos, qvel, end[:, None] * rng.uniform(0, 0.02, (n, 1)), samples(name).seen)
    theirs = their_steps(real_env(name), s)
    force = np.abs(theirs[0][:, 8])
    assert ((force > 0.1) & (force < 10)).sum() > 50 and (force == 10).sum() > 20 and (force == 0).sum() > 20
    compare(our_steps(name, s, torch.float64), theirs)


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_first_observations_after_an_autoreset_are_gymnasiums(mode):
    """The first observation after an autoreset has the force of the rail too, for which constraints are solved anew."""
    name, arguments = "InvertedDoublePendulum", {"reset_noise_scale": 1.5}
    real = real_env(name, **arguments)
    env = TorchVectorEnv(name, 300, dtype=torch.float64, autoreset_mode=mode, max_episode_steps=2, **arguments)
    env.reset(seed=0)
    for _ in range(2 + (mode is AutoresetMode.NEXT_STEP)):
        obs, *_ = env.step(torch.zeros(300, 1))
    begun = (env.elapsed_steps == 0).nonzero()[:, 0].tolist()
    for i in begun:
        assert error(obs[i], after_a_reset(real, env.qpos[i], env.qvel[i])[0]).max() < 1e-12
    assert (obs[begun, 8] != 0).sum() > 2


# three dimensions


@pytest.mark.parametrize("name", ["Ant", "Humanoid"])
def test_bitwise_in_any_company(name):
    """A world alone, or among others at another place, and with other threads."""
    s = samples(name)
    action = torch.tensor(s.action).float()

    def rollout(worlds: list[int], threads: int) -> torch.Tensor:
        env = our_env(name, len(worlds))
        env.reset(seed=0)
        env.set_state(torch.tensor(s.qpos[worlds]), torch.tensor(s.qvel[worlds]))
        torch.set_num_threads(threads)
        for _ in range(4):
            env.engine.done.zero_()
            obs = env.step(action[worlds])[0]
        return obs

    everyone = rollout(list(range(33)), 1)
    assert torch.equal(rollout([*range(20, 33), *range(20)], 2).roll(-13, 0), everyone)
    for world in (0, 7, 32):
        assert torch.equal(rollout([world], 1)[0], everyone[world])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Ant", "Humanoid"])
def test_nothing_blows_up(name):
    """Random actions for long: no value that is not finite, and no world flagged."""
    env = TorchVectorEnv(name, 1024, autoreset_mode="SameStep")
    env.reset(seed=0)
    generator = torch.Generator().manual_seed(0)
    high = torch.tensor(env.single_action_space.high)
    for _ in range(10_000):
        action = (torch.rand(1024, len(high), generator=generator, device="cpu").to(env.device) * 2 - 1) * high
        obs, reward, _, _, info = env.step(action)
        assert torch.isfinite(obs).all() and torch.isfinite(reward).all() and not info["bad_state"].any()


def test_a_state_set_in_some_worlds_is_forgotten_in_no_other():
    """An Ant remembers where it was seen last, which is not where it is: its next velocity is measured from there."""
    env, twin = our_env("Ant", 4), our_env("Ant", 4)
    mask = torch.tensor([True, False, False, True])
    for e in (env, twin):
        e.reset(seed=0)
        e.step(torch.full((4, 8), 0.5))
    env.set_state(env.qpos.clone() + 0.01, env.qvel.clone(), mask)
    steps = (e.step(torch.ones(4, 8)) for e in (env, twin))
    ours, theirs = ((obs, reward, info["x_velocity"]) for obs, reward, *_, info in steps)
    for a, b in zip(ours, theirs, strict=True):
        assert torch.equal(a[~mask], b[~mask]) and (a[mask] != b[mask]).any()

"""The wrappers that change observations, rewards and actions, in all three modes.

The oracle is Gymnasium's SyncVectorEnv of single worlds, each within Gymnasium's own wrapper of that name.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import wrappers as single
from gymnasium.error import InvalidBound, ResetNeeded
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.wrappers import vector as stock
from launches import NoWaiting

from torch_mjenvs import TorchVectorEnv, wrappers

MODES = list(AutoresetMode)
NEXT_STEP, SAME_STEP, DISABLED = AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED
N, STEPS, LIMIT = 4, 50, 16
SEEDS = [5, 6, 7, 8]


def make(mode: AutoresetMode = SAME_STEP, n: int = N, **kwargs: Any) -> TorchVectorEnv:
    """Hoppers fall after some steps, or are cut after 16: both happen."""
    usual = {"dtype": torch.float64, "max_episode_steps": LIMIT}
    return TorchVectorEnv("Hopper", n, **(usual | kwargs), autoreset_mode=mode)


def actions(steps: int = STEPS, n: int = N) -> np.ndarray:
    """Some beyond the range; the first worlds fall less often."""
    x = np.random.default_rng(1).uniform(-2, 2, (steps, n, 3)) * np.linspace(0.1, 1, n)[:, None]
    return x.astype(np.float32).astype(float)  # numbers that float32 has, too


class Delayed(gymnasium.Wrapper):
    """`ActionDelay` of one world, written down once more."""

    def __init__(self, env: gymnasium.Env, delay: int):
        super().__init__(env)
        self.delay = delay

    def reset(self, **kwargs: Any) -> Any:
        self.waiting = deque([np.zeros(3)] * self.delay)
        return self.env.reset(**kwargs)

    def step(self, action: np.ndarray) -> Any:
        self.waiting.append(np.array(action))
        return self.env.step(self.waiting.popleft())


def double(x: Any) -> Any:
    return 2 * x + 1


WRAPPERS: dict[str, tuple[Callable, Callable]] = {
    "TransformObservation": (
        lambda e: wrappers.TransformObservation(e, double),
        lambda e: single.TransformObservation(e, double, e.observation_space),
    ),
    "TransformReward": (lambda e: wrappers.TransformReward(e, double), lambda e: single.TransformReward(e, double)),
    "ClipReward": (lambda e: wrappers.ClipReward(e, 0.8, 1.1), lambda e: single.ClipReward(e, 0.8, 1.1)),
    "ClipReward, one bound": (lambda e: wrappers.ClipReward(e, 1.0), lambda e: single.ClipReward(e, 1.0)),
    "ClipAction": (wrappers.ClipAction, single.ClipAction),
    "DtypeObservation": (
        lambda e: wrappers.DtypeObservation(wrappers.DtypeObservation(e, np.float64), torch.float16),
        lambda e: single.DtypeObservation(e, np.float16),
    ),
    "FrameStackObservation": (
        lambda e: wrappers.FrameStackObservation(e, 3),
        lambda e: single.FrameStackObservation(e, 3),
    ),
    "FrameStackObservation, zeros": (
        lambda e: wrappers.FrameStackObservation(e, 4, padding_type="zero"),
        lambda e: single.FrameStackObservation(e, 4, padding_type="zero"),
    ),
    "FlattenObservation": (
        lambda e: wrappers.FlattenObservation(wrappers.FrameStackObservation(e, 2)),
        lambda e: single.FlattenObservation(single.FrameStackObservation(e, 2)),
    ),
    "ActionDelay": (lambda e: wrappers.ActionDelay(e, 2), lambda e: Delayed(e, 2)),
}


def equal(ours: torch.Tensor, theirs: np.ndarray) -> None:
    np.testing.assert_array_equal(ours.cpu().numpy(), theirs)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", WRAPPERS)
def test_it_is_gymnasiums_around_every_world(name, mode):
    wrap, wrap_one = WRAPPERS[name]
    one = {"max_episode_steps": LIMIT, "disable_env_checker": True}
    theirs = SyncVectorEnv([lambda: wrap_one(gymnasium.make("TorchHopper-v0", **one))] * N, autoreset_mode=mode)
    ours = wrap(make(mode))
    assert ours.single_observation_space == theirs.single_observation_space
    assert ours.single_action_space == theirs.single_action_space
    assert ours.observation_space == theirs.observation_space and ours.action_space == theirs.action_space
    equal(ours.reset(seed=SEEDS)[0], theirs.reset(seed=SEEDS)[0])
    kinds, ended = set(), np.zeros(N, bool)
    for action in actions():
        only_reset = ended if mode is NEXT_STEP else ~np.ones(N, bool)
        mine, real = ours.step(torch.tensor(action)), theirs.step(action)
        for k in (0, 2, 3):
            equal(mine[k], real[k])
        equal(mine[1][~only_reset], real[1][~only_reset])  # vector wrappers change the others too, which are 0
        assert torch.equal(ours.obs, mine[0])
        ended = real[2] | real[3]
        for i in np.flatnonzero(ended) if mode is SAME_STEP else ():
            equal(mine[4]["final_obs"][i], real[4]["final_obs"][i])
        kinds |= {kind for kind, x in (("fell", real[2]), ("was cut", real[3])) if x.any()}
        if mode is DISABLED and ended.any():
            options = {"reset_mask": ended}
            equal(ours.reset(options=options)[0], theirs.reset(options=options)[0])
    assert kinds == {"fell", "was cut"}


@pytest.mark.cpu
@pytest.mark.parametrize("name", ["TransformObservation", "TransformReward", "ClipReward", "ClipAction"])
def test_it_is_gymnasiums_vector_wrapper(name):
    """Where Gymnasium has one that takes tensors, and takes the mode."""
    make_theirs = {
        "TransformObservation": lambda e: stock.TransformObservation(e, double),
        "TransformReward": lambda e: stock.TransformReward(e, double),
        "ClipReward": lambda e: stock.ClipReward(e, 0.8, 1.1),
        "ClipAction": stock.ClipAction,
    }
    ours, theirs = WRAPPERS[name][0](make(NEXT_STEP)), make_theirs[name](make(NEXT_STEP))
    assert ours.action_space == theirs.action_space
    assert torch.equal(ours.reset(seed=0)[0], theirs.reset(seed=0)[0])
    for action in torch.tensor(actions(30)):
        assert all(map(torch.equal, ours.step(action)[:4], theirs.step(action)[:4]))


# -- Noise -------------------------------------------------------------------------------------------------------------


def noise(n: int = N, steps: int = 20, seed: Any = 3, mode: AutoresetMode = SAME_STEP, **kwargs: Any) -> torch.Tensor:
    """(steps + 1, n, 11), what is added to observations of still worlds."""
    env, plain = wrappers.ObservationNoise(make(mode, n, **kwargs), 0.5), make(mode, n, **kwargs)
    seen = [env.reset(seed=seed)[0] - plain.reset(seed=seed)[0]]
    for _ in range(steps):
        obs, *_, info = env.step(torch.zeros(n, 3))
        raw, *_, raw_info = plain.step(torch.zeros(n, 3))
        if mode is SAME_STEP:
            torch.testing.assert_close(info["final_obs"] - raw_info["final_obs"], obs - raw, rtol=0, atol=2e-6)
        assert torch.equal(env.obs, obs)
        seen.append(obs - raw)
    return torch.stack(seen)


@pytest.mark.parametrize("mode", [NEXT_STEP, SAME_STEP])
def test_noise_is_normal_and_nothing_repeats(mode):
    x = noise(64, 40, mode=mode, dtype=torch.float32).double().flatten() / 0.5
    assert abs(x.mean()) < 0.02 and abs(x.std() - 1) < 0.01 and abs((x**4).mean() - 3) < 0.15
    assert x.abs().max() > 3.5 and len(x.round(decimals=4).unique()) > 0.5 * len(x)
    rows = x.view(41, 64, 11)
    for shifted in (rows.roll(1, 0), rows.roll(1, 1), rows.roll(1, 2)):
        assert abs((rows * shifted).mean()) < 0.02


def test_noise_follows_from_seed_and_world():
    whole = noise(6)
    torch.testing.assert_close(noise(6), whole, rtol=0, atol=0)
    parts = [noise(3, first_world=first) for first in (0, 3)]
    torch.testing.assert_close(torch.cat(parts, 1), whole, rtol=0, atol=1e-12)
    assert not torch.isclose(noise(6, seed=4), whole).any(2).any()
    lone = noise(1, seed=[11])
    torch.testing.assert_close(noise(3, seed=[10, 11, 12])[:, 1:2], lone, rtol=0, atol=1e-12)
    unseeded = [wrappers.ObservationNoise(make(), 1.0) for _ in range(2)]
    first, second = (env.reset()[0] - env.env.obs for env in unseeded)
    assert not torch.isclose(first, second).any()


def test_noise_of_worlds_that_are_not_reset_stays():
    env = wrappers.ObservationNoise(make(DISABLED), np.linspace(0, 1, 11))
    first, _ = env.reset(seed=1)
    mask = torch.tensor([True, False, False, True])
    second, _ = env.reset(options={"reset_mask": mask}, seed=[1, None, None, None])
    assert torch.equal(second[1:3], first[1:3]) and not torch.isclose(first[3, 1:], second[3, 1:]).any()
    plain = make(DISABLED)
    plain.reset(seed=1)
    assert torch.equal(env.obs[:, 0], env.env.obs[:, 0]) and torch.equal(plain.reset(seed=1)[0][:, 0], first[:, 0])


# -- All of them -------------------------------------------------------------------------------------------------------


def everything(mode: AutoresetMode = SAME_STEP, **kwargs: Any) -> VectorEnv:
    env: Any = wrappers.ClipAction(wrappers.ActionDelay(make(mode, **kwargs), 2))
    env = wrappers.RecordEpisodeStatistics(env)
    env = wrappers.NormalizeObservation(wrappers.ObservationNoise(env, 0.1))
    env = wrappers.TransformObservation(wrappers.FrameStackObservation(env, 3), lambda x: x.tanh())
    env = wrappers.DtypeObservation(wrappers.FlattenObservation(env), torch.float32)
    return wrappers.NormalizeReward(wrappers.ClipReward(wrappers.TransformReward(env, double), -5.0, 5.0))


def play(env: Any, steps: torch.Tensor) -> Iterator[list[torch.Tensor]]:
    for action in steps:
        *tensors, info = env.step(action)
        yield [*tensors, *([info["final_obs"]] if "final_obs" in info else [])]


@pytest.mark.parametrize("mode", [NEXT_STEP, SAME_STEP])
def test_a_checkpoint_goes_on_bit_for_bit(mode):
    env, other = everything(mode), everything(mode)
    env.reset(seed=0), other.reset(seed=9)
    steps = torch.tensor(actions())
    list(play(env, steps[:25]))
    other.load_state_dict(env.state_dict())
    for mine, again in zip(play(env, steps[25:]), play(other, steps[25:]), strict=True):
        assert all(map(torch.equal, mine, again))


@pytest.mark.parametrize("mode", [NEXT_STEP, SAME_STEP])
def test_no_step_waits(mode):
    env = everything(mode)
    env.reset(seed=0)
    steps = torch.tensor(actions())
    env.step(steps[0])
    places = {name: x.data_ptr() for name, x in env._state().items()}
    with NoWaiting():
        for action in steps:
            env.step(action)
    assert places == {name: x.data_ptr() for name, x in env._state().items()}


@pytest.mark.parametrize("mode", [NEXT_STEP, SAME_STEP])
def test_a_captured_rollout_goes_through_all(mode):
    env, twin = everything(mode), everything(mode)
    env.reset(seed=0)
    obs, _ = twin.reset(seed=0)

    def policy(seen: torch.Tensor) -> torch.Tensor:
        return 3 * (seen[:, :3] + seen[:, 11:14]).double()

    before = env.state_dict()
    rollout = env.capture(policy, 7)
    assert all(torch.equal(x, before[name]) for name, x in env.state_dict().items() if "start_times" not in name)
    ends = 0
    for _ in range(5):
        data = rollout()
        for t in range(7):
            assert torch.equal(data["obs"][t], obs)
            obs, reward, terminated, truncated, info = twin.step(policy(obs))
            given = {"reward": reward, "terminated": terminated, "truncated": truncated}
            given |= {"final_obs": info["final_obs"]} if mode is SAME_STEP else {}
            assert all(torch.equal(data[name][t], x) for name, x in given.items())
            ends += int((terminated | truncated).sum())
        assert torch.equal(data["next_obs"], obs)
        assert torch.equal(env.env.env.env.obs, twin.env.env.env.obs)
    assert ends > N


@pytest.mark.parametrize("copy", [True, False])
def test_a_function_may_work_in_place(copy):
    ours, twin = (wrappers.TransformObservation(make(copy=copy), f) for f in (lambda x: x.mul_(2), lambda x: x * 2))
    first, expected = ours.reset(seed=0)[0], twin.reset(seed=0)[0]
    assert first.equal(expected) and ours.obs.equal(expected) and ours.obs.equal(expected)
    rollout, other = (env.capture(lambda obs: obs[:, :3], 4) for env in (ours, twin))
    for _ in range(2):
        assert all(x.equal(y) for x, y in zip(rollout().values(), other().values(), strict=True))


def test_a_capture_needs_to_know_what_is_shown():
    env = everything()
    with pytest.raises(ResetNeeded):
        env.capture(lambda obs: obs[:, :3].double(), 3)
    env = wrappers.NormalizeReward(stock.TransformReward(make(), double))
    env.reset()
    with pytest.raises(TypeError, match=r"TransformReward shows.*torch_mjenvs\.wrappers"):
        env.capture(lambda obs: obs[:, :3], 3)


@pytest.mark.parametrize(
    ("wrap", "error", "text"),
    [
        (lambda e: wrappers.FrameStackObservation(e, 0), ValueError, "stack_size"),
        (lambda e: wrappers.FrameStackObservation(e, 2, padding_type="last"), ValueError, "padding_type"),
        (lambda e: wrappers.ActionDelay(e, 0), ValueError, "delay"),
        (lambda e: wrappers.ObservationNoise(e, -1.0), ValueError, "scale"),
        (lambda e: wrappers.ObservationNoise(e, float("nan")), ValueError, "scale"),
        (lambda e: wrappers.ObservationNoise(e, np.ones(3)), ValueError, "scale"),
        (lambda e: wrappers.DtypeObservation(e, torch.bfloat16), TypeError, "dtype"),
        (lambda e: wrappers.DtypeObservation(e, np.longdouble), TypeError, "dtype"),
        (lambda e: wrappers.DtypeObservation(e, None), TypeError, "dtype"),
        (lambda e: wrappers.ClipReward(e), InvalidBound, "both be None"),
        (lambda e: wrappers.ClipReward(e, 1.0, 0.0), InvalidBound, "min_reward"),
        (lambda e: wrappers.ClipReward(e, float("nan")), InvalidBound, "min_reward"),
        (
            lambda e: wrappers.TransformObservation(e, lambda x: x[:, :2]).reset(),
            ValueError,
            "single_observation_space",
        ),
        (
            lambda e: (x := wrappers.TransformReward(e, lambda r: r.sum()), x.reset(), x.step(torch.zeros(N, 3))),
            ValueError,
            "a reward a world",
        ),
    ],
)
def test_what_cannot_be_is_refused(wrap, error, text):
    with pytest.raises(error, match=text):
        wrap(make())

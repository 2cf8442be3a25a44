"""The wrappers for tensors against Gymnasium's for NumPy, on the same environments, seeds and actions."""

from __future__ import annotations

import copy
import io
import pickle
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.envs.mujoco.mujoco_env import expand_model_path
from gymnasium.error import InvalidBound
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import vector as stock
from gymnasium.wrappers.utils import RunningMeanStd
from launches import NoWaiting

from torch_mjenvs import TorchVectorEnv, wrappers
from torch_mjenvs.envs.wrappers import RunningMeanStd as OurMoments

MODES = list(AutoresetMode)
NEXT_STEP, SAME_STEP, DISABLED = AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED
N, STEPS = 16, 60
HERE = torch.get_default_device()


def make(mode: AutoresetMode = NEXT_STEP, task: str = "Hopper", n: int = N, **kwargs) -> TorchVectorEnv:
    """Hoppers fall after about 20 steps, or are cut after 25: both happen."""
    usual = {"dtype": torch.float64, "max_episode_steps": 25}
    return TorchVectorEnv(task, n, **(usual | kwargs), autoreset_mode=mode)


def in_numpy(mode: AutoresetMode = NEXT_STEP, **kwargs) -> stock.ArrayConversion:
    """What `make` makes, on the CPU, for wrappers that know NumPy."""
    pytest.importorskip("array_api_compat", reason="ArrayConversion needs array-api-compat")
    return stock.ArrayConversion(make(mode, **kwargs, device="cpu"), torch, np)


def actions(steps: int = STEPS, n: int = N, seed: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(steps, n, 3, generator=generator, device="cpu") * 2 - 1
    return x.double().to(HERE)  # numbers that float32 has, too


def play(env: Any, steps: torch.Tensor | np.ndarray) -> Iterator[tuple]:
    """Each step's results and, with autoreset disabled, what the reset after it gave, or None."""
    for action in steps:
        results = env.step(action)
        ended = results[2] | results[3]
        if env.metadata["autoreset_mode"] is DISABLED and ended.any():
            results = copy.deepcopy(results)  # Gymnasium's info has its own mask in it, which the reset changes
            yield *results, env.reset(options={"reset_mask": ended})[0]
        else:
            yield *results, None


def equal(ours: torch.Tensor, theirs: Any, rtol: float = 0.0) -> None:
    theirs = theirs.cpu() if isinstance(theirs, torch.Tensor) else theirs
    np.testing.assert_allclose(ours.cpu().numpy(), np.asarray(theirs), rtol=rtol, atol=rtol)


# -- Episode statistics ------------------------------------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch) -> list[float]:
    """What `time.perf_counter` says, for both."""
    now = [50.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    return now


@pytest.mark.parametrize("mode", MODES)
def test_statistics_of_episodes_are_gymnasiums(mode, clock):
    ours = wrappers.RecordEpisodeStatistics(make(mode), buffer_length=3, stats_key="done")
    theirs = stock.RecordEpisodeStatistics(in_numpy(mode), buffer_length=3, stats_key="done")
    ours.reset(seed=0), theirs.reset(seed=0)
    together, kinds = 0, set()
    for mine, real in zip(play(ours, actions()), play(theirs, actions().cpu().numpy()), strict=True):
        clock[0] += 0.125
        *_, terminated, truncated, info, _ = mine
        ended = terminated | truncated
        equal(info["_done"], ended)
        if ended.any():
            equal(info["_done"], real[4]["_done"])
            for key in "rlt":
                equal(info["done"][key], real[4]["done"][key], 1e-14)
        assert not any(x[~ended].any() for x in info["done"].values())
        assert ours.episode_count == theirs.episode_count
        for name in ("return_queue", "length_queue", "time_queue"):
            np.testing.assert_allclose(getattr(ours, name).cpu(), getattr(theirs, name), rtol=1e-14)
        together = max(together, int(ended.sum()))
        kinds |= {kind for kind, x in (("fell", terminated), ("was cut", truncated)) if x.any()}
    assert together > 3, "more in one step than the queue takes"
    assert kinds == {"fell", "was cut"} and ours.length_queue.dtype == torch.int64


def test_statistics_refuse():
    env = wrappers.RecordEpisodeStatistics(wrappers.RecordEpisodeStatistics(make()))
    env.reset(seed=0)
    with pytest.raises(ValueError, match="stats_key"):
        env.step(actions()[0])
    with pytest.raises(ValueError, match="buffer_length"):
        wrappers.RecordEpisodeStatistics(make(), buffer_length=0)


# -- Moments -----------------------------------------------------------------------------------------------------------


def test_moments_in_float32():
    """Far from 0, where sums of squares in float32 would have no correct digit."""
    rows = torch.randn(50, 64, 3, generator=torch.Generator().manual_seed(0), device="cpu").to(HERE)
    rows = rows * torch.tensor([0.1, 1.0, 0.0]) + 1000
    moments = OurMoments(64, (3,), HERE)
    for batch in rows:
        moments.update(batch)
    reference = RunningMeanStd(shape=(3,))
    for batch in rows.double().cpu().numpy():
        reference.update(batch)
    equal(moments.mean, reference.mean, 1e-14)
    np.testing.assert_allclose(moments.var.cpu(), reference.var, rtol=1e-9)
    assert moments.count == reference.count


def test_moments_of_some_rows():
    generator = torch.Generator().manual_seed(0)
    moments, reference = OurMoments(8, (2,), HERE), RunningMeanStd(shape=(2,))
    for share in (0.5, 0.0, 0.3, 1.0):
        rows = torch.randn(8, 2, generator=generator, device="cpu").to(HERE) + 3
        mask = torch.rand(8, generator=generator, device="cpu").to(HERE) < share
        moments.update(rows, mask)
        if mask.any():
            reference.update(rows[mask].double().cpu().numpy())
        for name in ("mean", "var", "count"):
            equal(getattr(moments, name), getattr(reference, name), 1e-14)


# -- Observations ------------------------------------------------------------------------------------------------------


def test_observations_are_gymnasiums():
    """Where Gymnasium's works. It gives float32."""
    ours = wrappers.NormalizeObservation(make(), epsilon=1e-6)
    theirs = stock.NormalizeObservation(in_numpy(), epsilon=1e-6)
    equal(ours.reset(seed=0)[0], theirs.reset(seed=0)[0], 1e-6)
    for mine, real in zip(play(ours, actions()), play(theirs, actions().cpu().numpy()), strict=True):
        assert mine[0].dtype == torch.float64
        equal(mine[0], real[0], 1e-6)
        equal(ours.obs_rms.mean, theirs.obs_rms.mean, 1e-12)
        equal(ours.obs_rms.var, theirs.obs_rms.var, 1e-12)
    assert ours.obs_rms.count == theirs.obs_rms.count == N * (STEPS + 1) + 1e-4
    ours.update_running_mean = theirs.update_running_mean = False
    for mine, real in zip(play(ours, actions(5)), play(theirs, actions(5).cpu().numpy()), strict=True):
        equal(mine[0], real[0], 1e-6)
    assert ours.obs_rms.count == theirs.obs_rms.count == N * (STEPS + 1) + 1e-4


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mode", MODES)
def test_observations_in_every_mode(mode, dtype):
    """Against the same environment without the wrapper, and Gymnasium's moments of what it returned."""
    env, plain = wrappers.NormalizeObservation(make(mode, dtype=dtype)), make(mode, dtype=dtype)
    tolerance = 1e-12 if dtype == torch.float64 else 2e-5
    moments = RunningMeanStd(shape=(11,))

    def check(got: torch.Tensor, raw: torch.Tensor, counted: torch.Tensor | slice | None) -> None:
        if counted is not None:
            moments.update(raw[counted].double().cpu().numpy())
        assert got.dtype == dtype
        equal(got, (raw.double().cpu().numpy() - moments.mean) / np.sqrt(moments.var + 1e-8), tolerance)

    everything, resets = slice(None), 0
    check(env.reset(seed=0)[0], plain.reset(seed=0)[0], everything)
    for (obs, *_, info, restarted), (raw, *rest, raw_info, raw_restarted) in zip(
        play(env, actions()), play(plain, actions()), strict=True
    ):
        # A reset by hand came after the step, and its moments with it: first what the step showed.
        check(obs, raw, everything)
        if mode is SAME_STEP:
            check(info["final_obs"], raw_info["final_obs"], None)
            equal(info["_final_obs"], raw_info["_final_obs"])
        if raw_restarted is not None:
            check(restarted, raw_restarted, rest[1] | rest[2])
            resets += 1
    equal(env.obs_rms.mean, moments.mean, tolerance)
    assert env.obs_rms.count == moments.count and (resets > 0) == (mode is DISABLED)


def test_observations_refuse():
    for epsilon in (0.0, -1.0):
        with pytest.raises(InvalidBound, match="epsilon"):
            wrappers.NormalizeObservation(make(), epsilon)


def test_columns_that_never_move():
    """As many of Humanoid's do. Moments start with a ten-thousandth of a row of zeros, so a constant 0 stays 0."""
    still = torch.tensor([0.0, 0.3, 1e4])
    env = stock.TransformObservation(make(dtype=torch.float32), lambda x: torch.cat([x[:, :8], still.repeat(N, 1)], 1))
    env = wrappers.NormalizeObservation(env)
    env.reset(seed=0)
    for action in actions(30).float():
        obs = env.step(action)[0]
        assert (obs[:, 8] == 0).all() and (obs[:, 9:].abs() < 0.01).all()


# -- Rewards -----------------------------------------------------------------------------------------------------------


class ByWorlds(stock.NormalizeReward):
    """Gymnasium's, but that a reset of some worlds leaves the others' sums alone."""

    def reset(self, *, seed=None, options=None):
        sums, done = self.accumulated_reward.copy(), self._prev_dones.copy()
        results = super().reset(seed=seed, options=options)
        if options is not None:
            others = ~options["reset_mask"]
            self.accumulated_reward[others], self._prev_dones[others] = sums[others], done[others]
        return results


@pytest.mark.parametrize("mode", MODES)
def test_normalised_rewards_are_gymnasiums(mode):
    ours = wrappers.NormalizeReward(make(mode), gamma=0.9, epsilon=1e-6)
    theirs = ByWorlds(in_numpy(mode), gamma=0.9, epsilon=1e-6)
    theirs.accumulated_reward = np.zeros(N)  # which Gymnasium keeps in float32
    ours.reset(seed=0), theirs.reset(seed=0)
    for mine, real in zip(play(ours, actions()), play(theirs, actions().cpu().numpy()), strict=True):
        equal(mine[1], real[1], 1e-12)
        equal(ours.accumulated_reward, theirs.accumulated_reward, 1e-12)
        equal(ours.return_rms.var, theirs.return_rms.var, 1e-12)
    assert ours.return_rms.count.item() == pytest.approx(theirs.return_rms.count, abs=1e-9)
    assert (ours.return_rms.count < N * STEPS) == (mode is NEXT_STEP)  # steps that only reset are left out
    ours.update_running_mean = theirs.update_running_mean = False
    for mine, real in zip(play(ours, actions(5)), play(theirs, actions(5).cpu().numpy()), strict=True):
        equal(mine[1], real[1], 1e-12)
    assert mine[1].dtype == torch.float64


def test_rewards_refuse():
    for arguments in ({"gamma": 1.5}, {"gamma": -0.1}, {"epsilon": 0.0}):
        with pytest.raises(InvalidBound, match=next(iter(arguments))):
            wrappers.NormalizeReward(make(), **arguments)


# -- Actions -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bounds", [(-1, 1), (0.0, 0.5), (np.float32([-2, 0, 1]), np.float32([-1, 1, 7]))])
def test_rescaled_actions_are_gymnasiums(bounds):
    """Also where the environment's own range is not from -1 to 1."""
    task = {"task": "InvertedPendulum"} if not isinstance(bounds[0], np.ndarray) else {}
    ours = wrappers.RescaleAction(make(**task), *bounds)
    theirs = stock.RescaleAction(in_numpy(**task), *bounds)
    assert ours.single_action_space == theirs.single_action_space and ours.action_space == theirs.action_space
    ours.reset(seed=0), theirs.reset(seed=0)
    ours.action_space.seed(0)
    for _ in range(5):
        action = ours.action_space.sample()
        mine, real = ours.step(torch.tensor(action)), theirs.step(action)
        equal(mine[0], real[0], 1e-5)  # Gymnasium computes in the action's float32
    low, high = (np.broadcast_to(x, ours.action_space.shape) for x in bounds)
    for given, inside in ((low, ours.unwrapped.action_space.low), (high, ours.unwrapped.action_space.high)):
        ours.step(given)  # arrays and lists, as the environment itself takes them
        equal(ours.unwrapped.engine.action, inside, 1e-6)


def test_actions_refuse(tmp_path):
    env = make()
    with pytest.raises(InvalidBound, match="min_action"):
        wrappers.RescaleAction(env, 1.0, 1.0)
    for bounds in ((1.0, -1.0), (np.zeros(2), np.ones(2))):
        with pytest.raises(ValueError, match="new_m"):
            wrappers.RescaleAction(env, *bounds)
    wrapped = wrappers.RescaleAction(env, -2.0, 2.0)
    wrapped.reset(seed=0)
    with pytest.raises(ValueError, match="actions must be of shape"):
        wrapped.step(torch.zeros(N, 2))
    model = tmp_path / "unlimited.xml"
    text = Path(expand_model_path("inverted_pendulum.xml")).read_text()
    model.write_text(text.replace('ctrllimited="true" ctrlrange="-3 3"', "").replace('ctrlrange="-3 3"', ""))
    with pytest.raises(ValueError, match="ctrlrange"):
        wrappers.RescaleAction(make(task="InvertedPendulum", xml_file=str(model)), -1.0, 1.0)


# -- All of them -------------------------------------------------------------------------------------------------------


def everything(mode: AutoresetMode = NEXT_STEP, **kwargs) -> wrappers.NormalizeReward:
    env: Any = wrappers.RescaleAction(make(mode, **kwargs), -2.0, 2.0)
    env = wrappers.RecordEpisodeStatistics(env, buffer_length=7)
    if mode is not SAME_STEP:
        env = stock.TransformObservation(env, lambda x: 2 * x)  # which refuses that mode
    return wrappers.NormalizeReward(wrappers.NormalizeObservation(env))


def test_only_around_tensors():
    with pytest.raises(TypeError, match="TorchVectorEnv"):
        wrappers.NormalizeReward(gymnasium.make_vec("CartPole-v1", 2, vectorization_mode="sync"))


def flat(results: tuple) -> list[torch.Tensor]:
    *tensors, info, restarted = results
    entries = [y for x in info.values() for y in (x.values() if isinstance(x, dict) else [x])]
    return [x for x in (*tensors, *entries, restarted) if x is not None]


@pytest.mark.parametrize("mode", MODES)
def test_wrappers_go_on_from_their_saved_state(mode, clock):
    env = everything(mode)
    env.reset(seed=0)
    list(play(env, actions(30)))
    file = io.BytesIO()
    torch.save(env.state_dict(), file)
    clock[0] += 1.0
    rest, end = [flat(x) for x in play(env, actions(40, seed=2))], env.state_dict()
    clock[0] = 7.0  # another process, whose clock started anew
    other = everything(mode)
    addresses = {name: x.data_ptr() for name, x in other._state().items()}
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    clock[0] += 1.0
    again = [flat(x) for x in play(other, actions(40, seed=2))]
    for mine, expected in zip(again, rest, strict=True):
        assert len(mine) == len(expected) and all(map(torch.equal, mine, expected))
    assert addresses == {name: x.data_ptr() for name, x in other._state().items()}
    assert all(x.equal(end[name]) for name, x in other.state_dict().items())


def test_a_state_that_does_not_fit():
    env = everything()
    env.reset(seed=0)
    list(play(env, actions(5)))
    before = env.state_dict()
    others = (wrappers.NormalizeReward(make()), wrappers.NormalizeObservation(make()), everything(n=N + 1))
    for other in others:
        other.reset(seed=0)
        with pytest.raises(ValueError, match="not the state of"):
            env.load_state_dict(other.state_dict())
        after = env.state_dict()
        assert all(x.equal(after[name]) for name, x in before.items() if "start_times" not in name)


@pytest.mark.parametrize("mode", [NEXT_STEP, SAME_STEP])
def test_no_step_waits(mode):
    env = everything(mode)
    env.reset(seed=0)
    steps = actions()
    state = {name: x.data_ptr() for name, x in env._state().items()}
    with NoWaiting():
        for action in steps:
            env.step(action)
    assert state == {name: x.data_ptr() for name, x in env._state().items()}
    statistics = env.env.env if mode is SAME_STEP else env.env.env.env
    assert statistics.episode_count > N
    with pytest.raises(AssertionError, match="_local_scalar_dense"), NoWaiting():
        int(statistics.episode_count)
    with pytest.raises(AssertionError, match=r"mask|nonzero"), NoWaiting():
        statistics.episode_returns[statistics.prev_dones]


@pytest.mark.skipif(HERE.type == "cpu", reason="needs a GPU")
@pytest.mark.parametrize("mode", [NEXT_STEP, SAME_STEP])
def test_no_step_waits_on_a_gpu(mode):
    env, same = everything(mode), everything(mode, device="cpu")
    env.reset(seed=0), same.reset(seed=0)
    steps = actions(30)
    env.step(steps[0])  # what is allocated once, is
    torch.cuda.set_sync_debug_mode("error")
    try:
        for action in steps[1:]:
            results = env.step(action)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for action in steps.cpu():
        expected = same.step(action)
    for mine, wanted in zip(results[:4], expected[:4], strict=True):
        torch.testing.assert_close(mine.cpu(), wanted.cpu(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_the_environment_s_own_buffers(mode):
    """With copy=False they are handed out, and stay as the engine wrote them."""
    env, same = everything(mode, copy=False), everything(mode)
    plain = wrappers.RescaleAction(make(mode), -2.0, 2.0)
    for each in (env, same, plain):
        each.reset(seed=0)
    for mine, expected, raw in zip(*(play(x, actions(40)) for x in (env, same, plain)), strict=True):
        assert all(mine[i].equal(expected[i]) for i in range(4))
        engine = env.unwrapped.engine
        assert engine.obs.equal(raw[0] if raw[-1] is None else raw[-1])
        assert engine.reward.equal(raw[1])


# -- Gymnasium's own, over ArrayConversion -----------------------------------------------------------------------------

STOCK = {
    "DictInfoToList": (stock.DictInfoToList, lambda *x: x),
    "ClipReward": (lambda e: stock.ClipReward(e, 0.5, 1.0), lambda o, r, *x: (o, r.clip(0.5, 1.0), *x)),
    "TransformReward": (lambda e: stock.TransformReward(e, lambda r: 3 * r), lambda o, r, *x: (o, 3 * r, *x)),
    "FlattenObservation": (stock.FlattenObservation, lambda *x: x),
    "ReshapeObservation": (
        lambda e: stock.ReshapeObservation(e, (1, 11)),
        lambda o, *x: (o.reshape(-1, 1, 11), *x),
    ),
    "DtypeObservation": (lambda e: stock.DtypeObservation(e, np.float16), lambda o, *x: (o.astype(np.float16), *x)),
    "ClipAction": (stock.ClipAction, lambda *x: x),
}


@pytest.mark.cpu
@pytest.mark.parametrize("name", STOCK)
def test_stock_wrappers(name):
    wrap, expect = STOCK[name]
    env, plain = wrap(in_numpy()), in_numpy()
    env.reset(seed=0), plain.reset(seed=0)
    steps = actions().cpu().numpy()
    ended = 0
    for mine, real in zip(play(env, steps), play(plain, steps), strict=True):
        for x, expected in zip(mine[:4], expect(*real[:4]), strict=True):
            np.testing.assert_array_equal(x, expected)
            assert x.dtype == expected.dtype
        ended += int((mine[2] | mine[3]).sum())
        if name == "DictInfoToList":
            assert [d["x_velocity"] for d in mine[4] if "x_velocity" in d] == list(
                real[4]["x_velocity"][real[4]["_x_velocity"]]
            )
    assert ended > N


def test_pickled_statistics_count_seconds_from_the_clock_of_the_day(monkeypatch):
    """Another process, or machine, has another clock."""
    env = wrappers.RecordEpisodeStatistics(TorchVectorEnv("Hopper", 2, max_episode_steps=2, autoreset_mode="SameStep"))
    env.reset(seed=0)
    env.step(torch.zeros(2, 3))
    held, clock = pickle.dumps(env), time.perf_counter
    monkeypatch.setattr(time, "perf_counter", lambda: clock() - 1e5)
    *_, info = pickle.loads(held).step(torch.zeros(2, 3))
    assert info["_episode"].all() and ((info["episode"]["t"] > 0) & (info["episode"]["t"] < 100)).all()

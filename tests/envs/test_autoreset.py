"""Ends of episodes, resets, seeds and masks, as in Gymnasium's SyncVectorEnv; and no world depends on another.

The oracle for the modes is SyncVectorEnv itself over single environments of ours: the physics is then the same to the
last bit, and all that can differ is what is tested here.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from torch_mjenvs import TorchVectorEnv

TASKS = ["HalfCheetah", "Walker2d", "Hopper"]
MODES = list(AutoresetMode)
LIMIT = 20  # steps of an episode; everywhere the same, so that a kernel is compiled once
ALWAYS = {"bad_state", "final_obs", "final_info"}  # what we give even if no world has it


def actions(env: TorchVectorEnv, steps: int, seed: int = 0) -> torch.Tensor:
    """(steps, N, nu) in [-1, 1]."""
    generator = torch.Generator().manual_seed(seed)
    shape = (steps, env.num_envs, *env.single_action_space.shape)
    return torch.rand(shape, generator=generator, dtype=env.dtype, device="cpu").to(env.device) * 2 - 1


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.cpu().numpy().tobytes() == b.cpu().numpy().tobytes()


def check_info(ours: dict[str, Any], theirs: dict[str, Any], final: bool = False) -> None:
    """Every entry and mask of SyncVectorEnv's, and nothing else that any world is said to have."""
    for key in (k for k in ours if not k.startswith("_")):
        mask = ours[f"_{key}"].cpu().numpy()
        if key not in theirs:
            assert key in ALWAYS or not mask.any(), key
            continue
        if key == "bad_state" and not final:  # here of every world, there of those that made a step
            assert mask.all() and not ours[key].any()
            continue
        np.testing.assert_array_equal(mask, theirs[f"_{key}"], err_msg=key)
        if key == "final_info":
            check_info(ours[key], theirs[key], final=True)
            continue
        expected = theirs[key]
        for i in np.flatnonzero(mask):
            np.testing.assert_array_equal(ours[key][i].cpu().numpy(), expected[i], err_msg=key)
        if not final and key not in ALWAYS:  # 0 where a world gave nothing
            np.testing.assert_array_equal(ours[key].cpu().numpy() * ~mask, np.zeros_like(expected))
    assert {k for k in theirs if not k.startswith("_")} <= set(ours)


def pair(name: str, mode: AutoresetMode, n: int, limit: int) -> tuple[TorchVectorEnv, SyncVectorEnv]:
    ours = TorchVectorEnv(name, n, dtype=torch.float64, autoreset_mode=mode, max_episode_steps=limit)
    single = [lambda: gymnasium.make(f"Torch{name}-v0", max_episode_steps=limit)] * n
    return ours, SyncVectorEnv(single, autoreset_mode=mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", TASKS)
def test_modes_are_sync_vector_envs(name, mode):
    """Bit for bit, with falls, truncations and resets by mask at different times in different worlds."""
    n, limit, seeds = 5, LIMIT, [3, 1, 4, 1, 5]
    ours, sync = pair(name, mode, n, limit)
    obs, info = ours.reset(seed=seeds)
    expected_obs, expected_info = sync.reset(seed=seeds)
    np.testing.assert_array_equal(obs.cpu().numpy(), expected_obs)
    check_info(info, expected_info)
    ended = np.zeros(n, bool)
    counts = {"terminated": 0, "truncated": 0}
    for t, action in enumerate(actions(ours, 90)):
        mask = np.array([t % 11 == 3 * i for i in range(n)])
        if mode == AutoresetMode.DISABLED:
            mask |= ended
        if mask.any():
            obs, info = ours.reset(options={"reset_mask": torch.tensor(mask) if t % 2 else mask.copy()})
            expected_obs, expected_info = sync.reset(options={"reset_mask": mask.copy()})
            np.testing.assert_array_equal(obs.cpu().numpy(), expected_obs)
            check_info(info, expected_info)
        result, expected = ours.step(action), sync.step(action.cpu().numpy())
        for a, b in zip(result[:4], expected[:4], strict=True):
            np.testing.assert_array_equal(a.cpu().numpy(), b)
        check_info(result[4], expected[4])
        ended = expected[2] | expected[3]
        counts["terminated"] += expected[2].sum()
        counts["truncated"] += expected[3].sum()
    assert counts["truncated"] > 0
    assert counts["terminated"] > 0 or name == "HalfCheetah"


@pytest.mark.parametrize("mode", MODES)
def test_time_limit_of_1000(mode):
    """As registered. Only the time limit ends a HalfCheetah."""
    env = gymnasium.make_vec("TorchHalfCheetah-v0", num_envs=3, autoreset_mode=mode)
    env.reset(seed=0)
    for t, action in enumerate(actions(env, 1000), start=1):
        _, _, terminated, truncated, _ = env.step(action)
        assert not terminated.any()
        assert truncated.tolist() == [t == 1000] * 3
        expected = 0 if mode == AutoresetMode.SAME_STEP and t == 1000 else t
        assert env.elapsed_steps.tolist() == [expected] * 3


def test_no_time_limit():
    env = TorchVectorEnv("HalfCheetah", 2, max_episode_steps=-1)
    env.reset(seed=0)
    env.elapsed_steps.fill_(10**6)
    assert not env.step(torch.zeros(2, 6))[3].any()


def test_elapsed_steps_may_be_moved():
    """Episodes of different ages: a world is truncated when its own count reaches the limit."""
    env = TorchVectorEnv("HalfCheetah", 4, max_episode_steps=10)
    env.reset(seed=0)
    env.elapsed_steps.copy_(torch.tensor([0, 3, 8, 9]))
    seen = torch.stack([env.step(action)[3] for action in actions(env, 11)])
    assert seen.nonzero().tolist() == [[0, 3], [1, 2], [6, 1], [9, 0]]
    assert env.elapsed_steps.tolist() == [0, 3, 8, 9]  # one call of step went to the reset


@pytest.mark.parametrize("name", TASKS)
def test_final_obs_is_true(name):
    """SAME_STEP's final_obs is what the same worlds show in DISABLED mode, where nothing is reset."""
    shared = {"num_envs": 33, "max_episode_steps": LIMIT}
    same = TorchVectorEnv(name, autoreset_mode="SameStep", **shared)
    twin = TorchVectorEnv(name, autoreset_mode="Disabled", **shared)
    assert same_bits(same.reset(seed=9)[0], twin.reset(seed=9)[0])
    ends = 0
    for action in actions(same, 60):
        obs, reward, terminated, truncated, info = same.step(action)
        true_obs, true_reward, true_terminated, true_truncated, true_info = twin.step(action)
        ended = terminated | truncated
        assert same_bits(info["final_obs"], true_obs)  # in every world, ended or not
        assert same_bits(info["_final_obs"], ended) and same_bits(info["_final_info"], ended)
        assert same_bits(reward, true_reward)
        assert same_bits(terminated, true_terminated) and same_bits(truncated, true_truncated)
        for key in true_info:
            if not key.startswith("_"):
                assert same_bits(info["final_info"][key], true_info[key])
        if ended.any():
            true_obs, _ = twin.reset(options={"reset_mask": ended})
            assert not torch.equal(info["final_obs"], obs)
        assert same_bits(obs, true_obs)
        ends += int(ended.sum())
    assert ends > 33


def test_next_step_ignores_the_action():
    """A world that is about to be reset ignores its action, even if that is NaN."""
    env, twin = (TorchVectorEnv("Hopper", 2, max_episode_steps=1) for _ in range(2))
    for e in (env, twin):
        e.reset(seed=0)
        assert e.step(torch.zeros(2, 3))[3].all()
    obs, reward, terminated, truncated, info = env.step(torch.full((2, 3), torch.nan))
    assert same_bits(obs, twin.step(torch.zeros(2, 3))[0])
    assert not (reward.any() or terminated.any() or truncated.any() or info["bad_state"].any())
    assert info["_x_position"].all() and not info["_x_velocity"].any() and not info["x_velocity"].any()


@pytest.mark.cpu  # on a GPU, to know would be to wait for it
def test_disabled_refuses_ended_worlds():
    env = TorchVectorEnv("Hopper", 3, autoreset_mode="Disabled", max_episode_steps=5)
    env.reset(seed=0)
    env.elapsed_steps[1] = 4
    env.step(torch.zeros(3, 3))
    before = [x.clone() for x in (env.qpos, env.qvel, env.elapsed_steps, env.engine.action)]
    with pytest.raises(ResetNeeded, match="worlds 1 have ended"):
        env.step(torch.ones(3, 3))
    assert all(map(torch.equal, before, (env.qpos, env.qvel, env.elapsed_steps, env.engine.action)))
    env.reset(options={"reset_mask": torch.tensor([False, True, False])})
    env.step(torch.ones(3, 3))
    assert env.elapsed_steps.tolist() == [2, 1, 2]


# -- Seeds and masks ---------------------------------------------------------------------------------------------------


def resets(env: TorchVectorEnv, times: int, **first: Any) -> torch.Tensor:
    return torch.stack([env.reset(**first)[0]] + [env.reset()[0] for _ in range(times - 1)])


def test_seed_repeats():
    env, other = (TorchVectorEnv("Hopper", 6) for _ in range(2))
    a, b, c = resets(env, 3, seed=7), resets(other, 3, seed=7), resets(env, 3, seed=7)
    assert same_bits(a, b) and same_bits(a, c)
    assert len(a.flatten(0, 1).unique(dim=0)) == 18  # no world and no episode like another
    assert not (resets(env, 3, seed=8) == a).any()
    assert not (resets(env, 3, seed=7 + 2**32) == a).any()  # the upper half of a seed counts


def test_no_seed():
    """Without a seed, environments differ unless torch's own seed is set; the next reset draws the next episode."""
    torch.manual_seed(1)
    one, other = TorchVectorEnv("Hopper", 4), TorchVectorEnv("Hopper", 4)
    torch.manual_seed(1)
    again = TorchVectorEnv("Hopper", 4)
    a, b, c = (resets(env, 2) for env in (one, other, again))
    assert not (a == b).any() and same_bits(a, c)
    assert not (a[0] == a[1]).any()


def test_list_of_seeds():
    """World i does what a single world with its seed does; an int seeds world 0 with itself."""
    env = TorchVectorEnv("Walker2d", 4)
    together = resets(env, 3, seed=[5, 0, 2**40 + 1, 5])
    for i, seed in enumerate([5, 0, 2**40 + 1, 5]):
        lone = TorchVectorEnv("Walker2d", 1)
        for given in (seed, [seed], np.int64(seed)):
            assert same_bits(resets(lone, 3, seed=given)[:, 0], together[:, i])


def test_none_in_a_list_goes_on():
    env, twin = (TorchVectorEnv("Hopper", 3) for _ in range(2))
    resets(env, 2, seed=4), resets(twin, 2, seed=4)
    obs, expected = env.reset(seed=[None, 11, None])[0], twin.reset()[0]
    assert (obs == expected).all(1).tolist() == [True, False, True]
    assert same_bits(obs[1], twin.reset(seed=[0, 11, 0])[0][1])


def test_mask_resets_and_seeds_its_worlds_only():
    env = TorchVectorEnv("Hopper", 4)
    env.reset(seed=4)
    obs = env.step(torch.zeros(4, 3))[0]
    mask = torch.tensor([False, True, False, True])
    new, info = env.reset(seed=21, options={"reset_mask": mask})
    fresh = TorchVectorEnv("Hopper", 4).reset(seed=21)[0]
    assert same_bits(new[mask], fresh[mask]) and same_bits(new[~mask], obs[~mask])
    assert env.elapsed_steps.tolist() == [1, 0, 1, 0]
    assert same_bits(info["_x_position"], mask) and (info["x_position"] != 0).equal(mask)
    assert set(info) == {"x_position", "_x_position", "z_distance_from_origin", "_z_distance_from_origin"}


def test_options_are_left_alone():
    env = TorchVectorEnv("Hopper", 2)
    env.reset()
    options = {"reset_mask": np.array([True, False])}
    env.reset(options=options)  # SyncVectorEnv takes it out
    assert set(options) == {"reset_mask"}


def test_reset_clears_an_end():
    """A world that waits for its autoreset and is reset by hand makes its first step in the next call."""
    env = TorchVectorEnv("Hopper", 2, max_episode_steps=1)
    env.reset(seed=0)
    env.step(torch.zeros(2, 3))
    env.reset(options={"reset_mask": np.array([True, False])})
    _, reward, _, truncated, _ = env.step(torch.zeros(2, 3))
    assert truncated.tolist() == [True, False] and reward[0] != 0 and reward[1] == 0


# -- No world knows of another -----------------------------------------------------------------------------------------


def trajectories(name: str, n: int, places: list[int], mode: str, dtype: torch.dtype) -> list[torch.Tensor]:
    """All that worlds with seed 77 show, at each of these places among `n` worlds, through several episodes."""
    env = TorchVectorEnv(name, n, dtype=dtype, autoreset_mode=mode, max_episode_steps=LIMIT)
    seeds: list[int | None] = [1000 + i for i in range(n)]
    for place in places:
        seeds[place] = 77
    obs = env.reset(seed=seeds)[0]
    rows = [[obs[place]] for place in places]
    own = torch.rand(
        40, *env.single_action_space.shape, generator=torch.Generator().manual_seed(0), dtype=dtype, device="cpu"
    ).to(env.device) * 2 - 1  # fmt: skip
    for action, others in zip(own, actions(env, 40, seed=n), strict=True):
        others[places] = action
        obs, reward, terminated, truncated, info = env.step(others)
        given = [reward, terminated, truncated, *(x for x in info.values() if isinstance(x, torch.Tensor))]
        numbers = torch.stack([x.to(dtype) for x in given if x.ndim == 1], 1)
        for row, place in zip(rows, places, strict=True):
            row += [obs[place], env.qpos[place].clone(), env.qvel[place].clone(), numbers[place]]
    return [torch.cat(row) for row in rows]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
@pytest.mark.parametrize("name", TASKS)
def test_worlds_are_alone(name, mode, dtype):
    """Bitwise the same trajectory, resets included, in any batch, at any place, with any number of threads."""
    (alone,) = trajectories(name, 1, [0], mode, dtype)
    for n, places in ((3, [0, 2]), (16, [7]), (17, [0, 16]), (100, [50, 99])):
        for threads in (1, 2, 4) if n == 100 else (1,):
            torch.set_num_threads(threads)
            for place, found in zip(places, trajectories(name, n, places, mode, dtype), strict=True):
                assert same_bits(alone, found), (n, place, threads)


@pytest.mark.cpu
@pytest.mark.parametrize("name", TASKS)
def test_threads_change_nothing(name):
    """Observations of all worlds are the same bits on 1, 2 and 4 threads."""
    results = []
    for threads in (1, 2, 4):
        torch.set_num_threads(threads)
        env = TorchVectorEnv(name, 100, max_episode_steps=LIMIT)
        env.reset(seed=3)
        results.append(torch.stack([env.step(action)[0] for action in actions(env, 30)]))
    assert same_bits(results[0], results[1]) and same_bits(results[0], results[2])


@pytest.mark.cpu
@pytest.mark.usefixtures("compiled_as_users_have_it")
@pytest.mark.parametrize("task", ["Hopper", "Humanoid"])
def test_a_reset_that_is_compiled_in_a_hurry_has_the_same_bits(task):
    """Where steps begin episodes themselves, the kernel of resets is."""
    resets = [TorchVectorEnv(task, 40, device="cpu", autoreset_mode=mode) for mode in ("Disabled", "SameStep")]
    full, hurried = (env.engine._reset.kernel.code_bytes for env in resets)
    assert full != hurried
    full, hurried = (env.reset(seed=3)[0] for env in resets)
    assert torch.equal(full, hurried)

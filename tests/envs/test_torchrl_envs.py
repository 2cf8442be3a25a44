"""TorchRL's environments, driven by TorchRL itself: specs, transitions, resets, states, transforms, errors."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import gymnasium
import numpy as np
import processes
import pytest
import torch
from gymnasium.error import ResetNeeded

pytest.importorskip("torchrl")

from tensordict import TensorDict, TensorDictBase
from torchrl.data import Bounded
from torchrl.envs import (
    Compose,
    EnvBase,
    GymEnv,
    InitTracker,
    MultiAction,
    PendulumEnv,
    RewardSum,
    StepCounter,
    TransformedEnv,
    VecNormV2,
    check_env_specs,
)

import torch_mjenvs
from torch_mjenvs import HopperEnv, Outcome, Task, TorchRLEnv, TorchVectorEnv

N, LIMIT = 8, 20
NAMES = sorted(torch_mjenvs.TASKS)
HEAVY = {"Humanoid", "HumanoidStandup"}  # seconds to compile


def hopper(**arguments) -> TorchRLEnv:
    """Falls often; and is truncated soon."""
    return HopperEnv(num_envs=N, max_episode_steps=LIMIT, **arguments)


def actions(env: EnvBase, steps: int, seed: int = 0) -> torch.Tensor:
    """(steps, N, nu), that throw a hopper over."""
    shape = (steps, *env.action_spec.shape)
    x = torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64, device="cpu")
    return (2 * x - 1).to(env.device, env.action_spec.dtype)


def replay(moves: torch.Tensor) -> Callable[[TensorDictBase], TensorDictBase]:
    """A policy that makes these moves, (steps, N, nu), one after the other."""
    left: Iterator[torch.Tensor] = iter(moves)

    def policy(tensordict: TensorDictBase) -> TensorDictBase:
        return tensordict.set("action", next(left))

    return policy


def rollout(env: EnvBase, moves: torch.Tensor, **arguments) -> TensorDictBase:
    """(N, steps), over ends of episodes."""
    return env.rollout(len(moves), replay(moves), break_when_any_done=False, **arguments)


def reference(env: TorchRLEnv, moves: torch.Tensor, seed: int) -> dict[str, torch.Tensor]:
    """The same by `TorchVectorEnv`: (N, steps, ...) each."""
    vector = TorchVectorEnv(env.engine.task, N, dtype=env.dtype, autoreset_mode="SameStep", max_episode_steps=LIMIT)
    obs, _ = vector.reset(seed=seed)
    rows = []
    for action in moves:
        row = {"root": obs}
        obs, reward, row["terminated"], row["truncated"], info = vector.step(action)
        ended = row["terminated"] | row["truncated"]
        velocity = torch.where(ended, info["final_info"]["x_velocity"], info["x_velocity"])
        row |= {"next": info["final_obs"], "after": obs, "reward": reward, "velocity": velocity, "done": ended}
        rows.append(row)
    return {key: torch.stack([row[key] for row in rows], 1) for key in rows[0]}


def bare(**arguments) -> EnvBase:
    return hopper(**arguments)


def ordinary(**arguments) -> EnvBase:
    """With TorchRL's own order of step and masked reset."""
    env = hopper(**arguments)
    env._step_and_maybe_reset = lambda tensordict: EnvBase._step_and_maybe_reset(env, tensordict)
    return env


def transformed(**arguments) -> EnvBase:
    return TransformedEnv(hopper(**arguments), StepCounter())


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n in HEAVY)) for n in NAMES])
def test_specs_are_those_of_the_spaces(name):
    env = getattr(torch_mjenvs, f"{name}Env")(num_envs=3, max_episode_steps=2)
    assert type(env).__name__ == f"{name}Env" and type(env.engine.task) is torch_mjenvs.TASKS[name]
    check_env_specs(env, break_when_any_done="both")
    space = TorchVectorEnv(name, 3).single_action_space
    single = env.action_spec_unbatched
    assert isinstance(single, Bounded) and single.shape == space.shape
    np.testing.assert_array_equal(single.space.low.cpu(), space.low)
    np.testing.assert_array_equal(single.space.high.cpu(), space.high)


@pytest.mark.parametrize(
    "arguments",
    [
        {"native_autoreset": True},
        {"dtype": torch.float64},
        {"info_keys": ("reward_forward", "bad_state")},
        {"info_keys": ("reward_forward", "bad_state"), "native_autoreset": True, "dtype": torch.float64},
    ],
)
def test_specs_of_variants(arguments):
    env = hopper(**arguments)
    check_env_specs(env, break_when_any_done="both")
    check_env_specs(TransformedEnv(env, Compose(StepCounter(), RewardSum())), break_when_any_done="both")
    dtype = arguments.get("dtype", torch.float32)
    assert {env.observation_spec["observation"].dtype, env.reward_spec.dtype, env.action_spec.dtype} == {dtype}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("path", [bare, ordinary, transformed])
def test_transitions_are_the_engines(path, dtype):
    """What the engine does, bit for bit, over ends by falls and by time; the last observation of an episode is kept."""
    env = path(dtype=dtype, info_keys=("x_velocity",))
    moves = actions(env, 3 * LIMIT)
    expected = reference(env, moves, seed=3)
    assert expected["terminated"].any() and expected["truncated"].any()
    env.set_seed(3)
    data = rollout(env, moves)
    torch.testing.assert_close(data["observation"], expected["root"], rtol=0, atol=0)
    torch.testing.assert_close(data["next", "observation"], expected["next"], rtol=0, atol=0)
    torch.testing.assert_close(data["next", "x_velocity"][..., 0], expected["velocity"], rtol=0, atol=0)
    for key in ("reward", "terminated", "truncated", "done"):
        torch.testing.assert_close(data["next", key][..., 0], expected[key], rtol=0, atol=0)
    assert not data["done"].any()
    differ = (data["next", "observation"][:, :-1] != data["observation"][:, 1:]).any(-1)
    assert differ.equal(expected["done"][:, :-1])


@pytest.mark.parametrize("wrap", [False, True])
def test_native_autoreset(wrap):
    """The same episodes, without their last observations."""
    env = hopper(native_autoreset=True)
    moves = actions(env, 3 * LIMIT)
    expected = reference(env, moves, seed=3)
    env = TransformedEnv(env, Compose(StepCounter(), RewardSum())) if wrap else env
    env.set_seed(3)
    data, following = [], env.reset()
    for move in moves:
        step, following = env.step_and_maybe_reset(following.set("action", move))
        data.append(step)
    data = torch.stack(data, 1)
    ended = expected["done"]
    torch.testing.assert_close(data["observation"], expected["root"], rtol=0, atol=0)
    torch.testing.assert_close(data["next", "reward"][..., 0], expected["reward"], rtol=0, atol=0)
    assert data["next", "done"][..., 0].equal(ended) and not data["done"].any()
    assert data["next", "observation"][ended].isnan().all()
    assert data["next", "observation"][~ended].equal(expected["next"][~ended])
    if wrap:
        assert data["step_count"][..., 0].max() == LIMIT - 1
        total = data["next", "episode_reward"][..., 0]
        assert (total[:, 1:][ended[:, :-1]] == expected["reward"][:, 1:][ended[:, :-1]]).all()


def test_masked_reset():
    env = hopper(info_keys=("bad_state",))
    env.set_seed(0)
    before = rollout(env, actions(env, 5))[:, -1]["next"]
    mask = torch.arange(N)[:, None] % 3 == 0
    after = env.reset(before.clone().set("_reset", mask))
    chosen = mask[:, 0]
    assert after["observation"][~chosen].equal(before["observation"][~chosen])
    assert (after["observation"][chosen] != before["observation"][chosen]).any(1).all()
    assert env.engine.elapsed_steps.equal(torch.where(chosen, 0, 5).int())
    assert "_reset" not in after


def test_a_masked_reset_keeps_who_has_ended():
    env = HopperEnv(num_envs=N, max_episode_steps=3)
    ended = env.rollout(3, break_when_any_done=False)[:, -1]["next"]  # its last step resets no world
    mask = torch.arange(N)[:, None] < 4
    assert ended["truncated"].all()
    with pytest.warns(UserWarning, match="_reset"):  # as the flags of the others were not handed in
        after = env.reset(TensorDict({"_reset": mask}, [N]))
    for flag in ("done", "terminated", "truncated"):
        assert after[flag].equal(ended[flag] & ~mask)


def test_results_are_not_written_into():
    env = hopper(info_keys=("x_velocity",))
    env.set_seed(0)
    results = [env.reset()]
    for move in actions(env, 5):
        results += env.step_and_maybe_reset(results[-1].clone().set("action", move))
    kept = [result.clone() for result in results]
    rollout(env, actions(env, 2 * LIMIT))
    env.reset()
    assert all((a == b).all() for a, b in zip(results, kept, strict=True))


def test_a_bad_world_is_told_and_alone():
    env, moves = hopper(info_keys=("bad_state",)), actions(hopper(), 10)
    env.set_seed(1)
    clean = rollout(env, moves)
    assert not clean["next", "bad_state"].any()
    env.set_seed(1)
    moves[4, 2, 1] = torch.nan
    data = rollout(env, moves)
    flags = torch.zeros(N, 10, 1, dtype=torch.bool)
    flags[2, 4] = True
    assert data["next", "bad_state"].equal(flags) and not data["bad_state"].any()
    assert data["next", "terminated"][2, 4] and data["next", "reward"][2, 4] == 0
    assert data["next", "observation"][2, 4].equal(data["observation"][2, 4])
    others = torch.arange(N) != 2
    for key in ("observation", ("next", "observation"), ("next", "reward")):
        assert data[key][others].equal(clean[key][others])


def test_a_seed_decides_what_is_drawn():
    env, moves = hopper(), actions(hopper(), LIMIT + 5)

    def observed(seed: int | None) -> torch.Tensor:
        env.set_seed(seed)
        return rollout(env, moves)["observation"]

    first, same, other, later = observed(5), observed(5), observed(6), observed(None)
    assert first.equal(same) and not first.equal(other) and not first.equal(later)
    assert env.set_seed(5) != 5  # TorchRL's, for the next environment
    assert env.set_seed(5, static_seed=True) == 5
    with pytest.raises(ValueError, match="negative"):
        env.set_seed(-1)


def test_environments_share_out_worlds():
    env, moves = hopper(), actions(hopper(), LIMIT + 5)
    env.set_seed(5)
    whole = rollout(env, moves)
    for first in (0, 5):
        part = HopperEnv(num_envs=3, max_episode_steps=LIMIT, first_world=first)
        part.set_seed(5)
        rows = slice(first, first + 3)
        data = rollout(part, moves[:, rows])
        assert data["next", "observation"].equal(whole["next", "observation"][rows])


@pytest.mark.parametrize("name", ["Hopper", "Ant"])  # Ant's next step needs the position before
@pytest.mark.parametrize("wrap", [False, True])
def test_an_episode_goes_on_from_a_state_that_was_taken(name, wrap):
    """From a state that was taken, everything goes on as it did, in the worlds of the mask."""
    base = TorchRLEnv(name, N, max_episode_steps=LIMIT, dtype=torch.float64, info_keys=("x_velocity",))
    env = TransformedEnv(base, StepCounter()) if wrap else base
    env.set_seed(0)
    moves = actions(env, 12)
    start = env.step_mdp(rollout(env, moves[:4])[:, -1])
    state = base.get_state()

    def follow(td: TensorDictBase) -> list[TensorDictBase]:
        found = []
        for move in moves[4:]:
            found.append(env.step(td.set("action", move))["next"])
            td = env.step_mdp(td)
        return found

    first = follow(start)
    assert base.engine.elapsed_steps.equal(state["elapsed_steps"] + 8)
    mask = torch.arange(N)[:, None] < 5
    td = first[-1].clone().set("_reset", mask)
    td = env.reset(td, state=state) if wrap else env.reset(td.update(state), set_state=True)
    assert td["observation"][:5].equal(state["obs"][:5])
    assert td["observation"][5:].equal(first[-1]["observation"][5:])
    assert not td["done"][:5].any()
    for again, expected in zip(follow(td), first, strict=True):
        for key in ("observation", "reward", "x_velocity", "terminated", "truncated"):
            assert again[key][:5].equal(expected[key][:5]), key


@pytest.mark.parametrize("wrap", [False, True])
def test_a_first_episode_may_begin_in_a_state(wrap):
    """As for rollouts that branch from states of another environment."""
    source, base = hopper(), hopper()
    source.rollout(5)
    state, td = source.get_state(), TensorDict({"action": source.action_spec.zero()}, [N])
    env = TransformedEnv(base, RewardSum()) if wrap else base

    def begin(**mask: torch.Tensor) -> TensorDictBase:
        given = TensorDict({f"_{name}": x for name, x in mask.items()}, [N])
        return env.reset(given, state=state) if wrap else env.reset(given.update(state), set_state=True)

    begin(reset=torch.arange(N)[:, None] < N - 1)
    with pytest.raises(ResetNeeded):  # one world is still nowhere
        base.step(td)
    after = env.step(begin().update(td))["next"]
    assert torch.equal(after["observation"], source.step(td)["next", "observation"])
    assert (base.engine.episode == 1).all()


def test_a_state_of_an_environment_made_otherwise_is_refused():
    """Without its parameters the worlds would go on as others than they were."""
    state, env = hopper(vary="body_mass").get_state(), hopper()
    env.reset()
    before = env.engine.state_dict()
    for call in (lambda: env.reset(state, set_state=True), lambda: env.reset(state=state)):
        with pytest.raises(ValueError, match=r"the state has \['params', 'derived'\], and this environment has none"):
            call()
    assert all(torch.equal(x, before[name]) for name, x in env.engine.state_dict().items())
    known = state.exclude("params", "derived")
    given = {"qpos": known["qpos"], "qvel": known["qvel"]}
    assert torch.equal(env.reset(state=given)["observation"], env.reset(state=known.select(*given))["observation"])


def test_a_state_is_seen_as_gymnasium_sees_it():
    env = TorchRLEnv("Hopper", 2, dtype=torch.float64, info_keys=("x_position", "x_velocity"))
    oracle = gymnasium.make("Hopper-v5").unwrapped
    oracle.reset(seed=0)
    rng = np.random.default_rng(0)
    qpos = oracle.init_qpos + rng.uniform(-0.1, 0.1, 6)
    qvel = rng.uniform(-20, 20, 6)  # beyond where the observation is clipped
    oracle.set_state(qpos, qvel)
    state = {"qpos": torch.tensor(qpos).expand(2, -1), "qvel": torch.tensor(qvel).expand(2, -1)}
    env.reset()
    env.rollout(3)
    seen = env.reset(TensorDict(state, [2]), set_state=True)
    np.testing.assert_allclose(seen["observation"][1].cpu(), oracle._get_obs(), rtol=0, atol=1e-12)
    assert seen["x_position"][1] == qpos[0] and seen["x_velocity"][1] == 0
    assert not env.engine.elapsed_steps.any()


def test_torchrl_s_transforms_work():
    env = TransformedEnv(hopper(), Compose(VecNormV2(in_keys=["observation"]), StepCounter(), RewardSum()))
    check_env_specs(env, break_when_any_done="both")
    env.set_seed(0)
    moves = actions(env, 3 * LIMIT)
    raw = reference(env.base_env, moves, seed=0)
    data = rollout(env, moves)
    torch.testing.assert_close(data["next", "reward"][..., 0], raw["reward"], rtol=0, atol=0)
    total, count = torch.zeros(N), torch.zeros(N, dtype=torch.int64)
    for t, ended in enumerate(raw["done"].T):
        total, count = total + raw["reward"][:, t], count + 1
        torch.testing.assert_close(data["next", "episode_reward"][:, t, 0], total)
        assert data["next", "step_count"][:, t, 0].equal(count)
        total, count = torch.where(ended, 0, total), torch.where(ended, 0, count)
    assert data["next", "observation"].isfinite().all()
    assert not data["next", "observation"].equal(raw["next"])  # they are normalised


@dataclass(frozen=True)
class Pole(Task):
    """A task of a user."""

    xml_file: str = "inverted_pendulum.xml"
    frame_skip: int = 2
    bonus: float = 1.0

    def reset(self, m, rng):
        return [rng.uniform(-0.1, 0.1), 0.0], [0.0, 0.0]

    def observe(self, m, world):
        return [*world.qpos, *world.qvel]

    def outcome(self, m, before, action, after):
        return Outcome(self.bonus - action[0] * action[0], after.qpos[1] > 0.2, {"pair": list(after.qpos)})


def test_a_task_of_your_own():
    for task in (Pole, Pole()):
        env = TorchRLEnv(task, num_envs=3, bonus=2.0, info_keys=("pair",))
        check_env_specs(env, break_when_any_done="both")
        data = env.rollout(3)
        assert data["next", "pair"].equal(data["next", "observation"][..., :2])
        torch.testing.assert_close(data["next", "reward"], 2.0 - data["action"].square())


@dataclass(frozen=True)
class Compiled(Pole):
    compile: bool = False  # an argument that TorchRL takes


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: HopperEnv(num_envs=0), ValueError, "num_envs"),
        (lambda: HopperEnv(num_envs=2.0), ValueError, "num_envs"),
        (lambda: HopperEnv(num_envs=2, gravity=1.0), TypeError, "unexpected keyword argument 'gravity'"),
        (lambda: HopperEnv(num_envs=2, dtype=torch.int32), ValueError, "dtype"),
        (lambda: HopperEnv(num_envs=2, info_keys=("speed",)), ValueError, r"info has no \['speed'\]"),
        (lambda: HopperEnv(num_envs=2, first_world=-1), ValueError, "first_world"),
        (lambda: TorchRLEnv("Hoper"), ValueError, "no task 'Hoper'"),
        (lambda: TorchRLEnv(Compiled), TypeError, "rename them"),
        (lambda: HopperEnv(2, native_autoreset="no"), TypeError, "native_autoreset must be True or False, not 'no'"),
        (lambda: HopperEnv(2, from_pixels=0), TypeError, "from_pixels must be True or False, not 0"),
        (lambda: HopperEnv(2, from_pixels=True, pixels_only="no"), TypeError, "pixels_only must be True or False"),
        (lambda: HopperEnv(2, info_keys=5), TypeError, "info_keys must be names, such as .*, not 5"),
        (lambda: HopperEnv(2, info_keys={"x_velocity": 1}), TypeError, "info_keys must be names"),
        (lambda: HopperEnv(2, camera_name="trakc"), ValueError, "the model has no camera 'trakc'; it has 'track'"),
        (lambda: HopperEnv(2, width=0), ValueError, "width must be a positive whole number, not 0"),
    ],
)
def test_wrong_arguments(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_wrong_calls():
    env = hopper()
    td = env.reset()
    before = env.get_state()
    with pytest.raises(ValueError, match=r"action must be of shape \(8, 3\), not \(8, 4\)"):
        env.step(td.clone().set("action", torch.zeros(N, 4)))
    with pytest.raises(TypeError, match="real numbers"):
        env.step(td.clone().set("action", torch.zeros(N, 3, dtype=torch.bool)))
    with pytest.raises(KeyError, match="action"):
        env.step(td.clone())
    with pytest.raises(ValueError, match="qpos and qvel"):
        env.reset(td.clone(), set_state=True)
    with pytest.raises(ValueError, match=r"reset\(state=...\)"):
        TransformedEnv(env, StepCounter()).reset(td.clone().update(before), set_state=True)
    with pytest.raises(ValueError, match="qpos must be of shape"):
        env.reset(state=TensorDict({"qpos": torch.zeros(N, 2), "qvel": torch.zeros(N, 6)}, [N]))
    for name in ("obs", "elapsed_steps", "qacc_warmstart"):  # none is spread over others
        with pytest.raises(ValueError, match=f"{name} must be of shape"):
            env.reset(state=before.clone().set(name, torch.ones(N, 1, dtype=before[name].dtype)))
    for wrong in (torch.ones(N), torch.ones(N, 1, dtype=torch.int64)):
        with pytest.raises(TypeError, match="_step must have dtype=bool"):
            env.step(td.clone().set("action", torch.ones(N, 3)).set("_step", wrong))
        with pytest.raises(TypeError, match="_reset must have dtype=bool"):
            env.reset(td.clone().set("_reset", wrong))
    with pytest.raises(ValueError, match=r"_step must be of shape \(8,\), not \(16,\)"):
        env.step(td.clone().set("action", torch.ones(N, 3)).set("_step", torch.ones(N, 2, dtype=torch.bool)))
    with pytest.raises(TypeError, match=r"reset\(\) has no \['seed'\]: .* set_seed\(\) takes a seed"):
        env.reset(seed=0)
    with pytest.raises(ValueError, match="make another"):
        env.to("meta")
    with pytest.raises(TypeError, match=r"make another environment with dtype=torch\.float64"):
        env.to(torch.float64)
    assert env.to(env.device) is env
    assert (env.get_state() == before).all()


def test_repr_tells_the_batch_and_the_device():
    env = HopperEnv(num_envs=N, max_episode_steps=LIMIT)
    assert repr(env) == f"HopperEnv(num_envs={N}, batch_size=[{N}], device={env.device}, dtype=torch.float32)"


def test_torchrl_is_imported_when_asked_for():
    code = "import sys, torch_mjenvs; assert 'torchrl' not in sys.modules and 'tensordict' not in sys.modules"
    processes.run(code)


def test_without_torchrl(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch_mjenvs.envs.torchrl")
    monkeypatch.delattr(torch_mjenvs.envs, "torchrl")
    monkeypatch.setitem(sys.modules, "tensordict", None)
    with pytest.raises(ImportError, match=r"needs TorchRL: pip install .\.\[torchrl\]"):
        torch_mjenvs.HumanoidEnv  # noqa: B018
    with pytest.raises(AttributeError, match="no attribute 'DancerEnv'"):
        torch_mjenvs.DancerEnv  # noqa: B018


@pytest.mark.parametrize("native_autoreset", [False, True])
def test_inference_mode(native_autoreset):
    """Made inside and used outside, or the other way round."""
    with torch.inference_mode():
        env = HopperEnv(4, native_autoreset=native_autoreset, info_keys=("x_velocity",))
        env.rollout(2)
    data = env.rollout(3, break_when_any_done=False)
    with torch.inference_mode():
        env.rollout(2)
    env.reset(env.get_state(), set_state=True)
    actions = torch.ones(4, 3, requires_grad=True)
    loss = torch.nn.Linear(11, 1)(data["observation"]).sum() + env.action_spec.project(2 * actions).sum()
    loss.backward()


def test_a_closed_environment_goes_on_as_torchrls_own_do():
    """TorchRL has no word for a closed environment: `is_closed` is True of one that was never closed."""
    for env in (PendulumEnv(), hopper(), TransformedEnv(hopper(), StepCounter())):
        start = env.reset()
        assert env.is_closed
        env.close()
        env.close()
        env.rand_step(start)
        assert env.rollout(2).shape[-1] == 2


@pytest.mark.cpu  # where one world for NumPy is, unless asked otherwise
@pytest.mark.parametrize("arguments", [{}, {"num_envs": 2}])
def test_torchrls_own_gymenv_makes_our_tasks(arguments):
    """It hands every environment a `frameskip`, and takes that back where the error is worded as Python's own is.

    With num_envs it starts processes, which find the task by the name of the module.
    """
    env = GymEnv("torch_mjenvs:TorchHopper-v0", **arguments)
    try:
        data = env.rollout(3)
    finally:
        env.close()
    assert data["observation"].shape[-2:] == (3, 11) and data["next", "reward"].isfinite().all()


@pytest.mark.parametrize("native", [False, True])
def test_actions_are_repeated_up_to_an_episodes_end(native: bool) -> None:
    """Three does not divide ten: an episode's last step makes one of the task's, and none of the next episode's."""
    options = dict(num_envs=4, max_episode_steps=10, terminate_when_unhealthy=False, native_autoreset=native)
    once, env = HopperEnv(**options), HopperEnv(action_repeat=3, **options)
    actions = torch.rand(8, 4, 3, device=env.device) * 2 - 1
    once.set_seed(0)
    env.set_seed(0)
    td, other = env.reset(), once.reset()
    wanted: list[torch.Tensor] = []
    for k, action in enumerate(actions):
        td["action"] = action
        td = env.step(td)
        end = (k + 1) % 4 == 0
        assert td["next", "done"].all().item() is end and td["next", "done"].any().item() is end
        total = 0.0
        for _ in range(1 if end else 3):
            other["action"] = action
            other = once.step(other)
            total = total + other["next", "reward"]
            ended = other["next", "done"].all()
            other = once.maybe_reset(once.step_mdp(other)) if not native else once.step_mdp(other)
        assert ended.item() is end
        torch.testing.assert_close(td["next", "reward"], total, rtol=0, atol=1e-6)
        wanted.append(total)
        td = env.maybe_reset(env.step_mdp(td)) if not native else env.step_mdp(td)
    assert torch.stack(wanted).abs().min() > 1e-4
    with pytest.raises(ValueError, match="give action_repeat once"):
        HopperEnv(num_envs=2, action_repeat=2, pixels={"action_repeat": 2})


@pytest.mark.parametrize("repeats", [1, 2])
def test_torchrls_partial_steps_leave_the_other_worlds_as_they_are(repeats: int) -> None:
    """As TorchRL's own batches of environments do. Oracle: lone worlds, each stepped when the mask says so."""
    whole = hopper(action_repeat=repeats, info_keys=("x_velocity",))
    alone = [HopperEnv(num_envs=1, max_episode_steps=LIMIT, action_repeat=repeats, first_world=i) for i in range(N)]
    for env in (whole, *alone):
        env.set_seed(2)
    got, lone, moves = whole.reset(), [env.reset() for env in alone], actions(whole, 2 * LIMIT)
    masks = torch.rand(len(moves), N, generator=torch.Generator().manual_seed(1), device="cpu") < 0.7
    ended = torch.zeros(N, dtype=torch.bool, device="cpu")
    for move, mask in zip(moves, masks, strict=True):
        mask = mask & ~ended
        if not mask.any():
            continue
        velocity = got["x_velocity"]
        stepped = whole.step(got.set("action", move).set("_step", mask.to(whole.device)))["next"]
        for i in range(N):
            if mask[i]:
                lone[i] = alone[i].step(lone[i].set("action", move[i : i + 1]))["next"]
                assert torch.equal(stepped["reward"][i], lone[i]["reward"][0])
            else:
                assert stepped["reward"][i] == 0 and torch.equal(stepped["x_velocity"][i], velocity[i])
            assert torch.equal(stepped["observation"][i], lone[i]["observation"][0])
            for flag in ("done", "terminated", "truncated"):
                assert torch.equal(stepped[flag][i], lone[i][flag][0])
        ended, got = stepped["done"][:, 0].cpu(), stepped
        if ended.float().mean() > 0.7:  # begin anew some that have ended, and some that have not
            reset = torch.arange(N, device="cpu") % 4 != 0
            got = whole.reset(got.set("_reset", reset[:, None].to(whole.device)))
            lone = [alone[i].reset() if reset[i] else lone[i] for i in range(N)]
            ended &= ~reset
    assert ended.any()


def test_a_chunk_of_actions_ends_with_the_episode() -> None:
    chunk = 4
    env, plain = TransformedEnv(hopper(), MultiAction(stack_rewards=False, stack_observations=False)), hopper()
    env.set_seed(3), plain.set_seed(3)
    moves, got, expected = actions(plain, chunk * LIMIT), env.reset(), plain.reset()
    number, seen = 0, torch.zeros(N, 1, dtype=torch.bool, device=plain.device)
    for at in range(0, len(moves), chunk):
        got = env.step(got.set("action", moves[at : at + chunk].transpose(0, 1)))["next"]
        for move in moves[at : at + chunk]:
            going = ~expected["done"][:, 0]
            expected = plain.step(expected.set("action", move).set("_step", going))["next"]
        torch.testing.assert_close(got["observation"], expected["observation"], rtol=0, atol=0)
        assert torch.equal(got["terminated"], expected["terminated"]) and torch.equal(got["done"], expected["done"])
        if (ended := got["done"]).any():
            number, seen = number + int(ended.sum()), seen | got["terminated"]
            got, expected = (e.reset(td.set("_reset", ended.clone())) for e, td in ((env, got), (plain, expected)))
            torch.testing.assert_close(got["observation"], expected["observation"], rtol=0, atol=0)
    assert number > 2 * N and seen.any()


def test_partial_steps_keep_stacks_of_pictures() -> None:
    env = hopper(pixels={"width": 12, "height": 10, "stack": 2})
    first = env.rollout(3)[:, -1]["next"]
    mask = torch.arange(N) % 2 == 0
    second = env.step(first.clone().set("action", env.action_spec.rand()).set("_step", mask.to(env.device)))["next"]
    same = (second["pixels"] == first["pixels"]).flatten(1).all(1).cpu()
    assert torch.equal(same, ~mask.cpu())


def test_partial_steps_are_refused_where_episodes_have_begun_anew() -> None:
    env = hopper(native_autoreset=True)
    td = env.rand_action(env.reset())
    env.step(td.clone().set("_step", torch.ones(N, dtype=torch.bool, device=env.device)))
    before = env.engine.state_dict()
    with pytest.raises(ValueError, match="native_autoreset=False"):
        env.step(td.set("_step", (torch.arange(N) > 2).to(env.device)))
    assert all(torch.equal(x, before[name]) for name, x in env.engine.state_dict().items())


def test_native_autoreset_blanks_nothing_in_the_last_step_of_a_rollout() -> None:
    """As docs/torchrl.md says: TorchRL makes it by `step` alone."""
    env = HopperEnv(num_envs=N, max_episode_steps=3, native_autoreset=True)
    data = env.rollout(6, break_when_any_done=False)["next"]
    assert data["done"][:, [2, 5]].all()
    assert data["observation"][:, 2].isnan().all() and data["observation"][:, 5].isfinite().all()
    assert torch.equal(data["observation"][:, 5], env.engine.obs)


def test_beginnings_are_marked_where_torchrl_marks_them() -> None:
    """TorchRL 0.14 overwrites `is_init` under `native_autoreset`, by the last of the flags; docs/torchrl.md says so."""
    cases = [(False, "is_init", True), (True, "begins", True), (True, "is_init", False)]
    for native, name, right in cases:
        env = TransformedEnv(hopper(native_autoreset=native), InitTracker(name))
        env.set_seed(1)
        torch.manual_seed(0)
        data = env.rollout(3 * LIMIT, break_when_any_done=False)
        ended = data["next", "done"][:, :-1]
        assert data["next", "terminated"].any() and data["next", "truncated"].any()
        assert data[name][:, 1:].equal(ended) is right, "mended in TorchRL? Then docs/torchrl.md need not tell it"


def test_a_step_before_the_first_reset_is_refused():
    """Worlds are nowhere yet: they would go on from qpos0, with a memory of zeros."""
    env = hopper()
    before = env.engine.state_dict()
    td = TensorDict({"action": env.action_spec.zero()}, env.batch_size)
    for _ in range(2):
        with pytest.raises(ResetNeeded, match="call reset"):
            env.step(td)
    env.engine.action.copy_(before["action"])
    assert all(torch.equal(x, before[name]) for name, x in env.engine.state_dict().items())
    env.reset()
    env.step(td)
    other = hopper()
    other.engine.load_state_dict(env.engine.state_dict())
    assert torch.equal(other.step(td)["next", "observation"], env.step(td)["next", "observation"])

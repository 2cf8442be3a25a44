"""Named terms of a reward, named ends, action spaces, kicks, and resets by memory, beside loops over MuJoCo C.

The loops call the task's own functions on plain numbers.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import gymnasium
import mujoco
import numpy as np
import oracle
import pytest
import torch
from carts import LIMIT, TERMS, Carts

from torch_mjenvs import Control, Outcome, Task, TorchEnv, TorchVectorEnv, World, wrappers
from torch_mjenvs.envs.episode_log import of_last_step
from torch_mjenvs.scalar import Random, sqrt

WORLDS, SEED = 3, 5
HERE = torch.get_default_device()


class Loop:
    """One world of it, as one would write it with MuJoCo's Python bindings around the task's functions."""

    def __init__(self, task: Carts, world: int):
        self.task, self.model, self.world, self.episode = task, oracle.sharpen(task.load()), world, -1
        self.damping, self.memory = self.model.dof_damping.copy(), task.memory(self)
        self.data, self.nu, self.nv = mujoco.MjData(self.model), 1, 2

    dof_damping = property(lambda self: self.damping.tolist())
    timestep = property(lambda self: self.model.opt.timestep)

    def seen(self, what: int, memory: dict | None = None) -> World:
        rng = Random(SEED, self.world, self.episode, 0, what)
        return World(self.data.qpos.tolist(), self.data.qvel.tolist(), memory or copy.deepcopy(self.memory), None, rng)

    def reset(self) -> list:
        mujoco.mj_resetData(self.model, self.data)
        self.episode, self.elapsed, self.sums, self.speeds = self.episode + 1, 0, [0.0] * len(TERMS), []
        drawn = self.seen(-2)
        self.model.dof_damping[:] = self.task.randomize(self, drawn.rng, drawn)["dof_damping"]
        world = self.seen(0)
        self.data.qpos[:], self.data.qvel[:] = self.task.reset(self, world.rng, world)
        world = self.seen(-1)
        self.memory = self.task.memory(self) | self.task.begin(self, world)
        return self.task.observe(self, self.seen(-1))

    def step(self, action: list) -> tuple[list, float, list, dict, bool]:
        self.elapsed += 1
        before = self.seen(self.elapsed)
        control = self.task.control(self, before, action)
        self.data.ctrl[:] = control.ctrl
        self.data.qvel[:] += control.qvel
        mujoco.mj_step(self.model, self.data, 2)
        after = World(self.data.qpos.tolist(), self.data.qvel.tolist(), {}, None, before.rng)
        self.memory = self.memory | self.task.remember(self, before, action, after)
        after.memory = self.memory
        out = self.task.outcome(self, before, action, after)
        weighted = [w * out.reward[name] * self.task.dt(self) for name, w in self.task.weights]
        reward = min(max(sum(weighted), 0.0), 10.0)
        assert out.total() == pytest.approx(reward)
        self.sums = [x + y for x, y in zip(self.sums, weighted, strict=True)]
        self.speeds.append(abs(self.data.qvel[0]))
        reasons = out.terminated | out.truncated | {"time_limit": self.elapsed >= LIMIT, "bad_state": False}
        return self.task.observe(self, after), reward, self.sums, reasons, any(out.terminated.values())


def make(mode: str = "SameStep", task: Task | None = None, n: int = WORLDS, **arguments: Any) -> TorchVectorEnv:
    arguments = {"dtype": torch.float64} | arguments
    return TorchVectorEnv(task or Carts(), n, autoreset_mode=mode, **arguments)


def actions(steps: int, n: int = WORLDS) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    drawn = torch.rand(steps, n, 2, generator=generator, device="cpu", dtype=torch.float64)
    return drawn.to(HERE) * torch.tensor([2.0, 1.0]) - torch.tensor([1.0, 0.0])


def close(a: Any, b: Any) -> None:
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=0, atol=1e-9)


@pytest.mark.parametrize("mode", ["SameStep", "NextStep", "Disabled"])
def test_terms_ends_kicks_and_resets_by_memory_are_those_of_a_loop_over_mujoco(mode):
    env = wrappers.RecordEpisodeStatistics(make(mode))
    loops, seen, levels = [Loop(Carts(), i) for i in range(WORLDS)], set(), set()
    obs, _ = env.reset(seed=SEED)
    close(obs.cpu(), [loop.reset() for loop in loops])
    waiting, returns = [False] * WORLDS, [0.0] * WORLDS
    for action in actions(60).to(env.device):
        obs, reward, terminated, truncated, info = env.step(action)
        last = info["final_info"] if mode == "SameStep" else info
        for i, loop in enumerate(loops):
            if waiting[i]:
                close(obs[i].cpu(), loop.reset())
                assert reward[i] == 0 and not info["_episode"][i] and not last["_episode_length"][i]
                waiting[i], returns[i] = False, 0.0
                continue
            final, want, sums, reasons, failed = loop.step(action[i].tolist())
            ended = any(reasons.values())
            close((info["final_obs"] if mode == "SameStep" else obs)[i].cpu(), final)
            close(reward[i].cpu(), want)
            assert (bool(terminated[i]), bool(truncated[i])) == (failed, reasons["calm"] or reasons["time_limit"])
            close([last[f"episode_reward/{name}"][i].cpu() for name in TERMS], sums)
            assert {name: bool(last[f"episode_end/{name}"][i]) for name in reasons} == reasons
            assert last["episode_length"][i] == loop.elapsed
            assert last["episode_mean/speed"][i].item() == pytest.approx(np.mean(loop.speeds), abs=1e-9)
            returns[i] += want
            assert bool(info["_episode"][i]) == ended
            told = {name: x[i].cpu() for name, x in info["episode"]["rewards"].items()}
            close([*told.values()], sums if ended else np.zeros(len(TERMS)))
            assert [*told] == TERMS
            if ended:
                assert info["episode"]["l"][i] == loop.elapsed
                assert info["episode"]["metrics"]["speed"][i] == last["episode_mean/speed"][i]
                assert info["episode"]["r"][i].item() == pytest.approx(returns[i])
                assert {k for k, x in info["episode"]["ends"].items() if x[i]} == {k for k, x in reasons.items() if x}
                seen |= {k for k, x in reasons.items() if x}
                levels.add(loop.memory["level"])
                if mode == "SameStep":
                    close(obs[i].cpu(), loop.reset())
                    returns[i] = 0.0
                waiting[i] = mode == "NextStep"
        if mode == "Disabled" and (ended := terminated | truncated).any():
            obs, _ = env.reset(options={"reset_mask": ended})
            for i in ended.nonzero()[:, 0].tolist():
                close(obs[i].cpu(), loops[i].reset())
                returns[i] = 0.0
    assert {"fell", "left", "calm"} <= seen and len(levels) > 2


def run(env: TorchVectorEnv, steps: torch.Tensor) -> torch.Tensor:
    names = ["reward", *env.engine.layout.logged]
    rows = []
    for action in steps.to(env.device):
        obs, reward, *_ = env.step(action)
        told = {"reward": reward} | of_last_step(env.engine)
        rows.append(torch.cat([obs, torch.stack([told[name] for name in names], 1)], 1))
    return torch.stack(rows)


def test_sums_belong_to_the_state_and_a_seed_begins_them_anew():
    env, steps = make(), actions(30)
    env.reset(seed=SEED)
    want = run(env, steps)
    env.reset(seed=SEED)
    assert torch.equal(run(env, steps[:7]), want[:7])
    state, copied = env.state_dict(), copy.deepcopy(env)
    other = make()
    other.load_state_dict(state)
    for again in (other, copied, env):
        assert torch.equal(run(again, steps[7:]), want[7:])


def test_setting_a_state_neither_ends_nor_rewards():
    env = make()
    env.reset(seed=SEED)
    run(env, actions(2))
    sums = env.engine.view("episode_sums").clone()
    assert sums.any()
    qpos = torch.zeros(WORLDS, 2, dtype=torch.float64, device=env.device)
    env.set_state(qpos, torch.zeros_like(qpos))
    assert torch.equal(env.engine.view("episode_sums"), sums)
    run(env, actions(1))
    assert (env.engine.info["episode_length"] == 3).all()


@pytest.mark.parametrize("mode", ["SameStep", "NextStep"])
def test_a_bad_action_ends_an_episode_by_that_reason_and_adds_nothing(mode):
    env = make(mode)
    env.reset(seed=SEED)
    before = env.step(actions(1)[0].to(env.device))[4]["episode_reward/upright"]
    bad = torch.zeros(WORLDS, 2, dtype=torch.float64, device=env.device)
    bad[1] = torch.nan
    info = env.step(bad)[4]
    last = info["final_info"] if mode == "SameStep" else info
    assert last["episode_end/bad_state"].tolist() == [0.0, 1.0, 0.0]
    assert last["episode_reward/upright"][1] == before[1] and last["episode_reward/upright"][0] > before[0]
    assert not any(last[f"episode_end/{name}"][1] for name in ("fell", "left", "calm", "time_limit"))


def test_a_kick_that_is_not_finite_stops_its_world():
    @dataclass(frozen=True)
    class Divides(Carts):
        def control(self, m, world, action):
            return Control([0.0], qvel=[0.0, 1.0 / action[0]])

    env = make(task=Divides())
    first, _ = env.reset(seed=SEED)
    info = env.step([[1.0, 0.0], [0.0, 0.0], [-1.0, 0.0]])[4]
    assert info["bad_state"].tolist() == [False, True, False]
    assert torch.equal(info["final_obs"][1, :4], first[1, :4]) and not torch.equal(info["final_obs"][0], first[0])


def test_a_single_environment_takes_such_actions_and_tells_the_same():
    env = gymnasium.wrappers.RecordEpisodeStatistics(TorchEnv(Carts(), device=HERE))
    many = make("Disabled", n=1, max_episode_steps=-1)
    assert env.action_space == gymnasium.spaces.Box(np.float32([-1, 0]), np.float32([1, 1]))
    obs, _ = env.reset(seed=SEED)
    np.testing.assert_array_equal(obs, many.reset(seed=SEED)[0][0].cpu())
    ends = set()
    for action in actions(60, 1):
        obs, reward, terminated, truncated, info = env.step(action[0].cpu().numpy())
        want = many.step(action.to(many.device))
        np.testing.assert_array_equal(obs, want[0][0].cpu())
        assert (reward, terminated, truncated) == (want[1].item(), bool(want[2]), bool(want[3]))
        assert "episode_end/time_limit" not in info  # `gymnasium.make` limits the time
        for name in many.engine.layout.logged:
            assert info[name] == want[4][name].item()
        assert env.unwrapped.data.ctrl == info_force(env)
        if terminated or truncated:
            ends |= {name for name, x in info.items() if name.startswith("episode_end/") and x}
            env.reset(), many.reset()
            assert env.unwrapped.data.ctrl == 0
    assert "episode_end/calm" in ends and len(ends) > 1


def info_force(env: gymnasium.Env) -> np.ndarray:
    """Return what the task remembers of the ctrl that it gave."""
    return env.unwrapped.engine.memory["force"].cpu().numpy()


def test_a_reset_sees_its_own_model_at_qpos0_and_a_randomize_the_one_that_was_loaded():
    @dataclass(frozen=True)
    class Looks(Carts):
        def randomize(self, m, rng, world):
            twice = [[2.0 * x for x in row] for row in m.body_pos]
            return {"body_pos": twice, "dof_damping": [world.data.xipos[2][2]] * 2}

        def reset(self, m, rng, world):
            return [world.data.xipos[2][2], m.dof_damping[0]], [0.0] * m.nv

    env = make(task=Looks())
    obs, _ = env.reset(seed=SEED)
    model = Looks().load()
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    loaded = data.xipos[2, 2]
    model.body_pos[:] *= 2.0
    mujoco.mj_forward(model, data)
    close(obs[:, :2].cpu(), [[data.xipos[2, 2], loaded]] * WORLDS)


@pytest.mark.parametrize("bounds", [(0.0, 10.0), (-np.inf, 10), (0, np.inf)])
def test_a_clip_bounds_numbers_and_leaves_a_nan_one(bounds):
    """It would earn the most that there is, else."""

    @dataclass(frozen=True)
    class Pays(Carts):
        def outcome(self, m, before, action, after):
            return Outcome({"pay": 30.0 * action[0], "root": sqrt(action[1])}, scale=0.5, clip=bounds)

    pay = torch.tensor([[-1.0, 0.0], [1.0, 0.25], [1.0, -1.0]], dtype=torch.float64)
    env = make(task=Pays())
    env.reset(seed=SEED)
    want = np.clip([-15.0, 15.25, np.nan], *bounds)
    np.testing.assert_array_equal(env.step(pay.to(env.device))[1].cpu(), want)
    for (a, b), x in zip(pay.tolist(), want, strict=True):
        plain = Outcome({"pay": 30.0 * a, "root": sqrt(b)}, scale=0.5, clip=bounds)
        assert plain.total() == pytest.approx(x, nan_ok=True)


@dataclass(frozen=True)
class Fast(Task):
    """An episode that begins at rest, and is cut where the cart is fast: at first it is known not to be."""

    xml_file: str = "inverted_pendulum.xml"
    frame_skip: int = 2

    def reset(self, m, rng):
        return [0.0, 0.0], [0.0, 0.0]

    def observe(self, m, world):
        return world.qvel

    def outcome(self, m, before, action, after):
        return Outcome(1.0, {"fell": after.qpos[1] > 1.0}, truncated=after.qvel[0] > 0.5)


def test_what_is_false_of_the_first_state_alone_is_a_reason_too():
    env = make(task=Fast(), n=1)
    env.reset(seed=0)
    assert env.engine.layout.truncates
    steps = [env.step(torch.full((1, 1), 3.0, dtype=env.dtype)) for _ in range(20)]
    ends = [bool(truncated) for *_, truncated, _ in steps]
    assert any(ends)
    assert [bool(info["final_info"]["episode_end/truncated"]) for *_, info in steps] == ends


def test_what_is_false_without_control_or_of_the_loaded_model_is_a_reason_too():
    @dataclass(frozen=True)
    class Strained(Fast):
        def outcome(self, m, before, action, after):
            strained = after.data.actuator_force[0] > 0.5
            return Outcome(1.0, {"fell": after.qpos[1] > 1.0, "loose": m.dof_damping[0] < 0.1}, truncated=strained)

    env = make(task=Strained(), n=2, vary=["dof_damping"])
    env.reset(seed=0)
    assert env.engine.layout.truncates
    env.set_params({"dof_damping": torch.zeros(2, dtype=env.dtype)}, torch.tensor([False, True]))
    *_, truncated, info = env.step(torch.tensor([[1.0], [0.1]], dtype=env.dtype))
    assert truncated.tolist() == [True, False]
    ends = {name: info["final_info"][f"episode_end/{name}"].tolist() for name in ("fell", "loose", "truncated")}
    assert ends == {"fell": [0, 0], "loose": [0, 1], "truncated": [1, 0]}

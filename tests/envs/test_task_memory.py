"""Tasks that remember something, beside loops over MuJoCo C in plain Python that draw the same random numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import SimpleNamespace

import mujoco
import numpy as np
import oracle
import pytest
import torch

from torch_mjenvs import Ant, Control, Humanoid, Outcome, Task, TorchEnv, TorchVectorEnv, World
from torch_mjenvs.physics import load
from torch_mjenvs.scalar import Random, absolute, clip, cos, logical_and, select, sin

WORLDS, LIMIT, SEED = 3, 12, 5


@dataclass(frozen=True)
class Cart(Task):
    """Gymnasium's pendulum on a cart. What all tasks here have in common."""

    xml_file: str = "inverted_pendulum.xml"
    frame_skip: int = 2

    def reset(self, m, rng):
        return [rng.uniform(-0.1, 0.1) for _ in range(m.nq)], [0.0] * m.nv

    def observe(self, m, world):
        return [*world.qpos, *world.qvel, *(y for x in world.memory.values() for y in (x if type(x) is list else [x]))]

    def outcome(self, m, before, action, after):
        return Outcome(-absolute(after.qpos[0]), absolute(after.qpos[1]) > 0.3)


class Loop:
    """One world of the same, as one would write it with MuJoCo's Python bindings."""

    def __init__(self, world: int):
        self.model = oracle.sharpen(Cart().load())
        self.data, self.world, self.episode, self.elapsed = mujoco.MjData(self.model), world, -1, 0

    def random(self, what: int) -> Random:
        return Random(SEED, self.world, self.episode, 0, what)

    def reset(self) -> list:
        mujoco.mj_resetData(self.model, self.data)
        self.episode, self.elapsed = self.episode + 1, 0
        rng = self.random(0)
        self.data.qpos[:] = [rng.uniform(-0.1, 0.1) for _ in range(2)]
        self.begin(self.random(-1))
        return self.observation()

    def step(self, action: float) -> tuple[list, float, bool, bool]:
        self.elapsed += 1
        self.rng = self.random(self.elapsed)
        self.before = self.data.qpos.copy()
        self.data.ctrl[:] = self.control(action)
        mujoco.mj_step(self.model, self.data, 2)
        self.action = action
        reward = self.reward()
        self.remember()
        angle = self.data.qpos[1]
        return self.observation(), reward, abs(angle) > 0.3, self.elapsed >= LIMIT

    def observation(self) -> list:
        return [*self.data.qpos, *self.data.qvel, *self.told()]

    def begin(self, rng: Random) -> None: ...

    def control(self, action: float) -> float:
        return action

    def reward(self) -> float:
        return -abs(self.data.qpos[0])

    def remember(self) -> None: ...

    def told(self) -> list:
        return []


# a goal


@dataclass(frozen=True)
class Goal(Cart):
    def memory(self, m):
        return {"goal": 0.0}

    def begin(self, m, world):
        return {"goal": world.qpos[0] + world.rng.uniform(-1.0, 1.0)}

    def outcome(self, m, before, action, after):
        return Outcome(-absolute(after.qpos[0] - after.memory["goal"]), absolute(after.qpos[1]) > 0.3)


class GoalLoop(Loop):
    def begin(self, rng):
        self.goal = self.data.qpos[0] + rng.uniform(-1.0, 1.0)

    def reward(self):
        return -abs(self.data.qpos[0] - self.goal)

    def told(self):
        return [self.goal]


# a command that is drawn anew every fifth step, each time with a probability of one half


@dataclass(frozen=True)
class Command(Cart):
    def memory(self, m):
        return {"command": [0.0, 0.0], "age": 0}

    def begin(self, m, world):
        return {"command": self.draw(world.rng)}

    def draw(self, rng):
        return [rng.uniform(-1.0, 1.0), rng.normal()]

    def remember(self, m, before, action, after):
        age = before.memory["age"] + 1.0
        due = logical_and(age >= 5.0, after.rng.uniform() < 0.5)
        command = [
            select(due, new, old) for new, old in zip(self.draw(after.rng), before.memory["command"], strict=True)
        ]
        return {"command": command, "age": select(due, 0.0, age)}

    def outcome(self, m, before, action, after):
        error = (after.qpos[0] - before.qpos[0]) / self.dt(m) - before.memory["command"][0]
        return Outcome(-error * error, absolute(after.qpos[1]) > 0.3)


class CommandLoop(Loop):
    def begin(self, rng):
        self.command, self.age = [rng.uniform(-1.0, 1.0), rng.normal()], 0

    def remember(self):
        self.age += 1
        tossed = self.rng.uniform() < 0.5
        if self.age >= 5 and tossed:
            self.command, self.age = [self.rng.uniform(-1.0, 1.0), self.rng.normal()], 0

    def reward(self):
        error = (self.data.qpos[0] - self.before[0]) / (2 * self.model.opt.timestep) - self.command[0]
        return -(error**2)

    def told(self):
        return [*self.command, self.age]


# the action before, and actions that arrive two steps late


@dataclass(frozen=True)
class Smooth(Cart):
    def memory(self, m):
        return {"previous": [0.0] * m.nu}

    def remember(self, m, before, action, after):
        return {"previous": action}

    def outcome(self, m, before, action, after):
        change = action[0] - before.memory["previous"][0]
        return Outcome(-change * change, absolute(after.qpos[1]) > 0.3)


class SmoothLoop(Loop):
    def begin(self, rng):
        self.previous = 0.0

    def reward(self):
        return -((self.action - self.previous) ** 2)

    def remember(self):
        self.previous = self.action

    def told(self):
        return [self.previous]


@dataclass(frozen=True)
class Late(Cart):
    def memory(self, m):
        return {"underway": [0.0, 0.0]}

    def control(self, m, world, action):
        return world.memory["underway"][:1]

    def remember(self, m, before, action, after):
        return {"underway": [before.memory["underway"][1], action[0]]}


class LateLoop(Loop):
    def begin(self, rng):
        self.underway = [0.0, 0.0]

    def control(self, action):
        return self.underway[0]

    def remember(self):
        self.underway = [self.underway[1], self.action]

    def told(self):
        return self.underway


# a phase, and a target of position control that moves with it


@dataclass(frozen=True)
class Gait(Cart):
    def memory(self, m):
        return {"phase": 0.25}

    def control(self, m, world, action):
        target = 0.5 * sin(2.0 * math.pi * world.memory["phase"]) + 0.1 * action[0]
        return [clip(20.0 * (target - world.qpos[0]) - 2.0 * world.qvel[0], -3.0, 3.0)]

    def remember(self, m, before, action, after):
        phase = before.memory["phase"] + 3.0 * self.dt(m)
        return {"phase": select(phase >= 1.0, phase - 1.0, phase)}

    def observe(self, m, world):
        angle = 2.0 * math.pi * world.memory["phase"]
        return [*super().observe(m, world), sin(angle), cos(angle)]


class GaitLoop(Loop):
    def begin(self, rng):
        self.phase = 0.25

    def control(self, action):
        target = 0.5 * math.sin(2 * math.pi * self.phase) + 0.1 * action
        return np.clip(20 * (target - self.data.qpos[0]) - 2 * self.data.qvel[0], -3, 3)

    def remember(self):
        self.phase = (self.phase + 3 * 2 * self.model.opt.timestep) % 1

    def told(self):
        return [self.phase, math.sin(2 * math.pi * self.phase), math.cos(2 * math.pi * self.phase)]


# pushes: of the wind, on the cart, and of a torque on the hinge


@dataclass(frozen=True)
class Pushed(Cart):
    def memory(self, m):
        return {"gust": 0.0}

    def control(self, m, world, action):
        gust = world.memory["gust"]
        return Control(action, qfrc_applied=[0.0, 0.1 * gust], xfrc_applied={"pole": [gust, 0.0, 0.0, 0.0, -0.2, 0.0]})

    def remember(self, m, before, action, after):
        return {"gust": 5.0 * after.rng.normal()}


class PushedLoop(Loop):
    def begin(self, rng):
        self.gust = 0.0

    def control(self, action):
        self.data.qfrc_applied[1] = 0.1 * self.gust
        self.data.body("pole").xfrc_applied[:] = [self.gust, 0, 0, 0, -0.2, 0]
        return action

    def remember(self):
        self.gust = 5.0 * self.rng.normal()

    def told(self):
        return [self.gust]


# a cart that is put back to the middle now and then, and moves on from there


@dataclass(frozen=True)
class PutBack(Cart):
    def memory(self, m):
        return {"steps": 0.0}

    def control(self, m, world, action):
        x, angle = world.qpos
        return Control(action, qpos=[select(world.memory["steps"] % 3.0 < 0.5, 0.1 * action[0], x), angle])

    def remember(self, m, before, action, after):
        return {"steps": before.memory["steps"] + 1.0}


class PutBackLoop(Loop):
    def begin(self, rng):
        self.steps = 0.0

    def control(self, action):
        if self.steps % 3 == 0:
            self.data.qpos[0] = 0.1 * action
        return action

    def remember(self):
        self.steps += 1

    def told(self):
        return [self.steps]


# a goal that lies the farther away, the more episodes came near theirs


@dataclass(frozen=True)
class Curriculum(Cart):
    def memory(self, m):
        return {"level": 1.0, "goal": 0.0, "nearest": 10.0}

    def begin(self, m, world):
        last = world.memory
        level = select(last["nearest"] < 0.05, last["level"] + 1.0, last["level"])
        return {"level": level, "goal": 0.05 * level * world.rng.uniform(-1.0, 1.0)}

    def remember(self, m, before, action, after):
        distance, nearest = absolute(after.qpos[0] - before.memory["goal"]), before.memory["nearest"]
        return {"nearest": select(distance < nearest, distance, nearest)}


class CurriculumLoop(Loop):
    level, nearest = 1.0, 10.0

    def begin(self, rng):
        self.level += self.nearest < 0.05
        self.goal, self.nearest = 0.05 * self.level * rng.uniform(-1, 1), 10.0

    def remember(self):
        self.nearest = min(self.nearest, abs(self.data.qpos[0] - self.goal))

    def told(self):
        return [self.level, self.goal, self.nearest]


# an observation with noise


@dataclass(frozen=True)
class Noisy(Cart):
    def observe(self, m, world):
        return [x + 0.1 * world.rng.normal() for x in [*world.qpos, *world.qvel]]


class NoisyLoop(Loop):
    def observation(self):
        rng = self.rng if self.elapsed else self.random(-1)
        return [x + 0.1 * rng.normal() for x in [*self.data.qpos, *self.data.qvel]]


CASES = {
    Goal: GoalLoop,
    Command: CommandLoop,
    Smooth: SmoothLoop,
    Late: LateLoop,
    Gait: GaitLoop,
    Pushed: PushedLoop,
    PutBack: PutBackLoop,
    Curriculum: CurriculumLoop,
    Noisy: NoisyLoop,
}


def make(task: type[Task], n: int = WORLDS, **arguments) -> TorchVectorEnv:
    arguments = {"autoreset_mode": "SameStep", "dtype": torch.float64} | arguments
    return TorchVectorEnv(task(), n, max_episode_steps=LIMIT, **arguments)


def actions(steps: int, n: int = WORLDS) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return (torch.rand(steps, n, 1, generator=generator, device="cpu", dtype=torch.float64) * 2 - 1).to(
        torch.empty(0).device
    )


@pytest.mark.parametrize("task", CASES)
def test_a_task_that_remembers_is_a_loop_over_mujoco(task):
    env, loops = make(task), [CASES[task](i) for i in range(WORLDS)]
    obs, _ = env.reset(seed=SEED)
    np.testing.assert_allclose(obs.cpu(), [loop.reset() for loop in loops], rtol=0, atol=1e-9)
    ended = 0
    for action in actions(3 * LIMIT + 5).to(env.device):
        obs, reward, terminated, truncated, info = env.step(action)
        for i, loop in enumerate(loops):
            final, want, fell, late = loop.step(float(action[i]))
            assert (bool(terminated[i]), bool(truncated[i])) == (fell, late)
            np.testing.assert_allclose(info["final_obs"][i].cpu(), final, rtol=0, atol=1e-9)
            assert float(reward[i]) == pytest.approx(want, abs=1e-8)
            if fell or late:
                final, ended = loop.reset(), ended + 1
            np.testing.assert_allclose(obs[i].cpu(), final, rtol=0, atol=1e-9)
    assert ended >= 3 * WORLDS
    if task is Curriculum:
        assert len({loop.level for loop in loops}) > 1, "no level was gained, or by all alike"
    if task is Command:
        assert {loop.age for loop in loops} != {loops[0].elapsed}


def run(env: TorchVectorEnv, steps: torch.Tensor) -> torch.Tensor:
    return torch.stack([torch.cat([(x := env.step(a.to(env.device)))[0], x[1][:, None]], 1) for a in steps])


@pytest.mark.parametrize("task", [Command, Noisy, Curriculum])
def test_random_numbers_are_of_seed_world_episode_and_step_alone(task):
    """So engines that share out the worlds draw what one would, and one that goes on from a state what it would."""
    steps = actions(30, 4)
    whole = make(task, 4)
    first, _ = whole.reset(seed=SEED)
    want = run(whole, steps)
    for half in range(2):
        env = make(task, 2, first_world=2 * half)
        assert torch.equal(env.reset(seed=SEED)[0], first[2 * half : 2 * half + 2])
        assert torch.equal(run(env, steps[:, 2 * half : 2 * half + 2]), want[:, 2 * half : 2 * half + 2])
    whole.reset(seed=SEED)
    run(whole, steps[:17])
    other = make(task, 4)
    other.load_state_dict(whole.state_dict())
    assert torch.equal(run(other, steps[17:]), want[17:])
    whole.reset(seed=SEED)
    assert torch.equal(run(whole, steps), want), "a seed begins everything anew, what outlasts episodes too"


def test_no_two_draws_are_the_same():
    """Not at a reset, in its beginning, or in steps, of any world or episode."""

    @dataclass(frozen=True)
    class Draws(Cart):
        def reset(self, m, rng):
            return [rng.uniform(), rng.uniform()], [0.0, 0.0]

        def memory(self, m):
            return {"drawn": [0.0, 0.0]}

        def begin(self, m, world):
            return {"drawn": [world.rng.uniform(), world.rng.uniform()]}

        def control(self, m, world, action):
            return [world.rng.uniform()]

        def remember(self, m, before, action, after):
            return self.begin(m, after)

        def observe(self, m, world):
            return [*world.qpos, *world.memory["drawn"], world.rng.uniform()]

    env = make(Draws)
    drawn = [env.reset(seed=0)[0]]
    for action in actions(40):
        obs, _, terminated, truncated, info = env.step(action.to(env.device))
        drawn += [info["final_obs"], obs[terminated | truncated]]
    numbers = torch.cat(drawn).flatten().cpu()
    assert len(numbers) == len(numbers.unique()) > 400


def test_set_state_gives_the_memory_that_the_episode_began_with():
    env = make(Goal)
    obs, _ = env.reset(seed=SEED)
    with pytest.raises(TypeError, match=r"memory\['goal'\] = ... would change nothing"):
        env.engine.memory["goal"] = obs[:, 0]
    offset = obs[:, 4] - obs[:, 0]
    run(env, actions(3))
    qpos = torch.full((WORLDS, 2), 0.125, dtype=torch.float64, device=env.device)
    env.set_state(qpos, torch.zeros_like(qpos), torch.tensor([True, False, True], device=env.device))
    goal = env.engine.memory["goal"]
    assert torch.allclose(goal[[0, 2]], 0.125 + offset[[0, 2]], rtol=0, atol=1e-15)
    assert torch.equal(goal[1], obs[1, 4])


@pytest.mark.parametrize("mode", ["NextStep", "Disabled"])
def test_a_world_that_is_stopped_keeps_its_memory_and_starts_the_next_episode_with_a_new_one(mode):
    env = make(Late, autoreset_mode=mode)
    env.reset(seed=0)
    run(env, actions(3))
    good, _, _, _, _ = env.step(torch.full((WORLDS, 1), 0.5, dtype=torch.float64, device=env.device))
    bad = torch.tensor([[0.1], [math.nan], [0.1]], dtype=torch.float64, device=env.device)
    obs, reward, terminated, _, info = env.step(bad)
    assert info["bad_state"].tolist() == [False, True, False] and terminated[1] and reward[1] == 0
    assert torch.equal(obs[1], good[1]) and not torch.equal(obs[0], good[0])
    if mode == "NextStep":
        env.step(bad)
    else:
        env.reset(options={"reset_mask": info["bad_state"]})
    assert env.engine.memory["underway"][1].tolist() == [0.0, 0.0]


def test_a_control_that_is_not_finite_stops_its_world():
    @dataclass(frozen=True)
    class Divides(Cart):
        def control(self, m, world, action):
            return [1.0 / action[0]]

    env = make(Divides, 2)
    env.reset(seed=0)
    action = torch.tensor([[0.0], [1.0]], dtype=torch.float64, device=env.device)
    obs, reward, terminated, _, info = env.step(action)
    assert info["bad_state"].tolist() == terminated.tolist() == [True, False]
    assert info["final_obs"].isfinite().all() and obs.isfinite().all() and reward[0] == 0


def test_memory_may_be_read_and_written_from_outside():
    env = make(Command)
    env.reset(seed=0)
    assert env.engine.memory["command"].shape == (WORLDS, 2) and env.engine.memory["age"].shape == (WORLDS,)
    with pytest.raises(ValueError, match=r"options has no 'command'.*is in env\.unwrapped\.engine\.memory"):
        env.reset(options={"command": [0.75, 0.0]})
    env.engine.memory["command"][:, 0] = 0.75
    obs, *_ = env.step(actions(1)[0].to(env.device))
    assert (obs[:, 4] == 0.75).all()


@pytest.mark.parametrize("kind", [Ant, Humanoid])
def test_what_a_subclass_adds_to_begin_is_of_an_episode_not_of_a_step(kind):
    @dataclass(frozen=True, kw_only=True)
    class ToGoal(kind):
        def memory(self, m):
            return super().memory(m) | {"goal": 0.0}

        def begin(self, m, world):
            return super().begin(m, world) | {"goal": world.rng.uniform()}

    task, m = ToGoal(), load(kind().load())
    data = SimpleNamespace(xpos=[[1.0, 2.0, 3.0]] * m.nbody, xipos=[[1.0, 2.0, 3.0]] * m.nbody)
    world = World(list(m.qpos0), [0.0] * m.nv, {}, data, Random(0, 0))
    began, remembered = task.begin(m, world), task.remember(m, world, [0.0] * m.nu, world)
    assert began.keys() - remembered.keys() == {"goal"}
    assert remembered == {name: pytest.approx([1.0, 2.0]) for name in kind().memory(m)}


# everywhere that tasks go


def test_one_world_for_numpy_is_world_0():
    single, many = TorchEnv(Command()), make(Command, 1, autoreset_mode="Disabled")
    want, _ = many.reset(seed=SEED)
    assert np.array_equal(single.reset(seed=SEED)[0], want[0].cpu().numpy())
    for action in actions(8, 1):
        obs, reward, *_ = single.step(action[0].cpu().numpy())
        want, expected, *_ = many.step(action.to(many.device))
        assert np.array_equal(obs, want[0].cpu().numpy()) and reward == float(expected)


def test_a_rollout_and_compiled_steps_do_the_same():
    def policy(obs: torch.Tensor) -> torch.Tensor:
        return obs[:, 4:5].tanh()

    env = make(Command)
    obs, _ = env.reset(seed=SEED)
    start, want = env.state_dict(), []
    for _ in range(15):
        obs, reward, *_ = env.step(policy(obs))
        want.append(reward)
    env.load_state_dict(start)
    assert torch.equal(env.capture(policy, 15)()["reward"], torch.stack(want))
    env.load_state_dict(start)
    step = torch.compile(lambda obs: env.step(policy(obs))[:2], backend="aot_eager")
    obs = env.engine.obs.clone()
    for reward in want:
        obs, found = step(obs)
        assert torch.equal(found, reward)


def test_torchrl_s_environment_does_the_same():
    pytest.importorskip("torchrl")
    from torch_mjenvs import TorchRLEnv

    env = TorchRLEnv(Command(), WORLDS, dtype=torch.float64, max_episode_steps=LIMIT)
    env.set_seed(SEED)
    many = make(Command)
    obs, _ = many.reset(seed=SEED)
    data = env.reset()
    assert torch.equal(data["observation"], obs)
    for action in actions(9).to(env.device):
        data, following = env.step_and_maybe_reset(data.set("action", action))
        obs, *_, info = many.step(action)
        assert torch.equal(data["next", "observation"], info["final_obs"])
        data = following
        assert torch.equal(data["observation"], obs)
    kept = env.get_state()
    env.step(env.rand_action(data.clone()))
    assert torch.equal(env.reset(kept, set_state=True)["observation"], obs)


@dataclass(frozen=True)
class Trials(Cart):
    """A goal that lasts for two episodes, as docs/meta_learning.md draws it; carts fall in some of them."""

    max_episode_steps = 9

    def memory(self, m):
        return {"goal": 0.0, "nth": -1.0}

    def begin(self, m, world):
        nth = world.memory["nth"] + 1.0
        new = (nth < 0.5) | (nth > 1.5)
        goal = select(new, world.rng.uniform(), world.memory["goal"])
        return {"goal": goal, "nth": select(new, 0.0, nth)}

    def reset_info(self, m, world):
        return {"nth": world.memory["nth"]}

    def outcome(self, m, before, action, after):
        return Outcome(1.0, absolute(after.qpos[1]) > 0.12, {"nth": after.memory["nth"]})


@pytest.mark.parametrize("mode", ["SameStep", "NextStep", "Disabled"])
def test_a_task_lasts_for_a_trial_of_episodes(mode):
    env = TorchVectorEnv(Trials(), 8, autoreset_mode=mode)
    env.reset(seed=0)
    told = []
    for action in actions(60, 8):
        *_, terminated, truncated, _ = env.step(action.to(env.device))
        if mode == "Disabled" and (terminated | truncated).any():
            env.reset(options={"reset_mask": terminated | truncated})
        memory = env.engine.memory
        told.append(torch.stack([env.engine.episode.float(), memory["nth"], memory["goal"]]))
    episode, nth, goal = torch.stack(told, 1).cpu()
    assert torch.equal(nth, (episode - 1) % 2) and len(episode[-1].unique()) > 1
    for world in range(8):
        trial = (episode[:, world] - 1) // 2
        goals = [goal[trial == k, world].unique() for k in trial.unique()]
        assert all(len(x) == 1 for x in goals) and len(torch.cat(goals).unique()) == len(goals) > 3
    env.engine.memory["nth"].fill_(-1.0)
    env.reset()
    assert not env.engine.memory["nth"].any()


def test_torchrl_may_be_shown_the_ends_of_trials_alone():
    pytest.importorskip("torchrl")
    from torchrl.envs import Compose, InitTracker, RewardSum, Transform, TransformedEnv

    from torch_mjenvs import TorchRLEnv

    class OfTrials(Transform):
        def _step(self, tensordict, next_tensordict):
            over = next_tensordict["done"] & (next_tensordict["nth"] < 0.5)
            return next_tensordict.update({"done": over, "truncated": over, "terminated": torch.zeros_like(over)})

    base = TorchRLEnv(Trials(), 8, native_autoreset=True, info_keys=("nth",))
    env = TransformedEnv(base, Compose(OfTrials(), InitTracker(), RewardSum()))
    env.set_seed(0)
    data = env.rollout(60, break_when_any_done=False)
    done, nth = data["next", "done"][:, :-1, 0], data["nth"][..., 0]
    begins = (nth[:, 1:] < 0.5) & (nth[:, :-1] > 0.5)
    assert torch.equal(done, begins) and torch.equal(data["is_init"][:, 1:, 0], begins)
    assert begins.sum(1).min() > 1 and (nth[:, 1:] - nth[:, :-1] > 0.5).any()
    step = torch.arange(60, device=base.device)
    since = step - torch.where(data["is_init"][..., 0], step, 0).cummax(1).values
    sums, ended = data["next", "episode_reward"][..., 0], data["next", "done"][..., 0]
    assert torch.equal(sums[~ended], since[~ended] + 1.0)  # they go on over the end of an episode

"""Tables of a task: numbers that all worlds read, each at rows of its own."""

from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from torch_mjenvs import Outcome, Task, TorchEnv, TorchVectorEnv
from torch_mjenvs.compiler.control import repeat
from torch_mjenvs.envs.tasks.base import World
from torch_mjenvs.scalar import NumberTable, Random, absolute
from torch_mjenvs.training.worlds import made_of

WORLDS, ROWS = 5, 7
MOTION = np.random.default_rng(0).uniform(-0.2, 0.2, (ROWS, 2, 2))  # of each frame qpos and qvel
STARTS = np.array([1, 4, 6])


@dataclass(frozen=True)
class Follow(Task):
    """A cart that begins at a frame of a motion, and is to follow it."""

    xml_file: str = "inverted_pendulum.xml"
    frame_skip: int = 2
    scale: float = 1.0

    def tables(self, m):
        return {"motion": self.scale * MOTION, "starts": STARTS}

    def memory(self, m):
        return {"frame": 0.0}

    def first(self, world):
        return world.tables["starts"][world.rng.integers(len(world.tables["starts"]))]

    def reset(self, m, rng, world):
        return tuple(world.tables["motion"][self.first(world)])

    def begin(self, m, world):
        return {"frame": world.rng.integers(ROWS)}

    def control(self, m, world, action):
        return [action[0] + world.tables["motion"][world.memory["frame"], 0, 0]]

    def remember(self, m, before, action, after):
        return {"frame": before.memory["frame"] + 1.0}

    def observe(self, m, world):
        return [*world.qpos, *world.qvel, *world.tables["motion"][world.memory["frame"], 1], world.memory["frame"]]

    def outcome(self, m, before, action, after):
        wanted = after.tables["motion"][after.memory["frame"]]
        error = sum((x - y) * (x - y) for x, y in zip(after.qpos + after.qvel, [*wanted[0], *wanted[1]], strict=True))
        return Outcome(-error, absolute(after.qpos[1]) > 0.3)


def environment(task: Task = Follow(), **changed: Any) -> TorchVectorEnv:
    return TorchVectorEnv(task, WORLDS, **{"dtype": torch.float64, "max_episode_steps": 4} | changed)


def rows(x: torch.Tensor, table: np.ndarray = MOTION) -> torch.Tensor:
    """The rows of a table that these worlds read: the nearest that there are."""
    return torch.as_tensor(table, dtype=x.dtype, device=x.device)[x.long().clamp(0, len(table) - 1)]


def action(k: int = 0) -> torch.Tensor:
    return torch.linspace(-1, 1, WORLDS, dtype=torch.float64)[:, None] * (k % 3 - 1)


def same(a: TorchVectorEnv, b: TorchVectorEnv, steps: int = 9) -> bool:
    """Whether two environments give the same numbers from now on, over several episodes."""
    found = []
    for env in (a, b):
        outputs = [env.step(action(k)) for k in range(steps)]
        found.append(torch.cat([torch.cat([obs, reward[:, None]], 1) for obs, reward, *_ in outputs]))
    return torch.equal(*found)


@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
def test_worlds_read_their_own_rows(mode):
    env = environment(autoreset_mode=mode)
    obs, _ = env.reset(seed=3)
    starts = torch.as_tensor(MOTION.reshape(ROWS, 4)[STARTS], device=obs.device)
    assert (obs[:, None, :4] == starts).all(-1).any(-1).all()  # each world begins at one of these
    assert len({*obs[:, 0].tolist()}) > 1
    for k in range(4):  # so that some worlds pass the last row
        obs, reward, *_ = env.step(action(k))
        frame = env.engine.memory["frame"]
        torch.testing.assert_close(obs[:, 4:], torch.cat([rows(frame)[:, 1], frame[:, None]], 1), rtol=0, atol=0)
        if k < 2:
            wanted = rows(frame).reshape(WORLDS, 4)
            torch.testing.assert_close(reward, -((obs[:, :4] - wanted) ** 2).sum(1), rtol=1e-12, atol=1e-14)
    assert frame.max() > ROWS - 1 or mode != "Disabled"


def test_what_is_written_into_a_table_counts_from_the_next_step_on():
    """... and the environment is then, bit for bit, one that was made with these numbers."""
    env, other = environment(), environment(Follow(scale=0.5))
    for x in (env, other):
        x.reset(seed=1)
    assert not same(env, other)
    env.engine.tables["motion"].mul_(0.5)
    for x in (env, other):
        x.reset(seed=1)
    assert same(env, other)
    assert same(copy.deepcopy(env), other)
    with pytest.raises(TypeError, match=r"tables\['motion'\] = ... would change nothing"):
        env.engine.tables["motion"] = env.engine.tables["motion"] * 2


def test_tables_may_be_drawn_when_an_environment_is_made():
    class Drawn(Follow):
        def tables(self, m):
            return {"motion": 0.1 * np.random.rand(ROWS, 2, 2), "starts": torch.randperm(ROWS)}  # noqa: NPY002

    env = environment(Drawn())
    obs, _ = env.reset(seed=3)
    frame = env.engine.memory["frame"]
    assert torch.equal(obs[:, 4:6], env.engine.tables["motion"][frame.long(), 1])


def test_nan_in_a_table_ends_the_worlds_whose_control_it_makes_bad():
    env = environment(autoreset_mode="Disabled")
    env.reset(seed=3)
    frame = env.engine.memory["frame"].clone()
    chosen = frame == frame[0]
    env.engine.tables["motion"][frame[0].long().clamp(max=ROWS - 1)] = float("nan")
    _, _, terminated, _, info = env.step(action())
    assert torch.equal(info["bad_state"].bool(), chosen)
    assert torch.equal(terminated, chosen)
    assert not chosen.all()


def test_copies_have_the_tables_as_they_are_now():
    env = environment()
    env.reset(seed=1)
    env.engine.tables["motion"].neg_()
    copies = copy.deepcopy(env), pickle.loads(pickle.dumps(env))
    assert same(copies[0], env)
    assert torch.equal(copies[1].engine.tables["motion"], env.engine.tables["motion"])
    assert "motion" not in " ".join(env.state_dict())


def test_a_run_records_the_tables_of_its_task():
    """So that a note says so where a run goes on with another file of motions."""
    ours, others = made_of(environment()), made_of(environment(Follow(scale=0.5)))
    assert ours["table motion"] != others["table motion"]
    assert ours["table starts"] == others["table starts"]


def test_single_worlds_and_rollouts_read_tables():
    single = TorchEnv(Follow(), dtype=torch.float64)
    obs, _ = single.reset(seed=2)
    assert np.array_equal(obs[4:6], MOTION[int(obs[6]), 1])
    env, stepped = environment(), environment()
    for x in (env, stepped):
        x.reset(seed=4)
    found = env.capture(lambda obs: 0.1 * obs[:, :1], 6)()
    for t in range(6):
        obs, reward, *_ = stepped.step(0.1 * found["obs"][t, :, :1])
        assert torch.equal(reward, found["reward"][t])


def test_resets_that_are_computed_ahead_follow_a_table():
    class Ahead(Follow):
        resets_ahead = True

        def reset(self, m, rng, world):
            return tuple(world.tables["motion"][rng.integers(ROWS)])

    class Now(Ahead):
        resets_ahead = False

    env, other = environment(Ahead(), max_episode_steps=2), environment(Now(), max_episode_steps=2)
    for x in (env, other):
        x.reset(seed=1)
    assert same(env, other, 40)
    for x in (env, other):
        x.engine.tables["motion"].mul_(0.5)
    assert same(env, other, 40)


def test_worlds_with_models_of_their_own_read_tables_in_every_method():
    class Drawn(Follow):
        def randomize(self, m, rng, world):
            return {"body_mass": [0.0, *(1.0 + abs(world.tables["motion"][k, 0, 0]) for k in (0, 1))]}

        def substep_control(self, m, world, targets):
            return [targets[0] + world.tables["starts"][1]]

    env = environment(Drawn())
    env.reset(seed=1)
    wanted = torch.as_tensor([0.0, *(1.0 + abs(MOTION[:2, 0, 0]))], dtype=torch.float64, device=env.device)
    assert torch.equal(env.params["body_mass"], wanted.expand(WORLDS, 3))
    frame = env.engine.memory["frame"].clone()
    env.step(action(1))
    torch.testing.assert_close(env.engine.ctrl[:, 0], rows(frame)[:, 0, 0] + 4.0, rtol=0, atol=1e-15)


def test_a_loop_reads_the_row_of_its_counter():
    class Sum(Follow):
        def observe(self, m, world):
            return [repeat(ROWS, lambda i, c: c + world.tables["motion"][i, 0, 0], 0.0)]

    obs, _ = environment(Sum()).reset(seed=1)
    assert torch.allclose(obs, torch.full_like(obs, MOTION[:, 0, 0].sum()), rtol=1e-15)


def test_gradients_go_past_tables():
    env = environment()
    env.reset(seed=1)
    state, engine = env.state_dict(), env.engine
    state = {name: x for name, x in state.items() if name in engine._views}

    def reward(a: torch.Tensor) -> torch.Tensor:
        return engine.transition(state, a)["reward"]

    a = 0.3 * action(2)
    (found,) = torch.autograd.grad(reward(a.requires_grad_()).sum(), a)
    h = 1e-6
    wanted = (reward(a.detach() + h) - reward(a.detach() - h)) / (2 * h)
    torch.testing.assert_close(found[:, 0], wanted, rtol=1e-6, atol=1e-9)
    mapped = torch.vmap(lambda s, x: engine.transition(s, x)["reward"])(state, a.detach())
    assert torch.equal(mapped, reward(a.detach()))
    env.step(a.detach())
    assert torch.equal(mapped, engine.reward)


def test_a_task_reads_tables_on_plain_numbers():
    task = Follow()
    m = environment().engine.model
    tables = {name: NumberTable(np.asarray(x)) for name, x in task.tables(m).items()}
    world = World([0.0] * 2, [0.0] * 2, {"frame": 3.0}, None, Random(1, 0), tables=tables)  # type: ignore[arg-type]
    assert task.observe(m, world)[4:6] == MOTION[3, 1].tolist()
    assert [*task.reset(m, world.rng, world)] in MOTION[STARTS].tolist()
    frames = torch.tensor([-1.0, 2.0, 9.0])
    assert torch.equal(tables["motion"][frames, 0][1], torch.as_tensor(MOTION[[0, 2, ROWS - 1], 0, 1]))


@pytest.mark.parametrize(
    ("given", "kind", "says"),
    [
        ([MOTION], TypeError, "must give a dict of arrays by name, not a list"),
        ({3: MOTION}, TypeError, "names of tables are strings"),
        ({"motion": [[1.0, 2.0], [3.0]]}, ValueError, "'motion' is no array"),
        ({"motion": "walk.npz"}, TypeError, "must be an array of numbers"),
        ({"motion": np.zeros((0, 3))}, ValueError, r"must have rows .* and is of shape \(0, 3\)"),
        ({"motion": 3.0}, ValueError, "must have rows"),
        ({"motion": np.where(np.arange(ROWS)[:, None] == 2, np.nan, 0.0)}, ValueError, r"'motion'\[2, 0\] is nan"),
        ({"motion": np.array([1.0, 1e39])}, ValueError, r"'motion'\[1\] is 1e\+39"),
        ({"motion": np.zeros(2**24 + 1, np.int8)}, ValueError, "16777216 rows"),
    ],
)
def test_what_cannot_be_a_table_is_refused(given, kind, says):
    class Wrong(Follow):
        def tables(self, m):
            return given

    with pytest.raises(kind, match=rf"Wrong.tables \(.*{says}"):
        environment(Wrong())


@pytest.mark.parametrize(
    ("read", "kind", "says"),
    [
        (lambda table, row: table[ROWS], IndexError, "no row 7 in a table of 7 rows"),
        (lambda table, row: table[np.int64(-1)], IndexError, "no row -1"),
        (lambda table, row: table[row, 2], IndexError, "index 2 is out of bounds"),
        (lambda table, row: table[1:3], TypeError, "not a slice"),
        (lambda table, row: table[row > 1.0], TypeError, "not a mask"),
        (lambda table, row: table["frame"], TypeError, "not a str"),
        (lambda table, row: list(table), TypeError, "not iterable"),
    ],
)
def test_what_is_no_row_is_refused(read, kind, says):
    class Wrong(Follow):
        def observe(self, m, world):
            return read(world.tables["motion"], world.memory["frame"])[0]

    with pytest.raises(kind, match=says):
        environment(Wrong())

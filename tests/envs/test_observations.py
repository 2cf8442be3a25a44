"""Observations by name and in groups, noise and histories by name, beside plain Python around MuJoCo C."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import gymnasium
import mujoco
import numpy as np
import oracle
import pytest
import torch
from gymnasium.spaces import Box, Dict
from gymnasium.utils.env_checker import check_env
from named import SHAPES, TRUE_WIDTH, TRUTH, WIDTH, Grouped, Named

from torch_mjenvs import Normal, Outcome, Task, TorchEnv, TorchVectorEnv, wrappers
from torch_mjenvs.compiler.show import show
from torch_mjenvs.envs.parts import mapped
from torch_mjenvs.scalar import Random

N, SEED = 5, 7


def make(task: Any = Named, mode: str = "SameStep", **kwargs: Any) -> TorchVectorEnv:
    return TorchVectorEnv(task, N, dtype=torch.float64, autoreset_mode=mode, **kwargs)


def actions(steps: int) -> torch.Tensor:
    generator = torch.Generator(device="cpu").manual_seed(0)
    return (6 * torch.rand(steps, N, 1, generator=generator, dtype=torch.float64, device="cpu") - 3).to(
        torch.get_default_device()
    )


def flat(obs: Any) -> torch.Tensor:
    """(N, D), in the order of the names."""
    if not isinstance(obs, dict):
        return obs.reshape(N, -1)
    return torch.cat([flat(x) for x in obs.values()], 1)


def shapes(tree: Any, skip: int = 0) -> Any:
    return {k: shapes(x, skip) for k, x in tree.items()} if isinstance(tree, dict) else tuple(tree.shape)[skip:]


class Loop:
    """One world of `Grouped` as one would write it with MuJoCo's Python bindings."""

    def __init__(self, world: int):
        self.task, self.world, self.episode = Grouped(), world, -1
        self.model = oracle.sharpen(self.task.load())
        self.data = mujoco.MjData(self.model)

    def random(self, what: int) -> Any:
        return Random(SEED, self.world, self.episode, 0, what)

    def reset(self) -> dict[str, Any]:
        mujoco.mj_resetData(self.model, self.data)
        self.episode, self.elapsed = self.episode + 1, 0
        self.data.qpos[:], self.data.qvel[:] = self.task.reset(self.model, self.random(0))
        self.angles: deque = deque(maxlen=3)
        self.tables: deque = deque(maxlen=2)
        return self.observe(self.random(-1))

    def step(self, action: float) -> tuple[dict[str, Any], bool]:
        self.elapsed += 1
        self.data.ctrl[:] = action
        mujoco.mj_step(self.model, self.data, 2)
        obs = self.observe(self.random(self.elapsed))
        return obs, abs(self.data.qpos[1]) > 0.3 or self.elapsed >= Named.max_episode_steps

    def observe(self, rng: Any) -> dict[str, Any]:
        world = SimpleNamespace(qpos=self.data.qpos.tolist(), qvel=self.data.qvel.tolist(), rng=rng)
        seen = self.task.observe(self.model, world)["policy"]
        seen["speeds"][1] += rng.uniform(-0.1, 0.1)
        angle = seen["angle"] + 0.02 * rng.normal()
        for last, x in ((self.angles, angle), (self.tables, seen["table"])):
            last.extend([x] * (1 if last else last.maxlen or 0))
        policy = {"speeds": seen["speeds"], "angle": list(self.angles), "table": list(self.tables)}
        return {"policy": policy, "privileged": {"speeds": world.qvel, "angle": world.qpos[1]}}


def close(obs: dict[str, Any], expected: list[dict[str, Any]]) -> None:
    for group, names in expected[0].items():
        assert list(obs[group]) == list(names)
        for name in names:
            told = np.array([one[group][name] for one in expected])
            np.testing.assert_allclose(obs[group][name].cpu().numpy(), told, rtol=1e-10, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("mode", ["SameStep", "NextStep", "Disabled"])
def test_noise_and_histories_are_those_of_a_loop_over_mujoco(mode):
    env, loops = make(Grouped, mode), [Loop(i) for i in range(N)]
    obs, _ = env.reset(seed=SEED)
    close(obs, [loop.reset() for loop in loops])
    ended, ends = np.zeros(N, bool), 0
    for action in actions(40):
        obs, _, terminated, truncated, info = env.step(action)
        expected, finals = [], []
        for i, loop in enumerate(loops):
            if ended[i] and mode == "NextStep":
                expected.append(loop.reset())
                ended[i] = False
                continue
            seen, ended[i] = loop.step(float(action[i, 0]))
            finals.append(seen)
            expected.append(loop.reset() if ended[i] and mode == "SameStep" else seen)
        np.testing.assert_array_equal((terminated | truncated).cpu().numpy(), ended)
        ends += int(ended.sum())
        close(obs, expected)
        if mode == "SameStep":
            close(info["final_obs"], finals)
        if mode == "Disabled" and ended.any():
            obs, _ = env.reset(options={"reset_mask": ended})
            close(obs, [loops[i].reset() if ended[i] else expected[i] for i in range(N)])
            ended[:] = False
    assert ends > 2 * N


# -- what users see ----------------------------------------------------------------------------------------------------


def test_names_are_parts_of_one_row_in_the_tasks_order():
    env, row = make(copy=False), make(observation="flat")
    space = env.single_observation_space
    assert (
        isinstance(space, Dict)
        and list(space) == list(SHAPES)
        and row.single_observation_space == Box(-np.inf, np.inf, (WIDTH,), np.float64)
    )
    assert {name: x.shape for name, x in space.items()} == SHAPES
    assert {name: x.shape for name, x in env.observation_space.items()} == {k: (N, *x) for k, x in SHAPES.items()}
    assert list(env.observation_space) == list(SHAPES)
    obs, _ = env.reset(seed=1)
    rows, _ = row.reset(seed=1)
    assert shapes(obs, 1) == SHAPES and torch.equal(flat(obs), rows)
    addresses = [x.data_ptr() for x in obs.values()]
    for action in actions(3):
        obs, *_ = env.step(action)
        assert [x.data_ptr() for x in obs.values()] == addresses and addresses[0] == env.engine.obs.data_ptr()
        assert torch.equal(flat(obs), row.step(action)[0]) and torch.equal(flat(env.obs), flat(obs))


def test_what_is_handed_out_is_a_copy():
    env = make()
    obs, _ = env.reset(seed=1)
    before = flat(obs)
    for action in actions(2):
        env.step(action)
    assert torch.equal(flat(obs), before)


def test_groups_are_dicts_of_dicts_or_of_rows():
    env, rows = make(Grouped), make(Grouped, observation="flat")
    obs, _ = env.reset(seed=1)
    assert shapes(obs, 1) == {"policy": SHAPES, "privileged": TRUTH}
    assert {k: {n: x.shape for n, x in g.items()} for k, g in env.single_observation_space.items()} == shapes(obs, 1)
    joined, _ = rows.reset(seed=1)
    assert shapes(joined, 1) == {"policy": (WIDTH,), "privileged": (TRUE_WIDTH,)}
    assert {k: x.shape for k, x in rows.single_observation_space.items()} == shapes(joined, 1)
    assert all(torch.equal(flat(obs[name]), joined[name]) for name in obs)


def test_groups_may_be_lists():
    class Lists(Named):
        noise, history = {}, {}

        def observe(self, m, world):
            return {"policy": list(world.qpos), "critic": [*world.qpos, *world.qvel]}

    for form in ("dict", "flat"):
        obs, _ = make(Lists, observation=form).reset(seed=0)
        assert shapes(obs, 1) == {"policy": (2,), "critic": (4,)}


def test_a_list_is_what_it_was():
    for form in ("dict", "flat"):
        env = TorchVectorEnv("InvertedPendulum", 2, observation=form)
        obs, _ = env.reset(seed=0)
        assert isinstance(env.single_observation_space, Box) and obs.shape == (2, 4)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("task", [Named, Grouped])
@pytest.mark.parametrize("form", ["dict", "flat"])
def test_a_single_world_passes_gymnasiums_checks(task, form):
    env = TorchEnv(task, observation=form)
    check_env(env, skip_render_check=True)
    obs, _ = env.reset(seed=3)
    lone = TorchVectorEnv(task, 1, dtype=torch.float64, observation=form)
    expected, _ = lone.reset(seed=[3])
    assert env.observation_space.contains(obs)
    parts = zip(gymnasium.spaces.utils.flatten(env.observation_space, obs), lone.engine.obs[0].tolist(), strict=True)
    assert all(a == b for a, b in parts), "Gymnasium flattens in the task's order"
    assert shapes(obs) == shapes(expected, 1)


def test_make_vec_takes_the_form():
    gymnasium.register("TorchNamedCart-v0", vector_entry_point=TorchVectorEnv, kwargs={"task": Named})
    try:
        env = gymnasium.make_vec("TorchNamedCart-v0", num_envs=2, observation="flat")
        assert env.reset(seed=0)[0].shape == (2, WIDTH)
        assert list(gymnasium.make_vec("TorchNamedCart-v0", num_envs=2).reset()[0]) == list(SHAPES)
    finally:
        del gymnasium.registry["TorchNamedCart-v0"]
    with pytest.raises(ValueError, match="observation must be 'dict' or 'flat', not 'rows'"):
        TorchVectorEnv(Named, observation="rows")


# -- the state ---------------------------------------------------------------------------------------------------------


def test_a_checkpoint_in_the_middle_of_histories_goes_on_bit_for_bit():
    env, moves = make(), actions(20)
    env.reset(seed=2)
    for action in moves[:8]:
        env.step(action)
    state, twin = env.state_dict(), copy.deepcopy(env)
    assert state["history"].shape == (N, 2 * 1 + 1 * 4)
    after = [flat(env.step(action)[0]) for action in moves[8:]]
    fresh = make()
    fresh.load_state_dict(state)
    for action, obs in zip(moves[8:], after, strict=True):
        assert torch.equal(flat(fresh.step(action)[0]), obs) and torch.equal(flat(twin.step(action)[0]), obs)


def test_a_state_that_is_set_fills_the_histories_of_these_worlds():
    env = make()
    env.reset(seed=2)
    for action in actions(4):
        env.step(action)
    before, chosen = env.obs["angle"].clone(), torch.arange(N, device=env.device) < 2
    env.set_state(torch.full_like(env.qpos, 0.05), env.qvel.clone(), chosen)
    angle, table = env.obs["angle"], env.obs["table"]
    assert torch.equal(angle[2:], before[2:]) and (before[:, 1] != before[:, 2]).any()
    assert (angle[:2] == angle[:2, :1]).all() and ((angle[:2] - 0.05).abs() < 0.2).all()
    assert (table[:2, 0] == table[:2, 1]).all()
    then = angle.clone()
    obs, *_ = env.step(actions(1)[0])
    assert torch.equal(obs["angle"][:, :2], then[:, 1:])


# -- what it costs -----------------------------------------------------------------------------------------------------


class Plain(Named):
    noise, history = {}, {}


def test_noise_of_0_and_no_history_cost_nothing():
    class Zeros(Named):
        noise = {"speeds": [0.0, 0], "angle": Normal(0.0), "table": 0.0}  # noqa: RUF012
        history = {"angle": 0}  # noqa: RUF012

    kernels = []
    for task in (Plain, Zeros, Named):
        env = make(task)
        kernels.append([show(env.engine._episode.program(what, "float64")) for what in ("step", "reset")])
        assert ("history" in env.engine.buffers) is (task is Named)
    assert kernels[0] == kernels[1] != kernels[2]


def test_single_precision_noise_has_its_size():
    class Noisy(Named):
        noise = {"speeds": 0.3, "angle": Normal(0.2), "table": [[0.0, 0.1], [0.0, 0.0]]}  # noqa: RUF012
        history = {}  # noqa: RUF012

        def reset(self, m, rng):
            return [0.0, 0.0], [0.0, 0.0]

    obs, _ = TorchVectorEnv(Noisy, 4096).reset(seed=0)
    speeds, angle, table = (x.double() for x in obs.values())
    assert (speeds.abs() <= 0.3).all() and abs(speeds.std() - 0.3 / 3**0.5) < 0.005 and abs(speeds.mean()) < 0.01
    assert abs(angle.std() - 0.2) < 0.01 and (angle.abs() > 0.4).any()
    assert (table[:, 0, 0] == 0).all() and 0.09 < table[:, 0, 1].abs().max() <= 0.1 and (table[:, 1, 0] == 0).all()
    assert abs(torch.corrcoef(torch.stack([speeds[:, 0], speeds[:, 1]]))[0, 1]) < 0.06


# -- what cannot be ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Given(Named):
    """Gives this, with these tables."""

    gives: Callable[[Any], Any] = lambda world: {"a": list(world.qpos), "b": world.qvel[0]}
    noise: Any = field(default_factory=dict)  # type: ignore[misc]
    history: Any = field(default_factory=dict)  # type: ignore[misc]

    def observe(self, m, world):
        return self.gives(world)


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"noise": {"c": 0.1}}, ValueError, r"Given.noise names \['c'\], and observe has the names \['a', 'b'\]"),
        ({"history": {"c": 2}}, ValueError, r"Given.history names \['c'\]"),
        ({"noise": {"a": -0.1}}, ValueError, "noise 'a' must be of finite numbers from 0 on, not -0.1"),
        ({"noise": {"a": Normal(float("nan"))}}, ValueError, "noise 'a' must be of finite numbers"),
        ({"noise": {"a": [0.1, 0.2, 0.3]}}, ValueError, r"noise 'a' is of shape \(3,\), and the entry of shape \(2,\)"),
        ({"noise": {"a": "much"}}, TypeError, "noise 'a' must be a number"),
        ({"noise": {"a": True}}, TypeError, "noise 'a' must be a number"),
        ({"noise": 0.1}, TypeError, "Given.noise must be a dict by the names of observe, not 0.1"),
        ({"history": {"a": -1}}, ValueError, "history 'a' must be a whole number from 0 on"),
        ({"history": {"a": 1.5}}, ValueError, "history 'a' must be a whole number"),
        ({"gives": lambda w: [*w.qpos], "noise": {"a": 0.1}}, ValueError, "observe gives no names, but a list"),
        ({"gives": lambda w: {"a": {"x": 1.0}, "b": 1.0}}, ValueError, r"\['a'\] are dicts, .* and \['b'\] are not"),
        ({"gives": lambda w: {"a": {"x": {"y": 1.0}}}}, ValueError, "'a' holds groups"),
        ({"gives": lambda w: {"policy": 1.0, "b": [1.0]}}, ValueError, "'policy' is the name of a group"),
        ({"gives": lambda w: {"a": []}}, ValueError, "'a' is an empty list"),
        ({"gives": lambda w: {"a": [[1.0, 2.0], [3.0]]}}, ValueError, "'a' must be of lists that are all of one shape"),
        ({"gives": lambda w: {"a": [1.0, "x"]}}, TypeError, r"a\[1\] must be a number"),
        (
            {"gives": lambda w: {"actor": {"a": w.qpos}, "critic": {"b": w.qvel}}, "noise": {"a": 0.1}}, ValueError,
            r"names of the group 'policy', and the groups of observe are \['actor', 'critic'\]",
        ),
        ({"gives": lambda w: {}}, ValueError, "names that are strings"),
        ({"gives": lambda w: {1: 2.0}}, ValueError, "names that are strings"),
        (
            {"gives": lambda w: {"policy": {"a": 1.0}, "truth": {"b": 1.0}}, "noise": {"b": 1.0}},
            ValueError, r"observe has the names \['a'\] of the group 'policy'",
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_by_name(changes, error, said):
    with pytest.raises(error, match=said):
        TorchVectorEnv(replace(Given(), **changes), 1)


def test_names_that_change_from_call_to_call_are_refused():
    calls = []

    def turning(world):
        calls.append(1)
        first = len(calls) in (1, 2)  # each call is made twice
        return {"a": 1.0, "b": world.qpos[0]} if first else {"b": world.qpos[0], "a": 1.0}

    with pytest.raises(ValueError, match="always the same names and shapes, in the same order"):
        TorchVectorEnv(Given(gives=turning), 1)


def test_an_attribute_that_is_no_dict_is_refused_also_where_the_observation_is_a_list():
    class Mine(Named):
        history = 3  # type: ignore[assignment]

        def observe(self, m, world):
            return world.qpos

    with pytest.raises(TypeError, match=r"Mine.history must be a dict by the names of observe, not 3"):
        TorchVectorEnv(Mine(), 2)


def test_a_task_of_a_list_may_have_a_field_named_noise():
    @dataclass(frozen=True)
    class Own(Named):
        noise: float = 0.5  # type: ignore[assignment,misc]
        history: int = 3  # type: ignore[assignment,misc]

        def observe(self, m, world):
            return [self.noise * x for x in world.qpos]

    assert TorchVectorEnv(Own(), 1).reset(seed=0)[0].shape == (1, 2)


# -- wrappers ----------------------------------------------------------------------------------------------------------

WRAPPERS: dict[str, Callable[[Any], Any]] = {
    "NormalizeObservation": wrappers.NormalizeObservation,
    "DtypeObservation": lambda env: wrappers.DtypeObservation(env, torch.float32),
    "ObservationNoise": lambda env: wrappers.ObservationNoise(env, 0.1),
    "ObservationNoise by number": lambda env: wrappers.ObservationNoise(env, np.linspace(0, 1, WIDTH + TRUE_WIDTH)),
    "TransformObservation": lambda env: wrappers.TransformObservation(env, twice),
    "RecordEpisodeStatistics": wrappers.RecordEpisodeStatistics,
    "several": lambda env: wrappers.NormalizeObservation(
        wrappers.RescaleAction(wrappers.ObservationNoise(env, 0.1), -1, 1)
    ),
}


def twice(x: Any) -> Any:
    return {k: twice(y) for k, y in x.items()} if isinstance(x, dict) else 2 * x


@pytest.mark.parametrize("mode", ["SameStep", "NextStep"])
@pytest.mark.parametrize("name", WRAPPERS)
def test_wrappers_do_by_name_what_they_do_to_the_row(name, mode):
    def seeded(env):
        torch.manual_seed(0)
        return WRAPPERS[name](env)

    env, row = seeded(make(Grouped, mode)), seeded(wrappers.FlattenObservation(make(Grouped, mode)))
    assert isinstance(row.single_observation_space, Box)
    (obs, _), (rows, _) = env.reset(seed=1), row.reset(seed=1)
    for action in actions(15):
        assert torch.equal(flat(obs), rows) and torch.equal(flat(env.obs), rows)
        assert shapes(obs, 1) == {"policy": SHAPES, "privileged": TRUTH}
        assert all(x.dtype == y.dtype for x, y in zip(obs["policy"].values(), torch_dtypes(env)["policy"], strict=True))
        obs, *_, info = env.step(action)
        rows, *_, flat_info = row.step(action)
        if mode == "SameStep":
            assert torch.equal(flat(info["final_obs"]), flat_info["final_obs"])
    data, flat_data = env.capture(idle, 4)(), row.capture(idle, 4)()
    joined = torch.cat([x.reshape(4, N, -1) for group in data["obs"].values() for x in group.values()], 2)
    assert torch.equal(joined, flat_data["obs"]) and torch.equal(flat(data["next_obs"]), flat_data["next_obs"])


@pytest.mark.parametrize("task", [Named, Grouped])
def test_rows_may_be_in_gymnasiums_alphabetical_order(task):
    def plain(x: Any) -> Any:  # without an order of their own, names are sorted by Gymnasium
        return Dict({k: plain(y) for k, y in x.items()}) if isinstance(x, Dict) else x

    env, row = make(task), wrappers.FlattenObservation(make(task), sort_keys=True)
    space = plain(env.single_observation_space)
    assert row.single_observation_space == gymnasium.spaces.flatten_space(space)
    (obs, _), (rows, _) = env.reset(seed=1), row.reset(seed=1)
    for action in actions(15):
        for world in range(N):
            one = gymnasium.spaces.flatten(space, mapped(lambda x, world=world: x[world].cpu().numpy(), obs))
            np.testing.assert_array_equal(rows[world].cpu(), one)
        obs, rows = env.step(action)[0], row.step(action)[0]
    assert not torch.equal(rows, flat(obs))


def torch_dtypes(env: Any) -> Any:
    def of(space):
        if isinstance(space, Dict):
            return {k: [of(x) for x in s.values()] for k, s in space.items()}
        return torch.from_numpy(np.empty(0, space.dtype))

    return of(env.single_observation_space)


def idle(obs: Any) -> torch.Tensor:
    x = obs["policy"]["angle"] if isinstance(obs, dict) else obs
    return torch.zeros(len(x), 1, dtype=torch.float64, device=x.device)


def test_frames_are_stacked_by_name():
    env, row = (wrappers.FrameStackObservation(x, 2) for x in (make(), make(observation="flat")))
    (obs, _), (rows, _) = env.reset(seed=1), row.reset(seed=1)
    for action in actions(15):
        assert shapes(obs, 1) == {name: (2, *shape) for name, shape in SHAPES.items()}
        assert {name: x.shape for name, x in env.single_observation_space.items()} == shapes(obs, 1)
        assert torch.equal(torch.cat([x.reshape(N, 2, -1) for x in obs.values()], 2), rows)
        obs, rows = env.step(action)[0], row.step(action)[0]


def test_a_rollout_has_observations_by_name():
    env, twin = make(), make()
    env.reset(seed=4)
    obs, _ = twin.reset(seed=4)

    def policy(obs):
        return obs["angle"][:, -1:] + obs["table"][:, 1, 0, :1]

    data = env.capture(policy, 14)()
    for t in range(14):
        assert all(torch.equal(data["obs"][name][t], x) for name, x in obs.items())
        obs, *_, info = twin.step(policy(obs))
        assert all(torch.equal(data["final_obs"][name][t], x) for name, x in info["final_obs"].items())
    assert all(torch.equal(data["next_obs"][name], x) for name, x in obs.items())


def test_compiled_code_takes_names():
    env, twin = make(mode="NextStep"), make(mode="NextStep")
    env.reset(seed=1), twin.reset(seed=1)

    def advance(action):
        obs, reward, *_ = env.step(action)
        return {name: 2 * x for name, x in obs.items()}, reward

    compiled = torch.compile(advance, backend="aot_eager", fullgraph=True)
    for action in actions(4):
        obs, reward = compiled(action)
        expected = twin.step(action)
        assert torch.equal(reward, expected[1]) and all(torch.equal(obs[k], 2 * x) for k, x in expected[0].items())


def test_a_task_by_the_books_needs_no_more():
    @dataclass(frozen=True)
    class Small(Task):
        xml_file: str = "inverted_pendulum.xml"
        frame_skip: int = 2

        def reset(self, m, rng):
            return [0.0, 0.1], [0.0, 0.0]

        def observe(self, m, world):
            return {"pole": world.qpos[1], "cart": [world.qpos[0], world.qvel[0]]}

        def outcome(self, m, before, action, after):
            return Outcome(1.0, False)

    obs, _ = TorchVectorEnv(Small, 2, dtype=torch.float64).reset()
    assert obs["pole"].tolist() == [0.1, 0.1] and obs["cart"].tolist() == [[0.0, 0.0]] * 2

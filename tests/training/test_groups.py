"""PPO on tasks that name and group their observations: who sees what, and the files that know it."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import torch

pytest.importorskip("matplotlib")
pytest.importorskip("tqdm")

from named import SHAPES, TRUE_WIDTH, WIDTH, Grouped, Named

from torch_mjenvs import Normal, Outcome, Policy, Task, TorchVectorEnv
from torch_mjenvs.__main__ import main
from torch_mjenvs.envs.parts import mapped
from torch_mjenvs.scalar import absolute
from torch_mjenvs.training import ppo, runs
from torch_mjenvs.training.worlds import make

pytestmark = [pytest.mark.usefixtures("no_default_device"), pytest.mark.cpu]


@dataclass(frozen=True)
class Tables(Named):
    """Its tables are fields."""

    noise: dict[str, Any] = field(default_factory=lambda: {"angle": 0.1, "speeds": Normal(0.2)})  # type: ignore[misc]
    history: dict[str, int] = field(default_factory=lambda: {"angle": 3})  # type: ignore[misc]


IDS = {"TorchNamedCart-v0": Named, "TorchGroupedCart-v0": Grouped}
NAMED, GROUPED = IDS
TABLES, OTHER = "TorchTablesCart-v0", "TorchOtherGroupedCart-v0"
SMALL = ["--num-envs", "8", "--actor", "8", "--critic", "8", "--minibatch", "32", "--horizon", "8", "--episodes", "2"]
SHORT = [*SMALL, "--evaluations", "1", "--total-steps", "128"]


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    for env_id, task in (IDS | {TABLES: Tables, OTHER: Grouped}).items():
        gymnasium.register(
            env_id, entry_point="torch_mjenvs.envs.single_env:TorchEnv",
            vector_entry_point="torch_mjenvs.envs.vector_env:TorchVectorEnv", kwargs={"task": task},
        )  # fmt: skip
    yield
    for env_id in (*IDS, TABLES, OTHER):
        del gymnasium.registry[env_id]


def agent(task: type = Grouped, obs_groups: Any = None) -> ppo.PPO:
    torch.manual_seed(0)
    small = {"num_envs": 8, "horizon": 8, "minibatch": 32, "actor": [8, 8], "critic": [8, 8], "total_steps": 128}
    env = TorchVectorEnv(task, 8, autoreset_mode="SameStep", copy=False)
    with torch.no_grad():
        return ppo.PPO(env, ppo.Settings(**runs.settings("", **small)), 0, obs_groups)


def learn(found: ppo.PPO, iterations: int = 3) -> None:
    with torch.no_grad():
        for _ in range(iterations):
            found.iterate()


def depends(found: ppo.PPO) -> list[list[bool]]:
    """On which of the numbers of an observation action and value depend, after all."""
    obs = torch.randn(1, WIDTH + TRUE_WIDTH, requires_grad=True)
    outputs = []
    for k in range(2):
        x = obs
        for i, (weight, bias) in enumerate((found.net.policy, found.net.value)[k]):
            x = x @ weight.T + bias
            x = x.tanh() if i < 2 else x
        (grad,) = torch.autograd.grad(x[:, 0].sum(), obs)
        outputs.append((grad[0] != 0).tolist())
    return outputs


SEEN, TRUE = [True] * WIDTH, [True] * TRUE_WIDTH
UNSEEN, UNTRUE = [False] * WIDTH, [False] * TRUE_WIDTH


@pytest.mark.parametrize(
    ("obs_groups", "expected"),
    [
        (None, [SEEN + UNTRUE, SEEN + TRUE]),
        ({"critic": ["privileged"]}, [SEEN + UNTRUE, UNSEEN + TRUE]),
        ({"policy": ["policy", "privileged"], "critic": ["policy"]}, [SEEN + TRUE, SEEN + UNTRUE]),
    ],
)
def test_each_network_sees_its_groups_alone(obs_groups, expected):
    found = agent(obs_groups=obs_groups)
    assert depends(found) == expected
    before = found.net.theta.clone()
    learn(found)
    assert depends(found) == expected and not torch.equal(before, found.net.theta)


def test_isaac_labs_critic_is_a_group_of_its_own():
    class Lab(Named):
        noise, history = {}, {}

        def observe(self, m, world):
            return {"policy": list(world.qpos), "critic": [*world.qpos, *world.qvel]}

    assert agent(Lab).seen.groups == {"policy": ["policy"], "critic": ["critic"]}


def test_without_groups_all_is_seen_and_a_list_learns_as_the_same_numbers_by_name():
    class Rows(Named):
        noise, history = {}, {}

        def observe(self, m, world):
            return [*world.qpos, *world.qvel]

    class Names(Rows):
        def observe(self, m, world):
            return {"qpos": list(world.qpos), "qvel": list(world.qvel)}

    found = [agent(task) for task in (Rows, Names)]
    for one in found:
        torch.manual_seed(1)
        learn(one)
    assert torch.equal(found[0].net.theta, found[1].net.theta) and found[1].net.unseen is None
    assert found[0].networks().keys() == found[1].networks().keys() - {"observation"}


def test_groups_that_are_not_there_are_refused():
    with pytest.raises(ValueError, match=r"'critic' sees \['truth'\], and the groups are \['policy', 'privileged'\]"):
        agent(obs_groups={"critic": ["truth"]})
    with pytest.raises(ValueError, match="the task's observations have no groups"):
        agent(Named, {"critic": ["policy"]})


def test_a_group_that_no_network_sees_is_told(tmp_path, capsys):
    """As when "privileged" is misspelled: the critic would learn without it, and nobody would know."""
    run(tmp_path / "run", GROUPED, "--obs-groups", "critic=policy")
    assert "no network sees the observations ['privileged'], only {'policy': ['policy']" in capsys.readouterr().err
    assert agent().seen.unread() == [] == agent(Named).seen.unread()


def run(out: Path, env_id: str, *more: str) -> dict[str, Any]:
    main(["train", "--env", env_id, "--out", str(out), *SHORT, *more])
    return json.loads((out / "result.json").read_text())


@pytest.mark.parametrize("env_id", IDS)
def test_a_run_is_trained_scored_and_loaded(tmp_path, capsys, env_id):
    result = run(tmp_path / "run", env_id)
    groups = {"policy": ["policy"], "critic": ["policy", "privileged"]}
    assert result.get("obs_groups") == (groups if env_id == GROUPED else None)
    policy = Policy.load(tmp_path / "run")
    assert policy.sizes == (WIDTH, 1)
    env = make(env_id, 4, "cpu")
    obs, _ = env.reset(seed=0)
    rows, _ = make(env_id, 4, "cpu", observation="flat").reset(seed=0)
    expected = policy(obs)
    assert torch.equal(policy(rows), expected)
    mine = obs["policy"] if env_id == GROUPED else obs
    assert torch.equal(policy(torch.cat([x.reshape(4, -1) for x in mine.values()], 1)), expected)
    lone, _ = gymnasium.make(env_id).reset(seed=0)
    assert policy(mapped(torch.as_tensor, lone)).shape == (1,)
    disordered = {name: mine[name] for name in sorted(mine)}
    assert torch.equal(policy({"policy": disordered} if env_id == GROUPED else disordered), expected)
    main(["score", str(tmp_path / "run"), "--episodes", "3"])
    assert f"score in {env_id}" in capsys.readouterr().out
    del mine["angle"]
    with pytest.raises(ValueError, match=r"the observation must have 'angle', and has \['speeds', 'table'\]"):
        policy(obs)


def test_a_run_starts_with_what_another_learned(tmp_path, monkeypatch, capsys):
    """With its networks and moments, which are there before the first frame; the rest is new, maybe the task, too."""
    first, begun, iterate = run(tmp_path / "first", GROUPED), [], ppo.PPO.iterate
    monkeypatch.setattr(ppo.PPO, "iterate", lambda self: (begun.append(self.net.theta.clone()), iterate(self)))
    second = run(tmp_path / "second", GROUPED, "--start", str(tmp_path / "first"), "--seed", "1")
    learned = runs.load(tmp_path / "first" / "checkpoint.pt", ("agent",))["agent"]
    assert torch.equal(begun[0], learned["theta"]) and not torch.equal(begun[-1], learned["theta"])
    assert (second["frames"], second["frames_before"]) == (first["frames"], first["frames"])
    assert "begins with" not in capsys.readouterr().out
    third = run(tmp_path / "third", OTHER, "--start", str(tmp_path / "second"))
    assert f"{OTHER} begins with what was learned on {GROUPED}" in capsys.readouterr().out
    assert third["frames_before"] == 2 * first["frames"]
    state = runs.load(tmp_path / "third" / "checkpoint.pt", ("agent",))["agent"]
    assert state["obs_moments"]["count"] == 3 * first["frames"] and state["frames_seen"] == first["frames"]


@pytest.mark.parametrize(
    ("env_id", "flags", "error"),
    [
        (NAMED, [], "obs_groups is .*, here None"),
        (GROUPED, ["--actor", "16"], r"actor is \(.*\), here \(16,\)"),
        (GROUPED, ["--activation", "relu"], "activation is tanh, here relu"),
        (GROUPED, ["--obs-groups", "critic=policy"], "obs_groups is"),
        (GROUPED, ["--resume"], "give one of them"),
    ],
)
def test_a_run_does_not_start_with_what_does_not_fit(tmp_path, env_id, flags, error):
    run(tmp_path / "first", GROUPED)
    with pytest.raises(SystemExit, match=error):
        run(tmp_path / "second", env_id, "--start", str(tmp_path / "first"), *flags)
    assert not (tmp_path / "second").exists()


def test_a_policy_acts_as_the_agent_did(tmp_path):
    found = agent()
    learn(found)
    torch.save({"env": GROUPED, **found.networks()}, tmp_path / "policy.pt")
    env = make(GROUPED, 4, "cpu")
    for _ in range(3):
        obs, _ = env.reset()
        with torch.no_grad():
            torch.testing.assert_close(Policy.load(tmp_path)(obs), found.act(obs), rtol=1e-5, atol=1e-6)


def test_a_run_that_is_resumed_ends_with_the_same_bits():
    found, again = agent(), agent()
    learn(found, 2)
    state = copy.deepcopy(found.state_dict())
    learn(found, 2)
    again.load_state_dict(state)
    learn(again, 2)
    assert torch.equal(found.net.theta, again.net.theta)


def test_groups_are_part_of_a_run_and_of_its_policy(tmp_path):
    run(tmp_path, GROUPED)
    with pytest.raises(SystemExit, match="obs_groups is"):
        run(tmp_path, GROUPED, "--resume", "--total-steps", "256", "--obs-groups", "critic=policy")
    assert run(tmp_path, GROUPED, "--resume", "--total-steps", "256")["frames"] == 256
    found = torch.load(tmp_path / "policy.pt", weights_only=True)
    assert found["observation"] == {
        "policy": {name: list(shape) for name, shape in SHAPES.items()},
        "privileged": {"speeds": [2], "angle": []},
    }


def test_a_film_is_played(tmp_path):
    pytest.importorskip("imageio")
    run(tmp_path / "run", GROUPED)
    from torch_mjenvs.commands.play import played

    env = make(GROUPED, 2, "cpu")
    assert list(played(env, Policy.load(tmp_path / "run"), 0, 5)) == list(range(6))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"observation": [3]}, "must be a dict of shapes"),
        ({"observation": {"policy": {"x": [4]}}}, "16 numbers in all"),
        ({"observation": {"policy": {"x": ["a"]}}}, "lists of whole numbers"),
        ({"observation": {"policy": {"x": [-16]}}}, "lists of whole numbers"),
        ({"obs_groups": ["policy"]}, "'obs_groups' must be a dict"),
        ({"obs_groups": {"policy": ["truth"]}}, r"'policy' sees \['truth'\]"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(tmp_path, change, said):
    torch.save({"env": GROUPED, **agent().networks(), **change}, tmp_path / "policy.pt")
    with pytest.raises(ValueError, match=said):
        Policy.load(tmp_path)


def test_a_policy_of_other_names_is_refused(tmp_path):
    torch.save({"env": GROUPED, **agent().networks()}, tmp_path / "policy.pt")
    policy = Policy.load(tmp_path)
    policy.check_spaces(make(GROUPED, 1, "cpu"))
    policy.check_spaces(make(GROUPED, 1, "cpu", observation="flat"))
    for other in (NAMED, "TorchHopper-v0"):
        with pytest.raises(ValueError, match="the policy's observations are"):
            policy.check_spaces(make(other, 1, "cpu"))


def test_tables_that_are_fields_are_flags(tmp_path):
    assert run(tmp_path, TABLES, "--noise.angle", "0", "--history.angle", "2")["task"] == {
        "noise.angle": 0, "history.angle": 2,
    }  # fmt: skip
    policy = Policy.load(tmp_path)
    assert policy.parts.shapes["angle"] == (2,) and policy.parts.shapes["speeds"] == (2,)


@pytest.mark.parametrize("text", ["critic", "critic=", "actor=policy", "critic=policy,,privileged"])
def test_a_flag_of_groups_that_cannot_be_is_told(text, capsys):
    with pytest.raises(SystemExit):
        main(["train", "--env", GROUPED, "--obs-groups", text])
    assert "is not of the form policy=GROUP,GROUP or critic=GROUP,GROUP" in capsys.readouterr().err


@dataclass(frozen=True)
class Ordered(Task):
    """A pendulum whose observations come in either order."""

    xml_file: str = "inverted_pendulum.xml"
    frame_skip: int = 2
    swapped: bool = False
    limit: float | None = None

    def __post_init__(self) -> None:
        if self.limit is None:
            raise ValueError("give a limit, in radians")

    def reset(self, m: Any, rng: Any) -> Any:
        return [rng.uniform(-0.1, 0.1) for _ in range(m.nq)], [0.0] * m.nv

    def observe(self, m: Any, world: Any) -> Any:
        pos, vel = {"pos": world.qpos}, {"vel": world.qvel}
        return vel | pos if self.swapped else pos | vel

    def outcome(self, m: Any, before: Any, action: Any, after: Any) -> Any:
        return Outcome(1.0, absolute(after.qpos[1]) > self.limit)


@pytest.fixture
def ordered() -> Iterator[str]:
    name = "TorchOrdered-v0"
    gymnasium.register(
        name, entry_point="torch_mjenvs.envs.single_env:TorchEnv", max_episode_steps=100,
        vector_entry_point="torch_mjenvs.envs.vector_env:TorchVectorEnv", kwargs={"task": Ordered},
    )  # fmt: skip
    yield name
    del gymnasium.registry[name]


def test_networks_are_not_fed_numbers_in_another_order(ordered, tmp_path, capsys):
    """Names and order of observations are compared, when a run begins with another's networks, and when it goes on."""
    main(["train", "--env", ordered, *SHORT, "--limit", "0.2", "--out", str(tmp_path / "a")])
    start = ["train", "--env", ordered, *SHORT, "--limit", "0.2", "--start", str(tmp_path / "a")]
    with pytest.raises(SystemExit, match=r"cannot be started from: observation is .*pos.*vel.*, here .*vel.*pos"):
        main([*start, "--swapped", "--out", str(tmp_path / "b")])
    with pytest.raises(SystemExit, match=r"policy.pt is a file: name the folder of a run, whose checkpoint"):
        main([*start, "--start", str(tmp_path / "a" / "policy.pt"), "--out", str(tmp_path / "b")])
    assert "--log-std" not in capsys.readouterr().err
    main([*start, "--log-std", "0.5", "--out", str(tmp_path / "b")])
    assert "--log-std changes nothing beside --start: log_std is learned" in capsys.readouterr().err
    assert json.loads((tmp_path / "b" / "result.json").read_text())["start"] == str(tmp_path / "a")
    more = ["train", "--resume", "--out", str(tmp_path / "b"), "--total-steps", "256"]
    with pytest.raises(SystemExit, match=r"is of another run: observation is .*task.swapped is"):
        main([*more, "--swapped"])

    # What was given before is not needed again, and where the run began is kept.
    main(more)
    result = json.loads((tmp_path / "b" / "result.json").read_text())
    assert result["frames"] == 256 and result["start"] == str(tmp_path / "a")
    assert (result["env"], result["task"]) == (ordered, {"limit": 0.2})
    assert result["changes"] == [[128, "total_steps", 128, 256]]


def test_a_run_that_goes_on_says_what_of_its_task_has_changed(ordered, tmp_path, monkeypatch, capsys):
    out = str(tmp_path / "run")
    main(["train", "--env", ordered, *SHORT, "--limit", "0.2", "--out", out])

    def outcome(self: Ordered, m: Any, before: Any, action: Any, after: Any) -> Any:
        return Outcome(2.0, absolute(after.qpos[1]) > self.limit)

    monkeypatch.setattr(Ordered, "outcome", outcome)
    capsys.readouterr()
    main(["train", "--resume", "--out", out, "--total-steps", "256"])
    said = capsys.readouterr().err
    assert "the task has changed: made.code was" in said and "made.frame_skip" not in said
    changes = json.loads((tmp_path / "run" / "result.json").read_text())["changes"]
    assert [name for _, name, *_ in changes] == ["made.code", "total_steps"]


def test_a_task_that_needs_a_field_has_flags_and_says_so_in_a_line(ordered, tmp_path):
    with pytest.raises(SystemExit, match=r"^give a limit, in radians$"):
        main(["train", "--env", ordered, *SHORT, "--out", str(tmp_path / "run")])

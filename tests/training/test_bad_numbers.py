"""A run that ends by what a task gives says by which terms of the reward and which entries of the observation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import torch

pytest.importorskip("matplotlib")
pytest.importorskip("tqdm")

from torch_mjenvs import Outcome, Task, TorchVectorEnv
from torch_mjenvs.scalar import log, select, sqrt
from torch_mjenvs.training import ppo, runs, train
from torch_mjenvs.training.health import bad_entries, bad_terms
from torch_mjenvs.training.sharing import ALONE

pytestmark = [pytest.mark.usefixtures("no_default_device"), pytest.mark.cpu]


@dataclass(frozen=True)
class Cart(Task):
    """What `bad` names goes wrong in the worlds whose number, drawn when an episode begins, is below 0."""

    xml_file: str = "inverted_pendulum.xml"
    frame_skip: int = 2
    bad: str = "term"

    def memory(self, m):
        return {"drawn": 0.0}

    def begin(self, m, world):
        return {"drawn": world.rng.uniform(-1.0, 1.0)}

    def reset(self, m, rng):
        return [0.0, rng.uniform(-0.1, 0.1)], [0.0, 0.0]

    def observe(self, m, world):
        wrong = sqrt(world.memory["drawn"]) if self.bad == "entry" else 0.0
        speeds = [world.qvel[0], world.qvel[1] + wrong]
        return {"policy": {"angle": world.qpos[1], "speeds": speeds}, "privileged": {"place": world.qpos[0]}}

    def outcome(self, m, before, action, after):
        drawn = after.memory["drawn"] if self.bad in ("term", "plain") else 1.0
        force = select(after.qpos[1] < 10.0, log(drawn), 0.0)
        return Outcome(1.0 + force if self.bad == "plain" else {"alive": 1.0, "force": force})


@dataclass(frozen=True)
class Listed(Cart):
    def observe(self, m, world):
        return [*world.qpos, sqrt(world.memory["drawn"])]


@dataclass(frozen=True)
class Remembered(Cart):
    history = {"speeds": 3}  # noqa: RUF012


ENV = "TorchBadCart-v0"


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    vector = "torch_mjenvs.envs.vector_env:TorchVectorEnv"
    gymnasium.register(ENV, vector_entry_point=vector, kwargs={"task": Cart}, max_episode_steps=50)
    yield
    del gymnasium.registry[ENV]


def said(out: Path, bad: str, *flags: str) -> str:
    given = ["--env", ENV, "--num-envs", "8", "--actor", "8", "--critic", "8", "--horizon", "8", "--bad", bad]
    with pytest.raises(SystemExit) as stop:
        train.main([*given, "--total-steps", "256", "--evaluations", "0", "--out", str(out), *flags])
    return str(stop.value)


def test_the_term_is_named_with_its_worlds(tmp_path):
    text = said(tmp_path, "term", "--minibatch", "32")
    assert "beyond 1e+18: the term 'force' in " in text and " of 8 worlds. Mend the task's reward" in text
    assert "'alive'" not in text


@pytest.mark.parametrize("algorithm", ["ppo", "sac"])
def test_the_entry_is_named_with_its_numbers_and_worlds(tmp_path, algorithm):
    flags = ["--minibatch", "32"] if algorithm == "ppo" else ["--random-frames", "8", "--updates", "1"]
    text = said(tmp_path, "entry", "--algorithm", algorithm, *flags)
    assert "scaled by: 'policy/speeds'[1] in " in text and " of 8 worlds. Mend the task's observations" in text
    assert "angle" not in text and "place" not in text


def found(task: type[Task], **fields: Any) -> ppo.PPO:
    torch.manual_seed(0)
    small = {"num_envs": 8, "horizon": 8, "minibatch": 32, "actor": [8, 8], "critic": [8, 8], "total_steps": 128}
    env = TorchVectorEnv(task(**fields), 8, autoreset_mode="SameStep", copy=False)
    with torch.no_grad():
        agent = ppo.PPO(env, ppo.Settings(**runs.settings("", **small)), 0)
        agent.iterate()
    return agent


def test_worlds_are_counted_whatever_the_form():
    for task, name in ((Listed, "the list[2]"), (Remembered, "'policy/speeds'[1]")):
        agent = found(task, bad="entry")
        worlds = int(agent.rollout.tensors["obs"].isnan().any(2).any(0).sum())
        text = bad_entries(agent.env.engine.layout, agent.rollout.tensors, ALONE)
        assert 0 < worlds < 8 and text == f": {name} in {worlds} of 8 worlds"
    agent = found(Cart, bad="plain")
    worlds = int(agent.rollout.tensors["reward"].isnan().any(0).sum())
    text = bad_terms(agent.env.engine.layout, agent.rollout.tensors, ALONE)
    assert text == f", in {worlds} of 8 worlds; a reward that is a dict of terms would say which"
    agent = found(Cart, bad="nothing")
    layout = agent.env.engine.layout
    assert bad_terms(layout, agent.rollout.tensors, ALONE) == bad_entries(layout, agent.rollout.tensors, ALONE) == ""

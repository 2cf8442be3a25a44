"""The models of dm_control's tasks: all that ours hold is what dm_control's hold, also of those put together here."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from pathlib import Path
from typing import Any

import dm_control_oracle as theirs
import gymnasium
import mujoco
import numpy as np
import processes
import pytest
import torch
from gymnasium.vector import AutoresetMode

import torch_mjenvs
from torch_mjenvs.dmc import TASKS
from torch_mjenvs.envs.engine import episode_of
from torch_mjenvs.physics import load
from torch_mjenvs.physics.model.model import Model

# Left out: quadruped-escape, whose terrain is another one in every episode.
MISSING = {("quadruped", "escape")}
LONG = {x for x in TASKS if x.startswith("dog-")} - {"dog-fetch"}  # to trace; one of them is enough every time
OWN = {  # which dm_control changes when an episode begins
    "finger-spin": ("dof_damping", "site_rgba"), "finger-turn_easy": ("site_size",), "fish-upright": ("geom_rgba",),
    "reacher-hard": ("geom_size",),
}  # fmt: skip


def fields(mjm: mujoco.MjModel) -> dict[str, object]:
    """All numbers and names of a model by field, those of its options included."""
    found = {name: getattr(mjm, name) for name in dir(mjm) if not name.startswith("_")}
    found |= {f"opt.{name}": getattr(mjm.opt, name) for name in dir(mjm.opt) if not name.startswith("_")}
    return {name: x for name, x in found.items() if isinstance(x, (np.ndarray, int, float, bytes))}


@pytest.fixture(scope="module", params=TASKS)
def name(request: pytest.FixtureRequest) -> str:
    """Of a task. Tests of the same one follow each other."""
    return request.param


@pytest.fixture(scope="module")
def mjm(name: str) -> mujoco.MjModel:
    return TASKS[name].load()


@pytest.fixture(scope="module")
def model(mjm: mujoco.MjModel) -> Model:
    return load(mjm)


@pytest.fixture(scope="module")
def other(name: str) -> Any:
    """dm_control's environment."""
    return theirs.suite.load(*name.split("-", 1), task_kwargs={"random": 0})


def test_a_model_is_dm_controls(name: str, mjm: mujoco.MjModel, other: Any) -> None:
    ours, want = fields(mjm), fields(other.physics.model.ptr)
    assert len(ours) > 300 and ours.keys() == want.keys()
    paths = {"paths", "npaths", "nbuffer"}  # of files
    for field in ours.keys() - paths - {*OWN.get(name, ())}:
        x, y = np.asarray(ours[field]), np.asarray(want[field])
        if (x.dtype, x.shape, x.tobytes()) != (y.dtype, y.shape, y.tobytes()):  # which nearly none is, and told at once
            np.testing.assert_array_equal(x, y, err_msg=field)


@pytest.mark.parametrize(
    "name", [pytest.param(x, marks=pytest.mark.slow if x in LONG else ()) for x in TASKS], indirect=True
)
def test_an_observation_has_dm_controls_names_and_shapes_in_its_order(name: str, model: Model, other: Any) -> None:
    layout = episode_of(TASKS[name], model, torch.float64, AutoresetMode.DISABLED, 1000).layout  # no kernel is built
    wanted = other.observation_spec()
    found = layout.observation.parts("dict").shapes
    assert [*found.items()] == [(name, spec.shape) for name, spec in wanted.items()]


def test_an_action_has_dm_controls_bounds(name: str, model: Model, other: Any) -> None:
    wanted = other.action_spec()
    low, high = TASKS[name].action_space(model)
    np.testing.assert_array_equal(low, wanted.minimum)
    np.testing.assert_array_equal(high, wanted.maximum)


def test_every_task_of_the_suite_is_there_or_known_to_be_missing() -> None:
    assert {(*name.split("-", 1),) for name in TASKS} | MISSING == set(theirs.suite.ALL_TASKS)


def test_an_episode_is_as_long_as_dm_controls(name: str, other: Any) -> None:
    assert TASKS[name].frame_skip == other._n_sub_steps
    limit = TASKS[name].max_episode_steps
    assert (np.inf if limit is None else limit) == np.ceil(other._step_limit)
    assert gymnasium.spec(f"TorchDMC/{name}-v0").max_episode_steps == limit


def test_the_cheetah_is_loaded_without_a_word(mujocos_own_log: Path, capfd: Any) -> None:
    """dm_control's own file has a deprecated attribute, and MuJoCo says so, also in a file in the working folder."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TASKS["cheetah-run"].load()
    assert capfd.readouterr() == ("", "") and not list(mujocos_own_log.iterdir())


def test_nothing_of_dm_control_is_imported() -> None:
    """Not even for a model: its import takes seconds, and may fail."""
    code = """
import sys, torch_mjenvs
torch_mjenvs.dmc.TASKS["swimmer-swimmer6"].load()
assert not [name for name in sys.modules if name.startswith(("dm_control", "lxml"))]
"""
    processes.run(code)


def test_without_dm_control_its_tasks_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install '\.\[dmc\]'"):
        torch_mjenvs.TorchVectorEnv("walker-walk", 1)
    assert "dm_control" in sys.modules

"""Policies of dm_control's tasks: trained here, scored in dm_control itself."""

from __future__ import annotations

import json
from pathlib import Path

import dm_control_oracle as theirs
import humanoid_walk
import numpy as np
import pytest
import torch

from torch_mjenvs import TorchVectorEnv
from torch_mjenvs.__main__ import main
from torch_mjenvs.dmc import TASKS
from torch_mjenvs.training import originals
from torch_mjenvs.training.originals import ParallelWorlds, Suite, processes_for
from torch_mjenvs.training.scores import score
from torch_mjenvs.training.worlds import original

pytestmark = pytest.mark.usefixtures("no_default_device")
NAME = "cartpole-balance"


def act(obs: torch.Tensor) -> torch.Tensor:
    return torch.tanh(obs @ torch.tensor([[0.5], [0.2], [-3.0], [0.3], [-1.0]]))


@pytest.mark.parametrize("processes", [1, 2])
def test_scores_are_those_of_dm_controls_own_loop(processes: int) -> None:
    found = score(act, ParallelWorlds(f"dm_control/{NAME}", 2, processes, {}), 7, "cpu").returns
    for i in range(2):
        env, total = theirs.suite.load(*NAME.split("-"), task_kwargs={"random": 7 + i}), 0.0
        step = env.reset()
        while not step.last():
            obs = torch.tensor(theirs.numbers(step.observation)[None], dtype=torch.float32)
            step = env.step(act(obs)[0].numpy())
            total += step.reward
        assert abs(found[i].item() - total) < 1e-3  # rounding of actions to float32, over a thousand steps
        assert 10.0 < total < 1000.0
    assert found[0] != found[1]


def test_an_end_with_discount_0_is_a_termination_and_the_time_limit_is_not() -> None:
    env = Suite("lqr-lqr_2_1")
    assert np.array_equal(env.reset(seed=2**32 + 7)[0], env.reset(seed=7)[0])  # NumPy's generator takes 32 bits
    env.reset(seed=0)
    with env.env.physics.reset_context():
        env.env.physics.data.qpos[:] = env.env.physics.data.qvel[:] = 0.0
    assert env.step(np.zeros(1))[2:4] == (True, False)
    env = Suite(NAME)
    assert env.reset(seed=0)[0].shape == env.observation_space.shape
    flags = [env.step(np.zeros(1))[2:4] for _ in range(1000)]
    assert flags == [(False, False)] * 999 + [(False, True)]


def test_the_original_of_a_task_is_dm_controls_unless_its_fields_were_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert original("TorchDMC/walker-walk-v0") == "dm_control/walker-walk"
    assert original("TorchDMC/walker-walk-v0", {"speed": 2.0}) is None
    assert original("TorchHopper-v0", {"frame_skip": 2}) == "Hopper-v5"
    monkeypatch.setattr(originals.os, "sched_getaffinity", lambda _: range(3), raising=False)
    assert processes_for("dm_control/walker-walk", 100) == 3


@pytest.mark.cpu
def test_a_run_is_trained_scored_there_and_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = ["--num-envs", "4", "--horizon", "8", "--minibatch", "32", "--total-steps", "64", "--episodes", "2"]
    out = tmp_path / "run"
    main(["train", "--env", f"TorchDMC/{NAME}", *few, "--evaluations", "0", "--device", "cpu", "--out", str(out)])
    result = json.loads((out / "result.json").read_text())
    assert {*result["scores"]} == {f"TorchDMC/{NAME}-v0", f"dm_control/{NAME}"}
    main(["score", str(out), "--episodes", "2"])
    assert f"score in dm_control/{NAME}: " in capsys.readouterr().out
    with pytest.raises(SystemExit, match="no trained policy of TorchDMC/lqr-lqr_2_1-v0 comes with the package"):
        main(["score", "TorchDMC/lqr-lqr_2_1"])


@pytest.mark.slow
def test_the_humanoid_learns_with_an_easier_reward_and_goes_on_with_dm_controls(tmp_path: Path, capsys) -> None:
    tasks = (humanoid_walk.GettingUp(), TASKS["humanoid-walk"])
    envs = [TorchVectorEnv(task, 64, dtype=torch.float64) for task in tasks]
    for env in envs:
        env.reset(seed=0)
    for _ in range(20):
        (_, easier, *_), (obs, own, *_) = (env.step(torch.zeros(64, 21, device=env.device)) for env in envs)
        high = (obs["head_height"] / 1.4).clamp(0, 1).reshape(-1)
        upright = ((obs["torso_vertical"][:, 2] + 1) / 1.9).clamp(0, 1)
        torch.testing.assert_close(easier, own + 0.5 * high**2 * upright, rtol=0, atol=1e-12)
    few = ["--num-envs", "8", "--minibatch", "64", "--actor", "8", "--critic", "8", "--episodes", "2"]
    humanoid_walk.train(512, 256, tmp_path, [*few, "--evaluations", "0", "--device", "cpu"])
    said = f"TorchDMC/humanoid-walk-v0 begins with what was learned on {humanoid_walk.GETTING_UP}"
    assert said in capsys.readouterr().out
    result = json.loads((tmp_path / "walking" / "result.json").read_text())
    assert (result["frames_before"], result["frames"]) == (512, 256)
    assert {*result["scores"]} == {"TorchDMC/humanoid-walk-v0", "dm_control/humanoid-walk"}

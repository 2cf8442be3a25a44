"""docs/deploy.md as it stands: a policy exported, and run by MuJoCo C and onnxruntime as the task runs it."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from documented import examples

from torch_mjenvs import Policy, TorchVectorEnv, pretrained
from torch_mjenvs.envs.parts import Parts
from torch_mjenvs.playground import Go1Joystick

for name in ("mujoco_playground", "onnxruntime", "onnxscript"):
    pytest.importorskip(name)

pytestmark = pytest.mark.usefixtures("no_default_device")
EXPORT, RUN = examples("docs/deploy.md")


def test_the_example_of_the_robots_page_runs() -> None:
    (code,) = examples("docs/playground.md")
    exec(code, {})


@pytest.mark.cpu
def test_an_exported_policy_runs_in_mujoco_as_in_the_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The script sees what the task shows, and acts as the policy does, as far as float32 goes."""
    task = Go1Joystick(noise_level=0.0, randomized=False)
    env = TorchVectorEnv(task, 1, dtype=torch.float64, device="cpu")
    env.reset(seed=0)
    policy = untrained(env)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Policy, "load", staticmethod(lambda path: policy))
    exec(EXPORT, {})
    script: dict[str, Any] = {}
    exec(RUN.replace("range(250)", "range(0)"), script)
    data = script["data"]
    model = script["model"]
    model.opt.iterations, model.opt.tolerance, model.opt.ls_iterations = 100, 0.0, 50
    env.set_state(torch.tensor(data.qpos[None].copy()), torch.tensor(data.qvel[None].copy()))
    memory = env.engine.memory
    memory["steps"][:] = 1000.0
    memory["command"][:] = memory["seen_command"][:] = torch.tensor(script["command"])
    loop = re.search(r"for _ in range\(250\):\n(.*?)\nprint", RUN, re.S)
    assert loop
    body = compile("if True:\n" + loop[1], "deploy", "exec")
    for _ in range(10):
        exec(body, script)
        mean = torch.tensor(script["action"][None])
        obs, *_ = env.step(mean.double())
        want = np.concatenate([x[0].numpy().ravel() for x in obs["policy"].values()])
        np.testing.assert_allclose(script["observation"](), want, rtol=0, atol=1e-6)
        np.testing.assert_allclose(script["action"], act(policy, script["obs"]), rtol=0, atol=1e-5)
    assert np.abs(script["action"]).max() > 0.1


def test_the_policy_of_the_package_walks_where_it_is_told_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In MuJoCo C with the scene's own solver settings, by the script as it stands: forward at 1 m/s for 5 s."""
    policy = pretrained("TorchGo1Joystick-v0")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Policy, "load", staticmethod(lambda path: policy))
    exec(EXPORT, {})
    script: dict[str, Any] = {}
    exec(RUN, script)
    ahead, aside, height = script["data"].qpos[:3] - script["home"].qpos[:3]
    assert 4.0 < ahead < 5.5 and abs(aside) < 1.0 and abs(height) < 0.1


def act(policy: Policy, obs: np.ndarray) -> np.ndarray:
    found: np.ndarray = policy(torch.tensor(obs[None]))[0].numpy()
    return found


def untrained(env: TorchVectorEnv) -> Policy:
    """A policy with random weights, which reads the group `policy`."""
    shapes = {name: space.shape for name, space in env.single_observation_space["policy"].items()}
    parts = Parts({"policy": shapes})
    generator = torch.Generator().manual_seed(0)
    sizes = itertools.pairwise((parts.size, 32, 32, 12))
    layers = [(torch.randn(o, i, generator=generator) * 0.2, torch.zeros(o)) for i, o in sizes]
    return Policy("TorchGo1Joystick-v0", layers, torch.zeros(parts.size), torch.ones(parts.size), {}, parts)

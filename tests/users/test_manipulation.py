"""docs/manipulation.md: the example against MuJoCo C, its demonstrations, and hindsight with TorchRL."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import mujoco
import numpy as np
import oracle
import pytest
import torch
from documented import task_of

from torch_mjenvs import TorchRLEnv, TorchVectorEnv

pytestmark = [pytest.mark.usefixtures("no_default_device", "quiet"), pytest.mark.cpu]
DOCS = Path(__file__).parents[2] / "docs"
HINDSIGHT = re.search(r"## Hindsight.*?```py\n(.*?)```", (DOCS / "torchrl.md").read_text(), re.S)


@pytest.fixture(scope="module")
def page() -> ModuleType:
    return task_of("docs/manipulation.md")


def test_it_is_a_loop_around_mujoco(page: ModuleType) -> None:
    """Observations, touch and rewards from equal states, while the expert takes the cube and carries it."""

    class Exact(page.PickAndPlace):  # type: ignore[misc]
        def load(self) -> mujoco.MjModel:
            return oracle.sharpen(super().load())

    env = TorchVectorEnv(Exact(), 4, dtype=torch.float64, autoreset_mode="SameStep", device="cpu")
    task, rng, touched, successes = env.engine.task, np.random.default_rng(0), 0, 0
    mjm = task.load()
    obs, _ = env.reset(seed=0)
    for t in range(59):
        action = page.expert(obs, t) + torch.from_numpy(rng.normal(0, 0.1, (4, 4)))
        action[:, :3].clamp_(-1.0, 1.0)
        worlds = [mujoco.MjData(mjm) for _ in range(4)]
        states = env.state_dict()
        for k, d in enumerate(worlds):
            d.qpos[:], d.qvel[:], d.qacc_warmstart[:] = (states[x][k] for x in ("qpos", "qvel", "qacc_warmstart"))
            led = obs["observation"][k, -3:] + 0.02 * action[k, :3]
            d.mocap_pos[0] = np.clip(led, [-0.2, -0.2, 0.06], [0.2, 0.2, 0.4])
            d.ctrl[0] = 0.045 if action[k, 3] > 0 else 0.0
            mujoco.mj_step(mjm, d, task.frame_skip)
        obs, reward, *_ = env.step(action)
        for k, d in enumerate(worlds):
            touch = d.sensordata.copy()  # of the last substep
            mujoco.mj_forward(mjm, d)
            grip, cube = d.site("grip").xpos, d.body("cube").xpos
            fingers = [d.joint(side).qpos[0] for side in ("left", "right")]
            seen = [*grip, *(cube - grip), *fingers, *touch, *d.mocap_pos[0]]
            np.testing.assert_allclose(obs["observation"][k], seen, rtol=1e-9, atol=1e-9)
            near = np.linalg.norm(cube - obs["desired_goal"][k].numpy()) < 0.05
            assert reward[k] == (0.0 if near else -1.0)
            touched, successes = touched + bool((touch > 1.0).all()), successes + bool(near)
    assert touched > 80 and successes > 40


def test_demonstrations_are_replayed_and_begun_in(page: ModuleType, tmp_path: Path) -> None:
    env = TorchVectorEnv(page.PickAndPlace(), 8, autoreset_mode="SameStep", device="cpu")
    obs, _ = env.reset(seed=0)
    states, steps = [], []
    for t in range(50):
        states.append(env.state_dict())
        action = page.expert(obs, t)
        steps.append((action, env.step(action)))
        obs = steps[-1][1][0]
    torch.save(states, tmp_path / "states.pt")
    other = TorchVectorEnv(page.PickAndPlace(), 3, autoreset_mode="SameStep", device="cpu")
    saved, chosen = torch.load(tmp_path / "states.pt"), [5, 0, 2]
    other.load_state_dict({name: x[chosen] for name, x in saved[20].items()})
    for action, (seen, reward, *_) in steps[20:]:
        found = other.step(action[chosen])
        assert torch.equal(found[1], reward[chosen]) and all(torch.equal(found[0][x], seen[x][chosen]) for x in seen)

    parts = [torch.cat([s["qpos"], s["qvel"], s["kept"][:, :3], s["memory"]], 1) for s in states[::7]]
    rows = torch.cat(parts)
    np.save(tmp_path / "demos.npy", rows.numpy())
    task = page.PickAndPlace(demos=str(tmp_path / "demos.npy"), demo_share=0.5)
    begun = TorchVectorEnv(task, 64, autoreset_mode="SameStep", device="cpu")
    obs, _ = begun.reset(seed=1)
    now = begun.state_dict()
    first = torch.cat([now["qpos"], now["qvel"], now["kept"][:, :3], now["memory"]], 1)
    known = (first[:, None] == rows).all(-1).any(-1)
    assert 16 < known.sum() < 48 and torch.equal(obs["observation"][:, -3:], now["kept"][:, :3])


@pytest.mark.skipif(importlib.util.find_spec("torchrl") is None, reason="needs the extra torchrl")
def test_hindsight_with_torchrl(page: ModuleType) -> None:
    from tensordict.nn import TensorDictModule

    assert HINDSIGHT
    policy = TensorDictModule(
        lambda seen, goal: torch.tanh(seen[:, :4] - goal.sum(-1, keepdim=True)),
        in_keys=["observation", "desired_goal"],
        out_keys=["action"],
    )
    names = {"Reach": page.PickAndPlace, "TorchRLEnv": TorchRLEnv, "policy": policy, "torch": torch}
    exec(compile(HINDSIGHT[1].replace("64", "8"), "hindsight", "exec"), names)
    batch = names["batch"]
    away = (batch["next", "achieved_goal"] - batch["desired_goal"]).norm(dim=-1, keepdim=True)
    assert torch.equal(batch["next", "reward"], (away < 0.05).float() - 1.0)
    assert torch.equal(batch["desired_goal"], batch["next", "desired_goal"])
    assert (batch["next", "reward"] == 0.0).float().mean() > 0.3  # goals that were reached later

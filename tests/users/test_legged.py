"""docs/legged.md: the example's forces and latencies against MuJoCo C, and its episodes in the mirror."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType
from typing import Any

import mujoco
import numpy as np
import oracle
import pytest
import torch
from documented import task_of

from torch_mjenvs import TorchVectorEnv
from torch_mjenvs.mirror import Mirror

pytestmark = [pytest.mark.usefixtures("no_default_device", "quiet"), pytest.mark.cpu]
DOCS = Path(__file__).parents[2] / "docs"
SYMMETRY = re.search(r"### Symmetric policies.*?```py\n(.*?)```", (DOCS / "libraries.md").read_text(), re.S)


@pytest.fixture(scope="module")
def page() -> ModuleType:
    return task_of("docs/legged.md")


def exactly(page: ModuleType, **fields: Any) -> TorchVectorEnv:
    """The page's task without noise and randomised models, and with a solver that converges in MuJoCo C, too."""

    class Exact(page.Walk):  # type: ignore[misc]
        noise: dict[str, Any] = {}  # noqa: RUF012

        def load(self) -> mujoco.MjModel:
            return oracle.sharpen(super().load())

        def randomize(self, m: Any, rng: Any) -> dict[str, Any]:
            return {}

    return TorchVectorEnv(Exact(**fields), 6, dtype=torch.float64, autoreset_mode="Disabled", device="cpu")


def test_torques_and_forces_are_those_of_a_loop_around_mujoco(page: ModuleType) -> None:
    env = exactly(page, mirrors=False)
    env.reset(seed=0)
    e, mjm, rng, differ, longest = env.engine, env.engine.task.load(), np.random.default_rng(0), 0, page.LONGEST
    d = mujoco.MjData(mjm)
    late = e.memory["late"].int().tolist()
    queues = [[np.array(page.POSE) * 0.0] * longest for _ in late]
    e.memory["push_in"].fill_(1000.0)
    for _ in range(30):
        before, actions = (e.qpos.clone().numpy(), e.qvel.clone().numpy()), rng.normal(size=(6, 8))
        obs, *_ = env.step(torch.from_numpy(actions))
        e.done.fill_(False)  # go on after a fall
        for k in range(6):
            d.qpos[:], d.qvel[:] = before[0][k], before[1][k]
            forces = []
            for _ in range(4):
                queues[k].append(np.array(page.POSE) + 0.5 * actions[k])
                arrived = queues[k][-1 - late[k]]
                strength = e.memory["strength"][k].numpy()
                d.ctrl[:] = np.clip(strength * (60.0 * (arrived - d.qpos[7:]) - 2.0 * d.qvel[6:]), -80.0, 80.0)
                mujoco.mj_step(mjm, d)
                forces.append([np.linalg.norm(d.sensor(f"{side}_force").data) for side in page.SIDES])
            np.testing.assert_allclose(e.qvel[k], d.qvel, rtol=0, atol=1e-6 * (1 + abs(d.qvel).max()))
            want = np.max(forces, 0)
            np.testing.assert_allclose(obs["privileged"]["forces"][k], want, rtol=0, atol=1e-5 * (1 + want.max()))
            differ += (want > 1.5 * np.array(forces[-1])).any()
    assert differ > 10 and len({*late}) > 2


def test_an_episode_in_the_mirror_is_like_any_other(page: ModuleType) -> None:
    """The same observations and rewards for the same actions, of a robot that does all the other way round."""
    env = exactly(page)
    env.reset(seed=0)
    e, mirror = env.engine, Mirror(env.engine.mjmodel)
    qpos, qvel = e.qpos[:1].repeat(6, 1), e.qvel[:1].repeat(6, 1)
    qpos[3:], qvel[3:] = mirror.qpos(qpos[3:]), mirror.qvel(qvel[3:])
    env.set_state(qpos, qvel)
    for x in e.memory.values():
        x.copy_(x[:1].clone().expand_as(x))
    e.memory["mirrored"].copy_(torch.arange(6) >= 3)
    e.memory["push_in"].fill_(1000.0)
    for name, reflected in (("strength", mirror.actuators), ("bias", mirror.joints)):
        row = e.memory[name][:1]
        e.memory[name][3:] = reflected(row).abs() if name == "strength" else reflected(row)
    e.memory["command"][3:] *= torch.tensor([1.0, -1.0, -1.0])
    e.memory["phase"][3:] += 3.141592653589793
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        action = torch.randn(1, 8, dtype=torch.float64, generator=generator).expand(6, 8)
        obs, reward, *_ = env.step(action)
        torch.testing.assert_close(e.qpos[3:], mirror.qpos(e.qpos[:3]), rtol=0, atol=1e-6)
        now = obs["policy"] | {"joint_pos": obs["policy"]["joint_pos"][:, -1]}  # what was before has another memory
        for x in [*now.values(), *obs["privileged"].values()]:
            torch.testing.assert_close(x[3:], x[:3], rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(reward[3:], reward[:3], rtol=0, atol=1e-6)
    assert (e.qpos[3:] - e.qpos[:3]).abs().max() > 0.05


def test_rsl_rl_mirrors_its_batches_as_the_page_says(page: ModuleType) -> None:
    pytest.importorskip("rsl_rl")
    from rsl_rl.runners import OnPolicyRunner

    from torch_mjenvs.adapters import RslRlVecEnv

    class Seeing(page.Walk):  # type: ignore[misc]
        noise: dict[str, Any] = {}  # noqa: RUF012

        def observe(self, m: Any, world: Any) -> dict[str, Any]:
            seen = super().observe(m, world)["policy"]
            return {"policy": {name: seen[name] for name in ("gyro", "gravity", "joint_pos")}}

    env = RslRlVecEnv(TorchVectorEnv(Seeing(mirrors=False), 8, autoreset_mode="SameStep", device="cpu"), seed=0)
    network = {"class_name": "MLPModel", "hidden_dims": [8], "activation": "elu", "obs_normalization": False}
    algorithm: dict[str, Any] = {"class_name": "PPO", "num_learning_epochs": 1, "num_mini_batches": 1}
    config: dict[str, Any] = {
        "num_steps_per_env": 4, "save_interval": 100, "obs_groups": {"actor": ["policy"], "critic": ["policy"]},
        "actor": network | {"distribution_cfg": {"class_name": "GaussianDistribution", "init_std": 1.0}},
        "critic": network, "algorithm": algorithm,
    }  # fmt: skip
    assert SYMMETRY
    names = {"env": env, "config": config, "torch": torch}
    exec(SYMMETRY[1], names)
    obs, actions = names["both"](env, env.get_observations(), torch.rand(8, 8))  # type: ignore[operator]
    assert obs["policy"].shape == (16, 30) and actions.shape == (16, 8)
    again, back = names["both"](env, obs[8:], actions[8:])  # type: ignore[operator]
    assert torch.equal(again["policy"][8:], obs["policy"][:8]) and torch.equal(back[8:], actions[:8])
    runner = OnPolicyRunner(env, config, log_dir=None, device="cpu")
    runner.learn(1)

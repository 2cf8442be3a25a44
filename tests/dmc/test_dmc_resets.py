"""Episodes of dm_control's tasks begin as dm_control's do: number by number, by Kolmogorov and Smirnov's test."""

from __future__ import annotations

from dataclasses import dataclass

import dm_control_oracle as theirs
import numpy as np
import pytest
import torch
from launches import record_graphs
from scipy.stats import ks_2samp

from torch_mjenvs import Start, TorchVectorEnv
from torch_mjenvs.dmc import TASKS
from torch_mjenvs.dmc.cheetah import Cheetah
from torch_mjenvs.envs.ahead import AheadOnGpu
from torch_mjenvs.envs.engine import Engine

# Tasks whose episodes begin as those of another do.
ALIKE = (
    "acrobot-swingup_sparse", "cartpole-balance_sparse", "cartpole-swingup_sparse", "dog-walk", "dog-trot", "dog-run",
    "finger-turn_easy", "hopper-stand", "humanoid-stand", "humanoid-run", "humanoid-run_pure_state",
    "humanoid_CMU-stand", "humanoid_CMU-run", "quadruped-run", "reacher-easy", "walker-stand", "walker-run",
)  # fmt: skip


def ours(name: str, n: int) -> dict[str, np.ndarray]:
    env = TorchVectorEnv(  # of the kernels that the comparison of steps has built
        TASKS[name], n, dtype=torch.float64, observation="flat", autoreset_mode="Disabled"
    )
    obs, _ = env.reset(seed=5)
    found = {"obs": obs, "qpos": env.qpos, "qvel": env.qvel}
    found |= {x: y.flatten(1) for x, y in (env.params if env.engine.layout.params else {}).items()}
    return {x: y.cpu().numpy().copy() for x, y in found.items()}


def of_dm_control(name: str, n: int, params: list[str]) -> dict[str, np.ndarray]:
    """n of dm_control's, whose own solver settings are as they are; a cheetah takes 200 substeps for each."""
    env, found = theirs.suite.load(*name.split("-", 1), task_kwargs={"random": 3}), []
    for _ in range(n):
        obs, d = theirs.numbers(env.reset().observation), env.physics.data
        drawn = {x: np.ravel(getattr(env.physics.model, x)).copy() for x in params}
        found.append({"obs": obs, "qpos": d.qpos.copy(), "qvel": d.qvel.copy()} | drawn)
    return {x: np.stack([y[x] for y in found]) for x in found[0]}


def compare(name: str, n: int) -> None:
    one = ours(name, n)
    other = of_dm_control(name, n, [x for x in one if x not in ("obs", "qpos", "qvel")])
    found = []
    for field, x in one.items():
        assert x.shape == other[field].shape
        for k, (a, b) in enumerate(zip(x.T, other[field].T, strict=True)):
            if np.ptp(a) < 1e-9 and np.ptp(b) < 1e-9:  # where all are alike
                np.testing.assert_allclose(a.mean(), b.mean(), atol=1e-7)
            else:
                found.append((ks_2samp(a, b).pvalue, field, k))
    lowest = min(found)
    print(f"{name}: {len(found)} numbers of {n} episodes, the lowest p {lowest}, {min(1, lowest[0] * len(found)):.2f}")
    assert lowest[0] * len(found) > 0.01, lowest


@pytest.mark.parametrize("name", ["ball_in_cup-catch", "finger-turn_hard"])
def test_episodes_begin_as_dm_controls(name: str) -> None:
    compare(name, 500)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in TASKS if name not in ALIKE])
def test_thousands_of_episodes_begin_as_dm_controls(name: str) -> None:
    compare(name, 10_000)


def ahead_as_on_a_gpu(engine: Engine) -> None:
    """Have an engine compute resets ahead as on a GPU, wherever it is."""
    kernel = engine._ahead._compute.kernel
    engine._ahead = AheadOnGpu(kernel, engine.buffers, engine.num_envs, engine.max_episode_steps)


@pytest.mark.parametrize("as_on_a_gpu", [False, True])
def test_what_is_computed_ahead_changes_no_number(as_on_a_gpu: bool) -> None:
    """Cheetahs of random ages begin their episodes with it, or compute it when they do; so they do after a seed."""
    limits = {"autoreset_mode": "SameStep", "max_episode_steps": 40}
    envs = [TorchVectorEnv("cheetah-run", 50, **limits) for _ in range(2)]
    envs[1].engine._ahead = None
    if as_on_a_gpu:
        ahead_as_on_a_gpu(envs[0].engine)
    used = 0
    for env in envs:
        env.reset(seed=3)
        env.elapsed_steps.copy_(torch.arange(50, device=env.device) % 40)
    for k in range(150):
        ready = (envs[0].engine.view("next_episode") == envs[0].engine.episode + 1).sum().item()
        action = torch.full((50, 6), 0.3, device=envs[0].device)
        (obs, _, _, cut, _), (want, *_) = (env.step(action) for env in envs)
        used += cut.sum().item() * (ready > 20)
        assert torch.equal(envs[0].qpos, envs[1].qpos) and torch.equal(obs["velocity"], want["velocity"])
        if k == 75:
            for env in envs:
                env.reset(seed=4)
                env.elapsed_steps.copy_(torch.arange(50, device=env.device) % 40)
            assert not envs[0].engine.view("next_episode").any()
            assert torch.equal(envs[0].qpos, envs[1].qpos)
    assert used > 50


@pytest.mark.cpu
def test_a_graph_computes_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each replay computes ahead once, though its few steps alone would not; the numbers are those of a loop."""
    monkeypatch.setattr("torch_mjenvs.envs.ahead.LONGEST_WAIT", 1000)
    limits = {"autoreset_mode": "SameStep", "max_episode_steps": 10_000, "device": "cpu", "observation": "flat"}
    env, twin = (TorchVectorEnv("cheetah-run", 50, **limits) for _ in range(2))
    for x in (env, twin):
        x.reset(seed=3)
    twin.engine._ahead = None
    replayed = record_graphs(monkeypatch)
    ahead_as_on_a_gpu(env.engine)
    rollout = env.capture(lambda obs: obs[:, :6].tanh(), 3)
    rollout._device = torch.device("cuda:1")
    rollout._capture()
    for k in range(1, 5):
        data = rollout()
        ready = (env.engine.view("next_episode") == env.engine.episode + 1).sum().item()
        assert ready == min(50, 16 * k) and replayed.count("replay") == k
        for t in range(3):
            obs, *_ = twin.step(twin.obs[:, :6].tanh())
            assert torch.equal(data["next_obs"] if t == 2 else data["obs"][t + 1], obs)


@dataclass(frozen=True)
class Remembering(Cheetah):
    def memory(self, m):
        return {"level": 1.0}

    def reset(self, m, rng, world):
        return Start(list(m.qpos0), [0.0] * m.nv, memory={"level": 2.0})


def test_what_is_computed_ahead_may_not_be_remembered() -> None:
    with pytest.raises(ValueError, match="positions, velocities and activations alone where the task has resets_ahead"):
        TorchVectorEnv(Remembering(), 2)

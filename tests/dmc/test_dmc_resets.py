"""Episodes of dm_control's tasks begin as dm_control's do: number by number, by Kolmogorov and Smirnov's test."""

from __future__ import annotations

import dm_control_oracle as theirs
import numpy as np
import pytest
import torch
from scipy.stats import ks_2samp

from torch_mjenvs import TorchVectorEnv
from torch_mjenvs.dmc import TASKS

# Tasks whose episodes begin as those of another do.
ALIKE = (
    "acrobot-swingup_sparse", "cartpole-balance_sparse", "cartpole-swingup_sparse", "finger-turn_easy", "hopper-stand",
    "humanoid-stand", "humanoid-run", "humanoid-run_pure_state", "humanoid_CMU-stand", "humanoid_CMU-run",
    "quadruped-run", "reacher-easy", "walker-stand", "walker-run",
)  # fmt: skip


def ours(name: str, n: int) -> dict[str, np.ndarray]:
    env = TorchVectorEnv(  # of the kernels that the comparison of steps has built
        TASKS[name], n, dtype=torch.float64, device="cpu", observation="flat", autoreset_mode="Disabled"
    )
    obs, _ = env.reset(seed=5)
    found = {"obs": obs, "qpos": env.qpos, "qvel": env.qvel}
    found |= {x: y.flatten(1) for x, y in (env.params if env.engine.layout.params else {}).items()}
    return {x: y.numpy().copy() for x, y in found.items()}


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

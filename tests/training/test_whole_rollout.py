"""A rollout in one launch has the bits of one step after the other, whoever makes it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("matplotlib")
pytest.importorskip("tqdm")

from carts import Carts

from torch_mjenvs import TorchVectorEnv
from torch_mjenvs.compiler import cpu
from torch_mjenvs.compiler.matrices import can_build, why_no_bfloat16
from torch_mjenvs.training import ppo
from torch_mjenvs.training.compiled import fits

pytestmark = [
    pytest.mark.usefixtures("no_default_device"),
    pytest.mark.cpu,
    pytest.mark.skipif(not can_build(), reason="this processor has no fused multiply-add"),
]


@pytest.fixture(autouse=True)
def as_before():
    threads = torch.get_num_threads()
    with torch.no_grad():
        yield
    torch.set_num_threads(threads)


def learner(worlds: int = 128, threads: int = 1, rounded: bool = False, **arguments: Any) -> ppo.PPO:
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    env = TorchVectorEnv(Carts, worlds, autoreset_mode="SameStep", **arguments)
    small = {"num_envs": worlds, "horizon": 7, "minibatch": 64, "actor": [20, 16], "critic": [24], "epochs": 1}
    return ppo.PPO(env, ppo.Settings(**ppo.settings(**small)), seed=3, rounded=rounded)


def run(agent: ppo.PPO, iterations: int = 4) -> dict[str, torch.Tensor]:
    """All that a run leaves."""
    torch.manual_seed(1)
    found = {}
    for k in range(iterations):
        agent.iterate()
        found |= {f"{name} {k}": x.clone() for name, x in agent.rollout.tensors.items()}
    engine = agent.env.engine
    found |= {name: x.clone() for name, x in engine.buffers.items()}
    return found | {"theta": agent.net.theta.clone(), "random": torch.get_rng_state()}


def test_kernels_in_float32_are_told_of_another_default_dtype():
    torch.set_default_dtype(torch.float64)
    try:
        with pytest.raises(ValueError, match=r"default dtype is torch.float64: call torch.set_default_dtype"):
            learner()
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("rounded", [False, True])
@pytest.mark.parametrize("worlds", [64, 128])
def test_it_has_the_bits_of_one_step_after_the_other(worlds, rounded):
    """Episodes end within it, and what the task tells of them is there, too."""
    if rounded and why_no_bfloat16():
        pytest.skip("products of bfloat16 would bring nothing on this processor")
    stepwise = learner(worlds, rounded=rounded)
    stepwise.rollout._all_steps = None
    expected = run(stepwise)
    assert expected["terminated 3"].any() and any(name.startswith("episode_reward") for name in expected)
    for threads in (1, 2) if worlds > 64 else (1,):
        whole = learner(worlds, threads, rounded)
        assert whole.rollout._all_steps
        found = run(whole)
        assert found.keys() == expected.keys()
        for name, x in found.items():
            assert torch.equal(x, expected[name]), name


def test_steps_between_rollouts_and_parameters_that_change_are_seen():
    ends = []
    for whole in (True, False):
        agent = learner(64)
        if not whole:
            agent.rollout._all_steps = None
        agent.rollout()
        agent.env.step(torch.ones(64, agent.env.engine.action.shape[1]))
        agent.obs_moments.update(torch.randn(50, agent.columns[0], generator=torch.Generator().manual_seed(0)) * 3)
        agent.net.theta.mul_(1.5)
        torch.manual_seed(2)
        found = agent.rollout()
        ends.append({name: x.clone() for name, x in found.items()})
    for name, x in ends[0].items():
        assert torch.equal(x, ends[1][name]), name


def test_other_numbers_of_worlds_go_step_by_step(monkeypatch):
    assert fits(128, 1) and not fits(128, 3) and not fits(100, 1)
    assert fits(128, 2) == (cpu.team() is not None)
    assert learner(40).rollout._all_steps is None
    agent = learner(64)
    monkeypatch.setattr(cpu, "team", lambda: None)  # as on macOS
    assert fits(128, 1) and not fits(128, 2)
    with pytest.raises(ValueError, match=r"tiles of .* cannot be 3 parts"):
        cpu.Parts([agent.env.engine.launch_on({}).run], 3)

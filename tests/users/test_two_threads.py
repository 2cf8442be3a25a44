"""Two Python threads in one environment: the second gets an error, instead of silently losing steps.

Threads with an environment each do not disturb each other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from gymnasium.error import AlreadyPendingCallError

from torch_mjenvs import Simulation, TorchEnv, TorchVectorEnv
from torch_mjenvs.compiler import launch
from torch_mjenvs.envs.engine import Engine
from torch_mjenvs.envs.tasks.hopper import Hopper
from torch_mjenvs.wrappers import NormalizeObservation, RecordEpisodeStatistics

N = 4


def vector_env() -> TorchVectorEnv:
    env = TorchVectorEnv("Hopper", N, autoreset_mode="SameStep")
    env.reset(seed=0)
    return env


def engine_calls() -> dict[str, Callable[[], Any]]:
    engine = Engine(Hopper(), N)
    engine.reset()
    state, qpos, qvel = engine.state_dict(), engine.qpos.clone(), engine.qvel.clone()
    return {
        "step": engine.step,
        "reset": engine.reset,
        "seed": lambda: engine.seed(1),
        "set_state": lambda: engine.set_state(qpos, qvel),
        "state_dict": engine.state_dict,
        "load_state_dict": lambda: engine.load_state_dict(state),
    }


def vector_env_calls() -> dict[str, Callable[[], Any]]:
    env = vector_env()
    state, qpos, qvel = env.state_dict(), env.qpos.clone(), env.qvel.clone()
    actions = torch.zeros(N, 3)  # here, since each thread has a default device of its own
    return {
        "step": lambda: env.step(actions),
        "reset": lambda: env.reset(seed=1),
        "set_state": lambda: env.set_state(qpos, qvel),
        "state_dict": env.state_dict,
        "load_state_dict": lambda: env.load_state_dict(state),
        "__call__": env.capture(lambda obs: obs[:, :3], 2),
    }


def wrapper_calls() -> dict[str, Callable[[], Any]]:
    env = NormalizeObservation(RecordEpisodeStatistics(vector_env()))
    state, actions = env.state_dict(), torch.zeros(N, 3)
    return {
        "step": lambda: env.step(actions),
        "reset": lambda: env.reset(seed=1),
        "load_state_dict": lambda: env.load_state_dict(state),
    }


def single_env_calls() -> dict[str, Callable[[], Any]]:
    env = TorchEnv("Hopper", dtype=torch.float32, device=torch.get_default_device())
    env.reset(seed=0)
    qpos, qvel = env.qpos, env.qvel
    return {
        "step": lambda: env.step([0.0] * 3),
        "reset": lambda: env.reset(seed=1),
        "set_state": lambda: env.set_state(qpos, qvel),
    }


def simulation_calls() -> dict[str, Callable[[], Any]]:
    sim = Simulation(Hopper().load(), N, outputs=("xpos",))
    return {"step": sim.step, "forward": sim.forward, "reset": sim.reset}


def torchrl_calls() -> dict[str, Callable[[], Any]]:
    from torch_mjenvs import HopperEnv

    env = HopperEnv(N)
    first = env.rand_action(env.reset())
    return {"_step": lambda: env.step(first), "_reset": env.reset, "seed": lambda: env.set_seed(1)}


@pytest.mark.parametrize(
    "make", [engine_calls, vector_env_calls, wrapper_calls, single_env_calls, simulation_calls, torchrl_calls]
)
def test_every_call_is_refused_while_another_thread_is_in_one(make, monkeypatch):
    """And works, in either thread, once that is over."""
    calls = make()
    first = calls.get("step") or calls["_step"]
    inside, go_on = threading.Event(), threading.Event()
    run = launch.Launch.__call__

    def held(self: launch.Launch, times: int = 1) -> None:
        inside.set()
        assert go_on.wait(60)
        run(self, times)

    with ThreadPoolExecutor(1) as other:
        with monkeypatch.context() as patch:
            patch.setattr(launch.Launch, "__call__", held)
            pending = other.submit(first)
            assert inside.wait(60)
            for name, call in calls.items():
                with pytest.raises(AlreadyPendingCallError, match="while another thread is in a call") as error:
                    call()
                assert error.value.name == name
            go_on.set()
            pending.result(60)
        for call in calls.values():
            call()
            other.submit(call).result(60)


def test_a_step_that_raises_leaves_the_environment_to_other_threads():
    env = vector_env()
    with ThreadPoolExecutor(1) as other:
        with pytest.raises(ValueError, match="shape"):
            other.submit(env.step, torch.zeros(N, 2)).result()
        env.step(torch.zeros(N, 3))


def test_threads_with_environments_of_their_own():
    """Each gives what it gives alone."""
    envs = [TorchVectorEnv("Hopper", 256, autoreset_mode="SameStep") for _ in range(3)]
    actions = torch.rand(30, 256, 3, device="cpu").to(envs[0].device) * 2 - 1

    def play(k: int) -> torch.Tensor:
        envs[k].reset(seed=k)
        return torch.stack([envs[k].step(action)[0] for action in actions])

    alone = [play(k) for k in range(3)]
    with ThreadPoolExecutor(3) as threads:
        assert all(x.equal(y) for x, y in zip(alone, threads.map(play, range(3)), strict=True))

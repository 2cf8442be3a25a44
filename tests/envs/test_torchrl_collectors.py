"""TorchRL's collectors over its environments, in this process and in others: every batch is what one rollout gives."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest
import torch

pytest.importorskip("torchrl")

from tensordict import TensorDictBase
from tensordict.nn import TensorDictModule
from torchrl.collectors import Collector, MultiAsyncCollector, MultiSyncCollector
from torchrl.collectors.distributed import DistributedCollector
from torchrl.envs import Compose, EnvBase, ParallelEnv, RewardSum, StepCounter, TransformedEnv

from torch_mjenvs import HopperEnv

N, T, BATCHES = 4, 15, 2  # worlds of a worker, steps in a batch of it, batches
KEYS = (
    "observation",
    "action",
    "step_count",
    "episode_reward",
    *(("next", k) for k in ("observation", "reward", "done")),
)


def make(first_world: int = 0, num_envs: int = N, transformed: bool = True) -> EnvBase:
    torch.set_num_threads(1)
    env = HopperEnv(num_envs, first_world=first_world, max_episode_steps=12)
    env.set_seed(7)
    return TransformedEnv(env, Compose(StepCounter(), RewardSum())) if transformed else env


def make_policy() -> TensorDictModule:
    torch.manual_seed(1)
    with torch.device("cpu"):  # the same on every device
        net = torch.nn.Sequential(torch.nn.Linear(11, 3), torch.nn.Tanh())
    net[0].weight.data.mul_(3)
    return TensorDictModule(net.to(torch.get_default_device()), in_keys=["observation"], out_keys=["action"])


@torch.no_grad()
def expected(first_world: int = 0, num_envs: int = N) -> TensorDictBase:
    """(num_envs, BATCHES T)."""
    data = make(first_world, num_envs).rollout(BATCHES * T, make_policy(), break_when_any_done=False)
    assert data["next", "terminated"].any() and data["next", "truncated"].any()
    return data


def check(data: TensorDictBase, want: TensorDictBase) -> None:
    for key in KEYS:
        torch.testing.assert_close(data[key], want[key], rtol=0, atol=0)


@pytest.mark.parametrize("track", [True, False])
def test_a_collector_returns_what_the_engine_computes(track):
    size = {"frames_per_batch": N * T, "total_frames": BATCHES * N * T}
    collector = Collector(make(), make_policy(), track_traj_ids=track, **size)
    check(torch.cat([batch.clone() for batch in collector], 1), expected())
    collector.shutdown()


def test_collector_without_transforms():
    size = {"frames_per_batch": N * T, "total_frames": BATCHES * N * T}
    collector = Collector(make(transformed=False), make_policy(), **size)
    data, want = torch.cat([batch.clone() for batch in collector], 1), expected()
    for key in ("observation", ("next", "observation"), ("next", "reward"), ("next", "truncated")):
        torch.testing.assert_close(data[key], want[key], rtol=0, atol=0)
    ids = data["collector", "traj_ids"]  # a new number where a new episode begins
    assert (ids[:, 1:] != ids[:, :-1]).equal(want["next", "done"][:, :-1, 0])
    collector.shutdown()


WORKERS = [partial(make, 0), partial(make, N)]
SIZE = {"frames_per_batch": 2 * N * T, "total_frames": 2 * BATCHES * N * T}


@pytest.mark.cpu
@pytest.mark.slow
@pytest.mark.cpu
def test_multi_sync_collector():
    """Two processes share out the worlds of one environment."""
    collector = MultiSyncCollector(WORKERS, make_policy(), cat_results=0, **SIZE)
    try:
        data = torch.cat([batch.clone() for batch in collector], 1)
    finally:
        collector.shutdown()
    check(data, expected(0, 2 * N))


def check_any_order(batches: list[TensorDictBase]) -> None:
    """Every batch is the next one of one of the workers."""
    rest = [list(expected(first, N).split(T, 1)) for first in (0, N)]
    for batch in batches:
        [worker] = [w for w in rest if w and batch["observation"].equal(w[0]["observation"])]
        check(batch, worker.pop(0))


@pytest.mark.cpu
@pytest.mark.slow
def test_multi_async_collector():
    size = {"frames_per_batch": N * T, "total_frames": 2 * N * T}
    collector = MultiAsyncCollector(WORKERS, make_policy(), **size)
    try:
        check_any_order([batch.clone() for batch in collector])
    finally:
        collector.shutdown()


@pytest.mark.cpu
@pytest.mark.slow
def test_parallel_env():
    env = ParallelEnv(2, WORKERS)
    try:
        data = env.rollout(BATCHES * T, make_policy(), break_when_any_done=False)
        check(data.flatten(0, 1), expected(0, 2 * N))
    finally:
        env.close()


@pytest.mark.cpu
@pytest.mark.slow
def test_distributed_collector():
    """torch.distributed with gloo, on this machine."""
    collector = DistributedCollector(WORKERS, make_policy(), launcher="mp", backend="gloo", sync=True, **SIZE)
    try:
        data = torch.cat([batch.clone().flatten(0, 1) for batch in collector], 1)
    finally:
        collector.shutdown()
    check(data, expected(0, 2 * N))


@pytest.mark.cpu
@pytest.mark.slow
def test_asynchronous_distributed_collector():
    size = {"frames_per_batch": N * T, "total_frames": 2 * N * T}
    collector = DistributedCollector(WORKERS, make_policy(), launcher="mp", backend="gloo", sync=False, **size)
    try:
        check_any_order([batch.clone() for batch in collector])
    finally:
        collector.shutdown()


@pytest.mark.cpu
@pytest.mark.slow
def test_ray_collector(monkeypatch):
    """A real cluster of two workers, on this machine."""
    pytest.importorskip("ray")
    from torchrl.collectors.distributed import RayCollector

    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]))
    cluster = {"num_cpus": 2, "include_dashboard": False, "log_to_driver": False}
    each = {"num_cpus": 1, "num_gpus": 0, "memory": 2**28}
    collector = RayCollector(WORKERS, make_policy(), sync=True, ray_init_config=cluster, remote_configs=each, **SIZE)
    try:
        collector.update_policy_weights_()
        data = torch.cat([batch.flatten(0, 1) for batch in collector], 1)
    finally:
        collector.shutdown()
    check(data, expected(0, 2 * N))

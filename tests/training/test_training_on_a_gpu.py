"""Training on a real GPU: `pytest --device cuda tests/training/test_training_on_a_gpu.py`.

What the CUDA graphs of an iteration replay is what their functions do when they are called, to the bit, and the
compiled kernels give the CPU's. `test_update_as_a_graph.py` and `test_update_on_gpu.py` show as much of it as can be
shown without a GPU.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("matplotlib")
pytest.importorskip("tqdm")

from processes import python
from test_update_on_gpu import minibatches_are_those_of_the_cpu

from torch_mjenvs.compiler.matrices import can_build
from torch_mjenvs.training import ppo, train, worlds
from torch_mjenvs.training.networks import Replayed
from torch_mjenvs.training.scores import first_episodes

ON_GPU = torch.get_default_device().type == "cuda"
pytestmark = [
    pytest.mark.usefixtures("no_gradients"),
    pytest.mark.usefixtures("no_default_device"),
    pytest.mark.skipif(not ON_GPU, reason="needs a GPU"),
]
THERE = torch.device("cuda", 0)
SMALL = ["--env", "TorchHopper-v0", "--device", "cuda", "--num-envs", "64", "--horizon", "16", "--minibatch", "256"]
SMALL += ["--actor", "16,16", "--critic", "24", "--episodes", "2", "--evaluations", "2"]
SMALL += ["--target-kl", "0.01"]  # else the rate falls with the length of the whole run


def agent(compiled: bool, **instead: Any) -> ppo.PPO:
    torch.manual_seed(0)
    usual = dict(num_envs=64, horizon=16, minibatch=256, epochs=2, actor=[16], critic=[16], learning_rate=1e-2)
    env = worlds.make("TorchHopper-v0", 64, "cuda")
    return ppo.PPO(env, ppo.Settings(**ppo.settings("TorchHopper-v0", **usual | instead)), 0, compiled=compiled)


@pytest.mark.skipif(not can_build(), reason="this processor has no fused multiply-add")
def test_minibatches_are_those_of_the_cpu():
    minibatches_are_those_of_the_cpu(THERE)


@pytest.mark.parametrize("target_kl", [0.0, 0.01])
@pytest.mark.parametrize("compiled", [False, True])
def test_what_graphs_replay_is_what_their_functions_do(compiled, target_kl):
    """Seven iterations, of which graphs make the last four, beside seven without graphs of the learner."""
    ours, theirs = (agent(compiled, target_kl=target_kl) for _ in range(2))
    graphs = [name for name, x in vars(theirs).items() if isinstance(x, Replayed)]
    for name in graphs:
        setattr(theirs, name, getattr(theirs, name).function)
    for k in range(7):
        for each in (ours, theirs):
            torch.manual_seed(k)
            each.iterate()
        assert torch.equal(ours.net.theta, theirs.net.theta), k
        assert torch.equal(ours.learned, theirs.learned), k
    assert ours.rollout._graph is not None
    captured = {name for name in graphs if getattr(ours, name).graph is not None}
    assert captured == ({"learn_compiled"} if compiled else {"learn_in", "advantages_in_torch", "returns_in_torch"})
    assert not str(ours.faults())


def test_an_iteration_with_compiled_kernels_is_the_one_in_torch():
    ours, theirs = agent(True), agent(False)
    for each in (ours, theirs):
        torch.manual_seed(0)
        each.iterate()
    torch.testing.assert_close(ours.frames, theirs.frames, rtol=1e-3, atol=1e-3)  # with TF32 in torch's products
    torch.testing.assert_close(ours.learned, theirs.learned, rtol=1e-2, atol=1e-3)


def test_an_evaluation_in_a_graph_is_one_step_by_step():
    """Of Hopper, whose episodes end at different times."""
    learned, env = agent(True), worlds.make("TorchHopper-v0", 20, "cuda")
    for _ in range(5):
        learned.iterate()
    found = [first_episodes(learned.act, env, 3, "cuda", by_rows) for by_rows in (True, False)]
    assert torch.equal(found[0].returns, found[1].returns) and len(found[0].returns.unique()) > 5


@pytest.mark.parametrize("learned_by", ["torch", "compiled"])
def test_a_run_and_its_continuation(tmp_path: Path, learned_by: str):
    """Trained, scored here and in Gymnasium; what is resumed goes on to the same weights, to the bit."""
    weights = []
    for folder, frames in (("whole", [6144]), ("resumed", [3072, 6144])):
        out = str(tmp_path / folder)
        for k, total in enumerate(frames):
            resume = ["--resume"] if k else []
            train.main([*SMALL, "--learner", learned_by, "--out", out, "--total-steps", str(total), *resume])
        weights.append(torch.load(tmp_path / folder / "policy.pt", weights_only=True))
        result = json.loads((tmp_path / folder / "result.json").read_text())
        assert set(result["scores"]) == {"TorchHopper-v0", "Hopper-v5"} and result["frames"] == 6144
    whole, resumed = ({name: x for name, x in each.items() if isinstance(x, torch.Tensor)} for each in weights)
    assert whole.keys() == resumed.keys() and all(x.isfinite().all() for x in whole.values())
    assert not [name for name, x in whole.items() if not torch.equal(x, resumed[name])]


@pytest.mark.parametrize("learned_by", ["torch", "compiled"])
def test_two_processes_that_exchange_by_nccl_are_one(tmp_path: Path, learned_by: str):
    """On one GPU: NCCL refuses two processes of one machine there, but takes these for two machines.

    In torch each sums half of a minibatch's gradient, so last bits differ. The last 13 of 16 updates are graphs there.
    """
    flags = ["--env", "TorchHopper-v0", "--device", "cuda", "--num-envs", "32", "--horizon", "16", "--minibatch", "256"]
    flags += ["--actor", "16,16", "--critic", "16", "--epochs", "2", "--total-steps", "2048", "--evaluations", "0"]
    flags += ["--episodes", "2", "--learner", learned_by, "--precision", "float32"]
    train.main([*flags, "--out", str(tmp_path / "one")])

    def process(rank: int) -> str:
        where = {"RANK": str(rank), "LOCAL_RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
        nccl = {"NCCL_HOSTID": f"machine {rank}", "NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1"}
        command = ["-m", "torch_mjenvs", "train", *flags, "--out", str(tmp_path / "two")]
        done = python(*command, seconds=120, anew=True, MASTER_PORT="29517", **where, **nccl)
        return done.stderr if done.returncode else ""

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(process, range(2))) == ["", ""]
    one, two = (torch.load(tmp_path / name / "checkpoint.pt", weights_only=True)["agent"] for name in ("one", "two"))
    assert one["frames_seen"] == two["frames_seen"] == 2048 and len(two["env"]["qpos"]) == 32
    torch.testing.assert_close(one["theta"], two["theta"], rtol=0, atol=1e-4 if learned_by == "torch" else 0)

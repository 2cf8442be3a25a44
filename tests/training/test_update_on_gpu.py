"""The update's kernels for a GPU, launched through a stand-in for NVIDIA's driver that interprets their PTX.

They are compared with torch, and with the CPU's kernel of the same plan: to the bit where its vectors have 16 numbers.
"""

from __future__ import annotations

import argparse
import copy
import gc
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch

pytest.importorskip("matplotlib")
pytest.importorskip("tqdm")

from driver import Driver, driver
from launches import RecordedGraph, record_graphs
from ptx import Program as PTXProgram
from ptx import unwritten
from sass import machine as sass
from test_compiled_update import SIZES, learner

from benchmarks import cuda_code
from torch_mjenvs import TorchVectorEnv
from torch_mjenvs.compiler import cpu, cuda
from torch_mjenvs.compiler.matrices import PlanKernel as CPUKernel
from torch_mjenvs.compiler.matrices import build, can_build
from torch_mjenvs.compiler.matrices.block_text import THREADS
from torch_mjenvs.compiler.matrices.blocks import render
from torch_mjenvs.envs.rollout import Rollout
from torch_mjenvs.training import compiled, ppo, worlds
from torch_mjenvs.training.compiled import on_gpu
from torch_mjenvs.training.scores import first_episodes
from torch_mjenvs.training.sharing import ALONE, Share

__all__ = ["driver"]  # a fixture

pytestmark = [
    pytest.mark.usefixtures("no_gradients"),
    pytest.mark.usefixtures("no_default_device"),
    pytest.mark.cpu,
    pytest.mark.skipif(not can_build(), reason="this processor has no fused multiply-add"),
]
SAME = cpu.host().vector_bytes == 4 * on_gpu.LANES


@pytest.fixture
def gpu(driver, monkeypatch) -> Iterator[Driver]:
    """The stand-in, which lets kernels touch the tensors of their launch and nothing else."""
    call = on_gpu.GpuPlanLaunch.__call__

    def watched(self: on_gpu.GpuPlanLaunch, rounds: int = 1) -> None:
        driver.memory = [(x.data_ptr(), x.numel() * x.element_size()) for x in self.tensors]
        call(self, rounds)

    monkeypatch.setattr(on_gpu.GpuPlanLaunch, "__call__", watched)
    monkeypatch.setattr(on_gpu, "CHUNKS", 2)  # interpreting 64 blocks takes long
    yield driver
    gc.collect()  # code is unloaded while the driver is there


def update_of(agent: ppo.PPO, share: Share = ALONE) -> on_gpu.Update:
    s, net = agent.settings, agent.net
    loss = compiled.Loss(s.clip, s.value_weight, s.max_grad_norm, s.entropy, s.value_clip)
    log_std, size = int(net.log_std.storage_offset()), s.minibatch
    return on_gpu.Update(
        compiled.networks_of(net), net.theta, log_std, agent.optimizer, agent.columns, size, loss,
        compiled.trained(net), share,
    )  # fmt: skip


class CPULaunch:
    """The CPU's kernel of a plan over the tensors of a launch."""

    def __init__(self, kernel: on_gpu.GpuPlanKernel, tensors: dict[str, torch.Tensor]):
        self.kernel: CPUKernel = build(kernel.plan)
        (own,) = (m.each for m in kernel.plan.memories if m.each)
        self.tensors = {**tensors, "own": torch.zeros(own)}

    def __call__(self, rounds: int) -> None:
        self.kernel(self.tensors, rounds)


def of_the_cpu(update: on_gpu.Update, frames: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(on_gpu, "GpuPlanLaunch", CPULaunch)
        return update(frames, order)


def same(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    torch.testing.assert_close(ours, theirs, **(dict(rtol=0, atol=0) if SAME else dict(rtol=1e-5, atol=1e-6)))


CASES: list[tuple[tuple[int, int, int, int], dict[str, Any]]] = [
    ((17, 6, 64, 64), {}),
    (SIZES[2], {"activation": "relu", "value_clip": 0.2, "entropy": 0.3}),
    ((11, 3, 20, 96), {"actor": [40, 24, 12], "critic": [20], "activation": "elu", "entropy": 0.01}),
    ((11, 3, 20, 96), {"actor": [33], "critic": [16, 16], "activation": "silu", "value_clip": 0.1}),
    ((11, 3, 20, 40), {"norm": "layer"}),
    ((376, 17, 12, 32), {"critic": [100]}),
    ((7, 3, 20, 33), {"norm": "layer", "actor": [40, 24, 13], "critic": [5], "activation": "silu"}),
]


@pytest.mark.parametrize(("sizes", "instead"), CASES)
def test_a_minibatch_is_that_of_torch_and_of_the_cpu(gpu, sizes, instead):
    """Gradient, statistics, and the parameters after a step."""
    agents = [learner(*sizes, compile=False, **instead) for _ in range(2)]
    order = torch.randperm(len(agents[0].frames))[: sizes[-1]]
    before = agents[0].net.theta.clone()
    ours, theirs = map(update_of, agents)
    found = ours(agents[0].frames, order)
    same(found, of_the_cpu(theirs, agents[1].frames, order))
    same(ours.gradient, theirs.gradient)
    same(ours.parameters, theirs.parameters)
    same(agents[0].net.theta, agents[1].net.theta)
    assert not torch.equal(agents[0].net.theta, before)
    assert [call[0] for call in gpu.calls].count("launch") == 3

    agents[0].net.theta.copy_(before)
    means, grad = agents[0].gradient(agents[0].frames[order]), agents[0].net.grad
    assert (ours.gradient - grad).abs().max() < 1e-5 * grad.abs().max()
    torch.testing.assert_close(found[0, :-1], means, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found[0, -1], grad.norm(), rtol=1e-5, atol=0)


@pytest.mark.parametrize("shared", [227 * 1024, 16 * 1024])
def test_several_epochs_end_where_torch_does(gpu, monkeypatch, shared):
    """Twice, at other rates. The second time a block's memory does not fit into what is shared."""
    monkeypatch.setattr(gpu.CUdevice_attribute, "CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN", shared)
    ours, cpus, theirs = agents = [learner(*SIZES[2], compile=False) for _ in range(3)]
    updates = [update_of(agent) for agent in agents[:2]]
    assert any(grid.shared == 0 < grid.own for grid in updates[0].kernels[0].grids) == (shared < 100_000)
    for rate in (1e-3, 5e-4):
        torch.manual_seed(1)
        order = torch.cat([torch.randperm(280) for _ in range(2)])[: 3 * 70]
        for agent in agents:
            agent.lr.fill_(rate)
        found = updates[0](ours.frames, order)
        same(found, of_the_cpu(updates[1], cpus.frames, order))
        theirs.epoch(order, 70)
    same(ours.net.theta, cpus.net.theta)
    torch.testing.assert_close(ours.net.theta, theirs.net.theta, rtol=0, atol=1e-5)
    torch.testing.assert_close(found.mean(0), theirs.sums / 3, rtol=1e-3, atol=1e-5)
    states = [agent.optimizer.state_dict()["state"][0] for agent in (ours, theirs)]
    assert states[0].keys() == states[1].keys() and states[0]["step"] == states[1]["step"] == 2 * 3
    for name in ("exp_avg", "exp_avg_sq"):
        torch.testing.assert_close(states[0][name], states[1][name], rtol=1e-3, atol=1e-7)


def test_parts_of_several_tiles(gpu, monkeypatch):
    """As in minibatches of more than 4,096 frames."""
    monkeypatch.setattr(on_gpu, "PARTS", 2)
    agents = [learner(5, 2, 20, 150, compile=False, norm=norm) for norm in ("none", "none", "layer", "layer")]
    order = torch.randperm(600)[:300]
    for ours, theirs in (agents[:2], agents[2:]):
        update, other = update_of(ours), update_of(theirs)
        assert (update.minibatch.parts, update.minibatch.tiles) == (2, 3)
        same(update(ours.frames, order), of_the_cpu(other, theirs.frames, order))
        same(ours.net.theta, theirs.net.theta)
        gradient, theta = update.gradient, ours.net.theta
        theta.copy_(learner(5, 2, 20, 150, compile=False, norm=ours.settings.norm).net.theta)
        ours.optimizer.state.clear()
        update(ours.frames, order[:150])
        theta.copy_(learner(5, 2, 20, 150, compile=False, norm=ours.settings.norm).net.theta)
        ours.gradient(ours.frames[order[:150]])
        grad = ours.net.grad
        assert (update.gradient - grad).abs().max() < 1e-5 * grad.abs().max()
        assert not torch.equal(gradient, update.gradient)


class Exchange(Share):
    """The share of a process that runs alone here: what it adds is kept in `given`, or is replaced by `totals`."""

    given: ClassVar[list[list[torch.Tensor]]] = []
    totals: ClassVar[list[torch.Tensor]] = []

    def add(self, *tensors: torch.Tensor) -> None:
        self.given.append([x.clone() for x in tensors])
        for x, total in zip(tensors, self.totals, strict=False):
            x.copy_(total)


@pytest.mark.parametrize("frames", [90, 32])
def test_processes_that_share_a_minibatch_end_with_the_bits_of_one(gpu, monkeypatch, frames):
    """Two processes, which have three parts, or one: then the first process has none."""
    sizes = 11, 3, 20, frames
    order = torch.randperm(4 * frames)[:frames]
    alone = learner(*sizes, compile=False)
    found = update_of(alone)(alone.frames, order)
    given: list[list[torch.Tensor]] = []
    monkeypatch.setattr(Exchange, "given", given)
    for totals in ([], None):
        if totals is None:  # what all processes gave, the first time
            monkeypatch.setattr(Exchange, "totals", [sum(of[1:], of[0]) for of in zip(*given, strict=True)])
        for rank in range(2):
            agent = learner(*sizes, compile=False)
            update = update_of(agent, Exchange(rank, 2))
            theirs = update(agent.frames, order)
            assert len(update.kernels) == 2
    assert len(given) == 4 and torch.equal(theirs, found)
    assert torch.equal(agent.net.theta, alone.net.theta)
    assert not torch.equal(given[0][0], given[-1][0])


def test_networks_that_see_different_observations(gpu):
    sees = torch.tensor([[True] * 5 + [False] * 2, [True] * 7])
    agents = [learner(7, 2, 20, 64, compile=False, sees=sees) for _ in range(2)]
    order = torch.randperm(256)[:128]
    update, other = map(update_of, agents)
    same(update(agents[0].frames, order), of_the_cpu(other, agents[1].frames, order))
    same(agents[0].net.theta, agents[1].net.theta)
    unseen = agents[0].net.policy[0][0][:, 5:]
    assert not unseen.any() and agents[0].net.value[0][0][:, 5:].any()
    agents[0].net.theta.copy_(learner(7, 2, 20, 64, compile=False, sees=sees).net.theta)


def test_what_a_launch_cannot_take_is_refused(gpu):
    agent = learner(5, 2, 20, 64, compile=False)
    update = update_of(agent)
    with pytest.raises(ValueError, match=r"memory 'frames' must be a contiguous torch\.float32 tensor on cpu"):
        update(agent.frames.T.contiguous().T, torch.arange(64))
    update.parameters = torch.zeros(3, update.minibatch.total + 1)[:, 1:]
    with pytest.raises(ValueError, match="memory 'theta' must begin at a multiple of 16 bytes"):
        update(agent.frames, torch.arange(64))


@pytest.mark.parametrize("norm", ["none", "layer"])
def test_actions_and_values_are_those_of_the_cpu(gpu, norm):
    """For any number of observations, which may stand anywhere; in one launch."""
    sizes = 17, 6, 20, 64
    agent = learner(*sizes, compile=False, norm=norm)
    networks = compiled.networks_of(agent.net)
    ours, theirs = on_gpu.Forward(networks, agent.net.theta, 17), compiled.Forward(networks, agent.net.theta, 17)
    moments = ppo.RunningMoments(17, device=torch.device("cpu"))
    moments.update(torch.randn(50, 17) * 3 + 1)
    obs = torch.randn(101, 17) * 30
    expected = agent.net.forward(moments.normalise(obs))
    for n in (1, 33, 100):
        before = len(gpu.calls)
        found = ours(obs[1 : n + 1], moments.mean, moments.var)
        assert [call[0] for call in gpu.calls[before:]].count("launch") == 1
        cpus = theirs(obs[1 : n + 1].clone(), moments.mean, moments.var)
        assert [tuple(x.shape) for x in found] == [(n, 6), (n, 1)]
        for x, y in zip(found, cpus, strict=True):
            assert torch.equal(x, y)
        torch.testing.assert_close(found[0], expected[0][1 : n + 1], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(found[1][:, 0], expected[1][1 : n + 1], rtol=1e-4, atol=1e-5)
    first = ours(obs[:33], moments.mean, moments.var)[0]
    kept = first.clone()
    ours(obs[33:66], moments.mean, moments.var)
    assert torch.equal(first, kept), "what a call returns is its own"


@pytest.mark.parametrize("worlds", [34, 128])
def test_advantages_and_returns_are_those_of_the_cpu(gpu, worlds):
    generator, steps = torch.Generator().manual_seed(0), 9
    carried = (compiled.advantages(0.99, 0.95), ("next_value", "next_advantage"), True), (
        compiled.returns(0.99), ("whole", "discounted"), False,
    )  # fmt: skip
    for program, names, backward in carried:
        where = torch.device("cpu"), None  # the stand-in, and the CPU
        sweeps = [compiled.Sweep(program, names, steps, worlds, backward, gpu) for gpu in where]
        given = {}
        for b in program.buffers:
            shape = (worlds,) if b.name in names else (steps, worlds)
            given[b.name] = torch.randn(*shape, generator=generator)
        given["done"] = (given["done"] > 0.8).float()
        ours, theirs = (sweep(**given) for sweep in sweeps)
        for name, x in theirs.items():
            assert torch.equal(ours[name], x)
        assert not torch.equal(ours[names[0]], given[names[0]])
    assert [call[0] for call in gpu.calls].count("launch") == 2


class OnTheStandIn(ppo.PPO):
    """A PPO on the CPU that learns by the kernels of a GPU."""

    gpu = torch.device("cpu")


def agent(kind: type[ppo.PPO], **instead: Any) -> ppo.PPO:
    torch.manual_seed(0)
    usual = dict(num_envs=4, horizon=16, minibatch=32, epochs=2, actor=[8], critic=[8], learning_rate=1e-2)
    env = worlds.make("TorchHopper-v0", 4, "cpu")
    settings = ppo.Settings(**ppo.settings("TorchHopper-v0", **(usual | instead)))
    return kind(env, settings, 0, compiled=kind is OnTheStandIn)


@pytest.mark.parametrize("target_kl", [0.0, 0.01])
def test_iterations_are_those_of_torch_within_a_graph(gpu, monkeypatch, target_kl):
    """Captured at the fourth update, as CUDA does it, and replayed."""
    seen = record_graphs(monkeypatch)
    ours, theirs = agent(OnTheStandIn, target_kl=target_kl), agent(ppo.PPO, target_kl=target_kl)
    graph = ours.learn_compiled
    ours.learn_compiled = partial(graph._replay)
    for k in range(6):
        if k == 5:  # the stand-in runs what it captures, and then replays it: so once it has been done twice
            ours.net.theta.copy_(theirs.net.theta)
            for name, x in theirs.optimizer.state[theirs.net.theta].items():
                ours.optimizer.state[ours.net.theta][name].copy_(x)
            ours.lr.copy_(theirs.lr)
            ours.env.load_state_dict(copy.deepcopy(theirs.env.state_dict()))
            for name in ("obs_moments", "return_moments"):
                getattr(ours, name).load_state_dict(getattr(theirs, name).state_dict())
            ours.discounted_return.copy_(theirs.discounted_return)
        random = torch.get_rng_state()
        ours.iterate()
        torch.set_rng_state(random)
        theirs.iterate()
        if k in (0, 5):
            torch.testing.assert_close(ours.net.theta, theirs.net.theta, rtol=0, atol=5e-6)
            torch.testing.assert_close(ours.learned, theirs.learned, rtol=1e-4, atol=1e-5)
    assert isinstance(graph.graph, RecordedGraph) and seen.count("replay") >= 2
    assert not str(ours.faults())
    assert graph.graph.launches == 1  # of all kernels of all minibatches


@pytest.mark.parametrize("count", [5, 16])
def test_an_evaluation_in_a_graph_is_one_step_by_step(gpu, monkeypatch, count):
    """Replayed by the stand-in, with the kernels of a GPU for the policy, whose actions are always in one place."""
    seen, capture = record_graphs(monkeypatch), TorchVectorEnv.capture
    learned = agent(OnTheStandIn)
    learned.iterate()

    def captured(env: TorchVectorEnv, policy: Any, steps: int) -> Rollout:
        env.engine._ahead = None  # as on a GPU
        rollout = capture(env, policy, steps)
        rollout._capture()
        return rollout

    env = worlds.make("TorchHopper-v0", count, "cpu")
    obs, _ = env.reset(seed=3)
    returns, alive = torch.zeros(count, dtype=torch.float64), torch.ones(count, dtype=torch.bool)
    while alive.any():
        obs, reward, terminated, truncated, _ = env.step(learned.act(obs))
        returns += reward * alive
        alive &= ~(terminated | truncated)
    with monkeypatch.context() as patch:
        patch.setattr(TorchVectorEnv, "capture", captured)
        found = first_episodes(learned.act, env, 3, "cpu")
    assert seen.count("replay") > 1 and len(found.returns.unique()) == count
    assert torch.equal(found.returns, returns)


def test_a_gpu_has_it_unless_layers_are_wide(capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))

    def ways(widest: int = 64, ranks: int = 1, **given: str | None) -> dict[str, str]:
        args = argparse.Namespace(**({"learner": None, "precision": None, "device": "cuda"} | given))
        return ppo.ways(args, {"actor": [64, 64], "critic": [widest, 64]}, Share(0, ranks))

    assert ways() == ways(widest=256) == {"learner": "compiled", "precision": "float32"}
    assert ways(ranks=2) == ways()
    assert ways(widest=512) == {"learner": "torch", "precision": "tf32"}
    assert ways(widest=512, learner="compiled")["learner"] == "compiled"
    assert ways(learner="compiled") == {"learner": "compiled", "precision": "float32"}
    assert ways(learner="torch") == {"learner": "torch", "precision": "tf32"}
    assert ways(learner="torch", precision="float32")["precision"] == "float32"
    assert capsys.readouterr().err == ""
    assert ways(learner="compiled", precision="bfloat16")["precision"] == "float32"
    assert "--precision bfloat16 is float32 here: it is for the CPU" in capsys.readouterr().err
    assert ways(learner="torch", precision="bfloat16")["precision"] == "tf32"
    assert "--precision bfloat16 is tf32 here: it is for the CPU" in capsys.readouterr().err
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    assert ways(learner="torch")["precision"] == "float32"


def minibatches_are_those_of_the_cpu(there: torch.device) -> None:
    """Three of them, with all chunks and parts of HalfCheetah's networks; and the same bits the second time."""
    ours, theirs = (learner(17, 6, 64, 100, compile=False) for _ in range(2))
    net = ours.net = ppo.ActorCritic(17, 6, [64, 64], [64, 64], "tanh", -1.0, there)
    net.theta.copy_(theirs.net.theta)
    ours.lr, ours.frames = ours.lr.to(there), ours.frames.to(there)
    capturable = there.type == "cuda"
    ours.optimizer = torch.optim.Adam([net.theta], ours.lr, eps=1e-5, fused=True, capturable=capturable)
    update = update_of(ours)
    start, order = net.theta.clone(), torch.randperm(400)[:300]
    found = update(ours.frames, order.to(there)).cpu()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(on_gpu, "GpuPlanKernel", lambda plan, device: SimpleNamespace(plan=plan))
        cpus = update_of(theirs)
    expected = of_the_cpu(cpus, theirs.frames, order)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)  # means over frames are torch's
    same(update.parameters.cpu(), cpus.parameters)
    same(net.theta.cpu(), theirs.net.theta)
    before = update.parameters.clone()
    net.theta.copy_(start)
    ours.optimizer.state.clear()
    update(ours.frames, order.to(there))
    assert torch.equal(update.parameters, before), "the same bits each time"


def test_minibatches_of_halfcheetah_are_those_of_the_cpu(gpu):
    minibatches_are_those_of_the_cpu(torch.device("cpu"))


class MachineLaunch:
    """NVIDIA's machine code of a plan, as ptxas makes it for sm_90, run by an emulator."""

    def __init__(self, kernel: on_gpu.GpuPlanKernel, tensors: dict[str, torch.Tensor]):
        self.grids, self.tensors, self.memories = render(kernel.plan, 227 * 1024), tensors, kernel.plan.memories
        self.machines = [sass.Machine(cuda.translate(grid.ir).decode()) for grid in self.grids]

    def __call__(self, rounds: int = 1) -> None:
        for k in range(rounds):
            for grid, machine in zip(self.grids, self.machines, strict=True):
                own = torch.full((0 if grid.shared else grid.blocks * grid.own,), torch.nan)
                given = [own if m.each else self.tensors[m.name] for m in self.memories]
                machine.launch_blocks(given, k, grid.blocks, THREADS, grid.shared)


@pytest.mark.skipif(bool(sass.missing()), reason=str(sass.missing()))
@pytest.mark.parametrize(("sizes", "instead"), [CASES[0], CASES[2], CASES[5]])
def test_nvidias_machine_code_gives_these_bits_too(monkeypatch, sizes, instead):
    """Two minibatches, and then actions and values."""
    monkeypatch.setattr(on_gpu, "CHUNKS", 2)
    monkeypatch.setattr(on_gpu, "GpuPlanKernel", lambda plan, device: SimpleNamespace(plan=plan))
    agents = [learner(*sizes, compile=False, **instead) for _ in range(2)]
    order = torch.randperm(len(agents[0].frames))[: 2 * sizes[-1]]
    ours, theirs = map(update_of, agents)
    monkeypatch.setattr(on_gpu, "GpuPlanLaunch", MachineLaunch)
    found = ours(agents[0].frames, order)
    same(found, of_the_cpu(theirs, agents[1].frames, order))
    same(ours.parameters, theirs.parameters)
    networks, theta, obs = compiled.networks_of(agents[0].net), agents[0].net.theta, torch.randn(40, sizes[0])
    moments = torch.zeros(sizes[0]), torch.ones(sizes[0])
    cpus = compiled.Forward(networks, theta, sizes[0])(obs, *moments)
    for x, y in zip(on_gpu.Forward(networks, theta, sizes[0])(obs, *moments), cpus, strict=True):
        assert torch.equal(x, y)


NETWORKS = {
    "HalfCheetah": (17, 6, (64, 64), "tanh", "none", (46_208, 832, 16)),
    "Humanoid": (348, 17, (64, 64), "tanh", "none", (133_968, 3_456, 16)),
    "a legged robot": (48, 12, (512, 256, 128), "elu", "none", (0, 23_808, 16)),
    "layer norm": (17, 6, (64, 64), "silu", "layer", (79_488, 896, 16)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_kernels_of_common_networks(name, monkeypatch):
    """Their memory within an H100's, 0 where that is not shared; and what NVIDIA's assembler says, if it is there."""
    observations, actions, hidden, activation, norm, shared = NETWORKS[name]
    monkeypatch.setattr(on_gpu, "GpuPlanKernel", lambda plan, device: SimpleNamespace(plan=plan))
    agent = learner(observations, actions, 8, 2048, compile=False, actor=[*hidden], critic=[*hidden],
                    activation=activation, norm=norm)  # fmt: skip
    update = update_of(agent)
    grids = render(update.kernels[0].plan, 227 * 1024)
    assert tuple(grid.shared for grid in grids) == shared
    assert [grid.blocks for grid in grids] == [128, 64, 64]  # of the 132 multiprocessors
    for grid in grids:
        ptx = cuda.translate(grid.ir).decode()
        assert not unwritten(PTXProgram(ptx))
        archs = ("sm_80", "sm_90", "sm_100") if name == "HalfCheetah" else ("sm_90",)
        for arch in archs if cuda_code.tool("ptxas") else ():
            code, _ = cuda_code.assemble(ptx, arch)
            assert code.registers <= 128 and code.stack == code.spill_stores == code.spill_loads == 0

"""The device that worlds are on. With `--device cuda`: the GPU gives the CPU's bits of the same program, and no call
waits for it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import gymnasium
import numpy as np
import processes
import pytest
import torch
import torch._dynamo
from gymnasium.vector import AutoresetMode
from launches import NoWaiting

from torch_mjenvs import TASKS, Simulation, TorchEnv, TorchVectorEnv, wrappers
from torch_mjenvs.compiler import cpu, cuda, devices, launch
from torch_mjenvs.envs.engine import Engine
from torch_mjenvs.wrappers import NormalizeObservation, NormalizeReward, RecordEpisodeStatistics, RescaleAction

HERE = torch.get_default_device()
ON_GPU = HERE.type == "cuda"
on_gpu = pytest.mark.skipif(not ON_GPU, reason="needs a GPU")
HEAVY = {"Ant", "Humanoid", "HumanoidStandup"}  # seconds to compile
NAMES = [pytest.param(name, marks=[pytest.mark.slow] * (name in HEAVY)) for name in sorted(TASKS)]


def moves(engine: Engine, steps: int, seed: int = 0) -> torch.Tensor:
    """(steps, N, nu) over the actuators' ranges and a little beyond, on the CPU."""
    shape, generator = (steps, engine.num_envs, engine.layout.nu), torch.Generator().manual_seed(seed)
    high = torch.tensor(engine.mjmodel.actuator_ctrlrange[:, 1], dtype=engine.dtype, device="cpu")
    return (2.2 * torch.rand(shape, generator=generator, dtype=engine.dtype, device="cpu") - 1.1) * high


def test_truly_there():
    """Neither is the CPU tested in the GPU's name, nor the other way round."""
    env = TorchVectorEnv("Hopper", 5)
    obs, _ = env.reset(seed=0)
    assert env.device.type == obs.device.type == HERE.type
    assert isinstance(env.engine._step.kernel, cuda.CudaKernel if ON_GPU else cpu.CpuKernel)
    assert torch.cuda.is_available() == ON_GPU
    if ON_GPU:
        kernel = env.engine._step.kernel
        assert 0 < kernel.registers <= 255 and kernel.local_bytes >= 0
        assert kernel.blocks >= 8 and kernel.reserved_bytes >= kernel.local_bytes


@pytest.mark.cpu
def test_the_option_refuses_where_there_is_no_gpu():
    """Instead of running on the CPU."""
    run = processes.python("-m", "pytest", "--device", "cuda", "tests/envs/test_device.py", seconds=120)
    assert run.returncode == pytest.ExitCode.USAGE_ERROR and "sees no GPU" in run.stderr


@pytest.mark.parametrize(
    ("device", "text"),
    [
        ("nowhere", "there is no device 'nowhere'"),
        ("meta", "'meta' is not supported"),
        ("cuda:99", "there are only" if ON_GPU else "sees no GPU; use device='cpu'"),
    ],
)
def test_devices_that_are_not_there(device, text):
    for make in (
        lambda: TorchVectorEnv("Hopper", 2, device=device),
        lambda: Simulation(TASKS["Hopper"]().load(), 2, device),
    ):
        with pytest.raises(ValueError, match=text):
            make()


@pytest.fixture
def gpu(monkeypatch) -> dict:
    """What torch says of a GPU that it sees."""
    says = {"is_available": True, "device_count": 1, "current_device": 0, "get_device_capability": (9, 0)}
    for name in says:
        monkeypatch.setattr(torch.cuda, name, lambda *_, name=name: says[name])
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.version, "hip", None)
    return says


@pytest.mark.cpu
def test_which_gpus_are_picked(gpu, monkeypatch):
    """Those that can be used. torch calls AMD's cuda, too."""
    assert devices.choose_device(None) == devices.choose_device("cuda") == torch.device("cuda:0")
    gpu["get_device_capability"] = (7, 0)
    assert devices.choose_device(None) == torch.device("cpu")
    with pytest.raises(ValueError, match=r"is of compute capability 7\.0, this takes 7\.5"):
        devices.choose_device("cuda:0")
    gpu["get_device_capability"] = (9, 4)
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.version, "hip", "7.0")
    assert devices.choose_device(None) == torch.device("cpu")
    with pytest.raises(ValueError, match="only NVIDIA's"):
        devices.choose_device("cuda")


@pytest.mark.cpu
def test_one_world_for_numpy_is_on_the_cpu_unless_asked(gpu):
    assert gymnasium.make("TorchHopper-v0").unwrapped.device == torch.device("cpu")
    with pytest.raises(Exception, match=r"(?i)cuda|nvidia"):  # so it was tried there
        gymnasium.make("TorchHopper-v0", device="cuda")


@pytest.mark.cpu
def test_who_does_not_compile_does_not_wait_for_torchs_compiler():
    """Its import takes seconds. For a step on a GPU, the device is claimed to be one."""
    program = """if True:
        import sys, torch
        before = set(sys.modules)
        import torch_mjenvs
        from torch_mjenvs import wrappers
        env = torch_mjenvs.TorchVectorEnv("Hopper", 4, device="cpu", autoreset_mode="SameStep")
        env = wrappers.RecordEpisodeStatistics(wrappers.NormalizeObservation(env))
        env.reset(seed=0)
        env.step(torch.zeros(4, 3))
        engine = env.unwrapped.engine
        engine.device = torch.device("cuda")
        engine.step()
        torch_mjenvs.Simulation(engine.mjmodel, 3, "cpu").step()
        print([x for x in set(sys.modules) - before if x.startswith("torch.")])
    """
    assert processes.run(program, seconds=120, anew=True).splitlines()[-1:] == ["[]"]


@pytest.mark.cpu
def test_torch_is_told_that_buffers_keep_their_place(monkeypatch):
    """As torch's own function would tell it, of all that a step writes into."""
    marked = torch.zeros(1)
    torch._dynamo.mark_static_address(marked)
    claimed = SimpleNamespace(is_cuda=True)
    launch.mark_static_address(claimed)
    assert vars(claimed) == {"is_cuda": True, **vars(marked)}
    assert not vars(launch.mark_static_address(torch.zeros(1)))

    with monkeypatch.context() as patch:
        patch.setattr(torch.Tensor, "is_cuda", property(lambda x: True), raising=False)
        env = TorchVectorEnv("Hopper", 3, autoreset_mode="SameStep")
        sim = Simulation(env.model, 3, outputs=("xpos",))
        statistics = wrappers.RecordEpisodeStatistics(env)
        normal = wrappers.NormalizeReward(wrappers.NormalizeObservation(statistics))
    kept = [*env.engine.buffers.values(), *env.engine.outputs.buffers.values()]
    kept += [*sim._buffers.values(), *sim._start.values()]
    kept += [*statistics._state().values(), *normal._state().values(), *normal.env._state().values()]
    untold = [x.shape for x in kept if not hasattr(x if x._base is None else x._base, "_dynamo_static_input_type")]
    assert not untold and len(kept) > 40


def test_torchs_default_device_is_of_no_account():
    """What is made for worlds on the CPU is there, whatever torch makes by default; `meta` holds no numbers at all."""
    with torch.device("meta"):
        env = TorchVectorEnv("Hopper", 3, device="cpu", autoreset_mode="SameStep")
        env.reset(seed=0)
        env.reset(seed=[1, 2, 3])
        env.step([[0.1, 0.2, 0.3]] * 3)
        env.set_state(env.qpos.clone(), env.qvel.clone())
        env.capture(lambda obs: obs[:, :3], 2)()
        sim = Simulation(TASKS["Hopper"]().load(), 3, "cpu", outputs=("xpos",))
        sim.step(2)
        sim.reset(env.engine.done)
        sim.forward()
        env.load_state_dict(env.state_dict())
        around = NormalizeReward(NormalizeObservation(RecordEpisodeStatistics(RescaleAction(env, -1.0, 1.0))))
        around.reset()
        around.step([[0.1, 0.2, 0.3]] * 3)
        around.load_state_dict(around.state_dict())
        single = TorchEnv("Hopper", device="cpu")
        single.reset(seed=np.array(1))
        single.step([0.1, 0.2, 0.3])
        if ON_GPU:
            TorchVectorEnv("Hopper", 3).reset(seed=0)
    assert env.qpos.device == sim.qpos.device == torch.device("cpu")


# the same bits


@on_gpu
@pytest.mark.usefixtures("as_for_a_gpu")
@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", NAMES)
def test_the_gpu_gives_the_cpus_bits(name, dtype, mode):
    """Every buffer, of the same program: through contacts, falls, time limits, resets by mask, states that were set."""
    n, limit = 333, 30
    make = lambda device: Engine(  # noqa: E731
        TASKS[name](), n, device=device, dtype=dtype, autoreset_mode=mode, max_episode_steps=limit
    )
    engines = [make("cpu"), make(HERE)]

    def same() -> None:
        ours, theirs = (engine.state_dict() for engine in engines)
        differing = {k: int((x != theirs[k].cpu()).sum()) for k, x in ours.items() if not x.equal(theirs[k].cpu())}
        assert not differing, differing

    for engine in engines:
        engine.seed(3)
        engine.reset()
        engine.elapsed_steps.copy_(torch.arange(n, device="cpu") % limit)
    same()
    for t, action in enumerate(moves(engines[0], 40)):
        for engine in engines:
            engine.action.copy_(action)
            engine.step()
        same()
        if t == 20:
            mask = torch.arange(n, device="cpu") % 5 == 0
            qpos, qvel = engines[0].qpos.roll(1, 0), engines[0].qvel.roll(1, 0)
            for engine in engines:
                engine.reset(mask.to(engine.device))
                engine.set_state(qpos.to(engine.device), qvel.to(engine.device), ~mask.to(engine.device))
            same()
    assert engines[1].episode.max() > 1


@on_gpu
@pytest.mark.parametrize("name", ["Hopper", "HalfCheetah"])
@pytest.mark.parametrize("n", [1, 15, 16, 17, 31, 32, 33, 1000, 8465, 20_001])
def test_any_number_of_worlds(name, n):
    """Worlds that do not fill a block, and the padding after them; large ones in blocks of several warps."""
    engines = [Engine(TASKS[name](), n, device=device) for device in ("cpu", HERE)]
    for engine in engines:
        engine.seed(1)
        engine.reset()
        for action in moves(engine, 3):
            engine.action.copy_(action)
            engine.step()
    ours, theirs = (engine.state_dict() for engine in engines)
    assert all(x.equal(theirs[name].cpu()) for name, x in ours.items())


@on_gpu
def test_a_state_goes_from_one_device_to_another():
    there, here = (TorchVectorEnv("Walker2d", 20, device=device, max_episode_steps=15) for device in (HERE, "cpu"))
    there.reset(seed=5)
    actions = moves(here.engine, 30)
    for action in actions[:10]:
        there.step(action.to(HERE))
    here.load_state_dict(there.state_dict())
    for action in actions[10:]:
        theirs, ours = there.step(action.to(HERE)), here.step(action)
        assert all(x.cpu().equal(y) for x, y in zip(theirs[:4], ours[:4], strict=True))


@on_gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_a_gpu_that_is_not_the_current_one():
    assert torch.cuda.current_device() == 0
    envs = [TorchVectorEnv("Hopper", 7, device=device, autoreset_mode="SameStep") for device in ("cuda:0", "cuda:1")]
    first = [env.reset(seed=0)[0].cpu() for env in envs]
    assert first[0].equal(first[1]) and envs[1].engine.obs.device.index == 1
    seen = [env.capture(lambda obs: obs[:, :3].tanh(), 5)()["obs"].cpu() for env in envs]
    assert seen[0].equal(seen[1])


# what only a GPU shows


def beside_torch() -> int:
    """Bytes of the GPU that are in use, but not by torch's allocator."""
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return total - free - torch.cuda.memory_reserved()


def assert_same_worlds(ours: TorchVectorEnv, theirs: TorchVectorEnv) -> None:
    other = theirs.state_dict()
    assert not [name for name, x in ours.state_dict().items() if not x.cpu().equal(other[name].cpu())]


@on_gpu
def test_local_memory_is_there_before_the_first_step():
    """So that a first step neither waits for it, nor fails within a capture."""
    env = TorchVectorEnv("Walker2d", 64)
    env.reset(seed=0)
    before = beside_torch()
    env.engine.step()
    assert beside_torch() <= before + 2**20


@on_gpu
def test_a_step_that_has_never_run_in_a_graph_of_the_users():
    env, twin = (TorchVectorEnv("Hopper", 40, device=device, autoreset_mode="SameStep") for device in (HERE, "cpu"))
    env.reset(seed=0), twin.reset(seed=0)
    before = env.state_dict()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        env.engine.step()
    env.load_state_dict(before)
    for _ in range(5):
        graph.replay()
        twin.engine.step()
    assert_same_worlds(env, twin)


@on_gpu
def test_another_stream_and_another_thread():
    env, twin = (TorchVectorEnv("Hopper", 40, device=device, autoreset_mode="SameStep") for device in (HERE, "cpu"))
    env.reset(seed=0), twin.reset(seed=0)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(10):
            env.engine.step()
    torch.cuda.current_stream().wait_stream(side)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(env.engine.step).result()
    torch.cuda.synchronize()
    for _ in range(11):
        twin.engine.step()
    assert_same_worlds(env, twin)


@on_gpu
def test_a_graph_outlives_what_a_larger_stack_takes():
    """Local memory grows, and may move, when a kernel with a larger stack is loaded."""
    env, twin = (TorchVectorEnv("Hopper", 40, device=device, autoreset_mode="SameStep") for device in (HERE, "cpu"))
    rollouts = []
    for each in (env, twin):
        each.reset(seed=0)
        rollouts.append(each.capture(lambda obs: obs[:, :3], 5))
        rollouts[-1]()
    TorchVectorEnv("HalfCheetah", 40, dtype=torch.float64).reset()
    for rollout in rollouts:
        rollout()
    assert_same_worlds(env, twin)


@on_gpu
@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_a_compiled_policy_in_a_capture(mode):
    pytest.importorskip("triton")
    torch.compiler.reset()
    env = TorchVectorEnv("Hopper", 40, autoreset_mode="SameStep")
    env.reset(seed=0)
    net = torch.nn.Linear(11, 3)
    before = env.state_dict()
    if mode is None:
        data = env.capture(torch.compile(net), 8)()
        torch.testing.assert_close(data["action"], net(data["obs"]).detach(), atol=1e-3, rtol=1e-3)
        return
    with pytest.raises(ValueError, match="CUDA graphs of its own"):
        env.capture(torch.compile(net, mode=mode), 8)
    assert all(x.equal(before[name]) for name, x in env.state_dict().items())


# nothing waits


@contextlib.contextmanager
def no_waiting() -> Iterator[None]:
    """Fails where the host would wait for the device."""
    if not ON_GPU:
        with NoWaiting():
            yield
        return
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
def test_the_vector_environment_does_not_wait(mode, copy):
    env = TorchVectorEnv("Hopper", 12, autoreset_mode=mode, copy=copy, max_episode_steps=5)
    env.reset(seed=0)
    actions = moves(env.engine, 8).to(HERE)
    mask, qpos, qvel = torch.arange(12) < 4, env.qpos.clone(), env.qvel.clone()
    env.step(actions[0])
    env.set_state(qpos, qvel, mask)  # builds its kernel
    with no_waiting():
        if mode != "Disabled" or ON_GPU:  # on the CPU, it looks whether a world has ended
            for action in actions:
                env.step(action)
        env.reset()
        env.set_state(qpos, qvel)
        env.set_state(qpos, qvel, mask)
        if ON_GPU:  # on the CPU, it looks whether there is any
            env.reset(options={"reset_mask": mask})


@on_gpu
def test_a_mask_of_none_resets_none():
    """Where to know would be to wait. A NumPy array's is known."""
    env = TorchVectorEnv("Hopper", 4)
    obs, _ = env.reset(seed=0)
    none = torch.zeros(4, dtype=torch.bool)
    again, info = env.reset(options={"reset_mask": none})
    assert again.equal(obs) and not info["_x_position"].any() and (env.engine.episode == 1).all()
    with pytest.raises(ValueError, match="at least one True"):
        env.reset(options={"reset_mask": none.cpu().numpy()})


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_a_rollout_does_not_wait(mode):
    env = TorchVectorEnv("Hopper", 12, autoreset_mode=mode, max_episode_steps=5)
    env.reset(seed=0)
    rollout = env.capture(lambda obs: obs[:, :3].tanh(), 8)
    assert (rollout._graph is not None) == ON_GPU
    with no_waiting():
        rollout()
        rollout()


def test_a_simulation_does_not_wait():
    sim = Simulation(TASKS["Walker2d"]().load(), 12, outputs=("xpos",))
    mask = torch.arange(12) < 4
    sim.forward()  # builds its kernel
    with no_waiting():
        for _ in range(3):
            sim.ctrl.uniform_(-1, 1)
            sim.step(2)
            sim.forward()
            sim.reset(mask)
        sim.reset()


def test_torchrl_does_not_wait():
    """What is ours of it: TorchRL's own `step` and `reset` look at flags."""
    pytest.importorskip("torchrl")
    from tensordict import TensorDict

    from torch_mjenvs import HopperEnv

    env = HopperEnv(12, max_episode_steps=5, info_keys=("x_velocity", "bad_state"))
    env.set_seed(0)
    data, state = env.reset(), env.get_state()
    actions = moves(env.engine, 8).to(HERE)
    mask = TensorDict({"_reset": torch.arange(12)[:, None] < 4}, [12])
    env._reset(mask, state=state)  # builds its kernel
    calls: list[Callable[[], object]] = [lambda: env._reset(None), lambda: env._reset(mask)]
    calls += [lambda: env._reset(None, state=state), lambda: env._reset(mask, state=state)]
    with no_waiting():
        for action, call in zip(actions, calls * 2, strict=True):
            env._step(data.set("action", action))
            call()

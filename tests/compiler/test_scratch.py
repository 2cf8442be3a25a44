"""Arrays of a GPU's kernels in scratch memory: results are the same bits, and it is allocated for a launch's worlds."""

from __future__ import annotations

import dataclasses
import weakref

import numpy as np
import pytest
import torch
from driver import driver
from kernels import record_list
from sass.machine import Machine, missing
from test_cuda import cuda_kernel, on_both
from test_list_order import BY_NUMBER, IN_ORDER, N

from torch_mjenvs import TorchVectorEnv
from torch_mjenvs.compiler import cuda, launch
from torch_mjenvs.compiler.active_sets import everything, put_each
from torch_mjenvs.compiler.arrays import Array
from torch_mjenvs.compiler.build import build
from torch_mjenvs.compiler.functions import Pure
from torch_mjenvs.compiler.llvm import NVIDIA, scratch_bytes
from torch_mjenvs.compiler.program import Buffer, Program, record

__all__ = ["driver"]  # a fixture
pytestmark = pytest.mark.cpu  # which interprets a GPU's code
CPU = torch.device("cpu")
BODIES = [*IN_ORDER, *BY_NUMBER]


@pytest.fixture
def in_scratch(monkeypatch) -> None:
    """Put all arrays in scratch memory, however small."""
    monkeypatch.setattr(cuda, "NVIDIA", dataclasses.replace(NVIDIA, scratch_from=1))


def numbers(worlds: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(N, worlds, generator=torch.Generator().manual_seed(0), dtype=dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_the_bits_are_those_of_arrays_in_a_threads_own_memory(body, dtype, in_scratch):
    program = record_list(body, N, 4, dtype)
    code = cuda.assembly(program)
    assert scratch_bytes(code) and "local_depot" not in code
    y = on_both(program, {"x": numbers(80, getattr(torch, dtype)).numpy()})["y"]
    assert np.isfinite(y).all() and len(np.unique(y[0])) > 30


@pytest.mark.skipif(missing() is not None, reason=str(missing()))
@pytest.mark.parametrize("body", [IN_ORDER[0], BY_NUMBER[-2]], ids=lambda body: body.__name__)
def test_so_are_those_of_nvidias_machine_code(body, in_scratch):
    program = record_list(body, N, 4, "float32")
    machine = Machine(cuda.assembly(program))
    ours, theirs = ([numbers(80), torch.zeros(4, 80)] for _ in range(2))
    build(program, CPU).bind(dict(zip("xy", ours, strict=True)))()
    machine.launch(theirs, 80)
    assert machine.code.stack == 0 and ours[1].any() and torch.equal(*(x[1] for x in (ours, theirs)))


def test_large_arrays_alone_are_there():
    """Those of 64 KiB a thread and more, for which a GPU would otherwise reserve 18 GB."""

    def bytes_of(numbers: int) -> int:
        def body(b):
            rows = Array(rows=numbers)
            put_each(everything(numbers), lambda i: (i, [b["x"][0]]), rows)
            return {"x": [rows[2]]}

        return scratch_bytes(cuda.assembly(record("many", [Buffer("x", 1)], body, "float32")))

    assert bytes_of(2**8) == 0
    assert bytes_of(2**14) == 2**14 * 9  # a number, its place in the list, and whether it is in it


@pytest.mark.parametrize(("at_once", "launches"), [(128, 4), (256, 2), (512, 1)])
def test_a_launch_is_for_no_more_worlds_than_a_share_of_the_memory_is_enough_for(
    at_once, launches, driver, monkeypatch, in_scratch
):
    program = record_list(BODIES[0], N, 4, "float32")
    kernel = cuda_kernel(program)
    share = (at_once + 1) * kernel.scratch_bytes / torch.cuda.get_device_properties(None).total_memory
    monkeypatch.setattr(cuda, "SHARE_OF_MEMORY", share)
    ours, theirs = ({"x": numbers(400), "y": torch.zeros(4, 400)} for _ in range(2))
    held = kernel.bind(ours)
    assert held.run._scratch.numel() == -(-min(at_once, 400) // 32) * 32 * kernel.scratch_bytes
    before = len(driver.calls)
    held(2)
    assert driver.calls[before:] == [("launch", 1234)] * launches * 2
    build(program, CPU).bind(theirs)()
    assert ours["y"].any() and torch.equal(ours["y"], theirs["y"])


def counting() -> Program:
    """Adds 1 to the worlds that it steps, by way of an array."""

    def body(b):
        rows = Array(rows=4)
        put_each(everything(4), lambda i: (i, [b["x"][0]]), rows)
        return {"x": [rows[2] + 1.0]}

    return record("counting", [Buffer("x", 1)], body, "float32")


@pytest.mark.parametrize("multiprocessors", [132, 58, 46, 10, 6])
def test_no_launch_steps_the_worlds_of_the_next(multiprocessors, driver, monkeypatch, in_scratch):
    """However many threads a block would have for as many worlds as one launch is for."""
    kernel = cuda_kernel(counting())
    monkeypatch.setattr(driver.CUdevice_attribute, "CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT", multiprocessors)
    share = 257 * kernel.scratch_bytes / torch.cuda.get_device_properties(None).total_memory
    monkeypatch.setattr(cuda, "SHARE_OF_MEMORY", share)
    x = torch.zeros(1, 640)
    kernel.bind({"x": x})()
    assert x.tolist() == [[1.0] * 640]


def test_of_no_worlds_nothing_is_launched(driver, in_scratch):
    run = cuda_kernel(counting()).bind({"x": torch.zeros(1, 0)})
    before = list(driver.calls)
    run()
    assert driver.calls == before


def test_a_function_keeps_none_between_its_calls(driver, monkeypatch, in_scratch):
    """Of `transition` and the like; and within a call there is one."""
    alive: list[weakref.ref] = []
    counts: list[int] = []
    memory = launch.Scratch.memory

    def told(self, size, device):
        found = memory(self, size, device)
        alive.append(weakref.ref(found))
        counts.append(sum(x() is not None for x in alive))
        return found

    monkeypatch.setattr(launch.Scratch, "memory", told)
    function = Pure(cuda_kernel(record_list(BODIES[0], N, 4, "float32")), 1)
    for _ in range(3):
        (y,) = function([numbers(32).T.contiguous()])
        assert y.any()
    assert counts == [1, 1, 1] and not any(x() is not None for x in alive)


def test_a_function_on_the_cpu_uses_its_launcher_again():
    """Which takes no such memory."""
    function = Pure(build(record_list(BODIES[0], N, 4, "float32"), CPU), 1)
    kept = []
    for _ in range(2):
        function([numbers(32).T.contiguous()])
        kept += function._idle
    assert len(kept) == 2 and kept[0] is kept[1]


def test_launches_share_it_if_they_are_told_to(driver, in_scratch):
    kernel = cuda_kernel(record_list(BODIES[0], N, 4, "float32"))

    def memory(worlds: int, scratch: launch.Scratch | None = None) -> torch.Tensor:
        return kernel.bind({"x": numbers(worlds), "y": torch.zeros(4, worlds)}, scratch).run._scratch

    one = launch.Scratch()
    large = memory(96, one)
    assert memory(96, one) is memory(32, one) is large and memory(96) is not large
    larger = memory(128, one)
    assert larger.numel() > large.numel() and memory(96, one) is larger


def test_too_little_memory(driver, in_scratch, monkeypatch):
    kernel = cuda_kernel(record_list(BODIES[0], N, 4, "float32"))

    def full(*size, **kwargs):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(launch.torch, "empty", full)
    with pytest.raises(torch.OutOfMemoryError, match=rf"needs {kernel.scratch_bytes} bytes a world .* fewer worlds"):
        kernel.bind({"x": numbers(96), "y": torch.zeros(4, 96)})


def test_the_launches_of_an_environment_share_it_and_those_of_two_do_not(monkeypatch):
    """Two environments may be on two streams. The launches of one change its worlds, and never run at the same time."""
    seen: list[launch.Scratch | None] = []
    bind = launch.Kernel.bind

    def told(self, tensors, scratch=None):
        seen.append(scratch)
        return bind(self, tensors, scratch)

    monkeypatch.setattr(launch.Kernel, "bind", told)
    env = TorchVectorEnv("Hopper", 2, autoreset_mode="SameStep")
    env.reset(seed=0)
    env.set_state(env.qpos.clone(), env.qvel.clone())
    env.capture(lambda obs: obs[:, :3].tanh(), 3)()
    assert len(seen) >= 5 and set(seen) == {env.engine._scratch}
    assert TorchVectorEnv("Hopper", 2).engine._scratch is not env.engine._scratch

"""A stand-in for NVIDIA's driver: what `compiler.cuda` launches is interpreted, on the CPU's memory."""

from __future__ import annotations

import contextlib
import ctypes
import re
from types import SimpleNamespace

import pytest
import torch
from ptx import Machine

from torch_mjenvs.compiler import cuda
from torch_mjenvs.compiler.llvm import NVIDIA

Module = tuple[int, bytes]  # its number, and its code


class Driver:
    """NVIDIA's driver as `cuda` calls it, on CPU memory: modules are PTX, and a launch interprets it.

    `answer` is the status of every call; anything but 0 is an error. Of the launches, the first `short` find too little
    memory. Up to a carve-out of `narrow` per cent, only one block is resident. The device is an H100.
    """

    CUfunction_attribute = SimpleNamespace(
        CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT="carveout",
        CU_FUNC_ATTRIBUTE_NUM_REGS="registers",
        CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES="local",
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES="shared",
    )
    CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED="relaxed")
    CUjit_option = SimpleNamespace(CU_JIT_ERROR_LOG_BUFFER="log", CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES="size")
    CUdevice_attribute = SimpleNamespace(
        CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR=65536,
        CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR=2048,
        CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR=32,
        CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK=1024,
        CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR=228 * 1024,
        CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT=132,
        CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN=227 * 1024,
    )

    def __init__(self) -> None:
        self.answer, self.context, self.short, self.narrow = 0, 1357, 0, -1
        self.attributes = {"registers": 77, "local": 88}
        self.calls: list[tuple] = []
        self.machines: dict[Module, Machine] = {}
        self.entered = self.loaded = 0
        self.memory: list[tuple[int, int]] | None = None  # what a kernel over matrices may touch
        self.threads: set[int] = set()  # of blocks of worlds that were launched
        self.allowed: dict[Module, int] = {}  # bytes of shared memory, by module

    def cuCtxGetCurrent(self) -> tuple:
        return 0, self.context

    def cuCtxGetDevice(self) -> tuple:
        return 0, "the device"

    def cuDeviceGetAttribute(self, what: int, device: str) -> tuple:
        assert device == "the device"
        return self.answer, what

    def cuCtxSetCurrent(self, context: int) -> tuple:
        self.entered = context
        return (self.answer,)

    def cuModuleLoadDataEx(self, image: bytes, count: int, options: list, values: list) -> tuple:
        assert image.endswith(b"}\n\0") or image.rstrip(b"\0\n ").endswith(b"}")
        assert image.index(b"\0") == len(image) - 1, "PTX ends with the first zero"
        given = dict(zip(options, values, strict=True))
        assert count == 2 and len(given["log"]) == given["size"] and isinstance(given["log"], bytearray)
        if self.answer:
            given["log"][:13] = b"ptxas: line 3"
        self.loaded += 1
        return self.answer, (self.loaded, image)

    def cuModuleGetFunction(self, module: Module, name: bytes) -> tuple:
        assert name == b"kernel"
        if module not in self.machines:
            again = [machine for (_, image), machine in self.machines.items() if image == module[1]]
            self.machines[module] = again[0] if again else Machine(module[1][:-1].decode())
        return self.answer, module

    def cuThreadExchangeStreamCaptureMode(self, mode: str) -> tuple:
        self.calls.append(("mode", mode))
        return 0, "global"

    def cuCtxPushCurrent(self, context: int) -> tuple:
        assert context == self.context
        self.calls.append(("push",))
        return (0,)

    def cuCtxPopCurrent(self) -> tuple:
        self.calls.append(("pop",))
        return 0, self.context

    def cuModuleUnload(self, module: Module) -> tuple:
        del self.machines[module]
        return (self.answer,)

    def cuFuncSetAttribute(self, function: Module, what: str, value: int) -> tuple:
        self.calls.append(("set", what, value))
        if what == "shared":
            self.allowed[function] = value
        return (self.answer,)

    def cuFuncGetAttribute(self, what: str, function: Module) -> tuple:
        return self.answer, self.attributes[what]

    def cuOccupancyMaxActiveBlocksPerMultiprocessor(self, function: Module, threads: int, shared: int) -> tuple:
        assert (threads, shared) == (NVIDIA.warp, 0)
        return self.answer, 1 if self.calls[-1][2] <= self.narrow else 32

    def cuLaunchKernel(
        self, function: Module, gx: int, gy: int, gz: int, bx: int, by: int, bz: int, shared: int, stream: int,
        parameters: int, extra: int,
    ) -> tuple:  # fmt: skip
        assert (gy, gz, by, bz, extra) == (1, 1, 1, 1, 0) and shared <= self.allowed.get(function, 0)
        machine = self.machines[function]
        count = machine.program.parameters
        places = (ctypes.c_void_p * count).from_address(parameters)  # void** kernelParams
        values = [ctypes.c_uint64.from_address(place).value for place in places]
        if not any(values):
            assert (gx, bx) == (1, NVIDIA.warp)
            machine.run(values, gx, bx)
            self.calls.append(("reserve", stream))
            self.short -= 1
            return (self.answer or 2 * (self.short >= 0),)
        assert self.entered == self.context, "in the context that the module was loaded into, whatever the thread"
        if not self.answer:
            most = int(re.search(r"\.maxntid (\d+)\n", "\n".join(machine.source))[1])
            over_worlds = most == NVIDIA.warp * NVIDIA.warps
            worlds = gx * bx >= values[-1] > (gx - 1) * bx
            worlds |= bool(machine.scratch) and values[-1] > gx * bx  # further launches are for the rest
            assert worlds or not over_worlds, "a thread for each world, and no block for nothing"
            assert bx <= most and (bx < NVIDIA.warp or not bx % NVIDIA.warp) if over_worlds else bx == most
            self.threads |= {bx} if over_worlds else set()
            machine.run(values, gx, bx, None if over_worlds else self.memory, shared=shared)
        self.calls.append(("launch", stream))
        return (self.answer,)

    def cuGetErrorName(self, status: int) -> tuple:
        return 0, {700: b"CUDA_ERROR_ILLEGAL_ADDRESS", 218: b"CUDA_ERROR_INVALID_PTX"}.get(status)

    def cuGetErrorString(self, status: int) -> tuple:
        return 0, {700: b"an illegal memory access was encountered"}.get(status)


@pytest.fixture
def driver(monkeypatch) -> Driver:
    made = Driver()
    monkeypatch.setattr(cuda, "_driver", lambda: made)
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=1234))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: made.calls.append(("emptied",)))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device=None: (3_000_000_000, 85_000_000_000))
    properties = SimpleNamespace(total_memory=85_000_000_000)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    return made

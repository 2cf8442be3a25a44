"""Build a program for NVIDIA GPUs, one thread a world, and launch it on torch's current stream.

LLVM makes PTX, which is portable text and is kept on disk; the driver makes machine code of it for the GPU at hand, and
keeps that itself. Nothing here waits for the GPU.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import llvmlite.binding as llvm
import torch

from . import build as building
from . import launch, source
from .llvm import render_thread
from .program import Buffer, Program, collector_paused

TRIPLE = "nvptx64-nvidia-cuda"
# The oldest chip that CUDA 13 knows. The code uses nothing newer, and so is the same for every chip.
CHIP, FEATURES = "sm_75", "+ptx70"
# One warp a block: a few thousand worlds are then spread over all multiprocessors, and many worlds are no slower, since
# registers, not blocks, limit how many are resident.
THREADS = 32


def assembly(program: Program) -> str:
    """PTX of `kernel(pointers to the buffers in order, worlds allocated)`."""
    return _translate(_lower(program)).decode()


def _lower(program: Program) -> str:
    with collector_paused():
        return f'target triple = "{TRIPLE}"\n{render_thread(program, THREADS)}'


def _translate(ir: str) -> bytes:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module = llvm.parse_assembly(ir)
    module.verify()
    machine = llvm.Target.from_triple(TRIPLE).create_target_machine(cpu=CHIP, features=FEATURES, opt=2)
    return machine.emit_assembly(module).encode()


class Kernel(launch.Kernel):
    """A program loaded on one GPU. `registers` and `local_bytes` are what a thread takes of each."""

    def __init__(self, name: str, buffers: Sequence[Buffer], dtype: str, ptx: bytes, device: torch.device):
        super().__init__(name, buffers, dtype, device)
        cuda = _driver()
        torch.zeros((), device=device)  # torch's context is what the module is loaded into
        with torch.cuda.device(device):
            self.context = _check(cuda.cuCtxGetCurrent())
            self._module = _check(cuda.cuModuleLoadData(ptx + b"\0"))
            self.function = _check(cuda.cuModuleGetFunction(self._module, b"kernel"))
            what = cuda.CUfunction_attribute
            # No shared memory is used: all of it may serve as L1, where spilled values live.
            carveout = what.CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
            _check(cuda.cuFuncSetAttribute(self.function, carveout, 0))
            self.registers = int(_check(cuda.cuFuncGetAttribute(what.CU_FUNC_ATTRIBUTE_NUM_REGS, self.function)))
            local = what.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES
            self.local_bytes = int(_check(cuda.cuFuncGetAttribute(local, self.function)))

    def launcher(self, tensors: Sequence[torch.Tensor], worlds: int) -> Callable[[int], None]:
        return _Run(self, tensors, worlds)


class _Run:
    """The kernel with everything that it is called with."""

    def __init__(self, kernel: Kernel, tensors: Sequence[torch.Tensor], worlds: int):
        self._kernel, self._blocks = kernel, -(-worlds // THREADS)
        count = len(tensors) + 1
        self._values = (ctypes.c_uint64 * count)(*[x.data_ptr() for x in tensors], worlds)
        size, start = ctypes.sizeof(ctypes.c_uint64), ctypes.addressof(self._values)
        self._places = (ctypes.c_void_p * count)(*[start + size * k for k in range(count)])
        self._parameters = ctypes.addressof(self._places)
        self._enter, self._launch = _driver().cuCtxSetCurrent, _driver().cuLaunchKernel

    def __call__(self, times: int) -> None:
        """Queue it on torch's current stream."""
        kernel = self._kernel
        with torch.cuda.device(kernel.device):
            _check(self._enter(kernel.context))  # a Python thread in which torch has not used CUDA yet is in none
            stream = torch.cuda.current_stream().cuda_stream
            for _ in range(times):
                _check(self._launch(kernel.function, self._blocks, 1, 1, THREADS, 1, 1, 0, stream, self._parameters, 0))


@functools.cache
def _driver() -> ModuleType:
    """CUDA's driver API, which torch's CUDA builds bring with them."""
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise ImportError("running on CUDA takes NVIDIA's package: pip install cuda-bindings") from error
    return driver


def _check(answer: tuple) -> Any:
    """What a call of the driver gave, without its status. Raises RuntimeError if that is an error."""
    status, *results = answer
    if int(status):
        name = _driver().cuGetErrorName(status)[1]
        raise RuntimeError(f"CUDA's driver answered {name.decode() if name else status}")
    return results[0] if results else None


def back_end(device: torch.device) -> building.BackEnd:
    """This GPU. What is kept on disk is PTX."""
    version = ".".join(map(str, llvm.llvm_version_info))
    toolchain = f"{version} {CHIP} {FEATURES} {THREADS} {source.digest_of(_translate)}"

    def load(name: str, buffers: Sequence[Buffer], dtype: str, code: bytes) -> Kernel:
        return Kernel(name, buffers, dtype, code, device)

    return building.BackEnd("cuda", device, toolchain, _lower, _translate, load)


def build(program: Program, device: torch.device) -> launch.Kernel:
    """Make PTX (or find it made) and load it."""
    return building.build(back_end(device), program)

"""The back end for NVIDIA's GPUs, one thread per world, launched on torch's current stream.

LLVM makes PTX, which is portable text and is kept on disk; the driver makes machine code of it for the GPU at hand, and
keeps that itself. Nothing here waits for the GPU.
"""

from __future__ import annotations

import ctypes
import functools
import weakref
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import llvmlite.binding as llvm
import torch

from . import launch, source
from .back_end import BackEnd
from .llvm import NVIDIA, render_thread, scratch_bytes
from .program import Buffer, Program, collector_paused


def assembly(program: Program) -> str:
    """Return the PTX of `kernel(pointers to the buffers in order, worlds allocated)`."""
    return translate(_lower(program)).decode()


def _lower(program: Program) -> str:
    with collector_paused():
        return f'target triple = "{NVIDIA.triple}"\n{render_thread(program, NVIDIA)}'


def translate(ir: str) -> bytes:
    """Make PTX of LLVM IR."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module = llvm.parse_assembly(ir)
    module.verify()
    machine = llvm.Target.from_triple(NVIDIA.triple).create_target_machine(
        cpu=NVIDIA.chip, features=NVIDIA.features, opt=2
    )
    ptx: str = machine.emit_assembly(module)
    return ptx.encode()


class Code:
    """PTX loaded on one GPU: `function` is its kernel; each thread takes `registers` and `local_bytes`."""

    def __init__(self, name: str, ptx: bytes, device: torch.device):
        self.name, self.device = name, device
        cuda = _driver()
        with torch.cuda.device(device):
            torch.zeros((), device=device)  # torch's context is what the module is loaded into
            self.context = _check(cuda.cuCtxGetCurrent())
            if not int(self.context):
                raise RuntimeError(
                    f"torch made no CUDA context on {device}: does torch.zeros(1, device={device!s}) work?"
                )
            self._gpu = _check(cuda.cuCtxGetDevice())
            self._module = self._load(ptx)
            weakref.finalize(self, _unload, self.context, self._module).atexit = False
            self.function = _check(cuda.cuModuleGetFunction(self._module, b"kernel"))
            what = cuda.CUfunction_attribute
            self.registers = int(_check(cuda.cuFuncGetAttribute(what.CU_FUNC_ATTRIBUTE_NUM_REGS, self.function)))
            local = what.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES
            self.local_bytes = int(_check(cuda.cuFuncGetAttribute(local, self.function)))

    def _load(self, ptx: bytes) -> Any:
        cuda, log = _driver(), bytearray(8192)
        options = cuda.CUjit_option.CU_JIT_ERROR_LOG_BUFFER, cuda.CUjit_option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES
        answer = _retry_without_cache(lambda: cuda.cuModuleLoadDataEx(ptx + b"\0", 2, list(options), [log, len(log)]))
        said = log.partition(b"\0")[0].decode(errors="replace").strip()
        return _check(answer, f"CUDA's driver, given the code of {self.name} for {self.device}, answered", said)

    def attribute(self, name: str) -> int:
        """Return an attribute of the GPU, by the driver's name of it."""
        return _attribute(self._gpu, name)

    def allow_shared(self, size: int) -> None:
        """Let blocks have this many bytes of shared memory: more than 48 kB have to be asked for."""
        most = _driver().CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        with torch.cuda.device(self.device):
            _check(_driver().cuFuncSetAttribute(self.function, most, size))

    def queue(self, blocks: int, threads: int, arguments: Arguments, shared: int = 0) -> None:
        """Queue the kernel on torch's current stream, in blocks with this many threads and bytes of shared memory."""
        cuda, stream = _driver(), torch.cuda.current_stream().cuda_stream
        _check(cuda.cuCtxSetCurrent(self.context))
        launched = cuda.cuLaunchKernel(self.function, blocks, 1, 1, threads, 1, 1, shared, stream, arguments.address, 0)
        _check(launched)


class CudaKernel(launch.Kernel):
    """A program loaded on one GPU.

    `registers` and `local_bytes` are what a thread takes of each. `blocks` is how many blocks of one warp a
    multiprocessor holds at once. `reserved_bytes` is about how much of the GPU's memory the driver sets aside as local
    memory, once for all kernels of a process: enough for the largest of them on as many threads as the GPU can hold,
    however many worlds there are. `scratch_bytes` is how much scratch memory the kernel needs for each world.
    """

    def __init__(self, name: str, buffers: Sequence[Buffer], dtype: str, ptx: bytes, device: torch.device):
        super().__init__(name, buffers, dtype, device)
        self.code = Code(name, ptx, device)
        self.registers, self.local_bytes = self.code.registers, self.code.local_bytes
        self.scratch_bytes = scratch_bytes(ptx.decode())
        with torch.cuda.device(device):
            self.blocks = self._share_out()
            self.reserved_bytes = self._reserve()

    def launcher(self, tensors: Sequence[torch.Tensor], worlds: int, scratch: launch.Scratch) -> Callable[[int], None]:
        return _Run(self, tensors, worlds, scratch)

    def at_once(self, worlds: int) -> int:
        """Return how many of these worlds one launch steps: all, or as many as a share of the GPU's memory suffices
        for as scratch memory.
        """
        if not self.scratch_bytes:
            return worlds
        allowed = int(SHARE_OF_MEMORY * torch.cuda.get_device_properties(self.device).total_memory)
        block = NVIDIA.warp * NVIDIA.warps
        return min(worlds, max(1, allowed // (self.scratch_bytes * block)) * block)

    def scratch_for(self, worlds: int, scratch: launch.Scratch) -> torch.Tensor:
        """Return scratch memory for so many worlds at once. Raises torch.OutOfMemoryError if there is not enough."""
        size = NVIDIA.warp * -(-worlds // NVIDIA.warp) * self.scratch_bytes
        try:
            return scratch.memory(size, self.device)
        except torch.OutOfMemoryError as error:
            free, total = torch.cuda.mem_get_info(self.device)
            raise torch.OutOfMemoryError(
                f"{self.name} needs {self.scratch_bytes:,} bytes a world of scratch memory on {self.device}: "
                f"{size / 1e9:.1f} GB for {worlds:,} worlds at once. Of its {total / 1e9:.1f} GB, {free / 1e9:.1f} GB "
                "are free. Make room: by fewer worlds, fewer processes on this GPU, or float32 instead of float64"
            ) from error

    def _share_out(self) -> int:
        """Let as much of a multiprocessor's memory as possible serve as L1, where spilled values live, and return how
        many blocks of one warp it then holds.

        Kernels use no shared memory, but the system takes some for each block. Without this, the driver leaves room for
        only 8 blocks on newer chips, where registers allow up to 32.
        """
        cuda, get = _driver(), self.code.attribute
        quarter = get("MAX_REGISTERS_PER_MULTIPROCESSOR") // 4  # each of four schedulers has its own
        most = 4 * (quarter // (-(-32 * self.registers // 256) * 256))  # registers are given out in units of 256
        most = min(most, get("MAX_THREADS_PER_MULTIPROCESSOR") // NVIDIA.warp, get("MAX_BLOCKS_PER_MULTIPROCESSOR"))
        taken = 100 * most * get("RESERVED_SHARED_MEMORY_PER_BLOCK") // get("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR")
        carveout = cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
        blocks = 0
        for percent in (taken, taken + 1):  # the driver rounds the request up to a size that the chip has
            _check(cuda.cuFuncSetAttribute(self.code.function, carveout, percent))
            found = cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor(self.code.function, NVIDIA.warp, 0)
            blocks = int(_check(found))
            if blocks >= most:
                break
        return blocks

    def _reserve(self) -> int:
        """Launch the kernel for no worlds, so that the driver reserves local memory now. Otherwise it would do so in
        the first step, which would wait for it, and could not do so at all while a user captures a graph.

        Raises torch.OutOfMemoryError if there is not enough, even after torch has given back what it keeps for later.
        """
        get = self.code.attribute
        threads = get("MAX_THREADS_PER_MULTIPROCESSOR") * get("MULTIPROCESSOR_COUNT")
        reserved = (self.local_bytes + 512) * threads if self.local_bytes else 0  # calls take some, too
        nothing = Arguments([0] * (len(self.buffers) + (3 if self.scratch_bytes else 1)))
        stream = torch.cuda.current_stream().cuda_stream
        launch_kernel = _driver().cuLaunchKernel
        answer = _retry_without_cache(
            lambda: launch_kernel(self.code.function, 1, 1, 1, NVIDIA.warp, 1, 1, 0, stream, nothing.address, 0)
        )
        if int(answer[0]) == OUT_OF_MEMORY:
            free, total = torch.cuda.mem_get_info()
            raise torch.OutOfMemoryError(
                f"{self.name} keeps {self.local_bytes:,} bytes a thread in the memory of {self.device}, and CUDA "
                f"reserves that for all {threads:,} threads that it can hold, whatever the number of worlds: about "
                f"{reserved / 1e9:.1f} GB. Of its {total / 1e9:.1f} GB, {free / 1e9:.1f} GB are free. Make room: by "
                "fewer processes on this GPU, smaller tensors, or float32 instead of float64"
            )
        _check(answer)
        return reserved


def most_shared(device: torch.device) -> int:
    """Return how many bytes of shared memory a block can have on a GPU."""
    cuda = _driver()
    with torch.cuda.device(device):
        torch.zeros((), device=device)  # makes the context
        return _attribute(_check(cuda.cuCtxGetDevice()), "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")


def _attribute(gpu: Any, name: str) -> int:
    attribute = getattr(_driver().CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
    return int(_check(_driver().cuDeviceGetAttribute(attribute, gpu)))


def _unload(context: Any, module: Any) -> None:
    """Free the GPU's memory of code whose last user is gone, on whichever Python thread that is noticed.

    The driver waits for launches of it that still run. Without the change of mode, this would spoil a graph that
    someone else is capturing at the time. Errors mean that there is nothing to free, as in a forked child.
    """
    cuda = _driver()
    relaxed = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    error, before = cuda.cuThreadExchangeStreamCaptureMode(relaxed)
    if not int(error) and not int(cuda.cuCtxPushCurrent(context)[0]):
        cuda.cuModuleUnload(module)
        cuda.cuCtxPopCurrent()
        cuda.cuThreadExchangeStreamCaptureMode(before)


class Arguments:
    """The arguments of a kernel: `address` is that of a list of pointers to them."""

    def __init__(self, values: Sequence[int]):
        self._values = (ctypes.c_uint64 * len(values))(*values)
        size, start = ctypes.sizeof(ctypes.c_uint64), ctypes.addressof(self._values)
        self._places = (ctypes.c_void_p * len(values))(*[start + size * k for k in range(len(values))])
        self.address = ctypes.addressof(self._places)

    def put(self, k: int, value: int) -> None:
        """Change argument k, for the launches that follow."""
        self._values[k] = value


def block_size(worlds: int, multiprocessors: int) -> int:
    """Return how many threads a block has: one per world, as many as each multiprocessor must hold, up to a limit.

    With few worlds a block is less than a warp. So they are spread over all multiprocessors, and a world waits for
    fewer others, since all threads of a warp go through every branch that one of them takes. With more worlds, a block
    is whole warps, which may wait for each other.
    """
    each = max(1, -(-worlds // multiprocessors))
    return each if each < NVIDIA.warp else NVIDIA.warp * min(NVIDIA.warps, -(-each // NVIDIA.warp))


class _Run:
    """The kernel with everything that it is called with."""

    def __init__(self, kernel: CudaKernel, tensors: Sequence[torch.Tensor], worlds: int, scratch: launch.Scratch):
        together = kernel.at_once(worlds)
        self._kernel, self._threads = kernel, block_size(together, kernel.code.attribute("MULTIPROCESSOR_COUNT"))
        if together < worlds:  # whole blocks, of which none steps worlds of the next launch
            self._threads = NVIDIA.warp * NVIDIA.warps
        self._blocks = -(-together // self._threads)
        self._firsts = range(0, worlds, max(1, together))
        held = [x.data_ptr() for x in tensors]
        if kernel.scratch_bytes:
            self._scratch = kernel.scratch_for(together, scratch)
            held += [self._scratch.data_ptr(), 0]
            self._first = len(held) - 1
        self._arguments = Arguments([*held, worlds])
        self._parameters = self._arguments.address
        self._enter, self._launch = _driver().cuCtxSetCurrent, _driver().cuLaunchKernel

    def __call__(self, times: int) -> None:
        """Queue it on torch's current stream."""
        kernel, code = self._kernel, self._kernel.code
        with torch.cuda.device(kernel.device):
            _check(self._enter(code.context))  # a Python thread in which torch has not used CUDA has no context
            stream = torch.cuda.current_stream().cuda_stream
            for _ in range(times):
                for first in self._firsts:  # none for no worlds: CUDA refuses a launch of no blocks
                    if kernel.scratch_bytes:
                        self._arguments.put(self._first, first)
                    _check(
                        self._launch(
                            code.function, self._blocks, 1, 1, self._threads, 1, 1, 0, stream, self._parameters, 0
                        )
                    )


SHARE_OF_MEMORY = 0.25  # of a GPU, which a launch may take as scratch memory
OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY


def _retry_without_cache(call: Callable[[], tuple[Any, ...]]) -> tuple[Any, ...]:
    """Return the driver's answer. If memory is short, have torch give back what it keeps for later, and ask again."""
    answer = call()
    if int(answer[0]) == OUT_OF_MEMORY:
        torch.cuda.empty_cache()
        answer = call()
    return answer


@functools.cache
def _driver() -> ModuleType:
    """Return CUDA's driver API, which torch's CUDA builds bring with them."""
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise ImportError("running on CUDA takes NVIDIA's package: pip install cuda-bindings") from error
    module: ModuleType = driver
    return module


def _check(answer: tuple[Any, ...], what: str = "CUDA's driver answered", more: str = "") -> Any:
    """Return the result of a call of the driver. Raises RuntimeError if its status is an error."""
    status, *results = answer
    if int(status):
        cuda = _driver()
        said = [x.decode() for x in (cuda.cuGetErrorName(status)[1], cuda.cuGetErrorString(status)[1]) if x]
        text = ": ".join(said) or str(status)
        raise RuntimeError(f"{what} {text}" + (f"\n{more}" if more else ""))
    return results[0] if results else None


def toolchain() -> str:
    """Return all that PTX depends on besides the IR that it is made of."""
    version = ".".join(map(str, llvm.llvm_version_info))
    return f"{version} {NVIDIA} {source.digest_of(translate)}"


def _begin(ir: str) -> Callable[[], bytes]:
    return lambda: translate(ir)  # soon done: the driver takes longer


def back_end(device: torch.device) -> BackEnd:
    """Return the maker and loader of PTX for this GPU. PTX is what is kept on disk."""

    def load(name: str, buffers: Sequence[Buffer], dtype: str, code: bytes) -> CudaKernel:
        return CudaKernel(name, buffers, dtype, code, device)

    return BackEnd("cuda", device, toolchain(), _lower, translate, _begin, load, NVIDIA.unroll_limit)

"""Records of what the code generator has to know about each kind of GPU."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Gpu:
    """A kind of GPU, in the terms of LLVM's back end for it. A thread is a world."""

    triple: str
    chip: str  # the oldest that the code is for
    features: str
    warp: int  # threads that run together
    warps: int  # of a block at most
    convention: str  # of a kernel
    attributes: str  # of a kernel; {threads} is the number of threads of the largest block
    thread: str  # the intrinsic that gives a thread's number in its block
    size: str  # the number of threads of the block, where blocks differ
    block: str  # the intrinsic that gives the block's number
    any_thread: str  # waits for all threads of the block, and says whether a bit is set in any of them
    shared: str  # a pointer to what all threads share
    own: str  # a pointer to a thread's own memory
    unroll_limit: int  # see `control.unroll_limit`
    together_from: float  # operations of a loop from which on the threads of a block begin each iteration together
    scratch_from: float  # bytes of a thread's arrays from which on they are in scratch memory, not in its own


NVIDIA = Gpu(
    triple="nvptx64-nvidia-cuda",
    # The oldest chip that CUDA 13 knows. The code uses nothing newer, and so is the same for every chip.
    chip="sm_75",
    features="+ptx70",
    # A block has as many threads as its multiprocessor must hold (see `cuda.block_size`), up to a warp for each
    # scheduler: larger blocks are no faster, and come in fewer, coarser portions.
    warp=32,
    warps=4,
    convention="ptx_kernel",
    # All registers that a thread can have: else the assembler may leave some for warps that are not there.
    attributes='nounwind "nvvm.maxntid"="{threads}" "nvvm.maxnreg"="255"',
    thread="llvm.nvvm.read.ptx.sreg.tid.x",
    size="llvm.nvvm.read.ptx.sreg.ntid.x",
    block="llvm.nvvm.read.ptx.sreg.ctaid.x",
    any_thread="llvm.nvvm.barrier.cta.red.or.aligned.all",
    shared="ptr addrspace(1)",
    own="ptr",
    # On the model of `benchmarks.cuda_limits` 8 contacts in loops lose (HalfCheetah), 13 and 17 gain (Ant, Humanoid).
    unroll_limit=12,
    # On an H200: Hopper's loop, of 3,600 operations, loses a tenth by it, HalfCheetah's of 6,000 gains a quarter.
    together_from=4500,
    # CUDA reserves a thread's own memory for all threads that a GPU can hold, an H100 270,336: for 64 KiB it is 18 GB.
    # Scratch memory is for the worlds that there are. On an H200 Humanoid takes 1.04 times as long with it, Ant 1.1.
    scratch_from=2**16,
)

"""Records of what the code generator has to know about each kind of GPU."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Gpu:
    """A kind of GPU, in the terms of LLVM's back end for it. A thread is a world."""

    triple: str
    chip: str  # the oldest that the code is for
    features: str
    threads: int  # of a block
    convention: str  # of a kernel
    attributes: str  # of a kernel; {threads} is the number of threads of a block
    thread: str  # the intrinsic that gives a thread's number in its block
    block: str  # and its block's number
    shared: str  # a pointer to what all threads share
    own: str  # a pointer to a thread's own memory
    unroll_limit: int  # see `control.unroll_limit`


NVIDIA = Gpu(
    triple="nvptx64-nvidia-cuda",
    # The oldest chip that CUDA 13 knows. The code uses nothing newer, and so is the same for every chip.
    chip="sm_75",
    features="+ptx70",
    # One warp a block: a few thousand worlds are then spread over all multiprocessors, and many worlds are no slower,
    # since registers, not blocks, limit how many are resident.
    threads=32,
    convention="ptx_kernel",
    # All registers that a thread can have: else the assembler may leave some for warps that are not there.
    attributes='nounwind "nvvm.maxntid"="{threads}" "nvvm.maxnreg"="255"',
    thread="llvm.nvvm.read.ptx.sreg.tid.x",
    block="llvm.nvvm.read.ptx.sreg.ctaid.x",
    shared="ptr addrspace(1)",
    own="ptr",
    # On the model of `benchmarks.cuda_limits` 8 contacts in loops lose (HalfCheetah), 13 and 17 gain (Ant, Humanoid).
    unroll_limit=12,
)

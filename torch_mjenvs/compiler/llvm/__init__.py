"""From a recorded program to LLVM IR: one world per lane of a `<W x T>` vector, or W = 1: one world per thread.

`lower.py` has decided what is computed in which order; here every operation has a function that writes it out. The
code is SSA from the start and is left to LLVM's code generator as it stands. No fast-math flag is set: so the same
program gives the same bits on every target.
"""

from .frames import render, render_thread
from .gpu import NVIDIA, Gpu
from .scratch import scratch_bytes

__all__ = ["NVIDIA", "Gpu", "render", "render_thread", "scratch_bytes"]

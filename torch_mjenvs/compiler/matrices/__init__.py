"""Kernels over matrices: products, transposes, sums of rows, and programs of scalars applied to every entry.

`steps.py` has the steps that a plan is made of, `render.py` writes a plan as LLVM IR, `kernel.py` makes it run over
torch tensors. `blocks.py` writes it for a GPU, `on_gpu.py` makes it run there. Numbers are float32, except the factors
of products, which on the CPU may be bfloat16. Sums are in an order that does not depend on how many threads share the
work.
"""

from . import on_gpu
from .kernel import PlanKernel, PlanLaunch, build, can_build, why_no_bfloat16
from .steps import (
    Apply,
    Call,
    Gather,
    Loop,
    Matrix,
    Memory,
    Multiply,
    Pairs,
    Phase,
    Plan,
    Regroup,
    RowSums,
    Step,
    Transpose,
)

__all__ = [
    "Apply",
    "Call",
    "Gather",
    "Loop",
    "Matrix",
    "Memory",
    "Multiply",
    "Pairs",
    "Phase",
    "Plan",
    "PlanKernel",
    "PlanLaunch",
    "Regroup",
    "RowSums",
    "Step",
    "Transpose",
    "build",
    "can_build",
    "on_gpu",
    "why_no_bfloat16",
]  # fmt: skip

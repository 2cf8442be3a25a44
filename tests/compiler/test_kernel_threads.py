"""Kernels give the same bits on threads with small stacks, or in another floating-point mode."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import pytest
import torch
from kernels import DTYPES, bits, build, machine, record_list, tensors

from torch_mjenvs.compiler import cpu
from torch_mjenvs.compiler.arrays import Array
from torch_mjenvs.compiler.control import repeat
from torch_mjenvs.compiler.scalar import sqrt

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.cpu

STEPPED = """
import hashlib, sys, threading, torch
from torch_mjenvs import TorchVectorEnv
from torch_mjenvs.compiler import cpu

def stepped(threads):
    torch.set_num_threads(threads)
    # the kernels of test_gymnasium_parity.py
    env = TorchVectorEnv("Humanoid", 256, device="cpu", dtype=torch.float64, max_episode_steps=-1)
    env.reset(seed=0)
    for k in range(3):
        env.step(torch.linspace(-0.4, 0.4, 17, dtype=torch.float64).repeat(256, 1) * k)
    return hashlib.sha256(env.engine.qpos.numpy().tobytes()).hexdigest()
"""

SMALL = """
print(stepped(1))  # the main thread, whose stack is large
print(stepped(2))  # a team of OpenMP's threads
threading.stack_size(256 * 1024)
found = []
thread = threading.Thread(target=lambda: found.append(stepped(1)))
thread.start()
thread.join()
cpu.team = lambda: None
found.append(stepped(2))  # threads of Python, too
print(*found, sep="\\n")
"""


def test_threads_with_small_stacks_give_the_same_bits():
    """Humanoid's step takes half a megabyte of stack at vectors of 64 bytes."""
    done = subprocess.run(
        [sys.executable, "-c", STEPPED + SMALL],
        cwd=ROOT, env={**os.environ, "OMP_STACKSIZE": "64k"}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    found = done.stdout.split()
    assert len(found) == 4 and len(set(found)) == 1


OLDEST = cpu.Target("x86_64-unknown-linux-gnu", "x86-64", "", 16)
AVX512 = cpu.Target("x86_64-unknown-linux-gnu", "skylake-avx512", "", 64)
ARM = cpu.Target("aarch64-unknown-linux-gnu", "neoverse-n1", "+neon", 16)


def large(x: list) -> list:
    """An array of many vectors."""
    values = Array([[x[0] * k, x[0] + k] for k in range(200)])
    return repeat(200, lambda i, c: [c[0] + values[i, 0] * sqrt(values[i, 1])], [0.0])


def spilling(x: list) -> list:
    """Many values at once, more than there are registers."""
    values = [sqrt(x[0] + k) for k in range(120)]
    return [sum(a * b for a, b in zip(values, reversed(values), strict=True))]


def frame(text: str) -> int:
    """The largest of the assembly's stack frames, in bytes."""
    x86 = [int(n) for n in re.findall(r"subq\s+\$(\d+), %rsp", text)]
    arm = re.findall(r"sub\s+(?:sp|x9), sp, #(\d+)(, lsl #12)?(?:\n\s+sub\s+(?:sp|x9), (?:sp|x9), #(\d+))?", text)
    return max([*x86, *((int(a) << (12 if shift else 0)) + int(b or 0) for a, shift, b in arm)], default=0)


@pytest.mark.parametrize("target", [OLDEST, AVX512, ARM], ids=lambda t: t.cpu)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_stack_holds_more_than_any_code_takes(target, dtype):
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    for body in (large, spilling):
        program = record_list(body, 1, 1, dtype)
        ir = cpu.assembly(program, target)
        takes = frame(machine(target).emit_assembly(llvm.parse_assembly(ir)))
        stack_bytes = int(re.search(r"@stack_bytes.*\n  ret i64 (\d+)", ir)[1])  # type: ignore[index]
        assert 1000 < takes < stack_bytes / 8


def subnormal(x: list) -> list:
    return [x[0] * 0.5, x[0] + x[1], (x[0] * 1e4) * 1e4]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n_threads", [1, 2])
def test_flushing_subnormal_numbers_is_torchs_own_matter(dtype, n_threads):
    program = record_list(subnormal, 2, 3, dtype)
    tiny = float(np.finfo(dtype).tiny)
    x = np.random.default_rng(0).uniform(-tiny, tiny, (2, 1024)).astype(dtype)
    kernel = build(program)
    found = []
    torch.set_num_threads(n_threads)
    try:
        for flush in (False, True):
            if not torch.set_flush_denormal(flush):
                pytest.skip("torch cannot, here")
            held = tensors(program, {"x": x}, torch.device("cpu"))
            kernel.bind(held)()
            flushes = not (torch.full((64,), tiny, dtype=getattr(torch, dtype)) * 0.5).any()
            torch.set_flush_denormal(False)
            assert flushes == flush, "the mode of torch's own operators is as it was"
            found.append(bits(held["y"].numpy()))
    finally:
        torch.set_flush_denormal(False)
    np.testing.assert_array_equal(found[0][0, :1024], bits(x[0] * x.dtype.type(0.5)))
    np.testing.assert_array_equal(found[1], found[0])

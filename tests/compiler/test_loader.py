"""Object code can be loaded anywhere in memory, and calls nothing that is not there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import llvmlite.binding as llvm
import oracle
import pytest
from kernels import DTYPES, build, object_code, record_list
from object_files import called, relocations, symbols

from torch_mjenvs.compiler import cpu, loader
from torch_mjenvs.compiler.arrays import Table
from torch_mjenvs.compiler.control import repeat
from torch_mjenvs.compiler.llvm import parts as llvm_parts
from torch_mjenvs.compiler.scalar import sin
from torch_mjenvs.physics import load
from torch_mjenvs.physics.kernel_request import KernelRequest
from torch_mjenvs.physics.simulation_kernels import program as physics

ROOT = Path(__file__).resolve().parents[2]
HOST = cpu.host().triple

# Free memory like that of a process which has loaded CUDA: holes of a page or a few, and gigabytes between them that
# are taken but never touched. What is mapped in two pieces of different sizes ends up far apart.
FAR_APART = """
import mmap, sys
import numpy as np, torch
sys.path.insert(0, "tests")
from kernels import object_code, record_list, tensors
from torch_mjenvs.compiler import cpu, loader
target = cpu.host()
programs = [record_list(lambda x, k=k: [sum(x[0] * (k + j / 7) + j / 3 for j in range(9 * k + 1))], 1, 1, "float64")
            for k in range(24)]
code = [object_code(p, target) for p in programs]
untouched, small = [], []
for k in range(64):
    untouched.append(torch.empty(2**32, dtype=torch.uint8) if k % 21 == 0 else np.empty(2**21))
    small.append(mmap.mmap(-1, mmap.PAGESIZE * (1 + k % 3)))
del small[::2]
kernels = []
for k in range(240):
    p = programs[k % 24]
    kernel = cpu.CpuKernel(p.name, p.buffers, p.dtype, code[k % 24], cpu.lanes_of(p.dtype, target))
    x = np.linspace(-2, 2, 64)
    held = tensors(p, {"x": x[None]}, torch.device("cpu"))
    kernel.bind(held)()
    want = sum(x * (k % 24 + j / 7) + j / 3 for j in range(9 * (k % 24) + 1))
    assert np.allclose(held["y"][0, :64], want, rtol=1e-12, atol=1e-9), k
    kernels.append(kernel)
    if k % 5 == 0:
        small.append(mmap.mmap(-1, mmap.PAGESIZE * (1 + k % 4)))
        del small[k % len(small)]
print("loaded")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="memory counts as used there before it is touched")
def test_code_and_constants_may_be_gigabytes_apart():
    """Hundreds of kernels in one process, among tensors that nobody has touched and the holes of small ones."""
    done = subprocess.run([sys.executable, "-c", FAR_APART], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout == "loaded\n", done.stderr[-2000:]


X86_64, AARCH64 = ("x86_64-unknown-linux-gnu", "haswell", ""), ("aarch64-unknown-linux-gnu", "neoverse-n1", "+neon")
OLDEST = ("x86_64-unknown-linux-gnu", "x86-64", "")  # calls fma(), and roundeven()


def tables(x: list) -> list:
    """Constants, tables, and what an old processor calls for."""
    return repeat(5, lambda i, c: [sin(c[0]) * 0.1234567 + Table((3.0, -1.0, 4.0, 1.0, -5.0))[i]], x)


@pytest.mark.parametrize("target", [X86_64, OLDEST, AARCH64])
def test_no_code_reaches_for_anything_by_a_short_distance(target, tmp_path, monkeypatch):
    """Of relocations there are only those that hold all 64 bits of an address, whole or in four parts: also where one
    object calls another.
    """
    monkeypatch.setattr(llvm_parts, "FEWEST", 1)
    monkeypatch.setattr(llvm_parts, "FEWEST_EACH", 0)
    monkeypatch.setenv("TORCH_MJENVS_CACHE", str(tmp_path))
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    programs = [record_list(tables, 1, 1, dtype) for dtype in DTYPES]
    if target is X86_64:
        programs.append(physics(KernelRequest(load(oracle.asset("humanoid"))), "float32"))
    found: set[int] = set()
    for program in programs:
        objects = loader.objects_of(object_code(program, cpu.Target(*target, 16)))
        held = {name for code in objects for name, holds in symbols(code).items() if holds}
        found |= {kind for code in objects for kind in relocations(code)}
        assert len(objects) > 1 and {name for name in held if name.startswith("part.")} <= called(objects[0])
        for code in objects:
            assert called(code) <= held | (set(loader.CALLED) if target is OLDEST else set())
    whole, parts = {1}, {257, *range(263, 270)}  # R_X86_64_64; R_AARCH64_ABS64, R_AARCH64_MOVW_UABS_G0 to G3
    assert found and found <= (parts if target is AARCH64 else whole)


@pytest.mark.cpu
def test_code_made_for_another_model_is_not_found(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_MJENVS_CACHE", str(tmp_path))
    program = record_list(tables, 1, 1, "float32")
    build(program)
    build(program)
    assert len(list(tmp_path.glob("*.o"))) == 1
    monkeypatch.setitem(loader.options, "codemodel", "default")
    monkeypatch.delattr(loader, "Loaded")
    with pytest.raises(AttributeError):
        build(program)
    assert len(list(tmp_path.glob("*.o"))) == 2


@pytest.mark.skipif(not HOST.startswith("x86_64-") or "linux" not in HOST, reason="calls functions on such a host")
def test_what_code_calls_is_looked_for(monkeypatch):
    """An old processor's does: without the functions, LLVM would load it, and the process end at the first call."""
    old = object_code(record_list(tables, 1, 1, "float64"), cpu.Target(HOST, "x86-64", "", 16))
    assert called(old) == {"fma", "roundeven"}
    assert loader.Loaded(old, ["kernel", "stack_bytes"], HOST).addresses[0]
    find = llvm.address_of_symbol
    monkeypatch.setattr(loader.llvm, "address_of_symbol", lambda name: None if name == "roundeven" else find(name))
    with pytest.raises(OSError, match=r"needs roundeven\(\), for which this processor has no instruction"):
        loader.Loaded(old, ["kernel", "stack_bytes"], HOST)

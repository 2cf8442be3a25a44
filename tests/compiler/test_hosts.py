"""Hosts and GPUs that the tests do not run on, simulated as far as possible."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import llvmlite.binding as llvm
import pytest
from kernels import object_code, record_list
from object_files import symbols

from torch_mjenvs.compiler import cpu
from torch_mjenvs.compiler.active_sets import active_set, compute_each, fold_each
from torch_mjenvs.compiler.arrays import Array, Table
from torch_mjenvs.compiler.control import repeat, when_any, while_any
from torch_mjenvs.compiler.llvm import Gpu, render_thread
from torch_mjenvs.compiler.scalar import sin, sqrt

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.cpu

STEPPED = """
import hashlib, torch

def stepped():
    from torch_mjenvs import TorchVectorEnv
    env = TorchVectorEnv("Reacher", 256, device="cpu")
    env.reset(seed=0)
    env.step(torch.full((256, 2), 0.5))
    return hashlib.sha256(env.engine.qpos.numpy().tobytes()).hexdigest()
"""

WINDOWS = """
import ctypes, mmap, os, posix, sys
import gymnasium, mujoco, platformdirs, torch._dynamo  # what they need of a host is their own matter

for module in (os, posix):
    for name in ("fork", "register_at_fork", "getuid", "geteuid", "getgid", "fchmod", "fchown", "O_NOFOLLOW",
                 "O_NONBLOCK", "O_CLOEXEC", "O_DIRECTORY", "sched_getaffinity"):
        if hasattr(module, name):
            delattr(module, name)
for name in ("fcntl", "resource", "pwd", "grp"):
    sys.modules[name] = None
for name in [x for x in dir(mmap) if x.startswith(("MAP_", "PROT_"))]:
    delattr(mmap, name)

class CDLL(ctypes.CDLL):
    def __init__(self, name, *more, **options):
        if name is None:
            raise TypeError("argument of type 'NoneType' is not iterable")
        super().__init__(name, *more, **options)

ctypes.CDLL = CDLL
torch.set_num_threads(2)
print(stepped())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="what it lacks is lacking")
def test_what_windows_lacks_is_not_needed():
    """Without OpenMP's entry the tiles are done by threads of Python, with the same bits."""
    done = subprocess.run(
        [sys.executable, "-c", STEPPED + WINDOWS], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    scope: dict = {}
    exec(STEPPED, scope)
    assert done.stdout.split() == [scope["stepped"]()]


def body(x: list) -> list:
    """Constants and a table."""
    return repeat(5, lambda i, c: [sin(c[0]) * 0.1234567 + Table((3.0, -1.0, 4.0, 1.0, -5.0))[i]], x)


def made(triple: str, processor: str) -> bytes:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = cpu.Target(triple, processor, "", 16)
    return object_code(record_list(body, 1, 1, "float32"), target)


@pytest.mark.parametrize(
    ("triple", "processor"),
    [
        ("arm64-apple-macosx", "apple-m1"),
        ("aarch64-unknown-linux-gnu", "generic"),
        ("x86_64-pc-windows-msvc-elf", "haswell"),
    ],
)
def test_code_can_be_made_for_every_host(triple, processor):
    """It has what is asked for, and calls nothing but Windows' own probe of a large stack frame."""
    found = symbols(made(triple, processor))
    assert found.pop("kernel") and found.pop("stack_bytes")
    assert set(found) <= ({"__chkstk"} if "windows" in triple else set())


def test_hosts_by_name(monkeypatch):
    monkeypatch.setattr(llvm, "get_process_triple", lambda: "x86_64-pc-windows-msvc")
    assert cpu.host.__wrapped__().triple == "x86_64-pc-windows-msvc-elf"
    monkeypatch.setattr(llvm, "get_process_triple", lambda: "riscv64-unknown-linux-gnu")
    with pytest.raises(OSError, match="x86-64 and 64-bit ARM; this process runs on riscv64"):
        cpu.host.__wrapped__()


AMD = Gpu(
    triple="amdgcn-amd-amdhsa",
    chip="gfx90a",
    features="",
    warp=64,
    warps=1,
    convention="amdgpu_kernel",
    attributes='nounwind "amdgpu-flat-work-group-size"="{threads},{threads}"',
    thread="llvm.amdgcn.workitem.id.x",
    size="",
    block="llvm.amdgcn.workgroup.id.x",
    any_thread="",
    shared="ptr addrspace(1)",
    own="ptr addrspace(5)",
    unroll_limit=12,
    together_from=math.inf,
    scratch_from=math.inf,
)


def every_form(x: list) -> list:
    rows = Array([[a, a * a] for a in x])
    y = repeat(3, lambda i, c: [c[0] + rows[i, 1] * Table((1.0, 2.5, 3.0))[i]], [0.0])
    y = when_any(x[0] < 0.0, lambda c: [sqrt(c[0])], y)
    y = while_any(lambda c: c[0] > 1.0, lambda c: [0.5 * c[0]], y, 50)
    which = active_set([a > 0.0 for a in x])
    sines = compute_each(which, lambda i: [sin(rows[i, 0])])
    return fold_each(which, lambda i, c: [c[0] + sines[i, 0]], y)


def test_another_makers_gpu_is_a_record():
    """LLVM takes the IR made from it: pointers of other address spaces, another kernel's head, branches of its own."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(AMD.triple).create_target_machine(cpu=AMD.chip, features=AMD.features, opt=2)
    ir = render_thread(record_list(every_form, 3, 1, "float32"), AMD)
    module = llvm.parse_assembly(f'target triple = "{AMD.triple}"\ntarget datalayout = "{machine.target_data}"\n{ir}')
    module.verify()
    text = machine.emit_assembly(module)
    assert ".amdhsa_kernel kernel" in text and "v_fma_f32" in text
    assert text.count("global_store") == 1 and "s_swappc" not in text, "it calls something"

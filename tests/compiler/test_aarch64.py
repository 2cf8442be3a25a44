"""The code for 64-bit ARM, run: linked with a small C program and put through QEMU, it gives this machine's bits."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import oracle
import pytest
import torch
from kernels import DTYPES, bits, build, object_code, tensors

from torch_mjenvs.compiler import cpu, loader
from torch_mjenvs.physics import load
from torch_mjenvs.physics.kernel_request import KernelRequest
from torch_mjenvs.physics.simulation_kernels import program as physics

COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
MISSING = [name for name in (COMPILER, EMULATOR) if not shutil.which(name)]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.cpu,
    pytest.mark.skipif(bool(MISSING), reason=f"{' and '.join(MISSING)} not installed (Debian: see CONTRIBUTING.md)"),
]

# Reads each buffer's bytes from standard input, enters the kernel as two threads would, one after the other, and writes
# the buffers. FPCR says to flush subnormal numbers, which is to be of no account, and must be found as it was.
MAIN = """
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
void kernel(void *job);
int64_t stack_bytes(void);
int main(int argc, char **argv) {
    int64_t worlds = atol(argv[1]), lanes = atol(argv[2]), counter = 0, flush = 1 << 24, after;
    int buffers = argc - 3;
    void *pointers[64];
    for (int k = 0; k < buffers; k++) {
        int64_t size = atol(argv[3 + k]);
        pointers[k] = aligned_alloc(64, (size + 63) / 64 * 64);
        if (fread(pointers[k], 1, size, stdin) != (size_t)size) return 2;
    }
    char *stacks = mmap(0, 2 * stack_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stacks == MAP_FAILED) return 3;
    int64_t job[10] = {(int64_t)pointers, (int64_t)&counter, worlds / lanes, 2, worlds, 1,
                       (int64_t)stacks, stack_bytes(), 0, 0};
    __asm__ volatile("msr fpcr, %0" ::"r"(flush));
    kernel(job);
    kernel(job);
    __asm__ volatile("mrs %0, fpcr" : "=r"(after));
    if (after != flush || job[8] != 2) return 4;
    __asm__ volatile("msr fpcr, %0" ::"r"(INT64_C(0)));
    for (int k = 0; k < buffers; k++) fwrite(pointers[k], 1, atol(argv[3 + k]), stdout);
    return 0;
}
"""


def emulated(code: bytes, held: list[torch.Tensor], worlds: int, lanes: int, folder: Path) -> list[np.ndarray]:
    """The buffers after the kernel, run as an ARM would."""
    (folder / "main.c").write_text(MAIN)
    objects = loader.objects_of(code)
    for k, one in enumerate(objects):
        (folder / f"code{k}.o").write_bytes(one)
    names = [f"code{k}.o" for k in range(len(objects))]
    subprocess.run([COMPILER, "-O1", "-static", "-o", "run", "main.c", *names], cwd=folder, check=True)
    arrays = [x.numpy() for x in held]
    done = subprocess.run(
        [EMULATOR, "./run", str(worlds), str(lanes), *(str(x.nbytes) for x in arrays)],
        cwd=folder, input=b"".join(x.tobytes() for x in arrays), stdout=subprocess.PIPE, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0
    ends = np.cumsum([0, *(x.nbytes for x in arrays)])
    return [
        np.frombuffer(done.stdout[a:b], x.dtype).reshape(x.shape)
        for a, b, x in zip(ends, ends[1:], arrays, strict=False)
    ]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["half_cheetah", "hopper", "humanoid"])
def test_code_for_arm_gives_the_same_bits(name, dtype, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_MJENVS_CACHE", str(tmp_path))
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    arm = cpu.Target("aarch64-unknown-linux-gnu", "neoverse-n1", "+neon", 16)
    program = physics(KernelRequest(load(oracle.asset(name))), dtype)
    qpos, qvel, ctrl = (np.stack(x, 1) for x in zip(*oracle.states(name, 32, seed=5), strict=True))
    inputs = {"qpos": qpos, "qvel": qvel, "ctrl": ctrl, "qacc_warmstart": 0 * qvel}
    here, there = (tensors(program, inputs, torch.device("cpu")) for _ in range(2))
    build(program, cpu.host()).bind(here)()
    got = emulated(object_code(program, arm), list(there.values()), 32, cpu.lanes_of(dtype, arm), tmp_path)
    for buffer, x in zip(here, got, strict=True):
        np.testing.assert_array_equal(bits(x), bits(here[buffer].numpy()), err_msg=buffer)
    assert not np.array_equal(got[list(here).index("qpos")], there["qpos"].numpy())

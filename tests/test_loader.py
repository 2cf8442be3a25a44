"""Object code can be loaded anywhere in memory; damaged or foreign code is refused instead of crashing the process."""

from __future__ import annotations

import struct
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import llvmlite.binding as llvm
import oracle
import pytest
from kernels import DTYPES, build, object_code, record_list

from torch_mjenvs.compiler import cpu, loader
from torch_mjenvs.compiler.arrays import Table
from torch_mjenvs.compiler.control import repeat
from torch_mjenvs.compiler.scalar import sin
from torch_mjenvs.physics import load
from torch_mjenvs.physics.simulation import Asked
from torch_mjenvs.physics.simulation import program as physics

ROOT = Path(__file__).resolve().parents[1]
HOST = cpu.host().triple
elf = pytest.mark.skipif(llvm.get_object_format(HOST) != "ELF", reason="makes ELF code")

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
    kernel = cpu.Kernel(p.name, p.buffers, p.dtype, code[k % 24], cpu.lanes_of(p.dtype, target))
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


def relocations(code: bytes) -> list[int]:
    """The kind of each that an ELF file holds."""
    (first,), (count,) = struct.unpack_from("<Q", code, 40), struct.unpack_from("<H", code, 60)
    out = []
    for k in range(count):
        kind, offset, size = struct.unpack_from("<4xI16xQQ", code, first + 64 * k)
        if kind == 4:  # RELA
            out += [info & 0xFFFFFFFF for (info,) in struct.iter_unpack("<8xQ8x", code[offset : offset + size])]
        assert kind != 9, "relocations of an older form"
    return out


def tables(x: list) -> list:
    """Constants, tables, and what an old processor calls for."""
    return repeat(5, lambda i, c: [sin(c[0]) * 0.1234567 + Table((3.0, -1.0, 4.0, 1.0, -5.0))[i]], x)


@pytest.mark.parametrize("target", [X86_64, OLDEST, AARCH64])
def test_no_code_reaches_for_anything_by_a_short_distance(target, tmp_path, monkeypatch):
    """Of relocations there are only those that hold all 64 bits of an address, whole or in four parts."""
    monkeypatch.setenv("TORCH_MJENVS_CACHE", str(tmp_path))
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    programs = [record_list(tables, 1, 1, dtype) for dtype in DTYPES]
    if target is X86_64:
        programs.append(physics(Asked(load(oracle.asset("humanoid"))), "float32"))
    found: set[int] = set()
    for program in programs:
        found |= set(relocations(object_code(program, cpu.Target(*target, 16))))
    whole, parts = {1}, {257, *range(263, 270)}  # R_X86_64_64; R_AARCH64_ABS64, R_AARCH64_MOVW_UABS_G0 to G3
    assert found and found <= (parts if target is AARCH64 else whole)


def test_code_made_for_another_model_is_not_found(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_MJENVS_CACHE", str(tmp_path))
    program = record_list(tables, 1, 1, "float32")
    build(program)
    build(program)
    assert len(list(tmp_path.glob("*.o"))) == 1
    monkeypatch.setitem(loader.OPTIONS, "codemodel", "default")
    with suppress(loader.BadObject):
        build(program)
    assert len(list(tmp_path.glob("*.o"))) == 2


# what is not such code


@pytest.fixture(scope="module")
def sound() -> bytes:
    """Object code with constants and, on x86, calls."""
    program = record_list(lambda x: [x[0] * 3.7 + 0.1], 1, 1, "float64")
    x86 = HOST.startswith("x86_64")
    return object_code(program, cpu.Target(HOST, "x86-64", "", 16) if x86 else cpu.host())


def test_sound_code_is_loaded(sound):
    assert loader.Loaded(sound, ["kernel", "room"], HOST).addresses[0]


def test_a_function_that_is_not_there(sound):
    with pytest.raises(loader.BadObject, match="holds no function kernels"):
        loader.Loaded(sound, ["kernels"], HOST)


@elf
@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (lambda x: b"", "not an ELF file"),
        (lambda x: b"not code", "not an ELF file"),
        (lambda x: b"\x7fELF\x02\x01\x01", "not an object file"),
        (lambda x: x[: len(x) // 2], "damaged|beyond the end"),
        (lambda x: x[:16] + struct.pack("<H", 3) + x[18:], "not a relocatable object"),  # a shared library
        (lambda x: x[:18] + struct.pack("<H", 243) + x[20:], "not for"),  # RISC-V
        (lambda x: x[:40] + struct.pack("<Q", 2**63) + x[48:], "table of sections is damaged"),
        (lambda x: x.replace(b"kernel\0", b"kennel\0"), "holds no function kernel"),
        (lambda x: x.replace(b"\0fma\0", b"\0fmx\0"), "calls fmx, which this process does not have"),
    ],
)
def test_what_is_no_such_code_is_refused(sound, wrong, text):
    damaged = wrong(sound)
    if damaged == sound:
        pytest.skip("nothing is called here")
    with pytest.raises(loader.BadObject, match=text):
        loader.Loaded(damaged, ["kernel", "room"], HOST)


@elf
def test_code_of_the_small_model_is_refused():
    """As it was once made: what LLVM would abort on, depending on where there is room."""
    made = llvm.parse_assembly(cpu.assembly(record_list(lambda x: [x[0] * 3.7 + 0.1], 1, 1, "float32"), cpu.host()))
    machine = llvm.Target.from_triple(HOST).create_target_machine(reloc="pic", codemodel="default")
    with pytest.raises(loader.BadObject, match="does not reach all addresses"):
        loader.Loaded(machine.emit_object(made), ["kernel", "room"], HOST)


def test_code_for_another_processor_is_refused(sound, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_MJENVS_CACHE", str(tmp_path))
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    other = cpu.Target(*(AARCH64 if HOST.startswith("x86_64") else X86_64), 16)
    code = object_code(record_list(lambda x: [x[0] * 3.7], 1, 1, "float32"), other)
    with pytest.raises(loader.BadObject, match="not for"):
        loader.Loaded(code, ["kernel", "room"], HOST)


DAMAGED = """
import random, sys
from torch_mjenvs.compiler import cpu, loader
code, triple, rng = sys.stdin.buffer.read(), cpu.host().triple, random.Random(0)
refused = 0
for k in range(400):
    damaged = bytearray(code[: rng.randrange(len(code))] if k % 10 == 0 else code)
    for _ in range(rng.choice((1, 1, 2, 5)) if damaged else 0):
        near_end = rng.random() < 0.6  # where the tables are
        at = rng.randrange(len(damaged) * 3 // 4 if near_end else 0, len(damaged))
        damaged[at] = rng.choice((0, 1, 128, 255, (damaged[at] + 1) % 256))
    try:
        loader.Loaded(bytes(damaged), ["kernel", "room"], triple)
    except loader.BadObject:
        refused += 1
print(refused)
"""


@elf
def test_damage_anywhere_is_refused_or_of_no_account_to_the_loader(sound):
    """The digest kept with a file sees all damage; this is about what LLVM would do, which is to abort."""
    done = subprocess.run([sys.executable, "-c", DAMAGED], cwd=ROOT, input=sound, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    assert 100 < int(done.stdout) < 400

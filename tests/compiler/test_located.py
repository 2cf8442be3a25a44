"""Kernels with locations (`benchmarks.located`) are the same kernels, and each instruction is where the source says."""

from __future__ import annotations

import linecache
import re
import shutil
import subprocess
import sys
from pathlib import Path

import llvmlite.binding as llvm
import mujoco
import pytest
import torch

from benchmarks import where
from benchmarks.located import AROUND, ENTRY, PACKAGE, Instruction, recorded
from torch_mjenvs import Simulation
from torch_mjenvs.compiler import cpu, source

pytestmark = pytest.mark.cpu

MODEL = """
<mujoco>
  <worldbody>
    <geom type="plane" size="5 5 1"/>
    <body pos="0 0 .09">
      <freejoint/>
      <geom size=".1"/>
      <body pos=".3 0 0">
        <joint axis="0 1 0"/>
        <geom type="capsule" size=".03 .1"/>
      </body>
    </body>
  </worldbody>
</mujoco>
"""
DIVIDES = r" / |sqrt|normalize|quotient|quat_to_mat"  # a line of source that leads to a division or a root


def made(code: bytes) -> dict[str, bytes]:
    """The sections of object code that hold instructions."""
    return {x.name(): x.data() for x in llvm.ObjectFileRef.from_data(code).sections() if x.is_text()}


def stepped() -> tuple[Simulation, torch.Tensor]:
    sim = Simulation(mujoco.MjModel.from_xml_string(MODEL), 32, "cpu")
    sim.qvel.copy_(torch.linspace(-1, 1, 32)[:, None])
    sim.step(20)
    return sim, torch.cat([sim.qpos, sim.qvel], 1)


def line_of(x: Instruction) -> str:
    file, _, line = x.chain[0]
    return linecache.getline(str(PACKAGE / file), line)


@pytest.fixture(scope="module")
def instructions() -> list[Instruction]:
    if sys.platform != "linux" or shutil.which("objdump") is None:
        pytest.skip("needs Linux and objdump")
    with recorded() as located:
        sim, _ = stepped()
    return located.instructions(sim._step.kernel.address)


def test_code_and_numbers_are_the_same_as_without_locations(monkeypatch):
    with recorded() as located:
        _, found = stepped()
    assert not source.is_altered()
    plain, init = [], cpu.CpuKernel.__init__

    def keep(kernel, name, buffers, dtype, code, lanes):
        init(kernel, name, buffers, dtype, code, lanes)
        plain.append(code)

    with monkeypatch.context() as patched:
        patched.setattr(cpu.CpuKernel, "__init__", keep)
        _, wanted = stepped()
    assert [made(code) for code in located.codes.values()] == [made(code) for code in plain]
    assert torch.equal(found, wanted) and not torch.equal(found[0], found[1])
    assert all(b"debug_line" in code for code in located.codes.values())
    assert not any(b"debug_line" in code for code in plain)


def test_every_instruction_has_a_function(instructions):
    assert all(x.chain for x in instructions)
    around = sum(x.chain[0] in (AROUND, ENTRY) for x in instructions)
    assert 0 < around < 0.1 * len(instructions)
    for file, function, line in {frame for x in instructions for frame in x.chain} - {AROUND, ENTRY}:
        assert line > 0 and linecache.getline(str(PACKAGE / file), line).strip(), (file, function, line)


@pytest.mark.skipif(cpu.host().vector_bytes != 64, reason="the names of AVX-512's instructions")
def test_instructions_are_where_the_source_says(instructions):
    """A division or root is on a line that divides or takes one."""
    found = [x for x in instructions if re.match(r"v(div|sqrt)", x.text)]
    assert len(found) > 10
    for x in found:
        assert re.search(DIVIDES, line_of(x)), (x, line_of(x))
    solving = {function for x in found for file, function, _ in x.chain if file == "physics/solver/newton.py"}
    assert {"newton", "newton.step"} <= solving


@pytest.mark.skipif(cpu.host().vector_bytes != 64, reason="the names of AVX-512's instructions")
def test_spills_are_told_from_what_is_computed(instructions):
    moves = [x for x in instructions if x.moves and x.added]
    assert len(moves) > 100 and all("(%rsp)" in x.text for x in moves if x.stores)
    computed = [x for x in instructions if re.match(r"v(add|sub|mul|div|sqrt|f)", x.text)]
    assert len(computed) > 1000 and sum(x.added for x in computed) < 0.02 * len(computed)


def can_sample(folder: Path) -> bool:
    """Tell whether perf is there, and allowed."""
    command = ["perf", "record", "-o", str(folder / "perf.data"), "true"]
    return not where.missing() and not subprocess.run(command, capture_output=True).returncode


def test_samples_are_counted_by_function(capsys, tmp_path):
    if not can_sample(tmp_path):
        pytest.skip("needs perf and objdump, and leave to use them")
    model = tmp_path / "model.xml"
    model.write_text(MODEL)
    where.main([str(model), "--seconds", "0.3", "--worlds", "64", "--top", "5"])
    said = capsys.readouterr().out
    shares = [float(x) for x in re.findall(r"\| ([\d.]+) % \| \d+ %", said)]
    assert len(shares) == 15 and shares[:5] == sorted(shares[:5], reverse=True) and 0 < shares[0] <= 100
    assert "pipeline.py forward" in said.partition("inclusive")[2] and "| vmovaps |" in said


def test_what_is_missing_is_named(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda program: None)
    with pytest.raises(SystemExit, match=r"this needs .*perf .*objdump"):
        where.main(["Hopper"])

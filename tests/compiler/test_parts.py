"""Large blocks and loops as functions of their own: the same bits, kept by themselves, made by several processes."""

from __future__ import annotations

import gc
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from kernels import DTYPES, at_lanes, bits, build, record_list, run

from torch_mjenvs import InvertedPendulum, Outcome, TorchVectorEnv
from torch_mjenvs.compiler import assembler, cpu, loader
from torch_mjenvs.compiler.active_sets import Packed, active_set, add_each, choose_each, compute_each, fold_each
from torch_mjenvs.compiler.arrays import Array, Table
from torch_mjenvs.compiler.build import begin
from torch_mjenvs.compiler.control import count_while, repeat, when_any, while_any
from torch_mjenvs.compiler.llvm import parts, render
from torch_mjenvs.compiler.program import Program
from torch_mjenvs.compiler.scalar import absolute, floor, minimum, number, select
from torch_mjenvs.envs.episode import Episode

pytestmark = pytest.mark.cpu


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("TORCH_MJENVS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def apart(monkeypatch) -> None:
    """Every block and loop at the top is a part."""
    monkeypatch.setattr(parts, "FEWEST", 1)
    monkeypatch.setattr(parts, "FEWEST_EACH", 0)


@pytest.fixture
def made(monkeypatch) -> list[str]:
    """The texts of modules that are compiled in this process."""
    texts: list[str] = []
    assemble = loader.assemble
    monkeypatch.setattr(loader, "assemble", lambda ir, by: texts.append(ir) or assemble(ir, by))
    return texts


def names(ir: str) -> list[str]:
    """The parts in the text of a module."""
    return [parts.name_of(part) for part in ir.split(parts.MARK)[1:]]


def of_everything(dtype: str, factor: float = 2.0) -> Program:
    """Blocks and loops that read, and change, each kind of value of the code around; `factor` is nothing of theirs."""

    def body(x: list) -> list:
        rows, table = Table([[0.25 * k, 1.0 - k] for k in range(8)]), Table([0.5 * k for k in range(12)])
        own = minimum(floor(absolute(x[3]) * 2.0), 7.0)
        first, second = rows[own, :2]
        grown = Array([x[0], x[1], x[0] * x[1], 2.0])
        needed = active_set([y > 0.3 * k for k, y in enumerate(x)])
        few = choose_each(needed, lambda i: [table[i] < absolute(x[2])], 4)
        both = Packed.of([needed, few], [[0, 2, 4, 6], [1, 3, 5, 7]], 8)
        low, total = x[0] < x[1], x[0] + x[2]

        def block(carry: list) -> list:
            filled = compute_each(needed, lambda i: [table[i] * total, first])
            (found,) = fold_each(few, lambda i, c: [c[0] + filled[i, 0] + grown[i]], [second])
            (places,) = fold_each(both.which, lambda i, c: [c[0] * 0.5 + number(both.place(i))], [found])
            return [select(low, carry[0] + found, places), carry[1] * total]

        def put(k, carry: list) -> list:
            grown.put(k, carry[0] + number(k))
            return [carry[0] + table[k] * first, select(low, carry[1] + second, carry[1] - total)]

        a, b = when_any(x[2] > 0.0, block, [x[3], 1.0])
        c, d = repeat(3, put, [b, x[0]], [grown])
        (e,) = while_any(lambda s: s[0] < total, lambda s: [s[0] + 0.25 + x[1] * x[1]], [d], 20)
        (f,) = count_while(lambda k, s: s[0] < 3.0 * e, lambda k, s: [s[0] + number(k) + grown[1] * grown[1]], [d], 9)
        (sums,) = add_each(needed, lambda i: [[(i, f * table[i])]], [[0.0] * 4])
        return [factor * a, b, c, d, e, f, *sums]

    return record_list(body, 4, 10, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lanes", [1, 2, 8, 16])
def test_the_same_bits(dtype, lanes, monkeypatch):
    x = np.random.default_rng(0).normal(size=(4, 40))
    x[:, 3] = np.nan
    program = of_everything(dtype)
    want = run(program, {"x": x}, at_lanes(dtype, lanes))["y"]
    assert not names(render(program, lanes))
    monkeypatch.setattr(parts, "FEWEST", 1)
    assert not names(render(program, lanes))  # they share too much
    monkeypatch.setattr(parts, "FEWEST_EACH", 0)
    assert len(names(render(program, lanes))) == 4
    np.testing.assert_array_equal(bits(run(program, {"x": x}, at_lanes(dtype, lanes))["y"]), bits(want))


def test_a_part_does_not_depend_on_the_code_around(apart):
    one, other = (names(render(of_everything("float32", factor), 16)) for factor in (2.0, 3.0))
    assert one == other and len(set(one)) == 4


def test_parts_are_kept_by_themselves(apart, made, folder):
    build(of_everything("float32"))
    assert len(made) == 5
    build(of_everything("float32", 3.0))
    assert len(made) == 6 and "define void @kernel" in made[5]
    assert len(list(folder.glob("part-*.o"))) == 4
    for path in folder.glob("part-*.o"):
        path.unlink()
    build(of_everything("float32", 4.0))
    assert len(made) == 11


def test_parts_of_other_optimisation_are_others(apart, made):
    program = of_everything("float32")
    for opt in (None, 0, None, 0):
        cpu.back_end(opt=opt).translate(cpu.assembly(program, cpu.host()))
    assert len(made) == 5 + 5 + 1 + 1  # the rest of a kernel is kept by `build`


@dataclass(frozen=True, kw_only=True)
class Rewarded(InvertedPendulum):
    """A task whose reward can be changed."""

    bonus: float = 1.0

    def outcome(self, m, before, action, after):
        return Outcome(after.qpos[0] * self.bonus, after.qpos[1] > 0.2)


def test_who_changes_a_reward_waits_for_the_rest_only(apart, made):
    compiled = []
    for bonus in (1.0, 3.0):
        made.clear()
        TorchVectorEnv(Rewarded(bonus=bonus), 16, autoreset_mode="SameStep").reset(seed=0)
        compiled.append(sum("define void @part" in text for text in made))
    assert compiled[0] >= 2 and compiled[1] == 0 and made


# several processes


@pytest.fixture
def two_processes(monkeypatch) -> None:
    monkeypatch.setattr(assembler, "processors", lambda: 2)
    monkeypatch.setattr(assembler, "WORTH_WHILE", 1)


def test_another_process_makes_the_same_code(apart, two_processes, made):
    ir = cpu.assembly(of_everything("float32"), cpu.host())
    code = cpu.back_end().translate(ir)
    here = len(made)
    assert 0 < here < 5
    by = cpu.back_end().translate.__self__
    _, *others = ir.split(parts.MARK)
    heads = [f'target triple = "{by.triple}"\n{part}' for part in others]
    want = [loader.assemble(text, by._machine) for text in heads]
    assert loader.objects_of(code)[1:] == want
    run(of_everything("float32"), {"x": np.ones((4, 40))})


@pytest.mark.parametrize("how", ["cannot start", "has no room for a file", "fails", "is no Python"])
def test_without_another_process_all_is_made_here(how, apart, two_processes, made, monkeypatch):

    def none_left(*args, **kwargs):
        raise OSError("none left")

    if how == "cannot start":
        monkeypatch.setattr(subprocess, "Popen", none_left)
    if how == "has no room for a file":
        monkeypatch.setattr(tempfile, "TemporaryFile", none_left)
    if how == "fails":
        monkeypatch.setattr(assembler, "_PROGRAM", "import sys; sys.exit(3)")
    if how == "is no Python":
        monkeypatch.setattr(sys, "executable", "/usr/bin/blender")
        monkeypatch.setattr(subprocess, "Popen", None)
    build(of_everything("float32"))
    assert len(made) == 5


def test_other_processes_make_what_is_begun(apart, two_processes, made, tmp_path, monkeypatch):
    wait = begin(of_everything("float32"), cpu.back_end())
    kernel = wait()
    assert not made
    assert wait() is kernel is build(of_everything("float32"))
    back, ir = cpu.back_end(), cpu.assembly(of_everything("float32"), cpu.host())
    codes = []
    for how in (back.translate, lambda ir: back.begin(ir)()):
        monkeypatch.setenv("TORCH_MJENVS_CACHE", str(tmp_path / str(len(codes))))
        codes.append(how(ir))
    assert codes[0] == codes[1] and made


def test_code_on_disk_is_not_begun(apart, two_processes, made, monkeypatch):
    wait = begin(of_everything("float32"), cpu.back_end())
    del wait  # nobody waited, and nothing was kept
    build(of_everything("float32"))
    monkeypatch.setattr(subprocess, "Popen", None)
    assert begin(of_everything("float32"), cpu.back_end())().code_bytes > 0


@pytest.fixture
def started(monkeypatch) -> list[subprocess.Popen]:
    """The processes that are started; none of them ends by itself."""
    found: list[subprocess.Popen] = []
    popen = subprocess.Popen

    def start(*args, **kwargs):
        found.append(popen(*args, **kwargs))
        return found[-1]

    monkeypatch.setattr(subprocess, "Popen", start)
    monkeypatch.setattr(assembler, "_PROGRAM", "import time; time.sleep(60)")
    return found


def test_nobody_waits_for_what_is_begun(apart, two_processes, started):
    wait = begin(of_everything("float32"), cpu.back_end())
    assert len(started) == 2 and all(process.poll() is None for process in started)
    del wait
    assert all(process.returncode is not None for process in started)


def test_an_error_amid_the_next_kernel_leaves_no_process(apart, two_processes, started, monkeypatch):
    program = Episode.program

    def broken(self, what, dtype):
        if what == "reset":
            raise RuntimeError("no reset yet")
        return program(self, what, dtype)

    monkeypatch.setattr(Episode, "program", broken)
    with pytest.raises(RuntimeError) as error:
        TorchVectorEnv(Rewarded(bonus=1.0), 16, autoreset_mode="SameStep")
    assert len(started) == 2
    del error
    gc.collect()
    assert all(process.returncode is not None for process in started)


def test_an_interrupt_ends_the_other_process(apart, two_processes, started, monkeypatch):
    def interrupted(ir, by):
        raise KeyboardInterrupt

    monkeypatch.setattr(loader, "assemble", interrupted)
    with pytest.raises(KeyboardInterrupt):
        build(of_everything("float32"))
    assert len(started) == 1 and started[0].returncode is not None


def test_modules_are_shared_out_by_size(monkeypatch):
    monkeypatch.setattr(assembler, "processors", lambda: 3)
    modules = ["x" * size for size in (10, 90, 40, 20, 60)]
    assert assembler._shares(modules, 30, here=True) == [[1], [4, 0], [2, 3]]
    assert assembler._shares(modules, 65, here=True) == [[1, 2, 3], [4, 0]]
    assert assembler._shares(modules, 30, here=False) == [[], [1], [4, 0], [2, 3]]
    assert assembler._shares(modules, 65, here=False) == [[2, 3], [1], [4, 0]]
    monkeypatch.setattr(assembler, "processors", lambda: 1)
    for here in (True, False):
        assert assembler._shares(modules, 30, here) == [[1, 4, 2, 3, 0]]


@pytest.mark.parametrize("objects", [[b"one"], [b"one", b"", b"several objects\n"]])
def test_objects_are_joined_and_taken_apart(objects):
    assert loader.objects_of(loader.joined(objects)) == objects

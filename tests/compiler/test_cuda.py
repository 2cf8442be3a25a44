"""The code for NVIDIA GPUs, without one: run by the interpreter of PTX, launched through a driver that stands in for
the real one, and assembled by NVIDIA's assembler. It must give the same bits as the CPU's code of the same programs.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import test_control
import torch
from driver import Driver, driver
from gymnasium.vector import AutoresetMode
from kernels import DTYPES, Arrays, build, record_list, tensors
from launches import Launches, record_graphs
from ptx import Machine, unwritten
from ptx import Program as PTXProgram
from tasks import samples

from benchmarks import cuda_code
from torch_mjenvs import TorchVectorEnv
from torch_mjenvs.compiler import build as building
from torch_mjenvs.compiler import cuda, launch
from torch_mjenvs.compiler.arrays import Array, Table
from torch_mjenvs.compiler.build import Recipe
from torch_mjenvs.compiler.control import count_while, repeat, unrolling
from torch_mjenvs.compiler.expr import node, tracing
from torch_mjenvs.compiler.llvm import NVIDIA, render_thread
from torch_mjenvs.compiler.ops import OPS
from torch_mjenvs.compiler.program import Buffer, Program, record
from torch_mjenvs.compiler.scalar import number
from torch_mjenvs.envs import engine
from torch_mjenvs.envs.engine import Engine, episode_of
from torch_mjenvs.envs.tasks.registry import TASKS
from torch_mjenvs.physics import load, simulation_kernels, step_function, world_params
from torch_mjenvs.physics.simulation import Simulation

if torch.get_default_device().type != "cpu":
    pytest.skip("on a GPU all other tests run this code itself", allow_module_level=True)

__all__ = ["driver"]  # a fixture

pytestmark = pytest.mark.usefixtures("as_for_a_gpu")
CPU = torch.device("cpu")
MAIN = ("HalfCheetah", "Walker2d", "Hopper", "Ant", "Humanoid")


def assert_same(name: str, got: torch.Tensor, want: torch.Tensor) -> None:
    """The same bits, but for those of a NaN: which NaN comes of what is the processor's own."""
    a, b = got.numpy(), want.numpy()
    if a.dtype.kind == "f":
        np.testing.assert_array_equal(np.isnan(a), np.isnan(b), err_msg=f"NaNs of {name}")
        a, b = (np.where(np.isnan(x), np.zeros(1, x.dtype), x).view(f"i{x.itemsize}") for x in (a, b))
    np.testing.assert_array_equal(a, b, err_msg=name)


def on_both(program: Program, inputs: Arrays) -> dict[str, np.ndarray]:
    """All buffers as (size, n) after the program has run on the CPU, and, to the same bits, as PTX."""
    n = next(iter(inputs.values())).shape[1]
    ours, theirs = tensors(program, inputs), tensors(program, inputs)
    build(program).bind(ours)()
    first = program.buffers[0]
    worlds = theirs[first.name].shape[0 if first.rows else 1]
    Machine(cuda.assembly(program)).launch(list(theirs.values()), worlds)
    out = {}
    for b in program.buffers:
        mine, its = ((x.T if b.rows else x)[:, :n] for x in (ours[b.name], theirs[b.name]))
        assert_same(b.name, its.contiguous(), mine.contiguous())
        out[b.name] = its.numpy()
    return out


# small programs

EXTREME = [0.0, -0.0, 1.0, -1.5, np.inf, -np.inf, np.nan, 1e-310, 1e-40, -1e-40, 3e38, 1e5, -1e5, 0.3]


def every_operation(b: dict[str, list]) -> dict[str, list]:
    """Each arithmetic row of the table `OPS`: of floats f and g, of p > 0, of whole numbers, exponents and shifts."""
    f, g, p = b["f"]
    i, j, exponent, shift = b["i"]
    first = {"f": (f, g, 0.7), "i": (i, j), "b": b["b"]}
    special = {
        "f2i": (node("max", node("min", f, 1e9), -1e9),), "pow2": (exponent,), "exponent": (p,), "mantissa": (p,),
        "ishl": (i, shift), "lshr": (i, shift),
    }  # fmt: skip
    out: dict[str, list] = {"f": [], "i": [], "b": []}
    for op, row in OPS.items():
        if row.takes and set(row.takes + row.gives) <= set("fib"):
            taken = {"f": 0, "i": 0, "b": 0}
            args = []
            for t in row.takes:
                args.append(first[t][taken[t] % len(first[t])])
                taken[t] += 1
            out[row.gives].append(node(op, *special.get(op, args)))

    out["f"] += Table([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])[f]

    def turn(k: Any, c: list) -> list:
        here = Table((2, 0, 1))[k]
        return [c[0] + Table((1.0, 2.0, 4.0))[k] + rows[here, 0] + rows[here + k, 1]]

    rows = Array([[f, g], [g, p], [p, f], [f, f], [g, g]])
    out["f"] += repeat(3, turn, [0.5])

    def fill(k: Any, c: list) -> list:
        here = own[row]
        own.put(row, here + number(k))
        return [c[0] + here]

    row, own = node("select", b["b"][0], 1.0, 0.0), Array([f, g])  # each world's own row
    out["f"] += count_while(lambda k, c: number(k) < 2.0, fill, [0.0], 3, [own])
    return {"f out": out["f"], "i out": out["i"], "b out": out["b"]}


def widths(body: Callable[[dict], dict], given: list[Buffer], dtype: str) -> dict[str, int]:
    """How many columns a body gives for each of its outputs."""
    with tracing(dtype):
        loads = {b.name: [node("load", attr=(k, c), type_=b.type) for c in range(b.size)] for k, b in enumerate(given)}
        return {name: len(columns) for name, columns in body(loads).items()}


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_operation(dtype):
    rng = np.random.default_rng(0)
    n = 300
    floats = np.where(rng.random((3, n)) < 0.5, rng.choice(EXTREME, (3, n)), rng.normal(size=(3, n))).astype(dtype)
    floats[2] = np.exp(rng.uniform(-60, 60, n))
    whole = rng.integers(-(2**31), 2**31 - 1, (4, n)).astype(np.int32)
    whole[2], whole[3] = rng.integers(-100, 100, n), rng.integers(0, 32, n)
    given = [Buffer("f", 3), Buffer("i", 4, "i"), Buffer("b", 3, "b")]
    outputs = [Buffer(name, size, name[0]) for name, size in widths(every_operation, given, dtype).items()]
    program = record("every", given + outputs, every_operation, dtype)
    assert {e.op for e in program.live} >= {
        op for op, row in OPS.items() if row.takes and set(row.takes + row.gives) <= set("fibms")
    }
    on_both(program, {"f": floats, "i": whole, "b": rng.random((3, n)) < 0.5})


def choices(x: list) -> list:
    """All of which LLVM may make a min, a max or an abs, whose NaN and zeros are not those of a comparison's choice.

    Each of numbers of its own, since what is also used elsewhere is left alone.
    """
    out: list = []
    sides: list[Callable] = [lambda a, b, c=c: (a, c) for c in (0.0, -0.0, 1e5, -1e5)]
    sides += [lambda a, b: (a, b), lambda a, b: (a, node("abs", b)), lambda a, b: (node("abs", a), 0.0)]
    for side in sides:
        for turned in (False, True):
            for make in (
                lambda a, b: node("min", a, b), lambda a, b: node("max", a, b),
                lambda a, b: node("select", node("lt", a, b), a, b),
                lambda a, b: node("select", node("lt", a, b), b, a),
                lambda a, b: node("select", node("le", a, b), a, b),
                lambda a, b: node("select", node("le", a, b), b, a),
            ):  # fmt: skip
                k = 2 * len(out) % len(x)
                pair = side(x[k], x[k + 1])
                out.append(make(*(pair[::-1] if turned else pair)))
    for test in ("lt", "le"):
        for turned in (False, True):
            k = 2 * len(out) % len(x)
            a, zero = x[k], 0.0
            mask = node(test, *((zero, a) if turned else (a, zero)))
            out += [node("select", mask, a, node("neg", a)), node("select", mask, node("neg", a), a)]
    return out


@pytest.mark.parametrize("dtype", DTYPES)
def test_choices_of_extreme_numbers(dtype):
    pairs = np.array([[a, b] for a in EXTREME for b in EXTREME]).T.astype(dtype)
    count = widths(lambda b: {"y": choices(b["x"])}, [Buffer("x", 1000)], dtype)["y"]
    y = on_both(record_list(choices, 2 * count, count, dtype), {"x": np.tile(pairs, (count, 1))})["y"]
    assert np.isnan(y).any() and np.signbit(y[y == 0]).any()


CONTROL = {
    "when": test_control.test_when_any,
    "when, no world": lambda: test_control.test_when_any_for_no_world_and_for_all(99.0),
    "when, all": lambda: test_control.test_when_any_for_no_world_and_for_all(-99.0),
    "while": test_control.test_while_any,
    "while, to its limit": lambda: test_control.test_while_any_stops_at_its_limit(3),
    "while, done": test_control.test_a_world_whose_condition_was_false_is_done,
    "repeat": lambda: test_control.test_repeat_carries_through_every_pass(5),
    "tables": test_control.test_two_tables,
    "compute": test_control.test_what_is_computed_is_used_under_its_mask,
    "truth values": test_control.test_truth_values_and_loops_as_carry,
    "each": test_control.test_what_is_touched_is_computed_and_chosen_and_summed,
    "each, in a loop": test_control.test_what_is_touched_in_a_loop_is_touched_anew,
    "each, of nothing": test_control.test_nothing_touched,
    **{f"random {k}": functools.partial(test_control.test_random_programs, k) for k in range(25)},
    **{
        f"garbage, {form} {dtype}": functools.partial(
            test_control.test_worlds_that_are_not_concerned_keep_their_bits, form, dtype
        )
        for form in test_control.SPOILERS
        for dtype in DTYPES
    },
    **{f"NaN {dtype}": functools.partial(test_control.test_nan_chooses_alike_everywhere, dtype) for dtype in DTYPES},
    **{f"real {dtype}": functools.partial(test_control.test_real_numbers_agree_to_rounding, dtype) for dtype in DTYPES},
}


@pytest.mark.parametrize("case", CONTROL)
def test_control_forms(case, monkeypatch):
    """What test_control.py asks of kernels, of PTX."""
    made: dict[tuple, np.ndarray] = {}

    def by_ptx(body: Callable[[list], list], x: np.ndarray, dtype: str, lanes: int) -> np.ndarray:
        if (body, dtype) not in made:
            program = record_list(body, len(x), len(body(x[:, 0].tolist())), dtype)
            made[body, dtype] = on_both(program, {"x": x})["y"]
        return made[body, dtype]

    monkeypatch.setattr(test_control, "by_kernel", by_ptx)
    CONTROL[case]()
    assert made


TOGETHER = ["while", "while, to its limit", "while, done", "truth values", *(f"random {k}" for k in range(25))]


@pytest.mark.parametrize("threads", [32, 128])
@pytest.mark.parametrize("case", TOGETHER)
def test_loops_whose_iterations_a_block_begins_together(case, threads, monkeypatch):
    """Those of a block to which all its threads come; worlds beyond the last have ended before."""
    run = Machine.launch
    monkeypatch.setattr(Machine, "launch", lambda self, tensors, worlds: run(self, tensors, worlds, threads))
    monkeypatch.setattr(cuda, "NVIDIA", dataclasses.replace(NVIDIA, together_from=0))
    test_control_forms(case, monkeypatch)


# the tasks


@functools.cache
def machine(name: str, what: str, dtype: str, mode: AutoresetMode = AutoresetMode.NEXT_STEP) -> Machine:
    return Machine(cuda_code.ptx(name, what, dtype, mode), trace=True)


def in_play(name: str, n: int, dtype: str, mode: AutoresetMode = AutoresetMode.NEXT_STEP) -> Engine:
    """Worlds after some time: upright, fallen and going on, thrown into other poses; in contact in all ways."""
    task = TASKS[name]()
    kind, most = getattr(torch, dtype), task.max_episode_steps
    made = Engine(task, n, dtype=kind, device="cpu", autoreset_mode=mode, max_episode_steps=most)
    made.seed(3)
    made.reset()
    generator = torch.Generator().manual_seed(1)

    def throw(worlds: slice) -> None:
        for x, size in ((made.qpos[worlds], 0.6), (made.qvel[worlds], 3.0)):
            x.add_(size * torch.randn(x.shape, generator=generator, dtype=x.dtype))

    for k in range(60):
        if k == 40:
            throw(slice(1, None, 2))
        act(made, generator)
        made.step()
        made.done[n // 3 :] = False
    throw(slice(2, None, 4))
    if name == "Pusher":  # its object is not met by chance
        found = samples(name)
        for x, states in ((made.qpos, found.qpos), (made.qvel, found.qvel)):
            x[1::2] = torch.tensor(states[: len(x[1::2])], dtype=x.dtype)
    return made


def act(made: Engine, generator: torch.Generator) -> None:
    """Actions that now and then are too large, as a policy's are."""
    made.action.copy_(2.4 * torch.rand(made.action.shape, generator=generator, dtype=made.dtype) - 1.2)


def compare_runs(made: Engine, what: str, run: Callable[[], None]) -> np.ndarray:
    """`run`, the CPU's kernel, and PTX from the same buffers, to the same bits in all of them, unused worlds' too.

    Returns how often each block of the PTX was run.
    """
    ours = {name: x.clone() for name, x in made.buffers.items()}
    run()
    dtype = str(made.dtype).removeprefix("torch.")
    code = machine(type(made.task).__name__, what, dtype, made.mode)
    if made.dtype == torch.float32:
        assert_float32_stays_float32(code, what)
    ways = code.launch(list(ours.values()), launch.padded(made.num_envs))
    for name, x in made.buffers.items():
        assert_same(name, ours[name], x)
    return np.bincount(np.concatenate(ways), minlength=len(code.program.blocks))


def assert_float32_stays_float32(code: Machine, what: str) -> None:
    """That every rounding is said, and nothing called, the interpreter sees to."""
    names = {s.name for block in code.program.blocks for s in block.statements}
    assert not [x for x in names if "f64" in x]
    assert "fma.rn.f32" in names or what == "refresh"  # which only copies some tasks' state


WORLDS = 202  # neither whole vectors nor whole blocks; 208 are allocated

STEPS = [
    *((name, "float32", "NEXT_STEP") for name in TASKS),
    *((name, "float64", "NEXT_STEP") for name in TASKS),
    *((name, "float32", "SAME_STEP") for name in MAIN),
]
FAST_STEPS = {(name, "float32", "NEXT_STEP") for name in TASKS if name != "HumanoidStandup"}
FAST_STEPS |= {("Hopper", "float64", "NEXT_STEP"), ("Hopper", "float32", "SAME_STEP")}


def slow_but(cases: list[tuple], fast: set[tuple]) -> list:
    return [case if case in fast else pytest.param(*case, marks=pytest.mark.slow) for case in cases]


LOOPED = {"Ant", "Humanoid", "HumanoidStandup", "Pusher"}
PLAIN = {"HalfCheetah", "Walker2d", "Hopper", "Pusher"}  # that a fast run looks at; and Ant


@pytest.mark.parametrize(("name",), slow_but([(name,) for name in TASKS], {(name,) for name in {*PLAIN, "Ant"}}))
def test_which_programs_are_the_cpus_own(name):
    """All but those with many contacts alike, or with limbs that may meet: so a GPU's results are bit for bit what a
    CPU gives to users.
    """

    def text(limit: float) -> str:
        made = TASKS[name]()
        with unrolling(limit):
            episode = episode_of(made, load(made.load()), torch.float32, AutoresetMode.NEXT_STEP, 1000)
            return render_thread(episode.program("step", "float32"))

    assert (text(np.inf) == text(NVIDIA.unroll_limit)) == (name not in LOOPED)


# Whose rows are so few that Newton ends before its fourth full step: its line search, a tenth of the code, is not run.
NEVER_SEARCH = {"InvertedPendulum", "InvertedDoublePendulum", "Reacher", "Swimmer"}


@pytest.mark.parametrize(("name", "dtype", "mode"), slow_but(STEPS, FAST_STEPS))
def test_steps_are_those_of_the_cpu(name, dtype, mode):
    made = in_play(name, WORLDS, dtype, AutoresetMode[mode])
    made.elapsed_steps[5::10] = made.task.max_episode_steps - 1
    made.action[6::20, 0] = float("nan")
    made.qpos[7::20, 0] = float("inf")
    begun = made.episode.clone()
    generator = torch.Generator().manual_seed(2)
    seen = {"truncated": 0, "bad_state": 0, "done": 0}
    runs: np.ndarray = np.zeros(1)
    for _ in range(8 if name == "Hopper" else 3):
        for x, size in ((made.qpos, 1.0), (made.qvel, 300.0)):  # so that line searches begin
            x[3::4].add_(size * torch.randn(x[3::4].shape, generator=generator, dtype=x.dtype))
        runs = runs + compare_runs(made, "step", made.step)
        for flag in seen:
            seen[flag] += int(getattr(made, flag).sum())
        act(made, generator)
    assert seen["truncated"] >= 1 and seen["bad_state"] >= 2
    assert seen["done"] >= 3 or mode == "SAME_STEP"
    assert (made.episode - begun)[5::10].all()
    if mode == "SAME_STEP":
        return  # there no world goes on after its fall, so that it would lie on the ground
    blocks = machine(name, "step", dtype, made.mode).program.blocks
    never = sum(len(block.statements) for block, run in zip(blocks, runs, strict=True) if not run)
    most = 0.11 if name in NEVER_SEARCH else 0.07
    assert never < most * sum(len(block.statements) for block in blocks), "hardly anything was not run"


OTHERS = [(name, what, dtype) for name in TASKS for what in ("reset", "refresh") for dtype in DTYPES]
FAST_OTHERS = {x for x in OTHERS if x[0] != "HumanoidStandup" and (x[0] != "Humanoid" or x[2] == "float32")}


@pytest.mark.parametrize(("name", "what", "dtype"), slow_but(OTHERS, FAST_OTHERS))
def test_resets_are_those_of_the_cpu(name, what, dtype):
    made = in_play(name, WORLDS, dtype)
    made.qpos.add_(0.01)
    made.reset_mask.copy_(torch.arange(WORLDS) % 3 == 0)
    before = made.obs.clone()
    compare_runs(made, what, made._reset if what == "reset" else made._refresh)
    changed = (made.obs != before).any(1)
    assert not changed[1::3].any() and changed[::3].any()


SLOW = [pytest.param(*x, marks=pytest.mark.slow) for x in (("Ant", True), ("Humanoid", False))]


@pytest.mark.parametrize(("name", "some"), [("Hopper", True), *SLOW])
def test_only_what_compute_any_leaves_open_is_read_before_it_is_written(name, some, monkeypatch):
    """LLVM moves arithmetic on such values out of the blocks that they are for, where other threads compute it, too,
    from whatever a register holds; what comes of it is used under the mask only. With zeros there, nothing is left.
    (Humanoid's blocks put what they make into arrays, and leave nothing open.)
    """
    assert bool(unwritten(machine(name, "step", "float32").program)) is some
    lower, undefined = cuda._lower, re.compile(r"phi (\w+) \[ poison,")

    def defined(program: Program) -> str:
        zeros = {"float": "0.0", "double": "0.0", "i1": "false", "i32": "0"}
        return undefined.sub(lambda match: f"phi {match[1]} [ {zeros[match[1]]},", lower(program))

    monkeypatch.setattr(cuda, "_lower", defined)
    assert not unwritten(PTXProgram(cuda_code.ptx.__wrapped__(name, "step", "float32")))


# launching


def map_program(dtype: str = "float64") -> Program:
    return record("map", [Buffer("x", 1)], lambda b: {"x": [3.7 * b["x"][0] * (1.0 - b["x"][0])]}, dtype)


def cuda_kernel(what: Program | Recipe) -> launch.Kernel:
    """Built for the stand-in for a GPU."""
    return building.build(what, cuda.back_end(CPU))


def test_a_launch(driver):
    kernel = cuda_kernel(map_program())
    assert (kernel.registers, kernel.local_bytes, kernel.blocks) == (77, 88, 32)
    a = torch.rand(1, 80, dtype=torch.float64)
    b, c = a.clone(), a.clone()
    kernel.bind({"x": a})(times=3)
    build(map_program()).bind({"x": b})(times=3)
    assert torch.equal(a, b)
    assert driver.calls == [("set", "carveout", 10), ("reserve", 1234)] + [("launch", 1234)] * 3
    torch.ops.torch_mjenvs.launch(kernel.handle, [c], 3)
    assert torch.equal(a, c)
    (d,) = launch.run(kernel.handle, [torch.rand(5, 3, 1, dtype=torch.float64)])
    assert d.shape == (5, 3, 1)


def test_worlds_are_counted_in_64_bits():
    """16,384 pictures of 640 x 480 have more pixels than 32 bits count."""
    code = cuda.assembly(map_program())
    (block,) = re.findall(r"mov\.u32\s+(%r\d+), %ctaid\.x", code)
    assert re.search(rf"(mul|mad)\.wide\.u32\s+%rd\d+, {block}, %r\d+|cvt\.u64\.u32\s+%rd\d+, {block};", code)
    assert not re.search(rf"(mul|mad)\.lo\.\w32.*{block}\b", code)


def test_of_no_worlds_nothing_is_launched(driver):
    """CUDA refuses a launch of no blocks."""
    run = cuda_kernel(map_program()).bind({"x": torch.zeros(1, 0, dtype=torch.float64)})
    before = list(driver.calls)
    run()
    assert driver.calls == before


@pytest.mark.parametrize(("registers", "percent"), [(255, 3), (163, 5), (92, 8), (16, 14)])
def test_l1_gives_up_what_its_blocks_need_and_no_more(driver, registers, percent):
    """8, 12, 20 and 32 blocks of 32 threads: 1 KB of 228 each."""
    driver.attributes["registers"] = registers
    cuda_kernel(map_program())
    driver.narrow = percent  # not rounded up, as it should be
    cuda_kernel(map_program("float32"))
    assert [call[2] for call in driver.calls if call[0] == "set"] == [percent, percent, percent + 1]


def test_local_memory_is_reserved_when_a_kernel_is_loaded(driver):
    """If that takes what torch keeps for later, torch gives it back; if it is not enough, the error says how much."""
    driver.attributes["local"] = 29360
    first = cuda_kernel(map_program())
    assert first.reserved_bytes == (29360 + 512) * 2048 * 132
    assert driver.calls[-1][0] == "reserve"
    driver.short = 1
    second = cuda_kernel(map_program("float32"))
    assert second.reserved_bytes == first.reserved_bytes
    assert [call[0] for call in driver.calls[-3:]] == ["reserve", "emptied", "reserve"]
    driver.short = 2
    with pytest.raises(torch.OutOfMemoryError, match=r"about 8\.1 GB\. Of its 85\.0 GB, 3\.0 GB are free"):
        cuda_kernel(record("other", [Buffer("x", 1)], lambda b: {"x": [b["x"][0] + 1.0]}, "float32"))


def test_code_goes_with_its_last_user(driver):
    """Also while somebody captures a graph, and from a thread that is in another context."""
    launched = cuda_kernel(map_program()).bind({"x": torch.rand(1, 16, dtype=torch.float64)})
    assert len(driver.machines) == 1
    del launched
    assert not driver.machines
    assert driver.calls[-4:] == [("mode", "relaxed"), ("push",), ("pop",), ("mode", "global")]


def test_a_torch_without_a_context(driver):
    driver.context = 0
    with pytest.raises(RuntimeError, match="torch made no CUDA context"):
        cuda_kernel(map_program())


@pytest.mark.parametrize(
    ("status", "name"), [(700, "CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access"), (999, "999")]
)
def test_a_launch_that_fails(driver, status, name):
    run = cuda_kernel(map_program()).bind({"x": torch.rand(1, 16, dtype=torch.float64)})
    driver.answer = status
    with pytest.raises(RuntimeError, match=f"CUDA's driver answered {name}"):
        run()


def test_code_that_cannot_be_loaded(driver):
    driver.answer = 218
    with pytest.raises(RuntimeError, match=r"the code of map for cpu, answered CUDA_ERROR_INVALID_PTX\nptxas: line 3"):
        cuda_kernel(map_program())


def test_no_driver(monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    cuda._driver.cache_clear()
    with pytest.raises(ImportError, match="pip install cuda-bindings"):
        cuda_kernel(map_program())


def test_ptx_is_kept(driver, monkeypatch, tmp_path):
    monkeypatch.setenv("TORCH_MJENVS_CACHE", str(tmp_path))
    made = []

    def make() -> Program:
        made.append(1)
        return map_program()

    for _ in range(2):
        kernel = building.build(Recipe("map", (Buffer("x", 1),), "float64", make, "origin"), cuda.back_end(CPU))
        x = torch.rand(1, 16, dtype=torch.float64)
        want = (3.7 * x) * (1.0 - x)
        kernel.bind({"x": x})()
        assert torch.allclose(x, want, rtol=1e-15)
        del kernel
    assert len(made) == 1


def test_ptx_of_a_program_whose_origin_is_not_known_is_kept_too(driver, monkeypatch, tmp_path):
    """By its IR: a user's task is traced in every process, but lowered in one."""
    monkeypatch.setenv("TORCH_MJENVS_CACHE", str(tmp_path))
    made, translate = [], cuda.translate
    monkeypatch.setattr(cuda, "translate", lambda ir: made.append(ir) or translate(ir))
    for _ in range(2):
        cuda_kernel(map_program())
    assert len(made) == 1 and len(list(tmp_path.iterdir())) == 1


IN_BLOCKS = [("Hopper", "NextStep", 132, 1), ("Hopper", "SameStep", 1, 64), ("HalfCheetah", "SameStep", 5, 10)]


@pytest.mark.parametrize(("name", "mode", "multiprocessors", "threads"), [*IN_BLOCKS, ("Walker2d", "NextStep", 1, 64)])
def test_an_environment(driver, monkeypatch, name, mode, multiprocessors, threads):
    """A task through the launches for CUDA, beside the one on the CPU: all that it gives is the same.

    A block has the worlds of a multiprocessor, of 48 in all. Of 10 threads, the last block has 8 worlds; of two warps,
    the second is half full.
    """
    monkeypatch.setattr(driver.CUdevice_attribute, "CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT", multiprocessors)

    def steps(device_build: Callable | None) -> list:
        with monkeypatch.context() as patch:
            if device_build is not None:
                for function in ("begin", "prepare"):
                    patch.setattr(engine, function, lambda *given: lambda: device_build(*given))
            env = TorchVectorEnv(name, 40, device="cpu", autoreset_mode=mode, max_episode_steps=26)
            generator = torch.Generator().manual_seed(0)
            seen = [env.reset(seed=4)]
            for k in range(30):
                seen.append(env.step(2 * torch.rand(40, env.single_action_space.shape[0], generator=generator) - 1))
                if k == 20:
                    env.set_state(env.engine.qpos + 0.01, env.engine.qvel)
                    seen.append((env.engine.obs.clone(), env.engine.info))
                    mask = torch.arange(40) < 7
                    seen.append(env.reset(seed=5, options={"reset_mask": mask}))
            return seen

    before = len(driver.calls)
    ours = steps(lambda recipe, device: cuda_kernel(recipe))
    assert len([c for c in driver.calls[before:] if c[0] == "launch"]) == 33
    assert driver.threads == {threads}
    theirs = steps(None)
    assert any(bool((x[2] | x[3]).any()) for x in ours if len(x) == 5), "some episode ended"

    def same(a: Any, b: Any, name: str) -> None:
        if isinstance(a, torch.Tensor):
            assert_same(name, a, b)
        elif isinstance(a, dict):
            assert a.keys() == b.keys()
            for key in a:
                same(a[key], b[key], f"{name} {key}")
        else:
            for k, (x, y) in enumerate(zip(a, b, strict=True)):
                same(x, y, f"{name} {k}")

    same(ours, theirs, "step")


@pytest.fixture
def on_the_driver(driver, monkeypatch) -> Driver:
    """Environments whose kernels are launched by the stand-in for a GPU's driver."""
    for function in ("begin", "prepare"):
        monkeypatch.setattr(engine, function, lambda recipe, device: lambda: cuda_kernel(recipe))
    return driver


def launched(driver: Driver) -> int:
    return len([call for call in driver.calls if call[0] == "launch"])


BALLS = "".join(f'<geom size="0.04" pos="0 {0.1 * k} {0.01 * k}" contype="2" conaffinity="1"/>' for k in range(7))
FEET = "".join(
    f'<body pos="{0.3 * k} 0 0"><joint type="slide" axis="0 0.{k} 1" damping="1"/>{BALLS}</body>' for k in range(2)
)
TWO_FEET = f"""
<mujoco><worldbody>
  <geom type="plane" size="5 5 1"/>
  <body pos="0 0 0.035"><joint type="slide" axis="1 0 0"/><joint type="hinge" axis="0 1 0"/>
    <geom size="0.02" contype="0" conaffinity="0"/>{FEET}</body>
</worldbody></mujoco>
"""


def test_a_simulation_with_floors_in_loops(driver, monkeypatch):
    """Steps, derivatives, gradients and what set_const derives, launched for CUDA: the bits of the CPU's kernels of the
    same programs, and to rounding the numbers of those that a CPU has.
    """

    def found() -> dict[str, torch.Tensor]:
        sim = Simulation(TWO_FEET, 20, "cpu", torch.float64, vary=("body_mass",), outputs=("ncon", "cfrc_ext"))
        generator = torch.Generator().manual_seed(0)
        for x in (sim.qvel, sim.params["body_mass"]):
            x.mul_(0.5 + torch.rand(x.shape, generator=generator, dtype=x.dtype))
        sim.qpos.add_(0.01 * torch.randn(sim.qpos.shape, generator=generator, dtype=torch.float64))
        sim.step(3)
        derivatives = sim.linearize()
        state = [x.clone().requires_grad_() for x in (sim.qpos, sim.qvel, sim.ctrl)]
        after = sim.transition(*state)
        gradients = torch.autograd.grad(after.qvel.square().sum(), state[:2])
        parts = {"qvel": sim.qvel, "A": derivatives.A, "by qpos": gradients[0], "by qvel": gradients[1]}
        return parts | {name: getattr(sim, name) for name in ("qpos", "ncon", "cfrc_ext")}

    ours = found()
    with unrolling(np.inf):
        plain = found()
    before = launched(driver)
    for module in (simulation_kernels, step_function, world_params):
        monkeypatch.setattr(module, "build", lambda recipe, device: cuda_kernel(recipe))
    theirs = found()
    assert launched(driver) - before > 5
    assert 2 < ours["ncon"].mean() < 13
    assert any(not torch.equal(ours[name], plain[name]) for name in ours), "the programs differ"
    for name, x in ours.items():
        assert_same(name, theirs[name], x)
        torch.testing.assert_close(x, plain[name], rtol=1e-9, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["HalfCheetah", "Hopper"])
def test_gradients_of_a_robot(name, driver, monkeypatch):
    """A step and its way back, launched for CUDA: the bits of the CPU's kernels of the same programs."""
    model = TASKS[name]().load()
    sim = Simulation(model, 16, "cpu", torch.float32, outputs=("ncon",))
    generator = torch.Generator().manual_seed(0)
    sim.qvel.add_(torch.randn(sim.qvel.shape, generator=generator))
    sim.step(60 if name == "HalfCheetah" else 200)  # into contact
    assert sim.ncon.max() > 1
    given = [x.clone() for x in (sim.qpos, sim.qvel, torch.randn(sim.ctrl.shape, generator=generator))]

    def found() -> dict[str, torch.Tensor]:
        made, leaves = Simulation(model, 16, "cpu", torch.float32), [x.clone().requires_grad_() for x in given]
        after = made.transition(*leaves)
        gradients = torch.autograd.grad(after.qvel.square().sum() + after.qpos.square().sum(), leaves)
        return dict(zip(("qpos", "qvel", "by qpos", "by qvel", "by ctrl"), [*after[:2], *gradients], strict=True))

    ours = found()
    for module in (simulation_kernels, step_function):
        monkeypatch.setattr(module, "build", lambda recipe, device: cuda_kernel(recipe))
    before, theirs = launched(driver), found()
    assert launched(driver) - before == 2
    for key, x in ours.items():
        assert_same(key, theirs[key].detach(), x.detach())


@pytest.mark.parametrize(("mode", "most"), [("NextStep", 5), ("SameStep", 6), ("Disabled", 3)])
def test_a_step_is_one_launch_and_few_operations(on_the_driver, mode, most):
    """At the number of worlds that people train with, of which each thing takes a launch, whatever their number."""
    env = TorchVectorEnv("InvertedPendulum", 4096, device="cpu", autoreset_mode=mode)
    env.reset(seed=0)
    env._watched = False  # on the CPU it looks whether a world has ended
    before, actions = launched(on_the_driver), torch.zeros(4096, 1)
    with Launches() as seen:
        for _ in range(3):
            env.step(actions)
    assert launched(on_the_driver) - before == 3
    assert len(seen.names) <= 3 * most, seen.names


def test_a_captured_rollout_launches_its_steps_and_what_the_policy_does(on_the_driver, monkeypatch):
    """Steps read actions where the policy leaves them, and write where the rollout is; a replay goes on from there."""
    record_graphs(monkeypatch)
    env, twin = (TorchVectorEnv("InvertedPendulum", 4096, device="cpu", autoreset_mode="SameStep") for _ in range(2))
    env.engine._ahead = None  # as on a GPU
    for each in (env, twin):
        each.reset(seed=0)
    counts = []
    for steps in (2, 10):
        rollout = env.capture(lambda obs: obs[:, :1].tanh(), steps)
        rollout._capture()
        counts.append(len(rollout._graph.names))
        before = launched(on_the_driver)
        data = rollout()
        assert launched(on_the_driver) - before == steps
        for t in range(steps):
            assert_same("obs", data["obs"][t], twin.obs)
            assert_same("action", data["action"][t], twin.obs[:, :1].tanh())
            _, reward, *_ = twin.step(twin.obs[:, :1].tanh())
            assert_same("reward", data["reward"][t], reward)
    assert counts[1] - counts[0] == 8, "the policy's tanh"


# assembling


TARGETS = [(name, arch, "float32") for name in TASKS for arch in ("sm_80", "sm_90", "sm_100")]
TARGETS += [(name, "sm_90", "float64") for name in MAIN]
FAST_TARGETS = {(name, arch, dtype) for name, arch, dtype in TARGETS if dtype == "float32" and "Humanoid" not in name}
FAST_TARGETS -= {(name, arch, "float32") for name in ("Ant", "Pusher") for arch in ("sm_80", "sm_100")}  # large


@pytest.fixture
def ptxas() -> None:
    if cuda_code.tool("ptxas") is None:
        pytest.skip("the package nvidia-cuda-nvcc, which has ptxas, is not installed")


@pytest.mark.parametrize(("name", "arch", "dtype"), slow_but(TARGETS, FAST_TARGETS))
def test_it_assembles(ptxas, name, arch, dtype):
    """For each chip, and for the one whose figures are kept, into no more than was kept."""
    code, cubin = cuda_code.assemble(cuda_code.ptx(name, "step", dtype), arch)
    assert cubin.startswith(b"\x7fELF") and 0 < code.registers <= 255
    if (arch, dtype) == (cuda_code.ARCH, "float32"):
        kept = next(
            k for k in json.loads(cuda_code.DATA.read_text())["kernels"] if (k["task"], k["what"]) == (name, "step")
        )
        for what in ("registers", "stack", "spill_stores", "spill_loads", "code_bytes"):
            most = 1.05 * kept[what] + 64
            assert getattr(code, what) <= most, f"{what}: python -m benchmarks.cuda_code, if this is worth it"


@pytest.fixture
def nvdisasm(ptxas) -> None:
    if cuda_code.tool("nvdisasm") is None:
        pytest.skip("the package nvidia-cuda-nvdisasm is not installed")


def test_an_array_is_no_spill(nvdisasm):
    """What lies on a thread's stack by the program's own will, and is read at an index."""

    def body(b: dict[str, list]) -> dict[str, list]:
        values = Array(b["x"])
        return {"y": repeat(20, lambda k, c: [c[0] * values[Table((3, 1, 2, 0) * 5)[k]]], [1.0])}

    program = record("indexed", [Buffer("x", 8), Buffer("y", 1)], body, "float32")
    text = cuda.assembly(program)
    (share,) = cuda_code.shares(text, [1])
    assert cuda_code.depot_bytes(text) >= 8 * 4
    assert share.local_bytes > 0 and share.spilled_bytes == 0


@pytest.mark.slow
def test_what_ptxas_spills_lies_above_the_memories(nvdisasm):
    """Half of Humanoid's accesses to its stack; the others are those of loops to their arrays."""
    text = cuda_code.ptx("Humanoid", "step", "float32")
    code, _ = cuda_code.assemble(text)
    (share,) = cuda_code.shares(text, [1])
    assert 0.3 * share.local_bytes < share.spilled_bytes < 0.7 * share.local_bytes
    spills = code.spill_stores + code.spill_loads
    assert 0.9 * spills < share.spilled_bytes <= spills


def test_what_does_not_assemble(ptxas):
    with pytest.raises(RuntimeError, match="ptxas"):
        cuda_code.assemble(cuda_code.ptx("Hopper", "reset", "float32").replace("fma.rn.f32", "fma.f33"))

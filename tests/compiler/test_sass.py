"""NVIDIA's machine code of our kernels, run without a GPU: as ptxas makes it for sm_90, on an emulator of a warp.

It must give the bits of the CPU's kernels of the same programs, as PTX must on its interpreter (test_cuda.py): so
nothing is lost on the way from PTX to the chip, where code is scheduled anew, registers are given out, values spilled
and threads parted.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from typing import Any

import graph_eval
import mujoco
import numpy as np
import pytest
import test_cuda
import test_ptx
import test_tiles
import torch
from kernels import DTYPES, record_list
from sass.decode import SIZE, SassError
from sass.machine import Machine, aligned, missing
from test_cuda import MAIN, WORLDS, assert_same, in_play, slow_but

from benchmarks import cuda_code, cuda_limits, robot_models
from benchmarks.cuda_limits import Chip
from benchmarks.robot_models import ROBOTS, Missing
from torch_mjenvs.compiler import build as building
from torch_mjenvs.compiler import cuda, launch
from torch_mjenvs.compiler.build import Recipe
from torch_mjenvs.compiler.expr import node
from torch_mjenvs.envs import engine
from torch_mjenvs.envs.tasks.registry import TASKS
from torch_mjenvs.physics import simulation_kernels, world_params
from torch_mjenvs.physics.simulation import Simulation

if torch.get_default_device().type != "cpu":
    pytest.skip("on a GPU the chip itself runs this code", allow_module_level=True)
if (lacks := missing()) is not None:
    pytest.skip(lacks, allow_module_level=True)
pytestmark = pytest.mark.usefixtures("as_for_a_gpu")


# the emulator

SOME_FORMS = {"while, to its limit", "tables", "each, in a loop", "compute", "random 0", "random 1"}


@pytest.fixture
def by_machine_code(monkeypatch) -> None:
    """What the tests of PTX ask of its interpreter, they ask of machine code."""
    monkeypatch.setattr(test_cuda, "Machine", Machine)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_operation(by_machine_code, dtype):
    test_cuda.test_every_operation(dtype)


@pytest.mark.parametrize(("dtype",), slow_but([(dtype,) for dtype in DTYPES], {("float32",)}))
def test_choices_of_extreme_numbers(by_machine_code, monkeypatch, dtype):
    choices = test_cuda.choices
    monkeypatch.setattr(test_cuda, "choices", lambda x: [y for k, y in enumerate(choices(x)) if k not in FOLDED])
    test_cuda.test_choices_of_extreme_numbers(dtype)


def in_blocks(body: str, shared: int = 256) -> np.ndarray:
    """What the 64 threads of a block wrote into 64 numbers: see test_ptx."""
    x = torch.zeros(64, dtype=torch.int32)
    ptx = test_ptx.text(2, test_ptx.PLACES + test_ptx.NEXT + body).replace(".maxntid 32", ".maxntid 64")
    machine = Machine(ptx.replace(test_ptx.HEAD, test_ptx.HEAD.replace(".visible", f"{test_ptx.OWN}.visible")))
    machine.launch_blocks([x], 0, 1, 64, shared)
    return x.numpy()


def test_threads_wait_for_each_other_and_shuffle():
    found = in_blocks(f"{test_ptx.MINE}bar.sync 0;\n{test_ptx.ITS}{test_ptx.OUT}")
    np.testing.assert_array_equal(found, (np.arange(64) + 1) % 64)
    body = "shfl.sync.bfly.b32 %r2, %r89, 4, 31, -1;\n"
    np.testing.assert_array_equal(in_blocks(body + test_ptx.OUT), np.arange(64) ^ 4)
    found = in_blocks(f"{test_ptx.ITS}{test_ptx.OUT}")
    np.testing.assert_array_equal(found, np.full(64, -1))  # what nobody wrote


@pytest.mark.parametrize("there", [1, 32, 40, 64])
def test_a_bit_of_any_thread_is_told_to_all_that_are_there(monkeypatch, there):
    monkeypatch.setattr(test_ptx, "block", in_blocks)
    test_ptx.test_a_bit_of_any_thread_is_told_to_all_that_are_there(there)


def test_shared_memory_has_an_end():
    with pytest.raises(SassError, match="byte 252 of shared memory"):
        in_blocks(f"{test_ptx.MINE}bar.sync 0;\n{test_ptx.ITS}{test_ptx.OUT}", 252)


# Of `choices`, select(0 <= |x|, 0, |x|) and select(0 <= |x|, |x|, 0): ptxas takes the comparison for true, though it is
# not where x is NaN. No kernel of ours asks whether an absolute value is at least 0.
FOLDED = (82, 83)


def test_what_ptxas_does_to_an_absolute_value_that_is_nan():
    """If this fails, ptxas has been mended: FOLDED can go."""

    def body(x: list) -> list:
        size = node("abs", x[0])
        return [node("select", node("le", 0.0, size), 0.0, size)]

    machine = Machine(cuda.assembly(record_list(body, 1, 1, "float32")))
    x, y = torch.full((1, 32), float("nan")), torch.ones(1, 32)
    machine.launch([x, y], 32)
    assert (y == 0).all()


@pytest.mark.parametrize(("case",), slow_but([(case,) for case in test_cuda.CONTROL], {(x,) for x in SOME_FORMS}))
def test_control_forms(by_machine_code, case, monkeypatch):
    test_cuda.test_control_forms(case, monkeypatch)


@pytest.mark.parametrize("case", ["while, done", "truth values", "random 3", "random 11"])
def test_loops_whose_iterations_a_block_begins_together(by_machine_code, case, monkeypatch):
    test_cuda.test_loops_whose_iterations_a_block_begins_together(case, 128, monkeypatch)


@pytest.mark.parametrize("name", ["13", "tree"])
def test_matrices_in_tiles(monkeypatch, name):
    """Their loops find what is on the stack by a register that the threads of a warp share."""
    monkeypatch.setattr(graph_eval, "Machine", Machine)
    monkeypatch.setattr(test_tiles, "run_compiled", graph_eval.run_ptx)
    test_tiles.test_a_matrix_in_tiles_is_added_to_multiplied_factored_and_solved_with(name)


def at_an_offset() -> Machine:
    """A kernel that stores into 64 bytes of its stack, and loads from there, at an offset that its buffer has."""
    body = (
        "mov.b64 %rd2, depot;\nld.global.b32 %r1, [%rd90];\ncvt.u64.u32 %rd3, %r1;\nadd.s64 %rd4, %rd2, %rd3;\n"
        "st.local.b32 [%rd4], %r1;\nld.local.b32 %r2, [%rd4];\nst.global.b32 [%rd90+4], %r2;\n"
    )
    text = test_ptx.text(2, body).replace(test_ptx.REGISTERS, f".local .align 8 .b8 depot[64];\n{test_ptx.REGISTERS}")
    return Machine(text)


OFFSETS = [(0, False), (60, False), (2, True), (64, True), (-4, True), (4096, True)]


@pytest.mark.parametrize(("offset", "refused"), OFFSETS)
def test_accesses_to_a_stack_that_a_device_would_refuse(offset, refused):
    x = torch.tensor([[offset, 0]], dtype=torch.int32)
    machine = at_an_offset()
    if not refused:
        machine.launch([x], 1)
        assert x[0, 1] == offset
        return
    with pytest.raises(SassError, match=r"'STL \[.*misaligned" if offset % 4 else r"'STL \[.*of a stack of 64"):
        machine.launch([x], 1)


def test_accesses_to_global_memory_that_a_device_would_refuse():
    machine = Machine(cuda.assembly(test_cuda.map_program("float32")))
    x = torch.rand(1, 32)
    with pytest.raises(SassError, match=r"'LDG.*block 1: a load from no buffer"):
        machine.launch([x], 64)
    with pytest.raises(SassError, match=r"'LDG.*misaligned"):
        machine.launch([torch.zeros(129, dtype=torch.uint8)[1:]], 32)
    before = x.clone()
    machine.launch([x], 32)
    assert torch.allclose(x, 3.7 * before * (1.0 - before), rtol=1e-6)


@pytest.mark.parametrize(("a", "b"), [(3, 2), (1 << 27, 5), (1 << 27, 0), (0, 7), (-1, -1), (1 << 58, 1)])
def test_a_difference_of_64_bits_in_two_halves(a, b):
    """What b - 32 a carries from its lower half; where that of 32 a is 0, too."""
    body = (
        "ld.global.b64 %rd2, [%rd90];\nld.global.b64 %rd3, [%rd90+8];\nshl.b64 %rd4, %rd2, 5;\n"
        "sub.s64 %rd5, %rd3, %rd4;\nst.global.b64 [%rd90+16], %rd5;\n"
    )
    machine, x = Machine(test_ptx.text(6, body)), torch.tensor([[a, b, 0]])
    assert any(re.match(r"LEA R\d+, P\d, -R", line) for line in machine.code.text)
    machine.launch([x], 1)
    assert x[0, 2] == b - (torch.tensor(a) << 5)


def test_instructions_that_are_not_known_are_refused():
    with pytest.raises(SassError, match=r"does not know 'POPC"):
        Machine(test_ptx.text(2, "ld.global.b32 %r1, [%rd90];\npopc.b32 %r2, %r1;\nst.global.b32 [%rd90], %r2;\n"))


# kernels

Recipes = dict[int, Recipe]


@pytest.fixture
def recipes(monkeypatch) -> Iterator[Recipes]:
    """How each kernel that the test builds is made, by the kernel's handle."""
    found: Recipes = {}
    held = []  # so that no handle's kernel goes, and is made once more under another

    def kept(recipe: Recipe, device: torch.device) -> launch.Kernel:
        kernel = building.build(recipe, device)
        held.append(kernel)
        found[kernel.handle] = recipe
        return kernel

    for module in (simulation_kernels, world_params):
        monkeypatch.setattr(module, "build", kept)
    for function in ("begin", "prepare"):
        monkeypatch.setattr(engine, function, lambda *given: lambda: kept(*given))
    yield found


def compare(machine: Machine, run: launch.Launch) -> None:
    """The CPU's kernel and machine code from the same buffers, to the same bits in all of them, unused worlds' too."""
    ours, buffers = [x.clone() for x in run.tensors], run.kernel.buffers
    run()
    machine.launch(ours, ours[0].shape[0 if buffers[0].rows else 1])
    for buffer, got, want in zip(buffers, ours, run.tensors, strict=True):
        assert_same(buffer.name, got, want)


def machine_of(recipes: Recipes, run: launch.Launch) -> Machine:
    return Machine(cuda.assembly(recipes[run.kernel.handle].record()))


TASK_KERNELS = [(name, what, dtype, "NEXT_STEP") for name in TASKS for what in ("step", "reset") for dtype in DTYPES]
TASK_KERNELS += [(name, "step", "float32", "SAME_STEP") for name in MAIN]
FAST = {
    ("HalfCheetah", "step", "float32", "NEXT_STEP"), ("Hopper", "step", "float64", "NEXT_STEP"),
    ("Hopper", "step", "float32", "SAME_STEP"), ("Reacher", "step", "float32", "NEXT_STEP"),
    ("HalfCheetah", "reset", "float32", "NEXT_STEP"), ("Swimmer", "reset", "float64", "NEXT_STEP"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "what", "dtype", "mode"), slow_but(TASK_KERNELS, FAST))
def test_tasks_in_machine_code_are_as_on_the_cpu(recipes, name, what, dtype, mode):
    """Worlds in contact, thrown about, with bad states and actions, at their time limit."""
    made = in_play(name, WORLDS // 2, dtype, engine.AutoresetMode[mode])
    generator = torch.Generator().manual_seed(2)
    run = made._step if what == "step" else made._reset
    machine = machine_of(recipes, run)
    if what == "reset":
        made.reset_mask.copy_(torch.arange(made.num_envs) % 3 == 0)
        compare(machine, run)
        return
    made.elapsed_steps[5::10] = made.task.max_episode_steps - 1
    made.action[6::20, 0] = float("nan")
    made.qpos[7::20, 0] = float("inf")
    compare(machine, run)
    assert made.truncated.any() and made.bad_state.any()
    test_cuda.act(made, generator)
    compare(machine, run)
    # 0.85 or more of what was issued had to be; a twentieth, if threads that part never met again
    assert 0.8 * machine.issued < machine.fewest <= machine.issued, "threads part, and meet again"


def test_the_model_of_a_multiprocessor():
    """It runs the same warps to the same bits. What it has them wait for takes time, and more room or speed helps."""
    made = in_play("HalfCheetah", 128, "float32")
    machine = Machine(cuda_code.ptx("HalfCheetah", "step", "float32"))
    chip: Chip = Chip()
    kept: list[list[torch.Tensor]] = []

    def spent(resident: int = 8, **changed: float) -> dict[str, int]:
        kept.append([aligned(x) for x in made.buffers.values()])
        numbers = dataclasses.astuple(dataclasses.replace(chip, **changed))
        return machine.time(kept[-1], launch.padded(128), numbers, 0, 4, resident)

    once = spent()
    assert spent() == once, "wherever the CPU has its tensors"
    ideal = spent(perfect_fetch=1, perfect_data=1)
    assert once["issued"] == ideal["issued"] and once["active"] == ideal["active"]
    assert once["busiest"] < ideal["cycles"] < once["cycles"]
    slots = sum(count for name, count in once.items() if name.endswith("_slots"))
    assert slots == pytest.approx(4 * once["cycles"], rel=0.01)
    assert ideal["fetched_bytes"] == ideal["l2_read"] == ideal["written"] == 0
    lines = len(machine.code.instructions) * SIZE / chip.fetch_line
    assert 0.5 * lines <= once["fetched_bytes"] / chip.fetch_line <= 1.1 * lines, "all of it fits into 128 KB"
    few = {"perfect_fetch": 1, "l1_bytes": 8 * 1024}
    assert spent(**few)["cycles"] > spent(perfect_fetch=1)["cycles"]
    assert spent(**few, l2_rate=2)["cycles"] > 1.2 * spent(**few)["cycles"]
    assert spent(gpc_bytes=16 * 1024, icache_bytes=2048)["fetched_bytes"] > 3 * once["fetched_bytes"]
    assert spent(resident=1)["cycles"] > 2 * once["cycles"], "one warp after the other"
    made.step()
    for buffers in kept:
        for name, got in zip(made.buffers, buffers, strict=True):
            assert_same(name, got, made.buffers[name])


BEGIN = "ld.global.b32 %r10, [%rd90];\nmov.b32 %r2, %r89;\nsetp.ge.u32 %p1, %r89, 32;\n@%p1 bra $second;\n"
WORK = "$a{}:\nmad.lo.u32 %r2, %r2, %r2, 1;\nsub.u32 %r10, %r10, 1;\nsetp.ne.u32 %p2, %r10, 0;\n@%p2 bra $a{};\n"


def timed(wait: str, warps: int = 2) -> tuple[dict[str, int], list[int]]:
    """Two warps of a block do the same work each, the first before it waits, the second after; and what they make."""
    body = f"{BEGIN}{WORK.format(1, 1)}{wait}bra.uni $out;\n$second:\n{wait}{WORK.format(2, 2)}$out:\n"
    ptx = test_ptx.text(2, test_ptx.PLACES + body + test_ptx.OUT).replace(".maxntid 32", ".maxntid 64")
    x = torch.full((64,), 3000, dtype=torch.int32)
    machine = Machine(ptx.replace(test_ptx.HEAD, test_ptx.HEAD.replace(".visible", f"{test_ptx.OWN}.visible")))
    spent = machine.time([x], 64, dataclasses.astuple(Chip()), 0, warps, 8, 64)
    return spent, x.tolist()


def test_warps_of_a_block_wait_for_each_other_in_time():
    """One after the other, if the second begins when the first has come to the barrier; else at the same time."""
    together, made = timed("")
    in_turn, same = timed("bar.sync 0;\n")
    assert same == made
    assert together["meeting_waits"] == together["meeting_slots"] == 0
    assert in_turn["cycles"] > 1.8 * together["cycles"]
    assert 0.9 * together["cycles"] < in_turn["meeting_waits"] < 1.2 * together["cycles"]
    assert in_turn["meeting_slots"] == pytest.approx(in_turn["meeting_waits"], rel=0.1), "of a scheduler each"
    gone, _ = timed("@%p1 ret;\nbar.sync 0;\n")
    assert gone["cycles"] < 1.2 * together["cycles"], "nobody waits for a warp that has ended"
    with pytest.raises(SassError, match="a part of a block"):
        timed("", warps=1)


LIMITS = json.loads(cuda_limits.DATA.read_text())


def test_the_page_of_limits_is_of_its_data():
    assert cuda_limits.markdown(LIMITS) in cuda_limits.PAGE.read_text()
    assert [run["task"] for run in LIMITS["steps"]] == list(TASKS)
    assert LIMITS["chip"] == dataclasses.asdict(Chip()), "python -m benchmarks.cuda_limits"


@pytest.mark.parametrize(("name",), slow_but([(name,) for name in TASKS], {("InvertedPendulum",)}))
def test_the_pages_limits_are_those_of_the_code(name):
    """What the page says of a task is what its code takes now."""
    kept, found = next(run for run in LIMITS["steps"] if run["task"] == name), cuda_limits.step(name)
    for what in ("ideal", "perfect_data", "perfect_fetch", "cycles"):
        assert found[what] == pytest.approx(kept[what], rel=0.05), "python -m benchmarks.cuda_limits"


def simulated(model: mujoco.MjModel | str, dtype: str, **asked: Any) -> Simulation:
    """Worlds that have fallen for a while, from poses and velocities of their own."""
    sim = Simulation(model, 40, "cpu", getattr(torch, dtype), **asked)
    generator = torch.Generator().manual_seed(1)
    sim.qvel.add_(torch.randn(sim.qvel.shape, generator=generator, dtype=sim.qvel.dtype))
    sim.ctrl.copy_(2 * torch.rand(sim.ctrl.shape, generator=generator, dtype=sim.ctrl.dtype) - 1)
    sim.step(100)
    return sim


def finger() -> mujoco.MjModel:
    return robot_models.compiled(robot_models.spec_of("dm_control", "finger.xml"))


CHOSEN = {name: ROBOTS[name].make for name in ("humanoid", "suite-quadruped", "go1", "quadruped")}
CHOSEN["finger"] = finger
ROBOT_KERNELS = [(name, dtype) for name in CHOSEN for dtype in DTYPES]


def robot(name: str) -> mujoco.MjModel:
    try:
        return CHOSEN[name]()
    except Missing as error:
        pytest.skip(str(error))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "dtype"), ROBOT_KERNELS)
def test_robots_in_machine_code_are_as_on_the_cpu(recipes, name, dtype):
    sim = simulated(robot(name), dtype)
    machine = machine_of(recipes, sim._step)
    for _ in range(2):
        compare(machine, sim._step)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
def test_fetch_in_machine_code_is_as_on_the_cpu(recipes, dtype):
    """A task of gymnasium-robotics: an arm welded to a mocap body that has moved off, fingers, a cube on a table."""
    fetch, rng = ROBOTS["fetch"], np.random.default_rng(1)
    try:
        model = fetch.make()
    except Missing as error:
        pytest.skip(str(error))
    data = mujoco.MjData(model)
    sim = Simulation(model, 40, "cpu", getattr(torch, dtype))
    for world in range(sim.num_worlds):
        fetch.begin(model, data, rng)
        for name in ("qpos", "qvel", "mocap_pos", "mocap_quat"):
            getattr(sim, name)[world].copy_(torch.from_numpy(getattr(data, name)).reshape(-1))
    sim.mocap_pos.add_(torch.from_numpy(rng.uniform(-0.05, 0.05, sim.mocap_pos.shape)).to(sim.mocap_pos.dtype))
    sim.ctrl.copy_(torch.from_numpy(rng.uniform(-1, 1, sim.ctrl.shape)))
    sim.step(20)
    machine = machine_of(recipes, sim._step)
    for _ in range(2):
        compare(machine, sim._step)


VARIED = ("body_mass", "body_inertia", "dof_damping")


@pytest.mark.parametrize(("name", "dtype"), slow_but([("hopper", "float32"), *ROBOT_KERNELS], {("hopper", "float32")}))
def test_what_set_const_derives(recipes, name, dtype):
    """Each world's own masses and inertias, to the constants that follow from them."""
    model = TASKS["Hopper"]().load() if name == "hopper" else robot(name)
    sim = Simulation(model, 40, "cpu", getattr(torch, dtype), vary=VARIED)
    generator = torch.Generator().manual_seed(1)
    for varied in ("body_mass", "body_inertia"):
        x = sim.params[varied]
        x.mul_(0.5 + torch.rand(x.shape, generator=generator, dtype=x.dtype))
    run = sim._params._set_const
    compare(machine_of(recipes, run), run)
    assert run.tensors[1].isfinite().all()

"""From programs to machine code: buffers, launches, targets, the cache on disk, threads."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import oracle
import pytest
import torch
from kernels import DTYPES, LANES, at_lanes, bits, build, garbage, machine, object_code, record_list, run, tensors

from torch_mjenvs.compiler import cpu, launch
from torch_mjenvs.compiler.control import repeat, when_any
from torch_mjenvs.compiler.llvm import frames, parts, render
from torch_mjenvs.compiler.lower import lower
from torch_mjenvs.compiler.ops import OPS
from torch_mjenvs.compiler.program import Buffer, Program, record
from torch_mjenvs.compiler.scalar import select, sin, sqrt
from torch_mjenvs.compiler.sink_stores import sink_stores
from torch_mjenvs.physics import load
from torch_mjenvs.physics.kernel_request import KernelRequest
from torch_mjenvs.physics.simulation_kernels import program as physics

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("TORCH_MJENVS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def axpy(dtype: str = "float32", name: str = "axpy") -> Program:
    return record_list(lambda x: [2.0 * x[0] + x[1], sqrt(x[0])], 2, 2, dtype, name)


def uniform(n: int, worlds: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-2, 2, (n, worlds))


# buffers


LAYOUT = [Buffer("f", 3), Buffer("fr", 5, rows=True), Buffer("i", 2, "i"), Buffer("ir", 3, "i", rows=True)]
LAYOUT += [Buffer("b", 2, "b"), Buffer("br", 3, "b", rows=True)]


def shuffled(b: dict[str, list]) -> dict[str, list]:
    """Every buffer is read and written, each in its own way; one of each pair feeds the other."""
    return {
        "f": [b["fr"][4], b["f"][0], b["f"][1] + 0.5],
        "fr": [*b["f"], b["fr"][0], 7.0],
        "i": [b["ir"][2] + 1, b["i"][0]],
        "ir": [*b["i"], select(b["b"][0], b["ir"][0], -3)],
        "b": [b["br"][2], b["f"][0] < b["fr"][0]],
        "br": [True, *b["b"]],
    }


@pytest.mark.parametrize("dtype", DTYPES)
def test_buffers_of_every_type_and_layout(dtype):
    rng = np.random.default_rng(0)
    n = 48
    x = {k: rng.normal(size=(s, n)).astype(dtype) for k, s in (("f", 3), ("fr", 5))}
    x |= {k: rng.integers(-(2**31), 2**31 - 1, (s, n)).astype(np.int32) for k, s in (("i", 2), ("ir", 3))}
    x |= {k: rng.random((s, n)) < 0.5 for k, s in (("b", 2), ("br", 3))}
    program = record("layout", LAYOUT, shuffled, dtype)
    true = np.ones(n, bool)
    want = {
        "f": [x["fr"][4], x["f"][0], x["f"][1] + np.dtype(dtype).type(0.5)],
        "fr": [*x["f"], x["fr"][0], np.full(n, 7.0)],
        "i": [x["ir"][2] + np.int32(1), x["i"][0]],
        "ir": [*x["i"], np.where(x["b"][0], x["ir"][0], -3)],
        "b": [x["br"][2], x["f"][0] < x["fr"][0]],
        "br": [true, *x["b"]],
    }
    for lanes in LANES:
        got = run(program, x, at_lanes(dtype, lanes))
        for name, columns in want.items():
            np.testing.assert_array_equal(got[name], np.stack(columns), err_msg=name)
        for name in ("b", "br"):
            assert set(np.unique(got[name].view(np.uint8))) <= {0, 1}


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_of_all_widths(dtype):
    """They are transposed in windows of columns, of which the last may lie over the one before."""
    rng, n = np.random.default_rng(0), 32
    x: dict[str, np.ndarray] = {}
    for size in (1, 2, 3, 4, 6, 7, 8, 9, 15, 16, 17, 33):
        x[f"f{size}"] = rng.normal(size=(size, n)).astype(dtype)
        x[f"i{size}"] = rng.integers(-(2**31), 2**31 - 1, (size, n)).astype(np.int32)
        x[f"b{size}"] = rng.random((size, n)) < 0.5
    reads = [Buffer(name, len(columns), name[0], rows=True) for name, columns in x.items()]
    writes = [replace(b, name=f"{b.name}_back") for b in reads]
    program = record("rows", [*reads, *writes], lambda b: {f"{name}_back": b[name][::-1] for name in x}, dtype)
    for lanes in LANES:
        got = run(program, x, at_lanes(dtype, lanes))
        for name, columns in x.items():
            np.testing.assert_array_equal(got[f"{name}_back"], columns[::-1], err_msg=name)


def test_what_is_not_stored_is_not_touched():
    program = record(
        "some", [Buffer("x", 1), Buffer("y", 2), Buffer("z", 1)], lambda b: {"z": [b["x"][0] + 1.0]}, "float32"
    )
    held = tensors(program, {"x": uniform(1, 30)})
    before = {k: bits(v.cpu().numpy()).copy() for k, v in held.items()}
    build(program).bind(held)()
    for name in ("x", "y"):
        np.testing.assert_array_equal(bits(held[name].cpu().numpy()), before[name])
    assert torch.equal(held["z"][:, :30], held["x"][:, :30] + 1.0)


def test_one_value_in_several_places():
    program = record_list(lambda x: [x[0] * x[1], x[0] * x[1], x[0], x[0], 1.0], 2, 5, "float64")
    x = uniform(2, 16)
    np.testing.assert_array_equal(run(program, {"x": x})["y"], [x[0] * x[1]] * 2 + [x[0]] * 2 + [np.ones(16)])


@pytest.mark.parametrize("dtype", DTYPES)
def test_constants_keep_their_bits(dtype):
    values = [0.1, -0.0, np.nan, np.inf, -np.inf, 1e-45, 3.4028235e38, -3.4028235e38, 1e300, -1e300]
    got = run(record_list(lambda x: list(values), 1, len(values), dtype), {"x": uniform(1, 16)})["y"][:, 0]
    with np.errstate(over="ignore"):
        want = np.array(values).astype(dtype)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(want))


def test_bind_says_what_is_wrong():
    kernel = build(axpy())
    good = {"x": torch.zeros(2, 32), "y": torch.zeros(2, 32)}
    kernel.bind(good)
    for x in (
        torch.zeros(3, 32), torch.zeros(2, 30), torch.zeros(2, 32, dtype=torch.float64), torch.zeros(32, 2).T,
        torch.zeros(2, 32, device="meta"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="'x'"):
            kernel.bind(good | {"x": x})
    with pytest.raises(ValueError, match="different numbers of worlds"):
        kernel.bind(good | {"x": torch.zeros(2, 48)})
    with pytest.raises(KeyError, match="y"):
        kernel.bind({"x": good["x"]})


# launches


def test_any_number_of_worlds_and_threads():
    """Every tile is done exactly once, by any thread."""
    program = record("count", [Buffer("x", 1), Buffer("y", 1)], lambda b: {"y": [b["y"][0] + b["x"][0]]}, "float32")
    kernel = build(program)
    for n_threads in (1, 2, 3, 5):
        torch.set_num_threads(n_threads)
        for worlds in (16, 32, 48, 16 * 33, 16 * 1024 + 16):
            x, y = torch.randn(1, worlds), torch.randn(1, worlds)
            want = y + x
            kernel.bind({"x": x, "y": y})()
            assert torch.equal(y, want), (n_threads, worlds)


@pytest.mark.parametrize("n_threads", [1, 2])
def test_one_launch_of_several_repetitions_is_that_many_launches(n_threads):
    """One launch of several repetitions does the same as that many launches."""
    torch.set_num_threads(n_threads)
    program = record("map", [Buffer("x", 1)], lambda b: {"x": [3.7 * b["x"][0] * (1.0 - b["x"][0])]}, "float64")
    kernel = build(program)
    a = torch.rand(1, 160, dtype=torch.float64)
    b = a.clone()
    kernel.bind({"x": a})(times=7)
    again = kernel.bind({"x": b})
    for _ in range(7):
        again()
    assert torch.equal(a, b)


def test_no_worlds():
    x = torch.zeros(2, 0)
    build(axpy()).bind({"x": x, "y": torch.zeros(2, 0)})()


def test_launches_from_several_python_threads():
    kernel = build(axpy("float64"))
    held = [(torch.rand(2, 4096, dtype=torch.float64), garbage(torch.float64, (2, 4096))) for _ in range(6)]
    launches = [kernel.bind({"x": x, "y": y}) for x, y in held]
    with ThreadPoolExecutor(3) as pool:
        for _ in range(5):
            list(pool.map(lambda launch: launch(), launches))
    for x, y in held:
        np.testing.assert_array_equal(
            y[1].cpu().numpy(), np.sqrt(x[0].cpu().numpy())
        )  # torch's own root is not always rounded well


FORK = """
import os, sys, torch
sys.path.insert(0, "tests")
from kernels import build, record_list
torch.set_num_threads(2)
x, y = torch.rand(1, 1600), torch.zeros(1, 1600)
launch = build(record_list(lambda x: [x[0] * 0.5], 1, 1, "float32")).bind({"x": x, "y": y})
launch()
expected = y.numpy().copy()
y.numpy()[:] = float("nan")
child = os.fork()
launch()
ok = (y.numpy() == expected).all()
if child == 0:
    os._exit(0 if ok else 1)
sys.exit(0 if ok and os.waitpid(child, 0)[1] == 0 else 1)
"""


def test_a_forked_child_has_its_own_threads():
    subprocess.run([sys.executable, "-c", FORK], cwd=ROOT, check=True, timeout=60)


# multiply-add

FAST = re.compile(r"\b(fast|contract|reassoc|nnan|ninf|nsz|arcp|afn)\b")


def cheetah(dtype: str = "float32") -> Program:
    return physics(KernelRequest(load(oracle.asset("half_cheetah"))), dtype)


def test_no_fast_math():
    ir = render(cheetah(), 16)
    assert not FAST.search(ir)
    assert "llvm.fma.v16f32" in ir and "fmuladd" not in ir
    assert FAST.search("fadd fast <16 x float> %a, %b")


@pytest.mark.parametrize("dtype", DTYPES)
def test_which_product_is_fused_is_seen_in_the_result(dtype):
    """One that only feeds sums; not one that is needed by itself, too, or that crosses into a block."""

    def body(x):
        a, b, c = x[:3]
        fused = a * b + c, c - a * b, a * b - c
        other = b * c
        inside = when_any(a < 9.0, lambda s: [c * a + s[0]], [b])[0]
        crossing = (a * a, when_any(a < 9.0, lambda s: [a * a + s[0]], [b])[0])
        return [*fused, other, other + a, inside, crossing[1]]

    x = uniform(3, 64).astype(dtype)
    got = run(record_list(body, 3, 7, dtype), {"x": x})["y"]
    a, b, c = x
    wide = np.longdouble if dtype == "float64" else np.float64
    fma = lambda a, b, c: (a.astype(wide) * b + c).astype(dtype)  # noqa: E731
    rounded = [a * b + c, c - a * b, a * b - c]
    for got_row, want, plain in zip(got, (fma(a, b, c), fma(-a, b, c), fma(a, b, -c)), rounded, strict=False):
        # 80 bits hold a product of doubles but for its last: there, all but a few in a thousand agree.
        assert np.mean(got_row == want) > (0.98 if dtype == "float64" else 0.9999)
        assert not np.array_equal(got_row, plain)
    np.testing.assert_array_equal(got[4], b * c + a)
    assert np.mean(got[5] == fma(c, a, b)) > 0.98
    np.testing.assert_array_equal(got[6], a * a + b)


# targets: the same program gives the same bits


def busy(x: list) -> list:
    """Something of everything: loops, a table, angles, quotients."""
    y = repeat(3, lambda i, c: [sin(c[0] * c[1]) / (1.5 + c[1] * c[1]), sqrt(c[0] * c[0] + 0.1)], x[:2])
    return when_any(y[0] > 0.0, lambda c: [c[0] * c[1] + x[0], c[1]], y)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_number_of_lanes_is_of_no_account(dtype):
    program = record_list(busy, 2, 2, dtype)
    x = uniform(2, 100)
    want = bits(run(program, {"x": x}, at_lanes(dtype, 1))["y"])
    for lanes in LANES[1:]:
        np.testing.assert_array_equal(bits(run(program, {"x": x}, at_lanes(dtype, lanes))["y"]), want)


def stepped(program: Program, target: cpu.Target | None = None) -> dict[str, np.ndarray]:
    """A step of HalfCheetah from states along rollouts; in every fifth world they are bad."""
    states = oracle.states("half_cheetah", 24)
    qpos, qvel, ctrl = (np.stack(x, 1) for x in zip(*states, strict=True))
    qpos[:, ::5] = np.nan
    return run(program, {"qpos": qpos, "qvel": qvel, "ctrl": ctrl, "qacc_warmstart": 0 * qvel}, target)


@pytest.mark.parametrize("dtype", DTYPES)
def test_physics_at_any_number_of_lanes(dtype):
    program = cheetah(dtype)
    want = stepped(program)
    good = np.arange(24) % 5 != 0
    assert all(np.isfinite(want[k][:, good]).all() for k in ("qpos", "qvel"))
    for lanes in (1, 4, 8, 16):
        got = stepped(program, at_lanes(dtype, lanes))
        for name in ("qpos", "qvel", "qacc_warmstart"):
            np.testing.assert_array_equal(bits(got[name][:, good]), bits(want[name][:, good]), err_msg=name)


@pytest.mark.parametrize("dtype", DTYPES)
def test_blocks_of_a_large_kernel_are_cut_and_it_gives_the_same_bits(dtype, monkeypatch):
    program, lanes = cheetah(dtype), cpu.lanes_of(dtype, cpu.host())
    want, whole = stepped(program), render(program, lanes)
    monkeypatch.setattr(parts, "LARGE", len(program.live) - 1)
    monkeypatch.setattr(parts, "LONGEST", 100)
    cut = render(program, lanes)
    assert "%cut" not in whole and cut.count("label %cut") > 10 and parts.UNTUNED in cut
    got, good = stepped(program), np.arange(24) % 5 != 0
    for name in ("qpos", "qvel", "qacc_warmstart"):
        np.testing.assert_array_equal(bits(got[name][:, good]), bits(want[name][:, good]), err_msg=name)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.skipif(not llvm.get_process_triple().startswith("x86_64"), reason="makes x86 code")
def test_code_for_avx2_gives_the_same_bits(dtype):
    haswell = cpu.Target(cpu.host().triple, "haswell", "", 32)
    if not llvm.get_host_cpu_features().get("avx2"):
        pytest.skip("this machine has no AVX2")
    program = cheetah(dtype)
    text = assembly(program, haswell)
    assert "%ymm" in text and "%zmm" not in text and "vfmadd" in text
    got, want = stepped(program, haswell), stepped(program)
    good = np.arange(24) % 5 != 0
    for name in ("qpos", "qvel", "qacc_warmstart"):
        np.testing.assert_array_equal(bits(got[name][:, good]), bits(want[name][:, good]), err_msg=name)


@pytest.mark.skipif(not llvm.get_process_triple().startswith("x86_64"), reason="makes x86 code")
def test_code_for_the_oldest_x86_gives_the_same_bits():
    """Without an instruction for it, a fused multiply-add is a call."""
    oldest = cpu.Target(cpu.host().triple, "x86-64", "", 16)
    program, x = record_list(busy, 2, 2, "float32"), uniform(2, 64)
    np.testing.assert_array_equal(bits(run(program, {"x": x}, oldest)["y"]), bits(run(program, {"x": x})["y"]))


def assembly(program: Program, target: cpu.Target) -> str:
    module = llvm.parse_assembly(
        f'target triple = "{target.triple}"\n{render(program, cpu.lanes_of(program.dtype, target))}'
    )
    module.get_function("tile").linkage = llvm.Linkage.external
    return machine(target).emit_assembly(module)


@pytest.mark.skipif(not llvm.get_process_triple().startswith("x86_64"), reason="makes x86 code")
@pytest.mark.parametrize(("processor", "width"), [("skylake-avx512", 64), ("haswell", 32)])
def test_no_vector_is_spilled_across_two_lines_of_the_cache(processor, width):
    text = assembly(cheetah(), cpu.Target(cpu.host().triple, processor, "", width))
    assert f"andq\t$-{width}, %rsp" in text
    spills = re.findall(r"(vmov[au]ps)\t%[yz]mm\d+, -?\d+\(%rsp\)", text)
    assert len(spills) > 100 and set(spills) == {"vmovaps"}


@pytest.mark.parametrize("triple", ["aarch64-unknown-linux-gnu", "arm64-apple-macosx"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_code_for_neon(dtype, triple, folder):
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = cpu.Target(triple, "generic", "", 16)
    program = cheetah(dtype)
    text = assembly(program, target)
    assert ".4s" in text if dtype == "float32" else ".2d" in text
    assert "fmla" in text
    calls = set(re.findall(r"\bbl\s+(\w+)", text))
    assert not calls, f"calls to {calls}, which this package does not bring"
    assert len(object_code(program, target)) > 10_000


def test_x86_code_calls_nothing():
    if not cpu.host().triple.startswith("x86_64"):
        pytest.skip("makes x86 code")
    haswell = replace(cpu.host(), cpu="haswell", features="", vector_bytes=32)
    assert "callq" not in assembly(cheetah(), haswell)


def test_what_is_only_read_is_loaded_in_the_block_that_needs_it_but_in_no_loop():
    def body(b: dict[str, list]) -> dict[str, list]:
        (x,), p = b["x"], b["p"]
        y = when_any(x > 0.0, lambda c: [c[0] * p[0]], [x])
        y = repeat(3, lambda i, c: when_any(c[0] < 3.0, lambda d: [d[0] + p[1]], c), y)
        z = when_any(x > 0.0, lambda c: when_any(c[0] < 1.0, lambda d: [d[0] - p[2]], [c[0] + p[2] * p[3]]), y)
        return {"x": [z[0] + p[3]], "copy": [p[4]]}

    program = record("late", [Buffer("x", 1), Buffer("p", 5), Buffer("copy", 1)], body, "float64")
    order = lower(program).order
    where = {e.attr: region for region, nodes in order.items() for e in nodes if e.op == "load"}
    first, last = (e.attr.body for e in program.trace.top.nodes if e.op == "when")
    top = program.trace.top
    assert where == {(0, 0): top, (1, 0): first, (1, 1): top, (1, 2): last, (1, 3): top, (1, 4): top}
    ops = [e.op for e in order[top]]
    assert ops.index("load") < ops.index("when") < len(ops) - 1 - ops[::-1].index("load") < len(ops) - 1
    x, p = uniform(1, 40), uniform(5, 40, seed=1)
    want = np.where(x > 0, x * p[0], x)
    for _ in range(3):
        want = np.where(want < 3, want + p[1], want)
    inner = want + p[2] * p[3]
    want = np.where(x > 0, np.where(want < 1, inner - p[2], inner), want) + p[3]
    out = run(program, {"x": x, "p": p})
    np.testing.assert_allclose(out["x"], want, rtol=1e-14)
    np.testing.assert_array_equal(out["copy"][0], p[4])


def test_every_operation_of_the_table_can_be_written():
    assert set(frames.ROWS) == set(OPS)


# steady counts: what a change may not add unnoticed

SIZES = {"half_cheetah": (5700, 72_000), "walker2d_v5": (4600, 57_000), "hopper": (3900, 46_000)}


@pytest.mark.parametrize("name", SIZES)
def test_operations_and_bytes_of_a_step(name, folder):
    program = physics(KernelRequest(load(oracle.asset(name))), "float64")
    most_ops, most_bytes = SIZES[name]
    ops = sum(program.count_ops().values())
    assert 0.7 * most_ops < ops <= most_ops, "fewer is welcome: lower the bound, too"
    avx512 = cpu.Target(cpu.host().triple, "skylake-avx512", "", 64)
    if cpu.host().triple.startswith("x86_64"):
        assert len(object_code(program, avx512)) <= most_bytes


DIGEST = """
import hashlib, sys
sys.path.insert(0, "tests")
import oracle
from torch_mjenvs.compiler.llvm import render
from torch_mjenvs.physics import load
from torch_mjenvs.physics.kernel_request import KernelRequest
from torch_mjenvs.physics.simulation_kernels import program
request = KernelRequest(load(oracle.asset("half_cheetah")))
print(hashlib.sha256(render(program(request, "float32"), 16).encode()).hexdigest())
"""


def test_the_same_code_in_every_process():
    """Whatever Python's hash seed and the objects' addresses are; otherwise the cache would never hit."""
    running = [
        subprocess.Popen(
            [sys.executable, "-c", DIGEST], cwd=ROOT, env=_env(PYTHONHASHSEED=seed), stdout=subprocess.PIPE
        )
        for seed in ("1", "2")
    ]
    digests = {p.communicate(timeout=120)[0] for p in running}
    assert len(digests) == 1 and len(digests.pop()) == 65


def _env(**more: str) -> dict[str, str]:
    return os.environ | more


@pytest.mark.parametrize("seen", [False, True])
def test_what_only_a_block_changes_is_stored_by_that_block_and_others_read_it_as_it_was(seen):
    """Unless somebody else needs what the block made of it."""

    def body(b):
        (drawn,) = when_any(b["x"][0] < 0.0, lambda old: [old[0] + 1.0], b["params"])
        (y,) = when_any(b["x"][0] < 1.0, lambda _: [b["params"][0]], [drawn if seen else 0.0])
        return {"params": [drawn], "y": [y]}

    program = record("renew", [Buffer("x", 1), Buffer("params", 1), Buffer("y", 1)], body, "float32")
    assert len(sink_stores(program)[1]) == (not seen)
    x, params = np.linspace(-1, 2, 64, dtype="float32")[None], np.arange(64, dtype="float32")[None]
    out = run(program, {"x": x, "params": params})
    np.testing.assert_array_equal(out["params"], params + (x < 0))
    np.testing.assert_array_equal(out["y"], np.where(x < 1, params, out["params"] * seen))


# what worlds have in common

COMMON = [Buffer("own", 2), Buffer("row", 3, share=32), Buffer("way", 2, period=32), Buffer("y", 2)]


def common_program(dtype: str) -> Program:
    def body(b):
        x = when_any(b["own"][0] > 0.0, lambda c: [c[0] + b["row"][1] * b["way"][1]], [b["row"][2]])[0]
        return {"y": [x, b["own"][1] - b["row"][0] * b["way"][0]]}

    return record("common", COMMON, body, dtype)


def common_tensors(kernel: launch.Kernel) -> dict[str, torch.Tensor]:
    held = {b.name: kernel.allocate(b, 96) for b in COMMON}
    for x in held.values():
        generator = torch.Generator().manual_seed(x.numel())
        x.copy_(torch.randn(x.shape, dtype=torch.float64, generator=generator, device="cpu"))
    return held


def expected_of_common(held: dict[str, torch.Tensor]) -> torch.Tensor:
    own, row, way = (held[name].cpu() for name in ("own", "row", "way"))
    row, way = row.T.repeat_interleave(32, 1), way.repeat(1, 3)
    return torch.stack([torch.where(own[0] > 0, row[2] + row[1] * way[1], row[2]), own[1] - row[0] * way[0]])


@pytest.mark.parametrize("dtype", DTYPES)
def test_worlds_share_rows_and_repeat_periods(dtype):
    for lanes in LANES:
        kernel = build(common_program(dtype), at_lanes(dtype, lanes))
        held = common_tensors(kernel)
        assert held["row"].shape == (3, 3) and held["way"].shape == (2, 32)
        kernel.bind(held)()
        torch.testing.assert_close(held["y"].cpu(), expected_of_common(held), rtol=1e-5, atol=1e-5)


def test_what_worlds_share_is_checked():
    with pytest.raises(ValueError, match="'row', which worlds have in common, is read only"):
        record("bad", COMMON, lambda b: {"row": [0.0] * 3}, "float32")
    kernel = build(common_program("float32"))
    held = common_tensors(kernel)
    with pytest.raises(ValueError, match="'way' of size 2 cannot be of shape"):
        kernel.bind(held | {"way": kernel.allocate(Buffer("way", 2), 48)})
    with pytest.raises(ValueError, match="different numbers of worlds"):
        kernel.bind(held | {"row": held["row"][:2]})

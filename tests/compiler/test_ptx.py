"""The interpreter of PTX against exact arithmetic: each instruction by itself, memory, refusals, and warps."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from ptx import MEANINGS, Machine, PTXError, issues

HEAD = ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry kernel(\n"
REGISTERS = ".reg .pred %p<99>;\n.reg .b16 %rs<99>;\n.reg .b32 %r<99>;\n.reg .b64 %rd<99>;\n"
STEMS = {1: "p", 16: "rs", 32: "r", 64: "rd"}
KINDS = {"f32": np.float32, "f64": np.float64}
SIZES = {"float": 32, "double": 64, "i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64}


def text(parameters: int, body: str, before: str = "") -> str:
    """A kernel with its parameters in %rd90, %rd91, ..., and thread times 8 in %rd89."""
    head = ",\n".join(f".param .u64 kernel_param_{k}" for k in range(parameters))
    loads = "".join(f"ld.param.b64 %rd{90 + k}, [kernel_param_{k}];\n" for k in range(parameters))
    thread = "mov.u32 %r89, %tid.x;\nmul.wide.u32 %rd89, %r89, 8;\n"
    return f"{before}{HEAD}{head}\n)\n.maxntid 32\n{{\n{REGISTERS}{loads}{thread}{body}ret;\n}}\n"


def apply(name: str, *columns: np.ndarray) -> np.ndarray:
    """One instruction over columns of equal length, one thread a row; the bits of its results as uint64."""
    meaning = MEANINGS[name]
    n = len(columns[0])
    held = [np.zeros(n, np.uint64) for _ in range(len(columns) + 1)]
    body, operands = "", []
    for k, (column, type_) in enumerate(zip(columns, meaning.operands, strict=True)):
        width = SIZES[type_]
        held[k][:] = column.view(f"u{column.itemsize}")
        stem = STEMS.get(width, "rs")
        operands.append(f"%{stem}{k}")
        body += f"add.s64 %rd{70 + k}, %rd{90 + k}, %rd89;\n"
        if width == 1:
            body += f"ld.global.b32 %r{k}, [%rd{70 + k}];\nsetp.ne.b32 %p{k}, %r{k}, 0;\n"
        else:
            body += f"ld.global.b{width} %{stem}{k}, [%rd{70 + k}];\n"
    width, k = SIZES[meaning.result], len(columns)
    stem = STEMS[width]
    body += f"add.s64 %rd70, %rd{90 + k}, %rd89;\n{name} %{stem}9, {', '.join(operands)};\n"
    if width == 1:
        body += "selp.b32 %r50, 1, 0, %p9;\nst.global.b32 [%rd70], %r50;\n"
    else:
        body += f"st.global.b{width} [%rd70], %{stem}9;\n"
    machine = Machine(text(len(held), body))
    machine.run([x.ctypes.data for x in held], 1, n, [(x.ctypes.data, x.nbytes) for x in held])
    return held[-1]


# floats, exactly


def nearest(x: Fraction, kind: type) -> float:
    """The float next to x != 0, the even one of two; infinity beyond the largest."""
    digits, least = (24, -149) if kind is np.float32 else (53, -1074)
    a = abs(x)
    exponent = a.numerator.bit_length() - a.denominator.bit_length()
    exponent -= a < Fraction(2) ** exponent
    unit = max(exponent - digits + 1, least)
    n = round(a / Fraction(2) ** unit)  # Python's is half to even
    most = 128 if kind is np.float32 else 1024
    value = math.inf if n >= 2 ** (most - unit) else math.ldexp(n, unit)
    return value if x > 0 else -value


def fma(kind: type, a: float, b: float, c: float) -> float:
    if not all(map(math.isfinite, (a, b, c))):
        return (0.0 if math.isfinite(a) and math.isfinite(b) else a * b) + c
    product = Fraction(a) * Fraction(b)
    if product + Fraction(c):
        return nearest(product + Fraction(c), kind)
    return 0.0 if product else math.copysign(0.0, a) * math.copysign(1.0, b) + c


def quotient(kind: type, a: float, b: float) -> float:
    if not (math.isfinite(a) and math.isfinite(b) and a and b):
        with np.errstate(all="ignore"):
            return float(np.float64(a) / np.float64(b))
    return nearest(Fraction(a) / Fraction(b), kind)


def root(kind: type, a: float) -> float:
    if not (math.isfinite(a) and a > 0):
        return math.nan if a < 0 else a
    x, scale = Fraction(a), 1 << 1200  # all its digits, and as many of the root as any tie could hide behind
    whole = x * scale * scale
    n = math.isqrt(int(whole))
    return nearest(Fraction(2 * n + (n * n != whole), 2 * scale), kind)


def least(kind: type, a: float, b: float, sign: float = 1.0) -> float:
    """min; max with sign -1. Not of NaN, where there is another number; -0 before +0."""
    if math.isnan(a) or math.isnan(b):
        return b if math.isnan(a) else a
    return min((a, b), key=lambda x: (sign * x, sign * math.copysign(1.0, x)))


def even(kind: type, a: float) -> float:
    return math.copysign(float(round(a)), a) if math.isfinite(a) else a


EXACT: dict[str, Callable[..., float]] = {
    "add.rn": lambda kind, a, b: fma(kind, a, 1.0, b),
    "sub.rn": lambda kind, a, b: fma(kind, a, 1.0, -b),
    "mul.rn": lambda kind, a, b: fma(kind, a, b, -0.0),
    "fma.rn": fma,
    "div.rn": quotient,
    "rcp.rn": lambda kind, a: quotient(kind, 1.0, a),
    "sqrt.rn": root,
    "min": least,
    "max": lambda kind, a, b: least(kind, a, b, -1.0),
    "cvt.rni": even,
}


def special(kind: type) -> list[float]:
    f = np.finfo(kind)
    sizes = [0.0, 1.0, 2.5, 1 + f.eps, f.tiny, f.smallest_subnormal, f.tiny - f.smallest_subnormal, f.max, math.inf]
    return [s * float(x) for x in sizes for s in (1, -1)] + [math.nan]


def columns(kind: type, count: int) -> list[np.ndarray]:
    """All combinations of special numbers, any bits at all, and sums that lie next to the middle of two floats."""
    rng = np.random.default_rng(count)
    whole = special(kind)[:: 1 if count < 3 else 2] + [math.nan]
    rows = [np.array(x) for x in zip(*itertools.product(whole, repeat=count), strict=True)]
    size = np.dtype(kind).itemsize
    wild = rng.integers(0, 256, (count, 400 * size), dtype=np.uint8).view(kind)
    eps = float(np.finfo(kind).eps)
    tame = rng.uniform(-4, 4, (count, 400)).astype(kind)
    close = [[1 + eps, 1 - eps, 1 + eps], [eps / 2 * (1 - eps), eps / 2 * (1 + eps), 0.5 * eps], [1 + eps, 1.0, -1.0]]
    middle = [np.array(x) for x in zip(*itertools.product(*close), strict=True)]
    parts = [rows, wild, tame, middle[:count]]
    return [np.concatenate([part[k].astype(kind) for part in parts]) for k in range(count)]


@pytest.mark.parametrize("t", KINDS)
@pytest.mark.parametrize("name", EXACT)
def test_arithmetic_is_exact(name, t):
    full, kind = f"{name}.{t}.{t}" if name == "cvt.rni" else f"{name}.{t}", KINDS[t]
    given = columns(kind, len(MEANINGS[full].operands))
    got = apply(full, *given).astype(f"u{np.dtype(kind).itemsize}").view(kind)
    want = np.array([EXACT[name](kind, *row) for row in zip(*(x.tolist() for x in given), strict=True)]).astype(kind)
    np.testing.assert_array_equal(got, want)
    number = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got[number]), np.signbit(want[number]))
    if t == "f32":
        assert set(got[~number].view(np.int32)) <= {0x7FFFFFFF}


def test_a_sum_of_a_product_is_rounded_once():
    """The columns hold cases where rounding to float64 on the way to float32 would be seen."""
    a, b, c = columns(np.float32, 3)
    got = apply("fma.rn.f32", a, b, c).astype(np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        twice = (a.astype(np.float64) * b + c).astype(np.float32)
    assert 0 < np.sum(~np.isnan(got) & (got != twice)) < 100


@pytest.mark.parametrize("t", KINDS)
@pytest.mark.parametrize("test", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_comparisons_are_numpy_s(test, t):
    a, b = columns(KINDS[t], 2)
    compare = {"eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater"}
    nan = np.isnan(a) | np.isnan(b)
    want = getattr(np, compare.get(test, "greater_equal"))(a, b)
    np.testing.assert_array_equal(apply(f"setp.{test}.{t}", a, b), want & ~nan)
    np.testing.assert_array_equal(apply(f"setp.{test}u.{t}", a, b), want | nan)
    np.testing.assert_array_equal(apply(f"setp.num.{t}", a, b), ~nan)
    np.testing.assert_array_equal(apply(f"setp.nan.{t}", a, b), nan)


@pytest.mark.parametrize("t", KINDS)
def test_signs_and_choices_leave_all_other_bits(t):
    a, b = columns(KINDS[t], 2)
    kind = f"u{a.itemsize}"
    sign = 1 << (8 * a.itemsize - 1)
    np.testing.assert_array_equal(apply(f"neg.{t}", a), a.view(kind) ^ sign)
    np.testing.assert_array_equal(apply(f"abs.{t}", a), a.view(kind) & (sign - 1))
    first = np.arange(len(a)) % 2
    for name in (f"selp.{t}", f"selp.b{t[1:]}"):
        np.testing.assert_array_equal(apply(name, a, b, first), np.where(first, a, b).view(kind))


@pytest.mark.parametrize("t", KINDS)
def test_conversions_round_as_ptx_says(t):
    kind = KINDS[t]
    x = np.array([0, -1, 1, 2**24 + 1, -(2**24) - 3, 2**31 - 1, -(2**31), 123456789], np.int32)
    for name, values in ((f"cvt.rn.{t}.s32", x), (f"cvt.rn.{t}.u32", x.view(np.uint32))):
        got = apply(name, x).astype(f"u{np.dtype(kind).itemsize}").view(kind)
        np.testing.assert_array_equal(got, [nearest(Fraction(int(v)), kind) if v else 0.0 for v in values])
    y = np.array([0.5, -0.5, 1.99, -1.99, 2.5, 1e10, -1e10, np.inf, -np.inf, np.nan, -0.0], kind)
    nan = 0 if t == "f32" else -(2**31)
    want = [0, 0, 1, -1, 2, 2**31 - 1, -(2**31), 2**31 - 1, -(2**31), nan, 0]
    np.testing.assert_array_equal(apply(f"cvt.rzi.s32.{t}", y).astype(np.uint32).view(np.int32), want)


# integers

WHOLE: dict[str, Callable[..., int]] = {
    "add.s": lambda a, b: a + b,
    "sub.s": lambda a, b: a - b,
    "mul.lo.s": lambda a, b: a * b,
    "mad.lo.s": lambda a, b, c: a * b + c,
    "and.b": lambda a, b: a & b,
    "or.b": lambda a, b: a | b,
    "xor.b": lambda a, b: a ^ b,
    "not.b": lambda a: ~a,
    "mov.b": lambda a: a,
}
NUMBERS = [0, 1, 2, 31, 32, 63, 64, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x123456789ABCDEF]
NUMBERS += [2**63 - 1, 2**63, 2**64 - 1]


def signed(x: int, width: int) -> int:
    return (x + (1 << width - 1)) % (1 << width) - (1 << width - 1)


def whole_columns(width: int, count: int) -> list[np.ndarray]:
    rows = itertools.product([x for x in NUMBERS if x < 1 << width], repeat=count)
    return [np.array(x, f"u{width // 8}") for x in zip(*rows, strict=True)]


@pytest.mark.parametrize("width", [32, 64])
def test_integers_wrap(width):
    for name, f in WHOLE.items():
        for kind in "su" if name.endswith(".s") else "b":
            full = f"{name[:-1]}{kind}{width}"
            given = whole_columns(width, len(MEANINGS[full].operands))
            want = [f(*row) % (1 << width) for row in zip(*(x.tolist() for x in given), strict=True)]
            np.testing.assert_array_equal(apply(full, *given), np.array(want, np.uint64), err_msg=full)
    a, b = whole_columns(width, 2)
    b = (b & 0x7F).astype(np.uint32)
    for name, f in (("shl.b", lambda a, b: a << b), ("shr.u", lambda a, b: a >> b)):
        want = [f(x, y) % (1 << width) if y < width else 0 for x, y in zip(a.tolist(), b.tolist(), strict=True)]
        np.testing.assert_array_equal(apply(f"{name}{width}", a, b), np.array(want, np.uint64), err_msg=name)


@pytest.mark.parametrize("width", [16, 32, 64])
def test_integers_compare(width):
    a, b = whole_columns(width, 2)
    for kind, read in (("u", int), ("s", lambda x: signed(x, width)), ("b", int)):
        for test in ("eq", "ne") if kind == "b" else ("eq", "ne", "lt", "le", "gt", "ge"):
            f = getattr(int, f"__{test}__")
            want = [f(read(x), read(y)) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
            np.testing.assert_array_equal(apply(f"setp.{test}.{kind}{width}", a, b), want, err_msg=test + kind)


@pytest.mark.parametrize("width", [32, 64])
def test_the_lesser_and_the_greater(width):
    a, b = whole_columns(width, 2)
    for kind, read in (("u", int), ("s", lambda x: signed(x, width))):
        for name, f in (("min", min), ("max", max)):
            want = [f(x, y, key=read) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
            np.testing.assert_array_equal(apply(f"{name}.{kind}{width}", a, b), np.array(want, np.uint64))


@pytest.mark.parametrize("kind", ["pred", "b16"])
def test_narrow_integers(kind):
    width = 1 if kind == "pred" else 16
    a, b = whole_columns(16, 2) if width == 16 else (np.array(x, np.uint32) for x in ([0, 0, 1, 1], [0, 1, 0, 1]))
    for op in ("and", "or", "xor"):
        np.testing.assert_array_equal(apply(f"{op}.{kind}", a, b), WHOLE[f"{op}.b"](a, b), err_msg=op)
    if width == 16:
        for op in ("add.s", "sub.s", "mul.lo.s"):
            want = [WHOLE[op](x, y) % (1 << 16) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
            for sign in "su":
                np.testing.assert_array_equal(apply(f"{op[:-1]}{sign}16", a, b), want, err_msg=op)
        shifts = b.astype(np.uint32) & 0x1F
        want = [(x << n) % (1 << 16) for x, n in zip(a.tolist(), shifts.tolist(), strict=True)]
        np.testing.assert_array_equal(apply("shl.b16", a, shifts), want)
        for wider in (32, 64):
            np.testing.assert_array_equal(apply(f"cvt.u{wider}.u16", a), a)
        np.testing.assert_array_equal(apply("cvt.u16.u32", a.astype(np.uint32) + 0x30000), a)
    np.testing.assert_array_equal(apply(f"not.{kind}", a), ~a & ((1 << width) - 1))
    np.testing.assert_array_equal(apply(f"mov.{kind}", a), a)


def test_products_and_halves():
    a, b = whole_columns(32, 2)
    pairs = list(zip(a.tolist(), b.tolist(), strict=True))
    wide = np.array([x * y for x, y in pairs], np.uint64)
    np.testing.assert_array_equal(apply("mul.wide.u32", a, b), wide)
    np.testing.assert_array_equal(apply("mul.hi.u32", a, b), wide >> np.uint64(32))
    both = whole_columns(64, 2)
    want = [x * y >> 64 for x, y in zip(*(x.tolist() for x in both), strict=True)]
    np.testing.assert_array_equal(apply("mul.hi.u64", *both), np.array(want, np.uint64))
    want = [signed(x, 32) * signed(y, 32) % (1 << 64) for x, y in pairs]
    np.testing.assert_array_equal(apply("mul.wide.s32", a, b), np.array(want, np.uint64))
    np.testing.assert_array_equal(apply("cvt.u64.u32", a), a)
    np.testing.assert_array_equal(
        apply("cvt.s64.s32", a), np.array([signed(x, 32) for x in a.tolist()]).view(np.uint64)
    )
    (c,) = whole_columns(64, 1)
    np.testing.assert_array_equal(apply("cvt.u32.u64", c), c & np.uint64(0xFFFFFFFF))
    machine = Machine(
        text(
            2,
            "ld.global.b64 %rd1, [%rd90];\n{ .reg .b32 tmp; mov.b64 {tmp, %r1}, %rd1; }\nst.global.b32 [%rd91], %r1;\n",
        )
    )
    x = np.array([0x123456789ABCDEF0, 0], np.uint64)
    machine.run([x.ctypes.data, x.ctypes.data + 8], 1, 1)
    assert x[1] == 0x12345678


# memory and refusals


def test_bytes_and_tables_and_local_memory():
    body = """
.local .align 8 .b8 __local_depot0[16];
mov.b64 %rd1, __local_depot0;
ld.local.b32 %r1, [%rd1+4];
st.global.b32 [%rd90], %r1;
st.local.b8 [%rd1], 513;
ld.local.b8 %rs1, [%rd1];
st.local.b8 [%rd1+1], %rs1;
ld.local.b16 %rs2, [%rd1];
st.global.b16 [%rd90+4], %rs2;
mov.b64 %rd2, some;
ld.global.nc.b32 %rd3, [%rd2+4];
st.global.b64 [%rd90+8], %rd3;
and.b16 %rs3, %rs2, 256;
selp.b16 %rs4, %rs3, 7, %p1;
xor.pred %p2, %p1, -1;
not.pred %p3, %p2;
and.pred %p4, %p1, %p3;
selp.b32 %r2, 5, 6, %p4;
st.global.b16 [%rd90+6], %rs4;
st.global.b32 [%rd90+16], %r2;
ld.global.s32 %rd4, [%rd2+4];
st.global.b64 [%rd90+24], %rd4;
"""
    x = np.zeros(4, np.int64)
    machine = Machine(text(1, body, ".global .align 4 .b8 some[8] = {1, 0, 0, 0, 254, 255, 255, 255};\n"))
    for _ in range(2):  # local memory is what it was at the start of a thread
        machine.run([x.ctypes.data], 1, 1, [(x.ctypes.data, 32)])
        assert x.view(np.int32).tolist() == [-1, 0x01000101, -2, 0, 5, 0, -2, -1]


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("ld.global.b32 %r1, [%rd90+32];", "outside"),
        ("ld.global.b32 %r1, [%rd90+-4];", "outside"),
        ("st.global.b64 [%rd90+28], 0;", "misaligned"),
        ("ld.global.b64 %rd1, [%rd90+4];", "misaligned"),
        ("mov.b64 %rd1, some;\nst.global.b32 [%rd1], 0;", "a constant"),
        ("mov.b64 %rd1, some;\nld.global.b32 %r1, [%rd1+4];", "beyond a table"),
        ("st.local.b32 [%rd90], 0;", "not local"),
        ("mov.b64 %rd1, __local_depot0;\nst.local.b32 [%rd1+8], 0;", "beyond local memory"),
        ("mov.b64 %rd1, __local_depot0;\nld.global.b32 %r1, [%rd1];", "not global"),
    ],
)
def test_a_wrong_access_is_seen(line, fault):
    table = ".global .align 4 .b8 some[4] = {1, 0, 0, 0};\n"
    machine = Machine(text(1, f".local .align 8 .b8 __local_depot0[8];\n{line}\n", table))
    x = np.zeros(8, np.int32)
    with pytest.raises(PTXError, match=r"thread 0 of block 0: '(ld|st)\."):
        machine.run([x.ctypes.data], 1, 1, [(x.ctypes.data, x.nbytes)])
    assert not x.any(), fault


@pytest.mark.parametrize(
    "line",
    [
        "add.f32 %r1, %r2, %r3;", "add.rz.f32 %r1, %r2, %r3;", "fma.rn.ftz.f32 %r1, %r2, %r3, %r4;",
        "div.full.f32 %r1, %r2, %r3;", "sqrt.approx.f32 %r1, %r2;", "add.rn.f32 %r1, %r2;",
        "add.rn.f32 %rd1, %r2, %r3;",
        "add.rn.f64 %rd1, 0f3F800000, %rd2;", "mov.b32 %q1, 0;", "@%p1 mov.b32 %r1, 0;", "mov.u32 %r1, %laneid;",
        "ld.shared.b32 %r1, [some];", "ld.global.v2.b32 {%r1}, [%rd1];", "ld.param.b64 %rd1, [kernel_param_1];",
        "call.uni sin, (%r1);", "bar.sync 1;", "shfl.sync.bfly.b32 %r1, %r2, 1, 31, 255;",
        "shfl.sync.down.b32 %r1, %r2, 1, 31, -1;", ".shared .b8 x[4];", "setp.lt.and.f32 %p1, %r1, %r2, %p2;",
    ],
)  # fmt: skip
def test_what_is_not_known_is_refused(line):
    with pytest.raises(PTXError, match="not known"):
        Machine(text(1, line + "\n"))


# threads that wait for each other

OWN = ".extern .shared .align 16 .b8 own[];\n"
PLACES = "mov.b64 %rd1, own;\nmul.wide.u32 %rd2, %r89, 4;\nadd.s64 %rd3, %rd1, %rd2;\n"  # %rd3: a thread's own
NEXT = "add.s32 %r1, %r89, 1;\nand.b32 %r1, %r1, 63;\nmul.wide.u32 %rd4, %r1, 4;\nadd.s64 %rd5, %rd1, %rd4;\n"
OUT = "add.s64 %rd6, %rd90, %rd2;\nst.global.b32 [%rd6], %r2;\n"
MINE = "st.shared.b32 [%rd3], %r89;\n"
ITS = "ld.shared.b32 %r2, [%rd5];\n"


def block(body: str, shared: int = 256, blocks: int = 1) -> np.ndarray:
    """What 64 threads of each block wrote into 64 numbers."""
    machine, x = Machine(text(1, PLACES + NEXT + body, OWN)), np.zeros(64, np.int32)
    machine.run([x.ctypes.data], blocks, 64, [(x.ctypes.data, x.nbytes)], shared=shared)
    return x


def test_threads_of_a_block_wait_for_each_other():
    """Each reads what the next one wrote; then all write again, and read again."""
    again = f"add.s32 %r3, %r2, 100;\nst.shared.b32 [%rd3], %r3;\nbar.sync 0;\n{ITS}"
    found = block(f"{MINE}bar.sync 0;\n{ITS}bar.sync 0;\n{again}{OUT}")
    np.testing.assert_array_equal(found, (np.arange(64) + 2) % 64 + 100)


def test_what_nobody_wrote_into_shared_memory_is_all_ones():
    np.testing.assert_array_equal(block(f"{ITS}{OUT}"), np.full(64, -1))


@pytest.mark.parametrize("distance", [1, 4, 16])
def test_a_shuffle_gives_what_a_thread_of_the_warp_gave(distance):
    """From before and after a barrier, and of registers that live across both."""
    body = f"shfl.sync.bfly.b32 %r3, %r89, {distance}, 31, -1;\nbar.sync 0;\n"
    body += f"shfl.sync.bfly.b32 %r4, %r3, {distance}, 31, -1;\nshl.b32 %r3, %r3, 8;\nadd.s32 %r2, %r3, %r4;\n"
    numbers = np.arange(64)
    np.testing.assert_array_equal(block(body + OUT), (numbers ^ distance) * 256 + numbers)


def test_four_numbers_are_one_access():
    body = "shl.b32 %r3, %r89, 4;\ncvt.u64.u32 %rd7, %r3;\nadd.s64 %rd8, %rd1, %rd7;\nadd.s32 %r4, %r89, 1;\n"
    body += "st.shared.v4.b32 [%rd8], {%r89, %r4, 5, %r4};\nld.shared.v4.b32 {%r5, %r6, %r7, %r8}, [%rd8];\n"
    body += "mul.lo.s32 %r6, %r6, %r7;\nadd.s32 %r2, %r6, %r5;\n"
    numbers = np.arange(64)
    np.testing.assert_array_equal(block(body + OUT, 1024), (numbers + 1) * 5 + numbers)
    with pytest.raises(PTXError, match=r"thread 63 of block 0: 'ld\.shared\.v4"):
        block(body + OUT, 1020)
    with pytest.raises(PTXError, match=r"thread 0 of block 0: 'ld\.shared\.v4"):
        block(body.replace("[%rd8]", "[%rd8+4]") + OUT, 2048)


@pytest.mark.parametrize(
    ("body", "blocks", "line"),
    [
        (f"{MINE}ld.shared.b32 %r2, [%rd1];\n", 1, r"thread 1 of block 0: 'ld\.shared.*where thread 0 is"),  # written
        (f"{MINE}{ITS}{OUT}", 1, r"thread 1 of block 0: 'st\.shared.*where thread 0 is"),  # read
        (f"{MINE}bar.sync 0;\nst.shared.b32 [%rd1], 7;\n", 1, r"thread 1 of block 0: 'st\.shared.*thread 0 is"),
        (f"bar.sync 0;\nmov.b32 %r2, 1;\n{OUT}", 2, r"thread 0 of block 1: 'st\.global.*where thread 0 is"),
        ("bar.sync 0;\nld.global.b32 %r2, [%rd90];\nbar.sync 0;\nst.global.b32 [%rd90], 7;\n", 1, r"'st\.global"),
    ],
)
def test_a_race_is_seen(body, blocks, line):
    with pytest.raises(PTXError, match=line):
        block(f"{body}bar.sync 0;\n", blocks=blocks)


@pytest.mark.parametrize("there", [1, 32, 40, 64])
def test_a_bit_of_any_thread_is_told_to_all_that_are_there(there):
    """Those that have ended are not waited for, and what they had to say does not count."""
    begin = f"setp.lt.u32 %p1, %r89, {there};\n@%p1 bra $on;\nret;\n$on:\n"
    body = f"{begin}setp.eq.u32 %p2, %r89, {{}};\nbar.red.or.pred %p3, 0, %p2;\nselp.b32 %r2, 2, 1, %p3;\n{OUT}"
    for k, said in ((there - 1, 2), (there, 1)):
        np.testing.assert_array_equal(block(body.format(k)), np.where(np.arange(64) < there, said, 0))


APART = "@%p1 bra $one;\nbar.sync 0;\nbra.uni $two;\n$one:\nbar.sync 0;\n$two:\n"


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (f"setp.lt.u32 %p1, %r89, 32;\n{APART}", "not all warps"),
        (f"setp.lt.u32 %p1, %r89, 40;\n{APART}", "threads of a warp"),
        ("ld.shared.b32 %r2, [%rd90];\n", r"thread 0 of block 0: 'ld\.shared"),
        ("ld.global.b32 %r2, [%rd1];\n", r"thread 0 of block 0: 'ld\.global"),
    ],
)
def test_other_faults_of_blocks_are_seen(body, fault):
    with pytest.raises(PTXError, match=fault):
        block(body)


def test_the_right_number_of_parameters():
    with pytest.raises(PTXError, match="1 parameters for 2"):
        Machine(text(2, "")).run([0], 1, 1)


# warps

TURNS = """
add.s64 %rd1, %rd90, %rd89;
ld.global.b32 %r1, [%rd1];
mov.b32 %r2, 0;
setp.lt.s32 %p1, %r1, 1;
@%p1 bra $out;
$head:
add.s32 %r2, %r2, %r1;
add.s32 %r1, %r1, -1;
setp.gt.s32 %p2, %r1, 0;
@%p2 bra $head;
$out:
st.global.b32 [%rd1+4], %r2;
setp.eq.s32 %p3, %r2, 3;
@!%p3 bra $else;
mov.b32 %r3, 1;
bra.uni $end;
$else:
mov.b32 %r3, 2;
$end:
"""


def test_a_warp_waits_for_its_slowest_thread():
    machine = Machine(text(1, TURNS), trace=True)
    x = np.zeros((64, 2), np.int32)
    x[:32, 0] = 4
    x[32:, 0] = np.arange(32) % 6
    ways = machine.run([x.ctypes.data], 1, 64, [(x.ctypes.data, x.nbytes)])
    np.testing.assert_array_equal(x[:, 1], [n * (n + 1) // 2 for n in [4] * 32 + [k % 6 for k in range(32)]])
    counts = issues(machine.program, ways)
    labels = [block.label for block in machine.program.blocks]
    found = [dict(zip(labels, row, strict=True)) for row in counts.tolist()]
    assert [row["$head"] for row in found] == [4, 5]
    assert [row["$out"] for row in found] == [1, 1]
    assert [row["$else"] for row in found] == [1, 1]
    assert [row["$end"] for row in found] == [1, 1]
    then = labels.index("$else") - 1
    assert counts[:, then].tolist() == [0, 1]  # in the second warp alone threads part here
    assert sum(map(len, ways[:32])) == 32 * counts[0].sum()


def test_room_for_ways_is_not_overrun():
    machine = Machine(text(1, TURNS), trace=True)
    x = np.zeros((64, 2), np.int32)
    with pytest.raises(PTXError, match="room for 10"):
        machine.run([x.ctypes.data], 1, 64, room=10)

"""The writing of operations that each lane does by itself."""

from __future__ import annotations

from ..expr import Expr
from ..ops import OPS
from .types import Types
from .writer import Row, Writer

# {r} result, {0} {1} {2} arguments, {F} {B} {I} {L} vector types of floats, masks, 32-bit and 64-bit integers, {J}
# integers as wide as the float, {sF} the suffix of intrinsics; {bias} {mant} the float format; of several
# lines, the n-th gives {r}.n
TEMPLATES: dict[str, str] = {
    "add": "fadd {F} {0}, {1}",
    "sub": "fsub {F} {0}, {1}",
    "mul": "fmul {F} {0}, {1}",
    "div": "fdiv {F} {0}, {1}",
    "neg": "fneg {F} {0}",
    "fma": "call {F} @llvm.fma.{sF}({F} {0}, {F} {1}, {F} {2})",
    "sqrt": "call {F} @llvm.sqrt.{sF}({F} {0})",
    "abs": "call {F} @llvm.fabs.{sF}({F} {0})",
    "rint": "call {F} @llvm.roundeven.{sF}({F} {0})",
    "min": "fcmp olt {F} {0}, {1}\nselect {B} {r}.0, {F} {0}, {F} {1}",
    "max": "fcmp olt {F} {0}, {1}\nselect {B} {r}.0, {F} {1}, {F} {0}",
    "lt": "fcmp olt {F} {0}, {1}",
    "le": "fcmp ole {F} {0}, {1}",
    "and": "and {B} {0}, {1}",
    "or": "or {B} {0}, {1}",
    "not": "xor {B} {0}, {true}",
    "select": "select {B} {0}, {F} {1}, {F} {2}",
    # the same where `_chooses_zero`; LLVM does not look through a freeze
    "min, zero": "fcmp olt {F} {0}, {1}\nfreeze {B} {r}.0\nselect {B} {r}.1, {F} {0}, {F} {1}",
    "max, zero": "fcmp olt {F} {0}, {1}\nfreeze {B} {r}.0\nselect {B} {r}.1, {F} {1}, {F} {0}",
    "select, zero": "freeze {B} {0}\nselect {B} {r}.0, {F} {1}, {F} {2}",
    "iselect": "select {B} {0}, {I} {1}, {I} {2}",
    "bselect": "select {B} {0}, {B} {1}, {B} {2}",
    "iadd": "add {I} {0}, {1}",
    "isub": "sub {I} {0}, {1}",
    "imul": "mul {I} {0}, {1}",
    "umulh": "zext {I} {0} to {L}\nzext {I} {1} to {L}\nmul {L} {r}.0, {r}.1\n"
    "lshr {L} {r}.2, {c32}\ntrunc {L} {r}.3 to {I}",
    "iand": "and {I} {0}, {1}",
    "ior": "or {I} {0}, {1}",
    "ixor": "xor {I} {0}, {1}",
    "ishl": "shl {I} {0}, {1}",
    "lshr": "lshr {I} {0}, {1}",
    "ieq": "icmp eq {I} {0}, {1}",
    "ilt": "icmp slt {I} {0}, {1}",
    "f2i": "fptosi {F} {0} to {I}",
    "i2f": "sitofp {I} {0} to {F}",
    "u2f": "uitofp {I} {0} to {F}",
    "pow2": "add {J} {0}, {bias}\nshl {J} {r}.0, {mant}\nbitcast {J} {r}.1 to {F}",
    "exponent": "bitcast {F} {0} to {J}\nlshr {J} {r}.0, {mant}\nsub {J} {r}.1, {bias}",
    "mantissa": "bitcast {F} {0} to {J}\nand {J} {r}.0, {mask}\nor {J} {r}.1, {one}\nbitcast {J} {r}.2 to {F}",
}
WIDE: dict[str, str] = {  # longer in float64: the exponent's integer has 32 bits, the float's 64
    "pow2": "sext {I} {0} to {J}\nadd {J} {r}.0, {bias}\nshl {J} {r}.1, {mant}\nbitcast {J} {r}.2 to {F}",
    "exponent": "bitcast {F} {0} to {J}\nlshr {J} {r}.0, {mant}\nsub {J} {r}.1, {bias}\ntrunc {J} {r}.2 to {I}",
}


def templates(types: Types) -> dict[str, list[str]]:
    """Return the lines of every operation, with only arguments and result left open."""
    single = types.dtype == "float32"
    j, mantissa, bias = ("i32", 23, 127) if single else ("i64", 52, 1023)
    formats = {
        "F": types.of("f"), "B": types.of("b"), "I": types.of("i"), "J": types.vector(j), "L": types.vector("i64"),
        "sF": ("" if types.lanes == 1 else f"v{types.lanes}") + ("f32" if single else "f64"),
        "true": types.splat("i1", "true"), "c32": types.splat("i64", 32), "bias": types.splat(j, bias),
        "mant": types.splat(j, mantissa), "mask": types.splat(j, (1 << mantissa) - 1),
        "one": types.splat(j, bias << mantissa), "r": "{r}",
    }  # fmt: skip
    texts = TEMPLATES if single else TEMPLATES | WIDE
    return {op: text.format("{0}", "{1}", "{2}", **formats).split("\n") for op, text in texts.items()}


def operation(w: Writer, e: Expr) -> None:
    """Write an operation by its template."""
    w.names[e] = w.operation(e.op, *map(w.value, e.args, OPS[e.op].takes))


def choice(w: Writer, e: Expr) -> None:
    """Write an operation that takes one of its arguments as it is."""
    op = f"{e.op}, zero" if _chooses_zero(e) else e.op
    w.names[e] = w.operation(op, *map(w.value, e.args, OPS[e.op].takes))


def total(w: Writer, e: Expr) -> None:
    """Write a sum, fused with a product if one has joined it."""
    fused = w.sums.get(e)
    if fused is None:
        operation(w, e)
        return
    a = _negated(w, fused.a) if fused.negate_product else w.value(fused.a, "f")
    c = _negated(w, fused.c) if fused.negate_c else w.value(fused.c, "f")
    w.names[e] = w.operation("fma", a, w.value(fused.b, "f"), c)


def same(w: Writer, e: Expr) -> None:
    """Give a number a second name."""
    w.names[e] = w.value(e.args[0], "f")


def _negated(w: Writer, x: object) -> str:
    return w.operation("neg", w.value(x, "f")) if type(x) is Expr else w.value(-x, "f")  # type: ignore[operator]


def _chooses_zero(e: Expr) -> bool:
    """Return whether e selects the smaller or larger of two numbers that may be 0 and -0.

    LLVM turns such a selection into a minimum or maximum that may return either zero. The instructions of NVIDIA's and
    ARM's chips order -0 before 0, so the result could have another sign than the comparison gives.
    """
    pair = e.args
    if e.op == "select":
        mask, *either = e.args
        pair = mask.args if type(mask) is Expr and mask.op in ("lt", "le") else ()
        if set(pair) != set(either):
            return False
    return all(type(a) is Expr or a == 0 for a in pair)


ROWS: dict[str, Row] = dict.fromkeys((op for op in TEMPLATES if "," not in op), operation)
ROWS |= {"add": total, "sub": total, "min": choice, "max": choice, "select": choice, "rounded": same}

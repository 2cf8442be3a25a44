"""A small NumPy evaluator of straight-line expression graphs, and the same call for compiled kernels: for the tests.

Every node is rounded by itself, and no product joins a sum unless the graph says `fma`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from ptx import Machine

from torch_mjenvs.compiler import cuda, launch
from torch_mjenvs.compiler.build import build
from torch_mjenvs.compiler.ops import OPS
from torch_mjenvs.compiler.program import Buffer, Program, record

HERE, CPU = torch.get_default_device(), torch.device("cpu")
U32, U64, I32 = np.uint32, np.uint64, np.int32
Arrays = Mapping[str, np.ndarray]
Body = Callable[[dict[str, list]], dict[str, list]]


def trace(body: Body, inputs: Arrays, outputs: Mapping[str, tuple[int, str]], dtype: str) -> Program:
    """Record a body over inputs of shape (size, n); outputs by name are (size, type)."""
    buffers = [Buffer(k, len(v), v.dtype.kind) for k, v in inputs.items()]
    return record("test", [*buffers, *(Buffer(k, *v) for k, v in outputs.items())], body, dtype)


def evaluate(program: Program, inputs: Arrays) -> dict[str, np.ndarray]:
    """What the program stores, by NumPy."""
    n = next(iter(inputs.values())).shape[1]
    float_type = np.dtype(program.dtype).type
    python_types = {"f": float_type, "i": I32, "b": np.bool_}
    values: dict = {}

    def value(x: object, t: str) -> np.ndarray:
        return values[x] if x in values else np.full(n, x, python_types[t])

    with np.errstate(all="ignore"):
        for e in program.trace.top.nodes:
            if e not in program.live:
                continue
            if e.op == "load":
                buffer, column = e.attr
                values[e] = inputs[program.buffers[buffer].name][column].astype(python_types[e.type])
            else:
                args = [value(a, t) for a, t in zip(e.args, OPS[e.op].takes, strict=True)]
                values[e] = np.asarray(_FUNCTIONS[e.op](*args)).astype(python_types[e.type], copy=False)
    out: dict[str, dict[int, np.ndarray]] = {}
    for k, c, x in program.stores:
        b = program.buffers[k]
        out.setdefault(b.name, {})[c] = value(x, b.type)
    return {k: np.stack([v[c] for c in sorted(v)]) for k, v in out.items()}


def run_compiled(program: Program, inputs: Arrays) -> dict[str, np.ndarray]:
    """What the program stores, by its machine code, on the device of this run of the tests."""
    return _run(program, inputs, lambda tensors: build(program, HERE).bind(tensors)(), HERE)


def run_ptx(program: Program, inputs: Arrays) -> dict[str, np.ndarray]:
    """What the program stores, by its code for NVIDIA's GPUs."""

    def launch_ptx(tensors: dict[str, torch.Tensor]) -> None:
        Machine(cuda.assembly(program)).launch(list(tensors.values()), next(iter(tensors.values())).shape[1])

    return _run(program, inputs, launch_ptx)


def _run(
    program: Program, inputs: Arrays, over: Callable[[dict[str, torch.Tensor]], object], device: torch.device = CPU
) -> dict[str, np.ndarray]:
    n = next(iter(inputs.values())).shape[1]
    types = {"f": getattr(torch, program.dtype), "i": torch.int32, "b": torch.bool}
    tensors = {
        b.name: torch.zeros(b.size, launch.padded(n), dtype=types[b.type], device=device) for b in program.buffers
    }
    for k, v in inputs.items():
        tensors[k][:, :n] = torch.from_numpy(np.ascontiguousarray(v))
    over(tensors)
    return {k: v[:, :n].cpu().numpy() for k, v in tensors.items() if k not in inputs}


RUNNERS = {"graph": evaluate, "compiled": run_compiled, "ptx": run_ptx}


def _fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    if a.dtype == np.float32:
        return (a.astype(np.float64) * b.astype(np.float64) + c.astype(np.float64)).astype(np.float32)
    # The product without error (Dekker), the sum without error (Knuth), then both errors together.
    p, e = a * b, _product_error(a, b)
    s = p + c
    v = s - p
    t = (p - (s - v)) + (c - v)
    exact = s + (t + e)
    return np.where(np.isfinite(exact), exact, a * b + c)


def _product_error(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    def split(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        big = x * 134217729.0
        high = big - (big - x)
        return high, x - high

    (ah, al), (bh, bl) = split(a), split(b)
    return ((ah * bh - a * b) + ah * bl + al * bh) + al * bl


def _bits(x: np.ndarray) -> tuple[np.ndarray, int, int]:
    """Bit pattern of floats, bits of the mantissa, bias of the exponent."""
    return (x.view(np.int32), 23, 127) if x.dtype == np.float32 else (x.view(np.int64), 52, 1023)


def _exponent(x: np.ndarray) -> np.ndarray:
    bits, mantissa, bias = _bits(x)
    return (bits >> mantissa) - bias


def _mantissa(x: np.ndarray) -> np.ndarray:
    bits, mantissa, bias = _bits(x)
    return ((bits & ((1 << mantissa) - 1)) | (bias << mantissa)).view(x.dtype)


def _wrapped(f: Callable) -> Callable:
    """A function of unsigned 64-bit integers over signed 32-bit ones."""
    return lambda *args: f(*(a.view(U32).astype(U64) for a in args)).astype(U32).view(I32)


_FUNCTIONS: dict[str, Callable] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "neg": np.negative, "fma": _fma,
    "rounded": np.copy, "sqrt": np.sqrt, "abs": np.abs, "rint": np.rint, "lt": np.less, "le": np.less_equal,
    "min": lambda a, b: np.where(a < b, a, b), "max": lambda a, b: np.where(a < b, b, a),
    "and": np.logical_and, "or": np.logical_or, "not": np.logical_not,
    "select": np.where, "iselect": np.where, "bselect": np.where,
    "iadd": _wrapped(np.add), "isub": _wrapped(np.subtract), "imul": _wrapped(np.multiply),
    "umulh": _wrapped(lambda a, b: a * b >> U64(32)), "ishl": _wrapped(np.left_shift), "lshr": _wrapped(np.right_shift),
    "iand": np.bitwise_and, "ior": np.bitwise_or, "ixor": np.bitwise_xor, "ieq": np.equal, "ilt": np.less,
    "f2i": np.trunc, "i2f": lambda a: a.astype(np.float64), "u2f": lambda a: a.view(U32).astype(np.float64),
    "pow2": lambda a: np.ldexp(1.0, a), "exponent": _exponent, "mantissa": _mantissa,
}  # fmt: skip

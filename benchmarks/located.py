"""Kernels of the CPU whose every instruction tells which functions of the physics made it, for `benchmarks.where`.

While `recorded()` lasts, a node remembers the functions that were running when it was recorded, and the IR written for
it has a location, as a compiler's debug information has them. LLVM carries locations through to the code and otherwise
ignores them: the code is the same, byte for byte, but that large blocks and loops are no functions of their own here.
A location's "line" is the number of a chain of functions.

Where a node equals an earlier one it is that one, so it counts where it was first asked for. A fused multiply-add
counts where the sum is.
"""

from __future__ import annotations

import functools
import math
import os
import re
import subprocess
import sys
import tempfile
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from unittest.mock import patch

import llvmlite.binding as llvm

import torch_mjenvs
from torch_mjenvs.compiler import cpu
from torch_mjenvs.compiler.expr import Expr
from torch_mjenvs.compiler.llvm import parts
from torch_mjenvs.compiler.llvm.writer import Row, Writer
from torch_mjenvs.compiler.lower import lower
from torch_mjenvs.compiler.program import Program, record

PACKAGE = Path(torch_mjenvs.__file__).parent
# What all physics is made of would be the innermost function everywhere, and says nothing of where.
EVERYWHERE = ("physics/algebra/", "physics/model/data.py", "compiler/")
OUTERMOST = (record.__code__, lower.__code__)  # what has these run does not matter
AROUND, ENTRY = ("compiler/llvm/frames.py", "", 0), ("compiler/entry.py", "", 0)

FIRST = 7  # the number of the first location; those before it are `METADATA`
METADATA = """
!llvm.dbg.cu = !{!0}
!llvm.module.flags = !{!1, !2}
!0 = distinct !DICompileUnit(language: DW_LANG_C99, file: !3, isOptimized: true, runtimeVersion: 0, emissionKind: LineTablesOnly)
!1 = !{i32 2, !"Debug Info Version", i32 3}
!2 = !{i32 7, !"Dwarf Version", i32 4}
!3 = !DIFile(filename: "chains", directory: "/")
!4 = !DISubroutineType(types: !5)
!5 = !{null}
!6 = distinct !DISubprogram(name: "tile", scope: !3, file: !3, line: 1, type: !4, unit: !0, spFlags: DISPFlagDefinition)
"""  # noqa: E501


Frame = tuple[str, str, int]  # file, function and line
Chain = tuple[Frame, ...]  # innermost first


@dataclass(frozen=True)
class Instruction:
    """An instruction of a kernel: where it is from the kernel's entry point on, its text, and the functions it is of.

    added: whether LLVM added it, as it does spills and reloads, or, rarely, has moved or joined what it is of.
    """

    at: int
    text: str
    chain: Chain
    added: bool

    @property
    def moves(self) -> bool:
        """Tell whether it only copies: between registers, or to or from memory."""
        return re.match(r"v?mov[au]p[sd]\b", self.text) is not None and "{%k" not in self.text  # else it selects

    @property
    def loads(self) -> bool:
        """Tell whether its first operand is in memory."""
        return re.match(r"\w+\s+[^,(]*\(", self.text) is not None

    @property
    def stores(self) -> bool:
        """Tell whether its last operand is in memory."""
        return _stores(self.text)


@dataclass
class Located:
    """What was recorded: chains, each once, those of nodes, and the object code of kernels by their addresses."""

    chains: dict[Chain, int] = field(default_factory=lambda: {(AROUND,): 0})
    nodes: dict[Expr, Chain] = field(default_factory=dict)
    codes: dict[int, bytes] = field(default_factory=dict)

    def location(self, e: Expr | None) -> str:
        """Return what is added to the lines of a node, or to those of none."""
        chain = self.nodes.get(e, (AROUND,)) if e is not None else (AROUND,)
        return f", !dbg !{FIRST + self.chains.setdefault(chain, len(self.chains))}"

    def instructions(self, address: int) -> list[Instruction]:
        """Return the instructions of the kernel at this address, in order. Needs objdump."""
        return list(_instructions(self.codes[address], list(self.chains)))


@contextmanager
def recorded() -> Iterator[Located]:
    """Record where nodes come from, and build kernels with locations, while the block runs.

    They are kept in a cache of their own, which is removed at the end.
    """
    found = Located()
    _tell_unknown()
    # A subclass or an argument would have to go through everything that makes nodes.
    wrappers: list[tuple[Any, str, Callable[..., Any]]] = [
        (Expr, "__init__", _remembering),
        (Writer, "__init__", _marking),
        (cpu, "assembly", _with_metadata),
        (cpu.CpuKernel, "__init__", _keeping_code),
    ]
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        stack.enter_context(patch.dict(os.environ, TORCH_MJENVS_CACHE=folder))
        stack.enter_context(patch.object(parts, "FEWEST", math.inf))  # all in one function
        for owner, name, wrapper in wrappers:
            stack.enter_context(patch.object(owner, name, wrapper(found, getattr(owner, name))))
        yield found


def _remembering(found: Located, init: Callable[..., None]) -> Callable[..., None]:
    """Have a new node remember the functions that are running."""

    def make(e: Expr, *args: Any, **named: Any) -> None:
        init(e, *args, **named)
        found.nodes[e] = _running()

    return make


def _running() -> Chain:
    """Return this package's functions that are running; the compiler's only if there are no others."""
    frame: FrameType | None = sys._getframe(2)
    chain: list[Frame] = []
    compiler: Frame = AROUND
    while frame is not None:
        file, function = _names(frame.f_code)
        if function and not file.startswith(EVERYWHERE):
            chain.append((file, function, frame.f_lineno))
        elif function and compiler is AROUND and file.startswith("compiler/") and file != "compiler/expr.py":
            compiler = file, function, frame.f_lineno
        frame = None if frame.f_code in OUTERMOST else frame.f_back
    return tuple(chain) or (compiler,)


@functools.cache
def _names(code: CodeType) -> tuple[str, str]:
    """Return file and function, both empty if not of this package. A lambda counts as the function that holds it."""
    path = Path(code.co_filename)
    if not path.is_relative_to(PACKAGE):
        return "", ""
    function = ".".join(part for part in code.co_qualname.split(".") if not part.startswith("<"))
    return path.relative_to(PACKAGE).as_posix(), function or code.co_name


def _marking(found: Located, init: Callable[..., None]) -> Callable[..., None]:
    """Have a writer's rows mark the lines that they write, with the location of their node.

    A row writes whole regions: what is in these has its own location by the time that the row is done.
    """

    def marked(row: Row) -> Row:
        def write(w: Writer, e: Expr) -> None:
            begin = len(w.lines)
            row(w, e)
            w.lines[begin:] = _located(w.lines[begin:], found.location(e))

        return write

    def make(w: Writer, code: Any, types: Any, rows: Mapping[str, Row], templates: Any) -> None:
        init(w, code, types, {op: marked(row) for op, row in rows.items()}, templates)

    return make


def _located(lines: list[str], location: str) -> list[str]:
    """Add a location to the instructions that have none."""
    return [line + location if line.startswith("  ") and "!dbg" not in line else line for line in lines]


def _with_metadata(found: Located, assembly: Callable[..., str]) -> Callable[..., str]:
    """Add to a module what the locations in it refer to."""

    def make(program: Program, target: cpu.Target) -> str:
        before, start, rest = assembly(program, target).partition("define internal void @tile(")
        tile, end, after = rest.partition("\n}")
        head, *lines = tile.split("\n")
        head = head.removesuffix("{") + "!dbg !6 {"
        tile = "\n".join([head, *_located(lines, found.location(None))])
        used = sorted({int(number) for number in re.findall(r"!dbg !(\d+)$", tile, re.MULTILINE)})
        places = [f"!{k} = !DILocation(line: {k - FIRST + 1}, scope: !6)" for k in used]
        return "".join([before, start, tile, end, after, METADATA, "\n".join(places), "\n"])

    return make


def _keeping_code(found: Located, init: Callable[..., None]) -> Callable[..., None]:
    """Keep the object code of kernels."""

    def make(kernel: cpu.CpuKernel, name: str, buffers: Any, dtype: str, code: bytes, lanes: int) -> None:
        init(kernel, name, buffers, dtype, code, lanes)
        found.codes[kernel.address] = code

    return make


@functools.cache
def _tell_unknown() -> None:
    """Have LLVM mark instructions without a location, as of line 0; otherwise they would share that of those before.

    It is an option of the whole process, which may be set once; without locations it has no effect.
    """
    llvm.set_option("", "-use-unknown-locations=Enable")


# reading object code


def _instructions(code: bytes, chains: list[Chain]) -> Iterator[Instruction]:
    with tempfile.NamedTemporaryFile(suffix=".o") as file:
        file.write(code)
        file.flush()
        listing = _run("objdump", "--disassemble", "--no-show-raw-insn", file.name)
        table = _run("objdump", "--dwarf=decodedline", file.name)
    starts, texts, functions = _disassembled(listing)
    entry = next(at for at, function in zip(starts, functions, strict=True) if function == "kernel")
    lines = _lines(table, starts, functions)
    for at, text, line, near in zip(starts, texts, lines, _nearest(texts, lines), strict=True):
        chain = (ENTRY,) if line is None else chains[near - 1] if near else (AROUND,)
        yield Instruction(at - entry, text, chain, line == 0)


def _disassembled(listing: str) -> tuple[list[int], list[str], list[str]]:
    """Return address, text and function of each instruction."""
    starts, texts, functions, function = [], [], [], ""
    for line in listing.splitlines():
        if label := re.fullmatch(r"[0-9a-f]+ <(.+)>:", line):
            function = label[1]
        elif found := re.match(r"\s*([0-9a-f]+):\s+(\S.*)", line):
            starts.append(int(found[1], 16))
            texts.append(found[2])
            functions.append(function)
    return starts, texts, functions


def _lines(table: str, starts: list[int], functions: list[str]) -> list[int | None]:
    """Return the line of each instruction; 0 for those without a location, None outside of the tile."""
    rows = [
        (int(at, 16), int(line)) for line, at in re.findall(r"^\S+\s+(\d+)\s+(0x[0-9a-f]+|0)\b", table, re.MULTILINE)
    ]
    rows.sort(key=lambda row: row[0])  # of several rows for an address the last counts
    begins = [at for at, _ in rows]
    return [
        rows[bisect_right(begins, at) - 1][1] if function == "tile" else None
        for at, function in zip(starts, functions, strict=True)
    ]


def _nearest(texts: list[str], lines: list[int | None]) -> list[int | None]:
    """Return the lines, with others for instructions that have no location: a spill comes after what made its value,
    and almost everything else, such as a reload, before what uses its value.
    """
    near = list(lines)
    for k, line in enumerate(near):
        if line == 0 and k and (_stores(texts[k]) or texts[k].startswith("j")):
            near[k] = near[k - 1]
    for k in reversed(range(len(near) - 1)):
        if near[k] == 0:
            near[k] = near[k + 1]
    return near


def _stores(text: str) -> bool:
    return re.search(r"\)(\{.*\})?$", text) is not None


def _run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout

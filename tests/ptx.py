"""Runs PTX on the CPU, thread by thread, to the bit as NVIDIA's manual of PTX defines it.

The threads of a block run one after the other, each to where threads wait for each other: to `bar.sync` or `bar.red`,
or to a shuffle with the other threads of the warp. As on chips since Volta, nobody waits at a barrier for those that
have ended.

It knows the part of PTX that `compiler.cuda` makes, and refuses the rest. Each instruction becomes a line or two of
LLVM IR for this machine, which run unoptimised over raw addresses: what is under test is the text, not how it was made.

Memory is checked as on a device: an access that is misaligned, outside the given buffers, or a store into a constant
table is an error that names the instruction. So is, where threads wait for each other, an access to a number that
another thread, or another block, may write at that time. Registers and local and shared memory that nobody wrote are
all ones, which as a float is NaN. As on NVIDIA's chips, float32 arithmetic that gives NaN gives 0x7fffffff; NaNs of
float64 have whatever bits this machine gives them.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from dataclasses import dataclass

import llvmlite.binding as llvm
import numpy as np
import torch
from ptx_ir import FLOATS, PRELUDE, WARP_OF

from torch_mjenvs.compiler import cpu, loader
from torch_mjenvs.compiler.llvm import NVIDIA, scratch_bytes

WIDTHS = {"pred": 1, "b8": 8, "b16": 16, "b32": 32, "b64": 64}
WARP = 32


@dataclass(frozen=True)
class Meaning:
    """An instruction as IR: the types of its operands {0} {1} {2} and of its result, and what computes it."""

    operands: tuple[str, ...]
    result: str
    line: str
    rounds: bool = False  # float arithmetic, with the chip's own NaN

    @property
    def on_floats(self) -> bool:
        return bool({"float", "double"} & {*self.operands, self.result})

    def helper(self, name: str) -> str:
        """Return a function over registers, which are integers. LLVM takes far longer over its few lines than over a
        call.
        """
        given, lines, args = [], [], []
        for k, type_ in enumerate(self.operands):
            bits = f"i{_width(type_)}"
            given.append(f"{bits} %a{k}")
            args.append(f"%a{k}" if type_[0] == "i" else f"%x{k}")
            if type_[0] != "i":
                lines.append(f"%x{k} = bitcast {bits} %a{k} to {type_}")
        lines.append(f"%y = {self.line.format(*args)}")
        out, bits = "%y", f"i{_width(self.result)}"
        if self.result[0] != "i":
            clean = self.rounds and self.result == "float"
            lines.append("%out = call i32 @clean(float %y)" if clean else f"%out = bitcast {self.result} %y to {bits}")
            out = "%out"
        body = "".join(f"  {line}\n" for line in (*lines, f"ret {bits} {out}"))
        return f"define internal {bits} @op.{name}({', '.join(given)}) {{\n{body}}}\n"


def _width(type_: str) -> int:
    """Return the bits of a type of IR."""
    return {"float": 32, "double": 64}.get(type_) or int(type_[1:])


def _meanings() -> dict[str, Meaning]:
    out: dict[str, Meaning] = {}

    def put(name: str, operands: str, result: str, line: str, rounds: bool = False) -> None:
        out[name] = Meaning(tuple(operands.split()), result, line, rounds)

    for t, (F, bits) in FLOATS.items():
        for name, op in (("add", "fadd"), ("sub", "fsub"), ("mul", "fmul"), ("div", "fdiv")):
            put(f"{name}.rn.{t}", f"{F} {F}", F, f"{op} {F} {{0}}, {{1}}", True)
        put(f"fma.rn.{t}", f"{F} {F} {F}", F, f"call {F} @llvm.fma.{t}({F} {{0}}, {F} {{1}}, {F} {{2}})", True)
        put(f"sqrt.rn.{t}", F, F, f"call {F} @llvm.sqrt.{t}({F} {{0}})", True)
        put(f"rcp.rn.{t}", F, F, f"fdiv {F} 1.0, {{0}}", True)
        put(f"cvt.rni.{t}.{t}", F, F, f"call {F} @llvm.roundeven.{t}({F} {{0}})", True)
        for name in ("min", "max"):
            put(f"{name}.{t}", f"{F} {F}", F, f"call {F} @{name}.{t}({F} {{0}}, {F} {{1}})", True)
        sign = 1 << (int(t[1:]) - 1)
        put(f"neg.{t}", bits, bits, f"xor {bits} {{0}}, {sign}")
        put(f"abs.{t}", bits, bits, f"and {bits} {{0}}, {sign - 1}")
        put(f"selp.{t}", f"{bits} {bits} i1", bits, f"select i1 {{2}}, {bits} {{0}}, {bits} {{1}}")
        for test in ("eq", "ne", "lt", "le", "gt", "ge"):
            put(f"setp.{test}.{t}", f"{F} {F}", "i1", f"fcmp o{test} {F} {{0}}, {{1}}")
            put(f"setp.{test}u.{t}", f"{F} {F}", "i1", f"fcmp u{test} {F} {{0}}, {{1}}")
        put(f"setp.num.{t}", f"{F} {F}", "i1", f"fcmp ord {F} {{0}}, {{1}}")
        put(f"setp.nan.{t}", f"{F} {F}", "i1", f"fcmp uno {F} {{0}}, {{1}}")
        put(f"cvt.rn.{t}.s32", "i32", F, f"sitofp i32 {{0}} to {F}")
        put(f"cvt.rn.{t}.u32", "i32", F, f"uitofp i32 {{0}} to {F}")
        put(f"cvt.rzi.s32.{t}", F, "i32", f"call i32 @truncated.{t}({F} {{0}})")
    for w in (32, 64):
        T = f"i{w}"
        for kind in "su":
            for name, op in (("add", "add"), ("sub", "sub"), ("mul.lo", "mul")):
                put(f"{name}.{kind}{w}", f"{T} {T}", T, f"{op} {T} {{0}}, {{1}}")
            for name in ("min", "max"):
                put(f"{name}.{kind}{w}", f"{T} {T}", T, f"call {T} @llvm.{kind}{name}.{T}({T} {{0}}, {T} {{1}})")
            put(f"mad.lo.{kind}{w}", f"{T} {T} {T}", T, f"call {T} @mad{w}({T} {{0}}, {T} {{1}}, {T} {{2}})")
        put(f"shl.b{w}", f"{T} i32", T, f"call {T} @shl{w}({T} {{0}}, i32 {{1}})")
        put(f"shr.u{w}", f"{T} i32", T, f"call {T} @shr{w}({T} {{0}}, i32 {{1}})")
    for kind in "su":
        for name, op in (("add", "add"), ("sub", "sub"), ("mul.lo", "mul")):
            put(f"{name}.{kind}16", "i16 i16", "i16", f"{op} i16 {{0}}, {{1}}")
    put("shl.b16", "i16 i32", "i16", "call i16 @shl16(i16 {0}, i32 {1})")
    put("cvt.u16.u32", "i32", "i16", "trunc i32 {0} to i16")
    for w in (32, 64):
        put(f"cvt.u{w}.u16", "i16", f"i{w}", f"zext i16 {{0}} to i{w}")
    put("bfe.u32", "i32 i32 i32", "i32", "call i32 @field(i32 {0}, i32 {1}, i32 {2})")
    put("shf.l.wrap.b32", "i32 i32 i32", "i32", "call i32 @llvm.fshl.i32(i32 {1}, i32 {0}, i32 {2})")
    put("shf.r.wrap.b32", "i32 i32 i32", "i32", "call i32 @llvm.fshr.i32(i32 {1}, i32 {0}, i32 {2})")
    for w in (32, 64):
        put(f"mul.hi.u{w}", f"i{w} i{w}", f"i{w}", f"call i{w} @high{w}(i{w} {{0}}, i{w} {{1}})")
    for kind in "su":
        put(f"mul.wide.{kind}32", "i32 i32", "i64", f"call i64 @wide.{kind}(i32 {{0}}, i32 {{1}})")
        put(f"cvt.{kind}64.{kind}32", "i32", "i64", f"{kind}ext i32 {{0}} to i64".replace("uext", "zext"))
    put("upper", "i64", "i32", "call i32 @upper(i64 {0})")
    put("cvt.u32.u64", "i64", "i32", "trunc i64 {0} to i32")
    for name in ("pred", "b16", "b32", "b64"):
        w = WIDTHS[name]
        T = f"i{w}"
        for op in ("and", "or", "xor"):
            put(f"{op}.{name}", f"{T} {T}", T, f"{op} {T} {{0}}, {{1}}")
        put(f"not.{name}", T, T, f"xor {T} {{0}}, -1")
        put(f"mov.{name}", T, T, f"or {T} {{0}}, 0")
        if name != "pred":
            put(f"selp.{name}", f"{T} {T} i1", T, f"select i1 {{2}}, {T} {{0}}, {T} {{1}}")
            for test in ("eq", "ne"):
                for kind in "bsu":
                    put(f"setp.{test}.{kind}{w}", f"{T} {T}", "i1", f"icmp {test} {T} {{0}}, {{1}}")
            for test in ("lt", "le", "gt", "ge"):
                for kind in "su":
                    put(f"setp.{test}.{kind}{w}", f"{T} {T}", "i1", f"icmp {kind}{test} {T} {{0}}, {{1}}")
    out["mov.u32"] = out["mov.b32"]
    return out


MEANINGS = _meanings()


class Job(ctypes.Structure):
    """What a run works with, as `@place`, `@visit`, `@warp` and the code see it: all 64 bits."""

    _fields_ = [
        ("last", ctypes.c_int64 * 4),  # the ends of the ranges of a local access, a shared one, a load, a store
        ("ranges", ctypes.c_void_p),  # first and last + 1 address: local memory, shared memory, buffers, tables
        ("fault_line", ctypes.c_int64),
        ("fault_address", ctypes.c_int64),
        ("nowhere", ctypes.c_int64 * 2),
        ("visits", ctypes.c_int64),
        ("room", ctypes.c_int64),
        ("visited", ctypes.c_void_p),
        ("depot", ctypes.c_void_p),
        ("parameters", ctypes.c_void_p),
        ("shared", ctypes.c_void_p),
        # For each range, and each word in it, the stamps of its last writer and reader; or null.
        ("shadows", ctypes.c_void_p),
        ("stamp", ctypes.c_int64),
        ("mail", ctypes.c_int64),  # what a thread gives to a shuffle, and what it gets
        ("raced_with", ctypes.c_int64),
        ("time", ctypes.c_int64),  # the part of a stamp that is not the thread
        ("registers", ctypes.c_void_p),  # of all threads, and their local memory
        ("depots", ctypes.c_void_p),
        ("thread", ctypes.c_int64),
        ("threads", ctypes.c_int64),  # of a block
        ("ended", ctypes.c_void_p),  # for each of these, whether it has ended
    ]


@dataclass
class Statement:
    """One instruction, `guard` being the predicate of its @, "!" in front if negated."""

    line: int
    name: str
    operands: list[str]
    guard: str | None

    def registers(self) -> tuple[list[str], list[str]]:
        """Return the registers that it writes, and those that it reads."""
        found = [_REGISTER.findall(operand) for operand in self.operands]
        written = [] if not found or self.name.startswith(("st.", "bra", _WAIT)) else found.pop(0)
        return written, [r for operand in found for r in operand] + ([self.guard.lstrip("!")] if self.guard else [])


@dataclass
class Block:
    label: str
    statements: list[Statement]
    successors: list[int]  # numbers of blocks; at the program's end, the number of all blocks

    @property
    def waits(self) -> bool:
        """Whether threads wait for each other at its end."""
        return bool(self.statements) and self.statements[-1].name in _STOPS


class PTXError(Exception):
    """What the interpreter does not know, or what a device would refuse to do."""


_DECLARATIONS = re.compile(r"\.(version|target|address_size|maxntid|maxnreg)\b|[{})]$|\.visible \.entry kernel\($")
_PARAMETER = re.compile(r"\.param \.u64 (?:\.ptr \.global \.align \d+ )?kernel_param_(\d+),?$")
_REGISTERS = re.compile(r"\.reg \.(pred|b16|b32|b64) +%(\w+)(?:<\d+>)?;$")
_SHARED = re.compile(r"\.extern \.shared \.align (\d+) \.b8 (\w+)\[\];$")
_DEPOT = re.compile(r"\.local \.align (\d+) \.b8 +__local_depot0\[(\d+)\];$")
_TABLE = re.compile(r"\.global \.align (\d+) \.b8 (\w+)\[(\d+)\](?: = \{([\d, ]+)\})?;$")
_STATEMENT = re.compile(r"(?:@(!?%\w+) +)?([a-z][\w.]*)(?:\s+(.*))?;$")
_UPPER = re.compile(r"\{ \.reg \.b32 tmp; mov\.b64 \{tmp, (%\w+)\}, (%\w+); \}$")  # LLVM's way to take the upper half
_REGISTER = re.compile(r"%[A-Za-z]\w*(?!\w*\.)")  # %tid.x is not one
_OPERAND = re.compile(r"\{[^}]*\}|[^,\s][^,]*")
_STOPS = _SHUFFLE, _WAIT, _ANY = "shfl.sync.bfly.b32", "bar.sync", "bar.red.or.pred"
_ADDRESS = re.compile(r"\[([%\w]+)(?:\+(-?\d+))?\]$")


class Program:
    """PTX text as blocks of statements."""

    def __init__(self, ptx: str):
        self.kinds: dict[str, str] = {}  # of registers, by their stem
        self.parameters = 0
        self.depot = 0
        self.shared = ""  # the name of a block's memory, whose size a launch says
        self.tables: dict[str, np.ndarray] = {}
        self.blocks: list[Block] = []
        targets: list[list[str | None]] = []  # of each block: labels, None for the block below
        opened = False

        def open_block(label: str) -> None:
            self.blocks.append(Block(label, [], []))
            targets.append([])

        for number, raw in enumerate(ptx.splitlines(), 1):
            text = _UPPER.sub(r"upper \1, \2;", raw.split("//")[0].replace("\t", " ").strip())
            if not text or _DECLARATIONS.match(text):
                continue
            if match := _PARAMETER.match(text):
                if int(match[1]) != self.parameters:
                    raise PTXError(f"line {number}: parameters out of order")
                self.parameters += 1
            elif match := _REGISTERS.match(text):
                self.kinds[match[2]] = match[1]
            elif match := _SHARED.match(text):
                self.shared = match[2]
            elif match := _DEPOT.match(text):
                self.depot = int(match[2])
            elif match := _TABLE.match(text):
                values = [int(x) for x in (match[4] or "").split(",") if x.strip()]
                aligned = np.zeros(-(-int(match[3]) // 8), np.int64)
                self.tables[match[2]] = aligned.view(np.uint8)[: int(match[3])]
                self.tables[match[2]][: len(values)] = values
            elif text.endswith(":"):
                if opened:
                    targets[-1].append(None)
                open_block(text[:-1])
                opened = True
            elif match := _STATEMENT.match(text):
                if not opened:
                    open_block("")
                    opened = True
                guard, name, rest = match.groups()
                operands = _OPERAND.findall(rest) if rest else []
                self.blocks[-1].statements.append(Statement(number, name, operands, guard))
                if name in ("bra", "bra.uni"):
                    targets[-1].append(operands[0])
                    if guard is not None:
                        targets[-1].append(None)
                if name in _STOPS:
                    targets[-1].append(None)
                if name in ("bra", "bra.uni", "ret", *_STOPS):
                    opened = False
            else:
                raise PTXError(f"line {number}: {text!r} is not known")
        places = {block.label: k for k, block in enumerate(self.blocks) if block.label}
        for k, (block, names) in enumerate(zip(self.blocks, targets, strict=True)):
            block.successors = [k + 1 if name is None else places[name] for name in names] or [len(self.blocks)]

    def kind(self, register: str) -> str:
        """pred, b16, b32 or b64."""
        stem = register.removeprefix("%")
        found = self.kinds.get(stem) or self.kinds.get(stem.rstrip("0123456789"))
        if found is None:
            raise PTXError(f"register {register} is not known")
        return found


def unwritten(program: Program) -> set[str]:
    """The registers that some way through the code reads before anything is written into them."""
    reads, writes = [], []
    for block in program.blocks:
        read: set[str] = set()
        written: set[str] = set()
        for statement in block.statements:
            out, used = statement.registers()
            read |= set(used) - written
            written |= set(out)
        reads.append(read)
        writes.append(written)
    needed = [*map(set, reads), set()]  # at each block's begin, and at the end
    changed = True
    while changed:
        changed = False
        for k in range(len(program.blocks) - 1, -1, -1):
            new = reads[k].union(*(needed[j] - writes[k] for j in program.blocks[k].successors))
            changed |= new != needed[k]
            needed[k] = new
    return needed[0]


def scratch_of(size: int, worlds: int) -> list[torch.Tensor]:
    """Return the scratch memory of a kernel that needs so many bytes a world, all ones; nothing if it needs none."""
    warps = -(-worlds // WARP)
    return [torch.full((WARP * warps * size,), 255, dtype=torch.uint8, device="cpu")] if size else []


class Machine:
    """A PTX module made ready to run.

    With `trace`, `run` also tells which way every thread took.
    """

    def __init__(self, ptx: str, trace: bool = False):
        self.program, self.trace, self.scratch = Program(ptx), trace, scratch_bytes(ptx)
        self._lines: list[str] = []
        self._count = 0
        self.source = ptx.splitlines()
        host = cpu.host()
        thread = self._function()
        used = {s.name for block in self.program.blocks for s in block.statements}
        helpers = "".join(
            MEANINGS[name].helper(name) for name in sorted(used & MEANINGS.keys()) if MEANINGS[name].on_floats
        )
        words = max(1, -(-self.program.depot // 8))
        warp = WARP_OF.format(registers=max(1, self.registers), depot=words, depot_bytes=self.program.depot)
        functions = f"{PRELUDE}{helpers}{thread}{warp}".replace(") {\n", ") nounwind {\n")
        module = llvm.parse_assembly(f'target triple = "{host.triple}"\n{functions}')
        code = loader.machine(host.triple, host.cpu, host.features, opt=0).emit_object(module)
        self._loaded = loader.Loaded(code, ["warp"], host.triple)
        types = ctypes.c_void_p, *[ctypes.c_int32] * 4, ctypes.c_void_p
        self._call = ctypes.CFUNCTYPE(ctypes.c_int32, *types)(self._loaded.addresses[0])

    # -- from PTX to IR -----------------------------------------------------------------------------------------------
    def _put(self, line: str) -> None:
        self._lines.append("  " + line)

    def _assign(self, line: str) -> str:
        self._count += 1
        self._put(f"%v{self._count} = {line}")
        return f"%v{self._count}"

    def _function(self) -> str:
        program = self.program
        self._local = self._block_local()
        everywhere = {r for block in program.blocks for s in block.statements for part in s.registers() for r in part}
        self.stops = {k: b.statements[-1] for k, b in enumerate(program.blocks) if b.waits}
        self.registers = len(everywhere - self._local)
        for k, r in enumerate(sorted(everywhere - self._local)):
            width = WIDTHS[program.kind(r)]
            if self.stops:  # registers have to outlast a call
                self._put(f"%s.{r[1:]} = getelementptr i64, ptr %registers, i64 {k}")
            else:
                self._put(f"%s.{r[1:]} = alloca i{width}")
                self._put(f"store i{width} -1, ptr %s.{r[1:]}")
        for name, place in (("parameters", 13), ("depot.p", 12), ("shared.p", 14)):
            self._put(f"%{name}.at = getelementptr i64, ptr %job, i32 {place}")
            self._put(f"%{name} = load ptr, ptr %{name}.at")
        self._put("%depot = ptrtoint ptr %depot.p to i64")
        self._put("%shared = ptrtoint ptr %shared.p to i64")
        self._put("%mail = getelementptr i64, ptr %job, i32 17")
        self._put("%ntid.at = getelementptr i64, ptr %job, i32 23")
        self._put("%ntid = load i64, ptr %ntid.at")
        after = " ".join(f"i32 {k + 1}, label %a{k}" for k in self.stops)
        self._put(f"switch i32 %resume, label %b0 [ {after} ]")
        for k, s in self.stops.items():  # where a thread goes on
            self._lines.append(f"a{k}:")
            if s.name != _WAIT:
                wide, width = self._assign("load i64, ptr %mail"), 32 if s.name == _SHUFFLE else 1
                self._values = {}
                self._write(s.operands[0], self._assign(f"trunc i64 {wide} to i{width}"), width)
            self._put(f"br label %b{k + 1}")
        for k, block in enumerate(program.blocks):
            self._lines.append(f"b{k}:")
            self._values: dict[str, str] = {}
            if self.trace:
                self._put(f"call void @visit(ptr %job, i32 {k})")
            for s in block.statements:
                try:
                    self._statement(s, block)
                except (PTXError, KeyError, IndexError, ValueError) as error:
                    text = self.source[s.line - 1].strip()
                    raise PTXError(f"line {s.line}: {text!r} is not known ({error})") from error
            if k in self.stops:
                self._put(f"ret i32 {k + 1}")
            elif not block.statements or block.statements[-1].name not in ("bra", "bra.uni", "ret"):
                self._put(f"br label %b{block.successors[0]}")
        end = f"b{len(program.blocks)}:\n  ret i32 0\n}}"
        head = "define internal i32 @thread(ptr %job, i32 %tid, i32 %ctaid, ptr %registers, i32 %resume) {\nentry:"
        return "\n".join([head, *self._lines, end])

    def _block_local(self) -> set[str]:
        """Registers that are written once, and read only later in the same block."""
        seen: dict[str, int] = {}
        shared: set[str] = set()
        for k, block in enumerate(self.program.blocks):
            for s in block.statements:
                written, read = s.registers()
                for r in (*read, *written):
                    first = r not in seen
                    if first != (r in written) or seen.setdefault(r, k) != k:
                        shared.add(r)
        return set(seen) - shared

    def _read(self, operand: str, width: int, cut: bool = False) -> str:
        """Return an operand as an integer of that width. cut: a register may be wider, and its low bits are taken."""
        if operand.startswith("%"):
            if operand in ("%tid.x", "%ctaid.x"):
                return "%" + operand[1:-2]
            if operand == "%ntid.x":
                return self._assign("trunc i64 %ntid to i32")
            have = WIDTHS[self.program.kind(operand)]
            if cut and have > width:
                return self._assign(f"trunc i{have} {self._read(operand, have)} to i{width}")
            if have != width:
                raise PTXError(f"{operand} has {have} bits, not {width}")
            if operand in self._local:
                return self._values[operand]
            return self._assign(f"load i{width}, ptr %s.{operand[1:]}")
        if operand.startswith(("0f", "0d")):
            if len(operand) != 2 + width // 4:
                raise PTXError(f"{operand} does not have {width} bits")
            return str(int(operand[2:], 16))
        if operand == "__local_depot0":
            return "%depot"
        if operand == self.program.shared:
            return "%shared"
        if operand in self.program.tables:
            return str(self.program.tables[operand].ctypes.data)
        return str(int(operand))

    def _write(self, register: str, value: str, width: int) -> None:
        have = WIDTHS[self.program.kind(register)]
        if have != width:
            raise PTXError(f"{register} has {have} bits, not {width}")
        if register in self._local:
            self._values[register] = value
        else:
            self._put(f"store i{width} {value}, ptr %s.{register[1:]}")

    def _statement(self, s: Statement, block: Block) -> None:
        if s.guard and s.name != "bra":
            raise PTXError("only a branch may have a predicate")
        if s.name == "ret":
            self._put("ret i32 0")
        elif s.name == _WAIT:
            if s.operands != ["0"]:
                raise PTXError("no such barrier")
        elif s.name == _ANY:
            if s.operands[1] != "0":
                raise PTXError("no such barrier")
            self._put(f"store i64 {self._assign(f'zext i1 {self._read(s.operands[2], 1)} to i64')}, ptr %mail")
        elif s.name == _SHUFFLE:
            if s.operands[3:] != ["31", "-1"] or int(s.operands[2]) not in (1, 2, 4, 8, 16):
                raise PTXError("no such shuffle")
            self._put(f"store i64 {self._assign(f'zext i32 {self._read(s.operands[1], 32)} to i64')}, ptr %mail")
        elif s.name in ("bra", "bra.uni"):
            if s.guard:
                test = self._read(s.guard.lstrip("!"), 1)
                yes, no = block.successors if s.guard[0] != "!" else block.successors[::-1]
                self._put(f"br i1 {test}, label %b{yes}, label %b{no}")
            else:
                self._put(f"br label %b{block.successors[0]}")
        elif s.name.startswith(("ld.", "st.")):
            self._access(s)
        else:
            self._arithmetic(s)

    def _arithmetic(self, s: Statement) -> None:
        meaning = MEANINGS[s.name]
        target, *sources = s.operands
        widths, width = [_width(type_) for type_ in meaning.operands], _width(meaning.result)
        cut = s.name.startswith("cvt.")  # PTX lets it take the low bits of a register that is wider
        args = [self._read(operand, w, cut) for operand, w in zip(sources, widths, strict=True)]
        line = meaning.line.format(*args)
        if meaning.on_floats:
            given = ", ".join(f"i{w} {x}" for w, x in zip(widths, args, strict=True))
            line = f"call i{width} @op.{s.name}({given})"
        self._write(target, self._assign(line), width)

    def _access(self, s: Statement) -> None:
        match = re.fullmatch(
            r"(ld\.param|ld\.global\.nc|(?:ld|st)\.(?:global|local|shared))(?:\.v([24]))?\.([bsu])(\d+)", s.name
        )
        if not match:
            raise PTXError("no such access")
        what, many, signed, width = match[1], int(match[2] or 1), match[3] == "s", int(match[4])
        place, x = s.operands if what.startswith("st") else s.operands[::-1]
        found = _ADDRESS.match(place)
        if not found:
            raise PTXError("no such address")
        if what == "ld.param":
            k = int(re.fullmatch(r"kernel_param_(\d+)", found[1])[1])  # type: ignore[index]
            if width != 64 or k >= self.program.parameters or found[2]:
                raise PTXError("no such parameter")
            at = self._assign(f"getelementptr i64, ptr %parameters, i32 {k}")
            self._write(x, self._assign(f"load i64, ptr {at}"), 64)
            return
        address = self._assign(f"add i64 {self._read(found[1], 64)}, {found[2] or 0}")
        kind = {"local": 0, "shared": 1}.get(what.split(".")[1], 3 if what.startswith("st") else 2)
        store = "true" if what.startswith("st") else "false"
        what_for = f"i64 {many * width // 8}, i32 {kind}, i1 {store}, i64 {s.line}"
        start = self._assign(f"call ptr @place(ptr %job, i64 {address}, {what_for})")
        names = re.findall(r"[^\s,{}]+", x)
        if len(names) != many:
            raise PTXError(f"{len(names)} numbers in place of {many}")
        for k, name in enumerate(names):
            at = start if k == 0 else self._assign(f"getelementptr i{width}, ptr {start}, i32 {k}")
            held = WIDTHS[self.program.kind(name)] if name.startswith("%") else width  # a register may be wider
            if what.startswith("st"):
                value = self._read(name, held)
                if held != width:
                    value = self._assign(f"trunc i{held} {value} to i{width}")
                self._put(f"store i{width} {value}, ptr {at}, align 1")
            else:
                value = self._assign(f"load i{width}, ptr {at}, align 1")
                if held != width:
                    value = self._assign(f"{'sext' if signed else 'zext'} i{width} {value} to i{held}")
                self._write(name, value, held)

    # -- running ------------------------------------------------------------------------------------------------------
    def run(
        self,
        parameters: Sequence[int],
        blocks: int,
        threads: int,
        memory: Sequence[tuple[int, int]] | None = None,
        room: int = 1 << 24,
        shared: int = 0,
    ) -> list[np.ndarray]:
        """Run a grid of blocks with `shared` bytes of shared memory each. `memory` lists the (address, bytes) that may
        be accessed; None: anything.

        With `trace`, return the numbers of the blocks of code that each thread came to, at most `room` altogether.
        Raises PTXError for an access that a device would refuse.
        """
        program = self.program
        if len(parameters) != program.parameters:
            raise PTXError(f"{len(parameters)} parameters for {program.parameters}")
        depots = np.empty((threads, max(1, -(-program.depot // 8))), np.int64)
        own = np.empty(max(2, -(-shared // 8)), np.int64)  # of a block
        tables = [(x.ctypes.data, x.nbytes) for x in program.tables.values()]
        given = [(0, 2**63 - 1)] if memory is None else list(memory)
        ranges = [(0, 0), (own.ctypes.data, shared), *given, *tables]
        bounds = np.array([(a, a + size) for a, size in ranges], np.int64)
        watched = self.stops and memory is not None
        shadows = [np.zeros((size // 4 + 1, 2), np.int64) for _, size in ranges] if watched else []
        places = np.array([x.ctypes.data for x in shadows], np.uint64)
        values = np.array(parameters, np.uint64)
        visited = np.empty(room if self.trace else 0, np.int32)
        job = Job(
            last=(1, 2, len(ranges), 2 + len(given)), ranges=bounds.ctypes.data, room=len(visited),
            visited=visited.ctypes.data, parameters=values.ctypes.data, shared=own.ctypes.data,
            shadows=places.ctypes.data if watched else None, threads=threads,
        )  # fmt: skip
        ended = np.empty(threads, np.uint8)
        job.ended = ended.ctypes.data
        registers = np.empty((threads, max(1, self.registers)), np.int64)
        job.registers, job.depots = registers.ctypes.data, depots.ctypes.data
        ways: list[list[np.ndarray]] = []
        for block in range(blocks):
            ways += [[] for _ in range(threads)]
            for x in (depots, own, registers):
                x.fill(-1)
            ended.fill(0)
            if shadows:
                shadows[1].fill(0)
            waited, at, said = 0, 0, False
            while waited == 0 or at:
                job.time = (block + 1) << 40 | waited << 16
                stops, says = set(), False
                for k in range(0, threads, WARP):
                    warp = range(k, min(k + WARP, threads))
                    if not ended[k : warp.stop].all():
                        mail = np.full(len(warp), said, np.int64)
                        stops.add(self._warp(job, block, warp, at, mail, visited, ways[block * threads :]))
                        says |= bool(mail[ended[k : warp.stop] == 0].any())
                stops = stops - {0} or {0}
                if len(stops) > 1:
                    raise PTXError(f"block {block}: not all warps wait at the same barrier")
                at, waited, said = stops.pop(), waited + 1, says
        if job.visits > job.room and self.trace:
            raise PTXError(f"{job.visits} visits of blocks, but room for {job.room}")
        return [np.concatenate(way) for way in ways] if self.trace else []

    def launch(self, tensors: Sequence[torch.Tensor], worlds: int, threads: int = NVIDIA.warp) -> list[np.ndarray]:
        """`run` over the buffers of a kernel as `cuda` launches it, in blocks of so many threads; nothing else may be
        touched.
        """
        held = [*tensors, *scratch_of(self.scratch, worlds)]
        parameters = [*(x.data_ptr() for x in held), *([0] if self.scratch else []), worlds]
        memory = [(x.data_ptr(), x.numel() * x.element_size()) for x in held]
        return self.run(parameters, -(-worlds // threads), threads, memory)

    def _warp(
        self, job: Job, block: int, lanes: range, at: int, mail: np.ndarray, visited: np.ndarray,
        ways: list[list[np.ndarray]],
    ) -> int:  # fmt: skip
        """Run the threads of a warp to the next barrier, and return which one; 0: to their end. `mail` is what each
        thread is told when it goes on, and afterwards what it says.
        """
        some = [range(k, k + 1) for k in lanes] if self.trace else [lanes]
        while True:
            stops = set()
            for threads in some:
                start, first = job.visits, threads.start
                given = mail[first - lanes.start :].ctypes.data
                stops.add(self._call(ctypes.addressof(job), first, len(threads), block, at, given))
                ways[first].append(visited[start : job.visits])
                if job.fault_line:
                    text = self.source[job.fault_line - 1].strip()
                    other = f", where thread {(job.raced_with & 65535) - 1} is" if job.raced_with else ""
                    raise PTXError(f"thread {job.thread} of block {block}: {text!r} at {job.fault_address:#x}{other}")
            stops = stops - {0} or {0}
            at = stops.pop()
            if stops or at < 0:
                raise PTXError(f"block {block}: threads of a warp wait at different places")
            if at == 0 or self.stops[at - 1].name != _SHUFFLE:
                return at
            mail[:] = mail[np.arange(len(mail)) ^ int(self.stops[at - 1].operands[2])]


# warps


def issues(program: Program, ways: Sequence[np.ndarray]) -> np.ndarray:
    """How often each warp runs each block, (warps, blocks), by the ways of its threads.

    Where threads part, those that go one way run until all can go on together (the immediate post-dominator), then the
    others: NVIDIA's chips do the same except for details. The ways are those of blocks of whole warps, in order.
    """
    meets = _post_dominators(program)
    out = np.zeros((len(ways) // WARP, len(program.blocks)), np.int64)
    for warp, counts in enumerate(out):
        chosen = ways[WARP * warp : WARP * (warp + 1)]
        table = np.full((WARP, max(map(len, chosen)) + 1), len(program.blocks))  # a way ends where the program does
        for row, way in zip(table, chosen, strict=True):
            row[: len(way)] = way
        at = np.zeros(WARP, np.int64)
        stack = [(np.arange(WARP), len(program.blocks))]
        while stack:
            threads, stop = stack.pop()
            block = table[threads[0], at[threads[0]]]  # where all of them are
            while block != stop:
                counts[block] += 1
                at[threads] += 1
                following = table[threads, at[threads]]
                if (following != following[0]).any():
                    parts = [threads[following == b] for b in np.unique(following)]
                    stack += [(threads, stop), *((part, meets[block]) for part in parts)]
                    break
                block = following[0]
    return out


def _post_dominators(program: Program) -> list[int]:
    """Return for each block the first one that every way from it leads through; the number of blocks stands for the
    end.
    """
    n = len(program.blocks)
    through = [(1 << n + 1) - 1] * n + [1 << n]  # sets, as bits
    changed = True
    while changed:
        changed = False
        for k in range(n - 1, -1, -1):
            new = (1 << n + 1) - 1
            for successor in program.blocks[k].successors:
                new &= through[successor]
            new |= 1 << k
            changed |= new != through[k]
            through[k] = new
    found = []
    for k in range(n):
        others = [j for j in range(n + 1) if j != k and through[k] >> j & 1]
        found.append(max(others, key=lambda j: through[j].bit_count()))  # the nearest has all the others before it
    return found

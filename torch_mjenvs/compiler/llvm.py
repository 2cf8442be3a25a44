"""From a recorded program to LLVM IR: one world a lane of a `<W x T>` vector, or W = 1: one world a thread.

The code is SSA from the start and is left to LLVM's code generator as it stands. No fast-math flag is set, and where a
product feeds a sum is decided here, not by LLVM: so the same program gives the same bits on every target.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from .expr import OPS, Expr, Region
from .program import FORMS, Program, regions_of
from .schedule import schedule

# {r} result, {0} {1} {2} arguments, {F} {B} {I} vector types of floats, masks and 32-bit integers, {J} integers as wide
# as the float, {sF} {sI} suffixes of intrinsics; {bias} {mant} the float format; every further line gets {r}.n
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
    "pow2": "{widen}add {J} {r}.w, {bias}\nshl {J} {r}.0, {mant}\nbitcast {J} {r}.1 to {F}",
    "exponent": "bitcast {F} {0} to {J}\nlshr {J} {r}.0, {mant}\nsub {J} {r}.1, {bias}{narrow}",
    "mantissa": "bitcast {F} {0} to {J}\nand {J} {r}.0, {mask}\nor {J} {r}.1, {one}\nbitcast {J} {r}.2 to {F}",
}


@dataclass(frozen=True)
class Types:
    """How a program's types look in IR at W lanes."""

    lanes: int
    dtype: str
    pointer: str = "ptr"  # to what all threads share: buffers and tables

    def __post_init__(self) -> None:
        if self.lanes < 1:
            raise ValueError("lanes must be positive")

    def vector(self, element: str) -> str:
        return element if self.lanes == 1 else f"<{self.lanes} x {element}>"

    @property
    def element(self) -> str:
        return "float" if self.dtype == "float32" else "double"

    def of(self, t: str) -> str:
        return self.vector({"f": self.element, "b": "i1", "i": "i32"}[t])

    def memory(self, t: str) -> tuple[str, int]:
        """Element type and bytes of a buffer."""
        return {"f": (self.element, 4 if self.dtype == "float32" else 8), "b": ("i8", 1), "i": ("i32", 4)}[t]

    def splat(self, element: str, value: object) -> str:
        return str(value) if self.lanes == 1 else f"splat ({element} {value})"

    def constant(self, t: str, x: Any) -> str:
        if t == "b":
            return self.splat("i1", "true" if x else "false")
        if t == "i":
            return self.splat("i32", int(x))
        return self.splat(self.element, _hex(float(x), self.dtype))

    def formats(self) -> dict[str, str]:
        single = self.dtype == "float32"
        j = "i32" if single else "i64"
        mant = 23 if single else 52
        bias = 127 if single else 1023
        suffix = ("" if self.lanes == 1 else f"v{self.lanes}") + ("f32" if single else "f64")
        return {
            "F": self.of("f"), "B": self.of("b"), "I": self.of("i"), "J": self.vector(j), "L": self.vector("i64"),
            "sF": suffix, "true": self.splat("i1", "true"), "c32": self.splat("i64", 32),
            "bias": self.splat(j, bias), "mant": self.splat(j, mant), "mask": self.splat(j, (1 << mant) - 1),
            "one": self.splat(j, bias << mant),
        }  # fmt: skip


def _hex(x: float, dtype: str) -> str:
    """LLVM writes a float constant as the bits of a double, which must be exact in the type."""
    if dtype == "float32":
        x = ctypes.c_float(x).value
    return f"0x{struct.unpack('>Q', struct.pack('>d', x))[0]:016X}"


def render(program: Program, lanes: int) -> str:
    """IR of `@tile(ptr buffers, i64 first world, i64 worlds allocated)`: one vector of worlds through the program."""
    return _Renderer(program, Types(lanes, program.dtype)).tile()


def render_thread(program: Program, block: int) -> str:
    """IR of `@kernel(pointers to the buffers in order, i64 worlds allocated)` for CUDA.

    Each thread is one world, `block` of them a block.
    """
    return _Renderer(program, Types(1, program.dtype, "ptr addrspace(1)")).thread(block)


class _Renderer:
    def __init__(self, program: Program, types: Types):
        self.p, self.t = program, types
        self.formats = types.formats()
        self.lines: list[str] = []
        self.names: dict[Expr, str] = {}
        self.block = "entry"
        self.count = 0
        self.tables: dict[str, str] = {}
        self.rooms: list[str] = []
        self.which: dict[Expr, tuple[str, str, str]] = {}  # where touched numbers and their masks stand; how many
        self.order = schedule(program)
        self.fused = _fuse(program)
        self.results: dict[Expr, list[tuple[int, Expr]]] = {}
        for e in program.live:
            if e.op == "result":
                self.results.setdefault(e.args[0], []).append((e.attr, e))
        for found in self.results.values():
            found.sort(key=lambda x: x[0])
        self.stores: dict[Expr, list[tuple[int, int]]] = {}
        for buffer, column, value in program.stores:
            if type(value) is Expr and value.op != "load":
                self.stores.setdefault(value, []).append((buffer, column))

    # -- text -------------------------------------------------------------------------------------------------------
    def fresh(self, stem: str = "v") -> str:
        self.count += 1
        return f"%{stem}{self.count}"

    def put(self, line: str) -> None:
        self.lines.append("  " + line)

    def assign(self, text: str) -> str:
        name = self.fresh()
        self.put(f"{name} = {text}")
        return name

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")
        self.block = name

    def value(self, x: object, t: str) -> str:
        if t == "s" and type(x) is int:
            return str(x)
        return self.names[x] if type(x) is Expr else self.t.constant(t, x)

    # -- the function -----------------------------------------------------------------------------------------------
    def tile(self) -> str:
        used = self.used()
        for k in used:
            self.put(f"%a{k} = getelementptr ptr, ptr %buffers, i64 {k}")
            self.put(f"%p{k} = load ptr, ptr %a{k}")
        self.whole()
        self.put("ret void")
        body = "\n".join(self.lines)
        # wide vectors are wanted even where the host's tuning prefers narrower ones
        attributes = 'noinline nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512"'
        head = f"define internal void @tile(ptr %buffers, i64 %world, i64 %worlds) {attributes}"
        room = [
            f"  %s{k} = alloca [{self.p.buffers[k].size} x {self.t.vector(self.t.memory(self.p.buffers[k].type)[0])}]"
            for k in (self.with_rows(used) if self.t.lanes > 1 else ())
        ]
        return "\n".join([*self.tables.values(), f"{head} {{\nentry:", *room, *self.rooms, f"{body}\n}}"])

    def thread(self, block: int) -> str:
        self.put("%thread = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()")
        self.put("%block = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()")
        self.put(f"%before = mul i32 %block, {block}")
        self.put("%index = add i32 %before, %thread")
        self.put("%world = zext i32 %index to i64")
        self.put("%there = icmp ult i64 %world, %worlds")
        self.put("br i1 %there, label %begin, label %end")
        self.label("begin")
        self.whole()
        self.put("br label %end")
        self.label("end")
        self.put("ret void")
        arguments = [f"{self.t.pointer} noalias %p{k}" for k in range(len(self.p.buffers))] + ["i64 %worlds"]
        # All registers that a thread can have: else the assembler may leave some for warps that are not there
        attributes = f'nounwind "nvvm.maxntid"="{block}" "nvvm.maxnreg"="255"'
        head = f"define ptx_kernel void @kernel({', '.join(arguments)}) {attributes}"
        return "\n".join([*self.tables.values(), f"{head} {{\nentry:", *self.rooms, *self.lines, "}"])

    def used(self) -> list[int]:
        return sorted({e.attr[0] for e in self.p.live if e.op == "load"} | {s[0] for s in self.p.stores})

    def with_rows(self, buffers: Iterable[int]) -> list[int]:
        return sorted(k for k in set(buffers) if self.p.buffers[k].rows)

    def whole(self) -> None:
        """The program for the worlds from %world on; buffer k is at %pk."""
        for k in self.with_rows(self.used()):
            self.put(f"%o{k} = mul i64 %world, {self.p.buffers[k].size}")
            element = self.t.memory(self.p.buffers[k].type)[0]
            self.put(f"%q{k} = getelementptr {element}, {self.t.pointer} %p{k}, i64 %o{k}")
        for k in self.with_rows(e.attr[0] for e in self.p.live if e.op == "load"):
            self.turn(k, into_rows=False)
        self.region(self.p.trace.top)
        for k, c, x in self.p.stores:
            if type(x) is not Expr or x.op == "load":
                self.store(k, c, self.value(x, self.p.buffers[k].type))
        for k in self.with_rows(s[0] for s in self.p.stores):
            self.turn(k, into_rows=True)

    def region(self, region: Region) -> None:
        for e in self.order[region]:
            if e.op in FORMS:
                getattr(self, e.op)(e)
            elif e.op == "load":
                self.names[e] = self.load(*e.attr)
            elif e.op in ("lookup", "slookup", "sadd", "get", "memory", "rows", "after", "touched", "chosen"):
                getattr(self, e.op)(e)
            elif e.op == "result":
                self.write_back(e)
            elif e.op not in ("phi", "counter"):
                self.operation(e)

    def operation(self, e: Expr) -> None:
        plan = self.fused.get(e)
        if plan == "skip":
            return
        if plan is not None:
            self.names[e] = self.fma(*plan)
        else:
            types, op = OPS[e.op][0], f"{e.op}, zero" if _chooses_zero(e) else e.op
            self.names[e] = self.template(op, [self.value(a, t) for a, t in zip(e.args, types, strict=True)])
        self.write_back(e)

    def write_back(self, e: Expr) -> None:
        for k, c in self.stores.get(e, ()):
            self.store(k, c, self.names[e])

    def fma(self, a: Any, b: Any, c: Any, negate_product: bool, negate_c: bool) -> str:
        def negated(x: Any) -> str:
            return self.template("neg", [self.value(x, "f")]) if type(x) is Expr else self.value(-x, "f")

        left = negated(a) if negate_product else self.value(a, "f")
        right = negated(c) if negate_c else self.value(c, "f")
        return self.template("fma", [left, self.value(b, "f"), right])

    def template(self, op: str, args: list[str]) -> str:
        r = self.fresh()
        wide = self.t.dtype == "float64"
        widen = f"sext {self.formats['I']} {{0}} to {self.formats['J']}\n" if wide else ""
        narrow = f"\ntrunc {self.formats['J']} {{r}}.2 to {self.formats['I']}" if wide else ""
        text = TEMPLATES[op].replace("{widen}", widen).replace("{narrow}", narrow)
        if op == "pow2":
            text = text.replace("{r}.w", "{r}.0" if wide else "{0}")
            if wide:  # one line more in front: the later ones move on by one
                text = text.replace("shl {J} {r}.0", "shl {J} {r}.1").replace("bitcast {J} {r}.1", "bitcast {J} {r}.2")
        lines = text.format(*args, r=r, **self.formats).split("\n")
        for i, line in enumerate(lines):
            self.put(f"{r if i == len(lines) - 1 else f'{r}.{i}'} = {line}")
        return r

    # -- memory -----------------------------------------------------------------------------------------------------
    def address(self, k: int, c: int) -> str:
        """Of a world-minor column at this tile's first world."""
        offset = self.assign(f"mul i64 %worlds, {c}")
        index = self.assign(f"add i64 {offset}, %world")
        element = self.t.memory(self.p.buffers[k].type)[0]
        return self.assign(f"getelementptr {element}, {self.t.pointer} %p{k}, i64 {index}")

    def load(self, k: int, c: int) -> str:
        buffer = self.p.buffers[k]
        element, size = self.t.memory(buffer.type)
        vector = self.t.vector(element)
        if buffer.rows:
            x = self.assign(f"load {vector}, {self.t.pointer} {self.column(k, c)}, align {size}")
        else:
            x = self.assign(f"load {vector}, {self.t.pointer} {self.address(k, c)}, align {size}")
        if buffer.type == "b":
            x = self.assign(f"icmp ne {vector} {x}, {self.t.splat('i8', 0)}")
        return x

    def store(self, k: int, c: int, x: str) -> None:
        buffer = self.p.buffers[k]
        element, size = self.t.memory(buffer.type)
        vector = self.t.vector(element)
        if buffer.type == "b":
            x = self.assign(f"zext {self.t.of('b')} {x} to {vector}")
        place = self.column(k, c) if buffer.rows else self.address(k, c)
        self.put(f"store {vector} {x}, {self.t.pointer} {place}, align {size}")

    def column(self, k: int, c: int) -> str:
        """Where this tile's column of a row-major buffer stands: a copy on the stack, turned from and into rows."""
        element = self.t.memory(self.p.buffers[k].type)[0]
        base = f"%q{k}" if self.t.lanes == 1 else f"%s{k}"
        return self.assign(f"getelementptr {self.t.vector(element)}, {self.t.pointer} {base}, i64 {c}")

    def turn(self, k: int, into_rows: bool) -> None:
        """Copy between a row-major buffer and its columns: loops, since unrolled they would be most of the code."""
        buffer = self.p.buffers[k]
        element, size = self.t.memory(buffer.type)
        if self.t.lanes == 1:
            return
        n = "out" if into_rows else "in"
        lane, column, row = f"%{n}.lane{k}", f"%{n}.column{k}", f"{n}.row{k}"
        before = self.block
        self.put(f"br label %{row}")
        self.label(row)
        self.put(f"{lane} = phi i64 [ 0, %{before} ], [ {lane}.next, %{row}.end ]")
        start = self.assign(f"mul i64 {lane}, {buffer.size}")
        self.put(f"br label %{row}.columns")
        self.label(f"{row}.columns")
        self.put(f"{column} = phi i64 [ 0, %{row} ], [ {column}.next, %{row}.columns ]")
        first = self.assign(f"mul i64 {column}, {self.t.lanes}")
        places = []
        for base, at, offset in ((f"%s{k}", first, lane), (f"%q{k}", start, column)):
            index = self.assign(f"add i64 {at}, {offset}")
            places.append(self.assign(f"getelementptr {element}, ptr {base}, i64 {index}"))
        source, target = places if into_rows else reversed(places)
        x = self.assign(f"load {element}, ptr {source}, align {size}")
        self.put(f"store {element} {x}, ptr {target}, align {size}")
        self.put(f"{column}.next = add i64 {column}, 1")
        more = self.assign(f"icmp slt i64 {column}.next, {buffer.size}")
        self.put(f"br i1 {more}, label %{row}.columns, label %{row}.end")
        self.label(f"{row}.end")
        self.put(f"{lane}.next = add i64 {lane}, 1")
        more = self.assign(f"icmp slt i64 {lane}.next, {self.t.lanes}")
        self.put(f"br i1 {more}, label %{row}, label %{row}.done")
        self.label(f"{row}.done")

    def table(self, e: Expr, element: str, values: list[str]) -> str:
        """The entry of a constant table at an index."""
        entries = ", ".join(f"{element} {x}" for x in values)
        space = self.t.pointer.removeprefix("ptr")
        text = f"private unnamed_addr{space} constant [{len(values)} x {element}] [{entries}]"
        if text not in self.tables:
            self.tables[text] = f"@table{len(self.tables)} = {text}"
        name = self.tables[text].split(" ", 1)[0]
        at = self.assign(f"getelementptr {element}, {self.t.pointer} {name}, i32 {self.names[e.args[0]]}")
        return self.assign(f"load {element}, {self.t.pointer} {at}")

    def lookup(self, e: Expr) -> None:
        element = self.t.element
        self.names[e] = self.broadcast(self.table(e, element, [_hex(x, self.t.dtype) for x in e.attr]))
        self.write_back(e)

    def slookup(self, e: Expr) -> None:
        self.names[e] = self.table(e, "i32", [str(x) for x in e.attr])

    def sadd(self, e: Expr) -> None:
        a, b = (self.value(x, "s") for x in e.args)
        self.names[e] = self.assign(f"add i32 {a}, {b}")

    # -- memories of vectors, and what is touched ---------------------------------------------------------------------
    def room(self, size: int, of: str) -> str:
        name = self.fresh("m")
        self.rooms.append(f"  {name} = alloca [{size} x {of}]")
        return name

    def place(self, room: Expr, i: object, column: int) -> str:
        """Where a number stands, in steps that many numbers share: the row, what is added to it, the column."""
        vector, (_, width), at = self.t.of("f"), room.attr, self.names[room]
        for part in i.args if type(i) is Expr and i.op == "sadd" else (i,):
            index = self.assign(f"zext i32 {self.value(part, 's')} to i64")
            if width > 1:
                index = self.assign(f"mul i64 {index}, {width}")
            at = self.assign(f"getelementptr {vector}, ptr {at}, i64 {index}")
        return self.assign(f"getelementptr {vector}, ptr {at}, i64 {column}") if column else at

    def memory(self, e: Expr) -> None:
        rows, width = e.attr
        self.names[e] = self.room(rows * width, self.t.of("f"))
        for k, x in enumerate(e.args):
            at = self.assign(f"getelementptr {self.t.of('f')}, ptr {self.names[e]}, i32 {k}")
            self.put(f"store {self.t.of('f')} {self.value(x, 'f')}, ptr {at}")

    def rows(self, e: Expr) -> None:
        self.names[e] = self.names[e.args[0]]

    def get(self, e: Expr) -> None:
        self.names[e] = self.assign(f"load {self.t.of('f')}, ptr {self.place(e.args[0], e.args[1], e.attr)}")
        self.write_back(e)

    def after(self, e: Expr) -> None:
        self.names[e] = self.assign(f"load {self.t.of('f')}, ptr {self.place(e.args[0], e.attr, 0)}")
        self.write_back(e)

    def bits(self, mask: str) -> str:
        return mask if self.t.lanes == 1 else self.assign(f"bitcast {self.t.of('b')} {mask} to i{self.t.lanes}")

    def append(self, lists: tuple[str, str], number: str, mask: str, count: str) -> str:
        """Note a number and its mask if any lane holds; the new count."""
        ids, masks = lists
        integer = f"i{self.t.lanes}"
        bits = self.bits(mask)
        at = self.assign(f"getelementptr {integer}, ptr {masks}, i32 {number}")
        self.put(f"store {integer} {bits}, ptr {at}")
        at = self.assign(f"getelementptr i32, ptr {ids}, i32 {count}")
        self.put(f"store i32 {number}, ptr {at}")
        some = self.assign(f"icmp ne {integer} {bits}, 0")
        more = self.assign(f"zext i1 {some} to i32")
        return self.assign(f"add i32 {count}, {more}")

    def lists(self, n: int) -> tuple[str, str]:
        return self.room(n, "i32"), self.room(n, f"i{self.t.lanes}")

    def touched(self, e: Expr) -> None:
        lists, count = self.lists(e.attr), "0"
        for k, mask in enumerate(e.args):
            count = self.append(lists, str(k), self.value(mask, "b"), count)
        self.which[e] = (*lists, count)

    def chosen(self, e: Expr) -> None:
        self.which[e] = self.which[e.args[0]]

    def each(self, form: Expr) -> None:
        (which,) = form.args
        region, _, number, puts, chosen, carried = form.attr
        ids, masks, count = self.which[which]
        lists = self.lists(which.attr * len(chosen)) if chosen else ("", "")
        before, head, out = self.block, self.fresh("head")[1:], self.fresh("out")[1:]
        some = self.assign(f"icmp sgt i32 {count}, 0")
        self.put(f"br i1 {some}, label %{head}, label %{out}")
        self.label(head)
        live = [k for k, (_, phi, _) in enumerate(carried) if phi in self.p.live]
        variables = [("i32", self.fresh("i"), "0")]
        if chosen:
            variables.append(("i32", self.fresh("n"), "0"))
        for k in live:
            init, phi, _ = carried[k]
            self.names[phi] = self.fresh()
            variables.append((self.t.of(phi.type), self.names[phi], self.value(init, phi.type)))
        at = len(self.lines)
        self.lines += [f"  {name} = phi {type_} [ {init}, %{before} ], " for type_, name, init in variables]
        place = self.assign(f"getelementptr i32, ptr {ids}, i32 {variables[0][1]}")
        self.names[number] = self.assign(f"load i32, ptr {place}")
        integer = f"i{self.t.lanes}"
        place = self.assign(f"getelementptr {integer}, ptr {masks}, i32 {self.names[number]}")
        here = self.assign(f"load {integer}, ptr {place}")
        if self.t.lanes > 1:
            here = self.assign(f"bitcast {integer} {here} to {self.t.of('b')}")

        def masked(t: str, new: str, old: str) -> str:
            return self.assign(f"select {self.t.of('b')} {here}, {self.t.of(t)} {new}, {self.t.of(t)} {old}")

        self.region(region)
        for room, index, column, new, old in puts:
            x = self.value(new, "f")
            if old is not None:
                x = masked("f", x, self.value(old, "f"))
            self.put(f"store {self.t.of('f')} {x}, ptr {self.place(room, index, column)}")
        back = [self.assign(f"add i32 {variables[0][1]}, 1")]
        if chosen:
            n = variables[1][1]
            for k, mask in enumerate(chosen):
                part = self.assign(f"add i32 {self.names[number]}, {k * which.attr}")
                n = self.append(lists, part, masked("b", self.value(mask, "b"), self.t.constant("b", False)), n)
            back.append(n)
        for k in live:
            _, phi, new = carried[k]
            back.append(masked(phi.type, self.value(new, phi.type), self.names[phi]))
        for k, x in enumerate(back):
            self.lines[at + k] += f"[ {x}, %{self.block} ]"
        again = self.assign(f"icmp slt i32 {back[0]}, {count}")
        after = self.block
        self.put(f"br i1 {again}, label %{head}, label %{out}")
        self.label(out)
        ends = [
            self.assign(f"phi {type_} [ {init}, %{before} ], [ {x}, %{after} ]")
            for (type_, _, init), x in zip(variables, back, strict=True)
        ]
        if chosen:
            self.which[form] = (*lists, ends[1])
        for k, e in self.results.get(form, []):
            self.names[e] = ends[1 + bool(chosen) + live.index(k)]

    def broadcast(self, x: str) -> str:
        if self.t.lanes == 1:
            return x
        vector = self.t.of("f")
        one = self.assign(f"insertelement {vector} poison, {self.t.element} {x}, i32 0")
        return self.assign(f"shufflevector {vector} {one}, {vector} poison, <{self.t.lanes} x i32> zeroinitializer")

    # -- control ----------------------------------------------------------------------------------------------------
    def any(self, mask: object) -> str:
        x = self.value(mask, "b")
        if self.t.lanes == 1:
            return x
        bits = self.assign(f"bitcast {self.t.of('b')} {x} to i{self.t.lanes}")
        return self.assign(f"icmp ne i{self.t.lanes} {bits}, 0")

    def masked(self, mask: object, new: object, old: object, t: str) -> str:
        """`new` in the worlds of the mask; a thread that came here is in the mask."""
        if self.t.lanes == 1 or mask is True or new is old or old is None:
            return self.value(new, t)
        chosen, other = (f"{self.t.of(t)} {self.value(x, t)}" for x in (new, old))
        return self.assign(f"select {self.t.of('b')} {self.value(mask, 'b')}, {chosen}, {other}")

    def when(self, form: Expr) -> None:
        (mask,) = form.args
        region, carried = form.attr
        results = self.results.get(form, [])
        go = self.any(mask)
        body, join = self.fresh("body")[1:], self.fresh("join")[1:]
        before = self.block
        self.put(f"br i1 {go}, label %{body}, label %{join}")
        self.label(body)
        self.region(region)
        new = {k: self.masked(mask, carried[k][1], carried[k][0], e.type) for k, e in results}
        after = self.block
        self.put(f"br label %{join}")
        self.label(join)
        for k, e in results:
            old = "poison" if carried[k][0] is None else self.value(carried[k][0], e.type)
            self.names[e] = self.assign(f"phi {self.t.of(e.type)} [ {old}, %{before} ], [ {new[k]}, %{after} ]")
        for k, e in results:
            if carried[k][0] is None and e.type == "b":  # a branch may follow it, and must not follow poison
                self.names[e] = self.assign(f"freeze {self.t.of('b')} {self.names[e]}")

    def loop_head(self, form: Expr, head: str) -> tuple[list, list[int], str]:
        """Open a loop: its variables, with a place left for what comes back."""
        _, _, counter, _, carried = form.attr
        before = self.block
        self.put(f"br label %{head}")
        self.label(head)
        slots: list[tuple[int, str, int | None]] = []
        i = self.fresh("i")
        slots.append((len(self.lines), i, None))
        self.lines.append(f"  {i} = phi i32 [ 0, %{before} ], ")
        self.names[counter] = i
        live = [k for k, (_, phi, _) in enumerate(carried) if phi in self.p.live]
        for k in live:
            init, phi, _ = carried[k]
            self.names[phi] = self.fresh()
            slots.append((len(self.lines), self.names[phi], k))
            first = self.value(init, phi.type)
            self.lines.append(f"  {self.names[phi]} = phi {self.t.of(phi.type)} [ {first}, %{before} ], ")
        return slots, live, i

    def close(self, slots: list, back: dict[int | None, str]) -> None:
        for at, _, k in slots:
            self.lines[at] += f"[ {back[k]}, %{self.block} ]"

    def repeat(self, form: Expr) -> None:
        region, _, _, n, carried = form.attr
        results = self.results.get(form, [])
        head, out = self.fresh("head")[1:], self.fresh("out")[1:]
        slots, live, i = self.loop_head(form, head)
        self.region(region)
        following = self.assign(f"add i32 {i}, 1")
        again = self.assign(f"icmp slt i32 {following}, {n}")
        self.close(slots, {None: following} | {k: self.value(carried[k][2], carried[k][1].type) for k in live})
        self.put(f"br i1 {again}, label %{head}, label %{out}")
        self.label(out)
        for k, e in results:
            self.names[e] = self.value(carried[k][2], e.type)

    def while_(self, form: Expr) -> None:
        (active,) = form.args
        region, n, carried = form.attr[0], form.attr[3], form.attr[4]
        inner = regions_of(form)[1]
        results = self.results.get(form, [])
        head, body, out = (self.fresh(s)[1:] for s in ("head", "body", "out"))
        slots, live, i = self.loop_head(form, head)
        self.region(region)
        go = self.any(active)
        left = self.assign(f"icmp slt i32 {i}, {n}")
        go = self.assign(f"and i1 {go}, {left}")
        self.put(f"br i1 {go}, label %{body}, label %{out}")
        self.label(body)
        self.region(inner)
        back: dict[int | None, str] = {}
        for k in live:
            _, phi, new = carried[k]
            back[k] = self.masked(active, new, phi, phi.type)
        back[None] = self.assign(f"add i32 {i}, 1")
        self.close(slots, back)
        self.put(f"br label %{head}")
        self.label(out)
        for k, e in results:
            self.names[e] = self.names[carried[k][1]]


setattr(_Renderer, "while", _Renderer.while_)


def _chooses_zero(e: Expr) -> bool:
    """Whether e is the lesser or greater of a pair that may be -0 and 0.

    LLVM takes that for a minimum to which zeros are alike, and makes of it what they are not alike to on NVIDIA's chips
    and ARM's, so that the sign would differ from what the comparison says.
    """
    pair = e.args
    if e.op == "select":
        mask, *choice = e.args
        pair = mask.args if type(mask) is Expr and mask.op in ("lt", "le") else ()
        if set(pair) != set(choice):
            return False
    elif e.op not in ("min", "max"):
        return False
    return all(type(a) is Expr or a == 0 for a in pair)


def _fuse(program: Program) -> dict[Expr, Any]:
    """Which sums become fused multiply-adds: a product joins if all its uses are sums in its own region."""
    plans: dict[Expr, Any] = {}
    fusable: dict[Expr, int] = {}
    for e in program.live:
        if e.op == "mul":
            users = program.uses[e]
            if all(u is not None and _is_sum_beside(u, e) for u in users):
                fusable[e] = len(users)
    taken: dict[Expr, int] = {}
    for e in _in_order(program):
        if e.op not in ("add", "sub"):
            continue
        a, b = e.args
        options = [x for x in (b, a) if x in fusable]
        if not options:
            continue
        m = min(options, key=lambda x: fusable[x])
        taken[m] = taken.get(m, 0) + 1
        x, y = m.args
        if type(x) is not Expr:
            x, y = y, x
        if m is b:  # a + xy, a - xy
            plans[e] = (x, y, a, e.op == "sub", False)
        else:  # xy + b, xy - b
            plans[e] = (x, y, b, False, e.op == "sub")
    for m, n in taken.items():
        if n == fusable[m]:
            plans[m] = "skip"
    return plans


def _is_sum_beside(u: Expr, product: Expr) -> bool:
    return u.op in ("add", "sub") and u.region is product.region and u.args[0] is not u.args[1]


def _in_order(program: Program, region: Region | None = None) -> Iterator[Expr]:
    """The live nodes in program order (a set's order would differ between processes)."""
    for e in (region or program.trace.top).nodes:
        if e in program.live:
            yield e
            if e.op in FORMS:
                for inner in dict.fromkeys(regions_of(e)):
                    yield from _in_order(program, inner)

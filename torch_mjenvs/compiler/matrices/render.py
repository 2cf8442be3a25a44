"""From a plan to LLVM IR: a function for each kind of step, and `@kernel`, which calls them phase by phase.

The job that a thread is given is a list of 64-bit numbers, `FIELDS` in order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ..entry import floating_point_mode
from ..expr import Expr
from ..llvm.frames import ROWS
from ..llvm.parts import ATTRIBUTES
from ..llvm.scalars import templates
from ..llvm.writer import Row, Writer
from ..lower import lower
from .multiply import multiply
from .pairs import configure, multiply_tiles, pairs, regroup, release
from .shuffles import gather, row_sums, transpose
from .steps import Apply, Call, Gather, Loop, Matrix, Multiply, Pairs, Phase, Plan, Regroup, RowSums, Step, Transpose
from .text import MatrixText

TYPES = {"f": "float", "l": "i64", "p": "i32"}
One = Multiply | Pairs | Regroup | Transpose | RowSums | Gather | Apply  # the steps that are functions
FIELDS = (
    "memories",  # a pointer to the pointers to the plan's memories
    "rounds",  # how often the phases are done
    "turns",  # how many turns phases have that leave it open
    "number",  # a function that tells a thread its number; null, like the next two, if there is one thread
    "size",  # a function that tells how many threads there are
    "barrier",  # a function that returns when all threads have called it
)

_HEAD = """define void @kernel(ptr %job) nounwind {{
entry:
  %mode = alloca i32
  %plain = alloca i32
  {enter}
  %rounds.at = getelementptr i64, ptr %job, i64 1
  %rounds = load i64, ptr %rounds.at
  %turns.at = getelementptr i64, ptr %job, i64 2
  %turns = load i64, ptr %turns.at
  %number.at = getelementptr i64, ptr %job, i64 3
  %number = load ptr, ptr %number.at
  %size.at = getelementptr i64, ptr %job, i64 4
  %size = load ptr, ptr %size.at
  %barrier.at = getelementptr i64, ptr %job, i64 5
  %barrier = load ptr, ptr %barrier.at
  %many = icmp ne ptr %barrier, null
  %memories = load ptr, ptr %job
  br i1 %many, label %ask, label %known
ask:
  %asked.number = call i32 %number()
  %own.number = zext i32 %asked.number to i64
  %asked.size = call i32 %size()
  %team.size = zext i32 %asked.size to i64
  br label %known
known:
  %thread = phi i64 [ %own.number, %ask ], [ 0, %entry ]
  %threads = phi i64 [ %team.size, %ask ], [ 1, %entry ]
"""


def render(plan: Plan, lanes: int, registers: int, triple: str, tiles: bool = False) -> str:
    """Return the IR of a plan for a processor with this many vector `registers` of `lanes` numbers.

    Products of bfloat16 use AMX if `tiles` is True, else AVX512-BF16.
    """
    return _Module(plan, lanes, registers, triple, tiles).text()


class _Module:
    def __init__(self, plan: Plan, lanes: int, registers: int, triple: str, tiles: bool):
        self.plan, self.lanes, self.registers, self.triple = plan, lanes, registers, triple
        self.types = {m.name: m.type for m in plan.memories}
        self.tiles = tiles and "p" in self.types.values()
        self.functions: dict[str, str] = {}  # names of functions, by the text that follows the name
        self.tables: dict[str, str] = {}

    def text(self) -> str:
        enter, leave = floating_point_mode(self.triple)
        text = MatrixText(self.lanes)
        text.block = "known"
        if self.tiles:
            configure(text)
        memories = {}
        for k, m in enumerate(self.plan.memories):
            start = text.assign(f"load ptr, ptr {text.at('%memories', (k, 1), of='ptr')}")
            memories[m.name] = text.at(start, ("%thread", m.each), of=TYPES[m.type])
        some = text.assign("icmp sgt i64 %rounds, 0")
        head, end = text.fresh_labels("round", "end")
        before = text.block
        text.put(f"br i1 {some}, label %{head}, label %{end}")
        text.label(head)
        place = len(text.lines)
        text.put("")
        for phase in self.plan.phases:
            self._phase(text, phase, memories)
        text.put("%round.next = add i64 %round, 1")
        text.lines[place] = f"  %round = phi i64 [ 0, %{before} ], [ %round.next, %{text.block} ]"
        more = text.assign("icmp slt i64 %round.next, %rounds")
        text.put(f"br i1 {more}, label %{head}, label %{end}")
        text.label(end)
        if self.tiles:
            release(text)
        kernel = [_HEAD.format(enter=enter) + "\n".join(text.lines), f"  {leave}", "  ret void", "}"]
        functions = [f"define internal void {name}{rest}" for rest, name in self.functions.items()]
        return "\n".join([f'target triple = "{self.triple}"', *functions, *kernel, ""])

    def _phase(self, text: MatrixText, phase: Phase, memories: Mapping[str, str]) -> None:
        """Write a loop over a thread's turns, from its number on in steps of %threads; then any wait for the others."""
        head, body, done, wait, on = text.fresh_labels("phase", "turn", "done", "wait", "on")
        before, index, following = text.block, text.fresh("p"), text.fresh("q")
        text.put(f"br label %{head}")
        text.label(head)
        place = len(text.lines)
        text.put("")
        left = text.assign(f"icmp slt i64 {index}, {'%turns' if phase.count is None else phase.count}")
        text.put(f"br i1 {left}, label %{body}, label %{done}")
        text.label(body)
        self._steps(text, phase.steps, memories, {"round": "%round", phase.index: index})
        text.put(f"{following} = add i64 {index}, %threads")
        text.put(f"br label %{head}")
        text.lines[place] = f"  {index} = phi i64 [ %thread, %{before} ], [ {following}, %{text.block} ]"
        text.label(done)
        if not phase.wait:
            return
        text.put(f"br i1 %many, label %{wait}, label %{on}")
        text.label(wait)
        text.put("call void %barrier()")
        text.put(f"br label %{on}")
        text.label(on)

    def _steps(
        self, text: MatrixText, steps: Sequence[Step], memories: Mapping[str, str], indices: Mapping[str, str]
    ) -> None:
        for step in steps:
            if isinstance(step, Loop):
                with text.loop(step.count) as index:
                    self._steps(text, step.steps, memories, {**indices, step.index: index})
                continue
            if isinstance(step, Call):
                at = self._start(text, step.what, memories[step.what.memory], indices)
                function = text.assign(f"load ptr, ptr {at}")
                argument = text.assign(f"load ptr, ptr {text.at(at, (1, 1), of='ptr')}")
                text.put(f"call void {function}(ptr {argument})")
                continue
            pointers = [self._start(text, m, memories[m.memory], indices) for m in step.matrices]
            text.put(f"call void {self._function(step)}({', '.join(f'ptr {p}' for p in pointers)})")

    def _start(self, text: MatrixText, m: Matrix, memory: str, indices: Mapping[str, str]) -> str:
        """Write the address of a matrix's first number."""
        of = TYPES[self.types[m.memory]]
        return text.at(memory, (1, m.offset), *((indices[name], n) for name, n in m.at), of=of)

    def _function(self, step: One) -> str:
        """Return the name of the function that does a step. Steps that differ only in their places share one."""
        arguments = ", ".join(f"ptr %p{k}" for k in range(len(step.matrices)))
        rest = f"({arguments}) {ATTRIBUTES} {{\nentry:\n" + "\n".join([*self._lines(step), "  ret void", "}"])
        return self.functions.setdefault(rest, f"@step{len(self.functions)}")

    def _lines(self, step: One) -> list[str]:
        if isinstance(step, Apply):
            return list(apply(step, self.lanes))
        text = MatrixText(self.lanes)
        if isinstance(step, Multiply):
            of_pairs = self.types[step.a.memory] == "p"
            if of_pairs and self.tiles:
                multiply_tiles(text, step)
            else:
                multiply(text, step, self.registers, of_pairs)
        elif isinstance(step, Pairs):
            pairs(text, step)
        elif isinstance(step, Regroup):
            regroup(text, step)
        elif isinstance(step, Transpose):
            transpose(text, step)
        elif isinstance(step, RowSums):
            row_sums(text, step)
        else:
            gather(text, step)
        return text.lines


def apply(step: Apply, lanes: int) -> Iterator[str]:
    """Write a program's code in a loop over vectors of worlds; buffer k is the k-th matrix."""
    matrices = step.matrices
    rows: dict[str, Row] = ROWS | {
        "load": lambda w, e: _load(w, e, matrices[e.attr[0]]),
        "store": lambda w, e: _store(w, e, matrices[e.attr[0]]),
    }
    types = MatrixText(lanes).types
    w = Writer(lower(step.program), types, rows, templates(types))
    w.block = "head"
    w.region(step.program.trace.top)
    if w.tables:
        raise ValueError(f"{step.program.name}: a program over matrices has no tables")
    yield from w.arrays
    yield "  br label %head"
    yield "head:"
    yield f"  %world = phi i64 [ 0, %entry ], [ %world.next, %{w.block} ]"
    yield from w.lines
    yield f"  %world.next = add i64 %world, {lanes}"
    yield f"  %more = icmp slt i64 %world.next, {step.worlds}"
    yield "  br i1 %more, label %head, label %out"
    yield "out:"


def _load(w: Writer, e: Expr, m: Matrix) -> None:
    k, column = e.attr
    if m.column == 0:
        at = w.assign(f"getelementptr float, ptr %p{k}, i64 {column * m.row}")
        x = w.assign(f"load float, ptr {at}, align 4")
        one = w.assign(f"insertelement {w.types.of('f')} poison, float {x}, i32 0")
        kind = w.types.of("f")
        w.names[e] = w.assign(f"shufflevector {kind} {one}, {kind} poison, <{w.types.lanes} x i32> zeroinitializer")
    else:
        w.names[e] = w.assign(f"load {w.types.of('f')}, ptr {_place(w, k, column, m)}, align 4")


def _store(w: Writer, e: Expr, m: Matrix) -> None:
    k, column = e.attr
    w.put(f"store {w.types.of('f')} {w.value(e.args[0], 'f')}, ptr {_place(w, k, column, m)}, align 4")


def _place(w: Writer, k: int, column: int, m: Matrix) -> str:
    index = w.assign(f"add i64 %world, {column * m.row}")
    return w.assign(f"getelementptr float, ptr %p{k}, i64 {index}")

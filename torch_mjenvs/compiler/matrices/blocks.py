"""From a plan to LLVM IR for NVIDIA's GPUs: a turn of a phase is a block of threads, which share out each step.

The threads of a block wait for each other only between steps that need it. Each result is computed by one thread, as a
chain of operations in the order of the CPU's kernel. So a plan made for vectors of 16 numbers gives the same bits as on
a processor with such vectors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ..expr import Expr
from ..llvm import NVIDIA
from ..llvm.frames import ROWS
from ..llvm.scalars import templates
from ..llvm.writer import Row, Writer
from ..lower import lower
from .block_text import FOUR, THREADS, BlockText, in_fours, stretch, turns_are_apart
from .products import multiply
from .render import TYPES
from .reuse import packed
from .steps import Apply, Call, Gather, Loop, Matrix, Memory, Multiply, Phase, Plan, RowSums, Step, Transpose

LANES = 16  # partial sums of a row, as on a CPU with vectors of 16 numbers
ATTRIBUTES = f'nounwind "nvvm.maxntid"="{THREADS}" "nvvm.maxnreg"="128"'  # so that two blocks fit


class Held(NamedTuple):
    """A memory in the code: its address, and the type of its numbers."""

    start: str
    of: str


@dataclass(frozen=True)
class Grid:
    """The phases of one launch: the IR of its kernel, how many blocks it has, and how many numbers each has of its own.

    These are in `shared` bytes of shared memory. If that is 0, they are in a memory for all blocks, one block's after
    the other's. The kernel's arguments are pointers to the plan's memories in order, and the number of the round.
    """

    ir: str
    blocks: int
    own: int
    shared: int


def launches(plan: Plan) -> list[tuple[Phase, ...]]:
    """Return the phases of each launch: a phase without a wait after it goes with the next one."""
    found, some = [], []
    for phase in plan.phases:
        some.append(phase)
        if phase.wait:
            found.append(tuple(some))
            some = []
    return found


def own_numbers(phases: Sequence[Phase], memories: Sequence[Memory]) -> int:
    """Return how many numbers a block of any of these phases needs in its own memory."""
    names = {m.name for m in memories if m.each}

    def most(steps: Sequence[Step], counts: Mapping[str, int]) -> int:
        found = [0]
        for step in steps:
            if isinstance(step, Call):
                raise ValueError(f"a call, {step}, is not for GPUs")
            if isinstance(step, Loop):
                found.append(most(step.steps, {**counts, step.index: step.count}))
            else:
                for m in step.matrices:
                    if m.memory in names:
                        on = sum(by * (counts[index] - 1) for index, by in m.at)
                        found.append(stretch(m).last + on)
        return max(found)

    return max(most(phase.steps, {}) for phase in phases)


def render(plan: Plan, shared: int) -> list[Grid]:
    """Return the launches of a plan. A block's own memory is shared memory if these `shared` bytes are enough.

    Raises ValueError for a plan with steps that only the CPU has, and for one with more than one memory of blocks' own.
    """
    if any(m.type == "p" for m in plan.memories) or sum(m.each > 0 for m in plan.memories) > 1:
        raise ValueError(f"the plan {plan.name!r} is not for GPUs")
    own = [m.name for m in plan.memories if m.each]
    phases = tuple(packed(phase, own[0]) if own else phase for phase in plan.phases)
    return [_grid(plan, some, shared) for some in launches(replace(plan, phases=phases))]


def _grid(plan: Plan, phases: Sequence[Phase], shared: int) -> Grid:
    counts = [phase.count for phase in phases]
    if None in counts:
        raise ValueError(f"the plan {plan.name!r} has phases of a length that launches say")
    blocks = sum(count for count in counts if count)
    own = own_numbers(phases, plan.memories)
    inside = 0 < 4 * own <= shared
    text = BlockText()
    text.put(f"%thread = call i32 @{NVIDIA.thread}()")
    text.put(f"%block = call i32 @{NVIDIA.block}()")
    text.put("%turn = zext i32 %block to i64")
    memories = {}
    for k, m in enumerate(plan.memories):
        if m.each and inside:
            start = text.assign("addrspacecast ptr addrspace(3) @own to ptr")
        else:
            all_of_it = text.assign(f"addrspacecast ptr addrspace(1) %m{k} to ptr")
            start = text.at(all_of_it, ("%turn", own if m.each else 0))
        memories[m.name] = Held(start, TYPES[m.type])
    first, end = 0, text.fresh_labels("end")[0]
    for phase, count in zip(phases, counts, strict=True):
        assert count is not None
        here, other = text.fresh_labels("phase", "other")
        last = phase is phases[-1]
        if not last:
            mine = text.assign(f"icmp ult i32 %block, {first + count}")
            text.put(f"br i1 {mine}, label %{here}, label %{other}")
            text.label(here)
        turn = text.assign(f"sub i64 %turn, {first}") if first else "%turn"
        _steps(text, phase.steps, memories, {"round": "%round", phase.index: turn})
        text.reads, text.writes = [], []
        text.put(f"br label %{end}")
        if not last:
            text.label(other)
        first += count
    text.label(end)
    text.put("ret void")
    arguments = [f"ptr addrspace(1) %m{k}" for k in range(len(plan.memories))] + ["i64 %round"]
    head = f"define {NVIDIA.convention} void @kernel({', '.join(arguments)}) {ATTRIBUTES} {{\nentry:"
    own_memory = ["@own = external addrspace(3) global [0 x float], align 16"] if inside else []
    lines = [f'target triple = "{NVIDIA.triple}"', *own_memory, head, *text.lines, "}", ""]
    return Grid("\n".join(lines), blocks, own, 4 * own if inside else 0)


def _steps(text: BlockText, steps: Sequence[Step], memories: Mapping[str, Held], indices: Mapping[str, str]) -> None:
    for step in steps:
        if isinstance(step, Loop):
            apart = turns_are_apart(step)
            if apart:
                text.wait_for(*step.steps)  # now, and not in each turn
            with text.loop(step.count) as index:
                if step.count > 1 and not apart:
                    text.wait()
                _steps(text, step.steps, memories, {**indices, step.index: index})
            continue
        assert not isinstance(step, Call)  # see `own_numbers`
        text.begin(step)
        pointers = [_start(text, m, memories[m.memory], indices) for m in step.matrices]
        if isinstance(step, Apply):
            apply(text, step, pointers)
        elif isinstance(step, Multiply):
            multiply(text, step, pointers)
        elif isinstance(step, Transpose):
            transpose(text, step, pointers)
        elif isinstance(step, RowSums):
            row_sums(text, step, pointers)
        else:
            assert isinstance(step, Gather)
            gather(text, step, pointers)


def _start(text: BlockText, m: Matrix, memory: Held, indices: Mapping[str, str]) -> str:
    """Write the address of a matrix's first number."""
    return text.at(memory.start, *((indices[name], n) for name, n in m.at), (1, m.offset), of=memory.of)


def apply(text: BlockText, step: Apply, pointers: Sequence[str]) -> None:
    """Write a program's code, with one thread per world; buffer k is the k-th matrix."""
    with text.each(step.worlds) as item:
        world = text.wide(item)

        def place(e: Expr) -> str:
            k, column = e.attr
            m = step.matrices[k]
            return w.assign(f"getelementptr float, ptr {starts[k]}, i64 {column * m.row}")

        def load(w: Writer, e: Expr) -> None:
            w.names[e] = w.assign(f"load float, ptr {place(e)}, align 4")

        def store(w: Writer, e: Expr) -> None:
            w.put(f"store float {w.value(e.args[0], 'f')}, ptr {place(e)}, align 4")

        starts = [text.at(p, (world, m.column)) for p, m in zip(pointers, step.matrices, strict=True)]
        rows: dict[str, Row] = ROWS | {"load": load, "store": store}
        w = Writer(lower(step.program), text.types, rows, templates(text.types))
        w.go_on(text)
        w.region(step.program.trace.top)
        if w.tables or w.arrays:
            raise ValueError(f"{step.program.name}: a program over matrices has no tables or arrays")
        text.go_on(w)


def transpose(text: BlockText, step: Transpose, pointers: Sequence[str]) -> None:
    """Write a transpose, one square of 4 x 4 per thread.

    Neighbouring threads take squares of different rows and different columns: in shared memory, squares of one row or
    of one column would stand in the same banks.
    """
    out, x = step.out, step.x
    if not (in_fours(out) and in_fours(x)):
        raise ValueError(f"a transpose of {x} to {out} is not one of squares")
    downs, rights = -(-x.rows // FOUR), -(-x.columns // FOUR)
    with text.each(downs * rights) as item:
        along, right = text.split(item, rights)
        down = text.split(text.assign(f"add i32 {along}, {right}"), downs)[1]
        rows, columns = text.within(down, FOUR, x.rows), text.within(right, FOUR, x.columns)
        left, top = (text.assign(f"mul i64 {text.wide(index)}, {FOUR}") for index in (right, down))
        square = [text.several(text.at(pointers[1], (row, x.row), (left, 1))) for row in rows]
        for k, column in enumerate(columns):
            some = f"icmp ult i32 {right}, {x.columns // FOUR}" if k >= x.columns % FOUR > 0 else None
            with text.when(some):
                text.put_four([line[k] for line in square], text.at(pointers[0], (column, out.row), (top, 1)))


def row_sums(text: BlockText, step: RowSums, pointers: Sequence[str]) -> None:
    """Write the sums of rows, each by 16 threads, whose partial sums are then added up by halves."""
    out, x = step.out, step.x
    if x.columns % LANES:
        raise ValueError(f"rows of {x.columns} numbers have no sums of {LANES} lanes")
    vectors, at_once = x.columns // LANES, THREADS // LANES
    for first in range(0, x.rows, at_once):
        rows = min(at_once, x.rows - first)  # threads without a row repeat the last one: all have to take part
        number, lane = text.split("%thread", LANES)
        row = number if rows == at_once else text.assign(f"call i32 @llvm.umin.i32(i32 {number}, i32 {rows - 1})")
        at = text.at(pointers[1], (text.wide(row), x.row), (text.wide(lane), 1), (first, x.row))
        total = text.load(at) if vectors <= 4 else text.add("0.0", text.load(at))
        for k in range(1, vectors):
            total = text.add(total, text.load(text.at(at, (k, LANES))))
        for distance in (1, 2, 4, 8):
            arguments = f"i32 -1, float {total}, i32 {distance}, i32 31"
            total = text.add(total, text.assign(f"call float @llvm.nvvm.shfl.sync.bfly.f32({arguments})"))
        with text.when(f"icmp eq i32 {lane}, 0", f"icmp ult i32 {number}, {rows}" if rows < at_once else None):
            end = text.at(pointers[0], (text.wide(number), out.row), (first, out.row))
            text.store(text.add(text.load(end), total), end)


def gather(text: BlockText, step: Gather, pointers: Sequence[str]) -> None:
    """Write the copying of rows, by their numbers."""
    columns = step.source.columns
    with text.each(step.out.rows * columns) as item:
        i, column = map(text.wide, text.split(item, columns))
        number = text.assign(f"load i64, ptr {text.at(pointers[2], (i, 1), of='i64')}")
        x = text.load(text.at(pointers[1], (number, step.source.row), (column, 1)))
        text.store(x, text.at(pointers[0], (i, step.out.row), (column, 1)))

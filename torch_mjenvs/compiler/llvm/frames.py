"""The function around a program: for a processor, a tile of worlds per call; for a GPU, one world per thread."""

from __future__ import annotations

from ..lower import lower
from ..program import Program
from . import arrays, buffers, control, for_each, queues, scalars, scratch
from .gpu import NVIDIA, Gpu
from .list_order import arrays_in_list_order
from .parts import MARK, Tile
from .types import Types
from .writer import Row, Writer

ROWS: dict[str, Row] = scalars.ROWS | buffers.ROWS | arrays.ROWS | for_each.ROWS | control.ROWS | queues.ROWS


def render(program: Program, lanes: int) -> str:
    """Return `@tile(ptr buffers, i64 first world, i64 worlds allocated)` in IR: a program for a vector of worlds.

    After it come the parts that it calls, each after a MARK.
    """
    types = Types(lanes, program.dtype)
    w = Tile(lower(program), types, ROWS, scalars.templates(types))
    for k in buffers.buffers_used(w):
        w.put(f"%a{k} = getelementptr ptr, ptr %buffers, i64 {k}")
        w.put(f"%p{k} = load ptr, ptr %a{k}")
    _body(w)
    head = "define internal void @tile(ptr %buffers, i64 %world, i64 %worlds)"
    return MARK.join([w.text(head, buffers.column_arrays(w), "%buffers"), *w.parts.values()])


def render_thread(program: Program, gpu: Gpu = NVIDIA) -> str:
    """Return `@kernel(pointers to the buffers in order, i64 worlds allocated)` in IR: a world per thread of a GPU.

    A kernel whose arrays are in scratch memory has two more arguments before the number of worlds: a pointer to that
    memory, and the first world of the launch.
    """
    w = _thread(program, gpu, in_scratch=False)
    arrays, note = w.allocations(), []
    arguments = [f"{gpu.shared} noalias %p{k}" for k in range(len(program.buffers))]
    if scratch.size_of(w.arrays) >= gpu.scratch_from:  # known only after writing
        w = _thread(program, gpu, in_scratch=True)
        arrays, note = [], [scratch.note(w.arrays)]
        arguments += [f"{gpu.shared} noalias %scratch", "i64 %first"]
    arguments.append("i64 %worlds")
    attributes = gpu.attributes.format(threads=gpu.warp * gpu.warps)
    head = f"define {gpu.convention} void @kernel({', '.join(arguments)}) {attributes}"
    return "\n".join([*note, *w.tables.values(), f"{head} {{\nentry:", *arrays, *w.lines, "}"])


def _thread(program: Program, gpu: Gpu, in_scratch: bool) -> Writer:
    """Write the body of a kernel."""
    types = Types(1, program.dtype, gpu.shared, gpu.own)
    w = Writer(lower(program), types, ROWS, scalars.templates(types))
    w.gpu, w.common, w.in_scratch = gpu, {program.trace.top}, in_scratch
    w.in_list_order = arrays_in_list_order(w.live)
    asked = [gpu.thread, gpu.block, *([gpu.size] if gpu.warps > 1 else [])]
    numbers = [w.assign(f"call i32 @{x}()") for x in asked]
    # in 64 bits: pictures may have more pixels than 32 bits count
    thread, block, *size = [w.assign(f"zext i32 {x} to i64") for x in numbers]
    before = w.assign(f"mul i64 {block}, {size[0] if size else gpu.warp}")
    place = "place" if in_scratch else "world"
    w.put(f"%{place} = add i64 {before}, {thread}")
    if in_scratch:
        w.put("%world = add i64 %place, %first")
    w.put("%there = icmp ult i64 %world, %worlds")
    w.put("br i1 %there, label %begin, label %end")
    w.label("begin")
    begin = len(w.lines)
    _body(w)
    if in_scratch:
        w.lines[begin:begin] = scratch.places(w.arrays, gpu)
    w.put("br label %end")
    w.label("end")
    w.put("ret void")
    return w


def _body(w: Writer) -> None:
    """Write the program for the worlds from %world on; buffer k is at %pk."""
    buffers.find_rows(w)
    buffers.rows_to_columns(w)
    w.region(w.program.trace.top)
    buffers.columns_to_rows(w)

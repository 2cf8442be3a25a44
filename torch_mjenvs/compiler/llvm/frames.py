"""The function around a program: for a processor, a tile of worlds per call; for a GPU, one world per thread."""

from __future__ import annotations

from ..lower import lower
from ..program import Program
from . import arrays, buffers, control, for_each, queues, scalars, scratch
from .gpu import NVIDIA, Gpu
from .list_order import arrays_in_list_order
from .types import Types
from .writer import Row, Writer

ROWS: dict[str, Row] = scalars.ROWS | buffers.ROWS | arrays.ROWS | for_each.ROWS | control.ROWS | queues.ROWS

# wide vectors are wanted even where the host's tuning prefers narrower ones
TILE = 'noinline nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512"'

# Tangents are tens of thousands of lines in a row, and so are large kernels. The longer a block, the longer LLVM takes
# for each of its lines. And with its models of AMD's processors it orders instructions once more at the end. This takes
# an eighth of the time, of large kernels a third, and makes code no faster.
LONGEST = 1000  # lines of a block
LARGE = 120_000  # nodes of a kernel: some ten seconds of LLVM's time
UNTUNED = ' "tune-cpu"="generic"'


def render(program: Program, lanes: int) -> str:
    """Return `@tile(ptr buffers, i64 first world, i64 worlds allocated)` in IR: a program for a vector of worlds."""
    w = _writer(program, Types(lanes, program.dtype))
    for k in buffers.buffers_used(w):
        w.put(f"%a{k} = getelementptr ptr, ptr %buffers, i64 {k}")
        w.put(f"%p{k} = load ptr, ptr %a{k}")
    attributes = TILE + _stack_alignment(w.types)
    if program.trace.derivatives == "forward" or len(program.live) > LARGE:
        w.longest = LONGEST
        attributes += UNTUNED
        w.put("%go = icmp ne ptr %buffers, null")  # always true, but LLVM does not know that
    _body(w)
    w.put("ret void")
    if w.longest:
        w.label("gone")
        w.put("ret void")
    head = f"define internal void @tile(ptr %buffers, i64 %world, i64 %worlds) {attributes}"
    body = "\n".join(w.lines)
    return "\n".join([*w.tables.values(), f"{head} {{\nentry:", *buffers.column_arrays(w), *_arrays(w), f"{body}\n}}"])


def render_thread(program: Program, gpu: Gpu = NVIDIA) -> str:
    """Return `@kernel(pointers to the buffers in order, i64 worlds allocated)` in IR: a world per thread of a GPU.

    A kernel whose arrays are in scratch memory has two more arguments before the number of worlds: a pointer to that
    memory, and the first world of the launch.
    """
    w = _thread(program, gpu, in_scratch=False)
    arrays, note = _arrays(w), []
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
    w = _writer(program, Types(1, program.dtype, gpu.shared, gpu.own))
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


def _arrays(w: Writer) -> list[str]:
    """Return the lines that allocate a function's arrays in its own memory."""
    return [f"  {name} = {w.types.array(n, of)}" for name, (n, of) in w.arrays.items()]


def _stack_alignment(types: Types) -> str:
    """Return the attribute that keeps spilled vectors within one line of the cache, not across two: the stack that a
    function is called with is aligned to 16 bytes only.
    """
    size = types.lanes * types.memory("f")[1]
    return f" alignstack({size})" if size > 16 else ""


def _writer(program: Program, types: Types) -> Writer:
    return Writer(lower(program), types, ROWS, scalars.templates(types))


def _body(w: Writer) -> None:
    """Write the program for the worlds from %world on; buffer k is at %pk."""
    buffers.find_rows(w)
    buffers.rows_to_columns(w)
    w.region(w.program.trace.top)
    buffers.columns_to_rows(w)

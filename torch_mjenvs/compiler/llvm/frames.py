"""The function around a program: for a processor, a tile of worlds per call; for a GPU, one world per thread."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..lower import lower
from ..program import Program
from . import arrays, buffers, control, for_each, queues, scalars
from .gpu import NVIDIA, Gpu
from .list_order import arrays_in_list_order
from .types import Types
from .writer import Row, Writer

ROWS: dict[str, Row] = scalars.ROWS | buffers.ROWS | arrays.ROWS | for_each.ROWS | control.ROWS | queues.ROWS

# wide vectors are wanted even where the host's tuning prefers narrower ones
TILE = 'noinline nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512"'

# Tangents are tens of thousands of lines in a row. The longer a block, the longer LLVM takes for each of its lines. And
# with its models of AMD's processors it orders instructions once more at the end, which takes an eighth of the time and
# makes code no faster.
LONGEST = 1000  # lines of a block
UNTUNED = ' "tune-cpu"="generic"'


def render(program: Program, lanes: int) -> str:
    """Return `@tile(ptr buffers, i64 first world, i64 worlds allocated)` in IR: a program for a vector of worlds."""
    w = _writer(program, Types(lanes, program.dtype))
    for k in buffers.buffers_used(w):
        w.put(f"%a{k} = getelementptr ptr, ptr %buffers, i64 {k}")
        w.put(f"%p{k} = load ptr, ptr %a{k}")
    attributes = TILE + _stack_alignment(w.types)
    if program.trace.derivatives == "forward":
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
    return "\n".join([*w.tables.values(), f"{head} {{\nentry:", *buffers.column_arrays(w), *w.arrays, f"{body}\n}}"])


def render_thread(program: Program, gpu: Gpu = NVIDIA) -> str:
    """Return `@kernel(pointers to the buffers in order, i64 worlds allocated)` in IR: a world per thread of a GPU.

    A kernel with arrays in scratch memory has two arguments more before the number of worlds: a pointer to it, and the
    first world of this launch. `scratch_bytes` reads from the code how much memory a world needs.
    """
    w = _writer(program, Types(1, program.dtype, gpu.shared, gpu.own))
    w.gpu, w.common = gpu, {program.trace.top}
    w.in_list_order = arrays_in_list_order(w.live)
    w.put(f"%thread = call i32 @{gpu.thread}()")
    w.put(f"%block = call i32 @{gpu.block}()")
    size = w.assign(f"call i32 @{gpu.size}()") if gpu.warps > 1 else gpu.warp
    w.put(f"%before = mul i32 %block, {size}")
    w.put("%index = add i32 %before, %thread")
    start = len(w.lines)
    w.label("begin")
    body = len(w.lines)
    _body(w)
    w.put("br label %end")
    w.label("end")
    w.put("ret void")
    arguments = [f"{gpu.shared} noalias %p{k}" for k in range(len(program.buffers))]
    head = []
    if w.scratch:
        arguments += [f"{gpu.shared} noalias %scratch", "i64 %first"]
        size, lines = _scratch(w.scratch, gpu)
        w.lines[body:body] = lines
        head = [f'module asm "{SCRATCH.format(size)}"']
    world = ["%place = zext i32 %index to i64", "%world = add i64 %place, %first"]
    world = world if w.scratch else ["%world = zext i32 %index to i64"]
    there = [*world, "%there = icmp ult i64 %world, %worlds", "br i1 %there, label %begin, label %end"]
    w.lines[start:start] = [f"  {line}" for line in there]
    arguments.append("i64 %worlds")
    attributes = gpu.attributes.format(threads=gpu.warp * gpu.warps)
    define = f"define {gpu.convention} void @kernel({', '.join(arguments)}) {attributes}"
    return "\n".join([*head, *w.tables.values(), f"{define} {{\nentry:", *w.arrays, *w.lines, "}"])


SCRATCH = "// scratch memory: {} bytes a world"  # a comment of PTX
BYTES = {"double": 8, "float": 4, "i32": 4, "i1": 1}


def scratch_bytes(code: str) -> int:
    """Return how many bytes of scratch memory a world needs of a kernel with this PTX. It is for whole warps."""
    found = re.search(re.escape(SCRATCH).replace(r"\{\}", r"(\d+)"), code)
    return int(found[1]) if found else 0


def _scratch(arrays: Mapping[str, tuple[int, str]], gpu: Gpu) -> tuple[int, list[str]]:
    """Return how many bytes arrays in scratch memory take for a world, and the lines that find them.

    The entries of a warp's threads are side by side, so that threads that read the same entry read one line of memory.
    """
    size, lines, places = 0, [], []
    for kind, width in sorted(BYTES.items(), key=lambda x: -x[1]):
        if not any(of == kind for _, of in arrays.values()):
            continue
        lines.append(f"%lane.{kind} = getelementptr {kind}, {gpu.shared} %warp, i64 %lane")
        for name, (n, of) in arrays.items():
            if of == kind:
                at = f"getelementptr i8, {gpu.shared} %lane.{kind}, i64 {gpu.warp * size}"
                places += [f"{name}.at = {at}", f"{name} = addrspacecast {gpu.shared} {name}.at to {gpu.own}"]
                size += n * width
    size = -(-size // 8) * 8
    begin = [
        f"%before.warps = udiv i64 %place, {gpu.warp}", f"%lane = urem i64 %place, {gpu.warp}",
        f"%offset = mul i64 %before.warps, {gpu.warp * size}",
        f"%warp = getelementptr i8, {gpu.shared} %scratch, i64 %offset",
    ]  # fmt: skip
    return size, [f"  {line}" for line in (*begin, *lines, *places)]


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

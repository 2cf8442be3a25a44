"""The entry point of every thread: IR of `@kernel(ptr job)`, which runs tiles of worlds until none are left.

The job is a list of 64-bit numbers, `FIELDS` in order. A thread takes `chunk` tiles at a time off a shared counter, so
one that the machine holds up does not hold up the others.

While tiles are done, the floating-point mode is our own: rounding to nearest, subnormal numbers kept. Otherwise bits
would depend on `torch.set_flush_denormal`, and on which thread has it set.

Tiles are done on a stack that the job brings (but not on Windows, which knows where its threads' stacks are). A large
model spills hundreds of kilobytes, and a thread may have as few as 16: the stack's size is for others to choose, by
`OMP_STACKSIZE` or `threading.stack_size`; on macOS it is 512 kilobytes.
"""

from __future__ import annotations

import re

FIELDS = (
    "buffers",  # a pointer to the pointers to the program's buffers
    "counter",  # a pointer to the number of the first tile that no thread has taken
    "tiles",
    "chunk",
    "worlds",  # how many are allocated
    "times",  # how often each tile is done
    "stacks",  # a pointer to those of all threads, one after the other
    "stack_bytes",  # the size of one stack
    "thread_index",  # the number of the next thread that comes, if `number` is null
    "number",  # a function that tells a thread which stack is its own
)

_DEAL = """
define internal void @deal(ptr %job) noinline nounwind {{
entry:
  %buffers.at = getelementptr i64, ptr %job, i64 {buffers}
  %buffers = load ptr, ptr %buffers.at
  %counter.at = getelementptr i64, ptr %job, i64 {counter}
  %counter = load ptr, ptr %counter.at
  %tiles.at = getelementptr i64, ptr %job, i64 {tiles}
  %tiles = load i64, ptr %tiles.at
  %chunk.at = getelementptr i64, ptr %job, i64 {chunk}
  %chunk = load i64, ptr %chunk.at
  %worlds.at = getelementptr i64, ptr %job, i64 {worlds}
  %worlds = load i64, ptr %worlds.at
  %times.at = getelementptr i64, ptr %job, i64 {times}
  %times = load i64, ptr %times.at
  br label %grab
grab:
  %first = atomicrmw add ptr %counter, i64 %chunk monotonic
  %some = icmp slt i64 %first, %tiles
  br i1 %some, label %work, label %exit
work:
  %end = add i64 %first, %chunk
  %last = call i64 @llvm.smin.i64(i64 %end, i64 %tiles)
  br label %next
next:
  %tile = phi i64 [ %first, %work ], [ %following, %latch ]
  %world = mul i64 %tile, {lanes}
  br label %again
again:
  %done = phi i64 [ 0, %next ], [ %more, %again ]
  call void @tile(ptr %buffers, i64 %world, i64 %worlds)
  %more = add i64 %done, 1
  %repeated = icmp slt i64 %more, %times
  br i1 %repeated, label %again, label %latch
latch:
  %following = add i64 %tile, 1
  %left = icmp slt i64 %following, %last
  br i1 %left, label %next, label %grab
exit:
  ret void
}}
"""

# `held`, whose size is not known, makes the code address its frame by the frame pointer, whatever the stack pointer is.
_KERNEL = """
define void @kernel(ptr %job) nounwind "frame-pointer"="all" {{
entry:
  %mode = alloca i32
  %plain = alloca i32
  {enter}
  %number.at = getelementptr i64, ptr %job, i64 {number}
  %number = load ptr, ptr %number.at
  %numbered = icmp ne ptr %number, null
  br i1 %numbered, label %ask, label %count
ask:
  %asked = call i32 %number()
  %known = zext i32 %asked to i64
  br label %indexed
count:
  %thread_index.at = getelementptr i64, ptr %job, i64 {thread_index}
  %next = atomicrmw add ptr %thread_index.at, i64 1 monotonic
  br label %indexed
indexed:
  %thread_index = phi i64 [ %known, %ask ], [ %next, %count ]
  %stacks.at = getelementptr i64, ptr %job, i64 {stacks}
  %stacks = load ptr, ptr %stacks.at
  %stack_bytes.at = getelementptr i64, ptr %job, i64 {stack_bytes}
  %stack_bytes = load i64, ptr %stack_bytes.at
  %before = mul i64 %thread_index, %stack_bytes
  %end = add i64 %before, %stack_bytes
  %top = getelementptr i8, ptr %stacks, i64 %end
  %few = and i64 %thread_index, 1
  %held = alloca i8, i64 %few
  %own = call ptr @llvm.stacksave.p0()
  call void @llvm.stackrestore.p0(ptr %top)
  call void @deal(ptr %job)
  call void @llvm.stackrestore.p0(ptr %own)
  {leave}
  ret void
}}
"""

_KERNEL_HERE = """
define void @kernel(ptr %job) nounwind {{
entry:
  %mode = alloca i32
  %plain = alloca i32
  {enter}
  call void @deal(ptr %job)
  {leave}
  ret void
}}
"""

_STACK_BYTES = """
define i64 @stack_bytes() nounwind {{
  ret i64 {stack_bytes}
}}
"""

_X86 = (
    "call void @llvm.x86.sse.stmxcsr(ptr %mode)\n  store i32 8064, ptr %plain\n"  # 0x1f80: every exception masked
    "  call void @llvm.x86.sse.ldmxcsr(ptr %plain)",
    "call void @llvm.x86.sse.ldmxcsr(ptr %mode)",
)
_ARM = (
    "%was = call i64 @llvm.aarch64.get.fpcr()\n  call void @llvm.aarch64.set.fpcr(i64 0)",
    "call void @llvm.aarch64.set.fpcr(i64 %was)",
)


def entry(tile: str, lanes: int, vector_bytes: int, triple: str) -> str:
    """Return `@kernel` for a `@tile`, and `@stack_bytes()`: the bytes of stack for a thread, 0 if it uses its own."""
    enter, leave = floating_point_mode(triple)
    places = {name: k for k, name in enumerate(FIELDS)}
    here = "windows" in triple
    parts = (
        _DEAL,
        _KERNEL_HERE if here else _KERNEL,
        _STACK_BYTES.replace("{stack_bytes}", "0" if here else str(_stack_bytes(tile, vector_bytes))),
    )
    return "".join(part.format(lanes=lanes, enter=enter, leave=leave, **places) for part in parts)


def floating_point_mode(triple: str) -> tuple[str, str]:
    """Return IR that sets our floating-point mode, and IR that sets it back, with `%mode` and `%plain` of 32 bits."""
    return _X86 if triple.startswith("x86_64") else _ARM


def _stack_bytes(tile: str, vector_bytes: int) -> int:
    """Return how many bytes of stack suffice for a tile: for its arrays, all values, and a signal's handler.

    A value is at most a vector of numbers twice as wide, or, where the processor has no such vectors, 16 bytes for each
    lane. Most values never leave their registers: this is address space, of which little is touched. The size is a
    power of two, so that many kernels share it.
    """
    arrays = 0
    for count, lanes, element in re.findall(r"= alloca \[(\d+) x (?:<(\d+) x )?(\w+)>?\]", tile):
        bits = {"float": 32, "double": 64}.get(element) or int(element.removeprefix("i"))
        arrays += int(count) * int(lanes or 1) * -(-bits // 8)
    enough = arrays + 4 * vector_bytes * tile.count(" = ") + (1 << 17)
    return 1 << enough.bit_length()

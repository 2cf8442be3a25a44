"""The text of a function that a block of a GPU's threads runs together, and what of memory its steps touch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from .steps import Apply, Gather, Matrix, Multiply, RowSums, Step, Transpose
from .text import MatrixText

THREADS = 256  # of a block: two warps for each of a multiprocessor's four schedulers
FOUR = 4  # numbers that a thread loads or stores at once


@dataclass(frozen=True)
class Stretch:
    """Numbers of a memory from `first` to before `last`, moved on by the indices of `at`."""

    memory: str
    at: tuple[tuple[str, int], ...]
    first: int
    last: int

    def meets(self, other: Stretch) -> bool:
        """Say whether both may have a number in common."""
        apart = self.at == other.at and (self.last <= other.first or other.last <= self.first)
        return self.memory == other.memory and not apart


def stretch(m: Matrix) -> Stretch:
    """Return what is touched of a matrix, to the end of the last four numbers."""
    last = m.offset + (m.rows - 1) * m.row + (m.columns - 1) * m.column
    return Stretch(m.memory, m.at, m.offset, (last // FOUR + 1) * FOUR)


def touched(step: Step) -> tuple[list[Stretch], list[Stretch]]:
    """Return what a step reads, and what it writes."""
    if isinstance(step, Apply):
        read = {e.attr[0] for e in step.program.live if e.op == "load"}
        written = {k for k, _, _ in step.program.stores}
        of = [stretch(m) for m in step.matrices]
        return [of[k] for k in sorted(read)], [of[k] for k in sorted(written)]
    if not isinstance(step, Multiply | Transpose | RowSums | Gather):
        raise ValueError(f"{type(step).__name__} is not a step of a GPU's kernels")
    out, *others = (stretch(m) for m in step.matrices)
    return ([out, *others] if isinstance(step, RowSums) else others), [out]


class BlockText(MatrixText):
    """The lines of a function of a block. `%thread` is a thread's number in it, of 32 bits."""

    def __init__(self) -> None:
        super().__init__(1)
        self.reads: list[Stretch] = []  # since all threads last waited for each other
        self.writes: list[Stretch] = []

    def wait(self) -> None:
        """Have the threads wait for each other, if there is anything that one may have from another."""
        if self.reads or self.writes:
            self.put("call void @llvm.nvvm.barrier0()")
            self.reads, self.writes = [], []

    def begin(self, step: Step) -> None:
        """Have the threads wait for what a step reads, and for who still reads what it writes."""
        reads, writes = touched(step)
        if any(a.meets(b) for a in reads for b in self.writes) or any(
            a.meets(b) for a in writes for b in [*self.reads, *self.writes]
        ):
            self.wait()
        self.reads += reads
        self.writes += writes

    @contextmanager
    def each(self, count: int) -> Iterator[str]:
        """Write what is done for each number below `count`, by one thread each, and give its name, of 32 bits."""
        if count <= THREADS:
            with self.when(f"icmp ult i32 %thread, {count}" if count < THREADS else None):
                yield "%thread"
            return
        head, out = self.fresh_labels("head", "out")
        index, before = self.fresh("i"), self.block
        self.put(f"br label %{head}")
        self.label(head)
        place = len(self.lines)
        self.put("")
        yield index
        following = self.assign(f"add i32 {index}, {THREADS}")
        self.lines[place] = f"  {index} = phi i32 [ %thread, %{before} ], [ {following}, %{self.block} ]"
        more = self.assign(f"icmp ult i32 {following}, {count}")
        self.put(f"br i1 {more}, label %{head}, label %{out}")
        self.label(out)

    @contextmanager
    def when(self, *tests: str | None) -> Iterator[None]:
        """Write what is done where all of these comparisons hold; None always does."""
        names = [self.assign(test) for test in tests if test]
        if not names:
            yield
            return
        test = names[0]
        for name in names[1:]:
            test = self.assign(f"and i1 {test}, {name}")
        some, on = self.fresh_labels("some", "on")
        self.put(f"br i1 {test}, label %{some}, label %{on}")
        self.label(some)
        yield
        self.put(f"br label %{on}")
        self.label(on)

    def split(self, index: str, by: int) -> tuple[str, str]:
        """Write the quotient and the remainder of an index of 32 bits."""
        if by == 1:
            return index, "0"
        whole = self.assign(f"udiv i32 {index}, {by}")
        return whole, self.assign(f"urem i32 {index}, {by}")

    def wide(self, index: str) -> str:
        """Write an index of 32 bits as one of 64."""
        return index if index == "0" else self.assign(f"zext i32 {index} to i64")

    def within(self, index: str, size: int, count: int) -> list[str]:
        """Write the numbers (64 bits) of `size` things from index * size on; of the last of `count` those beyond it."""
        first = index if size == 1 else self.assign(f"mul i32 {index}, {size}")
        numbers = [first if k == 0 else self.assign(f"add i32 {first}, {k}") for k in range(size)]
        if count % size:
            numbers = [self.assign(f"call i32 @llvm.umin.i32(i32 {x}, i32 {count - 1})") for x in numbers]
        return [self.wide(x) for x in numbers]

    def four(self, at: str) -> list[str]:
        """Write the load of four neighbours, whose first one stands at a multiple of 16 bytes."""
        x = self.assign(f"load <4 x float>, ptr {at}, align 16")
        return [self.assign(f"extractelement <4 x float> {x}, i32 {k}") for k in range(FOUR)]

    def put_four(self, numbers: Sequence[str], at: str) -> None:
        """Write the store of four neighbours."""
        x = "poison"
        for k, number in enumerate(numbers):
            x = self.assign(f"insertelement <4 x float> {x}, float {number}, i32 {k}")
        self.put(f"store <4 x float> {x}, ptr {at}, align 16")


def in_fours(m: Matrix) -> bool:
    """Say whether the neighbours in each row, or in each column if they are neighbours, come in whole fours."""
    step = m.row if m.column == 1 else m.column
    return 1 in (m.row, m.column) and all(n % FOUR == 0 for n in (m.offset, step, *(by for _, by in m.at)))

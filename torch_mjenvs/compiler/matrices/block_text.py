"""The text of a function that a block of a GPU's threads runs together, and the memory that its steps touch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from .steps import Apply, Gather, Loop, Matrix, Multiply, RowSums, Step, Transpose
from .text import MatrixText

THREADS = 256  # of a block: two warps for each of a multiprocessor's four schedulers
FOUR = 4  # numbers that a thread loads or stores at once


@dataclass(frozen=True)
class Stretch:
    """Numbers of a memory from `first` to before `last`, moved on by the indices of `at`.

    If each thread has its own columns of a matrix, `columns` says how long its rows are in memory, and where in them
    the first column is.
    """

    memory: str
    at: tuple[tuple[str, int], ...]
    first: int
    last: int
    columns: tuple[int, int] | None = None

    def meets(self, other: Stretch, index: str = "") -> bool:
        """Return whether one thread may touch a number here that another thread touches in the other stretch.

        With an `index`, they do so in different turns of the loop with this index.
        """
        if self.memory != other.memory or (self.columns and self.columns == other.columns):
            return False
        if self.at != other.at:
            return True
        if index:
            return max(self.last, other.last) - min(self.first, other.first) > abs(dict(self.at).get(index, 0))
        return self.first < other.last and other.first < self.last


def stretch(m: Matrix, worlds: int = 0) -> Stretch:
    """Return the stretch that a matrix covers, to the end of its last four numbers. worlds: if not 0, each column is
    touched by its own world's thread.
    """
    last = m.offset + (m.rows - 1) * m.row + (m.columns - 1) * m.column
    own = m.column == 1 and 0 < worlds <= m.row and all(by % m.row == 0 for _, by in m.at)
    return Stretch(m.memory, m.at, m.offset, (last // FOUR + 1) * FOUR, (m.row, m.offset % m.row) if own else None)


def touched(step: Step) -> tuple[list[Stretch], list[Stretch]]:
    """Return what a step reads, and what it writes."""
    if isinstance(step, Apply):
        read = {e.attr[0] for e in step.program.live if e.op == "load"}
        written = {k for k, _, _ in step.program.stores}
        of = [stretch(m, step.worlds) for m in step.matrices]
        return [of[k] for k in sorted(read)], [of[k] for k in sorted(written)]
    if not isinstance(step, Multiply | Transpose | RowSums | Gather):
        raise ValueError(f"{type(step).__name__} is not a step of a GPU's kernels")
    if isinstance(step, Multiply) and step.ahead:
        raise ValueError("a GPU's products fetch no rows")
    out, *others = (stretch(m) for m in step.matrices)
    return ([out, *others] if isinstance(step, RowSums) else others), [out]


def turns_are_apart(loop: Loop) -> bool:
    """Return whether no turn of a loop of plain steps needs what a thread has made in another turn."""
    if any(isinstance(step, Loop) for step in loop.steps):
        return False
    reads, writes = zip(*map(touched, loop.steps), strict=True)
    written = [x for some in writes for x in some]
    return not any(a.meets(b, loop.index) for a in written for b in [*written, *(x for some in reads for x in some)])


class BlockText(MatrixText):
    """The lines of a function that a block of threads runs. `%thread` is a thread's number in the block, of 32 bits."""

    def __init__(self) -> None:
        super().__init__(1)
        self.reads: list[Stretch] = []  # since all threads last waited for each other
        self.writes: list[Stretch] = []

    def wait(self) -> None:
        """Make the threads wait for each other."""
        self.put("call void @llvm.nvvm.barrier0()")
        self.reads, self.writes = [], []

    def begin(self, step: Step) -> None:
        """Make the threads wait until all that a step reads is written, and nobody uses what it writes any more."""
        self.wait_for(step)
        reads, writes = touched(step)
        self.reads += reads
        self.writes += writes

    def wait_for(self, *steps: Step) -> None:
        """Make the threads wait now, if one of these steps needs it, which follow later."""
        for reads, writes in map(touched, steps):
            if any(a.meets(b) for a in reads for b in self.writes) or any(
                a.meets(b) for a in writes for b in [*self.reads, *self.writes]
            ):
                self.wait()

    @contextmanager
    def each(self, count: int) -> Iterator[str]:
        """Write what one thread does for each number below `count`; yield the number's name, of 32 bits."""
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
        """Write the numbers (64 bits) of `size` things from index * size on, each limited to `count` - 1."""
        first = index if size == 1 else self.assign(f"mul i32 {index}, {size}")
        numbers = [first if k == 0 else self.assign(f"add i32 {first}, {k}") for k in range(size)]
        if count % size:
            numbers = [self.assign(f"call i32 @llvm.umin.i32(i32 {x}, i32 {count - 1})") for x in numbers]
        return [self.wide(x) for x in numbers]

    def several(self, at: str, count: int = FOUR) -> list[str]:
        """Write the load of four neighbours, or two, at an address that is a multiple of their size together."""
        x = self.assign(f"load <{count} x float>, ptr {at}, align {4 * count}")
        return [self.assign(f"extractelement <{count} x float> {x}, i32 {k}") for k in range(count)]

    def put_four(self, numbers: Sequence[str], at: str) -> None:
        """Write the store of four neighbours."""
        x = "poison"
        for k, number in enumerate(numbers):
            x = self.assign(f"insertelement <4 x float> {x}, float {number}, i32 {k}")
        self.put(f"store <4 x float> {x}, ptr {at}, align 16")


def in_fours(m: Matrix) -> bool:
    """Return whether a matrix's rows (or its columns, if their entries are neighbours) begin at multiples of four."""
    step = m.row if m.column == 1 else m.column
    return 1 in (m.row, m.column) and all(n % FOUR == 0 for n in (m.offset, step, *(by for _, by in m.at)))

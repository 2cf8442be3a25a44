"""The text of functions over matrices: loops, addresses and vectors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ..llvm.types import Types
from ..llvm.writer import Text

LINE = 16  # numbers of a cache line


class Counted:
    """A loop that is being written: the name of its counter, and of each value that it carries on."""

    def __init__(self, text: MatrixText, count: int, carried: Sequence[tuple[str, str]]):
        """Begin a loop of `count` turns. `carried` has the type and first value of what it carries on."""
        self._text, self._count = text, count
        self._head, self._out = text.fresh_labels("head", "out")
        before = text.block
        text.put(f"br label %{self._head}")
        text.label(self._head)
        self.index = text.fresh("i")
        self.values = [text.fresh("c") for _ in carried]
        self._phis = [
            (len(text.lines) + k, f"  {name} = phi {type_} [ {first}, %{before} ], ")
            for k, (name, (type_, first)) in enumerate(
                zip([self.index, *self.values], [("i64", "0"), *carried], strict=True)
            )
        ]
        text.lines += [""] * len(self._phis)

    def close(self, values: Sequence[str] = ()) -> None:
        """End the loop; `values` are what a turn made of those that it carries on, and stay valid after it."""
        text = self._text
        following = text.assign(f"add i64 {self.index}, 1")
        for (place, start), value in zip(self._phis, [following, *values], strict=True):
            text.lines[place] = f"{start}[ {value}, %{text.block} ]"
        again = text.assign(f"icmp slt i64 {following}, {self._count}")
        text.put(f"br i1 {again}, label %{self._head}, label %{self._out}")
        text.label(self._out)


class MatrixText(Text):
    """The lines of a function over matrices of float32, in vectors of this many lanes."""

    def __init__(self, lanes: int):
        super().__init__()
        self.lanes = lanes
        self.types = Types(lanes, "float32")
        self.vector = self.types.of("f")
        self.suffix = "f32" if lanes == 1 else f"v{lanes}f32"

    @contextmanager
    def loop(self, count: int) -> Iterator[str]:
        """Write a loop around the block, and give the name of its counter."""
        if count == 1:
            yield "0"
            return
        loop = Counted(self, count, ())
        yield loop.index
        loop.close()

    def at(self, pointer: str, *terms: tuple[str | int, int], of: str = "float") -> str:
        """Write an address: `pointer` plus, for each term (index, step), index times step numbers."""
        constant = 0
        for index, step in terms:
            if isinstance(index, int) or index == "0":
                constant += int(index) * step
            elif step:
                by = index if step == 1 else self.assign(f"mul i64 {index}, {step}")
                pointer = self.assign(f"getelementptr {of}, ptr {pointer}, i64 {by}")
        return self.assign(f"getelementptr {of}, ptr {pointer}, i64 {constant}") if constant else pointer

    def total(self, *terms: tuple[str | int, int]) -> str:
        """Write the sum of the products of terms (index, step), of 64 bits."""
        constant = sum(int(index) * step for index, step in terms if isinstance(index, int) or index == "0")
        found = str(constant)
        for index, step in terms:
            if not isinstance(index, int) and index != "0":
                product = self.assign(f"mul i64 {index}, {step}")
                found = self.assign(f"add i64 {found}, {product}")
        return found

    def fetch(self, at: str) -> None:
        """Write that a line is fetched into the second cache."""
        self.put(f"call void @llvm.prefetch.p0(ptr {at}, i32 0, i32 2, i32 1)")

    def load(self, at: str, few: int = 0) -> str:
        """Write the load of a vector; if `few` is not 0, of its first few numbers only, with zeros after them."""
        if few == 0:
            return self.assign(f"load {self.vector}, ptr {at}, align 4")
        name = f"@llvm.masked.load.{self.suffix}.p0"
        return self.assign(
            f"call {self.vector} {name}(ptr {at}, i32 4, {self._mask(few)}, {self.vector} zeroinitializer)"
        )

    def store(self, x: str, at: str, few: int = 0) -> None:
        """Write the store of a vector; if `few` is not 0, of its first few numbers only."""
        if few == 0:
            self.put(f"store {self.vector} {x}, ptr {at}, align 4")
        else:
            name = f"@llvm.masked.store.{self.suffix}.p0"
            self.put(f"call void {name}({self.vector} {x}, ptr {at}, i32 4, {self._mask(few)})")

    def _mask(self, few: int) -> str:
        bits = ", ".join(f"i1 {'true' if k < few else 'false'}" for k in range(self.lanes))
        return f"<{self.lanes} x i1> <{bits}>"

    def spread(self, at: str) -> str:
        """Write the load of one number into all lanes."""
        x = self.assign(f"load float, ptr {at}, align 4")
        if self.lanes == 1:
            return x
        one = self.assign(f"insertelement {self.vector} poison, float {x}, i32 0")
        return self.assign(
            f"shufflevector {self.vector} {one}, {self.vector} poison, <{self.lanes} x i32> zeroinitializer"
        )

    def fma(self, a: str, b: str, c: str) -> str:
        v = self.vector
        return self.assign(f"call {v} @llvm.fma.{self.suffix}({v} {a}, {v} {b}, {v} {c})")

    def add(self, a: str, b: str) -> str:
        return self.assign(f"fadd {self.vector} {a}, {b}")

    def paired(self, a: str, b: str) -> str:
        """Write a vector of pairs of bfloat16, whose lane k holds lane k of a and of b."""
        return self._rounded(a, b, [k // 2 + k % 2 * self.lanes for k in range(2 * self.lanes)])

    def packed(self, a: str, b: str) -> str:
        """Write a vector of pairs of bfloat16: neighbours in a, then neighbours in b."""
        return self._rounded(a, b, range(2 * self.lanes))

    def zipped(self, a: str, b: str, half: int) -> str:
        """Write a vector of pairs: each bfloat16 in one half of a, with the one in the same place in b."""
        both = f"<{2 * self.lanes} x i16>"
        a, b = (self.assign(f"bitcast {self.vector} {x} to {both}") for x in (a, b))
        chosen = ", ".join(f"i32 {half * self.lanes + k // 2 + k % 2 * 2 * self.lanes}" for k in range(2 * self.lanes))
        found = self.assign(f"shufflevector {both} {a}, {both} {b}, <{2 * self.lanes} x i32> <{chosen}>")
        return self.assign(f"bitcast {both} {found} to {self.vector}")

    def _rounded(self, a: str, b: str, places: Sequence[int]) -> str:
        one, two = f"<{self.lanes} x bfloat>", f"<{2 * self.lanes} x bfloat>"
        a, b = (self.assign(f"fptrunc {self.vector} {x} to {one}") for x in (a, b))
        chosen = ", ".join(f"i32 {k}" for k in places)
        both = self.assign(f"shufflevector {one} {a}, {one} {b}, <{2 * self.lanes} x i32> <{chosen}>")
        return self.assign(f"bitcast {two} {both} to {self.vector}")

    def dot(self, a: str, b: str, c: str) -> str:
        """Write c, plus the products of the first and of the second numbers of pairs of bfloat16, by AVX512-BF16."""
        kind = f"<{2 * self.lanes} x bfloat>"
        a, b = (self.assign(f"bitcast {self.vector} {x} to {kind}") for x in (a, b))
        name = f"@llvm.x86.avx512bf16.dpbf16ps.{32 * self.lanes}"
        return self.assign(f"call {self.vector} {name}({self.vector} {c}, {kind} {a}, {kind} {b})")

    def shuffle(self, a: str, b: str, places: Sequence[int]) -> str:
        """Write a vector of chosen numbers: place k is lane k of a, place lanes + k is lane k of b."""
        chosen = ", ".join(f"i32 {k}" for k in places)
        return self.assign(f"shufflevector {self.vector} {a}, {self.vector} {b}, <{self.lanes} x i32> <{chosen}>")

"""Functions over a vector of worlds: a program's tile, and its parts, which are its large region ops.

A part is compiled and kept on disk by itself, so whoever changes a task's reward waits for the code of the reward, not
for that of the physics. It is called with two pieces of memory: what it is given of the code around it, and what it
makes for that. Its names do not depend on the code around, so its text is the same wherever it stands.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeAlias, TypeVar

from ..expr import Expr
from ..lower import Code
from ..region_ops import RegionOp, When
from .types import Types
from .writer import ActiveSet, Row, Writer

FEWEST = 8_000  # nodes of a part: LLVM takes some 0.4 s for them
FEWEST_EACH = 30  # ... for each value that it is given, or makes: these go through memory
MARK = "\n; a part\n"  # what stands before each part in the text of a module

# wide vectors are wanted even where the host's tuning prefers narrower ones
ATTRIBUTES = 'noinline nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512"'

# Tangents are tens of thousands of lines in a row, and so are large functions. The longer a block, the longer LLVM
# takes for each of its lines. And with its models of AMD's processors it orders instructions once more at the end. This
# takes an eighth of the time, of large functions a third, and makes code no faster.
LONGEST = 1000  # lines of a block
LARGE = 120_000  # nodes of a function: some ten seconds of LLVM's time
UNTUNED = ' "tune-cpu"="generic"'

Rows: TypeAlias = Mapping[str, Row]
Templates: TypeAlias = Mapping[str, list[str]]
V = TypeVar("V")


def name_of(part: str) -> str:
    """Return the name of the function that a part's text has."""
    found = re.search(r"^define void (@part\.\w+)\(", part, re.MULTILINE)
    assert found
    return found[1]


class Function(Writer):
    """Writes a function of a program over a vector of worlds.

    `parts` has the text of other functions by name: those that are called.
    """

    def __init__(self, code: Code, types: Types, rows: Rows, templates: Templates, nodes: int):
        """Begin a function of so many nodes."""
        super().__init__(code, types, rows, templates)
        self.code, self.nodes = code, nodes
        self.parts: dict[str, str] = {}
        self.large = self.program.trace.derivatives == "forward" or nodes > LARGE
        self.longest = LONGEST if self.large else 0

    @property
    def slot(self) -> str:
        """The type of an entry of the memory that a part is called with: any value fits in."""
        return self.types.of("f") if self.types.lanes * self.types.memory("f")[1] >= 8 else "i64"

    def at(self, memory: str, k: int) -> str:
        """Return the address of an entry of such memory."""
        return f"getelementptr {self.slot}, ptr {memory}, i32 {k}"

    def text(self, head: str, before: Sequence[str], some_pointer: str) -> str:
        """Return the function, and before it the tables that it reads.

        head: its type, name and arguments. before: lines with which it begins. some_pointer: one of the arguments.
        """
        lines = [*before, *self.allocations()]
        if self.longest:
            lines.append(f"  %go = icmp ne ptr {some_pointer}, null")  # always true, but LLVM does not know that
        lines += [*self.lines, "  ret void"]
        if self.longest:
            lines += ["gone:", "  ret void"]
        return "\n".join([*self.tables.values(), f"{head} {self._attributes()} {{\nentry:", *lines, "}"])

    def _attributes(self) -> str:
        """Return the function's attributes. One keeps spilled vectors within one line of the cache, not across two: the
        stack that a function is called with is aligned to 16 bytes only.
        """
        size = self.types.lanes * self.types.memory("f")[1]
        return ATTRIBUTES + (f" alignstack({size})" if size > 16 else "") + (UNTUNED if self.large else "")


class Tile(Function):
    """Writes a whole program, with blocks and loops as parts: those at the top that are large and share little with the
    code around. The loop over a step's substeps is such a one, and the block that begins an episode.
    """

    def __init__(self, code: Code, types: Types, rows: Rows, templates: Templates):
        sizes = {e: _size(code, e) for e in code.order[code.program.trace.top] if e.op in ("when", "while", "repeat")}
        self.large_ones = {e: size for e, size in sizes.items() if size >= FEWEST}
        nodes = len(code.program.live) - sum(self.large_ones.values())
        super().__init__(code, types, rows, templates, nodes)

    def write(self, e: Expr) -> None:
        if e not in self.large_ones or isinstance(e.attr, When):
            super().write(e)
            return
        part = _Part(self, self.large_ones[e])
        part.write(e)
        if not self._called(part, [x.result for x in e.attr.iter_args if x.result in self.live]):
            super().write(e)

    def body(self, e: Expr) -> None:
        """Write the code of a block. As a part it has none of the branch around: a step that skips it loses nothing."""
        if e not in self.large_ones:
            super().body(e)
            return
        part = _Part(self, self.large_ones[e])
        part.body(e)
        ends = dict.fromkeys(x.after for x in e.attr.iter_args if x.result in self.live)
        if not self._called(part, [x for x in ends if type(x) is Expr and x in part.names and x not in self.names]):
            super().body(e)

    def _called(self, part: _Part, results: Sequence[Expr]) -> bool:
        """Write the call of a part whose code is written, name its results, and return True; or, if it shares much with
        the code around, do nothing and return False.
        """
        if FEWEST_EACH * (len(part.given) + len(results)) > part.nodes:
            return False
        made = [(part.names[x], part.type_of(x)) for x in results]
        name, text = part.closed(made)
        self.parts[name] = text
        given_at, made_at = (self.array(len(x), self.slot) for x in (part.given, made))
        for k, (_, type_, outside) in enumerate(part.given):
            self.put(f"store {type_} {outside}, ptr {self.assign(self.at(given_at, k))}")
        # by its address, of 64 bits: a call by a distance may not reach it (see `loader`)
        self.tables[name] = f"{name}.at = internal global ptr {name}"
        self.put(f"call void {self.assign(f'load ptr, ptr {name}.at')}(ptr {given_at}, ptr {made_at})")
        for k, (x, (_, type_)) in enumerate(zip(results, made, strict=True)):
            self.names[x] = self.assign(f"load {type_}, ptr {self.assign(self.at(made_at, k))}")
        return True


class _Part(Function):
    """Writes a part. `given`: the name of each value of the code around that it reads, its type, and its name there."""

    def __init__(self, outer: Tile, nodes: int):
        super().__init__(outer.code, outer.types, outer.rows, outer.templates, nodes)
        self.given: list[tuple[str, str, str]] = []
        number = self.types.of("f")
        self.names = _Taken(outer.names, lambda e, x: self._take(self.type_of(e), x))
        self.read_rows = _Taken(outer.read_rows, lambda _, xs: [self._take(number, x) for x in xs])
        self.packed = _Taken(outer.packed, lambda _, xs: (self._take("ptr", xs[0]), self._take("ptr", xs[1])))
        self.active_sets = _Taken(outer.active_sets, lambda _, x: ActiveSet(*map(self._take, ("ptr", "ptr", "i32"), x)))

    def type_of(self, e: Expr) -> str:
        return {"s": "i32", "a": "ptr"}.get(e.type) or self.types.of(e.type)

    def _take(self, type_: str, outside: str) -> str:
        """Return the name here of a value of the code around; constants have no other."""
        if not outside.startswith("%"):
            return outside
        name = f"%given{len(self.given)}"
        self.given.append((name, type_, outside))
        return name

    def closed(self, made: Sequence[tuple[str, str]]) -> tuple[str, str]:
        """End the function with what it makes, as (name, type); return its name and text."""
        for k, (x, type_) in enumerate(made):
            self.put(f"store {type_} {x}, ptr {self.assign(self.at('%made', k))}")
        # the worlds and buffers, which have the same names in all functions
        for x in sorted(set(re.findall(r"%(?:world|worlds|[pqs]\d+)\b", "\n".join(self.lines)))):
            self.given.append((x, "i64" if x.startswith("%world") else "ptr", x))
        before = []
        for k, (name, type_, _) in enumerate(self.given):
            before += [f"  %at{k} = {self.at('%given', k)}", f"  {name} = load {type_}, ptr %at{k}"]
        text = self.text("define void @part(ptr noalias readonly %given, ptr noalias %made)", before, "%given")
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        text = re.sub(r"@(table\d+)\b", rf"@\1.{digest}", text)
        return f"@part.{digest}", text.replace("@part(", f"@part.{digest}(", 1)


class _Taken(dict[Expr, V], Generic[V]):
    """What is known by nodes in a part. Of a node of the code around, it is taken where it is first asked for."""

    def __init__(self, outside: dict[Expr, V], take: Callable[[Expr, V], V]):
        super().__init__()
        self._outside, self._take = outside, take

    def __missing__(self, e: Expr) -> V:
        self[e] = self._take(e, self._outside[e])
        return self[e]


def _size(code: Code, e: Expr) -> int:
    """Return how many nodes there are in a region op; 0 if it is none."""
    if not isinstance(e.attr, RegionOp):
        return 0
    return sum(1 + _size(code, inner) for region in e.attr.regions for inner in code.order[region])

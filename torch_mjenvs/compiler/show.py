"""A recorded program as text, to read what a piece of Python became."""

from __future__ import annotations

from collections.abc import Iterator

from .expr import Expr, Region
from .program import Program
from .region_ops import RegionOp


def show(program: Program) -> str:
    """Return a line for each node that is alive, in the order of recording; what a region op holds is indented."""
    return "\n".join(_Text(program).whole())


class _Text:
    def __init__(self, program: Program):
        self.program = program
        self.names: dict[Expr, str] = {}

    def whole(self) -> Iterator[str]:
        yield from self.region(self.program.trace.top, "")
        for buffer, column, x in self.program.stores:
            yield f"store {self.program.buffers[buffer].name}[{column}] = {self.value(x)}"

    def region(self, region: Region, indent: str) -> Iterator[str]:
        for e in region.nodes:
            if e not in self.program.live:
                continue
            name = self.names[e] = f"%{len(self.names)}"
            yield f"{indent}{name} = {self.operation(e)}"
            if isinstance(e.attr, RegionOp):
                for inner in e.attr.regions:
                    yield from self.region(inner, indent + "    ")
                for x in e.attr.iter_args:
                    if x.result in self.program.live:
                        yield f"{indent}    carry {self.value(x.before)} -> {self.value(x.after)}"

    def operation(self, e: Expr) -> str:
        if e.op == "load":
            buffer, column = e.attr
            return f"load {self.program.buffers[buffer].name}[{column}]"
        return " ".join([e.op, ", ".join(map(self.value, e.args))]).strip()

    def value(self, x: object) -> str:
        return self.names.get(x, "?") if type(x) is Expr else str(x)

"""What all loops are written with: their variables, and a loop that counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .writer import Writer


class Variables:
    """The variables of a loop: their values before it and, once it is written, those that an iteration gives them."""

    def __init__(self, w: Writer, before: str):
        self._w, self._before = w, before
        self._places: list[int] = []

    def add(self, name: str, type_: str, init: str) -> str:
        self._places.append(len(self._w.lines))
        self._w.put(f"{name} = phi {type_} [ {init}, %{self._before} ], ")
        return name

    def close(self, back: Sequence[str]) -> None:
        """Set the values that come back from the current block, in the order of `add`."""
        for at, x in zip(self._places, back, strict=True):
            self._w.lines[at] += f"[ {x}, %{self._w.block} ]"


def count_to(w: Writer, n: str, step: int = 1) -> tuple[str, Callable[[], None]]:
    """Begin a loop of a counter below n (maybe 0), in steps; return the counter, and a function that ends the loop."""
    before, (test, body, out) = w.block, w.fresh_labels("test", "body", "out")
    w.put(f"br label %{test}")
    w.label(test)
    variables = Variables(w, before)
    i = variables.add(w.fresh("i"), "i32", "0")
    more = w.assign(f"icmp slt i32 {i}, {n}")
    w.put(f"br i1 {more}, label %{body}, label %{out}")
    w.label(body)

    def end() -> None:
        following = w.assign(f"add i32 {i}, {step}")
        variables.close([following])
        w.put(f"br label %{test}")
        w.label(out)

    return i, end

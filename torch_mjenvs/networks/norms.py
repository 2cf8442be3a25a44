"""The steps of layer norm over a tile of frames, forward and backward.

Numbers of a layer are a matrix (units, frames), so a sum over units is one of whole vectors. Units are taken ROWS at a
time. Mean and variance are found one after the other, as the difference of two large sums would lose digits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ..compiler.matrices import Apply, Loop, Matrix, RowSums, Step
from ..compiler.program import Buffer, Program, record
from ..compiler.scalar import Scalar, sqrt
from .adam import total
from .layers import EPS, Norm
from .tiles import Scratch, zeros

ROWS = 8  # units that a program takes at a time
Body = Callable[[dict[str, list[Any]]], dict[str, list[Any]]]


class LayerNorm:
    """Layer norm of a layer with this many `units`: `x` is what is normalised, and `theta` all parameters."""

    def __init__(self, norm: Norm, units: int, theta: Matrix, scratch: Scratch):
        self.norm, self.units = norm, units
        self.x = scratch.matrix(units, scratch.frames)  # after `forward` with mean 0 and variance 1, for `backward`
        self.product = scratch.matrix(units, scratch.frames)  # of `x` with the gradient
        found = scratch.matrix(4, scratch.frames)
        self.moments, self.sums = found.part(0, 2), found.part(2, 2)  # the latter are for `backward`
        self.gain, self.shift = (self._each(theta, place) for place in (norm.gain, norm.shift))

    def _each(self, theta: Matrix, place: int) -> Matrix:
        """Return a parameter of each unit, as a matrix that has it in all frames."""
        return replace(theta, rows=self.units, columns=self.x.columns, row=1, column=0, offset=theta.offset + place)

    def forward(self, out: Matrix) -> list[Step]:
        """Return the steps from `x` to `out` (units, frames)."""
        share = 1.0 / self.units

        def add(b: dict[str, list[Any]]) -> dict[str, list[Any]]:
            return {"sums": [b["sums"][0] + total(b["x"])]}

        def add_squares(b: dict[str, list[Any]]) -> dict[str, list[Any]]:
            found, squares = b["sums"]
            apart = [x - found * share for x in b["x"]]
            return {"sums": [found, squares + total([x * x for x in apart])]}

        def moments(b: dict[str, list[Any]]) -> dict[str, list[Any]]:
            found, squares = b["sums"]
            return {"sums": [found * share, 1.0 / sqrt(squares * share + EPS)]}

        def normalise(b: dict[str, list[Any]]) -> dict[str, list[Any]]:
            mean, scale = b["sums"]
            x = [(x - mean) * scale for x in b["x"]]
            return {"x": x, "out": [y * g + s for y, g, s in zip(x, b["gain"], b["shift"], strict=True)]}

        first, each = self.moments.part(0, 1), {"x": self.x}
        affine = {"gain": self.gain, "shift": self.shift}
        return [
            _zero(self.moments),
            *_by_rows("layer norm, sum", add, each, first),
            *_by_rows("layer norm, squares", add_squares, each, self.moments),
            Apply(_program("layer norm, moments", moments, {"sums": 2}), (self.moments,), self.x.columns),
            *_by_rows("layer norm", normalise, {**each, **affine, "out": out}, self.moments),
        ]

    def backward(self, gradient: Matrix, sums: Matrix) -> list[Step]:
        """Return the steps that turn the gradient with respect to `forward`'s `out` into that with respect to `x`, in
        place.

        `sums` is laid out as the parameters are; the gradients of gain and shift are added to what it holds.
        """
        share = 1.0 / self.units

        def scale(b: dict[str, list[Any]]) -> dict[str, list[Any]]:
            scaled = [g * gain for g, gain in zip(b["gradient"], b["gain"], strict=True)]
            found = [total(scaled), total(_products(scaled, b["x"]))]
            return {
                "product": _products(b["gradient"], b["x"]), "gradient": scaled,
                "sums": [x + y for x, y in zip(b["sums"], found, strict=True)],
            }  # fmt: skip

        def project(b: dict[str, list[Any]]) -> dict[str, list[Any]]:
            """Take off the parts that would move the mean or the variance."""
            (plain, along), (_, scale) = b["sums"], b["moments"]
            plain, along = plain * share, along * share
            pairs = zip(b["gradient"], b["x"], strict=True)
            return {"gradient": [(g - plain - x * along) * scale for g, x in pairs]}

        def row(place: int) -> Matrix:
            return replace(sums, rows=self.units, columns=1, row=1, offset=sums.offset + place)

        each = {"gradient": gradient, "x": self.x}
        return [
            RowSums(row(self.norm.shift), gradient),
            _zero(self.sums),
            *_by_rows("layer norm, back", scale, {**each, "gain": self.gain, "product": self.product}, self.sums),
            RowSums(row(self.norm.gain), self.product),
            *_by_rows("layer norm, rest", project, each, self.sums, moments=self.moments),
        ]


def _products(a: list[Scalar], b: list[Scalar]) -> list[Scalar]:
    return [x * y for x, y in zip(a, b, strict=True)]


def _zero(m: Matrix) -> Step:
    """Zero a matrix whose rows follow each other."""
    size = m.rows * m.row
    return Apply(zeros(), (replace(m, rows=1, columns=size, row=size),), size)


def _program(name: str, body: Body, sizes: Mapping[str, int]) -> Program:
    return record(name, [Buffer(buffer, size) for buffer, size in sizes.items()], body, "float32")


def _by_rows(name: str, body: Body, each: Mapping[str, Matrix], sums: Matrix, **more: Matrix) -> list[Step]:
    """Apply a program to the matrices `each`, ROWS rows at a time, and to all rows of `sums` and others."""
    first_of = next(iter(each.values()))
    units, frames = first_of.rows, first_of.columns
    steps: list[Step] = []

    def some(rows: int, first: int, at: tuple[tuple[str, int], ...] = ()) -> Step:
        def here(m: Matrix) -> Matrix:
            return replace(m.part(first, rows), at=(*m.at, *((index, n * m.row) for index, n in at)))

        matrices = {**{k: here(m) for k, m in each.items()}, "sums": sums, **more}
        program = _program(name, body, {k: m.rows for k, m in matrices.items()})
        return Apply(program, tuple(matrices.values()), frames)

    blocks, rest = divmod(units, ROWS)
    if blocks:
        steps.append(Loop("units", blocks, (some(ROWS, 0, (("units", ROWS),)),)))
    if rest:
        steps.append(some(rest, blocks * ROWS))
    return steps

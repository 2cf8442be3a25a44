"""A program's types and constants, as they are written in IR."""

from __future__ import annotations

import ctypes
import struct
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Types:
    """The types of a program at W lanes, and its pointers."""

    lanes: int
    dtype: str
    shared: str = "ptr"  # to what all threads share: buffers and tables
    own: str = "ptr"  # to a thread's own memory

    def __post_init__(self) -> None:
        if self.lanes < 1:
            raise ValueError("lanes must be positive")

    def vector(self, element: str) -> str:
        return element if self.lanes == 1 else f"<{self.lanes} x {element}>"

    @property
    def element(self) -> str:
        return "float" if self.dtype == "float32" else "double"

    @property
    def mask(self) -> str:
        """The type of a mask as an integer, one bit per lane."""
        return f"i{self.lanes}"

    def of(self, t: str) -> str:
        return self.vector({"f": self.element, "b": "i1", "i": "i32"}[t])

    def memory(self, t: str) -> tuple[str, int]:
        """Return a buffer's element type, and an element's size in bytes."""
        return {"f": (self.element, 4 if self.dtype == "float32" else 8), "b": ("i8", 1), "i": ("i32", 4)}[t]

    def array(self, n: int, of: str) -> str:
        """Return an array in the thread's own memory."""
        space = self.own.removeprefix("ptr")
        return f"alloca [{n} x {of}]" + (f",{space}" if space else "")

    def splat(self, element: str, value: object) -> str:
        return str(value) if self.lanes == 1 else f"splat ({element} {value})"

    def constant(self, t: str, x: Any) -> str:
        if t == "b":
            return self.splat("i1", "true" if x else "false")
        if t == "i":
            return self.splat("i32", int(x))
        if t == "s":
            return str(x)
        return self.splat(self.element, self.number(x))

    def number(self, x: float) -> str:
        """Return a float constant as LLVM writes it: as the bits of a double, which must be exact in the type."""
        x = ctypes.c_float(x).value if self.dtype == "float32" else float(x)
        return f"0x{struct.unpack('>Q', struct.pack('>d', x))[0]:016X}"

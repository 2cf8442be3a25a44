"""The table of operations: everything that a node of the graph can be. `verify.py` holds a program to it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Op:
    """An operation: what it takes and gives, by letters for types; "f*" is any number of floats, "?" is up to the node.

    | f | float | s | integer that all worlds share: a counter, an index |
    | b | truth value | x | index of a row: "s", or "i", which is each world's own and must be there |
    | i | 32-bit integer | a | array: rows of floats |
    | | | t | active set: numbers that some world needs, and in which worlds |
    | r | row of floats | c | no value: a region op, a store |
    """

    takes: str
    gives: str
    attr: str = "NoneType"  # the class of what the node needs besides its arguments
    commutes: bool = False
    counts: bool = False  # as arithmetic, where operations are counted


def _arithmetic(takes: str, gives: str, commutes: bool = False) -> Op:
    return Op(takes, gives, commutes=commutes, counts=True)


OPS: dict[str, Op] = {
    # floats
    "add": _arithmetic("ff", "f", commutes=True),
    "sub": _arithmetic("ff", "f"),
    "mul": _arithmetic("ff", "f", commutes=True),
    "div": _arithmetic("ff", "f"),
    "neg": Op("f", "f"),
    "fma": _arithmetic("fff", "f"),
    "rounded": Op("f", "f"),  # the same number; a product is rounded by itself, and joins no sum
    "sqrt": _arithmetic("f", "f"),
    "abs": _arithmetic("f", "f"),
    "min": _arithmetic("ff", "f"),
    "max": _arithmetic("ff", "f"),
    "rint": _arithmetic("f", "f"),
    "select": _arithmetic("bff", "f"),
    "pow2": _arithmetic("i", "f"),  # 2**n for a normal exponent n
    "exponent": _arithmetic("f", "i"),  # n of a positive normal x = m * 2**n, 1 <= m < 2
    "mantissa": _arithmetic("f", "f"),  # its m
    # truth values
    "lt": _arithmetic("ff", "b"),
    "le": _arithmetic("ff", "b"),
    "ieq": _arithmetic("ii", "b", commutes=True),
    "ilt": _arithmetic("ii", "b"),
    "and": _arithmetic("bb", "b", commutes=True),
    "or": _arithmetic("bb", "b", commutes=True),
    "not": _arithmetic("b", "b"),
    "bselect": _arithmetic("bbb", "b"),
    # integers
    "iadd": _arithmetic("ii", "i", commutes=True),
    "isub": _arithmetic("ii", "i"),
    "imul": _arithmetic("ii", "i", commutes=True),
    "umulh": _arithmetic("ii", "i", commutes=True),  # the high word of the unsigned product
    "iand": _arithmetic("ii", "i", commutes=True),
    "ior": _arithmetic("ii", "i", commutes=True),
    "ixor": _arithmetic("ii", "i", commutes=True),
    "ishl": _arithmetic("ii", "i"),
    "lshr": _arithmetic("ii", "i"),
    "iselect": _arithmetic("bii", "i"),
    "f2i": _arithmetic("f", "i"),
    "i2f": _arithmetic("i", "f"),
    "u2f": _arithmetic("i", "f"),  # of the integer taken as unsigned
    # buffers
    "load": Op("", "?", "tuple"),  # attr: (buffer, column); the type is the buffer's
    "store": Op("?", "c", "tuple"),  # the same; the passes of `lower.py` put stores among the nodes
    "fetch": Op("x", "?", "tuple", counts=True),  # the number there in a buffer that is a table; attr: (buffer,)
    # tables and arrays
    "lookup": Op("x", "?", "Table", counts=True),  # the constant there, row by row; the type is the table's, "f" or "s"
    "row": Op("i", "r", "Table", counts=True),  # a whole row of constants, of which `WHOLE` says how many there may be
    "column": Op("r", "f", "int"),  # one of them
    "array": Op("f*", "a", "Shape"),  # with these values in it, row by row; with none, unspecified
    "get": Op("ax", "f", "int"),  # the row's entry in column attr
    "version": Op("a", "a", "Shape"),  # the array as seen by the body of a loop that puts values into it
    "filled": Op("ac", "a", "Shape"),  # the array after a region op has put values into it
    "sadd": Op("ss", "s"),
    "spread": Op("s", "f"),  # the same number in all worlds
    # active sets
    "active_set": Op("b*", "t", "int"),  # which of attr masks hold in any world
    "everything": Op("", "t", "int"),  # all of attr numbers, in all worlds
    "for_all": Op("t", "t", "int"),  # the numbers of a set, in all worlds
    "chosen": Op("c", "t", "int"),  # which of attr parts a `for_each` chose
    "packed": Op("t*", "t", "Packing"),  # several together in one order, numbered anew without gaps
    "number": Op("ts", "s"),  # the place in the order of what is now in this slot
    "slot": Op("ts", "s"),  # the slot of what is at this place in the order
    # control
    "when": Op("b*", "c", "When"),
    "while": Op("", "c", "While"),
    "repeat": Op("s", "c", "Repeat"),  # as often as the argument says
    "for_each": Op("tb", "c", "ForEach"),
    "queue": Op("f", "c", "Queue"),  # as many entries as the argument says, in each world
    "queue_each": Op("tb", "c", "Queue"),  # an entry for each number of a set, in each world that needs it
    "entry": Op("", "?"),  # the entry that a lane is at, "i", or whether it is at one, "b"
    "counter": Op("", "s"),
    "phi": Op("", "?", "IterArg"),  # what a loop's body sees of a value that it carries
    "result": Op("c", "?", "IterArg"),  # what the code after a region op sees of such a value
}

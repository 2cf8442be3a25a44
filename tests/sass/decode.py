"""NVIDIA's machine code (SASS, sm_90) as nvdisasm lists it, into records for the emulator.

NVIDIA publishes no manual of it. What instructions do is known from their names, NVIDIA's list of them in the manual of
its binary utilities, and what ptxas makes of PTX; how long they take, from the scheduling fields that ptxas writes into
each. Whatever is not known here is refused by name.
"""

from __future__ import annotations

import re
import struct
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks import cuda_code

LANES, SIZE = 32, 16  # threads of a warp; bytes of an instruction

# An operand is a register of each thread, of the warp (uniform), a truth value of each thread, of the warp, a number,
# a word of a constant bank, an address, a convergence barrier, a place in the code, or a special register.
KINDS = ("register", "uniform", "predicate", "uniform predicate", "number", "constant", "address", "barrier", "target")
KINDS += ("special",)
NEGATE, ABSOLUTE, INVERT = 1, 2, 4
SPECIAL = {"SR_TID.X": 0, "SR_CTAID.X": 1, "SRZ": 2, "PR": 3, "SR_CgaCtaId": 4}
ZERO, TRUE = 255, 7  # RZ and URZ; PT and UPT

OPERAND = np.dtype([("kind", "u1"), ("flags", "u1"), ("index", "u2"), ("value", "u4")])
INSTRUCTION = np.dtype(
    [
        ("address", "u4"), ("operation", "u2"), ("flags", "u2"), ("compare", "u1"), ("rounding", "u1"), ("width", "u1"),
        ("guard_kind", "u1"), ("guard_index", "u1"), ("guard_inverted", "u1"), ("stall", "u1"), ("sets", "u1"),
        ("frees", "u1"), ("waits", "u1"), ("count", "u2"), ("operands", OPERAND, 7),
    ]
)  # fmt: skip

# Flags of an instruction
FLUSH, OR, UNSIGNED, CARRY, NAN, LAST_USE, UNIFORM = (1 << k for k in range(7))
MODIFIERS = {
    "FTZ": FLUSH, "OR": OR, "U32": UNSIGNED, "X": CARRY, "EX": CARRY, "NAN": NAN, "LU": LAST_USE,
    "AND": 0, "E": 0, "CONSTANT": 0, "S32": 0, "TRUNC": 0, "NTZ": 0,
}  # fmt: skip
ROUNDINGS = {"RM": 1, "RP": 2, "RZ": 3}  # 0: to the nearest; down, up, towards zero
WIDTHS = {"U8": 1, "64": 8, "128": 16}  # of memory, in bytes; 4 if nothing is said
LESS, EQUAL, GREATER, UNORDERED = 1, 2, 4, 8  # what a comparison accepts
COMPARISONS = {"LT": LESS, "EQ": EQUAL, "LE": LESS + EQUAL, "GT": GREATER, "NE": LESS + GREATER, "GE": GREATER + EQUAL}
COMPARISONS |= {f"{name}U": bits + UNORDERED for name, bits in COMPARISONS.items()}
ORDERED = {"NAN": UNORDERED, "NUM": LESS + EQUAL + GREATER}

# Names with modifiers that make another operation of them, and what they are called in the emulator.
WHOLE = {
    "SHF.L.U32": "SHL", "SHF.R.U32.HI": "SHR", "SHF.R.S32.HI": "SAR", "SHF.L.U64.HI": "SHL64HI",
    "LEA.HI": "LEAHI", "LEA.HI.X": "LEAHI", "IMAD.HI.U32": "IMADHI", "IMAD.WIDE": "IMADWIDE",
    "IMAD.WIDE.U32": "IMADWIDE", "IMAD.MOV": "IMAD", "IMAD.MOV.U32": "IMAD", "IMAD.IADD": "IMAD", "IMAD.SHL": "IMAD",
    "IMAD.SHL.U32": "IMAD", "IMAD.U32": "IMAD", "MUFU.RCP": "RCP", "MUFU.RSQ": "RSQ", "MUFU.RCP64H": "RCP64H",
    "MUFU.RSQ64H": "RSQ64H", "FRND": "FRND", "FRND.F64": "FRND64", "I2FP.F32.S32": "I2F", "I2FP.F32.U32": "I2F",
    "I2F.F64": "I2D", "I2F.F64.U32": "I2D", "F2I.TRUNC.NTZ": "F2I", "F2I.F64.TRUNC": "D2I", "HFMA2.MMA": "MOV",
    "BRA": "BRA", "CALL.REL.NOINC": "CALL", "RET.REL.NODEC": "RET", "LOP3.LUT": "LOP3", "PLOP3.LUT": "PLOP3",
    "DSETP.MIN.AND": "DMIN", "DSETP.MAX.AND": "DMAX",
    "SHF.R.U64": "SHR64", "SHFL.BFLY": "SHFL", "S2UR": "S2R",
    "BAR.SYNC.DEFER_BLOCKING": "BAR", "BAR.RED.OR.DEFER_BLOCKING": "BARANY", "B2R.RESULT": "B2R",
    "WARPSYNC.ALL": "WARPSYNC", "IMAD.WIDE.U32.X": "IMADWIDE",
}  # fmt: skip
ALLOWED = {
    "FADD": "FTZ RM RP RZ", "FMUL": "FTZ RM RP RZ", "FFMA": "FTZ RM RP RZ", "DADD": "RM RP RZ", "DMUL": "RM RP RZ",
    "DFMA": "RM RP RZ", "FMNMX": "NAN", "FSEL": "", "FSETP": "FTZ AND OR compare", "DSETP": "AND OR compare",
    "FSET.BF": "AND OR compare", "FCHK": "", "MOV": "", "CS2R": "", "SEL": "", "P2R": "", "R2UR": "", "S2R": "",
    "IADD3": "X", "VIADD": "", "VIMNMX": "U32", "VIADDMNMX": "U32", "LEA": "X", "IMAD": "X",
    "ISETP": "U32 AND OR EX compare",
    "LDC": "64", "LDG": "E CONSTANT 64 U8 128", "STG": "E 64 U8 128", "LDL": "LU 64 U8 128", "STL": "64 U8 128",
    "LDS": "64 U8 128", "STS": "64 U8 128", "PRMT": "",
    "BSSY": "", "BSYNC": "", "BREAK": "", "EXIT": "", "NOP": "",
}  # fmt: skip


class SassError(Exception):
    """Machine code that the emulator does not know, or that does what a device would refuse."""


@dataclass(frozen=True)
class Code:
    """A kernel's machine code. stack: bytes a thread. tables: constants in global memory; `addresses` are where in them
    the words of constant bank 4 point to.
    """

    text: list[str]
    instructions: np.ndarray
    stack: int
    registers: int
    tables: bytes
    addresses: list[int]


def decode(ptx: str, operations: dict[str, int]) -> Code:
    """Assemble PTX with ptxas, disassemble it with nvdisasm, and read that. Raises SassError for what is not known."""
    taken, cubin = cuda_code.assemble(ptx)
    nvdisasm = cuda_code.tool("nvdisasm")
    assert nvdisasm is not None, "nvidia-cuda-nvdisasm is not installed"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        command = [nvdisasm, "-c", "-hex", str(path)]
        listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines, labels = _lines(listing)
    text = [line for line, _ in lines]
    instructions = np.zeros(len(lines), INSTRUCTION)
    for k, (line, bits) in enumerate(lines):
        instructions[k] = _instruction(SIZE * k, line, bits, labels, operations)
    return Code(text, instructions, taken.stack, taken.registers, *_tables(cubin))


_ROW = re.compile(r"\s*/\*([0-9a-f]{4,6})\*/\s+(.*?);?\s*/\* 0x([0-9a-f]{16}) \*/$")
_SECOND = re.compile(r"\s*/\* 0x([0-9a-f]{16}) \*/$")
_LABEL = re.compile(r"^([.$][\w.$]+):$")


def _lines(listing: str) -> tuple[list[tuple[str, int]], dict[str, int]]:
    """Instructions in order with their 128 bits, and the addresses of labels."""
    found: list[tuple[str, int]] = []
    labels = {}
    for row in listing.splitlines():
        if match := _LABEL.match(row):
            labels[match[1]] = SIZE * len(found)
        elif match := _ROW.match(row):
            assert int(match[1], 16) == SIZE * len(found)
            text = re.sub(r"\(\*.*?\*\)", "", match[2]).rstrip(" ;")
            found.append((text, int(match[3], 16)))
        elif match := _SECOND.match(row):
            text, low = found[-1]
            found[-1] = text, low | int(match[1], 16) << 64
    return found, labels


_GUARD = re.compile(r"@(!?)(U?)P([0-6T])\s+(.*)")


def _instruction(address: int, text: str, bits: int, labels: dict[str, int], operations: dict[str, int]) -> tuple:
    guard = _GUARD.match(text)
    inverted, uniform, number, rest = guard.groups() if guard else ("", "", "T", text)
    name, _, given = rest.partition(" ")
    operation, flags, compare, rounding, width = _name(name, text)
    if operation not in operations:
        raise SassError(f"the emulator has no {operation}: {text!r}")
    if operation == "RET":  # its second operand is the function that it is in, which begins at 0
        given = given.partition("`")[0]
    operands = [_operand(x, bits, labels, text) for x in _split(given)]
    if name == "HFMA2.MMA":  # two halves of a number that is moved: -0 * 0 + it
        if not re.match(r"R\d+, -RZ, RZ, ", given):
            raise SassError(f"more than a move: {text!r}")
        operands = [operands[0], (KINDS.index("number"), 0, 0, bits >> 32 & 0xFFFFFFFF)]
    count = len(operands)
    operands += [(0, 0, 0, 0)] * (7 - count)
    control = bits >> 105  # how many cycles to wait, yield, barrier it sets, barrier it frees, barriers to wait for
    return (
        address, operations[operation], flags, compare, rounding, width,
        KINDS.index("uniform predicate" if uniform else "predicate"), TRUE if number == "T" else int(number),
        bool(inverted), control & 15, control >> 5 & 7, control >> 8 & 7, control >> 11 & 63, count, operands,
    )  # fmt: skip


def _name(name: str, text: str) -> tuple[str, int, int, int, int]:
    """An operation, its flags, what it accepts if it compares, how it rounds, and bytes of memory."""
    flags = 0
    if name[0] == "U":  # the same, once for the whole warp
        flags, name = UNIFORM, name[1:]
    if name in WHOLE:
        flags |= UNSIGNED * name.removesuffix(".X").endswith(("U32", "U32.HI")) | CARRY * name.endswith(".X")
        return WHOLE[name], flags, 0, 0, 4
    base = next((x for x in ALLOWED if name == x or name.startswith(f"{x}.")), None)
    if base is None:
        raise SassError(f"the emulator does not know {text!r}")
    compare = rounding = 0
    width = 4
    allowed = ALLOWED[base].split()
    for part in name[len(base) + 1 :].split(".") if len(name) > len(base) else []:
        if "compare" in allowed and part in COMPARISONS | ORDERED:
            compare = (COMPARISONS | ORDERED)[part]
        elif part not in allowed:
            raise SassError(f"the emulator does not know {text!r}")
        elif part in ROUNDINGS:
            rounding = ROUNDINGS[part]
        elif part in WIDTHS:
            width = WIDTHS[part]
        else:
            flags |= MODIFIERS[part]
    return base.replace("FSET.BF", "FSET"), flags, compare, rounding, width


def _split(given: str) -> list[str]:
    return [x.strip() for x in given.split(",") if x.strip()]


_PREDICATE = re.compile(r"(!?)(U?)P([0-6T])$")
_REGISTER = re.compile(r"([-~]?)(\|?)(U?)R(\d+|Z)\|?$")
_ADDRESS = re.compile(r"(desc\[UR\d+\])?\[(?:R(\d+|Z)(?:\.64)?)?(?:\+?UR(\d+))?(?:\+?(-?)0x([0-9a-f]+))?\]$")
_CONSTANT = re.compile(r"c\[0x([0-9a-f]+)\]\[(?:0x([0-9a-f]+)|U?RZ)\]$")
_WHOLE_NUMBER = re.compile(r"(-?)0x([0-9a-f]+)$")
_FLOAT = re.compile(r"[-+]?(\d|INF|QNAN|SNAN)")


def _operand(text: str, bits: int, labels: dict[str, int], line: str) -> tuple[int, int, int, int]:
    """Kind, flags, index and value."""
    text = text.replace(".reuse", "")
    if text in SPECIAL:
        return KINDS.index("special"), 0, SPECIAL[text], 0
    if match := re.match(r"`\((.*)\)$", text):
        return KINDS.index("target"), 0, 0, labels[match[1]]
    if match := re.match(r"B(\d+)$", text):
        return KINDS.index("barrier"), 0, int(match[1]), 0
    if match := _PREDICATE.match(text):
        kind = KINDS.index("uniform predicate" if match[2] else "predicate")
        return kind, INVERT * bool(match[1]), TRUE if match[3] == "T" else int(match[3]), 0
    if match := _REGISTER.match(text):
        flags = {"-": NEGATE, "~": INVERT, "": 0}[match[1]] | ABSOLUTE * bool(match[2])
        return KINDS.index("uniform" if match[3] else "register"), flags, ZERO if match[4] == "Z" else int(match[4]), 0
    if (match := _ADDRESS.match(text)) and not (match[1] and match[3]):
        base = ZERO if match[2] in (None, "Z") else int(match[2])
        of_warp = ZERO if match[3] is None else int(match[3])
        offset = int(match[5] or "0", 16)
        return KINDS.index("address"), 0, base | of_warp << 8, (-offset if match[4] else offset) & 0xFFFFFFFF
    if match := _CONSTANT.match(text):
        return KINDS.index("constant"), 0, int(match[1], 16), int(match[2] or "0", 16)
    if match := _WHOLE_NUMBER.match(text):
        value = int(match[2], 16)
        return KINDS.index("number"), 0, 0, (-value if match[1] else value) & 0xFFFFFFFF
    if _FLOAT.match(text):  # the 32 bits that it is written in; of float64 the upper half
        return KINDS.index("number"), 0, 0, bits >> 32 & 0xFFFFFFFF
    raise SassError(f"the emulator does not know the operand {text!r} of {line!r}")


def _tables(elf: bytes) -> tuple[bytes, list[int]]:
    """The tables of constants of a 64-bit ELF file, and where in them each word of constant bank 4 points to."""
    start, size, count, names = *struct.unpack_from("<Q", elf, 0x28), *struct.unpack_from("<3H", elf, 0x3A)
    rows = [struct.unpack_from("<IIQQQQ", elf, start + size * k) for k in range(count)]
    strings = elf[rows[names][4] :]
    sections = {strings[row[0] : strings.index(b"\0", row[0])].decode(): (k, row) for k, row in enumerate(rows)}

    def content(name: str) -> bytes:
        row = sections[name][1]
        return elf[row[4] : row[4] + row[5]]

    if ".nv.global.init" not in sections:
        return b"", []
    held = sections[".nv.global.init"][0]
    symbols, places = content(".symtab"), content(".rela.nv.constant4")
    addresses = [0] * (len(content(".nv.constant4")) // 8)
    for at in range(0, len(places), 24):
        offset, info, addend = struct.unpack_from("<QQq", places, at)
        _, _, _, section, value, _ = struct.unpack_from("<IBBHQQ", symbols, 24 * (info >> 32))
        if section != held:
            raise SassError("constant bank 4 points to something that is not a table")
        addresses[offset // 8] = value + addend
    return content(".nv.global.init"), addresses

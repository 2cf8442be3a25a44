"""Reads the names in an object file: as much of ELF and Mach-O as the package's code needs."""

from __future__ import annotations

import struct


def symbols(code: bytes) -> dict[str, bool]:
    """Return the symbols that other files may see, by name: True if the file holds it, False if it needs it."""
    return _elf(code) if code[:4] == b"\x7fELF" else _mach_o(code)


def called(code: bytes) -> set[str]:
    """Return the functions that the file needs."""
    return {name for name, held in symbols(code).items() if not held}


def sections(code: bytes) -> list[tuple[int, bytes, int]]:
    """Return type, content and link of each section of an ELF file."""
    (first,), (count,) = struct.unpack_from("<Q", code, 40), struct.unpack_from("<H", code, 60)
    headers = [struct.unpack_from("<4xI16xQQI", code, first + 64 * k) for k in range(count)]
    return [(kind, code[at : at + size], link) for kind, at, size, link in headers]


def relocations(code: bytes) -> list[int]:
    """Return the kind of each relocation in an ELF file."""
    found = sections(code)
    assert all(kind != 9 for kind, _, _ in found), "relocations of an older form"
    rela = [content for kind, content, _ in found if kind == 4]
    return [info & 0xFFFFFFFF for content in rela for (info,) in struct.iter_unpack("<8xQ8x", content)]


def _elf(code: bytes) -> dict[str, bool]:
    found = sections(code)
    ((_, table, link),) = [section for section in found if section[0] == 2]
    rows = struct.iter_unpack("<IBxH16x", table)
    return {_text(found[link][1], name): section > 0 for name, info, section in rows if info >> 4}


def _mach_o(code: bytes) -> dict[str, bool]:
    at = 32
    while (command := struct.unpack_from("<II", code, at))[0] != 2:  # LC_SYMTAB
        at += command[1]
    first, count, names, _ = struct.unpack_from("<4I", code, at + 8)
    rows = [struct.unpack_from("<IBB", code, first + 16 * k) for k in range(count)]
    return {_text(code, names + name).removeprefix("_"): section > 0 for name, info, section in rows if info & 1}


def _text(table: bytes, at: int) -> str:
    return table[at : table.index(b"\0", at)].decode()

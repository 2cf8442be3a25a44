"""Object code: how it is made so that it can be loaded wherever there is room, and the loading.

LLVM's loader maps code and constants apart, in a large process gigabytes apart, so no code may reach another section,
or a function of the C library, by a distance of 32 bits: hence the large code model. And what the loader cannot take
it answers by abort(), so all that it is given is read here first.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import llvmlite.binding as llvm

OPTIONS = {"opt": 2, "reloc": "static", "codemodel": "large"}  # of a cached object's key, too

# What code may call: fused multiply-add and rounding where a processor has no instruction for them, and, on Windows,
# what touches the pages of a large stack frame in order.
CALLED = {"fma", "fmaf", "roundeven", "roundevenf", "__chkstk"}


class BadObject(Exception):
    """Not an object file that this process can load."""


def machine(triple: str, cpu: str, features: str, opt: int | None = None) -> llvm.TargetMachine:
    """What makes code that `load` takes."""
    options = OPTIONS if opt is None else OPTIONS | {"opt": opt}
    return llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, features=features, **options)


class Loaded:
    """Functions of an object file, for as long as this lives."""

    def __init__(self, code: bytes, functions: Sequence[str], triple: str):
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine(triple, "", ""))
        _check(code, functions, triple)  # after, since an engine makes this process's own functions known to LLVM
        engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        engine.finalize_object()
        self._engine = engine
        self.addresses = [engine.get_function_address(name) for name in functions]
        if not all(self.addresses):
            raise BadObject(f"LLVM does not find {functions} in it")


def _check(code: bytes, functions: Sequence[str], triple: str) -> None:
    """Raise BadObject for what LLVM would abort on, or what would be jumped to in vain."""
    read = _mach_o if llvm.get_object_format(triple) == "MachO" else _elf
    try:
        held, called = read(code, triple)
    except (struct.error, IndexError, ValueError) as error:
        raise BadObject(f"not an object file, or part of one ({error})") from error
    for name in functions:
        _need(name in held, f"it holds no function {name}")
    for name in called:
        _need(
            name in CALLED and bool(llvm.address_of_symbol(name)), f"it calls {name}, which this process does not have"
        )


def _need(holds: bool, what: str) -> None:
    if not holds:
        raise BadObject(what)


def _text(table: bytes, at: int) -> str:
    return table[at : table.index(b"\0", at)].decode("ascii")


# ELF: Linux, and Windows, too, where it is what LLVM's loader knows best

X86_64, AARCH64 = 62, 183
ABSOLUTE = {  # the relocations that reach all addresses, and how many bytes each alters
    X86_64: {1: 8},  # R_X86_64_64
    AARCH64: {257: 8, **{kind: 4 for kind in range(263, 270)}},  # ABS64, MOVW_UABS_G0 to G3
}
PROGBITS, SYMTAB, STRTAB, RELA = 1, 2, 3, 4
EXECUTABLE = 4
FLAGS = 0x1000_0077  # write, allocate, execute, merge, strings, refers to a section, large


@dataclass(frozen=True)
class _Section:
    """A section header of ELF, in the file's order."""

    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry: int

    def of(self, code: bytes) -> bytes:
        _need(self.offset + self.size <= len(code), "a section lies beyond the end of the file")
        return code[self.offset : self.offset + self.size]


def _elf(code: bytes, triple: str) -> tuple[list[str], list[str]]:
    """The functions that it holds, and those that it calls besides."""
    _need(code[:7] == b"\x7fELF\x02\x01\x01", "not an ELF file of 64 bits")
    kind, arch, version, _, _, first, _, head, _, _, size, count, names = struct.unpack_from("<HHIQQQIHHHHHH", code, 16)
    _need(kind == 1 and version == 1 and head == size == 64, "not a relocatable object")
    _need(arch == (X86_64 if triple.startswith("x86_64") else AARCH64), f"not for {triple.split('-')[0]}")
    _need(first + 64 * count <= len(code) and 0 < names < count, "its table of sections is damaged")
    sections = [_Section(*struct.unpack_from("<IIQQQQIIQQ", code, first + 64 * k)) for k in range(count)]
    _need(sections[0].type == 0, "its table of sections is damaged")
    _need(sections[names].type == STRTAB, "its sections have no names")
    titles = sections[names].of(code)
    tables = [s for s in sections if s.type == SYMTAB]
    _need(len(tables) == 1, "it has no table of symbols, or several")
    symbols, external = _elf_symbols(code, sections, tables[0])
    for section in sections[1:]:
        _text(titles, section.name)
        _need(section.type in (PROGBITS, SYMTAB, STRTAB, RELA), f"a section of kind {section.type}")
        _need(not section.flags & ~FLAGS, f"a section with flags {section.flags:#x}")
        _need(section.alignment in (0, 1, 2, 4, 8, 16, 32, 64, 128, 4096), "a section's alignment is damaged")
        content = section.of(code)
        if section.type == STRTAB:
            _need(content[-1:] == b"\0", "names without an end")
        if section.type == RELA:
            _need(sections[section.link] is tables[0] and 0 < section.info < count, "relocations of nothing")
            altered = sections[section.info]
            _need(altered.type == PROGBITS and section.entry == 24, "relocations of nothing")
            for offset, info, addend in struct.iter_unpack("<QQq", content):
                reaches = ABSOLUTE[arch].get(info & 0xFFFFFFFF)
                if reaches is None:
                    raise BadObject(f"a relocation of kind {info & 0xFFFFFFFF} does not reach all addresses")
                _need(offset + reaches <= altered.size, "a relocation lies beyond its section")
                target = symbols[info >> 32]
                room = sections[target].size if 0 < target < count else 0
                _need(0 <= addend <= room, "a relocation points beyond a section")
    held = [name for name, section in external.items() if sections[section].flags & EXECUTABLE]
    return held, [name for name, section in external.items() if not section]


def _elf_symbols(code: bytes, sections: list[_Section], table: _Section) -> tuple[list[int], dict[str, int]]:
    """The section of every symbol, and by name of those that others may see; 0: it is not here."""
    _need(table.entry == 24 and 0 < table.link < len(sections), "its table of symbols is damaged")
    _need(sections[table.link].type == STRTAB, "its symbols have no names")
    names = sections[table.link].of(code)
    places, external = [], {}
    for name, info, _, section, value, size in struct.iter_unpack("<IBBHQQ", table.of(code)):
        title = _text(names, name)
        if section == 0xFFF1:  # absolute: the name of the source
            _need(info == 4, "an absolute symbol")
        else:
            _need(section < len(sections), "a symbol of no section")
            _need(value + size <= sections[section].size, "a symbol lies beyond its section")
            _need(info & 15 in (0, 1, 2, 3) and info >> 4 in (0, 1), "a symbol of an unknown kind")
            if info >> 4:
                _need(title not in external, "two symbols of one name")
                external[title] = section
        places.append(section)
    return places, external


# Mach-O: macOS


def _mach_o(code: bytes, triple: str) -> tuple[list[str], list[str]]:
    """The functions that it holds, and those that it calls besides."""
    magic, arch, _, kind, count, room = struct.unpack_from("<6I", code)
    _need(magic == 0xFEEDFACF and kind == 1, "not a relocatable Mach-O file of 64 bits")
    _need(arch == (0x01000007 if triple.startswith("x86_64") else 0x0100000C), f"not for {triple.split('-')[0]}")
    _need(32 + room <= len(code), "its commands lie beyond the end of the file")
    at, external = 32, {}
    for _ in range(count):
        command, size = struct.unpack_from("<II", code, at)
        _need(size >= 8 and at + size <= 32 + room, "a command lies beyond the others")
        if command == 0x19:  # LC_SEGMENT_64
            (sections,) = struct.unpack_from("<I", code, at + 64)
            _need(72 + 80 * sections <= size, "a segment's sections lie beyond it")
            for k in range(sections):
                _, length, offset, _, relocations, n = struct.unpack_from("<QQ4I", code, at + 72 + 80 * k + 32)
                _need(offset + length <= len(code), "a section lies beyond the end of the file")
                _need(relocations + 8 * n <= len(code), "relocations lie beyond the end of the file")
        if command == 2:  # LC_SYMTAB
            symbols, n, strings, length = struct.unpack_from("<4I", code, at + 8)
            _need(symbols + 16 * n <= len(code) >= strings + length, "symbols lie beyond the end of the file")
            names = code[strings : strings + length]
            for k in range(n):
                name, info, section, _, _ = struct.unpack_from("<IBBHQ", code, symbols + 16 * k)
                if info & 1:
                    external[_text(names, name).removeprefix("_")] = section
        at += size
    return [name for name, section in external.items() if section], [
        name for name, section in external.items() if not section
    ]

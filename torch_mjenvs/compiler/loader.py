"""Makes object code that can be loaded at any address, and loads it.

LLVM's loader maps code and constants apart, in a large process gigabytes apart. So no code may reach another section,
or a function of the C library, by a distance of 32 bits: hence the large code model. If the loader cannot read the
code, it ends the process. So it is only given code that LLVM has just made for this process, or that was kept on disk
(`cache.py`): found by a digest of all that the code follows from, and checked by a digest of its content.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any, BinaryIO

import llvmlite.binding as llvm

# LLVM's options, which are part of every kernel's key. Not in capitals, so that changing them does not count as
# altering the package (`source.py`).
options = {"opt": 2, "reloc": "static", "codemodel": "large"}

# The functions that code calls: fused multiply-add and rounding where a processor has no instruction for them, and, on
# Windows, what touches the pages of a large stack frame in order. A test checks that code calls no others.
SEVERAL = b"several objects\n"  # what code begins with that is not one object
CALLED = ("fma", "fmaf", "roundeven", "roundevenf", "__chkstk")


def chosen(opt: int | None) -> dict[str, Any]:
    """Return LLVM's options, with this level of optimization unless it is None."""
    return options if opt is None else options | {"opt": opt}


def machine(triple: str, cpu: str, features: str, opt: int | None = None) -> llvm.TargetMachine:
    """Return the maker of code that `Loaded` takes.

    opt: a level of optimization, None for the usual one. At 0 code is made in a third of the time, for the same bits,
    and takes up to twice as long.
    """
    return llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, features=features, **chosen(opt))


def assemble(ir: str, made_by: llvm.TargetMachine) -> bytes:
    """Return the object code of a module."""
    module = llvm.parse_assembly(ir)
    module.verify()
    code: bytes = made_by.emit_object(module)
    return code


def joined(objects: Sequence[bytes]) -> bytes:
    """Return code that consists of several objects, which may call one another."""
    if len(objects) == 1:
        return objects[0]
    return SEVERAL + json.dumps([len(x) for x in objects]).encode() + b"\n" + b"".join(objects)


def objects_of(code: bytes) -> list[bytes]:
    """Return the objects of which code consists."""
    if not code.startswith(SEVERAL):
        return [code]
    sizes, _, rest = code.removeprefix(SEVERAL).partition(b"\n")
    ends = list(itertools.accumulate(json.loads(sizes)))
    return [rest[begin:end] for begin, end in itertools.pairwise([0, *ends])]


def serve(given: BinaryIO, made: BinaryIO) -> None:
    """Make the objects that another process asks for: see `assembler`."""
    job = json.load(given)
    options.update(job["options"])
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    by = machine(*job["machine"])
    made.write(joined([assemble(ir, by) for ir in job["modules"]]))


class Loaded:
    """Functions of object code, for as long as this lives.

    Raises OSError if the code calls what this process does not have: LLVM would load it, and the call would jump
    nowhere.
    """

    def __init__(self, code: bytes, functions: Sequence[str], triple: str):
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine(triple, "", ""))
        for name in CALLED:  # checked after the engine is made, which lets LLVM find this process's functions
            if f"{name}\0".encode() in code and not llvm.address_of_symbol(name):  # names there end with a zero byte
                raise OSError(
                    f"a kernel needs {name}(), for which this processor has no instruction, and this system's C "
                    "library no function"
                )
        for x in objects_of(code):
            engine.add_object_file(llvm.ObjectFileRef.from_data(x))
        engine.finalize_object()
        self._engine = engine
        self.addresses = [engine.get_function_address(name) for name in functions]

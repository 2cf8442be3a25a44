"""The package's code as it is loaded, and whether it is still what was imported.

A kernel follows from this package's Python. What counts is what runs, not the files, which may have been replaced
since, lie in a zip, or be gone. So at the end of the package's import all that its modules hold is listed: the code of
functions, the members of classes, constants. If the list differs later, the package has been altered, and what it makes
then cannot be known without running it.
"""

from __future__ import annotations

import functools
import hashlib
import operator
import re
import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy

PACKAGE = __name__.split(".")[0]
SIMPLE = frozenset((type(None), bool, int, float, complex, str, bytes, type(...)))
MUTABLE = frozenset((dict, list, set))
WRAPPING = (property, classmethod, staticmethod, functools.cached_property, functools._lru_cache_wrapper)
EMPTY = types.CellType()
WRAPPED = ("fget", "fset", "fdel", "__func__", "func", "__wrapped__")


@functools.cache
def imported() -> Imported:
    """Return the package as it was when this was first called: at the end of its import."""
    modules = [m for name, m in sorted(sys.modules.items()) if is_own(name)]
    listing = Listing(modules)
    return Imported(modules, listing, listing.digest())


def digest_of(*functions: object) -> str:
    """Return the digest of these functions alone, as they are now; not of what they call."""
    listing = Listing()
    listing.add_all(functions)
    return listing.digest()


def digest_of_classes(kinds: Iterable[type]) -> str:
    """Return the digest of the code of these classes' own methods, of any package; not of what they call."""
    parts: list[str] = []
    for kind in kinds:
        for name, x in sorted(vars(kind).items()):
            function = getattr(x, "fget", None) or getattr(x, "__func__", x)
            if isinstance(function, types.FunctionType):
                parts += [name, *_code(function.__code__)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def is_altered() -> bool:
    """Return whether the package is not what was imported: a function or class replaced, a constant changed."""
    was = imported()
    if was.listing.is_current():
        return False
    now = Listing(was.modules)
    if now.items != was.listing.items:
        return True
    was.listing = now  # something changed that does not count, such as a module imported since
    return False


def origin(*arguments: str) -> str | None:
    """Return a name for what this package's code makes of the arguments; None if it has been altered."""
    return None if is_altered() else "\n".join((imported().digest, *arguments))


def holds(x: object) -> bool:
    """Return whether this function or class was imported with the package."""
    return imported().listing.held.get(id(x)) is x


class Listing:
    """The contents of modules or functions, down to code and constants.

    `items`: constants and names as text, code objects, and the identities of all else. `held` has what these are of, in
    the order in which it was met. Two listings with equal items are of the same things in the same state.
    """

    def __init__(self, modules: Iterable[types.ModuleType] = ()) -> None:
        self.items: list[object] = []
        self.held: dict[int, object] = {}
        self._functions: list[types.FunctionType] = []
        self._cells: list[types.CellType] = []
        self._classes: list[type] = []
        self._wrapping: list[object] = []
        self._spaces: list[Mapping[str, object]] = []
        self._containers: list[Iterable[object]] = []
        for module in modules:
            self._spaces.append(vars(module))
            for name, x in list(vars(module).items()):  # another thread may be importing
                # Python and torch's compiler put names with __ there, and an import of a module its own name.
                if not name.startswith("__") and not (isinstance(x, types.ModuleType) and is_own(x.__name__)):
                    self.items.append(name)
                    # Constants are in capitals; other containers hold the state of the process.
                    self._add(x, type(x) not in MUTABLE or name.isupper())
        self._seen = self._places()

    def is_current(self) -> bool:
        """Return whether nothing has been replaced since this was listed, in a fifth of the time of a new listing."""
        now = self._places()
        return len(now) == len(self._seen) and all(map(operator.is_, now, self._seen))

    def _places(self) -> list[object]:
        """Return what lies at each place that was looked at, with the names of the places."""
        found: list[object] = []
        for space in self._spaces:
            found += space
            found += space.values()
        for container in self._containers:
            found += container
        for name in ("__code__", "__defaults__", "__kwdefaults__"):
            found += map(operator.attrgetter(name), self._functions)
        found += map(operator.attrgetter("__bases__"), self._classes)
        found += (cell.cell_contents for cell in self._cells if cell != EMPTY)
        found += (getattr(x, name, None) for x in self._wrapping for name in WRAPPED)
        return found

    def _add(self, x: Any, look_inside: bool = True) -> None:
        kind = type(x)
        if kind in SIMPLE:
            self.items.append(repr(x))
        elif kind is types.CodeType:
            self.items.append(x)
        else:
            self.items.append(id(x))
            if id(x) not in self.held:
                self.held[id(x)] = x
                if look_inside:
                    self._add_contents(x, kind)

    def _add_contents(self, x: Any, kind: type) -> None:
        if kind is types.FunctionType:
            if is_own(x.__module__):
                cells = [cell.cell_contents for cell in x.__closure__ or () if cell != EMPTY]
                self._functions.append(x)
                self._cells += x.__closure__ or ()
                self._spaces += filter(None, (vars(x), x.__kwdefaults__))
                self.add_all((x.__code__, x.__defaults__, x.__kwdefaults__, *cells, vars(x).get("__wrapped__")))
        elif issubclass(kind, type):
            if is_own(x.__module__):
                self._classes.append(x)
                self._spaces.append(vars(x))
                self.add_all(x.__bases__)
                for name, member in vars(x).items():
                    if not name.startswith("__") or isinstance(member, (types.FunctionType, *WRAPPING)):
                        self.items.append(name)
                        self._add(member)
        elif kind in WRAPPING:
            self._wrapping.append(x)
            self.add_all(getattr(x, name, None) for name in WRAPPED)
        elif kind in (tuple, list):
            self._containers.append(x)
            self.add_all(x)
        elif kind in (set, frozenset):
            self._containers.append(x)
            self.add_all(sorted(x, key=repr))
        elif kind is dict:
            self._spaces.append(x)
            self.add_all(y for pair in x.items() for y in pair)

    def add_all(self, xs: Iterable[object]) -> None:
        """Add these to the listing, in order."""
        for x in xs:
            self._add(x)

    def digest(self) -> str:
        """Return a digest that is the same in every process for the same contents, wherever the package lies."""
        numbers = {key: k for k, key in enumerate(self.held)}
        parts = [f"{sys.version} numpy {numpy.__version__}"]
        for item in self.items:
            if type(item) is types.CodeType:
                parts += _code(item)
            else:
                parts.append(str(numbers[item] if type(item) is int else item))
        parts += map(_name, self.held.values())
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()


@dataclass(eq=False)
class Imported:
    """The package's modules, and what was in them, as last listed."""

    modules: list[types.ModuleType]
    listing: Listing
    digest: str


def is_own(module: object) -> bool:
    """Return whether this is the name of one of the package's modules."""
    return isinstance(module, str) and (module == PACKAGE or module.startswith(f"{PACKAGE}."))


def _name(x: Any) -> str:
    """Return a text that tells apart things whose contents are not looked at, without their addresses."""
    if isinstance(x, (type, types.FunctionType, types.BuiltinFunctionType)):
        return f"{x.__module__}.{x.__qualname__}"
    if isinstance(x, types.ModuleType):
        return x.__name__
    if isinstance(x, (tuple, list, set, frozenset, dict, *WRAPPING)):
        return type(x).__name__
    return re.sub("0x[0-9a-fA-F]+", "", repr(x))


def _code(code: types.CodeType) -> Iterator[str]:
    """List what decides what a code object does, but not where it stood in a file."""
    yield f"{code.co_names} {code.co_varnames} {code.co_freevars} {code.co_cellvars} {len(code.co_consts)}"
    yield f"{code.co_argcount} {code.co_posonlyargcount} {code.co_kwonlyargcount} {code.co_flags}"
    yield code.co_code.hex()
    yield code.co_exceptiontable.hex()
    for x in code.co_consts:
        if type(x) is types.CodeType:
            yield from _code(x)
        else:
            yield _text(x)


def _text(x: object) -> str:
    """Return the repr of a constant, with sets sorted, since their order differs between processes."""
    if isinstance(x, tuple):
        return f"({', '.join(map(_text, x))})"
    if isinstance(x, frozenset):
        return f"{{{', '.join(sorted(map(_text, x)))}}}"
    return repr(x)

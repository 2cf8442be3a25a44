"""Writes docs/reference.md: every public name, with its signature and docstring, as they stand in the source.

    python docs/reference.py

The source is read, not imported, so the libraries that only adapters need may be missing.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "torch_mjenvs"
PAGE = ROOT / "docs" / "reference.md"

# What users import from where, and the folders or files in which that is defined.
SECTIONS = {
    "torch_mjenvs": [
        "envs/vector_env.py",
        "envs/single_env.py",
        "rendering/simulation.py",
        "physics",
        "envs",
        "policy.py",
    ],
    "torch_mjenvs.scalar": ["compiler/scalar.py", "compiler/control.py", "compiler/random.py", "compiler/arrays.py"],
    "torch_mjenvs.feet": ["feet.py"],
    "torch_mjenvs.controls": ["controls.py"],
    "torch_mjenvs.jacobians": ["jacobians.py"],
    "torch_mjenvs.mirror": ["mirror.py"],
    "torch_mjenvs.vectors": ["vectors.py"],
    "torch_mjenvs.rewards": ["rewards.py"],
    "torch_mjenvs.dmc": ["dmc"],
    "torch_mjenvs.playground": ["playground"],
    "torch_mjenvs.terrain": ["terrain"],
    "torch_mjenvs.wrappers": ["envs"],
    "torch_mjenvs.adapters": ["adapters"],
    "torch_mjenvs.training.mlp": ["training/mlp.py"],
}
LAZY = {"torch_mjenvs": ["TorchRLEnv"]}  # imported on first use, with its library
# Classes and aliases in signatures that users need not import, and where they are defined.
TYPES = {
    "envs/rollout.py": ["Rollout", "Act", "Observations", "Step"],
    "envs/randomization.py": ["Bound"],
    "envs/tasks/base.py": ["Observed", "Shown"],
    "physics/derivatives.py": ["Linearization"],
    "physics/transition.py": ["Transition"],
    "physics/model/named.py": ["Element", "Keyframe"],
    "compiler/scalar.py": ["Scalar", "Mask"],
    "vectors.py": ["Vector", "Quaternion"],
    "controls.py": ["Scalars"],
    "terrain/kinds.py": ["Range"],
    "terrain/scan.py": ["Points"],
    "dmc/environment.py": ["SuiteEnvironment", "Physics"],
}
# Bases whose members are shown as members of their subclasses.
UNNAMED = {"Human", "OwnParameters", "OwnGoals", "Varied", "Draw", "simulation.Simulation"}
HEAD = """# Reference

Every public class and function, by the module to import it from. Shapes: N worlds. For introductions with examples see
[gymnasium.md](gymnasium.md), [simulation.md](simulation.md), [tasks.md](tasks.md), [terrain.md](terrain.md),
[torchrl.md](torchrl.md), [libraries.md](libraries.md) and [commands.md](commands.md). This page is made from the
docstrings by `python docs/reference.py`.
"""

Definition = ast.ClassDef | ast.FunctionDef


def public(module: str) -> list[str]:
    """The names in the `__all__` of a module, with those of modules that it takes `*` from, and lazy ones."""
    path = PACKAGE.joinpath(*module.split(".")[1:])
    return sorted(_all(path / "__init__.py" if path.is_dir() else path.with_suffix(".py"))) + LAZY.get(module, [])


def _all(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, (ast.Assign, ast.AugAssign)) and "__all__" in ast.unparse(node).split("=")[0]:
            names |= {x.value for x in ast.walk(node.value) if isinstance(x, ast.Constant) and isinstance(x.value, str)}
        elif isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
            names |= _all(path.parent.joinpath(*(node.module or "").split(".")).with_suffix(".py"))
    return names


def find(name: str, places: list[str]) -> Definition | None:
    """Where a class or function is defined: in the first place that has it."""
    for place in places:
        path = PACKAGE / place
        for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
            if name in (found := _definitions(file)):
                return found[name]
    return None


@functools.cache
def _definitions(file: Path) -> dict[str, Definition]:
    nodes = [x for x in ast.parse(file.read_text()).body if isinstance(x, (ast.ClassDef, ast.FunctionDef))]
    return {node.name: node for node in reversed(nodes)}  # of two with the same name, the first


def page() -> str:
    """The whole text."""
    sections = (f"\n## {module}\n{''.join(_section(module, places))}" for module, places in SECTIONS.items())
    return HEAD + "".join(sections) + "\n## Types in signatures\n" + "".join(_types())


def _types() -> Iterator[str]:
    for file, names in TYPES.items():
        for name in names:
            node = _definitions(PACKAGE / file).get(name)
            yield "\n" + "\n\n".join(_entry(node) if node else _alias(name, PACKAGE / file)) + "\n"


def _alias(name: str, file: Path) -> Iterator[str]:
    """What an alias stands for, and the comment beside or above it."""
    above, value, beside = re.findall(
        rf"^((?:# .*\n)*){name}(?:: TypeAlias)? = (.*?)(?:  # (.*))?$", file.read_text(), re.MULTILINE
    )[0]
    yield f"### `{name}`"
    yield f"```\n{_wrapped(value)}\n```"
    if said := " ".join(above.replace("# ", "").split()) or beside:
        yield f"{said[0].upper()}{said[1:].rstrip('.')}."


def _section(module: str, places: list[str]) -> Iterator[str]:
    for name in public(module):
        node = find(name, places)
        if node is not None:
            yield "\n" + "\n\n".join(_entry(_whole(node)))
            yield "\n"


def _whole(node: Definition) -> Definition:
    """Return a class with the members that it has from bases that users do not know."""
    if isinstance(node, ast.ClassDef):
        for name in [x for x in map(ast.unparse, node.bases) if x in UNNAMED]:
            base = find(name.rpartition(".")[2], ["physics", "envs"])
            assert isinstance(base, ast.ClassDef)
            _whole(base)
            first = ast.unparse(node.bases[0]) == name  # its members come first, too, and else last
            about, *own = node.body
            node.body = [about, *base.body[1:], *own] if first else [about, *own, *base.body[1:]]
            node.bases = [*base.bases, *(x for x in node.bases if ast.unparse(x) != name)]
    return node


def _entry(node: Definition) -> Iterator[str]:
    yield f"### `{node.name}`"
    if isinstance(node, ast.FunctionDef):
        yield f"```\n{_wrapped(node.name + _arguments(node))}\n```"
        yield _text(node, _names(node.args))
        return
    made = next((x for x in node.body if isinstance(x, ast.FunctionDef) and x.name == "__init__"), None)
    fields = [x for x in node.body if isinstance(x, ast.AnnAssign) and "ClassVar" not in ast.unparse(x.annotation)]
    fields = [x for x in fields if not ast.unparse(x.target).startswith("_")]
    if made is not None:
        yield f"```\n{_wrapped(node.name + _arguments(made))}\n```"
    elif fields:
        yield f"```\n{_wrapped(node.name + '(' + ', '.join(map(ast.unparse, fields)) + ')')}\n```"
    named = [x.id for x in node.bases if isinstance(x, ast.Name)]
    if bases := [x for x in named if x not in ("Task", "Exception", "NamedTuple") and not x.startswith("_")]:
        yield f"Base: `{'`, `'.join(bases)}`" + (", whose arguments it takes too." if fields and made is None else ".")
    names = {ast.unparse(x.target) for x in fields} | (_names(made.args) if made else set())
    yield _text(node, names)
    members = [x for x in node.body if isinstance(x, ast.FunctionDef) and not x.name.startswith("_")]
    lines = [_member(x) for x in members if ast.get_docstring(x)]
    if lines:
        yield "\n".join(lines)


def _member(f: ast.FunctionDef) -> str:
    """A property or method, an item of a list: all of its docstring, as Markdown."""
    is_property = any(ast.unparse(x).endswith("property") for x in f.decorator_list)
    head = f.name if is_property else f.name + _arguments(f)
    first, _, more = _text(f, _names(f.args)).partition("\n\n")
    return f"- `{head}`: {' '.join(first.split())}" + ("\n\n" + textwrap.indent(more, "    ") + "\n" if more else "")


def _arguments(f: ast.FunctionDef) -> str:
    """As written, without the self."""
    text = ast.unparse(f.args)
    if text.split(",")[0] in ("self", "cls"):
        text = text.partition(", ")[2]
    returns = f" -> {ast.unparse(f.returns)}" if f.returns is not None and f.name != "__init__" else ""
    return f"({text}){returns}"


def _names(args: ast.arguments) -> set[str]:
    return {x.arg for x in [*args.posonlyargs, *args.args, *args.kwonlyargs, args.kwarg] if x}


def _wrapped(text: str, width: int = 110) -> str:
    """Broken after commas, where it is too long."""
    lines = [""]
    for part in re.split(r"(?<=, )", text):
        if lines[-1] and len(lines[-1]) + len(part) > width:
            lines.append("    ")
        lines[-1] += part
    return "\n".join(x.rstrip() for x in lines)


def _text(node: Definition, names: set[str]) -> str:
    """The docstring as Markdown: what it says of arguments becomes a list."""
    out: list[str] = []
    for line in inspect.cleandoc(ast.get_docstring(node) or "").split("\n"):
        found = re.match(r"( *)(\w+(?:, \w+)*): (.*)", line)
        if found and set(found[2].split(", ")) <= names:
            out.append(f"- {', '.join(f'`{x}`' for x in found[2].split(', '))}: {found[3]}")
        else:
            out.append(line)
    return "\n".join(out)


if __name__ == "__main__":
    PAGE.write_text(page())

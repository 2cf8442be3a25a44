"""What may import what, and what must be explained: as tests, so that it stays true."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "torch_mjenvs"
NAME = PACKAGE.name

COMPILER = sorted((PACKAGE / "compiler").rglob("*.py"))
RECORDING = {"expr", "ops", "region_ops", "program", "verify", "math", "random"}
RECORDING |= {"lower", "schedule", "sink_loads", "sink_stores", "fuse"}
WRITING = [p for p in COMPILER if p.parent.name in ("llvm", "matrices")]
RUNNING = [PACKAGE / "compiler" / "matrices" / name for name in ("__init__.py", "kernel.py", "on_gpu.py")]
PURE = [p for p in COMPILER if p.stem in RECORDING or (p in WRITING and p not in RUNNING)]
NETWORKS = sorted((PACKAGE / "networks").glob("*.py"))
PHYSICS = sorted((PACKAGE / "physics").rglob("*.py"))
ENVS = sorted((PACKAGE / "envs").glob("*.py"))
TASKS = sorted((PACKAGE / "envs" / "tasks").glob("*.py"))
EDGE = {  # of physics: what meets torch and kernels
    "derivatives.py", "kernel_request.py", "simulation.py", "simulation_kernels.py", "size.py", "step_function.py",
    "transition.py", "world_params.py",
}  # fmt: skip
# Of envs: what makes and holds the kernels; all else there is an adapter.
CORE = {
    "ahead.py", "contract.py", "engine.py", "episode.py", "frame_stack.py", "frames.py", "goals.py", "kept.py",
    "layout.py", "model_view.py", "observation.py", "packing.py", "pixels.py", "randomization.py", "records.py",
    "repeatable.py", "step_gradient.py", "task_calls.py", "task_view.py", "varying.py",
}  # fmt: skip
RENDERING = sorted((PACKAGE / "rendering").glob("*.py"))
STAGES = [p for p in PHYSICS if p.name not in EDGE and p != PACKAGE / "physics" / "__init__.py"]
ADAPTERS = [p for p in ENVS if p.name not in CORE]

VOCABULARY = "scalar", "arrays", "control", "active_sets", "own_lists", "queues", "implicit", "random", "tiles", "whole"
SCALARS = {f"{NAME}.compiler.{x}" for x in VOCABULARY}


@functools.cache
def imports(path: Path) -> tuple[str, ...]:
    """Full names of all modules that a file imports, wherever in the file."""
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[str]:
    module = [NAME, *path.relative_to(PACKAGE).with_suffix("").parts]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = module[: -node.level] if node.level else []
            start = ".".join([*base, *(node.module or "").split(".")]).strip(".")
            names = [f"{start}.{alias.name}" for alias in node.names]
            yield from names
            if not all(map(is_module, names)):
                yield start


def is_module(name: str) -> bool:
    place = PACKAGE.parent.joinpath(*name.split("."))
    return place.is_dir() or place.with_suffix(".py").exists()


def meets(path: Path, *names: str) -> list[str]:
    """Which of its imports are one of these modules or in one of them."""
    return [x for x in imports(path) if any(x == n or x.startswith(f"{n}.") for n in names)]


LIBRARIES = sorted((PACKAGE / "adapters").glob("*.py"))


def ids(paths: list[Path]) -> list[str]:
    return [p.name for p in paths]


def test_there_is_something_to_look_at():
    assert len(COMPILER) > 5 and len(STAGES) > 8 and len(TASKS) > 2 and len(ADAPTERS) > 5
    assert {p.stem for p in PURE} > RECORDING
    assert {p.name for p in PHYSICS} > EDGE and {p.name for p in ENVS} > CORE
    assert "torch" in set(imports(PACKAGE / "physics" / "simulation.py"))
    assert f"{NAME}.compiler.scalar" in set(imports(PACKAGE / "physics" / "solver" / "newton.py"))


@pytest.mark.parametrize("path", STAGES, ids=ids(STAGES))
def test_a_stage_does_not_know_how_it_is_run(path):
    assert not meets(path, "torch", "llvmlite", "ctypes", "cuda", "gymnasium", f"{NAME}.envs")
    of_compiler = [
        x for x in meets(path, f"{NAME}.compiler") if not any(x == s or x.startswith(f"{s}.") for s in SCALARS)
    ]
    assert not of_compiler, f"a stage is written in scalars, arrays, lists and control flow only, not in {of_compiler}"


@pytest.mark.parametrize("path", STAGES, ids=ids(STAGES))
def test_a_stage_does_not_ask_what_its_scalars_are(path):
    """No branch on being traced: one source for all uses."""
    names = {n.id for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Name)}
    assert not names & {"is_tracing", "current", "Expr", "Tensor"}


@pytest.mark.parametrize("path", COMPILER, ids=ids(COMPILER))
def test_the_compiler_does_not_know_what_it_compiles(path):
    assert not meets(path, "mujoco", "gymnasium", f"{NAME}.physics", f"{NAME}.envs")


@pytest.mark.parametrize("path", PURE, ids=ids(PURE))
def test_recording_and_rendering_need_no_torch(path):
    assert not meets(path, "torch", "llvmlite")


@pytest.mark.parametrize("path", NETWORKS, ids=ids(NETWORKS))
def test_networks_need_no_library(path):
    assert not meets(path, "torch", "llvmlite", "gymnasium", "mujoco")


@pytest.mark.parametrize("path", TASKS, ids=ids(TASKS))
def test_a_task_is_only_scalars(path):
    assert not meets(path, "torch", "llvmlite", "numpy", f"{NAME}.compiler", f"{NAME}.physics.simulation")
    own = [x for x in meets(path, f"{NAME}.envs") if not x.startswith(f"{NAME}.envs.tasks")]
    assert not own, f"a task knows nothing of what runs it, as {own}"


@pytest.mark.parametrize("path", [*ADAPTERS, *LIBRARIES], ids=ids([*ADAPTERS, *LIBRARIES]))
def test_an_adapter_holds_no_physics(path):
    assert not meets(path, f"{NAME}.physics", f"{NAME}.compiler")


PIXELS = [p for p in RENDERING if p.name not in ("picture.py", "simulation.py")]  # which hold kernels and tensors


@pytest.mark.parametrize("path", PIXELS, ids=ids(PIXELS))
def test_what_a_pixel_sees_is_only_scalars(path):
    assert not meets(path, "torch", "llvmlite", f"{NAME}.envs")
    of_compiler = [x for x in meets(path, f"{NAME}.compiler") if not any(x.startswith(s) for s in SCALARS)]
    assert not of_compiler, f"it is written in scalars and control flow only, not in {of_compiler}"


# What each of these rooms may know of the package's other rooms: none knows one that is made of it.
ROOMS = {
    "compiler": set(),
    "networks": {"compiler"},
    "physics": {"compiler"},
    "rendering": {"compiler", "physics"},
    # envs registers the tasks of dmc and playground by their names
    "envs": {"compiler", "physics", "rendering", "dmc.registry", "playground.registry"},
    "terrain": {"compiler", "physics", "envs"},
    "dmc": {"physics", "envs"},
    "playground": {"physics", "envs"},
    "adapters": {"envs"},
    "training": {"compiler", "networks", "envs", "files", "policy"},
    "commands": {"compiler", "envs", "training", "policy", "export"},
}
FILES = {"by_value", "calls", "checks", "cuda_graphs", "fixed_tensors", "memory"}  # know no room but the compiler
TASK_WORDS = {"scalar", "vectors", "rewards", "controls", "feet"}  # what tasks are written in


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_knows_only_those_it_is_made_of(room):
    known = ROOMS[room] | FILES
    if "envs" in known or room == "envs":
        known |= TASK_WORDS
    for module, imported in import_graph().items():
        if module.startswith(f"{NAME}.{room}"):
            others = {x.removeprefix(f"{NAME}.") for x in imported if not x.startswith(f"{NAME}.{room}")}
            unknown = {x for x in others if x not in known and x.split(".")[0] not in known}
            assert not unknown, f"{module} imports {unknown}"


def test_the_package_has_these_rooms():
    assert {p.name for p in PACKAGE.iterdir() if (p / "__init__.py").exists()} == set(ROOMS)


def test_what_is_beside_the_rooms_knows_none_but_the_compiler():
    for name in FILES:
        others = {x.split(".")[1] for x in import_graph()[f"{NAME}.{name}"] if x != NAME}
        assert others <= FILES | {"compiler"}, f"{name} imports {others}"


def module_of(path: Path) -> str:
    return ".".join([NAME, *path.relative_to(PACKAGE).with_suffix("").parts]).removesuffix(".__init__")


def import_graph() -> dict[str, set[str]]:
    """The package's modules, and which of them each imports, in functions too."""
    files = {module_of(path): path for path in PACKAGE.rglob("*.py")}
    return {name: {x for x in imports(path) if x in files} - {name} for name, path in files.items()}


def circle(graph: dict[str, set[str]]) -> list[str]:
    """One that the graph has, or nothing."""
    done: set[str] = set()

    def search(at: str, way: list[str]) -> list[str]:
        if at in way:
            return [*way[way.index(at) :], at]
        if at not in done:
            for following in sorted(graph[at]):
                if found := search(following, [*way, at]):
                    return found
            done.add(at)
        return []

    return next((found for at in sorted(graph) if (found := search(at, []))), [])


def test_no_module_imports_itself_by_way_of_others():
    graph = import_graph()
    assert len(graph) > 50 and "torch_mjenvs.compiler.expr" in graph["torch_mjenvs.compiler.math"]
    assert not circle(graph), " -> ".join(circle(graph))
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]


# The folders of physics, each of which imports from those before it alone; the files beside them put them together.
FOLDERS = ("algebra", "model", "dynamics", "collision", "constraints", "solver", "sensors", "loading")


def folder_of(module: str) -> str:
    """Return the folder of physics that a module is in; "" for those beside the folders."""
    name = module.removeprefix(f"{NAME}.physics").lstrip(".").partition(".")[0]
    return name if name in FOLDERS else ""


def test_every_folder_of_physics_is_known():
    assert {p.name for p in (PACKAGE / "physics").iterdir() if (p / "__init__.py").exists()} == set(FOLDERS)


def test_folders_of_physics_import_one_way():
    known = [*FOLDERS, ""]
    for module, imported in import_graph().items():
        if module.startswith(f"{NAME}.physics."):
            for other in (x for x in imported if x.startswith(f"{NAME}.physics")):
                assert known.index(folder_of(other)) <= known.index(folder_of(module)), f"{module} imports {other}"


def test_mujoco_never_steps_in_the_product():
    """It parses models, and places the bodies of a file, or in a picture; the tests alone let it compute."""
    steps = {"mj_step", "mj_step1", "mj_step2", "mj_forward", "mj_fwdPosition", "mj_kinematics", "rollout", "batch"}
    places = {(name, "mj_forward") for name in ("camera.py", "data_view.py", "frames.py")}
    places |= {("scene.py", "mj_kinematics"), ("ties.py", "mj_kinematics")}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "mujoco":
                assert node.attr not in steps or (path.name, node.attr) in places, f"{path.name}: mujoco.{node.attr}"


def public(path: Path) -> list[ast.AST]:
    """Functions and classes of a module whose names do not begin with _."""
    found: list = []
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            found.append(node)
    return found


TRIVIAL = 2  # a function of so few statements, or fewer, may speak for itself


def test_what_is_public_is_explained():
    """Every file, and its functions and classes."""
    unexplained = []
    for path in sorted(PACKAGE.rglob("*.py")):
        tree, file = ast.parse(path.read_text()), path.relative_to(PACKAGE)
        if tree.body and not ast.get_docstring(tree):
            unexplained.append(f"{file} itself")
        for n in public(path):
            if not ast.get_docstring(n) and len(n.body) > TRIVIAL:  # type: ignore[attr-defined]
                unexplained.append(f"{file}: {n.name}")  # type: ignore[attr-defined]
    assert not unexplained, "; ".join(unexplained)

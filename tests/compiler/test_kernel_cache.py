"""Kernels in memory and on disk: the keys they are found by, which files the cache trusts, and how large it gets."""

from __future__ import annotations

import gc
import os
import shutil
import stat
import subprocess
import sys
import time
import warnings
import weakref
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import llvmlite.binding as llvm
import pytest
import torch
from kernels import HERE, at_lanes, build, garbage, record_list

from torch_mjenvs import InvertedPendulum, Outcome, Simulation, TorchEnv, TorchVectorEnv
from torch_mjenvs.commands import cache as command
from torch_mjenvs.compiler import build as building
from torch_mjenvs.compiler import cache, cpu, launch, loader, source
from torch_mjenvs.compiler.back_end import BackEnd
from torch_mjenvs.compiler.build import Recipe
from torch_mjenvs.compiler.control import unroll_limit, unrolling
from torch_mjenvs.compiler.expr import Expr
from torch_mjenvs.compiler.program import Buffer, Program, record
from torch_mjenvs.compiler.scalar import sqrt
from torch_mjenvs.envs.episode import is_known
from torch_mjenvs.envs.registration import own_ids
from torch_mjenvs.envs.tasks import inverted_pendulum
from torch_mjenvs.physics.algebra import spatial

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.cpu


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("TORCH_MJENVS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def axpy(dtype: str = "float32", factor: float = 2.0) -> Program:
    return record_list(lambda x: [factor * x[0] + x[1], sqrt(x[0])], 2, 2, dtype, "axpy")


def compiled(monkeypatch: pytest.MonkeyPatch, program: Program, target: cpu.Target | None = None) -> tuple[bytes, bool]:
    """The code that is loaded, and whether it had to be made."""
    made, loaded = [], []
    parse, load = llvm.parse_assembly, loader.Loaded
    with monkeypatch.context() as patch:
        patch.setattr(cpu.llvm, "parse_assembly", lambda ir: made.append(ir) or parse(ir))
        patch.setattr(loader, "Loaded", lambda code, *how: loaded.append(code) or load(code, *how))
        build(program, target)
    return loaded[-1], any(made)  # the loader itself parses an empty module


def run(script: str, *arguments: object, package: Path = ROOT, **environment: str) -> str:
    """What a Python process prints that has the package from there."""
    command = [sys.executable, "-P", "-c", script, *map(str, arguments)]
    env = os.environ | {"PYTHONPATH": str(package)} | environment
    return subprocess.run(command, env=env, stdout=subprocess.PIPE, check=True, timeout=300).stdout.decode().strip()


# what a kernel is found by


def test_kernels_of_back_ends_with_other_limits_are_others():
    """By an origin, which does not say for what a program is recorded; and the limit is there while it is."""
    buffers = (Buffer("y", 1),)

    def make() -> Program:
        return record("limit", buffers, lambda b: {"y": [float(unroll_limit())]}, "float32")

    recipe = Recipe("limit", buffers, "float32", make, "origin")

    def seen(where: torch.device | BackEnd) -> float:
        y = garbage(torch.float32, (1, 16))
        building.build(recipe, where).bind({"y": y})()
        return y[0, 0].item()

    limited = replace(cpu.back_end(), unroll_limit=3)
    for _ in range(2):
        assert seen(HERE) == float("inf")
        assert seen(limited) == 3
        with unrolling(5):
            assert seen(HERE) == 5
            assert seen(limited) == 3


def test_a_known_kernel_is_not_even_traced():
    """... as long as what it follows from is the same: name, buffers, precision and origin."""
    buffers, made = [Buffer("x", 1), Buffer("y", 1)], []

    def make(factor: float = 2.0, dtype: str = "float32") -> Program:
        made.append(factor)
        return record("known", buffers, lambda b: {"y": [b["x"][0] * factor]}, dtype)

    x, y = torch.rand(1, 16), garbage(torch.float32, (1, 16))

    def known(origin: str | None, how: Callable[[], Program], dtype: str = "float32") -> launch.Kernel:
        return building.build(Recipe("known", tuple(buffers), dtype, how, origin), HERE)

    for _ in range(2):
        known("twice", make).bind({"x": x, "y": y})()
        assert torch.equal(y, 2 * x) and made == [2.0]
        y.fill_(float("nan"))
    known("thrice", lambda: make(3.0)).bind({"x": x, "y": y})()
    assert torch.equal(y, 3 * x) and made == [2.0, 3.0]
    known("twice", lambda: make(2.0, "float64"), "float64")
    assert len(made) == 3
    known(None, make)
    assert len(made) == 4, "what cannot be known is traced"


class Counted:
    """A recipe of `y = factor x`, built as often as asked; how often it was recorded, and how often compiled."""

    def __init__(self) -> None:
        self.recorded = self.compiled = 0
        back = cpu.back_end()

        def translate(ir: str) -> bytes:
            self.compiled += 1
            return back.translate(ir)

        self.back = replace(back, translate=translate)

    def build(self, origin: str, factor: float = 2.0) -> tuple[int, int]:
        buffers = (Buffer("x", 1), Buffer("y", 1))

        def make() -> Program:
            self.recorded += 1
            return record("scale", buffers, lambda b: {"y": [b["x"][0] * factor]}, "float32")

        x, y = torch.rand(1, 16), garbage(torch.float32, (1, 16))
        building.build(Recipe("scale", buffers, "float32", make, origin), self.back).bind({"x": x, "y": y})()
        assert torch.equal(y, factor * x)
        return self.recorded, self.compiled


def test_a_program_that_another_origin_made_is_recorded_and_not_compiled(folder):
    """As where the package has changed, and what it makes has not."""
    counted = Counted()
    assert counted.build("one") == (1, 1)
    assert counted.build("other") == (2, 1)
    assert counted.build("one") == counted.build("other") == (2, 1)
    assert counted.build("a third", factor=3.0) == (3, 2)
    assert len(list(folder.glob("scale-cpu-origin-*.o"))) == 3 and len(list(folder.iterdir())) == 5


def test_an_origin_whose_code_is_gone_is_recorded_anew(folder):
    counted = Counted()
    counted.build("one")
    (code,) = set(folder.iterdir()) - set(folder.glob("*-origin-*"))
    code.unlink()
    assert counted.build("one") == (2, 2)
    assert counted.build("one") == (2, 2)


def test_an_origin_that_was_swapped_with_anothers_is_recorded_anew(folder):
    counted = Counted()
    counted.build("one")
    counted.build("other", factor=3.0)
    one, other = folder.glob("*-origin-*")
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)
    assert counted.build("one") == (3, 2)
    assert counted.build("other", factor=3.0) == (4, 2)


def rewards(task: object = InvertedPendulum, **arguments: object) -> float:
    """The reward of a first step."""
    env = TorchVectorEnv(task, 1, dtype=torch.float64, **arguments)
    env.reset(seed=0)
    return float(env.step(torch.zeros(1, 1))[1])


def more(self, m, before, action, after) -> Outcome:
    return Outcome(7.0 + 0.0 * after.qpos[0], False, {"reward_survive": 7.0 + 0.0 * after.qpos[0]})


def test_a_patched_class_is_not_taken_for_the_original_nor_the_other_way_round(monkeypatch):
    assert rewards() == 1.0
    with monkeypatch.context() as patch:
        patch.setattr(InvertedPendulum, "outcome", more)
        assert source.is_altered()
        assert rewards() == 7.0
    assert not source.is_altered()
    assert rewards() == 1.0


ALTERATIONS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "a constant": lambda patch: patch.setattr(inverted_pendulum, "MAX_ANGLE", 0.1),
    "an entry of a table": lambda patch: patch.setitem(launch.TORCH_TYPES, "i", torch.int64),
    "an element of a list": lambda patch: patch.setattr(spatial, "IDENTITY", [2.0, *spatial.IDENTITY[1:]]),
    "a function": lambda patch: patch.setattr(spatial, "dot", lambda a, b: 0.0),
    "the code of a function": lambda patch: patch.setattr(spatial.dot, "__code__", spatial.cross.__code__),
    "a default": lambda patch: patch.setattr(InvertedPendulum.__init__, "__defaults__", ("x.xml", 3, 0.0)),
    "a member of a class": lambda patch: patch.setattr(InvertedPendulum, "frame_skip", 3),
    "a property": lambda patch: patch.setattr(cpu.Target, "lanes", property(lambda self: 1), raising=False),
    "what is called for a method": lambda patch: patch.setattr(
        InvertedPendulum, "observe", InvertedPendulum.reset
    ),
    "a new name": lambda patch: patch.setattr(spatial, "added", 1, raising=False),
}  # fmt: skip


@pytest.mark.parametrize("what", ALTERATIONS)
def test_every_alteration_of_the_package_is_seen(monkeypatch, what):
    assert not source.is_altered() and source.origin("x") is not None
    with monkeypatch.context() as patch:
        ALTERATIONS[what](patch)
        assert source.is_altered() and source.origin("x") is None
    assert not source.is_altered()


def test_using_the_package_does_not_alter_it():
    """If it did, no kernel could be found without tracing any more."""
    env = TorchVectorEnv("InvertedPendulum", 4)
    env.reset(seed=0)
    env.step(torch.zeros(4, 1))
    env.set_state(env.qpos, env.qvel)
    repr(env.engine.task), hash(env.engine.task), env.engine.task == InvertedPendulum()
    torch.compile(env.engine.task.load, backend="eager")
    TorchEnv("InvertedPendulum").reset()
    pytest.importorskip("torchrl")
    from torch_mjenvs import InvertedPendulumEnv

    InvertedPendulumEnv(2).rollout(2)
    assert not source.is_altered()


def test_torchs_compiler_does_not_alter_the_package():
    env = TorchVectorEnv("InvertedPendulum", 4)
    env.reset(seed=0)
    torch.compile(env.step, backend="aot_eager")(torch.zeros(4, 1))
    assert not source.is_altered()


def test_all_that_makes_kernels_is_known():
    """What is not loaded when the package is imported could alter kernels unseen."""
    known = {module.__name__ for module in source.imported().modules}
    # no kernel needs these
    later = ("envs.torchrl", "dmc.environment", "cache", "compiler.show", "adapters", "commands", "training")
    later += ("__main__", "export", "files")
    later += ("compiler.matrices", "networks")  # of the learner, whose kernels are kept by their own IR
    files = (ROOT / "torch_mjenvs").rglob("*.py")
    there = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in files}
    assert known == {x for x in there if not f"{x}.".startswith(tuple(f"torch_mjenvs.{name}." for name in later))}


DIGEST = """
import torch_mjenvs
from torch_mjenvs.compiler import source
print(source.imported().digest)
"""


def test_the_digest_is_the_same_in_every_process_and_place(tmp_path):
    shutil.copytree(ROOT / "torch_mjenvs", tmp_path / "torch_mjenvs", ignore=shutil.ignore_patterns("__pycache__"))
    there = run(DIGEST, package=tmp_path, PYTHONHASHSEED="2")  # here it is a random one
    assert there == source.imported().digest


PARTS = [
    ("def f(x): return x + 1", "def f(x): return x + 2"),
    ("def f(x): return x + 1", "def f(x): return x - 1"),
    ("def f(x): return x in {'a', 'b'}", "def f(x): return x in {'a', 'c'}"),
    ("def f(x): return (lambda: 1)", "def f(x): return (lambda: 2)"),
    ("def f(x=1): return x", "def f(x=2): return x"),
    ("def f(x): return x.a", "def f(x): return x.b"),
    ("def f(x): return (1, (2.0, 0.0))", "def f(x): return (1, (2.0, -0.0))"),
    ("def f(x): return 1", "def f(x): return 1.0"),
    ("class f: x = 1", "class f: x = 2"),
    ("class f:\n def g(self): return 1", "class f:\n def g(self): return 2"),
    ("f = {1: (2, [3])}", "f = {1: (2, [4])}"),
    ("f = range(3)", "f = range(4)"),
]


@pytest.mark.parametrize(("one", "other"), PARTS)
def test_a_digest_tells_code_apart_but_not_where_it_stands(one, other):
    def digest(text: str) -> str:
        names: dict = {"__name__": f"{source.PACKAGE}.test"}
        exec(compile(text, "file", "exec"), names)
        return source.digest_of(names["f"])

    assert digest(one) == digest(f"# a comment\n\n{one}")
    assert digest(one) != digest(other)


VERSION = """
import sys
import torch
import torch_mjenvs
from pathlib import Path
text = 'reward = select(terminated, 0.0, {})'
if len(sys.argv) > 1:  # an update beside an open notebook
    path = Path(sys.argv[2], "torch_mjenvs", "envs", "tasks", "inverted_pendulum.py")
    before = path.read_text()
    path.write_text(before.replace(text.format("1.0"), text.format(sys.argv[1])))
    assert path.read_text() != before
env = torch_mjenvs.TorchVectorEnv("InvertedPendulum", 1)
env.reset(seed=0)
print(float(env.step(torch.zeros(1, 1))[1]))
"""


def installed(place: Path, how: str, reward: str = "1.0") -> Path:
    """The package with this reward, and where Python finds it."""
    copy = place / "copy"
    shutil.copytree(ROOT / "torch_mjenvs", copy / "torch_mjenvs", ignore=shutil.ignore_patterns("__pycache__"))
    task = copy / "torch_mjenvs" / "envs" / "tasks" / "inverted_pendulum.py"
    task.write_text(task.read_text().replace("terminated, 0.0, 1.0", f"terminated, 0.0, {reward}"))
    if how == "zip":
        with zipfile.ZipFile(place / "package.zip", "w") as archive:
            for path in copy.rglob("*.py"):
                archive.write(path, path.relative_to(copy))
        shutil.rmtree(copy)
        return place / "package.zip"
    if how == "pyc":
        subprocess.run([sys.executable, "-m", "compileall", "-q", "-b", copy], check=True)
        for path in copy.rglob("*.py"):
            path.unlink()
    return copy


def test_an_update_beside_an_open_notebook_leaves_nothing_stale(tmp_path):
    place = installed(tmp_path, "files")
    assert run(VERSION, "5.0", place, package=place) == "1.0", "it runs what it has imported"
    assert run(VERSION, package=place) == "5.0"


@pytest.mark.slow
@pytest.mark.parametrize("how", ["zip", "pyc"])
def test_versions_without_py_files_are_told_apart(tmp_path, how):
    for reward in ("1.0", "5.0"):
        (tmp_path / reward).mkdir()
        place = installed(tmp_path / reward, how, reward)
        assert run(VERSION, package=place) == reward


SCALE = 2.0


@dataclass(frozen=True)
class Scaled(InvertedPendulum):
    """A user's task: its reward rests on a global of this module, and on a field that does not count as one."""

    silent: float = field(default=1.0, compare=False, repr=False)

    def outcome(self, m, before, action, after) -> Outcome:
        reward = SCALE * self.silent + 0.0 * after.qpos[0]
        return Outcome(reward, False, {"reward_survive": reward})


def test_a_users_task_is_traced_anew_when_what_it_rests_on_is_redefined(monkeypatch):
    assert rewards(Scaled()) == 2.0
    monkeypatch.setattr(sys.modules[__name__], "SCALE", 3.0)
    assert rewards(Scaled()) == 3.0


def test_a_field_that_is_not_compared_counts():
    assert Scaled(silent=5.0) == Scaled()
    assert [rewards(Scaled(silent=x)) for x in (1.0, 5.0)] == [2.0, 10.0]


def test_the_packages_own_tasks_are_known():
    """Else they would be traced whenever they are made, which takes seconds."""
    tasks = [task() if isinstance(task, type) else task for _, task in own_ids().values()]
    assert len(tasks) > 60 and [task for task in tasks if not is_known(task)] == []
    robot = own_ids()["TorchGo1Joystick-v0"][1]
    assert is_known(robot(rewards={"pose": 0.5})) and not is_known(robot(rewards={"pose": torch.tensor(0.5)}))
    assert not is_known(Scaled())


def test_a_value_that_repr_does_not_tell_from_another_counts():
    class Sly(float):
        def __repr__(self) -> str:
            return "0.01"

    assert [observed(InvertedPendulum(reset_noise_scale=x)) for x in (0.01, Sly(0.0))] == [True, False]


def observed(task: InvertedPendulum) -> bool:
    """Whether a reset draws anything."""
    return bool(TorchVectorEnv(task, 2).reset(seed=0)[0].any())


# the files


def test_the_second_build_finds_the_first(folder, monkeypatch):
    code, made = compiled(monkeypatch, axpy())
    assert made and len(list(folder.iterdir())) == 1
    assert compiled(monkeypatch, axpy()) == (code, False)
    for different in (axpy(factor=2.5), axpy("float64")):
        assert compiled(monkeypatch, different)[1]
    assert len(list(folder.iterdir())) == 3
    narrow, _ = compiled(monkeypatch, axpy(), at_lanes("float32", 4))
    assert narrow != code and len(list(folder.iterdir())) == 4


HEAD = len(cache.MAGIC)
DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda b: b"",
    "one byte long": lambda b: b[:1],
    "the header alone": lambda b: b[: HEAD + 2 * cache.DIGEST],
    "cut in the header": lambda b: b[: HEAD + 5],
    "cut in half": lambda b: b[: len(b) // 2],
    "cut at the end": lambda b: b[:-1],
    "longer": lambda b: b + b"\0",
    "twice": lambda b: b + b,
    "a byte of the first line": lambda b: bytes([b[0] ^ 1]) + b[1:],
    "another version": lambda b: b.replace(b"code 1\n", b"code 2\n", 1),
    "a byte of the key": lambda b: b[:HEAD] + bytes([b[HEAD] ^ 1]) + b[HEAD + 1 :],
    "a byte of the digest": lambda b: b[: HEAD + 40] + bytes([b[HEAD + 40] ^ 1]) + b[HEAD + 41 :],
    "a byte of the code": lambda b: b[:-100] + bytes([b[-100] ^ 1]) + b[-99:],
    "zeros": lambda b: bytes(len(b)),
    "without a header": lambda b: b[HEAD + 2 * cache.DIGEST :],
    "text": lambda b: b"not code at all" * 100,
    "reversed": lambda b: b[::-1],
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_made_anew(folder, monkeypatch, damage):
    code, _ = compiled(monkeypatch, axpy())
    (path,) = folder.iterdir()
    good = path.read_bytes()
    path.write_bytes(DAMAGE[damage](good))
    assert compiled(monkeypatch, axpy()) == (code, True)
    assert path.read_bytes() == good


def test_two_files_that_were_swapped_are_made_anew(folder, monkeypatch):
    code = [compiled(monkeypatch, axpy(factor=x))[0] for x in (2.0, 3.0)]
    one, other = folder.iterdir()
    kept = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(kept)
    assert [compiled(monkeypatch, axpy(factor=x)) for x in (2.0, 3.0)] == [(code[0], True), (code[1], True)]
    assert not compiled(monkeypatch, axpy())[1]


def test_a_cache_that_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TORCH_MJENVS_CACHE", str(tmp_path / "file" / "cache"))
    assert compiled(monkeypatch, axpy())[1] and compiled(monkeypatch, axpy())[1]


def test_nothing_is_left_lying_about(folder, monkeypatch):
    """Where the file cannot be put in its place, here because a folder stands there."""
    compiled(monkeypatch, axpy())
    (path,) = folder.iterdir()
    path.unlink()
    (path / "in the way").mkdir(parents=True)
    assert compiled(monkeypatch, axpy())[1]
    assert list(folder.iterdir()) == [path]


# where it is, and whom it trusts


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    """A home of its own, and nothing said about caches."""
    for name in ("TORCH_MJENVS_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    cache._warn.cache_clear()
    return tmp_path


linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="where Linux has its folders")
unix = pytest.mark.skipif(not cache.CHECKED, reason="about owners and modes of Unix")


@linux
def test_where_the_cache_is(home, monkeypatch):
    assert cache.directory() == home / ".cache" / "torch_mjenvs"
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "xdg"))
    assert cache.directory() == home / "xdg" / "torch_mjenvs"
    monkeypatch.setenv("TORCH_MJENVS_CACHE", "~/mine")
    assert cache.directory() == home / "mine"


@linux
@pytest.mark.parametrize("relative", ["rel", "~nobody-of-this-name/x", "./x"])
def test_no_folder_is_made_where_the_process_happens_to_stand(home, monkeypatch, relative):
    monkeypatch.setenv("XDG_CACHE_HOME", relative)
    assert cache.directory() == home / ".cache" / "torch_mjenvs"
    monkeypatch.setenv("TORCH_MJENVS_CACHE", relative)
    with pytest.warns(RuntimeWarning, match="TORCH_MJENVS_CACHE=.* relative: name a folder by its full path"):
        assert cache.directory() == home / ".cache" / "torch_mjenvs"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compiled(monkeypatch, axpy())[1] and not compiled(monkeypatch, axpy())[1]
    assert [path.name for path in home.iterdir()] == [".cache"]


def test_no_home(home, monkeypatch):
    monkeypatch.setattr(cache.platformdirs, "user_cache_path", lambda *_, **__: Path("~/.cache/torch_mjenvs"))
    assert cache.directory() is None
    assert compiled(monkeypatch, axpy())[1] and compiled(monkeypatch, axpy())[1]
    assert not list(home.iterdir())


@unix
def test_nobody_else_can_look_into_it(folder, monkeypatch):
    compiled(monkeypatch, axpy())
    (path,) = folder.iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700 and stat.S_IMODE(path.stat().st_mode) == 0o600


def refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """That the cache is not used, which is said once."""
    cache._warn.cache_clear()
    with pytest.warns(RuntimeWarning, match=text) as said:
        assert compiled(monkeypatch, axpy())[1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compiled(monkeypatch, axpy())[1] or "file" in text
    assert len(said) == 1


@unix
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_folder_that_others_may_write_is_not_used(folder, monkeypatch, mode):
    compiled(monkeypatch, axpy())
    folder.chmod(mode)
    refused(monkeypatch, f"{folder} is not used, as others may write it.*chmod go-w")


@unix
def test_a_folder_of_somebody_else_is_not_used(folder, monkeypatch):
    compiled(monkeypatch, axpy())
    monkeypatch.setattr(cache.os, "geteuid", lambda: os.getuid() + 1)
    refused(monkeypatch, f"{folder} is not used, as another user owns it.*TORCH_MJENVS_CACHE")


@unix
def test_a_file_that_others_may_write_is_not_used_but_replaced(folder, monkeypatch):
    code, _ = compiled(monkeypatch, axpy())
    (path,) = folder.iterdir()
    path.chmod(0o666)
    cache._warn.cache_clear()
    with pytest.warns(RuntimeWarning, match=f"{path.name} is not used, as others may write it"):
        assert compiled(monkeypatch, axpy()) == (code, True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert compiled(monkeypatch, axpy()) == (code, False)


@pytest.mark.skipif(not cache.CHECKED or os.getuid() != 0, reason="only root can give files away")
def test_a_file_of_somebody_else_is_not_used_but_replaced(folder, monkeypatch):
    code, _ = compiled(monkeypatch, axpy())
    (path,) = folder.iterdir()
    os.chown(path, 12345, -1)
    cache._warn.cache_clear()
    with pytest.warns(RuntimeWarning, match=r"another user owns it \(number 12345\)"):
        assert compiled(monkeypatch, axpy()) == (code, True)
    assert path.stat().st_uid == 0 and compiled(monkeypatch, axpy()) == (code, False)


@unix
def test_no_link_is_followed_and_no_pipe_waited_for(folder, monkeypatch, tmp_path):
    code, _ = compiled(monkeypatch, axpy())
    (path,) = folder.iterdir()
    elsewhere = tmp_path / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    assert compiled(monkeypatch, axpy()) == (code, True)
    assert not path.is_symlink() and elsewhere.exists(), "the link was replaced, not what it led to"
    path.unlink()
    os.mkfifo(path)
    assert compiled(monkeypatch, axpy()) == (code, True)
    assert path.is_file() and compiled(monkeypatch, axpy()) == (code, False)


@unix
def test_a_folder_of_ones_own_may_lie_elsewhere(folder, monkeypatch, tmp_path):
    """As homes on large machines do: the folder itself is a link to a place of the same user."""
    (tmp_path / "scratch").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "scratch")
    code, _ = compiled(monkeypatch, axpy())
    assert compiled(monkeypatch, axpy()) == (code, False)


# how large it gets


def test_what_was_not_used_for_longest_goes(folder, monkeypatch):
    for k in range(4):
        compiled(monkeypatch, axpy(factor=2.0 + k))
        for path in folder.iterdir():
            os.utime(path, (path.stat().st_atime, path.stat().st_mtime - 100))
    size = max(path.stat().st_size for path in folder.iterdir())
    assert not compiled(monkeypatch, axpy(factor=2.0))[1], "the oldest is used once more"
    monkeypatch.setattr(cache, "LIMIT", 3 * size)
    assert compiled(monkeypatch, axpy(factor=9.0))[1]
    assert len(list(folder.iterdir())) == 3
    monkeypatch.undo()
    monkeypatch.setenv("TORCH_MJENVS_CACHE", str(folder))
    found = {factor for factor in (2.0, 3.0, 4.0, 5.0, 9.0) if not compiled(monkeypatch, axpy(factor=factor))[1]}
    assert found == {2.0, 5.0, 9.0}


def test_what_killed_writers_left_goes_after_an_hour(folder, monkeypatch):
    compiled(monkeypatch, axpy())
    (path,) = folder.iterdir()
    left, fresh = (folder / f"{path.name}.{x}.tmp" for x in ("abc_1234", "abcd1234"))
    others = [folder / "mine.tmp", folder / "notes.txt", folder / "main.o"]
    for x in (left, fresh, *others):
        x.write_bytes(b"x" * 100)
    for x in (left, *others):
        os.utime(x, (0, 0))
    monkeypatch.setattr(cache, "_unchecked", {})  # as another process, which has not looked at the folder yet
    compiled(monkeypatch, axpy(factor=3.0))
    assert not left.exists() and fresh.exists()
    assert all(x.exists() for x in others), "files that are not the cache's are nobody's business"


def test_the_command_shows_and_clears(folder, monkeypatch, capsys):
    compiled(monkeypatch, axpy())
    (folder / "notes.txt").write_text("mine")
    command.main([])
    shown = capsys.readouterr().out
    assert str(folder) in shown and "axpy" in shown and "1 file" in shown and "ago" in shown
    command.main(["--clear"])
    assert "removed 1 file" in capsys.readouterr().out
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]


# whose last user goes


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def makers() -> dict[str, Callable[[], object]]:
    found: dict[str, Callable[[], object]] = {
        "vector": lambda: TorchVectorEnv("InvertedPendulum", 3),
        "vector of a user's task": lambda: TorchVectorEnv(Scaled(), 3),
        "single": lambda: TorchEnv("InvertedPendulum"),
    }
    return found


def test_a_graph_goes_when_its_kernel_is_made(no_collector):
    """Of a user's task, which is traced whenever an environment is made."""

    def count() -> int:
        return sum(type(x) is Expr for x in gc.get_objects())

    before = count()
    env = TorchVectorEnv(Scaled(), 3)
    assert count() == before
    held = env.engine._episode.program("step", "float32")
    assert count() > before + 500, f"{held.name} is not empty"


@pytest.mark.parametrize("kind", makers())
def test_an_environment_goes_with_its_last_user(no_collector, kind):
    """Buffers, engine and kernels, without the cycle collector."""
    env = makers()[kind]()
    env.reset()
    env.step(env.action_space.sample())
    engine = env.engine
    engine.set_state(engine.qpos, engine.qvel)
    held = [weakref.ref(x) for x in (env, engine, engine._step.kernel, engine._reset.kernel, *engine.buffers.values())]
    del env, engine
    assert [x() for x in held] == [None] * len(held)


def test_a_torchrl_environment_goes_with_its_last_user(no_collector):
    pytest.importorskip("torchrl")
    from torch_mjenvs import InvertedPendulumEnv

    env = InvertedPendulumEnv(3)
    env.rollout(2)
    held = [weakref.ref(x) for x in (env, env.engine, env.engine._step.kernel)]
    del env
    assert [x() for x in held] == [None] * len(held)


def test_a_simulation_goes_with_its_last_user(no_collector):
    sim = Simulation(InvertedPendulum().load(), 3, outputs=("xpos",))
    sim.step()
    sim.forward()
    held = [weakref.ref(x) for x in (sim, sim.model, sim._step.kernel, sim._forward.kernel, sim.qpos)]
    del sim
    assert [x() for x in held] == [None] * len(held)


def test_a_kernel_in_use_is_shared():
    envs = [TorchVectorEnv("InvertedPendulum", n) for n in (3, 5)]
    assert envs[0].engine._step.kernel is envs[1].engine._step.kernel
    assert TorchVectorEnv(Scaled(), 3).engine._step.kernel is not envs[0].engine._step.kernel


def test_a_launch_of_a_kernel_that_is_gone_says_so():
    kernel = build(axpy())
    handle, held = kernel.handle, [torch.zeros(2, 16), torch.zeros(2, 16)]
    torch.ops.torch_mjenvs.launch(handle, held, 1)
    del kernel
    for call in (lambda: torch.ops.torch_mjenvs.launch(handle, held, 1), lambda: launch.run(handle, held)):
        with pytest.raises(RuntimeError, match="has been deleted: keep it alive"):
            call()


GROWTH = """
import gc, os, sys
from dataclasses import replace
from pathlib import Path
import torch
from torch_mjenvs import InvertedPendulum, TorchVectorEnv
from torch_mjenvs.compiler import launch

def resident() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20

def make(k: int) -> None:
    env = TorchVectorEnv(InvertedPendulum(reset_noise_scale=0.01 + 1e-4 * k), 8)
    env.reset(seed=0)
    env.step(torch.zeros(8, 1))

many = int(sys.argv[1])
for k in range(many // 10):
    make(k)
before = resident()
for k in range(many // 10, many):
    make(k)
assert not len(launch._kernels), len(launch._kernels)
print(resident() - before)
"""


@linux
@pytest.mark.parametrize("variants", [10, pytest.param(300, marks=pytest.mark.slow)])
def test_variants_of_a_model_do_not_add_up(variants):
    assert float(run(GROWTH, variants)) < 15


# several processes

TWO = """
import sys
sys.path.insert(0, "tests")
import numpy as np
from kernels import record_list, run
x = np.arange(64.0).reshape(1, 64)
for k in range(12):
    y = run(record_list(lambda v: [v[0] * float(k) + 1.0], 1, 1, "float64"), {"x": x})["y"]
    assert (y == x * k + 1).all()
"""


@pytest.mark.parametrize("count", [2, pytest.param(8, marks=pytest.mark.slow)])
def test_processes_at_once(folder, count):
    running = [subprocess.Popen([sys.executable, "-c", TWO], cwd=ROOT) for _ in range(count)]
    assert [p.wait(timeout=300) for p in running] == [0] * count
    assert len(list(folder.glob("*.o"))) == len(list(folder.iterdir())) == 12


WRITER = """
import sys
from torch_mjenvs.compiler import cache
print("begun", flush=True)
for k in range(10**9):
    cache.store("kernel", f"key {k % 20}", bytes([k % 20]) * 4_000_000)
"""
READER = """
from torch_mjenvs.compiler import cache
kept = [cache.load("kernel", f"key {k}") for k in range(20)]
assert all(x is None or x == bytes([k]) * 4_000_000 for k, x in enumerate(kept))
print(sum(x is not None for x in kept))
"""


@pytest.mark.slow
def test_writers_that_are_killed_leave_nothing_false(folder):
    for k in range(10):
        writer = subprocess.Popen([sys.executable, "-c", WRITER], cwd=ROOT, stdout=subprocess.PIPE)
        assert writer.stdout is not None and writer.stdout.readline() == b"begun\n"
        time.sleep(0.05 + 0.013 * k)
        writer.kill()
        writer.wait()
    assert int(run(READER)) > 0
    left = [path for path in folder.iterdir() if path.suffix == ".tmp"]
    for path in left:
        os.utime(path, (0, 0))
    cache.tidy(folder)
    assert not any(path.exists() for path in left)

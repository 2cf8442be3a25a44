"""The device that all tests run on.

`pytest --device cuda` puts every world and every tensor that a test makes on the GPU. A test that then runs kernels on
the CPU alone fails. Without the option, GPUs are hidden from the tests and from the processes they start. Tests about
the CPU's own code are marked `cpu`.
"""

from __future__ import annotations

import gc
import io
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# Tests run beside each other, and processes that they start use all cores. Threads that wait by spinning, as OpenMP's
# do, keep each other from work: a training of 20,000 steps took 21 s of the processor in place of 5.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# Torch's compiler would start as many processes as there are cores, each of which imports torch, for a few lines.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
# And it would have g++ try each of the processor's vector instructions, in 10 s, for the same few lines.
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "0")
# Where a shell turns bytecode off, a process that a test starts would compile this package's 300 modules each time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

import mujoco
import torch

from torch_mjenvs.compiler import cpu, cuda, loader, source
from torch_mjenvs.compiler.control import unrolling
from torch_mjenvs.compiler.llvm import NVIDIA

# In fast runs, LLVM makes code for tests in these folders in a hurry: in a fifth of the time, for the same bits. Runs
# with slow tests (`-m slow`, `-m ""`) compile everything as users do, and so do the tests in AS_USERS_HAVE_IT always:
# these have the kernels of all tasks, beside Gymnasium's, and the longest runs of them.
IN_A_HURRY = {"users", "physics", "envs", "dmc", "rendering", "terrain"}
AS_USERS_HAVE_IT = {"test_gymnasium_parity", "test_episode_distribution"}
AS_USERS = loader.options["opt"]

torch.set_num_threads(1)  # during imports and in modules' fixtures; for tests see `one_thread`
# A run syncs thirty files, each of which may take the disk as long as an iteration; and no test cuts the power.
os.fsync = lambda fd: None
launched: Counter[str] = Counter()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--device", default="cpu", choices=("cpu", "cuda"), help="where the tests' worlds live")
    parser.addoption("--soak-steps", default="40e3", help="steps of worlds in each case of test_soak.py")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--device") == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        return
    if not torch.cuda.is_available():
        raise pytest.UsageError(f"--device cuda: torch {torch.__version__} sees no GPU")
    torch.set_default_device("cuda")  # before test modules are imported: some make tensors then
    count("cpu", cpu._Run)
    count("cuda", cuda._Run)
    # Otherwise the package would count as altered, and every kernel would be traced whenever it is built.
    source.imported.cache_clear()
    source.imported()


def count(name: str, run: type) -> None:
    """Count the launches of a back end."""
    original = run.__call__

    def counted(self: object, times: int) -> None:
        launched[name] += 1
        original(self, times)

    run.__call__ = counted  # type: ignore[method-assign]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # Tests that draw with OpenGL run first: its driver compiles, too, and once aborted in a process after many tests.
    items.sort(key=lambda item: "opengl" not in getattr(item, "fixturenames", ()))
    if config.getoption("--device") == "cuda":
        for item in items:
            if item.get_closest_marker("cpu"):
                item.add_marker(pytest.mark.skip(reason="about the CPU's code"))


def pytest_collectstart() -> None:
    gc.disable()  # while tests' modules are imported, and what they import


def pytest_collection_finish() -> None:
    """Have Python's collector leave out what was imported: a million objects, mostly torch's and TorchRL's. To look
    through them takes a third of a second, and was a tenth of a test's time, since every training run and many traces
    bring it about.
    """
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def truly_there(request: pytest.FixtureRequest) -> Iterator[None]:
    """With `--device cuda`, a test that launched kernels on the CPU only has tested nothing, and fails."""
    before = launched.copy()
    yield
    if request.config.getoption("--device") == "cuda" and launched["cpu"] > before["cpu"]:
        assert launched["cuda"] > before["cuda"], "no kernel ran on the GPU: mark the test `cpu`, or let it run there"


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Use one thread: batches are small, and tests run beside each other. Tests about threads ask for more."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def precision_of_products() -> Iterator[None]:
    """Restore torch's precision of products, which `torch_mjenvs train` lowers for the whole process."""
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)


@pytest.fixture(scope="module", autouse=True)
def compiled_as_its_folder_has_it(request: pytest.FixtureRequest) -> Iterator[None]:
    """Set how kernels are compiled, before other fixtures of the module, since these build kernels, too."""
    with pytest.MonkeyPatch.context() as patch:
        hurried = request.path.parent.name in IN_A_HURRY and request.path.stem not in AS_USERS_HAVE_IT
        if hurried and request.config.option.markexpr == "not slow":
            patch.setitem(loader.options, "opt", 0)
        yield


@pytest.fixture
def drawn() -> None:
    """Draw the learning curves of training runs."""


@pytest.fixture(autouse=True)
def undrawn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave learning curves undrawn, for which a small run takes a third of its time; but the first of a process, which
    imports what draws, and those of tests that use `drawn`.
    """
    module = sys.modules.get("matplotlib.figure")
    if module is None or "drawn" in request.fixturenames:
        return
    save = module.Figure.savefig

    def savefig(self: Any, where: Any, **options: Any) -> None:
        if isinstance(where, io.BytesIO):  # as `runs.save_curve` does
            where.write(b"undrawn")
        else:
            save(self, where, **options)

    monkeypatch.setattr(module.Figure, "savefig", savefig)


@pytest.fixture
def quickly_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have LLVM choose instructions and registers without searching: in a fifth of the time, for the same bits, which
    `test_random_models.py` checks. For tests that compile a model each, in whatever run.
    """
    monkeypatch.setitem(loader.options, "opt", 0)


@pytest.fixture
def as_for_a_gpu() -> Iterator[None]:
    """Make the CPU's kernels from the programs that a GPU gets, with loops where it has them: so they give its bits."""
    with unrolling(NVIDIA.unroll_limit):
        yield


@pytest.fixture
def compiled_as_users_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile as users do in a folder of IN_A_HURRY: for tests of kernels that `test_gymnasium_parity.py` builds
    anyway.
    """
    monkeypatch.setitem(loader.options, "opt", AS_USERS)


@pytest.fixture
def quiet() -> Iterator[None]:
    """Do not print MuJoCo's warnings. For tests that leave out the states that it warns about."""
    mujoco.set_mju_user_warning(lambda _: None)
    yield
    mujoco.set_mju_user_warning(None)


@pytest.fixture
def no_gradients() -> Iterator[None]:
    """Turn autograd off, as in training, where compiled learners run without it."""
    with torch.no_grad():
        yield


@pytest.fixture
def no_default_device() -> Iterator[None]:
    """As in a user's program: torch makes tensors on the CPU, and this package chooses where worlds are."""
    with torch.device("cpu"):
        yield


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if launched:
        terminalreporter.line(f"kernels launched: {launched['cuda']} on the GPU, {launched['cpu']} on the CPU")


@pytest.fixture
def mujocos_own_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Have MuJoCo warn as users see it: on stderr, and in a log file in the working folder, which is this one."""
    monkeypatch.chdir(tmp_path)
    hook = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(None)
    yield tmp_path
    mujoco.set_mju_user_warning(hook)

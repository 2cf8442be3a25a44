"""The wheel: builds without torch, holds the whole package, and works elsewhere, also in an empty environment."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from documented import examples

import torch_mjenvs

ROOT = Path(__file__).resolve().parents[2]

SMOKE = """
import sys
from pathlib import Path
import gymnasium, torch, torch_mjenvs
assert Path(torch_mjenvs.__file__).is_relative_to(sys.argv[1]), torch_mjenvs.__file__
env = gymnasium.make_vec("TorchHopper-v0", num_envs=4)
obs, _ = env.reset(seed=0)
obs, reward, terminated, truncated, _ = env.step(torch.zeros(4, 3, device=env.unwrapped.device))
assert torch_mjenvs.__version__ == sys.argv[2]
assert obs.shape == (4, 11) and obs.isfinite().all() and reward.isfinite().all()
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Built from a copy, since building leaves its traces in the source folder."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    shutil.copytree(ROOT / "torch_mjenvs", source / "torch_mjenvs", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    # Isolation would fetch setuptools from the network; `test_build_needs_no_torch` guards what isolation would show.
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    options = ["--no-deps", "--no-build-isolation", "--wheel-dir", str(folder)]
    subprocess.run([*pip, "wheel", *options, str(source)], check=True, timeout=120)
    (path,) = folder.glob("*.whl")
    return path


def test_build_needs_no_torch():
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]
    assert [requirement.split(">")[0] for requirement in build["requires"]] == ["setuptools"]
    assert not (ROOT / "setup.py").exists()


def test_the_source_distribution_has_tests_docs_and_examples(tmp_path):
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if tracked.returncode:
        pytest.skip("not a checkout")
    files = tracked.stdout.splitlines()
    for name in files:
        if (ROOT / name).is_file():  # tracked, but removed
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / name)
    code = "from setuptools.build_meta import build_sdist; build_sdist('.')"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=120, capture_output=True)
    (path,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    about = {"CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "MANIFEST.in", "Makefile", "README.md", "pyproject.toml"}
    parts = ("benchmarks/", "docs/", "examples/", "tests/", "torch_mjenvs/")
    expected = {name for name in files if (name in about or name.startswith(parts)) and (ROOT / name).is_file()}
    assert expected <= inside and about <= expected


def test_names_that_are_imported_late_are_listed_and_there():
    """Listing them imports nothing; `torch_mjenvs.adapters` needs no import of its own."""
    code = """
import sys, torch_mjenvs
names = {"__version__", "adapters", "HopperEnv", "TorchRLEnv", "Hopper", "Simulation", "dmc"}
assert names <= set(dir(torch_mjenvs)) and not {"Any", "importlib", "register"} & set(dir(torch_mjenvs))
assert not [x for x in ("torchrl", "stable_baselines3", "torch_mjenvs.adapters") if x in sys.modules]
assert {*torch_mjenvs.adapters.__all__, "__doc__"} <= set(dir(torch_mjenvs.adapters))
assert "import_module" not in dir(torch_mjenvs.adapters) and "stable_baselines3" not in sys.modules
assert torch_mjenvs.HopperEnv.__name__ == "HopperEnv" and not torch_mjenvs.compiler.source.is_altered()
"""
    pytest.importorskip("torchrl")
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=120)


def test_type_checkers_are_told_of_every_task():
    package, torchrl = ((ROOT / "torch_mjenvs" / name).read_text() for name in ("__init__.py", "envs/torchrl.py"))
    for name in torch_mjenvs.TASKS:
        assert name in torch_mjenvs.__all__ and f"    class {name}Env(_NamedEnv): ...\n" in torchrl
        assert f"    from .envs.torchrl import {name}Env as {name}Env\n" in package
    assert len(re.findall(r"class \w+\(_NamedEnv\)", torchrl)) == len(torch_mjenvs.TASKS)


TYPED = """
import numpy as np
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch_mjenvs
from torch_mjenvs import *
from torch_mjenvs import HumanoidEnv, TorchRLEnv
from torch_mjenvs.adapters import SB3VecEnv
from torch_mjenvs.dmc.environment import SuiteEnvironment
from torch_mjenvs.physics import Model
from torch_mjenvs.scalar import Random, Scalar
from typing_extensions import assert_type


class Mine(TorchRLEnv):
    pass


@dataclass(frozen=True)
class Placed(Task):
    noise = {"angle": 0.1}

    def reset(self, m: Model, rng: Random) -> tuple[list[Scalar], list[Scalar]]:
        key = m.key("left")
        key.qpos[0] += rng.uniform(-0.1, 0.1)
        return key.qpos, key.qvel

    def begin(self, m: Model, world: World) -> dict[str, float]:
        return {"command": 0.5}

    def control(self, m: Model, world: World, action: list[Scalar]) -> Control:
        return Control([0.0] * m.nu, xfrc_applied={"torso": (0.0,) * 6})


@dataclass(frozen=True)
class Started(Task):
    noise: Mapping[str, Any] | None = None

    def reset(self, m: Model, rng: Random) -> Start:
        return Start(m.key("home").qpos, [0.0] * m.nv)


@dataclass(frozen=True)
class Noisy(Placed):
    level: float = 1.0

    @property
    def history(self) -> dict[str, int]:
        return {"angle": 3}


env = TorchVectorEnv(Hopper(), 2)
env.step([[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
env.step(np.zeros((2, 3)))
TorchEnv(Hopper()).step([0.0, 0.0, 0.0])
sim = Simulation("robot.xml", 2)
sim.qvel += 1.0
assert_type(sim.qpos, torch.Tensor)
assert_type(wrappers.ClipAction(env).unwrapped, TorchVectorEnv)
assert_type(torch_mjenvs.__version__, str)
wrappers.ClipAction(env).step(np.zeros((2, 3)))
assert_type(dmc.load("walker", "walk"), SuiteEnvironment)
SB3VecEnv(env)
torch_mjenvs.adapters.RslRlVecEnv(env)
HumanoidEnv(num_envs=3)
TASKS["Hopper"]
"""
MISTYPED = """
from torch_mjenvs import TorchVecEnv
from torch_mjenvs import Hoper
from torch_mjenvs.adapters import SB3Env
torch_mjenvs.pretraind
wrappers.ClipAction(env).unwrapped.engin
sim.qpos.shap
"""


@pytest.mark.slow  # mypy reads torch
def test_type_checkers_take_what_is_documented_and_refuse_what_is_not(tmp_path):
    pytest.importorskip("mypy")
    wrong = MISTYPED.strip().splitlines()
    file = tmp_path / "user.py"
    file.write_text(TYPED + MISTYPED)
    mypy = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(ROOT / ".mypy_cache" / "strict")]
    options = {"capture_output": True, "text": True, "timeout": 600, "cwd": tmp_path}
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    said = subprocess.run([*mypy, str(file)], env=os.environ | {"PYTHONPATH": path, "MYPYPATH": path}, **options)
    lines = file.read_text().splitlines()
    refused = {lines[int(number) - 1] for number in re.findall(r"user\.py:(\d+): error", said.stdout)}
    assert refused == set(wrong), said.stdout + said.stderr


def test_wheel_holds_every_module(wheel):
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("torch_mjenvs/")}
    kinds = ("*.py", "*.pt", "*.toml", "py.typed")
    expected = {path.relative_to(ROOT).as_posix() for kind in kinds for path in (ROOT / "torch_mjenvs").rglob(kind)}
    assert expected <= inside


def test_wheel_works_elsewhere(wheel, tmp_path):
    target = tmp_path / "target"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    subprocess.run([*pip, "install", "--no-deps", "--no-index", "--target", str(target), str(wheel)], check=True)
    # The target goes before any editable install of this package.
    code = f"import sys; sys.path.insert(0, {str(target)!r}); {SMOKE}"
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    subprocess.run([sys.executable, "-c", code, str(target), version], cwd=tmp_path, check=True, timeout=120)


@pytest.mark.slow  # it installs torch
def test_in_an_empty_environment_the_readmes_first_lines_run_and_nothing_else_is_said_or_left(wheel, tmp_path):
    """As `pip install torch_mjenvs` would be, from wherever pip gets torch and the rest."""
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    scripts = tmp_path / "venv" / ("Scripts" if os.name == "nt" else "bin")
    environment = {k: x for k, x in os.environ.items() if k not in ("PYTHONPATH", "MPLBACKEND")}
    environment["TORCH_MJENVS_CACHE"] = str(tmp_path / "cache")
    options = {"env": environment, "capture_output": True, "text": True, "timeout": 1200}
    pip = [str(scripts / "python"), "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    done = subprocess.run([*pip, "-c", str(ROOT / "constraints.txt"), str(wheel)], **options)
    assert done.returncode == 0, done.stderr
    code = examples("README.md")[0]
    assert "gymnasium.make_vec" in code and len(code.splitlines()) <= 12
    work = tmp_path / "work"
    work.mkdir()
    done = subprocess.run([str(scripts / "python"), "-c", code], cwd=work, **options)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "") and not list(work.iterdir())
    done = subprocess.run([str(scripts / "torch_mjenvs"), "list"], cwd=work, **options)
    assert done.returncode == 0 and "TorchHumanoid-v0" in done.stdout
    done = subprocess.run([str(scripts / "torch_mjenvs"), "train"], cwd=work, **options)
    assert done.returncode == 1 and "pip install '.[train]'" in done.stderr and not list(work.iterdir())

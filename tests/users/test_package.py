"""The wheel: builds without torch, holds the whole package, and works elsewhere, also in an empty environment."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

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
    code = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)[0]
    assert "gymnasium.make_vec" in code and len(code.splitlines()) <= 12
    work = tmp_path / "work"
    work.mkdir()
    done = subprocess.run([str(scripts / "python"), "-c", code], cwd=work, **options)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "") and not list(work.iterdir())
    done = subprocess.run([str(scripts / "torch_mjenvs"), "list"], cwd=work, **options)
    assert done.returncode == 0 and "TorchHumanoid-v0" in done.stdout
    done = subprocess.run([str(scripts / "torch_mjenvs"), "train"], cwd=work, **options)
    assert done.returncode == 1 and "pip install '.[train]'" in done.stderr and not list(work.iterdir())

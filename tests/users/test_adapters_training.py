"""Each library trains: what docs/libraries.md says is run as it stands.

A library that is not installed is skipped by name: `make libraries` installs them all.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "libraries.md").read_text()
SNIPPETS = dict(re.findall(r"\n## ([^\n]+)\n\n```python\n(.*?)```", PAGE, re.S))
LIBRARIES = {  # what is imported, and what pip calls it
    "Stable-Baselines3": ("stable_baselines3", "stable-baselines3"),
    "rsl_rl": ("rsl_rl", "rsl-rl-lib"),
    "rl_games": ("rl_games", "rl-games"),
    "skrl": ("skrl", "skrl"),
    "Tianshou": ("tianshou", "tianshou"),
}


class Watch:
    """What the libraries' optimisers were given, and how it was then."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.given: list[tuple[torch.Tensor, torch.Tensor]] = []
        original = torch.optim.Adam.__init__

        def watched(adam: Any, params: Any, *args: Any, **kwargs: Any) -> None:
            original(adam, params, *args, **kwargs)
            self.given += [(p, p.detach().clone()) for group in adam.param_groups for p in group["params"]]

        monkeypatch.setattr(torch.optim.Adam, "__init__", watched)

    def check(self) -> None:
        """All parameters are finite, and nearly all have moved: a bias of a value alone may not."""
        assert len(self.given) > 6
        moved = [bool((p != before).any()) for p, before in self.given]
        assert all(p.isfinite().all() for p, _ in self.given) and sum(moved) > 0.8 * len(moved)


def finite(*numbers: Any) -> None:
    assert numbers and np.isfinite(np.array(numbers, float)).all()


def returns_of_sb3(names: dict[str, Any]) -> None:
    assert len(names["returns"]) > 20
    finite(*names["returns"])


def returns_of_rsl_rl(names: dict[str, Any]) -> None:
    assert names["runner"].current_learning_iteration == 1
    assert names["env"].get_observations()["policy"].isfinite().all()


def returns_of_rl_games(names: dict[str, Any]) -> None:
    saved = list(Path("runs").glob("*/nn/*.pth"))
    state = torch.load(saved[0], weights_only=False)
    finite(state["last_mean_rewards"])
    assert state["env_state"]["qpos"].isfinite().all()


def returns_of_skrl(names: dict[str, Any]) -> None:
    names["env"].render()  # as the trainer does unless it is told not to
    memory = names["runner"].agent.memory
    assert memory.get_tensor_by_name("rewards").isfinite().all() and memory.get_tensor_by_name("terminated").any()


def returns_of_tianshou(names: dict[str, Any]) -> None:
    finite(names["result"].best_reward, names["result"].best_score)
    assert names["result"].train_episode > 20


CHECKS = {
    "Stable-Baselines3": returns_of_sb3,
    "rsl_rl": returns_of_rsl_rl,
    "rl_games": returns_of_rl_games,
    "skrl": returns_of_skrl,
    "Tianshou": returns_of_tianshou,
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
@pytest.mark.usefixtures("no_default_device")
@pytest.mark.parametrize("name", LIBRARIES)
def test_it_trains(name, monkeypatch, tmp_path):
    library, package = LIBRARIES[name]
    pytest.importorskip(library, reason=f"{package} is not installed")
    monkeypatch.chdir(tmp_path)
    watch = Watch(monkeypatch)
    module = ModuleType("example")
    monkeypatch.setitem(sys.modules, "example", module)
    exec(compile(SNIPPETS[name], f"libraries.md, {name}", "exec"), vars(module))
    watch.check()
    CHECKS[name](vars(module))


@pytest.mark.slow
@pytest.mark.cpu
@pytest.mark.parametrize("name", [*LIBRARIES, "CleanRL"])
def test_its_speed_is_measured_here_and_on_gymnasiums_own_worlds(name):
    library, package = LIBRARIES.get(name, ("torch", "torch"))
    pytest.importorskip(library, reason=f"{package} is not installed")
    command = [sys.executable, "-m", "benchmarks.libraries", "--rounds", "1", "--frames", "4096", "--only", name]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    (row,) = re.findall(rf"^\| {name} \| ([\d]+|9 changed) (?:\| [\d.]+(?: [kM])? )+.*x \|$", done.stdout, re.M)
    assert row


def test_every_example_is_run():
    assert set(SNIPPETS) >= set(LIBRARIES)

"""Tables that a task renews in `train`, from what its worlds remember: adaptive sampling, and what is refused."""

from __future__ import annotations

import io
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("matplotlib")
pytest.importorskip("tqdm")

from torch_mjenvs import Outcome, Start, Task, TorchVectorEnv
from torch_mjenvs.scalar import logical_and, select
from torch_mjenvs.training import ppo, sac
from torch_mjenvs.training.renewed import Renewed
from torch_mjenvs.training.sharing import Share

pytestmark = [pytest.mark.usefixtures("no_default_device"), pytest.mark.cpu]
BINS = 4


@dataclass(frozen=True)
class Lean(Task):
    """A pole begins at one of many angles, more often at those from which it fell."""

    max_episode_steps = 12
    xml_file: str = "inverted_pendulum.xml"
    frame_skip: int = 2

    def tables(self, m: Any) -> dict[str, Any]:
        return {"angle": [-0.19, -0.01, 0.0, 0.01], "starts": [k % BINS for k in range(64)]}

    def memory(self, m: Any) -> dict[str, Any]:
        return {"bin": 0.0, "falls": [0.0] * BINS}

    def reset(self, m: Any, rng: Any, world: Any) -> Start:
        k = world.tables["starts"][rng.integers(64)]
        return Start([0.0, world.tables["angle"][k]], [0.0] * m.nv, memory={"bin": k})

    def begin(self, m: Any, world: Any) -> dict[str, Any]:
        return {"falls": world.memory["falls"]}  # which outlasts episodes

    def fell(self, after: Any) -> Any:
        return abs(after.qpos[1]) > 0.2

    def remember(self, m: Any, before: Any, action: list[Any], after: Any) -> dict[str, Any]:
        old, fell = before.memory, self.fell(after)
        here = [logical_and(fell, abs(old["bin"] - k) < 0.5) for k in range(BINS)]
        return {"falls": [x + select(now, 1.0, 0.0) for x, now in zip(old["falls"], here, strict=True)]}

    def observe(self, m: Any, world: Any) -> list[Any]:
        return [*world.qpos, *world.qvel]

    def outcome(self, m: Any, before: Any, action: list[Any], after: Any) -> Outcome:
        return Outcome(1.0, self.fell(after))

    def renew_tables(self, memory: Mapping[str, torch.Tensor], tables: Mapping[str, torch.Tensor]) -> dict[str, Any]:
        falls = memory["falls"].sum(0)
        return {"starts": torch.multinomial(falls + 0.1 * falls.sum() / BINS + 1e-3, 64, replacement=True)}


def learner(kind: str, task: Task) -> Any:
    torch.manual_seed(0)
    module, ways = {"ppo": (ppo, {"learner": "torch", "precision": "float32"}), "sac": (sac, {})}[kind]
    env = TorchVectorEnv(task, 16, autoreset_mode="SameStep", device="cpu")
    small = {"num_envs": 16, "total_steps": 10_000, "horizon": 8, "actor": [8, 8], "critic": [8, 8], "minibatch": 64}
    if kind == "sac":
        small = small | {"batch": 16, "buffer": 200, "random_frames": 0, "updates": 2}
        del small["minibatch"]
    with torch.no_grad():
        return module.make(env, module.settings("", "cpu", **small), 0, {}, Share(), **ways)


@pytest.mark.parametrize("kind", ["ppo", "sac"])
def test_starts_follow_falls_and_a_run_goes_on_with_its_tables(kind: str) -> None:
    with torch.no_grad():
        one = learner(kind, Lean())
        first = one.env.engine.tables["starts"].clone()
        for _ in range(6):
            one.iterate()
        starts = one.env.engine.tables["starts"]
        assert one.env.engine.memory["falls"].sum(0).argmax() == 0  # which leans most
        counts = starts.long().bincount()
        assert counts.argmax() == 0 and counts[0] > 20 and first.long().bincount().tolist() == [16] * BINS
        file = io.BytesIO()
        torch.save(one.state_dict(), file)
        one.iterate()
        other = learner(kind, Lean())
        file.seek(0)
        other.load_state_dict(torch.load(file, weights_only=True))
        other.iterate()
        assert torch.equal(other.env.engine.tables["starts"], one.env.engine.tables["starts"])
        assert torch.equal(other.env.engine.qpos, one.env.engine.qpos)


def test_a_run_whose_task_renews_nothing_has_no_tables_in_its_state() -> None:
    @dataclass(frozen=True)
    class Still(Lean):
        renew_tables = Task.renew_tables

    with torch.no_grad():
        assert "tables" not in learner("ppo", Still()).state_dict()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"begins": [0.0]}, r"'begins' is none of the task's tables, \['angle', 'starts'\]"),
        ({"starts": [0.0]}, r"'starts' has shape \(1,\), and tables\(\) gave \(64,\)"),
        ({"starts": [float("nan")] * 64}, "'starts' has numbers that are not finite"),
    ],
)
def test_wrong_tables_are_refused(given: dict[str, Any], message: str) -> None:
    @dataclass(frozen=True)
    class Wrong(Lean):
        def renew_tables(self, memory: Any, tables: Any) -> dict[str, Any]:
            return given

    env = TorchVectorEnv(Wrong(), 2, device="cpu")
    with pytest.raises(ValueError, match=rf"Wrong.renew_tables: {message}"):
        Renewed(env.engine).renew()
    assert env.engine.tables["starts"].tolist() == Lean().tables(None)["starts"]


@pytest.mark.parametrize(
    "draw",
    [
        lambda: np.random.rand(64),  # noqa: NPY002
        lambda: [random.random() for _ in range(64)],
    ],
)
def test_tables_drawn_by_what_a_run_does_not_seed_are_warned_of(draw: Any) -> None:
    @dataclass(frozen=True)
    class Drawing(Lean):
        def renew_tables(self, memory: Any, tables: Any) -> dict[str, Any]:
            return {"starts": draw()}

    renewed = Renewed(TorchVectorEnv(Drawing(), 2, device="cpu").engine)
    with pytest.warns(UserWarning, match=r"Drawing.renew_tables draws from np.random or random, which --seed"):
        renewed.renew()
    assert renewed.engine.tables["starts"].unique().numel() == 64


def test_processes_see_the_memory_of_all_worlds(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    @dataclass(frozen=True)
    class Seeing(Lean):
        def renew_tables(self, memory: Any, tables: Any) -> dict[str, Any]:
            seen.append({name: x.shape for name, x in memory.items()})
            return {}

    monkeypatch.setattr(Share, "gathered", lambda share, x, dim=0: torch.cat([x] * share.ranks, dim))
    Renewed(TorchVectorEnv(Seeing(), 2, device="cpu").engine, Share(0, 3)).renew()
    assert seen == [{"bin": (6,), "falls": (6, BINS)}]

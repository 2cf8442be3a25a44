"""A training run in a process that does other things, too, such as a search for settings."""

from __future__ import annotations

import os
import threading
import weakref

import pytest
import torch

from torch_mjenvs.commands import score
from torch_mjenvs.training import ppo, sac, train
from torch_mjenvs.training.undisturbed import undisturbed

pytestmark = pytest.mark.cpu

SMALL = [
    *("--env", "TorchHopper-v0", "--device", "cpu", "--num-envs", "64", "--total-steps", "1024", "--horizon", "8"),
    *("--minibatch", "256", "--epochs", "1", "--actor", "8", "--critic", "8", "--episodes", "2", "--evaluations", "1"),
]


def small(sac: bool) -> list[str]:
    """Return flags of a small run."""
    pairs = [SMALL[k : k + 2] for k in range(0, len(SMALL), 2)]
    if not sac:
        return SMALL
    known = [x for pair in pairs if pair[0] not in ("--minibatch", "--epochs") for x in pair]
    return [*known, "--algorithm", "sac", "--random-frames", "500"]


def test_a_run_leaves_torchs_random_numbers_and_modes_as_they_were(tmp_path):
    """Else a search that draws the next settings from torch would draw the same ones after every run."""
    torch.manual_seed(1)
    torch.set_default_dtype(torch.float64)
    torch.set_float32_matmul_precision("high")
    try:
        state = torch.get_rng_state()
        train.main([*SMALL, "--learner", "torch", "--out", str(tmp_path)])
        assert torch.get_rng_state().equal(state)
        assert (torch.get_default_dtype(), torch.get_float32_matmul_precision()) == (torch.float64, "high")
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_float32_matmul_precision("highest")


@pytest.mark.parametrize("flags", [[], ["--learner", "torch"], ["--algorithm", "sac"]])
def test_a_run_takes_no_account_of_the_modes_that_it_is_begun_in(tmp_path, flags):
    flags = [*small("sac" in flags), *flags]
    train.main([*flags, "--out", str(tmp_path / "plain")])
    torch.set_default_dtype(torch.float64)
    try:
        with torch.autocast("cpu", torch.bfloat16), torch.inference_mode(), torch.device("meta"):
            train.main([*flags, "--out", str(tmp_path / "other")])
    finally:
        torch.set_default_dtype(torch.float32)
    plain, other = (torch.load(tmp_path / name / "policy.pt", weights_only=True) for name in ("plain", "other"))
    assert all(other[name].equal(x) for name, x in plain.items() if isinstance(x, torch.Tensor))


def test_a_score_is_the_same_whatever_torchs_default_device(tmp_path, capsys):
    train.main([*SMALL, "--out", str(tmp_path)])
    capsys.readouterr()
    command = [str(tmp_path), "--episodes", "2"]
    score.main(command)
    with torch.device("meta"):
        score.main(command)
    plain, other = capsys.readouterr().out.strip().split("score in TorchHopper-v0")[1:]
    assert plain.strip() == other.strip()


def test_a_second_run_in_the_process_is_refused(tmp_path, monkeypatch):
    """Not only in another thread; a child that is forked meanwhile may have one of its own."""
    said: list[str] = []

    def second() -> None:
        with pytest.raises(SystemExit) as stop:
            train.main([*SMALL, "--out", str(tmp_path / "second")])
        said.append(str(stop.value))

    def update(agent: ppo.PPO) -> None:
        if not said:
            thread = threading.Thread(target=second)
            thread.start()
            thread.join()

    monkeypatch.setattr(ppo.PPO, "update", update)
    train.main([*SMALL, "--out", str(tmp_path / "first")])
    assert "another run is training in this process" in said[0] and not (tmp_path / "second").exists()
    train.main([*SMALL, "--out", str(tmp_path / "second")])


@pytest.mark.parametrize("algorithm", [ppo, sac])
def test_a_learner_goes_with_its_run(tmp_path, monkeypatch, algorithm):
    """Else the replay buffers of many runs would add up."""
    made: list[weakref.ref[object]] = []

    def make(*given, make=algorithm.make, **named):
        agent = make(*given, **named)
        made.append(weakref.ref(agent))
        return agent

    monkeypatch.setattr(algorithm, "make", make)
    train.main([*small(algorithm is sac), "--out", str(tmp_path)])
    assert made[0]() is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
def test_a_forked_child_may_have_a_run_of_its_own():
    with undisturbed("cpu"):
        child = os.fork()
        if not child:
            try:
                with undisturbed("cpu"):
                    os._exit(0)
            finally:
                os._exit(1)
    assert os.waitpid(child, 0)[1] == 0

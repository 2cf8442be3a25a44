"""Evaluations beside the training, as in a run on a GPU; here the agent is on the CPU, too."""

from __future__ import annotations

import json
import threading

import pytest
import torch

pytest.importorskip("matplotlib")
pytest.importorskip("tqdm")

from torch_mjenvs.training import ppo, sac, train
from torch_mjenvs.training.evaluations import Evaluation

pytestmark = [pytest.mark.usefixtures("no_default_device"), pytest.mark.cpu]
SMALL = ["--env", "TorchHopper-v0", "--num-envs", "32", "--horizon", "32", "--total-steps", "6144", "--episodes", "2"]
SMALL += ["--actor", "8", "--critic", "8", "--minibatch", "512", "--epochs", "1", "--evaluations", "3"]
ITERATIONS = 6  # of which the second, the fourth and the last are evaluated; after each there is a checkpoint


@pytest.fixture(autouse=True)
def on_gpu(monkeypatch) -> None:
    """Evaluate copies of the policy in a thread."""
    made = Evaluation.__init__

    def init(self, *given):
        made(self, *given)
        self.on_gpu = True

    monkeypatch.setattr(Evaluation, "__init__", init)


def trained(out) -> dict:
    train.main([*SMALL, "--out", str(out)])
    return json.loads((out / "result.json").read_text())


def rows(result: dict) -> list[list[float]]:
    """Return the frames and means of a run's evaluations."""
    return [row[1:] for row in result["evaluations"]]


def test_the_run_goes_on_meanwhile(tmp_path, monkeypatch):
    """Here an evaluation ends only when another iteration has begun, or is the last. The run is the same."""
    usual = trained(tmp_path / "usual")
    begun, more = [0], threading.Condition()
    iterate, mean = ppo.PPO.iterate, Evaluation._mean_of_copy
    waited = []

    def counted(agent):
        with more:
            begun[0] += 1
            more.notify_all()
        iterate(agent)

    def late(evaluation, policy):
        at = 2 * (len(waited) + 1)
        with more:
            assert more.wait_for(lambda: begun[0] > min(at, ITERATIONS - 1), 60)
        waited.append(at)
        return mean(evaluation, policy)

    monkeypatch.setattr(ppo.PPO, "iterate", counted)
    monkeypatch.setattr(Evaluation, "_mean_of_copy", late)
    found = trained(tmp_path / "late")
    assert waited == [2, 4, 6] and begun == [ITERATIONS]
    assert rows(found) == rows(usual) and [frames for frames, _ in rows(found)] == [2048, 4096, 6144]
    assert found["scores"] == usual["scores"] and "evaluating" not in found
    kept = [torch.load(tmp_path / name / "best.pt", weights_only=True) for name in ("late", "usual")]
    assert kept[0]["about"] == kept[1]["about"] and torch.equal(kept[0]["weights0"], kept[1]["weights0"])


@pytest.mark.parametrize("flags", [[], ["--algorithm", "sac", "--random-frames", "100", "--updates", "1"]])
def test_a_policy_is_evaluated_and_kept_as_it_was(tmp_path, monkeypatch, flags):
    """Normalisation, too, though the run goes on."""
    small = SMALL if not flags else [*SMALL[:6], *SMALL[8:14], *flags]
    small = [*small, "--total-steps", "6144", "--evaluations", "2", "--out", str(tmp_path)]
    kind, ended = (sac.SAC if flags else ppo.PPO), threading.Event()
    iterate, begin, mean = kind.iterate, Evaluation.begin, Evaluation._mean_of_copy
    then: list[dict[str, torch.Tensor]] = []
    now: list[dict[str, torch.Tensor]] = []

    def tensors(policy):
        return {name: x.clone() for name, x in policy.items() if isinstance(x, torch.Tensor)}

    def noted(agent):
        iterate(agent)
        if then:
            ended.set()

    def begun(evaluation, agent, *at):
        then.append(tensors(agent.networks()))
        begin(evaluation, agent, *at)

    def late(evaluation, policy):
        assert ended.wait(60)
        now.append(tensors(policy))
        return mean(evaluation, policy)

    monkeypatch.setattr(kind, "iterate", noted)
    monkeypatch.setattr(Evaluation, "begin", begun)
    monkeypatch.setattr(Evaluation, "_mean_of_copy", late)
    train.main(small)
    assert len(then) == len(now) == 2
    assert now[0].keys() == then[0].keys() and all(now[0][name].equal(x) for name, x in then[0].items())


def test_a_run_that_was_killed_during_an_evaluation_makes_it_again(tmp_path, monkeypatch):
    usual = trained(tmp_path / "usual")
    killed, iterate, mean, count = threading.Event(), ppo.PPO.iterate, Evaluation._mean_of_copy, []

    def once(agent):
        count.append(agent.frames_seen)
        if len(count) == 3:
            killed.set()
            raise MemoryError("killed")
        iterate(agent)

    with monkeypatch.context() as patched:
        patched.setattr(ppo.PPO, "iterate", once)
        patched.setattr(Evaluation, "_mean_of_copy", lambda *given: killed.wait(60) and mean(*given))
        with pytest.raises(MemoryError, match="killed"):
            trained(tmp_path / "run")
    history = torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)["history"]
    assert history["evaluations"] == [] and [frames for _, frames in history["evaluating"]] == [2048]
    train.main([*SMALL, "--out", str(tmp_path / "run"), "--resume"])
    found = json.loads((tmp_path / "run" / "result.json").read_text())
    assert rows(found) == rows(usual) and found["scores"] == usual["scores"]
    assert found["evaluations"][0][0] == round(history["evaluating"][0][0], 2)


def test_what_goes_wrong_in_an_evaluation_ends_the_run(tmp_path, monkeypatch):
    def wrong(*_):
        raise MemoryError("no room")

    monkeypatch.setattr(Evaluation, "_mean_of_copy", wrong)
    with pytest.raises(MemoryError, match="no room"):
        trained(tmp_path / "run")

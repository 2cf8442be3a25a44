"""Training runs that go wrong: they diverge, are interrupted or killed, meet another run, a full disk or a bad file."""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("matplotlib")
pytest.importorskip("tqdm")

from torch_mjenvs import Policy
from torch_mjenvs.__main__ import main
from torch_mjenvs.training import checkpoints, ppo, runs, sac, train
from torch_mjenvs.training.health import Faults
from torch_mjenvs.training.interrupts import Interrupts
from torch_mjenvs.training.scores import Score, figures, score, show
from torch_mjenvs.training.settings import MEANINGS, RULES, checked
from torch_mjenvs.training.worlds import make

pytestmark = [pytest.mark.usefixtures("no_default_device"), pytest.mark.cpu]
ENV = "TorchInvertedPendulum-v0"
SMALL = [
    *("--env", ENV, "--num-envs", "8", "--actor", "8,8", "--critic", "8"),
    *("--minibatch", "128", "--episodes", "2", "--evaluations", "0"),
]


def strict(path: Path) -> dict[str, Any]:
    """JSON as the standard has it, which knows no NaN."""

    def refuse(constant: str) -> None:
        pytest.fail(f"{path} has {constant}")

    return json.loads(path.read_text(), parse_constant=refuse)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    found = torch.load(folder / "policy.pt", weights_only=True)
    return {name: x for name, x in found.items() if isinstance(x, torch.Tensor)}


def same(a: Path, b: Path) -> bool:
    x, y = weights(a), weights(b)
    return x.keys() == y.keys() and all(torch.equal(x[name], y[name]) for name in x)


def test_a_run_that_diverges_stops_and_says_so_and_goes_on_at_a_lower_rate(tmp_path, capsys):
    """Its weights, checked at the end of each iteration, never reach a file."""
    out = tmp_path / "run"
    arguments = ["train", *SMALL, "--total-steps", "1500", "--out", str(out)]
    with pytest.raises(SystemExit) as stop:
        main([*arguments, "--learning-rate", "1e6"])
    said = str(stop.value)
    assert said.startswith("the run diverged after 256 frames: ") and "not finite" in said and "\n" not in said
    assert "--learning-rate below 1e+06" in said and f"--resume --out {out}" in said
    assert not (out / "result.json").exists() and "bad weights" in capsys.readouterr().err
    assert all(x.isfinite().all() for x in weights(out).values())

    main([*arguments, "--resume", "--learning-rate", "1e-3"])
    result = strict(out / "result.json")
    assert result["frames"] >= 1500 and result["changes"] == [[0, "learning_rate", 1e6, 1e-3]]
    assert set(result["faults"]) == set(vars(Faults())) and not any(result["faults"].values())
    assert result["bad_states_in_scores"] == {ENV: 0, "InvertedPendulum-v5": 0}


def test_scores_of_a_run_that_goes_on_do_not_stay_beside_newer_weights(tmp_path, monkeypatch, capsys):
    """They stay as long as the weights are theirs, as where it diverges at once."""
    arguments = ["train", *SMALL, "--out", str(tmp_path)]
    main([*arguments, "--total-steps", "512"])
    before, result = weights(tmp_path), tmp_path / "result.json"
    more = [*arguments, "--resume", "--total-steps", "1024"]
    with pytest.raises(SystemExit, match="diverged"):
        main([*more, "--learning-rate", "1e6"])
    assert result.exists() and all(torch.equal(x, before[name]) for name, x in weights(tmp_path).items())

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(runs, "scores", interrupted)
    with pytest.raises(SystemExit, match="130"):
        main(more)
    assert not result.exists() and f"{result} was of the run as it was before" in capsys.readouterr().err


def test_a_folder_whose_name_is_no_text_is_refused(tmp_path):
    out = os.fsdecode(os.fsencode(str(tmp_path)) + b"/\xff")
    with pytest.raises(SystemExit, match=r"--out b'.*/\\xff' is not UTF-8: choose another name"):
        main(["train", *SMALL, "--total-steps", "512", "--out", out])
    assert not os.path.exists(out)


def test_a_reward_that_is_not_finite_ends_a_run_by_its_name(tmp_path, monkeypatch):
    """A lower learning rate would not help, so none is advised."""
    rollout = ppo.PPO.prepare

    def with_a_bad_reward(agent: ppo.PPO, data: dict[str, torch.Tensor]) -> None:
        data["reward"][1, 2], data["reward"][0, 0] = math.nan, 1e20
        rollout(agent, data)

    monkeypatch.setattr(ppo.PPO, "prepare", with_a_bad_reward)
    with pytest.raises(SystemExit) as stop:
        train.main([*SMALL, "--total-steps", "1024", "--out", str(tmp_path)])
    said = str(stop.value)
    assert "in 2 of 256 steps, the task's reward was not finite or beyond 1e+18" in said
    assert "Mend the task's reward" in said and "Try" not in said


@pytest.mark.parametrize("bad", [math.nan, -math.inf, 1e20])
@pytest.mark.parametrize("algorithm", ["ppo", "sac"])
def test_an_observation_that_is_not_finite_ends_a_run_by_its_name(tmp_path, monkeypatch, bad, algorithm):
    """In the last iteration, too, after which nothing would be learned from such a mean and variance."""
    kind, name = (ppo.PPO, "prepare") if algorithm == "ppo" else (sac.SAC, "keep")
    rollout, sac_flags = (
        getattr(kind, name),
        [*SMALL[:8], "--algorithm", "sac", "--random-frames", "10", "--updates", "2"],
    )

    def with_a_bad_one(agent: Any, data: dict[str, torch.Tensor]) -> None:
        if agent.frames_seen:
            data["obs"][1, 2, 3] = bad
        rollout(agent, data)

    monkeypatch.setattr(kind, name, with_a_bad_one)
    with pytest.raises(SystemExit) as stop:
        flags = SMALL if algorithm == "ppo" else sac_flags
        train.main([*flags, "--horizon", "16", "--total-steps", "256", "--episodes", "2", "--out", str(tmp_path)])
    said = str(stop.value)
    assert "after 256 frames: 1 of the numbers that the task lets worlds observe were at times not finite" in said
    assert "Mend the task's observations" in said and "Try" not in said
    assert all(x.isfinite().all() for x in weights(tmp_path).values())


def test_rewards_whose_sums_are_beyond_float32_end_a_run(tmp_path, monkeypatch):
    """Divided by an infinite spread, all of them would be 0."""
    rollout = ppo.PPO.prepare

    def with_large_rewards(agent: ppo.PPO, data: dict[str, torch.Tensor]) -> None:
        data["reward"].fill_(9e17)
        rollout(agent, data)

    monkeypatch.setattr(ppo.PPO, "prepare", with_large_rewards)
    with pytest.raises(SystemExit, match="the task's reward was not finite or beyond"):
        train.main([*SMALL, "--gamma", "1", "--horizon", "200", "--total-steps", "1600", "--out", str(tmp_path)])


def test_returns_are_printed_and_kept_with_their_digits(tmp_path, capsys):
    assert figures(0.5099, 0.0213) == ["0.510", "0.021"] and figures(1e-5) == ["0.0000100"]
    assert figures(9494.4, 12.3) == ["9494", "12"] and figures(0.0, math.nan) == ["0", "nan"]
    show({"TorchMine-v0": Score(torch.tensor([0.25, 0.75, math.nan]))})
    assert "1 of them with a reward that is not finite" in capsys.readouterr().out
    train.main([*SMALL, "--total-steps", "512", "--out", str(tmp_path), "--evaluations", "2"])
    result = strict(tmp_path / "result.json")
    assert all(mean * 16 == int(mean * 16) for _, _, mean in result["evaluations"])  # of 16 whole numbers, exactly


def test_bad_states_in_a_rollout_are_counted_shown_and_kept(tmp_path, monkeypatch, capsys):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    act, calls = ppo.PPO.policy, []

    def sometimes_bad(agent: ppo.PPO, obs: torch.Tensor) -> tuple:
        action, extras = act(agent, obs)
        calls.append(1)
        if len(calls) % 40 == 0:
            action[3] = math.inf
        return action, extras

    monkeypatch.setattr(ppo.PPO, "policy", sometimes_bad)
    monkeypatch.setattr(ppo.PPO, "update", lambda agent: None)  # what is learnt from such an action is NaN
    train.main([*SMALL, "--total-steps", "1024", "--out", str(tmp_path)])
    expected = (len(calls) - 1) // 40  # the first call is not of a step
    assert expected >= 3
    found = strict(tmp_path / "result.json")["faults"]
    assert found == vars(Faults(bad_states=expected))
    assert f"{expected} bad states" in capsys.readouterr().err
    seen = accumulator.EventAccumulator(str(tmp_path))
    seen.Reload()
    assert [event.value for event in seen.Scalars("bad_states")][-1] == expected


def test_a_gradient_that_is_not_finite_is_counted_whatever_became_of_the_weights():
    s = ppo.Settings(**runs.settings(ENV, num_envs=8, horizon=4, actor=[8], critic=[8], minibatch=16))
    with torch.no_grad():
        agent = ppo.PPO(make(ENV, 8, "cpu"), s, seed=0)
        agent.iterate()
        assert agent.faults() == Faults()
        agent.prepare(agent.rollout())
        agent.frames[5, -1] = torch.nan
        agent.update()
        found = agent.faults()
    assert found.bad_updates > 0 and found.bad_weights > 0 and found.divergence(32)


def test_log_std_is_held_to_its_bounds():
    s = runs.settings(ENV, num_envs=8, horizon=4, actor=[8], critic=[8], minibatch=16, log_std_min=-1.5, log_std_max=-1)
    with torch.no_grad():
        agent = ppo.PPO(make(ENV, 8, "cpu"), ppo.Settings(**s), seed=0)
        assert agent.measures()["std"] == pytest.approx(math.exp(-1))
        for given, held in ((-3.0, -1.5), (2.0, -1.0)):
            agent.net.log_std.fill_(given)
            agent.iterate()
            assert agent.net.log_std.sub(held).abs().max() < 0.05  # the update moved it a little


def test_when_a_run_has_diverged():
    assert Faults().divergence(100) is None and Faults(bad_states=49).divergence(100) is None
    assert "50 of 100 steps" in str(Faults(bad_states=50).divergence(100))
    assert "2 updates" in str(Faults(bad_updates=2).divergence(100))
    assert "1,122 of the networks' numbers" in str(Faults(bad_updates=2, bad_weights=1122).divergence(100))
    assert str(Faults(3, 0, 1) + Faults(4, 0, 0)) == "7 bad states, 1 bad weights" and not str(Faults())


def test_a_score_tells_of_bad_states_and_strict_json_of_what_is_not_finite(tmp_path, capsys):
    found = score(lambda obs: torch.full((len(obs), 1), torch.nan), make(ENV, 3, "cpu"), 0, "cpu")
    assert found.bad_states == 3 and found.returns.tolist() == [0, 0, 0]
    runs.report(tmp_path, {ENV: found, "other": Score(torch.tensor([math.nan, 1.0]))}, {"x": [math.inf, {"y": -1.5}]})
    assert "(3 episodes, mean action, 3 of them ended by a bad state)" in capsys.readouterr().out
    assert strict(tmp_path / "result.json") == {
        "x": [None, {"y": -1.5}],
        "scores": {ENV: [0, 0, 0], "other": [None, 1]},
        "bad_states_in_scores": {ENV: 3, "other": 0},
    }


# signals


@pytest.fixture
def signals():
    """Handled as of a process in the foreground: where the tests run in the background, SIGINT is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_run_that_was_killed_between_its_two_last_files_has_the_policy_that_is_scored(tmp_path, monkeypatch):
    """Nothing is left to train then, but `policy.pt` is of the checkpoint before."""
    arguments = ["train", *SMALL, "--total-steps", "768", "--out"]
    main([*arguments, str(tmp_path / "whole")])
    save = checkpoints.save

    def killed(what: Any, path: Path) -> None:
        if path.name == "policy.pt" and torch.load(path.with_name("checkpoint.pt"))["agent"]["frames_seen"] == 768:
            raise KeyboardInterrupt
        save(what, path)

    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(checkpoints, "save", killed)
        main([*arguments, str(tmp_path / "parted")])
    assert not same(tmp_path / "whole", tmp_path / "parted")
    main([*arguments, str(tmp_path / "parted"), "--resume"])
    assert same(tmp_path / "whole", tmp_path / "parted")


def test_a_run_keeps_its_learner_and_precision_unless_it_is_given_others(tmp_path):
    flags = ["train", *SMALL, "--out", str(tmp_path), "--total-steps"]
    ways = ["--learner", "torch", "--precision", "float32"]
    main([*flags, "512", *ways])
    main([*flags, "768", "--resume"])
    result = strict(tmp_path / "result.json")
    assert (result["learner"], result["precision"]) == ("torch", "float32")
    assert [change[1] for change in result["changes"]] == ["total_steps"]
    main([*flags, "1024", "--resume", "--learner", "compiled"])
    result = strict(tmp_path / "result.json")
    assert (result["learner"], result["precision"]) == ("compiled", "float32")
    assert [change[1] for change in result["changes"]][1:] == ["learner", "total_steps"]


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_heard_after_the_iteration_which_is_saved(tmp_path, monkeypatch, capfd, number):
    main(["train", *SMALL, "--total-steps", "1500", "--out", str(tmp_path / "whole")])
    handler, update = signal.getsignal(number), ppo.PPO.update

    def interrupted(agent: ppo.PPO) -> None:
        if agent.frames_seen == 512:
            os.kill(os.getpid(), number)
        update(agent)

    parted = ["train", *SMALL, "--total-steps", "1500", "--out", str(tmp_path / "parted")]
    monkeypatch.setattr(checkpoints, "CHECKPOINTS", 0)  # only where a signal asks for one
    with monkeypatch.context() as patch, pytest.raises(SystemExit) as stop:
        patch.setattr(ppo.PPO, "update", interrupted)
        main(parted)
    assert stop.value.code == 128 + number and signal.getsignal(number) is handler
    assert "stopped after 768 frames: go on by --resume" in capfd.readouterr().err
    assert torch.load(tmp_path / "parted" / "checkpoint.pt", weights_only=True)["agent"]["frames_seen"] == 768
    assert Policy.load(tmp_path / "parted").env_id == ENV
    main([*parted, "--resume"])
    assert same(tmp_path / "whole", tmp_path / "parted")


@pytest.mark.usefixtures("signals")
def test_the_second_signal_ends_at_once_and_one_that_is_ignored_stays_so():
    with Interrupts() as interrupts, pytest.raises(SystemExit) as stop:
        assert interrupts.status == 0
        os.kill(os.getpid(), signal.SIGTERM)
        assert interrupts.heard == signal.SIGTERM and interrupts.status == 143
        os.kill(os.getpid(), signal.SIGINT)
    assert stop.value.code == 130
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts:
            os.kill(os.getpid(), signal.SIGTERM)
            assert not interrupts.heard
    finally:
        signal.signal(signal.SIGTERM, before)


def test_in_another_thread_signals_are_left_alone():
    found = []

    def enter() -> None:
        with Interrupts() as interrupts:
            found.append(interrupts.heard)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert found == [None]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_process_that_was_ended_leaves_what_can_be_scored_and_resumed(tmp_path, number):
    """As soon as there is a checkpoint, which is before the first iteration; a killed run holds no lock."""
    out = tmp_path / "run"
    arguments = [*SMALL, "--total-steps", "2e9", "--out", str(out)]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "torch_mjenvs", "train", *arguments]
    with subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as run:
        deadline = time.monotonic() + 120
        while not (out / "checkpoint.pt").exists():
            assert run.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
        with pytest.raises(SystemExit, match=rf"another run \(process {run.pid}\) writes to "):
            main(["train", *arguments, "--resume"])
        time.sleep(1)
        run.send_signal(number)
        said = run.stderr.read()
    assert run.returncode == (-number if number == signal.SIGKILL else 128 + number), said[-2000:]
    assert number == signal.SIGKILL or "go on by --resume" in said
    main(["score", str(out), "--episodes", "2"])
    main(["play", str(out), "--out", str(tmp_path / "end.png"), "--seconds", "0.1", "--size", "64"])
    frames = torch.load(out / "checkpoint.pt", weights_only=True)["agent"]["frames_seen"]
    main(["train", *arguments, "--resume", "--total-steps", str(frames + 500)])
    assert strict(out / "result.json")["frames"] >= frames + 500


def test_checkpoints_are_made_by_the_clock_too(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "CHECKPOINTS", 0)
    kept = checkpoints.Kept(AnAgent(), {"env": ENV, "settings": {}}, tmp_path, {"evaluations": []})
    assert not kept.due(0)
    kept.at -= checkpoints.EVERY
    assert kept.due(0)
    kept.took = 2 * checkpoints.EVERY * checkpoints.SHARE  # so long that they would take more than their share
    assert not kept.due(0)
    kept.at -= checkpoints.EVERY
    assert kept.due(0)


class AnAgent:
    """As much of one as a checkpoint asks for."""

    class settings:
        total_steps, learning_rate = 1000, 1e-3

    frames_seen = 100

    def networks(self) -> dict[str, Any]:
        return {}

    def state_dict(self) -> dict[str, Any]:
        return {"theta": torch.zeros(3), "optimizer": {"state": {}}}


# folders


def test_one_run_at_a_time_writes_into_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with runs.folder(None, "Hopper-0", False) as first, runs.folder(None, "Hopper-0", False) as second:
        assert [str(first), str(second)] == ["runs/Hopper-0", "runs/Hopper-0-2"]  # though nothing is in the first
        with (
            pytest.raises(SystemExit, match=rf"another run \(process {os.getpid()}\) writes to runs/Hopper-0: "),
            runs.folder(first, "Hopper-0", False),
        ):
            pass
    with runs.folder(first, "Hopper-0", False) as again:
        assert again == first
    folders = [runs.folder(None, "Many", False) for _ in range(8)]
    got: list[str] = []
    barrier = threading.Barrier(8)

    def choose(folder: Any) -> None:
        barrier.wait()
        with folder as out:
            got.append(str(out))
            barrier.wait()

    threads = [threading.Thread(target=choose, args=(folder,)) for folder in folders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(got)) == 8


def test_a_full_disk_is_told_in_a_line_and_what_was_saved_stays(tmp_path):
    """Stood in for by the limit on the size of a file, which the system holds in the same place."""
    resource = pytest.importorskip("resource")
    file = tmp_path / "checkpoint.pt"
    checkpoints.save({"x": torch.zeros(3)}, file)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(SystemExit, match=r"checkpoint.pt could not be written: .*; what it held before is still "):
            checkpoints.save({"x": torch.zeros(100_000)}, file)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert checkpoints.load(file, ["x"])["x"].tolist() == [0, 0, 0]
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.pt"]


def test_a_disk_that_is_full_before_the_first_record_is_told_in_a_line_too(tmp_path, monkeypatch):
    tensorboard = pytest.importorskip("torch.utils.tensorboard")

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tensorboard, "SummaryWriter", full)
    with pytest.raises(SystemExit, match=r"the log in .* could not be written: No space left on device"):
        train.main([*SMALL, "--total-steps", "512", "--out", str(tmp_path)])


# files of others


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> Path:
    """The folder of a run that has ended."""
    out, precision = tmp_path_factory.mktemp("sound"), torch.get_float32_matmul_precision()
    with torch.device("cpu"):
        train.main([*SMALL, "--total-steps", "300", "--out", str(out)])
    torch.set_float32_matmul_precision(precision)  # as conftest.py does, too late for what a module shares
    return out


class Mine:
    """What a pickle that is not ours holds."""


def test_a_checkpoint_that_does_not_fit_is_refused_in_a_line(tmp_path, sound):
    shutil.copytree(sound, tmp_path / "run")
    file = tmp_path / "run" / "checkpoint.pt"
    content, good = file.read_bytes(), torch.load(file, weights_only=True)

    def with_agent(**changed: Any) -> dict[str, Any]:
        return good | {"agent": good["agent"] | changed}

    def lacking(name: str) -> dict[str, Any]:
        return {key: x for key, x in good.items() if key != name}

    cases: list[tuple[Any, str]] = [
        (content[: len(content) // 2], "is no checkpoint of ours, or not all of one"),
        (b"", "is no checkpoint of ours, or not all of one"),
        (b"something else", "is no checkpoint of ours, or not all of one"),
        ({"x": Mine()}, "is no checkpoint of ours, or not all of one"),
        (torch.zeros(3), "is no checkpoint of ours: it holds a Tensor"),
        (lacking("history"), "is no checkpoint of this version: it has no 'history'"),
        (good | {"run": good["run"] | {"env": "TorchHopper-v0"}}, "is of another run: env is TorchHopper-v0 there, "),
        (good | {"run": 7}, "does not fit this run: TypeError"),
        (good | {"agent": [1]}, "does not fit this run: its state is a list"),
        (with_agent(theta=torch.zeros(1)), r"does not fit this run: its theta is float32 \(1,\), not float32 \("),
        (with_agent(theta=None), "does not fit this run: "),
        (with_agent(frames_seen="many", env={}), "does not fit this run: its env has no '"),
        (with_agent(optimizer={"param_groups": []}), "does not fit this run: its optimizer has no 'state'"),
        (with_agent(optimizer={"state": {}, "param_groups": []}), "does not fit this run: ValueError: "),
    ]
    for case, said in cases:
        if isinstance(case, bytes):
            file.write_bytes(case)
        else:
            torch.save(case, file)
        with pytest.raises(SystemExit, match=f"checkpoint.pt {said}") as stop:
            train.main([*SMALL, "--total-steps", "300", "--out", str(file.parent), "--resume"])
        assert "\n" not in str(stop.value)
    older = {name: x for name, x in good["run"]["settings"].items() if name != "norm"}  # of before there was such a one
    for case in (good, good | {"run": good["run"] | {"settings": older}}):
        torch.save(case, file)
        train.main([*SMALL, "--total-steps", "300", "--out", str(file.parent), "--resume"])
    with pytest.raises(SystemExit, match="is of another run: norm is none there, layer here"):
        train.main([*SMALL, "--total-steps", "300", "--norm", "layer", "--out", str(file.parent), "--resume"])


# settings


@pytest.mark.parametrize(
    ("flag", "value", "said"),
    [
        ("--gamma", "5", "5 is not a number from 0 to 1"),
        ("--lam", "2", "2 is not a number from 0 to 1"),
        ("--clip", "nan", "nan is not a number above 0"),
        ("--clip", "0", "0 is not a number above 0"),
        ("--evaluations", "-5", "-5 is not a whole number from 0 on"),
        ("--learning-rate", "-1", "-1 is not a number above 0"),
        ("--learning-rate", "inf", "inf is not a number above 0"),
        ("--minibatch", "1", "1 is not a whole number from 2 on"),
        ("--minibatch", "4096", "minibatch: 4096 frames are more than a batch has, 512 = 16 worlds"),
        ("--epochs", "0", "0 is not a whole number from 1 to 2,147,483,647"),
        ("--epochs", "1e30", "1e30 is not a whole number from 1"),
        ("--log-std", "nan", "nan is not a number from -20 to 10"),
        ("--log-std", "1e3", "1e3 is not a number from -20 to 10"),
        ("--max-grad-norm", "-1", "-1 is not a number above 0"),
        ("--value-weight", "-1", "-1 is not a number from 0 on"),
        ("--actor", "1000000,1000000", "actor units=2000000 takes "),
        ("--critic", "64,0", "0 is not a whole number from 1 to 1,000,000"),
        ("--actor", "", " is not a whole number"),
        ("--activation", "sine", "sine is not one of tanh, relu, elu, silu"),
        ("--norm", "batch", "batch is not one of none, layer"),
        ("--log-std-min", "0", "log_std: -1.0 is not between log_std_min, 0.0, and log_std_max, 10.0"),
        ("--target-kl", "-1", "-1 is not a number from 0 on"),
        ("--horizon", "1001", "a horizon of 1001 steps is longer than an episode of 1000"),
        ("--num-envs", "1e10", "1e10 is not a whole number from 1 to 2,147,483,647"),
        ("--seed", "1" * 30, "is not below 2**63"),
        ("--seed", "1.5", "1.5 is not a whole number from 0 on"),
    ],
)
def test_a_flag_that_cannot_be_is_told_before_anything_is_made(tmp_path, monkeypatch, capsys, flag, value, said):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        main(["train", "--env", ENV, "--num-envs", "16", flag, value])
    assert said in f"{stop.value} {capsys.readouterr().err}" and "\n" not in str(stop.value)
    assert not list(tmp_path.iterdir())


def test_settings_of_all_sources_obey_one_table(tmp_path, monkeypatch):
    assert set(runs.settings()) < set(RULES)
    for wrong, said in (({"gamma": 5}, "gamma: 5 is not"), ({"gama": 0.9}, "there is no setting 'gama'")):
        with pytest.raises(ValueError, match=said):
            checked(wrong)
    with pytest.raises(ValueError, match="epochs: True is not"):
        checked({"epochs": True})
    assert runs.settings(ENV, num_envs=8)["minibatch"] == 8 * 32 and runs.settings(ENV)["minibatch"] == 2048
    table = tmp_path / "settings.toml"
    table.write_text(runs.SETTINGS.read_text().replace("gamma = 0.99\n", "gamma = 1.99\n"))
    monkeypatch.setattr("torch_mjenvs.training.settings.SETTINGS", table)
    with pytest.raises(ValueError, match=r"gamma: 1\.99 is not a number from 0 to 1"):
        runs.settings(ENV)


def test_help_says_what_each_setting_is(capsys):
    assert MEANINGS.keys() == RULES.keys()
    with pytest.raises(SystemExit):
        train.main(["--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert f"--horizon X {MEANINGS['horizon']}; default 32" in shown


def test_a_setting_of_sac_obeys_it_too(capsys):
    assert set(runs.settings()) | set(sac.settings()) == set(RULES)
    for flag, value in (("--tau", "0"), ("--gamma", "5"), ("--batch", "0"), ("--random-frames", "-1")):
        with pytest.raises(SystemExit):
            train.main(["--algorithm", "sac", flag, value])
        assert f"argument {flag}: {value} is not" in capsys.readouterr().err

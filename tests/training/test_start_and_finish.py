"""What a command costs besides its work: imports at its start, and Gymnasium's own task at its end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

import gymnasium
import pytest
import torch
from processes import run

from torch_mjenvs import Outcome, Task, TorchVectorEnv, pretrained
from torch_mjenvs.training import originals, ppo, scores, worlds
from torch_mjenvs.training.originals import ParallelWorlds, processes_for, without_the_warning_of_settotalmass
from torch_mjenvs.training.worlds import make

pytestmark = [pytest.mark.usefixtures("no_default_device"), pytest.mark.cpu]
NEEDLESS = ["torch._dynamo", "torch._inductor", "sympy", "torchrl", "tensordict", "IPython", "onnx"]
IMPORTED = """
import sys
from torch_mjenvs.__main__ import main
try:
    main(sys.argv[2:])
except SystemExit as end:
    assert not end.code, end.code
"""
CHECKED = """
needless = [x for x in sys.argv[1].split(",") if x in sys.modules]
assert not needless, needless
"""


def test_help_imports_neither_what_draws_nor_what_logs():
    run(IMPORTED + CHECKED, ",".join([*NEEDLESS, "matplotlib", "tensorboard"]), "train", "--help")


def test_training_does_not_import_what_compiles_for_torch(tmp_path):
    few = ["--num-envs", "4", "--horizon", "8", "--minibatch", "32", "--actor", "16", "--total-steps", "64"]
    run(IMPORTED + CHECKED, ",".join(NEEDLESS), "train", "--env", "TorchInvertedPendulum-v0", *few, "--episodes", "2",
        "--out", str(tmp_path / "run"), "--evaluations", "0")  # fmt: skip
    assert json.loads((tmp_path / "run" / "result.json").read_text())["frames"] == 64


def test_a_policy_is_loaded_without_what_compiles_for_torch():
    """It is loaded on the way, too: whenever a run on a GPU is evaluated."""
    run("import sys, torch_mjenvs; torch_mjenvs.pretrained('TorchHopper-v0')" + CHECKED, ",".join(NEEDLESS))


@pytest.mark.parametrize("name", ["HalfCheetah", "Hopper"])
@pytest.mark.parametrize("processes", [1, 2, 3])
def test_scores_are_those_of_gymnasiums_own_vector_environment(name, processes):
    policy, arguments = pretrained(f"Torch{name}-v0"), {"reset_noise_scale": 0.3}
    with without_the_warning_of_settotalmass():
        env = gymnasium.make_vec(f"{name}-v5", num_envs=5, vectorization_mode="sync", max_episode_steps=60, **arguments)
    expected = scores.score(policy, env, 3, "cpu").returns
    there = ParallelWorlds(f"{name}-v5", 5, processes, arguments | {"max_episode_steps": 60})
    assert torch.equal(scores.score(policy, there, 3, "cpu").returns, expected)
    assert len(set(expected.tolist())) == 5


def test_scores_of_a_compiled_policy_do_not_depend_on_who_steps_beside_whom():
    """An action has the same bits in any batch, so no process has to wait for another."""
    torch.manual_seed(0)
    agent = ppo.PPO(make("TorchHopper-v0", 8, "cpu"), ppo.Settings(**ppo.settings("TorchHopper-v0", num_envs=8)), 0)
    agent.rollout()
    assert agent.acts_by_rows
    with torch.no_grad():
        expected = scores.score(agent.act, ParallelWorlds("Hopper-v5", 67, 1, {}), 3, "cpu").returns
        for processes in (1, 2, 3):
            there = ParallelWorlds("Hopper-v5", 67, processes, {})
            assert torch.equal(scores._side_by_side(agent.act, there, 3, "cpu").returns, expected)
    assert len(set(expected.tolist())) == 67


@dataclass(frozen=True)
class Endless(Task):
    max_episode_steps = None

    xml_file: str = "inverted_pendulum.xml"
    frame_skip: int = 2

    def reset(self, m, rng):
        return [0.0, 0.0], [0.0, 0.0]

    def observe(self, m, world):
        return world.qpos

    def outcome(self, m, before, action, after):
        return Outcome(1.0)


@pytest.mark.parametrize("entry_point", ["torch_mjenvs:TorchVectorEnv", TorchVectorEnv])
def test_a_score_ends_though_episodes_do_not(entry_point, monkeypatch, capsys):
    monkeypatch.setattr(worlds, "LONGEST", 20)
    gymnasium.register("TorchEndless-v0", vector_entry_point=entry_point, kwargs={"task": Endless})
    try:
        assert worlds.task_id("TorchEndless") == "TorchEndless-v0"
        found = scores.scores(lambda obs: torch.zeros(len(obs), 1), "TorchEndless-v0", 2, "cpu", 0)
    finally:
        gymnasium.registry.pop("TorchEndless-v0")
    assert found["TorchEndless-v0"].returns.tolist() == [20.0, 20.0]
    assert "have no time limit: for scores they are cut after 20 steps" in capsys.readouterr().err


def test_scores_do_not_depend_on_torchs_default_device():
    policy = pretrained("TorchHopper-v0")
    with without_the_warning_of_settotalmass():
        expected = scores.scores(policy, "TorchHopper-v0", 2, "cpu", 3, {"reset_noise_scale": 0.3})
        with torch.device("meta"):
            found = scores.scores(policy, "TorchHopper-v0", 2, "cpu", 3, {"reset_noise_scale": 0.3})
    assert found.keys() == expected.keys() == {"TorchHopper-v0", "Hopper-v5"}
    assert all(found[name].returns.equal(x.returns) for name, x in expected.items())


def test_an_error_of_a_policy_ends_all_threads_and_processes():
    def act(obs):
        raise ZeroDivisionError

    there = ParallelWorlds("Hopper-v5", 4, 2, {})
    with pytest.raises(ZeroDivisionError):
        scores._side_by_side(act, there, 0, "cpu")
    assert all(x.process.returncode is not None for x in there.worlds)


def test_what_is_done_meanwhile_may_fail_and_takes_turns():
    """As a curve that cannot be written does; while it is drawn, processes need not wait long for their actions."""
    seen, before = [], sys.getswitchinterval()

    def meanwhile():
        seen.append(sys.getswitchinterval())
        raise ZeroDivisionError

    there = ParallelWorlds("Hopper-v5", 4, 2, {})
    with pytest.raises(ZeroDivisionError):
        scores._side_by_side(lambda obs: torch.zeros(len(obs), 3), there, 0, "cpu", meanwhile)
    assert all(x.process.returncode is not None for x in there.worlds)
    assert seen[0] < 1e-3 and sys.getswitchinterval() == before


def test_worlds_are_shared_only_where_that_pays(monkeypatch):
    monkeypatch.setattr(originals.os, "sched_getaffinity", lambda _: range(3), raising=False)
    assert [processes_for("Hopper-v5", n) for n in (1, 31, 32, 100)] == [1, 1, 2, 3]
    monkeypatch.setattr(originals.os, "sched_getaffinity", lambda _: range(1), raising=False)
    assert processes_for("Hopper-v5", 100) == 1
    monkeypatch.setattr(originals.os, "sched_getaffinity", lambda _: range(3), raising=False)
    monkeypatch.setitem(gymnasium.registry, "Own-v5", gymnasium.envs.registration.EnvSpec("Own-v5", "own:Own"))
    assert processes_for("Own-v5", 100) == 1  # which another process would have to import


def test_an_error_there_is_raised_here_and_processes_end():
    there = ParallelWorlds("Hopper-v5", 4, 2, {"no_such_argument": 1})
    with pytest.raises(TypeError, match="no_such_argument"):
        there.reset(0)
    there.close()
    assert all(x.process.returncode is not None for x in there.worlds)
    there = ParallelWorlds("Hopper-v5", 4, 2, {})
    there.reset(0)
    there.worlds[1].process.kill()
    with pytest.raises(RuntimeError, match="the original task ended with status -9"):
        there.step(torch.zeros(4, 3).numpy())
    there.close()


SCORING = """
import os, signal, sys
import torch
signal.signal(signal.SIGINT, signal.default_int_handler)  # which who starts tests in the background has turned off
from torch_mjenvs.training import originals, scores
originals.processes_for = scores.processes_for = lambda *_: 2
def act(obs):
    print(*[x.process.pid for x in there[0].worlds], flush=True)
    return torch.zeros(len(obs), 3)
there = []
class Watched(scores.ParallelWorlds):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        there.append(self)
scores.ParallelWorlds = Watched
try:
    scores.scores(act, "TorchHopper-v0", 4, "cpu", 0)
    while True:
        scores.scores(act, "TorchHopper-v0", 4, "cpu", 0)
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_process_is_left_behind(number):
    command, pipe = [sys.executable, "-c", SCORING], subprocess.PIPE
    process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True)
    children = process.stdout.readline().split()
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == (130 if number == signal.SIGINT else -9), said
    assert "Traceback" not in said
    for _ in range(200):
        if not any(_runs(pid) for pid in children):
            return
        time.sleep(0.1)
    pytest.fail("processes are left")


UNTIMED = """
import runpy, sys
originals = runpy.run_path(sys.argv[1])
env = originals["make_original"]("Hopper-v5")
env.reset(seed=0)
timers = env.unwrapped.data.timer
env.step([0.0, 0.0, 0.0])
before = timers[0].duration
assert before > 0
originals["_without_timers"]()
env.step([0.0, 0.0, 0.0])
assert timers[0].duration == before
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere MuJoCo's library has another name")
def test_processes_that_score_do_not_time_the_parts_of_a_step():
    run(UNTIMED, originals.__file__)


def test_no_thread_of_torch_spins_beside_the_processes_of_the_original():
    before, seen = torch.get_num_threads(), []

    def act(obs):
        seen.append(torch.get_num_threads())
        return torch.zeros(len(obs), 3)

    torch.set_num_threads(2)
    try:
        scores.scores(act, "TorchHopper-v0", 4, "cpu", 0)
        assert seen[0] == 2 and seen[-1] == 1 and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def _runs(pid: str) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False

"""The command line, and trained policies: those of runs and those that come with the package."""

from __future__ import annotations

import contextlib
import importlib.util
import math
import re
import sys
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
import torch

import torch_mjenvs
from torch_mjenvs import Policy, pretrained
from torch_mjenvs.__main__ import main
from torch_mjenvs.commands import play
from torch_mjenvs.policy import pretrained_ids
from torch_mjenvs.training import ppo, runs
from torch_mjenvs.training.originals import SUITE, make_original
from torch_mjenvs.training.scores import Score, show
from torch_mjenvs.training.worlds import make, original, task_ids

pytestmark = [pytest.mark.usefixtures("no_default_device"), pytest.mark.cpu]


@pytest.fixture
def agent() -> ppo.PPO:
    """One that has learnt nothing, but has seen something."""
    torch.manual_seed(0)
    small = {"horizon": 8, "minibatch": 32, "actor": (16, 16), "critic": (20,), "activation": "elu", "norm": "layer"}
    s = ppo.Settings(**runs.settings("TorchHopper-v0", num_envs=4) | small)
    with torch.no_grad():
        found = ppo.PPO(make("TorchHopper-v0", 4, "cpu"), s, seed=0)
        found.obs_moments.update(torch.randn(100, 11) * 3 + 1)
        found.net.theta.add_(torch.randn_like(found.net.theta) * 0.1)
    return found


@pytest.fixture
def run(agent, tmp_path):
    """The folder of a run of that agent."""
    torch.save({"env": "TorchHopper-v0", **agent.networks()}, tmp_path / "policy.pt")
    return tmp_path


@pytest.mark.parametrize("kind", [MemoryError, torch.OutOfMemoryError])
def test_a_command_for_which_there_is_not_enough_memory_ends_with_a_line(monkeypatch, kind):
    def short(_: object) -> None:
        raise kind("step keeps 29,360 bytes a thread: 3.0 GB are free")

    monkeypatch.setattr("torch_mjenvs.commands.tasks.main", short)
    with pytest.raises(SystemExit, match="GB are free"):
        main(["list"])


def test_the_policy_of_a_run_acts_as_the_agent_did(agent, run):
    policy = Policy.load(run)
    obs = torch.randn(50, 11) * 5
    obs[0] = 100  # far beyond what was seen: clamped
    with torch.no_grad():
        expected = agent.act(obs).clone()
    torch.testing.assert_close(policy(obs), expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(policy(obs[3].double()), expected[3], rtol=1e-5, atol=1e-6)
    assert policy.env_id == "TorchHopper-v0" and not policy(obs).requires_grad
    again = Policy.load(run / "policy.pt")
    assert again.state_dict().keys() == policy.state_dict().keys() and again.activation == "elu"


def test_what_is_no_policy_is_refused_by_name(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no policy '.*policy.pt'"):
        Policy.load(tmp_path)
    for content in (b"", b"something else"):
        (tmp_path / "policy.pt").write_bytes(content)
        with pytest.raises(ValueError, match=r"policy.pt holds no policy of `python -m torch_mjenvs train`$"):
            Policy.load(tmp_path)
    torch.save({"env": "TorchHopper-v0", "networks": {}}, tmp_path / "policy.pt")  # another script's
    with pytest.raises(ValueError, match=r"train`: it has no 'weights0'$"):
        Policy.load(tmp_path)
    torch.save([1.0], tmp_path / "policy.pt")
    with pytest.raises(ValueError, match=r"train`: it is a list, not a dict$"):
        Policy.load(tmp_path)
    with pytest.raises(ValueError, match=r"no trained policy of 'Hopper-v5' comes with this package"):
        pretrained("Hopper-v5")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"env": 3}, "its 'env' must be a string"),
        ({"activation": "sine"}, "its 'activation' is 'sine', not one of tanh, relu, elu, silu"),
        ({"activation": ["elu"]}, "its 'activation' is ['elu'], not one of"),
        ({"about": [1]}, "its 'about' a dict"),
        ({"obs_mean": [0.0] * 11}, "its 'obs_mean' must be a float32 tensor of 1 dimensions"),
        ({"obs_mean": torch.zeros(12)}, "its 'weights0' is of shape (1, 16, 11), and must be of (1, 16, 12)"),
        ({"obs_var": torch.ones(12)}, "its 'obs_var' must be as long as 'obs_mean'"),
        ({"obs_var": -torch.ones(11)}, "not negative"),
        ({"weights1": torch.zeros(1, 16, 15)}, "its 'weights1' is of shape (1, 16, 15), and must be of (1, 16, 16)"),
        ({"weights1": torch.zeros(2, 16, 16).to_sparse()}, "its 'weights1' must be a float32 tensor"),
        ({"weights0": torch.zeros(0, 16, 11)}, "its 'weights0' is of shape (0, 16, 11)"),
        ({"biases2": torch.zeros(2, 3)}, "its 'biases2' must be a float32 tensor of 3 dimensions"),
        ({"biases0": torch.full((2, 1, 16), math.nan)}, "its 'biases0' has numbers that are not finite"),
        ({"gains1": torch.ones(1, 1, 15)}, "its 'gains1' is of shape (1, 1, 15), not of (1, 1, 16)"),
        ({"shifts0": torch.ones(16)}, "its 'shifts0' must be a float32 tensor of 3 dimensions"),
        ({"shifts1": None}, "its 'shifts1' must be a float32 tensor of 3 dimensions"),
    ],
)
def test_a_policy_of_wrong_shapes_or_types_is_refused_by_name(run, wrong, said):
    found = torch.load(run / "policy.pt", weights_only=True)
    torch.save(found | wrong, run / "policy.pt")
    with pytest.raises(ValueError, match=re.escape(said)):
        Policy.load(run)
    with pytest.raises(SystemExit, match=re.escape(said)):
        main(["score", str(run)])


def test_nothing_is_imported_because_a_file_says_so(run, monkeypatch):
    """Neither by `play` nor by `score`, though the folder that the user is in is on the path."""
    (run / "payload.py").write_text("import pathlib; pathlib.Path('executed').touch()")
    found = torch.load(run / "policy.pt", weights_only=True)
    torch.save(found | {"env": "payload:TorchHopper-v0"}, run / "policy.pt")
    monkeypatch.chdir(run)
    for command in (["score", "policy.pt"], ["play", "policy.pt"], ["score", "."], ["play", ".", "--out", "x.png"]):
        with pytest.raises(SystemExit, match="name it yourself, by --task payload:TorchHopper-v0"):
            main(command)
    assert not (run / "executed").exists() and "payload" not in sys.modules


@pytest.mark.parametrize(
    ("env", "arguments", "said"),
    [
        ("TorchNothing-v0", [], "this is a policy of 'TorchNothing-v0', and there is no such task"),
        ("TorchReacher-v0", [], "the policy's observations are of shape (11,), the task's of shape (10,)"),
        ("TorchHopper-v0", ["--task", "TorchInvertedPendulum"], "the policy's observations are of shape (11,)"),
        ("TorchHopper-v0", ["--task", "TorchNothing"], "there is no task 'TorchNothing'"),
    ],
)
def test_a_policy_that_does_not_fit_its_task_is_refused_in_a_line(run, env, arguments, said):
    found = torch.load(run / "policy.pt", weights_only=True)
    torch.save(found | {"env": env}, run / "policy.pt")
    with pytest.raises(SystemExit, match=re.escape(said)):
        main(["score", str(run), *arguments])


ORIGINALS = [name for name in pretrained_ids() if "Joystick" not in name]  # tasks that another package steps, too


@pytest.mark.parametrize("env_id", ORIGINALS)
def test_a_policy_that_comes_with_the_package_fits_its_task_and_tells_its_worth(env_id):
    name = original(env_id)
    if name.startswith(SUITE):
        pytest.importorskip("dm_control", reason="the extra dmc is not installed")
    policy, task = pretrained(env_id), make_original(name)
    obs = torch.zeros(3, *task.observation_space.shape)
    assert policy(obs).shape == (3, *task.action_space.shape)
    assert policy.env_id == env_id and all(x.isfinite().all() for x in policy.state_dict().values())
    scores = policy.about["scores"]
    assert set(scores) == {env_id, name} and policy.about["episodes"] >= 100
    most = 1000 if name.startswith(SUITE) else math.inf  # rewards of dm_control's tasks are from 0 to 1
    assert all(math.isfinite(x) and min(1000, 0.1 * most) < x <= most for x in scores.values())


@pytest.mark.slow
@pytest.mark.parametrize("env_id", ORIGINALS)
def test_a_policy_that_comes_with_the_package_is_worth_what_it_tells(env_id):
    policy = pretrained(env_id)
    returns = torch_mjenvs.training.scores.score(policy, make(env_id, 100, "cpu"), 7, "cpu").returns
    told, interval = (policy.about[name][env_id] for name in ("scores", "intervals"))
    error = math.hypot(returns.std() / 10, interval / 1.96)  # of both means
    fall = 0.005 * told  # half an episode lost in a hundred, which are too few to tell how rare falls are
    assert abs(returns.mean() - told) < 4 * error + fall


def test_list_tells_all_tasks(capsys):
    main(["list"])
    said = capsys.readouterr().out
    assert all(f"{env_id} " in said for env_id in task_ids()) and len(task_ids()) >= 10
    assert re.search(r"^TorchAnt-v0 +1000   6,000", said, re.M)
    assert all(f"\n{name} " in said for name in pretrained_ids())


def test_the_commands_are_told(capsys):
    for arguments, code in ((["--help"], 0), ([], 2), (["fly"], 2)):
        with pytest.raises(SystemExit) as stop:
            main(arguments)
        assert stop.value.code == code
    said = capsys.readouterr()
    main(["--version"])
    assert capsys.readouterr().out == f"torch_mjenvs {torch_mjenvs.__version__}\n"
    assert all("watch a trained policy" in x for x in said) and "invalid choice: 'fly'" in said.err
    with pytest.raises(SystemExit):
        main(["play", "--help"])
    assert "torch_mjenvs play" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["train"], "--num-envs NUM_ENVS number of worlds; default 1,024"),
        (["train"], "--total-steps TOTAL_STEPS frames to train on; default 10,000,000"),
        (["train"], f"in {runs.EVALUATED} episodes each time; default 10"),
        (["train"], "Other algorithms, by --algorithm: SAC."),
        (["train", "--algorithm", "sac"], "--num-envs NUM_ENVS number of worlds; default 64"),
        (["train", "--algorithm", "sac"], "Other algorithms, by --algorithm: PPO."),
        (["play"], f"default {play.LARGEST}, fewer for more than 4"),
        (["score"], "default cpu"),
        (["bench"], "default TorchHalfCheetah-v0 TorchWalker2d-v0"),
    ],
)
def test_help_tells_defaults(arguments, said, capsys):
    with pytest.raises(SystemExit):
        main([*arguments, "--help"])
    assert said in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    "arguments",
    [
        ["train", "--gamma", "2"],
        ["train", "--algorithm", "trpo"],
        ["train", "--reset-noise", "1"],
        ["play", "TorchHopper", "--out", "film.avi"],
        ["export", "TorchHopper", "policy.avi"],
        ["score", "TorchHopper", "--episodes", "0"],
        ["bench", "--seconds", "0"],
    ],
)
def test_a_mistaken_flag_is_one_line(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    said = capsys.readouterr().err
    assert stop.value.code == 2 and said.startswith(f"torch_mjenvs {arguments[0]}: error: ") and said.count("\n") == 1


@pytest.mark.parametrize(
    ("package", "env_id", "extra"),
    [("dm_control", "TorchDMC/walker-walk-v0", "dmc"), ("mujoco_playground", "TorchGo1Joystick-v0", "playground")],
)
@pytest.mark.parametrize("command", [["train", "--env"], ["bench", "--env"], ["score"], ["play"], ["export"]])
def test_the_extra_that_has_a_tasks_models_is_named(command, package, env_id, extra, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    there = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *of: None if name == package else there(name, *of))
    file = ["walker.npz"] if command == ["export"] else []
    with pytest.raises(SystemExit, match=rf"pip install '\.\[{extra}\]', in the checkout of torch_mjenvs$"):
        main([*command, env_id, *file])
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["score", "runs/nothing"], "there is no file or folder 'runs/nothing'"),
        (["play", "Nothing"], "there is no task 'Nothing'"),
        (["play", "Hopper-v5"], "did you mean 'TorchHopper-v0'"),
        (["play", "TorchReacher"], "no trained policy of TorchReacher-v0 comes with the package: train one by"),
        (["play", "TorchHopper", "--out", "film.avi"], "film.avi must end in one of .mp4, .gif, .png"),
        (["play", "TorchHopper", "--out", "nowhere/film.gif"], "there is no folder nowhere"),
        (["play", "TorchHopper", "--seconds", "-1"], "-1 is not a number above 0"),
        (["bench", "--seconds", "nan"], "nan is not a number above 0"),
        (["bench", "--num-envs", "many"], "many is not a whole number above 0"),
        (["score", "TorchHopper", "--seed", "-1"], "-1 is not a whole number from 0 on"),
        (["score", "TorchHopper", "--device", "gpu"], "argument --device: gpu: "),
        (["train", "--env", "nowhere:TorchMine"], "there is no module 'nowhere'"),
        (["train", "--env", "torch_mjenvs:Hopper"], "the class 'Hopper' of 'torch_mjenvs' has no id: register it"),
        (["train", "--out", __file__], f"no results can be kept in {__file__}"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(arguments, said, capsys):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert said in f"{stop.value} {capsys.readouterr().err}"


def test_a_missing_extra_is_named(monkeypatch):
    for name in ("train", "runs"):
        monkeypatch.delitem(sys.modules, f"torch_mjenvs.training.{name}")
        monkeypatch.delattr(torch_mjenvs.training, name)
    monkeypatch.setitem(sys.modules, "tqdm", None)
    with pytest.raises(SystemExit, match=r"train needs tqdm: pip install '\.\[train\]', in the checkout"):
        main(["train", "--help"])


def test_score_prints_returns_here_and_in_gymnasium(run, capsys):
    main(["score", str(run), "--episodes", "2"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["score in TorchHopper-v0", "score in Hopper-v5"]
    assert all("(2 episodes, mean action)" in line and " ± " in line for line in lines)


@pytest.mark.filterwarnings("error")
def test_one_episode_has_no_interval(capsys):
    show({"TorchHopper-v0": Score(torch.tensor([12.3]))})
    assert capsys.readouterr().out == "score in TorchHopper-v0: 12.3 (1 episode, mean action)\n"


MINE = """
import gymnasium
gymnasium.register(
    "TorchMine-v3", vector_entry_point="torch_mjenvs.envs.vector_env:TorchVectorEnv", kwargs={"task": "Hopper"},
    max_episode_steps=1000,
)
"""


def test_a_task_of_a_users_own_is_trained_and_scored(tmp_path, monkeypatch, capsys):
    """It goes by its module, in the folder where the user is, and id, and has no counterpart in Gymnasium."""
    (tmp_path / "my_tasks.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [x for x in sys.path if x])  # as the installed command has it
    main(["train", "--env", "my_tasks:TorchMine", "--num-envs", "34", "--total-steps", "3000", "--episodes", "2"])
    gymnasium.registry.pop("TorchMine-v3")  # as in another process
    sys.modules.pop("my_tasks")
    named = ["score", "runs/my_tasks-TorchMine-v3-0", "--task", "my_tasks:TorchMine"]
    main([*named, "--episodes", "2"])
    said = capsys.readouterr().out
    assert said.count("score in my_tasks:TorchMine-v3") == 2 and said.count("score in") == 2
    gymnasium.registry.pop("TorchMine-v3")
    sys.modules.pop("my_tasks")
    (tmp_path / "my_tasks.py").unlink()
    with pytest.raises(SystemExit, match="there is no module 'my_tasks'"):
        main(named)


def test_bench_prints_steps_a_second(capsys):
    main(["bench", "--env", "TorchHopper", "--num-envs", "4", "--seconds", "0.02"])
    name, made, unit, here, there = capsys.readouterr().out.splitlines()[-1].split()
    assert name == "TorchHopper-v0" and unit == "s" and float(made) > 0
    assert all(float(x.replace(",", "")) > 100 for x in (here, there))


def test_a_window_shows_the_world_that_the_policy_moves(run, monkeypatch):
    """MuJoCo's own window needs a display; here its place is taken by what notes what it would show."""
    shown: list[np.ndarray] = []

    class Window:
        cam = SimpleNamespace()

        def __init__(self, model, data):
            self.model, self.data = model, data

        def is_running(self) -> bool:
            return len(shown) < 5

        def lock(self):
            return contextlib.nullcontext()

        def sync(self) -> None:
            shown.append(self.data.xpos.copy())

    viewer = SimpleNamespace(launch_passive=lambda model, data, **panels: contextlib.nullcontext(Window(model, data)))
    import mujoco

    monkeypatch.setitem(sys.modules, "mujoco.viewer", viewer)
    monkeypatch.setattr(mujoco, "viewer", viewer, raising=False)
    monkeypatch.setenv("DISPLAY", ":7")
    main(["play", str(run)])
    assert Window.cam.trackbodyid == 1
    env = gymnasium.make("TorchHopper-v0")
    obs, _ = env.reset(seed=0)
    for xpos in shown:
        obs, *_ = env.step(Policy.load(run)(obs))
        np.testing.assert_allclose(env.unwrapped.data.xpos, xpos, atol=1e-12)


def test_flags_of_films_are_told_to_change_nothing_in_a_window(monkeypatch, capsys):
    monkeypatch.setattr(play, "has_display", lambda: True)
    monkeypatch.setattr(play, "watch", lambda found, seed: None)
    main(["play", "TorchHopper", "--seed", "3"])
    assert capsys.readouterr().err == ""
    main(["play", "TorchHopper", "--worlds", "4", "--seconds", "3"])
    assert (
        "a window shows one world until it is closed; --worlds and --seconds: for a film, by" in capsys.readouterr().err
    )


def test_where_windows_open(monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    assert not play.has_display()
    monkeypatch.setenv("WAYLAND_DISPLAY", "wayland-0")
    assert play.has_display()
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.delenv("WAYLAND_DISPLAY")
    assert play.has_display()

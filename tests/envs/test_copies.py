"""`copy.deepcopy` and pickle: a copy goes on bit for bit as the original does, and neither touches the other."""

from __future__ import annotations

import copy
import io
import pickle
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from typing import Any

import gymnasium
import mujoco
import numpy as np
import processes
import pytest
import torch
from tensordict import TensorDict

import torch_mjenvs
from torch_mjenvs import Outcome, Task, TorchEnv, TorchRLEnv, TorchVectorEnv, wrappers


def pickled(x: Any) -> Any:
    return pickle.loads(pickle.dumps(x))


@pytest.fixture(params=[copy.deepcopy, pickled], ids=["deepcopy", "pickle"])
def copied(request):
    return request.param


def all_equal(x: Any, y: Any) -> bool:
    if isinstance(x, dict):
        return x.keys() == y.keys() and all(all_equal(x[k], y[k]) for k in x)
    if isinstance(x, (tuple, list)):
        return len(x) == len(y) and all(map(all_equal, x, y))
    return x.equal(y) if isinstance(x, torch.Tensor) else bool(np.all(x == y))


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_a_vector_env_is_copied_in_the_midst(copied, mode):
    """Episodes, random streams and parameters; torch's generator is not asked; there is one lock and one model."""
    env = gymnasium.make_vec(
        "TorchHopper-v0", 3, autoreset_mode=mode, max_episode_steps=8, render_mode="rgb_array", vary=["gravity"]
    )
    env.reset(seed=1)
    env.set_params({"gravity": torch.tensor([0.0, 0.0, -5.0])})
    action = torch.rand(3, 3)
    for _ in range(5):
        env.step(action)
    generator = torch.random.get_rng_state()
    twin = copied(env)
    assert torch.random.get_rng_state().equal(generator)
    assert twin._lock is twin.engine._lock is not env._lock and twin._camera.engine is twin.engine
    assert twin.model is twin.engine.mjmodel and twin.spec == env.spec and twin.action_space == env.action_space
    for _ in range(10):
        assert all_equal(env.step(action), twin.step(action))
    before = twin.state_dict()
    env.step(action)
    assert all_equal(before, twin.state_dict())


def test_an_env_before_its_first_reset_is_copied(copied):
    env = TorchVectorEnv("Hopper", 2)
    twin = copied(env)
    with pytest.raises(gymnasium.error.ResetNeeded):
        twin.step(torch.zeros(2, 3))
    assert all_equal(env.reset(), twin.reset())


def test_wrappers_are_copied_with_what_they_keep(copied):
    env = wrappers.NormalizeReward(wrappers.NormalizeObservation(TorchVectorEnv("Hopper", 3, max_episode_steps=8)))
    env = wrappers.FrameStackObservation(wrappers.RescaleAction(env, -1.0, 1.0), 2)
    env.reset(seed=1)
    action = torch.rand(3, 3)
    for _ in range(5):
        env.step(action)
    twin = copied(env)
    assert twin._lock is twin.unwrapped.engine._lock
    for _ in range(10):
        assert all_equal(env.step(action), twin.step(action))


def test_a_single_env_is_copied_with_gymnasiums_wrappers(copied):
    env = gymnasium.make("TorchHopper-v0", max_episode_steps=8, device=torch.get_default_device())
    env.reset(seed=1)
    env.step(env.action_space.sample())
    twin = copied(env)
    for _ in range(7):
        action = env.action_space.sample()
        assert all_equal(env.step(action), twin.step(action))
    assert all_equal(env.reset(), twin.reset())


def test_a_torchrl_env_is_copied_with_transforms(copied):
    envs = pytest.importorskip("torchrl.envs")
    env = envs.TransformedEnv(torch_mjenvs.HopperEnv(3, max_episode_steps=8), envs.StepCounter())
    env.set_seed(1)
    state = env.rollout(5)[:, -1]["next"]
    twin = copied(env)
    results = []
    for each in (env, twin):
        torch.manual_seed(0)
        results.append(each.rollout(12, tensordict=state.clone(), auto_reset=False, break_when_any_done=False))
    assert (results[0] == results[1]).all() and results[0]["next", "done"].any()


@pytest.mark.slow
def test_torchrls_parallel_env_takes_one_that_is_made():
    """Every worker has a copy; TorchRL asks for it within a function."""
    envs = pytest.importorskip("torchrl.envs")
    env = torch_mjenvs.HopperEnv(3)
    parallel = envs.ParallelEnv(2, lambda env=env: env)
    try:
        parallel.set_seed(1)
        obs = parallel.rollout(3)["observation"]
    finally:
        parallel.close()
    assert obs.shape == (2, 3, 3, 11) and not obs[0].equal(obs[1])


PENDULUM = """<mujoco><option gravity="0 0 {gravity}"/><worldbody><body><joint name="h" axis="0 1 0"/>
<geom size=".1" pos=".5 0 0"/></body></worldbody><actuator><motor joint="h" ctrlrange="-1 1"/></actuator></mujoco>"""


@dataclass(frozen=True)
class Filed(Task):
    """A pendulum of a file, whose number of loads is counted."""

    xml_file: str = ""
    frame_skip: int = 2

    def load(self):
        object.__setattr__(self, "half", 0.5)  # what `load` finds out is the copy's, too
        return super().load()

    def reset(self, m, rng):
        return [0.0], [0.0]

    def observe(self, m, world):
        return [*world.qpos, *world.qvel]

    def outcome(self, m, before, action, after):
        return Outcome(self.half * after.qpos[0])


@dataclass(frozen=True)
class Measured(Filed):
    """The same pendulum, with a metric that can be logged."""

    def load(self):
        return mujoco.MjModel.from_xml_string(PENDULUM.format(gravity=-9.81))

    def outcome(self, m, before, action, after):
        return Outcome(after.qpos[0], metrics={"angle": after.qpos[0]})


@pytest.mark.parametrize("after", ["edited", "removed"])
@pytest.mark.parametrize("make", [TorchVectorEnv, TorchRLEnv, pytest.param(TorchEnv, marks=pytest.mark.cpu)])
def test_a_copy_has_the_model_that_was_loaded(make, after, copied, tmp_path):
    """Whatever its file holds by then, and wherever the process is."""
    file = tmp_path / "pendulum.xml"
    file.write_text(PENDULUM.format(gravity=-9.81))
    env = make(Filed(str(file)))
    if make is TorchRLEnv:
        env.set_seed(0)
    held = pickle.dumps(env)
    if after == "edited":
        file.write_text(PENDULUM.format(gravity=9.81))
    else:
        file.unlink()
    twins = [copied(env), pickle.loads(held), pickled(pickled(env))]
    for one in (env, *twins):
        one.reset() if make is TorchRLEnv else one.reset(seed=0)
    action = torch.zeros(1, 1, device=env.device)
    for _ in range(10):
        if make is TorchRLEnv:
            seen = [one.step(TensorDict({"action": action}, [1]))["next", "observation"] for one in (env, *twins)]
        else:
            seen = [torch.as_tensor(one.step(np.zeros(1) if make is TorchEnv else action)[0]) for one in (env, *twins)]
        assert all(torch.equal(x, seen[0]) for x in seen) and (seen[0].ravel()[0] > 0)


@pytest.mark.cpu
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_process_of_any_kind_takes_environments(method, tmp_path):
    """torch would share tensors with it, which are freed before it has them."""
    script = tmp_path / "started.py"
    script.write_text(SPAWNING.format(method=method))
    processes.python(str(script), folder=tmp_path)
    assert (tmp_path / "done").read_text() == "TorchVectorEnv HopperEnv Simulation RecordEpisodeStatistics"


def seen_by(sent: Any) -> list[torch.Tensor]:
    """Return the tensors in what multiprocessing sends to a process that it starts."""
    found: list[torch.Tensor] = []

    class Sending(ForkingPickler):
        def persistent_id(self, x: Any) -> None:
            found.extend([x] if isinstance(x, torch.Tensor) else [])

    Sending(io.BytesIO()).dump(sent)
    return found


AROUND = [
    wrappers.NormalizeObservation, wrappers.NormalizeReward, wrappers.RecordEpisodeStatistics, wrappers.LogEpisodes,
    lambda env: wrappers.FrameStackObservation(env, 3), lambda env: wrappers.RescaleAction(env, -1.0, 1.0),
]  # fmt: skip


@pytest.mark.parametrize("around", AROUND)
def test_a_process_that_is_started_shares_nothing_with_this_one(around):
    """A tensor that is sent lies in shared memory afterwards, and what either process writes, the other one reads."""
    env = around(TorchVectorEnv(Measured(), 4))
    env.reset(seed=0)
    env.step(torch.zeros(4, 1, device=env.unwrapped.device))
    assert seen_by(env) == []
    shallow = copy.copy(env)
    kept = {name: x for name, x in vars(env).items() if isinstance(x, torch.Tensor) and name != "episode_start_times"}
    assert all(x is vars(shallow)[name] for name, x in kept.items())


def test_pictures_stay_where_they_are_drawn_when_they_are_sent():
    """Their stacks would be moved to shared memory, and kernels would go on to read where they were."""
    env, twin = (TorchVectorEnv("Hopper", 4, pixels={"width": 12, "height": 10, "stack": 2}) for _ in range(2))
    for x in (env, twin):
        x.reset(seed=0)
        x.step(torch.zeros(4, 3, device=x.device))
    assert seen_by(env) == []
    for _ in range(3):
        ours, theirs = (x.step(torch.ones(4, 3, device=x.device))[0] for x in (env, twin))
        assert torch.equal(ours, theirs)


SPAWNING = """
import pathlib
import torch.multiprocessing
from torch_mjenvs import HopperEnv, Simulation, TorchVectorEnv, wrappers

XML = "<mujoco><worldbody><body><freejoint/><geom size='1'/></body></worldbody></mujoco>"

def work(*given):
    for one in given:
        one.reset()
    pathlib.Path("done").write_text(" ".join(type(one).__name__ for one in given))

if __name__ == "__main__":
    start = torch.multiprocessing.get_context("{method}")
    made = TorchVectorEnv("Hopper", 2), HopperEnv(num_envs=2), Simulation(XML, 2)
    process = start.Process(target=work, args=(*made, wrappers.RecordEpisodeStatistics(TorchVectorEnv("Hopper", 2))))
    process.start()
    process.join()
    raise SystemExit(process.exitcode)
"""

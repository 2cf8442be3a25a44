"""`capture`: many steps of policy and environment as one call. What it gives is what a loop over `step` gives."""

from __future__ import annotations

import contextlib
import sys
from types import SimpleNamespace

import pytest
import torch
from gymnasium.error import ResetNeeded
from launches import Launches

from torch_mjenvs import TorchVectorEnv
from torch_mjenvs.envs import engine
from torch_mjenvs.training.networks import Replayed

N, T = 16, 10


def make(mode: str = "SameStep", n: int = N) -> TorchVectorEnv:
    return TorchVectorEnv("Hopper", n, autoreset_mode=mode, max_episode_steps=13)


@pytest.mark.parametrize("steps", [T, 1])
@pytest.mark.parametrize("n", [N, 21])
@pytest.mark.parametrize("mode", ["SameStep", "NextStep"])
def test_a_rollout_is_a_loop(mode, n, steps):
    """Also for worlds that do not fill all that is allocated, and for a single step."""
    torch.manual_seed(0)
    weight = torch.randn(3, 11)

    def policy(obs):
        mean = (weight * obs[:, None]).sum(2)  # no library that might choose another way in a graph
        return mean + torch.randn_like(mean), {"mean": mean}

    env, twin = make(mode, n), make(mode, n)
    env.reset(seed=4)
    obs, _ = twin.reset(seed=4)
    rollout = env.capture(policy, steps)
    torch.manual_seed(1)
    copies = [{name: x.clone() for name, x in rollout().items()} for _ in range(4 * T // steps)]
    torch.manual_seed(1)
    ends = 0
    with torch.no_grad():
        for data in copies:
            for t in range(steps):
                assert torch.equal(data["obs"][t], obs)
                action, extra = policy(obs)
                obs, reward, terminated, truncated, info = twin.step(action)
                expected = {
                    "action": action, "mean": extra["mean"], "reward": reward, "terminated": terminated,
                    "truncated": truncated, "bad_state": info["bad_state"],
                }  # fmt: skip
                if mode == "SameStep":
                    expected["final_obs"] = info["final_obs"]
                assert data.keys() == expected.keys() | {"obs", "next_obs"}
                assert all(torch.equal(data[name][t], x) for name, x in expected.items())
                ends += int((terminated | truncated).sum())
            assert torch.equal(data["next_obs"], obs)
            assert all(x.is_contiguous() for x in data.values())
    assert env.obs.equal(obs) and env.engine.reward.equal(reward), "the engine's own are those of the last step"
    assert ends > n


def test_actions_are_kept_as_the_policy_gives_them():
    """The worlds take them in their own dtype."""
    env = make()
    env.reset(seed=0)
    data = env.capture(lambda obs: obs[:, :3].double() / 3, 2)()
    assert data["action"].equal(data["obs"][..., :3].double() / 3)
    assert env.engine.action.equal(data["action"][-1].float())


@pytest.mark.parametrize(("mode", "n"), [("SameStep", N), ("NextStep", N), ("SameStep", 21)])
def test_a_step_of_a_rollout_is_its_kernel_and_the_policys_operations(mode, n):
    """And a copy that writes the action down: all else that a step gives, the kernel writes into the rollout."""
    counts = []
    for steps in (2, 12):
        env = make(mode, n)
        env.reset(seed=0)
        rollout = env.capture(lambda obs: obs[:, :3], steps)  # a view: no operation
        with Launches() as seen:
            rollout()
        counts.append(len(seen.names))
    assert counts[1] - counts[0] == 10, "one operation a step"
    assert counts[0] <= 17


def test_addresses_stay_and_nothing_runs_before_the_first_call():
    env = make()
    env.reset(seed=0)
    random_state = torch.cuda.get_rng_state if env.device.type == "cuda" else torch.get_rng_state
    before, numbers = env.state_dict(), random_state()
    rollout = env.capture(lambda obs: torch.rand(N, 3), T)
    assert torch.equal(random_state(), numbers)
    assert all(torch.equal(x, before[name]) for name, x in env.state_dict().items())
    first = {name: x.data_ptr() for name, x in rollout().items()}
    assert {name: x.data_ptr() for name, x in rollout().items()} == first


def test_gradients_are_off():
    env = make()
    env.reset(seed=0)
    net = torch.nn.Linear(11, 3)
    assert not any(x.requires_grad for x in env.capture(net, 2)().values())


def test_what_cannot_be():
    env = make()
    with pytest.raises(ResetNeeded):
        env.capture(lambda obs: obs[:, :3], T)()
    env.reset(seed=0)
    for steps in (0, -1, 2.0, True):
        with pytest.raises(ValueError, match="steps must be"):
            env.capture(lambda obs: obs[:, :3], steps)
    with pytest.raises(ValueError, match=r"actions must be of shape \(16, 3\)"):
        env.capture(lambda obs: obs[:, :2], T)
    with pytest.raises(ValueError, match="rollout's own"):
        env.capture(lambda obs: (obs[:, :3], {"reward": obs[:, 0]}), T)
    with pytest.raises(ValueError, match="one a world"):
        env.capture(lambda obs: (obs[:, :3], {"mean": obs[0]}), T)
    with pytest.raises(ValueError, match="resets itself"):
        make("Disabled").capture(lambda obs: obs[:, :3], T)


# captures, without a GPU: torch's names for CUDA do nothing, but are watched


@pytest.fixture
def captures(monkeypatch) -> list:
    """(GPU, current GPU) of each capture's stream; whatever is captured runs."""
    seen: list = []

    @contextlib.contextmanager
    def graph(graph, stream=None):
        seen.append((stream.device, current[-1]))
        yield

    @contextlib.contextmanager
    def device(chosen):
        current.append(torch.device(chosen))
        yield
        current.pop()

    def stream_on(device=None):
        return SimpleNamespace(device=device or current[-1], wait_stream=lambda other: None)

    current = [torch.device("cuda:0")]
    patches = {
        "Stream": stream_on, "current_stream": stream_on, "stream": lambda stream: contextlib.nullcontext(),
        "CUDAGraph": lambda: SimpleNamespace(replay=lambda: seen.append("replay")), "graph": graph, "device": device,
    }  # fmt: skip
    for name, stand_in in patches.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    return seen


@pytest.mark.cpu
def test_a_capture_is_on_a_stream_of_the_worlds_gpu(captures):
    """Not on torch's own, which is on whichever GPU was first used for one."""
    env = make()
    env.reset(seed=0)
    rollout = env.capture(lambda obs: obs[:, :3].tanh(), 2)
    before = env.state_dict()
    rollout._device = torch.device("cuda:1")
    rollout._capture()
    assert captures == [(torch.device("cuda:1"),) * 2]
    rollout()
    assert captures[1:] == ["replay"]
    assert all(x.equal(before[name]) for name, x in env.state_dict().items())


@pytest.mark.cpu
def test_so_is_that_of_an_update_of_the_example(captures):
    replayed = Replayed(lambda x: None)
    with torch.cuda.device("cuda:1"):
        for _ in range(4):
            replayed._replay(torch.zeros(2))
    assert captures == [(torch.device("cuda:1"),) * 2, "replay"]


@pytest.mark.cpu
def test_a_policy_of_cuda_graphs_is_refused(captures, monkeypatch):
    """And leaves the worlds as they were; so does an error within a capture."""
    manager = SimpleNamespace(current_gen=-1)
    trees = SimpleNamespace(get_manager=lambda index, create_if_none_exists: manager)
    monkeypatch.setitem(sys.modules, engine.MARKED_STEPS, trees)
    env = make()
    env.reset(seed=0)

    def policy(obs):
        manager.current_gen -= graphs
        return obs[:, :3].tanh()

    graphs = 1
    rollout = env.capture(policy, 2)
    before = env.state_dict()
    env.device = torch.device("cuda:0")
    with pytest.raises(ValueError, match=r"CUDA graphs of its own.*max-autotune-no-cudagraphs"):
        rollout._capture()
    assert not captures and rollout._graph is None
    assert all(x.equal(before[name]) for name, x in env.state_dict().items())
    graphs = 0
    rollout._capture()
    assert len(captures) == 1

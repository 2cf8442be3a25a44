"""`capture`: many steps of policy and environment as one call. What it gives is what a loop over `step` gives."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode
from launches import Launches, RecordedGraph, record_graphs

from torch_mjenvs import InvertedPendulum, Outcome, TorchVectorEnv, wrappers
from torch_mjenvs.compiler.program import collector_paused
from torch_mjenvs.envs import engine
from torch_mjenvs.envs.rollout import Act, Rollout, Waiting
from torch_mjenvs.scalar import absolute, select
from torch_mjenvs.training.networks import Replayed

N, T = 16, 10


def make(mode: str = "SameStep", n: int = N) -> TorchVectorEnv:
    return TorchVectorEnv("Hopper", n, autoreset_mode=mode, max_episode_steps=13)


def noisy(obs):
    weight = torch.linspace(-1, 1, 33).sin().view(3, 11)
    mean = (weight * obs[:, None]).sum(2)  # no library that might choose another way in a graph
    return mean + torch.randn_like(mean), {"mean": mean}


def check_loop(env: TorchVectorEnv, twin: TorchVectorEnv, rollout: Rollout) -> None:
    """Rollouts of `noisy` from the first step on give what a loop over `step` gives, and end as it does."""
    mode, obs, steps = env.metadata["autoreset_mode"], twin.obs, len(rollout.tensors["obs"])
    torch.manual_seed(1)
    copies = [{name: x.clone() for name, x in rollout().items()} for _ in range(4 * T // steps)]
    torch.manual_seed(1)
    ends = 0
    with torch.no_grad():
        for data in copies:
            for t in range(steps):
                assert torch.equal(data["obs"][t], obs)
                action, extra = noisy(obs)
                obs, reward, terminated, truncated, info = twin.step(action)
                expected = {
                    "action": action, "mean": extra["mean"], "reward": reward, "terminated": terminated,
                    "truncated": truncated, "bad_state": info["bad_state"],
                }  # fmt: skip
                if mode is AutoresetMode.SAME_STEP:
                    expected["final_obs"] = info["final_obs"]
                assert data.keys() == expected.keys() | {"obs", "next_obs"}
                assert all(torch.equal(data[name][t], x) for name, x in expected.items())
                ends += int((terminated | truncated).sum())
            assert torch.equal(data["next_obs"], obs)
            assert all(x.is_contiguous() for x in data.values())
    assert env.obs.equal(obs) and env.engine.reward.equal(reward), "the engine's own are those of the last step"
    assert env.engine.action.equal(action)
    assert ends > env.num_envs


@pytest.mark.parametrize("steps", [T, 1])
@pytest.mark.parametrize("n", [N, 21])
@pytest.mark.parametrize("mode", ["SameStep", "NextStep"])
def test_a_rollout_is_a_loop(mode, n, steps):
    """Also for worlds that do not fill all that is allocated, and for a single step."""
    env, twin = make(mode, n), make(mode, n)
    env.reset(seed=4)
    twin.reset(seed=4)
    check_loop(env, twin, env.capture(noisy, steps))


@dataclass(frozen=True)
class Costly(InvertedPendulum):
    """Limits on where the cart is, for constrained learning. One name is the rollout's own, another a list."""

    def outcome(self, m, before, action, after):
        cost = select(absolute(after.qpos[0]) > 0.02, 1.0, 0.0)
        info = {"cost": cost, "speeds": after.qvel, "reward": after.qpos[0]}
        fell = {"fell": absolute(after.qpos[1]) > 0.2}
        return Outcome({"alive": 1.0, "effort": -action[0] * action[0]}, fell, info, metrics={"cost": cost})


@pytest.mark.parametrize("steps", [T, 1])
@pytest.mark.parametrize("n", [N, 21])
@pytest.mark.parametrize("around", [lambda env: env, wrappers.NormalizeReward])
@pytest.mark.parametrize("mode", ["SameStep", "NextStep"])
def test_entries_of_info_are_recorded(mode, around, n, steps):
    """As `step` gives them, those of an episode's last step too."""
    env, twin = (around(TorchVectorEnv(Costly(), n, autoreset_mode=mode, max_episode_steps=13)) for _ in range(2))
    env.reset(seed=4)
    obs, _ = twin.reset(seed=4)
    rollout = env.capture(lambda obs: obs[:, :1] * 9, steps, info_keys=("cost", "speeds", "bad_state"))
    ends = costs = 0
    for _ in range(40 // steps):
        data = rollout()
        for t in range(steps):
            obs, _, terminated, truncated, info = twin.step(obs[:, :1] * 9)
            told = info["final_info"] if mode == "SameStep" else info
            for name in ("cost", "speeds", "bad_state", "episode_mean/cost", "episode_reward/effort"):
                assert torch.equal(data[name][t], told[name]), name
            ends, costs = ends + int((terminated | truncated).sum()), costs + int(told["cost"].sum())
        assert data["speeds"].shape == (steps, n, 2) and data["speeds"].is_contiguous()
    assert ends > n and 0 < costs < 40 * n


def test_entries_of_info_that_cannot_be_recorded():
    env = TorchVectorEnv(Costly(), N, autoreset_mode="SameStep")
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"info has no \['costs'\]: info_keys may name \['bad_state', 'cost'"):
        env.capture(lambda obs: obs[:, :1], 2, info_keys=("cost", "costs"))
    with pytest.raises(ValueError, match=r"info_keys names \['reward'\], which are the rollout's own"):
        env.capture(lambda obs: obs[:, :1], 2, info_keys="reward")
    with pytest.raises(ValueError, match=r"the policy may not name what it gives \['cost'\]"):
        env.capture(lambda obs: (obs[:, :1], {"cost": obs[:, 0]}), 2, info_keys="cost")


def test_actions_are_kept_as_the_policy_gives_them():
    """The worlds take them in their own dtype."""
    env = make()
    env.reset(seed=0)
    data = env.capture(lambda obs: obs[:, :3].double() / 3, 2)()
    assert data["action"].equal(data["obs"][..., :3].double() / 3)
    assert env.engine.action.equal(data["action"][-1].float())


@pytest.mark.cpu  # of a graph's replay torch tells nothing
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
    assert counts[0] <= 20  # three are `DirectSteps.begin`'s marks, which a GPU does without


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


@pytest.mark.cpu
@pytest.mark.parametrize("failing", [0, 3, T - 1])
@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_an_exception_of_the_policy_leaves_the_outputs_of_the_last_step(mode, failing):
    """The steps before it were made: what the policy sees next must be of the worlds as they are."""
    env, other = make(mode), make(mode)
    for x in (env, other):
        x.reset(seed=0)
    calls: list[int] = []
    fails = [-1]

    def policy(obs: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        if len(calls) - 1 == fails[0]:
            raise KeyboardInterrupt
        return (7 * obs[:, :3]).sin()

    rollout = env.capture(policy, T)
    rollout()
    fails[0] = len(calls) + failing
    with pytest.raises(KeyboardInterrupt):
        rollout()
    for _ in range(T + failing):
        other.step((7 * other.obs[:, :3]).sin())
    found, wanted = env.state_dict(), other.state_dict()
    assert all(found[name].equal(x) for name, x in wanted.items() if name != "action")
    assert rollout()["obs"][0].equal(other.obs)


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


# captures, without a GPU: by stand-ins for torch's CUDA graphs


@pytest.fixture
def captures(monkeypatch) -> list:
    """(GPU, current GPU) of each capture's stream, and each replay."""
    return record_graphs(monkeypatch)


def captured(env: TorchVectorEnv, policy: Act, steps: int, info_keys: Sequence[str] = ()) -> Rollout:
    env.engine._ahead = None  # as on a GPU
    rollout = env.capture(policy, steps, info_keys)
    rollout._device = torch.device("cuda:1")
    rollout._capture()
    return rollout


class Given:
    """The numbers of `noisy` in one of some buffers, in turn; without any, in memory of their own; `altered` when the
    next ones are given, if so asked.
    """

    def __init__(self, buffers: int = 0, altered: str = ""):
        self.buffers, self.turn, self.altered, self.last = buffers, 0, altered, torch.zeros(1)
        self.held: dict[int, torch.Tensor] = {}

    def __call__(self, obs):
        action, extras = noisy(obs)
        given = {"action": action} | extras
        if self.altered:
            self.last.zero_()
            self.last = given[self.altered]
        if self.buffers:
            self.turn = (self.turn + 1) % self.buffers
            action = self.held.setdefault(self.turn, torch.zeros_like(action)).copy_(action)
        return action, extras


def strided(obs):
    action, extras = noisy(obs)
    return action.T.contiguous().T, extras


@pytest.mark.cpu
@pytest.mark.parametrize(
    ("policy", "mode", "n", "steps"),
    [
        (noisy, "SameStep", N, T), (noisy, "NextStep", N, T), (noisy, "SameStep", 21, T), (noisy, "SameStep", N, 1),
        (Given(1), "SameStep", N, T), (Given(2), "SameStep", N, T), (Given(altered="action"), "SameStep", N, T),
        (Given(altered="mean"), "SameStep", N, T), (torch.inference_mode()(noisy), "SameStep", N, T),
        (strided, "SameStep", N, T),
    ],
)  # fmt: skip
def test_a_captured_rollout_is_a_loop(captures, policy, mode, n, steps):
    """Also where what the policy gives does not stay as it was given."""
    env, twin = make(mode, n), make(mode, n)
    env.reset(seed=4)
    twin.reset(seed=4)
    check_loop(env, twin, captured(env, policy, steps))
    assert captures.count("replay") == 4 * T // steps


@pytest.mark.cpu
@pytest.mark.parametrize("mode", ["SameStep", "NextStep"])
def test_a_captured_rollout_records_entries_of_info(captures, mode):
    env, twin = (TorchVectorEnv(Costly(), N, autoreset_mode=mode, max_episode_steps=13) for _ in range(2))
    env.reset(seed=4)
    twin.reset(seed=4)
    keys = ("cost", "speeds")
    given = (lambda obs: obs[:, :1].tanh()), T, keys
    graph, loop = captured(env, *given), twin.capture(*given)
    for _ in range(4):
        mine, theirs = graph(), loop()
        assert {*keys} < mine.keys() and all(torch.equal(mine[name], x) for name, x in theirs.items())


@pytest.mark.cpu
@pytest.mark.parametrize(
    ("policy", "operations"),
    [
        (lambda obs: obs[:, :3].tanh(), 1),
        (lambda obs: (obs[:, :3].tanh(), {"mean": obs[:, 3:6].tanh(), "value": obs.sum(1)}), 3),
        (lambda obs: obs[:, :3], 1),  # has to be written down at once, being the rollout's own memory
        (lambda obs: (obs[:, :3].tanh(), {"seen": obs}), 2),
    ],
)  # fmt: skip
def test_a_step_of_a_captured_rollout_is_its_kernel_and_what_the_policy_does(captures, policy, operations):
    """What it gives is read and kept where it lies; the rollout's tensors of it are written after the last step."""
    counts = []
    for steps in (2, 12):
        env = make()
        env.reset(seed=0)
        graph = captured(env, policy, steps)._graph
        assert isinstance(graph, RecordedGraph) and graph.launches == steps
        counts.append(len(graph.names))
    assert counts[1] - counts[0] == 10 * operations
    assert counts[0] <= 2 * operations + 17


def test_what_may_wait_until_the_last_step():
    def fit(*given: torch.Tensor) -> bool:
        waiting = Waiting()
        for x in given:
            waiting.append(x)
        return waiting.fit(torch.zeros(2, N, 3))

    x, y = torch.zeros(2, N, 3).clone().unbind(), torch.zeros(N, 3)
    with torch.inference_mode():
        z = torch.zeros(N, 3)
    assert fit(x[0], y)
    assert not fit(*x), "in one piece of memory"
    assert not fit(x[0]) and not fit(x[0], y, y.clone()), "one a step"
    assert not fit(x[0], y[:, :1]) and not fit(x[0], y.double()) and not fit(x[0], z)
    waiting = Waiting()
    for given in (x[0], y):
        waiting.append(given)
    y.add_(1)
    assert not waiting.fit(torch.zeros(2, N, 3))


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
    assert all(x.equal(before[name]) for name, x in env.state_dict().items())
    rollout()
    assert captures[1:] == ["replay"]


@pytest.mark.cpu
def test_parameters_that_are_set_reach_a_captured_rollout(captures):
    """With what MuJoCo computes from them: a replay runs no Python that would."""
    env, twin = (TorchVectorEnv("Hopper", N, autoreset_mode="SameStep", vary=["body_mass"]) for _ in range(2))
    for x in (env, twin):
        x.reset(seed=1)
    rollouts = captured(env, lambda obs: obs[:, :3].tanh(), 3), twin.capture(lambda obs: obs[:, :3].tanh(), 3)
    for x in (env, twin):
        x.set_params({"body_mass": 3 * x.params["body_mass"]})
    ours, theirs = (rollout() for rollout in rollouts)
    assert captures.count("replay") == 1 and torch.equal(ours["reward"], theirs["reward"])
    assert torch.equal(env.engine.view("derived"), twin.engine.view("derived"))


@pytest.mark.cpu
@pytest.mark.parametrize("wrapper", [wrappers.NormalizeObservation, wrappers.NormalizeReward])
def test_what_is_chosen_of_a_wrapper_after_a_capture_counts(captures, wrapper):
    """A graph holds what was chosen when it was captured, so it is captured anew, and the worlds stay as they are."""
    env = wrapper(TorchVectorEnv("Hopper", N, autoreset_mode="SameStep"))
    env.reset(seed=1)
    rollout = env.capture(lambda obs: torch.randn_like(obs)[:, :3].tanh(), 3)
    rollout._device = torch.device("cuda:1")
    rollout._capture()
    rollout._graph = SimpleNamespace(replay=lambda: None)  # the stand-in does not know all that wrappers do
    rollout()
    assert len(captures) == 1
    for name, value in {"update_running_mean": False, "epsilon": 1e-4}.items():
        setattr(env, name, value)
        before, random = env.state_dict(), torch.get_rng_state()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(RecordedGraph, "replay", lambda self: None)
            rollout()
            rollout()
        assert all(torch.equal(x, before[key]) for key, x in env.state_dict().items())
        assert torch.equal(random, torch.get_rng_state())
    assert len(captures) == 3


class InACycle:
    """An object that only the cycle collector frees. It then adds itself to `freed`."""

    def __init__(self, freed: list):
        self.me, self.freed = self, freed

    def __del__(self) -> None:
        self.freed.append(self)


@pytest.mark.cpu
def test_nothing_is_freed_by_the_collector_within_a_capture(captures):
    """If an older CUDA graph were freed, the capture would fail."""
    env, freed, within = make(), [], []
    env.reset(seed=0)

    def policy(obs):
        if captures:  # within the capture
            InACycle(freed)
            assert [[] for _ in range(2000)]  # more new objects than the collector waits for
            within.append(len(freed))
        return obs[:, :3].tanh()

    rollout = env.capture(policy, 2)
    rollout._device = torch.device("cuda:1")
    before = gc.get_threshold()
    gc.set_threshold(10, 10, 10)
    try:
        rollout._capture()
    finally:
        gc.set_threshold(*before)
    assert within and not any(within) and gc.isenabled()
    gc.collect()
    assert len(freed) == len(within)


@pytest.mark.cpu
def test_the_collector_stays_off_while_any_thread_needs_it():
    """A kernel that another thread builds meanwhile must not turn it on."""
    first, second = collector_paused(), collector_paused()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not gc.isenabled()
    second.__exit__(None, None, None)
    assert gc.isenabled()


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
    vars(env)["device"] = torch.device("cuda:0")
    with pytest.raises(ValueError, match=r"CUDA graphs of its own.*max-autotune-no-cudagraphs"):
        rollout._capture()
    assert not captures and rollout._graph is None
    assert all(x.equal(before[name]) for name, x in env.state_dict().items())
    graphs = 0
    rollout._capture()
    assert len(captures) == 1

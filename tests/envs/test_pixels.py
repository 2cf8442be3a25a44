"""Pictures as observations: of the state that a step or a reset leaves, the newest last."""

from __future__ import annotations

import copy

import gymnasium
import pytest
import torch
from gymnasium.vector import AutoresetMode
from pretended_gpu import pretended_gpu
from torchrl.envs.utils import check_env_specs

from torch_mjenvs import Simulation
from torch_mjenvs.envs import pixels
from torch_mjenvs.envs.torchrl import TorchRLEnv
from torch_mjenvs.envs.vector_env import TorchVectorEnv

N, STACK = 4, 3
OPTIONS = {"width": 24, "height": 20, "camera": 0, "stack": STACK}


def made(**more: object) -> TorchVectorEnv:
    return TorchVectorEnv("Hopper", N, max_episode_steps=4, pixels=OPTIONS, **more)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def drawn():
    """A function from positions to a Simulation's pictures of them."""
    simulation = Simulation(gymnasium.make("Hopper-v5").unwrapped.model, N)

    def pictures(qpos: torch.Tensor) -> torch.Tensor:
        simulation.qpos.copy_(qpos)
        return simulation.render(0, 24, 20, outputs="rgb")["rgb"].clone()

    return pictures


def newest(obs: torch.Tensor, back: int = 0) -> torch.Tensor:
    end = obs.shape[-1] - 3 * back
    return obs[..., end - 3 : end]


def test_what_pictures_are_made_from_is_read_only():
    """Their kernels are made from the model: later pictures would be the same."""
    env = made()
    with pytest.raises(ValueError, match=r"geom_rgba is read only: the pictures are made from .*vary=\['geom_rgba'\]"):
        env.unwrapped.model.geom_rgba[:, 0] = 1.0
    with pytest.raises(ValueError, match=r"tex_data is read only: the pictures are made from .* load\(\)"):
        env.unwrapped.model.tex_data[:] = 0


def test_observations_are_pictures_of_the_last_states(drawn):
    env = made()
    obs, _ = env.reset(seed=1)
    assert obs.shape == (N, 20, 24, 3 * STACK) and obs.dtype == torch.uint8
    assert env.single_observation_space.contains(obs[0].cpu().numpy())
    first = drawn(env.qpos)
    assert first.float().std() > 10
    assert all(torch.equal(newest(obs, back), first) for back in range(STACK))
    env.action_space.seed(0)
    obs = env.step(env.action_space.sample())[0]
    second = drawn(env.qpos)
    assert torch.equal(newest(obs), second) and not torch.equal(second, first)
    assert torch.equal(newest(obs, 1), first) and torch.equal(newest(obs, 2), first)
    kept = obs.clone()
    env.step(env.action_space.sample())
    assert torch.equal(obs, kept)  # what was given is the user's


def test_an_episode_begins_with_its_first_picture_alone(drawn):
    env = made()
    env.reset(seed=1)
    env.action_space.seed(0)
    for _ in range(4):
        obs, *_, truncated, _ = env.step(env.action_space.sample())
    assert truncated.all() and not torch.equal(newest(obs), newest(obs, 1))
    obs = env.step(env.action_space.sample())[0]  # which resets
    assert all(torch.equal(newest(obs, back), drawn(env.qpos)) for back in range(STACK))


def test_a_reset_of_some_worlds_leaves_the_pictures_of_the_others(drawn):
    env = made(autoreset_mode=AutoresetMode.DISABLED)
    env.reset(seed=1)
    env.action_space.seed(0)
    before = env.step(env.action_space.sample())[0]
    mask = torch.tensor([True, False, False, True])
    after, _ = env.reset(options={"reset_mask": mask})
    assert torch.equal(after[~mask], before[~mask])
    assert all(torch.equal(newest(after, back)[mask], drawn(env.qpos)[mask]) for back in range(STACK))


def test_a_copy_and_a_loaded_state_go_on_with_the_same_pictures():
    env = made()
    env.reset(seed=1)
    action = torch.full((N, 3), 0.5)
    env.step(action)
    other, state = copy.deepcopy(env), env.state_dict()
    want = env.step(action)[0]
    assert torch.equal(other.step(action)[0], want)
    env.reset(seed=2)
    env.load_state_dict(state)
    assert torch.equal(env.step(action)[0], want)


def test_the_state_may_be_there_too_and_channels_first():
    options = OPTIONS | {"state": True, "channels_first": True, "stack": 1, "without": "shadow"}
    env = TorchVectorEnv("Hopper", N, pixels=options)
    obs, _ = env.reset(seed=1)
    assert list(obs) == ["state", "pixels"] and obs["state"].shape == (N, 11)
    assert obs["pixels"].shape == (N, 3, 20, 24) and obs["pixels"].is_contiguous()
    assert torch.equal(env.obs["pixels"], obs["pixels"])
    depth = TorchVectorEnv("Hopper", N, pixels=OPTIONS | {"outputs": "depth"})
    obs, _ = depth.reset(seed=1)
    assert obs.shape == (N, 20, 24, STACK) and obs.dtype == torch.float32 and (obs > 0).all()


@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
def test_observations_may_be_segmentation(mode):
    """Numbers of objects, and their types, as `Simulation.render` and `mujoco.Renderer` have them."""
    options = OPTIONS | {"outputs": "segmentation", "stack": 2}
    env = TorchVectorEnv("Hopper", N, autoreset_mode=mode, max_episode_steps=2, pixels=options)
    simulation = Simulation(gymnasium.make("Hopper-v5").unwrapped.model, N)

    def seen() -> torch.Tensor:
        simulation.qpos.copy_(env.qpos)
        return simulation.render(0, 24, 20, outputs="segmentation")["segmentation"].clone()

    obs, _ = env.reset(seed=1)
    first = seen()
    assert obs.shape == (N, 20, 24, 4) and obs.dtype == torch.int32 and torch.equal(obs, torch.cat([first] * 2, -1))
    assert env.single_observation_space.contains(obs[0].cpu().numpy())
    assert set(first.unique().tolist()) >= {-1, 0, 4, 5}  # the sky, the floor, the foot; geoms
    env.action_space.seed(0)
    obs = env.step(env.action_space.sample())[0]
    assert torch.equal(obs, torch.cat([first, seen()], -1))
    obs, *_, info = env.step(env.action_space.sample())
    assert torch.equal(obs[..., 2:], seen()) and (mode != "SameStep" or torch.equal(obs[..., :2], obs[..., 2:]))
    assert mode != "SameStep" or not torch.equal(info["final_obs"], obs)
    copied, action = copy.deepcopy(env), env.action_space.sample()
    if mode != "Disabled":
        assert torch.equal(copied.step(action)[0], env.step(action)[0])
        rollout = env.capture(lambda obs: torch.ones(N, 3), 3)()
        assert rollout["obs"].shape == (3, N, 20, 24, 4) and rollout["obs"].dtype == torch.int32
    check_env_specs(TorchRLEnv("Hopper", N, pixels=options | {"channels_first": True}))


def test_a_world_of_nan_is_flagged_and_changes_no_other():
    env, other = made(), made()
    for x in (env, other):
        x.reset(seed=1)
    env.qpos[2] = float("nan")
    action = torch.full((N, 3), 0.5)
    obs, reward, terminated, _, info = env.step(action)
    want, usual = other.step(action)[:2]
    bad = torch.arange(N) == 2
    assert torch.equal(info["bad_state"], bad) and torch.equal(terminated, bad) and reward[2] == 0
    assert torch.equal(obs[~bad], want[~bad]) and torch.equal(reward[~bad], usual[~bad])
    assert newest(obs)[2].float().std() > 10  # it stands where the model begins, until it is reset


def test_torchrl_has_them_as_pixels(drawn):
    env = TorchRLEnv("Hopper", N, pixels=OPTIONS, max_episode_steps=3)
    check_env_specs(env)
    assert set(env.observation_spec.keys()) == {"pixels"}
    env.set_seed(0)
    data = env.rollout(5, break_when_any_done=False)
    assert data["pixels"].shape == (N, 5, 20, 24, 3 * STACK)
    ended, again = data["next", "pixels"][:, 2], data["pixels"][:, 3]
    assert data["next", "done"][:, 2].all() and not torch.equal(newest(ended), newest(again))
    assert torch.equal(newest(again), newest(again, 1)) and not torch.equal(newest(ended), newest(ended, 1))
    assert torch.equal(newest(data["next", "pixels"][:, -1]), drawn(env.engine.qpos))


def test_torchrl_takes_them_by_the_names_of_its_own_environments(drawn):
    env = TorchRLEnv("Hopper", N, from_pixels=True, pixels_only=False, width=24, height=20, camera_id=0)
    check_env_specs(env)
    env.set_seed(0)
    td = env.reset()
    assert td["observation"].shape == (N, 11) and torch.equal(td["pixels"], drawn(env.engine.qpos))
    env = TorchRLEnv("Hopper", N, from_pixels=True, width=24, height=20, camera_name="track")
    assert set(env.observation_spec.keys()) == {"pixels"}
    with pytest.raises(TypeError, match="from_pixels what other libraries do: give one"):
        TorchRLEnv("Hopper", N, from_pixels=True, pixels=OPTIONS)


def test_torchrl_repeats_an_action_and_draws_once():
    env, one = TorchRLEnv("Hopper", N, pixels=OPTIONS | {"action_repeat": 4}), TorchRLEnv("Hopper", N)
    for x in (env, one):
        x.set_seed(3)
    data, action = [x.reset() for x in (env, one)], torch.full((N, 3), 0.2)
    assert torch.equal(env.engine.qpos, one.engine.qpos)
    got = env.step(data[0].set("action", action))["next"]
    reward = sum(one.step(data[1].set("action", action))["next", "reward"] for _ in range(4))
    assert torch.equal(env.engine.qpos, one.engine.qpos)
    torch.testing.assert_close(got["reward"], reward)
    assert torch.equal(newest(got["pixels"], 1), newest(data[0]["pixels"]))


@pytest.mark.cpu  # on a GPU all worlds are drawn
def test_worlds_that_begin_in_the_same_step_are_drawn_by_themselves(monkeypatch):
    """As they are with all others, which takes twice as long; Hopper falls sooner in some worlds than in others."""
    envs, observed = [], []
    for many in (pixels.MANY, -1):
        monkeypatch.setattr(pixels, "MANY", many)
        env = TorchVectorEnv("Hopper", 40, pixels=OPTIONS, autoreset_mode=AutoresetMode.SAME_STEP)
        envs.append(env)
        env.reset(seed=1)
        env.action_space.seed(0)
        observed.append([])
        for _ in range(25):
            obs, _, ended, _, info = env.step(env.action_space.sample())
            observed[-1].append((obs, ended, info["final_obs"] if ended.any() else obs))
    ends = [int(ended.sum()) for _, ended, _ in observed[0]]
    few = len(envs[0]._pixels._some)
    assert any(0 < n <= few for n in ends) and any(few < n <= 4 * few for n in ends)
    for one, other in zip(*observed, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_in_the_same_step_final_obs_has_the_last_pictures(drawn):
    """Two environments go alike until the end: one goes on by itself, the other is reset by its user."""
    env = made(autoreset_mode=AutoresetMode.SAME_STEP)
    other = made(autoreset_mode=AutoresetMode.DISABLED)
    begun = env.reset(seed=1)[0], other.reset(seed=1)[0]
    assert torch.equal(*begun)
    env.action_space.seed(0)
    env.elapsed_steps[1], other.elapsed_steps[1] = 1, 1  # that world ends before the others
    for k in range(4):
        action = env.action_space.sample()
        obs, _, terminated, truncated, info = env.step(action)
        want = other.step(action)[0]
        ended = terminated | truncated
        assert ended.tolist() == [k == 3, k == 2, k == 3, k == 3]
        assert torch.equal(info["final_obs"], want) and torch.equal(info["_final_obs"], ended)
        if ended.any():
            want = other.reset(options={"reset_mask": ended})[0]
            assert all(torch.equal(newest(obs, back)[ended], drawn(env.qpos)[ended]) for back in range(STACK))
        assert torch.equal(obs, want)


def test_torchrl_resets_within_a_step():
    env = TorchRLEnv("Hopper", N, pixels=OPTIONS, max_episode_steps=2, native_autoreset=True)
    env.set_seed(0)
    data = env.rollout(3, break_when_any_done=False)
    begun = data["next", "pixels"][:, 1]
    assert data["next", "done"][:, 1].all() and torch.equal(newest(begun), newest(begun, 1))
    assert not torch.equal(newest(data["pixels"][:, 1]), newest(data["pixels"][:, 1], 1))


def test_a_rollout_is_what_its_steps_would_be():
    env, other = made(), made()
    env.reset(seed=1), other.reset(seed=1)

    def policy(obs: torch.Tensor) -> torch.Tensor:
        assert obs.dtype == torch.uint8
        return obs[..., :3].float().mean((1, 2)) / 128 - 1

    data = env.capture(policy, 6)()
    obs = other.obs
    for t in range(6):
        assert torch.equal(data["obs"][t], obs)
        obs, reward, *_ = other.step(policy(obs))
        assert torch.equal(data["reward"][t], reward)
    assert torch.equal(data["next_obs"], obs)


@pytest.mark.cpu
def test_a_rollout_of_pictures_is_a_graph_of_a_gpu():
    with pretended_gpu() as seen:
        test_a_rollout_is_what_its_steps_would_be()
        assert seen.count("replay") == 1


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_an_action_is_repeated_until_the_episode_ends(mode, drawn):
    """As a user would do it with a task's own steps, and hold the worlds that have ended."""
    options = OPTIONS | {"action_repeat": 3, "state": True}
    env = TorchVectorEnv("Hopper", N, max_episode_steps=10, pixels=options, autoreset_mode=mode)
    one = TorchVectorEnv("Hopper", N, max_episode_steps=10, autoreset_mode=AutoresetMode.DISABLED)
    obs, _ = env.reset(seed=1)
    assert torch.equal(obs["state"], one.reset(seed=1)[0])
    env.elapsed_steps[1], one.elapsed_steps[1] = 5, 5  # that world ends before the others
    env.action_space.seed(0)
    ended, steps = torch.zeros(N, dtype=torch.bool), set()
    for _ in range(9):
        if mode is AutoresetMode.DISABLED and ended.any():
            obs, _ = env.reset(options={"reset_mask": ended})
        if ended.any():
            one.reset(options={"reset_mask": ended})
        begun = ended if mode is AutoresetMode.NEXT_STEP else torch.zeros_like(ended)  # what this step does there
        action, still, before = env.action_space.sample(), begun.clone(), newest(obs["pixels"])
        total, flags = torch.zeros(N), torch.zeros(2, N, dtype=torch.bool)
        for _ in range(3):
            held = one.state_dict()
            one.engine.done[:] = False
            _, reward, *ends, _ = one.step(action)
            for name, x in one.engine._views.items():
                x[still] = held[name][still]
            total += torch.where(still, 0.0, reward)
            flags = torch.where(still, flags, torch.stack(ends))
            steps.add(int(still.sum()))
            still = still | flags.any(0)
        obs, reward, terminated, truncated, info = env.step(action)
        shown = info["final_obs"] if mode is AutoresetMode.SAME_STEP else obs
        assert torch.equal(shown["state"], one.obs) and torch.equal(newest(shown["pixels"]), drawn(one.qpos))
        assert torch.equal(newest(shown["pixels"], 1)[~begun], before[~begun])
        torch.testing.assert_close(reward, total)
        assert torch.equal(torch.stack([terminated, truncated]), flags)
        ended = terminated | truncated
    assert {0, 1, N - 1} <= steps


PICTURED = {
    "reacher-hard": lambda m, target: m.geom("target").pos.__setitem__([0, 1], target),
    "finger-turn_hard": lambda m, target: m.site("target").pos.__setitem__(
        [0, 2], (m.body("spinner").pos + m.joint("hinge").pos)[[0, 2]] + target
    ),
    "swimmer-swimmer6": lambda m, target: (
        m.geom("target").pos.__setitem__([0, 1], target), m.light("target_light").pos.__setitem__([0, 1], target)
    ),
    "stacker-stack_2": lambda m, target: m.body("target").pos.__setitem__([0, 2], target),
    "manipulator-bring_ball": lambda m, target: (
        m.body("target_ball").pos.__setitem__([0, 2], target[:2]),
        m.body("target_ball").quat.__setitem__([0, 2], target[2:]),
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "name", [pytest.param(x, marks=[] if x == "reacher-hard" else pytest.mark.slow) for x in PICTURED]
)
def test_each_world_shows_the_target_that_its_task_remembers(name):
    """As a model does in which the target is there from the start."""
    pytest.importorskip("dm_control")
    env = TorchVectorEnv(name, 2, dtype="float64", pixels={"width": 40, "height": 40})
    obs, _ = env.reset(seed=3)
    assert not torch.equal(obs[0], obs[1])
    model = env.engine.task.load()
    PICTURED[name](model, env.engine.memory["target"][1].cpu().numpy())
    simulation = Simulation(model, 1, dtype="float64")
    simulation.qpos.copy_(env.qpos[1:])
    want = simulation.render(0, 40, 40, outputs="rgb")["rgb"][0]
    assert (obs[1].int() - want.int()).abs().max() <= 1


VIEWS = {"near": {}, "far": {"camera": -1, "width": 32}, "depth": {"outputs": "depth", "stack": 1}}


@pytest.mark.parametrize("mode", ["SameStep", "NextStep"])
@pytest.mark.parametrize("state", [False, True])
def test_several_views_are_each_as_if_it_were_the_only_one(mode, state):
    env = made_with(OPTIONS | {"views": VIEWS, "state": state}, mode)
    alone = {name: made_with(OPTIONS | {**own, "state": state}, mode) for name, own in VIEWS.items()}
    space = env.single_observation_space
    assert list(space["pixels"] if state else space) == list(VIEWS)

    def check(several, single, ended=slice(None)):
        for name in VIEWS:
            one, other = several["pixels"][name] if state else several[name], single[name]
            assert torch.equal(one[ended], (other["pixels"] if state else other)[ended])
            if state:
                assert torch.equal(several["state"][ended], other["state"][ended])

    first = env.reset(seed=1)[0]
    check(first, {name: one.reset(seed=1)[0] for name, one in alone.items()})
    check(env.obs, {name: one.obs for name, one in alone.items()})
    env.action_space.seed(0)
    for _ in range(6):
        action = env.action_space.sample()
        found, others = env.step(action), {name: one.step(action) for name, one in alone.items()}
        check(found[0], {name: x[0] for name, x in others.items()})
        if mode == "SameStep":
            ended = found[4]["_final_obs"]
            check(found[4]["final_obs"], {name: x[4]["final_obs"] for name, x in others.items()}, ended)
    assert env.observation_space.contains({k: to_numpy(x) for k, x in found[0].items()})


def made_with(options, mode):
    return TorchVectorEnv("Hopper", N, max_episode_steps=4, pixels=options, autoreset_mode=mode)


def to_numpy(x):
    return {k: y.cpu().numpy() for k, y in x.items()} if isinstance(x, dict) else x.cpu().numpy()


def test_views_are_copied_saved_and_captured():
    options = OPTIONS | {"views": {"near": {}, "far": {"camera": -1}}}
    env = made_with(options, "SameStep")
    env.reset(seed=1)
    action = torch.full((N, 3), 0.5)
    env.step(action)
    other, state = copy.deepcopy(env), env.state_dict()
    assert {"pixels.near", "pixels.far"} <= state.keys()
    want = env.step(action)[0]
    env.reset(seed=2)
    env.load_state_dict(state)
    for found in (other.step(action)[0], env.step(action)[0]):
        assert all(torch.equal(found[name], want[name]) for name in ("near", "far"))
    env.load_state_dict(state)
    data = env.capture(lambda obs: action + 0 * obs["far"].float().mean(), 2)()
    assert data["obs"]["far"].shape == (2, N, 20, 24, 3 * STACK) and torch.equal(data["obs"]["near"][1], want["near"])


def test_torchrl_nests_views_and_a_list_names_cameras():
    env = TorchRLEnv("Hopper", N, pixels={"width": 24, "height": 20, "views": ["track"], "state": True})
    check_env_specs(env)
    td = env.reset()
    assert td["pixels", "track"].shape == (N, 20, 24, 3) and "observation" in td


def test_views_are_kept_apart_from_observations_of_the_same_name():
    """In a dict of their own, in both interfaces: neither hides the other. (A task's "pixels" are refused.)"""
    options = {"width": 24, "height": 20, "views": {"position": {"camera": 0}}, "state": True}
    env = TorchVectorEnv("cartpole-balance", N, pixels=options)
    obs = env.reset(seed=0)[0]
    assert obs["state"]["position"].shape == (N, 3) and obs["pixels"]["position"].shape == (N, 20, 24, 3)
    td = TorchRLEnv("cartpole-balance", N, pixels=options).reset()
    assert td["position"].shape == (N, 3) and td["pixels", "position"].shape == (N, 20, 24, 3)


@pytest.mark.parametrize("views, error, said", [
    ([], TypeError, "views must be a dict of options by name"),
    ("track", TypeError, "views must be a dict of options by name"),
    ([["track"]], TypeError, "views must be a dict of options by name"),
    (["track", "track"], ValueError, "a camera twice"),
    (["behind"], ValueError, "no camera 'behind'"),
    ({"a": {"state": True}}, TypeError, r"the view 'a' must be a dict with some of .*, and has \['state'\]"),
    ({"a": "track"}, TypeError, r"and has \['track'\]"),
    ({"a": {"width": 0}}, ValueError, "width"),
])  # fmt: skip
def test_views_that_cannot_be_right_are_refused(views, error, said):
    with pytest.raises(error, match=said):
        TorchVectorEnv("Hopper", N, pixels={"views": views})


def test_what_cannot_be_right_is_refused():
    with pytest.raises(TypeError, match=r"pixels has no \['size'\]"):
        TorchVectorEnv("Hopper", N, pixels={"size": 84})
    with pytest.raises(ValueError, match="outputs must be one of"):
        TorchVectorEnv("Hopper", N, pixels={"outputs": "rgbd"})
    with pytest.raises(ValueError, match="stack"):
        TorchVectorEnv("Hopper", N, pixels={"stack": 0})
    with pytest.raises(ValueError, match="no camera 'behind'"):
        TorchVectorEnv("Hopper", N, pixels={"camera": "behind"})
    with pytest.raises(TypeError, match=r"not \['track', 'front'\]: .* by pixels=dict\(views=\[\.\.\.\]\)"):
        TorchVectorEnv("Hopper", N, pixels={"camera": ["track", "front"]})
    env = TorchVectorEnv("Hopper", N, pixels=OPTIONS | {"state": True})
    with pytest.raises(ValueError, match="pixels alone"):
        env.capture(lambda obs: torch.zeros(N, 3), 2)


@pytest.mark.cpu  # on a GPU torch's own allocator refuses
def test_what_does_not_fit_is_refused():
    with pytest.raises(MemoryError, match="num_envs=4 takes"):
        TorchVectorEnv("Hopper", N, pixels={"width": 100_000, "height": 100_000})

"""What users of Gymnasium expect: ids, checkers, spaces, wrappers, buffers, and a task of their own."""

from __future__ import annotations

import io
import shutil
import warnings
from dataclasses import dataclass
from typing import Any

import gymnasium
import mujoco
import numpy as np
import processes
import pytest
import torch
from gymnasium.envs.mujoco import mujoco_env
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import batch_space
from gymnasium.wrappers import vector as wrappers
from launches import Launches
from tasks import error, real_env

import torch_mjenvs
from torch_mjenvs import HalfCheetah, Hopper, Scale, Shift, Simulation, TorchEnv, TorchVectorEnv
from torch_mjenvs.physics import UnsupportedModel, load
from torch_mjenvs.wrappers import NormalizeObservation, NormalizeReward, RecordEpisodeStatistics, RescaleAction

TASKS = ["HalfCheetah", "Walker2d", "Hopper"]
MODES = list(AutoresetMode)


# -- Ids ---------------------------------------------------------------------------------------------------------------


@pytest.mark.cpu  # where one world for NumPy is, unless asked otherwise
@pytest.mark.parametrize("name", TASKS)
def test_make_gives_what_gymnasium_s_own_is_like(name):
    env, real = gymnasium.make(f"Torch{name}-v0"), gymnasium.make(f"{name}-v5")
    assert env.spec.max_episode_steps == real.spec.max_episode_steps == 1000
    assert env.observation_space == real.observation_space and env.action_space == real.action_space
    assert env.unwrapped.dt == real.unwrapped.dt
    assert env.unwrapped.metadata == real.unwrapped.metadata
    results = [env.reset(seed=1), env.step(env.action_space.sample())]
    expected = [real.reset(seed=1), real.step(real.action_space.sample())]
    for ours, theirs in zip(results, expected, strict=True):
        assert ours[0].dtype == theirs[0].dtype and ours[0].shape == theirs[0].shape
        assert set(ours[-1]) - {"bad_state"} == set(theirs[-1])
        assert all(type(x) is float for k, x in ours[-1].items() if k != "bad_state")
    assert [type(x) for x in results[1][1:4]] == [float, bool, bool]


@pytest.mark.cpu  # where one world for NumPy is, unless asked otherwise
@pytest.mark.parametrize("name", TASKS)
def test_check_env(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*observation space m.*imum value is")  # v5's bounds, on purpose
        check_env(gymnasium.make(f"Torch{name}-v0").unwrapped, skip_render_check=True)


@pytest.mark.parametrize("name", TASKS)
def test_single_is_the_vector_env(name):
    """A lone world's every observation, reward and entry of info, in NumPy."""
    single = gymnasium.make(f"Torch{name}-v0", frame_skip=2)
    vector = TorchVectorEnv(name, dtype=torch.float64, frame_skip=2)
    (obs, info), (expected, expected_info) = single.reset(seed=6), vector.reset(seed=6)
    for action in np.random.default_rng(0).uniform(-1, 1, (20, *single.action_space.shape)):
        np.testing.assert_array_equal(obs, expected[0].cpu())
        assert info == {k: x.item() for k, x in expected_info.items() if not k.startswith("_")}
        obs, reward, terminated, truncated, info = single.step(action)
        expected, *others, expected_info = vector.step(action[None])
        assert [reward, terminated, truncated] == [x.item() for x in others]
        np.testing.assert_array_equal(single.unwrapped.qpos, vector.qpos[0].cpu())
        np.testing.assert_array_equal(single.unwrapped.qvel, vector.qvel[0].cpu())
        if terminated:
            break


@pytest.mark.cpu  # where one world for NumPy is, unless asked otherwise
def test_single_set_state():
    env = TorchEnv("Hopper")
    env.reset(seed=0)
    qpos, qvel = np.arange(6) * 0.1 + 1, np.arange(6) * 1.0
    env.set_state(qpos, qvel)
    np.testing.assert_array_equal(env.qpos, qpos)
    np.testing.assert_array_equal(env.qvel, qvel)
    with pytest.raises(ValueError, match="qvel must be of shape"):
        env.set_state(qpos + 1, qvel[:5])
    np.testing.assert_array_equal(env.qpos, qpos)


@pytest.mark.cpu  # where one world for NumPy is, unless asked otherwise
@pytest.mark.parametrize("name", ["Hopper", "Humanoid"])
def test_code_for_gymnasiums_mujoco_env_reads_the_same(name):
    """mjData of the present state, which a reference to it follows, and what MujocoEnv has beside."""
    env, real = gymnasium.make(f"Torch{name}-v0").unwrapped, real_env(name)
    env.reset(seed=0)
    data = env.data
    env.step(env.action_space.high)
    real.set_state(env.qpos, env.qvel)
    real.data.ctrl[:] = env.action_space.high
    mujoco.mj_forward(real.model, real.data)
    mujoco.mj_rnePostConstraint(real.model, real.data)
    for field in ("qpos", "qvel", "ctrl", "xpos", "cinert", "cvel", "qfrc_actuator", "cfrc_ext"):
        np.testing.assert_allclose(getattr(data, field), getattr(real.data, field), atol=1e-8)
    assert data.time == env.dt == real.dt and env.frame_skip == real.frame_skip
    np.testing.assert_array_equal(env.init_qpos, real.init_qpos)
    np.testing.assert_array_equal(env.init_qvel, real.init_qvel)
    np.testing.assert_array_equal(env.state_vector(), real.state_vector())
    np.testing.assert_array_equal(env.get_body_com("torso"), real.get_body_com("torso"))
    for height in (1.25, 0.1):
        qpos = env.init_qpos.copy()
        qpos[1 if name == "Hopper" else 2] = height
        env.set_state(qpos, env.init_qvel)
        real.set_state(qpos, env.init_qvel)
        assert env.is_healthy is bool(real.is_healthy) is (height > 1)
        assert data.qpos.tolist() == qpos.tolist()
    assert not hasattr(TorchEnv("HalfCheetah"), "is_healthy")
    assert env.mujoco_renderer.data.qpos.tolist() == qpos.tolist()


@pytest.mark.cpu  # where one world for NumPy is, unless asked otherwise
def test_writing_into_data_is_refused():
    env = TorchEnv("Hopper")
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"\(qpos\): call env.set_state"):
        env.data.qpos[1] = 2.0
    with pytest.raises(ValueError, match="set_state"):
        env.data.qpos += 1.0
    with pytest.raises(ValueError, match="set_state"):
        env.data.joint("rootz").qpos = 2.0
    with pytest.raises(ValueError, match=r"\(xpos\): call env.set_state"):
        env.data.body("torso").xpos[2] = 2.0
    mujoco.mj_step(env.model, env.data)
    with pytest.raises(ValueError, match="set_state"):
        env.step(np.zeros(3))
    env.step(np.zeros(3))


def test_make_vec():
    env = gymnasium.make_vec(
        "TorchHopper-v0", num_envs=3, dtype=torch.float64, autoreset_mode="SameStep", healthy_reward=5.0
    )
    assert isinstance(env, TorchVectorEnv) and env.num_envs == 3
    assert env.reset(seed=0)[0].shape == (3, 11)
    assert env.spec.id == "TorchHopper-v0" and env.engine.task.healthy_reward == 5.0
    assert env.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP and env.metadata["render_fps"] == 125
    assert TorchVectorEnv.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert "render_fps" not in TorchVectorEnv.metadata
    sync = gymnasium.make_vec("TorchHopper-v0", num_envs=2, vectorization_mode="sync")
    assert isinstance(sync, SyncVectorEnv)
    sync.reset(seed=0)
    assert sync.step(sync.action_space.sample())[0].shape == (2, 11)


def test_max_episode_steps_of_make_vec():
    env = gymnasium.make_vec("TorchHalfCheetah-v0", num_envs=2, max_episode_steps=3)
    env.reset(seed=0)
    assert [env.step(torch.zeros(2, 6))[3].all().item() for _ in range(5)] == [False, False, True, False, False]


@pytest.mark.parametrize(("given", "told"), [(7, 7), (-1, None), (None, None)])
def test_specs_tell_the_limit_and_can_be_written_and_made_from(given, told):
    env = gymnasium.make_vec(
        "TorchHopper-v0", np.int64(2), max_episode_steps=given, dtype=torch.float64, autoreset_mode=MODES[1]
    )
    spec = gymnasium.envs.registration.EnvSpec.from_json(env.spec.to_json())
    assert env.spec.max_episode_steps == spec.max_episode_steps == (1000 if given is None else told)
    again = gymnasium.make_vec(spec)
    assert (again.num_envs, again.dtype, again.autoreset_mode) == (2, torch.float64, MODES[1])
    assert again.engine.max_episode_steps == env.engine.max_episode_steps


def test_specs_with_draws_can_be_written_and_made_from():
    draws = {"body_mass": Scale(0.5, 2.0, together=True), "gravity": Shift((0, 0, -1), (0, 0, 1))}
    draws["dof_damping"] = (1, 2)
    env = gymnasium.make_vec("TorchHopper-v0", num_envs=2, randomize=draws)
    again = gymnasium.make_vec(gymnasium.envs.registration.EnvSpec.from_json(env.spec.to_json()))
    expected = draws | {"dof_damping": Scale(1, 2)}
    for made in (env, again, gymnasium.make_vec(env.spec)):
        assert made.unwrapped.engine._episode.randomize == expected
    assert torch.equal(env.reset(seed=0)[0], again.reset(seed=0)[0])


def test_arguments_of_many_worlds_are_told_apart_from_a_task_s():
    with pytest.raises(TypeError, match=r"\['num_envs', 'pixels'\] are arguments of gymnasium.make_vec"):
        gymnasium.make("TorchHopper-v0", num_envs=2, pixels={})


def test_specs_of_one_world_can_be_written_and_made_from():
    env = gymnasium.make("TorchHopper-v0", dtype=torch.float32, max_episode_steps=5)
    again = gymnasium.make(gymnasium.envs.registration.EnvSpec.from_json(env.spec.to_json()))
    assert again.unwrapped.dtype is torch.float32 and again.spec.max_episode_steps == 5


def test_id_names_its_module():
    """`make_vec("torch_mjenvs:...")` imports what it needs; and the import leaves alone what is slow and not needed."""
    code = (
        "import gymnasium, sys, warnings; warnings.simplefilter('error', UserWarning); "
        "env = gymnasium.make_vec('torch_mjenvs:TorchHopper-v0', num_envs=2, device='cpu'); env.reset(); "
        "assert not {'matplotlib', 'scipy', 'torch._dynamo'} & set(sys.modules)"
    )
    processes.run(code, seconds=120, anew=True)


def test_public_names():
    assert all(hasattr(torch_mjenvs, name) for name in torch_mjenvs.__all__)


# -- Spaces and metadata -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "expected"), [(torch.float32, np.float32), (torch.float64, np.float64)])
def test_spaces_hold_what_is_observed_and_done(dtype, expected):
    env = TorchVectorEnv("Hopper", 5, dtype=dtype)
    assert env.single_observation_space == gymnasium.spaces.Box(-np.inf, np.inf, (11,), expected)
    assert env.single_action_space == gymnasium.spaces.Box(-1, 1, (3,), np.float32)
    assert env.observation_space == batch_space(env.single_observation_space, 5)
    assert env.action_space == batch_space(env.single_action_space, 5)
    obs, _ = env.reset(seed=0)
    assert obs.cpu().numpy() in env.observation_space
    env.action_space.seed(0)
    obs, reward, terminated, truncated, _ = env.step(env.action_space.sample())
    assert obs.cpu().numpy() in env.observation_space
    assert obs.dtype == reward.dtype == dtype and terminated.dtype == truncated.dtype == torch.bool
    assert reward.shape == terminated.shape == truncated.shape == (5,)


def test_spaces_wait_until_asked_for():
    env = TorchVectorEnv("Hopper", 64)
    env.reset()
    env.step(torch.zeros(64, 3))
    assert not {"observation_space", "action_space"} & set(vars(env))
    assert env.action_space is env.action_space


def test_mode_by_name_or_enum():
    for mode in MODES:
        for given in (mode, mode.value):
            assert TorchVectorEnv("Hopper", 1, autoreset_mode=given).metadata["autoreset_mode"] is mode


def test_np_random_is_seeded():
    env = TorchVectorEnv("Hopper", 2)
    env.reset(seed=3)
    assert env.np_random_seed == 3


# -- Actions -----------------------------------------------------------------------------------------------------------


def test_actions_of_every_kind():
    """Float tensors of any precision, whole numbers, arrays, lists, views, and tensors that want a gradient."""
    values = torch.tensor([[0.5, -1.0, 0.25], [0.0, 2.0, -0.75]])
    stride = torch.empty(3, 4)
    stride[:, ::2] = values.T
    read_only = values.cpu().numpy().copy()
    read_only.flags.writeable = False
    kinds: list[Any] = [
        values,
        values.double(),
        values.half(),
        values.cpu().numpy(),
        values.double().cpu().numpy(),
        read_only,
    ]
    kinds += [values.tolist(), tuple(values.tolist()), stride[:, ::2].T, values.cpu().numpy()[::-1][::-1]]
    kinds += [values.clone().requires_grad_(), values.cpu().numpy().astype(">f4")]
    outputs = []
    env = TorchVectorEnv("Hopper", 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kind in kinds:
            env.reset(seed=0)
            obs, *_ = env.step(kind)
            assert not obs.requires_grad and not env.engine.action.requires_grad
            outputs.append(obs)
        env.reset(seed=0)
        whole = env.step(np.array([[1, 0, -1]] * 2))[0]
        env.reset(seed=0)
        assert whole.equal(env.step(torch.tensor([[1, 0, -1]] * 2))[0])
    assert all(obs.equal(outputs[0]) for obs in outputs)


def test_actions_are_left_alone():
    env = TorchVectorEnv("Hopper", 2)
    env.reset()
    actions = torch.full((2, 3), 7.0)
    env.step(actions)
    assert (actions == 7).all()


def test_a_state_with_gradients_is_loaded_without_them():
    """Else what later steps give would seem to depend on it by the operations that led to it."""
    env = TorchVectorEnv("Hopper", 2, autoreset_mode="SameStep")
    env.reset(seed=0)
    after = env.engine.transition(env.state_dict(), torch.zeros(2, 3, requires_grad=True))
    assert after["qpos"].requires_grad
    env.load_state_dict(after)
    assert torch.equal(env.qpos, after["qpos"])
    obs, reward, *_ = env.step(torch.zeros(2, 3))
    assert not (obs.requires_grad or reward.requires_grad)
    assert not any(x.requires_grad for x in env.state_dict().values())


def test_worlds_of_a_state_may_be_chosen_and_repeated():
    """For branches from one state, and to go on with some of the worlds in a smaller environment."""
    env, few = (TorchVectorEnv("Hopper", n, autoreset_mode="SameStep", max_episode_steps=9) for n in (6, 4))
    env.reset(seed=0)
    actions = torch.rand(30, 6, 3, device=env.device) * 2 - 1
    for action in actions[:5]:
        env.step(action)
    chosen = torch.tensor([5, 2, 2, 0], device=env.device)
    few.load_state_dict({name: x[chosen] for name, x in env.state_dict().items()})
    for action in actions[5:]:
        obs, expected = few.step(action[chosen])[0], env.step(action)[0]
        assert torch.equal(obs, expected[chosen])
    never = TorchVectorEnv("Hopper", 6, autoreset_mode="SameStep", max_episode_steps=9)
    few.load_state_dict({name: x[chosen] for name, x in never.state_dict().items()})
    with pytest.raises(ResetNeeded):
        few.step(actions[0, :4])


def test_a_state_in_which_worlds_wait_for_a_reset_is_of_no_use_where_none_do():
    env, same = TorchVectorEnv("Hopper", 2), TorchVectorEnv("Hopper", 2, autoreset_mode="SameStep")
    env.reset(seed=0)
    same.reset(seed=1)
    same.load_state_dict(env.state_dict())
    env.step([[0.0] * 3, [float("nan")] * 3])
    before = same.state_dict()
    with pytest.raises(ValueError, match="world 1 has ended and waits for its reset"):
        same.load_state_dict(env.state_dict())
    assert all(x.equal(before[name]) for name, x in same.state_dict().items())


def wrapped(**kwargs: Any) -> Any:
    env = TorchVectorEnv("Hopper", 2, **kwargs)
    return NormalizeReward(NormalizeObservation(RecordEpisodeStatistics(RescaleAction(env, -1.0, 1.0))))


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
@pytest.mark.parametrize("make", [TorchVectorEnv, wrapped])
def test_inference_mode(make, mode, copy):
    """Made and used inside or outside of it."""
    arguments = {"autoreset_mode": mode, "copy": copy} | ({} if make is wrapped else {"task": "Hopper", "num_envs": 2})
    with torch.inference_mode():
        env = make(**arguments)
        env.reset()
        state = env.state_dict()
    env.step(torch.zeros(2, 3))
    env.load_state_dict(state)
    with torch.inference_mode():
        env.step(torch.zeros(2, 3))
        env.reset(seed=1)
        env.load_state_dict(env.state_dict())
        env.unwrapped.set_state(env.unwrapped.qpos.clone(), env.unwrapped.qvel.clone())
    obs, *_ = env.step(torch.zeros(2, 3))
    torch.nn.Linear(11, 1)(obs).sum().backward()


def test_inference_mode_in_rollouts_simulations_and_single_worlds():
    policy = torch.nn.Linear(11, 3)
    with torch.inference_mode():
        env = TorchVectorEnv("Hopper", 2)
        rollout, single = env.capture(policy, 2), TorchEnv("Hopper")
        sim = Simulation(Hopper().load(), 2, outputs=("xpos",))
        for made in (env, single, sim):
            made.reset()
        rollout()
    data = rollout()
    with torch.inference_mode():
        rollout()
    policy(data["obs"]).sum().backward()
    single.reset()
    single.step(np.zeros(3))
    sim.ctrl.fill_(0.1)
    sim.step(2)
    sim.forward()
    sim.reset(torch.ones(2, dtype=torch.bool))
    assert not any(x.is_inference() for x in (*data.values(), sim.qpos, sim.xpos, env.engine.obs))


# -- Copies and buffers ------------------------------------------------------------------------------------------------


def tensors(result: Any) -> list[torch.Tensor]:
    if isinstance(result, torch.Tensor):
        return [result]
    parts = result.values() if isinstance(result, dict) else result
    return [x for part in parts for x in tensors(part)]


def storages(result: Any) -> set[int]:
    return {x.untyped_storage().data_ptr() for x in tensors(result)}


@pytest.mark.parametrize("mode", MODES)
def test_copies_are_the_users(mode):
    """What was given out does not change later, and changing it does nothing to the environment."""
    env, twin = (TorchVectorEnv("Hopper", 3, autoreset_mode=mode, max_episode_steps=4) for _ in range(2))
    engine = {x.untyped_storage().data_ptr() for x in env.engine.buffers.values()}
    kept = [env.reset(seed=0)]
    twin.reset(seed=0)
    for t in range(4):
        kept.append(env.step(torch.full((3, 3), 0.1 * t)))
        if t < 3:
            twin.step(torch.full((3, 3), 0.1 * t))
    before = [[x.clone() for x in tensors(result)] for result in kept]
    for result in kept:
        assert not storages(result) & engine
    assert not storages(kept[1]) & storages(kept[2])
    env.reset()
    env.step(torch.ones(3, 3))
    for result, old in zip(kept, before, strict=True):
        assert all(map(torch.equal, tensors(result), old))
    for result in kept:
        for x in tensors(result):
            x.fill_(1)
    env.reset(seed=0)
    twin.reset(seed=0)
    for t in range(3):
        ours, theirs = env.step(torch.full((3, 3), 0.1 * t)), twin.step(torch.full((3, 3), 0.1 * t))
        assert all(map(torch.equal, tensors(ours), tensors(theirs)))


@pytest.mark.parametrize(("mode", "most"), [("NextStep", 5), ("SameStep", 6), ("Disabled", 3)])
def test_a_step_with_copies_is_few_launches(mode, most):
    """Beside the kernel's own: the action, what masks take, and a copy each of obs, final_obs, and all the rest."""
    env = TorchVectorEnv("HalfCheetah", 3, autoreset_mode=mode)
    env.reset(seed=0)
    env._watched = False  # on the CPU it looks whether a world has ended
    actions = torch.zeros(3, 6)
    with Launches() as seen:
        env.step(actions)
    assert len(seen.names) <= most, seen.names


def test_who_keeps_rewards_does_not_keep_observations():
    """What comes in one allocation is a few numbers a world."""
    env = TorchVectorEnv("Humanoid", 16, autoreset_mode="SameStep")
    env.reset(seed=0)
    obs, reward, terminated, _, info = env.step(torch.zeros(16, 17))
    sizes = [x.untyped_storage().nbytes() for x in (reward, terminated)]
    assert sum(sizes) < 0.1 * obs.untyped_storage().nbytes()
    assert info["final_obs"].untyped_storage().nbytes() == obs.untyped_storage().nbytes()


@pytest.mark.parametrize("given_out", [True, False])
def test_what_a_step_gives_can_be_saved(given_out):
    """torch.save refuses tensors of one memory and different types, as numbers and flags of a step once were."""
    env = TorchVectorEnv("Hopper", 5, autoreset_mode="SameStep", max_episode_steps=2, copy=given_out)
    env.reset(seed=0)
    steps = [env.step(torch.zeros(5, 3)) for _ in range(3)]
    file = io.BytesIO()
    torch.save(steps, file)
    file.seek(0)
    for ours, saved in zip(steps, torch.load(file), strict=True):
        assert all(map(torch.equal, tensors(ours), tensors(saved)))


@pytest.mark.parametrize("mode", MODES)
def test_without_copies(mode):
    """The engine's own buffers come out, with the same values as copies have; the dict itself is the user's."""
    shared = {"num_envs": 3, "autoreset_mode": mode, "max_episode_steps": 6}
    env, twin = TorchVectorEnv("Hopper", copy=False, **shared), TorchVectorEnv("Hopper", **shared)
    obs, _ = env.reset(seed=0)
    twin.reset(seed=0)
    assert obs is env.engine.obs
    for t in range(20):
        if mode == AutoresetMode.DISABLED and t and t % 6 == 0:
            for e in (env, twin):
                e.reset()
        actions = torch.full((3, 3), 0.1)
        ours, theirs = env.step(actions), twin.step(actions)
        assert ours[0] is env.engine.obs and ours[1] is env.engine.reward
        assert all(map(torch.equal, tensors(ours), tensors(theirs)))
        ours[4]["mine"] = torch.zeros(1)
        assert set(theirs[4]) | {"mine"} == set(ours[4])


def test_buffers_keep_their_addresses():
    env = TorchVectorEnv("Walker2d", 5, max_episode_steps=3)
    buffers = dict(env.engine.buffers)
    names = [k for k, x in vars(type(env.engine)).items() if isinstance(x, property)]
    tensors = {k: getattr(env.engine, k, None) for k in names}  # a model without activations has no act
    views = {k: (x, x.data_ptr()) for k, x in tensors.items() if isinstance(x, torch.Tensor) and "values" not in k}
    assert {"qpos", "qvel", "obs", "reward", "action"} <= set(views)
    for seed in (0, None, 3):
        env.reset(seed=seed)
        for _ in range(5):
            env.step(torch.zeros(5, 6))
        env.set_state(env.qpos.clone(), env.qvel.clone())
    assert all(env.engine.buffers[k] is x for k, x in buffers.items())
    for name, (x, address) in views.items():
        assert getattr(env.engine, name) is x and x.data_ptr() == address
    assert env.qpos is env.engine.qpos and env.elapsed_steps is env.engine.elapsed_steps


def test_set_state():
    """From arrays and tensors, in the chosen worlds only; a step from there is a step from there."""
    env, twin = (TorchVectorEnv("Hopper", 4, dtype=torch.float64) for _ in range(2))
    env.reset(seed=0), twin.reset(seed=0)
    qpos, qvel = env.qpos.clone(), env.qvel.clone()
    for _ in range(10):
        env.step(torch.ones(4, 3))
    moved = env.qpos.clone()
    mask = torch.tensor([True, False, True, False])
    env.set_state(qpos.cpu().numpy(), qvel.float() * 0 + 1, mask)
    assert env.qpos[mask].equal(qpos[mask]) and env.qpos[~mask].equal(moved[~mask])
    assert (env.qvel[mask] == 1).all()
    env.set_state(qpos, qvel)
    assert env.step(torch.ones(4, 3))[0].equal(twin.step(torch.ones(4, 3))[0])  # no warm start is left over


# -- Tasks of one's own ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Lander(Hopper):
    """Hopper, asked to stay where it is."""

    target: float = 1.0

    def outcome(self, m, before, action, after):
        outcome = super().outcome(m, before, action, after)
        off = after.qpos[1] - self.target
        return torch_mjenvs.Outcome(-off * off, outcome.terminated, {"off": off})


def test_own_task():
    for made in (
        TorchVectorEnv(Lander(target=1.5), 2),
        TorchVectorEnv(Lander, 2, target=1.5),
        TorchVectorEnv(Lander(healthy_reward=3.0), 2, target=1.5),
        gymnasium.make_vec("TorchHopper-v0", num_envs=2, task=Lander(target=1.5)),
    ):
        _, info = made.reset(seed=0)
        assert set(info) == {"x_position", "_x_position", "z_distance_from_origin", "_z_distance_from_origin"}
        _, reward, _, _, info = made.step(torch.zeros(2, 3))
        off = made.qpos[:, 1] - 1.5
        torch.testing.assert_close(info["off"], off)
        torch.testing.assert_close(reward, -off * off)
        assert info["_off"].all()
        assert "x_position" in info and not info["_x_position"].any()  # which a reset alone gives


def test_entries_that_only_a_reset_gives():
    env = TorchVectorEnv(Lander(), 2, max_episode_steps=1)
    env.reset(seed=0)
    env.step(torch.zeros(2, 3))
    _, _, _, _, info = env.step(torch.zeros(2, 3))
    assert info["_x_position"].all() and info["x_position"].any()
    assert not info["_off"].any() and not info["off"].any()


# -- Wrappers ----------------------------------------------------------------------------------------------------------


@pytest.mark.cpu  # two of them call NumPy, which takes none of a GPU
def test_wrappers_that_take_tensors():
    env = gymnasium.make_vec("TorchHopper-v0", num_envs=3)
    env = wrappers.TransformObservation(env, lambda x: 2 * x)
    env = wrappers.ClipReward(wrappers.ClipAction(env), 0.0, 0.5)
    plain = TorchVectorEnv("Hopper", 3)
    assert env.reset(seed=0)[0].equal(2 * plain.reset(seed=0)[0])
    obs, reward, *_ = env.step(torch.full((3, 3), 5.0))
    expected, expected_reward, *_ = plain.step(torch.ones(3, 3))
    assert obs.equal(2 * expected) and torch.as_tensor(reward).equal(expected_reward.clip(0, 0.5))


@pytest.mark.cpu
@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_numpy_wrappers_over_array_conversion(mode):
    """Stock RecordEpisodeStatistics, whose returns are those that one adds up by hand."""
    pytest.importorskip("array_api_compat", reason="ArrayConversion needs array-api-compat")
    env = gymnasium.make_vec("TorchHopper-v0", num_envs=4, autoreset_mode=mode, max_episode_steps=9)
    env = wrappers.RecordEpisodeStatistics(wrappers.ArrayConversion(env, torch, np))
    env.reset(seed=0)
    total, episodes = np.zeros(4), 0
    for _ in range(30):
        obs, reward, terminated, truncated, info = env.step(np.full((4, 3), 0.3, np.float32))
        assert isinstance(obs, np.ndarray) and isinstance(reward, np.ndarray)
        total += reward
        ended = terminated | truncated
        if ended.any():
            np.testing.assert_array_equal(info["_episode"], ended)
            np.testing.assert_allclose(info["episode"]["r"][ended], total[ended], rtol=1e-5)
            assert (info["episode"]["l"][ended] == 9).all()
            total[ended] = 0
            episodes += ended.sum()
    assert episodes == 12


def test_call_and_attributes_are_a_world_each():
    env = TorchVectorEnv("Hopper", 3)
    obs, _ = env.reset(seed=0)
    assert env.get_attr("dt") == (0.008,) * 3
    assert torch.equal(torch.stack(env.get_attr("qpos")), env.qpos) and len(env.call("elapsed_steps")) == 3
    assert torch.equal(env.obs, obs)
    with pytest.warns(UserWarning, match="render"):
        assert env.call("render") == (None,) * 3
    assert torch.equal(env.call("step", torch.zeros(3, 3))[0], env.obs)
    with pytest.raises(AttributeError, match="no_such"):
        env.call("no_such")


def test_attributes_that_are_built_in_cannot_be_set():
    env = TorchVectorEnv("Hopper", 3)
    for name, values in (("copy", False), ("copy", [False] * 3), ("render_worlds", (1, 2))):
        env.set_attr(name, values)
    assert env.copy is False and env.render_worlds == (1, 2)
    for name in ("dt", "healthy_reward", "no_such"):
        with pytest.raises(AttributeError, match=f"'{name}' cannot be set"):
            env.set_attr(name, 1.0)
    with pytest.raises(ValueError, match="shared by all worlds"):
        env.set_attr("copy", [True, False, True])
    with pytest.raises(ValueError, match="a list of 3"):
        env.set_attr("copy", [True])
    with pytest.raises(TypeError, match="copy must be True or False, not 'no'"):
        env.set_attr("copy", "no")
    with pytest.raises(ValueError, match="render_worlds must be from 0 to 2"):
        env.set_attr("render_worlds", (1, 3))
    with pytest.raises(TypeError, match="render_worlds must be numbers of worlds"):
        env.render_worlds = "all"
    assert env.copy is False and env.render_worlds == (1, 2)


# -- All eleven tasks --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("compiled_as_users_have_it")
@pytest.mark.parametrize("name", torch_mjenvs.TASKS)
def test_ids_are_registered_as_gymnasium_s_own(name):
    """As the v5 task is, the length of its episodes with it."""
    spec, real = gymnasium.spec(f"Torch{name}-v0"), gymnasium.spec(f"{name}-v5")
    assert (spec.max_episode_steps, spec.reward_threshold) == (real.max_episode_steps, real.reward_threshold)
    env = gymnasium.make_vec(f"Torch{name}-v0", num_envs=3, max_episode_steps=-1)  # as in test_gymnasium_parity.py
    obs, _ = env.reset(seed=0)
    obs, reward, terminated, truncated, _ = env.step(torch.zeros(env.action_space.shape))
    assert obs.shape == (3, *real_env(name).observation_space.shape) and obs.isfinite().all()
    assert reward.shape == (3,) and not terminated.any() and not truncated.any()


def test_truncation_as_registered():
    env = gymnasium.make_vec("TorchReacher-v0", num_envs=2)
    env.reset(seed=0)
    ends = [env.step(torch.zeros(2, 2))[3].tolist() for _ in range(50)]
    assert ends == [[False, False]] * 49 + [[True, True]]


@pytest.mark.cpu  # where one world for NumPy is, unless asked otherwise
def test_single_is_gymnasiums_over_steps():
    env, real = gymnasium.make("TorchInvertedDoublePendulum-v0"), real_env("InvertedDoublePendulum")
    env.reset(seed=0)
    real.set_state(env.unwrapped.qpos, env.unwrapped.qvel)
    for _ in range(3):
        ours, theirs = env.step(np.array([0.3])), real.step(np.array([0.3]))
        assert error(ours[0], theirs[0]).max() < 1e-12 and error(ours[1], theirs[1]) < 1e-12
        assert ours[2:4] == theirs[2:4] and set(ours[4]) == set(theirs[4]) | {"bad_state"}


def test_a_model_with_what_is_not_there_is_refused(tmp_path):
    path = tmp_path / "servo.xml"
    servo = "<actuator><pid name='servo' joint='j' kp='1' ki='1'/></actuator>"
    body = "<body><joint name='j'/><geom size='1'/></body>"
    path.write_text(f"<mujoco><worldbody>{body}</worldbody>{servo}</mujoco>")
    with pytest.raises(UnsupportedModel, match="actuator 'servo'"):
        load(path)
    with pytest.raises(UnsupportedModel, match="actuator 'servo'"):
        TorchVectorEnv("Swimmer", 1, xml_file=str(path))


# -- What users see ----------------------------------------------------------------------------------------------------


def test_gymnasiums_own_half_cheetah_is_loaded_without_a_word_and_a_users_is_not(mujocos_own_log, capfd):
    """The model is MuJoCo's own to the last byte, and no log file is left in the working folder."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours = HalfCheetah().load()
        assert capfd.readouterr() == ("", "")
        assert not list(mujocos_own_log.iterdir())
    file = shutil.copy(mujoco_env.expand_model_path("half_cheetah.xml"), mujocos_own_log / "mine.xml")
    users = HalfCheetah(xml_file=str(file)).load()
    assert "settotalmass" in "".join(capfd.readouterr())
    np.testing.assert_array_equal(binary(ours), binary(users))


def binary(model: mujoco.MjModel) -> np.ndarray:
    """As MuJoCo writes it to a file."""
    out = np.zeros(mujoco.mj_sizeModel(model), np.uint8)
    mujoco.mj_saveModel(model, None, out)
    return out


def test_gradients_of_observations_that_a_step_has_overwritten_are_refused():
    """With copy=False: torch says so, in place of gradients of other numbers."""
    for copy in (True, False):
        env = TorchVectorEnv("InvertedPendulum", 2, copy=copy)
        obs, _ = env.reset(seed=0)
        loss = (obs * torch.ones(4, requires_grad=True, device=obs.device)).sum()
        env.step(torch.zeros(2, 1))
        if copy:
            loss.backward()
        else:
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                loss.backward()


@pytest.mark.cpu
def test_it_shows_what_it_is():
    vector, single = TorchVectorEnv(Hopper(), 2, device="cpu"), TorchEnv(Hopper())
    what = "num_envs=2, device=cpu, dtype=torch.float32"
    assert repr(vector) == f"TorchVectorEnv(Hopper, {what})" and repr(vector.engine) == f"Engine(Hopper, {what})"
    assert repr(single) == "TorchEnv(Hopper, device=cpu, dtype=torch.float64)"
    made = gymnasium.make_vec("TorchHopper-v0", num_envs=2, device="cpu")
    assert repr(made) == f"TorchVectorEnv(TorchHopper-v0, {what})"
    assert repr(RescaleAction(vector, -1.0, 1.0)) == f"<RescaleAction, {vector!r}>"

"""Environments whose worlds have models of their own, each world beside MuJoCo with a model edited in the same way."""

from __future__ import annotations

import copy
import operator
import pickle
from dataclasses import dataclass

import gymnasium
import mujoco
import numpy as np
import oracle
import pytest
import random_params
import torch
from gymnasium.vector import AutoresetMode
from test_task_memory import Cart, actions

from torch_mjenvs import Hopper, Humanoid, InvertedPendulum, Scale, Shift, TorchEnv, TorchVectorEnv, Uniform
from torch_mjenvs.envs.engine import episode_of
from torch_mjenvs.physics import load
from torch_mjenvs.scalar import Random

SEED = 3
MASSES = {"body_mass": (0.5, 2.0), "dof_damping": Uniform(0.0, 0.5)}


def make(task=InvertedPendulum, n: int = 4, **arguments) -> TorchVectorEnv:
    arguments = {"randomize": MASSES, "autoreset_mode": "SameStep", "dtype": torch.float64} | arguments
    return TorchVectorEnv(task, n, max_episode_steps=arguments.pop("limit", 6), **arguments)


def own_model(env: TorchVectorEnv, world: int) -> mujoco.MjModel:
    values = {name: x[world].cpu().numpy() for name, x in env.params.items()}
    return random_params.edited(oracle.sharpen(env.engine.task.load()), values)


def beside_mujoco(env: TorchVectorEnv, steps: int) -> None:
    """Every step of every world from where it is, against MuJoCo with its model."""
    low, high = env.single_action_space.low, env.single_action_space.high
    rng = np.random.default_rng(0)
    for _ in range(steps):
        models = [own_model(env, i) for i in range(env.num_envs)]
        action = rng.uniform(low, high, (env.num_envs, len(low)))
        qpos, qvel, warmstart = (x.cpu().numpy().copy() for x in (env.qpos, env.qvel, env.engine.qacc_warmstart))
        *_, terminated, truncated, info = env.step(torch.tensor(action, device=env.device))
        ended = (terminated | truncated).tolist()
        for i, m in enumerate(models):
            d = mujoco.MjData(m)
            d.qpos[:], d.qvel[:], d.ctrl[:], d.qacc_warmstart[:] = qpos[i], qvel[i], action[i], warmstart[i]
            mujoco.mj_step(m, d, env.engine.task.frame_skip)
            found = info["final_obs"][i] if ended[i] else torch.cat([env.qpos[i], env.qvel[i]])
            want = [*d.qpos, *d.qvel]
            if ended[i]:
                want = [*d.qpos[env.engine.layout.nq + len(d.qvel) - len(found) :], *np.clip(d.qvel, -10, 10)]
            np.testing.assert_allclose(found.cpu(), want, rtol=0, atol=1e-9)


def test_worlds_with_drawn_parameters_step_as_mujoco_with_theirs_over_several_episodes():
    drawn = {
        "body_mass": (0.7, 1.4),
        "body_inertia": Scale(0.8, 1.2, together=True),
        "dof_damping": (0.5, 2.0),
        "dof_armature": Shift(0.0, 0.5),
        "actuator_gear": (0.8, 1.2),
        "geom_friction": (0.5, 1.5),
        "gravity": Shift((-0.5, 0.0, -2.0), (0.5, 0.0, 2.0)),
    }
    env = make(Hopper(reset_noise_scale=0.05), 3, randomize=drawn, limit=9)
    env.reset(seed=SEED)
    first = {name: x.clone() for name, x in env.params.items()}
    beside_mujoco(env, 30)
    assert (env.engine.episode >= 3).all()
    for name, x in env.params.items():
        moving = first[name] != 0
        assert (x != first[name])[moving].float().mean() > 0.5, f"{name} is not drawn anew"
        assert (x[0] != x[1])[moving[0]].any(), f"{name} is the same in two worlds"


@pytest.mark.usefixtures("no_default_device")
def test_what_is_drawn_is_what_was_asked_for():
    drawn = {
        "body_mass": (0.5, 2.0),
        "gravity": Shift(-1.0, 1.0, together=True),
        "dof_damping": Uniform((0, 3), (1, 3)),
    }
    env = make(n=64, randomize=drawn)
    env.reset(seed=SEED)
    m = env.engine.task.load()
    for world in range(64):
        rng = Random(SEED, world, 0, 0, -2)
        together = -1.0 + 2.0 * rng.uniform()
        want = {
            "gravity": m.opt.gravity + together,
            "body_mass": m.body_mass * [0.5 + 1.5 * rng.uniform() for _ in m.body_mass],
            "dof_damping": [rng.uniform(), 3.0],
        }
        for name, x in want.items():
            np.testing.assert_allclose(env.params[name][world].cpu(), x, rtol=1e-14)
    low, high = m.body_mass[1] * 0.5, m.body_mass[1] * 2
    assert ((env.params["body_mass"][:, 1] - low) / (high - low)).std().cpu() == pytest.approx(12**-0.5, rel=0.3)


def run(env: TorchVectorEnv, steps: torch.Tensor) -> torch.Tensor:
    return torch.stack([env.step(a.to(env.device))[0] for a in steps])


def test_draws_are_of_seed_world_and_episode_alone_and_belong_to_the_state():
    steps = actions(20, 4)
    whole = make()
    whole.reset(seed=SEED)
    want = run(whole, steps)
    for half in range(2):
        env = make(n=2, first_world=2 * half)
        env.reset(seed=SEED)
        assert torch.equal(run(env, steps[:, 2 * half : 2 * half + 2]), want[:, 2 * half : 2 * half + 2])
    whole.reset(seed=SEED)
    run(whole, steps[:9])
    other = make()
    other.load_state_dict(whole.state_dict())
    assert torch.equal(run(other, steps[9:]), want[9:])


def test_a_state_that_is_set_leaves_parameters_and_a_reset_draws_those_that_are_randomised():
    env = make(randomize={"body_mass": (0.5, 2.0)}, vary=("gravity",))
    env.reset(seed=SEED)
    before = {name: x.clone() for name, x in env.params.items()}
    lighter = before["body_mass"] * 0.5
    env.set_state(torch.zeros_like(env.qpos), torch.zeros_like(env.qvel))
    assert all(torch.equal(x, before[name]) for name, x in env.params.items())
    mask = torch.tensor([True, False, True, False], device=env.device)
    env.set_params({"body_mass": lighter, "gravity": torch.tensor([0.0, 0.0, -5.0], device=env.device)}, mask)
    assert torch.equal(env.params["body_mass"], lighter.where(mask[:, None], before["body_mass"]))
    assert env.params["gravity"][:, 2].tolist() == [-5.0, -9.81, -5.0, -9.81]
    beside_mujoco(env, 3)
    before = env.params["body_mass"].clone()
    env.reset(options={"reset_mask": mask})
    assert (env.params["body_mass"][mask, 1] != before[mask, 1]).all()
    assert torch.equal(env.params["body_mass"][~mask], before[~mask])
    assert env.params["gravity"][:, 2].tolist() == [-5.0, -9.81, -5.0, -9.81]
    beside_mujoco(env, 9)


def test_what_is_written_into_params_counts_from_the_next_step_on():
    env = make(randomize=None, vary="body_mass")
    env.reset(seed=SEED)
    env.params["body_mass"][1] *= 3.0
    beside_mujoco(env, 4)


@pytest.mark.parametrize("how", ["copied", "loaded", "TorchRL"])
def test_a_state_taken_after_parameters_were_set_goes_on_with_them(how):
    """And with all that follows from them, though no step has asked for it yet."""
    env, again = (make(Hopper, limit=-1, randomize=None, vary="body_mass") for _ in range(2))
    for x in (env, again):
        x.reset(seed=SEED)
        x.set_state(x.qpos - 0.05, x.qvel)  # on the ground, whose forces depend on it
    env.set_params({"body_mass": env.params["body_mass"] * 3})
    if how == "copied":
        again = copy.deepcopy(env)
    elif how == "loaded":
        again.load_state_dict(env.state_dict())
    else:
        module = pytest.importorskip("torch_mjenvs.envs.torchrl")
        ours = module.TorchRLEnv(Hopper, 4, dtype=torch.float64, vary="body_mass")
        ours.reset()
        ours.set_params({"body_mass": env.params["body_mass"]})
        again.load_state_dict(again.state_dict() | ours.get_state().select("params", "derived").to_dict())
        with pytest.raises(ValueError, match="a state with params has derived, too"):
            ours.reset(ours.get_state().exclude("derived"), set_state=True)
    steps = torch.rand(5, 4, 3, generator=torch.Generator("cpu").manual_seed(0), dtype=torch.float64, device="cpu")
    assert torch.equal(run(again, steps), run(env, steps))


def test_who_sets_one_world_s_parameters_leaves_the_bits_of_all_others():
    steps, found = actions(5, 4), []
    for touched in (False, True):
        env = make(limit=-1)
        env.reset(seed=SEED)
        if touched:
            mask = torch.tensor([False, True, False, False], device=env.device)
            env.set_params({"body_mass": env.params["body_mass"] * 2}, mask)
        found.append(run(env, steps))
    rest = [0, 2, 3]
    assert torch.equal(found[0][:, rest], found[1][:, rest]) and not torch.equal(found[0][:, 1], found[1][:, 1])


@dataclass(frozen=True)
class Loaded(Cart):
    """Carries a load, and sees how heavy it is."""

    def randomize(self, m, rng):
        load = rng.uniform(0.0, 5.0)
        return {"body_mass": [*m.body_mass[:-1], m.body_mass[-1] + load], "gravity": [0.0, 0.0, -9.81 - load]}

    def observe(self, m, world):
        return [*world.qpos, *world.qvel, m.body_mass[-1], m.gravity[2]]


def test_a_task_s_own_draws_and_its_functions_see_the_world_s_model():
    env = make(Loaded, randomize=None)
    obs, _ = env.reset(seed=SEED)
    heavy = env.engine.task.load().body_mass[-1]
    for _ in range(15):
        assert torch.equal(obs[:, 4], env.params["body_mass"][:, -1])
        assert torch.allclose(obs[:, 4] - heavy, -9.81 - obs[:, 5]) and len(obs[:, 4].unique()) == 4
        models = [own_model(env, i) for i in range(4)]
        state = torch.cat([env.qpos, env.qvel], 1).cpu().numpy()
        obs, *_, info = env.step(torch.zeros(4, 1, device=env.device))
        for i, m in enumerate(models):
            d = mujoco.MjData(m)
            d.qpos[:], d.qvel[:] = state[i, :2], state[i, 2:]
            mujoco.mj_step(m, d, 2)
            np.testing.assert_allclose(info["final_obs"][i, :4].cpu(), [*d.qpos, *d.qvel], rtol=0, atol=1e-9)


def test_one_world_for_numpy_and_torchrl_s_have_the_same():
    single, many = TorchEnv("InvertedPendulum", randomize=MASSES), make(n=1)
    obs, _ = single.reset(seed=SEED)
    assert np.array_equal(obs, many.reset(seed=SEED)[0][0].cpu().numpy())
    assert all(np.array_equal(x, many.params[name][0].cpu().numpy()) for name, x in single.params.items())
    single.set_params({"body_mass": single.params["body_mass"] * 2})
    many.set_params({"body_mass": many.params["body_mass"] * 2})
    obs, *_ = single.step(np.array([0.5]))
    want, *_ = many.step(torch.full((1, 1), 0.5, dtype=torch.float64, device=many.device))
    assert np.array_equal(obs, want[0].cpu().numpy())
    pytest.importorskip("torchrl")
    from torch_mjenvs import InvertedPendulumEnv

    env = InvertedPendulumEnv(4, dtype=torch.float64, randomize=MASSES)
    env.set_seed(SEED)
    many = make(n=4)
    obs, _ = many.reset(seed=SEED)
    assert torch.equal(env.reset()["observation"], obs)
    assert torch.equal(env.params["body_mass"], many.params["body_mass"])
    kept = env.get_state()
    env.reset()
    assert not torch.equal(env.params["body_mass"], many.params["body_mass"])
    env.reset(kept, set_state=True)
    assert torch.equal(env.params["body_mass"], many.params["body_mass"])


def test_gymnasium_s_own_way_to_make_them():
    env = gymnasium.make_vec("TorchInvertedPendulum-v0", num_envs=3, randomize={"body_mass": (0.5, 2.0)})
    env.reset(seed=0)
    assert len(env.unwrapped.params["body_mass"][:, 1].unique()) == 3


REFUSED = {
    "an unknown name": (
        {"body_weight": (0.5, 2.0)},
        ValueError,
        "'body_weight' cannot vary: the model has no parameter",
    ),
    "structure": ({"timestep": (0.5, 2.0)}, ValueError, "'timestep' cannot vary: the time step"),
    "bounds out of order": (
        {"body_mass": (2.0, 0.5)},
        ValueError,
        "randomize 'body_mass': bounds must be finite and in",
    ),
    "bounds of another shape": ({"gravity": Shift((0, 0), (1, 1))}, ValueError, "'gravity': the bounds do not fit"),
    "what makes no sense": ({"body_mass": Scale(-1, 1)}, ValueError, "'body_mass' can give values that make no sense"),
    "factors of 0": ({"wind": (0.5, 2.0)}, ValueError, "'wind' multiplies numbers that are all 0"),
    "ranges that nothing reads": (
        {"actuator_forcerange": Uniform(0.0, 1.0)},
        ValueError,
        "'actuator_forcerange': no range of the model is in use",
    ),
    "a number": ({"body_mass": 2.0}, TypeError, r"randomize 'body_mass': \(low, high\) to multiply by, Scale"),
    "a list of names": (["body_mass"], TypeError, "randomize must be a dict by names of parameters"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_drawn_is_refused_by_name(what):
    randomize, kind, text = REFUSED[what]
    with pytest.raises(kind, match=text):
        make(randomize=randomize)


@pytest.mark.usefixtures("no_default_device")
def test_a_draw_of_the_user_s_own_is_never_taken_for_a_known_kernel():
    class Squared(Scale):
        def applied(self, x, by):
            return x * by * by

    assert make(limit=6).engine._episode.origin() is not None
    env = make(randomize={"body_mass": Squared(2.0, 2.0)})
    env.reset(seed=0)
    assert env.engine._episode.origin() is None
    assert torch.equal(env.params["body_mass"][0].cpu(), 4.0 * torch.tensor(env.model.body_mass))


def test_what_does_not_vary_cannot_be_set():
    env = make(randomize=None)
    with pytest.raises(ValueError, match="'body_mass' does not vary in this environment: pass vary="):
        env.set_params({"body_mass": 1.0})
    assert env.params == {}


def test_a_tensor_of_parameters_or_memory_is_not_replaced_in_silence():
    env = make(Loaded, randomize=None)
    env.reset(seed=SEED)
    mass = env.params["body_mass"].clone()
    for replace in (
        lambda: operator.setitem(env.params, "body_mass", mass),
        lambda: env.params.update(body_mass=mass),
        lambda: operator.ior(env.params, {"body_mass": mass}),
    ):
        with pytest.raises(TypeError, match=r"params\['body_mass'\] = ... would change nothing: write into the tensor"):
            replace()
    env.params["body_mass"] *= 2
    assert torch.equal(env.params["body_mass"], 2 * mass)
    single = TorchEnv("Hopper", vary="body_mass")
    with pytest.raises(ValueError, match=r"env.params\['body_mass'\] is a copy: call env.set_params"):
        single.params["body_mass"][1] = 2.0


def test_a_task_that_draws_what_cannot_vary_is_told_where():
    @dataclass(frozen=True)
    class Wrong(Cart):
        def randomize(self, m, rng):
            return {"body_mass": [1.0]}

    with pytest.raises(ValueError, match=r"Wrong.randomize \(.*test_randomization.py, line \d+\): body_mass"):
        make(Wrong, randomize=None)


WRITES = {
    "an entry": lambda m: m.body_mass.__setitem__(1, 5.0),
    "a slice": lambda m: m.geom_friction[:, 0].__setitem__(slice(None), 5.0),
    "all of an array": lambda m: setattr(m, "body_mass", np.ones(m.nbody)),
    "in place": lambda m: operator.imul(m.body_mass, 2.0),
    "an entry in place": lambda m: operator.imul(m.body_mass[1:], 2.0),
    "an option": lambda m: setattr(m.opt, "timestep", 0.5),
    "an option's array": lambda m: m.opt.gravity.__setitem__(2, -1.0),
    "a body by name": lambda m: m.body("pole").mass.__setitem__(0, 5.0),
    "a joint by name": lambda m: setattr(m.joint("hinge"), "damping", 5.0),
}


@pytest.mark.parametrize("make", [TorchEnv, TorchVectorEnv])
@pytest.mark.parametrize("what", WRITES)
def test_writing_into_the_model_is_an_error_that_names_set_params(what, make):
    """In Gymnasium it changes the physics; here it would change nothing, which nobody would notice."""
    env = make("InvertedPendulum")
    before = env.unwrapped.model.body_mass.copy(), env.unwrapped.model.opt.gravity.copy()
    how = "To change it, give an xml_file, or a task" if what == "an option" else ".*vary=.*set_params"
    with pytest.raises(ValueError, match=rf"model\.(body|geom|dof|opt).* is read only: .*{how}"):
        WRITES[what](env.unwrapped.model)
    after = env.unwrapped.model.body_mass, env.unwrapped.model.opt.gravity
    assert all(np.array_equal(x, y) for x, y in zip(before, after, strict=True))


def test_the_model_is_otherwise_mujoco_s_own():
    env = TorchVectorEnv("InvertedPendulum")
    m, plain = env.unwrapped.model, env.engine.task.load()
    assert isinstance(m, mujoco.MjModel) and m.nq == plain.nq and m.opt.timestep == plain.opt.timestep
    assert m.body("pole").mass == plain.body("pole").mass and m.joint("hinge").id == plain.joint("hinge").id
    data = mujoco.MjData(m)
    mujoco.mj_step(m, data)
    assert type(2 * m.body_mass) is np.ndarray and (m.body_mass.sum(), m.names) == (plain.body_mass.sum(), plain.names)
    mine = m.body_mass.copy()
    mine *= 2.0
    assert np.array_equal(mine, 2 * plain.body_mass)
    for other in (copy.copy(m), copy.deepcopy(m), pickle.loads(pickle.dumps(m))):
        other.body_mass[1] = 7.0  # a copy is anybody's own
        assert mujoco.MjData(other) and other.body_mass[1] == 7.0 != m.body_mass[1]
    m.geom_rgba[:, 3] = 0.5  # what only pictures show
    m.geom("cpole").rgba[0] = 0.25
    assert (m.geom_rgba[:, 3] == 0.5).all()


@pytest.mark.parametrize("make", [pytest.param(TorchEnv, marks=pytest.mark.cpu), TorchVectorEnv])
def test_colours_that_vary_are_not_written_into_the_model(make):
    """Pictures show each world's own, so nothing would change."""
    env = make("InvertedPendulum", vary=["geom_rgba", "body_mass"])
    m = env.unwrapped.model
    for write in (lambda: m.geom_rgba.__setitem__(1, 0.5), lambda: setattr(m.geom("cpole"), "rgba", [1, 0, 0, 1])):
        with pytest.raises(ValueError, match=r"geom_rgba is read only: each world has its own.* call set_params"):
            write()
    with pytest.raises(ValueError, match=r"body_mass is read only: each world has its own.* call set_params"):
        m.body_mass[1] = 5.0
    m.geom_group[0] = 3  # as before
    m.mat_rgba[:] = 0.5


def test_masses_of_humanoid_may_vary():
    """Whose own functions weigh its bodies."""
    task = Humanoid()
    episode = episode_of(task, load(task.load()), torch.float32, AutoresetMode.NEXT_STEP, 1000, vary=("body_mass",))
    assert episode.program("reset", "float32").count_ops()["div"]

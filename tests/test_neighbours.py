"""The neighbours of the five locomotion tasks beside Gymnasium's own v5 environments, and fluid forces beside MuJoCo C.

As in test_env_parity, whose measures these are: MuJoCo's solver is set to converge, and what is compared is
observation, reward, flags and every entry of info, of one environment step.
"""

from __future__ import annotations

import inspect
from dataclasses import fields
from functools import cache
from pathlib import Path

import gymnasium
import mujoco
import numpy as np
import oracle
import pytest
import torch
from gymnasium.envs.mujoco import mujoco_env
from gymnasium.vector import AutoresetMode
from test_env_parity import Samples, compare, error, oracle_steps, our_steps
from test_env_parity import oracle as real_env

from torch_mjenvs import TorchVectorEnv
from torch_mjenvs.envs.tasks.registry import TASKS
from torch_mjenvs.physics import load
from torch_mjenvs.physics.derived import derive
from torch_mjenvs.physics.model import UnsupportedModel
from torch_mjenvs.physics.simulation import Simulation

NEIGHBOURS = ["Swimmer", "Reacher", "InvertedPendulum", "InvertedDoublePendulum", "HumanoidStandup"]
ASSETS = Path(mujoco_env.__file__).parent / "assets"
FLOAT64 = 1e-10  # relative to 1 + size; measured in 2,000 states: 3e-12 (HumanoidStandup), 1e-13 at the most elsewhere
# The same in float32, median and worst; measured: 7e-7 and 2e-5, in 2,000 states 3e-4.
FLOAT32 = 5e-6, 1e-3
FLOAT32_STANDUP = 1e-4, 1e-2  # measured: 1.2e-5 and 1.2e-3; limbs that strike within the step amplify rounding


@cache
def samples(name: str, n: int) -> Samples:
    """States every 5 steps of rollouts, an action being held for 8 steps so that limits are met.

    They go on after a fall for a while. `touching` counts the states in which the body touches itself.
    """
    env = real_env(name)
    high = env.action_space.high.astype(float)
    rng = np.random.default_rng(len(name))
    qpos, qvel, touching, limited, unhealthy = [], [], 0, 0, 0
    terminated = False
    for step in range(5 * n):
        if step % 150 == 0 or (terminated and rng.random() < 0.04):
            env.reset(seed=step)
            scale = (0.1, 1.0, 1.5)[step // 150 % 3]
            if name == "Reacher" and step // 150 % 2:  # by itself the target neither moves nor comes to a limit
                start = env.data.qpos.copy(), env.data.qvel.copy()
                start[0][2:], start[1][2:] = rng.uniform(-0.3, 0.3, 2), rng.uniform(-1, 1, 2)
                env.set_state(*start)
        if step % 8 == 0:
            action = scale * high * rng.uniform(-1, 1, env.model.nu)
        terminated = env.step(action)[2]
        if step % 5 == 0:
            qpos.append(env.data.qpos.copy())
            qvel.append(env.data.qvel.copy())
            touching += bool(np.any(env.data.contact.geom[:, 0] > 0))  # geom 0 is the floor
            limited += bool(np.any(env.data.efc_type == mujoco.mjtConstraint.mjCNSTR_LIMIT_JOINT))
            unhealthy += terminated
    actions = high * rng.uniform(-1.5, 1.5, (n, env.model.nu))
    return Samples(np.array(qpos), np.array(qvel), actions, touching, limited, unhealthy)


@pytest.mark.parametrize("name", NEIGHBOURS)
def test_step(name):
    s = samples(name, 300)
    theirs = oracle_steps(real_env(name), s)
    # The samples are worth something: all that a task has does happen in them.
    assert s.limited > 30
    assert s.touching > 30 if name == "HumanoidStandup" else s.touching == 0
    assert 30 < theirs[2].sum() < 270 if name.startswith("Inverted") else not theirs[2].any()
    compare(our_steps(name, s, torch.float64), theirs, FLOAT64)


def test_force_of_the_rail():
    """What is seen of it is of the step's last evaluation; where the cart rests at an end it is not clipped."""
    name, rng, n = "InvertedDoublePendulum", np.random.default_rng(0), 400
    end = rng.choice([-1.0, 1.0], n)
    qpos, qvel = rng.uniform(-0.02, 0.02, (n, 3)), rng.uniform(-0.02, 0.02, (n, 3))
    qpos[:, 0] = end * rng.uniform(0.989, 0.992, n)
    s = Samples(qpos, qvel, end[:, None] * rng.uniform(0, 0.02, (n, 1)), 0, n, 0)
    env = real_env(name)
    theirs = oracle_steps(env, s)
    force = np.abs(theirs[0][:, 8])
    assert ((force > 0.1) & (force < 10)).sum() > 50 and (force == 10).sum() > 20 and (force == 0).sum() > 20
    compare(our_steps(name, s, torch.float64), theirs, FLOAT64)


@pytest.mark.slow
@pytest.mark.parametrize("name", NEIGHBOURS)
def test_step_many(name):
    s = samples(name, 2000)
    compare(our_steps(name, s, torch.float64), oracle_steps(real_env(name), s), FLOAT64)


@pytest.mark.parametrize("name", NEIGHBOURS)
def test_ten_steps(name):
    """What is carried from step to step; measured: 3e-12 at the most. Bodies that strike the floor part fast."""
    s = samples(name, 60)
    ours, theirs = our_steps(name, s, torch.float64, 10), oracle_steps(real_env(name), s, 10)
    compare(ours, theirs, 1e-8 if name == "HumanoidStandup" else 1e-10)


@pytest.mark.parametrize("name", NEIGHBOURS)
def test_float32(name):
    s = samples(name, 300)
    ours, theirs = our_steps(name, s, torch.float32), oracle_steps(real_env(name), s)
    median, worst = FLOAT32_STANDUP if name == "HumanoidStandup" else FLOAT32
    for k in (0, 1):
        apart = error(ours[k], theirs[k]).reshape(300, -1).max(1)
        assert np.median(apart) < median
        assert apart.max() < worst
    assert (ours[2] != theirs[2]).sum() <= 1


STANDUP_SMALL = {f"include_{part}_in_observation": False for part in ("cinert", "cvel", "qfrc_actuator", "cfrc_ext")}
ARGUMENTS = [
    ("Swimmer", {"forward_reward_weight": 2.5, "ctrl_cost_weight": 0.3, "frame_skip": 3}),
    ("Swimmer", {"exclude_current_positions_from_observation": False}),
    ("Reacher", {"reward_dist_weight": 2.5, "reward_control_weight": 0.3, "frame_skip": 3}),
    ("InvertedPendulum", {"frame_skip": 3}),
    ("InvertedDoublePendulum", {"healthy_reward": 2.5, "frame_skip": 2}),
    (
        "HumanoidStandup",
        STANDUP_SMALL | {"exclude_current_positions_from_observation": False, "frame_skip": 1, "uph_cost_weight": 3.0}
        | {"ctrl_cost_weight": 0.3, "impact_cost_weight": 0.1, "impact_cost_range": [1.0, 50.0]},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "arguments"), ARGUMENTS)
def test_arguments(name, arguments):
    s = samples(name, 300)
    theirs, plain = oracle_steps(real_env(name, **arguments), s), oracle_steps(real_env(name), s)
    compare(our_steps(name, s, torch.float64, **arguments), theirs, FLOAT64)
    assert theirs[0].shape != plain[0].shape or any((a != b).any() for a, b in zip(theirs[:3], plain[:3], strict=True))


@pytest.mark.parametrize("name", NEIGHBOURS)
def test_signature(name):
    """The same arguments in the same order with the same defaults, but for those that every environment has."""
    theirs = dict(inspect.signature(type(real_env(name)).__init__).parameters)
    for common in ("self", "default_camera_config", "kwargs"):
        del theirs[common]
    assert {f.name: f.default for f in fields(TASKS[name])} == {k: p.default for k, p in theirs.items()}
    assert [f.name for f in fields(TASKS[name])] == list(theirs)


@pytest.mark.parametrize("name", NEIGHBOURS)
def test_attributes(name):
    env, real = TorchVectorEnv(name, 2), real_env(name)
    assert env.dt == real.dt and env.metadata["render_fps"] == real.metadata["render_fps"]
    assert env.single_action_space == real.action_space
    assert env.single_observation_space.shape == real.observation_space.shape
    mine, theirs = env.engine.task.default_camera_config, real.mujoco_renderer.default_cam_config or {}
    assert set(mine) == set(theirs)
    for key in mine:
        np.testing.assert_array_equal(mine[key], theirs[key])


# resets


@pytest.mark.parametrize(
    ("name", "arguments"),
    [(name, {}) for name in NEIGHBOURS] + [("InvertedDoublePendulum", {"reset_noise_scale": 1.5})],
)
def test_reset(name, arguments):
    """What is seen of a start is what Gymnasium sees there: with so much noise, a force too, of the end of the rail."""
    env, real = TorchVectorEnv(name, 20, dtype=torch.float64, **arguments), real_env(name, **arguments)
    obs, info = env.reset(seed=1)
    for i in range(20):
        real.reset()
        real.set_state(env.qpos[i].cpu().numpy(), env.qvel[i].cpu().numpy())
        assert error(obs[i], real._get_obs()).max() < 1e-12
        expected = real._get_reset_info()
        assert {k for k in info if not k.startswith("_")} == set(expected)
        for key, value in expected.items():
            assert info[f"_{key}"].all() and error(info[key][i], np.array(value)).max() < 1e-14
    if arguments:
        assert (obs[:, 8] != 0).any()


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_autoreset(mode):
    """The force of the rail, for which constraints are solved anew, is seen of a start within a step too."""
    name, arguments = "InvertedDoublePendulum", {"reset_noise_scale": 1.5}
    real = real_env(name, **arguments)
    env = TorchVectorEnv(name, 300, dtype=torch.float64, autoreset_mode=mode, max_episode_steps=2, **arguments)
    env.reset(seed=0)
    for _ in range(2 + (mode is AutoresetMode.NEXT_STEP)):
        obs, *_ = env.step(torch.zeros(300, 1))
    begun = (env.elapsed_steps == 0).nonzero()[:, 0].tolist()
    for i in begun:
        real.reset()
        real.set_state(env.qpos[i].cpu().numpy(), env.qvel[i].cpu().numpy())
        assert error(obs[i], real._get_obs()).max() < 1e-12
    assert (obs[begun, 8] != 0).sum() > 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", NEIGHBOURS)
def test_reset_distribution(name, dtype):
    """Each number of the first observation has the real environment's distribution."""
    stats = pytest.importorskip("scipy.stats")
    env = TorchVectorEnv(name, 3000, dtype=dtype)
    ours = env.reset(seed=3)[0].double().cpu().numpy()
    real = real_env(name)
    theirs = np.array([real.reset(seed=7 if i == 0 else None)[0] for i in range(1500)])
    varies = np.ptp(theirs, axis=0) > 1e-5
    np.testing.assert_allclose(ours[:, ~varies].max(0), theirs[0, ~varies], atol=1e-5)
    np.testing.assert_allclose(ours[:, ~varies].min(0), theirs[0, ~varies], atol=1e-5)
    ours, theirs = ours[:, varies], theirs[:, varies]
    assert ours.shape[1] > 3
    scale = theirs.std(0)
    assert np.abs((ours.mean(0) - theirs.mean(0)) / scale).max() < 5 / np.sqrt(1000)
    assert np.abs(ours.std(0) / scale - 1).max() < 0.12
    for k in range(ours.shape[1]):
        assert stats.ks_2samp(ours[:, k], theirs[:, k]).pvalue > 1e-6, k


def test_reacher_target():
    """Drawn from a disc at once, where Gymnasium tries again until it hits the disc: the same distribution."""
    stats = pytest.importorskip("scipy.stats")
    env = TorchVectorEnv("Reacher", 20_000)
    env.reset(seed=0)
    x, y = env.qpos[:, 2:].double().cpu().numpy().T
    radius, angle = np.hypot(x, y), np.arctan2(y, x)
    assert 0.199 < radius.max() < 0.2 + 1e-7
    assert stats.kstest((radius / 0.2) ** 2, "uniform").pvalue > 1e-4
    assert stats.kstest(angle / (2 * np.pi) + 0.5, "uniform").pvalue > 1e-4
    assert abs(np.corrcoef(radius, angle)[0, 1]) < 5 / np.sqrt(len(x))
    assert (env.qvel[:, 2:] == 0).all() and (env.qvel[:, :2] != 0).any()


@pytest.mark.parametrize("name", ["Swimmer", "InvertedPendulum", "InvertedDoublePendulum"])
def test_reset_without_noise(name):
    env = TorchVectorEnv(name, 2, dtype=torch.float64, reset_noise_scale=0)
    obs, _ = env.reset(seed=0)
    real = real_env(name, reset_noise_scale=0)
    np.testing.assert_allclose(obs.cpu(), np.tile(real.reset()[0], (2, 1)), atol=1e-15)


# registration


@pytest.mark.parametrize("name", TASKS)
def test_registered(name):
    """As the v5 task is, the length of its episodes with it."""
    spec, real = gymnasium.spec(f"Torch{name}-v0"), gymnasium.spec(f"{name}-v5")
    assert spec.max_episode_steps == real.max_episode_steps
    env = gymnasium.make_vec(f"Torch{name}-v0", num_envs=3)
    obs, _ = env.reset(seed=0)
    obs, reward, terminated, truncated, _ = env.step(torch.zeros(env.action_space.shape))
    assert obs.shape == (3, *real_env(name).observation_space.shape) and obs.isfinite().all()
    assert reward.shape == (3,) and not terminated.any() and not truncated.any()


def test_truncation():
    env = gymnasium.make_vec("TorchReacher-v0", num_envs=2)
    env.reset(seed=0)
    ends = [env.step(torch.zeros(2, 2))[3].tolist() for _ in range(50)]
    assert ends == [[False, False]] * 49 + [[True, True]]


def test_single():
    env, real = gymnasium.make("TorchInvertedDoublePendulum-v0"), real_env("InvertedDoublePendulum")
    env.reset(seed=0)
    real.set_state(env.unwrapped.qpos, env.unwrapped.qvel)
    for _ in range(3):
        ours, theirs = env.step(np.array([0.3])), real.step(np.array([0.3]))
        assert error(ours[0], theirs[0]).max() < 1e-12 and error(ours[1], theirs[1]) < 1e-12
        assert ours[2:4] == theirs[2:4] and set(ours[4]) == set(theirs[4]) | {"bad_state"}


def test_pusher_is_refused():
    """Its puck is a cylinder on a plane."""
    with pytest.raises(UnsupportedModel, match=r"contact of geom 'table' and geom .*'object' \(plane and cylinder\)"):
        load(ASSETS / "pusher_v5.xml")
    with pytest.raises(UnsupportedModel, match="plane and cylinder"):
        TorchVectorEnv("Swimmer", 1, xml_file="pusher_v5.xml")


# physics


FLUIDS = ['density="700"', 'viscosity="2"', 'density="300" viscosity="0.7" wind="0.4 -1 2"']


@pytest.mark.parametrize("seed", [2, 4, 5, 7, 8, 10])
def test_fluid(seed):
    """qfrc_fluid and qfrc_passive of random trees, in a liquid, in thick oil, and in both with a current."""
    for fluid in FLUIDS:
        mjm = mujoco.MjModel.from_xml_string(oracle.random_mjcf(seed).replace("<option", f"<option {fluid}"))
        m, rng, d = load(mjm), np.random.default_rng(seed), mujoco.MjData(mjm)
        for _ in range(3):
            mujoco.mj_integratePos(mjm, d.qpos, rng.normal(0, 0.5, mjm.nv), 1.0)
            d.qvel[:] = rng.normal(0, 2, mjm.nv)
            mujoco.mj_forward(mjm, d)
            assert np.abs(d.qfrc_fluid).max() > 1e-2
            ours = derive(m, d.qpos.tolist(), d.qvel.tolist(), None, [0.0] * m.nu)
            for name in ("qfrc_fluid", "qfrc_passive"):
                assert error(getattr(ours, name), getattr(d, name)).max() < 1e-11, name


def test_no_fluid_costs_nothing():
    m = load(oracle.model("ant"))
    d = derive(m, list(m.qpos0), [1.0] * m.nv, None, [0.0] * m.nu)
    assert d.qfrc_fluid == [0.0] * m.nv
    assert "wrench" not in vars(d) and "ovel" not in vars(d)  # nothing was computed for it


SITES = """<mujoco><option density="900" viscosity="0.1" timestep="0.005"/><worldbody><site name="fixed" pos="1 2 3"/>
  <body name="a" pos="0 0 1" euler="10 20 30"><freejoint/><geom type="capsule" size=".1 .3"/><site pos=".1 .2 .3"/>
    <body pos=".2 0 .3"><joint axis="0 1 0"/><geom size=".1" pos=".3 0 0"/><site name="tip" pos=".6 0 0"/></body>
  </body></worldbody></mujoco>"""


def test_compiled_sites_and_fluid():
    """Steps of a kernel in a liquid, and where its sites are."""
    mjm = mujoco.MjModel.from_xml_string(SITES)
    d, rng = mujoco.MjData(mjm), np.random.default_rng(0)
    sim = Simulation(mjm, 1, dtype=torch.float64, outputs=["site_xpos", "qfrc_fluid"])
    assert sim.model.site_names == ("fixed", "site 1", "tip")
    d.qvel[:] = rng.normal(0, 3, mjm.nv)
    sim.qvel[0] = torch.tensor(d.qvel)
    for _ in range(50):
        sim.step()
        mujoco.mj_step(mjm, d)
    for name in ("qpos", "qvel", "site_xpos", "qfrc_fluid"):
        assert error(getattr(sim, name)[0], getattr(d, name)).max() < 1e-12, name

"""`model_of`: a world's own model as an MjModel, beside one edited by the tests' own code, and beside worlds."""

from __future__ import annotations

import mujoco
import numpy as np
import oracle
import pytest
import random_params
import torch
from test_params import model

from torch_mjenvs import Hopper, Shift, TorchEnv, TorchRLEnv, TorchVectorEnv
from torch_mjenvs.physics import Simulation, load

# Found out by MuJoCo's compiler from the old values; the tests' own code writes the safest there is.
SHORTCUTS = {
    "geom_rbound", "dof_length", "body_sameframe", "geom_sameframe", "site_sameframe", "body_simple", "dof_simplenum",
}  # fmt: skip
DRAWN = {"body_pos": Shift(-0.05, 0.05), "body_mass": (0.5, 2.0)}
CUBE = "<mujoco><worldbody><body name='cube'><freejoint/><geom type='box' size='.1 .1 .1'/></body></worldbody></mujoco>"

MORE = ("ant", "humanoid", *range(7), *range(8, 20))


def fields(mjm: mujoco.MjModel) -> dict[str, np.ndarray]:
    found = {name: getattr(mjm, name) for name in dir(mjm) if not name.startswith("_")}
    found |= {name: getattr(mjm.opt, name) for name in dir(mjm.opt) if name != "disableflags"}
    return {name: np.asarray(x) for name, x in found.items() if isinstance(x, (np.ndarray, float)) and name[0] != "_"}


@pytest.mark.parametrize("name", ["half_cheetah", 7, *(pytest.param(x, marks=pytest.mark.slow) for x in MORE)])
def test_every_field_is_as_if_the_model_had_been_edited(name):
    mjm, rng = model(name), np.random.default_rng(1)
    varied = random_params.names(mjm, load(mjm))
    values = {x: random_params.draw(mjm, x, rng) for x in varied}
    sim = Simulation(mjm, 2, dtype=torch.float64, vary=varied)
    for x in varied:
        sim.params[x][1] = torch.tensor(values[x])
    for world, want in enumerate((mjm, random_params.edited(mjm, values))):
        found, want = fields(sim.model_of(world)), fields(want)
        assert found.keys() == want.keys() and len(found) > 200
        for field in found.keys() - SHORTCUTS:
            np.testing.assert_allclose(found[field], want[field], rtol=1e-12, atol=1e-12, err_msg=field)
    assert (sim.model_of(1).geom_rbound <= random_params.edited(mjm, values).geom_rbound + 1e-12).all()


def test_of_parameters_that_are_still_the_models_no_digit_is_lost():
    mjm = oracle.asset("hopper")
    varied = random_params.names(mjm, load(mjm))
    for same, old in zip(*(fields(x).items() for x in (Simulation(mjm, 1, vary=varied).model_of(), mjm)), strict=True):
        np.testing.assert_array_equal(same[1], old[1], err_msg=old[0])


@pytest.mark.cpu
def test_torchs_default_device_changes_nothing():
    sim = Simulation(oracle.asset("hopper"), 2, vary=("body_mass", "geom_size", "jnt_axis"), device="cpu")
    with torch.device("meta"):
        found = sim.model_of(1)
    np.testing.assert_array_equal(found.body_mass, sim.model_of(1).body_mass)


def test_geoms_that_have_grown_touch():
    xml = """
    <mujoco><worldbody><geom type='plane' size='1 1 1'/>
      <body pos='0 0 .3'><joint type='slide' axis='0 0 1'/><geom type='capsule' size='.05 .05'/>
        <geom pos='.1 0 0' size='.05'/></body>
    </worldbody></mujoco>"""
    sim = Simulation(xml, 2, dtype=torch.float64, vary=("geom_size",))
    size = sim.params["geom_size"].clone()
    size[1, 1, 1] = 0.3  # now it reaches 5 cm into the floor
    sim.set_params({"geom_size": size})
    touching = []
    for world in (0, 1):
        own = sim.model_of(world)
        own.opt.tolerance = 0
        d = mujoco.MjData(own)
        for _ in range(5):
            mujoco.mj_step(own, d)
        touching.append(d.ncon)
        sim.reset()
        sim.step(5)
        np.testing.assert_allclose(sim.qpos[world].cpu(), d.qpos, rtol=0, atol=1e-9)
    assert touching[0] == 0 < touching[1]


def test_what_mujoco_has_no_room_for_is_refused():
    sim = Simulation(CUBE, 2, vary=("body_ipos", "body_mass"))
    sim.params["body_mass"][1] = 3.0
    assert sim.model_of(1).body_mass[1] == 3.0
    sim.params["body_ipos"][1, 1, 0] = 0.01
    sim.model_of(0)
    with pytest.raises(ValueError, match=r"no room in M for another body_ipos of body 'cube': write <body simple"):
        sim.model_of(1)
    with pytest.raises(IndexError, match="there are worlds 0 to 1, not 2"):
        sim.model_of(2)


def beside(env: TorchEnv, model: mujoco.MjModel) -> mujoco.MjData:
    """MuJoCo's data of the same state and of this model."""
    d = mujoco.MjData(model)
    d.qpos[:], d.qvel[:] = env.qpos, env.qvel
    mujoco.mj_forward(model, d)
    return d


def test_environments_have_it_too():
    for kind in (TorchVectorEnv, TorchRLEnv):
        env = kind(Hopper(), 3, randomize=DRAWN)
        env.reset()
        for world in range(3):
            np.testing.assert_allclose(env.model_of(world).body_mass, env.params["body_mass"][world].cpu(), rtol=1e-6)


@pytest.mark.cpu
def test_the_data_of_one_environment_are_of_its_own_model_in_each_episode():
    env = TorchEnv(Hopper(), dtype=torch.float64, randomize=DRAWN)
    data, masses = env.data, set()
    for seed in range(2):
        env.reset(seed=seed)
        want = beside(env, env.engine.model_of(0))
        assert env.data is data
        np.testing.assert_allclose(data.xpos, want.xpos, rtol=0, atol=1e-12)
        np.testing.assert_allclose(data.subtree_com, want.subtree_com, rtol=0, atol=1e-12)
        as_loaded = beside(env, env.engine.task.load())
        assert not np.allclose(env.get_body_com("foot"), as_loaded.body("foot").xpos, atol=1e-3)
        masses.add(float(env.engine.model_of(0).body_mass[1]))
    assert len(masses) == 2

"""Sensors against MuJoCo C's sensordata, and the fields of mjData that they rest on."""

from __future__ import annotations

import mujoco
import numpy as np
import oracle
import pytest
import torch
from sensor_mjcf import MODEL, of_frames

from torch_mjenvs.physics import load
from torch_mjenvs.physics.model.model import UnsupportedModel
from torch_mjenvs.physics.pipeline import derive
from torch_mjenvs.physics.simulation import Simulation


def model(integrator: str = "Euler", frames: str | None = None) -> mujoco.MjModel:
    frames = of_frames() if frames is None else frames
    return oracle.sharpen(mujoco.MjModel.from_xml_string(MODEL.format(integrator=integrator, frames=frames)))


def states(mjm: mujoco.MjModel, n: int) -> list[tuple[np.ndarray, ...]]:
    """In the air, then on the ground, some at limits."""
    rng, d, out = np.random.default_rng(0), mujoco.MjData(mjm), []
    for k in range(n):
        if k % 3 == 0:
            mujoco.mj_resetData(mjm, d)
            mujoco.mj_integratePos(mjm, d.qpos, rng.normal(0, 0.2, mjm.nv), 1.0)
            d.qvel[:] = rng.normal(0, 1, mjm.nv)
        d.ctrl[:] = rng.normal(0, 1, mjm.nu)
        mujoco.mj_step(mjm, d, int(rng.integers(1, 60)))
        out.append((d.qpos.copy(), d.qvel.copy(), rng.normal(0, 1, mjm.nu)))
    return out


def assert_alike(mjm: mujoco.MjModel, got: np.ndarray, want: np.ndarray, bound: float = 1e-10) -> None:
    """Sensor by sensor."""
    for i in range(mjm.nsensor):
        at = slice(mjm.sensor_adr[i], mjm.sensor_adr[i] + mjm.sensor_dim[i])
        name = f"{i}: {mujoco.mjtSensor(mjm.sensor_type[i]).name} {mjm.sensor(i).name}"
        np.testing.assert_allclose(
            got[at], want[at], rtol=0, atol=bound * max(1, np.max(np.abs(want[at]))), err_msg=name
        )


def test_the_states_are_worth_it():
    """On the ground and off it, at limits and not; what sensors give changes, but for those of what stands still."""
    mjm = model()
    found = [oracle.forward(mjm, *state) for state in states(mjm, 24)]
    limit = np.array([d.sensordata[mjm.sensor("limit").adr[0]] for d in found])
    assert 3 < sum(d.ncon > 0 for d in found) < 21 and 3 < sum(limit > 0) < 21
    changes = np.ptp([d.sensordata for d in found], axis=0) > 0
    still = [
        i for i in range(mjm.nsensor) if not changes[mjm.sensor_adr[i] : mjm.sensor_adr[i] + mjm.sensor_dim[i]].any()
    ]
    bodies = {"mjOBJ_SITE": mjm.site_bodyid, "mjOBJ_GEOM": mjm.geom_bodyid}
    for i in still:
        kind = mujoco.mjtObj(mjm.sensor_objtype[i]).name
        assert mjm.body_weldid[bodies[kind][mjm.sensor_objid[i]]] == 0
    lasers = [i for i in range(mjm.nsensor) if mjm.sensor_type[i] == mujoco.mjtSensor.mjSENS_RANGEFINDER]
    seen = np.array([d.sensordata[mjm.sensor_adr[lasers]] for d in found])
    assert np.sum(seen > 0) > 10 and np.sum(seen < 0) > 10


def test_every_sensor_is_that_of_mujoco():
    """With Python floats."""
    mjm = model()
    m = load(mjm)
    for state in states(mjm, 24):
        want = oracle.forward(mjm, *state)
        ours = derive(m, *(x.tolist() for x in state[:2]), None, state[2].tolist())
        assert_alike(mjm, np.array(ours.sensordata), want.sensordata)


def test_what_sensors_rest_on_is_that_of_mujoco():
    mjm = model()
    m = load(mjm)
    for state in states(mjm, 12):
        d = oracle.forward(mjm, *state)
        mujoco.mj_rnePostConstraint(mjm, d)
        mujoco.mj_subtreeVel(mjm, d)
        ours = derive(m, *(x.tolist() for x in state[:2]), None, state[2].tolist())
        for name in ("site_xmat", "cacc", "cfrc_int", "subtree_linvel", "subtree_angmom"):
            want = getattr(d, name)
            error = np.abs(np.array(getattr(ours, name)).reshape(want.shape) - want).max()
            assert error < 1e-10 * max(1, np.abs(want).max()), name


@pytest.mark.parametrize("integrator", ["Euler", "RK4"])
def test_sensordata_after_a_step_is_that_of_its_beginning(integrator):
    """Also of a Runge-Kutta step, whose other outputs are those of its last stage."""
    mjm = model(integrator, "<clock/>")
    found = states(mjm, 8)
    sim = Simulation(mjm, len(found), dtype=torch.float64, outputs=("sensordata", "cacc", "cfrc_int", "site_xmat"))
    assert sim.sensordata.shape == (len(found), mjm.nsensordata)
    np.testing.assert_allclose(sim.time.cpu(), np.zeros(len(found)))
    for steps in (1, 3):
        for name, x in zip(("qpos", "qvel", "ctrl"), zip(*found, strict=True), strict=True):
            getattr(sim, name).copy_(torch.tensor(np.stack(x)))
        sim.time.fill_(0.5)
        sim.step(steps)
        for k, state in enumerate(found):
            d = mujoco.MjData(mjm)
            d.qpos[:], d.qvel[:], d.ctrl[:] = state
            d.time = 0.5
            mujoco.mj_step(mjm, d, steps)
            np.testing.assert_allclose(sim.time[k].item(), d.time, rtol=1e-15)
            assert_alike(mjm, sim.sensordata[k].cpu().numpy(), d.sensordata, 1e-9)
            for name in ("cacc", "cfrc_int", "site_xmat"):
                want = getattr(d, name)
                error = np.abs(getattr(sim, name)[k].cpu().numpy().reshape(want.shape) - want).max()
                assert error < 1e-9 * max(1, np.abs(want).max()), name
    imu = sim.sensordata[-1, sim.model.sensor("imu")]
    np.testing.assert_allclose(imu.cpu().numpy(), d.sensor("imu").data, rtol=1e-9)
    sim.reset(torch.arange(len(found), device=sim.device) == 0)
    assert (sim.time == 0).tolist() == [k == 0 for k in range(len(found))]
    with pytest.raises(KeyError, match=r"no sensor 'igu'; did you mean 'imu'\?"):
        sim.model.sensor("igu")


def test_disabled_sensors_are_0():
    flag = "<option><flag sensor='disable'/></option>"
    xml = MODEL.format(integrator="Euler", frames="").replace("<worldbody>", f"{flag}<worldbody>", 1)
    m = load(xml)
    ours = derive(m, list(m.qpos0), [1.0] * m.nv, None, [1.0] * m.nu)
    assert list(ours.sensordata) == [0.0] * m.nsensordata


@pytest.mark.parametrize(
    ("sensor", "named"),
    [
        ('<clock name="time"/>', "'time' (clock) of an environment"),
        ('<user name="own" dim="1"/>', "'own' (user)"),
        ('<framepos name="view" objtype="camera" objname="chase"/>', "'view' (framepos) of a camera that turns"),
        (
            '<insidesite name="all" site="ball" objtype="geom" objname="sole" enclosed="true"/>',
            "'all' (insidesite) that asks whether all of it is enclosed",
        ),
        ('<rangefinder name="laser" site="tip" data="dist normal"/>', "'laser' (rangefinder) that gives a normal"),
    ],
)
def test_sensors_that_are_not_there_are_refused_when_they_are_asked_for(sensor, named):
    xml = MODEL.format(integrator="Euler", frames=sensor).replace(
        "<worldbody>", "<worldbody><camera name='chase' mode='track'/>"
    )
    m = load(xml)
    with pytest.raises(UnsupportedModel) as error:
        list(derive(m, list(m.qpos0), [0.0] * m.nv, None, [0.0] * m.nu).sensordata)
    assert named in str(error.value)


def test_kinetic_energy_is_refused_where_mujoco_gives_that_of_the_step_before():
    xml = MODEL.format(integrator="Euler", frames='<e_kinetic name="now"/>')
    xml = xml.replace("<worldbody>", "<option><flag energy='enable'/></option><worldbody>", 1)
    mjm = mujoco.MjModel.from_xml_string(xml)
    d, kept = mujoco.MjData(mjm), 0.0
    for k in range(3):
        mujoco.mj_step(mjm, d)
        assert k == 0 or d.sensor("now").data == kept != d.energy[1]
        kept = d.energy[1]
    m = load(xml)
    with pytest.raises(UnsupportedModel, match=r"\(e_kinetic\) under the option flag energy"):
        list(derive(m, list(m.qpos0), [0.0] * m.nv, None, [0.0] * m.nu).sensordata)

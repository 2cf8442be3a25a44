"""Mocap bodies: static bodies whose pose is an input of every step."""

from __future__ import annotations

import mujoco
import numpy as np
import oracle
import pytest
import torch

from torch_mjenvs.physics import load
from torch_mjenvs.physics.simulation import Simulation

OUTPUTS = (
    "xpos", "xquat", "xmat", "xipos", "geom_xpos", "site_xpos", "subtree_com", "cinert", "cvel",
    "qfrc_bias", "qacc", "cfrc_ext",
)  # fmt: skip


def model(option: str = "") -> mujoco.MjModel:
    """Two paddles that are led, one with an arm on it and a part fixed to it, the other tilted; what they push."""
    return oracle.sharpen(
        mujoco.MjModel.from_xml_string(f"""<mujoco><option timestep=".002" {option}/><worldbody>
        <geom type="plane" size="5 5 1"/>
        <body name="paddle" mocap="true" pos=".1 0 .3" quat="2 1 0 0"><geom type="capsule" size=".1 .2"/>
          <body pos="0 .2 .1" euler="0 20 0"><geom size=".12"/><site name="tip" pos=".1 0 0"/></body>
          <body pos=".3 0 0" name="arm"><joint axis="0 1 .3" damping=".1"/>
            <joint type="slide" axis="1 0 0" stiffness="40"/>
            <geom type="capsule" size=".05 .2" pos="0 0 -.2"/></body></body>
        <body name="floor2" mocap="true" pos="0 0 -.1"><geom type="plane" size="5 5 1"/></body>
        <body pos="0 0 .55"><freejoint/><geom type="capsule" size=".1 .1"/></body>
        <body pos=".1 .1 .8"><freejoint/><geom size=".1"/></body>
        </worldbody></mujoco>""")
    )


def led(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Poses of both; quaternions of any length."""
    pos = np.array([[0.1, 0, 0.3], [0, 0, -0.1]]) + rng.normal(0, 0.1, (2, 3))
    return pos, np.array([[2.0, 1, 0, 0], [1, 0, 0, 0]]) + rng.normal(0, 0.2, (2, 4))


@pytest.mark.parametrize("integrator", ["Euler", "RK4"])
def test_led_bodies_push_others_as_in_mujoco(integrator: str) -> None:
    """Poses change every 10 steps, for 200 steps; all outputs compared each time."""
    mjm, rng = model(f'integrator="{integrator}"'), np.random.default_rng(0)
    n, touched = 4, 0
    sim = Simulation(mjm, n, dtype=torch.float64, outputs=OUTPUTS)
    theirs = [mujoco.MjData(mjm) for _ in range(n)]
    np.testing.assert_allclose(sim.mocap_pos.cpu(), np.stack([d.mocap_pos for d in theirs]))
    np.testing.assert_allclose(sim.mocap_quat.cpu(), np.stack([d.mocap_quat for d in theirs]), atol=1e-15)
    for _ in range(20):
        for k, d in enumerate(theirs):
            d.mocap_pos[:], d.mocap_quat[:] = pos, quat = led(rng)
            sim.mocap_pos[k], sim.mocap_quat[k] = torch.tensor(pos), torch.tensor(quat)
        sim.step(10)
        for k, d in enumerate(theirs):
            mujoco.mj_step(mjm, d, 10)
            mujoco.mj_rnePostConstraint(mjm, d)
            touched += sum(bool(np.isin(mjm.geom_bodyid[c.geom], (1, 2, 4)).any()) for c in d.contact)
            for name in ("qpos", "qvel", *OUTPUTS):
                want = oracle.field(mjm, d, name)
                bound = 1e-9 * max(1.0, np.abs(want).max())
                np.testing.assert_allclose(getattr(sim, name)[k].cpu(), want, rtol=0, atol=bound, err_msg=name)
    assert touched > 50


def test_reset_puts_them_where_the_model_or_the_world_has_them() -> None:
    sim = Simulation(model(), 3, vary=("body_pos",))
    start = sim.mocap_pos.clone()
    sim.params["body_pos"][1, 1] = torch.tensor([7.0, 8, 9])
    sim.mocap_pos.fill_(1.0), sim.mocap_quat.fill_(0.5)
    sim.reset(torch.tensor([False, True, True], device=sim.device))
    assert (sim.mocap_pos[0] == 1).all() and (sim.mocap_quat[0] == 0.5).all()
    assert sim.mocap_pos[1, 0].tolist() == [7.0, 8.0, 9.0]
    assert torch.equal(sim.mocap_pos[2], start[2]) and sim.mocap_quat[2, 1].tolist() == [1.0, 0.0, 0.0, 0.0]


def test_geoms_of_bodies_that_nothing_moves_do_not_collide() -> None:
    """Nor does a mocap body with its own arm, as parent and child do not."""
    mjm = model()
    bodies = [(int(mjm.geom_bodyid[p.geom1]), int(mjm.geom_bodyid[p.geom2])) for p in load(mjm).pairs]
    still = {0, 1, 2, 4}
    assert not [pair for pair in bodies if set(pair) <= still]
    assert (1, 3) not in bodies and (2, 3) not in bodies and (0, 3) in bodies and (4, 5) in bodies

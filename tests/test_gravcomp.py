"""Gravity compensation against MuJoCo C; per world, too."""

from __future__ import annotations

import mujoco
import numpy as np
import oracle
import pytest
import torch

from torch_mjenvs.physics.simulation import Simulation


def model(option: str = "") -> mujoco.MjModel:
    return oracle.sharpen(
        mujoco.MjModel.from_xml_string(f"""<mujoco><option timestep=".002" gravity="1 -2 -9" {option}/><worldbody>
        <geom type="plane" size="5 5 1"/>
        <body pos="0 0 .5" gravcomp=".3"><freejoint/><geom type="capsule" size=".1 .2"/>
          <body pos=".2 0 0" gravcomp="2"><joint type="ball" pos=".1 0 0" damping=".1"/><geom size=".1" pos="0 .1 0"/>
            <body pos=".1 .1 0" gravcomp="1"><geom size=".08"/></body></body></body>
        <body pos="2 0 1"><joint axis="0 1 0"/><geom size=".1" pos=".3 0 0"/></body>
        <body pos="3 0 1" gravcomp="1"><geom size=".1"/></body></worldbody></mujoco>""")
    )


NO_PASSIVE = '/><option><flag spring="disable" damper="disable"/></option><option'
NO_GRAVITY = '/><option><flag gravity="disable"/></option><option'


@pytest.mark.parametrize("option", ["", 'integrator="RK4"', NO_PASSIVE, NO_GRAVITY])
def test_it_is_mujocos_over_200_steps(option: str) -> None:
    mjm, names = model(option), ("qpos", "qvel", "qfrc_gravcomp", "qfrc_passive", "qacc")
    sim = Simulation(mjm, 2, dtype=torch.float64, outputs=names[2:])
    theirs = oracle.compare_steps(sim, mjm, oracle.scattered(mjm, 2, 0.0), 200, names=names)
    lifted = max(np.abs(d.qfrc_gravcomp).max() for d in theirs)
    assert (lifted > 1) == ("flag" not in option)


def test_each_world_has_its_own() -> None:
    mjm, names = model(), ("qfrc_gravcomp", "qacc")
    sim = Simulation(mjm, 2, dtype=torch.float64, outputs=names, vary=("body_gravcomp",))
    share = np.array([[0, 0.1, 0.2, 0.3, 0.9, 0], [0, 1, 0, 2, 0, 1]])
    sim.params["body_gravcomp"].copy_(torch.tensor(share))
    sim.forward()
    for k in range(2):
        mjm.body_gravcomp[:] = share[k]
        d = mujoco.MjData(mjm)
        mujoco.mj_forward(mjm, d)
        for name in names:
            np.testing.assert_allclose(getattr(sim, name)[k].cpu(), getattr(d, name), rtol=0, atol=1e-10)

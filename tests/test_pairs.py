"""Pairs that are handled by one loop (`constraints/contact_groups.py`), where Humanoid does not take them: parallel
capsules, which touch twice, and the same model with too few pairs for a loop.
"""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
import torch

from torch_mjenvs.physics import load
from torch_mjenvs.physics.constraints import many_alike
from torch_mjenvs.physics.precision import DOUBLE
from torch_mjenvs.physics.simulation import Simulation

ROD = """
<body pos="0 {y} 0">
  <joint type="slide" axis="0 1 0" damping="1"/><joint type="hinge" axis="0 1 0"/>
  <geom type="capsule" fromto="-.3 0 0 .3 0 0" size=".05" condim="1"/>
</body>"""


def rods(n: int) -> mujoco.MjModel:
    """Rods side by side that overlap a little, on a floating ball."""
    bodies = "".join(ROD.format(y=0.0985 * k) for k in range(n))
    model = mujoco.MjModel.from_xml_string(f"""
        <mujoco><option integrator="RK4" timestep="0.002"/><default><geom solimp=".9 .95 .001"/></default>
        <worldbody><body pos="0 0 2"><freejoint/><geom type="sphere" size=".05" pos="0 -2 0" condim="1"/>
        {bodies}</body></worldbody></mujoco>""")
    model.opt.solver, model.opt.tolerance, model.opt.iterations = mujoco.mjtSolver.mjSOL_NEWTON, 0, 100
    return model


@pytest.mark.parametrize(("n", "looped"), [(5, True), (3, False)])
def test_parallel_capsules(n, looped):
    model = rods(n)
    assert bool(many_alike(load(model), DOUBLE)) == looped
    generator = torch.Generator().manual_seed(0)
    sim = Simulation(model, 8, dtype=torch.float64)
    qvel = 0.1 * torch.randn(8, model.nv, generator=generator, device="cpu").double()
    sim.qpos[4:, 8::2] += (0.01 * torch.randn(4, n, generator=generator, device="cpu").double()).to(
        sim.device
    )  # not parallel: one touch
    sim.qvel.copy_(qvel)
    qpos = sim.qpos.clone()
    sim.step()
    twice = 0
    for world in range(8):
        data = mujoco.MjData(model)
        data.qpos[:], data.qvel[:] = qpos[world].cpu(), qvel[world].cpu()
        mujoco.mj_forward(model, data)
        pairs = [tuple(contact.geom) for contact in data.contact]
        assert pairs
        twice += len(pairs) - len(set(pairs))
        mujoco.mj_step(model, data)
        np.testing.assert_allclose(sim.qvel[world].cpu().numpy(), data.qvel, rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(sim.qpos[world].cpu().numpy(), data.qpos, rtol=1e-12, atol=1e-13)
    assert twice >= 4

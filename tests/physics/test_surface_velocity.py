"""Surfaces that move while their geoms do not (`surfacevel`) against MuJoCo C: belts, turntables, tracks."""

from __future__ import annotations

import mujoco
import numpy as np
import oracle
import pytest
import torch

from torch_mjenvs.physics import load
from torch_mjenvs.physics.pipeline import derive
from torch_mjenvs.physics.simulation import Simulation


def model(condim: int, option: str = "", moving: bool = True) -> mujoco.MjModel:
    """A belt, a turntable and hilly ground that move; on them a box, a capsule, and a vehicle with a track of its own.

    MuJoCo ends its searches for contacts with the ground as late as it can.
    """
    v = [f'surfacevel="{x}"' * moving for x in (".7 -.4 .2 .1 -.3 .5", "0 0 0 0 0 3", "-1 0 0 0 0 0", "2 .5 0 1 0 -1")]
    return oracle.sharpen(
        mujoco.MjModel.from_xml_string(f"""<mujoco>
        <option timestep=".002" ccd_tolerance="1e-13" ccd_iterations="500" {option}/>
        <default><geom condim="{condim}" friction=".7 .05 .02"/></default>
        <asset><hfield name="hills" nrow="5" ncol="5" size=".5 .5 .05 .1"
          elevation="0 1 0 1 0 1 0 1 0 1 0 1 0 1 0 1 0 1 0 1 0 1 0 1 0"/></asset><worldbody>
        <geom type="box" size=".5 .5 .1" pos="0 0 -.1" euler="0 2 30" {v[0]}/>
        <geom type="plane" size="1 1 .1" pos="2 0 0" {v[1]}/>
        <geom type="hfield" hfield="hills" pos="0 1 0" {v[2]}/>
        <body pos=".1 0 .1"><freejoint/><geom type="box" size=".1 .12 .1"/></body>
        <body pos="2.2 0 .2"><freejoint/><geom type="capsule" size=".1 .1"/></body>
        <body pos="0 1 .14"><freejoint/><geom size=".1" {v[3]}/>
          <body pos=".15 0 .05"><joint axis="0 1 0"/><geom size=".1"/></body></body>
        <body pos="0 .93 .32"><freejoint/><geom type="capsule" size=".1 .05" {v[0]}/></body>
        </worldbody></mujoco>""")
    )


CASES = [(c, f'cone="{cone}"') for cone in ("pyramidal", "elliptic") for c in (1, 3, 4, 6)] + [
    (3, 'noslip_iterations="3" noslip_tolerance="0"'),
    (4, 'cone="elliptic" noslip_iterations="3" noslip_tolerance="0"'),
]


@pytest.mark.parametrize(("condim", "option"), CASES)
def test_forces_are_those_of_mujoco(condim: int, option: str) -> None:
    mjm, still = model(condim, option), model(condim, option, moving=False)
    m, rng, d, driven = load(mjm), np.random.default_rng(0), mujoco.MjData(mjm), 0
    for _ in range(8):
        mujoco.mj_resetData(mjm, d)
        d.qvel[:] = rng.normal(0, 0.1, mjm.nv)
        mujoco.mj_step(mjm, d, int(rng.integers(10, 60)))
        qpos, qvel = d.qpos.copy(), d.qvel.copy()
        want = oracle.forward(mjm, qpos, qvel, np.zeros(0))
        without = oracle.forward(still, qpos, qvel, np.zeros(0))
        ours = derive(m, qpos.tolist(), qvel.tolist(), None, [])
        np.testing.assert_allclose(ours.qacc, want.qacc, rtol=0, atol=1e-9 * np.abs(want.qacc).max())
        driven += np.abs(want.qacc - without.qacc).max() > 0.1
    assert driven == (8 if condim > 1 else 0)


def test_a_belt_carries_a_box_and_a_turntable_turns_what_stands_on_it() -> None:
    mjm = model(4)
    sim, d = Simulation(mjm, 2, dtype=torch.float64), mujoco.MjData(mjm)
    for _ in range(100):
        sim.step()
        mujoco.mj_step(mjm, d)
    np.testing.assert_allclose(sim.qpos[1].cpu(), d.qpos, rtol=0, atol=1e-6)
    assert np.hypot(*d.qvel[:2]) > 0.3 and d.qvel[11] > 2.9


def test_a_surface_that_mujoco_does_not_know_of_stays() -> None:
    mjm = model(3, moving=False)
    mjm.geom_surfacevel[0] = 1.0
    assert not np.any(load(mjm).geom_surfacevel)
    mujoco.mj_setConst(mjm, mujoco.MjData(mjm))
    assert load(mjm).geom_surfacevel[0] == (1.0,) * 6

"""Springs and dampers of tendons against MuJoCo C."""

from __future__ import annotations

import mujoco
import oracle
import pytest
import torch

from torch_mjenvs.physics.simulation import Simulation


@pytest.mark.parametrize("option", ['integrator="Euler"', 'integrator="RK4"'])
@pytest.mark.parametrize("flag", ["", '<flag spring="disable"/>', '<flag damper="disable"/>'])
def test_tendons_pull_as_in_mujoco_over_200_steps(option: str, flag: str) -> None:
    """Fixed and spatial, slack between two lengths and not, over a pulley."""
    mjm = oracle.sharpen(
        mujoco.MjModel.from_xml_string(f"""<mujoco><option timestep=".002" {option}>{flag}</option>
      <worldbody><site name="w" pos="0 0 2"/>
      <body pos="0 0 1"><freejoint/><geom size=".1"/><site name="a" pos="0 .1 0"/>
        <body pos=".2 0 0"><joint name="h" axis="0 1 0"/><geom size=".08" pos=".2 0 0"/><site name="b" pos=".3 0 .1"/>
          <body pos=".4 0 0"><joint name="k" axis="0 1 1"/><geom size=".06" pos=".1 0 0"/><site name="c" pos=".1 .1 0"/>
      </body></body></body></worldbody><tendon>
      <fixed stiffness="9" damping=".2" springlength="-.1 .1">
        <joint joint="h" coef="1.5"/><joint joint="k" coef="-1"/></fixed>
      <spatial stiffness="30" damping=".7"><site site="w"/><site site="a"/><pulley divisor="2"/><site site="b"/>
        <site site="w"/><site site="c"/></spatial>
      <spatial stiffness="50" springlength=".3 .5"><site site="a"/><site site="c"/></spatial>
      </tendon></mujoco>""")
    )
    names = ("qpos", "qvel", "qfrc_passive", "ten_length", "ten_velocity", "qacc")
    sim = Simulation(mjm, 3, dtype=torch.float64, outputs=names[2:])
    oracle.compare_steps(sim, mjm, oracle.scattered(mjm, 3, 0.3, (0.5,)), 20, 10, names)

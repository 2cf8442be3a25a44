"""A small robot on four springy legs, for the tests of terrain."""

from __future__ import annotations

import mujoco
import oracle

from torch_mjenvs.terrain import TerrainGenerator

LEGS = "".join(
    f"""<body name="leg{k}" pos="{x} {y} 0"><joint name="hip{k}" axis="{-y} {x} 0" range="-60 60" damping=".3"/>
      <geom type="capsule" fromto="0 0 0 {0.5 * x} {0.5 * y} -.25" size=".02" contype="0" conaffinity="0"/>
      <geom name="foot{k}" pos="{0.5 * x} {0.5 * y} -.25" size=".04" conaffinity="0" friction=".8"/></body>"""
    for k, (x, y) in enumerate(((0.2, 0.15), (0.2, -0.15), (-0.2, 0.15), (-0.2, -0.15)))
)
ROBOT = f"""<mujoco><option timestep=".004"/><worldbody>
  <body name="trunk" pos="0 0 .3"><freejoint/>
    <geom type="box" size=".22 .15 .05" contype="0" conaffinity="0" mass="4"/><site name="down" euler="180 0 0"/>
    {LEGS}</body></worldbody>
  <actuator>{"".join(f'<position joint="hip{k}" kp="40" ctrlrange="-1 1"/>' for k in range(4))}</actuator>
  <sensor><rangefinder site="down"/></sensor></mujoco>"""


def on(ground: TerrainGenerator) -> mujoco.MjModel:
    """The robot on this ground, with a solver that converges."""
    spec = mujoco.MjSpec.from_string(ROBOT)
    ground.add_to(spec, contype=0, conaffinity=1)
    return oracle.sharpen(spec.compile())

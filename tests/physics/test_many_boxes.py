"""Robots on ground of some hundred geoms: each world lists those that are near (`constraints/batch/near_pairs`)."""

from __future__ import annotations

import mujoco
import numpy as np
import oracle
import pytest
import torch

from torch_mjenvs import Simulation
from torch_mjenvs.physics import load
from torch_mjenvs.physics.constraints.batch import cells
from torch_mjenvs.physics.constraints.batch.near_groups import near_groups
from torch_mjenvs.physics.constraints.batch.pair_batch import divided
from torch_mjenvs.physics.model.precision import DOUBLE

LEG = """<body pos="{x} {y} 0"><joint name="hip{k}" axis="0 1 0" damping=".3" stiffness="5"/>
  <geom type="capsule" fromto="0 0 -.03 0 0 -.2" size=".03"/>
  <body pos="0 0 -.2"><joint axis="1 0 0" damping=".1"/><geom size=".04"/><site name="foot{k}" size=".05"/></body>
  </body>"""
PLACES = [(0.2, 0.15), (0.2, -0.15), (-0.2, 0.15), (-0.2, -0.15)]
SURFACES = ('friction=".9 .01 .01"', 'friction=".4 .01 .01" margin=".02" gap=".01"', 'solref=".01 1"')


def ground(n: int, size: float, other: str, seed: int = 0) -> str:
    """Boxes of many sizes that lean, and other shapes; every third is in a body of its own. They lie on a square."""
    rng, out = np.random.default_rng(seed), []
    for k in range(n):
        x, y = rng.uniform(-size, size, 2)
        a, b, c = rng.uniform(0.05, 0.2, 3)
        pose = f'pos="{x:.3f} {y:.3f} {rng.uniform(0, 0.1):.3f}" euler="{rng.uniform(-30, 30):.1f} {rng.uniform(-30, 30):.1f} 0"'
        shape = other if k % 4 == 3 else f'type="box" size="{a:.3f} {b:.3f} {c:.3f}"'
        geom = f"{shape} {SURFACES[k % 3]}"
        out.append(f"<body {pose}><geom {geom}/></body>" if k % 3 == 0 else f"<geom {pose} {geom}/>")
    return "".join(out)


def robot(option: str, around: str, more: str = "", z: float = 0.45) -> mujoco.MjModel:
    """A quadruped whose trunk is a box, on such ground. Its parts do not touch each other."""
    legs = "".join(LEG.format(k=k, x=x, y=y) for k, (x, y) in enumerate(PLACES))
    return oracle.sharpen(
        mujoco.MjModel.from_xml_string(f"""<mujoco><option timestep=".004" {option}/>
        <default><geom contype="1" conaffinity="2"/></default>
        <worldbody><geom type="plane" size="9 9 1" contype="2"/>
        <body name="trunk" pos="0 0 {z}"><freejoint/><geom type="box" size=".2 .12 .05" mass="4"/>{legs}</body>
        <geom type="box" pos="0 0 -5" size=".1 .1 .1" contype="0" conaffinity="0"/>
        {around.replace("<geom ", '<geom contype="2" conaffinity="1" ')}</worldbody>{more}</mujoco>""")
    )


def walked(model: mujoco.MjModel, n: int, least: int = 3) -> list[tuple[np.ndarray, np.ndarray]]:
    """States with contacts, each somewhere else on the ground."""
    rng, out, data = np.random.default_rng(1), [], mujoco.MjData(model)
    while len(out) < n:
        mujoco.mj_resetData(model, data)
        data.qpos[:2] = rng.uniform(-1.2, 1.2, 2)
        data.qvel[:] = rng.normal(0, 0.5, model.nv)
        mujoco.mj_step(model, data, 90)
        if data.ncon >= least:
            out.append((data.qpos.copy(), data.qvel.copy()))
    return out


def in_lists(model: mujoco.MjModel) -> int:
    m = load(model)
    return sum(len(pairs) for pools in divided(m, DOUBLE)[1] for pairs in pools if near_groups(m, pairs)[0])


@pytest.mark.parametrize(
    ("option", "other"),
    [("", 'type="capsule" size=".06 .1"'), ('cone="elliptic" integrator="implicitfast"', 'type="sphere" size=".09"')],
    ids=["pyramids, capsules", "cones, spheres"],
)
def test_a_robot_on_boxes_moves_as_in_mujoco(option, other):
    """With sensors of touch, forces on bodies that stand still, and the number of contacts."""
    touch = "".join(f'<touch site="foot{k}"/>' for k in range(4))
    model = robot(option, ground(240, 1.5, other), f"<sensor>{touch}</sensor>")
    assert in_lists(model) >= 0.8 * len(load(model).pairs) > 1000
    names = ("qpos", "qvel", "qacc", "cfrc_ext", "sensordata", "ncon")
    sim = Simulation(model, 24, dtype=torch.float64, outputs=names[2:])
    data = oracle.compare_steps(sim, model, walked(model, 24), 1, 3, names)
    bodies = np.array([d.cfrc_ext.any(1) for d in data])[:, model.body_weldid == 0]
    assert bodies.any(), "nothing touched a body of the ground"

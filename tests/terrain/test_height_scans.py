"""Height scans against mj_ray straight down: on floats, and in a task's kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
import pytest
import torch

from torch_mjenvs import Outcome, Task, TorchVectorEnv, UnsupportedModel, terrain
from torch_mjenvs.envs.tasks.base import World
from torch_mjenvs.physics import load
from torch_mjenvs.physics.pipeline import derive

SCENE = """<mujoco><asset>
  <hfield name="hills" nrow="40" ncol="30" size="2 3 .5 .1"/><hfield name="roof" nrow="7" ncol="9" size="1 1 .5 .1"/>
  </asset><worldbody>
  <geom name="hills" type="hfield" hfield="hills" pos=".1 .2 .3" euler="0 0 30"/>
  <geom name="roof" type="hfield" hfield="roof" pos="2 2 1" euler="10 20 30"/>
  <geom name="floor" type="plane" size="{floor}" euler="3 5 0"/>
  <geom type="box" size=".3 .4 .5" pos="-1 -1 .3" euler="0 0 20"/>
  <geom type="box" size=".3 .4 .5" pos="-2 -1 .3" euler="9 9 9"/>
  <geom type="capsule" size=".2 .5" pos="-1 1 .5" euler="80 30 0"/><geom type="cylinder" size=".2 .5" pos="1 -2 .3"/>
  <geom type="ellipsoid" size=".2 .5 .7" pos="1 -1 .3" euler="10 20 30"/>{more}
  <body name="trunk" pos="0 0 3"><freejoint/><geom type="box" size=".1 .2 .05"/>
    <body pos="1 0 0"><joint/><geom size=".1"/></body></body></worldbody></mujoco>"""


def scene(floor: str = "0 0 1", more: str = "") -> mujoco.MjModel:
    mjm = mujoco.MjModel.from_xml_string(SCENE.format(floor=floor, more=more))
    mjm.hfield_data[:] = np.random.default_rng(0).random(mjm.nhfielddata)
    return mjm


def poses(n: int) -> np.ndarray:
    rng = np.random.default_rng(1)
    out = rng.normal(size=(n, 8))
    out[:, 2] = 5.0
    out[:, 3:7] /= np.linalg.norm(out[:, 3:7], axis=1, keepdims=True)
    return out


def below(mjm: mujoco.MjModel, qpos: np.ndarray, points: list[tuple[float, float]], missing: float) -> np.ndarray:
    """The heights of MuJoCo's rays straight down, past all that moves."""
    d = mujoco.MjData(mjm)
    d.qpos[:] = qpos
    mujoco.mj_kinematics(mjm, d)
    mjm.geom_group[:] = (mjm.body_weldid[mjm.geom_bodyid] > 0) * 5
    still, out = np.array([1, 0, 0, 0, 0, 0], np.uint8), []
    mat = d.body("trunk").xmat.reshape(3, 3)
    yaw = np.arctan2(mat[1, 0], mat[0, 0])
    for x, y in points:
        at = d.body("trunk").xpos[:2] + [np.cos(yaw) * x - np.sin(yaw) * y, np.sin(yaw) * x + np.cos(yaw) * y]
        far = mujoco.mj_ray(mjm, d, np.array([*at, 8.0]), np.array([0, 0, -1.0]), still, 1, -1, np.zeros(1, np.int32))
        out.append(8.0 - far if far >= 0 else missing)
    return np.array(out)


def scanned(mjm: mujoco.MjModel, qpos: np.ndarray, points: Any, **how: Any) -> np.ndarray:
    m = load(mjm)
    data = derive(m, qpos.tolist(), [0.0] * m.nv, None, [])
    world = World(qpos.tolist(), [0.0] * m.nv, {}, data, None)  # type: ignore[arg-type]
    return np.array(terrain.heights(m, world, points, **how))


@pytest.mark.parametrize("floor", ["0 0 1", "2 1 1"], ids=["endless floor", "small floor"])
def test_heights_are_those_of_mujocos_rays(floor):
    """On height fields, level and tilted, planes and all other shapes, and where there is nothing."""
    mjm, points = scene(floor), terrain.grid((4.0, 4.0), 0.25)
    kinds = set()
    for qpos in poses(12):
        want = below(mjm, qpos, points, missing=-7.5)
        got = scanned(mjm, qpos, points, body="trunk", missing=-7.5)
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-12)
        kinds |= {"nothing" if z == -7.5 else "ground" for z in want}
    assert kinds == ({"ground"} if floor[0] == "0" else {"ground", "nothing"})


def test_only_the_named_geoms_count_if_any_are_named():
    mjm, points = scene(), [(0.0, 0.0), (0.7, -0.3)]
    qpos = np.array([0.2, 0.3, 5.0, 1, 0, 0, 0, 0])
    hills, floor = (scanned(mjm, qpos, points, body=1, geoms=[name]) for name in ("hills", "floor"))
    assert (hills > 0.3).all() and (floor < 0.2).all()
    assert (scanned(mjm, qpos, points) == hills).all()
    with pytest.raises(KeyError, match="no geom 'hill'"):
        scanned(mjm, qpos, points, geoms=["hill"])
    with pytest.raises(KeyError, match="no body 'tronk'"):
        scanned(mjm, qpos, points, body="tronk")


def test_a_body_that_stands_on_its_head_looks_along_x():
    """Its x axis points straight down: seen from above it points nowhere."""
    mjm, points = scene(), [(0.5, 0.2)]
    down = np.array([0.2, 0.3, 5.0, np.sqrt(0.5), 0, np.sqrt(0.5), 0, 0])
    got = scanned(mjm, down, points)
    assert np.isfinite(got).all()


def test_ground_of_meshes_is_refused():
    mesh = '<geom name="rock" type="mesh" mesh="rock"/>'
    xml = SCENE.format(floor="0 0 1", more=mesh).replace(
        "</asset>", '<mesh name="rock" vertex="0 0 0 1 0 0 0 1 0 0 0 1"/></asset>'
    )
    mjm = mujoco.MjModel.from_xml_string(xml)
    with pytest.raises(UnsupportedModel, match="heights above geom 'rock', a mesh, are not supported"):
        scanned(mjm, poses(1)[0], [(0.0, 0.0)])
    assert scanned(mjm, poses(1)[0], [(0.0, 0.0)], geoms=["floor"]).shape == (1,)


def test_the_grid_is_isaac_labs():
    points = terrain.grid()
    assert len(points) == 17 * 11
    np.testing.assert_allclose(points[0], (-0.8, -0.5))
    np.testing.assert_allclose(points[1], (-0.7, -0.5))
    np.testing.assert_allclose(points[-1], (0.8, 0.5))
    assert terrain.grid((0.0, 0.2), 0.2) == [(0.0, -0.1), (0.0, 0.1)]
    with pytest.raises(ValueError, match="resolution above 0"):
        terrain.grid((1.0, 1.0), 0.0)


@dataclass(frozen=True)
class Look(Task):
    """A body that falls and sees the ground."""

    xml_file: str = ""
    frame_skip: int = 1

    def load(self):
        return scene("2 1 1")

    def reset(self, m, rng):
        quat = [rng.normal() for _ in range(4)]
        return [rng.uniform(-2, 2), rng.uniform(-2, 2), 5.0, *quat, rng.normal()], [0.0] * m.nv

    def observe(self, m, world):
        return terrain.heights(m, world, terrain.grid((2.0, 1.0), 0.25), body="trunk", missing=-7.5)

    def outcome(self, m, before, action, after):
        return Outcome(0.0, False)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_kernel_gives_each_world_its_own_heights(dtype):
    env = TorchVectorEnv(Look(), num_envs=37, dtype=dtype)
    obs, _ = env.reset(seed=3)
    mjm, qpos = scene("2 1 1"), env.unwrapped.qpos.double().cpu().numpy()
    qpos[:, 3:7] /= np.linalg.norm(qpos[:, 3:7], axis=1, keepdims=True)
    want = np.array([below(mjm, q, terrain.grid((2.0, 1.0), 0.25), -7.5) for q in qpos])
    off = np.abs(obs.double().cpu().numpy() - want)
    if dtype == torch.float64:
        assert off.max() < 1e-11
    else:  # at edges rounding decides
        assert np.mean(off < 1e-4) > 0.995
    assert (want == -7.5).any()

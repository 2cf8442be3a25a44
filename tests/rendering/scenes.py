"""Models for the tests of pictures, and MuJoCo's own pictures of them."""

from __future__ import annotations

from collections.abc import Iterator

import mujoco
import numpy as np
import torch

from torch_mjenvs import Simulation

# every shape, floating, before two cameras; sites, a transparent geom and one of a hidden group
SHAPES = """<mujoco><default><geom contype="0" conaffinity="0"/></default>
  <asset><hfield name="hills" nrow="6" ncol="7" size="1 .8 .4 .1"
    elevation="0 0 0 0 0 0 0  0 3 1 4 1 5 0  0 9 2 6 5 3 0  0 5 8 9 7 9 0  0 3 2 3 8 4 0  0 0 0 0 0 0 0"/></asset>
<worldbody>
  <light pos="0 0 4"/><camera name="ahead" pos="0 -4 1" xyaxes="1 0 0 0 .2 1"/>
  <camera name="wide" pos="3 -2 2" xyaxes=".6 .8 0 -.3 .2 1" resolution="4 3" sensorsize=".004 .003" focal=".0021 .002"
    principal=".0002 -.0001"/>
  <geom name="floor" type="plane" size="0 0 1" pos="0 0 -1"/>
  <geom type="plane" size=".7 .5 1" pos="-2 1 .3" euler="20 30 0"/>
  <geom type="hfield" hfield="hills" pos="0 2 -.6"/><geom type="sphere" size=".5" pos="0 -2 1" rgba="1 0 0 0"/>
  <geom type="sphere" size=".5" pos="0 -2 1" group="3"/><site name="mark" type="box" size=".1 .2 .3" pos=".3 -.5 .2"/>
  <body pos="-1.2 0 1"><freejoint/><geom type="sphere" size=".3"/></body>
  <body pos="-.4 0 1.2"><freejoint/><geom type="capsule" size=".15 .4"/></body>
  <body pos=".5 0 1.2"><freejoint/><geom type="ellipsoid" size=".2 .3 .45"/></body>
  <body pos="1.3 0 1"><freejoint/><geom type="cylinder" size=".25 .3"/></body>
  <body pos=".2 -.3 0"><freejoint/><geom type="box" size=".2 .3 .25"/><site type="capsule" size=".05 .3"/></body>
  <body name="handle" mocap="true" pos="-.6 -.5 .1"><geom type="box" size=".1 .1 .1"/></body>
</worldbody></mujoco>"""


def scattered(model: mujoco.MjModel, worlds: int, dtype: torch.dtype = torch.float32, **options: object) -> Simulation:
    """A simulation with positions about those that the model starts from."""
    simulation = Simulation(model, worlds, dtype=dtype, **options)  # type: ignore[arg-type]
    rng = np.random.default_rng(0)
    q = np.array([model.qpos0 + 0.3 * rng.normal(size=model.nq) for _ in range(worlds)])
    simulation.qpos.copy_(torch.as_tensor(q, dtype=dtype, device=simulation.qpos.device))
    return simulation


def state(model: mujoco.MjModel, simulation: Simulation, world: int) -> mujoco.MjData:
    """MuJoCo's data of a world."""
    d = mujoco.MjData(model)
    d.qpos[:] = simulation.qpos[world].double().cpu().numpy()
    if model.nmocap:
        d.mocap_pos[:] = simulation.mocap_pos[world].cpu().numpy()
        d.mocap_quat[:] = simulation.mocap_quat[world].cpu().numpy()
    mujoco.mj_forward(model, d)
    return d


def of_mujoco(
    renderer: mujoco.Renderer, d: mujoco.MjData, camera: int | str | mujoco.MjvCamera
) -> tuple[np.ndarray, np.ndarray]:
    """Depth and segmentation as MuJoCo's renderer draws them."""
    renderer.enable_depth_rendering()
    renderer.update_scene(d, camera=camera)
    depth = renderer.render()
    renderer.disable_depth_rendering()
    renderer.enable_segmentation_rendering()
    renderer.update_scene(d, camera=camera)
    segmentation = renderer.render()
    renderer.disable_segmentation_rendering()
    return depth, segmentation


def structural_similarity(a: np.ndarray, b: np.ndarray) -> float:
    """The structural similarity of two pictures (height, width, 3) of 255: its mean over windows of 7 x 7."""
    x, y = (torch.as_tensor(p.copy()).double().movedim(-1, 0)[None] for p in (a, b))

    def mean(p: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.avg_pool2d(p, 7, 1)

    share = 49 / 48  # of a sample's variance
    vx, vy, vxy = (share * (mean(p * q) - mean(p) * mean(q)) for p, q in ((x, x), (y, y), (x, y)))
    c1, c2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
    found = (2 * mean(x) * mean(y) + c1) * (2 * vxy + c2) / ((mean(x) ** 2 + mean(y) ** 2 + c1) * (vx + vy + c2))
    return float(found.mean())


def beside_mujoco(
    model: mujoco.MjModel, simulation: Simulation, camera: str, width: int, height: int
) -> Iterator[tuple[dict[str, np.ndarray], np.ndarray, np.ndarray, np.ndarray]]:
    """Yield of each world our pictures by name, and depth, segmentation and colours as MuJoCo's renderer draws them."""
    pictures = simulation.render(camera, width, height, outputs=("rgb", "depth", "segmentation"))
    renderer = mujoco.Renderer(model, height, width)
    for world in range(simulation.num_worlds):
        d = state(model, simulation, world)
        depth, segmentation = of_mujoco(renderer, d, camera)
        renderer.update_scene(d, camera)
        ours = {name: x[world].cpu().numpy() for name, x in pictures.items()}
        yield ours, depth, segmentation, renderer.render().astype(int)
    renderer.close()


# every shape with a material of its own: cube textures, a floor that mirrors, a spot and a far light with shadows
COLOURS = """<mujoco><visual><quality offsamples="0"/><headlight ambient=".2 .2 .25" diffuse=".3 .3 .3"/></visual>
  <default><geom contype="0" conaffinity="0"/></default>
  <asset>
    <texture name="sky" type="skybox" builtin="gradient" rgb1=".3 .5 .7" rgb2=".1 .1 .2" width="32" height="192"/>
    <texture name="tiles" type="2d" builtin="checker" mark="edge" rgb1=".2 .3 .4" rgb2=".4 .4 .3" markrgb="1 1 1"
      width="50" height="50"/>
    <texture name="faces" type="cube" builtin="gradient" mark="cross" rgb1=".9 .2 .1" rgb2=".1 .3 .9" markrgb="1 1 1"
      width="31" height="31"/>
    <material name="floor" texture="tiles" texrepeat="6 4" texuniform="true" reflectance=".3" specular=".4"/>
    <material name="wall" texture="tiles" texrepeat="3 2"/>
    <material name="faces" texture="faces" specular=".6" shininess=".3"/>
    <material name="even" texture="faces" texuniform="true" emission=".2"/>
    <material name="plain" rgba=".3 .8 .4 1" specular="1" shininess=".8"/>
  </asset>
  <worldbody>
    <light pos="1 -1 3" dir="-.2 .2 -1" diffuse=".6 .5 .5" cutoff="50" exponent="3" attenuation="1 .05 .01"/>
    <light directional="true" pos="0 0 5" dir=".3 .2 -1" diffuse=".3 .3 .4" ambient=".1 .1 .1" specular=".2 .2 .2"/>
    <light pos="-3 -3 3" dir="1 1 -1" diffuse=".2 .1 .1" castshadow="false"/>
    <camera name="ahead" pos="0 -4 1.4" xyaxes="1 0 0 0 .35 1"/>
    <geom type="plane" size="4 3 .3" pos="0 0 -.6" material="floor"/>
    <geom type="plane" size="1 .5 1" pos="-1 2 .6" euler="90 10 0" material="wall"/>
    <body pos="-1.3 0 .6"><freejoint/><geom type="sphere" size=".35" material="faces"/></body>
    <body pos="-.5 .2 1"><freejoint/><geom type="capsule" size=".15 .4" material="even"/></body>
    <body pos=".4 0 .9"><freejoint/><geom type="ellipsoid" size=".2 .3 .4" material="faces"/></body>
    <body pos="1.2 .1 .7"><freejoint/><geom type="cylinder" size=".25 .3" material="plain"/></body>
    <body pos=".3 -.4 .1"><freejoint/><geom type="box" size=".2 .3 .25" material="even"/></body>
    <body pos="-.6 -.6 .2"><freejoint/><geom type="sphere" size=".2" rgba=".9 .8 .1 .4"/></body>
    <body pos="-.8 -.3 0"><freejoint/><geom type="capsule" size=".1 .2" material="plain"/></body>
  </worldbody></mujoco>"""

# meshes: smooth and flat ones, hollow ones, with images where their corners say and with cubes, clear ones, in shadows
_BOX = " ".join(f"{x} {y} {z}" for z in (-0.3, 0.3) for y in (-0.25, 0.25) for x in (-0.2, 0.2))
MESHES = f"""<mujoco><visual><quality offsamples="0"/></visual>
  <default><geom contype="0" conaffinity="0"/></default>
  <asset>
    <texture name="tiles" type="2d" builtin="checker" mark="edge" rgb1=".2 .3 .4" rgb2=".8 .8 .3" markrgb="1 0 0"
      width="40" height="40"/>
    <texture name="faces" type="cube" builtin="gradient" mark="cross" rgb1=".9 .2 .1" rgb2=".1 .3 .9" markrgb="1 1 1"
      width="32" height="32"/>
    <material name="tiles" texture="tiles"/><material name="faces" texture="faces" specular=".6" shininess=".3"/>
    <material name="floor" texture="tiles" texrepeat="4 4" reflectance=".2"/>
    <mesh name="ring" builtin="supertorus" params="40 .3 1 1" scale=".35 .35 .35"/>
    <mesh name="ball" builtin="sphere" params="3" scale=".3 .4 .25"/>
    <mesh name="box" vertex="{_BOX}"/>
    <mesh name="slab" vertex="-.3 0 -.3  .3 0 -.3  .3 0 .3  -.3 0 .3  0 .4 0" texcoord="0 0  1 0  1 1  0 1  .5 .5"
      face="0 1 2  0 2 3  1 0 4  2 1 4  3 2 4  0 3 4"/>
  </asset>
  <worldbody>
    <light pos="1 -1 3" dir="-.2 .2 -1" diffuse=".6 .5 .5"/>
    <light directional="true" pos="0 0 5" dir=".3 .2 -1" diffuse=".3 .3 .4" castshadow="false"/>
    <camera name="ahead" pos="0 -3 1.4" xyaxes="1 0 0 0 .35 1"/>
    <geom type="plane" size="4 3 .3" pos="0 0 -.4" material="floor"/>
    <body pos="-1.1 0 .4"><freejoint/><geom type="mesh" mesh="ring" material="faces"/></body>
    <body pos="-.2 .2 .5"><freejoint/><geom type="mesh" mesh="ball" rgba=".3 .8 .4 1"/></body>
    <body pos=".6 0 .6"><freejoint/><geom type="mesh" mesh="box" rgba=".8 .5 .2 1"/></body>
    <body pos="1.2 -.2 .3"><freejoint/><geom type="mesh" mesh="slab" material="tiles"/></body>
    <body pos=".2 -.7 .1"><freejoint/><geom type="mesh" mesh="ball" rgba=".9 .8 .1 .4"/></body>
  </worldbody></mujoco>"""

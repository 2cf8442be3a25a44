"""Meshes in pictures, against MuJoCo's renderer where there is an OpenGL, and against mj_ray in float64."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
import torch
from ptx import Machine
from scenes import MESHES, beside_mujoco, scattered, state

from torch_mjenvs import Simulation
from torch_mjenvs.compiler import cuda
from torch_mjenvs.rendering import picture
from torch_mjenvs.rendering.scene import scene_of

WORLDS = 3


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(MESHES)


@pytest.mark.usefixtures("opengl")
def test_meshes_look_as_in_mujoco(model):
    worlds = beside_mujoco(model, scattered(model, WORLDS), "ahead", 160, 120)
    for ours, depth, segmentation, colours in worlds:
        assert (np.abs(ours["depth"] - depth) <= 0.01 * depth).mean() > 0.999
        assert (ours["segmentation"] == segmentation).all(-1).mean() > 0.999
        assert np.abs(ours["rgb"] - colours).mean() < 2.5
        assert len(np.unique(segmentation)) > 5


def test_rays_meet_what_mj_ray_meets(model):
    """But for some that go by an edge: there triangles are a little larger than they are."""
    simulation = scattered(model, WORLDS, torch.float64)
    pictures, seen = simulation.render("ahead", 32, 24), scene_of(model, "ahead")[0].camera
    number, met, alike = np.zeros(1, np.int32), 0, 0
    for world in range(WORLDS):
        d = state(model, simulation, world)
        place, axes = d.camera("ahead").xpos, d.camera("ahead").xmat.reshape(3, 3)
        for i, j in np.ndindex(24, 32):
            way = axes @ [*seen.ray(j + 0.5, i + 0.5, 32, 24), -1.0]
            depth = mujoco.mj_ray(model, d, place, way, None, 1, -1, number)
            depth = depth if 0 <= depth < seen.far else seen.far
            ours = pictures["depth"][world, i, j].item()
            met += number[0] > 0
            alike += abs(ours - depth) < 1e-9 and pictures["segmentation"][world, i, j, 0] == number[0]
    assert met > 300 and alike > 0.998 * WORLDS * 24 * 32


@pytest.mark.cpu
def test_a_gpu_draws_the_same_to_the_last_bit(model, monkeypatch):
    recipes, build = [], picture.build
    monkeypatch.setattr(picture, "build", lambda recipe, device: (recipes.append(recipe), build(recipe, device))[1])
    simulation = scattered(model, 1)
    simulation.render("ahead", 16, 6)
    ((made, _),) = simulation._pictures.values()
    (recipe, launch) = recipes[1], made._draw
    written = ("depth", "segmentation")
    theirs = [
        torch.full_like(x, 77) if b.name in written else x for b, x in zip(recipe.buffers, launch.tensors, strict=True)
    ]
    Machine(cuda.assembly(recipe.record())).launch(theirs, 16 * 6)
    for b, mine, its in zip(recipe.buffers, launch.tensors, theirs, strict=True):
        np.testing.assert_array_equal(its.numpy(), mine.numpy(), err_msg=b.name)


@pytest.mark.usefixtures("opengl")
@pytest.mark.parametrize("apart", [0.0, 1e-3])
def test_of_two_shapes_in_one_place_the_last_is_seen(apart):
    """As in MuJoCo: robots of MuJoCo Playground have some meshes twice. Where they are apart, both are drawn."""
    shapes = *(f'type="mesh" mesh="{name}"' for name in ("ball", "box")), 'type="capsule" size=".2 .1"'
    bodies = "".join(
        f'<body pos="{k - 1} 0 .4"><freejoint/><geom {x} rgba="1 0 0 1"/>'
        f'<geom {x} pos="0 -{apart} 0" rgba="0 1 0 1"/></body>'
        for k, x in enumerate(shapes)
    )
    model = mujoco.MjModel.from_xml_string(f"""<mujoco><visual><quality offsamples="0"/></visual><asset>
        <mesh name="ball" builtin="sphere" params="3" scale=".3 .4 .25"/>
        <mesh name="box" vertex="-.2 -.2 -.2 .2 -.2 -.2 -.2 .2 -.2 .2 .2 -.2 -.2 -.2 .2 .2 -.2 .2 -.2 .2 .2 .2 .2 .2"/>
        </asset><worldbody><light pos="0 -1 4" castshadow="false"/>
        <camera name="ahead" pos="0 -3 1.4" xyaxes="1 0 0 0 .35 1"/>{bodies}
        </worldbody></mujoco>""")
    simulation = Simulation(model, 2)
    for ours, depth, segmentation, colours in beside_mujoco(model, simulation, "ahead", 90, 62):
        assert {1, 3, 5} <= set(segmentation[..., 0].ravel().tolist())
        assert (ours["segmentation"] == segmentation).all(-1).mean() > 0.985
        assert (np.abs(ours["depth"] - depth) <= 0.01 * depth).mean() > 0.98
        assert np.abs(ours["rgb"] - colours).mean() < 1.0
    ((made, _),) = simulation._pictures.values()
    assert set(made.tensors) == {"rgb", "depth", "segmentation"}


def test_a_shape_that_may_move_out_of_anothers_place_is_drawn():
    """In a world whose own parameters have it elsewhere."""
    model = mujoco.MjModel.from_xml_string(
        '<mujoco><worldbody><camera name="c" pos="0 -2 0" xyaxes="1 0 0 0 0 1"/><body><freejoint/>'
        '<geom size=".2" rgba="1 0 0 1"/><geom size=".2" rgba="0 1 0 1"/></body></worldbody></mujoco>'
    )
    simulation = Simulation(model, 2, vary=("geom_pos",))
    simulation.params["geom_pos"][1, 0, 0] = 0.5
    seen = [set(x.ravel().tolist()) for x in simulation.render("c", 32, 32)["segmentation"][..., 0].cpu().numpy()]
    assert seen == [{-1, 1}, {-1, 0, 1}]

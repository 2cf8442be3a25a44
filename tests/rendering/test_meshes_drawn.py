"""Meshes in pictures, against MuJoCo's renderer where there is an OpenGL, and against mj_ray in float64."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
import torch
from ptx import Machine
from scenes import MESHES, beside_mujoco, scattered, state
from test_pictures import opengl  # noqa: F401 (a fixture)

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
    (made,) = simulation._pictures.values()
    (recipe, launch) = recipes[1], made._draw
    written = ("depth", "segmentation")
    theirs = [
        torch.full_like(x, 77) if b.name in written else x for b, x in zip(recipe.buffers, launch.tensors, strict=True)
    ]
    Machine(cuda.assembly(recipe.record())).launch(theirs, 16 * 6)
    for b, mine, its in zip(recipe.buffers, launch.tensors, theirs, strict=True):
        np.testing.assert_array_equal(its.numpy(), mine.numpy(), err_msg=b.name)

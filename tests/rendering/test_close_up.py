"""Pictures of 84 x 84 and 240 x 240 from all cameras, against MuJoCo's: depth, segmentation, colours, structure."""

from __future__ import annotations

import importlib.util

import gymnasium
import mujoco
import numpy as np
import pytest
from scenes import of_mujoco, scattered, state, structural_similarity
from test_pictures import HAVE

from torch_mjenvs import UnsupportedModel
from torch_mjenvs.envs.tasks.registry import make_task
from torch_mjenvs.rendering.scene import scene_of

STATES, SIZES = 20, (84, 240)
SUITE = (
    "acrobot-swingup", "ball_in_cup-catch", "cartpole-swingup", "cheetah-run", "finger-turn_hard", "fish-swim",
    "hopper-hop", "humanoid-run", "humanoid_CMU-run", "lqr-lqr_2_1", "lqr-lqr_6_2", "manipulator-bring_ball",
    "pendulum-swingup", "point_mass-easy", "quadruped-walk", "reacher-easy", "stacker-stack_4", "swimmer-swimmer6",
    "walker-walk",
)  # fmt: skip
ROBOTS = ("Go1Joystick", "SpotJoystick", "G1Joystick", "BerkeleyHumanoidJoystick")
PLAIN = (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION)


def loaded(name: str) -> mujoco.MjModel:
    if name in HAVE:
        return gymnasium.make(f"{name}-v5").unwrapped.model
    if importlib.util.find_spec("mujoco_playground" if name in ROBOTS else "dm_control") is None:
        pytest.skip("the package of this model is not installed")
    return make_task(name, {}, ()).load()


@pytest.mark.skipif(importlib.util.find_spec("dm_control") is None, reason="dm_control is not installed")
def test_dogs_skin_is_refused_by_name():
    with pytest.raises(UnsupportedModel, match="pictures do not draw skins"):
        scene_of(loaded("dog-run"), 0)


@pytest.mark.slow
@pytest.mark.usefixtures("opengl")
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", [*HAVE, *SUITE, *ROBOTS])
def test_close_up_they_are_mujocos(name, size):
    model = loaded(name)
    model.vis.quality.offsamples = 0  # edges are compared elsewhere
    model.vis.quality.numslices, model.vis.quality.numstacks = 128, 64  # polygons: of 28 slices a camera in a head sees
    simulation = scattered(model, STATES)
    renderer = mujoco.Renderer(model, size, size)
    for camera in range(-1, model.ncam):
        ours = {k: x.clone() for k, x in simulation.render(camera, size, size).items()}
        for without in (("shadow", "reflection"), ()):
            drawn = simulation.render(camera, size, size, outputs="rgb", without=without)["rgb"]
            ours[f"rgb without {without}"] = drawn.clone()
        figures = []
        for world in range(STATES):
            d = state(model, simulation, world)
            depth, segmentation = of_mujoco(renderer, d, camera)
            mine = {k: x[world].cpu().numpy() for k, x in ours.items()}
            near = (np.abs(mine["depth"] - depth) <= 0.01 * depth).mean()
            figures.append([near, (mine["segmentation"] == segmentation).all(-1).mean()])
            for k, x in mine.items():
                if not k.startswith("rgb"):
                    continue
                renderer.update_scene(d, camera)
                for flag in PLAIN:
                    renderer.scene.flags[flag] = "shadow" not in k
                theirs = renderer.render()
                figures[-1] += [np.abs(theirs.astype(int) - x).mean(), structural_similarity(theirs, x)]
        near, same, plain, alike_plain, shaded, alike = np.transpose(figures)
        print(
            f"{name}, {camera}, {size}: depth {near.min():.4f}, segmentation {same.min():.4f}, "
            f"colour {plain.max():.2f} and {shaded.max():.2f}, structure {alike_plain.min():.3f} and {alike.min():.3f}"
        )
        assert near.min() >= 0.98 and same.min() >= 0.985
        assert plain.max() <= 4.0 and shaded.max() <= 7.0
        assert min(alike_plain.min(), alike.min()) >= 0.95
    renderer.close()

"""Pictures of dm_control's tasks against dm_control's own, in processes of their own, whose OpenGL is EGL."""

from __future__ import annotations

import pytest
from processes import run

from torch_mjenvs.compiler import loader
from torch_mjenvs.dmc import TASKS

FAST = (
    "acrobot-swingup", "ball_in_cup-catch", "cartpole-balance", "cheetah-run", "finger-turn_hard", "hopper-hop",
    "pendulum-swingup", "point_mass-hard", "reacher-hard", "walker-walk",
)  # fmt: skip

DRAWN = """
import sys
sys.path.insert(0, "tests")
import numpy as np
import dm_control_oracle as theirs
import torch_mjenvs
from torch_mjenvs.compiler import loader
from torch_mjenvs.dmc.environment import SuiteEnvironment

loader.options["opt"] = int(sys.argv[1])
for name in sys.argv[2:]:
    env = torch_mjenvs.TorchVectorEnv(  # of the kernels that the comparison of steps builds
        name, 2, dtype="float64", device="cpu", autoreset_mode="Disabled"
    )
    ours = SuiteEnvironment(env, 3, batched=True)
    other = theirs.suite.load(*name.split("-", 1), task_kwargs={"random": 0})
    other.reset()
    ours.reset()
    spec = ours.action_spec()
    for _ in range(5):
        ours.step(np.random.default_rng(0).uniform(np.maximum(spec.minimum, -1), np.minimum(spec.maximum, 1)))
    engine = ours.env.engine
    state = {x: getattr(engine, x) for x in ("qpos", "qvel")} | ({"act": engine.act} if engine.layout.na else {})
    state |= {f"memory {x}": y for x, y in engine.memory.items()} | {f"param {x}": y for x, y in engine.params.items()}
    loaded, cameras = ours.env.model.geom_pos.copy(), range(-1, ours.env.model.ncam)
    for camera in cameras:
        frames = ours.render(84, 84, camera)
        for i in range(2):
            theirs.put(other, name, {x: y[i].cpu().numpy() for x, y in state.items()})
            want = other.physics.render(84, 84, camera)
            assert frames[i].shape == want.shape and len(np.unique(want)) > 10
            off = (frames[i] != want).any(2).sum()
            assert off == 0, f"{name}, camera {camera}: {off} pixels of another colour"
            for kind in ("segmentation", "depth"):
                seen = ours.render(84, 84, camera, **{kind: True})[i]
                want = other.physics.render(84, 84, camera, **{kind: True})
                assert seen.shape == want.shape and seen.dtype.kind == want.dtype.kind
                if kind == "segmentation":
                    alike, there = (seen == want).all(2), want[..., 0] >= 0
                else:  # dm_control has the depth of the sky, which it draws, and is up to 2 % from mujoco.Renderer
                    alike = np.isclose(seen, want, rtol=0.03) | ~there
                assert alike.mean() > 0.97, f"{name}, camera {camera}, {kind}: {alike.mean()} of the pixels are alike"
    np.testing.assert_array_equal(ours.env.model.geom_pos, loaded)
    print(name, len(cameras), (frames[0] != frames[1]).any(2).sum())
"""

WRAPPED = """
import sys
sys.path.insert(0, "tests")
import numpy as np
import dm_control_oracle as theirs
from dm_control.suite.wrappers import action_scale, pixels
import torch_mjenvs
from torch_mjenvs.compiler import loader

loader.options["opt"] = int(sys.argv[1])
name = "finger-turn_hard"
arguments = {"task_kwargs": {"random": 1, "time_limit": 0.2}, "visualize_reward": False}
ours = torch_mjenvs.dmc.load(*name.split("-"), **arguments)
other = theirs.environment(name)
view = {"pixels_only": False, "render_kwargs": {"height": 84, "width": 84, "camera_id": 0}}
made = [pixels.Wrapper(action_scale.Wrapper(x, minimum=-2.0, maximum=+2.0), **view) for x in (ours, other)]
shapes = [{x: y.shape for x, y in env.observation_spec().items()} for env in made]
assert shapes[0] == shapes[1] and made[0].action_spec() == made[1].action_spec()
rays = torch_mjenvs.dmc.load(*name.split("-"), **arguments, from_pixels=True, **view).observation_spec()
specs = [{x: (y.shape, y.dtype, y.name) for x, y in found.items()} for found in (rays, made[1].observation_spec())]
assert specs[0] == specs[1], specs
for episode in range(2):
    step = made[0].reset()
    assert step.first() and step.reward is None
    engine = ours.env.engine
    state = {x: getattr(engine, x)[0].cpu().numpy() for x in ("qpos", "qvel")}
    state |= {f"memory {x}": y[0].cpu().numpy() for x, y in engine.memory.items()}
    theirs.put(other, name, state | {f"param {x}": y[0].cpu().numpy() for x, y in engine.params.items()})
    for k in range(10):
        step, want = (env.step(np.array([np.sin(k), -2.0 * np.cos(k)])) for env in made)
        np.testing.assert_array_equal(step.observation["pixels"], want.observation["pixels"])
        np.testing.assert_allclose(step.observation["velocity"], want.observation["velocity"], atol=1e-9)
        assert abs(step.reward - want.reward) < 1e-9
    assert step.last() and step.discount == 1.0
"""


@pytest.fixture(scope="module")
def opengl() -> None:
    code = "import mujoco; mujoco.Renderer(mujoco.MjModel.from_xml_string('<mujoco/>'), 8, 8).render()"
    try:
        run(code, MUJOCO_GL="egl", anew=True)  # where there is none, even the import may fail
    except AssertionError as error:
        pytest.skip(f"no OpenGL to draw with, MUJOCO_GL=egl: {error}")


def test_a_picture_is_dm_controls(opengl: None) -> None:
    """From every camera, each world with its own target and parameters, pixel for pixel."""
    run(DRAWN, str(loader.options["opt"]), *FAST, seconds=300, MUJOCO_GL="egl")


def test_dm_controls_own_wrappers_take_it_as_they_take_dm_controls(opengl: None) -> None:
    """Those of agents that learn from pictures: actions of another scale, and pictures among what is observed."""
    run(WRAPPED, str(loader.options["opt"]), seconds=300, MUJOCO_GL="egl")


@pytest.mark.slow
@pytest.mark.usefixtures("quickly_compiled")
@pytest.mark.parametrize("name", [name for name in TASKS if name not in FAST])
def test_a_picture_of_any_task_is_dm_controls(opengl: None, name: str) -> None:
    run(DRAWN, str(loader.options["opt"]), name, seconds=600, MUJOCO_GL="egl")

"""Frames. They need an OpenGL that draws without a screen: MUJOCO_GL=egl (which is tried) or osmesa."""

from __future__ import annotations

import os

import gymnasium
import numpy as np
import pytest
import torch

from torch_mjenvs import TorchEnv, TorchVectorEnv
from torch_mjenvs.wrappers import RecordVideo

TASKS = ["HalfCheetah", "Walker2d", "Hopper"]


def why_no_frames() -> str | None:
    """What keeps Gymnasium's own environment from drawing."""
    env = gymnasium.make("Hopper-v5", render_mode="rgb_array", width=16, height=16)
    env.reset()
    try:
        env.render()
    except Exception as error:  # each backend has its own
        return f"no OpenGL to draw with, MUJOCO_GL={os.environ.get('MUJOCO_GL')}: {error!r}"
    env.close()
    return None


@pytest.fixture(scope="module", autouse=True)
def opengl():
    """Skips where nothing can be drawn. The backend is chosen when the first viewer is made."""
    with pytest.MonkeyPatch.context() as patch:
        if "MUJOCO_GL" not in os.environ and "DISPLAY" not in os.environ:
            patch.setenv("MUJOCO_GL", "egl")
        reason = why_no_frames()
        if reason:
            pytest.skip(reason)
        yield


@pytest.mark.parametrize("name", TASKS)
def test_frame_is_gymnasiums(name):
    """The same state gives the same picture, in every mode, as the v5 environment with the same arguments."""
    small = {"width": 64, "height": 48}
    first = {} if name == "Hopper" else small  # in the default size, which takes seconds to draw, once
    for mode, arguments in (("rgb_array", first), ("depth_array", small), ("rgb_array", small | {"camera_id": 0})):
        ours = gymnasium.make(f"Torch{name}-v0", render_mode=mode, **arguments)
        real = gymnasium.make(f"{name}-v5", render_mode=mode, **arguments)
        ours.reset(seed=0), real.reset(seed=0)
        real.unwrapped.set_state(ours.unwrapped.qpos, ours.unwrapped.qvel)
        picture, expected = ours.render(), real.render()
        assert picture.shape == expected.shape and picture.dtype == expected.dtype
        np.testing.assert_array_equal(picture, expected)
        assert len(np.unique(picture)) > 20
        ours.close(), real.close()


def test_rgbd():
    env = TorchEnv("Hopper", render_mode="rgbd_tuple", width=64, height=48)
    env.reset(seed=0)
    rgb, depth = env.render()
    assert rgb.shape == (48, 64, 3) and depth.shape == (48, 64)
    env.close()


def test_frames_of_the_chosen_worlds():
    """Each its own, not one picture twice, and nothing of the simulation moves."""
    env = TorchVectorEnv("Walker2d", 5, render_mode="rgb_array", render_worlds=(4, 0), width=96, height=64)
    env.reset(seed=0)
    qpos = env.qpos.clone()
    qpos[4, 2] = 1.2  # tilted
    env.set_state(qpos, env.qvel.clone())
    before = env.qpos.clone()
    tilted, upright = env.render()
    assert tilted.shape == upright.shape == (64, 96, 3)
    assert (tilted != upright).any(2).mean() > 0.01
    assert env.qpos.equal(before)
    again = env.render()
    np.testing.assert_array_equal(again[0], tilted)
    np.testing.assert_array_equal(again[1], upright)
    for _ in range(20):
        env.step(torch.ones(5, 6))
    assert (env.render()[1] != upright).any()
    env.close()


def test_camera_arguments():
    frames = []
    for config in (None, {"distance": 8.0}, {"distance": 8.0, "lookat": (0.0, 0.0, 1.0)}):
        env = TorchVectorEnv("Hopper", render_mode="rgb_array", default_camera_config=config, width=64, height=64)
        env.reset(seed=0)
        frames.append(env.render()[0])
        env.close()
    assert (frames[0] != frames[1]).any() and (frames[1] != frames[2]).any()


@pytest.mark.parametrize("record", [gymnasium.wrappers.vector.RecordVideo, RecordVideo])
def test_record_video(tmp_path, record):
    chosen = {} if record is gymnasium.wrappers.vector.RecordVideo else {"render_worlds": (3, 1)}
    env = gymnasium.make_vec("TorchHopper-v0", 4, render_mode="rgb_array", width=64, height=48, **chosen)
    env = record(env, str(tmp_path), video_length=3, video_aspect_ratio=(1, 1))
    env.reset(seed=0)
    shape = env.recorded_frames[0].shape
    for _ in range(4):
        env.step(torch.zeros(4, 3))
    env.close()
    assert shape[0] * shape[1] == 48 * 64 * (2 if chosen else 4)
    assert list(tmp_path.glob("*.mp4"))


def test_without_a_mode():
    env = TorchVectorEnv("Hopper")
    env.reset()
    with pytest.warns(UserWarning, match="render_mode"):
        assert env.render() is None

"""Frames of `render()` where there is no OpenGL, against those that OpenGL draws."""

from __future__ import annotations

import warnings

import mujoco
import numpy as np
import pytest
from gymnasium.envs.mujoco import mujoco_rendering
from processes import run

from torch_mjenvs.envs import camera
from torch_mjenvs.envs.vector_env import TorchVectorEnv

SIZE = {"width": 96, "height": 72}


def frames(mode: str, **options: object) -> list:
    """Of each world's own thigh: by the free camera, and by the one that follows."""
    env = TorchVectorEnv("Hopper", 2, vary=("geom_size",), render_mode=mode, **SIZE, **options)
    env.reset(seed=0)
    env.params["geom_size"][1, 2, 0] *= 2
    found = list(env.render())
    env._camera.renderer.camera_id = 0
    return found + [env.render()[1]]


@pytest.mark.usefixtures("opengl")
def test_frames_without_opengl_are_as_those_with_it(monkeypatch):
    def fail(width: int, height: int) -> None:
        raise AttributeError("'NoneType' object has no attribute 'glGetError'")

    monkeypatch.setattr(camera, "told", [])
    monkeypatch.setenv("MUJOCO_GL", "egl")
    theirs = frames("rgbd_tuple")
    for name in mujoco_rendering._ALL_RENDERERS:
        monkeypatch.setitem(mujoco_rendering._ALL_RENDERERS, name, fail)
    with pytest.warns(UserWarning, match="no OpenGL to draw with .*set MUJOCO_GL=egl .*frames are drawn by rays"):
        ours = frames("rgbd_tuple")
    for (rgb, depth), (want, far) in zip(ours, theirs, strict=True):
        assert rgb.shape == want.shape and rgb.dtype == np.uint8 and want.std() > 20
        assert np.abs(rgb.astype(int) - want).mean() < 4  # of edges, of which a tiled floor has many
        assert depth.dtype == far.dtype and (np.abs(depth - far) < 1e-3).mean() > 0.98
    assert np.abs(ours[0][0].astype(int) - ours[1][0]).mean() > 0.5
    with warnings.catch_warnings():  # it was said
        warnings.simplefilter("error")
        again = frames("rgb_array")
    assert all(np.array_equal(x, rgb) for x, (rgb, _) in zip(again, ours, strict=True))


def test_where_mujoco_found_no_opengl_it_is_not_asked_again(monkeypatch):
    """It would end the process."""
    asked = []

    def fail(width: int, height: int) -> None:
        asked.append(width)
        raise mujoco.FatalError("an OpenGL platform library has not been loaded into this process")

    monkeypatch.setattr(camera, "failed", [])
    monkeypatch.setenv("MUJOCO_GL", "egl")
    for name in mujoco_rendering._ALL_RENDERERS:
        monkeypatch.setitem(mujoco_rendering._ALL_RENDERERS, name, fail)
    assert all(len(frames("rgb_array")) == 3 for _ in range(2))
    assert len(asked) == 1
    with pytest.raises(RuntimeError, match=r"tried before.*without OpenGL there are no visual_options"):
        frames("rgb_array", visual_options={0: True})


def test_a_film_takes_no_opengl(tmp_path):
    """Nor a display: with MUJOCO_GL as it is for machines that have neither."""
    code = """
import sys
from torch_mjenvs.__main__ import main
main(["play", "TorchHopper", "--out", sys.argv[1], "--seconds", "0.1", "--size", "64"])
"""
    run(code, str(tmp_path / "film.gif"), MUJOCO_GL="disable", seconds=300)
    assert (tmp_path / "film.gif").stat().st_size > 1000

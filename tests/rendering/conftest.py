"""What several tests of pictures share."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator

import mujoco
import pytest

from torch_mjenvs.envs.camera import before_opengl


@pytest.fixture(scope="module")
def opengl() -> Iterator[None]:
    """Skips where MuJoCo's renderer cannot draw. It took its backend when it was imported, which here becomes EGL."""
    before_opengl()
    with pytest.MonkeyPatch.context() as patch:
        try:
            if "MUJOCO_GL" not in os.environ and "DISPLAY" not in os.environ:
                backend = importlib.import_module("mujoco.egl").GLContext
                patch.setattr(importlib.import_module("mujoco.rendering.classic.gl_context"), "GLContext", backend)
            mujoco.Renderer(mujoco.MjModel.from_xml_string("<mujoco/>"), 8, 8).close()
        except Exception as error:  # each backend has its own
            pytest.skip(f"no OpenGL to draw with: {error!r}")
        yield

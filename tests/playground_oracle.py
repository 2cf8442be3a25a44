"""MuJoCo Playground as the oracle of its joystick tasks. Tests that import this need Playground, with JAX.

Playground's own Python runs, constructors, resets and steps included; but with MuJoCo C at convergence, in float64, in
place of MJX. Meshes, which are in another repository and collide with nothing, are small tetrahedra.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import re
import struct
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import mujoco
import numpy as np
import oracle
import pytest

pytest.importorskip("mujoco_playground", reason="the extra playground is not installed")

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jp  # noqa: E402 (after the switch)
from mujoco_playground._src import mjx_env  # noqa: E402

from torch_mjenvs.playground.scenes import locomotion  # noqa: E402

PLACE = "mujoco_playground._src.locomotion"
CORNERS = ((0.0, 0.0, 0.0), (0.01, 0.0, 0.0), (0.0, 0.01, 0.0), (0.0, 0.0, 0.01))
FACES = ((0, 2, 1), (0, 1, 3), (0, 3, 2), (1, 2, 3))


@dataclasses.dataclass
class Data:
    """The fields of mjx.Data that Playground's tasks read."""

    qpos: jax.Array
    qvel: jax.Array
    ctrl: jax.Array
    xfrc_applied: jax.Array
    sensordata: jax.Array
    site_xpos: jax.Array
    site_xmat: jax.Array
    actuator_force: jax.Array
    qacc: jax.Array

    def replace(self, **changes: Any) -> Data:
        return dataclasses.replace(self, **changes)


STATE = "qpos", "qvel", "ctrl", "xfrc_applied"


def computed(model: mujoco.MjModel, state: Any, steps: int = 0) -> Data:
    """What MuJoCo C computes in so many steps from a state; without a step, mj_forward's."""
    d = mujoco.MjData(model)
    for name in STATE:
        getattr(d, name)[:] = np.asarray(getattr(state, name))
    mujoco.mj_step(model, d, steps) if steps else mujoco.mj_forward(model, d)
    fields = {x.name: jp.array(getattr(d, x.name)) for x in dataclasses.fields(Data)}
    return Data(**fields | {"site_xmat": fields["site_xmat"].reshape(-1, 3, 3)})


def tetrahedron(file: str) -> bytes:
    if file.lower().endswith(".obj"):
        lines = [f"v {x} {y} {z}" for x, y, z in CORNERS] + [f"f {a + 1} {b + 1} {c + 1}" for a, b, c in FACES]
        return "\n".join(lines).encode()
    triangles = [struct.pack("<12fH", 0, 0, 0, *(x for i in face for x in CORNERS[i]), 0) for face in FACES]
    return bytes(80) + struct.pack("<I", len(FACES)) + b"".join(triangles)


def assets(robot: str) -> dict[str, bytes]:
    """The files that a robot's scenes name."""
    folder = locomotion() / robot / "xmls"
    files = [*folder.rglob("*.*")]
    found = {x.name: x.read_bytes() for x in files if x.is_file()}
    texts = [x.read_text() for x in files if x.suffix == ".xml"]
    meshes = {y for x in texts for y in re.findall(r'file="([^"]+\.(?:stl|obj))"', x, re.IGNORECASE)}
    return found | {Path(x).name: tetrahedron(x) for x in meshes}


@functools.cache
def module_of(robot: str) -> ModuleType:
    return importlib.import_module(f"{PLACE}.{robot}.joystick")


def joystick(robot: str, terrain: str, changes: dict[str, Any]) -> Any:
    """Playground's task, made by its own constructor, with a model of MuJoCo C whose solver converges."""
    base = importlib.import_module(f"{PLACE}.{robot}.base")
    config = module_of(robot).default_config()
    scales = {x: y or 0.5 for x, y in config.reward_config.scales.items()}  # so that each term shows
    config.reward_config.scales.update(scales)
    with mock.patch.object(base, "get_assets", lambda: assets(robot)), mock.patch.object(base.mjx, "put_model", view):
        env = module_of(robot).Joystick(f"{terrain}_terrain", config, changes)
    option = oracle.sharpen(env.mj_model).opt
    option.ccd_iterations, option.ccd_tolerance = 500, 1e-12
    env.weights = scales
    return env


def view(model: mujoco.MjModel, impl: str) -> Any:
    return SimpleNamespace(nq=model.nq, nv=model.nv, nu=model.nu, nbody=model.nbody, impl=SimpleNamespace(value=impl),
                           c=model)  # fmt: skip


def begun(env: Any, qpos: np.ndarray, qvel: np.ndarray, seed: int = 0) -> Any:
    """Playground's reset, with this state in place of its own, and no ctrl yet."""
    zeros = {"ctrl": np.zeros(env.mj_model.nu), "xfrc_applied": np.zeros((env.mj_model.nbody, 6))}
    own = computed(env.mj_model, SimpleNamespace(qpos=qpos, qvel=qvel, **zeros))
    return reset(env, seed, own)


def reset(env: Any, seed: int, data: Data | None = None) -> Any:
    """Playground's reset by random numbers of its own; `data` stands for what it computes."""

    def make_data(model: mujoco.MjModel, qpos: Any, qvel: Any, ctrl: Any = None, **rest: Any) -> Any:
        pushes = np.zeros((model.nbody, 6))
        return SimpleNamespace(qpos=qpos, qvel=qvel, ctrl=ctrl if ctrl is not None else 0.0, xfrc_applied=pushes)

    mjx = module_of(type(env).__module__.split(".")[-2]).mjx
    forward = mock.patch.object(mjx, "forward", lambda m, d: data or computed(m.c, d))
    with mock.patch.object(mjx_env, "make_data", make_data), forward:
        return env.reset(jax.random.PRNGKey(seed))


def step(env: Any, state: Any, action: np.ndarray, drawn: dict[tuple[float, float], float]) -> Any:
    """Playground's step; what it draws between these bounds is given."""
    uniform = jax.random.uniform

    def given(*args: Any, minval: Any = 0.0, maxval: Any = 1.0, **rest: Any) -> Any:
        known = np.ndim(minval) == np.ndim(maxval) == 0 and drawn.get((float(minval), float(maxval)))
        return jp.array(known) if known else uniform(*args, minval=minval, maxval=maxval, **rest)

    physics = mock.patch.object(mjx_env, "step", lambda m, d, ctrl, n: computed(m.c, d.replace(ctrl=ctrl), n))
    choice = mock.patch.object(jax.lax, "cond", lambda which, yes, no, *args: yes(*args) if which else no(*args))
    with physics, choice, mock.patch.object(jax.random, "uniform", given):
        return env.step(state, jp.array(action))

"""dm_control as the oracle of its suite's tasks, with a solver that converges. Tests of it need dm_control."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Iterator
from typing import Any

import mujoco
import numpy as np
import pytest

pytest.importorskip("dm_control", reason="the extra dmc is not installed")

from torch_mjenvs.training import originals

suite = originals.suite()
logging.getLogger("absl").setLevel(logging.ERROR)


@functools.cache
def environment(name: str) -> Any:
    """dm_control's environment of a task such as "walker-walk", after a reset; its solver converges to rounding."""
    env = suite.load(*name.split("-", 1), task_kwargs={"random": 0})
    env.reset()
    option = env.physics.model.opt
    # MuJoCo's Newton over sparse matrices, its default from 60 dofs on, does not converge in 2 of 4,096 states of
    # humanoid_CMU: after 100 iterations the gradient is 8e2, and the cost 864,067. Over dense ones 4 iterations leave
    # 7e-11, and 247,868; so does its CG.
    option.jacobian = mujoco.mjtJacobian.mjJAC_DENSE
    option.tolerance = 0.0 if option.cone == mujoco.mjtCone.mjCONE_ELLIPTIC else 1e-22  # see oracle.sharpen
    option.ls_tolerance, option.ls_iterations = 1e-6, 100
    option.iterations = max(option.iterations, 100)
    option.ccd_tolerance, option.ccd_iterations = 1e-12, 200
    option.noslip_tolerance = 0.0
    return env


def target_geom(physics: Any, place: np.ndarray) -> None:
    physics.named.model.geom_pos["target"][: len(place)] = place
    if "target_light" in [physics.model.id2name(i, "light") for i in range(physics.model.nlight)]:
        physics.named.model.light_pos["target_light"][: len(place)] = place


def target_site(physics: Any, place: np.ndarray) -> None:
    x, _, z = physics.named.data.xanchor["hinge"]
    physics.named.model.site_pos["target", ["x", "z"]] = [x, z] + place


def target_body(physics: Any, place: np.ndarray) -> None:
    """Place the body whose name begins with "target" at (x, z), or with the orientation (qw, qy) as well."""
    names = [name for name in map(physics.model.id2name, range(physics.model.nbody), ["body"] * physics.model.nbody)]
    (name,) = (name for name in names if name.startswith("target"))
    physics.named.model.body_pos[name, ["x", "z"]] = place[:2]
    if len(place) > 2:
        physics.named.model.body_quat[name, ["qw", "qy"]] = place[2:]


# How to set in dm_control what our tasks remember.
PUT: dict[str, Callable[[Any, np.ndarray], None]] = {
    "reacher": target_geom, "swimmer": target_geom, "fish": target_geom, "finger": target_site,
    "manipulator": target_body, "stacker": target_body,
}  # fmt: skip


def put(env: Any, name: str, state: dict[str, np.ndarray]) -> None:
    """Put dm_control's environment into a state: qpos, qvel, act, and what is remembered and drawn by name."""
    physics = env.physics
    for field in ("qpos", "qvel", "act"):
        if field in state:
            getattr(physics.data, field)[:] = state[field]
    physics.data.qacc_warmstart[:] = 0
    for field, value in state.items():
        if field.startswith("memory "):
            PUT[name.split("-")[0]](physics, value)
        elif field.startswith("param "):
            getattr(physics.model, field.removeprefix("param "))[:] = value
    physics.data.time = 0
    physics.set_control(np.zeros(physics.model.nu))
    physics.forward()
    env._reset_next_step, env._step_count = False, 0


PLANE, SPHERE, ELLIPSOID, CYLINDER = (
    int(getattr(mujoco.mjtGeom, f"mjGEOM_{name}")) for name in ("PLANE", "SPHERE", "ELLIPSOID", "CYLINDER")
)


def rough(one: int, two: int) -> bool:
    """Tell whether MuJoCo finds the normal of two kinds of geoms to its tolerance, not to rounding: see limits.md."""
    return (ELLIPSOID in (one, two) and PLANE not in (one, two)) or (CYLINDER in (one, two) and min(one, two) > SPHERE)


@contextlib.contextmanager
def rough_touches(physics: Any) -> Iterator[list[int]]:
    """Watch a step for contacts of `rough` pairs: if there is one in any substep, the list is not empty.

    Models without ellipsoids and cylinders that collide are not watched, since they cannot have any.
    """
    mjm, found = physics.model.ptr, []
    watched = np.isin(mjm.geom_type[mjm.geom_contype > 0], (ELLIPSOID, CYLINDER)).any()
    if watched:
        d = mujoco.MjData(mjm)
        for name in ("qpos", "qvel", "act"):
            getattr(d, name)[:] = getattr(physics.data, name)
    yield found
    for _ in range(round((physics.data.time - d.time) / mjm.opt.timestep) if watched else 0):
        d.ctrl[:] = physics.data.ctrl
        mujoco.mj_step(mjm, d)
        found += [1 for x in d.contact if rough(mjm.geom_type[x.geom1], mjm.geom_type[x.geom2])]


def numbers(observation: Any) -> np.ndarray:
    return np.concatenate([np.ravel(x) for x in observation.values()])


def nearby(env: Any, name: str, state: dict[str, np.ndarray]) -> np.ndarray:
    """Return dm_control's observations (101, O) of this state, and of 100 that are equal to it but for rounding.

    In these, every position, velocity, drawn parameter and drawn place is the same number, or the next one up or down.
    """
    rng, found = np.random.default_rng(0), []
    drawn = [x for x in state if x in ("qpos", "qvel") or x.startswith(("memory ", "param "))]
    for k in range(101):
        near = {x: state[x] * (1 + (k > 0) * np.finfo(float).eps * rng.integers(-1, 2, state[x].shape)) for x in drawn}
        put(env, name, state | near)
        found.append(numbers(env.step(state["action"]).observation))
    return np.stack(found)


def apart(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return how far numbers are apart, relative to 1 + |y|."""
    return np.abs(x - y) / (1 + np.abs(y))


def loosely(env: Any, name: str, state: dict[str, np.ndarray]) -> np.ndarray:
    """Return dm_control's observation with MuJoCo's default accuracy for contacts of convex shapes."""
    option, default = env.physics.model.opt, mujoco.MjOption()
    sharp = option.ccd_tolerance, option.ccd_iterations
    option.ccd_tolerance, option.ccd_iterations = default.ccd_tolerance, default.ccd_iterations
    put(env, name, state)
    observation = numbers(env.step(state["action"]).observation)
    option.ccd_tolerance, option.ccd_iterations = sharp
    return observation

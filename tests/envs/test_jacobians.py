"""Jacobians, the whole mass matrix and `vectors.solve`, which tasks need to control an arm by where its hand is.

Oracle: mj_jac, mj_jacBody, mj_jacSite, mj_fullM and NumPy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
import oracle
import pytest
import torch

from torch_mjenvs import Outcome, Task, TorchVectorEnv
from torch_mjenvs.jacobians import jac, jac_body, jac_site, velocity
from torch_mjenvs.physics.loading.load import load
from torch_mjenvs.physics.pipeline import derive
from torch_mjenvs.vectors import solve

ARM = """<mujoco><option timestep="0.002"/>
<worldbody><geom type="plane" size="2 2 .1"/>
  <body pos=".1 .2 .5">
    <joint name="shoulder" axis="0 0 1"/><geom type="capsule" fromto="0 0 0 .3 0 .1" size=".03"/>
    <body name="fore" pos=".3 0 .1">
      <joint name="elbow" axis="0 1 0" armature=".01"/><joint name="rail" type="slide" axis="1 0 0" pos=".1 0 0"/>
      <geom type="capsule" fromto="0 0 0 .2 .1 0" size=".02"/>
      <body pos=".2 .1 0"><joint name="wrist" type="ball"/><geom type="box" size=".02 .03 .04" pos=".03 0 0"/>
        <body name="hand" pos=".05 0 0" quat="1 .2 0 .1"><site name="grip" pos=".02 .01 0"/><geom size=".02"/></body>
      </body>
    </body>
  </body>
  <body name="box" pos="40 0 1"><freejoint/><geom name="box" type="box" size=".1 .2 .3"/><site name="top" pos="0 0 .3"/>
  </body>
</worldbody></mujoco>"""


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", ["arm", "humanoid", "random-3", "random-8"])
def test_jacobians_are_mujocos(name: str, seed: int) -> None:
    mjm = mujoco.MjModel.from_xml_string(ARM) if name == "arm" else oracle.model(name)
    m, d, rng = load(mjm), mujoco.MjData(mjm), np.random.default_rng(seed)
    mujoco.mj_integratePos(mjm, d.qpos, rng.normal(0, 0.5, mjm.nv), 1.0)
    mujoco.mj_forward(mjm, d)
    still = [0.0] * mjm.nv
    data = derive(m, d.qpos.tolist(), still, still, [0.0] * mjm.nu, act=[0.0] * mjm.na)
    want_p, want_r = np.zeros((3, mjm.nv)), np.zeros((3, mjm.nv))

    def agrees(got: Any) -> None:
        np.testing.assert_allclose(got[0], want_p, rtol=0, atol=1e-12)
        np.testing.assert_allclose(got[1], want_r, rtol=0, atol=1e-12)

    for body in range(mjm.nbody):
        mujoco.mj_jacBody(mjm, d, want_p, want_r, body)
        agrees(jac_body(m, data, body))
        point = rng.normal(0, 1, 3)
        mujoco.mj_jac(mjm, d, want_p, want_r, point, body)
        agrees(jac(m, data, point.tolist(), body))
    for site in range(mjm.nsite):
        mujoco.mj_jacSite(mjm, d, want_p, want_r, site)
        agrees(jac_site(m, data, site))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", ["arm", "humanoid", "random-3", "random-8"])
def test_velocities_are_mujocos(name: str, seed: int) -> None:
    mjm = mujoco.MjModel.from_xml_string(ARM) if name == "arm" else oracle.model(name)
    m, d, rng, want = load(mjm), mujoco.MjData(mjm), np.random.default_rng(seed), np.zeros(6)
    mujoco.mj_integratePos(mjm, d.qpos, rng.normal(0, 0.5, mjm.nv), 1.0)
    d.qvel[:] = rng.normal(0, 1, mjm.nv)
    mujoco.mj_forward(mjm, d)
    still = [0.0] * mjm.nv
    data = derive(m, d.qpos.tolist(), d.qvel.tolist(), still, [0.0] * mjm.nu, act=[0.0] * mjm.na)
    found = 0
    for kind, count, of in (("XBODY", mjm.nbody, m.body), ("GEOM", mjm.ngeom, m.geom), ("SITE", mjm.nsite, m.site)):
        for k in range(count):
            mujoco.mj_objectVelocity(mjm, d, getattr(mujoco.mjtObj, f"mjOBJ_{kind}"), k, want, 0)
            linear, angular = velocity(m, data, of(k))
            np.testing.assert_allclose([*angular, *linear], want, rtol=0, atol=1e-12 * (1 + abs(want).max()))
            found += abs(want).max() > 0.1
    assert found > 1


def test_what_has_no_place_has_no_velocity() -> None:
    m = load(mujoco.MjModel.from_xml_string(ARM))
    with pytest.raises(TypeError, match="bodies, geoms and sites have velocities, and <joint 0 'shoulder'> is none"):
        velocity(m, derive(m, [*m.qpos0], [0.0] * m.nv, None, []), m.joint("shoulder"))


@dataclass(frozen=True)
class Seen(Task):
    """Shows what a controller of the arm's hand would use."""

    data = "fresh"

    xml_file: str = ""
    frame_skip: int = 1

    def load(self) -> mujoco.MjModel:
        return mujoco.MjModel.from_xml_string(ARM)

    def reset(self, m: Any, rng: Any) -> Any:
        wrist = m.joint("wrist").qpos
        qpos = [x if wrist.start <= k < wrist.stop else x + rng.normal() * 0.3 for k, x in enumerate(m.qpos0)]
        return qpos[:-4] + [1.0, 0.0, 0.0, 0.0], [rng.normal() for _ in range(m.nv)]

    def observe(self, m: Any, world: Any) -> dict[str, Any]:
        jacp, jacr = jac_site(m, world.data, m.site("grip"))
        inertia = world.data.M
        arm = [row[:6] for row in inertia[:6]]
        columns = [list(column)[:6] for column in zip(*jacp, strict=True)][:6]
        mobility = solve(arm, columns)  # M^-1 J'
        return {
            "jacp": jacp, "jacr": jacr, "M": inertia, "mobility": mobility,
            "qacc": solve(inertia, [-x for x in world.data.qfrc_bias]),
            "qpos": world.qpos, "qvel": world.qvel,
            "velocity": [x for v in velocity(m, world.data, m.body("hand")) for x in v],
        }  # fmt: skip

    def outcome(self, m: Any, before: Any, action: list[Any], after: Any) -> Outcome:
        return Outcome(0.0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_task_has_what_operational_space_control_needs(dtype: torch.dtype) -> None:
    env = TorchVectorEnv(Seen(), 5, dtype=dtype)
    obs, _ = env.reset(seed=0)
    seen = {name: x.double().cpu().numpy() for name, x in obs.items()}
    mjm = mujoco.MjModel.from_xml_string(ARM)
    d, atol = mujoco.MjData(mjm), 1e-11 if dtype == torch.float64 else 5e-4
    for k in range(5):
        d.qpos[:], d.qvel[:], moving = seen["qpos"][k], seen["qvel"][k], np.zeros(6)
        mujoco.mj_forward(mjm, d)
        mujoco.mj_objectVelocity(mjm, d, mujoco.mjtObj.mjOBJ_XBODY, mjm.body("hand").id, moving, 0)
        jacp, jacr, full = np.zeros((3, mjm.nv)), np.zeros((3, mjm.nv)), np.zeros((mjm.nv, mjm.nv))
        mujoco.mj_jacSite(mjm, d, jacp, jacr, mjm.site("grip").id)
        mujoco.mj_fullM(mjm, d, full)
        for name, want in (
            ("jacp", jacp), ("jacr", jacr), ("M", full), ("qacc", np.linalg.solve(full, -d.qfrc_bias)),
            ("mobility", np.linalg.solve(full[:6, :6], jacp[:, :6].T)), ("velocity", np.roll(moving, 3)),
        ):  # fmt: skip
            np.testing.assert_allclose(seen[name][k], want, rtol=0, atol=atol * (1 + abs(want).max()), err_msg=name)


@pytest.mark.parametrize("n", [0, 1, 3, 7])
def test_solve_is_numpys(n: int) -> None:
    rng = np.random.default_rng(n)
    a, b = rng.normal(size=(n, n)), rng.normal(size=(n, 4))
    a = a @ a.T + np.eye(n)
    np.testing.assert_allclose(solve(a.tolist(), b[:, 0].tolist()), np.linalg.solve(a, b[:, 0]), rtol=0, atol=1e-12)
    if n:
        np.testing.assert_allclose(solve(a.tolist(), b.tolist()), np.linalg.solve(a, b), rtol=0, atol=1e-12)
        below = np.tril(a).tolist()
        np.testing.assert_allclose(solve(below, b.tolist()), np.linalg.solve(a, b), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("a", "b"), [([[1.0, 0.0]], [1.0]), ([[1.0]], [1.0, 2.0])])
def test_sizes_that_do_not_fit_are_refused(a: Any, b: Any) -> None:
    with pytest.raises(ValueError, match="the matrix has rows of"):
        solve(a, b)

"""MuJoCo C as the oracle: models, states along real rollouts, and random MJCF. Used by all tests of physics.

Everything is seeded; nothing here imports the package under test.
"""

from __future__ import annotations

import decimal
import functools
import itertools
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import gymnasium
import mujoco
import numpy as np
import torch

ASSETS = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"
MODELS = ("half_cheetah", "walker2d_v5", "hopper", "ant", "humanoid")


@functools.cache
def asset(name: str) -> mujoco.MjModel:
    """Gymnasium's model, with a solver that converges: see `sharpen`."""
    return sharpen(mujoco.MjModel.from_xml_path(str(ASSETS / f"{name}.xml")))


def sharpen(mjm: mujoco.MjModel) -> mujoco.MjModel:
    """Have the oracle solve its constraints to rounding.

    With a tolerance of 0 it makes all its iterations instead of 2, since no improvement is less than 0, and a step
    takes 40 times as long. Elliptic cones need that; elsewhere accelerations are the same to 1e-13 without it.
    """
    mjm.opt.solver = mujoco.mjtSolver.mjSOL_NEWTON
    mjm.opt.iterations = 100
    mjm.opt.ls_iterations = 100
    mjm.opt.tolerance = 0.0 if mjm.opt.cone == mujoco.mjtCone.mjCONE_ELLIPTIC else 1e-22
    mjm.opt.ls_tolerance = 1e-6
    return mjm


@functools.cache
def model(name: str) -> mujoco.MjModel:
    """The model called `name`: one of `MODELS`, or "random-<seed>"."""
    if name.startswith("random-"):
        return sharpen(mujoco.MjModel.from_xml_string(random_mjcf(int(name.split("-")[1]))))
    return asset(name)


@functools.cache
def states(name: str, n: int = 8, seed: int = 0) -> tuple[tuple[np.ndarray, np.ndarray, np.ndarray], ...]:
    """n states (qpos, qvel, ctrl) along random rollouts: in the air, in contact, at limits, fallen."""
    mjm, rng = model(name), np.random.default_rng(seed)
    d = mujoco.MjData(mjm)
    out = []
    for k in range(n):
        if k % 4 == 0:
            _start(mjm, d, rng)
        for _ in range(int(rng.integers(1, 60))):
            d.ctrl[:] = rng.uniform(-1.2, 1.2, mjm.nu)
            mujoco.mj_step(mjm, d)
        out.append((d.qpos.copy(), d.qvel.copy(), rng.uniform(-1.2, 1.2, mjm.nu)))
    return tuple(out)


def _start(mjm: mujoco.MjModel, d: mujoco.MjData, rng: np.random.Generator) -> None:
    mujoco.mj_resetData(mjm, d)
    mujoco.mj_integratePos(mjm, d.qpos, rng.normal(0, 0.2, mjm.nv), 1.0)
    d.qvel[:] = rng.normal(0, 1.0, mjm.nv)


def forward(mjm: mujoco.MjModel, qpos: np.ndarray, qvel: np.ndarray, ctrl: np.ndarray) -> mujoco.MjData:
    """MjData after mj_forward at a state."""
    d = mujoco.MjData(mjm)
    d.qpos[:], d.qvel[:], d.ctrl[:] = qpos, qvel, ctrl
    mujoco.mj_forward(mjm, d)
    return d


def scattered(
    mjm: mujoco.MjModel, n: int, spread: float = 0.15, speeds: Sequence[float] = (1.0,)
) -> list[tuple[np.ndarray, np.ndarray]]:
    """n states (qpos, qvel) around the model's own, at the given speeds in turn."""
    rng, out = np.random.default_rng(0), []
    for k in range(n):
        qpos = mjm.qpos0.copy()
        mujoco.mj_integratePos(mjm, qpos, rng.normal(0, spread, mjm.nv), 1.0)
        out.append((qpos, rng.normal(0, speeds[k % len(speeds)], mjm.nv)))
    return out


def compare_steps(
    sim: Any,
    mjm: mujoco.MjModel,
    states: Sequence[Sequence[np.ndarray]],
    steps: int,
    times: int = 1,
    names: Sequence[str] = ("qpos", "qvel"),
    bound: float = 1e-9,
) -> list[mujoco.MjData]:
    """Assert that a float64 `Simulation` goes where MuJoCo goes from the same states (qpos, qvel, ctrl if there are
    any).

    Fields are compared `times` times, each time after `steps` steps, relative to their largest entry, or 1. Returns
    MuJoCo's data of every world.
    """
    theirs = [mujoco.MjData(mjm) for _ in states]
    _put(sim, states)
    for d, state in zip(theirs, states, strict=True):
        for name, x in zip(("qpos", "qvel", "ctrl"), state, strict=False):
            getattr(d, name)[:] = x
    for _ in range(times):
        sim.step(steps)
        for k, d in enumerate(theirs):
            mujoco.mj_step(mjm, d, steps)
            if "cfrc_ext" in names:
                mujoco.mj_rnePostConstraint(mjm, d)
            for name in names:
                want, got = field(mjm, d, name), getattr(sim, name)[k].cpu().numpy()
                atol = bound * max(1.0, np.abs(want).max(initial=0.0))
                np.testing.assert_allclose(got, want, rtol=0, atol=atol, err_msg=f"{name} of world {k}")
    return theirs


def compare_float32(sim: Any, mjm: mujoco.MjModel, states: Sequence[Sequence[np.ndarray]]) -> None:
    """Assert that a float32 `Simulation` has MuJoCo's accelerations of the rounded states, to 1e-3 of the largest.

    After a step, except by RK4, they are those of the state in which it began. `forward` would be a second kernel to
    compile.
    """
    assert mjm.opt.integrator != mujoco.mjtIntegrator.mjINT_RK4
    _put(sim, states)
    qpos, qvel = sim.qpos.double().cpu().numpy(), sim.qvel.double().cpu().numpy()
    sim.step()
    for k in range(len(states)):
        want = forward(mjm, qpos[k], qvel[k], np.zeros(mjm.nu)).qacc
        np.testing.assert_allclose(sim.qacc[k].cpu().numpy(), want, rtol=0, atol=1e-3 * np.abs(want).max())


def _put(sim: Any, states: Sequence[Sequence[np.ndarray]]) -> None:
    for k, state in enumerate(states):
        for name, x in zip(("qpos", "qvel", "ctrl"), state, strict=False):
            getattr(sim, name)[k] = torch.tensor(x)


SMALL = Decimal("1e-30")


def exact_qacc(mjm: mujoco.MjModel, d: mujoco.MjData) -> np.ndarray:
    """The minimum of the constraint problem that mj_forward has posed, by Newton's method at 50 digits.

    For rows so stiff that MuJoCo's own answer is useless. Python's decimals are written in C: mpmath takes ten times as
    long.
    """
    with decimal.localcontext(prec=50):
        m, force, n = _exact(field(mjm, d, "M")), _exact(d.qfrc_smooth), d.nefc
        a = _solve(m, force)
        if not n:
            return a.astype(float)
        jacobian, stiffness, wanted = _exact(d.efc_J.reshape(n, -1)), _exact(d.efc_D), _exact(d.efc_aref)
        if mujoco.mjtConstraint.mjCNSTR_CONTACT_ELLIPTIC in d.efc_type:
            return _exact_of_cones(d, m, force, jacobian, stiffness, wanted, a)
        for _ in range(200):
            e = jacobian @ a - wanted
            pressed = e < 0
            rows = jacobian[pressed]
            gradient = m @ a - force + rows.T @ (stiffness[pressed] * e[pressed])
            dx = -_solve(m + rows.T @ (stiffness[pressed][:, None] * rows), gradient)
            if max(abs(dx)) < SMALL * (1 + max(abs(a))):
                return a.astype(float)
            a = a + _share(m @ a - force, m @ dx, dx, e, jacobian @ dx, stiffness) * dx
    raise AssertionError("no minimum found")


def _exact(x: np.ndarray) -> np.ndarray:
    """The same numbers as decimals."""
    return np.vectorize(Decimal, otypes=[object])(x)


def _solve(matrix: np.ndarray, x: np.ndarray) -> np.ndarray:
    """matrix^-1 x by elimination, the largest of a column first."""
    rows, n = np.column_stack([matrix, x]), len(x)
    for k in range(n):
        best = k + int(np.argmax(abs(rows[k:, k])))
        rows[[k, best]] = rows[[best, k]]
        rows[k + 1 :, k:] -= np.outer(rows[k + 1 :, k] / rows[k, k], rows[k, k:])
    for k in range(n - 1, -1, -1):
        rows[k, n] = (rows[k, n] - sum(rows[k, k + 1 : n] * rows[k + 1 :, n])) / rows[k, k]
    return rows[:, n]


def _exact_of_cones(d: mujoco.MjData, m: np.ndarray, force: np.ndarray, jacobian: np.ndarray, stiffness: np.ndarray,
                    wanted: np.ndarray, a: np.ndarray) -> np.ndarray:  # fmt: skip
    """Solve it if all rows are of contacts: from MuJoCo's answer, by steps that are halved while the cost grows."""
    contacts = [c for c in d.contact if c.efc_address >= 0]
    assert sum(c.dim for c in contacts) == d.nefc
    free, a = a, _exact(d.qacc)

    def cost(a: np.ndarray) -> tuple:
        """Value, gradient, and curvature."""
        total = (a - free) @ (m @ (a - free)) / 2
        gradient, hessian = m @ a - force, m.copy()
        for c in contacts:
            rows = slice(c.efc_address, c.efc_address + c.dim)
            value, slope, curve = _of_cone(jacobian[rows] @ a - wanted[rows], stiffness[rows], c.mu)
            total, gradient = total + value, gradient + jacobian[rows].T @ slope
            hessian = hessian + jacobian[rows].T @ curve @ jacobian[rows]
        return total, gradient, hessian

    for _ in range(30):
        before, gradient, hessian = cost(a)
        dx = -_solve(hessian, gradient)
        if max(abs(dx)) < SMALL * (1 + max(abs(a))):
            return a.astype(float)
        while cost(a + dx)[0] > before:
            dx = dx / 2
        a = a + dx
    raise AssertionError("no minimum found")


def _of_cone(e: np.ndarray, stiffness: np.ndarray, mu: float) -> tuple:
    """Cost of a contact, its gradient and its curvature: in units in which all rows have stiffness 1, the cost is half
    the square of the distance to a cone, which is mu high at radius 1.
    """
    root = np.array([x.sqrt() for x in stiffness])
    z, mu, one = root * e, Decimal(mu), np.diag([Decimal(1)] * len(e))
    t = Decimal(sum(z[1:] ** 2)).sqrt()
    if z[0] >= mu * t:
        return 0, 0 * z, 0 * one
    if mu * z[0] + t <= 0:
        return z @ z / 2, root * z, root[:, None] * one * root
    gap, u = z[0] - mu * t, z[1:] / t
    way = np.array([Decimal(1), *(-mu * u)])
    bend = 0 * one
    bend[1:, 1:] = -mu * gap / t * (one[1:, 1:] - np.outer(u, u))
    share = 1 / (1 + mu * mu)
    return share * gap**2 / 2, share * gap * root * way, share * root[:, None] * (np.outer(way, way) + bend) * root


def _share(rest: np.ndarray, m_dx: np.ndarray, dx: np.ndarray, e: np.ndarray, v: np.ndarray, stiffness: np.ndarray):
    """Return how far along dx the cost is least: between rows' changes of sign its derivative is linear."""

    def derivative(share):
        at = e + share * v
        return dx @ (rest + share * m_dx) + (stiffness * np.where(at < 0, at, 0)) @ v

    ends = [Decimal(0), *sorted(-x / y for x, y in zip(e, v, strict=True) if y and 0 < -x / y < 1), Decimal(1)]
    for low, high in itertools.pairwise(ends):
        if derivative(high) > 0:
            first, last = derivative(low), derivative(high)
            return low + (high - low) * first / (first - last)
    return ends[-1]


def field(mjm: mujoco.MjModel, d: mujoco.MjData, name: str) -> np.ndarray:
    """A field of MjData; "M" is dense."""
    if name != "M":
        return np.asarray(getattr(d, name))
    full = np.zeros((mjm.nv, mjm.nv))
    mujoco.mj_fullM(mjm, d, full)
    return full


# random models


def random_mjcf(seed: int) -> str:
    """MJCF of one or two random trees: every supported joint, geom, spring, damper and motor may turn up in it."""
    rng = np.random.default_rng(seed)
    maker = _Maker(rng)
    trees = "".join(maker.body(0, root=True) for _ in range(int(rng.integers(1, 3))))
    ground = '<geom name="floor" type="plane" size="5 5 1" conaffinity="1" contype="1" margin="0.002"/>'
    integrator = rng.choice(["Euler", "RK4"])
    return f"""<mujoco>
  <compiler angle="radian" autolimits="true"/>
  <option timestep="0.004" integrator="{integrator}" gravity="0.3 0 -9.81"/>
  <default><geom conaffinity="1" contype="1"/></default>
  <worldbody>{ground}{trees}</worldbody>
  <actuator>{maker.motors()}</actuator>
</mujoco>"""


class _Maker:
    def __init__(self, rng: np.random.Generator):
        self.rng, self.joints, self.count = rng, [], 0

    def vec(self, scale: float, n: int = 3) -> str:
        return " ".join(f"{x:.4f}" for x in self.rng.normal(0, scale, n))

    def body(self, depth: int, root: bool = False) -> str:
        rng = self.rng
        place = f"{self.vec(0.3, 2)} {0.8 + rng.random():.3f}" if root else self.vec(0.3)
        turned = f'quat="{self.vec(1, 4)}"' if rng.random() < 0.6 else ""
        geoms = "".join(self.geom() for _ in range(int(rng.integers(1, 3))))
        children = int(rng.integers(0, 3)) if depth < 3 else 0
        inner = "".join(self.body(depth + 1) for _ in range(children))
        return f'<body pos="{place}" {turned}>{self.body_joints(root)}{geoms}{inner}</body>'

    def body_joints(self, root: bool) -> str:
        kind = self.rng.choice(["free", "ball", "scalar", "none"] if root else ["ball", "scalar", "scalar", "none"])
        if kind == "none":
            return ""
        if kind == "free":
            return "<freejoint/>"
        if kind == "ball":
            return self.joint("ball")
        return "".join(
            self.joint(str(self.rng.choice(["hinge", "slide"]))) for _ in range(int(self.rng.integers(1, 4)))
        )

    def joint(self, kind: str) -> str:
        rng = self.rng
        name = f"j{self.count}"
        self.count += 1
        out = f'<joint name="{name}" type="{kind}" damping="{rng.random():.3f}" armature="{rng.random():.3f}"'
        if rng.random() < 0.5:
            out += f' stiffness="{5 * rng.random():.3f}"'
        if kind != "slide" and rng.random() < 0.6:
            out += f' pos="{self.vec(0.1)}"'
        if kind == "ball":
            return out + "/>"
        self.joints.append(name)
        axis = self.vec(1) if rng.random() < 0.4 else str(rng.choice(["1 0 0", "0 1 0", "0 0 1", "0 -1 0", "-1 1 0"]))
        out += f' axis="{axis}" ref="{rng.normal(0, 0.2):.3f}" springref="{rng.normal(0, 0.2):.3f}"'
        if rng.random() < 0.5:
            out += f' range="{-rng.random():.3f} {rng.random():.3f}"'
        if rng.random() < 0.2:
            out += ' actuatorfrcrange="-2 3"'
        return out + "/>"

    def geom(self) -> str:
        rng = self.rng
        shape = f'pos="{self.vec(0.1)}" density="{rng.uniform(300, 2000):.1f}" friction="{rng.uniform(0.2, 1.2):.3f}"'
        if rng.random() < 0.5:
            return f'<geom type="sphere" size="{rng.uniform(0.05, 0.15):.3f}" {shape}/>'
        size = f"{rng.uniform(0.03, 0.1):.3f} {rng.uniform(0.05, 0.3):.3f}"
        return f'<geom type="capsule" size="{size}" quat="{self.vec(1, 4)}" {shape}/>'

    def motors(self) -> str:
        rng = self.rng
        out = ""
        for name in self.joints:
            if rng.random() < 0.7:
                out += f'<motor joint="{name}" gear="{rng.uniform(-3, 3):.3f}" ctrlrange="-1 1"'
                out += ' forcerange="-0.6 0.5"/>' if rng.random() < 0.3 else "/>"
        return out

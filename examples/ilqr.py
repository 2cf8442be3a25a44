"""Model-predictive control by iLQR with exact derivatives: a cart-pole that swings up, or HalfCheetah that runs.

    python examples/ilqr.py                                # the cart-pole, and its picture in ilqr.png
    python examples/ilqr.py --robot halfcheetah --steps 250
    python examples/ilqr.py --differences                  # with mjd_transitionFD in place of Simulation.linearize

At each control step the plan of the next T steps is improved once: derivatives along it (`Simulation.linearize`, all
knots at once), a backward sweep that gives feedback gains, and trials of several step lengths, one world each. Then the
first action is taken, and the plan is shifted by one step. Both robots' coordinates are angles and lengths, so
differences of states are tangents.

Shapes: T knots, K trials, n = 2 nv numbers in a state x, R residuals; the cost is half the sum of their squares.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import gymnasium
import mujoco
import numpy as np
import torch

from torch_mjenvs import Simulation

CART_POLE = """
<mujoco>
  <option timestep="0.01" integrator="implicitfast"/>
  <worldbody>
    <body name="cart">
      <joint name="slide" type="slide" axis="1 0 0" damping="0.1"/><geom type="box" size="0.2 0.1 0.1" mass="1"/>
      <body name="pole">
        <joint name="hinge" type="hinge" axis="0 1 0" damping="0.002"/>
        <geom type="capsule" size="0.04" fromto="0 0 0 0 0 0.6" mass="0.1" contype="0" conaffinity="0"/>
      </body>
    </body>
  </worldbody>
  <actuator><motor joint="slide" gear="10" ctrllimited="true" ctrlrange="-1 1"/></actuator>
</mujoco>
"""
LENGTHS = (1.0, 0.5, 0.2, 0.05, 0.0)  # of trial steps; 0 keeps the plan, and only adds the feedback


@dataclass(frozen=True)
class Robot:
    """A robot and its goal: residuals of a state (..., n) and a control (..., nu), and how far to look ahead."""

    model: mujoco.MjModel
    residuals: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    knots: int
    substeps: int
    start: np.ndarray


class Plan(NamedTuple):
    """Controls (T, nu) and the states (T + 1, n) that they lead through."""

    x: torch.Tensor
    u: torch.Tensor


def cart_pole() -> Robot:
    """Return a pole that hangs below its cart and has to stand on it, in the middle."""

    def residuals(x: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        place, angle, speed, turning = x.unbind(-1)
        return torch.stack([2 * torch.sin(angle / 2), 0.5 * place, 0.1 * speed, 0.1 * turning, 0.1 * u[..., 0]], -1)

    model = mujoco.MjModel.from_xml_string(CART_POLE)
    return Robot(model, residuals, knots=60, substeps=2, start=np.array([0.0, np.pi - 0.05, 0.0, 0.0]))


def half_cheetah(speed: float = 3.0) -> Robot:
    """Return Gymnasium's HalfCheetah, which has to run at a given speed, upright, with little effort."""
    model = gymnasium.make("HalfCheetah-v5").unwrapped.model

    def residuals(x: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        nv = model.nv
        body = [x[..., nv] - speed, 3.0 * (x[..., 1] + 0.05), 2.0 * x[..., 2], 0.1 * x[..., nv + 2]]
        return torch.cat([torch.stack(body, -1), 0.2 * u, 0.05 * x[..., 3:nv]], -1)

    return Robot(model, residuals, knots=40, substeps=2, start=np.zeros(2 * model.nv))


ROBOTS = {"cartpole": cart_pole, "halfcheetah": half_cheetah}


class Controller:
    """iLQR in receding horizon."""

    def __init__(self, robot: Robot, differences: bool = False):
        m = robot.model
        self.robot, self.differences, self.nv, self.nu = robot, differences, m.nv, m.nu
        self.worlds = Simulation(m, len(LENGTHS), dtype=torch.float64)  # one per trial
        self.low, self.high = torch.tensor(m.actuator_ctrlrange.T.copy())
        self.damping, self.data = 1e-6, mujoco.MjData(m)
        by_both = torch.func.vmap(torch.func.jacrev(robot.residuals, argnums=(0, 1)))
        self.residual_jacobians = by_both
        self.seconds = {"derivatives": 0.0, "sweep": 0.0, "trials": 0.0}

    def first(self, x: torch.Tensor) -> Plan:
        """Return a plan that begins in x, of small controls."""
        u = 0.1 * torch.randn(self.robot.knots, self.nu, dtype=x.dtype, generator=torch.Generator().manual_seed(0))
        none = torch.zeros(self.robot.knots, self.nu, 2 * self.nv, dtype=x.dtype)
        return self.tried(Plan(x.expand(len(u) + 1, -1), u), torch.zeros_like(u), none)[0]

    def improve(self, plan: Plan) -> tuple[Plan, float]:
        """Return a plan that is no worse, and its cost."""
        A, B = self.timed("derivatives", lambda: self.linearized(plan))
        k, gains = self.timed("sweep", lambda: self.swept(plan, A, B))
        return self.timed("trials", lambda: self.tried(plan, k, gains))

    def moved_on(self, plan: Plan, x: torch.Tensor) -> Plan:
        """Return the rest of a plan, from the state x on, with its last control once more."""
        return Plan(torch.cat([x[None], plan.x[2:], plan.x[-1:]]), torch.cat([plan.u[1:], plan.u[-1:]]))

    def linearized(self, plan: Plan) -> tuple[np.ndarray, np.ndarray]:
        """Return A (T, n, n) and B (T, n, nu) along a plan."""
        x, u = plan.x[:-1], plan.u
        if not self.differences:
            A, B, *_ = self.worlds.linearize(x[:, : self.nv], x[:, self.nv :], u, nstep=self.robot.substeps)
            return A.numpy(), B.numpy()
        m, d, n = self.robot.model, self.data, 2 * self.nv
        As, Bs = np.zeros((len(u), n, n)), np.zeros((len(u), n, self.nu))
        for t, (state, ctrl) in enumerate(zip(x.numpy(), u.numpy(), strict=True)):
            d.qpos[:], d.qvel[:], d.ctrl[:], d.qacc_warmstart[:] = *np.split(state, 2), ctrl, 0.0
            A, B = np.eye(n), np.zeros((n, self.nu))
            for _ in range(self.robot.substeps):
                one, by_ctrl = np.zeros((n, n)), np.zeros((n, self.nu))
                mujoco.mjd_transitionFD(m, d, 1e-6, True, one, by_ctrl, None, None)
                A, B = one @ A, one @ B + by_ctrl
                mujoco.mj_step(m, d)
            As[t], Bs[t] = A, B
        return As, Bs

    def swept(self, plan: Plan, A: np.ndarray, B: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """Return changes of controls (T, nu), and gains (T, nu, n), by dynamic programming from the end."""
        x, u = plan.x, torch.cat([plan.u, plan.u[-1:]])
        r = self.robot.residuals(x, u).numpy()
        Jx, Ju = (J.numpy() for J in self.residual_jacobians(x, u))
        Vx, Vxx = Jx[-1].T @ r[-1], Jx[-1].T @ Jx[-1]
        ks, gains = np.zeros(plan.u.shape), np.zeros((*plan.u.shape, x.shape[1]))
        for t in reversed(range(len(plan.u))):
            J, both = np.concatenate([Jx[t], Ju[t]], 1), np.concatenate([A[t], B[t]], 1)
            q, Q = J.T @ r[t] + both.T @ Vx, J.T @ J + both.T @ Vxx @ both
            n = x.shape[1]
            Quu = Q[n:, n:] + self.damping * np.eye(self.nu)
            solved = -np.linalg.solve(Quu, np.concatenate([q[n:, None], Q[n:, :n]], 1))
            ks[t], gains[t] = solved[:, 0], solved[:, 1:]
            Vx = q[:n] + Q[:n, n:] @ ks[t]
            Vxx = Q[:n, :n] + Q[:n, n:] @ gains[t]
            Vxx = (Vxx + Vxx.T) / 2
        return torch.tensor(ks), torch.tensor(gains)

    def tried(self, plan: Plan, k: torch.Tensor, gains: torch.Tensor) -> tuple[Plan, float]:
        """Return the best of the trials, one for each of LENGTHS, and its cost."""
        sim, lengths = self.worlds, torch.tensor(LENGTHS, dtype=k.dtype)
        sim.qpos.copy_(plan.x[0, : self.nv].expand_as(sim.qpos))
        sim.qvel.copy_(plan.x[0, self.nv :].expand_as(sim.qvel))
        sim.qacc_warmstart.zero_()
        xs, us = [torch.cat([sim.qpos, sim.qvel], 1)], []
        ahead = lengths[:, None, None] * k + plan.u  # (K, T, nu)
        for t in range(len(k)):
            u = ahead[:, t] + (xs[-1] - plan.x[t]) @ gains[t].T
            us.append(torch.clamp(u, self.low, self.high))
            sim.ctrl.copy_(us[-1])
            sim.step(self.robot.substeps)
            xs.append(torch.cat([sim.qpos, sim.qvel], 1))
        x, u = torch.stack(xs, 1), torch.stack(us, 1)
        cost = 0.5 * self.robot.residuals(x, torch.cat([u, u[:, -1:]], 1)).square().sum((1, 2))
        best = int(cost.nan_to_num(torch.inf).argmin())
        return Plan(x[best], u[best]), float(cost[best])

    def timed(self, name: str, what: Callable[[], tuple]) -> tuple:
        """Return what a function gives, and count its processor time."""
        begun = time.process_time()
        found = what()
        self.seconds[name] += time.process_time() - begun
        return found


def control(robot: Robot, steps: int, differences: bool = False) -> tuple[np.ndarray, np.ndarray, Controller, float]:
    """Control MuJoCo's own robot for so many steps. Returns states, controls, the controller and seconds of a core."""
    controller, d = Controller(robot, differences), mujoco.MjData(robot.model)
    d.qpos[:] = d.qpos + robot.start[: robot.model.nq]
    d.qvel[:] = robot.start[robot.model.nq :]

    def state() -> torch.Tensor:
        return torch.tensor(np.concatenate([d.qpos, d.qvel]))

    plan = controller.first(state())
    for _ in range(10):
        plan, _ = controller.improve(plan)
    controller.seconds = dict.fromkeys(controller.seconds, 0.0)
    states, controls = [state().numpy()], []
    begun = time.process_time()
    for _ in range(steps):
        plan, _ = controller.improve(plan)
        d.ctrl[:] = plan.u[0].numpy()
        mujoco.mj_step(robot.model, d, robot.substeps)
        plan = controller.moved_on(plan, state())
        states.append(state().numpy())
        controls.append(d.ctrl.copy())
    return np.stack(states), np.stack(controls), controller, time.process_time() - begun


def draw(robot: Robot, states: np.ndarray, controls: np.ndarray, path: str) -> None:
    """Draw the robot's first two coordinates, or its speed, and its controls over time."""
    from matplotlib import pyplot as plt

    dt = robot.model.opt.timestep * robot.substeps
    t, nv = dt * np.arange(len(states)), robot.model.nv
    figure, (above, below) = plt.subplots(2, 1, figsize=(7, 4), sharex=True)
    if nv == 2:
        above.plot(t, np.degrees(states[:, 1]), label="angle of the pole (degrees; 0 and 360 are upright)")
        above.plot(t, 100 * states[:, 0], label="place of the cart (cm)")
    else:
        above.plot(t, states[:, nv], label="speed (m/s)")
        above.plot(t, states[:, 2], label="pitch (rad)")
    above.legend()
    below.plot(t[:-1], controls)
    below.set(xlabel="seconds", ylabel="controls")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--robot", choices=ROBOTS, default="cartpole")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--differences", action="store_true", help="by mjd_transitionFD")
    parser.add_argument("--picture", default="ilqr.png")
    given = parser.parse_args()
    torch.set_num_threads(1)
    robot = ROBOTS[given.robot]()
    states, controls, controller, seconds = control(robot, given.steps, given.differences)
    lasted = given.steps * robot.substeps * robot.model.opt.timestep
    parts = ", ".join(f"{name} {1e3 * x / given.steps:.1f} ms" for name, x in controller.seconds.items())
    print(f"{lasted:.1f} s were controlled in {seconds:.1f} s of a core; a step: {parts}")
    half, nv = states[len(states) // 2 :], robot.model.nv
    tilt = np.abs(2 * np.arcsin(np.sin(half[:, 1] / 2))).max()
    print("in the second half:", f"{half[:, nv].mean():.2f} m/s" if nv > 2 else f"at most {tilt:.3f} rad from upright")
    draw(robot, states, controls, given.picture)


if __name__ == "__main__":
    main()

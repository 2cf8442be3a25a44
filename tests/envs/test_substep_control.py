"""Tasks that compute ctrl in every substep, such as operational space control of an arm.

Oracle: the same controller in NumPy around MuJoCo C's mj_step1 and mj_step2.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
import oracle
import pytest
import torch

from torch_mjenvs import Control, Outcome, Start, Task, TorchEnv, TorchVectorEnv
from torch_mjenvs.jacobians import jac_site
from torch_mjenvs.physics import UnsupportedModel
from torch_mjenvs.scalar import cos, select, sin
from torch_mjenvs.vectors import dot, solve, sub

XML = """<mujoco><option timestep="0.002"/>
<worldbody><geom name="floor" type="plane" size="2 2 .1"/>
  <body pos="0 0 .3"><joint name="base" axis="0 0 1"/>
    <geom type="capsule" fromto="0 0 0 0 0 .1" size=".04" contype="0" conaffinity="0"/>
    <body pos="0 0 .1"><joint name="shoulder" axis="0 1 0"/><geom type="capsule" fromto="0 0 0 .3 0 0" size=".03"/>
      <body pos=".3 0 0"><joint name="elbow" axis="0 1 0"/><geom type="capsule" fromto="0 0 0 .3 0 0" size=".02"/>
        <body pos=".3 0 0"><joint name="roll" axis="1 0 0" armature=".001"/><geom size=".03" friction=".5"/>
          <site name="grip" pos=".04 .01 0"/></body></body></body></body>
  <body name="ball" pos=".5 .1 .05"><freejoint/><geom size=".05" mass=".2"/></body>
  <body name="mark" mocap="true" pos="0 0 1"/>
</worldbody>
<actuator><motor name="base" joint="base"/><motor joint="shoulder"/><motor joint="elbow"/><motor joint="roll"/>
</actuator>
<sensor><actuatorfrc name="torque" actuator="base"/></sensor></mujoco>"""
HOME = [0.0, -0.6, 1.4, 0.0, 0.5, 0.1, 0.05, 1.0, 0.0, 0.0, 0.0]
KP, KD = 150.0, 2 * 150.0**0.5


@dataclass(frozen=True)
class Reach(Task):
    """The action moves the goal of the hand, by up to 5 cm, and the force at the hand follows it."""

    data = "fresh"
    inputs = ("mocap_pos",)
    xml_file: str = ""
    frame_skip: int = 10

    def load(self) -> mujoco.MjModel:
        return oracle.sharpen(mujoco.MjModel.from_xml_string(XML))

    def action_space(self, m: Any) -> tuple[list[float], list[float]]:
        return [-1.0] * 3, [1.0] * 3

    def memory(self, m: Any) -> dict[str, Any]:
        return {"gain": KP}

    def reset(self, m: Any, rng: Any) -> Start:
        arm = [x + rng.uniform(-0.2, 0.2) for x in HOME[:4]]
        return Start(arm + HOME[4:], [0.0] * m.nv, mocap_pos={"mark": [0.0, 0.0, 1.0]})

    def control(self, m: Any, world: Any, action: list[Any]) -> Control:
        goal = [x + 0.05 * a for x, a in zip(world.data.site_xpos[m.site("grip")], action, strict=True)]
        return Control(goal, mocap_pos={"mark": goal})

    def substep_control(self, m: Any, world: Any, targets: list[Any]) -> list[Any]:
        d = world.data
        jacp, _ = jac_site(m, d, m.site("grip"))
        arm = [row[:4] for row in jacp]
        mobility = solve([row[:4] for row in d.M[:4]], [list(x) for x in zip(*arm, strict=True)])  # M^-1 J'
        yielding = [[dot(row, x) for x in zip(*mobility, strict=True)] for row in arm]  # J M^-1 J'
        speed = [dot(row, world.qvel[:4]) for row in arm]
        wanted = [
            world.memory["gain"] * x - KD * v
            for x, v in zip(sub(targets, d.site_xpos[m.site("grip")]), speed, strict=True)
        ]
        regular = [[x + (1e-3 if i == j else 0.0) for j, x in enumerate(row)] for i, row in enumerate(yielding)]
        force = solve(regular, wanted)
        shown = 1e-6 * d.mocap_pos[0][2]
        return [
            dot(column, force) + bias + shown
            for column, bias in zip(zip(*arm, strict=True), d.qfrc_bias[:4], strict=True)
        ]

    def observe(self, m: Any, world: Any) -> list[Any]:
        return [*world.qpos, *world.qvel, *world.data.site_xpos[m.site("grip")], *world.data.actuator_force]

    def outcome(self, m: Any, before: Any, action: list[Any], after: Any) -> Outcome:
        return Outcome(after.data.sensordata[m.sensor("torque")][0])


def in_numpy(mjm: mujoco.MjModel, d: mujoco.MjData, goal: np.ndarray) -> None:
    """What `Reach` does in a step."""
    site, jacp, full = mjm.site("grip").id, np.zeros((3, mjm.nv)), np.zeros((mjm.nv, mjm.nv))
    for _ in range(10):
        mujoco.mj_step1(mjm, d)
        mujoco.mj_jacSite(mjm, d, jacp, None, site)
        mujoco.mj_fullM(mjm, d, full)
        arm = jacp[:, :4]
        yielding = arm @ np.linalg.inv(full[:4, :4]) @ arm.T + 1e-3 * np.eye(3)
        wanted = KP * (goal - d.site_xpos[site]) - KD * arm @ d.qvel[:4]
        d.ctrl[:] = arm.T @ np.linalg.solve(yielding, wanted) + d.qfrc_bias[:4] + 1e-6 * goal[2]
        mujoco.mj_step2(mjm, d)
    mujoco.mj_step1(mjm, d)


def test_steps_are_those_of_a_loop_around_mujoco() -> None:
    n = 4
    env = TorchVectorEnv(Reach(), n, dtype=torch.float64, autoreset_mode="Disabled")
    obs, _ = env.reset(seed=0)
    mjm = Reach().load()
    worlds, rng, contacts = [mujoco.MjData(mjm) for _ in range(n)], np.random.default_rng(0), 0
    for k, d in enumerate(worlds):
        d.qpos[:] = obs[k, : mjm.nq].cpu()
        mujoco.mj_forward(mjm, d)
    for _ in range(40):
        actions = rng.uniform(-1, 1, (n, 3)) + [0.3, 0.3, -2.0]
        obs, reward, *_ = env.step(torch.from_numpy(actions).to(env.device))
        for k, d in enumerate(worlds):
            in_numpy(mjm, d, d.site("grip").xpos + 0.05 * actions[k])
            want = [*d.qpos, *d.qvel, *d.site("grip").xpos, *d.actuator_force]
            np.testing.assert_allclose(obs[k].cpu(), want, rtol=0, atol=1e-9)
            np.testing.assert_allclose(env.engine.ctrl[k].cpu(), d.ctrl, rtol=0, atol=1e-9)
            assert abs(float(reward[k]) - d.actuator_force[0]) < 1e-9
            contacts += d.ncon > 1
            d.qpos[:], d.qvel[:] = obs[k, : mjm.nq].cpu(), obs[k, mjm.nq : mjm.nq + mjm.nv].cpu()
            mujoco.mj_step1(mjm, d)
    assert contacts > 10


@dataclass(frozen=True)
class Plain(Reach):
    """Targets are the action; torques are drawn anew in every substep."""

    inputs = ()

    def reset(self, m: Any, rng: Any) -> Start:
        return Start(HOME, [0.0] * m.nv)

    def control(self, m: Any, world: Any, action: list[Any]) -> list[Any]:
        return action

    def substep_control(self, m: Any, world: Any, targets: list[Any]) -> list[Any]:
        return [select(targets[0] > 0.5, 1e30, world.rng.uniform(0.1, 1.0)) for _ in range(m.nu)]


def test_random_numbers_differ_from_substep_to_substep() -> None:
    found = {}
    for skip in (1, 2):
        env = TorchVectorEnv(Plain(frame_skip=skip), 2, dtype=torch.float64, autoreset_mode="Disabled")
        env.reset(seed=0)
        env.step(torch.zeros(2, 3, dtype=torch.float64, device=env.device))
        found[skip] = env.engine.ctrl.clone()
    assert len({*found[1].flatten().tolist(), *found[2].flatten().tolist()}) == 16


def test_torques_that_are_not_finite_end_their_world_alone() -> None:
    env = TorchVectorEnv(Plain(), 2, autoreset_mode="SameStep")
    env.reset(seed=0)
    action = torch.zeros(2, 3, device=env.device)
    action[1, 0] = 1.0
    obs, _, terminated, _, info = env.step(action)
    assert info["bad_state"].tolist() == terminated.tolist() == [False, True]
    assert obs.isfinite().all() and info["final_obs"].isfinite().all() and env.engine.ctrl.isfinite().all()


def test_one_world_in_numpy_is_the_same() -> None:
    single, many = TorchEnv(Reach()), TorchVectorEnv(Reach(), 1, dtype=torch.float64)
    single.reset(seed=3), many.reset(seed=3)
    action = np.array([0.5, -0.5, 0.2])
    seen = single.step(action)[0]
    np.testing.assert_array_equal(seen, many.step(torch.from_numpy(action[None]).to(many.device))[0][0].cpu())
    np.testing.assert_array_equal(single.data.ctrl, many.engine.ctrl[0].cpu())


CIRCLE = """<mujoco><option timestep="0.004"/>
<worldbody><geom type="plane" size="5 5 .1"/>
  <body name="gremlin" mocap="true" pos="1 0 .1"><geom type="box" size=".1 .1 .1"/></body>
  <body name="puck" pos="0 1 .1"><freejoint/><geom type="box" size=".1 .1 .1" mass=".5"/></body>
  <body name="ball" pos="2 0 1"><freejoint/><geom size=".1" mass=".5"/></body></worldbody>
<equality><weld name="hook" body1="ball"/></equality></mujoco>"""
TURN = 0.03  # rad in a substep


@dataclass(frozen=True)
class Gremlin(Task):
    """A body goes its own way round a circle, as Safety-Gymnasium's do, and pushes what is there.

    A ball falls as soon as the body has come to the far side.
    """

    data = "forward"
    inputs = ("mocap_pos", "eq_active")
    xml_file: str = ""
    frame_skip: int = 10
    careless: bool = False

    def load(self) -> mujoco.MjModel:
        return oracle.sharpen(mujoco.MjModel.from_xml_string(CIRCLE))

    def action_space(self, m: Any) -> tuple[list[float], list[float]]:
        return [-1.0], [1.0]

    def control(self, m: Any, world: Any, action: list[Any]) -> list[Any]:
        return action

    def reset(self, m: Any, rng: Any) -> Start:
        angle = rng.uniform(0.0, 1.0)
        return Start(m.qpos0, [0.0] * m.nv, mocap_pos={"gremlin": [cos(angle), sin(angle), 0.1]})

    def substep_control(self, m: Any, world: Any, targets: list[Any]) -> Control:
        x, y, z = world.data.mocap_pos[0]
        moved = [x * cos(TURN) - y * sin(TURN), x * sin(TURN) + y * cos(TURN), z]
        if self.careless:
            moved[2] = select(targets[0] > 0.5, float("nan"), z)
        hooked = (world.data.eq_active[0] > 0.5) & (y < 0.9)
        return Control([], mocap_pos={"gremlin": moved}, eq_active={"hook": hooked})

    def observe(self, m: Any, world: Any) -> list[Any]:
        return [*world.qpos, *world.qvel, *world.data.mocap_pos[0], *world.data.eq_active, world.data.ncon]

    def outcome(self, m: Any, before: Any, action: list[Any], after: Any) -> Outcome:
        return Outcome(0.0)


@pytest.mark.parametrize("data", ["gymnasium", "fresh", "forward"])
def test_mocap_bodies_and_switches_move_within_a_step(data: str) -> None:
    n = 3
    task = type("Gremlin", (Gremlin,), {"data": data})()
    env = TorchVectorEnv(task, n, dtype=torch.float64, autoreset_mode="Disabled")
    obs, _ = env.reset(seed=0)
    mjm, still = task.load(), torch.zeros(n, 1, dtype=torch.float64, device=env.device)
    worlds, pushed = [mujoco.MjData(mjm) for _ in range(n)], 0
    for k, d in enumerate(worlds):
        d.mocap_pos[0] = obs[k, -5:-2].cpu()
    turn = np.array([[np.cos(TURN), -np.sin(TURN)], [np.sin(TURN), np.cos(TURN)]])
    for _ in range(12):
        obs, *_ = env.step(still)
        for k, d in enumerate(worlds):
            for _ in range(10):
                d.eq_active[0] &= d.mocap_pos[0, 1] < 0.9
                d.mocap_pos[0, :2] = turn @ d.mocap_pos[0, :2]
                mujoco.mj_step(mjm, d)
            seen = copy.copy(d)
            if data != "gymnasium":
                mujoco.mj_forward(mjm, seen)
            want = [*d.qpos, *d.qvel, *d.mocap_pos[0], *d.eq_active, seen.ncon]
            np.testing.assert_allclose(obs[k].cpu(), want, rtol=0, atol=1e-8)
            pushed += abs(d.qpos[0]) > 0.1
            d.qpos[:], d.qvel[:] = obs[k, : mjm.nq].cpu(), obs[k, mjm.nq : mjm.nq + mjm.nv].cpu()
    assert pushed > 10 and all(d.qpos[9] < 0.9 and not d.eq_active[0] for d in worlds)


def test_poses_that_are_not_finite_end_their_world_alone() -> None:
    env = TorchVectorEnv(Gremlin(careless=True), 2, autoreset_mode="SameStep")
    before, _ = env.reset(seed=0)
    obs, _, terminated, _, info = env.step(torch.tensor([[0.0], [1.0]], device=env.device))
    assert info["bad_state"].tolist() == terminated.tolist() == [False, True] and obs.isfinite().all()
    assert torch.equal(info["final_obs"][1, -5:-2], before[1, -5:-2])  # as the rest of the state


@pytest.mark.parametrize("name", ["qvel", "qpos"])
def test_what_is_of_a_whole_step_is_refused_in_substeps(name: str) -> None:
    @dataclass(frozen=True)
    class Kicked(Gremlin):
        def substep_control(self, m: Any, world: Any, targets: list[Any]) -> Control:
            return Control([], **{name: [1.0] * (m.nq if name == "qpos" else m.nv)})

    with pytest.raises(ValueError, match=rf"Kicked.substep_control .*: gave {name}, which `control` gives"):
        TorchVectorEnv(Kicked(), 1)


def test_wrong_numbers_of_torques_are_refused() -> None:
    @dataclass(frozen=True)
    class Short(Reach):
        def substep_control(self, m: Any, world: Any, targets: list[Any]) -> list[Any]:
            return targets

    with pytest.raises(ValueError, match=r"Short.substep_control .*gave 3 numbers for ctrl, and the model has 4"):
        TorchVectorEnv(Short(), 1)


def test_gradients_are_refused_by_name() -> None:
    env = TorchVectorEnv(Plain(), 2, autoreset_mode="Disabled")
    env.reset(seed=0)
    action = torch.zeros(2, 3, device=env.device, requires_grad=True)
    after = env.engine.transition(env.engine.state_dict(), action)
    with pytest.raises(UnsupportedModel, match="substep_control"):
        after["obs"].sum().backward()

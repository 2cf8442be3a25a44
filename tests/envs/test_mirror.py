"""Reflections of a robot, against MuJoCo C: a mirrored state under mirrored controls moves as the mirror image."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
import oracle
import pytest
import torch

from torch_mjenvs import Outcome, Task, TorchVectorEnv
from torch_mjenvs.mirror import Mirror, Reflection
from torch_mjenvs.scalar import select

# Sides have axes of all directions: some turn alike in the mirror, some the other way. One arm's motor is turned round.
XML = """<mujoco><option timestep="0.004"/>
<worldbody><geom type="plane" size="5 5 1"/>
  <body name="pelvis" pos="0 0 .75" quat="{root}"><freejoint name="root"/>
    <geom type="capsule" fromto="0 -.1 0 0 .1 0" size=".08" mass="6"/><site name="imu" pos=".02 0 .05"/>
    <body pos="0 0 .1"><joint name="waist" axis="0 0 1"/><geom type="box" size=".08 .12 .15" pos="0 0 .15" mass="5"/>
      <body name="head" pos="0 0 .35"><joint name="neck" type="ball" damping=".2"/>
        <geom size=".08" pos=".02 0 .06"/></body>
      <body pos="0 .2 .25"><joint name="left_shoulder" axis="{left}"/>
        <geom type="capsule" fromto="0 0 0 .05 .02 -.3" size=".04"/>
        <body pos=".05 .02 -.3"><joint name="left_hand" type="slide" axis="0 .6 -.8" range="0 .1" limited="true"/>
          <geom size=".05"/></body></body>
      <body pos="0 -.2 .25"><joint name="right_shoulder" axis="{right}"/>
        <geom type="capsule" fromto="0 0 0 .05 -.02 -.3" size=".04"/>
        <body pos=".05 -.02 -.3"><joint name="right_hand" type="slide" axis="0 -.6 -.8" range="0 .1" limited="true"/>
          <geom size=".05"/></body></body></body>
    <body pos="0 .1 -.05" euler="20 0 10"><joint name="left_hip" axis="1 0 .2"/>
      <geom name="left_leg" type="capsule" fromto="0 0 0 0 0 -.5" size=".06"/></body>
    <body pos="0 -.1 -.05" euler="-20 0 -10"><joint name="right_hip" axis="1 0 .2"/>
      <geom name="right_leg" type="capsule" fromto="0 0 0 0 0 -.5" size=".06"/></body></body>
  <body name="ball" pos=".4 0 .1"><freejoint name="ball"/><geom size=".1" mass=".4"/></body></worldbody>
<actuator><motor name="right_hip" joint="right_hip" gear="20"/><motor name="waist" joint="waist" gear="10"/>
  <motor name="left_shoulder" joint="left_shoulder" gear="9"/><motor name="left_hip" joint="left_hip" gear="20"/>
  <motor name="right_shoulder" joint="right_shoulder" gear="{gear}"/><motor name="left_hand" joint="left_hand"/>
  <motor name="right_hand" joint="right_hand"/></actuator>
<sensor><gyro name="gyro" site="imu"/><accelerometer name="accelerometer" site="imu"/>
  <framequat name="quat" objtype="body" objname="head"/></sensor></mujoco>"""
USUAL = {"root": "1 0 0 0", "left": "0 1 0", "right": "0 1 0", "gear": "9"}


def model(**instead: str) -> mujoco.MjModel:
    return oracle.sharpen(mujoco.MjModel.from_xml_string(XML.format(**USUAL | instead)))


def numpy(reflection: Reflection) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: np.array(reflection(list(x)))


@pytest.mark.parametrize(
    "instead",
    [{}, {"right": "0 -1 0"}, {"gear": "-9"}, {"root": ".8 0 0 .6"}, {"left": ".3 .9 .1", "right": ".3 -.9 .1"}],
    ids=["alike", "turned axis", "turned motor", "turned at first", "tilted axes"],
)
def test_the_mirror_image_of_a_step_is_the_step_of_the_mirror_image(instead: dict[str, str]) -> None:
    m, rng, touched = model(**instead), np.random.default_rng(0), 0
    mirror, d, image = Mirror(m), mujoco.MjData(m), mujoco.MjData(m)
    of = {name: numpy(getattr(mirror, name)) for name in ("qpos", "qvel", "actuators")}
    for _ in range(60):
        mujoco.mj_resetData(m, d)
        d.qpos[2] -= rng.uniform(0, 0.2)
        d.qpos[3:7] = rng.normal(size=4)
        mujoco.mj_integratePos(m, d.qpos, rng.normal(size=m.nv) * 0.3, 1.0)
        d.qvel[:], d.ctrl[:] = rng.normal(size=m.nv), rng.uniform(-1, 1, m.nu)
        image.qpos[:], image.qvel[:], image.ctrl[:] = of["qpos"](d.qpos), of["qvel"](d.qvel), of["actuators"](d.ctrl)
        image.qacc_warmstart[:] = d.qacc_warmstart[:] = 0.0
        mujoco.mj_step(m, d)
        mujoco.mj_step(m, image)
        np.testing.assert_allclose(image.qvel, of["qvel"](d.qvel), rtol=0, atol=1e-7)
        np.testing.assert_allclose(image.qpos, of["qpos"](d.qpos), rtol=0, atol=1e-9)
        for name, reflected in (("gyro", mirror.axial), ("accelerometer", mirror.vector), ("quat", mirror.quat)):
            want = np.array(reflected(list(d.sensor(name).data)))
            np.testing.assert_allclose(image.sensor(name).data, want, rtol=0, atol=1e-6 * (1 + abs(want).max()))
        touched += d.ncon > 0
    assert touched > 20
    numbers = [m.jnt_qposadr[j] for j in range(m.njnt) if m.jnt_type[j] in (2, 3)]
    assert of["qpos"](d.qpos)[numbers].tolist() == mirror.joints(d.qpos[numbers].tolist())


@dataclass(frozen=True)
class Mirrored(Task):
    """In half of the episodes all is seen and done in the mirror."""

    data = "fresh"
    xml_file: str = ""
    frame_skip: int = 2

    def load(self) -> mujoco.MjModel:
        return model()

    def memory(self, m: Any) -> dict[str, Any]:
        return {"mirrored": 0.0}

    def begin(self, m: Any, world: Any) -> dict[str, Any]:
        return {"mirrored": select(world.rng.uniform() < 0.5, 1.0, 0.0)}

    def reset(self, m: Any, rng: Any) -> tuple[list[Any], list[Any]]:
        return list(m.qpos0), [0.0] * m.nv

    def either(self, world: Any, reflected: Any, x: list[Any]) -> list[Any]:
        return [select(world.memory["mirrored"] > 0.5, a, b) for a, b in zip(reflected(x), x, strict=True)]

    def control(self, m: Any, world: Any, action: list[Any]) -> list[Any]:
        return self.either(world, Mirror(m).actuators, action)

    def observe(self, m: Any, world: Any) -> list[Any]:
        mirror = Mirror(m)
        return self.either(world, mirror.qpos + mirror.qvel, world.qpos + world.qvel)

    def outcome(self, m: Any, before: Any, action: list[Any], after: Any) -> Outcome:
        return Outcome(0.0)


@pytest.mark.parametrize("randomize", [{}, {"jnt_axis": (0.9, 1.1)}])
def test_worlds_in_the_mirror_see_what_others_see(randomize: dict[str, Any]) -> None:
    """The same actions, and the same numbers: a policy cannot tell worlds in the mirror from others."""
    env = TorchVectorEnv(Mirrored(), 16, dtype=torch.float64, autoreset_mode="Disabled", vary=tuple(randomize))
    env.reset(seed=0)
    mirrored = env.engine.memory["mirrored"]
    assert 2 < mirrored.sum() < 14
    action = torch.tensor(np.random.default_rng(1).random(7), device=env.device)
    for _ in range(10):
        obs, *_ = env.step(action.expand(16, 7))
    torch.testing.assert_close(obs, obs[:1].expand_as(obs), rtol=0, atol=1e-8)
    left = env.engine.qpos[:, env.unwrapped.model.joint("left_hip").qposadr[0]]
    assert not torch.allclose(left, left[:1].expand_as(left), atol=1e-3)


def test_reflections_of_rows_and_tensors() -> None:
    mirror = Mirror(model())
    feet = mirror.of(["left_leg", "right_leg", "head"], mirror.vector)
    row = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]
    assert feet(row) == [4.0, -5.0, 6.0, 1.0, -2.0, 3.0, 7.0, -8.0, 9.0]
    whole, twice = mirror.axial + Reflection((1, 0), (1.0, -1.0)), 2 * mirror.vector
    assert whole([1.0, 2.0, 3.0, 4.0, 5.0]) == [-1.0, 2.0, -3.0, 5.0, -4.0]
    assert twice([1.0] * 6) == [1.0, -1.0, 1.0, 1.0, -1.0, 1.0]
    for dtype in (torch.float32, torch.float64):
        x = torch.arange(18, dtype=dtype).view(2, 9)
        assert torch.equal(feet(x), torch.tensor([feet(list(y)) for y in x.tolist()], dtype=dtype))
        assert torch.equal(feet(feet(x)), x)
    scan = mirror.points([(0.0, 0.1), (0.0, -0.1), (0.3, 0.0)])
    assert scan([1.0, 2.0, 3.0]) == [2.0, 1.0, 3.0]


def test_what_has_no_mirror_image_is_refused() -> None:
    for instead, message in (
        ({"right": "0 1 1"}, "the axes of joints 'left_shoulder' and 'right_shoulder' are no mirror images"),
        ({"left": "1 1 0", "right": "1 1 0"}, "are no mirror images"),
    ):
        with pytest.raises(ValueError, match=message):
            Mirror(model(**instead))
    with pytest.raises(ValueError, match="joint 'left_shoulder' has no counterpart 'near_shoulder'"):
        Mirror(model(), {"left": "near"})
    mirror = Mirror(model())
    with pytest.raises(ValueError, match="'left_leg' has no counterpart 'right_leg' among"):
        mirror.of(["left_leg"])
    with pytest.raises(ValueError, match=r"the points have none at \(0.1, -0.2\)"):
        mirror.points([(0.1, 0.2)])
    with pytest.raises(ValueError, match="a reflection of 3 numbers was given 2"):
        mirror.vector([1.0, 2.0])

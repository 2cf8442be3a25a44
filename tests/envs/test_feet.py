"""Helpers for feet, on plain numbers, on tensors, and in a task that reads its feet's contact sensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
import pytest
import torch

from torch_mjenvs import Outcome, Task, TorchVectorEnv, World, feet
from torch_mjenvs.physics.model.model import Model
from torch_mjenvs.scalar import Random, select

DT = 0.02
STEPS = [  # of two feet: do they touch, how high are they
    ((True, True), (0.0, 0.0)),
    ((False, True), (0.03, 0.0)),
    ((False, True), (0.08, 0.0)),
    ((False, False), (0.05, 0.01)),
    ((True, False), (0.0, 0.04)),
    ((True, True), (0.0, 0.0)),
]


def test_times_peaks_and_ends_of_a_gait() -> None:
    air, ground, peak = [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]
    seen = []
    for contact, height in STEPS:
        down, up = feet.touchdown(air, contact), feet.liftoff(ground, contact)
        ended = [(a + DT, p) for a, p, there in zip(air, peak, down, strict=True) if there]
        air, ground = feet.air_time(air, contact, DT), feet.contact_time(ground, contact, DT)
        peak = feet.swing_peak(peak, height, contact)
        seen.append((down, up, ended))
    assert seen == [
        ([False, False], [False, False], []),
        ([False, False], [True, False], []),
        ([False, False], [False, False], []),
        ([False, False], [False, True], []),
        ([True, False], [False, False], [(pytest.approx(4 * DT), 0.08)]),
        ([False, True], [False, False], [(pytest.approx(3 * DT), 0.04)]),
    ]
    assert air == [0.0, 0.0] and peak == [0.0, 0.0]
    assert ground == pytest.approx([2 * DT, DT])


def test_a_foot_slips_where_it_touches_and_moves_along_the_ground() -> None:
    assert feet.slip([[3.0, 4.0, 9.0], [3.0, 4.0, 0.0]], [True, False]) == [5.0, 0.0]


def test_contacts_are_what_is_found_or_felt() -> None:
    assert feet.contacts([0.0, 2.0]) == [False, True]
    assert feet.contacts([0.5, 2.0], least=1.0) == [False, True]


def test_tensors_have_the_numbers_of_each_world() -> None:
    contact = [torch.tensor(x) for x in ([True, False], [False, False])]
    height = [torch.tensor([0.1, 0.2]), torch.tensor([0.3, 0.0])]
    peak = feet.swing_peak([torch.zeros(2), torch.full((2,), 0.1)], height, contact)
    torch.testing.assert_close(torch.stack(peak), torch.tensor([[0.0, 0.2], [0.3, 0.1]]))
    air = feet.air_time([torch.ones(2), torch.zeros(2)], contact, 0.5)
    torch.testing.assert_close(torch.stack(air), torch.tensor([[0.0, 1.5], [0.5, 0.5]]))
    assert torch.stack(feet.liftoff([torch.ones(2), torch.zeros(2)], contact)).tolist() == [[False, True], [False] * 2]


BALLS = """<mujoco><option timestep=".01"/><worldbody><geom name="floor" type="plane" size="5 5 1"/>
  <body pos="0 0 .3"><joint name="up" type="slide" axis="0 0 1"/><geom name="left" size=".1"/></body>
  <body pos="1 0 .5"><joint type="slide" axis="0 0 1"/><geom name="right" size=".1"/></body></worldbody>
  <actuator><motor joint="up"/></actuator>
  <sensor><user name="own" dim="3"/><contact name="left floor" geom1="left" geom2="floor" reduce="mindist"/>
  <contact name="right floor" geom1="right" geom2="floor" reduce="mindist"/></sensor></mujoco>"""


@dataclass(frozen=True)
class Dropped(Task):
    """Two balls fall; a sensor that nobody reads is one that is refused."""

    xml_file: str = ""
    frame_skip: int = 2

    def load(self) -> mujoco.MjModel:
        return mujoco.MjModel.from_xml_string(BALLS)

    def reset(self, m: Model, rng: Random) -> tuple[list, list]:
        return list(m.qpos0), [0.0] * m.nv

    def memory(self, m: Model) -> dict[str, Any]:
        return {"air": [0.0, 0.0]}

    def contact(self, m: Model, world: World) -> list:
        found = [world.data.sensordata[m.sensor(f"{side} floor")][0] for side in ("left", "right")]
        return feet.contacts(found)

    def remember(self, m: Model, before: World, action: list, after: World) -> dict[str, Any]:
        return {"air": feet.air_time(before.memory["air"], self.contact(m, after), self.dt(m))}

    def observe(self, m: Model, world: World) -> list:
        return [select(x, 1.0, 0.0) for x in self.contact(m, world)] + world.memory["air"]

    def outcome(self, m: Model, before: World, action: list, after: World) -> Outcome:
        down = feet.touchdown(before.memory["air"], self.contact(m, after))
        return Outcome(select(down[0], 1.0, 0.0) + select(down[1], 10.0, 0.0), False)


def test_a_task_reads_its_feet_though_another_sensor_is_refused() -> None:
    task = Dropped()
    env, mjm = TorchVectorEnv(task, 1, dtype=torch.float64), task.load()
    env.reset(seed=0)
    d, air, rewards = mujoco.MjData(mjm), np.zeros(2), 0.0
    for _ in range(40):
        obs, reward, *_ = env.step(torch.zeros(1, 1, dtype=torch.float64))
        mujoco.mj_step(mjm, d, 2)
        found = np.array([d.sensor(f"{side} floor").data[0] for side in ("left", "right")]) > 0
        want = 1.0 * (found[0] and air[0] > 0) + 10.0 * (found[1] and air[1] > 0)
        air = np.where(found, 0.0, air + 0.02)
        np.testing.assert_allclose(obs[0].cpu(), [*found, *air], atol=1e-12)
        assert reward[0].item() == want
        rewards += want
    assert rewards >= 11.0

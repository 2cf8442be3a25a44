"""What a world remembers from substep to substep: commands that arrive late, and sums over substeps.

Oracle: the same in NumPy around MuJoCo C's mj_step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
import oracle
import pytest
import torch

from torch_mjenvs import Control, Outcome, Task, TorchVectorEnv, controls
from torch_mjenvs.scalar import clip, floor, maximum

XML = """<mujoco><option timestep="0.005"/>
<worldbody><geom type="plane" size="2 2 .1"/>
  <body pos="0 0 .5"><joint name="hip" axis="0 1 0" armature=".01"/>
    <geom type="capsule" fromto="0 0 0 .3 0 0" size=".03"/>
    <body pos=".3 0 0"><joint name="knee" axis="0 1 0" armature=".01"/>
      <geom type="capsule" fromto="0 0 0 .3 0 0" size=".02"/></body></body></worldbody>
<actuator><motor joint="hip"/><motor joint="knee"/></actuator></mujoco>"""
KP, KD, MOST, LONGEST, SUBSTEPS = 60.0, 2.0, 12.0, 6, 4


@dataclass(frozen=True)
class Late(Task):
    """A servo in every substep, whose targets arrive up to 6 substeps late: Isaac Lab's DelayedPDActuator."""

    data = "fresh"
    max_episode_steps = 5
    xml_file: str = ""
    frame_skip: int = SUBSTEPS

    def load(self) -> mujoco.MjModel:
        return oracle.sharpen(mujoco.MjModel.from_xml_string(XML))

    def action_space(self, m: Any) -> tuple[list[float], list[float]]:
        return [-1.0] * m.nu, [1.0] * m.nu

    def memory(self, m: Any) -> dict[str, Any]:
        return {"late": 0.0, "queue": [0.0] * (LONGEST * m.nu), "peak": 0.0, "steps": 0.0, "last_peak": 0.0}

    def reset(self, m: Any, rng: Any) -> tuple[list[Any], list[Any]]:
        return [rng.uniform(-0.5, 0.5) for _ in range(m.nq)], [0.0] * m.nv

    def begin(self, m: Any, world: Any) -> dict[str, Any]:
        return {"late": floor(world.rng.uniform(0.0, LONGEST + 1.0))}

    def substep_control(self, m: Any, world: Any, targets: list[Any]) -> Control:
        known = world.memory
        arrived = controls.delayed(known["queue"], targets, known["late"])
        torques = controls.pd(arrived, world.qpos, world.qvel, KP, KD)
        torques = [clip(x, -MOST, MOST) for x in torques]
        power = sum(abs(t * v) for t, v in zip(torques, world.qvel, strict=True))
        queue = controls.queued(known["queue"], targets)
        return Control(torques, memory={"queue": queue, "peak": maximum(known["peak"], power)})

    def remember(self, m: Any, before: Any, action: list[Any], after: Any) -> dict[str, Any]:
        return {"peak": 0.0, "last_peak": after.memory["peak"], "steps": after.memory["steps"] + 1.0}

    def observe(self, m: Any, world: Any) -> list[Any]:
        return [*world.qpos, *world.qvel, world.memory["late"]]

    def outcome(self, m: Any, before: Any, action: list[Any], after: Any) -> Outcome:
        return Outcome(after.memory["last_peak"], info={"steps": after.memory["steps"]})


def test_late_targets_and_the_greatest_power_are_those_of_a_loop_around_mujoco() -> None:
    n = 7
    env = TorchVectorEnv(Late(), n, dtype=torch.float64, autoreset_mode="SameStep")
    obs, _ = env.reset(seed=1)
    mjm, rng, seen = Late().load(), np.random.default_rng(0), set()
    d = mujoco.MjData(mjm)
    queues = [[np.zeros(2)] * LONGEST for _ in range(n)]
    for step in range(12):
        before, late = obs.cpu().numpy(), obs[:, -1].int().tolist()
        actions = rng.uniform(-1, 1, (n, 2))
        obs, reward, _, truncated, info = env.step(torch.from_numpy(actions).to(env.device))
        found = torch.where(truncated[:, None], info["final_obs"], obs) if "final_obs" in info else obs
        for k in range(n):
            d.qpos[:], d.qvel[:] = before[k, :2], before[k, 2:4]
            peak = 0.0
            for _ in range(SUBSTEPS):
                queues[k].append(actions[k])
                target = queues[k][-1 - late[k]]
                d.ctrl[:] = np.clip(KP * (target - d.qpos) - KD * d.qvel, -MOST, MOST)
                peak = max(peak, np.abs(d.ctrl * d.qvel).sum())
                mujoco.mj_step(mjm, d)
            np.testing.assert_allclose(found[k, :4].cpu(), [*d.qpos, *d.qvel], rtol=0, atol=1e-9)
            assert abs(float(reward[k]) - peak) < 1e-8 * (1 + peak)
            if truncated[k]:
                queues[k] = [np.zeros(2)] * LONGEST
        seen |= {*late}
        assert truncated.all() == (step % 5 == 4)
    assert len(seen) > 4


def test_a_step_that_is_refused_keeps_its_memory() -> None:
    env = TorchVectorEnv(Late(), 2, autoreset_mode="Disabled")
    env.reset(seed=0)
    env.step(torch.zeros(2, 2, device=env.device))
    old = env.engine.memory["queue"].clone()
    env.step(torch.tensor([[1.0, 1.0], [float("nan"), 1.0]], device=env.device))
    new = env.engine.memory["queue"]
    assert torch.equal(new[1], old[1]) and not torch.equal(new[0], old[0])


def test_substeps_that_remember_only_sometimes_are_refused() -> None:
    calls = []

    @dataclass(frozen=True)
    class Fickle(Late):
        def substep_control(self, m: Any, world: Any, targets: list[Any]) -> Control:
            calls.append(m)  # twice for the layout, and then for the kernel
            return Control(targets, memory={"late": 1.0} if len(calls) < 3 else {})

        def remember(self, m: Any, before: Any, action: list[Any], after: Any) -> dict[str, Any]:
            return {}

    with pytest.raises(ValueError, match=r"remembers \[\], and \['late'\] before: always the same"):
        TorchVectorEnv(Fickle(), 1)


@pytest.mark.parametrize(
    ("control", "substep", "message"),
    [
        ({}, {"que": 0.0}, r"substep_control .*gave 'que', which memory\(\) does not have"),
        ({}, {"queue": [0.0] * 3}, r"substep_control .*gave a list of 3 for 'queue', and memory\(\) has a list of 12"),
        ({"peak": 0.0}, {}, r"control .*gave memory, which `substep_control` and `remember` change"),
    ],
)
def test_wrong_memory_is_refused(control: dict[str, Any], substep: dict[str, Any], message: str) -> None:
    @dataclass(frozen=True)
    class Wrong(Late):
        def control(self, m: Any, world: Any, action: list[Any]) -> Control:
            return Control(action, memory=control)

        def substep_control(self, m: Any, world: Any, targets: list[Any]) -> Control:
            return Control(targets, memory=substep)

        def remember(self, m: Any, before: Any, action: list[Any], after: Any) -> dict[str, Any]:
            return {}

    with pytest.raises(ValueError, match=message):
        TorchVectorEnv(Wrong(), 1)

"""Tasks that move mocap bodies and switch equality constraints: worlds keep these inputs, as mjData does.

Oracle: MuJoCo C, whose mjData is written into as the task says.
"""

from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np
import oracle
import pytest
import torch

from torch_mjenvs import Control, Outcome, Start, Task, TorchEnv, TorchRLEnv, TorchVectorEnv
from torch_mjenvs.physics import UnsupportedModel
from torch_mjenvs.scalar import select

XML = """<mujoco><option timestep="0.005"/>
<worldbody><light pos="0 0 3"/><camera name="above" pos="0 0 2"/><geom name="floor" type="plane" size="2 2 .1"/>
  <body name="hand" mocap="true" pos="0 0 .4" quat="1 0 .2 0"><geom size=".03" contype="0" conaffinity="0"/></body>
  <body name="gripper" pos="0 0 .4"><freejoint/><geom name="palm" type="box" size=".05 .05 .02" mass=".5"/></body>
  <body name="other" mocap="true" pos="1 1 .1"><geom size=".1"/></body>
  <body name="box" pos=".3 0 .06"><freejoint/><geom name="box" type="box" size=".05 .05 .05" mass=".2"/></body>
</worldbody>
<equality><weld name="hold" body1="hand" body2="gripper"/>
<connect name="grasp" body1="gripper" body2="box" anchor="0 0 -.05" active="false"/></equality></mujoco>"""


def model() -> mujoco.MjModel:
    return oracle.sharpen(mujoco.MjModel.from_xml_string(XML))


@dataclass(frozen=True)
class Grasping(Task):
    """An action moves the hand by up to 2 cm, and its fourth number closes the gripper, while it is near the box."""

    xml_file: str = ""
    frame_skip: int = 4
    inputs = ("mocap_pos", "mocap_quat", "eq_active")

    def load(self) -> mujoco.MjModel:
        return model()

    def action_space(self, m: Any) -> tuple[list[float], list[float]]:
        return [-1.0] * 4, [1.0] * 4

    def reset(self, m: Any, rng: Any) -> Start:
        place = [rng.uniform(-0.05, 0.05), rng.uniform(-0.05, 0.05), 0.4]
        qpos = [*place, *m.qpos0[3:]]
        return Start(qpos, [0.0] * m.nv, mocap_pos={"hand": place}, mocap_quat={"hand": [1.0, 0.0, 0.0, 0.0]})

    def control(self, m: Any, world: Any, action: list[Any]) -> Control:
        hand = [x + 0.02 * a for x, a in zip(world.data.xpos[m.body("hand")], action[:3], strict=True)]
        return Control([], mocap_pos={"hand": hand}, eq_active={"grasp": action[3] > 0.0})

    def observe(self, m: Any, world: Any) -> list[Any]:
        return [*world.qpos, *world.qvel, *world.data.xpos[m.body("hand")], *world.data.xquat[m.body("hand")]]

    def outcome(self, m: Any, before: Any, action: list[Any], after: Any) -> Outcome:
        return Outcome(after.data.xpos[m.body("box")][2], after.data.xpos[m.body("gripper")][0] > 0.35)


def actions(steps: int, n: int) -> torch.Tensor:
    """Down and to the box, then up with it; worlds differ."""
    rng = np.random.default_rng(0)
    found = rng.uniform(-0.3, 0.3, (steps, n, 4))
    found[: steps // 2, :, 0] += 0.6
    found[: steps // 2, :, 2] -= 0.6
    found[steps // 2 :, :, 2:] += 0.6
    return torch.from_numpy(found.clip(-1, 1))


def test_steps_are_mujocos_with_poses_and_switches_that_last() -> None:
    n, steps = 6, 40
    env = TorchVectorEnv(Grasping(), n, dtype=torch.float64, autoreset_mode="Disabled", max_episode_steps=-1)
    obs, _ = env.reset(seed=0)
    mjm, moves = model(), actions(steps, n)
    hand, gripper = mjm.body("hand").id, mjm.body("gripper").id
    worlds = [mujoco.MjData(mjm) for _ in range(n)]
    for k, d in enumerate(worlds):
        d.qpos[:] = obs[k, : mjm.nq].cpu()
        d.mocap_pos[0], d.mocap_quat[0] = obs[k, :3].cpu(), (1, 0, 0, 0)
        mujoco.mj_forward(mjm, d)
        assert np.array_equal(obs[k, -7:].cpu(), [*d.xpos[hand], *d.xquat[hand]])
    held = contacts = 0
    alive = np.ones(n, bool)
    for move in moves:
        mask = torch.from_numpy(~alive)
        obs, reward, terminated, *_ = step(env, move, mask)
        for k, d in enumerate(worlds):
            if not alive[k]:
                continue
            d.mocap_pos[0] = d.xpos[hand] + 0.02 * move[k, :3].numpy()
            d.eq_active[1] = move[k, 3] > 0
            mujoco.mj_step(mjm, d, 4)
            want = [*d.qpos, *d.qvel, *d.xpos[hand], *d.xquat[hand]]
            np.testing.assert_allclose(obs[k].cpu(), want, rtol=0, atol=1e-9)
            assert abs(float(reward[k]) - d.xpos[mjm.body("box").id][2]) < 1e-9
            held, contacts = held + int(d.eq_active[1]), contacts + d.ncon
            alive[k] = not terminated[k] and d.xpos[gripper][0] <= 0.35
            d.qpos[:], d.qvel[:] = obs[k, : mjm.nq].cpu(), obs[k, mjm.nq : mjm.nq + mjm.nv].cpu()
    assert held > 20 and contacts > 100


def step(env: TorchVectorEnv, move: torch.Tensor, ended: torch.Tensor) -> Any:
    """A step of worlds that may have ended before: these are only put back to go on."""
    env.engine.done.masked_fill_(ended.to(env.device), False)
    return env.step(move.to(env.device))


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_an_episode_begins_with_the_poses_of_its_reset(mode: str) -> None:
    env = TorchVectorEnv(Grasping(), 4, dtype=torch.float64, autoreset_mode=mode, max_episode_steps=3)
    env.reset(seed=1)
    begun = 0
    for move in actions(12, 4):
        obs, *_ = env.step(move.to(env.device))
        fresh = env.elapsed_steps == 0
        begun += int(fresh.sum())
        assert torch.equal(obs[fresh][:, :3], obs[fresh][:, -7:-4])  # the hand is where reset put it, with the gripper
        assert (env.engine.view("kept")[fresh][:, 14:] == torch.tensor([1.0, 0.0])).all()
        assert fresh.all() or (obs[~fresh][:, -7:-4] != obs[~fresh][:, :3]).any()
    assert begun >= 8


def test_what_is_held_is_part_of_the_state() -> None:
    env = TorchVectorEnv(Grasping(), 3, autoreset_mode="SameStep")
    env.reset(seed=2)
    for move in actions(5, 3).float():
        env.step(move.to(env.device))
    other = TorchVectorEnv(Grasping(), 3, autoreset_mode="SameStep")
    other.load_state_dict(env.state_dict())
    copies = [copy.deepcopy(env), pickle.loads(pickle.dumps(env)), other]
    place = env.engine.view("kept").clone()
    env.set_state(env.qpos.clone(), env.qvel.clone())
    assert torch.equal(env.engine.view("kept"), place)  # inputs are not part of the state that is set, as in mjData
    still = torch.zeros(3, 4, device=env.device)
    expected = env.step(still)[0]
    for made in copies:
        torch.testing.assert_close(made.step(still)[0], expected, rtol=0, atol=1e-5)
        assert torch.equal(made.engine.view("kept"), env.engine.view("kept"))


def test_other_states_are_looked_at_with_what_is_held() -> None:
    @dataclass(frozen=True)
    class Looking(Grasping):
        def observe(self, m: Any, world: Any) -> list[Any]:
            there, hand = world.at(world.qpos), m.body("hand")
            left = world.settled(50)  # by the weld, to where the hand is
            return [*world.data.xpos[hand], *there.data.xpos[hand], *left.data.xpos[m.body("gripper")]]

    env = TorchVectorEnv(Looking(), 3, dtype=torch.float64, autoreset_mode="Disabled")
    env.reset(seed=0)
    obs = env.step(torch.ones(3, 4, dtype=torch.float64, device=env.device))[0]
    assert torch.equal(obs[:, :3], obs[:, 3:6])
    torch.testing.assert_close(obs[:, 6:9], obs[:, :3], rtol=0, atol=0.01)


OBSTACLE = """<mujoco><option timestep="0.005"/>
<worldbody><body name="puck" pos="0 0 .1"><joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 1 0"/>
    <geom name="puck" size=".1" mass="1"/></body>
  <body name="wall" mocap="true" pos="5 0 .1"><geom name="wall" type="box" size=".05 .3 .1"/></body>
  <body name="magnet" mocap="true" pos="0 0 1"/></worldbody>
<equality><connect name="pull" body1="puck" body2="magnet" anchor="0 0 .9" active="false"/></equality></mujoco>"""


@dataclass(frozen=True)
class Around(Task):
    """A puck begins where it does not touch the wall, which every episode has in another place."""

    data = "fresh"
    xml_file: str = ""
    frame_skip: int = 1
    inputs = ("mocap_pos", "mocap_quat", "eq_active")

    def load(self) -> mujoco.MjModel:
        return oracle.sharpen(mujoco.MjModel.from_xml_string(OBSTACLE))

    def memory(self, m: Any) -> dict[str, Any]:
        return {"touching": 0.0, "pulled": [0.0, 0.0], "elsewhere": 0.0}

    def reset(self, m: Any, rng: Any, world: Any) -> Start:
        wall = {"mocap_pos": {"wall": [rng.uniform(-0.3, 0.3), rng.uniform(-0.3, 0.3), 0.1]}}
        wall["mocap_quat"] = {"wall": [1.0, 0.0, 0.0, rng.uniform(-1.0, 1.0)]}

        def free(qpos: list[Any]) -> Any:
            return world.at(qpos, **wall).data.ncon < 0.5

        drawn = rng.draw_until(lambda rng: [rng.uniform(-0.4, 0.4), rng.uniform(-0.4, 0.4)], free)
        pulled = world.at(drawn, mocap_pos={"magnet": [0.1, 0.2, 1.0]}, eq_active={"pull": True}).settled(400)
        memory = {
            "touching": world.at(drawn, **wall).data.ncon,
            "pulled": pulled.qpos,
            "elsewhere": world.at(drawn).data.xpos[m.body("wall")][0],
        }
        return Start(drawn, [0.0] * m.nv, memory=memory, **wall)

    def observe(self, m: Any, world: Any) -> list[Any]:
        memory = world.memory
        return [*world.qpos, *memory["pulled"], memory["touching"], memory["elsewhere"], world.data.ncon]

    def outcome(self, m: Any, before: Any, action: list[Any], after: Any) -> Outcome:
        return Outcome(0.0)


def test_a_reset_looks_at_states_with_the_poses_that_it_sets() -> None:
    n = 200
    env = TorchVectorEnv(Around(), n, dtype=torch.float64, autoreset_mode="Disabled")
    obs = env.reset(seed=0)[0].cpu().numpy()
    mjm = Around().load()
    d, kept = mujoco.MjData(mjm), env.engine.view("kept").cpu().numpy()
    assert len({row.tobytes() for row in kept}) == n
    would_touch = 0
    for k in range(n):
        d.qpos[:], d.mocap_pos[:], d.mocap_quat[:] = obs[k, :2], kept[k, :6].reshape(2, 3), kept[k, 6:14].reshape(2, 4)
        mujoco.mj_forward(mjm, d)
        assert d.ncon == 0 == obs[k, 4] == obs[k, 6]
        d.qpos[:] = obs[k - 1, :2]
        mujoco.mj_forward(mjm, d)
        would_touch += d.ncon
    assert would_touch > 20  # so the draws depend on the pose
    np.testing.assert_allclose(obs[:, 2:4], [[0.1, 0.2]] * n, rtol=0, atol=1e-3)  # by the magnet, which was switched on
    assert (obs[:, 5] == 5.0).all()  # what `at` does not name is as in the world that is asked


def test_poses_of_states_that_are_looked_at_must_fit() -> None:
    for given, said in (({"mocap_pos": {"wal": [0.0] * 3}}, "did you mean 'wall'"), ({"eq_active": {9: 1.0}}, "9")):

        @dataclass(frozen=True)
        class Wrong(Around):
            def reset(self, m: Any, rng: Any, world: Any, given: Any = given) -> Start:
                return Start(world.at(m.qpos0, **given).qpos, [0.0] * m.nv)

        with pytest.raises(ValueError, match=rf"Wrong.world.at: .*{said}"):
            TorchVectorEnv(Wrong(), 1)


def test_a_task_reads_the_inputs_that_it_sets() -> None:
    @dataclass(frozen=True)
    class Reading(Grasping):
        def control(self, m: Any, world: Any, action: list[Any]) -> Control:
            hand = [x + 0.02 * a for x, a in zip(world.data.mocap_pos[0], action[:3], strict=True)]
            return Control([], mocap_pos={"hand": hand}, eq_active={"grasp": world.data.eq_active[1] < 0.5})

        def observe(self, m: Any, world: Any) -> list[Any]:
            return [*world.data.mocap_pos[0], *world.data.mocap_quat[0], *world.data.eq_active]

        def outcome(self, m: Any, before: Any, action: list[Any], after: Any) -> Outcome:
            return Outcome(before.data.eq_active[1], truncated=after.data.mocap_pos[0][2] > 0.45)

    env = TorchVectorEnv(Reading(), 3, dtype=torch.float64, autoreset_mode="SameStep")
    first = env.reset(seed=0)[0]
    assert (first[:, 3:] == torch.tensor([1.0, 0.0, 0.0, 0.0, 1.0, 0.0], device=env.device)).all()
    up = torch.tensor([[0.0, 0.0, 1.0, 0.0]] * 3, dtype=torch.float64, device=env.device)
    for k in range(3):
        obs, reward, _, truncated, info = env.step(up)
        seen = info["final_obs"] if k == 2 else obs
        torch.testing.assert_close(seen[:, :3], first[:, :3] + 0.02 * (k + 1) * up[:, :3], rtol=0, atol=1e-15)
        assert (seen[:, -1] == float(k % 2 == 0)).all() and (reward == float(k % 2 == 1)).all()
        assert (truncated == (k == 2)).all()


def test_interfaces_agree_and_data_has_the_inputs() -> None:
    single, many = TorchEnv(Grasping()), TorchVectorEnv(Grasping(), 2, dtype=torch.float64, autoreset_mode="Disabled")
    rl = TorchRLEnv(Grasping(), 2, dtype=torch.float64)
    rl.set_seed(5)
    seen, (obs, _), td = single.reset(seed=5)[0], many.reset(seed=5), rl.reset()
    for move in actions(6, 2):
        seen = single.step(move[0].numpy())[0]
        obs = many.step(move.to(many.device))[0]
        td = rl.step(td.set("action", move.to(rl.device)))["next"]
        assert torch.equal(td["observation"], obs)
        np.testing.assert_allclose(seen, obs[0].cpu(), rtol=0, atol=0 if many.device.type == "cpu" else 1e-13)
    np.testing.assert_array_equal(single.data.mocap_pos[0], seen[-7:-4])
    assert single.data.eq_active.tolist() == [1, int(move[0, 3] > 0)]
    back = rl.reset(rl.get_state(), set_state=True)
    assert torch.equal(back["observation"][:, -7:], obs[:, -7:])


def test_pictures_show_where_mocap_bodies_are() -> None:
    size = {"camera": "above", "width": 48, "height": 48}
    env = TorchVectorEnv(Grasping(), 1, pixels=size, autoreset_mode="SameStep", max_episode_steps=3)
    first, _ = env.reset(seed=0)
    for _ in range(2):
        seen = env.step(torch.tensor([[0.0, 1.0, 0.0, -1.0]], device=env.device))[0]
    assert not torch.equal(seen, first)
    info = env.step(torch.tensor([[0.0, 1.0, 0.0, -1.0]], device=env.device))[-1]
    assert not torch.equal(info["final_obs"], seen)


WRONG = {
    "not named": ({"inputs": ()}, Control([], mocap_pos={"hand": [0.0] * 3}), "the task's `inputs` does not"),
    "no such body": ({}, Control([], mocap_pos={"hend": [0.0] * 3}), "did you mean 'hand'"),
    "no mocap body": ({}, Control([], mocap_pos={"box": [0.0] * 3}), "the body is none with mocap='true'"),
    "too few numbers": ({}, Control([], mocap_quat={"hand": [1.0] * 3}), "is a list of 3, and must be 4"),
    "no such equality": ({}, Control([], eq_active={"grip": True}), "no equality 'grip'"),
    "no number": ({}, Control([], eq_active={"grasp": "on"}), "must be a number"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_does_not_fit_is_refused(what: str) -> None:
    changes, given, said = WRONG[what]
    task = type("Wrong", (Grasping,), {"control": lambda self, m, world, action: given, **changes})
    with pytest.raises((TypeError, ValueError), match=said):
        TorchVectorEnv(task(), 1)


def test_inputs_that_a_task_cannot_set_are_refused() -> None:
    with pytest.raises(ValueError, match="inputs may name mocap_pos, mocap_quat, eq_active, wind, not 'ctrl'"):
        type("Wrong", (Grasping,), {"inputs": ("ctrl",)})()


def test_bad_poses_end_the_world_alone() -> None:
    @dataclass(frozen=True)
    class Careless(Grasping):
        def control(self, m: Any, world: Any, action: list[Any]) -> Control:
            return Control([], mocap_pos={"hand": [select(action[0] > 0.9, 1e30, x) for x in world.qpos[:3]]})

    env = TorchVectorEnv(Careless(), 2, autoreset_mode="SameStep")
    env.reset(seed=0)
    move = torch.zeros(2, 4, device=env.device)
    before = env.step(move)[0]
    move[1, 0] = 1.0
    obs, _, terminated, _, info = env.step(move)
    assert info["bad_state"].tolist() == terminated.tolist() == [False, True] and obs.isfinite().all()
    assert torch.equal(info["final_obs"][1, -7:], before[1, -7:])  # the pose of before, as the rest of the state


def test_gradients_are_refused_by_name() -> None:
    env = TorchVectorEnv(Grasping(), 2, autoreset_mode="Disabled")
    env.reset(seed=0)
    action = torch.zeros(2, 4, device=env.device, requires_grad=True)
    after = env.engine.transition(env.engine.state_dict(), action)
    with pytest.raises(UnsupportedModel, match="mocap_pos, mocap_quat, eq_active"):
        after["obs"].sum().backward()

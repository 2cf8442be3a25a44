"""The joystick tasks against Playground's own Python, step by step: states, observations, rewards, ends, commands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import mujoco
import numpy as np
import playground_oracle as theirs
import pytest
import torch

from torch_mjenvs import TorchVectorEnv
from torch_mjenvs.playground.berkeley_humanoid import BerkeleyHumanoidJoystick
from torch_mjenvs.playground.biped import KICK, Biped
from torch_mjenvs.playground.g1 import G1Joystick
from torch_mjenvs.playground.go1 import Go1Joystick
from torch_mjenvs.playground.joystick import Joystick
from torch_mjenvs.playground.spot import SpotJoystick
from torch_mjenvs.scalar import Random

pytestmark = pytest.mark.cpu
Answer = dict[str, np.ndarray]  # numbers of a step, by name
TIGHT = {"flat": 1e-9, "rough": 1e-8}  # relative to 1 + size
# MuJoCo finds contacts with rough ground to 1e-6 m only, where a foot is a box or a sphere that is deep in it. So where
# a step is not tight, MuJoCo's own answers say how much that is: see `unsure`.
KNOWN, MOVES, TIMES, MOST = 1e-6, 4, 10.0, 0.75
SEED, WORLDS = 3, 4
# Fields of pictures, numbers and places of geoms, of which there are fewer without meshes, and what follows from them.
SHOWN = (
    "geom_group", "geom_rgba", "geom_matid", "mesh_", "tex_", "bvh_", "oct_", "name", "body_geom", "sensor_objid",
    "sensor_refid", "pair_geom", "dof_length", "_sizes",
)  # fmt: skip
BOTH = [(kind, terrain) for kind in (Go1Joystick, SpotJoystick, G1Joystick, BerkeleyHumanoidJoystick)
        for terrain in kind.scenes]  # fmt: skip


def named(x: Any) -> str:
    return x if isinstance(x, str) else x.robot


def pair(kind: type[Joystick], terrain: str) -> tuple[TorchVectorEnv, Any]:
    """Our environment and Playground's task, without noise, with pushes, all terms of the reward weighing something."""
    changes = {"push_config.enable": True} if issubclass(kind, Biped) else {"pert_config.enable": True}
    if kind is SpotJoystick:
        scales = {"joint_pos": 0.0, "gyro": 0.0, "gravity": 0.0, "feet_pos": [0.0, 0.0, 0.0]}
        changes |= {f"obs_noise.scales.{name}": x for name, x in scales.items()}
    else:
        changes["noise_config.level"] = 0.0
    playground = theirs.joystick(kind.robot, terrain, changes)
    with_margin(playground.mj_model)
    weights = {name: playground.weights[name] for name in kind().rewards}
    task = kind(terrain=terrain, rewards=weights, noise_level=0.0, randomized=False, pushed=True)
    model = with_margin(task.load())
    object.__setattr__(task, "load", lambda: model)
    env = TorchVectorEnv(task, WORLDS, dtype=torch.float64, device="cpu", autoreset_mode="NextStep")
    env.reset(seed=SEED)
    return env, playground


def with_margin(model: mujoco.MjModel) -> mujoco.MjModel:
    """A margin of the floor: without one, MuJoCo's contacts of boxes with rough ground are decided by rounding."""
    model.geom_margin[model.geom("floor").id], model.pair_margin[:] = 1e-6, 1e-6
    return model


def soon(env: TorchVectorEnv) -> None:
    """Have commands change, pushes come and robots be kicked within a few steps, at other times in each world."""
    memory, world = env.engine.memory, torch.arange(WORLDS)
    if isinstance(env.engine.task, Biped):
        memory["kick_every"][:] = memory["kick_in"][:] = 4.0 + world
        memory["steps"][:] = 495.0 + world
    else:
        memory["push_wait"][:] = 2.0 + world
        memory["steps"][:] = 3.0 + world if isinstance(env.engine.task, Go1Joystick) else 196.0 + world


def info_of(env: TorchVectorEnv, k: int) -> dict[str, Any]:
    """What Playground's info has at the start of an episode, of what is drawn then."""
    memory = {name: x[k].numpy().copy() for name, x in env.engine.memory.items()}
    info = {"command": memory["command"]}
    if isinstance(env.engine.task, Biped):
        every = int(memory["kick_every"])
        return info | {"phase_dt": memory["phase_step"], "push_interval_steps": every, "step": int(memory["steps"])}
    seconds, wait = memory["push_seconds"], int(memory["push_wait"])
    info |= {"steps_until_next_pert": wait, "pert_duration_seconds": seconds, "pert_mag": memory["push_kick"]}
    info["pert_duration"] = int(np.round(seconds / 0.02))
    return info | {timer(env.engine.task): int(memory["steps"])}


def timer(task: Any) -> str:
    return "steps_until_next_cmd" if isinstance(task, Go1Joystick) else "step"


def close(got: Any, want: Any, what: str, bound: float = 1e-9) -> None:
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape
    error = np.abs(got - want) / (1.0 + np.abs(want))
    worst = int(error.argmax()) if error.size else 0
    assert error.max(initial=0.0) < bound, f"{what}: number {worst}, {got.ravel()[worst]} is not {want.ravel()[worst]}"


def row(entries: dict[str, torch.Tensor], k: int) -> np.ndarray:
    return np.concatenate([x[k].numpy().ravel() for x in entries.values()])


def ours(env: TorchVectorEnv, obs: Any, reward: torch.Tensor, terms: np.ndarray, k: int) -> Answer:
    """What one of our worlds gives in a step: state, observation, terms, and what its feet did."""
    memory = {name: x[k].numpy() for name, x in env.engine.memory.items()}
    up = 1.0 - memory["contact"]
    feet = {"contact": memory["contact"], "air": memory["air"] * up, "peak": memory["peak"] * up}
    seen = {name: row(obs[name], k) for name in ("policy", "privileged")}
    found = {"qpos": env.qpos[k].numpy(), "qvel": env.qvel[k].numpy(), "terms": terms, "reward": reward[k].numpy()}
    return found | seen | feet


def playgrounds(env: TorchVectorEnv, state: Any) -> Answer:
    """What Playground's state has of the same, by the same names."""
    size, info = np.size(state.obs["state"]), state.info
    feet = {"contact": info["last_contact"], "air": info["feet_air_time"], "peak": info["swing_peak"]}
    seen = {"policy": state.obs["state"], "privileged": state.obs["privileged_state"][size:]}
    terms = [0.02 * state.metrics[f"reward/{x}"] for x in names(env)]
    found = {"qpos": state.data.qpos, "qvel": state.data.qvel, "terms": terms, "reward": state.reward} | seen | feet
    return {name: np.asarray(x, float) for name, x in found.items()}


def unsure(model: mujoco.MjModel, qpos: Any, answer: Callable[[Any], Answer]) -> Iterator[Answer]:
    """The answers where MuJoCo searches for contacts as far as it usually does, and from states 1e-6 m away."""
    rng, tolerance = np.random.default_rng(0), model.opt.ccd_tolerance
    model.opt.ccd_tolerance = mujoco.MjOption().ccd_tolerance
    yield answer(qpos)
    model.opt.ccd_tolerance = tolerance
    for _ in range(MOVES):
        yield answer(qpos + KNOWN * rng.choice([-1, 1], qpos.shape))


def own(state: Any) -> Any:
    """A state that a step may change."""
    return state.replace(info=dict(state.info), metrics=dict(state.metrics))


def errors(got: Answer, want: Answer) -> Answer:
    assert {name: x.shape for name, x in got.items()} == {name: x.shape for name, x in want.items()}
    return {name: np.abs(got[name] - x) / (1.0 + np.abs(x)) for name, x in want.items()}


def same(got: Answer, want: Answer, others: Iterator[Answer], bound: float) -> bool:
    """Assert that numbers are within the bound, or as near as MuJoCo's `others` are; say whether they are tight."""
    error = errors(got, want)
    if all(x.max(initial=0.0) < bound for x in error.values()):
        return True
    moved = [errors(x, want) for x in others]
    for name, x in error.items():
        known = bound + TIMES * max(m[name].max() for m in moved)
        at = int(x.argmax())
        what = f"{name}: number {at}, {got[name].ravel()[at]} is not {want[name].ravel()[at]}"
        assert x.max() < known, f"{what}, which MuJoCo knows to {known:.1e}"
    return False


@pytest.mark.parametrize("kind, terrain", BOTH, ids=named)
def test_a_model_without_meshes_is_playgrounds_model(kind: type[Joystick], terrain: str) -> None:
    ours, playgrounds = kind(terrain=terrain).load(), theirs.joystick(kind.robot, terrain, {}).mj_model
    collides = playgrounds.geom_type != mujoco.mjtGeom.mjGEOM_MESH
    assert len(collides) > ours.ngeom == collides.sum()
    for name in [x for x in dir(ours) if isinstance(getattr(ours, x), np.ndarray) and not x.startswith(SHOWN)]:
        want = getattr(playgrounds, name)[collides] if name.startswith("geom_") else getattr(playgrounds, name)
        np.testing.assert_array_equal(getattr(ours, name), want, err_msg=name)
    assert ours.opt.timestep == playgrounds.opt.timestep and ours.opt.disableflags == playgrounds.opt.disableflags


@pytest.mark.parametrize("kind, terrain", BOTH, ids=named)
def test_steps_are_playgrounds(kind: type[Joystick], terrain: str) -> None:
    """Each step is from our state, as rounding grows in contacts. Playground's info goes on from its own."""
    env, playground = pair(kind, terrain)
    obs, _ = env.reset(seed=SEED)
    states = [theirs.begun(playground, env.qpos[k].numpy(), env.qvel[k].numpy()) for k in range(WORLDS)]
    for k, state in enumerate(states):
        state.info.update(info_of(env, k))
    same_first(env, obs, states, playground)
    soon(env)
    for k, state in enumerate(states):
        state.info.update(info_of(env, k))
    rng, sums, seen = np.random.default_rng(0), np.zeros((WORLDS, len(names(env)))), Counter[str]()
    alive = list(range(WORLDS))
    for n in range(1, 31):
        action = rng.uniform(-1, 1, (WORLDS, playground.mj_model.nu)) * (0.3 + n / 15)
        was = {name: x.clone() for name, x in env.engine.memory.items()}
        qpos, qvel = (theirs.jp.array(x.numpy()) for x in (env.qpos, env.qvel))
        obs, reward, terminated, _, info = env.step(torch.tensor(action))
        now = {name: x.clone() for name, x in env.engine.memory.items()}
        earlier, sums = sums, np.stack([info[f"episode_reward/{x}"].numpy() for x in names(env)], 1)
        for k in list(alive):
            fresh, draws = drawn_anew(env, was, now, k), kick(env, k, n)
            command = now["command"][k].numpy() if fresh else np.full(3, 1e6)  # which shows if it should not change
            playground.sample_command = lambda *args, command=command: theirs.jp.array(command)
            begun = states[k].replace(data=states[k].data.replace(qpos=qpos[k], qvel=qvel[k]))

            def answer(qpos: Any, begun: Any = begun, action: Any = action[k], draws: Any = draws) -> Answer:
                at = own(begun).replace(data=begun.data.replace(qpos=qpos))
                return playgrounds(env, theirs.step(playground, at, action, draws))

            state = states[k] = theirs.step(playground, own(begun), action[k], draws)
            got, want = ours(env, obs, reward, (sums - earlier)[k], k), playgrounds(env, state)
            seen["tight"] += same(got, want, unsure(playground.mj_model, qpos[k], answer), TIGHT[terrain])
            terms = [*want["terms"]]
            assert bool(terminated[k]) == bool(state.done)
            seen += Counter(what_happened(env, state, was, k, fresh, terms))
            if state.done:
                alive.remove(k)
            else:
                follow(env, state.info, now, k, fresh)
    print(dict(seen))
    assert all(seen[x] for x in ("contact", "landing", "command", "push")), seen
    assert seen["steps"] > 15 * WORLDS
    assert seen["tight"] == seen["steps"] if terrain == "flat" else seen["tight"] > MOST * seen["steps"], seen


def what_happened(env: TorchVectorEnv, state: Any, was: Any, k: int, fresh: bool, terms: list[Any]) -> Iterator[str]:
    yield "steps"
    yield from ["contact"] * bool(state.info["last_contact"].any())
    yield from ["landing"] * bool(terms[names(env).index("feet_air_time")] != 0.0)
    yield from ["command"] * fresh
    yield from ["fell"] * bool(state.done)
    biped = isinstance(env.engine.task, Biped)
    yield from ["push"] * bool(was["kick_in"][k] <= 1.0 if biped else state.data.xfrc_applied.any())


def names(env: TorchVectorEnv) -> list[str]:
    return [*env.engine.task.rewards]


def drawn_anew(env: TorchVectorEnv, was: dict[str, Any], now: dict[str, Any], k: int) -> bool:
    """Whether our command was drawn anew in this step."""
    if isinstance(env.engine.task, Go1Joystick):
        return bool(was["steps"][k] <= 1.0)
    return bool(now["steps"][k] == 0.0)


def kick(env: TorchVectorEnv, k: int, step: int) -> dict[tuple[float, float], float]:
    """The numbers of a kick, which are the first that our step draws."""
    if not isinstance(env.engine.task, Biped):
        return {}
    rng, turn = Random(SEED, k, 0, 0, step), (0.0, 2.0 * np.pi)
    return {turn: rng.uniform(*turn), KICK: rng.uniform(*KICK)}


def follow(env: TorchVectorEnv, info: dict[str, Any], now: Any, k: int, fresh: bool) -> None:
    """Compare what Playground's info says of commands, phases and pushes, and give it what we drew."""
    close(info["command"], now["command"][k], "command")
    name = timer(env.engine.task)
    if fresh and isinstance(env.engine.task, Go1Joystick):
        info[name] = theirs.jp.array(int(now["steps"][k]))
    assert int(info[name]) == int(now["steps"][k])
    up = 1.0 - now["contact"][k].numpy()
    for theirs_, ours_ in {"feet_air_time": "air", "swing_peak": "peak"}.items():  # compared by `same`
        info[theirs_] = theirs.jp.array(now[ours_][k].numpy() * up)
    info["last_contact"] = theirs.jp.array(up == 0.0)
    close(info["last_act"], now["action"][k], "last action")
    if isinstance(env.engine.task, Biped):
        close(info["phase"], now["phase"][k], "phase")
    else:
        direction = now["push_direction"][k].numpy()
        assert (np.asarray(info["pert_dir"])[:2] != 0).any() == (direction != 0).any()
        info["pert_dir"] = theirs.jp.array([*direction, 0.0])
        assert int(info["steps_since_last_pert"]) == int(now["since_push"][k])


def same_first(env: TorchVectorEnv, obs: Any, states: list[Any], playground: Any) -> None:
    for k, state in enumerate(states):
        qvel = env.qvel[k].numpy()

        def answer(qpos: Any, info: Any = state.info, qvel: Any = qvel) -> Answer:
            return first(env, playground, dict(info), theirs.begun(playground, qpos, qvel).data)

        qpos, got = env.qpos[k].numpy(), {name: row(obs[name], k) for name in ("policy", "privileged")}
        others = unsure(playground.mj_model, qpos, answer)
        same(got, first(env, playground, dict(state.info), state.data), others, TIGHT[env.engine.task.terrain])


def first(env: TorchVectorEnv, playground: Any, info: Any, data: Any) -> Answer:
    """What Playground's robot sees at first."""
    found = playground.mj_model.sensor_adr[playground._feet_floor_found_sensor]
    if "qpos_error_history" in info:  # in which the reset's own observation is already
        info["qpos_error_history"] = 0.0 * info["qpos_error_history"]
    contact = theirs.jp.array(data.sensordata[found] > 0)
    more = {Biped: (contact,), SpotJoystick: (info["rng"],)}
    args = next((x for kind, x in more.items() if isinstance(env.engine.task, kind)), ())
    obs = playground._get_obs(data, info, *args)
    size = np.size(obs["state"])
    return {"policy": np.asarray(obs["state"]), "privileged": np.asarray(obs["privileged_state"])[size:]}

"""The peers' contenders. Each gives environment steps, and only those that a user would count."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import time
import warnings
from collections.abc import Callable, Iterator

import gymnasium
import mujoco
import numpy as np
from gymnasium.vector import AutoresetMode
from mujoco import rollout

from .cases import ENVPOOL_NUM_ENVS, SYNC_NUM_ENVS, Case, starts
from .machine import Contender, cores

ACTION_SETS = 64
LEAST_ROLLOUT = 0.1  # seconds per call: long enough that distributing the work costs nothing
MOST_ROLLOUT = 2**28  # bytes of its arrays


def contenders(case: Case, episode_length: float) -> Iterator[Callable[[], Contender]]:
    """Yield functions that make contenders, so that a peer's memory and threads exist only during its own race."""
    yield lambda: gymnasium_sync(case)
    yield lambda: c_rollout(case, episode_length, cores())
    if cores() > 1:
        yield lambda: c_rollout(case, episode_length, 1)
    if envpool_has(case.gymnasium_id):
        yield lambda: envpool(case)


def notes() -> list[str]:
    """Peers left out, and why."""
    if not importlib.util.find_spec("envpool"):
        return ["EnvPool is not installed (`pip install envpool`)."]
    if not envpool_has("Hopper-v5"):
        return [f"EnvPool {importlib.metadata.version('envpool')} does not have the tasks of v5."]
    return []


def envpool_has(task: str) -> bool:
    """Return whether EnvPool is installed and has a task of this id."""
    if not importlib.util.find_spec("envpool"):
        return False
    import envpool as pool

    return task in pool.list_all_envs()


def versions() -> dict[str, str]:
    names = ("mujoco", "gymnasium", "envpool")
    return {name: importlib.metadata.version(name) for name in names if importlib.util.find_spec(name)}


def gymnasium_sync(case: Case) -> Contender:
    """Gymnasium's own vector environment, one process, one core."""
    n = SYNC_NUM_ENVS
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        env = gymnasium.make_vec(
            case.gymnasium_id,
            num_envs=n,
            vectorization_mode="sync",
            vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP},
        )
    env.reset(seed=0)
    space = env.single_action_space
    prepared = np.random.default_rng(0).uniform(space.low, space.high, (ACTION_SETS, n, *space.shape))
    prepared = list(prepared.astype(space.dtype))
    k = 0

    def step() -> int:
        nonlocal k
        k = (k + 1) % ACTION_SETS
        env.step(prepared[k])
        return n

    return Contender(f"Gymnasium sync {n}", step, threads=1)


def c_rollout(case: Case, episode_length: float, threads: int) -> Contender:
    """MuJoCo C's physics alone, restarted as the task would be: what no environment built on it can exceed.

    Random controls, held for frame_skip steps, over rollouts as long as the mean episode under random actions.
    """
    task = case.task()
    model = task.load()
    length = max(1, round(episode_length))
    steps = length * task.frame_skip
    pool = rollout.Rollout(nthread=threads if threads > 1 else 0)
    datas = [mujoco.MjData(model) for _ in range(threads)]
    rng = np.random.default_rng(0)

    def prepare(batch: int) -> Callable[[], int]:
        initial = initial_states(case, model, datas[0], batch)
        control = rng.uniform(*model.actuator_ctrlrange.T, (batch, length, model.nu)).repeat(task.frame_skip, 1)
        state = np.zeros((batch, steps, initial.shape[1]))
        sensors = np.zeros((batch, steps, model.nsensordata))
        models = [model] * batch

        def step() -> int:
            pool.rollout(
                models, datas, initial, control, skip_checks=True, nstep=steps, state=state, sensordata=sensors
            )
            return batch * length

        return step

    batch = 8 * threads
    trial = prepare(batch)
    trial()
    began = time.perf_counter()
    trial()
    wanted = LEAST_ROLLOUT / (time.perf_counter() - began)
    width = 8 * (mujoco.mj_stateSize(model, mujoco.mjtState.mjSTATE_FULLPHYSICS) + model.nu)
    most = MOST_ROLLOUT // (width * steps * batch)
    batch *= max(1, min(int(np.ceil(wanted)), most))
    plural = "thread" if threads == 1 else "threads"
    return Contender(f"mujoco.rollout, {threads} {plural}", prepare(batch), threads, extra=threads < cores())


def initial_states(case: Case, model: mujoco.MjModel, data: mujoco.MjData, batch: int) -> np.ndarray:
    kind = mujoco.mjtState.mjSTATE_FULLPHYSICS
    out = np.zeros((batch, mujoco.mj_stateSize(model, kind)))
    for row, qpos, qvel in zip(out, *(x.numpy() for x in starts(case, batch)), strict=True):
        mujoco.mj_resetData(model, data)
        data.qpos[:], data.qvel[:] = qpos, qvel
        mujoco.mj_getState(model, data, row, kind)
    return out


def envpool(case: Case) -> Contender:
    """EnvPool. Its resets take steps of their own, which are not counted."""
    import envpool as pool

    n = ENVPOOL_NUM_ENVS
    env = pool.make(case.gymnasium_id, env_type="gymnasium", num_envs=n, num_threads=cores(), seed=0)
    env.reset()
    space = env.action_space
    prepared = np.random.default_rng(0).uniform(space.low, space.high, (ACTION_SETS, n, *space.shape))
    prepared = list(prepared.astype(space.dtype))
    k, resetting = 0, 0

    def step() -> int:
        nonlocal k, resetting
        k = (k + 1) % ACTION_SETS
        _, _, terminated, truncated, _ = env.step(prepared[k])
        real = n - resetting
        resetting = int((terminated | truncated).sum())
        return real

    return Contender(f"EnvPool {n}", step)

"""How well do trained policies of MuJoCo Playground's robots follow their commands, here and in MuJoCo C?

    python -m benchmarks.playground                                   # the policies that come with the package
    python -m benchmarks.playground --runs runs/TorchGo1Joystick-v0-0 # those of runs
    python -m benchmarks.playground --keep --runs ...                 # and put them into the package
    python -m benchmarks.playground --render                          # the table, from the data that is there

Both make the same draws: states, commands, robots, noise and kicks are those of an environment in float64, as a task's
functions draw them on plain numbers, too. MuJoCo C uses the scene's own solver settings, which stop after one to three
iterations; here the solver converges. Results are added to results/playground.json, from which playground.md is made.
"""

from __future__ import annotations

import argparse
import copy
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import torch
from gymnasium.vector import AutoresetMode

from torch_mjenvs import Policy, TorchVectorEnv, World, pretrained
from torch_mjenvs.envs.entries import LENGTH, MEAN, TIME_LIMIT
from torch_mjenvs.envs.episode import BEGIN, PARAMS, RESET, Episode
from torch_mjenvs.envs.observation import Observation
from torch_mjenvs.envs.parts import mapped
from torch_mjenvs.envs.tasks.base import Control
from torch_mjenvs.physics import load
from torch_mjenvs.physics.model.precision import DOUBLE
from torch_mjenvs.playground import TASKS
from torch_mjenvs.playground.joystick import Joystick
from torch_mjenvs.policy import FOLDER, pretrained_ids
from torch_mjenvs.scalar import Random
from torch_mjenvs.training.scores import interval
from torch_mjenvs.training.task_flags import arguments

from . import machine, parity
from .report import put, table

RESULTS = Path(__file__).resolve().parent / "results" / "playground.json"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "playground.md"
MARKS = "<!-- trained policies: written by python -m benchmarks.playground -->", "<!-- end of trained policies -->"
PACKAGE = Path(__file__).resolve().parents[1] / "torch_mjenvs"
KEPT = "env", "task", "activation", "obs_mean", "obs_var", "observation", "obs_groups"  # of a run's policy
LAYERS = "weights", "biases", "gains", "shifts"
SEED = 1_000_003  # a seed that no training used
ERRORS = "linear_error", "angular_error"
NEAR = 0.3  # m from the edge: about half a robot's length
CONVERGED, OWN = "MuJoCo C, converged", "MuJoCo C, the scene's settings"


class Numbers:
    """MjData with arrays as lists of Python's numbers, as a task's functions take them, converted on first use."""

    def __init__(self, data: mujoco.MjData):
        self._data = data

    def __getattr__(self, name: str) -> Any:
        self.__dict__[name] = found = getattr(self._data, name).tolist()
        return found


class InMujoco:
    """World `number` of an environment of this seed in its first episode, but in MuJoCo C."""

    def __init__(self, task: Joystick, seen: Observation, seed: int, number: int):
        self.task, self.seen, self.key, self.elapsed = task, seen, (seed, number), 0
        nominal = task.load()
        m = load(nominal)
        self.model = edited(nominal, task.randomize(m, self._random(PARAMS)))
        self.data, self.m = mujoco.MjData(self.model), load(self.model)
        self.data.qpos[:], self.data.qvel[:] = task.reset(self.m, self._random(RESET))
        mujoco.mj_forward(self.model, self.data)
        world = self._world(self._random(BEGIN), task.memory(self.m))
        self.memory = world.memory = world.memory | task.begin(self.m, world)
        self.obs = self._observation(world)
        self.errors: list[dict[str, float]] = []  # a step each
        self.ended: str | None = None

    def step(self, action: list[float]) -> None:
        """Step, unless the episode has ended."""
        if self.ended:
            return
        task, m, data = self.task, self.m, self.data
        self.elapsed += 1
        rng = self._random(self.elapsed)
        before = self._world(rng, self.memory)
        control = task.control(m, before, action)
        control = control if isinstance(control, Control) else Control(control)
        data.ctrl[:] = control.ctrl
        if control.qvel is not None:
            data.qvel[:] += control.qvel
        for body, force in control.xfrc_applied.items():
            data.body(body).xfrc_applied[:] = force
        mujoco.mj_step(self.model, data, task.frame_skip)
        after = self._world(rng, self.memory)
        self.memory = after.memory = self.memory | task.remember(m, before, action, after)
        outcome = task.outcome(m, before, action, after)
        self.obs = self._observation(after)
        self.errors.append({name: float(outcome.metrics[name]) for name in ERRORS})
        reasons = [name for name, happened in dict(outcome.terminated).items() if happened]
        late = [TIME_LIMIT] if self.elapsed == task.max_episode_steps else []
        self.ended = end_of(self.model, data.qpos.tolist()) if reasons else next(iter(late), None)

    def _random(self, what: int) -> Random:
        return Random(*self.key, 0, 0, what)

    def _world(self, rng: Random, memory: dict[str, Any]) -> World:
        data: Any = Numbers(self.data)
        return World(data.qpos, data.qvel, memory, data, rng)

    def _observation(self, world: World) -> list[float]:
        values: list[float] = self.seen.noisy(flat(self.task.observe(self.m, world)), world.rng)
        return values


def flat(x: Any) -> list[Any]:
    """Return the numbers of nested dicts and lists, in their order."""
    if isinstance(x, dict):
        return flat([*x.values()])
    return [y for part in x for y in flat(part)] if isinstance(x, (list, tuple)) else [x]


def edited(model: mujoco.MjModel, parameters: dict[str, Any]) -> mujoco.MjModel:
    """Return a copy with other parameters, and all that MuJoCo derives from them."""
    out = copy.deepcopy(model)
    for name, values in parameters.items():
        getattr(out, name)[:] = values
    mujoco.mj_setConst(out, mujoco.MjData(out))
    return out


def shipped() -> list[str]:
    """Return the names of the policies of Playground's robots that come with the package."""
    return [name for name in pretrained_ids() if name.startswith(tuple(f"Torch{task}-v0" for task in TASKS))]


def task_of(policy: Policy, **fields: Any) -> Joystick:
    """Return the task that a policy was trained for, with some fields changed."""
    made = TASKS[policy.env_id.removeprefix("Torch").removesuffix("-v0")]()
    return replace(made, **arguments(policy.env_id, policy.task) | fields)


def layout(task: Joystick) -> Observation:
    """Return the layout of a task's observations."""
    m = load(task.load())
    return Episode(task, m, AutoresetMode.NEXT_STEP, None, DOUBLE).layout.observation


def here(policy: Policy, task: Joystick, episodes: int) -> dict[str, Any]:
    """Score a policy in this package, in float64."""
    env = TorchVectorEnv(task, episodes, dtype=torch.float64, device="cpu", autoreset_mode="NextStep")
    means: dict[str, list[float]] = {name: [0.0] * episodes for name in ERRORS}
    returns, lengths, ends = torch.zeros(episodes), [0.0] * episodes, [""] * episodes
    obs, _ = env.reset(seed=SEED)
    alive = torch.ones(episodes, dtype=torch.bool)
    while alive.any():
        obs, reward, terminated, truncated, info = env.step(policy(mapped(torch.Tensor.float, obs)))
        returns += torch.where(alive, reward, 0.0)
        for k in (alive & (terminated | truncated)).nonzero().ravel().tolist():
            lengths[k] = float(info[LENGTH][k])
            for name, values in means.items():
                values[k] = float(info[MEAN + name][k])
            ends[k] = end_of(env.model, env.qpos[k].tolist()) if terminated[k] else TIME_LIMIT
        alive &= ~(terminated | truncated)
    env.close()
    worth = {"return": round(float(returns.mean()), 2), "interval": round(interval(returns), 2)}
    return summary(means, ends, lengths) | worth


def end_of(model: mujoco.MjModel, qpos: list[float]) -> str:
    """Say whether a robot that lies there fell, or walked over the edge of rough ground, which is 20 m wide."""
    over = model.nhfield and max(abs(qpos[0]), abs(qpos[1])) > model.hfield_size[0, 0] - NEAR
    return "edge" if over else "fell"


def there(policy: Policy, task: Joystick, episodes: int, converged: bool) -> dict[str, Any]:
    """Score a policy in MuJoCo C, with a solver that converges, or with the scene's own settings."""
    seen = layout(task)
    robots, size = [InMujoco(task, seen, SEED, k) for k in range(episodes)], policy.sizes[0]
    for robot in robots if converged else ():
        parity.converge(robot.model)
    while active := [robot for robot in robots if not robot.ended]:
        actions = policy(torch.tensor([robot.obs[:size] for robot in active], dtype=torch.float32))
        for robot, action in zip(active, actions.tolist(), strict=True):
            robot.step(action)
    means = {name: [float(np.mean([x[name] for x in robot.errors])) for robot in robots] for name in ERRORS}
    return summary(means, [str(robot.ended) for robot in robots], [float(robot.elapsed) for robot in robots])


def summary(means: dict[str, list[float]], ends: Sequence[str], lengths: Sequence[float]) -> dict[str, Any]:
    """Return means over episodes, how far they spread, and how many ended by a fall (or crossed legs) or an edge."""
    found: dict[str, Any] = {name: round(float(np.mean(x)), 4) for name, x in means.items()}
    found |= {f"{name}_spread": round(float(np.std(x)), 4) for name, x in means.items()}
    counts = {"falls": ends.count("fell"), "over the edge": ends.count("edge")}
    return found | counts | {"length": round(float(np.mean(lengths)), 1)}


def told(folder: Path) -> dict[str, Any]:
    """Return what is known of the training of a run: frames and seconds are also those of runs that it started from."""
    result = json.loads((folder / "result.json").read_text())
    about = {name: result[name] for name in ("algorithm", "seed", "threads")}
    about |= {"frames": result["frames"] + result.get("frames_before", 0), "seconds": result["curve"][-1][0]}
    while "start" in result:
        result = json.loads((Path(result["start"]) / "result.json").read_text())
        about["seconds"] += result["curve"][-1][0]
    return about


def keep(folder: Path, about: dict[str, Any], found: dict[str, Any]) -> None:
    """Put the policy of a run into the package, without its value network, and what is known of it."""
    trained = torch.load(folder / "policy.pt", map_location="cpu", weights_only=True)
    layers = {name: x[:1].clone() for name, x in trained.items() if name.startswith(LAYERS)}
    kept = {name: trained[name] for name in KEPT if name in trained}
    env_id, ours = found["env"], found["here"]
    worth = {"scores": {env_id: ours["return"]}, "intervals": {env_id: ours["interval"]}}
    about = about | worth | {"episodes": found["episodes"]} | {name: ours[name] for name in (*ERRORS, "falls")}
    terrain = "" if found["terrain"] == "flat" else f"-{found['terrain']}"
    file = PACKAGE / FOLDER / f"{env_id}{terrain}.pt"
    torch.save({**kept, **layers, "about": about}, file)
    print(f"{file}: {file.stat().st_size / 1e3:.0f} kB, from {folder}")


def measure(policy: Policy, about: dict[str, Any], episodes: int) -> dict[str, Any]:
    """Score a policy here and in MuJoCo C."""
    task, began = task_of(policy), time.perf_counter()
    about = {name: about[name] for name in ("seed", "frames", "seconds", "threads")}
    found = {"env": policy.env_id, "task": policy.task, "terrain": task.terrain, "episodes": episodes, "policy": about}
    found |= {"here": here(policy, task, episodes)}
    found |= {name: there(policy, task, episodes, name == CONVERGED) for name in (CONVERGED, OWN)}
    return found | {"seconds": round(time.perf_counter() - began)}


def markdown(results: dict[str, Any]) -> str:
    header = ["task", "terrain", "frames", "minutes", "", "m/s", "rad/s", "falls"]
    rows = []
    for x in sorted(results["policies"], key=lambda x: (x["env"], x["terrain"])):
        about = x["policy"]
        first = [f"`{x['env']}`", x["terrain"], f"{about['frames'] / 1e6:.0f} M", f"{about['seconds'] / 60:.0f}"]
        for name in [name for name in ("here", CONVERGED, OWN) if name in x]:
            errors = [f"{x[name][error]:.2f}" for error in ERRORS]
            edge = f", {x[name]['over the edge']} over the edge" if x[name].get("over the edge") else ""
            rows.append([*first, name, *errors, f"{x[name]['falls']} of {x['episodes']}{edge}"])
            first = [""] * len(first)
    return table(header, rows)


def main(argv: list[str] | None = None) -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--runs", nargs="+", type=Path, help="folders of runs, in place of the policies of the package")
    p.add_argument("--keep", action="store_true", help="put the runs' policies into the package")
    p.add_argument("--episodes", type=int, default=100)
    p.add_argument("--out", type=Path, default=RESULTS)
    p.add_argument("--render", action="store_true", help="only make the table")
    args = p.parse_args(argv)
    results: dict[str, Any] = json.loads(args.out.read_text()) if args.out.exists() else {"policies": []}
    policies = [(Policy.load(x), told(x)) for x in args.runs or ()]
    policies = policies or [(policy, policy.about) for policy in map(pretrained, shipped())]
    for k, (policy, about) in enumerate([] if args.render else policies):
        found = measure(policy, about, args.episodes)
        if args.keep:
            keep(args.runs[k], about, found)
        print(json.dumps(found), flush=True)
        same = [x for x in results["policies"] if (x["env"], x["task"]) == (found["env"], found["task"])]
        results["policies"] = [x for x in results["policies"] if x not in same] + [found]
        results["machine"] = machine.describe()
        args.out.write_text(json.dumps(results, indent=1) + "\n")
    put(PAGE, *MARKS, markdown(results))
    print(markdown(results))


if __name__ == "__main__":
    main()

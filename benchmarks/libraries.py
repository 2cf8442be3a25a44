"""Frames a second of training in other libraries: here, and the same on Gymnasium's own vector environments.

    .venv-libraries/bin/python -m benchmarks.libraries --write      # `make libraries` makes that environment
    .venv-libraries/bin/python -m benchmarks.libraries --only skrl --rounds 1

The examples of docs/libraries.md are run, on Hopper, each in a process of its own, all in turn and `--rounds` times
over. Timed is the training, policy and update included. On Gymnasium's side only the lines that make the environment
differ; rsl_rl and rl_games have nothing for Gymnasium's vectors, so SyncVectorEnv is handed to them by the shortest
class that does it. The medians are printed; with --write they go into that page, too. It takes about 10 minutes.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import torch

from .machine import cores, cpu_model
from .report import number, put, table

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "libraries.md"
LIBRARIES = {
    "Stable-Baselines3": "stable_baselines3",
    "rsl_rl": "rsl_rl",
    "rl_games": "rl_games",
    "skrl": "skrl",
    "Tianshou": "tianshou",
    "CleanRL": "gymnasium",  # nothing is imported from it
}
BEGIN, END = "<!-- written by python -m benchmarks.libraries --write -->", "<!-- end of what it wrote -->"
WORLDS, MANY = 64, 1024
STOCK = "Hopper-v5"


def snippets() -> dict[str, str]:
    return dict(re.findall(r"\n## ([^\n]+)\n\n```python\n(.*?)```", PAGE.read_text(), re.S))


def lines(code: str) -> int:
    """Count the lines of code, without blank ones."""
    return sum(bool(line.strip()) for line in code.splitlines())


# -- Gymnasium's vectors, as the libraries want them -------------------------------------------------------------------


def sync(num_envs: int, wrap: Callable = lambda env: env) -> Any:
    """Make Gymnasium's own worlds, with the same interface as ours: tensors."""
    mode = gymnasium.vector.AutoresetMode.SAME_STEP
    env = gymnasium.vector.SyncVectorEnv([lambda: wrap(gymnasium.make(STOCK))] * num_envs, autoreset_mode=mode)

    def step(actions: torch.Tensor) -> tuple:
        obs, reward, terminated, truncated, info = env.step(actions.cpu().numpy())
        final = obs.copy()
        for i in np.flatnonzero(terminated | truncated):
            final[i] = info["final_obs"][i]
        tensors = (torch.from_numpy(np.array(x)) for x in (obs, reward, terminated, truncated, final))
        obs, reward, terminated, truncated, final = tensors
        return obs.float(), reward.float(), terminated, truncated, {"final_obs": final.float()}

    def reset(seed: int | None = None) -> tuple:
        return torch.from_numpy(env.reset(seed=seed)[0]).float(), {}

    spaces = {"single_observation_space": env.single_observation_space, "single_action_space": env.single_action_space}
    return SimpleNamespace(num_envs=num_envs, step=step, reset=reset, close=env.close, **spaces)


def gym_rsl_rl(num_envs: int) -> Any:
    from rsl_rl.env import VecEnv
    from tensordict import TensorDict

    class Gym(VecEnv):
        def __init__(self) -> None:
            self.env, self.num_envs, self.num_actions, self.device, self.cfg = sync(num_envs), num_envs, 3, "cpu", {}
            self.max_episode_length, self.episode_length_buf = 1000, torch.zeros(num_envs, dtype=torch.int64)
            self.obs = TensorDict({"policy": self.env.reset(seed=0)[0]}, [num_envs])

        def get_observations(self) -> Any:
            return self.obs

        def step(self, actions: torch.Tensor) -> tuple:
            obs, reward, terminated, truncated, _ = self.env.step(actions)
            self.obs = TensorDict({"policy": obs}, [self.num_envs])
            return self.obs, reward, (terminated | truncated).long(), {"time_outs": truncated & ~terminated}

    return Gym()


def gym_rl_games() -> None:
    """Make "hopper" known to rl_games."""
    from rl_games.common import env_configurations, vecenv
    from rl_games.common.ivecenv import IVecEnv

    class Gym(IVecEnv):
        def __init__(self, num_actors: int) -> None:
            self.env = sync(num_actors)

        def get_env_info(self) -> dict:
            env = self.env
            return {"observation_space": env.single_observation_space, "action_space": env.single_action_space}

        def reset(self) -> torch.Tensor:
            return self.env.reset()[0]

        def step(self, actions: torch.Tensor) -> tuple:
            obs, reward, terminated, truncated, _ = self.env.step(actions)
            return obs, reward, (terminated | truncated).to(torch.uint8), {"time_outs": truncated & ~terminated}

    vecenv.register("hopper", lambda config_name, num_actors, **config: Gym(num_actors))
    env_configurations.register("hopper", {"vecenv_type": "hopper", "env_creator": None})


HERE_ENV = 'env = gymnasium.make_vec("TorchHopper-v0", num_envs=64, autoreset_mode="SameStep")'
# What is replaced in each example: to run on Gymnasium's worlds, and for the sizes of a run. {worlds} and so on are
# filled in.
ON_GYMNASIUM: dict[str, list[tuple[str, str]]] = {
    "Stable-Baselines3": [
        (HERE_ENV, "from stable_baselines3.common.env_util import make_vec_env"),
        ("VecMonitor(SB3VecEnv(env))", 'make_vec_env("Hopper-v5", {worlds})'),
    ],
    "rsl_rl": [
        (
            'RslRlVecEnv(gymnasium.make_vec("TorchAnt-v0", num_envs=64, autoreset_mode="SameStep"), seed=0)',
            "gym_rsl_rl({worlds})",
        )
    ],
    "rl_games": [('RlGamesVecEnv.register("hopper", make)', "gym_rl_games()"), ('"healthy_reward": 1.0', "")],
    "skrl": [
        (
            'gymnasium.make_vec("TorchHopper-v0", num_envs=64)',
            'gymnasium.wrappers.vector.DtypeObservation(gymnasium.make_vec("Hopper-v5", num_envs={worlds}, '
            'vectorization_mode="sync"), __import__("numpy").float32)',
        )
    ],
    "Tianshou": [
        (
            'TianshouVectorEnv(gymnasium.make_vec("TorchHopper-v0", num_envs=n, autoreset_mode="Disabled"))',
            'DummyVectorEnv([lambda: gymnasium.make("Hopper-v5")] * n)',
        ),
        ("import gymnasium", "import gymnasium\nfrom tianshou.env import DummyVectorEnv"),
    ],
}
HERE: dict[str, list[tuple[str, str]]] = {
    "Stable-Baselines3": [("num_envs=64", "num_envs={worlds}")],
    "rsl_rl": [("num_envs=64", "num_envs={worlds}"), ("TorchAnt-v0", "TorchHopper-v0")],
    "rl_games": [],
    "skrl": [("num_envs=64", "num_envs={worlds}")],
    "Tianshou": [],
}
SIZES: dict[str, list[tuple[str, str]]] = {
    "Stable-Baselines3": [("learn(8192)", "learn({frames})"), ("batch_size=1024", "batch_size={batch}")],
    "rsl_rl": [("learn(2, init_at_random_ep_len=True)", "learn({updates})")],
    "rl_games": [
        ('"num_actors": 64', '"num_actors": {worlds}'),
        ('"max_epochs": 2', '"max_epochs": {updates}'),
        ('"minibatch_size": 1024', '"minibatch_size": {batch}'),
    ],
    "skrl": [('"timesteps": 64', '"timesteps": {steps}')],
    "Tianshou": [
        ("worlds(64)", "worlds({worlds})"),
        ("epoch_num_steps=4096", "epoch_num_steps={frames}"),
        ("collection_step_num_env_steps=2048", "collection_step_num_env_steps={batch} * 2"),
        ("VectorReplayBuffer(4096, 64)", "VectorReplayBuffer({batch} * 2, {worlds})"),
        ("batch_size=1024", "batch_size={batch}"),
        ("test_collector=Collector(algorithm, test),", ""),
        ("test_step_num_episodes=8,", ""),
    ],
}
UPDATE = 64  # steps of a world that all examples' updates divide


def example(name: str, where: str, worlds: int, frames: int) -> tuple[str, int]:
    """The example's code for this many worlds, and how many frames it trains on."""
    steps = max(UPDATE, frames // worlds // UPDATE * UPDATE)
    per_update = 64 if name == "Stable-Baselines3" else 32
    sizes = {"worlds": worlds, "steps": steps, "frames": steps * worlds, "updates": steps // per_update}
    code = snippets()[name]
    for old, new in (ON_GYMNASIUM if where == "gymnasium" else HERE)[name] + SIZES[name]:
        assert old in code, f"docs/libraries.md has changed: {old}"
        code = code.replace(old, re.sub(r"{(\w+)}", lambda m: str((sizes | {"batch": worlds * 16})[m[1]]), new))
    return code, steps * worlds


def measure(name: str, where: str, worlds: int, frames: int) -> float:
    """Frames a second, in this process."""
    torch.set_num_threads(cores())
    if name == "CleanRL":
        return measure_cleanrl(where, worlds, frames)
    code, frames = example(name, where, worlds, frames)
    parts = ast.parse(code).body
    trains = [k for k, part in enumerate(parts) if re.search(r"\.(learn|run|run_training)\(", ast.unparse(part))][-1]
    space: dict[str, Any] = {"gym_rsl_rl": gym_rsl_rl, "gym_rl_games": gym_rl_games}
    exec(compile(ast.Module(parts[:trains], []), name, "exec"), space)
    start = time.perf_counter()
    exec(compile(ast.Module([parts[trains]], []), name, "exec"), space)
    return frames / (time.perf_counter() - start)


def measure_cleanrl(where: str, worlds: int, frames: int) -> float:
    sys.path.insert(0, str(ROOT / "examples"))
    script: Any = importlib.import_module("cleanrl_ppo")
    args = script.parse(["--num-envs", str(worlds), "--total-timesteps", str(frames), "--device", "cpu"])
    if where == "gymnasium":
        own = gymnasium.wrappers

        def wrap(env: Any) -> Any:  # as CleanRL's script does
            env = own.NormalizeObservation(own.ClipAction(own.RecordEpisodeStatistics(env)))
            env = own.TransformObservation(env, lambda obs: np.clip(obs, -10, 10), env.observation_space)
            return own.TransformReward(own.NormalizeReward(env, gamma=args.gamma), lambda r: np.clip(r, -10, 10))

        script.make_envs = lambda args: (sync(worlds, wrap), SimpleNamespace(return_queue=torch.zeros(1)))
    start = time.perf_counter()
    script.train(args)
    batch = args.num_steps * worlds
    return max(1, frames // batch) * batch / (time.perf_counter() - start)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--only", nargs="*", choices=LIBRARIES, default=list(LIBRARIES))
    p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--frames", type=float, default=32768, help="of training, at 64 worlds; 4 times as many at 1,024")
    p.add_argument("--write", action="store_true", help="put the table of all libraries into docs/libraries.md")
    p.add_argument("--one", nargs=3, metavar=("LIBRARY", "WHERE", "WORLDS"), help="what a process of its own is asked")
    args = p.parse_args()
    frames = int(args.frames)
    if args.one:
        name, where, worlds = args.one[0], args.one[1], int(args.one[2])
        print(json.dumps(measure(name, where, worlds, frames * (4 if worlds == MANY else 1))))
        return
    cases = [
        (name, where, n) for name in args.only for where, n in (("here", WORLDS), ("gymnasium", WORLDS), ("here", MANY))
    ]
    found: dict[tuple, list[float]] = {case: [] for case in cases}
    missing = {name for name in args.only if not importlib.util.find_spec(LIBRARIES[name])}
    if args.write and (missing or args.only != list(LIBRARIES)):
        raise SystemExit(f"--write wants all libraries; not here: {', '.join(sorted(missing)) or 'none'}")
    for _ in range(args.rounds):
        for case in cases:
            if case[0] not in missing:
                found[case].append(in_a_process(case, args.frames))
                print(*case, f"{found[case][-1]:,.0f}", flush=True)
    rows = [row(name, found) for name in args.only if name not in missing]
    few, many = f"{WORLDS} worlds", f"{MANY:,} worlds"
    head = ["library", "lines of code", f"Gymnasium's own, {few}", f"here, {few}", "ratio", f"here, {many}", "ratio"]
    text = f"{cpu_model()}, {cores()} cores; medians of {args.rounds} rounds.\n\n{table(head, rows)}"
    print(text)
    if args.write:
        put(PAGE, BEGIN, END, text)


def in_a_process(case: tuple, frames: float) -> float:
    command = [sys.executable, "-m", "benchmarks.libraries", "--frames", str(frames), "--one", *map(str, case)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    with tempfile.TemporaryDirectory() as folder:  # rl_games and skrl write into the current folder
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{case}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def row(name: str, found: dict[tuple, list[float]]) -> list[str]:
    theirs, ours, many = (
        statistics.median(found[name, where, n])
        for where, n in (("gymnasium", WORLDS), ("here", WORLDS), ("here", MANY))
    )
    count = str(lines(snippets()[name])) if name in snippets() else "9 changed"
    return [name, count, number(theirs), number(ours), f"{ours / theirs:.1f}x", number(many), f"{many / theirs:.1f}x"]


if __name__ == "__main__":
    main()

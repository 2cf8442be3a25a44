"""MJX on the same device, in turns with ours: each size and setting in a process of its own, with packages of its own.

    pip install --target DIR mujoco-mjx "jax[cuda13]"
    python -m benchmarks.gpu_peers --mjx-site DIR                  # into benchmarks/results/DATE-gpu-peers.json
    python -m benchmarks.gpu_peers --mjx-site DIR --tasks HalfCheetah --num-envs 64     # a look; without a GPU, too

MJX 3 needs MuJoCo 3, this package MuJoCo 4. DIR is searched first, then what this Python has; so JAX may be in either.

A peer has physics alone, no observation, reward or reset: so both start from the same seasoned states, under the same
random controls, and are put back there before the worlds have left the states that occur in episodes. The models are
Gymnasium's own; where those ask for PGS, Newton stands in for it, as MJX has no PGS. Two rows a size: with the model's
own limits of iterations, which MJX seldom reaches, and with few, as its users set. Ours always runs to convergence.

First all processes compile, several at a time, while nothing is timed: `first_call_s` is with others beside it. Then
each takes turns with ours, by the clock on the wall, while the rest wait and keep the memory they have.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium.envs.mujoco.mujoco_env import expand_model_path

from torch_mjenvs.physics.simulation import Simulation

from . import machine, report
from .cases import CASES, Case, Season, season
from .machine import cores, spread, wait

RESULTS = Path(__file__).with_name("results")
PROGRAM = Path(__file__).with_name("mjx_process.py")
NUM_ENVS = (4096, 32768)
SETTINGS: dict[str, dict[str, int]] = {"the model's": {}, "few iterations": {"iterations": 4, "ls_iterations": 8}}
LIMIT = 150.0  # seconds for one process to be ready, compilation included
SHORTEST = 30.0  # seconds: with less than this left, no process is begun
ANSWER = 60.0  # seconds for one call, when all is compiled
ENV_STEPS = 5  # of one call, from the seasoned states
ROUNDS = 5


class PeerError(Exception):
    """Why there is no figure."""


def main(argv: list[str] | None = None) -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--tasks", nargs="+", choices=list(CASES), default=list(CASES))
    p.add_argument("--num-envs", nargs="+", type=int, default=list(NUM_ENVS))
    p.add_argument("--mjx-site", type=Path, required=True, help="folder of packages with mujoco-mjx and its mujoco")
    p.add_argument("--minutes", type=float, default=8.0, help="no process is begun, and none compiles, after so many")
    p.add_argument("--limit", type=float, default=LIMIT, help="seconds for one process to be ready")
    p.add_argument("--out", type=Path, default=RESULTS / f"{datetime.date.today().isoformat()}-gpu-peers.json")
    args = p.parse_args(argv)
    end = time.monotonic() + 60 * args.minutes
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", torch.cuda.current_device()) if cuda else torch.device("cpu")
    results: dict[str, Any] = {
        "date": datetime.date.today().isoformat(),
        "device": torch.cuda.get_device_name(device) if cuda else machine.cpu_model(),
        "versions": machine.versions(),
        "tasks": {name: {} for name in args.tasks},
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)

    def save(results: dict[str, Any]) -> None:
        args.out.write_text(json.dumps(results, indent=1) + "\n")

    cases = [CASES[name] for name in args.tasks]
    measure(cases, sorted(set(args.num_envs)), results, device, args.mjx_site, end, save, args.limit)
    print(report.gpu_peers_table([(task, row) for task, found in results["tasks"].items() for row in found["peers"]]))
    print(f"wrote {args.out}")
    return 0


def measure(
    cases: list[Case],
    sizes: list[int],
    results: dict[str, Any],
    device: torch.device,
    site: Path | None,
    end: float,
    save: Callable[[dict[str, Any]], None],
    limit: float = LIMIT,
) -> None:
    """Put rows under "peers" of every task, small sizes first, and print them.

    site: the folder with MJX. end: on the monotonic clock; nothing compiles after it. `save` is called after every row.
    """
    for case in cases:
        results["tasks"][case.name]["peers"] = []
    seasons = {case.name: season(case) for case in cases} if site else {}
    pool = ThreadPoolExecutor(max(1, cores() // 2))  # of threads that wait for a process each
    with tempfile.TemporaryDirectory() as folder, pool, ExitStack() as stack:
        peers = [
            Peer(case, n, settings, device, site, Path(folder))
            for n in sizes
            for case in cases
            for settings in SETTINGS
        ]
        for peer in peers:
            stack.callback(peer.close)
        if site:
            for peer in peers:
                peer.write(seasons[peer.case.name])
            list(pool.map(lambda peer: peer.begin(min(limit, end - time.monotonic())), peers))
        for peer in peers:
            row = {"peer": "MJX", "num_envs": peer.n, "settings": peer.settings, **peer.row()}
            peer.close()
            results["tasks"][peer.case.name]["peers"].append(row)
            save(results)
            print(peer.case.name, json.dumps(row), flush=True)


class Peer:
    """MJX with one model, size and settings, in a process of its own, and ours to be timed beside it."""

    def __init__(self, case: Case, n: int, settings: str, device: torch.device, site: Path | None, folder: Path):
        self.case, self.n, self.settings, self.device, self.site = case, n, settings, device, site
        self.frame_skip = case.task().frame_skip
        self.states = folder / f"{case.name}-{n}.npz"
        self.reached, self.log = (folder / f"{case.name}-{n}-{settings}.{suffix}" for suffix in ("npy", "txt"))
        self.process: subprocess.Popen[str] | None = None
        self.told: dict[str, Any] = {"error": "no folder with MJX was named: --mjx-site"}

    def write(self, seasoned: Season) -> None:
        """Write what both start from: states, and controls uniform over the actuators' ranges."""
        chosen = torch.arange(self.n) % len(seasoned.states["qpos"])
        low, high = self.case.task().load().actuator_ctrlrange.T
        drawn = np.random.default_rng(0).random((ENV_STEPS, self.n, len(low)))
        states = {name: seasoned.states[name][chosen].numpy() for name in ("qpos", "qvel")}
        np.savez(self.states, controls=low + (high - low) * drawn, **states)

    def begin(self, seconds: float) -> None:
        """Start the process and wait until it is ready, or was stopped after so many seconds."""
        if seconds < SHORTEST:
            self.told = {"error": "no time was left for it"}
            return
        model = expand_model_path(os.fspath(self.case.task().xml_file))
        command = [sys.executable, "-P", PROGRAM, model, self.states, self.reached, str(self.frame_skip)]
        for name, value in SETTINGS[self.settings].items():
            command += [f"--{name.replace('_', '-')}", str(value)]
        paths = [os.fspath(self.site), *filter(None, [os.environ.get("PYTHONPATH")])]
        platforms = "cuda,cpu" if self.device.type == "cuda" else "cpu"  # the first is used, and an error if missing
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "JAX_PLATFORMS": platforms}
        with self.log.open("w") as log:
            pipe = subprocess.PIPE
            self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=log, text=True, env=env)
        try:
            self.told = self.answer(seconds)
        except PeerError as error:
            self.told = {"error": str(error)}
            self.close()
        print(f"{self.case.name}, {self.n:,}, {self.settings}: {self.told}", file=sys.stderr, flush=True)

    def answer(self, seconds: float) -> dict[str, Any]:
        """Read the next line of JSON. A process that takes too long is killed. Raises PeerError if there is none."""
        began = time.monotonic()
        timer = threading.Timer(seconds, self.process.kill)
        timer.start()
        line = next((line for line in self.process.stdout if line.startswith("{")), None)
        timer.cancel()
        if line is None:
            code = self.process.wait()
            if time.monotonic() - began >= seconds:
                raise PeerError(f"nothing after {seconds:.0f} s")
            raise PeerError((self.log.read_text().strip().splitlines() or [f"it ended with {code}"])[-1][:200])
        found = json.loads(line)
        if "error" in found:
            raise PeerError(found["error"])
        return found

    def call(self) -> float:
        """Seconds of one call, as the process says."""
        with suppress(BrokenPipeError):  # then it has ended; what it wrote says why
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        return self.answer(ANSWER)["seconds"]

    def row(self) -> dict[str, Any]:
        """Physics steps a second of both, in turns. Whatever keeps either from that is told."""
        if "error" in self.told:
            return self.told
        try:
            return {**self.told, **self.race()}
        except (PeerError, RuntimeError) as error:  # torch's OutOfMemoryError is one
            return {**self.told, "error": f"{error}".splitlines()[0][:200]}

    def race(self) -> dict[str, Any]:
        with np.load(self.states) as states:
            ours = our_step(self.case, {name: torch.from_numpy(states[name]) for name in states.files}, self.device)
        apart = (ours().cpu().double() - torch.from_numpy(np.load(self.reached)).double()).abs().amax(1)
        seconds: dict[str, list[float]] = {"physics": [], "ours": []}
        for _ in range(ROUNDS):
            seconds["physics"].append(self.call())
            began = time.perf_counter()
            ours()
            seconds["ours"].append(time.perf_counter() - began)
        steps = self.n * ENV_STEPS * self.frame_skip
        rates = {name: [steps / s for s in found] for name, found in seconds.items()}
        ratios = [a / b for a, b in zip(rates["ours"], rates["physics"], strict=True)]
        return {
            "apart": apart.nan_to_num(torch.inf).median().item(),  # metres or radians
            **{name: spread(found) for name, found in rates.items()},
            "ratio": {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios)},
        }

    def close(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()


def our_step(case: Case, states: dict[str, torch.Tensor], device: torch.device) -> Callable[[], torch.Tensor]:
    """Physics alone, as the peer does it, in float32. The function returns when the device is done."""
    sim = Simulation(case.task().load(), len(states["qpos"]), device=device)
    qpos, qvel, controls = (states[name].to(device, sim.dtype) for name in ("qpos", "qvel", "controls"))
    frame_skip = case.task().frame_skip

    def step() -> torch.Tensor:
        sim.qpos.copy_(qpos)
        sim.qvel.copy_(qvel)
        sim.qacc_warmstart.zero_()
        for ctrl in controls:
            sim.ctrl.copy_(ctrl)
            sim.step(frame_skip)
        wait(device)
        return sim.qpos

    return step


if __name__ == "__main__":
    sys.exit(main())

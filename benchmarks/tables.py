"""Prints tables of the documents that no other benchmark makes. They need what `make setup` installs.

python -m benchmarks.tables stages          # where the time of one evaluation goes: benchmarks/results/tried-solver.md
python -m benchmarks.tables torchrl         # what TorchRL adds to a step: docs/torchrl.md
python -m benchmarks.tables parameters      # what worlds with parameters of their own cost: docs/performance.md
python -m benchmarks.tables pgs             # how far stock Humanoid is from convergence: docs/exactness.md
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial

import gymnasium
import numpy as np
import torch
from scipy.stats import bootstrap, ks_2samp
from tensordict import TensorDictBase
from torchrl.collectors import Collector
from torchrl.envs import Compose, EnvBase, RewardSum, StepCounter, TransformedEnv

from torch_mjenvs import HalfCheetahEnv, Scale, TorchVectorEnv
from torch_mjenvs.compiler.build import build
from torch_mjenvs.compiler.program import Buffer, Program, record
from torch_mjenvs.physics.model.data import Data
from torch_mjenvs.physics.model.model import Model
from torch_mjenvs.physics.model.precision import SINGLE
from torch_mjenvs.physics.pipeline import FWD_ACTUATION, FWD_POSITION, FWD_VELOCITY, compute, forward
from torch_mjenvs.physics.simulation import Simulation

from .cases import ACTION_SETS, CASES, Case, Season, draw_actions, season
from .machine import cpu_model, turns

# where the time of one evaluation goes

STAGE_WORLDS, STAGE_ROUNDS = 1024, 15


def smooth_dynamics(m: Model, d: Data) -> list:
    """Kinematics, M, bias, passive and actuator forces."""
    compute(d, (*FWD_POSITION, *FWD_VELOCITY, *FWD_ACTUATION))
    return [x for row in d.M for x in row.values()] + d.qfrc_smooth


def constraints(m: Model, d: Data) -> list:
    """... and distances, limits, the rows of contacts that touch, and one look at each."""
    total, slopes = smooth_dynamics(m, d), [0.0] * 4
    for c in d.constraints:
        slopes = c.fold_rows(m, d, d.qvel, d.qvel, 1.0, slopes)
    return total + slopes


def everything(m: Model, d: Data) -> list:
    """... and Newton."""
    forward(d)
    return d.qacc_solver


STAGES = (smooth_dynamics, constraints, everything)


def stop_after(m: Model, computed: Callable[[Model, Data], list]) -> Program:
    """Record a kernel whose only output is a sum over what was computed, so that nothing after that is computed."""
    buffers = [Buffer("qpos", m.nq), Buffer("qvel", m.nv), Buffer("qacc_warmstart", m.nv), Buffer("ctrl", m.nu)]

    def body(b: dict[str, list]) -> dict[str, list]:
        total = 0.0
        given = {k: b[k] for k in ("qpos", "qvel", "qacc_warmstart", "ctrl")}
        for x in computed(m, Data(m, precision=SINGLE, **given)):
            total = total + x
        return {"sum": [total]}

    return record("stages", [*buffers, Buffer("sum", 1)], body, "float32")


def stages() -> None:
    """Kernels that stop after a stage, from the states of a rollout, one core."""
    torch.set_num_threads(1)
    print("| | smooth dynamics | constraint rows | Newton | all, us a vector |\n|---|--:|--:|--:|--:|")
    for case in CASES.values():
        env = TorchVectorEnv(case.task(), STAGE_WORLDS, autoreset_mode="SameStep", device="cpu")
        env.reset(seed=0)
        high = torch.from_numpy(env.single_action_space.high)
        for _ in range(40):
            env.step((torch.rand(STAGE_WORLDS, len(high)) * 2 - 1) * high)
        engine = env.engine
        m = engine.model
        tensors = {name: engine.buffers[name] for name in ("qpos", "qvel", "qacc_warmstart")}
        tensors |= {"ctrl": engine.buffers["action"].T.contiguous(), "sum": torch.zeros(1, STAGE_WORLDS)}
        launches = [build(stop_after(m, computed), torch.device("cpu")).bind(tensors) for computed in STAGES]
        runs = {k: partial(launch, times=10) for k, launch in enumerate(launches)}
        vectors = 10 * STAGE_WORLDS / 16
        times = turns(runs, STAGE_ROUNDS, clock=time.perf_counter)
        first, second, whole = (1e6 * statistics.median(x) / vectors for x in times.values())
        parts = (first, second - first, whole - second)
        shares = " | ".join(f"{part:.2f} us, {part / whole:.0%}" for part in parts)
        print(f"| {case.name} | {shares} | {whole:.2f} |")


# what TorchRL adds

SIZES = (64, 1024, 4096)
STEPS, ROUNDS = 50, 21  # steps of a round; rounds of each contender


def grow_old(engine) -> None:
    engine.elapsed_steps.copy_(torch.randint(1000, (engine.num_envs,)))


def engine_alone(n: int) -> Iterator[None]:
    vector = TorchVectorEnv("HalfCheetah", n, autoreset_mode="SameStep", device="cpu")
    vector.reset(seed=0)
    grow_old(vector.engine)
    vector.engine.action.uniform_(-1, 1)
    while True:
        for _ in range(STEPS):
            vector.engine.step()
        yield


def vector_env(n: int) -> Iterator[None]:
    env = TorchVectorEnv("HalfCheetah", n, autoreset_mode="SameStep", device="cpu")
    env.reset(seed=0)
    grow_old(env.engine)
    action = torch.rand(n, 6) * 2 - 1
    while True:
        for _ in range(STEPS):
            env.step(action)
        yield


def stepped(native: bool = False, transforms: bool = False, ordinary: bool = False) -> Callable[[int], Iterator[None]]:
    def run(n: int) -> Iterator[None]:
        base = HalfCheetahEnv(n, native_autoreset=native, device="cpu")
        env = TransformedEnv(base, Compose(StepCounter(), RewardSum())) if transforms else base
        td = env.reset()
        grow_old(base.engine)
        action = env.rand_action()["action"]
        while True:
            for _ in range(STEPS):
                td.set("action", action)
                _, td = EnvBase._step_and_maybe_reset(env, td) if ordinary else env.step_and_maybe_reset(td)
            yield

    return run


def collected(**arguments) -> Callable[[int], Iterator[None]]:
    def run(n: int) -> Iterator[None]:
        env = HalfCheetahEnv(n, device="cpu")
        action = env.rand_action()["action"]

        def policy(td: TensorDictBase) -> TensorDictBase:
            return td.set("action", action)

        collector = Collector(env, policy, frames_per_batch=n * STEPS, **arguments)
        grow_old(env.engine)
        for _ in collector:
            yield

    return run


ROWS = {
    "the engine alone": engine_alone,
    "`TorchVectorEnv`": vector_env,
    "`HalfCheetahEnv`": stepped(),
    "... by TorchRL's own order of step and reset": stepped(ordinary=True),
    "... with `native_autoreset=True`": stepped(native=True),
    "with StepCounter and RewardSum": stepped(transforms=True),
    "... with `native_autoreset=True` ": stepped(transforms=True, native=True),
    "in a `Collector`": collected(),
    "... with `track_traj_ids=False`": collected(track_traj_ids=False),
}


def torchrl() -> None:
    """HalfCheetah, actions drawn beforehand, one thread, worlds of all ages, so that an episode ends in most steps.

    What is timed takes turns, and the processor's time is counted, so that other work on the machine matters little.
    """
    torch.set_num_threads(1)
    seconds: dict[tuple[str, int], list[float]] = {}
    for n in SIZES:
        runs = {(name, n): partial(next, make(n)) for name, make in ROWS.items()}
        seconds |= turns(runs, ROUNDS, clock=time.thread_time, first=1)
    print(f"{cpu_model()}, one thread\n")
    print("| | " + " | ".join(f"{n:,} worlds" for n in SIZES) + " |\n|---|" + "--:|" * len(SIZES))
    for name in ROWS:
        took = [statistics.median(seconds[name, n]) / STEPS for n in SIZES]
        cells = [f"{n / t / 1e3:,.0f} k ({1e6 * t:,.0f} µs)" for n, t in zip(SIZES, took, strict=True)]
        print(f"| {name.strip()} |", " | ".join(cells), "|")


# what parameters per world cost

VARIED = ("body_mass", "body_ipos", "geom_friction", "dof_damping", "actuator_gear")
VARIED_TASKS = ("HalfCheetah", "Ant", "Humanoid")
VARIED_WORLDS, VARIED_ROUNDS = 4096, 25
SPREAD = (0.95, 1.05)


def varied_environment(case: Case, seasoned: Season, **arguments) -> Iterator[None]:
    env = TorchVectorEnv(case.task(), VARIED_WORLDS, autoreset_mode="SameStep", device="cpu", **arguments)
    env.reset(seed=0)
    actions = draw_actions(env.engine, VARIED_WORLDS, 4 * ACTION_SETS)
    load = seasoned.loader(env.engine)
    while True:
        load()
        yield
        for action in actions:
            env.step(action)
        yield


def varied_simulation(case: Case, seasoned: Season, vary: tuple[str, ...]) -> Iterator[None]:
    """Physics steps of one launch each."""
    model = case.task().load()
    sim = Simulation(model, VARIED_WORLDS, "cpu", vary=vary)
    low, high = torch.from_numpy(model.actuator_ctrlrange.T.copy()).float()
    sim.ctrl.copy_(low + (high - low) * torch.rand(sim.ctrl.shape))
    for name in vary:
        low, high = SPREAD
        sim.set_params({name: sim.params[name] * (low + (high - low) * torch.rand(sim.params[name].shape))})
    load = seasoned.loader(sim)
    while True:
        load()
        yield
        for _ in range(40):
            sim.step()
        yield


def parameters() -> None:
    """Beside the same code with constants, float32, one thread, processor time, in turns.

    In environments the worlds have the model's own numbers (`vary`) or numbers very near them (`randomize`), so that
    they do the same as those they are compared with; in `Simulation` they differ by 10 %.
    """
    torch.set_num_threads(1)
    print(f"{cpu_model()}, one thread, {VARIED_WORLDS:,} worlds; median of {VARIED_ROUNDS} turns, the middle half\n")
    print("| | environment, `vary` | environment, `randomize` | one step a launch |\n|---|--:|--:|--:|")
    for name in VARIED_TASKS:
        case, near = CASES[name], dict.fromkeys(VARIED, Scale(1 - 1e-6, 1 + 1e-6))
        seasoned = season(case)
        torch.manual_seed(0)
        pairs = [
            (varied_environment(case, seasoned), varied_environment(case, seasoned, vary=VARIED)),
            (varied_environment(case, seasoned), varied_environment(case, seasoned, randomize=near)),
            (varied_simulation(case, seasoned, ()), varied_simulation(case, seasoned, VARIED)),
        ]
        cells = []
        for pair in pairs:
            runs = {run: partial(next, run) for run in pair}
            took = turns(runs, VARIED_ROUNDS - 1, before=next, clock=time.thread_time, first=1)
            ratios = [100 * (a / b - 1) for a, b in zip(*took.values(), strict=True)]
            quarter, middle, three = statistics.quantiles(ratios, n=4)
            cells.append(f"{middle:+.1f} % ({quarter:+.1f} to {three:+.1f})")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


# PGS, and what it stops short of

STATES = EPISODES = 2000


def one_step() -> np.ndarray:
    """Largest |difference| of qvel after one environment step (float64), from states along random rollouts."""
    stock = gymnasium.make("Humanoid-v5", terminate_when_unhealthy=False).unwrapped
    rng = np.random.default_rng(0)
    qpos, qvel, actions, after = [], [], [], []
    for step in range(STATES):
        if step % 100 == 0:
            stock.reset(seed=step)
        action = rng.uniform(-0.4, 0.4, 17)
        qpos.append(stock.data.qpos.copy())
        qvel.append(stock.data.qvel.copy())
        stock.step(action)
        actions.append(action)
        after.append(stock.data.qvel.copy())
    ours = TorchVectorEnv("Humanoid", STATES, dtype=torch.float64, autoreset_mode="Disabled", device="cpu")
    ours.reset(seed=0)
    ours.set_state(torch.tensor(np.array(qpos)), torch.tensor(np.array(qvel)))
    ours.step(torch.tensor(np.array(actions)))
    return np.abs(ours.qvel.numpy() - np.array(after)).max(1)


def our_episodes() -> tuple[np.ndarray, np.ndarray]:
    n = EPISODES
    env = TorchVectorEnv("Humanoid", n, dtype=torch.float64, autoreset_mode="SameStep", device="cpu")
    env.reset(seed=1)
    generator = torch.Generator().manual_seed(2)
    returns, lengths, alive = torch.zeros(n, dtype=torch.float64), torch.zeros(n), torch.ones(n, dtype=torch.bool)
    while alive.any():
        _, reward, terminated, truncated, _ = env.step(torch.rand(n, 17, generator=generator) * 0.8 - 0.4)
        returns += torch.where(alive, reward, 0.0)
        lengths += alive
        alive &= ~(terminated | truncated)
    return returns.numpy(), lengths.numpy()


def stock_episodes() -> tuple[np.ndarray, np.ndarray]:
    env = gymnasium.make("Humanoid-v5")
    env.action_space.seed(3)
    returns, lengths = np.zeros(EPISODES), np.zeros(EPISODES)
    for k in range(EPISODES):
        env.reset(seed=k)
        over = False
        while not over:
            _, reward, terminated, truncated, _ = env.step(env.action_space.sample())
            returns[k] += reward
            lengths[k] += 1
            over = terminated or truncated
    return returns, lengths


def interval(x: np.ndarray) -> str:
    low, high = bootstrap((x,), np.mean, n_resamples=2000, rng=0).confidence_interval
    return f"{x.mean():.2f} [{low:.2f}, {high:.2f}]"


def pgs() -> None:
    """How far stock Humanoid, whose PGS solver stops early, is from the same problem solved to convergence."""
    d = one_step()
    (returns, lengths), (stock_returns, stock_lengths) = our_episodes(), stock_episodes()
    print(f"""## Humanoid's solver

Gymnasium's `humanoid.xml` asks for MuJoCo's PGS solver with at most 50 iterations. torch_mjenvs solves the same convex
problem, but where PGS stops short of the solution, it goes on to convergence. Measured by
`python -m benchmarks.tables pgs`:

**One environment step**, float64, {STATES:,} states along random rollouts that go on after a fall: the largest
difference in qvel is {np.median(d):.1e} in the median, {np.quantile(d, 0.99):.1e} at the 99th percentile, {d.max():.1e}
at the worst.

**Episodes**, uniform random actions, {EPISODES:,} in each: mean and its 95% interval, and p of the Kolmogorov-Smirnov
test of whether the two distributions are the same:

| | here | Gymnasium's Humanoid-v5 | p |
|---|--:|--:|--:|
| return | {interval(returns)} | {interval(stock_returns)} | {ks_2samp(returns, stock_returns).pvalue:.2f} |
| length | {interval(lengths)} | {interval(stock_lengths)} | {ks_2samp(lengths, stock_lengths).pvalue:.2f} |""")


TABLES = {"stages": stages, "torchrl": torchrl, "parameters": parameters, "pgs": pgs}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=TABLES)
    TABLES[parser.parse_args().table]()

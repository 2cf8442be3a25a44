"""Robots of other packages and our own, and heaps of bodies: physics steps/s beside mujoco.rollout, in one run.

    pip install --no-deps dm_control gymnasium-robotics playground
    python -m benchmarks.robots                    # some minutes; writes results/robots.json and .md
    python -m benchmarks.robots --only go1 --quick

MuJoCo's own rollouts under random controls give the states: robots have fallen, or stand in contact. From each of them
both go on with the same controls, again and again, in turns: ours in float32, MuJoCo on as many threads, ours in
float64. What is not installed, or refused, is named instead.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import datetime
import json
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import mujoco
import numpy as np
import torch
from mujoco import rollout

from torch_mjenvs import UnsupportedModel
from torch_mjenvs.physics import load
from torch_mjenvs.physics.collision.shapes import SHAPES
from torch_mjenvs.physics.simulation import MOCAP, Simulation

from . import machine, parity, report
from .machine import DTYPES, QUIET, Contender, Race, Watch, cores, race
from .robot_models import ROBOTS, ROOT, Missing, Robot

HOLD = 5  # steps for which a control is held
PERIODS = 4  # controls in a timed rollout
# Worlds that give states, states of each; seconds between them, and before the first.
WANDERING, MARKS, APART, BEGUN = 128, 8, 0.1, 1.0
COMPARED = 64  # states from which one step is compared
STATE, FULL = ("qpos", "qvel", "act", "qacc_warmstart"), mujoco.mjtState.mjSTATE_FULLPHYSICS
GIVEN = mujoco.mjtState.mjSTATE_CTRL | mujoco.mjtState.mjSTATE_MOCAP_POS | mujoco.mjtState.mjSTATE_MOCAP_QUAT


@dataclass(frozen=True)
class Effort:
    worlds: int
    rounds: int
    window: float  # seconds
    warmup: float


EFFORT = Effort(4096, 7, 0.5, 0.2)
QUICK = Effort(256, 2, 0.05, 0.02)


# the states


@dataclass(frozen=True)
class States:
    """P states, and what follows: `given` are controls, and places and orientations of mocap bodies, (P, PERIODS, n).

    full: states as MuJoCo packs them. fields: the same by name, (P, n). contacts: the number of contacts in each.
    """

    full: np.ndarray
    fields: dict[str, np.ndarray]
    given: np.ndarray
    contacts: np.ndarray

    def __len__(self) -> int:
        return len(self.full)


def controls(model: mujoco.MjModel, shape: Sequence[int], rng: np.random.Generator) -> np.ndarray:
    """Draw controls uniformly over each actuator's range; from -1 to 1 for those without one."""
    limited = model.actuator_ctrllimited.astype(bool)[:, None]
    low, high = np.where(limited, model.actuator_ctrlrange, [-1.0, 1.0]).T
    return rng.uniform(low, high, (*shape, model.nu))


def driven(given: np.ndarray) -> dict:
    """Return the arguments of a rollout for what it is given; none if the model has no controls and no mocap bodies."""
    return {"control": given, "control_spec": int(GIVEN)} if given.shape[-1] else {}


def wander(robot: Robot, model: mujoco.MjModel) -> States:
    """States along rollouts under random controls."""
    rng, dt = np.random.default_rng(0), HOLD * model.opt.timestep
    marks = [round((BEGUN + k * APART) / dt) for k in range(MARKS)]
    periods = marks[-1] + PERIODS
    datas = [mujoco.MjData(model) for _ in range(cores())]
    first = np.zeros((WANDERING, mujoco.mj_stateSize(model, FULL)))
    given = np.zeros((WANDERING, periods, model.nu + 7 * model.nmocap))
    given[:, :, : model.nu] = controls(model, (WANDERING, periods), rng)
    for k in range(WANDERING):
        robot.begin(model, datas[0], rng)
        mujoco.mj_getState(model, datas[0], first[k], FULL)
        given[k, :, model.nu :] = robot.walk(datas[0], periods, rng)
    with rollout.Rollout(nthread=cores()) as pool:
        steps = HOLD * (periods - PERIODS)
        went, _ = pool.rollout(model, datas, first, nstep=steps, **driven(given.repeat(HOLD, 1)[:, :steps]))
    before = went[:, [HOLD * mark - 1 for mark in marks]].reshape(WANDERING * MARKS, -1)
    order = rng.permutation(len(before))
    on = np.stack([given[:, mark : mark + PERIODS] for mark in marks], 1).reshape(len(before), PERIODS, -1)
    return settled(model, before[order], on[order])


def settled(model: mujoco.MjModel, full: np.ndarray, given: np.ndarray) -> States:
    """Make one step, which leaves a warm start, and return the states after it."""
    data, contacts = mujoco.MjData(model), []
    fields: dict[str, list] = {name: [] for name in STATE}
    for state, first in zip(full, given[:, 0], strict=True):
        mujoco.mj_resetData(model, data)
        mujoco.mj_setState(model, data, state, FULL)
        mujoco.mj_setState(model, data, first, GIVEN)
        mujoco.mj_step(model, data)
        mujoco.mj_getState(model, data, state, FULL)
        for name, rows in fields.items():
            rows.append(getattr(data, name).copy())
        contacts.append(data.ncon)
    assert np.isfinite(full).all(), "MuJoCo's own states are not finite"
    return States(full, {name: np.array(rows) for name, rows in fields.items()}, given, np.array(contacts))


def put(sim: Simulation, states: States, chosen: np.ndarray) -> Callable[[], None]:
    """Return a function that puts worlds into the chosen states."""
    ready = {name: getattr(sim, name).clone() for name in STATE if hasattr(sim, name)}
    for name, x in ready.items():
        x.copy_(torch.from_numpy(states.fields[name][chosen]))

    def load_all() -> None:
        for name, x in ready.items():
            getattr(sim, name).copy_(x)

    return load_all


def give(sim: Simulation, given: np.ndarray) -> None:
    """Set the controls and mocap bodies of each world."""
    nu, nmocap = sim.model.nu, sim.model.nmocap
    sim.ctrl.copy_(torch.from_numpy(given[:, :nu]))
    if nmocap:
        for name, x in zip(MOCAP, (given[:, nu : nu + 3 * nmocap], given[:, nu + 3 * nmocap :]), strict=True):
            view = getattr(sim, name)
            view.copy_(torch.from_numpy(x).reshape(view.shape))


# contenders


def ours(dtype: str, sim: Simulation, states: States) -> Contender:
    chosen = np.arange(sim.num_worlds) % len(states)
    load_all, k = put(sim, states, chosen), 0
    names = ("ctrl", *MOCAP) if sim.model.nmocap else ("ctrl",)
    ready = []
    for period in range(PERIODS):
        give(sim, states.given[chosen, period])
        ready.append({name: getattr(sim, name).clone() for name in names})

    def step() -> int:
        nonlocal k
        if k == 0:
            load_all()
        for name, x in ready[k].items():
            getattr(sim, name).copy_(x)
        k = (k + 1) % PERIODS
        sim.step(HOLD)
        return HOLD * sim.num_worlds

    return Contender(dtype, step)


def theirs(model: mujoco.MjModel, states: States) -> Contender:
    """mujoco.rollout from the same states, some at a time."""
    threads, steps = cores(), HOLD * PERIODS
    pool = rollout.Rollout(nthread=threads if threads > 1 else 0)
    datas = [mujoco.MjData(model) for _ in range(threads)]
    batch = min(64 * threads, len(states))
    given, warm = states.given.repeat(HOLD, 1), states.fields["qacc_warmstart"]
    out = np.zeros((batch, steps, states.full.shape[1])), np.zeros((batch, steps, model.nsensordata))
    models, k = [model] * batch, 0

    def step() -> int:
        nonlocal k
        some = slice(k, k + batch)
        k = (k + batch) % (len(states) - len(states) % batch)
        pool.rollout(models, datas, states.full[some], **driven(given[some]), skip_checks=True, nstep=steps,
                     initial_warmstart=warm[some], state=out[0], sensordata=out[1])  # fmt: skip
        return batch * steps

    return Contender(f"mujoco.rollout, {threads} threads", step, threads)


# what is measured of a robot


def one_step(model: mujoco.MjModel, sims: dict[str, Simulation], states: States) -> dict[str, float]:
    """Return how far a step is from MuJoCo's with a solver that converges: the largest of |difference| / (1 + |value|)
    over the positions and velocities of a state.
    """
    sharp, some = copy.copy(model), range(COMPARED)
    parity.converge(sharp)
    data, want = mujoco.MjData(sharp), []
    for k in some:
        mujoco.mj_resetData(sharp, data)
        mujoco.mj_setState(sharp, data, states.full[k], FULL)
        mujoco.mj_setState(sharp, data, states.given[k, 0], GIVEN)
        data.qacc_warmstart[:] = states.fields["qacc_warmstart"][k]
        mujoco.mj_step(sharp, data)
        want.append(np.concatenate([data.qpos, data.qvel]))
    found = {}
    for dtype, sim in sims.items():
        chosen = np.arange(sim.num_worlds) % len(states)
        put(sim, states, chosen)()
        give(sim, states.given[chosen, 0])
        sim.step()
        got = torch.cat([sim.qpos, sim.qvel], 1)[:COMPARED].double().numpy()
        off = parity.relative(got, np.array(want))
        found |= {f"{dtype}_median": float(np.median(off)), f"{dtype}_p90": float(np.quantile(off, 0.9))}
        found[f"{dtype}_worst"] = float(off.max())
    return found


@contextlib.contextmanager
def empty_cache() -> Iterator[None]:
    """Have everything that is built within be built anew."""
    before = os.environ.get("TORCH_MJENVS_CACHE")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TORCH_MJENVS_CACHE"] = folder
        try:
            yield
        finally:
            if before is None:
                del os.environ["TORCH_MJENVS_CACHE"]
            else:
                os.environ["TORCH_MJENVS_CACHE"] = before


def built(model: mujoco.MjModel, dtype: str, worlds: int) -> tuple[Simulation, dict]:
    watch, began, cpu = Watch(), time.perf_counter(), time.process_time()
    sim = Simulation(model, worlds, "cpu", DTYPES[dtype])
    took = {"build_s": time.perf_counter() - began, "build_cpu_s": time.process_time() - cpu}
    return sim, took | {"code_bytes": sim._step.kernel.code_bytes, "foreign_cores": watch.foreign_cores()}


def measure(robot: Robot, effort: Effort) -> dict:
    model = robot.make()
    m = load(model)
    shapes = Counter(" and ".join(SHAPES[m.geom_type[g]].plural for g in (p.geom1, p.geom2)) for p in m.pairs)
    out: dict = {"title": robot.title, "note": robot.note, "many": robot.many, "dofs": m.nv, "bodies": m.nbody - 1}
    out |= {"pairs": len(m.pairs), "pairs_of": dict(shapes), "num_worlds": effort.worlds}
    sims = {}
    for dtype in DTYPES:
        sims[dtype], out[dtype] = built(model, dtype, effort.worlds)
    out["operations"] = machine.operations(model)
    states = wander(robot, model)
    out |= {"contacts": float(states.contacts.mean()), "touching": float((states.contacts > 0).mean())}
    out["one_step"] = one_step(model, sims, states)
    peer = theirs(model, states)
    single, double = (ours(dtype, sim, states) for dtype, sim in sims.items())
    found = race([single, peer, double], effort.rounds, effort.window, effort.warmup, QUIET)
    return out | compared(found, peer.name, list(sims))


def compared(found: Race, peer: str, dtypes: list[str]) -> dict:
    out: dict = {"peer": {"name": peer, "rate": found.summary(peer)}, "weather": found.weather(), "rates": {}}
    for dtype in dtypes:
        out["rates"][dtype] = {"rate": found.summary(dtype), "ratio": found.ratio(dtype, peer)}
    return out


# the page


def markdown(results: dict) -> str:
    found = results["robots"]
    parts = [report.machine_lines(results), "\n".join(f"- {note}" for note in notes(results))]
    for title, many in (("Robots", False), ("Many bodies", True)):
        if chosen := [robot for robot in found.values() if robot["many"] == many]:
            parts += [f"**{title}**: physics steps/s, {chosen[0]['num_worlds']:,} worlds, both from the same states"]
            parts += [speed_table(chosen), f"**{title}**: what a step is made of", size_table(chosen)]
    if found:
        parts += [
            "**One step** from the timed states beside MuJoCo's, its solver run to the end: the largest of "
            "|difference| / (1 + |value|) over a state's positions and velocities",
            parity_table(list(found.values())),
        ]
    return "\n\n".join(part for part in parts if part)


def notes(results: dict) -> list[str]:
    found = results["robots"].values()
    out = [f"{robot['title']}: {robot['note']}." for robot in found if robot["note"]]
    busy = [robot["title"] for robot in found if robot["weather"]["disturbed"]]
    out += [f"The machine was busy during {', '.join(busy)}: read these figures with care."] if busy else []
    slow = [robot["title"] for robot in found if robot["float32"]["foreign_cores"] > QUIET]
    out += [f"... and while {', '.join(slow)} was built."] if slow else []
    return [*out, *results["left_out"]]


def speed_table(robots: list[dict]) -> str:
    header = [
        "",
        robots[0]["peer"]["name"],
        "ours, float32",
        "ratio",
        "ours, float64",
        "ratio",
        "contacts a world",
        "worlds that touch",
    ]
    rows = []
    for r in robots:
        cells = [
            cell for x in r["rates"].values() for cell in (report.number(x["rate"]["median"]), report.times(x["ratio"]))
        ]
        rows.append(
            [
                r["title"],
                report.number(r["peer"]["rate"]["median"]),
                *cells,
                f"{r['contacts']:.1f}",
                f"{r['touching']:.0%}",
            ]
        )
    return report.table(header, rows)


def size_table(robots: list[dict]) -> str:
    header = [
        "",
        "dofs",
        "bodies",
        "pairs that may touch",
        "operations",
        "build, float32",
        "float64",
        "code, float32",
        "float64",
    ]
    rows = []
    for r in robots:
        builds = [report.seconds(r[dtype]["build_s"]) for dtype in DTYPES]
        code = [f"{r[dtype]['code_bytes'] / 1e6:.2f} MB" for dtype in DTYPES]
        sizes = [f"{x:,}" for x in (r["dofs"], r["bodies"], r["pairs"], r["operations"]["step"])]
        rows.append([r["title"], *sizes, *builds, *code])
    return report.table(header, rows)


def parity_table(robots: list[dict]) -> str:
    kinds = ("median", "p90", "worst")
    header = ["", *(f"{dtype}, {'90 %' if kind == 'p90' else kind}" for dtype in DTYPES for kind in kinds)]
    rows = [[r["title"], *(f"{r['one_step'][f'{d}_{kind}']:.1e}" for d in DTYPES for kind in kinds)] for r in robots]
    return report.table(header, rows)


def main(argv: list[str] | None = None) -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--only", nargs="+", choices=list(ROBOTS), default=list(ROBOTS))
    p.add_argument("--quick", action="store_true", help="few worlds and short windows: a look, not a measurement")
    p.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results", help="folder of the results")
    args = p.parse_args(argv)
    mujoco.set_mju_user_warning(lambda _: None)
    results: dict = {"date": datetime.date.today().isoformat(), "machine": machine.describe(), "left_out": []}
    results["robots"] = {}
    for name in args.only:
        robot, began = ROBOTS[name], time.perf_counter()
        try:
            with empty_cache():
                results["robots"][name] = measure(robot, QUICK if args.quick else EFFORT)
        except (Missing, UnsupportedModel) as error:
            results["left_out"].append(f"{robot.title} is left out: {error}.")
        print(f"{robot.title}: {time.perf_counter() - began:.0f} s", flush=True)
    text = markdown(results)
    print(text)
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "robots.json").write_text(json.dumps(results, indent=1) + "\n")
    (args.out / "robots.md").write_text(
        f"# Robots, {results['date']}\n\nWritten by `python -m benchmarks.robots`.\n\n{text}\n"
    )


if __name__ == "__main__":
    main()

"""Every model of the installed packages, a row each: what it takes to build, how right a step is, and how fast.

    python -m benchmarks.model_table                  # over an hour; rows come one by one, and are kept
    python -m benchmarks.model_table --only dog       # models whose path has this in it
    python -m benchmarks.model_table --again          # those that have a row, too

Each model is looked at in a process of its own, on one thread, with a limit on its time. States are MuJoCo's own, along
rollouts under random controls. From each state both go on under the same controls, MuJoCo with a solver that converges:
the error is the largest of |difference| / (1 + |value|) over positions, velocities and activations. Beside it stands
how far MuJoCo's own answer moves when its state, or the size of all geoms, changes by 1e-15 of itself: where that is
large, no answer is reliable. Then the same for a kernel with usual outputs: places, velocities, forces, and all
sensors. Build times and the speed are of processor time; the speed is measured in turns with `mujoco.rollout` as the
file has its solver, from the same states.

Writes results/models.json and .md. Packages: see `benchmarks.models`.
"""

from __future__ import annotations

import argparse
import copy
import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

import mujoco
import numpy as np
import torch
from mujoco import rollout

from torch_mjenvs import Simulation, UnsupportedModel
from torch_mjenvs.physics import load

from . import machine, models, parity, report

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "models.json"
LIMIT = 1_200  # seconds for a model
COMPARED, WORLDS, STEPS, ROUNDS = 32, 256, 10, 3
BAD = [mujoco.mjtWarning.mjWARN_BADQPOS, mujoco.mjtWarning.mjWARN_BADQVEL, mujoco.mjtWarning.mjWARN_BADQACC]
DTYPES = ("float32", "float64")
STATE = ("qpos", "qvel", "act")
USUAL = (
    "xpos", "xquat", "site_xpos", "subtree_com", "cvel", "actuator_force", "qfrc_actuator", "qfrc_constraint", "qacc",
    "sensordata",
)  # fmt: skip


def states(model: mujoco.MjModel) -> list[dict[str, np.ndarray]]:
    """States along rollouts under random controls, with contacts where there are any soon."""
    rng, data, found, others = np.random.default_rng(0), mujoco.MjData(model), [], []
    limited = model.actuator_ctrllimited.astype(bool)
    low, high = np.where(limited[:, None], model.actuator_ctrlrange, [-1.0, 1.0]).T
    for _ in range(4 * COMPARED):
        mujoco.mj_resetDataKeyframe(model, data, 0) if model.nkey else mujoco.mj_resetData(model, data)
        ctrl = rng.uniform(low, high)
        for k in range(10):
            if k % 2 == 0:
                ctrl = rng.uniform(low, high)
            data.ctrl[:] = ctrl
            mujoco.mj_step(model, data, rng.integers(4, 12))
        if explodes(model, data):
            continue
        fields = {name: getattr(data, name).copy() for name in ("qpos", "qvel", "act", "qacc_warmstart", "ctrl")}
        (found if data.ncon else others).append(fields | {"ncon": data.ncon})
        if len(found) == COMPARED:
            break
    return (found + others)[:COMPARED]


def explodes(model: mujoco.MjModel, data: mujoco.MjData) -> bool:
    """Tell whether MuJoCo puts the simulation back to its beginning in one of the next steps."""
    ahead = copy.copy(data)
    for kind in BAD:
        ahead.warning[kind].number = 0
    mujoco.mj_step(model, ahead, STEPS)
    return any(ahead.warning[kind].number for kind in BAD)


def put(target: Simulation, some: list[dict[str, np.ndarray]]) -> None:
    """Put worlds into these states, which repeat if there are more worlds."""
    for name in ("qpos", "qvel", "qacc_warmstart", "ctrl", *(["act"] if target.model.na else [])):
        rows = np.array([x[name] for x in some])
        view = getattr(target, name)
        view.copy_(torch.from_numpy(rows[np.arange(target.num_worlds) % len(some)]))


def stepped(
    model: mujoco.MjModel, state: dict[str, np.ndarray], steps: int, share: float = 0.0, names: Sequence[str] = STATE
) -> np.ndarray:
    """MuJoCo's state, or other fields of mjData, after some steps."""
    data = mujoco.MjData(model)
    for name in ("qpos", "qvel", "act", "qacc_warmstart", "ctrl"):
        getattr(data, name)[:] = state[name]
    data.qpos *= 1 + share
    mujoco.mj_step(model, data, steps)
    return np.concatenate([getattr(data, name).ravel() for name in names])


def errors(
    model: mujoco.MjModel, sim: Simulation, some: list[dict[str, np.ndarray]], steps: int, names: Sequence[str] = STATE
) -> dict[str, float]:
    """Return how far some steps are from MuJoCo's, median and worst, and how far MuJoCo's own answer moves."""
    sharp = copy.copy(model)
    parity.converge(sharp)
    sharp.opt.noslip_tolerance, sharp.opt.ccd_tolerance, sharp.opt.ccd_iterations = 0.0, 1e-12, 200
    put(sim, some)
    sim.step(steps)
    names = [name for name in names if getattr(mujoco.MjData(model), name).size]
    got = torch.cat([getattr(sim, name).flatten(1) for name in names], 1)[: len(some)].double().numpy()
    want = np.array([stepped(sharp, x, steps, 0.0, names) for x in some])
    # Geoms are made larger and smaller: where geoms just touch and cannot move along the normal, rounding decides
    # whether there is friction.
    near = [(sharp, 1e-15), *((_sized(sharp, 1 + share), 0.0) for share in (1e-15, -1e-15))]
    moved = [np.array([stepped(one, x, steps, share, names) for x in some]) for one, share in near]
    off, *own = ((np.abs(x - want) / (1 + np.abs(want))).max(1) for x in (got, *moved))
    return {"median": float(np.median(off)), "worst": float(off.max()), "moves": float(np.max(own))}


def _sized(model: mujoco.MjModel, factor: float) -> mujoco.MjModel:
    other = copy.copy(model)
    other.geom_size *= factor
    return other


def speed(model: mujoco.MjModel, sim: Simulation, some: list[dict[str, np.ndarray]]) -> dict[str, float]:
    """Physics steps a second of processor time, ours and mujoco.rollout's, and the ratio of medians."""
    full = np.array([np.concatenate([[0.0], x["qpos"], x["qvel"], x["act"]]) for x in some])
    warm, data = np.array([x["qacc_warmstart"] for x in some]), mujoco.MjData(model)
    if full.shape[1] != mujoco.mj_stateSize(model, mujoco.mjtState.mjSTATE_FULLPHYSICS):
        full = np.zeros((len(some), mujoco.mj_stateSize(model, mujoco.mjtState.mjSTATE_FULLPHYSICS)))
        for row, x in zip(full, some, strict=True):
            for name in ("qpos", "qvel", "act"):
                getattr(data, name)[:] = x[name]
            mujoco.mj_getState(model, data, row, mujoco.mjtState.mjSTATE_FULLPHYSICS)
    control = np.repeat(np.array([x["ctrl"] for x in some])[:, None], STEPS, 1)
    given = {"control": control} if model.nu else {}
    rates: dict[str, list[float]] = {"ours": [], "theirs": []}
    for _ in range(ROUNDS):
        took, steps = 0.0, 0
        while took < 0.15:
            put(sim, some)
            began = time.process_time()
            sim.step(STEPS)
            took, steps = took + time.process_time() - began, steps + STEPS * sim.num_worlds
        rates["ours"].append(steps / took)
        took, steps = 0.0, 0
        while took < 0.15:
            began = time.process_time()
            rollout.rollout([model] * len(some), [data], full, **given, nstep=STEPS, initial_warmstart=warm)
            took, steps = took + time.process_time() - began, steps + STEPS * len(some)
        rates["theirs"].append(steps / took)
    found = {name: statistics.median(x) for name, x in rates.items()}
    return found | {"ratio": found["ours"] / found["theirs"]}


def built(model: mujoco.MjModel, dtype: str, outputs: Sequence[str] = ()) -> tuple[Simulation, dict]:
    """Build a simulation whose kernel is in no cache; also return the processor time that took, and how large the code
    is.
    """
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TORCH_MJENVS_CACHE"] = folder
        began = time.process_time()
        sim = Simulation(model, WORLDS, "cpu", dtype, outputs=outputs)
        took = time.process_time() - began
    return sim, {"build_s": took, "code_bytes": sim._step.kernel.code_bytes}


def row(path: Path) -> dict:
    """Return the row of a model."""
    torch.set_num_threads(1)
    mujoco.set_mju_user_warning(lambda _: None)
    warnings.simplefilter("ignore")
    model = models.compiled(path)
    if model is None:
        return {"part": True}
    try:
        m = load(model)
        out: dict = {"dofs": m.nv, "pairs": len(m.pairs)}
        if not m.nv:
            return out | {"nothing moves": True}
        some = states(model)
        out["contacts"] = float(np.mean([x["ncon"] for x in some]))
        for dtype in DTYPES:
            sim, out[dtype] = built(model, dtype)
            out[dtype] |= {f"error_{n}": errors(model, sim, some, n) for n in (1, 10)}
            out[dtype]["speed"] = speed(model, sim, some)
        names = [name for name in USUAL if getattr(mujoco.MjData(model), name).size]
        for dtype in DTYPES:
            sim, out[dtype]["outputs"] = built(model, dtype, names)
            out[dtype]["outputs"]["error_1"] = errors(model, sim, some, 1, names)
    except UnsupportedModel as error:
        return {"refused": str(error)}
    return out


def found() -> list[tuple[str, Path]]:
    """All MJCF files of the installed packages, by package and path."""
    return [
        (f"{package}/{path.relative_to(folder)}", path)
        for package, folder in models.installed()
        for path in sorted(folder.rglob("*.xml"))
    ]


def with_outputs(single: dict, double: dict) -> list[str]:
    """The cells about a kernel with usual outputs."""
    if "outputs" not in double:
        return [""] * 4
    one, two = single["outputs"], double["outputs"]
    return [
        f"{one['build_s']:.1f}, {two['build_s']:.1f}",
        f"{one['code_bytes'] / 1e3:,.0f}, {two['code_bytes'] / 1e3:,.0f}",
        f"{two['error_1']['worst']:.0e}",
        f"{two['error_1']['moves']:.0e}",
    ]


def markdown(rows: dict[str, dict]) -> str:
    """Return the table, in which what is slow, wrong or refused is marked."""
    header = [
        "model", "dofs", "pairs", "contacts", "build, s (float32, float64)", "code, kB", "worst error, 1 step, float64",
        "10 steps", "MuJoCo moves", "float32, 1 step, median", "speed beside mujoco.rollout, float32", "float64",
        "with usual outputs: build, s", "code, kB", "worst error, 1 step, float64", "MuJoCo moves",
    ]  # fmt: skip
    lines = []
    for name, x in rows.items():
        if "float64" in x:
            single, double = x["float32"], x["float64"]
            lines.append([
                name, str(x["dofs"]), f"{x['pairs']:,}", f"{x['contacts']:.1f}",
                f"{single['build_s']:.1f}, {double['build_s']:.1f}",
                f"{single['code_bytes'] / 1e3:,.0f}, {double['code_bytes'] / 1e3:,.0f}",
                f"{double['error_1']['worst']:.0e}", f"{double['error_10']['worst']:.0e}",
                f"{double['error_1']['moves']:.0e}, {double['error_10']['moves']:.0e}",
                f"{single['error_1']['median']:.0e}",
                f"{single['speed']['ratio']:.1f}x", f"{double['speed']['ratio']:.1f}x",
                *with_outputs(single, double),
            ])  # fmt: skip
    missing = [f"- {name}: {x.get('refused') or x.get('failed')}" for name, x in rows.items()
               if "refused" in x or "failed" in x]  # fmt: skip
    about = (__doc__ or "").split("\n\n")[2]
    return "\n\n".join(["# Models of other packages", about, report.table(header, lines), "\n".join(missing)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="part of the paths to look at")
    parser.add_argument("--again", action="store_true", help="also models that have a row")
    parser.add_argument("--one", type=Path, help="print what there is to say of a file, as JSON")
    args = parser.parse_args()
    if args.one:
        print(json.dumps(row(args.one)))
        return
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"rows": {}}
    for name, path in found():
        if args.only not in name or (name in kept["rows"] and not args.again):
            continue
        command = [sys.executable, "-m", "benchmarks.model_table", "--one", str(path)]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "TORCH_MJENVS_PROGRESS": "0"}
        try:
            run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT)
            failed = {"failed": run.stderr.strip()[-300:]}
            one = failed if run.returncode else json.loads(run.stdout.splitlines()[-1])
        except subprocess.TimeoutExpired:
            one = {"failed": f"more than {LIMIT} s"}
        if "part" not in one:
            kept["rows"][name] = one
            print(name, one, flush=True)
        kept |= {"machine": machine.describe(), "date": datetime.date.today().isoformat()}
        RESULTS.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
        RESULTS.with_suffix(".md").write_text(markdown(dict(sorted(kept["rows"].items()))) + "\n")


if __name__ == "__main__":
    main()

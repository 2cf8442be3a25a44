"""Speed, compile time and memory, beside the peers, on this machine.

    make bench                                  # everything: some minutes
    python -m benchmarks --quick            # a look: well below a minute a task
    python -m benchmarks --tasks Hopper --num-envs 64 4096 --name hopper

Every task is first compared with Gymnasium's own: where they differ, nothing is reported and the exit status is 1.
docs/performance.md says how things are measured.
"""

from __future__ import annotations

import argparse
import datetime
import sys
from dataclasses import asdict, replace
from pathlib import Path

from tqdm import tqdm

from . import cases, compiling, machine, parity, peers, report
from .cases import CASES, FULL, QUICK, RACE_NUM_ENVS, Case, Effort, Season
from .machine import DTYPES, QUIET, Contender, Race, cores, race

ROOT = Path(__file__).resolve().parents[1]


def arguments(argv: list[str] | None) -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--tasks", nargs="+", choices=list(CASES), default=list(CASES))
    p.add_argument("--num-envs", nargs="+", type=int, help="sizes of the sweep")
    p.add_argument("--quick", action="store_true", help="fewer sizes and short windows: a look, not a measurement")
    p.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results", help="folder of the results")
    p.add_argument("--name", default=datetime.date.today().isoformat(), help="of the result files; today's date")
    p.add_argument("--page", type=Path, help="a document to write the tables and the plot into: docs/performance.md")
    return p.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    args = arguments(argv)
    effort = QUICK if args.quick else FULL
    if args.num_envs:
        effort = replace(effort, num_envs=tuple(sorted(set(args.num_envs))))
    cases = [CASES[name] for name in args.tasks]
    with tqdm(total=len(cases) * len(STAGES) + len(cases), unit="stage", dynamic_ncols=True) as bar:
        try:
            checked = check_all(cases, bar)
        except parity.ParityError as error:
            bar.close()
            print(f"Nothing is reported, because parity fails. {error}", file=sys.stderr)
            return 1
        results = {
            "date": datetime.date.today().isoformat(),
            "quick": args.quick,
            "machine": machine.describe(),
            "effort": asdict(effort),
            "notes": notes(args.quick),
            "tasks": {case.name: {"parity": checked[case.name]} for case in cases},
        }
        for case in cases:
            measure(case, effort, results, bar)
    print(report.markdown(results))
    for path in report.write(results, args.out, args.name):
        print(f"wrote {path}")
    if args.page:
        report.update_page(args.page, results)
    return 0


def check_all(cases: list[Case], bar: tqdm) -> dict[str, dict]:
    """Parity of every task before any is timed, so that a failure costs no wait."""
    checked = {}
    for case in cases:
        bar.set_description(f"{case.name}: parity")
        checked[case.name] = parity.check(case)
        bar.update()
    return checked


def notes(quick: bool) -> list[str]:
    looked = ["A quick look: windows are short, so the spread is wide."] if quick else []
    return looked + peers.notes()


# what is measured of a task


def measure(case: Case, effort: Effort, results: dict, bar: tqdm) -> None:
    out = results["tasks"][case.name]
    seasoned = cases.season(case)
    out["episode_length"] = seasoned.episode_length
    for name, stage in STAGES.items():
        bar.set_description(f"{case.name}: {name}")
        out |= stage(case, effort, seasoned)
        bar.update()
    peak = results["machine"]["peak_gflops_a_core"]
    for dtype, found in out["physics"].items():
        asked = found["rate"]["median"] * out["operations"]["step"]
        found["share_of_peak"] = asked / (1e9 * peak[dtype] * results["machine"]["cores"])


def run_race(contenders: list[Contender], effort: Effort, window: float | None = None) -> Race:
    return race(contenders, effort.rounds, window or effort.window, effort.warmup, QUIET)


def compile_stage(case: Case, effort: Effort, _: Season) -> dict:
    worlds = effort.memory_worlds
    return {"compile": {dtype: compiling.measure(case.name, dtype, worlds, QUIET) for dtype in effort.compiled}}


def sweep_stage(case: Case, effort: Effort, seasoned: Season) -> dict:
    sizes = [(n, dtype) for dtype in DTYPES for n in effort.num_envs]
    contenders = [cases.environment(case, n, dtype, seasoned) for n, dtype in sizes]
    found = run_race(contenders, effort)
    rows = [
        {"num_envs": n, "dtype": dtype, "rate": found.summary(c.name)}
        for (n, dtype), c in zip(sizes, contenders, strict=True)
    ]
    return {"sweep": rows, "sweep_weather": found.weather()}


def physics_stage(case: Case, effort: Effort, seasoned: Season) -> dict:
    n = race_size(effort)
    contenders = {dtype: cases.physics(case, n, dtype, seasoned) for dtype in DTYPES}
    found = run_race(list(contenders.values()), effort)
    rates = {dtype: {"num_worlds": n, "rate": found.summary(c.name)} for dtype, c in contenders.items()}
    return {"physics": rates, "physics_weather": found.weather(), "operations": machine.operations(case.task().load())}


def peer_stage(case: Case, effort: Effort, seasoned: Season) -> dict:
    """Ours, peer, ours, peer, ...: on as many cores as the peer has threads."""
    rows = []
    for make in peers.contenders(case, seasoned.episode_length):
        peer = make()
        n, threads = race_size(effort), peer.threads or cores()
        single, double = (cases.environment(case, n, dtype, seasoned, threads) for dtype in DTYPES)
        found = run_race([single, peer, double], effort, 2 * effort.window)
        row = {"name": peer.name, "threads": threads, "num_envs": n, "rate": found.summary(peer.name)}
        row["plotted"] = not peer.extra
        for dtype, contender in (("float32", single), ("float64", double)):
            row[dtype] = found.summary(contender.name)
            row[f"ratio_{dtype}"] = found.ratio(contender.name, peer.name)
        rows.append(row | {"weather": found.weather()})
    return {"peers": rows, "peer_versions": peers.versions()}


def race_size(effort: Effort) -> int:
    """Of those swept, the largest that is not above RACE_NUM_ENVS."""
    return max((n for n in effort.num_envs if n <= RACE_NUM_ENVS), default=min(effort.num_envs))


STAGES = {
    "compile time": compile_stage,
    "sweep": sweep_stage,
    "physics": physics_stage,
    "peers": peer_stage,
}


if __name__ == "__main__":
    sys.exit(main())

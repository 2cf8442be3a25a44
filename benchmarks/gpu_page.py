"""The page of a run of `benchmarks.gpu`: all of it from the JSON's data, and what results/cuda-code.json counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .report import number, table, times

CODE = Path(__file__).with_name("results") / "cuda-code.json"
AIMED_NUM_ENVS = 32768
AIMS = {"HalfCheetah": 500e6, "Walker2d": 500e6, "Hopper": 500e6, "Ant": 50e6, "Humanoid": 20e6}  # physics steps/s
WAYS = ("engine", "TorchVectorEnv", "graph")
WARP = 32


def failures(results: dict[str, Any]) -> list[str]:
    """Where parity fails."""
    out = []
    for task, found in results["tasks"].items():
        for dtype, p in found["parity"].items():
            if p["failed"]:
                out.append(f"{task}, {dtype}: the GPU is {p['worst']:.1e} from the CPU")
        if "failed" in found["gymnasium"]:
            out.append(found["gymnasium"]["failed"])
    return out


def markdown(results: dict[str, Any]) -> str:
    m = results["machine"]
    packages = ", ".join(f"{name} {version}" for name, version in m["versions"].items())
    parts = [
        f"# On a GPU, {results['date']}",
        "\n".join(f"- **Parity fails**: {failure}" for failure in failures(results)),
        f"{m.get('gpu', 'a CPU')}, CUDA {m.get('cuda', '-')}; {packages}. Plain loops reach {number(m['flops'])}FLOP/s "
        f"in float32, fused, and copy {number(m['bytes_a_second'])}B/s, reads and writes counted.",
        "**Physics steps/s**: medians of rounds that take turns, and their range for the bare engine",
        rates_table(results),
        "**One environment step**: what it launches; and the instructions that were counted in its code, as a share of "
        "what the plain loop would issue in that time",
        step_table(results),
        "**Parity** after environment steps from states with contacts: the GPU's numbers beside the CPU's",
        parity_table(results),
        "**Parity** after one environment step: float64 to Gymnasium's own, float32 to float64",
        gymnasium_table(results),
    ]
    if peers := [(task, p) for task, found in results["tasks"].items() for p in found.get("peers", [])]:
        parts += [
            "**Beside the peers**: physics steps/s, both in one process, in turns; *apart* is qpos in the end, of the "
            "median world",
            peers_table(peers),
        ]
    return "\n\n".join(part for part in parts if part) + "\n"


def rates_table(results: dict[str, Any]) -> str:
    header = [
        "task",
        "worlds",
        "",
        *WAYS[:1],
        "range",
        *WAYS[1:],
        "steps a graph",
        "aim",
        "bytes a world",
        "beside torch",
    ]
    rows = []
    for task, found in results["tasks"].items():
        for r in found["rates"]:
            physics = {way: {k: found["frame_skip"] * x for k, x in r["rates"][way].items()} for way in WAYS}
            bare = physics["engine"]
            aimed = r["num_envs"] == AIMED_NUM_ENVS and r["dtype"] == "float32"
            medians = [number(physics[way]["median"]) for way in WAYS]
            rows.append(
                [task, f"{r['num_envs']:,}", r["dtype"], medians[0], f"{number(bare['min'])} to {number(bare['max'])}"]
                + [*medians[1:], str(r["graph_steps"]), number(AIMS[task]) if aimed else ""]
                + [f"{r['bytes_a_world']:,.0f}", f"{r['bytes_beside_torch'] / 1e6:,.0f} MB"]
            )
    return table(header, rows)


def step_table(results: dict[str, Any]) -> str:
    counted = {s["task"]: s["instructions"] for s in json.loads(CODE.read_text())["steps"]} if CODE.exists() else {}
    header = [
        "task",
        "worlds",
        "launches a step",
        "kernel",
        "wall",
        "share of instructions",
        "registers",
        "local bytes",
        "of all threads",
        "blocks a multiprocessor",
    ]
    rows = []
    for task, found in results["tasks"].items():
        s = found["step"]
        if "registers" not in s:
            continue
        launches = ", ".join(f"{k:g} {name}" for name, k in s.get("launches_a_step", {}).items())
        share, kernel = "-", "-"
        if "kernel_ms" in s:
            kernel = f"{s['kernel_ms']:,.3g} ms"
            # A fused multiply-add of a warp is one instruction and 64 operations.
            issued = counted.get(task, 0) * s["num_envs"] / WARP / (1e-3 * s["kernel_ms"])
            share = f"{100 * issued / (results['machine']['flops'] / (2 * WARP)):.0f} %" if task in counted else "-"
        numbers = [kernel, f"{s['wall_ms']:,.3g} ms", share, str(s["registers"]), f"{s['local_bytes']:,}"]
        numbers += [f"{s['reserved_bytes'] / 1e9:.1f} GB", str(s["blocks"])]
        rows.append([task, f"{s['num_envs']:,}", launches or s["profiler"], *numbers])
    return table(header, rows) if rows else "Not measured: this was no GPU."


def parity_table(results: dict[str, Any]) -> str:
    header = ["task", "", "steps", "worlds", "that differ", "numbers", "that differ", "worst, of 1 + size"]
    rows = []
    for task, found in results["tasks"].items():
        for dtype, p in found["parity"].items():
            counts = [f"{p[k]:,}" for k in ("steps", "worlds", "worlds_differing", "numbers", "differing")]
            rows.append([task, dtype, *counts, f"{p['worst']:.1e}"])
    return table(header, rows)


def gymnasium_table(results: dict[str, Any]) -> str:
    keys = ("float64_worst", "float32_median", "float32_p90")
    rows = []
    for task, found in results["tasks"].items():
        p = found["gymnasium"]
        told = p.get("absent") or p.get("failed")
        rows.append([task, told, "", ""] if told else [task, *(f"{p[k]:.1e}" for k in keys)])
    return table(["task", "float64, worst", "float32, median", "worst of nine in ten"], rows)


def peers_table(peers: list[tuple[str, dict[str, Any]]]) -> str:
    header = ["task", "peer", "worlds", "its steps/s", "ours, Simulation", "ratio", "apart", "its first call"]
    rows = []
    for task, p in peers:
        named = [task, p["peer"], f"{p['num_envs']:,}"]
        if "error" in p:
            rows.append([*named, p["error"], "", "", "", ""])
            continue
        rates = [number(p[k]["median"]) for k in ("physics", "ours")]
        rest = [times(p["ratio"]), f"{p['apart']:.1e}", f"{p['first_call_s']:.0f} s"]
        rows.append([task, f"{p['peer']} ({p['version']})", named[2], *rates, *rest])
    return table(header, rows)

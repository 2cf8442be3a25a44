"""Results as JSON, Markdown and a plot. All is made from the JSON's data alone, so an old result can be drawn again."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

BEGIN, END = "<!-- benchmark results: written by python -m benchmarks -->", "<!-- end of benchmark results -->"


def write(results: dict, folder: Path, name: str) -> list[Path]:
    """`name`.json, .md and .png in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    data, page, picture = (folder / f"{name}.{suffix}" for suffix in ("json", "md", "png"))
    data.write_text(json.dumps(results, indent=1) + "\n")
    page.write_text(f"# Benchmark, {results['date']}\n\n{markdown(results)}\n\n![Steps a second]({picture.name})\n")
    plot(results, picture)
    return [data, page, picture]


def update_page(page: Path, results: dict) -> None:
    """Put plot and tables between the markers of a document. Raises ValueError if it has none."""
    picture = page.with_name(f"{page.stem}.png")
    plot(results, picture)
    shown = f"![Steps a second against the number of environments]({picture.name})"
    put(page, BEGIN, END, f"{shown}\n\n{markdown(results)}")


def put(page: Path, begin: str, end: str, text: str) -> None:
    """Put text between two lines of a document, in place of what is there. Raises ValueError where these are not."""
    before, first, rest = page.read_text().partition(begin)
    _, last, after = rest.partition(end)
    if not first or not last:
        raise ValueError(f"{page} has no lines {begin!r} and {end!r}")
    page.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}")


# numbers and tables


def number(x: float) -> str:
    """Three digits: 12.3 k, 4.56 M."""
    for limit, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k"), (0, "")):
        if x >= limit:
            scaled = x / limit if limit else x
            return f"{scaled:.{max(0, 2 - int(math.log10(max(scaled, 1))))}f}{unit}"
    return f"{x:.3g}"


def seconds(x: float) -> str:
    return f"{x:.2f} s" if x >= 0.01 else f"{1e3 * x:.2f} ms"


def times(ratio: dict) -> str:
    return f"{ratio['median']:.3g}x ({ratio['min']:.3g} to {ratio['max']:.3g})"


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---", *["--:"] * (len(header) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def markdown(results: dict) -> str:
    tasks = results["tasks"]
    parts = [machine_lines(results), caveats(results)]
    parts += ["**Beside the peers**, environment steps/s", peers_table(tasks)]
    parts += ["**Environment steps/s** against the number of environments", sweep_table(tasks)]
    parts += ["**Physics**", physics_table(tasks)]
    parts += ["**Construction and memory**", compile_table(tasks)]
    parts += [
        "**Parity** after one environment step: float64 to Gymnasium, float32 to float64",
        parity_table(tasks),
    ]
    return "\n\n".join(part for part in parts if part)


def machine_lines(results: dict) -> str:
    m = results["machine"]
    packages = ", ".join(f"{name} {version}" for name, version in m["versions"].items())
    gflops = ", ".join(f"{x:.0f} GFlop/s in {dtype}" for dtype, x in m["peak_gflops_a_core"].items())
    return (
        f"{m['cpu']} ({m['llvm_cpu']}), {m['cores']} cores, {m['vector_bits']}-bit vectors; measured peak a core: "
        f"{gflops}. {m['system']}, Python {m['python']}, {packages}. {results['date']}."
    )


def caveats(results: dict) -> str:
    notes = list(results["notes"])
    for name, task in results["tasks"].items():
        races = {"the sweep": task["sweep_weather"], **{p["name"]: p["weather"] for p in task["peers"]}}
        bad = [k for k, weather in races.items() if weather["disturbed"]]
        if bad:
            notes.append(f"The machine was busy during {name} ({', '.join(bad)}): read these figures with care.")
    return "\n".join(f"- {note}" for note in notes)


def peers_table(tasks: dict) -> str:
    header = ["task", "peer", "threads", "peer's steps/s", "ours, float32", "ratio", "ours, float64", "ratio"]
    rows = []
    for name, task in tasks.items():
        for p in task["peers"]:
            ours = [cell for d in ("float32", "float64") for cell in (number(p[d]["median"]), times(p[f"ratio_{d}"]))]
            rows.append([name, p["name"], str(p["threads"]), number(p["rate"]["median"]), *ours])
    return table(header, rows)


def sweep_table(tasks: dict) -> str:
    sizes = sorted({row["num_envs"] for task in tasks.values() for row in task["sweep"]})
    rows = []
    for name, task in tasks.items():
        for dtype in ("float32", "float64"):
            found = {row["num_envs"]: row["rate"]["median"] for row in task["sweep"] if row["dtype"] == dtype}
            rows.append([f"{name}, {dtype}", *(number(found[n]) if n in found else "" for n in sizes)])
    return table(["task", *(f"{n:,}" for n in sizes)], rows)


def physics_table(tasks: dict) -> str:
    header = ["task", "physics steps/s, float32", "float64", "operations a step", "share of peak, float32", "float64"]
    rows = []
    for name, task in tasks.items():
        physics = task["physics"]
        rates = [number(physics[d]["rate"]["median"]) for d in ("float32", "float64")]
        shares = [f"{100 * physics[d]['share_of_peak']:.0f} %" for d in ("float32", "float64")]
        rows.append([name, *rates, f"{task['operations']['step']:,}", *shares])
    return table(header, rows)


def compile_table(tasks: dict) -> str:
    header = ["task", "first time", "cached, new process", "again", "bytes a world: buffers", "resident"]
    rows = []
    for name, task in tasks.items():
        for dtype, c in task["compile"].items():
            took = [seconds(c[k]) for k in ("cold_s", "cached_s", "again_s")]
            memory = [f"{c[k]:,.0f}" for k in ("buffer_bytes_a_world", "resident_bytes_a_world")]
            rows.append([f"{name}, {dtype}", *took, *memory])
    return table(header, rows)


def parity_table(tasks: dict) -> str:
    header = ["task", "states (with contacts)", "float64, worst", "float32, median", "90 %", "worst"]
    rows = []
    for name, task in tasks.items():
        p = task["parity"]
        errors = [f"{p[k]:.1e}" for k in ("float64_worst", "float32_median", "float32_p90", "float32_worst")]
        rows.append([name, f"{p['states']} ({p['states_with_contacts']})", *errors])
    return table(header, rows)


# the plot

OURS = {"float32": "#0b62a4", "float64": "#6cace4"}
PEER_COLOURS = ("#d1495b", "#8a5a00", "#b58900", "#6a4c93")
LABEL_GAP = 0.085  # of the axis's height


def plot(results: dict, path: Path) -> None:
    """One panel a task: ours as lines, peers as levels, all labelled where they are."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    tasks = results["tasks"]
    columns = min(3, len(tasks))
    rows = math.ceil(len(tasks) / columns)
    look = {"font.size": 11, "axes.titlesize": 13, "axes.spines.top": False, "axes.spines.right": False}
    with pyplot.rc_context(look):
        size = (5.6 * columns, 4.6 * rows)
        figure, axes = pyplot.subplots(rows, columns, figsize=size, squeeze=False, sharey=True, layout="constrained")
        names = [draw(axis, name, task) for axis, (name, task) in zip(axes.flat, tasks.items(), strict=False)]
        for axis in axes.flat[len(tasks) :]:
            axis.set_visible(False)
        figure.canvas.draw()  # the common limits are known now
        for axis, labels in zip(axes.flat, names, strict=False):
            label(axis, labels)
        for axis in axes[:, 0]:
            axis.set_ylabel("environment steps/s")
        m = results["machine"]
        figure.suptitle(f"{m['cpu']}, {m['cores']} cores, {m['vector_bits']}-bit vectors", fontsize=11, color="0.35")
        figure.savefig(path, dpi=130)
        pyplot.close(figure)


def draw(axis, name: str, task: dict) -> list[tuple[str, float, str]]:
    """Draws a panel; returns (text, height, colour) of what is to be labelled."""
    from matplotlib.ticker import LogLocator

    labels = []
    sizes = sorted({row["num_envs"] for row in task["sweep"]})
    for dtype, colour in OURS.items():
        chosen = [row for row in task["sweep"] if row["dtype"] == dtype]
        x, y = [row["num_envs"] for row in chosen], [row["rate"]["median"] for row in chosen]
        low, high = ([row["rate"][k] for row in chosen] for k in ("min", "max"))
        axis.fill_between(x, low, high, color=colour, alpha=0.2)
        axis.plot(x, y, "o-", color=colour, markersize=4)
        labels.append((f"ours, {dtype}", y[-1], colour))
    # if a peer was measured with one thread and with more, show it with the whole machine, which ours has here, too
    shown = [p for p in task["peers"] if p["plotted"]]
    for p, colour in zip(shown, PEER_COLOURS, strict=False):
        axis.axhline(p["rate"]["median"], color=colour, linestyle="--", linewidth=1.3)
        labels.append((p["name"], p["rate"]["median"], colour))
    axis.set(xscale="log", yscale="log", title=name, xlabel="environments")
    axis.set_xticks(sizes, [f"{n:,}" if n < 1000 else f"{n // 1024}k" if n % 1024 == 0 else f"{n:,}" for n in sizes])
    axis.minorticks_off()
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 3)))
    axis.yaxis.set_major_formatter(lambda value, _: number(value).replace(".00", "").replace(".0", ""))
    axis.grid(axis="y", color="0.9")
    axis.set_axisbelow(True)
    return labels


def label(axis, labels: list[tuple[str, float, str]]) -> None:
    """Names beside the right edge, each at its line's height, moved apart where they would touch."""
    low, high = (math.log10(y) for y in axis.get_ylim())
    ordered = sorted((math.log10(y), text, colour) for text, y, colour in labels)
    heights = spread_out([(y - low) / (high - low) for y, _, _ in ordered])
    for height, (_, text, colour) in zip(heights, ordered, strict=True):
        axis.text(1.02, height, text, color=colour, transform=axis.transAxes, va="center", fontsize=10)


def spread_out(heights: list[float]) -> list[float]:
    """Return ascending heights that are at least LABEL_GAP apart, moved no more than pushing neighbours apart needs."""
    out = list(heights)
    for _ in range(200):
        for i in range(len(out) - 1):
            lack = LABEL_GAP - (out[i + 1] - out[i])
            if lack > 1e-9:
                out[i] -= lack / 2
                out[i + 1] += lack / 2
    return out


# the page of a run on a GPU, with what results/cuda-code.json counted

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


def gpu_markdown(results: dict[str, Any]) -> str:
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
        same_steps_table(results),
        "**Parity** after one environment step: float64 to Gymnasium's own, float32 to float64",
        gymnasium_table(results),
    ]
    if peers := [(task, p) for task, found in results["tasks"].items() for p in found.get("peers", [])]:
        parts += [
            "**Beside the peers**: physics steps/s, each in a process of its own, in turns; *settings* are the peer's "
            "solver's, and *apart* is qpos in the end, of the median world",
            gpu_peers_table(peers),
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


def same_steps_table(results: dict[str, Any]) -> str:
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


def gpu_peers_table(peers: list[tuple[str, dict[str, Any]]]) -> str:
    header = ["task", "peer", "worlds", "settings"]
    header += ["its steps/s", "ours, Simulation", "ratio", "apart", "its first call"]
    rows = []
    for task, p in peers:
        named = [task, f"{p['peer']} ({p['version']})" if "version" in p else p["peer"]]
        named += [f"{p['num_envs']:,}", p["settings"]]
        if "error" in p:
            rows.append([*named, p["error"], "", "", "", ""])
            continue
        rates = [number(p[k]["median"]) for k in ("physics", "ours")]
        rest = [times(p["ratio"]), f"{p['apart']:.1e}", f"{p['first_call_s']:.0f} s"]
        rows.append([*named, *rates, *rest])
    return table(header, rows)

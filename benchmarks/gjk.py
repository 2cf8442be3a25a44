"""How far contacts found by GJK are from MuJoCo's, by pairs of shapes, and which of the two is nearer to the truth.

    python -m benchmarks.gjk                  # some minutes; writes results/gjk.json and prints the table
    python -m benchmarks.gjk --states 500     # fewer poses of each pair

Two geoms of 10 to 20 cm overlap in random poses, from hardly to wholly. Both simulations stop within 1e-6 m of a depth,
or after 35 steps; ours then goes on to rounding. The judge between them is a search over directions that is
independent of both: the signed distance of two convex shapes is the largest gap between them along
any direction, -(h_A(n) + h_B(-n)), where h is how far a shape reaches. It tries a thousand directions, and goes on from
the best of them, and from both simulations' normals, with ever shorter steps. It rates a normal by the gap along that
direction.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import torch

from torch_mjenvs.physics import load
from torch_mjenvs.physics.pipeline import derive

from .report import table

RESULTS = Path(__file__).parent / "results" / "gjk.json"
SHAPES = {
    "sphere": 'type="sphere" size=".1"',
    "capsule": 'type="capsule" size=".08 .2"',
    "ellipsoid": 'type="ellipsoid" size=".1 .2 .15"',
    "cylinder": 'type="cylinder" size=".1 .2"',
    "box": 'type="box" size=".1 .15 .2"',
    "mesh": 'type="mesh" mesh="hull"',
}
PAIRS = (
    ("sphere", "ellipsoid"), ("capsule", "ellipsoid"), ("ellipsoid", "ellipsoid"), ("ellipsoid", "cylinder"),
    ("ellipsoid", "box"), ("ellipsoid", "mesh"), ("cylinder", "cylinder"), ("cylinder", "box"), ("cylinder", "mesh"),
    ("mesh", "mesh"),
)  # fmt: skip
DIRECTIONS, STARTS, ROUNDS, AROUND = 1_000, 4, 60, 8
BESIDE = 0.9  # cosine of 26 degrees
CHUNK = 250  # states at a time


def model(pair: tuple[str, str]) -> mujoco.MjModel:
    """Return two free geoms that touch in one point at the most."""
    corners = np.random.default_rng(0).normal(size=(60, 3))
    corners *= [0.1, 0.2, 0.15] / np.linalg.norm(corners, axis=1, keepdims=True)
    vertices = " ".join(f"{x:.6f}" for x in corners.ravel())
    bodies = "".join(f"<body><freejoint/><geom {SHAPES[name]}/></body>" for name in pair)
    return mujoco.MjModel.from_xml_string(
        f"""<mujoco><option><flag multiccd="disable"/></option><asset><mesh name="hull" vertex="{vertices}"/></asset>
        <worldbody>{bodies}</worldbody></mujoco>"""
    )


def poses(n: int, seed: int) -> np.ndarray:
    """Return n states (n, 14): the first geom about the origin, the second one up to 25 cm from it."""
    rng = np.random.default_rng(seed)
    states = rng.normal(size=(n, 14))
    states[:, :3] = 0.0
    away = states[:, 7:10]
    away *= rng.uniform(0, 0.25, (n, 1)) / np.linalg.norm(away, axis=1, keepdims=True)
    for k in (3, 10):
        states[:, k : k + 4] /= np.linalg.norm(states[:, k : k + 4], axis=1, keepdims=True)
    return states


def ours(mjm: mujoco.MjModel, states: np.ndarray) -> np.ndarray:
    """Return the distance and the normal of each state's contact (n, 4), NaN where there is none."""
    (candidate,) = derive(load(mjm), [torch.tensor(x) for x in states.T.copy()], [], None, []).candidates
    contact, *_ = candidate.contacts()
    _, frame = contact.locate()
    rows = [torch.as_tensor(x, dtype=torch.float64).expand(len(states)) for x in (contact.dist, *frame[0])]
    out = torch.stack(rows, 1).numpy().copy()
    out[~(out[:, 0] < 0)] = np.nan
    return out


def theirs(mjm: mujoco.MjModel, states: np.ndarray) -> tuple[np.ndarray, list[list[tuple[np.ndarray, np.ndarray]]]]:
    """Return MuJoCo C's contacts as `ours` does, and the place and orientation of both geoms in each state."""
    d, out, where = mujoco.MjData(mjm), np.full((len(states), 4), np.nan), []
    for k, state in enumerate(states):
        d.qpos[:] = state
        mujoco.mj_fwdPosition(mjm, d)
        if d.ncon:
            out[k] = [d.contact.dist[0], *d.contact.frame[0, :3]]
        where.append([(d.geom_xpos[g].copy(), d.geom_xmat[g].reshape(3, 3).copy()) for g in range(2)])
    return out, where


def reach(mjm: mujoco.MjModel, g: int) -> Callable[[np.ndarray], np.ndarray]:
    """Return how far a geom reaches from its centre along directions (..., 3) in its own axes."""
    kind, size = mujoco.mjtGeom(int(mjm.geom_type[g])), mjm.geom_size[g]
    if kind == mujoco.mjtGeom.mjGEOM_SPHERE:
        return lambda n: size[0] * np.linalg.norm(n, axis=-1)
    if kind == mujoco.mjtGeom.mjGEOM_CAPSULE:
        return lambda n: size[0] * np.linalg.norm(n, axis=-1) + size[1] * np.abs(n[..., 2])
    if kind == mujoco.mjtGeom.mjGEOM_ELLIPSOID:
        return lambda n: np.linalg.norm(n * size, axis=-1)
    if kind == mujoco.mjtGeom.mjGEOM_CYLINDER:
        return lambda n: size[0] * np.linalg.norm(n[..., :2], axis=-1) + size[1] * np.abs(n[..., 2])
    if kind == mujoco.mjtGeom.mjGEOM_BOX:
        return lambda n: np.abs(n) @ size
    first = mjm.mesh_vertadr[mjm.geom_dataid[g]]
    corners = mjm.mesh_vert[first : first + mjm.mesh_vertnum[mjm.geom_dataid[g]]].astype(float)
    return lambda n: np.max(n @ corners.T, axis=-1)


class Judge:
    """The signed distance of two geoms by a search over directions, in many states."""

    def __init__(self, mjm: mujoco.MjModel, where: list[list[tuple[np.ndarray, np.ndarray]]]):
        self.apart = np.array([two[0] - one[0] for one, two in where])
        self.mats = [np.array([state[g][1] for state in where]) for g in range(2)]
        self.reaches = [reach(mjm, g) for g in range(2)]

    def gap(self, n: np.ndarray, at: slice = slice(None)) -> np.ndarray:
        """Return the gap between the geoms along unit directions (states, ..., 3) from the first one."""
        one, two = (np.einsum("s...i,sij->s...j", n, mat[at]) for mat in self.mats)
        return np.einsum("s...i,si->s...", n, self.apart[at]) - self.reaches[0](one) - self.reaches[1](-two)

    def distances(self, normals: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return each state's distance, by a search that also starts from these normals (states, k, 3), and by one that
        does not.
        """
        found = [
            self._distances(slice(k, k + CHUNK), normals[k : k + CHUNK], rng) for k in range(0, len(normals), CHUNK)
        ]
        gaps = np.concatenate(found)
        return gaps.max(1), gaps[:, :STARTS].max(1)

    def _distances(self, at: slice, normals: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return the largest gap found from each start."""
        k = np.arange(DIRECTIONS) + 0.5  # evenly over the sphere
        z, turn = 1 - 2 * k / DIRECTIONS, np.pi * (1 + 5**0.5) * k
        across = np.sqrt(1 - z * z)
        sphere = np.stack([across * np.cos(turn), across * np.sin(turn), z], 1)
        states = len(normals)
        left = self.gap(np.broadcast_to(sphere, (states, *sphere.shape)), at)
        starts = []
        for _ in range(STARTS):  # the best of all, then each time the best that is not beside an earlier one
            starts.append(sphere[np.argmax(left, axis=1)])
            left[starts[-1] @ sphere.T > BESIDE] = -np.inf
        best = np.concatenate([np.stack(starts, 1), normals], 1)
        found, radius = self.gap(best, at), np.full((*best.shape[:2], 1), 0.1)
        for _ in range(ROUNDS):
            around = best[:, :, None] + radius[..., None] * rng.normal(size=(*best.shape[:2], AROUND, 3))
            around /= np.linalg.norm(around, axis=-1, keepdims=True)
            tried = self.gap(around, at)
            which = np.argmax(tried, axis=2)[..., None]
            new = np.take_along_axis(tried, which, 2)[..., 0]
            better = new > found
            best = np.where(better[..., None], np.take_along_axis(around, which[..., None], 2)[:, :, 0], best)
            found = np.maximum(new, found)
            radius *= np.where(better, 1.2, 0.6)[..., None]
        return found


def compared(pair: tuple[str, str], n: int) -> dict[str, Any]:
    """Return a row of the table."""
    mjm, states = model(pair), poses(n, 0)
    here, (there, where) = ours(mjm, states), theirs(mjm, states)
    either = np.isnan(here[:, 0]) != np.isnan(there[:, 0])
    both = ~np.isnan(here[:, 0]) & ~np.isnan(there[:, 0])
    here, there = here[both], there[both]
    judge = Judge(mjm, [x for x, yes in zip(where, both, strict=True) if yes])
    normals = np.stack([here[:, 1:], there[:, 1:]], 1)
    truth, alone = judge.distances(normals, np.random.default_rng(1))
    shown = judge.gap(normals)
    depth = np.abs(here[:, 0] - there[:, 0])
    turned = np.linalg.norm(np.cross(here[:, 1:], there[:, 1:]), axis=1)
    angle = np.arctan2(turned, np.sum(here[:, 1:] * there[:, 1:], axis=1))
    off = [np.abs(found[:, 0] - truth) for found in (here, there)]
    row: dict[str, Any] = {
        "pair": pair,
        "touching": int(both.sum()),
        "touching in one alone": int(either.sum()),
        "deepest": float(-truth.min()),
        "depths differ": quantiles(depth),
        "depths differ by 1e-6": share(depth > 1e-6),
        "depths differ by 1e-3": share(depth > 1e-3),
        "normals differ": quantiles(angle),
        "normals differ by 1e-3": share(angle > 1e-3),
        "here nearer, of those that differ by 1e-6": share((off[0] < off[1])[depth > 1e-6]),
        "judge short without the normals": quantiles(truth - alone),
    }
    for k, name in enumerate(("here", "MuJoCo")):
        row[f"depth off, {name}"] = quantiles(off[k])
        row[f"normal off, {name}"] = quantiles(truth - shown[:, k])
    return row


def quantiles(x: np.ndarray) -> dict[str, float]:
    """Return the median, the 99th percentile and the largest."""
    return {"median": float(np.median(x)), "99%": float(np.percentile(x, 99)), "most": float(np.max(x))}


def share(mask: np.ndarray) -> float | None:
    """Return which share is true, or None for an empty mask."""
    return float(np.mean(mask)) if mask.size else None


def rendered(rows: list[dict[str, Any]]) -> str:
    """Return the rows as a table in Markdown."""
    head = ["", "depths differ", "by 1e-6, 1e-3", "normals by 1e-3", "depth off, here", "in MuJoCo"]
    head += ["by the normal, here", "in MuJoCo", "nearer here"]

    def percent(x: float | None) -> str:
        return "-" if x is None else f"{100 * x:.2g} %" if x < 0.995 else "100 %"

    def three(x: dict[str, float]) -> str:
        texts = (f"{x[name]:.0e}" if x[name] else "0" for name in ("median", "99%", "most"))
        return ", ".join(text.replace("e-0", "e-") for text in texts)

    lines = []
    for row in rows:
        shares = ", ".join(percent(row[f"depths differ by {x}"]) for x in ("1e-6", "1e-3"))
        cells = [", ".join(row["pair"]), three(row["depths differ"]), shares, percent(row["normals differ by 1e-3"])]
        cells += [three(row[f"{what} off, {name}"]) for what in ("depth", "normal") for name in ("here", "MuJoCo")]
        lines.append([*cells, percent(row["here nearer, of those that differ by 1e-6"])])
    return table(head, lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--states", type=int, default=3_000, help="poses of each pair")
    n = parser.parse_args().states
    rows = []
    for pair in PAIRS:
        rows.append(compared(pair, n))
        print(json.dumps(rows[-1]), flush=True)
    RESULTS.write_text(json.dumps({"states": n, "rows": rows}, indent=1) + "\n")
    print(rendered(rows))


if __name__ == "__main__":
    main()

"""mjData.history, where MuJoCo keeps samples in rings with times, to and from `history` as steps keep it."""

from __future__ import annotations

import mujoco
import numpy as np

from ..dynamics.history import Samples, samples
from ..model.model import Model

# Steps by which samples are put earlier in mjData: else rounding decides which of two MuJoCo reads.
EARLIER = 1e-9


def history_from(m: Model, mjm: mujoco.MjModel, d: mujoco.MjData) -> list[float]:
    """Return the samples that an mjData holds at its time."""
    out: list[float] = []
    for kept in samples(m):
        last_due, cursor, times, values = _ring(kept, mjm, d)
        order = (int(cursor[0]) + 1 + np.arange(kept.nsample)) % kept.nsample
        out += values[order].ravel().tolist()
        if kept.interval:
            out += np.round((d.time - times[order]) / m.timestep).tolist()
            out.append(float(d.time - last_due[0]) / m.timestep)
    return out


def history_to(m: Model, mjm: mujoco.MjModel, history: np.ndarray, time: float) -> np.ndarray:
    """Return mjData.history (nhistory) with these samples at this time (s)."""
    d = mujoco.MjData(mjm)
    for kept in samples(m):
        last_due, cursor, times, values = _ring(kept, mjm, d)
        numbers = history.tolist()
        ages = np.array(kept.ages(numbers))
        cursor[0], values[:] = kept.nsample - 1, kept.values(numbers)
        times[:] = time - (ages + EARLIER) * m.timestep
        if kept.interval:
            last_due[0] = time - (history[kept.adr + kept.size - 1] + EARLIER) * m.timestep
    return np.array(d.history)


def _ring(kept: Samples, mjm: mujoco.MjModel, d: mujoco.MjData) -> tuple[np.ndarray, ...]:
    """Return views of when the last sample was due, the newest one's place, the times, and the samples (n, dim)."""
    adr = int(getattr(mjm, f"{kept.kind}_historyadr")[kept.of])
    ring = d.history[adr : adr + 2 + kept.nsample * (1 + kept.dim)]
    last_due, cursor, times, values = np.split(ring, [1, 2, 2 + kept.nsample])
    return last_due, cursor, times, values.reshape(kept.nsample, kept.dim)

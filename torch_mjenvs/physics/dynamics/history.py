"""Delays: actuators that follow earlier controls, sensors that give what they measured earlier, or only at intervals.

Each keeps its last `nsample` samples, which are state (`history`), oldest first. Time is counted in steps from the
present one: in a step the last step's sample is of age 1. MuJoCo keeps times in seconds, which are rounded. So if a
delay is a whole number of steps, it sometimes reads one sample off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...compiler.scalar import Mask, Scalar, maximum, select
from ..algebra.spatial import choose, is_number
from ..model.data import Data
from ..model.model import Model

ZERO_ORDER_HOLD, LINEAR, CUBIC = range(3)
ROUNDING = 1e-4  # steps: how much too early an interval may count as over


@dataclass(frozen=True)
class Samples:
    """Where the samples of an actuator or a sensor are in `history`: nsample x dim numbers from `adr` on.

    If it measures at intervals, they are followed by the age of each sample and the time since the last one was due.
    Delay and interval are in steps.
    """

    kind: str  # "actuator" or "sensor"
    of: int
    adr: int
    nsample: int
    dim: int
    interp: int
    delay: float
    interval: float

    @property
    def size(self) -> int:
        return self.nsample * self.dim + (self.nsample + 1 if self.interval else 0)

    def values(self, history: Sequence[Scalar]) -> list[list[Scalar]]:
        """Return the samples, oldest first."""
        return [list(history[self.adr + j * self.dim :][: self.dim]) for j in range(self.nsample)]

    def ages(self, history: Sequence[Scalar]) -> list[Scalar]:
        """Return the samples' ages in steps, at the beginning of a step."""
        if not self.interval:
            return [float(self.nsample - j) for j in range(self.nsample)]
        return list(history[self.adr + self.nsample * self.dim :][: self.nsample])

    def due(self, history: Sequence[Scalar]) -> Mask:
        """Return whether a sample is taken in this step."""
        return self._since(history) >= self.interval - ROUNDING if self.interval else True

    def read(self, history: Sequence[Scalar], ahead: float = 0.0) -> list[Scalar]:
        """Return the delayed sample now, or `ahead` steps after the step began. mj_readCtrl, mj_readSensor."""
        rows, ages, age = self.values(history), self.ages(history), self.delay - ahead
        out = rows[0]
        for j, old in enumerate(ages):
            out = choose(old >= age, self._from(rows, ages, j, age), out)
        return out

    def after(self, history: Sequence[Scalar], sample: Sequence[Scalar]) -> list[Scalar]:
        """Return these numbers after a step in which `sample` could be taken."""
        due, rows = self.due(history), self.values(history)
        new = [choose(due, after, row) for row, after in zip(rows, [*rows[1:], list(sample)], strict=True)]
        out = [x for row in new for x in row]
        if self.interval:
            ages, since = self.ages(history), self._since(history)
            out += [select(due, after, x) + 1.0 for x, after in zip(ages, [*ages[1:], 0.0], strict=True)]
            out.append(select(due, since - self.interval, since) + 1.0)
        return out

    def _since(self, history: Sequence[Scalar]) -> Scalar:
        return history[self.adr + self.size - 1]

    def _from(self, rows: list[list[Scalar]], ages: list[Scalar], j: int, age: float) -> list[Scalar]:
        """Return what is read at an age between those of samples j and j + 1. mju_historyRead."""
        last = self.nsample - 1
        if j == last or self.interp == ZERO_ORDER_HOLD:
            return rows[j]

        def between(first: int, second: int) -> Scalar:
            return maximum(ages[first] - ages[second], 1.0)  # samples are a step apart at least

        def slope(k: int) -> list[Scalar]:
            """Return the slope at sample k by its neighbours, times the time from j to j + 1; 0 at the ends."""
            if k in (0, last):
                return [0.0] * self.dim
            by = between(j, j + 1) / between(k - 1, k + 1)
            return [(x - y) * by for x, y in zip(rows[k + 1], rows[k - 1], strict=True)]

        way = (ages[j] - age) / between(j, j + 1)
        if self.interp == LINEAR:
            return [x + way * (y - x) for x, y in zip(rows[j], rows[j + 1], strict=True)]
        back = 1.0 - way
        starts, ends = back * back * (1.0 + 2.0 * way), way * way * (3.0 - 2.0 * way)
        rises, falls = way * back * back, way * way * back
        four = zip(rows[j], rows[j + 1], slope(j), slope(j + 1), strict=True)
        return [starts * x + ends * y + rises * a - falls * b for x, y, a, b in four]


def samples(m: Model) -> list[Samples]:
    """Return what is kept of all actuators and sensors that are delayed or measure at intervals."""
    out: list[Samples] = []
    for i, ((nsample, interp), delay) in enumerate(zip(m.actuator_history, m.actuator_delay, strict=True)):
        if delay > 0:
            out.append(Samples("actuator", i, _end(out), nsample, 1, interp, _in_steps(m, delay), 0.0))
    for i, (nsample, interp) in enumerate(m.sensor_history):
        delay, interval = _in_steps(m, m.sensor_delay[i]), _in_steps(m, m.sensor_interval[i][0])
        if delay > 0 or interval > 0:
            out.append(Samples("sensor", i, _end(out), nsample, m.sensor_dim[i], interp, delay, interval))
    return out


def _end(found: list[Samples]) -> int:
    return found[-1].adr + found[-1].size if found else 0


def _in_steps(m: Model, seconds: float) -> float:
    steps = seconds / m.timestep
    return float(round(steps)) if abs(steps - round(steps)) < 1e-9 * max(1.0, steps) else steps


def samples_of(m: Model, kind: str, i: int) -> Samples | None:
    """Return what is kept of actuator or sensor i, or None if nothing is."""
    return next((x for x in samples(m) if (x.kind, x.of) == (kind, i)), None)


def history_of(m: Model, d: Data) -> Sequence[Scalar]:
    """Return the samples of all that is delayed."""
    return m.history0 if d.history is None else d.history


def control(m: Model, d: Data, i: int) -> Scalar:
    """Return the control that actuator i follows: the present one or, with a delay, an earlier one."""
    kept = samples_of(m, "actuator", i)
    if kept is None:
        return d.ctrl[i]
    ahead, history = 0.0 if d.ahead is None else d.ahead, history_of(m, d)
    if is_number(ahead):
        return kept.read(history, ahead)[0]
    start, half, end = (kept.read(history, x)[0] for x in (0.0, 0.5, 1.0))  # of Runge-Kutta's stages
    return select(ahead < 0.25, start, select(ahead < 0.75, half, end))

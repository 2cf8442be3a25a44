"""`recorded`: what is kept of delayed actuators and sensors after a step."""

from __future__ import annotations

from ...compiler.scalar import Scalar
from ..dynamics.history import Samples, history_of, samples
from ..model.data import Data
from ..model.model import Model, UnsupportedModel


def recorded(m: Model, d: Data) -> list[Scalar]:
    """Return the history after a step from d, with its controls and what its sensors measure. mj_advance.

    Nothing is kept of a sensor that is refused, since it cannot be read.
    """
    history, out = history_of(m, d), []
    for kept in samples(m):
        try:
            out += kept.after(history, _sample(d, kept))
        except UnsupportedModel:
            out += history[kept.adr : kept.adr + kept.size]
    return out


def _sample(d: Data, kept: Samples) -> list[Scalar]:
    return [d.ctrl[kept.of]] if kept.kind == "actuator" else d.sensordata.now(kept.of)

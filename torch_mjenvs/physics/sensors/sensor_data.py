"""`SensorData`: mjData's sensordata; each sensor is computed when it is first read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...compiler.scalar import Scalar
from ..model.model import Model, UnsupportedModel
from .objects import NOT_SUPPORTED


class SensorData(Sequence[Any]):
    """The numbers of all sensors, read like a list; `data[m.sensor(name)]` computes that sensor alone.

    A sensor that is not supported is refused when one of its numbers is read. `measure` computes sensor i, and is
    called as often as its numbers are read. `now` computes what it measures now, if it gives something else.
    """

    def __init__(
        self, m: Model, measure: Callable[[int], list[Scalar]], now: Callable[[int], list[Scalar]] | None = None
    ):
        self._model, self._measure, self.now = m, measure, now or measure
        self._own: dict[int, Scalar] = {}  # numbers that were set
        dims = zip(m.sensor_adr, m.sensor_dim, strict=True)
        self._at = {adr + k: (i, k) for i, (adr, dim) in enumerate(dims) for k in range(dim)}

    def copy(self) -> SensorData:
        """Return a copy, whose numbers can be set without changing these."""
        new = SensorData(self._model, self._measure, self.now)
        new._own.update(self._own)
        return new

    def __len__(self) -> int:
        return self._model.nsensordata

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, str):
            raise TypeError(f"a sensor is read by its place, sensordata[m.sensor({index!r})]")
        places = range(len(self))[index]
        return self._read(places) if isinstance(index, slice) else self._read([places])[0]

    def __setitem__(self, index: int, x: Scalar) -> None:
        self._own[range(len(self))[index]] = x

    def __iter__(self) -> Iterator[Scalar]:
        return iter(self[:])

    def __add__(self, other: Sequence[Scalar]) -> list[Scalar]:
        return [*self, *other]

    def __radd__(self, other: Sequence[Scalar]) -> list[Scalar]:
        return [*other, *self]

    def of_sensor(self, i: int) -> list[Scalar]:
        """Return the numbers of sensor i alone."""
        adr = self._model.sensor_adr[i]
        return self._read(range(adr, adr + self._model.sensor_dim[i]))

    def _read(self, places: Sequence[int]) -> list[Scalar]:
        """Return the numbers at these places. Raises `UnsupportedModel`, which names all sensors that are refused."""
        known: dict[int, list[Scalar]] = {}
        refused: dict[int, str] = {}
        for i in dict.fromkeys(self._at[k][0] for k in places if k in self._at and k not in self._own):
            try:
                known[i] = self._measure(i)
            except UnsupportedModel as error:
                refused[i] = str(error)
        if refused:
            (_, text), *others = refused.items()
            what, remedy = text.split(NOT_SUPPORTED)
            names = ", ".join(repr(self._model.sensor_names[i]) for i, _ in others)
            raise UnsupportedModel(f"{what} is not supported, nor are {names}: {remedy}" if others else text)
        return [self._own[k] if k in self._own else self._number(known, k) for k in places]

    def _number(self, known: dict[int, list[Scalar]], k: int) -> Scalar:
        if k not in self._at:  # a flag disables all sensors
            return 0.0
        i, part = self._at[k]
        return known[i][part]

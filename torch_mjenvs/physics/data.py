"""The state of a world while a step is computed."""

from __future__ import annotations

from types import SimpleNamespace


class Data(SimpleNamespace):
    """What the stages read and write: MuJoCo's mjData, one list of scalars (or of lists of them) a field.

    The caller sets `qpos`, `qvel` and `ctrl`; each stage says which fields it adds.
    """

"""dm_control's suite: its tasks, equal to its own to rounding. Their models are those of the installed dm_control."""

from .loading import load
from .registry import TASKS

__all__ = ["TASKS", "load"]

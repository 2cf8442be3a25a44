"""dm_control's suite: its tasks, equal to its own to rounding. Their models are those of the installed dm_control."""

from typing import Any

from .registry import TASKS

__all__ = ["TASKS", "load"]


def load(domain_name: str, task_name: str, *args: Any, **kwargs: Any) -> Any:
    """Load a task of dm_control's suite as a batched `dm_env` environment: see `environment.load`.

    Raises ImportError if dm_control, and dm_env with it, is not installed.
    """
    try:
        from .environment import load as made
    except ModuleNotFoundError as error:
        if error.name != "dm_env":
            raise
        raise ImportError("load needs dm_env: pip install '.[dmc]', in the checkout of torch_mjenvs") from error
    return made(domain_name, task_name, *args, **kwargs)

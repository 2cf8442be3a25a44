"""The settings of a run: the rules that each must obey, and the values that a table has for a task."""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .flags import Number, count, positive, whole
from .networks import ACTIVATIONS, NORMS

SETTINGS = Path(__file__).with_name("settings.toml")  # PPO's

_several = Number("a whole number from 2 on, as the advantages of one frame have no spread", lambda x: x >= 2, True)
_few = Number("a whole number from 1 to 2,147,483,647", lambda x: 1 <= x < 2**31, True)
_wide = Number("a whole number from 1 to 1,000,000", lambda x: 1 <= x <= 10**6, True)
_amount = Number("a number from 0 on", lambda x: x >= 0)
_log_std = Number("a number from -20 to 10", lambda x: -20 <= x <= 10)  # e^10: the noise is 22,000 then
_share = Number("a number from 0 to 1", lambda x: 0 <= x <= 1)


def widths(given: str | Sequence[int]) -> tuple[int, ...]:
    """Return the widths of a network's hidden layers: "512,256,128", or a list of them."""
    found = given.split(",") if isinstance(given, str) else given
    if not isinstance(found, list | tuple) or not found:
        raise argparse.ArgumentTypeError(f"{given} is not a list of widths, as in 512,256,128")
    return tuple(int(_wide(width)) for width in found)


def activation(given: str) -> str:
    """Return the name of an activation, after checking that it exists."""
    if given not in ACTIVATIONS:
        raise argparse.ArgumentTypeError(f"{given} is not one of {', '.join(ACTIVATIONS)}")
    return given


def norm(given: str) -> str:
    """Return the name of a normalisation of hidden layers, after checking that it exists."""
    if given not in NORMS:
        raise argparse.ArgumentTypeError(f"{given} is not one of {', '.join(NORMS)}")
    return given


# The rule for every setting of a run, here and in the examples; it holds on the command line and in tables alike.
RULES: dict[str, Callable[[Any], Any]] = {
    "num_envs": _few,
    "total_steps": count,
    "horizon": _few,
    "epochs": _few,
    "minibatch": _several,
    "learning_rate": positive,
    "gamma": _share,
    "lam": _share,
    "clip": positive,
    "value_weight": _amount,
    "value_clip": _amount,
    "entropy": _amount,
    "target_kl": _amount,
    "max_grad_norm": positive,
    "log_std": _log_std,
    "log_std_min": _log_std,
    "log_std_max": _log_std,
    "actor": widths,
    "critic": widths,
    "activation": activation,
    "norm": norm,
    "updates": _few,  # from here on: of SAC
    "batch": _few,
    "buffer": _few,
    "random_frames": whole,
    "tau": Number("a number above 0, at most 1", lambda x: 0 < x <= 1),
}

# What each setting is, for `--help`.
MEANINGS = {
    "num_envs": "number of worlds",
    "total_steps": "frames to train on, of all worlds together",
    "horizon": "steps of every world in an iteration",
    "epochs": "passes over an iteration's frames",
    "minibatch": "frames in a minibatch",
    "learning_rate": "Adam's, at the start",
    "gamma": "discount",
    "lam": "lambda of generalised advantage estimation",
    "clip": "bound on how far the probability ratio may be from 1",
    "value_weight": "weight of the value's loss",
    "value_clip": "bound on the change of a value in an update; 0 for none",
    "entropy": "weight of the bonus for entropy",
    "target_kl": "divergence that the learning rate is adapted to; 0: the rate falls to a tenth",
    "max_grad_norm": "norm to which gradients are clipped",
    "log_std": "logarithm of the noise's standard deviation, at the start",
    "log_std_min": "its least value in a rollout",
    "log_std_max": "its greatest value in a rollout",
    "actor": "units of the policy's hidden layers",
    "critic": "units of the value network's hidden layers",
    "activation": f"of hidden layers: {', '.join(ACTIVATIONS)}",
    "norm": f"of hidden layers, before the activation: {', '.join(NORMS)}",
    "updates": "updates in an iteration",
    "batch": "past frames in an update",
    "buffer": "past frames that are kept",
    "random_frames": "frames with random actions before learning starts",
    "tau": "step of the target networks in an update",
}


def checked(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings, each converted and checked by its rule. Raises ValueError for an unknown setting or an
    invalid value.
    """
    found = {}
    for name, value in settings.items():
        if name not in RULES:
            raise ValueError(f"there is no setting {name!r}: choose from {', '.join(RULES)}")
        try:
            found[name] = RULES[name](value)
        except argparse.ArgumentTypeError as error:
            raise ValueError(f"{name}: {error}") from error
    return found


def tabled(file: Path, env_id: str, device: str, instead: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings for a task: `instead`, else its table in a file, else the defaults there.

    A table may contain another, with what differs on a kind of device ("cpu", "cuda"). Raises ValueError for an invalid
    setting.
    """
    tables = tomllib.loads(file.read_text())
    table = tables.get(env_id, {})
    everywhere = {name: x for name, x in table.items() if not isinstance(x, dict)}
    return checked(tables["defaults"] | everywhere | table.get(device, {}) | instead)


def tuned(file: Path) -> list[str]:
    """Return the ids of the tasks that have a table in a file."""
    return [name for name in tomllib.loads(file.read_text()) if name != "defaults"]


def settings(env_id: str = "", device: str = "", **instead: Any) -> dict[str, Any]:
    """Return PPO's settings for a task: the arguments, else its table in settings.toml, else the defaults.

    device: the kind whose own settings override the task's others, such as "cpu".

    A minibatch size from the tables is limited to the batch. Raises ValueError for an invalid setting, such as a given
    minibatch larger than the batch, or a log_std beyond its bounds.
    """
    found = tabled(SETTINGS, env_id, device, instead)
    batch = found["num_envs"] * found["horizon"]
    if found["minibatch"] > batch and "minibatch" in instead:
        raise ValueError(
            f"minibatch: {found['minibatch']} frames are more than a batch has, {batch} = "
            f"{found['num_envs']} worlds (num_envs) x {found['horizon']} steps (horizon)"
        )
    low, start, high = (found[name] for name in ("log_std_min", "log_std", "log_std_max"))
    if not low <= start <= high:
        raise ValueError(f"log_std: {start} is not between log_std_min, {low}, and log_std_max, {high}")
    return checked(found | {"minibatch": min(found["minibatch"], batch)})

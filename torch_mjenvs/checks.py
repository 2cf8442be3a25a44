"""Checks users' input, and converts it to what the package works with. Errors use the user's terms, and nothing has
changed when one is raised.
"""

from __future__ import annotations

import difflib
import operator
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np
import torch
from gymnasium.vector import AutoresetMode

from .memory import available

LARGEST = 2**31 - 1  # of what is counted in the kernels' int32: worlds, steps


class MissingExtra(ModuleNotFoundError):
    """Raised where an extra of this package is not installed. The message says how to install it."""


def install(extra: str) -> str:
    """Return how to install an extra of this package, for messages."""
    return f"pip install '.[{extra}]', in the checkout of torch_mjenvs"


def as_count(name: str, x: Any, least: int = 1) -> int:
    """Read x as a whole number from `least` to LARGEST. Raises ValueError."""
    kind = {0: "whole number from 0 on", 1: "positive whole number"}.get(least, f"whole number from {least} on")
    try:
        count = least - 1 if isinstance(x, (bool, np.bool_)) else operator.index(x)
    except TypeError:
        count = least - 1
    if count < least:
        raise ValueError(f"{name} must be a {kind}, not {x!r}")
    if count > LARGEST:
        raise ValueError(f"{name} must be below 2**31, not {x!r}")
    return count


def as_bound(name: str, x: Any) -> float | None:
    """Read x as a positive number, or None for no bound. Raises ValueError."""
    if x is None or (isinstance(x, (int, float, np.number)) and x > 0):
        return None if x is None else float(x)
    raise ValueError(f"{name} must be a positive number, or None, not {x!r}")


def as_limit(max_episode_steps: Any) -> int | None:
    """Read the number of steps after which an episode is truncated; None, or Gymnasium's -1, means never. Raises
    ValueError.
    """
    if max_episode_steps is None:
        return None
    if isinstance(max_episode_steps, (int, np.integer)) and max_episode_steps <= 0 and max_episode_steps != -1:
        raise ValueError(f"max_episode_steps must be a positive whole number, or -1 for never, not {max_episode_steps}")
    steps = as_count("max_episode_steps", max_episode_steps, -1)
    return None if steps == -1 else steps


def as_mode(x: Any) -> AutoresetMode:
    """Read x as one of Gymnasium's AutoresetMode, given as itself or by its value. Raises ValueError."""
    try:
        return AutoresetMode(x)
    except ValueError:
        known = ", ".join(repr(mode.value) for mode in AutoresetMode)
        raise ValueError(f"autoreset_mode must be an AutoresetMode or one of {known}, not {x!r}") from None


def as_dtype(x: Any) -> torch.dtype:
    """Read x as torch.float32 or torch.float64, given as itself, by its name, or as NumPy's. Raises ValueError."""
    known = {"float32": torch.float32, "float64": torch.float64}
    name = str(x).removeprefix("torch.")
    if not isinstance(x, (str, torch.dtype)) and x is not None:
        try:
            name = np.dtype(x).name
        except (TypeError, ValueError):
            name = ""
    if name not in known:
        raise ValueError(f"dtype must be torch.float32 or torch.float64, not {x!r}")
    return known[name]


def check_memory(name: str, count: int, bytes_each: int, device: torch.device) -> None:
    """Raise MemoryError if this is more than the process may take on the host; the message names the limit.

    On a GPU, torch's own allocator refuses.
    """
    limit = available() if device.type == "cpu" else None
    if limit is not None and count * bytes_each > limit.left:
        wanted, left = (x / 2**30 for x in (count * bytes_each, limit.left))
        raise MemoryError(f"{name}={count} takes {wanted:.1f} GiB, and {limit.name} leaves {left:.1f} GiB: take fewer")


def as_tensor(
    name: str, x: Any, shape: tuple[int, ...], device: torch.device, other: tuple[int, ...] | None = None
) -> torch.Tensor:
    """Read x as a real tensor of this shape, or of the other. NumPy arrays and lists may come from the host, a tensor
    must be on the device.

    Raises TypeError for what is not numeric or not dense, ValueError for another shape or device.
    """
    found: torch.Tensor = x if isinstance(x, torch.Tensor) else _from_numpy(name, x, device)
    _check_place(name, found, shape if other is None or found.shape != other else other, device)
    if not found.dtype.is_floating_point and (found.dtype == torch.bool or found.dtype.is_complex):
        raise TypeError(f"{name} must be of real numbers, not of {found.dtype}")
    return found.detach() if found.requires_grad else found


def as_rows(name: str, x: Any, size: int, device: torch.device) -> torch.Tensor:
    """Read x as a real tensor of shape (..., size). Raises as `as_tensor`."""
    try:
        shape = tuple(x.shape if isinstance(x, torch.Tensor) else np.shape(x))
    except ValueError as error:
        raise TypeError(f"{name} must be a tensor, an array or nested lists of numbers: {error}") from error
    if not shape or shape[-1] != size:
        raise ValueError(f"{name} must be of shape (..., {size}), not {shape}")
    return as_tensor(name, x, shape, device)


def is_rows(x: Any, size: int, dtype: torch.dtype, device: torch.device) -> bool:
    """Return whether x already is what `as_rows` would make of it, of this type. Most are, and this check is faster."""
    return (
        type(x) is torch.Tensor
        and x.dtype is dtype
        and x.device == device
        and x.layout is torch.strided
        and not x.is_nested
        and x.ndim > 0
        and x.shape[-1] == size > 0
    )


def broadcast(what: str, shapes: Sequence[torch.Size]) -> torch.Size:
    """Return the shape that these are broadcast to. Raises ValueError, naming them."""
    if shapes and all(shape == shapes[0] for shape in shapes):
        return shapes[0]
    try:
        return torch.broadcast_shapes(*shapes)
    except RuntimeError:
        raise ValueError(f"{what} cannot be broadcast: {', '.join(str(tuple(x)) for x in shapes)}") from None


def _check_place(name: str, x: torch.Tensor, shape: tuple[int, ...], device: torch.device) -> None:
    if x.device != device:
        raise ValueError(f"{name} must be on {device}, not on {x.device}")
    if x.layout != torch.strided or x.is_nested or x.is_quantized:
        kind = "nested" if x.is_nested else "quantized" if x.is_quantized else str(x.layout).removeprefix("torch.")
        raise TypeError(f"{name} must be a dense tensor, not a {kind} one")
    if x.shape != shape:
        raise ValueError(f"{name} must be of shape {tuple(shape)}, not {tuple(x.shape)}")


def _from_numpy(name: str, x: Any, device: torch.device) -> torch.Tensor:
    try:
        array = np.asarray(x)
    except (TypeError, ValueError, RuntimeError) as error:  # RuntimeError: of tensors in a list
        raise TypeError(f"{name} must be a tensor, an array or nested lists of numbers: {error}") from error
    if array.dtype.kind not in "fiu":
        raise TypeError(f"{name} must be of real numbers, not of {array.dtype}")
    return torch.from_numpy(np.array(array, dtype=np.float64)).to(device)


def as_mask(name: str, x: Any, num_envs: int, device: torch.device) -> torch.Tensor:
    """Read x as an (N,) bool tensor. Raises TypeError for another type, ValueError for another shape or device."""
    if isinstance(x, (list, tuple)) and all(isinstance(entry, (bool, np.bool_)) for entry in x):
        x = np.array(x, dtype=np.bool_)
    if isinstance(x, np.ndarray):
        if x.dtype != np.bool_:
            raise TypeError(f"{name} must have dtype=bool, not {x.dtype}")
        x = torch.from_numpy(x.copy()).to(device)
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"{name} must be a tensor, a NumPy array or a list of True and False, not {x!r}")
    if x.dtype != torch.bool:
        raise TypeError(f"{name} must have dtype=bool, not {x.dtype}")
    _check_place(name, x, (num_envs,), device)
    return x


def check_state(state: Any, ours: Mapping[str, torch.Tensor], owner: str) -> None:
    """Refuse a state dict unless it holds dense tensors of these names, shapes and dtypes: TypeError or ValueError."""
    if not isinstance(state, Mapping):
        raise TypeError(f"a state is a dict of tensors, as state_dict() gave it, not {type(state)}")
    for name, x in state.items():
        if not isinstance(x, torch.Tensor) or x.layout != torch.strided or x.is_meta:
            kind = f"{x.layout} on {x.device}" if isinstance(x, torch.Tensor) else type(x)
            raise TypeError(f"the state's {name!r} must be a dense tensor that holds numbers, not {kind}")
    theirs = {name: (x.shape, x.dtype) for name, x in state.items()}
    expected = {name: (x.shape, x.dtype) for name, x in ours.items()}
    differing = sorted(str(k) for k in expected.keys() | theirs.keys() if expected.get(k) != theirs.get(k))
    if differing:
        both = [(k, *theirs[k], *expected[k]) for k in theirs if k in ours and theirs[k] != expected[k]]
        said = "".join(
            f"; {k} is of shape {tuple(one)}, not {tuple(two)}" if one != two else f"; {k} is of {kind}, not {wanted}"
            for k, one, kind, two, wanted in both[:1]
        )
        raise ValueError(f"this is not the state of {owner}: {', '.join(differing)} differ{said}")


def as_options(options: Any) -> Mapping[str, Any]:
    """Read the options of a reset. Raises TypeError for what is neither a dict nor None."""
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise TypeError(f"options must be a dict or None, not {options!r}")
    return options


def as_seed(seed: Any) -> int:
    """Read a seed, a whole number from 0 on. Raises TypeError or ValueError."""
    if isinstance(seed, (bool, np.bool_)):
        raise TypeError(f"seed must be a whole number, not {seed!r}")
    try:
        number = operator.index(seed)
    except TypeError as error:
        raise TypeError(f"seed must be a whole number, not {seed!r}") from error
    if number < 0:
        raise ValueError(f"seed must not be negative, but is {number}")
    return number


def as_seeds(seed: Any, num_envs: int) -> int | list[int | None]:
    """Read one seed, or one for each world, None if its stream shall stay. Raises TypeError or ValueError."""
    many = isinstance(seed, Sequence) and not isinstance(seed, (str, bytes))
    if not many and not (isinstance(seed, np.ndarray) and seed.ndim):
        return as_seed(seed)
    if len(seed) != num_envs:
        raise ValueError(
            f"If seeds are passed as a list the length must match num_envs={num_envs} but got length={len(seed)}."
        )
    return [None if s is None else as_seed(s) for s in seed]


def as_names(what: str, x: Any) -> tuple[str, ...]:
    """Read x as names: one, or several in a list or the like. Raises TypeError for anything else, also for a dict, as
    its values would be lost.
    """
    if isinstance(x, str):
        return (x,)
    names = tuple(x) if isinstance(x, Iterable) and not isinstance(x, Mapping) else (x,)
    if not all(isinstance(name, str) for name in names):
        raise TypeError(f"{what} must be names, such as ('a', 'b'), not {x!r}")
    return names


def check_field(name: str, kind: str, value: Any) -> None:
    """Raise TypeError or ValueError for a value not of the field's declared kind, where that is one of these."""
    if kind == "float" and not is_number(value):
        raise TypeError(f"{name} must be a number, not {value!r}")
    if kind == "bool" and not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be True or False, not {value!r}")
    if kind == "tuple[float, float]" and not (
        isinstance(value, Sequence) and len(value) == 2 and all(is_number(x) for x in value)
    ):
        raise ValueError(f"{name} must be two numbers, (low, high), not {value!r}")
    if name == "reset_noise_scale" and value < 0:
        raise ValueError(f"{name} must not be negative, but is {value}")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: the known one that is most alike, if any is."""
    alike = difflib.get_close_matches(name, list(known), 1)
    return f"; did you mean {alike[0]!r}?" if alike else ""


def is_number(x: Any) -> bool:
    """True for a real number that is not a bool."""
    return isinstance(x, Real) and not isinstance(x, (bool, np.bool_))

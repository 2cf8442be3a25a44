"""A policy's file for a robot's computer: ONNX, TorchScript or NumPy, and what it says of inputs and outputs."""

from __future__ import annotations

import io
import json
import logging
import math
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box
from torch import nn

from .checks import MissingExtra, install
from .envs.parts import Parts, Tree
from .files import write_whole

FORMATS = (".onnx", ".npz", ".pt", ".ts")
INPUT, OUTPUT, METADATA = "obs", "actions", "metadata.json"
NEEDS = f"needs onnx and onnxscript: {install('export')}"


def check_format(path: str | os.PathLike[str]) -> Path:
    """Return the path of a file to export to. Raises ValueError unless its name ends in one of FORMATS."""
    file = Path(path).expanduser()
    if file.suffix not in FORMATS:
        raise ValueError(f"{str(file)!r} must end in .onnx (ONNX), .pt or .ts (TorchScript), or .npz (NumPy)")
    return file


def described(parts: Parts, actions: int, env_id: str, task: dict[str, Any], space: Box | None) -> dict[str, Any]:
    """Return what an exported file says of its policy, as JSON can hold it.

    "observation" is a list of {"name", "shape", "slice"}, the parts of an input row in order; a part of a group goes by
    "group/name". "action_low" and "action_high" are lists of numbers, null where there is no bound.

    Raises ValueError for a space that is not of the policy's actions.
    """
    if space is not None and space.shape != (actions,):
        raise ValueError(f"the policy's actions are of shape {(actions,)}, the action_space's of shape {space.shape}")
    at, rows = 0, []
    for path, shape in _named(parts.shapes):
        end = at + math.prod(shape)
        rows.append({"name": "/".join(path) or INPUT, "shape": list(shape), "slice": [at, end]})
        at = end
    fields = {name: _as_json(x) for name, x in task.items()}
    found = {"env": env_id, "task": fields, "observation": rows, "actions": actions}
    if space is not None:
        found |= {"action_low": _bounds(space.low), "action_high": _bounds(space.high)}
    return found


def _named(shapes: Tree, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], tuple[int, ...]]]:
    if isinstance(shapes, dict):
        for name, inside in shapes.items():
            yield from _named(inside, (*path, name))
    else:
        yield path, shapes


def _as_json(x: Any) -> Any:
    """Return a field's value; numbers that JSON does not have become "inf" and so on."""
    if isinstance(x, tuple):
        return [_as_json(y) for y in x]
    return str(x) if isinstance(x, float) and not math.isfinite(x) else x


def _bounds(x: Any) -> list[float | None]:
    return [y if math.isfinite(y) else None for y in np.asarray(x, float).tolist()]


def to_torchscript(network: nn.Module, metadata: dict[str, Any], file: Path) -> None:
    """Write a scriptable module as TorchScript; `metadata` is its extra file metadata.json."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning)  # TorchScript as a whole is deprecated
        scripted = torch.jit.script(network.eval())
        content = io.BytesIO()
        torch.jit.save(scripted, content, {METADATA: json.dumps(metadata)})
    write_whole(file, content.getbuffer(), shared=True)


def to_numpy(network: nn.Module, metadata: dict[str, Any], file: Path) -> None:
    """Write a policy's network as arrays: mean, scale, and weights0 (out, in), biases0 (out,) and so on by layer.

    With layer norm there are gains0 and shifts0 (out,) and so on, too. Where actions are squashed by tanh, there are
    middle and reach (A,): the actions are middle ± reach.
    """
    arrays: dict[str, torch.Tensor] = {}
    for kind, names in ((nn.Linear, ("weights", "biases")), (nn.LayerNorm, ("gains", "shifts"))):
        for i, layer in enumerate(x for x in network.modules() if isinstance(x, kind)):
            arrays |= {f"{names[0]}{i}": layer.weight, f"{names[1]}{i}": layer.bias}
    arrays |= {name.rpartition(".")[2]: x for name, x in network.named_buffers()}
    found: dict[str, Any] = {name: x.numpy() for name, x in arrays.items()}
    content = io.BytesIO()
    np.savez(content, metadata=np.array(json.dumps(metadata)), **found)
    write_whole(file, content.getbuffer(), shared=True)


def to_onnx(network: nn.Module, inputs: int, metadata: dict[str, Any], file: Path) -> None:
    """Write a module as ONNX, from `obs` (batch, inputs) to `actions` (batch, A), both float32, for any batch.

    Each entry of `metadata` is one of the file's: a string as it is, all else as JSON. Raises MissingExtra without the
    libraries that torch needs, or with an onnxscript too old for it.
    """
    try:
        import onnx
        import onnxscript  # noqa: F401 (torch imports it)

        # On the CPU, whatever the default device is: torch's exporter makes tensors of its own.
        with warnings.catch_warnings(), _quiet("torch.onnx"), torch.device("cpu"):
            warnings.simplefilter("ignore")  # torch's warnings about its own code
            obs = torch.zeros(2, inputs, dtype=torch.float32)
            program: Any = torch.onnx.export(
                network.eval(), (obs,), dynamo=True, verbose=False, input_names=[INPUT], output_names=[OUTPUT],
                dynamic_shapes=({0: torch.export.Dim("batch")},),
            )  # fmt: skip
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("onnx", "onnxscript"):
            raise
        raise MissingExtra(f"to export a policy as ONNX {NEEDS}", name=error.name) from error
    model = program.model_proto
    texts = {name: x if isinstance(x, str) else json.dumps(x) for name, x in metadata.items()}
    onnx.helper.set_model_props(model, texts)
    write_whole(file, model.SerializeToString(), shared=True)


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    """Silence a logger and those below it except for errors: torch logs that torchvision is missing, in four lines."""
    loggers = [logging.getLogger(x) for x in (name, *logging.root.manager.loggerDict) if f"{x}.".startswith(f"{name}.")]
    before = [(x, x.level) for x in loggers]
    for x in loggers:
        x.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for x, level in before:
            x.setLevel(level)

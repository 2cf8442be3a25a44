"""The environments that training uses, made by id: Torch tasks, and the originals to which they are equal."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import re
import sys
from collections.abc import Collection
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

import gymnasium
import mujoco
import numpy as np
import torch
from gymnasium.vector import AutoresetMode

from ..checks import did_you_mean
from ..compiler.source import digest_of_classes, is_own
from ..envs.registration import SUITE_IDS, own_ids
from ..envs.vector_env import TorchVectorEnv
from .originals import SUITE

LONGEST = 1000  # steps of an episode that is scored, if its task has no time limit


def task_ids() -> list[str]:
    """Return the ids of all tasks that run on this package, users' registered ones included."""
    return sorted(spec.id for spec in gymnasium.registry.values() if _is_ours(spec.vector_entry_point))


def _is_ours(entry_point: Any) -> bool:
    """Say whether a class, or the text "module:class" that names it, is of this package."""
    module = entry_point if isinstance(entry_point, str) else str(getattr(entry_point, "__module__", ""))
    return is_own(module.partition(":")[0])


def task_id(name: str) -> str:
    """Return the full id of a Torch task, given with or without its version; with its module if the task is a user's.

    Raises SystemExit if there is no such task.
    """
    module, _, name = name.rpartition(":")
    if module:
        if module.startswith(".") or "/" in module:
            raise SystemExit(f"{module!r} is no module: name it as an import does, as in my_tasks or package.my_tasks")
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{module}.".startswith(f"{error.name}."):
                raise  # the module is there, but imports one that is not
            raise SystemExit(f"there is no module {module!r}, neither in this folder nor installed") from error
    known = task_ids()
    found = [full for full in known if name in (full, full.rpartition("-v")[0])]
    if not found and module and isinstance(getattr(importlib.import_module(module), name, None), type):
        raise SystemExit(
            f"the class {name!r} of {module!r} has no id: register it there by gymnasium.register (docs/commands.md, "
            "train), and name that id"
        )
    if not found:
        raise SystemExit(f"there is no task {name!r}: choose from {', '.join(known)}{did_you_mean(name, known)}")
    full = max(found, key=lambda full: int(full.rpartition("-v")[2]))
    return full if not module or full in own_ids() else f"{module}:{full}"


def make(env_id: str, num_envs: int, device: str | None, **kwargs: Any) -> TorchVectorEnv:
    """Make worlds in float32 that reset themselves and hand out their own buffers, which each step overwrites."""
    kwargs |= dict(device=device, dtype=torch.float32, autoreset_mode=AutoresetMode.SAME_STEP, copy=False)
    return cast(TorchVectorEnv, gymnasium.make_vec(env_id, num_envs=num_envs, **kwargs))


def make_to_score(env_id: str, num_envs: int, device: str | None, **kwargs: Any) -> TorchVectorEnv:
    """Make worlds as `make` does, whose episodes end: after LONGEST steps if the task has no limit; this is printed."""
    env = make(env_id, num_envs, device, **kwargs)
    if env.engine.max_episode_steps is None:
        env.close()
        text = f"episodes of {env_id} have no time limit: for scores they are cut after {LONGEST} steps"
        print(text, file=sys.stderr)
        env = make(env_id, num_envs, device, max_episode_steps=LONGEST, **kwargs)
    return env


def made_of(env: TorchVectorEnv) -> dict[str, str]:
    """Return what an environment's task is made of, by name: its fields and tables, digests of its model and code."""
    task, model = env.engine.task, env.engine.mjmodel
    image = np.empty(mujoco.mj_sizeModel(model), np.uint8)
    mujoco.mj_saveModel(model, None, image)
    classes = [kind for kind in type(task).__mro__ if kind is not object]
    found = {x.name: _short(_told(getattr(task, x.name))) for x in fields(task)}
    found |= {f"table {name}": _told(x) for name, x in env.engine.tables.items()}
    sources = {_source(kind) for kind in classes if not is_own(kind.__module__)}
    code = b"".join((digest_of_classes(classes).encode(), *(text for _, text in sorted(sources))))
    return found | {"model file": _digest(image.tobytes()), "code": _digest(code)}


def _source(kind: type) -> tuple[str, bytes]:
    """Return the file of a class, and what is in it; nothing if there is none, as of a class in a notebook."""
    try:
        file = inspect.getsourcefile(kind)
        return ("", b"") if file is None else (file, Path(file).read_bytes().replace(b"\r\n", b"\n"))
    except (OSError, TypeError):
        return "", b""


def _told(x: Any) -> str:
    """Return a value's repr; sets in order, and arrays and tensors by their contents, which repr leaves out."""
    if isinstance(x, set | frozenset):
        return f"{type(x).__name__} of {sorted(map(repr, x))}"
    if isinstance(x, torch.Tensor | np.ndarray):
        array = np.ascontiguousarray(torch.as_tensor(x).detach().cpu().numpy())
        return f"{array.shape} {array.dtype} of digest {_digest(array.tobytes())}"
    return repr(x)


def _short(text: str) -> str:
    """Return a repr, without addresses, which differ between processes; a digest of a long one."""
    text = re.sub("0x[0-9a-fA-F]+", "", text)
    return text if len(text) <= 200 else f"something of digest {_digest(text.encode())}"


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]


def original(env_id: str, fields: Collection[str] = ()) -> str | None:
    """Return the name of the original of a Torch task: an id of Gymnasium's, or a name like "dm_control/walker-walk".

    None for a user's own task, and for a task of dm_control's if other values of its fields are given.
    """
    if env_id.startswith(SUITE_IDS):
        return None if fields else SUITE + env_id.removeprefix(SUITE_IDS).removesuffix("-v0")
    name = env_id.removeprefix("Torch").replace("-v0", "-v5")
    return name if name in gymnasium.registry else None

"""Trained policies: those of `python -m torch_mjenvs train`, and those that come with the package.

A policy file is a dict that `torch.load(weights_only=True)` takes. "env" is the id of the task. "weights0", "biases0"
and so on, one pair a layer, are tensors (k, out, in) and (k, 1, out) of k networks; the first network is the policy.
"activation" is what stands between the layers, one of ACTIVATIONS; without it, tanh. With "gains0", "shifts0" and so
on, (k, 1, out) for each layer but the last, layer norm comes before it. "obs_mean" and "obs_var" are (O,).
With "action_low" and "action_high" (A,), a tanh of what the last layer gives is stretched from the one to the other.
"about" is optional: what is known of the policy. So is "task": fields of the task that the policy was trained with, by
name, where they are not as usual. Of a task that names its observations there is "observation", shapes as lists by name
in the order of those O numbers, and where it has groups "obs_groups": the groups that "policy" and "critic" see.
Training adds the value network, "value_weights0" and so on.

A file may come from a stranger. Reading one runs none of its code: `weights_only` unpickles tensors and plain values
alone, and nothing here imports the module that `env` names.
"""

from __future__ import annotations

import copy
import io
import itertools
import os
import pickle
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import torch
from gymnasium.spaces import Box
from gymnasium.vector import VectorEnv
from torch import Tensor, nn

from .checks import as_rows
from .envs.observation import chosen_groups
from .envs.parts import Parts, mapped
from .envs.spaces import parts_of

FOLDER = "policies"
ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU, "elu": nn.ELU, "silu": nn.SiLU}
PLAIN = (bool, int, float, str, type(None))  # types of a task's fields in a file, and of the items of tuples there


class Policy(nn.Module):
    """A trained policy: maps observations (..., O), as its task gives them, to mean actions (..., A), in float32.

    For tensors it gives a tensor, for NumPy arrays an array.

    If the task names its observations, it takes a dict of them and reads the entries that it was trained on, which are
    in `parts`. It also takes rows (..., O) of just these numbers, in that order.

        policy = torch_mjenvs.pretrained("TorchAnt-v0")
        action = policy(obs)

    `env_id` is the id of its task, `task` a dict of the task's fields that differ from their defaults, `about` a dict
    with scores, seed and frames. `network` takes rows only; it is what `torch.jit.script` compiles. Parameters do not
    require gradients unless you call `requires_grad_()`.

    To make one of your own: `layers` are pairs of weights (out, in) and biases (out,), with `activation` between them;
    `mean` and `var` (O,) normalise observations. If the task names its observations, `parts` has the shapes of those
    that the policy reads, by name, as in {"angle": (), "speeds": (2,)}. With `bounds`, two tensors (A,), a tanh keeps
    actions between these. `norms` are pairs of gains and shifts (out,) of layer norm before each activation.
    """

    def __init__(
        self,
        env_id: str,
        layers: list[tuple[Tensor, Tensor]],
        mean: Tensor,
        var: Tensor,
        about: dict[str, Any],
        parts: Parts | Mapping[str, Any] | None = None,
        activation: str = "tanh",
        bounds: tuple[Tensor, Tensor] | None = None,
        norms: Sequence[tuple[Tensor, Tensor]] = (),
    ):
        super().__init__()
        self.env_id, self.about = env_id, about
        self.parts = Parts(parts) if isinstance(parts, Mapping) else parts or Parts((len(mean),))
        if self.parts.size != len(mean):
            raise ValueError(f"the policy reads {self.parts.size} numbers, and `mean` is of {len(mean)}")
        self.task: dict[str, Any] = {}
        self.activation = activation
        self.sizes = len(mean), len(layers[-1][1])  # of an observation, and of an action
        self.network = Network(layers, mean, var, activation, bounds, norms)
        self.requires_grad_(False)

    def forward(self, obs: Any) -> Any:
        """Return the mean actions (..., A) for observations, (..., O) or by name: a tensor for tensors, an array for
        NumPy arrays and lists.

        Raises ValueError for observations of another size, TypeError for what is no numbers.
        """
        rows, size = self.parts.join(obs), self.sizes[0]
        given = rows if isinstance(rows, Tensor) else as_rows("observations", rows, size, self.network.mean.device)
        if not torch.jit.is_tracing() and given.shape[-1:] != (size,):  # type: ignore[attr-defined]
            raise ValueError(f"observations must be of shape (..., {size}), not {tuple(given.shape)}")
        action: Tensor = self.network(given)
        return action if given is rows else action.detach().cpu().numpy()

    def __prepare_scriptable__(self) -> Network:
        """Return what `torch.jit.script` compiles in place of this module: it has no trees of names."""
        return self.network

    def export(self, path: str | os.PathLike[str], action_space: Box | None = None) -> None:
        """Write the policy to a file that runs without this package: .onnx, TorchScript in a .pt or .ts, or .npz.

            policy.export("ant.onnx", env.single_action_space)

        It maps `obs`, rows (batch, O) in float32 of the numbers that the policy reads, to `actions` (batch, A), as
        calling the policy does: normalisation is inside, and actions are not clipped. Its metadata has the id of the
        task, the activation, the names, shapes and slices of the parts of a row, and the bounds of `action_space`, if
        it is given. An .npz holds the arrays of `network` for NumPy.

        Raises ValueError for another kind of file and for a space of another size, FileNotFoundError if there is no
        such folder, FileExistsError if the file is a run's policy or checkpoint, which only this package reads,
        and MissingExtra without the extra `export`, which ONNX needs.
        """
        from . import export

        file = export.check_format(path)
        inputs, actions = self.sizes
        metadata = export.described(self.parts, actions, self.env_id, self.task, action_space)
        metadata["activation"] = self.activation
        if file.suffix in (".pt", ".ts") and _is_of_a_run(file):
            raise FileExistsError(f"{str(file)!r} is a file of a run, which is kept: choose another name")
        if not file.parent.is_dir():
            raise FileNotFoundError(f"there is no folder {str(file.parent)!r}")
        network = copy.deepcopy(self.network).cpu().float().requires_grad_(False)
        if file.suffix == ".onnx":
            export.to_onnx(network, inputs, metadata, file)
        elif file.suffix == ".npz":
            export.to_numpy(network, metadata, file)
        else:
            export.to_torchscript(network, metadata, file)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the policy to a file that `load`, `torch_mjenvs score`, `play` and `export` read.

        It holds what this module does now: a policy may be trained further, or made from layers of your own. The value
        network, which a run's file has beside the policy, is not kept.

        Raises ValueError for numbers that are not finite, layers that the file cannot describe, and entries of `about`
        or `task` that are not plain values, FileNotFoundError if there is no such folder.
        """
        from .files import write_whole  # else a change of it would have all kernels compiled anew

        file = Path(path).expanduser()
        if not file.parent.is_dir():
            raise FileNotFoundError(f"there is no folder {str(file.parent)!r}")
        content = io.BytesIO()
        torch.save(self._entries(), content)
        try:
            found = torch.load(io.BytesIO(content.getvalue()), weights_only=True)
        except pickle.UnpicklingError as error:
            raise ValueError("`about` and `task` may hold plain values only, in lists, tuples and dicts") from error
        mine, kept = ([type(x).__name__ for x in policy.network.layers] for policy in (self, policy_of(found)))
        if mine != kept:
            raise ValueError(f"a file describes layers {kept}, and these are {mine}")
        write_whole(file, content.getbuffer())

    def _entries(self) -> dict[str, Any]:
        network, entries = self.network, {"env": self.env_id, "task": self.task, "about": self.about}
        numbers = {"obs_mean": network.mean, "obs_var": _variance_of(network.scale)}
        numbers |= network_entries(parameters_of(network, nn.Linear), parameters_of(network, nn.LayerNorm))
        if isinstance(network.squash, Squash):
            middle, reach = network.squash.middle, network.squash.reach
            numbers |= {"action_low": middle - reach, "action_high": middle + reach}
        if self.parts.named:
            entries["observation"] = mapped(list, self.parts.shapes)
        entries["activation"] = self.activation
        return entries | {name: x.detach().to("cpu", torch.float32, copy=True) for name, x in numbers.items()}

    def check_spaces(self, env: VectorEnv) -> None:
        """Raise ValueError if the environment's observations or actions do not have this policy's sizes."""
        observations, actions = parts_of(env.single_observation_space).shapes, env.single_action_space.shape
        if not _holds(observations, self.parts.shapes):
            raise ValueError(
                f"the policy's observations are of shape {self.parts.shapes}, the task's of shape {observations}"
            )
        if actions != self.sizes[1:]:
            raise ValueError(f"the policy's actions are of shape {self.sizes[1:]}, the task's of shape {actions}")

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Policy:
        """Load a policy from a file, or from the folder of a run, onto the CPU.

        Raises FileNotFoundError if there is none, ValueError for any other kind of file.
        """
        file = Path(path).expanduser()
        file = file / "policy.pt" if file.is_dir() else file
        if not file.is_file():
            raise FileNotFoundError(f"there is no policy {str(file)!r}")
        return _read(file.read_bytes(), str(file))


class Network(nn.Module):
    """The network of a policy: maps rows (..., O) of the numbers that it reads to mean actions (..., A).

    Rows are normalised by the mean and variance (O,) of those seen in training, clipped to [-10, 10], and go through
    linear layers, pairs of weights (out, in) and biases (out,), with an activation between them. `norms` are pairs of
    gains and shifts (out,) for each layer but the last: then layer norm comes before the activation. With `bounds`, two
    tensors (A,), actions lie between these.
    """

    def __init__(
        self, layers: Sequence[tuple[Tensor, Tensor]], mean: Tensor, var: Tensor, activation: str = "tanh",
        bounds: tuple[Tensor, Tensor] | None = None, norms: Sequence[tuple[Tensor, Tensor]] = (),
    ):  # fmt: skip
        super().__init__()
        found: list[nn.Module] = []
        for (weight, bias), affine in itertools.zip_longest(layers, norms):
            # No random initial weights: a run that is evaluated must draw the same random numbers as one that is not.
            layer = nn.Linear(weight.shape[1], weight.shape[0], device="meta")
            layer.weight, layer.bias = (nn.Parameter(x.detach().clone()) for x in (weight, bias))
            found.append(layer)
            if affine:
                norm = nn.LayerNorm(len(bias), device=weight.device)
                norm.weight.data, norm.bias.data = (x.clone() for x in affine)
                found.append(norm)
            found.append(ACTIVATIONS[activation]())
        self.layers = nn.Sequential(*found[:-1])
        self.squash = nn.Identity() if bounds is None else Squash(*bounds)
        self.mean, self.scale = nn.Buffer(mean.clone()), nn.Buffer((var + 1e-8).rsqrt())

    def forward(self, obs: Tensor) -> Tensor:
        """Return the mean actions (..., A) for rows (..., O)."""
        x: Tensor = self.layers(((obs.to(self.mean.dtype) - self.mean) * self.scale).clamp(-10, 10))
        action: Tensor = self.squash(x)
        return action


class Squash(nn.Module):
    """Numbers (..., A) squashed by tanh, and stretched to actions between two bounds (A,)."""

    def __init__(self, low: Tensor, high: Tensor):
        super().__init__()
        self.middle, self.reach = nn.Buffer((high + low) / 2), nn.Buffer((high - low) / 2)

    def forward(self, x: Tensor) -> Tensor:
        """Return actions (..., A)."""
        return self.middle + self.reach * x.tanh()


def parameters_of(network: nn.Module, kind: type[nn.Linear | nn.LayerNorm]) -> list[tuple[Tensor, Tensor]]:
    """Return the weights and biases of a network's layers of one kind, or the gains and shifts of its norms."""
    return [(x.weight, x.bias) for x in network.modules() if isinstance(x, kind)]


def network_entries(
    layers: Iterable[tuple[Tensor, Tensor]], norms: Iterable[tuple[Tensor, Tensor]] = (), name: str = ""
) -> dict[str, Tensor]:
    """Return the entries of a policy file for one network, as copies.

    layers: pairs of weights (out, in) and biases (out,). norms: pairs of gains and shifts (out,). name: what the names
    of the entries begin with, as "value_".
    """
    kinds = ("weights", "biases", layers), ("gains", "shifts", norms)
    return {
        f"{name}{part}{k}": x.detach().clone().reshape(1, -1, x.shape[-1])
        for *parts, pairs in kinds
        for k, pair in enumerate(pairs)
        for part, x in zip(parts, pair, strict=True)
    }


def _variance_of(scale: Tensor) -> Tensor:
    """Return the variances (O,) from which `Network` makes this scale (O,), to the bit where there are such."""
    scale = scale.detach().cpu().float()
    sums = [scale.double().pow(-2) * (1 + k * 2.0**-24) for k in range(-4, 5)]
    tried = [(x - 1e-8).clamp(min=0).float() for x in sums]
    # One row at a time, as in `Network`: torch's rounding depends on a number's place in a vector.
    errors = torch.stack([((x + 1e-8).rsqrt() - scale).abs() for x in tried])
    return torch.stack(tried).gather(0, errors.argmin(0, keepdim=True))[0]


def _is_of_a_run(file: Path) -> bool:
    """Return whether a file is a run's policy or checkpoint; a policy as TorchScript is not."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's, if the file is TorchScript
            found = torch.load(file, map_location="cpu", weights_only=True)
    except Exception:  # torch and pickle have many ways to say that it is none of theirs
        return False
    return isinstance(found, Mapping) and ("env" in found or "run" in found)


def _holds(given: Any, wanted: Any) -> bool:
    """Return whether a tree of shapes has all the parts of another, of the same shapes."""
    if isinstance(given, Mapping) and isinstance(wanted, Mapping):
        return all(name in given and _holds(given[name], x) for name, x in wanted.items())
    return bool(given == wanted) or (isinstance(wanted, Mapping) and given == (Parts(wanted).size,))


def pretrained(env_id: str) -> Policy:
    """Return the trained policy that comes with this package for a task, on the CPU: `pretrained("TorchAnt-v0")`.

    Policies that were trained with other fields of the task (`Policy.task`) have a suffix:
    `pretrained("TorchGo1Joystick-v0-rough")`.

    `about["scores"]` has the mean returns of `about["episodes"]` episodes, in the task and in Gymnasium's or
    dm_control's own.

    Raises ValueError for a task without a trained policy in the package.
    """
    known = pretrained_ids()
    if env_id not in known:
        raise ValueError(
            f"no trained policy of {env_id!r} comes with this package, but of {', '.join(known) or 'none'}"
        )
    file = resources.files(__package__) / FOLDER / f"{env_id}.pt"
    return _read(file.read_bytes(), str(file))


def pretrained_ids() -> list[str]:
    """Return the names for which `pretrained` has a policy, ids of tasks for the most part, in alphabetical order."""
    folder = resources.files(__package__) / FOLDER
    return sorted(_ids_in(folder, "")) if folder.is_dir() else []


def _ids_in(folder: Traversable, namespace: str) -> Iterator[str]:
    """Yield the ids of the policies in a folder; those of a namespace such as "TorchDMC/" are in a folder within."""
    for file in folder.iterdir():
        if file.is_dir():
            yield from _ids_in(file, f"{namespace}{file.name}/")
        elif file.name.endswith(".pt"):
            yield namespace + file.name.removesuffix(".pt")


def as_fields(task: Any) -> dict[str, Any]:
    """Return the fields of a task that a file names. Raises ValueError unless they are plain values by name."""
    if not isinstance(task, Mapping) or not all(
        isinstance(name, str) and all(isinstance(y, PLAIN) for y in (x if isinstance(x, tuple) else (x,)))
        for name, x in task.items()
    ):
        raise ValueError("its 'task' must be a dict of plain values by name")
    return dict(task)


def _read(content: bytes, name: str) -> Policy:
    try:
        found = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:  # damaged, or another's: torch and pickle have many ways to say so
        raise ValueError(f"{name} holds no policy of `python -m torch_mjenvs train`") from error
    try:
        return policy_of(found)
    except ValueError as error:
        raise ValueError(f"{name} holds no policy of `python -m torch_mjenvs train`: {error}") from error


def policy_of(found: Any) -> Policy:
    """Make the policy that the contents of a file describe. Raises ValueError that says what is wrong with them."""
    if not isinstance(found, Mapping):
        raise ValueError(f"it is a {type(found).__name__}, not a dict")
    missing = [name for name in ("env", "weights0", "biases0", "obs_mean", "obs_var") if name not in found]
    if missing:
        raise ValueError(f"it has no {missing[0]!r}")
    env_id, about = found["env"], found.get("about", {})
    if not isinstance(env_id, str) or not isinstance(about, Mapping):
        raise ValueError("its 'env' must be a string, and its 'about' a dict")
    mean, var = (_numbers(found, name, 1) for name in ("obs_mean", "obs_var"))
    layers: list[tuple[Tensor, Tensor]] = []
    for k in itertools.takewhile(lambda k: f"weights{k}" in found, itertools.count()):
        width = layers[-1][0].shape[0] if layers else len(mean)
        weight, bias = _numbers(found, f"weights{k}", 3), _numbers(found, f"biases{k}", 3)
        networks, out, _ = weight.shape
        for part, x, shape in (("weights", weight, (networks, out, width)), ("biases", bias, (networks, 1, out))):
            if not networks or x.shape != shape:
                raise ValueError(f"its '{part}{k}' is of shape {tuple(x.shape)}, and must be of {tuple(shape)}")
        layers.append((weight[0], bias[0, 0]))
    norms: list[tuple[Tensor, Tensor]] = []
    if "gains0" in found:
        for k, (_, bias) in enumerate(layers[:-1]):
            gain, shift = (_numbers(found, f"{part}{k}", 3) for part in ("gains", "shifts"))
            for part, x in (("gains", gain), ("shifts", shift)):
                if not len(x) or x.shape[1:] != (1, len(bias)):
                    raise ValueError(f"its '{part}{k}' is of shape {tuple(x.shape)}, not of (1, 1, {len(bias)})")
            norms.append((gain[0, 0], shift[0, 0]))
    if var.shape != mean.shape or (var < 0).any():
        raise ValueError("its 'obs_var' must be as long as 'obs_mean', and not negative")
    activation = found.get("activation", "tanh")
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        raise ValueError(f"its 'activation' is {activation!r}, not one of {', '.join(ACTIVATIONS)}")
    read, columns = _read_parts(found, len(mean))
    if columns is not None:
        layers[0] = (layers[0][0][:, columns], layers[0][1])
        mean, var = mean[columns], var[columns]
    bounds = _read_bounds(found, len(layers[-1][1]))
    policy = Policy(env_id, layers, mean, var, dict(about), read, activation, bounds, norms)
    policy.task = as_fields(found.get("task", {}))
    return policy


def _read_parts(found: Mapping[str, Any], size: int) -> tuple[Parts | None, list[int] | None]:
    """Return the parts of an observation that the policy reads, and their columns among all; None for all of them."""
    if "observation" not in found:
        return None, None
    whole = Parts(_shapes(found["observation"]))
    if not whole.named or whole.size != size:
        raise ValueError(f"its 'observation' must be a dict of shapes, {size} numbers in all")
    if "obs_groups" not in found:
        return whole, None
    given = found["obs_groups"]
    if not isinstance(given, Mapping) or not all(isinstance(x, list) for x in given.values()):
        raise ValueError("its 'obs_groups' must be a dict of lists of groups")
    groups = chosen_groups([*whole.shapes], given)["policy"]
    return Parts({name: whole.shapes[name] for name in groups}), whole.columns(groups)


def _read_bounds(found: Mapping[str, Any], actions: int) -> tuple[Tensor, Tensor] | None:
    """Return the bounds that actions are squashed into; None if they are not."""
    if "action_low" not in found and "action_high" not in found:
        return None
    low, high = (_numbers(found, name, 1) for name in ("action_low", "action_high"))
    if low.shape != (actions,) or high.shape != (actions,) or (low > high).any():
        raise ValueError(f"its 'action_low' and 'action_high' must be {actions} numbers each, low ones first")
    return low, high


def _shapes(x: Any) -> Any:
    """Return the shapes in a file, which are lists, as tuples."""
    if isinstance(x, Mapping) and x and all(isinstance(name, str) for name in x):
        return {name: _shapes(inside) for name, inside in x.items()}
    if not isinstance(x, list) or not all(type(n) is int and n > 0 for n in x):
        raise ValueError("its 'observation' must have shapes, lists of whole numbers above 0, by name")
    return tuple(x)


def _numbers(found: Mapping[str, Any], name: str, ndim: int) -> Tensor:
    x = found.get(name)
    if not isinstance(x, Tensor) or x.layout != torch.strided or x.dtype != torch.float32 or x.ndim != ndim:
        raise ValueError(f"its {name!r} must be a float32 tensor of {ndim} dimensions")
    if not x.isfinite().all():
        raise ValueError(f"its {name!r} has numbers that are not finite: the training that made it diverged")
    return x

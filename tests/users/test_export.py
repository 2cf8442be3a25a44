"""Policies that are written for a robot's computer act there as they do here."""

from __future__ import annotations

import json
import sys
import threading
import warnings

import numpy as np
import pytest
import torch
from documented import examples
from gymnasium.spaces import Box

from torch_mjenvs import Policy, pretrained
from torch_mjenvs.__main__ import main
from torch_mjenvs.checks import MissingExtra
from torch_mjenvs.envs.parts import mapped
from torch_mjenvs.files import write_whole
from torch_mjenvs.policy import _variance_of

pytestmark = [pytest.mark.usefixtures("no_default_device"), pytest.mark.cpu]

SHAPES = {"policy": {"angle": [], "speeds": [2, 2]}, "privileged": {"truth": [3]}, "command": [2]}


@pytest.fixture
def grouped(tmp_path):
    """A policy of a task with groups, of which it reads two."""
    generator = torch.Generator().manual_seed(0)
    sizes, file = [(10, 8), (8, 8), (8, 3)], {"env": "mine:TorchMine-v0", "task": {"height": (0.5, float("inf"))}}
    for k, (width, out) in enumerate(sizes):
        file[f"weights{k}"] = torch.randn(2, out, width, generator=generator) / 2
        file[f"biases{k}"] = torch.randn(2, 1, out, generator=generator)
    file |= {"obs_mean": torch.randn(10, generator=generator), "obs_var": torch.rand(10, generator=generator) * 4}
    groups = {"policy": ["command", "policy"], "critic": ["privileged"]}
    torch.save(file | {"observation": SHAPES, "obs_groups": groups}, tmp_path / "policy.pt")
    return Policy.load(tmp_path)


@pytest.fixture
def normed(grouped, tmp_path):
    """The same with layer norm."""
    generator = torch.Generator().manual_seed(2)
    file = torch.load(tmp_path / "policy.pt", weights_only=True) | {"activation": "elu"}
    for k in range(2):
        file[f"gains{k}"] = 1 + 0.3 * torch.randn(2, 1, 8, generator=generator)
        file[f"shifts{k}"] = 0.3 * torch.randn(2, 1, 8, generator=generator)
    torch.save(file, tmp_path / "policy.pt")
    return Policy.load(tmp_path)


@pytest.fixture
def squashed(grouped, tmp_path):
    """The same as SAC makes it: actions are squashed into their bounds."""
    bounds = {"action_low": torch.tensor([-1.0, -2.0, 0.0]), "action_high": torch.tensor([1.0, 2.0, 4.0])}
    file = torch.load(tmp_path / "policy.pt", weights_only=True) | bounds
    torch.save(file, tmp_path / "policy.pt")
    return Policy.load(tmp_path)


def rows(n: int, size: int) -> torch.Tensor:
    obs = torch.randn(n, size, generator=torch.Generator().manual_seed(1)) * 3
    obs[0] = 1000.0  # beyond what was seen: clipped before the first layer
    return obs


@pytest.mark.parametrize("which", ["TorchAnt-v0", "grouped", "normed"])
def test_onnx_acts_as_the_policy(which, request, tmp_path):
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    policy = pretrained(which) if which.startswith("Torch") else request.getfixturevalue(which)
    inputs, actions = policy.sizes
    policy.export(tmp_path / "x.onnx")
    session = runtime.InferenceSession(str(tmp_path / "x.onnx"), providers=["CPUExecutionProvider"])
    assert [x.name for x in (*session.get_inputs(), *session.get_outputs())] == ["obs", "actions"]
    for n in (1, 2, 50):  # of any batch
        obs = rows(n, inputs)
        (found,) = session.run(["actions"], {"obs": obs.numpy()})
        assert found.shape == (n, actions) and found.dtype == np.float32
        np.testing.assert_allclose(found, policy(obs).numpy(), rtol=1e-6, atol=1e-6)
    about = session.get_modelmeta().custom_metadata_map
    assert about["env"] == policy.env_id and json.loads(about["actions"]) == actions


@pytest.mark.parametrize("suffix", ["pt", "ts"])
def test_torchscript_acts_as_the_policy(suffix, grouped, normed, tmp_path):
    (tmp_path / "exported").mkdir()
    tmp_path /= "exported"
    for name, policy in {"a": grouped, "b": pretrained("TorchHopper-v0"), "c": normed}.items():
        policy.export(tmp_path / f"{name}.{suffix}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            found = torch.jit.load(tmp_path / f"{name}.{suffix}")
        obs = rows(9, policy.sizes[0])
        assert torch.equal(found(obs), policy(obs))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("default", [torch.float64, "meta"])
def test_onnx_takes_float32_whatever_torchs_defaults_are(default, grouped, tmp_path):
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    torch.set_default_dtype(default if isinstance(default, torch.dtype) else torch.float32)
    try:
        with torch.device(default if isinstance(default, str) else "cpu"):
            grouped.export(tmp_path / "x.onnx")
    finally:
        torch.set_default_dtype(torch.float32)
    session = runtime.InferenceSession(str(tmp_path / "x.onnx"), providers=["CPUExecutionProvider"])
    obs = rows(3, grouped.sizes[0])
    (found,) = session.run(["actions"], {"obs": obs.numpy()})
    np.testing.assert_allclose(found, grouped(obs).numpy(), rtol=1e-6, atol=1e-6)


def test_torch_scripts_and_traces_a_policy(grouped):
    obs = rows(9, 7)
    expected = grouped(obs)
    assert torch.equal(torch.jit.script(grouped)(obs), expected)
    assert torch.equal(torch.jit.trace(grouped.network, obs)(obs), expected)
    hopper = pretrained("TorchHopper-v0")
    assert torch.equal(torch.jit.trace(hopper, rows(3, 11))(rows(9, 11)), hopper(rows(9, 11)))


def test_a_file_says_what_the_policy_reads(grouped, tmp_path):
    space = Box(np.float32([-1, -2, -np.inf]), np.float32([1, 2, 0.5]))
    grouped.export(tmp_path / "x.npz", space)
    assert json.loads(str(np.load(tmp_path / "x.npz")["metadata"])) == {
        "env": "mine:TorchMine-v0",
        "task": {"height": [0.5, "inf"]},
        "observation": [
            {"name": "command", "shape": [2], "slice": [0, 2]},
            {"name": "policy/angle", "shape": [], "slice": [2, 3]},
            {"name": "policy/speeds", "shape": [2, 2], "slice": [3, 7]},
        ],
        "actions": 3,
        "activation": "tanh",
        "action_low": [-1, -2, None],
        "action_high": [1, 2, 0.5],
    }
    with pytest.raises(ValueError, match=r"actions are of shape \(3,\), the action_space's of shape \(2,\)"):
        grouped.export(tmp_path / "y.npz", Box(-1, 1, (2,)))
    assert not (tmp_path / "y.npz").exists()


def test_the_slices_are_those_of_the_observation_by_name(grouped, tmp_path):
    obs = {"policy": {"angle": torch.tensor([0.3]), "speeds": torch.randn(1, 2, 2)}, "command": torch.randn(1, 2)}
    grouped.export(tmp_path / "x.npz")
    row = torch.zeros(1, 7)
    for part in json.loads(str(np.load(tmp_path / "x.npz")["metadata"]))["observation"]:
        value = obs
        for name in part["name"].split("/"):
            value = value[name]
        row[:, slice(*part["slice"])] = value.reshape(1, -1)
    assert torch.equal(grouped(row), grouped(obs))


def test_the_loader_of_the_documentation_acts_as_the_policy(grouped, normed, tmp_path):
    assert not torch.allclose(normed(rows(9, 7)), grouped(rows(9, 7)), atol=1e-2)
    (code,) = examples("docs/export.md")
    assert len(code.partition("def load")[2].strip().splitlines()) <= 12
    space: dict = {}
    exec(code, space)
    for policy in (grouped, normed, pretrained("TorchAnt-v0")):
        policy.export(tmp_path / "x.npz")
        obs = rows(9, policy.sizes[0])
        found = space["load"](tmp_path / "x.npz")(obs.numpy())
        np.testing.assert_allclose(found, policy(obs).numpy(), rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("name", ["relu", "elu", "silu"])
def test_other_activations_are_exported_with_their_name(grouped, tmp_path, name):
    file = torch.load(tmp_path / "policy.pt", weights_only=True) | {"activation": name}
    torch.save(file, tmp_path / "policy.pt")
    policy, space = Policy.load(tmp_path), {}
    exec(examples("docs/export.md")[0], space)
    obs = rows(9, policy.sizes[0])
    policy.export(tmp_path / "x.npz")
    policy.export(tmp_path / "x.ts")
    np.testing.assert_allclose(space["load"](tmp_path / "x.npz")(obs.numpy()), policy(obs), rtol=1e-5, atol=2e-6)
    torch.testing.assert_close(torch.jit.load(str(tmp_path / "x.ts"))(obs), policy(obs))
    assert not torch.allclose(policy(obs), grouped(obs), atol=1e-2)


def test_no_policy_of_a_run_is_written_over(grouped, tmp_path):
    before = (tmp_path / "policy.pt").read_bytes()
    with pytest.raises(FileExistsError, match="is a file of a run"):
        grouped.export(tmp_path / "policy.pt")
    assert (tmp_path / "policy.pt").read_bytes() == before
    torch.save({"run": {}, "agent": {}}, tmp_path / "checkpoint.pt")
    with pytest.raises(FileExistsError, match="is a file of a run"):
        grouped.export(tmp_path / "checkpoint.pt")
    grouped.export(tmp_path / "other.pt")
    grouped.export(tmp_path / "other.pt")  # an exported one may be


def test_files_that_differ_in_their_ends_are_written_side_by_side(tmp_path, monkeypatch):
    """As by an export into the folder of a run that goes on: another file's content never gets under a name."""
    policy, exported = tmp_path / "policy.pt", tmp_path / "policy.npz"

    def meanwhile(descriptor: int) -> None:
        monkeypatch.undo()
        write_whole(exported, b"exported")

    monkeypatch.setattr("torch_mjenvs.files.os.fsync", meanwhile)
    write_whole(policy, b"policy")
    assert (policy.read_bytes(), exported.read_bytes()) == (b"policy", b"exported")


def test_two_exports_to_one_path_at_the_same_time_leave_one_of_them_whole(grouped, tmp_path, monkeypatch):
    """The other one ends while this one is on its way to the disk."""
    file, alone = tmp_path / "x.npz", tmp_path / "alone.npz"
    grouped.export(alone)
    others: list[threading.Thread] = []

    def meanwhile(descriptor: int) -> None:
        monkeypatch.undo()
        others.append(threading.Thread(target=grouped.export, args=(file,)))
        others[0].start()
        others[0].join()

    monkeypatch.setattr("torch_mjenvs.files.os.fsync", meanwhile)
    grouped.export(file)
    assert len(others) == 1 and file.stat().st_size == alone.stat().st_size
    assert not [x for x in tmp_path.iterdir() if "draft" in x.name]


@pytest.mark.parametrize("suffix", [".npz", ".ts", ".onnx"])
def test_a_file_that_cannot_be_written_keeps_what_it_held(suffix, grouped, tmp_path, monkeypatch):
    if suffix == ".onnx":
        pytest.importorskip("onnxscript")
    file = tmp_path / f"x{suffix}"
    file.write_bytes(b"before")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("torch_mjenvs.files.os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        grouped.export(file)
    assert file.read_bytes() == b"before" and [x.name for x in tmp_path.iterdir() if "draft" in x.name] == []


def test_other_files_are_refused(grouped, tmp_path):
    with pytest.raises(ValueError, match=r"must end in .onnx \(ONNX\), .pt or .ts"):
        grouped.export(tmp_path / "x.tflite")
    for name in ("x.onnx", "x.ts", "x.npz"):
        with pytest.raises(FileNotFoundError, match=r"there is no folder .*missing"):
            grouped.export(tmp_path / "missing" / name)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_a_file_is_of_float32_whatever_the_policy_is_now(dtype, grouped, tmp_path):
    grouped.to(dtype).requires_grad_().export(tmp_path / "x.npz")
    grouped.export(tmp_path / "x.ts")
    assert {x.dtype for name, x in np.load(tmp_path / "x.npz").items() if name != "metadata"} == {np.dtype("float32")}
    obs = rows(3, grouped.sizes[0])
    torch.testing.assert_close(torch.jit.load(tmp_path / "x.ts")(obs), grouped.float()(obs).detach())


@pytest.mark.parametrize("missing", ["onnx", "onnxscript"])
def test_without_onnx_the_extra_is_named(missing, grouped, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ImportError, match=r"needs onnx and onnxscript: pip install '.\[export\]'"):
        grouped.export(tmp_path / "x.onnx")
    assert not (tmp_path / "x.onnx").exists()


def test_an_onnxscript_too_old_for_torch_is_named_too(grouped, tmp_path, monkeypatch):
    pytest.importorskip("onnxscript")

    def old(*args: object, **options: object) -> None:
        raise ModuleNotFoundError("", name="onnxscript._framework_apis.torch_2_99")

    monkeypatch.setattr(torch.onnx, "export", old)
    with pytest.raises(MissingExtra, match=r"needs onnx and onnxscript: pip install '.\[export\]'"):
        grouped.export(tmp_path / "x.onnx")


def test_the_command_tells_the_bounds_and_the_fields(tmp_path, capsys):
    file = tmp_path / "hopper.npz"
    main(["export", "TorchHopper-v0", str(file), "--reset-noise-scale", "0.5"])
    assert capsys.readouterr().out == f"{file}\n"
    about = json.loads(str(np.load(file)["metadata"]))
    assert about["env"] == "TorchHopper-v0" and about["task"] == {"reset_noise_scale": 0.5}
    assert about["action_low"] == [-1] * 3 and about["action_high"] == [1] * 3
    with pytest.raises(SystemExit):
        main(["export", "TorchHopper-v0", str(tmp_path / "hopper.txt")])
    assert "must end in .onnx" in capsys.readouterr().err
    with pytest.raises(SystemExit, match=r"there is no folder .*nowhere"):
        main(["export", "TorchHopper-v0", str(tmp_path / "nowhere" / "hopper.npz")])


@pytest.mark.parametrize("which", ["TorchHumanoid-v0", "TorchGo1Joystick-v0-rough", "grouped", "normed", "squashed"])
def test_a_saved_policy_is_the_same(which, request, tmp_path):
    """To the bit; it names what the policy reads, and no more."""
    policy = pretrained(which) if which.startswith("Torch") else request.getfixturevalue(which)
    policy.save(tmp_path / "again.pt")
    again = Policy.load(tmp_path / "again.pt")
    mine, theirs = policy.state_dict(), again.state_dict()
    assert mine.keys() == theirs.keys() and all(torch.equal(mine[k], theirs[k]) for k in mine)
    obs = rows(9, policy.sizes[0])
    assert torch.equal(policy(obs), again(obs)) and again.parts.shapes == policy.parts.shapes
    assert (again.env_id, again.task, again.about) == (policy.env_id, policy.task, policy.about)


def test_every_variance_is_found_again():
    variance = 10.0 ** torch.linspace(-14, 6, 9999)
    scale = (variance + 1e-8).rsqrt()
    assert torch.equal((_variance_of(scale) + 1e-8).rsqrt(), scale)


def cloned(teacher: Policy, obs: torch.Tensor, steps: int) -> Policy:
    """A policy with layers of one's own that imitates another."""
    torch.manual_seed(0)
    layers = [torch.nn.Linear(i, o) for i, o in ((11, 32), (32, 3))]
    parts = [(x.weight, x.bias) for x in layers]
    student = Policy(teacher.env_id, parts, obs.mean(0), obs.var(0), {"how": "cloned"}).requires_grad_()
    adam = torch.optim.Adam(student.parameters(), 3e-3)
    for _ in range(steps):
        loss = (student(obs) - teacher(obs)).square().mean()
        adam.zero_grad()
        loss.backward()
        adam.step()
    return student


def test_a_policy_of_ones_own_is_saved_and_scored(tmp_path, capsys):
    teacher = pretrained("TorchHopper-v0")
    obs = torch.randn(256, 11, generator=torch.Generator().manual_seed(0)) + teacher.network.mean
    student = cloned(teacher, obs, 30)
    student.save(tmp_path / "student.pt")
    assert torch.equal(Policy.load(tmp_path / "student.pt")(obs), student(obs))
    main(["score", str(tmp_path / "student.pt"), "--episodes", "2"])
    assert "score in TorchHopper-v0" in capsys.readouterr().out


def test_a_policy_of_ones_own_reads_names(tmp_path):
    layer = torch.nn.Linear(3, 2)
    given = "mine:TorchMine-v0", [(layer.weight, layer.bias)], torch.zeros(3), torch.ones(3), {}
    policy = Policy(*given, {"angle": (), "speeds": (2,)})
    policy.save(tmp_path / "policy.pt")
    again, obs = Policy.load(tmp_path), {"other": torch.ones(5), "speeds": torch.rand(5, 2), "angle": torch.rand(5)}
    assert torch.equal(again(obs), policy(torch.cat([obs["angle"][:, None], obs["speeds"]], 1)))
    with pytest.raises(ValueError, match="the policy reads 2 numbers, and `mean` is of 3"):
        Policy(*given, {"speeds": (2,)})


def test_a_policy_gives_arrays_for_arrays(grouped):
    """As in Gymnasium's own environments, whose observations are float64 arrays."""
    policy = pretrained("TorchHopper-v0")
    obs = rows(5, 11)
    for given in (obs.numpy(), obs.numpy().astype(np.float64), obs.tolist(), obs.flip(0).numpy()[::-1]):
        found = policy(given)
        assert isinstance(found, np.ndarray) and found.dtype == np.float32
        assert (found == policy(obs).numpy()).all()
    assert (policy(obs[0].numpy()) == policy(obs[0]).numpy()).all()
    trained = policy.requires_grad_()
    assert isinstance(trained(obs.numpy()), np.ndarray) and trained(obs).requires_grad
    tensors = grouped.parts.split(rows(5, 7))
    found = grouped(mapped(lambda x: x.double().numpy(), tensors))
    assert isinstance(found, np.ndarray) and (found == grouped(tensors).numpy()).all()


@pytest.mark.parametrize("wrong", [torch.zeros(5, 1), torch.zeros(11, 5), torch.tensor(0.0), np.zeros((5, 1)), None, 3])
def test_a_policy_refuses_observations_of_another_size(wrong):
    """A column was spread over all numbers of a row."""
    with pytest.raises((TypeError, ValueError), match="observations must be of shape"):
        pretrained("TorchHopper-v0")(wrong)
    with pytest.raises(TypeError, match="observations must be a tensor, an array or nested lists of numbers"):
        pretrained("TorchHopper-v0")((np.zeros(11), {"info": 1}))  # what reset() returns


def test_what_cannot_be_saved(tmp_path):
    policy, file = pretrained("TorchHopper-v0"), tmp_path / "student.pt"
    policy.save(file)
    before = file.read_bytes()
    with pytest.raises(FileNotFoundError, match="no folder"):
        policy.save(tmp_path / "nowhere" / "student.pt")
    policy.about = {"mean": np.float64(1)}
    with pytest.raises(ValueError, match="`about` and `task` may hold plain values only"):
        policy.save(file)
    policy.about = {}
    policy.network.layers[1] = torch.nn.GELU()
    with pytest.raises(ValueError, match="a file describes layers"):
        policy.save(file)
    policy.network.layers[1] = torch.nn.Tanh()
    policy.network.layers[0].bias[0] = torch.nan
    with pytest.raises(ValueError, match="'biases0' has numbers that are not finite"):
        policy.save(file)
    assert file.read_bytes() == before

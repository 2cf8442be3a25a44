"""Whole runs and examples on a GPU that is pretended: no tensors of two devices meet, and no graph waits."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("matplotlib")
pytest.importorskip("tqdm")

from pretended_gpu import THERE, pretended_gpu

from torch_mjenvs import TorchVectorEnv
from torch_mjenvs.training import train

pytestmark = [pytest.mark.cpu, pytest.mark.filterwarnings("ignore::UserWarning")]
NOTEBOOKS = Path(__file__).parents[2] / "examples" / "notebooks"
SMALL = ["--env", "TorchHopper-v0", "--num-envs", "32", "--horizon", "16", "--minibatch", "512", "--episodes", "2"]
SMALL += ["--evaluations", "2"]


def test_devices_are_told_apart():
    with pretended_gpu():
        x, y = torch.arange(3.0, device="cuda"), torch.arange(3.0)
        assert x.device == THERE and x.is_cuda and (x + torch.tensor(1.0)).tolist() == [1, 2, 3]
        assert x.cpu().equal(y) and x[torch.tensor([2])].tolist() == [2]
        for mixed in (lambda: x + y, lambda: y * x.sum(), lambda: y[x.long()], lambda: torch.cat([x, y])):
            with pytest.raises(RuntimeError, match="same device"):
                mixed()
        with pytest.raises(TypeError, match="to numpy"):
            np.asarray(x)
        with pytest.raises(RuntimeError, match="another device"):
            torch.rand(3, generator=torch.Generator(), device="cuda")
        torch.manual_seed(0)
        drawn = torch.rand(3, device="cuda")
        torch.rand(3)
        torch.cuda.manual_seed(0)
        assert torch.rand(3, device="cuda").equal(drawn)
        env = TorchVectorEnv("Hopper", 4, autoreset_mode="SameStep")
        env.reset(seed=0)
        assert env.capture(lambda obs: obs[:, :3].tanh(), 2)()["obs"].device == THERE
        with pytest.raises(RuntimeError, match="capturing"):
            env.capture(lambda obs: obs[:, :3] * obs.max().item(), 2)
    assert not torch.cuda.is_available()


def test_a_run_goes_on_on_another_device(tmp_path):
    flags = [*SMALL, "--actor", "16", "--critic", "16", "--learner", "torch", "--target-kl", "0.01"]
    with pretended_gpu() as seen:
        for frames, device in ((3072, "cuda"), (4096, "cpu"), (6144, "cuda")):
            resume = ["--resume"] if frames > 3072 else []
            out = ["--device", device, "--out", str(tmp_path), "--total-steps", str(frames)]
            train.main([*flags, *out, *resume])
        assert seen.count("replay") > 10
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["frames"] == 6144 and set(result["scores"]) == {"TorchHopper-v0", "Hopper-v5"}


@pytest.fixture
def graphs_of_tensordict(monkeypatch) -> None:
    """Its graphs change torch's trees for the whole process: not here."""
    cudagraphs = pytest.importorskip("tensordict.nn.cudagraphs")
    for name in ("PYTREE_REGISTERED_TDS", "PYTREE_REGISTERED_LAZY_TDS"):
        monkeypatch.setattr(cudagraphs, name, ())


@pytest.mark.usefixtures("graphs_of_tensordict")
def test_a_torchrl_run_of_the_cpu_goes_on_there(tmp_path):
    """Its optimiser is then in a graph; and it is evaluated by a copy of its policy on the CPU."""
    pytest.importorskip("torchrl")
    import ppo_torchrl

    with pretended_gpu() as seen:
        for frames, more in ((1024, ["--device", "cpu"]), (6144, ["--device", "cuda", "--resume"])):
            ppo_torchrl.main([*SMALL, "--out", str(tmp_path), "--total-steps", str(frames), *more])
        assert seen.count("replay") > 10
    assert len(json.loads((tmp_path / "result.json").read_text())["evaluations"]) > 1


@pytest.mark.parametrize("name", ["train_and_watch", "quickstart"])
def test_a_notebook(name, monkeypatch):
    for needed in ("torchrl", "IPython"):
        pytest.importorskip(needed)
    monkeypatch.setenv("MPLBACKEND", "agg")
    from matplotlib import pyplot

    monkeypatch.setattr(pyplot, "show", lambda: None)
    small = {"num_envs": 32, "horizon": 8, "iterations": 2, "steps": 20, "pictures": False}
    cells = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text())["cells"]
    first, *code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    space: dict = {}
    exec(first, space)
    space |= {key: x for key, x in small.items() if key in space}
    with pretended_gpu():
        for cell in code:
            exec(cell, space)

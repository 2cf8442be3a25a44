"""Counts what torch launches, and records it, as CUDA graphs do."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from torch_mjenvs.compiler import launch
from torch_mjenvs.compiler.matrices import on_gpu


class Launches(TorchDispatchMode):
    """Operations of torch that on a GPU launch something: all but those that make views or take memory."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        if not func.is_view and not name.startswith("empty"):
            self.names.append(name)
        return func(*args, **(kwargs or {}))


class NoWaiting(TorchDispatchMode):
    """Fails where an operation makes the host wait for a device: to read a number, or to learn a shape."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        assert name not in {"_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero"}, name
        if name.startswith("index"):
            indices = [x for x in args[1] if isinstance(x, torch.Tensor)] if isinstance(args[1], (list, tuple)) else []
            assert all(x.dtype != torch.bool for x in indices), f"{name} by a mask"
        return func(*args, **(kwargs or {}))


class RecordedGraph(Launches):
    """A stand-in for torch.cuda.CUDAGraph: torch's operations and kernels' launches within it are kept, with their
    tensors, and `replay` does them again at the same addresses.
    """

    def __init__(self, replayed: Callable[[], None]):
        super().__init__()
        self._nodes: list[tuple[Callable, tuple, dict, Any]] = []
        self._replayed = replayed
        self.launches = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = super().__torch_dispatch__(func, types, args, kwargs)
        self._nodes.append((func, args, kwargs or {}, out))
        return out

    def launched(self, run: Callable[..., None], *args: Any) -> None:
        self._nodes.append((run, args, {}, None))
        self.launches += 1

    def replay(self) -> None:
        self._replayed()
        with torch.inference_mode():  # in which all tensors may be written into
            self._replay()

    def _replay(self) -> None:
        for func, args, kwargs, out in self._nodes:
            for before, now in zip(tree_leaves(out), tree_leaves(func(*args, **kwargs)), strict=True):
                # A new tensor: no view, and not written in place.
                if isinstance(now, torch.Tensor) and now.data_ptr() != before.data_ptr():
                    before.copy_(now)


def record_graphs(monkeypatch: pytest.MonkeyPatch) -> list:
    """Have torch.cuda capture into RecordedGraphs, without a GPU. What is captured runs, too. Return what is seen: for
    each capture (its stream's GPU, the current GPU), and "replay" for each replay.
    """
    seen: list = []
    recording: list[RecordedGraph] = []
    current = [torch.device("cuda:0")]

    @contextlib.contextmanager
    def graph(graph: RecordedGraph, stream: Any = None) -> Iterator[None]:
        seen.append((stream.device, current[-1]))
        recording.append(graph)
        with graph:
            yield
        recording.pop()

    @contextlib.contextmanager
    def device(chosen: Any) -> Iterator[None]:
        current.append(torch.device(chosen))
        yield
        current.pop()

    def stream_on(device: Any = None) -> SimpleNamespace:
        return SimpleNamespace(device=device or current[-1], wait_stream=lambda other: None, cuda_stream=1234)

    patches = {
        "Stream": stream_on, "current_stream": stream_on, "stream": lambda stream: contextlib.nullcontext(),
        "CUDAGraph": lambda: RecordedGraph(lambda: seen.append("replay")), "graph": graph, "device": device,
    }  # fmt: skip
    for name, stand_in in patches.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)

    def recorded(run: Callable[..., None]) -> Callable[..., None]:
        def launched(self: launch.Launch | on_gpu.GpuPlanLaunch, times: int = 1) -> None:
            run(self, times)
            if recording:
                recording[-1].launched(run, self, times)

        return launched

    for kind in (launch.Launch, on_gpu.GpuPlanLaunch):
        monkeypatch.setattr(kind, "__call__", recorded(kind.__call__))
    return seen

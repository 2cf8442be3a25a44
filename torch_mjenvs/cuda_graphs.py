"""CUDA graphs, as torch captures them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from .compiler.program import collector_paused


@contextlib.contextmanager
def capturing(graph: torch.cuda.CUDAGraph, stream: torch.cuda.Stream) -> Iterator[None]:
    """Capture what the block launches, with Python's cycle collector off: if it freed an older graph that nobody uses
    any more, the capture would fail.
    """
    with collector_paused(), torch.cuda.graph(graph, stream=stream):
        yield

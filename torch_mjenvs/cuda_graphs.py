"""CUDA graphs, as torch captures them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from .compiler.program import collector_paused


@contextlib.contextmanager
def capturing(graph: torch.cuda.CUDAGraph, stream: torch.cuda.Stream) -> Iterator[None]:
    """Capture what the block launches. Python's cycle collector is off meanwhile: if it found an older graph that
    nobody uses any more, freeing that would make the capture fail.
    """
    with collector_paused(), torch.cuda.graph(graph, stream=stream):
        yield

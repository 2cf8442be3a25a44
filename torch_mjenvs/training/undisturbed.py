"""What a training run has in common with all else in its process: torch's random numbers and modes."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch

_going_on: dict[int, object] = {}  # runs by the number of their process; forked children inherit their parent's entry


@contextmanager
def undisturbed(device: str) -> Iterator[None]:
    """Run the block as in a process of its own, whatever torch's modes are here; afterwards all is as it was before.

    So a search that draws the settings of its next run from torch does not draw the same ones after every run.

    Raises SystemExit while another run of this process is in such a block, as in another thread: each would draw random
    numbers from the other's seed, and draw some of them twice.
    """
    place = torch.device(device)
    dtype, precision = torch.get_default_dtype(), torch.get_float32_matmul_precision()
    run, here = object(), os.getpid()
    if _going_on.setdefault(here, run) is not run:
        raise SystemExit(
            "another run is training in this process, and both would draw from the same random numbers: wait for its "
            "end, or give each run a process of its own"
        )
    try:
        with (
            torch.random.fork_rng([place] if place.type == "cuda" else []),
            torch.inference_mode(False),
            torch.no_grad(),  # an algorithm that needs gradients asks for them
            torch.autocast(place.type, enabled=False),
            # The mode costs each function of torch some time, so it is left out where nothing would be different.
            nullcontext() if torch.get_default_device().type == "cpu" else torch.device("cpu"),
        ):
            torch.set_default_dtype(torch.float32)
            yield
    finally:
        torch.set_default_dtype(dtype)
        torch.set_float32_matmul_precision(precision)
        _going_on.pop(here)
        gc.collect()  # a learner refers to itself, and may have a replay buffer of gigabytes

"""The choice of the device that kernels run on, and of the back end for it."""

from __future__ import annotations

import torch

from . import cpu, cuda
from .back_end import BackEnd

OLDEST = (7, 5)  # the compute capability that PTX is made for


def choose_device(device: torch.device | str | None) -> torch.device:
    """Return the device with its index, if kernels run on it. None: the current GPU if it can be used, else the CPU.

    Raises ValueError for a device that does not exist or is not supported.
    """
    if device is None:  # torch calls AMD's GPUs cuda, too
        usable = torch.cuda.is_available() and torch.version.cuda and torch.cuda.get_device_capability() >= OLDEST
        device = "cuda" if usable else "cpu"
    try:
        chosen = torch.device(device)
    except RuntimeError as error:
        raise ValueError(f"there is no device {device!r}: use 'cpu' or 'cuda'") from error
    if chosen.type == "cpu":
        return torch.device("cpu")
    if chosen.type == "cuda" and torch.version.hip:
        raise ValueError(f"device {str(chosen)!r}: of GPUs only NVIDIA's are supported; use device='cpu'")
    if chosen.type != "cuda":
        raise ValueError(f"device {str(chosen)!r} is not supported: use 'cpu' or 'cuda'")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not count:
        raise ValueError(f"device {str(chosen)!r}: torch {torch.__version__} sees no GPU; use device='cpu'")
    index = torch.cuda.current_device() if chosen.index is None else chosen.index
    if index >= count:
        raise ValueError(f"device {str(chosen)!r}: there are only {count} GPUs")
    if (found := torch.cuda.get_device_capability(index)) < OLDEST:
        has, takes = (".".join(map(str, x)) for x in (found, OLDEST))
        raise ValueError(f"device {str(chosen)!r} is of compute capability {has}, this takes {takes}: use device='cpu'")
    return torch.device("cuda", index)


def back_end(device: torch.device) -> BackEnd:
    """Return the maker and loader of code for the device."""
    return cpu.back_end() if device.type == "cpu" else cuda.back_end(device)


def hurried(device: torch.device) -> BackEnd:
    """Return the one for kernels that run seldom: for a CPU, it takes less time, and its code more."""
    return cpu.back_end(opt=0) if device.type == "cpu" else back_end(device)

"""Gymnasium's vector wrappers for tensors, and some more, in all three autoreset modes.

`torch_mjenvs.envs.wrappers` has those that normalise, record and rescale; `torch_mjenvs.envs.transforms` those that
change observations, rewards and actions. `TorchToNumpy` hands out arrays to wrappers that know no tensors.
`tile_images` makes one picture of what `render()` gives.
"""

from .envs.to_numpy import TorchToNumpy
from .envs.transforms import (
    ActionDelay,
    ClipAction,
    ClipReward,
    DtypeObservation,
    FlattenObservation,
    FrameStackObservation,
    ObservationNoise,
    TransformObservation,
    TransformReward,
)
from .envs.video import RecordVideo, tile_images
from .envs.wrappers import LogEpisodes, NormalizeObservation, NormalizeReward, RecordEpisodeStatistics, RescaleAction

__all__ = [
    "ActionDelay",
    "ClipAction",
    "ClipReward",
    "DtypeObservation",
    "FlattenObservation",
    "FrameStackObservation",
    "LogEpisodes",
    "NormalizeObservation",
    "NormalizeReward",
    "ObservationNoise",
    "RecordEpisodeStatistics",
    "RecordVideo",
    "RescaleAction",
    "TorchToNumpy",
    "TransformObservation",
    "TransformReward",
    "tile_images",
]

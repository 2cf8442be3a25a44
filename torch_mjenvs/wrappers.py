"""Gymnasium's vector wrappers that keep a state or compute, for tensors: see `torch_mjenvs.envs.wrappers`."""

from .envs.wrappers import NormalizeObservation, NormalizeReward, RecordEpisodeStatistics, RescaleAction

__all__ = ["NormalizeObservation", "NormalizeReward", "RecordEpisodeStatistics", "RescaleAction"]

"""PPO in plain torch, for `torch_mjenvs train`, and what runs of any algorithm share. Needs the extra `train`."""

"""PPO for `torch_mjenvs train`, in torch and compiled, and what all runs share. Needs the extra `train`."""

"""PPO in plain torch: what `python -m torch_mjenvs train` runs. Its source is torch_mjenvs/training/ppo.py."""

from torch_mjenvs.training.train import main

if __name__ == "__main__":
    main()

"""For all tests."""

import torch

# Batches here are small, and tests may run beside each other; those that are about threads ask for them.
torch.set_num_threads(1)

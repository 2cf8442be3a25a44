"""Tasks, the engine that runs them, and the interfaces to Gymnasium and TorchRL."""

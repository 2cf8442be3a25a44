"""Tasks, the engine that runs them, and the adapters to other libraries' interfaces."""

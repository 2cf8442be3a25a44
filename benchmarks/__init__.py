"""Speed, compile time and memory of torch_mjenvs, beside its peers: `make bench`, or `python -m benchmarks --help`."""

"""Speed, compile time and memory of torch_mjenvs, beside its peers. Run `make bench`, or `python benchmarks/run.py`."""

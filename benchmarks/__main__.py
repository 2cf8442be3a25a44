"""`python -m benchmarks` is `python benchmarks/run.py`."""

import sys

from benchmarks.suite import main

sys.exit(main())

"""`python benchmarks/run.py`: see benchmarks/suite.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # as a script, Python looks beside it only

from benchmarks.suite import main

if __name__ == "__main__":
    sys.exit(main())

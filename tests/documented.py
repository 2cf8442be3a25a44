"""The Python examples of a page of docs/."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[1]


def examples(page: str) -> list[str]:
    """Return the blocks of Python on a page, named by its path from the project's folder."""
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.S)


def task_of(page: str) -> ModuleType:
    """Return a module of the only example on a page, run up to where it makes an environment."""
    (code,) = examples(page)
    module = ModuleType(Path(page).stem)
    sys.modules[module.__name__] = module  # dataclasses look their module up
    exec(compile(code.split("env = TorchVectorEnv")[0], module.__name__, "exec"), vars(module))
    return module

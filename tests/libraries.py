"""Libraries that adapters are for: their tests are skipped where one is not installed."""

from __future__ import annotations

from typing import Any

import pytest

from torch_mjenvs import adapters


def adapter(name: str) -> Any:
    """Return the adapter of this name, such as "SB3VecEnv". Skips the test where its library is not installed."""
    library, package = adapters.LIBRARIES[name]
    pytest.importorskip(library, reason=f"{package} is not installed")
    return getattr(adapters, name)

"""What a type checker makes of the scalar vocabulary."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def refused(code: str, tmp_path: Path) -> set[str]:
    """The lines of the code that mypy finds an error in."""
    file = tmp_path / "snippet.py"
    file.write_text(f"from torch_mjenvs.scalar import Mask, Scalar, clip, logical_not, select\n\n\n{code}")
    command = [sys.executable, "-m", "mypy", "--no-error-summary", str(file)]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert answer.returncode < 2, answer.stdout + answer.stderr
    lines = file.read_text().splitlines()
    return {lines[int(number) - 1].strip() for number in re.findall(r"snippet\.py:(\d+): error", answer.stdout)}


@pytest.mark.slow
def test_a_type_checker_refuses_what_is_no_scalar_or_no_mask_and_nothing_else(tmp_path):
    pytest.importorskip("mypy")
    right = """\
def right(x: Scalar, y: Scalar) -> tuple[Mask, Scalar]:
    speed = 0.5 * x - y**2 / (1.0 - x) + -y
    fast: Mask = select(speed > 1, 2 <= x, False)
    return logical_not(fast), select(logical_not(fast), clip(speed, -1, 1), 0.0)


"""
    wrong = [
        'select(1, "a", [2])',
        "select(x, 1.0, 2.0)",
        "select(x > 0.0, [1.0], 2.0)",
        "logical_not(0.5 * x)",
        'clip("a", 0.0, 1.0)',
        "clip(x, None, 1.0)",
    ]
    code = right + "\n    ".join(["def wrong(x: Scalar) -> None:", *wrong, ""])
    assert refused(code, tmp_path) == set(wrong)

"""Random training runs: what befalls them, what they learn, what they leave, what their settings change."""

from __future__ import annotations

import os

import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("tqdm")
pytest.importorskip("resource")

from tried_runs import CHECKS, wrong

from torch_mjenvs.compiler.matrices import can_build

pytestmark = [
    pytest.mark.usefixtures("no_default_device", "quickly_compiled"),
    pytest.mark.cpu,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here"),
    pytest.mark.skipif(not can_build(), reason="this processor has no learner's kernels"),
]


@pytest.mark.parametrize(("check", "seed"), [("learn", 7), ("learn", 15), ("files", 10), ("resume", 21)])
def test_a_run(check, seed):
    assert not (text := wrong(check, seed)), text


@pytest.mark.slow
@pytest.mark.parametrize("start", range(1000, 1100, 10))
@pytest.mark.parametrize("check", CHECKS)
def test_many_runs(check, start):
    failed = [text for seed in range(start, start + (3 if check == "matters" else 10)) if (text := wrong(check, seed))]
    assert not failed, "\n\n".join(failed)

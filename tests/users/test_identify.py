"""examples/identify.py: it finds what the recorded arm has."""

from __future__ import annotations

import identify
import mujoco
import numpy as np
import pytest
from mujoco import sysid


@pytest.mark.cpu
def test_parameters_are_found_to_rounding_and_with_noise_nearly():
    model = mujoco.MjModel.from_xml_string(identify.ARM)
    for noise, bound in ((0.0, 1e-9), (1e-3, 0.05)):
        found, misses, _ = identify.identify(*identify.recorded(256, noise))
        assert misses[0] > 0.05 and misses[-1] < max(2 * noise, 1e-12)  # of noise in both speeds: 1.4 times as large
        for name, factors in identify.SOUGHT.items():
            want = getattr(model, name) * factors
            np.testing.assert_allclose(found[name].numpy(), want, rtol=bound, err_msg=name)


@pytest.mark.cpu
@pytest.mark.skipif(not hasattr(sysid, "optimize"), reason='needs pip install "mujoco[sysid]"')
def test_mujocos_own_way_finds_the_same_parameters():
    data = identify.recorded(200)
    found, *_ = identify.identify(*data)
    ours = np.concatenate([found[name].numpy() for name in identify.SOUGHT])
    theirs, rollouts = identify.by_sysid(*data, stretch=50)
    np.testing.assert_allclose(theirs, ours[ours > 0], rtol=1e-6)
    assert rollouts % 4 == 0

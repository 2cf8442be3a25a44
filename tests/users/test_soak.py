"""Long runs: every number stays finite, and bad worlds, injected in every step, change no bit of the others.

Every run of the tests does a little of it; `make soak` does more, for every task, and prints how much.
"""

from __future__ import annotations

import pytest
import torch

from torch_mjenvs import TASKS, TorchVectorEnv
from torch_mjenvs.envs.engine import Engine

N = 512
BAD = (float("nan"), float("inf"), -float("inf"), 1e11, -1e30)
SPOILED = 0.01  # of the worlds, in every step
QUICK = ("Hopper", "HalfCheetah", "Walker2d", "Reacher")
NAMES = [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in sorted(TASKS)]


def spoil(engine: Engine, generator: torch.Generator) -> torch.Tensor:
    """Write what is no number, or far too large, into some worlds' action or state. (N,) bool: these."""
    bad = torch.rand(N, generator=generator, device="cpu") < SPOILED
    for k, world in enumerate(bad.nonzero()[:, 0].tolist()):
        rows = (engine.action, engine.qpos, engine.qvel)[k % 3]
        column = int(torch.randint(rows.shape[1], (), generator=generator, device="cpu"))
        rows[world, column] = BAD[k % len(BAD)]
    return bad.to(engine.device)


def unlike(one: Engine, other: Engine, but: torch.Tensor) -> list[str]:
    """Which buffers differ in a bit, in any world but these."""
    bits = torch.int32 if one.dtype == torch.float32 else torch.int64
    differing = []
    for name, x in one.state_dict().items():
        y = other._views[name]
        same = x.view(bits) == y.contiguous().view(bits) if x.is_floating_point() else x == y
        if not same.reshape(N, -1).all(1)[~but].all():
            differing.append(name)
    return differing


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("name", NAMES)
def test_bad_worlds_change_no_bit_of_others(name, dtype, request):
    steps = max(1, int(float(request.config.getoption("--soak-steps"))) // (2 * N))
    sound, spoiled = (TorchVectorEnv(name, N, dtype=dtype, autoreset_mode="SameStep") for _ in range(2))
    for env in (sound, spoiled):
        env.reset(seed=5)
    high = torch.from_numpy(sound.single_action_space.high).to(sound.device, dtype)
    generator = torch.Generator().manual_seed(1)
    injected = ended = 0
    for _ in range(steps):
        draw = torch.rand((N, len(high)), generator=generator, dtype=dtype, device="cpu").to(high.device)
        actions = (2 * draw - 1) * high
        spoiled.engine.action.copy_(actions)
        bad = spoil(spoiled.engine, generator)
        given = sound.step(actions), spoiled.step(spoiled.engine.action.clone())
        for obs, reward, *_, info in given:
            numbers = (obs, reward, info["final_obs"], *(x for x in info.values() if isinstance(x, torch.Tensor)))
            assert all(x.isfinite().all() for x in numbers)
        assert not given[0][4]["bad_state"].any() and given[1][4]["bad_state"].equal(bad)
        differing = unlike(sound.engine, spoiled.engine, bad)
        assert not differing, f"{differing} of sound worlds changed"
        for view, x in zip(spoiled.engine._views.values(), sound.engine._views.values(), strict=True):
            view[bad] = x[bad]  # the spoiled ones go on as if nothing had been
        injected += int(bad.sum())
        ended += int((given[0][2] | given[0][3]).sum())
    print(
        f"\n{name} {str(dtype).removeprefix('torch.')}: {2 * N * steps:,} steps of worlds, {ended:,} ends of episodes, "
        f"{injected:,} bad worlds injected: every number finite, no bit changed beside"
    )
    assert injected > 0

"""TorchRL's environments of tasks that name their observations: keys, specs, states, transforms."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("torchrl")

from named import SHAPES, TRUE_WIDTH, TRUTH, WIDTH, Grouped, Named
from torchrl.envs import CatTensors, TransformedEnv, check_env_specs

from torch_mjenvs import TorchRLEnv, TorchVectorEnv

N, STEPS = 4, 15
NAMES = {name: shape or (1,) for name, shape in SHAPES.items()}
GROUPS = {("policy", name): shape for name, shape in NAMES.items()}
GROUPS |= {("privileged", name): shape or (1,) for name, shape in TRUTH.items()}


def make(task: Any, form: str = "dict", **kwargs: Any) -> TorchRLEnv:
    return TorchRLEnv(task, N, dtype=torch.float64, observation=form, **kwargs)


@pytest.mark.parametrize(
    ("task", "form", "keys"),
    [
        (Named, "dict", NAMES),
        (Named, "flat", {"observation": (WIDTH,)}),
        (Grouped, "dict", GROUPS),
        (Grouped, "flat", {"policy": (WIDTH,), "privileged": (TRUE_WIDTH,)}),
    ],
)
@pytest.mark.parametrize("native", [False, True])
def test_names_are_keys_and_hold_what_gymnasiums_interface_gives(task, form, keys, native):
    env = make(task, form, native_autoreset=native)
    check_env_specs(env)
    found = {key: spec.shape[1:] for key, spec in env.observation_spec.items(True, True)}
    assert found == keys and list(found) == list(keys)
    env.set_seed(3)
    moves = 2 * torch.rand(STEPS, N, 1, dtype=torch.float64) - 1
    turn = iter(moves)
    data = env.rollout(STEPS, lambda td: td.set("action", next(turn)), break_when_any_done=False)
    vector = TorchVectorEnv(task, N, dtype=torch.float64, observation="flat", autoreset_mode="SameStep")
    obs, _ = vector.reset(seed=3)
    ends = 0
    for t, move in enumerate(moves):
        rows = torch.cat([data[key][:, t].flatten(1) for key in keys], 1)
        expected = torch.cat(list(obs.values()), 1) if isinstance(obs, dict) else obs
        assert torch.equal(rows, expected)
        obs, _, terminated, truncated, _ = vector.step(move)
        ends += int((terminated | truncated).sum())
    assert ends


def test_a_state_holds_the_histories():
    env = make(Named)
    env.set_seed(1)
    data = env.rollout(6, break_when_any_done=False)
    state = env.get_state()
    move = torch.ones(N, 1, dtype=torch.float64)
    first = env.step(data[:, -1].select().set("action", move))["next", "angle"]
    env.rollout(3)
    env.reset(state.clone(), set_state=True)
    again = env.step(env.reset(state, set_state=True).set("action", move))["next", "angle"]
    assert torch.equal(first[:, :2], again[:, :2]) and (first[:, 0] != first[:, 1]).all()  # its noise is drawn anew


def test_transforms_join_them():
    names = [("policy", "speeds"), ("policy", "angle")]
    env = TransformedEnv(make(Grouped), CatTensors(names, "observation", del_keys=False))
    check_env_specs(env)
    assert env.rollout(3)["observation"].shape == (N, 3, 5)


def test_names_that_are_torchrls_own_are_refused():
    class Rewarding(Named):
        noise, history = {}, {}

        def observe(self, m, world):
            return {"reward": world.qpos[0], "x": world.qpos[1]}

        def reset_info(self, m, world):
            return {"x": world.qpos[0]}

    with pytest.raises(ValueError, match=r"the names \['reward'\], which are TorchRL's own: rename them"):
        make(Rewarding)
    make(Rewarding, "flat")

    class Informing(Rewarding):
        def observe(self, m, world):
            return {"x": world.qpos[1]}

    with pytest.raises(ValueError, match=r"the names \['x'\], which are among info_keys"):
        make(Informing, info_keys="x")

    class Acting(Informing):
        def reset_info(self, m, world):
            return {"action": world.qpos[0]}

    with pytest.raises(ValueError, match=r"info_keys names \['action'\], which are TorchRL's own: rename them"):
        make(Acting, info_keys=("action",))

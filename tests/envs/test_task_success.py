"""Tasks that say when they are done: whether an episode was once, and whether it is at its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch

from torch_mjenvs import Outcome, Task, TorchVectorEnv, wrappers
from torch_mjenvs.scalar import absolute
from torch_mjenvs.training.scores import score

STEPS = 10


@dataclass(frozen=True)
class Pass(Task):
    """A cart is done while it is within 0.3 m of the middle; the action is its force."""

    max_episode_steps = STEPS

    xml_file: str = "inverted_pendulum.xml"
    frame_skip: int = 2
    named: bool = False

    def reset(self, m: Any, rng: Any) -> Any:
        return [rng.uniform(-0.9, 0.9), 0.0], [rng.uniform(-4.0, 4.0), 0.0]

    def observe(self, m: Any, world: Any) -> list[Any]:
        return [*world.qpos, *world.qvel]

    def outcome(self, m: Any, before: Any, action: list[Any], after: Any) -> Outcome:
        out = absolute(after.qpos[0]) > 0.95
        reward = {"place": -absolute(after.qpos[0])} if self.named else 0.0
        return Outcome(
            reward, {"left": out} if self.named else out,
            metrics={"place": after.qpos[0]} if self.named else {}, success=absolute(after.qpos[0]) < 0.3,
        )  # fmt: skip


def steps(env: Any, n: int) -> Any:
    generator = torch.Generator().manual_seed(0)
    for _ in range(n):
        action = 6 * torch.rand(64, 1, generator=generator, device="cpu") - 3
        yield env.step(action.to(env.device, env.unwrapped.engine.dtype))


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("mode", ["SameStep", "NextStep", "Disabled"])
def test_success_is_told_of_each_episode(mode: str, named: bool) -> None:
    env = wrappers.RecordEpisodeStatistics(TorchVectorEnv(Pass(named=named), 64, autoreset_mode=mode))
    env.reset(seed=0)
    once, kinds = torch.zeros(64, dtype=torch.bool, device=env.device), set()
    for obs, _, terminated, truncated, info in steps(env, STEPS if mode == "Disabled" else 3 * STEPS):
        began = env.unwrapped.elapsed_steps == 0
        last, seen = (info["final_info"], info["final_obs"]) if mode == "SameStep" else (info, obs)
        now = seen[:, 0].abs() < 0.3
        if mode == "NextStep":
            now &= ~began  # such a step begins an episode, and does nothing else
            once &= ~began
        once |= now
        assert torch.equal(last["episode_success/once"] == 1, once)
        assert torch.equal(last["episode_success/at_end"] == 1, now)
        ended = terminated | truncated
        told = info["episode"]["success"]
        assert torch.equal(told["once"] == 1, once & ended) and torch.equal(told["at_end"] == 1, now & ended)
        kinds |= set(zip(once[ended].tolist(), now[ended].tolist(), strict=True))
        if mode != "Disabled":
            once &= ~ended
        elif ended.any():
            break
    assert mode == "Disabled" or kinds >= {(True, True), (True, False), (False, False)}


def test_a_bad_step_is_no_success() -> None:
    env = TorchVectorEnv(Pass(), 64, autoreset_mode="SameStep")
    env.reset(seed=0)
    env.set_state(torch.zeros(64, 2, device=env.device), torch.zeros(64, 2, device=env.device))
    *_, info = env.step(torch.full((64, 1), torch.nan, device=env.device))
    assert not info["final_info"]["episode_success/once"].any() and info["bad_state"].all()


def test_scores_have_the_shares() -> None:
    def act(obs: torch.Tensor) -> torch.Tensor:
        return -3.0 * (obs[:, :1] + obs[:, 2:3])

    env = TorchVectorEnv(Pass(), 200, autoreset_mode="SameStep")
    found = score(act, env, 0, str(env.device)).named
    once, at_end = found["episode_success/once"], found["episode_success/at_end"]
    assert 0 < at_end.mean() < once.mean() < 1 and (at_end <= once).all()


def test_anything_but_a_mask_is_refused() -> None:
    @dataclass(frozen=True)
    class Wrong(Pass):
        def outcome(self, m: Any, before: Any, action: list[Any], after: Any) -> Outcome:
            return Outcome(0.0, success=after.qpos[0])

    with pytest.raises(TypeError, match="success must be True, False or a comparison"):
        TorchVectorEnv(Wrong(), 1)

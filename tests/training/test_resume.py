"""A run resumed from a checkpoint, or split over several environments, gives the bits of one uninterrupted run."""

from __future__ import annotations

import io
import itertools

import pytest
import torch

from torch_mjenvs import TASKS, TorchVectorEnv

MODES = ("NextStep", "SameStep", "Disabled")
N = 24


def make(task: str, n: int = N, **kwargs) -> TorchVectorEnv:
    return TorchVectorEnv(task, n, max_episode_steps=15, **kwargs)  # the kernels of test_torch_compile.py


def play(env: TorchVectorEnv, actions: torch.Tensor) -> list[torch.Tensor]:
    """Everything that each step returns, for actions (T, N, nu)."""
    out = []
    for action in actions:
        obs, reward, terminated, truncated, info = env.step(action)
        out += [obs, reward, terminated, truncated, *(x for x in info.values() if isinstance(x, torch.Tensor))]
        if env.autoreset_mode.value == "Disabled" and bool((terminated | truncated).any()):
            out.append(env.reset(options={"reset_mask": terminated | truncated})[0])
    return out


def random_actions(env: TorchVectorEnv, steps: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(5)
    return torch.rand(steps, N, env.engine.layout.nu, generator=generator, device="cpu").to(env.device) * 2 - 1


def same(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize(
    ("task", "mode"), [*itertools.product(["Hopper", "Reacher"], MODES), ("Ant", "SameStep"), ("Humanoid", "SameStep")]
)
def test_an_environment_goes_on_from_its_saved_state(task, mode):
    env = make(task, autoreset_mode=mode)
    env.reset(seed=3)
    actions = random_actions(env, 50)
    play(env, actions[:20])
    file = io.BytesIO()
    torch.save(env.state_dict(), file)
    rest = play(env, actions[20:])

    file.seek(0)
    other = make(task, autoreset_mode=mode)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert same(play(other, actions[20:]), rest)


def test_a_state_is_a_copy():
    env = make("Hopper")
    env.reset(seed=0)
    state = env.state_dict()
    before = {name: x.clone() for name, x in state.items()}
    play(env, random_actions(env, 3))
    assert all(torch.equal(x, before[name]) for name, x in state.items())
    assert not torch.equal(env.state_dict()["qpos"], before["qpos"])


@pytest.mark.parametrize("other", [dict(task="Walker2d"), dict(n=N + 1), dict(dtype=torch.float64)])
def test_a_state_that_does_not_fit(other):
    env = make("Hopper")
    env.reset(seed=0)
    before = env.state_dict()
    wrong = make(**({"task": "Hopper"} | other))
    with pytest.raises(ValueError, match="not the state of such an environment"):
        env.load_state_dict(wrong.state_dict())
    assert all(torch.equal(x, before[name]) for name, x in env.state_dict().items())


@pytest.mark.parametrize("task", sorted(TASKS))
def test_a_run_shared_out_is_one_run(task):
    whole = make(task, autoreset_mode="SameStep")
    whole.reset(seed=7)
    actions = random_actions(whole, 40)
    expected = play(whole, actions)
    for first, n in ((0, 7), (7, 1), (8, 16)):
        part = make(task, n, autoreset_mode="SameStep", first_world=first)
        part.reset(seed=7)
        mine = slice(first, first + n)
        assert same(play(part, actions[:, mine]), [x[mine] for x in expected])


@pytest.mark.parametrize("wrong", [-1, 1.5, True, 2**31])
def test_wrong_first_world(wrong):
    with pytest.raises(ValueError, match="first_world"):
        make("Hopper", first_world=wrong)

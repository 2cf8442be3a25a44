"""The tasks of dm_control's suite against dm_control: from the same state and action, one control step, float64."""

from __future__ import annotations

import dm_control_oracle as theirs
import numpy as np
import pytest
import torch

from torch_mjenvs import TorchVectorEnv
from torch_mjenvs.dmc import TASKS

# The share of states with a contact, at the least, of tasks whose robots touch things.
TOUCHING = {"walker": 0.4, "hopper": 0.4, "quadruped": 0.4, "humanoid": 0.4, "cheetah": 0.4, "finger": 0.03}
# Where ellipsoids touch limbs, or limbs a disc: the share of states at the most.
ROUGH = {"humanoid_CMU": 0.3, "dog": 0.4, "dog-fetch": 0.45}
# Where one in ten episodes begins with the ball in a cup, or the peg in a slot, whose sides are at a distance of 0; and
# where rounding moves dm_control's own answer by more than 1e-11, in 4 or 5 of 4,096 states, as processors round.
TIED = {"manipulator-insert_ball": 0.003, "manipulator-insert_peg": 0.003, "dog": 0.002}
FAST = (
    "acrobot-swingup", "ball_in_cup-catch", "cartpole-balance", "cheetah-run", "finger-turn_hard", "hopper-hop",
    "pendulum-swingup", "point_mass-hard", "reacher-hard", "walker-walk",
)  # fmt: skip


def of_task(shares: dict[str, float], name: str, otherwise: float) -> float:
    """The share of a task: its own, or else its domain's."""
    return shares.get(name, shares.get(name.split("-")[0], otherwise))


def recorded(name: str, worlds: int, steps: tuple[int, ...]) -> list[dict[str, np.ndarray]]:
    """States, actions, observations and rewards of our environment at these steps of episodes under random actions."""
    env = TorchVectorEnv(TASKS[name], worlds, dtype=torch.float64, autoreset_mode="Disabled", observation="flat")
    env.reset(seed=1)
    rng = np.random.default_rng(0)
    low, high = (np.clip(x, -1.0, 1.0) for x in (env.single_action_space.low, env.single_action_space.high))
    lean = rng.uniform(low, high, (worlds, len(low)))
    out = []
    for k in range(max(steps) + 1):
        action = np.clip(lean + 0.7 * rng.uniform(low, high, lean.shape), low, high)
        state = {"qpos": env.qpos, "qvel": env.qvel} | ({"act": env.act} if env.engine.layout.na else {})
        state |= {f"memory {x}": y for x, y in env.engine.memory.items()}
        state |= {f"param {x}": y for x, y in env.params.items()} if env.engine.layout.params else {}
        state = {x: y.cpu().numpy().copy() for x, y in state.items()}
        obs, reward, terminated, truncated, _ = env.step(torch.tensor(action))
        assert not (terminated | truncated).any()
        if k in steps:
            step = state | {"action": action, "obs": obs.cpu().numpy(), "reward": reward.cpu().numpy()}
            out += [{x: y[i] for x, y in step.items()} for i in range(worlds)]
    return out


def compare(name: str, worlds: int, steps: tuple[int, ...]) -> None:
    """One control step.

    Where an ellipsoid touches a limb, or a limb a disc, MuJoCo does not know its normal to rounding: see
    docs/limits.md. There MuJoCo at its default tolerance is further from itself at a sharper one than we are.

    Where things touch at a distance of 0, rounding decides whether they do. There our answer must be, to 1e-11, one of
    those that dm_control gives when its state moves by one rounding. One state in a thousand may be off by more, if
    dm_control's own answer moves by as much.
    """
    tied = shaky = 0
    env, touching, errors, rewards, rough = theirs.environment(name), 0, [], [], []
    for step in recorded(name, worlds, steps):
        theirs.put(env, name, step)
        with theirs.rough_touches(env.physics) as found:
            want = env.step(step["action"])
        obs = theirs.numbers(want.observation)
        assert obs.shape == step["obs"].shape
        assert want.discount == 1.0 and not want.last()
        touching += env.physics.data.ncon > 0
        error = theirs.apart(step["obs"], obs)
        if found:
            loose = theirs.apart(theirs.loosely(env, name, step), obs)
            rough.append((error.max(), loose.max()))
            continue
        if error.max() > 1e-11:
            near = theirs.nearby(env, name, step)
            if theirs.apart(step["obs"], near).max(1).min() < 1e-11:
                tied += 1
                continue
            if error.max() < theirs.apart(near, near[0]).max():
                shaky += 1
                continue
        errors.append(error)
        rewards.append(abs(step["reward"] - want.reward))
    n, worst = len(errors) + len(rough) + tied + shaky, np.array(errors).max(0)
    ours, loosely = np.quantile(rough or [(0.0, 0.0)], (0.5, 0.9, 0.99, 1.0), axis=0).T
    print(f"{name}: {n} states, observation {worst.max():.1e}, reward {max(rewards):.1e}, touching {touching / n:.2f}, "
          f"rough {len(rough) / n:.2f}: {ours} for {loosely}, tied {tied}, shaky {shaky}")  # fmt: skip
    assert tied + shaky <= of_task(TIED, name, 0.001) * n and shaky <= 0.001 * n
    assert worst.max() < 1e-11, f"the worst of the observation is number {worst.argmax()}"
    assert max(rewards) < 1e-11
    assert touching >= of_task(TOUCHING, name, 0.0) * n
    assert len(rough) <= of_task(ROUGH, name, 0.0) * n
    assert (ours[:3] <= loosely[:3]).all() and ours[3] <= 3 * loosely[3]


@pytest.mark.parametrize("name", FAST)
def test_a_step_is_that_of_dm_control(name: str) -> None:
    compare(name, 40, (0, 10, 20, 40, 60, 80))


@pytest.mark.slow
@pytest.mark.parametrize("name", TASKS)
def test_a_step_is_that_of_dm_control_from_thousands_of_states(name: str) -> None:
    compare(name, 512, (0, 5, 10, 20, 30, 40, 60, 80))

"""Random tasks beside plain loops over MuJoCo C, and in all environments beside each other.

`python tests/tried_tasks.py --seed 0 --count 100` tries more of them, and shrinks what fails.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
import torch
import tried_tasks
from scipy import stats

from torch_mjenvs import Control, Normal, Outcome, Scale, Shift, Start, Task, TorchVectorEnv, Uniform
from torch_mjenvs.scalar import repeat

pytestmark = [pytest.mark.usefixtures("quickly_compiled", "quiet"), pytest.mark.cpu]


@pytest.mark.parametrize("seed", range(8))
def test_tasks_are_what_they_are_in_plain_python(seed):
    assert not tried_tasks.wrong("plain", seed)


OTHERS = [what for what in tried_tasks.CHECKS if what != "plain"]


@pytest.mark.parametrize("seed, what", enumerate(OTHERS, 10))
def test_a_worlds_bits_depend_on_nothing_else(seed, what):
    assert not tried_tasks.wrong(what, seed)


@pytest.mark.slow
@pytest.mark.parametrize("what", tried_tasks.CHECKS)
def test_more_of_them(what):
    assert not [text for seed in range(100, 140) if (text := tried_tasks.wrong(what, seed, seconds=60.0))]


@dataclass(frozen=True)
class Draws(Task):
    """A cart that remembers what was drawn for it, of each kind and in each place."""

    noise = {"n": Normal(1.0), "u": [1.0, 2.0]}  # noqa: RUF012
    xml_file: str = "inverted_pendulum.xml"
    frame_skip: int = 2

    def memory(self, m):
        return {x: [0.0] * 4 for x in ("reset", "begin", "control", "substep", "remember", "loop")} | {"until": 0.0}

    def four(self, rng):
        return [rng.uniform(-1.0, 1.0), rng.normal(), rng.exponential(1.0), rng.integers(5)]

    def randomize(self, m, rng):
        return {"body_mass": [m.body_mass[0], m.body_mass[1] * rng.uniform(0.5, 1.5), m.body_mass[2]]}

    def reset(self, m, rng):
        until = rng.draw_until(lambda r: r.uniform(-1.0, 1.0), lambda x: x > 0.8)
        draws, drawn = rng.fork(), self.four(rng)
        loop = [repeat(i + 1, lambda i, c: [draws(i).uniform(-1.0, 1.0)], [0.0])[0] for i in range(4)]
        return Start([0.0] * 2, [0.0] * 2, memory={"reset": drawn, "until": until, "loop": loop})

    def begin(self, m, world):
        return {"begin": self.four(world.rng)}

    def control(self, m, world, action):
        return [*action, *self.four(world.rng)]

    def substep_control(self, m, world, targets):
        return Control(targets[:1], memory={"substep": self.four(world.rng), "control": targets[1:]})

    def remember(self, m, before, action, after):
        return {"remember": self.four(after.rng)}

    def observe(self, m, world):
        return {"n": 0.0, "u": [0.0, 0.0]}

    def outcome(self, m, before, action, after):
        return Outcome(0.0)


UNIFORM = stats.uniform(-1, 2)
FOUR = (UNIFORM, stats.norm(), stats.expon())  # the fourth is a whole number
PLACES = ("reset", "begin", "control", "substep", "remember")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_draws_have_their_distributions_and_are_all_different(dtype):
    n = 4000
    randomize = {
        "dof_damping": Uniform(1.0, 2.0), "gravity": Shift((0, 0, -1), (0, 0, 1)),
        "geom_friction": Scale(0.5, 1.5, together=True),
    }  # fmt: skip
    env = TorchVectorEnv(Draws(), n, dtype=dtype, randomize=randomize)
    columns: dict[str, np.ndarray] = {}
    wanted = {}

    def keep(name, x, distribution):
        columns[name], wanted[name] = x.numpy().astype(float), distribution

    for episode in range(2):
        seen = [env.reset(seed=7 if episode == 0 else None)[0]]
        for step in range(2):
            seen.append(env.step(torch.zeros(n, 1))[0])
            memory = env.engine.memory
            for place in PLACES if step else PLACES[2:]:
                for k, distribution in enumerate((*FOUR, None)):
                    keep(f"{place} {k} {episode} {step}", memory[place][:, k], distribution)
        keep(f"until {episode}", memory["until"], stats.uniform(0.8, 0.2))
        for i in (0, 3):  # the last numbers of loops of one and of four
            keep(f"loop {i} {episode}", memory["loop"][:, i], UNIFORM)
        params, m = env.params, env.model
        keep(f"damping {episode}", params["dof_damping"][:, 0], stats.uniform(1, 1))
        keep(f"damping 1 {episode}", params["dof_damping"][:, 1], stats.uniform(1, 1))
        keep(f"gravity {episode}", params["gravity"][:, 2] - m.opt.gravity[2], UNIFORM)
        keep(f"friction {episode}", params["geom_friction"][:, 0, 0] / m.geom_friction[0, 0], stats.uniform(0.5, 1))
        assert params["gravity"][:, 0].unique().numel() == 1
        keep(f"mass {episode}", params["body_mass"][:, 1] / m.body_mass[1], stats.uniform(0.5, 1))
        for t, obs in enumerate(seen):
            keep(f"normal noise {episode} {t}", obs["n"], stats.norm())
            keep(f"noise {episode} {t}", obs["u"][:, 0], UNIFORM)
            keep(f"twice the noise {episode} {t}", obs["u"][:, 1], stats.uniform(-2, 4))
    level = 1e-3 / len(columns)
    for name, x in columns.items():
        if wanted[name] is not None:
            assert stats.kstest(x, wanted[name].cdf).pvalue > level, name
            assert len(np.unique(x)) > 0.99 * n, name
        else:
            assert stats.chisquare(np.unique(x, return_counts=True)[1]).pvalue > level, name
            assert set(x) == {0, 1, 2, 3, 4}, name
    # no two are the same, or go together: not of two places, steps or episodes, nor of two worlds
    ranks = np.array([stats.rankdata(x) for x in columns.values()])
    together = np.abs(np.corrcoef(ranks)) - np.eye(len(ranks))
    i, j = np.unravel_index(together.argmax(), together.shape)
    assert together.max() < 5.5 / np.sqrt(n), (
        *itertools.islice(columns, i, i + 1),
        *itertools.islice(columns, j, j + 1),
    )
    first = np.array([x[:-1] for x in ranks]), np.array([x[1:] for x in ranks])
    neighbours = [np.corrcoef(a, b)[0, 1] for a, b in zip(*first, strict=True)]
    assert np.abs(neighbours).max() < 5 / np.sqrt(n)

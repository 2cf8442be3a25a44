"""examples/pixels.py: it learns from pictures, which are those that MuJoCo draws of the same worlds."""

from __future__ import annotations

import pixels
import pytest
import torch

pytestmark = [pytest.mark.cpu, pytest.mark.usefixtures("quickly_compiled")]


def test_an_iteration_moves_all_parameters_and_a_run_is_drawn(tmp_path):
    torch.manual_seed(0)
    learner = pixels.PPO(pixels.Worlds("cartpole-swingup", 8), minibatch=64)
    before = [p.detach().clone() for p in learner.agent.parameters()]
    learner.worlds.env.unwrapped.elapsed_steps[:] = 120  # of 125: all episodes end at the fifth step
    reward = learner.collect()
    assert learner.ends.nonzero()[:, 0].unique().tolist() == [4] and learner.ends[4].all()
    assert (~learner.counts).nonzero()[:, 0].unique().tolist() == [5]  # the step that resets
    assert 0 < reward < 0.5 and learner.frames == 31 * 8
    seen = learner.seen[:-1]
    assert (seen[6] == seen[6][:, :1]).all() and not torch.equal(seen[7, :, 2], seen[7, :, 1])
    learner.learn()
    for p, old in zip(learner.agent.parameters(), before, strict=True):
        assert p.isfinite().all() and (p != old).any()
    run = pixels.train("cartpole-swingup", seconds=0.0, num=8)
    assert 31 * 8 <= run.points[0][1] <= 32 * 8 and run.film.shape == (125, 64, 64, 3) and (run.returns > 0).all()
    pixels.draw([run], str(tmp_path / "pixels.png"))
    assert (tmp_path / "pixels.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("opengl")
@pytest.mark.parametrize("task", ["cartpole-swingup", "reacher-easy"])
def test_opengls_worlds_show_what_the_rays_show(task):
    """Also of a target that each world has elsewhere."""
    both = []
    for kind in (pixels.Worlds, pixels.OpenGLWorlds):
        torch.manual_seed(0)
        worlds = kind(task, 4)
        shown = [worlds.reset(seed=0)]
        shown += [worlds.step(torch.full((4, worlds.actions), 0.5))[0] for _ in range(3)]
        both.append(torch.stack(shown).float())
    assert (both[0] - both[1]).abs().mean() < 0.5 and both[0].std() > 5


@pytest.mark.slow
def test_reacher_is_learnt():
    run = pixels.train("reacher-easy", seconds=120.0)
    assert run.returns.mean() > 500

"""A policy or a body in each world: what docs/evolution.md says of them, beside MuJoCo C."""

from __future__ import annotations

from dataclasses import dataclass, replace

import gymnasium
import mujoco
import numpy as np
import oracle
import torch
from gymnasium.envs.mujoco.mujoco_env import expand_model_path

from torch_mjenvs import TorchVectorEnv, Walker2d
from torch_mjenvs.scalar import select
from torch_mjenvs.vectors import norm

WORLDS = 24


@dataclass(frozen=True, kw_only=True)
class OnFeet(Walker2d):
    feet: tuple = ("foot_geom", "foot_left_geom")

    def outcome(self, m, before, action, after):
        forces = [norm(after.data.cfrc_ext[m.geom(name).bodyid[0]]) for name in self.feet]
        contact = {name: select(force > 0.0, 1.0, 0.0) for name, force in zip(self.feet, forces, strict=True)}
        return replace(super().outcome(m, before, action, after), metrics=contact)


def gymnasiums(weights: np.ndarray, qpos: np.ndarray, qvel: np.ndarray) -> tuple[float, list[float]]:
    """Return the return of a policy's episode in Gymnasium, and the shares of it with a foot on the floor."""
    env = gymnasium.make("Walker2d-v5").unwrapped
    oracle.sharpen(env.model)
    env.reset(seed=0)
    env.set_state(qpos, qvel)
    obs, total, touched, ended = env._get_obs(), 0.0, [], False
    bodies = [env.model.geom(name).bodyid[0] for name in OnFeet.feet]
    while not ended:
        obs, reward, ended, *_ = env.step(np.tanh(weights @ obs))
        total += reward
        mujoco.mj_rnePostConstraint(env.model, env.data)
        touched.append(env.data.cfrc_ext[bodies].any(1))
    return total, np.mean(touched, 0).tolist()


def test_first_episodes_of_policies_are_gymnasiums():
    env = TorchVectorEnv(OnFeet(), WORLDS, dtype=torch.float64, autoreset_mode="SameStep")
    obs, _ = env.reset(seed=0)
    qpos, qvel = env.qpos.cpu().numpy().copy(), env.qvel.cpu().numpy().copy()
    weights = torch.randn(WORLDS, 6, 17, generator=torch.Generator().manual_seed(0), dtype=torch.float64, device="cpu")
    of_worlds, alive = weights.to(env.device), torch.ones(WORLDS, dtype=torch.bool, device=env.device)
    fitness, steps = torch.zeros(2, WORLDS, dtype=torch.float64, device=env.device)
    contact = torch.zeros(WORLDS, 2, dtype=torch.float64, device=env.device)
    for _ in range(40):  # later, rounding has grown too much to compare
        obs, reward, terminated, truncated, info = env.step(torch.einsum("nao,no->na", of_worlds, obs).tanh())
        fitness += torch.where(alive, reward, 0.0)
        steps += alive
        last = alive & (terminated | truncated)
        final = torch.stack([info["final_info"][f"episode_mean/{name}"] for name in OnFeet.feet], 1)
        contact = torch.where(last[:, None], final, contact)
        alive &= ~last
    ended = (~alive).nonzero()[:, 0].tolist()
    assert len(ended) > WORLDS // 2 and len(steps[ended].unique()) > 3 and len(contact[ended].unique()) > 10
    for i in ended:
        expected, touched = gymnasiums(weights[i].numpy(), qpos[i], qvel[i])
        np.testing.assert_allclose(float(fitness[i]), expected, rtol=1e-5)
        np.testing.assert_allclose(contact[i].cpu(), touched, rtol=0, atol=1e-12)


def swimmer(lengths: np.ndarray) -> mujoco.MjModel:
    spec = mujoco.MjSpec.from_file(expand_model_path("swimmer.xml"))
    for name, length in zip(("torso", "mid", "back"), lengths, strict=True):
        body = spec.body(name)
        body.geoms[0].fromto = body.geoms[0].fromto * length
        for child in body.bodies:
            child.pos = child.pos * length
    return oracle.sharpen(spec.compile())


def test_each_world_has_the_body_that_mujocos_compiler_made():
    names = ["body_mass", "body_inertia", "body_ipos", "body_pos", "geom_size", "geom_pos"]
    models = [swimmer(lengths) for lengths in np.random.default_rng(0).uniform(0.5, 1.5, (4, 3))]
    env = TorchVectorEnv("Swimmer", 4, dtype=torch.float64, autoreset_mode="SameStep", vary=names)
    env.set_params({name: np.stack([getattr(model, name) for model in models]) for name in names})
    env.reset(seed=0)
    for action in np.random.default_rng(1).uniform(-1, 1, (20, 4, 2)):
        qpos, qvel = env.qpos.cpu().numpy().copy(), env.qvel.cpu().numpy().copy()
        env.step(action)
        for i, model in enumerate(models):
            data = mujoco.MjData(model)
            data.qpos[:], data.qvel[:], data.ctrl[:] = qpos[i], qvel[i], action[i]
            mujoco.mj_step(model, data, 4)
            np.testing.assert_allclose(env.qpos[i].cpu(), data.qpos, rtol=0, atol=1e-12)
            np.testing.assert_allclose(env.qvel[i].cpu(), data.qvel, rtol=0, atol=1e-12)

"""PPO in one file, in the manner of CleanRL's `ppo_continuous_action.py`, on worlds that are tensors.

    python examples/cleanrl_ppo.py --env-id TorchHopper-v0 --num-envs 64 --total-timesteps 5e6

Its parts, names and hyperparameters are that script's. Lines marked "here:" are those that such a script has to change
to run on these tasks, and say what was there before: nothing is copied to NumPy or back, the wrappers are this
package's, and truncated episodes bootstrap from the value of their last observation, which is available.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import gymnasium as gym
import numpy as np
import torch
from torch import nn
from torch.distributions.normal import Normal

import torch_mjenvs  # noqa: F401  here: makes the tasks known to Gymnasium
from torch_mjenvs import wrappers  # here: gym.wrappers


def parse(given: Sequence[str] | None = None) -> argparse.Namespace:
    out = argparse.ArgumentParser(description="PPO in the manner of CleanRL")
    out.add_argument("--env-id", default="TorchHopper-v0")
    out.add_argument("--num-envs", type=int, default=64)
    out.add_argument("--num-steps", type=int, default=128)
    out.add_argument("--total-timesteps", type=float, default=5e6)
    out.add_argument("--learning-rate", type=float, default=3e-4)
    out.add_argument("--gamma", type=float, default=0.99)
    out.add_argument("--gae-lambda", type=float, default=0.95)
    out.add_argument("--num-minibatches", type=int, default=32)
    out.add_argument("--update-epochs", type=int, default=10)
    out.add_argument("--clip-coef", type=float, default=0.2)
    out.add_argument("--ent-coef", type=float, default=0.0)
    out.add_argument("--vf-coef", type=float, default=0.5)
    out.add_argument("--max-grad-norm", type=float, default=0.5)
    out.add_argument("--seed", type=int, default=1)
    out.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return out.parse_args(given)


def make_envs(args: argparse.Namespace) -> tuple[gym.vector.VectorEnv, wrappers.RecordEpisodeStatistics]:
    # here: gym.vector.SyncVectorEnv([make_env(args.env_id, ...) for i in range(args.num_envs)])
    envs = gym.make_vec(args.env_id, num_envs=args.num_envs, autoreset_mode="SameStep", device=args.device)
    statistics = wrappers.RecordEpisodeStatistics(envs)
    envs = wrappers.ClipAction(statistics)
    envs = wrappers.NormalizeObservation(envs)
    envs = wrappers.TransformObservation(envs, lambda obs: obs.clamp(-10, 10))  # here: np.clip
    envs = wrappers.NormalizeReward(envs, gamma=args.gamma)
    envs = wrappers.TransformReward(envs, lambda reward: reward.clamp(-10, 10))  # here: np.clip
    return envs, statistics


def layer_init(layer: nn.Linear, std: float = np.sqrt(2)) -> nn.Linear:
    nn.init.orthogonal_(layer.weight, std)
    nn.init.constant_(layer.bias, 0.0)
    return layer


class Agent(nn.Module):
    def __init__(self, envs: gym.vector.VectorEnv):
        super().__init__()
        seen, done = (int(np.prod(x.shape)) for x in (envs.single_observation_space, envs.single_action_space))
        self.critic = nn.Sequential(
            layer_init(nn.Linear(seen, 64)), nn.Tanh(), layer_init(nn.Linear(64, 64)), nn.Tanh(),
            layer_init(nn.Linear(64, 1), std=1.0),
        )  # fmt: skip
        self.actor_mean = nn.Sequential(
            layer_init(nn.Linear(seen, 64)), nn.Tanh(), layer_init(nn.Linear(64, 64)), nn.Tanh(),
            layer_init(nn.Linear(64, done), std=0.01),
        )  # fmt: skip
        self.actor_logstd = nn.Parameter(torch.zeros(1, done))

    def get_value(self, obs: torch.Tensor) -> torch.Tensor:
        return self.critic(obs)[:, 0]

    def get_action_and_value(self, obs: torch.Tensor, action: torch.Tensor | None = None) -> tuple[torch.Tensor, ...]:
        mean = self.actor_mean(obs)
        probs = Normal(mean, self.actor_logstd.expand_as(mean).exp())
        action = probs.sample() if action is None else action
        return action, probs.log_prob(action).sum(1), probs.entropy().sum(1), self.get_value(obs)


def train(args: argparse.Namespace) -> tuple[Agent, list[float]]:
    """The trained agent, and the mean return of the last episodes at the end of each iteration."""
    torch.manual_seed(args.seed)
    device = torch.device(args.device)
    envs, statistics = make_envs(args)
    agent = Agent(envs).to(device)
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5)
    shape, batch_size = (args.num_steps, args.num_envs), args.num_steps * args.num_envs
    num_iterations = max(1, int(args.total_timesteps) // batch_size)

    obs = torch.zeros(*shape, *envs.single_observation_space.shape, device=device)
    actions = torch.zeros(*shape, *envs.single_action_space.shape, device=device)
    logprobs, rewards, dones, values = (torch.zeros(shape, device=device) for _ in range(4))
    start, returns = time.time(), []
    next_obs, _ = envs.reset(seed=args.seed)  # here: torch.Tensor(next_obs).to(device)
    next_done = torch.zeros(args.num_envs, device=device)

    for iteration in range(1, num_iterations + 1):
        optimizer.param_groups[0]["lr"] = (1 - (iteration - 1) / num_iterations) * args.learning_rate
        for step in range(args.num_steps):
            obs[step], dones[step] = next_obs, next_done
            with torch.no_grad():
                action, logprob, _, values[step] = agent.get_action_and_value(next_obs)
            actions[step], logprobs[step] = action, logprob
            # here: envs.step(action.cpu().numpy()), and torch.tensor(...) around what it gave
            next_obs, reward, terminated, truncated, info = envs.step(action)
            next_done = (terminated | truncated).float()
            with torch.no_grad():  # here: episodes that were cut off count as if they had failed
                cut = truncated & ~terminated
                rewards[step] = reward + args.gamma * torch.where(cut, agent.get_value(info["final_obs"]), 0.0)

        with torch.no_grad():
            next_value, advantages, last = agent.get_value(next_obs), torch.zeros_like(rewards), 0.0
            for t in reversed(range(args.num_steps)):
                later = t < args.num_steps - 1
                nonterminal = 1 - (dones[t + 1] if later else next_done)
                delta = rewards[t] + args.gamma * (values[t + 1] if later else next_value) * nonterminal - values[t]
                advantages[t] = last = delta + args.gamma * args.gae_lambda * nonterminal * last
            targets = advantages + values

        b_obs, b_actions = obs.flatten(0, 1), actions.flatten(0, 1)
        b_logprobs, b_advantages, b_targets = logprobs.flatten(), advantages.flatten(), targets.flatten()
        for _ in range(args.update_epochs):
            for chosen in torch.randperm(batch_size, device=device).chunk(args.num_minibatches):
                _, logprob, entropy, value = agent.get_action_and_value(b_obs[chosen], b_actions[chosen])
                ratio = (logprob - b_logprobs[chosen]).exp()
                gain = b_advantages[chosen]
                gain = (gain - gain.mean()) / (gain.std() + 1e-8)
                policy_loss = -torch.min(
                    gain * ratio, gain * ratio.clamp(1 - args.clip_coef, 1 + args.clip_coef)
                ).mean()
                value_loss = 0.5 * (value - b_targets[chosen]).square().mean()
                loss = policy_loss - args.ent_coef * entropy.mean() + args.vf_coef * value_loss
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), args.max_grad_norm)
                optimizer.step()

        returns.append(statistics.return_queue.mean().item())  # here: infos["final_info"], world by world
        frames = iteration * batch_size
        print(f"global_step={frames}, episodic_return={returns[-1]:.1f}, SPS={int(frames / (time.time() - start))}")
    envs.close()
    return agent, returns


if __name__ == "__main__":
    train(parse())

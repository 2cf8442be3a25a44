"""PPO of TorchRL's parts on one of the Torch tasks, scored at the end in Gymnasium's own.

    python examples/ppo_torchrl.py --env TorchHalfCheetah-v0

Shapes: N worlds, T steps of a rollout.
"""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import AddStateIndependentNormalScale, TensorDictModule
from torch import Tensor, nn
from torchrl.data import LazyTensorStorage, SamplerWithoutReplacement, TensorDictReplayBuffer
from torchrl.envs import (
    ClipTransform,
    Compose,
    ExplorationType,
    ObservationNorm,
    RewardSum,
    TransformedEnv,
    VecNormV2,
    set_exploration_type,
)
from torchrl.modules import MLP, ProbabilisticActor, RunningValueNorm, TanhNormal, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

from torch_mjenvs import TorchRLEnv
from torch_mjenvs.policy import ACTIVATIONS
from torch_mjenvs.training import runs
from torch_mjenvs.training.health import Faults
from torch_mjenvs.training.worlds import task_id


def make_env(env_id: str, num_envs: int, device: str) -> TransformedEnv:
    """Observations are normalised by mean and deviation of all that was seen, this step's included."""
    env = TorchRLEnv(
        env_id.removeprefix("Torch").removesuffix("-v0"), num_envs, device=device, info_keys=("bad_state",)
    )
    # VecNormV2 takes a variance as the mean square less the squared mean. Where a column is constant, as masses in
    # Humanoid's are, rounding makes that negative, and all is NaN. So it sees differences from a first observation.
    first = env.reset()["observation"][0].clone()
    difference = ObservationNorm(loc=first, scale=torch.ones_like(first), in_keys=["observation"], standard_normal=True)
    normalise = VecNormV2(in_keys=["observation"], decay=1.0, eps=1e-4, reduce_batch_dims=True)
    clip = ClipTransform(in_keys=["observation"], low=-10, high=10)
    return TransformedEnv(env, Compose(difference, normalise, clip, RewardSum()))


def make_networks(env: TransformedEnv, s: SimpleNamespace) -> tuple[ProbabilisticActor, ValueOperator]:
    """Separate networks for the policy and the value."""
    (obs_dim,), (act_dim,) = env.observation_spec_unbatched["observation"].shape, env.action_spec_unbatched.shape
    kind = dict(in_features=obs_dim, activation_class=ACTIVATIONS[s.activation], device=env.device)
    policy = MLP(out_features=act_dim, num_cells=list(s.actor), **kind)
    value = MLP(out_features=1, num_cells=list(s.critic), **kind)
    for net, last_gain in ((policy, 0.01), (value, 1.0)):
        layers = [module for module in net if isinstance(module, nn.Linear)]
        for layer in layers:
            nn.init.orthogonal_(layer.weight, last_gain if layer is layers[-1] else 2**0.5)
            nn.init.zeros_(layer.bias)
    noise = AddStateIndependentNormalScale(act_dim, init_value=s.log_std, device=env.device)
    space = env.action_spec_unbatched.space
    actor = ProbabilisticActor(
        TensorDictModule(nn.Sequential(policy, noise), in_keys=["observation"], out_keys=["loc", "scale"]),
        in_keys=["loc", "scale"],
        distribution_class=TanhNormal,
        distribution_kwargs={"low": space.low, "high": space.high, "tanh_loc": False},
        return_log_prob=True,
        default_interaction_type=ExplorationType.RANDOM,
    )
    return actor, ValueOperator(value, in_keys=["observation"])


class RewardScale(nn.Module):
    """Divides rewards by the deviation of discounted returns, so that values are of order 1 in every task."""

    def __init__(self, num_envs: int, gamma: float, device: torch.device):
        super().__init__()
        self.gamma, self.norm = gamma, RunningValueNorm(device=device)
        self.register_buffer("discounted", torch.zeros(num_envs, 1, device=device))

    def forward(self, reward: Tensor, done: Tensor) -> Tensor:
        """Both (N, T, 1)."""
        returns = torch.empty_like(reward)
        for t in range(reward.shape[1]):
            returns[:, t] = self.discounted.mul_(self.gamma).add_(reward[:, t])
            self.discounted.masked_fill_(done[:, t], 0)
        self.norm.update(returns)
        return reward / self.norm.scale()


class PPO:
    def __init__(self, env: TransformedEnv, settings: SimpleNamespace, seed: int):
        self.env, self.settings = env, settings
        s, n, device = settings, env.batch_size.numel(), env.device
        self.actor, critic = make_networks(env, s)
        self.advantage = GAE(gamma=s.gamma, lmbda=s.lam, value_network=critic, average_gae=False, device=device)
        self.loss = ClipPPOLoss(
            self.actor, critic, clip_epsilon=s.clip, entropy_bonus=False, critic_coeff=s.value_weight,
            loss_critic_type="l2", normalize_advantage=True, device=device,
        )  # fmt: skip
        self.parameters = list(self.loss.parameters())
        self.optimizer = torch.optim.Adam(self.parameters, lr=s.learning_rate, eps=1e-5)
        self.reward_scale = RewardScale(n, s.gamma, device)
        storage = LazyTensorStorage(n * s.horizon, device=device)
        self.buffer = TensorDictReplayBuffer(
            storage=storage, sampler=SamplerWithoutReplacement(), batch_size=s.minibatch, prefetch=0
        )
        env.set_seed(seed)
        self.now = env.reset()
        # Worlds that reset together would keep doing so, every 1,000 steps, and the data would come in waves. So first
        # episodes start at random ages; their returns are partial, and NaN keeps them out of the statistics.
        engine = env.base_env.engine
        engine.elapsed_steps.copy_(torch.randint(engine.task.max_episode_steps, (n,)))
        self.now["episode_reward"].fill_(torch.nan)
        self.finished: deque[float] = deque(maxlen=100)  # returns of the last episodes
        self.frames_seen = 0
        # Of an iteration: steps into bad states, and updates whose loss was not finite.
        self.bad_states, self.bad_updates = (torch.zeros((), dtype=torch.int64, device=device) for _ in range(2))

    def iterate(self) -> None:
        """One rollout and what is learnt from it."""
        progress = self.frames_seen / self.settings.total_steps
        self.optimizer.param_groups[0]["lr"] = self.settings.learning_rate * (1 - 0.9 * progress)
        data = self.rollout()
        self.update(data)
        self.frames_seen += data.numel()

    @torch.no_grad()
    def rollout(self) -> TensorDictBase:
        """(N, T) frames with their advantages. What a truncated episode was still worth is counted exactly, as the
        last observation of an episode is in ("next", "observation").
        """
        env = self.env
        data = env.rollout(
            self.settings.horizon, self.actor, tensordict=self.now, auto_reset=False, break_when_any_done=False
        )
        self.now = env.maybe_reset(env.step_mdp(data[:, -1]))  # a rollout's last step resets no world
        following = data["next"]
        self.bad_states = following["bad_state"].sum()
        returns = following["episode_reward"][following["done"]]
        self.finished.extend(returns[~returns.isnan()].tolist())
        following["reward"] = self.reward_scale(following["reward"], following["done"])
        return self.advantage(data)

    def update(self, data: TensorDictBase) -> None:
        self.buffer.empty()
        self.bad_updates.zero_()
        self.buffer.extend(data.select(*self.loss.in_keys, "value_target", "advantage", strict=False).flatten())
        for _ in range(self.settings.epochs * data.numel() // self.settings.minibatch):
            found = self.loss(self.buffer.sample())
            loss = found["loss_objective"] + found["loss_critic"]
            self.bad_updates += ~loss.detach().isfinite()
            loss.backward()
            nn.utils.clip_grad_norm_(self.parameters, self.settings.max_grad_norm)
            self.optimizer.step()
            self.optimizer.zero_grad()

    @torch.no_grad()
    def act(self, obs: Tensor) -> Tensor:
        """Actions (N, A) for observations (N, O) as Gymnasium gives them, without noise."""
        difference, normalise, clip, _ = self.env.transform
        obs = (obs - difference.loc - normalise.loc["observation"]) / normalise.scale["observation"]
        td = TensorDict({"observation": obs.clamp(clip.low, clip.high)}, [len(obs)])
        with set_exploration_type(ExplorationType.DETERMINISTIC):
            return self.actor(td)["action"]

    def measures(self) -> dict[str, float]:
        """Numbers worth a curve."""
        return {"learning_rate": self.optimizer.param_groups[0]["lr"]}

    def faults(self) -> Faults:
        """What went wrong in the last iteration."""
        bad_weights = torch.stack([(~x.isfinite()).sum() for x in self.parameters]).sum()
        return Faults(*torch.stack([self.bad_states, self.bad_updates, bad_weights]).tolist())

    def networks(self) -> dict[str, Any]:
        """What policy.pt holds beside the id of the task."""
        return {"networks": self.loss.state_dict(), "transforms": self.env.state_dict()}

    def state_dict(self) -> dict[str, Any]:
        """All that training goes on from: the same run, loaded into a fresh PPO, ends with the same bits."""
        return {
            "networks": self.loss.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "transforms": self.env.state_dict(),
            "worlds": self.env.base_env.engine.state_dict(),
            "reward_scale": self.reward_scale.state_dict(),
            "now": self.now.to_dict(),
            "finished": list(self.finished),
            "frames_seen": self.frames_seen,
            "random": torch.get_rng_state(),
            "cuda_random": torch.cuda.get_rng_state_all() if self.env.device.type == "cuda" else [],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.loss.load_state_dict(state["networks"])
        self.optimizer.load_state_dict(state["optimizer"])
        # Transforms keep the tensors that they are given, wherever those are.
        self.env.load_state_dict(TensorDict(state["transforms"], device=self.env.device).to_dict())
        self.env.base_env.engine.load_state_dict(state["worlds"])
        self.reward_scale.load_state_dict(state["reward_scale"])
        self.now = TensorDict(state["now"], self.env.batch_size, device=self.env.device)
        self.finished.extend(state["finished"])
        self.frames_seen = state["frames_seen"]
        torch.set_rng_state(state["random"].cpu())
        torch.cuda.set_rng_state_all(state["cuda_random"])


def main(argv: list[str] | None = None) -> None:
    args = runs.training_parser(__doc__.splitlines()[0], runs.settings()).parse_args(argv)
    env_id = task_id(args.env)
    settings = SimpleNamespace(**runs.chosen(env_id, args))
    torch.manual_seed(args.seed)

    env = make_env(env_id, settings.num_envs, args.device)
    agent = PPO(env, settings, args.seed)
    run = {"algorithm": "PPO by TorchRL", "env": env_id, "seed": args.seed, "settings": vars(settings)}
    with runs.folder(args.out, f"torchrl-{env_id}-{args.seed}", args.resume) as out:
        history = runs.train(agent, run, out, args)
        runs.finish(agent, run, out, args, history)


if __name__ == "__main__":
    main()

"""PPO of TorchRL's parts on one of the Torch tasks, scored at the end in Gymnasium's own.

    python examples/ppo_torchrl.py --env TorchHalfCheetah-v0

Shapes: N worlds, T steps of a rollout.
"""

from __future__ import annotations

import importlib.util
import sys
import warnings
from collections import deque
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import AddStateIndependentNormalScale, CudaGraphModule, TensorDictModule, TensorDictSequential
from torch import Tensor, nn
from torchrl.envs import ExplorationType, set_exploration_type
from torchrl.modules import MLP, IndependentNormal, ProbabilisticActor, RunningValueNorm, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

from torch_mjenvs import TorchRLEnv
from torch_mjenvs.policy import ACTIVATIONS, network_entries, parameters_of
from torch_mjenvs.training import runs
from torch_mjenvs.training.episodes import random_state, set_random_state
from torch_mjenvs.training.health import Faults
from torch_mjenvs.training.mlp import MLP as CompiledMLP
from torch_mjenvs.training.networks import RunningMoments, load_optimizer
from torch_mjenvs.training.worlds import task_id

if importlib.util.find_spec("pandas") is None:
    sys.modules["pandas"] = None  # type: ignore[assignment]  # else every module's call looks for it on disk: 0.1 ms
# Settings of `torch_mjenvs train` that this example does not have.
LEFT_OUT = ("target_kl", "log_std_min", "log_std_max")


def make_env(env_id: str, num_envs: int, device: str) -> TorchRLEnv:
    """Make the environment without transforms, which would take most of a rollout's time: whole rollouts are
    transformed instead.
    """
    name = env_id.removeprefix("Torch").removesuffix("-v0")
    return TorchRLEnv(name, num_envs, device=device, info_keys=("bad_state",))


def make_networks(env: TorchRLEnv, s: SimpleNamespace) -> tuple[ProbabilisticActor, ValueOperator]:
    """Separate networks for the policy and the value, of normalised observations, "seen"."""
    (obs_dim,), (act_dim,) = env.observation_spec_unbatched["observation"].shape, env.action_spec_unbatched.shape
    kind = dict(in_features=obs_dim, activation_class=ACTIVATIONS[s.activation], device=env.device)

    def network(outputs: int, widths: Sequence[int]) -> CompiledMLP:
        norms = {"norm_class": nn.LayerNorm, "norm_kwargs": [{"normalized_shape": n} for n in widths]}
        norms = norms if s.norm == "layer" else {}
        return CompiledMLP(*MLP(out_features=outputs, num_cells=list(widths), **kind, **norms))

    policy, value = network(act_dim, s.actor), network(1, s.critic)
    for net, last_gain in ((policy, 0.01), (value, 1.0)):
        layers = [module for module in net if isinstance(module, nn.Linear)]
        for layer in layers:
            nn.init.orthogonal_(layer.weight, last_gain if layer is layers[-1] else 2**0.5)
            nn.init.zeros_(layer.bias)
    noise = AddStateIndependentNormalScale(act_dim, init_value=s.log_std, device=env.device)
    actor = ProbabilisticActor(
        TensorDictModule(nn.Sequential(policy, noise), in_keys=["seen"], out_keys=["loc", "scale"]),
        in_keys=["loc", "scale"],
        distribution_class=IndependentNormal,  # the tasks clip actions themselves
        return_log_prob=True,
        default_interaction_type=ExplorationType.RANDOM,
    )
    return actor, ValueOperator(value, in_keys=["seen"])


class Returns:
    """The returns of episodes, and discounted returns, whose standard deviation scales rewards: so values are of order
    1 in every task.
    """

    def __init__(self, num_envs: int, gamma: float, device: torch.device):
        self.gamma, self.norm = gamma, RunningValueNorm(device=device)
        self.discounted = torch.zeros(num_envs, device=device)
        # NaN, since the first episodes are partial, and not counted.
        self.episode = torch.full((num_envs,), torch.nan, device=device)

    def scale(self, reward: Tensor, done: Tensor) -> tuple[Tensor, Tensor]:
        """Rewards, scaled, and the returns of the episodes that ended, of rewards and flags (N, T, 1)."""
        discounted, returns = (torch.empty_like(reward[..., 0].T) for _ in range(2))
        going_on = (~done[..., 0]).float().T.contiguous()
        for t, r in enumerate(reward[..., 0].T.contiguous()):
            torch.add(r, self.discounted, alpha=self.gamma, out=discounted[t])
            torch.add(r, self.episode, out=returns[t])
            self.discounted = discounted[t] * going_on[t]
            self.episode = torch.where(going_on[t] > 0, returns[t], 0.0)
        self.norm.update(discounted[..., None])
        ended = returns.T[done[..., 0]]
        return reward / self.norm.scale(), ended[~ended.isnan()]

    def state_dict(self) -> dict[str, Any]:
        return {"norm": self.norm.state_dict(), "discounted": self.discounted, "episode": self.episode}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.norm.load_state_dict(state["norm"])
        self.discounted, self.episode = (state[name].to(self.episode.device) for name in ("discounted", "episode"))


class PPO:
    acts_by_rows = False

    def __init__(self, env: TorchRLEnv, settings: SimpleNamespace, seed: int):
        self.env, self.settings = env, settings
        s, n, device = settings, env.batch_size.numel(), env.device
        self.actor, self.critic = make_networks(env, s)
        self.moments = RunningMoments(*env.observation_spec_unbatched["observation"].shape, device=device)
        normalise = TensorDictModule(self.moments.normalise, in_keys=["observation"], out_keys=["seen"])
        self.policy = TensorDictSequential(normalise, self.actor)
        self.advantage = GAE(gamma=s.gamma, lmbda=s.lam, value_network=None, average_gae=False, device=device)
        self.loss = ClipPPOLoss(
            self.actor, self.critic, clip_epsilon=s.clip, entropy_bonus=s.entropy > 0, entropy_coeff=s.entropy,
            clip_value=s.value_clip or None, critic_coeff=s.value_weight, loss_critic_type="l2",
            normalize_advantage=True, log_explained_variance=False, functional=False, device=device,
        )  # fmt: skip
        self.parameters = list(self.loss.parameters())
        self.lr = torch.tensor(s.learning_rate, device=device)  # a tensor: a CUDA graph reads it
        on_gpu = device.type == "cuda"
        self.optimizer = torch.optim.Adam(self.parameters, lr=self.lr, eps=1e-5, fused=True, capturable=on_gpu)
        # With an entropy bonus or clipped values, TorchRL's loss reads numbers on the host, which a graph cannot.
        if on_gpu and not s.entropy and not s.value_clip:
            with warnings.catch_warnings(action="ignore"):  # about taking TensorDict from PyTree
                self.learn_from = CudaGraphModule(self.learn_from, warmup=3, in_keys=[], out_keys=[], device=device)
        self.returns = Returns(n, s.gamma, device)
        env.set_seed(seed)
        self.now = env.reset()
        # Worlds that reset together would keep doing so, every 1,000 steps, and the data would come in waves. So first
        # episodes start at random ages; their returns are partial, and NaN keeps them out of the statistics.
        engine = env.engine
        engine.elapsed_steps.copy_(torch.randint(engine.task.max_episode_steps, (n,)))
        self.finished: deque[float] = deque(maxlen=100)  # returns of the last episodes
        self.frames_seen = 0
        # Of an iteration: steps into bad states, and updates whose loss was not finite.
        self.bad_states, self.bad_updates = (torch.zeros((), dtype=torch.int64, device=device) for _ in range(2))

    def iterate(self) -> None:
        """One rollout and what is learnt from it."""
        progress = self.frames_seen / self.settings.total_steps
        self.lr.fill_(self.settings.learning_rate * (1 - 0.9 * progress))
        data = self.rollout()
        self.update(data)
        self.frames_seen += data.numel()

    @torch.no_grad()
    def rollout(self) -> TensorDictBase:
        """(N, T) frames with their advantages. The value at a truncation is exact, as ("next", "observation") has the
        last observation of an episode.
        """
        env = self.env
        data = env.rollout(
            self.settings.horizon, self.policy, tensordict=self.now, auto_reset=False, break_when_any_done=False
        )
        self.now = env.maybe_reset(env.step_mdp(data[:, -1]))  # a rollout's last step resets no world
        following = data["next"]
        self.bad_states = following["bad_state"].sum()
        following["reward"], ended = self.returns.scale(following["reward"], following["done"])
        self.finished.extend(ended.tolist())
        self.critic(data)
        value, last = data["state_value"], following["done"].clone()
        last[:, -1] = True  # elsewhere the next observation's value is among these already
        last_obs = following["observation"][last[..., 0]]
        following["state_value"] = value.roll(-1, 1)
        following["state_value"][last] = self.critic.module(self.moments.normalise(last_obs))[:, 0]
        self.moments.update(data["observation"].flatten(0, 1))  # from here on
        return self.advantage(data)

    def update(self, data: TensorDictBase) -> None:
        """Learn in a few passes over shuffled minibatches."""
        s = self.settings
        names = ("seen", "action", "action_log_prob", "state_value", "value_target", "advantage")
        frames = data.select(*names).flatten()
        self.bad_updates.zero_()
        for _ in range(s.epochs):
            order = torch.randperm(len(frames), device=frames.device)
            shuffled = frames.apply(lambda x: x.index_select(0, order))  # noqa: B023  all at once, which is cheaper
            for rows in shuffled.split(s.minibatch)[: len(frames) // s.minibatch]:
                self.learn_from(rows)

    def learn_from(self, rows: TensorDictBase) -> None:
        """Learn from a minibatch; on a GPU, as one CUDA graph."""
        found = self.loss(rows)
        loss = sum(x for name, x in found.items() if name.startswith("loss_"))
        self.bad_updates += ~loss.detach().isfinite()
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters, self.settings.max_grad_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()

    @torch.no_grad()
    def act(self, obs: Tensor) -> Tensor:
        """Actions (N, A) for observations (N, O) as Gymnasium gives them, without noise."""
        td = TensorDict({"seen": self.moments.normalise(obs)}, [len(obs)])
        with set_exploration_type(ExplorationType.DETERMINISTIC):
            return self.actor(td)["action"]

    def measures(self) -> dict[str, float]:
        """Numbers worth a curve."""
        return {"learning_rate": self.lr.item()}

    def faults(self) -> Faults:
        """What went wrong in the last iteration."""
        bad_weights = torch.stack([(~x.isfinite()).sum() for x in self.parameters]).sum()
        return Faults(*torch.stack([self.bad_states, self.bad_updates, bad_weights]).tolist())

    def networks(self) -> dict[str, Any]:
        """What policy.pt holds beside the id of the task, in the format of `torch_mjenvs.policy`."""
        found = {"activation": self.settings.activation, **self.moments.entries()}
        for name, network in (("", self.actor), ("value_", self.critic)):
            found |= network_entries(parameters_of(network, nn.Linear), parameters_of(network, nn.LayerNorm), name)
        return found

    def state_dict(self) -> dict[str, Any]:
        """The full state of training: a fresh PPO that loads it ends with the same bits."""
        return {
            "networks": self.loss.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "moments": self.moments.state_dict(),
            "worlds": self.env.engine.state_dict(),
            "returns": self.returns.state_dict(),
            "now": self.now.to_dict(),
            "finished": list(self.finished),
            "frames_seen": self.frames_seen,
            **random_state(self.env.device),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.loss.load_state_dict(state["networks"])
        load_optimizer(self.optimizer, state["optimizer"], self.lr)
        self.moments.load_state_dict(state["moments"])
        self.env.engine.load_state_dict(state["worlds"])
        self.returns.load_state_dict(state["returns"])
        self.now = TensorDict(state["now"], self.env.batch_size, device=self.env.device)
        self.finished.extend(state["finished"])
        self.frames_seen = state["frames_seen"]
        set_random_state(state, self.env.device)


def main(argv: list[str] | None = None) -> None:
    flags = {name: x for name, x in runs.settings().items() if name not in LEFT_OUT}
    args = runs.training_parser(__doc__.splitlines()[0], flags).parse_args(argv)
    env_id = task_id(args.env)
    settings = SimpleNamespace(**{name: x for name, x in runs.chosen(env_id, args).items() if name in flags})
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("medium")  # factors of products may be bfloat16

    env = make_env(env_id, settings.num_envs, args.device)
    agent = PPO(env, settings, args.seed)
    run = {"algorithm": "PPO by TorchRL", "env": env_id, "seed": args.seed, "settings": vars(settings)}
    with runs.folder(args.out, f"torchrl-{env_id}-{args.seed}", args.resume) as out:
        history = runs.train(agent, run, out, args)
        runs.finish(agent, run, out, args, history)


if __name__ == "__main__":
    main()

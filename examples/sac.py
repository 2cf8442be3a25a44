"""SAC of TorchRL's parts on one of the Torch tasks, scored at the end in Gymnasium's own. For those who have a GPU.

    python examples/sac.py --env TorchHalfCheetah-v0 --device cuda

Simulation is cheap here, and SAC's updates are not: on a CPU, PPO (`torch_mjenvs train`) comes to the same returns in a
fraction of the time.

Shapes: N worlds, T steps of them between updates.
"""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

import torch
from tensordict import TensorDict
from tensordict.nn import NormalParamExtractor, TensorDictModule
from torch import Tensor, nn
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.envs import ExplorationType, set_exploration_type
from torchrl.modules import MLP, ProbabilisticActor, TanhNormal, ValueOperator
from torchrl.objectives import SACLoss, SoftUpdate

from torch_mjenvs import TorchRLEnv
from torch_mjenvs.training import runs
from torch_mjenvs.training.health import Faults
from torch_mjenvs.training.settings import checked
from torch_mjenvs.training.worlds import task_id

SETTINGS = {
    "num_envs": 256,
    "total_steps": 5_000_000,  # frames, of all worlds together
    "horizon": 8,  # steps per world and iteration
    "updates": 64,  # per iteration
    "batch": 2048,
    "buffer": 1_000_000,  # frames that are kept to learn from
    "random_frames": 20_000,  # with random actions, before anything is learnt
    "learning_rate": 3e-4,
    "gamma": 0.99,
    "tau": 0.005,  # by which the target networks follow at each update
    "actor": (256, 256),  # units of the hidden layers
    "critic": (256, 256),
}


def make_networks(env: TorchRLEnv, s: SimpleNamespace) -> tuple[ProbabilisticActor, ValueOperator]:
    """A policy squashed into the box of actions, and a critic."""
    obs_dim, act_dim = env.observation_spec["observation"].shape[1], env.action_spec.shape[1]
    kind = dict(activation_class=nn.ReLU, device=env.device)
    space = env.action_spec_unbatched.space
    policy = MLP(in_features=obs_dim, out_features=2 * act_dim, num_cells=list(s.actor), **kind)
    normal = nn.Sequential(policy, NormalParamExtractor(scale_mapping="biased_softplus_1.0", scale_lb=0.01))
    actor = ProbabilisticActor(
        TensorDictModule(normal, in_keys=["observation"], out_keys=["loc", "scale"]),
        in_keys=["loc", "scale"],
        spec=env.action_spec_unbatched,
        distribution_class=TanhNormal,
        distribution_kwargs={"low": space.low, "high": space.high, "tanh_loc": False},
        default_interaction_type=ExplorationType.RANDOM,
    )
    critic = MLP(in_features=obs_dim + act_dim, out_features=1, num_cells=list(s.critic), **kind)
    return actor, ValueOperator(critic, in_keys=["observation", "action"])


class SAC:
    def __init__(self, env: TorchRLEnv, settings: SimpleNamespace, seed: int):
        self.env, self.settings = env, settings
        s, n, device = settings, env.num_envs, env.device
        self.actor, critic = make_networks(env, s)
        self.loss = SACLoss(
            self.actor, critic, num_qvalue_nets=2, loss_function="l2", action_spec=env.action_spec_unbatched
        )
        self.loss.make_value_estimator(gamma=s.gamma)
        self.target = SoftUpdate(self.loss, tau=s.tau)
        self.parameters = [x for x in self.loss.parameters() if x.requires_grad]
        self.optimizer = torch.optim.Adam(self.parameters, lr=s.learning_rate)
        storage = LazyTensorStorage(s.buffer, device=device)
        self.buffer = TensorDictReplayBuffer(storage=storage, batch_size=s.batch, prefetch=0)
        env.set_seed(seed)
        self.now = env.reset()
        # Worlds that reset together would keep doing so, and the data would come in waves: so first episodes start at
        # random ages. Their returns are partial, and NaN keeps them out of the statistics.
        env.engine.elapsed_steps.copy_(torch.randint(env.engine.max_episode_steps, (n,)))
        self.episode_return = torch.full((n,), torch.nan, device=device)
        self.finished: deque[float] = deque(maxlen=100)  # returns of the last episodes
        self.frames_seen = 0
        self.losses: dict[str, float] = {}
        # Of an iteration: steps into bad states, and updates whose loss was not finite.
        self.bad_states, self.bad_updates = (torch.zeros((), dtype=torch.int64, device=device) for _ in range(2))

    def iterate(self) -> None:
        """A few steps of every world, and what is learnt from all that was kept."""
        s = self.settings
        self.bad_states.zero_(), self.bad_updates.zero_()
        self.collect()
        if self.frames_seen >= s.random_frames:
            for _ in range(s.updates):
                found = self.learn_from(self.buffer.sample())
            self.losses = {name: float(found[name]) for name in ("loss_actor", "loss_qvalue", "alpha", "entropy")}

    @torch.no_grad()
    def collect(self) -> None:
        """What is kept has the true last observation of an episode in ("next", "observation")."""
        policy = self.actor if self.frames_seen >= self.settings.random_frames else self.env.rand_action
        for _ in range(self.settings.horizon):
            td, self.now = self.env.step_and_maybe_reset(policy(self.now))
            self.buffer.extend(td.select("observation", "action", "next"))
            self.bad_states += self.env.engine.bad_state.sum()
            self.episode_return += td["next", "reward"][:, 0]
            done = td["next", "done"][:, 0]
            self.finished.extend(self.episode_return[done & ~self.episode_return.isnan()].tolist())
            self.episode_return.masked_fill_(done, 0)
            self.frames_seen += len(td)

    def learn_from(self, rows: TensorDict) -> TensorDict:
        """One step of all networks, and of the temperature. Each loss has gradients for its own alone."""
        found = self.loss(rows)
        self.optimizer.zero_grad()
        loss = found["loss_actor"] + found["loss_qvalue"] + found["loss_alpha"]
        self.bad_updates += ~loss.detach().isfinite()
        loss.backward()
        self.optimizer.step()
        self.target.step()
        return found.detach()

    @torch.no_grad()
    def act(self, obs: Tensor) -> Tensor:
        """Actions (N, A) without noise."""
        td = TensorDict({"observation": obs}, [len(obs)], device=obs.device)
        with set_exploration_type(ExplorationType.DETERMINISTIC):
            return self.actor(td)["action"]

    def measures(self) -> dict[str, float]:
        """Numbers worth a curve."""
        return self.losses

    def faults(self) -> Faults:
        """What went wrong in the last iteration."""
        bad_weights = torch.stack([(~x.isfinite()).sum() for x in self.parameters]).sum()
        return Faults(*torch.stack([self.bad_states, self.bad_updates, bad_weights]).tolist())

    def networks(self) -> dict[str, Any]:
        """What policy.pt holds beside the id of the task."""
        return {"networks": self.loss.state_dict()}

    def state_dict(self) -> dict[str, Any]:
        """All that training goes on from: the same run, loaded into a fresh SAC, ends with the same bits."""
        return {
            "loss": self.loss.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "worlds": self.env.engine.state_dict(),
            "buffer": self.buffer[:].to_dict() if len(self.buffer) else {},
            "cursor": self.buffer.writer._cursor,
            "now": self.now.to_dict(),
            "episode_return": self.episode_return,
            "finished": list(self.finished),
            "frames_seen": self.frames_seen,
            "random": torch.get_rng_state(),
            "cuda_random": torch.cuda.get_rng_state_all() if self.env.device.type == "cuda" else [],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.loss.load_state_dict(state["loss"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.env.engine.load_state_dict(state["worlds"])
        for group in self.optimizer.param_groups:
            group["lr"] = self.settings.learning_rate  # which may be another when a run is resumed
        if state["buffer"]:
            self.buffer.extend(TensorDict(state["buffer"], device=self.env.device).auto_batch_size_(1))
        self.buffer.writer._cursor = state["cursor"]
        self.now = TensorDict(state["now"], self.env.batch_size, device=self.env.device)
        self.episode_return.copy_(state["episode_return"])
        self.finished.extend(state["finished"])
        self.frames_seen = state["frames_seen"]
        torch.set_rng_state(state["random"].cpu())
        torch.cuda.set_rng_state_all(state["cuda_random"])


def main(argv: list[str] | None = None) -> None:
    args = runs.training_parser(__doc__.splitlines()[0], SETTINGS).parse_args(argv)
    env_id = task_id(args.env)
    settings = SimpleNamespace(**checked(SETTINGS | runs.given(args, SETTINGS)))
    torch.manual_seed(args.seed)
    env = TorchRLEnv(env_id.removeprefix("Torch").removesuffix("-v0"), settings.num_envs, device=args.device)
    agent = SAC(env, settings, args.seed)
    run = {"algorithm": "SAC by TorchRL", "env": env_id, "seed": args.seed, "settings": vars(settings)}
    with runs.folder(args.out, f"sac-{env_id}-{args.seed}", args.resume) as out:
        history = runs.train(agent, run, out, args)
        runs.finish(agent, run, out, args, history)


if __name__ == "__main__":
    main()

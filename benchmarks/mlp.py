"""PPO of other libraries on the CPU, with their own networks and with `torch_mjenvs.training.mlp.MLP`, in turns.

    python -m benchmarks.mlp                        # needs pip install '.[libraries]'
    python -m benchmarks.mlp --only CleanRL --hidden 64,64 --turns 3

Stable-Baselines3 and rsl_rl are the libraries' own code, whose networks are replaced after they are made. CleanRL is
scripts to be copied, so its continuous PPO is written here anew, with its settings: normalised advantages, clipped
values, a clipped norm, Adam, one minibatch after the other. All train on 64 worlds of HalfCheetah, with minibatches of
512 frames and four epochs, on one thread; times are of the processor. "iteration" is rollout and update together.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import torch
from torch import Tensor, nn

import torch_mjenvs  # noqa: F401 (registers the tasks)
from torch_mjenvs.adapters import RslRlVecEnv, SB3VecEnv
from torch_mjenvs.training.mlp import MLP

from . import machine
from .report import table

DATA = Path(__file__).parent / "results" / "mlp.json"
TASK, WORLDS, STEPS, MINIBATCH, EPOCHS = "TorchHalfCheetah-v0", 64, 64, 512, 4
WAYS = {"own": None, "float32": "highest", "bfloat16": "medium"}  # torch's precision of products with MLP


class Learner:
    """A learner of some library: `iterate` makes a rollout and an update, of which `seconds` are the latter's."""

    iterate: Callable[[], None]
    seconds = 0.0

    def timed(self, update: Callable[..., Any]) -> Callable[..., Any]:
        """Return an update whose time counts."""

        def run(*args: Any, **more: Any) -> Any:
            start = time.process_time()
            found = update(*args, **more)
            self.seconds += time.process_time() - start
            return found

        return run


def worlds() -> Any:
    return gymnasium.make_vec(TASK, num_envs=WORLDS, autoreset_mode="SameStep")


# -- CleanRL's loop ----------------------------------------------------------------------------------------------------


def dense(inputs: int, hidden: list[int], outputs: int, gain: float) -> nn.Sequential:
    layers: list[nn.Module] = []
    for n in hidden:
        layers += [nn.Linear(inputs, n), nn.Tanh()]
        inputs = n
    layers.append(nn.Linear(inputs, outputs))
    for layer in layers[::2]:
        nn.init.orthogonal_(layer.weight, gain if layer is layers[-1] else 2**0.5)  # type: ignore[arg-type]
        nn.init.zeros_(layer.bias)  # type: ignore[arg-type]
    return nn.Sequential(*layers)


class CleanRL(Learner):
    def __init__(self, hidden: list[int], ours: bool):
        self.env = worlds()
        (inputs,), (actions,) = self.env.single_observation_space.shape, self.env.single_action_space.shape
        self.actor, self.critic = dense(inputs, hidden, actions, 0.01), dense(inputs, hidden, 1, 1.0)
        if ours:
            self.actor, self.critic = MLP(*self.actor), MLP(*self.critic)
        self.log_std = nn.Parameter(torch.zeros(1, actions))
        self.parameters = [*self.actor.parameters(), *self.critic.parameters(), self.log_std]
        self.optimizer = torch.optim.Adam(self.parameters, lr=3e-4, eps=1e-5)
        self.obs = self.env.reset(seed=0)[0]
        self.update = self.timed(self._update)

    def distribution(self, obs: Tensor) -> torch.distributions.Normal:
        mean = self.actor(obs)
        return torch.distributions.Normal(mean, self.log_std.expand_as(mean).exp())

    def iterate(self) -> None:
        rows: list[tuple[Tensor, ...]] = []
        with torch.no_grad():
            for _ in range(STEPS):
                policy = self.distribution(self.obs)
                action = policy.sample()
                before, value = self.obs, self.critic(self.obs)[:, 0]
                self.obs, reward, terminated, truncated, _ = self.env.step(action)
                done = (terminated | truncated).float()
                rows.append((before, action, policy.log_prob(action).sum(1), reward, done, value))
            obs, actions, log_probs, rewards, dones, values = map(torch.stack, zip(*rows, strict=True))
            advantages, last = torch.zeros_like(rewards), torch.zeros(WORLDS)
            following = self.critic(self.obs)[:, 0]
            for t in reversed(range(STEPS)):
                delta = rewards[t] + 0.99 * following * (1 - dones[t]) - values[t]
                advantages[t] = last = delta + 0.99 * 0.95 * (1 - dones[t]) * last
                following = values[t]
        self.update(*(x.flatten(0, 1) for x in (obs, actions, log_probs, advantages, advantages + values, values)))

    def _update(
        self, obs: Tensor, actions: Tensor, log_probs: Tensor, advantages: Tensor, returns: Tensor, values: Tensor
    ) -> None:
        for _ in range(EPOCHS):
            for rows in torch.randperm(len(obs)).split(MINIBATCH):
                policy = self.distribution(obs[rows])
                log_ratio = policy.log_prob(actions[rows]).sum(1) - log_probs[rows]
                ratio, entropy = log_ratio.exp(), policy.entropy().sum(1)
                with torch.no_grad():
                    ((ratio - 1) - log_ratio).mean()
                    ((ratio - 1).abs() > 0.2).float().mean().item()
                gain = advantages[rows]
                gain = (gain - gain.mean()) / (gain.std() + 1e-8)
                policy_loss = torch.max(-gain * ratio, -gain * ratio.clamp(0.8, 1.2)).mean()
                value = self.critic(obs[rows]).view(-1)
                held = values[rows] + (value - values[rows]).clamp(-0.2, 0.2)
                errors = torch.max((value - returns[rows]) ** 2, (held - returns[rows]) ** 2)
                loss = policy_loss - 0.0 * entropy.mean() + 0.5 * 0.5 * errors.mean()
                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.parameters, 0.5)
                self.optimizer.step()


# -- Libraries ---------------------------------------------------------------------------------------------------------


class StableBaselines3(Learner):
    """Its networks end with an activation, and the last dense layer stands apart. With MLP, one network with both takes
    that layer's place.
    """

    def __init__(self, hidden: list[int], ours: bool):
        from stable_baselines3 import PPO

        sizes = {"n_steps": STEPS, "batch_size": MINIBATCH, "n_epochs": EPOCHS}
        kind = {"net_arch": hidden, "activation_fn": nn.Tanh}
        model = PPO("MlpPolicy", SB3VecEnv(worlds()), **sizes, policy_kwargs=kind, seed=0, device="cpu")
        policy: Any = model.policy
        if ours:
            parts = policy.mlp_extractor
            policy.action_net = MLP(*parts.policy_net, policy.action_net)
            policy.value_net = MLP(*parts.value_net, policy.value_net)
            parts.policy_net = parts.value_net = nn.Identity()
        model.train = self.timed(model.train)  # type: ignore[method-assign]
        self.iterate = lambda: model.learn(WORLDS * STEPS, reset_num_timesteps=False) and None


class RslRl(Learner):
    def __init__(self, hidden: list[int], ours: bool):
        from rsl_rl.runners import OnPolicyRunner

        env = RslRlVecEnv(worlds(), seed=0)
        network = {"class_name": "MLPModel", "hidden_dims": hidden, "activation": "tanh", "obs_normalization": True}
        batches = WORLDS * STEPS // MINIBATCH
        config = {
            "num_steps_per_env": STEPS, "save_interval": 10**9,
            "obs_groups": {"actor": ["policy"], "critic": ["policy"]},
            "actor": network | {"distribution_cfg": {"class_name": "GaussianDistribution", "init_std": 1.0}},
            "critic": network,
            "algorithm": {"class_name": "PPO", "num_learning_epochs": EPOCHS, "num_mini_batches": batches},
        }  # fmt: skip
        runner: Any = OnPolicyRunner(env, config, log_dir=None, device="cpu")
        if ours:
            for model in (runner.alg.actor, runner.alg.critic):
                model.mlp = MLP(*model.mlp)
        runner.alg.update = self.timed(runner.alg.update)
        self.iterate = lambda: runner.learn(1)


LIBRARIES: dict[str, type] = {"CleanRL": CleanRL, "Stable-Baselines3": StableBaselines3, "rsl_rl": RslRl}


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep what libraries print, and warn of, to themselves."""
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def compared(name: str, hidden: list[int], turns: int) -> dict[str, list[float]]:
    """Return, for each of WAYS, the medians of milliseconds of an update, and of an iteration."""
    torch.manual_seed(0)
    learners = {way: LIBRARIES[name](hidden, precision is not None) for way, precision in WAYS.items()}
    found: dict[str, list[tuple[float, float]]] = {way: [] for way in learners}
    for turn in range(turns + 1):
        for way, learner in learners.items():
            torch.set_float32_matmul_precision(WAYS[way] or "highest")
            learner.seconds, start = 0.0, time.process_time()
            learner.iterate()
            if turn:  # the first one allocates
                found[way].append((learner.seconds, time.process_time() - start))
    torch.set_float32_matmul_precision("highest")
    pairs = {way: zip(*times, strict=True) for way, times in found.items()}
    return {way: [round(1e3 * statistics.median(x), 2) for x in columns] for way, columns in pairs.items()}


def show(rows: list[dict[str, Any]]) -> str:
    header = ["library", "hidden units", "update, ms"]
    header += [f"with `MLP`, {way}" for way in ("float32", "bfloat16")]
    header += ["iteration, ms", *(f"with `MLP`, {way}" for way in ("float32", "bfloat16"))]
    lines = []
    for row in rows:
        line = [row["library"], row["hidden"].replace(",", ", ")]
        for k in (0, 1):
            own = row["own"][k]
            line += [f"{own:.0f}", *(f"{row[way][k]:.0f}, {own / row[way][k]:.2f}x" for way in ("float32", "bfloat16"))]
        lines.append(line)
    return table(header, lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=LIBRARIES, default=list(LIBRARIES))
    parser.add_argument("--hidden", nargs="*", default=["64,64", "256,256"], help="units of hidden layers")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--write", action="store_true", help="keep the results in benchmarks/results/mlp.json")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for hidden in args.hidden:
        for name in args.only:
            with quiet():
                times = compared(name, [int(n) for n in hidden.split(",")], args.turns)
            rows.append({"library": name, "hidden": hidden, **times})
    if args.write:
        lines = ",\n  ".join(map(json.dumps, rows))
        DATA.write_text(f'{{"machine": {json.dumps(machine.describe())}, "milliseconds": [\n  {lines}\n]}}\n')
    print(show(rows))


if __name__ == "__main__":
    main()

"""Random training runs, tried in many ways.

    python tests/tried_runs.py --seed 0 --count 30

`resume`: a run that is killed, interrupted, and short of disk is the run that nothing befell, bit for bit, and all of
its files can be read at any time. `learn`: what a learner makes of a rollout is what plain torch makes of it. `files`:
a saved policy acts, is scored and is exported as the one that was trained. `matters`: no setting is without effect.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import json
import math
import os
import re
import resource
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import random_runs
import torch
from random_runs import Plan
from task_runs import Wrong, demand, tell
from torch import nn

from torch_mjenvs import Policy, files
from torch_mjenvs.__main__ import main as command
from torch_mjenvs.compiler import loader
from torch_mjenvs.networks.layers import EPS
from torch_mjenvs.policy import ACTIVATIONS
from torch_mjenvs.training import checkpoints, ppo, runs, sac, train
from torch_mjenvs.training.sharing import ALONE
from torch_mjenvs.training.statistics import measures
from torch_mjenvs.training.task_flags import arguments
from torch_mjenvs.training.undisturbed import undisturbed
from torch_mjenvs.training.worlds import make

# resume


def trained(plan: Plan, out: Path, length: int, **changed: str) -> str:
    """Train up to this length, from where the folder's run is; return what was printed."""
    flags = [*plan.argv(**changed), "--total-steps", str(length), "--out", str(out)]
    if (out / "checkpoint.pt").exists():
        flags.append("--resume")
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        train.main(flags)
    return said.getvalue()


def befallen(plan: Plan, out: Path, length: int, event: tuple[str, int]) -> int:
    """Train in a child that something befalls; return its status, negative for a signal."""
    what, number = event
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        _prepare(what, number)
        said = trained(plan, out, length)
        os.write(2, b"" if said else b"it said nothing\n")
        os._exit(0)
    except SystemExit as end:
        os._exit(end.code if isinstance(end.code, int) else 1)
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
        os._exit(99)


def _prepare(what: str, number: int) -> None:
    """Have the process killed at a moment of writing a file, signalled in an iteration, or short of disk."""
    seen = 0

    def at(function: Callable[..., Any], signals: signal.Signals) -> Callable[..., Any]:
        def counted(*given: Any, **named: Any) -> Any:
            nonlocal seen
            seen += 1
            if seen == number:
                os.kill(os.getpid(), signals)
            return function(*given, **named)

        return counted

    if what == "kill":  # at whatever changes a file
        files.os.fsync = at(os.fsync, signal.SIGKILL)
        for name in ("replace", "open", "unlink"):
            setattr(Path, name, at(getattr(Path, name), signal.SIGKILL))
    elif what == "full":
        resource.setrlimit(resource.RLIMIT_FSIZE, (400 * number, resource.RLIM_INFINITY))
    else:
        signals = signal.SIGTERM if what == "term" else signal.SIGINT
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for kind in (ppo.PPO, sac.SAC):
            kind.iterate = at(kind.iterate, signals)  # type: ignore[method-assign]


def check_readable(out: Path) -> None:
    """Demand that all files of a run are whole."""
    for name in ("policy.pt", "best.pt"):
        if (out / name).exists():
            policy = Policy.load(out / name)
            demand(all(x.isfinite().all() for x in policy.parameters()), f"{name} has numbers that are not finite")
    if (out / "checkpoint.pt").exists():
        checkpoints.load(out / "checkpoint.pt", ("run", "agent", "history", "seconds"))
    if (out / "result.json").exists():
        result = json.loads((out / "result.json").read_text(), parse_constant=lambda x: demand(False, f"JSON has {x}"))
        policy = torch.load(out / "policy.pt", weights_only=True)
        state = checkpoints.load(out / "checkpoint.pt", ("agent",))["agent"]
        if state["frames_seen"] == result["frames"]:
            demand(not differences(moments(state), policy_moments(policy)), "the scores are of another policy's")


def moments(state: dict[str, Any]) -> dict[str, Any]:
    return {name: state["obs_moments"][name] for name in ("mean", "var")}


def policy_moments(policy: dict[str, Any]) -> dict[str, Any]:
    return {"mean": policy["obs_mean"], "var": policy["obs_var"]}


def differences(x: Any, y: Any, name: str = "") -> list[str]:
    """Return the names of what is not the same in two trees."""
    if isinstance(x, dict) and isinstance(y, dict):
        names = [f"{name}/{key} in one only" for key in x.keys() ^ y.keys()]
        return names + [found for key in x.keys() & y.keys() for found in differences(x[key], y[key], f"{name}/{key}")]
    if isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor):
        same = x.shape == y.shape and x.dtype == y.dtype and torch.equal(x.nan_to_num(7e7), y.nan_to_num(7e7))
        return [] if same else [name]
    return [] if x == y or (x != x and y != y) else [f"{name}: {x!r} and {y!r}"[:200]]


def contents(out: Path) -> dict[str, Any]:
    """Return what a run has left, but for times and folders."""
    checkpoint = torch.load(out / "checkpoint.pt", weights_only=True)
    history, result = checkpoint["history"], json.loads((out / "result.json").read_text())
    found = {
        name: torch.load(out / name, weights_only=True) for name in ("policy.pt", "best.pt") if (out / name).exists()
    }
    history = {name: x for name, x in history.items() if name != "evaluating"}  # none, at the end
    for x in (history, result):
        for name in ("curve", "evaluations"):
            x[name] = [row[1:] for row in x[name]]
    agent = {name: x for name, x in checkpoint["agent"].items() if name != "cuda_random"}
    return found | {"agent": agent, "history": history, "result": result}


def check_resume(plan: Plan, folder: Path) -> None:
    whole, parted = folder / "whole", folder / "parted"
    events = [*plan.events]
    for length in plan.lengths:
        trained(plan, whole, length)
        while events:
            what, number = events.pop()
            status = befallen(plan, parted, length, (what, number))
            expected = {
                "kill": (0, -signal.SIGKILL), "full": (0, 1), "term": (0, 128 + signal.SIGTERM),
                "int": (0, 128 + signal.SIGINT),
            }[what]  # fmt: skip
            demand(status in expected, f"{what} ends with status {status}")
            check_readable(parted)
            if number % 2:
                break  # the others come later
        trained(plan, parted, length)
        check_readable(parted)
    found = differences(contents(whole), contents(parted))
    demand(not found, "a run that went on is another one", *found)


# learn


@contextlib.contextmanager
def agent_of(plan: Plan, length: int, **changed: str) -> Iterator[Any]:
    """Make the learner of a run."""
    argv = [*plan.argv(**changed), "--total-steps", str(length)]
    algorithm, parser = train.chosen(argv)
    args, env_id, task = runs.parsed(parser, argv)
    with undisturbed("cpu"), contextlib.redirect_stderr(io.StringIO()):
        settings = runs.chosen(env_id, args, algorithm.settings)
        ways = algorithm.ways(args, settings, ALONE)
        torch.manual_seed(args.seed)
        env = make(env_id, settings["num_envs"], "cpu", **arguments(env_id, task))
        yield algorithm.make(env, settings, args.seed, dict(args.obs_groups or ()), ALONE, **ways)
        env.close()


def plain_network(entries: dict[str, Any], prefix: str, rows: torch.Tensor) -> torch.Tensor:
    """Run a network of a policy's file on normalised observations, by plain torch."""
    x = rows.double()
    activation = ACTIVATIONS[entries["activation"]]()
    for k in range(100):
        weight, bias = entries[f"{prefix}weights{k}"][0].double(), entries[f"{prefix}biases{k}"][0, 0].double()
        x = x @ weight.T + bias
        if f"{prefix}weights{k + 1}" not in entries:
            return x
        if f"{prefix}gains{k}" in entries:
            gain, shift = (entries[f"{prefix}{name}{k}"][0, 0].double() for name in ("gains", "shifts"))
            x = nn.functional.layer_norm(x, x.shape[-1:], gain, shift, EPS)
        x = activation(x)
    raise AssertionError


def close(x: torch.Tensor, y: torch.Tensor, bound: float, what: str) -> None:
    """Demand that x is y, up to this share of 1, or of y's largest number if that is more."""
    error, most = float((x.double() - y.double()).abs().max()), max(1.0, float(y.abs().max()))
    demand(x.isfinite().all() and error <= bound * most + 1e-30, what, f"off by {error:.3g} of {most:.3g}")


def check_learn(plan: Plan, folder: Path) -> None:
    """Two iterations of PPO, of which all that can be computed otherwise is."""
    if "algorithm" in plan.flags:
        return
    with agent_of(plan, plan.lengths[0]) as agent:
        agent.iterate()
        for _ in range(2):
            _check_iteration(agent)


def _check_iteration(agent: ppo.PPO) -> None:
    s, net = agent.settings, agent.net
    rounded = agent.compiled_update is not None and agent.compiled_update.minibatch.rounded
    rounded |= torch.get_float32_matmul_precision() != "highest"
    # Factors have 8 bits then. Layer norm of few units divides by a spread that may be as small as their rounding.
    unsure = rounded and s.norm == "layer" and min(*s.actor, *s.critic) < 8
    lenient = math.inf if unsure else 200.0 if rounded else 1.0
    of_gradient = math.inf if unsure else 0.15 if rounded else 0.0
    if s.target_kl == 0:
        agent.lr.fill_(s.learning_rate)
    net.log_std.clamp_(s.log_std_min, s.log_std_max)
    agent.bad_updates.zero_()
    before = {name: x.clone() for name, x in vars(agent.obs_moments).items() if isinstance(x, torch.Tensor)}
    count, returns = agent.obs_moments.count, {
        "var": agent.return_moments.var.clone(), "mean": agent.return_moments.mean.clone(),
        "count": agent.return_moments.count, "discounted": agent.discounted_return.clone(),
    }  # fmt: skip
    entries = agent.networks()
    data = {name: x.clone() for name, x in agent.rollout().items()}
    agent.prepare(data)

    # The frames
    T, N = data["reward"].shape

    def normal(obs: torch.Tensor) -> torch.Tensor:
        x = (obs.double() - before["mean"].double()) * (before["var"].double() + 1e-8).rsqrt()
        return x.clamp(-10, 10)

    obs = normal(data["obs"].float())
    means, values = (plain_network(entries, name, obs) for name in ("", "value_"))
    value = values[..., 0]
    close(data["value"], value, 1e-4 * lenient, "values are not those of the network")
    std = net.log_std.double().exp()
    close(
        data["action"].flatten(2) - data["noise"] * std, means, 1e-4 * lenient, "actions are not those of the network"
    )
    done, cut = data["terminated"] | data["truncated"], data["truncated"] & ~data["terminated"]
    discounted, sums = returns["discounted"].double(), []
    for t in range(T):
        discounted = s.gamma * discounted + data["reward"][t].double()
        sums.append(discounted)
        discounted = torch.where(done[t], 0.0, discounted)
    sums = torch.stack(sums).flatten()
    share = len(sums) / (returns["count"] + len(sums))
    delta = sums.mean() - returns["mean"].double()
    var = returns["var"].double()
    var = var + share * (sums.var(correction=0) - var) + share * (1 - share) * delta.square()
    most = float(sums.abs().max()) ** 2
    demand(abs(float(agent.return_moments.var) - float(var)) <= 1e-5 * float(var) + 1e-9 * most, "the rewards' scale")
    spread = [x.double() for x in (agent.return_moments.var, (0.1 * agent.return_moments.mean).square())]
    scale = (torch.maximum(*spread) + 1e-8).rsqrt()
    after = plain_network(entries, "value_", normal(data["final_obs"].float()))[..., 0]
    last = plain_network(entries, "value_", normal(data["next_obs"].float()))[..., 0]
    advantage, advantages = torch.zeros(N, dtype=torch.float64), torch.zeros(T, N, dtype=torch.float64)
    following = torch.cat([value[1:], last[None]])
    for t in reversed(range(T)):
        worth = torch.where(data["terminated"][t], 0.0, torch.where(cut[t], after[t], following[t]))
        error = data["reward"][t].double() * scale + s.gamma * worth - value[t]
        advantage = error + s.gamma * s.lam * torch.where(done[t], 0.0, advantage)
        advantages[t] = advantage
    log_prob = -0.5 * data["noise"].double().square().sum(2) - net.log_std.double().sum()
    size = max(1.0, float(advantages.abs().max()))
    others = (log_prob, advantages, advantages + value)
    frames = torch.cat([obs, data["action"].flatten(2).double(), *(x[..., None] for x in others)], 2).flatten(0, 1)
    for k, name in enumerate(("observations", "actions", "log-probabilities", "advantages", "targets")):
        mine, plain = agent.frames.split(agent.columns, 1)[k].double(), frames.split(agent.columns, 1)[k]
        bound = {0: 1e-4, 1: 0.0, 2: 1e-5}.get(k, 1e-4 * lenient * size)
        demand(
            (mine - plain).abs().max() <= bound * max(1.0, float(plain.abs().max()) if k else 1.0), f"{name} of frames"
        )
    rows = data["obs"].flatten(0, 1).double()
    share = len(rows) / (count + len(rows))
    delta = rows.mean(0) - before["mean"].double()
    mean = before["mean"].double() + share * delta
    close(agent.obs_moments.mean, mean, 1e-5, "means of observations")

    # The gradient of a minibatch, its statistics and Adam's step
    size = min(len(agent.frames), s.minibatch)
    order = torch.randperm(len(agent.frames))[:size]
    theta, state = net.theta.clone(), {
        name: x.clone() if isinstance(x, torch.Tensor) else x
        for name, x in agent.optimizer.state[net.theta].items()
    }  # fmt: skip
    found = measures(agent.epoch(order, size))
    mine = agent.compiled_update.gradient if agent.compiled_update else None
    moved = net.theta.clone()
    net.theta.copy_(theta)
    expected, loss = plain_gradient(agent, agent.frames[order])
    norm = float(expected.norm())
    given = agent.frames[order].double().split(agent.columns, 1)[3]
    digits = 1e-4 + 3e-7 * float(given.abs().max() / (given.std() + 1e-8))  # of normalised advantages
    bound = max(of_gradient, digits) * norm + 1e-6
    if mine is not None:
        error = float((mine.double() - expected).norm())
        demand(error <= bound, "the gradient", f"{error:.3g} of {norm:.3g}")
    demand(abs(found["grad_norm"] - norm) <= bound, "grad_norm", found, norm)
    for name, x in loss.items():
        bound = max(of_gradient, 1e-3 + 10 * digits) * max(1.0, abs(x))
        demand(abs(found[name] - x) <= bound, f"the statistic {name}", found[name], x)
    if mine is None:
        clipped = net.grad.double()
    else:
        clipped = mine.double() * min(1.0, s.max_grad_norm / (float(mine.norm()) + 1e-6))
    first = 0.9 * state["exp_avg"].double() + 0.1 * clipped
    second = 0.999 * state["exp_avg_sq"].double() + 0.001 * clipped.square()
    step = float(state["step"]) + 1
    move = first / (1 - 0.9**step) / ((second / (1 - 0.999**step)).sqrt() + 1e-5)
    wanted = theta.double() - float(agent.lr) * move
    demand((moved.double() - wanted).abs().max() <= 1e-3 * float(agent.lr) + 1e-6, "Adam's step")
    agent.net.theta.copy_(moved)
    demand(not agent.faults().divergence(len(agent.frames)), "it diverges", str(agent.faults()))


def plain_gradient(agent: ppo.PPO, rows: torch.Tensor) -> tuple[torch.Tensor, dict[str, float]]:
    """Return the gradient of PPO's loss, by autograd in float64, and statistics."""
    s, net = agent.settings, agent.net
    obs, action, old, advantage, target = rows.double().split(agent.columns, 1)
    with torch.enable_grad():
        leaf = net.theta.double().requires_grad_()

        def of(x: torch.Tensor) -> torch.Tensor:
            return leaf.as_strided(x.shape, x.stride(), x.storage_offset())

        outputs = []
        activation = ACTIVATIONS[net.activation]()
        for layers, norms in zip((net.policy, net.value), net.norms, strict=True):
            x = obs
            for k, (weight, bias) in enumerate(layers):
                x = x @ of(weight).T + of(bias)
                if k < len(layers) - 1:
                    x = nn.functional.layer_norm(x, x.shape[-1:], of(norms[k][0]), of(norms[k][1]), EPS) if norms else x
                    x = activation(x)
            outputs.append(x)
        mean, value = outputs[0], outputs[1][:, 0]
        log_std = of(net.log_std)
        log_prob = -0.5 * ((action - mean) * (-log_std).exp()).square().sum(1) - log_std.sum()
        ratio = (log_prob - old[:, 0]).exp()
        normed = (advantage[:, 0] - advantage.mean()) / (advantage.std() + 1e-8)
        gain = torch.minimum(ratio * normed, ratio.clamp(1 - s.clip, 1 + s.clip) * normed)
        error = (value - target[:, 0]).square()
        whole = error
        if s.value_clip:
            before = (target - advantage)[:, 0]
            held = before + (value - before).clamp(-s.value_clip, s.value_clip)
            whole = torch.maximum(error, (held - target[:, 0]).square())
        loss = -gain.mean() + s.value_weight * whole.mean() - s.entropy * log_std.sum()
        (grad,) = torch.autograd.grad(loss, leaf)
    if (unseen := ppo.trained(net)) is not None:
        grad = grad * unseen
    ratio, value = ratio.detach(), value.detach()
    spread = float(target.var(correction=0))
    off = float((value - target[:, 0]).var(correction=0))
    found = {
        "approx_kl": float((ratio - 1 - ratio.log()).mean()),
        "clip_fraction": float(((ratio - 1).abs() > s.clip).double().mean()),
        "policy_loss": -float(gain.mean()), "value_loss": float(error.mean()),
    }  # fmt: skip
    if spread > 1e-4 * float(target.square().mean()):
        found["explained_variance"] = 1 - off / spread
    return grad.detach(), found


# files


def check_files(plan: Plan, folder: Path) -> None:
    """Saved and exported, a policy does what the trained one does, and scores what the run says."""
    out = folder / "run"
    trained(plan, out, plan.lengths[0], **({} if "algorithm" in plan.flags else {"precision": "float32"}))
    policy, result = Policy.load(out), json.loads((out / "result.json").read_text())
    with agent_of(plan, plan.lengths[0], **({} if "algorithm" in plan.flags else {"precision": "float32"})) as agent:
        agent.load_state_dict(torch.load(out / "checkpoint.pt", weights_only=True)["agent"])
        parts = agent.seen.parts
        rows = torch.randn(50, parts.size) * (agent.obs_moments.var + 1e-8).sqrt() * 3 + agent.obs_moments.mean
        rows[0] = 1e8
        rows[1] = -1e30
        wanted = agent.act(rows).clone()
        columns = list(range(rows.shape[1]))
    if agent.seen.groups:
        columns = agent.seen.parts.columns(agent.seen.groups["policy"])
    own = rows[:, columns]
    given = policy(own)
    size = max(1.0, float(wanted.abs().max()))
    demand((given - wanted).abs().max() <= 2e-4 * size, "a saved policy acts otherwise", (given - wanted).abs().max())
    for kind in ("npz", "ts"):
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            command(["export", str(out), "--task", plan.flags["env"], str(folder / f"p.{kind}")])
    scripted = torch.jit.load(str(folder / "p.ts"))(own)
    demand(torch.equal(scripted, given), "TorchScript acts otherwise")
    arrays = np.load(folder / "p.npz")
    demand(np.abs(by_numpy(arrays, own.numpy()) - given.numpy()).max() <= 2e-5 * size, "NumPy acts otherwise")
    policy.save(folder / "again.pt")
    demand(torch.equal(Policy.load(folder / "again.pt")(own), given), "saved again, it acts otherwise")
    said = io.StringIO()
    seed = str(int(plan.flags["seed"]) + 1)
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(io.StringIO()):
        command(["score", "--task", plan.flags["env"], "--episodes", "3", "--seed", seed, str(out)])
    mean = float(np.mean(result["scores"][plan.flags["env"]]))
    told = float(re.search(r": (\S+) ", said.getvalue()).group(1))  # type: ignore[union-attr]
    demand(math.isclose(told, mean, rel_tol=0.03, abs_tol=0.02), "another score", told, mean)


def by_numpy(arrays: Any, obs: np.ndarray) -> np.ndarray:
    """Run what `export` writes for NumPy, as docs/deploy.md has it."""
    about = json.loads(str(arrays["metadata"]))
    x = np.clip((obs - arrays["mean"]) * arrays["scale"], -10, 10)
    names = [name for name in arrays.files if name.startswith("weights")]
    for k in range(len(names)):
        x = x @ arrays[f"weights{k}"].T + arrays[f"biases{k}"]
        if k == len(names) - 1:
            break
        if f"gains{k}" in arrays.files:
            x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
            x = x * arrays[f"gains{k}"] + arrays[f"shifts{k}"]
        x = ACTIVATIONS[about["activation"]]()(torch.from_numpy(x)).numpy()
    return arrays["middle"] + arrays["reach"] * np.tanh(x) if "middle" in arrays.files else x


# matters

OTHER = {
    "num-envs": "5", "horizon": "3", "epochs": "4", "minibatch": "6", "learning-rate": "5e-4", "target-kl": "1e-6",
    "gamma": "0.5", "lam": "0.3", "clip": "1e-4", "value-weight": "1", "value-clip": "1e-6", "entropy": "0.5",
    "max-grad-norm": "1e-5", "log-std": "-1.2", "log-std-min": "-0.9", "log-std-max": "-1.1", "actor": "9,9",
    "critic": "9,8", "activation": "", "norm": "", "updates": "3", "batch": "7", "buffer": "41", "random-frames": "33",
    "tau": "0.5", "seed": "12345", "learner": "", "total-steps": "",
}  # fmt: skip


def check_matters(plan: Plan, folder: Path) -> None:
    """Demand that weights are others with another value of any setting."""
    is_sac = "algorithm" in plan.flags
    usual = {
        "num-envs": "4",
        "horizon": "5",
        "evaluations": "0",
        "ends": "together",
        "rewarded": "plain",
        "gamma": "0.9",
    }
    if is_sac:
        usual |= {"batch": "8", "buffer": "60", "random-frames": "20", "updates": "2"}
    else:
        usual |= {"minibatch": "8", "epochs": "2", "lam": "0.9", "clip": "0.2", "value-weight": "0.5", "entropy": "0"}
        usual |= {"target-kl": "0", "value-clip": "0", "log-std": "-1", "max-grad-norm": "1", "precision": "float32"}
    flags = {k: v for k, v in plan.flags.items() if k not in ("log-std-min", "log-std-max", "env")}
    plan = Plan(flags | usual | {"env": "random_runs:TorchOddShort-v0", "learning-rate": "1e-3"}, (80,))

    def ends(length: int = 80, **changed: str) -> torch.Tensor:
        with agent_of(plan, length, **changed) as agent:
            while agent.frames_seen < 80:
                agent.iterate()
            state = agent.networks()
        return torch.cat([x.flatten() for x in state.values() if isinstance(x, torch.Tensor)])

    begun = ends()
    demand(torch.equal(begun, ends()), "the same run is another one")
    names = [name.replace("_", "-") for name in [*(sac if is_sac else ppo).settings(), "seed"]]
    rng = np.random.default_rng(int(plan.flags["seed"]))
    for name in rng.permutation(names)[:6]:  # a kernel or two each
        changed = {name: OTHER[name]}
        if name == "log-std-min":
            changed["log-std"] = "-0.9"
        if name == "log-std-max":
            changed["log-std"] = "-1.1"
        if name == "activation":
            changed = {name: "silu" if flags[name] != "silu" else "elu"}
        if name == "norm":
            changed = {name: "none" if flags[name] == "layer" else "layer"}
        if name == "total-steps":
            other = ends(160)
            if is_sac:
                continue
        else:
            other = ends(**changed)
        demand(other.shape != begun.shape or not torch.equal(other, begun), f"{name} is without effect")


CHECKS: dict[str, Callable[[Plan, Path], None]] = {
    "resume": check_resume, "learn": check_learn, "files": check_files, "matters": check_matters,
}  # fmt: skip


def wrong(check: str, seed: int) -> str:
    """Return a report of what is wrong with run `seed`; empty if nothing is."""
    plan, folder = random_runs.draw(seed), Path(tempfile.mkdtemp())
    try:
        with torch.no_grad():
            CHECKS[check](plan, folder)
    except (Exception, SystemExit) as error:
        what = error.args if isinstance(error, Wrong) else (f"{type(error).__name__}: {error}",)
        again = f"python tests/tried_runs.py --check {check} --seed {seed}"
        if not isinstance(error, Wrong) and os.environ.get("TRACE"):
            raise
        return "\n".join(
            [
                f"run {seed}, {check}:",
                *map(str, what),
                again,
                " ".join(plan.argv()),
                str(plan.lengths),
                str(plan.events),
            ]
        )
    finally:
        shutil.rmtree(folder)
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="the first run")
    parser.add_argument("--count", type=int, default=1, help="how many")
    parser.add_argument("--check", choices=CHECKS, help="one of the checks; by default they take turns")
    parser.add_argument("--seconds", type=float, default=1e9)
    args = parser.parse_args()
    until = time.monotonic() + args.seconds
    seeds = itertools.takewhile(lambda _: time.monotonic() < until, range(args.seed, args.seed + args.count))
    tell((wrong(args.check or [*CHECKS][k % len(CHECKS)], k) for k in seeds), "runs")


if __name__ == "__main__":
    loader.options["opt"] = 0
    torch.set_num_threads(1)
    main()

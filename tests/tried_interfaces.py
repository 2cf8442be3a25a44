"""What a world of a random task does is the same, to the last bit, wherever and however it is run."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from random_tasks import Plan
from task_runs import (
    Wrong,
    actions_of,
    demand,
    draws_of,
    environment,
    equal,
    not_ahead,
    play,
    rows,
    same,
    step,
    task_of,
    told,
)
from tensordict import TensorDict
from torchrl.envs import StepCounter, TransformedEnv
from torchrl.envs.utils import check_env_specs, step_mdp

import torch_mjenvs
from torch_mjenvs import TorchVectorEnv
from torch_mjenvs.adapters import RslRlVecEnv, SB3VecEnv, SkrlVecEnv


def check_places(plan: Plan, dtype: torch.dtype = torch.float64) -> None:
    """What a world does depends on its number alone: not on batch, place, threads, memory that is handed out, copies,
    or on going on from a saved state.
    """
    n, T, run = 19, 9, plan.run
    env = environment(plan, n, dtype=dtype)
    actions = actions_of(env, T)
    first = told(*env.reset(seed=run["seed"]))
    whole = [first, *play(env, actions)]
    for k, name in ((2, "a few"), (1, "one world")):
        small = environment(plan, k, dtype=dtype, first_world=run["first_world"] + 5)
        got = [told(*small.reset(seed=run["seed"]))]
        if run["mode"] == "Disabled":  # where more worlds end, more are reset by hand
            got = [x for x in got]
            theirs = [x for x in whole if "reward" in x]
            got = [x for x in play(small, actions[:, 5 : 5 + k]) if "reward" in x]
            same(got, theirs, name, of=slice(5, 5 + k))
        else:
            same([*got, *play(small, actions[:, 5 : 5 + k])], whole, name, of=slice(5, 5 + k))
    # the same number of worlds, elsewhere
    again = environment(plan, n, dtype=dtype, copy=False)
    torch.set_num_threads(2)
    try:
        got = [told(*again.reset(seed=run["seed"])), *play(again, actions[:4])]
        state = again.state_dict()
        twin = copy.deepcopy(again)
        rest = play(again, actions[4:])
    finally:
        torch.set_num_threads(1)
    same([*got, *rest], whole, "two threads, no copies")
    same([*got, *play(twin, actions[4:])], whole, "a deep copy")
    loaded = environment(plan, n, dtype=dtype)
    loaded.reset(seed=99)
    loaded.step(actions[0])
    loaded.load_state_dict(state)
    same([*got, *play(loaded, actions[4:])], whole, "a loaded state")
    # rows of a state, in another order and number
    chosen = torch.tensor([3, 0, 18, 18, 7])
    few = environment(plan, 5, dtype=dtype, first_world=77)
    few.load_state_dict({k: x[chosen] for k, x in state.items()})
    theirs = [{k: x[chosen] for k, x in t.items()} for t in play(loaded_at(plan, n, dtype, state), actions[4:])]
    if run["mode"] != "Disabled":
        same(play(few, actions[4:, chosen]), theirs, "chosen rows of a state")
    # the pure step
    if run["repeat"] == 1 and not env.engine.done.any():
        state, action = env.engine.state_dict(), actions[0]
        out = env.engine.transition(state, action)
        env.step(action)
        for k in (
            "obs",
            "reward",
            "terminated",
            "truncated",
            "qpos",
            "qvel",
            "memory",
            "elapsed_steps",
            "episode",
            "info",
        ):
            demand(equal(out[k], env.engine.view(k)), f"transition: {k}")
    refused(env, actions)


def loaded_at(plan: Plan, n: int, dtype: torch.dtype, state: Mapping[str, torch.Tensor]) -> TorchVectorEnv:
    env = environment(plan, n, dtype=dtype)
    env.load_state_dict(state)
    return env


def refused(env: TorchVectorEnv, actions: torch.Tensor) -> None:
    """Demand that calls with bad arguments raise errors, and change nothing."""
    n, width = actions.shape[1:]
    engine = env.engine
    before = {k: x.clone() for k, x in engine.buffers.items()}
    state = engine.state_dict()
    nq, nv = engine.layout.nq, engine.layout.nv
    calls = {
        "an action too wide": lambda: env.step(torch.zeros(n, width + 1, dtype=env.dtype)),
        "too few actions": lambda: env.step(torch.zeros(n - 1, width, dtype=env.dtype)),
        "actions of text": lambda: env.step(np.full((n, width), "x")),
        "complex actions": lambda: env.step(torch.zeros(n, width, dtype=torch.complex64)),
        "no action": lambda: env.step(None),
        "another mask": lambda: env.reset(options={"reset_mask": [True] * (n + 1)}),
        "a mask of numbers": lambda: env.reset(options={"reset_mask": np.ones(n)}),
        "an empty mask": lambda: env.reset(options={"reset_mask": [False] * n}),
        "another option": lambda: env.reset(options={"mask": [True] * n}),
        "a seed of text": lambda: env.reset(seed="7"),
        "seeds for others": lambda: env.reset(seed=[1] * (n + 1)),
        "seeds of text": lambda: env.reset(seed=[1] * (n - 1) + ["x"]),
        "a fraction of a seed": lambda: env.reset(seed=1.5),
        "another qpos": lambda: env.set_state(np.zeros((n, nq + 1)), np.zeros((n, nv))),
        "another qvel": lambda: env.set_state(np.zeros((n, nq)), np.zeros((n, nv + 1))),
        "another mask of states": lambda: env.set_state(np.zeros((n, nq)), np.zeros((n, nv)), [1.0] * n),
        "another act": lambda: env.set_state(np.zeros((n, nq)), np.zeros((n, nv)), None, np.zeros((n, 9))),
        "half a state": lambda: env.load_state_dict({k: state[k] for k in [*state][1:]}),
        "a state of more": lambda: env.load_state_dict(state | {"x": torch.zeros(n)}),
        "a state of others": lambda: env.load_state_dict({k: x[:-1] for k, x in state.items()}),
        "a state of text": lambda: env.load_state_dict("x"),
        "other params": lambda: env.set_params({"nothing": torch.zeros(n)}),
        "params of text": lambda: env.set_params("x"),
        "no capture": lambda: env.capture(lambda obs: actions[0], 0),
        "capture of others": lambda: env.capture(lambda obs: actions[0][:, :0], 3)(),
        "capture of text": lambda: env.capture(lambda obs: "x", 3)(),
        "capture of info": lambda: env.capture(lambda obs: actions[0], 3, info_keys=("nothing",)),
    }
    for name, x in env.params.items():
        calls[f"nan in {name}"] = lambda name=name, x=x: env.set_params({name: torch.full_like(x, math.nan)})
        calls[f"another {name}"] = lambda name=name, x=x: env.set_params({name: torch.zeros(n, 77, 5)})
        if name in ("body_mass", "dof_damping"):
            calls[f"negative {name}"] = lambda name=name, x=x: env.set_params({name: x * 0 - 1})
    for what, bad in calls.items():
        try:
            bad()
        except (TypeError, ValueError, KeyError) as error:
            demand(str(error), f"{what}: no text")
        else:
            raise Wrong(f"{what} was taken")
        for k, x in engine.buffers.items():
            if k in ("alive", "restarted"):
                continue
            demand(equal(x, before[k]), f"{what} changed {k}")


def check_modes(plan: Plan, dtype: torch.dtype = torch.float64) -> None:
    """All modes, all interfaces and `capture` go through the same episodes."""
    plan = not_ahead(plan)
    n, T, run = 4, 10, plan.run
    given: dict[str, Any] = {"dtype": dtype, "action_repeat": 1, "observation": "flat"}
    same_step = environment(plan, n, autoreset_mode="SameStep", **given)
    disabled = environment(plan, n, autoreset_mode="Disabled", **given)
    actions = actions_of(same_step, T)
    for env in (same_step, disabled):
        env.reset(seed=run["seed"])
    for t, action in enumerate(actions):
        a, b = step(same_step, action), step(disabled, action)
        ended = b["terminated"] | b["truncated"]
        for k in ("reward", "terminated", "truncated", "bad_state"):
            demand(equal(a[k], b[k]), f"modes: {k}", t, a[k], b[k])
        final = torch.where(ended[:, None], a["final_obs"], a["obs"])
        demand(equal(final, b["obs"]), "modes: obs of a step", t, final, b["obs"])
        if ended.any():
            again = told(*disabled.reset(options={"reset_mask": ended}))
            x, y = a["obs"][ended], again["obs"][ended]
            demand(equal(x, y), "modes: obs of a reset", t, x, y)
    next_step = environment(plan, n, autoreset_mode="NextStep", **given)
    next_step.reset(seed=run["seed"])
    same_step.reset(seed=run["seed"])
    at, waits = [0] * n, [False] * n
    wanted = [step(same_step, action) for action in actions]
    for t in range(T):
        action = torch.stack([actions[min(at[i], T - 1), i] for i in range(n)])
        got = step(next_step, action)
        for i in range(n):
            w = wanted[min(at[i], T - 1)]
            if at[i] >= T:
                continue
            if waits[i]:
                x, y = got["obs"][i], wanted[at[i] - 1]["obs"][i]
                demand(equal(x, y), "NEXT_STEP: obs of a reset", t, i, x, y)
                demand(
                    not got["reward"][i] and not got["terminated"][i] and not got["truncated"][i], "NEXT_STEP: flags"
                )
                waits[i] = False
                continue
            for k in ("reward", "terminated", "truncated"):
                demand(got[k][i].equal(w[k][i]), f"NEXT_STEP: {k}", t, i, got[k][i], w[k][i])
            waits[i] = bool(got["terminated"][i] | got["truncated"][i])
            obs = w["final_obs"][i] if waits[i] else w["obs"][i]
            demand(equal(got["obs"][i], obs), "NEXT_STEP: obs", t, i, got["obs"][i], obs)
            at[i] += 1
    check_capture(same_step, run["seed"])
    check_single(plan, disabled)


def check_capture(env: Any, seed: int) -> None:
    """`capture` does what single steps do."""
    other = copy.deepcopy(env)
    env.reset(seed=seed)
    obs, _ = other.reset(seed=seed)
    shape = rows(obs).shape[1], env.single_action_space.shape[0]
    weights = torch.randn(shape, dtype=rows(obs).dtype, generator=torch.Generator().manual_seed(0))

    def policy(obs: Any) -> torch.Tensor:
        return torch.tanh(rows(obs).clamp(-3, 3) @ weights)

    def joined(x: Any) -> torch.Tensor:
        return torch.cat([joined(y) for y in x.values()], 2) if isinstance(x, Mapping) else x.reshape(*x.shape[:2], -1)

    rollout = env.capture(policy, 4)
    data = []
    for _ in range(2):
        given = rollout()
        kept = {k: given[k].clone() for k in ("action", "reward", "terminated", "truncated")}
        data.append(kept | {"obs": joined(given["obs"]).clone()})
    for t in range(8):
        action = policy(obs)
        want = {"obs": rows(obs).clone(), "action": action}
        obs, reward, terminated, truncated, _ = other.step(action)
        want |= {"reward": reward, "terminated": terminated, "truncated": truncated}
        for k, x in want.items():
            got = data[t // 4][k][t % 4]
            demand(equal(got, x), f"capture: {k}", t, got, x)


def check_single(plan: Plan, many: TorchVectorEnv) -> None:
    """`TorchEnv` does what a world of many does."""
    run = plan.run
    if run["first_world"]:
        return
    env = torch_mjenvs.TorchEnv(
        task_of(plan), dtype=many.dtype, observation="flat", randomize=draws_of(plan), vary=run["vary"]
    )
    limit = math.inf if run["limit"] == -1 else run["limit"]
    obs, info = env.reset(seed=run["seed"])
    want = told(*many.reset(seed=run["seed"]))
    for t, action in enumerate(actions_of(many, 8, seed=4, bad=False)):
        flat_obs = (
            rows({k: torch.tensor(x)[None] for k, x in obs.items()})
            if isinstance(obs, dict)
            else torch.tensor(obs)[None]
        )
        demand(env.observation_space.contains(obs), "TorchEnv: space")
        demand(
            equal(flat_obs[0], want["obs"][0]),
            "TorchEnv: obs",
            t,
            flat_obs[0],
            want["obs"][0],
        )
        for k, x in info.items():
            if k == "bad_state" or (t == limit and k == "episode_end/time_limit"):
                continue
            demand(np.array_equal(np.asarray(x), want[k][0].numpy()), "TorchEnv: info", k, t, x, want[k][0])
        if t >= limit or (t and bool(want["terminated"][0] | want["truncated"][0])):
            break
        obs, reward, terminated, _, info = env.step(action[0].numpy())
        want = step(many, action) if not many.engine.done.any() else None
        if want is None:
            break
        demand(reward == float(want["reward"][0]), "TorchEnv: reward", reward, want["reward"][0])
        demand(terminated == bool(want["terminated"][0]), "TorchEnv: terminated")


def check_torchrl(plan: Plan, dtype: torch.dtype = torch.float64) -> None:
    """TorchRL's environment has sound specs, and goes through the episodes of Gymnasium's."""

    plan = not_ahead(plan)
    n, T, run = 4, 9, plan.run
    given = {
        "dtype": dtype, "max_episode_steps": run["limit"], "first_world": run["first_world"],
        "randomize": draws_of(plan), "vary": run["vary"], "observation": run["form"], "action_repeat": run["repeat"],
    }  # fmt: skip
    gym = environment(plan, n, dtype=dtype, autoreset_mode="SameStep")
    keys = tuple(k for k in gym.engine.layout.step_info if k not in gym.engine.layout.reset_info)[:2]
    env = torch_mjenvs.TorchRLEnv(task_of(plan), n, info_keys=keys, **given)
    state = torch.random.get_rng_state()
    check_env_specs(env)
    torch.random.set_rng_state(state)
    gym.reset(seed=run["seed"])
    obs0 = rows(gym.obs).clone()
    actions = actions_of(gym, T)
    env.set_seed(run["seed"])
    td = env.reset()

    def seen(td: Any) -> torch.Tensor:
        def of(x: Any) -> torch.Tensor:
            return torch.cat([of(y) for y in x.values()], 1) if hasattr(x, "keys") else x.reshape(n, -1)

        if run["form"] == "flat" and "observation" in td:
            return of(td["observation"])
        order = gym.observation_space.spaces if hasattr(gym.observation_space, "spaces") else None
        if order is None:
            return of(td["observation"])
        return torch.cat(
            [
                torch.cat([of(td[k][j]) for j in s.spaces], 1) if hasattr(s, "spaces") else of(td[k])
                for k, s in order.items()
            ],
            1,
        )

    demand(seen(td).numpy().tobytes() == obs0.numpy().tobytes(), "TorchRL: obs of a reset")
    for t, action in enumerate(actions):
        td["action"] = action
        if t % 2:
            td, following = env.step_and_maybe_reset(td)
        else:
            td = env.step(td)
            following = step_mdp(td)
            following = env.maybe_reset(following)
        a = step(gym, action)
        nxt = td["next"]
        ended = a["terminated"] | a["truncated"]
        obs = torch.where(ended[:, None], a["final_obs"], a["obs"])
        demand(seen(nxt).numpy().tobytes() == obs.numpy().tobytes(), "TorchRL: next obs", t, seen(nxt), obs)
        demand(equal(nxt["reward"][:, 0], a["reward"]), "TorchRL: reward", t)
        for k, x in {"terminated": a["terminated"], "truncated": a["truncated"], "done": ended}.items():
            demand(nxt[k][:, 0].equal(x), f"TorchRL: {k}", t, nxt[k][:, 0], x)
        demand(
            seen(following).numpy().tobytes() == a["obs"].numpy().tobytes(),
            "TorchRL: obs after a reset",
            t,
            seen(following),
            a["obs"],
        )
        for k in ("terminated", "truncated", "done"):
            demand(not following[k].any(), f"TorchRL: {k} after a reset")
        for k in keys:
            now = torch.where(ended.view(-1, *[1] * (a[k].ndim - 1)), a[f"final {k}"], a[k]).reshape(n, -1)
            demand(equal(nxt[k], now), "TorchRL: info", k, t, nxt[k], now)
        td = following
    # a saved state goes on, under transforms
    under = TransformedEnv(env, StepCounter())
    td = under.reset()
    for action in actions[:2]:
        td["action"] = torch.nan_to_num(action)
        td, td2 = under.step_and_maybe_reset(td)
        td = td2
    saved = env.get_state()
    full = env.engine.state_dict()
    td1 = under.reset(state=saved.clone())
    td1["action"] = torch.nan_to_num(actions[2])
    one = under.step(td1)["next"]
    env.engine.load_state_dict(full)
    td["action"] = torch.nan_to_num(actions[2])
    two = under.step(td)["next"]
    for k in ("reward", "terminated", "truncated"):
        demand(one[k].equal(two[k]), f"TorchRL: {k} from a state")
    demand(seen(one).numpy().tobytes() == seen(two).numpy().tobytes(), "TorchRL: obs from a state")


def check_libraries(plan: Plan, dtype: torch.dtype = torch.float64) -> None:
    """The adapters give other libraries the environment's own numbers."""
    plan = not_ahead(plan)
    n, seed = 3, plan.run["seed"] % 2**31
    plain = environment(plan, n, dtype=dtype, autoreset_mode="SameStep", action_repeat=1)
    actions = actions_of(plain, 8, bad=False)
    grouped = plain.engine.layout.observation.grouped

    def of_policy(obs: Any) -> torch.Tensor:
        return rows(obs["policy"]) if grouped else rows(obs)

    def played(seed: Any) -> tuple[torch.Tensor, list[tuple[torch.Tensor, ...]]]:
        """The first observation; then of each step observation, reward, ends, and the last observation."""
        first, steps = of_policy(plain.reset(seed=seed)[0]), []
        for action in actions:
            obs, *more, info = plain.step(action)
            steps.append((of_policy(obs), *more, of_policy(info["final_obs"])))
        return first, steps

    first, steps = played(seed)
    env = RslRlVecEnv(environment(plan, n, dtype=dtype, autoreset_mode="SameStep", action_repeat=1), seed)
    demand(rows(env.get_observations()["policy"]).equal(first.float()), "rsl_rl: first observation")
    for action, (obs, reward, terminated, truncated, _) in zip(actions, steps, strict=True):
        got, r, done, extras = env.step(action)
        demand(rows(got["policy"]).equal(obs.float()) and r.equal(reward.float()), "rsl_rl: step")
        demand(done.bool().equal(terminated | truncated), "rsl_rl: done")
        demand(extras["time_outs"].equal(truncated & ~terminated), "rsl_rl: time outs")
    other = environment(plan, n, dtype=dtype, autoreset_mode="NextStep", action_repeat=1)
    env = SkrlVecEnv(environment(plan, n, dtype=dtype, autoreset_mode="NextStep", action_repeat=1))
    env._seed = seed
    demand(env.reset()[0].equal(of_policy(other.reset(seed=seed)[0]).float()), "skrl: first observation")
    for action in actions:
        got, want = env.step(action), other.step(action)
        demand(got[0].equal(of_policy(want[0]).float()), "skrl: observation")
        for k in (1, 2, 3):
            demand(got[k][:, 0].equal(want[k].to(got[k].dtype)), "skrl: reward or ends")
    first, steps = played([7 + i for i in range(n)])  # Stable-Baselines3 gives each world a seed
    for mode in ("SameStep", "NextStep", "Disabled"):
        check_sb3(
            SB3VecEnv(environment(plan, n, dtype=dtype, autoreset_mode=mode, action_repeat=1)), first, steps, actions
        )


def check_sb3(env: Any, first: torch.Tensor, steps: Sequence[tuple[torch.Tensor, ...]], actions: torch.Tensor) -> None:
    """What Stable-Baselines3 is given are these observations, rewards and ends."""

    def seen(x: Any, n: int = env.num_envs) -> np.ndarray:
        parts = [y.reshape(n, -1) for y in x.values()] if isinstance(x, Mapping) else [x.reshape(n, -1)]
        return np.concatenate(parts, 1)

    env.seed(7)
    begun = env.reset()
    one = {k: x[0] for k, x in begun.items()} if isinstance(begun, Mapping) else begun[0]
    demand(env.observation_space.contains(one), "SB3: space")
    demand(np.array_equal(seen(begun), first.numpy()), "SB3: first observation")
    for action, (obs, reward, terminated, truncated, final) in zip(actions, steps, strict=True):
        got, r, done, infos = env.step(action.numpy())
        demand(np.array_equal(seen(got), obs.numpy()), "SB3: observation")
        demand(np.array_equal(r, reward.numpy()), "SB3: reward")
        demand(np.array_equal(done, (terminated | truncated).numpy()), "SB3: done")
        for i in np.flatnonzero(done):
            demand(infos[i]["TimeLimit.truncated"] == bool(truncated[i] & ~terminated[i]), "SB3: truncated")
            last = seen(infos[i]["terminal_observation"], 1)[0]
            demand(np.array_equal(last, final[i].numpy()), "SB3: last observation")


def check_partial(plan: Plan, dtype: torch.dtype = torch.float64) -> None:
    """TorchRL's steps, resets and states of some worlds leave the others alone; native_autoreset goes the same way."""
    plan = not_ahead(plan)
    n, run = 5, plan.run
    given: dict[str, Any] = {
        "dtype": dtype, "max_episode_steps": run["limit"], "first_world": run["first_world"],
        "randomize": draws_of(plan), "vary": run["vary"], "observation": run["form"],
    }  # fmt: skip
    native = torch_mjenvs.TorchRLEnv(task_of(plan), n, native_autoreset=True, **given)
    same_step = environment(plan, n, dtype=dtype, autoreset_mode="SameStep", action_repeat=1)
    actions = actions_of(same_step, 8)
    native.set_seed(run["seed"])
    native.reset()
    same_step.reset(seed=run["seed"])
    for action in actions[:4]:
        td = native.step(TensorDict({"action": action}, [n]))["next"]
        a = step(same_step, action)
        for k in ("reward", "terminated", "truncated"):
            demand(td[k][:, 0].equal(a[k]), f"native_autoreset: {k}")
        demand(equal(native.engine.obs, same_step.engine.obs), "native_autoreset: obs")

    left = {"action", "reset_mask", "reward", "terminated", "truncated", "bad_state", "final_obs", "final_info"}

    def state_of(e: Any) -> dict[str, torch.Tensor]:
        return {k: x for k, x in e.engine.state_dict().items() if k not in left}

    env = torch_mjenvs.TorchRLEnv(task_of(plan), n, **given)
    gym = environment(plan, n, dtype=dtype, autoreset_mode="Disabled", action_repeat=1)
    env.set_seed(run["seed"])
    env.reset()
    gym.reset(seed=run["seed"])
    rng = np.random.default_rng(0)
    for action in actions:
        if (ended := gym.engine.done.clone()).any():
            gym.reset(options={"reset_mask": ended})
            env.reset(TensorDict({"_reset": ended[:, None]}, [n]))
        chosen, old = torch.tensor(rng.random(n) < 0.6), state_of(gym)
        a = step(gym, action)
        mask = {k: chosen.view(-1, *[1] * (x.ndim - 1)) for k, x in old.items()}
        want = {k: torch.where(mask[k], x, old[k]) for k, x in state_of(gym).items()}
        gym.engine.load_state_dict(gym.engine.state_dict() | want)
        out = env._step(TensorDict({"action": action, "_step": chosen}, [n]))
        for k, x in state_of(env).items():
            demand(equal(x, want[k]), f"a partial step: {k}", chosen, x, want[k])
        demand(out["reward"][:, 0].equal(torch.where(chosen, a["reward"], 0.0)), "a partial step: rewards")
        demand(out["terminated"][chosen, 0].equal(a["terminated"][chosen]), "a partial step: terminated")
    saved, before = env.get_state(), state_of(env)
    mask1 = torch.tensor([True, False, True, False, False])
    moved = {"qpos": saved["qpos"], "qvel": saved["qvel"] * 0.5, "_reset": mask1[:, None]}
    env.reset(TensorDict(moved, [n]), set_state=True)
    after = state_of(env)
    for k, x in after.items():
        demand(equal(x[~mask1], before[k][~mask1]), f"a partial state: {k}")
    demand(after["qvel"][mask1].equal(moved["qvel"][mask1]), "a partial state")
    demand(not after["elapsed_steps"][mask1].any(), "a partial state: elapsed steps")
    refused_by_torchrl(env, saved)


def refused_by_torchrl(env: Any, saved: Any) -> None:
    """Demand that calls with bad arguments raise errors, and change nothing."""
    n, dtype, before = env.num_envs, env.dtype, env.engine.state_dict()
    actions = torch.zeros(env.action_spec.shape, dtype=dtype)
    calls = {
        "half a state": lambda: env.reset(TensorDict({"qpos": saved["qpos"]}, [n]), set_state=True),
        "another qpos": lambda: env.reset(state=TensorDict({"qpos": saved["qpos"][:, :0], "qvel": saved["qvel"]}, [n])),
        "another obs": lambda: env.reset(state=saved.clone().update({"obs": saved["obs"][:, :0]})),
        "an action too wide": lambda: env.step(TensorDict({"action": torch.zeros(n, 77, dtype=dtype)}, [n])),
        "a seed of text": lambda: env.set_seed("x"),
        "a seed of a reset": lambda: env.reset(seed=1),
        "a mask of numbers": lambda: env.reset(TensorDict({"_reset": torch.ones(n, 1)}, [n])),
        "a step by numbers": lambda: env.step(TensorDict({"action": actions, "_step": torch.ones(n).int()}, [n])),
        "another mask": lambda: env.step(TensorDict({"action": actions, "_step": torch.ones(n, 2).bool()}, [n])),
    }
    if "params" not in saved:
        calls["the params of others"] = lambda: env.reset(state=saved.clone().set("params", saved["qpos"]))
    if "params" in saved:
        calls["params alone"] = lambda: env.reset(state=saved.clone().exclude("derived"))
    for what, bad in calls.items():
        try:
            bad()
        except (ValueError, TypeError, RuntimeError):
            pass
        else:
            raise Wrong(f"TorchRL: {what} was taken")
        for k, x in env.engine.state_dict().items():
            demand(k == "reset_mask" or equal(x, before[k]), f"TorchRL: {what} changed {k}")


def wrapped(env: Any, seed: int) -> Any:
    """A random stack of wrappers."""
    rng, w = np.random.default_rng(seed), torch_mjenvs.wrappers

    def bounded(e: Any) -> bool:
        return bool(np.isfinite([e.single_action_space.low, e.single_action_space.high]).all())

    choices: list[Callable[[Any], Any]] = [
        w.NormalizeObservation, w.NormalizeReward, w.ClipAction, w.RecordEpisodeStatistics, w.FlattenObservation,
        lambda e: w.ObservationNoise(e, scale=0.1), lambda e: w.ClipReward(e, -0.5, 0.6),
        lambda e: w.RescaleAction(e, -2.0, 2.0) if bounded(e) else e, lambda e: w.ActionDelay(e, delay=2),
        lambda e: w.FrameStackObservation(e, 3), lambda e: w.TransformReward(e, lambda r: 2 * r),
    ]  # fmt: skip
    for i in rng.permutation(len(choices))[: int(rng.integers(1, 5))]:
        env = choices[i](env)
    return env


def check_wrappers(plan: Plan, dtype: torch.dtype = torch.float64) -> None:
    """Under random wrappers: a saved state and copies go on, and `capture` does what steps do."""
    run = plan.run
    plan = copy.deepcopy(plan)
    if run["mode"] == "Disabled":
        plan.run["mode"] = "SameStep"
    bare = environment(plan, 4, dtype=dtype)
    env = wrapped(bare, run["seed"])
    actions = actions_of(bare, 10)
    torch.manual_seed(0)
    env.reset(seed=run["seed"])
    play(env, actions[:4])
    state, twin = env.state_dict(), copy.deepcopy(env)
    rest = play(env, actions[4:])
    same(play(twin, actions[4:]), rest, "a deep copy under wrappers")
    other = wrapped(environment(plan, 4, dtype=dtype), run["seed"])
    other.reset(seed=5)
    other.step(actions[0])
    other.load_state_dict(state)
    same(play(other, actions[4:]), rest, "a loaded state under wrappers")
    again = told(*env.reset(seed=run["seed"]))
    same([told(*other.reset(seed=run["seed"]))], [again], "a reset under wrappers")
    check_capture(env, run["seed"])

"""PPO from pictures on a CPU: 64 x 64 pixels, drawn by rays for all worlds at once, and a small convolutional network.

    python examples/pixels.py --tasks cartpole-swingup reacher-easy
    MUJOCO_GL=egl python examples/pixels.py --tasks cartpole-swingup reacher-easy --opengl

Tasks are dm_control's. An action is held for eight of their steps (four in reacher), and the learner sees only the last
three pictures. `--opengl` learns once more from pictures that `mujoco.Renderer` draws of the same worlds; everything
else is equal. pixels.png has scores over processor time, and pictures of an episode.

Shapes: N worlds, T steps of a rollout, A numbers in an action; what is seen is (N, 3, 64, 64), green alone.
"""

from __future__ import annotations

import argparse
import copy
import time
from dataclasses import dataclass, field

import gymnasium as gym
import mujoco
import torch
from torch import Tensor, nn
from torch.distributions import Normal

import torch_mjenvs  # noqa: F401 (makes the tasks known to Gymnasium)

SIZE, STACK = 64, 3
STEPS = 1000  # of dm_control's, in an episode
REPEATS = {"cartpole-swingup": 8, "cartpole-balance": 8}  # steps that an action is held for; 4 in other tasks
WITHOUT = ("shadow", "reflection")


def make(task: str, num: int, repeat: int, stack: int = STACK, pictures: bool = True) -> gym.vector.VectorEnv:
    """Return worlds whose step is `repeat` of the task's, with the reward of the last of these."""
    pixels = {"width": SIZE, "height": SIZE, "camera": 0, "stack": stack, "channels_first": True, "without": WITHOUT}
    steps = {"frame_skip": repeat, "max_episode_steps": STEPS // repeat}
    return gym.make_vec(f"TorchDMC/{task}-v0", num_envs=num, pixels=pixels if pictures else None, device="cpu", **steps)


class Worlds:
    """Worlds that show the green of their last three pictures, (N, 3, 64, 64) uint8, which tells all apart."""

    def __init__(self, task: str, num: int, pictures: bool = True):
        self.repeat = REPEATS.get(task, 4)
        self.env = make(task, num, self.repeat, pictures=pictures)
        self.actions = self.env.single_action_space.shape[0]

    def reset(self, seed: int) -> Tensor:
        """Begin, each world somewhere in its episode, so that they do not all end together."""
        obs, _ = self.env.reset(seed=seed)
        self.env.unwrapped.elapsed_steps.random_(0, STEPS // self.repeat)
        self.ended = torch.zeros(self.env.num_envs, dtype=torch.bool)
        return self.seen(obs, ~self.ended)

    def step(self, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return what is seen, rewards and whether episodes end; the step after that resets, and ignores its action."""
        obs, reward, terminated, truncated, _ = self.env.step(action)
        begun, self.ended = self.ended, terminated | truncated
        return self.seen(obs, begun), reward, self.ended

    def seen(self, obs: Tensor, begun: Tensor) -> Tensor:
        """Return what worlds show, of which those of the mask (N,) begin an episode."""
        return obs[:, 1::3]


class OpenGLWorlds(Worlds):
    """The same, with pictures by `mujoco.Renderer`, for tasks that show nothing but their state, and a target."""

    FLAGS = (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION)

    def __init__(self, task: str, num: int):
        super().__init__(task, num, pictures=False)
        self.model = copy.copy(self.env.unwrapped.engine.mjmodel)
        self.model.vis.quality.offsamples = 0  # one sample a pixel, as the rays have
        self.data, self.renderer = mujoco.MjData(self.model), mujoco.Renderer(self.model, SIZE, SIZE)
        self.frames = torch.zeros(num, STACK, SIZE, SIZE, dtype=torch.uint8)

    def seen(self, obs: object, begun: Tensor) -> Tensor:
        env = self.env.unwrapped
        targets = env.engine.memory.get("target")  # reacher's, (N, 2), each world's own
        for world, qpos in enumerate(env.qpos.numpy()):
            self.data.qpos[:] = qpos
            if targets is not None:
                self.model.geom("target").pos[:2] = targets[world]
            mujoco.mj_kinematics(self.model, self.data)
            mujoco.mj_comPos(self.model, self.data)
            mujoco.mj_camlight(self.model, self.data)
            self.renderer.update_scene(self.data, 0)
            for flag in self.FLAGS:
                self.renderer.scene.flags[flag] = 0
            picture = torch.from_numpy(self.renderer.render()[..., 1].copy())
            if begun[world]:
                self.frames[world] = picture
            else:
                self.frames[world] = torch.stack([*self.frames[world, 1:], picture])
        return self.frames.clone()


class Agent(nn.Module):
    """From pictures (N, 3, 64, 64) to the mean and standard deviation of actions (N, A), and values (N,)."""

    def __init__(self, actions: int):
        super().__init__()
        self.seen = nn.Sequential(
            nn.Conv2d(STACK, 16, 8, 4), nn.ReLU(), nn.Conv2d(16, 32, 4, 2), nn.ReLU(), nn.Flatten(),
            nn.Linear(32 * 6 * 6, 128), nn.LayerNorm(128), nn.Tanh(),
        )  # fmt: skip
        self.mean, self.value = nn.Linear(128, actions), nn.Linear(128, 1)
        self.log_std = nn.Parameter(torch.full((actions,), -0.5))
        for layer in (self.mean, self.value):
            nn.init.orthogonal_(layer.weight, 0.01)
            nn.init.zeros_(layer.bias)

    def forward(self, obs: Tensor) -> tuple[Normal, Tensor]:
        with torch.autocast("cpu", torch.bfloat16):  # takes a third of the time on processors with bfloat16 products
            seen = self.seen(obs.bfloat16() / 255 - 0.5)
        seen = seen.float()
        return Normal(self.mean(seen), self.log_std.exp()), self.value(seen)[:, 0]


@dataclass
class PPO:
    """Proximal Policy Optimization, as in `examples/cleanrl_ppo.py`, except for ends of episodes.

    All episodes end at the time limit: the last step bootstraps from the next value, and the step after it, which
    resets the world, does not count.
    """

    worlds: Worlds
    horizon: int = 32
    epochs: int = 2
    minibatch: int = 256
    learning_rate: float = 5e-4
    gamma: float = 0.98
    lam: float = 0.95
    clip: float = 0.2
    entropy: float = 1e-3
    frames: int = 0
    seconds: dict[str, float] = field(default_factory=lambda: {"worlds": 0.0, "policy": 0.0, "update": 0.0})

    def __post_init__(self) -> None:
        self.obs = self.worlds.reset(seed=0)
        num, actions = len(self.obs), self.worlds.actions
        self.agent = Agent(actions)
        self.optimizer = torch.optim.Adam(self.agent.parameters(), lr=self.learning_rate, eps=1e-5)
        self.begins = torch.zeros(num, dtype=torch.bool)  # whether the next step is a reset
        shape = (self.horizon, num)
        self.seen = torch.empty(shape[0] + 1, *self.obs.shape, dtype=torch.uint8)
        self.did = torch.empty(*shape, actions)
        self.log_prob, self.reward = torch.empty(shape), torch.empty(shape)
        self.value = torch.empty(shape[0] + 1, shape[1])
        self.ends, self.counts = (torch.empty(shape, dtype=torch.bool) for _ in range(2))

    @torch.no_grad()
    def collect(self) -> float:
        """Fill a rollout, and return its mean reward."""
        self.last = time.process_time()
        for t in range(self.horizon):
            self.seen[t] = self.obs
            policy, self.value[t] = self.agent(self.obs)
            self.did[t] = policy.sample()
            self.log_prob[t] = policy.log_prob(self.did[t]).sum(1)
            self.counts[t] = ~self.begins
            self.clock("policy")
            self.obs, self.reward[t], self.ends[t] = self.worlds.step(self.did[t].clamp(-1, 1))
            self.begins = self.ends[t]
            self.clock("worlds")
        self.value[-1] = self.agent(self.obs)[1]
        self.frames += int(self.counts.sum())
        return float(self.reward[self.counts].mean())

    def learn(self) -> None:
        counts, advantage = self.counts, torch.zeros_like(self.value)
        delta = 0.1 * self.reward + self.gamma * self.value[1:] - self.value[:-1]
        for t in reversed(range(self.horizon)):
            advantage[t] = counts[t] * (delta[t] + self.gamma * self.lam * ~self.ends[t] * advantage[t + 1])
        gain, target = advantage[:-1][counts], (advantage + self.value)[:-1][counts]
        gain = (gain - gain.mean()) / (gain.std() + 1e-8)
        rows = counts.flatten().nonzero()[:, 0]
        obs, did, before = self.seen[:-1].flatten(0, 1), self.did.flatten(0, 1), self.log_prob.flatten()
        for _ in range(self.epochs):
            for chosen in torch.randperm(len(rows)).split(self.minibatch):
                row = rows[chosen]
                policy, value = self.agent(obs[row])
                ratio = (policy.log_prob(did[row]).sum(1) - before[row]).exp()
                clipped = ratio.clamp(1 - self.clip, 1 + self.clip)
                loss = -torch.min(gain[chosen] * ratio, gain[chosen] * clipped).mean()
                loss = loss + 0.5 * (value - target[chosen]).square().mean()
                loss = loss - self.entropy * policy.entropy().sum(1).mean()
                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.agent.parameters(), 0.5)
                self.optimizer.step()
        self.clock("update")

    def clock(self, name: str) -> None:
        """Count the processor time since the last call."""
        now = time.process_time()
        self.seconds[name] += now - self.last
        self.last = now


@torch.no_grad()
def score(agent: Agent, task: str, num: int = 16) -> tuple[Tensor, Tensor]:
    """Return the returns (N,) of an episode in each world, under mean actions and with every step's reward, and a film
    of the first.

    The film is (frames, 64, 64, 3) uint8.
    """
    env, repeat = make(task, num, repeat=1, stack=1), REPEATS.get(task, 4)
    obs, _ = env.reset(seed=1234)
    seen, total, film = obs[:, 1:2].repeat(1, STACK, 1, 1), torch.zeros(num), []
    for _ in range(STEPS // repeat):
        action = agent(seen)[0].mean.clamp(-1, 1)
        film.append(obs[0].movedim(0, -1))
        for _ in range(repeat):
            obs, reward, *_ = env.step(action)
            total += reward
        seen = torch.cat((seen[:, 1:], obs[:, 1:2]), 1)
    return total, torch.stack(film)


@dataclass
class Run:
    """The results of a training: processor seconds, frames and mean returns over time, its last score, and a film."""

    name: str
    points: list[tuple[float, int, float]]
    returns: Tensor
    film: Tensor


def train(task: str, seconds: float, opengl: bool = False, num: int = 128, **instead: float) -> Run:
    """Learn for so many seconds of a core. A frame is a picture that an action was chosen by."""
    torch.manual_seed(0)
    learner = PPO((OpenGLWorlds if opengl else Worlds)(task, num), **instead)
    name, points, rewards = f"{task}, {'mujoco.Renderer' if opengl else 'rays'}", [], []
    start, wall = time.process_time(), time.perf_counter()
    while not points or points[-1][0] < seconds:
        rewards.append(learner.collect())
        learner.learn()
        points.append((time.process_time() - start, learner.frames, STEPS * sum(rewards[-5:]) / len(rewards[-5:])))
        if len(points) % 20 == 0:
            print(f"{name}: {points[-1][0]:.0f} s, {learner.frames} frames, return {points[-1][2]:.0f}", flush=True)
    print(
        f"{name}: {learner.frames} frames in {points[-1][0]:.0f} s of a core, {time.perf_counter() - wall:.0f} s wall"
    )
    print("us a frame:", {x: round(1e6 * y / learner.frames) for x, y in learner.seconds.items()})
    returns, film = score(learner.agent, task)
    print(f"score {returns.mean():.0f} ± {returns.std():.0f}, of {len(returns)} episodes with every step's reward")
    return Run(name, points, returns, film)


def draw(runs: list[Run], path: str) -> None:
    """Draw returns over processor time, and below, of each task learnt from rays, twelve pictures of an episode."""
    from matplotlib import pyplot as plt

    films = [run for run in runs if run.name.endswith("rays")]
    heights = [4.0] + [1.0] * len(films)
    figure, (ax, *rows) = plt.subplots(1 + len(films), figsize=(9, sum(heights)), height_ratios=heights, squeeze=True)
    for run in runs:
        spent, frames, scores = zip(*run.points, strict=True)
        ax.plot(spent, scores, label=f"{run.name}: {frames[-1] / 1e3:.0f} k frames, score {run.returns.mean():.0f}")
    ax.set(xlabel="seconds of a core", ylabel="return", ylim=(0, 1000))
    ax.legend()
    for row, run in zip(rows, films, strict=True):
        shown = torch.linspace(0, len(run.film) - 1, 12).long()
        row.imshow(torch.cat(list(run.film[shown]), 1).numpy())
        row.set_axis_off()
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=["cartpole-swingup", "reacher-easy"])
    parser.add_argument("--seconds", type=float, default=600.0, help="of a core, for each")
    parser.add_argument("--opengl", action="store_true", help="learn again from mujoco.Renderer's")
    given = parser.parse_args()
    torch.set_num_threads(1)
    ways = [(task, opengl) for task in given.tasks for opengl in ([False, True] if given.opengl else [False])]
    draw([train(task, given.seconds, opengl) for task, opengl in ways], "pixels.png")


if __name__ == "__main__":
    main()

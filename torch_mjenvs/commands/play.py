"""`torch_mjenvs play`: watch a trained policy, in a window where there is a display, else in a film or a picture."""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import mujoco
import torch

from ..checks import install
from ..envs.camera import endless_floors
from ..envs.parts import mapped
from ..envs.tasks.registry import make_task
from ..envs.vector_env import TorchVectorEnv
from ..envs.video import tile_images
from ..policy import Policy
from ..training.flags import count, positive, seed
from ..training.task_flags import task_behind
from ..training.worlds import make
from . import Acting, acting, add_policy, parser

FORMATS = (".mp4", ".gif", ".png")
WIDTH, LARGEST = 960, 480  # pixels: the greatest width of all worlds together, and of one
FPS = 30  # frames per second of a film, about
SHADOW = 1024  # pixels of shadow maps: MuJoCo's 4,096 take longer than all else where the CPU draws, and look the same


def main(arguments: Sequence[str] | None = None) -> None:
    """Run `torch_mjenvs play`: show a trained policy in a window, or write a film or picture of it."""
    p = parser("play", "Watch a trained policy: in a window where there is a display, else in a film.", False)
    add_policy(p)
    p.add_argument("--out", type=_film, help="no window: write a film (.mp4, .gif), or a picture of its end (.png)")
    p.add_argument("--worlds", type=count, default=1, help="worlds side by side in a film or picture; default 1")
    p.add_argument("--seconds", type=positive, default=10.0, help="simulated seconds; default 10")
    p.add_argument("--size", type=count, help=f"pixels in a world's width; default {LARGEST}, fewer for more than 4")
    p.add_argument("--seed", type=seed, default=0, help="of the worlds' random numbers; default 0")
    args, found = acting(p, arguments)
    if args.out and not args.out.parent.is_dir():
        raise SystemExit(f"there is no folder {args.out.parent}")
    try:
        if args.out is None and has_display():
            if given := [x for x in ("worlds", "seconds", "size") if getattr(args, x) != p.get_default(x)]:
                flags = " and ".join(f"--{name}" for name in given)
                print(
                    f"note: a window shows one world until it is closed; {flags}: for a film, by --out", file=sys.stderr
                )
            watch(found, args.seed)
        else:
            record(args.out or Path("play.gif"), found, args.worlds, args.seconds, args.size, args.seed)
    except RuntimeError as error:  # no OpenGL; on macOS, a window needs to be run by mjpython
        raise SystemExit(str(error)) from error


def _film(text: str) -> Path:
    if Path(text).suffix not in FORMATS:
        raise argparse.ArgumentTypeError(f"{text} must end in one of {', '.join(FORMATS)}")
    return Path(text)


def has_display() -> bool:
    """Return whether windows can be opened, as far as is known without trying."""
    return sys.platform != "linux" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def watch(found: Acting, seed: int) -> None:
    """Show one world in MuJoCo's viewer, in real time, until the window is closed. Ended episodes begin anew."""
    import mujoco.viewer

    env: Any = gymnasium.make(found.env_id, **found.arguments)
    obs, _ = env.reset(seed=seed)
    world = env.unwrapped
    renderer = world.mujoco_renderer
    endless_floors(renderer.model)
    panels = {"show_left_ui": False, "show_right_ui": False}  # Tab and Shift-Tab show them
    with mujoco.viewer.launch_passive(renderer.model, renderer.data, **panels) as viewer:
        viewer.cam.type, viewer.cam.trackbodyid = mujoco.mjtCamera.mjCAMERA_TRACKING, 1
        viewer.cam.distance, viewer.cam.elevation = 4.0, -15.0
        while viewer.is_running():
            due = time.perf_counter() + world.dt
            obs, _, terminated, truncated, _ = env.step(found.policy(mapped(torch.as_tensor, obs)).numpy())
            if terminated or truncated:
                obs, _ = env.reset()
            with viewer.lock(), world._camera.showing(0):  # brings the state into the data that the viewer shows
                viewer.sync()
            time.sleep(max(0.0, due - time.perf_counter()))
    env.close()


def record(out: Path, found: Acting, worlds: int, seconds: float, size: int | None, seed: int) -> None:
    """Write a film of worlds side by side, or a picture of how they end."""
    import imageio.v2 as imageio

    # Whole eighths, since films need an even number of pixels.
    eighth = max(1, (size or min(LARGEST, WIDTH // math.ceil(math.sqrt(worlds)))) // 8)
    env = drawn(found.env_id, worlds, 8 * eighth, 6 * eighth, **found.arguments)
    every = max(1, round(1 / (env.dt * FPS)))
    steps = played(env, found.policy, seed, round(seconds / env.dt))
    if out.suffix == ".png":
        for _ in steps:
            pass
        imageio.imwrite(out, tile_images(env.render() or ()))
    else:
        with writer(out, every * env.dt) as film:
            for step in steps:
                if step % every == 0:
                    film.append_data(tile_images(env.render() or ()))
    env.close()
    print(out)


def drawn(env_id: str, worlds: int, width: int, height: int, **task_arguments: Any) -> TorchVectorEnv:
    """Make worlds whose pictures are drawn in this size (pixels), by the camera that `follows`."""
    if not has_display():
        os.environ.setdefault("MUJOCO_GL", "egl")
    camera = follows(env_id, task_arguments)
    pictures = {"render_mode": "rgb_array", "width": width, "height": height, "camera_id": camera}
    env = make(env_id, worlds, "cpu", **pictures, **task_arguments)
    env.model.vis.quality.shadowsize = SHADOW
    endless_floors(env.model)
    return env


def follows(env_id: str, task_arguments: Mapping[str, Any]) -> int | None:
    """Return the camera of a task's model to look through: one that follows the robot, else its first.

    The one that follows is "track", or the first that keeps its distance to a body. None is the task's usual view, if
    the model has no cameras or the task cannot be known from its id.
    """
    task = task_behind(env_id)
    if task is None:
        return None
    mjm = make_task(task, task_arguments, ()).load()
    modes = mujoco.mjtCamLight.mjCAMLIGHT_TRACK, mujoco.mjtCamLight.mjCAMLIGHT_TRACKCOM
    tracking = [i for i in range(mjm.ncam) if mjm.cam_mode[i] in modes]
    named = [i for i in tracking if mjm.camera(i).name == "track"]
    return next(iter([*named, *tracking, *range(mjm.ncam)]), None)


def played(env: TorchVectorEnv, policy: Policy, seed: int, steps: int) -> Iterator[int]:
    """Let the policy act for `steps` steps, and yield their numbers, 0 before the first. Ended episodes begin anew."""
    obs, _ = env.reset(seed=seed)
    yield 0
    for step in range(1, steps + 1):
        obs, *_ = env.step(policy(obs))
        yield step


def writer(out: Path, seconds: float) -> Any:
    """Return a writer of a film whose frames are `seconds` apart. Raises SystemExit if an .mp4 cannot be written."""
    import imageio.v2 as imageio

    if out.suffix == ".gif":
        return imageio.get_writer(out, duration=1000 * seconds, loop=0)
    try:
        return imageio.get_writer(out, fps=1 / seconds, macro_block_size=2)
    except (ImportError, ValueError) as error:
        raise SystemExit(f"an .mp4 needs {install('video')}; a .gif needs nothing more") from error

"""Pictures a second: `Simulation.render` beside `mujoco.Renderer`, in turns, in one process, and steps with pictures.

    MUJOCO_GL=egl python -m benchmarks.pictures             # of Gymnasium's tasks and of robots, of one core
    MUJOCO_GL=egl python -m benchmarks.pictures robots --menagerie ~/mujoco_menagerie      # with their meshes, too
    python -m benchmarks.pictures steps --threads 2         # environments whose observations are pictures
    python -m benchmarks.pictures gpu steps --device cuda --worlds 1024                    # on a GPU, beside the CPU's

Both draw the same states in colour, with shadows and reflections and without. Software OpenGL (Mesa) is held to one
thread, as torch is. Ours draws many worlds at once, `mujoco.Renderer` one after the other, as each is made to. MuJoCo
smooths edges by four samples a pixel, and ours does not. Rates are by the processor time of one core; those of steps by
the clock, and by the processor time of all threads.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator

import gymnasium
import mujoco
import numpy as np
import torch

import torch_mjenvs  # noqa: F401 (its environments)
from torch_mjenvs import Simulation
from torch_mjenvs.playground.scenes import scene

from .gpu import timed
from .machine import rate, wait

TASKS = ("HalfCheetah", "Hopper", "Humanoid")
SCENES = {"Go1": "scene_mjx_feetonly_flat_terrain.xml", "G1": "scene_mjx_feetonly_flat_terrain.xml"}
# The scene in which all parts of the robot collide, as primitives.
FULL = {"Go1": "scene_mjx_fullcollisions_flat_terrain.xml"}
FLAGS = (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION)
EFFECTS = {"without shadows and mirrors": ("shadow", "reflection"), "with": ()}
STEPS, STEPPED = "TorchDMC/cheetah-run-v0", 1024


def of_ours(simulation: Simulation, size: int, without: tuple[str, ...], outputs: tuple[str, ...]) -> Callable[[], int]:
    def draw() -> int:
        simulation.render(0, size, size, outputs=outputs, without=without)
        return simulation.num_worlds

    draw()
    return draw


def of_mujoco(renderer: mujoco.Renderer, d: mujoco.MjData, plain: bool) -> Callable[[], int]:
    def draw() -> int:
        renderer.update_scene(d, 0)
        for flag in FLAGS:
            renderer.scene.flags[flag] = not plain
        renderer.render()
        return 1

    draw()
    return draw


def tasks() -> Iterator[tuple[str, mujoco.MjModel]]:
    for name in TASKS:
        yield name, gymnasium.make(f"{name}-v5").unwrapped.model


def robots(menagerie: str) -> Iterator[tuple[str, mujoco.MjModel]]:
    """Robots of MuJoCo Playground as its tasks have them: by their collision shapes, and as Menagerie draws them."""
    for name, file in SCENES.items():
        yield f"{name}, primitives", scene(name.lower(), FULL.get(name, file)).compile()
        if menagerie:
            model = scene(name.lower(), file, menagerie).compile()
            yield f"{name}, meshes ({model.nmeshface:,} triangles)", model


def compare(name: str, model: mujoco.MjModel, size: int, worlds: int, seconds: float) -> None:
    """Print the rows of a model's table: states lie about its first keyframe, or where it begins without one."""
    simulation = Simulation(model, worlds)
    about = model.key_qpos[0] if model.nkey else model.qpos0
    noise = np.random.default_rng(0).normal(size=(worlds, model.nq))
    simulation.qpos.copy_(torch.as_tensor(about + 0.1 * noise, dtype=torch.float32))
    d = mujoco.MjData(model)
    d.qpos[:] = simulation.qpos[0].double().numpy()
    mujoco.mj_forward(model, d)
    renderer = mujoco.Renderer(model, size, size)
    for what, without in EFFECTS.items():
        draws = (
            of_ours(simulation, size, without, ("rgb",)),
            of_mujoco(renderer, d, bool(without)),
            of_ours(simulation, size, (), ("depth", "segmentation")),
        )
        rates = np.median([[rate(draw, seconds) for draw in draws] for _ in range(3)], axis=0)
        ours, theirs, depth = rates
        print(f"| {name} | {what} | {ours:,.0f} | {theirs:,.0f} | {ours / theirs:.0f} | {depth:,.0f} |", flush=True)
    renderer.close()


def on_gpu(name: str, model: mujoco.MjModel, size: int, worlds: int, seconds: float, device: torch.device) -> None:
    """Print a model's rows: pictures a second by the GPU's clock, and how many numbers differ from the CPU's."""
    simulations = [Simulation(model, worlds, device=place) for place in (device, torch.device("cpu"))]
    noise = np.random.default_rng(0).normal(size=(worlds, model.nq))
    qpos = torch.as_tensor(model.qpos0 + 0.1 * noise, dtype=torch.float32)
    for simulation in simulations:
        simulation.qpos.copy_(qpos)
    for what, without in EFFECTS.items():
        for outputs in (("rgb",), ("depth", "segmentation")):
            draw = of_ours(simulations[0], size, without, outputs)
            theirs, ours = (x.render(0, size, size, outputs=outputs, without=without) for x in reversed(simulations))
            differ = sum(int((ours[key].cpu() != theirs[key]).sum()) for key in outputs)
            times = max(1, round(seconds / timed(device, draw, 1)))
            rates = [worlds * times / timed(device, draw, times) for _ in range(3)]
            print(f"| {name} | {' and '.join(outputs)} | {what} | {np.median(rates):,.0f} | {differ} |", flush=True)


def steps(size: int, seconds: float, device: torch.device) -> None:
    """Print how many steps a second an environment makes whose observations are stacks of three pictures."""
    print(f"| {STEPS}, {STEPPED:,} worlds, {size} x {size} x 9 | steps a second | of a core |\n|---|--:|--:|")
    for what, without in EFFECTS.items():
        pixels = dict(width=size, height=size, camera=0, stack=3, without=without)
        env = gymnasium.make_vec(STEPS, num_envs=STEPPED, pixels=pixels, device=device)
        env.reset(seed=0)
        actions = 2.0 * torch.rand(STEPPED, *env.single_action_space.shape, device=device) - 1.0
        env.step(actions)
        rates = []
        for _ in range(3):
            count = 0
            start, used = time.perf_counter(), time.process_time()
            while time.perf_counter() - start < seconds:
                for _ in range(10):
                    env.step(actions)
                wait(device)
                count += 10 * STEPPED
            rates.append((count / (time.perf_counter() - start), count / (time.process_time() - used)))
        clock, core = np.median(rates, axis=0)
        print(f"| {what} | {clock:,.0f} | {core:,.0f} |", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="*", help="of tasks, robots, steps and gpu; by itself tasks and robots")
    parser.add_argument("--worlds", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each of three measurements")
    parser.add_argument("--menagerie", default="", help="a checkout of MuJoCo Menagerie, for the robots' meshes")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", type=torch.device, default="cpu", help="of steps and gpu")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    os.environ["LP_NUM_THREADS"] = "0"  # for Mesa, before it is loaded with the first picture
    what = arguments.what or ["tasks", "robots"]
    for name, size, models in (("tasks", 84, tasks()), ("robots", 64, robots(arguments.menagerie))):
        if name in what:
            print(f"\npictures of {size} x {size} a second and core, {arguments.worlds} worlds")
            print("| | | rgb | mujoco.Renderer | times as many | depth and segmentation |\n|---|---|--:|--:|--:|--:|")
            for title, model in models:
                compare(title, model, size, arguments.worlds, arguments.seconds)
    if "steps" in what:
        steps(84, arguments.seconds, arguments.device)
    if "gpu" in what:
        print(f"\npictures of 84 x 84, {arguments.worlds} worlds\n| | | | a second | differ |\n|---|---|---|--:|--:|")
        for title, model in tasks():
            on_gpu(title, model, 84, arguments.worlds, arguments.seconds, arguments.device)


if __name__ == "__main__":
    main()

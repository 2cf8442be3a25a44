"""Pictures a second on one core: `Simulation.render` beside `mujoco.Renderer`, in turns, in one process.

    MUJOCO_GL=egl python -m benchmarks.pictures

Both draw the same states in colour at 84 x 84, with shadows and reflections and without. Software OpenGL (Mesa) is
held to one thread, as torch is. Ours draws many worlds at once, `mujoco.Renderer` one after the other: what each is
made for. MuJoCo smooths edges by four samples a pixel, and ours does not.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable

import gymnasium
import mujoco
import numpy as np
import torch

from torch_mjenvs import Simulation

SIZE = 84
TASKS = ("HalfCheetah", "Hopper", "Humanoid")
FLAGS = (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION)


def rate(draw: Callable[[], int], seconds: float) -> float:
    """Pictures a second of processor time: of a shared machine's, what this process had."""
    start, pictures = time.process_time(), 0
    while time.process_time() - start < seconds:
        pictures += draw()
    return pictures / (time.process_time() - start)


def of_ours(simulation: Simulation, without: tuple[str, ...], outputs: tuple[str, ...]) -> Callable[[], int]:
    def draw() -> int:
        simulation.render(0, SIZE, SIZE, outputs=outputs, without=without)
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


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worlds", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each of three measurements")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    os.environ["LP_NUM_THREADS"] = "0"  # Mesa's: before it is loaded, with the first picture
    print(f"pictures of {SIZE} x {SIZE} a second and core, {arguments.worlds} worlds")
    print("| task | | rgb | mujoco.Renderer | times as many | depth and segmentation |")
    print("|---|---|---|---|---|---|")
    for name in TASKS:
        model = gymnasium.make(f"{name}-v5").unwrapped.model
        simulation = Simulation(model, arguments.worlds)
        noise = np.random.default_rng(0).normal(size=(arguments.worlds, model.nq))
        simulation.qpos.copy_(torch.as_tensor(model.qpos0 + 0.1 * noise, dtype=torch.float32))
        d = mujoco.MjData(model)
        d.qpos[:] = simulation.qpos[0].double().numpy()
        mujoco.mj_forward(model, d)
        renderer = mujoco.Renderer(model, SIZE, SIZE)
        for what, without in (("plain", ("shadow", "reflection")), ("with shadows, reflections", ())):
            draws = (
                of_ours(simulation, without, ("rgb",)),
                of_mujoco(renderer, d, bool(without)),
                of_ours(simulation, (), ("depth", "segmentation")),
            )
            rates = np.median([[rate(draw, arguments.seconds) for draw in draws] for _ in range(3)], axis=0)
            ours, theirs, depth = rates
            print(f"| {name} | {what} | {ours:,.0f} | {theirs:,.0f} | {ours / theirs:.0f} | {depth:,.0f} |", flush=True)
        renderer.close()


if __name__ == "__main__":
    main()

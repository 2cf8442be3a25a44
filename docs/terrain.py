"""Draws docs/terrain.png: a grid of all kinds of terrain, rendered by MuJoCo.

python docs/terrain.py
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

os.environ.setdefault("MUJOCO_GL", "egl")

import mujoco
from PIL import Image, ImageDraw, ImageFont

from torch_mjenvs.terrain import KINDS, TerrainGenerator

PICTURE = Path(__file__).with_name("terrain.png")
WIDTH, HEIGHT, MARGIN = 1200, 400, 40
LENGTH = 82.0  # metres across the picture


def scene() -> tuple[TerrainGenerator, mujoco.MjModel]:
    """Return a grid of all kinds at four levels, and its model, lit from the side."""
    ground = TerrainGenerator(num_rows=4, num_cols=len(KINDS), border_width=1.0, seed=3)
    spec = mujoco.MjSpec()
    vis = getattr(spec.visual, "global")
    vis.offwidth, vis.offheight = 2 * WIDTH, 2 * HEIGHT
    vis.orthographic, vis.fovy = 1, LENGTH * HEIGHT / WIDTH
    spec.visual.headlight.ambient = [0.25] * 3
    spec.visual.headlight.diffuse = [0.2] * 3
    spec.visual.map.zfar = 200
    spec.add_texture(
        name="sky",
        type=mujoco.mjtTexture.mjTEXTURE_SKYBOX,
        builtin=mujoco.mjtBuiltin.mjBUILTIN_FLAT,
        rgb1=[1.0] * 3,
        rgb2=[1.0] * 3,
        width=16,
        height=96,
    )
    ground.add_to(spec, rgba=[0.72, 0.66, 0.55, 1.0])
    spec.worldbody.add_light(
        type=mujoco.mjtLightType.mjLIGHT_DIRECTIONAL, dir=[-0.5, 0.8, -0.6], diffuse=[0.8] * 3, castshadow=False
    )
    return ground, spec.compile()


def main() -> None:
    p = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    p.add_argument("--out", type=Path, default=PICTURE)
    out = p.parse_args().out
    ground, model = scene()
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    camera = mujoco.MjvCamera()
    camera.lookat[:], camera.distance, camera.azimuth, camera.elevation = [0.0, 0.0, 0.0], 60.0, 0.0, -52.0
    camera.orthographic = 1
    with mujoco.Renderer(model, 2 * HEIGHT, 2 * WIDTH) as renderer:
        renderer.update_scene(data, camera)
        picture = Image.fromarray(renderer.render()).resize((WIDTH, HEIGHT), Image.Resampling.LANCZOS)
    image = Image.new("RGB", (WIDTH, HEIGHT + MARGIN), "white")
    image.paste(picture, (0, 0))
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(13)
    for k, kind in enumerate(reversed(ground.kinds)):
        words = type(kind).__name__ + ("\ninverted" if getattr(kind, "inverted", False) else "")
        x = WIDTH / 2 + (k + 0.5 - len(KINDS) / 2) * ground.size[1] * WIDTH / LENGTH
        draw.text((x, HEIGHT + 2), words, "black", font, anchor="ma", align="center")
    image.quantize(128, dither=Image.Dither.NONE).save(out, optimize=True)
    print(f"{out}: {out.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()

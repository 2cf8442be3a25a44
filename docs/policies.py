"""Draws docs/policies.gif: the trained policies that come with the package, side by side.

python docs/policies.py
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from torch_mjenvs import Policy, pretrained
from torch_mjenvs.commands.play import drawn, played
from torch_mjenvs.policy import pretrained_ids

FILM = Path(__file__).with_name("policies.gif")
TASKS = ("HalfCheetah", "Walker2d", "Hopper", "Ant", "Humanoid")
WIDTH, HEIGHT = 192, 168  # of each, in pixels
FPS, BEFORE = 20, 2.0  # pictures a second; seconds before the first, in which robots start to move
COLOURS = 255


def main(arguments: list[str] | None = None) -> None:
    p = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    p.add_argument("--out", type=Path, default=FILM)
    p.add_argument("--seconds", type=float, default=3.0)
    args = p.parse_args(arguments)
    shown = [f"Torch{name}-v0" for name in TASKS if f"Torch{name}-v0" in pretrained_ids()]
    films = [pictures(pretrained(env_id), round(args.seconds * FPS)) for env_id in shown]
    write(args.out, [np.concatenate(row, axis=1) for row in zip(*films, strict=True)])
    print(f"{args.out}: {', '.join(shown)}; {args.out.stat().st_size / 1e6:.1f} MB")


def pictures(policy: Policy, count: int) -> Iterator[np.ndarray]:
    """What the camera sees, FPS times a second."""
    env = drawn(policy.env_id, 1, WIDTH, HEIGHT)
    due = [round((BEFORE + k / FPS) / env.dt) for k in range(count)]
    for step in played(env, policy, 0, due[-1]):
        if step in due:
            (picture,) = env.render() or ()
            yield titled(picture, policy.env_id)
    env.close()


def titled(picture: np.ndarray, title: str) -> np.ndarray:
    image = Image.fromarray(picture)
    ImageDraw.Draw(image).text(
        (6, 4), title, font=ImageFont.load_default(12), fill="white", stroke_width=1, stroke_fill="black"
    )
    return np.asarray(image)


def write(out: Path, frames: list[np.ndarray], fps: float = FPS) -> None:
    """Write a film with one palette and no dithering, so that what stands still is stored once."""
    some = np.concatenate(frames[:: max(1, len(frames) // 8)])
    palette = Image.fromarray(some).quantize(COLOURS, Image.Quantize.MEDIANCUT)
    first, *rest = [Image.fromarray(x).quantize(palette=palette, dither=Image.Dither.NONE) for x in frames]
    first.save(out, save_all=True, append_images=rest, duration=1000 / fps, loop=0)


if __name__ == "__main__":
    main()

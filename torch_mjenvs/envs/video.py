"""Pictures and films of many worlds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np


class RecordVideo(gymnasium.wrappers.vector.RecordVideo):
    """Films of the environment's `render_worlds` alone, made as by Gymnasium's wrapper of that name.

    Gymnasium's own wants a frame of every world. Needs moviepy (the extra `video`).
    """

    def _capture_frame(self) -> None:
        frames: Any = self.env.render()
        frames = [frames[0]] if self.record_first_only else list(frames)
        if -1 in (self.frame_cols, self.frame_rows):
            height, width, _ = frames[0].shape
            self._get_concat_frame_shape(len(frames), height, width)
        self.recorded_frames.append(self._concat_frames(frames))


def tile_images(images: Sequence[np.ndarray]) -> np.ndarray:
    """Tile images of the same size, (H, W, ...) each, into one: row by row, in nearly as many rows as columns.

        picture = tile_images(env.render())

    Places that are left over are black. Raises ValueError for no images, or sizes that differ.
    """
    columns = math.ceil(math.sqrt(len(images)))
    stacked = np.stack(images)
    missing = -len(images) % columns
    padded = np.concatenate([stacked, np.zeros((missing, *stacked.shape[1:]), stacked.dtype)])
    rows = [np.concatenate(list(row), axis=1) for row in padded.reshape(-1, columns, *stacked.shape[1:])]
    return np.concatenate(rows)

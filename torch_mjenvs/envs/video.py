"""Films of some of many worlds."""

from __future__ import annotations

from typing import Any

import gymnasium


class RecordVideo(gymnasium.wrappers.vector.RecordVideo):
    """Films, as Gymnasium's wrapper of that name makes them, of the environment's `render_worlds` alone.

    Gymnasium's own wants a frame of every world. Needs the extra `torch_mjenvs[video]`.
    """

    def _capture_frame(self) -> None:
        frames: Any = self.env.render()
        frames = [frames[0]] if self.record_first_only else list(frames)
        if -1 in (self.frame_cols, self.frame_rows):
            height, width, _ = frames[0].shape
            self._get_concat_frame_shape(len(frames), height, width)
        self.recorded_frames.append(self._concat_frames(frames))

"""Files that are complete at any moment."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path


def write_whole(path: Path, content: bytes | memoryview, shared: bool = False) -> None:
    """Write a file completely or not at all: at any moment, even after a power cut, it has the old contents or the new.

    shared: whether others may write the same file at the same time. The last one to finish counts then; if a writer is
    killed, its draft stays behind.

    Raises OSError if it cannot be written, as on a full disk; the old contents are then still there.
    """
    own = f".{os.getpid()}-{threading.get_ident()}" if shared else ""
    draft = path.with_name(f"{path.name}{own}.draft")  # of the whole name: policy.onnx may be written beside policy.pt
    try:
        with draft.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError:
        with suppress(OSError):
            draft.unlink()
        raise
    _sync_folder(path.parent)


def _sync_folder(path: Path) -> None:
    """Flush a folder's names to the disk, if the system can do that."""
    with suppress(OSError):
        folder = os.open(path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

"""Object code kept on disk between processes."""

from __future__ import annotations

import functools
import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

DIGEST = hashlib.sha256().digest_size


def kept_or_made(name: str, key: str, make: Callable[[], bytes]) -> bytes:
    """The code kept under this key, or what `make` makes, which is then kept."""
    path = _path(f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:32]}.o")
    code = _kept(path) if path else None
    if code is None:
        code = make()
        if path:
            _keep(path, code)
    return code


@functools.cache
def source_digest() -> str:
    """A digest of this package's own source: any change to it makes all that was built before unknown."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _path(name: str) -> Path | None:
    try:
        return directory() / name
    except RuntimeError:  # the user has no home
        return None


def directory() -> Path:
    """`TORCH_MJENVS_CACHE`, or a folder of the user's cache."""
    chosen = os.environ.get("TORCH_MJENVS_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "torch_mjenvs"


def _kept(path: Path) -> bytes | None:
    """The code kept there; None if there is none or the file is damaged: the loader would crash on it."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    digest, code = content[:DIGEST], content[DIGEST:]
    return code if hashlib.sha256(code).digest() == digest else None


def _keep(path: Path, code: bytes) -> None:
    """Written beside and moved, so that no other process reads half a file; a cache that cannot be written is none."""
    beside = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as f:
            beside = Path(f.name)
            f.write(hashlib.sha256(code).digest() + code)
        beside.replace(path)
    except OSError:
        if beside:
            beside.unlink(missing_ok=True)

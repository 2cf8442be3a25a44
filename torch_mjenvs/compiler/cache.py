"""Object code kept on disk between processes.

Loaded code runs with the user's rights. So a file is used only if no other user can have written it, and only for the
key that it was kept under: its header has the digest of the whole key, and of what follows. A small file may lead to
code under another key: it holds just the digest of that key.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import stat
import tempfile
import time
import warnings
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import platformdirs

MAGIC = b"torch_mjenvs code 1\n"  # what a file begins with; the digests of key and code come next
DIGEST = hashlib.sha256().digest_size
LIMIT = 512_000_000  # bytes that the folder may hold; beyond that, the least recently used files are removed
STALE = 3600  # seconds after which the writer of an unfinished file must be gone
NAMES = re.compile(r"[\w-]+-[0-9a-f]{32}\.o(?P<unfinished>\.\w+\.tmp)?")
_unchecked: dict[Path, int] = {}  # bytes that this process has written into a folder since it last checked its size
CHECKED = hasattr(os, "geteuid")  # Windows has no owners of this kind, and a user's folders are their own


def load(name: str, key: str) -> bytes | None:
    """Return the code kept under this key; None if there is none, or none that can be trusted."""
    return _load(name, _digest(key))


def store(name: str, key: str, code: bytes) -> None:
    """Keep code on disk under this key, or do nothing where the cache cannot be written."""
    _store(name, _digest(key), code)


def load_linked(name: str, key: str) -> bytes | None:
    """Return the code that this key leads to; None if it leads nowhere, or the code is gone."""
    digest = _load(f"{name}-origin", _digest(key))
    return None if digest is None else _load(name, digest)


def link(name: str, key: str, to: str) -> None:
    """Keep on disk that this key leads to the code that is kept under another."""
    _store(f"{name}-origin", _digest(key), _digest(to))


def _load(name: str, digest: bytes) -> bytes | None:
    folder = _trusted_directory()
    if folder is None:
        return None
    content = _read(folder / _file_name(name, digest))
    header = MAGIC + digest
    if content is None or not content.startswith(header):
        return None
    code = content[len(header) + DIGEST :]
    return code if content[len(header) :].startswith(hashlib.sha256(code).digest()) else None


def _store(name: str, digest: bytes, code: bytes) -> None:
    """Write another file first and then rename it, so that no process reads half a file."""
    folder = _trusted_directory(make=True)
    if folder is None:
        return
    path, beside = folder / _file_name(name, digest), None
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=f"{path.name}.", suffix=".tmp", delete=False) as f:
            beside = Path(f.name)
            f.write(MAGIC + digest + hashlib.sha256(code).digest() + code)
        beside.replace(path)
    except OSError:
        if beside:
            beside.unlink(missing_ok=True)
    _unchecked[folder] = _unchecked.get(folder, LIMIT) + len(code)
    if _unchecked[folder] > LIMIT / 100:  # to look through thousands of files takes as long as compiling a small kernel
        _unchecked[folder] = 0
        tidy(folder)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


def _file_name(name: str, digest: bytes) -> str:
    return f"{re.sub(r'[^a-zA-Z0-9_]', '-', name)[:100]}-{digest.hex()[:32]}.o"


# where


def directory() -> Path | None:
    """Return the cache's folder, `TORCH_MJENVS_CACHE` or one in the user's cache; None if the user has no home."""
    chosen = os.environ.get("TORCH_MJENVS_CACHE")
    if chosen:
        path = Path(os.path.expanduser(chosen))
        if path.is_absolute():
            return path
        _warn(f"TORCH_MJENVS_CACHE={chosen!r} is not used, as it is relative: name a folder by its full path")
    path = platformdirs.user_cache_path("torch_mjenvs", appauthor=False)
    return path if path.is_absolute() else None


def _trusted_directory(make: bool = False) -> Path | None:
    """Return the folder, if it exists and only the user can write into it."""
    path = directory()
    if path is None:
        return None
    try:
        if make:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.stat()
    except OSError:
        return None
    return path if stat.S_ISDIR(found.st_mode) and _is_private(path, found) else None


def _read(path: Path) -> bytes | None:
    """Return the content of a file that only the user can write, and mark the file as just used."""
    flags = (getattr(os, name, 0) for name in ("O_BINARY", "O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK"))
    try:
        file = os.open(path, os.O_RDONLY | sum(flags))
    except OSError:
        return None
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or not _is_private(path, found):
            return None
        with open(file, "rb", closefd=False) as f:
            content = f.read()
        with suppress(OSError):  # where the folder can only be read
            os.utime(path)
        return content
    except OSError:
        return None
    finally:
        os.close(file)


def _is_private(path: Path, found: os.stat_result) -> bool:
    """Return whether the user owns the file and nobody else can write it; if not, warn of it once."""
    if not CHECKED:
        return True
    if found.st_uid != os.geteuid():
        remedy = "remove it, or set TORCH_MJENVS_CACHE to a folder of your own"
        _warn(f"{path} is not used, as another user owns it (number {found.st_uid}): {remedy}")
        return False
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        _warn(f"{path} is not used, as others may write it: see what it is, then chmod go-w it or remove it")
        return False
    return True


@functools.cache
def _warn(text: str) -> None:
    """Warn of this, once for each text."""
    warnings.warn(f"cache of compiled kernels: {text}", RuntimeWarning, stacklevel=2)


# how much


@dataclass(frozen=True)
class Entry:
    """A file of the cache; `used`: seconds since the epoch."""

    path: Path
    size: int
    used: float
    unfinished: bool


def entries(folder: Path) -> list[Entry]:
    """Return the cache's own files, most recently used first."""
    found = []
    with suppress(OSError), os.scandir(folder) as files:
        for file in files:
            named = NAMES.fullmatch(file.name)
            with suppress(OSError):
                if named and file.is_file(follow_symlinks=False):
                    state = file.stat(follow_symlinks=False)
                    found.append(Entry(Path(file.path), state.st_size, state.st_mtime, bool(named["unfinished"])))
    return sorted(found, key=lambda entry: entry.used, reverse=True)


def tidy(folder: Path) -> None:
    """Remove unfinished files of writers that were killed and, beyond LIMIT, the least recently used files."""
    total = 0
    for entry in entries(folder):
        total += entry.size
        if total > LIMIT or (entry.unfinished and time.time() - entry.used > STALE):
            with suppress(OSError):
                entry.path.unlink()

"""Guards for public calls: one thread at a time, and outside of inference mode where buffers are made."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from gymnasium.error import AlreadyPendingCallError

Method = TypeVar("Method", bound=Callable[..., Any])


def lasting(make: Method) -> Method:
    """Make a function allocate its buffers outside inference mode: tensors made inside can be written only inside."""
    return torch.inference_mode(False)(make)


def exclusive(method: Method) -> Method:
    """Refuse the call while another thread is in one that holds the same `_lock`.

    Kernels run without Python's lock, so two threads would write into the same worlds at the same time. Code that torch
    compiles does not check this.
    """

    @functools.wraps(method)
    def watched(self: Any, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_dynamo_compiling():
            return method(self, *args, **kwargs)
        lock = self._lock
        if not lock.acquire(False):
            raise AlreadyPendingCallError(
                f"{method.__name__}() was called while another thread is in a call of the same worlds: let one thread "
                "at a time call them, or give each thread worlds of its own",
                method.__name__,
            )
        try:
            return method(self, *args, **kwargs)
        finally:
            lock.release()

    return cast(Method, watched)


class Lock(type(threading.RLock())):  # type: ignore[misc]
    """A reentrant lock that an object and its wrappers share, held while one of their methods runs.

    A copy of it is a free lock.
    """

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return Lock, ()

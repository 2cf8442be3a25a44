"""A process that has imported this package, and forks whenever Python is to run something: a start then takes a tenth
of a second of processor time instead of three. `processes.py` speaks to it.

Each line that it reads is a request in JSON: the words after `python` on a command line, the folder, the environment,
and the files for output. It answers with the child's number and, when the child has ended, with its status. A child
inherits from the server what `import torch_mjenvs` brings, and no more.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import sys
import types
from typing import Any

SERVER = sys.modules["__main__"]  # kept, since a module's contents are cleared when it is deleted


def serve() -> dict[str, Any] | None:
    """Fork at each request. Returns it in the child, and None in the server when nobody asks any more."""
    for line in sys.stdin:
        child = os.fork()
        if not child:
            return json.loads(line)
        print(child, flush=True)
        print(os.waitpid(child, 0)[1], flush=True)
    return None


def become(request: dict[str, Any]) -> None:
    """Become what a process started with this request would be, as the head of a group of processes."""
    os.setsid()
    for descriptor, path, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, request["out"], os.O_WRONLY),
        (2, request["err"], os.O_WRONLY),
    ):
        opened = os.open(path, flags)
        os.dup2(opened, descriptor)
        os.close(opened)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])


def execute(what: str, *arguments: str) -> None:
    """Execute `-c CODE ...`, `-m MODULE ...` or `FILE ...` as Python does."""
    if what not in ("-c", "-m"):
        sys.argv, sys.path[0] = [what, *arguments], os.path.dirname(os.path.abspath(what))
        runpy.run_path(what, run_name="__main__")
        return
    text, *rest = arguments
    sys.argv, sys.path[0] = [what, *rest], "" if what == "-c" else os.getcwd()
    if what == "-m":
        runpy.run_module(text, run_name="__main__", alter_sys=True)
        return
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    exec(compile(text, "<string>", "exec"), vars(module))


if __name__ == "__main__":
    sys.path[0] = os.getcwd()
    import numpy

    import torch_mjenvs  # noqa: F401

    gc.freeze()  # so that a collection in a child copies no pages
    request = serve()
    if request is not None:
        become(request)
        numpy.random.seed()  # noqa: NPY002, as Python seeds its own at a fork
        execute(*request["command"])

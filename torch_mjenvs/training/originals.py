"""Gymnasium's and dm_control's own tasks, stepped by one process per core: a step takes as long as thousands here.

This file is also the program of the processes that step them, run by its path. It imports neither torch nor this
package, whose import would take longer than the work of a process. It communicates through pipes, and is started
neither by a fork of a program with threads nor by importing that program anew. It ends when the pipe is closed.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import os
import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from pathlib import Path
from typing import Any

import gymnasium
import mujoco
import numpy as np

FEWEST = 16  # worlds that are worth a process: their episodes take longer than its start
Step = tuple[Any, Any, Any, Any, dict[str, Any]]  # observations (N, O), rewards, terminated and truncated (N,), nothing


SUITE = "dm_control/"  # before the names of dm_control's tasks: "dm_control/walker-walk"


class Suite(gymnasium.Env[Any, Any]):
    """A task of dm_control's suite, such as "walker-walk", as one of Gymnasium's environments.

    An observation is a row of its numbers, (O,) in dm_control's order.
    """

    def __init__(self, name: str):
        domain, _, task = name.partition("-")
        self.env = suite().load(domain, task)
        spec, shapes = self.env.action_spec(), [x.shape for x in self.env.observation_spec().values()]
        size = sum(int(np.prod(shape)) for shape in shapes)
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (size,), np.float64)
        self.action_space = gymnasium.spaces.Box(spec.minimum, spec.maximum, spec.shape, np.float64)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode, with this seed if there is one."""
        if seed is not None:
            self.env.task.random.seed(seed % 2**32)  # all that NumPy's generator takes
        return _row(self.env.reset().observation), {}

    def step(self, action: Any) -> Step:
        """Take one control step. An episode that dm_control ends with discount 0 is terminated, else truncated."""
        found = self.env.step(action)
        terminated = bool(found.last() and found.discount == 0.0)
        return _row(found.observation), found.reward, terminated, found.last() and not terminated, {}

    def close(self) -> None:
        """Close the wrapped environment."""
        self.env.close()


def _row(observation: Any) -> Any:
    return np.concatenate([np.ravel(x) for x in observation.values()])


def suite() -> Any:
    """Import dm_control's suite.

    dm_control 1.0.50 has a table of array sizes with fields that MuJoCo 4.0 no longer has; they are taken out first.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # GLFW warns if there is no display
        from dm_control.mujoco.wrapper.mjbindings import sizes

    model = mujoco.MjModel.from_xml_string("<mujoco/>")
    for table, made in (("mjmodel", model), ("mjdata", mujoco.MjData(model))):
        for name in [name for name in sizes.array_sizes[table] if not hasattr(made, name)]:
            del sizes.array_sizes[table][name]
    from dm_control import suite

    return suite


def make_original(name: str, **arguments: Any) -> gymnasium.Env[Any, Any]:
    """Make one of Gymnasium's tasks, by its id, or one of dm_control's, such as "dm_control/walker-walk", without
    arguments.
    """
    if name.startswith(SUITE):
        return Suite(name.removeprefix(SUITE), **arguments)
    with without_the_warning_of_settotalmass():
        return gymnasium.make(name, disable_env_checker=True, **arguments)


class Worlds:
    """Worlds of one of these tasks, each for one episode. A world whose episode has ended is not stepped."""

    def __init__(self, name: str, num_envs: int, arguments: dict[str, Any]):
        self.envs = [make_original(name, **arguments) for _ in range(num_envs)]
        self.ended = [False] * num_envs

    def reset(self, seed: int) -> Any:
        """Begin the episodes, of the seeds `seed`, `seed` + 1 and so on. Returns observations (N, O)."""
        self.obs = np.stack([env.reset(seed=seed + i)[0] for i, env in enumerate(self.envs)])
        return self.obs

    def step(self, actions: Any) -> Step:
        """Step the worlds whose episodes go on; of the others, rewards are 0 and both flags False."""
        rewards, terminated, truncated = np.zeros(len(self.envs)), *np.zeros((2, len(self.envs)), bool)
        for i, env in enumerate(self.envs):
            if not self.ended[i]:
                self.obs[i], rewards[i], terminated[i], truncated[i], _ = env.step(actions[i])
                self.ended[i] = bool(terminated[i] or truncated[i])
        return self.obs, rewards, terminated, truncated, {}

    def close(self) -> None:
        """Close the worlds."""
        for env in self.envs:
            env.close()


class WorkerProcess:
    """`Worlds` in a process of their own. A call starts work there, and returns what waits for the result."""

    def __init__(self, *arguments: Any):
        command, pipe = [sys.executable, "-P", __file__], subprocess.PIPE
        env = {"OPENBLAS_NUM_THREADS": "1"} | os.environ  # else NumPy's threads would spin beside other processes
        # Its own session: Ctrl-C is for the program that started it, whose end is its end, too.
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True, env=env)
        assert self.process.stdin and self.process.stdout
        self.to, self.back = self.process.stdin, self.process.stdout
        self._send(*arguments)

    def reset(self, seed: int) -> Callable[[], Any]:
        self._send("reset", seed)
        return self._result

    def step(self, actions: Any) -> Callable[[], Any]:
        self._send("step", actions)
        return self._result

    def _send(self, *message: Any) -> None:
        try:
            pickle.dump(message, self.to, pickle.HIGHEST_PROTOCOL)
            self.to.flush()
        except BrokenPipeError:
            self._result()

    def _result(self) -> Any:
        """Return the result, or raise the error there was. Raises RuntimeError if the process has ended."""
        try:
            found = pickle.load(self.back)
        except EOFError:
            status = self.process.wait()
            raise RuntimeError(f"a process that runs the original task ended with status {status}") from None
        if isinstance(found, BaseException):
            raise found
        return found

    def close(self) -> None:
        """End the process, whatever it is doing."""
        self.process.kill()
        self.process.wait()
        with suppress(BrokenPipeError):  # closing flushes what was not sent yet
            self.to.close()
        self.back.close()


class ParallelWorlds:
    """`Worlds` divided among processes: the same results, bit for bit, in a fraction of the time.

    Processes start at once, and make their worlds while this one does something else. With a single process, worlds are
    made and stepped in this one.
    """

    def __init__(self, name: str, num_envs: int, processes: int, arguments: dict[str, Any]):
        bounds = [num_envs * i // processes for i in range(processes + 1)]
        self.num_envs = num_envs
        self.parts = [slice(a, b) for a, b in itertools.pairwise(bounds)]
        self.worlds: Sequence[Any]
        if processes == 1:
            self.worlds = [Worlds(name, num_envs, arguments)]
        else:
            self.worlds = [WorkerProcess(name, part.stop - part.start, arguments) for part in self.parts]

    def reset(self, seed: int) -> tuple[Any, dict[str, Any]]:
        """Begin the episodes, of the seeds `seed`, `seed` + 1 and so on. Returns observations (N, O), and nothing."""
        begun = [worlds.reset(seed + part.start) for worlds, part in zip(self.worlds, self.parts, strict=True)]
        return np.concatenate([_result(x) for x in begun]), {}

    def step(self, actions: Any) -> Step:
        """Step all worlds whose episodes go on, with actions (N, A); see `Worlds.step`."""
        begun = [worlds.step(actions[part]) for worlds, part in zip(self.worlds, self.parts, strict=True)]
        *found, _ = zip(*map(_result, begun), strict=True)
        obs, rewards, terminated, truncated = map(np.concatenate, found)
        return obs, rewards, terminated, truncated, {}

    def each(self) -> list[ParallelWorlds]:
        """Return the worlds of each process separately; they end together with these."""
        found = []
        for worlds, part in zip(self.worlds, self.parts, strict=True):
            one = copy(self)
            one.worlds, one.num_envs, one.parts = [worlds], part.stop - part.start, [slice(0, part.stop - part.start)]
            found.append(one)
        return found

    def close(self) -> None:
        """Close the worlds, and end their processes."""
        for worlds in self.worlds:
            worlds.close()


def _result(x: Any) -> Any:
    return x() if callable(x) else x


def processes_for(name: str, num_envs: int) -> int:
    """Return the number of processes that share the worlds: one per core, or only one if others could not make them."""
    from ..compiler.assembler import processors  # here, since those processes run this file without the package

    # Tasks of others came with a user's module.
    known = name.startswith(SUITE) or str(gymnasium.spec(name).entry_point).startswith("gymnasium.")
    known &= Path(__file__).is_file() and bool(sys.executable)
    return max(1, min(processors(), num_envs // FEWEST)) if known else 1


@contextmanager
def without_the_warning_of_settotalmass() -> Iterator[None]:
    """Silence MuJoCo's warning of `settotalmass`. Other warnings are shown as before, but not written to a log file."""
    shown = mujoco.get_mju_user_warning() or (lambda message: print(f"MuJoCo: {message}", file=sys.stderr))

    def show(message: str) -> None:
        if "settotalmass" not in message:
            shown(message)

    before = mujoco.get_mju_user_warning()
    mujoco.set_mju_user_warning(show)
    try:
        yield
    finally:
        mujoco.set_mju_user_warning(before)


def _without_timers() -> None:
    """Stop MuJoCo from timing each part of a step: that is not used here, and takes a tenth of a step.

    MuJoCo's Python package cannot remove the clock that it sets, so this is done in its library, if that is found.
    """
    with suppress(OSError, ValueError):
        library = ctypes.CDLL(f"libmujoco.so.{mujoco.__version__}")  # the one that is loaded
        ctypes.c_void_p.in_dll(library, "mjcb_time").value = None


def _serve() -> None:
    """Execute the requests on the standard input, until it ends."""
    _without_timers()
    inside, out = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print goes elsewhere than the results
    worlds: Any = None
    while True:
        try:
            message = pickle.load(inside)
        except EOFError:
            return
        try:
            if worlds is None:
                worlds = Worlds(*message)
                gc.freeze()  # what is there stays, and need not be looked through again and again
                continue
            found = getattr(worlds, message[0])(*message[1:])
        except Exception as error:
            found = error
        try:
            pickle.dump(found, out, pickle.HIGHEST_PROTOCOL)
            out.flush()
        except BrokenPipeError:
            os._exit(0)  # what is left in the pipe cannot be flushed


if __name__ == "__main__":
    _serve()

"""MJX in a process of its own, as it needs another MuJoCo than this package: nothing of ours is imported here.

    python -P benchmarks/mjx_process.py MODEL.xml STATES.npz REACHED.npy FRAME_SKIP [--iterations K] [--ls-iterations K]

STATES has qpos (N, nq) and qvel (N, nv), from which each call starts, and controls (T, N, nu), each held for FRAME_SKIP
physics steps. The first call writes the qpos reached to REACHED. Then every line on standard input asks for a call.
Answers are lines of JSON: first what MJX is here, then {"seconds": ...} for each call; or {"error": ...}, which is the
last. Packages may print other lines. Standard input's end ends the process, whatever it is doing.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # others need memory, too

import jax
import mujoco
import numpy as np
from mujoco import mjx


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model", type=Path)
    p.add_argument("states", type=Path)
    p.add_argument("reached", type=Path)
    p.add_argument("frame_skip", type=int)
    p.add_argument("--iterations", type=int, help="of the solver; by default the model's")
    p.add_argument("--ls-iterations", type=int, help="of its line search; by default the model's")
    args = p.parse_args()
    asked: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=read, args=(asked,), daemon=True).start()
    try:
        began = time.perf_counter()
        model = newton(mujoco.MjModel.from_xml_path(os.fspath(args.model)))
        for name in ("iterations", "ls_iterations"):
            if (value := getattr(args, name)) is not None:
                setattr(model.opt, name, value)
        with np.load(args.states) as states:
            call = compiled(model, states["qpos"], states["qvel"], states["controls"], args.frame_skip)
        reached = call()
        first = time.perf_counter() - began
        np.save(args.reached, np.asarray(reached))
        told = {"iterations": int(model.opt.iterations), "ls_iterations": int(model.opt.ls_iterations)}
        tell({"first_call_s": first, "version": versions(), "device": jax.devices()[0].device_kind, **told})
        while True:
            asked.get()
            began = time.perf_counter()
            call()
            tell({"seconds": time.perf_counter() - began})
    except Exception as error:
        tell({"error": f"{type(error).__name__}: {error}".splitlines()[0][:200]})
        return 1


def read(asked: queue.SimpleQueue[str]) -> None:
    for line in sys.stdin:
        asked.put(line)
    os._exit(0)


def tell(found: dict[str, Any]) -> None:
    print(json.dumps(found), flush=True)


def newton(model: mujoco.MjModel) -> mujoco.MjModel:
    """MJX has no PGS."""
    if model.opt.solver == mujoco.mjtSolver.mjSOL_PGS:
        model.opt.solver = mujoco.mjtSolver.mjSOL_NEWTON
    return model


def versions() -> str:
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("mujoco-mjx", "jax"))


def compiled(
    model: mujoco.MjModel, qpos: np.ndarray, qvel: np.ndarray, controls: np.ndarray, frame_skip: int
) -> Callable[[], jax.Array]:
    """One jitted call, a scan over environment steps of the vmapped step, in MJX's usual float32."""
    m = mjx.put_model(model, impl="jax")
    qpos, qvel, commands = (jax.device_put(x.astype(np.float32)) for x in (qpos, qvel, controls))
    start = jax.jit(jax.vmap(lambda q, v: mjx.make_data(m).replace(qpos=q, qvel=v)))(qpos, qvel)

    def one(data: Any, ctrl: Any) -> Any:
        return jax.lax.fori_loop(0, frame_skip, lambda _, d: mjx.step(m, d), data.replace(ctrl=ctrl))

    advance = jax.jit(lambda d, c: jax.lax.scan(lambda x, u: (jax.vmap(one)(x, u), None), d, c)[0].qpos)
    return lambda: advance(start, commands).block_until_ready()


if __name__ == "__main__":
    sys.exit(main())

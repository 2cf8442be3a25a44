"""Forked children (multiprocessing, DataLoader, AsyncVectorEnv) can use what their parent made, and never hang."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from processes import run

pytestmark = [
    pytest.mark.cpu,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here"),
]

START = """
import os, sys, threading, time
import torch
import torch_mjenvs
from torch_mjenvs import TorchVectorEnv
torch.set_num_threads(2)

def forked(act):
    '''Fork; the child's exit status says whether `act` was true there.'''
    child = os.fork()
    if not child:
        try:
            os._exit(0 if act() else 1)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(2)
    return child

def joined(*children):
    assert all(os.waitpid(child, 0)[1] == 0 for child in children)
"""


def run_forking(script: str, cache: Path | None = None) -> None:
    run(START + script, **({} if cache is None else {"TORCH_MJENVS_CACHE": str(cache)}))


def test_forked_workers_that_were_given_no_seed_differ():
    """As those of Gymnasium's own do. With a seed of torch in each they follow that."""
    run_forking("""
import gymnasium, multiprocessing
import numpy as np

def first(seed):
    if seed is not None:
        torch.manual_seed(seed)
    return TorchVectorEnv("Hopper", 1).reset()[0][0].tolist()

env = gymnasium.make_vec("TorchHopper-v0", num_envs=3, vectorization_mode="async")
obs = np.asarray(env.reset()[0])
env.close()
assert len(np.unique(obs, axis=0)) == 3
context = multiprocessing.get_context("fork")
with context.Pool(2) as pool:
    a, b = pool.map(first, [None, None], chunksize=1)
with context.Pool(2) as pool:
    c, d = pool.map(first, [7, 7], chunksize=1)
assert a != b and c == d == first(7)
children = [forked(lambda: first(None) == a) for _ in range(2)]  # by os.fork alone
assert not any(os.waitpid(child, 0)[1] == 0 for child in children)
""")


def test_an_environment_made_before_a_fork_goes_on_alike_in_both():
    """With so many worlds torch copies in threads, too, which the child must not wait for."""
    run_forking("""
env = TorchVectorEnv("Hopper", 4096, autoreset_mode="SameStep")
env.reset(seed=0)
actions = torch.rand(4, 4096, 3) * 2 - 1
env.step(actions[0])
state = env.state_dict()
obs = [env.step(a)[0] for a in actions]
env.load_state_dict(state)
def same():
    return torch.get_num_threads() == 2 and all(env.step(a)[0].equal(x) for a, x in zip(actions, obs))
child = forked(same)
assert same()
joined(child)
""")


def test_a_child_makes_environments_of_its_own():
    run_forking("""
torch.ones(4096, 40).exp().sum()  # torch's threads have run
def make():
    env = TorchVectorEnv("Hopper", 4096)
    env.reset(seed=0)
    return env.step(torch.zeros(4096, 3))[0].isfinite().all()
children = [forked(make) for _ in range(2)]
assert make()
joined(*children)
""")


def test_a_child_traces_no_kernel_that_is_kept():
    """What changes in a child is state, not code: the package is still what was imported."""
    run_forking("""
from torch_mjenvs.compiler import source
TorchVectorEnv("InvertedPendulum", 2, device="cpu")

def act():
    TorchVectorEnv("InvertedPendulum", 3, device="cpu").reset(seed=0)
    return not source.is_altered()

joined(forked(act), forked(act))
""")


def test_a_fork_while_another_thread_builds_leaves_the_collector_on():
    """That thread had turned it off, and is not there in the child, where a block may be entered and left as usual."""
    run_forking("""
import gc
from torch_mjenvs.compiler.program import collector_paused
inside, done = threading.Event(), threading.Event()

def build():
    with collector_paused():
        inside.set()
        done.wait()

def act():
    with collector_paused():
        off = not gc.isenabled()
    return off and gc.isenabled()

thread = threading.Thread(target=build)
thread.start()
inside.wait()
joined(forked(act))
done.set()
thread.join()
assert gc.isenabled()
""")


def test_where_openmp_cannot_be_told_to_stop_a_child_has_one_thread():
    """GNU's before GCC 9."""
    run_forking("""
from torch_mjenvs.compiler import fork
fork._pause = lambda: None
env = TorchVectorEnv("Hopper", 4096)
env.reset(seed=0)
env.step(torch.zeros(4096, 3))
joined(forked(lambda: torch.get_num_threads() == 1 and env.step(torch.zeros(4096, 3))[0].isfinite().all()))
assert torch.get_num_threads() == 2
""")


def test_a_fork_while_another_thread_compiles(tmp_path):
    """It waits until LLVM is free: the child finds no lock held by a thread that it does not have."""
    run_forking(
        """
from torch_mjenvs.compiler import loader
assemble, begun = loader.assemble, threading.Event()
def told(*args):
    begun.set()
    return assemble(*args)
loader.assemble = told
def make(**kwargs):
    env = TorchVectorEnv("InvertedPendulum", 4, **kwargs)
    env.reset(seed=0)
    return env.step(torch.zeros(4, 1))[0].isfinite().all()
thread = threading.Thread(target=lambda: TorchVectorEnv("Walker2d", 4))
thread.start()
begun.wait()
children = []
for k in range(3):
    time.sleep(0.05)
    children.append(forked(make))
joined(*children)
thread.join()
assert make(dtype=torch.float64)
""",
        tmp_path,
    )


def test_a_fork_while_another_thread_first_sets_a_state(tmp_path):
    """What is built when it is first asked for is not built under a lock, which the child would find held for ever."""
    run_forking(
        """
from torch_mjenvs.compiler import loader
env, other = (TorchVectorEnv(name, 4) for name in ("Walker2d", "InvertedPendulum"))
assemble, begun = loader.assemble, threading.Event()
def told(*args):
    begun.set()
    return assemble(*args)
loader.assemble = told
def put(env):
    env.set_state(env.qpos.clone(), env.qvel.clone())
    return True
thread = threading.Thread(target=put, args=(env,))
thread.start()
begun.wait()
joined(forked(lambda: put(other)))
thread.join()
""",
        tmp_path,
    )


def test_what_another_thread_was_in_stays_refused_in_the_child():
    """Its worlds may be half stepped there, and the thread that was to finish it is not there."""
    run_forking("""
from gymnasium.error import AlreadyPendingCallError
from torch_mjenvs.compiler import launch
env, inside, go_on = TorchVectorEnv("InvertedPendulum", 4), threading.Event(), threading.Event()
env.reset(seed=0)
run = launch.Launch.__call__
def held(self, times=1):
    inside.set()
    go_on.wait()
    run(self, times)
launch.Launch.__call__ = held
thread = threading.Thread(target=env.step, args=(torch.zeros(4, 1),))
thread.start()
inside.wait()
def refused():
    try:
        env.step(torch.zeros(4, 1))
    except AlreadyPendingCallError:
        return True
joined(forked(refused))
go_on.set()
thread.join()
env.step(torch.zeros(4, 1))
""")


def test_gymnasiums_async_vector_env():
    run_forking("""
import gymnasium, numpy as np
torch.ones(4096, 40).exp().sum()
make = lambda: gymnasium.make("TorchHopper-v0", device="cpu")
alone = make()
envs = gymnasium.vector.AsyncVectorEnv([make, make], context="fork")
obs, _ = envs.reset(seed=[3, 4])
for _ in range(3):
    obs, *_ = envs.step(np.full((2, 3), 0.3))
envs.close()
expected, _ = alone.reset(seed=4)
for _ in range(3):
    expected, *_ = alone.step(np.full(3, 0.3))
assert (obs[1] == expected).all()
""")


def test_data_loader_workers():
    run_forking("""
from torch.utils.data import DataLoader, IterableDataset
env = TorchVectorEnv("Hopper", 4096, autoreset_mode="SameStep")
env.reset(seed=0)
env.step(torch.zeros(4096, 3))
class Steps(IterableDataset):
    def __iter__(self):
        for _ in range(3):
            yield env.step(torch.zeros(4096, 3))[0]
found = list(DataLoader(Steps(), batch_size=None, num_workers=2, multiprocessing_context="fork"))
assert len(found) == 6 and found[0].equal(found[1])
""")

"""Ctrl-C at any moment leaves all worlds before a step, or all worlds after it; never some of each."""

from __future__ import annotations

import signal

import pytest
from processes import run

STORM = """
import random, signal, sys, threading, time
import torch
from torch_mjenvs import TASKS
from torch_mjenvs.compiler import cpu
from torch_mjenvs.envs.engine import Engine

how, tries, steps = sys.argv[1], int(sys.argv[2]), 20
torch.set_num_threads(1 if how == "one thread" else 2)
if how == "threads of ours":
    cpu.team = lambda: None
engine = Engine(TASKS["Hopper"](), 1024, device="cpu", max_episode_steps=None)
engine.seed(0)
engine.reset()
engine.action.fill_(0.5)
start, expected = engine.state_dict(), [engine.qpos.clone()]
for _ in range(steps):
    engine.step()
    expected.append(engine.qpos.clone())
if how == "threads of ours":  # which come late, as on a busy machine
    kernel = engine._step.kernel
    call = kernel.call
    def late(job):
        if threading.current_thread() is not threading.main_thread():
            time.sleep(random.uniform(0, 3e-3))
        call(job)
    kernel.call = late
began = time.perf_counter()
for _ in range(5 * steps):
    engine.step()
lasts = (time.perf_counter() - began) / 5
signal.signal(signal.SIGALRM, signal.default_int_handler)
caught = 0
random.seed(1)
for _ in range(tries):
    engine.load_state_dict(start)
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, lasts))
            for _ in range(steps):
                engine.step()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            time.sleep(0)  # a signal that has come, but not been heard of yet, is heard here
    except KeyboardInterrupt:
        caught += 1
    done = int(engine.elapsed_steps.max())
    assert engine.elapsed_steps.eq(done).all() and engine.qpos.equal(expected[done]), "torn"
assert caught > tries // 4, caught
"""


@pytest.mark.cpu
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timer to interrupt with")
@pytest.mark.parametrize("how", ["one thread", "torch's threads", "threads of ours"])
def test_ctrl_c_never_tears_a_step(how):
    run(STORM, how, "400")


PARTS = """
import sys
import torch
from torch_mjenvs import TASKS
from torch_mjenvs.envs.engine import Engine

engine = Engine(TASKS["Hopper"](), 4, device="cpu", vary="body_mass")
engine.seed(0)
engine.reset()
engine.action.fill_(0.5)
engine.step()
chosen, start = torch.tensor([True, False, True, False]), engine.state_dict()
engine.step_some(chosen)
after, codes = engine.state_dict(), {Engine.step_some.__wrapped__.__code__, Engine._bring_back.__code__}

def interrupting(at):  # before the line of this number, of those that run
    left = at
    def trace(frame, event, arg):
        nonlocal left
        if frame.f_code not in codes:
            return None
        if event == "line":
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
        return trace
    return trace

def same(state):
    return all(torch.equal(x, state[name]) for name, x in engine.state_dict().items())

caught, at = 0, 0
while caught == at:
    engine.load_state_dict(start)
    at += 1
    sys.settrace(interrupting(at))
    try:
        engine.step_some(chosen)
    except KeyboardInterrupt:
        caught += 1
    finally:
        sys.settrace(None)
    assert same(start) if caught == at else same(after), at
assert caught > 20, caught
"""


@pytest.mark.cpu
def test_ctrl_c_never_tears_a_step_of_some_worlds():
    """As of those whose episode has not ended yet, where actions are repeated, and TorchRL's partial steps."""
    run(PARTS)


ROLLOUTS = """
import random, signal, time
import torch
from torch_mjenvs import TorchVectorEnv

torch.set_num_threads(1)
env = TorchVectorEnv("Hopper", 64, device="cpu", autoreset_mode="SameStep")
env.reset(seed=0)
rollout = env.capture(lambda obs: torch.sin(7 * obs[:, :3]), 16)
began = time.perf_counter()
for _ in range(5):
    rollout()
lasts = (time.perf_counter() - began) / 5
signal.signal(signal.SIGALRM, signal.default_int_handler)
caught = 0
random.seed(1)
for _ in range(400):
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, lasts))
            rollout()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            time.sleep(0)
    except KeyboardInterrupt:
        caught += 1
    assert env.obs.equal(torch.cat([env.qpos[:, 1:], env.qvel.clamp(-10, 10)], 1)), "not of the worlds as they are"
assert caught > 100, caught
"""


@pytest.mark.cpu
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timer to interrupt with")
def test_after_ctrl_c_in_a_rollout_observations_are_of_the_worlds_as_they_are():
    run(ROLLOUTS)

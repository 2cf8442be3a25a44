"""The step as torch's compiler sees it: whole graphs, and the step as a pure function."""

from __future__ import annotations

import importlib.util
import shutil

import pytest
import torch

from torch_mjenvs import Simulation, TorchVectorEnv

N = 32
ON_GPU = torch.get_default_device().type == "cuda"
COMPILERS = ("gcc", "clang", "cc") if ON_GPU else ("g++", "clang++")
compiler = pytest.mark.skipif(
    not any(map(shutil.which, COMPILERS)) or (ON_GPU and not importlib.util.find_spec("triton")),
    reason=f"torch.compile needs one of {', '.join(COMPILERS)}{', and Triton' * ON_GPU}",
)


def make(task: str = "Hopper", **kwargs) -> TorchVectorEnv:
    env = TorchVectorEnv(task, N, max_episode_steps=15, **kwargs)  # the kernels of test_resume.py
    env.reset(seed=1)
    return env


def flat(step: tuple) -> list[torch.Tensor]:
    *out, info = step
    for x in info.values():
        out += x.values() if isinstance(x, dict) else [x]
    return out


@compiler
@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
def test_policy_and_step_in_one_graph(mode):
    torch.compiler.reset()
    torch.manual_seed(0)
    env, twin = make(autoreset_mode=mode), make(autoreset_mode=mode)
    policy = torch.nn.Linear(11, 3)
    buffers = {x.untyped_storage().data_ptr() for x in env.engine.buffers.values()}

    @torch.compile(fullgraph=True)
    @torch.no_grad()
    def compiled(obs):
        action = policy(obs).tanh()
        return action, env.step(action)

    obs, kept = env.engine.obs.clone(), []
    for _ in range(40):
        action, out = compiled(obs)
        expected = flat(twin.step(action))
        kept.append((flat(out), expected))
        obs = out[0]
        if mode == "Disabled":
            ended = expected[2] | expected[3]
            if ended.any():
                obs = env.reset(options={"reset_mask": ended})[0]
                twin.reset(options={"reset_mask": ended})
    for ours, theirs in kept:  # at the end: nothing that was handed out may have been overwritten
        assert len(ours) == len(theirs) and all(map(torch.equal, ours, theirs))
        assert not buffers & {x.untyped_storage().data_ptr() for x in ours if x.dtype.is_floating_point}
    assert any(theirs[2].any() or theirs[3].any() for _, theirs in kept)


@compiler
def test_reduce_overhead_and_many_steps_in_a_graph():
    torch.compiler.reset()
    env, twin = make("HalfCheetah"), make("HalfCheetah")
    actions = torch.rand(6, N, 6) * 2 - 1

    @torch.compile(fullgraph=True, mode="reduce-overhead")
    def three(actions):
        return [env.step(action)[0] for action in actions]

    # On a GPU, each call writes over what the one before gave.
    ours = [x.clone() for part in actions.split(3) for x in three(part)]
    assert all(torch.equal(x, twin.step(action)[0]) for x, action in zip(ours, actions, strict=True))


@compiler
def test_simulation_in_a_graph():
    torch.compiler.reset()
    from torch_mjenvs.envs.tasks.registry import TASKS

    model = TASKS["Walker2d"]().load()
    sim, twin = (Simulation(model, N, outputs=("xpos",)) for _ in range(2))

    @torch.compile(fullgraph=True)
    def hop(controls):
        sim.ctrl.copy_(controls[1])
        sim.step(2)
        return sim.qvel.square().sum(), sim.xpos[:, 1, 2].mean()

    for k in range(3):
        ctrl = torch.full((N, 6), 0.3 * k)
        energy, height = hop(torch.stack([ctrl + 1, ctrl]))
        twin.ctrl.copy_(ctrl)
        twin.step(2)
        assert torch.equal(sim.qpos, twin.qpos) and torch.equal(sim.xpos, twin.xpos)
        torch.testing.assert_close(energy, twin.qvel.square().sum())
        torch.testing.assert_close(height, twin.xpos[:, 1, 2].mean())


@pytest.mark.parametrize(
    ("task", "dtype"),
    [
        ("Hopper", torch.float32),
        ("HumanoidStandup", torch.float32),
        ("Hopper", torch.float64),
        ("Reacher", torch.float64),
    ],
)
def test_transition_is_a_step(task, dtype):
    env = make(task, dtype=dtype, autoreset_mode="SameStep")
    engine = env.engine
    for _ in range(15):
        action = torch.rand(N, engine.layout.nu, dtype=dtype) * 2 - 1
        before = engine.state_dict()
        after = engine.transition(before, action)
        assert all(map(torch.equal, before.values(), engine.state_dict().values()))
        env.step(action)
        expected = engine.state_dict()
        assert after.keys() == expected.keys()
        assert all(torch.equal(after[name], expected[name]) for name in after)


def test_transition_under_vmap():
    env = make(autoreset_mode="SameStep")
    engine = env.engine
    for _ in range(8):
        env.step(torch.rand(N, 3) * 2 - 1)
    state, actions = engine.state_dict(), torch.rand(5, N, 3) * 2 - 1
    whole = [engine.transition(state, action) for action in actions]

    one = torch.vmap(engine.transition)(state, actions[0])  # a world at a time
    tried = torch.vmap(engine.transition, in_dims=(None, 0))(state, actions)  # five plans from one state
    nested = torch.vmap(torch.vmap(engine.transition), in_dims=(None, 1), out_dims=1)(state, actions.transpose(0, 1))
    for name in state:
        assert torch.equal(one[name], whole[0][name])
        assert torch.equal(tried[name], torch.stack([x[name] for x in whole]))
        assert torch.equal(nested[name].movedim(1, 0), tried[name])


@compiler
def test_transition_in_a_graph():
    torch.compiler.reset()
    env = make()
    action = torch.rand(N, 3)
    state = env.engine.state_dict()
    ours = torch.compile(env.engine.transition, fullgraph=True)(state, action)
    theirs = env.engine.transition(state, action)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_transition_of_no_states():
    """As after a choice of those of a data set, by which none was chosen."""
    engine = make().engine
    for lead in ((0,), (0, N), (3, 0)):
        state = {name: x.new_zeros(*lead, *x.shape[1:]) for name, x in engine.state_dict().items()}
        action = torch.zeros(*lead, 3, requires_grad=True)
        after = engine.transition(state, action)
        assert {name: x.shape for name, x in after.items()} == {name: x.shape for name, x in state.items()}
        after["reward"].sum().backward()
        assert action.grad.shape == action.shape


def test_transition_refuses_what_does_not_fit():
    env = make()
    state = env.engine.state_dict()
    with pytest.raises(ValueError, match=r"action must be .* of shape"):
        env.engine.transition(state, torch.zeros(N, 4))
    with pytest.raises(ValueError, match="qvel must be "):
        env.engine.transition(state | {"qvel": state["qvel"].double()}, torch.zeros(N, 3))
    with pytest.raises(KeyError, match="qpos"):
        env.engine.transition({k: x for k, x in state.items() if k != "qpos"}, torch.zeros(N, 3))


def test_operators_are_well_formed():
    """torch's own check of schema, fake kernels and aliasing."""
    env = make()
    launch, tensors = env.engine._step, [x.clone() for x in env.engine.buffers.values()]
    ops = torch.ops.torch_mjenvs
    tests = ("test_schema", "test_faketensor", "test_aot_dispatch_static")
    torch.library.opcheck(ops.launch, (launch.kernel.handle, tensors, 1), test_utils=tests)
    rows = [x if b.rows else x.T.contiguous() for b, x in zip(launch.kernel.buffers, tensors, strict=True)]
    torch.library.opcheck(ops.run, (launch.kernel.handle, rows), test_utils=tests)
    torch.library.opcheck(ops.copy, (tensors[0].T,), test_utils=tests)


@compiler
def test_what_follows_from_parameters_follows_in_compiled_code_that_asks_for_it():
    torch.compiler.reset()
    env, twin, silent = (make(vary=("body_mass",)) for _ in range(3))
    lighter = torch.linspace(0.6, 1.0, N, device=env.device)[:, None]

    def lighten(env: TorchVectorEnv, action: torch.Tensor, ask: bool) -> torch.Tensor:
        env.params["body_mass"].mul_(lighter)
        if ask:
            env.set_const()
        return env.step(action)[0]

    compiled = torch.compile(lighten, fullgraph=True)
    for _ in range(3):
        action = torch.rand(N, 3, device=env.device) * 2 - 1
        obs, expected = compiled(env, action, True), lighten(twin, action, False)
        compiled(silent, action, False)
        assert torch.equal(obs, expected)
    assert torch.equal(env.engine.buffers["derived"], twin.engine.buffers["derived"])
    assert not torch.equal(silent.engine.buffers["derived"], twin.engine.buffers["derived"])

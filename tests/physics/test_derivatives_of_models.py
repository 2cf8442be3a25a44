"""Simulation.linearize over many models: all tasks', dm_control's and random ones; in fast runs a few.

Derivatives are compared with centred differences of our own step, those of test_derivatives.py. Where they differ, the
differences have to differ among themselves: by the size of their step, or from one side to the other. So a state is
left out only where it is shown to be next to a kink, or too stiff for differences.
"""

from __future__ import annotations

import mujoco
import numpy as np
import oracle
import pytest
import random_mjcf
import test_derivatives as known
import torch

from torch_mjenvs.physics import UnsupportedModel, load, step_function
from torch_mjenvs.physics.kernel_request import KernelRequest
from torch_mjenvs.physics.simulation import Simulation
from torch_mjenvs.physics.simulation_kernels import linearized

pytestmark = [pytest.mark.cpu, pytest.mark.usefixtures("quiet")]

TASKS = (  # and Pusher
    "inverted_pendulum", "inverted_double_pendulum", "reacher", "swimmer", "hopper", "walker2d_v5", "half_cheetah",
    "ant", "humanoid", "humanoidstandup", "pusher_v5",
)  # fmt: skip
SUITE = ("cartpole-swingup", "acrobot-swingup", "cheetah-run", "hopper-hop", "walker-walk")
BOUND = 1e-6  # of a column's error, in units of its largest entry
SOUND = 1e3  # metres, radians and per second: what is faster is exploding, and rounding hides how its states change
HONEST = 10.0  # how many times further from the truth than from each other differences may be

MESH = '<asset><mesh name="m" vertex="0 0 -.1 .1 0 .1 -.1 .1 .1 -.1 -.1 .1 .05 -.1 0"/></asset>'
HILLS = '<asset><hfield name="h" nrow="2" ncol="2" size="1 1 0.5 0.1" elevation="0 1 0 1"/></asset>'
TWO = "<worldbody><body><freejoint/><geom {}/></body><body pos='0 0 1'><freejoint/><geom {}/></body></worldbody>"
MANY = "".join(f'<body pos="{k} 0 0"><joint type="slide" axis="0 0 1"/><geom size="0.4"/></body>' for k in range(30))
LIMITED = """
<mujoco><worldbody><body><joint name="j" axis="0 1 0" limited="true" range="-6 5.729577951308232"
  solimplimit="0.8 0.95 0.05 0.3 3.7"/><geom type="capsule" size="0.05 0.2" pos="0.1 0 0"/></body></worldbody></mujoco>
"""
LINK = """<body pos="0 0 0.1"><joint axis="{} {} 0"/>
  <geom type="capsule" size="0.02 0.03" contype="0" conaffinity="0"/>"""
CHAIN = "".join(LINK.format(k % 2, 1 - k % 2) for k in range(40)) + 40 * "</body>"
REFUSED = {
    "no degrees of freedom": "<worldbody><geom size='.1'/></worldbody>",
    "ellipsoids with meshes": MESH + TWO.format('type="ellipsoid" size="0.1 0.2 0.3"', 'type="mesh" mesh="m"'),
    "cylinders with boxes": TWO.format('type="cylinder" size="0.1 0.2"', 'type="box" size="0.1 0.2 0.3"'),
    "cylinders with meshes": MESH + TWO.format('type="cylinder" size="0.1 0.2"', 'type="mesh" mesh="m"'),
    "height fields with ellipsoids": HILLS + '<worldbody><geom type="hfield" hfield="h"/>'
    '<body pos="0 0 1"><freejoint/><geom type="ellipsoid" size="0.1 0.1 0.2"/></body></worldbody>',
    "noslip_iterations=3": '<option noslip_iterations="3"/>' + TWO.format(*['size="0.1"'] * 2),
}


def half_constrained(mjm: mujoco.MjModel, n: int) -> tuple[known.States, float]:
    """n states along rollouts, half of them with contacts, limits or friction, as far as there are any; the share."""
    many = known.near_contact(mjm, 4 * n)
    rows = []
    for state in zip(*many[:3], strict=True):
        rows.append(oracle.forward(mjm, *(x.numpy() for x in state)).nefc > 0)
    order = np.argsort(~np.array(rows), kind="stable")  # those with rows first
    among = int(min(sum(rows), max(n // 2, n - (4 * n - sum(rows)))))
    chosen = np.concatenate([order[:among], order[::-1][: n - among]])
    return [x[chosen] for x in many], among / n


def compare(mjm: mujoco.MjModel, sim: Simulation, states: known.States) -> tuple[float, float]:
    """The share of states that are as differences are, and of those that are so or where differences are not known."""
    known.put(sim, states)
    got = torch.cat(sim.linearize()[:2], dim=-1).numpy()
    assert np.isfinite(got).all()
    wants = np.stack(known.best_differences(mjm, sim, states))
    size = 1e-3 + np.abs(wants).max(2)  # (ways, states, columns)
    errors = (np.abs(got - wants).max(2) / size).min(0)
    size = size.min(0)
    left, right = (known.one_sided(mjm, sim, states, eps) for eps in (-known.STEPS[0], known.STEPS[0]))
    apart = np.abs(left - right).max(1) / size
    among = np.min([np.abs(one - two).max(1) / size for k, one in enumerate(wants) for two in wants[:k]], axis=0)
    as_differences = errors <= BOUND
    explained = as_differences | (errors <= apart) | (errors <= HONEST * among)
    return float(as_differences.all(1).mean()), float(explained.all(1).mean())


def check(mjm: mujoco.MjModel, n: int, constrained: float) -> None:
    states, share = half_constrained(mjm, n)
    assert share >= constrained
    as_differences, explained = compare(mjm, Simulation(mjm, n, dtype=torch.float64), states)
    assert as_differences >= 0.98 and explained == 1.0, (as_differences, explained)


@pytest.mark.slow
@pytest.mark.parametrize("name", TASKS)
def test_derivatives_of_256_states_of_each_task_are_those_of_differences_but_next_to_kinks(name):
    constrained = 0.0 if name in ("swimmer", "reacher", "inverted_pendulum", "inverted_double_pendulum") else 0.5
    constrained = 0.25 if name == "pusher_v5" else constrained
    check(oracle.sharpen(known.asset(name)), 256, constrained)


@pytest.mark.slow
@pytest.mark.parametrize("name", SUITE)
def test_derivatives_of_dm_controls_models_are_those_of_differences_but_next_to_kinks(name):
    dm_control_oracle = pytest.importorskip("dm_control_oracle")
    mjm = dm_control_oracle.environment(name).physics.model.ptr
    check(mjm, 256, 0.0 if name.startswith(("cartpole", "acrobot")) else 0.5)


def sound_states(mjm: mujoco.MjModel, case: random_mjcf.Case) -> known.States:
    """The states of a random model, many at rest, but those that are exploding."""
    joined = [random_mjcf.join(mjm, world) for world in case.worlds]
    qpos, qvel, _, ctrl, act = (torch.tensor(np.stack(x)) for x in zip(*joined, strict=True))
    sound = torch.cat([qpos, qvel], 1).abs().amax(1) < SOUND
    return [x[sound] for x in (qpos, qvel, ctrl, act)]


def of_a_random_model(seed: int, n: int) -> tuple[float, float] | None:
    """As `compare`; None if nothing moves, or derivatives of the model are refused by name."""
    case = random_mjcf.case(seed, n)
    mjm = oracle.sharpen(mujoco.MjModel.from_xml_string(case.xml))
    if not mjm.nv:
        return None
    states = sound_states(mjm, case)
    sim = Simulation(mjm, len(states[0]), dtype=torch.float64)
    try:
        return compare(mjm, sim, states)
    except UnsupportedModel as error:
        assert str(error).startswith(tuple(f"there are no derivatives of {x}" for x in ("a model", "this model")))
        return None


def check_random(seed: int, n: int) -> None:
    found = of_a_random_model(seed, n)
    if found is None:
        pytest.skip("nothing moves, or it is refused by name")
    _, explained = found  # many begin at rest, where friction has a kink, or are too stiff for differences
    assert explained >= 0.99, found


@pytest.mark.usefixtures("quickly_compiled")
@pytest.mark.parametrize("seed", [10, 20])
def test_derivatives_of_a_random_model_are_those_of_differences_but_next_to_kinks(seed):
    check_random(seed, 32)


@pytest.mark.slow
@pytest.mark.usefixtures("quickly_compiled")
@pytest.mark.parametrize("seed", range(160))  # of which some 60 are refused, or have nothing that moves
def test_derivatives_of_a_hundred_random_models_are_those_of_differences_but_next_to_kinks(seed):
    check_random(seed, 256)


def scattered(mjm: mujoco.MjModel, n: int, rng: np.random.Generator) -> known.States:
    """n states anywhere: at rest or moving at any speed, high up, just touching, deep in the ground, beyond limits."""
    turns = rng.normal(size=(n, mjm.nv)) * rng.choice([0.0, 0.01, 0.3, 3.0], size=(n, 1))
    qpos = np.tile(mjm.qpos0, (n, 1))
    for q, turn in zip(qpos, turns, strict=True):
        mujoco.mj_integratePos(mjm, q, turn, 1.0)
    qvel = rng.normal(size=(n, mjm.nv)) * rng.choice([0.0, 1e-6, 1.0, 30.0], size=(n, 1))
    ctrl = rng.uniform(-1.5, 1.5, size=(n, mjm.nu)) * rng.choice([0.0, 1.0], size=(n, 1))
    return [torch.tensor(x) for x in (qpos, qvel, ctrl, 0.1 * rng.normal(size=(n, mjm.na)))]


@pytest.mark.slow
@pytest.mark.usefixtures("quickly_compiled")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["half_cheetah", "free"])
def test_gradients_of_a_quarter_of_a_million_states_are_numbers(name, dtype):
    free = mujoco.MjModel.from_xml_string(known.FREE.format(cone="elliptic", integrator="Euler"))
    mjm = known.asset(name) if name != "free" else free
    sim, rng, n = Simulation(mjm, 1, dtype=dtype), np.random.default_rng(0), 2**18
    states = scattered(mjm, n, rng)
    few = states[0][: n // 8]
    if name == "free":  # balls of 0.1 and 0.12: on the floor, and each on the other, as exactly as can be
        few[:, 2] = 0.1
        few[: n // 16, 7:10] = few[: n // 16, :3] + torch.tensor([0.0, 0.0, 0.22])
    else:
        few[:] = torch.tensor(mjm.qpos0)
        few[:, 1] = touching_from(mjm, mjm.qpos0.copy()) + torch.arange(-n // 16, n // 16) * 1e-9
    given = [x.to(dtype).requires_grad_() for x in states[: 3 + bool(mjm.na)]]
    after = sim.transition(*given)
    sound = torch.cat([x.detach().abs() for x in (after.qpos, after.qvel)], 1).amax(1) < 1e6  # MuJoCo would start anew
    assert sound.double().mean() > 0.95
    found = torch.autograd.grad((after.qvel * sound[:, None]).sum() + (after.qpos * sound[:, None]).sum(), given)
    assert all(x[sound].isfinite().all() for x in found)


def touching_from(mjm: mujoco.MjModel, qpos: np.ndarray) -> float:
    """The height of a planar robot at which it just touches the ground, to rounding."""
    low, high = -2.0, 2.0
    for _ in range(60):
        qpos[1] = 0.5 * (low + high)
        ncon = oracle.forward(mjm, qpos, np.zeros(mjm.nv), np.zeros(mjm.nu)).ncon
        low, high = (low, qpos[1]) if not ncon else (qpos[1], high)
    return high


def test_impedances_of_any_power_have_derivatives_at_both_ends_of_their_curve():
    mjm = oracle.sharpen(mujoco.MjModel.from_xml_string(LIMITED))
    turned = torch.tensor([0.1, 0.11, 0.14, 0.15, 0.2, 0.3], dtype=torch.float64)[:, None]  # the curve: 0.1 to 0.15
    states, sim = (
        [turned, 0.5 + turned, *[torch.zeros(6, 0, dtype=torch.float64)] * 2],
        Simulation(mjm, 6, dtype="float64"),
    )
    as_differences, explained = compare(mjm, sim, states)
    assert as_differences >= 4 / 6 and explained == 1.0  # the curve has a kink at each end
    qpos = turned.clone().requires_grad_()
    (found,) = torch.autograd.grad(sim.transition(qpos, states[1]).qvel.sum(), qpos)
    torch.testing.assert_close(found, sim.linearize(turned, states[1]).A[:, 1, :1], rtol=1e-9, atol=1e-9)


def test_tangents_of_long_chains_are_refused_by_name():
    request = KernelRequest(load(mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{CHAIN}</worldbody></mujoco>")))
    with pytest.raises(UnsupportedModel, match=r"what loops put into arrays .* matrices of 40 dofs"):
        linearized(request, "float64")


@pytest.mark.parametrize("what", REFUSED)
def test_what_has_no_derivatives_is_refused_by_name_in_both_modes(what):
    request = KernelRequest(load(mujoco.MjModel.from_xml_string(f"<mujoco>{REFUSED[what]}</mujoco>")))
    with pytest.raises(UnsupportedModel, match=what):
        linearized(request, "float64")
    with pytest.raises(UnsupportedModel, match=what):
        step_function.program(request, "float64", step_function.BACKWARD)

"""A vector of worlds in which no limbs meet takes another loop of the solver: no world's bits tell which one it was."""

from __future__ import annotations

import itertools

import gymnasium
import mujoco
import numpy as np
import pytest
import torch
from test_contact_groups import heap, scattered

from torch_mjenvs.compiler.control import unrolling
from torch_mjenvs.physics import load
from torch_mjenvs.physics.constraints.limbs import IdleRows
from torch_mjenvs.physics.pipeline import derive
from torch_mjenvs.physics.simulation import Simulation
from torch_mjenvs.physics.solver import newton

COPIES = 16  # at least as many as a vector has lanes

ROBOT = """
<mujoco><option timestep=".002" cone="{cone}"/>
<worldbody><geom name="floor" type="plane" size="5 5 1"/>
<body pos="0 0 .98"><freejoint/><geom size=".12" mass="5" contype="0" conaffinity="0"/>{limbs}</body></worldbody>
<contact>{pairs}</contact>
<equality><joint joint1="hip0" joint2="hip1" polycoef=".1 .5 0 0 0"/></equality>
<tendon><fixed name="t" frictionloss=".5" limited="true" range="-.5 .5"><joint joint="knee0" coef="1"/>
<joint joint="knee2" coef="-1"/></fixed></tendon>
</mujoco>"""
LIMB = """
<body pos="{x} {y} -.1"><joint name="hip{k}" axis="0 1 0" frictionloss=".2" limited="true" range="-60 60"/>
<joint axis="1 0 .1" damping=".3"/><geom name="thigh{k}" type="capsule" fromto="0 0 0 0 0 -.4" size=".06" {free}/>
<body pos="0 0 -.4"><joint name="knee{k}" axis="{y} {x} .3" armature=".01"/>
<geom name="shin{k}" type="capsule" fromto="0 0 0 0 0 -.35" size=".05" {free}/>
<body pos="0 0 -.38"><joint axis="0 1 0"/>
<geom name="foot{k}" type="box" size=".1 .05 .03" pos=".03 0 0" {free}/></body></body></body>"""


def robot(cone: str, few: bool = False) -> mujoco.MjModel:
    """Four limbs that may meet each other, with friction loss, limits, a tendon, and two hips that are coupled.

    few: only shins may meet each other, and two feet, and the other two the floor.
    """
    x, y = (0.08, 0.06) if few else (0.12, 0.08)
    ways = ((x, y), (x, -y), (-x, y), (-x, -y))
    free = 'contype="0" conaffinity="0"' if few else ""
    limbs = "".join(LIMB.format(x=x, y=y, k=k, free=free) for k, (x, y) in enumerate(ways))
    shins = [(f"shin{a}", f"shin{b}") for a, b in itertools.combinations(range(4), 2)]
    pairs = [*shins, ("foot2", "foot3"), ("floor", "foot0"), ("floor", "foot1")]
    listed = "".join(f'<pair geom1="{a}" geom2="{b}" condim="3"/>' for a, b in pairs) if few else ""
    return mujoco.MjModel.from_xml_string(ROBOT.format(limbs=limbs, pairs=listed, cone=cone))


ARM = """
<body pos="{x} 0 0"><joint axis="0 1 0" damping=".1"/><geom type="capsule" fromto="0 0 0 0 0 -.3" size=".03"/>
<body pos="0 0 -.3"><joint axis="0 1 0" frictionloss=".1"/><geom type="capsule" fromto="0 0 0 0 0 -.3" size=".03"/>
<body pos="0 0 -.3"><joint axis="0 1 0"/><geom name="tip{k}" size=".05" mass=".2"/></body></body></body>"""


def planar(cone: str) -> mujoco.MjModel:
    """Three arms in a plane, on a cart, whose tips may meet: many entries of M are a product each."""
    arms = "".join(ARM.format(x=0.12 * k, k=k) for k in range(3))
    pairs = "".join(f'<pair geom1="tip{a}" geom2="tip{b}" condim="3"/>' for a, b in itertools.combinations(range(3), 2))
    return mujoco.MjModel.from_xml_string(f"""
        <mujoco><option timestep=".002" cone="{cone}"/><default><geom contype="0" conaffinity="0"/></default><worldbody>
        <body pos="0 0 1"><joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 1" stiffness="900"/>
        <geom size=".1" mass="3"/>{arms}</body></worldbody><contact>{pairs}</contact></mujoco>""")


def humanoid() -> mujoco.MjModel:
    return gymnasium.make("Humanoid-v5").unwrapped.model


def poses(model: mujoco.MjModel, n: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Poses in half of which limbs may meet; in the other half they are as they were, or bodies far apart."""
    rng, states = np.random.default_rng(0), scattered(model, n)
    for k, (qpos, _) in enumerate(states):
        for j in range(model.njnt):
            at, kind = model.jnt_qposadr[j], model.jnt_type[j]
            if kind == mujoco.mjtJoint.mjJNT_HINGE:
                qpos[at] = rng.uniform(-1.5, 1.5) if k % 2 else rng.uniform(-0.05, 0.05)
            elif not k % 2 and j:  # a heap's bodies
                qpos[at + 2 * (kind == mujoco.mjtJoint.mjJNT_FREE)] += j
    return states


MODELS = {
    "humanoid": humanoid,
    "robot": lambda: robot("pyramidal"),
    "robot, elliptic": lambda: robot("elliptic"),
    "robot, few": lambda: robot("pyramidal", few=True),
    "robot, few, elliptic": lambda: robot("elliptic", few=True),
    "planar": lambda: planar("pyramidal"),
    "planar, elliptic": lambda: planar("elliptic"),
    "limbs": lambda: heap(5, 3, True),
    "elliptic": lambda: heap(5, 4, True, "elliptic"),
    "bodies": lambda: heap(5, 3, False),
    "few": lambda: heap(3, 3, True),
    "few, elliptic": lambda: heap(3, 6, False, "elliptic"),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", MODELS)
def test_no_bit_tells_whether_limbs_of_other_worlds_meet(name, dtype):
    model = MODELS[name]()
    states = poses(model, 32)
    meet = [_limbs_meet(model, *state) for state in states]
    assert 6 <= sum(meet) <= 26
    together, alone = (Simulation(model, n, dtype=dtype, outputs=("qacc",)) for n in (32, 32 * COPIES))
    for sim, copies in ((together, 1), (alone, COPIES)):
        for k, values in enumerate(zip(*states, strict=True)):
            rows = torch.from_numpy(np.repeat(np.array(values), copies, 0))
            getattr(sim, ("qpos", "qvel")[k]).copy_(rows)
        sim.step(3)
    for field in ("qacc", "qpos", "qvel"):
        mixed, own = getattr(together, field), getattr(alone, field)[::COPIES]
        np.testing.assert_array_equal(mixed.cpu().numpy(), own.cpu().numpy(), err_msg=field)
    assert np.isfinite(together.qacc.cpu().numpy()).all()


def _limbs_meet(model: mujoco.MjModel, qpos: np.ndarray, qvel: np.ndarray) -> bool:
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = qpos, qvel
    mujoco.mj_forward(model, data)
    bodies = model.body_weldid[model.geom_bodyid[data.contact.geom]]
    return bool((bodies > 0).all(1).any())


def test_rows_that_couple_nothing_anew_have_no_loop_of_their_own():
    """Hopper's thigh and foot may meet, but one carries the other: M has their entries already."""
    for task, expected in (("Hopper-v5", False), ("Humanoid-v5", True)):
        model = gymnasium.make(task).unwrapped.model
        d = derive(load(model), model.qpos0.tolist(), [0.0] * model.nv, None, [0.0] * model.nu)
        idle = [c.idle(load(model)) for c in d.constraints]
        assert any(isinstance(x, IdleRows) for x in idle) == expected


@pytest.mark.cpu  # on a GPU both are so
def test_threads_that_are_worlds_have_one_loop(quickly_compiled):
    """A warp would go through both, one after the other."""
    model = heap(5, 3, True)
    with unrolling(12):
        one = Simulation(model, 2)._step.kernel
    two = Simulation(model, 2)._step.kernel
    assert one.code_bytes < 0.8 * two.code_bytes


def test_a_search_that_has_not_ended_is_not_gone_on_with_without_its_contacts(monkeypatch, quickly_compiled):
    """The last point of the first loop is the answer, as if there were no second one."""
    model = heap(5, 3, True)
    states = [state for state in poses(model, 32) if _limbs_meet(model, *state)][:8]

    def qacc() -> np.ndarray:
        sim = Simulation(model, len(states), dtype=torch.float64, outputs=("qacc",))
        for k, name in enumerate(("qpos", "qvel")):
            getattr(sim, name).copy_(torch.from_numpy(np.array([state[k] for state in states])))
        sim.step()
        return sim.qacc.cpu().numpy()

    ended = qacc()
    monkeypatch.setattr(newton, "ITERATIONS", 2)
    stopped = qacc()
    assert (np.abs(stopped - ended).max(1) > 1e-6 * np.abs(ended).max(1)).any()
    with unrolling(1000):
        one_loop = qacc()
    np.testing.assert_allclose(stopped, one_loop, rtol=1e-9, atol=1e-9 * np.abs(one_loop).max())

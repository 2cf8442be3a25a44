"""Derivatives through contacts that a search finds: of convex shapes, on height fields, of boxes with boxes.

Forward they are those of centred differences of our own step and of MuJoCo's; in reverse those of forward, to rounding.
What is left out is a kink: there differences from the two sides differ by more.
"""

from __future__ import annotations

import mujoco
import numpy as np
import oracle
import pytest
import test_derivatives as known
import test_transition
import torch

from torch_mjenvs.physics.simulation import Simulation

pytestmark = [pytest.mark.cpu, pytest.mark.usefixtures("quickly_compiled")]

CUBE = " ".join(f"{x} {y} {z}" for x in (-0.1, 0.1) for y in (-0.1, 0.1) for z in (-0.1, 0.1))
RING = ((0.1, 0), (0.05, 0.0866), (-0.05, 0.0866), (-0.1, 0), (-0.05, -0.0866), (0.05, -0.0866))
NUT = " ".join(f"{x} {y} {z}" for z in (-0.05, 0.05) for x, y in RING)
HEIGHTS = " ".join(f"{x:.3f}" for x in np.random.default_rng(1).uniform(0, 1, 81))
ASSETS = f"""
<asset>
  <mesh name="stone" vertex="0 0 -.1 .1 0 .1 -.1 .1 .1 -.1 -.1 .1 .05 -.1 0"/>
  <mesh name="cube" vertex="{CUBE}"/><mesh name="nut" vertex="{NUT}"/>
  <hfield name="hills" nrow="9" ncol="9" size="1 1 .3 .1" elevation="{HEIGHTS}"/>
</asset>
"""
SHAPES = {
    "stone": 'type="mesh" mesh="stone"', "cube": 'type="mesh" mesh="cube"', "nut": 'type="mesh" mesh="nut"',
    "box": 'type="box" size=".1 .08 .06"', "ball": 'size=".07"', "rod": 'type="capsule" size=".03 .08"',
    "can": 'type="cylinder" size=".06 .08"', "egg": 'type="ellipsoid" size=".06 .09 .08"',
    "pebble": 'type="ellipsoid" size=".1 .07 .05"', "hills": 'type="hfield" hfield="hills"',
}  # fmt: skip
TWO = """
<mujoco>
  <option cone="{cone}"/>{assets}
  <worldbody>
    <body><inertial pos="0 0 0" mass="{mass}" diaginertia="{inertia} {inertia} {inertia}"/>
      <joint name="push" type="slide" axis="1 0 0" damping="1"/><joint type="ball" stiffness="3" damping=".1"/>
      <geom {one}/></body>
    <body pos="0 0 {above}"><freejoint/><geom {two} mass="1"/></body>
  </worldbody>
  <actuator><motor joint="push"/></actuator>
</mujoco>
"""


def two_bodies(one: str, two: str, above: float, cone: str = "pyramidal") -> mujoco.MjModel:
    heavy = one == "hills"
    xml = TWO.format(
        assets=ASSETS, one=SHAPES[one], two=SHAPES[two], above=above, cone=cone, mass=50 if heavy else 1,
        inertia=20 if heavy else 0.01,
    )  # fmt: skip
    return oracle.sharpen(mujoco.MjModel.from_xml_string(xml))


def touching(mjm: mujoco.MjModel, n: int, deepest: float = -0.03) -> tuple[known.States, set[int]]:
    """n states in which the two bodies touch, none deeper than that; how many contacts there are among them."""
    rng, d, found, counts = np.random.default_rng(0), mujoco.MjData(mjm), [], set()
    while len(found) < n:
        mujoco.mj_resetData(mjm, d)
        turn = rng.normal(0, 0.1, mjm.nv)
        turn[[0, 4, 5, 6]] *= 0.2
        turn[7:] *= rng.choice([0.1, 1.0, 5.0])
        mujoco.mj_integratePos(mjm, d.qpos, turn, 1.0)
        if mjm.nhfield:
            d.qpos[5:8] = [*rng.uniform(-0.5, 0.5, 2), rng.uniform(0, 0.4)]
        d.qvel[:] = rng.normal(0, 0.2, mjm.nv)
        mujoco.mj_forward(mjm, d)
        if d.ncon and d.contact.dist.min() > deepest:
            found.append([x.copy() for x in (d.qpos, d.qvel, d.ctrl, d.act)])
            counts.add(d.ncon)
    return [torch.tensor(np.stack(x)) for x in zip(*found, strict=True)], counts


def check(mjm: mujoco.MjModel, states: known.States, sharp: bool = True, smooth: float = 0.9) -> None:
    """Compare both modes. sharp: MuJoCo's own search ends exactly. smooth: the share of states that are no kinks."""
    sim = Simulation(mjm, len(states[0]), dtype=torch.float64)
    test_transition.check(sim, states)
    known.put(sim, states)
    got = torch.cat(sim.linearize()[:2], dim=-1).numpy()
    assert known.share_equal(got, *known.best_differences(mjm, sim, states)) >= smooth
    if sharp:
        assert known.share_equal(got, *(known.transition_fd(mjm, states, h) for h in known.STEPS)) >= smooth
    left, right = (known.one_sided(mjm, sim, states, h) for h in (-known.STEPS[0], known.STEPS[0]))
    apart = np.abs(left - right).max(1)
    errors = np.min([np.abs(got - x).max(1) for x in known.best_differences(mjm, sim, states)], axis=0)
    bound = 1e-6 * (1e-3 + np.abs(got).max(1))
    assert ((errors <= bound) | (errors <= apart)).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("one", "two", "above", "cone"),
    [
        ("cube", "nut", 0.145, "elliptic"),
        ("stone", "stone", 0.16, "pyramidal"),
        ("box", "stone", 0.15, "pyramidal"),
        ("box", "cube", 0.155, "pyramidal"),
        ("ball", "stone", 0.15, "pyramidal"),
        ("rod", "stone", 0.12, "pyramidal"),
        ("rod", "cube", 0.13, "elliptic"),
    ],
)
def test_derivatives_of_meshes_follow_the_corners_and_faces_that_touch(one, two, above, cone):
    mjm = two_bodies(one, two, above, cone)
    states, counts = touching(mjm, 32)
    assert counts >= {1, 2} or "ball" in (one, two)
    check(mjm, states)


def test_derivatives_of_meshes_that_lie_on_each_other_are_those_of_differences():
    """Few degrees of freedom, and four contacts of two faces: corners of one, or where their sides cross."""
    xml = TWO.replace('<joint type="ball" stiffness="3" damping=".1"/>', "")
    xml = xml.replace("<freejoint/>", '<joint type="slide" axis="0 0 1"/><joint axis=".3 1 .1"/>')
    xml = xml.format(
        assets=ASSETS, one=SHAPES["cube"], two=SHAPES["nut"], above=0.13, cone="pyramidal", mass=1, inertia=0.01
    )
    mjm = oracle.sharpen(mujoco.MjModel.from_xml_string(xml))
    rng = np.random.default_rng(0)
    states = [torch.tensor(rng.normal(0, x, (16, 3))) for x in (0.005, 0.1)]
    assert {len(known.touching(mjm, [*state, torch.zeros(1)])) for state in zip(*states, strict=True)} == {4}
    states += [torch.zeros(16, k, dtype=torch.float64) for k in (1, 0)]
    # Of eight corners four are kept: of even shapes, rounding decides which, in MuJoCo, too.
    check(mjm, states, sharp=False, smooth=0.8)


def test_derivatives_of_a_capsule_and_a_cylinder_are_those_of_differences():
    mjm = two_bodies("rod", "can", 0.13)
    states, counts = touching(mjm, 32, deepest=-0.029)  # the capsule's axis is outside of the cylinder
    assert counts == {1, 2}
    check(mjm, states, sharp=False)  # which for MuJoCo is a search to 1e-6


def test_derivatives_of_boxes_on_boxes_are_those_of_differences():
    mjm = two_bodies("box", "box", 0.11)
    states, counts = touching(mjm, 32)
    assert counts >= {1, 2, 4}
    check(mjm, states)


@pytest.mark.parametrize("shape", ["ball", *(pytest.param(x, marks=pytest.mark.slow) for x in ("rod", "box", "stone"))])
def test_derivatives_on_height_fields_are_those_of_differences(shape):
    mjm = two_bodies("hills", shape, 0.3)
    states, counts = touching(mjm, 32, deepest=-0.04)
    assert max(counts) > 2
    # MuJoCo's own search ends by 1e-6 of a rod, and of a box or mesh early, here and there on other prisms.
    check(mjm, states, sharp=shape != "rod", smooth=0.7 if shape in ("box", "stone") else 0.9)


@pytest.mark.parametrize(
    ("one", "two", "above", "deepest"),
    [
        ("rod", "pebble", 0.07, -0.03),
        ("egg", "box", 0.12, -0.03),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                ("ball", "egg", 0.11, -0.03),
                ("egg", "pebble", 0.12, -0.03),
                ("egg", "can", 0.13, -0.03),
                ("rod", "pebble", 0.03, -0.15),  # also deeper than the capsule's radius
                ("egg", "pebble", 0.05, -0.2),
                ("pebble", "box", 0.05, -0.1),
            )
        ),
    ],
)
def test_derivatives_of_ellipsoids_are_those_of_differences(one, two, above, deepest):
    mjm = two_bodies(one, two, above)
    states, _ = touching(mjm, 32, deepest)
    check(mjm, states, sharp=False)  # which for MuJoCo is a search


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("cube", "nut"), ("rod", "stone"), ("hills", "ball"), ("hills", "box"), ("rod", "egg"), ("egg", "box"),
        ("egg", "can"),
    ],
)  # fmt: skip
def test_gradients_of_convex_shapes_anywhere_are_numbers(one, two, dtype):
    mjm, n = two_bodies(one, two, 0.15), 2**14
    rng = np.random.default_rng(0)
    qpos = np.tile(mjm.qpos0, (n, 1))
    for q, turn in zip(qpos, rng.normal(size=(n, mjm.nv)) * rng.choice([0.0, 0.01, 0.1, 1.0], (n, 1)), strict=True):
        mujoco.mj_integratePos(mjm, q, turn, 1.0)
    given = [torch.tensor(x).to(dtype).requires_grad_() for x in (qpos, rng.normal(size=(n, mjm.nv)))]
    after = Simulation(mjm, 1, dtype=dtype).transition(*given)
    assert all(x.isfinite().all() for x in torch.autograd.grad(after.qvel.sum() + after.qpos.sum(), given))

"""Height fields against convex shapes, as MuJoCo C has them: contacts one by one and in order, and steps.

Spheres and capsules are exact to rounding while their cores are outside of the ground. Deeper, and of the other shapes,
MuJoCo's own answer is within ccd_tolerance of a distance: there it is asked at a tolerance of 1e-10.
"""

from __future__ import annotations

from types import SimpleNamespace

import mujoco
import numpy as np
import oracle
import pytest
import torch
from scipy.spatial.transform import Rotation
from two_geoms import exactly, expected

from torch_mjenvs.physics import load
from torch_mjenvs.physics.collision.contact_param import contact_param
from torch_mjenvs.physics.collision.convex.deepest import deepest
from torch_mjenvs.physics.collision.convex.hull import Hull
from torch_mjenvs.physics.collision.hfield.prisms import Prism, is_apart, touch_ball, touch_core
from torch_mjenvs.physics.collision.shapes import SHAPES, most_contacts
from torch_mjenvs.physics.collision.solids import NO_CELLS
from torch_mjenvs.physics.constraints.contacts import MANY
from torch_mjenvs.physics.model.enums import GeomType
from torch_mjenvs.physics.model.hfield import MOST
from torch_mjenvs.physics.pipeline import derive
from torch_mjenvs.physics.simulation import Simulation

ROUND = {"sphere": 'type="sphere" size=".1"', "capsule": 'type="capsule" size=".07 .15"'}
OTHERS = {"ellipsoid": 'type="ellipsoid" size=".1 .15 .07"', "cylinder": 'type="cylinder" size=".1 .08"'}
CORNERED = {"box": 'type="box" size=".15 .2 .1"', "mesh": 'type="mesh" mesh="rock"'}
MARGIN = 'margin=".03"'
TILTED = 'pos=".1 .2 .05" euler="5 10 20"'


def _rock() -> str:
    points = np.random.default_rng(3).normal(size=(16, 3))
    points *= np.array([0.15, 0.2, 0.1]) / np.linalg.norm(points, axis=1, keepdims=True)
    return " ".join(f"{x:.4f}" for x in points.ravel())


def terrain(bodies: str, ground: str = "", nrow: int = 7, ncol: int = 9, size: str = "1 1.2 .3 .2", more: str = ""):
    """Rough ground, and bodies; elevations are random."""
    mjm = mujoco.MjModel.from_xml_string(
        f"""<mujoco>{more}<asset><hfield name="field" nrow="{nrow}" ncol="{ncol}" size="{size}"/>
        <mesh name="rock" vertex="{_rock()}"/></asset>
        <worldbody><geom name="ground" type="hfield" hfield="field" {ground}/>{bodies}</worldbody></mujoco>"""
    )
    mjm.hfield_data[:] = np.random.default_rng(0).random(nrow * ncol)
    return oracle.sharpen(mjm)


def free(geom: str) -> str:
    return f"<body><freejoint/><geom {geom}/></body>"


def poses(n: int, low: float, high: float, wide: float = 1.0, seed: int = 1) -> np.ndarray:
    """Anywhere over the ground, so high, and turned any way."""
    rng = np.random.default_rng(seed)
    out = rng.normal(size=(n, 7))
    out[:, :3] = rng.uniform([-wide, -1.2 * wide, low], [wide, 1.2 * wide, high], (n, 3))
    out[:, 3:] /= np.linalg.norm(out[:, 3:], axis=1, keepdims=True)
    return out


def found(mjm: mujoco.MjModel, states: np.ndarray) -> list[list[np.ndarray]]:
    """Of each state the contacts that act, by plain Python: dist, point, normal."""
    m, out = load(mjm), []
    for state in states.tolist():
        (candidate,) = derive(m, state, [], None, []).candidates
        acting = [c for c in candidate.contacts() if c.dist < contact_param(m, c.pair).margin]
        assert candidate.near() or not acting
        places = [(c.dist, *c.locate()) for c in acting]
        out.append([np.array([dist, *point, *frame[0]]) for dist, point, frame in places])
    return out


@pytest.mark.parametrize("ground", ["", 'margin=".03" gap=".01"', TILTED], ids=["flat", "margin", "tilted"])
@pytest.mark.parametrize("shape", ROUND)
def test_spheres_and_capsules_touch_as_in_mujoco(shape, ground):
    mjm = terrain(free(ROUND[shape]), ground)
    states = poses(20, 0.15, 0.5)
    got, usual, want = found(mjm, states), expected(mjm, states), exactly(mjm, states)
    assert [len(g) for g in got] == [len(w) for w in want]
    rows = [np.array([np.ravel(x) for xs in all_ for x in xs]) for all_ in (got, usual, want)]  # in MuJoCo's order
    assert len(rows[0]) > 20
    shallow = rows[0][:, 0] > -0.06
    assert shallow.sum() > 10
    np.testing.assert_allclose(rows[0][shallow], rows[1][shallow], rtol=0, atol=1e-9)
    np.testing.assert_allclose(rows[0], rows[2], rtol=0, atol=1e-5)  # what is deeper


@pytest.mark.parametrize(
    ("shape", "ground"),
    [*((shape, ground) for shape in OTHERS for ground in ("", MARGIN)), ("box", MARGIN), ("mesh", MARGIN)],
)
def test_other_shapes_touch_as_nearly_as_in_mujoco(shape, ground):
    mjm = terrain(free((OTHERS | CORNERED)[shape]), ground)
    states = poses(20, 0.15, 0.5)
    got, usual, want = found(mjm, states), expected(mjm, states), exactly(mjm, states)
    assert [len(g) for g in got] == [len(w) for w in want]
    ours, theirs, rows = (np.array([x for xs in all_ for x in xs]) for all_ in (got, usual, want))
    assert len(rows) > 20
    ours, theirs = np.abs(ours - rows), np.abs(theirs - rows)
    assert np.max(ours[:, 0]) < 5 * np.max(theirs[:, 0]) + 1e-6
    assert np.median(ours[:, 1:4]) < 3 * np.median(theirs[:, 1:4]) + 1e-6
    assert np.max(ours[:, 4:]) < 5 * np.max(theirs[:, 4:]) + 1e-6


@pytest.mark.parametrize("shape", OTHERS)
def test_ellipsoids_and_cylinders_touch_as_in_mujoco_at_its_sharpest(shape):
    """MuJoCo's depth is then within 1e-12 m, and normal and point within the root of that."""
    mjm = terrain(free(OTHERS[shape]))
    mjm.opt.ccd_iterations, mjm.opt.ccd_tolerance = 500, 1e-12
    states = poses(40, 0.15, 0.5)
    got, want = (np.array([x for xs in all_ for x in xs]) for all_ in (found(mjm, states), expected(mjm, states)))
    shallow = want[:, 0] > -0.1
    assert shallow.sum() > 20
    errors = np.abs(got - want)[shallow]
    assert errors[:, 0].max() < 1e-11 and np.median(errors[:, 0]) < 1e-12
    assert errors[:, 1:].max() < 1e-4 and np.median(errors[:, 1:]) < 1e-6


@pytest.mark.parametrize("shape", CORNERED)
def test_boxes_and_meshes_touch_as_in_mujoco(shape):
    """Where MuJoCo stops at a face that is not one of both shapes' difference, but for those where rounding decides: a
    face with an edge of the box has two corners that are as far.
    """
    mjm = terrain(free(CORNERED[shape]))
    states = poses(60 if shape == "mesh" else 40, 0.1, 0.4)
    got, want = found(mjm, states), expected(mjm, states)
    assert [len(g) for g in got] == [len(w) for w in want]
    got, want = (np.array([x for xs in all_ for x in xs]) for all_ in (got, want))
    assert len(want) > 100
    assert np.mean(np.abs(got - want).max(1) < 1e-9) > 0.93


def test_at_the_edge_and_below_it_is_as_in_mujoco():
    """Beside the field, under it, and where only a part is above it."""
    mjm = terrain(free(ROUND["sphere"]), 'margin=".02"')
    for wide, low, high in ((1.15, -0.1, 0.2), (1.0, -0.35, -0.15)):
        states = poses(30, low, high, wide)
        if wide > 1:
            states[:15, 0] = np.sign(states[:15, 0]) * np.linspace(0.95, 1.15, 15)
            states[15:, 1] = np.sign(states[15:, 1]) * np.linspace(1.15, 1.35, 15)
        got, want = found(mjm, states), exactly(mjm, states)
        assert [len(g) for g in got] == [len(w) for w in want]
        assert sum(map(len, want)) > 5
        for g, w in zip(got, want, strict=True):
            np.testing.assert_allclose(g, w, rtol=0, atol=1e-5)


def test_a_pair_has_as_many_contacts_as_mujoco_keeps():
    """The first 50."""
    mjm = terrain(free('type="sphere" size=".5"'), nrow=21, ncol=25)
    states = poses(3, 0.2, 0.4, 0.5)
    got, want = found(mjm, states), exactly(mjm, states)
    assert [len(w) for w in want] == [MOST] * 3 == [len(g) for g in got]
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5)


def test_a_shape_touches_in_no_more_points_than_there_is_room_for():
    """Of any size on any grid, so long as MuJoCo keeps them."""
    rng = np.random.default_rng(0)
    d = None
    for _ in range(60):
        nrow, ncol = rng.integers(2, 12, 2).tolist()
        sizes = rng.uniform(0.02, 0.4, 2).tolist()
        mjm = terrain(free(f'type="capsule" size="{sizes[0]} {sizes[1]}"'), 'margin=".01"', nrow, ncol)
        mjm.hfield_data[:] = 1
        m, d = load(mjm), mujoco.MjData(mjm)
        most = 0
        for state in poses(20, 0.2, 0.4):
            d.qpos[:] = state
            mujoco.mj_fwdPosition(mjm, d)
            most = max(most, d.ncon)
        assert most <= most_contacts(m, m.pairs[0]) <= MOST
    assert d is not None and most > 0


BODIES = "".join(
    f'<body pos="{x} {y} {z}"><freejoint/><geom {geom}/></body>'
    for x, y, z, geom in (
        (-0.5, -0.5, 0.31, ROUND["sphere"]),
        (0.3, -0.4, 0.41, ROUND["capsule"]),
        (0.4, 0.5, 0.44, 'type="capsule" size=".05 .2"'),
        (-0.3, 0.6, 0.3, 'type="sphere" size=".15" margin=".02" gap=".01"'),
    )
)


@pytest.mark.parametrize("cone", ["pyramidal", "elliptic"])
def test_spheres_and_capsules_fall_and_roll_as_in_mujoco(cone):
    mjm = terrain(BODIES, more=f'<option timestep=".002" cone="{cone}"/>')
    sim = Simulation(mjm, 12, dtype=torch.float64)
    states = oracle.scattered(mjm, 12, 0.03, (0.3, 1.0))
    for steps, times in ((1, 20), (10, 8)):
        assert np.mean([d.ncon for d in oracle.compare_steps(sim, mjm, states, steps, times)]) > 2


def test_other_shapes_fall_as_in_mujoco():
    bodies = "".join(
        f'<body pos="{x} 0 .31"><freejoint/><geom {g}/></body>'
        for x, g in zip((-0.5, 0.5), OTHERS.values(), strict=True)
    )
    mjm = terrain(bodies, more='<option timestep=".004"/>')
    sim = Simulation(mjm, 8, dtype=torch.float64)
    states = oracle.scattered(mjm, 8, 0.05, (0.3,))
    mjm.opt.ccd_iterations, mjm.opt.ccd_tolerance = 500, 1e-10
    touched = [d.ncon for d in oracle.compare_steps(sim, mjm, states, 1, bound=2e-2)]  # MuJoCo itself is off by 7e-3
    assert np.mean(touched) > 1


def test_boxes_fall_as_in_mujoco():
    bodies = "".join(f'<body pos="{x} 0 .3"><freejoint/><geom {CORNERED["box"]}/></body>' for x in (-0.5, 0.5))
    mjm = terrain(bodies, more='<option timestep=".002"/>')
    sim, states = Simulation(mjm, 24, dtype=torch.float64), oracle.scattered(mjm, 24, 0.1, (0.3,))
    oracle._put(sim, states)
    sim.step()
    near, touching = [], 0
    for k, (qpos, qvel) in enumerate(states):
        d = mujoco.MjData(mjm)
        d.qpos[:], d.qvel[:] = qpos, qvel
        mujoco.mj_step(mjm, d)
        for box in range(2):  # each a world of its own, in some of which rounding decides
            dofs = slice(6 * box, 6 * box + 6)
            contacts = sum(c.geom[1] == box + 1 for c in d.contact)
            touching += contacts
            if contacts:
                near.append(np.abs(sim.qvel[k, dofs].cpu().numpy() - d.qvel[dofs]).max() < 1e-9)
    assert touching > 40 and np.mean(near) > 0.7


def test_a_field_that_moves_touches_as_in_mujoco():
    bodies = f'<body pos="0 0 .4"><freejoint/><geom {ROUND["sphere"]}/></body>'
    mjm = mujoco.MjModel.from_xml_string(
        f"""<mujoco><asset><hfield name="field" nrow="4" ncol="5" size=".5 .5 .1 .1"/></asset><worldbody>
        <body><joint axis="1 0 .3"/><geom type="hfield" hfield="field" mass="3"/></body>{bodies}</worldbody></mujoco>"""
    )
    mjm.hfield_data[:] = np.random.default_rng(0).random(20)
    states = oracle.scattered(oracle.sharpen(mjm), 6, 0.1)
    for qpos, _ in states:
        qpos[1:4] = 0.05, 0.02, 0.13
    touched = [d.ncon for d in oracle.compare_steps(Simulation(mjm, 6, dtype=torch.float64), mjm, states, 1, 3)]
    assert sum(touched) >= 6


@pytest.mark.parametrize(
    ("option", "vary"), [('noslip_iterations="3" noslip_tolerance="0"', ()), ("", ("geom_friction",))]
)
def test_contacts_written_out_one_by_one_are_as_in_mujoco(option, vary):
    """As with noslip, and where friction varies."""
    body = f'<body pos="-.5 -.5 .15"><freejoint/><geom {ROUND["sphere"]}/></body>'
    mjm = terrain(body, more=f'<option timestep=".002" {option}/>')
    states = oracle.scattered(mjm, 6, 0.03, (0.3,))
    d = oracle.compare_steps(Simulation(mjm, 6, dtype=torch.float64, vary=vary), mjm, states, 10, 3)
    assert sum(x.ncon for x in d) > 2


def any_prism(rng: np.random.Generator) -> Prism:
    """One of a cell's two prisms, seen from somewhere near it, also from below and inside."""
    at = rng.uniform([-0.2, -0.2, -0.3], [0.8, 0.6, 0.6])
    x, y, (a, b, c) = 0.6, 0.4, rng.uniform(0.1, 0.5, 3)
    tops = [[[0, y, a], [0, 0, b], [x, y, c]], [[0, 0, a], [x, y, b], [x, 0, c]]][rng.integers(2)]
    return Prism([[float(p - q) for p, q in zip(top, at, strict=True)] for top in tops], -0.2 - float(at[2]))


def test_the_depth_of_a_sphere_is_what_the_search_finds():
    """In single prisms, near and far, from all sides, below, and inside, where MuJoCo itself is less exact."""
    rng, inside = np.random.default_rng(0), 0
    for _ in range(300):
        prism = any_prism(rng)
        hull = SHAPES[GeomType.SPHERE].hull
        assert hull
        size = hull([0.07]) | NO_CELLS._asdict()
        about = dict(centre=[0.0] * 3, mat=np.eye(3).ravel().tolist(), solids=None, epsilon=2**-52)
        ball = Hull(SimpleNamespace(size=size, **about))
        got, want = touch_ball(prism, ball), touch_core(prism, ball, 10.0)
        assert abs(got[0] - want[0]) < 1e-6  # of EPA
        if got[0] > -0.07:  # GJK is exact
            np.testing.assert_allclose(got, want, rtol=0, atol=1e-9)
        inside += got[0] < -0.07
    assert 30 < inside < 200


@pytest.mark.parametrize("kind", ["CAPSULE", "ELLIPSOID", "CYLINDER", "BOX"])
def test_what_is_seen_to_be_apart_from_a_prism_does_not_touch_it_and_most_is_seen(kind):
    rng, margin = np.random.default_rng(0), 0.01
    hull_of, sizes = SHAPES[GeomType[kind]].hull, {"CAPSULE": [0.03, 0.1], "CYLINDER": [0.1, 0.03]}
    size = hull_of(sizes.get(kind, [0.1, 0.04, 0.02])) | NO_CELLS._asdict()
    counts = {(touch, apart): 0 for touch in (False, True) for apart in (False, True)}
    for _ in range(300):
        prism = any_prism(rng)
        mat = Rotation.from_quat(rng.normal(size=4)).as_matrix().ravel().tolist()
        shape = Hull(SimpleNamespace(size=size, centre=[0.0] * 3, mat=mat, solids=None, epsilon=2**-52))
        touch = touch_core if kind in ("CAPSULE", "BOX") else deepest
        counts[touch(prism, shape, margin)[0] < margin, is_apart(prism, shape, margin)] += 1
    assert not counts[True, True] and counts[True, False] > 50 and counts[False, True] > counts[False, False] > 0


def test_forces_on_feet_are_those_of_mujoco():
    """What touch sensors feel, and cfrc_ext, of contacts that share a loop."""
    feet = "".join(
        f"""<body pos="{x} .3 .42"><freejoint/><geom {g}/><site name="s{k}" size=".2"/></body>"""
        for k, (x, g) in enumerate(((-0.5, ROUND["sphere"]), (0.4, 'type="sphere" size=".15" condim="4"')))
    )
    sensors = "<sensor><touch site='s0'/><touch site='s1'/></sensor>"
    mjm = terrain(feet, more=f'<option timestep=".002"/>{sensors}')
    m = load(mjm)
    assert [most_contacts(m, p) > MANY for p in m.pairs[:2]] == [True, True]
    sim = Simulation(mjm, 10, dtype=torch.float64, outputs=("sensordata", "cfrc_ext"))
    states = oracle.scattered(mjm, 10, 0.05, (0.3,))
    data = oracle.compare_steps(sim, mjm, states, 30, 4, ("qpos", "qvel", "sensordata", "cfrc_ext"), 1e-8)
    assert np.mean([d.sensordata > 0 for d in data]) > 0.5


def test_in_float32_accelerations_are_mujocos_of_the_rounded_states():
    mjm = terrain(BODIES, more='<option timestep=".002"/>')
    states = []
    for qpos, qvel in oracle.scattered(mjm, 8, 0.03, (0.3,)):
        d = mujoco.MjData(mjm)
        d.qpos[:], d.qvel[:] = qpos, qvel
        mujoco.mj_step(mjm, d, 60)
        states.append((d.qpos, d.qvel))
    oracle.compare_float32(Simulation(mjm, 8, dtype=torch.float32, outputs=("qacc",)), mjm, states)


def test_capsules_deep_in_thin_ground_touch_where_mujoco_says():
    """Its top and its base have parallel edges, whose faces are both a way out, of which one is not on the surface."""
    mjm = terrain(free(ROUND["capsule"]), nrow=3, ncol=5, size="1 1.2 .3 .01")
    mjm.hfield_data[:] = 0.0
    states = poses(40, -0.1, 0.1)
    got, want = found(mjm, states), exactly(mjm, states)
    assert [len(g) for g in got] == [len(w) for w in want]
    rows = [np.array([x for xs in all_ for x in xs]) for all_ in (got, want)]
    assert len(rows[0]) > 40
    np.testing.assert_allclose(rows[0], rows[1], rtol=0, atol=1e-5)

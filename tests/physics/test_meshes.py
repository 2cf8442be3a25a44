"""Convex meshes against all other shapes, and each other: where they touch, and how they move, against MuJoCo C.

Boxes and meshes touch exactly. Of the others MuJoCo is asked at a tolerance of 1e-10 m, as its answer is right to 1e-6
by default.
"""

from __future__ import annotations

from types import SimpleNamespace

import kernels
import mujoco
import numpy as np
import oracle
import pytest
import torch
from scipy.spatial import ConvexHull
from two_geoms import ROUND_AND_FLAT, exactly, expected, found, on_each_other, poses, worst

from benchmarks import gjk
from torch_mjenvs import Simulation
from torch_mjenvs.compiler.program import Buffer, record
from torch_mjenvs.physics import load
from torch_mjenvs.physics.collision.boxes_around import boxes_around, boxes_meet
from torch_mjenvs.physics.collision.convex.separation import hulls_meet
from torch_mjenvs.physics.collision.directions import FEW, FINEST, furthest_lists
from torch_mjenvs.physics.collision.shapes import collider_of, size_of
from torch_mjenvs.physics.collision.solids import furthest_vertex, solids_of
from torch_mjenvs.physics.model.mesh import read_meshes
from torch_mjenvs.physics.model.precision import PRECISIONS
from torch_mjenvs.physics.pipeline import derive


def _dodecahedron() -> np.ndarray:
    phi = (1 + 5**0.5) / 2
    corners = [(x, y, z) for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)]
    for a in (-1, 1):
        for b in (-1, 1):
            corners += [(0, a / phi, b * phi), (a / phi, b * phi, 0), (a * phi, 0, b / phi)]
    return 0.1 * np.array(corners)


def _rock(n: int) -> np.ndarray:
    points = np.random.default_rng(n).normal(size=(n, 3))
    return points / np.linalg.norm(points, axis=1, keepdims=True) * [0.1, 0.2, 0.15]


def _link(n: int) -> np.ndarray:
    """A tube of a robot's arm: rings of n corners around its axis, each a little narrower, none quite round."""
    rng, around = np.random.default_rng(n), 2 * np.pi * np.arange(n) / n
    rings = [(0.08, -0.2), (0.09, -0.18), (0.085, 0.0), (0.08, 0.15), (0.06, 0.2)]
    points = [[r * np.cos(a), r * np.sin(a), z] for r, z in rings for a in around]
    return np.array(points) + rng.normal(0, 1e-5, (len(points), 3))


def _pillow() -> np.ndarray:
    """A brick with bulges so flat that MuJoCo's faces leave their tops out."""
    points = [[0.02, 0.01, 0.20003], [0.05, -0.03, -0.20003], [0.10003, 0.01, 0.02], [-0.10003, 0.03, 0.05]]
    return np.concatenate([MESHES["brick"], points])


def _prism(n: int, radius: float) -> np.ndarray:
    """A prism of n corners, none of them on a rounded grid, with bevelled ends."""
    rng = np.random.default_rng(n)
    around = np.sort(rng.uniform(0, 2 * np.pi, n))
    ring = radius * np.stack([np.cos(around), 0.7 * np.sin(around)], 1)
    ends = ((1.0, 0.08), (0.95, 0.084))
    return np.array([[*(x * k), z * up] for k, z in ends for up in (-1, 1) for x in ring])


MESHES = {
    "tetrahedron": np.array([[0, 0, 0], [0.4, 0, 0], [0, 0.35, 0], [0, 0, 0.3]]),
    "dodecahedron": _dodecahedron(),
    "brick": np.array([[x, y, z] for x in (-0.1, 0.1) for y in (-0.15, 0.15) for z in (-0.2, 0.2)]),
    "nut": np.array([[np.cos(k) * 0.15, np.sin(k) * 0.15, z] for k in (0, 0.9, 2, 3.1, 4, 5.3) for z in (-0.1, 0.1)]),
    "wedge": np.array([[x, y, z] for x, y in ((0, 0), (0.3, 0), (0, 0.25)) for z in (-0.1, 0.1)]),
    # The ends of its ridge belong to three faces: one is a sliver, beside a corner that is hardly out of another one.
    "roof": np.array(
        [
            *[[0, 0.15, 0.0955], [-0.1, -0.1, -0.1], [0.01, -0.002, 0.10001], [0.1, -0.1, -0.1], [0, -0.15, 0.1]],
            *[[0, 0, -0.1], [0.1, 0.1, -0.1], [-0.2, 0, 0.1], [-0.1, 0.1, -0.1], [0.2, 0, 0.1]],
        ]
    ),
    "rock": _rock(60),
    "boulder": _rock(400),
    "can": _prism(20, 0.2),
    "post": _prism(30, 0.2),
    "link": _link(48),
    "knob": np.concatenate([_rock(8), 0.05 * _rock(300) + [0.1, 0.2, 0.15]]),  # most of its edges are short
}
MESHES["pillow"] = _pillow()
SHAPES = ROUND_AND_FLAT | {"disc": 'type="cylinder" size=".3 .1"'}


def geom(name: str, more: str = "") -> str:
    shape = SHAPES.get(name) or f'type="mesh" mesh="{name}"'
    return f"<geom {shape} {more}/>"


def model(bodies: str, *names: str) -> mujoco.MjModel:
    """These bodies, and the meshes of them."""
    numbers = {name: " ".join(f"{x:.6f}" for x in MESHES[name].ravel()) for name in names if name in MESHES}
    assets = "".join(f'<mesh name="{name}" vertex="{text}"/>' for name, text in numbers.items())
    xml = f"<mujoco><asset>{assets}</asset><worldbody>{bodies}</worldbody></mujoco>"
    return oracle.sharpen(mujoco.MjModel.from_xml_string(xml))


def two(one: str, other: str, more: str = "") -> mujoco.MjModel:
    bodies = "".join(f"<body><freejoint/>{geom(name, more)}</body>" for name in (one, other))
    return model(bodies, *sorted({one, other}))


CORNERED = [
    ("box", "tetrahedron"),
    ("box", "rock"),
    ("brick", "dodecahedron"),
    ("tetrahedron", "dodecahedron"),
    ("rock", "boulder"),
    ("pillow", "rock"),
]
ROUND = [(one, other) for one in ("sphere", "capsule") for other in ("tetrahedron", "dodecahedron", "rock")]
SMOOTH = [("ellipsoid", "brick"), ("cylinder", "tetrahedron")]


def one_each(mjm: mujoco.MjModel, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The contacts of random poses in which there is one: here, in MuJoCo, and in MuJoCo as exact as it can."""
    mjm.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_MULTICCD)
    states = poses(n, 0.25, 0)
    got, usual, want = found(mjm, states), expected(mjm, states), exactly(mjm, states)
    counts = [len(g) == len(w) for g, w in zip(got, want, strict=True)]
    assert np.mean(counts) > 0.98  # a distance within 1e-6 of the margin may fall on either side
    all_ = [(g[0], u[0], w[0]) for g, u, w in zip(got, usual, want, strict=True) if len(g) == len(u) == len(w) == 1]
    assert len(all_) > n // 8
    got, usual, want = (np.array(x) for x in zip(*all_, strict=True))
    return got, usual, want


@pytest.mark.parametrize("pair", CORNERED, ids="-".join)
def test_boxes_and_meshes_touch_exactly(pair):
    """In any pose, apart, shallow or deep."""
    got, _, want = one_each(two(*pair), 40 if "boulder" in pair else 80)
    assert np.abs(got - want).max() < 1e-11


@pytest.mark.parametrize(("pair", "more"), [*((x, "") for x in ROUND), (CORNERED[0], 'margin=".02"')], ids=str)
def test_spheres_and_capsules_and_margins_are_as_exact_as_mujoco_can_be(pair, more):
    """MuJoCo's answer at a tolerance of 1e-10 m is off by as much, and by the root of it in normal and place."""
    got, usual, want = one_each(two(*pair, more), 100)
    errors = np.abs(got - want)
    assert errors[:, 0].max() < 3e-10 and errors[:, 4:].max() < 1e-5 and errors[:, 1:4].max() < 3e-5
    assert np.median(errors.max(1)) <= np.median(np.abs(usual - want).max(1)) + 1e-12


@pytest.mark.parametrize("pair", SMOOTH, ids="-".join)
def test_other_shapes_touch_a_mesh_as_in_mujoco(pair):
    got, usual, want = one_each(two(*pair), 60)
    ours, theirs = (np.abs(x - want) for x in (got, usual))
    shallow = want[:, 0] > -0.03
    assert shallow.sum() > 2
    assert np.max(ours[shallow, 0]) < 1e-5 and np.max(ours[shallow, 4:]) < 5e-2
    assert np.median(ours[:, 0]) < 3 * np.median(theirs[:, 0]) + 1e-7
    assert np.max(ours[:, 0]) < 5 * np.max(theirs[:, 0]) + 1e-6


@pytest.mark.parametrize("pair", [*SMOOTH, ("ellipsoid", "rock"), ("cylinder", "rock")], ids="-".join)
def test_ellipsoids_and_cylinders_touch_a_mesh_to_rounding(pair):
    """As deep as a dense search finds, from MuJoCo's normal, too; MuJoCo at its sharpest is within 1e-9 of that."""
    mjm = two(*pair)
    mjm.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_MULTICCD)
    states = gjk.poses(120, 3)
    got, want = found(mjm, states), exactly(mjm, states)
    both = [k for k, (g, w) in enumerate(zip(got, want, strict=True)) if len(g) == len(w) == 1 and w[0][0] > -0.1]
    assert len(both) > 10
    _, where = gjk.theirs(mjm, states)
    ours, theirs = (np.array([x[k][0] for k in both]) for x in (got, want))
    normals = np.stack([ours[:, 4:], theirs[:, 4:]], 1)
    judge = gjk.Judge(mjm, [where[k] for k in both])
    depth, _ = judge.distances(normals, np.random.default_rng(0))
    assert np.max(np.abs(ours[:, 0] - depth)) < 1e-14
    assert np.max(np.abs(theirs[:, 0] - depth)) < 1e-9
    np.testing.assert_allclose(ours[:, 1:], theirs[:, 1:], rtol=0, atol=1e-4)  # the root of MuJoCo's tolerance


HEIGHTS = {"brick": 0.2, "box": 0.2, "plate": 0.1, "nut": 0.1, "wedge": 0.1, "cylinder": 0.2, "disc": 0.1}


FLAT = [("box", "brick"), ("plate", "nut"), ("wedge", "brick"), ("cylinder", "nut")]


@pytest.mark.parametrize("tilt", [0.0, 0.05, 0.12])
@pytest.mark.parametrize(("pair", "more"), [*((pair, "") for pair in FLAT), (FLAT[0], 'margin=".01"')], ids=str)
def test_flat_faces_touch_in_up_to_four_points(pair, more, tilt):
    """A face on a face, nearly, or an edge on one: in the same points as MuJoCo's, but where rounding decides."""
    mjm = two(*pair, more)
    names = [n for n in pair if n in SHAPES] + [n for n in pair if n in MESHES]
    states = on_each_other(40, sum(HEIGHTS[name] for name in names), tilt, 0.2)
    got, want = found(mjm, states), expected(mjm, states)
    assert sum(len(w) > 1 for w in want) > 15
    errors = np.array([worst(g, w) for g, w in zip(got, want, strict=True)])
    if "cylinder" in pair:  # on an edge it is within MuJoCo's tolerance, where it is in touch at all
        assert np.mean(errors < 1e-9) > (0.9 if tilt < 0.1 else 0.5)
    else:
        assert np.mean(errors < 1e-11) > 0.95
        assert [len(g) for g in got] == [len(w) for w in want]


@pytest.mark.parametrize("dtype", kernels.DTYPES)
@pytest.mark.parametrize("pair", [("nut", "wedge"), ("brick", "nut"), ("can", "post")], ids="-".join)
def test_where_faces_and_edges_are_parallel_no_shorter_way_out_is_missed(pair, dtype):
    """As of a gripper's links, which turn about one axis: many corners of C are on a face or in line with an edge of it
    but for rounding.
    """
    mjm = two(*pair)
    mjm.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_MULTICCD)
    m, d, states = load(mjm), mujoco.MjData(mjm), _with_parallel_axes(480)

    def contact(b):
        still = [0.0] * m.nv
        (candidate,) = derive(m, b["qpos"], still, still, [], PRECISIONS[dtype]).candidates
        found, *_ = candidate.contacts()
        return {"found": [found.dist, *found.locate()[1][0]]}

    program = record("contact", [Buffer("qpos", m.nq), Buffer("found", 4)], contact, dtype)
    found = kernels.run(program, {"qpos": states.T})["found"].T.astype(float)
    bound, touching = {"float32": 2e-7, "float64": 1e-14}[dtype], 0
    for state, (dist, *normal) in zip(states, found, strict=True):
        d.qpos[:] = state
        mujoco.mj_kinematics(mjm, d)
        corners = [_corners(mjm, d, g) for g in range(2)]
        depth = np.min(-ConvexHull((corners[0][:, None] - corners[1]).reshape(-1, 3)).equations[:, 3])
        if depth > 1e-5:
            touching += 1
            assert abs(dist + depth) < bound
            assert np.max(corners[0] @ normal) - np.min(corners[1] @ normal) < depth + bound
    assert touching > 200


def _corners(mjm: mujoco.MjModel, d: mujoco.MjData, g: int) -> np.ndarray:
    mesh = mjm.mesh(mjm.geom_dataid[g])
    first, n = int(mesh.vertadr[0]), int(mesh.vertnum[0])
    return mjm.mesh_vert[first : first + n] @ d.geom_xmat[g].reshape(3, 3).T + d.geom_xpos[g]


def _with_parallel_axes(n: int) -> np.ndarray:
    """Return states of two geoms whose z axes are parallel, in any direction; of a third of them all axes are."""
    rng, states = np.random.default_rng(0), np.zeros((n, 14))
    for state, turn in zip(states, np.where(np.arange(n) % 3 > 0, rng.uniform(0, 2 * np.pi, n), 0.0), strict=True):
        state[3:7] = rng.normal(size=4)
        state[3:7] /= np.linalg.norm(state[3:7])
        mujoco.mju_mulQuat(state[10:], state[3:7], [np.cos(turn / 2), 0, 0, np.sin(turn / 2)])
        mujoco.mju_rotVecQuat(state[7:10], rng.normal(0, 0.12, 3), state[3:7])
    return states.astype(np.float32).astype(float)


@pytest.mark.parametrize("pair", [("link", "link"), ("box", "link"), ("link", "boulder")], ids="-".join)
def test_of_many_small_faces_those_that_look_at_each_other_most_touch(pair):
    """Several are within 5 degrees of each other."""
    mjm = two(*pair)
    states = poses(120, 0.2, 0)
    got, want = found(mjm, states), expected(mjm, states)
    several = [(g, w) for g, w in zip(got, want, strict=True) if len(w) > 1]
    exact = [len(g) == len(w) and worst(g, w) < 1e-9 for g, w in several]
    assert len(several) > 40 and np.mean(exact) > 0.97  # of the first such faces 0.8 to 0.9 would be


def test_an_edge_lies_on_a_face_of_which_two_corners_belong_to_two_faces_more():
    """MuJoCo finds that face or not, depending on the order in which its search has the three corners."""
    mjm, rng = two("box", "roof"), np.random.default_rng(1)
    states = on_each_other(200, 0.302, 0.08, 0.1)
    for state in states:
        turn, turned = np.zeros(4), np.zeros(4)
        mujoco.mju_axisAngle2Quat(turn, np.array([1.0, 0, 0]), rng.choice([-1, 1]) * rng.uniform(0.15, 0.5))
        mujoco.mju_mulQuat(turned, state[10:], turn)  # the box's own axis
        state[3:7], state[10:] = turned, [1, 0, 0, 0]
    got, want = found(mjm, states), expected(mjm, states)
    assert all(len(g) >= len(w) > 0 for g, w in zip(got, want, strict=True))
    several = [(g, w) for g, w in zip(got, want, strict=True) if len(g) > 1]
    assert len(several) > 150 and np.mean([worst(g, w) < 1e-9 for g, w in several]) > 0.93


@pytest.mark.parametrize("tilt", [0.0, 0.05, 0.08])
def test_a_capsule_lies_on_a_face_in_two_points(tilt):
    mjm = two("capsule", "brick")
    states = on_each_other(40, 0.28, tilt, 0.05)
    lies = np.zeros(4)
    mujoco.mju_axisAngle2Quat(lies, np.array([1.0, 0, 0]), np.pi / 2)
    states[:, 3:7] = lies
    got, want = found(mjm, states), expected(mjm, states)
    assert [len(g) for g in got] == [len(w) for w in want]
    assert np.mean([len(w) == 2 for w in want]) > 0.2
    for g, w in zip(got, want, strict=True):
        assert worst(g, w) < 1e-9


def test_meshes_fall_on_each_other_as_in_mujoco():
    """One step and ten, by the kernel: contacts in loops, of one mesh with another, a box and the floor."""
    names = ("dodecahedron", "brick", "wedge", "box")
    bodies = '<geom type="plane" size="5 5 1"/>'
    for k, name in enumerate(names):
        bodies += f'<body pos="{0.05 * (k % 2)} 0 {0.25 + 0.25 * k}"><freejoint/>{geom(name)}</body>'
    mjm = model(bodies, *names)
    mjm.opt.ccd_tolerance, mjm.opt.ccd_iterations = 1e-12, 200
    rng, states, kinds = np.random.default_rng(0), [], set()
    d = mujoco.MjData(mjm)
    for _ in range(8):
        mujoco.mj_resetData(mjm, d)
        d.qvel[:] = rng.normal(size=mjm.nv)
        mujoco.mj_step(mjm, d, int(rng.integers(50, 400)))
        states.append((d.qpos.copy(), d.qvel.copy()))
    sim = Simulation(mjm, len(states), dtype=torch.float64)
    for steps in (1, 10):
        for buffer, rows in ((sim.qpos, [s[0] for s in states]), (sim.qvel, [s[1] for s in states])):
            buffer.copy_(torch.tensor(np.array(rows)))
        for _ in range(steps):
            sim.step()
        for world, (qpos, qvel) in enumerate(states):
            mujoco.mj_resetData(mjm, d)
            d.qpos[:], d.qvel[:] = qpos, qvel
            for _ in range(steps):
                mujoco.mj_step(mjm, d)
                kinds |= {tuple(sorted(mjm.geom_type[contact.geom].tolist())) for contact in d.contact}
            assert np.allclose(sim.qvel[world].cpu(), d.qvel, rtol=0, atol=1e-9 * steps)
    assert kinds >= {(0, 7), (6, 7), (7, 7)}


@pytest.mark.parametrize("name", ["tetrahedron", "brick", "rock", "boulder", "knob", "pillow"])
def test_the_furthest_vertex_is_in_the_cell_of_a_direction(name):
    mesh = read_meshes(model(f"<body>{geom(name)}</body>", name), [0])
    solids, rng = solids_of(mesh), np.random.default_rng(0)
    n = np.concatenate([rng.normal(size=(3000, 3)), rng.integers(-1, 2, (200, 3)) + [0, 0, 1e-17]])
    n = n[np.abs(n).sum(1) > 1e-9]
    n /= np.linalg.norm(n, axis=1, keepdims=True)
    towards = [torch.tensor(n[:, k].copy()) for k in range(3)]
    *x, v = (k.cpu() for k in furthest_vertex(solids, solids.of[0], towards))
    points = np.array(mesh[0].vertices)
    assert np.allclose((np.stack([k.numpy() for k in x], 1) * n).sum(1), (n @ points.T).max(1), rtol=0, atol=1e-15)
    assert np.allclose(points[v.numpy().astype(int) - 8], np.stack([k.numpy() for k in x], 1), rtol=0, atol=0)


@pytest.mark.parametrize("name", ["boulder", "knob", "link"])
def test_few_vertices_are_looked_at_in_a_direction(name):
    points = np.array(read_meshes(model(f"<body>{geom(name)}</body>", name), [0])[0].vertices)
    of_cell, lists = furthest_lists(points)
    counts = np.array([len(x) for x in lists])
    at_random = counts[of_cell]
    assert np.quantile(at_random, 0.98) <= FEW and 2 < at_random.mean() < 6 and len(of_cell) == FINEST
    assert counts.sum() < 20 * len(points) and all((np.diff(x) > 0).all() for x in lists)


def test_friction_and_places_of_meshes_vary_from_world_to_world():
    mjm = model(f'<geom type="plane" size="5 5 1"/><body pos="0 0 .199"><freejoint/>{geom("brick")}</body>', "brick")
    sim = Simulation(mjm, 3, dtype=torch.float64, vary=("geom_friction", "geom_pos"))
    sim.params["geom_friction"][:, :, 0] = torch.tensor([[0.2], [0.6], [1.0]], dtype=torch.float64)
    sim.params["geom_pos"][:, 1, 0] += torch.tensor([0.0, 0.01, -0.02], dtype=torch.float64)
    sim.qvel[:, 0] = 1.0
    sim.step()
    for world in range(3):
        mjm.geom_friction[:, 0], d = (0.2, 0.6, 1.0)[world], mujoco.MjData(mjm)
        mjm.geom_pos[1, 0] = (0.0, 0.01, -0.02)[world]
        mjm.geom_sameframe[:] = 0
        d.qvel[0] = 1.0
        mujoco.mj_step(mjm, d)
        assert d.ncon == 4
        assert np.allclose(sim.qvel[world].cpu(), d.qvel, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("one", "two"), [("plate", "nut"), ("rock", "wedge"), ("tetrahedron", "disc"), ("capsule", "ellipsoid")]
)
def test_boxes_around_two_geoms_meet_wherever_those_are_near_and_seldom_elsewhere(one, two):
    bodies = "".join(f"<body><freejoint/>{geom(name)}</body>" for name in (one, two))
    mjm = model(bodies, one, two)
    m, d, rng, margin = load(mjm), mujoco.MjData(mjm), np.random.default_rng(0), 0.01
    boxes = boxes_around(m, (0, 1))
    counts = {(near, meet): 0 for near in (False, True) for meet in (False, True)}
    for _ in range(400):
        d.qpos[:] = rng.normal(0, [0.25, 0.25, 0.25, 1, 1, 1, 1] * 2)
        mujoco.mj_kinematics(mjm, d)
        placed = []
        for g in (0, 1):
            mat = d.geom_xmat[g]
            middle = d.geom_xpos[g] + mat.reshape(3, 3) @ boxes[g].middle
            placed.append((middle.tolist(), mat.tolist(), list(boxes[g].half)))
        near = mujoco.mj_geomDistance(mjm, d, 0, 1, 10.0, None) < margin
        counts[near, boxes_meet(*placed, margin)] += 1
    assert not counts[True, False] and counts[True, True] > 30 and counts[False, False] > 2 * counts[False, True] > 0


@pytest.mark.parametrize(
    "pair",
    [("rock", "boulder"), ("link", "box"), ("cylinder", "link"), ("ellipsoid", "box"), ("capsule", "brick")],
    ids="-".join,
)
def test_what_a_direction_keeps_apart_does_not_touch_and_most_that_is_apart_is_kept_so(pair):
    mjm = two(*pair)
    m, d, rng, margin = load(mjm), mujoco.MjData(mjm), np.random.default_rng(0), 0.01
    (p,) = m.pairs
    collider, solids = collider_of(m, p), solids_of(m.meshes)
    counts = {(near, meet): 0 for near in (False, True) for meet in (False, True)}
    for _ in range(400):
        d.qpos[:] = rng.normal(0, [0.25, 0.25, 0.25, 1, 1, 1, 1] * 2)
        mujoco.mj_kinematics(mjm, d)
        geoms = [
            SimpleNamespace(
                centre=d.geom_xpos[g].tolist(), mat=d.geom_xmat[g].tolist(), size=size_of(m, g, collider),
                solids=solids, epsilon=2**-52, margin=margin,
            )
            for g in (p.geom1, p.geom2)
        ]  # fmt: skip
        near = mujoco.mj_geomDistance(mjm, d, p.geom1, p.geom2, 10.0, None) < margin
        counts[near, hulls_meet(*geoms)] += 1
    assert not counts[True, False] and counts[True, True] > 30 and counts[False, False] > 8 * counts[False, True] > 0

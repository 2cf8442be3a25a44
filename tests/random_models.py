"""Random models beside MuJoCo C: what is compared, by what bound, and how a failure becomes small.

    python tests/random_models.py --seed 7           # one model, shrunk if it fails
    python tests/random_models.py --seed 0 --count 1000

An error counts if it is more than `times` times as far as MuJoCo's own answer moves when the state is moved by `nudge`,
and the forces by a `rounding` of the largest constraint force and of the terms of M qacc, plus `floor` of the largest
entry. So where MuJoCo's answer is well conditioned, the bound is rounding; where it is not (a contact about to open, an
inertia next to singular, contacts that press a joint from two sides), no more is asked than can be known.

In float32, worlds in which a contact, or what ties two bodies, is `stiff` are left to test_stiff_contacts.py and
tests/physics/test_welds.py: there it is softened, or may be.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import functools
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence

import mujoco
import numpy as np
import oracle
import random_mjcf
import torch
from random_mjcf import Case, World

from torch_mjenvs.physics import load
from torch_mjenvs.physics.constraints.idle import can_be_listed
from torch_mjenvs.physics.simulation import INPUTS, Simulation
from torch_mjenvs.physics.simulation_kernels import OUTPUTS

OUTPUT_NAMES = tuple(name for name in OUTPUTS if name not in ("cacc", "cfrc_int"))  # test_sensors.py compares these
STEPS = (1, 10)
NUDGES = 3
FASTEST = 10.0  # radians or metres per step: anything faster is no simulation any more
PLANE, HFIELD, SPHERE, CAPSULE, ELLIPSOID, CYLINDER, BOX, MESH = range(8)  # mjtGeom
# How far shapes may be turned such that MuJoCo's search would hardly notice (radians). It is a 300th part of what its
# answer is off: of the normal, which it finds to 2e-5 of a capsule on a cylinder (test_round_and_flat_contacts.py), and
# of the point, along an ellipsoid or a rim. Of boxes and meshes the point is off by 5e-10 m if there is a margin, and
# by 3e-9 m on a height field: a corner in the ground, whose place is known to rounding, tells by how much.
TURNED = {ELLIPSOID: 1e-8, CYLINDER: 1e-8, BOX: 1e-10, MESH: 1e-10}
CUTTING = 7e-8
MEASURES = mujoco.mjtSensor.mjSENS_GEOMDIST, mujoco.mjtSensor.mjSENS_GEOMNORMAL, mujoco.mjtSensor.mjSENS_GEOMFROMTO
UNBOUNDED = np.inf
FIRST_LED = len(random_mjcf.STATE) + random_mjcf.INPUTS.index("mocap_pos")  # poses are from here on
UNUSED = {"crb": 1}  # its first row is the world's


@dataclasses.dataclass(frozen=True)
class Precision:
    """The bounds of errors in a precision: see the top."""

    times: float
    nudge: float
    rounding: float
    floor: float
    # The most that rows of a contact or tie may add to the inertia that they act on, relative to it.
    stiff: float = np.inf


PRECISIONS = {
    torch.float64: Precision(times=300, nudge=1e-14, rounding=1e-16, floor=3e-12),
    torch.float32: Precision(times=1000, nudge=1e-7, rounding=6e-8, floor=1e-5, stiff=1e3),
}


@dataclasses.dataclass(frozen=True)
class Failure:
    """What is wrong: an output of a world after so many steps, or an exception."""

    what: str
    steps: int = 0
    world: int = 0
    error: float = 0.0
    bound: float = 0.0
    part: str = ""

    def __str__(self) -> str:
        where = f"{self.part} of world {self.world} after {self.steps} steps: "
        return self.what + (f"{where}error {self.error:.2e}, bound {self.bound:.2e}" if self.steps else "")


@dataclasses.dataclass
class Answer:
    """MuJoCo's fields after some steps, and how far they move."""

    fields: dict[str, np.ndarray]
    moved: dict[str, np.ndarray]  # of each of a field's `parts`


def silence(_: object) -> None:
    """Ignore a warning of MuJoCo's: they are counted in mjData."""


@functools.lru_cache(maxsize=3)
def _room(mjm: mujoco.MjModel) -> mujoco.MjData:
    """Return MjData of this model, to be used again: making one takes a hundred times as long as resetting it."""
    return mujoco.MjData(mjm)


def _data(mjm: mujoco.MjModel, state: tuple) -> mujoco.MjData:
    """MuJoCo's data in this state, until the next call for this model."""
    d = _room(mjm)
    mujoco.mj_resetData(mjm, d)
    random_mjcf.put(d, state)
    return d


def expected(
    mjm: mujoco.MjModel, state: tuple, steps: int, names: tuple[str, ...], precision: Precision, origins: Sequence[int]
) -> Answer | None:
    """MuJoCo's answer; None where it gave up (a singular matrix, a state that blew up). origins: `body_originid`."""
    d = advance(mjm, state, steps)
    if d is None or _rubs_without_stretching(mjm, d):
        return None
    if _touches_itself(mjm, d):
        names = tuple(name for name in names if name != "ncon")
    fields = _fields(mjm, d, names)
    pieces = {name: parts(mjm, name, x) for name, x in fields.items()}
    force = precision.rounding * (np.max(np.abs(d.efc_force), initial=0.0) + _inertial_terms(mjm, d, origins))
    rounded = _of_rounding(mjm, d, precision)
    moved = {name: rounded.get(name, 0.0) * largest(fields[name], pieces[name]) for name in fields}
    del d  # what follows uses the same room
    if precision.stiff < np.inf and stiffest(mjm, state, steps) > precision.stiff:
        return None
    rng, unknown = np.random.default_rng(steps), unsure_shapes(mjm, state, steps)
    if unknown is None or _many_faces_look(mjm, state, steps):
        return None
    for _ in range(NUDGES):
        nudged = with_shapes_moved(blunt(mjm), unknown, rng) if unknown else blunt(mjm)
        near = list(state)
        for k, x in enumerate(state):
            if k < 2 or k >= FIRST_LED:
                near[k] = x + precision.nudge * np.maximum(1, np.abs(x)) * rng.choice([-1, 1], x.shape)
        d = advance(nudged, tuple(near), steps, force * rng.choice([-1, 1], mjm.nv))
        if d is None:
            return None
        for name, x in _fields(mjm, d, names).items():
            moved[name] = np.maximum(moved[name], largest(fields[name] - x, pieces[name]))
    return Answer(fields, moved)


def parts(mjm: mujoco.MjModel, name: str, x: np.ndarray) -> list[slice]:
    """Return the parts of a field that are compared with bounds of their own: sensors each, all else as a whole."""
    if name != "sensordata" or not mjm.nsensor:
        return [slice(UNUSED.get(name, 0), None)]
    return [slice(at, at + n) for at, n in zip(mjm.sensor_adr.tolist(), mjm.sensor_dim.tolist(), strict=True)]


def largest(x: np.ndarray, pieces: list[slice]) -> np.ndarray:
    """Return the largest entry of each part, without its sign."""
    return np.array([np.max(np.abs(np.atleast_1d(x)[piece]), initial=0.0) for piece in pieces])


def _rubs_without_stretching(mjm: mujoco.MjModel, d: mujoco.MjData) -> bool:
    """Return whether there is a tendon with friction loss or a limit that nothing stretches in this state, such as one
    between sites that nothing moves apart. Rounding decides on which side it pulls, and whether MuJoCo has a row for
    its limit.
    """
    kinds = mujoco.mjtConstraint.mjCNSTR_FRICTION_TENDON, mujoco.mjtConstraint.mjCNSTR_LIMIT_TENDON
    rows = np.flatnonzero(np.isin(d.efc_type, kinds))
    return bool(rows.size and np.min(np.max(np.abs(jacobian(mjm, d)[rows]), axis=1)) < 1e-12)


def _touches_itself(mjm: mujoco.MjModel, d: mujoco.MjData) -> bool:
    """Return whether two geoms touch that nothing moves apart, as a `<pair>` may ask of one body's. If they are square
    to each other, rounding decides how many points they have: in MuJoCo, of a capsule along a box, two, three or four.
    """
    bodies = mjm.body_weldid[mjm.geom_bodyid[d.contact.geom]]
    return bool(d.ncon and np.any(bodies[:, 0] == bodies[:, 1]))


def _many_faces_look(mjm: mujoco.MjModel, state: tuple, steps: int) -> bool:
    """Return whether a mesh touches a box or a mesh, in any step, and several pairs of their faces face each other:
    from which pair the points are taken then depends on where the search ended. Or whether of more than four corners
    four were taken, one of them twice: rounding decides which (docs/limits.md).
    """
    if not {CYLINDER, MESH} & set(mjm.geom_type.tolist()):
        return False
    d = _data(mjm, state)
    for _ in range(steps):
        mujoco.mj_step(mjm, d)
        for pair in {tuple(c.geom.tolist()) for c in d.contact}:
            points = [tuple(c.pos) for c in d.contact if tuple(c.geom) == pair]
            if len(points) == 4 and len(set(points)) < 4 and {*mjm.geom_type[list(pair)]} <= {CYLINDER, BOX, MESH}:
                return True
            if sorted(mjm.geom_type[list(pair)]) in ([BOX, MESH], [MESH, MESH]):
                normal = next(c.frame[:3] for c in d.contact if tuple(c.geom) == pair)
                one, two = (_faces(mjm, d, g) for g in pair)
                one, two = one[one @ normal > 0.98], two[two @ normal < -0.98]
                if np.sum(one @ two.T < -0.996) > 1:  # mjFACE_TOL
                    return True
    return False


def _faces(mjm: mujoco.MjModel, d: mujoco.MjData, geom: int) -> np.ndarray:
    """Return the normals of the faces of a box or mesh."""
    normals = np.concatenate([np.eye(3), -np.eye(3)])
    k = mjm.geom_dataid[geom]
    if k >= 0:
        start = mjm.mesh_polyadr[k]
        normals = mjm.mesh_polynormal[start : start + mjm.mesh_polynum[k]]
    return normals @ d.geom_xmat[geom].reshape(3, 3).T


def sharpen(mjm: mujoco.MjModel) -> mujoco.MjModel:
    """Return a copy that solves its constraints to rounding, and finds contacts of capsules and cylinders almost as
    well. At a tolerance of 1e-14 m a capsule deep in a mesh may be off by 1e-8 m, which no nudge of the state shows,
    and at 0 a search between a capsule and a cylinder may not end.
    """
    mjm = oracle.sharpen(copy.copy(mjm))
    mjm.opt.ccd_tolerance, mjm.opt.ccd_iterations = 1e-15, 500
    return mjm


@functools.lru_cache(maxsize=1)
def blunt(mjm: mujoco.MjModel) -> mujoco.MjModel:
    """Return a copy that searches for contacts less far. By how much its answer differs shows what MuJoCo knows of
    contacts of round shapes: at a tolerance of 1e-15 m the normals of ellipsoids and of cylinders' rims to 1e-7, and
    those of deep ones to what the iterations allow.
    """
    mjm = copy.copy(mjm)
    mjm.opt.ccd_tolerance, mjm.opt.ccd_iterations = 1e-14, 200
    return mjm


def unsure_shapes(mjm: mujoco.MjModel, state: tuple, steps: int) -> dict[int, tuple[float, float]] | None:
    """Return by how much geoms may be longer, and turned, as far as MuJoCo's own answer can tell, in any of the steps.
    None if the axis of a capsule cuts into a cylinder, since MuJoCo then finds the way out only to 3 mm, or if the axis
    of a capsule or the centre of a sphere is in the ground of a height field, where it finds it to 1e-8 m.

    MuJoCo finds the lowest point of a cylinder's disc on a plane by subtracting from the axis its part along the
    normal. If the cylinder is almost upright, little more than rounding is left. (No nudge of a planar model's state
    shows this.) How far its searches may be off is in `TURNED`.
    """
    found = dict[int, tuple[float, float]]()
    measured = np.isin(mjm.sensor_type, MEASURES)
    if not {*TURNED, HFIELD} & set(mjm.geom_type.tolist()):
        return found

    def turn(one: int, two: int, margin: float = UNBOUNDED) -> None:
        """Note what the search for a contact of two geoms leaves open, or for their distance."""
        kinds = int(mjm.geom_type[one]), int(mjm.geom_type[two])
        on_plane = kinds[0] == PLANE and (margin < UNBOUNDED or kinds[1] not in (BOX, MESH))  # an edge may lie along it
        if on_plane or kinds == (SPHERE, CYLINDER) or (not margin and {*kinds} <= {BOX, MESH}):
            return
        for geom, kind in zip((one, two), kinds, strict=True):
            by = CUTTING if kinds == (CAPSULE, CYLINDER) else TURNED.get(kind, 0.0)
            longer, turned = found.get(geom, (0.0, 0.0))
            found[geom] = longer, max(turned, by)

    for one, two in zip(mjm.sensor_objid[measured].tolist(), mjm.sensor_refid[measured].tolist(), strict=True):
        turn(*sorted((one, two), key=lambda geom: mjm.geom_type[geom]))
    d = _data(mjm, state)
    for _ in range(steps):
        mujoco.mj_fwdPosition(mjm, d)
        for contact in d.contact:
            one, two = contact.geom.tolist()
            kinds = int(mjm.geom_type[one]), int(mjm.geom_type[two])
            deep = contact.dist < 1e-6 - mjm.geom_size[two if kinds[0] == HFIELD else one, 0]
            if deep and (kinds == (CAPSULE, CYLINDER) or (kinds[0] == HFIELD and kinds[1] in (SPHERE, CAPSULE))):
                return None
            turn(one, two, contact.includemargin)
            if kinds == (PLANE, CYLINDER):
                normal, axis = (d.geom_xmat[g].reshape(3, 3)[:, 2] for g in (one, two))
                sine = float(np.linalg.norm(np.cross(normal, axis)))
                if sine > mujoco.mjMINVAL:
                    longer, turned = found.get(two, (0.0, 0.0))
                    found[two] = max(longer, float(mjm.geom_size[two, 0]) * 1e-16 / sine), turned
        mujoco.mj_step(mjm, d)
    return found


def with_shapes_moved(
    mjm: mujoco.MjModel, moves: dict[int, tuple[float, float]], rng: np.random.Generator
) -> mujoco.MjModel:
    """Return a copy in which shapes are longer and turned by so much."""
    mjm = copy.copy(mjm)
    for geom, (longer, turned) in moves.items():
        mjm.geom_size[geom, 1] += longer * rng.choice([-1, 1])
        if turned:
            mjm.geom_sameframe[geom] = 0
            by, axis = np.zeros(4), rng.normal(size=3)
            mujoco.mju_axisAngle2Quat(by, axis / np.linalg.norm(axis), turned)
            quat = mjm.geom_quat[geom].copy()
            mujoco.mju_mulQuat(mjm.geom_quat[geom], quat, by)
    return mjm


def _inertial_terms(mjm: mujoco.MjModel, d: mujoco.MjData, origins: Sequence[int]) -> np.ndarray:
    """The sum of the sizes of the terms of M qacc, where M is summed about the origin of each tree."""
    sizes, arm = np.zeros((mjm.nv, mjm.nv)), np.zeros(3)
    for b in range(1, mjm.nbody):
        o = d.xpos[origins[b]]
        mat, r = d.ximat[b].reshape(3, 3), d.xipos[b] - o
        cross = np.array([[0.0, -r[2], r[1]], [r[2], 0.0, -r[0]], [-r[1], r[0], 0.0]])
        inertia = np.zeros((6, 6))
        inertia[:3, :3] = mat @ np.diag(mjm.body_inertia[b]) @ mat.T + mjm.body_mass[b] * cross @ cross.T
        inertia[:3, 3:], inertia[3:, :3] = mjm.body_mass[b] * cross, mjm.body_mass[b] * cross.T
        inertia[3:, 3:] = mjm.body_mass[b] * np.eye(3)
        motions = np.zeros((6, mjm.nv))
        body = b
        while body and not mjm.body_dofnum[body]:
            body = mjm.body_parentid[body]
        v = mjm.body_dofadr[body] + mjm.body_dofnum[body] - 1 if body else -1
        while v >= 0:
            motions[:3, v] = d.cdof[v, :3]
            mujoco.mju_cross(arm, d.cdof[v, :3], o - d.subtree_com[mjm.body_rootid[b]])
            motions[3:, v] = d.cdof[v, 3:] + arm
            v = mjm.dof_parentid[v]
        sizes += np.abs(motions).T @ np.abs(inertia) @ np.abs(motions)
    return sizes @ np.abs(d.qacc)


def stiffest(mjm: mujoco.MjModel, state: tuple, steps: int) -> float:
    """Return the most that the rows of a contact, or a row of a connect or weld, add to the inertia that they act on,
    relative to it, in any of the steps.
    """
    d, most = _data(mjm, state), 0.0
    for _ in range(steps):
        mujoco.mj_step(mjm, d)
        for contact in d.contact:
            pyramid = mjm.opt.cone == mujoco.mjtCone.mjCONE_PYRAMIDAL and contact.dim > 1
            rows = range(contact.efc_address, contact.efc_address + (2 * (contact.dim - 1) if pyramid else contact.dim))
            if contact.efc_address >= 0:
                most = max(most, float(np.sum(_stiffness(mjm, d, rows))))
        ties = [row for row in range(d.ne) if mjm.eq_type[d.efc_id[row]] in (0, 1)]
        most = max(most, float(np.max(_stiffness(mjm, d, ties), initial=0.0)))
    return most


def _stiffness(mjm: mujoco.MjModel, d: mujoco.MjData, rows: Sequence[int]) -> np.ndarray:
    """Return D J M^-1 J' of each row."""
    J, image = jacobian(mjm, d)[rows], np.zeros((len(rows), mjm.nv))
    mujoco.mj_solveM(mjm, d, image, J)
    return d.efc_D[rows] * np.sum(J * image, axis=1)


def jacobian(mjm: mujoco.MjModel, d: mujoco.MjData) -> np.ndarray:
    """Return efc_J. MuJoCo reserves rows for contacts of bodies welded together, too, and then leaves them out."""
    return d.efc_J[: d.nefc * mjm.nv].reshape(d.nefc, mjm.nv)


def _of_rounding(mjm: mujoco.MjModel, d: mujoco.MjData, precision: Precision) -> dict[str, float]:
    """Return how far forces of constraints move, as a share of themselves, if the acceleration from which they follow
    is rounded: the stiffer a row, the further.
    """
    most, names = np.max(np.abs(d.efc_force), initial=0.0), ("qfrc_constraint", "cfrc_ext", "sensordata")
    if not most:
        return dict.fromkeys(names, 0.0)
    assert not mujoco.mj_isSparse(mjm)
    terms = np.abs(jacobian(mjm, d)) @ np.abs(d.qacc) + np.abs(d.efc_aref)
    return dict.fromkeys(names, float(precision.rounding * np.max(d.efc_D * terms) / most))


def _fields(mjm: mujoco.MjModel, d: mujoco.MjData, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    state = ("qpos", "qvel", "act") if mjm.na else ("qpos", "qvel")
    return {name: oracle.field(mjm, d, name).copy() for name in (*state, *names)}


def advance(mjm: mujoco.MjModel, state: tuple, steps: int, force: np.ndarray | float = 0.0) -> mujoco.MjData | None:
    """Make some steps from a state, with a force on each dof added; return the data, or None if that is no simulation
    any more. The data is the same object for every call with the same model.
    """
    d = _data(mjm, state)
    d.qfrc_applied[:] += force
    for _ in range(steps):
        before = d.qvel.copy()
        mujoco.mj_step(mjm, d)
        if d.warning.number.any() or abs(d.qvel).max(initial=0.0) * mjm.opt.timestep > FASTEST:
            return None
    after = d.qvel.copy()
    if mjm.opt.integrator != mujoco.mjtIntegrator.mjINT_RK4:
        d.qvel[:] = before  # armature of tendons pulls by these velocities: see docs/exactness.md
    mujoco.mj_rnePostConstraint(mjm, d)
    d.qvel[:] = after
    mujoco.mj_subtreeVel(mjm, d)
    return d


def failures(
    xml: str,
    worlds: list[World],
    names: tuple[str, ...] = OUTPUT_NAMES,
    steps: tuple[int, ...] = STEPS,
    dtype: torch.dtype = torch.float64,
) -> list[Failure]:
    """Everything that differs from MuJoCo, the worst first."""
    mjm = mujoco.MjModel.from_xml_string(xml)
    rounded = np.float32 if dtype == torch.float32 else np.float64
    states = [tuple(x.astype(rounded).astype(float) for x in random_mjcf.join(mjm, world)) for world in worlds]
    columns = [np.stack(x) for x in zip(*states, strict=True)]
    sharp = sharpen(mjm)
    try:
        m = load(mjm)
        if not all(can_be_listed(m, pair) for pair in m.idle_pairs):  # refused by name, which test_contact_pairs tests
            names = tuple(name for name in names if name != "ncon")
        given = [name for name in worlds[0].inputs if name in INPUTS and name not in m.switched_off]
        sim = Simulation(mjm, len(worlds), dtype=dtype, outputs=names, inputs=given)
    except Exception as error:  # UnsupportedModel, too: every drawn model is supported
        return [Failure(f"{type(error).__name__}: {error}")]
    names, found = tuple(name for name in names if name not in left_out(mjm)), []
    for n in steps:
        sim.reset()
        for name in sim.outputs:
            getattr(sim, name).fill_(float("nan"))
        for name, values in zip((*random_mjcf.STATE, *worlds[0].inputs), columns, strict=True):
            if values.size and name not in m.switched_off:
                getattr(sim, name).copy_(torch.tensor(values))
        sim.step(n)
        for world, state in enumerate(states):
            answer = expected(sharp, state, n, names, PRECISIONS[dtype], sim.model.body_originid)
            if answer is not None:
                found += _compare(mjm, sim, world, n, answer, PRECISIONS[dtype])
    return sorted(found, key=lambda f: -f.error / f.bound)


def left_out(mjm: mujoco.MjModel) -> set[str]:
    """The outputs that docs/limits.md says may differ."""
    yields, rk4 = mjm.nplastic > 0, mjm.opt.integrator == mujoco.mjtIntegrator.mjINT_RK4
    found = set()
    if np.any(mjm.tendon_plasticadr >= 0) or (yields and rk4):  # "Springs that yield"
        found.add("cfrc_ext")
    if yields and rk4 and mjm.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_SPRING:
        found.add("ten_length")
    if mjm.opt.noslip_iterations and mjm.opt.cone == mujoco.mjtCone.mjCONE_PYRAMIDAL and mjm.flg_surfacevel:
        found.add("cfrc_ext")  # "Noslip": friction along an axis in which nothing moves but a surface
    return found


def _sensor(mjm: mujoco.MjModel, name: str, k: int) -> str:
    return f"[{k}: {mujoco.mjtSensor(mjm.sensor_type[k]).name}]" if name == "sensordata" else ""


def _compare(
    mjm: mujoco.MjModel, sim: Simulation, world: int, steps: int, answer: Answer, precision: Precision
) -> Iterator[Failure]:
    for name, want in answer.fields.items():
        got = getattr(sim, name)[world].cpu().numpy().astype(np.float64)
        if got.shape != want.shape:
            yield Failure(f"{name} has the shape {got.shape}, not {want.shape}")
            continue
        pieces = parts(mjm, name, want)
        error, scale = largest(got - want, pieces), np.maximum(1.0, largest(want, pieces))
        bound = precision.times * answer.moved[name] + precision.floor * scale
        unknown = (bound > scale) & (precision.stiff < np.inf)  # nothing is left of float32's digits
        for k in np.flatnonzero(~((error <= bound) | unknown)).tolist():
            yield Failure(name, steps, world, float(error[k]), float(bound[k]), _sensor(mjm, name, k))


# shrinking


def shrink(
    case: Case, failure: Failure, seconds: float = 60.0, dtype: torch.dtype = torch.float64
) -> tuple[Case, Failure]:
    """Return the case without everything that the failure does not need, as far as the time allows."""
    names = (failure.what,) if failure.what in OUTPUT_NAMES else ()
    until = time.monotonic() + seconds
    worlds = [case.worlds[failure.world]] if failure.steps else case.worlds[:1]
    steps = (failure.steps,) if failure.steps else STEPS
    small = Case(case.root, worlds, case.drawn)

    def fails(root: ET.Element, worlds: list[World]) -> Failure | None:
        try:
            found = failures(ET.tostring(root, encoding="unicode"), worlds, names, steps, dtype)
        except (ValueError, KeyError, mujoco.FatalError):  # what is left is no model
            return None
        alike = [f for f in found if bool(f.steps) == bool(failure.steps) and f.what == failure.what]
        return alike[0] if alike else None

    failure = fails(small.root, small.worlds) or failure
    at, tried = 0, 0  # the place in the list of things to leave out, and how many in a row were needed
    while time.monotonic() < until:
        smaller = list(_smaller(small))
        if tried >= len(smaller):
            break
        at %= len(smaller)
        root, worlds = smaller[at]
        still = fails(root, worlds)
        if still:
            small, failure, tried = Case(root, worlds, small.drawn), still, 0
        else:
            at, tried = at + 1, tried + 1
    return small, failure


def _smaller(case: Case) -> Iterator[tuple[ET.Element, list[World]]]:
    """Yield the case with one thing less, the largest things first."""
    elements = list(case.root.iter())
    for i, e in enumerate(elements):
        if i and e.tag not in ("worldbody", "compiler"):
            root = copy.deepcopy(case.root)
            victim = list(root.iter())[i]
            parent = next(p for p in root.iter() if victim in list(p))
            parent.remove(victim)
            yield root, case.worlds
            if e.tag == "body" and len(e):  # its children may stay
                root = copy.deepcopy(case.root)
                victim = list(root.iter())[i]
                parent = next(p for p in root.iter() if victim in list(p))
                inner = victim.findall("body")
                if inner:
                    at = list(parent).index(victim)
                    parent.remove(victim)
                    for child in reversed(inner):
                        parent.insert(at, child)
                    yield root, case.worlds
    for i, e in enumerate(elements):
        for key in e.attrib:
            if not (key == "name" and e.tag in ("joint", "freejoint", "motor", "general", "site")) and key != "angle":
                root = copy.deepcopy(case.root)
                del list(root.iter())[i].attrib[key]
                yield root, case.worlds
    yield from ((case.root, worlds) for worlds in _plainer(case.worlds))


def _plainer(worlds: list[World]) -> Iterator[list[World]]:
    """The states with fewer numbers in them."""
    if len(worlds) != 1:
        return
    (world,) = worlds
    for name, values in world.joints.items():
        for k in (1, 2):
            if values[k].any():
                plain = list(values)
                plain[k] = np.zeros_like(values[k])
                yield [dataclasses.replace(world, joints={**world.joints, name: (plain[0], plain[1], plain[2])})]
    for what in ("ctrl", "act"):
        for name, value in getattr(world, what).items():
            if value:
                yield [dataclasses.replace(world, **{what: {**getattr(world, what), name: 0.0}})]


def report(seed: int, case: Case, failure: Failure) -> str:
    """All that is needed to see the failure again."""
    mjm = mujoco.MjModel.from_xml_string(case.xml)
    lines = [f"model {seed}: {failure}", f"again: python tests/random_models.py --seed {seed}", case.xml]
    for world in case.worlds:
        for name, x in zip(random_mjcf.STATE, random_mjcf.join(mjm, world), strict=True):
            lines.append(f"{name} = {x.tolist()}")
    return "\n".join(lines)


def check(seed: int, dtype: torch.dtype = torch.float64, seconds: float = 60.0) -> str:
    """A report of what is wrong with model `seed`, shrunk; empty where nothing is. In float32 of the state alone."""
    softened = random_mjcf.SOFTENED | ({"small friction"} if dtype == torch.float32 else set())
    case = random_mjcf.case(seed, without=softened)
    found = failures(case.xml, case.worlds, OUTPUT_NAMES if dtype == torch.float64 else (), dtype=dtype)
    if not found:
        return ""
    return report(seed, *shrink(case, found[0], seconds, dtype))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="the first model")
    parser.add_argument("--count", type=int, default=1, help="how many")
    parser.add_argument("--seconds", type=float, default=60.0, help="to shrink one for")
    parser.add_argument("--dtype", choices=("float64", "float32"), default="float64")
    parser.add_argument("--show", action="store_true", help="print the models")
    args = parser.parse_args()
    bad = 0
    for seed in range(args.seed, args.seed + args.count):
        if args.show:
            print(random_mjcf.case(seed).xml)
        wrong = check(seed, getattr(torch, args.dtype), args.seconds)
        bad += bool(wrong)
        if wrong:
            print(wrong, flush=True)
    print(f"{args.count - bad} of {args.count} models agree with MuJoCo {mujoco.__version__}")
    raise SystemExit(bad > 0)


if __name__ == "__main__":
    mujoco.set_mju_user_warning(silence)
    torch.set_num_threads(1)
    main()

"""Sensors: mj_sensorPos, mj_sensorVel, mj_sensorAcc. A function for each type, in the table at the end.

Sensors of types that are not in the table are refused by name, when they are read.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable

from ...compiler.scalar import Scalar, absolute, clip, logical_and, minimum, select
from ..algebra.sparse import row_times
from ..algebra.spatial import (
    MINVAL,
    add,
    add_scaled,
    choose,
    column,
    cross,
    norm,
    quat_conjugate,
    quat_mul,
    quat_normalize,
    scale,
    sub,
    zeros,
)
from ..collision.distance import Segment
from ..constraints.limits import Limit
from ..constraints.listed import Listed
from ..dynamics.actuators.driven import OF_TENDONS, drivers
from ..dynamics.energy import kinetic, potential
from ..dynamics.history import history_of, samples_of
from ..model.data import Data, stage
from ..model.enums import DataType, GeomType, ObjType, SensorType, TrnType
from ..model.model import Model, Pair
from .contact_sensor import contact_data
from .objects import acceleration, camera, measured, not_there, reference, seen_by, velocity
from .ray import INSIDE, RAYS, inside, ray, ray_geom, why_not_met
from .ray_hfield import MISS
from .sensor_data import SensorData

Measure = Callable[[Model, Data, int], list[Scalar]]  # gives the numbers of sensor i

RAY_FIELDS = ("DIST", "DIR", "ORIGIN", "POINT", "NORMAL", "DEPTH")  # mjtRayDataField


@stage(
    reads="time qpos qvel plastic history origin frame odof M xpos xrel xquat xmat xipos xirel ximat geom_xpos "
    "geom_xrel geom_xmat site_xpos site_xrel site_xmat comrel subtree_com ten_length ten_velocity ovel subtree_linvel "
    "subtree_angmom actuator_length actuator_velocity actuator_force qfrc_actuator candidates constraints qacc_solver "
    "shortest slips oacc cfrc_int",
    computes="sensordata",
)
def sensor(m: Model, d: Data) -> None:
    """Compute d.sensordata, whose sensors are computed when they are read."""
    fresh = functools.cache(lambda i: _measure(m, d, i))

    def given(i: int) -> list[Scalar]:
        kept, now = samples_of(m, "sensor", i), fresh(i)
        if kept is None:
            return now
        history = history_of(m, d)
        earlier = kept.read(history)
        return earlier if kept.delay else choose(kept.due(history), now, earlier)

    d.sensordata = SensorData(m, functools.cache(given), fresh)


def _measure(m: Model, d: Data, i: int) -> list[Scalar]:
    """Compute what sensor i measures now. Raises `UnsupportedModel` for a sensor that is not supported."""
    kind = m.sensor_type[i]
    if kind not in SENSORS:
        raise not_there(m, i)
    if m.sensor_delay[i] and m.integrator == "rk4":
        raise not_there(m, i, " with a delay under integrator 'RK4'", "use another integrator")
    if 0 < m.sensor_interval[i][0] < m.timestep * (1 - 1e-9):
        raise not_there(m, i, " with an interval shorter than a time step", "leave the interval out")
    with d.where_made():
        values = SENSORS[kind](m, d, i)
    assert len(values) == m.sensor_dim[i], m.sensor_names[i]
    return _cut_off(values, kind, m.sensor_cutoff[i], m.sensor_datatype[i])


def _cut_off(values: list[Scalar], kind: int, cutoff: float, datatype: int) -> list[Scalar]:
    """Clip what a sensor measures to its cutoff. apply_cutoff."""
    if kind in (SensorType.CONTACT, SensorType.GEOMFROMTO):
        return values
    if cutoff > 0 and datatype == DataType.REAL:
        return [clip(x, -cutoff, cutoff) for x in values]
    return [minimum(cutoff, x) for x in values] if cutoff > 0 and datatype == DataType.POSITIVE else values


def _number_of(field: str, address: str = "") -> Measure:
    """Make a sensor of its object's number in a field of `Data`, which is at m.ADDRESS[object] if that is named."""

    def number(m: Model, d: Data, i: int) -> list[Scalar]:
        k = m.sensor_objid[i]
        return [getattr(d, field)[getattr(m, address)[k] if address else k]]

    return number


def _vector_of(field: str) -> Measure:
    """Make a sensor of its object's vector in a field of `Data`."""
    return lambda m, d, i: list(getattr(d, field)[m.sensor_objid[i]])


# positions


def _ball_quat(m: Model, d: Data, i: int) -> list[Scalar]:
    adr = m.jnt_qposadr[m.sensor_objid[i]]
    return quat_normalize(d.qpos[adr : adr + 4])


def _frame_pos(m: Model, d: Data, i: int) -> list[Scalar]:
    x, ref = measured(m, d, i), reference(m, d, i)
    return seen_by(ref.mat, sub(x.pos, ref.pos)) if ref else list(x.pos)


def _frame_axis(k: int) -> Measure:
    def axis(m: Model, d: Data, i: int) -> list[Scalar]:
        x, ref = column(measured(m, d, i).mat, k), reference(m, d, i)
        return seen_by(ref.mat, x) if ref else x

    return axis


def _frame_quat(m: Model, d: Data, i: int) -> list[Scalar]:
    x, ref = measured(m, d, i).quat(), reference(m, d, i)
    return quat_mul(quat_conjugate(ref.quat()), x) if ref else x


def _camera_projection(m: Model, d: Data, i: int) -> list[Scalar]:
    """Return the place of a site in a camera's picture, in pixels from the upper left. cam_project."""
    c = m.sensor_refid[i]
    eye = camera(m, d, i, c)
    right, up, back = seen_by(eye.mat, sub(measured(m, d, i).pos, eye.pos))
    depth = select(absolute(back) < MINVAL, select(back < 0.0, -MINVAL, MINVAL), back)
    (across, down), (width, height) = m.cam_focal[c], m.cam_resolution[c]
    return [0.5 * width - across * right / depth, 0.5 * height + down * up / depth]


def _magnetometer(m: Model, d: Data, i: int) -> list[Scalar]:
    return seen_by(measured(m, d, i).mat, m.magnetic)


def _inside_site(m: Model, d: Data, i: int) -> list[Scalar]:
    """Return 1 where the object is in the site's volume, else 0.

    A body without mass counts as being at the centre of mass of what it carries.
    """
    s, k = m.sensor_refid[i], m.sensor_objid[i]
    if m.sensor_dataspec[i]:
        raise not_there(m, i, " that asks whether all of it is enclosed")
    if m.site_type[s] not in INSIDE:
        raise not_there(m, i, " of a mesh")
    pos = measured(m, d, i).pos
    if m.sensor_objtype[i] == ObjType.BODY and k > 0:
        carries = logical_and(m.body_mass[k] < MINVAL, m.body_subtreemass[k] >= MINVAL)
        pos = choose(carries, d.subtree_com[k], pos)
    return [select(inside(m.site_type[s], m.site_size[s], d.site_xpos[s], d.site_xmat[s], pos), 1.0, 0.0)]


def _potential(m: Model, d: Data, i: int) -> list[Scalar]:
    return [potential(m, d)]


def _kinetic(m: Model, d: Data, i: int) -> list[Scalar]:
    """Return the kinetic energy; refuse it under the flag energy, where MuJoCo gives what it kept a step before."""
    if m.keeps_energy:
        raise not_there(m, i, " under the option flag energy, with which MuJoCo gives that of the step before,")
    return [kinetic(m, d)]


def _clock(m: Model, d: Data, i: int) -> list[Scalar]:
    if d.time is None:
        raise not_there(m, i, " of an environment")
    return [d.time]


def _rangefinder(m: Model, d: Data, i: int) -> list[Scalar]:
    """Return what a rangefinder gives, such as the distance along the site's z axis to a geom of another body.

    The distance is -1 where there is none. mj_ray, fill_raydata.
    """
    asked = [name for k, name in enumerate(RAY_FIELDS) if m.sensor_dataspec[i] >> k & 1]
    if m.sensor_objtype[i] != ObjType.SITE or "NORMAL" in asked:
        raise not_there(m, i, " of a camera" if m.sensor_objtype[i] != ObjType.SITE else " that gives a normal")
    x = measured(m, d, i)
    nearest: Scalar = MISS
    for g in range(m.ngeom):
        if m.geom_visible[g] and m.geom_bodyid[g] != x.body:
            if why := why_not_met(m, g):
                raise not_there(m, i, f" that may meet geom {m.geom_names[g]!r}{why}")
            nearest = minimum(nearest, ray_geom(m, d, g, x.pos, column(x.mat, 2)))
    hit, way = nearest < MISS, column(x.mat, 2)
    distance = select(hit, nearest, -1.0)
    found = {
        "DIST": [distance],
        "DIR": choose(hit, way, zeros(3)),
        "ORIGIN": list(x.pos),
        "POINT": choose(hit, add_scaled(x.pos, way, nearest), zeros(3)),
        "DEPTH": [distance],
    }
    return [value for name in asked for value in found[name]]


def _segment(m: Model, d: Data, i: int) -> Segment:
    """Return where the two geoms of sensor i are nearest, or the nearest two of its bodies' geoms."""
    objects = (m.sensor_objtype[i], m.sensor_objid[i]), (m.sensor_reftype[i], m.sensor_refid[i])
    firsts, seconds = (
        [k] if kind == ObjType.GEOM else [g for g in range(m.ngeom) if m.geom_bodyid[g] == k] for kind, k in objects
    )
    pairs = tuple(itertools.product(firsts, seconds))
    if any(m.geom_type[g] == GeomType.HFIELD for pair in pairs for g in pair):
        raise not_there(m, i, " to a height field")
    found: Segment = d.shortest(pairs, m.sensor_cutoff[i])
    return found


def _geom_dist(m: Model, d: Data, i: int) -> list[Scalar]:
    return [_segment(m, d, i).dist]


def _geom_normal(m: Model, d: Data, i: int) -> list[Scalar]:
    """Return the direction from the point on the first geom to that on the second; 0 where there is none."""
    found = _segment(m, d, i)
    way = sub(found.end, found.start)
    length = norm(way)
    return scale(way, 1.0 / select(length > 0.0, length, 1.0))


def _geom_fromto(m: Model, d: Data, i: int) -> list[Scalar]:
    found = _segment(m, d, i)
    return [*found.start, *found.end]


# velocities


def _ball_angvel(m: Model, d: Data, i: int) -> list[Scalar]:
    v = m.jnt_dofadr[m.sensor_objid[i]]
    return list(d.qvel[v : v + 3])


def _velocimeter(m: Model, d: Data, i: int) -> list[Scalar]:
    x = measured(m, d, i)
    return seen_by(x.mat, velocity(d, x)[1])


def _gyro(m: Model, d: Data, i: int) -> list[Scalar]:
    x = measured(m, d, i)
    return seen_by(x.mat, velocity(d, x)[0])


def _frame_linvel(m: Model, d: Data, i: int) -> list[Scalar]:
    """Return the linear velocity of an object, seen from its reference: what rests in a frame that turns has none."""
    x, ref = measured(m, d, i), reference(m, d, i)
    moving = velocity(d, x)[1]
    if ref is None:
        return moving
    turning, of_ref = velocity(d, ref)
    return seen_by(ref.mat, add(sub(moving, of_ref), cross(sub(x.pos, ref.pos), turning)))


def _frame_angvel(m: Model, d: Data, i: int) -> list[Scalar]:
    turning, ref = velocity(d, measured(m, d, i))[0], reference(m, d, i)
    return seen_by(ref.mat, sub(turning, velocity(d, ref)[0])) if ref else turning


# accelerations and forces


def _accelerometer(m: Model, d: Data, i: int) -> list[Scalar]:
    x = measured(m, d, i)
    return seen_by(x.mat, acceleration(d, x)[1])


def _frame_linacc(m: Model, d: Data, i: int) -> list[Scalar]:
    return acceleration(d, measured(m, d, i))[1]


def _frame_angacc(m: Model, d: Data, i: int) -> list[Scalar]:
    return acceleration(d, measured(m, d, i))[0]


def _force(m: Model, d: Data, i: int) -> list[Scalar]:
    x = measured(m, d, i)
    return seen_by(x.mat, d.cfrc_int[x.body][3:])


def _torque(m: Model, d: Data, i: int) -> list[Scalar]:
    """Return the torque about the site between its body and the parent, in the site's axes."""
    x = measured(m, d, i)
    torque, force = d.cfrc_int[x.body][:3], d.cfrc_int[x.body][3:]
    arm = sub(x.rel, d.comrel[m.body_originid[x.body]])
    return seen_by(x.mat, sub(torque, cross(arm, force)))


def _tendon_actuator_frc(m: Model, d: Data, i: int) -> list[Scalar]:
    """Return the force of all actuators on the tendon together."""
    total: Scalar = 0.0
    for k in drivers(m, OF_TENDONS, m.sensor_objid[i]):
        total = total + d.actuator_force[k]
    return [total]


def _touch(m: Model, d: Data, i: int) -> list[Scalar]:
    """Return the sum of the normal forces of the body's contacts in the site, or whose line of force enters it."""
    s = m.sensor_objid[i]
    body, zone = m.site_bodyid[s], (m.site_size[s], d.site_xrel[s], d.site_xmat[s])
    if m.site_type[s] not in RAYS:
        raise not_there(m, i, " of a mesh")

    def side(pair: Pair) -> int:
        """Return 1 where the body is the first of a pair, which the normal points away from; -1 the second; else 0."""
        return {m.geom_bodyid[pair.geom2]: -1, m.geom_bodyid[pair.geom1]: 1}.get(body, 0)

    def feel(c: Listed, total: list[Scalar]) -> list[Scalar]:
        way, force = c.of_pair(side), c.force[0]
        felt = ray(m.site_type[s], *zone, choose(way > 0.0, *c.points), scale(c.frame[0], way)) < MISS
        return [total[0] + select(logical_and(force > 0.0, felt), force, 0.0)]

    total: list[Scalar] = [0.0]
    for c in d.constraints:
        total = c.fold_listed(m, d, d.qacc_solver, lambda pair: side(pair) != 0, {}, feel, total)
    return total


# limits: if both ends act, the lower one counts


def _limit(kind: int, of_row: Callable[[Data, Limit], Scalar]) -> Measure:
    """Make a sensor of a limit: it gives what `of_row` returns for the row of the end that acts; 0 where none acts."""

    def value(m: Model, d: Data, i: int) -> list[Scalar]:
        out: Scalar = 0.0
        for c in reversed(d.constraints):
            if isinstance(c, Limit) and c.of == (kind, m.sensor_objid[i]):
                out = select(c.distance < 0.0, of_row(d, c), out)
        return [out]

    return value


def _limit_pos(d: Data, row: Limit) -> Scalar:
    return row.distance


def _limit_vel(d: Data, row: Limit) -> Scalar:
    return row.sign * row_times(row.jacobian, d.qvel)


def _limit_frc(d: Data, row: Limit) -> Scalar:
    return row.force(d.qacc_solver)


SENSORS: dict[int, Measure] = {
    SensorType.JOINTPOS: _number_of("qpos", "jnt_qposadr"),
    SensorType.BALLQUAT: _ball_quat,
    SensorType.TENDONPOS: _number_of("ten_length"),
    SensorType.ACTUATORPOS: _number_of("actuator_length"),
    SensorType.FRAMEPOS: _frame_pos,
    SensorType.FRAMEXAXIS: _frame_axis(0),
    SensorType.FRAMEYAXIS: _frame_axis(1),
    SensorType.FRAMEZAXIS: _frame_axis(2),
    SensorType.FRAMEQUAT: _frame_quat,
    SensorType.SUBTREECOM: _vector_of("subtree_com"),
    SensorType.MAGNETOMETER: _magnetometer,
    SensorType.CAMPROJECTION: _camera_projection,
    SensorType.INSIDESITE: _inside_site,
    SensorType.E_POTENTIAL: _potential,
    SensorType.E_KINETIC: _kinetic,
    SensorType.CLOCK: _clock,
    SensorType.RANGEFINDER: _rangefinder,
    SensorType.GEOMDIST: _geom_dist,
    SensorType.GEOMNORMAL: _geom_normal,
    SensorType.GEOMFROMTO: _geom_fromto,
    SensorType.JOINTLIMITPOS: _limit(TrnType.JOINT, _limit_pos),
    SensorType.TENDONLIMITPOS: _limit(TrnType.TENDON, _limit_pos),
    SensorType.JOINTVEL: _number_of("qvel", "jnt_dofadr"),
    SensorType.BALLANGVEL: _ball_angvel,
    SensorType.TENDONVEL: _number_of("ten_velocity"),
    SensorType.ACTUATORVEL: _number_of("actuator_velocity"),
    SensorType.VELOCIMETER: _velocimeter,
    SensorType.GYRO: _gyro,
    SensorType.FRAMELINVEL: _frame_linvel,
    SensorType.FRAMEANGVEL: _frame_angvel,
    SensorType.SUBTREELINVEL: _vector_of("subtree_linvel"),
    SensorType.SUBTREEANGMOM: _vector_of("subtree_angmom"),
    SensorType.JOINTLIMITVEL: _limit(TrnType.JOINT, _limit_vel),
    SensorType.TENDONLIMITVEL: _limit(TrnType.TENDON, _limit_vel),
    SensorType.TOUCH: _touch,
    SensorType.CONTACT: contact_data,
    SensorType.ACCELEROMETER: _accelerometer,
    SensorType.FRAMELINACC: _frame_linacc,
    SensorType.FRAMEANGACC: _frame_angacc,
    SensorType.FORCE: _force,
    SensorType.TORQUE: _torque,
    SensorType.ACTUATORFRC: _number_of("actuator_force"),
    SensorType.JOINTACTFRC: _number_of("qfrc_actuator", "jnt_dofadr"),
    SensorType.TENDONACTFRC: _tendon_actuator_frc,
    SensorType.JOINTLIMITFRC: _limit(TrnType.JOINT, _limit_frc),
    SensorType.TENDONLIMITFRC: _limit(TrnType.TENDON, _limit_frc),
}

"""The shapes that can touch: `SHAPES` has all that is known of a shape, and `COLLIDERS` all that is of a pair of them.

Keys are mjtGeom, and for pairs two of them in ascending order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ...compiler.scalar import Scalar, maximum
from ..algebra.spatial import MINVAL, is_zero, norm
from ..model import hfield
from ..model.enums import GeomType
from ..model.hfield import Ground
from ..model.mesh import Mesh
from ..model.model import Model, Pair
from . import colliders
from .colliders import Found, Geom, Place
from .contact_param import contact_param
from .convex import convex
from .hfield import field_colliders
from .primitive import ball_colliders, box_box, capsule_box, capsule_cylinder, plane_colliders
from .solids import NO_CELLS, solids_of

PLANE, HFIELD, SPHERE, CAPSULE = GeomType.PLANE, GeomType.HFIELD, GeomType.SPHERE, GeomType.CAPSULE
ELLIPSOID, CYLINDER, BOX, MESH = GeomType.ELLIPSOID, GeomType.CYLINDER, GeomType.BOX, GeomType.MESH

Size = Sequence[Scalar]


@dataclass(frozen=True)
class Shape:
    """A shape that a geom can have. bound: geom_rbound; None: it has no end.

    name: in messages. nsize: how many numbers of geom_size it has.

    size: the numbers that colliders use, from geom_size in a world and in the model. The latter decides what has to be
    known beforehand.

    hull: the numbers that give `convex.Hull` its furthest points.

    surface: points that stand for the surface, in the geom's axes. See `invweight`.
    """

    name: str
    nsize: int
    size: Callable[[Size, Size], dict[str, Scalar]]
    bound: Callable[[Size], Scalar] | None = None
    surface: Callable[[Size], list[list[Scalar]]] | None = None
    hull: Callable[[Size], dict[str, Scalar]] | None = None

    @property
    def plural(self) -> str:
        return self.name + ("es" if self.name[-1] in "xh" else "s")


@dataclass(frozen=True)
class Collider:
    """Finds the contacts of two shapes, at most `ncon`, by the functions `find` and `place` that `colliders` explains.

    cull: compare bounding spheres first, as they are cheaper than `find`.
    several: says from both sizes whether the pair may touch in more than one point at all (`Geom.several`).
    loop: the collider to use where many pairs share a loop (`pair_batch`); None: they never do.
    rods: both shapes are inside of rods (`colliders.rods_meet`), which tell sooner than `find` that they are apart.
    axial: reads no more of orientations than z axes, so loops keep nothing else of them; enforced.
    many: is so much code, or so many points, that even one pair gets a loop, also one with the world.
    hulls: reads `Shape.hull` instead of `Shape.size`.
    ccd: stands for MuJoCo's general convex collider, as all that read hulls do.
    order: puts the contacts that `find` gives in MuJoCo's order, where that counts; None: they are in it.
    loose: they may be in another order than MuJoCo's, whatever `order` does.
    """

    ncon: int
    find: Callable[[Geom, Geom], Found]
    place: Callable[[Geom, Geom, list[Scalar]], Place]
    cull: bool = False
    several: Callable[[Mapping[str, Scalar], Mapping[str, Scalar]], bool] = lambda one, two: True
    loop: Collider | None = None
    rods: bool = False
    axial: bool = False
    many: bool = False
    hulls: bool = False
    ccd: bool = False
    order: Callable[[Found], Found] | None = None
    loose: bool = False

    @property
    def searches(self) -> bool:
        """True if it finds contacts in loops or blocks, so that their derivatives come from `place`."""
        return self.many or self.hulls

    def found(self, one: Geom, two: Geom, ncon: int) -> Found:
        """Find the contacts: distance and spot of each. ValueError where `find` does not give `ncon`."""
        out = self.find(one, two)
        if len(out) != ncon:
            raise ValueError(
                f"{self.find.__name__} gives {len(out)} contacts, its entry in COLLIDERS says ncon={ncon}: "
                "a point that does not touch is to have the distance colliders.NEVER"
            )
        return out

    def whole(self, mat: list[Scalar]) -> list[Scalar]:
        """Return a geom's orientation (9), as it is; raise TypeError if the collider is axial."""
        if self.axial:
            raise TypeError(
                f"{self.find.__name__} or {self.place.__name__} asks for a geom's `mat` or `point`, but its entry in "
                "COLLIDERS has axial=True, which leaves it the z axis alone: remove axial=True there"
            )
        return mat


def _rod_length(size: Size, nominal: Size) -> Scalar:
    """Return half the length of a capsule's segment, metres; 0 for one that is a sphere to MuJoCo."""
    return size[1] if (2 * nominal[1]) ** 2 >= MINVAL else 0.0


def _rod_surface(radius: Scalar, half: Scalar) -> list[list[Scalar]]:
    """Return points of a rod's surface: four around each of its ends (8 x 3)."""
    around = [(radius, 0.0), (-radius, 0.0), (0.0, radius), (0.0, -radius)]
    return [[x, y, end] for end in (half, -half) for x, y in around]


def _corners(size: Size) -> list[list[Scalar]]:
    return [[x * size[0], y * size[1], z * size[2]] for x in (-1.0, 1.0) for y in (-1.0, 1.0) for z in (-1.0, 1.0)]


def _tips(size: Size) -> list[list[Scalar]]:
    """Return the ends of an ellipsoid's three axes (6 x 3)."""
    return [[side * size[k] if j == k else 0.0 for j in range(3)] for k in range(3) for side in (-1.0, 1.0)]


def _hull(box: Size = (0.0, 0.0, 0.0), radii: Size = (0.0, 0.0, 0.0), skin: Scalar = 0.0) -> dict[str, Scalar]:
    """Return the `Shape.hull` of a box with an ellipsoid about each of its corners and a round skin about all."""
    parts = {
        f"{name}_{axis}": x
        for name, three in (("box", box), ("radius", radii))
        for axis, x in zip("xyz", three, strict=True)
    }
    return parts | {"skin": skin}


def _three(size: Size, nominal: Size) -> dict[str, Scalar]:
    return dict(zip("xyz", size, strict=True))


SHAPES = {
    PLANE: Shape("plane", 0, size=lambda size, nominal: {}),
    HFIELD: Shape("height field", 0, size=lambda size, nominal: {}, hull=lambda size: {}),
    SPHERE: Shape(
        "sphere",
        1,
        size=lambda size, nominal: {"half": 0.0, "radius": size[0]},
        bound=lambda size: size[0],
        surface=lambda size: _rod_surface(size[0], 0.0),
        hull=lambda size: _hull(skin=size[0]),
    ),
    CAPSULE: Shape(
        "capsule",
        2,
        size=lambda size, nominal: {"half": _rod_length(size, nominal), "radius": size[0]},
        bound=lambda size: size[0] + size[1],
        surface=lambda size: _rod_surface(size[0], size[1]),
        hull=lambda size: _hull(box=(0.0, 0.0, size[1]), skin=size[0]),
    ),
    ELLIPSOID: Shape(
        "ellipsoid",
        3,
        size=_three,
        bound=lambda size: maximum(size[0], maximum(size[1], size[2])),
        surface=_tips,
        hull=lambda size: _hull(radii=size),
    ),
    CYLINDER: Shape(
        "cylinder",
        2,
        size=lambda size, nominal: {"radius": size[0], "half": size[1]},
        bound=lambda size: norm(size[:2]),
        surface=lambda size: _rod_surface(size[0], size[1]),
        hull=lambda size: _hull(box=(0.0, 0.0, size[1]), radii=(size[0], size[0], 0.0)),
    ),
    BOX: Shape("box", 3, size=_three, bound=norm, surface=_corners, hull=_hull),
    MESH: Shape(  # geom_size: the box around it
        "mesh", 0, size=lambda size, nominal: {}, surface=_corners, hull=lambda size: _hull()
    ),
}


def _both_long(one: Mapping[str, Scalar], two: Mapping[str, Scalar]) -> bool:
    return not (is_zero(one["half"]) or is_zero(two["half"]))  # a sphere touches once


_RODS = Collider(2, colliders.find_rods, colliders.place_rods, cull=True, several=_both_long, axial=True)
_BOXES = Collider(box_box.MOST, box_box.find_boxes, box_box.place_boxes, cull=True, many=True)
_PLANE_BOX = Collider(
    4, plane_colliders.find_plane_box, plane_colliders.place_on_plane, order=plane_colliders.in_order_of_corners
)
_SPHERE_CYLINDER = Collider(1, ball_colliders.find_sphere_cylinder, ball_colliders.place_ball, cull=True)
_SPHERE_BOX = Collider(1, ball_colliders.find_sphere_box, ball_colliders.place_ball_box, cull=True)
_CAPSULE_CYLINDER = Collider(
    2, capsule_cylinder.find_capsule_cylinder, capsule_cylinder.place_spot,
    cull=True, rods=True, ccd=True, loose=True,
)  # fmt: skip
_CAPSULE_BOX = Collider(2, capsule_box.find_capsule_box, ball_colliders.place_ball_box, cull=True)
_CONVEX = Collider(1, convex.find_ellipsoid_mesh, convex.place_convex, cull=True, many=True, hulls=True)
_ELLIPSOID = replace(_CONVEX, find=convex.find_ellipsoid, place=convex.place_round)
_ROD_ELLIPSOID = replace(_ELLIPSOID, find=convex.find_round_apart)
_FLAT = replace(_CONVEX, ncon=4, find=convex.find_cylinders, loose=True)
_FLAT_BOX = replace(_FLAT, find=convex.find_cylinder_box)
_FLAT_MESH = replace(_FLAT, find=convex.find_cylinder_mesh)
_CORNERED = replace(_FLAT, find=convex.find_cornered, place=convex.place_cornered, loose=False)
_BALL_MESH = replace(_CORNERED, ncon=1, find=convex.find_ball_mesh)
_ROD_MESH = replace(_CORNERED, ncon=2, find=convex.find_rod_mesh, loose=True)
_FIELD = replace(_CONVEX, ncon=hfield.MOST, find=field_colliders.find_on_field)
_FIELD_CORNERED = replace(_FIELD, find=field_colliders.find_cornered_on_field, place=field_colliders.place_on_field)
_FIELD_BALL = replace(_FIELD, find=field_colliders.find_ball_on_field, place=field_colliders.place_ball_on_field)
_FIELD_ROD = replace(_FIELD, find=field_colliders.find_rod_on_field, place=field_colliders.place_on_field)


def _alike(collider: Collider, *pairs: tuple[int, int]) -> dict[tuple[int, int], Collider]:
    """Return one collider for all these pairs, which share loops."""
    return dict.fromkeys(pairs, replace(collider, loop=collider))


COLLIDERS = {
    **_alike(Collider(1, colliders.find_plane_sphere, colliders.place_plane_sphere), (PLANE, SPHERE)),
    **_alike(Collider(2, colliders.find_plane_capsule, colliders.place_plane_capsule), (PLANE, CAPSULE)),
    **_alike(Collider(1, plane_colliders.find_plane_ellipsoid, plane_colliders.place_on_plane), (PLANE, ELLIPSOID)),
    **_alike(Collider(4, plane_colliders.find_plane_cylinder, plane_colliders.place_on_plane), (PLANE, CYLINDER)),
    **_alike(_PLANE_BOX, (PLANE, BOX)),
    **_alike(Collider(4, plane_colliders.find_plane_mesh, plane_colliders.place_on_plane, cull=True), (PLANE, MESH)),
    (HFIELD, SPHERE): replace(_FIELD_BALL, many=False, loop=_FIELD_BALL),
    **_alike(_FIELD_ROD, (HFIELD, CAPSULE)),
    **_alike(_FIELD_CORNERED, (HFIELD, BOX), (HFIELD, MESH)),
    **_alike(_FIELD, (HFIELD, ELLIPSOID), (HFIELD, CYLINDER)),
    (SPHERE, SPHERE): Collider(1, colliders.find_spheres, colliders.place_rods, loop=_RODS),
    (SPHERE, CAPSULE): Collider(1, colliders.find_sphere_capsule, colliders.place_rods, cull=True, loop=_RODS),
    **_alike(_RODS, (CAPSULE, CAPSULE)),
    **_alike(_SPHERE_CYLINDER, (SPHERE, CYLINDER)),
    **_alike(_SPHERE_BOX, (SPHERE, BOX)),
    **_alike(_CAPSULE_CYLINDER, (CAPSULE, CYLINDER)),
    **_alike(_CAPSULE_BOX, (CAPSULE, BOX)),
    **_alike(_BOXES, (BOX, BOX)),
    **_alike(_ELLIPSOID, (ELLIPSOID, ELLIPSOID), (ELLIPSOID, CYLINDER), (ELLIPSOID, BOX)),
    **_alike(_ROD_ELLIPSOID, (SPHERE, ELLIPSOID), (CAPSULE, ELLIPSOID)),
    **_alike(_CONVEX, (ELLIPSOID, MESH)),
    **_alike(_FLAT, (CYLINDER, CYLINDER)),
    **_alike(_FLAT_BOX, (CYLINDER, BOX)),
    **_alike(_FLAT_MESH, (CYLINDER, MESH)),
    **_alike(_CORNERED, (BOX, MESH), (MESH, MESH)),
    **_alike(_BALL_MESH, (SPHERE, MESH)),
    **_alike(_ROD_MESH, (CAPSULE, MESH)),
}


def collider_of(m: Model, pair: Pair) -> Collider:
    """Return the collider of the pair's two shapes."""
    return COLLIDERS[m.geom_type[pair.geom1], m.geom_type[pair.geom2]]


def most_contacts(m: Model, pair: Pair) -> int:
    """Return the most points in which the pair's geoms can touch."""
    return ground_of(m, [pair]).contacts if m.geom_type[pair.geom1] == HFIELD else collider_of(m, pair).ncon


def ground_of(m: Model, pairs: Sequence[Pair]) -> Ground:
    """Return the height field that all these pairs touch."""
    field = m.hfields[m.geom_dataid[pairs[0].geom1]]
    params = [contact_param(m, pair) for pair in pairs]
    reaches = [bound_of(m, pair.geom2) + p.margin + p.gap for pair, p in zip(pairs, params, strict=True)]
    return Ground(field, max(field.most_contacts(reach) for reach in reaches))


def mesh_of(m: Model, geom: int) -> Mesh:
    """Return the mesh that a geom is."""
    mesh = m.meshes[m.geom_dataid[geom]]
    assert mesh, "only meshes that may touch are read"
    return mesh


def bound_of(m: Model, geom: int) -> Scalar:
    """Return the radius of the geom's bounding sphere, metres."""
    if m.geom_type[geom] == MESH:
        return mesh_of(m, geom).radius
    bound = SHAPES[m.geom_type[geom]].bound
    assert bound, "an endless shape has no bounding sphere"
    return bound(m.geom_size[geom])


def size_of(m: Model, geom: int, collider: Collider) -> dict[str, Scalar]:
    """Return the numbers of a geom's size that the collider goes by, by name."""
    shape, size = SHAPES[m.geom_type[geom]], m.geom_size[geom]
    cells = solids_of(m.meshes).of[m.geom_dataid[geom]] if shape is SHAPES[MESH] else NO_CELLS
    if collider.hulls:
        assert shape.hull
        return shape.hull(size) | cells._asdict()
    known = shape.size(size, (m.nominal or m).geom_size[geom])
    return known | cells._asdict() if shape is SHAPES[MESH] else known


def may_touch_in_several(m: Model, pair: Pair, collider: Collider) -> bool:
    """Return whether the pair may touch in more than one point."""
    may = collider.several(size_of(m, pair.geom1, collider), size_of(m, pair.geom2, collider))
    return may and (m.multiccd or not (collider.hulls or collider.ccd))

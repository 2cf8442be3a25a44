"""The shapes that can touch: all that is known of one in `SHAPES`, of two in `COLLIDERS`. There is no other place.

Keys are mjtGeom, and of pairs in the order of the types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..compiler.scalar import Mask, Scalar
from . import colliders
from .colliders import Found, Geom, Place
from .model import CAPSULE, PLANE, SPHERE, Model, Pair
from .spatial import MINVAL, is_zero

Size = Sequence[Scalar]


@dataclass(frozen=True)
class Shape:
    """name: in messages. bound: geom_rbound; None: it has no end.

    size: what colliders go by, from geom_size as it is in a world, and as it is in the model: the latter decides what
    has to be known beforehand.

    surface: points that stand for the surface, in the geom's axes. See `invweight`.
    """

    name: str
    size: Callable[[Size, Size], dict[str, Scalar]]
    bound: Callable[[Size], Scalar] | None = None
    surface: Callable[[Size], list[list[Scalar]]] | None = None


@dataclass(frozen=True)
class Collider:
    """How two shapes touch: in `ncon` points at the most; `find` and `place` are explained in `colliders`.

    cull: whether bounding spheres are looked at first, as cheaper than `find`.
    several: from both sizes, whether they may touch in more than one point at all.
    loop: what takes the place of this one where many pairs share a loop (`contact_groups`); None where they may not.
    """

    ncon: int
    spot: int  # how many numbers one is
    find: Callable[[Geom, Geom, Mask], Found]
    place: Callable[[Geom, Geom, list], Place]
    cull: bool = False
    several: Callable[[Mapping, Mapping], bool] = lambda one, two: True
    loop: Collider | None = None


def _rod_length(size: Size, nominal: Size) -> Scalar:
    """Half the length of a capsule's segment; 0 of one that is a sphere to MuJoCo."""
    return size[1] if (2 * nominal[1]) ** 2 >= MINVAL else 0.0


def _rod_surface(radius: Scalar, half: Scalar) -> list[list[Scalar]]:
    """Around both ends."""
    around = [(radius, 0.0), (-radius, 0.0), (0.0, radius), (0.0, -radius)]
    return [[x, y, end] for end in (half, -half) for x, y in around]


SHAPES = {
    PLANE: Shape("plane", size=lambda size, nominal: {}),
    SPHERE: Shape(
        "sphere",
        size=lambda size, nominal: {"half": 0.0, "radius": size[0]},
        bound=lambda size: size[0],
        surface=lambda size: _rod_surface(size[0], 0.0),
    ),
    CAPSULE: Shape(
        "capsule",
        size=lambda size, nominal: {"half": _rod_length(size, nominal), "radius": size[0]},
        bound=lambda size: size[0] + size[1],
        surface=lambda size: _rod_surface(size[0], size[1]),
    ),
}


def _both_long(one: Mapping, two: Mapping) -> bool:
    return not (is_zero(one["half"]) or is_zero(two["half"]))  # a sphere touches once


_RODS = Collider(2, 2, colliders.find_rods, colliders.place_rods, cull=True, several=_both_long)

COLLIDERS = {
    (PLANE, SPHERE): Collider(1, 0, colliders.find_plane_sphere, colliders.place_plane_sphere),
    (PLANE, CAPSULE): Collider(2, 1, colliders.find_plane_capsule, colliders.place_plane_capsule),
    (SPHERE, SPHERE): Collider(1, 2, colliders.find_spheres, colliders.place_rods, loop=_RODS),
    (SPHERE, CAPSULE): Collider(1, 2, colliders.find_sphere_capsule, colliders.place_rods, cull=True, loop=_RODS),
    (CAPSULE, CAPSULE): Collider(2, 2, _RODS.find, _RODS.place, cull=True, several=_both_long, loop=_RODS),
}


def collider_of(m: Model, pair: Pair) -> Collider:
    """How the pair's geoms touch."""
    return COLLIDERS[m.geom_type[pair.geom1], m.geom_type[pair.geom2]]


def size_of(m: Model, geom: int) -> dict[str, Scalar]:
    """What colliders know of the geom's size."""
    return SHAPES[m.geom_type[geom]].size(m.geom_size[geom], (m.nominal or m).geom_size[geom])


def may_touch_in_several(m: Model, pair: Pair, collider: Collider) -> bool:
    """Whether the pair may touch in more than one point."""
    return collider.several(size_of(m, pair.geom1), size_of(m, pair.geom2))

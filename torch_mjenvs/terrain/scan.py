"""Height scans: the heights of the ground at points around a robot, which turn with it about the vertical."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..compiler.arrays import Array, Table
from ..compiler.control import count_while
from ..compiler.scalar import Scalar, number, select, sqrt
from ..envs.tasks.base import World
from ..physics.algebra.spatial import MINVAL
from ..physics.model.model import Model
from ..physics.sensors.ground import NOWHERE, ground_geoms, ground_height, refuse_ground

Points = Sequence[tuple[float, float]]


def grid(size: tuple[float, float] = (1.6, 1.0), resolution: float = 0.1) -> list[tuple[float, float]]:
    """Return the points (x, y) of a grid about the origin, metres: row by row, x first, as Isaac Lab's `GridPattern`.

    The default, 17 x 11 points, is what Isaac Lab's locomotion tasks use. Raises ValueError for sizes or a resolution
    that make no grid.
    """
    if not (resolution > 0 and min(size) >= 0):
        raise ValueError(f"a grid has a resolution above 0 and sizes of at least 0, not {resolution} and {size}")
    columns, rows = (int(side / resolution + 1e-9) + 1 for side in size)
    x, y = ([k * resolution - 0.5 * side for k in range(n)] for n, side in zip((columns, rows), size, strict=True))
    return [(a, b) for b in y for a in x]


def heights(
    m: Model,
    world: World,
    points: Points,
    body: str | int = 1,
    geoms: Sequence[str] | None = None,
    missing: float = 0.0,
) -> list[Scalar]:
    """Return the height of the ground at each point, metres, in the world's frame.

    points: (x, y) from the body's origin, metres, along the body's x axis as seen from above, and to its left. Points
        turn with the body about the vertical, and do not tilt with it.
    body: name or number of the body.
    geoms: names of the geoms that count as ground. None for every static geom that something moving may touch.
    missing: the height where there is no ground.

    It is what mj_ray measures straight down from far above, at the poses of `world.data`. For a policy, subtract it
    from `world.data.xpos[body][2]`. Raises KeyError for unknown names, `UnsupportedModel` for ground that is a mesh.
    """
    known = ground_geoms(m) if geoms is None else [m.geom(name).id for name in geoms]
    refuse_ground(m, known)
    k = m.body(body).id
    (x, y, _), mat = world.data.xpos[k], world.data.xmat[k]
    length = sqrt(mat[0] * mat[0] + mat[3] * mat[3])
    seen = length > MINVAL  # the body's x axis, from above
    over = 1.0 / select(seen, length, 1.0)
    cos, sin = select(seen, mat[0] * over, 1.0), select(seen, mat[3] * over, 0.0)
    table, found = Table([tuple(map(float, p)) for p in points], columns=2), Array(rows=len(points))

    def measure(i: Any, carry: Scalar) -> Scalar:
        a, b = table[i]
        z = ground_height(m, world.data, known, x + cos * a - sin * b, y + sin * a + cos * b)
        found.put(i, select(z > NOWHERE, z, missing))
        return carry

    count_while(lambda i, carry: number(i) < float(len(points)), measure, 0.0, len(points), [found])
    return [found[i] for i in range(len(points))]

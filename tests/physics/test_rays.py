"""Rays against shapes, and points inside of them, as MuJoCo C has them: mj_ray, mj_multiRay, mju_insideGeom."""

from __future__ import annotations

from collections import Counter

import mujoco
import numpy as np
import pytest

from torch_mjenvs.physics import Data, load
from torch_mjenvs.physics.sensors.ray import INSIDE, MISS, inside, ray_geom

KINDS = {"plane": 3, "sphere": 1, "capsule": 2, "ellipsoid": 3, "cylinder": 2, "box": 3}  # and how many sizes
RAYS = 60


def mixed(rng: np.random.Generator) -> str:
    """Three shapes of each kind at random about the origin; of the planes one has no end, and one none along x."""
    geoms = ""
    for kind, count in KINDS.items():
        for k in range(3):
            size = rng.uniform(0.2, 1.2, count) * ([k > 0, k > 1, 1][:count] if kind == "plane" else 1.0)
            size, pos, quat = (" ".join(map(str, x)) for x in (size, rng.normal(size=3), rng.normal(size=4)))
            geoms += f'<geom type="{kind}" size="{size}" pos="{pos}" quat="{quat}"/>'
    return f"<mujoco><worldbody>{geoms}</worldbody></mujoco>"


@pytest.mark.parametrize("seed", range(8))
def test_rays_meet_shapes_where_mujoco_has_them(seed):
    """From inside and outside, one by one and the nearest of all, in float64."""
    rng, seen = np.random.default_rng(seed), Counter[tuple[int, str]]()
    mjm = mujoco.MjModel.from_xml_string(mixed(rng))
    d, m = mujoco.MjData(mjm), load(mjm)
    mujoco.mj_forward(mjm, d)
    data, number = Data(m, qpos=[]), np.zeros(RAYS, np.int32)
    for turn in range(12):
        k = int(rng.integers(3, mjm.ngeom)) if turn % 2 else 3 + (3 * turn // 2) % 15
        p, ways = d.geom_xpos[k] + (1.2 if turn % 2 else 0.05) * rng.normal(size=3), rng.normal(size=(RAYS, 3))
        ways[:6] = np.sign(np.eye(3)[[0, 1, 2] * 2] * np.repeat([1, -1], 3)[:, None])
        ways[6:12] = d.geom_xmat[k].reshape(3, 3).T[[0, 1, 2] * 2] * np.repeat([1, -1], 3)[:, None]  # along its axes
        ways /= np.linalg.norm(ways, axis=1, keepdims=True)
        depth = np.zeros(RAYS)
        mujoco.mj_multiRay(mjm, d, p, ways.ravel(), None, 1, -1, number, depth, None, RAYS, mujoco.mjMAXVAL)
        shapes = list(zip(*(x.tolist() for x in (mjm.geom_type, mjm.geom_size, d.geom_xpos, d.geom_xmat)), strict=True))
        held = [kind in INSIDE and inside(kind, *shape, p.tolist()) for kind, *shape in shapes]
        for way, nearest, which in zip(ways, depth, number, strict=True):
            found = []
            for g, kind in enumerate(mjm.geom_type.tolist()):
                shape = d.geom_xpos[g], d.geom_xmat[g], mjm.geom_size[g]
                want = mujoco.mju_rayGeom(*shape, p, way, kind, None)
                got = ray_geom(m, data, g, p.tolist(), way.tolist())
                got = -1.0 if got >= MISS else got
                assert abs(got - want) < 1e-10 * max(1.0, abs(want))
                assert not held[g] or want >= 0
                seen[kind, "miss" if want < 0 else "inside" if held[g] else "outside"] += 1
                found.append(got)
            alone = mujoco.mj_ray(mjm, d, p, way, None, 1, -1, np.zeros(1, np.int32))
            hits = [x for x in found if x >= 0]
            best = min(hits) if hits else -1.0
            assert abs(best - nearest) < 1e-10 * max(1.0, best) and abs(alone - nearest) < 1e-12 * max(1.0, best)
            assert which == (found.index(best) if hits else -1)
    for kind in map(int, mjm.geom_type):
        assert seen[kind, "outside"] > 20 and seen[kind, "miss"] > 20
    assert all(seen[kind, "inside"] > 20 for kind in INSIDE)

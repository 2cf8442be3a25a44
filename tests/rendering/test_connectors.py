"""Tendons and slider-cranks in pictures, against MuJoCo's list of what it draws, and its own pictures."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
from scenes import beside_mujoco, scattered

from torch_mjenvs import Simulation
from torch_mjenvs.physics import Data, load
from torch_mjenvs.rendering import connectors, picture
from torch_mjenvs.rendering.connectors import ACTUATOR, TENDON
from torch_mjenvs.rendering.scene import scene_of

# strings that sag, hang straight down or are tight, by a limit and by a spring; a rope round a drum and one through a
# ball, with a pulley; a slider-crank whose rod may be too short
MODEL = """<mujoco><visual><quality offsamples="0"/></visual>
  <default><geom contype="0" conaffinity="0"/></default>
  <worldbody>
    <light pos="0 -1 4" dir="0 .2 -1"/><camera name="ahead" pos="0 -3 1" xyaxes="1 0 0 0 .2 1"/>
    <geom type="plane" size="2 2 1"/>
    <site name="a" pos="-.6 0 1.4"/><site name="b" pos=".6 .1 1.2"/><site name="side" pos=".5 -.2 .6"/>
    <site name="within" pos=".2 .3 1.3"/>
    <geom name="drum" type="cylinder" size=".15 .3" pos=".5 0 .7" euler="90 0 0"/>
    <geom name="ball" size=".1" pos=".2 .3 1.3"/>
    <body pos="-.2 0 .8"><freejoint/><geom size=".1"/><site name="c" pos="0 .1 .1"/></body>
    <body pos=".9 0 .5"><freejoint/><geom type="box" size=".1 .1 .1"/><site name="e"/></body>
    <body pos="-.6 0 1.1"><joint type="slide" axis="0 0 1"/><geom size=".05"/><site name="below" pos=".001 0 0"/></body>
    <body pos="-.9 0 .5"><joint type="hinge" axis="0 1 0"/><geom type="capsule" fromto="0 0 0 0 0 .3" size=".03"/>
      <site name="crank" pos="0 0 .3"/></body>
    <body pos="-.9 -.1 .5"><joint type="slide"/><geom size=".04"/><site name="slider" zaxis="1 0 0"/></body>
  </worldbody>
  <tendon>
    <spatial name="string" width=".02" limited="true" range="0 1" rgba="1 0 0 1">
      <site site="a"/><site site="c"/></spatial>
    <spatial name="elastic" width=".02" stiffness="3" springlength="0 .9" rgba="0 1 0 1">
      <site site="b"/><site site="c"/></spatial>
    <spatial name="plumb" width=".01" limited="true" range="0 .4" rgba="1 1 0 1">
      <site site="a"/><site site="below"/></spatial>
    <spatial name="damped" width=".01" limited="true" range="0 3" damping="1"><site site="a"/><site site="e"/></spatial>
    <spatial name="rope" width=".03" rgba="0 0 1 1"><site site="b"/><geom geom="drum" sidesite="side"/><site site="e"/>
      <pulley divisor="2"/><site site="e"/><geom geom="ball" sidesite="within"/><site site="c"/></spatial>
    <spatial name="unseen" group="4"><site site="a"/><site site="e"/></spatial>
  </tendon>
  <actuator><motor name="m" slidersite="slider" cranksite="crank" cranklength=".45"/></actuator></mujoco>"""


ROPE = TENDON, 4


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(MODEL)


def distance(point: np.ndarray, pieces: np.ndarray) -> float:
    """How far a point is from the nearest of some pieces, (n, 2, 3)."""
    along = pieces[:, 1] - pieces[:, 0]
    share = np.clip(((point - pieces[:, 0]) * along).sum(1) / np.maximum((along**2).sum(1), 1e-20), 0, 1)
    return float(np.linalg.norm(pieces[:, 0] + share[:, None] * along - point, axis=1).min())


def test_pieces_are_where_mujoco_draws_them(model):
    """To the float32 of its list; round the drum, of radius 0.15, to what pieces of an arc leave off."""
    m, scene = load(model), scene_of(model, "ahead")[0]
    rods = {}
    for x in scene.drawn:
        if x.rod:
            rods.setdefault((x.object, x.id), []).append(x.rod)
    rng, seen = np.random.default_rng(0), {}
    listed = mujoco.MjvScene(model, 200)
    for _ in range(100):
        d = mujoco.MjData(model)
        d.qpos[:] = model.qpos0 + 0.35 * rng.normal(size=model.nq)
        mujoco.mj_forward(model, d)
        mujoco.mjv_updateScene(
            model, d, mujoco.MjvOption(), None, mujoco.MjvCamera(), mujoco.mjtCatBit.mjCAT_ALL, listed
        )
        theirs = {}
        for geom in listed.geoms[: listed.ngeom]:
            if geom.objtype in (TENDON, ACTUATOR):
                theirs.setdefault((geom.objtype, geom.objid), []).append(geom)
        assert set(theirs) == set(rods) == {*((TENDON, k) for k in range(5)), (ACTUATOR, 0)}
        data = Data(m, qpos=d.qpos.tolist())
        for key, mine in rods.items():
            found = connectors.pieces(m, data, *key, mine[0])
            there = [k for k, x in enumerate(found) if x.there]
            seen.setdefault(key, set()).add(tuple(there))
            assert len(found) == len(mine)
            if key == ROPE:  # whose arcs have other numbers of pieces
                ours = np.array([[found[k].start, found[k].end] for k in there], float)
                others = np.array([[x.pos + s * x.size[2] * x.mat[:, 2] for s in (-1, 1)] for x in theirs[key]])
                assert all(distance(x, others) < 3e-3 for x in ours.reshape(-1, 3))
                assert all(distance(x, ours) < 3e-3 for x in others.reshape(-1, 3))
                assert all(abs(x.size[0] - mine[0].radius) < 1e-6 for x in theirs[key])
                continue
            assert len(there) == len(theirs[key])
            placed = connectors.placed(found)
            for k, geom in zip(there, theirs[key], strict=True):
                (pos, mat, half), radius = placed[k], mine[k].radius
                assert mine[k].shape == geom.type
                np.testing.assert_allclose([*pos, radius, half], [*geom.pos, geom.size[0], geom.size[2]], atol=2e-6)
                np.testing.assert_allclose(mat, geom.mat.ravel(), atol=1e-5)
    sagging = {(0,), tuple(range(28))}
    assert seen[TENDON, 0] == seen[TENDON, 1] == sagging and seen[TENDON, 2] == {(0,), (0, 1)}
    assert seen[TENDON, 3] == {(0,)} and len(seen[ROPE]) >= 3 and seen[ACTUATOR, 0] == {(0, 1), (0, 2)}


def test_pieces_of_a_string_take_one_code(model, monkeypatch):
    """Where they are, in pictures with shadows: else a string of many pieces took a minute to compile."""
    operations = {}

    def stop(recipe, device):
        operations[slices] = recipe.record().count_ops().total()
        raise InterruptedError

    monkeypatch.setattr(picture, "build", stop)
    for slices in (28, 56):
        model.vis.quality.numslices = slices
        with pytest.raises(InterruptedError):
            Simulation(model, 1).render("ahead", 8, 8, outputs="rgb")
    model.vis.quality.numslices = 28
    strings = 3
    assert operations[56] - operations[28] < 20 * strings * 28  # 500 each, where each had code of its own


# grey tendons: strings held by a limit, one with a margin, and by a spring; one with two limits and a margin about
# both, one round a drum, one that nothing moves; one of another colour and one with a material
STRAINED = """<mujoco><asset><material name="plain"/></asset>
  <visual><rgba constraint=".1 .9 .7 1"/></visual>
  <worldbody>
    <site name="a"/><site name="b" pos=".3 0 0"/><site name="side" pos="0 0 -.3"/>
    <geom name="drum" type="cylinder" size=".1 .3" pos="0 0 -.4" euler="90 0 0" contype="0" conaffinity="0"/>
    <body pos="0 0 -.8"><freejoint/><geom size=".05"/><site name="c"/></body>
  </worldbody>
  <tendon>
    <spatial limited="true" range="0 .8"><site site="a"/><site site="c"/></spatial>
    <spatial limited="true" range="0 .8" margin=".2"><site site="b"/><site site="c"/></spatial>
    <spatial limited="true" range="0 .8" stiffness="1" springlength="0 .7"><site site="a"/><site site="c"/></spatial>
    <spatial limited="true" range=".75 .85" margin=".1" damping="1" solimplimit=".2 .7 .3 .4 3">
      <site site="a"/><site site="c"/></spatial>
    <spatial limited="true" range=".2 .8" solimplimit="0 .9 .2"><site site="b"/><geom geom="drum" sidesite="side"/>
      <site site="c"/></spatial>
    <spatial limited="true" range=".4 .8"><site site="a"/><site site="b"/></spatial>
    <spatial limited="true" range=".1 .8" rgba=".5 .5 .6 1"><site site="a"/><site site="c"/></spatial>
    <spatial limited="true" range=".1 .8" material="plain"><site site="a"/><site site="c"/></spatial>
  </tendon></mujoco>"""


@pytest.mark.parametrize("without", [0, mujoco.mjtDisableBit.mjDSBL_LIMIT, mujoco.mjtDisableBit.mjDSBL_GRAVITY])
def test_a_tendon_takes_on_the_colour_of_the_limit_that_holds_it(without):
    """As MuJoCo lists it, whose numbers are float32."""
    model = mujoco.MjModel.from_xml_string(STRAINED)
    model.opt.disableflags |= int(without)
    m, scene = load(model), scene_of(model, -1, [])[0]
    first = {x.id: x for x in scene.drawn if x.object == TENDON and x.rod.piece == 0}
    assert all(not x.surface.strained for x in scene.drawn if x.rod and x.rod.hangs and x.rod.piece)
    rng, seen = np.random.default_rng(0), {k: set() for k in first}
    listed = mujoco.MjvScene(model, 500)
    everything = mujoco.mjtCatBit.mjCAT_ALL
    for _ in range(60):
        d = mujoco.MjData(model)
        d.qpos[:3] += 0.3 * rng.normal(size=3)
        mujoco.mj_forward(model, d)
        mujoco.mjv_updateScene(model, d, mujoco.MjvOption(), None, mujoco.MjvCamera(), everything, listed)
        theirs = {x.objid: x.rgba for x in listed.geoms[: listed.ngeom] if x.objtype == TENDON}
        data = Data(m, qpos=d.qpos.tolist())
        for k, x in first.items():
            rgb = np.array(x.surface.rgba[:3])
            if x.surface.strained:
                rgb += connectors.strain(m, data, k, x.rod) * (np.array(x.surface.strained) - rgb)
            np.testing.assert_allclose(rgb, theirs[k][:3], atol=2e-7)
            seen[k].add(round(float(rgb[1]), 3))
    assert set(first) == set(range(8))
    held = {k for k, colours in seen.items() if len(colours) > 1}
    springs = set() if without == mujoco.mjtDisableBit.mjDSBL_GRAVITY else {2}  # then they hang as strings do
    assert held == (set() if without == mujoco.mjtDisableBit.mjDSBL_LIMIT else {0, 1, 2, 3, 4} - springs)


@pytest.mark.usefixtures("opengl")
def test_they_look_as_in_mujoco(model):
    worlds = beside_mujoco(model, scattered(model, 3), "ahead", 120, 90)
    for ours, depth, segmentation, colours in worlds:
        assert (np.abs(ours["depth"] - depth) <= 0.01 * depth).mean() > 0.998
        assert (ours["segmentation"] == segmentation).all(-1).mean() > 0.998
        assert np.abs(ours["rgb"] - colours).mean() < 1.0
        assert (segmentation[..., 1] == TENDON).sum() > 100 and (segmentation[..., 1] == ACTUATOR).sum() > 10

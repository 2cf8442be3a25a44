"""Pictures by rays, against mj_ray, in float64, and against MuJoCo's renderer where there is an OpenGL."""

from __future__ import annotations

import gymnasium
import mujoco
import numpy as np
import pytest
import torch
from ptx import Machine
from scenes import SHAPES, of_mujoco, scattered, state

from torch_mjenvs import Simulation, UnsupportedModel
from torch_mjenvs.compiler import cuda
from torch_mjenvs.physics import Data, load
from torch_mjenvs.rendering import camera as cameras
from torch_mjenvs.rendering import picture
from torch_mjenvs.rendering.scene import scene_of

WORLDS = 5
SIZE = 84
GEOM = int(mujoco.mjtObj.mjOBJ_GEOM)


def poses(model: mujoco.MjModel, d: mujoco.MjData, camera: mujoco.MjvCamera) -> tuple[np.ndarray, np.ndarray]:
    """Position and axes of a camera as MuJoCo has them for OpenGL."""
    scene = mujoco.MjvScene(model, maxgeom=100)
    mujoco.mjv_updateScene(model, d, mujoco.MjvOption(), None, camera, mujoco.mjtCatBit.mjCAT_ALL, scene)
    left, right = scene.camera
    ahead, up = np.array(left.forward, float), np.array(left.up, float)
    return (np.array(left.pos, float) + right.pos) / 2, np.array([np.cross(ahead, up), up, -ahead]).T


@pytest.mark.parametrize("camera", ["ahead", "wide"])
def test_rays_meet_what_mj_ray_meets(camera):
    model = mujoco.MjModel.from_xml_string(SHAPES)
    model.site_group[:] = 4  # which rays do not meet
    simulation = scattered(model, WORLDS, torch.float64)
    simulation.mocap_pos[:, 0, 0] += torch.linspace(0, 1, WORLDS, dtype=torch.float64)
    pictures = simulation.render(camera, 24, 20)
    seen = scene_of(model, camera)[0].camera
    groups, number = np.array([1, 1, 1, 0, 0, 0], np.uint8), np.zeros(1, np.int32)
    met = 0
    for world in range(WORLDS):
        d = state(model, simulation, world)
        place, axes = d.camera(camera).xpos, d.camera(camera).xmat.reshape(3, 3)
        for i, j in np.ndindex(20, 24):
            x, y = seen.ray(j + 0.5, i + 0.5, 24, 20)
            depth = mujoco.mj_ray(model, d, place, axes @ [x, y, -1.0], groups, 1, -1, number)
            shown = pictures["segmentation"][world, i, j].tolist()
            if depth < 0 or depth > seen.far:
                assert shown == [-1, -1] and pictures["depth"][world, i, j] == seen.far
            else:
                met += number[0] > 0
                assert shown == [number[0], GEOM]
                assert abs(pictures["depth"][world, i, j].item() - depth) < 1e-10 * max(1.0, depth)
    assert met > {"ahead": 400, "wide": 150}[camera]


def mixed(rng: np.random.Generator) -> str:
    """Shapes of every kind at random about a camera, which is inside of some of them."""
    kinds = {"plane": 3, "sphere": 1, "capsule": 2, "ellipsoid": 3, "cylinder": 2, "box": 3}
    geoms = ""
    for k in range(18):
        kind = list(kinds)[k % 6]
        near = 0.4 if k % 3 == 0 and kind != "plane" else 3.0
        size, pos = rng.uniform(0.15, 0.7, kinds[kind]), near * rng.normal(size=3) / np.sqrt(3)
        turn, up = rng.normal(size=4), rng.normal(size=3)
        towards = up / np.linalg.norm(up) / 2 - pos / np.linalg.norm(pos)  # from behind rays meet no plane
        how = "zaxis" if kind == "plane" else "quat"
        numbers = [" ".join(map(str, x)) for x in (size, pos, towards if kind == "plane" else turn)]
        geoms += '<geom type="{}" size="{}" pos="{}" {}="{}"/>'.format(kind, *numbers[:2], how, numbers[2])
    return f"""<mujoco><visual><map znear="1e-4"/></visual><worldbody>
        <camera name="c" quat="{" ".join(map(str, rng.normal(size=4)))}" fovy="90"/>{geoms}</worldbody></mujoco>"""


@pytest.mark.parametrize("seed", range(6))
def test_rays_meet_what_mj_multiray_meets_in_random_models(seed):
    """Where the camera is inside of a shape it sees through it, as OpenGL draws: MuJoCo's rays meet the far side."""
    model = mujoco.MjModel.from_xml_string(mixed(np.random.default_rng(seed)))
    simulation = Simulation(model, 1, dtype=torch.float64)
    pictures, seen = simulation.render("c", 24, 20), scene_of(model, "c")[0].camera
    d = state(model, simulation, 0)
    place, axes = d.camera("c").xpos, d.camera("c").xmat.reshape(3, 3)
    ways = np.array([axes @ [*seen.ray(j + 0.5, i + 0.5, 24, 20), -1.0] for i, j in np.ndindex(20, 24)])
    inside = {k for k in range(model.ngeom) if model.geom_type[k] and contains(model, d, k, place)}
    model.geom_rgba[list(inside), 3] = 0.0  # which rays do not meet
    depth, number = np.zeros(len(ways)), np.zeros(len(ways), np.int32)
    mujoco.mj_multiRay(model, d, place, ways.ravel(), None, 1, -1, number, depth, None, len(ways), mujoco.mjMAXVAL)
    found = (depth >= 0) & (depth < seen.far)
    ours, shape = pictures["depth"][0].cpu().numpy().ravel(), pictures["segmentation"][0, ..., 0].cpu().numpy().ravel()
    np.testing.assert_array_equal(shape, np.where(found, number, -1))
    np.testing.assert_allclose(ours, np.where(found, depth, seen.far), rtol=1e-10, atol=1e-10)
    assert found.sum() > 20 and inside


def contains(model: mujoco.MjModel, d: mujoco.MjData, k: int, point: np.ndarray) -> bool:
    """Whether a point is inside of a shape: rays both ways meet it from there."""
    back = [
        mujoco.mju_rayGeom(d.geom_xpos[k], d.geom_xmat[k], model.geom_size[k], point, way, model.geom_type[k], None)
        for way in (np.array([0.3, 0.5, 0.8]), np.array([-0.3, -0.5, -0.8]))
    ]
    return min(back) >= 0


CAMERAS = {"shapes": (SHAPES, "ahead"), "shapes, its own sensor": (SHAPES, "wide"), "shapes, free": (SHAPES, -1)}
CAMERAS |= {f"{name}, {k}": (f"{name}-v5", k) for name, k in (("HalfCheetah", 0), ("Humanoid", 0))}
HAVE = {"Ant": 1, "HalfCheetah": 1, "Hopper": 1, "Humanoid": 2, "HumanoidStandup": 2, "InvertedDoublePendulum": 0}
HAVE |= {"InvertedPendulum": 0, "Pusher": 0, "Reacher": 0, "Swimmer": 1, "Walker2d": 1}
MORE = {f"{name}, {k}": (f"{name}-v5", k) for name, cameras in HAVE.items() for k in range(-1, cameras)}


@pytest.mark.usefixtures("opengl")
@pytest.mark.parametrize(
    "case", [*CAMERAS, *(pytest.param(x, marks=pytest.mark.slow) for x in MORE if x not in CAMERAS)]
)
def test_pictures_are_those_of_mujocos_renderer(case):
    text, camera = (CAMERAS | MORE)[case]
    model = mujoco.MjModel.from_xml_string(text) if "<" in text else gymnasium.make(text).unwrapped.model
    assert model.ncam == HAVE.get(case.partition(",")[0], model.ncam)
    height = 60 if camera == "wide" else SIZE
    simulation = scattered(model, WORLDS)
    pictures = simulation.render(camera, SIZE, height)
    renderer = mujoco.Renderer(model, height, SIZE)
    shown = set()
    for world in range(WORLDS):
        depth, segmentation = of_mujoco(renderer, state(model, simulation, world), camera)
        ours = pictures["segmentation"][world].cpu().numpy()
        assert ours.dtype == segmentation.dtype and ours.shape == segmentation.shape
        assert (np.abs(pictures["depth"][world].cpu().numpy() - depth) <= 0.01 * depth).mean() >= 0.98
        assert (ours == segmentation).all(-1).mean() >= 0.985
        shown |= set(map(tuple, segmentation.reshape(-1, 2).tolist()))
    renderer.close()
    assert len(shown) >= 2


@pytest.mark.usefixtures("opengl")
@pytest.mark.parametrize("size", ["0 0 1", "1 .9 1", "0 1 1"])
def test_a_plane_is_seen_from_below_too(size):
    model = mujoco.MjModel.from_xml_string(f"""<mujoco><worldbody>
        <camera name="c" pos=".03 -2 -1" xyaxes="1 0 0 0 -.3 1"/><geom type="plane" size="{size}"/>
        <geom size=".1" pos="0 0 .5"/><geom size=".1" pos="0 0 -.5"/></worldbody></mujoco>""")
    simulation, renderer = Simulation(model, 1), mujoco.Renderer(model, 40, 60)
    depth, segmentation = of_mujoco(renderer, state(model, simulation, 0), 0)
    renderer.close()
    ours = simulation.render(0, 60, 40)
    assert (segmentation[..., 0] == 0).sum() > 100
    assert (ours["segmentation"][0].cpu().numpy() == segmentation).all(-1).mean() >= 0.985
    assert (np.abs(ours["depth"][0].cpu().numpy() - depth) <= 0.01 * depth).mean() >= 0.98


MOVING = """<mujoco><worldbody><body name="one" pos="1 2 3"><freejoint/><geom size=".1" pos=".2 0 0"/>
  {cameras}<body name="two" pos="0 0 1"><joint type="ball"/><geom size=".2" pos=".4 0 0"/></body></body>
  </worldbody></mujoco>"""
MODES = {"fixed": "", "track": "", "trackcom": "", "targetbody": 'target="two"', "targetbodycom": 'target="two"'}


def moving() -> tuple[mujoco.MjModel, mujoco.MjData]:
    cameras = "".join(
        f'<camera name="{x}" mode="{x}" {target} pos="2 1 1" quat="1 .2 .3 .1"/>' for x, target in MODES.items()
    )
    model = mujoco.MjModel.from_xml_string(MOVING.format(cameras=cameras))
    d = mujoco.MjData(model)
    d.qpos += np.random.default_rng(1).normal(size=model.nq)
    mujoco.mj_normalizeQuat(model, d.qpos)
    mujoco.mj_forward(model, d)
    return model, d


@pytest.mark.parametrize("which", [*MODES, "free", "follows"])
def test_cameras_are_where_mujoco_has_them(which):
    model, d = moving()
    asked: str | mujoco.MjvCamera = which
    if which not in MODES:
        asked = mujoco.MjvCamera()
        asked.lookat[:], asked.distance, asked.azimuth, asked.elevation = (1, 2, 3), 4, 50, -30
        if which == "follows":
            asked.type, asked.trackbodyid = mujoco.mjtCamera.mjCAMERA_TRACKING, 1
    seen = scene_of(model, asked)[0].camera
    pos, mat = cameras.pose(load(model), Data(load(model), qpos=d.qpos.tolist()), seen)
    place, axes = poses(model, d, cameras.camera_of(model, asked))
    np.testing.assert_allclose(pos, place, atol=2e-6)
    np.testing.assert_allclose(np.reshape(mat, (3, 3)), axes, atol=2e-6)


@pytest.fixture(scope="module")
def shapes() -> tuple[Simulation, dict[str, torch.Tensor]]:
    """Worlds, and their pictures."""
    simulation = scattered(mujoco.MjModel.from_xml_string(SHAPES), WORLDS)
    return simulation, {name: x.clone() for name, x in simulation.render("ahead", SIZE, SIZE).items()}


def test_a_picture_is_the_same_to_the_last_bit_in_any_batch(shapes):
    simulation, whole = shapes
    some = simulation.render("ahead", SIZE, SIZE, worlds=[3, 1])
    alone = Simulation(mujoco.MjModel.from_xml_string(SHAPES), 1)
    for k, world in enumerate((3, 1)):
        alone.qpos.copy_(simulation.qpos[world])
        for name, x in alone.render("ahead", SIZE, SIZE).items():
            assert torch.equal(x[0], whole[name][world]) and torch.equal(some[name][k], x[0])


@pytest.mark.cpu
def test_a_gpu_draws_the_same_to_the_last_bit(monkeypatch):
    """The PTX of both kernels, run by an interpreter."""
    recipes, build = [], picture.build
    monkeypatch.setattr(picture, "build", lambda recipe, device: (recipes.append(recipe), build(recipe, device))[1])
    simulation = scattered(mujoco.MjModel.from_xml_string(SHAPES), 1)
    simulation.render("ahead", 16, 12)
    ((made, _),) = simulation._pictures.values()
    for recipe, launch in zip(recipes, (made._place[""], made._draw), strict=True):
        written = ("scene",) if recipe.name == "scene" else ("depth", "segmentation")
        theirs = [
            torch.full_like(x, 77) if b.name in written else x
            for b, x in zip(recipe.buffers, launch.tensors, strict=True)
        ]
        Machine(cuda.assembly(recipe.record())).launch(theirs, 16 if recipe.name == "scene" else 16 * 12)
        for b, mine, its in zip(recipe.buffers, launch.tensors, theirs, strict=True):
            np.testing.assert_array_equal(its.numpy(), mine.numpy(), err_msg=b.name)


def test_pictures_keep_their_addresses(shapes):
    simulation, _ = shapes
    first, again = (simulation.render("ahead", SIZE, SIZE) for _ in range(2))
    assert all(first[name].data_ptr() == again[name].data_ptr() for name in first)


def test_channels_come_first_on_request(shapes):
    outputs, (simulation, _) = ("rgb", "depth", "segmentation"), shapes
    last = simulation.render("wide", 12, 8, outputs)
    first = simulation.render("wide", 12, 8, outputs, channels_first=True)
    shape = WORLDS, 8, 12
    assert [first[name].shape for name in outputs] == [(WORLDS, 3, 8, 12), shape, (WORLDS, 2, 8, 12)]
    for name in outputs:
        assert first[name].data_ptr() == last[name].data_ptr()
        assert torch.equal(first[name] if name == "depth" else first[name].movedim(1, -1), last[name])


def test_a_world_of_nan_shows_the_background_and_no_other_world_changes(shapes):
    simulation, whole = shapes
    before = simulation.qpos[2].clone()
    try:
        simulation.qpos[2] = float("nan")
        pictures = simulation.render("ahead", SIZE, SIZE)
        for name, x in pictures.items():
            others = [0, 1, 3, 4]
            assert torch.equal(x[others], whole[name][others]) and not x[2].isnan().any()
        shown = set(map(tuple, pictures["segmentation"][2].reshape(-1, 2).tolist()))
        assert not any(kind == GEOM and number >= 5 and number != 10 for number, kind in shown)  # what moves is gone
        assert (0, GEOM) in shown  # and the floor is there
    finally:
        simulation.qpos[2] = before


def test_a_camera_that_is_nan_sees_nothing():
    simulation = scattered(gymnasium.make("HalfCheetah-v5").unwrapped.model, 2)
    simulation.qpos[1] = float("nan")
    pictures = simulation.render(0, SIZE, SIZE)
    assert (pictures["segmentation"][0] >= 0).any() and (pictures["segmentation"][1] == -1).all()
    assert (pictures["depth"][1] == pictures["depth"][0].max()).all()


def test_each_world_is_drawn_with_its_own_sizes():
    model = mujoco.MjModel.from_xml_string(SHAPES)
    simulation = scattered(model, 2, torch.float64, vary=("geom_size",))
    simulation.params["geom_size"][1, 5:10] *= 1.5
    ours = simulation.render("ahead", 40, 30)
    model.geom_size[5:10] *= 1.5
    simulation.qpos[0] = simulation.qpos[1]
    other = Simulation(model, 1, dtype=torch.float64)
    other.qpos.copy_(simulation.qpos[1:])
    for name, x in other.render("ahead", 40, 30).items():
        torch.testing.assert_close(ours[name][1], x[0], rtol=1e-12, atol=1e-12)
        assert not torch.equal(ours[name][0], ours[name][1])


def test_what_is_not_drawn_is_refused_by_name():
    text = """<mujoco><asset><mesh name="wedge" vertex="0 0 0 1 0 0 0 1 0 0 0 1"/></asset><worldbody>
        <geom type="sdf" mesh="wedge" name="hull"/></worldbody></mujoco>"""
    with pytest.raises(UnsupportedModel, match=r"geom 'hull' .*sdf"):
        scene_of(mujoco.MjModel.from_xml_string(text), -1)


def test_a_height_field_that_leaves_its_box_is_refused():
    model = mujoco.MjModel.from_xml_string(SHAPES)
    model.hfield_data[3] = 1.5
    with pytest.raises(UnsupportedModel, match="height field 2, whose elevations"):
        scene_of(model, -1)


def camera_at(distance: float) -> mujoco.MjvCamera:
    camera = mujoco.MjvCamera()
    camera.distance = distance
    return camera


def test_each_free_camera_has_pictures_of_its_own(shapes):
    simulation, _ = shapes
    cameras = camera_at(4.0), camera_at(4.0 + 1e-3)
    near, far = (simulation.render(camera, 16, 16)["depth"] for camera in cameras)
    assert near.data_ptr() != far.data_ptr() and not torch.equal(near, far)


@pytest.mark.parametrize("body", [-1, 2])
def test_a_camera_that_moves_sees_what_a_new_one_there_sees(shapes, body, monkeypatch):
    """And its pictures are in the same tensors, and from the same kernels."""
    simulation, outputs = shapes[0], ("rgb", "depth")
    camera = camera_at(1.0)
    if body >= 0:
        camera.type, camera.trackbodyid = mujoco.mjtCamera.mjCAMERA_TRACKING, body
    first = simulation.render(camera, 16, 12, outputs)
    monkeypatch.setattr(picture, "build", None)  # which compiles
    camera.lookat[:], camera.distance, camera.azimuth, camera.elevation = (0.1, 0.2, 0.5), 3.0, 50.0, -20.0
    moved = simulation.render(camera, 16, 12, outputs)
    monkeypatch.undo()
    other = mujoco.MjvCamera()
    for name in ("type", "trackbodyid", "lookat", "distance", "azimuth", "elevation"):
        setattr(other, name, getattr(camera, name))
    for name, x in simulation.render(other, 16, 12, outputs).items():
        assert torch.equal(moved[name], x) and len(x.unique()) > 10
        assert moved[name].data_ptr() == first[name].data_ptr() != x.data_ptr()


def test_pictures_of_many_arguments_do_not_pile_up(shapes):
    """Tensors that a caller still has are left alone."""
    simulation = scattered(mujoco.MjModel.from_xml_string(SHAPES), WORLDS)
    kept = simulation.render("ahead", 8, 6, "depth", worlds=[0])["depth"]
    before = kept.clone()
    for k in range(40):
        simulation.render("ahead", 8, 6, "depth", worlds=[1 + k % 4, k // 4 % 5, k // 20])
        simulation.render(camera_at(k + 1.0), 8, 6, "depth")  # gone after the call
    assert len(simulation._pictures) <= 32 and torch.equal(kept, before)
    assert torch.equal(simulation.render("ahead", 8, 6, "depth", worlds=[0])["depth"], before)


@pytest.mark.cpu  # on a GPU torch's own allocator refuses
def test_pictures_that_do_not_fit_are_refused(shapes):
    with pytest.raises(MemoryError, match="worlds=5 takes"):
        shapes[0].render(0, 200_000, 200_000)


def test_wrong_arguments_are_named(shapes):
    simulation, _ = shapes
    with pytest.raises(ValueError, match="no camera 'behind'; it has 'ahead', 'wide'"):
        simulation.render("behind")
    with pytest.raises(ValueError, match="no camera 2: it has 2"):
        simulation.render(2)
    with pytest.raises(ValueError, match="unknown outputs"):
        simulation.render(0, outputs="colour")
    with pytest.raises(ValueError, match="worlds must be from 0 to 4"):
        simulation.render(0, worlds=[5])
    for wrong in ([True, False], torch.tensor([True, False]), [0.9, 2.0], 1):
        with pytest.raises(TypeError, match="worlds must be the numbers of worlds"):
            simulation.render(0, worlds=wrong)
    with pytest.raises(ValueError, match="width"):
        simulation.render(0, width=0)

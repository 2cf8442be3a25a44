"""Colours, against MuJoCo's renderer where there is an OpenGL, and against OpenGL's equations where there is none."""

from __future__ import annotations

import gymnasium
import mujoco
import numpy as np
import pytest
import torch
from ptx import Machine
from scenes import COLOURS, scattered, state
from test_pictures import HAVE

from torch_mjenvs import Simulation, UnsupportedModel
from torch_mjenvs.compiler import cuda
from torch_mjenvs.rendering import picture

WORLDS = 3
FLAGS = {"shadow": mujoco.mjtRndFlag.mjRND_SHADOW, "reflection": mujoco.mjtRndFlag.mjRND_REFLECTION}
FLAGS |= {"skybox": mujoco.mjtRndFlag.mjRND_SKYBOX}


def differences(model, camera, size: int, without: tuple[str, ...]) -> list[float]:
    """Mean differences, of 255, between our pictures of some worlds and MuJoCo's."""
    simulation = scattered(model, WORLDS)
    ours = simulation.render(camera, size, size, outputs="rgb", without=without)["rgb"]
    assert ours.dtype == torch.uint8 and ours.shape == (WORLDS, size, size, 3)
    renderer, found, shown = mujoco.Renderer(model, size, size), [], []
    for world in range(WORLDS):
        renderer.update_scene(state(model, simulation, world), camera)
        for name in without:
            renderer.scene.flags[FLAGS[name]] = 0
        theirs = renderer.render()
        found.append(np.abs(theirs.astype(int) - ours[world].cpu().numpy()).mean())
        if theirs.std() > 5:  # a camera that rides on a body may see nothing from under the floor
            shown.append(found[-1] / np.abs(theirs - theirs.mean((0, 1))).mean())
    renderer.close()

    assert shown and max(shown) < 0.15  # of what a picture of one colour would be off
    return found


@pytest.mark.usefixtures("opengl")
@pytest.mark.parametrize(
    ("without", "most"),
    [((), 3.5), (("shadow",), 1.8), (("shadow", "reflection"), 0.8), (("shadow", "reflection", "skybox"), 0.8)],
)
def test_every_shape_texture_and_light_looks_as_in_mujoco(without, most):
    assert max(differences(mujoco.MjModel.from_xml_string(COLOURS), "ahead", 120, without)) < most


HAZE = """<mujoco><visual><quality offsamples="0"/><map haze="{haze}" zfar="9"/><rgba haze=".9 .2 .1 1"/></visual>
  <statistic extent="4"/>
  <asset><texture type="skybox" builtin="gradient" rgb1=".3 .5 .7" rgb2="0 0 .3" width="32" height="192"/></asset>
  <worldbody><light pos="0 0 9"/><camera name="c" pos="0 -3 {height}" xyaxes="1 0 0 0 .02 1"/>
    <geom type="plane" size="0 0 1" euler="{tilt} 5 0" rgba=".2 .6 .3 1"/>
    <geom type="box" size=".2 .2 .8" pos=".9 0 .5"/><geom size=".8" pos="-6 15 1"/>
    <body pos="0 0 .5"><freejoint/><geom size=".3"/></body></worldbody></mujoco>"""


@pytest.mark.usefixtures("opengl")
@pytest.mark.parametrize(("height", "haze", "tilt"), [(1, 0.3, 0), (3, 0.8, 4), (-1, 0.3, 0)])
def test_haze_hangs_over_endless_planes(height, haze, tilt):
    model = mujoco.MjModel.from_xml_string(HAZE.format(height=height, haze=haze, tilt=tilt))
    assert max(differences(model, "c", 120, ("shadow",))) < 0.8
    red = scattered(model, 1).render("c", 120, 120, outputs="rgb", without="shadow")["rgb"]
    model.vis.rgba.haze[:3] = 0.1, 0.1, 0.9
    blue = scattered(model, 1).render("c", 120, 120, outputs="rgb", without="shadow")["rgb"]
    assert (blue != red).any(-1).sum() > 500 if height > 0 else torch.equal(blue, red)


SHINY = """<mujoco><visual><quality offsamples="0"/><headlight specular=".1 .1 .1"/></visual><asset>
    <material name="m" rgba=".2 .3 .4 1" specular="1" shininess="{shininess}"/></asset><worldbody>
  <light directional="true" pos="0 0 9" dir="0 -1 -.5" diffuse=".4 .4 .4" specular="{specular}" castshadow="false"/>
  <camera name="c" pos="0 -3 {height}" xyaxes="1 0 0 0 .45 1"/><geom type="plane" size="10 10 .125" material="m"/>
  <body pos="0 4 3"><freejoint/><geom size=".1"/></body></worldbody></mujoco>"""


@pytest.mark.usefixtures("opengl")
@pytest.mark.parametrize("shininess", [0.2, 0.9])
@pytest.mark.parametrize("height", [0.4, 3.0])
def test_a_far_light_shines_on_a_floor_where_it_does_in_mujoco(height, shininess):
    """The highlight is some part of the picture, whose light alone is not the same everywhere."""
    text = SHINY.format(height=height, shininess=shininess, specular=".8 .8 .8")
    model = mujoco.MjModel.from_xml_string(text)
    assert max(differences(model, "c", 120, ())) < (0.005 if height < 1.0 else 0.6)  # low: at corners of cells
    bright, dull = (
        scattered(mujoco.MjModel.from_xml_string(x), 1).render("c", 120, 120, outputs="rgb")["rgb"].int()
        for x in (text, text.replace(".8 .8 .8", "0 0 0"))
    )
    lit = (bright - dull).amax(-1)
    assert (lit > 30).float().mean() > 0.2 and ((lit[:, 60:] == 0).float().mean() > 0.02 or shininess < 0.5)


IMAGES = """<mujoco><visual><quality offsamples="0"/></visual>
  <asset>
    <texture name="flat" type="2d" file="image.png"/><texture name="once" type="cube" file="image.png"/>
    <texture name="dice" type="cube" file="dice.png" gridsize="3 4" gridlayout=".U..LFRB.D.."/>
    <texture name="sides" type="cube" fileup="image.png" filefront="image.png"/>
    <material name="flat" texture="flat" texrepeat="3 2"/><material name="once" texture="once"/>
    <material name="dice" texture="dice"/><material name="sides" texture="sides"/>
    <mesh name="slab" vertex="-.4 0 -.4  .4 0 -.4  .4 0 .4  -.4 0 .4  0 .5 0" texcoord="0 0  1 0  1 1  0 1  .5 .5"
      face="0 1 2  0 2 3  1 0 4  2 1 4  3 2 4  0 3 4"/>
    <hfield name="hills" nrow="4" ncol="5" size="1 .8 .5 .1" elevation="0 1 0 2 0  1 3 2 1 0  0 2 4 1 3  0 1 0 2 0"/>
  </asset>
  <default><geom contype="0" conaffinity="0"/></default>
  <worldbody>
    <light pos="0 -2 4" dir="0 .4 -1" castshadow="false"/><camera name="c" pos="0 -4 1.6" xyaxes="1 0 0 0 .35 1"/>
    <geom type="plane" size="3 2 .1" material="flat"/>
    <geom type="hfield" hfield="hills" pos="0 2 .2" rgba=".7 .5 .2 1"/>
    <body pos="-1.2 0 .7"><freejoint/><geom type="box" size=".3 .4 .3" material="dice"/></body>
    <body pos="-.2 .3 .9"><freejoint/><geom type="ellipsoid" size=".4 .3 .4" material="sides"/></body>
    <body pos=".7 0 .7"><freejoint/><geom type="box" size=".3 .2 .3" material="once"/></body>
    <body pos="1.4 .2 .9"><freejoint/><geom type="mesh" mesh="slab" material="flat"/></body>
  </worldbody></mujoco>"""


@pytest.mark.usefixtures("opengl")
def test_images_look_as_in_mujoco(tmp_path):
    """On planes, boxes, meshes and ellipsoids; beside a height field of one colour."""
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    for name, height, width in (("image.png", 8, 8), ("dice.png", 12, 16)):
        spots = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
        image.fromarray(spots.repeat(4, 0).repeat(4, 1)).save(tmp_path / name)
    (tmp_path / "scene.xml").write_text(IMAGES)
    model = mujoco.MjModel.from_xml_path(str(tmp_path / "scene.xml"))
    assert max(differences(model, "c", 120, ("shadow",))) < 1.5


OBJECTS = """<mujoco><visual><quality offsamples="0" {quality}/>{visual}</visual>
  <asset><material name="mirror" reflectance=".5"/><material name="floor" rgba=".6 .7 .9 1" reflectance=".3"/>
    <texture name="tiles" type="2d" builtin="checker" rgb1=".2 .4 .6" rgb2=".7 .5 .3" width="64" height="64"
      colorspace="sRGB"/><material name="tiles" texture="tiles" texrepeat="3 2"/></asset>
  <worldbody>{lights}<camera name="c" pos="0 -3 1.4" xyaxes="1 0 0 0 .35 1"/>{before}
    <geom type="plane" size="4 3 .3" pos="0 0 -.4" material="{floor}"/>
    <body pos="-1.1 0 .4"><freejoint/><geom size=".35" rgba=".9 .2 .1 1" contype="0" conaffinity="0"/></body>
    <body pos=".6 0 .6" euler="20 30 40"><geom type="box" size=".2 .25 .3" rgba=".8 .5 .2 1"/></body>{after}
  </worldbody></mujoco>"""
DARK, LAMP = '<headlight active="0"/>', '<light pos="0 -1 3" diffuse=".6 .6 .6" castshadow="false"/>'
SCENES = {
    "no light": {"visual": DARK, "lights": ""},
    "lights beyond the eighth": {"lights": 12 * LAMP.replace(".6 .6 .6", ".1 .1 .1")},
    "only lights that do not shine": {"visual": DARK, "lights": '<light type="point"/><light type="image"/>'},
    "more than eight lights that do not shine": {"lights": 9 * '<light type="point" pos="0 0 3"/>' + LAMP},
    "a spot wider than 90 degrees": {"lights": LAMP.replace("/>", ' dir="0 1 0" cutoff="120" exponent="4"/>')},
    "shadows of size 0": {"quality": 'shadowsize="0"', "lights": LAMP.replace("false", "true")},
    "a site's shadow": {"lights": LAMP.replace("false", "true"), "after": '<site size=".3" pos="0 -.3 1"/>'},
    "two mirrors": {"after": '<geom type="plane" size=".9 .9 .1" pos="0 .8 .5" euler="80 0 0" material="mirror"/>'},
    "a mirror from behind": {
        "before": '<geom type="plane" size=".9 .9 .1" pos="0 .8 .5" euler="-100 0 0" material="mirror"/>'
    },
    "sRGB": {"floor": "tiles"},
}


@pytest.mark.usefixtures("opengl")
@pytest.mark.parametrize("name", SCENES)
def test_lights_mirrors_and_textures_work_as_in_mujoco(name):
    given = {"quality": "", "visual": "", "lights": LAMP, "before": "", "after": "", "floor": "floor"} | SCENES[name]
    assert max(differences(mujoco.MjModel.from_xml_string(OBJECTS.format(**given)), "c", 96, ())) < 1.0


TASKS = [(name, k) for name, cameras in HAVE.items() for k in range(-1, cameras)]


@pytest.mark.usefixtures("opengl")
@pytest.mark.parametrize(
    ("name", "camera"), [pytest.param(*x, marks=[] if x == ("HalfCheetah", 0) else pytest.mark.slow) for x in TASKS]
)
def test_the_tasks_look_as_in_mujoco(name, camera):
    model = gymnasium.make(f"{name}-v5").unwrapped.model
    model.vis.quality.offsamples = 0  # edges are compared elsewhere
    assert max(differences(model, camera, 84, ())) < 2.0
    assert max(differences(model, camera, 84, ("shadow", "reflection"))) < 1.5


def shown(inside: str) -> np.ndarray:
    """The colour of the middle of a picture from above, of 255. The camera's own light is dark."""
    model = mujoco.MjModel.from_xml_string(
        '<mujoco><visual><headlight ambient="0 0 0" diffuse="0 0 0" specular="0 0 0"/></visual><worldbody>'
        f'<camera pos="0 0 2"/>{inside}</worldbody></mujoco>'
    )
    picture = Simulation(model, 1).render(0, 17, 17, outputs="rgb")["rgb"]
    return picture[0, 8, 8].cpu().numpy()


FLOOR = '<geom type="plane" size="2 2 .01" rgba="1 .5 0 1"/>'


def test_a_light_fades_with_distance_and_away_from_its_axis():
    light = """<light pos=".5 0 1" dir="0 0 -1" cutoff="60" exponent="3" attenuation="1 .5 .2" diffuse=".9 .9 .9"
        specular="0 0 0"/>"""
    distance = np.sqrt(1.25)
    want = 0.9 / distance**4 / (1.0 + 0.5 * distance + 0.2 * distance**2)
    assert np.abs(shown(FLOOR + light) - 255 * want * np.array([1.0, 0.5, 0.0])).max() <= 1.5


@pytest.mark.parametrize("shadow", ["true", "false"])
def test_a_plane_of_few_cells_is_lit_at_their_corners(shadow):
    """The middle of the picture is half way between two, at x = -1 and 1."""
    light = f"""<light pos=".5 0 1" dir="0 0 -1" cutoff="80" exponent="1" attenuation="1 .5 .2" diffuse=".9 .9 .9"
        specular="0 0 0" castshadow="{shadow}"/>"""
    distance = np.sqrt((np.array([-1.0, 1.0]) - 0.5) ** 2 + 1)
    want = (0.9 / distance**2 / (1.0 + 0.5 * distance + 0.2 * distance**2)).mean()
    floor = '<geom type="plane" size="2 2 2" pos="1 0 0" rgba="1 .5 0 1"/>'
    assert np.abs(shown(floor + light) - 255 * want * np.array([1.0, 0.5, 0.0])).max() <= 1.5


def test_a_shadow_takes_all_of_a_light():
    light = '<light pos="1 0 1" dir="-1 0 -1" directional="true" ambient=".2 .2 .2" specular="0 0 0"/>'
    want = 255 * (0.2 + 0.7 * np.sqrt(0.5)) * np.array([1.0, 0.5, 0.0])
    assert np.abs(shown(FLOOR + light) - want).max() <= 1.5
    assert (shown(f'{FLOOR}{light}<geom size=".2" pos=".5 0 .5"/>') == 0).all()
    assert (shown(f'{FLOOR}{light}<geom size=".2" pos="-.5 0 .5"/>') > 0).any()
    assert (shown(f'{FLOOR}{light}<geom size=".2" pos="1.5 0 1.5"/>') > 0).any()  # behind the light


@pytest.mark.parametrize("kind", ['directional="true"', 'cutoff="60" attenuation=".1 0 0"'], ids=["far", "spot"])
@pytest.mark.parametrize("shape", ['size="2.5"', 'type="box" size="2.5 2.5 2.5"', 'type="capsule" size="2 1"'])
def test_a_shape_is_in_the_way_of_a_light_on_what_is_inside_it(shape, kind):
    """As a camera in there sees."""
    light = f'<light pos="5 0 5" dir="-1 0 -1" {kind} specular="0 0 0"/>'
    assert (shown(f"{FLOOR}{light}")[:2] > 0).all()
    assert (shown(f"{FLOOR}{light}<geom {shape}/>") == 0).all()


def test_what_is_behind_glass_is_seen_through_both_of_its_sides():
    lamp = """<light pos="0 0 9" dir="0 0 -1" directional="true" ambient="1 1 1" diffuse="0 0 0" specular="0 0 0"
        castshadow="false"/>"""
    assert shown(f'{lamp}{FLOOR}<geom size=".2" pos="0 0 .5" rgba="0 0 1 .5"/>').tolist() == [64, 32, 191]


def test_what_is_transparent_planes_and_sites_cast_shadows():
    lamp = '<light pos="1 0 1" dir="-1 0 -1" directional="true" specular="0 0 0"/>'
    for inside, dark in (
        ('<geom size=".2" pos=".5 0 .5" rgba="1 1 1 .5"/>', True),
        ('<geom type="plane" size=".3 .3 .1" pos=".5 0 .5" zaxis="1 0 1"/>', True),
        ('<geom type="plane" size=".3 .3 .1" pos="-.5 0 .5" zaxis="1 0 1"/>', False),
        ('<site size=".2" pos=".5 0 .5"/>', True),
    ):
        assert (shown(f"{FLOOR}{lamp}{inside}") == 0).all() == dark


@pytest.mark.parametrize(
    ("axis", "alpha", "share"),
    [("0 0 1", 0.5, 0.75), ("0 0 -1", 0.5, 1 - 0.85**2), ("0 0 1", 1.0, 1.0), ("0 0 -1", 1.0, 1 - 0.7**2)],
)
def test_a_plane_is_fainter_from_behind(axis, alpha, share):
    """As MuJoCo draws it: twice, and from behind with 0.3 of its alpha."""
    lamp = """<light pos="0 0 9" dir="0 0 -1" directional="true" ambient="1 1 1" diffuse="0 0 0" specular="0 0 0"
        castshadow="false"/>"""
    pane = f'<geom type="plane" size=".5 .5 .1" pos="0 0 .5" zaxis="{axis}" rgba="0 0 1 {alpha}"/>'
    seen = shown(f"{lamp}{FLOOR}{pane}")
    assert np.abs(seen - 255 * np.array([1 - share, (1 - share) / 2, share])).max() <= 1.5


def test_colours_are_the_same_to_the_last_bit_in_any_batch_and_float64_agrees():
    model = mujoco.MjModel.from_xml_string(COLOURS)
    simulation = scattered(model, WORLDS)
    whole = simulation.render("ahead", 40, 30, outputs="rgb")["rgb"].clone()
    assert torch.equal(simulation.render("ahead", 40, 30, outputs="rgb", worlds=[2])["rgb"][0], whole[2])
    precise = scattered(model, WORLDS, torch.float64).render("ahead", 40, 30, outputs="rgb")["rgb"]
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1 if threads > 1 else 2)
        assert torch.equal(simulation.render("ahead", 40, 30, outputs="rgb")["rgb"], whole)
    finally:
        torch.set_num_threads(threads)
    apart = (precise.int() - whole.int()).abs()
    assert (apart <= 1).float().mean() > 0.98  # the rest is at edges


@pytest.mark.cpu
def test_a_gpu_draws_the_same_colours_to_the_last_bit(monkeypatch):
    """The PTX of both kernels, run by an interpreter."""
    recipes, build = [], picture.build
    monkeypatch.setattr(picture, "build", lambda recipe, device: (recipes.append(recipe), build(recipe, device))[1])
    simulation = scattered(mujoco.MjModel.from_xml_string(COLOURS), 1)
    simulation.render("ahead", 16, 12, outputs="rgb")
    ((made, _),) = simulation._pictures.values()
    (recipe, launch) = recipes[1], made._draw
    theirs = [
        torch.full_like(x, 77) if b.name == "rgb" else x for b, x in zip(recipe.buffers, launch.tensors, strict=True)
    ]
    Machine(cuda.assembly(recipe.record())).launch(theirs, 16 * 12)
    for b, mine, its in zip(recipe.buffers, launch.tensors, theirs, strict=True):
        np.testing.assert_array_equal(its.numpy(), mine.numpy(), err_msg=b.name)


def test_the_sky_of_a_camera_that_never_turns_is_that_of_one_that_may():
    """The first is drawn once, the second in every picture."""
    pose = 'pos="0 -4 1.4" xyaxes="1 .2 0 0 .35 1"'
    riding = f'<body><freejoint/><geom size=".01" pos="0 -5 0"/><camera name="riding" {pose}/></body></worldbody>'
    text = COLOURS.replace("</worldbody>", f'<camera name="still" {pose}/>{riding}')
    simulation = Simulation(text, 1)
    still, riding = (simulation.render(x, 40, 30, outputs="rgb")["rgb"].int() for x in ("still", "riding"))
    names = [[b.name for b in made._draw.kernel.buffers] for made, _ in simulation._pictures.values()]
    assert ["sky" in x for x in names] == [True, False]
    assert (still - riding).abs().max() <= 1 and still.float().std() > 10


def test_a_world_of_nan_shows_the_sky_and_its_floor():
    simulation = scattered(mujoco.MjModel.from_xml_string(COLOURS), 2)
    before = simulation.render("ahead", 40, 30, outputs="rgb")["rgb"].clone()
    simulation.qpos[1] = float("nan")
    after = simulation.render("ahead", 40, 30, outputs="rgb")["rgb"]
    assert torch.equal(after[0], before[0]) and not torch.equal(after[1], before[1])
    assert torch.equal(after[1, 0, 39], before[1, 0, 39])  # a corner, with nothing but sky


# A mesh of each kind, a height field and a plane, each alone, with a texture in which every place looks different.
TEXTURED = """<mujoco><visual><quality offsamples="0"/></visual>
  <asset><texture name="t" type="{kind}" builtin="gradient" mark="edge" rgb1=".9 .2 .1" rgb2=".1 .3 .9" markrgb="1 1 1"
      width="40" height="{height}"/><material name="m" texture="t" texrepeat="3 2" texuniform="{uniform}"/>
    <hfield name="hills" nrow="4" ncol="5" size=".6 .4 .3 .1" elevation="0 0 0 0 0  0 3 1 4 0  0 9 2 6 0  0 0 0 0 0"/>
    <mesh name="ball" builtin="sphere" params="3" scale=".3 .4 .25"/>
    <mesh name="slab" vertex="-.2 0 -.3  .4 0 -.3  .3 .1 .3  -.3 0 .3  0 .4 0" texcoord="0 0  1 0  1 1  0 1  .5 .5"
      face="0 1 2  0 2 3  1 0 4  2 1 4  3 2 4  0 3 4"/></asset>
  <worldbody><light pos="1 -2 3" castshadow="false"/><camera name="c" pos="0 -1.6 1.3" xyaxes="1 0 0 0 .6 1"/>
    <body euler="15 20 30"><geom name="it" {shape} material="m" contype="0" conaffinity="0"/></body>
  </worldbody></mujoco>"""
SHAPED = {
    "a plane": 'type="plane" size=".5 .4 .1"',
    "a height field": 'type="hfield" hfield="hills"',
    "a mesh": 'type="mesh" mesh="ball"',
    "a mesh with coordinates": 'type="mesh" mesh="slab"',
}


def textured(kind: str, shape: str, uniform: str = "false") -> mujoco.MjModel:
    height = 24 if kind == "2d" else 40
    return mujoco.MjModel.from_xml_string(TEXTURED.format(kind=kind, height=height, shape=shape, uniform=uniform))


@pytest.mark.usefixtures("opengl")
@pytest.mark.parametrize("uniform", ["false", "true"])
@pytest.mark.parametrize(
    ("kind", "name"), [*(("2d", name) for name in SHAPED), *(("cube", name) for name in list(SHAPED)[:3])]
)
def test_a_texture_lies_where_it_does_in_mujoco(kind, name, uniform):
    model = textured(kind, SHAPED[name], uniform)
    assert max(differences(model, "c", 96, ())) < 0.25


@pytest.mark.parametrize(
    ("kind", "shape", "reason"),
    [
        ("2d", 'size=".1"', "textures of type 2d are for planes, meshes and height fields"),
        ("cube", SHAPED["a mesh with coordinates"], "a mesh with texcoord needs one of type 2d"),
        ("2d", 'type="plane" size="0 .4 .1"', "the plane is endless along one axis only"),
    ],
)
def test_a_texture_that_would_lie_elsewhere_is_refused(kind, shape, reason):
    simulation = Simulation(textured(kind, shape), 1)
    with pytest.raises(UnsupportedModel, match=f"texture of geom 'it' .*: {reason}"):
        simulation.render(outputs="rgb")


@pytest.mark.parametrize(("channels", "alpha", "refused"), [(4, 128, True), (4, 255, False), (3, 128, False)])
def test_a_texture_that_is_transparent_in_parts_is_refused(tmp_path, channels, alpha, refused):
    image = pytest.importorskip("PIL.Image")
    texels = np.full((8, 8, 4), 255, np.uint8)
    texels[:4, :, 3] = alpha
    image.fromarray(texels).save(tmp_path / "glass.png")
    model = mujoco.MjModel.from_xml_string(
        f"""<mujoco><asset><texture name="t" type="2d" file="{tmp_path}/glass.png" nchannel="{channels}"/>
        <material name="m" texture="t"/></asset>
        <worldbody><geom type="plane" size="1 1 1" material="m"/></worldbody></mujoco>"""
    )
    simulation = Simulation(model, 1)
    if not refused:
        simulation.render(width=8, height=8, outputs="rgb")
        return
    with pytest.raises(UnsupportedModel, match="parts of it are transparent"):
        simulation.render(outputs="rgb")


@pytest.mark.usefixtures("opengl")
def test_four_samples_smooth_edges_as_mujocos():
    model = gymnasium.make("Reacher-v5").unwrapped.model
    simulation = scattered(model, 1)
    renderer = mujoco.Renderer(model, 84, 84)
    renderer.update_scene(state(model, simulation, 0))
    theirs = renderer.render().astype(int)
    renderer.close()
    smooth, plain = (
        np.abs(simulation.render(-1, 84, 84, outputs="rgb", samples=n)["rgb"][0].cpu().numpy() - theirs).mean()
        for n in (4, 1)
    )
    assert smooth < 0.6 and smooth < 0.6 * plain


def test_an_unknown_effect_is_named():
    with pytest.raises(ValueError, match="samples must be one of"):
        Simulation(COLOURS, 1).render("ahead", samples=2)
    with pytest.raises(ValueError, match=r"unknown effects \['glare'\]"):
        Simulation(COLOURS, 1).render("ahead", without="glare")

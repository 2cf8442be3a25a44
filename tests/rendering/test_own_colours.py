"""Colours, lights and cameras of each world's own, against MuJoCo's renderer with an `MjModel` that has them."""

from __future__ import annotations

import copy
import types

import mujoco
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode

from torch_mjenvs import TASKS, Shift, Simulation, Start, TorchVectorEnv, Uniform
from torch_mjenvs.physics.simulation_kernels import program

# Two lights, one of which follows a body; materials that are shown, overridden, textured and see-through.
SCENE = """<mujoco><visual><quality offsamples="0" shadowsize="1024"/>
    <headlight diffuse=".3 .3 .3" specular=".1 .1 .1"/></visual>
  <asset><texture name="grid" type="2d" builtin="checker" width="64" height="64" rgb1=".9 .9 .9" rgb2=".4 .4 .4"/>
    <texture type="skybox" builtin="gradient" rgb1=".3 .5 .7" rgb2="0 0 0" width="32" height="32"/>
    <material name="floor" texture="grid" texrepeat="4 4" reflectance="{reflectance}"/>
    <material name="red" rgba=".8 .2 .2 1" specular=".6"/><material name="glass" rgba=".2 .4 .9 .4"/></asset>
  <worldbody><light pos="1 -1 3" dir="-.3 .3 -1" diffuse=".6 .6 .6"/>
    <camera name="fixed" pos="0 -3 1.5" xyaxes="1 0 0 0 .4 1"/>
    <geom name="floor" type="plane" size="{size}" material="floor"/>
    <body name="body" pos="0 0 .5"><freejoint/><light mode="trackcom" pos="-1 -2 2" dir=".3 .6 -1" diffuse=".3 .3 .3"
        directional="true" castshadow="false"/>
      <camera name="track" mode="track" pos=".5 -3 1" xyaxes="1 .1 0 0 .4 1"/>
      <geom name="ball" size=".3"/><geom name="box" material="red" type="box" size=".2 .2 .2" pos=".6 0 0"/>
      <geom material="red" rgba=".1 .7 .1 1" type="capsule" size=".1 .2" pos="-.6 0 0"/>
      <geom name="glass" type="cylinder" material="glass" size=".15 .2" pos=".2 -.6 0"/>
      <site pos="0 0 .6" size=".12" rgba="1 1 0 1"/><site pos="0 .6 .4" size=".1" material="red"/></body>
    <body pos="-1 .5 .6"><joint type="slide"/><geom size=".05"/><site name="end" size=".02"/></body>
    <site name="begin" pos="-1 -.5 1"/></worldbody>
  <tendon><spatial width=".03" material="red"><site site="begin"/><site site="end"/></spatial></tendon></mujoco>"""
COLOURS = ("geom_rgba", "site_rgba", "mat_rgba")
LIGHTS, CAMERAS = ("light_pos", "light_dir", "light_diffuse"), ("cam_pos", "cam_quat")
WORLDS, SIZE = 2, 64


def scene(size: str = "3 3 .2", reflectance: float = 0.2) -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(SCENE.format(size=size, reflectance=reflectance))


def drawn(mjm: mujoco.MjModel, names: tuple[str, ...]) -> dict[str, torch.Tensor]:
    """Values for each world that make sense; in the last world some geoms show the colours of their materials."""
    rng, found = np.random.default_rng(0), {}
    for name in names:
        usual = np.repeat(getattr(mjm, name)[None].astype(float), WORLDS, 0)
        new = usual + rng.normal(0, 0.2 if name != "cam_quat" else 0.05, usual.shape)
        if name.endswith(("rgba", "diffuse")):
            new = rng.uniform(0, 0.9, usual.shape)
        if name in COLOURS:
            new[..., 3] = usual[..., 3]
        if name == "geom_rgba":
            new[:, mjm.geom("glass").id] = usual[:, mjm.geom("glass").id]
            new[-1, mjm.geom("box").id :] = usual[-1, mjm.geom("box").id :]
        found[name] = torch.tensor(new, dtype=torch.float32)
    return found


def of_mujoco(mjm: mujoco.MjModel, simulation: Simulation, camera: str, world: int, without: tuple[str, ...]):
    """MuJoCo's picture of a world."""
    own = copy.deepcopy(mjm)
    for name, x in simulation.params.items():
        values = x[world].double().numpy()
        if name == "cam_quat":
            values = values / np.linalg.norm(values, axis=-1, keepdims=True)
        getattr(own, name)[:] = values
    d = mujoco.MjData(own)
    mujoco.mj_setConst(own, d)
    d.qpos[:] = simulation.qpos[world].numpy()
    mujoco.mj_forward(own, d)
    renderer = mujoco.Renderer(own, SIZE, SIZE)
    renderer.update_scene(d, camera)
    for name in without:
        renderer.scene.flags[getattr(mujoco.mjtRndFlag, f"mjRND_{name.upper()}")] = 0
    found = renderer.render()
    renderer.close()
    return found


@pytest.mark.usefixtures("opengl")
@pytest.mark.parametrize(
    ("names", "camera", "size", "without", "most"),
    [
        (COLOURS, "fixed", "3 3 .2", (), 1.0),
        (COLOURS, "fixed", "3 3 2", ("shadow",), 0.7),  # a plane that is lit at nine corners
        (("mat_rgba",), "fixed", "0 0 .2", ("shadow", "reflection"), 0.7),
        (LIGHTS, "fixed", "3 3 .2", ("reflection",), 1.0),
        (COLOURS + LIGHTS + CAMERAS, "track", "0 0 .2", (), 1.2),
        (LIGHTS + CAMERAS, "fixed", "3 3 2", ("shadow", "reflection"), 0.7),
    ],
)
def test_each_world_has_its_own_colours_lights_and_cameras(names, camera, size, without, most):
    mjm = scene(size)
    simulation = Simulation(mjm, WORLDS, vary=names)
    simulation.qpos[:, :3] += torch.linspace(0, 0.2, WORLDS)[:, None]
    before = simulation.render(camera, SIZE, SIZE, outputs="rgb", without=without)["rgb"].clone()
    simulation.set_params(drawn(mjm, names))
    ours = simulation.render(camera, SIZE, SIZE, outputs="rgb", without=without)["rgb"]
    for world in range(WORLDS):
        theirs = of_mujoco(mjm, simulation, camera, world, without).astype(int)
        assert np.abs(theirs - ours[world].numpy()).mean() < most
        assert np.abs(theirs - before[world].numpy()).mean() > 3 * most


def test_the_models_own_values_give_the_same_bits_and_depth_knows_no_colours():
    mjm, outputs = scene(), ("rgb", "depth", "segmentation")
    simulation, plain = Simulation(mjm, WORLDS, vary=COLOURS + LIGHTS), Simulation(mjm, WORLDS)
    want = plain.render("fixed", SIZE, SIZE, outputs)
    for name, x in simulation.render("fixed", SIZE, SIZE, outputs).items():
        assert torch.equal(x, want[name])
    simulation.set_params(drawn(mjm, COLOURS + LIGHTS))
    found = simulation.render("fixed", SIZE, SIZE, outputs)
    assert torch.equal(found["depth"], want["depth"]) and torch.equal(found["segmentation"], want["segmentation"])
    assert not torch.equal(found["rgb"], want["rgb"])


def test_physics_knows_no_colours():
    """Whatever they are: a step does what it did, by as many operations, and its gradients by them are 0."""
    mjm = scene()
    simulation, plain = Simulation(mjm, WORLDS, vary=COLOURS + LIGHTS), Simulation(mjm, WORLDS)
    for x in simulation.params.values():
        x.fill_(torch.nan)
    simulation.step(20), plain.step(20)
    assert torch.equal(simulation.qpos, plain.qpos)
    assert simulation.model.digest == plain.model.digest
    counts = [program(x._request, "float32").count_ops() for x in (simulation, plain)]
    assert counts[0] == counts[1]
    assert not simulation.linearize(params=("geom_rgba",)).P.any()
    assert torch.equal(simulation.transition().qpos, plain.transition().qpos)


@pytest.mark.parametrize(
    ("name", "row", "column"), [("geom_rgba", "ball", 3), ("geom_rgba", "glass", 0), ("mat_rgba", 2, 3)]
)
def test_what_is_see_through_is_the_models(name, row, column):
    mjm = scene()
    simulation = Simulation(mjm, WORLDS, vary=COLOURS)
    values = simulation.params[name].clone()
    values[1, mjm.geom(row).id if isinstance(row, str) else row, column] = 0.7
    with pytest.raises(ValueError, match=f"{name} of world 1 makes no sense: what is see-through"):
        simulation.set_params({name: values})


def test_what_is_less_see_through_than_in_the_model_is_not_drawn():
    """Where alpha is written into `params`, which is not checked. No other shape and no other world changes."""
    mjm = scene(reflectance=0.0)
    simulation, ball = Simulation(mjm, 2, vary=("geom_rgba",)), mjm.geom("ball").id
    before = {k: x.clone() for k, x in simulation.render("fixed", 48, 48, ("rgb", "segmentation")).items()}
    simulation.params["geom_rgba"][1, ball, 3] = 0.5
    after = simulation.render("fixed", 48, 48, ("rgb", "segmentation"))
    assert torch.equal(after["rgb"][0], before["rgb"][0])
    seen, was = after["segmentation"][1], before["segmentation"][1]
    there, still = ((x == torch.tensor([ball, int(mujoco.mjtObj.mjOBJ_GEOM)])).all(-1) for x in (was, seen))
    assert there.any() and not still.any()
    assert torch.equal(seen[~there], was[~there])


@pytest.mark.usefixtures("opengl")
@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_episodes_begin_with_colours_of_their_own(mode):
    """The last picture of an episode has the old ones, and frames by OpenGL are as these pictures."""
    options = {"max_episode_steps": 2, "autoreset_mode": mode, "pixels": {"width": 64, "height": 64, "camera": 0}}
    options["randomize"] = {
        "geom_rgba": Uniform((0, 0, 0, 1), (1, 1, 1, 1)),
        "light_diffuse": Uniform(0.4, 0.9, together=True),
        "cam_pos": Shift(-0.3, 0.3),
    }
    env, other = (TorchVectorEnv("Hopper", 3, render_mode="rgb_array", **options) for _ in range(2))
    env.unwrapped.model.vis.quality.offsamples = 0
    pictures, _ = env.reset(seed=0)
    assert torch.equal(other.reset(seed=0)[0], pictures)
    assert all((pictures[i].float() - pictures[i - 1].float()).abs().mean() > 5 for i in range(3))
    first, idle = env.params["geom_rgba"].clone(), torch.zeros(env.action_space.shape)
    for world in range(3):
        with env._camera.showing(world) as shown:
            renderer = mujoco.Renderer(shown.model, 64, 64)
            renderer.update_scene(shown.data, 0)
            assert np.abs(renderer.render().astype(int) - pictures[world].numpy()).mean() < 1.2
            renderer.close()
    env.step(idle)
    assert torch.equal(env.params["geom_rgba"], first)
    *_, info = env.step(idle)
    if mode is AutoresetMode.NEXT_STEP:
        env.step(idle)
    assert ((env.params["geom_rgba"] - first).abs()[..., :3] > 0).all() and (env.params["geom_rgba"][..., 3] == 1).all()
    if mode is AutoresetMode.SAME_STEP:
        assert (info["final_obs"].float() - pictures.float()).abs().mean() < 5


class Drawing(TASKS["Hopper"]):
    """Draws the floor's colour, near the model's."""

    def randomize(self, m, rng):
        rows = [[*row] for row in m.geom_rgba]
        floor = m.geom("floor")
        rows[floor.id][:3] = [0.5 * floor.rgba[0], rng.uniform(0, 1), 0.25]
        return {"geom_rgba": rows}


class Setting(TASKS["Hopper"]):
    """Sets the floor's colour when an episode begins."""

    reset_parameters = types.MappingProxyType({"geom_rgba": ["floor"]})

    def reset(self, m, rng):
        return Start(*super().reset(m, rng), parameters=Drawing.randomize(self, m, rng))


@pytest.mark.parametrize("task", [Drawing, Setting])
def test_a_task_gives_colours_by_what_the_model_has(task):
    env = TorchVectorEnv(task(), 3, pixels={"width": 16, "height": 16})
    pictures, _ = env.reset(seed=0)
    colours, usual = env.params["geom_rgba"], torch.tensor(env.unwrapped.model.geom_rgba)
    assert torch.equal(colours[:, 1:], usual[1:].expand(3, -1, -1))
    torch.testing.assert_close(colours[:, 0, [0, 2]], torch.stack([0.5 * usual[0, 0], torch.tensor(0.25)]).expand(3, 2))
    greens = colours[:, 0, 1]
    assert greens.unique().numel() == 3
    assert (pictures[:, -1].float().mean(1)[:, 1].argsort() == greens.argsort()).all()


def test_bounds_that_would_change_what_is_see_through_are_refused():
    with pytest.raises(ValueError, match="randomize 'geom_rgba' can give values that make no sense: what is see-thr"):
        TorchVectorEnv("Hopper", 2, randomize={"geom_rgba": (0.5, 1.5)})


def test_sensors_of_cameras_that_vary_are_mujocos():
    mjm = mujoco.MjModel.from_xml_string("""<mujoco><worldbody><geom size=".1" pos="1 0 0"/><site name="s" pos="1 0 0"/>
        <body><freejoint/><geom size=".1"/><camera name="c" pos=".1 .2 .3" resolution="64 48"/></body></worldbody>
        <sensor><framepos objtype="camera" objname="c"/><framequat objtype="camera" objname="c"/>
        <framelinvel objtype="camera" objname="c"/><camprojection camera="c" site="s"/></sensor></mujoco>""")
    simulation = Simulation(mjm, 2, dtype=torch.float64, vary=CAMERAS, outputs=("sensordata",))
    rng = np.random.default_rng(0)
    values = {"cam_pos": rng.normal(size=(2, 1, 3)), "cam_quat": rng.normal(size=(2, 1, 4))}
    values["cam_quat"] /= np.linalg.norm(values["cam_quat"], axis=-1, keepdims=True)
    simulation.set_params(values)
    velocities = rng.normal(size=(2, 6))
    simulation.qvel.copy_(torch.tensor(velocities))
    simulation.forward()
    for world in range(2):
        for name, x in values.items():
            getattr(mjm, name)[:] = x[world]
        d = mujoco.MjData(mjm)
        d.qvel[:] = velocities[world]
        mujoco.mj_forward(mjm, d)
        np.testing.assert_allclose(simulation.sensordata[world].cpu(), d.sensordata, rtol=1e-10, atol=1e-10)

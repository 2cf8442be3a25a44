"""Frames. They need an OpenGL that draws without a screen: MUJOCO_GL=egl (which is tried) or osmesa."""

from __future__ import annotations

import importlib.util
import itertools
import os
import runpy
from dataclasses import dataclass
from pathlib import Path

import gymnasium
import imageio.v3 as iio
import mujoco
import numpy as np
import processes
import pytest
import torch

from torch_mjenvs import Outcome, Task, TorchEnv, TorchVectorEnv
from torch_mjenvs.__main__ import main
from torch_mjenvs.envs.camera import before_opengl, endless_floors
from torch_mjenvs.wrappers import RecordVideo, tile_images

TASKS = ["HalfCheetah", "Walker2d", "Hopper"]


def why_no_frames() -> str | None:
    """What keeps Gymnasium's own environment from drawing."""
    env = gymnasium.make("Hopper-v5", render_mode="rgb_array", width=16, height=16)
    env.reset()
    try:
        env.render()
    except Exception as error:  # each backend has its own
        return f"no OpenGL to draw with, MUJOCO_GL={os.environ.get('MUJOCO_GL')}: {error!r}"
    env.close()
    return None


@pytest.fixture(scope="module", autouse=True)
def opengl():
    """Skips where nothing can be drawn. The backend is chosen when the first viewer is made."""
    with pytest.MonkeyPatch.context() as patch:
        if "MUJOCO_GL" not in os.environ and "DISPLAY" not in os.environ:
            patch.setenv("MUJOCO_GL", "egl")
        before_opengl()
        reason = why_no_frames()
        if reason:
            pytest.skip(reason)
        yield


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs Triton, which torch's CUDA builds bring")
def test_torch_compiles_after_a_frame():
    """In a process of its own. Before: a segmentation fault within Triton, once Mesa's LLVM was there."""
    code = (
        "import gymnasium, torch_mjenvs\n"
        "env = gymnasium.make('TorchHopper-v0', render_mode='rgb_array', width=16, height=16)\n"
        "env.reset(seed=0), env.render()\n"
        "import triton, torchrl\n"
    )
    processes.run(code, seconds=120)


@pytest.mark.parametrize("name", TASKS)
def test_frame_is_gymnasiums(name):
    """The same state gives the same picture, in every mode, as the v5 environment with the same arguments."""
    small = {"width": 64, "height": 48}
    first = {} if name == "Hopper" else small  # in the default size, which takes seconds to draw, once
    for mode, arguments in (("rgb_array", first), ("depth_array", small), ("rgb_array", small | {"camera_id": 0})):
        ours = gymnasium.make(f"Torch{name}-v0", render_mode=mode, device=torch.get_default_device(), **arguments)
        real = gymnasium.make(f"{name}-v5", render_mode=mode, **arguments)
        ours.reset(seed=0), real.reset(seed=0)
        real.unwrapped.set_state(ours.unwrapped.qpos, ours.unwrapped.qvel)
        picture, expected = ours.render(), real.render()
        assert picture.shape == expected.shape and picture.dtype == expected.dtype
        np.testing.assert_array_equal(picture, expected)
        assert len(np.unique(picture)) > 20
        ours.close(), real.close()


def test_rgbd_tuple_gives_colours_and_depth():
    env = TorchEnv("Hopper", render_mode="rgbd_tuple", width=64, height=48, device=torch.get_default_device())
    env.reset(seed=0)
    rgb, depth = env.render()
    assert rgb.shape == (48, 64, 3) and depth.shape == (48, 64)
    env.close()


def test_frames_of_the_chosen_worlds():
    """Each its own, not one picture twice, and nothing of the simulation moves."""
    env = TorchVectorEnv("Walker2d", 5, render_mode="rgb_array", render_worlds=(4, 0), width=96, height=64)
    env.reset(seed=0)
    qpos = env.qpos.clone()
    qpos[4, 2] = 1.2  # tilted
    env.set_state(qpos, env.qvel.clone())
    before = env.qpos.clone()
    tilted, upright = env.render()
    assert tilted.shape == upright.shape == (64, 96, 3)
    assert (tilted != upright).any(2).mean() > 0.01
    assert env.qpos.equal(before)
    again = env.render()
    np.testing.assert_array_equal(again[0], tilted)
    np.testing.assert_array_equal(again[1], upright)
    for _ in range(20):
        env.step(torch.ones(5, 6))
    assert (env.render()[1] != upright).any()
    env.close()


def test_a_picture_shows_a_worlds_own_parameters():
    """As Gymnasium's environment draws a model with these numbers; the model itself stays as it was loaded."""
    seen = {"default_camera_config": {"lookat": np.zeros(3), "distance": 2.0}}  # else from where the geoms are
    small = {"render_mode": "rgb_array", "width": 64, "height": 48} | seen
    env = TorchVectorEnv("InvertedPendulum", 2, vary=["geom_size", "body_pos"], **small)
    env.reset(seed=0)
    sizes, places = env.params["geom_size"].clone(), env.params["body_pos"].clone()
    sizes[1], places[1, 1, 2] = sizes[1] * 1.5, 0.2
    env.set_params({"geom_size": sizes, "body_pos": places})
    loaded, frames = env.model.geom_size.copy(), env.render()
    for i in range(2):
        real = gymnasium.make("InvertedPendulum-v5", **small)
        real.reset()
        real.unwrapped.model.geom_size[:] = sizes[i].cpu().numpy()
        real.unwrapped.model.body_pos[:] = places[i].cpu().numpy()
        real.unwrapped.set_state(*(x[i].double().cpu().numpy() for x in (env.qpos, env.qvel)))
        np.testing.assert_array_equal(frames[i], real.render())
        real.close()
    assert (frames[0] != frames[1]).any(2).mean() > 0.02
    np.testing.assert_array_equal(env.model.geom_size, loaded)
    env.close()


TARGET = """<mujoco><worldbody><light pos="0 0 3"/><camera name="above" pos="0 0 3"/>
<body name="target"><geom name="target" size=".2" rgba="1 0 0 1" contype="0" conaffinity="0"/></body>
<body><joint type="slide" axis="1 0 0"/><geom size=".05" pos="0 -.8 0"/></body></worldbody></mujoco>"""


@dataclass(frozen=True)
class Pointing(Task):
    """Shows a geom, which lies where its body does, somewhere else."""

    xml_file: str = ""
    frame_skip: int = 1

    def load(self):
        return mujoco.MjModel.from_xml_string(TARGET)

    def reset(self, m, rng):
        return [0.0], [0.0]

    def observe(self, m, world):
        return world.qpos

    def outcome(self, m, before, action, after):
        return Outcome(0.0)

    def pictured(self, mjm, memory):
        return {"geom_pos": {(mjm.geom("target").id, 0): 0.8}}


def test_what_is_moved_in_pictures_is_moved_where_it_lay_in_its_bodys_frame():
    size = {"width": 64, "height": 64}
    drawn = TorchVectorEnv(Pointing(), 1, render_mode="rgb_array", camera_name="above", **size)
    drawn.reset()
    pixels, _ = TorchVectorEnv(Pointing(), 1, pixels={"camera": "above", **size}).reset()
    columns = []
    for picture in (drawn.render()[0], pixels[0].cpu().numpy()):
        red = (picture[..., 0] > 100) & (picture[..., 1] < 60)
        columns.append(np.nonzero(red)[1].mean())
    assert abs(columns[0] - columns[1]) < 1 and columns[0] > 45


def test_environments_that_draw_by_turns_keep_their_own_skies():
    """Each has an OpenGL context of its own; textures are those of the one that is current."""

    def frames(names: list[str]) -> list[np.ndarray]:
        envs = [TorchVectorEnv(name, render_mode="rgb_array", width=48, height=32) for name in names]
        for env in envs:
            env.reset(seed=0)
        seen = [env.render()[0] for env in (*envs, *envs)]
        for env in envs:
            env.close()
        return seen[-len(envs) :]

    names = ["HalfCheetah", "Hopper"]  # a grey sky and a blue one
    together, alone = frames(names), [frames([name])[0] for name in names]
    assert (together[0][0] != together[1][0]).all()
    for a, b in zip(together, alone, strict=True):
        np.testing.assert_array_equal(a, b)


def test_camera_arguments():
    frames = []
    for config in (None, {"distance": 8.0}, {"distance": 8.0, "lookat": (0.0, 0.0, 1.0)}):
        env = TorchVectorEnv("Hopper", render_mode="rgb_array", default_camera_config=config, width=64, height=64)
        env.reset(seed=0)
        frames.append(env.render()[0])
        env.close()
    assert (frames[0] != frames[1]).any() and (frames[1] != frames[2]).any()


@pytest.mark.parametrize("record", [gymnasium.wrappers.vector.RecordVideo, RecordVideo])
def test_record_video(tmp_path, record):
    chosen = {} if record is gymnasium.wrappers.vector.RecordVideo else {"render_worlds": (3, 1)}
    env = gymnasium.make_vec("TorchHopper-v0", 4, render_mode="rgb_array", width=64, height=48, **chosen)
    env = record(env, str(tmp_path), video_length=3, video_aspect_ratio=(1, 1))
    env.reset(seed=0)
    shape = env.recorded_frames[0].shape
    for _ in range(4):
        env.step(torch.zeros(4, 3))
    env.close()
    assert shape[0] * shape[1] == 48 * 64 * (2 if chosen else 4)
    assert list(tmp_path.glob("*.mp4"))


def test_a_window_shows_one_world_at_every_step(monkeypatch):
    """The window is Gymnasium's; what it is handed is looked at here."""
    from gymnasium.envs.mujoco.mujoco_rendering import MujocoRenderer

    shown: list = []
    monkeypatch.setattr(MujocoRenderer, "render", lambda self, mode: shown.append((mode, self.data.qpos.copy())))
    with pytest.raises(ValueError, match=r"a window shows one world: name it by render_worlds=\[0\], not 3"):
        TorchVectorEnv("Hopper", 3, render_mode="human")
    env = TorchVectorEnv("Hopper", 3, render_mode="human", render_worlds=[1])
    seen = [env.reset(seed=0)] and [env.qpos[1].clone()]
    for _ in range(3):
        env.step(torch.rand(3, 3) - 0.5)
        seen.append(env.qpos[1].clone())
    assert env.render() is None
    assert [mode for mode, _ in shown] == 5 * ["human"]
    for (_, qpos), expected in zip(shown, [*seen, seen[-1]], strict=True):
        np.testing.assert_allclose(qpos, expected.cpu().numpy())


def test_images_are_tiled_row_by_row():
    images = [np.full((2, 3, 3), k + 1, np.uint8) for k in range(5)]
    found = tile_images(images)
    assert found.shape == (4, 9, 3) and found.dtype == np.uint8
    np.testing.assert_array_equal(found[::2, ::3, 0], [[1, 2, 3], [4, 5, 0]])
    np.testing.assert_array_equal(tile_images(images[:1]), images[0])


def test_floors_are_drawn_without_end_and_with_the_same_pattern():
    env = TorchVectorEnv("HalfCheetah", 1, max_episode_steps=-1)
    sizes, repeats = np.array(env.model.geom_size), np.array(env.model.mat_texrepeat)
    endless_floors(env.model)
    floor, plane = env.model.geom("floor").id, env.model.geom_type == 0
    assert plane.nonzero()[0].tolist() == [floor] and sizes[floor, :2].tolist() == [40, 40]
    assert env.model.geom_size[floor, :2].tolist() == [0, 0]
    np.testing.assert_array_equal(env.model.geom_size[~plane], sizes[~plane])
    material = env.model.geom_matid[floor]
    np.testing.assert_allclose(env.model.mat_texrepeat[material], repeats[material] / 80)
    with pytest.raises(ValueError, match="read only"):
        env.model.geom_size[floor, 0] = 1


@pytest.mark.cpu  # where films are made
@pytest.mark.parametrize("name", ["film.gif", "film.mp4", "end.png"])
def test_play_writes_films_and_pictures(name, tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("DISPLAY", raising=False)
    torch.manual_seed(0)
    layers = {"weights0": torch.randn(1, 3, 11), "biases0": torch.zeros(1, 1, 3)}
    policy = tmp_path / "policy.pt"
    torch.save({"env": "TorchHopper-v0", **layers, "obs_mean": torch.zeros(11), "obs_var": torch.ones(11)}, policy)
    sizes = ["--worlds", "3", "--seconds", "0.1", "--size", "32"]
    main(["play", str(policy), *sizes, "--out", str(tmp_path / name)])
    assert capsys.readouterr().out.strip() == str(tmp_path / name)
    frames = iio.imread(tmp_path / name)
    if name == "end.png":
        assert frames.shape == (48, 64, 3)
        return
    assert frames.shape[1:] == (48, 64, 3) and len(frames) == 4  # of 12 steps every fourth
    assert (frames[0] != frames[-1]).mean() > 0.01 and not frames[:, 30:, 40:].max() > 60  # nobody in the fourth place
    seconds = iio.immeta(tmp_path / name)["duration"]
    assert seconds == pytest.approx(30) if name == "film.gif" else seconds == pytest.approx(0.128, abs=0.04)


@pytest.mark.cpu  # where films are made
def test_the_film_of_the_policies(tmp_path, capsys):
    """That of the README, of one policy, and short."""
    script = runpy.run_path(str(Path(__file__).parents[2] / "docs" / "policies.py"))
    script["main"].__globals__["TASKS"] = ("HalfCheetah",)
    script["main"](["--out", str(tmp_path / "film.gif"), "--seconds", "0.2"])
    assert "film.gif: TorchHalfCheetah-v0; 0." in capsys.readouterr().out
    frames = iio.imread(tmp_path / "film.gif")
    assert frames.shape == (4, script["HEIGHT"], script["WIDTH"], 3)
    assert all((a != b).mean() > 0.01 for a, b in itertools.pairwise(frames))


def test_torchrl_records_what_it_renders(tmp_path):
    """TorchRL's own transforms: a picture of every world is an observation, one of some worlds is not."""
    pytest.importorskip("torchrl")
    from torchrl.envs import TransformedEnv
    from torchrl.record import CSVLogger, PixelRenderTransform, VideoRecorder

    from torch_mjenvs import HopperEnv

    env = TransformedEnv(HopperEnv(2, width=48, height=32), PixelRenderTransform())
    assert env.observation_spec["pixels"].shape == (2, 32, 48, 3)
    data = env.rollout(3, break_when_any_done=False)
    assert data["pixels"].shape == (2, 3, 32, 48, 3) and data["pixels"].dtype == torch.uint8
    assert (data["pixels"][:, 0] != data["next", "pixels"][:, -1]).any()
    np.testing.assert_array_equal(data["next", "pixels"][:, -1].cpu().numpy(), env.base_env.render())

    for chosen, shape in ((None, None), ([1, 0], (32, 96))):
        logger = CSVLogger(f"films-{chosen is None}", str(tmp_path))
        env = HopperEnv(2, width=48, height=32, render_worlds=chosen)
        env = TransformedEnv(env, PixelRenderTransform()).append_transform(VideoRecorder(logger, tag="film"))
        env.rollout(2, break_when_any_done=False)
        env.transform.dump()
        (file,) = (tmp_path / f"films-{chosen is None}").rglob("film_0.pt")
        film = torch.load(file)
        assert film.shape[1] in (2, 3) and film.shape[2] == 3 and film.float().std() > 10
        assert shape is None or film.shape[3:] == shape
        env.close()
    with pytest.raises(ValueError, match="render knows the mode 'rgb_array', not 'human'"):
        HopperEnv(1).render("human")


def test_without_a_mode():
    env = TorchVectorEnv("Hopper")
    env.reset()
    with pytest.warns(UserWarning, match="render_mode"):
        assert env.render() is None

"""The scenes of MuJoCo Playground's locomotion tasks, read from the installed package `playground`."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import mujoco

from ..checks import MissingExtra, install

HOW = f"the robots of these tasks are MuJoCo Playground's: {install('playground')}"
MESH = mujoco.mjtGeom.mjGEOM_MESH


def locomotion() -> Path:
    """Return the folder of Playground's locomotion tasks, without importing Playground, which needs JAX and takes
    seconds.

    Raises MissingExtra if Playground is not installed.
    """
    found = importlib.util.find_spec("mujoco_playground")
    if found is None or not found.submodule_search_locations:
        raise MissingExtra(HOW, name="mujoco_playground")
    return Path(next(iter(found.submodule_search_locations))) / "_src" / "locomotion"


def scene(robot: str, file: str, menagerie: str | os.PathLike[str] = "") -> mujoco.MjSpec:
    """Read a scene of a robot, such as ("go1", "scene_mjx_feetonly_flat_terrain.xml").

    The meshes that Playground's robots are drawn with are in MuJoCo Menagerie; nothing collides with them. With
    `menagerie`, a checkout of it, the robot looks like itself. Without one it is drawn by its collision shapes.

    Raises MissingExtra if Playground is not installed, FileNotFoundError for a folder without a mesh.
    """
    folder = locomotion() / robot / "xmls"
    spec = mujoco.MjSpec.from_file(str(folder / file))
    for asset in (*spec.hfields, *spec.textures):  # which lie beside the scene, not with Menagerie's meshes
        if asset.file:
            asset.file = str(folder / "assets" / Path(asset.file).name)
    if menagerie:
        for mesh in spec.meshes:
            own = Path(spec.meshdir).parts[-2] if spec.meshdir else Path(mesh.file).parts[-3]
            place = Path(menagerie).expanduser().resolve() / own / "assets" / Path(mesh.file).name
            if not place.is_file():
                raise FileNotFoundError(f"there is no {place}: menagerie must be a checkout of MuJoCo Menagerie")
            mesh.file = str(place)
    else:
        draw_without_meshes(spec)
    return spec


def draw_without_meshes(spec: mujoco.MjSpec) -> None:
    """Remove a scene's meshes, none of which collides, and show the shapes that stand for them in contacts."""
    for geom in [x for x in spec.geoms if x.type == MESH]:
        if geom.contype or geom.conaffinity:
            raise ValueError(f"the mesh of geom {geom.name!r} collides, so the scene needs it: give menagerie=")
        spec.delete(geom)
    for mesh in list(spec.meshes):
        spec.delete(mesh)
    for geom in spec.geoms:
        geom.group = 0
        if geom.rgba[3] == 0.0:
            geom.rgba[3] = 1.0

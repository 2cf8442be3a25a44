"""Models of many dofs, whose matrices are in tiles (`compiler.tiles`), against MuJoCo C; and how their code grows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mujoco
import numpy as np
import oracle
import pytest
import random_models
from kernels import object_code

from torch_mjenvs.compiler import cpu, tiles
from torch_mjenvs.compiler.program import Program
from torch_mjenvs.physics import load, simulation_kernels
from torch_mjenvs.physics.kernel_request import KernelRequest
from torch_mjenvs.physics.model.model import dof_chain
from torch_mjenvs.physics.simulation import Simulation
from torch_mjenvs.physics.simulation_kernels import program

NAMES = ("qpos", "qvel", "qacc", "qfrc_constraint")


def chain(n: int, touching: int = 0) -> mujoco.MjModel:
    """Links that lie along the floor, with limits; one in so many may touch it, if any."""
    links = ""
    for i in range(n):
        touches = int(touching > 0 and i % touching == 0)
        links += (
            f"<body pos='{'.05 0 0' if i else '0 0 .03'}'>"
            f"<joint axis='0 {i % 2} {1 - i % 2}' damping='.02' armature='.002' range='-.4 .4'/>"
            f"<geom type='capsule' size='.02' fromto='0 0 0 .05 0 0' conaffinity='{touches}'/>"
        )
    floor = "<geom type='plane' size='9 9 .1' contype='1' conaffinity='0'/>" if touching else ""
    return oracle.sharpen(
        mujoco.MjModel.from_xml_string(f"""
        <mujoco><compiler angle='radian' autolimits='true'/><option timestep='.002'/>
        <default><geom contype='0'/></default>
        <worldbody>{floor}{links}{"</body>" * n}</worldbody></mujoco>""")
    )


def branch(at: int, n: int) -> str:
    """A branch to one side that ends in a ball, with a slide and a ball joint in it."""
    out = ""
    for i in range(n):
        place = f"{0.04 if i else 0.0} {0.05 if i % 2 else 0.03} 0"
        kind = "type='slide' axis='0 1 0' stiffness='20'" if i == 2 else "type='ball'" if i == 5 else ""
        axis = "" if "slide" in kind or "ball" in kind else f"axis='{i % 2} 0 {1 - i % 2}'"
        end = "contype='1' conaffinity='1'" if i == n - 1 else ""
        out += (
            f"<body pos='{place}'><joint name='j{at}_{i}' {kind} {axis} damping='.05' armature='.003'/>"
            f"<geom type='sphere' size='{0.04 if i == n - 1 else 0.015}' {end}/>"
        )
    return out + "</body>" * n


def tree() -> mujoco.MjModel:
    """A free body with a trunk and four branches on it, whose ends may touch the floor and each other, with a tendon
    from one branch to another, whose armature only counts within each, and an equality.
    """
    trunk = "<freejoint/><geom size='.05'/>" + branch(0, 9)
    for k in range(1, 10):
        trunk += (
            f"<body pos='0 0 {0.05 if k > 1 else 0.0}'>"
            f"<joint axis='{k % 2} {1 - k % 2} 0' damping='.1' armature='.01'/><geom size='.03'/>"
        )
        if k in (3, 6, 9):
            trunk += branch(k, 12)
    return oracle.sharpen(
        mujoco.MjModel.from_xml_string(f"""
        <mujoco><compiler autolimits='true'/><option timestep='.002' integrator='implicitfast'/>
        <default><geom conaffinity='0' contype='0'/></default>
        <worldbody><geom type='plane' size='9 9 .1' contype='0' conaffinity='1'/>
        <body pos='0 0 .1'>{trunk}{"</body>" * 10}</worldbody>
        <tendon><fixed armature='.02' damping='.3'><joint joint='j3_0' coef='1'/><joint joint='j6_1' coef='-.7'/>
        <joint joint='j6_4' coef='.5'/></fixed></tendon>
        <equality><joint joint1='j3_3' joint2='j9_3' polycoef='0 1 0 0 0'/></equality>
        <actuator><motor joint='j6_0' gear='2'/></actuator></mujoco>""")
    )


def simulate(mjm: mujoco.MjModel, outputs: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> tuple[Simulation, int]:
    """4 worlds, and how many matrices of their step are factored in tiles. To trace one takes long: it is done once."""
    in_tiles = []

    def counted(*asked: Any) -> Program:
        made = program(*asked)
        in_tiles.append(sum(e.op == "array" and e.attr.columns == tiles.PIVOTS for e in made.live))
        return made

    with monkeypatch.context() as patch:
        patch.setattr(simulation_kernels, "program", counted)
        return Simulation(mjm, 4, dtype="float64", outputs=outputs), in_tiles[0]


@pytest.mark.usefixtures("quickly_compiled")
def test_a_chain_of_sixty_joints_with_limits_and_contacts_moves_as_in_mujoco(monkeypatch: pytest.MonkeyPatch) -> None:
    mjm = chain(60, touching=4)
    sim, in_tiles = simulate(mjm, (*NAMES[2:], "M"), monkeypatch)
    assert in_tiles >= 2
    states = oracle.scattered(mjm, 4, spread=0.25, speeds=(0.5, 2.0))
    datas = oracle.compare_steps(sim, mjm, states, 1, 5, (*NAMES, "M"))
    kinds = {int(kind) for d in datas for kind in d.efc_type}
    assert {mujoco.mjtConstraint.mjCNSTR_LIMIT_JOINT, mujoco.mjtConstraint.mjCNSTR_CONTACT_PYRAMIDAL} <= kinds


@pytest.mark.usefixtures("quickly_compiled")
@pytest.mark.parametrize("all_in_tiles", [False, True])
def test_a_tree_of_many_branches_moves_as_in_mujoco(all_in_tiles: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the solver's Hessian alone in tiles, as is faster, and with M, too."""
    mjm = tree()
    if all_in_tiles:
        monkeypatch.setattr("torch_mjenvs.compiler.tiles.blocks.pays", lambda *_: True)
    sim, in_tiles = simulate(mjm, NAMES[2:], monkeypatch)
    assert in_tiles == (3 if all_in_tiles else 1)
    states = [(*x, np.ones(mjm.nu)) for x in oracle.scattered(mjm, 4, spread=0.3, speeds=(0.5, 2.0))]
    datas = oracle.compare_steps(sim, mjm, states, 1, 5, NAMES)
    assert any(d.ncon for d in datas)


@pytest.mark.usefixtures("quickly_compiled")
@pytest.mark.parametrize("seed", [1, 4, 9, 13, 22, 31])
def test_small_models_move_as_in_mujoco_in_tiles_too(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random ones, with whatever joints, tendons, contacts and integrators they have."""
    monkeypatch.setattr("torch_mjenvs.compiler.tiles.blocks.pays", lambda *_: True)
    wrong = random_models.check(seed)
    assert not wrong, wrong


def test_matrices_are_in_tiles_where_that_was_measured_to_be_as_fast() -> None:
    """Not those of short chains and of trees with many branches, nor of a model's constants."""

    def pays(columns: list[list[int]], stores: int = 0) -> bool:
        return tiles.pays(columns, tiles.elimination(columns), stores)

    def full(n: int) -> list[list[int]]:
        return [list(range(i + 1)) for i in range(n)]

    assert not pays(full(28)) and pays(full(36))
    assert not pays(full(36), 666) and pays(full(60), 1830), "heaps of 6 and 10 boxes"
    m = load(tree())
    assert not pays([dof_chain(m, v) for v in range(m.nv)])
    assert not tiles.large(full(60), [1.0])


@pytest.mark.parametrize("touching", [0, 1])
def test_the_code_of_a_chain_grows_as_its_joints(touching: int) -> None:
    """Operations, and what LLVM gets to read; without contacts and with one of each link."""

    def size(n: int) -> tuple[int, int]:
        made = program(KernelRequest(load(chain(n, touching))), "float32")
        return made.count_ops().total(), len(cpu.assembly(made, cpu.host()))

    (few, short), (more, longer), (many, longest) = size(36), size(60), size(120)
    assert more < 1.05 * 60 / 36 * few and many < 2.05 * more
    assert longer < 1.1 * 60 / 36 * short and longest < 2.2 * longer


@pytest.mark.slow
@pytest.mark.cpu
def test_the_machine_code_of_a_chain_grows_as_its_joints() -> None:
    def size(n: int) -> int:
        return len(object_code(program(KernelRequest(load(chain(n))), "float32"), cpu.host()))

    few, more, many = size(36), size(60), size(120)
    assert more < 1.1 * 60 / 36 * few and many < 2.2 * more

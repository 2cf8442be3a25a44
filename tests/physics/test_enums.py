"""Names of MuJoCo's enums in physics are MuJoCo's: no checker of types sees them."""

from __future__ import annotations

import ast
from enum import EnumType
from pathlib import Path

import mujoco

from torch_mjenvs.physics.model import enums

PHYSICS = Path(enums.__file__).parents[1]
ENUMS = {name: x for name, x in vars(enums).items() if isinstance(x, EnumType) and x.__module__ == enums.__name__}


def test_members_are_mujocos():
    assert len(ENUMS) > 10
    assert enums.TrnType.SITE == int(mujoco.mjtTrn.mjTRN_SITE) != enums.ObjType.SITE == int(mujoco.mjtObj.mjOBJ_SITE)
    assert enums.JointType(3).name == "HINGE" and {enums.JointType.HINGE: 1}[3] == 1


def test_every_name_in_use_is_there():
    used = {
        (node.value.id, node.attr, path.name)
        for path in PHYSICS.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ENUMS
    }
    assert len(used) > 100
    assert not [(enum, name, file) for enum, name, file in used if not hasattr(ENUMS[enum], name)]

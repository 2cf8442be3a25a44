"""Random models with something in them that is not supported, or with numbers at the edge of it."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import numpy as np
import random_mjcf

# attributes and values, by element
FOREIGN: dict[str, dict[str, tuple[str, ...]]] = {
    "option": {
        "integrator": ("implicit", "implicitfast", "discrete"),
        "cone": ("elliptic",),
        "noslip_iterations": ("2",),
        "impratio": ("0", "1e-9"),
        "timestep": ("1e-9", "10"),
        "density": ("1e30",),
    },
    "joint": {
        "frictionloss": ("0.1", "1e30"),
        "stiffness": ("1 2", "1e30"),
        "damping": ("1 2", "1e30"),
        "armature": ("1e30",),
        "range": ("0 1e-12", "-1e10 1e10"),
        "solreflimit": ("0 0", "-1 1", "1 -1"),
        "solimplimit": ("0 0 0 0 0", "2 2 2 2 2"),
        "axis": ("1e-9 0 0", "1e9 1 0"),
        "pos": ("1e6 0 0",),
    },
    "geom": {
        "condim": ("4", "6"),
        "type": ("box", "cylinder", "ellipsoid", "sphere", "capsule"),
        "friction": ("0 0 0", "1e9 1 1"),
        "solref": ("0 0", "-1 1", "1e-9 1"),
        "solimp": ("0 0 0 0 0", "1 1 1 1 1", "0.5 0.9 1e-9 1 9"),
        "gap": ("-0.1", "1"),
        "margin": ("10",),
        "solmix": ("0",),
        "fluidshape": ("ellipsoid",),
        "mass": ("0", "1e-9", "1e9"),
        "density": ("0",),
    },
    "body": {
        "gravcomp": ("1",),
        "mocap": ("true",),
        "quat": ("1e-9 0 0 0", "1 1e-20 0 0"),
        "pos": ("1e6 0 0",),
    },
    "inertial": {"mass": ("1e-12", "1e12"), "diaginertia": ("1e-12 1e-12 1e-12",)},
    "motor": {"gear": ("0", "1e20"), "forcerange": ("0 0",), "ctrlrange": ("0 0",), "joint": ("nowhere",)},
}
ALIEN = (
    "<sensor><clock/></sensor>", "<size nuserdata='3'/>", "<keyframe><key/></keyframe>", "<visual/>",
    "<worldbody><geom type='box' size='1 1 1'/></worldbody>", "<worldbody><camera/><light/></worldbody>",
    "<worldbody><body><joint/><joint/><geom size='.1' pos='1 0 0'/></body></worldbody>",
    "<worldbody><body><joint type='ball' range='0 1'/><geom size='.1'/></body></worldbody>",
    "<worldbody><body><joint name='a'/><geom size='.1'/></body></worldbody>"
    "<actuator><intvelocity joint='a' actrange='0 1'/></actuator>",
    "<worldbody><body><joint name='a'/><geom size='.1'/></body></worldbody>"
    "<equality><joint joint1='a' joint2='a'/></equality>",
    "<worldbody><body><joint name='a'/><geom size='.1'/></body></worldbody>"
    "<tendon><fixed springlength='1' stiffness='3'><joint joint='a' coef='1'/></fixed></tendon>",
)  # fmt: skip


def strange(seed: int) -> str:
    """Model number `seed` with one to three things in it that are not supported, or at the edge of it."""
    rng = np.random.default_rng([seed, 2])
    root = random_mjcf.case(seed, 2).root
    for _ in range(int(rng.integers(1, 4))):
        tags = sorted({e.tag for e in root.iter()} & FOREIGN.keys())
        tag = tags[int(rng.integers(len(tags)))]
        found = list(root.iter(tag))
        name = sorted(FOREIGN[tag])[int(rng.integers(len(FOREIGN[tag])))]
        values = FOREIGN[tag][name]
        found[int(rng.integers(len(found)))].set(name, values[int(rng.integers(len(values)))])
    if rng.random() < 0.3:
        root.extend(ET.fromstring(f"<more>{ALIEN[int(rng.integers(len(ALIEN)))]}</more>"))
    return ET.tostring(root, encoding="unicode")

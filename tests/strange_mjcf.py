"""Random models with something strange in them: extremes of every attribute that is read, degenerate shapes, loops that
are closed twice, sensors, actuators, equalities and tendons of all kinds on whatever is there.

MuJoCo compiles each of them. What the package does not support, it must refuse by name; what it takes must move as in
MuJoCo: see `test_random_models.py`. Nothing here imports the package under test.
"""

from __future__ import annotations

import copy
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

import mujoco
import numpy as np
import random_mjcf
from random_mjcf import Case, text

# attributes and values, by element
EDGES: dict[str, dict[str, tuple[str, ...]]] = {
    "option": {
        "timestep": ("1e-6", "0.05", "1"),
        "integrator": ("Euler", "RK4", "implicit", "implicitfast", "discrete"),
        "cone": ("elliptic", "pyramidal"),
        "impratio": ("0", "1e-3", "300"),
        "noslip_iterations": ("1", "3"),
        "gravity": ("0 0 0", "0 0 -1000", "1e-9 0 0"),
        "density": ("1e-9", "1e4", "-1"),
        "viscosity": ("1e-9", "100", "-1"),
        "wind": ("100 0 0", "0 0 1e-9"),
        "magnetic": ("0 0 0", "1e6 0 0"),
        "iterations": ("0", "1"),
        "tolerance": ("0", "1"),
        "o_solref": ("0.1 1",),
        "actuatorgroupdisable": ("0", "0 1 2 3", "30"),
    },
    "flag": {
        name: ("enable", "disable")
        for name in (
            "constraint",
            "equality",
            "frictionloss",
            "limit",
            "contact",
            "spring",
            "damper",
            "gravity",
            "clampctrl",
            "warmstart",
            "filterparent",
            "actuation",
            "refsafe",
            "sensor",
            "midphase",
            "eulerdamp",
            "autoreset",
            "nativeccd",
            "island",
            "multiccd",
            "override",
            "energy",
            "fwdinv",
            "invdiscrete",
            "sleep",
        )
    },
    "compiler": {
        "settotalmass": ("1e-3", "1e4"),
        "boundmass": ("3",),
        "boundinertia": ("0.5",),
        "balanceinertia": ("true",),
        "fusestatic": ("true",),
        "autolimits": ("false",),
        "alignfree": ("true",),
        "inertiafromgeom": ("true", "false"),
        "eulerseq": ("zyx", "XYX"),
        "angle": ("degree",),
    },
    "joint": {
        "frictionloss": ("0", "1e-9", "1e4"),
        "stiffness": ("1 2", "0 0 5", "1e5", "-5", "1e-12"),
        "damping": ("1 2", "0 0 0.3", "1e4", "-0.3", "1e-12"),
        "armature": ("0", "1e-12", "1e6"),
        "range": ("0 1e-9", "-1e10 1e10", "0 4", "-1e-3 0", "3 7"),
        "limited": ("true", "false", "auto"),
        "margin": ("10", "1e-12"),
        "solreflimit": ("0 0", "-1 1", "1 -1", "1e-9 1", "-1e6 0", "0.02 0", "10 10"),
        "solimplimit": ("0 0 0 0 0", "1 1 1 1 1", "0.9 0.1 0.01", "0.5 0.9 0 0 9"),
        "solreffriction": ("0 0", "-1 1", "-10 -1", "1e-9 1"),
        "solimpfriction": ("0 0 0", "1 1 1", "0.9 0.1 0.01"),
        "axis": ("1e-9 0 1", "1e9 1 0", "1 1 1"),
        "pos": ("100 0 0", "0 0 1e-12"),
        "ref": ("100", "1e-12"),
        "springref": ("-100", "1e-12"),
        "springdamper": ("0.1 1", "1e-2 0.1"),
        "actuatorfrcrange": ("0 1e-9", "-1e9 1e9", "1 2"),
        "actuatorfrclimited": ("true", "false"),
        "actuatorgravcomp": ("true",),
    },
    "geom": {
        "condim": ("1", "3", "4", "6"),
        "type": ("box", "cylinder", "ellipsoid", "sphere", "capsule"),
        "size": ("1e-6", "1e-6 1e-6 1e-6", "1e-3 1", "1 1e-5 1", "30 30 30", "0.1 0.1 0.1"),
        "pos": ("0 0 0", "50 0 0", "0 0 1e-12"),
        "quat": ("1e-9 0 0 0", "1 1e-20 0 0", "1 1 1 1"),
        "friction": ("0 0 0", "1e6 1 1", "1 0 0", "0 1 1", "1e-5 1e-5 1e-5", "1 10 10"),
        "solref": ("0 0", "-1 1", "1e-9 1", "-1e6 -1e3", "0.02 0", "10 10"),
        "solimp": ("0 0 0 0 0", "1 1 1 1 1", "0.5 0.9 1e-9 1 9", "0.9 0.1 0.05 0 3", "0.5 0.9 0.1 -1 -1"),
        "gap": ("-0.1", "1"),
        "margin": ("1", "-0.05", "1e-12"),
        "solmix": ("0", "1e9", "-1"),
        "priority": ("-3", "5"),
        "fluidshape": ("ellipsoid",),
        "fluidcoef": ("0 0 0 0 0", "9 9 9 9 9"),
        "mass": ("0", "1e-9", "1e6"),
        "density": ("0", "1e-6", "1e6"),
        "shellinertia": ("true",),
        "contype": ("0", "3", "-1", "2147483647"),
        "conaffinity": ("0", "-1"),
        "surfacevel": ("1 0 0",),
        "adhesion": ("1",),
    },
    "body": {
        "gravcomp": ("1", "-5", "100", "1e-12"),
        "mocap": ("true",),
        "quat": ("1e-9 0 0 0", "1 1e-20 0 0", "0 1 0 0"),
        "pos": ("1000 0 0", "0 0 0", "0 0 1e-12"),
        "euler": ("90 180 270", "1.5707963267948966 0 0"),
        "sleep": ("never", "init"),
    },
    "inertial": {
        "mass": ("1e-9", "1e6"),
        "diaginertia": ("1e-12 1e-12 1e-12", "1e-9 1 1", "1 1 2", "1e4 1e4 1e4"),
        "pos": ("10 0 0", "0 0 0"),
    },
    "motor": {
        "gear": ("0", "1e6", "1e-12"),
        "forcerange": ("0 1e-9", "1 2"),
        "ctrlrange": ("0 1e-9", "-1e9 1e9", "1 2"),
        "damping": ("1e3", "0 1"),
        "armature": ("1e3",),
        "delay": ("0.01",),
    },
    "general": {
        "gear": ("0", "1e4", "0 0 0 0 0 0", "1 1 1 1 1 1"),
        "dyntype": ("none", "integrator", "filter", "filterexact", "muscle", "user"),
        "dynprm": ("0", "1e-9", "1e6", "0.01 0.04 10"),
        "gaintype": ("fixed", "affine", "muscle", "user"),
        "biastype": ("none", "affine", "muscle", "user"),
        "gainprm": ("0", "1e4", "1 2 3", "0.75 1.05 -1 200 0.5 1.6 1.5 1.3 1.2"),
        "biasprm": ("0", "0 0 1", "0 1e3 0"),
        "actrange": ("0 1e-9", "-1 -0.5"),
        "actlimited": ("true", "false"),
        "actearly": ("true", "false"),
        "actdim": ("2", "0"),
        "cranklength": ("1e-6", "100"),
        "lengthrange": ("0 1e-6", "-1 1"),
    },
    "fixed": {
        "range": ("0 1e-9", "-1e6 1e6"),
        "springlength": ("0", "1 2", "-1 -0.5"),
        "stiffness": ("0 5", "1e5", "-1"),
        "damping": ("0 0.1", "1e4", "-0.1"),
        "frictionloss": ("1e-9", "1e4"),
        "armature": ("1e-9", "1e3"),
        "margin": ("10",),
    },
    "position": {"kp": ("0", "1e5", "-1"), "kv": ("0", "10"), "dampratio": ("1", "0.1"), "inheritrange": ("1",)},
    "pair": {
        "condim": ("1", "3", "4", "6"),
        "friction": ("1e-5 1e-5 1e-5 1e-5 1e-5", "1 0.01 0.1 0.1 0.1", "0 0 0 0 0"),
        "solref": ("0 0", "-1 1", "-100 -5"),
        "solreffriction": ("0.1 1", "-50 -2", "1 -1"),
        "gap": ("1", "-0.1"),
        "margin": ("1", "-0.05"),
    },
}
EDGES["freejoint"] = {"align": ("true", "false")}
EDGES["spatial"] = EDGES["fixed"]

SENSED = {
    "joint": (
        "jointpos",
        "jointvel",
        "jointactuatorfrc",
        "jointlimitpos",
        "jointlimitvel",
        "jointlimitfrc",
        "ballquat",
        "ballangvel",
    ),
    "tendon": ("tendonpos", "tendonvel", "tendonactuatorfrc", "tendonlimitpos", "tendonlimitvel", "tendonlimitfrc"),
    "actuator": ("actuatorpos", "actuatorvel", "actuatorfrc"),
    "site": (
        "touch",
        "accelerometer",
        "velocimeter",
        "gyro",
        "force",
        "torque",
        "magnetometer",
        "rangefinder",
        "camprojection",
    ),
    "body": ("subtreecom", "subtreelinvel", "subtreeangmom"),
}
FRAMES = ("pos", "quat", "xaxis", "yaxis", "zaxis", "linvel", "angvel", "linacc", "angacc")
WHOLE = ("clock", "e_potential", "e_kinetic")
NAMES = ("a b", "ö", "'", '"', "joint 0", "b" * 300, "%s", "{}", "a/b\\c", "&<>")
DOFS = 14


class Stranger:
    """Draws one model."""

    def __init__(self, seed: int):
        self.seed, self.rng = seed, np.random.default_rng([seed, 3])
        maker = random_mjcf.Maker(10**6 + seed, random_mjcf.SOFTENED)
        maker.dofs = int(self.pick(2, 4, 6))
        self.root = maker.model()
        self.drawn: Counter = Counter()
        for tag in ("actuator", "tendon", "equality", "sensor", "contact", "asset"):
            self.section(tag)
        self.added = 0

    def pick(self, *options: object) -> object:
        return options[int(self.rng.integers(len(options)))]

    def section(self, tag: str) -> ET.Element:
        found = self.root.find(tag)
        return ET.SubElement(self.root, tag) if found is None else found

    def new(self) -> str:
        self.added += 1
        return f"x{self.added}"

    def add(self, parent: ET.Element, tag: str, **attributes: object) -> ET.Element:
        return ET.SubElement(parent, tag, {k.rstrip("_"): text(v) for k, v in attributes.items()})

    def named(self, *tags: str) -> list[str]:
        """Return the names of the elements of these kinds; elements without a name get one."""
        out = []
        for e in self.root.find("worldbody").iter():
            if e.tag in tags:
                if not e.get("name"):
                    e.set("name", self.new())
                out.append(str(e.get("name")))
        return out

    def listed(self, section: str) -> list[ET.Element]:
        found = list(self.section(section))
        for e in found:
            if not e.get("name"):
                e.set("name", self.new())
        return found

    def bodies(self) -> list[ET.Element]:
        return list(self.root.find("worldbody").iter("body"))

    def a_body(self) -> ET.Element:
        return self.pick(*self.bodies())

    def draw(self) -> None:
        """One to four strange things, each of which MuJoCo compiles."""
        wanted, left = int(self.pick(1, 1, 2, 3, 4)), 40
        while wanted and left:
            left -= 1
            before, added = copy.deepcopy(self.root), self.added
            what = self.edge if self.rng.random() < 0.45 else self.pick(*self.structures())
            with suppress(
                IndexError, ValueError, AttributeError
            ):  # the model has no element for it, or MuJoCo refuses it
                name = what() or what.__name__
                mjm = mujoco.MjModel.from_xml_string(ET.tostring(self.root, encoding="unicode"))
                if mjm.nv <= DOFS:
                    self.drawn[name] += 1
                    wanted -= 1
                    continue
            self.root, self.added = before, added
        self.leave_out()

    def leave_out(self) -> None:
        """Remove what cannot be compared with MuJoCo: see docs/limits.md and docs/exactness.md."""
        if self.root.find("option").get("noslip_iterations"):
            self.root.find("option").set("noslip_tolerance", "0")
        for e in (
            *self.root.iter("geom"),
            *self.root.iter("pair"),
        ):  # with a margin, MuJoCo's answer is no longer exact
            if self.root.find("asset/mesh") is not None and float(e.get("gap", "0")) > 0:
                e.set("gap", "0")
        if self.root.find("option").get("integrator") == "RK4":
            spatial = self.root.findall("tendon/spatial")
            named = [e.get("name") for e in spatial]
            for e in [*spatial, *(e for e in self.section("actuator") if e.get("tendon") in named)]:
                e.attrib.pop("armature", None)

    def edge(self) -> str:
        option = self.root.find("option")
        if option.find("flag") is None:
            ET.SubElement(option, "flag")
        tags = sorted({e.tag for e in self.root.iter()} & EDGES.keys())
        tag = str(self.pick(*tags))
        e = self.pick(*self.root.iter(tag))
        name = str(self.pick(*sorted(EDGES[tag])))
        e.set(name, str(self.pick(*EDGES[tag][name])))
        return f"{tag} {name}"

    def structures(self) -> tuple[Callable[[], str | None], ...]:
        return (
            self.deep_chain, self.ties, self.ties, self.joint_equalities, self.tendon_equalities, self.sensors,
            self.sensors, self.actuators, self.actuators, self.mocap, self.harmless, self.replicated, self.composite,
            self.mesh, self.mesh, self.flat_hfield, self.moving_plane, self.tendon, self.tendon, self.pair, self.names,
            self.camera, self.fixed_tendon, self.many_joints, self.parallel_joints, self.tilted,
            self.nothing_moves, self.defaults,
        )  # fmt: skip

    # structures

    def deep_chain(self) -> None:
        e = self.a_body()
        jointed = int(self.pick(0, 2, 4))
        for k in range(int(self.pick(6, 30))):
            e = self.add(e, "body", name=self.new(), pos=[0, 0, -0.02])
            if k < jointed:
                self.add(e, "joint", name=self.new(), type=self.pick("hinge", "slide"), axis=self.rng.normal(size=3))
            self.add(e, "geom", type="sphere", size=0.01, contype=0, conaffinity=0)

    def ties(self) -> None:
        """Equalities of bodies or sites, themselves included, some twice."""
        kind = str(self.pick("connect", "weld"))
        if self.rng.random() < 0.5:
            sites = self.named("site")
            ends: dict[str, object] = {"site1": self.pick(*sites), "site2": self.pick(*sites)}
        else:
            bodies = [*self.named("body"), "world"]
            ends = {"body1": self.pick(*bodies), "body2": self.pick(*bodies)}
            if kind == "connect":
                ends["anchor"] = self.rng.normal(0, self.pick(0, 0.1, 5), 3)
        for _ in range(int(self.pick(1, 2))):
            out = self.add(self.section("equality"), kind, **ends)
            if kind == "weld" and self.rng.random() < 0.5:
                out.set("torquescale", str(self.pick("0", "1e-6", "10", "-1")))
            if self.rng.random() < 0.4:
                out.set("solref", str(self.pick("0 0", "1e-9 1", "-1e5 -10", "10 10", "1 -1")))
            if self.rng.random() < 0.3:
                out.set("solimp", str(self.pick("0 0 0", "1 1 1", "0.9 0.1 0.01")))
            if self.rng.random() < 0.2:
                out.set("active", "false")

    def joint_equalities(self) -> None:
        joints = self.named("joint")
        for _ in range(int(self.pick(1, 2, 3))):
            out = self.add(self.section("equality"), "joint", joint1=self.pick(*joints))
            if self.rng.random() < 0.8:
                out.set("joint2", str(self.pick(*joints)))
            if self.rng.random() < 0.7:
                out.set("polycoef", str(self.pick("0 0 0 0 0", "0 1e3", "1e3", "0 1 1 1 1", "0 -1", "0 1e-9")))

    def tendon_equalities(self) -> None:
        tendons = [e.get("name") for e in self.listed("tendon")]
        out = self.add(self.section("equality"), "tendon", tendon1=self.pick(*tendons))
        if self.rng.random() < 0.7:
            out.set("tendon2", str(self.pick(*tendons)))
        out.set("polycoef", str(self.pick("0 0 0 0 0", "0 1e3", "0 1", "0.1 1 1 1 1", "0 -1")))

    def sensors(self) -> None:
        section = self.section("sensor")
        of = {
            "joint": self.named("joint", "freejoint"), "site": self.named("site"),
            "body": [*self.named("body"), "world"],
            "tendon": [e.get("name") for e in self.listed("tendon")],
            "actuator": [e.get("name") for e in self.listed("actuator")],
        }  # fmt: skip
        for _ in range(int(self.pick(1, 3, 6))):
            roll = self.rng.random()
            if roll < 0.5:
                kind = str(self.pick(*(k for k, names in of.items() if names)))
                out = self.add(section, str(self.pick(*SENSED[kind])), **{kind: self.pick(*of[kind])})
                if out.tag == "camprojection":
                    out.set("camera", str(self.pick(*self.named("camera"))))
            elif roll < 0.8:
                kinds = {
                    "body": of["body"],
                    "xbody": of["body"],
                    "geom": self.named("geom"),
                    "site": of["site"],
                    "camera": self.named("camera"),
                }
                kind = str(self.pick(*(k for k, names in kinds.items() if names)))
                out = self.add(section, f"frame{self.pick(*FRAMES)}", objtype=kind, objname=self.pick(*kinds[kind]))
                if self.rng.random() < 0.5 and not out.tag.endswith("acc"):
                    kind = str(self.pick(*(k for k, names in kinds.items() if names)))
                    out.set("reftype", kind)
                    out.set("refname", str(self.pick(*kinds[kind])))
            elif roll < 0.85:
                out = self.add(section, str(self.pick(*WHOLE)))
            elif roll < 0.95:
                geoms = self.named("geom")
                out = self.add(
                    section,
                    str(self.pick("distance", "normal", "fromto")),
                    geom1=self.pick(*geoms),
                    geom2=self.pick(*geoms),
                    cutoff=1,
                )
            else:
                out = self.add(section, "user", dim=2, needstage="pos")
            if self.rng.random() < 0.3:
                out.set("cutoff", str(self.pick("1e-9", "0.5", "1e9")))
            if self.rng.random() < 0.1:
                out.set("noise", "1")
            if self.rng.random() < 0.3:
                out.set("name", self.new())

    def actuators(self) -> None:
        section = self.section("actuator")
        joints, sites = self.named("joint", "freejoint"), self.named("site")
        tendons = [e.get("name") for e in self.listed("tendon")]
        for _ in range(int(self.pick(1, 2))):
            kind = str(
                self.pick(
                    "motor",
                    "position",
                    "velocity",
                    "intvelocity",
                    "damper",
                    "cylinder",
                    "muscle",
                    "general",
                    "adhesion",
                )
            )
            out = self.add(section, kind, name=self.new())
            where = str(
                self.pick("joint", "jointinparent", "tendon", "site", "crank", "body") if kind != "adhesion" else "body"
            )
            if where in ("joint", "jointinparent"):
                out.set(where, str(self.pick(*joints)))
            elif where == "tendon":
                out.set(where, str(self.pick(*tendons)))
            elif where == "site":
                out.set(where, str(self.pick(*sites)))
                if self.rng.random() < 0.5:
                    out.set("refsite", str(self.pick(*sites)))
            elif where == "crank":
                out.set("cranksite", str(self.pick(*sites)))
                out.set("slidersite", str(self.pick(*sites)))
                out.set("cranklength", str(self.pick("1e-6", "0.1", "10")))
            else:
                out.set("body", str(self.pick(*self.named("body"))))
            needs = {
                "damper": {"ctrlrange": "0 1", "kv": "2"},
                "intvelocity": {"actrange": "-1 1"},
                "adhesion": {"ctrlrange": "0 1"},
            }
            for k, v in needs.get(kind, {}).items():
                out.set(k, v)
            if kind == "muscle":
                out.set("lengthrange", str(self.pick("0.1 0.5", "-1 1", "0 1e-4")))
                if self.rng.random() < 0.3:
                    out.set("timeconst", str(self.pick("0.01 0.04", "1e-6 1e-6", "1 1")))
                if self.rng.random() < 0.3:
                    out.set("tausmooth", "0.5")
            if kind in ("position", "velocity", "motor", "general") and self.rng.random() < 0.5:
                out.set("gear", str(self.pick("0", "-1 0 0", "1 1 1 1 1 1", "100")))
            if kind == "position":
                out.set("kp", str(self.pick("0", "10", "1e4")))
                if self.rng.random() < 0.4:
                    out.set(str(self.pick("timeconst", "dampratio", "kv")), str(self.pick("1", "0.01")))
                if self.rng.random() < 0.3:
                    out.set("inheritrange", "1")
            if self.rng.random() < 0.2:
                out.set("forcerange", "-1e-6 1e-6")

    def mocap(self) -> None:
        e = self.add(self.root.find("worldbody"), "body", name=self.new(), mocap="true", pos=self.rng.normal(0, 0.2, 3))
        self.add(e, "geom", type=self.pick("sphere", "box", "capsule"), size=[0.1, 0.1, 0.1])
        site = self.new()
        self.add(e, "site", name=site)
        if self.rng.random() < 0.5:
            inner = self.add(e, "body", name=self.new(), pos=[0.3, 0, 0])
            self.add(inner, "geom", type="sphere", size=0.05)
        if self.rng.random() < 0.5:
            self.add(self.section("equality"), "weld", body1=e.get("name"), body2=self.pick(*self.named("body")))
        if self.rng.random() < 0.5:
            self.add(self.section("actuator"), "motor", name=self.new(), site=site, gear=[1, 1, 1, 1, 1, 1])
        if self.rng.random() < 0.5:
            others = [s for s in self.named("site") if s != site]
            out = self.add(self.section("tendon"), "spatial", name=self.new(), stiffness=5)
            self.add(out, "site", site=site)
            self.add(out, "site", site=self.pick(*others))

    def harmless(self) -> None:
        """Add elements that no step depends on."""
        more = (
            "<size nuserdata='3' nuser_body='2' nkey='2'/>", "<keyframe><key time='3'/></keyframe>", "<visual/>",
            "<statistic meaninertia='1e-3' meanmass='7' extent='1e3' center='9 9 9'/>",
            "<statistic meaninertia='1e6'/>",
            "<custom><numeric name='n' data='1 2'/><text name='t' data='x'/></custom>",
            "<worldbody><light/><camera mode='targetbody' target='world'/></worldbody>", "<size memory='1M'/>",
        )  # fmt: skip
        self.root.append(ET.fromstring(str(self.pick(*more))))

    def replicated(self) -> None:
        e = self.pick(*self.bodies(), self.root.find("worldbody"))
        out = self.add(e, "replicate", count=self.pick(1, 2, 3), offset=[0.15, 0, 0], euler=[0, 0, self.pick(0, 0.5)])
        if self.rng.random() < 0.5:
            self.add(out, "geom", name=self.new(), type=self.pick("sphere", "capsule"), size=[0.05, 0.05])
        else:
            inner = self.add(out, "body", name=self.new())
            self.add(inner, "joint", name=self.new(), type="hinge", axis=[0, 1, 0])
            self.add(inner, "geom", type="sphere", size=0.05, contype=0, conaffinity=0)

    def composite(self) -> None:
        xml = ("<composite type='cable' curve='s' count='3 1 1' size='0.3' prefix='c' initial='none'>"
               "<joint kind='main' damping='0.1'/><geom type='capsule' size='.02' contype='0' conaffinity='0'/>"
               "</composite>")  # fmt: skip
        self.a_body().append(ET.fromstring(xml))

    def mesh(self) -> None:
        """Add degenerate meshes."""
        small = float(self.pick(1e-4, 0.1, 0.3))
        cube = [[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)]
        points = {
            "tetrahedron": [[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]],
            "needle": [[0, 0, 0], [1e-3, 0, 0], [0, 1e-3, 0], [0, 0, 3]],
            "plate": [[x, y, 1e-3 * z] for x, y, z in cube],
            "twice": [*cube, *cube],
            "brick with points on it": [*cube, [0, 0, 1], [0, 1, 0], [1, 0, 0], [0.5, 0.5, 1]],
            "nearly doubled": [*cube, *(np.array(cube) * (1 + 1e-9)).tolist()],
            "prism": [[np.cos(a), np.sin(a), z] for a in np.arange(12) * np.pi / 6 for z in (-1, 1)],
        }
        kind = str(self.pick(*points))
        out = self.add(self.section("asset"), "mesh", name=self.new(), vertex=np.array(points[kind]).ravel() * small)
        if self.rng.random() < 0.3:
            out.set("inertia", str(self.pick("shell", "convex", "legacy", "exact")))
        if self.rng.random() < 0.2:
            out.set("maxhullvert", "4")
        if self.rng.random() < 0.3:
            out.set("scale", str(self.pick("-1 1 1", "1e-2 1 1", "10 1 1")))
        if self.rng.random() < 0.2:
            out.set("refpos", "0.5 0 0")
        g = self.add(self.a_body(), "geom", name=self.new(), type="mesh", mesh=out.get("name"), mass=1)
        if self.rng.random() < 0.2:
            g.set("type", str(self.pick("box", "sphere", "capsule", "ellipsoid", "cylinder")))
        return f"mesh {kind}"

    def flat_hfield(self) -> None:
        size = [self.pick(1e-3, 1, 50), self.pick(1e-3, 1, 50), self.pick(1e-6, 0.3), self.pick(1e-6, 0.3)]
        n = int(self.pick(2, 3))
        heights = self.pick(np.zeros(n * n), self.rng.random(n * n), np.eye(n).ravel())
        name = self.new()
        self.add(self.section("asset"), "hfield", name=name, nrow=n, ncol=n, size=size, elevation=heights)
        where = self.pick(self.root.find("worldbody"), self.root.find("worldbody"), self.a_body())
        self.add(where, "geom", name=self.new(), type="hfield", hfield=name)

    def moving_plane(self) -> None:
        self.add(
            self.a_body(),
            "geom",
            name=self.new(),
            type="plane",
            size=self.pick([0, 0, 1], [0.1, 0.1, 1e-3]),
            pos=[0, 0, -0.3],
        )

    def tendon(self) -> None:
        """Add a tendon round geoms, over pulleys, or along sites that are the same or in one place."""
        sites = self.named("site")
        if self.rng.random() < 0.3:
            where = self.pick(*(e for e in self.root.find("worldbody").iter() if e.find("site") is not None))
            twin = copy.deepcopy(where.find("site"))
            twin.set("name", self.new())
            where.append(twin)
            sites.append(twin.get("name"))
        out = self.add(self.section("tendon"), "spatial", name=self.new())
        if self.rng.random() < 0.2:
            self.add(out, "pulley", divisor=self.pick(1, 1e-3, 1e3))
        for k in range(int(self.pick(2, 2, 3, 5))):
            if k and self.rng.random() < 0.4:
                body, geom, side = self.pick(self.root.find("worldbody"), *self.bodies()), self.new(), self.new()
                kind, radius = self.pick("sphere", "cylinder"), float(self.pick(1e-6, 0.05, 0.5, 5))
                self.add(body, "geom", name=geom, type=kind, size=[radius, 0.1], mass=0, contype=0, conaffinity=0)
                wrap = self.add(out, "geom", geom=geom)
                if self.rng.random() < 0.4:
                    self.add(body, "site", name=side, pos=self.pick([0, 0, 0], [radius, 0, 0], [0, 0, 2 * radius]))
                    wrap.set("sidesite", side)
            self.add(out, "site", site=self.pick(*sites))
            if self.rng.random() < 0.15:
                self.add(out, "pulley", divisor=self.pick(2, 0.5))
                self.add(out, "site", site=self.pick(*sites))
        for name in ("stiffness", "damping", "range", "frictionloss", "armature"):
            if self.rng.random() < 0.3:
                out.set(name, "0 0.1" if name == "range" else str(self.pick("1", "30")))

    def fixed_tendon(self) -> None:
        out = self.add(self.section("tendon"), "fixed", name=self.new())
        for _ in range(int(self.pick(1, 2, 3))):
            self.add(out, "joint", joint=self.pick(*self.named("joint")), coef=self.pick(0, 1, -1, 1e-9, 1e3))
        for name in ("stiffness", "damping", "range", "frictionloss", "armature"):
            if self.rng.random() < 0.4:
                out.set(name, "-0.1 0.1" if name == "range" else str(self.pick("1", "30")))

    def pair(self) -> None:
        geoms = self.named("geom")
        out = self.add(self.section("contact"), "pair", geom1=self.pick(*geoms), geom2=self.pick(*geoms))
        for name, values in EDGES["pair"].items():
            if self.rng.random() < 0.3:
                out.set(name, str(self.pick(*values)))

    def names(self) -> None:
        """Give an element a name that Python, XML or a message might trip over."""
        e = self.pick(
            *(e for e in self.root.find("worldbody").iter() if e.tag in ("body", "geom", "site") and not e.get("name"))
        )
        e.set("name", str(self.pick(*NAMES)))

    def camera(self) -> None:
        mode = str(self.pick("fixed", "track", "trackcom", "targetbody", "targetbodycom"))
        out = self.add(
            self.a_body(),
            "camera",
            name=self.new(),
            mode=mode,
            fovy=self.pick(1e-3, 45, 179),
            resolution=self.pick([1, 1], [64, 48]),
        )
        if mode.startswith("target"):
            out.set("target", str(self.pick(*self.named("body"))))
        if self.named("site"):
            self.add(
                self.section("sensor"), "camprojection", site=self.pick(*self.named("site")), camera=out.get("name")
            )

    def many_joints(self) -> None:
        e = self.add(self.root.find("worldbody"), "body", name=self.new(), pos=[0, 0, 1])
        for kind in self.pick(
            ("slide",) * 3 + ("hinge",) * 3,
            ("ball", "slide"),
            ("hinge", "ball"),
            ("ball", "slide", "hinge"),
            ("ball", "ball"),
            ("hinge",) * 4,
        ):
            self.add(
                e, "joint", name=self.new(), type=kind, axis=self.rng.normal(size=3), armature=self.pick(0, 0, 0.1)
            )
        self.add(e, "geom", type="box", size=[0.1, 0.2, 0.3], contype=0, conaffinity=0)

    def parallel_joints(self) -> None:
        """Add joints whose motions cancel, or nearly."""
        e = self.add(self.root.find("worldbody"), "body", name=self.new(), pos=[0, 0, 1])
        axis, kind = self.rng.normal(size=3), self.pick("hinge", "slide")
        for apart in (0, float(self.pick(0, 1e-12, 0.3))):
            self.add(
                e, "joint", name=self.new(), type=kind, axis=axis + [0, 0, apart], armature=self.pick(0, 0, 0.1, 0.1)
            )
        self.add(e, "geom", type="box", size=[0.1, 0.2, 0.3], contype=0, conaffinity=0)

    def tilted(self) -> None:
        """Put a body inside of frames."""
        world = self.root.find("worldbody")
        body = self.pick(*world.findall("body"))
        world.remove(body)
        frame = self.add(world, "frame", euler=self.rng.normal(size=3), pos=[0, 0, 1e-9])
        self.add(frame, "frame", quat=[1, 1e-9, 0, 0]).append(body)

    def nothing_moves(self) -> None:
        """Remove all joints."""
        if self.rng.random() < 0.8:
            raise ValueError
        for e in list(self.root.find("worldbody").iter()):
            for joint in [*e.findall("joint"), *e.findall("freejoint")]:
                e.remove(joint)
        for tag in ("actuator", "tendon", "equality", "sensor"):
            self.root.remove(self.section(tag))

    def defaults(self) -> None:
        xml = ("<default><default class='odd'><joint armature='0.3' damping='2'/>"
               "<geom condim='1' friction='0.1' density='10'/>"
               "<site size='1'/><motor gear='3'/></default></default>")  # fmt: skip
        self.root.insert(0, ET.fromstring(xml))
        self.pick(*self.bodies()).set("childclass", "odd")


def case(seed: int, worlds: int = 4) -> Case:
    """Model number `seed`, and states of it."""
    stranger = Stranger(seed)
    stranger.draw()
    mjm = mujoco.MjModel.from_xml_string(ET.tostring(stranger.root, encoding="unicode"))
    return Case(stranger.root, random_mjcf.states(mjm, worlds, seed), stranger.drawn)

"""Random MJCF of the supported subset, and random states of it. Nothing here imports the package under test.

Model k is the same in every process, and so are its states: both are drawn from generators that are seeded by k. Every
joint and motor has a name, by which its share of a state is known: so a state still fits when elements are deleted.

What the package learns to take is added to `Maker.features`: each has a generator of its own, seeded by k and its name.
So the models that do not draw a new feature stay as they are.
"""

from __future__ import annotations

import dataclasses
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable

import mujoco
import numpy as np

SOLID = ("plane", "sphere", "capsule")
# What other shapes touch, and the bits of contype that ensure it.
TOUCHES = {
    "box": ("plane", "sphere", "capsule", "box"),
    "cylinder": ("plane", "sphere", "capsule"),
    "ellipsoid": ("plane",),
    "mesh": ("plane",),
    "hfield": ("sphere", "capsule"),
}
BITS = {"box": 4, "cylinder": 8, "ellipsoid": 16, "mesh": 32, "hfield": 64}
# Features that are left out, and in float32 "small friction" as well: their contacts are softened on purpose, since
# rounding would drown the answer (forces up to 1e17 in MuJoCo). test_stiff_contacts.py compares it with solutions at 50
# digits.
SOFTENED = frozenset({"next to no friction", "centred on its joint"})


@dataclasses.dataclass
class Case:
    """A model and states of it."""

    root: ET.Element
    worlds: list[World]
    drawn: Counter

    @property
    def xml(self) -> str:
        ET.indent(self.root)
        return ET.tostring(self.root, encoding="unicode")


@dataclasses.dataclass
class World:
    """qpos, qvel and warm start of each joint, control of each motor, activations of those that have any, by name.

    inputs: nothing, or all of INPUTS as mjData has them.
    """

    joints: dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]
    ctrl: dict[str, float]
    act: dict[str, float]
    inputs: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)


def case(seed: int, worlds: int = 6, without: frozenset[str] = SOFTENED) -> Case:
    """Model number `seed`, and states of it: in the air, touching, beyond limits."""
    maker = Maker(seed, without)
    root = maker.model()
    mjm = mujoco.MjModel.from_xml_string(ET.tostring(root, encoding="unicode"))
    found = states(mjm, worlds, seed)
    if maker.drawn["flat meshes"]:
        found[: worlds // 2] = states(mjm, worlds, seed, level=True)[: worlds // 2]
    return Case(root, found, maker.drawn)


# states


STATE = ("qpos", "qvel", "qacc_warmstart", "ctrl", "act")
INPUTS = ("xfrc_applied", "qfrc_applied", "eq_active", "mocap_pos", "mocap_quat")
State = tuple[np.ndarray, ...]  # of STATE, and of INPUTS if there are any


def split(mjm: mujoco.MjModel, state: State) -> World:
    """The state by name."""
    qpos, qvel, warm, ctrl, act = state
    joints = {}
    for j in range(mjm.njnt):
        joint = mjm.joint(j)
        q, v = _places(mjm, j)
        joints[joint.name] = (qpos[q].copy(), qvel[v].copy(), warm[v].copy())
    stateful = {mjm.actuator(i).name: float(act[mjm.actuator_actadr[i]]) for i in _stateful(mjm)}
    return World(joints, {mjm.actuator(i).name: float(ctrl[i]) for i in range(mjm.nu)}, stateful)


def _stateful(mjm: mujoco.MjModel) -> list[int]:
    return np.flatnonzero(mjm.actuator_actadr >= 0).tolist()


def join(mjm: mujoco.MjModel, world: World) -> State:
    qpos, qvel, warm = mjm.qpos0.copy(), np.zeros(mjm.nv), np.zeros(mjm.nv)
    for j in range(mjm.njnt):
        q, v = _places(mjm, j)
        qpos[q], qvel[v], warm[v] = world.joints[mjm.joint(j).name]
    act = np.array([world.act[mjm.actuator(i).name] for i in _stateful(mjm)])
    ctrl = np.array([world.ctrl[mjm.actuator(i).name] for i in range(mjm.nu)])
    return qpos, qvel, warm, ctrl, act, *world.inputs.values()


def put(d: mujoco.MjData, state: State) -> None:
    """Have MuJoCo's data be in this state."""
    for name, x in zip((*STATE, *INPUTS)[: len(state)], state, strict=True):
        getattr(d, name)[:] = x


def _places(mjm: mujoco.MjModel, j: int) -> tuple[slice, slice]:
    nq, nv = {0: (7, 6), 1: (4, 3)}.get(int(mjm.jnt_type[j]), (1, 1))
    q, v = int(mjm.jnt_qposadr[j]), int(mjm.jnt_dofadr[j])
    return slice(q, q + nq), slice(v, v + nv)


def states(mjm: mujoco.MjModel, n: int, seed: int, level: bool = False) -> list[World]:
    """n states: some drawn, some reached from there by MuJoCo; where there are contacts, most of them in contact.
    `level`: nothing is turned by more than a little, if at all.
    """
    rng = np.random.default_rng([seed, 4 if level else 1])
    found = [_state(mjm, rng, level) for _ in range(5 * n)]
    d = mujoco.MjData(mjm)
    ranked = []
    for state in found:
        _put(d, state)
        if rng.random() < 0.3:
            mujoco.mj_step(mjm, d, int(rng.integers(1, 30)))
            if d.warning.number.any():
                continue
            state = d.qpos.copy(), d.qvel.copy(), d.qacc_warmstart.copy(), state[3], d.act.copy()
            _put(d, state)
        mujoco.mj_forward(mjm, d)
        depth = min([c.dist for c in d.contact], default=0.0)
        ranked.append((_interest(d, depth) + rng.random(), state))
    ranked.sort(key=lambda x: -x[0])
    chosen = ranked[: n - 2] + ranked[-2:]
    return [split(mjm, state) for _, state in chosen[:n]]


def _interest(d: mujoco.MjData, depth: float) -> float:
    """Rate a state: more if it has rows of constraints, less if geoms are deep in each other."""
    bodies = d.model.body_weldid[d.model.geom_bodyid[d.contact.geom]]
    moving = bodies[np.all(bodies != 0, axis=1)] if d.ncon else bodies
    trees = d.model.body_rootid[moving]
    among = (1.0 if len(moving) else 0.0) + (1.0 if d.ncon and np.any(trees[:, 0] != trees[:, 1]) else 0.0)
    shallow = 0.5 if d.ncon and depth > -0.05 else -1.0 if depth < -0.2 else 0.0
    return (1.0 if d.nefc else 0.0) + among + shallow


def _put(d: mujoco.MjData, state: State) -> None:
    put(d, state)
    d.warning.number[:] = 0


def _state(mjm: mujoco.MjModel, rng: np.random.Generator, level: bool = False) -> State:
    qpos = mjm.qpos0.copy()
    wide = rng.choice([0.02, 0.1, 0.3])
    turned = wide * (10 ** rng.uniform(-7, -2) if rng.random() < 0.15 else 1.0)
    if level:
        turned = rng.choice([0.0, 1e-9, 1e-6, 1e-3, 1e-2])
    for j in range(mjm.njnt):
        (q, _), kind = _places(mjm, j), int(mjm.jnt_type[j])
        if kind == 0:
            qpos[q][:3] += rng.normal(0, wide, 3)
        if kind in (0, 1):
            quat = qpos[q][-4:]
            quat += rng.normal(0, turned * rng.choice([1, 5]), 4)
            quat *= (rng.uniform(0.5, 2) if rng.random() < 0.5 else 1.0) / np.linalg.norm(quat)
        else:
            low, high = mjm.jnt_range[j] if mjm.jnt_limited[j] else (0.0, 0.0)
            at = (low, high, qpos[q][0])[int(rng.integers(3))] if mjm.jnt_limited[j] else qpos[q][0]
            qpos[q] = at + rng.normal(0, 2 * turned if kind == 3 else wide)
    qvel = rng.normal(0, rng.choice([0.0, 0.1, 1.0, 8.0]), mjm.nv)
    warm = rng.normal(0, 10, mjm.nv) if rng.random() < 0.3 else np.zeros(mjm.nv)
    ctrl = rng.normal(0, rng.choice([0.3, 1.5]), mjm.nu)
    return qpos, qvel, warm, ctrl, rng.uniform(-0.2, 1.2, mjm.na) if mjm.na else np.zeros(0)


# models


def text(values: object) -> str:
    """As an attribute of MJCF."""
    if isinstance(values, str):
        return values
    return " ".join(f"{float(x):.6g}" for x in np.atleast_1d(np.asarray(values)))


class Maker:
    """Draws one model."""

    def __init__(self, seed: int, without: frozenset[str] = frozenset()):
        self.seed, self.rng = seed, np.random.default_rng([seed, 0])
        self.without = without
        self.drawn: Counter = Counter()
        self.scalars: list[str] = []  # hinges and slides
        self.sites: list[str] = []
        self.bodies = self.named = self.geoms = self.touching = 0
        self.dofs = int(self.pick(4, 7, 10))  # still to be given: each costs time to compile

    # draws

    def maybe(self, share: float, what: str = "") -> bool:
        """Return True in that share of draws. Draws with a name are counted, and may be left out."""
        yes = self.rng.random() < share
        if yes and what:
            yes = what not in self.without
            self.drawn[what] += yes
        return bool(yes)

    def pick(self, *options: object) -> object:
        return options[int(self.rng.integers(len(options)))]

    def normal(self, scale: float, n: int = 3) -> np.ndarray:
        return self.rng.normal(0, scale, n)

    def uniform(self, low: float, high: float) -> float:
        return float(self.rng.uniform(low, high))

    def log(self, low: float, high: float) -> float:
        return float(np.exp(self.rng.uniform(np.log(low), np.log(high))))

    # the whole

    def model(self) -> ET.Element:
        self.most_touching = int(self.pick(0, 2, 3, 3, 4))  # each pair of geoms costs time to compile
        self.planar = self.maybe(0.2, "planar")
        self.aligned = self.maybe(0.12, "aligned")  # capsules are parallel, or nearly
        self.many = self.maybe(0.03, "many alike")  # pairs enough for a loop over them
        self.trees = int(self.pick(1, 1, 2, 2))
        if self.many:
            self.most_touching, self.trees, self.many_condim = 6, 1, str(self.pick(1, 1, 3))
        self.centred = self.maybe(0.1, "centred on its joint")
        self.inertials = self.maybe(0.7)
        root = ET.Element("mujoco")
        self.element(root, "compiler", angle="radian", inertiafromgeom="auto" if self.inertials else "true")
        self.element(root, "size", memory="2M")  # not 14 MB to clear in each MjData
        self.option(root)
        world = ET.SubElement(root, "worldbody")
        if self.maybe(0.75, "plane"):
            self.plane(world)
        for _ in range(int(self.rng.integers(0, 3)) if self.maybe(0.25, "geom of the world") else 0):
            self.geom(world, moving=False)
        for _ in range(self.trees):
            self.body(world, depth=0)
        self.actuators(root)
        self.tendons(root)
        self.excludes(root)
        self.equalities(root)
        # Later features are drawn last, so that models from before them stay the same otherwise.
        if self.maybe(0.1, "no eulerdamp"):
            self.flags(root.find("option")).set("eulerdamp", "disable")
        for e in world.findall("body"):
            if e.find("joint") is None and e.find("freejoint") is None and self.maybe(0.4, "mocap"):
                e.set("mocap", "true")
        self.servos(root)
        self.friction_losses(root)
        for e in root.find("tendon"):
            if self.maybe(0.5, "springy tendon"):
                e.set("stiffness", text(self.log(0.1, 100)))
                e.set("damping", text(self.pick(0, self.log(0.01, 3))))
                if self.maybe(0.5):
                    low = self.uniform(-0.5, 0.5) if e.tag == "fixed" else self.uniform(0, 0.5)
                    e.set("springlength", text([low, low + self.log(0.01, 0.5)]))
        if self.maybe(0.1, "gravity compensation"):
            for e in world.iter("body"):
                if self.maybe(0.5):
                    e.set("gravcomp", text(self.pick(1, self.uniform(0, 2))))
        if self.maybe(0.15, "sensors"):
            self.sensors(root)
        self.pairs(root)
        option = root.find("option")
        if option.get("integrator") == "Euler" and self.maybe(0.3, "implicit integrator"):
            option.set("integrator", str(self.pick("implicit", "implicitfast", "implicitfast")))
        if self.maybe(0.03, "no actuation"):
            self.flags(option).set("actuation", "disable")
        self.fluid_shapes(root)
        self.forces_of_tendons(root)
        self.pairs_of_sites(root)
        self.activations(root)
        self.cones(root)
        self.ties(root)
        self.wrapped(root)
        for e in root.find("tendon"):
            self.tendon_rows(root, e)
        for e in root.iter("joint"):
            if e.get("type") == "ball" and self.maybe(0.5, "ball limit"):
                e.set("range", text([0, self.log(0.02, 1)]))
                if self.maybe(0.4):
                    e.set("margin", text(self.log(1e-3, 0.3)))
                self.softness(e, "limit")
        if not self.many and self.maybe(0.4):
            self.other_shapes(root)
        self.coupled_tendons(root)
        for feature in self.features():
            self.rng = np.random.default_rng([self.seed, 2, *feature.__name__.encode()])
            feature(root)
        touching = {g.get("type") for g in self.touching_geoms(root)}
        flag = root.find("option").find("flag")
        searched = ("mesh couple", "flat meshes", "convex couple", "height fields")
        if ({"capsule", "cylinder"} <= touching or any(self.drawn[x] for x in searched)) and flag is not None:
            flag.attrib.pop("nativeccd", None)  # without it the pair is refused
        return root

    def features(self) -> tuple[Callable[[ET.Element], None], ...]:
        """Return the features that came later, in this order. Each is drawn from random numbers of its own."""
        return (
            self.couples,
            self.noslip,
            self.polynomials,
            self.lifting_actuators,
            self.further_sensors,
            self.ellipsoids_in_implicit_steps,
            self.forces_of_tendons_in_implicit_steps,
            self.terrain,
            self.reflected,
            self.mesh_couples,
            self.sticky_bodies,
            self.adhesives,
            self.plastic_springs,
            self.moving_surfaces,
            self.delays,
            self.flat_meshes,
            self.convex_couples,
            self.further_terrain,
            self.magnets,
            self.rangefinders,
            self.distances,
            self.sensors_of_rows,
        )

    def element(self, parent: ET.Element, tag: str, **attributes: object) -> ET.Element:
        given = {k.rstrip("_"): text(v) for k, v in attributes.items() if v is not None}
        return ET.SubElement(parent, tag, given)

    def flags(self, option: ET.Element) -> ET.Element:
        found = option.find("flag")
        return self.element(option, "flag") if found is None else found

    def option(self, root: ET.Element) -> None:
        e = self.element(root, "option", integrator=self.pick("Euler", "Euler", "RK4"))
        e.set("timestep", text(self.pick(0.001, 0.002, 0.005, 0.01, self.log(2e-4, 0.02))))
        if self.maybe(0.4, "gravity"):
            e.set("gravity", text(self.pick([0, 0, 0], self.normal(5), [0, 0, -9.81 / 6], [3, 0, -9])))
        if self.maybe(0.25, "fluid"):
            if self.maybe(0.7):
                e.set("density", text(self.log(0.1, 1000)))
            if self.maybe(0.6):
                e.set("viscosity", text(self.log(1e-5, 1)))
            if self.maybe(0.6, "wind"):
                e.set("wind", text(self.normal(3)))
        if self.maybe(0.2, "impratio"):
            e.set("impratio", text(self.log(0.1, 20)))
        if self.maybe(0.15, "solver"):
            e.set("solver", str(self.pick("PGS", "CG", "Newton")))
            e.set("tolerance", text(self.log(1e-8, 1e-2)))
        if self.maybe(0.1, "few iterations"):
            e.set("iterations", str(self.pick(0, 1, 2, 3)))
            e.set("ls_iterations", str(self.pick(0, 1, 4)))
        flags = {
            "constraint": 0.01, "limit": 0.02, "contact": 0.02, "spring": 0.03, "damper": 0.03, "gravity": 0.02,
            "clampctrl": 0.04, "filterparent": 0.2, "warmstart": 0.03, "equality": 0.02, "frictionloss": 0.02,
            "sensor": 0.02, "midphase": 0.02, "nativeccd": 0.02, "island": 0.03, "autoreset": 0.02, "multiccd": 0.02,
        }  # fmt: skip
        off = [name for name, share in flags.items() if self.maybe(share, f"no {name}")]
        on = [name for name in ("energy", "fwdinv") if self.maybe(0.03, name)]
        if off or on:
            self.element(e, "flag", **dict.fromkeys(off, "disable"), **dict.fromkeys(on, "enable"))

    # bodies

    def body(self, parent: ET.Element, depth: int, moved: bool = False) -> None:
        """`moved`: an ancestor has joints."""
        self.bodies += 1
        e = self.element(parent, "body", name=f"b{self.bodies}" if self.maybe(0.8) else None)
        e.set("pos", text(self.vector(0.15) + ([0, 0, 0.3] if depth == 0 else [0, 0, 0])))
        if not self.planar and not self.aligned and self.maybe(0.5, "turned body"):
            self.orientation(e)
        free = depth == 0 and self.dofs >= 6 and self.maybe(0.35 if not self.planar else 0)
        jointed = self.dofs > 0 and (free or self.maybe(0.75))
        moved_here = moved or jointed
        if free:
            self.drawn["free"] += 1
            if self.maybe(0.5):
                self.joint(e, "free")
            else:
                self.named, self.dofs = self.named + 1, self.dofs - 6
                self.element(e, "freejoint", name=f"j{self.named}")
        elif jointed:
            if self.planar or self.dofs < 3 or self.maybe(0.7):
                self.scalar_joints(e)
            else:
                self.ball_joints(e)
        else:
            self.drawn["welded child" if moved else "static root"] += 1
        if moved_here:
            self.matter(e, jointed)
        elif self.maybe(0.6):
            self.geom(e, moving=False)
        for _ in range(int(self.maybe(0.4)) + int(self.maybe(0.1))):
            self.site(e)
        if self.many and depth < 5:
            self.body(e, depth + 1, moved_here)
        elif not self.many:
            for _ in range(int(self.pick(0, 1, 1, 2)) if depth < 3 else 0):
                if self.bodies < 5:
                    self.body(e, depth + 1, moved_here)

    def scalar_joints(self, e: ET.Element) -> None:
        for _ in range(min(self.dofs, int(self.pick(1, 1, 1, 2, 2, 3)))):
            kind = str(self.pick("hinge", "hinge", "slide"))
            self.drawn[kind] += 1
            self.joint(e, kind)

    def ball_joints(self, e: ET.Element) -> None:
        """A ball, perhaps among slides."""
        kinds = ["ball"] + ["slide"] * min(self.dofs - 3, int(self.pick(0, 0, 0, 1, 2)))
        self.rng.shuffle(kinds)
        self.drawn["ball"] += 1
        self.drawn["ball among slides"] += len(kinds) > 1
        for kind in kinds:
            self.joint(e, kind)

    def vector(self, scale: float) -> np.ndarray:
        """A position; in the x-z plane where the model is planar."""
        x = self.normal(scale)
        return x * [1, 0, 1] if self.planar else x

    def orientation(self, e: ET.Element) -> None:
        kind = self.pick("quat", "quat", "euler", "axisangle", "zaxis", "xyaxes")
        n = {"quat": 4, "axisangle": 4, "xyaxes": 6}.get(str(kind), 3)
        e.set(str(kind), text(self.pick(self.normal(1, n), [1, 0, 0, 1]) if kind == "quat" else self.normal(1, n)))

    def straighten(self, e: ET.Element) -> None:
        for name in ("quat", "euler", "axisangle", "zaxis", "xyaxes"):
            e.attrib.pop(name, None)

    def joint(self, e: ET.Element, kind: str) -> ET.Element:
        self.named, self.dofs = self.named + 1, self.dofs - {"free": 6, "ball": 3}.get(kind, 1)
        out = self.element(e, "joint", name=f"j{self.named}", type=kind)
        scalar = kind in ("hinge", "slide")
        if kind in ("hinge", "ball") and not self.centred and self.maybe(0.5):
            out.set("pos", text(self.vector(0.1)))
        if self.maybe(0.6, "damping"):
            high = self.log(0.01, 5)
            out.set("damping", text(-0.1 * high if self.maybe(0.1, "negative damping") else high))
        if self.maybe(0.3, "stiffness"):
            high = self.log(0.1, 100)
            out.set("stiffness", text(-0.1 * high if self.maybe(0.1, "negative stiffness") else high))
        if self.maybe(0.4, "armature"):
            out.set("armature", text(self.log(1e-3, 1)))
        if scalar:
            self.scalar(e, out, kind)
        return out

    def scalar(self, e: ET.Element, out: ET.Element, kind: str) -> None:
        self.scalars.append(out.get("name", ""))
        out.set("axis", text(self.axis(e, kind)))
        if self.maybe(0.3, "ref"):
            out.set("ref", text(self.normal(0.3, 1)))
        if self.maybe(0.3, "springref"):
            out.set("springref", text(self.normal(0.3, 1)))
        if self.maybe(0.5, "limit"):
            low = self.uniform(-1, 0.2)
            out.set("range", text([low, low + self.log(0.02, 2)]))
            if self.maybe(0.4, "limit margin"):
                out.set("margin", text(self.log(1e-3, 0.3)))
            self.softness(out, "limit")
        if self.maybe(0.15, "actuatorfrcrange"):
            out.set("actuatorfrcrange", text([-self.log(0.1, 5), self.log(0.1, 5)]))

    def axis(self, body: ET.Element, kind: str) -> object:
        """Any direction, or a coordinate axis that no joint of the kind has yet in this body."""
        taken = [j.get("axis", "") for j in body.findall("joint") if j.get("type") == kind]
        taken += [text([-float(x) + 0.0 for x in a.split()]) for a in taken]
        planes = {"hinge": [[0, 1, 0], [0, -1, 0]], "slide": [[1, 0, 0], [0, 0, 1]]}[kind] if self.planar else None
        axes = planes or [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, -1, 0], [-1, 1, 0], [1, 0, 1]]
        free = [a for a in axes if text(a) not in taken]
        if not self.planar and (not free or self.maybe(0.4, "any axis")):
            return self.normal(1)
        if not free:  # motions that cancel
            for joint in body.findall("joint"):
                joint.set("armature", text(self.log(1e-3, 1)))
        return self.pick(*(free or axes))

    def softness(self, out: ET.Element, kind: str = "") -> None:
        """solref and solimp."""
        if self.maybe(0.4, f"solref {kind}".strip()):
            direct = self.maybe(0.3, f"direct solref {kind}".strip())
            ref = [-self.log(10, 5000), -self.log(0.1, 100)] if direct else [self.log(2e-3, 0.2), self.log(0.2, 3)]
            out.set(f"solref{kind}", text(ref))
        if self.maybe(0.4, f"solimp {kind}".strip()):
            low, high = sorted([self.uniform(0, 1), self.uniform(0.3, 1)])
            imp = [low, low if self.maybe(0.1) else high, self.pick(0, self.log(1e-4, 0.1), self.log(1e-3, 0.1))]
            if self.maybe(0.6):
                imp += [self.uniform(0, 1), self.pick(0.5, 1, 2, 3, self.uniform(1, 6))]
            out.set(f"solimp{kind}", text(imp))

    # matter

    def matter(self, e: ET.Element, jointed: bool) -> None:
        """Geoms, an inertial element, or both; what has no joint may have neither."""
        if not jointed and self.maybe(0.2, "empty body"):
            return
        explicit = self.inertials and self.maybe(0.25, "inertial")
        if explicit:
            self.inertial(e)
        for k in range(int(self.pick(0, 1)) if explicit else int(self.pick(1, 1, 1, 2))):
            self.geom(e, moving=True, jointed=jointed, heavy=k == 0)

    def inertial(self, e: ET.Element) -> None:
        out = self.element(e, "inertial", pos=self.vector(0.1), mass=self.log(0.05, 10))
        size = self.rng.uniform(0.02, 0.3, 3) ** 2 * float(out.get("mass", 1))
        moments = [size[1] + size[2], size[0] + size[2], size[0] + size[1]]
        if self.maybe(0.2, "equal moments"):
            moments = [moments[0]] * 3
        if self.planar or self.maybe(0.5):
            out.set("diaginertia", text(moments))
            if not self.planar and self.maybe(0.6, "turned inertia"):
                self.orientation(out)
        else:
            axes = np.linalg.qr(self.rng.normal(size=(3, 3)))[0]
            full = axes @ np.diag(moments) @ axes.T
            out.set("fullinertia", text([full[0, 0], full[1, 1], full[2, 2], full[0, 1], full[0, 2], full[1, 2]]))

    def geom(self, e: ET.Element, moving: bool, jointed: bool = False, heavy: bool = True) -> None:
        out = self.element(e, "geom")
        apart = e.tag == "body" and not jointed and not self.maybe(0.8, "touching body without joints")
        touches = (
            self.touching < self.most_touching
            and not apart
            and (self.many or self.maybe(0.8 if self.trees == 1 else 0.5))
        )
        solid = ("sphere", "sphere", "sphere", "capsule", "capsule", "capsule")
        kind = str(self.pick(*(solid if touches else (*solid, "box", "cylinder", "ellipsoid"))))
        out.set("type", kind)
        self.shape(out, kind)
        if self.maybe(0.3):
            self.geoms += 1
            out.set("name", f"g{self.geoms}")
        if self.maybe(0.1, "massless geom") and not heavy:
            out.set("mass", "0")
        elif self.maybe(0.3):
            out.set("mass", text(self.log(0.05, 5)))
        elif self.maybe(0.5):
            out.set("density", text(self.log(100, 5000)))
        if touches:
            self.touching += 1
            self.surface(out)
        else:
            out.set("contype", "0")
            out.set("conaffinity", "0")

    def shape(self, out: ET.Element, kind: str) -> None:
        radius, half = self.log(0.03, 0.15), self.log(0.03, 0.3)
        if kind == "capsule" and not self.aligned and self.maybe(0.4, "fromto"):
            out.set("fromto", text(np.concatenate([self.vector(0.1), self.vector(0.2)])))
            out.set("size", text(radius))
            return
        out.set("size", text({"sphere": [radius], "capsule": [radius, half], "cylinder": [radius, half]}.get(
            kind, [radius, half, self.log(0.03, 0.2)])))  # fmt: skip
        if not self.centred:
            out.set("pos", text(self.vector(0.15)))
        if not self.planar and not self.aligned and self.maybe(0.6):
            self.orientation(out)

    def surface(self, out: ET.Element) -> None:
        """Draw the parameters of a geom's contacts."""
        if self.many:
            out.set("condim", self.many_condim)
            return
        if self.maybe(0.5, "condim 1"):
            out.set("condim", "1")
        if self.maybe(0.8):
            slide = self.log(0.05, 3)
            if self.maybe(0.2, "small friction"):
                slide = self.log(5e-3, 0.05)
                if self.maybe(0.5, "next to no friction"):
                    slide = float(self.pick(0, self.log(1e-6, 5e-3)))
            out.set("friction", text([slide, 0.005, 0.0001]))
        if self.maybe(0.15, "priority"):
            out.set("priority", str(self.pick(1, 2)))
        if self.maybe(0.2, "solmix"):
            out.set("solmix", text(self.pick(0, self.log(0.1, 10))))
        if self.maybe(0.3, "margin"):
            out.set("margin", text(self.log(1e-3, 0.05)))
        if self.maybe(0.15, "gap"):
            out.set("gap", text(self.log(1e-3, 0.03)))
        if self.maybe(0.15, "contype"):
            out.set("contype", str(self.pick(0, 1, 2, 3)))
            out.set("conaffinity", str(self.pick(1, 2, 3)))
        self.softness(out)

    def other_shapes(self, root: ET.Element) -> None:
        """Some of the spheres and capsules become shapes that touch no more than `TOUCHES` says."""
        geoms, changed = self.touching_geoms(root), set()
        for g in self.unpaired(root, geoms):
            if g.get("type") == "plane" or not self.maybe(0.6):
                continue
            kind = str(self.pick("box", "box", "cylinder", "cylinder", "ellipsoid", "mesh"))
            self.become(root, g, kind)
            changed.add(kind)
        self.meet(geoms, changed)
        others = [g for g in geoms if g.get("type") in TOUCHES]
        touch = [(g, o) for g in geoms for o in others if g.get("type") in ("sphere", "capsule")]
        touch = [(g, o) for g, o in touch if g.get("type") in TOUCHES[o.get("type")]]
        if touch and self.maybe(0.8):  # with a wide margin, so that enough of them do
            one, two = touch[int(self.rng.integers(len(touch)))]
            for k, g in enumerate((one, two)):
                g.set("name", g.get("name") or f"other{k}")
            section = root.find("contact")
            section = ET.SubElement(root, "contact") if section is None else section
            names = {"geom1": one.get("name"), "geom2": two.get("name")}
            self.element(section, "pair", margin=self.uniform(0.1, 0.4), condim=self.pick(1, 3), **names)
        self.narrow_boxes(geoms)

    def narrow_boxes(self, geoms: list[ET.Element]) -> None:
        """Draw narrow margins of boxes that touch each other: results with wide ones differ, see docs/limits.md."""
        boxes = [g for g in geoms if g.get("type") == "box"]
        if len(boxes) > 1:
            self.drawn["two boxes"] += 1
            for g in boxes:
                g.set("margin", text(self.uniform(0, 0.02)))

    def touching_geoms(self, root: ET.Element) -> list[ET.Element]:
        geoms = [g for g in root.iter("geom") if g.get("type")]
        return [g for g in geoms if (g.get("contype"), g.get("conaffinity")) != ("0", "0")]

    def unpaired(self, root: ET.Element, geoms: list[ET.Element]) -> list[ET.Element]:
        """Return the geoms that no pair and no tendon names."""
        named = {x for e in root.iter("pair") for x in (e.get("geom1"), e.get("geom2"))}
        named |= {e.get("geom") for e in root.iter("geom")}  # geoms around which tendons are led
        return [g for g in geoms if g.get("name", "") not in named]

    def become(self, root: ET.Element, g: ET.Element, kind: str) -> None:
        """Have a sphere or capsule that touches be of another shape."""
        self.drawn[f"touching {kind}"] += 1
        g.set("type", kind)
        if "fromto" in g.attrib:  # it stays where it is: see "centred on its joint"
            ends = np.array(g.attrib.pop("fromto").split(), dtype=float)
            g.set("pos", text(0.5 * (ends[:3] + ends[3:])))
        if kind == "mesh":
            del g.attrib["size"]
            g.set("mesh", g.get("mesh") or self.mesh(root, 0.1))
        else:
            g.set("size", text([self.log(0.03, 0.2) for _ in range(2 if kind in ("cylinder", "capsule") else 3)]))
        if kind in TOUCHES:
            g.set("contype", str(BITS[kind]))
            g.set("conaffinity", str(BITS[kind] if kind in TOUCHES[kind] else 0))

    def meet(self, geoms: list[ET.Element], kinds: set[str]) -> None:
        """Have spheres, capsules and planes touch shapes of these kinds."""
        for g in geoms:
            if g.get("type") not in TOUCHES:
                bits = sum(BITS[kind] for kind in kinds if g.get("type") in TOUCHES[kind])
                g.set("conaffinity", str(int(g.get("conaffinity", "1")) | bits))

    def couples(self, root: ET.Element) -> None:
        """Turn two geoms that touch into a capsule and a cylinder, or into two boxes."""
        geoms = self.touching_geoms(root)
        free = [g for g in self.unpaired(root, geoms) if g.get("type") in ("sphere", "capsule")]
        bodies = [b for b in root.iter() if b.tag in ("body", "worldbody") and any(g in list(b) for g in free)]
        if self.many or self.aligned or len(bodies) < 2 or not self.maybe(0.15, "couple"):
            return
        kinds = (("capsule", "cylinder"), ("box", "box"))[int(self.pick(0, 1))]
        chosen = [bodies[k] for k in self.rng.permutation(len(bodies))[:2]]
        couple = [next(g for g in free if g in list(body)) for body in chosen]
        for k, (g, kind) in enumerate(zip(couple, kinds, strict=True)):
            self.become(root, g, kind)
            if kind == "box":  # large, so that many touch
                g.set("size", text(self.rng.uniform(0.1, 0.25, 3)))
            g.set("name", g.get("name") or f"couple{k}")
        self.meet(geoms, TOUCHES.keys() & set(kinds))
        section = root.find("contact")
        section = ET.SubElement(root, "contact") if section is None else section
        if "box" in kinds:
            self.narrow_boxes(geoms)
        margin = self.uniform(0, 0.02 if "box" in kinds else 0.2)
        names = {"geom1": couple[0].get("name"), "geom2": couple[1].get("name")}
        self.element(section, "pair", margin=margin, condim=self.pick(1, 3, 4), **names)

    def mesh_couples(self, root: ET.Element) -> None:
        """Turn two geoms that touch into a box and a mesh, or two meshes; without a margin MuJoCo's answer is exact."""
        free = [g for g in self.unpaired(root, self.touching_geoms(root)) if g.get("type") in ("sphere", "capsule")]
        bodies = [b for b in root.iter() if b.tag in ("body", "worldbody") and any(g in list(b) for g in free)]
        if self.many or self.aligned or len(bodies) < 2 or not self.maybe(0.3, "mesh couple"):
            return
        chosen = [bodies[k] for k in self.rng.permutation(len(bodies))[:2]]
        for k, (body, kind) in enumerate(zip(chosen, (str(self.pick("box", "mesh")), "mesh"), strict=True)):
            g = next(g for g in free if g in list(body))
            if kind == "mesh":
                g.set("mesh", self.mesh(root, 0.2))  # large, so that many touch
            self.become(root, g, kind)
            g.set("name", g.get("name") or f"solid{k}")
            chosen[k] = g
        section = root.find("contact")
        section = ET.SubElement(root, "contact") if section is None else section
        names = {"geom1": chosen[0].get("name"), "geom2": chosen[1].get("name")}
        self.element(section, "pair", margin=0, condim=self.pick(1, 3, 4), **names)

    def two_free(self, root: ET.Element) -> list[ET.Element]:
        """Return two spheres or capsules of two bodies, of which nothing is asked yet; or none."""
        free = [g for g in self.unpaired(root, self.touching_geoms(root)) if g.get("type") in ("sphere", "capsule")]
        bodies = [b for b in root.iter() if b.tag in ("body", "worldbody") and any(g in list(b) for g in free)]
        if self.many or self.aligned or len(bodies) < 2:
            return []
        return [next(g for g in free if g in list(bodies[k])) for k in self.rng.permutation(len(bodies))[:2]]

    def pair_up(self, root: ET.Element, one: ET.Element, two: ET.Element, margin: float) -> None:
        """Have two geoms touch by a pair of their own."""
        section = self.section(root, "contact")
        for k, g in enumerate((one, two)):
            g.set("name", g.get("name") or f"pair{len(section)}.{k}")
        names = {"geom1": one.get("name"), "geom2": two.get("name")}
        self.element(section, "pair", margin=margin, condim=self.pick(1, 3, 4), **names)
        # Noslip takes contacts one by one, and MuJoCo's order of those that it searches for is not known.
        root.find("option").attrib.pop("noslip_iterations", None)

    def flat_meshes(self, root: ET.Element) -> None:
        """Turn two geoms that touch into meshes with flat faces, or into one and a box, and put bodies square."""
        couple = self.two_free(root)
        if not couple or not self.maybe(0.3, "flat meshes"):
            return
        for g, kind in zip(couple, (str(self.pick("mesh", "mesh", "box")), "mesh"), strict=True):
            if kind == "mesh":
                g.set("mesh", self.flat_mesh(root))
            self.become(root, g, kind)
            if kind == "box":
                g.set("size", text(self.rng.uniform(0.05, 0.25, 3)))
        self.pair_up(root, *couple, margin=self.pick(0, 0, self.uniform(0, 0.02)))
        self.meet(self.touching_geoms(root), {"mesh"})
        squared = [*root.iter("body"), *couple] if self.maybe(0.8) else couple
        for e in squared:
            self.straighten(e)
            if self.maybe(0.2):
                e.set("quat", text(self.pick([1, 0, 0, 1], [0, 1, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0.3])))

    def flat_mesh(self, root: ET.Element) -> str:
        """Add a mesh that is a brick, a plate, a prism or a frustum, and return its name."""
        assets = self.section(root, "asset")
        corners = int(self.pick(3, 4, 4, 4, 5, 6, 8))
        angles = np.arange(corners) * 2 * np.pi / corners + self.pick(0, np.pi / corners)
        top = self.pick(1, 1, 1, self.uniform(0.3, 1))
        points = [[r * np.cos(a), r * np.sin(a), z] for z, r in ((-1, 1), (1, top)) for a in angles]
        size = self.rng.uniform(0.05, 0.25, 3)
        size[int(self.rng.integers(3))] *= self.pick(1, 1, 0.1)
        self.element(assets, "mesh", name=f"mesh{len(assets)}", vertex=(np.array(points) * size).round(5).ravel())
        return f"mesh{len(assets) - 1}"

    def convex_couples(self, root: ET.Element) -> None:
        """Turn two geoms that touch into shapes of any two kinds, for many of which MuJoCo searches."""
        couple = self.two_free(root)
        if not couple or not self.maybe(0.4, "convex couple"):
            return
        round_, any_ = ("ellipsoid", "cylinder", "mesh"), ("sphere", "capsule", "ellipsoid", "cylinder", "box", "mesh")
        for g, kind in zip(couple, (str(self.pick(*any_)), str(self.pick(*round_))), strict=True):
            if kind != g.get("type"):
                self.become(root, g, kind)
            if kind == "mesh":
                g.set("mesh", self.mesh(root, 0.15) if self.maybe(0.5) else self.flat_mesh(root))
        self.drawn[f"{couple[0].get('type')} and {couple[1].get('type')}"] += 1
        self.pair_up(root, *couple, margin=self.pick(0, 0, self.uniform(0, 0.05)))

    def noslip(self, root: ET.Element) -> None:
        """Add noslip iterations, a fixed number of them, so that friction does not creep. They take contacts one by
        one, and those of capsules on cylinders in another order than MuJoCo: see docs/limits.md.
        """
        touching = {g.get("type") for g in self.touching_geoms(root)}
        if not self.many and not {"capsule", "cylinder"} <= touching and self.maybe(0.08, "noslip"):
            option = root.find("option")
            option.set("noslip_iterations", str(self.pick(1, 2, 5)))
            option.set("noslip_tolerance", "0")

    def mesh(self, root: ET.Element, wide: float) -> str:
        """Add a mesh of points in a cloud, and return its name."""
        assets = root.find("asset")
        assets = ET.SubElement(root, "asset") if assets is None else assets
        points = self.normal(wide, 3 * int(self.pick(5, 8, 12))).round(4)
        self.element(assets, "mesh", name=f"mesh{len(assets)}", vertex=points)
        return f"mesh{len(assets) - 1}"

    def plane(self, e: ET.Element) -> None:
        out = self.element(e, "geom", name="floor", type="plane", size=[0, 0, 1])
        out.set("pos", text([0, 0, self.uniform(-0.1, 0.3)]))
        if self.maybe(0.3, "tilted plane"):
            if self.planar:
                out.set("euler", text([0, self.uniform(-1, 1), 0]))
            else:
                self.orientation(out)
        self.surface(out)

    def terrain(self, root: ET.Element) -> None:
        """Add rough ground under round shapes."""
        if not self.maybe(0.05, "height field"):
            return
        assets = root.find("asset")
        assets = ET.SubElement(root, "asset") if assets is None else assets
        nrow, ncol = int(self.pick(2, 3, 4)), int(self.pick(2, 3, 4))
        size = [self.uniform(0.5, 2), self.uniform(0.5, 2), self.log(0.05, 0.5), self.log(0.05, 0.5)]
        heights = self.rng.random(nrow * ncol).round(3)
        self.element(assets, "hfield", name="terrain", nrow=nrow, ncol=ncol, size=size, elevation=heights)
        out = ET.SubElement(root.find("worldbody"), "geom", type="hfield", hfield="terrain")
        out.set("pos", text([self.uniform(-0.3, 0.3), self.uniform(-0.3, 0.3), self.uniform(-0.2, 0.2)]))
        self.ground(out)
        self.meet(self.touching_geoms(root), {"hfield"})
        option = root.find("option")
        if option.get("integrator") == "RK4":  # random_models does not see how deep a centre is within a step
            option.set("integrator", "Euler")

    def ground(self, out: ET.Element) -> None:
        """Turn a height field now and then, and have it touch what is told to meet one."""
        if not self.planar and self.maybe(0.4):
            self.orientation(out)
        self.surface(out)
        out.set("contype", str(BITS["hfield"]))
        out.set("conaffinity", "0")

    def further_terrain(self, root: ET.Element) -> None:
        """Add several height fields, also moving ones, under shapes of all kinds."""
        option = root.find("option")
        if self.many or not self.maybe(0.05, "height fields"):
            return
        assets = self.section(root, "asset")
        world = root.find("worldbody")
        for k in range(int(self.rng.integers(2, 4))):
            nrow, ncol = int(self.pick(2, 3)), int(self.pick(2, 3, 4))
            size = [self.uniform(0.3, 1), self.uniform(0.3, 1), self.log(0.05, 0.5), self.log(0.05, 0.3)]
            heights = self.rng.random(nrow * ncol).round(3)
            self.element(assets, "hfield", name=f"field{k}", nrow=nrow, ncol=ncol, size=size, elevation=heights)
            out = ET.SubElement(world, "geom", name=f"field{k}", type="hfield", hfield=f"field{k}")
            out.set("pos", text([self.uniform(-0.5, 0.5), self.uniform(-0.5, 0.5), self.uniform(-0.3, 0.2)]))
            self.ground(out)
        geoms = self.touching_geoms(root)
        self.meet(geoms, {"hfield"})
        for g in geoms:
            if g.get("type") in ("cylinder", "ellipsoid", "box", "mesh") and self.maybe(0.5):
                g.set("conaffinity", str(int(g.get("conaffinity", "1")) | BITS["hfield"]))
                if g.get("type") in ("box", "mesh"):  # without a margin MuJoCo's search ends early: docs/limits.md
                    g.set("margin", text(self.uniform(0.001, 0.02)))
        if option.get("integrator") == "RK4":  # random_models does not see how deep a centre is within a step
            option.set("integrator", "Euler")

    def site(self, e: ET.Element) -> None:
        self.sites.append(f"s{len(self.sites)}")
        out = self.element(e, "site", name=self.sites[-1], pos=self.vector(0.2))
        if self.maybe(0.3):
            self.orientation(out)

    # what acts on joints, measures them, or forbids contacts

    def actuators(self, root: ET.Element) -> None:
        section = ET.SubElement(root, "actuator")
        for joint in self.scalars:
            for _ in range(int(self.maybe(0.5)) + int(self.maybe(0.1))):
                where = {str(self.pick("joint", "joint", "jointinparent")): joint}
                out = self.element(section, "motor", name=f"m{len(section)}", **where)
                if self.maybe(0.7):
                    out.set("gear", text(self.normal(3, int(self.pick(1, 6)))))
                if self.maybe(0.5, "ctrlrange"):
                    out.set("ctrlrange", text([-self.log(0.1, 2), self.log(0.1, 2)]))
                    if self.maybe(0.2, "ctrlrange unused"):
                        out.set("ctrllimited", "false")
                if self.maybe(0.3, "forcerange"):
                    out.set("forcerange", text([-self.log(0.1, 2), self.log(0.1, 2)]))

    def tendons(self, root: ET.Element) -> None:
        section = ET.SubElement(root, "tendon")
        if self.scalars and self.maybe(0.2, "fixed tendon"):
            out = self.element(section, "fixed", name="t1")
            for joint in self.rng.permutation(self.scalars)[: int(self.rng.integers(1, 4))]:
                self.element(out, "joint", joint=str(joint), coef=self.normal(1, 1))
        if len(self.sites) > 1 and self.maybe(0.3, "spatial tendon"):
            out = self.element(section, "spatial", name="t2")
            for k, site in enumerate(self.rng.permutation(self.sites)[:4]):
                if k == 2 and len(self.sites) > 3 and self.maybe(0.5, "pulley"):
                    self.element(out, "pulley", divisor=self.log(0.5, 4))
                self.element(out, "site", site=str(site))

    def servos(self, root: ET.Element) -> None:
        """Actuators of all kinds but motors of hinges and slides."""
        joints = [(j.get("name", ""), j.get("type", "free")) for j in root.iter() if j.tag in ("joint", "freejoint")]
        joints = [(name, kind) for name, kind in joints if name]  # others are those of tendons and equalities
        tendons = [t.get("name", "") for t in root.find("tendon") or ()]
        section = root.find("actuator")
        for site in self.sites:
            if self.maybe(0.15, "driven site"):
                out = self.element(section, "general", name=f"m{len(section)}", site=site, gear=self.normal(1, 6))
                self.law(out)
        while self.maybe(0.45) and len(section) < 12:
            name, kind = self.pick(*joints) if joints else ("", "")
            where = {str(self.pick("joint", "jointinparent")): name}
            if tendons and (not joints or self.maybe(0.3, "driven tendon")):
                where, kind = {"tendon": self.pick(*tendons)}, "tendon"
            elif not joints:
                return
            else:
                self.drawn[f"driven {kind}"] += 1
            out = self.element(section, "general", name=f"m{len(section)}", **where)
            self.law(out)
            if kind in ("ball", "free"):
                out.set("gear", text(self.normal(1, 6)))
            elif self.maybe(0.5):
                out.set("gear", text(self.normal(2, 1)))
            if self.maybe(0.4):
                out.set("ctrlrange", text([-self.log(0.1, 2), self.log(0.1, 2)]))
            if self.maybe(0.3):
                out.set("forcerange", text([-self.log(0.1, 2), self.log(0.1, 2)]))

    def law(self, out: ET.Element) -> None:
        """Gain and bias: a motor's, those of a position or velocity servo or of a damper, or any."""
        kp, kv = self.log(0.1, 20), self.log(0.01, 1)
        kind = str(self.pick("motor", "position", "position", "velocity", "damper", "any"))
        self.drawn[f"{kind} law"] += 1
        gain, bias = {
            "motor": ([self.log(0.1, 5)], None),
            "position": ([kp], [0, -kp, -kv * self.pick(0, 1)]),
            "velocity": ([kv], [0, 0, -kv]),
            "damper": ([0, 0, -kv], None),
            "any": (self.normal(1), [*self.normal(1, 2), -kv]),
        }[kind]
        out.set("gaintype", "affine" if len(gain) > 1 else "fixed")
        out.set("gainprm", text(gain))
        if bias is not None:
            out.set("biastype", "affine")
            out.set("biasprm", text(bias))

    def forces_of_tendons(self, root: ET.Element) -> None:
        """Add ranges for the total force of all actuators on a tendon."""
        if root.find("option").get("integrator") in ("Euler", "RK4"):  # of others they came later
            self.ranges_of_tendons(root)

    def forces_of_tendons_in_implicit_steps(self, root: ET.Element) -> None:
        if root.find("option").get("integrator") not in ("Euler", "RK4"):
            self.ranges_of_tendons(root)

    def ranges_of_tendons(self, root: ET.Element) -> None:
        driven = {e.get("tendon") for e in root.find("actuator")}
        for tendon in root.find("tendon"):
            if tendon.get("name") in driven and self.maybe(0.6, "actuatorfrcrange of a tendon"):
                tendon.set("actuatorfrcrange", text([-self.log(0.1, 2), self.log(0.1, 2)]))

    def fluid_shapes(self, root: ET.Element) -> None:
        if root.find("option").get("integrator") in ("Euler", "RK4"):  # of others they came later
            self.ellipsoids(root)

    def ellipsoids_in_implicit_steps(self, root: ET.Element) -> None:
        if root.find("option").get("integrator") not in ("Euler", "RK4"):
            self.ellipsoids(root)

    def ellipsoids(self, root: ET.Element) -> None:
        option = root.find("option")
        if option.get("density") or option.get("viscosity"):
            for body in root.iter("body"):
                for geom in body.findall("geom"):
                    if self.maybe(0.25, "fluid ellipsoid"):
                        geom.set("fluidshape", "ellipsoid")
                        if self.maybe(0.5):
                            geom.set("fluidcoef", text(self.rng.uniform(0, 2, 5)))

    def pairs_of_sites(self, root: ET.Element) -> None:
        """Actuators between two sites: poses of one in the frame of another, and slider-cranks."""
        section = root.find("actuator")
        if len(self.sites) > 1 and self.maybe(0.2):
            one, other = map(str, self.rng.permutation(self.sites)[:2])
            if self.maybe(0.5, "slider-crank"):
                where: dict[str, object] = {"cranksite": one, "slidersite": other, "cranklength": self.log(0.1, 2)}
            else:
                self.drawn["refsite"] += 1
                gear = self.normal(1, 6)
                gear[:3] *= self.pick(0, 1)
                where = {"site": one, "refsite": other, "gear": gear}
            self.law(self.element(section, "general", name=f"m{len(section)}", **where))

    def activations(self, root: ET.Element) -> None:
        """Dynamics of some actuators, muscles, and groups that are disabled."""
        off = self.maybe(0.06, "disabled group")
        if off:
            root.find("option").set("actuatorgroupdisable", "2 3")
        for out in root.find("actuator").findall("general"):
            if off:
                out.set("group", str(self.pick(1, 2)))
            if not self.maybe(0.2):
                continue
            kind = str(self.pick("integrator", "filter", "filterexact", "muscle", "muscle"))
            self.drawn[f"{kind} dynamics"] += 1
            out.set("dyntype", kind)
            out.set("dynprm", text([self.log(0.01, 0.3), self.log(0.01, 0.3), self.pick(0, self.log(0.1, 1))]))
            if self.maybe(0.5, "actrange"):
                out.set("actrange", text([-self.log(0.1, 2), self.log(0.1, 2)]))
            if self.maybe(0.3, "actearly"):
                out.set("actearly", "true")
            if kind == "muscle":
                self.muscle(out)

    def muscle(self, out: ET.Element) -> None:
        middle, half = self.normal(0.5, 1)[0], self.log(0.2, 2)
        out.set("lengthrange", text([middle - half, middle + half]))
        prm = [0.75, 1.05, self.pick(-1, self.log(1, 30)), self.log(1, 30), 0.5, 1.6, self.log(0.5, 5), 1.3, 1.2]
        for what in ("gain", "bias"):
            out.set(f"{what}type", "muscle")
            out.set(f"{what}prm", text(prm))

    def friction_losses(self, root: ET.Element) -> None:
        if self.maybe(0.25):
            for joint in root.iter("joint"):
                if joint.get("name") and self.maybe(0.6, "friction loss"):
                    joint.set("frictionloss", text(self.log(0.05, 100)))
                    self.softness(joint, "friction")

    def pairs(self, root: ET.Element) -> None:
        """Add pairs of named geoms that can touch, whether they would without a pair or not."""
        if self.aligned:  # parallel capsules, which touch twice, from afar
            capsules = [g for b in root.iter("body") for g in b.findall("geom") if g.get("type") == "capsule"]
            for k, geom in enumerate(capsules):
                geom.set("name", geom.get("name") or f"capsule{k}")
            if len(capsules) > 1:
                one, two = capsules[0].get("name"), capsules[-1].get("name")
                section = ET.SubElement(root, "contact")
                self.element(section, "pair", geom1=one, geom2=two, margin=self.uniform(0.1, 0.4))
        solid = [g.get("name", "") for g in root.iter("geom") if g.get("name") and g.get("type") in SOLID]
        for _ in range(int(self.pick(1, 2)) if len(solid) > 1 and self.maybe(0.0 if self.aligned else 0.25) else 0):
            one, two = self.rng.permutation(solid)[:2]
            self.drawn["explicit pair"] += 1
            section = root.find("contact")
            section = ET.SubElement(root, "contact") if section is None else section
            out = self.element(section, "pair", geom1=str(one), geom2=str(two))
            if self.maybe(0.5):
                out.set("condim", str(self.pick(1, 3)))
            if self.maybe(0.8):
                out.set("friction", text([self.log(0.06, 3)] * 2))
            if self.maybe(0.4):
                out.set("margin", text(self.log(1e-3, 0.1)))
            if self.maybe(0.2):
                out.set("gap", text(self.log(1e-3, 0.03)))
            self.softness(out)

    def cones(self, root: ET.Element) -> None:
        """Friction against spinning and rolling, and elliptic cones."""
        if self.maybe(0.25, "elliptic"):
            option = root.find("option")
            option.set("cone", "elliptic")
            if self.maybe(0.5):
                option.set("impratio", text(self.log(1, 30)))
        if self.maybe(0.35, "spin and roll"):
            condim = self.pick(4, 6)
            for e in root.iter("geom"):
                if e.get("contype") != "0" and (self.many or self.maybe(0.6)):
                    slide = e.get("friction", "1").split()[0]
                    e.set("condim", str(condim))
                    e.set("friction", f"{slide} {self.log(1e-3, 0.1):.6g} {self.log(1e-4, 0.05):.6g}")
        for e in root.iter("pair"):
            if self.maybe(0.5, "pair of five frictions"):
                slide, turn = [self.log(0.06, 3), self.log(0.06, 3)], [self.log(1e-4, 0.1) for _ in range(3)]
                e.set("condim", str(self.pick(3, 4, 6)))
                e.set("friction", text([*slide, *turn]))
                if self.maybe(0.4):
                    self.softness(e, "friction")
                    e.attrib.pop("solimpfriction", None)

    def wrapped(self, root: ET.Element) -> None:
        """Add a tendon round a sphere or a cylinder that is there only for it."""
        bodies = [b for b in root.iter("body") if b.get("mocap") is None]
        if len(self.sites) < 2 or not self.maybe(0.3, "wrapping tendon"):
            return
        body = self.pick(root.find("worldbody"), bodies[int(self.rng.integers(len(bodies)))])
        kind, place, radius = str(self.pick("sphere", "cylinder")), self.vector(0.1), self.log(0.02, 0.15)
        self.element(
            body, "geom", name="round", type=kind, size=[radius, 0.1], pos=place, mass=0, contype=0, conaffinity=0
        )
        out = self.element(root.find("tendon"), "spatial", name="t3")
        one, two = self.rng.permutation(self.sites)[:2]
        self.element(out, "site", site=str(one))
        wraps = self.element(out, "geom", geom="round")
        self.element(out, "site", site=str(two))
        if self.maybe(0.7, "side site"):
            away = self.normal(1)
            away *= radius * self.pick(0.6, 1.5) / np.linalg.norm(away)
            self.element(body, "site", name="aside", pos=place + away)
            wraps.set("sidesite", "aside")
        if self.maybe(0.6):
            out.set("stiffness", text(self.log(0.1, 100)))
        if self.maybe(0.4):
            out.set("damping", text(self.log(0.01, 3)))

    def tendon_rows(self, root: ET.Element, out: ET.Element) -> None:
        """Limits, friction loss and armature of a tendon."""
        if self.maybe(0.5, "tendon limit"):
            low = self.uniform(-0.5, 0.2) if out.tag == "fixed" else self.uniform(0, 0.4)
            out.set("range", text([low, low + self.log(0.02, 1)]))
            if self.maybe(0.4):
                out.set("margin", text(self.log(1e-3, 0.3)))
            self.softness(out, "limit")
        if self.maybe(0.3, "tendon friction loss"):
            out.set("frictionloss", text(self.log(0.1, 300)))
            self.softness(out, "friction")
        compared = out.tag == "fixed" or root.find("option").get("integrator") != "RK4"  # see docs/exactness.md
        if compared and out.find("geom") is None and self.maybe(0.25, "tendon armature"):
            out.set("armature", text(self.log(1e-2, 1)))
        if out.get("name") in self.still_tendons(root):
            for what in {"range", "frictionloss"} & out.attrib.keys():
                del out.attrib[what]

    def excludes(self, root: ET.Element) -> None:
        named = [b.get("name", "") for b in root.iter("body") if b.get("name")]
        if len(named) > 1 and self.maybe(0.1, "exclude"):
            one, two = self.rng.permutation(named)[:2]
            self.element(ET.SubElement(root, "contact"), "exclude", body1=str(one), body2=str(two))

    def equalities(self, root: ET.Element) -> None:
        section = ET.SubElement(root, "equality")
        for joint in self.scalars:
            if not self.maybe(0.12, "equality"):
                continue
            out = self.element(section, "joint", joint1=joint)
            others = [x for x in self.scalars if x != joint]
            if others and self.maybe(0.7, "equality of two joints"):
                out.set("joint2", str(self.pick(*others)))
            if self.maybe(0.8):
                out.set("polycoef", text(self.normal(1, 5) * [0.3, 1, 0.5, 0.2, 0.1]))
            if self.maybe(0.1, "inactive equality"):
                out.set("active", "false")
            self.softness(out)

    def still_tendons(self, root: ET.Element) -> list[str]:
        """Return the tendons that nothing stretches at first: their rows would be infinitely stiff, and their forces
        rounding.
        """
        mjm = mujoco.MjModel.from_xml_string(ET.tostring(root, encoding="unicode"))
        return [mjm.tendon(t).name for t in range(mjm.ntendon) if mjm.tendon_invweight0[t] < mujoco.mjMINVAL]

    def coupled_tendons(self, root: ET.Element) -> None:
        still = self.still_tendons(root)
        names = [t.get("name", "") for t in root.find("tendon") or () if t.get("name") and t.get("name") not in still]
        if names and self.maybe(0.2, "equality of tendons"):
            one, *others = (str(t) for t in self.rng.permutation(names))
            out = self.element(root.find("equality"), "tendon", tendon1=one)
            if others and self.maybe(0.7):
                out.set("tendon2", others[0])
            if self.maybe(0.8):
                out.set("polycoef", text(self.normal(1, 5) * [0.1, 1, 0.5, 0.2, 0.1]))
            self.softness(out)

    def ties(self, root: ET.Element) -> None:
        """Connects and welds, of bodies, of a body and the world, and of sites."""
        section, bodies = root.find("equality"), [b.get("name", "") for b in root.iter("body") if b.get("name")]
        while self.maybe(0.2) and len(section) < 6:
            kind = str(self.pick("connect", "weld"))
            if len(self.sites) > 1 and self.maybe(0.6):
                one, two = self.rng.permutation(self.sites)[:2]
                out = self.element(section, kind, site1=str(one), site2=str(two))
            elif bodies:
                one, *others = (str(b) for b in self.rng.permutation(bodies))
                out = self.element(section, kind, body1=one)
                if others and self.maybe(0.7):
                    out.set("body2", others[0])
                if kind == "connect" or self.maybe(0.4):
                    out.set("anchor", text(self.vector(0.2)))
                if kind == "weld" and self.maybe(0.5, "relpose"):
                    out.set("relpose", text([*self.vector(0.2), 1, *self.normal(0.2)]))
            else:
                return
            self.drawn[f"{kind} of {'sites' if out.get('site1') else 'bodies'}"] += 1
            if kind == "weld" and self.maybe(0.4, "torquescale"):
                out.set("torquescale", text(self.pick(0, self.log(0.1, 10))))
            if self.maybe(0.1):
                out.set("active", "false")
            self.softness(out)

    def polynomials(self, root: ET.Element) -> None:
        """Higher coefficients of springs and dampers."""
        if not self.maybe(0.1):
            return
        for e in [*root.iter("joint"), *root.find("tendon")]:
            for what in ("stiffness", "damping"):
                first = float(e.get(what, "0"))
                if first > 0 and e.get("name") and self.maybe(0.6, f"polynomial {what}"):
                    second = first * self.uniform(-0.5, 1) * (what == "stiffness" or 0.1)
                    e.set(what, text([self.pick(0, first), second, abs(second) * self.uniform(0.3, 2)]))

    def lifting_actuators(self, root: ET.Element) -> None:
        """Joints whose gravity compensation counts as the force of actuators."""
        if any(e.get("gravcomp") for e in root.iter("body")):
            for e in root.iter("joint"):
                if e.get("type") and self.maybe(0.3, "actuatorgravcomp"):
                    e.set("actuatorgravcomp", "true")

    def reflected(self, root: ET.Element) -> None:
        """Damping and armature that actuators give what they drive."""
        if not self.maybe(0.1):
            return
        round_geoms = {t.get("name") for t in root.find("tendon") if t.find("geom") is not None}
        compared = root.find("option").get("integrator") != "RK4"  # armature of tendons: see docs/exactness.md
        for e in root.find("actuator"):
            joint, tendon = e.get("joint") or e.get("jointinparent"), e.get("tendon")
            if (joint or tendon) and self.maybe(0.6, "damping by an actuator"):
                e.set("damping", text([self.log(1e-3, 0.3), self.pick(0, self.log(1e-4, 0.03))]))
            straight = tendon and compared and tendon not in round_geoms
            if (joint or straight) and self.maybe(0.5, "armature by an actuator"):
                e.set("armature", text(self.log(1e-3, 0.1)))

    def sticky_bodies(self, root: ET.Element) -> None:
        """Actuators that pull a body to what it touches, some of it across a gap."""
        bodies = [e for e in root.iter("body") if e.find("geom") is not None]
        if not bodies or not self.maybe(0.12, "sticky body"):
            return
        for _ in range(int(self.rng.integers(1, 3))):
            body = bodies[int(self.rng.integers(len(bodies)))]
            if not body.get("name"):
                body.set("name", f"sticky{len(root.find('actuator'))}")
            out = self.element(root.find("actuator"), "adhesion", body=body.get("name"), ctrlrange=(0, 2))
            out.set("gain", text(self.log(0.1, 30)))
            for geom in body.findall("geom"):
                if self.maybe(0.4, "gap of a sticky body"):
                    geom.set("gap", text(self.log(1e-3, 0.1)))

    def adhesives(self, root: ET.Element) -> None:
        """Geoms and pairs whose contacts pull, some of them across a gap."""
        geoms = [e for e in root.find("worldbody").iter("geom") if e.get("contype") != "0"]
        if not geoms or not self.maybe(0.12, "adhesion"):
            return
        for e in [*geoms, *root.iter("pair")]:
            if self.maybe(0.6):
                e.set("adhesion", text(self.log(0.1, 30)))
                if self.maybe(0.5, "gap that pulls"):
                    e.set("gap", text(self.log(1e-3, 0.1)))

    def plastic_springs(self, root: ET.Element) -> None:
        """Springs of joints and tendons that yield."""
        if not self.maybe(0.2):
            return
        for e in [*root.iter("joint"), *root.find("tendon")]:
            if e.get("stiffness") and e.get("type") != "free" and self.maybe(0.7, "spring that yields"):
                e.set("springyield", text(self.log(1e-3, 0.3)))

    def moving_surfaces(self, root: ET.Element) -> None:
        """Geoms whose surface moves while they do not."""
        geoms = [e for e in root.find("worldbody").iter("geom") if e.get("contype") != "0"]
        if not geoms or not self.maybe(0.12, "moving surface"):
            return
        for e in geoms:
            if self.maybe(0.5):
                e.set("surfacevel", text(self.normal(1, 6)))

    def delays(self, root: ET.Element) -> None:
        """Actuators and sensors that are late, by no whole number of steps, or measure at intervals."""
        option = root.find("option")
        h, rk4 = float(option.get("timestep", "0.002")), option.get("integrator") == "RK4"
        if not self.maybe(0.15):
            return
        for kind in ("actuator", "sensor"):
            for e in root.find(kind) if root.find(kind) is not None else ():
                if not self.maybe(0.5, f"late {kind}"):
                    continue
                e.set("nsample", text(int(self.rng.integers(1, 5))))
                e.set("interp", str(self.pick("zoh", "linear", "cubic")))
                if kind == "actuator" or not rk4:
                    e.set("delay", text(float(h * self.rng.uniform(0.1, 5))))
                if kind == "sensor" and self.maybe(0.5):
                    e.set("interval", text([float(h * self.rng.uniform(1, 3)), 0.0]))

    def section(self, root: ET.Element, tag: str) -> ET.Element:
        found = root.find(tag)
        return ET.SubElement(root, tag) if found is None else found

    def magnets(self, root: ET.Element) -> None:
        if not self.sites or not self.maybe(0.05, "magnetometer"):
            return
        root.find("option").set("magnetic", text(self.normal(1)))
        for site in self.rng.permutation(self.sites)[:2]:
            out = self.element(self.section(root, "sensor"), "magnetometer", site=str(site))
            if self.maybe(0.3):
                out.set("cutoff", text(self.log(0.1, 2)))

    def rangefinders(self, root: ET.Element) -> None:
        """Add rangefinders to sites, several to some, which look at all that is there."""
        if not self.sites or not self.maybe(0.08, "rangefinder"):
            return
        for site in self.rng.permutation(self.sites)[:3]:
            for _ in range(int(self.rng.integers(1, 3))):
                data = ["dist", *(x for x in ("dir", "origin", "point", "depth") if self.maybe(0.2))]
                out = self.element(self.section(root, "sensor"), "rangefinder", site=str(site), data=" ".join(data))
                if self.maybe(0.2):
                    out.set("cutoff", text(self.log(0.1, 2)))
        for e in root.find("worldbody").iter("site"):
            if not self.planar and self.maybe(0.6):
                self.straighten(e)
                e.set("quat", text(self.normal(1, 4)))

    def distances(self, root: ET.Element) -> None:
        """Add sensors of how far geoms are apart."""
        geoms = [g for g in root.find("worldbody").iter("geom") if g.get("type") != "hfield"]
        if len(geoms) < 2 or not self.maybe(0.08, "distance"):
            return
        for k, g in enumerate(geoms):
            g.set("name", g.get("name") or f"measured{k}")
        for _ in range(int(self.rng.integers(1, 4))):
            one, two = (geoms[k] for k in self.rng.permutation(len(geoms))[:2])
            names, cutoff = {"geom1": one.get("name"), "geom2": two.get("name")}, self.log(0.1, 3)
            if {one.get("type"), two.get("type")} != {"plane"}:
                for what in ("distance", *(x for x in ("normal", "fromto") if self.maybe(0.5))):
                    self.element(self.section(root, "sensor"), what, cutoff=cutoff, **names)

    def sensors_of_rows(self, root: ET.Element) -> None:
        """Add sensors of tendons, and of the limits of joints and tendons."""
        if not self.maybe(0.08, "sensors of rows"):
            return
        section = self.section(root, "sensor")
        self.element(section, "clock")
        kinds = ("pos", "vel", "actuatorfrc", "limitpos", "limitvel", "limitfrc")
        for tendon in root.find("tendon"):
            limited = tendon.get("range") is not None
            for what in kinds if limited else kinds[:3]:
                if self.maybe(0.6):
                    self.element(section, f"tendon{what}", tendon=tendon.get("name"))
        for joint in root.iter("joint"):
            if joint.get("range") is not None and joint.get("name"):
                for what in kinds[3:]:
                    if self.maybe(0.6):
                        self.element(section, f"joint{what}", joint=joint.get("name"))

    def further_sensors(self, root: ET.Element) -> None:
        section = root.find("sensor")
        bodies = [b for b in root.iter("body") if b.get("name")]
        if section is None or not bodies or self.maybe(0.3):
            return
        self.drawn["further sensors"] += 1
        self.element(section, "e_potential")
        flag = root.find("option").find("flag")
        if flag is None or flag.get("energy") != "enable":  # else it is refused
            self.element(section, "e_kinetic")
        body = bodies[int(self.rng.integers(len(bodies)))]
        self.element(body, "camera", name="eye", pos=self.vector(0.1), quat=self.normal(1, 4))
        what = str(self.pick("pos", "quat", "yaxis", "linvel", "linacc"))
        self.element(section, f"frame{what}", objtype="camera", objname="eye")
        zone = str(self.pick("sphere", "capsule", "ellipsoid", "cylinder", "box"))
        self.element(body, "site", name="zone", type=zone, size=[self.log(0.1, 1) for _ in range(3)])
        self.element(section, "touch", site="zone")
        self.element(section, "insidesite", site="zone", objtype="body", objname=str(bodies[0].get("name")))

    def sensors(self, root: ET.Element) -> None:
        """Add sensors of elements that have names."""
        section = ET.SubElement(root, "sensor")
        named: dict[str, list[str]] = {}
        for e in root.iter():
            if e.tag in ("body", "geom", "site", "joint", "motor") and e.get("name"):
                kind = e.tag if e.tag != "joint" else str(e.get("type", "hinge"))
                named.setdefault(kind, []).append(str(e.get("name")))
        scalars = named.get("hinge", []) + named.get("slide", [])
        of = {
            "site": ("gyro", "velocimeter", "accelerometer", "force", "torque"),
            "body": ("subtreecom", "subtreelinvel", "subtreeangmom"),
            "motor": ("actuatorpos", "actuatorvel", "actuatorfrc"),
            "ball": ("ballquat", "ballangvel"),
        }
        for kind, sensors in of.items():
            for name in named.get(kind, []):
                on = {"motor": "actuator", "ball": "joint"}.get(kind, kind)
                self.element(section, str(self.pick(*sensors)), **{on: name})
        for joint in scalars:
            self.element(section, str(self.pick("jointpos", "jointvel", "jointactuatorfrc")), joint=joint)
        for kind in ("body", "xbody", "geom", "site"):
            names = named.get("body" if kind == "xbody" else kind, [])
            for name in names[:2]:
                what = str(self.pick("pos", "quat", "xaxis", "linvel", "angvel", "linacc", "angacc"))
                out = self.element(section, f"frame{what}", objtype=kind, objname=name)
                if what not in ("linacc", "angacc") and self.maybe(0.5):
                    out.set("reftype", kind)
                    out.set("refname", str(self.pick(*names)))
        for out in section:
            if self.maybe(0.1, "cutoff") and "quat" not in out.tag and "axis" not in out.tag:
                out.set("cutoff", text(self.log(0.1, 10)))

"""Random tasks: Python source that the package traces, and that `plain_tasks.py` runs on Python's own floats.

Task k is the same in every process. What is drawn is a `Plan`: texts of expressions by section and name. Nothing here
imports the package under test.
"""

from __future__ import annotations

import ast
import copy
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Plant:
    """A model, and texts of what a task may read and move there."""

    xml: str
    start: str  # positions, from a generator `rng`
    places: tuple[str, ...]  # of mjData: what follows from positions and velocities
    forces: tuple[str, ...]  # of mjData: what follows from forces and accelerations
    body: str
    params: tuple[str, ...] = ("body_mass[1]", "dof_damping[0]", "gravity[2]", "dof_armature[0]")
    mocap: str = ""
    switch: str = ""
    wind: bool = False
    flat: bool = True  # whether all positions are numbers of slides and hinges


CART = Plant(
    """<mujoco><option timestep="0.02" integrator="{integrator}"/><worldbody>
  <body name="cart"><joint name="rail" type="slide" axis="1 0 0" damping="1" range="-1 1" limited="true"/>
    <geom type="box" size=".1 .05 .05" mass="1"/>
    <body name="pole" pos="0 0 .05"><joint name="hinge" axis="0 1 0" damping=".05" armature="0.01"/>
      <geom type="capsule" fromto="0 0 0 0.1 0 .5" size=".03" mass="0.3"/><site name="tip" pos="0 0 .5"/></body></body>
</worldbody><actuator><motor name="push" joint="rail" gear="5" ctrlrange="-1 1"/></actuator>
<sensor><framepos objtype="site" objname="tip"/><jointvel joint="hinge"/><accelerometer site="tip"/>
  <actuatorfrc actuator="push"/></sensor></mujoco>""",
    "[rng.uniform(-0.4, 0.4), rng.uniform(-1.0, 1.0)]",
    ("xpos[m.body('pole')][0]", "site_xpos[0][2]", "sensordata[0]", "sensordata[3]", "qfrc_bias[1]", "cvel[2][1]",
     "subtree_com[0][0]", "xipos[2][0]"),
    ("sensordata[4]", "sensordata[6]", "actuator_force[0]", "qacc[1]", "qfrc_actuator[0]"),
    "pole",
    ("body_mass[1]", "body_mass[2]", "dof_damping[0]", "gravity[2]", "actuator_gear[0][0]", "dof_armature[1]"),
)  # fmt: skip
MUSCLE = Plant(
    """<mujoco><option timestep="0.01" integrator="{integrator}"/><worldbody>
  <body name="arm" pos="0 0 1"><joint name="shoulder" axis="0 1 0" stiffness="2" damping=".2"/>
    <geom type="capsule" fromto="0 0 0 .3 0 0" size=".03"/>
    <body name="hand" pos=".3 0 0"><joint name="elbow" axis="0 1 0" damping=".1" range="-100 100"/>
      <geom type="capsule" fromto="0 0 0 .2 0 0.1" size=".02"/></body></body>
</worldbody>
<tendon><fixed name="cord"><joint joint="shoulder" coef="0.5"/><joint joint="elbow" coef="-0.7"/></fixed></tendon>
<actuator><general name="slow" joint="shoulder" dyntype="filter" dynprm="0.05" gainprm="3" ctrlrange="-1 1"/>
  <general tendon="cord" dyntype="integrator" gainprm="2" ctrlrange="-1 1" actlimited="true" actrange="-1 1"/>
  <position name="hold" joint="elbow" kp="2" ctrlrange="-2 2"/></actuator>
<sensor><tendonpos tendon="cord"/><jointpos joint="elbow"/><actuatorfrc actuator="slow"/></sensor></mujoco>""",
    "[rng.uniform(-0.5, 0.5), rng.uniform(-1.0, 1.0)]",
    ("ten_length[0]", "sensordata[1]", "xpos[m.body('hand')][2]", "qfrc_bias[0]", "xipos[2][0]", "cvel[1][1]"),
    ("sensordata[2]", "actuator_force[1]", "qacc[0]", "qfrc_actuator[1]"),
    "hand",
    ("body_mass[2]", "dof_damping[1]", "jnt_stiffness[0]", "gravity[2]", "actuator_gainprm[0][0]"),
)  # fmt: skip
BALL = Plant(
    """<mujoco><option timestep="0.005" integrator="{integrator}"/><worldbody>
  <geom name="floor" type="plane" size="3 3 1"/>
  <body name="ball" pos="0 0 .2"><freejoint/><geom name="skin" size=".1" mass="0.5"/><site name="in"/></body>
</worldbody><actuator><motor site="in" gear="2 0 0 0 0 0" ctrlrange="-1 1"/>
  <motor site="in" gear="0 0 0 0 .1 0" ctrlrange="-1 1"/></actuator>
<sensor><gyro site="in"/><touch site="in"/><velocimeter site="in"/></sensor></mujoco>""",
    "[rng.uniform(-0.5, 0.5), 0.1, rng.uniform(0.08, 0.3), cos(0.7), 0.0, sin(0.7), 0.0]",
    ("xpos[1][2]", "sensordata[1]", "ncon", "cvel[1][0]", "xipos[1][0]", "sensordata[4]"),
    ("sensordata[3]", "qacc[2]", "qfrc_actuator[0]", "cfrc_ext[1][3]"),
    "ball",
    ("body_mass[1]", "gravity[2]", "geom_friction[1][0]"),
    flat=False,
)
HELD = Plant(
    """<mujoco><option timestep="0.01" integrator="{integrator}" density="200" viscosity="0.01"/><worldbody>
  <body name="lead" mocap="true" pos="0 0 1"><geom size=".02" contype="0" conaffinity="0"/></body>
  <body name="load" pos="0.2 0 1"><joint name="x" type="slide" axis="1 0 0" damping=".5"/>
    <joint name="turn" type="ball" damping=".02"/><geom type="box" size=".1 .05 .03" mass="0.4"/></body>
</worldbody><equality><connect name="grasp" body1="load" body2="lead" anchor="0.1 0 0" active="false"/></equality>
<actuator><motor joint="x" gear="3" ctrlrange="-1 1"/></actuator>
<sensor><framelinvel objtype="body" objname="load"/><framequat objtype="body" objname="load"/></sensor></mujoco>""",
    "[rng.uniform(-0.1, 0.1), cos(0.3), sin(0.3), 0.0, 0.0]",
    ("xpos[m.body('load')][0]", "sensordata[0]", "sensordata[4]", "subtree_com[0][0]", "qfrc_bias[2]"),
    ("qacc[0]", "qfrc_actuator[0]", "qfrc_passive[1]"),
    "load",
    ("body_mass[2]", "dof_damping[0]"),
    mocap="lead",
    switch="grasp",
    wind=True,
    flat=False,
)
LATE = Plant(
    """<mujoco><option timestep="0.01" integrator="{integrator}"/><worldbody>
  <body name="slider"><joint name="x" type="slide" axis="1 0 0" damping=".5"/><geom size=".1" mass="1"/></body>
</worldbody><actuator><position name="servo" joint="x" kp="20" ctrlrange="-1 1" delay="0.025" nsample="4"/>
  <motor joint="x" ctrlrange="-1 1"/></actuator>
<sensor><jointpos joint="x"/></sensor></mujoco>""",
    "[rng.uniform(-0.5, 0.5)]",
    ("xpos[1][0]", "sensordata[0]", "cvel[1][3]"),
    ("qacc[0]", "actuator_force[1]", "qfrc_actuator[0]"),
    "slider",
    ("body_mass[1]", "dof_damping[0]", "dof_armature[0]"),
)
PLANTS = {"cart": CART, "muscle": MUSCLE, "ball": BALL, "held": HELD, "late": LATE}
SIZES = {"cart": (2, 2, 1, 0), "muscle": (2, 2, 3, 2), "ball": (7, 6, 2, 0), "held": (5, 4, 1, 0), "late": (1, 1, 2, 0)}

Section = dict[str, Any]


@dataclass
class Plan:
    """A task, and how it is to be run: texts of expressions by section and name."""

    plant: str
    parts: dict[str, Section]
    run: Section = field(default_factory=dict)

    @property
    def xml(self) -> str:
        return PLANTS[self.plant].xml.format(integrator=self.parts["class"].get("integrator", "Euler"))

    @property
    def source(self) -> str:
        return "\n".join(_source(self.parts))


def _source(parts: dict[str, Section]) -> list[str]:
    """Return the lines of a class `Drawn`."""
    out = ["@dataclass(frozen=True)", "class Drawn(Task):"]
    for name in ("data", "inputs", "reset_parameters", "resets_ahead", "noise", "history"):
        if name in parts["class"]:
            out.append(f"    {name} = {parts['class'][name]}")
    out += [
        "    xml_file: str = ''",
        f"    frame_skip: int = {parts['class']['frame_skip']}",
        "    weight: float = 0.7",
    ]

    def method(head: str, *lines: str) -> None:
        out.extend(["", f"    def {head}:", *(f"        {line}" for line in lines)])

    if parts.get("action"):
        low, high = parts["action"]["low"], parts["action"]["high"]
        method("action_space(self, m)", f"return {low}, {high}")
    for name in ("memory", "tables"):
        if parts.get(name):
            method(f"{name}(self, m)", f"return {braces(parts[name])}")
    if parts.get("randomize"):
        method("randomize(self, m, rng, world)", f"return {braces(parts['randomize'])}")
    reset = parts["reset"]
    lines = [*reset.get("lines", {}).values()]
    start = {k: v for k, v in reset.items() if k not in ("lines", "head")}
    method(reset.get("head", "reset(self, m, rng)"), *lines, f"return {call('Start', start)}")
    for name, head in (
        ("begin", "begin(self, m, world)"),
        ("remember", "remember(self, m, before, action, after)"),
        ("reset_info", "reset_info(self, m, world)"),
        ("observe", "observe(self, m, world)"),
    ):
        if name in parts and (parts[name] or name == "observe"):
            given = parts[name]
            method(head, f"return {given['list'] if 'list' in given else braces(given)}")
    for name, head in (
        ("control", "control(self, m, world, action)"),
        ("substep_control", "substep_control(self, m, world, targets)"),
    ):
        if parts.get(name):
            method(head, f"return {call('Control', parts[name])}")
    method("outcome(self, m, before, action, after)", f"return {call('Outcome', parts['outcome'])}")
    return out


def braces(x: Any) -> str:
    """Return the text of a dict of texts."""
    return "{" + ", ".join(f"{k!r}: {braces(v) if isinstance(v, dict) else v}" for k, v in x.items()) + "}"


def call(name: str, given: Section) -> str:
    """Return the text of a call with these arguments by name."""
    return f"{name}({', '.join(f'{k}={braces(v) if isinstance(v, dict) else v}' for k, v in given.items())})"


class Drawer:
    """Draws one plan."""

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def one(self, xs: Any) -> Any:
        return xs[int(self.rng.integers(len(xs)))]

    def constant(self, low: float = -2.0, high: float = 2.0) -> str:
        x = round(float(self.rng.uniform(low, high)), 3)
        return repr(x) if x >= 0 else f"({x!r})"

    def threshold(self) -> str:
        return repr(round(float(self.rng.uniform(-1, 1)), 4) + 7e-6)  # no number that is ever met exactly

    def number(self, atoms: list[str], depth: int = 2) -> str:
        if depth == 0 or self.chance(0.2):
            return self.one(atoms) if self.chance(0.9) else self.constant()

        def x() -> str:
            return self.number(atoms, depth - 1)

        forms = (
            lambda: f"({x()} + {x()})",
            lambda: f"({x()} - {self.constant()} * {x()})",
            lambda: f"tanh({x()}) * {x()}",
            lambda: f"sin({x()})",
            lambda: f"cos({self.constant()} * {x()})",
            lambda: f"clip({x()}, {self.constant(-1, 0)}, {self.constant(0, 1)})",
            lambda: f"select({self.mask(atoms, depth - 1)}, {x()}, {x()})",
            lambda: f"minimum({x()}, {x()})",
            lambda: f"maximum({x()}, {self.constant()})",
            lambda: f"abs({x()})",
            lambda: f"sqrt(({x()})**2 + 0.1)",
            lambda: f"power(abs({x()}) + 0.3, 0.7)",
            lambda: f"exp(clip({x()}, -2.1, 1.3))",
            lambda: f"atan2({x()}, 1.5 + abs({x()}))",
            lambda: f"{x()} / (1.2 + abs({x()}))",
            lambda: f"0.1 * floor(3.17 * {x()} + 0.1234567)",
            lambda: f"((7.7 * {x()} + 0.0123457) % 1.3)",
            lambda: f"when_any({self.mask(atoms, depth - 1)}, lambda c: [sin(c[0]) + {self.constant()}], [{x()}])[0]",
            lambda: f"repeat(3, lambda i, c: [0.5 * c[0] + {self.constant()}], [{x()}])[0]",
        )
        return self.one(forms)()

    def mask(self, atoms: list[str], depth: int = 1) -> str:
        def x() -> str:
            return f"({self.number(atoms, max(0, depth - 1))} {self.one('<>')} {self.threshold()})"

        def both() -> str:
            return f"({x()} {self.one('&|')} {x()})"

        return self.one((x, x, both, lambda: f"logical_not({x()})"))()

    def numbers(self, n: int, atoms: list[str], depth: int = 2, form: str = "{}") -> str:
        return f"[{', '.join(form.format(self.number(atoms, depth)) for _ in range(n))}]"

    def draws(self, rng: str) -> list[str]:
        return [f"{rng}.uniform(-0.5, 0.5)", f"0.3 * {rng}.normal()", f"{rng}.exponential(0.3)", f"{rng}.integers(3)"]

    def plan(self) -> Plan:
        name = self.one([*PLANTS])
        plant, (nq, nv, nu, na) = PLANTS[name], SIZES[name]
        parts: dict[str, Section] = {}
        kind = {
            "frame_skip": repr(int(self.rng.integers(1, 4))),
            "data": repr(self.one(("gymnasium", "fresh", "forward"))),
        }
        kind["integrator"] = self.one(("Euler", "Euler", "RK4", "implicitfast", "implicit"))
        if name == "late" and kind["integrator"] == "RK4":
            kind["integrator"] = "Euler"
        parts["class"] = kind
        inputs = [
            x for x, there in (("mocap_pos", plant.mocap), ("eq_active", plant.switch), ("wind", plant.wind)) if there
        ]
        inputs = [x for x in inputs if self.chance(0.7)]
        if "mocap_pos" in inputs and self.chance(0.5):
            inputs.append("mocap_quat")
        if inputs:
            kind["inputs"] = repr(tuple(inputs))
        # what worlds remember
        memory = {}
        if self.chance(0.75):
            for i in range(int(self.rng.integers(1, 4))):
                memory["abc"[i]] = self.constant() if self.chance(0.6) else f"[{self.constant()}, {self.constant()}]"
        if tables := self.chance(0.25):
            rows = [[round(float(self.rng.uniform(-2, 2)), 3) for _ in range(2)] for _ in range(5)]
            parts["tables"] = {"t": repr(rows)}
        na_ = int(self.rng.integers(1, 4)) if self.chance(0.3) else nu
        if na_ != nu or self.chance(0.2):
            parts["action"] = {"low": repr([-1.0] * na_), "high": repr([1.0 + 0.5 * i for i in range(na_)])}
        late = self.chance(0.2)
        if late:
            memory["queue"] = repr([0.0] * 2 * na_)
        parts["memory"] = memory
        # the model
        varied: list[str] = []
        by_env, by_task, by_reset, free = {}, {}, [], []
        for x in plant.params:
            field_name = x.split("[")[0]
            if self.chance(0.12) and field_name not in varied:
                varied.append(field_name)
                how = self.one(("env", "task", "free", "reset"))
                if how == "env":
                    zero = field_name == "dof_armature" and name != "cart"
                    by_env[field_name] = (
                        "Shift(0.0, 0.1)" if zero else self.one(("(0.5, 2.0)", "Scale(0.8, 1.2, together=True)"))
                    )
                elif how == "task":
                    by_task[field_name] = f"scaled(m.{field_name}, rng.uniform(0.5, 1.5))"
                elif how == "free":
                    free.append(field_name)
                else:
                    by_reset.append(field_name)
        own = [f"m.{x}" for x in plant.params if x.split("[")[0] in varied]
        if by_task:
            parts["randomize"] = by_task
        if by_reset:
            kind["reset_parameters"] = repr(tuple(by_reset))

        def remembered(world: str) -> list[str]:
            out = []
            for k, v in memory.items():
                out += (
                    [f"{world}.memory[{k!r}][0]", f"{world}.memory[{k!r}][-1]"]
                    if "[" in v
                    else [f"{world}.memory[{k!r}]"]
                )
            if tables:
                out.append(f"{world}.tables['t'][abs({(out or ['1.3'])[0]})][1]")
            return out

        def state(world: str) -> list[str]:
            out = [f"{world}.qpos[{i}]" for i in range(nq)] + [f"{world}.qvel[{i}]" for i in range(nv)]
            out += [f"{world}.data.{self.one(plant.places)}" for _ in range(2)]
            return out + [f"{world}.act[{i}]" for i in range(na)] + ["self.weight"] + own

        # how episodes begin
        looks = self.chance(0.5)
        reset: Section = {"head": "reset(self, m, rng, world)" if looks else "reset(self, m, rng)", "lines": {}}
        by_memory = looks and self.chance(0.6)
        before = self.draws("rng") + own + (remembered("world") if by_memory else [])
        lines = reset["lines"]
        lines["q"] = f"q = {plant.start}"
        if self.chance(0.25):
            good = self.mask(["x[0]", "x[-1]"] if not looks else ["x[0]", f"world.at(x).data.{self.one(plant.places)}"])
            lines["q"] = (
                f"q = rng.draw_until(lambda rng: {plant.start}, lambda x: {good}, {int(self.rng.integers(1, 6))})"
            )
        lines["v"] = f"v = {self.numbers(nv, before, 1)}"
        if self.chance(0.2):
            lines["f"] = "draws = rng.fork()"
            lines["w"] = "v[0] = repeat(3, lambda i, c: [c[0] + 0.1 * draws(i).uniform(-1.0, 1.0)], [v[0]])[0]"
        reset |= {"qpos": "q", "qvel": "v"}
        if looks and self.chance(0.35):
            lines["s"] = f"s = world.at(q, v).settled({int(self.rng.integers(1, 5))})"
            reset |= {"qpos": "s.qpos", "qvel": "s.qvel"}
            if na:
                reset["act"] = "s.act"
        elif na and self.chance(0.5):
            reset["act"] = self.numbers(na, before, 1, "clip({}, -0.9, 0.9)")
        if chosen := [k for k in memory if self.chance(0.2)]:
            reset["memory"] = {k: self.entry(memory[k], before, 1) for k in chosen}
        if by_reset:
            reset["parameters"] = {k: f"scaled(m.{k}, 1.0 + 0.4 * tanh({self.number(before, 1)}))" for k in by_reset}
        reset |= self.held(plant, inputs, before, 0.4)
        parts["reset"] = reset
        alone = reset.keys() <= {"head", "lines", "qpos", "qvel", "act"} and not (
            varied or tables or parts.get("randomize")
        )
        if alone and "memory" not in repr(reset) and self.chance(0.6):
            kind["resets_ahead"] = "True"
        world = state("world") + remembered("world") + self.draws("world.rng")
        if memory and self.chance(0.7):
            parts["begin"] = {k: self.entry(v, world) for k, v in memory.items() if self.chance(0.6)}
        # what a step does
        if na_ != nu or self.chance(0.5):
            acting = [*[f"action[{i}]" for i in range(na_)] * 4, *world]
            control: Section = {"ctrl": self.numbers(nu, acting, 2, "3.0 * tanh({})")}
            if late:
                control["ctrl"] = (
                    f"(controls.delayed(world.memory['queue'], action, {self.constant(0, 2)}) * {nu})[:{nu}]"
                )
            elif self.chance(0.15) and na_ == nu:
                control["ctrl"] = "controls.rate_limited(action, world.qvel[:1] * m.nu, 0.31)"
            if self.chance(0.25):
                control["qfrc_applied"] = self.numbers(nv, acting, 1, "tanh({})")
            if self.chance(0.25):
                control["xfrc_applied"] = {plant.body: self.numbers(6, acting, 0, "tanh({})")}
            if self.chance(0.2):
                control["qvel"] = self.numbers(nv, acting, 1, "0.2 * tanh({})")
            if plant.flat and self.chance(0.15):
                control["qpos"] = self.numbers(nq, acting, 1, "0.4 * tanh({})")
            control |= self.held(plant, inputs, acting, 0.6)
            parts["control"] = control
        if self.chance(0.3):
            servo = [*(f"targets[{i}]" for i in range(nu)), *world]
            if parts.get("control") and self.chance(0.4):
                parts["control"]["ctrl"] = self.numbers(nu + 1, acting)
            sub: Section = {"ctrl": self.numbers(nu, servo, 2, "3.0 * tanh({})")}
            if self.chance(0.3):
                sub["qfrc_applied"] = self.numbers(nv, servo, 1, "tanh({})")
            if self.chance(0.2):
                sub["xfrc_applied"] = {plant.body: self.numbers(6, servo, 0, "tanh({})")}
            sub |= self.held(plant, inputs, servo, 0.4)
            if chosen := [k for k in memory if k != "queue" and self.chance(0.4)]:
                sub["memory"] = {k: self.entry(memory[k], servo) for k in chosen}
            parts["substep_control"] = sub
        kept = [k for k in parts.get("substep_control", {}).get("memory", {})]
        step = state("before") + remembered("before") + [f"action[{i}]" for i in range(na_)]
        step += [f"after.qpos[{i}]" for i in range(nq)] + [f"after.qvel[{i}]" for i in range(nv)]
        step += [f"after.data.{x}" for x in plant.places] + self.draws("after.rng")
        step += [f"after.data.{x}" for x in plant.forces if "cfrc" not in x or "gymnasium" in kind["data"]]
        step += [f"after.act[{i}]" for i in range(na)]
        left = [f"after.memory[{k!r}]" + ("[0]" if "[" in memory[k] else "") for k in kept]
        if memory and self.chance(0.8):
            parts["remember"] = {
                k: self.entry(v, step + left) for k, v in memory.items() if k != "queue" and self.chance(0.7)
            }
        if late:
            parts.setdefault("remember", {})["queue"] = "controls.queued(before.memory['queue'], action)"
        # what is told
        step += remembered("after")
        parts["observe"] = self.observe(world, kind)
        if self.chance(0.4):
            parts["reset_info"] = {k: v for k, v in self.infos(world).items() if self.chance(0.7)}
        end = [x for x in step if "rng" not in x or self.chance(0.5)]
        outcome: Section = {"reward": self.number(step)}
        if self.chance(0.4):
            outcome["reward"] = {f"r{i}": self.number(step) for i in range(int(self.rng.integers(1, 4)))}
            if self.chance(0.5):
                outcome["weights"] = {
                    k: self.constant() if self.chance(0.8) else self.one(step) for k in outcome["reward"]
                }
        if self.chance(0.3):
            outcome["scale"] = self.constant() if self.chance(0.5) else "self.dt(m)"
        if self.chance(0.3):
            outcome["clip"] = f"(-0.7, {self.one(('0.9', 'inf'))})"
        for what, p in (("terminated", 0.7), ("truncated", 0.4)):
            if self.chance(p):
                rare = f"({self.mask(end)} & (after.rng.uniform() < {self.one(('0.1', '0.3', '0.6'))}))"
                named = {f"{what[:2]}{i}": self.mask(end) if self.chance(0.2) else rare for i in range(2)}
                outcome[what] = named if self.chance(0.4) else rare
        if self.chance(0.6):
            outcome["info"] = self.infos(step)
        if parts.get("reset_info"):  # entries of one name have one width
            shared = parts["reset_info"].keys() & outcome.get("info", {}).keys()
            for k in shared:
                if self.shape_of(parts["reset_info"][k]) != self.shape_of(outcome["info"][k]):
                    del outcome["info"][k]
        if self.chance(0.3):
            outcome["metrics"] = {"m0": self.number(step)}
        if self.chance(0.3):
            outcome["success"] = self.mask(step)
        parts["outcome"] = outcome
        run = {
            "mode": self.one(("NextStep", "SameStep", "Disabled")),
            "limit": self.one((1, 2, 4, 7, -1)),
            "repeat": self.one((1, 1, 1, 2, 3)),
            "form": self.one(("dict", "flat")),
            "seed": int(self.rng.integers(2**31)) if self.chance(0.7) else int(self.rng.integers(2**62)),
            "first_world": self.one((0, 0, 3, 1000)),
            "randomize": by_env,
            "vary": free,
        }
        return Plan(name, parts, run)

    def entry(self, like: str, atoms: list[str], depth: int = 2) -> str:
        """Return a text for what is remembered, of the width of this one."""
        bound = "clip({}, -3.1, 3.3)"
        n = len(ast.literal_eval(like)) if "[" in like else 0
        return self.numbers(n, atoms, depth - 1, bound) if n else bound.format(self.number(atoms, depth))

    def held(self, plant: Plant, inputs: list[str], atoms: list[str], p: float) -> Section:
        out: Section = {}
        for x in inputs:
            if not self.chance(p):
                continue
            if x == "mocap_pos":
                out[x] = {plant.mocap: f"[0.2 * sin({self.number(atoms, 1)}), 0.01, 1.0]"}
            elif x == "mocap_quat":
                out[x] = {plant.mocap: "[cos(0.2), 0.0, sin(0.2), 0.0]"}
            elif x == "eq_active":
                out[x] = {plant.switch: self.mask(atoms)}
            else:
                out[x] = self.numbers(3, atoms, 1, "tanh({})")
        return out

    def infos(self, atoms: list[str]) -> Section:
        out = {}
        for i in range(int(self.rng.integers(1, 4))):
            n = int(self.rng.integers(1, 4))
            out[f"i{i}"] = self.number(atoms, 1) if self.chance(0.6) else self.numbers(n, atoms, 1)
        first = {k: v for k, v in out.items() if not v.startswith("[")}
        return out if self.chance(0.5) else first or {"i0": self.number(atoms, 1)}

    def observe(self, atoms: list[str], kind: Section) -> Section:
        if self.chance(0.25):
            return {"list": self.numbers(int(self.rng.integers(1, 5)), atoms)}

        def group() -> Section:
            out = {}
            for i in range(int(self.rng.integers(1, 4))):
                shape = self.one(((), (), (1,), (3,), (2, 2)))
                out[f"o{i}"] = self.nested(shape, atoms)
            return out

        grouped = self.chance(0.4)
        seen = {"policy": group(), "privileged": group()} if grouped else group()
        names = seen["policy"] if grouped else seen
        noise, history = {}, {}
        for k in names:
            n = names[k].count("[") and len(self.shape_of(names[k]))
            if self.chance(0.3):
                noise[k] = self.one(("0.1", "Normal(0.2)", "0.0"))
                if n == 1 and self.chance(0.5):
                    noise[k] = repr([0.1 * (i % 2) for i in range(self.shape_of(names[k])[0])])
            if self.chance(0.3):
                history[k] = self.one(("0", "1", "2", "4"))
        if noise:
            kind["noise"] = braces(noise)
        if history:
            kind["history"] = braces(history)
        return seen

    def nested(self, shape: tuple[int, ...], atoms: list[str]) -> str:
        if not shape:
            return self.number(atoms)
        return f"[{', '.join(self.nested(shape[1:], atoms) for _ in range(shape[0]))}]"

    @staticmethod
    def shape_of(text: str) -> tuple[int, ...]:
        found, x = [], ast.parse(text, mode="eval").body
        while isinstance(x, ast.List):
            found.append(len(x.elts))
            x = x.elts[0]
        return tuple(found)


def draw(seed: int) -> Plan:
    """Return plan number `seed`."""
    return Drawer(seed).plan()


def smaller(plan: Plan):
    """Yield the plan with one thing less: an entry, or part of an expression."""

    def sites(x: Section, at: tuple[str, ...] = ()):
        for k, v in x.items():
            yield (*at, k)
            if isinstance(v, dict):
                yield from sites(v, (*at, k))

    def changed(at: tuple[str, ...], to: Any = None) -> Plan:
        new = copy.deepcopy(plan)
        x: Any = new.parts
        for k in at[:-1]:
            x = x[k]
        if to is None:
            del x[at[-1]]
        else:
            x[at[-1]] = to
        return new

    def value(at: tuple[str, ...]) -> Any:
        x: Any = plan.parts
        for k in at:
            x = x[k]
        return x

    places = [*sites(plan.parts)]
    yield from (changed(at) for at in places)
    for k, plain in (
        ("repeat", 1),
        ("first_world", 0),
        ("limit", -1),
        ("form", "flat"),
        ("mode", "Disabled"),
        ("seed", 1),
    ):
        if plan.run[k] != plain:
            new = copy.deepcopy(plan)
            new.run[k] = plain
            yield new
    for name in ("randomize", "vary"):
        if plan.run[name]:
            new = copy.deepcopy(plan)
            new.run[name] = type(plan.run[name])()
            yield new
    for at in places:
        text = value(at)
        if isinstance(text, str) and at[0] != "class" and at[-1] != "head" and "=" not in text:
            for shorter in _shorter(text):
                yield changed(at, shorter)


def _shorter(text: str):
    """Yield an expression with one of its parts in place of a larger one."""
    tree = ast.parse(text, mode="eval")
    for node in ast.walk(tree):
        for name, x in ast.iter_fields(node):
            options = x if isinstance(x, list) else [x]
            for i, child in enumerate(options):
                if not isinstance(child, (ast.Call, ast.BinOp, ast.Subscript, ast.Compare, ast.UnaryOp)):
                    continue
                inner = [y for y in ast.iter_child_nodes(child) if isinstance(y, ast.expr)]
                for y in [*inner, ast.Constant(0.25)]:
                    if isinstance(y, (ast.Name, ast.Attribute, ast.Lambda)):
                        continue
                    if isinstance(x, list):
                        x[i] = y
                    else:
                        setattr(node, name, y)
                    yield ast.unparse(tree)
                    if isinstance(x, list):
                        x[i] = child
                    else:
                        setattr(node, name, child)


def scaled(x: Any, by: Any) -> Any:
    """Return nested numbers, each times `by`."""
    return [scaled(y, by) for y in x] if isinstance(x, (list, tuple)) else x * by


inf = math.inf

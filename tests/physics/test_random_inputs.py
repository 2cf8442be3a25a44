"""Random models that are led and pushed, beside MuJoCo C: mocap bodies that are moved, with what is on them and tied to
them, forces on bodies and dofs, equalities that are switched. The models are those of `random_mjcf.py`, and a mocap
body or two in each.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter

import mujoco
import numpy as np
import pytest
import random_mjcf
import random_models
from random_mjcf import Case, text

pytestmark = pytest.mark.usefixtures("quickly_compiled", "quiet")  # states that MuJoCo warns about are not compared

FEW, MANY = range(5), range(5, 200)


class Led(random_mjcf.Maker):
    """Draws a model with a mocap body or two. They come before actuators and tendons, which may be on their sites."""

    def actuators(self, root: ET.Element) -> None:
        for k in range(int(self.pick(1, 1, 2))):
            e = self.element(root.find("worldbody"), "body", name=f"led{k}", mocap="true")
            e.set("pos", text(self.vector(0.3) + [0, 0, 0.2]))
            self.carry(e)
            if self.maybe(0.4):
                self.carry(self.element(e, "body", name=f"part{k}", pos=self.vector(0.1)))
        super().actuators(root)

    def carry(self, e: ET.Element) -> None:
        if not self.planar and self.maybe(0.5):
            self.orientation(e)
        if self.maybe(0.8):
            self.most_touching += 1
            self.geom(e, moving=True, jointed=True)
        if self.maybe(0.6):
            self.site(e)

    def equalities(self, root: ET.Element) -> None:
        super().equalities(root)
        names = [e.get("name", "") for e in root.iter("body") if e.get("name")]
        for name in names:
            if name.startswith("led") and self.maybe(0.5):
                other = str(self.pick(*(x for x in names if x != name), "world"))
                out = self.element(root.find("equality"), str(self.pick("weld", "connect")), body1=name, body2=other)
                if out.tag == "connect":
                    out.set("anchor", text(self.vector(0.1)))
                self.softness(out)


def case(seed: int) -> Case:
    """Model number `seed`, and states of it with inputs."""
    maker, rng = Led(seed, random_mjcf.SOFTENED), np.random.default_rng([seed, 9])
    root = maker.model()
    mjm = mujoco.MjModel.from_xml_string(ET.tostring(root, encoding="unicode"))
    worlds = random_mjcf.states(mjm, 6, seed)
    led = [int(np.flatnonzero(mjm.body_mocapid == k)[0]) for k in range(mjm.nmocap)]
    for world in worlds:
        pos, quat = (
            x + rng.normal(0, rng.choice([0, 0.1, 0.4]), x.shape) for x in (mjm.body_pos[led], mjm.body_quat[led])
        )
        world.inputs = {
            "xfrc_applied": rng.normal(0, rng.choice([0, 1, 10]), (mjm.nbody, 6)) * (rng.random((mjm.nbody, 1)) < 0.7),
            "qfrc_applied": rng.normal(0, rng.choice([0, 1, 5]), mjm.nv),
            "eq_active": (rng.random(mjm.neq) < 0.6).astype(float),
            "mocap_pos": pos,
            "mocap_quat": quat * rng.choice([0.5, 1, 2]),
        }
    return Case(root, worlds, maker.drawn)


@pytest.mark.parametrize("seed", [*FEW, *(pytest.param(seed, marks=pytest.mark.slow) for seed in MANY)])
def test_a_random_model_that_is_led_and_pushed_moves_as_in_mujoco(seed: int) -> None:
    drawn = case(seed)
    found = random_models.failures(drawn.xml, drawn.worlds)
    assert not found, random_models.report(seed, *random_models.shrink(drawn, found[0]))


def test_led_bodies_touch_and_hold_others_and_equalities_are_switched() -> None:
    seen = Counter[str]()
    for seed in range(60):
        drawn = case(seed)
        mjm = mujoco.MjModel.from_xml_string(drawn.xml)
        d = mujoco.MjData(mjm)
        for world in drawn.worlds:
            random_mjcf.put(d, random_mjcf.join(mjm, world))
            mujoco.mj_forward(mjm, d)
            led = mjm.body_mocapid[mjm.body_rootid] >= 0
            ends = led[mjm.geom_bodyid[d.contact.geom]]
            seen["touches"] += bool(np.any(ends))
            tied = set(d.efc_id[: d.ne].tolist())
            seen["holds"] += any(mjm.eq_type[i] < 2 and mjm.eq_objtype[i] == 1 and led[mjm.eq_obj1id[i]] for i in tied)
            seen["switched"] += bool(np.any(d.eq_active != mjm.eq_active0))
            seen["pushed"] += bool(d.xfrc_applied.any() and d.qfrc_applied.any())
    print(seen)
    assert min(seen.values()) > 0.1 * 6 * 60 and len(seen) == 4, seen

"""Random contact sensors, for any model: they match and reduce in every way, and give every kind of data."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import numpy as np

DATA = ("found", "force", "torque", "dist", "pos", "normal", "tangent", "linvel", "angvel")
REDUCTIONS = ("none", "mindist", "maxforce", "netforce")
ZONES = ("sphere", "capsule", "ellipsoid", "cylinder", "box")


def add(root: ET.Element, rng: np.random.Generator, count: int) -> None:
    """Add contact sensors to a model, and a site that some of them look into; geoms and bodies get names for it."""
    for tag in ("geom", "body"):
        for k, e in enumerate(x for x in root.find("worldbody").iter(tag) if not x.get("name")):
            e.set("name", f"{tag} {k} without a name")
    section = root.find("sensor")
    section = ET.SubElement(root, "sensor") if section is None else section
    bodies = [e for e in root.find("worldbody").iter("body")]
    names = {
        "geom": [e.get("name") for e in root.find("worldbody").iter("geom")],
        "body": ["world", *(e.get("name") for e in bodies)],
    }
    zone = root.find("worldbody") if rng.random() < 0.3 else bodies[int(rng.integers(len(bodies)))]
    size = " ".join(map(str, rng.uniform(0.1, 1, 3)))
    ET.SubElement(zone, "site", name="contact zone", type=str(rng.choice(ZONES)), size=size)
    shapes = {e.get("type") for e in root.find("worldbody").iter("geom")}
    loose = "cylinder" in shapes or {"mesh", "capsule"} <= shapes  # whose contacts may come in another order
    for k in range(count):
        section.append(_sensor(names, rng, k, loose))


def _sensor(names: dict[str, list[str]], rng: np.random.Generator, k: int, loose: bool) -> ET.Element:
    reduce = str(rng.choice(REDUCTIONS))
    fields = DATA[:7] if reduce == "netforce" else DATA
    some = [field for field in fields if rng.random() < 0.5] or ["found"]
    if loose and reduce == "none":
        some = ["found"]
    out = ET.Element("contact", name=f"contacts {k}", reduce=reduce, data=" ".join(some))
    out.set("num", str(1 if reduce == "netforce" else int(rng.integers(1, 5))))
    for side in (1, 2):
        what = str(rng.choice(["", "geom", "body", "subtree", "site"], p=[0.3, 0.2, 0.15, 0.2, 0.15]))
        if what == "site" and side == 1:
            out.set("site", "contact zone")
        elif what in ("body", "subtree") or (what == "geom" and names["geom"]):
            out.set(f"{what}{side}", str(rng.choice(names["geom" if what == "geom" else "body"])))
    return out

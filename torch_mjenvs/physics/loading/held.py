"""`warn_of_held`, which warns of bodies whose centre of mass cannot move and that something else holds or touches.

MuJoCo takes the stiffness of a `connect`, `weld` or contact from the inverse inertia of the bodies' centres of mass,
`body_invweight0`. Where these cannot move, as of a wheel on a fixed axle, that is 0 though the rest of the body turns,
and MuJoCo's stiffness is unlimited except for its bound of 1e15. Next to that, little may be left of the inertia that
decides how the body turns about what holds it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import mujoco

from ..algebra.spatial import MINVAL
from ..model.enums import EqType, ObjType
from ..model.model import Model, bodies_of
from .refusals import describe, disabled, weldid

Held = tuple[tuple[int, int], str, tuple[int, ...]]  # two bodies, and by what: a kind of element, and which ones


def warn_of_held(mjm: mujoco.MjModel, m: Model) -> None:
    """Warn of the first tie or contact whose stiffness has no bound in MuJoCo, and name the bodies that cannot move.

    The warning is a UserWarning.
    """
    welds, weight = weldid(mjm), mjm.body_invweight0[:, 0].tolist()
    for bodies, kind, elements in (*_ties(mjm), *_contacts(m)):
        moved = [body for body in dict.fromkeys(bodies) if welds[body]]
        if not moved or sum(weight[body] for body in bodies) >= MINVAL:
            continue
        who = " and of ".join(describe(mjm, "body", body) for body in moved)
        what = "the contact of " * (kind == "geom") + " and ".join(describe(mjm, kind, i) for i in elements)
        warnings.warn(
            f"the centre of mass of {who} cannot move, so that MuJoCo's stiffness of {what} is without bound, "
            "and may leave little but rounding of its accelerations; here the stiffness is bounded. Move the joint off "
            "the centre of mass if both are to agree",
            stacklevel=4,
        )
        return


def _ties(mjm: mujoco.MjModel) -> Iterator[Held]:
    if disabled(mjm, "CONSTRAINT") or disabled(mjm, "EQUALITY"):
        return
    for i in range(mjm.neq):
        if mjm.eq_type[i] in (EqType.CONNECT, EqType.WELD):
            one, two = int(mjm.eq_obj1id[i]), int(mjm.eq_obj2id[i])
            if mjm.eq_objtype[i] == ObjType.SITE:
                one, two = int(mjm.site_bodyid[one]), int(mjm.site_bodyid[two])
            yield (one, two), "equality", (i,)


def _contacts(m: Model) -> Iterator[Held]:
    for pair in m.pairs:
        yield bodies_of(m, pair), "geom", (pair.geom1, pair.geom2)

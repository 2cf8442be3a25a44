"""The pull of contacts that adhere: mj_adhesion.

The rows of such a contact push harder by as much (see `contacts`), so that it gives way as it would without the pull.
"""

from __future__ import annotations

from ..algebra.spatial import is_zero, zeros
from ..collision.contact_param import contact_param
from ..dynamics.wrenches import forces_of_wrenches
from ..model.data import Data, stage
from ..model.model import Model
from .contact_force import Contacts


@stage(reads="constraints odof", computes="qfrc_adhesion")
def adhesion(m: Model, d: Data) -> None:
    """Compute d.qfrc_adhesion, the pull of contacts along their normals, also of those in the gap. mj_adhesion."""
    d.qfrc_adhesion = zeros(m.nv)
    if not m.passive or all(is_zero(contact_param(m, pair).adhesion) for pair in m.pairs):
        return
    wrench = [zeros(6) for _ in range(m.nbody)]
    for c in d.constraints:
        if isinstance(c, Contacts):
            c.add_adhesion(m, d, wrench)
    d.qfrc_adhesion = forces_of_wrenches(m, d, lambda body: wrench[body])

"""Constraints: a class for each kind, with the three verbs of `rows.Constraint`. MuJoCo's engine_core_constraint.c.

Module by module:

    rows                                   what every constraint is; MuJoCo's reference and impedance
    laws, scalar_row                       what a row costs; a row by itself
    limits, friction, equality             constraints of such rows; `couplings` and `welds` make the equalities
    softening                              which rows are softened, to what, and why
    invweight                              the inverse inertia that a geom's surface meets
    contact_row, surface                   what a contact's rows are made of; how surfaces that move change them
    adhesion, contact_moment               contacts that pull; actuators that pull at contacts
    cones/                                 what a contact costs
    limbs                                  stand-ins for rows that couple limbs, where none acts in a vector of worlds
    contacts                               contacts written out one by one: contact_force, world_contacts, body_contacts
    batch/                                 contacts of many pairs of one kind, in loops
    listed, idle                           contacts as mjData.contact lists them; those there without a force
"""

from __future__ import annotations

from ...compiler.active_sets import fold_each
from ...compiler.control import when_any
from ...compiler.scalar import Scalar, select
from ..algebra.spatial import sum_of
from ..collision.candidates import Candidate, candidates_of
from ..collision.contact_param import contact_param
from ..model.data import Data, stage
from ..model.enums import EqType
from ..model.model import Model, Pair, UnsupportedModel
from .batch.contact_groups import contact_groups
from .batch.contact_pool import contact_pools
from .batch.near_tables import tables_of
from .batch.pair_batch import PairBatch, adds_stiffness, divided
from .batch.pair_tables import PairTables, each_tables
from .batch.world_batches import world_batches
from .contacts import contacts
from .couplings import coupling
from .equality import Equality
from .friction import friction_losses
from .idle import can_be_listed
from .limits import joint_limits, tendon_limits
from .welds import weld


@stage(
    reads="precision qpos qvel eq_active origin frame xquat geom_xrel geom_xmat odof ovel bias_acc candidates "
    "ten_length ten_J ten_wrench",
    computes="constraints",
)
def make_constraint(m: Model, d: Data) -> None:
    """Make d.constraints, the rows that may act: mj_makeConstraint, mj_referenceConstraint."""
    alone, grouped, pools = _divided(m, d)
    rows, stiffnesses = list[list[Pair]](), list[list[Pair]]()
    for pairs in grouped:
        (stiffnesses if adds_stiffness(m, pairs) else rows).append(pairs)
    d.constraints = [
        *equalities(m, d),
        *friction_losses(m, d),
        *joint_limits(m, d),
        *tendon_limits(m, d),
        *contacts(m, d, alone),
        *contact_groups(m, d, rows),
        *world_batches(m, d, stiffnesses),
        *contact_pools(m, d, pools),
    ]


@stage(reads="precision origin frame geom_xrel geom_xmat candidates", computes="ncon")
def count_contacts(m: Model, d: Data) -> None:
    """Count the contacts that mj_collision detects, including those within the gap, which do not act."""
    alone, grouped, pools = _divided(m, d)
    d.ncon = 0.0
    for c in (*alone, *candidates_of(m, d, m.idle_pairs)):
        if c.pair in m.idle_pairs and not can_be_listed(m, c.pair):
            one, two = (m.geom_names[g] for g in (c.pair.geom1, c.pair.geom2))
            raise UnsupportedModel(
                f"ncon with a <contact><pair> of {one!r} and {two!r}, which are welded together and of such shapes, "
                "is not supported: remove the pair, which has no force, or do not read ncon"
            )

        def add(n: Scalar, c: Candidate = c) -> Scalar:
            return n + sum_of(select(x, 1.0, 0.0) for x in c.detected())

        d.ncon = when_any(c.near(contact_param(m, c.pair).gap), add, d.ncon)
    tables = list(each_tables(m, grouped, lambda pairs: PairTables(m, d, PairBatch.of(m, pairs))))
    pooled = [pairs for batches in pools for pairs in batches]
    for found in (*tables, *each_tables(m, pooled, lambda pairs: tables_of(m, d, pairs))):
        d.ncon = fold_each(found.detected(), lambda i, n: n + 1.0, d.ncon)


def _divided(m: Model, d: Data) -> tuple[list[Candidate], list[list[Pair]], list[list[list[Pair]]]]:
    """Return the candidates whose contacts are written out one by one, and the pairs of those done in loops."""
    grouped, pools = divided(m, d.precision)
    in_loops = {id(p) for pairs in (*grouped, *(pairs for batches in pools for pairs in batches)) for p in pairs}
    return [c for c in d.candidates if id(c.pair) not in in_loops], grouped, pools


def equalities(m: Model, d: Data) -> list[Equality]:
    """Make the active equalities or, if d.eq_active is given, all, each masked by its flag: mj_instantiateEquality."""
    out = []
    for i in range(m.neq):
        if d.eq_active is None and not m.eq_active0[i]:
            continue
        found = coupling(m, d, i) if m.eq_type[i] in (EqType.JOINT, EqType.TENDON) else weld(m, d, i)
        if found.rows:
            out.append(found if d.eq_active is None else found.where(d.eq_active[i]))
    return out

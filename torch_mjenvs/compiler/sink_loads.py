"""A pass that moves loads of parameters: late, and into the block that needs them.

A model whose parameters vary from world to world reads hundreds of columns, most of them in one place. Loaded at the
start, as the state is, they would be stored on the stack and fetched again. So what the kernel only reads is loaded
just before its first use: in the innermost block that holds all uses, but never inside a loop, where it would be loaded
in every iteration.

Some loads are not moved: those of the state, which is stored into the buffers that it came from; those of rows, a tile
of which is on the stack already; and those of what is stored unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .expr import Expr, Region
from .program import Program
from .region_ops import Loop, RegionOp, When
from .sink_stores import SunkStores

Homes = dict[Expr, Region]


def sink_loads(program: Program, sunk: Sequence[SunkStores]) -> Homes:
    """Return the regions in which late loads are done; for what a block stores, this is that block or one around it."""
    stored, copied = ({store[k] for store in program.stores} for k in (0, 2))
    late = {k for k, b in enumerate(program.buffers) if k not in stored and not b.rows and b.type == "f"}
    if not late:
        return {}
    loops = {region for e in program.live if isinstance(e.attr, Loop) for region in e.attr.regions}
    homes: Homes = {}
    for x, region in _uses(program):
        if type(x) is Expr and x.op == "load" and x.attr[0] in late and x not in copied:
            homes[x] = _common(homes.get(x, region), region)
    for stores in sunk:
        for x in stores.old:
            if x in homes and stores.body not in _path(homes[x]):
                homes[x] = _common(homes[x], stores.region_op.region)
    return {x: _outside(region, loops) for x, region in homes.items()}


def _uses(program: Program) -> Iterator[tuple[object, Region]]:
    """Yield every value that is read, and where."""
    for e in program.live:
        for x in e.args:
            yield x, e.region
        if isinstance(e.attr, RegionOp):
            for x, _, region in e.attr.reads():
                yield x, region
            for arg in e.attr.iter_args:
                yield arg.after, e.region
                if arg.result in program.live or not isinstance(e.attr, When):
                    yield arg.before, e.region


def _path(region: Region | None) -> list[Region]:
    """Return the regions around a region, and last the region itself."""
    path = []
    while region is not None:
        path.append(region)
        region = region.parent
    return path[::-1]


def _common(a: Region, b: Region) -> Region:
    """Return the innermost region that holds both."""
    if a is b:
        return a
    return [x for x, y in zip(_path(a), _path(b), strict=False) if x is y][-1]


def _outside(region: Region, loops: set[Region]) -> Region:
    """Return a region or, if it is in a loop, the region around the outermost loop."""
    for inner in _path(region):
        if inner in loops:
            assert inner.parent is not None
            return inner.parent
    return region

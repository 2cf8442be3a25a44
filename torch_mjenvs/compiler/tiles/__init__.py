"""Large symmetric matrices in tiles of 4 x 4, by loops whose code does not grow with them.

Written out, the factorisation of a full matrix of 60 rows is 36,000 products. They take seconds to compile, and run
only as fast as a core reads code from memory. A loop over tiles keeps the 16 sums of a tile in registers while it goes
through the products, and does two products for each number that it reads.

    blocks    of rows: which tiles a matrix and its factor have, and when tiles pay
    parts     tiles in arrays, and those that loops add to
    reach     which tiles the loops go through: those that a matrix always has, or those that a vector's worlds touch
    factor    A = L^T D L, and what it solves
    matrix    `TileMatrix`, the sum of parts that users see

I J K blocks of rows and columns, i j k rows and columns within them
"""

from .blocks import SIDE, Blocks, Pattern, Places, elimination, in_tiles, large, pays
from .factor import PIVOTS, TileFactor
from .matrix import TileMatrix
from .parts import Sums, SumsLayout

__all__ = [
    "PIVOTS",
    "SIDE",
    "Blocks",
    "Pattern",
    "Places",
    "Sums",
    "SumsLayout",
    "TileFactor",
    "TileMatrix",
    "elimination",
    "in_tiles",
    "large",
    "pays",
]  # fmt: skip

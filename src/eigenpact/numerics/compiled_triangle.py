"""W^T W for rows W = X - 1 c^T - 1 l^T of up to 2048 features: a compiled loop that makes the half that is needed.

BLAS's function for symmetric products copies rows into an order of its own, and is called for as many rows as there are features,
since the square is read and written each time.  Here

1. a tile of some dozens of rows is converted and centred, and so in a core's own cache;
2. a block of the square lies in registers while all rows of the tile are added: s_ij += w_ri w_rj, for ``down`` features i and
   ``abreast`` vectors of features j; blocks below the diagonal are left out;
3. it is added to the sum of all tiles, in double precision.

Meanwhile the rows of the next tile are asked for.  Sums over a tile are made in the precision of W.  The order depends on shapes
alone.

Bytes are multiplied four times as fast as numbers in single precision, where the processor has an instruction for that
(``whole_gram.py``): four rows are then one row of ``FOUR`` bytes for each feature.  The instruction takes its second factor as
numbers from -128 to 127, which is why 128 is taken off: sums are those of x_i (x_j - 128).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .compiled_copy import put_centred
from .linalg import Array
from .machine_code import LINE, READ, ZEROS, Code, Vectors, as_readable, compiled, memory, processor, vectors

FOUR = np.dtype(np.int32)
"""The kind of numbers that are four bytes, of as many rows."""

LESS = -(1 << 31) + sum(1 << place for place in (7, 15, 23))
"""A number whose four bytes are all 128: they are taken off where bits differ."""

WORTH = 1_000_000_000
"""Rows x features x features from which on compiling the loop is worth its time."""

LEAST, MOST = 32, 2048
"""Features that rows have at least and at most: the square of more is larger than a cache."""

TILE, FEWEST, LONGEST = 1 << 18, 64, 256
"""Bytes of a tile, about; and rows that it has at least and at most."""


def worth_compiling(n: int, d: int) -> bool:
    """Whether the product of n rows of d features with themselves is made here.

    >>> worth_compiling(100, 100)
    False
    """
    return n * d * d >= WORTH and LEAST <= d <= MOST and processor() is not None


@dataclass(frozen=True)
class Plan:
    """How the square is made of rows with d features: numbers of one kind, in registers.

    Attributes
    ----------
    d : int
    kind : Vectors
        Of W.
    tile : int
        Rows of a tile.
    down, abreast : int
        Features i, and vectors of features j, of a block in registers.
    """

    d: int
    kind: Vectors
    tile: int
    down: int
    abreast: int

    @classmethod
    def of(cls, d: int, precision: np.dtype[Any], wide: int, registers: int) -> Plan:
        """For registers of so many bytes, and so many of them.

        >>> Plan.of(784, np.dtype(float), 64, 32)
        Plan(d=784, kind=Vectors(number='double', size=8, lanes=8), tile=64, down=8, abreast=3)
        """
        kind = _numbers(precision, wide // precision.itemsize)
        rows = min(max(TILE // (d * kind.size), FEWEST), LONGEST)
        return cls(d, kind, rows, registers // 4, 3)

    @property
    def width(self) -> int:
        """Features with zeros up to whole registers."""
        return self.kind.padded(self.d)

    @property
    def stride(self) -> int:
        """Numbers from one row of a tile to the next: an odd number of lines, so that rows share no places of the cache."""
        lines = -(-self.width * self.kind.size // LINE)
        return (lines | 1) * LINE // self.kind.size


def compiled_triangle(
    blocks: Iterator[Any], d: int, precision: np.dtype[Any], centre: NDArray[Any] | None = None, left: Array | None = None
) -> tuple[Array]:
    """The lower triangle of the sum of W^T W (d x d), in the order of columns, over blocks of rows X (each n x d).

    What is above it has no meaning.

    c and l, a ``centre`` (d,) and what is ``left`` of it, are subtracted in the ``precision`` of W, one after the other.
    """
    plan = plan_for(d, precision)
    given = [values for values in (centre, left) if values is not None]
    centres = memory((max(1, len(given)), plan.width), precision, zeros=True)
    for row, values in zip(centres, given, strict=False):
        row[:d] = values
    tile = memory((plan.tile, plan.stride), precision, zeros=True)
    S = memory((plan.width, plan.width), np.dtype(np.float64), zeros=True)
    for X in blocks:
        X = X if precision == FOUR else as_readable(X)
        if len(X):
            kernel = _kernel(plan.kind, plan.down, plan.abreast, X.dtype, len(given))
            shape = plan.d, plan.width, plan.stride, plan.tile
            addresses = [array.ctypes.data for array in (centres, tile, S)]
            kernel(X.ctypes.data, len(X), X.strides[0] // X.itemsize, *shape, *addresses)
    return (np.asfortranarray(S[:d, :d].T),)


def _numbers(precision: np.dtype[Any], lanes: int) -> Vectors:
    return Vectors("i32", FOUR.itemsize, lanes) if precision == FOUR else vectors(precision, lanes)


def rows_at_a_time(d: int, precision: np.dtype[Any]) -> int:
    """Rows of a tile.  Blocks of a multiple of so many give the same bits as one block."""
    return plan_for(d, precision).tile


def plan_for(d: int, precision: np.dtype[Any]) -> Plan:
    """The plan for this processor."""
    here = processor()
    if here is None:
        raise RuntimeError("loops are not compiled on this machine")
    return Plan.of(d, precision, here.wide, here.registers)


@lru_cache(maxsize=4 * len(READ) + 1)
def _kernel(kind: Vectors, down: int, abreast: int, read: np.dtype[Any], centres: int) -> Callable[..., None]:
    """The compiled loop for rows of this kind, from which so many centres are subtracted."""
    shape = ("n", "stride", "d", "width", "apart", "most")
    parameters = ["ptr X", *(f"i64 {name}" for name in shape), "ptr centres", "ptr tile", "ptr S"]
    return compiled(_Loop(kind, down, abreast, _numbers(read, kind.lanes), centres).code, parameters)


class _Loop:
    """The instructions of the loop over tiles, of ``most`` rows each, which lie ``apart``."""

    def __init__(self, kind: Vectors, down: int, abreast: int, read: Vectors, centres: int) -> None:
        self.kind, self.down, self.abreast, self.read, self.centres = kind, down, abreast, read, centres
        self.bytes, self.less = kind == _numbers(FOUR, kind.lanes), f"<{', '.join([f'i32 {LESS}'] * kind.lanes)}>"
        self.code = Code()
        self.code.loop(0, "%n", "%most", self.tile)

    def tile(self, first: str) -> None:
        """Add what a tile gives, the rows from number ``first`` on."""
        code, lanes = self.code, self.kind.lanes
        rows = code.least(code.minus("%n", first), "%most")
        centres = [code.at("%centres", code.times(number, "%width"), self.kind) for number in range(self.centres)]

        def copy(r: str) -> None:
            source = code.at("%X", code.times(code.plus(first, r), "%stride"), self.read)
            put_centred(code, "%d", source, self.read, self.row(r), self.kind, centres)

        code.loop(0, rows, 1, copy)
        following = code.at("%X", code.times(code.plus(first, "%most"), "%stride"), self.read)
        begin: str | int = 0
        for count in range(self.abreast, 0, -1):
            step = count * lanes
            end = code.plus(begin, code.times(code.over(code.minus("%width", begin), step), step))
            of_columns = self.of_columns(count, rows, following)
            code.loop(begin, end, step, of_columns, may_be_empty=True)
            begin = end

    def row(self, r: str) -> str:
        """The address of a row of the tile."""
        return self.code.at("%tile", self.code.times(r, "%apart"), self.kind)

    def of_columns(self, count: int, rows: str, following: str) -> Callable[[str], None]:
        """A function that adds so many vectors of features j, from the one given on, down to the diagonal."""
        code, lanes = self.code, self.kind.lanes

        def of(j: str) -> None:
            begin: str | int = 0
            for above in range(count):  # vectors that end above the diagonal
                end = code.plus(j, (above + 1) * lanes)
                of_rows = partial(self.block, j=j, vecs=range(above, count), rows=rows, following=following)
                code.loop(begin, end, self.down, of_rows)
                begin = end

        return of

    def block(self, i: str, j: str, vecs: range, rows: str, following: str) -> None:
        """Add a block of the square, of features i to i + ``down`` and some vectors behind j; ask for rows that come next."""
        code, kind = self.code, self.kind
        places = [(a, v) for a in range(self.down) for v in vecs]

        def of_row(r: str, sums: list[str]) -> list[str]:
            code.ask_for(code.at(following, code.plus(code.times(r, "%stride"), i), self.read), near=False)
            here = self.row(r)
            at_i, at_j = code.at(here, i, kind), code.at(here, j, kind)
            w_j = {v: code.load(kind.type, code.at(at_j, v * kind.lanes, kind), kind.size) for v in vecs}
            w_i = [code.spread(kind, code.at(at_i, a, kind)) for a in range(self.down)]
            if self.bytes:
                w_j = {v: code.new(f"xor {kind.type} {one}, {self.less}") for v, one in w_j.items()}
            plus = code.plus_products_of_bytes if self.bytes else code.plus_product
            return [plus(kind, w_i[a], w_j[v], one) for (a, v), one in zip(places, sums, strict=True)]

        wide = Vectors("double", 8, kind.lanes)
        for (a, v), one in zip(places, code.sums(0, rows, kind, [ZEROS] * len(places), of_row), strict=True):
            there = code.plus(code.times(code.plus(i, a), "%width"), code.plus(j, v * kind.lanes))
            code.add_to(code.at("%S", there, wide), code.convert(one, kind.type, wide.type), wide)

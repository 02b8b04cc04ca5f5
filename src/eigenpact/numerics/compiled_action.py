"""W^T T and 1^T T, T = W A - 1 s^T, for rows W = X - 1 c^T - 1 l^T with few columns in A: a compiled loop that reads X once.

BLAS multiplies such narrow blocks at half of its rate for squares, and waits for every row of X that is not in the cache.  Here

1. a tile of some dozens of rows is converted and centred, and so in the cache (rows that need neither are left where they are);
2. T of ``R`` rows at a time lies in registers: for feature j, row r and columns c, t_rc += w_rj a_jc;
3. a vector or two of features of W^T T lie in registers: for row r, g_jc += w_rj t_rc.

Meanwhile the rows that come next are asked for.  Wide rows are taken in chunks of features, whose rows of A stay in the cache.
Sums over a chunk, and over a tile, are made in the precision of A, sums of those over tiles in double precision.  The order
depends on shapes alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .compiled_copy import put_centred
from .linalg import Array
from .machine_code import LINE, ZEROS, Code, Vectors, as_readable, compiled, memory, processor, vectors

WORTH = 10_000_000
"""Rows x features x columns from which on compiling the loop is worth its time."""

WHOLE, CHUNK, SHORT = 2048, 1024, 512
"""Features of rows that are not cut; in a chunk of others; and of those that are added up in single precision before the next sum
begins: all at most."""

LEAST, WIDEST = 64, 1 << 17
"""Features that rows have at least and at most: of wider ones a tile takes much memory."""

TILE, FEWEST, MOST = 1 << 18, 24, 96
"""Bytes of a tile, about; and rows that it has at least and at most, about."""

KEPT = 32
"""Compiled loops that are kept."""


def worth_compiling(n: int, d: int, k: int) -> bool:
    """Whether a product of n rows with d features by k columns is made here.

    >>> worth_compiling(10, 10, 10)
    False
    """
    return n * d * k >= WORTH and LEAST <= d <= WIDEST and processor() is not None


@dataclass(frozen=True)
class Plan:
    """How products of rows with d features are made: numbers of one kind, in registers.

    Attributes
    ----------
    d, k : int
    kind : Vectors
        Of A, T and the rows as they are multiplied.
    chunk : int
        Features of a chunk; zeros fill up the last one.
    rows : int
        R, the rows whose T lies in registers.
    tile : int
        Rows of a tile, a multiple of R.
    abreast : int
        Vectors of columns of T in registers, at most.
    columns : int
        Columns of the product in registers, at most.
    """

    d: int
    k: int
    kind: Vectors
    chunk: int
    rows: int
    tile: int
    abreast: int
    columns: int

    @classmethod
    def of(cls, d: int, k: int, precision: np.dtype[Any], wide: int, registers: int) -> Plan:
        """For registers of so many bytes, and so many of them.

        >>> Plan.of(784, 14, np.dtype(float), 64, 32)
        Plan(d=784, k=14, kind=Vectors(number='double', size=8, lanes=8), chunk=784, rows=12, tile=36, abreast=2, columns=28)
        """
        kind = vectors(precision, wide // precision.itemsize)
        most = registers // 8 if registers > 16 else 3
        vecs = -(-k // kind.lanes)
        abreast = -(-vecs // -(-vecs // most))
        rows = 3 * registers // 4 // abreast  # the other registers hold what is multiplied
        tile = min(max(TILE // (d * kind.size), FEWEST), MOST)
        pieces = 1 if d <= WHOLE else -(-d // CHUNK)
        chunk = d if pieces == 1 else kind.padded(-(-d // pieces))
        return cls(d, k, kind, chunk, rows, max(rows, tile - tile % rows), abreast, registers - registers // 8)

    @property
    def chunks(self) -> int:
        """How many there are."""
        return -(-self.d // self.chunk)

    @property
    def stride(self) -> int:
        """Numbers from one row of a tile to the next: a chunk, and a vector by which rows do not all meet in one place of the
        cache.  Of a single chunk the rows themselves, so that they may be those of X."""
        return self.d if self.chunks == 1 else self.chunk + self.kind.lanes

    @property
    def width(self) -> int:
        """Columns with zeros up to whole registers."""
        return self.kind.padded(self.k)

    @property
    def features(self) -> int:
        """Features with zeros up to whole chunks, and registers."""
        return self.chunks * self.kind.padded(self.chunk)

    def empty_tile(self) -> NDArray[Any]:
        """Memory for the rows of a tile."""
        return memory((self.chunks * self.tile * self.stride + self.kind.lanes,), np.dtype(f"f{self.kind.size}"), zeros=True)


class NarrowProducts:
    """The sums W^T T and 1^T T over blocks of rows, for any number of threads.

    Parameters
    ----------
    A : (d, k) array
        In float64, or in float32 for products in single precision.
    shift : (k,) array, optional
        s.
    centre, left : (d,) arrays, optional
        c and l, which are subtracted from rows in the precision of A, one after the other.
    """

    def __init__(
        self, A: NDArray[Any], shift: Array | None = None, centre: NDArray[Any] | None = None, left: Array | None = None
    ) -> None:
        (d, k), kind = A.shape, A.dtype
        self._plan = plan = plan_for(d, k, kind)
        self._A = memory((plan.features, plan.width), kind, zeros=True)
        self._A[:d, :k] = A
        self._shift = memory((plan.width,), kind, zeros=True)
        if shift is not None:
            self._shift[:k] = -shift
        given = [values for values in (centre, left) if values is not None]
        self._centres = memory((max(1, len(given)), plan.features), kind, zeros=True)
        for row, values in zip(self._centres, given, strict=False):
            row[:d] = values
        self._given = len(given)

    @property
    def tile(self) -> int:
        """Rows of a tile.  Blocks of a multiple of so many give the same bits as one block."""
        return self._plan.tile

    def over(self, blocks: Iterator[Any]) -> tuple[Array, Array]:
        """W^T T (d x k) and 1^T T (k,) over blocks of X (each n x d)."""
        plan, double = self._plan, np.dtype(np.float64)
        kind, lanes = self._A.dtype, plan.kind.lanes
        scores = memory((plan.tile, plan.width), kind)
        products = memory((plan.features // lanes, plan.k, lanes), double, zeros=True)
        sums = memory((plan.width,), double, zeros=True)
        used = (self._A, self._shift, self._centres, plan.empty_tile(), scores, products, sums)
        for X in blocks:
            X = as_readable(X)
            if len(X):
                kernel = _kernel(plan, X.dtype, self._given)
                kernel(X.ctypes.data, len(X), X.strides[0] // X.itemsize, *(array.ctypes.data for array in used))
        return products.swapaxes(1, 2).reshape(-1, plan.k)[: plan.d], sums[: plan.k]


def plan_for(d: int, k: int, precision: np.dtype[Any]) -> Plan:
    """The plan for this processor."""
    here = processor()
    if here is None:
        raise RuntimeError("loops are not compiled on this machine")
    return Plan.of(d, k, precision, here.wide, here.registers)


@lru_cache(maxsize=KEPT)
def _kernel(plan: Plan, read: np.dtype[Any], centres: int) -> Callable[..., None]:
    """The compiled loop for rows of this kind, from which so many centres are subtracted."""
    return Loop(plan, read, centres).compiled()


class Loop:
    """The instructions of the loop over tiles."""

    arrays: tuple[str, ...] = ("A", "shift", "centres", "tile", "scores", "products", "sums")
    both = True  # halves: T, and W^T T

    def __init__(self, plan: Plan, read: np.dtype[Any], centres: int) -> None:
        self.plan, self.centres = plan, centres
        self.kind, self.read = plan.kind, vectors(read, plan.kind.lanes)
        self.registers = range(plan.width // plan.kind.lanes)
        self.as_they_are = plan.chunks == 1 and centres == 0 and self.read == self.kind
        self.halves = self.both and plan.chunks == 1  # of the next tile are asked for while T, and then while W^T T is made
        self.T = "%scores"
        self.code = Code()
        self.code.loop(0, "%n", plan.tile, self.tile)

    def compiled(self) -> Callable[..., None]:
        """The loop, to be called with the addresses of rows and of its arrays."""
        return compiled(self.code, ["ptr X", "i64 n", "i64 stride", *(f"ptr {name}" for name in self.arrays)])

    def tile(self, first: str) -> None:
        """Add what a tile gives, the rows from number ``first`` on."""
        code, plan = self.code, self.plan
        rows, filled = self.rows_of(first)
        copied = self.copied(first)
        tile = code.choose(copied, "%tile", code.at("%X", code.times(first, "%stride"), self.read), "ptr")
        code.loop(0, filled, 1, self.begin_scores)

        def of_chunk(chunk: str) -> None:
            code.when(copied, lambda: self.copy(chunk, first, rows, filled))
            self.scores_of_chunk(tile, chunk, first, filled)

        code.loop(0, plan.chunks, 1, of_chunk)
        self.add_scores(rows)
        code.loop(0, plan.chunks, 1, lambda chunk: self.products(tile, chunk, first, filled))

    def rows_of(self, first: str) -> tuple[str, str]:
        """How many rows a tile has, and the next number that R divides."""
        code, plan = self.code, self.plan
        rows = code.least(code.minus("%n", first), plan.tile)
        return rows, code.times(code.over(code.plus(rows, plan.rows - 1), plan.rows), plan.rows)

    def row(self, tile: str, chunk: str, r: str) -> str:
        """The address of a row of a tile, in a chunk."""
        code, plan = self.code, self.plan
        return code.at(tile, code.times(code.plus(code.times(chunk, plan.tile), r), plan.stride), self.kind)

    # -- 1 --------------------------------------------------------------------------------------

    def copied(self, first: str) -> str:
        """Whether a tile is copied.  If rows are as they should be, the last ones are: vectors may reach into the row behind."""
        if not self.as_they_are:
            return "true"
        code, plan = self.code, self.plan
        apart = code.new(f"icmp ne i64 %stride, {plan.d}")
        last = code.new(f"icmp sge i64 {code.plus(first, plan.tile)}, %n")
        return code.new(f"or i1 {apart}, {last}")

    def copy(self, chunk: str, first: str, rows: str, filled: str) -> None:
        """Copy a chunk of a tile's rows, centred, with zeros up to whole chunks and up to a number of rows that R divides."""
        code, plan, kind = self.code, self.plan, self.kind

        def one_row(r: str) -> None:
            begin = code.times(chunk, plan.chunk)
            features = code.least(code.minus(plan.d, begin), plan.chunk)
            source = code.at("%X", code.plus(code.times(code.plus(first, r), "%stride"), begin), self.read)
            to, centre = self.row("%tile", chunk, r), code.at("%centres", begin, kind)
            centres = [code.at(centre, number * plan.features, kind) for number in range(self.centres)]
            put_centred(code, features, source, self.read, to, kind, centres)
            if plan.chunks > 1:
                code.loop(features, plan.chunk, 1, lambda j: self.zero(code.at(to, j, kind)), may_be_empty=True)

        def no_row(r: str) -> None:
            to = self.row("%tile", chunk, r)
            code.loop(0, min(plan.chunk, plan.d), 1, lambda j: self.zero(code.at(to, j, kind)))

        code.loop(0, rows, 1, one_row)
        code.loop(rows, filled, 1, no_row, may_be_empty=True)

    def zero(self, address: str) -> None:
        self.code.store(self.kind.number, "0.0", address, self.kind.size)

    # -- 2 --------------------------------------------------------------------------------------

    def begin_scores(self, r: str) -> None:
        """Have T begin with -s."""
        code, kind = self.code, self.kind
        to = code.at(self.T, code.times(r, self.plan.width), kind)
        for v in self.registers:
            value = code.load(kind.type, code.at("%shift", v * kind.lanes, kind), kind.size)
            code.store(kind.type, value, code.at(to, v * kind.lanes, kind), kind.size)

    def scores_of_chunk(self, tile: str, chunk: str, first: str, filled: str) -> None:
        """Add what a chunk of features gives to T, and ask for the next one, of these rows or of the next tile."""
        code, plan = self.code, self.plan
        another = code.plus(chunk, 1)
        last = code.new(f"icmp eq i64 {another}, {plan.chunks}")
        row = code.choose(last, code.plus(first, plan.tile), first)
        feature = code.choose(last, "0", code.times(another, plan.chunk))
        following = code.at("%X", code.plus(code.times(row, "%stride"), feature), self.read)
        code.loop(0, filled, plan.rows, lambda r: self.scores(tile, chunk, r, following))

    def scores(self, tile: str, chunk: str, first: str, following: str) -> None:
        """Add what a chunk of features gives to T of R rows, some columns after the others."""
        code, plan, kind = self.code, self.plan, self.kind
        begin, A = self.row(tile, chunk, first), code.at("%A", code.times(chunk, plan.chunk * plan.width), kind)
        features = min(plan.chunk, plan.d)
        pieces = 1 if kind.size == 8 else -(-features // SHORT)
        cuts = [features * piece // pieces for piece in range(pieces + 1)]

        def add(abreast: range, cut: tuple[int, int]) -> None:
            places = [(r, v) for r in range(plan.rows) for v in abreast]

            def of_feature(j: str, sums: list[str]) -> list[str]:
                if abreast.start == 0:
                    self.ask_for_following(following, first, j)
                at_j, A_j = code.at(begin, j, kind), code.at(A, code.times(j, plan.width), kind)
                a = {v: code.load(kind.type, code.at(A_j, v * kind.lanes, kind), kind.size) for v in abreast}
                w = [code.spread(kind, code.at(at_j, r * plan.stride, kind)) for r in range(plan.rows)]
                return [code.plus_product(kind, w[r], a[v], one) for (r, v), one in zip(places, sums, strict=True)]

            for (r, v), one in zip(places, code.sums(*cut, kind, [ZEROS] * len(places), of_feature), strict=True):
                there = code.plus(code.times(code.plus(first, r), plan.width), v * kind.lanes)
                code.add_to(code.at(self.T, there, kind), one, kind)

        for v in range(0, len(self.registers), plan.abreast):
            for cut in pairwise(cuts):
                add(self.registers[v : v + plan.abreast], cut)

    def ask_for_following(self, following: str, first: str, j: str) -> None:
        """Ask for entries that come next, of as many rows: all of them, or the first half of those features that a tile has."""
        code, plan = self.code, self.plan
        in_line = LINE // self.read.size
        turns = in_line * (2 if self.halves else 1)
        at_a_time = -(-plan.rows // turns)
        turn = code.new(f"and i64 {j}, {turns - 1}")
        feature = code.times(code.over(j, turns), in_line) if self.halves else j
        for number in range(at_a_time):
            row = code.plus(first, code.least(code.plus(code.times(turn, at_a_time), number), plan.rows - 1))
            code.ask_for(code.at(following, code.plus(code.times(row, "%stride"), feature), self.read))

    def add_scores(self, rows: str) -> None:
        """Add T of a tile's rows to 1^T T."""
        code, plan, kind = self.code, self.plan, self.kind

        def of_row(r: str, sums: list[str]) -> list[str]:
            at_r = code.at(self.T, code.times(r, plan.width), kind)
            there = [code.load(kind.type, code.at(at_r, v * kind.lanes, kind), kind.size) for v in self.registers]
            return [code.new(f"fadd {kind.type} {one}, {more}") for one, more in zip(sums, there, strict=True)]

        for v, one in enumerate(code.sums(0, rows, kind, [ZEROS for _ in self.registers], of_row)):
            self.add_to_total("%sums", v * kind.lanes, one)

    # -- 3 --------------------------------------------------------------------------------------

    def products(self, tile: str, chunk: str, first: str, filled: str) -> None:
        """Add a chunk of W^T T of a tile; if there is one chunk, ask for the second half of the features of the next tile."""
        code, plan, kind = self.code, self.plan, self.kind
        pieces = -(-plan.k // plan.columns)
        begin, features = self.row(tile, chunk, "0"), code.times(chunk, plan.chunk)

        following = code.at("%X", code.plus(code.times(code.plus(first, plan.tile), "%stride"), plan.d // 2), self.read)

        def of_features(j: str, columns: range, abreast: int) -> None:
            start = code.at(begin, j, kind)

            def of_row(r: str, sums: list[str]) -> list[str]:
                at_r, t = code.at(start, code.times(r, plan.stride), kind), code.at(self.T, code.times(r, plan.width), kind)
                w = [code.load(kind.type, code.at(at_r, u * kind.lanes, kind), kind.size) for u in range(abreast)]
                if self.halves and columns.start == 0:
                    code.ask_for(code.at(following, code.plus(code.times(r, "%stride"), code.over(j, 2)), self.read))
                made = []
                for place, column in enumerate(columns):
                    t_c = code.spread(kind, code.at(t, column, kind))
                    made += [code.plus_product(kind, w[u], t_c, sums[place * abreast + u]) for u in range(abreast)]
                return made

            found = code.sums(0, filled, kind, [ZEROS] * (abreast * len(columns)), of_row)
            for u in range(abreast):
                there = code.times(code.plus(code.plus(features, j), u * kind.lanes), plan.k)
                for column, one in zip(columns, found[u::abreast], strict=True):
                    self.add_to_total("%products", code.plus(there, column * kind.lanes), one)

        of_chunk = min(plan.chunk, plan.d)
        for piece in range(pieces):
            columns = range(plan.k * piece // pieces, plan.k * (piece + 1) // pieces)
            abreast = max(1, plan.columns // len(columns))
            together = of_chunk // (abreast * kind.lanes) * (abreast * kind.lanes)
            code.loop(
                0, together, abreast * kind.lanes, partial(of_features, columns=columns, abreast=abreast), may_be_empty=True
            )
            code.loop(together, of_chunk, kind.lanes, partial(of_features, columns=columns, abreast=1), may_be_empty=True)

    def add_to_total(self, totals: str, place: str | int, value: str) -> None:
        """Add a vector to totals in double precision."""
        wide = Vectors("double", 8, self.kind.lanes)
        self.code.add_to(self.code.at(totals, place, wide), self.code.convert(value, self.kind.type, wide.type), wide)

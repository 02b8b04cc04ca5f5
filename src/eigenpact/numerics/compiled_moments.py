"""Sums, and sums of squares, of the columns of rows about a centre: a compiled loop that reads rows as they are, once.

numpy passes over a block four times: to convert, centre, square and add it up.  Here some vectors of columns lie in registers,
for up to ``LONG`` rows at a time, whose sums are added to those of all rows: equal numbers in a long sum are all rounded the same
way.  What rounding takes from the sums of all rows, of which a part may have millions, is added up beside them.  Sums are
made in double precision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any

import numpy as np

from .linalg import Array
from .machine_code import LINE, READ, ZEROS, Code, Vectors, as_readable, compiled, processor, vectors

WORTH = 1 << 21
"""Entries from which on compiling the loop is worth its time."""

LONG = 128
"""Rows that are added up in registers."""

ABREAST = 4
"""Vectors of columns in registers."""


def worth_compiling(n: int, d: int) -> bool:
    """Whether moments of n rows with d features are made here.

    >>> worth_compiling(10, 10)
    False
    """
    return n * d >= WORTH and processor() is not None


def compiled_moments(blocks: Iterator[Any], centre: Array, long: int) -> tuple[Array, Array]:
    """Sums of the columns of X - 1 c^T (d,), and of their squares, over blocks of rows X (each n x d), for a ``centre`` c.

    So many rows are a ``long`` sum.  Blocks of a multiple of that give the same bits as one block.
    """
    here, double = processor(), np.dtype(np.float64)
    if here is None:
        raise RuntimeError("loops are not compiled on this machine")
    centre, found = np.ascontiguousarray(centre, dtype=np.float64), np.zeros((2, 2, len(centre)))
    for X in blocks:
        X = as_readable(X)
        if X.size:
            kernel = _kernel(here.wide // double.itemsize, X.dtype)
            kernel(X.ctypes.data, *X.shape, X.strides[0] // X.itemsize, long, centre.ctypes.data, found.ctypes.data)
    sums, squares = found[0] + np.where(np.isfinite(found[1]), found[1], 0.0)
    return sums, squares


@lru_cache(maxsize=len(READ))
def _kernel(lanes: int, read: np.dtype[Any]) -> Callable[..., None]:
    """The compiled loop for rows of this kind."""
    return compiled(_code(lanes, read), ["ptr X", "i64 n", "i64 d", "i64 stride", "i64 long", "ptr centre", "ptr found"])


def _code(lanes: int, read: np.dtype[Any]) -> Code:
    code, double = Code(), np.dtype(np.float64)

    def of_rows(first: str) -> None:
        rows = code.least(code.minus("%n", first), "%long")

        def of_columns(c: str, kind: Vectors, abreast: int) -> None:
            source = vectors(read, kind.lanes)
            places = [code.plus(c, v * kind.lanes) for v in range(abreast)]
            centres = [code.load(kind.type, code.at("%centre", place, kind), kind.size) for place in places]
            begin = code.at("%X", code.plus(code.times(first, "%stride"), c), source)

            def of_row(r: str, sums: list[str]) -> list[str]:
                at_r, made = code.at(begin, code.times(r, "%stride"), source), []
                following = code.at(at_r, code.times("%long", "%stride"), source)
                for number in range(0, abreast * kind.lanes * source.size, LINE):
                    code.ask_for(code.at(following, number // source.size, source))
                for v, centre in enumerate(centres):
                    entry = code.load(source.type, code.at(at_r, v * kind.lanes, source), source.size)
                    away = code.new(f"fsub {kind.type} {code.convert(entry, source.type, kind.type)}, {centre}")
                    made.append(code.new(f"fadd {kind.type} {sums[2 * v]}, {away}"))
                    made.append(code.plus_product(kind, away, away, sums[2 * v + 1]))
                return made

            found = code.sums(0, rows, kind, [ZEROS] * (2 * abreast), of_row)
            for v, place in enumerate(places):
                for number in range(2):
                    at_sum = code.plus(place, code.times("%d", number))
                    lost = code.at("%found", code.plus(at_sum, code.times("%d", 2)), kind)
                    code.add_carefully(code.at("%found", at_sum, kind), lost, found[2 * v + number], kind)

        begin: str | int = 0
        for kind, abreast in ((vectors(double, lanes), ABREAST), (vectors(double, lanes), 1), (vectors(double, 1), 1)):
            step = kind.lanes * abreast
            end = code.times(code.over("%d", step), step)
            code.loop(begin, end, step, partial(of_columns, kind=kind, abreast=abreast), may_be_empty=True)
            begin = end

    code.loop(0, "%n", "%long", of_rows)
    return code

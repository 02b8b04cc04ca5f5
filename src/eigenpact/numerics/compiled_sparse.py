"""X^T T and 1^T T, T = X A - 1 s^T, for sparse rows with few columns in A: a compiled loop that reads X once.

An entry of X meets a row of A and, in X^T T, a row of the product, anywhere in memory.  What takes the time is waiting for them.
The loop knows the entries to come, so it asks for those rows beforehand, and has T of one row in registers:

1. for the entries x_j of a row, t_c += x_j a_jc;
2. for the same entries, g_jc += x_j t_c.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from .linalg import Array
from .machine_code import LINE, NUMBERS, ZEROS, Code, Vectors, compiled, memory, processor, vectors
from .parts import side_by_side, sum_of

WORTH = 1 << 23
"""Stored entries x columns from which on compiling the loop is worth its time."""

MOST = 64
"""Columns that are multiplied at a time, at most: T of a row must stay in registers, and a row of A be few lines of the cache."""

AHEAD = 24
"""Entries after the one that is multiplied, whose rows of A and of the product are asked for."""

LONG_PART = 64
"""Stored entries for each feature in a part, at least, so that adding up parts takes little time beside their products."""

INDICES = {np.dtype(np.int32): "i32", np.dtype(np.int64): "i64"}
"""Kinds of numbers of columns."""

KEPT = 32
"""Compiled loops that are kept."""


def worth_compiling(entries: int, k: int) -> bool:
    """Whether a product of sparse rows with so many stored entries by k columns is made here.

    >>> worth_compiling(100, 10)
    False
    """
    return entries * k >= WORTH and processor() is not None


def sparse_products(X: Any, A: Array, shift: Array) -> tuple[Array, Array]:
    """X^T T (d x k) and 1^T T (k,), T = X A - 1 s^T, for a CSR matrix X (n x d), A (d x k) and the ``shift`` s (k,)."""
    k, parts = A.shape[1], _parts(X)
    pieces = np.array_split(np.arange(k), max(1, -(-k // MOST)))
    found = [_of_columns(X.shape, parts, A[:, piece], shift[piece]) for piece in pieces]
    if len(found) == 1:
        return found[0]
    return np.concatenate([G for G, _ in found], axis=1), np.concatenate([sums for _, sums in found])


def _parts(X: Any) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Where rows of X start, the columns of entries, and these, of kinds that the loop reads; refused unless they fit together.

    The loop would read, and write, memory of others.  Looking at all columns takes some hundredths of the time of a product.
    """
    (n, d), known = X.shape, X.indices.dtype in INDICES and X.indptr.dtype == X.indices.dtype
    kind = X.indices.dtype if known else np.dtype(np.int64)
    starts, columns = (np.require(part, kind, ["C", "A"]) for part in (X.indptr, X.indices))
    data = np.require(X.data, X.data.dtype if X.data.dtype in NUMBERS else np.float64, ["C", "A"])
    fit = len(starts) == n + 1 and len(columns) == len(data) and starts[0] >= 0 and starts[-1] <= len(data)
    if not fit or np.any(starts[1:] < starts[:-1]):
        raise InputError("the rows of a sparse matrix do not start and end within its entries")
    used = columns[starts[0] : starts[-1]].view(f"u{kind.itemsize}")  # numbers below zero are large ones then
    if len(used) and used.max() >= d:
        raise InputError(f"a sparse matrix has entries outside of its {d} columns")
    return starts, columns, data


def _of_columns(
    shape: tuple[int, int], parts: tuple[NDArray[Any], NDArray[Any], NDArray[Any]], A: Array, shift: Array
) -> tuple[Array, Array]:
    """As :func:`sparse_products`, for no more columns than are multiplied at a time."""
    here, double = processor(), np.dtype(np.float64)
    if here is None:
        raise RuntimeError("loops are not compiled on this machine")
    (n, d), k, kind = shape, A.shape[1], vectors(double, here.wide // double.itemsize)
    starts, columns, data = parts
    width, entries = kind.padded(k), int(starts[-1])
    kernel = _kernel(kind, width, data.dtype, columns.dtype)
    padded, begin = memory((d, width), double, zeros=True), memory((width,), double, zeros=True)
    padded[:, :k], begin[:k] = A, -shift

    def of_part(rows: tuple[int, int]) -> tuple[Array, Array]:
        G, sums = memory((d, width), double, zeros=True), memory((width,), double, zeros=True)
        kernel(*rows, entries, *(array.ctypes.data for array in (starts, columns, data, padded, begin, G, sums)))
        return G, sums

    cuts = np.linspace(0, n, max(1, entries // (LONG_PART * max(1, d))) + 1).astype(int).tolist()
    G, sums = sum_of(side_by_side(of_part, pairwise(cuts)))
    return G[:, :k], sums[:k]


@lru_cache(maxsize=KEPT)
def _kernel(kind: Vectors, width: int, data: np.dtype[Any], indices: np.dtype[Any]) -> Callable[..., None]:
    """The compiled loop for A of so many columns, and entries and numbers of columns of these kinds."""
    pointers = ("starts", "columns", "data", "A", "shift", "products", "sums")
    code = _code(kind, width, vectors(data, 1), Vectors(INDICES[indices], indices.itemsize, 1))
    return compiled(code, ["i64 first", "i64 last", "i64 entries", *(f"ptr {name}" for name in pointers)])


def _code(kind: Vectors, width: int, data: Vectors, index: Vectors) -> Code:
    code, registers, in_line = Code(), range(width // kind.lanes), LINE // kind.size

    def whole(address: str) -> str:
        """A number of a column, or of an entry."""
        return code.widened(code.load(index.number, address, index.size), index.number)

    def vectors_of(row: str) -> list[str]:
        return [code.load(kind.type, code.at(row, v * kind.lanes, kind), kind.size) for v in registers]

    def entry(place: str) -> tuple[str, str]:
        """Where the rows of A and of the product that an entry meets begin; and the entry in all places of a vector."""
        value = code.convert(code.load(data.number, code.at("%data", place, data), data.size), data.number, kind.number)
        return code.times(whole(code.at("%columns", place, index)), width), code.in_all_places(kind, value)

    def of_row(r: str) -> None:
        begin, end = whole(code.at("%starts", r, index)), whole(code.at("%starts", code.plus(r, 1), index))

        def score(place: str, sums: list[str]) -> list[str]:
            coming = code.least(code.plus(place, AHEAD), code.minus("%entries", 1))
            ahead = code.times(whole(code.at("%columns", coming, index)), width)
            for line in range(0, width, in_line):
                code.ask_for(code.at("%A", code.plus(ahead, line), kind))
                code.ask_for(code.at("%products", code.plus(ahead, line), kind))
            row, x = entry(place)
            return [code.plus_product(kind, x, a, t) for a, t in zip(vectors_of(code.at("%A", row, kind)), sums, strict=True)]

        def product(place: str) -> None:
            row, x = entry(place)
            to = code.at("%products", row, kind)
            for v, (t, old) in enumerate(zip(scores, vectors_of(to), strict=True)):
                code.store(kind.type, code.plus_product(kind, x, t, old), code.at(to, v * kind.lanes, kind), kind.size)

        found = code.sums(begin, end, kind, [ZEROS for _ in registers], score, may_be_empty=True)
        scores = [code.new(f"fadd {kind.type} {one}, {s}") for one, s in zip(found, vectors_of("%shift"), strict=True)]
        for v, t in enumerate(scores):
            code.add_to(code.at("%sums", v * kind.lanes, kind), t, kind)
        code.loop(begin, end, 1, product, may_be_empty=True)

    code.loop("%first", "%last", 1, of_row, may_be_empty=True)
    return code

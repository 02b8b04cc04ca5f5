"""A site's rows, centred and scaled on the fly: Y = (X - 1 m^T) D^-1, never stored.

X may be a dense array of any array-API namespace (numpy, torch, cupy, ...; computed where it lies), a scipy.sparse matrix, which
stays sparse (``sparse_rows.py``), or a source that reads its rows a few at a time (``sources.py``); a memory map is one.  All
results are float64 numpy arrays, whatever the precision of X.  Dense rows from a source are taken in the same blocks as those in
memory, so results are the same to the bit wherever rows in memory are taken in blocks, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, reduce
from typing import Any

import array_api_compat
import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from . import device_rows
from .column_moments import AT_ONCE, FIRST, about_their_mean, block_moments, moments, weighted_sums
from .compiled_action import NarrowProducts, worth_compiling
from .compiled_moments import worth_compiling as moments_compiled
from .compiled_parts import moments_of, products_of, triangle_of
from .compiled_triangle import worth_compiling as triangle_compiled
from .elsewhere import by_row, like, namespace, on_cpu, to_numpy
from .leading import top_of
from .linalg import Array, mirrored
from .parts import careful_totals, each, grouped, side_by_side, total, totals
from .sources import RowSource, as_rows, pieces
from .sparse_rows import SparseRows, add_duplicates, far_features, sparse_parts
from .tall import row_products
from .tiles import action, change, columns_of, gram, gram_rows, tile
from .weighted import Weighted, rows_and_weights, total_weight
from .weighted_sparse import WeightedSparseRows, weighted_far, weighted_parts

__all__ = ["Rows", "add_duplicates", "slices"]

BLOCK_BYTES, DEVICE_BLOCK_BYTES = 1 << 22, 1 << 28
"""Dense rows are centred in blocks of about this size: small enough for a CPU's cache, large enough to keep a GPU busy."""

PART_ENTRIES = 1 << 21
"""Entries of the rows that one thread adds up before the next part begins."""


class Rows:
    """The rows Y = (X - 1 mean^T) / scale of one site as an operator.

    Parameters
    ----------
    X : (n, d) array, sparse matrix or RowSource, or Weighted rows
        Entries that a sparse matrix stores more than once are added up, in a copy.  Rows of Y are multiplied by the roots of
        their weights.
    mean, scale : (d,) arrays or None
        None leaves the rows as they are, without a copy.
    left : (d,) array, optional
        What rounding left of the mean: subtracted from X - mean, except from sparse features that are centred implicitly.
    """

    def __init__(self, X: Any, mean: Array | None = None, scale: Array | None = None, left: Array | None = None) -> None:
        X, self.weights = rows_and_weights(X)
        X = as_rows(X)
        self.streamed = isinstance(X, RowSource)
        self.sparse = X.sparse if self.streamed else scipy.sparse.issparse(X)
        self.X = X if self.streamed or not self.sparse else add_duplicates(X.tocsr())
        self.n, self.d = int(X.shape[0]), int(X.shape[1])
        self.mean, self.scale, self.left = mean, scale, left
        self._whole: Any = None
        self._part: SparseRows | None = None

    @cached_property
    def weight(self) -> float:
        """The sum of the weights; the number of rows where they have none."""
        return float(self.n) if self.weights is None else total_weight(self.weights)

    # -- what leaves the operator ---------------------------------------------------------------

    def column_sums(self) -> Array:
        """Sums of the columns of X itself (d,), times the weights, neither centred nor scaled, to the last digits whatever n is.

        A long sum loses digits.  The sum of what is left after a centre is subtracted gives them back.
        """
        if self.sparse:
            return careful_totals((part.column_sums(),) for _, part in self._parts())[0]
        if self.weights is not None:
            return careful_totals((weighted_sums(b, w),) for b, w in Rows(self.X)._with_weights(self.weights))[0]
        there = device_rows.column_sums(self.X)
        return self.about_mean()[0] if there is None else there

    def about_mean(self) -> tuple[Array, Array, Array]:
        """Sums of the columns of X itself (d,), their mean with what rounding left of it (2, d), and squares about that (d,)."""
        if not self.sparse and self.weights is None and not device_rows.sums_there(self.X):
            few = max(1, AT_ONCE // max(1, self.d))
            step = min(few, block_rows(self.d)) if on_cpu(self.X) else self._block_rows()
            first = to_numpy(self.X[: min(FIRST, self.n), :])
            return about_their_mean(self.n, first, lambda centre: self._moments_about(centre, step))
        n, sums = self.weight or 1.0, self.column_sums()
        centre = sums / n
        rest, squares = Rows(self._weighed(self.X), centre).column_moments()
        left = rest / n
        return sums, np.stack([centre, left]), np.maximum(squares - n * left**2, 0.0)

    def _moments_about(self, centre: Array, step: int) -> tuple[Array, ...]:
        """Sums, and sums of squares, of the columns of X - 1 centre^T (d,), of dense rows without weights."""
        if on_cpu(self.X) and moments_compiled(self.n, self.d):
            return moments_of(Rows(self.X), centre, step)
        return Rows(self.X, centre).added_up(moments, step, add=careful_totals)

    def column_moments(self) -> tuple[Array, Array]:
        """Sums, and sums of squares, of the columns of Y (d,), without subtracting large numbers from one another.

        Where rows have weights, both are sums over rows times their weights.
        """
        if self.sparse:
            sums, squares = totals(part.column_moments() for _, part in self._parts())
        elif self.weights is not None:
            weighted = Rows(self.X, self.mean, self.scale, self.left)._with_weights(self.weights)
            sums, squares = totals((namespace(b).sum(w * b, axis=0), namespace(b).sum(w * b * b, axis=0)) for b, w in weighted)
        else:
            plain = self.left is None and self.scale is None
            there = device_rows.column_moments(self.X, self.mean) if plain else None
            sums, squares = self.added_up(each(block_moments), self._block_rows()) if there is None else there
        return sums, squares

    def column_squares(self) -> Array:
        """Sums of squares of the columns of Y (d,), without subtracting large numbers from one another."""
        if self.sparse:
            return total(part.column_squares() for _, part in self._parts())
        return total(namespace(block).sum(block * block, axis=0) for block in self._blocks())

    def column_largest(self, columns: NDArray[np.intp] | None = None) -> Array:
        """The largest absolute value in each column of Y (d,), or of some ``columns`` by their numbers."""
        if columns is not None:
            if not isinstance(self.X, np.ndarray) or self.weights is not None:
                return self.column_largest()[columns]
            mean, scale, left = (None if a is None else a[columns] for a in (self.mean, self.scale, self.left))
            some = (np.take(self.X[where], columns, axis=1) for where in slices(self.n, self.d))
            return reduce(np.maximum, (Rows(part, mean, scale, left).column_largest() for part in some))
        if self.sparse:
            return reduce(np.maximum, (part.column_largest() for _, part in self._parts()))
        blocks = self._blocks(small=True)
        return reduce(np.maximum, (to_numpy(namespace(b).max(namespace(b).abs(b), axis=0)) for b in blocks))

    def row_squares(self) -> Array:
        """Squared lengths of the rows of Y (n,)."""
        if self.sparse:
            return self._by_rows(lambda part: part.row_squares(), ())
        return np.concatenate([to_numpy(namespace(b).sum(b * b, axis=1)) for b in self._blocks()])

    def residual_squares(self, Z: Array) -> Array:
        """Squared lengths (n,) of what orthonormal Z (d x k) misses, Y - Y Z Z^T: no difference of two large numbers."""
        Z_there = Z if self.sparse else like(Z, self.X)
        squares = [np.zeros(0)]
        for block in self._dense_blocks() if self.sparse else self._blocks(small=True):
            missed = block - (block @ Z_there) @ Z_there.T
            squares.append(to_numpy((missed * missed).sum(axis=1)))
        return np.concatenate(squares)

    def scatter(self) -> Array:
        """The scatter matrix Y^T Y (d x d)."""
        if self.sparse:
            return total(part.scatter() for _, part in self._parts())
        if not on_cpu(self.X):
            return self.added_up(each(lambda block: (block.T @ block,)), self._step(), least=8 * self.d)[0]
        return mirrored(self._triangle())

    def scatter_action(self, Z: Array) -> Array:
        """The product Y^T (Y Z) (d x k) with a block Z (d x k), in one pass over the rows."""
        if self.sparse:
            return total(part.scatter_action(Z) for _, part in self._parts())
        return np.ascontiguousarray(self._action(Z)[0])

    def project(self, Z: Array) -> Array:
        """The scores Y Z (n x k)."""
        if self.sparse:
            return self._by_rows(lambda part: part.project(Z), (Z.shape[1],))
        Z_there = like(Z, self.X)
        return np.concatenate([to_numpy(block @ Z_there) for block in self._blocks()] or [np.zeros((0, Z.shape[1]))])

    def transposed_action(self, T: Array) -> Array:
        """The product Y^T T (d x k) with scores T (n x k)."""
        if self.sparse:
            return total(part.transposed_action(T[first : first + part.n]) for first, part in self._parts())
        step, T_there = self._step(), like(T, self.X)
        if self.streamed or step >= self.n:
            pairs = zip(range(0, self.n, step), self._blocks(), strict=True)
            return total(block.T @ T_there[i : i + block.shape[0], :] for i, block in pairs)
        some = (slice(i, min(i + step, self.n)) for i in range(0, self.n, step))
        return total(side_by_side(lambda i: next(self._some(self.X[i, :], i)._blocks()).T @ T_there[i, :], some))

    def row_products(self) -> Array:
        """The inner products of the rows, Y Y^T (n x n); rows that are read, or are not numpy's, are in memory meanwhile."""
        if self.sparse:
            return (self._some(self.X[:]) if self.streamed else self._only()).row_products()
        if isinstance(self.X, np.ndarray) and self.weights is None:
            return row_products(columns_of(self.X, self.mean, self.left, self.scale), *self.X.shape)
        blocks = list(self._blocks(lasting=True))
        Y = blocks[0] if len(blocks) == 1 else namespace(self.X).concat(blocks, axis=0)
        return row_products(columns_of(Y), self.n, self.d) if isinstance(Y, np.ndarray) else to_numpy(Y @ Y.T)

    def take(self, index: NDArray[np.int64]) -> Rows:
        """The rows of these numbers, in this order."""
        if self.sparse or on_cpu(self.X):
            return self._some(self.X[index], index)
        there = namespace(self.X).asarray(index, device=array_api_compat.device(self.X))
        return self._some(namespace(self.X).take(self.X, there, axis=0), index)

    def top(self, k: int) -> tuple[Array, Array]:
        """The min(k, n, d) largest eigenvalues of Y^T Y (descending) and their eigenvectors (columns, d rows)."""
        return top_of(self, k)

    def held(self) -> Array:
        """All of Y, of dense rows."""
        return np.concatenate([to_numpy(block) for block in self._blocks(lasting=True)])

    def far(self) -> NDArray[np.intp]:
        """Sparse features (f,) that are centred first, from which alone what rounding left of the mean is subtracted."""
        if self.streamed:
            if self.mean is None:
                return np.zeros(0, dtype=np.intp)
            return far_features(self.X, self.mean) if self.weights is None else weighted_far(self.X, self.weights, self.mean)
        return self._only().far()[0]

    # -- how ------------------------------------------------------------------------------------

    def _action(self, A: Array, shift: Array | None = None) -> tuple[Array, ...]:
        """The products Y^T T (d x k) and 1^T T (k,) of dense rows, T = Y A - 1 shift^T, A (d x k)."""
        if self.compiles(A.shape[1]):
            made = NarrowProducts(A.astype(np.float64, copy=False), shift, self.mean, self.left)
            return products_of(self, made, block_rows(self.d))
        if on_cpu(self.X):
            step, features = tile(self.d, A.shape[1], block_rows(self.d))
            return self.added_up(lambda blocks: action(blocks, A, shift, features), step)
        A_there, shift_there = like(A, self.X), None if shift is None else like(shift, self.X)

        def products(block: Any) -> tuple[Any, Any]:
            T = block @ A_there
            if shift_there is not None:
                T -= shift_there
            return block.T @ T, namespace(T).sum(T, axis=0)

        return self.added_up(each(products), self._step())

    def compiles(self, k: int | None = None) -> bool:
        """Whether products with k columns, or with themselves, are made by a compiled loop, which reads dense rows."""
        plain = on_cpu(self.X) and not self.sparse and self.weights is None and self.scale is None
        return plain and (triangle_compiled(self.n, self.d) if k is None else worth_compiling(self.n, self.d, k))

    def _triangle(self) -> Array:
        """The lower triangle of Y^T Y (d x d), in the order of columns, of dense rows of numpy."""
        if self.compiles():
            return triangle_of(self, np.dtype(np.float64), self.mean, self.left, block_rows(self.d))
        step = gram_rows(self.d, block_rows(self.d), PART_ENTRIES // max(1, self.d))
        return self.added_up(lambda blocks: gram(blocks, self.d), step, least=8 * self.d)[0]

    def _only(self) -> SparseRows:
        """All rows of a sparse matrix in memory; made once, because which features it centres first is kept."""
        if self._part is None:
            agreed = self.mean, self.scale, self.left
            self._part = (
                SparseRows(self.X, *agreed) if self.weights is None else WeightedSparseRows(self.X, self.weights, *agreed)
            )
        return self._part

    def _parts(self) -> Iterator[tuple[int, SparseRows]]:
        """Sparse rows, all or some after the others, and the number of the first of them."""
        if self.streamed and self.weights is not None:
            return weighted_parts(self.X, self.weights, self.mean, self.scale, self.left)
        if self.streamed:
            return sparse_parts(self.X, self.mean, self.scale, self.left)
        return iter([(0, self._only())])

    def _by_rows(self, function: Callable[[SparseRows], Array], shape: tuple[int, ...]) -> Array:
        """What a function gives for each of some sparse rows, one after the other."""
        found = [function(part) for _, part in self._parts()]
        return found[0] if len(found) == 1 else np.concatenate([np.zeros((0, *shape)), *found])

    def _dense_blocks(self) -> Iterator[Array]:
        """A few sparse rows at a time, centred."""
        for first, part in self._parts():
            for i in slices(part.n, self.d):
                yield from self._some(part.X[i].toarray(), slice(first + i.start, first + i.stop))._blocks()

    def _weighed(self, X: Any, which: Any = slice(None)) -> Any:
        """Some of the rows, X, with their weights where they have any; ``which`` they are."""
        return X if self.weights is None else Weighted(X, self.weights[which])

    def _some(self, X: Any, which: Any = slice(None)) -> Rows:
        """Some of the rows, X, about the same mean; ``which`` they are."""
        return Rows(self._weighed(X, which), self.mean, self.scale, self.left)

    def _with_weights(self, weights: Array) -> Iterator[tuple[Any, Any]]:
        """Dense rows of Y, a block at a time, with these weights (n x 1), where X lies."""
        first = 0
        for block in self._blocks(small=True):
            yield block, like(weights[first : first + block.shape[0], None], self.X)
            first += block.shape[0]

    def added_up(
        self,
        function: Callable[[Iterator[Any]], tuple[Any, ...]],
        step: int,
        least: int = 1,
        add: Callable[[Iterable[tuple[Any, ...]]], tuple[Array, ...]] = totals,
        *,
        as_they_are: bool = False,
        joined: bool = False,
    ) -> tuple[Array, ...]:
        """The sums over blocks of Y, of ``step`` rows, that a function gives for some of them, where X lies; or over blocks of X,
        which may be ``joined`` where they are in memory.

        The function adds up the blocks of a part, of ``least`` rows or more; parts are added up in their order, by threads where
        there are some: sums do not depend on them, nor on whether rows are in memory.
        """
        part = step * max(1, -(-max(PART_ENTRIES // max(1, self.d), least) // step))
        step = part if joined and not self.streamed else step

        def blocks(rows: Rows) -> Iterator[Any]:
            return rows._read(step) if as_they_are else rows._blocks(rows=step)

        if self.streamed or self.n <= part or not on_cpu(self.X):
            return add(map(function, grouped(blocks(self), part // step)))

        def of_part(first: int) -> tuple[Any, ...]:
            return function(blocks(self._some(self.X[first : first + part], slice(first, first + part))))

        return add(side_by_side(of_part, range(0, self.n, part)))

    def _step(self) -> int:
        """Rows in a block; all of them where nothing has to be subtracted, converted or read, since then nothing is copied."""
        plain = self.mean is None and self.scale is None and self.weights is None and by_row(self.X)
        plain = plain and self.X.dtype == namespace(self.X).float64
        return max(1, self.n) if plain and not self.streamed else self._block_rows()

    def _block_rows(self) -> int:
        return block_rows(self.d, BLOCK_BYTES if on_cpu(self.X) else DEVICE_BLOCK_BYTES)

    def _blocks(self, *, small: bool = False, lasting: bool = False, rows: int | None = None) -> Iterator[Any]:
        """Dense rows of Y in float64, in blocks, where X lies; with ``small``, even if nothing is copied; or so many ``rows``.

        A block is overwritten by the next one unless they are to be ``lasting``: memory that is used again need not be mapped
        again.  A block that is all of Y is kept, so that a function which takes several products makes it once.
        """
        if self._whole is not None:
            yield self._whole
            return
        xp = namespace(self.X)
        mean, left, scale = (None if a is None else like(a, self.X) for a in (self.mean, self.left, self.scale))
        step = rows or (self._block_rows() if small else self._step())
        root, first = None if self.weights is None else np.sqrt(self.weights)[:, None], 0
        copied = not self.streamed and not (mean is None and left is None and scale is None and by_row(self.X))
        convert = on_cpu(self.X) and (copied or self.X.dtype != np.float64) and not lasting
        memory = np.empty((min(step, self.n), self.d)) if convert else None
        if isinstance(self.X, np.ndarray) and not copied and root is None and self.X.dtype == np.float64 and step < self.n:
            yield from self._read(step)  # as they are
            return
        for read in self._read(step):
            if memory is not None:
                block = memory[: len(read)]
                if mean is None or read.dtype != block.dtype:  # numpy converts faster than it subtracts from another dtype
                    np.copyto(block, read)
                    change(block, mean, None, None)
                else:
                    np.subtract(read, mean, out=block)
            else:
                block = xp.astype(read, xp.float64, copy=False)
                if self.streamed:  # what was read is ours to change
                    change(block, mean, None, None)
                elif copied:
                    block = xp.astype(block, xp.float64, copy=True) if mean is None else block - mean
            block = block if by_row(block) else np.require(block, requirements=["C", "A"])
            change(block, None, left, scale)
            if root is not None:
                block, first = block * like(root[first : first + block.shape[0]], self.X), first + block.shape[0]
            if step >= self.n:
                self._whole = block
            yield block

    def _read(self, step: int) -> Iterator[Any]:
        """Dense rows of X, so many at a time."""
        if not self.streamed:
            yield from (self.X[first : min(first + step, self.n), :] for first in range(0, self.n, step))
            return
        for _, piece in pieces(self.X, step):
            yield from (piece[first : first + step] for first in range(0, len(piece), step))


def block_rows(d: int, size: int | None = None) -> int:
    """How many rows of d features are a block."""
    return max(1, (size or BLOCK_BYTES) // (8 * max(1, d)))


def slices(n: int, d: int) -> Iterator[slice]:
    """Which of n rows of d features to read at a time: a few megabytes as float64.

    >>> list(slices(3, 1 << 18))
    [slice(0, 2, None), slice(2, 3, None)]
    """
    step = block_rows(d)
    return (slice(first, min(first + step, n)) for first in range(0, n, step))

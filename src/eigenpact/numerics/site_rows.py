"""A site's rows about an agreed centre, with products in which no agreed number meets a single entry.

Centre m and scale D are told by whoever runs the program, and so is the block Z.  Were they subtracted from entries and divided
into them, a crafted m, D or Z would turn the rounding of a single row into an answer about that row: x - 2^200 is a constant,
and beside two large constants that cancel, x - t rounds to one of two numbers, which compares x with t.  So a site takes its own
mean c from its rows, which nobody else chooses, and what was agreed acts on sums only.  c is rounded; the mean l of X - 1 c^T is
what that left, and is subtracted, too.  With W = (X - 1 c^T) - 1 l^T and s = (c - m) + l,

    Y = (W + 1 s^T) D^-1,    Y^T Y Z = D^-1 [ W^T (W A) + n s s^T A ],    A = D^-1 Z.

Where rows have weights, c and l are weighted means, n is the sum of the weights, and rows of W and Y are multiplied by the roots
of theirs.

W is not made where no digits are lost without it, which saves a good part of the time that the products take: for dense rows
without weights whose features lie near zero for their spread, n c^2 <= 100 times their squares about c.  With c + l = u,

    T = X A - 1 (u^T A),    W^T (W A) = X^T T - u (1^T T),

and rows of A that belong to constant columns are zero.  1^T T is rounding.  At most one digit is lost: T has errors of the size
of X A where it should have those of W A, ten times smaller at most.  Likewise W^T W = X^T X - n u u^T, zero for constant columns,
where n c^2 <= 10 times the squares about c; X^T X of whole numbers is made in single precision, exactly (``whole_gram.py``).

A constant column of X is zero in W, whatever is agreed.  In X - 1 c^T it need not be: 0.3 added up 120 times and divided by 120
is not 0.3, and one tiny number in every row, with a scale that no variance bounds, is as good as a huge one.  (Of sparse features
that are centred implicitly l stays in W; they vary more than that.)  Two products of large numbers that cancel are still possible
where columns of X depend on each other; against their rounding helps a site that rounds its replies (``runtime/gate.py``).

References
    T. F. Chan, G. H. Golub, R. J. LeVeque, "Algorithms for computing the sample variance", Am. Stat. 37 (1983), on shifts.
"""

from __future__ import annotations

from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .compiled_action import NarrowProducts
from .compiled_parts import products_of, triangle_of
from .device_rows import DeviceRows, device_rows, on_gpu
from .elsewhere import on_cpu
from .linalg import Array, mirrored, pack_triangle
from .on_device import OnDevice
from .parts import side_by_side, total
from .rows import PART_ENTRIES, Rows, block_rows, slices
from .single import (
    ACTION_ROWS,
    GRAM_ROWS,
    LEAST_SQUARE,
    Single,
    in_range,
    single_action,
    single_gram,
    suits_single,
    suits_single_products,
)
from .tiles import add_square, tile
from .whole_gram import whole_gram

NEAR, NEAR_SQUARE = 10.0, float(np.sqrt(10.0))
"""A feature's mean over its standard deviation, up to which rows need not be centred first: in products with a block, and in the
scatter matrix, which has errors of its square."""

WIDE_PART = 4096
"""Features of which one thread multiplies rows in whole numbers with each other."""

CONSTANT = 0.03 * float(np.finfo(float).eps)
"""The root of the squares about its mean of a column that does not vary, over the mean: less than a last digit in one row."""


class SiteRows(Rows):
    """The rows Y = (X - 1 mean^T) / scale of one site, whose products are made about the site's own mean.

    Parameters
    ----------
    X : (n, d) array, sparse matrix or RowSource, or Weighted rows
    mean, scale : (d,) arrays or None
        As agreed.
    own : (2, d) array
        The mean c of the rows as the site found it, and the mean l of X - 1 c^T, which is rounding.
    within : (d,) array, optional
        Squares about c + l.  Without them rows are always centred first.
    """

    def __init__(self, X: Any, mean: Array | None, scale: Array | None, own: Array, within: Array | None = None) -> None:
        super().__init__(X, mean, scale)
        self._own_mean = own
        self._own, self._left = Rows(self._weighed(self.X), own[0], left=own[1]), own[1]
        self._exact: Array = own[0] + own[1]
        self._away = own[0] if mean is None else own[0] - mean
        self._within = within

    def _varying(self, near: float) -> NDArray[np.bool_] | None:
        """Which features are not constant (d,), where rows need not be centred first; None where they must.

        ``near`` is the largest ratio of mean and standard deviation that loses no more than a digit.
        """
        if self._within is None or self.sparse or self.weights is not None:
            return None
        away, deviations = np.abs(self._exact), np.sqrt(self._within)
        constant: NDArray[np.bool_] = deviations <= CONSTANT * away
        return ~constant if np.all(constant | (np.sqrt(self.n) * away <= near * deviations)) else None

    def _uncentred_action(self, A: Array, varying: NDArray[np.bool_]) -> tuple[Array, Array]:
        """The products X^T T (d x k), zero for constant columns, and 1^T T (k,)."""
        whole = bool(varying.all())
        A = A if whole else np.where(varying[:, None], A, 0.0)
        G, sums = self._bare._action(A, self._exact @ A)
        if not whole:
            G[~varying] = 0.0
        return G, sums

    @cached_property
    def _bare(self) -> Rows:
        return Rows(self.X)

    @cached_property
    def _beside(self) -> tuple[Array, Array, NDArray[np.bool_] | None, Array]:
        """What products with any block need besides: s and l (d,), which features vary, and what is multiplied with sums (d x 2).

        Several products are often made in one local function.
        """
        shift, left = self._shifts()
        varying = self._varying(NEAR)
        second = self.weight * left if varying is None else np.where(varying, -self._exact, 0.0)
        return shift, left, varying, np.stack([self.weight * shift, second], axis=1)

    def _own_triangle(self) -> Array:
        """The lower triangle of W^T W (d x d), of dense rows of numpy: from X^T X, where no digits are lost."""
        varying = self._varying(NEAR_SQUARE)
        if varying is None:
            return self._own._triangle()
        part = max(PART_ENTRIES // max(1, self.d), 8 * self.d)
        S = whole_gram(self.X, part) if isinstance(self.X, np.ndarray) else None
        S = Rows(self.X)._triangle() if S is None else S
        add_square(S, -self.n, np.where(varying, self._exact, 0.0))
        S[~varying] = 0.0
        S[:, ~varying] = 0.0
        return S

    def _shifts(self) -> tuple[Array, Array]:
        """s (d,), and what of l is still in W (d,)."""
        left = np.zeros(self.d)
        if self.sparse:
            left = np.array(self._left)
            left[self._own.far()] = 0.0
        return self._away + (self._left - left), left

    def scatter(self) -> Array:
        """The scatter matrix Y^T Y (d x d)."""
        shift, left = self._shifts()
        if not self.sparse and on_cpu(self.X):
            S = mirrored(self._shifted_triangle(shift))
        else:
            S = self._own.scatter()
            S += np.outer(self.weight * shift, shift)
        if np.any(left):
            crossed = np.outer(self.weight * shift, left)
            S += crossed + crossed.T
        return S if self.scale is None else S / self.scale / self.scale[:, None]

    def scatter_triangle(self) -> Array:
        """The upper triangle of Y^T Y, row by row (d (d + 1) / 2)."""
        there = self._on_gpu()
        if there is not None:
            return there[1].scatter_triangle([there[0]])
        if self._passes_over:
            return self._triangle_in_pieces()
        if self.sparse or self.scale is not None or not on_cpu(self.X):
            return pack_triangle(self.scatter())
        return pack_triangle(self._shifted_triangle(self._shifts()[0]).T)

    def _shifted_triangle(self, shift: Array) -> Array:
        """The lower triangle of W^T W + n s s^T (d x d), in the order of columns, of dense rows of numpy."""
        triangle = self._own_triangle()
        add_square(triangle, self.weight, shift)
        return triangle

    def _on_gpu(self) -> tuple[Any, DeviceRows] | None:
        """The rows, and what is kept for them, where kernels for them on a GPU can be used."""
        plain = not self.sparse and self.weights is None
        return device_rows(self.X, self.mean, self.scale, self._own_mean) if plain else None

    @property
    def _passes_over(self) -> bool:
        """Whether rows are here and are multiplied on a device, all or some after the others.

        Every piece is taken for rows with the mean of all of them.  What that leaves out of their products adds up to nothing.
        """
        return isinstance(self.X, OnDevice) and self.weights is None

    def _triangle_in_pieces(self) -> Array:
        """The upper triangle of Y^T Y of rows that pass over a device."""
        pieces = self.X.there()
        first = next(pieces)
        all_of_them = chain([first], pieces)
        if on_gpu(first) is None:
            return total(SiteRows(piece, *self._agreed).scatter_triangle() for piece in all_of_them)
        return DeviceRows(first, *self._agreed, n=self.n).scatter_triangle(all_of_them)

    @property
    def _agreed(self) -> tuple[Array | None, Array | None, Array]:
        return self.mean, self.scale, self._own_mean

    def scatter_action(self, Z: Array) -> Array:
        """The product Y^T (Y Z) (d x k) with a block Z (d x k)."""
        there = self._on_gpu()
        if there is not None:
            return there[1].scatter_action(there[0], Z)
        if self._passes_over:
            return total(SiteRows(piece, *self._agreed).scatter_action(Z) for piece in self.X.there())
        A = Z if self.scale is None else Z / self.scale[:, None]
        shift, left, varying, beside = self._beside
        along = shift @ A
        G, other = (self._own.scatter_action(A), along) if varying is None else self._uncentred_action(A, varying)
        between = beside @ np.stack([left @ A + along, other])
        G = np.add(G, between, out=between)  # in the order of rows
        return G if self.scale is None else G / self.scale[:, None]

    def single_triangle(self) -> Array | None:
        """As :meth:`scatter_triangle`, in single precision (``single.py``); None where rows do not lend themselves to it."""
        if not self._lends_itself():
            return None
        centre, left = self._single_centre()
        S = self._single_square(centre)
        add_square(S, -self.n, left)
        add_square(S, self.n, self._shifts()[0])
        packed = pack_triangle(S.T if self.scale is None else mirrored(S) / self.scale / self.scale[:, None])
        return packed if np.isfinite(packed).all() else None

    def _single_square(self, centre: Single) -> Array:
        """The lower triangle of W'^T W' (d x d) in the order of columns, W' the rows about a centre in single precision."""
        if self._bare.compiles():
            with np.errstate(over="ignore", invalid="ignore"):  # who asked looks at the result
                return triangle_of(self._bare, np.dtype(np.float32), centre, None, block_rows(self.d))
        return self.added_up(lambda blocks: single_gram(blocks, centre), GRAM_ROWS, least=8 * self.d, as_they_are=True)[0]

    def single_action(self, Z: Array) -> Array | None:
        """As :meth:`scatter_action`, in single precision; None as for :meth:`single_triangle`."""
        there = self._on_gpu()
        if there is not None:
            if there[1].lends_itself is None:
                there[1].lends_itself = self._lends_itself(products=True)
            if not there[1].lends_itself:
                return None
            G = there[1].scatter_action(there[0], Z, single=True)
            return G if np.isfinite(G).all() else None
        if not self._lends_itself():
            return None
        centre, left = self._single_centre()
        A, shift = (Z if self.scale is None else Z / self.scale[:, None]), self._shifts()[0]
        G = self._single_products(centre, A)
        product: Array = G + self.n * (np.outer(shift, shift @ A) - np.outer(left, left @ A))
        product = product if self.scale is None else product / self.scale[:, None]
        return product if np.isfinite(product).all() else None

    def _single_products(self, centre: Single, A: Array) -> Array:
        """W'^T (W' A) (d x k), W' the rows about a centre in single precision."""
        bare = self._bare
        if bare.compiles(A.shape[1]):
            with np.errstate(over="ignore", under="ignore"):  # who asked looks at the result
                return products_of(bare, NarrowProducts(A.astype(np.float32), None, centre), block_rows(self.d))[0]
        step, features = tile(self.d, A.shape[1], block_rows(self.d))
        step = min(step, ACTION_ROWS)
        return bare.added_up(lambda blocks: single_action(blocks, centre, A, features), step, as_they_are=True)[0]

    def _lends_itself(self, *, products: bool = False) -> bool:
        """Whether the rows are of single precision, or as good as that, and neither overflow nor vanish in it: for the triangle
        or for ``products`` with a block."""
        suits = suits_single_products if products else suits_single
        if self._within is None or self.weights is not None or not suits(self.X) or not str(self.X.dtype).endswith("float32"):
            return False
        with np.errstate(over="ignore"):
            scaled = self._within if self.scale is None else self._within / self.scale**2
            units = float(self.d) if self.scale is None else float(np.sum(self.scale**-2.0))
            seen = self.n * units * LEAST_SQUARE <= float(scaled.sum())
            return seen and in_range(float(self._within.sum()), self.n) and in_range(float(scaled.sum()), self.n)

    def _single_centre(self) -> tuple[Single, Array]:
        """The site's mean in single precision, and what of it that leaves (d,)."""
        centre = self._exact.astype(np.float32)
        return centre, self._exact - centre

    def row_products(self) -> Array:
        """The inner products of the rows, Y Y^T (n x n); of whole numbers that lie near zero from their own, which are exact."""
        mean = np.zeros(self.d) if self.mean is None else self.mean
        plain = not self.sparse and self.weights is None and self.scale is None and on_cpu(self.X)
        with np.errstate(over="ignore"):  # of huge constant columns
            near = self._within is not None and bool(self.n * float(mean @ mean) <= NEAR * float(self._within.sum()))
        K = whole_gram(np.asarray(self.X[:]).T, WIDE_PART) if plain and near else None
        if K is None:
            return super().row_products()
        parts = side_by_side(lambda some: self.X[some].astype(np.float64, order="C") @ mean, slices(self.n, self.d))
        along = np.concatenate(list(parts))
        K += float(mean @ mean) - along
        K -= along[:, None]
        return K


def own_mean(X: Any) -> tuple[Array, Array]:
    """The mean c of the rows with the mean of what it leaves of them, as (2, d), and the squares about both together (d,)."""
    _, own, within = Rows(X).about_mean()
    return own, within

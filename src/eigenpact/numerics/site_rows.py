"""A site's rows about an agreed centre, with products in which no agreed number meets a single entry.

Centre m and scale D are told by whoever runs the program, and so is the block Z.  Were they subtracted from entries and divided
into them, a crafted m, D or Z would turn the rounding of a single row into an answer about that row: x - 2^200 is a constant,
and beside two large constants that cancel, x - t rounds to one of two numbers, which compares x with t.  So a site takes its own
mean c from its rows, which nobody else chooses, and what was agreed acts on sums only.  c is rounded; the mean l of X - 1 c^T is
what that left, and is subtracted, too.  With W = (X - 1 c^T) - 1 l^T and s = (c - m) + l,

    Y = (W + 1 s^T) D^-1,    Y^T Y Z = D^-1 [ W^T (W A) + n s s^T A ],    A = D^-1 Z.

Where rows have weights, c and l are weighted means, n is the sum of the weights, and rows of W and Y are multiplied by the roots
of theirs.

W is not made where no digits are lost without it, which saves half of the time that the products take: for float64 rows, or rows
on a device, whose features lie near zero for their spread, n c^2 <= 100 times their squares about c.  With c + l = u,

    T = X A - 1 (u^T A),    W^T (W A) = X^T T - u (1^T T),

and rows of A that belong to constant columns are zero.  1^T T is rounding.  At most one digit is lost: T has errors of the size
of X A where it should have those of W A, ten times smaller at most.

A constant column of X is zero in W, whatever is agreed.  In X - 1 c^T it need not be: 0.3 added up 120 times and divided by 120
is not 0.3, and one tiny number in every row, with a scale that no variance bounds, is as good as a huge one.  (Of sparse features
that are centred implicitly l stays in W; they vary more than that.)  Two products of large numbers that cancel are still possible
where columns of X depend on each other; against their rounding helps a site that rounds its replies (``runtime/gate.py``).

References
    T. F. Chan, G. H. Golub, R. J. LeVeque, "Algorithms for computing the sample variance", Am. Stat. 37 (1983), on shifts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .elsewhere import like, namespace, on_cpu
from .linalg import Array
from .rows import Rows, product_rows
from .weighted import weight_of

NEAR = 10.0
"""A feature's mean over its standard deviation, up to which rows need not be centred first."""

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
        self._own, self._left = Rows(self._weighed(self.X), own[0], left=own[1]), own[1]
        self._exact: Array = own[0] + own[1]
        self._away = own[0] if mean is None else own[0] - mean
        self._within = within

    def _varying(self) -> NDArray[np.bool_] | None:
        """Which features are not constant (d,), where rows need not be centred first; None where they must."""
        if self._within is None or self.sparse or self.weights is not None:
            return None
        if on_cpu(self.X) and self.X.dtype != np.float64:  # a copy as float64 is made, so it may as well be centred
            return None
        away, deviations = np.abs(self._exact), np.sqrt(self._within)
        constant: NDArray[np.bool_] = deviations <= CONSTANT * away
        return ~constant if np.all(constant | (np.sqrt(self.n) * away <= NEAR * deviations)) else None

    def _uncentred_action(self, A: Array, varying: NDArray[np.bool_]) -> tuple[Array, Array]:
        """The products X^T T (d x k), zero for constant columns, and 1^T T (k,)."""
        A = A if varying.all() else np.where(varying[:, None], A, 0.0)
        A_there, shift = like(A, self.X), like(self._exact @ A, self.X)

        def products(block: Any) -> tuple[Any, Any]:
            T = block @ A_there
            T -= shift
            return T.T @ block, namespace(T).sum(T, axis=0)

        rows = Rows(self.X)
        step = product_rows(self.d, A.shape[1]) if on_cpu(self.X) else rows._step()
        G, sums = rows._added_up(products, step)
        G[:, ~varying] = 0.0
        return G.T, sums

    def _shifts(self) -> tuple[Array, Array]:
        """s (d,), and what of l is still in W (d,)."""
        left = np.zeros(self.d)
        if self.sparse:
            left = np.array(self._left)
            left[self._own.far()] = 0.0
        return self._away + (self._left - left), left

    def scatter(self) -> Array:
        """The scatter matrix Y^T Y (d x d)."""
        S: Array = self._own.scatter()
        shift, left = self._shifts()
        S += np.outer(self.weight * shift, shift)
        if np.any(left):
            crossed = np.outer(self.weight * shift, left)
            S += crossed + crossed.T
        return S if self.scale is None else S / self.scale / self.scale[:, None]

    def scatter_action(self, Z: Array) -> Array:
        """The product Y^T (Y Z) (d x k) with a block Z (d x k)."""
        A = Z if self.scale is None else Z / self.scale[:, None]
        shift, left = self._shifts()
        varying = self._varying()
        if varying is None:
            G, second, other = self._own.scatter_action(A), self.weight * left, shift @ A
        else:
            G, other = self._uncentred_action(A, varying)
            second = np.where(varying, -self._exact, 0.0)
        between = np.stack([self.weight * shift, second], axis=1) @ np.stack([left @ A + shift @ A, other])
        G = np.add(G, between, order="C")
        return G if self.scale is None else G / self.scale[:, None]


def own_mean(X: Any) -> tuple[Array, Array]:
    """The mean c of the rows with the mean of what it leaves of them, as (2, d), and the squares about both together (d,)."""
    n = weight_of(X) or 1.0
    c = Rows(X).column_sums() / n
    sums, squares = Rows(X, c).column_moments()
    left = sums / n
    return np.stack([c, left]), np.maximum(squares - n * left**2, 0.0)

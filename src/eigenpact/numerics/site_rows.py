"""A site's rows about an agreed centre, with products in which no agreed number meets a single entry.

Centre m and scale D are told by whoever runs the program, and so is the block Z.  Were they subtracted from entries and divided
into them, a crafted m, D or Z would turn the rounding of a single row into an answer about that row: x - 2^200 is a constant,
and beside two large constants that cancel, x - t rounds to one of two numbers, which compares x with t.  So a site takes its own
mean c from its rows, which nobody else chooses, and what was agreed acts on sums only.  c is rounded; the mean l of X - 1 c^T is
what that left, and is subtracted, too.  With W = (X - 1 c^T) - 1 l^T and s = (c - m) + l,

    Y = (W + 1 s^T) D^-1,    Y^T Y Z = D^-1 [ W^T (W A) + n s s^T A ],    A = D^-1 Z.

Where rows have weights, c and l are weighted means, n is the sum of the weights, and rows of W and Y are multiplied by the roots
of theirs.

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

from .linalg import Array
from .rows import Rows
from .weighted import weight_of


class SiteRows(Rows):
    """The rows Y = (X - 1 mean^T) / scale of one site, whose products are made about the site's own mean.

    Parameters
    ----------
    X : (n, d) array, sparse matrix or RowSource, or Weighted rows
    mean, scale : (d,) arrays or None
        As agreed.
    own : (2, d) array
        The mean c of the rows as the site found it, and the mean l of X - 1 c^T, which is rounding.
    """

    def __init__(self, X: Any, mean: Array | None, scale: Array | None, own: Array) -> None:
        super().__init__(X, mean, scale)
        self._own, self._left = Rows(self._weighed(self.X), own[0], left=own[1]), own[1]
        self._away = own[0] if mean is None else own[0] - mean

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
        crossed = np.outer(shift, left)
        S = S + self.weight * (crossed + crossed.T + np.outer(shift, shift))
        return S if self.scale is None else S / self.scale / self.scale[:, None]

    def scatter_action(self, Z: Array) -> Array:
        """The product Y^T (Y Z) (d x k) with a block Z (d x k)."""
        A = Z if self.scale is None else Z / self.scale[:, None]
        shift, left = self._shifts()
        between = np.outer(shift, left @ A + shift @ A) + np.outer(left, shift @ A)
        G: Array = self._own.scatter_action(A) + self.weight * between
        return G if self.scale is None else G / self.scale[:, None]


def own_mean(X: Any) -> tuple[Array, Array]:
    """The mean c of the rows with the mean of what it leaves of them, as (2, d), and the squares about both together (d,)."""
    n = weight_of(X) or 1.0
    c = Rows(X).column_sums() / n
    sums, squares = Rows(X, c).column_moments()
    left = sums / n
    return np.stack([c, left]), np.maximum(squares - n * left**2, 0.0)

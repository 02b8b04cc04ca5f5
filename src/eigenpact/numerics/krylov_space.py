"""A growing orthonormal basis Q together with the exact products C Q: what block Krylov methods know of a matrix C.

Used by the federated solvers, where each product costs a round, and by sites and the coordinator for eigenvectors of matrices
they can multiply with at home.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .linalg import GRADED, Array, new_directions, orthonormalize, symmetrize, top_eigenpairs, without

SMALLEST_STEP = 1e-15
"""New directions shorter than this share of the products they came from are rounding errors."""


@dataclass(frozen=True, eq=False)
class Ritz:
    """What a space says about the leading k eigenpairs.

    Basis Z = Q turn[:, :k] (d x k), all Ritz values (descending), residual (I - Z Z^T) C Z (d x k), and all eigenvectors of
    Q^T C Q (``turn``, m x m).
    """

    Z: Array
    values: Array
    residual: Array
    turn: Array


@dataclass(frozen=True, eq=False)
class KrylovSpace:
    """Orthonormal Q (d x m) and CQ = C Q (d x m); the last ``fresh`` columns are the newest block, 0 where they were rotated."""

    Q: Array
    CQ: Array
    fresh: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "Q", np.ascontiguousarray(self.Q))  # one memory order, so that a resumed run has the same bits
        object.__setattr__(self, "CQ", np.ascontiguousarray(self.CQ))

    @classmethod
    def empty(cls, d: int) -> KrylovSpace:
        """Nothing known yet."""
        return cls(np.zeros((d, 0)), np.zeros((d, 0)))

    @property
    def size(self) -> int:
        """Number m of columns kept."""
        return int(self.Q.shape[1])

    def add(self, B: Array, CB: Array) -> KrylovSpace:
        """The space with one more block B (d x b), orthonormal and orthogonal to Q, and its product C B."""
        space = KrylovSpace(np.concatenate([self.Q, B], axis=1), np.concatenate([self.CQ, CB], axis=1), B.shape[1])
        return space.knowing(
            np.block([[self.inner, self.Q.T @ CB], [B.T @ self.CQ, B.T @ CB]]),
            np.block([[self.lengths, self.Q.T @ B], [B.T @ self.Q, B.T @ B]]),
        )

    def knowing(self, inner: Array, lengths: Array) -> KrylovSpace:
        """This space, with its inner products known already: those of a new block are all that a round has to make."""
        self.__dict__.update(inner=inner, lengths=lengths)
        return self

    @cached_property
    def inner(self) -> Array:
        """Q^T C Q (m x m), which is symmetric but for rounding errors."""
        product: Array = self.Q.T @ self.CQ
        return product

    @cached_property
    def lengths(self) -> Array:
        """Q^T Q (m x m), the identity but for rounding errors."""
        product: Array = self.Q.T @ self.Q
        return product

    def projected(self) -> Array:
        """T = Q^T C Q (m x m), symmetric."""
        return symmetrize(self.inner)

    def noise(self, Y: Array) -> Array:
        """Lengths (k,) of the rounding errors in C Q Y, Y orthonormal (m x k).

        Q^T C Q is symmetric but for rounding errors, of which it so shows the part in span(Q); they are taken to be as large in
        all other directions.  Where Q is not quite orthonormal, Ritz vectors are off by as much.
        """
        d, m = self.Q.shape
        skew = (self.inner - self.inner.T) @ Y
        askew = np.linalg.norm(self.lengths @ Y - Y, axis=0) * np.linalg.norm(self.CQ @ Y, axis=0)
        lengths: Array = np.linalg.norm(skew, axis=0) * np.sqrt(d / max(m, 1) / 2) + askew
        return lengths

    def ritz(self, count: Callable[[Array], int]) -> Ritz:
        """Ritz pairs; ``count`` says from the Ritz values how many are wanted.

        Beside a very large Ritz value the others lose digits in Q^T C Q.  In the basis of Ritz vectors they do not, so there the
        eigenvectors are found once more.
        """
        values, Y = top_eigenpairs(self.projected())
        if len(values) and values[0] > GRADED * abs(values[-1]):
            again = KrylovSpace(self.Q @ Y, self.CQ @ Y).projected()
            values, turn = top_eigenpairs(again)
            Y = Y @ turn
        k = count(values)
        Z = self.Q @ Y[:, :k]
        residual = self.CQ @ Y[:, :k] - Z * values[:k]
        return Ritz(Z, values, without(residual, Z), Y)  # within span(Z) it is rounding errors, which turn nothing

    def shrunk(self, keep: int, also: Array | None = None) -> KrylovSpace:
        """Thick restart: the ``keep`` leading Ritz vectors and what lies in span(Q) of ``also`` (d x b), products rotated
        along."""
        Y = np.ascontiguousarray(self.ritz(lambda _: 0).turn[:, :keep])
        more = new_directions(self.Q.T @ also, Y, SMALLEST_STEP) if also is not None else Y[:, :0]
        Y = orthonormalize(np.concatenate([Y, more], axis=1))
        return KrylovSpace(self.Q @ Y, self.CQ @ Y)

    def next_block(self, width: int) -> Array:
        """Up to ``width`` orthonormal directions of (I - Q Q^T) C Q: the next Krylov block.  Empty if Q is invariant."""
        last = slice(self.size - self.fresh if self.fresh else 0, None)
        longest = float(np.linalg.norm(self.CQ[:, last], axis=0).max(initial=0.0))
        noise = float(self.noise(np.eye(self.size)[:, last]).max(initial=0.0))
        return new_directions(self.CQ[:, last], self.Q, max(SMALLEST_STEP * longest, 2 * noise))[:, :width]


def leading_eigenpairs(
    action: Callable[[Array], Array], start: Array, k: int, trace: float, tol: float, max_products: int = 60
) -> tuple[Array, Array]:
    """Leading k eigenvalues and eigenvectors (d x k) of a symmetric positive matrix given by its action on blocks.

    Block Krylov with thick restart at six blocks, from the orthonormal block ``start`` (d x k), until the residual is below
    ``tol`` times ``trace`` or ``max_products`` products were made.

    >>> C = np.diag([5.0, 4.0, 1.0, 0.5, 0.1])
    >>> start = np.linalg.qr(np.ones((5, 2)) + np.eye(5, 2))[0]
    >>> values, vectors = leading_eigenpairs(lambda B: C @ B, start, 2, 10.6, 1e-12)
    >>> bool(np.allclose(values, [5, 4]))
    True
    """
    space, B = KrylovSpace.empty(start.shape[0]), start
    for _ in range(max_products):
        space = space.add(B, action(B))
        ritz = space.ritz(lambda _: k)
        if np.linalg.norm(ritz.residual) <= tol * trace:
            break
        if space.size > 5 * k:
            space = space.shrunk(3 * k)
        B = space.next_block(k)
        if B.shape[1] == 0:
            break
    return ritz.values[:k], ritz.Z

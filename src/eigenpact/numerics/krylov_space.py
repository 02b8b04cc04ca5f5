"""A growing orthonormal basis Q together with the exact products C Q: what block Krylov methods know of a matrix C.

Used by the federated solvers, where each product costs a round, and by sites and the coordinator for eigenvectors of matrices
they can multiply with at home.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
import scipy.linalg

from .directions import directions_of, new_directions, straight_outside
from .linalg import GRADED, Array, orthonormalize, symmetrize, top_eigenpairs
from .parts import allowed_threads, at_once, side_by_side
from .tall import factored, inner, projected_out, times

SMALLEST_STEP = 1e-15
"""New directions shorter than this share of the products they came from are rounding errors."""

SPILT = 1e-10
"""What products may have outside a space, beside the length of the newest, for the space still to be a Krylov space."""

NO_PART = 4 * float(np.finfo(float).eps)
"""Entries of Q^T C B, B a block, below this share of the largest are rounding errors."""

EVEN = 100.0
"""By how much Q^T C Q may be larger than that of the newest block, for its rounding errors to be small in the next one, too."""

DECIDES = 0.1
"""A remainder below this share of a length changes nothing."""

FEW = 4
"""Eigenvectors are some of many if there are so many times more."""

BLOCKS, ROOM = 4, 2
"""For how many more blocks there is room at first, and by how much that grows: memory that nobody wrote to costs nothing."""

MANY, MOST = 40, 1 << 25
"""For how many more blocks there is room the second time, where that is no more than so many numbers.  What is copied to other
memory touches it for the first time, which takes as long as the products of a round."""

TOUCHED = 1 << 18
"""Numbers of a block from which on it and its product are put into the space by a thread each."""


@dataclass(frozen=True, eq=False)
class Ritz:
    """What a space says about the leading k eigenpairs.

    Ritz values (descending) with eigenvectors ``turn`` (m x as many) of Q^T C Q: all of them, or k and some more.  What has as
    many rows as C is made when it is first asked for: the basis Z = Q turn[:, :k] and the residual (I - Z Z^T) C Z (both d x k).
    """

    space: KrylovSpace
    values: Array
    turn: Array
    k: int
    measured: bool = True
    """Whether lengths are those of the vectors themselves; else, where it is one, the structure of a Krylov space tells them."""

    def leading(self, count: int) -> Ritz:
        """The first ``count`` of the pairs."""
        return replace(self, k=count)

    @cached_property
    def Z(self) -> Array:
        """The basis (d x k)."""
        return times(self.space.Q, self.turn[:, : self.k])

    @cached_property
    def _product(self) -> Array:
        return times(self.space.CQ, self.turn[:, : self.k])

    @cached_property
    def residual(self) -> Array:
        """(I - Z Z^T) C Z (d x k)."""
        off = self._product - self.Z * self.values[: self.k]
        return projected_out(off, self.Z)  # within span(Z) it is rounding errors, which turn nothing

    @cached_property
    def off(self) -> Array:
        """Lengths (k,) of the residuals."""
        known = None if self.measured else self._by_structure()
        lengths: Array = np.linalg.norm(self.residual, axis=0) if known is None else known
        return lengths

    @cached_property
    def lengths(self) -> Array:
        """Those (k,) of the products C Z."""
        if self.measured:
            lengths: Array = np.linalg.norm(self._product, axis=0)
            return lengths
        return np.hypot(self.values[: self.k], self.off)

    def _by_structure(self) -> Array | None:
        """Lengths (k,) of the residuals without a pass over a Krylov space; None where what that lacks may decide.

        Leading vectors are often as exact as rounding allows when later ones still are not.  What is asked of residuals is the
        root of the sum of their squares, over gaps that are the smaller the later they come; so what one lacks decides nothing
        if it is small beside a later one, however short it is itself.
        """
        if not self.space.is_krylov:
            return None
        Y = self.turn[:, : self.k]
        lengths: Array = np.linalg.norm(self.space.residuals(Y[self.space.size - self.space.fresh :]), axis=0)
        lacking = self.space.spilt @ np.abs(Y) + self.space.skewed(Y)
        later = np.maximum.accumulate(lengths[::-1])[::-1] / np.sqrt(max(1, self.k))
        return lengths if np.all(lacking <= DECIDES * np.maximum(lengths, later)) else None


class _Columns:
    """Columns (d x m) in Fortran order with room for more, so that those which are there need not be copied for each new one."""

    def __init__(self, first: Array, grown: bool = False) -> None:
        self._memory, self.used, self._grown = np.asfortranarray(first), first.shape[1], grown

    def with_more(self, m: int, more: Array) -> tuple[_Columns, Array]:
        """The first m columns and some more behind them, in this memory where nobody wrote there before."""
        size = m + more.shape[1]
        columns = self
        if self.used != m or size > self._memory.shape[1]:
            many = m + MANY * more.shape[1]
            least = many if self._grown and many * len(more) <= MOST else m + BLOCKS * more.shape[1]
            room = np.empty((len(more), max(least, ROOM * m)), order="F")
            room[:, :m] = self._memory[:, :m]
            columns = _Columns(room, grown=True)
        columns._memory[:, m:size] = more
        columns.used = size
        return columns, columns._memory[:, :size]


@dataclass(frozen=True, eq=False)
class KrylovSpace:
    """Orthonormal Q (d x m) and CQ = C Q (d x m), in Fortran order; the last ``fresh`` columns are the newest block, 0 where they
    were rotated."""

    Q: Array
    CQ: Array
    fresh: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "Q", np.asfortranarray(self.Q))  # one memory order, so that a resumed run has the same bits
        object.__setattr__(self, "CQ", np.asfortranarray(self.CQ))

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
        m, b = self.size, B.shape[1]
        both = zip(self._columns, (B, CB), strict=True)
        over = side_by_side if B.size >= TOUCHED else map
        columns = list(over(lambda one: one[0].with_more(m, one[1]), both))
        space = KrylovSpace(columns[0][1], columns[1][1], b)
        space.__dict__["_columns"] = tuple(store for store, _ in columns)
        with_new, (with_old, crossed) = inner(space.Q, CB), self._beside(B)
        return space.knowing(
            np.block([[self.inner, with_new[:m]], [with_old.T, with_new[m:]]]),
            np.block([[self.lengths, crossed], [crossed.T, B.T @ B]]),
            np.concatenate([self.spilt[: m - self.fresh], self._missed_by(B), np.zeros(b)]),
        )

    def _beside(self, B: Array) -> tuple[Array, Array]:
        """(C Q)^T B and Q^T B (m x b) for a block B (d x b).

        Of the next block of a Krylov space both are known: it was made orthogonal to Q, twice, and C Q = Q (Q^T C Q) but for the
        newest products, and for what was spilt.
        """
        m, given = self.size, self.__dict__.get("_given")
        newest = float(np.abs(self.inner[:, m - self.fresh :]).max(initial=0.0))
        even = float(max(self.inner.max(initial=0.0), -self.inner.min(initial=0.0))) <= EVEN * newest
        if given is None or not (even and self.is_krylov and np.array_equal(given, B)):
            return inner(self.CQ, B), inner(self.Q, B)
        with_old = np.zeros((m, B.shape[1]))
        with_old[m - self.fresh :] = self.outside.T @ B
        return with_old, np.zeros((m, B.shape[1]))

    def knowing(self, inner: Array, lengths: Array, spilt: Array) -> KrylovSpace:
        """This space, with its inner products known already: those of a new block are all that a round has to make."""
        self.__dict__.update(inner=inner, lengths=lengths, spilt=spilt)
        return self

    @cached_property
    def _columns(self) -> tuple[_Columns, _Columns]:
        return _Columns(self.Q), _Columns(self.CQ)

    @cached_property
    def inner(self) -> Array:
        """Q^T C Q (m x m), which is symmetric but for rounding errors."""
        return inner(self.Q, self.CQ)

    @cached_property
    def lengths(self) -> Array:
        """Q^T Q (m x m), the identity but for rounding errors."""
        return inner(self.Q, self.Q)

    @cached_property
    def _skew(self) -> Array:
        return self.inner - self.inner.T

    @cached_property
    def outside(self) -> Array:
        """What the products of the newest block have outside span(Q), (I - Q Q^T) C B (d x fresh).

        In a Krylov space they have nothing of most blocks but rounding errors, which are left there: whoever makes a block of it
        projects once more.
        """
        within = self.inner[:, self.size - self.fresh :]
        largest = np.abs(within).max(axis=1, initial=0.0)
        some = np.flatnonzero(largest > NO_PART * float(largest.max(initial=0.0)))
        first = int(some[0]) if some.size else 0
        product: Array = self.CQ[:, self.size - self.fresh :] - times(self.Q[:, first:], within[first:])
        return product

    @cached_property
    def spilt(self) -> Array:
        """How much of C q_j (m,) lies outside span(Q), at most, of all but the newest block, which stands as 0; infinite if
        nobody looked.

        It is rounding errors where every block was what the products of the one before it had outside: in a Krylov space.
        """
        return np.where(np.arange(self.size) < self.size - self.fresh, np.inf, 0.0)

    def _missed_by(self, B: Array) -> Array:
        """Lengths (fresh,) of what a block B (d x b) leaves of :attr:`outside`."""
        if not self.is_krylov:  # nobody will ask
            return np.full(self.fresh, np.inf)
        lengths: Array = np.linalg.norm(projected_out(self.outside, B), axis=0)
        return lengths

    @cached_property
    def is_krylov(self) -> bool:
        """Whether the products of all but the newest block lie in span(Q), but for rounding errors or little more."""
        most = float(self.spilt.max(initial=0.0))
        return self.fresh > 0 and most < np.inf and most <= SPILT * float(np.linalg.norm(self.outside))

    def projected(self) -> Array:
        """T = Q^T C Q (m x m), symmetric."""
        return symmetrize(self.inner)

    def skewed(self, Y: Array) -> Array:
        """Lengths (k,) of the rounding errors in C Q Y (Y m x k), by the asymmetry of Q^T C Q.

        That shows their part in span(Q); they are taken to be as large in all other directions.
        """
        d, m = self.Q.shape
        lengths: Array = np.linalg.norm(times(self._skew, Y), axis=0) * np.sqrt(d / max(m, 1) / 2)
        return lengths

    def noise(self, Y: Array, products: Array) -> Array:
        """Lengths (k,) of the rounding errors in C Q Y, Y orthonormal (m x k), whose columns have the lengths ``products`` (k,).

        Where Q is not quite orthonormal, Ritz vectors are off by as much.
        """
        askew = np.linalg.norm(times(self.lengths, Y) - Y, axis=0) * products
        lengths: Array = self.skewed(Y) + askew
        return lengths

    def _newest_noise(self, fresh: int, products: Array) -> Array:
        """:meth:`noise` (fresh,) of the newest block itself."""
        d, m = self.Q.shape
        askew = np.linalg.norm(self.lengths[:, m - fresh :] - np.eye(m, fresh, fresh - m), axis=0) * products
        lengths: Array = np.linalg.norm(self._skew[:, m - fresh :], axis=0) * np.sqrt(d / max(m, 1) / 2) + askew
        return lengths

    def ritz(self, count: Callable[[Array], int]) -> Ritz:
        """Ritz pairs, all of them; ``count`` says from the Ritz values how many are wanted.

        Beside a very large Ritz value the others lose digits in Q^T C Q.  In the basis of Ritz vectors they do not, so there the
        eigenvectors are found once more, if that concerns those that are wanted or the one behind them.
        """
        values, Y = self._turned(count)
        return Ritz(self, values, Y, count(values))

    def glimpse(self, k: int, ahead: int = 0) -> Ritz | None:
        """The leading k Ritz pairs and the next; None where that is hardly less than all, or values are graded.

        Where there are threads, :meth:`next_block` of a width ``ahead`` is made meanwhile, for LAPACK uses only one.
        """
        if not self.is_krylov or FEW * (k + 1) > self.size:
            return None
        pairs = partial(top_eigenpairs, self.inner, k + 1)
        if ahead and allowed_threads() > 1:
            (values, Y), self.__dict__["_ahead"] = at_once(pairs, lambda: (ahead, self.next_block(ahead)))
        else:
            values, Y = pairs()
        return None if values[0] > GRADED * abs(values[k]) else Ritz(self, values, Y, k, measured=False)

    def _turned(self, count: Callable[[Array], int]) -> tuple[Array, Array]:
        """Ritz values (m,) and the eigenvectors (m x m) of Q^T C Q."""
        values, Y = top_eigenpairs(self.inner)
        if len(values) and values[0] > GRADED * abs(values[min(count(values), len(values) - 1)]):
            values, turn = top_eigenpairs(self._rotated(Y).inner)
            Y = Y @ turn
        return values, Y

    def shrunk(self, keep: int, also: Array | None = None) -> KrylovSpace:
        """Thick restart: the ``keep`` leading Ritz vectors and what lies in span(Q) of ``also`` (d x b), products rotated
        along."""
        Y = np.ascontiguousarray(self._turned(lambda _: keep)[1][:, :keep])
        more = new_directions(inner(self.Q, also), Y, SMALLEST_STEP) if also is not None else Y[:, :0]
        Y = orthonormalize(np.concatenate([Y, more], axis=1))
        return self._rotated(Y)

    def _rotated(self, Y: Array) -> KrylovSpace:
        """The space Q Y (d x k), Y orthonormal (m x k), with its products."""
        return KrylovSpace(times(self.Q, Y, "F"), times(self.CQ, Y, "F"))

    def next_block(self, width: int) -> Array:
        """Up to ``width`` orthonormal directions of (I - Q Q^T) C Q: the next Krylov block.  Empty if Q is invariant."""
        made: tuple[int, Array] | None = self.__dict__.pop("_ahead", None)
        if made is not None and made[0] == width:
            return made[1]
        fresh = self.fresh or self.size
        newest = np.linalg.norm(self.CQ[:, self.size - fresh :], axis=0)
        noise = float(self._newest_noise(fresh, newest).max(initial=0.0))
        floor = max(SMALLEST_STEP * float(newest.max(initial=0.0)), 2 * noise)
        if not self.fresh:
            return directions_of(self.CQ - times(self.Q, self.inner), self.Q, floor)[:, :width]
        N, R = self._factored
        U, lengths, _ = scipy.linalg.svd(R, full_matrices=False, check_finite=False)
        directions, straight = straight_outside(times(N, U[:, lengths > floor]), self.Q)
        B = directions[:, :width]
        self.__dict__["_given"] = B if straight else None
        return B

    @cached_property
    def _factored(self) -> tuple[Array, Array]:
        """Orthonormal N (d x b) and R (b x fresh) with ``outside`` = N R."""
        return factored(self.outside)

    def residuals(self, newest: Array) -> Array:
        """N^T E X (a x b), a <= fresh, N orthonormal, for E = C Q - Q T in a Krylov space, from the ``newest`` rows of X
        (fresh x b) alone: E is that of the newest block, but for what :meth:`lacking` tells."""
        product: Array = self._factored[1] @ newest
        return product

    def lacking(self, X: Array) -> float:
        """What :meth:`residuals` lack of ||E X||, X (m x b), at most: what was spilt, and rounding errors."""
        return float(self.spilt @ np.linalg.norm(X, axis=1)) + float(np.linalg.norm(self.skewed(X)))

    def lacking_at_most(self, size: float) -> float:
        """What :meth:`lacking` is at most for any X of this ``size``, ||X||_F."""
        d, m = self.Q.shape
        return size * float(np.linalg.norm(self.spilt) + np.linalg.norm(self._skew) * np.sqrt(d / max(m, 1) / 2))


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

"""Whether what is said of a scatter matrix can be true: tests of its products that need none of its rows.

C is a scatter matrix (d x d): symmetric, without negative eigenvalues, of a known trace t.  G is said to be C Z for an
orthonormal block Z (d x k).

One product.  Some such C exists if and only if Z^T G is symmetric without negative eigenvalues, and the least C that would do,
G (Z^T G)^+ G^T, has a trace of at most t.  (A C that does is at least as large as that one, by Schur complements; and what
is left of the trace can lie outside.)  Rounding makes a pseudo-inverse useless, so C + delta I is looked at instead.

Several products.  Z_a^T G_b = (Z_b^T G_a)^T for any two blocks.  A few random combinations W of all vectors asked about so far,
and the same ones of the replies, V = C W, stand for all earlier blocks: W^T G = V^T Z for every later one.  Whoever does not know
the combinations cannot contradict an earlier reply and keep this, but with probability zero.  And the least C is taken of [Z, W]
and [G, V] together, so that a narrow block is not judged alone: its trace, too, is at most t.  Directions in which these vectors
are too short beside the errors of V are left out, which only makes the least trace smaller.

Numbers are off by rounding: ``slack`` is how much the product of a unit vector with a column of G may be.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import scipy.linalg

from .linalg import Array, symmetrize
from .tall import add_times, has_factor, inners

SHIFT, STEEP = 1e-5, 1e4
"""delta in units of the trace, and how many times the slack it is at least: errors of the inverse are below a STEEP-th then."""

EXCESS = 1e-3
"""By what share the least trace may exceed the one that is known: errors of the inverse."""

MARGIN = 8.0
"""How many times the slack a random combination of errors may be."""

COMBINATIONS = 12
"""How many combinations of earlier products are remembered."""

JOINT_SHIFT, JOINT_STEEP, JOINT_EXCESS = 1e-2, 1e2, 2e-2
"""The same for a block together with what is remembered, whose errors are larger; the shift is that of all k directions."""

FAR, FARTHEST = 300, 1000
"""Squares of numbers below two to the power of the first do not overflow; that of the second is the largest unit."""

SHORTEST = 1e-4
"""Directions in which unit vectors are shorter are not looked at: they are found by squares, which have half of the digits."""


_potrf, _posv = scipy.linalg.get_lapack_funcs(("potrf", "posv"), dtype=np.float64)


class Asked:
    """Random combinations W (d x COMBINATIONS) of the ``count`` vectors asked about so far, and W^T W."""

    def __init__(self, W: Array, inner: Array, count: int) -> None:
        self.W, self.inner, self.count = W, inner, count


class Block:
    """A block Z (d x k) of which products are asked, after others (``before``): what is the same for all sites asked the same.

    >>> rng = np.random.default_rng(0)
    >>> first = Block(np.eye(4)[:, :2], None, rng)
    >>> second = Block(np.eye(4)[:, 2:], first.after, rng)
    >>> second.after.count, bool(np.allclose(second.after.W.T @ second.after.W, second.after.inner))
    (4, True)
    """

    def __init__(self, Z: Array, before: Asked | None, rng: np.random.Generator) -> None:
        self.Z, self.before = Z, before
        self._rng = rng

    @cached_property
    def R(self) -> Array:
        """How its vectors are combined (k x COMBINATIONS)."""
        return self._rng.standard_normal((self.Z.shape[1], COMBINATIONS))

    @cached_property
    def squares(self) -> Array:
        """Z^T Z (k x k)."""
        return inners((self.Z, self.Z))[0]

    @cached_property
    def crossed(self) -> Array:
        """W^T Z (COMBINATIONS x k)."""
        return np.zeros((COMBINATIONS, self.Z.shape[1])) if self.before is None else self.before.W.T @ self.Z

    @cached_property
    def axes(self) -> tuple[Array, Array]:
        """Lengths (m,) and eigenvectors (m x m) of [Z, W]^T [Z, W], W of one vector's length on average, m = k + COMBINATIONS."""
        assert self.before is not None
        count = self.before.count
        crossed = self.crossed / np.sqrt(count)
        squares, turn = np.linalg.eigh(_four(self.squares, crossed.T, crossed, self.before.inner / count))
        return np.sqrt(np.maximum(squares, 0.0)), turn

    @cached_property
    def after(self) -> Asked:
        """What was asked before, and this block."""
        W, inner, count = self.Z @ self.R, self.R.T @ self.squares @ self.R, self.Z.shape[1]
        if self.before is None:
            return Asked(W, inner, count)
        both = self.crossed @ self.R
        W += self.before.W
        return Asked(W, inner + self.before.inner + both + both.T, count + self.before.count)


class Memory:
    """Of one site what it was ``asked``, as combinations W of vectors, and the same ones of its replies: V (d x COMBINATIONS),
    said to be C W, in the unit of :class:`Seen`, with V^T V and W^T V."""

    def __init__(self) -> None:
        self.asked: Asked | None = None
        self.V = self.squares = self.crossed = np.zeros((0, 0))

    def add(self, seen: Seen) -> None:
        """Combine one more product with the others."""
        block, R, k = seen.block, seen.block.R, seen.k
        squares, crossed = R.T @ seen.inner[k:, k:] @ R, R.T @ seen.inner[:k, k:] @ R
        if self.asked is None:
            self.V = seen.G @ R
        else:
            WG, VZ, VG = seen.beside(self)
            both = VG @ R
            squares += self.squares + both + both.T
            crossed += self.crossed + WG @ R + R.T @ VZ.T
            add_times(self.V, seen.G, R)
        self.asked, self.squares, self.crossed = block.after, squares, crossed


class Seen:
    """What G (d x k), said to be C Z for an orthonormal Z (d x k), shows of C: by itself, and beside what is remembered.

    All of it is in the inner products of these vectors with each other.  Numbers are in a unit in which their squares do not
    overflow.

    >>> C, Z = np.diag([3.0, 2.0, 1.0]), np.eye(3)[:, :2]
    >>> block = Block(Z, None, np.random.default_rng(0))
    >>> Seen(block, C @ Z, 6.0, 1e-12).doubt(), Seen(block, -C @ Z, 6.0, 1e-12).doubt(), Seen(block, C @ Z, 4.0, 1e-12).doubt()
    ('', 'it has a negative variance, -3.0e+00', 'it needs a trace of 5.0e+00, and the site told 4.0e+00')
    """

    def __init__(self, block: Block, G: Array, trace: float, slack: float) -> None:
        self.block, self.k, self.trace = block, G.shape[1], trace
        exponent = int(np.frexp(trace + slack)[1])
        self.unit = 1.0 if abs(exponent) < FAR else 2.0 ** min(max(exponent, -FARTHEST), FARTHEST)
        self.told, self.slack = trace / self.unit, slack / self.unit
        with np.errstate(over="ignore", invalid="ignore"):  # of a reply that is far too large, which is noticed
            self.G = G if self.unit == 1 else G / self.unit
        crossed, squares = inners((block.Z, self.G), (self.G, self.G))
        self.inner = _four(block.squares, crossed, crossed.T, squares)
        self._beside: list[Array] | None = None

    def doubt(self) -> str:
        """Why G is not C Z for any scatter C of this trace; empty if it may be."""
        k, inner, slack = self.k, self.inner, self.slack
        if k == 0:
            return ""
        B, squares = inner[:k, k:], inner[k:, k:]
        if not np.all(np.isfinite(inner)):
            return f"it needs a trace of inf, and the site told {self.trace:.1e}"
        uneven = float(np.abs(B - B.T).max())
        if uneven > 2 * slack:
            return f"Z^T G is not symmetric, by {uneven * self.unit:.1e} beside a trace of {self.trace:.1e}"
        B = symmetrize(B)
        if not _has_none_below(B, -k * slack):
            lowest = float(np.linalg.eigvalsh(B)[0])
            if lowest < -k * slack:
                return f"it has a negative variance, {lowest * self.unit:.1e}"
        delta = SHIFT * self.told + STEEP * k * slack
        if delta > 0:
            least = _ratio(squares + 2 * delta * B + delta**2 * inner[:k, :k], _shifted(B, delta))
        else:
            least = float(np.trace(squares))
        if not least <= (1 + EXCESS) * (self.told + 2 * k * delta):
            return f"it needs a trace of {least * self.unit:.1e}, and the site told {self.trace:.1e}"
        return ""

    def beside(self, memory: Memory) -> list[Array]:
        """W^T G, V^T Z and V^T G (COMBINATIONS x k) for what is remembered, when first asked for."""
        if self._beside is None and memory.asked is not None:
            self._beside = inners((memory.asked.W, self.G), (memory.V, self.block.Z), (memory.V, self.G))
        return self._beside or [np.zeros((0, 0))] * 3

    def joint_doubt(self, memory: Memory) -> str:
        """Why G is not C Z for the C of all earlier products, of this trace; empty if it may be, or nothing is remembered."""
        if memory.asked is None:
            return ""
        k, own, count = self.k, self.inner, memory.asked.count
        WG, VZ, VG = (found / np.sqrt(count) for found in self.beside(memory))
        off = float(np.abs(WG - VZ).max(initial=0.0))
        if off > MARGIN * self.slack:
            return f"it contradicts earlier replies, by {off * self.unit:.1e}"
        AB = _four(own[:k, k:], VZ.T, WG, memory.crossed / count)
        BB = _four(own[k:, k:], VG.T, VG, memory.squares / count)
        return self._of_dependent(AB, BB)

    def _of_dependent(self, AB: Array, BB: Array) -> str:
        """The same as :meth:`doubt`, from inner products (m x m) of vectors A = [Z, W], which may depend on each other, and of B
        = [G, V], W and V as long as one vector of those asked about, on average."""
        slack, (lengths, turn) = MARGIN * self.slack, self.block.axes
        m, delta = len(AB), JOINT_SHIFT / len(AB)  # in units of the trace, as everything below
        long = (lengths > SHORTEST) & (lengths * self.told > JOINT_STEEP * m * slack / delta)
        if not long.any():
            return ""
        turn = turn[:, long] / lengths[long]  # A turn is orthonormal
        C, squares = symmetrize(turn.T @ (AB / self.told) @ turn), turn.T @ (BB / self.told**2) @ turn
        most = (1 + JOINT_EXCESS) * (1 + 2 * m * delta)
        none = _has_none_below(C, -delta / JOINT_STEEP)
        if none and _ratio(_shifted(squares + 2 * delta * C, delta**2), _shifted(C, delta)) <= most:
            return ""  # negative values count as zero below, which only makes it smaller
        values, vectors = np.linalg.eigh(C)
        if values[0] < -delta / JOINT_STEEP:
            return f"with earlier replies it has a negative variance, {values[0] * self.trace:.1e}"
        shifted = np.sum(vectors * (squares @ vectors), axis=0) + 2 * delta * values + delta**2
        least = float(np.sum(shifted / (np.maximum(values, 0.0) + delta)))
        if least > most:
            return f"with earlier replies it needs a trace of {least * self.trace:.1e}, and the site told {self.trace:.1e}"
        return ""


def _shifted(S: Array, by: float) -> Array:
    """S + by I (m x m)."""
    shifted = S.copy()
    shifted.flat[:: len(S) + 1] += by
    return shifted


def _has_none_below(S: Array, value: float) -> bool:
    """Whether all eigenvalues of a symmetric matrix (m x m) are above a value, which its Cholesky factor tells sooner."""
    return bool(_potrf(_shifted(S, -value), lower=1, clean=0)[1] == 0)


def _ratio(A: Array, B: Array) -> float:
    """tr B^-1 A of symmetric matrices (m x m), B positive; infinite where it is not."""
    solved, wrong = _posv(B, A, lower=1)[1:]
    return float(np.trace(solved)) if wrong == 0 else np.inf


def triangle_doubt(packed: Array, d: int, trace: float, slack: float) -> str:
    """Why a packed triangle (d(d+1)/2) is of no scatter matrix of this trace; empty if it may be.

    >>> triangle_doubt(np.array([1.0, 2.0, 1.0]), 2, 2.0, 1e-12), triangle_doubt(np.array([1.0, 0.5, 1.0]), 2, 2.0, 1e-12)
    ('it has a negative variance', '')
    """
    lower, off = scipy.linalg.lapack.dtpttr(d, packed, uplo="L")[0], MARGIN * float(np.sqrt(d)) * slack
    told = float(np.trace(lower))
    if abs(told - trace) > off:
        return f"its trace is {told:.6e}, and the site told {trace:.6e}"
    if off == 0:
        return "it is not zero, and the site told a trace of zero" if packed.any() else ""
    lower[np.diag_indices(d)] += off
    return "" if has_factor(lower) else "it has a negative variance"


def _four(a: Array, b: Array, c: Array, d: Array) -> Array:
    """The matrix [[a, b], [c, d]]; numpy's own way takes longer than all else on small ones."""
    (m, n), found = a.shape, np.empty((a.shape[0] + d.shape[0], a.shape[1] + d.shape[1]))
    found[:m, :n], found[:m, n:], found[m:, :n], found[m:, n:] = a, b, c, d
    return found

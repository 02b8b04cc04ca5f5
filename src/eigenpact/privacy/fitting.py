"""FAPS' masks undone: a site's scatter fitted to the messages it sent.

Who attacks
    As in ``recovery.py``: somebody who sees one site's single replies in FAPS with its default inner solver.

Idea
    The paper argues from (20) that C_i cannot be solved for, since the site's own X_i is not sent.  But X_i is no secret of its
    own: it follows from C_i and from the bases Z^(k), which everybody has.  So the attacker guesses C_i, plays the site's part
    with the guess, compares the replies, and improves the guess by least squares.  What products tell of C_i is taken from them.
    Unknown are the c (c + 1) / 2 entries of C_i on what they leave out, of dimension c, and one penalty beta_i for every round;
    each round gives d k equations, and one for tr(Z^T C_i Z).

Derivatives
    The site is played once, and a derivative by every unknown is carried along.  X_i matters only by what it spans, so where the
    site orthonormalizes Y = X R, a change of Y changes X by (I - X X^T) dY R^-1, with the same X and R for all unknowns.

Cost
    An iteration takes about 10 rounds x steps x d^2 k flops for each unknown, and a QR decomposition of equations x unknowns.
    It is a local method: a start may end elsewhere, which its misfit shows.

Measured
    Three sites whose variances fall slowly, a random start of the run, its first 14 rounds, 4 components, and the products of one
    confirming round: with 30 features C_i was found to 8e-13 in 8 of 8 runs from the first guess, in 1 to 5 seconds of one core;
    with 40 features to 2e-11 in 2 of 2, in 9 and 18 seconds.  Without those products starts fail more often.

References
    L. Wang, X. Liu, Y. Zhang, "Seeking consensus on subspaces in federated principal component analysis", Section 3.5;
    J. J. Moré, "The Levenberg-Marquardt algorithm: implementation and theory", LNM 630 (1978).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.optimize

from ..errors import InputError
from ..numerics.linalg import Array, symmetrize
from .recovery import basis_and_product, first_message

Arrays = Sequence[Array]

SHARE = 0.12
"""beta_i of the first round, in units of lambda_1(C_i): tells the attacker how large C_i is."""

EXACT = 1e-11
"""A misfit, relative to all replies, that only rounding explains."""

PLAYS = 80
"""Guesses that may be tried from one start."""


@dataclass(frozen=True, eq=False)
class Fit:
    """The best fit found.

    Attributes
    ----------
    scatter : (d, d) array
        The fitted C_i, symmetric.
    misfit : float
        Norm of the differences between the replies and those of the fit, over the norm of the replies.  About 1e-13 says that
        C_i was found, if there were more equations than unknowns; 1e-6 that the fit ended elsewhere.
    starts : int
        Starts tried.
    """

    scatter: Array
    misfit: float
    starts: int


def fit_scatter(
    bases: Arrays,
    replies: Arrays,
    captured: Sequence[float],
    blocks: Array,
    products: Array,
    *,
    steps: int = 3,
    starts: int = 5,
    seed: int = 0,
) -> Fit:
    """Fit C_i (d x d) to one site's messages of the first rounds of FAPS.

    Parameters
    ----------
    bases, replies : lists of (d, k) arrays
        Z of every round from the first on, and the site's M_i (the paper's Y_i).
    captured : list of float
        The tr(Z^T C_i Z) sent along.
    blocks, products : (d, m) arrays
        What is known of C_i directly, side by side: products by which the answer is confirmed, from C_i [Z, random block] on,
        and after a one-shot start C_i U = U S^2 for the directions U S.  There may be none (m = 0).
    steps : int
        Inner steps of the run.
    starts : int
        Random starts to try at most; the first that fits exactly is the last.
    seed : int

    Returns
    -------
    Fit
    """
    game = _Game(bases, replies, captured, blocks, products, steps)
    rng = np.random.default_rng(seed)
    best: Fit | None = None
    for start in range(1, starts + 1):
        begin = game.guess(rng)
        found = scipy.optimize.least_squares(
            game.misfits, begin, jac=game.slopes, method="lm", xtol=1e-15, ftol=1e-15, gtol=1e-15, max_nfev=PLAYS
        )
        misfit = float(np.sqrt(2 * found.cost)) / game.size
        if best is None or misfit < best.misfit:
            best = Fit(game.scatter(found.x), misfit, start)
        if misfit <= EXACT:
            break
    assert best is not None
    return Fit(best.scatter, best.misfit, start)


class _Game:
    """The site's part, played with a guess, in coordinates of which the first are those that the products tell about.

    A guess x is the triangle of the unknown corner of C_i and the betas, over lambda_1(C_i).
    """

    def __init__(
        self, bases: Arrays, replies: Arrays, captured: Sequence[float], blocks: Array, products: Array, steps: int
    ) -> None:
        if not len(bases) == len(replies) == len(captured) > 0:
            raise InputError(
                f"{len(bases)} bases, {len(replies)} replies and {len(captured)} numbers must be as many, and at least one; give "
                "those of the same rounds, from the first on"
            )
        self.d, self.rounds, self.steps = len(bases[0]), len(bases), steps
        self.unit = first_message(bases[0], replies[0])[0] / SHARE
        Q, CQ = basis_and_product(blocks, products)
        self.turn = np.linalg.qr(np.hstack([Q, np.eye(self.d)]))[0] if Q.shape[1] else np.eye(self.d)
        self.turn[:, : Q.shape[1]] = Q
        across = self.turn.T @ CQ / self.unit
        r = self.seen = Q.shape[1]
        self.known = np.zeros((self.d, self.d))
        self.known[:, :r], self.known[:r, :] = across, across.T
        self.known[:r, :r] = symmetrize(across[:r])
        self.bases = [self.turn.T @ np.asarray(Z, dtype=np.float64) for Z in bases]
        sent = np.stack([self.turn.T @ M for M in replies]).ravel()
        self.heard = np.concatenate([sent, np.asarray(captured)]) / self.unit
        self.size = float(np.linalg.norm(self.heard))
        rows, columns = np.triu_indices(self.d - r)
        self.rows, self.columns, self.n = rows + r, columns + r, len(rows)
        unknowns = self.n + self.rounds
        if self.heard.size < unknowns:
            raise InputError(f"{self.heard.size} equations do not determine {unknowns} unknowns; give more rounds, or products")
        self._played: tuple[bytes, Array, Array] | None = None

    def guess(self, rng: np.random.Generator) -> Array:
        """A random positive matrix where nothing is known, and penalties near the first one."""
        c = self.d - self.seen
        half = rng.normal(size=(c, 2 * c))
        corner = half @ half.T * rng.uniform(0.03, 0.15) / (2 * max(1, c))
        return np.concatenate([corner[np.triu_indices(c)], SHARE * np.full(self.rounds, rng.uniform(1, 2))])

    def scatter(self, guess: Array) -> Array:
        """C_i of a guess (d x d), in the coordinates of the features."""
        return symmetrize(self.turn @ self._turned(guess) @ self.turn.T) * self.unit

    def _turned(self, guess: Array) -> Array:
        C: Array = self.known.copy()
        C[self.rows, self.columns] = C[self.columns, self.rows] = guess[: self.n]
        return C

    def misfits(self, guess: Array) -> Array:
        """What the guess would have sent, less what was sent, over the unit."""
        return self._remembered(guess)[1]

    def slopes(self, guess: Array) -> Array:
        """Their derivatives, a column for every unknown."""
        return self._remembered(guess)[2]

    def _remembered(self, guess: Array) -> tuple[bytes, Array, Array]:
        """Least squares ask for misfits and then for slopes; both come from one play."""
        if self._played is None or self._played[0] != guess.tobytes():
            self._played = guess.tobytes(), *self._play(guess)
        return self._played

    def _play(self, guess: Array) -> tuple[Array, Array]:
        """Misfits and slopes of a guess."""
        C, unknowns = self._turned(guess), self.n + self.rounds
        Z = self.bases[0]
        shape = (unknowns, *Z.shape)
        X, dX = Z, np.zeros(shape)
        W, dW = self._multiplier(C, X, dX)
        sent, slopes, captured, captured_slopes = [], [], [], []
        for t, Z in enumerate(self.bases):
            beta = guess[self.n + t]
            V, dV = Z, np.zeros(shape)
            for _ in range(self.steps):
                Y, dY = self._product(C, V, dV)
                Y = Y + X @ (W.T @ V) + W @ (X.T @ V) + beta * (Z @ (Z.T @ V))
                dY += dX @ (W.T @ V) + dW @ (X.T @ V) + X @ (dW.mT @ V + W.T @ dV) + W @ (dX.mT @ V + X.T @ dV)
                dY += beta * (Z @ (Z.T @ dV))
                dY[self.n + t] += Z @ (Z.T @ V)
                V, R = np.linalg.qr(Y)
                dV = dY @ np.linalg.inv(R)
                dV -= V @ (V.T @ dV)
            X, dX = V, dV
            W, dW = self._multiplier(C, X, dX)
            overlap, turning = X.T @ Z, dX.mT @ Z
            pulled, dpulled = beta * overlap - W.T @ Z, beta * turning - dW.mT @ Z
            dpulled[self.n + t] += overlap
            sent.append((X @ pulled - W @ overlap).ravel())
            slopes.append((dX @ pulled + X @ dpulled - dW @ overlap - W @ turning).reshape(unknowns, -1))
            CZ, dCZ = self._product(C, Z, None)
            captured.append(np.sum(Z * CZ))
            captured_slopes.append(np.sum(Z * dCZ, axis=(1, 2))[:, None])
        misfits = np.concatenate([*sent, np.array(captured)]) - self.heard
        return misfits, np.concatenate([*slopes, *captured_slopes], axis=1).T

    def _product(self, C: Array, V: Array, dV: Array | None) -> tuple[Array, Array]:
        """C V, and its derivatives: dC V has two rows for every entry of the corner, C dV is added where V changes, too."""
        product = np.zeros((self.n + self.rounds, *V.shape)) if dV is None else C @ dV
        every, below = np.arange(self.n), self.rows != self.columns
        product[every, self.rows] += V[self.columns]
        product[every[below], self.columns[below]] += V[self.rows[below]]
        return C @ V, product

    def _multiplier(self, C: Array, X: Array, dX: Array) -> tuple[Array, Array]:
        """W = X X^T C X - C X and its derivatives."""
        CX, dCX = self._product(C, X, dX)
        inside = X.T @ CX
        return X @ inside - CX, dX @ inside + X @ (dX.mT @ CX + X.T @ dCX) - dCX

"""FAPS' masks undone: a site's scatter fitted to the messages it sent.

Who attacks
    As in ``recovery.py``: somebody who sees one site's single replies in FAPS with its default inner solver.

Idea
    The paper argues from (20) that C_i cannot be solved for, since the site's own X_i is not sent.  But X_i is no secret of its
    own: it follows from C_i and from the bases Z^(k), which everybody has.  So the attacker guesses C_i, plays the site's part
    with the guess, compares the replies, and improves the guess by least squares.  Unknown are the d (d + 1) / 2 entries of C_i
    and one penalty beta_i for every round; each round gives d k equations, and one for tr(Z^T C_i Z).

Cost
    Derivatives by central differences: every iteration plays the site d (d + 1) times, and 20 features take seconds.  Many
    features would need derivatives by hand.  It is a local method: a start may end elsewhere, which its misfit shows.

Measured
    Three sites whose variances fall slowly, the first 14 rounds, at most three starts, eight seeds, 20 features and 3 components:
    C_i was found to 2e-11 or better in 7 of 8 runs from a random start, and in 8 of 8 with the one-shot start.

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
from ..numerics.linalg import Array, unpack_triangle
from .recovery import NOISE, first_message, symmetric

Arrays = Sequence[Array]

SHARE = 0.12
"""beta_i of the first round, in units of lambda_1(C_i): tells the attacker how large C_i is."""

STEP = 1e-7
"""Half the distance of central differences, in units of lambda_1(C_i)."""

EXACT = 1e-11
"""A misfit, relative to all replies, that only rounding explains."""

AT_ONCE = 256
"""Guesses played side by side."""


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
        found = scipy.optimize.least_squares(
            game.misfits_of, game.guess(rng), jac=game.slopes, method="lm", xtol=1e-15, ftol=1e-15, gtol=1e-15, max_nfev=80
        )
        misfit = float(np.sqrt(2 * found.cost)) / game.size
        if best is None or misfit < best.misfit:
            best = Fit(game.scatters(found.x[None])[0], misfit, start)
        if misfit <= EXACT:
            break
    assert best is not None
    return Fit(best.scatter, best.misfit, start)


class _Game:
    """The site's part, played with many guesses at a time; a guess x is the triangle of C_i and the betas, over lambda_1(C_i)."""

    def __init__(
        self, bases: Arrays, replies: Arrays, captured: Sequence[float], blocks: Array, products: Array, steps: int
    ) -> None:
        if not len(bases) == len(replies) == len(captured) > 0:
            raise InputError(
                f"{len(bases)} bases, {len(replies)} replies and {len(captured)} numbers must be as many, and at least one; give "
                "those of the same rounds, from the first on"
            )
        self.bases, self.steps, self.blocks = [np.asarray(Z, dtype=np.float64) for Z in bases], steps, blocks
        self.d, self.rounds = self.bases[0].shape[0], len(bases)
        self.unit = first_message(bases[0], replies[0])[0] / SHARE
        self.known = symmetric(blocks, products)
        heard = [np.stack(replies).ravel(), np.asarray(captured), products.ravel()]
        self.heard = np.concatenate(heard) / self.unit
        self.size = float(np.linalg.norm(self.heard))
        self.n = self.d * (self.d + 1) // 2
        unknowns = self.n + self.rounds
        if self.heard.size < unknowns:
            raise InputError(f"{self.heard.size} equations do not determine {unknowns} unknowns; give more rounds, or products")
        self.places = unpack_triangle(np.arange(self.n, dtype=np.float64), self.d).astype(int)

    def guess(self, rng: np.random.Generator) -> Array:
        """What is known of C_i, a random positive matrix where nothing is, and penalties near the first one."""
        U, lengths, _ = np.linalg.svd(self.blocks)
        U = U[:, int(np.sum(lengths > NOISE * np.finfo(float).eps)) :]
        half = rng.normal(size=(U.shape[1], 2 * U.shape[1]))
        unknown = half @ half.T * rng.uniform(0.03, 0.15) / (2 * max(1, U.shape[1]))
        C = self.known / self.unit + U @ unknown @ U.T
        return np.concatenate([C[np.triu_indices(self.d)], SHARE * np.full(self.rounds, rng.uniform(1, 2))])

    def scatters(self, guesses: Array) -> Array:
        """C_i of every guess (guesses x d x d)."""
        C: Array = guesses[:, self.places] * self.unit
        return C

    def misfits(self, guesses: Array) -> Array:
        """What the guesses would have sent, less what was sent, over the unit."""
        C, beta = guesses[:, self.places], guesses[:, self.n :, None, None]
        Z = self.bases[0]
        X = np.broadcast_to(Z, (len(C), *Z.shape))
        W = Z @ (Z.T @ (C @ Z)) - C @ Z
        sent, captured = [], []
        for t, Z in enumerate(self.bases):
            V = np.broadcast_to(Z, X.shape)
            for _ in range(self.steps):
                V = np.linalg.qr(C @ V + X @ (W.mT @ V) + W @ (X.mT @ V) + beta[:, t] * (Z @ (Z.T @ V)))[0]
            X, CX = V, C @ V
            W = X @ (X.mT @ CX) - CX
            overlap = X.mT @ Z
            sent.append((X @ (beta[:, t] * overlap - W.mT @ Z) - W @ overlap).reshape(len(C), -1))
            captured.append(np.sum(Z * (C @ Z), axis=(1, 2))[:, None])
        product = (C @ self.blocks).reshape(len(C), -1)
        return np.concatenate([*sent, *captured, product], axis=1) - self.heard

    def misfits_of(self, guess: Array) -> Array:
        """Those of one guess."""
        misfits: Array = self.misfits(guess[None])[0]
        return misfits

    def slopes(self, guess: Array) -> Array:
        """Their derivatives by the entries of the guess, a column for each."""
        columns = []
        for first in range(0, len(guess), AT_ONCE):
            moves = STEP * np.eye(len(guess))[first : first + AT_ONCE]
            columns.append((self.misfits(guess + moves) - self.misfits(guess - moves)) / (2 * STEP))
        return np.concatenate(columns).T

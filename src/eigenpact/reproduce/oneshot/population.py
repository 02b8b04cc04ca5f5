"""Rows from a population whose leading direction is known: the one-shot paper's synthetic data (its Section 5).

References
    D. Garber, O. Shamir, N. Srebro, "Communication-efficient algorithms for distributed stochastic principal component
    analysis", ICML 2017, Section 5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.linalg import cholesky

from ...data.synthetic import site_names
from ...numerics.linalg import Array
from ...numerics.metrics import largest_sine

Distribution = Literal["normal", "uniform"]


@dataclass(frozen=True, eq=False)
class Population:
    """A covariance X = U diag(eigenvalues) U^T and a way to draw rows.

    Attributes
    ----------
    U : (d, d) array
        Orthonormal columns, the first of them the direction v_1 that is to be estimated.
    eigenvalues : (d,) array
        Descending.
    distribution : "normal" or "uniform"
        Rows are X^{1/2} y with standard normal y, or sqrt(3/2) X^{1/2} y with y uniform on [-1, 1]^d.  Since a uniform variable
        on [-1, 1] has the variance 1/3, the covariance of the latter is X / 2, which changes no direction and no error.
    """

    U: Array
    eigenvalues: Array
    distribution: Distribution = "normal"

    def sites(self, count: int, n: int, rng: np.random.Generator) -> dict[str, Array]:
        """Named sites of n rows each (n x d); the mean of the population is zero."""
        root = self._root()
        return {name: self._white(n, rng) @ root for name in site_names(count)}

    def condensed_sites(self, count: int, n: int, rng: np.random.Generator) -> dict[str, Array]:
        """As ``sites``, with at most d rows each (min(n, d) x d) that have the scatters of n rows.

        Enough for whatever depends on scatters alone, and much faster for n > d: uniform rows are replaced by the triangular
        factor of their scatter; of normal ones that factor is drawn directly (Bartlett's decomposition).
        """
        root, d = self._root(), len(self.eigenvalues)
        if n <= d:
            return self.sites(count, n, rng)
        triangle = self._bartlett if self.distribution == "normal" else self._factor
        return {name: triangle(n, rng) @ root for name in site_names(count)}

    def _white(self, n: int, rng: np.random.Generator) -> Array:
        """n rows y (n x d)."""
        shape = n, len(self.eigenvalues)
        return rng.standard_normal(shape) if self.distribution == "normal" else np.sqrt(1.5) * rng.uniform(-1.0, 1.0, shape)

    def _root(self) -> Array:
        """What rows y are multiplied with (d x d): X^{1/2}, for normal ones without the first U, which changes nothing."""
        root = np.sqrt(self.eigenvalues)[:, None] * self.U.T
        return root if self.distribution == "normal" else self.U @ root

    def _factor(self, n: int, rng: np.random.Generator) -> Array:
        """The triangular T (d x d) with T^T T = Y^T Y for n rows Y."""
        Y = self._white(n, rng)
        T: Array = cholesky(Y.T @ Y, check_finite=False)
        return T

    def _bartlett(self, n: int, rng: np.random.Generator) -> Array:
        """The same for standard normal rows: normal entries above a diagonal of square roots of chi-squared ones."""
        d = len(self.eigenvalues)
        T = np.triu(rng.standard_normal((d, d)), 1)
        T[np.diag_indices(d)] = np.sqrt(rng.chisquare(n - np.arange(d)))
        return T

    def error(self, w: Array) -> float:
        """1 - (w^T v_1)^2 of a unit vector w (d x 1), as the square of a sine."""
        return largest_sine(w, self.U[:, :1]) ** 2


def population(
    features: int, *, second: float, decay: float, rng: np.random.Generator, distribution: Distribution = "normal"
) -> Population:
    """Eigenvalues 1, ``second``, and then each ``decay`` times the one before, in a random basis; the gap is 1 - ``second``.

    >>> population(4, second=0.8, decay=0.5, rng=np.random.default_rng(0)).eigenvalues.tolist()
    [1.0, 0.8, 0.4, 0.2]
    """
    U: Array = np.linalg.qr(rng.standard_normal((features, features)))[0]
    eigenvalues = np.concatenate([[1.0], second * decay ** np.arange(features - 1)])
    return Population(U, eigenvalues, distribution)

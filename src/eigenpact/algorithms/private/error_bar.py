"""How far noise of a known size turns components: an error bar from what was published, for no further cost.

C~ = C + E is known, with eigenvalues l_1 >= l_2 >= ...; E has independent entries of variance s^2 / 2 off the diagonal in any
basis.  To first order the span of the leading k eigenvectors turns by the matrix with entries E_ij / (l_j - l_i), j <= k < i,
whose norm is the sine of the largest angle.  For independent Gaussian entries its expectation is at most the Frobenius norm of
their deviations, and about the lengths of the largest column and row of these together; it exceeds its expectation by t times
the largest deviation with probability exp(-t^2 / 2) at most.  The bar takes t = 2.  Gaps are those of C~.  Nothing is known where
the last gap is no larger than what noise makes of none, or l_k no larger than the norm of noise alone, about s sqrt(2 d).

The bar tells of the noise.  What cutting long rows and a noisy mean change is not in it: it is to the components of the rows as
cut, about the centre as used.

References
    R. van Handel, "On the spectral norm of Gaussian random matrices", Trans. AMS 369 (2017).
"""

from __future__ import annotations

import numpy as np

from ...numerics.certificate import Cut
from ...numerics.linalg import Array

TAIL = 2.0
"""Deviations above its expectation that the norm of the noise is allowed."""

APART = 6.0
"""Deviations off the diagonal that two eigenvalues must differ by: noise drives two equal ones so far apart once in 90 draws."""


def noise_angle(values: Array, k: int, noise: float) -> tuple[float | None, Cut]:
    """The sine of the angle that noise turns the leading k eigenvectors by, seldom more; None where the gap is lost in it.

    ``values`` are all eigenvalues of the noisy matrix, descending, ``noise`` the standard deviation on its diagonal.

    >>> values = np.array([900.0, 800.0, 9.0, 1.0, -4.0])
    >>> angle, cut = noise_angle(values, 2, 5.0)
    >>> round(angle, 3), cut
    (0.019, 'clear')
    >>> noise_angle(values, 3, 5.0)
    (None, 'hidden')
    """
    if k >= len(values):
        return 0.0, "clear"
    s = noise / np.sqrt(2)
    gaps = values[:k, None] - values[None, k:]
    edge = 2 * np.sqrt(len(values)) + TAIL
    if values[k - 1] <= edge * s or gaps[-1, 0] <= APART * s:
        return None, "hidden"
    deviations = s / gaps
    rows, columns = (float(np.sqrt((deviations**2).sum(axis=axis)).max()) for axis in (0, 1))
    expected = min(rows + columns, float(np.linalg.norm(deviations)))
    return min(1.0, expected + TAIL * float(deviations.max())), "clear"

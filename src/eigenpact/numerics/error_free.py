"""Sums and products of doubles with what rounding leaves of them.

References
    T. J. Dekker, "A floating-point technique for extending the available precision", Numer. Math. 18 (1971).
"""

from __future__ import annotations

from .linalg import Array

SPLITTER = 134217729.0
"""2^27 + 1."""


def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """The rounded sum, and what rounding left of it.

    >>> two_sum(1.0, 2.0**-80) == (1.0, 2.0**-80)
    True
    """
    total = a + b
    other = total - a
    return total, (a - (total - other)) + (b - other)


def two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """The rounded product, and what rounding left of it.

    >>> two_product(1 + 2.0**-30, 1 + 2.0**-30)[1] == 2.0**-60
    True
    """
    product = a * b
    (a1, a2), (b1, b2) = _halves(a), _halves(b)
    return product, ((a1 * b1 - product) + a1 * b2 + a2 * b1) + a2 * b2


def _halves(a: Array) -> tuple[Array, Array]:
    """A double as the sum of two that have half the digits."""
    large = SPLITTER * a
    high = large - (large - a)
    return high, a - high

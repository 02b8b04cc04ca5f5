"""Replies in fixed point: multiples of a power of two that is a small share of the pooled trace.

An exact reply carries 53 binary digits of every number, of which the last ones are rounding: of single rows, in the order in
which they were added.  A coordinator that chooses blocks well can make such digits say something of a row.  A site that rounds
its replies to multiples of 2^-b of the pooled trace sends none of them, nor underflows, nor denormal numbers.  What that costs in
accuracy is known beforehand: an entry is off by at most one and a half multiples.

Rounded to the nearest multiple, a number just between two of them would still tell by which side it takes what its last digits
are, and a coordinator can bring it there.  So a site adds noise before it rounds: the difference of two numbers between 0 and 1,
made of bits that only the site has, from its secret and the question.  Rounding up or down by chance would not do, for it leaves
multiples as they are: near zero, the rate of replies that are not zero tells the size of what is there.  With the difference of
two numbers the error has mean 0 and the same variance everywhere (triangular dither).  Who asks again gets the same answer; who
asks a little differently must average over about (2^-b / 2^-53)^2 / 4 questions to see one rounding of a row with all the
variance.

References
    R. M. Gray, T. G. Stockham, "Dithered quantizers", IEEE Trans. Inf. Theory 39 (1993).
"""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np

ROUNDED = frozenset({"trace", "traces"})
"""Bounds of the arrays that are rounded: those that a share of the trace is small for."""

VARIANCE = 1 / 4
"""Mean square of the error of a number rounded with noise, in multiples: 1/12 of rounding and 1/6 of the noise."""


def quantum(trace: float, grain: float) -> float:
    """The power of two that replies are multiples of: ``grain``, itself one, of the next power of two above the trace.

    >>> quantum(3.0, 2.0**-10) == 4 * 2.0**-10, quantum(0.0, 2.0**-10)
    (True, 0.0)
    """
    mantissa, exponent = math.frexp(trace)
    return 0.0 if trace <= 0 else math.ldexp(grain, exponent - (mantissa == 0.5))


def rounded(array: np.ndarray[Any, Any], unit: float, secret: bytes = b"", question: bytes = b"") -> np.ndarray[Any, Any]:
    """Multiples of ``unit``, a power of two; the array as it is for 0, and whole numbers always.  Without a secret the nearest.

    >>> x = np.array([0.25, 1.0])
    >>> rounded(x, 1.0).tolist(), rounded(x, 0.0).tolist()
    ([0.0, 1.0], [0.25, 1.0])
    >>> for value in (0.0, 0.25):
    ...     many = rounded(np.full(10000, value), 1.0, b"secret", b"question")
    ...     bool(abs(many.mean() - value) < 0.02), bool(abs(many.var() - VARIANCE) < 0.02)
    (True, True)
    (True, True)
    """
    if unit == 0 or array.dtype.kind != "f":
        return array
    noise: Any = 0.0
    if secret:
        stream = hashlib.shake_256(len(secret).to_bytes(8, "little") + secret + question).digest(8 * array.size)
        one, other = np.frombuffer(stream, dtype="<u4").reshape(2, *array.shape) / 2.0**32
        noise = one - other
    return np.asarray(np.round(array / unit + noise) * unit + 0.0)  # of zeros no sign is left

"""Doubles as whole numbers that wrap, so that their sum is exact in any order and a mask can hide each of them.

Two forms.  *Fixed*: multiples of a power of two as 64-bit integers, where a bound of the sum is known.  *Wide*: integers of 768
bits in units of 2^-512, twelve limbs of 64 bits with carries, where none is known.  Every double between 2^-459 and 2^191 has its
place there without loss, so a sum of them, rounded once in the end, is what ``math.fsum`` gives, to the bit.  Limbs that were
added without carries would tell more than the sum.

Both are arithmetic modulo a power of two: numbers may wrap on the way, if only the sum does not.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..errors import InputError

Words = np.ndarray[Any, np.dtype[np.uint64]]
Array = np.ndarray[Any, Any]

BITS = 61
"""Of a fixed number below its bound; one more is left for bounds that rounding exceeds, one for the sign."""

LIMBS = 12
"""Words of a wide number, the least significant first."""

UNIT = -512
"""Wide numbers are multiples of 2^UNIT."""

LARGEST, LEAST = math.ldexp(1.0, 191), math.ldexp(1.0, UNIT + 53)
"""Beyond the first a sum of many could leave 768 bits; below the second, digits would be lost."""

ONE, WORD = np.uint64(1), np.uint64(64)


def exponent_for(bound: float) -> int:
    """The power of two that numbers whose sum stays below ``bound`` are multiplied by.

    >>> exponent_for(1.0), exponent_for(3.0)
    (61, 59)
    """
    mantissa, exponent = math.frexp(bound)
    return BITS - exponent + (mantissa == 0.5)


def to_fixed(array: Array, exponent: int) -> Words:
    """Doubles times 2^exponent, rounded to whole numbers, modulo 2^64; an InputError where one is twice what its bound allows.

    >>> to_fixed(np.array([1.0, -0.25]), 2).view(np.int64).tolist()
    [4, -1]
    """
    with np.errstate(over="ignore"):  # refused below
        scaled = np.asarray(_times_power(array, exponent))
    np.rint(scaled, out=scaled)
    if not max(scaled.max(initial=0.0), -scaled.min(initial=0.0)) <= 2.0 ** (BITS + 1):  # also where one is not a number
        raise InputError("a number is larger than the bound that was agreed on for the sum")
    return np.asarray(scaled.astype(np.int64)).view(np.uint64)


def from_fixed(words: Words, exponent: int) -> Array:
    """Doubles from the sum of fixed numbers.

    >>> float(from_fixed(to_fixed(np.array(0.75), 10) + to_fixed(np.array(-0.5), 10), 10))
    0.25
    """
    return np.asarray(_times_power(words.view(np.int64).astype(np.float64), -exponent))


def _times_power(array: Array, exponent: int) -> Array:
    """Times a power of two; by one product where that is one, which is several times faster."""
    if abs(exponent) > 1000:
        return np.asarray(np.ldexp(array, exponent))
    return np.asarray(array * math.ldexp(1.0, exponent))


def to_wide(array: Array) -> Words:
    """Doubles (any shape) as wide numbers (shape, 12), without loss; an InputError where one has no place there.

    >>> float(from_wide(add_wide(add_wide(to_wide(np.array(1e16)), to_wide(np.array(1.0))), to_wide(np.array(1.0)))))
    1.0000000000000002e+16
    """
    values = np.asarray(array, dtype=np.float64)
    sizes = np.abs(values)
    if not np.all(sizes <= LARGEST):
        raise InputError(f"a number is beyond {LARGEST:.0e}, or not finite: secured sums have no place for it; use other units")
    if np.any((sizes > 0) & (sizes < LEAST)):
        raise InputError(f"a number is below {LEAST:.0e}: secured sums would lose its digits; use other units")
    mantissa, exponent = np.frexp(sizes.reshape(-1))
    digits = np.ldexp(mantissa, 53).astype(np.uint64)
    places = np.where(digits > 0, exponent.astype(np.int64) - 53 - UNIT, 0).astype(np.uint64)
    limb, shift = (places // WORD).astype(np.intp), places % WORD
    words = np.zeros((digits.size, LIMBS), dtype=np.uint64)
    each = np.arange(digits.size)
    words[each, limb] = digits << shift
    words[each, limb + 1] = np.where(shift > 0, digits >> (WORD - np.maximum(shift, ONE)), np.uint64(0))
    negative = values.reshape(-1) < 0
    words[negative] = negated(words[negative])
    return words.reshape(*values.shape, LIMBS)


def from_wide(words: Words) -> Array:
    """Doubles nearest to wide numbers (shape, 12), halves to even."""
    flat = np.ascontiguousarray(words).astype("<u8", copy=False).reshape(-1, LIMBS)
    unit = 1 << -UNIT
    values = [int.from_bytes(row.tobytes(), "little", signed=True) / unit for row in flat]  # which Python rounds correctly
    return np.array(values, dtype=np.float64).reshape(words.shape[:-1])


def pair_from_wide(words: Words) -> Array:
    """Wide numbers (shape, 12) as pairs of doubles (shape, 2): the nearest, and the nearest to what that leaves.

    >>> pair_from_wide(add_wide(to_wide(np.array(1e16)), to_wide(np.array(1.0)))).tolist()
    [1e+16, 1.0]
    """
    nearest = from_wide(words)
    placed = (np.abs(nearest) <= LARGEST) & (np.abs(nearest) >= LEAST)
    left = from_wide(add_wide(words, negated(to_wide(np.where(placed, nearest, 0.0)))))
    return np.stack([nearest, np.where(placed, left, 0.0)], axis=-1)


def add_wide(a: Words, b: Words) -> Words:
    """The sum of wide numbers (shape, 12), with carries, modulo 2^768."""
    first, second = a.reshape(-1, LIMBS), b.reshape(-1, LIMBS)
    total = np.empty(first.shape, dtype=np.uint64)
    carry = np.zeros(len(first), dtype=np.uint64)
    for limb in range(LIMBS):
        part = first[:, limb] + second[:, limb]
        over = part < first[:, limb]
        total[:, limb] = part + carry
        carry = (over | (total[:, limb] < carry)).astype(np.uint64)
    return total.reshape(a.shape)


def negated(a: Words) -> Words:
    """Minus wide numbers (shape, 12), modulo 2^768."""
    one = np.zeros_like(a)
    one[..., 0] = 1
    return add_wide(~a, one)

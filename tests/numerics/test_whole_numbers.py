"""Doubles as whole numbers: sums in any order, compared with Python's integers and with ``math.fsum``."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eigenpact.errors import InputError
from eigenpact.numerics.whole_numbers import (
    BITS,
    LARGEST,
    LEAST,
    LIMBS,
    UNIT,
    add_wide,
    exponent_for,
    from_fixed,
    from_wide,
    negated,
    to_fixed,
    to_wide,
)

doubles = st.one_of(
    st.just(0.0),
    st.floats(LEAST, LARGEST),
    st.floats(-LARGEST, -LEAST),
    st.floats(-1e3, 1e3).filter(lambda x: x == 0 or abs(x) >= LEAST),
    st.builds(lambda m, e: math.ldexp(float(m), e), st.integers(-(2**53) + 1, 2**53 - 1), st.integers(-400, 130)),
)


def bits(values):
    return (np.asarray(values, dtype=np.float64) + 0.0).tobytes()  # one zero, whatever its sign


def whole(words):
    """Wide numbers as Python's integers, in units of 2^UNIT."""
    return [int.from_bytes(row.astype("<u8").tobytes(), "little", signed=True) for row in words.reshape(-1, LIMBS)]


def total(parts, add):
    result = parts[0]
    for part in parts[1:]:
        result = add(result, part)
    return result


@settings(max_examples=150, deadline=None)
@given(st.lists(doubles, min_size=1, max_size=64), st.randoms(use_true_random=False))
def test_wide_sums_equal_fsum_to_the_bit_in_any_order(values, rng):
    parts = [to_wide(np.array([v])) for v in values]
    rng.shuffle(parts)
    assert bits(from_wide(total(parts, add_wide))) == bits([math.fsum(values)])


@settings(max_examples=100, deadline=None)
@given(st.lists(doubles, min_size=1, max_size=12))
def test_a_wide_number_is_the_double_itself(values):
    words = to_wide(np.array(values))
    assert words.shape == (len(values), LIMBS)
    assert [Fraction(n, 2**-UNIT) for n in whole(words)] == [Fraction(v) for v in values]
    assert whole(negated(words)) == [-n for n in whole(words)]
    assert bits(from_wide(words)) == bits(values)


@pytest.mark.parametrize(
    "values",
    [
        [1e16, 1.0, 1.0],  # where floats lose a one
        [1e30, 1.0, -1e30],  # and here all
        [2.0**53, 1.0, 2.0**-400],  # just above half a unit: up
        [2.0**53, 1.0, -(2.0**-400)],  # just below: down
        [2.0**53, 1.0],  # half: to the even one
        [2.0**53 + 2, 1.0],
        [LARGEST] * 64,
        [-LARGEST] * 64,
        [LEAST, -LEAST, LEAST],
        [-0.0, -0.0],
    ],
)
def test_sums_that_floats_get_wrong(values):
    assert bits(from_wide(total([to_wide(np.array([v])) for v in values], add_wide))) == bits([math.fsum(values)])


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 2**768 - 1), min_size=2, max_size=6))
def test_carries_run_through_all_limbs(numbers):
    words = [np.frombuffer(n.to_bytes(96, "little"), dtype="<u8").reshape(1, LIMBS) for n in numbers]
    found = int.from_bytes(total(words, add_wide).tobytes(), "little")
    assert found == sum(numbers) % 2**768
    assert int.from_bytes(negated(words[0]).tobytes(), "little") == -numbers[0] % 2**768


@settings(max_examples=100, deadline=None)
@given(st.integers(2, 64), st.floats(1e-30, 1e30), st.integers(0, 2**32), st.randoms(use_true_random=False))
def test_fixed_sums_equal_the_integer_sum_to_the_bit_in_any_order(sites, bound, seed, rng):
    exponent = exponent_for(bound)
    values = np.random.default_rng(seed).uniform(-bound / sites, bound / sites, size=(sites, 5))
    expected = [sum(int(np.rint(np.ldexp(v, exponent))) for v in column) for column in values.T]
    parts = [to_fixed(row, exponent) for row in values]
    rng.shuffle(parts)
    found = total(parts, lambda a, b: a + b)
    assert found.view(np.int64).tolist() == expected
    assert bits(from_fixed(found, exponent)) == bits([math.ldexp(float(n), -exponent) for n in expected])


@given(st.floats(1e-290, 1e290))
def test_a_bound_has_its_place_and_no_bit_is_wasted(bound):
    scaled = Fraction(bound) * Fraction(2) ** exponent_for(bound)
    assert Fraction(2) ** (BITS - 1) < scaled <= 2**BITS


def test_fixed_numbers_may_wrap_on_the_way():
    """Numbers modulo 2^64: what a mask adds and another takes away may be anything."""
    rng, exponent = random.Random(0), exponent_for(8.0)
    mask = np.array([rng.getrandbits(64)], dtype=np.uint64)
    found = (to_fixed(np.array([7.5]), exponent) + mask) + (to_fixed(np.array([-7.25]), exponent) - mask)
    assert float(from_fixed(found, exponent)[0]) == 0.25


@pytest.mark.parametrize("value", [2.1, -2.1, np.inf, -np.inf, np.nan, 1e300])
def test_what_its_bound_does_not_allow_is_refused(value):
    with pytest.raises(InputError, match="larger than the bound that was agreed on"):
        to_fixed(np.array([0.0, value]), exponent_for(1.0))


@pytest.mark.parametrize("value", [np.nextafter(LARGEST, np.inf), -1e300, np.inf, np.nan])
def test_numbers_too_large_are_refused(value):
    with pytest.raises(InputError, match=r"is beyond 3e\+57, or not finite.*use other units"):
        to_wide(np.array([1.0, value]))


@pytest.mark.parametrize("value", [np.nextafter(LEAST, 0.0), -1e-150, 5e-324])
def test_numbers_too_small_are_refused(value):
    with pytest.raises(InputError, match="is below 7e-139: secured sums would lose its digits; use other units"):
        to_wide(np.array([1.0, value]))

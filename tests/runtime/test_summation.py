"""Plain sums: the order given, in 64 bits."""

from __future__ import annotations

import numpy as np
import pytest

from eigenpact.runtime.summation import plain_sum


def total(*replies):
    (result,) = plain_sum(iter([(np.asarray(r),) for r in replies]))
    return result


def test_replies_are_added_one_by_one_in_the_order_given():
    large, small = np.float64(1e16), np.float64(1.0)
    assert total(large, small, small) == 1e16  # (1e16 + 1) + 1 rounds both ones away
    assert total(small, small, large) == 1.0000000000000002e16


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("float64", "float64"),
        ("float32", "float64"),
        ("int64", "int64"),
        ("int32", "int64"),
        ("uint8", "int64"),
        ("bool", "int64"),
    ],
)
def test_sums_have_64_bits(dtype, expected):
    assert total(np.ones(2, dtype), np.ones(2, dtype)).dtype == expected
    assert total(np.ones(2, dtype), np.ones(2, dtype)).tolist() == [2, 2]


def test_small_numbers_do_not_overflow_or_lose_digits():
    assert total(*[np.uint8(255)] * 3) == 765
    assert total(*[np.float32(0.1)] * 3) == 3 * float(np.float32(0.1))


def test_a_later_site_may_send_fractions():
    assert total(np.array([1, 2]), np.array([0.5, 0.25])).tolist() == [1.5, 2.25]
    assert total(np.int64(1), np.float64(0.5), np.float64(0.25)) == 1.75
    assert total(np.array([0.5, 0.25]), np.array([1, 2])).tolist() == [1.5, 2.25]


def test_replies_are_not_changed():
    first = np.ones(3)
    total(first, np.ones(3))
    assert first.tolist() == [1, 1, 1]
    assert total(first) is not first


def test_several_arrays_are_added_each_for_itself_and_consumed_one_by_one():
    alive = []

    def replies():
        for i in range(3):
            alive.append(i)
            yield np.array(i), np.full(2, 10.0 * i)
            assert alive == list(range(i + 1))

    n, sums = plain_sum(replies())
    assert n == 3
    assert sums.tolist() == [30, 30]

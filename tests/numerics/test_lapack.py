"""LAPACK's functions by their addresses: the same as numpy's and scipy's, what they refuse, and several threads at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import scipy.linalg

from eigenpact.numerics.lapack import cholesky_in_place, largest_in_place

BOTH = [cholesky_in_place, partial(largest_in_place, k=1)]


@pytest.mark.parametrize("d", [0, 1, 2, 30, 300])
def test_the_factor_is_that_of_numpy(d: int) -> None:
    Y = np.random.default_rng(d).normal(size=(2 * d, d))
    S = Y.T @ Y
    lower = np.asfortranarray(np.tril(S))
    assert cholesky_in_place(lower)
    np.testing.assert_allclose(lower, np.linalg.cholesky(S), rtol=0, atol=1e-12 * max(1, d))


@pytest.mark.parametrize("at", [0, 7, 19])
def test_a_matrix_with_a_negative_eigenvalue_has_none(at: int) -> None:
    S = np.asfortranarray(np.eye(20))
    S[at, at] = -1e-9
    assert not cholesky_in_place(S)


@pytest.mark.parametrize("function", BOTH)
@pytest.mark.parametrize(
    "wrong",
    [np.ones((2, 3), order="F"), np.eye(3), np.eye(2, dtype=np.float32, order="F"), np.asfortranarray(np.eye(4))[:2, :2]],
    ids=["not square", "in the order of rows", "single precision", "a part"],
)
def test_memory_of_another_form_is_refused(wrong: np.ndarray, function: Callable[..., object]) -> None:
    if wrong.shape == (3, 3):
        wrong = np.ascontiguousarray(np.arange(9.0).reshape(3, 3))
    with pytest.raises(ValueError, match="in Fortran order is needed"):
        function(wrong)


@pytest.mark.parametrize("function", BOTH)
def test_memory_that_must_not_be_changed_is_refused(function: Callable[..., object]) -> None:
    S = np.eye(3, order="F")
    S.flags.writeable = False
    with pytest.raises(ValueError, match="in Fortran order is needed"):
        function(S)


def test_threads_side_by_side_have_their_own_factors() -> None:
    Y = np.random.default_rng(0).normal(size=(400, 200))
    matrices = [np.asfortranarray((i + 1) * Y.T @ Y) for i in range(8)]
    wanted = [np.tril(np.linalg.cholesky(S)) for S in matrices]
    threads = [threading.Thread(target=cholesky_in_place, args=(S,)) for S in matrices]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for S, factor in zip(matrices, wanted, strict=True):
        np.testing.assert_allclose(np.tril(S), factor, rtol=0, atol=1e-11)


@pytest.mark.parametrize(("d", "k"), [(1, 1), (2, 1), (2, 2), (30, 4), (30, 30), (300, 11)])
def test_the_largest_eigenpairs_are_those_of_all(d: int, k: int) -> None:
    rng = np.random.default_rng(d)
    turn, values = np.linalg.qr(rng.normal(size=(d, d)))[0], np.sort(rng.normal(size=d))
    S = (turn * values) @ turn.T
    found = largest_in_place(np.asfortranarray(np.tril(S)), k)
    assert found is not None
    np.testing.assert_allclose(found[0], values[d - k :], rtol=0, atol=1e-13)
    np.testing.assert_allclose(np.abs(turn[:, d - k :].T @ found[1]), np.eye(k), rtol=0, atol=1e-8)
    np.testing.assert_allclose(S @ found[1], found[1] * found[0], rtol=0, atol=1e-12)


def test_the_largest_eigenpairs_have_the_bits_of_scipy() -> None:
    """Which journals of earlier releases were written with."""
    S = np.random.default_rng(0).normal(size=(200, 200))
    S = np.asfortranarray(S + S.T)
    values, vectors = scipy.linalg.eigh(S, subset_by_index=[195, 199])
    found = largest_in_place(S, 5)
    assert found is not None
    np.testing.assert_array_equal(found[0], values)
    np.testing.assert_array_equal(found[1], vectors)


@pytest.mark.parametrize("k", [-1, 0, 4])
def test_as_many_eigenpairs_as_there_are_not_are_refused(k: int) -> None:
    with pytest.raises(ValueError, match=f"from 1 to 3 eigenvalues can be asked for, not {k}"):
        largest_in_place(np.eye(3, order="F"), k)


def test_of_numbers_that_are_none_no_eigenpairs_are_told() -> None:
    found = largest_in_place(np.full((40, 40), np.nan, order="F"), 3)
    assert found is None or np.isnan(found[0]).all()

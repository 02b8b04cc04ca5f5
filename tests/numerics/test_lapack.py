"""LAPACK's factor by its address: that of numpy, what it refuses, and that other threads go on meanwhile."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from eigenpact.numerics.lapack import cholesky_in_place


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


@pytest.mark.parametrize(
    "wrong",
    [np.ones((2, 3), order="F"), np.eye(3), np.eye(2, dtype=np.float32, order="F"), np.asfortranarray(np.eye(4))[:2, :2]],
    ids=["not square", "in the order of rows", "single precision", "a part"],
)
def test_memory_of_another_form_is_refused(wrong: np.ndarray) -> None:
    if wrong.shape == (3, 3):
        wrong = np.ascontiguousarray(np.arange(9.0).reshape(3, 3))
    with pytest.raises(ValueError, match="in Fortran order is needed"):
        cholesky_in_place(wrong)


def test_memory_that_must_not_be_changed_is_refused() -> None:
    S = np.eye(3, order="F")
    S.flags.writeable = False
    with pytest.raises(ValueError, match="in Fortran order is needed"):
        cholesky_in_place(S)


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

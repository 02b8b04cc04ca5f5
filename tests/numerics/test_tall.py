"""Bases and factors that are made in parts: as good as LAPACK's, and with the same bits by any number of threads."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from eigenpact.numerics import tall
from eigenpact.numerics.blas import limited_blas
from eigenpact.numerics.parts import at_once, side_by_side, threads_for_rows
from eigenpact.numerics.tall import PANEL, PART, factored, has_factor, straightened


@pytest.mark.parametrize("apart", [1.0, 1e-3, 1e-13, 0.0])
@pytest.mark.parametrize(("d", "b"), [(5 * PART + 7, 130), (2 * PART + 1, 128), (40, 40), (3 * PART, 0)])
def test_a_basis_in_parts_is_orthonormal_and_spans_what_it_should(d: int, b: int, apart: float) -> None:
    """Even of columns that nearly depend on each other, where squares of them would have no digits left."""
    A = np.random.default_rng(0).normal(size=(d, b))
    if b > 2:
        A[:, 1] = A[:, 0] + apart * A[:, 1]
    with limited_blas(1):  # as in a run: else BLAS takes threads of its own
        N, R = factored(A)
    np.testing.assert_allclose(N.T @ N, np.eye(b), atol=1e-14)
    np.testing.assert_allclose(N @ R, A, atol=1e-12)
    np.testing.assert_array_equal(R, np.triu(R))
    with limited_blas(1), threads_for_rows(3):
        again = factored(A)
    assert all(np.array_equal(one, other) for one, other in zip((N, R), again, strict=True))


def test_nearly_orthonormal_columns_are_made_so() -> None:
    U = np.linalg.qr(np.random.default_rng(1).normal(size=(900, 30)))[0] + 1e-6
    Q = straightened(U)
    np.testing.assert_allclose(Q.T @ Q, np.eye(30), atol=4e-15)
    np.testing.assert_allclose(Q @ (Q.T @ U), U, atol=1e-14)


@pytest.mark.parametrize("alone", [0, 10**6])
@pytest.mark.parametrize("where", [3, PANEL + 5, 2 * PANEL + 40])
def test_a_negative_eigenvalue_is_seen_in_whichever_panel_it_shows(
    where: int, alone: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tall, "ALONE", alone)
    d = 2 * PANEL + 60
    A = np.random.default_rng(2).normal(size=(d, d))
    C = A @ A.T + np.eye(d)
    assert has_factor(np.asfortranarray(np.tril(C)))
    inverse = np.linalg.inv(C[: where + 1, : where + 1])
    C[where, where] -= 1.001 / inverse[where, where]  # by which the last pivot of this corner is just below zero
    assert not has_factor(np.asfortranarray(np.tril(C)))
    with threads_for_rows(3):
        assert not has_factor(np.tril(C))


def test_threads_are_started_once_and_end_with_their_context() -> None:
    def mine() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name.startswith("eigenpact-rows")]

    before = len(mine())
    with threads_for_rows(2):
        seen = {frozenset(side_by_side(lambda _: threading.get_ident(), range(20))) for _ in range(5)}
        assert len(frozenset().union(*seen)) <= 2
        with threads_for_rows(3):
            assert list(side_by_side(lambda part: part + 1, range(4))) == [1, 2, 3, 4]
        for _ in side_by_side(lambda part: part, range(50)):
            break  # nobody asks for more
        assert list(side_by_side(lambda part: part, range(3))) == [0, 1, 2]
    assert len(mine()) == before


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("wrong", ["one", "other"])
def test_what_is_made_at_once_ends_before_an_error_is_told(threads: int, wrong: str) -> None:
    """No thread is left at work on rows that nobody holds any more, and the error is that of the function."""
    ended: list[str] = []

    def made(name: str) -> str:
        if name == wrong:
            raise ZeroDivisionError(name)
        ended.append(name)
        return name

    with threads_for_rows(threads), pytest.raises(ZeroDivisionError, match=wrong):
        at_once(lambda: made("one"), lambda: made("other"))
    assert len(ended) == (0 if (threads, wrong) == (1, "one") else 1)

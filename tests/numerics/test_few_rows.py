"""Directions from the inner products of rows: those of the singular value decomposition, with the same bits on any threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse

from eigenpact.numerics.few_rows import leading_of_few_rows
from eigenpact.numerics.metrics import largest_sine
from eigenpact.numerics.parts import threads_for_rows
from eigenpact.numerics.rows import Rows
from eigenpact.numerics.weighted import Weighted

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 200)) * np.linspace(3, 1, 30)[:, None] + RNG.normal(size=200)
W = RNG.integers(1, 4, size=30).astype(float)


def svd(Y: Any, k: int) -> Any:
    return np.linalg.svd(Y, full_matrices=False)[2][:k].T


@pytest.mark.parametrize("kind", ["dense", "single", "sparse", "weighted"])
def test_the_leading_directions(kind: str) -> None:
    mean = X.mean(axis=0)
    given = {"single": X.astype(np.float32), "sparse": scipy.sparse.csr_array(X), "weighted": Weighted(X, W)}.get(kind, X)
    Y = (X.astype(np.float32) if kind == "single" else X) - mean
    Y = np.sqrt(W)[:, None] * Y if kind == "weighted" else Y
    V = leading_of_few_rows(Rows(given, mean), 4)
    np.testing.assert_allclose(V.T @ V, np.eye(4), atol=1e-13)
    assert largest_sine(V, svd(Y, 4)) < 1e-11


def test_threads_change_no_bit() -> None:
    alone = leading_of_few_rows(Rows(X, X.mean(axis=0)), 4)
    with threads_for_rows(3):
        assert leading_of_few_rows(Rows(X, X.mean(axis=0)), 4).tobytes() == alone.tobytes()

"""Sums of columns and of squares with twice the digits, compared with rational numbers."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import eigenpact as ep
from eigenpact.numerics.pairs import added_up, column_pairs, deviations
from eigenpact.numerics.whole_numbers import add_wide, pair_from_wide, to_wide

RNG = np.random.default_rng(0)
TABLES = {
    "ordinary": RNG.normal(size=(301, 4)) * 10.0 ** np.arange(-3, 1) + 7,
    "far from zero": 1e8 + RNG.normal(size=(120, 3)),
    "of all sizes": RNG.normal(size=(60, 3)) * 10.0 ** RNG.integers(-30, 30, size=(60, 3)),
    "whole numbers": RNG.integers(0, 3, size=(99, 5)).astype(float),
    "constant": np.full((120, 2), 0.3),
    "single precision": RNG.normal(size=(50, 2)).astype(np.float32),
    "one row": RNG.normal(size=(1, 3)),
    "no row": np.zeros((0, 2)),
}


def exact(pair: Any) -> Fraction:
    return Fraction(float(pair[0])) + Fraction(float(pair[1]))


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
def test_pairs_of_sums_and_squares(name: str, form: Any) -> None:
    X = TABLES[name]
    sums, squares = column_pairs(form(X))
    for j in range(X.shape[1]):
        column = [Fraction(float(x)) for x in X[:, j]]
        size = max(map(abs, column), default=Fraction(0))
        assert abs(exact(sums[j]) - sum(column)) <= size * Fraction(2) ** -90
        assert abs(exact(squares[j]) - sum(x * x for x in column)) <= size**2 * Fraction(2) ** -95
        if name == "whole numbers":
            assert exact(sums[j]) == sum(column)
            assert exact(squares[j]) == sum(x * x for x in column)
        if len(X):
            mean = float(sum(column) / len(X))
            about = sum((x - Fraction(mean)) ** 2 for x in column)
            found = float(deviations(len(X), np.array([mean]), sums[j : j + 1], squares[j : j + 1])[0])
            assert found == pytest.approx(float(about), rel=1e-12, abs=1e-28 * float(size) ** 2)


def test_all_squares_together() -> None:
    X = TABLES["far from zero"]
    sums, squares = column_pairs(X)
    mean = X.mean(axis=0)
    one_by_one = deviations(len(X), mean, sums, squares)
    assert deviations(len(X), mean, sums, added_up(squares)) == pytest.approx(one_by_one.sum(), rel=1e-13)
    np.testing.assert_allclose(one_by_one, ((X - mean) ** 2).sum(axis=0), rtol=1e-6)  # whose own rounding is that large


def test_what_overflows_is_not_finite() -> None:
    assert not np.isfinite(column_pairs(np.array([[1e200], [1.0]]))[1]).all()


def test_pairs_through_wide_numbers() -> None:
    pairs = np.array([[1e16, 0.3], [-2.0, 1e-20], [0.0, 0.0]])
    words = add_wide(to_wide(pairs[:, 0]), to_wide(pairs[:, 1]))
    doubled = pair_from_wide(add_wide(words, words))
    assert [exact(pair) for pair in doubled] == [2 * exact(pair) for pair in pairs]


@pytest.mark.parametrize("center", ["pooled", False])
@pytest.mark.parametrize("scale", [None, "pooled"])
def test_secured_answers_of_features_far_from_zero(center: Any, scale: Any) -> None:
    pytest.importorskip("cryptography", reason="secured sums need eigenpact[secure]")
    far = np.array([0, 1e6, 300, 0, 5])
    sites = {name: RNG.normal(size=(50 + i, 5)) * [5, 4, 3, 2, 1] + far + i for i, name in enumerate("ABC")}
    settings = {"solver": "gram", "center": center, "scale": scale, "random_state": 0}
    plain, secured = (ep.FederatedPCA(2, secure=secure, **settings).fit(sites) for secure in (False, True))
    np.testing.assert_allclose(secured.scale_, plain.scale_, rtol=1e-12)
    np.testing.assert_allclose(secured.explained_variance_ratio_, plain.explained_variance_ratio_, rtol=1e-8, atol=1e-15)
    assert secured.between_site_share_ == pytest.approx(plain.between_site_share_, abs=2.0**-8)
    together = np.vstack(list(sites.values()))
    if scale:
        np.testing.assert_allclose(secured.scale_, together.std(axis=0), rtol=1e-10)

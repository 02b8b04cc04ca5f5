"""Whole numbers of one or two bytes, such as genotypes and pixels, stay as they are: no copy, and answers of floats."""

from __future__ import annotations

import tracemalloc
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import eigenpact as ep
from eigenpact.runtime.fingerprint import digest_of
from tests.checks.test_every_solver import SOLVERS

KINDS = {"u1": (0, 255), "i1": (-128, 127), "u2": (0, 65535), "i2": (-32768, 32767)}


def rows_of(kind: str, shape: tuple[int, int] = (90, 12)) -> np.ndarray[Any, Any]:
    """Numbers of a kind, its smallest and largest among them, with directions that stand out."""
    rng, (low, high) = np.random.default_rng(0), KINDS[kind]
    values = rng.normal(size=(shape[0], 4)) @ (rng.normal(size=(4, shape[1])) * np.array([[8.0], [5.0], [3.0], [1.0]]))
    X = np.clip(np.rint((high - low) * (0.5 + values / 60 + rng.normal(size=shape) / 60) + low), low, high).astype(kind)
    X[0, 0], X[1, 1] = low, high
    return X


def parts(X: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Three sites."""
    return {"A": X[:20], "B": X[20:55], "C": X[55:]}


def same(first: Any, second: Any) -> None:
    """Components, means and variances, to the last digits: BLAS may take rows that it must not convert all at once."""
    np.testing.assert_allclose(first.mean_, second.mean_, rtol=1e-15)
    np.testing.assert_allclose(first.components_, second.components_, atol=1e-9)
    np.testing.assert_allclose(first.explained_variance_, second.explained_variance_, rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("label", SOLVERS)
def test_every_solver_answers_as_for_floats(label: str, kind: str) -> None:
    """Nothing is subtracted or added up in bytes, where it would wrap around."""
    X = rows_of(kind)
    options: dict[str, Any] = {"solver": SOLVERS[label], "random_state": 0, "max_rounds": 300}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ep.errors.NotConvergedWarning)
        found, expected = (ep.FederatedPCA(2, **options).fit(parts(rows)) for rows in (X, X.astype(np.float64)))
    same(found, expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", [{"scale": "pooled"}, {"center": False}, {"secure": True}, {"solver": "gram"}])
def test_options_answer_as_for_floats(kind: str, options: dict[str, Any]) -> None:
    """With a label per row, with weights, and however rows lie in memory."""
    X, labels = rows_of(kind), np.arange(90) % 3
    for rows in (X, X[::-1], np.asfortranarray(X)):
        for weights in (None, np.linspace(0.5, 2, 90)):
            pcas = [ep.FederatedPCA(3, random_state=0, **options) for _ in range(2)]
            same(*(pca.fit(Y, sites=labels, sample_weight=weights) for pca, Y in zip(pcas, (rows, rows * 1.0), strict=True)))


def test_rows_wider_than_many_answer_as_for_floats() -> None:
    """One site, whose inner products are factorized."""
    X = rows_of("u1", (60, 400))
    found, expected = (ep.FederatedPCA(3, random_state=0).fit(rows) for rows in (X, X.astype(np.float64)))
    assert found.solver_ == expected.solver_ == "row-gram"
    same(found, expected)


def test_other_families_answer_as_for_floats() -> None:
    """Those that compute with entries themselves get floats."""
    X = rows_of("u1")
    for pca in (
        ep.PersonalizedPCA(1, 1, random_state=0, max_rounds=5),
        ep.FederatedPCA(2, missing="mean", random_state=0),
        ep.RobustPCA(2, random_state=0, max_rounds=5),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found, expected = (pca.fit(parts(rows)).components_.copy() for rows in (X, X.astype(np.float64)))
        np.testing.assert_allclose(found, expected, atol=1e-9)


def test_no_copy_in_floats_is_made() -> None:
    """Beside the rows there are blocks of a few megabytes."""
    X = np.random.default_rng(0).integers(0, 3, size=(40000, 300), dtype=np.uint8)
    fit = ep.FederatedPCA(2, solver="gram", random_state=0).fit
    fit(X[:100])
    tracemalloc.start()
    fit(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * X.nbytes, peak


def test_a_journal_of_floats_goes_on_over_bytes(tmp_path: Path) -> None:
    """The digest of a site's rows does not tell how whole numbers are stored; it tells other numbers."""
    X, key = rows_of("u1"), bytes(32)
    assert digest_of(X, key) == digest_of(X.astype(np.float64), key) != digest_of(X ^ 1, key)
    journal = tmp_path / "run.journal"
    first = ep.FederatedPCA(2, solver="krylov", random_state=0, journal=journal).fit(parts(X.astype(np.float64)))
    second = ep.FederatedPCA(2, solver="krylov", random_state=0, journal=journal).fit(parts(X))
    assert second.components_.tobytes() == first.components_.tobytes()

"""``suggest_components``: the number that the rows were made with, whatever the sites, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import eigenpact as ep
from eigenpact.errors import InputError


def rows(k: int, seed: int, share: float = 0.0) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(160, k)) @ rng.normal(size=(k, 14)) * 2 + rng.normal(size=(160, 14))
    X[rng.random(X.shape) < share] = np.nan
    return X


@pytest.mark.parametrize("method", ["held-out", "parallel", "elbow"])
@pytest.mark.parametrize(("k", "share"), [(2, 0.0), (3, 0.1)])
def test_the_number_that_rows_were_made_with(method: Any, k: int, share: float) -> None:
    X = rows(k, seed=k, share=share)
    labels = np.repeat(["a", "b", "c"], [80, 50, 30])
    found = ep.suggest_components(X, sites=labels, max_components=6, method=method, random_state=0)
    assert found.n_components == k
    assert [row["components"] for row in found.table] == list(range(0 if method == "held-out" else 1, 7))
    assert f"suggested by {method}: {k}" in str(found)
    assert found.picture().axes[0].get_title() == method


def test_held_out_errors_are_those_of_the_hidden_entries() -> None:
    """Without components that of the means; and of the true number about the noise's variance, 1, and no less."""
    found = ep.suggest_components(rows(2, 0), max_components=4, random_state=1)
    errors = [row["error"] for row in found.table]
    assert errors[0] == pytest.approx(np.var(rows(2, 0), axis=0).mean(), rel=0.3)
    assert 1.0 < errors[2] < 1.5
    assert min(errors) == min(errors[2:])
    assert found.table[int(np.argmin(errors))]["above_least"] == 0


def test_noise_alone_has_no_components() -> None:
    X = np.random.default_rng(0).normal(size=(300, 10))
    assert ep.suggest_components(X, max_components=3, random_state=0).n_components == 0
    assert (
        ep.suggest_components({"a": X[:100], "b": X[100:] + 5}, max_components=3, method="parallel", random_state=0).n_components
        == 0
    )


def test_what_cannot_be_suggested_is_refused() -> None:
    X = rows(2, 0)
    for options, told in (
        ({"method": "scree"}, "method='scree' must be 'held-out', 'parallel' or 'elbow'"),
        ({"max_components": 0}, "max_components=0 must be a whole number >= 1"),
        ({"max_components": 1, "method": "elbow"}, "max_components=1 must be a whole number >= 2"),
        ({"max_components": 14}, "max_components=14 is more than 13"),
        ({"share": 1.0}, "share=1.0 must be a share"),
        ({"share": 0.99999}, "hiding a share of 0.99999 .* leaves none of feature 0 and 13 more .* hide a smaller share"),
        ({"share": 1e-9}, "a share of 1e-09 hides 0 entries of all sites, too few to compare by; hide more, or give more rows"),
        ({"center": "site"}, "center='site' does not go with missing='em'"),
    ):
        with pytest.raises(InputError, match=told):
            ep.suggest_components(X, random_state=0, **options)  # type: ignore[arg-type]


def test_rows_of_another_library_are_taken() -> None:
    xp = pytest.importorskip("array_api_strict")
    X = rows(2, 0)
    X[3, 1] = np.nan
    truth = ep.suggest_components({"a": X[:90], "b": X[90:]}, max_components=3, random_state=0)
    found = ep.suggest_components({"a": xp.asarray(X[:90]), "b": xp.asarray(X[90:])}, max_components=3, random_state=0)
    assert found.table == truth.table
    labels = np.where(np.arange(len(X)) < 90, "a", "b")
    assert ep.suggest_components(xp.asarray(X), sites=labels, max_components=3, random_state=0).table == truth.table


@pytest.mark.parametrize("method", ["held-out", "parallel", "elbow"])
def test_rows_are_prepared_first(method: Any) -> None:
    """As if they were given as they are after preparation, of which constant features are no part."""
    rng = np.random.default_rng(2)
    counts = rng.poisson(np.exp(rng.normal(size=(90, 2)) @ rng.normal(size=(2, 9)) * 0.8 + 2)).astype(float)
    counts[:, 4] = 0
    logs = np.log1p(counts / counts.sum(axis=1, keepdims=True) * 1e4)[:, [j for j in range(9) if j != 4]]
    chosen: dict[str, Any] = {"max_components": 5, "method": method, "random_state": 0}
    labels = np.repeat(["a", "b"], [50, 40])
    found = ep.suggest_components(counts, sites=labels, prepare=[ep.prepare.LogNormalize(1e4)], **chosen)
    expected = ep.suggest_components(logs, sites=labels, **chosen)
    assert found.n_components == expected.n_components
    for row, same in zip(found.table, expected.table, strict=True):
        assert row == pytest.approx(same, rel=1e-6, abs=1e-9)

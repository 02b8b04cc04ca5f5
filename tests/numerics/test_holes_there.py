"""Rows with holes on a device that numpy cannot read: their model is fitted there, and is that for numpy's rows."""

from __future__ import annotations

import numpy as np
import pytest
from tests.checks.staying import forbid_copies, there

import eigenpact as ep
from eigenpact.algorithms.missing import observed
from eigenpact.numerics.ppca import expected_scatter_action, likelihood

D = 10
MOST = 300
"""Entries that may be copied at a time: a site has 700."""


def made(kind="float64", rare=False):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(210, 2)) @ rng.normal(size=(2, D)) * 3 + rng.normal(size=(210, D)) + np.arange(D)
    if rare:
        X[:, 4] = 0.0
        X[7, 4] = 1.0
    X[rng.random(X.shape) < 0.15] = np.nan
    X[5], X[80:90, 0] = np.nan, np.nan
    return {f"site{i}": X[70 * i : 70 * (i + 1)].astype(kind) for i in range(3)}


@pytest.mark.parametrize(
    ("options", "kind"),
    [({}, "float64"), ({"scale": "pooled", "center": False}, "float64"), ({"min_nonzero": 5}, "float64"), ({}, "float32")],
)
def test_rows_stay_and_the_answer_is_that_for_numpy(options, kind, monkeypatch):
    monkeypatch.setattr(observed, "DEVICE_BLOCK_BYTES", 8 * D * 30)
    sites = made(kind, "min_nonzero" in options)
    elsewhere = {name: there(X) for name, X in sites.items()}
    here = ep.FederatedPCA(2, missing="em", random_state=0, **options).fit(sites)
    with monkeypatch.context() as patched:
        sizes = forbid_copies(patched, MOST)
        found = ep.FederatedPCA(2, missing="em", random_state=0, **options).fit(elsewhere)
        assert sizes
    assert found.n_rounds_ == here.n_rounds_
    tolerance = 1e-10 if kind == "float64" else 1e-6  # as components have the precision of the rows
    for name in ("components_", "explained_variance_", "mean_"):
        one = getattr(here, name)
        np.testing.assert_allclose(getattr(found, name), one, rtol=0, atol=tolerance * np.abs(one).max(), err_msg=name)
    one = here.transform(sites["site1"])
    np.testing.assert_allclose(found.transform(elsewhere["site1"]), one, rtol=0, atol=10 * tolerance * np.abs(one).max())


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_the_steps_are_those_of_numpy(share):
    rng = np.random.default_rng(1)
    Y, seen = rng.normal(size=(40, D)), rng.random((40, D)) >= share
    Y = np.where(seen, Y, np.nan)
    W, B = rng.normal(size=(D, 3)), rng.normal(size=(D, 4))
    one, other = likelihood(Y, seen, W, 0.4), likelihood(there(Y), there(seen), W, 0.4)
    for name in ("W", "mean", "value", "squares"):
        np.testing.assert_allclose(getattr(other, name), getattr(one, name), rtol=1e-12, atol=1e-12, err_msg=name)
    given = W, 0.4, B
    np.testing.assert_allclose(
        expected_scatter_action(there(Y), there(seen), *given), expected_scatter_action(Y, seen, *given), rtol=0, atol=1e-11
    )

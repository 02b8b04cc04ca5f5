"""Rows on a device that numpy cannot read are filled and scaled there, and the answer is that for numpy's."""

from __future__ import annotations

import numpy as np
import pytest
from tests.checks.staying import forbid_copies, there

import eigenpact as ep
from eigenpact.numerics import blocks as few
from eigenpact.numerics import preparation
from eigenpact.numerics.elsewhere import to_numpy
from eigenpact.numerics.pairs import column_pairs
from eigenpact.numerics.preparation import Step

D = 8
MOST = 300
"""Entries that may be copied at a time: a site has 480."""


@pytest.fixture(autouse=True)
def several_blocks(monkeypatch):
    for module in (few, preparation):
        monkeypatch.setattr(module, "DEVICE_BLOCK_BYTES", 8 * D * 25)


def made(holes=0.0, kind="float64"):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(180, 3)) @ rng.normal(size=(3, D)) + 0.1 * rng.normal(size=(180, D))
    X = X * np.geomspace(1, 1e3, D) + np.linspace(-5, 1e4, D)
    X[rng.random(X.shape) < holes] = np.nan
    return {f"site{i}": X[60 * i : 60 * (i + 1)].astype(kind) for i in range(3)}


FITS = {
    "standard": (0.0, {"prepare": [ep.prepare.Scale()]}),
    "cut": (0.0, {"prepare": [ep.prepare.Scale(max_value=1.5, center=False)]}),
    "robust": (0.0, {"prepare": [ep.prepare.Scale("robust")]}),
    "mean": (0.1, {"missing": "mean"}),
    "both": (0.1, {"missing": "mean", "prepare": [ep.prepare.Scale()], "solver": "krylov"}),
    "secured": (0.1, {"missing": "mean", "prepare": [ep.prepare.Scale()], "secure": True}),
    "rare": (0.1, {"missing": "mean", "min_nonzero": 3}),
}


@pytest.mark.parametrize("kind", ["float64", "float32"])
@pytest.mark.parametrize("case", FITS)
def test_rows_stay_and_the_answer_is_that_for_numpy(case, kind, monkeypatch):
    holes, options = FITS[case]
    sites = made(holes, kind)
    here = ep.FederatedPCA(2, random_state=0, **options).fit(sites)
    elsewhere = {name: there(X) for name, X in sites.items()}
    with monkeypatch.context() as patched:
        sizes = forbid_copies(patched, MOST)
        found = ep.FederatedPCA(2, random_state=0, **options).fit(elsewhere)
        assert sizes
    tolerance = 1e-10 if kind == "float64" else 1e-6  # as components have the precision of the rows
    for name in ("components_", "explained_variance_", "mean_"):
        one = getattr(here, name)
        np.testing.assert_allclose(getattr(found, name), one, rtol=0, atol=tolerance * np.abs(one).max(), err_msg=name)
    for step, other in zip(here.preparation_, found.preparation_, strict=True):
        for name, array in step.arrays.items():
            np.testing.assert_allclose(other.arrays[name], array, rtol=1e-12, err_msg=name)
    one = here.transform(sites["site0"])
    np.testing.assert_allclose(found.transform(elsewhere["site0"]), one, rtol=0, atol=10 * tolerance * np.abs(one).max())


@pytest.mark.parametrize("prepare", [ep.prepare.Scale("iqr"), ep.prepare.Residualize([0])])
def test_other_preparers_get_copies(prepare):
    sites = made()
    here, found = (
        ep.FederatedPCA(2, prepare=[prepare], random_state=0).fit(rows)
        for rows in (sites, {name: there(X) for name, X in sites.items()})
    )
    np.testing.assert_allclose(found.components_, here.components_, rtol=0, atol=1e-10)


def test_what_cannot_be_done_there_is_refused():
    step = Step("columns", {"kept": np.array([True] * D)})
    with pytest.raises(ep.errors.InputTypeError, match="cannot be prepared by 'columns' where they lie"):
        step.apply(there(made()["site0"]))


@pytest.mark.parametrize("kind", ["float64", "float32"])
@pytest.mark.parametrize(
    "step",
    [
        Step("fill", {"values": np.arange(8.0)}),
        Step("scale", {"centre": np.arange(8.0), "scale": np.arange(1.0, 9.0), "limit": np.float64(2), "zeros": np.bool_(True)}),
        Step("scale", {"centre": np.arange(8.0), "scale": np.arange(1.0, 9.0), "limit": np.float64(0), "zeros": np.bool_(False)}),
    ],
    ids=str,
)
def test_steps_give_the_bits_of_numpy(step, kind):
    X = made(0.1, kind)["site0"]
    found = to_numpy(step.apply(there(X)))
    assert found.dtype == step.apply(X).dtype
    np.testing.assert_array_equal(found, step.apply(X))


def test_sums_of_pairs_are_exact_there():
    X = np.random.default_rng(4).normal(size=(70, D)) * np.geomspace(1e-8, 1e8, D)
    X = np.concatenate([X, -X, np.full((1, D), 1e-3)])
    for one, other in zip(column_pairs(X), column_pairs(there(X)), strict=True):
        np.testing.assert_array_equal(other, one)
    X[3, 2] = np.nan
    for one, other in zip(column_pairs(X, holes=True), column_pairs(there(X), holes=True), strict=True):
        np.testing.assert_array_equal(other, one)

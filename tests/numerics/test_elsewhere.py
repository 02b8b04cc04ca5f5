"""Rows of another array library, on a device that numpy cannot read: every family fits them, with the answer for numpy's."""

from __future__ import annotations

import array_api_strict as strict
import numpy as np
import pytest

import eigenpact as ep
from eigenpact.errors import InputError

DEVICE = strict.Device("device1")


def there(X):
    return strict.asarray(X, device=DEVICE)


def made(seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(160, 4)) @ rng.normal(size=(4, 9)) * 3 + rng.normal(size=(160, 9)) + 2
    return {f"site{i}": rows[i * 40 : (i + 1) * 40] for i in range(4)}


HERE = made()
FITS = {
    "gram": lambda: ep.FederatedPCA(3, solver="gram", random_state=0),
    "krylov": lambda: ep.FederatedPCA(3, solver="krylov", random_state=0),
    "scaled": lambda: ep.FederatedPCA(3, scale="pooled", random_state=0),
    "secured": lambda: ep.FederatedPCA(3, secure=True, random_state=0),
    "prepared": lambda: ep.FederatedPCA(3, prepare=(ep.prepare.Scale(),), random_state=0),
    "holes": lambda: ep.FederatedPCA(3, missing="em", random_state=0),
    "personalized": lambda: ep.PersonalizedPCA(2, 1, random_state=0),
    "robust": lambda: ep.RobustPCA(3, random_state=0),
    "graph": lambda: ep.GraphPCA(2, random_state=0),
}


def test_numpy_cannot_read_them():
    with pytest.raises(RuntimeError, match="device1"):
        np.asarray(there(HERE["site0"]))


@pytest.mark.parametrize("family", FITS)
def test_the_answer_is_that_for_numpy(family):
    here, elsewhere = (FITS[family]().fit(sites) for sites in (HERE, {name: there(X) for name, X in HERE.items()}))
    np.testing.assert_allclose(elsewhere.components_, here.components_, rtol=0, atol=1e-8)


@pytest.mark.parametrize("family", ["gram", "scaled", "prepared", "holes", "personalized", "robust"])
def test_one_matrix_is_sorted_into_sites_by_labels(family):
    X, labels = np.vstack(list(HERE.values())), np.repeat(list(HERE), 40)
    if family == "holes":
        X[3, 1] = np.nan
    mixed = np.random.default_rng(1).permutation(160)
    here, elsewhere = (FITS[family]().fit(rows, sites=labels[mixed]) for rows in (X[mixed], there(X[mixed])))
    np.testing.assert_allclose(elsewhere.components_, here.components_, rtol=0, atol=1e-8)
    X[2, 3] = np.inf
    with pytest.raises(InputError, match=r"1 entries are .*infinite|site 'site0'"):
        FITS[family]().fit(there(X), sites=labels)


def test_kernels_on_a_graph():
    sites = {name: there(X) for name, X in HERE.items()}
    here, elsewhere = (ep.GraphKernelPCA(2, solver="random-features", random_state=0).fit(rows) for rows in (HERE, sites))
    X = HERE["site1"]
    np.testing.assert_allclose(elsewhere.transform(X), here.transform(X), rtol=0, atol=1e-8)


def test_holes_are_filled_there_too():
    holed = {name: np.where(np.arange(X.size).reshape(X.shape) % 17 == 3, np.nan, X) for name, X in HERE.items()}
    here, elsewhere = (
        ep.FederatedPCA(3, missing="mean", random_state=0).fit(sites)
        for sites in (holed, {name: there(X) for name, X in holed.items()})
    )
    np.testing.assert_allclose(elsewhere.components_, here.components_, rtol=0, atol=1e-8)


@pytest.mark.parametrize(
    ("bad", "missing", "advice"),
    [(np.nan, "refuse", "let the fit handle missing ones .*missing='em'"), (np.inf, "mean", "a division by zero or an overflow")],
)
def test_what_cannot_be_used_is_refused_by_name(bad, missing, advice):
    X = HERE["site1"].copy()
    X[2, 3] = bad
    with pytest.raises(InputError, match=rf"site 'site1': 1 entries are .*infinite.*{advice}"):
        ep.FederatedPCA(2, missing=missing).fit({"site0": there(HERE["site0"]), "site1": there(X)})


def test_scores_of_rows_elsewhere():
    pca = ep.FederatedPCA(3, random_state=0).fit(HERE)
    np.testing.assert_allclose(pca.transform(there(HERE["site2"])), pca.transform(HERE["site2"]), rtol=0, atol=1e-12)
    with pytest.raises(InputError, match="8 features"):
        pca.transform(there(HERE["site2"][:, :8]))


def test_a_journal_takes_their_digest(tmp_path):
    journal = tmp_path / "run.journal"
    first = ep.FederatedPCA(3, random_state=0, journal=journal).fit({name: there(X) for name, X in HERE.items()})
    again = ep.FederatedPCA(3, random_state=0, journal=journal).fit(HERE)  # the same rows, in numpy
    assert again.components_.tobytes() == first.components_.tobytes()

"""Oja's algorithm passed around: against the pooled estimate, against a plain loop, and whatever the units."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse

import eigenpact as ep
from eigenpact.algorithms.statistical.hot_potato import gap
from eigenpact.errors import InputError
from eigenpact.numerics.metrics import largest_sine
from eigenpact.privacy import Eavesdropper
from eigenpact.runtime import Site

Matrix = np.ndarray[Any, Any]


def gaussian_sites(m: int, n: int, d: int, seed: int) -> tuple[dict[str, Matrix], Matrix]:
    """Sites of n rows of the paper's Section 5 distribution (variances 1, .8, .72, ...), and the population's eigenvectors."""
    rng = np.random.default_rng(seed)
    variances = np.concatenate([[1.0], 0.8 * 0.9 ** np.arange(d - 1)])
    basis = np.linalg.qr(rng.normal(size=(d, d)))[0]
    return {f"s{i:02d}": rng.normal(size=(n, d)) * np.sqrt(variances) @ basis.T for i in range(m)}, basis


def pooled(sites: dict[str, Matrix], k: int) -> Matrix:
    X = np.concatenate(list(sites.values()))
    return np.linalg.eigh(X.T @ X)[1][:, ::-1][:, :k]


@pytest.mark.parametrize(("k", "most"), [(1, 2.0), (4, 2.5)])
def test_one_pass_is_nearly_as_good_as_pooling(k: int, most: float) -> None:
    """The squared error to the population's subspace is within a small factor of the pooled estimate's, no step size given."""
    own, central = [], []
    for seed in range(6):
        sites, basis = gaussian_sites(12, 800, 40, seed)
        pca = ep.FederatedPCA(k, solver="hot-potato", center=False, random_state=seed).fit(sites)
        own.append(largest_sine(pca.components_.T, basis[:, :k]) ** 2)
        central.append(largest_sine(pooled(sites, k), basis[:, :k]) ** 2)
        assert pca.n_rounds_ == 13
    assert np.mean(own) < most * np.mean(central)


def test_row_by_row_is_ojas_algorithm() -> None:
    """With batches of one row, two sites equal a plain loop with the stated steps, row after row."""
    sites, _ = gaussian_sites(2, 60, 7, 0)
    solver = ep.solvers.HotPotato(max_batch=1, confirm=False)
    pca = ep.FederatedPCA(1, solver=solver, center=False, random_state=5).fit(sites)
    (call,) = {m.shapes for m in pca.ledger_ if m.function == "pass_over" and m.sender == "coordinator"}
    assert call[0] == (7, 2)
    values, vectors = np.linalg.eigh(sites["s00"].T @ sites["s00"])
    W, s = vectors[:, ::-1][:, :2], values[::-1][:2] / 60
    seed = int(np.random.RandomState(5).randint(np.iinfo(np.int32).max))
    for t, i in enumerate(Site("s01", None).rng(seed).permutation(60), start=60):
        y = sites["s01"][i]
        delta = max(s[0] - s[1], 2 * s[0] / np.sqrt(t))
        s = (t * s + (y @ W) ** 2) / (t + 1)
        W = np.linalg.qr(W + np.log((t + 1) / t) / delta * np.outer(y, y @ W))[0]
    assert largest_sine(pca.components_.T, W[:, :1]) < 1e-10


@pytest.mark.parametrize("factor", [1e-6, 1e5])
def test_units_do_not_matter(factor: float) -> None:
    """The step follows the data's scale."""
    sites, _ = gaussian_sites(3, 100, 10, 1)
    one, other = (
        ep.FederatedPCA(2, solver="hot-potato", center=False, random_state=0).fit({name: X * f for name, X in sites.items()})
        for f in (1.0, factor)
    )
    np.testing.assert_allclose(one.components_, other.components_, atol=1e-8)


@pytest.mark.filterwarnings("ignore:beyond rounding errors:eigenpact.errors.NotIdentifiableWarning")
def test_odd_shapes() -> None:
    """A first site with fewer rows than columns carried, all components, one site, sparse rows, rows that are all zero."""
    sites, _ = gaussian_sites(3, 50, 6, 2)
    for given, k in (
        ({"a": sites["s00"][:1], "b": sites["s01"]}, 3),
        (sites, 6),
        ({"a": sites["s00"]}, 2),
        ({name: scipy.sparse.csr_matrix(X) for name, X in sites.items()}, 2),
        ({name: 0 * X for name, X in sites.items()}, 2),
    ):
        pca = ep.FederatedPCA(k, solver="hot-potato", random_state=0).fit(given)
        np.testing.assert_allclose(pca.components_ @ pca.components_.T, np.eye(k), atol=1e-12)
    one = ep.FederatedPCA(2, solver="hot-potato", center=False, random_state=0).fit({"a": sites["s00"]})
    assert largest_sine(one.components_.T, pooled({"a": sites["s00"]}, 2)) < 1e-12


def test_unconfirmed_and_strict() -> None:
    """Without confirmation nothing is claimed; with a tol that one pass cannot reach, a warning says so."""
    sites, _ = gaussian_sites(3, 100, 10, 3)
    quiet = ep.FederatedPCA(2, solver=ep.solvers.HotPotato(confirm=False), center=False, random_state=0).fit(sites)
    assert quiet.angle_estimate_ is None
    assert quiet.n_rounds_ == 3
    assert (np.diff(quiet.explained_variance_) <= 0).all()
    with pytest.warns(ep.errors.NotConvergedWarning, match="not within tol 1.0e-08"):
        ep.FederatedPCA(2, solver="hot-potato", tol=1e-8, random_state=0).fit(sites)
    for wrong in (0, True, 1.5):
        with pytest.raises(InputError, match=f"max_batch={wrong} must be a whole number >= 1"):
            ep.solvers.HotPotato(max_batch=wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="max_rounds=3 is too few: hot-potato takes a round for each of the 3 sites and one to"):
        ep.FederatedPCA(2, solver="hot-potato", max_rounds=3).fit(sites)


def test_the_coordinator_relays_every_state() -> None:
    """Who runs the coordinator sees the first site's own directions: the page and the docstring say so."""
    sites, _ = gaussian_sites(3, 100, 10, 4)
    spy = Eavesdropper(ep.engines.InProcess())
    ep.FederatedPCA(1, solver="hot-potato", center=False, engine=spy, random_state=0).fit(sites)
    W = spy.replies("s00", "pass_over")[0].arrays[0]
    assert largest_sine(W[:, :1], pooled({"a": sites["s00"]}, 1)) < 1e-10


def test_gap_is_cautious() -> None:
    """At least the standard error of a difference of two variances, and without a further column the gap is to nothing."""
    assert gap(np.array([1.0, 1.0]), 1, 100) == pytest.approx(0.2)
    assert gap(np.array([1.0, 0.5]), 2, 100) == pytest.approx(0.5)

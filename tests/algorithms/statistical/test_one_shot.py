"""Merges against plain numpy, where they are exact and where not, and the theorems about them."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import eigenpact as ep
from eigenpact.errors import InputError
from eigenpact.numerics.metrics import largest_sine

Matrix = np.ndarray[Any, Any]
MERGES = ("average", "sign", "projection", "stack", "svd")


def sites_of_one_distribution(sizes: list[int], d: int, seed: int = 0) -> dict[str, Matrix]:
    """Rows with a clear gap behind each of the first three variances."""
    rng = np.random.default_rng(seed)
    mixing = np.linalg.qr(rng.normal(size=(d, d)))[0] * np.concatenate([[6, 4, 2.5], np.linspace(1, 0.5, d - 3)])
    return {f"s{i}": rng.normal(size=(n, d)) @ mixing.T for i, n in enumerate(sizes)}


def own(X: Matrix, k: int) -> tuple[Matrix, Matrix]:
    """Leading eigenvalues and eigenvectors of X^T X, by numpy."""
    values, vectors = np.linalg.eigh(X.T @ X)
    return values[::-1][:k], vectors[:, ::-1][:, :k]


def fit(sites: dict[str, Matrix], k: int, merge: Any, **options: Any) -> ep.FederatedPCA:
    solver = ep.solvers.OneShot(merge=merge, **options)
    return ep.FederatedPCA(k, solver=solver, center=False, random_state=0).fit(sites)


@pytest.mark.parametrize("k", [1, 3])
def test_merges_equal_plain_numpy(k: int) -> None:
    """Projectors averaged by rows or by sites, scaled vectors, and turned bases, all formed as dense matrices."""
    sites = sites_of_one_distribution([200, 90, 40, 60], 8)
    pairs = {name: own(X, k) for name, X in sites.items()}
    dense = {
        "projection": sum(len(sites[name]) * V @ V.T for name, (_, V) in pairs.items()),
        "stack": sum(V @ V.T for _, V in pairs.values()),
        "svd": sum((V * values) @ V.T for values, V in pairs.values()),
    }
    for merge, matrix in dense.items():
        expected = np.linalg.eigh(matrix)[1][:, ::-1][:, :k]
        assert largest_sine(fit(sites, k, merge).components_.T, expected) < 1e-12, merge
    total = np.zeros((8, k))
    for name, (_, V) in pairs.items():
        U, _, Vt = np.linalg.svd(V.T @ pairs["s2"][1])
        total += len(sites[name]) * V @ U @ Vt
    expected = np.linalg.qr(total)[0]
    assert largest_sine(fit(sites, k, "sign", reference="s2").components_.T, expected) < 1e-12
    assert largest_sine(fit(sites, k, "sign", reference=2).components_.T, expected) < 1e-12


def test_average_keeps_arbitrary_signs() -> None:
    """The plain average is that of some choice of signs, and over seeds not always of the same one."""
    sites = sites_of_one_distribution([50, 60, 70], 6)
    vectors = [len(X) * own(X, 1)[1][:, 0] for X in sites.values()]
    sums = [sum(s * v for s, v in zip(signs, vectors, strict=True)) for signs in product([1, -1], repeat=3)]
    choices = [np.atleast_2d(total / np.linalg.norm(total)).T for total in sums[:4]]  # the others are these, turned around
    met = set()
    for seed in range(12):
        pca = ep.FederatedPCA(1, solver=ep.solvers.OneShot("average"), center=False, random_state=seed).fit(sites)
        sines = [largest_sine(pca.components_.T, choice) for choice in choices]
        assert min(sines) < 1e-12
        met.add(int(np.argmin(sines)))
    assert len(met) > 1


@pytest.mark.parametrize("merge", MERGES[1:])
def test_exact_where_every_site_has_the_subspace(merge: str) -> None:
    """Different variances and sizes, one leading subspace: the merge is the pooled answer, and says so."""
    rng = np.random.default_rng(1)
    basis = np.linalg.qr(rng.normal(size=(9, 9)))[0]
    lengths = [np.array([9.0, 7, 5, 1, 1, 1, 0.5, 0.5, 0.2]), np.array([20.0, 9, 4, 1, 2, 1, 1, 1, 1]), np.arange(9, 0, -1.0)]
    sites = {f"s{i}": np.linalg.qr(rng.normal(size=(20, 9)))[0] * length @ basis.T for i, length in enumerate(lengths)}
    pca = fit(sites, 3, merge)
    pooled = own(np.concatenate(list(sites.values())), 3)
    assert largest_sine(pca.components_.T, pooled[1]) < 1e-12
    np.testing.assert_allclose(pca.singular_values_**2, pooled[0], rtol=1e-12)
    assert pca.angle_estimate_ < 1e-12
    assert pca.n_rounds_ == 2


def test_svd_is_exact_for_low_rank_sites() -> None:
    """Two rows a site and k = 2: scaled vectors carry the whole scatter, whatever the sites."""
    rng = np.random.default_rng(2)
    sites = {f"s{i}": rng.normal(size=(2, 7)) * (i + 1) for i in range(5)}
    pooled = own(np.concatenate(list(sites.values())), 2)[1]
    assert largest_sine(fit(sites, 2, "svd").components_.T, pooled) < 1e-12
    assert largest_sine(fit(sites, 2, "stack").components_.T, pooled) > 0.01


@pytest.mark.filterwarnings("ignore:beyond rounding errors:eigenpact.errors.NotIdentifiableWarning")
@pytest.mark.parametrize("merge", MERGES)
def test_one_site_tiny_sites_and_no_variance(merge: str) -> None:
    """One site gives its own PCA; sites with fewer rows than components, or none that vary, give an orthonormal answer."""
    X = sites_of_one_distribution([60], 8)["s0"]
    assert largest_sine(fit({"a": X}, 3, merge).components_.T, own(X, 3)[1]) < 1e-12
    for sites in (
        {"a": X[:1], "b": X[1:3], "c": X[3:]},
        {"a": X[:1], "b": X[1:2], "c": X[2:4]},
        {"a": 0 * X, "b": X},
        {"a": 0 * X},
    ):
        pca = fit(sites, 3, merge)
        np.testing.assert_allclose(pca.components_ @ pca.components_.T, np.eye(3), atol=1e-12)


def test_the_error_is_told() -> None:
    """Sites that differ: no merge is right, the estimate is near the true sine, and a tol turns it into a warning."""
    rng = np.random.default_rng(3)
    scales = {"a": [5.0, 1, 3, 1, 1, 1], "b": [1.0, 4, 1, 3, 1, 1], "c": [2.0, 1, 1, 1, 3, 2]}
    sites = {name: rng.normal(size=(80, 6)) * scale @ np.linalg.qr(rng.normal(size=(6, 6)))[0] for name, scale in scales.items()}
    pooled = own(np.concatenate(list(sites.values())), 1)
    for merge in MERGES:
        pca = fit(sites, 1, merge)
        sine = largest_sine(pca.components_.T, pooled[1])
        assert sine > 1e-3
        assert sine / 4 < pca.angle_estimate_
        assert "estimated sine" in pca.stop_reason_
    with pytest.warns(ep.errors.NotConvergedWarning, match="not within tol"):
        strict = ep.FederatedPCA(1, solver="one-shot", center=False, tol=1e-9, random_state=0).fit(sites)
    assert not strict.converged_


def test_without_confirmation() -> None:
    """One round, no estimate of the error, and variances that are not above the true ones."""
    sites = sites_of_one_distribution([200, 90], 8)
    pca, confirmed = fit(sites, 2, "projection", confirm=False), fit(sites, 2, "projection")
    assert (pca.n_rounds_, confirmed.n_rounds_) == (1, 2)
    assert pca.angle_estimate_ is None
    assert largest_sine(pca.components_.T, confirmed.components_.T) < 1e-12
    assert (pca.explained_variance_ <= confirmed.explained_variance_ * (1 + 1e-12)).all()
    assert (np.diff(pca.explained_variance_) <= 0).all()


def test_the_medoid_is_not_an_outlier() -> None:
    """One site of noise: turned towards it the answer is worse than towards the medoid."""
    sites = sites_of_one_distribution([60] * 7, 8)
    sites["s0"] = np.random.default_rng(5).normal(size=(60, 8))
    truth = own(np.concatenate([X for name, X in sites.items() if name != "s0"]), 3)[1]
    medoid, outlier = (largest_sine(fit(sites, 3, "sign", reference=r).components_.T, truth) for r in (None, "s0"))
    assert medoid < outlier


def test_a_direction_that_no_site_sent() -> None:
    """Large for all together, second at every site: the merge is wrong, and the random block tells so or leaves it open."""
    rng = np.random.default_rng(0)
    sites = {}
    for i in range(4):
        variances = np.full(8, 0.01)
        variances[i], variances[7] = 2 + 0.1 * (4 - i), 1.9
        sites[f"s{i}"] = np.linalg.qr(rng.normal(size=(100, 8)))[0] * np.sqrt(variances)
    for merge in ("projection", "svd"):
        pca = fit(sites, 1, merge)
        assert abs(pca.components_[0, 7]) < 1e-6
        assert pca.angle_estimate_ is None or pca.angle_estimate_ > 0.5
        assert "unknown" in pca.stop_reason_ or "estimated sine" in pca.stop_reason_


def test_one_round_only() -> None:
    """With max_rounds=1 nothing is confirmed, and the reason says why."""
    sites = sites_of_one_distribution([60, 60], 8)
    pca = ep.FederatedPCA(1, solver="one-shot", center=False, random_state=0, max_rounds=1).fit(sites)
    assert pca.n_rounds_ == 1
    assert "not confirmed (max_rounds=1)" in pca.stop_reason_


def test_parameters_are_checked() -> None:
    """Each message names the value and what is allowed."""
    with pytest.raises(InputError, match="merge='mean' must be one of average, sign, projection, stack, svd"):
        ep.solvers.OneShot(merge="mean")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="reference='a' is for merge='sign' only"):
        ep.solvers.OneShot(reference="a")
    sites = sites_of_one_distribution([20, 20], 8)
    for wrong in ("x", 2, -3):
        with pytest.raises(InputError, match=r"reference=.* is not a site; the sites are s0, s1"):
            fit(sites, 1, "sign", reference=wrong)
    with pytest.raises(InputError, match="confirm='no' must be True or False"):
        ep.solvers.OneShot(confirm="no")  # type: ignore[arg-type]
    few = {"s0": sites["s0"][:2], "s1": sites["s1"]}
    with pytest.raises(InputError, match=r"site 's0' has 2 directions of its own, too few for n_components=3; choose"):
        fit(few, 3, "sign", reference="s0")
    with pytest.raises(InputError, match="a share of the variance"):
        fit(sites, 0.9, "sign")  # type: ignore[arg-type]


# -- theorems ---------------------------------------------------------------------------------------------------------------


def mean_errors(m: int, n: int, rows: Any, repeats: int, merge: str) -> float:
    """Mean of 1 - <w, e_1>^2 over repeats of m sites with n rows."""
    errors = []
    for seed in range(repeats):
        rng = np.random.default_rng([seed, m, n])
        sites = {f"s{i:03d}": rows(rng, n) for i in range(m)}
        solver = ep.solvers.OneShot(merge, confirm=False)  # type: ignore[arg-type]
        w = ep.FederatedPCA(1, solver=solver, center=False, random_state=seed).fit(sites).components_[0]
        errors.append(1 - w[0] ** 2 / (w @ w))
    return float(np.mean(errors))


def test_averaging_does_not_profit_from_sites_and_sign_fixing_does() -> None:
    """Theorems 3 and 4: from 9 to 45 sites the average's error stays, that of sign fixing falls about five times."""

    def rows(rng: Any, n: int) -> Matrix:
        return rng.choice([-1.0, 1.0], size=(n, 2)) * [np.sqrt(2), 1] + rng.normal(size=(n, 2)) * 0.3

    average, sign = ([mean_errors(m, 60, rows, 16, merge) for m in (9, 45)] for merge in ("average", "sign"))
    single = mean_errors(1, 60, rows, 100, "average")
    assert average[1] > average[0] / 2
    assert average[1] > single
    assert sign[0] / sign[1] > 2.5
    assert sign[1] < single / 10

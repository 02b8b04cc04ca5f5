"""What sites agree on before the first block: to the last digit far from the origin, and no silent loss of small values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import eigenpact as ep
from eigenpact.errors import InputError
from eigenpact.numerics.metrics import largest_sine

UNDERFLOW = "the squares of the values underflow.*; give the data in other units, for example multiplied by 1e100"


def offset_sites(offset: float) -> dict[str, Any]:
    """Two sites of 8 features, four of them far from the origin."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(300, 8)) @ rng.normal(size=(8, 8))
    X[:, 1:5] += offset
    return {"A": X[:100], "B": X[100:]}


def truth(sites: dict[str, Any], center: Any, scale: Any) -> tuple[Any, Any, Any]:
    """Scale, variances times n and components, means and scale in extended precision."""
    parts = [X.astype(np.longdouble) for X in sites.values()]
    pooled = np.concatenate(parts).mean(axis=0)
    Y = np.concatenate([X - (X.mean(axis=0) if center == "site" else pooled) for X in parts])
    deviations = np.sqrt((Y**2).mean(axis=0)) if scale else np.ones(Y.shape[1])
    _, lengths, Vt = np.linalg.svd((Y / deviations).astype(float), full_matrices=False)
    return deviations.astype(float), lengths**2, Vt


@pytest.mark.parametrize("make", [np.array, sp.csr_array])
@pytest.mark.parametrize("center", ["pooled", "site"])
@pytest.mark.parametrize("scale", [None, "pooled"])
@pytest.mark.parametrize(("offset", "accuracy"), [(0.0, 1e-13), (1e6, 1e-13), (1e8, 1e-13), (1e10, 1e-11)])
def test_features_far_from_the_origin(make: Any, center: Any, scale: Any, offset: float, accuracy: float) -> None:
    """Ratios add up to one, and scale and components are the true ones, whatever the mean is.

    At 1e10 the data themselves have six digits; a rounded mean costs its square, 1e-12.
    """
    sites = offset_sites(offset)
    deviations, squares, Vt = truth(sites, center, scale)
    fitted = ep.FederatedPCA(8, solver="gram", center=center, scale=scale).fit({k: make(X) for k, X in sites.items()})
    assert abs(fitted.explained_variance_ratio_.sum() - 1) <= 1e-12
    np.testing.assert_allclose(fitted.scale_, deviations, rtol=accuracy)
    np.testing.assert_allclose(fitted.explained_variance_[:2] * 299, squares[:2], rtol=accuracy)
    assert largest_sine(fitted.components_[:2].T, Vt[:2].T) <= accuracy


@pytest.mark.parametrize("offset", [0.0, 1e8])
def test_share_between_sites(offset: float) -> None:
    """As without the offset: within and between are told apart to the last digits, one of them zero for a single site."""
    sites = offset_sites(offset)
    parts = [X.astype(np.longdouble) for X in sites.values()]
    pooled = np.concatenate(parts).mean(axis=0)
    total = sum(((X - pooled) ** 2).sum() for X in parts)
    between = sum(len(X) * ((X.mean(axis=0) - pooled) ** 2).sum() for X in parts)
    share = ep.FederatedPCA(2).fit(sites).between_site_share_
    assert share == pytest.approx(float(between / total), rel=1e-13 if offset == 0 else 1e-6)
    assert ep.FederatedPCA(2).fit(sites["A"]).between_site_share_ <= 1e-15


def test_a_small_spread_of_many_rows_is_not_taken_for_a_constant() -> None:
    """Deviations of 1e-11 of the mean in 200 000 rows: n eps of the mean would call this feature constant."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200_000, 2))
    X[:, 1] += 1e11
    scale = ep.FederatedPCA(1, scale="pooled").fit(X).scale_
    np.testing.assert_allclose(scale, X.astype(np.longdouble).std(axis=0).astype(float), rtol=1e-9)


@pytest.mark.parametrize("value", [0.1, 1e8 / 3, 1e-130, 1e-160])
@pytest.mark.parametrize("make", [np.array, sp.csr_array])
def test_constant_features_stay_as_they_are(value: float, make: Any) -> None:
    """Whatever the value: rounding makes neither a spread nor an underflow of it."""
    X = np.random.default_rng(0).normal(size=(70, 3))
    X[:, 1] = value
    fitted = ep.FederatedPCA(1, scale="pooled").fit({"A": make(X[:10]), "B": make(X[10:31]), "C": make(X[31:])})
    assert fitted.scale_[1] == 1.0


def small(size: float) -> Any:
    """Rows (60 x 5) of about this size."""
    X = np.random.default_rng(0).normal(size=(60, 5)) * [5, 4, 3, 2, 1]
    X[:, 1] += X[:, 0]
    return X * size


@pytest.mark.parametrize("make", [np.array, sp.csr_array])
@pytest.mark.parametrize("center", ["pooled", "site", False])
@pytest.mark.parametrize(
    ("size", "scale"), [(1e-150, None), (1e-165, None), (1e-300, None), (1e-160, "pooled"), (1e-170, "pooled")]
)
def test_values_whose_squares_underflow(make: Any, center: Any, size: float, scale: Any) -> None:
    """They are refused, not called constant."""
    X = small(size)
    with pytest.raises(InputError, match=UNDERFLOW):
        ep.FederatedPCA(2, center=center, scale=scale).fit({"A": make(X[:30]), "B": make(X[30:])})


def test_equal_rows_of_small_values_without_centring() -> None:
    """No spread, but squares all the same."""
    with pytest.raises(InputError, match=UNDERFLOW):
        ep.FederatedPCA(1, center=False).fit(np.full((5, 2), 1e-170))


def test_sites_that_differ_only_by_small_values() -> None:
    """Nothing within the sites, and 1e-170 between them."""
    with pytest.raises(InputError, match=UNDERFLOW):
        ep.FederatedPCA(1).fit({"A": np.zeros((5, 2)), "B": np.full((5, 2), 1e-170)})


@pytest.mark.parametrize("make", [np.array, sp.csr_array])
def test_one_small_feature_beside_others(make: Any) -> None:
    """It does not matter as it is; scaled it would, so it is refused by name."""
    X = small(1.0)
    X[:, 3] *= 1e-170
    fitted = ep.FederatedPCA(2).fit(make(X))
    wanted = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[2][:2]
    assert largest_sine(fitted.components_.T, wanted.T) <= 1e-13
    with pytest.raises(InputError, match="the squares of the values underflow in feature 3, so"):
        ep.FederatedPCA(2, scale="pooled").fit(make(X))


def test_small_values_that_can_be_scaled() -> None:
    """Squares of 1e-140 have all their digits: the answer is that of the same rows in other units."""
    one, other = (ep.FederatedPCA(2, scale="pooled").fit(small(size)) for size in (1.0, 1e-140))
    np.testing.assert_allclose(one.components_, other.components_, atol=1e-12)


def test_rows_that_are_all_equal() -> None:
    """Nothing to refuse: there is no variance, which is said."""
    with pytest.warns(ep.errors.NotIdentifiableWarning, match="fewer than 1 directions"):
        pca = ep.FederatedPCA(1).fit(np.zeros((5, 2)))
    assert pca.explained_variance_[0] == 0.0

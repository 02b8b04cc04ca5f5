"""Preparers: what sites agree on is what the pooled rows give, by other people's code."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse
from sklearn.decomposition import PCA
from sklearn.linear_model import LinearRegression
from sklearn.preprocessing import RobustScaler

import eigenpact as ep
from eigenpact.algorithms.prepare.highly_variable import dispersions
from eigenpact.errors import InputError, InputTypeError
from eigenpact.numerics.sources import ArraySource, CountRows

RNG = np.random.default_rng(21)
N, D = 400, 60
LEVELS = np.exp(RNG.normal(0.3, 1.2, D))
TYPES = RNG.gamma(2.0, 0.5, size=(3, D))
COUNTS = RNG.negative_binomial(2.0, 2.0 / (2.0 + LEVELS * TYPES[RNG.integers(0, 3, N)])).astype(float)
COUNTS[:, 7] = 0.0
COUNTS[5] = 0.0
SITES = np.repeat(["A", "B", "C", "D"], [50, 120, 200, 30])


def fitted(X, *prepare, k=4, sites=SITES, **options):
    given = {"solver": "gram", "random_state": 0} | options
    return ep.FederatedPCA(k, prepare=prepare, **given).fit(X, sites=sites)


def same_components(pca, X, tol=1e-9, **options):
    """Whether components and variances are those of scikit-learn's PCA of the prepared, pooled rows."""
    expected = PCA(pca.n_components_, svd_solver="full", **options).fit(X)
    sines = np.linalg.norm(expected.components_ - expected.components_ @ pca.components_.T @ pca.components_)
    return sines <= tol and np.allclose(pca.explained_variance_, expected.explained_variance_, rtol=1e-10, atol=0)


def scanpy_of(X, n_top=None, target=None, scale=False, max_value=None):
    sc, anndata = pytest.importorskip("scanpy"), pytest.importorskip("anndata")
    cells = anndata.AnnData(np.array(X))
    with warnings.catch_warnings(action="ignore"):  # of a row without counts
        sc.pp.normalize_total(cells, target_sum=target)
    sc.pp.log1p(cells)
    if n_top:
        sc.pp.highly_variable_genes(cells, n_top_genes=n_top)
        cells.X[:, ~cells.var["highly_variable"].to_numpy()] = 0
    if scale:
        sc.pp.scale(cells, max_value=max_value)
    return cells


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_matrix, ArraySource])
@pytest.mark.parametrize("target", [1e4, "median"])
def test_counts_are_normalized_as_scanpy_does(target, form):
    pca = fitted(form(COUNTS), ep.prepare.LogNormalize(target))
    expected = scanpy_of(COUNTS, target=None if target == "median" else target).X
    step = pca.preparation_[0]
    assert float(step.arrays["target"]) == (np.median(COUNTS.sum(axis=1)[COUNTS.sum(axis=1) > 0]) if target == "median" else 1e4)
    mine = step.apply(form(COUNTS))
    mine = mine[:] if form is ArraySource else mine
    assert scipy.sparse.issparse(mine) == (form is scipy.sparse.csr_matrix)
    mine = mine.toarray() if scipy.sparse.issparse(mine) else mine
    assert np.allclose(mine, expected, rtol=1e-14, atol=0)
    assert same_components(pca, expected)


@pytest.mark.parametrize("n", [1, 2, 7, 8])
def test_the_median_total_is_exact_for_odd_and_even_numbers_of_rows(n):
    rows = np.random.default_rng(n).exponential(size=(n + 1, 5)) * 10.0 ** np.arange(n + 1)[:, None]
    rows[-1] = 0.0  # which does not count
    pca = fitted(rows, ep.prepare.LogNormalize("median"), k=1, sites=np.arange(n + 1) % 2)
    assert float(pca.preparation_[0].arrays["target"]) == np.median(rows[:-1].sum(axis=1))


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_matrix, ArraySource])
def test_highly_variable_columns_are_scanpys(form):
    for n_top in (5, 20, 50):
        cells = scanpy_of(COUNTS, n_top, target=1e4)
        pca = fitted(form(COUNTS), ep.prepare.LogNormalize(), ep.prepare.HighlyVariable(n_top))
        chosen = cells.var["highly_variable"].to_numpy()
        assert np.array_equal(pca.preparation_[1].arrays["kept"], chosen)
        assert np.all(pca.components_[:, ~chosen] == 0)
        assert same_components(pca, cells.X)


def test_the_other_flavour_is_scanpys_too():
    sc = pytest.importorskip("scanpy")
    rows = np.random.default_rng(8).poisson(np.geomspace(0.2, 20, 80), size=(300, 80)).astype(float)
    cells = scanpy_of(rows, target=1e4)
    sc.pp.highly_variable_genes(cells, n_top_genes=25, flavor="cell_ranger")
    steps = ep.prepare.LogNormalize(), ep.prepare.HighlyVariable(25, flavor="cell_ranger")
    pca = fitted(rows, *steps, sites=np.arange(300) % 4)
    assert np.array_equal(pca.preparation_[1].arrays["kept"], cells.var["highly_variable"].to_numpy())


def test_rows_of_torch_are_prepared():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    sites = {"A": rng.normal(size=(30, 4)) * [1, 10, 2, 5], "B": rng.normal(size=(20, 4)) + 3}
    sites["A"][2, 1] = np.nan
    one, other = (
        ep.FederatedPCA(2, missing="mean", prepare=[ep.prepare.Scale()], random_state=0).fit(rows)
        for rows in (sites, {name: torch.asarray(X) for name, X in sites.items()})
    )
    np.testing.assert_allclose(other.components_, one.components_, rtol=0, atol=1e-10)


def test_dispersions_are_scanpys_where_bins_hold_one_feature_or_none_that_varies():
    sc, anndata = pytest.importorskip("scanpy"), pytest.importorskip("anndata")
    few = np.random.default_rng(3).poisson([0.5, 1, 2, 400, 30, 31, 900], size=(50, 7)).astype(float)
    few[:, 1] = 0.0
    cells = anndata.AnnData(np.log1p(few))
    sc.pp.highly_variable_genes(cells, n_top_genes=3)
    mine = dispersions(few.mean(axis=0), few.var(axis=0, ddof=1), 20)
    assert np.allclose(mine, cells.var["dispersions_norm"].to_numpy(), rtol=1e-8, equal_nan=True)


@pytest.mark.parametrize("max_value", [None, 2.0])
def test_scaling_is_scanpys(max_value):
    pca = fitted(COUNTS, ep.prepare.LogNormalize(), ep.prepare.Scale(max_value=max_value))
    expected = scanpy_of(COUNTS, target=1e4, scale=True, max_value=max_value).X
    from_steps = pca.preparation_[1].apply(pca.preparation_[0].apply(COUNTS))
    assert np.allclose(from_steps, expected, rtol=1e-10, atol=1e-12)
    assert same_components(pca, expected)


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_matrix])
@pytest.mark.parametrize("max_value", [None, 1.0])
def test_scaling_that_leaves_zero_where_it_is_gives_the_same_components(form, max_value):
    centred = fitted(COUNTS, ep.prepare.Scale(max_value=max_value))
    sparse = fitted(form(COUNTS), ep.prepare.Scale(max_value=max_value, center=False))
    assert np.allclose(sparse.explained_variance_, centred.explained_variance_, rtol=1e-10)
    assert np.allclose(sparse.transform(form(COUNTS)), centred.transform(COUNTS), atol=1e-9)
    changed = sparse.preparation_[0].apply(form(COUNTS))
    changed = changed.toarray() if scipy.sparse.issparse(changed) else changed
    assert np.all(changed[COUNTS == 0] == 0)


def test_genotypes_refuse_sparse_rows():
    with pytest.raises(InputTypeError, match="sparse rows cannot be prepared by 'genotypes', which would fill them"):
        fitted(scipy.sparse.csr_matrix(np.minimum(COUNTS, 2)), ep.prepare.GenotypeScale())


def test_scaling_that_centres_refuses_sparse_rows():
    with pytest.raises(InputTypeError, match=r"sparse rows would be filled .* use Scale\(center=False\)"):
        fitted(scipy.sparse.csr_matrix(COUNTS), ep.prepare.Scale())


def test_robust_scaling_is_by_medians():
    X = RNG.normal(3.0, [1.0, 5.0, 0.1, 20.0], size=(400, 4))
    X[::50] *= 1e6
    pca = fitted(X, ep.prepare.Scale("robust", max_value=5.0), k=2)
    middle = np.sort(X, axis=0)[199]
    deviation = np.sort(np.abs(X - middle), axis=0)[199] / 0.6744897501960817
    arrays = pca.preparation_[0].arrays
    assert np.allclose(arrays["centre"], middle, rtol=1e-8)
    assert np.allclose(arrays["scale"], deviation, rtol=1e-2)
    assert same_components(pca, np.clip((X - arrays["centre"]) / arrays["scale"], -5, 5))


def test_a_constant_column_becomes_zero_whatever_rounding_makes_of_it():
    X = RNG.normal(size=(400, 5))
    X[:, 2] = 0.1
    pca = fitted(X, ep.prepare.Scale(), k=3)
    assert np.all(np.abs(pca.preparation_[0].apply(X)[:, 2]) < 1e-12)
    assert np.all(np.abs(pca.components_[:, 2]) < 1e-9)


# -- genotypes ---------------------------------------------------------------------------------------

FREQUENCIES = RNG.uniform(0.02, 0.98, size=(4, D))
GENOTYPES = np.vstack([RNG.binomial(2, p, size=(n, D)) for p, n in zip(FREQUENCIES, [50, 120, 200, 30], strict=True)]).astype(
    float
)
GENOTYPES[:, 3], GENOTYPES[:, 4] = 0.0, 2.0
HOLES = RNG.random(GENOTYPES.shape) < 0.03


def pooled_genotypes(G, factor):
    """By plain numpy, from the pooled table."""
    p = np.nanmean(G, axis=0) / 2
    with np.errstate(invalid="ignore", divide="ignore"):
        Y = (G - 2 * p) / np.sqrt(factor * p * (1 - p))
    Y[:, (p == 0) | (p == 1)] = 0
    return np.nan_to_num(Y)


@pytest.mark.parametrize("holes", [False, True])
@pytest.mark.parametrize(("by", "factor"), [("patterson", 1.0), ("plink", 2.0), ("hail", 2.0 * (D - 2))])
def test_genotypes_are_scaled_by_the_pooled_share_of_the_allele(by, factor, holes):
    G = np.where(HOLES, np.nan, GENOTYPES) if holes else GENOTYPES
    pca = fitted(G, ep.prepare.GenotypeScale(by))
    expected = pooled_genotypes(G, factor)
    assert same_components(pca, expected)
    assert np.array_equal(pca.preparation_[0].apply(G) == 0, expected == 0)
    assert np.allclose(pca.transform(G), (expected - expected.mean(axis=0)) @ pca.components_.T, atol=1e-10)
    assert str(pca.preparation_[0]).endswith(f"{D - 2} of {D} variants vary")
    assert np.all(pca.components_[:, 3:5] == 0)


def test_without_holes_it_is_scikit_allels_patterson_scaling():
    allel = pytest.importorskip("allel")
    vary = [j for j in range(D) if j not in (3, 4)]
    scores, model = allel.pca(GENOTYPES[:, vary].T, n_components=3, scaler="patterson")
    pca = fitted(GENOTYPES, ep.prepare.GenotypeScale(), k=3)
    sine = np.linalg.norm(model.components_ - model.components_ @ pca.components_[:, vary].T @ pca.components_[:, vary])
    assert sine < 1e-5  # allel computes in single precision
    assert np.allclose(np.abs(scores), np.abs(pca.transform(GENOTYPES)), atol=1e-3 * np.abs(scores).max())


def test_counts_held_as_bytes_are_the_same_to_the_bit():
    G = np.where(HOLES, np.nan, GENOTYPES)
    whole = np.where(HOLES, 255, GENOTYPES).astype(np.uint8)
    tables = {site: CountRows(whole[site == SITES]) for site in "ABCD"}
    found = ep.FederatedPCA(3, solver="gram", prepare=[ep.prepare.GenotypeScale()]).fit(tables)
    assert found.components_.tobytes() == fitted(G, ep.prepare.GenotypeScale(), k=3, random_state=None).components_.tobytes()


@pytest.mark.parametrize(("mark", "said"), [(255.0, "some are above 2"), (-1.0, "some are below 0")])
def test_marks_of_missing_genotypes_are_not_taken_for_copies(mark, said):
    G = np.where(HOLES, mark, GENOTYPES)
    with pytest.raises(InputError, match=f"genotypes are to be 0 to 2 copies of an allele, or NaN where missing; {said}"):
        fitted(G, ep.prepare.GenotypeScale())
    pca = fitted(GENOTYPES, ep.prepare.GenotypeScale())
    with pytest.raises(InputError, match=said):
        pca.transform(G)


def test_genotypes_that_nobody_varies_in_are_refused():
    with pytest.raises(InputError, match="none of 3 variants varies"):
        fitted(np.full((400, 3), 2.0), ep.prepare.GenotypeScale(), k=1)


# -- covariates --------------------------------------------------------------------------------------


def with_covariates():
    rng = np.random.default_rng(4)
    age, sex = rng.normal(50, 12, 400), rng.integers(0, 2, 400)
    of_site = np.repeat([0.0, 3.0, -2.0, 5.0], [50, 120, 200, 30])
    X = (
        rng.normal(size=(400, 6)) * [3, 2, 1, 1, 1, 1]
        + np.outer(age + 4 * of_site, rng.normal(size=6) / 5)
        + np.outer(sex, np.ones(6))
    )
    return np.column_stack([X[:, :3], age + of_site, X[:, 3:], sex, 2.0 * sex - age])


def test_covariates_are_regressed_out_by_the_pooled_least_squares():
    X = with_covariates()
    pca = fitted(X, ep.prepare.Residualize([3, 7]))
    others = [0, 1, 2, 4, 5, 6, 8]
    expected = np.zeros_like(X)
    expected[:, others] = X[:, others] - LinearRegression().fit(X[:, [3, 7]], X[:, others]).predict(X[:, [3, 7]])
    left = pca.preparation_[0].apply(X)
    assert np.allclose(left - left.mean(axis=0), expected, atol=1e-10)
    assert same_components(pca, expected)
    assert np.all(pca.components_[:, [3, 7]] == 0)


def test_slopes_within_sites_are_those_of_a_regression_with_an_intercept_for_each():
    X = with_covariates()[:, :8]
    pca = fitted(X, ep.prepare.Residualize([3, 7], site=True), center="site")
    dummies = (SITES[:, None] == np.unique(SITES)).astype(float)
    design = np.column_stack([X[:, [3, 7]], dummies])
    others = [0, 1, 2, 4, 5, 6]
    expected = X[:, others] - design @ np.linalg.lstsq(design, X[:, others], rcond=None)[0]
    found = PCA(4, svd_solver="full").fit(expected)
    assert np.allclose(pca.explained_variance_, found.explained_variance_, rtol=1e-10)
    assert np.allclose(np.abs(pca.components_[:, others]), np.abs(found.components_), atol=1e-7)
    with pytest.raises(InputError, match=r"Residualize\(site=True\) is to take out; use center='site'"):
        fitted(X, ep.prepare.Residualize([3], site=True))


def test_a_covariate_that_depends_on_others_is_named_and_changes_nothing():
    X = with_covariates()
    X[:, 8] = 2.0 * X[:, 7] - X[:, 3] + 1.0
    both, alone = fitted(X, ep.prepare.Residualize([3, 7, 8])), fitted(X, ep.prepare.Residualize([3, 7]))
    assert str(both.preparation_[0]) == "3 covariates regressed out; column 8 tells nothing beyond the others"
    kept = [0, 1, 2, 4, 5, 6]
    assert np.allclose(both.preparation_[0].apply(X)[:, kept], alone.preparation_[0].apply(X)[:, kept], atol=1e-9)


def test_columns_are_found_by_name():
    pandas = pytest.importorskip("pandas")
    names = ["a", "b", "c", "age", "d", "e", "f", "sex", "g"]
    table = pandas.DataFrame(with_covariates(), columns=names)
    pca = ep.FederatedPCA(2, prepare=[ep.prepare.Residualize(["age", "sex"])]).fit(table, sites=SITES)
    assert pca.preparation_[0].arrays["columns"].tolist() == [3, 7]
    with pytest.raises(InputError, match="no column is called 'agee'; did you mean age"):
        ep.FederatedPCA(2, prepare=[ep.prepare.Residualize(["agee"])]).fit(table, sites=SITES)
    with pytest.raises(InputError, match="the columns have no names; give its number"):
        fitted(with_covariates(), ep.prepare.Residualize(["age"]))
    with pytest.raises(InputError, match="numbers from 0 to 8"):
        fitted(with_covariates(), ep.prepare.Residualize([9]))


# -- all of them -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: ep.prepare.LogNormalize(0), 'target_sum=0 must be a number > 0, or "median"'),
        (lambda: ep.prepare.HighlyVariable(0), "n_top=0 must be a whole number >= 1"),
        (lambda: ep.prepare.HighlyVariable(flavor="cell"), "flavor='cell' must be one of seurat, cell_ranger"),
        (lambda: ep.prepare.Scale("mad"), "by='mad' must be one of standard, robust, iqr"),
        (lambda: ep.prepare.Scale(max_value=-1), "max_value=-1 must be a number > 0, or None"),
        (lambda: ep.prepare.GenotypeScale("x"), "by='x' must be one of patterson, plink, hail"),
        (lambda: ep.prepare.Residualize([]), "must be names or numbers of columns, at least one"),
        (lambda: ep.prepare.Residualize(["a", "a"]), "each once"),
    ],
)
def test_parameters_are_refused_with_what_is_allowed(make, said):
    with pytest.raises(InputError, match=said):
        make()


def test_the_same_preparer_twice_is_refused():
    """A site keeps one step of a kind: the fit would do the last, transform both."""
    for twice in (
        [ep.prepare.Scale(), ep.prepare.Scale()],
        [ep.prepare.Scale(), ep.prepare.LogNormalize(), ep.prepare.Scale("iqr")],
    ):
        with pytest.raises(InputError, match="prepare holds Scale 2 times"):
            fitted(COUNTS, *twice)


def test_counts_that_are_none_are_refused():
    with pytest.raises(InputError, match="counts are to be numbers >= 0"):
        fitted(COUNTS - 1.0, ep.prepare.LogNormalize())
    with pytest.raises(InputError, match="not finite for some entries; choose columns after LogNormalize"):
        fitted(COUNTS * 100, ep.prepare.HighlyVariable(3))
    with pytest.raises(InputError, match="no column varies"):
        fitted(np.ones((400, 3)), ep.prepare.HighlyVariable(2), k=1)


def test_without_a_preparer_that_fills_them_holes_are_refused():
    with pytest.raises(InputError, match="NaN"):
        fitted(np.where(HOLES, np.nan, GENOTYPES), ep.prepare.Scale())


def test_too_many_components_are_refused_by_the_columns_that_are_left():
    with pytest.raises(InputError, match="rows of 5 features"):
        fitted(COUNTS, ep.prepare.LogNormalize(), ep.prepare.HighlyVariable(5), k=6)


def test_variances_and_likelihoods_are_those_of_the_columns_that_are_left():
    pca = fitted(COUNTS, ep.prepare.LogNormalize(), ep.prepare.HighlyVariable(10), k=3)
    kept = pca.preparation_[1].arrays["kept"]
    left = pca.preparation_[0].apply(COUNTS)[:, kept]
    expected = PCA(3, svd_solver="full").fit(left)
    assert np.isclose(pca.noise_variance_, expected.noise_variance_)
    assert np.isclose(pca.score(COUNTS), expected.score(left))


def test_the_share_between_sites_is_told_before_and_after():
    X = with_covariates()[:, :8]
    pca = fitted(X, ep.prepare.Scale())

    def share(Y):
        means = np.array([Y[site == SITES].mean(axis=0) for site in SITES])
        return ((means - Y.mean(axis=0)) ** 2).sum() / ((Y - Y.mean(axis=0)) ** 2).sum()

    assert np.isclose(pca.between_site_share_before_, share(X), rtol=1e-10)
    assert np.isclose(pca.between_site_share_, share(X / X.std(axis=0)), rtol=1e-10)
    assert fitted(X).between_site_share_before_ is None


def test_secured_sums_tell_no_means_of_single_sites_unless_batches_are_adjusted():
    """Squares about sites' own means tell few sites apart: scaling does not ask for them, and nor does what lies between."""
    prepare = (ep.prepare.Scale(),)
    plain, secured = fitted(COUNTS, *prepare), fitted(COUNTS, *prepare, secure=True)
    assert np.allclose(plain.components_, secured.components_, atol=1e-9)
    assert plain.between_site_share_before_ is not None
    assert secured.between_site_share_before_ is None
    asked = {message.function for message in secured.ledger_}
    assert "observed_pairs" in asked
    assert not asked & {"observed_squares", "spread", "spread_by_feature"}
    batches = fitted(COUNTS, ep.prepare.BatchAdjust(), secure=True)
    assert any(message.function == "observed_squares" for message in batches.ledger_)


def test_pairs_of_entries_with_holes_give_squares_about_the_mean_to_the_last_digits():
    X = RNG.normal(1e6, 1.0, size=(90, 4))
    X[RNG.random(X.shape) < 0.3] = np.nan
    pca = fitted(X, ep.prepare.Scale(), sites=np.repeat(["A", "B", "C"], 30), missing="mean", k=2)
    (filling, scaling) = pca.preparation_
    filled = np.where(np.isnan(X), filling.arrays["values"], X)
    assert np.allclose(scaling.arrays["scale"], filled.std(axis=0, ddof=1), rtol=1e-12, atol=0)


def test_covariates_in_secured_sums_are_products_that_tell_no_site_apart():
    X = with_covariates()[:, :8] + 1e5
    plain, secured = fitted(X, ep.prepare.Residualize([3, 7])), fitted(X, ep.prepare.Residualize([3, 7]), secure=True)
    asked = {message.function for message in secured.ledger_}
    assert "covariate_pairs" in asked
    assert not asked & {"covariate_products", "observed_squares", "spread"}
    others = [0, 1, 2, 4, 5, 6]
    truth = LinearRegression().fit(X[:, [3, 7]] - 1e5, X[:, others] - 1e5).coef_.T
    for pca in (plain, secured):
        assert np.allclose(pca.preparation_[0].arrays["coefficients"][:, others], truth, rtol=1e-9, atol=1e-11)


def test_robust_scales_are_the_lower_medians_of_the_pooled_rows():
    X = RNG.normal(3.0, 2.0, size=(100, 5))
    step = fitted(X, ep.prepare.Scale("robust"), sites=np.repeat(["A", "B"], 50), k=2).preparation_[0]
    lower = np.sort(X, axis=0)[49]
    sizes = np.sort(np.abs(X - step.arrays["centre"]), axis=0)[49] * 1.4826022185056018
    assert np.allclose(step.arrays["centre"], lower, rtol=1e-7, atol=0)
    assert np.allclose(step.arrays["scale"], sizes, rtol=1e-7, atol=0)


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("far", [0.0, 1e6])
def test_quartiles_are_scikit_learn_s_robust_scaling_of_the_pooled_rows(far, secure):
    """Columns far from zero, tiny, with gross errors, and constant."""
    X = RNG.normal(0.0, 2.0, size=(101, 5)) * [1, 10, 1e-6, 1, 0] + far
    X[:20, 3] += 50
    pca = fitted(X, ep.prepare.Scale("iqr"), sites=np.repeat(["A", "B", "C"], [50, 30, 21]), k=2, secure=secure)
    truth, step = RobustScaler().fit(X), pca.preparation_[0]
    assert np.allclose(step.arrays["centre"], truth.center_, rtol=1e-8, atol=0)
    few = [0, 1, 3] if far else [0, 1, 2, 3]  # 1e-6 beside 1e6 has few digits
    assert np.allclose(step.arrays["scale"][few], truth.scale_[few], rtol=1e-7, atol=0)
    assert step.arrays["scale"][4] == 1
    same_components(pca, step.apply(X), tol=1e-8)


def test_quartiles_are_interpolated_as_numpy_does_it_after_means_filled_what_was_missing():
    X = RNG.normal(size=(90, 3))
    X[::7, 1] = np.nan
    step = fitted(X, ep.prepare.Scale("iqr"), sites=np.repeat(["A", "B"], 45), k=1, missing="mean").preparation_[-1]
    filled = np.where(np.isnan(X), np.nanmean(X, axis=0), X)
    low, high = np.percentile(filled, [25, 75], axis=0)
    assert np.allclose(step.arrays["scale"], high - low, rtol=1e-7)
    assert ep.prepare.parse("scale:iqr,max=5") == ep.prepare.Scale("iqr", max_value=5.0)


def test_a_covariate_called_by_a_number_is_the_column_of_that_name():
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame(RNG.normal(size=(60, 4)), columns=["age", "3", "1", "2"])
    step = fitted({"A": X[:30], "B": X[30:]}, ep.prepare.parse("residualize:1"), sites=None, k=2).preparation_[0]
    assert step.arrays["columns"].tolist() == [2]
    step = fitted(X.to_numpy(), ep.prepare.parse("residualize:1"), sites=None, k=2).preparation_[0]
    assert step.arrays["columns"].tolist() == [1]


@pytest.mark.parametrize("prepare", [None, ep.prepare.Scale(), [ep.prepare.Scale], "scale"])
def test_what_is_no_list_of_preparers_is_refused(prepare):
    with pytest.raises(InputError, match="prepare"):
        ep.FederatedPCA(2, prepare=prepare).fit(COUNTS)


def test_columns_that_are_not_named_by_text_are_not_matched_in_silence():
    pandas = pytest.importorskip("pandas")
    A, B = (pandas.DataFrame(RNG.normal(size=(20, 3)) * [1, 2, 3]) for _ in range(2))
    with pytest.raises(InputError, match="is no text"):
        ep.FederatedPCA(2).fit({"A": A, "B": B[[2, 1, 0]]})
    assert ep.FederatedPCA(2).fit({"A": A, "B": B}).n_features_in_ == 3


@pytest.mark.parametrize(
    ("prepare", "least"),
    [((ep.prepare.LogNormalize(),), 10), ((ep.prepare.HighlyVariable(8), ep.prepare.LogNormalize()), None)],
)
def test_exported_rows_lack_the_columns_that_were_taken_out_before_their_totals(prepare, least):
    C = COUNTS[:, :12].copy()
    C[:, 5] = 0
    C[:4, 5] = [30, 40, 50, 60]
    pca = fitted(C, *prepare, k=2, min_nonzero=least)
    assert np.allclose(ep.export.to_sklearn(pca).transform(C), pca.transform(C), atol=1e-9)

"""What every exact solver must do: agree with the pooled answer, whatever the shape of the sites, and say what it sent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.decomposition import PCA

import eigenpact as ep
from eigenpact.algorithms import products, setup, start
from eigenpact.algorithms.consensus import faps, gram, krylov, localpower
from eigenpact.algorithms.statistical import preconditioner
from eigenpact.errors import InputError
from eigenpact.estimators.registry import solvers_for
from eigenpact.numerics.metrics import largest_sine
from eigenpact.runtime import COORDINATOR, LocalFunction
from eigenpact.runtime.shapes import Shape

EXACT = [name for name, solver in solvers_for("FederatedPCA").items() if solver.declared.role in ("choice", "exact")]

SOLVERS: dict[str, Any] = {name: name for name in EXACT} | {
    "krylov, small basis": ep.solvers.Krylov(max_blocks=3),
    "krylov, one-shot": ep.solvers.Krylov(start="one-shot"),
    "krylov, proxy": ep.solvers.Krylov(proxy=0),
    "krylov, proxy and one-shot": ep.solvers.Krylov(start="one-shot", proxy=0),
    "subspace, one-shot": ep.solvers.Subspace(start="one-shot"),
    "localpower, one-shot, signs": ep.solvers.LocalPower(q=4, patience=3, align="sign", start="one-shot"),
    "power, one-shot": ep.solvers.Power(start="one-shot"),
    "lanczos, small basis": ep.solvers.Lanczos(max_blocks=3),
    "lanczos, one-shot": ep.solvers.Lanczos(start="one-shot"),
    "davidson, proxy": ep.solvers.Davidson(proxy=0),
    "davidson, proxy, small basis": ep.solvers.Davidson(proxy=0, start="one-shot", max_blocks=3),
    "shift-invert, proxy": ep.solvers.ShiftInvert(proxy=0, start="one-shot"),
    "shift-invert, proxy, row bound": ep.solvers.ShiftInvert(proxy=0, row_bound=1e30),
    "shift-invert, proxy, nesterov": ep.solvers.ShiftInvert(proxy=0, inner="nesterov"),
    "faps, random": ep.solvers.FAPS(start="random"),
    "faps, lanczos": ep.solvers.FAPS(inner="lanczos"),
    "faps, exact": ep.solvers.FAPS(inner="exact"),
}
EXPANDING = ["lanczos, one-shot", "davidson, proxy", "davidson, proxy, small basis"]
LINEAR = {label for label in SOLVERS if label.startswith(("subspace", "localpower", "faps", "power", "shift-invert"))}

MODULES = (setup, products, start, gram, krylov, localpower, faps, preconditioner)
TOLD_K = "leading_directions", "keep_spectrum", "keep_bounded_spectrum"
LOCALS = {f.short_name: f for m in MODULES for f in vars(m).values() if isinstance(f, LocalFunction)}


def fit(label: str, sites: Any, k: int, **options: Any) -> ep.FederatedPCA:
    """Fit with one of the solvers above, the linearly convergent ones to a tolerance that allows comparison."""
    tol = 1e-11 if label in LINEAR else None
    return ep.FederatedPCA(k, solver=SOLVERS[label], random_state=0, **({"tol": tol} | options)).fit(sites)


def spectrum_sites(sizes: list[int], d: int, seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    """Sites of these sizes with d features, a clear spectrum and different means."""
    rng = np.random.default_rng(seed)
    mixing = np.linalg.qr(rng.normal(size=(d, d)))[0] * 2.0 ** -np.arange(d)
    return {f"s{i:02d}": rng.normal(size=(n, d)) @ mixing.T + rng.normal(size=d) for i, n in enumerate(sizes)}


def assert_pooled(pca: ep.FederatedPCA, sites: dict[str, Any], k: int, sine: float = 1e-8) -> None:
    """Components, variances and mean are those of scikit-learn's PCA of all rows."""
    reference = PCA(k, svd_solver="full").fit(np.concatenate([sites[name] for name in sites]))
    assert largest_sine(pca.components_.T, reference.components_.T) <= sine
    scale = reference.explained_variance_[0]
    np.testing.assert_allclose(pca.explained_variance_, reference.explained_variance_, rtol=1e-9, atol=1e-12 * scale)
    np.testing.assert_allclose(pca.explained_variance_ratio_, reference.explained_variance_ratio_, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(pca.mean_, reference.mean_, atol=1e-12)
    np.testing.assert_allclose(pca.noise_variance_, reference.noise_variance_, rtol=1e-6, atol=1e-11 * scale)


@pytest.mark.parametrize("label", SOLVERS)
@pytest.mark.parametrize(
    ("sizes", "d", "k"),
    [
        ([40], 8, 3),  # one site
        ([30, 70, 5], 12, 4),  # unequal
        ([1, 1, 2, 30], 6, 3),  # tiny sites, fewer rows than components
        ([4, 3, 4], 30, 4),  # wide: fewer rows than features, at no site more than components
        ([50, 60], 5, 5),  # all components
        ([40] * 11, 7, 1),  # one component, more than ten sites
    ],
)
def test_agrees_with_pooled_pca(label: str, sizes: list[int], d: int, k: int) -> None:
    """Every solver gives scikit-learn's PCA of the pooled rows."""
    sites = spectrum_sites(sizes, d)
    pca = fit(label, sites, k)
    assert pca.converged_
    assert_pooled(pca, sites, k)
    np.testing.assert_allclose(pca.components_ @ pca.components_.T, np.eye(k), atol=1e-12)


@pytest.mark.parametrize("label", SOLVERS)
def test_rank_deficient_and_constant_features(label: str) -> None:
    """Repeated rows, a constant feature and copies of a feature: the well-defined part of the answer is right."""
    rng = np.random.default_rng(3)
    low = rng.normal(size=(40, 3)) @ rng.normal(size=(3, 9))
    X = np.column_stack([low, np.full(40, 7.0), low[:, :2]])
    sites = {"A": X[:15], "B": np.repeat(X[15:20], 3, axis=0), "C": X[20:]}
    pca = fit(label, sites, 3)
    assert_pooled(pca, sites, 3)
    with pytest.warns(ep.errors.NotIdentifiableWarning, match="fewer than 5 directions"):
        more = fit(label, sites, 5)
    np.testing.assert_allclose(more.components_ @ more.components_.T, np.eye(5), atol=1e-10)
    assert largest_sine(pca.components_.T, more.components_.T) <= 1e-8
    np.testing.assert_allclose(more.explained_variance_[3:], 0, atol=1e-12 * more.explained_variance_[0])


@pytest.mark.parametrize("label", SOLVERS)
def test_zero_variance(label: str) -> None:
    """Rows that are all alike have no direction, and no solver fails or divides by zero."""
    with pytest.warns(ep.errors.NotIdentifiableWarning, match="fewer than 2 directions"):
        pca = fit(label, {"A": np.full((4, 3), 2.5), "B": np.full((5, 3), 2.5)}, 2)
    np.testing.assert_array_equal(pca.explained_variance_, 0)
    np.testing.assert_allclose(pca.components_ @ pca.components_.T, np.eye(2), atol=1e-12)


@pytest.mark.parametrize("label", SOLVERS)
def test_row_order_and_splitting_do_not_matter(label: str) -> None:
    """The answer depends on the pooled rows only."""
    sites = spectrum_sites([30, 20, 25], 8)
    X = np.concatenate(list(sites.values()))
    shuffled = X[np.random.default_rng(1).permutation(len(X))]
    one = fit(label, sites, 3)
    other = fit(label, {"p": shuffled[:10], "q": shuffled[10:70], "r": shuffled[70:]}, 3)
    assert largest_sine(one.components_.T, other.components_.T) <= 1e-8
    np.testing.assert_allclose(one.components_, other.components_, atol=1e-7)


@pytest.mark.parametrize("label", SOLVERS)
def test_deterministic_and_independent_of_site_order(label: str) -> None:
    """The same seed gives the same bits, in whatever order named sites are passed (an index as proxy means that order)."""
    sites = spectrum_sites([30, 20, 25], 8)
    one = fit(label, sites, 3)
    assert fit(label, sites, 3).components_.tobytes() == one.components_.tobytes()
    if "proxy" not in label:
        backwards = fit(label, dict(reversed(sites.items())), 3)
        assert backwards.components_.tobytes() == one.components_.tobytes()


@pytest.mark.parametrize("label", SOLVERS)
def test_scaling_the_data(label: str) -> None:
    """Data in other units: same directions, variances times the square."""
    sites = spectrum_sites([30, 20], 6)
    one = fit(label, sites, 2)
    for factor in (1e-9, 1e9):
        other = fit(label, {name: X * factor for name, X in sites.items()}, 2)
        assert largest_sine(one.components_.T, other.components_.T) <= 1e-8
        np.testing.assert_allclose(other.explained_variance_, one.explained_variance_ * factor**2, rtol=1e-9)


@pytest.mark.parametrize("label", SOLVERS)
def test_far_from_the_origin(label: str) -> None:
    """A mean a million times the spread costs no accuracy beyond what the data's own rounding takes."""
    sites = {name: X + 1e6 for name, X in spectrum_sites([50, 60], 6).items()}
    assert_pooled(fit(label, sites, 2), sites, 2)


@pytest.mark.parametrize("label", SOLVERS)
def test_ledger_matches_the_declared_wire_table(label: str) -> None:
    """Every recorded message is one that a local function declares, shape by shape, and the rounds add up."""
    sites = spectrum_sites([30, 20, 2], 8)
    pca = fit(label, sites, 3)
    rounds = set()
    for message in pca.ledger_:
        function = LOCALS[message.function]
        declared = function.takes if message.sender == COORDINATOR else function.sends
        sizes = {"d": 8} | ({"k": 3} if message.function in TOLD_K else {})
        assert len(declared) == len(message.shapes)
        for shape, recorded in zip(declared.values(), message.shapes, strict=True):
            assert isinstance(shape, Shape)
            assert shape.fits(recorded, sizes), (message.function, shape.text, recorded)
        assert message.bytes == sum(8 * int(np.prod(s)) for s in message.shapes)
        if message.note == "own":
            assert "s00" in (message.sender, message.receiver)
        elif not function.setup:
            rounds.add(message.round)
    assert rounds == set(range(1, pca.n_rounds_ + 1))
    assert pca.n_setup_rounds_ == 2


@pytest.mark.parametrize("label", [label for label in SOLVERS if label.startswith(("krylov", "lanczos", "davidson", "shift"))])
def test_a_start_in_an_invariant_subspace_is_left(label: str) -> None:
    """The coordinator's own site sees only features that matter least; a start there looks converged and is wrong."""
    rng = np.random.default_rng(0)
    own, other = np.zeros((40, 12)), np.zeros((40, 12))
    own[:, :6] = rng.normal(size=(40, 6))
    other[:, 6:] = 10 * rng.normal(size=(40, 6)) * [6, 5, 4, 3, 2, 1]
    sites = {"a": own, "b": other}
    for tol in (None, 1e-3):
        pca = fit(label, sites, 2, center="site", tol=tol)
        assert np.abs(pca.components_[:, :6]).max() < 0.1
        assert pca.explained_variance_[0] > 1000


@pytest.fixture(scope="module")
def populations() -> tuple[dict[str, Any], ep.FederatedPCA]:
    """Genomes by population, a third of 14079 features and 1092 rows, and what plain krylov makes of them."""
    try:
        genomes = ep.datasets.genomes()
    except ep.errors.EigenpactError as error:
        pytest.skip(str(error))
    sites = ep.datasets.partition.by_label(genomes.X[:, ::3], genomes.y)
    return sites, ep.FederatedPCA(5, solver="krylov", tol=1e-8, random_state=0, max_rounds=60).fit(sites)


@pytest.mark.parametrize(
    "solver",
    [
        ep.solvers.Krylov(proxy="AFR"),
        ep.solvers.Krylov(proxy="AMR"),
        ep.solvers.Krylov(start="one-shot"),
        ep.solvers.Davidson(proxy="AFR"),
    ],
)
def test_a_proxy_that_leads_astray_is_given_up(populations: tuple[dict[str, Any], ep.FederatedPCA], solver: Any) -> None:
    """A population's own noise looked like news for more than 60 rounds."""
    sites, plain = populations
    other = ep.FederatedPCA(5, solver=solver, tol=1e-8, random_state=0, max_rounds=60).fit(sites)
    assert other.converged_
    assert other.n_rounds_ <= plain.n_rounds_ + 4


@pytest.mark.filterwarnings("ignore:beyond rounding errors:eigenpact.errors.NotIdentifiableWarning")
@given(
    sizes=st.lists(st.integers(1, 12), min_size=1, max_size=5),
    d=st.integers(2, 9),
    k=st.integers(1, 9),
    solver=st.sampled_from(["gram", "krylov", "krylov, small basis", "krylov, proxy", "krylov, one-shot", *EXPANDING]),
    center=st.sampled_from(["pooled", "site", False]),
    seed=st.integers(0, 5),
)
@settings(max_examples=60, deadline=None)
def test_any_shape_any_centre(sizes: list[int], d: int, k: int, solver: str, center: Any, seed: int) -> None:
    """Eigenvalues equal those of the scatter formed by hand, for any sizes, ranks and centring."""
    if sum(sizes) < 2:
        sizes = [*sizes, 2]
    k = min(k, d, sum(sizes))
    sites = spectrum_sites(sizes, d, seed)
    parts = list(sites.values())
    if center == "site":
        parts = [X - X.mean(axis=0) for X in parts]
    pooled = np.concatenate(parts)
    if center == "pooled":
        pooled = pooled - pooled.mean(axis=0)
    expected = np.zeros(max(d, len(pooled)))
    lengths = np.linalg.svd(pooled, compute_uv=False)
    expected[: len(lengths)] = lengths**2
    pca = fit(solver, sites, k, center=center)
    np.testing.assert_allclose(pca.singular_values_**2, expected[:k], atol=1e-10 * max(expected[0], 1e-300), rtol=1e-8)


@pytest.mark.parametrize(
    "label", ["krylov, proxy", "krylov, one-shot", "krylov, proxy and one-shot", "krylov", "gram", *EXPANDING]
)
def test_features_on_very_different_scales(label: str) -> None:
    """Deviations over five decades and k next to d: the basis stays orthonormal and the variances are right."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        d = int(rng.integers(3, 14))
        X = rng.normal(size=(60, d)) * 10.0 ** -rng.uniform(0, 5, size=d)
        k = d - 1
        pca = fit(label, {"a": X[:30], "b": X[30:]}, k, max_rounds=100)
        np.testing.assert_allclose(pca.components_ @ pca.components_.T, np.eye(k), atol=1e-10)
        expected = PCA(k, svd_solver="full").fit(X).explained_variance_
        np.testing.assert_allclose(pca.explained_variance_, expected, rtol=1e-3, atol=1e-10 * expected[0])
        assert pca.converged_


@pytest.mark.parametrize(
    ("label", "gap"),
    [
        *(
            (label, gap)
            for label in ("gram", "krylov", "krylov, proxy", "lanczos", "davidson, proxy")
            for gap in (1e-8, 1e-4, 1e-2)
        ),
        *(("krylov, small basis", gap) for gap in (1e-4, 1e-2)),
        *((label, 0.0) for label in ("gram", "krylov")),  # the cut goes through one eigenspace: any answer is as good
    ],
)
def test_angle_estimate_with_a_small_gap(label: str, gap: float) -> None:
    """Eigenvalues that nearly coincide at the cut: the estimate is never far below the truth."""
    spectrum = np.concatenate([[4, 3, 2, 1 + gap, 1], np.linspace(0.9, 0.1, 55)])
    rng = np.random.default_rng(0)
    U, V = (np.linalg.qr(rng.normal(size=(n, 60)))[0] for n in (200, 60))
    X = (U * np.sqrt(spectrum)) @ V.T
    sites = {"a": X[:80], "b": X[80:]}
    if gap == 0:
        with pytest.warns(ep.errors.NotIdentifiableWarning, match="components 4 and 5 have the same variance"):
            assert fit(label, sites, 4, center=False).angle_estimate_ is None
        return
    pca = fit(label, sites, 4, center=False)
    sine = largest_sine(pca.components_.T, V[:, :4])
    assert pca.angle_estimate_ >= 0.1 * sine


@pytest.mark.parametrize("tol", [1e-3, 1e-4, 1e-6, None])
@pytest.mark.parametrize(
    "label", ["krylov, proxy", "krylov, one-shot", "krylov, proxy and one-shot", "subspace, one-shot", *EXPANDING]
)
def test_disjoint_features_and_one_component(label: str, tol: float | None) -> None:
    """Sites on disjoint features, any tolerance, many seeds: the larger direction is found although the start misses it."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        own, other = np.zeros((40, 12)), np.zeros((40, 12))
        own[:, :6] = rng.normal(size=(40, 6)) * [3, 2, 1, 1, 1, 1]
        other[:, 6:] = 2 * rng.normal(size=(40, 6)) * [6, 2, 1, 1, 1, 1]
        sites = {"a": own, "b": other}
        pca = ep.FederatedPCA(1, solver=SOLVERS[label], center="site", tol=tol, random_state=seed).fit(sites)
        truth = np.linalg.svd(other - other.mean(axis=0), full_matrices=False)[2][:1]
        assert largest_sine(pca.components_.T, truth.T) < 0.3, seed


@pytest.mark.parametrize("solver", ["gram", "krylov"])
def test_shares_of_hard_spectra(solver: str) -> None:
    """All eigenvalues equal; rank far below d and a share next to 1; a slowly falling spectrum that takes many components."""
    square = np.linalg.qr(np.random.default_rng(0).normal(size=(120, 60)))[0]
    with pytest.warns(ep.errors.NotIdentifiableWarning, match="components 57 and 58 have the same variance"):
        pca = ep.FederatedPCA(0.949, solver=solver, center=False, random_state=0).fit([square[:50], square[50:]])
    assert pca.n_components_ == 57
    low = np.random.default_rng(1).normal(size=(40, 3)) @ np.random.default_rng(2).normal(size=(3, 12))
    assert ep.FederatedPCA(1 - 1e-15, solver=solver, random_state=0).fit([low[:9], low[9:]]).n_components_ == 3
    wide = np.random.default_rng(3).normal(size=(5, 10))
    assert ep.FederatedPCA(1 - 1e-16, solver=solver, random_state=0).fit([wide[:2], wide[2:]]).n_components_ <= 5
    slow = np.random.default_rng(4).normal(size=(600, 120)) / np.sqrt(np.arange(1, 121))
    many = ep.FederatedPCA(0.9, solver=solver, random_state=0, max_rounds=300).fit([slow[:200], slow[200:]])
    assert many.converged_
    assert many.n_components_ == PCA(0.9, svd_solver="full").fit(slow).n_components_


@pytest.mark.parametrize("n", [1000, 30000])
def test_scaling_leaves_a_constant_feature_alone(n: int) -> None:
    """A column of 0.1, whose sum rounds, is still constant."""
    X = np.random.default_rng(0).normal(size=(n, 3))
    X[:, 1] = 0.1
    pca = ep.FederatedPCA(2, scale="pooled").fit([X[: n // 3], X[n // 3 :]])
    assert pca.scale_[1] == 1
    assert np.abs(pca.components_[:, 1]).max() < 1e-6


@pytest.mark.filterwarnings("ignore::eigenpact.errors.NotConvergedWarning")
@pytest.mark.parametrize("label", SOLVERS)
@pytest.mark.parametrize("max_rounds", [1, 2, 3, 5, 8])
def test_no_more_rounds_than_allowed(label: str, max_rounds: int) -> None:
    """However few they are: what is not proved by then is not called converged, or it is refused before any."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 12)) * np.linspace(3, 1, 12)
    truth = PCA(3, svd_solver="full").fit(X).components_.T
    pca = ep.FederatedPCA(3, solver=SOLVERS[label], max_rounds=max_rounds, random_state=0)
    begins_with_a_round = getattr(SOLVERS[label], "start", None) == "one-shot" or (
        label.startswith("faps") and label != "faps, random"
    )
    if max_rounds < (5 if label.startswith("shift-invert") else 2 if begins_with_a_round else 1):
        with pytest.raises(InputError, match="max_rounds"):
            pca.fit({"a": X[:40], "b": X[40:]})
        return
    pca.fit({"a": X[:40], "b": X[40:]})
    assert pca.n_rounds_ <= max_rounds
    assert largest_sine(pca.components_.T, truth) <= 1e-5 or not pca.converged_

"""The loop of krylov, lanczos and davidson: the same spaces as by hand, fewer rounds with a proxy, and estimates that hold."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import eigenpact as ep
from eigenpact.algorithms import expansion
from eigenpact.algorithms.stand import HINDSIGHT, SAFETY, Past
from eigenpact.errors import InputError
from eigenpact.numerics.certificate import certify
from eigenpact.numerics.linalg import random_orthonormal
from eigenpact.numerics.metrics import largest_sine

Matrix = np.ndarray[Any, Any]


def gap_problem(decay: float, seed: int, m: int = 10, n: int = 600, d: int = 120) -> tuple[dict[str, Matrix], Matrix]:
    """Sites of one distribution with eigenvalues 1, .98, .98 decay, ..., and the pooled leading eigenvector (d x 1)."""
    rng = np.random.default_rng(seed)
    variances = np.concatenate([[1.0], 0.98 * decay ** np.arange(d - 1)])
    basis = np.linalg.qr(rng.normal(size=(d, d)))[0]
    sites = {f"s{i:02d}": rng.normal(size=(n, d)) * np.sqrt(variances) @ basis.T for i in range(m)}
    C = sum(X.T @ X for X in sites.values())
    return sites, np.linalg.eigh(C)[1][:, -1:]


def test_lanczos_spans_the_krylov_space() -> None:
    """After t rounds the Ritz values are those of span(B, C B, ..., C^(t-1) B), formed densely."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 14)) * np.linspace(3, 1, 14)
    seen: list[Any] = []
    pca = ep.FederatedPCA(2, solver="lanczos", center=False, random_state=3, tol=1e-13, callback=seen.append)
    pca.fit({"a": X[:20], "b": X[20:]})
    C = X.T @ X
    seed = int(np.random.RandomState(3).randint(np.iinfo(np.int32).max))
    B = random_orthonormal(14, 6, seed)  # four columns more than components
    space = B
    for t in range(2):
        Q = np.linalg.qr(space)[0]
        values, Y = np.linalg.eigh(Q.T @ C @ Q)
        assert largest_sine(seen[t].basis, Q @ Y[:, -2:]) < 1e-9
        assert seen[t].objective == pytest.approx(values[-2:].sum() / np.trace(C), rel=1e-10)
        space = np.column_stack([space, C @ space[:, -6:]])
        space /= np.linalg.norm(space, axis=0)


@pytest.mark.parametrize("decay", [0.9, 0.97])
def test_davidson_takes_fewer_rounds_and_both_stop_where_they_say(decay: float) -> None:
    """A gap of .02: to an estimated sine of 1e-4, which the true one does not exceed by more than a little."""
    for seed in range(3):
        sites, truth = gap_problem(decay, seed)
        rounds = {}
        for solver in (
            ep.solvers.Lanczos(start="one-shot", angle_tol=1e-4),
            ep.solvers.Davidson(proxy=0, start="one-shot", angle_tol=1e-4),
        ):
            pca = ep.FederatedPCA(1, solver=solver, center=False, random_state=0).fit(sites)
            sine = largest_sine(pca.components_.T, truth)
            assert pca.converged_
            assert pca.angle_estimate_ <= 1e-4
            assert sine <= 1e-4
            assert sine >= pca.angle_estimate_ / 300
            assert "estimated sine" in pca.stop_reason_
            rounds[solver.name] = pca.n_rounds_
        assert rounds["davidson"] <= rounds["lanczos"]


def test_public_rows_precondition_too() -> None:
    """Rows of the same distribution that belong to no site serve as well as a site's own."""
    sites, truth = gap_problem(0.9, 5)
    public = sites.pop("s00")
    C = sum(X.T @ X for X in sites.values())
    truth = np.linalg.eigh(C)[1][:, -1:]
    plain, helped = (
        ep.FederatedPCA(1, solver=ep.solvers.Davidson(proxy=proxy), center=False, random_state=0).fit(sites)
        for proxy in (None, public)
    )
    for pca in (plain, helped):
        assert largest_sine(pca.components_.T, truth) < 1e-9
    assert helped.n_rounds_ <= plain.n_rounds_
    assert all(message.function not in ("keep_spectrum", "precondition") for message in helped.ledger_)


@pytest.mark.parametrize(
    "solver",
    [
        ep.solvers.Lanczos(max_blocks=3),
        ep.solvers.Davidson(proxy="s01", start="one-shot", max_blocks=3),
        ep.solvers.Krylov(proxy="s00", max_blocks=3),
    ],
)
def test_resumes_to_the_same_bits(solver: Any, tmp_path: Path) -> None:
    """Stopped after some rounds and run again with its journal, restarts and all."""
    sites, _ = gap_problem(0.97, 1, m=3, n=100, d=60)
    whole = ep.FederatedPCA(2, solver=solver, random_state=0).fit(sites)
    assert whole.n_rounds_ > 7

    class Stop(Exception):
        pass

    def stop(record: Any) -> None:
        if record.round == 5:
            raise Stop

    journal = tmp_path / "run.journal"
    with pytest.raises(Stop):
        ep.FederatedPCA(2, solver=solver, random_state=0, journal=journal, callback=stop).fit(sites)
    resumed = ep.FederatedPCA(2, solver=solver, random_state=0, journal=journal).fit(sites)
    assert resumed.components_.tobytes() == whole.components_.tobytes()
    assert resumed.n_rounds_ == whole.n_rounds_


STARTED = [
    ep.solvers.Lanczos(start="one-shot", angle_tol=1e-4),
    ep.solvers.Davidson(proxy=0, start="one-shot", angle_tol=1e-3),
    ep.solvers.Power(start="one-shot", angle_tol=1e-3),
    ep.solvers.ShiftInvert(start="one-shot", angle_tol=1e-3),
]


@pytest.mark.parametrize("solver", STARTED, ids=lambda solver: solver.name)
def test_a_start_at_another_eigenvector_is_left(solver: Any) -> None:
    """Every site's own first direction is its own; the pooled first one is second everywhere, so the merge misses it."""
    rng = np.random.default_rng(0)
    sites = {}
    for i in range(4):
        variances = np.full(20, 0.1)
        variances[i], variances[10] = 2 + 0.1 * (4 - i), 0.7
        sites[f"s{i}"] = np.linalg.qr(rng.normal(size=(400, 20)))[0] * np.sqrt(variances)
    pca = ep.FederatedPCA(1, solver=solver, center=False, random_state=0).fit(sites)
    assert largest_sine(pca.components_.T, np.eye(20)[:, 10:11]) < 0.01


@pytest.mark.parametrize("solver", ["lanczos", "davidson", "power", "shift-invert"])
def test_all_components_have_no_angle(solver: str) -> None:
    """With k = d there is nothing outside."""
    X = np.random.default_rng(0).normal(size=(60, 4)) * [4, 3, 2, 1]
    assert ep.FederatedPCA(4, solver=solver, random_state=0).fit([X[:20], X[20:]]).angle_estimate_ == 0.0


@pytest.mark.parametrize("factor", [1e-150, 1e150])
def test_units_beyond_float64_are_refused(factor: float) -> None:
    """Norms would vanish or overflow: the message says what to do."""
    X = np.random.default_rng(0).normal(size=(60, 4)) * factor
    with pytest.raises(InputError, match="give the data in other units"):
        ep.FederatedPCA(2, solver="lanczos", center=False).fit([X[:20], X[20:]])


def test_a_one_shot_start_needs_a_second_round() -> None:
    """No solver takes more rounds than it may."""
    sites, _ = gap_problem(0.9, 0, m=2, n=30, d=10)
    for solver in (ep.solvers.Krylov(start="one-shot"), ep.solvers.Lanczos(start="one-shot"), ep.solvers.Power(start="one-shot")):
        with pytest.raises(InputError, match="max_rounds=1 leaves no round after a one-shot start"):
            ep.FederatedPCA(1, solver=solver, max_rounds=1).fit(sites)


def test_hindsight() -> None:
    """Bounds that proved too large lower the next one, those that did not leave it as it is; a single one, or one of a round that
    was hardly worse, tells nothing; old ones are forgotten."""

    def at(angle: float) -> Matrix:
        return np.array([[np.cos(angle)], [np.sin(angle)], [0.0]])

    Z, past = at(0.0), Past.empty().add(at(1e-2), 1e-1)
    assert Past.empty().factor(Z, 1e-9) == 1.0
    assert past.factor(Z, 1e-9) == 1.0
    past = past.add(at(1e-3), 1e-2)
    assert past.factor(Z, 1e-9) == pytest.approx(SAFETY * 0.1, rel=1e-3)
    assert past.factor(Z, 9e-3) == 1.0
    assert Past.empty().add(at(1e-2), 1e-2).add(at(1e-3), 1e-3).factor(Z, 1e-9) == 1.0
    for _ in range(HINDSIGHT):
        past = past.add(Z, 0.1)
    assert past.bases.shape == (3, HINDSIGHT)
    assert past.factor(Z, 1e-9) == 0.0


def test_hindsight_is_the_same_inside_a_space_and_outside() -> None:
    """Bases as columns in Q, of which there are more from round to round, have the angles that they have in all features."""
    rng = np.random.default_rng(0)
    Q = np.linalg.qr(rng.normal(size=(30, 9)))[0]
    inside, outside = Past.empty(), Past.empty()
    for m, bound in ((5, 1e-1), (7, 1e-2)):
        T = np.linalg.qr(np.eye(m, 2) + 0.02 * bound * rng.normal(size=(m, 2)))[0]
        inside, outside = inside.add(T, bound), outside.add(Q[:, :m] @ T, bound)
    Z = np.eye(9, 2)
    assert inside.factor(Z, 1e-9) == pytest.approx(outside.factor(Q @ Z, 1e-9), rel=1e-9) != 1.0
    turned = inside.outside(Q)
    np.testing.assert_allclose(turned.bases, outside.bases, atol=1e-14)
    assert not turned.inside
    assert Past.of(inside.state()).inside
    assert not Past.of(turned.state()).inside


def plateau_problem() -> tuple[dict[str, Matrix], Matrix]:
    """Sites whose variances fall so slowly that no gap is seen for many rounds, and the pooled leading eigenvectors (d x 4)."""
    X = np.random.default_rng(0).normal(size=(2000, 800)) * np.sqrt(0.998 ** np.arange(800))
    return {"a": X[:900], "b": X[900:]}, np.linalg.eigh(X.T @ X)[1][:, -4:]


@pytest.mark.parametrize(("problem", "k"), [(partial(gap_problem, 0.97, 0, m=2, n=200), 1), (plateau_problem, 4)])
def test_a_proof_is_looked_for_only_where_it_can_end_the_loop(
    problem: Callable[[], tuple[dict[str, Matrix], Matrix]], k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the space is too small to tell, and in the last round; rounds and answer are those of looking each time."""
    sites, truth = problem()
    looks: list[int] = []

    def counted(*args: Any) -> Any:
        looks[-1] += 1
        return certify(*args)

    monkeypatch.setattr(expansion, "certify", counted)
    found = []
    for soon in (expansion.SOON, np.inf):
        monkeypatch.setattr(expansion, "SOON", soon)
        looks.append(0)
        found.append(ep.FederatedPCA(k, solver="krylov", center=False, random_state=0).fit(sites))
    assert found[0].n_rounds_ == found[1].n_rounds_
    np.testing.assert_array_equal(found[0].components_, found[1].components_)
    assert found[0].angle_estimate_ == pytest.approx(found[1].angle_estimate_, rel=1e-6)
    assert largest_sine(found[0].components_.T, truth) <= 1e-8
    assert looks[0] <= 4 < looks[1] / 3


def test_more_blocks_are_kept_where_they_take_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """By default thirty, or as many as fit, up to sixty; a number that was given counts."""
    setup: Any = SimpleNamespace(n_components=6, n_features=1000, n_samples=1000)
    assert expansion._most_columns(setup, None, 6) == 60 * 10
    assert expansion._most_columns(setup, 7, 6) == 7 * 10
    monkeypatch.setattr(expansion, "NUMBERS", 2 * 1000 * 10 * 40)
    assert expansion._most_columns(setup, None, 6) == 40 * 10
    setup.n_features = 10**9
    assert expansion._most_columns(setup, None, 6) == 30 * 10


@pytest.mark.parametrize("solver", ["lanczos", "davidson"])
def test_too_few_rounds_are_told(solver: str) -> None:
    """The warning names the limit, the residual and what to do."""
    sites, _ = gap_problem(0.97, 0, m=2, n=50, d=30)
    with pytest.warns(ep.errors.NotConvergedWarning, match=r"max_rounds=3 reached at scaled KKT residual .* raise max_rounds"):
        pca = ep.FederatedPCA(1, solver=solver, random_state=0, max_rounds=3).fit(sites)
    assert pca.n_rounds_ == 3


def test_parameters_are_checked() -> None:
    """Each message names the value and what is allowed."""
    for make in (ep.solvers.Krylov, ep.solvers.Lanczos, ep.solvers.Davidson):
        with pytest.raises(InputError, match="angle_tol=2 must be a sine between 0 and 1"):
            make(angle_tol=2)
        with pytest.raises(InputError, match="max_blocks=2 must be a whole number >= 3"):
            make(max_blocks=2)
        with pytest.raises(InputError, match="start='warm' must be one of random, one-shot"):
            make(start="warm")  # type: ignore[arg-type]
    sites, _ = gap_problem(0.9, 0, m=2, n=30, d=10)
    with pytest.raises(InputError, match="proxy='x' is not a site"):
        ep.FederatedPCA(1, solver=ep.solvers.Davidson(proxy="x")).fit(sites)
    with pytest.raises(InputError, match=r"proxy rows have shape \(3, 4\)"):
        ep.FederatedPCA(1, solver=ep.solvers.Davidson(proxy=np.ones((3, 4)))).fit(sites)


def uneven(d: int, ratio: float, seed: int) -> tuple[dict[str, Matrix], Matrix]:
    """Correlated features, the fourth one ``ratio`` times larger; and the leading four directions (d x 4) by deflation.

    The first direction comes from power steps in extended precision, the others from rows without it, where nothing dwarfs them.
    """
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(300, d)) @ np.diag(1.1 ** -np.arange(d)) @ rng.normal(size=(d, d))
    X[:, 3] *= ratio
    rows = X.astype(np.longdouble)
    rows -= rows.mean(axis=0)
    first = np.eye(d, dtype=np.longdouble)[3]
    for _ in range(8):
        first = rows.T @ (rows @ first)
        first /= np.sqrt(first @ first)
    for _ in range(2):
        rows = rows - np.outer(rows @ first, first)
    others = np.linalg.eigh((rows.T @ rows).astype(float))[1][:, ::-1][:, :3]
    return {"a": X[:100], "b": X[100:]}, np.linalg.qr(np.column_stack([first.astype(float), others]))[0]


UNEVEN = [
    ep.solvers.Krylov(),
    ep.solvers.Krylov(max_blocks=3),
    ep.solvers.Krylov(proxy="a"),
    ep.solvers.Lanczos(),
    ep.solvers.Davidson(proxy="a"),
    ep.solvers.Gram(),
]


@pytest.mark.parametrize("solver", UNEVEN)
@pytest.mark.parametrize(("d", "ratio"), [(12, 1e6), (40, 1e5), (40, 1e7), (400, 1e7)])
def test_a_dwarfing_feature_costs_neither_digits_nor_rounds(solver: Any, d: int, ratio: float) -> None:
    """Products made anew with the Ritz vectors have the digits that the first ones lost: proved to 1e-8, in few rounds."""
    sites, truth = uneven(d, ratio, 1)
    pca = ep.FederatedPCA(4, solver=solver, random_state=0).fit(sites)
    sine = largest_sine(pca.components_.T, truth)
    assert pca.converged_
    assert sine <= pca.angle_estimate_ <= 1e-8
    assert pca.n_rounds_ <= 12


@pytest.mark.parametrize("decay", [0.9, 0.97, 0.99])
@pytest.mark.parametrize(
    "solver", [ep.solvers.Lanczos(max_blocks=3), ep.solvers.Krylov(max_blocks=5), ep.solvers.Davidson(proxy="s01", max_blocks=3)]
)
def test_a_small_space_proves_its_answer_too(solver: Any, decay: float) -> None:
    """With few columns of the random block left after a restart, an angle is found, not much later than in a space that grows."""
    sites, _ = gap_problem(decay, 1, m=3, n=100, d=60)
    X = np.concatenate(list(sites.values()))
    pca = ep.FederatedPCA(2, solver=solver, random_state=0).fit(sites)
    free = ep.FederatedPCA(2, solver="lanczos", random_state=0).fit(sites)
    truth = np.linalg.svd(X - X.mean(axis=0))[2][:2].T
    assert pca.converged_
    assert largest_sine(pca.components_.T, truth) <= pca.angle_estimate_ <= 1e-8
    assert pca.n_rounds_ <= 3 * free.n_rounds_


def spectrum_rows(lengths: Matrix, n: int, rng: np.random.Generator) -> tuple[Matrix, Matrix]:
    """Centred rows (n x d) with these d singular values, and their right singular vectors (d x d)."""
    left = rng.normal(size=(n, len(lengths)))
    left = np.linalg.qr(left - left.mean(axis=0))[0]
    right = np.linalg.qr(rng.normal(size=(len(lengths), len(lengths))))[0]
    return (left * lengths) @ right.T, right


@pytest.mark.parametrize(
    "solver",
    [ep.solvers.Krylov(), ep.solvers.Krylov(max_blocks=10), ep.solvers.Lanczos(max_blocks=8), ep.solvers.Lanczos(angle_tol=1e-9)],
)
def test_restarts_leave_the_estimate_honest(solver: Any) -> None:
    """Dozens of rounds and a relative gap of 3e-6: eigenvectors that were a little askew made it a hundred times too small."""
    rng = np.random.default_rng(7)
    lengths = np.sort(rng.uniform(1, 2, 250))[::-1]
    lengths[1] = lengths[2] * (1 + 1.5e-6)
    X, truth = spectrum_rows(np.sort(lengths)[::-1], 350, rng)
    for seed in range(3):
        pca = ep.FederatedPCA(2, solver=solver, random_state=seed).fit({"a": X[:100], "b": X[100:]})
        assert pca.converged_
        assert pca.n_rounds_ > 20
        assert largest_sine(pca.components_.T, truth[:, :2]) <= max(pca.angle_estimate_, 3e-10)  # X itself is rounded


@pytest.mark.parametrize("max_blocks", [3, 5, 8])
def test_one_component_in_a_small_space(max_blocks: int) -> None:
    """Of 150 features with a relative gap of 2 %: proved, where it took 200 rounds and was not."""
    X, truth = spectrum_rows(np.concatenate([[10.0], np.linspace(9.9, 1, 149)]), 200, np.random.default_rng(0))
    pca = ep.FederatedPCA(1, solver=ep.solvers.Lanczos(max_blocks=max_blocks), random_state=0).fit({"a": X[:50], "b": X[50:]})
    assert pca.n_rounds_ <= 100
    assert largest_sine(pca.components_.T, truth[:, :1]) <= pca.angle_estimate_ <= 1e-8


@pytest.mark.parametrize("solver", ["gram", "krylov", "subspace"])
@pytest.mark.parametrize("offset", [1e10, 1e12, 1e14])
def test_offsets_of_each_site_are_in_the_estimate(solver: str, offset: float) -> None:
    """A mean is rounded as far from the origin as it lies, whether one is subtracted or each site's own."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 20)) @ np.diag(1.2 ** -np.arange(20.0))
    sites = {"a": X[:60] + offset, "b": X[60:] - offset * rng.normal(size=20)}
    held = [rows.astype(np.longdouble) for rows in sites.values()]
    exact = np.concatenate([rows - rows.mean(axis=0) for rows in held])
    truth = np.linalg.svd(exact.astype(float))[2][:3].T
    pca = ep.FederatedPCA(3, solver=solver, center="site", random_state=0).fit(sites)
    assert largest_sine(pca.components_.T, truth) <= 3 * pca.angle_estimate_ <= 0.1
    assert ("limits the sine" in pca.stop_reason_) == (offset >= 1e12)


@pytest.mark.parametrize("solver", ["gram", "krylov", "davidson", "subspace", "one-shot"])
def test_variance_that_squares_cannot_resolve_is_told(solver: str) -> None:
    """A second component 1e9 times shorter than the first is lost in sums of squares: no word of convergence alone."""
    X, _ = spectrum_rows(np.array([1e9, 1.0, 0.5, 0.3, 0.2]), 60, np.random.default_rng(0))
    with pytest.warns(ep.errors.NotIdentifiableWarning, match="beyond rounding errors"):
        pca = ep.FederatedPCA(2, solver=solver, random_state=0, max_rounds=50).fit({"a": X[:20], "b": X[20:]})
    assert pca.angle_estimate_ is None


@pytest.mark.parametrize("solver", ["one-shot", "hot-potato"])
def test_an_angle_that_one_round_leaves_unknown_is_not_put_down_to_a_dwarfing_feature(solver: str) -> None:
    """Its share is told, without a warning that components are lost: in units of 1e5 they are not."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 200)) * np.r_[1e5, 1.003 ** -np.arange(199.0)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pca = ep.FederatedPCA(3, solver=solver, random_state=0).fit({"a": X[:100], "b": X[100:]})
    assert pca.angle_estimate_ is None
    assert "feature 0 has" in pca.stop_reason_


@pytest.mark.parametrize("solver", [ep.solvers.Krylov, ep.solvers.Davidson, ep.solvers.ShiftInvert])
def test_a_proxy_whose_squares_overflow_is_refused(solver: Any) -> None:
    """Not by an error of LAPACK's."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 6)) * np.arange(1, 7)
    with pytest.raises(InputError, match="proxy's values overflow"):
        ep.FederatedPCA(2, solver=solver(proxy=rng.normal(size=(5, 6)) * 1e200)).fit({"a": X[:20], "b": X[20:]})


@pytest.mark.parametrize("solver", ["gram", "krylov", "lanczos", "davidson", "subspace", "faps"])
def test_a_gap_that_rounding_hides_is_told(solver: str) -> None:
    """Components 2 and 3 differ by 1e-8 of themselves, but beside a first one 1e7 times larger nobody can tell."""
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(400, 8))
    scores = np.linalg.qr(scores - scores.mean(axis=0))[0]
    X = (scores * [1e7, 1 + 1e-8, 1, 0.5, 0.3, 0.2, 0.1, 0.1]) @ np.linalg.qr(rng.normal(size=(8, 8)))[0]
    with pytest.warns(ep.errors.NotIdentifiableWarning, match="components 2 and 3"):
        pca = ep.FederatedPCA(2, solver=solver, random_state=0, max_rounds=400).fit({"a": X[:200], "b": X[200:]})
    assert pca.converged_
    assert pca.angle_estimate_ is None


def test_single_precision_is_told_and_huge_offsets_do_not_overflow() -> None:
    """The reason names what limits the angle; the square of a mean of 1e200 is never taken."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 6)) * np.arange(1, 7)
    single = ep.FederatedPCA(2).fit({"a": X[:20].astype(np.float32), "b": X[20:].astype(np.float32)})
    assert "single precision limits the sine to about 6.0e-08" in single.stop_reason_
    far = ep.FederatedPCA(2, solver="gram").fit({"a": X[:20] + 1e14, "b": X[20:] + 1e14})
    assert "the rows' distance from the origin limits the sine" in far.stop_reason_
    with pytest.warns(ep.errors.NotIdentifiableWarning, match="fewer than 1 directions"):
        ep.FederatedPCA(1).fit({"a": np.full((5, 2), 1e200)})


TAILS = [(300, 100, [0.3, 0.5, 0.7, 0.8]), (462, 61, [0.95, 0.965, 0.98, 0.99]), (389, 162, [0.78])]


@pytest.mark.parametrize(("n", "d", "tail"), TAILS)
def test_a_share_of_the_variance_where_many_values_are_equal(n: int, d: int, tail: list[float]) -> None:
    """More than the first random block has columns: it has nothing of some of these directions, and cannot tell so."""
    sizes = np.append(np.ones(d - len(tail)), tail)
    X = np.linalg.qr(np.random.default_rng(5).normal(size=(n, d)))[0] * sizes
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ep.errors.NotIdentifiableWarning)
        pca = ep.FederatedPCA(0.9, solver="krylov", center=False, random_state=5).fit({"A": X})
    shares = np.cumsum(sizes**2) / np.sum(sizes**2)
    assert pca.n_components_ == np.argmax(shares > 0.9) + 1
    np.testing.assert_allclose(pca.singular_values_, 1.0, rtol=1e-12)  # any of the equal directions will do
    assert pca.converged_
    assert pca.angle_estimate_ is None


@pytest.mark.parametrize("share", [0.9, 0.99])
def test_a_share_of_equal_variances_in_few_rows(share: float) -> None:
    """Ritz values that do not add up to the trace are not all there are."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ep.errors.NotIdentifiableWarning)
        pca = ep.FederatedPCA(share, solver="krylov", center=False, random_state=0).fit({"A": np.eye(19, 28)})
    assert pca.n_components_ == {0.9: 18, 0.99: 19}[share]
    np.testing.assert_allclose(pca.singular_values_, 1.0, rtol=1e-12)

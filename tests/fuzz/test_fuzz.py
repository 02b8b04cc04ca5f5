"""Every solver is right, refuses, or says honestly that it is not: about 300 fits here, thousands with ``make fuzz``.

The judge is judged, too: it must call wrong what is wrong.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from sklearn.decomposition import PCA

import eigenpact as ep
from tests.fuzz.judge import Answer, Asked, Verdict, answer, judge
from tests.fuzz.problems import FAMILIES, Problem, problem
from tests.fuzz.run import SOLVERS, Case, angle_option, attempt, counts, draw, table
from tests.fuzz.truth import EPS, decomposed, truth

ROUNDS, REPLIES = 200, 4000
"""Enough for most; who needs more must say that it did not converge."""

SEEDS = st.integers(0, 2**31 - 1)
TOLS = st.sampled_from([None, None, None, 1e-4, 1e-6, 1e-9])
ANGLES = st.sampled_from([None, None, None, 1e-2, 1e-4])


def few_examples(number: int) -> Any:
    """So many examples, the same in every run; nothing to shrink, because a seed is not smaller than another."""
    return settings(max_examples=number, derandomize=True, deadline=None, database=None, phases=[Phase.explicit, Phase.generate])


def assert_not_wrong(family: str, seed: int, solver: str, tol: float | None, angle: float | None) -> None:
    case = Case(family, seed, solver, tol, angle if tol is None and angle_option(solver) else None)
    tried = attempt(case, ROUNDS, REPLIES)
    assert tried.verdict.word != "wrong", f"{tried.verdict}\n{case.command}"


@pytest.mark.parametrize("family", FAMILIES)
@given(seed=SEEDS, solver=st.sampled_from(list(SOLVERS)), tol=TOLS, angle=ANGLES)
@few_examples(9)
def test_every_family(family: str, seed: int, solver: str, tol: float | None, angle: float | None) -> None:
    """No solver is silently wrong on this family's problems."""
    assert_not_wrong(family, seed, solver, tol, angle)


@pytest.mark.parametrize("solver", SOLVERS)
@given(seed=SEEDS, family=st.sampled_from(list(FAMILIES)), tol=TOLS, angle=ANGLES)
@few_examples(4)
def test_every_solver(solver: str, seed: int, family: str, tol: float | None, angle: float | None) -> None:
    """This solver is never silently wrong."""
    assert_not_wrong(family, seed, solver, tol, angle)


# -- the problems -------------------------------------------------------------------------------------


def test_families() -> None:
    """There are 26, each problem is determined by family and seed, and all are small."""
    assert len(FAMILIES) == 26
    for family in FAMILIES:
        for seed in range(5):
            one, other = problem(family, seed), problem(family, seed)
            n, d = one.shape
            assert 1 <= one.k <= min(n, d) <= 120
            assert n <= 560
            assert (one.k, one.center, one.scale, list(one.sites)) == (other.k, other.center, other.scale, list(other.sites))
            for name, X in one.sites.items():
                assert (other.sites[name] != X).sum() == 0
        assert any(not _same_rows(one, problem(family, seed)) for seed in range(5, 8))


def _same_rows(one: Problem, other: Problem) -> bool:
    return one.shape == other.shape and np.array_equal(truth(one).Y, truth(other).Y)


def test_draw_meets_every_pair() -> None:
    """All pairs of family and solver come in turn; a case's text names it."""
    cases = [case for _, case in zip(range(len(FAMILIES) * len(SOLVERS)), draw(0), strict=False)]
    assert len({(case.family, case.solver) for case in cases}) == len(cases)
    assert all(Case.parse(str(case)) == case for case in cases)
    assert {case.tol for case in cases} == {None, 1e-4, 1e-6, 1e-9}
    assert {case.angle_tol for case in cases} == {None, 1e-2, 1e-4}


# -- the truth ----------------------------------------------------------------------------------------


def plain(k: int = 2, offset: float = 0.0, **asked: Any) -> Problem:
    """Two sites with standard deviations 5, 4, ..., 1 in turned axes."""
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(60, 5)) * [5, 4, 3, 2, 1]) @ np.linalg.qr(rng.normal(size=(5, 5)))[0] + offset
    return Problem({"A": X[:20], "B": X[20:]}, k, **asked)


def test_truth_is_scikit_learns() -> None:
    """Eigenvalues and vectors are those of the pooled PCA, and rounding allows about eps."""
    made = plain()
    true = truth(made)
    reference = PCA(2, svd_solver="full").fit(np.concatenate(list(made.sites.values())))
    assert true.sine(reference.components_.T) < 1e-14
    variances = true.eigenvalues[:2] * float(true.unit) ** 2 / 59
    np.testing.assert_allclose(variances, reference.explained_variance_, rtol=1e-13)
    assert true.cut == "clear"
    assert EPS < true.angle < 1e-13


@pytest.mark.parametrize("offset", [1e4, 1e8])
def test_truth_knows_what_an_offset_costs(offset: float) -> None:
    """Data given again with other roundings give another answer: by what rounding is said to allow, not much less or more."""
    for scale in (None, "pooled"):
        made = plain(offset=offset, scale=scale)
        rng = np.random.default_rng(1)
        true, changes = truth(made), []
        for _ in range(5):
            sites = {name: X * (1 + EPS * rng.uniform(-1, 1, X.shape)) for name, X in made.sites.items()}
            changes.append(true.sine(truth(Problem(sites, 2, scale=scale)).leading))
        assert max(changes) < true.angle < 200 * max(changes)


def test_truth_knows_a_small_gap_and_a_tie() -> None:
    """A relative gap g allows eps / g; equal eigenvalues are a tie; a large feature hides what lies 16 decades below."""
    rng = np.random.default_rng(0)
    U = np.linalg.qr(rng.normal(size=(40, 4)) - 0)[0]
    U = np.linalg.qr(U - U.mean(axis=0))[0]
    for g, cut in ((1e-3, "clear"), (1e-10, "clear"), (1e-14, "vague"), (0.0, "tie")):
        true = truth(Problem({"A": U * np.sqrt([2, 1, 1 - g, 0.5])}, 2))
        assert true.cut == cut
        if g > 1e-12:
            assert EPS / g < true.angle < 100 * EPS / g
    assert truth(Problem({"A": U * [1e9, 2, 1, 0.5]}, 2)).cut != "clear"
    assert truth(Problem({"A": np.ones((5, 3))}, 2)).cut == "tie"
    assert truth(Problem({"A": U}, 4)).cut == "clear"  # no cut at all


def test_truth_of_extremes_and_constants() -> None:
    """Neither small nor large values, nor a constant far from zero, disturb it."""
    made = plain(scale="pooled")
    true = truth(made)
    for factor in (1e-170, 1e300):
        other = truth(Problem({name: X * factor for name, X in made.sites.items()}, 2, scale="pooled"))
        assert other.sine(true.leading) < 1e-13
    more = truth(Problem({name: np.column_stack([X, np.full(len(X), 0.1)]) for name, X in made.sites.items()}, 2, scale="pooled"))
    assert np.abs(more.leading[5]).max() < 1e-14


# -- the judge ----------------------------------------------------------------------------------------


def verdict(made: Problem, asked: Asked = Asked(1e-8), warned: tuple[Any, ...] = (), **changes: Any) -> Verdict:  # noqa: B008
    """On an exact answer with these attributes changed."""
    true = truth(made)
    size = float(true.unit) ** 2
    exact = {
        "components_": true.leading.T,
        "explained_variance_": true.eigenvalues[: made.k] * size / (true.n - 1),
        "explained_variance_ratio_": true.eigenvalues[: made.k] / true.trace,
        "angle_estimate_": 1e-12,
        "converged_": True,
    }
    return judge(Answer(SimpleNamespace(**(exact | changes)), warned=warned), true, asked)


def turned(made: Problem, sine: float, j: int = 2) -> np.ndarray[Any, Any]:
    """The exact components, the last one turned by this sine towards eigenvector j."""
    V = truth(made).V
    last = np.sqrt(1 - sine**2) * V[:, made.k - 1] + sine * V[:, j]
    return np.column_stack([V[:, : made.k - 1], last]).T


def test_judge_lets_right_answers_pass() -> None:
    """An exact answer, in whatever order and signs its span is given; a small error; a larger one, asked for or admitted."""
    made = plain()
    assert verdict(made).word == "right"
    assert verdict(made, components_=-truth(made).leading.T[::-1]).word == "right"
    assert verdict(made, components_=turned(made, 5e-8), angle_estimate_=1e-8).word == "right"
    assert verdict(made, Asked(1e-2), components_=turned(made, 5e-3), angle_estimate_=5e-3).word == "right"
    assert verdict(made, components_=turned(made, 1e-3), angle_estimate_=1e-3).word == "coarse"
    assert verdict(made, angle_estimate_=None).word == "unknown"
    assert verdict(made, Asked(1e-8, tol=1e-4), components_=turned(made, 1e-4), angle_estimate_=1e-4).word == "right"
    assert answer(ep.FederatedPCA(9), made.sites).error is not None
    assert judge(answer(ep.FederatedPCA(9), made.sites), truth(made), Asked(1e-8)).word == "refused"
    assert judge(answer(ep.FederatedPCA(2, solver="gram"), made.sites), truth(made), Asked(1e-8)).word == "right"


@pytest.mark.parametrize(
    ("why", "changes"),
    [
        ("sine", {"components_": ("turned", 1e-3)}),
        ("sine", {"components_": ("turned", 1.0), "angle_estimate_": 1e-9}),
        ("claims", {"components_": ("turned", 1e-6), "angle_estimate_": 1e-9}),
        ("sine", {"components_": ("turned", 1e-3), "angle_estimate_": None}),
        ("orthonormal", {"components_": ("times", 1 + 1e-9)}),
        ("orthonormal", {"components_": ("times", np.nan)}),
        ("variances", {"explained_variance_": ("times", 1 + 1e-9)}),
        ("variances", {"explained_variance_": ("times", np.nan)}),
        ("ratios", {"explained_variance_ratio_": ("times", 1 + 1e-9)}),
        ("no warning", {"converged_": False}),
        ("estimated as", {"angle_estimate_": np.nan}),
    ],
)
def test_judge_calls_wrong_what_is(why: str, changes: dict[str, Any]) -> None:
    """A turned basis, a false angle, rows that are not orthonormal, other variances, silence."""
    made = plain()
    true = truth(made)
    values = {
        "components_": true.leading.T,
        "explained_variance_": true.eigenvalues[:2] * float(true.unit) ** 2 / 59,
        "explained_variance_ratio_": true.eigenvalues[:2] / true.trace,
    }
    for name, change in changes.items():
        if isinstance(change, tuple):
            changes = changes | {name: turned(made, change[1]) if change[0] == "turned" else values[name] * change[1]}
    found = verdict(made, **changes)
    assert found.word == "wrong"
    assert why in found.why
    assert why in str(found)


def test_judge_of_a_tolerance() -> None:
    """Asked for a residual, the residual counts; and an invariant subspace that is not the leading one is wrong."""
    made = plain()
    loose = Asked(1e-8, tol=1e-4)
    assert "residual" in verdict(made, loose, components_=turned(made, 0.1), angle_estimate_=0.1).why
    other = truth(made).V[:, [0, 2]].T
    missed = verdict(made, loose, components_=other, angle_estimate_=1.0)
    assert missed.residual is not None
    assert missed.residual < 1e-15
    assert "a direction is missed" in missed.why
    assert verdict(made, loose, components_=turned(made, 1e-4), angle_estimate_=1e-7).word == "wrong"


def test_judge_at_a_tie() -> None:
    """A warning is right, a claim is wrong, and the directions that are determined still count."""
    rng = np.random.default_rng(0)
    U = np.linalg.qr(rng.normal(size=(40, 5)))[0]
    U = np.linalg.qr(U - U.mean(axis=0))[0]
    made = Problem({"A": U * [3, 2, 2, 2, 1]}, 2)
    other, bad = turned(made, 1.0, 3), turned(made, 1.0, 4)
    tie = (ep.errors.NotIdentifiableWarning,)
    variances = {
        name: getattr(PCA(2).fit(made.sites["A"]), name) for name in ("explained_variance_", "explained_variance_ratio_")
    }
    assert verdict(made, warned=tie, components_=other, angle_estimate_=None, **variances).word == "not identifiable"
    assert "at a tie" in verdict(made, components_=other, **variances).why
    assert verdict(made, components_=other, angle_estimate_=1.0, **variances).word == "coarse"
    assert "missed" in verdict(made, warned=tie, components_=bad, angle_estimate_=None).why
    assert verdict(plain(), warned=tie, angle_estimate_=None).word == "unknown"  # a false alarm is no answer


def test_judge_of_errors_warnings_and_estimates() -> None:
    """A crash or a stray warning is wrong; not to converge is honest if it is said; an estimate answers for its angle alone."""
    made = plain()
    assert judge(Answer(error=ZeroDivisionError("x")), truth(made), Asked(1e-8)).word == "wrong"
    assert verdict(made, warned=(RuntimeWarning,)).word == "wrong"
    assert (
        verdict(made, warned=(ep.errors.NotConvergedWarning,), converged_=False, components_=turned(made, 0.5)).word == "honest"
    )
    rough = turned(made, 0.1)
    assert verdict(made, Asked(1.0, exact=False), components_=rough, angle_estimate_=0.05).word == "right"
    assert verdict(made, Asked(1.0, exact=False), components_=rough, angle_estimate_=1e-3).word == "wrong"


def test_table_counts_every_verdict() -> None:
    """The table's columns add up to the fits."""
    tried = [attempt(Case("iid", seed, solver)) for seed, solver in enumerate(("gram", "gram", "one-shot"))]
    row = counts(tried)["gram"]
    assert row["fits"] == 2 == row["right"]
    assert row["clear"] <= 2
    lines = table(tried).splitlines()
    assert lines[0].split()[:2] == ["solver", "fits"]
    assert lines[-1].split()[:2] == ["all", "3"] or lines[-2].split()[:2] == ["all", "3"]


@pytest.mark.parametrize(
    "text", ["x", "ties/one/krylov/None/None", "ties/1/krylov/None", "ties/1/krylov/None/small", "ties/1/no/None/None"]
)
def test_what_is_no_case_is_told(text: str) -> None:
    """With the form that it must have, or the names that there are."""
    with pytest.raises(SystemExit, match=f"{text}' is no case"):
        Case.parse(text)


def test_the_truth_keeps_its_digits_beside_a_long_column() -> None:
    """Against rows without what that column explains, in long double: an ordinary decomposition is off by 1e-7 here."""
    rng = np.random.default_rng(0)
    Y = rng.normal(size=(60, 8)) * np.r_[np.linspace(2, 1, 7), 1e10]
    first, others = Y[:, 7].astype(np.longdouble), Y[:, :7].astype(np.longdouble)
    share = (first @ others) / (first @ first)
    rest = np.linalg.svd((others - np.outer(first, share)).astype(float))[2][:2].T
    V = np.zeros((8, 3))
    V[7, 0], V[:7, 0] = 1.0, share.astype(float)
    V[7, 1:], V[:7, 1:] = -share.astype(float) @ rest, rest
    V = np.linalg.qr(V)[0]

    def sine(found: Any) -> float:
        return float(np.linalg.norm(V - found @ (found.T @ V), 2))

    assert sine(decomposed(Y)[1][:, :3]) < 1e-13
    assert sine(np.linalg.svd(Y)[2][:3].T) > 1e-10
    wide, plain = decomposed(Y[:5])[0], np.linalg.svd(Y[:5])[1]
    assert np.allclose(wide[:5], plain, rtol=1e-4)
    assert not wide[5:].any() or wide[5:].max() < 1e-6 * wide[4]

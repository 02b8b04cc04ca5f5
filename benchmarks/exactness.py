"""Exactness: every solver is right, refuses, or says honestly that it is not; and the faults once found, each run again.

The fuzzer (``tests/fuzz``) draws problems of 26 families, fits them by every solver and judges the answers against a long double
truth.  "Honest" did not converge and warned, "coarse" ended above what was asked and its angle estimate says so, "unknown" has no
estimate.  The other rows repeat single problems on which a solver was once silently wrong.
"""

from __future__ import annotations

import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import hadamard
from sklearn.decomposition import PCA
from tests.fuzz.judge import Asked, Verdict, answer, judge
from tests.fuzz.problems import Array, Problem, with_singular_values
from tests.fuzz.run import EXACT, LINEAR, SOLVERS, WORDS, angle_option, counts, draw, explore
from tests.fuzz.truth import truth

import eigenpact as ep
from benchmarks.table import Row

SIZES: dict[str, dict[str, Any]] = {
    "small": {"fits": 300, "minutes": 5.0, "rounds": 300, "replies": 4000},
    "paper": {"fits": 5000, "minutes": 90.0},
}
"""How many fits, and what bounds them; the small form allows so few rounds that it does not judge who needs more."""

QUICK = 0.02
"""Share of an exact solver's fits that may end unconverged, and of all fits with a clear gap that may leave the angle unknown."""

SLOW = dict.fromkeys(("subspace", "subspace+one-shot", "localpower", "faps", "shift-invert", "shift-invert+proxy"), 0.15)
"""The same for solvers that converge linearly; power is not held to one."""

CONTRASTS = hadamard(8)[:, 1:].astype(float)


def rows(size: str) -> Iterator[Row]:
    """The fuzzer's table by solver, then the known faults."""
    small = size == "small"
    done = explore(draw(0), jobs=2, **SIZES[size])
    found = counts(done)
    for label, row in found.items():
        yield _solver_row(label, row, small)
    total: Counter[str] = sum(found.values(), Counter())
    yield Row(f"all solvers, {total['fits']} fits", "0 wrong", _told(total), total["wrong"] == 0)
    solved: Counter[str] = sum((row for label, row in found.items() if SOLVERS[label][1] is not None), Counter())
    clear, unknown = solved["clear"], solved["clear, unknown"]
    what = "angle unknown, of the fits with a clear gap, without one-shot and hot-potato"
    yield Row(what, f"<= {QUICK:.0%}", f"{unknown} of {clear}", unknown <= QUICK * max(clear, 1))
    clear, unknown = total["clear"] - clear, total["clear, unknown"] - unknown
    what = "the same of one-shot and hot-potato, which end after a round that cannot prove it"
    yield Row(what, "reported", f"{unknown} of {clear}", True)
    for t in done:
        if t.verdict.word == "wrong":
            yield Row(t.case.command, "", str(t.verdict), False)
    for fault in FAULTS:
        yield fault(1 if small else 3)


def _solver_row(label: str, row: Counter[str], small: bool) -> Row:
    allowed = None if small else QUICK if SOLVERS[label][1] == EXACT else SLOW.get(label)
    unfinished = row["honest"] + row["coarse"]
    bar = "0 wrong" if allowed is None else f"0 wrong, honest + coarse <= {allowed:.0%}"
    met = not row["wrong"] and (allowed is None or unfinished <= max(1, allowed * row["fits"]))
    return Row(f"{label}, {row['fits']} fits", bar, _told(row), met)


def _told(row: Counter[str]) -> str:
    return ", ".join(f"{row[word]} {word}" for word in WORDS if row[word])


# -- known faults -------------------------------------------------------------------------------------


def fitted(made: Problem, solver: Any, tol: float | None = None, angle: float = EXACT, seed: int = 0, most: int = 500) -> Verdict:
    """Fit and judge one problem; an ``angle`` other than the solver's own is for solvers that were made with it."""
    pca = ep.FederatedPCA(
        made.k,
        solver=solver,
        center=made.center,
        scale=made.scale,
        tol=tol,
        max_rounds=most,
        random_state=seed,
        engine=ep.engines.InProcess(threads=1, blas_threads=1),
    )
    return judge(answer(pca, made.sites), truth(made), Asked(angle, tol))


def stopping_at(label: str, angle: float) -> Any:
    """A solver of the fuzzer's list that stops at an angle."""
    return SOLVERS[label][0](**{str(angle_option(label)): angle})


def own_angle(label: str) -> float:
    """What a solver stops at by itself."""
    return SOLVERS[label][1] or 1.0


def summed_up(what: str, verdicts: Iterable[tuple[str, Verdict]]) -> Row:
    """One row: how many of each verdict, and the wrong one with the largest sine, or else the largest sine of all."""
    told = list(verdicts)
    words = Counter(verdict.word for _, verdict in told)
    wrong = [pair for pair in told if pair[1].word == "wrong"]
    label, worst = max(wrong or told, key=lambda pair: pair[1].sine or 0.0)
    return Row(what, "right, or says that it is not", f"{_told(words)}; worst: {label}: {worst}", not wrong)


def two_sites(X: Any, k: int, at: int | None = None, **asked: Any) -> Problem:
    """The first rows at A, the others at B."""
    at = X.shape[0] // 3 if at is None else at
    return Problem({"A": X[:at], "B": X[at:]}, k, **asked)


def _csr_duplicates(repeats: int) -> Row:  # noqa: ARG001
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 6)) * np.arange(6, 0, -1) + 3
    halves = sp.csr_matrix(
        (np.repeat(X.ravel() / 2, 2), np.repeat(np.tile(np.arange(6), 40), 2), 12 * np.arange(41)), shape=X.shape
    )
    events = sp.csr_matrix((np.ones(400), rng.integers(0, 6, size=400), 10 * np.arange(41)), shape=(40, 6))
    return summed_up(
        "csr rows whose entries are not summed up (repro_csr_duplicates)",
        (
            (f"{solver}, scale {scale}", fitted(two_sites(rows, 2, 20, scale=scale), solver))
            for rows in (halves, events)
            for solver in ("gram", "krylov")
            for scale in (None, "pooled")
        ),
    )


def _stale_journal(repeats: int) -> Row:  # noqa: ARG001
    """Rows that were put right after a run ended: one feature re-aligned within each site, all its sums as before."""
    rng = np.random.default_rng(0)
    X = (rng.integers(0, 50, size=(60, 1)) + rng.integers(0, 10, size=(60, 4))).astype(float)
    before = X.copy()
    for part in (slice(0, 30), slice(30, 60)):
        before[part, 3] = rng.permutation(before[part, 3])
    told, stale = [], False
    reference = PCA(2, svd_solver="full").fit(X)
    for solver in ("gram", "krylov", "auto"):
        with tempfile.TemporaryDirectory() as folder:
            pca = ep.FederatedPCA(2, solver=solver, random_state=0, journal=Path(folder) / "journal")
            pca.fit({"A": before[:30], "B": before[30:]})
            try:
                pca.fit({"A": X[:30], "B": X[30:]})
            except ep.errors.EigenpactError as error:
                told.append(f"{solver} refuses ({type(error).__name__})")
                continue
        off = float(np.abs(pca.explained_variance_ / reference.explained_variance_ - 1).max())
        stale |= off > 1e-8
        told.append(f"{solver}: variances off by {off:.0e}")
    return Row("rows changed after the journal ended (repro_journal_stale)", "right, or refuses", ", ".join(told), not stale)


def _krylov_one_shot(repeats: int) -> Row:
    made = [_own_pairs(seed) for seed in range(repeats)]
    labels = ("krylov+one-shot", "krylov+proxy", "krylov+one-shot+proxy", "krylov", "lanczos+one-shot")
    return summed_up(
        "22 sites, own directions ahead of a shared one (repro_krylov_oneshot)",
        (
            (f"{label}, tol {tol}", fitted(problem, SOLVERS[label][0](), tol, seed=seed))
            for problem in made
            for label in labels
            for tol in (None, 1e-9, 1e-6, 1e-4)
            for seed in range(repeats)
        ),
    )


def _own_pairs(seed: int, m: int = 22) -> Problem:
    """Two directions per site with variances up to 1 and one in all sites, which leads the pool by 17 %."""
    rng = np.random.default_rng(seed)
    sites = {}
    for i in range(m):
        X = np.zeros((8, 2 * m + 1))
        X[:, [2 * i, 2 * i + 1]] = CONTRASTS[:, :2] * np.sqrt(np.where(rng.random(2) < 0.3, 1.0, rng.uniform(0.5, 1.0, 2)))
        X[:, -1] = CONTRASTS[:, 3] * np.sqrt(1.17 / m)
        sites[f"s{i:02d}"] = X
    return Problem(sites, 1)


def _krylov_start(repeats: int) -> Row:
    solvers: dict[str, Any] = {
        label: SOLVERS[label][0]() for label in ("krylov+proxy", "krylov+one-shot+proxy", "davidson+proxy")
    }
    return summed_up(
        "15 sites, the proxy prefers another shared feature (repro_krylov_start)",
        (
            (f"{label}, lead {lead:.0%}, tol {tol}", fitted(_rivals(lead), solver, tol, seed=seed))
            for lead in (0.03, 0.3)
            for label, solver in (solvers | {"krylov, public rows": ep.solvers.Krylov(proxy=_rivals(lead).sites["s00"])}).items()
            for tol in (None, 1e-8, 1e-6, 1e-4)
            for seed in range(repeats)
        ),
    )


def _rivals(lead: float, m: int = 15) -> Problem:
    """An own feature per site, and two in all: the first leads by ``lead``, but at the first site the second does, by 1 %."""
    sites = {}
    for i in range(m):
        X = np.zeros((8, m + 2))
        X[:, i] = CONTRASTS[:, 0] * np.sqrt(0.5 + 0.5 * i / (m - 1))
        X[:, m:] = CONTRASTS[:, 1:3] * np.sqrt(0.15 * np.array([1.0, 1.01] if i == 0 else [1.0 + lead, 1.0]))
        sites[f"s{i:02d}"] = X
    return Problem(sites, 1)


def _local_power(repeats: int) -> Row:  # noqa: ARG001
    m, rng = 60, np.random.default_rng(0)
    exact, random = {}, {}
    for i in range(m):
        scores = np.linalg.qr(np.column_stack([np.ones(30), rng.normal(size=(30, 2))]))[0][:, 1:] * np.sqrt(30)
        for sites, own in ((exact, CONTRASTS[:, :2]), (random, scores)):
            X = np.zeros((len(own), m + 1))
            X[:, i], X[:, m] = own[:, 0] * np.sqrt(2.0 if i == 0 else 1.0), own[:, 1] * 0.2
            sites[f"s{i:02d}"] = X
    solvers = {
        "default": ep.solvers.LocalPower(),
        "one-shot": ep.solvers.LocalPower(start="one-shot"),
        "q=32": ep.solvers.LocalPower(q=32),
    }
    return summed_up(
        "60 sites, own directions ahead of a shared one (repro_localpower)",
        (
            (f"{name}, {kind}", fitted(Problem(sites, 1), solver, angle=LINEAR, most=200))
            for kind, sites in (("factorial", exact), ("random", random))
            for name, solver in solvers.items()
        ),
    )


def _misc(repeats: int) -> Row:
    """Rounds of a one-shot start; single precision; orthonormal rows of shift-invert."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 12)) * np.linspace(5, 1, 12)
    try:
        ep.FederatedPCA(3, solver=ep.solvers.Krylov(start="one-shot"), max_rounds=1, random_state=0).fit([X[:30], X[30:]])
        refused = False
    except ep.errors.EigenpactError:
        refused = True
    single = fitted(two_sites(X.astype(np.float32), 3, 30), "krylov")
    verdicts = []
    for seed in range(4 * repeats):
        rng = np.random.default_rng(seed)
        d = int(rng.integers(8, 22))
        Z = (rng.normal(size=(d + 80, d)) * np.logspace(0, -0.3, d)) @ np.linalg.qr(rng.normal(size=(d, d)))[0]
        verdicts.append(
            (f"shift-invert, seed {seed}", fitted(two_sites(Z, int(rng.integers(2, d + 1))), "shift-invert", angle=LINEAR))
        )
    row = summed_up("max_rounds=1 with a one-shot start; float32; shift-invert (repro_misc)", [("float32", single), *verdicts])
    reached = f"one round {'refused' if refused else 'taken for two'}; float32: {single}; {row.reached}"
    return Row(row.what, row.bar, reached, bool(row.met) and refused)


def _offset_and_scale(repeats: int) -> Row:  # noqa: ARG001
    rng = np.random.default_rng(3)
    X = rng.normal(size=(300, 8)) @ rng.normal(size=(8, 8))
    far = np.r_[0, 1, 1, 1, 1, 0, 0, 0]
    return summed_up(
        "means of 1e6 to 1e12 standard deviations (repro_offset_scale)",
        (
            (f"offset {o:.0e}, scale {scale}", fitted(two_sites(X + o * far, 2, scale=scale), "auto"))
            for o in (1e6, 1e8, 1e10, 1e12)
            for scale in (None, "pooled")
        ),
    )


def _robust_spectrum(repeats: int) -> Row:
    """RobustPCA of the right rank, singular values over 1.5 or 2 decades, one entry in twenty wrong."""
    told: Counter[str] = Counter()
    worst = 0.0
    for span in (0.0, 1.5, 2.0):
        for seed in range(repeats):
            rng = np.random.default_rng(seed)
            L = (rng.normal(size=(200, 3)) * np.logspace(0, -span, 3)) @ rng.normal(size=(3, 60)) / np.sqrt(3)
            M = L + np.where(rng.random(L.shape) < 0.05, rng.normal(size=L.shape), 0.0)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                pca = ep.RobustPCA(3, random_state=seed, engine=ep.engines.InProcess(threads=1)).fit({"A": M[:100], "B": M[100:]})
            off = float(np.linalg.norm(np.concatenate([pca.low_rank("A"), pca.low_rank("B")]) - L) / np.linalg.norm(L))
            silent = pca.converged_ and not caught and off > 1e-6
            told["wrong" if silent else "right" if off <= 1e-6 else "honest"] += 1
            worst = max(worst, off if silent else 0.0)
    reached = _told(told) + (f"; relative error of L up to {worst:.0e}" if worst else "")
    return Row("RobustPCA, uneven spectrum (repro_robust_spectrum)", "right, or says that it is not", reached, not told["wrong"])


def _angle(repeats: int) -> Row:  # noqa: ARG001
    """Gaps of .1 to .75 % and a stop at 1e-2."""
    labels = ("lanczos", "lanczos+one-shot", "davidson+proxy", "shift-invert", "subspace+one-shot", "power")

    def problems() -> Iterator[tuple[str, Problem]]:
        for seed, gap in enumerate((1e-3, 2e-3, 4e-3, 7.5e-3)):
            rng = np.random.default_rng(seed)
            values = np.r_[2.0, 1.5, 1.0, (1 - gap) * np.linspace(1.0, 0.3, 27)]
            yield f"gap {gap:.2%}", two_sites(with_singular_values(rng, 200, np.sqrt(values)), 3)

    return summed_up(
        "a stop at an angle of 1e-2 (repro_sine)",
        (
            (f"{label}, {what}", fitted(problem, stopping_at(label, 1e-2), angle=1e-2, most=400))
            for what, problem in problems()
            for label in labels
        ),
    )


def _sparse_offset(repeats: int) -> Row:  # noqa: ARG001
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 12)) * np.linspace(3, 1, 12)
    far = np.r_[np.ones(4), np.zeros(8)]
    return summed_up(
        "sparse rows far from the origin (repro_sparse_offset_krylov)",
        (
            (
                f"{label}, offset {o:.0e}",
                fitted(two_sites(sp.csr_matrix(X + o * far), 2, 90), label, angle=own_angle(label), most=300),
            )
            for o in (1e8, 1e9, 1e10, 1e11)
            for label in ("auto", "krylov", "lanczos", "davidson", "subspace", "shift-invert")
        ),
    )


def _sparse_scale(repeats: int) -> Row:  # noqa: ARG001
    rng = np.random.default_rng(3)
    X = rng.normal(size=(300, 8)) @ rng.normal(size=(8, 8))

    def problem(far: float, kind: Callable[[Array], Any]) -> Problem:
        Y = X.copy()
        Y[:, 0] *= 100 * far
        Y[:, 1:5] += far
        return two_sites(kind(Y), 2, 100, scale="pooled")

    return summed_up(
        "sparse, scaled, one feature of huge spread beside offsets (repro_sparse_scale)",
        (
            (f"{solver}, {kind.__name__}, offset {far:.0e}", fitted(problem(far, kind), solver))
            for far in (1e5, 1e6, 1e7, 1e8)
            for kind in (sp.csr_matrix, np.asarray)
            for solver in ("auto", "krylov")
        ),
    )


def _ties(repeats: int) -> Row:
    X = with_singular_values(np.random.default_rng(0), 200, np.repeat([3.0, 2.0, 1.0], [8, 12, 10]))
    labels = ("gram", "krylov", "lanczos", "davidson", "subspace", "faps", "shift-invert")
    return summed_up(
        "four of eight equal components (repro_ties)",
        (
            (f"{label}, seed {seed}", fitted(two_sites(X, 4, 90), label, angle=own_angle(label), seed=seed))
            for label in labels
            for seed in range(repeats)
        ),
    )


def _tiny(repeats: int) -> Row:  # noqa: ARG001
    X = np.random.default_rng(0).normal(size=(60, 5)) * np.arange(5, 0, -1)
    X[:, 1] += X[:, 0]
    return summed_up(
        "values whose squares vanish (repro_tiny)",
        (
            (f"{size:.0e}, scale {scale}", fitted(two_sites(X * size, 2, scale=scale), "auto"))
            for size in (1e-150, 1e-160, 1e-161, 1e-165, 1e-170)
            for scale in (None, "pooled")
        ),
    )


def _units(repeats: int) -> Row:  # noqa: ARG001
    """One feature with a standard deviation of 1e3 to 1e7 beside 299 of about 1."""

    def problem(ratio: float) -> Problem:
        rng = np.random.default_rng(0)
        X = rng.normal(size=(800, 20)) @ rng.normal(size=(20, 300)) * rng.uniform(0.03, 0.7, 300) + rng.normal(size=(800, 300))
        X[:, 0] = ratio * rng.normal(size=800)
        return two_sites(X, 3, 300)

    return summed_up(
        "features in different units (repro_units_auto)",
        (
            (f"{label}, ratio {ratio:.0e}", fitted(problem(ratio), label, angle=own_angle(label), most=200))
            for ratio in (1e3, 1e5, 1e6, 1e7)
            for label in ("auto", "gram", "lanczos", "subspace")
        ),
    )


def _timestamp(repeats: int) -> Row:  # noqa: ARG001
    rng = np.random.default_rng(0)
    X = np.where(rng.random((800, 300)) < 0.05, rng.normal(size=(800, 300)), 0.0)
    X[:, 0] = 1.7e9 + 1e5 * rng.normal(size=800)  # seconds; the standard deviation is about a day
    rows = sp.csr_matrix(X)
    return summed_up(
        "a timestamp in sparse rows (repro_units_sparse_timestamp)",
        (
            (f"{label}, scale {scale}", fitted(two_sites(rows, 3, 400, scale=scale), label, angle=own_angle(label), most=60))
            for label in ("auto", "krylov", "lanczos", "subspace")
            for scale in (None, "pooled")
        ),
    )


def _stopping_angle(repeats: int) -> Row:
    """Population spectra of relative gap 4 % to .2 %, four sites alike, one component to an angle of 1e-3."""

    def sites(gap: float) -> Mapping[str, Array]:
        rng = np.random.default_rng(0)
        lengths = np.sqrt(np.r_[1.0, (1 - gap) * np.linspace(1.0, 0.5, 59)])
        return {f"s{i}": np.linalg.qr(rng.normal(size=(200, 60)))[0] * lengths for i in range(4)}

    return summed_up(
        "a stop at an angle of 1e-3 (si2)",
        (
            (f"{label}, gap {gap:.1%}", fitted(made, stopping_at(label, 1e-3), angle=1e-3, seed=seed, most=1000))
            for gap in (0.04, 0.01, 0.002)
            for made in [Problem(dict(sites(gap)), 1, center=False)]
            for label in ("shift-invert", "shift-invert+proxy", "lanczos", "power")
            for seed in range(repeats)
        ),
    )


FAULTS: tuple[Callable[[int], Row], ...] = (
    _csr_duplicates,
    _stale_journal,
    _krylov_one_shot,
    _krylov_start,
    _local_power,
    _misc,
    _offset_and_scale,
    _robust_spectrum,
    _angle,
    _sparse_offset,
    _sparse_scale,
    _ties,
    _tiny,
    _units,
    _timestamp,
    _stopping_angle,
)
"""One function for each fault that was found once; those that depend on a random start try so many of them."""

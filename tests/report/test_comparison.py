"""Solvers side by side: the numbers are true, and what stops a solver is told."""

from __future__ import annotations

import json
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse
from matplotlib.backends.backend_agg import FigureCanvasAgg
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler

import eigenpact as ep
from eigenpact.algorithms import auto
from eigenpact.algorithms.method import method
from eigenpact.algorithms.products import scatter_action
from eigenpact.algorithms.solution import Solution
from eigenpact.errors import InputError, SiteError
from eigenpact.estimators.choices import joint_solvers
from eigenpact.report import comparison, pictures, truth
from eigenpact.report.comparison import Comparison, Run, candidates, compare
from eigenpact.runtime import At, Sum

RNG = np.random.default_rng(3)
MIX = RNG.normal(size=(7, 7)) * [5, 4, 3, 2, 1, 1, 1]
SITES = {name: RNG.normal(size=(n, 7)) @ MIX + 2 * i for i, (name, n) in enumerate([("north", 40), ("south", 25), ("west", 9)])}
EXACT = ("gram", "krylov", "krylov, own site as proxy", "krylov, one-shot start", "subspace", "lanczos", "power")
POOLED = np.concatenate(list(SITES.values()))


def sine(A: np.ndarray, B: np.ndarray) -> float:
    """Sine of the largest angle between the columns' spans."""
    return float(np.sin(scipy.linalg.subspace_angles(A, B)[0]))


def by_name(result: Comparison) -> dict[str, Run]:
    return {run.name: run for run in result.runs}


@pytest.fixture(scope="module")
def result() -> Comparison:
    return compare(SITES, 2)


def test_every_solver_runs(result):
    assert {name.partition(",")[0] for name in by_name(result)} == set(joint_solvers())
    assert {"krylov, own site as proxy", "davidson, own site as proxy", "one-shot, sign"} < set(by_name(result))
    assert {run.outcome for run in result.runs} <= {"converged", "not converged"}
    assert all(by_name(result)[name].kkt < 1e-7 for name in EXACT)
    assert by_name(result)["gram"].sine < 1e-12


def test_truth_is_what_scikit_learn_says(result):
    assert sine(result.reference.basis, PCA(2, svd_solver="full").fit(POOLED).components_.T) < 1e-13
    assert 0 < result.reference.uncertainty < 1e-13
    assert "singular value decomposition of all 74 rows" in result.reference.how


def centred_by_site() -> np.ndarray:
    return np.concatenate([X - X.mean(axis=0) for X in SITES.values()])


@pytest.mark.parametrize(
    ("options", "rows"),
    [
        ({"center": "site"}, centred_by_site()),
        ({"center": False}, POOLED),
        ({"scale": "pooled"}, StandardScaler().fit_transform(POOLED)),
        ({"center": "site", "scale": "pooled"}, centred_by_site() / centred_by_site().std(axis=0)),
    ],
)
def test_truth_is_centred_and_scaled_as_asked(options, rows):
    result = compare(SITES, 3, **options, solvers=candidates("north", ["gram"]))
    expected = scipy.linalg.svd(rows, full_matrices=False)[2][:3].T
    assert sine(result.reference.basis, expected) < 1e-13
    assert result.runs[0].sine < 1e-12
    assert result.runs[0].kkt < 1e-14


def test_numbers_are_those_of_the_estimator():
    run = compare(SITES, 2, max_rounds=4, tol=1e-9, random_state=5, solvers={"subspace": ep.solvers.Subspace()}).runs[0]
    with pytest.warns(ep.errors.NotConvergedWarning):
        pca = ep.FederatedPCA(2, solver="subspace", max_rounds=4, tol=1e-9, random_state=5).fit(SITES)
    assert (run.outcome, run.reason) == ("not converged", pca.stop_reason_)
    assert (run.rounds, run.setup_rounds, run.n_components) == (4, 2, 2)
    assert (run.bytes_up, run.bytes_down) == (pca.ledger_.bytes_up, pca.ledger_.bytes_down)
    assert run.sine == pytest.approx(sine(pca.components_.T, PCA(2).fit(POOLED).components_.T))
    assert run.sine > 1e-3
    centred = POOLED - POOLED.mean(axis=0)
    C, Z = centred.T @ centred, pca.components_.T
    assert run.kkt == pytest.approx(np.linalg.norm(C @ Z - Z @ (Z.T @ C @ Z)) / np.trace(C))


@pytest.mark.parametrize("dense_features", [100, 0])
def test_every_round_is_measured_by_the_pooled_scatter(monkeypatch, dense_features):
    monkeypatch.setattr(truth, "DENSE_FEATURES", dense_features)
    run = compare(SITES, 2, tol=1e-6, solvers={"subspace": ep.solvers.Subspace()}).runs[0]
    pca = ep.FederatedPCA(2, solver="subspace", tol=1e-6, random_state=0).fit(SITES)
    assert [point.round for point in run.curve] == [record.round for record in pca.history_]
    assert [point.kkt for point in run.curve] == pytest.approx([record.kkt for record in pca.history_], rel=1e-6)
    assert (run.curve[-1].bytes_up, run.curve[-1].bytes_down) == (run.bytes_up, run.bytes_down)
    assert run.curve[-1].sine == pytest.approx(run.sine, rel=1e-6)
    assert run.curve[0].sine > 100 * run.curve[-1].sine


def test_what_was_revealed_and_how_it_left(result):
    for run in result.runs:
        assert sum(row.bytes for row in run.revealed) == run.bytes_up
        assert {"count_and_sum", "spread"} <= {row.function for row in run.revealed if row.setup}
    (triangle,) = (row for row in by_name(result)["gram"].revealed if not row.setup)
    assert (triangle.function, triangle.arrays, triangle.shapes, triangle.times) == ("scatter_triangle", "S", "28", 1)
    assert (triangle.collective, triangle.bytes_per_site) == ("sum", 28 * 8)
    assert triangle.meaning == "Upper triangle of Y_i^T Y_i."
    one_shot = {row.function: row.collective for row in by_name(result)["krylov, one-shot start"].revealed if not row.setup}
    assert one_shot == {"leading_directions": "gather", "scatter_action": "sum"}
    proxy = {row.function for row in by_name(result)["krylov, own site as proxy"].revealed}
    assert "model_directions" not in proxy  # computed at the coordinator's own site


@method("consensus", {At: (scatter_action,), Sum: (scatter_action,)})
@dataclass(frozen=True, eq=False)
class AsksItsOwnSiteToo:
    """A solver that uses one local function at the coordinator's own site and in a sum."""

    proxy: str

    name = "asks"
    default_angle = 1e-8

    async def fit(self, setup, start=None, state=None):  # noqa: ARG002
        Z = np.eye(setup.n_features)[:, :2]
        await At(self.proxy, scatter_action, Z)
        G = await Sum(scatter_action, Z)
        return Solution(Z, np.sort(np.diag(G[:2]))[::-1], None, None, False, "only asked")


def test_what_the_own_site_computes_is_not_revealed():
    (run,) = compare(SITES, 2, solvers={"asks": AsksItsOwnSiteToo("west")}).runs
    (row,) = (row for row in run.revealed if not row.setup)
    assert (row.function, row.times, row.collective, row.bytes) == ("scatter_action", 1, "sum", 3 * 7 * 2 * 8)


def test_time_for_measuring_is_not_the_solvers(monkeypatch):
    now = 0.0
    monkeypatch.setattr(comparison, "time", SimpleNamespace(perf_counter=lambda: now))
    measured = truth.Pooled.residual

    def slow(self, Z):
        nonlocal now
        now += 100.0
        return measured(self, Z)

    monkeypatch.setattr(truth.Pooled, "residual", slow)
    run = compare(SITES, 2, solvers={"krylov": ep.solvers.Krylov()}).runs[0]
    assert now > 100 * len(run.curve) > 0
    assert run.seconds == 0.0
    assert {point.seconds for point in run.curve} == {0.0}


@method("consensus")
@dataclass(frozen=True, eq=False)
class Raises:
    """A solver that stops with an error."""

    error: Exception

    name = "raises"
    default_angle = 1e-8

    async def fit(self, setup, start=None, state=None):  # noqa: ARG002
        raise self.error


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (InputError("not for such data"), "not applicable"),
        (SiteError("site 'west' is ill"), "failed"),
        (np.linalg.LinAlgError("did not converge"), "failed"),
    ],
)
def test_a_solver_that_stops_is_a_row(monkeypatch, error, outcome):
    known = joint_solvers() | {"new": lambda: Raises(error)}
    monkeypatch.setattr("eigenpact.report.comparison.joint_solvers", lambda: known)
    runs = by_name(compare(SITES, 2))
    assert (runs["new"].outcome, runs["new"].reason, runs["new"].rounds) == (outcome, str(error), None)
    assert runs["gram"].outcome == "converged"


def test_errors_of_the_program_itself_are_raised():
    with pytest.raises(ZeroDivisionError):
        compare(SITES, 2, solvers={"new": Raises(ZeroDivisionError())})


def test_a_share_of_the_variance():
    runs = by_name(compare(SITES, 0.9))
    k = PCA(0.9).fit(POOLED).n_components_
    assert runs["subspace"].outcome == "not applicable"
    assert "share of the variance" in runs["subspace"].reason
    assert runs["gram"].n_components == runs["krylov"].n_components == k
    assert runs["krylov"].sine < 1e-4


def test_gram_beyond_its_limit(monkeypatch):
    monkeypatch.setattr(auto, "GRAM_FEATURES", 6)
    runs = by_name(compare(SITES, 2))
    assert runs["gram"].outcome == "not applicable"
    assert "7 features are beyond its limit of 6: it would send 672 B at once" in runs["gram"].reason
    assert runs["krylov"].outcome == "converged"


def test_truth_of_large_problems_is_iterated(monkeypatch):
    monkeypatch.setattr(truth, "SVD_FLOPS", 0)
    single = {name: X.astype(np.float32) for name, X in SITES.items()}
    result = compare(single, 2, solvers=candidates("north", ["gram"]))
    assert "block Krylov on all 74 rows, scaled KKT residual" in result.reference.how
    rows = np.concatenate(list(single.values())).astype(np.float64)
    assert sine(result.reference.basis, PCA(2).fit(rows).components_.T) < 1e-12
    assert result.runs[0].sine < 1e-12  # components_ are single precision, what is compared is not


def test_angles_to_components_that_are_not_determined():
    square = np.concatenate([np.eye(3), -np.eye(3)])
    result = compare({"A": square[:3], "B": square[3:]}, 2)
    assert not result.reference.determined
    assert {run.sine for run in result.runs} == {None}
    assert all(by_name(result)[name].kkt < 1e-7 for name in EXACT)
    assert all("components 2 and 3 have the same variance" in by_name(result)[name].reason for name in EXACT)


def test_wide_rows_and_all_components():
    wide = {"A": POOLED[:3], "B": POOLED[3:6]}  # 6 rows of 7 features have rank 5
    assert compare(wide, 5, solvers=candidates("A", ["gram"])).runs[0].sine < 1e-10
    assert not compare(wide, None, solvers=candidates("A", ["gram"])).reference.determined
    assert compare(SITES, None, solvers=candidates("A", ["gram"])).reference.uncertainty == 0.0


def test_sparse_rows():
    sparse = {name: scipy.sparse.csr_array(np.round(X)) for name, X in SITES.items()}
    dense = {name: X.toarray() for name, X in sparse.items()}
    one, other = (compare(sites, 2, solvers=candidates("north", ["gram"])) for sites in (sparse, dense))
    assert sine(one.reference.basis, other.reference.basis) < 1e-13
    assert one.runs[0].kkt < 1e-14
    assert other.pooled_bytes == 74 * 7 * 8
    assert one.pooled_bytes == sum(X.data.nbytes + X.indices.nbytes + X.indptr.nbytes for X in sparse.values())


def test_functions_are_told():
    rounds, runs = [], []
    result = compare(SITES, 2, on_round=lambda name, record: rounds.append((name, record.round)), on_run=runs.append)
    assert runs == list(result.runs)
    assert [number for name, number in rounds if name == "krylov"] == [point.round for point in by_name(result)["krylov"].curve]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"n_components": 8}, "n_components=8 must be between 1 and"),
        ({"tol": -1.0}, "tol=-1.0 must be"),
        ({"max_rounds": 0}, "max_rounds=0 must be"),
        ({"center": "median"}, "center='median' must be"),
    ],
)
def test_input_that_no_solver_takes_is_refused(options, told):
    with pytest.raises(InputError, match=told):
        compare(SITES, **({"n_components": 2} | options))


def test_unknown_solvers_are_refused():
    with pytest.raises(InputError, match="unknown solver 'magic'; the solvers to compare are faps, gram, krylov"):
        candidates("A", ["gram", "magic"])


def test_json_holds_everything(result):
    told = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert told["sites"] == {"north": 40, "south": 25, "west": 9}
    assert told["settings"]["n_components"] == told["reference"]["n_components"] == 2
    assert [run["name"] for run in told["runs"]] == [run.name for run in result.runs]
    krylov = by_name(result)["krylov"]
    assert next(run for run in told["runs"] if run["name"] == "krylov")["curve"][-1]["kkt"] == krylov.curve[-1].kkt


def test_json_of_numbers_that_are_none():
    broken = Run("new", "not converged", "diverged", kkt=float("nan"), sine=float("inf"), rounds=3)
    reference = truth.Reference(np.eye(2)[:, :1], "by hand", 0.0, 0.0)
    told = Comparison({"A": 2}, 2, {}, reference, 32, (broken,)).to_dict()["runs"][0]
    assert (told["kkt"], told["sine"], told["rounds"]) == (None, None, 3)


# -- the picture ------------------------------------------------------------------------------------


@pytest.fixture(params=[30_000, 30_000_000], ids=["near", "far"])
def figure(request):
    curves = {f"solver {i}, with a long name": ([1, 2, 30], [9_000, 20_000, 400_000], [1e-1, 1e-5, 0.0]) for i in range(9)}
    return pictures.convergence(curves | {"once": ([1], [5_000], [1e-16])}, 1e-8, request.param, "Nine sites, $\\bad{")


def test_picture_has_one_line_per_solver_in_both_panels(figure):
    for ax, xs in zip(figure.axes, ([1, 2, 30], [9_000, 20_000, 400_000]), strict=True):
        assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
        named = {line.get_label(): line for line in ax.lines}
        assert list(named["solver 3, with a long name"].get_xdata()) == xs
        assert list(named["once"].get_ydata()) == [1e-16]
        assert list(named["tolerance 1e-08"].get_ydata()) == [1e-8, 1e-8]
    assert figure.axes[1].get_lines()[-1].get_label() == "sending all rows"
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert len(labels) == 12
    assert {"once", "tolerance 1e-08", "sending all rows"} < set(labels)


def test_picture_can_be_read(figure):
    figure.draw_without_rendering()
    renderer = FigureCanvasAgg(figure).get_renderer()
    legend = figure.legends[0].get_window_extent(renderer)
    assert figure.bbox.x0 <= legend.x0 < legend.x1 <= figure.bbox.x1
    assert legend.y0 >= figure.bbox.y0
    for ax in figure.axes:
        assert not legend.overlaps(ax.get_tightbbox(renderer))
        low, high = ax.get_xlim()
        ticks = [tick for tick in ax.xaxis.get_major_ticks() if low <= tick.get_loc() <= high]
        boxes = [tick.label1.get_window_extent(renderer) for tick in ticks]
        assert len(boxes) >= 2
        assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])

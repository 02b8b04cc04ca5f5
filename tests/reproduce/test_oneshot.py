"""The one-shot paper's Figure 1 and Table 1 on small problems, beside plain numpy."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure
from numpy.testing import assert_allclose

from eigenpact.algorithms.statistical.lanczos import Lanczos
from eigenpact.algorithms.statistical.one_shot import OneShot
from eigenpact.algorithms.statistical.power import Power
from eigenpact.errors import InputError
from eigenpact.reproduce import REPRODUCTIONS, Size, Watch, chosen, find, paper_numbers, registry
from eigenpact.reproduce.measuring import Contender
from eigenpact.reproduce.oneshot.one_round import averages, errors
from eigenpact.reproduce.oneshot.population import population
from eigenpact.reproduce.oneshot.rounds import Margins, entrants, raced

SILENT = Watch()


@pytest.fixture
def tiny(monkeypatch):
    """Problems of a size for tests."""
    small = {
        "fig1": {"features": 12, "sites": 6, "rows": [10, 40, 640], "repeats": 12},
        "table1": {
            "features": 40,
            "sites": 5,
            "problems": {
                "wide": {"second": 0.8, "rows": 400},
                "narrow": {"second": 0.95, "rows": 800},
                "held out": {"second": 0.9, "rows": 500, "decay": 0.95, "distribution": "uniform"},
            },
        },
    }
    monkeypatch.setattr(registry, "small_problems", {"oneshot": small}.get)


def make(name, **options):
    made = find(name).make(Size.small, 0, SILENT, **options)
    assert isinstance(made.figure, Figure)
    assert all(len(row) == len(grid.columns) for grid in made.grids for row in grid.rows)
    return made


# -- the paper's numbers ----------------------------------------------------------------------------


def test_the_papers_problem():
    told = paper_numbers("oneshot")
    p = told["fig1"]
    assert (p["features"], p["sites"], p["repeats"], 1 - p["second"]) == (300, 25, 400, pytest.approx(0.2))
    assert {25, 100, 400, 1600} <= set(p["rows"])
    assert set(told["table1"]["rounds"]) == set(told["table1"]["errors"]) == {e.like for e in entrants(1.0) if e.like}
    for entry in told.values():
        assert entry["where"].startswith("Section ")
    assert {name.removeprefix("oneshot-") for name in REPRODUCTIONS if name.startswith("oneshot-")} == set(told)


def test_section_5s_spectrum():
    eigenvalues = population(300, second=0.8, decay=0.9, rng=np.random.default_rng(0)).eigenvalues
    assert_allclose(eigenvalues[:2], [1.0, 0.8])
    assert_allclose(eigenvalues[2:], 0.9 * eigenvalues[1:-1])


# -- rows from a population -------------------------------------------------------------------------


@pytest.mark.parametrize(("distribution", "share"), [("normal", 1.0), ("uniform", 0.5)])
def test_the_covariance_of_the_rows(distribution, share):
    rng = np.random.default_rng(0)
    drawn = population(5, second=0.8, decay=0.5, rng=rng, distribution=distribution)
    X = np.vstack(list(drawn.sites(4, 50000, rng).values()))
    wanted = share * (drawn.U * drawn.eigenvalues) @ drawn.U.T  # X / 2 for the paper's uniform rows
    assert_allclose(X.T @ X / len(X), wanted, atol=0.008)
    assert_allclose(X.mean(axis=0), 0, atol=0.01)
    kurtosis = np.mean((X @ drawn.U[:, 4]) ** 4) / np.mean((X @ drawn.U[:, 4]) ** 2) ** 2
    assert (kurtosis < 2.9) == (distribution == "uniform")


def test_condensed_uniform_rows_have_the_scatter_of_all():
    drawn = population(6, second=0.8, decay=0.5, rng=np.random.default_rng(0), distribution="uniform")
    whole = drawn.sites(3, 50, np.random.default_rng(1))
    condensed = drawn.condensed_sites(3, 50, np.random.default_rng(1))
    assert list(whole) == list(condensed)
    for name, X in whole.items():
        assert condensed[name].shape == (6, 6)
        assert_allclose(condensed[name].T @ condensed[name], X.T @ X, rtol=1e-10, atol=1e-12)


def test_condensed_normal_rows_have_scatters_distributed_alike():
    """Mean and variances of a Wishart matrix: n S_ij, and n (S_ij^2 + S_ii S_jj)."""
    rng = np.random.default_rng(0)
    drawn = population(4, second=0.8, decay=0.5, rng=rng)
    scatters = np.array([X.T @ X for X in drawn.condensed_sites(20000, 9, rng).values()])
    S = (drawn.U * drawn.eigenvalues) @ drawn.U.T
    assert_allclose(scatters.mean(axis=0), 9 * S, atol=0.15)
    assert_allclose(scatters.var(axis=0), 9 * (S**2 + np.outer(np.diag(S), np.diag(S))), rtol=0.06)
    few = drawn.condensed_sites(2, 3, np.random.default_rng(5))
    for name, X in drawn.sites(2, 3, np.random.default_rng(5)).items():
        np.testing.assert_array_equal(few[name], X)  # no more rows than features: these rows themselves


# -- Figure 1 ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("distribution", ["normal", "uniform"])
def test_errors_are_those_of_plain_numpy(distribution):
    rng = np.random.default_rng(3)
    drawn = population(20, second=0.7, decay=0.8, rng=rng, distribution=distribution)
    sites = drawn.sites(7, 30, rng)
    v = drawn.U[:, 0]
    found = errors(drawn, sites, 11)

    def error(w):
        return 1 - (w @ v) ** 2 / (w @ w)

    V = np.array([np.linalg.svd(X)[2][0] for X in sites.values()])
    agreement = V @ V.T
    medoid = np.argmax(np.sum(agreement**2, axis=1))
    pooled = np.linalg.svd(np.vstack(list(sites.values())))[2][0]
    assert_allclose(found["centralized"], error(pooled), rtol=1e-8)
    assert_allclose(found["sign fixing, site 1"], error(np.sign(agreement[0]) @ V), rtol=1e-8)
    assert_allclose(found["sign fixing, medoid"], error(np.sign(agreement[medoid]) @ V), rtol=1e-8)
    assert_allclose(found["projection"], error(np.linalg.svd(V)[2][0]), rtol=1e-8)
    assert_allclose(found["single site"], np.mean([error(w) for w in V]), rtol=1e-8)
    signs = np.array(np.meshgrid(*[[-1, 1]] * 7)).reshape(7, -1).T
    assert np.min(np.abs([error(s @ V) / found["average"] - 1 for s in signs])) < 1e-8  # of some signs
    others = [errors(drawn, sites, seed) for seed in range(6)]
    assert len({round(other["average"], 9) for other in others}) > 3  # drawn anew for every seed
    for other in others:
        assert_allclose([other[name] for name in found if name != "average"], [found[n] for n in found if n != "average"])


def test_averages_over_repeats():
    p = {"features": 8, "sites": 3, "second": 0.5, "decay": 0.5, "repeats": 5}
    told = []
    found = averages(20, p, "normal", 4, Watch(told.append, told.append))
    single = []
    for repeat in range(5):
        rng = np.random.default_rng([4, 20, repeat])
        drawn = population(8, second=0.5, decay=0.5, rng=rng)
        rng.integers(2**32)
        V = [np.linalg.svd(X)[2][0] for X in drawn.condensed_sites(3, 20, rng).values()]
        single.append(np.mean([1 - (w @ drawn.U[:, 0]) ** 2 for w in V]))
    assert_allclose([found["single site"].mean, found["single site"].error], [np.mean(single), np.std(single, ddof=1) / 5**0.5])
    assert told[0] == "normal, n = 20: repeat 1 of 5"
    assert told[-1].startswith("normal, n = 20: centralized 0.")


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("distribution", ["normal", "uniform"])
def test_fig1(distribution):
    made = make("oneshot-fig1", distribution=distribution)
    assert distribution in made.title
    assert any("covariance is X / 2" in remark for remark in made.remarks) == (distribution == "uniform")
    times = {(row[0], row[1]): row[4] for row in made.grids[0].rows}
    assert [times[n, "centralized"] for n in (10, 40, 640)] == [1, 1, 1]
    assert times[640, "projection"] < 1.3
    assert times[640, "sign fixing, site 1"] < 1.3
    assert times[640, "average"] > 3
    means = {n: made.numbers["errors"][n]["projection"]["mean"] for n in ("10", "640")}
    assert means["10"] > 20 * means["640"]
    assert made.numbers["errors"]["640"]["projection"]["mean"] == made.grids[0].rows[-2][2]


@pytest.mark.usefixtures("tiny")
def test_normal_is_what_is_taken_unasked():
    assert make("oneshot-fig1").numbers == make("oneshot-fig1", distribution="normal").numbers


def test_options_are_refused_where_there_are_none():
    assert chosen(find("oneshot-fig1"), distribution="uniform") == {"distribution": "uniform"}
    assert chosen(find("oneshot-table1"), distribution=None) == {}
    with pytest.raises(
        InputError, match="oneshot-table1 has no --distribution; leave it out, or choose oneshot-fig1, which has one"
    ):
        chosen(find("oneshot-table1"), distribution="normal")
    with pytest.raises(InputError, match="--distribution 'cauchy' is not known to oneshot-fig1; choose one of normal, uniform"):
        chosen(find("oneshot-fig1"), distribution="cauchy")


# -- Table 1 ----------------------------------------------------------------------------------------


def test_rounds_are_counted_to_the_true_errors():
    rng = np.random.default_rng(0)
    drawn = population(30, second=0.8, decay=0.9, rng=rng)
    sites = drawn.sites(4, 200, rng)
    w = np.linalg.svd(np.vstack(list(sites.values())))[2][0]
    run = raced("p", drawn, sites, Contender("lanczos", Lanczos(angle_tol=1e-4)), 0)
    assert_allclose(run.central, 1 - (w @ drawn.U[:, 0]) ** 2, rtol=1e-9)
    assert [point.round for point in run.curve] == list(range(1, run.own_stop + 1))
    assert run.curve[-1].pooled <= 1e-8
    assert all(point.pooled > 1e-8 for point in run.curve if point.round < run.to_pooled)
    assert all(point.population > 1.01 * run.central for point in run.curve if point.round < run.to_central)
    assert run.bytes_up == 8 * 30 * (1 + 4) * run.own_stop  # blocks of k + 4 columns
    power = raced("p", drawn, sites, Contender("power", Power(angle_tol=1e-4)), 0)
    own = power.own_stop - power.confirming
    assert [point.round for point in power.curve] == list(range(1, own + 1))  # those that confirm are not credited to it
    assert 1 <= power.confirming <= power.own_stop // 2
    assert power.bytes_up > 8 * 30 * power.own_stop
    merged = raced("p", drawn, sites, Contender("projection", OneShot(confirm=False)), 0)
    assert (merged.own_stop, merged.to_pooled, merged.estimate, merged.bytes_up) == (1, None, None, 8 * 30 + 8)
    V = np.array([np.linalg.svd(X)[2][0] for X in sites.values()])
    assert_allclose(merged.curve[-1].pooled, 1 - (np.linalg.svd(V)[2][0] @ w) ** 2, rtol=1e-8)


@pytest.mark.usefixtures("tiny")
def test_table1():
    made = make("oneshot-table1")
    printed, *problems, margins = made.grids
    assert [grid.title.split(": ")[0].split(", ")[2] for grid in problems] == ["wide", "narrow", "held out"]
    assert printed.rows[0] == ["power", "lambda_1 / delta", "1 + o(1)"]
    for grid in problems:
        assert [row[0] for row in grid.rows] == ["centralized", *(entrant.name for entrant in entrants(1.0))]
        column = {name: list(grid.columns).index(name) for name in grid.columns}
        rows = {row[0]: row for row in grid.rows}
        to_pooled = {name: row[column["to\npooled"]] for name, row in rows.items()}
        assert to_pooled["davidson"] < to_pooled["lanczos"] < to_pooled["power"]
        assert to_pooled["davidson, one-shot start"] < to_pooled["lanczos, one-shot start"]
        davidson, lanczos = rows["davidson, one-shot start"], rows["lanczos, one-shot start"]
        assert davidson[column["own\nstop"]] <= lanczos[column["own\nstop"]]  # the proof takes both 5 columns a round
        for name, row in rows.items():
            if row[column["own\nestimate"]] is not None:  # what stops by itself at a sine of 1e-4 is as close as it says
                assert row[column["then\ntrue"]] <= 1.01 * row[column["own\nestimate"]] <= 1.02e-8, name
        assert rows["projection"][column["own\nstop"]] == 1
        assert rows["hot-potato"][column["own\nstop"]] == 5  # as many as sites
        for name in ("power", "lanczos", "shift-invert", "shift-invert, Theorem 6's mu", "davidson", "krylov, proxy"):
            assert rows[name][column["own\nestimate"]] is not None
            assert rows[name][column["times\ncentral"]] == pytest.approx(1, abs=0.01)
    assert [row[0] for row in margins.rows] == ["wide", "narrow", "held out"]
    for *_, theorem, _, halves in margins.rows:
        assert theorem > 20 > 3 > halves > 0.5  # the bound is far above ||X - X_1||, the estimate near it


def test_margins_are_those_of_plain_numpy():
    rng = np.random.default_rng(1)
    sites = {"a": rng.normal(size=(60, 5)), "b": 3 * rng.normal(size=(30, 5))}
    found, (A, B) = Margins.of(sites), sites.values()
    assert_allclose(found.row_bound, max(x @ x for x in [*A, *B]))
    assert_allclose(found.distance, np.abs(np.linalg.eigvalsh((A.T @ A + B.T @ B) / 90 - A.T @ A / 60)).max())
    assert_allclose(found.theorem, 4 * found.row_bound * np.sqrt(np.log(150) / 60))
    assert 0.1 < found.halves < 1  # of 60 rows of unit variance

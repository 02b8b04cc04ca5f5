"""The personalized PCA paper's tables and figures on small problems: what they must show."""

from __future__ import annotations

import os

import numpy as np
import pytest
from matplotlib.figure import Figure

from eigenpact.datasets import personalized_problem
from eigenpact.reproduce import REPRODUCTIONS, Size, Watch, find, paper_numbers, registry
from eigenpact.reproduce.personalized import debates, pictures, writing
from eigenpact.reproduce.personalized.fitting import fitted, subspace_error

with_data = pytest.mark.skipif("EIGENPACT_DATA" not in os.environ, reason="EIGENPACT_DATA is not set")


def make(name, seed=0):
    made = find(f"personalized-{name}").make(Size.small, seed, Watch())
    assert isinstance(made.figure, Figure)
    assert all(len(row) == len(grid.columns) for grid in made.grids for row in grid.rows)
    return made


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    """Problems of a size for tests."""
    few = {"sites": 20, "rows": [300, 1000, 3000], "seeds": 1}
    small = {
        "fig3": {"thetas": [0.15, 0.3], "starts": 2},
        "fig4": few,
        "fig5": {"sites": 10, "features": [15, 20], "rows": 1000, "seeds": 1},
        "fig6": {"sites": [5, 20], "rows": 1000, "seeds": 1},
        "table2": {"sites": 30, "seeds": 1},
        "fig7": {"sites": 6, "rounds": 60, "more": [0, 2]},
        "table3": {"sites": 6, "rounds": 30, "seeds": 1, "more": [0, 2], "theta": [0.9, 0.36]},
        "fig8": {"sites": 6, "rounds": 60, "more": [0, 1]},
        "fig9": {"sites": 20, "rounds": [2, 8]},
    }
    monkeypatch.setattr(registry, "small_problems", {"personalized": small}.get)


def test_every_reproduction_has_its_numbers():
    told = paper_numbers("personalized")
    names = {name.removeprefix("personalized-") for name in REPRODUCTIONS if name.startswith("personalized-")}
    assert names == set(told)
    assert all(entry["where"].startswith(("Section ", "Appendix ")) for entry in told.values())
    assert told["table2"]["sparse"]["personalized"] == 1.68
    assert told["table5"]["femnist"]["test"]["personalized"] == 1.70


def test_two_sites_are_fitted_and_pooling_is_not():
    pooled, personal = make("fig1").grids[0].rows
    assert personal[1] < 1e-6
    assert max(personal[2:]) < 1e-12
    assert min(pooled[2:]) > 0.05


def test_larger_theta_converges_faster():
    slow, fast = make("fig3").grids[0].rows
    assert fast[3] < slow[3] - 1
    assert fast[4] < slow[4] < 1


def test_errors_fall_with_rows_and_sites():
    made = make("fig4")
    assert -2.2 < made.numbers["slope"] < -0.6
    assert all(row[1] < row[3] for row in made.grids[0].rows)
    few, many = make("fig6").grids[0].rows
    assert many[2] < few[2]
    assert len(make("fig5").grids[0].rows) == 2


def test_subspace_error_is_of_projectors():
    problem = personalized_problem(3, 6, 1, 2, rows=30, seed=1)
    pca = fitted(problem.sites, 1, 2, 0)
    error, shared = subspace_error(pca, problem)
    P = pca.components_.T @ pca.components_
    expected = np.linalg.norm(P - problem.U @ problem.U.T) ** 2
    assert shared == pytest.approx(expected)
    for site, V in problem.V.items():
        W = pca.local_components_[site]
        expected += np.linalg.norm(W.T @ W - V @ V.T) ** 2 / 3
    assert error == pytest.approx(expected)


def test_table2_personalized_is_best():
    made = make("table2")
    (run,) = made.numbers["runs"]
    assert run["sparse"]["truth"] < run["sparse"]["personalized"] < run["sparse"]["individual"] < run["sparse"]["pooled"]
    truth = [row for row in made.grids[0].rows if row[1] == "truth"]
    assert all(row[2] == pytest.approx(1.5, abs=0.02) for row in truth)


@pytest.mark.parametrize("name", ["fig7", "fig8"])
def test_more_components_than_the_data_have_mix_the_parts(name):
    """Only the right ranks find the global part, although others reconstruct the rows as well."""
    (_, theta, exact, whole), (_, _, mixed, whole_of_more) = make(name).grids[0].rows
    assert theta > 0.5
    assert exact < 1e-12
    assert mixed > 0.01
    assert max(whole, whole_of_more) < 1e-12


@pytest.mark.parametrize(("name", "most"), [("fig7", 1e-12), ("table3", 1e-8)])
def test_theta_flags_too_many_local_components(name, most):
    exact, more = make(name).grids[0].rows
    assert more[1] < most
    assert exact[1] > 0.5


def test_groups_are_found():
    rows = make("fig9").grids[0].rows
    assert rows[-1][1] == 1.0


@pytest.mark.parametrize("name", ["fig10", "fig11"])
def test_the_lower_bound_is_as_predicted(name):
    for _, measured, predicted in make(name).grids[0].rows:
        assert measured == pytest.approx(predicted, rel=5e-3)


def test_icons_are_told_from_texture():
    assert min(make("table4").numbers["areas"].values()) > 0.95
    shown, masks = pictures.icons(50)
    for name, mask in masks.items():
        assert shown[name][mask].mean() < shown[name][~mask].mean() - 0.2


def test_motion_is_told_by_differences():
    frames = np.zeros((3, 4, 4))
    frames[1, 2, 2] = 1.0
    assert pictures.moving_pixels(frames, 0, 0.5).sum() == pictures.moving_pixels(frames, 2, 0.5).sum() == 1
    parts = {1: 0.1 + frames[1]}
    assert pictures.motion_ratio(parts, frames) == pytest.approx(1.1**2 / 0.1**2)
    assert pictures.motion_ratio({1: np.ones((4, 4))}, frames) == 1.0
    assert not pictures.always_moving(np.concatenate([frames, np.zeros((9, 4, 4))])).any()
    blinking = np.arange(12)[:, None, None] % 2 * np.eye(4)
    assert (pictures.always_moving(blinking) == np.eye(4, dtype=bool)).all()


@with_data
def test_writers_and_pictures(monkeypatch):
    monkeypatch.setattr(writing, "two_classes_each", lambda most: writing.writers(most))
    monkeypatch.setattr(writing, "writers", lambda most, all_writers=writing.writers: all_writers(min(most, 8)))
    made = make("table5")
    errors = {tuple(row[:3]): row[3] for row in made.grids[0].rows}
    assert errors["femnist", "train", "individual"] < errors["femnist", "train", "personalized"]
    assert errors["femnist", "test", "personalized"] < errors["femnist", "test", "individual"]


@with_data
def test_sites_of_two_classes():
    sites = writing.two_classes_each(3)
    assert list(sites) == ["site00", "site01", "site02"]
    assert all(400 < len(X) < 600 and 0 <= X.min() < X.max() <= 1 for X in sites.values())


@with_data
def test_people_leave_the_background():
    frames = pictures.frames_of("video_escalator")[:100]
    pca, shared, own = pictures.separated(frames, 0, ranks=(10, 2))
    assert len(pca.sites_) == 10
    assert pictures.motion_ratio(dict(enumerate(own)), frames, steady=pictures.always_moving(frames)) > 5
    np.testing.assert_allclose(shared[3] + own[3], frames[3], atol=0.6)


@with_data
def test_words_by_year(monkeypatch):
    sites, words = debates.debates_by_year()
    assert len(sites) == 13
    assert not {"the", "applause"} & set(words)
    some = {name: X for name, X in sites.items() if name[-4:] in ("2000", "2004", "2008")}
    monkeypatch.setattr(debates, "debates_by_year", lambda: (some, words))
    topics = make("table7").numbers["topics"]
    assert "iraq" in next(found for site, found in topics.items() if "2004" in site)


def test_leading_words_alternate():
    components = np.array([[0.1, -0.9, 0.2, 0.0], [0.8, 0.0, 0.0, 0.5]])
    assert debates.leading_words(components, ["a", "b", "c", "d"], 3) == ["b", "a", "c"]

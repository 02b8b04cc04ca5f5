"""Plots: what is drawn is what the estimator found, on the axes that were given, without rows from elsewhere."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sklearn.decomposition import PCA

import eigenpact as ep
from eigenpact.errors import InputError

mpl.use("Agg")
NAMES = list("abcde")


@pytest.fixture(autouse=True)
def closed():
    yield
    pyplot.close("all")


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    mix = rng.normal(size=(5, 5))
    return {name: pd.DataFrame(rng.normal(size=(n, 5)) @ mix, columns=NAMES) for name, n in (("north", 40), ("south", 25))}


@pytest.fixture(scope="module")
def pca(rows):
    return ep.FederatedPCA(3, solver="krylov").fit(rows)


def two_parts():
    """Rows of two sites that have a direction in common, and each one of its own."""
    rng = np.random.default_rng(1)
    found = {}
    for i, name in enumerate(("north", "south")):
        spread = np.array([5.0, 3.0, 0.1, 0.1, 0.1])
        spread[[1, 1 + i]] = spread[[1 + i, 1]]
        found[name] = rng.normal(size=(60, 5)) * spread
    return found


def test_every_plot_draws_on_the_axes_that_are_given(rows, pca):
    personal = ep.PersonalizedPCA(1, 1).fit(two_parts())
    calls = {
        "scree": lambda ax: ep.plot.scree(pca, ax=ax),
        "loadings": lambda ax: ep.plot.loadings(pca, 2, ax=ax),
        "scores": lambda ax: ep.plot.scores(pca, rows, ax=ax),
        "biplot": lambda ax: ep.plot.biplot(pca, rows, ax=ax),
        "convergence": lambda ax: ep.plot.convergence(pca, ax=ax),
        "traffic": lambda ax: ep.plot.traffic(pca, ax=ax),
        "parts": lambda ax: ep.plot.parts(personal, ax=ax),
    }
    assert set(calls) == set(ep.plot.__all__)
    for name, call in calls.items():
        given = Figure().subplots()
        assert call(given) is given, name
        assert given.has_data(), name
    assert not pyplot.get_fignums()
    assert isinstance(ep.plot.scree(pca), Axes)
    assert len(pyplot.get_fignums()) == 1


def test_scree_and_loadings_show_the_numbers(rows, pca):
    truth = PCA(3).fit(np.vstack(list(rows.values())))
    heights = [bar.get_height() for bar in ep.plot.scree(pca).patches]
    assert np.allclose(heights, 100 * truth.explained_variance_ratio_)
    ax = ep.plot.loadings(pca, 1)
    drawn = dict(zip((label.get_text() for label in ax.get_yticklabels()), (bar.get_width() for bar in ax.patches), strict=True))
    assert np.allclose([drawn[name] for name in NAMES], truth.components_[0], atol=1e-7)


def test_scores_are_those_of_the_rows_by_site(rows, pca):
    truth = PCA(3).fit(np.vstack(list(rows.values())))
    ax = ep.plot.scores(pca, rows, components=(1, 3))
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["north", "south"]
    for points, table in zip(ax.collections, rows.values(), strict=True):
        assert np.allclose(points.get_offsets(), truth.transform(table.to_numpy())[:, [0, 2]], atol=1e-7)
    together = pd.concat(rows.values(), ignore_index=True)
    labelled = ep.plot.scores(pca, together, sites=["north"] * 40 + ["south"] * 25, components=(1, 3))
    for one, other in zip(ax.collections, labelled.collections, strict=True):
        assert np.allclose(one.get_offsets(), other.get_offsets())


def test_convergence_and_traffic_are_those_of_the_run(pca):
    (line,) = ep.plot.convergence(pca).lines
    assert line.get_xdata()[-1] == pca.n_rounds_
    widths = [bar.get_width() for bar in ep.plot.traffic(pca).patches]
    assert sum(widths) == pca.ledger_.bytes_up + pca.ledger_.bytes_down


def test_parts_are_the_variances_of_sites_that_are_here():
    personal = ep.PersonalizedPCA(1, 1).fit(two_parts())
    ax = ep.plot.parts(personal)
    assert [label.get_text() for label in ax.get_xticklabels()] == ["shared", "north", "south"]
    expected = [
        *personal.explained_variance_,
        *(v for name in ("north", "south") for v in personal.local_explained_variance_[name]),
    ]
    assert np.allclose([bar.get_height() for bar in ax.patches], expected)


def test_what_cannot_be_drawn_is_told(rows, pca):
    with pytest.raises(InputError, match="component 4 is not there: the model has 3, counted from 1"):
        ep.plot.loadings(pca, 4)
    with pytest.raises(InputError, match="2 labels for 40 rows"):
        ep.plot.scores(pca, rows["north"], sites=["a", "b"])
    with pytest.raises(InputError, match="give a fitted PersonalizedPCA"):
        ep.plot.parts(pca)


def test_one_component_has_a_plot(rows):
    ax = ep.plot.scree(ep.FederatedPCA(1).fit(rows))
    assert [bar.get_width() < 0.5 * np.ptp(ax.get_xlim()) for bar in ax.patches] == [True]
    assert ax.get_legend() is None


@pytest.mark.parametrize("make", [ep.RobustPCA(2, scale="robust", random_state=0), ep.GraphPCA(2, random_state=0)])
def test_families_without_a_total_variance(make):
    rows, _, _ = ep.datasets.corrupted_problem(20, 200, rank=2, share=0.05, sites=2)
    fitted = make.fit(rows)
    name = next(iter(rows))
    assert ep.plot.scores(fitted, rows[name]).get_xlabel() == "score on PC1"
    if not any(record.kkt is not None for record in fitted.history_):
        with pytest.raises(InputError, match="draw traffic; what its rounds tell instead is in history_"):
            ep.plot.convergence(fitted)
    with pytest.raises(InputError, match=r"has no shares of variance to draw; ep\.plot\.loadings"):
        ep.plot.scree(fitted)


def test_the_legend_of_25_sites_covers_no_point():
    rng = np.random.default_rng(3)
    rows = {f"clinic{i}": rng.normal(size=(8, 3)) for i in range(25)}
    figure = Figure(layout="constrained")
    ax = ep.plot.scores(ep.FederatedPCA(2).fit(rows), rows, ax=figure.subplots())
    figure.draw_without_rendering()
    legend = ax.get_legend()
    assert [text.get_text() for text in legend.get_texts()] == list(rows)
    box = legend.get_window_extent()
    assert not box.overlaps(ax.patch.get_window_extent())
    assert figure.bbox.y0 <= box.y0 < box.y1 <= figure.bbox.y1
    assert box.x1 <= figure.bbox.x1

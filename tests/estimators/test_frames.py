"""``sites`` as the name of a column of a DataFrame: fitted, transformed, weighed and drawn as with a label for each row."""

from __future__ import annotations

from typing import Any

import matplotlib

matplotlib.use("Agg")

import numpy as np
import pandas as pd
import pytest

import eigenpact as ep
from eigenpact.errors import DoubtfulFeatureWarning, InputError

N, NAMES = 95, ["age", "bmi", "rate", "dose"]


def table(labels: Any = None) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    found = pd.DataFrame(rng.normal(size=(N, 4)) * [5, 3, 2, 1] + 10, columns=NAMES)
    found.insert(2, "hospital", rng.choice(["north", "south", "west"], N) if labels is None else labels)
    return found


ESTIMATORS = [
    ep.FederatedPCA(2, solver="gram"),
    ep.RobustPCA(2, random_state=0),
    ep.GraphPCA(2, graph="ring", random_state=0),
]


@pytest.mark.filterwarnings("ignore::eigenpact.errors.NotConvergedWarning")  # these rows have no low rank
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: type(estimator).__name__)
def test_fit_transform_leaves_the_column_out(estimator: Any) -> None:
    df = table()
    scores = estimator.fit_transform(df, sites="hospital")
    assert list(estimator.feature_names_in_) == NAMES
    assert np.array_equal(scores, estimator.transform(df[NAMES]))
    again = estimator.fit_transform(df[NAMES], sites=df["hospital"])
    assert np.allclose(scores, again)


def test_weights_of_rows_whose_sites_are_a_column() -> None:
    df, w = table(), np.random.default_rng(1).gamma(1.0, 2.0, N)
    by_name = ep.FederatedPCA(2, solver="gram").fit(df, sites="hospital", sample_weight=w)
    X = df[NAMES].to_numpy()
    mean = np.average(X, axis=0, weights=w)
    _, lengths, _ = np.linalg.svd(np.sqrt(w)[:, None] * (X - mean), full_matrices=False)
    assert by_name.sites_ == ("north", "south", "west")
    assert np.allclose(by_name.explained_variance_, lengths[:2] ** 2 / (w.sum() - 1), rtol=1e-10)
    of_sites = {name: w[df["hospital"] == name] for name in ("north", "south", "west")}
    as_dict = ep.FederatedPCA(2, solver="gram").fit(df, sites="hospital", sample_weight=of_sites)
    assert np.array_equal(as_dict.components_, by_name.components_)
    scores = ep.FederatedPCA(2, solver="gram").fit_transform(df, sites="hospital", sample_weight=w)
    assert np.array_equal(scores, by_name.transform(df[NAMES]))


def test_scores_are_drawn_by_a_column() -> None:
    df = table()
    pca = ep.FederatedPCA(2, solver="gram").fit(df, sites="hospital")
    ax = ep.plot.scores(pca, df, sites="hospital")
    drawn = {c.get_label(): np.asarray(c.get_offsets()) for c in ax.collections}
    assert set(drawn) == {"north", "south", "west"}
    for name, points in drawn.items():
        assert np.allclose(points, pca.transform(df.loc[df["hospital"] == name, NAMES]))
    assert len(ep.plot.biplot(pca, df, sites="hospital").collections) == 3
    matplotlib.pyplot.close("all")


def test_labels_of_several_kinds_are_sites_by_their_texts() -> None:
    labels = np.array(["a", 10, 2.5], dtype=object)[np.arange(N) % 3]
    df = table(labels)
    pca = ep.FederatedPCA(2, solver="gram").fit(df, sites="hospital", sample_weight=np.ones(N))
    assert set(pca.sites_) == {"a", "10", "2.5"}
    truth = np.linalg.eigvalsh(np.cov(df[NAMES].to_numpy().T))[::-1][:2]
    assert np.allclose(pca.explained_variance_, truth, rtol=1e-10)


def test_labels_that_read_the_same_are_refused() -> None:
    labels = np.array(["1", 1, 2], dtype=object)[np.arange(N) % 3]
    with pytest.raises(InputError, match="two sites read '1' as text; name the sites apart"):
        ep.FederatedPCA(2).fit(table(labels), sites="hospital")


def test_a_row_without_a_label_is_refused() -> None:
    labels = pd.array([pd.NA, *["x", "y"] * 47], dtype="string")
    with pytest.raises(InputError, match="row 0 and 0 more have no site label"):
        ep.FederatedPCA(2).fit(table(labels), sites="hospital")


def test_two_columns_of_the_name_are_refused() -> None:
    df = table().rename(columns={"dose": "hospital"})
    with pytest.raises(InputError, match="X has 2 columns named 'hospital'; rename them apart"):
        ep.FederatedPCA(2).fit(df, sites="hospital")


@pytest.mark.parametrize("fit", ["fit", "fit_transform"])
def test_a_number_is_no_name(fit: str) -> None:
    df = table().rename(columns={"hospital": 0, "age": 1, "bmi": 2, "rate": 3, "dose": 4})
    with pytest.raises(InputError, match="sites=0 is neither labels of rows nor a text; give sites='0', the name as text"):
        getattr(ep.FederatedPCA(2), fit)(df, sites=0)
    with pytest.raises(InputError, match="sites=7 is neither labels of rows nor a text; give a label for every row"):
        getattr(ep.FederatedPCA(2), fit)(df, sites=7)
    assert set(ep.FederatedPCA(2).fit(df, sites="0").sites_) == {"north", "south", "west"}
    with pytest.raises(InputError, match=r"sites: .*; give one label per row"):
        ep.FederatedPCA(2).fit(df[[1, 2]], sites=df[[3, 4]].to_numpy())


@pytest.mark.parametrize("way", ["labels", "one", "several"])
def test_columns_that_number_rows_or_hold_days_are_warned_of(way):
    """By their names, where fit was called; others are not, nor is a table without names."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(20, 2)), columns=["age", "bmi"])
    table["case"], table["visit"] = rng.permutation(20) + 100, 20200101 + np.arange(20) % 9
    rows = {"labels": table.assign(site=["a", "b"] * 10), "one": table, "several": {"a": table[:10], "b": table[10:]}}[way]
    with pytest.warns(DoubtfulFeatureWarning, match="column 'visit' holds days written as numbers, such as 20200131") as told:
        ep.FederatedPCA(1).fit(rows, sites="site" if way == "labels" else None)
    (warning,) = told
    assert warning.filename == __file__
    assert ("column 'case' holds whole numbers one after the other" in str(warning.message)) == (way != "several")
    plain = table[["age", "bmi"]]
    ep.FederatedPCA(1).fit(plain)  # warnings are errors here
    ep.FederatedPCA(1).fit(table.to_numpy())

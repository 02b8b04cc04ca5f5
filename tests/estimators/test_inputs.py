"""What users pass to fit and transform: refused with the reason where it would be misread, else read as it is meant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anndata
import numpy as np
import pandas as pd
import pyarrow
import pytest
import scipy.sparse as sp
from sklearn.decomposition import PCA

import eigenpact as ep
from eigenpact.errors import InputError, InputTypeError
from eigenpact.estimators.frames import rows_by_label

ROWS = np.random.default_rng(0).normal(size=(8, 3)) * [3, 2, 1]

WAYS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "one matrix": ("site 'site0'", lambda X: ep.FederatedPCA(1).fit(X)),
    "list": ("site 'site1'", lambda X: ep.FederatedPCA(1).fit([ROWS, X])),
    "dict": ("site 'B'", lambda X: ep.FederatedPCA(1).fit({"A": ROWS, "B": X})),
    "labels": ("X", lambda X: ep.FederatedPCA(1).fit(X, sites=list("aaaabbbb"))),
    "transform": ("X", lambda X: ep.FederatedPCA(1).fit(ROWS).transform(X)),
    "score": ("X", lambda X: ep.FederatedPCA(1).fit(ROWS).score(X)),
    "personalized": ("X", lambda X: ep.PersonalizedPCA(1, 1).fit([ROWS, ROWS[:, [0, 2, 1]]]).transform(X, site="site0")),
    "robust": ("site 'site0'", lambda X: ep.RobustPCA(1).fit(X)),
}
"""How rows are passed -> what the error calls them, and the call."""


@pytest.mark.parametrize("way", WAYS)
def test_masked_entries_are_refused(way: str) -> None:
    """What a mask hides must not be read as data."""
    whose, call = WAYS[way]
    hidden = np.ma.array(ROWS, mask=ROWS > 1)
    message = rf"{whose}: {hidden.mask.sum()} entries are masked.*fill them in with X.filled\(value\), or drop those rows"
    with pytest.raises(InputError, match=message):
        call(hidden)


@pytest.mark.parametrize("way", ["one matrix", "transform"])
def test_a_list_of_masked_rows_is_refused(way: str) -> None:
    """Also where the rows carry the mask."""
    with pytest.raises(InputError, match="1 entry is masked"):
        WAYS[way][1](list(np.ma.array(ROWS, mask=np.max(ROWS) == ROWS)))


@pytest.mark.parametrize("way", WAYS)
def test_a_masked_array_that_hides_nothing(way: str) -> None:
    """It is read as the plain array it holds."""
    WAYS[way][1](np.ma.array(ROWS))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("make", [np.array, sp.csr_array], ids=["dense", "sparse"])
def test_complex_numbers_are_refused(way: str, make: Any) -> None:
    """The message names the dtype, what to do, and no entry."""
    whose, call = WAYS[way]
    with pytest.raises(
        InputError, match=f"Complex data not supported: {whose} has dtype complex128; give real numbers"
    ) as caught:
        call(make(ROWS + 1j))
    assert "[" not in str(caught.value)


@pytest.mark.parametrize("way", ["one matrix", "list", "dict", "labels", "transform"])
def test_complex_objects_are_refused(way: str) -> None:
    """Complex numbers in an array of objects say the same."""
    with pytest.raises(InputError, match=f"Complex data not supported: {WAYS[way][0]} has dtype object with complex numbers"):
        WAYS[way][1]((ROWS + 1j).astype(object))


def test_complex_columns_of_a_frame() -> None:
    """A frame's column, in fit and in transform."""
    frame = pd.DataFrame(ROWS, columns=list("xyz"))
    fitted = ep.FederatedPCA(1).fit(frame)
    frame["y"] = frame["y"] + 1j
    for call in (ep.FederatedPCA(1).fit, fitted.transform):
        with pytest.raises(InputError, match=r"Complex data not supported: .* has dtype complex128"):
            call(frame)


def twice(X: Any) -> Any:
    """A CSR matrix that stores every entry as two halves."""
    n, d = X.shape
    columns = np.repeat(np.tile(np.arange(d), n), 2)
    return sp.csr_matrix((np.repeat(X.ravel() / 2, 2), columns, np.arange(n + 1) * 2 * d), shape=X.shape)


@pytest.mark.parametrize("solver", ["gram", "krylov"])
@pytest.mark.parametrize("scale", [None, "pooled"])
def test_sparse_entries_stored_more_than_once(solver: str, scale: Any) -> None:
    """Fit, transform and score give the dense answer, and the user's matrix stays as it is."""
    X = np.random.default_rng(0).normal(size=(40, 6)) * [6, 5, 4, 3, 2, 1] + 3
    dense = ep.FederatedPCA(2, solver=solver, scale=scale, random_state=0).fit(X, sites=[0] * 15 + [1] * 25)
    given = twice(X)
    for sites in ({"X": given, "sites": [0] * 15 + [1] * 25}, {"X": {"0": twice(X[:15]), "1": twice(X[15:]).tocsc()}}):
        sparse = ep.FederatedPCA(2, solver=solver, scale=scale, random_state=0).fit(**sites)
        np.testing.assert_allclose(sparse.components_, dense.components_, atol=1e-10)
        np.testing.assert_allclose(sparse.explained_variance_ratio_, dense.explained_variance_ratio_, rtol=1e-12)
        assert sparse.noise_variance_ == pytest.approx(dense.noise_variance_)
    np.testing.assert_allclose(dense.transform(given), dense.transform(X), atol=1e-12)
    assert dense.score(given) == pytest.approx(dense.score(X), rel=1e-12)
    np.testing.assert_array_equal(given.data, np.repeat(X.ravel() / 2, 2))


def test_whole_numbers_stored_more_than_once() -> None:
    """Small integers that add up to more than their type holds: counts of events, never added up."""
    counts = sp.csr_matrix((np.full(4, 100, dtype=np.uint8), [0, 0, 0, 1], [0, 3, 4]), shape=(2, 2))
    np.testing.assert_array_equal(ep.FederatedPCA(1).fit(counts).mean_, [150, 50])


def test_sites_may_be_a_column_of_a_table():
    rng = np.random.default_rng(3)
    X, hospital = rng.normal(size=(40, 4)), np.array(["north", "south"])[rng.integers(0, 2, 40)]
    table = pd.DataFrame(X, columns=list("abcd"))
    table.insert(2, "hospital", hospital)
    found = ep.FederatedPCA(2).fit(table, sites="hospital")
    assert found.sites_ == ("north", "south")
    assert list(found.feature_names_in_) == list("abcd")
    expected = PCA(2).fit(X)
    assert np.allclose(found.components_, expected.components_, atol=1e-7)
    arrow = pyarrow.Table.from_pandas(table)
    assert np.array_equal(ep.FederatedPCA(2).fit(arrow, sites="hospital").components_, found.components_)
    with pytest.raises(InputError, match=r"sites='town' is no column of X; columns are a, b, hospital, c, d"):
        ep.FederatedPCA(2).fit(table, sites="town")
    with pytest.raises(InputError, match=r"sites='hospital' names a column, and X has no names of columns"):
        ep.FederatedPCA(2).fit(X, sites="hospital")


def test_what_is_no_table_is_named_and_no_row_is_printed():
    row = np.arange(1000.0) + 0.125
    for wrong in (row, row.tolist(), {"north": row, "south": np.ones((3, 2))}):
        with pytest.raises(InputError, match=r"got 1D array instead: .* has shape \(1000,\)") as caught:
            ep.FederatedPCA(1).fit(wrong)
        assert "125" not in str(caught.value)
    with pytest.raises(InputTypeError, match=r"'north\.csv', the name of a file"):
        ep.FederatedPCA(1).fit("north.csv")
    with pytest.raises(InputTypeError, match=r"X is an AnnData object; call ep\.pp\.pca"):
        ep.FederatedPCA(1).fit(anndata.AnnData(np.ones((3, 2))))
    with pytest.raises(InputTypeError, match=r"can be read as numbers: give X\.astype\(float\)"):
        ep.FederatedPCA(1).fit(pd.DataFrame(np.ones((3, 2)), dtype=object))


def test_rows_of_many_labels_are_those_that_have_them() -> None:
    """Each label's rows in their order, for texts, numbers, and labels of kinds that have no order."""
    rng = np.random.default_rng(0)
    for labels in (rng.integers(0, 300, 1000), rng.choice(["b", "a", "ab"], 1000), np.array([1, "x", 2.5, "x", 1], dtype=object)):
        found = rows_by_label(labels)
        assert [label for label, _ in found] == sorted(set(labels.tolist()), key=str if labels.dtype == object else None)
        for label, rows in found:
            assert rows.tolist() == [i for i, x in enumerate(labels) if x == label]

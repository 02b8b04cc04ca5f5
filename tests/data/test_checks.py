"""Tables that cannot be used are refused by site and column."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse

from eigenpact.data.checks import check_finite, check_numeric, check_same_features
from eigenpact.errors import InputError, InputTypeError


def test_the_same_names_in_another_order_give_a_permutation():
    names = ["age", "bmi", "chol"]
    orders = check_same_features({"A": (3, names), "B": (3, ["chol", "age", "bmi"]), "C": (3, tuple(names))})
    assert orders["A"] is None
    assert orders["C"] is None
    assert [np.array(["chol", "age", "bmi"])[j] for j in orders["B"]] == names


def test_sites_without_names_are_only_counted():
    orders = check_same_features({"A": (2, None), "B": (2, ["x", "y"]), "C": (2, ["y", "x"])})
    assert orders["A"] is None
    assert orders["B"] is None
    assert_array_equal(orders["C"], [1, 0])
    with pytest.raises(InputError, match="'B' has 3 features, site 'A' has 2"):
        check_same_features({"A": (2, None), "B": (3, None)})


def test_different_features_are_listed():
    with pytest.raises(InputError, match=r"compared with 'A', 'B' lacks \['bmi'\] and has in addition \['BMI'\]"):
        check_same_features({"A": (2, ["age", "bmi"]), "B": (2, ["age", "BMI"])})


def test_at_most_five_names_are_listed():
    many = [f"f{i}" for i in range(9)]
    with pytest.raises(InputError, match=r"'f1', 'f2', 'f3', 'f4', 'f5'\] and 3 more") as caught:
        check_same_features({"A": (9, many), "B": (1, ["f0"])})
    assert "'f6'" not in str(caught.value)


@pytest.mark.parametrize(
    ("sites", "message"),
    [
        ({}, "no sites"),
        ({"A": (2, ["x", "x"])}, r"site 'A' has repeated feature names \['x'\]"),
        ({"A": (2, ["x"])}, "2 features but 1 feature names"),
    ],
)
def test_bad_feature_lists_are_named(sites, message):
    with pytest.raises(InputError, match=message):
        check_same_features(sites)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array, sparse.csc_matrix, sparse.coo_array])
def test_nan_and_inf_are_counted_per_column(kind):
    X = np.zeros((5, 3))
    X[0, 1] = X[3, 1] = np.nan
    X[2, 1] = np.inf
    X[4, 2] = -np.inf
    with pytest.raises(InputError, match=r"site 'A': column 'bmi' has 2 NaN and 1 infinite, column 'chol' has 1 infinite;"):
        check_finite("A", kind(X), ["age", "bmi", "chol"])
    with pytest.raises(InputError, match="column 1 has 2 NaN"):
        check_finite("A", kind(X))


def test_finite_tables_pass():
    for X in (np.ones((3, 2)), np.ones((3, 2), dtype=np.uint8), sparse.eye_array(4).tocsc(), np.zeros((0, 2))):
        check_finite("A", X)


def test_many_bad_columns_are_summed_up():
    with pytest.raises(InputError, match="column 4 has 1 NaN, and 3 more columns"):
        check_finite("A", np.full((1, 8), np.nan))


def test_a_late_entry_is_found_in_blocks_without_a_full_mask():
    X = np.zeros((300_000, 20), dtype=np.float32)
    X[-1, 7] = np.nan
    tracemalloc.start()
    with pytest.raises(InputError, match="column 7 has 1 NaN"):
        check_finite("A", X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < X.size, "a full boolean mask was made"


def test_wide_sparse_tables_are_not_densified():
    X = sparse.csr_array(([1.0, np.inf], ([0, 99_999], [5, 99_999])), shape=(100_000, 100_000))  # 80 GB if dense
    with pytest.raises(InputError, match="column 99999 has 1 infinite"):
        check_finite("A", X)


@pytest.mark.parametrize("X", [np.array([["a"]]), np.array([[None]]), np.array([["2020-01-01"]], dtype="datetime64[D]")])
def test_things_that_are_not_numbers_are_type_errors(X):
    with pytest.raises(InputTypeError, match=r"site 'A': X has dtype .*astype"):
        check_numeric("A", X)


def test_complex_numbers_are_refused():
    with pytest.raises(InputError, match="Complex data not supported: site 'A'"):
        check_numeric("A", np.ones((2, 2), dtype=complex))


def test_columns_of_frames_are_named():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"age": [1, 2], "town": ["x", "y"], "bmi": [1.5, None]})
    with pytest.raises(InputTypeError, match=r"site 'A': columns 'town' \("):
        check_numeric("A", frame)
    check_numeric("A", frame[["age", "bmi"]])
    with pytest.raises(InputError, match="Complex"):
        check_numeric("A", pandas.DataFrame({"z": [1j]}))

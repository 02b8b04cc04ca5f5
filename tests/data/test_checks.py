"""Tables that cannot be used are refused by site and column."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from scipy import sparse

from eigenpact.data.checks import check_finite, check_numeric
from eigenpact.errors import InputError, InputTypeError


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


def test_what_to_do_is_told_of_missing_and_infinite_entries_apart():
    for bad, missing, infinite in ((np.nan, True, False), (np.inf, False, True)):
        with pytest.raises(InputError) as caught:
            check_finite("A", np.array([[1.0, bad]]))
        told = str(caught.value)
        for word in ("missing='mean' or missing='em' (--missing)", "--prepare genotypes", "--project"):
            assert (word in told) == missing
        assert ("division by zero" in told) == infinite
    with pytest.raises(InputError, match="division by zero") as caught:
        check_finite("A", np.array([[np.nan, np.inf]]), missing=True)
    assert "--missing" not in str(caught.value)


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

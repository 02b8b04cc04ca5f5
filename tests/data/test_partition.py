"""Every row lands in exactly one site, whatever the split."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy import sparse

from eigenpact.data import partition
from eigenpact.errors import InputError, InputTypeError


def numbered(n_rows):
    """A table whose first column is the row number."""
    return np.column_stack([np.arange(n_rows), -np.arange(n_rows)]).astype(float)


def assert_is_partition(sites, n_rows):
    assert list(sites) == sorted(sites)
    held = [site[:, 0] for site in sites.values()]
    assert all(rows.size > 0 for rows in held)
    assert all(np.all(np.diff(rows) > 0) for rows in held), "rows must keep their order"
    assert_array_equal(np.sort(np.concatenate(held)), np.arange(n_rows))


labels = st.one_of(
    st.lists(st.integers(0, 200), min_size=1, max_size=40),
    st.lists(st.sampled_from(["north", "south", "é", "a b"]), min_size=1, max_size=40),
    st.lists(st.booleans(), min_size=1, max_size=40),
    st.lists(st.floats(-5, 5), min_size=1, max_size=40),
)


@given(labels, st.sampled_from([partition.by_label, partition.by_group]))
def test_by_value_gives_one_site_per_value(values, split):
    X = numbered(len(values))
    sites = split(X, values)
    assert_is_partition(sites, len(values))
    assert len(sites) == len(np.unique(np.asarray(values)))
    for site in sites.values():
        assert len(np.unique(np.asarray(values)[site[:, 0].astype(int)])) == 1


@given(st.lists(st.integers(0, 2000), min_size=1, max_size=30))
def test_numbers_in_names_sort_as_numbers(values):
    sites = partition.by_group(numbered(len(values)), values)
    in_order = [values[int(site[0, 0])] for site in sites.values()]
    assert in_order == sorted(in_order)


@given(st.integers(1, 60), st.data())
def test_random_is_an_even_partition(n_rows, data):
    n_sites = data.draw(st.integers(1, n_rows))
    sites = partition.random(numbered(n_rows), n_sites, seed=data.draw(st.integers(0, 5)))
    assert_is_partition(sites, n_rows)
    sizes = [len(site) for site in sites.values()]
    assert len(sizes) == n_sites
    assert max(sizes) - min(sizes) <= 1


@given(st.lists(st.integers(1, 20), min_size=1, max_size=12), st.integers(0, 5))
def test_unequal_gives_exactly_the_counts(sizes, seed):
    sites = partition.unequal(numbered(sum(sizes)), sizes, seed)
    assert_is_partition(sites, sum(sizes))
    assert [len(site) for site in sites.values()] == sizes


@given(st.lists(st.floats(1e-3, 1), min_size=1, max_size=12), st.integers(12, 80))
def test_unequal_proportions_are_met_within_rounding(weights, n_rows):
    shares = [weight / sum(weights) for weight in weights]
    sites = partition.unequal(numbered(n_rows), shares)
    assert_is_partition(sites, n_rows)
    sizes = np.array([len(site) for site in sites.values()])
    exact = np.array(shares) * n_rows
    assert np.all(sizes < exact + 1 + 1e-6)
    if exact.min() >= 1:
        assert np.all(sizes > exact - 1 - 1e-6)


@settings(max_examples=60)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=60), st.sampled_from([1e-3, 0.1, 1.0, 100.0]), st.data())
def test_dirichlet_is_a_partition_with_min_rows(y, alpha, data):
    n_sites = data.draw(st.integers(1, len(y)))
    min_rows = data.draw(st.integers(1, len(y) // n_sites))
    sites = partition.dirichlet(numbered(len(y)), y, n_sites, alpha, seed=2, min_rows=min_rows)
    assert_is_partition(sites, len(y))
    assert len(sites) == n_sites
    assert min(len(site) for site in sites.values()) >= min_rows


def test_alpha_sets_how_mixed_the_sites_are():
    y = np.repeat(np.arange(5), 200)

    def largest_share(alpha):
        sites = partition.dirichlet(numbered(1000), y, 5, alpha, seed=0)
        shares = [np.bincount(y[site[:, 0].astype(int)]).max() / len(site) for site in sites.values()]
        return np.mean(shares)

    assert largest_share(0.05) > 0.6
    assert largest_share(1000.0) < 0.25


def test_seeds_decide():
    X = numbered(50)
    same, again, other = (partition.random(X, 5, seed) for seed in (1, 1, 2))
    assert_array_equal(same["site0"], again["site0"])
    assert not np.array_equal(same["site0"], other["site0"])


@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.coo_array, sparse.csc_matrix, sparse.dok_array])
def test_sparse_rows_stay_sparse(kind):
    X = numbered(9)
    sites = partition.by_label(kind(X), [0, 1, 2] * 3)
    assert all(sparse.issparse(site) for site in sites.values())
    assert_array_equal(sites["label1"].toarray(), X[1::3])


def test_frames_stay_frames():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(numbered(6), columns=["a", "b"], index=list("uvwxyz"))
    sites = partition.by_group(frame, pandas.Series(["s", "t"] * 3))
    assert list(sites["t"].index) == ["v", "x", "z"]
    assert list(sites["s"].columns) == ["a", "b"]


def test_names_of_common_labels():
    X = numbered(3)
    assert list(partition.by_label(X, [10, 2, 2])) == ["label02", "label10"]
    assert list(partition.by_label(X, [1.0, 0.0, 1.0])) == ["label0", "label1"]
    assert list(partition.by_label(X, [-1, 1, 1])) == ["label-1", "label01"]
    assert list(partition.by_group(X, np.array(["b", "a", "b"], dtype=object))) == ["a", "b"]
    assert next(iter(partition.random(numbered(11), 11))) == "site00"


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda X: partition.by_label(X, [1, 2]), InputError, r"y has shape \(2,\), X has 4 rows"),
        (lambda X: partition.by_group(X, ["a", None, "b", "c"]), InputError, r"groups\[1\]=None"),
        (lambda X: partition.by_label(X, [1.0, np.nan, 0.0, 1.0]), InputError, r"y\[1\] is missing"),
        (lambda X: partition.by_group(X, ["a", "", "b", "c"]), InputError, "empty or coinciding"),
        (lambda X: partition.by_label(X, np.ones(4, dtype=complex)), InputTypeError, "complex128"),
        (lambda X: partition.random(X, 5), InputError, "5 sites cannot share 4 rows"),
        (lambda X: partition.random(X, 2.0), InputTypeError, "n_sites=2.0"),
        (lambda _: partition.random(np.ones(4), 2), InputError, r"shape \(4,\)"),
        (lambda _: partition.random(np.ones((0, 4)), 1), InputError, "no rows"),
        (lambda X: partition.unequal(X, [1, 2]), InputError, "sum to 3, X has 4 rows"),
        (lambda X: partition.unequal(X, [0.5, 0.6]), InputError, "must sum to 1"),
        (lambda X: partition.unequal(X, [4, 0]), InputError, "not positive"),
        (lambda X: partition.unequal(X, []), InputError, "list of row counts"),
        (lambda X: partition.dirichlet(X, [0, 0, 1, 1], 2, 0.0), InputError, "alpha=0.0"),
        (lambda X: partition.dirichlet(X, [0, 0, 1, 1], 2, 1.0, min_rows=3), InputError, "from 1 to 2"),
    ],
)
def test_bad_arguments_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call(numbered(4))

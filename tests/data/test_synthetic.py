"""The FAPS paper's matrices have the spectrum they promise."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from eigenpact.data.synthetic import personalized_problem, site_names, spectral_problem
from eigenpact.errors import InputError, InputTypeError


def stacked(problem):
    return np.vstack([problem[name] for name in sorted(problem)])


@pytest.mark.parametrize(("n", "m"), [(20, 300), (40, 40), (60, 25), (1, 7), (7, 1)])
@pytest.mark.parametrize("decay", [1.01, 1.3])
def test_singular_values_are_the_geometric_spectrum(n, m, decay):
    X = stacked(spectral_problem(n, m, decay=decay, seed=3))
    rank = min(n, m)
    expected = decay ** (1.0 - np.arange(1, rank + 1))
    assert X.shape == (m, n)
    assert_allclose(np.linalg.svd(X, compute_uv=False), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("n", "m"), [(30, 200), (50, 20), (1, 4)])
@pytest.mark.parametrize("kappa", [1.0, 4.0, 1e6])
def test_condition_gives_the_arithmetic_spectrum(n, m, kappa):
    values = np.linalg.svd(stacked(spectral_problem(n, m, condition=kappa)), compute_uv=False)
    assert_allclose(values, np.linspace(1.0, 1.0 / kappa if min(n, m) > 1 else 1.0, min(n, m)), rtol=0, atol=1e-12)


def test_scatter_has_an_orthonormal_basis_with_the_squared_spectrum():
    n, m, decay = 12, 90, 1.5
    A = stacked(spectral_problem(n, m, decay=decay)).T
    sigma = decay ** -np.arange(n, dtype=float)
    U = np.linalg.svd(A, full_matrices=False)[0]
    assert_allclose(U.T @ U, np.eye(n), atol=1e-13)
    assert_allclose(U.T @ (A @ A.T) @ U, np.diag(sigma**2), atol=1e-13)
    assert np.abs(U).max() < 0.99, "the basis must not be axis-aligned"


def test_sites_only_cut_the_same_rows():
    whole = spectral_problem(5, 30, seed=1)["site0"]
    listed = spectral_problem(5, 30, sites=[1, 20, 9], seed=1)
    assert [X.shape[0] for X in listed.values()] == [1, 20, 9]
    assert_allclose(stacked(listed), whole, rtol=0, atol=1e-15)
    assert [X.shape[0] for X in spectral_problem(5, 30, sites=4).values()] == [8, 8, 7, 7]


def test_arrays_are_c_contiguous_float64_and_depend_on_the_seed_alone():
    first, again, other = (spectral_problem(4, 12, sites=3, seed=seed) for seed in (0, 0, 1))
    for name, X in first.items():
        assert X.dtype == np.float64
        assert X.flags.c_contiguous
        assert_array_equal(X, again[name])
        assert not np.allclose(X, other[name])


@pytest.mark.parametrize("count", [1, 10, 11, 100, 101])
def test_names_sort_in_the_given_order(count):
    names = site_names(count)
    assert sorted(names) == names
    assert len(set(names)) == count
    assert list(spectral_problem(2, count, sites=count)) == names


def test_ten_sites_need_no_padding_eleven_do():
    assert site_names(10)[0] == "site0"
    assert site_names(11)[0] == "site00"


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"n_features": 0}, InputError, "n_features=0"),
        ({"n_features": 2.0}, InputTypeError, "n_features=2.0 is a float"),
        ({"n_rows": -1}, InputError, "n_rows=-1"),
        ({"decay": 0.5}, InputError, "decay=0.5"),
        ({"decay": float("inf")}, InputError, "decay=inf"),
        ({"decay": "1.1"}, InputTypeError, "decay='1.1'"),
        ({"condition": 0.9}, InputError, "condition=0.9"),
        ({"sites": 11}, InputError, "at most 10 sites"),
        ({"sites": 0}, InputError, "sites=0"),
        ({"sites": [4, 5]}, InputError, "sum to 9, not to n_rows=10"),
        ({"sites": [10, 0]}, InputError, r"sites\[1\]=0"),
        ({"sites": []}, InputError, "sum to 0"),
        ({"sites": "3"}, InputTypeError, "give a number of sites or a list"),
    ],
)
def test_bad_arguments_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        spectral_problem(**({"n_features": 3, "n_rows": 10} | arguments))


def test_shared_and_own_directions():
    problem = personalized_problem(
        4, 10, 2, 3, variances=(9.0, 4.0, 0.01), rows=[20000, 500, 3, 0], test_rows=7, n_groups=2, seed=1
    )
    assert [len(X) for X in problem.sites.values()] == [20000, 500, 3, 0]
    assert {len(X) for X in problem.test.values()} == {7}
    assert problem.groups == {"site0": 0, "site1": 1, "site2": 0, "site3": 1}
    assert_array_equal(problem.V["site0"], problem.V["site2"])
    for V in problem.V.values():
        W = np.concatenate([problem.U, V], axis=1)
        assert_allclose(W.T @ W, np.eye(5), atol=1e-12)
    X = problem.sites["site0"]
    S = X.T @ X / len(X)
    assert_allclose(problem.U.T @ S @ problem.U, 4.01 * np.eye(2), atol=0.2)
    assert_allclose(problem.V["site0"].T @ S @ problem.V["site0"], 9.01 * np.eye(3), atol=0.4)
    assert_allclose(np.trace(S), 8 + 27 + 0.1, atol=0.6)


def test_refused_personalized_problems():
    with pytest.raises(InputError, match="n_global \\+ n_local = 11 must be at most n_features=10"):
        personalized_problem(2, 10, 5, 6)
    with pytest.raises(InputError, match="rows has 3 entries for 2 sites"):
        personalized_problem(2, 10, 1, 1, rows=[1, 2, 3])

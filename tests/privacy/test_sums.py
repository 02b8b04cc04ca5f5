"""Attacks on sums and models: each finds what its page says, and nothing where it must not be able to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import eigenpact as ep
from eigenpact.privacy import (
    Totals,
    auc,
    isolated,
    lost_site,
    membership,
    rare_rows,
    row_between,
    row_between_components,
)


def totals(X: Any) -> Totals:
    Y = X - X.mean(axis=0)
    return Totals(len(X), X.mean(axis=0), Y.T @ Y)


def test_a_lost_site_is_the_difference_of_two_sums() -> None:
    """Rows, mean and scatter to 1e-12, also far from the origin; a roster that lost two sites gives neither of them."""
    rng = np.random.default_rng(0)
    parts = [rng.normal(size=(n, 6)) + 100 for n in (30, 20, 25)]
    found = lost_site(totals(np.concatenate(parts)), totals(np.concatenate(parts[:2])))
    truth = totals(parts[2])
    assert found.n == 25
    np.testing.assert_allclose(found.mean, truth.mean, rtol=1e-13)
    assert found.scatter is not None
    assert truth.scatter is not None
    assert np.linalg.norm(found.scatter - truth.scatter) <= 1e-12 * np.linalg.norm(truth.scatter)
    both = lost_site(totals(np.concatenate(parts)), totals(parts[0]))
    assert both.n == 45
    assert both.scatter is not None
    assert np.linalg.norm(both.scatter - truth.scatter) > 0.1 * np.linalg.norm(truth.scatter)
    with pytest.raises(ep.errors.InputError, match="30 rows of all and 30 of the rest leave none"):
        lost_site(totals(parts[0]), totals(parts[0]))


def test_one_row_more_is_told_by_two_models() -> None:
    """From public attributes alone, to 1e-10; with two rows more there is no telling."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(2000, 12)) @ rng.normal(size=(12, 12)) + 5
    models = [ep.FederatedPCA(2, random_state=0).fit({"A": X[:700], "B": X[700:n]}) for n in (1998, 1999, 2000)]
    published = [Totals(pca.n_samples_seen_, pca.mean_) for pca in models]
    assert np.linalg.norm(row_between(*published[1:]) - X[-1]) <= 1e-10 * np.linalg.norm(X[-1])
    with pytest.raises(ep.errors.InputError, match="1998 and 2000 rows do not differ by one row"):
        row_between(published[0], published[2])


def test_without_a_mean_the_components_tell_the_row_up_to_its_sign() -> None:
    """All components do, to 1e-10; two of twelve do not."""
    X = np.random.default_rng(2).normal(size=(60, 12))
    for k, close in ((12, True), (2, False)):
        models = [ep.FederatedPCA(k, center=False, solver="gram").fit([X[:20], X[20:n]]) for n in (59, 60)]
        row = row_between_components(*((pca.components_, pca.singular_values_**2) for pca in models))
        error = min(np.linalg.norm(sign * row - X[-1]) for sign in (1, -1)) / np.linalg.norm(X[-1])
        assert (error <= 1e-10) == close
        assert close or error > 0.1


def test_rosters_that_isolate_a_site_together() -> None:
    assert isolated([["A", "B", "C"]]) == []
    assert isolated([["A"]]) == ["A"]
    assert isolated([["A", "B", "C"], ["A", "B"]]) == ["C"]
    assert isolated([list("ABCD"), list("ABE"), list("CDE")]) == ["E"]
    assert isolated([list("ABCD"), list("ABE")]) == []


def rare_problem(rarest: int) -> Any:
    """Counts of 40 people; every feature of the first ones has at least ``rarest`` carriers, the last has just one."""
    rng = np.random.default_rng(3)
    X = rng.integers(0, 3, size=(40, 25)).astype(float)
    X[:, -3:] = 0
    X[:rarest, -1] = 1
    X[5, -2] = 2  # one person has two copies
    X[:, -3] = 2
    X[9, -3] = 1  # one person lacks a copy
    return X


def test_rows_of_single_people_stand_in_columns() -> None:
    """One carrier, one carrier of two copies, one who lacks a copy; with two carriers, no row is claimed."""
    X = rare_problem(1)
    features = [22, 23, 24]
    found = rare_rows(len(X), X.sum(axis=0), (X.T @ X)[:, features], features)
    assert {f: row.tolist() for f, row in found.items()} == {22: X[9].tolist(), 23: X[5].tolist(), 24: X[0].tolist()}
    X = rare_problem(2)
    assert 24 not in rare_rows(len(X), X.sum(axis=0), (X.T @ X)[:, features], features)


def test_a_second_carrier_is_told_once_the_first_is_known() -> None:
    """Persons 0 and 7 carry a feature; 0 also carries one alone."""
    X = rare_problem(1)
    X[:, 0] = 0
    X[[0, 7], 0] = 1
    features = [0, 24]
    found = rare_rows(len(X), X.sum(axis=0), (X.T @ X)[:, features], features)
    assert found[0].tolist() == X[7].tolist()
    assert 0 not in rare_rows(len(X), X.sum(axis=0), (X.T @ X)[:, [0]], [0])


def test_rare_rows_need_whole_numbers() -> None:
    with pytest.raises(ep.errors.InputError, match="no whole numbers"):
        rare_rows(3, np.array([1.5, 2.0]), np.ones((2, 1)), [0])


@pytest.mark.parametrize(("features", "rows", "least", "most"), [(4000, 60, 0.99, 1.0), (20, 4000, 0.4, 0.6)])
def test_membership_by_the_mean(features: int, rows: int, least: float, most: float) -> None:
    """Many features and few rows give members away; few features and many rows do not."""
    rng = np.random.default_rng(4)
    members, others, reference = (rng.binomial(2, 0.3, size=(n, features)).astype(float) for n in (rows, rows, 4 * rows))
    facts = members.mean(axis=0), reference.mean(axis=0), reference.std(axis=0)
    area = auc(membership(members, *facts), membership(others, *facts))
    assert least <= area <= most


def test_auc_agrees_with_scikit_learn() -> None:
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(5)
    members, others = rng.integers(0, 9, size=30) + 1.0, rng.integers(0, 9, size=20) + 0.0
    truth = roc_auc_score(np.repeat([1, 0], [30, 20]), np.concatenate([members, others]))
    assert auc(members, others) == pytest.approx(truth, rel=1e-12)

"""Agreed medians and quartiles of columns far from zero for their spread: those of numpy of the pooled rows."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from sklearn.preprocessing import RobustScaler

import eigenpact as ep
from eigenpact.algorithms import medians as middle
from eigenpact.algorithms.medians import ALL_ROUNDS, ENTRIES, count_parts, digits_of, keys_of, shift_of
from eigenpact.algorithms.prepare import quartiles as counting
from eigenpact.errors import PolicyError
from eigenpact.runtime import Site

NORMAL = 0.6744897501960817


def scaled(X, by, **options):
    return ep.FederatedPCA(1, prepare=[ep.prepare.Scale(by)], random_state=0, **options).fit(X, sites=np.arange(len(X)) % 3)


def columns(n, seed=0):
    """All offsets beside all spreads, and by how much float64 itself rounds each, as a share of its spread."""
    offsets, spreads = (grid.ravel() for grid in np.meshgrid([0.0, 1e5, -1.7e9, 2.0**30], [1.0, 60.0, 1e-3]))
    return np.random.default_rng(seed).normal(size=(n, 12)) * spreads + offsets, np.spacing(np.abs(offsets)) / spreads


@pytest.mark.parametrize("n", [201, 80, 10])
def test_robust_scales_are_those_of_numpy_at_any_offset(n):
    X, rounding = columns(n)
    arrays = scaled(X, "robust").preparation_[0].arrays
    middle = np.sort(X, axis=0)[(n - 1) // 2]
    sizes = np.sort(np.abs(X - middle), axis=0)[(n - 1) // 2] / NORMAL
    assert np.all(np.abs(arrays["centre"] - middle) <= (1e-6 + 2 * rounding) * sizes)
    assert np.all(np.abs(arrays["scale"] / sizes - 1) <= 1e-6 + 4 * rounding)


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("n", [201, 80, 31, 10])
def test_quartiles_are_those_of_scikit_learn_at_any_offset_and_number_of_rows(n, secure):
    X, rounding = columns(n)
    arrays, truth = scaled(X, "iqr", secure=secure).preparation_[0].arrays, RobustScaler().fit(X)
    assert np.all(np.abs(arrays["centre"] - truth.center_) <= (1e-6 + 2 * rounding) * truth.scale_)
    assert np.all(np.abs(arrays["scale"] / truth.scale_ - 1) <= 1e-6 + 4 * rounding)


def test_only_columns_far_from_zero_cost_more_rounds():
    rng = np.random.default_rng(1)
    ordinary = np.column_stack([rng.normal(size=300), rng.normal(170, 10, 300), rng.integers(1, 6, 300), rng.poisson(0.3, 300)])
    rounds = [scaled(X, "robust").n_setup_rounds_ for X in (ordinary, ordinary + np.array([0, 0, 0, 1e7]))]
    assert rounds[1] > rounds[0] == scaled(ordinary, "iqr").n_setup_rounds_


def test_a_column_that_is_constant_far_from_zero_becomes_zero():
    X = np.random.default_rng(2).normal(size=(40, 3))
    X[:, 1] = 1.7e9 + 0.1
    for by in ("robust", "iqr"):
        step = scaled(X, by).preparation_[0]
        assert step.arrays["scale"][1] == 1
        assert not step.apply(X)[:, 1].any()


def test_robust_components_do_not_depend_on_an_offset():
    rng = np.random.default_rng(3)
    X = np.round(rng.normal(size=(120, 2)) @ rng.normal(size=(2, 8)) * 2**10) / 2**10
    X[::9, 3] += 50
    fits = [ep.RobustPCA(2, scale="robust", random_state=0).fit(X + far, sites=np.arange(120) % 3) for far in (0.0, 2.0**30)]
    assert np.allclose(fits[0].scale_, fits[1].scale_, rtol=1e-2)
    assert (
        np.linalg.norm(fits[0].components_ - fits[0].components_ @ fits[1].components_.T @ fits[1].components_) < 5e-3
    )  # scales have eight digits


def last_digits(X, min_rows, step=ALL_ROUNDS - 1):
    """The reply of a site to the last counts along the digits of the first entry."""
    before = keys_of(X[0]) >> shift_of(step - 2), step - 1
    site = Site("A", X, kept={ENTRIES: before}, min_rows=min_rows)
    return count_parts(site, np.zeros(X.shape[1]), np.bool_(False), keys_of(X[0]) >> shift_of(step - 1), np.int64(step))


def test_the_last_digits_are_told_of_many_entries_only_and_once():
    assert [digits_of(step) for step in (0, 11, 12)] == [5, 5, 4]
    X = np.full((9, 1), 1.7e9)
    X[6:] = np.nextafter(1.7e9, 2e9)
    assert last_digits(X, 1).send[0][:3].tolist() == [6, 3, 0]
    assert last_digits(X, 4).send.sum() == 9
    assert np.count_nonzero(last_digits(X, 4).send) == 1
    assert not last_digits(X, 10).send.any()
    with pytest.raises(PolicyError, match="counted once in an epoch"):
        last_digits(X, 1, step=ALL_ROUNDS)


def test_few_rows_at_sites_with_a_rule_lead_to_no_number_beyond_the_entries(monkeypatch):
    """Where counts are too small to be told, the digits that are left were guessed, and the quartile could be 1e20."""
    for seed in (14, 45, 58):
        X = np.random.default_rng(seed).normal(size=(60, 4))
        sites = [{"X": X[i::3], "kept": {}} for i in range(3)]

        async def total(function, *args, sites=sites):
            replies = [function(Site("A", min_rows=10, **site), *args) for site in sites]
            for site, reply in zip(sites, replies, strict=True):
                site["kept"].update(reply.keep)
            return sum(reply.send for reply in replies)

        monkeypatch.setattr(counting, "Sum", total)
        monkeypatch.setattr(middle, "Sum", total)
        about = asyncio.run(middle.medians(np.full(4, 60), np.zeros(4), 8, deviations=False))
        found = asyncio.run(counting.quartiles(np.full(4, 60), about))
        assert np.all(np.abs(found + about[:, None]) <= np.abs(X).max(axis=0)[:, None])

"""Robust PCA of rows on a device that numpy cannot read: they stay there, and the answer is that for numpy's."""

from __future__ import annotations

import numpy as np
import pytest
from tests.checks.staying import forbid_copies, there

import eigenpact as ep
from eigenpact.algorithms import medians as middle
from eigenpact.algorithms.robust.entries import remove_errors, typical_sizes
from eigenpact.algorithms.robust.thresholds import tally
from eigenpact.numerics import blocks as few
from eigenpact.numerics import rows as every_row
from eigenpact.numerics.blocks import blocks

N, D, RANK = 120, 30, 3
MOST = 34 * D
"""Entries that may be copied at a time: counts of 33 numbers by feature, and no more than 34 of the 120 rows of a site."""


@pytest.fixture(autouse=True)
def several_blocks(monkeypatch):
    """So that blocks end within the rows, and are joined on the device."""
    monkeypatch.setattr(every_row, "BLOCK_BYTES", 8 * D * 45)
    monkeypatch.setattr(few, "DEVICE_BLOCK_BYTES", 8 * D * 100)


def made(kind="plain"):
    sites, low_rank, _ = ep.datasets.corrupted_problem(D, 3 * N, rank=RANK, share=0.1, sites=3, seed=0)
    rng = np.random.default_rng(0)
    if kind in ("holes", "dcf"):  # in all sites but one
        return {name: np.where((rng.random(X.shape) < 0.05) & (name != "site0"), np.nan, X) for name, X in sites.items()}
    if kind == "units":
        return {name: X * np.geomspace(1, 1000, D) + 7 for name, X in sites.items()}
    if kind == "float32":
        return {name: X.astype(np.float32) for name, X in sites.items()}
    if kind == "uneven":  # so that columns wait, and others are found beside those that are held
        V = np.linalg.svd(np.vstack(list(low_rank.values())), full_matrices=False)[2][:RANK]
        return {name: X + (low_rank[name] @ V.T * [4, 0, -0.93]) @ V for name, X in sites.items()}
    return sites


FITS = {
    "plain": {},
    "holes": {},
    "units": {"scale": "robust", "tell_shares": True},
    "float32": {"center": False},
    "uneven": {},
    "upper": {"rank": "upper", "n_components": 6},
    "dcf": {"solver": "dcf", "max_rounds": 4},
}


@pytest.mark.filterwarnings("ignore::eigenpact.errors.NotConvergedWarning")
@pytest.mark.parametrize("case", FITS)
def test_rows_stay_and_the_answer_is_that_for_numpy(case, monkeypatch):
    sites = made(case)

    def fitted(rows):
        return ep.RobustPCA(**({"n_components": RANK, "random_state": 0} | FITS[case])).fit(rows)

    here, elsewhere = fitted(sites), {name: there(X) for name, X in sites.items()}
    with monkeypatch.context() as patched:
        sizes = forbid_copies(patched, MOST)
        found = fitted(elsewhere)
        shares = found.error_shares()
        assert sizes
    assert found.n_rounds_ == here.n_rounds_
    tolerance = 1e-6 if case == "float32" else 1e-10  # as components have the precision of the rows
    for name in ("components_", "explained_variance_", "mean_", "scale_", "threshold_"):
        one, other = getattr(here, name), getattr(found, name)
        np.testing.assert_allclose(other, one, rtol=tolerance, atol=tolerance * np.abs(one).max(), err_msg=name)
    assert shares == here.error_shares()
    tolerance = 1e-8 if case == "dcf" else tolerance  # to which (7) is solved in the end
    for part in (found.low_rank, found.sparse):
        one, other = getattr(here, part.__name__)("site1"), part("site1")
        assert type(other) is np.ndarray
        np.testing.assert_allclose(other, one, rtol=tolerance, atol=tolerance * np.abs(one).max())
    scores = here.transform(sites["site1"])
    np.testing.assert_allclose(found.transform(elsewhere["site1"]), scores, rtol=0, atol=10 * tolerance * np.abs(scores).max())


def test_a_copy_of_rows_is_seen(monkeypatch):
    forbid_copies(monkeypatch, MOST)
    with pytest.raises(pytest.fail.Exception, match=r"shape \(17, 30\)|shape \(\d+, 30\)"):
        list(blocks(there(made()["site0"]), None, None))


def test_holes_are_taken_and_infinite_entries_are_not():
    sites = made("holes")
    sites["site1"][3, 4] = np.inf
    with pytest.raises(ep.errors.InputError, match=r"site 'site1': 1 entries are infinite"):
        ep.RobustPCA(RANK).fit({name: there(X) for name, X in sites.items()})


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_errors_of_single_rows(share):
    """Of a block in which rows end at different passes, are tried again, or have few entries that are trusted."""
    rng = np.random.default_rng(1)
    U = np.linalg.qr(rng.normal(size=(D, RANK)))[0]
    M = rng.normal(size=(60, RANK)) * np.geomspace(0.1, 50, 60)[:, None] @ U.T
    M[rng.random(M.shape) < 0.1] += 20
    observed = rng.random(M.shape) >= share if share else None
    M = M if observed is None else np.where(observed, M, 0.0)
    V, errors = remove_errors(M.copy(), observed, U, 3.0, 1e-8)
    found = remove_errors(there(M), None if observed is None else there(observed), there(U), 3.0, 1e-8)
    np.testing.assert_array_equal(here(found[1]), errors)
    np.testing.assert_allclose(here(found[0]), V, rtol=0, atol=1e-10 * np.abs(V).max())
    sizes = typical_sizes(there(M), None if observed is None else there(observed))
    np.testing.assert_array_equal(here(sizes), typical_sizes(M, observed))


def here(array):
    return few.to_numpy(array)


@pytest.mark.parametrize("threshold", [1.0, 1e-3, 1e-300, 5e-324, 0.0])
def test_residuals_are_counted_alike(threshold):
    E = np.random.default_rng(2).normal(size=(40, 5)) * np.geomspace(1e-20, 1, 5) * threshold
    E[3] = threshold
    E[4] = 0.0
    np.testing.assert_array_equal(tally(there(E), 7, threshold), tally(E, 7, threshold))


@pytest.mark.parametrize("deviations", [False, True])
def test_digits_are_counted_alike(deviations):
    """All rounds, along the digits of medians, also where no number has the digits found."""
    rng = np.random.default_rng(3)
    X = np.column_stack(
        [rng.normal(size=90), rng.normal(-1e6, 1e-3, 90), rng.integers(-1, 2, 90), np.zeros(90), -rng.lognormal(0, 200, 90)]
    )
    X[4, 0] = np.nan
    prefix, centre = np.zeros(5, dtype=np.uint64), np.linspace(-1, 1, 5)
    sites = [middle.Site("A", rows) for rows in (X, there(X))]
    for step in range(middle.CENTRE_ROUNDS + 1 if deviations else middle.ALL_ROUNDS):
        given = centre, np.bool_(deviations), prefix, np.int64(step)
        replies = [middle.count_parts(site, *given) for site in sites]
        np.testing.assert_array_equal(replies[1].send, replies[0].send)
        sites = [middle.Site("A", site.X, kept=reply.keep) for site, reply in zip(sites, replies, strict=True)]
        part = replies[0].send.argmax(axis=1) if step % 4 != 3 else np.full(5, step)
        prefix = (prefix << np.uint64(middle.digits_of(step))) + part.astype(np.uint64)

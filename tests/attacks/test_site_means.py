"""Sums of three sites with features 0 and 1: what was found of single sites by trying, and that it is found no more.

The attacks know the protocol and the sums, and nothing else.  They are shown to work where a policy lets sums be asked that are
not linear in rows (``allow_site_means``), so that their failing elsewhere says something.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cryptography", reason="secured sums need eigenpact[secure]")

from eigenpact.algorithms.second_moments import DIGITS
from eigenpact.numerics.whole_numbers import UNIT, add_wide
from tests.attacks.coordinator import Refused
from tests.attacks.secured import NAMES, REQUIRED, Brought

SIZES, D = (17, 19, 23), 6
TELLING = REQUIRED | {"allow_site_means": True}


def binary(sizes: tuple[int, ...] = SIZES, seed: int = 3) -> dict[str, Any]:
    """Rows of zeros and ones: all of them together are the same for all sizes of the same sum."""
    X = (np.random.default_rng(seed).random((sum(sizes), D)) < np.linspace(0.2, 0.7, D)).astype(float)
    ends = np.cumsum([0, *sizes])
    return {name: X[a:b] for name, (a, b) in zip(NAMES, pairwise(ends), strict=True)}


def begun(folder: Path, rules: Any = None, rows: Any = None) -> Brought:
    folder.mkdir(exist_ok=True)
    brought = Brought(folder, rules, rows=binary() if rows is None else rows)
    brought.announce()
    brought.begin()
    return brought


def parts_of(n: int, least: int = 5) -> list[tuple[int, int, int]]:
    return [(a, b, n - a - b) for a in range(least, n // 3 + 1) for b in range(a, (n - a) // 2 + 1)]


def shares(sizes: tuple[int, int, int], s: int) -> tuple[Any, Any]:
    """All ways to deal s ones to sites of these sizes, as counts (ways, 3), and the sum of s_i^2 / n_i for each."""
    a, b = np.meshgrid(np.arange(sizes[0] + 1), np.arange(sizes[1] + 1), indexing="ij")
    ways = np.stack([a, b, s - a - b], axis=-1).reshape(-1, 3)
    ways = ways[(ways[:, 2] >= 0) & (ways[:, 2] <= sizes[2])]
    return ways, (ways**2 / np.array(sizes)).sum(axis=1)


def test_squares_within_sites_by_feature_told_counts_and_sums_of_every_site(tmp_path: Path) -> None:
    """As ``spread_by_feature`` does: still there for center="site", where a policy allows it."""
    brought = begun(tmp_path, TELLING)
    _, _, n, sums = brought.summed("count_and_sum")
    within, _, _ = brought.summed("spread_by_feature", sums / int(n))
    found = []
    for sizes in parts_of(int(n)):
        by_feature = [shares(sizes, int(s)) for s in sums]
        hits = [ways[np.abs(s - q - w) < 1e-9] for (ways, q), s, w in zip(by_feature, sums, within, strict=True)]
        if all(len(hit) for hit in hits):
            found.append((sizes, hits))
    assert [sizes for sizes, _ in found] == [SIZES]  # of some 260
    for j, hit in enumerate(found[0][1]):
        true = [int(X[:, j].sum()) for X in brought.rows.values()]
        assert true in hit.tolist()
        assert len(hit) <= 3


def test_what_is_told_now_fits_any_counts(tmp_path: Path) -> None:
    """One number, with few digits: each way to deal the rows to three sites could have given it."""
    brought = begun(tmp_path)
    _, _, n, sums = brought.summed("count_and_sum")
    pairs, squares, within, _ = brought.summed("second_moments_by_feature")
    assert np.array_equal(pairs[:, 0], sums)
    assert np.array_equal(squares[:, 0], sums)  # zeros and ones: nothing that the sums do not tell
    assert not pairs[:, 1].any()
    assert not squares[:, 1].any()
    true = sum(((X - X.mean(axis=0)) ** 2).sum() for X in brought.rows.values())
    assert float(within) == pytest.approx(true, rel=2.0**-DIGITS)
    slack, fitting = 2.0**-DIGITS * float(within), 0
    for sizes in parts_of(int(n)):
        ranges = [(q.min(), q.max()) for s in sums for _, q in [shares(sizes, int(s))]]
        least, most = (sums.sum() - np.sum(ranges, axis=0))[::-1]
        fitting += bool(least - slack <= within <= most + slack)
    assert fitting >= 0.95 * len(parts_of(int(n)))


@pytest.mark.parametrize("function", ["second_moments", "second_moments_by_feature"])
def test_no_bit_of_a_sum_tells_how_rows_are_dealt_to_sites(tmp_path: Path, function: str) -> None:
    """The words that a coordinator adds up, and not only the numbers it makes of them; but for the coarse one."""
    said = []
    for sizes in (SIZES, (7, 20, 32), (30, 20, 9)):
        brought = begun(tmp_path / str(sizes[0]), rows=binary(sizes))
        words = [total(brought, "count_and_sum"), total(brought, function)]
        said.append([[w.tobytes() for w in words[0]], [w.tobytes() for w in words[1][:2]]])
    assert said[0] == said[1] == said[2]


def total(brought: Brought, name: str, *args: Any) -> list[Any]:
    """The sums of masked words, as they are."""
    replies = brought.replies(name, *args)
    added = [np.array(a) for a in replies[0]]
    for reply in replies[1:]:
        added = [add_wide(a, b) if a.shape[-1:] == (12,) else a + b for a, b in zip(added, reply, strict=True)]
    return added


def lowest_bit(words: Any) -> int:
    number = int.from_bytes(np.ascontiguousarray(words).tobytes(), "little", signed=True)
    return (number & -number).bit_length() - 1 + UNIT


def smallest_site(brought: Brought, most: int = 30) -> int:
    """Rows of the smallest site, from the lowest bits of squares about means that are chosen for it.

    n_i m^2 is a multiple of 2^8 if it is above 2^60, else of 2^7: whether any site has fewer rows than 2^60 / m^2 shows.
    """
    asked = [(rows, 1 + 1e-6 * j / most) for rows in range(5, most) for j in range(4)]
    below = set()
    for at in range(0, len(asked), D):
        few = asked[at : at + D]
        mean = np.array([np.sqrt(2.0**60 / rows) * turn for rows, turn in few] + [0.0] * (D - len(few)))
        for run in brought.runs.values():
            run.begin_anew()
        brought.begin()
        total(brought, "count_and_sum")
        between = total(brought, "spread_by_feature", mean)[1]
        below |= {rows for (rows, _), words in zip(few, between, strict=False) if lowest_bit(words) < 8}
    return min(below) - 1


def test_lowest_bits_told_the_rows_of_the_smallest_site(tmp_path: Path) -> None:
    """Rounding depends on who has which rows; where sites are told a mean, a coordinator chooses what it tells."""
    assert smallest_site(begun(tmp_path, TELLING)) == min(SIZES)


@pytest.mark.parametrize("function", ["spread", "spread_by_feature"])
def test_no_mean_is_taken_where_sums_must_be_secured(tmp_path: Path, function: str) -> None:
    brought = begun(tmp_path)
    total(brought, "count_and_sum")
    with pytest.raises(Refused, match=r"rule allow_site_means = false: 'eigenpact:spread"):
        brought.replies(function, np.zeros(D))
    with pytest.raises(Refused, match="rule allow_site_means"):
        brought.runs["lima"].call("keep_own_centre", np.ones(D), np.float64(1e9), kind="local")


def test_features_cannot_be_chosen_one_by_one(tmp_path: Path) -> None:
    """Else the coarse number could be had for each of them: all others are called rare."""
    brought, answered = begun(tmp_path), 0
    for j in range(D):
        brought.announce(f"r{j}", also=("count_nonzero", "drop_rare"))
        brought.begin()
        counts = np.full(D, 100, dtype=np.int64)
        counts[j] = 1000
        try:
            for run in brought.runs.values():
                run.call("drop_rare", counts, np.int64(500), kind="local")
            answered += bool(total(brought, "second_moments"))
        except Refused as refusal:
            assert "other sets of features were dropped" in str(refusal)  # noqa: PT017
    assert answered == 3

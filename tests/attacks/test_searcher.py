"""The searching coordinator finds nothing at a site as it is, and does find what is put there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eigenpact.numerics.site_rows import SiteRows
from tests.attacks.searcher import Search, search


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_no_reply_tells_more_of_a_row_than_it_must() -> None:
    tally = search(2000)
    total = tally["answered"] + tally["refused"]
    assert total >= 2000
    assert 2 * tally["answered"] >= total


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_it_finds_a_product_that_compares_single_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """As BLAS did: only rows above a threshold are added, times a thousand."""
    honest = SiteRows.scatter_action

    def compares(self: SiteRows, Z: Any) -> Any:
        above = np.asarray(self.X)[:, 0] > np.abs(Z[0]).max() * np.asarray(self.X)[:, 0].mean()
        return 1000 * honest(SiteRows(self.X[above], self.mean, self.scale, self._own_means), Z)

    monkeypatch.setattr(SiteRows, "_own_means", property(lambda self: np.stack([self._own.mean, self._left])), raising=False)
    monkeypatch.setattr(SiteRows, "scatter_action", compares)
    with pytest.raises(AssertionError):
        search(200, made_small=False)  # which would take a minute


@pytest.mark.parametrize("centre", ["site", "mean"])
def test_two_tables_that_differ_by_a_row_are_rounded_by_the_same_bits(tmp_path: Path, centre: str) -> None:
    """Also about the site's own mean, which differs: beside a trace that swallows the row, replies are the same.

    A search of 100000 calls found bits that depended on that mean.
    """
    asked = Search(tmp_path, "an outlier", wide=False, rng=np.random.default_rng(1))
    asked.begin(centre, "ones", "much larger")
    (whole,), (less,) = asked.ask("scatter_triangle")
    assert np.any(whole)  # noise
    np.testing.assert_array_equal(whole, less)
    assert not np.any(np.signbit(whole[whole == 0]))

"""``verbose=True``: one line, written over and over, where somebody looks."""

from __future__ import annotations

import io
from itertools import pairwise

import numpy as np
import pytest

import eigenpact as ep
from eigenpact.errors import InputError
from eigenpact.estimators.round_lines import is_shown

ROWS = np.random.default_rng(0).normal(size=(60, 8)) * np.linspace(3, 1, 8)


class Terminal(io.StringIO):
    """A stream that somebody looks at."""

    def isatty(self) -> bool:
        return True


class Cell(io.StringIO):
    """What a notebook has for a stream: no terminal."""

    __module__ = "ipykernel.iostream"


@pytest.mark.parametrize("stream", [Terminal(), Cell()])
def test_rounds_are_shown_in_place(monkeypatch, stream):
    monkeypatch.setattr("sys.stderr", stream)
    seen = []
    pca = ep.FederatedPCA(2, solver="subspace", verbose=True, random_state=0, callback=seen.append).fit([ROWS[:30], ROWS[30:]])
    first, *lines = stream.getvalue().split("\r")
    assert first == ""
    assert len(lines) == pca.n_rounds_ == len(seen)
    assert lines[-1].endswith("\n")
    assert "\n" not in "".join(lines[:-1])
    assert lines[-1].startswith(f"round {pca.n_rounds_}: residual {pca.history_[-1].kkt:.2g}, ")
    assert f" {pca.ledger_.bytes_up + pca.ledger_.bytes_down} bytes so far, 2 sites" in lines[-1]
    assert all(len(after) >= len(before.rstrip()) for before, after in pairwise(lines))


def test_a_round_that_fails_ends_the_line(monkeypatch):
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)

    def stop(_record):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ep.FederatedPCA(2, solver="subspace", verbose=True, callback=stop).fit(ROWS)
    assert stream.getvalue().endswith("sites\n")


def test_nothing_is_written_where_nobody_looks(monkeypatch, capsys):
    ep.FederatedPCA(2, verbose=True).fit(ROWS)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr("sys.stderr", None)
    ep.FederatedPCA(2, verbose=True).fit(ROWS)
    closed = Terminal()
    closed.close()
    assert not is_shown(closed)
    shown = Terminal()
    monkeypatch.setattr("sys.stderr", shown)
    ep.FederatedPCA(2).fit(ROWS)
    assert shown.getvalue() == ""
    with pytest.raises(InputError, match="verbose='loud' must be True or False"):
        ep.FederatedPCA(2, verbose="loud").fit(ROWS)

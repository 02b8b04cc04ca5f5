"""Rounds as they are shown while a fit runs."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from eigenpact.cli import progress
from eigenpact.runtime import RoundRecord


def record(number: int, kkt: float | None = 1e-3) -> RoundRecord:
    return RoundRecord(round=number, sites=3, objective=None, kkt=kkt, bytes_up=600, bytes_down=400, seconds=0.1)


def shown(console: Console, quiet: bool = False, rounds: int = 3) -> str:
    with progress.shown_rounds(console, quiet=quiet) as callback:
        for number in range(1, rounds + 1):
            callback(record(number))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_plain_output_ends_with_the_last_round():
    assert shown(Console(file=io.StringIO())) == "round 3  KKT 1.0e-03  3.0 kB so far  3 sites\n"


def test_plain_lines_while_it_lasts(monkeypatch):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    lines = shown(Console(file=io.StringIO())).splitlines()
    assert [line.split("  ")[0] for line in lines] == ["round 1", "round 2", "round 3"]
    assert [line.split("  ")[2] for line in lines] == ["1.0 kB so far", "2.0 kB so far", "3.0 kB so far"]


def test_terminal_gets_a_live_line():
    text = shown(Console(file=io.StringIO(), force_terminal=True, width=100))
    assert "round 3  KKT 1.0e-03  3.0 kB so far  3 sites" in text
    assert "\r" in text


def test_quiet_and_no_rounds_print_nothing():
    assert shown(Console(file=io.StringIO()), quiet=True) == ""
    assert shown(Console(file=io.StringIO()), rounds=0) == ""


def test_unknown_residual():
    console = Console(file=io.StringIO())
    with progress.shown_rounds(console) as callback:
        callback(record(1, kkt=None))
    assert "KKT unknown" in console.file.getvalue()


def test_a_status_on_terminals_and_lines_to_keep():
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    with progress.shown_status(console, "reading", quiet=False) as (show, keep):
        show("krylov: round 7")
        keep("gram: not applicable: too many features")
    assert "krylov: round 7" in console.file.getvalue()
    assert "gram: not applicable: too many features" in console.file.getvalue()
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    with progress.shown_status(console, "reading", quiet=True) as (show, keep):
        show("krylov: round 7")
        keep("gram: done")
    assert console.file.getvalue() == ""


def test_an_error_passes_through():
    def fail() -> None:
        with progress.shown_rounds(Console(file=io.StringIO())) as callback:
            callback(record(1))
            raise KeyError("from fit")

    with pytest.raises(KeyError, match="from fit"):
        fail()

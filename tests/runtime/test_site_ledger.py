"""A site's ledger under floods, wrong clocks and damage."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eigenpact.errors import FileError, PolicyError, SiteError
from eigenpact.runtime import (
    Gate,
    Plan,
    Policy,
    Reply,
    Request,
    Site,
    SiteLedger,
    SiteServer,
    local,
    read_site_ledger,
    shortened,
    site_ledger,
)
from eigenpact.runtime.gate import MOST_PLANS
from eigenpact.runtime.lately import Lately


@local(sends={"n": ""}, reads=("calls",), keeps=("calls",))
def counted(site: Site) -> Any:
    """How often it was called in this epoch."""
    calls = site.kept.get("calls", 0) + 1
    return Reply(send=np.int64(calls), keep={"calls": calls})


@local()
def breaks(site: Site) -> Any:
    """Fails, and sends nothing."""
    raise ValueError(f"cannot use {site.X[0]}")


LISTED = (breaks.name, counted.name)
POLICY = Policy(("gram",), LISTED, min_rows=5, max_rounds=6, max_runs_per_day=3)
PLAN = Plan("gram", LISTED, ("sum", "local"), max_rounds=6)


def served(folder: Path) -> SiteServer:
    """A site's server, as if it was just started."""
    gate = Gate("lima", POLICY, SiteLedger(folder / "ledger"), n_rows=8, features=3, data="v1")
    return SiteServer("lima", np.arange(24.0).reshape(8, 3), gate=gate)


def asking(step: int, function: str = counted.name, kind: str = "sum", run: str = "r1", epoch: int = 0) -> Request:
    return Request(run, epoch, step, kind, function, (), digest=str(step))


def whats(folder: Path) -> list[str]:
    return [row["what"] for row in read_site_ledger(folder / "ledger")]


@pytest.mark.parametrize("restarts", [False, True])
def test_the_same_plan_of_the_same_run_is_written_once(tmp_path: Path, restarts: bool) -> None:
    server = served(tmp_path)
    for _ in range(30):
        server = served(tmp_path) if restarts else server
        server.admit("r1", PLAN.to_dict())
    assert whats(tmp_path) == ["admitted"]
    assert server.execute(asking(1), 0).arrays[0] == 1


def test_a_run_has_no_plans_without_end(tmp_path: Path) -> None:
    """Two plans in turn make two rows; ever new ones end in a refusal, also after a restart.  A known plan still holds."""
    server = served(tmp_path)
    for turn in range(60):
        server.admit("r1", Plan("gram", LISTED, ("sum", "local"), max_rounds=1 + turn % 2).to_dict())
    assert whats(tmp_path) == ["admitted"] * 2
    for k in range(2, MOST_PLANS):
        server.admit("r1", Plan("gram", LISTED, ("sum",), 6, n_components=k).to_dict())
    server = served(tmp_path)
    with pytest.raises(PolicyError, match=f"rule plan: {MOST_PLANS} plans of this run were admitted already"):
        server.admit("r1", PLAN.to_dict())
    server.admit("r1", Plan("gram", LISTED, ("sum", "local"), max_rounds=2).to_dict())
    assert whats(tmp_path) == ["admitted"] * MOST_PLANS + ["refused"]


def test_refusals_are_written_up_to_a_number_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last row says that there are more, a restart changes nothing, and after a day there is room again."""
    monkeypatch.setattr(site_ledger, "MOST_REFUSALS", 10)
    server = served(tmp_path)
    for i in range(50):
        server = served(tmp_path) if i % 7 == 0 else server
        with pytest.raises(PolicyError, match=r"rule solvers: 'x+"):
            server.admit(f"r{i}", Plan("x" * 600, (), (), 1).to_dict())
    rows = read_site_ledger(tmp_path / "ledger")
    assert [row["reason"][:14] for row in rows[:9]] == ["rule solvers: "] * 9
    assert rows[9]["reason"] == "10 refusals within 24 hours: more are not written down"
    assert len(rows) == 10
    assert (tmp_path / "ledger").stat().st_size < 10 * 1000
    server.admit("r1", PLAN.to_dict())  # what is admitted or sent is always written
    server.execute(asking(1), 0)
    assert whats(tmp_path)[10:] == ["admitted", "sent"]
    dated(tmp_path, [timedelta(hours=-25)] * 12)
    with pytest.raises(PolicyError):
        served(tmp_path).admit("later", None)
    assert len(whats(tmp_path)) == 13


def test_a_reply_is_not_repeated_without_end(tmp_path: Path) -> None:
    """Each time is a row; over restarts, and in whichever epoch."""
    server = served(tmp_path)
    server.admit("r1", PLAN.to_dict())
    for epoch in (0, 1):
        for _ in range(1 + POLICY.max_rounds // 2):
            assert server.execute(asking(1, epoch=epoch), 0).arrays[0] == 1
        server = served(tmp_path)
        server.admit("r1", PLAN.to_dict())
    server.execute(asking(1, epoch=2), 0)
    for _ in range(5):
        with pytest.raises(PolicyError, match="rule max_rounds = 6: as many replies of this run were sent once more already"):
            server.execute(asking(1, epoch=2), 0)
    assert whats(tmp_path).count("sent again") == POLICY.max_rounds


def test_a_function_does_not_fail_without_end(tmp_path: Path) -> None:
    """Each failure is a row, and tells the coordinator that it failed: they are counted like replies."""
    server = served(tmp_path)
    server.admit("r1", PLAN.to_dict())
    for _ in range(POLICY.max_rounds):
        with pytest.raises(SiteError, match=r"breaks failed at site 'lima': ValueError$"):
            server.execute(asking(1, breaks.name, "local"), 0)
    server = served(tmp_path)
    server.admit("r1", PLAN.to_dict())
    for _ in range(5):
        with pytest.raises(PolicyError, match="rule max_rounds = 6: as many requests of this run failed here"):
            server.execute(asking(1, breaks.name, "local"), 0)
    assert whats(tmp_path).count("failed") == POLICY.max_rounds


def test_what_could_not_be_written_down_was_not_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a full disk nothing leaves and nothing is kept; with room again the step is as if asked for the first time."""
    server = served(tmp_path)
    server.admit("r1", PLAN.to_dict())
    assert server.execute(asking(1), 0).arrays[0] == 1

    def full(_file: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(site_ledger, "sync", full)
        for _ in range(2):
            with pytest.raises(FileError, match="No space left on device; nothing was sent"):
                server.execute(asking(2), 1)
    assert server.execute(asking(2), 1).arrays[0] == 2


# -- clocks -----------------------------------------------------------------------------------------------------------------


def dated(folder: Path, shifts: list[timedelta]) -> None:
    """Write the ledger's rows again, each dated so long from now."""
    path, now = folder / "ledger", datetime.now(UTC)
    rows = [row | {"time": (now + shift).isoformat()} for row, shift in zip(read_site_ledger(path), shifts, strict=True)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


YEAR, HOUR = timedelta(days=365), timedelta(hours=1)


def test_rows_from_a_clock_ahead_count_for_a_day(tmp_path: Path) -> None:
    """They neither free the budget nor use it up for ever: the first row behind them, here a refusal, says how old they are."""
    server = served(tmp_path)
    for run in ("r1", "r2", "r3"):
        server.admit(run, PLAN.to_dict())
    dated(tmp_path, [YEAR, 2 * YEAR, YEAR])
    for _ in range(2):
        with pytest.raises(PolicyError, match="rule max_runs_per_day = 3"):
            served(tmp_path).admit("r4", PLAN.to_dict())
    dated(tmp_path, [YEAR, 2 * YEAR, YEAR, -23 * HOUR, -22 * HOUR])
    with pytest.raises(PolicyError, match="rule max_runs_per_day = 3"):
        served(tmp_path).admit("r4", PLAN.to_dict())
    dated(tmp_path, [YEAR, 2 * YEAR, YEAR, -25 * HOUR, -24 * HOUR, HOUR])
    served(tmp_path).admit("r4", PLAN.to_dict())


def test_a_clock_that_is_set_back_frees_nothing(tmp_path: Path) -> None:
    ledger = SiteLedger(tmp_path / "ledger")
    for run in ("r1", "r2", "r3"):
        ledger.write(run=run, what="admitted")
    dated(tmp_path, [timedelta(0), -HOUR, -2 * HOUR])
    assert SiteLedger(tmp_path / "ledger").runs_today() == 3


def test_many_rows_out_of_order_are_counted_in_linear_time() -> None:
    """Each row is moved into a block once and each block merged once, also by a clock that runs backwards."""
    lately, now = Lately(), datetime.now(UTC)
    for i in range(20_000):
        lately.note(now + (i % 100) * HOUR, counts=True)
    for i in range(20_000):
        lately.note(now - timedelta(seconds=i))
    assert len(lately._blocks) == 1
    assert lately.count() == 20_000


# -- damage -----------------------------------------------------------------------------------------------------------------

WHOLE = '{"time":"2026-11-17T00:00:00.000+00:00","run":"r1","what":"admitted"}\n'


@pytest.mark.parametrize(
    "line",
    [
        "5",
        "null",
        '["time"]',
        '{"what":"admitted","run":"r1"}',
        '{"time":5,"what":"sent"}',
        '{"time":"yesterday","what":"sent"}',
        '{"time":"0001-01-01T00:00:00+23:59","what":"sent"}',
        '{"time":"2026-11-17T00:00:00.000+00:00","what":"sent","epoch":"first"}',
        '{"time":"2026-11-17T00:00:00.000+00:00","what":"sent","epoch":null}',
        '{"time":"2026-11-17T00:00:00.000+00:00","what":"sent","columns":1e999}',
        "[" * 100_000,
        "\0" * 100,
        "\x1b[2J",
        "9" * 5000,
    ],
    ids=lambda line: repr(line[:60]),
)
def test_a_damaged_row_is_named_by_its_line(tmp_path: Path, line: str) -> None:
    """At the start, while the site runs, and again; where the owner has mended the file, nothing was counted twice."""
    path = tmp_path / "ledger"
    path.write_text(WHOLE * 2 + line + "\n" + WHOLE)
    with pytest.raises(FileError, match=r"ledger, line 3: not a row of a site's ledger; restore the file, or begin another"):
        SiteLedger(path)
    path.write_text(WHOLE)
    ledger = SiteLedger(path)
    ledger.write(run="r2", what="sent")
    sent = path.read_text().splitlines(keepends=True)[1]
    path.write_text(WHOLE + sent * 2 + line + "\n")
    for _ in range(2):
        with pytest.raises(FileError, match="line 4"):
            ledger.write(run="r2", what="sent")
    path.write_text(WHOLE + sent * 2)
    ledger.write(run="r2", what="sent")
    assert ledger.replies("r2") == 3


def test_a_reason_is_one_line_for_the_owner_to_read() -> None:
    told = shortened("no\r\n\x1b[2J\u2028 \ud800\u202e" + "x" * 1_000_000)
    assert told.startswith("no [2J x")
    assert told.isprintable()
    assert len(told) == 500
    assert shortened("short") == "short"

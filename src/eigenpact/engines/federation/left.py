"""What left a site in a run, in one sentence for its data manager, read off the site's own ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...runtime import read_site_ledger

UNITS = ("B", "kB", "MB", "GB")


class Left:
    """What a site's ledger tells of the runs since now."""

    def __init__(self, ledger: str | Path) -> None:
        self._ledger = ledger
        self._before = len(read_site_ledger(ledger))

    def told(self, *, over: bool = True) -> list[str]:
        """A sentence for each run that rows were written about since, of all that left in that run."""
        rows = read_site_ledger(self._ledger)
        runs = dict.fromkeys(str(row["run"]) for row in rows[self._before :] if row.get("run"))
        return [sentence(run, [row for row in rows if row.get("run") == run], over=over) for run in runs]


def sentence(run: str, rows: list[dict[str, Any]], *, over: bool = True) -> str:
    """What a site's rows about a run amount to.

    >>> sent = [{"what": "sent", "bytes": 80}, {"what": "sent", "bytes": 72}]
    >>> sentence("20261117-165504-3ad6", [{"what": "admitted"}, *sent])
    'run 20261117-165504-3ad6 over: 2 messages, 152 B left, nothing else'
    >>> sentence("a", [*sent, {"what": "refused"}], over=False)
    'run a: 2 messages, 152 B left so far, nothing else; 1 request was refused, see the ledger'
    """
    sent = [row for row in rows if row["what"] in ("sent", "sent again")]
    size = sum(int(row.get("bytes", 0)) for row in sent)
    told = f"run {run}{' over' if over else ''}: {_count(len(sent), 'message')}, {_bytes(size)} left{'' if over else ' so far'}"
    told += ", nothing else"
    for what, verb in (("refused", "refused"), ("failed", "failed")):
        n = sum(row["what"] == what for row in rows)
        if n:
            told += f"; {_count(n, 'request')} {'' if what == 'failed' else 'was ' if n == 1 else 'were '}{verb}, see the ledger"
    return told


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


def _bytes(size: float) -> str:
    for unit in UNITS:
        if size < 1000 or unit == UNITS[-1]:
            break
        size /= 1000
    return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"

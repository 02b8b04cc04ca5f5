"""What a journal's records hold, and whether one that is read could have been written.

Checksums tell of damage.  Who can write the file can make records with good checksums; those must not end in a traceback, nor be
believed where it is easy to see that no run writes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import JournalError, WireError
from .forms import fits, misfit, shown
from .journal import Entry
from .ledger import ROW
from .local import LocalFunction

STEP: dict[str, Any] = {"function": str, "digest": str, "ledger": list[ROW]}
FORMS: dict[str, dict[str, Any]] = {
    "roster": {
        "epoch": int,
        "roster": list[str],
        "known": list[str],
        "lost": dict[str, str],
        "joined": list[str],
        "losses": dict[str, int],
        "doubted": dict[str, str],
        "digests": dict[str, str],
        "reported": int,
        "rounds": tuple[int, int],
        "ledger": list[ROW],
    },
    "rows": {"digests": dict[str, str], "ledger": list[ROW]},
    "state": {"names": list[str], "step": int, "rounds": tuple[int, int], "ledger": list[ROW], "history": list[Any]},
    "end": {},
}
"""Facts by the kind of record; any other kind is a step's."""


def check_records(path: Path, entries: Sequence[Entry]) -> None:
    """Raise a JournalError unless these could be the records of a run, the first of which is its roster."""
    for number, entry in enumerate(entries, 1):
        kind = entry.facts.get("kind")
        wrong = misfit(entry.facts, {"kind": str} | FORMS.get(str(kind), STEP))
        if number == 1 and kind != "roster":
            wrong = wrong or f"it is of kind {shown(kind)}, and a run begins with its roster"
        if not fits(entry.facts.get("told", {}), dict[str, dict[str, float]]):
            wrong = wrong or "what sites told is no numbers by site"
        if kind == "state" and len(entry.arrays) - len(entry.facts.get("names", ())) not in (0, 1):
            wrong = wrong or f"it has {len(entry.arrays)} arrays"
        if wrong:
            raise JournalError(f"{path}: record {number} is none that a run writes ({wrong}); restore the file, or start afresh")


def check_result(path: Path, step: int, entry: Entry, function: LocalFunction, sites: int, sizes: dict[str, int]) -> None:
    """Raise a JournalError unless the arrays of a replayed step could have come from so many sites."""
    kind, width = entry.facts["kind"], len(function.sends)
    replies = {"local": 0, "gather": sites}.get(kind, 1)
    wrong = f"{len(entry.arrays)} arrays" if len(entry.arrays) != replies * width else ""
    for reply in range(0 if wrong else replies):
        arrays = entry.arrays[reply * width : (reply + 1) * width]
        try:
            function.check_reply(arrays, sizes)
        except WireError as error:
            wrong = str(error)
        if not all(np.isfinite(a).all() for a in arrays):
            wrong = wrong or "NaN or infinity"
    if wrong:
        raise JournalError(f"{path}: step {step} has a result that no site gives ({wrong}); restore the file, or start afresh")

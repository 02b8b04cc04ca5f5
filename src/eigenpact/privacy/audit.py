"""The audit of a run: attacks on what was recorded, or equations counted in a ledger.

Recorded messages come from a simulation, where the truth is at hand: attacks are really made, and errors measured.  Of a run
between sites there is the ledger, which holds no values: then the audit tells what could be computed from messages like these.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ..numerics.linalg import Array, unpack_triangle
from ..runtime import COORDINATOR, Ledger
from .counting import Counted, count_equations
from .eavesdropping import Overheard
from .findings import Audit, Finding
from .recovery import symmetric
from .replies import PRODUCTS, SAYS_NOTHING, SECURED, TRIANGLES
from .sums import Totals

SUMMED = (*PRODUCTS, *TRIANGLES)
"""Local functions whose sums are products with the pooled scatter."""


def audit_ledger(ledger: Ledger, *, solver: str = "", n_features: int | None = None, secured: bool = False) -> Audit:
    """What could be computed about every site from messages like those in a ledger.

    Parameters
    ----------
    ledger : Ledger
        Of any run: ``pca.ledger_``, or that of a model that was read from a file.
    solver : str
        For the title.
    n_features : int, optional
        By default read off the ledger.
    secured : bool
        Take all replies as masked; else those whose note says "secured".
    """
    counted = Counted.of(ledger, n_features, secured=secured)
    rounds = max((m.round for m in ledger if not m.note.startswith("setup")), default=0)
    findings = tuple(count_equations(counted))
    return Audit("ledger", solver, counted.sites, counted.n_features, rounds, secured or all_secured(ledger), findings)


def all_secured(ledger: Ledger) -> bool:
    """Whether every array that a site sent is noted as masked."""
    sent = [m.note for m in ledger if m.sender != COORDINATOR and m.shapes and m.note != "own" and m.function not in SAYS_NOTHING]
    return bool(sent) and all(SECURED in note for note in sent)


def totals_of(heard: Iterable[Overheard], d: int) -> Totals:
    """What the sums of a recorded run say of its last roster: rows, mean, and the pooled scatter as far as blocks reach.

    Replies are added up first, so that nothing here is about a single one.
    """
    sums = sums_of(heard)
    count, columns = next((arrays[2], arrays[3]) for function, _, arrays in reversed(sums) if function == "count_and_sum")
    pairs = [pair for function, args, arrays in sums for pair in _pair(function, args, arrays, d)]
    scatter = symmetric(*(np.hstack(part) for part in zip(*pairs, strict=True))) if pairs else None
    return Totals(int(count), np.asarray(columns, dtype=np.float64) / int(count), scatter)


def sums_of(heard: Iterable[Overheard]) -> list[tuple[str, tuple[Any, ...], tuple[Any, ...]]]:
    """Function, arguments and the sum over sites for every step of the last epoch that was a sum."""
    steps: dict[tuple[int, str], list[Overheard]] = {}
    replies = list(heard)
    last = max((one.epoch for one in replies), default=0)
    for one in replies:
        if one.epoch == last and one.kind == "sum":
            steps.setdefault((one.step, one.function), []).append(one)
    return [
        (function, parts[0].args, tuple(sum(arrays) for arrays in zip(*(one.arrays for one in parts), strict=True)))
        for (_, function), parts in steps.items()
    ]


def known_columns(heard: Iterable[Overheard], d: int) -> int:
    """Independent directions in which the sums tell the pooled scatter."""
    blocks = [block for function, args, arrays in sums_of(heard) for block, _ in _pair(function, args, arrays, d)]
    return int(np.linalg.matrix_rank(np.hstack(blocks))) if blocks else 0


def _pair(function: str, args: tuple[Any, ...], arrays: tuple[Any, ...], d: int) -> list[tuple[Array, Array]]:
    if function in TRIANGLES:
        return [(np.eye(d), unpack_triangle(arrays[0], d))]
    return [(args[0], arrays[0])] if function in PRODUCTS else []


def in_order(findings: Iterable[Finding], sites: Mapping[str, Any]) -> tuple[Finding, ...]:
    """Site by site in the user's order, then what concerns all of them."""
    places = {name: i for i, name in enumerate(sites)}
    return tuple(sorted(findings, key=lambda one: places.get(one.site, len(places))))

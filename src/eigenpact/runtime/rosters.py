"""What sums over different sets of sites show together: the part that a few of them have in common.

Sums over A, B, C, D and over A, B, C give D's part as a difference.  No two of {A, B, C, D}, {A, B, E} and {C, D, E} differ by
one site, and yet the second and third together, less the first, are twice E's part.  So rosters are looked at as vectors of zeros
and ones: what can be computed is every combination of them, and a few sites are shown if a combination has no others in it.

*Histories.*  No single site need have seen all three.  So every site of a session tells the rosters in which its present rows
were, signed with its key (``keys.py``), and each looks at all of them together.  Only names are told, and of rosters that follow
from others as combinations none, so that a history has no more rosters than sites.  A roster counts from when keys were agreed
on, also if no sum was made, and a site joins a session only if what it told is still all: else several, begun at the same time by
several processes of each site, would not know of each other.

*What nobody present knows* is not found: rosters of which no site takes part now.  A site that lies can leave out its own past,
which those who were there tell all the same, or invent rosters with itself in them, which stops this session and no later one.

*Other rows.*  A site whose rows changed begins a new history: sums with its old rows and with its new ones are sums of different
things.  Names that stand for both are not told apart, which can only refuse more: a combination that shows a few sites by their
versions shows them by their names, too, unless it is a difference of a site's own versions.  That one can be computed wherever
all others stayed as they were, and it is what the rule ``min_changed_rows`` (``versions.py``) is about.  If *all* sites change
their rows between two rosters no history is left, and then the difference is a lost site's part, plus what the others changed:
who changes ten rows of a thousand hides little of another by it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from itertools import combinations
from math import gcd, lcm

from ..errors import PolicyError
from .forms import fits

HISTORY_BYTES = 1 << 16
"""Of the rosters that a site tells in a session."""

MOST_NAMES = 256
"""Sites in a history: more are not looked at, which would take long."""

Rows = list[list[int]]


def isolated(rosters: Iterable[Collection[str]], min_apart: int) -> tuple[str, ...]:
    """Fewer than ``min_apart`` sites that sums over these rosters show by themselves; none if there are none.

    With 0 all rosters must be the same, and what two of them differ by is given.

    >>> isolated([{"A", "B", "C", "D"}, {"A", "B", "C"}], 2)
    ('D',)
    >>> isolated([{"A", "B", "C", "D"}, {"A", "B", "E"}, {"C", "D", "E"}], 2)
    ('E',)
    >>> isolated([{"A", "B", "C", "D"}, {"A", "B"}], 2), isolated([{"A", "B", "C", "D"}, {"A", "B"}], 0)
    ((), ('C', 'D'))
    """
    known = list(dict.fromkeys(tuple(sorted(set(roster))) for roster in rosters))
    names = sorted({name for roster in known for name in roster})
    if min_apart == 0:
        common = set(names).intersection(*known)
        return tuple(name for name in names if name not in common)
    rows, pivots = _reduced([[int(name in roster) for name in names] for roster in map(set, known)])
    beside = _orthogonal(rows, pivots, len(names))
    for size in range(1, min(min_apart, len(names) + 1)):
        few = _dependent(beside, size)
        if few:
            return tuple(names[i] for i in few)
    return ()


def independent(rosters: Iterable[Collection[str]]) -> list[tuple[str, ...]]:
    """Of rosters those of which all others are combinations, so that they tell as much.

    >>> independent([("A", "B"), ("A", "B", "C"), ("C",), ("A", "B")])
    [('A', 'B'), ('A', 'B', 'C')]
    """
    known = list(dict.fromkeys(tuple(sorted(set(roster))) for roster in rosters))
    names = sorted({name for roster in known for name in roster})
    columns = [[int(name in roster) for roster in map(set, known)] for name in names]
    return [known[i] for i in _reduced(columns)[1]]


def pack_history(rosters: Iterable[Collection[str]]) -> bytes:
    """Rosters as bytes: the names once, then for each roster which of them; empty if there are none.

    >>> pack_history([("A", "B", "C"), ("A", "C", "D")])
    b'[["A","B","C","D"],["7","d"]]'
    """
    told = independent(sorted(tuple(sorted(roster)) for roster in rosters))
    names = sorted({name for roster in told for name in roster})
    masks = [f"{sum(1 << names.index(name) for name in roster):x}" for roster in told]
    packed = json.dumps([names, masks], separators=(",", ":")).encode() if told else b""
    if len(packed) > HISTORY_BYTES or len(names) > MOST_NAMES:
        raise PolicyError(
            f"rule min_apart: these rows were in secured sums over {len(told)} different sets of {len(names)} sites, more than "
            "a session can look at together; ask the same sites as before in runs over other rows"
        )
    return packed


def unpack_history(packed: bytes, teller: str) -> list[tuple[str, ...]]:
    """Inverse of :func:`pack_history`, for what another site told: everything is checked, and that it was there itself."""
    if not packed:
        return []
    try:
        if len(packed) > HISTORY_BYTES:
            raise ValueError
        names, masks = json.loads(packed)
        if not fits([names, masks], list[list[str]]) or len(names) > MOST_NAMES or len(masks) > len(names):
            raise ValueError
        chosen = [int(mask, 16) for mask in masks]
        if len(set(names)) < len(names) or any(not 0 < mask < 1 << len(names) for mask in chosen):
            raise ValueError
        rosters = [tuple(name for i, name in enumerate(names) if mask >> i & 1) for mask in chosen]
        if any(teller not in roster for roster in rosters):
            raise ValueError
    except (ValueError, TypeError, RecursionError) as error:
        raise PolicyError(f"rule roster: what site {teller!r} tells of earlier sessions are no rosters that it was in") from error
    return rosters


def _reduced(matrix: Rows) -> tuple[Rows, list[int]]:
    """Independent rows of the same combinations, each with its pivot's column alone among the pivots'; and those columns.

    Elimination in whole numbers: rows are divided by what their entries have in common, so nothing is rounded or grows large.
    """
    rows: Rows = []
    pivots: list[int] = []
    for row in matrix:
        for known, pivot in zip(rows, pivots, strict=True):
            row = _without(row, known, pivot)
        pivot = next((i for i, entry in enumerate(row) if entry), -1)
        if pivot >= 0:
            rows = [_without(known, row, pivot) for known in rows]
            rows.append(row)
            pivots.append(pivot)
    return rows, pivots


def _without(row: list[int], other: list[int], pivot: int) -> list[int]:
    """The combination of two rows that is zero at the other's pivot."""
    if not row[pivot]:
        return row
    a, b = other[pivot], row[pivot]
    return _lowest([a * x - b * y for x, y in zip(row, other, strict=True)])


def _lowest(row: list[int]) -> list[int]:
    """A row divided by what its entries have in common, the first of them positive."""
    common = gcd(*row)
    first = next((entry for entry in row if entry), 1)
    common = -common if first < 0 else common
    return [entry // common for entry in row] if common not in (0, 1) else row


def _orthogonal(rows: Rows, pivots: Sequence[int], n: int) -> Rows:
    """For each of n columns its entries in all vectors that are orthogonal to the rows, each vector times something.

    A combination of the rows lives on a few columns just if these entries are linearly dependent.
    """
    free = [i for i in range(n) if i not in set(pivots)]
    found = [[int(i == j) for j in free] for i in range(n)]
    scale = lcm(*(row[pivot] for row, pivot in zip(rows, pivots, strict=True)))
    for k, j in enumerate(free):
        for row, pivot in zip(rows, pivots, strict=True):
            found[pivot][k] = -row[j] * (scale // row[pivot])
        found[j][k] = scale
    return found


def _dependent(rows: Rows, size: int) -> tuple[int, ...]:
    """The first so many rows that are linearly dependent, no fewer of them being so; none if there are none."""
    if size == 1:
        return next(((i,) for i, row in enumerate(rows) if not any(row)), ())
    if size == 2:
        first: dict[tuple[int, ...], int] = {}
        pairs = [(first.setdefault(tuple(_lowest(row)), i), i) for i, row in enumerate(rows)]
        return min((pair for pair in pairs if pair[0] != pair[1]), default=())
    return next((few for few in combinations(range(len(rows)), size) if len(_reduced([rows[i] for i in few])[0]) < size), ())

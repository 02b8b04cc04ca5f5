"""What sums over different sets of sites show together: the part that a few of them have in common.

Sums over A, B, C, D and over A, B, C give D's part as a difference.  No two of {A, B, C, D}, {A, B, E} and {C, D, E} differ by
one site, and yet the second and third together, less the first, are twice E's part.  So rosters are looked at as vectors of zeros
and ones: what can be computed is every combination of them, and a few sites are shown if a combination has no others in it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from fractions import Fraction
from itertools import combinations


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
    matrix = [[Fraction(name in roster) for name in names] for roster in known]
    whole = _rank(matrix)
    for size in range(1, min(min_apart, len(names) + 1)):
        for few in combinations(range(len(names)), size):
            others = [i for i in range(len(names)) if i not in few]
            if _rank([[row[i] for i in others] for row in matrix]) < whole:
                return tuple(names[i] for i in few)
    return ()


def _rank(matrix: Sequence[Sequence[Fraction]]) -> int:
    """By elimination without rounding."""
    rows, rank = [list(row) for row in matrix], 0
    for column in range(len(rows[0]) if rows else 0):
        pivot = next((i for i in range(rank, len(rows)) if rows[i][column]), None)
        if pivot is None:
            continue
        rows[rank], rows[pivot] = rows[pivot], rows[rank]
        for row in rows[rank + 1 :]:
            if row[column]:
                factor = row[column] / rows[rank][column]
                row[column:] = [a - factor * b for a, b in zip(row[column:], rows[rank][column:], strict=True)]
        rank += 1
    return rank

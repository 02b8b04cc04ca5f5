"""What sums and published models tell about one site or one row: attacks that need no single reply.

Secured sums do not stop these.  They use the sum itself, twice, or what is published in the end.

Who attacks
    Whoever sees the sums: the coordinator, also of a secured run; for :func:`row_between`, any reader of two models.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.stats

from ..errors import InputError
from ..numerics.linalg import Array, symmetrize

WHOLE = 1e-6
"""Counts come out of sums as whole numbers up to this; a count further from one is not believed."""

LONGEST = 50
"""Passes over rare features whose carriers are known but for one."""


@dataclass(frozen=True, eq=False)
class Totals:
    """What a roster's sums say: rows ``n``, pooled ``mean`` (d), and the ``scatter`` about it (d x d) where it is known."""

    n: int
    mean: Array
    scatter: Array | None = None


def lost_site(everybody: Totals, rest: Totals) -> Totals:
    """The site that is in the one roster and not in the other: its rows, its mean, and its scatter about its own mean.

    With m the mean of all and m_r of the rest, C is the sum of C_r + n_r (m_r - m)(m_r - m)^T and of the same for the site i,
    where C_i is about m_i.  Nothing large is taken from anything large.

    >>> X = np.array([[1.0, 0.0], [3.0, 2.0], [5.0, 7.0], [0.0, 1.0]])
    >>> def totals(Y): return Totals(len(Y), Y.mean(axis=0), (Y - Y.mean(axis=0)).T @ (Y - Y.mean(axis=0)))
    >>> found = lost_site(totals(X), totals(X[:2]))
    >>> found.n, found.mean.tolist(), bool(np.allclose(found.scatter, totals(X[2:]).scatter))
    (2, [2.5, 4.0], True)
    """
    n = everybody.n - rest.n
    if n <= 0:
        raise InputError(f"{everybody.n} rows of all and {rest.n} of the rest leave none; give the larger roster first")
    mean = everybody.mean + rest.n * (everybody.mean - rest.mean) / n
    if everybody.scatter is None or rest.scatter is None:
        return Totals(n, mean)
    other, own = rest.mean - everybody.mean, mean - everybody.mean
    scatter = everybody.scatter - rest.scatter - rest.n * np.outer(other, other) - n * np.outer(own, own)
    return Totals(n, mean, symmetrize(scatter))


def row_between(before: Totals, after: Totals) -> Array:
    """The one row (d) by which two published models differ: m_1 + n_2 (m_2 - m_1).

    >>> row_between(Totals(2, np.array([1.0, 2.0])), Totals(3, np.array([2.0, 2.0]))).tolist()
    [4.0, 2.0]
    """
    if after.n - before.n != 1:
        raise InputError(f"models of {before.n} and {after.n} rows do not differ by one row; give the smaller first")
    row: Array = before.mean + after.n * (after.mean - before.mean)
    return row


def row_between_components(before: tuple[Array, Array], after: tuple[Array, Array]) -> Array:
    """The same where no mean is published (``center=False``), up to its sign, from components (k x d) and n times variances.

    V_2^T S_2 V_2 - V_1^T S_1 V_1 is the row times itself if all components are published, else about that.
    """
    (V1, s1), (V2, s2) = before, after
    values, vectors = np.linalg.eigh((V2.T * s2) @ V2 - (V1.T * s1) @ V1)
    row: Array = vectors[:, -1] * np.sqrt(max(values[-1], 0.0))
    return row


def isolated(rosters: Iterable[Iterable[str]]) -> list[str]:
    """Sites whose own part is a combination of the sums over these rosters.

    Every roster is a row of zeros and ones.  A site is isolated if its unit vector is in the span of the rows: pairs of rosters
    need not show it.

    >>> isolated(["ABCD", "ABC"]), isolated(["ABCD", "ABE", "CDE"]), isolated(["ABCD", "AB"])
    (['D'], ['E'], [])
    """
    members = [frozenset(roster) for roster in rosters]
    names = sorted(frozenset().union(*members))
    rows = np.array([[float(name in roster) for name in names] for roster in dict.fromkeys(members)])
    if not rows.size:
        return []
    inside = np.linalg.pinv(rows) @ rows  # the projection on their span
    return [name for i, name in enumerate(names) if inside[i, i] > 1 - WHOLE]


def rare_rows(n: int, sums: Array, moments: Array, features: Sequence[int], largest: int = 2) -> dict[int, Array]:
    """Rows of single people (d), by the rare feature in whose column of X^T X each stands.

    Rows are whole numbers from 0 to ``largest``.  A feature that one person alone carries has a column x_f x; it is known by
    (sum of x_f)^2 = sum of x_f^2.  A feature that all but one have at ``largest`` is turned round first.  Where the carriers of
    another feature are known but for one, the rest of its column is the last one's.

    Parameters
    ----------
    n : int
        Rows of all sites.
    sums : (d,) array
        Sums of the columns.
    moments : (d, f) array
        Columns of X^T X for ``features``.
    """
    whole, counted = np.rint(moments) + 0.0, np.rint(sums) + 0.0  # no zero is negative: rows are compared by their bytes
    if np.abs(whole - moments).max(initial=0.0) > 0.1 or np.abs(counted - sums).max(initial=0.0) > 0.1:
        raise InputError("sums of products are no whole numbers; rows in columns are looked for among counts only")
    columns: dict[int, Array] = {}
    for j, f in enumerate(features):
        turned = 2 * counted[f] > largest * n  # nearly all have it: count those who lack it
        column = largest * counted - whole[:, j] if turned else whole[:, j].copy()
        own = largest * n - counted[f] if turned else counted[f]
        squares = largest**2 * n - 2 * largest * counted[f] + whole[f, j] if turned else whole[f, j]
        columns[f] = np.append(column, [own, squares, float(turned)])
    found: dict[int, Array] = {}
    for _ in range(LONGEST):
        fresh = _single_carriers(columns, found, largest)
        if not fresh:
            break
        found |= fresh
    return found


def _single_carriers(columns: dict[int, Array], found: dict[int, Array], largest: int) -> dict[int, Array]:
    """Features with one carrier once those already known are taken off, and that carrier's row."""
    people = {row.tobytes(): row for row in found.values()}
    fresh: dict[int, Array] = {}
    for f, column in columns.items():
        if f in found:
            continue
        *rest, own, squares, turned = column.tolist()
        left = np.array(rest)
        for row in people.values():
            carried = largest - row[f] if turned else row[f]
            left, own, squares = left - carried * row, own - carried, squares - carried**2
        if 0 < own <= largest and own**2 == squares:
            row = left / own + 0.0
            if ((row >= 0) & (row <= largest) & (row == np.rint(row))).all():
                fresh[f] = row
    return fresh


def membership(rows: Array, mean: Array, reference: Array, spread: Array) -> Array:
    """How much nearer every row (n x d) is to a published mean than to a reference population's: large for members.

    The sum over features of (x - r)(m - r) / s^2, with r and s of the reference: the best linear test of whether x is one of the
    rows behind m.
    """
    told = spread > 0
    weights = (mean - reference)[told] / spread[told] ** 2
    scores: Array = (rows[:, told] - reference[told]) @ weights
    return scores


def auc(members: Array, others: Array) -> float:
    """The chance that a member scores higher than somebody else, ties counted half.

    >>> auc(np.array([2.0, 3.0]), np.array([1.0, 2.0]))
    0.875
    """
    ranks = scipy.stats.rankdata(np.concatenate([members, others]))
    m, o = len(members), len(others)
    return float((ranks[:m].sum() - m * (m + 1) / 2) / (m * o))

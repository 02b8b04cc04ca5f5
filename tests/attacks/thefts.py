"""Thefts of rows and columns: each takes a site's end and gives how many rows, or single values, it got hold of.

The first five are those that succeeded against the first release, in the strongest legal form that is left of them; the others
are variants made against what was built since.  All know the site's public facts (its name, the number of rows, sums), none its
secret.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from tests.attacks.coordinator import Coordinator, Refused, Victim

CLOSE = 1e-6


def rows_among(found: Any, X: Any, columns: Any = slice(None)) -> int:
    """How many different rows of X are among what was found, to a relative error of 1e-6 in these columns."""
    X = X[:, columns]
    met = set()
    for row in np.atleast_2d(found):
        errors = (np.abs(X - row[columns]) / (1 + np.abs(X))).max(axis=1)
        if np.isfinite(row[columns]).all() and errors.min() < CLOSE:
            met.add(int(errors.argmin()))
    return len(met)


def one_row_training(victim: Victim) -> int:
    """Hold out all rows but one, chosen by a seed whose stream the coordinator can repeat."""
    n, d, got = len(victim.X), victim.X.shape[1], []
    for i in range(min(n, 15)):
        c = Coordinator(victim, f"train{i}", "varpro")
        _, mean, _ = c.set_up()
        name = int.from_bytes(hashlib.blake2b(victim.name.encode(), digest_size=8).digest(), "little")
        seed = next(s for s in range(10**5) if np.random.default_rng([s, name]).permutation(n)[-1] == i)
        empty = np.zeros(0, np.uint64), np.zeros(0, np.int64)
        c.call("take_part", np.int64(0), *empty, np.float64(1.0), np.float64(seed))
        M, *_ = c.call("exact_local_part", np.eye(d))
        y = M[:, np.argmax(np.diag(M))] / np.sqrt(np.diag(M).max())
        got += [mean + y, mean - y]
    return rows_among(got, victim.X)


def isolating_threshold(victim: Victim) -> int:
    """Trust one feature only within a window that holds a single row."""
    X, j, d, got = victim.X, 2, victim.X.shape[1], []
    U = np.eye(d)[:, [j]]
    scale = np.where(np.arange(d) == j, 1.0, 1e9)
    xs = np.linspace(X[:, j].min() - 1, X[:, j].max() + 1, 60)
    w = xs[1] - xs[0]
    for i, v in enumerate(xs):
        if i % 18 == 0:
            c = Coordinator(victim, f"window{i}", "shrinking")
        c.begin_anew()
        mean, shift = np.where(np.arange(d) == j, v - w, 0.0), np.where(np.arange(d) == j, w, 0.0)
        c.call("keep_medians", mean, scale, kind="local")
        try:
            G, B, trusted, _ = c.call("threshold_step", U, shift, np.float64(w / 2))
        except Refused:
            continue
        if trusted[j] == 1 and B[0, 0] > 0:
            s = np.sqrt(B[0, 0]) * np.sign(G[np.argmax(np.abs(G[:, 0])), 0])
            row = G[:, 0] / s * scale
            row[j] = v + s
            got.append(row)
    return rows_among(got, X) if got else 0


def constant_columns(victim: Victim) -> int:
    """Turn three features into constants by a huge centre and scale; BLAS then rounds x - t to a comparison."""
    j, d, big = 2, victim.X.shape[1], 2.0**200
    c = Coordinator(victim, "constants", "krylov")
    centre, scale = np.zeros(d), np.ones(d)
    centre[[0, 3, 4]], scale[[0, 3, 4]] = big, -big
    c.set_up(centre, scale)
    Z = np.zeros((d, 1))
    Z[[0, j, 3, 4], 0] = 1.0, 1.0, 1.5 * 2.0**60, -1.5 * 2.0**60
    (G,) = c.call("scatter_action", Z)
    return rows_among(G.T, victim.X)


def underflow(victim: Victim) -> int:
    """Scale the features so that products underflow to 0 or 1: an entry of the scatter matrix then counts rows above a limit."""
    c, d = Coordinator(victim, "underflow", "gram"), victim.X.shape[1]
    n, mean, within = c.set_up()
    c.begin_anew()
    sd = np.sqrt(within / n)
    centre, scale = mean - 20 * sd, sd * 2.0**490
    c.set_up(centre, scale)
    (triangle,) = c.call("scatter_triangle")
    whole = np.zeros((d, d))
    whole[np.triu_indices(d)] = triangle
    counted = np.round(whole[0] / 5e-324)
    above = (mean < victim.X).sum(axis=0)
    return int(np.sum((counted > 0) & (counted == above)))


def columns_by_digits(victim: Victim) -> int:
    """List the values of columns, not medians, by walking down every branch of their binary digits."""
    from eigenpact.algorithms.robust.agreement import _values

    d, c, values = victim.X.shape[1], Coordinator(victim, "digits", "shrinking"), set()
    frontier = [np.uint64(0)]
    for step in range(12):
        branches = []
        for prefix in frontier[:8]:
            try:
                (counts,) = c.call("count_parts", np.zeros(d), np.bool_(False), np.full(d, prefix, np.uint64), np.int64(step))
            except Refused:
                continue
            branches += [(prefix << np.uint64(5)) + np.uint64(q) for q in np.flatnonzero(counts[0])]
        frontier = branches
    if frontier:
        values = {float(v) for v in _values(np.array(frontier, np.uint64), 12)}
    return sum(bool(np.any(np.abs(victim.X[:, 0] - v) <= 1e-12 * np.abs(v))) for v in values)


def dependent_columns(victim: Victim, j: int = 0, pair: tuple[int, int] = (-2, -1), windows: int = 400) -> int:
    """Two equal columns cancel beside a third: M b - M b + z x rounds z x to a multiple of ulp(M b), which compares |x|.

    No centre, no scale and no length of the block is out of the ordinary: the block's columns are unit vectors.
    """
    d = victim.X.shape[1]
    a, b = (p % d for p in pair)
    c = Coordinator(victim, "pair0", victim.policy.solvers[-1])
    _, mean, within = c.set_up(trace=float(2 ** np.ceil(np.log2(10 * len(victim.X) * np.var(victim.X, axis=0).sum()))))
    deviations, halves = np.sqrt(within / len(victim.X)), 2.0**-0.5
    limits, sums = np.geomspace(1e-3, 8, windows) * deviations[j], []
    smallest = np.abs(victim.X[:, a] - mean[a]).min()  # a balanced yes or no: known from its mean
    for i, limit in enumerate(limits):
        if c.replies + 1 >= victim.policy.max_rounds:
            c = Coordinator(victim, f"pair{i}", victim.policy.solvers[-1])
            c.set_up(trace=float(2 ** np.ceil(np.log2(10 * len(victim.X) * np.var(victim.X, axis=0).sum()))))
        ulp = np.spacing(halves * smallest)
        Z = np.zeros((d, 1))
        Z[[a, b, j], 0] = halves, -halves, ulp / 2 / limit  # |x| > limit rounds to one ulp, others to nothing
        (G,) = c.call("scatter_action", Z)
        sums.append(G[:, 0] / ulp)
    steps = -np.diff(np.array(sums), axis=0)
    rest = [i for i in range(d) if i not in (a, b)]
    got = [mean + sign * step for step in steps if np.abs(step[rest]).max() > 0 for sign in (1, -1)]
    return rows_among(got, victim.X, rest) if got else 0

"""Thefts of rows and columns: each takes a site's end and gives how many rows, or single values, it got hold of.

The first five are those that succeeded against the first release, in the strongest legal form that is left of them; the others
are variants made against what was built since.  All know the site's public facts (its name, the number of rows, sums), none its
secret.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer

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
    """Turn three features into constants by a huge centre and a negative scale; BLAS then rounds x - t to a comparison."""
    d, big = victim.X.shape[1], 2.0**200
    c = Coordinator(victim, "constants", "krylov")
    centre, scale = np.zeros(d), np.ones(d)
    centre[[0, 3, 4]], scale[[0, 3, 4]] = big, -big
    c.set_up(centre, scale)
    return _compare(c, victim.X)


def honest_constants(victim: Victim) -> int:
    """The same with three columns that are constant in the table, an honest centre and scale, and an orthonormal block."""
    c = Coordinator(victim, "honest", "krylov")
    c.set_up(np.zeros(victim.X.shape[1]))
    return _compare(c, victim.X)


def _compare(c: Coordinator, X: Any, j: int = 2, constants: tuple[int, int, int] = (0, 3, 4)) -> int:
    """Sums over the rows with x_j above a threshold, for many of them: two that differ by one row give that row."""
    d, (first, up, down), sums = X.shape[1], constants, []
    power = int(np.ceil(np.log2(8 * np.abs(X[:, j]).max())))
    s, M = 2.0**power, 1.5 * 2.0 ** (52 + power)
    for threshold in np.linspace(X[:, j].min(), X[:, j].max(), 400):
        z = np.zeros(d)
        z[[first, j, up, down]] = s / 2 - threshold, 1.0, M, -M
        z /= np.linalg.norm(z)
        filled = np.eye(d)[:, [i for i in range(d) if i not in (first, j, up, down)]]
        (G,) = c.call("scatter_action", np.concatenate([z[:, None], filled], axis=1))
        sums.append(G[:, 0])
    return rows_pointed_at(np.diff(np.array(sums), axis=0), X, [i for i in range(d) if i not in constants])


def rows_pointed_at(steps: Any, X: Any, columns: list[int]) -> int:
    """How many rows of X the steps are multiples of, about zero or about the mean: who has that has the row."""
    found: set[int] = set()
    steps = steps[:, columns]
    lengths = np.linalg.norm(steps, axis=1)
    units = steps[lengths > 0] / lengths[lengths > 0, None]
    for Y in (X[:, columns], (X - X.mean(axis=0))[:, columns]):
        cosines = np.abs(units @ (Y / np.linalg.norm(Y, axis=1, keepdims=True)).T)
        found |= set(cosines.argmax(axis=1)[cosines.max(axis=1, initial=0.0) > 1 - CLOSE**2].tolist()) if len(units) else set()
    return len(found)


def underflow(victim: Victim) -> int:
    """Scale the features so that products underflow to 0 or 1: an entry of the scatter matrix then counts rows above a limit."""
    c, d = Coordinator(victim, "underflow", "gram"), victim.X.shape[1]
    n, mean, within = c.set_up()
    sd, right = np.sqrt(within / n), 0
    above = (mean < victim.X).sum(axis=0)
    for power in (537, 495, 480):  # what underflows, and what is allowed at all
        c.begin_anew()
        scale = np.maximum(sd, 1e-9) * 2.0**power
        try:
            c.set_up(mean - 20 * sd, scale, trace=float(((within + n * 400 * sd**2) / scale**2).sum()))
            (triangle,) = c.call("scatter_triangle")
        except Refused:
            continue
        whole = np.zeros((d, d))
        whole[np.triu_indices(d)] = triangle
        counted = np.round(whole[0] / 5e-324)
        right = max(right, int(np.sum((counted > 0) & (counted == above))))
    return right


def columns_by_digits(victim: Victim) -> int:
    """List the values of columns, not medians, by walking down every branch of their binary digits."""
    from eigenpact.algorithms.medians import values_of

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
        values = {float(v) for v in values_of(np.array(frontier, np.uint64), 12)}
    return sum(bool(np.any(np.abs(victim.X[:, 0] - v) <= 1e-12 * np.abs(v))) for v in values)


def dependent_columns(victim: Victim, j: int = 0, pair: tuple[int, int] = (3, -1), windows: int = 400) -> int:
    """Two equal columns a < b cancel beside a third, j < a: z x_j + M x_a - M x_b is z x_j rounded to multiples of ulp(M x_a).

    As z grows, the sum over rows jumps by a multiple of a single row whenever one of them is rounded up.  No centre, no scale and
    no length of the block is out of the ordinary: its columns are orthonormal.  Who has a row but for a power of two has the row.
    """
    X, (a, b) = victim.X, (p % victim.X.shape[1] for p in pair)
    d, n, half, sums = X.shape[1], len(X), 2.0**-0.5, []
    trace = float(2 ** np.ceil(np.log2(2 * n * np.var(X, axis=0).sum())))
    filled = np.eye(d)[:, [i for i in range(d) if i not in (a, b, j)]]  # more than one column: else BLAS adds in lanes
    for i, z in enumerate(np.geomspace(1e-19, 1e-15, windows)):
        if i % (victim.policy.max_rounds - 3) == 0:
            c = Coordinator(victim, f"pair{i}", "krylov")
            c.set_up(trace=trace)
        Z = np.zeros((d, 1))
        Z[[a, b, j], 0] = half, -half, z
        (G,) = c.call("scatter_action", np.concatenate([Z, filled], axis=1))
        sums.append(G[:, 0])
    return rows_pointed_at(np.diff(np.array(sums), axis=0), X, [i for i in range(d) if i not in (a, b)])


def nested_parts(victim: Victim) -> int:
    """Hold out one row more than before, by the same seed: the difference of two traces and products is that row."""
    d, n, replies = victim.X.shape[1], len(victim.X), []
    empty = np.zeros(0, np.uint64), np.zeros(0, np.int64)
    for i in range(40, 60):
        c = Coordinator(victim, f"nested{i}", "varpro")
        c.set_up()
        c.call("take_part", np.int64(0), *empty, np.float64(i / n), np.float64(7))
        (M, *_) = c.call("exact_local_part", np.eye(d))
        replies.append((n - i) * M)
    steps = -np.diff(np.array(replies), axis=0)
    leading = [np.linalg.eigh((step + step.T) / 2)[1][:, -1] for step in steps if np.abs(step).max() > 0]
    return rows_pointed_at(np.array(leading), victim.X, list(range(d))) if leading else 0


def asked_again(victim: Victim) -> int:
    """Ask the same question in many runs, to average what was rounded away; gives how many different answers came."""
    d = victim.X.shape[1]
    Z, replies = np.eye(d)[:, :3], []
    for i in range(40):
        c = Coordinator(victim, f"again{i}", "krylov")
        c.set_up(trace=2 * _total(victim.X))
        replies.append(c.call("scatter_action", Z)[0])
    return len({reply.tobytes() for reply in replies}) - 1


def wrapped_numbers(victim: Victim) -> int:
    """Arguments in dtypes whose squares wrap or overflow, so that a trace of zero or a block of any length passes for right.

    Gives how many of them are answered.
    """
    d, answered = victim.X.shape[1], 0
    trace = 2 * _total(victim.X)
    scales = [np.full(d, 1e20, np.float32), np.full(d, 3037000500, np.int64), np.full(d, 46341, np.int32)]
    blocks = [np.eye(d, dtype=np.int64) * (2**63 - 1), np.eye(d, dtype=np.uint8) * np.uint8(255), np.ones((d, 1), bool)]
    asked = [(scale, 0.0, np.eye(d)) for scale in scales] + [(np.ones(d), trace, block) for block in blocks]
    for i, (scale, told, block) in enumerate(asked):
        c = Coordinator(victim, f"wrapped{i}", "krylov")
        try:
            c.set_up(scale=scale, trace=told)
            answered += bool(c.call("scatter_action", block))
        except Refused:
            continue
    return answered


def rounded_constants(victim: Victim) -> int:
    """Two constant columns whose mean rounds: x - c is one tiny number, its variance 0, and so its scale free of any bound."""
    X, d = victim.X, victim.X.shape[1]
    a, b, steps = d - 2, d - 1, []
    for j in range(3):
        c = Coordinator(victim, f"constant{j}", "krylov")
        _, _, n, sums = c.call("count_and_sum")
        mean = sums / int(n)
        within, _, _ = c.call("spread_by_feature", mean)
        left = X[0, [a, b]] - mean[[a, b]]  # which a coordinator finds from the spread about other centres
        if not left.all():
            return 0
        scale, centre = np.where(within > 0, np.sqrt(within / int(n)), 1.0), mean.copy()
        centre[[a, b]], scale[[a, b]] = X[0, [a, b]], np.abs(left) / 2.0**51
        used = within > 1e-290
        c.call("keep_centre", centre, scale, np.float64(1.0001 * (within[used] / scale[used] ** 2).sum()), kind="local")
        sums_by_z = []
        for z in np.linspace(0.02, 0.7, 400):
            half = np.sqrt((1 - z * z) / 2)
            Z = np.zeros((d, 1))
            Z[[j, a, b], 0] = z, half, -half * np.sign(left.prod())
            filled = np.eye(d)[:, [i for i in range(d) if i not in (a, b, j)][:3]]
            sums_by_z.append(c.call("scatter_action", np.concatenate([Z, filled], axis=1))[0][:, 0] * scale)
        steps.append(np.diff(np.array(sums_by_z), axis=0))
    return rows_pointed_at(np.concatenate(steps), X, list(range(d - 2)))


def vanishing_unit(victim: Victim) -> int:
    """A scale so large that the trace is a denormal number, and what replies are rounded to is zero; answers that came."""
    c, d = Coordinator(victim, "vanishing", "gram"), victim.X.shape[1]
    try:
        c.set_up(scale=np.full(d, 1e150), trace=2e-300 * _total(victim.X))
        return int(np.any(c.call("scatter_triangle")[0]))
    except Refused:
        return 0


def signs_by_clipping(victim: Victim, j: int = 2) -> int:
    """Cut entries back to a threshold so small that they are signs: x_j above or below a shift, one question after the other."""
    X, d, c, sums = victim.X, victim.X.shape[1], Coordinator(victim, "signs", "shrinking"), []
    scale = np.where(np.arange(d) == j, 1e-9, 1e9)
    c.call("keep_medians", np.zeros(d), scale, kind="local")
    for t in np.linspace(X[:, j].min(), X[:, j].max(), 400):
        try:
            G, _ = c.call("clipped_step", np.eye(d)[:, [j]], np.where(np.arange(d) == j, t / 1e-9, 0.0), np.float64(1.0))
        except Refused:
            continue
        sums.append(G[:, 0])
    rest = [i for i in range(d) if i != j]
    return rows_pointed_at(np.diff(np.array(sums), axis=0), X, rest) if len(sums) > 1 else 0


def no_trace(victim: Victim) -> int:
    """The set-up of one family, which tells no trace, before the products of another; answers that came."""
    c, d = Coordinator(victim, "mixed", "krylov"), victim.X.shape[1]
    c.call("spread", victim.X.mean(axis=0))
    c.call("keep_medians", np.zeros(d), np.ones(d), kind="local")
    try:
        return int(np.any(c.call("scatter_action", np.eye(d)[:, :2])[0]))
    except Refused:
        return 0


def quiet_zeros(victim: Victim) -> int:
    """Products that nearly cancel: if rounding left zero alone, replies that are not zero would tell by their rate what is there.

    Gives how many of the entries were zero, above the third or so that noise of one multiple leaves so.
    """
    d, c, replies = victim.X.shape[1], Coordinator(victim, "quiet", "krylov"), []
    c.set_up(trace=2 * _total(victim.X))
    for i in range(100):
        z = np.zeros((d, 1))
        z[[3, d - 1, 0], 0] = 2**-0.5, -(2**-0.5), 1e-17 * (1 + 1e-3 * i)
        replies.append(c.call("scatter_action", z)[0])
    return int(max(0, np.sum(np.array(replies) == 0) - 0.85 * 100 * d))


def _total(X: Any) -> float:
    return float(((X - X.mean(axis=0)) ** 2).sum())


@dataclass(frozen=True)
class Theft:
    """An attack, the rules that it needs listed, and the table it likes best."""

    attack: Callable[[Victim], int]
    solvers: tuple[str, ...]
    kind: str = "plain"


THEFTS = {
    "training on one row": Theft(one_row_training, ("varpro",)),
    "held-out sets that differ by one row": Theft(nested_parts, ("varpro",)),
    "a threshold that trusts one row": Theft(isolating_threshold, ("shrinking",)),
    "columns, value by value": Theft(columns_by_digits, ("shrinking",)),
    "huge centre, negative scale": Theft(constant_columns, ("krylov",)),
    "constant columns, honest centre": Theft(honest_constants, ("krylov",), "constants"),
    "equal columns, orthonormal block": Theft(dependent_columns, ("krylov",), "equal"),
    "products that underflow": Theft(underflow, ("gram",)),
    "the same question again": Theft(asked_again, ("krylov",)),
    "numbers that wrap in another dtype": Theft(wrapped_numbers, ("krylov",)),
    "constant columns whose mean rounds": Theft(rounded_constants, ("krylov",), "tenths"),
    "a trace so small that nothing rounds": Theft(vanishing_unit, ("gram",), "small units"),
    "entries cut back to signs": Theft(signs_by_clipping, ("shrinking",)),
    "zeros that rounding leaves alone": Theft(quiet_zeros, ("krylov",), "equal"),
    "products without a trace": Theft(no_trace, ("krylov", "shrinking")),
}
"""All of them by what they do."""


def table_of(kind: str) -> Any:
    """120 patients and 12 features; some columns constant, or one of them twice, or in units of a billionth."""
    X = load_breast_cancer().data[:120, :12]
    if kind == "small units":
        return 1e-9 * X
    if kind == "tenths":
        return np.c_[X, np.repeat([[0.3, 0.6]], 120, axis=0)]
    if kind == "constants":
        X = np.array(X)
        X[:, [0, 3, 4]] = 1.0
    return np.c_[X, X[:, 3]] if kind == "equal" else X


def stolen(name: str, folder: Path, rules: Mapping[str, Any] | None = None) -> tuple[int, Victim]:
    """How many rows or values a theft gets, under its own solvers and further rules; and the site, for its log."""
    theft = THEFTS[name]
    victim = Victim(table_of(theft.kind), folder, {"solvers": list(theft.solvers), "max_runs_per_day": 1000, **(rules or {})})
    try:
        return theft.attack(victim), victim
    except Refused:
        return 0, victim

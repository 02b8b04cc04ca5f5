"""A coordinator that searches: it draws tables, set-ups and blocks, asks two sites that differ by one row, and compares.

``python -m tests.attacks.searcher --calls 100000`` asks that often; a test asks 2000 times.  Both sites have the same name and
secret and a new ledger in every run.  What must hold, whatever is asked within the rules:

* without row r a product reply changes by at most ||y_r||^2 ||z||, y_r the row about the agreed centre in the agreed scale, and
  one multiple of what the site rounds to;
* sums change by the row, counts by one: that is what is declared;
* a function that speaks of a part of the rows speaks of none or of at least ``min_rows``, and so do two of its replies together.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer

from eigenpact.runtime.fixed_point import quantum
from tests.attacks.coordinator import Coordinator, Refused, Victim

CALLS = 24
"""Calls of one run."""

ROUNDING = 1e-12
"""Of the products themselves, as a share of the site's own trace: far below one multiple."""

TABLES = ("patients", "constant columns", "equal columns", "an outlier", "other units", "whole numbers")
CENTRES = ("mean", "mean", "zero", "near", "far", "one entry", "site")
SCALES = ("ones", "ones", "deviations", "mixed", "tiny", "huge")
TRACES = ("right", "right", "right", "larger", "much larger", "smaller")
BLOCKS = ("random", "unit vectors", "cancelling", "graded", "all", "not orthonormal")
WIDE = ("gram", "krylov", "varpro", "shrinking")


def table(kind: str, rng: np.random.Generator) -> Any:
    """Rows (60 x 8) of a kind that an attack could like."""
    X = load_breast_cancer().data[rng.permutation(500)[:60], :8]
    if kind == "constant columns":
        X[:, [1, 5]] = 3.0
    elif kind == "equal columns":
        X[:, 6], X[:, 7] = X[:, 2], X[:, 2]
    elif kind == "an outlier":
        X[0] *= 1e4
    elif kind == "other units":
        X = X * np.logspace(-30, 30, 8)
    elif kind == "whole numbers":
        X = np.round(X)
    return X


class Search:
    """One run against a site with all rows and one that lacks row ``r``."""

    def __init__(self, folder: Path, kind: str, wide: bool, rng: np.random.Generator) -> None:
        self.rng, self.X = rng, table(kind, rng)
        self.r = int(rng.integers(len(self.X)))
        rules = {"solvers": list(WIDE)} if wide else {}
        rows = {"whole": self.X, "less": np.delete(self.X, self.r, axis=0)}
        for name in rows:
            (folder / name).mkdir()
        self.victims = {name: Victim(X, folder / name, rules) for name, X in rows.items()}
        self.runs = {name: Coordinator(victim, "search") for name, victim in self.victims.items()}
        self.policy = self.victims["whole"].policy
        self.centre: Any = np.zeros(8)
        self.scale, self.trace, self.own = np.ones(8), 0.0, False
        self.answered = self.refused = 0
        self.agreed = False
        self.parts: set[frozenset[int]] = set()

    def ask(self, function: str, *args: Any, kind: str = "sum") -> list[Any]:
        """The replies of both; empty if either refuses."""
        replies = []
        for run in self.runs.values():
            try:
                replies.append(run.call(function, *args, kind=kind))
            except Refused:
                continue
        self.answered += len(replies) == 2
        self.refused += len(replies) < 2
        return replies if len(replies) == 2 else []

    # -- what may be asked ----------------------------------------------------------------------

    def begin(self, centre: str, scale: str, trace: str) -> None:
        """A new epoch with a set-up of some kind."""
        for run in self.runs.values():
            run.begin_anew()
        mean, deviations = self.X.mean(axis=0), self.X.std(axis=0)
        self.scale = {
            "ones": np.ones(8),
            "deviations": np.maximum(deviations, 1e-6 * np.abs(mean)),
            "mixed": 10.0 ** self.rng.uniform(-60, 60, 8),
            "tiny": np.full(8, 1e-100),
            "huge": np.full(8, 1e100),
        }[scale]
        self.centre = {
            "mean": mean,
            "site": mean,
            "zero": np.zeros(8),
            "near": mean + deviations * self.rng.normal(size=8),
            "far": mean + 2.0 ** self.rng.uniform(0, 200, 8),
            "one entry": self.X[self.r],
        }[centre]
        self.own = centre == "site"
        own_trace = float((((self.X - self.centre) / self.scale) ** 2).sum())
        factor = {"right": 1.0, "larger": 2.0 ** self.rng.uniform(0, 30), "much larger": 1e60, "smaller": 0.5}[trace]
        self.trace = own_trace * factor
        self.agreed = bool(
            self.ask("keep_own_centre", self.scale, np.float64(self.trace), kind="local")
            if self.own
            else self.ask("keep_centre", self.centre, self.scale, np.float64(self.trace), kind="local")
        )

    def block(self, kind: str) -> Any:
        """Columns that are orthonormal but for the last kind."""
        k = int(self.rng.integers(1, 8))
        if kind == "unit vectors":
            return np.eye(8)[:, self.rng.permutation(8)[:k]]
        if kind == "cancelling":
            a, b, j = self.rng.permutation(8)[:3]
            z = np.zeros((8, 1))
            z[[a, b, j], 0] = 2**-0.5, -(2**-0.5), 10.0 ** self.rng.uniform(-20, -9)
            return z
        if kind == "all":
            return np.linalg.qr(self.rng.normal(size=(8, 8)))[0]
        if kind == "graded":
            return np.linalg.qr(np.diag(10.0 ** self.rng.uniform(-12, 0, 8)) @ self.rng.normal(size=(8, k)))[0]
        Z = np.linalg.qr(self.rng.normal(size=(8, k)))[0]
        return Z * (1.0 if kind == "random" else 2.0 ** self.rng.integers(1, 60))

    def product(self, kind: str) -> None:
        """A product with a block: the bound on what one row does."""
        Z = self.block(kind)
        replies = self.ask("scatter_action", Z)
        if replies:
            self.check(replies[0][0] - replies[1][0], np.linalg.norm(Z, axis=0))

    def triangle(self) -> None:
        """The scatter matrix: each column is a product with a unit vector."""
        replies = self.ask("scatter_triangle")
        if replies:
            change = np.zeros((8, 8))
            change[np.triu_indices(8)] = replies[0][0] - replies[1][0]
            self.check(change + np.triu(change, 1).T, np.ones(8))

    def check(self, change: Any, lengths: Any) -> None:
        """A column may change by the row's square times the length of what it was asked for, and one multiple an entry."""
        n = len(self.X)
        y = (self.X[self.r] - self.centre) / self.scale
        factor = n / (n - 1) if self.own else 1.0  # the own mean moves, too
        allowed = factor * float(y @ y) * lengths * (1 + 1e-6)
        allowed = allowed + np.sqrt(8) * quantum(self.trace, self.policy.grain) + ROUNDING * self.trace
        assert np.all(np.linalg.norm(change, axis=0) <= allowed), (np.linalg.norm(change, axis=0) / allowed).max()

    def sums(self, _: str = "") -> None:
        """Sums and counts: what a row adds to them, and no more."""
        replies = self.ask("count_and_sum")
        if replies:
            (_, _, n, sums), (_, _, n_less, sums_less) = replies
            assert n - n_less == 1
            np.testing.assert_allclose(sums - sums_less, self.X[self.r], atol=1e-12 * np.abs(self.X).sum(axis=0).max())

    def hold_out(self, _: str = "") -> None:
        """Rows held out: none or enough, the others too; two sets differ by none or enough."""
        share, drawn = float(self.rng.choice([0.0, 1 / 60, 0.2, 0.34, 0.5, 0.99, 1.0])), float(self.rng.integers(5))
        empty = np.zeros(0, np.uint64), np.zeros(0, np.int64)
        if self.ask("take_part", np.int64(1), *empty, np.float64(share), np.float64(drawn)):
            held = frozenset(self.victims["whole"].end._server._kept["held_out"].tolist())
            least, n = self.policy.min_rows, len(self.X)
            assert not held or least <= len(held) <= n - least
            assert all(not held ^ other or len(held ^ other) >= least for other in self.parts)
            self.parts.add(held)

    def counts(self, _: str = "") -> None:
        """Entries by their first digits: none or enough."""
        replies = self.ask("count_parts", np.zeros(8), np.bool_(False), np.zeros(8, np.uint64), np.int64(0))
        for (counted,) in replies:
            assert np.all((counted == 0) | (counted >= self.policy.min_rows))

    def trust(self, _: str = "") -> None:
        """Entries that a threshold trusts: none or enough, by feature."""
        for run in self.runs.values():
            run.begin_anew()
        self.agreed = False
        width = float(10.0 ** self.rng.uniform(-3, 3))
        self.ask("keep_medians", self.X[int(self.rng.integers(60))], self.X.std(axis=0) + 1e-9, kind="local")
        for *_, trusted, _ in self.ask("threshold_step", self.block("random"), np.zeros(8), np.float64(width)):
            assert np.all((trusted == 0) | (trusted >= self.policy.min_rows))


def one_run(drawn: st.DataObject, folder: Path) -> Counter[str]:
    """Draw and carry out one run."""
    wide = drawn.draw(st.booleans())
    search = Search(folder, drawn.draw(st.sampled_from(TABLES)), wide, np.random.default_rng(drawn.draw(st.integers(0, 2**32))))
    asks: dict[str, Callable[[str], None]] = {"product": search.product, "sums": search.sums}
    if wide:
        asks |= {"hold out": search.hold_out, "counts": search.counts, "trust": search.trust}
    while search.answered + search.refused < CALLS:
        if not search.agreed or drawn.draw(st.integers(0, 9)) == 0:
            search.begin(*(drawn.draw(st.sampled_from(kinds)) for kinds in (CENTRES, SCALES, TRACES)))
            continue
        if drawn.draw(st.integers(0, 6)) == 0:
            search.triangle()
        asks[drawn.draw(st.sampled_from(sorted(asks) + ["product"] * 4))](drawn.draw(st.sampled_from(BLOCKS)))
    return Counter(answered=search.answered, refused=search.refused)


def search(calls: int, begin: int = 0, made_small: bool = True) -> Counter[str]:
    """Ask about ``calls`` times; how often it was answered and refused.  What breaks a rule is raised, made small or as found."""
    tally: Counter[str] = Counter()
    phases = tuple(Phase) if made_small else (Phase.generate,)

    @seed(begin)
    @settings(
        max_examples=-(-calls // CALLS), database=None, deadline=None, suppress_health_check=list(HealthCheck), phases=phases
    )
    @given(st.data())
    def runs(drawn: st.DataObject) -> None:
        with tempfile.TemporaryDirectory() as folder:
            tally.update(one_run(drawn, Path(folder)))

    runs()
    return tally


def main() -> int:
    """Search, and print how it ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    tally = search(arguments.calls, arguments.seed)
    total = tally["answered"] + tally["refused"]
    print(f"searcher: {total} calls, {tally['answered']} answered, {tally['refused']} refused; no reply told more of a row")
    return 0 if 2 * tally["answered"] >= total else 1


if __name__ == "__main__":
    sys.exit(main())

"""Lies of a site: what it replies instead of the truth, and what a run makes of that.

Every lie changes the replies of one site of five, whose data are honest.  A run over the other four is what an honest answer
without the liar would be.  ``table()`` runs all solvers against all lies.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import eigenpact as ep
from eigenpact.runtime import MailConnection, Outcome, SiteEndpoint, SiteServer, wire
from eigenpact.runtime.letters import seal

SOLVERS = ("gram", "krylov", "subspace", "localpower", "faps", "lanczos", "power", "davidson", "shift-invert")
LIAR, FEATURES, COMPONENTS, RIGHT = "E", 30, 3, 1e-5

Arrays = tuple[np.ndarray[Any, Any], ...]


def floats(change: Callable[[Any], Any], dims: int = 0) -> Callable[[Any], Any]:
    """Change floating point arrays of at least so many dimensions."""
    return lambda a: np.asarray(change(a)) if a.dtype.kind == "f" and a.ndim >= dims else a


def whole(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda a: np.asarray(change(a)) if a.dtype.kind in "iu" else a


def steer(a: Any) -> Any:
    """A large direction of the liar's choice beside the truth."""
    more = np.zeros_like(a)
    more[0] = 1e5
    return a + more


LIES: dict[str, Callable[[Any], Any]] = {
    "nan": floats(lambda a: a * np.nan),
    "inf": floats(lambda a: np.full_like(a, np.inf)),
    "flip": floats(lambda a: -a),
    "huge": floats(lambda a: a * 1e6),
    "asym": floats(lambda a: a + np.random.default_rng(1).normal(size=a.shape) * np.abs(a).max(), dims=1),
    "steer": floats(steer, dims=1),
    "count": whole(lambda a: np.where(a > 1, 1000 * a, a)),
    "negative": whole(lambda a: np.where(a > 1, -3 * a, a)),
    "float32": floats(lambda a: a.astype(np.float32)),
    "integers": floats(lambda a: a.astype(np.int64)),
}
"""What becomes of an array; ``replay``, the eleventh, needs memory."""

ALL_LIES = (*LIES, "replay")

QUIET: dict[str, Callable[[Any], Any]] = {"more": floats(lambda a: 1.3 * a, dims=2)}
"""Lies that no product contradicts: here those of a scatter matrix of 1.3 times the trace."""


@dataclass
class Liar:
    """Changes the replies number ``first`` to ``last`` that have arrays, counted from one."""

    lie: str
    first: int = 1
    last: int = 10**9
    seen: int = 0
    lied: int = 0
    old: dict[Any, Arrays] = field(default_factory=dict)

    def __call__(self, arrays: Arrays) -> Arrays:
        if not arrays:
            return arrays
        self.seen += 1
        if not self.first <= self.seen <= self.last:
            told = arrays
        elif self.lie == "replay":
            told = self.old.get(tuple(a.shape for a in arrays), arrays)
        else:
            told = tuple((LIES | QUIET)[self.lie](a) for a in arrays)
        self.old.setdefault(tuple(a.shape for a in arrays), tuple(np.array(a) for a in arrays))
        self.lied += any(
            a.dtype != b.dtype or not np.array_equal(a, b, equal_nan=True) for a, b in zip(told, arrays, strict=True)
        )
        return told


class Lied:
    """An engine by messages, whose site ``E`` replies what ``liar`` makes of the truth."""

    spread, costs = False, ep.engines.InProcess().costs

    def __init__(self, liar: Callable[[Arrays], Arrays], min_sites: int = 1) -> None:
        self.liar, self.min_sites = liar, min_sites
        self.ends: dict[str, SiteEndpoint] = {}

    def execute(self, held: Any, job: Any, graph: Any = None) -> Outcome:  # noqa: ARG002
        """The sites stay from one run to the next, as sites elsewhere do."""
        for name, X in held.items():
            self.ends.setdefault(name, SiteEndpoint(SiteServer(name, X)))
        self.replies: list[tuple[str, bytes]] = []
        outcome: Outcome = job(MailConnection(self, self.ends, round_timeout=5.0))
        return outcome

    def now(self) -> float:
        return 0.0

    def send(self, site: str, data: bytes) -> None:
        reply = self.ends[site].handle(data)
        if site == LIAR:
            header, arrays = wire.unpack(memoryview(reply)[8:])
            reply = seal(wire.pack(header, self.liar(arrays)))
        self.replies.append((site, reply))

    def receive(self, _until: float) -> tuple[str, bytes] | None:
        return self.replies.pop(0) if self.replies else None


def problem(seed: int = 0) -> dict[str, Any]:
    """Five sites with rows of one kind, three directions of them large."""
    rng = np.random.default_rng(seed)
    mix = np.linalg.qr(rng.normal(size=(FEATURES, FEATURES)))[0] * np.r_[8, 5, 3, np.ones(FEATURES - 3)]
    return {name: rng.normal(size=(60, FEATURES)) @ mix.T + 1 for name in "ABCDE"}


def sine_to(basis: Any, tables: Any, center: Any = "pooled", scale: Any = None) -> float:
    """Sine of the largest angle between components (k x d) and those of the pooled tables."""
    X = np.vstack(tables)
    about_own = np.vstack([table - table.mean(axis=0) for table in tables])
    rows = {"pooled": X - X.mean(axis=0), "site": about_own, False: X}[center]
    if scale is not None:
        rows = rows / np.sqrt(np.mean((about_own if center == "site" else X - X.mean(axis=0)) ** 2, axis=0))
    V = np.linalg.svd(rows, full_matrices=False)[2][: len(basis)].T
    return float(np.linalg.norm(basis.T - V @ (V.T @ basis.T), 2))


@dataclass(frozen=True)
class Ending:
    """What a run against a liar came to: in a word, and why.

    "left out"      the liar is named, and the answer is that of the others
    "refused"       the run ended with an error of ours
    "not converged" the answer says that it is none
    "not told"      no reply was changed
    "harmless"      the answer is that of all five, as if nobody had lied
    "fooled"        called converged, and wrong
    """

    what: str
    why: str


def against(solver: Any, liar: Liar, seed: int = 0, components: int = COMPONENTS, **options: Any) -> Ending:
    """Fit five sites, one of which lies."""
    sites = problem(seed)
    pca = ep.FederatedPCA(components, solver=solver, engine=Lied(liar), random_state=seed, max_rounds=200, **options)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            pca.fit(sites)
        except ep.errors.EigenpactError as error:
            return Ending("refused", str(error))
    if not liar.lied:
        return Ending("not told", "")
    honest = [X for name, X in sites.items() if name in pca.sites_]
    right = sine_to(pca.components_, honest, **options) <= RIGHT and pca.n_samples_seen_ == sum(map(len, honest))
    if not pca.converged_:
        return Ending("not converged", pca.stop_reason_)
    if LIAR in pca.sites_:
        return Ending("harmless" if right else "fooled", pca.stop_reason_)
    named = [str(w.message) for w in told if issubclass(w.category, ep.errors.SiteLeftOutWarning)]
    return Ending(
        "left out" if right and len(honest) == 4 and len(named) == 1 else "fooled", named[0] if named else "nobody was warned"
    )


def table(first: int = 1) -> Iterator[tuple[str, str, Ending]]:
    """Solver, lie and ending: 9 x 11, with lies from the reply number ``first`` on."""
    for solver in SOLVERS:
        for lie in ALL_LIES:
            yield solver, lie, against(solver, Liar(lie, first))

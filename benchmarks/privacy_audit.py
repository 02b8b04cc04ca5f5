"""Rows of the audit: every attack of issue 20's table, measured by ``ep.audit`` or on real genotypes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

import eigenpact as ep
from benchmarks.table import Row
from eigenpact.errors import EigenpactError
from eigenpact.privacy import auc, membership, rare_rows
from eigenpact.privacy.findings import NOT_BY_THIS
from eigenpact.report.auditing import made_up, simulate

ROWS = {"A": 90, "B": 120, "C": 150}
OTHERS = 1500
"""Common variants, beside the rare ones, in the runs on genotypes: gram takes up to 5000 features."""


def rows(size: str) -> Iterator[Row]:
    """Measure and yield a row at a time."""
    yield from _products()
    yield from _faps(8 if size == "paper" else 3)
    yield from _sums()
    yield _secured()
    try:
        data = ep.datasets.genomes()
    except EigenpactError as error:
        yield Row("rare features and membership of genotypes", "100 rows", "", None, str(error))
        return
    yield _rare(data)
    yield _members(data)


def _audit(solver: Any, k: int = 4, features: int = 30, seed: int = 0, rows_of: Any = None, **options: Any) -> Any:
    secured, sums = options.pop("secured", False), options.pop("sums", True)
    pca = ep.FederatedPCA(k, solver=solver, random_state=seed, **options)
    return ep.audit(pca, made_up(rows_of or ROWS, features, seed), secured=secured, sums=sums)


def _products() -> Iterator[Row]:
    for solver in ("subspace", "krylov"):
        found = _audit(solver, sums=False).of("products, symmetric")
        worst, first = max(one.error for one in found), max(one.rounds for one in found)
        soon = max(dict(one.curve)[one.rounds] for one in found)
        text = f"{worst:.0e} from all replies, worst of 3 sites (30 features, 4 components); {soon:.0e} by round {first}, "
        text += "the first within 1e-6"
        yield Row(f"audit: C_i from the replies of {solver}, once blocks span", "<= 1e-8", text, worst <= 1e-8)
    few = _audit("krylov", max_rounds=1, sums=False).of("products, symmetric", "A")[0]
    yield Row("audit: the same from one round of krylov, 8 of 30 columns", "reported", f"{few.error:.2f}: {few.verdict}", True)


def _faps(seeds: int) -> Iterator[Row]:
    begin, errors = time.process_time(), []
    for seed in range(seeds):
        told = _audit(ep.solvers.FAPS(start="random"), seed=seed, tol=0, max_rounds=15, sums=False)
        errors.append(told.of("FAPS, simulated site", "A")[0].error)
    seconds = (time.process_time() - begin) / seeds
    alone = told.of("products, symmetric", "A")[0].error
    text = f"{', '.join(f'{error:.0e}' for error in errors)} ({seconds:.0f} s CPU each; {alone:.1f} from products alone)"
    yield Row(f"audit: FAPS fitted by a simulated site, 30 features, {seeds} seeds", "<= 1e-6", text, max(errors) <= 1e-6)
    first = told.of("FAPS, first message", "A")[0].error
    yield Row("audit: first message of FAPS, (I - Z Z^T) C_i Z", "reported", f"{first:.0e}", True)
    one = _audit("one-shot", sums=False).of("one-shot truncation", "A")[0]
    yield Row("audit: C_i from one message of one-shot", "reported", f"error {one.error:.2f}, energy {one.energy:.2f}", True)


def _sums() -> Iterator[Row]:
    told = _audit("gram")
    lost, row = (told.of(name)[0].error for name in ("lost site", "one row more"))
    yield Row("audit: a lost site's scatter, two runs of gram", "<= 1e-12", f"{lost:.0e}", lost <= 1e-12)
    yield Row("audit: one row more between two models", "<= 1e-10", f"{row:.0e}", row <= 1e-10)
    error = _audit("krylov").of("unequal arguments")[0].error
    yield Row("audit: unequal arguments to one site, krylov, sums not secured", "reported", f"{error:.0e}", True)
    error = _audit("krylov", rows_of={"A": 90, "B": 120}, secured=True).of("two sites")[0].error
    yield Row("audit: two sites, the other's C_i from sums alone", "reported", f"{error:.0e}", True)


def _secured() -> Row:
    """Masked replies: attacks on single replies must end with the aggregate, those on sums must remain."""
    told = _audit("krylov", secure=True)
    single = [one for name in ("set-up", "products, minimum norm", "products, symmetric") for one in told.of(name)]
    hidden = all(one.verdict == NOT_BY_THIS and "the aggregate only" in one.sentence for one in single)
    left = [name for name in ("sums alone", "lost site", "one row more") if told.of(name)[0].verdict == "computed"]
    said = "the aggregate only" if hidden else "MORE"
    text = f"{len(single)} attacks on single replies: {said}; still computed: {', '.join(left)}"
    what = "audit: a secured run"
    return Row(what, "the aggregate only", text, hidden and len(left) == 3)


def _rare(data: Any) -> Row:
    """Runs of gram on rare and some common variants, one for each continent's populations; and all people together."""
    X, continents, populations = data.X.astype(float), np.asarray(data.y), np.asarray(data.groups["population"])
    right = wrong = 0
    people: set[int] = set()
    for name in np.unique(continents):
        part = np.flatnonzero(continents == name)
        copies = np.minimum(X[part].sum(axis=0), 2 * len(part) - X[part].sum(axis=0))
        rare = np.flatnonzero((copies > 0) & (copies <= 2))
        kept = np.concatenate([rare, np.flatnonzero(copies > 20)[:OTHERS]])
        found = _rows_from_sums(X[np.ix_(part, kept)], populations[part], len(rare))
        known = {row.tobytes(): int(i) for row, i in zip(X[np.ix_(part, kept)], part, strict=True)}
        right += sum(row.tobytes() in known for row in found.values())
        wrong += sum(row.tobytes() not in known for row in found.values())
        people |= {known[row.tobytes()] for row in found.values() if row.tobytes() in known}
    copies = np.minimum(X.sum(axis=0), 2 * len(X) - X.sum(axis=0))
    text = f"{right} rows of {len(people)} people, {wrong} wrong; a run of all {len(X)} people would give none by this attack: "
    text += f"every variant has {int(copies.min())} copies or more, so nobody carries one alone"
    what = f"audit: rows in columns of the pooled scatter, 1000 Genomes, {len(np.unique(continents))} runs, one a continent"
    return Row(what, ">= 100 rows", text, right >= 100 and wrong == 0)


def _rows_from_sums(X: Any, populations: Any, rare: int) -> dict[int, Any]:
    """Rare features are the first ones; what is attacked are sums over sites of a real run."""
    from eigenpact.privacy.audit import totals_of

    sites = {str(name): X[populations == name] for name in np.unique(populations)}
    totals = totals_of(simulate(ep.FederatedPCA(2, solver="gram"), sites).heard, X.shape[1])
    assert totals.scatter is not None
    moments = totals.scatter[:, :rare] + totals.n * np.outer(totals.mean, totals.mean[:rare])
    return rare_rows(totals.n, totals.n * totals.mean, moments, list(range(rare)))


def _members(data: Any) -> Row:
    """Half of a population is behind the mean; the other half are the outsiders, and its continent the reference."""
    X, continents, populations = data.X.astype(float), np.asarray(data.y), np.asarray(data.groups["population"])
    areas = {}
    for name in ("GBR", "FIN", "YRI", "JPT"):
        own = np.random.default_rng(0).permutation(np.flatnonzero(populations == name))
        inside, outside = X[own[: len(own) // 2]], X[own[len(own) // 2 :]]
        reference = X[(continents == continents[own[0]]) & (populations != name)]
        facts = inside.mean(axis=0), reference.mean(axis=0), reference.std(axis=0)
        areas[f"{name} ({len(inside)})"] = auc(membership(inside, *facts), membership(outside, *facts))
    text = ", ".join(f"{name} {area:.4f}" for name, area in areas.items())
    return Row("audit: membership from the mean of half a population, area under the curve", "reported", text, True)

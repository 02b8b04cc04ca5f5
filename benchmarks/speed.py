"""Speed beside scikit-learn: a fit of ours and one of its, in turn, five times; ratios of the medians of wall and processor time.

Run as a table with ``make results FAMILY=speed`` or, with its page, ``make bench``.  A ratio is ours over theirs: below 1, ours
is faster.  "Sine" is that of the largest angle to the exact components, which numpy's eigenvectors of the scatter matrix in
float64 give.  Peers are scikit-learn's solvers; where a row says "fastest", that of those which reach a sine of 1e-6.  Rows are
judged by the wall time.  On a machine that does other work, too, the ratio of processor times tells more.

The share of the ceiling is the rate of one product with a block of k + 4 = 14 columns over that of a copy of the rows (memory),
or of a product of two square matrices (GEMM), whichever bounds it, on one thread.
"""

from __future__ import annotations

import os
import statistics
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse
from sklearn.decomposition import PCA

import eigenpact as ep
from benchmarks.table import Row
from eigenpact.numerics.blas import limited_blas
from eigenpact.numerics.linalg import random_orthonormal
from eigenpact.numerics.metrics import largest_sine
from eigenpact.numerics.site_rows import SiteRows, own_mean

REPEATS = {"small": 3, "paper": 5}
SHRINK = {"small": 10, "paper": 1}
"""By how much the small size has fewer rows."""

EQUAL = 1e-6
"""The sine up to which a peer counts as equally accurate."""


def rows(size: str) -> Iterator[Row]:
    """The table."""
    yield from _mnist(size)
    yield _tall(size)
    yield from _wide(size)
    yield _sparse(size)
    yield from _genomes(size)
    yield from _ceiling(size)


def in_turn(runs: Mapping[str, Callable[[], Any]], repeats: int) -> tuple[dict[str, tuple[float, float]], dict[str, Any]]:
    """Medians of wall and processor seconds of each, run one after the other ``repeats`` times; and what they gave last."""
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    found: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(repeats):
            for name, run in runs.items():
                wall, cpu = time.perf_counter(), time.process_time()
                found[name] = run()
                seconds[name].append((time.perf_counter() - wall, time.process_time() - cpu))
    return {name: tuple(map(statistics.median, zip(*s, strict=True))) for name, s in seconds.items()}, found  # type: ignore[misc]


def _row(what: str, bar: float, ours: str, peer: str, seconds: Mapping[str, tuple[float, float]], told: str, good: bool) -> Row:
    wall, cpu = (a / b for a, b in zip(seconds[ours], seconds[peer], strict=True))
    load = os.getloadavg()[0]
    reached = f"{wall:.2f} (processor time {cpu:.2f}): {seconds[ours][0]:.2f} s and {seconds[peer][0]:.2f} s by {peer}; {told}"
    met = wall <= bar and good
    why = "" if met else f"measured at a load of {load:.1f} on {os.cpu_count()} cores"
    return Row(what, f"<= {bar:g}", reached, met, why)


def _exact(X: Any, k: int) -> Any:
    Y = np.asarray(X, dtype=np.float64) - np.mean(X, axis=0, dtype=np.float64)
    d = X.shape[1]
    if len(Y) < d:
        left = scipy.linalg.eigh(Y @ Y.T, subset_by_index=(len(Y) - k, len(Y) - 1))[1]
        return np.linalg.qr(Y.T @ left)[0]
    return scipy.linalg.eigh(Y.T @ Y, subset_by_index=(d - k, d - 1))[1]


def _sine(pca: Any, exact: Any) -> float:
    return largest_sine(np.asarray(pca.components_, dtype=np.float64).T, exact)


def _parts(X: Any, sites: int) -> dict[str, Any]:
    return {f"site{i:02d}": part for i, part in enumerate(np.array_split(X, sites))}


def _sklearn(X: Any, k: int, solvers: tuple[str, ...]) -> dict[str, Callable[[], Any]]:
    return {solver: lambda solver=solver: PCA(k, svd_solver=solver, random_state=0).fit(X) for solver in solvers}  # type: ignore[misc]


def _ours(sites: Any, k: int, solver: str) -> Callable[[], Any]:
    return lambda: ep.FederatedPCA(k, solver=solver, random_state=0).fit(sites)


def _fastest(seconds: Mapping[str, tuple[float, float]], found: Mapping[str, Any], names: tuple[str, ...], exact: Any) -> str:
    """The peer with the least wall time among those that are as accurate."""
    return min((name for name in names if _sine(found[name], exact) <= EQUAL), key=lambda name: seconds[name][0])


def _mnist(size: str) -> Iterator[Row]:
    try:
        X = ep.datasets.mnist().X[: 60_000 // SHRINK[size]].astype(np.float64)
    except ep.errors.EigenpactError:
        yield Row("MNIST", "", "", None, "MNIST is not here; set EIGENPACT_DATA")
        return
    exact, solvers = _exact(X, 10), ("randomized", "covariance_eigh", "arpack")
    sixteen = _parts(X, 16)
    runs = _sklearn(X, 10, solvers) | {
        "krylov": _ours(sixteen, 10, "krylov"),
        "auto": _ours(sixteen, 10, "auto"),
        "one site": _ours({"A": X}, 10, "auto"),
    }
    seconds, found = in_turn(runs, REPEATS[size])
    shape, sine = f"MNIST {len(X)} x 784 float64, k=10", {name: _sine(pca, exact) for name, pca in found.items()}
    told = f"sines {sine['krylov']:.0e} and {sine['randomized']:.0e}; {found['krylov'].n_rounds_} rounds"
    yield _row(f"{shape}, 16 sites, krylov", 0.3, "krylov", "randomized", seconds, told, sine["krylov"] <= 1e-8)
    fastest = _fastest(seconds, found, solvers, exact)
    for name, what in (("auto", "16 sites, auto, fastest"), ("one site", "one site, auto, fastest")):
        told = f"sines {sine[name]:.0e} and {sine[fastest]:.0e}; auto took {found[name].solver_}"
        yield _row(f"{shape}, {what}", 1.0, name, fastest, seconds, told, sine[name] <= 1e-8)


def _tall(size: str) -> Row:
    n = 1_000_000 // SHRINK[size]
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 200), dtype=np.float32) * np.float32(0.97) ** np.arange(200, dtype=np.float32) + np.float32(1)
    exact = _exact(X, 10)
    runs = {"auto": _ours(_parts(X, 4), 10, "auto"), **_sklearn(X, 10, ("covariance_eigh",))}
    seconds, found = in_turn(runs, REPEATS[size])
    sine = _sine(found["auto"], exact)
    told = f"sines {sine:.0e} and {_sine(found['covariance_eigh'], exact):.0e}; auto took {found['auto'].solver_}"
    return _row(f"{n} x 200 float32, k=10, 4 sites, auto", 1.0, "auto", "covariance_eigh", seconds, told, sine <= EQUAL)


def _wide(size: str) -> Iterator[Row]:
    n, d = 20_000 // SHRINK[size], 6000
    rng = np.random.default_rng(0)
    low = rng.standard_normal((n, 40), dtype=np.float32) * np.float32(0.93) ** np.arange(40, dtype=np.float32)
    X = 3 * low @ rng.standard_normal((40, d), dtype=np.float32) + rng.standard_normal((n, d), dtype=np.float32)
    exact, sites = _exact(X, 20), _parts(X, 8)
    runs = {"krylov": _ours(sites, 20, "krylov"), **_sklearn(X, 20, ("randomized",))}
    seconds, found = in_turn(runs, REPEATS[size])
    sine = _sine(found["krylov"], exact)
    told = f"sines {sine:.0e} and {_sine(found['randomized'], exact):.0e}; {found['krylov'].n_rounds_} rounds"
    what = f"{n} x {d} float32, k=20, 8 sites, krylov"
    yield _row(what, 0.5, "krylov", "randomized", seconds, told, sine <= 1e-7)
    yield _memory(what, sites, 20, X.nbytes)


def _memory(what: str, sites: Any, k: int, size: int) -> Row:
    tracemalloc.start()
    ep.FederatedPCA(k, solver="krylov", random_state=0).fit(sites)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    share = peak / size
    why = "" if share <= 0.1 else "the coordinator keeps all blocks and their products, for an answer that proves itself"
    name = f"{what}: memory beside the rows, of what Python and numpy allot"
    return Row(name, "<= 10 %", f"{100 * share:.1f} %", share <= 0.1, why)


def _sparse(size: str) -> Row:
    n, d = 300_000 // SHRINK[size], 20_000
    rng = np.random.default_rng(0)
    X = scipy.sparse.random_array(
        (n, d), density=1e-3, format="csr", rng=rng, data_sampler=lambda size: rng.gamma(2.0, size=size)
    )
    X = (X @ scipy.sparse.diags_array(0.9995 ** np.arange(d) + 0.05)).tocsr()
    cuts = np.linspace(0, n, 5).astype(int)
    sites = {f"site{i}": X[a:b] for i, (a, b) in enumerate(pairwise(cuts))}
    runs = {"krylov": _ours(sites, 20, "krylov"), **_sklearn(X, 20, ("arpack",))}
    seconds, found = in_turn(runs, min(3, REPEATS[size]))
    sine = _sine(found["krylov"], np.asarray(found["arpack"].components_).T)
    told = f"sine between both {sine:.0e}; {found['krylov'].n_rounds_} rounds"
    return _row(
        f"sparse {n} x {d}, density 1e-3, k=20, centred, 4 sites, krylov", 0.5, "krylov", "arpack", seconds, told, sine <= 1e-6
    )


def _genomes(size: str) -> Iterator[Row]:
    try:
        data = ep.datasets.genomes()
    except ep.errors.EigenpactError:
        yield Row("1000 Genomes", "", "", None, "not here; set EIGENPACT_DATA")
        return
    X = np.ascontiguousarray(data.X[:, :: SHRINK[size]]).astype(np.uint8)
    single, solvers = X.astype(np.float32), ("randomized", "covariance_eigh", "arpack", "full")
    exact, sites = _exact(X, 10), ep.datasets.partition.by_label(X, data.y)
    seconds, found = in_turn({"auto": _ours(sites, 10, "auto")} | _sklearn(single, 10, solvers[:1] + solvers[2:3]), REPEATS[size])
    fastest = min(found.keys() - {"auto"}, key=lambda name: seconds[name][0])
    sine = _sine(found["auto"], exact)
    told = f"sines {sine:.0e} and {_sine(found[fastest], exact):.0e}; auto took {found['auto'].solver_}"
    what = f"1000 Genomes {X.shape[0]} x {X.shape[1]} uint8, k=10, {len(sites)} sites, auto"
    yield _row(what, 0.5, "auto", fastest, seconds, told, sine <= 1e-7)
    yield _memory(what, sites, 10, X.nbytes)


def _ceiling(size: str) -> Iterator[Row]:
    """Rates of a site's product beside what the machine does at most."""
    X = np.random.default_rng(0).normal(size=(100_000 // SHRINK[size], 784))
    with limited_blas(1):
        yield from (_share(X.astype(dtype), 14, 2 * REPEATS[size] + 1) for dtype in (np.float64, np.float32))


def _share(X: Any, k: int, repeats: int) -> Row:
    (n, d), Z = X.shape, random_orthonormal(X.shape[1], k, 0)
    own, within = own_mean(X)
    site, copy = SiteRows(X, own[0], None, own, within), np.empty_like(X)
    square = np.random.default_rng(1).normal(size=(1500, 1500)).astype(X.dtype)
    runs = {"product": lambda: site.scatter_action(Z), "copy": lambda: np.copyto(copy, X), "gemm": lambda: square @ square}
    seconds = in_turn(runs, repeats)[0]
    product, moved, gemm = (seconds[name][1] for name in runs)
    compute, memory = 4.0 * n * d * k / (2.0 * 1500**3 / gemm), moved / 2  # rows are read once; a copy also writes them
    share = max(compute, memory) / product
    bound = "GEMM" if compute > memory else "memory"
    told = f"{100 * share:.0f} %: {4e-9 * n * d * k / product:.0f} of {2e-9 * 1500**3 / gemm:.0f} Gflop/s"
    what = f"share of the ceiling, {n} x {d} {X.dtype}, {k} columns, bound by {bound}"
    why = "" if share >= 0.7 else "products are made in float64, and narrow ones do not reach the rate of square ones"
    return Row(what, ">= 70 %", told, share >= 0.7, why)

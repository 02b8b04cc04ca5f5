"""Speed beside other packages: fits of ours and theirs, in turn, five times; ratios of medians of wall and processor time.

Run as a table with ``make results FAMILY=speed`` or, with its page, ``make bench``; a part alone with ``python -m
benchmarks.peers``, ``benchmarks.growth`` or ``benchmarks.links``.  A ratio is ours over theirs: below 1, ours is faster.  Runs of
more than 8 s are run twice.  "Sine" is that of the largest angle to the exact components, which numpy's eigenvectors of the
scatter matrix in float64 give.  Where a row says "fastest", the peer is the fastest of scikit-learn's and, where it is installed,
scikit-learn-intelex's solvers which reach a sine of 1e-6.  Rows are judged by the wall time.  On a machine that does other work,
too, the ratio of processor times tells more.  "Memory beside the rows" is the process's highest memory during a fit less that
before it.

The share of the ceiling is the rate of one product with a block of k + 4 = 14 columns over that of a copy of the rows (memory),
or of arithmetic, whichever bounds it, on one thread.  The rate of arithmetic is that of a product of two square matrices by BLAS
(GEMM) or of our compiled scatter matrix, whichever is faster: BLAS may not know the processor, and not use all of it.

GraphKernelPCA runs all its nodes in one process here, KernelPCA has all rows in one place and takes arpack.  "Choice 1" is the
personalized paper's own step.  Slopes of growth are fitted by least squares to logarithms of processor seconds; sizes "not
counted" are those at which a fit takes less than ten times as long as one of 800 rows, because of what does not grow.  The
coordinator's memory is what tracemalloc sees of a driver whose replies come from one real site, under as many names.

Times over links are modelled: rounds x latency + bytes / bandwidth + arithmetic, with rounds and bytes of the ledger of a real
fit and the seconds of its history.  Latency is that of a message and its reply; all sites share the coordinator's link; that of
"loopback" is measured.  "Real delay" is an engine whose messages wait that long.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse

import eigenpact as ep
from benchmarks import growth, links, peers
from benchmarks.peers import intelex_runs, sklearn_runs
from benchmarks.table import Row
from benchmarks.timing import REPEATS, Spent, exact_basis, in_turn, megabytes, parts_of, ratio_row, sine_to
from eigenpact.numerics.blas import limited_blas
from eigenpact.numerics.compiled_triangle import compiled_triangle
from eigenpact.numerics.linalg import random_orthonormal
from eigenpact.numerics.machine_code import processor
from eigenpact.numerics.site_rows import SiteRows, own_mean

SHRINK = {"small": 10, "paper": 1}
"""By how much the small size has fewer rows."""

NO_ROOM = "10 components and a block of 11 with its product take 24 % already: 32 columns of doubles beside 1092 rows of bytes"
"""Why genomes take more memory than their bar, whoever fits them."""

CACHED = 3000
"""Rows of which the rate of scatter matrices is measured."""

EQUAL = 1e-6
"""The sine up to which a peer counts as equally accurate."""


def rows(size: str) -> Iterator[Row]:
    """The table."""
    yield from _mnist(size)
    yield from _tall(size)
    yield from _wide(size)
    yield _sparse(size)
    yield from _genomes(size)
    yield from _ceiling(size)
    for part in (peers, growth, links):
        yield from part.rows(size)


def _ours(sites: Any, k: int, solver: str, tol: float | None = None) -> Callable[[], Any]:
    return lambda: ep.FederatedPCA(k, solver=solver, tol=tol, random_state=0).fit(sites)


def _fastest(seconds: Mapping[str, Spent], found: Mapping[str, Any], names: tuple[str, ...], exact: Any) -> str:
    """The peer with the least wall time among those that are as accurate."""
    return min((name for name in names if sine_to(found[name], exact) <= EQUAL), key=lambda name: seconds[name][0])


def _mnist(size: str) -> Iterator[Row]:
    try:
        X = ep.datasets.mnist().X[: 60_000 // SHRINK[size]].astype(np.float64)
    except ep.errors.EigenpactError:
        yield Row("MNIST", "", "", None, "MNIST is not here; set EIGENPACT_DATA")
        return
    exact, solvers = exact_basis(X, 10), ("randomized", "covariance_eigh", "arpack")
    sixteen = parts_of(X, 16)
    intelex = intelex_runs(X, 10, solvers)
    runs = (
        sklearn_runs(X, 10, solvers)
        | intelex
        | {
            "krylov": _ours(sixteen, 10, "krylov"),
            "auto": _ours(sixteen, 10, "auto"),
            "one site": _ours({"A": X}, 10, "auto"),
        }
    )
    seconds, found = in_turn(runs, REPEATS[size])
    shape, sine = f"MNIST {len(X)} x 784 float64, k=10", {name: sine_to(pca, exact) for name, pca in found.items()}
    told = f"sines {sine['krylov']:.0e} and {sine['randomized']:.0e}; {found['krylov'].n_rounds_} rounds"
    yield ratio_row(f"{shape}, 16 sites, krylov", 0.3, "krylov", "randomized", seconds, told, sine["krylov"] <= 1e-8)
    fastest = _fastest(seconds, found, (*solvers, *intelex), exact)
    for name, what in (("auto", "16 sites, auto, fastest"), ("one site", "one site, auto, fastest")):
        told = f"sines {sine[name]:.0e} and {sine[fastest]:.0e}; auto took {found[name].solver_}"
        yield ratio_row(f"{shape}, {what}", 1.0, name, fastest, seconds, told, sine[name] <= 1e-8)


def _tall(size: str) -> Iterator[Row]:
    n = 1_000_000 // SHRINK[size]
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 200), dtype=np.float32) * np.float32(0.97) ** np.arange(200, dtype=np.float32) + np.float32(1)
    exact = exact_basis(X, 10)
    sites = parts_of(X, 4)
    ours = {"auto": _ours(sites, 10, "auto"), "auto, tol=1e-4": _ours(sites, 10, "auto", tol=1e-4)}
    seconds, found = in_turn(ours | sklearn_runs(X, 10, ("covariance_eigh",)), REPEATS[size])
    for name in ours:
        sine = sine_to(found[name], exact)
        told = f"sines {sine:.0e} and {sine_to(found['covariance_eigh'], exact):.0e}; auto took {found[name].solver_}"
        yield ratio_row(f"{n} x 200 float32, k=10, 4 sites, {name}", 1.0, name, "covariance_eigh", seconds, told, sine <= EQUAL)


def _wide(size: str) -> Iterator[Row]:
    n, d = 20_000 // SHRINK[size], 6000
    rng = np.random.default_rng(0)
    low = rng.standard_normal((n, 40), dtype=np.float32) * np.float32(0.93) ** np.arange(40, dtype=np.float32)
    X = 3 * low @ rng.standard_normal((40, d), dtype=np.float32) + rng.standard_normal((n, d), dtype=np.float32)
    exact, sites = exact_basis(X, 20), parts_of(X, 8)
    runs = {"krylov": _ours(sites, 20, "krylov"), **sklearn_runs(X, 20, ("randomized",))}
    seconds, found = in_turn(runs, REPEATS[size])
    sine = sine_to(found["krylov"], exact)
    told = f"sines {sine:.0e} and {sine_to(found['randomized'], exact):.0e}; {found['krylov'].n_rounds_} rounds"
    what = f"{n} x {d} float32, k=20, 8 sites, krylov"
    yield ratio_row(what, 0.5, "krylov", "randomized", seconds, told, sine <= 1e-7)
    yield _memory(what, _allotted(runs["krylov"]), X.nbytes)


def _allotted(fit: Callable[[], Any]) -> int:
    """Bytes that Python and numpy allot at most while a fit runs."""
    tracemalloc.start()
    fit()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def _memory(what: str, peak: int, size: int, told: str = "", why: str = "") -> Row:
    share = peak / size
    name = f"{what}: memory beside the rows, of what Python and numpy allot"
    return Row(name, "<= 10 %", f"{100 * share:.1f} %{told}", share <= 0.1, "" if share <= 0.1 else why)


def _sparse(size: str) -> Row:
    n, d = 300_000 // SHRINK[size], 20_000
    rng = np.random.default_rng(0)
    X = scipy.sparse.random_array(
        (n, d), density=1e-3, format="csr", rng=rng, data_sampler=lambda size: rng.gamma(2.0, size=size)
    )
    X = (X @ scipy.sparse.diags_array(0.9995 ** np.arange(d) + 0.05)).tocsr()
    cuts = np.linspace(0, n, 5).astype(int)
    sites = {f"site{i}": X[a:b] for i, (a, b) in enumerate(pairwise(cuts))}
    runs = {"krylov": _ours(sites, 20, "krylov"), **sklearn_runs(X, 20, ("arpack",))}
    seconds, found = in_turn(runs, min(3, REPEATS[size]))
    sine = sine_to(found["krylov"], np.asarray(found["arpack"].components_).T)
    told = f"sine between both {sine:.0e}; {found['krylov'].n_rounds_} rounds"
    return ratio_row(
        f"sparse {n} x {d}, density 1e-3, k=20, centred, 4 sites, krylov", 0.5, "krylov", "arpack", seconds, told, sine <= 1e-6
    )


def _genomes(size: str) -> Iterator[Row]:
    try:
        data = ep.datasets.genomes()
    except ep.errors.EigenpactError:
        yield Row("1000 Genomes", "", "", None, "not here; set EIGENPACT_DATA")
        return
    X = np.ascontiguousarray(data.X[:, :: SHRINK[size]]).astype(np.uint8)
    single = X.astype(np.float32)
    exact, sites = exact_basis(X, 10), ep.datasets.partition.by_label(X, data.y)
    ours = {"auto": _ours(sites, 10, "auto"), "one site": _ours({"A": X}, 10, "auto")}
    theirs = sklearn_runs(single, 10, ("randomized", "arpack"))
    seconds, found = in_turn(ours | theirs, REPEATS[size])
    fastest = min(theirs, key=lambda name: seconds[name].wall)
    least = min(_allotted(run) for run in theirs.values()) + single.nbytes
    for name, held in (("one site", "one site"), ("auto", f"{len(sites)} sites")):
        sine = sine_to(found[name], exact)
        told = f"sines {sine:.0e} and {sine_to(found[fastest], exact):.0e}; auto took {found[name].solver_}"
        what = f"1000 Genomes {X.shape[0]} x {X.shape[1]} uint8, k=10, {held}, auto"
        yield ratio_row(what, 0.5, name, fastest, seconds, told, sine <= 1e-7)
        peak = _allotted(ours[name])
        told = f"; with the rows {megabytes(peak + X.nbytes)} in all, {megabytes(least)} by scikit-learn's least"
        yield _memory(what, peak, X.nbytes, told, NO_ROOM)


def _ceiling(size: str) -> Iterator[Row]:
    """Rates of a site's product beside what the machine does at most."""
    X = np.random.default_rng(0).normal(size=(100_000 // SHRINK[size], 784))
    with limited_blas(1):
        yield _share(X, 14, 2 * REPEATS[size] + 1)
        single = X.astype(np.float32)
        yield from (_share(single, k, 2 * REPEATS[size] + 1) for k in (14, 54))


def _share(X: Any, k: int, repeats: int) -> Row:
    (n, d), Z = X.shape, random_orthonormal(X.shape[1], k, 0)
    own, within = own_mean(X)
    site, copy = SiteRows(X, own[0], None, own, within), np.empty_like(X)
    square = np.random.default_rng(1).normal(size=(1500, 1500)).astype(X.dtype)
    ours = site.scatter_action if X.dtype == np.float64 else site.single_action
    runs = {"product": lambda: ours(Z), "copy": lambda: np.copyto(copy, X), "gemm": lambda: square @ square}
    if processor() is not None:
        some = X[:CACHED]
        runs["scatter"] = lambda: compiled_triangle(iter([some]), d, X.dtype)
    seconds = in_turn(runs, repeats)[0]
    product, moved, gemm = (seconds[name][1] for name in ("product", "copy", "gemm"))
    by_blas = 2.0 * 1500**3 / gemm
    rate = max(by_blas, CACHED * d**2 / seconds["scatter"][1]) if "scatter" in runs else by_blas
    compute, memory = 4.0 * n * d * k / rate, moved / 2  # rows are read once; a copy also writes them
    share = max(compute, memory) / product
    bound = "arithmetic" if compute > memory else "memory"
    told = f"{100 * share:.0f} %: {4e-9 * n * d * k / product:.0f} of {1e-9 * rate:.0f} Gflop/s; BLAS makes {1e-9 * by_blas:.0f}"
    what = f"share of the ceiling, {n} x {d} {X.dtype}, {k} columns, bound by {bound}"
    why = "" if share >= 0.7 else "narrow products run below the rate of squares, and rows come from memory"
    return Row(what, ">= 70 %", told, share >= 0.7, why)

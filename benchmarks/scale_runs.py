"""What ``benchmarks/scale.py`` measures, each in a process of its own: ``python -m benchmarks.scale_runs NAME '{"n": 1000}'``.

The last line that is printed is what was found, as JSON.  Peak memory is the largest resident set of the process.
"""

from __future__ import annotations

import argparse
import inspect
import json
import time
import tracemalloc
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse

import eigenpact as ep
from benchmarks.alike import Alike
from eigenpact.algorithms.consensus.krylov import Krylov
from eigenpact.algorithms.setup import Problem, agree
from eigenpact.numerics.metrics import largest_sine
from eigenpact.numerics.rows import Rows, block_rows
from eigenpact.numerics.sources import as_rows, pieces
from eigenpact.runtime import Driver, Request, SiteServer, local

COMPONENTS, WIDTH = 5, 9
"""Wanted components, and the columns of a block that finds them."""

BASE = 20_000
"""Rows that are repeated in a large file: its components are theirs."""


def peak() -> int:
    """The largest resident set of this process, in bytes, so far or since :func:`forget_peak`."""
    return _status("VmHWM")


def forget_peak() -> int:
    """Let the peak be what is resident now, in bytes."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    return _status("VmRSS")


def _status(name: str) -> int:
    with open("/proc/self/status") as file:
        return 1024 * int(next(line for line in file if line.startswith(name)).split()[1])


def some_rows(n: int, d: int, seed: int = 0) -> Any:
    """Rows (n x d) in single precision: eight directions that stand out, and noise."""
    rng = np.random.default_rng(seed)
    low = rng.standard_normal((n, 8), dtype=np.float32) * np.float32(0.7) ** np.arange(8, dtype=np.float32)
    X = np.empty((n, d), dtype=np.float32)
    for first in range(0, d, 1 << 16):
        part = X[:, first : first + (1 << 16)]
        part[:] = 3 * low @ rng.standard_normal((8, part.shape[1]), dtype=np.float32)
        part += rng.standard_normal(part.shape, dtype=np.float32)
    return X


def in_sites(X: Any, sites: int) -> dict[str, Any]:
    """Rows in equal parts."""
    cuts = np.linspace(0, X.shape[0], sites + 1).astype(int)
    return {f"s{i:07d}": X[cuts[i] : cuts[i + 1]] for i in range(sites)}


def exact(X: Any) -> Any:
    """The leading directions (d x k) of centred rows, from their products with each other or from the scatter matrix."""
    n, d = X.shape
    sparse = scipy.sparse.issparse(X)
    mean = np.asarray(X.mean(axis=0, dtype=np.float64)).ravel()
    if n > d:
        Y = X - mean
        return scipy.linalg.eigh(Y.T @ Y, subset_by_index=(d - COMPONENTS, d - 1))[1]
    inner = np.zeros((n, n))
    if sparse:
        X = X.astype(np.float64)
        along = X @ mean
        inner = (X @ X.T).toarray() - along[:, None] - along + mean @ mean
    else:
        for first in range(0, d, 1 << 14):
            Y = X[:, first : first + (1 << 14)] - mean[first : first + (1 << 14)]
            inner += Y @ Y.T
    left = scipy.linalg.eigh(inner, subset_by_index=(n - COMPONENTS, n - 1))[1]
    left -= left.mean(axis=0)
    return np.linalg.qr(X.T @ left)[0]


def fitted(X: Any, solver: Any = "krylov", **more: Any) -> tuple[ep.FederatedPCA, float, float]:
    """A fit, and its wall and processor seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    pca = ep.FederatedPCA(COMPONENTS, solver=solver, random_state=0).fit(X, **more)
    return pca, time.perf_counter() - wall, time.process_time() - cpu


def warm_up() -> None:
    """A small fit, so that what is imported at first is not counted."""
    fitted(in_sites(some_rows(100, 20), 3))


# -- a file larger than memory ----------------------------------------------------------------------


def write(path: str, copies: int, d: int) -> dict[str, Any]:
    """A .npy file of so many copies of ``BASE`` rows."""
    X = some_rows(BASE, d)
    out = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(copies * BASE, d))
    for i in range(copies):
        out[i * BASE : (i + 1) * BASE] = X
    out.flush()
    return {"bytes": int(out.nbytes)}


def out_of_core(path: str) -> dict[str, Any]:
    """A fit of a memory map as one site; then one pass over the file: reading alone, a product alone, and both."""
    X = np.load(path, mmap_mode="r")
    pca, wall, cpu = fitted({"A": X})
    most = peak()
    sine = largest_sine(pca.components_.T.astype(np.float64), exact(np.array(X[:BASE])))
    Z = np.linalg.qr(np.random.default_rng(0).normal(size=(X.shape[1], WIDTH)))[0]
    mean, step = pca.mean_.astype(np.float64), block_rows(X.shape[1])
    held, source = Rows(np.array(X[:BASE]), mean), as_rows(X)
    with open(path, "rb", buffering=0) as file:
        bare = _seconds(lambda: _read_all(file))
    reading = _seconds(lambda: [None for _ in pieces(source, step)])
    computing = _seconds(lambda: held.scatter_action(Z)) * (X.shape[0] / BASE)
    both = _seconds(lambda: Rows(X, mean).scatter_action(Z))
    facts = {"peak": most, "wall": wall, "cpu": cpu, "rounds": pca.n_rounds_, "sine": sine, "bytes": int(X.nbytes)}
    return facts | {"bare": bare, "reading": reading, "computing": computing, "both": both}


def _read_all(file: Any) -> None:
    piece = bytearray(1 << 25)
    while file.readinto(piece):
        pass


def _seconds(run: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


# -- many features ----------------------------------------------------------------------------------


def wide(n: int, d: int, sites: int, density: float = 0.0, max_blocks: int = 0) -> dict[str, Any]:
    """A fit of few rows with many features; what it takes beside the rows, in columns of d doubles."""
    if density:
        rng = np.random.default_rng(0)
        X: Any = scipy.sparse.random_array((n, d), density=density, format="csr", rng=rng)
        X = (scipy.sparse.diags_array(0.97 ** np.arange(n)) @ X).tocsr()
    else:
        X = some_rows(n, d)
    truth, parts = exact(X), in_sites(X, sites)
    warm_up()
    before = forget_peak()
    pca, wall, cpu = fitted(parts, ep.solvers.Krylov(max_blocks=max_blocks) if max_blocks else "krylov")
    sine = largest_sine(pca.components_.T.astype(np.float64), truth)
    facts = {"wall": wall, "cpu": cpu, "rounds": pca.n_rounds_, "converged": bool(pca.converged_), "sine": sine}
    return facts | {"columns": (peak() - before) / (8 * d), "peak": peak()}


# -- many sites -------------------------------------------------------------------------------------


def many_sites(sites: int, rows: int, d: int, labels: bool = False) -> dict[str, Any]:
    """A fit of so many sites in one process, as a dictionary or as one table with a label per row."""
    X = some_rows(sites * rows, d).astype(np.float64)
    warm_up()
    if labels:
        pca, wall, cpu = fitted(X, sites=np.repeat([f"s{i:07d}" for i in range(sites)], rows))
    else:
        pca, wall, cpu = fitted(in_sites(X, sites))
    sine = largest_sine(pca.components_.T, exact(X))
    rounds = {"rounds": pca.n_rounds_, "setup": pca.n_setup_rounds_, "messages": len(pca.ledger_)}
    moved = {"up": pca.ledger_.bytes_up, "down": pca.ledger_.bytes_down}
    return {"wall": wall, "cpu": cpu, "sine": sine, "peak": peak(), **rounds, **moved}


def coordinator(sites: int, rows: int, d: int, trace: bool) -> dict[str, Any]:
    """A run over so many sites that cost nothing: seconds, or with ``trace`` the bytes that the coordinator allots at most."""

    async def program(start: Any, state: Any) -> Any:
        setup = await agree(Problem(COMPONENTS))
        return await Krylov().fit(setup, start=start, state=state)

    connection = Alike(sites, some_rows(rows, d).astype(np.float64))
    if trace:
        tracemalloc.start()
    driver = Driver(connection)
    cpu = time.process_time()
    driver.run(program)
    cpu = time.process_time() - cpu - connection.seconds
    most = tracemalloc.get_traced_memory()[1] if trace else 0
    return {"cpu": cpu, "steps": connection.replies, "most": most, "site": connection.seconds / connection.replies}


@local(takes={}, sends={"one": ""}, bound="count")
def nothing(site: Any) -> Any:
    """A local function that does nothing."""
    return np.int64(site.min_rows)


def serving(repeats: int, d: int) -> dict[str, Any]:
    """Seconds that a site's server takes for a request whose function does nothing."""
    server = SiteServer("A", some_rows(20, d).astype(np.float64))
    begin = time.process_time()
    for step in range(1, repeats + 1):
        server.execute(Request("run", 0, step, "sum", nothing.name, ()), step - 1)
    return {"request": (time.process_time() - begin) / repeats}


# -- Dask -------------------------------------------------------------------------------------------


def dask_blocks(n: int, d: int, blocks: int, workers: int) -> dict[str, Any]:
    """A fit of a dask array with so many blocks on a few workers, beside one of the same rows in this process."""
    import dask.array as da
    import distributed

    X = some_rows(n, d).astype(np.float64)
    quiet = {"threads_per_worker": 1, "host": "127.0.0.1", "dashboard_address": ":0", "scheduler_port": 0}
    with distributed.LocalCluster(n_workers=workers, **quiet) as cluster, distributed.Client(cluster) as client:
        table = client.persist(da.from_array(X, chunks=(-(-n // blocks), d)))
        distributed.wait(table)
        engine = ep.engines.Dask(client)
        ep.FederatedPCA(COMPONENTS, solver="krylov", engine=engine, random_state=0).fit(table)  # workers import what they need
        begin = time.perf_counter()
        pca = ep.FederatedPCA(COMPONENTS, solver="krylov", engine=engine, random_state=0).fit(table)
        wall = time.perf_counter() - begin
    here, one, _ = fitted(in_sites(X, workers))
    sine = largest_sine(pca.components_.T, here.components_.T)
    facts = {"wall": wall, "here": one, "rounds": pca.n_rounds_, "rounds_here": here.n_rounds_}
    return facts | {"sites": len(pca.sites_), "blocks": table.numblocks[0], "sine": sine}


RUNS: Mapping[str, Callable[..., dict[str, Any]]] = {
    run.__name__: run for run in (write, out_of_core, wide, many_sites, coordinator, serving, dask_blocks)
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", choices=RUNS)
    parser.add_argument("options", type=json.loads, help='as JSON, for example \'{"sites": 1000, "rows": 20, "d": 50}\'')
    asked = parser.parse_args()
    try:
        inspect.signature(RUNS[asked.run]).bind(**asked.options)
    except TypeError as error:
        parser.error(f"{asked.run}: {error}")
    print(json.dumps(RUNS[asked.run](**asked.options)))

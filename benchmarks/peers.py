"""Other packages on the same problems: who is faster, by how much, at which accuracy and with how much memory.

Run alone with ``python -m benchmarks.peers --size small|paper``; its rows are part of the table of speed.  PCA: MNIST at 16 sites
(the digits that come with scikit-learn where MNIST is not here), ours by ``solver="auto"``, beside every solver of scikit-learn
and scikit-learn-intelex, IncrementalPCA, dask-ml and scanpy on a Dask array of 16 chunks.  KernelPCA needs a table of rows by
rows, so it is measured on 8000 images.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA, IncrementalPCA, KernelPCA

import eigenpact as ep
from benchmarks.personalized import beside_the_loop
from benchmarks.robust import relative_error, speed_runs
from benchmarks.table import Row, run_alone
from benchmarks.timing import REPEATS, exact_basis, in_turn, megabytes, parts_of, ratio_row, sine_to
from eigenpact.reproduce.kernel import similarity as paper

SITES, COMPONENTS = 16, 10
SOLVERS = ("full", "covariance_eigh", "arpack", "randomized")
INSTALL = "pip install 'eigenpact[bench]'"
ROUNDS = {"small": 200, "paper": 8000}
"""Of the personalized paper's loop at most.  Until its test error is ours it needs thousands; the small form stops it before."""

Runs = dict[str, Callable[[], Any]]


def rows(size: str) -> Iterator[Row]:
    """All rows."""
    yield from _pca(size)
    yield _robust(size)
    yield _personalized(size)
    yield from _kernel(size)


# -- PCA --------------------------------------------------------------------------------------------


def images(size: str) -> tuple[str, Any]:
    """A name, and rows of float64: MNIST, or what comes with scikit-learn."""
    try:
        return "MNIST", ep.datasets.mnist().X[: 2000 if size == "small" else 60_000].astype(np.float64)
    except ep.errors.EigenpactError:
        return "scikit-learn's digits", load_digits().data


def intelex_runs(X: Any, k: int, solvers: tuple[str, ...] = SOLVERS) -> Runs:
    """Fits by scikit-learn-intelex, by name; none where it is not installed."""
    if find_spec("sklearnex") is None:
        return {}
    from sklearnex.decomposition import PCA as Intelex

    return {f"intelex {solver}": lambda s=solver: Intelex(k, svd_solver=s, random_state=0).fit(X) for solver in solvers}  # type: ignore[misc]


def sklearn_runs(X: Any, k: int, solvers: tuple[str, ...] = SOLVERS) -> Runs:
    """Fits by scikit-learn, by solver."""
    return {solver: lambda s=solver: PCA(k, svd_solver=s, random_state=0).fit(X) for solver in solvers}  # type: ignore[misc]


def _dask_runs(X: Any, k: int) -> Runs:
    """Fits on a Dask array of as many chunks as there are sites."""
    runs: Runs = {}
    if find_spec("dask") is None:
        return runs
    import dask.array

    D = dask.array.from_array(X, chunks=(-(-len(X) // SITES), X.shape[1]), name=False)
    if find_spec("dask_ml") is not None:
        from dask_ml.decomposition import PCA as DaskPCA

        for solver in ("tsqr", "randomized"):
            runs[f"dask-ml {solver}"] = lambda s=solver: DaskPCA(k, svd_solver=s, random_state=0).fit(D)  # type: ignore[misc]
    if find_spec("scanpy") is not None:
        runs["scanpy covariance_eigh"] = lambda: _Scanpy(D, k)
    return runs


class _Scanpy:
    """scanpy's PCA of a Dask array; its scores, which it makes when they are asked for, are not."""

    def __init__(self, D: Any, k: int) -> None:
        import anndata
        import scanpy

        cells = anndata.AnnData(D)
        scanpy.pp.pca(cells, n_comps=k, svd_solver="covariance_eigh")
        self.components_ = cells.varm["PCs"].T


def _pca(size: str) -> Iterator[Row]:
    name, X = images(size)
    exact, sites = exact_basis(X, COMPONENTS), parts_of(X, SITES)
    ours: Runs = {"auto": lambda: ep.FederatedPCA(COMPONENTS, random_state=0).fit(sites)}
    theirs = sklearn_runs(X, COMPONENTS) | intelex_runs(X, COMPONENTS) | _dask_runs(X, COMPONENTS)
    theirs["IncrementalPCA"] = lambda: IncrementalPCA(COMPONENTS).fit(X)
    spent, found = in_turn(ours | theirs, REPEATS[size])
    sine = {peer: sine_to(pca, exact) for peer, pca in found.items()}
    what = f"{name} {len(X)} x {X.shape[1]} float64, k={COMPONENTS}, {SITES} sites, auto"
    for peer in theirs:
        memory = f"memory beside the rows {megabytes(spent['auto'].peak)} and {megabytes(spent[peer].peak)}"
        told = f"sines {sine['auto']:.0e} and {sine[peer]:.0e}; {memory}"
        yield ratio_row(f"{what}, beside {_package(peer)}", None, "auto", peer, spent, told)
    for package, module in (("scikit-learn-intelex", "sklearnex"), ("dask-ml", "dask_ml"), ("scanpy", "scanpy")):
        if find_spec(module) is None:
            yield Row(f"{what}, beside {package}", "reported", "", None, INSTALL)


def _package(peer: str) -> str:
    """The package that a run is of, and its release."""
    packages = {"intelex": "scikit-learn-intelex", "dask-ml": "dask-ml", "scanpy": "scanpy"}
    package = packages.get(peer.partition(" ")[0], "scikit-learn")
    return f"{package} {version(package)}{' on Dask' if package == 'scanpy' else ''}"


# -- the other families -----------------------------------------------------------------------------


def _bar(size: str, bar: float) -> float | None:
    """Bars are for the sizes that the issue names; the small form reports."""
    return bar if size == "paper" else None


def _robust(size: str) -> Row:
    n, bar = 1000 if size == "paper" else 200, _bar(size, 0.05)
    what = f"robust, {n} x {n}, rank {n // 100}, 10 % wrong, 10 sites, beside pyrpca's inexact ALM"
    runs, L0 = speed_runs(n)
    if "pyrpca" not in runs:
        return Row(what, f"<= {bar}" if bar else "reported", "", None, INSTALL)
    spent, found = in_turn({name: runs[name] for name in ("ours", "pyrpca")}, REPEATS[size])
    mine, other = (relative_error(found[name], L0) for name in ("ours", "pyrpca"))
    return ratio_row(what, bar, "ours", "pyrpca", spent, f"relative errors {mine:.0e} and {other:.0e}", mine <= other)


def _personalized(size: str) -> Row:
    beside = beside_the_loop(ROUNDS[size], REPEATS[size])
    ended = "where it was stopped" if beside.rounds == ROUNDS[size] else "where it has reached ours"
    told = f"test errors {beside.error:.4f} and {beside.loop_error:.4f} after {beside.rounds} rounds of the loop, {ended}"
    what = "personalized, Table 2's problem, 100 sites, 2 + 10 components, n = 1000, beside the paper's loop (choice 1)"
    return ratio_row(what, _bar(size, 0.05), "ours", "the loop", beside.spent, told, beside.error <= 1.0001 * beside.loop_error)


def _kernel(size: str) -> Iterator[Row]:
    """On the paper's many small nodes and on few large ones."""
    for nodes, count in ((80, 100), (8, 1000)) if size == "paper" else ((20, 20), (8, 50)):
        try:
            dealt = paper.deal(nodes, count, 0, held_out=900)
        except ep.errors.EigenpactError:
            yield Row("GraphKernelPCA beside KernelPCA", "<= 0.1", "", None, "MNIST is not here; set EIGENPACT_DATA")
            return
        yield from _beside_kernel_pca(dealt, size)


def _beside_kernel_pca(dealt: paper.Dealt, size: str) -> Iterator[Row]:
    rows_, new, landmarks = list(dealt.nodes.values()), dealt.held_out[:500], dealt.held_out[500:]
    X, nodes = np.concatenate(rows_), len(rows_)
    runs: Runs = {
        "landmarks": lambda: paper.fitted(dealt.nodes, solver="landmarks", landmarks=landmarks),
        "random-features": lambda: paper.fitted(dealt.nodes, solver="random-features"),
        "KernelPCA": lambda: KernelPCA(1, kernel="rbf", gamma=1 / X.shape[1]).fit(X),
    }
    if nodes > 8:  # a node solves eigenproblems of all its neighbours' rows, which for few large nodes are those of the centre
        runs = {"projection-consensus": lambda: paper.fitted(dealt.nodes)} | runs
    spent, found = in_turn(runs, 3)
    exact = found.pop("KernelPCA").transform(new)[:, 0]
    for solver, pca in found.items():
        seen = [abs(np.corrcoef(pca.transform(new, site=node)[:, 0], exact)[0, 1]) for node in pca.sites_]
        share = spent[solver].cpu / nodes / spent["KernelPCA"].cpu
        told = (
            f"scores of 500 other images correlate by {np.mean(seen):.4f} with its, at the worst node by {min(seen):.4f}; "
            f"a node's share of the processor time is {share:.2g} of its; {pca.n_rounds_} rounds"
        )
        public = f", {len(landmarks)} public images" if solver == "landmarks" else ""
        what = f"GraphKernelPCA, {nodes} nodes of {len(rows_[0])} images in one process, {solver}{public}, beside KernelPCA"
        why = "one process does the work of all nodes and carries their messages"
        yield ratio_row(what, _bar(size, 0.1), solver, "KernelPCA", spent, told, why=why)


if __name__ == "__main__":
    run_alone("peers", __doc__, rows)

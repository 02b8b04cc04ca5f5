"""Sites whose rows lie on a GPU: the same answer as on the CPU, and how long a round takes on either.

Run with ``python -m benchmarks.gpu`` where torch sees a GPU (or with ``--device cpu`` to try the code), or as a table with
``make results FAMILY=gpu``.  A product is Y^T (Y Z) of a site's centred rows Y with a block Z of 20 columns, a site's work in a
round.  Times include the copy of the block to the GPU and of the product back, because only numpy arrays cross the wire; the copy
back waits for the GPU.  "Bare" is torch's X^T (X Z) without centring and copies, in the precision of the rows; ours is float64
for either, or single precision, as with ``tol=1e-4`` or more, where the row says so.  Errors are shares of the product's own
size, beside double precision on the CPU.  The first fit of a process also compiles the kernels, which takes seconds and is not
counted.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import eigenpact as ep
from benchmarks.table import Row, print_rows
from eigenpact.numerics.blas import limited_blas
from eigenpact.numerics.linalg import random_orthonormal
from eigenpact.numerics.metrics import largest_sine
from eigenpact.numerics.site_rows import SiteRows, own_mean

SIZES = {"small": (5_000, 500), "paper": (50_000, 2_000)}
"""Rows of each of two sites, and features."""

FAMILIES: dict[str, Any] = {
    "FederatedPCA, scaled": lambda: ep.FederatedPCA(5, scale="pooled", random_state=0),
    "FederatedPCA, prepared": lambda: ep.FederatedPCA(5, prepare=(ep.prepare.Scale(),), random_state=0),
    'FederatedPCA, missing="em"': lambda: ep.FederatedPCA(5, missing="em", random_state=0),
    "PersonalizedPCA": lambda: ep.PersonalizedPCA(3, 2, random_state=0),
    "RobustPCA": lambda: ep.RobustPCA(5, random_state=0),
    "GraphPCA": lambda: ep.GraphPCA(3, random_state=0),
    "GraphKernelPCA": lambda: ep.GraphKernelPCA(2, solver="random-features", random_state=0),
}
"""Every family: the first and PersonalizedPCA multiply where rows lie, the others copy rows to numpy a few at a time."""

SAME = 1e-8
"""How far answers may be apart."""

SOLVERS: dict[str, Any] = {
    "gram": "gram",
    "krylov": "krylov",
    "krylov, a site as proxy": ep.solvers.Krylov(proxy="A"),
    "krylov, one-shot start": ep.solvers.Krylov(start="one-shot"),
}


LARGE = (982_490, 5_000, 100)
"""Rows, features and components of the problem for which rapids-singlecell publishes 6.88 s."""


def median_seconds(product: Callable[[], Any], repeats: int = 20) -> float:
    """Median time of one product."""
    product()  # warm-up
    seconds = []
    for _ in range(repeats):
        begin = time.perf_counter()
        product()
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)


def measure(device: str, n_rows: int, n_features: int) -> Iterator[Row]:
    """Compare answers, then times, of two sites on the CPU and on the device."""
    import torch

    rng = np.random.default_rng(0)
    spectrum = 1.02 ** -np.arange(n_features)
    sites = {name: rng.normal(size=(n_rows, n_features)) * spectrum + 1 for name in ("A", "B")}
    there = {name: torch.asarray(X, device=device) for name, X in sites.items()}
    for label, solver in SOLVERS.items():
        pcas = [ep.FederatedPCA(10, solver=solver, random_state=0).fit(where) for where in (sites, there)]
        sine = largest_sine(pcas[0].components_.T, pcas[1].components_.T)
        rounds = " and ".join(str(pca.n_rounds_) for pca in pcas)
        yield Row(f"{label}, answers on CPU and {device}", "reported", f"sine between them {sine:.1e}; {rounds} rounds", True)
    yield from families(device)
    yield from products(device, n_rows, n_features)
    yield from several(device, n_rows, n_features)


def products(device: str, n: int, d: int) -> Iterator[Row]:
    """One product of a site's, for both precisions of the rows, and of single precision for those that are, on CPU and device."""
    import torch

    X, Z = np.random.default_rng(2).normal(size=(n, d)) + 1, random_orthonormal(d, 20, seed=0)
    own, within = own_mean(X)
    for name, single, bar in (("float64", False, 0.5), ("float32", True, 0.3), ("float32", False, None)):
        here = X.astype(name)
        there, block = torch.asarray(here, device=device), torch.asarray(Z.astype(name), device=device)

        def bare(there: Any = there, block: Any = block) -> Any:
            found = (there @ block).T @ there
            if device == "cuda":
                torch.cuda.synchronize()
            return found

        with limited_blas(1):  # as at sites
            cpu, gpu = (SiteRows(where, own[0], None, own, within) for where in (here, there))
            ours = (lambda gpu=gpu: gpu.single_action(Z)) if single else (lambda gpu=gpu: gpu.scatter_action(Z))  # type: ignore[misc]
            slow = 1e3 * median_seconds(lambda cpu=cpu: cpu.scatter_action(Z))  # type: ignore[misc]
            ms, plain = 1e3 * median_seconds(ours), 1e3 * median_seconds(bare)
            off = apart(ours(), cpu.scatter_action(Z))
            whole = here.astype(np.float64)
            bare_off = apart(bare().T.cpu().numpy(), whole.T @ (whole @ block.cpu().numpy().astype(np.float64)))
        told = f"{ms:.2f} ms, error {off:.0e}; torch's bare one {plain:.2f} ms, error {bare_off:.0e}; "
        told += f"one core of the CPU {slow:.0f} ms"
        what = f"one product, {n} x {d} {name} by 20 columns, {'in single precision, ' if single else ''}on {device}"
        met = bar is None or ms <= bar
        why = "" if met else "two passes over the rows, the way to the GPU and back, and starting all of it"
        yield Row(what, "reported" if bar is None else f"<= {bar:g} ms", told, met, why)


def apart(one: Any, other: Any) -> float:
    """How far two products are apart, as a share of the second one's size."""
    return float(np.linalg.norm(one - other) / np.linalg.norm(other))


def several(device: str, n: int, d: int) -> Iterator[Row]:
    """As many rounds of one site, and of its rows in four sites, which share the device."""
    import torch

    X = torch.randn(n, d, dtype=torch.float32, device=device, generator=torch.Generator(device=device).manual_seed(0))
    parts = {f"site{i}": X[i * n // 4 : (i + 1) * n // 4] for i in range(4)}
    seconds, rounds = [], 30
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of rounds that are not enough
        for sites in ({"A": X}, parts):
            fit = ep.FederatedPCA(16, solver="subspace", max_rounds=rounds, random_state=0).fit
            seconds.append(median_seconds(lambda sites=sites, fit=fit: fit(sites), repeats=3))  # type: ignore[misc]
    told = f"{1e3 * seconds[0] / rounds:.1f} ms a round, and {1e3 * seconds[1] / rounds:.1f} ms in four sites"
    yield Row(f"{n} x {d} float32 on one {device}, in one site and in four, each with its stream", "reported", told, True)


def large(device: str) -> Iterator[Row]:
    """A fit of nearly a million rows that lie on the device."""
    import torch

    n, d, k = LARGE
    draw = torch.Generator(device=device).manual_seed(0)
    directions = torch.randn(2 * k, d, device=device, generator=draw)
    sizes = torch.arange(1, 2 * k + 1, device=device) ** -0.7
    X = torch.empty(n, d, dtype=torch.float32, device=device)
    for first in range(0, n, 1 << 16):
        part = X[first : first + (1 << 16)]
        scores = torch.randn(len(part), 2 * k, device=device, generator=draw) * sizes
        part[:] = scores @ directions + torch.randn(len(part), d, device=device, generator=draw)
    for solver, bar in (("krylov", 1.0), ("auto", 1.0), ("gram", 2.0)):
        seconds = []
        for _ in range(3):
            begin = time.perf_counter()
            pca = ep.FederatedPCA(k, solver=solver, tol=1e-6, random_state=0).fit({"A": X})
            seconds.append(time.perf_counter() - begin)
        took = statistics.median(seconds)
        told = f"{took:.2f} s; {pca.solver_}, {pca.n_rounds_} rounds, scaled residual {pca.history_[-1].kkt:.0e}"
        why = "" if took <= bar else "most of it is the coordinator's algebra on the CPU"
        what = f"{n} x {d} float32 on {device}, k={k}, {solver} to a scaled residual of 1e-6"
        yield Row(what, f"<= {bar:g} s", told, took <= bar, why)
    yield passing(X, device, k)


def passing(X: Any, device: str, k: int) -> Row:
    """The same rows in the memory of the CPU, of which the device may hold 8 GB at a time, beside all of them on it."""
    here, (n, d) = X.cpu().numpy(), X.shape
    bases: list[Any] = []  # in double precision, which components of rows in single precision are not
    fit = ep.FederatedPCA(k, solver="krylov", random_state=0, callback=lambda record: bases.append(record.basis)).fit
    fit({"A": X})
    there = bases[-1]
    rows, seconds = ep.OnDevice(here, device, memory=8 << 30), []
    for _ in range(2):
        begin = time.perf_counter()
        pca = fit({"A": rows})
        seconds.append(time.perf_counter() - begin)
    passes = pca.n_rounds_ + 3  # one to see that all are finite, two for sums
    sine = largest_sine(there, bases[-1])
    rate = passes * here.nbytes / seconds[-1] / 1e9
    told = f"{seconds[-1]:.1f} s, {rate:.0f} GB/s in {passes} passes; sine {sine:.1e} from the answer for rows on {device}"
    what = f"{n} x {d} float32 in the CPU's memory, passing over {device} in pieces of 1 GB, k={k}, krylov"
    return Row(what, f"sine <= {SAME:g}", told, sine <= SAME)


def families(device: str) -> Iterator[Row]:
    """Every family's answer for rows on the device beside that for numpy's."""
    import torch

    rng = np.random.default_rng(1)
    low = rng.normal(size=(5, 60)) * 1.5 ** -np.arange(5)[:, None]
    sites = {name: rng.normal(size=(400, 5)) @ low + 0.05 * rng.normal(size=(400, 60)) + 1 for name in "ABCD"}
    for i, X in enumerate(sites.values()):  # each has directions of its own
        X[:, 2 * i : 2 * i + 2] += 2 * rng.normal(size=(400, 2))
    there = {name: torch.asarray(X, device=device) for name, X in sites.items()}
    for label, make in FAMILIES.items():
        here, elsewhere = make().fit(sites), make().fit(there)
        answers = [pca.transform(sites["A"]) if "Kernel" in label else pca.components_ for pca in (here, elsewhere)]
        apart = float(np.abs(answers[0] - answers[1]).max())
        yield Row(f"{label}: entries of the answer, CPU and {device}", f"<= {SAME:g} apart", f"{apart:.1e}", apart <= SAME)


def rows(size: str) -> Iterator[Row]:
    """The table, where there is a GPU."""
    if importlib.util.find_spec("torch") is None or not importlib.import_module("torch").cuda.is_available():
        yield Row("answers and times on a GPU", "reported", "", None, "needs torch and a GPU")
        return
    yield from measure("cuda", *SIZES[size])
    if size == "paper":
        yield from large("cuda")


def main() -> None:
    """Print the table for any device."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rows", type=int, default=SIZES["paper"][0])
    parser.add_argument("--features", type=int, default=SIZES["paper"][1])
    arguments = parser.parse_args()
    print_rows(f"gpu, {arguments.device}", measure(arguments.device, arguments.rows, arguments.features), markdown=False)


if __name__ == "__main__":
    main()

"""What a round costs beyond its arithmetic, on every engine side by side.

Run with ``python -m benchmarks.engines``.  The block is 2000 x 20 and there are 4 sites of few rows (see ``overhead.py``); on MPI
there are 4 ranks with a site each, on Dask 4 worker processes, all on this machine.  The arithmetic that is subtracted is that of
all sites one after the other, although ranks and workers share it.  Engines take turns and the median of the turns is given, for
other work on the machine disturbs all of them.

"Conformance" means that tests run the same fits on the engine and in one process and compare components and ledgers bit by bit.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.overhead import FEATURES, SITES, WIDTH, by_hand, problem, through_the_driver
from benchmarks.table import CHECKED, Row, pytest_row, timed
from eigenpact.engines import MPI, Dask, InProcess

ROOT = Path(__file__).parents[1]
BARS = {"in-process": 0.3, "mpi": 2.0, "dask": 15.0}
"""Milliseconds a round may cost beyond arithmetic."""


TESTED = [
    ("conformance, in-process (serial, threads, messages)", "same bits and ledger", ("tests/engines/test_conformance.py",)),
    ("conformance, MPI on 1, 2, 4, 7 ranks", "same bits and ledger", ("tests/engines/test_mpi.py", "-k", "same_bits")),
    ("conformance, Dask", "same bits and ledger", ("tests/engines/test_dask.py", "-k", "same_bits or collective")),
    ("1000 fault schedules, 8 sites", "exact or a clear stop", ("tests/engines/test_faults.py", "-k", "thousand")),
    ("kill -9 of a Dask worker", "exact for the rest, loss in ledger", ("tests/engines/test_dask.py", "-k", "killed_worker")),
    ("kill -9 of an MPI rank, run again", "clear end, same bits", ("tests/engines/test_mpi.py", "-k", "killed_rank")),
    ("a site that hangs for good", "one round_timeout", ("tests/engines/test_faults.py", "-k", "for_good")),
    ("kill -9 of the coordinator, run again", "same bits", ("tests/runtime/test_kill.py",)),
    ("wrong, damaged, oversized, unknown, out of step", "refused, run unharmed", ("tests/runtime/test_mail.py",)),
    ("500 sites in-process", "replies held bounded", ("tests/engines/test_faults.py", "-k", "five_hundred")),
    ("40 sites on 32 ranks", "finishes", ("tests/engines/test_mpi.py", "-k", "many_ranks")),
]


def on_ranks() -> float:
    """Median seconds of one round on MPI ranks of this machine."""
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1"}
    mpiexec = Path(sys.executable).parent / "mpiexec"
    command = [
        str(mpiexec),
        "--oversubscribe",
        "-n",
        str(SITES),
        sys.executable,
        "-m",
        "mpi4py",
        "-m",
        "benchmarks.engines",
        "rank",
    ]
    done = subprocess.run(command, env=os.environ | allowed, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"mpiexec failed:\n{done.stderr}")
    return float(done.stdout)


def as_rank() -> None:
    """One rank's part of :func:`on_ranks`; rank 0 prints the seconds."""
    from mpi4py.MPI import COMM_WORLD as comm

    name = f"site{comm.rank}"
    seconds = through_the_driver(MPI(), {name: problem()[name]})
    if comm.rank == 0:
        print(seconds)


def overheads(repeats: int = 5) -> dict[str, float]:
    """Median seconds a round beyond arithmetic, by engine, and "arithmetic" itself."""
    from distributed import Client, LocalCluster

    sites = problem()
    ways: dict[str, Callable[[], Any]] = {
        "arithmetic": lambda: by_hand(sites),
        "in-process": lambda: through_the_driver(InProcess(threads=1), sites),
        "in-process by message": lambda: through_the_driver(InProcess(threads=1, round_timeout=60.0), sites),
        "mpi": on_ranks,
    }
    turns = [{label: way() for label, way in ways.items()} for _ in range(repeats)]
    with (
        LocalCluster(n_workers=SITES, threads_per_worker=1, host="127.0.0.1", dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        for turn in turns:  # its worker processes would disturb the others
            turn["dask"] = through_the_driver(Dask(client), sites)
    medians = {label: statistics.median(turn[label] for turn in turns) for label in turns[0]}
    return {label: s if label == "arithmetic" else s - medians["arithmetic"] for label, s in medians.items()}


def rows(size: str) -> Iterator[Row]:
    """The engines' results table; the tests behind most rows run with ``--size paper`` only, since CI runs them anyway."""
    measured = overheads()
    yield timed("round beyond arithmetic, in-process", BARS["in-process"], measured["in-process"], CHECKED)
    yield timed("round beyond arithmetic, MPI, 4 ranks", BARS["mpi"], measured["mpi"], CHECKED)
    yield timed("round beyond arithmetic, Dask, 4 workers", BARS["dask"], measured["dask"], CHECKED)
    for what, bar, arguments in TESTED:
        yield (
            pytest_row(what, bar, *arguments) if size == "paper" else Row(what, bar, "", None, "run by make test and test-faults")
        )


def main() -> None:
    """Print the table."""
    print(f"one round, {SITES} sites, block {FEATURES} x {WIDTH}; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    for label, seconds in overheads().items():
        bar = f"   (bar: {BARS[label]:g} ms)" if label in BARS else ""
        beyond = "" if label == "arithmetic" else " beyond arithmetic"
        print(f"  {label:22s} {1e3 * seconds:8.3f} ms{beyond}{bar}")


if __name__ == "__main__":
    as_rank() if sys.argv[1:] == ["rank"] else main()

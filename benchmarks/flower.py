"""A Flower federation on loopback, really started: what a round costs, whether bits are the same, what a killed node costs.

Run as a table with ``make results FAMILY=flower``.  A SuperLink with TLS and three SuperNodes with keys run on this machine; the
block is small, since Flower's own time is hundreds of times that of any arithmetic.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from tests.engines import conformance
from tests.engines.federation import free_port
from tests.engines.flower_federation import CASES, FlowerParties
from tests.engines.three_sites import SOLVERS_POLICY, three_sites

from benchmarks.table import Row, pytest_row
from eigenpact import FederatedPCA, load_model
from eigenpact.engines import Flower, InProcess
from eigenpact.errors import NotConvergedWarning

ROUNDS = {"small": 4, "paper": 12}
TIMEOUT = 25.0
HEART_SECONDS, HEART_ROUNDS = 180.0, 8
FAULTS, DOCS = "tests/engines/test_flower_faults.py", "tests/docs/test_docs.py"
HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")


def rows(size: str) -> Iterator[Row]:
    """The results table; what only tests show runs with ``--size paper``."""
    with tempfile.TemporaryDirectory() as folder:
        parties = FlowerParties(Path(folder) / "federation", three_sites(), SOLVERS_POLICY)
        try:
            parties.start()
            with Flower(parties.folder / "coordinator").open() as engine:
                yield from _same(engine)
                yield _latency(engine, ROUNDS[size])
                yield _killed(engine, parties)
        finally:
            parties.stop()
    what, bar = "unregistered key; wrong features; policy violation", "refused, named"
    yield _tested(size, what, bar, FAULTS, "-k", "refused")
    with tempfile.TemporaryDirectory() as folder:
        yield _heart(Path(folder))
    what, bar = "the how-to: from nothing, and flwr run on a SuperLink that is there", "its commands do what it shows"
    yield _tested(size, what, bar, DOCS, "-k", "flower and blocks")


def _same(engine: Any) -> Iterator[Row]:
    for case in CASES:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotConvergedWarning)
            begin = time.perf_counter()
            found = conformance.on(engine, {})(case)
            seconds = time.perf_counter() - begin
            expected = conformance.on(InProcess(threads=1), three_sites())(case)
        differ = conformance.differences({case.label: found}, {case.label: expected})
        told = f"{'; '.join(differ) or 'same bits and rows'}: {found['rounds']} rounds and {found['setup_rounds']} of set-up"
        what, bar = f"{case.label}, 3 nodes with keys, TLS", "same bits as in-process, identical ledger rows"
        yield Row(what, bar, f"{told}, {len(found['ledger'])} rows, {seconds:.0f} s", not differ)


def _latency(engine: Any, rounds: int) -> Row:
    told: list[float] = []
    options: dict[str, Any] = {"solver": "subspace", "tol": 0.0, "max_rounds": rounds + 1, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        FederatedPCA(3, **options, engine=engine, callback=lambda _record: told.append(time.perf_counter())).fit()
    seconds = np.diff(told).tolist()
    median = statistics.median(seconds)
    load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    reached = f"median {median:.1f} s of {rounds} ({min(seconds):.1f} to {max(seconds):.1f}); {load}"
    return Row("seconds a round", "6.4 s, as first measured", reached, median <= 6.4, "" if median <= 6.4 else load)


def _killed(engine: Any, parties: FlowerParties) -> Row:
    """Kill -9 a SuperNode and its processes after the second round of krylov."""

    told: list[float] = []

    def note(record: Any) -> None:
        told.append(time.perf_counter())
        if record.round == 2:
            parties.signal("quito", signal.SIGKILL)

    going_on = replace(engine, min_sites=2, round_timeout=TIMEOUT)
    pca = FederatedPCA(3, solver="krylov", random_state=0, engine=going_on, callback=note).fit()
    here = FederatedPCA(3, solver="gram").fit({name: X for name, X in three_sites().items() if name != "quito"})
    error = float(np.abs(pca.components_ - here.components_).max())
    between = np.diff(told)
    cost = float(between.max() - np.median(between))
    cost_told = f"cost {cost:.0f} s, of which {TIMEOUT:g} s are the timeout"
    reached = f"PCA of {', '.join(pca.sites_)}, entries within {error:.0e}; {cost_told}"
    good = pca.sites_ == ("accra", "lima") and error < 1e-9
    return Row("kill -9 a node in mid-run", "goes on, exact for the rest; cost measured", reached, good)


def _heart(folder: Path) -> Row:
    """Four hospitals, by the commands of the how-to, from the coordinator's command to the model."""
    what = "heart-disease hospitals, joint PCA end to end, auto"
    bar = f"< {HEART_SECONDS / 60:g} minutes; <= {HEART_ROUNDS} rounds"
    if "EIGENPACT_DATA" not in os.environ:
        return Row(what, bar, "", None, "needs EIGENPACT_DATA")
    environment = os.environ | {"EIGENPACT_EXAMPLE_PORT": str(free_port())}
    command = [str(Path(sys.executable).parent / "eigenpact")]

    def run(*words: str) -> None:
        subprocess.run([*command, *words], cwd=folder, env=environment, check=True, capture_output=True)

    run("federation", "example", "hospitals")
    run("federation", "init", "hospitals/consortium.toml", "--engine", "flower")
    sites = []
    try:
        for name in HOSPITALS:
            words = [*command, "site", "start", f"heart/{name}", "--data", f"hospitals/{name}.csv"]
            quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            sites.append(subprocess.Popen(words, cwd=folder, env=environment, start_new_session=True, **quiet))
        begin = time.perf_counter()
        run("coordinator", "run", "--engine", "flower", "--kit", "heart/coordinator", "-k", "2", "--secure", "-o", "model")
        seconds = time.perf_counter() - begin
    finally:
        for site in sites:
            os.killpg(site.pid, signal.SIGKILL)
            site.wait()
    pca = load_model(folder / "model")
    rounds = pca.n_rounds_ + pca.n_setup_rounds_
    told = f"{seconds:.0f} s with the SuperLink's start; {pca.solver_}, {rounds} rounds with set-up; {len(pca.sites_)} sites"
    return Row(what, bar, told, seconds < HEART_SECONDS and rounds <= HEART_ROUNDS and len(pca.sites_) == len(HOSPITALS))


def _tested(size: str, what: str, bar: str, *arguments: str) -> Row:
    if size != "paper":
        return Row(what, bar, "", None, "run by make test-faults")
    return pytest_row(what, bar, *arguments)

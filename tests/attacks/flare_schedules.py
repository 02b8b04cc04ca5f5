"""Random schedules of violence against a FLARE federation on loopback: processes are killed, suspended and cut off in mid-run.

After each fit the answer must be exact for the sites it names, or the error clear and unavoidable: fewer sites than ``min_sites``
were spared, or the server was killed; then the run is resumed from its journal, and must be exact.  Nothing may hang.

``python -m tests.attacks.flare_schedules --count 100`` runs many; a fault test runs a few.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import random
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.decomposition import PCA

import eigenpact as ep
from eigenpact.errors import EigenpactError
from eigenpact.estimators.plans import functions_of
from eigenpact.numerics.metrics import largest_sine
from tests.engines.federation import Parties, with_pid
from tests.leftovers import guard_this_process

SITES = ("lima", "oslo", "quito")
POLICY = {
    "solvers": ["subspace"], "functions": functions_of("subspace"), "min_rows": 5, "max_rounds": 5000, "max_epochs": 1000,
    "max_runs_per_day": 10_000, "max_runs": 10_000, "max_columns": 10**9, "exact_replies": True,
}  # fmt: skip
ROUND_TIMEOUT = 6.0
WITHIN = 150.0
"""Seconds after which a fit hangs."""

VIOLENCE = ("kill job", "kill daemon", "kill site", "suspend", "suspend for long", "cut", "kill server")
PIDFD_GETFD = 438
EXACT = 1e-6


def rows() -> dict[str, Any]:
    """Three sites whose third and fourth joint components nearly tie, so that subspace iteration takes some hundred rounds."""
    rng = np.random.default_rng(3)
    spread = np.array([4.0, 3.0, 2.0, 1.96, *np.linspace(1, 0.5, 16)])
    return {name: rng.normal(size=(300, 20)) * spread + 0.1 * i for i, name in enumerate(SITES)}


@dataclass(frozen=True)
class Schedule:
    """What happens in which round, and to whom; the run needs ``min_sites``."""

    name: str
    min_sites: int
    events: tuple[tuple[int, str, str], ...]

    @classmethod
    def drawn(cls, seed: int) -> Schedule:
        """One or two events at random."""
        draw = random.Random(f"flare {seed}")
        least, number = draw.choice([1, 2, 2, 3]), draw.choice([1, 1, 2])
        events = ((draw.randint(2, 60), draw.choice(VIOLENCE), draw.choice(SITES)) for _ in range(number))
        return cls(str(seed), least, tuple(sorted(events)))

    @property
    def spared(self) -> set[str]:
        """Sites that nothing ever happens to."""
        return set(SITES) - {site for _, what, site in self.events if what != "kill server"}


class Violence:
    """Carries out a schedule, as the callback of a fit."""

    def __init__(self, parties: Parties, schedule: Schedule) -> None:
        self.parties, self.due, self.server_killed = parties, list(schedule.events), False
        self._threads: list[threading.Thread] = []

    def __call__(self, record: Any) -> None:
        while self.due and record.round >= self.due[0][0]:
            _, what, site = self.due.pop(0)
            getattr(self, "_" + what.replace(" ", "_"))(site)

    def wait(self) -> None:
        """Until all that were suspended go on."""
        for thread in self._threads:
            thread.join()

    def _kill_job(self, site: str) -> None:
        daemon = self.parties.processes[site].pid
        for pid in self.parties.family(site):
            if pid != daemon:
                with_pid(pid, signal.SIGKILL)

    def _kill_daemon(self, site: str) -> None:
        with_pid(self.parties.processes[site].pid, signal.SIGKILL)

    def _kill_site(self, site: str) -> None:
        self.parties.signal(site, signal.SIGKILL)

    def _suspend(self, site: str, seconds: float = ROUND_TIMEOUT / 3) -> None:
        self.parties.signal(site, signal.SIGSTOP)
        thread = threading.Timer(seconds, self.parties.signal, (site, signal.SIGCONT))
        thread.start()
        self._threads.append(thread)

    def _suspend_for_long(self, site: str) -> None:
        self._suspend(site, 2 * ROUND_TIMEOUT)

    def _cut(self, site: str) -> None:
        for pid in self.parties.family(site):
            cut_connections(pid)

    def _kill_server(self, _site: str) -> None:
        self.server_killed = True
        self.parties.signal("coordinator", signal.SIGKILL)


def cut_connections(pid: int) -> None:
    """Shut all TCP connections of a process down, as a network that fails would."""
    call = ctypes.CDLL(None, use_errno=True).syscall
    with suppress(OSError):
        process = os.pidfd_open(pid)
        try:
            for entry in Path(f"/proc/{pid}/fd").iterdir():
                if not os.readlink(entry).startswith("socket:"):
                    continue
                got = call(PIDFD_GETFD, process, int(entry.name), 0)
                if got < 0:
                    raise PermissionError(ctypes.get_errno(), "the sockets of another process cannot be taken")
                with socket.socket(fileno=got) as taken, suppress(OSError):
                    if taken.family in (socket.AF_INET, socket.AF_INET6) and taken.getpeername():
                        taken.shutdown(socket.SHUT_RDWR)
        finally:
            os.close(process)


def check(parties: Parties, schedule: Schedule, folder: Path) -> str:
    """Carry out a schedule; say how it ended: "exact", "resumed", "stopped"; or "AVOIDABLE", "WRONG" or "HANGS", and how."""
    violence, journal = Violence(parties, schedule), folder / f"journal-{schedule.name}"
    ended = attempt(parties, schedule, journal, violence)
    violence.wait()
    heal(parties)
    if violence.server_killed and isinstance(ended, EigenpactError):
        again = attempt(parties, schedule, journal, lambda _record: None)
        return verdict(schedule, again, "resumed", spared=set(SITES))
    return verdict(schedule, ended, "exact", schedule.spared)


def verdict(schedule: Schedule, ended: Any, good: str, spared: set[str]) -> str:
    if isinstance(ended, EigenpactError):
        told = f"{type(ended).__name__}: {ended}"
        return f"AVOIDABLE {told}" if len(spared) >= schedule.min_sites else f"stopped by {told}"
    if not isinstance(ended, ep.FederatedPCA):
        return f"HANGS after {WITHIN:g} s" if ended is None else f"WRONG {type(ended).__name__}: {ended}"
    pooled = np.concatenate([rows()[name] for name in ended.sites_])
    sine = largest_sine(ended.components_.T, PCA(3).fit(pooled).components_.T)
    if not (sine < EXACT and ended.n_samples_seen_ == len(pooled) and len(ended.sites_) >= schedule.min_sites):
        return f"WRONG sine {sine:.1e} for {ended.sites_}"
    return f"{good} for {', '.join(ended.sites_)}"


def attempt(parties: Parties, schedule: Schedule, journal: Path, callback: Any) -> Any:
    """A fitted estimator, or what was raised, or None if nothing came in time."""
    came: list[Any] = []

    def fit() -> None:
        try:
            engine = ep.engines.NVFlare(
                parties.folder / "coordinator", min_sites=schedule.min_sites, round_timeout=ROUND_TIMEOUT,
                job_file=journal.with_suffix(".job"),
            )  # fmt: skip
            pca = ep.FederatedPCA(3, solver="subspace", random_state=0, engine=engine, journal=journal, callback=callback)
            came.append(pca.fit())
        except Exception as error:  # whatever it is, the verdict names it
            came.append(error)

    thread = threading.Thread(target=fit, daemon=True)
    thread.start()
    thread.join(WITHIN)
    return came[0] if came else None


def heal(parties: Parties) -> None:
    """Bring all parties up again, for the next schedule."""
    dead = [name for name in ("coordinator", *SITES) if parties.processes[name].poll() is not None]
    if "coordinator" in dead:
        parties.start("coordinator")
    for name in dead:
        if name != "coordinator":
            parties.signal(name, signal.SIGKILL)  # jobs that outlived their daemon
            parties.start(name)


@contextmanager
def federation(folder: Path) -> Iterator[Parties]:
    made = Parties(folder / "flare", rows(), POLICY, coordinator_timeout=2 * ROUND_TIMEOUT)
    try:
        made.start()
        yield made
    finally:
        made.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    guard_this_process()
    tally: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name, federation(Path(name)) as parties:
        for seed in range(asked.seed, asked.seed + asked.count):
            schedule, begin = Schedule.drawn(seed), time.monotonic()
            told = check(parties, schedule, Path(name))
            tally[told.split()[0]] += 1
            print(f"{seed:4} {time.monotonic() - begin:5.0f} s  min {schedule.min_sites}  {schedule.events}  {told}", flush=True)
    print(dict(tally))
    return int(bool({"AVOIDABLE", "WRONG", "HANGS"} & set(tally)))


if __name__ == "__main__":
    sys.exit(main())

"""Sites in other institutions, over NVIDIA FLARE: provisioned mutual TLS, a process at each site for the whole run.

A run is one FLARE job.  Its configuration names classes of the installed eigenpact and nothing else.  At each site a process
(``flare_site.py``) holds the rows and answers the bytes of ``runtime/mail.py``; at the coordinator FLARE's server carries them
(``flare_relay.py``) to the process that called ``fit``, where the driver runs.  So timeouts are the driver's own: a site that is
dead or silent is waited for once and then left out.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import KW_ONLY, dataclass
from itertools import takewhile
from multiprocessing.connection import Connection as Pipe
from multiprocessing.connection import Listener
from pathlib import Path
from typing import Any

from ...errors import InputError, TooFewSitesError
from ...runtime import Costs, Job, Outcome, Summation
from ..federation.relay import STILL, OpenFederation, RelayPost, accept, meeting_point
from .kits import Kit, flare, write_job

ALL_WITHIN = 15.0
"""Seconds that sites are waited for when ``min_sites`` are connected already."""

LEAVE_WITHIN = 5.0
"""Seconds the administrator's process may take to log out."""

END_WITHIN = 20.0
"""Seconds a job may take to end by itself before it is aborted."""


@dataclass(frozen=True)
class NVFlare:
    """Run between institutions, with sites started by ``eigenpact site start``.

    Parameters
    ----------
    kit : path
        The coordinator's kit, whose server runs on this machine (``eigenpact coordinator start``).
    sites : tuple of str, optional
        Sites that are to take part; by default all of the federation.
    min_sites : int
        A run begins, and goes on, only with this many sites; 0, the default, stands for all that are to take part.
    round_timeout : float
        Seconds a site may take to answer before the run goes on without it.
    start_timeout : float
        Seconds until the sites' processes must be up.
    job_file : path, optional
        Where the identifier of the FLARE job is written; a job that is found there is ended first.

    A fit starts a job and ends it.  For several fits, ``with engine.open() as connected:`` keeps the sites' processes.
    """

    kit: str | Path
    _: KW_ONLY
    sites: tuple[str, ...] | None = None
    min_sites: int = 0
    round_timeout: float = 60.0
    start_timeout: float = 120.0
    job_file: str | Path | None = None

    spread = False
    costs = Costs(latency=1e-1, bandwidth=1e7, flops=2e10)

    def __post_init__(self) -> None:
        for name in ("round_timeout", "start_timeout"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name}={getattr(self, name)!r} must be a number of seconds > 0")
        wanted, least = Kit.read(self.kit, "coordinator").federation.taking_part(self.sites, self.min_sites)
        object.__setattr__(self, "sites", wanted)
        object.__setattr__(self, "min_sites", least)

    @contextmanager
    def open(self) -> Iterator[OpenFederation]:
        """Start the sites' processes; an engine for any number of fits while the context lasts."""
        kit = Kit.read(self.kit, "coordinator")
        assert self.sites is not None
        with _job(kit, self.sites, self) as (pipe, names):
            post = RelayPost(pipe, names)
            try:
                yield OpenFederation(
                    post,
                    self.sites,
                    kit.federation.features,
                    costs=self.costs,
                    min_sites=self.min_sites,
                    round_timeout=self.round_timeout,
                    names=("nvflare", "FLARE"),
                )
            finally:
                post.close()

    def execute(
        self,
        sites: Mapping[str, Any],
        job: Job,
        *,
        graph: Mapping[str, tuple[str, ...]] | None = None,
        summation: Summation | None = None,
    ) -> Outcome:
        """Start the sites' processes, run the job here, and end them."""
        with self.open() as connected:
            return connected.execute(sites, job, graph=graph, summation=summation)


@contextmanager
def _job(kit: Kit, sites: tuple[str, ...], engine: NVFlare) -> Iterator[tuple[Pipe, tuple[str, ...]]]:
    """Submit a job and wait for its relay; end the job in the end."""
    flare("nvflare")
    with tempfile.TemporaryDirectory(prefix="eigenpact-") as name, _Administrator(kit) as administrator:
        folder = Path(name)
        _end_stale(administrator, engine.job_file)
        connected = _connected(administrator, sites, engine)
        with meeting_point(folder) as (listener, relay):
            told = relay | {"call_timeout": 2 * engine.round_timeout + 10}
            write_job(folder / "job", connected, engine.min_sites, told)
            job = _submit(administrator, folder / "job", engine.job_file)
            try:
                pipe = _accept(administrator, listener, job, engine.start_timeout)
                try:
                    yield pipe, tuple(json.loads(pipe.recv_bytes()))
                finally:
                    pipe.close()
            finally:
                with suppress(TooFewSitesError):  # a server that is gone has no job
                    administrator.ask(f"end {END_WITHIN}")


def _end_stale(administrator: _Administrator, job_file: str | Path | None) -> None:
    """End the job of an earlier try of the same run."""
    if job_file is not None and Path(job_file).exists():
        administrator.ask(f"abort {Path(job_file).read_text().strip()}")


def _connected(administrator: _Administrator, sites: tuple[str, ...], engine: NVFlare) -> tuple[str, ...]:
    """Wait until all sites are connected; after a while go on with fewer, if those are enough."""
    begin = time.monotonic()
    while True:
        there = administrator.ask("clients")
        found = tuple(name for name in sites if name in there)
        waited = time.monotonic() - begin
        if found == sites or (len(found) >= engine.min_sites and waited > ALL_WITHIN):
            return found
        if waited > engine.start_timeout:
            missing = ", ".join(name for name in sites if name not in found)
            raise TooFewSitesError(
                f"not connected within {engine.start_timeout:g} s: {missing}; min_sites is {engine.min_sites}: "
                "have them run eigenpact site start, or lower min_sites"
            )
        time.sleep(STILL)


def _submit(administrator: _Administrator, folder: Path, job_file: str | Path | None) -> str:
    job = str(administrator.ask(f"submit {folder}"))
    if job_file is not None:
        Path(job_file).write_text(job + "\n")
    return job


def _accept(administrator: _Administrator, listener: Listener, job: str, timeout: float) -> Pipe:
    """The relay's connection; an error if the job ends before, or takes too long."""
    kit = administrator.kit

    def look() -> None:
        if administrator.ask("status") == "over":
            raise TooFewSitesError(f"FLARE ended the job before the sites were up: {_last_words(kit, job)}")

    pipe = accept(listener, timeout, look)
    if pipe is None:
        raise TooFewSitesError(f"the sites' processes were not up within {timeout:g} s; see log.txt in {kit.workspace}")
    return pipe


class _Administrator:
    """The process that speaks to FLARE's server as the coordinator's administrator (``flare_admin.py``)."""

    def __init__(self, kit: Kit) -> None:
        self.kit = kit
        command = [sys.executable, "-W", "ignore", "-m", "eigenpact.engines.flare.admin", str(kit.folder)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def __enter__(self) -> _Administrator:
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            self._process.communicate(timeout=LEAVE_WITHIN)
        except subprocess.TimeoutExpired:  # FLARE waits for a server that is gone
            self._process.kill()
            self._process.communicate()

    def ask(self, command: str) -> Any:
        """Have a command carried out; give what it gave."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(command + "\n")
            self._process.stdin.flush()
            answer = json.loads(self._process.stdout.readline() or "{}")
        except OSError:
            answer = {}
        if "value" in answer:
            return answer["value"]
        federation = self.kit.federation
        where = f"the coordinator's server at {federation.host}:{federation.port}"
        if answer.get("error") == "connection":
            raise TooFewSitesError(f"{where} does not answer; start it with: eigenpact coordinator start {self.kit.folder}")
        raise TooFewSitesError(f"{where} could not be asked to {command.split()[0]}: {answer.get('detail', 'FLARE failed')}")


def _last_words(kit: Kit, job: str) -> str:
    """What FLARE's server, on this machine, wrote of a job that failed."""
    path = kit.workspace / "log.txt"
    lines = path.read_text(errors="replace").splitlines() if path.exists() else []
    last = max((i for i, line in enumerate(lines) if job in line and " - ERROR - " in line), default=None)
    if last is None:
        return f"see {path}"
    details = takewhile(lambda line: line.startswith("\t"), lines[last + 1 :])
    return "; ".join([lines[last].partition(" - ERROR - ")[2].strip(), *(line.strip() for line in details)])

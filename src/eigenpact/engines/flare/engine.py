"""Sites in other institutions, over NVIDIA FLARE: provisioned mutual TLS, a process at each site for the whole run.

A run is one FLARE job.  Its configuration names classes of the installed eigenpact and nothing else.  At each site a process
(``site.py``) holds the rows and answers the bytes of ``runtime/mail.py``; at the coordinator FLARE's server passes them on
(``relay.py``) to the process that called ``fit``, where the driver runs.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import takewhile
from multiprocessing.connection import Connection as Pipe
from multiprocessing.connection import Listener
from pathlib import Path
from typing import Any

from ...errors import TooFewSitesError
from ...runtime import Costs
from ..extras import bring
from ..federation.engine import FederationEngine
from ..federation.relay import accept, hang_up, meeting_point
from .kits import Kit, write_job

LEAVE_WITHIN = 5.0
"""Seconds the administrator's process may take to log out."""

END_WITHIN = 20.0
"""Seconds a job may take to end by itself before it is aborted."""


@dataclass(frozen=True)
class NVFlare(FederationEngine):
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

    job_file: str | Path | None = field(default=None, kw_only=True)

    kits = Kit
    costs = Costs(latency=1e-1, bandwidth=1e7, flops=2e10)

    @contextmanager
    def _job(self) -> Iterator[tuple[Pipe, tuple[str, ...]]]:
        """Submit a job and wait for its relay; end the job in the end."""
        bring("nvflare", "nvflare")
        with tempfile.TemporaryDirectory(prefix="eigenpact-") as name, _Administrator(self.owned) as administrator:
            folder = Path(name)
            _end_stale(administrator, self.job_file)
            connected = self._wait_for_sites(lambda: administrator.ask("clients"))
            with meeting_point(folder) as (listener, relay):
                told = relay | {"call_timeout": 2 * self.round_timeout + 10}
                write_job(folder / "job", connected, self.min_sites, told, self.run)
                job = _submit(administrator, folder / "job", self.job_file)
                try:
                    pipe = _accept(administrator, listener, job, self.start_timeout)
                    try:
                        yield pipe, tuple(json.loads(pipe.recv_bytes()))
                    finally:
                        hang_up(pipe)
                        pipe.close()
                except KeyboardInterrupt:
                    administrator.kill()  # a job ends by itself when nobody drives it
                    raise
                finally:
                    with suppress(TooFewSitesError):  # a server that is gone has no job
                        administrator.ask(f"end {END_WITHIN}")


def _end_stale(administrator: _Administrator, job_file: str | Path | None) -> None:
    """End the job of an earlier try of the same run."""
    if job_file is not None and Path(job_file).exists():
        administrator.ask(f"abort {Path(job_file).read_text().strip()}")


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
    """The process that speaks to FLARE's server as the coordinator's administrator (``admin.py``)."""

    def __init__(self, kit: Kit) -> None:
        self.kit = kit
        command = [sys.executable, "-W", "ignore", "-m", "eigenpact.engines.flare.admin", str(kit.folder)]
        streams: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(command, **streams, text=True, start_new_session=True)  # Ctrl-C is for the caller

    def __enter__(self) -> _Administrator:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            self.kill()
        try:
            self._process.communicate(timeout=LEAVE_WITHIN)
        except subprocess.TimeoutExpired:  # FLARE waits for a server that is gone
            self.kill()
            self._process.communicate()

    def kill(self) -> None:
        """Whoever asked is in a hurry."""
        self._process.kill()

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

"""All parties of a consortium on one machine, with made rows: kits, policies, a run, a lost site, a resume.

Every party's commands are those that it will type itself, each in a process of its own; what they print is kept for each party.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..engines.federation.kits import Federation
from ..engines.signals import descendants, end_process
from ..errors import SiteError
from ..runtime import read_site_ledger
from ..storage import owner_only

WITHIN = 240.0
"""Seconds until a step of a rehearsal is given up."""

ROUND_TIMEOUT = "10"
"""Seconds until the coordinator's run calls the lost site lost."""

SLOW = ("--solver", "subspace", "--max-rounds", "60", "--tol", "1e-14")
"""A run that is long enough to lose a site in."""

ROWS = 60
LOST_AFTER = 12
"""Replies of the second run after which the site is lost."""


@dataclass
class Step:
    """Something that was rehearsed: what, how it ended, and after how many seconds of the whole."""

    what: str
    ended: str
    seconds: float


@dataclass
class Rehearsal:
    """Kits in ``folder/kits``, made rows in ``folder/rows``, and what each party sees in ``folder/seen/PARTY.txt``."""

    folder: Path
    federation: Federation
    tell: Callable[[str], object]
    steps: list[Step] = field(default_factory=list)
    _running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _begun: float = field(default_factory=time.monotonic)

    @property
    def lost(self) -> str:
        """The site that is lost, and comes back."""
        return self.federation.sites[-1]

    def kit(self, party: str) -> Path:
        """A party's kit."""
        return self.folder / "kits" / party

    def seen(self, party: str) -> Path:
        """What a party's commands printed."""
        return self.folder / "seen" / f"{party}.txt"

    def make_rows(self) -> None:
        """Rows of as many columns as were agreed on: numbers of no meaning, another distribution at every site."""
        (self.folder / "rows").mkdir()
        (self.folder / "seen").mkdir()
        features = self.federation.features
        d = features if isinstance(features, int) else len(features)
        rng = np.random.default_rng(0)
        for i, site in enumerate(self.federation.sites):
            X = rng.normal(size=(ROWS + 10 * i, d)) * np.linspace(1.2, 1.0, d) + 0.1 * i
            np.save(self.folder / "rows" / f"{site}.npy", X)
            text = f'data = "../../rows/{site}.npy"\n'
            (self.kit(site) / "site.toml").write_text(text, encoding="utf-8")

    def play(self) -> None:
        """Carry all of it out."""
        with self._ending():
            self._start("coordinator", "coordinator", "start", str(self.kit("coordinator")))
            self._start_sites(*self.federation.sites)
            self._done("every site checked its kit, table and policy, and started", "all are ready")
            self._call(*self._command("-k", self._components, "-o", str(self.folder / "model")))
            self._done("a run over all sites", "the model is in model/")
            name = self._lose_a_site()
            self._start_sites(self.lost)
            self._call("coordinator", "run", "--kit", str(self.kit("coordinator")), "--resume", name)
            self._done(f"{self.lost} came back, and the run was resumed", "it went on where it had stopped")

    @property
    def _components(self) -> str:
        features = self.federation.features
        return str(min(2, features if isinstance(features, int) else len(features)))

    def _lose_a_site(self) -> str:
        """Kill a site in the middle of a run, which stops and says how to go on; give the run's name."""
        ledger, before = self.kit(self.lost) / "ledger.jsonl", set(os.listdir(self.kit("coordinator") / "runs"))
        answered = len(read_site_ledger(ledger))
        asked = ("-k", self._components, *SLOW, "--round-timeout", ROUND_TIMEOUT, "-o", str(self.folder / "model-resumed"))
        run = self._begin("coordinator", *self._command(*asked))
        self._await(run, lambda: len(read_site_ledger(ledger)) > answered + LOST_AFTER, "a second run")
        site = self._running.pop(self.lost)
        for pid in (site.pid, *descendants(site.pid)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)  # as a machine that loses its power
        site.wait()
        self._note(self.lost, "(its machine lost its power)")
        code = self._awaited(run, "the run without a site")
        if code != 2:
            raise SiteError(f"a run that lost {self.lost} ended with {code}, not with an error; see {self.seen('coordinator')}")
        self._done(f"{self.lost} was lost in the middle of a run", "the run stopped, and said whom it lost")
        (name,) = set(os.listdir(self.kit("coordinator") / "runs")) - before
        return name

    def _command(self, *words: str) -> tuple[str, ...]:
        secure = ("--secure",) if self.federation.secure else ()
        return ("coordinator", "run", "--kit", str(self.kit("coordinator")), *secure, *words)

    def _call(self, *words: str) -> None:
        """A run of the coordinator's, which must end well."""
        code = self._awaited(self._begin("coordinator", *words), " ".join(words[:2]))
        if code not in (0, 1):
            raise SiteError(f"eigenpact {' '.join(words[:2])} ended with {code}; see {self.seen('coordinator')}")

    def _start(self, party: str, *words: str) -> Callable[[], None]:
        """A command that stays; give what waits until it says that it can be stopped."""
        seen = self.seen(party)
        before = seen.stat().st_size if seen.exists() else 0
        process = self._running[party] = self._begin(party, *words)
        return lambda: self._await(process, lambda: b"stop with Ctrl-C" in seen.read_bytes()[before:], f"{party} to start")

    def _start_sites(self, *sites: str) -> None:
        for started in [self._start(site, "site", "start", str(self.kit(site))) for site in sites]:
            started()

    def _begin(self, party: str, *words: str) -> subprocess.Popen[bytes]:
        self._note(party, f"$ eigenpact {' '.join(words)}")
        command = [sys.executable, "-c", "from eigenpact.cli import main; main()", *words]
        with open(self.seen(party), "ab", opener=owner_only) as seen:
            options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": seen, "stderr": seen, "start_new_session": True}
            return subprocess.Popen(command, cwd=self.folder, **options)

    def _note(self, party: str, text: str) -> None:
        with open(self.seen(party), "ab", opener=owner_only) as seen:
            seen.write(f"{text}\n".encode())

    def _awaited(self, process: subprocess.Popen[bytes], what: str) -> int:
        try:
            return process.wait(WITHIN)
        except subprocess.TimeoutExpired as error:
            end_process(process, 1.0)
            raise SiteError(f"{what} did not end within {WITHIN:g} s; see {self.folder / 'seen'}") from error

    def _await(self, process: subprocess.Popen[bytes], holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + WITHIN
        while not holds():
            if time.monotonic() > deadline or process.poll() is not None:
                end_process(process, 1.0)
                raise SiteError(f"waited in vain for {what}; see {self.folder / 'seen'}")
            time.sleep(0.05)

    def _done(self, what: str, ended: str) -> None:
        step = Step(what, ended, time.monotonic() - self._begun)
        self.steps.append(step)
        self.tell(f"{step.seconds:5.0f} s  {what}: {ended}")

    @contextmanager
    def _ending(self) -> Iterator[None]:
        """Nothing that was started here is left, however it ends."""
        try:
            yield
        finally:
            for process in self._running.values():
                end_process(process, 2.0)

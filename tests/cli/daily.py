"""A federation as its people run it: by the commands of the pages, each in a process of its own that Ctrl-C can reach."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from tests.engines.federation import free_port, with_argument

from eigenpact.engines.flare.kits import Kit
from eigenpact.storage import try_lock

EIGENPACT = str(Path(sys.executable).with_name("eigenpact"))
WITHIN = 120.0
"""Seconds until a test gives up; nothing here should take a tenth of it on a quiet machine."""

FEATURES = [f"x{j}" for j in range(12)]


def rows(name: str) -> Any:
    """Rows of which the second and third joint components nearly tie, so that subspace iteration takes hundreds of rounds."""
    rng = np.random.default_rng(sum(map(ord, name)))
    return rng.normal(size=(120, 12)) * np.array([3.0, 2.0, 1.99, *np.linspace(1, 0.5, 9)])


class Life:
    """Kits and tables in a folder, and the commands that were started."""

    def __init__(self, folder: Path, sites: tuple[str, ...], *options: str) -> None:
        self.folder, self.port = folder, free_port()
        self.processes: list[subprocess.Popen[bytes]] = []
        self.environment = os.environ | {"OMP_NUM_THREADS": "1", "TMPDIR": str(folder / "tmp")}
        (folder / "tmp").mkdir(parents=True)
        names = ", ".join(f'"{name}"' for name in sites)
        columns = ", ".join(f'"{name}"' for name in FEATURES)
        text = f'name = "life"\ncoordinator = "localhost:{self.port}"\nsites = [{names}]\nfeatures = [{columns}]\n'
        (folder / "consortium.toml").write_text(text)
        self.call("federation", "init", "consortium.toml", *options)
        for name in sites:
            self.settle(name)

    def settle(self, name: str) -> None:
        """A site's table, and its site.toml that names it."""
        header = ",".join(["id", *FEATURES])
        lines = [",".join([f"p{i}", *map(repr, row)]) for i, row in enumerate(rows(name).tolist())]
        (self.folder / f"{name}.csv").write_text("\n".join([header, *lines]) + "\n")
        (self.kit(name) / "site.toml").write_text(f'data = "../../{name}.csv"\n')

    def kit(self, party: str) -> Path:
        return self.folder / "life" / party

    def call(self, *words: str, code: int = 0) -> str:
        """What a command printed that ended by itself."""
        done = subprocess.run(
            [EIGENPACT, *words],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=WITHIN,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def start(self, *words: str) -> Command:
        """A command in a session of its own, as in a terminal of its own."""
        return Command(self, [EIGENPACT, *words])

    def site(self, name: str) -> Command:
        return self.start("site", "start", str(self.kit(name)))

    def coordinator(self) -> Command:
        return self.start("coordinator", "start", str(self.kit("coordinator")))

    def run(self, *words: str) -> Command:
        return self.start("coordinator", "run", "--kit", str(self.kit("coordinator")), *words)

    def is_left(self, party: str) -> list[str]:
        """What is left of a party that was stopped: processes, its port, its lock, temporary folders with keys."""
        kit = Kit.read(self.kit(party), "coordinator" if party == "coordinator" else "site")
        left = [f"process {pid}" for pid in with_argument(str(kit.workspace))]
        lock = try_lock(kit.folder / "kit.json")
        if lock is None:
            left.append("lock")
        else:
            os.close(lock)
        return left + [str(path) for path in (self.folder / "tmp").glob("eigenpact-*")]

    def stop(self) -> None:
        """Kill everything that was started here."""
        for process in self.processes:
            if process.poll() is None:
                process.kill()
        for party in (path.name for path in (self.folder / "life").iterdir()):
            for pid in with_argument(str(self.kit(party))) + with_argument(str(self.kit(party) / "server")):
                os.kill(pid, signal.SIGKILL)


class Command:
    """A command that runs."""

    def __init__(self, life: Life, words: list[str]) -> None:
        self._output = life.folder / f"output{len(life.processes)}.txt"
        with self._output.open("wb") as stream:
            self.process = subprocess.Popen(
                words, cwd=life.folder, env=life.environment, stdout=stream, stderr=stream,
                start_new_session=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )  # fmt: skip
        life.processes.append(self.process)

    @property
    def printed(self) -> str:
        return self._output.read_text(errors="replace")

    def until(self, text: str | Callable[[], bool]) -> None:
        """Wait until it has printed a text, or something holds."""
        deadline = time.monotonic() + WITHIN
        while not (text in self.printed if isinstance(text, str) else text()):
            assert time.monotonic() < deadline, f"{text!r} did not come:\n{self.printed}"
            assert self.process.poll() is None, f"it ended before {text!r}:\n{self.printed}"
            time.sleep(0.02)

    def interrupt(self) -> str:
        """Ctrl-C, for all processes of its terminal; what it printed from then on."""
        before = len(self.printed)
        os.killpg(self.process.pid, signal.SIGINT)
        self.process.wait(WITHIN)
        assert self.process.returncode == 130, self.printed
        assert "Traceback" not in self.printed, self.printed
        return self.printed[before:]

    def ends(self, code: int = 0) -> str:
        """What it printed in all, once it has ended by itself."""
        self.process.wait(WITHIN)
        assert self.process.returncode == code, self.printed
        return self.printed

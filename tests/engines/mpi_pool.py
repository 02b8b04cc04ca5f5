"""MPI ranks that wait for scripts: a job of a few ranks then costs no start of Python and no imports, which take seconds a rank.

The test's side is :class:`Pool`, the ranks' ``python -m mpi4py -m tests.engines.mpi_pool`` under mpiexec.  Both meet in a folder:
``N.json`` says what to run on how many ranks, ``N-RANK.done`` what a rank printed.  A rank whose script fails ends all, as
everywhere under ``python -m mpi4py``; the next script then begins with new ranks.
"""

from __future__ import annotations

import contextlib
import io
import json
import runpy
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

LOOKS_EVERY = 0.02
END = "end"


class Pool:
    """Ranks that are started with the first script, and again after one that failed.

    Parameters
    ----------
    start : starts the ranks, given their arguments
    folder : an empty one
    """

    def __init__(self, start: Callable[..., subprocess.Popen[str]], folder: Path) -> None:
        self._start = start
        self._folder = folder
        self._number = 0
        self._ranks: subprocess.Popen[str] | None = None

    def run(self, ranks: int, script: Path, *arguments: str, timeout: float) -> subprocess.CompletedProcess[str]:
        """Run a script on the first ranks of the pool; it finds them alone in ``comm``, and itself as ``rank``."""
        if self._ranks is None or self._ranks.poll() is not None:
            self._ranks = self._start("-m", "tests.engines.mpi_pool", str(self._folder), str(self._number))
        work = {"ranks": ranks, "script": str(script), "arguments": arguments}
        write(self._folder / f"{self._number}.json", json.dumps(work))
        done = [self._folder / f"{self._number}-{rank}.done" for rank in range(ranks)]
        self._number += 1
        deadline = time.monotonic() + timeout
        while not all(path.exists() for path in done):
            if self._ranks.poll() is not None:
                return subprocess.CompletedProcess(arguments, self._ranks.returncode or 1, *self._ranks.communicate())
            if time.monotonic() > deadline:
                self.close()
                raise TimeoutError(f"{script} has not ended on {ranks} ranks within {timeout} s")
            time.sleep(LOOKS_EVERY)
        return subprocess.CompletedProcess(arguments, 0, "".join(path.read_text() for path in done), "")

    def close(self) -> None:
        """End the ranks."""
        if self._ranks is not None and self._ranks.poll() is None:
            write(self._folder / f"{self._number}.json", json.dumps(END))
            try:
                self._ranks.communicate(timeout=10)
            except subprocess.TimeoutExpired:
                self._ranks.terminate()  # mpiexec then kills the ranks
                self._ranks.communicate()


def write(path: Path, text: str) -> None:
    """So that nobody reads half of it."""
    half = path.with_suffix(".half")
    half.write_text(text)
    half.rename(path)


def serve(folder: Path, number: int) -> None:
    """A rank: run script after script.  It sleeps while others work, and MPI's own waiting would take a core."""
    from mpi4py import MPI

    from eigenpact.engines import mpi

    everyone = MPI.COMM_WORLD
    while True:
        path = folder / f"{number}.json"
        while not path.exists():
            time.sleep(LOOKS_EVERY)
        work: Any = json.loads(path.read_text())
        if work == END:
            return
        if everyone.rank < work["ranks"]:
            comm = everyone.Create_group(everyone.group.Incl(range(work["ranks"])), tag=number)
            mpi.world = lambda comm=comm: comm
            sys.argv = [work["script"], *work["arguments"]]
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                runpy.run_path(work["script"], {"comm": comm, "rank": comm.rank}, "__main__")
            write(folder / f"{number}-{comm.rank}.done", printed.getvalue())
            comm.Free()
        number += 1


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]))

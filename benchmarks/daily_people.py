"""Four people who type only what the pages say, from their own files to their results: how long, how much memory."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.table import PASSED, Row

if TYPE_CHECKING:
    from tests.people.person import Person

MINUTES = {"data scientist": 3, "data manager": 15}
"""What each may take; reading the pages is not counted."""


def rows(size: str) -> Iterator[Row]:
    """Play and yield a row at a time; ``paper`` has larger tables, and an array of 6 GB."""
    from tests.people import data_scientist, geneticist, hpc_user

    scientist = played(lambda person: data_scientist.play(person, size))[0]
    yield timed_row("data scientist: a table with case numbers and clinics, scores and two plots", scientist, "data scientist")
    yield from manager(size)
    what = "geneticist: PLINK files of five populations, scores and pictures of each, a model to take elsewhere"
    yield seen_before(what, size) or reported(what, lambda person: geneticist.play(person, size))
    n_bytes, given, most = hpc_user.LARGE[size]
    seconds, peaks = played(lambda person: hpc_user.play(person, size))
    told = " and ".join(f"{peak / 1e9:.2f} GB in {what}" for peak, what in zip(peaks, ("fit", "transform"), strict=True))
    what = f"HPC user: a .npy of {n_bytes / 1e9:g} GB with --memory {given}: most anonymous memory"
    yield Row(what, f"<= {most / 1e9:g} GB", f"{told}; {seconds:.0f} s", max(peaks) <= most)
    what = "HPC user: three files under mpiexec, the bits of one process"
    yield seen_before(what, size) or reported(what, hpc_user.play_mpi)


def manager(size: str) -> Iterator[Row]:
    """The data manager of the third hospital, on both engines."""
    for engine, name in (("nvflare", "FLARE"), ("flower", "Flower")):
        what = (
            f"data manager of the third hospital on {name}: an export with decimal commas and marks, described, checked, started"
        )
        what += ", one secured run, her own scores"
        if size == "small" and os.environ.get(PASSED):
            yield Row(
                what, f"<= {MINUTES['data manager']} minutes", "tests/people", None, "make test-faults plays her just before"
            )
            continue
        from tests.people import data_manager

        seconds = played(lambda person, engine=engine: data_manager.play(person, engine))[0]  # type: ignore[misc]
        yield timed_row(what, seconds, "data manager")


def seen_before(what: str, size: str, bar: str = "reported") -> Row | None:
    """A row in place of a script that the tests have just played, where they have."""
    if size != "small" or not os.environ.get(PASSED):
        return None
    return Row(what, bar, "passed by make test or make test-faults (tests/people)", None, "CI plays it just before")


def reported(what: str, script: Callable[[Person], None]) -> Row:
    """A row of seconds without a bar."""
    return Row(what, "reported", f"{played(script)[0]:.0f} s", True)


def timed_row(what: str, seconds: float, person: str) -> Row:
    """A row of how long a person took."""
    return Row(what, f"<= {MINUTES[person]} minutes", f"{seconds:.0f} s", seconds <= 60 * MINUTES[person])


def played(script: Callable[[Person], None]) -> tuple[float, list[int]]:
    """Seconds that a script took, and the most memory of each of its commands; it fails if a result is wrong."""
    from tests.people.person import Person

    with tempfile.TemporaryDirectory(dir=os.environ.get("EIGENPACT_SCRATCH")) as folder:
        person, begin = Person(Path(folder)), time.monotonic()
        script(person)
        return time.monotonic() - begin, person.peaks

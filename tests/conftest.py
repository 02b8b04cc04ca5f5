"""What every test process does first."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

from tests.leftovers import guard_this_process

settings.register_profile("unhurried", deadline=None)  # nothing is timed in tests: a busy machine is no defect
settings.load_profile("unhurried")


def pytest_configure() -> None:
    """Also in the processes that pytest-xdist starts."""
    guard_this_process()
    share_cores()
    os.environ["EIGENPACT_RATES"] = "usual"  # what "auto" takes must not depend on the machine; also in what tests start


def share_cores() -> None:
    """Each of several processes that test at the same time has its share of the cores: threads beyond it wait for one another."""
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    share = max(1, (os.cpu_count() or 1) // processes)
    os.cpu_count = lambda: share


LONGEST_FIRST = (
    "flower",
    "flower_kills",
    "installing",
    "flare-secured",
    "federate",
    "nvflare",
    "flare-schedules",
    "flare-changes",
    "federate-flower",
    "reproduce",
    "daily-life",
    "flare-hostile",
    "flare-faults",
    "data-manager",
    "data-manager-flower",
    "rehearsal",
    "flower_proxy",
    "flower-files",
    "flare-versions",
    "mpi",
)
"""Groups of tests (``xdist_group``) that take minutes. They begin first, so that all processes end at about the same time."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long groups first; xdist keeps this order with ``--no-loadscope-reorder``, else it begins with the group of most tests."""
    items.sort(key=lambda item: rank(group_of(item)))


def group_of(item: pytest.Item) -> str:
    """The group that a test and its file say it is of, as xdist joins these words, or nothing."""
    return "_".join(sorted({str(mark.args[0]) for mark in item.iter_markers("xdist_group")}))


def rank(group: str) -> int:
    """Place in the order of groups; tests of no such group come last, in the order in which they were found."""
    return LONGEST_FIRST.index(group) if group in LONGEST_FIRST else len(LONGEST_FIRST)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A run of faults alone imports only files that have some: the imports of all others take longer than many a test."""
    asked = str(config.option.markexpr).split()[:1] == ["faults"]
    return True if asked and is_tests(collection_path) and "mark.faults" not in collection_path.read_text() else None


def is_tests(path: Path) -> bool:
    """Whether pytest would look for tests in this file."""
    return path.is_file() and path.name.startswith("test_") and path.suffix == ".py"

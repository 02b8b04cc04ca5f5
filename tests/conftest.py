"""What every test process does first."""

from __future__ import annotations

import os

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

"""What every test process does first."""

from __future__ import annotations

from hypothesis import settings

from tests.leftovers import guard_this_process

settings.register_profile("unhurried", deadline=None)  # nothing is timed in tests: a busy machine is no defect
settings.load_profile("unhurried")


def pytest_configure() -> None:
    """Also in the processes that pytest-xdist starts."""
    guard_this_process()

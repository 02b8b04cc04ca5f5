"""What every test process does first."""

from __future__ import annotations

from tests.leftovers import guard_this_process


def pytest_configure() -> None:
    """Also in the processes that pytest-xdist starts."""
    guard_this_process()

"""Doctests of modules that need an optional dependency are left out, and said to be, where it is not installed."""

from __future__ import annotations

import importlib.util

NEED_FLARE = ["eigenpact/engines/flare_admin.py", "eigenpact/engines/flare_guard.py"]
NEED_FLARE += ["eigenpact/engines/flare_relay.py", "eigenpact/engines/flare_site.py"]


def _installed() -> bool:
    try:
        return importlib.util.find_spec("nvflare") is not None
    except ValueError:  # put out of reach by a test
        return False


collect_ignore = [] if _installed() else NEED_FLARE


def pytest_report_header() -> str:
    """Say what is missing."""
    return "without NVIDIA FLARE, eigenpact[nvflare]: its modules' doctests are left out" if collect_ignore else ""

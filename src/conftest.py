"""Doctests of modules that need an optional dependency are left out, and said to be, where it is not installed."""

from __future__ import annotations

import importlib.util

NEEDS = {
    "nvflare": [f"eigenpact/engines/flare/{part}.py" for part in ("admin", "guard", "relay", "site")],
    "flwr": ["eigenpact/engines/flower/grid.py", "eigenpact/engines/flower/site.py", "eigenpact/cli/flower_server.py"],
}
EXTRAS = {"nvflare": "nvflare", "flwr": "flower"}


def _installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ValueError:  # put out of reach by a test
        return False


MISSING = [package for package in NEEDS if not _installed(package)]
collect_ignore = [path for package in MISSING for path in NEEDS[package]]


def pytest_report_header() -> list[str]:
    """Say what is missing."""
    return [f"without eigenpact[{EXTRAS[package]}]: doctests of modules that need it are left out" for package in MISSING]

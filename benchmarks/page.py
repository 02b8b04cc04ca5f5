"""A family's results as a page of the documentation: the command, the machine, the versions, the day, and the table."""

from __future__ import annotations

import inspect
import os
import platform
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

from benchmarks.table import Row, as_markdown

PACKAGES = ("eigenpact", "numpy", "scipy", "scikit-learn")


def write_page(path: Path, family: str, module: ModuleType, size: str, rows: Iterable[Row]) -> None:
    """Write the page; what the family measures is the text of its module.  Neither the host nor a path is named."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(family, module, size, rows))


def page(family: str, module: ModuleType, size: str, rows: Iterable[Row]) -> str:
    """The page as Markdown."""
    rows = list(rows)
    headline, _, text = inspect.cleandoc(module.__doc__ or "").partition("\n")
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    machine = f"{os.cpu_count()} cores ({platform.machine()}, {platform.system()})"
    measured = [row for row in rows if row.met is not None]
    return f"""# Results: {family}

{headline}

{text.strip()}

This page was written by

```console not-run
$ python -m benchmarks.results {family} --size {size} --page docs/results/{family}.md
```

on {datetime.now(UTC):%Y-%m-%d}, on {machine}, with Python {platform.python_version()}, {versions}.
Of {len(measured)} rows {sum(bool(row.met) for row in measured)} meet their bar.

{as_markdown(rows)}
"""

"""A family's results as a page of the documentation: the command, the machine, the versions, the day, and the table.

What stands below the line ``KEPT`` of a page was written by hand, for example an earlier and larger measurement.  It stays when
the page is written again.
"""

from __future__ import annotations

import inspect
import os
import platform
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

from benchmarks.table import Row, as_markdown

PACKAGES = ("eigenpact", "numpy", "scipy", "scikit-learn")
FOLDER = Path(__file__).parents[1] / "docs" / "results"
KEPT = "<!-- What follows was written by hand. The command above keeps it. -->"

WORDS = """\
The *bar* of a row is the value that it must reach; the last column says whether it did. A row whose bar is "reported" has none. A
row that was not run says why. `--size small` is the short form, `--size paper` has the sizes and repeats of the papers."""


def page_of(family: str) -> Path:
    """Where the family's page is."""
    return FOLDER / f"{family}.md"


def write_page(path: Path, family: str, module: ModuleType, size: str, rows: Iterable[Row]) -> None:
    """Write the page; what the family measures is the text of its module.  Neither the host nor a path is named."""
    kept = path.read_text().partition(KEPT)[2] if path.exists() else ""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(family, module, size, rows) + (f"\n{KEPT}{kept}" if kept else ""))


def page(family: str, module: ModuleType, size: str, rows: Iterable[Row]) -> str:
    """The page as Markdown."""
    rows = list(rows)
    headline, _, text = inspect.cleandoc(module.__doc__ or "").replace("``", "`").partition("\n")
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    judged = [row for row in rows if row.met is not None and row.has_bar]
    return f"""# Results: {family}

{headline}

{text.strip()}

{WORDS}

This page was written by

```console not-run
$ python -m benchmarks.results {family} --size {size} --page docs/results/{family}.md
```

on {datetime.now(UTC):%Y-%m-%d}, on {machine()}, with Python {platform.python_version()}, {versions}.
Of {len(judged)} rows with a bar that were run, {sum(bool(row.met) for row in judged)} meet it.

{as_markdown(rows)}
"""


def machine() -> str:
    """The kind of machine, and how busy it was: cores, processor, memory, load."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    kind = f"{os.cpu_count()} cores ({_processor()}, {platform.machine()}, {platform.system()}) and {memory:.0f} GiB of memory"
    return f"{kind}, at a load of {os.getloadavg()[2]:.1f} over the last 15 minutes"


def _processor() -> str:
    """The processor's model, as Linux tells it."""
    facts = Path("/proc/cpuinfo")
    named = re.search(r"^model name\s*:\s*(.+)$", facts.read_text(), re.MULTILINE) if facts.exists() else None
    return named[1] if named else platform.processor() or "unknown processor"

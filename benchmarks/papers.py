"""Every table and figure of the five papers, computed again within a given time, and a page for each paper with what came out.

``make papers MINUTES=90`` runs ``eigenpact reproduce NAME --size paper`` for all names, two at a time and the quickest first, as
far as they fit.  Each goes to a file under ``out/papers``; pages are written from these files, so that a later run, also of a few
names (``ONLY="faps-table4 kernel-fig5"``), adds to them.  What did not run at the paper's size is shown at the small one, and
the page says so.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.page import PACKAGES, machine
from eigenpact.reproduce import CITED, PAPERS, REPRODUCTIONS, Size, Watch, find

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "results" / "papers"
STORE = Path("out/papers")
LONGEST = 3600.0
"""Seconds that one of them may take."""

Told = Mapping[str, Any]


def made(name: str, size: str, seed: int) -> dict[str, Any]:
    """Compute one, and say where and when."""
    begin = time.perf_counter()
    done = find(name).make(Size(size), seed, Watch())
    seconds = time.perf_counter() - begin
    versions = ", ".join(f"{package} {version(package)}" for package in PACKAGES)
    where = f"{machine()}, with Python {platform.python_version()}, {versions}"
    told = {"name": name, "size": size, "seed": seed, "seconds": seconds, "date": f"{datetime.now(UTC):%Y-%m-%d}", "where": where}
    remarks = [without_paths(remark) for remark in done.remarks]
    return told | {"title": done.title, "tables": [asdict(grid) for grid in done.grids], "remarks": remarks}


def without_paths(text: str) -> str:
    """No path of this machine: where data are said to be missing, the folder's variable stands instead."""
    known = os.environ.get("EIGENPACT_DATA")
    return (text.replace(known, "$EIGENPACT_DATA") if known else text).replace(str(Path.home()), "~")


def run_all(names: Sequence[str], size: str, seed: int, seconds: float, store: Path, workers: int) -> dict[str, str]:
    """Run each in a process of its own; those that do not fit are named with the reason."""
    store.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + seconds

    def one(name: str) -> str:
        left = min(end - time.monotonic(), LONGEST)
        if left <= 0:
            return f"the {seconds / 60:.0f} minutes were over before its turn"
        target = store / f"{name}-{size}.json"
        command = [
            sys.executable,
            "-m",
            "benchmarks.papers",
            "--one",
            name,
            "--size",
            size,
            "--seed",
            str(seed),
            "--store",
            str(store),
        ]
        threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        try:
            done = subprocess.run(command, cwd=ROOT, env=os.environ | threads, capture_output=True, text=True, timeout=left)
        except subprocess.TimeoutExpired:
            return f"it was not done after {left / 60:.0f} minutes"
        why = "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["no reason was given"])[-1]
        print(f"{name} --size {size}: {why or json.loads(target.read_text())['seconds']}", flush=True)
        return why

    with ThreadPoolExecutor(workers) as pool:
        return {name: why for name, why in zip(names, pool.map(one, names), strict=True) if why}


def remember(store: Path, names: Iterable[str], why_not: Mapping[str, str]) -> dict[str, str]:
    """Why something was not run at the paper's size, over several runs of this command."""
    path = store / "not-run.json"
    before = json.loads(path.read_text()) if path.exists() else {}
    after = {name: why for name, why in before.items() if name not in set(names)} | dict(why_not)
    path.write_text(json.dumps(after))
    return after


def stored(store: Path, name: str, size: str) -> dict[str, Any] | None:
    """What was computed before."""
    path = store / f"{name}-{size}.json"
    return json.loads(path.read_text()) if path.exists() else None


def quickest_first(names: Iterable[str], store: Path, size: str) -> list[str]:
    """By the time that an earlier run took, of this size or else of the small one."""

    def seconds(name: str) -> tuple[bool, float]:
        known = stored(store, name, size)
        small = stored(store, name, "small")
        return known is None, float((known or small or {"seconds": 0.0})["seconds"])

    return sorted(names, key=seconds)


def page(paper: str, found: Mapping[str, Told], why_not: Mapping[str, str]) -> str:
    """All tables and figures of a paper as Markdown."""
    names = [f"{paper}-{where.split('.')[1]}" for where in PAPERS[paper]]
    full = [name for name in names if name in found and found[name]["size"] == "paper"]
    lines = [f"# Computed again: {CITED[paper]}", ""]
    lines += [
        f"What each table and figure is: [the paper, row by row](../../reference/papers/{paper}.md). This page was written by",
        "",
    ]
    lines += ["```console not-run", "$ make papers", "```", ""]
    lines += [f"{len(full)} of {len(names)} ran at the paper's size. {_not_run(names, full, found, why_not)}".rstrip(), ""]
    for name in names:
        lines += _section(found[name]) if name in found else []
    return "\n".join(lines).rstrip() + "\n"


def _not_run(names: Sequence[str], full: Sequence[str], found: Mapping[str, Told], why_not: Mapping[str, str]) -> str:
    """Which were not, and why."""
    told = []
    for head, some in {
        "Not run at that size, and shown at the small one": [name for name in names if name in found and name not in full],
        "Not run here at all": [name for name in names if name not in found],
    }.items():
        reasons = [f"`{name}` ({why_not.get(name, 'it was not asked for')})" for name in some]
        told += [f"{head}: {', '.join(reasons)}."] if some else []
    return " ".join(told)


def _section(told: Told) -> list[str]:
    command = f"eigenpact reproduce {told['name']} --size {told['size']} --seed {told['seed']}"
    lines = [f"## {told['name']}", "", f"`{command}`, on {told['date']}: {told['seconds']:.0f} s on {told['where']}.", ""]
    for grid in told["tables"]:
        lines += [f"**{_plain(grid['title'])}**", "", _row(grid["columns"]), "|" + "---|" * len(grid["columns"])]
        lines += [*(_row(row) for row in grid["rows"]), ""]
    return [*lines, *(f"- {_plain(remark)}" for remark in told["remarks"]), ""]


def _row(cells: Iterable[Any]) -> str:
    return f"| {' | '.join(_plain(_cell(cell)) for cell in cells)} |"


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.2e}" if 0 < abs(value) < 1e-3 else f"{value:.5g}"
    return "-" if value is None else str(value)


def _plain(text: str) -> str:
    """On one line, with nothing that Markdown would take for its own."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")


def write_pages(store: Path, why_not: Mapping[str, str]) -> None:
    """A page for each paper of which something was computed."""
    PAGES.mkdir(parents=True, exist_ok=True)
    for paper, parts in PAPERS.items():
        names = [f"{paper}-{where.split('.')[1]}" for where in parts]
        found = {name: stored(store, name, "paper") or stored(store, name, "small") for name in names}
        known = {name: told for name, told in found.items() if told is not None}
        if known:
            (PAGES / f"{paper}.md").write_text(page(paper, known, why_not))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="all by default")
    parser.add_argument("--size", choices=[size.value for size in Size], default="paper")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=90.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--store", type=Path, default=STORE)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        (asked.store / f"{asked.one}-{asked.size}.json").write_text(json.dumps(made(asked.one, asked.size, asked.seed)))
        return 0
    names = [find(name).name for name in asked.names] or list(REPRODUCTIONS)
    if asked.size == "paper":  # the small one first: it tells which are quick, and stands in for what does not fit
        unknown = [name for name in names if not stored(asked.store, name, "small")]
        run_all(unknown, "small", asked.seed, 60 * asked.minutes, asked.store, asked.workers)
    ordered = quickest_first(names, asked.store, asked.size)
    why_not = run_all(ordered, asked.size, asked.seed, 60 * asked.minutes, asked.store, asked.workers)
    if asked.size == "paper":
        why_not = remember(asked.store, names, why_not)
    write_pages(asked.store, why_not)
    return 0


if __name__ == "__main__":
    sys.exit(main())

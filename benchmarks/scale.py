"""Scale: a file larger than memory, 10^5 and 10^6 features, 10^4 sites, 64 blocks of a Dask cluster; and constants to plan with.

Run as a table with ``make results FAMILY=scale``; ``SIZE=paper PAGE=1`` writes its page.  Every row is measured in a process of
its own (``benchmarks/scale_runs.py``).  Peak memory is the process's largest resident set.  All fits look for 5 components by
krylov, to an estimated sine of 1e-8.  "Sine" is that of the largest angle to the exact components, by numpy in float64.

The file holds copies of 20000 rows.  One pass is a product of all rows with a block of 9 columns; a fit makes one a round, and
reads the file twice more.

A slope is that of the logarithm of processor time over that of the number of messages, since rounds may differ by one, between
two numbers of sites on the same side of what a coordinator remembers one by one (ADR 22).  The coordinator is measured over sites
that all hold the same rows, of which one answers for all, so that what is left is its own work: seconds for a reply, bytes that
Python and numpy allot at most.  "Planned" rows are no measurements: they are the formulae of ``docs/explanation/scale.md`` with
the constants of the rows above.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.scale_runs import BASE, WIDTH
from benchmarks.table import Row, load_told, print_rows
from eigenpact.storage import spool_folder

MEMORY = 4e9
"""Bytes within which a file of 8 GB is to be fitted."""

SLACK = 1.3
"""How many times the larger of reading and computing a pass may take."""

COLUMNS = 1000
"""Columns of d doubles that a fit may take beside its rows; one that makes a d x d array takes d of them."""

BLOCKS = 3
"""Blocks that a coordinator with little memory keeps."""

SLOW: dict[str, Any] = {"n": 500, "d": 100_000, "sites": 4, "density": 1e-3}
"""Rows whose directions are found in so many rounds that the number of blocks counts."""

SIZES: dict[str, dict[str, Any]] = {
    "small": {
        "copies": 2,
        "wide": (300, 20_000),
        "widest": (60, 100_000),
        "sparse": (200, 50_000, 1e-3),
        "sites": (500, 1500),
        "coordinator": {500: (1600, 3200)},
        "dask": 20_000,
    },
    "paper": {
        "copies": 50,
        "wide": (2000, 100_000),
        "widest": (200, 1_000_000),
        "sparse": (2000, 1_000_000, 1e-4),
        "sites": (15_000, 30_000),
        "coordinator": {50: (16_000, 32_000), 500: (2000, 10_000)},
        "dask": 200_000,
    },
}
"""Copies of the rows in the file; rows, features and density; sites; sites by number of features; rows of the dask array."""


def run(name: str, **arguments: Any) -> dict[str, Any]:
    """What one measurement found, made in a process of its own with one thread in BLAS."""
    command = [sys.executable, "-m", "benchmarks.scale_runs", name, json.dumps(arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command[2:])} failed: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def rows(size: str) -> Iterator[Row]:
    """The table."""
    p = SIZES[size]
    yield from _file(p["copies"])
    yield from _features(p)
    constants, measured = _sites(*p["sites"], p["coordinator"])
    yield from measured
    yield _dask(p["dask"])
    yield from _planned(constants)


def _loaded(met: bool) -> str:
    return "" if met else load_told()


def _file(copies: int) -> Iterator[Row]:
    with tempfile.TemporaryDirectory(dir=spool_folder()) as folder:
        path = str(Path(folder) / "rows.npy")
        size = run("write", path=path, copies=copies, d=2000)["bytes"]
        found = run("out_of_core", path=path)
    what = f"{copies * BASE} x 2000 float32, a file of {size / 1e9:.2g} GB, one site"
    told = f"{found['peak'] / 1e9:.2f} GB; sine {found['sine']:.0e}; {found['rounds']} rounds in {found['wall']:.0f} s"
    good = found["peak"] <= MEMORY and found["sine"] <= 1e-7
    yield Row(f"{what}: peak resident memory", f"<= {MEMORY / 1e9:.0f} GB", told, good)
    reading, computing, both = (found[name] for name in ("reading", "computing", "both"))
    ratio = both / max(reading, computing)
    told = f"{ratio:.2f} times: reading {reading:.1f} s, computing {computing:.1f} s, both {both:.1f} s"
    yield Row(
        f"{what}: a pass, reading overlaps computing",
        f"<= {SLACK} times the larger",
        told,
        ratio <= SLACK,
        _loaded(ratio <= SLACK),
    )
    told = f"{both / found['bare']:.1f} times: {both:.1f} s, and {found['bare']:.1f} s to read the file and do nothing"
    yield Row(f"{what}: a pass beside merely reading the file", "reported", told, True)


def _features(p: dict[str, Any]) -> Iterator[Row]:
    (n, d), (few, most), (some, columns, density) = p["wide"], p["widest"], p["sparse"]
    kinds: tuple[tuple[str, dict[str, Any]], ...] = (
        (f"{n} x {d} float32, 4 sites", {"n": n, "d": d, "sites": 4}),
        (f"{few} x {most} float32, 4 sites", {"n": few, "d": most, "sites": 4}),
        (f"sparse {some} x {columns}, density {density:g}, 4 sites", {"n": some, "d": columns, "sites": 4, "density": density}),
        ("sparse 500 x 100000, density 0.001, 4 sites", SLOW),
        (f"the same, Krylov(max_blocks={BLOCKS})", SLOW | {"max_blocks": BLOCKS}),
    )
    for what, given in kinds:
        found = run("wide", **given)
        good = found["columns"] <= COLUMNS and found["sine"] <= 1e-6 and found["converged"]
        told = (
            f"{found['columns']:.0f}, {8e-9 * found['columns'] * given['d']:.2f} GB; sine {found['sine']:.0e}; "
            f"{found['rounds']} rounds in {found['wall']:.1f} s (processor time {found['cpu']:.1f} s)"
        )
        why = "" if found["columns"] <= COLUMNS else "blocks, what is remembered of products, and sums of parts of the rows"
        yield Row(f"{what}: peak memory beside the rows, in columns of d doubles", f"<= {COLUMNS}", told, good, why)


def _sites(less: int, sites: int, coordinated: dict[int, tuple[int, int]]) -> tuple[dict[str, float], list[Row]]:
    table: list[Row] = []
    few, many = (run("many_sites", sites=number, rows=20, d=50) for number in (less, sites))
    slope = math.log(many["cpu"] / few["cpu"]) / math.log(many["messages"] / few["messages"])
    steps = many["messages"] / sites / 2
    told = (
        f"{slope:.2f}: {few['cpu']:.1f} and {many['cpu']:.1f} s, {1e6 * many['cpu'] / sites / steps:.0f} us for a site's reply; "
        f"sine {many['sine']:.0e}; {many['rounds']} and {many['setup']} rounds"
    )
    met = abs(slope - 1) <= 0.1 and many["sine"] <= 1e-7
    table.append(Row(f"{sites} sites of 20 x 50 in one process: growth of time", "slope 1 +- .1", told, met, _loaded(met)))
    labelled = run("many_sites", sites=sites, rows=20, d=50, labels=True)
    ratio = labelled["cpu"] / many["cpu"]
    told = f"{ratio:.2f} times: {labelled['cpu']:.1f} s"
    table.append(
        Row(f"{sites} sites by a label per row, beside a dictionary", "<= 1.3 times", told, ratio <= 1.3, _loaded(ratio <= 1.3))
    )
    constants: dict[str, float] = {"replies": steps, "request": run("serving", repeats=5000, d=50)["request"]}
    for d, (less, more) in coordinated.items():
        quick = run("coordinator", sites=less, rows=20, d=d, trace=False)
        one, two = (run("coordinator", sites=number, rows=20, d=d, trace=True)["most"] for number in (less, more))
        reply, share = quick["cpu"] / less / quick["steps"], (two - one) / (more - less)
        constants |= {f"reply {d}": reply, f"bytes {d}": share}
        told = (
            f"{share:.0f} bytes each: {one / 1e6:.1f} MB for {less}, {two / 1e6:.1f} MB for {more}; {1e6 * reply:.0f} us a reply"
        )
        bar = "<= 200 bytes a site"
        table.append(Row(f"growth of a coordinator's memory, {d} features", bar, told, share <= 200))
    told = f"{1e6 * constants['request']:.0f} us"
    table.append(Row("a site's server, for a request that does nothing", "reported", told, True))
    return constants, table


def _dask(n: int) -> Row:
    what = f"Dask: {n} x 200, 64 blocks on 2 workers, beside 2 sites in this process"
    if find_spec("distributed") is None or find_spec("dask") is None:
        return Row(what, "reported", "", None, "Dask is not installed: pip install eigenpact[dask]")
    found = run("dask_blocks", n=n, d=200, blocks=64, workers=2)
    good = found["sine"] <= 1e-8 and found["rounds"] == found["rounds_here"] and found["blocks"] == 64
    told = (
        f"{found['sites']} sites, {found['rounds']} and {found['rounds_here']} rounds, sine between both {found['sine']:.0e}; "
        f"{found['wall']:.2f} s and {found['here']:.2f} s"
    )
    return Row(what, "the same rounds and directions", told, good)


def _planned(constants: dict[str, float]) -> Iterator[Row]:
    """10^6 sites of 10^3 rows: what ``docs/explanation/scale.md`` says of it."""
    sites, rounds = 10**6, constants["replies"]
    for d in (int(name.split()[1]) for name in constants if name.startswith("reply ")):
        reply = constants[f"reply {d}"]
        told = (
            f"{sites * rounds * reply / 60:.0f} minutes of one core for {rounds:.0f} replies of each; "
            f"{8e-9 * d * WIDTH * sites:.2g} GB a round; {1e-9 * constants[f'bytes {d}'] * sites:.1f} GB of memory"
        )
        yield Row(f"planned: a coordinator of 10^6 sites, 10^9 rows, {d} features", "reported", told, True)


if __name__ == "__main__":
    chosen = sys.argv[1] if sys.argv[1:] else "small"
    sys.exit(not print_rows(f"scale, --size {chosen}", rows(chosen), markdown=False))

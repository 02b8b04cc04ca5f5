"""Files larger than memory: ``python -m benchmarks.big_files --size 200MB`` (``make big-files SIZE=paper`` for 8 and 4 GB).

A small table is written many times over, one copy below the other: as text, and as PLINK's genotypes of half that size.  The
components of all copies are those of one, which numpy computes from the small table in memory.  ``eigenpact fit --memory 512MB``
runs as a process of its own, whose anonymous memory is looked at every few milliseconds.  Nothing is left behind.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.table import Row, load_told, print_rows
from eigenpact.data.budgets import memory_for_rows, parse_memory
from eigenpact.data.packed_genotypes import pack
from eigenpact.data.readers import read_table
from eigenpact.estimators.model_files import load_model
from eigenpact.numerics.metrics import largest_sine
from eigenpact.numerics.rows import Rows, block_rows
from eigenpact.numerics.sources import RowSource, pieces
from eigenpact.storage import spool_folder

MEMORY, MOST = "512MB", 768e6
SIZES = {"small": 2e8, "paper": 8e9}
COMPONENTS, WIDTH = 3, 14
SLACK = 1.3


def small_table(n: int, d: int, seed: int) -> Any:
    """Three directions that stand out."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 4)) @ (rng.normal(size=(4, d)) * np.array([[4.0], [3.0], [2.0], [0.5]])) + rng.normal(size=(n, d))


def write_csv(path: Path, size: float) -> Any:
    """Text of about so many bytes; returns the rows that are repeated."""
    X = np.round(small_table(20000, 100, 0), 4)
    lines = [f"{value:.4f}" for value in X.ravel()]
    block = "".join(",".join(lines[100 * i : 100 * i + 100]) + "\n" for i in range(len(X))).encode()
    with path.open("wb") as stream:
        stream.write((",".join(f"f{j}" for j in range(100)) + "\n").encode())
        for _ in range(max(1, round(size / len(block)))):
            stream.write(block)
    return X


def write_bed(path: Path, size: float) -> Any:
    """PLINK files of about so many bytes; returns the rows that are repeated."""
    n, d = 2000, 4000 if size < 1e9 else 20000
    structure = small_table(n, d, 1)
    X = (structure > 0.5).astype(np.uint8) + (structure > -0.5).astype(np.uint8)
    copies = max(1, round(4 * size / (n * d)))
    with path.open("wb") as stream:
        stream.write(b"\x6c\x1b\x01")
        for record in pack(np.ascontiguousarray(X.T)):
            stream.write(np.tile(record, copies).tobytes())
    path.with_suffix(".bim").write_text("".join(f"1\trs{j}\t0\t{j + 1}\tA\tG\n" for j in range(d)))
    path.with_suffix(".fam").write_text("".join(f"0 p{i} 0 0 0 -9\n" for i in range(n * copies)))
    return X.astype(np.float64)


def truth(X: Any) -> Any:
    """The leading directions (d x k) of the small table in memory."""
    Y = X - X.mean(axis=0)
    values, left = np.linalg.eigh(Y @ Y.T if len(Y) < Y.shape[1] else Y.T @ Y)
    top = left[:, np.argsort(values)[::-1][:COMPONENTS]]
    return np.linalg.qr(Y.T @ top)[0] if len(Y) < Y.shape[1] else top


def peak_of(command: list[str]) -> tuple[float, float, str]:
    """The largest anonymous memory of a process in bytes, its seconds, and what it printed if it failed."""
    begin, peak = time.perf_counter(), [0]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def watch() -> None:
        status = Path(f"/proc/{process.pid}/status")
        while process.poll() is None:
            try:
                lines = [line for line in status.read_text().splitlines() if line.startswith("RssAnon")]
            except OSError:
                return
            peak[0] = max([peak[0], *(1024 * int(line.split()[1]) for line in lines)])
            time.sleep(0.01)

    watcher = threading.Thread(target=watch)
    watcher.start()
    output = process.communicate()[0]
    watcher.join()
    return float(peak[0]), time.perf_counter() - begin, "" if process.returncode == 0 else output[-500:]


def overlap(path: Path) -> tuple[float, float, float]:
    """Seconds of one pass over the file's rows: reading alone, a product alone, and both as ``fit`` does them."""
    X = read_table(path, memory=memory_for_rows(parse_memory(MEMORY))).X
    assert isinstance(X, RowSource)
    step, Z = block_rows(X.shape[1]), np.random.default_rng(0).normal(size=(X.shape[1], WIDTH))
    mean = np.zeros(X.shape[1])
    begin, number = time.perf_counter(), 0
    for _ in pieces(X, step):
        number += 1
    reading = time.perf_counter() - begin
    held = Rows(next(iter(pieces(X, step)))[1], mean)
    begin = time.perf_counter()
    for _ in range(number):
        held.scatter_action(Z)
    computing = time.perf_counter() - begin
    begin = time.perf_counter()
    Rows(X, mean).scatter_action(Z)
    both = time.perf_counter() - begin
    X.close()
    return reading, computing, both


def rows_of(what: str, write: Callable[[Path, float], Any], size: float, folder: Path, ending: str) -> Iterator[Row]:
    """One file: how much memory its fit took, whether it is right, and whether reading overlaps computing."""
    path, model = folder / f"big{ending}", folder / f"model{ending}"
    X = write(path, size)
    command = [sys.executable, "-c", "from eigenpact.cli import main; main()", "fit", str(path), "-k", str(COMPONENTS)]
    peak, seconds, failed = peak_of([*command, "--solver", "krylov", "-q", "-o", str(model), "--memory", MEMORY])
    name = f"{what} of {path.stat().st_size / 1e9:.2g} GB, --memory {MEMORY}"
    if failed:
        yield Row(name, "a model", failed, False)
        return
    yield Row(
        f"{name}: peak anonymous memory", f"<= {MOST / 1e6:.0f} MB", f"{peak / 1e6:.0f} MB in {seconds:.0f} s", peak <= MOST
    )
    sine = largest_sine(load_model(model).components_.T, truth(X))
    yield Row(f"{name}: sine to numpy's directions of one copy in memory", "<= 1e-8", f"{sine:.1e}", sine <= 1e-8)
    reading, computing, both = overlap(path)
    ratio = both / max(reading, computing)
    times = f"{ratio:.2f} times: reading {reading:.1f} s, computing {computing:.1f} s, both {both:.1f} s a pass"
    yield Row(
        f"{name}: reading overlaps computing",
        f"<= {SLACK} times the larger",
        times,
        ratio <= SLACK,
        "" if ratio <= SLACK else load_told(),
    )
    for part in folder.iterdir():
        shutil.rmtree(part) if part.is_dir() else part.unlink()


def rows(size: str, kinds: str = "csv bed") -> Iterator[Row]:
    """Measure and yield a row at a time; ``size`` is small, paper, or that of the text file."""
    wanted = SIZES.get(size) or float(parse_memory(size))
    with tempfile.TemporaryDirectory(dir=spool_folder()) as folder:
        free = shutil.disk_usage(folder).free
        if free < 2.5 * wanted:
            yield Row(
                f"files of {wanted / 1e9:.1f} GB", "written", f"{free / 1e9:.1f} GB free in {folder}", None, "not enough room"
            )
            return
        if "csv" in kinds:
            yield from rows_of("a CSV file", write_csv, wanted, Path(folder), ".csv")
        if "bed" in kinds:
            yield from rows_of("a bed file", write_bed, wanted / (2 if wanted > 1e9 else 5), Path(folder), ".bed")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", default="small")
    parser.add_argument("--kinds", default="csv bed")
    given = parser.parse_args()
    sys.exit(not print_rows("Files larger than memory", rows(given.size, given.kinds), markdown=False))

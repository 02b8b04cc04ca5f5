"""Text tables: hospitals' exports mended by suggested descriptions, speed beside pyarrow, memory, and malformed files."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import numpy as np
from tests.data import hospitals
from tests.fuzz.files import explore

from benchmarks.table import Row, least_seconds, load_told
from eigenpact.data.readers import read_table
from eigenpact.errors import DataUnavailableError
from eigenpact.estimators.model_files import load_model

COMMAND = [sys.executable, "-c", "from eigenpact.cli import main; main()"]
PEAK = """
import sys, threading, time
from pathlib import Path
from eigenpact.data.readers import read_table
import pyarrow.csv, numpy as np
def anonymous():
    return next(int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon"))
start, peak, over = anonymous(), 0, False
def watch():
    global peak
    while not over:
        peak = max(peak, anonymous()); time.sleep(0.005)
thread = threading.Thread(target=watch); thread.start()
X = read_table(sys.argv[1], memory=int(sys.argv[2])).X
sums = np.zeros(X.shape[1])
for first in range(0, X.shape[0], 4096):
    sums += X[first : first + 4096].sum(axis=0)
over = True; thread.join()
print(type(X).__name__, X.shape[0], (peak - start) // 1024, sums.sum())
"""


def rows(size: str) -> Iterator[Row]:
    """Measure and yield a row at a time."""
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        yield hospitals_row()
        megabytes = 60 if size == "small" else 1000
        path = write_numbers(Path("numbers.csv"), megabytes)
        yield speed_row(path)
        yield memory_row(path, megabytes)
    yield fuzz_row(200 if size == "small" else 5000)


def hospitals_row() -> Row:
    """Four hospitals: problems named, descriptions suggested, the same bits."""
    what = "heart disease, 4 hospitals: decimal commas, semicolons, latin-1, other column order, one column renamed, NA and ?"
    bar = "each problem named with file, line and column; with the suggested TOML equal to the clean run to the bit"
    Path("clean").mkdir()
    Path("messy").mkdir()
    try:
        clean, messy = hospitals.write_clean(Path("clean"), hospitals.USED), hospitals.write_messy(Path("messy"))
    except DataUnavailableError as error:
        return Row(what, bar, "", None, str(error))
    eigenpact("fit", *clean, "-k", "3", "-o", "expected")
    first = eigenpact("fit", *messy, "-k", "3", "-o", "model")
    told = [line for line in first.stderr.splitlines() if "messy/" in line and ", line " in line]
    needed = ("is not UTF-8", "'?' is not a number", "other files have 'trestbps'", "separated by a semicolon", "decimal comma")
    named = first.returncode == 2 and all(any(word in line for line in told) for word in needed)
    for path in messy:
        eigenpact("describe", path, "-o", f"{path}.toml", "--features", ",".join(hospitals.USED))
    eigenpact("fit", *messy, "-k", "3", "-o", "model")
    got, expected = load_model("model"), load_model("expected")
    same = got.components_.tobytes() == expected.components_.tobytes() and got.mean_.tobytes() == expected.mean_.tobytes()
    reached = f"{len(told)} places named; {'the same bits' if same else 'other bits'} after 4 descriptions"
    return Row(what, bar, reached, bool(named and same))


def eigenpact(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    return subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True, check=False)


def write_numbers(path: Path, megabytes: int) -> Path:
    """A table of 100 columns of normal numbers, all digits."""
    rng = np.random.default_rng(0)
    lines = [",".join(map(repr, row)) + "\n" for row in rng.standard_normal((1000, 100)).tolist()]
    with path.open("w") as file:
        file.write(",".join(f"c{j}" for j in range(100)) + "\n")
        while file.tell() < megabytes * 10**6:
            rng.shuffle(lines)
            file.writelines(lines)
    return path


def speed_row(path: Path) -> Row:
    """Our reader beside pyarrow's own, in turn."""
    import pyarrow.csv

    ours, theirs = least_seconds(lambda: read_table(path), lambda: pyarrow.csv.read_csv(path))
    rate = os.path.getsize(path) / 1e6 / ours
    reached = f"{ours / theirs:.2f} times ({rate:.0f} MB/s, to an array of rows)"
    why = "" if ours <= 1.5 * theirs else load_told()
    return Row(f"reading a CSV of {os.path.getsize(path) / 1e6:.0f} MB, 100 columns", "<= 1.5 times pyarrow's own read", reached,
               ours <= 1.5 * theirs, why)  # fmt: skip


def memory_row(path: Path, megabytes: int) -> Row:
    """Anonymous memory that reading and one pass over the rows take, in a process of its own."""
    memory = 16 << 20
    done = subprocess.run([sys.executable, "-c", PEAK, str(path), str(memory)], capture_output=True, text=True, check=True)
    kind, n, peak, total = done.stdout.split()
    X = read_table(path).X
    same = float(total) == sum_in_blocks(X)
    what = f"a CSV of {megabytes} MB whose rows may take 16 MiB: read, and one pass over the rows"
    met = kind == "SpooledRows" and int(n) == len(X) and same and int(peak) < 128
    return Row(
        what,
        "anonymous memory <= 128 MiB more than before, the same sums",
        f"{peak} MiB, {'the same' if same else 'other'} sums",
        met,
    )


def sum_in_blocks(X: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> float:
    """As the other process adds up."""
    sums = np.zeros(X.shape[1])
    for first in range(0, X.shape[0], 4096):
        sums += X[first : first + 4096].sum(axis=0)
    return float(sums.sum())


def fuzz_row(files: int) -> Row:
    """Malformed files, descriptions and headers."""
    tried = list(explore(files, seed=1))
    wrong = [each for each in tried if each.word == "wrong"]
    refused = sum(each.word == "refused" for each in tried)
    what = f"{files} malformed files, descriptions and headers of {len({each.kind for each in tried})} kinds"
    bar = "a clear error naming the file, never a traceback, never a partial output"
    return Row(what, bar, f"{refused} refused, {len(tried) - refused - len(wrong)} read, {len(wrong)} wrong", not wrong)

"""Files: genotypes as fast as the library that reads them, 14 populations as PLINK files, and files larger than memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks import big_files
from benchmarks.table import Row, least_seconds, load_told
from eigenpact import FederatedPCA, datasets
from eigenpact.data.readers import read_table
from eigenpact.numerics.metrics import largest_sine

TIMES = 1.5
COMPONENTS = 6


def write_populations(folder: Path) -> dict[str, Path]:
    """The 1000 Genomes phase 1 set as PLINK files, one for each of its 14 populations: population -> its .bed file."""
    from bed_reader import to_bed

    data = datasets.load("genomes")
    counts, populations, names = np.asarray(data.X), np.asarray(data.groups["population"]), list(data.feature_names or ())
    written = {}
    for population in np.unique(populations).tolist():
        rows = np.flatnonzero(populations == population)
        properties = {
            "fid": [str(population)] * len(rows),
            "iid": [str(data.extra["sample"][i]) for i in rows],
            "sid": names,
            "chromosome": ["1"] * len(names),
            "bp_position": data.extra["pos_b37"].tolist(),
            "allele_1": data.extra["a1"].tolist(),
            "allele_2": data.extra["a2"].tolist(),
        }
        path = written[str(population)] = folder / f"{population}.bed"
        to_bed(path, np.where(counts[rows] < 0, -127, counts[rows]).astype(np.int8), properties=properties)
    return written


def _populations(folder: Path) -> Row:
    """The joint PCA of the files against a dense factorization of all rows by numpy."""
    files = write_populations(folder)
    held = {name: read_table(path) for name, path in files.items()}
    in_bytes = sum(table.X.counts.nbytes for table in held.values())
    pca = FederatedPCA(COMPONENTS, random_state=0).fit({name: table.X for name, table in held.items()})
    X = np.asarray(datasets.load("genomes").X, dtype=np.float64)
    Y = X - X.mean(axis=0)
    values, left = np.linalg.eigh(Y @ Y.T)
    exact = np.linalg.qr(Y.T @ left[:, np.argsort(values)[::-1][:COMPONENTS]])[0]
    sine = largest_sine(pca.components_.T, exact)
    what = f"1000 Genomes, {len(held)} populations as PLINK files: sine to numpy's directions of all rows, centred"
    return Row(what, "<= 1e-8", f"{sine:.1e}, {in_bytes / 1e6:.1f} MB of bytes in memory", sine <= 1e-8)


def _speed(folder: Path, size: str) -> Row:
    """Our reader, names of people and variants and all, against bed-reader's read of the same file, in turn."""
    from bed_reader import open_bed

    path = folder / "speed.bed"
    big_files.write_bed(path, 1e7 if size == "small" else 5e7)

    def theirs() -> None:
        with open_bed(path) as bed:
            bed.read(dtype="int8", order="C")
            _ = bed.sid, bed.iid

    ours, peer = least_seconds(lambda: read_table(path), theirs, times=9)
    ratio, met = ours / peer, ours <= TIMES * peer
    told = f"{ratio:.2f} times: {1e3 * ours:.0f} and {1e3 * peer:.0f} ms for {path.stat().st_size / 1e6:.0f} MB"
    return Row("a bed file read into bytes, against bed-reader", f"<= {TIMES} times", told, met, "" if met else load_told())


def rows(size: str) -> Iterator[Row]:
    """Measure and yield a row at a time."""
    with tempfile.TemporaryDirectory() as folder:
        yield _speed(Path(folder), size)
        yield _populations(Path(folder))
    yield from big_files.rows(size)


if __name__ == "__main__":
    from benchmarks.table import print_rows

    print_rows("Files", rows("small"), markdown=False)

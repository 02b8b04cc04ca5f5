"""Honest arrays, cells and genotypes, changes that keep their outer form, and how they are read: loaded, and in pieces."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from eigenpact.data.readers import read_table
from eigenpact.errors import EigenpactError
from eigenpact.numerics.sources import RowSource

Rng = np.random.Generator

PEOPLE, VARIANTS = 9, 14
LITTLE = 60
"""Bytes of memory that make every file a large one."""

WORDS = [
    "", ".", "-1", "0", "99999999999999999999", "1e9", "rs1", "A", "A,T", "<DEL>", "\u00e9", "\x00", "x" * 3000, "#CHROM", "##x",
    "#IID", "GT", "0/0", "./.", "7|9", "0/1/1", "NaN",
]  # fmt: skip
KINDS = ("bed", "bim", "fam", "pgen", "pvar", "psam", "vcf", "bcf", "h5", "h5ad", "zarr.zip")
KINDS_IN_PIECES = ("npy in pieces", "npz in pieces", "sparse in pieces")

FILES = ("g.", "t.h5", "t.zarr", "t.np", "sparse.npz", "site 't'", "site 'g'", "site 'sparse'")
"""A refusal names one of these."""


def honest(rows: np.ndarray[Any, Any]) -> dict[str, bytes]:
    """Files by name, for the libraries that are installed."""
    counts = np.random.default_rng(0).integers(-1, 3, (PEOPLE, VARIANTS)).astype(np.int8)
    return _plink(counts) | _vcf(counts) | _hdf5(rows) | _zarr(rows)


def _plink(counts: Any) -> dict[str, bytes]:
    try:
        import pgenlib
        from bed_reader import to_bed
    except ImportError:
        return {}
    to_bed("g.bed", np.where(counts < 0, -127, counts).astype(np.int8))
    writer = pgenlib.PgenWriter(b"g.pgen", PEOPLE, variant_ct=VARIANTS, nonref_flags=False)
    writer.append_biallelic_batch(np.ascontiguousarray(np.where(counts < 0, -9, counts).T.astype(np.int8)))
    writer.close()
    lines = "".join(f"1\t{100 * j}\trs{j}\tG\tA\n" for j in range(VARIANTS))
    Path("g.pvar").write_text("##x=y\n#CHROM\tPOS\tID\tREF\tALT\n" + lines)
    Path("g.psam").write_text("#FID\tIID\tSEX\tPOP\n" + "".join(f"0\tp{i}\t1\tX{i % 2}\n" for i in range(PEOPLE)))
    return {f"g.{end}": Path(f"g.{end}").read_bytes() for end in ("bed", "bim", "fam", "pgen", "pvar", "psam")}


def _vcf(counts: Any) -> dict[str, bytes]:
    try:
        import cyvcf2
    except ImportError:
        return {}
    called = {-1: "./.", 0: "0/0", 1: "0|1", 2: "1/1"}
    head = '##fileformat=VCFv4.2\n##contig=<ID=1>\n##FORMAT=<ID=GT,Number=1,Type=String,Description="Genotype">\n'
    names = ["#CHROM", "POS", "ID", "REF", "ALT", "QUAL", "FILTER", "INFO", "FORMAT"]
    head += "\t".join([*names, *(f"p{i}" for i in range(PEOPLE))])
    lines = [
        "\t".join(["1", str(100 * (j + 1)), f"rs{j}", "G", "A", ".", ".", ".", "GT", *(called[int(g)] for g in counts[:, j])])
        for j in range(VARIANTS)
    ]
    Path("g.vcf").write_text("\n".join([head, *lines]) + "\n")
    reader = cyvcf2.VCF("g.vcf")
    writer = cyvcf2.Writer("g.bcf", reader, mode="wb")
    for record in reader:
        writer.write_record(record)
    writer.close()
    reader.close()
    return {"g.vcf": Path("g.vcf").read_bytes(), "g.bcf": Path("g.bcf").read_bytes()}


def _hdf5(rows: Any) -> dict[str, bytes]:
    try:
        import h5py
    except ImportError:
        return {}
    plain, cells = io.BytesIO(), io.BytesIO()
    with h5py.File(plain, "w") as file:
        file.create_dataset("deep/X", data=rows, chunks=(10, 5), compression="gzip")
        file["feature_names"] = list("pqrst")
    S = sp.random(30, 6, 0.3, format="csr", random_state=0)
    with h5py.File(cells, "w") as file:
        file.attrs["encoding-type"] = "anndata"
        X = file.create_group("X")
        X.attrs["encoding-type"], X.attrs["shape"] = "csr_matrix", S.shape
        X["data"], X["indices"], X["indptr"] = S.data, S.indices, S.indptr
        for kind, n in (("obs", 30), ("var", 6)):
            group = file.create_group(kind)
            group.attrs["_index"] = "name"
            group["name"] = [f"{kind}{i}" for i in range(n)]
        label = file.create_group("obs/kind")
        label["codes"], label["categories"] = np.arange(30, dtype=np.int8) % 3 - 1, ["T", "B"]
    return {"t.h5": plain.getvalue(), "t.h5ad": cells.getvalue()}


def _zarr(rows: Any) -> dict[str, bytes]:
    try:
        import zarr
    except ImportError:
        return {}
    with zarr.storage.ZipStore("t.zarr.zip", mode="w") as store:
        zarr.create_array(store, shape=rows.shape, chunks=(10, 5), dtype=rows.dtype)[:] = rows
    return {"t.zarr.zip": Path("t.zarr.zip").read_bytes()}


def change_words(data: bytes, rng: Rng) -> bytes:
    """Words and lines of a text replaced, left out, or put in."""
    lines = data.decode(errors="replace").splitlines()
    for _ in range(rng.integers(1, 4)):
        at, way = int(rng.integers(len(lines))), rng.integers(5)
        words = lines[at].split("\t")
        if way <= 1:
            words[rng.integers(len(words))] = WORDS[rng.integers(len(WORDS))]
            lines[at] = "\t".join(words)
        elif way == 2:
            lines[at] = "\t".join(words[: rng.integers(len(words) + 1)])
        elif way == 3:
            lines.insert(at, lines[rng.integers(len(lines))])
        else:
            del lines[at]
            lines = lines or [""]
    return "\n".join(lines).encode()


def change_hdf5(data: bytes, rng: Rng) -> bytes:
    """A file cut off, or bytes of it overwritten, but for heaps of texts: over some damaged ones the HDF5 library never ends."""
    out = bytearray(data[: rng.integers(len(data))] if rng.random() < 0.2 else data)
    heaps = [at for at in range(len(data)) if data.startswith(b"GCOL", at)]
    for _ in range(rng.integers(1, 6)):
        at = int(rng.integers(len(out) + 1))
        end = min(len(out), at + int(rng.choice([1, 1, 1, 8, 64])))
        if not any(heap - 64 < at < heap + 4096 for heap in heaps):
            out[at:end] = rng.bytes(end - at)
    return bytes(out)


def change_zip(data: bytes, rng: Rng, change_bytes: Callable[[bytes, Rng], bytes]) -> bytes:
    """A member of an archive changed or left out, in an archive that is whole."""
    import zipfile

    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        chosen = old.namelist()[rng.integers(len(old.namelist()))]
        for name in old.namelist():
            if name != chosen:
                new.writestr(name, old.read(name))
            elif rng.random() < 0.8:
                new.writestr(name, change_bytes(old.read(name), rng))
    return out.getvalue()


def reading(name: str, files: Callable[[], dict[str, bytes]], memory: tuple[int | None, ...] = (None, LITTLE)) -> Any:
    """What writes a changed file beside the honest ones that belong to it, and reads the table: loaded and in pieces."""

    def read(data: bytes) -> Any:
        stem = name.partition(".")[0]
        for other, content in files().items():
            if other.startswith("g.") and other.partition(".")[0] == stem:
                Path(other).write_bytes(content)
        Path(name).write_bytes(data)
        main = {"bim": "bed", "fam": "bed", "pvar": "pgen", "psam": "pgen"}.get(name.rpartition(".")[2])
        found = None
        for little in memory:
            with _quiet():
                rows = read_table(f"{stem}.{main}" if main else name, memory=little).X
                if isinstance(rows, RowSource):
                    found = [rows[first : first + 7] for first in range(0, rows.shape[0], 7)][-1]
                    rows.close()
        return found

    return read


@contextlib.contextmanager
def _quiet() -> Any:
    """Libraries in C write to the process's own stderr."""
    saved, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(nowhere)


def kinds(change_bytes: Callable[[bytes, Rng], bytes], change_npz: Any, files: Callable[[], dict[str, bytes]]) -> dict[str, Any]:
    """Kind -> the honest file, ways to change it, and how it is read."""

    def archive(data: bytes, rng: Rng) -> bytes:
        return change_zip(data, rng, change_bytes)

    words = {"bim", "fam", "pvar", "psam", "vcf"}
    genotypes = {
        end: (f"g.{end}", (change_bytes, change_words) if end in words else (change_bytes,), reading(f"g.{end}", files))
        for end in ("bed", "bim", "fam", "pgen", "pvar", "psam", "vcf", "bcf")
    }
    return genotypes | {
        "h5": ("t.h5", (change_hdf5,), reading("t.h5", files)),
        "h5ad": ("t.h5ad", (change_hdf5,), reading("t.h5ad", files)),
        "zarr.zip": ("t.zarr.zip", (change_bytes, archive), reading("t.zarr.zip", files)),
        "npy in pieces": ("t.npy", (change_bytes,), reading("t.npy", files, (LITTLE,))),
        "npz in pieces": ("t.npz", (change_bytes, change_npz), reading("t.npz", files, (LITTLE,))),
        "sparse in pieces": ("sparse.npz", (change_bytes, change_npz), reading("sparse.npz", files, (LITTLE,))),
    }


def names_no_file(kind: str, told: EigenpactError) -> bool:
    """Whether a refusal leaves open which file is meant."""
    return kind in KINDS + KINDS_IN_PIECES and not any(name in str(told) for name in FILES)

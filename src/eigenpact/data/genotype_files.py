"""Readers of genotypes: PLINK (.bed with .bim and .fam), PLINK 2 (.pgen with .pvar and .psam), VCF and BCF.

Rows are people, columns variants, entries how many copies of the counted allele a person has, as bytes; see ``CountRows``.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import FileError, MissingExtraError
from ..numerics.sources import CountRows
from ..storage import open_regular
from .budgets import piece_bytes
from .description import Description
from .packed_genotypes import PackedRows, gather
from .table import Table, reads
from .variant_files import Found, People, read_bim, read_fam, read_psam, read_pvar

Bytes = NDArray[np.uint8]

SLAB_BYTES = 1 << 24
BED_MAGIC = b"\x6c\x1b\x01"

MANY = "variants with more or fewer than two alleles were left out"


def _library(name: str, package: str, what: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtraError(
            f"reading {what} files needs {package} ({error}); run: pip install 'eigenpact[genotypes]'"
        ) from error


def _slab_size(n: int, memory: int | None) -> int:
    """Variants to read at a time, a multiple of four: bytes of so many people fit into a piece."""
    size = SLAB_BYTES if memory is None else piece_bytes(memory)
    return max(4, size // max(1, n) // 4 * 4)


@reads(".bed")
def _read_bed(file: Path, _description: Description, memory: int | None) -> Table:
    """PLINK's genotypes; allele 1 is counted."""
    people, variants = read_fam(file.with_suffix(".fam")), read_bim(file.with_suffix(".bim"))
    n, d = len(people.ids), len(variants.ids)
    _check_bed(file, n, d)
    if n and d and memory is not None and n * d > memory:
        X: CountRows = _turned_bed(file, n, d, memory)
    else:
        X = CountRows(_whole_bed(file, n, d))
    return Table(X, variants.ids, people.ids, variants=variants, texts=people.texts)


def _check_bed(file: Path, n: int, d: int) -> None:
    size, wanted = file.stat().st_size, len(BED_MAGIC) + d * -(-n // 4)
    with open_regular(file, follow=True) as stream:
        start = stream.read(len(BED_MAGIC))
    if start[:2] != BED_MAGIC[:2]:
        raise FileError(f"{file} does not begin as a PLINK .bed file; make it with plink --make-bed")
    if start != BED_MAGIC:
        raise FileError(f"{file} lies person by person, as PLINK has not written it for long; make it anew with plink --make-bed")
    if size != wanted:
        raise FileError(
            f"{file} has {size} bytes; {n} people of its .fam and {d} variants of its .bim need {wanted}: "
            "they do not belong together, or a file was cut off"
        )


def _whole_bed(file: Path, n: int, d: int) -> Bytes:
    """All counts (n x d) in memory, read by bed-reader."""
    bed_reader = _library("bed_reader", "bed-reader", ".bed")
    try:
        with bed_reader.open_bed(file, iid_count=n, sid_count=d, properties={}) as bed:
            counts = bed.read(dtype="int8", order="C")
    except (ValueError, OSError, RuntimeError) as error:
        raise FileError(f"{file} cannot be read ({error}); make it again with plink --make-bed") from error
    np.maximum(counts, -1, out=counts)  # -127 stands for missing, and 255 is the byte of -1
    found: Bytes = counts.view(np.uint8)
    return found


def _turned_bed(file: Path, n: int, d: int, memory: int) -> PackedRows:
    """Counts on disk, person by person: they are turned as they are packed, two bits each."""
    store, width = PackedRows(file, n), -(-n // 4)
    store.check_room(n * -(-d // 4))
    step = max(4, piece_bytes(memory) // width // 4 * 4)
    with open_regular(file, follow=True) as stream:
        stream.seek(len(BED_MAGIC))
        for first in range(0, d, step):
            variants = min(step, d - first)
            data = stream.read(variants * width)
            if len(data) < variants * width:
                raise FileError(f"{file} ends before its last variant; copy it again")
            store.add(np.frombuffer(data, np.uint8).reshape(variants, width), variants)
    return store.finish()


@reads(".pgen")
def _read_pgen(file: Path, _description: Description, memory: int | None) -> Table:
    """PLINK 2's genotypes; the alternative allele is counted, and variants with several of them are left out."""
    pgenlib = _library("pgenlib", "Pgenlib", ".pgen")
    people = read_psam(file.with_suffix(".psam"))
    pvar = next((path for path in (file.with_suffix(".pvar"), file.with_suffix(".pvar.zst")) if path.exists()), None)
    variants, kept, in_all = read_pvar(pvar or file.with_suffix(".pvar"))
    n, d = len(people.ids), len(kept)
    try:
        reader = pgenlib.PgenReader(os.fsencode(file), raw_sample_ct=n, variant_ct=in_all)
        try:
            X = gather(file, _pgen_slabs(reader, kept, n, _slab_size(n, memory)), n, d, memory)
        finally:
            reader.close()
    except (RuntimeError, ValueError, AssertionError) as error:
        raise FileError(
            f"{file} cannot be read with its {n} people and {in_all} variants ({_words(error)}); "
            "do the three files belong together?  Make them again with plink2 --make-pgen"
        ) from error
    return _genotypes(X, people, variants, in_all - d)


def _pgen_slabs(reader: Any, kept: list[int], n: int, step: int) -> Iterator[Bytes]:
    for first in range(0, len(kept), step):
        numbers = np.array(kept[first : first + step], dtype=np.uint32)
        counts = np.empty((len(numbers), n), dtype=np.int8)
        reader.read_list(numbers, counts)
        np.maximum(counts, -1, out=counts)  # -9 stands for missing, and 255 is the byte of -1
        yield counts.view(np.uint8)


def _words(error: BaseException) -> str:
    told = error.args[0] if error.args else ""
    return " ".join((told.decode("utf-8", "replace") if isinstance(told, bytes) else str(error)).split())[:200]


@reads(".vcf", ".vcf.gz", ".vcf.bgz", ".bcf")
def _read_vcf(file: Path, _description: Description, memory: int | None) -> Table:
    """Genotypes of a VCF or BCF file; the alternative allele is counted, and variants with several of them are left out."""
    cyvcf2 = _library("cyvcf2", "cyvcf2", ".vcf")
    cyvcf2.cyvcf2.set_htslib_log_level(0)  # what it would print is told as an error
    found, left_out = Found(file), [0]
    try:
        reader = cyvcf2.VCF(str(file.resolve()), gts012=True, strict_gt=True)
        try:
            people = People(["0"] * len(reader.samples), list(reader.samples), {})
            n = len(people.ids)
            if n == 0:
                raise FileError(f"{file} tells of variants, but of nobody's genotypes; give a file with samples")
            X = gather(file, _vcf_slabs(file, reader, found, left_out, _slab_size(n, memory)), n, None, memory)
        finally:
            reader.close()
    except (OSError, ValueError, UnicodeDecodeError, RuntimeError, KeyError) as error:
        if isinstance(error, FileError):
            raise
        raise FileError(f"{file} cannot be read ({_words(error)}); check it with bcftools view") from error
    return _genotypes(X, people, found.variants(), left_out[0])


def _vcf_slabs(file: Path, reader: Any, found: Found, left_out: list[int], step: int) -> Iterator[Bytes]:
    """Counts of some variants after the others; tells ``found`` of them, and how many were ``left_out``."""
    waiting: list[Bytes] = []
    for variant in _records(file, reader, found):
        if len(variant.ALT) != 1:
            left_out[0] += 1
            continue
        if "GT" not in variant.FORMAT:
            raise FileError(f"{file}, {variant.CHROM}:{variant.POS}: there are no genotypes (GT); leave such variants out")
        counts = variant.gt_types.astype(np.uint8)
        counts[counts > 2] = CountRows.MISSING
        waiting.append(counts)
        place = f"{variant.CHROM}:{variant.POS}"
        found.add(place, str(variant.CHROM), variant.POS, variant.ID, str(variant.ALT[0]), str(variant.REF))
        if len(waiting) == step:
            yield np.stack(waiting)
            waiting = []
    if waiting:
        yield np.stack(waiting)


def _records(file: Path, reader: Any, found: Found) -> Iterator[Any]:
    while True:
        try:
            record = next(reader)
        except StopIteration:
            return
        except Exception as error:  # of a damaged line, cyvcf2 raises this class itself, and no other
            if type(error) is not Exception:
                raise
            raise FileError(
                f"{file}: what follows variant {len(found)} is damaged ({_words(error)}); check it with bcftools"
            ) from error
        yield record


def _genotypes(X: CountRows, people: People, variants: Any, left_out: int) -> Table:
    notes = (f"{left_out} {MANY}",) if left_out else ()
    return Table(X, variants.ids, people.ids, variants=variants, texts=people.texts, notes=notes)

"""The text files beside genotypes: who was typed (.fam, .psam), and for which variants (.bim, .pvar)."""

from __future__ import annotations

import importlib
import io
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from ..errors import FileError, MissingExtraError
from ..storage import open_regular
from .table import Variants

LONGEST_LINE = 1 << 20


@contextmanager
def _text(file: Path) -> Iterator[TextIO]:
    """A text file, perhaps compressed by zstd."""
    with open_regular(file, follow=True) as stream:
        if file.suffix == ".zst":
            try:
                zstandard = importlib.import_module("zstandard")
            except ImportError as error:
                raise MissingExtraError(
                    f"reading {file} needs zstandard ({error}); run: pip install zstandard, or unpack the file"
                ) from error
            try:
                with zstandard.ZstdDecompressor().stream_reader(stream) as unpacked, io.TextIOWrapper(unpacked, "utf-8") as text:
                    yield text
            except zstandard.ZstdError as error:
                raise FileError(f"{file} is damaged ({error}); make it again") from error
        else:
            with io.TextIOWrapper(stream, "utf-8") as text:
                yield text


def _lines(file: Path, least: int) -> Iterator[tuple[int, list[str]]]:
    """Number and cells of each line that is not empty; ``least`` cells are needed, except in a header."""
    try:
        with _text(file) as text:
            number = 0
            while line := text.readline(LONGEST_LINE):
                number += 1
                if len(line) == LONGEST_LINE:
                    raise FileError(f"{file}, line {number} is longer than {LONGEST_LINE} characters; is it this kind of file?")
                cells = line.split()
                if cells and len(cells) < least and not line.startswith("#"):
                    raise FileError(f"{file}, line {number}: {len(cells)} cells where {least} are expected; make it again")
                if cells:
                    yield number, cells
    except FileNotFoundError as error:
        raise FileError(f"{file} does not exist; it belongs to the genotypes beside it, put it there") from error
    except UnicodeDecodeError as error:
        raise FileError(f"{file} is not a text in UTF-8 ({error.reason} at byte {error.start}); make it again") from error


class People:
    """Who was typed.

    Attributes
    ----------
    ids : tuple of str
        Names, with the family's before them where they are not unique.
    texts : dict of str to tuple of str
        What else the file says of them in words: family, population.
    """

    def __init__(self, families: list[str], names: list[str], texts: dict[str, tuple[str, ...]]) -> None:
        unique = len(set(names)) == len(names)
        self.ids = tuple(names if unique else [f"{family}:{name}" for family, name in zip(families, names, strict=True)])
        self.texts = texts
        if any(family not in ("0", name) for family, name in zip(families, names, strict=True)):
            self.texts = {"family": tuple(families)} | texts


def read_fam(file: Path) -> People:
    """A .fam file: family, name, parents, sex and phenotype of each person."""
    cells = [line[:2] for _, line in _lines(file, 6)]
    return People([line[0] for line in cells], [line[1] for line in cells], {})


def read_psam(file: Path) -> People:
    """A .psam file; without a header, it is a .fam file."""
    header: list[str] | None = None
    rows: list[list[str]] = []
    for number, cells in _lines(file, 1):
        if cells[0] in ("#IID", "#FID") and header is None:
            header = ["IID" if cells[0] == "#IID" else "FID", *cells[1:]]
        elif cells[0].startswith("#"):
            continue
        elif header is None:
            return read_fam(file)
        elif len(cells) != len(header):
            raise FileError(f"{file}, line {number}: {len(cells)} cells where {len(header)} are expected; make it again")
        else:
            rows.append(cells)
    if header is None or "IID" not in header:
        raise FileError(f"{file} has no column IID; make it again with plink2 --make-pgen")
    columns = dict(zip(header, zip(*rows, strict=True), strict=True)) if rows else dict.fromkeys(header, ())
    names, families = list(columns["IID"]), list(columns.get("FID", ("0",) * len(rows)))
    told = {"FID", "IID", "SID", "PAT", "MAT", "SEX"}
    texts = {name: values for name, values in columns.items() if name not in told and not _numbers(values)}
    return People(families, names, texts)


def _numbers(values: tuple[str, ...]) -> bool:
    return all(value in ("NA", "nan") or value.replace(".", "", 1).lstrip("-").isdigit() for value in values)


class Found:
    """Variants as they are read: chromosome, position, name, counted and other allele."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._chromosomes: list[str] = []
        self._positions: list[int] = []
        self._ids: list[str] = []
        self._counted: list[str] = []
        self._other: list[str] = []

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, where: str, chromosome: str, position: Any, name: str | None, counted: str, other: str) -> None:
        """Add a variant; ``where`` it was found is for errors."""
        try:
            at = int(position)
        except ValueError as error:
            raise FileError(f"{self._file}, {where}: position {position!r} is not a whole number; make it again") from error
        if not -(1 << 62) < at < 1 << 62:
            raise FileError(f"{self._file}, {where}: position {position!r} is on no chromosome; make it again")
        self._chromosomes.append(chromosome)
        self._positions.append(at)
        self._ids.append(name if name and name != "." else "")
        self._counted.append(counted)
        self._other.append(other)

    def variants(self) -> Variants:
        """All of them; those without a name of their own are named by place and alleles, whichever of them is counted."""
        times = Counter(self._ids)
        ids = [
            name if name and times[name] == 1 else ":".join([chromosome, str(position), *sorted([one, other])])
            for name, chromosome, position, one, other in zip(
                self._ids, self._chromosomes, self._positions, self._counted, self._other, strict=True
            )
        ]
        positions = np.array(self._positions, dtype=np.int64)
        return Variants(tuple(self._chromosomes), positions, tuple(ids), tuple(self._counted), tuple(self._other))


def read_bim(file: Path) -> Variants:
    """A .bim file: chromosome, name, centimorgans, position, allele 1 (which is counted) and allele 2 of each variant."""
    found = Found(file)
    for number, cells in _lines(file, 6):
        found.add(f"line {number}", cells[0], cells[3], cells[1], cells[4], cells[5])
    return found.variants()


def read_pvar(file: Path) -> tuple[Variants, list[int], int]:
    """A .pvar file: variants with one alternative allele, which is counted, their numbers, and how many there are in all."""
    found, kept, number_in_all, at = Found(file), list[int](), 0, list[int]()
    for number, cells in _lines(file, 5):
        if cells[0].startswith("##"):
            continue
        if cells[0] == "#CHROM":
            missing = [name for name in ("POS", "ID", "REF", "ALT") if name not in cells]
            if missing:
                raise FileError(f"{file}, line {number} lacks the columns {', '.join(missing)}; make it with plink2 --make-pgen")
            at = [cells.index(name) for name in ("POS", "ID", "REF", "ALT")]
            continue
        if not at:
            raise FileError(f"{file}, line {number}: variants come before a line that begins with #CHROM; make it with plink2")
        if len(cells) <= max(at):
            raise FileError(f"{file}, line {number}: {len(cells)} cells where {max(at) + 1} are expected; make it again")
        position, name, other, counted = (cells[column] for column in at)
        if "," not in counted and counted != ".":
            found.add(f"line {number}", cells[0], position, name, counted, other)
            kept.append(number_in_all)
        number_in_all += 1
    return found.variants(), kept, number_in_all

"""What a reader gives, and the list of readers: each file format registers itself here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .description import Description


@dataclass(frozen=True, eq=False)
class Variants:
    """The columns of a table of genotypes, all of length n_features.

    Attributes
    ----------
    chromosome, ids, counted, other : tuples of str
        ``counted`` is the allele whose copies X counts, ``other`` the one it does not.
    position : int64 array
        Base pairs from the chromosome's start.
    """

    chromosome: tuple[str, ...]
    position: NDArray[np.int64]
    ids: tuple[str, ...]
    counted: tuple[str, ...]
    other: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Table:
    """A table read from a file.

    Attributes
    ----------
    X : array, scipy sparse CSR or row source, n_rows x n_features
        float64 or float32; genotypes are a ``CountRows``, which holds uint8 counts (255: missing) and gives float64 with NaN.
    feature_names : tuple of str (length n_features), or None where the file has none
    row_ids : sequence of str (length n_rows), or None where the file has none
    variants : Variants, or None where the columns are no variants
    texts : mapping of str to sequence of str (length n_rows)
        Columns of text, which are no features: categories, labels.
    categorical : tuple of str
        Which of the texts are categories, to become features (``categories.py``).
    notes : tuple of str
        What was found out about the file, and should be said.
    weights : (n_rows,) array, or None
        How often each row counts, where the file's description names a column of weights.
    """

    X: Any
    feature_names: tuple[str, ...] | None = None
    row_ids: Sequence[str] | None = None
    variants: Variants | None = None
    texts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    weights: NDArray[np.float64] | None = None


Reader = Callable[[Path, Description, int | None], Table]
"""From a file, its description, and the bytes of memory that the rows may take (None: as many as they need)."""

READERS: dict[str, Reader] = {}
"""Ending of a file's name -> what reads it."""

FOLDERS: set[str] = set()
"""Endings of what is a folder, not a file."""


DESCRIBED: set[str] = set()
"""Endings of files whose reader obeys the whole description; to others' tables it is done afterwards."""


def reads(*endings: str, folder: bool = False, described: bool = False) -> Callable[[Reader], Reader]:
    """Register a function as the reader of files (or folders) whose name ends so: ``@reads(".bed")``."""

    def register(reader: Reader) -> Reader:
        READERS.update(dict.fromkeys(endings, reader))
        if folder:
            FOLDERS.update(endings)
        if described:
            DESCRIBED.update(endings)
        return reader

    return register


def ending(file: Path) -> str | None:
    """The ending of the file's name that says how to read it, the longest that fits; None if none does."""
    name = file.name.lower()
    return max((known for known in READERS if name.endswith(known) and len(name) > len(known)), key=len, default=None)

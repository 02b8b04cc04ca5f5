"""The list of features that a consortium agrees on, from a file: names of columns, or variants."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..errors import FileError, InputError
from ..storage import read_regular
from .alleles import names_of
from .table import Variants

MOST_BYTES = 1 << 28
BIM_COLUMNS = 6
SHOWN_LINE = 60


def read_features(path: Path) -> tuple[str, ...]:
    """Names of features: of a PLINK .bim file its variants, whose first allele is the one to be counted; else a name a line.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "agreed.bim")
    ...     _ = file.write_text("1 rs3094315 0 752566 G A\\n")
    ...     read_features(file)
    ('rs3094315 1:752566 G/A',)
    """
    try:
        text = read_regular(path, MOST_BYTES, follow=True).decode("utf-8-sig")
    except FileError:
        raise
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{path} cannot be read: {error}; give a text file with a feature a line, or a .bim file") from error
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if path.suffix.lower() != ".bim":
        return tuple(lines)
    rows = [line.split() for line in lines]
    for number, row in enumerate(rows, 1):
        if len(row) != BIM_COLUMNS or not row[3].isdigit():
            raise InputError(
                f"{path}, line {number}: {' '.join(row)[:SHOWN_LINE]!r} is no variant; a line of a .bim file has chromosome, id, "
                "morgans, position and two alleles"
            )
    chromosome, ids, _, position, counted, other = zip(*rows, strict=True) if rows else ((),) * BIM_COLUMNS
    return names_of(Variants(chromosome, np.array(position, dtype=np.int64), ids, counted, other))

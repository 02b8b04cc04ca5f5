"""Models in use: new rows projected, half of their features missing, ellipses, and the same model elsewhere.

Truth for people who were held out is the joint fit of all; half of the variants missing means a random half for each person.
Ellipses are tried on rows made by the model, of which the truth is known, and on people whose variants were taken away.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import eigenpact as ep
from benchmarks.table import Row
from eigenpact.errors import EigenpactError

HELD_OUT = 100
LEADING = 3
"""Components that the genotypes tell apart: the fourth has a variance within a fifth of the fifth's."""

REPEATS = {"small": 1, "paper": 5}


def rows(size: str) -> Iterator[Row]:
    """Measure and yield a row at a time; ``size`` is "small" or "paper"."""
    try:
        yield from _people(REPEATS[size])
    except EigenpactError as error:
        yield Row("1000 Genomes, people held out", "correlation >= .999; half missing >= .99", "", None, str(error))
    yield from _ellipses()
    yield from _round_trip()


def _people(repeats: int) -> Iterator[Row]:
    counts = ep.datasets.load("1000-genomes").X.astype(np.float64)
    found = [_held_out(counts, seed) for seed in range(repeats)]
    whole, half, sizes, errors = (np.min([each[i] for each in found], axis=0) for i in range(4))
    plain = np.mean([each[4] for each in found], axis=0)
    told = _told(whole)
    what = f"1000 Genomes, {HELD_OUT} people held out, {repeats} times: correlation with the joint fit"
    yield Row(what, f">= .999 for PC1 to PC{LEADING}", told, bool(whole[:LEADING].min() >= 0.999))
    what = "the same, half of each person's variants missing"
    yield Row(what, f">= .99 for PC1 to PC{LEADING}", _told(half), bool(half[:LEADING].min() >= 0.99))
    told = f"{_told(np.mean([each[2] for each in found], axis=0))}; uncorrected {_told(plain)}"
    worst = max(np.abs(each[2][:LEADING] - 1).max() for each in found)
    yield Row(
        "size of their scores beside the joint fit's, corrected", f"reported (PC1 to PC{LEADING} within {worst:.3f})", told, True
    )
    covered = float(np.mean([each[3] for each in found]))
    yield Row(
        "half of the variants missing: ellipses (PC1, PC2) that hold the score of the whole row", "95 +- 2 %", f"{100 * covered:.1f} %",
        abs(covered - 0.95) <= 0.02,
    )  # fmt: skip

"""Columns that look to be in another unit at one site: the same quantity times ten, in pounds, in mmol/L.

A column is in doubt where a site's quartiles lie apart from those of most other sites, each of these by a power of ten or a known
factor between units that brings all three of them into line.  It is only ever said, never changed: sites may differ for good
reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from .linalg import Array
from .sources import RowSource
from .weighted import rows_and_weights

SAMPLE = 2000
"""Rows whose quartiles are looked at, at most."""

LEAST_ROWS = 5
"""Fewer rows have no quartiles worth comparing."""

MOST_COLUMNS = 50_000
"""Tables with more columns (genes, variants, pixels) have no units to confuse."""

CLOSE, WIDE = np.log(1.3), np.log(1.7)
"""How far medians, and quartiles, may be from equal once the factor is taken out: sites are never quite alike."""

POWERS = (1, 2, 3, 4, 6, 9)


@dataclass(frozen=True)
class Factor:
    """Two units of one quantity: the number in ``more`` is ``value`` times the number in ``less``."""

    value: float
    what: str
    more: str
    less: str


KNOWN = (
    Factor(2.2046, "weight", "lb", "kg"),
    Factor(2.54, "length", "cm", "inches"),
    Factor(3.2808, "length", "feet", "m"),
    Factor(7.5006, "pressure", "mmHg", "kPa"),
    Factor(12.0, "time", "months", "years"),
    Factor(18.016, "glucose", "mg/dL", "mmol/L"),
    Factor(38.67, "cholesterol", "mg/dL", "mmol/L"),
    Factor(88.42, "creatinine", "umol/L", "mg/dL"),
    Factor(88.57, "triglycerides", "mg/dL", "mmol/L"),
    Factor(365.25, "time", "days", "years"),
)
"""Units that files are often found to mix."""


@dataclass(frozen=True)
class Doubt:
    """A site's column that looks to be in another unit than at the other sites; texts are for a warning."""

    site: str
    column: int
    median: float
    others: float
    likely: str

    def told(self, names: Sequence[str] | None = None) -> str:
        """In words; ``names`` are those of the columns."""
        column = f"column {self.column}" if names is None else f"column {names[self.column]!r}"
        return (
            f"site {self.site!r}: {column} may be in another unit: its median is {self.median:.4g}, at the other sites "
            f"{self.others:.4g}; {self.likely}"
        )


def quartiles(X: Any, *, most: int = SAMPLE, least: int = LEAST_ROWS) -> Array | None:
    """Quartiles (3 x d) of the columns of X (n x d), of up to ``most`` rows; None where units make no sense.

    A column with fewer than ``least`` numbers among these has NaN.

    >>> quartiles(np.arange(10.0).reshape(5, 2)).tolist()
    [[2.0, 3.0], [4.0, 5.0], [6.0, 7.0]]
    """
    X = rows_and_weights(X)[0]
    n, d = X.shape
    if scipy.sparse.issparse(X) or d > MOST_COLUMNS or n < least:
        return None
    if isinstance(X, RowSource):
        if X.sparse:
            return None
        rows = X[: min(n, most)]
    else:
        rows = X if n <= most else X[np.linspace(0, n - 1, most).astype(np.intp)]
    rows = np.asarray(rows, dtype=np.float64)
    empty = np.isfinite(rows).sum(axis=0) < max(1, least)
    found = np.nanquantile(np.where(empty, 0.0, rows), (0.25, 0.5, 0.75), axis=0)
    found[:, empty] = np.nan
    return np.asarray(found, dtype=np.float64)


def units_in_doubt(sites: Mapping[str, Array | None]) -> list[Doubt]:
    """Columns that look to be in another unit at one site, from every site's quartiles (3 x d) of the same columns.

    Of two sites nobody can tell which is off; the second is named.  A site whose quartile is 0 is not compared.

    >>> here, there = np.array([[180.0], [200.0], [230.0]]), np.array([[4.7], [5.2], [5.9]])
    >>> print(units_in_doubt({"A": here, "B": here, "C": there})[0].likely)
    about 38.5 times less: cholesterol in mmol/L instead of mg/dL?
    """
    known = {name: found for name, found in sites.items() if found is not None}
    if len(known) < 2:
        return []
    names, q = list(known), np.array(list(known.values()))
    usable = np.isfinite(q).all(axis=1) & (q[:, 2] > q[:, 0]) & (q != 0).all(axis=1)  # zeros often stand for what is missing
    doubts = []
    for i, name in enumerate(names):
        with np.errstate(invalid="ignore"):
            apart = usable & ((q[i, 0] > q[:, 2]) | (q[i, 2] < q[:, 0]))
        rest = usable.sum(axis=0) - 1
        off = usable[i] & (2 * apart.sum(axis=0) > rest)  # apart from most of the others
        for j in np.flatnonzero(off & ((rest > 1) | (np.argmax(usable, axis=0) < i))):
            off_by_factor = [k for k in np.flatnonzero(apart[:, j]) if other_unit(q[i, :, j], q[k, :, j])]
            if 2 * len(off_by_factor) <= rest[j]:
                continue
            others = np.median(q[off_by_factor, :, j], axis=0)
            likely = other_unit(q[i, :, j], others)
            if likely:
                doubts.append(Doubt(name, int(j), float(q[i, 1, j]), float(others[1]), likely))
    return doubts


def other_unit(own: NDArray[np.float64], others: NDArray[np.float64]) -> str:
    """The unit in which a site's quartiles (3,) look to be, compared with those of others, in words; empty if they look alike.

    >>> other_unit(np.array([96.8, 98.4, 99.9]), np.array([36.1, 36.9, 37.6]))
    'degrees Fahrenheit instead of Celsius?'
    """
    if own[0] <= others[2] and others[0] <= own[2]:
        return ""  # half of the entries of each overlap
    for warm, cold, text in ((own, others, "Fahrenheit instead of Celsius"), (others, own, "Celsius instead of Fahrenheit")):
        if _is_fahrenheit(warm, cold):
            return f"degrees {text}?"
    if own[1] < 0 and others[1] < 0:
        own, others = -own[::-1], -others[::-1]
    if min(own[0], others[0]) <= 0:
        return ""
    return likely_factor(np.log(own / others))


def likely_factor(ratios: NDArray[np.float64], slack: float = 0.0) -> str:
    """A power of ten, or known factors, that logarithms of ratios (quartiles, or one median) amount to; empty if none does."""
    middle = float(np.median(ratios))
    candidates = [(p * np.log(10.0), "") for p in POWERS]
    candidates += [(float(np.log(factor.value)), _units(factor, middle > 0)) for factor in KNOWN]
    near = [
        (abs(abs(middle) - size), text)
        for size, text in candidates
        if abs(abs(middle) - size) <= CLOSE + slack and np.all(np.abs(np.abs(ratios) - size) <= WIDE + slack)
    ]
    if not near:
        return ""
    times = f"about {np.exp(abs(middle)):.3g} times {'more' if middle > 0 else 'less'}"
    near.sort(key=lambda pair: pair[0])
    texts = [text or "a power of ten" for _, text in near]
    return f"{times}: {', or '.join(dict.fromkeys(texts))}?"


def _units(factor: Factor, more: bool) -> str:
    here, there = (factor.more, factor.less) if more else (factor.less, factor.more)
    return f"{factor.what} in {here} instead of {there}"


def _is_fahrenheit(warm: NDArray[np.float64], cold: NDArray[np.float64]) -> bool:
    """Whether some quartiles are others in Fahrenheit: by place and by spread."""
    width, own = float(cold[2] - cold[0]), float(warm[2] - warm[0]) / 1.8
    if width <= 0 or not 0.5 <= own / width <= 2.0 or not np.all(np.abs(cold) < 60):
        return False
    return bool(np.all(np.abs((warm - 32.0) / 1.8 - cold) <= width))

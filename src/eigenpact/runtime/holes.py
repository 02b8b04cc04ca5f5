"""Rows with missing entries (NaN) at a site: which runs it takes part in, and which functions may see them.

A site whose owner lets holes be filled (rule ``fill_missing``) takes part only in runs that announce how: the plan holds a
function that keeps what entries are filled with, or only functions that take rows with holes (``@local(holes=True)``), as those
of ``missing="em"``.  And until the holes are filled, a function that does not take them is refused, whatever was announced: it
would reply with what is no number, or with a wrong one.

What a coordinator is told is that rule, which says that this site has holes, and not where.  Columns and numbers of rows stand in
the site's own log and ledger.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import PolicyError
from ..numerics.columns import columns_missing
from ..numerics.kinds import KINDS
from .lacking import check_lacking
from .local import LocalFunction, find_local
from .prepared import PREFIX, kept_as
from .rare import DROPPED

SHOWN = 5

FEATURES = kept_as("features")


@dataclass(frozen=True, eq=False)
class Holes:
    """Where a site's rows have missing entries.

    Attributes
    ----------
    missing : (d,) int array
        In how many rows each column is missing; of a column that the site lacks, in all.
    n_rows : int
    features : tuple of str
        Names of the columns; empty if they have none.
    """

    missing: NDArray[np.int64]
    n_rows: int
    features: tuple[str, ...] = ()

    @classmethod
    def of(cls, X: Any, features: tuple[str, ...] | int) -> Holes:
        """Those of rows X (n x d)."""
        return cls(columns_missing(X), int(X.shape[0]), () if isinstance(features, int) else features)

    @property
    def lacking(self) -> tuple[str, ...]:
        """The columns of which the rows hold no number."""
        return tuple(self._named(j) for j in np.flatnonzero(self.missing >= max(1, self.n_rows)))

    @property
    def somewhere(self) -> NDArray[np.intp]:
        """Numbers of the columns that are missing in some rows."""
        return np.flatnonzero((self.missing > 0) & (self.missing < self.n_rows))

    def told(self) -> str:
        """Columns that are missing in some rows, and in how many; for the owner's eyes alone, empty if there are none.

        >>> Holes(np.array([0, 3, 1]), 40, ("age", "bmi", "rate")).told()
        "column 'bmi' is missing in 3 of 40 rows, 'rate' in 1"
        """
        at = self.somewhere
        if not at.size:
            return ""
        first, *others = (f"{self._quoted(j)}{{}} in {self.missing[j]}" for j in at[:SHOWN])
        more = f", and {at.size - SHOWN} more columns in some" if at.size > SHOWN else ""
        texts = [f"column {first.format(' is missing')} of {self.n_rows} rows", *(text.format("") for text in others)]
        return ", ".join(texts) + more

    def check_plan(self, functions: Collection[str], *, fill: bool) -> None:
        """Refuse a plan that does not say how holes are filled, or any where the owner does not let them be (``fill``)."""
        check_lacking(self.lacking, functions)
        if not self.somewhere.size:
            return
        if not fill:
            error = PolicyError("rule fill_missing = false: this site's table cannot be used; its own log says why")
        elif not is_filled_by(functions):
            error = PolicyError(
                "rule fill_missing: this site takes part only in runs that fill in what is missing; run it with --missing mean "
                "(missing='mean'), or em where the sites' solvers hold it"
            )
        else:
            return
        error.add_note(self.told())
        raise error

    def check(self, function: LocalFunction, kept: Mapping[str, Any]) -> None:
        """Refuse a function that would see holes: what the site has ``kept`` in this epoch does not fill or leave them out."""
        if function.holes or not self.missing.any() or any(_fills(name) for name in kept):
            return
        left = self.missing > 0
        if DROPPED in kept:
            left = _without(left, kept[DROPPED])
        if FEATURES in kept:
            step = kept[FEATURES]
            left = _without(left, None if step is None else step["having"] < step["least"])
        if left.any():
            error = PolicyError(
                f"rule fill_missing: {function.short_name} does not take rows in which entries are missing, and nothing was told "
                "to fill them in with; run it with --missing mean (missing='mean'), or without the features that sites lack"
            )
            error.add_note(self.told())
            raise error

    def _named(self, j: Any) -> str:
        return self.features[j] if self.features else f"number {j}"

    def _quoted(self, j: Any) -> str:
        return repr(self.features[j]) if self.features else f"number {j}"


NO_HOLES = Holes(np.zeros(0, dtype=np.int64), 0)


def is_filled_by(functions: Collection[str]) -> bool:
    """Whether functions (by name) fill holes, or all of them take rows with holes."""
    declared = [find_local(name) for name in functions]
    return any(_fills(name) for function in declared for name in function.keeps) or all(f.holes for f in declared)


def _fills(name: str) -> bool:
    """Whether what a site keeps under this name fills its holes."""
    return name.startswith(PREFIX) and KINDS[name.removeprefix(PREFIX)].fills


def _without(left: NDArray[np.bool_], columns: Any) -> NDArray[np.bool_]:
    """Columns that are left without these; all of them where a step failed, whose failure must not tell."""
    still = left.copy()
    still[slice(None) if columns is None else np.asarray(columns)] = False
    return still


def with_notes(error: Exception) -> str:
    """An error's text with its notes, which are for the site's own ledger and do not travel.

    >>> error = ValueError("rule fill_missing: ...")
    >>> error.add_note("column 'bmi' is missing in 3 of 40 rows")
    >>> with_notes(error)
    "rule fill_missing: ... (column 'bmi' is missing in 3 of 40 rows)"
    """
    return " ".join([str(error), *(f"({note})" for note in getattr(error, "__notes__", ()))])

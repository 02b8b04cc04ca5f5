"""Columns of categories as columns of zeros and ones, one for each category: ``sex`` becomes ``sex=f`` and ``sex=m``.

Which categories there are is agreed on: in one process all that any site has, in sorted order; between institutions those that
the agreed list of features names.  A cell that holds another category is refused by its name; an empty one is missing (NaN) in
all columns of its category.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse

from ..errors import InputError
from ..numerics.linalg import Array
from ..numerics.sources import RowSource
from .table import Table

Dictionary = Mapping[str, tuple[str, ...]]
"""Column -> its categories, in order."""

SHOWN = 5
MOST = 1000
"""Categories of one column: beyond, it holds names or free text."""


def categories_in(table: Table, whose: str = "the table") -> dict[str, tuple[str, ...]]:
    """The categories that occur in each categorical column of a table, sorted; empty cells are none.

    >>> categories_in(Table(np.ones((3, 1)), ("age",), texts={"sex": ("m", "f", "")}, categorical=("sex",)))
    {'sex': ('f', 'm')}
    """
    if table.categorical and table.feature_names is None:
        raise InputError(f"{whose} has categorical columns, but its other columns have no names; give it a header")
    found = {name: tuple(sorted(set(table.texts[name]) - {""})) for name in table.categorical}
    for name, values in found.items():
        if len(values) > MOST:
            raise InputError(
                f"{whose}: column {name!r} has {len(values)} categories, at most {MOST} are allowed; is it free text? drop it"
            )
    return found


def all_categories(sites: Iterable[Dictionary]) -> dict[str, tuple[str, ...]]:
    """The categories that any site has, sorted.

    >>> all_categories([{"sex": ("m",)}, {"sex": ("f", "m"), "arm": ("left",)}])
    {'sex': ('f', 'm'), 'arm': ('left',)}
    """
    merged: dict[str, set[str]] = {}
    for site in sites:
        for name, values in site.items():
            merged.setdefault(name, set()).update(values)
    return {name: tuple(sorted(values)) for name, values in merged.items()}


def categories_apart(sites: Mapping[str, Dictionary], mode: str) -> tuple[str, ...]:
    """Columns whose categories fall into groups of sites that share none, in words: perhaps they write the same in two ways.

    A women's and a men's hospital are in one group if a third one has both.  ``strict`` refuses more than one group.

    >>> categories_apart({"A": {"sex": ("0", "1")}, "B": {"sex": ("f", "m")}}, "intersection")
    ("column 'sex': sites have no category in common, 'A' has '0', '1'; 'B' has 'f', 'm'",)
    """
    told = []
    for name in all_categories(sites.values()):
        own = {site: set(found[name]) for site, found in sites.items() if found.get(name)}
        apart = [group[0] for group in _groups(own)]
        if len(apart) > 1:
            each = "; ".join(f"{site!r} has {_listed(sorted(own[site]))}" for site in apart[:SHOWN])
            more = f"; and {len(apart) - SHOWN} more sites" if len(apart) > SHOWN else ""
            told.append(f"column {name!r}: sites have no category in common, {each}{more}")
    if told and mode == "strict":
        raise InputError(
            f"{'; '.join(told[:SHOWN])}; write the same category in the same way at all sites, or, if they do differ, take them "
            "as they are with --features intersection"
        )
    return tuple(told)


def _groups(own: Mapping[str, set[str]]) -> list[list[str]]:
    """Sites in groups: those that share a category are in one, and so are those that share one with the same others.

    >>> _groups({"A": {"f"}, "B": {"m"}, "C": {"0"}, "D": {"f", "m"}})
    [['C'], ['A', 'B', 'D']]
    """
    groups: list[tuple[list[str], set[str]]] = []
    for site, mine in own.items():
        joined = [group for group in groups if not group[1].isdisjoint(mine)]
        groups = [group for group in groups if group[1].isdisjoint(mine)]
        groups.append(([*(name for names, _ in joined for name in names), site], mine.union(*(values for _, values in joined))))
    return [names for names, _ in groups]


def _listed(values: Sequence[str]) -> str:
    return ", ".join(map(repr, values[:SHOWN])) + (f" and {len(values) - SHOWN} more" if len(values) > SHOWN else "")


def categories_named(features: Sequence[str], columns: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The categories of columns that an agreed list of features names, in its order.

    >>> categories_named(["age", "sex=f", "sex=m"], ["sex", "arm"])
    {'sex': ('f', 'm'), 'arm': ()}
    """
    return {name: tuple(f.removeprefix(f"{name}=") for f in features if f.startswith(f"{name}=")) for name in columns}


def one_hot_names(dictionary: Dictionary, columns: Iterable[str]) -> tuple[str, ...]:
    """Names of the columns that take the place of categorical ones."""
    return tuple(f"{name}={value}" for name in columns for value in dictionary[name])


def one_hot(table: Table, dictionary: Dictionary, whose: str = "the table") -> Table:
    """The table with a column of zeros and ones after the others for every category of its categorical columns.

    >>> made = one_hot(Table(np.ones((2, 1)), ("age",), texts={"sex": ("m", "")}, categorical=("sex",)), {"sex": ("f", "m")})
    >>> made.feature_names, made.X.tolist()
    (('age', 'sex=f', 'sex=m'), [[1.0, 0.0, 1.0], [1.0, nan, nan]])
    """
    if not table.categorical or table.feature_names is None:
        return table
    columns = [_indicators(table.texts[name], dictionary[name], name, whose) for name in table.categorical]
    added = np.hstack([np.zeros((table.X.shape[0], 0)), *columns])
    names = table.feature_names + one_hot_names(dictionary, table.categorical)
    return replace(table, X=_beside(table.X, added), feature_names=names, categorical=())


def _indicators(cells: Sequence[str], categories: Sequence[str], name: str, whose: str) -> Array:
    """A column (n x c) for each category."""
    at = {value: j for j, value in enumerate(categories)}
    unknown = sorted(set(cells) - set(at) - {""})
    if unknown:
        raise InputError(
            f"{whose}: column {name!r} holds {_listed(unknown)}; agreed on are "
            f"{', '.join(map(repr, categories)) or 'no categories'}: "
            "correct the cells, or list what stands for a missing one in the file's description"
        )
    rows = np.array([at.get(cell, -1) for cell in cells], dtype=np.intp)
    made = np.zeros((len(cells), len(categories)))
    made[np.arange(len(cells)), np.maximum(rows, 0)] = 1.0 if len(categories) else 0.0
    made[rows < 0] = np.nan
    return made


def _beside(X: Any, added: Array) -> Any:
    """Rows (n x d) with more columns (n x c) after their own."""
    if isinstance(X, RowSource):
        return _Beside(X, added)
    if scipy.sparse.issparse(X):
        return scipy.sparse.hstack([X, scipy.sparse.csr_array(added)], format="csr", dtype=X.dtype)
    return np.hstack([X, added.astype(X.dtype)])


class _Beside(RowSource):
    """Rows of a source with further columns, which are in memory, after its own."""

    def __init__(self, source: RowSource, added: Array) -> None:
        super().__init__((source.shape[0], source.shape[1] + added.shape[1]), source.dtype, sparse=source.sparse)
        self.source, self.added, self.piece_bytes = source, added, source.piece_bytes

    def read(self, first: int, last: int) -> Any:
        """The rows from number ``first`` to before ``last``, new in memory."""
        return _beside(self.source.read(first, last), self.added[first:last])

    def close(self) -> None:
        """Give back what the source holds."""
        self.source.close()

"""Whose row each row is, for privacy of persons: labels by site, and the rows that count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import InputError
from .inputs import is_several_sites

Persons = dict[str, list[Any]]
"""Labels of the rows, by site."""


def persons_of(X: Any, sites: Any, persons: Any) -> Persons:
    """Labels of persons by site, from the form in which the rows are given; none for None.

    >>> persons_of(np.ones((3, 2)), ["b", "a", "b"], [7, 8, 9])
    {'a': [8], 'b': [7, 9]}
    """
    if persons is None:
        return {}
    if is_several_sites(X):
        named = persons.items() if isinstance(persons, Mapping) else ((f"site{i}", part) for i, part in enumerate(persons))
        return {str(name): list(part) for name, part in named}
    labels = list(persons)
    if sites is None:
        return {"site0": labels}
    wheres = np.asarray(sites)
    if len(wheres) != len(labels):
        raise InputError(f"persons has {len(labels)} labels, sites {len(wheres)}; give one of each per row")
    return {str(site): [labels[i] for i in np.flatnonzero(wheres == site)] for site in np.unique(wheres)}


def first_rows(rows: Any, persons: Persons, site: str, most: int) -> Any:
    """The first so many rows of every person; which they are depends on that person's rows alone.

    >>> first_rows(np.arange(4.0).reshape(4, 1), {"A": ["x", "x", "y", "x"]}, "A", 2).ravel().tolist()
    [0.0, 1.0, 2.0]
    """
    labels = persons.get(site, [])
    if len(labels) != int(rows.shape[0]):
        raise InputError(
            f"site {site!r} has {int(rows.shape[0])} rows and {len(labels)} labels of persons; give one label per row"
        )
    seen: Counter[Any] = Counter()
    kept = []
    for i, label in enumerate(labels):
        if label is None or label != label:
            raise InputError(f"row {i} of site {site!r} has no person; label every row, or drop it")
        seen[label] += 1
        if seen[label] <= most:
            kept.append(i)
    return rows[np.array(kept, dtype=np.intp)]

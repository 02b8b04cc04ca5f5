"""Columns that tell of cells (anndata's ``obs``): categories, texts, numbers, and those of pandas that may lack some."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from .cell_texts import number_text
from .description import Description

MOST_COLUMNS = 4096
"""Columns that are looked at."""


class Nodes(Protocol):
    """What is asked of a file's arrays and groups, whichever library opened it."""

    path: Any

    def array(self, group: Any, name: str) -> Any:
        """An array of a group; None if there is none of this name."""

    def node(self, group: Any, name: str) -> Any:
        """A group or array by its name; None if there is none."""

    def texts(self, group: Any, name: str, length: int) -> tuple[str, ...] | None:
        """Texts, one for each row; None where there are none."""


def cell_texts(file: Nodes, root: Any, length: int, said: Description) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Columns of texts: those that the description names as labels, categories or row names; else all of categories."""
    obs, asked = file.node(root, "obs"), {*said.labels, *said.categorical, *(() if said.id is None else (said.id,))}
    for name in list(obs.keys())[:MOST_COLUMNS]:
        if asked and name not in asked:
            continue
        node = file.node(obs, name)
        group = hasattr(node, "keys")
        if not asked and not (group and "codes" in node):
            continue
        found = _of_group(file, node, name, length) if group else _of_array(file, obs, name, length)
        if found is not None:
            yield name, found


def cell_weights(file: Nodes, root: Any, length: int, said: Description) -> NDArray[np.float64] | None:
    """The column of numbers that the description names as weights; None if the cells have no column of this name."""
    if said.weights is None:
        return None
    obs = file.node(root, "obs")
    node = file.node(obs, said.weights)
    if node is None:
        return None
    values = file.array(node, "values") if hasattr(node, "keys") else file.array(obs, said.weights)
    if values is None or tuple(values.shape) != (length,) or getattr(values.dtype, "kind", "") not in "biuf":
        raise InputError(f"{file.path}: weights names {said.weights!r}, whose cells are not {length} numbers")
    found = np.asarray(values[:]).astype(np.float64)
    hidden = file.array(node, "mask") if hasattr(node, "keys") else None
    return found if hidden is None else np.where(np.asarray(hidden[:], dtype=bool), np.nan, found)


def _of_group(file: Nodes, column: Any, name: str, length: int) -> tuple[str, ...] | None:
    """Of a column of categories, or of one that may lack some: an empty text where it does."""
    if "values" in column and "mask" in column:
        hidden, texts = file.array(column, "mask"), _of_array(file, column, "values", length)
        if texts is None or tuple(hidden.shape) != (length,):
            return None
        return tuple("" if lacks else text for text, lacks in zip(texts, np.asarray(hidden[:]).tolist(), strict=True))
    codes, names = file.array(column, "codes"), file.array(column, "categories")
    if codes is None or names is None or tuple(codes.shape) != (length,) or len(names.shape) != 1:
        return None
    known = ("", *(_of_array(file, column, "categories", int(names.shape[0])) or ()))
    at = np.asarray(codes[:]).astype(np.int64) + 1
    if not 0 <= at.min(initial=0) <= at.max(initial=0) < len(known):
        raise InputError(f"{file.path}: the codes of {name!r} name categories that are not there")
    return tuple(known[code] for code in at.tolist())


def _of_array(file: Nodes, group: Any, name: str, length: int) -> tuple[str, ...] | None:
    """Of a column of numbers or texts."""
    node = file.array(group, name)
    if node is None or tuple(node.shape) != (length,):
        return None
    kind = getattr(node.dtype, "kind", "O")
    if kind not in "iuf":
        return file.texts(group, name, length)  # also True and False
    return tuple(number_text(value, np.dtype(node.dtype)) for value in np.asarray(node[:]).tolist())

"""Agreed changes of rows before their components are sought: holes filled in, counts normalized, columns taken out.

A :class:`Step` is a kind, which names a function of this file, and arrays, which sites have agreed on.  It changes rows one by
one and keeps their shape, n x d: a column that is taken out becomes zero.  A step holds nothing but arrays, so it travels, is
kept at a site and is saved with a model, and what it makes of new rows is what it made of the site's own, to the bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ..errors import InputError, InputTypeError
from . import changes  # noqa: F401  # which registers what is there
from .elsewhere import is_elsewhere, namespace
from .kinds import KINDS as KINDS
from .linalg import Array
from .rows import DEVICE_BLOCK_BYTES, block_rows
from .sources import ChangedRows, RowSource, as_rows, is_on_disk
from .weighted import Weighted


@dataclass(frozen=True, eq=False)
class Step:
    """One agreed change of rows.

    >>> step = Step("fill", {"values": np.array([0.0, 5.0])})
    >>> step.apply(np.array([[1.0, np.nan], [np.nan, 2.0]])).tolist()
    [[1.0, 5.0], [0.0, 2.0]]
    """

    kind: str
    arrays: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InputError(f"rows cannot be prepared by {self.kind!r}; allowed are {', '.join(KINDS)}")
        wanted = KINDS[self.kind].axes
        if set(wanted) != set(self.arrays):
            raise InputError(f"{self.kind!r} has the arrays {', '.join(self.arrays)}; it needs {', '.join(wanted)}")
        sizes: dict[str, int] = {}
        for name, axes in wanted.items():
            shape = np.shape(self.arrays[name])
            if len(shape) != len(axes.split()) or any(
                sizes.setdefault(a, n) != n for a, n in zip(axes.split(), shape, strict=True)
            ):
                raise InputError(f"array {name!r} of {self.kind!r} has shape {shape}; it is to be ({', '.join(axes.split())})")

    def apply(self, X: Any) -> Any:
        """Changed rows (n x d); X stays as it is.  Those of a source are changed when they are read."""
        if isinstance(X, Weighted):
            return X.with_rows(self.apply(X.rows))
        check_dense_enough(X, self.kind)
        if isinstance(X := as_rows(X), RowSource):
            return ChangedRows(X, self.apply)
        if is_elsewhere(X):
            return self._apply_there(X)
        check_preparable(X)
        return KINDS[self.kind].change(X, self.arrays)

    def _apply_there(self, X: Any) -> Any:
        """Changed rows of another library, where they lie: some at a time, for numbers in between take more memory."""
        if not KINDS[self.kind].there:
            raise InputTypeError(
                f"rows of type {type(X).__name__} cannot be prepared by {self.kind!r} where they lie; give numpy's"
            )
        changed, (n, d) = namespace(X).empty_like(X), (int(size) for size in X.shape)
        step = block_rows(d, DEVICE_BLOCK_BYTES)
        for first in range(0, n, step):
            where = slice(first, min(first + step, n))
            changed[where, :] = KINDS[self.kind].change(X[where, :], self.arrays)
        return changed

    def __str__(self) -> str:
        return KINDS[self.kind].tells(self.arrays)


def check_dense_enough(X: Any, kind: str) -> None:
    """Refuse sparse rows where a kind of step would fill them."""
    if (scipy.sparse.issparse(X) or (isinstance(X, RowSource) and X.sparse)) and not KINDS[kind].sparse:
        raise InputTypeError(f"sparse rows cannot be prepared by {kind!r}, which would fill them; give a dense table")


def check_preparable(X: Any) -> None:
    """Refuse rows with weights, which nothing here is found by, and what are no rows."""
    if isinstance(X, Weighted):
        raise InputTypeError("rows with weights cannot be prepared; prepare them before, or leave the weights out")
    if not (scipy.sparse.issparse(X) or isinstance(X, np.ndarray | RowSource) or is_on_disk(X) or is_elsewhere(X)):
        raise InputTypeError(f"rows of type {type(X).__name__} cannot be prepared; give a numpy array or a sparse matrix")


def prepared(X: Any, steps: Iterable[Step]) -> Any:
    """Rows (n x d) after all steps, in their order."""
    for step in steps:
        X = step.apply(X)
    return X


def taken_out(steps: Iterable[Step]) -> NDArray[np.intp]:
    """Numbers of the columns that steps take out: zero in all rows.

    >>> steps = (Step("columns", {"kept": np.array([True, False, True])}),)
    >>> taken_out(steps).tolist(), str(steps[0])
    ([1], '2 of 3 columns kept')
    """
    masks = (KINDS[step.kind].drops(step.arrays) for step in steps if KINDS[step.kind].drops is not None)  # type: ignore[misc]
    return np.array(sorted({int(j) for mask in masks for j in np.flatnonzero(mask)}), dtype=np.intp)


def flat(steps: Iterable[Step], name: str) -> dict[str, Array]:
    """The arrays of steps by names such as "preparation/0/fill/values", as engines and files carry them.

    >>> steps = (Step("fill", {"values": np.ones(2)}),)
    >>> list(flat(steps, "preparation")), unflat(flat(steps, "preparation"), "preparation", ["fill"])[0].kind
    (['preparation/0/fill/values'], 'fill')
    """
    return {f"{name}/{i}/{step.kind}/{label}": np.asarray(a) for i, step in enumerate(steps) for label, a in step.arrays.items()}


def unflat(arrays: Mapping[str, Array], name: str, kinds: Iterable[str]) -> tuple[Step, ...]:
    """Inverse of :func:`flat`; ``kinds`` are those of all steps, since some have no arrays."""

    def own(start: str) -> Iterator[tuple[str, Array]]:
        return ((key.removeprefix(start), a) for key, a in arrays.items() if key.startswith(start))

    return tuple(Step(kind, dict(own(f"{name}/{i}/{kind}/"))) for i, kind in enumerate(kinds))

"""Agreed changes of rows before their components are sought: holes filled in, counts normalized, columns taken out.

A :class:`Step` is a kind, which names a function of this file, and arrays, which sites have agreed on.  It changes rows one by
one and keeps their shape, n x d: a column that is taken out becomes zero.  A step holds nothing but arrays, so it travels, is
kept at a site and is saved with a model, and what it makes of new rows is what it made of the site's own, to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ..errors import InputError, InputTypeError
from .columns import with_zeros
from .linalg import Array
from .sources import ChangedRows, RowSource, as_rows

Change = Callable[[Any, Mapping[str, Array]], Any]
"""From rows (n x d) and the step's arrays to changed rows (n x d)."""


@dataclass(frozen=True)
class Kind:
    """What steps of one kind do.

    Attributes
    ----------
    change : rows and arrays -> rows
    axes : mapping from the name of an array to its axes, such as "d" or "d c"; "" for a number
    sparse : bool
        Whether it takes scipy's sparse rows and gives sparse ones.
    tells : arrays -> text
        What steps of this kind did, in words, for reports.
    drops : arrays -> (d,) array, or None
        Which columns are zero in all rows afterwards; None where no column is taken out.
    """

    change: Change
    axes: Mapping[str, str]
    sparse: bool
    tells: Callable[[Mapping[str, Array]], str]
    drops: Callable[[Mapping[str, Array]], Any] | None


KINDS: dict[str, Kind] = {}


def kind(
    name: str,
    *,
    sparse: bool = False,
    tells: Callable[[Mapping[str, Array]], str] | None = None,
    drops: Callable[[Mapping[str, Array]], Any] | None = None,
    **axes: str,
) -> Callable[[Change], Change]:
    """Mark a function as what steps of this kind do; see :class:`Kind`."""

    def register(change: Change) -> Change:
        KINDS[name] = Kind(change, axes, sparse, tells or (lambda _: name), drops)
        return change

    return register


@dataclass(frozen=True, eq=False)
class Step:
    """One agreed change of rows.

    >>> step = Step("fill", {"values": np.array([0.0, 5.0])})
    >>> step.apply(np.array([[1.0, np.nan], [np.nan, 2.0]])).tolist()
    [[1.0, 5.0], [0.0, 2.0]]
    """

    kind: str
    arrays: Mapping[str, Array] = field(default_factory=dict)

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
        if (scipy.sparse.issparse(X) or (isinstance(X, RowSource) and X.sparse)) and not KINDS[self.kind].sparse:
            raise InputTypeError(f"sparse rows cannot be prepared by {self.kind!r}, which would fill them; give a dense table")
        if isinstance(X := as_rows(X), RowSource):
            return ChangedRows(X, self.apply)
        if not (scipy.sparse.issparse(X) or isinstance(X, np.ndarray)):
            raise InputTypeError(f"rows of type {type(X).__name__} cannot be prepared; give a numpy array or a sparse matrix")
        return KINDS[self.kind].change(X, self.arrays)

    def __str__(self) -> str:
        return KINDS[self.kind].tells(self.arrays)


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


@kind("fill", tells=lambda _: "missing entries filled in", values="d")
def fill(X: Any, arrays: Mapping[str, Array]) -> Any:
    """Values (d,) where entries are missing (NaN)."""
    return np.where(np.isnan(X), arrays["values"].astype(X.dtype), X)


@kind(
    "features",
    sparse=True,
    tells=lambda a: f"{np.count_nonzero(a['having'] >= a['least'])} of {len(a['having'])} features, that enough sites have",
    drops=lambda a: np.asarray(a["having"]) < np.asarray(a["least"]),
    having="d",
    least="",
    doubts="d",
)
def features(X: Any, arrays: Mapping[str, Array]) -> Any:
    """Zeros in the columns that fewer than ``least`` sites have; ``having`` (d,) is how many have each.

    ``doubts`` (d,) is how many sites find a column to be in another unit than at the others, which changes nothing.
    """
    return with_zeros(X, np.flatnonzero(np.asarray(arrays["having"]) < np.asarray(arrays["least"])))


from . import changes  # noqa: E402, F401  # which registers its kinds, and needs the above

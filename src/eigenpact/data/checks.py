"""Checks of the tables that sites bring, before anything is computed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..errors import InputError, InputTypeError
from ..numerics.sources import RowSource, as_rows, pieces
from ..numerics.weighted import LARGEST
from .as_stored import check_exact

BLOCK_ELEMENTS = 1 << 20
SHOWN = 5

FOR_MISSING = (
    "drop those rows or columns, or let the fit handle missing ones (NaN): missing='mean' or missing='em' (--missing), for "
    "genotypes --prepare genotypes; transform takes --project"
)
FOR_INFINITE = "an infinite one is often a division by zero or an overflow: correct it, or leave its cell empty, which is missing"
"""What to do about entries that are not finite."""


def check_finite(name: str, X: Any, feature_names: Sequence[str] | None = None, *, missing: bool = False) -> None:
    """Raise an InputError that names the columns of X (n_rows x n_features, dense, sparse or a source) holding NaN or infinity.

    With ``missing``, NaN stands for a missing entry and is allowed.  Nothing is densified, and at most a block of about a
    million entries is looked at at once.

    >>> check_finite("A", np.ones((2, 2)))
    >>> check_finite("A", np.array([[1.0, np.nan], [2.0, np.inf]]), ["age", "bmi"])
    Traceback (most recent call last):
    eigenpact.errors.InputError: site 'A': column 'bmi' has 1 NaN and 1 infinite...
    """
    check_numeric(name, X)
    check_exact(f"site {name!r}", X, feature_names)
    X = as_rows(X)
    if not isinstance(X, RowSource):
        X = X.tocsr() if sparse.issparse(X) else np.asarray(X)
    if X.dtype.kind != "f" or (isinstance(X, RowSource) and X.facts.get("finite")):
        return
    nans = np.zeros(X.shape[1], dtype=np.int64)
    infs = np.zeros(X.shape[1], dtype=np.int64)
    for values, columns in _bad_entries(X):
        is_nan = np.isnan(values)
        if not missing:
            nans += np.bincount(columns[is_nan], minlength=nans.size)
        infs += np.bincount(columns[~is_nan], minlength=infs.size)
    bad = np.flatnonzero(nans + infs)
    if bad.size == 0:
        if isinstance(X, RowSource) and not missing:
            X.facts["finite"] = True  # else every command and estimator would read the file again for this
        return
    labels = list(feature_names) if feature_names is not None else range(nans.size)
    found = [
        f"column {labels[j]!r} has "
        + " and ".join(f"{count} {what}" for count, what in ((nans[j], "NaN"), (infs[j], "infinite")) if count)
        for j in bad[:SHOWN]
    ]
    more = f", and {bad.size - SHOWN} more columns" if bad.size > SHOWN else ""
    advice = [*([FOR_MISSING] if nans.any() else []), *([FOR_INFINITE] if infs.any() else [])]
    raise InputError(f"site {name!r}: {', '.join(found)}{more}; only finite numbers are allowed: {'. '.join(advice)}")


def check_not_masked(whose: str, X: Any) -> None:
    """Raise if X is a numpy masked array, or a list of masked rows, that hides entries: they would be read as data.

    >>> check_not_masked("site 'A'", np.ma.array([[1.0, 2.0]], mask=[[False, True]]))
    Traceback (most recent call last):
    eigenpact.errors.InputError: site 'A': 1 entry is masked...
    """
    parts = [X] if isinstance(X, np.ndarray) else X if isinstance(X, list | tuple) else []
    hidden = sum(int(np.count_nonzero(np.ma.getmaskarray(part))) for part in parts if isinstance(part, np.ma.MaskedArray))
    if hidden:
        raise InputError(
            f"{whose}: {hidden} {'entry is' if hidden == 1 else 'entries are'} masked, and their values would be read as data; "
            "fill them in with X.filled(value), or drop those rows with numpy.ma.compress_rows(X)"
        )


def check_real(whose: str, X: Any) -> None:
    """Raise if X (array, sparse matrix, DataFrame) has a complex dtype, naming it."""
    dtypes = list(X.dtypes) if hasattr(X, "dtypes") and hasattr(X, "columns") else [getattr(X, "dtype", None)]
    found = next((dtype for dtype in dtypes if getattr(dtype, "kind", "") == "c"), None)
    if found is not None:
        raise complex_error(whose, str(found))


def complex_error(whose: str, dtype: str) -> InputError:
    """The error for complex numbers of this dtype."""
    return InputError(
        f"Complex data not supported: {whose} has dtype {dtype}; "
        "give real numbers, for example X.real, or X.real and X.imag side by side"
    )


def check_numeric(name: str, X: Any) -> None:
    """Raise if X (n_rows x n_features: array, sparse matrix or DataFrame) does not hold real numbers.

    >>> check_numeric("A", np.array([["1", "2"]]))
    Traceback (most recent call last):
    eigenpact.errors.InputTypeError: site 'A': X has dtype <U1; only real numbers are allowed...
    """
    if hasattr(X, "dtypes") and hasattr(X, "columns"):
        bad = [(column, dtype) for column, dtype in X.dtypes.items() if getattr(dtype, "kind", "O") not in "biufc"]
        if bad:
            shown = ", ".join(f"{column!r} ({dtype})" for column, dtype in bad[:SHOWN])
            more = f" and {len(bad) - SHOWN} more" if len(bad) > SHOWN else ""
            raise InputTypeError(f"site {name!r}: columns {shown}{more} are not numbers; {_mend(X, bad)}")
    else:
        dtype = X.dtype if hasattr(X, "dtype") else np.asarray(X).dtype
        if dtype.kind not in "biufc":
            raise InputTypeError(
                f"site {name!r}: X has dtype {dtype}; only real numbers are allowed: "
                "convert it with X.astype(float), and encode text columns as numbers first"
            )
        if dtype.kind == "c":
            raise complex_error(f"site {name!r}", str(dtype))
    check_real(f"site {name!r}", X)


def _mend(X: Any, bad: Sequence[tuple[Any, Any]]) -> str:
    """What to do about columns that hold no numbers, or numbers as objects."""
    try:
        X[[column for column, _ in bad]].astype(float)
    except (TypeError, ValueError, KeyError, AttributeError):
        return "drop them, or encode them as numbers"
    return "what they hold can be read as numbers: give X.astype(float)"


def checked_weights(name: str, weights: Any, n: int, called: str = "sample_weight") -> NDArray[np.float64]:
    """Weights (n,) of a site's n rows as float64; refused if they are not finite numbers, one is negative, or all are zero.

    >>> checked_weights("A", [1, 0, 2], 3).tolist()
    [1.0, 0.0, 2.0]
    >>> checked_weights("A", [1, -2], 2)
    Traceback (most recent call last):
    eigenpact.errors.InputError: site 'A': sample_weight of row 1 is -2.0; ...
    """
    whose = f"site {name!r}: {called}"
    found = np.asarray(weights)
    if found.shape != (n,):
        raise InputError(f"{whose} has shape {found.shape} for {n} rows; give one number per row")
    if found.dtype == object:
        try:
            found = found.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise InputTypeError(f"{whose} does not hold numbers: {error}; give one number per row") from error
    if found.dtype.kind not in "biuf":
        raise InputTypeError(f"{whose} has dtype {found.dtype}; give one number per row")
    found = found.astype(np.float64)
    bad = np.flatnonzero(~(np.isfinite(found) & (found >= 0)))
    if bad.size:
        more = f", and {bad.size - 1} more are no weights" if bad.size > 1 else ""
        raise InputError(f"{whose} of row {bad[0]} is {found[bad[0]]}{more}; a weight is a finite number >= 0")
    if not found.any():
        raise InputError(f"{whose} is zero for all {n} rows; leave the site out, or give a row some weight")
    if found.max() >= LARGEST / n:
        raise InputError(
            f"{whose} of row {found.argmax()} is {found.max():.3g}, which is too large; divide all weights by one number, for "
            "example so that their mean is 1"
        )
    several = int(np.count_nonzero(found))
    if several > 1 and abs(math.fsum(found.tolist()) - 1) <= 1e-9:
        raise InputError(
            f"{whose} adds up to 1, so they are shares, by which every site would count the same, as one row; a weight is how "
            f"often a row counts: multiply them by the number of rows, {several}"
        )
    return found


def check_names(name: str, n_features: int, names: Sequence[str] | None) -> None:
    """Refuse a site's names of columns that are not as many as its columns, or not all different."""
    if names is None:
        return
    if len(names) != n_features:
        raise InputError(f"site {name!r} has {n_features} features but {len(names)} feature names; give one name per column")
    repeated = [feature for feature, times in Counter(names).items() if times > 1]
    if repeated:
        raise InputError(f"site {name!r} has repeated feature names {repeated[:SHOWN]}; rename the columns apart")


def match_columns(wanted: Sequence[str], names: Sequence[str]) -> tuple[NDArray[np.intp] | None, str]:
    """The columns of ``names`` in the order of ``wanted``, None if they already are; and how the names differ, empty if not.

    >>> match_columns(["age", "bmi"], ["bmi", "age"]), match_columns(["age", "bmi"], ["age", "rate"])
    ((array([1, 0]), ''), (None, "lacks ['bmi'] and has in addition ['rate']"))
    """
    different = differences(wanted, names)
    if different or tuple(names) == tuple(wanted):
        return None, different
    at = {feature: column for column, feature in enumerate(names)}
    return np.array([at[feature] for feature in wanted], dtype=np.intp), ""


def differences(wanted: Sequence[str], names: Sequence[str]) -> str:
    """How names differ from those that are wanted, in whatever order; empty if they do not."""
    missing, extra = sorted(set(wanted) - set(names)), sorted(set(names) - set(wanted))
    return " and ".join(
        f"{what} {some[:SHOWN]}" + (f" and {len(some) - SHOWN} more" if len(some) > SHOWN else "")
        for what, some in (("lacks", missing), ("has in addition", extra))
        if some
    )


def _bad_entries(table: Any) -> Iterator[tuple[NDArray[Any], NDArray[np.intp]]]:
    """Yield (values, columns) of the entries that are not finite, block by block."""
    if isinstance(table, RowSource):
        for _, piece in pieces(table):
            yield from _bad_entries(piece)
        return
    if sparse.issparse(table):
        for start in range(0, table.nnz, BLOCK_ELEMENTS):
            block = table.data[start : start + BLOCK_ELEMENTS]
            bad = ~np.isfinite(block)
            if bad.any():
                yield block[bad], table.indices[start : start + BLOCK_ELEMENTS][bad]
        return
    step = max(1, BLOCK_ELEMENTS // max(1, table.shape[1]))
    for start in range(0, table.shape[0], step):
        block = table[start : start + step]
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(block.sum()):  # then so is every entry; a sum that is not may have overflowed
                continue
        bad = ~np.isfinite(block)
        if bad.any():
            yield block[bad], np.nonzero(bad)[1]

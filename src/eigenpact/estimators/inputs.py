"""From what users pass to ``fit`` to checked rows per site.  Nothing is computed here, and bad input changes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import array_api_compat
import numpy as np
import scipy.sparse
from sklearn.utils.validation import check_array, column_or_1d, validate_data

from ..data.checks import check_finite, check_numeric, check_same_features
from ..errors import InputError, InputTypeError


def is_several_sites(X: Any) -> bool:
    """Whether X is a collection of sites (a dict, or a list of two-dimensional tables) rather than one matrix.

    >>> is_several_sites([np.ones((2, 3)), np.ones((4, 3))]), is_several_sites([[1.0, 2.0], [3.0, 4.0]])
    (True, False)
    """
    if scipy.sparse.issparse(X):  # before the test for dict: scipy's DOK matrix is one
        return False
    if isinstance(X, Mapping):
        return True
    return isinstance(X, list | tuple) and len(X) > 0 and all(len(getattr(part, "shape", ())) == 2 for part in X)


def hold(estimator: Any, X: Any, sites: Any = None) -> dict[str, Any]:
    """Check what was passed to ``fit`` and sort it into sites, in the user's order: name -> rows (n, d).

    Sets ``n_features_in_`` and feature names on the estimator.
    """
    if is_several_sites(X):
        if sites is not None:
            raise InputError("sites= labels the rows of one matrix; X already comes as several sites, so leave sites out")
        named = list(X.items()) if isinstance(X, Mapping) else [(f"site{i}", part) for i, part in enumerate(X)]
        return _hold_named(estimator, _by_text(named))
    if isinstance(X, list | tuple) and not X:
        raise InputError("no sites were given; give at least one table with rows")
    if sites is None:
        return _hold_named(estimator, {"site0": X})
    whole = _checked(estimator, "all sites", X, reset=True, alone=True, finite=False)
    labels = column_or_1d(sites, dtype=None)
    if len(labels) != whole.shape[0]:
        raise InputError(f"sites has {len(labels)} labels for {whole.shape[0]} rows; give one label per row")
    parts = _by_text([(label, whole[np.flatnonzero(labels == label)]) for label in np.unique(labels)])
    for name, part in parts.items():
        check_finite(name, part, _feature_names(X))
    return parts


def _by_text(named: list[tuple[Any, Any]]) -> dict[str, Any]:
    """Sites by their names as text, which must differ."""
    parts = {str(name): part for name, part in named}
    if len(parts) < len(named):
        repeated = next(name for name, times in Counter(str(name) for name, _ in named).items() if times > 1)
        raise InputError(f"two sites read {repeated!r} as text; name the sites apart")
    return parts


def _hold_named(estimator: Any, named: dict[str, Any]) -> dict[str, Any]:
    tables = {name: part for name, part in named.items() if len(getattr(part, "shape", ())) == 2}
    features = {name: (int(part.shape[1]), _feature_names(part)) for name, part in tables.items()}
    orders = check_same_features(features) if len(features) > 1 else {}
    checked: dict[str, Any] = {}
    for i, (name, part) in enumerate(named.items()):
        table = part.iloc[:, orders[name]] if orders.get(name) is not None and hasattr(part, "iloc") else part
        checked[name] = _checked(estimator, name, table, reset=i == 0, alone=len(named) == 1)
    return checked


def _feature_names(table: Any) -> tuple[str, ...] | None:
    columns = getattr(table, "columns", None)
    return None if columns is None else tuple(str(c) for c in columns)


def _checked(estimator: Any, name: str, table: Any, reset: bool, alone: bool, finite: bool = True) -> Any:
    if array_api_compat.is_array_api_obj(table) and not array_api_compat.is_numpy_array(table):
        return _checked_where_it_lies(estimator, name, table, reset)
    if not alone and getattr(table, "shape", (1,))[0] == 0:
        raise InputError(f"site {name!r} has no rows; leave it out or give it at least one row")
    if hasattr(table, "columns"):
        check_numeric(name, table)
    options = {"accept_sparse": ["csr", "csc"], "dtype": [np.float64, np.float32], "ensure_all_finite": False}
    prefix = "" if alone else f"site {name!r}: "
    try:
        X = validate_data(estimator, table, **options) if reset else check_array(table, **options)
    except TypeError as error:
        raise InputTypeError(f"{prefix}{error}; only real numbers are allowed, so encode other values first") from error
    except ValueError as error:
        raise InputError(f"{prefix}{error}") from error
    if finite:
        check_finite(name, X, _feature_names(table))
    return X


def _checked_where_it_lies(estimator: Any, name: str, table: Any, reset: bool) -> Any:
    """Rows of another array library (torch, cupy, ...), perhaps on a GPU: checked there, never copied to this side."""
    xp = array_api_compat.array_namespace(table)
    if table.ndim != 2 or table.shape[0] == 0 or table.shape[1] == 0:
        raise InputError(f"site {name!r}: shape {tuple(table.shape)} is not a table with rows and columns")
    if not xp.isdtype(table.dtype, ("integral", "real floating")):
        raise InputTypeError(f"site {name!r}: dtype {table.dtype} does not hold real numbers; convert it first")
    if xp.isdtype(table.dtype, "integral"):
        table = xp.astype(table, xp.float64)
    bad = int(xp.sum(xp.astype(~xp.isfinite(table), xp.int64)))
    if bad:
        raise InputError(f"site {name!r}: {bad} entries are NaN or infinite; drop those rows or fill them in")
    if reset:
        estimator.n_features_in_ = int(table.shape[1])
    return table

"""From what users pass to ``fit`` to checked rows per site.  Nothing is computed here, and bad input changes nothing."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import array_api_compat
import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.utils.validation import check_array, check_is_fitted, column_or_1d, validate_data

from ..data.agreement import Agreement, Columns, SitePlan, agree_on_features, check_gaps
from ..data.as_stored import check_entries_within, check_exact, rounds, without_room
from ..data.checks import (
    FOR_INFINITE,
    FOR_MISSING,
    check_finite,
    check_not_masked,
    check_numeric,
    check_real,
    complex_error,
)
from ..data.features_report import FeaturesReport, OfSite
from ..data.take_columns import take_columns
from ..errors import InputError, InputTypeError, UnitsWarning
from ..numerics.elsewhere import Elsewhere, is_elsewhere
from ..numerics.on_device import OnDevice
from ..numerics.rows import add_duplicates
from ..numerics.sources import ArraySource, RowSource, SomeRows, as_rows, is_on_disk
from ..numerics.units import quartiles, units_in_doubt
from ..runtime import Adopter, Engine
from .frames import check_table, is_missing, rows_by_label, split_off_sites, warn_of_doubtful

NARROW = tuple(np.dtype(kind) for kind in (np.uint8, np.int8, np.uint16, np.int16))
"""Kinds of whole numbers, such as genotypes and pixels, whose copy in floating point would be at least four times as large."""

SHOWN = 5
"""Columns in doubt that a warning names."""


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


def hold(estimator: Any, X: Any, sites: Any = None, *, gaps: bool = False, narrow: bool = False) -> dict[str, Any]:
    """Check what was passed to ``fit`` and sort it into sites, in the user's order: name -> rows (n, d).

    With ``gaps``, NaN stands for a missing entry.  Rows on disk (memory maps, zarr and HDF5 arrays, sources) stay there.  With
    ``narrow``, so do arrays of whole numbers of one or two bytes: they are not copied, and whoever computes with them converts
    some at a time.  Sets ``n_features_in_`` and feature names on the estimator, and ``features_report_`` on one that has a
    parameter ``features``.
    """
    if is_several_sites(X):
        if sites is not None:
            raise InputError("sites= labels the rows of one matrix; X already comes as several sites, so leave sites out")
        named = list(X.items()) if isinstance(X, Mapping) else [(f"site{i}", part) for i, part in enumerate(X)]
        if not named:
            raise InputError("no sites were given; give at least one table with rows")
        return _hold_named(estimator, _by_text(named), gaps, narrow)
    if isinstance(X, list | tuple) and not X:
        raise InputError("no sites were given; give at least one table with rows")
    if sites is None:
        return _hold_named(estimator, {"site0": X}, gaps, narrow)
    X, sites = split_off_sites(X, sites)
    whole = _checked(estimator, "", X, alone=True, finite=False, gaps=gaps, narrow=narrow)
    try:
        labels = column_or_1d(sites, dtype=None)
    except ValueError as error:
        raise InputError(f"sites: {error}; give one label per row") from error
    if len(labels) != whole.shape[0]:
        raise InputError(f"sites has {len(labels)} labels for {whole.shape[0]} rows; give one label per row")
    unlabelled = [i for i, label in enumerate(labels.tolist()) if is_missing(label)]
    if unlabelled:
        raise InputError(f"row {unlabelled[0]} and {len(unlabelled) - 1} more have no site label; label every row or drop them")
    parts = _by_text([(label, _some_rows(whole, rows)) for label, rows in rows_by_label(labels)])
    names = _feature_names(X)
    for name, part in parts.items():
        if not is_elsewhere(part):  # which was checked as a whole
            check_finite(name, part, names, missing=gaps)
    _remember_features(estimator, X)
    warn_of_doubtful(getattr(estimator, "feature_names_in_", None), [whole], 4)
    _remember_report(estimator, FeaturesReport("strict", int(whole.shape[1]), dict.fromkeys(parts, OfSite())))
    return parts


def _some_rows(X: Any, index: NDArray[np.intp]) -> Any:
    """Rows by their numbers, on disk or in another library where they are."""
    if is_elsewhere(X):
        xp = array_api_compat.array_namespace(X)
        return xp.take(X, xp.asarray(index, device=array_api_compat.device(X)), axis=0)
    return SomeRows(X, index) if isinstance(X, RowSource) else X[index]


def adopt(estimator: Any, engine: Engine, X: Any, sites: Any = None, *, gaps: bool = False) -> dict[str, Any] | None:
    """Sites that the engine makes of X itself, checked where the rows are; None if X is ordinary data.

    Sets ``n_features_in_`` and feature names on the estimator.
    """
    parts = engine.adopt(X, partial(check_rows, gaps=gaps)) if isinstance(engine, Adopter) else None
    if parts is None:
        return None
    if sites is not None:
        raise InputError("sites= labels the rows of one matrix; here each worker's blocks are a site, so leave sites out")
    if not parts:
        raise InputError("X has no rows; give at least one table with rows")
    try:
        validate_data(estimator, next(iter(parts.values())).header, skip_check_array=True)
    except TypeError as error:
        raise InputTypeError(str(error)) from error
    return dict(parts)


def check_rows(name: str, table: Any, *, gaps: bool = False) -> Any:
    """Rows (n, d) of a site's table, numbers and finite, or missing with ``gaps``; an engine calls this where the table is."""
    return _checked(None, name, table, alone=False, gaps=gaps)


def _by_text(named: list[tuple[Any, Any]]) -> dict[str, Any]:
    """Sites by their names as text, which must differ."""
    parts = {str(name): part for name, part in named}
    if len(parts) < len(named):
        repeated = next(name for name, times in Counter(str(name) for name, _ in named).items() if times > 1)
        raise InputError(f"two sites read {repeated!r} as text; name the sites apart")
    return parts


def _hold_named(estimator: Any, named: dict[str, Any], gaps: bool, narrow: bool) -> dict[str, Any]:
    agreed = _agreed(estimator, named, gaps)
    checked: dict[str, Any] = {}
    for name, part in named.items():
        plan, own = agreed.plans.get(name, SitePlan()), part
        if plan.columns is not None and hasattr(part, "iloc"):
            has = plan.columns >= 0
            own = part.iloc[:, plan.columns[has]]
            plan = SitePlan() if has.all() else SitePlan(np.where(has, np.cumsum(has) - 1, -1))
        rows = _checked(estimator, name, own, alone=len(named) == 1, gaps=gaps, narrow=narrow)
        checked[name] = take_columns(rows, plan)
    _remember_features(estimator, next((part for part in named.values() if _feature_names(part)), next(iter(named.values()))))
    if agreed.features is not None and agreed.report.mode != "strict":
        estimator.n_features_in_ = len(agreed.features)
        if hasattr(estimator, "feature_names_in_"):
            estimator.feature_names_in_ = np.array(agreed.features, dtype=object)
    warn_of_doubtful(getattr(estimator, "feature_names_in_", None), checked.values(), 5)
    _remember_report(estimator, agreed.report if agreed.features is None else _with_units(agreed, checked))
    return checked


def _with_units(agreed: Agreement, held: dict[str, Any]) -> FeaturesReport:
    """What was agreed on, and which columns, since they have names, look to be in another unit at one site: a warning, too."""
    doubts = units_in_doubt({name: quartiles(X) for name, X in held.items() if isinstance(X, np.ndarray)})
    told = tuple(doubt.told(agreed.features) for doubt in doubts)
    if told:
        more = f"; and {len(told) - SHOWN} more" if len(told) > SHOWN else ""
        warnings.warn("; ".join(told[:SHOWN]) + more, UnitsWarning, stacklevel=5)
    return replace(agreed.report, notes=agreed.report.notes + told)


def _remember_report(estimator: Any, report: FeaturesReport) -> None:
    if hasattr(estimator, "features"):
        estimator.features_report_ = report


def _agreed(estimator: Any, named: dict[str, Any], gaps: bool) -> Agreement:
    """What the sites' columns have in common, by the estimator's ``features``."""
    tables = {name: part for name, part in named.items() if len(getattr(part, "shape", ())) == 2}
    if len(tables) < 2:
        count = next((int(part.shape[1]) for part in tables.values()), 0)
        return Agreement(None, {}, FeaturesReport("strict", count, dict.fromkeys(named, OfSite())))
    columns = {name: Columns(int(part.shape[1]), _feature_names(part)) for name, part in tables.items()}
    agreed = agree_on_features(columns, getattr(estimator, "features", "strict"))
    check_gaps(agreed, filled=gaps)
    for name, plan in agreed.plans.items():
        unnamed = [column for column in getattr(tables[name], "columns", ()) if not isinstance(column, str)]
        if plan.columns is not None and unnamed:
            raise InputError(
                f"site {name!r} has its columns in another order, or others, and {unnamed[0]!r} is no text, so that "
                "transform could not match them; name columns by text, for example table.columns = table.columns.astype(str)"
            )
    return agreed


def _feature_names(table: Any) -> tuple[str, ...] | None:
    columns = None if isinstance(table, RowSource) else getattr(table, "columns", None)
    return None if columns is None else tuple(str(c) for c in columns)


def _remember_features(estimator: Any, table: Any) -> None:
    """Set the number of features and their names, once all sites are known to be good."""
    if is_elsewhere(table):
        estimator.n_features_in_ = int(table.shape[1])
    else:
        validate_data(estimator, table, skip_check_array=True, reset=True)


def _checked(
    estimator: Any, name: str, table: Any, alone: bool, finite: bool = True, gaps: bool = False, narrow: bool = False
) -> Any:
    check_table(f"site {name!r}" if name and not alone else "X", table)
    if is_on_disk(table) or isinstance(table, RowSource):
        return _checked_on_disk(name, table, gaps=gaps, finite=finite)
    if is_elsewhere(table):
        stays = estimator is None or estimator._computes_there
        table = _checked_where_it_lies(name, table, missing=gaps and estimator is not None)
        return table if stays else Elsewhere(table)
    if not alone and getattr(table, "shape", (1,))[0] == 0:
        raise InputError(f"site {name!r} has no rows; leave it out or give it at least one row")
    if hasattr(table, "columns") or getattr(getattr(table, "dtype", None), "kind", "") in ("m", "M"):
        check_numeric(name or "all sites", table)
    whose = f"site {name!r}" if name else "X"
    check_not_masked(whose, table)
    check_real(whose, table)
    check_entries_within(whose, table)
    table = without_room(table)
    check_exact(whose, table, _feature_names(table))
    stays = narrow and isinstance(table, np.ndarray) and table.dtype in NARROW
    options = {"accept_sparse": "csr", "dtype": [np.float64, np.float32, *(NARROW if stays else ())], "ensure_all_finite": False}
    prefix = "" if alone else f"{whose}: "
    try:
        X = check_array(table, estimator=estimator, **options)
    except TypeError as error:
        raise _not_numbers(whose, prefix, error) from error
    except ValueError as error:
        raise InputError(f"{prefix}{error}") from error
    X = add_duplicates(X) if scipy.sparse.issparse(X) else X
    if finite:
        check_finite(name, X, _feature_names(table), missing=gaps)
    return X


def _not_numbers(whose: str, prefix: str, error: TypeError) -> InputError | InputTypeError:
    """What to tell of a table that did not become numbers."""
    if "'complex'" in str(error):  # dtype object, or lists
        return complex_error(whose, "object with complex numbers in it")
    return InputTypeError(f"{prefix}{error}; only real numbers are allowed, so encode other values first")


def check_new_rows(estimator: Any, X: Any, **options: Any) -> Any:
    """Rows (n, n_features) for a fitted estimator, checked as scikit-learn does; each entry of a sparse matrix stored once."""
    check_is_fitted(estimator)
    if is_several_sites(X):
        raise InputError("give one table of rows; call once for each site, where the result is to stay")
    if is_elsewhere(X) and X.ndim == 2:
        whole = array_api_compat.array_namespace(X).isdtype(X.dtype, "integral")
        X = Elsewhere(_as_doubles("X", X) if whole else X)
    if is_on_disk(X) or isinstance(X, RowSource):
        return _new_rows_on_disk(estimator, X, missing=options.get("ensure_all_finite", True) is not True)
    check_table("X", X)
    check_not_masked("X", X)
    check_real("X", X)
    check_entries_within("X", X)
    X = without_room(X)
    check_exact("X", X, _feature_names(X))
    try:
        rows = validate_data(estimator, X, reset=False, dtype=[np.float64, np.float32], **options)
    except TypeError as error:
        raise _not_numbers("X", "", error) from error
    except ValueError as error:
        raise InputError(str(error)) from error
    return add_duplicates(rows.tocsr()) if scipy.sparse.issparse(rows) else rows


def _checked_on_disk(name: str, table: Any, *, gaps: bool, finite: bool) -> RowSource:
    """Rows that stay on disk: checked a piece at a time, converted when they are read."""
    whose = f"site {name!r}" if name else "X"
    if table.ndim != 2 or 0 in table.shape:
        raise InputError(f"{whose}: shape {tuple(table.shape)} is not a table with rows and columns")
    if np.dtype(table.dtype).kind not in "biuf":
        raise InputTypeError(f"{whose}: dtype {table.dtype} does not hold real numbers; convert it first")
    source: RowSource = as_rows(table)
    check_exact(whose, source)
    if finite and not (isinstance(source, ArraySource) and source.stored.kind != "f"):
        if isinstance(source, OnDevice):
            source.note_if_finite()
        check_finite(name, source, missing=gaps)
    return source


def _new_rows_on_disk(estimator: Any, X: Any, *, missing: bool) -> RowSource:
    """Rows on disk for a fitted estimator: as many features as it has, finite."""
    source = _checked_on_disk("", X, gaps=missing, finite=False)
    if source.shape[1] != estimator.n_features_in_:
        name, wanted = type(estimator).__name__, estimator.n_features_in_
        raise InputError(f"X has {source.shape[1]} features, but {name} is expecting {wanted} features as input")
    check_finite("X", source, missing=missing)
    return source


def _as_doubles(whose: str, table: Any) -> Any:
    """Whole numbers of another array library (n x d) in double precision, refused if that rounds them."""
    xp = array_api_compat.array_namespace(table)
    doubles = xp.astype(table, xp.float64)
    if xp.iinfo(table.dtype).bits < 64:
        return doubles
    same = xp.all(xp.astype(doubles, table.dtype) == table, axis=0)
    if not bool(xp.all(same)):
        raise rounds(whose, int(xp.argmin(xp.astype(same, xp.int64))))
    return doubles


def _checked_where_it_lies(name: str, table: Any, *, missing: bool = False) -> Any:
    """Rows of another array library (torch, cupy, ...), perhaps on a GPU: checked there, not copied to this side."""
    xp, whose = array_api_compat.array_namespace(table), f"site {name!r}" if name else "X"
    if table.ndim != 2 or table.shape[0] == 0 or table.shape[1] == 0:
        raise InputError(f"{whose}: shape {tuple(table.shape)} is not a table with rows and columns")
    if not xp.isdtype(table.dtype, ("integral", "real floating")):
        raise InputTypeError(f"{whose}: dtype {table.dtype} does not hold real numbers; convert it first")
    if xp.isdtype(table.dtype, "integral"):
        table = _as_doubles(whose, table)
    with np.errstate(over="ignore", invalid="ignore"):
        finite = bool(xp.isfinite(xp.sum(table)))  # no entry is NaN or infinite then; a sum that is may have overflowed
    infinite, nans = (0, 0) if finite else (int(xp.count_nonzero(mark(table))) for mark in (xp.isinf, xp.isnan))
    bad = infinite + (0 if missing else nans)
    if bad:
        what = "infinite" if missing else "NaN or infinite"
        advice = [*([FOR_MISSING] if bad > infinite else []), *([FOR_INFINITE] if infinite else [])]
        raise InputError(f"{whose}: {bad} entries are {what}; only finite numbers are allowed: {'. '.join(advice)}")
    return table
